/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every driver call fails once on one of two ranks that are processes, over the simulator of the
 * driver; unit.cuda_window_sweep has it for ranks that are threads.
 *
 *   mpirun -n 2 mpi_sweep [FUNCTION N RESULT STICKY VICTIM WAY]
 *
 * Each run is a communicator of its own: both ranks create it, register a window of device memory,
 * send to each other (plain messages, and a list of tensors), put, signal and wait, and take all
 * down.  The n-th use of one driver function fails on the victim.  What may come of it: the
 * collective calls are refused on both ranks; or calls of the victim are refused, with a sentence,
 * and its requests end in an error.  What may not: a hang, a crash, an operation that does not end,
 * an error of the driver on the rank whose driver is well, a signal without its data, objects that
 * nobody gives back.
 *
 * A rank on which something failed aborts.  The other one learns of it in two ways, by turns: TOLD,
 * by a message of MPI's, upon which it aborts as well; or not: then its operations have DEADLINES.
 * In the end both agree whether to leave in order.  After each such run, unless the error is sticky,
 * another one without a fault succeeds.
 *
 * A run that does not end within LIMIT_S seconds, or leaves something behind, ends the job, which
 * names it.
 */
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "cudasim.h"
#include "program.h"

enum {
	LIMIT_S = 100,
	SLOT = 128 << 10,
	LONG = 100000,
	SLOTS = 8,
	ROOM = SLOTS * SLOT,
	USES_MAX = 128,
	TOLD_TAG = 77
};

/* What a rank puts and sends: slots of the parts, and of the buffer for messages. */
enum {
	SHORT,
	LONGER,
	PAGEABLE,
	GROUPED,
	DETACHED,
	PUTS,
	SIGNAL = PUTS,
	SIGNALS,
	WAIT = SIGNALS,
	RECORD,
	SEND_SHORT,
	RECV_SHORT,
	SEND_LONG,
	RECV_LONG,
	SEND_LIST,
	RECV_LIST,
	REQUESTS
};

enum way { TOLD, DEADLINES, WAYS };

static struct fault {
	const char *function; /* NULL: none */
	long n;
	CUresult result;
	bool sticky;
	int victim;
	enum way way;
} fault;

static const struct cudasim *sim;
static int rank;
static MPI_Comm side; /* the program's own messages */
/* The program's, of this run: one that outlives it would one day share a hardware queue with own. */
static CUstream stream;
static unsigned char *from, *part, *to; /* device memory, ROOM bytes each */
static unsigned char pageable[LONG];

static struct baton_comm *comm;
static baton_stream own;
static struct baton_window *window;
static void *block, *base;
static baton_request requests[REQUESTS];
/* In this run: a call was refused here, or an operation ended in an error; this rank aborted; the
 * victim has told of its failure. */
static bool failed, aborted, told;
static long uses[USES_MAX]; /* of each function in a run without a fault */
static long aborts;         /* since objects were last counted */

static char label[240], last_fault[160] = "none"; /* this run, and the last one with a fault */

static void
complain(const char *what, int line)
{
	atomic_fetch_add(&failures, 1);
	printf("not ok  rank %d: %s: line %d: %s; \"%s\"\n", rank, label, line,
	       what, baton_last_error());
	fflush(stdout);
}

#define must(condition)                                                       \
	do {                                                                  \
		if (!(condition))                                             \
			complain(#condition, __LINE__);                       \
	} while (0)

static void
give_up(int number)
{
	struct iovec text[] = {{"does not go on: ", 16},
		                {label, strlen(label)},
		                {"\n", 1}};

	_exit(number == SIGALRM && writev(STDERR_FILENO, text, 3) > 0 ? 1 : 2);
}

static bool
is_victim(void)
{
	return fault.function && rank == fault.victim;
}

/* A call was taken, or refused with a sentence. */
static bool
taken(enum baton_status status)
{
	if (status == BATON_OK)
		return true;
	must(status < 0 && baton_last_error()[0] != '\0');
	must(is_victim() || aborted || baton_comm_status(comm) != BATON_OK);
	failed = true;
	return false;
}

/* Both ranks have taken a collective call, or both were refused. */
static bool
both(enum baton_status status)
{
	int mine = status != BATON_OK, all[2];

	MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, side);
	must(all[0] == all[1]);
	must(!mine || fault.function);
	if (mine)
		must(baton_last_error()[0] != '\0');
	return !all[0] && !all[1];
}

