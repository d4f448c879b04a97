/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals on streams between processes of one host, into memory of a device, over the
 * simulator of the driver:
 *
 *   mpirun -n 2 mpi_mapped alone|abort|refused|uncopied
 *   mpirun --enable-recovery -n 3 mpi_mapped death
 *
 * alone: rank 0 makes no progress, and its stream stands; when it goes on, data and count of a put
 * come to rank 1, in order, with no engine of rank 0's, and a wait there goes on.  abort: rank 0
 * aborts, deregisters and destroys while its stream stands in front of a put; then the stream goes
 * on, and writes where it was to.  refused: the driver of rank 0 registers no memory; its puts are
 * the engine's, with the reason, and rank 1's still go on streams.  uncopied: each rank has a GPU
 * of its own, and maps the other's memory, which its driver does not copy: puts go by message, with the reason,
 * and nothing stays mapped.  death: rank 1 is killed while the
 * others' streams stand at copies to it.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "mpi_device.h"
#include "forecast.h"

/* The counters of a rank take some pages. */
enum { ROOM = 1 << 20, WORDS = 8, SIGNALS = 300, LAST = SIGNALS - 1 };

static const struct cudasim *sim;
static struct baton_comm *comm;
static struct baton_window *window;
static unsigned char *part, *data; /* device memory */
static CUstream stream;
static _Atomic uint64_t *words; /* pinned: the stream waits for one of them */
static int rank, gpu;

static bool
holds(const unsigned char *at, size_t bytes, unsigned char value)
{
	return device_holds(sim, at, bytes, value);
}

static void
hold(int word)
{
	CHECK(sim->wait_value(stream, (CUdeviceptr)(uintptr_t)&words[word], 1,
	                      BATONI_CU_WAIT_GEQ) == 0);
}

static void
let_go(int word)
{
	atomic_store(&words[word], 1);
}

static void
put_mapped(int peer, size_t bytes, size_t at, int index, baton_request *request_p)
{
	CHECK(baton_put_signal(data, bytes, BATON_UINT8, peer, window, at, index, 0,
	                       0, comm, stream, NULL, request_p) == BATON_OK);
}

static uint64_t
count(int peer, int index)
{
	uint64_t n = 0;

	CHECK(baton_signal_count(comm, peer, index, 0, &n) == BATON_OK);
	return n;
}

static void
await_count(int peer, int index, uint64_t n)
{
	while (count(peer, index) < n)
		usleep(100);
}

static const char *
why_engine_puts(void)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	CHECK(baton_comm_query(comm, &info) == BATON_OK);
	return info.why_engine_puts;
}

static void
create(enum baton_progress progress)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.cuda_device = gpu;
	options.progress = progress;
	options.signals_max = SIGNALS;
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm) == BATON_OK);
	if (!comm)
		exit(exit_status());
}

static void
make_memory(void)
{
	CUdeviceptr memory = 0;
	CUcontext context;
	void *pinned = NULL;

	CHECK(sim->init(0) == 0 && sim->primary_retain(&context, gpu) == 0 &&
	      sim->context_push(context) == 0 &&
	      sim->mem_alloc(&memory, 2 * (size_t)ROOM) == 0 &&
	      sim->host_alloc(&pinned, WORDS * sizeof(uint64_t),
	                      BATONI_CU_HOST_ALLOC_PORTABLE |
	                              BATONI_CU_HOST_ALLOC_MAPPED) == 0 &&
	      sim->stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING, 0) == 0);
	if (!pinned)
		exit(exit_status());
	part = (unsigned char *)(uintptr_t)memory;
	data = part + ROOM;
	words = memset(pinned, 0, WORDS * sizeof(uint64_t));
	device_set(sim, part, ROOM, 0);
	device_set(sim, data, ROOM, (unsigned char)(rank + 1));
}

static void
open_window(void)
{
	CHECK(baton_window_register(part, ROOM, comm, &window) == BATON_OK);
	if (!window)
		exit(exit_status());
}

