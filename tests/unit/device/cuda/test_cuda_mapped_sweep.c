/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Driver calls fail, while two processes send each other long messages of device memory that become one
 * copy each.
 *
 * The variant is the rank whose driver fails, in one use of one function; the other rank is a child of
 * that process.  What may come of it: a call is refused with a sentence, or a message ends in an error; then
 * that rank aborts, and the other one's messages end in an error.  Or the message goes in pieces.  What may not: a hang, a
 * crash, a message that ends in OK with other bytes, a violation, memory that nobody frees.
 *
 * Without arguments the first use of each function fails, and the last one for good.  "all": every use up
 * to the 10th, and the last three.
 */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_world.h"
#include "driver_sweep.h"
#include "mem.h"
#include "shared_memory.h"

enum { BYTES = 300000, UNIT = 2 << 20, MESSAGES = 24 };

static struct shared {
	struct baton_unique_id id;
	pthread_barrier_t barrier;
} *shared;

static int rank;
static bool faulty; /* this rank's driver fails */
static bool failed;
static struct baton_comm *comm;

static bool
taken(enum baton_status status)
{
	if (status == BATON_OK)
		return true;
	must(status < 0 && baton_last_error()[0] != '\0');
	must(driver_fault.function);
	failed = true;
	return false;
}

static void
create(void)
{
	struct baton_comm_options options = cuda_world_options();

	options.transport = BATON_TRANSPORT_NEAR;
	options.timeout_ns = LONG_NS;
	if (rank == 0)
		must(baton_unique_id_create(&shared->id) == BATON_OK);
	pthread_barrier_wait(&shared->barrier);
	must(baton_comm_create_id(2, rank, &shared->id, &options, &comm) ==
	     BATON_OK);
}

/* Its end, whatever it is. */
static void
finish(baton_request request, const unsigned char *received, unsigned seed)
{
	enum baton_status status;

	if (!request)
		return;
	status = baton_finish(&request, LONG_NS, NULL);
	must(status != BATON_PENDING && status != BATON_ERR_STALE);
	if (status == BATON_OK && received) {
		cuda_world_expect(received, BYTES, seed);
	} else if (status != BATON_OK) {
		must(driver_fault.function);
		failed = true;
	}
}

/* One message in each direction. */
static void
exchange(unsigned char *from, unsigned char *to, unsigned i)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request sends = 0, receives = 0;

	detached.flags = BATON_OP_DETACHED;
	cuda_world_fill(from, BYTES, 2 * i + (unsigned)rank);
	taken(baton_recv(to, BYTES, BATON_UINT8, 1 - rank, 1, comm, cw.streams[0],
	                 &detached, &receives));
	taken(baton_send(from, BYTES, BATON_UINT8, 1 - rank, 1, comm,
	                 cw.streams[1], &detached, &sends));
	if (failed)
		must(baton_comm_abort(comm) == BATON_OK);
	finish(sends, NULL, 0);
	finish(receives, to, 2 * i + 1 - (unsigned)rank);
	if (failed)
		(void)baton_comm_abort(comm);
}

/* Memory that other processes map, and that outlives the communicator: what an abort leaves lent may be
 * copied until that is destroyed. */
static unsigned char *
make_memory(void)
{
	const CUmemAllocationProp properties = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.requestedHandleTypes = BATONI_CU_HANDLE_FD,
		.location = {BATONI_CU_LOCATION_DEVICE, 0},
	};
	const CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, 0},
	                                BATONI_CU_ACCESS_READ_WRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr memory;

	must(cw.sim->vm_create(&handle, UNIT, &properties, 0) == 0);
	must(cw.sim->vm_reserve(&memory, UNIT, 0, 0, 0) == 0);
	must(cw.sim->vm_map(memory, UNIT, 0, handle, 0) == 0);
	must(cw.sim->vm_access(memory, UNIT, &access, 1) == 0);
	must(cw.sim->vm_release(handle) == 0);
	return (unsigned char *)(uintptr_t)memory;
}

static void
free_memory(const unsigned char *memory)
{
	must(cw.sim->vm_unmap((uintptr_t)memory, UNIT) == 0);
	must(cw.sim->vm_unreserve((uintptr_t)memory, UNIT) == 0);
}

static void
run_rank(void)
{
	unsigned char *from, *to;

	cuda_world_begin();
	create();
	from = make_memory();
	to = make_memory();
	if (faulty)
		driver_sweep_arm();
	for (unsigned i = 0; i < MESSAGES && !failed; i++)
		exchange(from, to, i);
	must(baton_comm_destroy(comm) == BATON_OK);
	if (faulty)
		driver_sweep_disarm();
	cw.sim->sim_settle(false);
	free_memory(from);
	free_memory(to);
	must(cw.sim->sim_violations() == 0);
	/* Rank 0 relays for the other until that has left too. */
	while (batoni_mem_blocks() > 0)
		sched_yield();
}

static void
run_two(void)
{
	int status = -1;
	pid_t child;

	shared = shared_alloc(sizeof(*shared));
	shared_barrier(&shared->barrier, 2);
	child = fork();
	must(child >= 0);
	faulty = child > 0;
	rank = faulty ? driver_fault.variant : 1 - driver_fault.variant;
	if (!faulty) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(100);
		run_rank();
		_exit(0);
	}
	run_rank();
	must(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	     WEXITSTATUS(status) == 0);
}

/* What is called for messages that are mapped. */
static const char *const functions[] = {
	"cuPointerGetAttributes",      "cuMemGetAddressRange_v2",
	"cuDeviceGetUuid",             "cuMemRetainAllocationHandle",
	"cuMemExportToShareableHandle", "cuMemRelease",
	"cuMemImportFromShareableHandle", "cuMemAddressReserve",
	"cuMemMap",                    "cuMemSetAccess",
	"cuMemcpyAsync",               "cuStreamBatchMemOp_v2",
	"cuCtxPushCurrent_v2",         "cuMemUnmap",
	"cuMemAddressFree",
};

static bool all;

static void
sweep(const char *function, int variant)
{
	long last = driver_sweep_uses(function);

	if (last == 0)
		return;
	for (long n = 1; n <= last; n++) {
		if (all ? n > 10 && n < last - 2 : n > 1)
			continue;
		driver_sweep_one((struct driver_fault){function, n, 999, false,
		                                       variant});
	}
	driver_sweep_one((struct driver_fault){function, last, 719, true, variant});
}

START_TEST(every_driver_call_may_fail)
{
	driver_sweep_begin(run_two);
	for (int variant = 0; variant < 2; variant++) {
		driver_sweep_one((struct driver_fault){.variant = variant});
		for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]);
		     i++)
			sweep(functions[i], variant);
	}
	ck_assert_int_eq(driver_sweep_end(), 0);
}
END_TEST

int
main(int argc, char **argv)
{
	const TTest *const tests[] = {every_driver_call_may_fail};

	setenv("BATON_LOG", "none", 1);
	all = argc > 1 && strcmp(argv[1], "all") == 0;
	return RUN_TESTS("cuda_mapped_sweep", tests);
}