/* ---- data ---- */

static unsigned char
byte_of(int source, int slot, size_t i)
{
	return (unsigned char)(i * 7 + (i >> 8) +
	                       (size_t)(source * 100 + slot) * 13 + 1);
}

static CUdeviceptr
address(const void *pointer)
{
	return (CUdeviceptr)(uintptr_t)pointer;
}

static void
fill_slots(void)
{
	static unsigned char bytes[ROOM];

	for (int slot = 0; slot < SLOTS; slot++)
		for (size_t i = 0; i < SLOT; i++)
			bytes[(size_t)slot * SLOT + i] = byte_of(rank, slot, i);
	sim->sim_poke(address(from), bytes, ROOM);
	memcpy(pageable, bytes + (size_t)PAGEABLE * SLOT, LONG);
	memset(bytes, 0, ROOM);
	sim->sim_poke(address(to), bytes, ROOM);
	sim->sim_poke(address(base), bytes, ROOM);
}

static bool
holds(const void *memory, int slot, size_t bytes, int source)
{
	static unsigned char got[SLOT];

	sim->sim_peek(got, address((const char *)memory + (size_t)slot * SLOT),
	              bytes);
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != byte_of(source, slot, i))
			return false;
	return true;
}

static size_t
bytes_of(int slot)
{
	return slot == SHORT ? 5 : LONG;
}

/* No signal came without its data, and if nothing failed each did. */
static void
check_signals(bool anywhere)
{
	for (int i = 0; i < SIGNALS; i++) {
		uint64_t count = 0;

		must(baton_signal_count(comm, 1 - rank, i, 0, &count) == BATON_OK);
		must(count <= 1 && (count == 1 || anywhere));
		must(count == 0 || i >= PUTS ||
		     holds(base, i, bytes_of(i), 1 - rank));
	}
}

/* ---- a run ---- */

static struct baton_op_options
op_options(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	if (fault.function && fault.way == DEADLINES)
		options.timeout_ns = 200000000;
	return options;
}

static void
put_slot(int slot, const void *memory, unsigned flags)
{
	struct baton_op_options options = op_options();

	options.flags = flags;
	taken(baton_put_signal(memory, bytes_of(slot), BATON_UINT8, 1 - rank,
	                       window, (size_t)slot * SLOT, slot, 0, 0, comm,
	                       stream, &options, &requests[slot]));
}

static void
enqueue_list(void)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[3] = {
		{from + 5 * (size_t)SLOT, BATON_UINT8, 1, {1000}},
		{from + 6 * (size_t)SLOT, BATON_UINT8, 2, {10, 5000}},
		{pageable, BATON_UINT8, 1, {300}},
	};

	options.op.timeout_ns = op_options().timeout_ns;
	taken(baton_send_tensors(list, 3, 1 - rank, 9, comm, own, &options,
	                         &requests[SEND_LIST]));
	list[0].data = to + 5 * (size_t)SLOT;
	list[1].data = to + 6 * (size_t)SLOT;
	list[2].data = to + 7 * (size_t)SLOT;
	taken(baton_recv_tensors(list, 3, 1 - rank, 9, comm, stream, &options,
	                         &requests[RECV_LIST]));
}

static void
enqueue_messages(void)
{
	static const size_t lengths[] = {5, LONG};
	struct baton_op_options options = op_options();

	for (int i = 0; i < 2; i++) {
		size_t at = (size_t)i * SLOT;

		taken(baton_send(from + at, lengths[i], BATON_UINT8, 1 - rank, i,
		                 comm, own, &options,
		                 &requests[SEND_SHORT + 2 * i]));
		taken(baton_recv(to + at, lengths[i], BATON_UINT8, 1 - rank, i,
		                 comm, stream, &options,
		                 &requests[RECV_SHORT + 2 * i]));
	}
	enqueue_list();
}