static void
close_all(void)
{
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
meet(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- alone ---- */

static void
put_alone(void)
{
	baton_request requests[4];

	hold(0);
	put_mapped(1, ROOM / 2, 64, 3, &requests[0]);
	put_mapped(1, 100, 0, 4, &requests[1]);
	CHECK(baton_signal(1, 3, 0, 0, comm, stream, NULL, &requests[2]) ==
	      BATON_OK);
	CHECK(baton_signal(1, LAST, 0, 0, comm, stream, NULL, &requests[3]) ==
	      BATON_OK);
	meet(); /* rank 1 looks */
	meet();
	let_go(0);
	meet(); /* it has seen them */
	for (int i = 0; i < 4; i++)
		CHECK(baton_finish(&requests[i], -1, NULL) == BATON_OK);
}

static void
see_alone(void)
{
	struct baton_wait_signal_desc last = {1, 0, LAST, 0};
	baton_request waited = 0;
	struct batoni_load load;

	CHECK(baton_wait_signal(1, &last, comm, stream, NULL, &waited) ==
	      BATON_OK);
	meet();
	CHECK(count(0, 3) == 0 && count(0, 4) == 0);
	CHECK(holds(part, ROOM, 0));
	/* It is parked, and nobody will ring. */
	do {
		CHECK(baton_test(waited, NULL) == BATON_PENDING);
		batoni_lock();
		load = batoni_comm_load(comm);
		batoni_unlock();
	} while (load.parked == 0);
	CHECK(load.unrung);
	meet();
	CHECK(baton_finish(&waited, -1, NULL) == BATON_OK);
	await_count(0, 4, 1);
	CHECK(count(0, 3) >= 1);
	CHECK(holds(part, 64, 1) && holds(part + 64, ROOM / 2, 1));
	CHECK(holds(part + 64 + ROOM / 2, ROOM / 4, 0));
	await_count(0, 3, 2);
	meet();
}

static void
run_alone(void)
{
	create(BATON_PROGRESS_CALLS);
	make_memory();
	CHECK(strcmp(why_engine_puts(), "") == 0);
	open_window();
	CHECK(baton_window_path(window, 1 - rank) == BATON_WINDOW_PATH_DIRECT);
	if (rank == 0)
		put_alone();
	else
		see_alone();
	close_all();
}

/* ---- refused ---- */

static void
run_refused(void)
{
	struct baton_wait_signal_desc one = {1, 1 - rank, 0, 0};
	baton_request request = 0, waited = 0;

	if (rank == 0)
		CHECK(sim->sim_fail("cuMemHostRegister_v2", 1, 801, false));
	create(BATON_PROGRESS_AUTO);
	make_memory();
	if (rank == 0)
		CHECK(strstr(why_engine_puts(), "cuMemHostRegister"));
	else
		CHECK(strcmp(why_engine_puts(), "") == 0);
	open_window();
	for (unsigned i = 1; i <= 10; i++) {
		put_mapped(1 - rank, 1000, (size_t)rank * 1000, 0, &request);
		CHECK(baton_wait_signal(1, &one, comm, stream, NULL, &waited) ==
		      BATON_OK);
		CHECK(baton_finish(&waited, -1, NULL) == BATON_OK);
		CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
		CHECK(holds(part + (1 - rank) * 1000, 1000,
		            (unsigned char)(2 - rank)));
	}
	close_all();
}

/* ---- uncopied ---- */

static void
put_and_wait(void)
{
	struct baton_wait_signal_desc one = {1, 1 - rank, 0, 0};
	baton_request request = 0, waited = 0;

	for (unsigned i = 1; i <= 10; i++) {
		put_mapped(1 - rank, ROOM / 4, (size_t)rank * ROOM / 2, 0, &request);
		CHECK(baton_wait_signal(1, &one, comm, stream, NULL, &waited) ==
		      BATON_OK);
		CHECK(baton_finish(&waited, -1, NULL) == BATON_OK);
		CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
	}
	CHECK(holds(part + (1 - rank) * ROOM / 2, ROOM / 4,
	            (unsigned char)(2 - rank)));
}

static void
run_uncopied(void)
{
	gpu = rank;
	CHECK(sim->sim_set("devices", 2));
	CHECK(sim->sim_set("peer_copies", 0));
	create(BATON_PROGRESS_AUTO);
	make_memory();
	open_window();
	CHECK(baton_window_path(window, 1 - rank) == BATON_WINDOW_PATH_MESSAGE);
	CHECK(strstr(baton_window_why(window, 1 - rank), "cuMemcpyAsync"));
	CHECK(sim->sim_live("opened") == 0);
	put_and_wait();
	close_all();
}

/* ---- abort ---- */

static void
abort_behind_a_put(void)
{
	struct baton_completion done = {0};
	baton_request request = 0;

	hold(0);
	put_mapped(1, ROOM, 0, 0, &request);
	meet();
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_test(request, &done) == BATON_ERR_ABORTED);
	CHECK(done.flags & BATON_COMPLETION_LENT);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	CHECK(sim->sim_queued() > 0);
	meet(); /* rank 1 has looked */
	/* Nothing of its mappings is gone. */
	let_go(0);
	CHECK(sim->stream_synchronize(stream) == 0);
	meet();
}

/* Its own end stays until then. */
static void
see_abort(void)
{
	meet();
	CHECK(count(0, 0) == 0);
	meet();
	meet();
	CHECK(count(0, 0) == 1);
	CHECK(holds(part, ROOM, 1));
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
run_abort(void)
{
	create(BATON_PROGRESS_AUTO);
	make_memory();
	open_window();
	if (rank == 0)
		abort_behind_a_put();
	else
		see_abort();
}

/* ---- death ---- */

static void
survive(void)
{
	int other = rank == 0 ? 2 : 0;
	struct baton_wait_signal_desc one = {1, other, 1, 0};
	struct baton_completion done = {0};
	baton_request dead = 0, request = 0, waited = 0;

	/* The stream comes to the put, and stands at its copy. */
	CHECK(sim->sim_set("copies", 0));
	put_mapped(1, ROOM / 2, 0, 0, &dead);
	meet();
	/* Rank 1 is killed now. */
	CHECK(baton_wait(dead, -1, &done) == BATON_ERR_PEER);
	CHECK(done.flags & BATON_COMPLETION_LENT);
	CHECK(sim->sim_set("copies", 1));
	CHECK(sim->stream_synchronize(stream) == 0);
	do
		CHECK(baton_test(dead, &done) == BATON_ERR_PEER);
	while (done.flags & BATON_COMPLETION_LENT);
	CHECK(baton_release(&dead) == BATON_OK);
	/* The living are not concerned, and what is put to the dead harms nobody. */
	CHECK(baton_comm_status(comm) == BATON_OK);
	for (int i = 0; i < 10; i++) {
		enum baton_status status;

		put_mapped(1, 1000, 0, 0, &dead);
		status = baton_finish(&dead, -1, NULL);
		CHECK(status == BATON_OK || status == BATON_ERR_PEER);
		put_mapped(other, 1000, (size_t)rank * 1000, 1, &request);
		CHECK(baton_wait_signal(1, &one, comm, stream, NULL, &waited) ==
		      BATON_OK);
		CHECK(baton_finish(&waited, -1, NULL) == BATON_OK);
		CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
		CHECK(holds(part + (size_t)other * 1000, 1000,
		            (unsigned char)(other + 1)));
	}
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	CHECK(sim->sim_violations() == 0);
	device_survived(rank);
}

static void
run_death(void)
{
	create(BATON_PROGRESS_AUTO);
	make_memory();
	open_window();
	if (rank != 1)
		survive();
	meet();
	raise(SIGKILL);
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} runs[] = {
		{"alone", run_alone},
		{"abort", run_abort},
		{"refused", run_refused},
		{"uncopied", run_uncopied},
		{"death", run_death},
	};

	sim = device_begin(argc, argv, &rank);
	if (!sim)
		return 77;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		if (argc > 1 && strcmp(argv[1], runs[i].name) == 0)
			runs[i].run();
	CHECK(sim->sim_violations() == 0);
	MPI_Finalize();
	return exit_status();
}