static void
enqueue_group(void)
{
	struct baton_op_options options = op_options();

	if (!taken(baton_group_begin(comm)))
		return;
	put_slot(GROUPED, from + (size_t)GROUPED * SLOT, 0);
	taken(baton_signal(1 - rank, SIGNAL, 0, 0, comm, own, &options,
	                   &requests[SIGNAL]));
	/* Handles of a void group are stale. */
	if (!taken(baton_group_end(comm)))
		requests[GROUPED] = requests[SIGNAL] = 0;
}

static void
enqueue(void)
{
	struct baton_wait_signal_desc descs[SIGNALS];
	struct baton_op_options options = op_options();

	put_slot(SHORT, from, 0);
	put_slot(LONGER, from + (size_t)LONGER * SLOT, 0);
	put_slot(PAGEABLE, pageable, 0);
	enqueue_group();
	put_slot(DETACHED, from + (size_t)DETACHED * SLOT, BATON_OP_DETACHED);
	enqueue_messages();
	for (int i = 0; i < SIGNALS; i++)
		descs[i] = (struct baton_wait_signal_desc){1, 1 - rank, i, 0};
	taken(baton_wait_signal(SIGNALS, descs, comm, own, &options,
	                        &requests[WAIT]));
	if (taken(baton_record(comm, own, NULL, &requests[RECORD])))
		taken(baton_stream_wait(comm, stream, requests[RECORD]));
}

/* Errors of the driver are the victim's alone. */
static void
check_end(int i, enum baton_status status)
{
	char text[300];

	must(status != BATON_ERR_STALE && status != BATON_ERR_INVALID);
	must(baton_request_error(requests[i], text, sizeof(text)) == BATON_OK);
	must((status == BATON_OK) == (text[0] == '\0'));
	if (status == BATON_OK)
		return;
	failed = true;
	if (is_victim())
		return;
	if ((status == BATON_ERR_ABORTED && aborted) ||
	    (status == BATON_ERR_TIMEOUT && fault.function &&
	     fault.way == DEADLINES))
		return;
	printf("request %d: %s: %s\n", i, baton_status_name(status), text);
	complain("the other rank's fault ends it so", __LINE__);
}

static bool
end_all(void)
{
	bool pending = false;

	for (int i = 0; i < REQUESTS; i++) {
		enum baton_status status;

		if (!requests[i])
			continue;
		status = baton_test(requests[i], NULL);
		if (status == BATON_PENDING) {
			pending = true;
			continue;
		}
		check_end(i, status);
		must(baton_release(&requests[i]) == BATON_OK);
	}
	return pending;
}

/* The victim tells the other one, once. */
static void
tell(MPI_Request *telling_p)
{
	if (told || !is_victim())
		return;
	told = true;
	MPI_Isend(NULL, 0, MPI_INT, 1 - rank, TOLD_TAG, side, telling_p);
}

static void
listen(void)
{
	int here = 0;

	if (is_victim() || !fault.function || told)
		return;
	MPI_Iprobe(1 - rank, TOLD_TAG, side, &here, MPI_STATUS_IGNORE);
	if (!here)
		return;
	MPI_Recv(NULL, 0, MPI_INT, 1 - rank, TOLD_TAG, side, MPI_STATUS_IGNORE);
	told = true;
}

static void
abort_here(void)
{
	if (aborted)
		return;
	aborted = true;
	must(baton_comm_abort(comm) == BATON_OK);
}

static void
await_ends(MPI_Request *telling_p)
{
	bool pending;

	do {
		pending = end_all();
		if (is_victim() && failed) {
			tell(telling_p);
			abort_here();
		}
		listen();
		if (told && fault.way == TOLD)
			abort_here();
		usleep(100);
	} while (pending);
}

static void
await_streams(void)
{
	(void)baton_stream_synchronize(comm, stream);
	(void)baton_stream_synchronize(comm, own);
	while (!fault.sticky && (baton_stream_query(comm, own) != BATON_OK ||
	                         baton_stream_query(comm, stream) != BATON_OK))
		usleep(100);
}

static bool
anywhere(bool here)
{
	int mine = here, all;

	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, side);
	return all != 0;
}

static void
work(void)
{
	MPI_Request telling = MPI_REQUEST_NULL;
	bool bad;

	fill_slots();
	MPI_Barrier(side);
	enqueue();
	await_ends(&telling);
	await_streams();
	bad = anywhere(failed);
	/* What was on its way when a rank aborted. */
	if (anywhere(is_victim() && told))
		while (!told)
			listen();
	MPI_Wait(&telling, MPI_STATUS_IGNORE);
	if (!bad || (!aborted && baton_comm_status(comm) == BATON_OK))
		check_signals(bad);
	if (!bad)
		must(holds(to, 0, 5, 1 - rank) && holds(to, 1, LONG, 1 - rank) &&
		     holds(to, 5, 1000, 1 - rank));
	if (bad) {
		aborts++;
		abort_here();
	}
}

/* Rank 0's part is of baton_mem_alloc, if it can have that; rank 1's is the program's. */
static void
open_window(void)
{
	enum baton_status status;

	block = NULL;
	base = part;
	if (rank == 0 && taken(baton_mem_alloc(comm, ROOM, &block)))
		base = block;
	failed = false;
	for (int tries = 0; tries < 2 && !window; tries++) {
		status = baton_window_register(base, ROOM, comm, &window);
		if (!both(status))
			window = NULL;
		if (anywhere(baton_comm_status(comm) != BATON_OK))
			break;
	}
}

static void
close_window(void)
{
	for (int tries = 0; window && tries < 3; tries++) {
		if (baton_window_deregister(window) == BATON_OK)
			break;
		must(tries < 2 && baton_last_error()[0] != '\0');
		must(fault.function);
		abort_here();
	}
	window = NULL;
	MPI_Barrier(side);
	must(baton_mem_free(comm, block) == BATON_OK);
}

static void
take_down(void)
{
	enum baton_status status;

	close_window();
	while (own != stream &&
	       baton_stream_destroy(comm, own) != BATON_OK) {
		must(baton_last_error()[0] != '\0');
		if (fault.sticky)
			break;
		usleep(100);
	}
	status = baton_comm_destroy(comm);
	/* The other rank's communicator broke after they had agreed, and it has left alone. */
	if (status == BATON_ERR_TIMEOUT && fault.sticky && !is_victim()) {
		abort_here();
		status = baton_comm_destroy(comm);
	}
	must(status == BATON_OK);
	comm = NULL;
	/* A call that fails has destroyed it all the same. */
	must(sim->stream_destroy(stream) == 0 || is_victim());
}

static bool
create(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.cuda_device = rank;
	options.requests_max = 64;
	/* For a rank that breaks within a collective call. */
	options.timeout_ns = 30000000000;
	return both(baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm));
}

static void
run_program(void)
{
	memset(requests, 0, sizeof(requests));
	failed = aborted = told = false;
	window = NULL;
	comm = NULL;
	if (!create())
		return;
	while (sim->stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING, 0) != 0)
		must(is_victim());
	if (!taken(baton_stream_create(comm, &own)))
		own = stream;
	open_window();
	if (window)
		work();
	if (anywhere(baton_comm_status(comm) != BATON_OK))
		abort_here();
	take_down();
}

/* ---- the sweep ---- */

static void
describe(void)
{
	if (fault.function)
		snprintf(last_fault, sizeof(last_fault),
		         "%s, use %ld, result %u%s, on rank %d, %s",
		         fault.function, fault.n, (unsigned)fault.result,
		         fault.sticky ? ", sticky" : "", fault.victim,
		         fault.way == TOLD ? "told" : "deadlines");
	snprintf(label, sizeof(label), "%s%s",
	         fault.function ? "" : "no fault, after ", last_fault);
}

static void
run_one(struct fault now)
{
	fault = now;
	describe();
	alarm(LIMIT_S);
	MPI_Barrier(side);
	if (is_victim())
		must(sim->sim_fail(fault.function, fault.n, fault.result,
		                   fault.sticky));
	run_program();
	if (is_victim()) {
		sim->sim_fail(fault.function, 0, 0, false);
	}
	must(sim->sim_violations() == 0);
	MPI_Barrier(side);
	alarm(0);
}

/* A run leaves no more than the first one without a fault did.  What is freed or unregistered goes on
 * a thread of its own, so this waits until it has gone.  Two exceptions stay for good: after an
 * abort, memory of windows, and what MPI may still use of staging; addresses whose mapping the driver
 * did not undo. */
static void
check_live(bool unmap_failed)
{
	static struct {
		const char *what;
		bool stays; /* after an abort */
		long most;
	} kinds[] = {
		{"streams", false, -1},    {"opened", false, -1},
		{"registered", false, -1}, {"device", false, -1},
		{"pinned", true, -1},      {"pinned_bytes", true, -1},
		{"allocations", true, -1}, {"mappings", true, -1},
		{"reservations", true, -1},
	};

	sim->sim_settle(false);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (kinds[i].most < 0 ||
		    (kinds[i].stays && (aborts > 0 || unmap_failed)))
			kinds[i].most = sim->sim_live(kinds[i].what);
		snprintf(label, sizeof(label), "all but %ld %s, after %s",
		         kinds[i].most, kinds[i].what, last_fault);
		alarm(LIMIT_S);
		while (sim->sim_live(kinds[i].what) > kinds[i].most)
			usleep(100);
		alarm(0);
	}
	aborts = 0;
}

static void
fail_once(struct fault now)
{
	run_one(now);
	/* A device does not recover from a sticky error. */
	if (now.sticky)
		return;
	run_one((struct fault){.function = NULL});
	must(!failed);
	check_live(strcmp(now.function, "cuMemUnmap") == 0);
}

static void
count_uses(void)
{
	long before[USES_MAX];
	const char *name;

	for (int i = 0; i < USES_MAX && (name = sim->sim_name(i)); i++)
		before[i] = sim->sim_uses(name);
	run_one((struct fault){.function = NULL});
	must(!failed);
	check_live(false);
	for (int i = 0; i < USES_MAX && (name = sim->sim_name(i)); i++)
		uses[i] = sim->sim_uses(name) - before[i];
}

static void
sweep(void)
{
	static const CUresult results[] = {2, 801, 700, 999};
	int turn = 0;

	for (int i = 0; i < USES_MAX && sim->sim_name(i); i++)
		for (int victim = 0; victim < 2; victim++) {
			long last = uses[i]; /* the victim's, on both */
			struct fault now = {sim->sim_name(i), 1, 2, false, victim,
				             TOLD};

			MPI_Bcast(&last, 1, MPI_LONG, victim, side);
			for (int k = 0; k < 3 && k < last; k++) {
				now.n = k == 0 ? 1 : k == 1 ? last : (last + 1) / 2;
				now.result = results[turn % 4];
				now.way = (enum way)(turn / 4 % WAYS);
				fail_once(now);
				turn++;
			}
		}
}

static void
prepare(void)
{
	CUcontext context;
	CUdeviceptr memory = 0;

	must(sim->init(0) == 0 && sim->primary_retain(&context, rank) == 0 &&
	     sim->context_push(context) == 0 &&
	     sim->mem_alloc(&memory, 3 * (size_t)ROOM) == 0);
	from = (unsigned char *)(uintptr_t)memory;
	part = from + ROOM;
	to = part + ROOM;
}

int
main(int argc, char **argv)
{
	int level, mine, all;

	setenv("BATON_LOG", "none", 0);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_dup(MPI_COMM_WORLD, &side);
	sim = cudasim_load(NULL);
	if (!sim || !sim->sim_peek)
		return 77;
	signal(SIGALRM, give_up);
	prepare();
	count_uses();
	if (argc == 7)
		fail_once((struct fault){argv[1], atol(argv[2]),
		                          (CUresult)atol(argv[3]),
		                          atol(argv[4]) != 0, atoi(argv[5]),
		                          (enum way)atoi(argv[6])});
	else
		sweep();
	mine = atomic_load(&failures);
	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, side);
	if (rank == 0)
		printf("%d checks failed\n", all);
	MPI_Finalize();
	return all ? 1 : 0;
}
