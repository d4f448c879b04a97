/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every driver call fails once, while windows in device memory are registered, put into, waited
 * for and deregistered.
 *
 * Two ranks, each on a GPU of its own and on a thread of its own, put into each other's part and
 * into their own: short and long, from device memory and from pageable memory, alone, detached and
 * in a group.  In each process one use of one driver function fails.  What may come of it:
 * calls are refused with a sentence, or requests end in an error; then the ranks abort.  What may
 * not: a hang, a crash, an operation that does not end, a signal without its data, a stream that
 * stands still, a context or a mode that stays changed, memory, mappings or events that nobody
 * gives back.  After an error that is not sticky the same program then runs without a fault.
 *
 * Variants: the path.  Puts on streams, by the engine's copies, and by message.
 *
 * Without arguments the first use of each function fails in passing and the last one for
 * good, each on another path in turn, and the last one in passing on each.  "all": every
 * use up to the 10th, and from there on every third or so, on each path.  "one FUNCTION N
 * RESULT STICKY VARIANT": that run alone.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda_world.h"
#include "driver_sweep.h"
#include "mem.h"

enum { RANKS = 2, SLOT = 128 << 10, LONG = 100000, SLOTS = 8, ROOM = SLOTS * SLOT };

/* What a rank does: the index of each signal, and its slot in the part. */
enum {
	SHORT,
	LONGER,
	PAGEABLE,
	SIGNAL,
	GROUPED,
	GROUPED_SIGNAL,
	DETACHED,
	OWN,
	ALL,
	WAIT = ALL,
	RECORD,
	REQUESTS
};

static const struct {
	const char *name, *variable, *value;
} variants[] = {
	{"streams", "BATON_LOG", "none"},
	{"engine", "BATON_PUTS", "engine"},
	{"message", "BATON_WINDOW_PATH", "message"},
};
enum { VARIANTS = sizeof(variants) / sizeof(variants[0]) };

struct side {
	int rank;
	CUcontext context;
	CUstream stream;                   /* the program's */
	unsigned char *memory, *from, *part; /* of cuMemAlloc: what is put, and a part */
	struct baton_comm *comm;
	baton_stream own; /* Baton's */
	void *block;      /* of baton_mem_alloc, or NULL */
	void *base;       /* the part that is registered */
	struct baton_window *window;
	baton_request requests[REQUESTS];
	long streams_left;
};

static struct side sides[RANKS];
static unsigned char *pageable;
static pthread_barrier_t ranks_meet, all_meet; /* of the ranks' threads; and the main one */
static bool faulty; /* in this run a driver call fails */
static atomic_bool failed; /* a call was refused, or an operation ended in an error */

static void
meet(void)
{
	pthread_barrier_wait(&ranks_meet);
}

static int
other(const struct side *side)
{
	return 1 - side->rank;
}

/* A call was taken, or refused with a sentence. */
static bool
taken(enum baton_status status)
{
	if (status == BATON_OK)
		return true;
	must(status < 0 && baton_last_error()[0] != '\0');
	must(faulty);
	atomic_store(&failed, true);
	return false;
}

/* ---- data ----------------------------------------------------------------- */

static size_t
bytes_of(int op)
{
	return op == SHORT || op == OWN ? 5 : op == SIGNAL || op == GROUPED_SIGNAL
	                                              ? 0
	                                              : LONG;
}

static unsigned char
byte_of(int rank, int op, size_t i)
{
	return (unsigned char)(i * 7 + (i >> 8) + (size_t)(rank * 100 + op) * 13 +
	                       1);
}

/* What this rank puts; and the part holds none of what comes. */
static void
fill_side(struct side *side)
{
	unsigned char *bytes = malloc(ROOM);

	memset(bytes, 0, ROOM);
	cw.sim->sim_poke(cuda_world_address(side->base), bytes, ROOM);
	for (int op = 0; op < ALL; op++)
		for (size_t i = 0; i < SLOT; i++)
			bytes[(size_t)op * SLOT + i] = byte_of(side->rank, op, i);
	cw.sim->sim_poke(cuda_world_address(side->from), bytes, ROOM);
	if (side->rank == 0)
		memcpy(pageable, bytes + (size_t)PAGEABLE * SLOT, LONG);
	free(bytes);
}

static bool
is_there(const struct side *side, int op, int source)
{
	size_t bytes = bytes_of(op);
	unsigned char *got = malloc(SLOT);
	bool same = true;

	cw.sim->sim_peek(got,
	                 cuda_world_address((char *)side->base + op * SLOT),
	                 bytes);
	for (size_t i = 0; i < bytes; i++)
		same &= got[i] == byte_of(source, op, i);
	free(got);
	return same;
}

/* No signal came without its data, at most one did, and if nothing failed each did. */
static void
check_signals(const struct side *side)
{
	for (int op = 0; op < ALL; op++) {
		int source = op == OWN ? side->rank : other(side);
		uint64_t count = 0;

		/* Pageable memory is put by rank 0 alone. */
		if (op == PAGEABLE && source == 1)
			continue;
		must(baton_signal_count(side->comm, source, op, op == DETACHED,
		                        &count) == BATON_OK);
		must(count <= 1);
		must(count == 1 || atomic_load(&failed));
		must(count == 0 || is_there(side, op, source));
	}
}

/* ---- the program ---------------------------------------------------------- */

/* For both; again, where a fault that has passed refused them.  No context is current: each rank
 * has a GPU of its own. */
static void
create(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comms[RANKS] = {NULL, NULL};

	options.device = BATON_DEVICE_CUDA;
	options.requests_max = 32;
	/* For a rank that breaks within a collective call. */
	options.timeout_ns = 30000000000;
	if (!taken(baton_comm_create_local(RANKS, &options, comms)) &&
	    !driver_fault.sticky && strcmp(driver_fault.function, "cuInit") != 0)
		must(baton_comm_create_local(RANKS, &options, comms) == BATON_OK);
	for (int i = 0; i < RANKS; i++)
		sides[i].comm = comms[i];
}

/* Rank 0's part is of baton_mem_alloc, rank 1's of the program's. */
static void
take_part(struct side *side)
{
	side->block = NULL;
	side->base = side->part;
	for (int tries = 0; tries < 2 && side->rank == 0 && !side->block;
	     tries++) {
		if (!taken(baton_mem_alloc(side->comm, ROOM, &side->block)))
			side->block = NULL;
	}
	must(side->rank == 1 || side->block || driver_fault.sticky);
	if (side->block)
		side->base = side->block;
	fill_side(side);
}

/* All ranks are refused alike, and in passing once at most. */
static void
open_window(struct side *side)
{
	side->window = NULL;
	for (int tries = 0; tries < 2 && !side->window; tries++) {
		if (!taken(baton_window_register(side->base, ROOM, side->comm,
		                                 &side->window)))
			side->window = NULL;
	}
	must(side->window || driver_fault.sticky ||
	     baton_comm_status(side->comm) != BATON_OK);
}

static bool
put_from_side(struct side *side, int op, const void *from, baton_stream stream,
              const struct baton_op_options *options)
{
	return taken(baton_put_signal(
		from, bytes_of(op), BATON_UINT8,
		op == OWN ? side->rank : other(side), side->window,
		(size_t)op * SLOT, op, op == DETACHED, 0, side->comm, stream,
		options, &side->requests[op]));
}

static void
enqueue_group(struct side *side)
{
	if (!taken(baton_group_begin(side->comm)))
		return;
	put_from_side(side, GROUPED, side->from + GROUPED * SLOT, side->stream, NULL);
	taken(baton_signal(other(side), GROUPED_SIGNAL, 0, 0, side->comm,
	                   side->own, NULL, &side->requests[GROUPED_SIGNAL]));
	/* Handles of a void group are stale. */
	if (!taken(baton_group_end(side->comm)))
		side->requests[GROUPED] = side->requests[GROUPED_SIGNAL] = 0;
}

static void
enqueue_wait(struct side *side)
{
	struct baton_wait_signal_desc descs[ALL];
	size_t n = 0;

	for (int op = 0; op < ALL; op++) {
		int source = op == OWN ? side->rank : other(side);

		if (op != PAGEABLE || source == 0)
			descs[n++] = (struct baton_wait_signal_desc){
				1, source, op, op == DETACHED};
	}
	taken(baton_wait_signal(n, descs, side->comm, side->own, NULL,
	                        &side->requests[WAIT]));
}

static void
enqueue(struct side *side)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	put_from_side(side, SHORT, side->from, side->stream, NULL);
	put_from_side(side, LONGER, side->from + LONGER * SLOT, side->stream, NULL);
	if (side->rank == 0)
		put_from_side(side, PAGEABLE, pageable, side->stream, NULL);
	taken(baton_signal(other(side), SIGNAL, 0, 0, side->comm, side->own, NULL,
	                   &side->requests[SIGNAL]));
	enqueue_group(side);
	put_from_side(side, DETACHED, side->from + DETACHED * SLOT, side->stream,
	              &detached);
	put_from_side(side, OWN, side->from + OWN * SLOT, side->stream, NULL);
	enqueue_wait(side);
	if (taken(baton_record(side->comm, side->own, NULL,
	                       &side->requests[RECORD])))
		taken(baton_stream_wait(side->comm, side->stream,
		                        side->requests[RECORD]));
}

static bool
end_all(struct side *side)
{
	bool pending = false;
	char text[300];

	for (int i = 0; i < REQUESTS; i++) {
		enum baton_status status;

		if (!side->requests[i])
			continue;
		status = baton_test(side->requests[i], NULL);
		if (status == BATON_PENDING) {
			pending = true;
			continue;
		}
		must(status != BATON_ERR_STALE && status != BATON_ERR_INVALID);
		must(baton_request_error(side->requests[i], text, sizeof(text)) ==
		     BATON_OK);
		must((status == BATON_OK) == (text[0] == '\0'));
		must(status == BATON_OK || faulty);
		if (status != BATON_OK)
			atomic_store(&failed, true);
		must(baton_release(&side->requests[i]) == BATON_OK);
	}
	return pending;
}

/* An error on one side leaves the other waiting: that is for the program to end. */
static void
await_ends(struct side *side)
{
	while (end_all(side)) {
		if (atomic_load(&failed))
			must(baton_comm_abort(side->comm) == BATON_OK);
		usleep(100);
	}
}

/* Both or none: one that has would leave the other alone in the next collective call. */
static void
abort_if_failed(struct side *side)
{
	if (baton_comm_status(side->comm) != BATON_OK)
		atomic_store(&failed, true);
	meet();
	if (atomic_load(&failed))
		must(baton_comm_abort(side->comm) == BATON_OK);
}

static void
await_streams(struct side *side)
{
	if (!taken(baton_stream_synchronize(side->comm, side->stream)) ||
	    !taken(baton_stream_synchronize(side->comm, side->own)))
		must(faulty);
	while (!driver_fault.sticky &&
	       (baton_stream_query(side->comm, side->own) != BATON_OK ||
	        baton_stream_query(side->comm, side->stream) != BATON_OK))
		usleep(100);
}

static void
destroy_stream(struct side *side)
{
	enum baton_status status;

	if (side->own == side->stream)
		return;
	while ((status = baton_stream_destroy(side->comm, side->own)) !=
	       BATON_OK) {
		must(baton_last_error()[0] != '\0');
		must(status != BATON_ERR_INVALID);
		side->streams_left = driver_fault.sticky;
		if (driver_fault.sticky)
			return;
		usleep(100);
	}
}

/* Both ranks take part, or, on a communicator that is broken, each by itself.  Broken
 * meanwhile, the call is made again. */
static void
close_window(struct side *side)
{
	for (int tries = 0; side->window; tries++) {
		if (baton_window_deregister(side->window) == BATON_OK)
			break;
		must(tries < 3 && baton_last_error()[0] != '\0');
		must(faulty);
		atomic_store(&failed, true);
	}
	/* Where one has aborted, the other may still put. */
	meet();
	must(baton_mem_free(side->comm, side->block) == BATON_OK);
}

/* What failed before the last try of a call was made good by it. */
static void
forget_failures(struct side *side)
{
	meet();
	if (side->rank == 0 && !driver_fault.sticky)
		atomic_store(&failed, false);
	meet();
}

static void
run_side(struct side *side)
{
	memset(side->requests, 0, sizeof(side->requests));
	if (!taken(baton_stream_create(side->comm, &side->own)))
		side->own = side->stream;
	take_part(side);
	open_window(side);
	forget_failures(side);
	if (side->window) {
		enqueue(side);
		await_ends(side);
		await_streams(side);
		meet();
		check_signals(side);
	}
	abort_if_failed(side);
	meet();
	close_window(side);
	destroy_stream(side);
	must(baton_comm_destroy(side->comm) == BATON_OK);
}

/* ---- twice ---------------------------------------------------------------- */

static void
check_thread(const struct side *side)
{
	CUstreamCaptureMode mode = CUDASIM_CAPTURE_GLOBAL;
	CUcontext current = NULL;

	must(cw.sim->context_current(&current) == BATONI_CU_SUCCESS);
	must(current == side->context);
	must(cw.sim->capture_mode(&mode) == BATONI_CU_SUCCESS);
	must(mode == CUDASIM_CAPTURE_GLOBAL);
}

static void *
rank_main(void *argument)
{
	struct side *side = argument;

	must(cw.sim->context_push(side->context) == BATONI_CU_SUCCESS);
	pthread_barrier_wait(&all_meet);
	pthread_barrier_wait(&all_meet);
	if (side->comm)
		run_side(side);
	pthread_barrier_wait(&all_meet);
	pthread_barrier_wait(&all_meet);
	if (!faulty || !driver_fault.sticky)
		check_thread(side);
	return NULL;
}

static void
run_all(bool first)
{
	pthread_t threads[RANKS];
	long left = 0;

	faulty = first && driver_fault.function;
	atomic_store(&failed, false);
	for (int i = 0; i < RANKS; i++)
		must(pthread_create(&threads[i], NULL, rank_main, &sides[i]) ==
		     0);
	pthread_barrier_wait(&all_meet);
	if (first)
		driver_sweep_arm();
	create();
	pthread_barrier_wait(&all_meet);
	pthread_barrier_wait(&all_meet);
	if (first)
		driver_sweep_disarm();
	pthread_barrier_wait(&all_meet);
	for (int i = 0; i < RANKS; i++) {
		must(pthread_join(threads[i], NULL) == 0);
		left += sides[i].streams_left;
	}
	must(batoni_mem_blocks() == left);
	must(cw.sim->sim_violations() == 0);
}

static void
begin_side(struct side *side, int rank)
{
	CUdeviceptr memory;
	CUcontext popped;

	side->rank = rank;
	must(cw.sim->primary_retain(&side->context, rank) == BATONI_CU_SUCCESS);
	must(cw.sim->context_push(side->context) == BATONI_CU_SUCCESS);
	must(cw.sim->mem_alloc(&memory, (size_t)2 * ROOM) == BATONI_CU_SUCCESS);
	side->from = (void *)(uintptr_t)memory;
	side->part = side->from + ROOM;
	must(cw.sim->stream_create(&side->stream, BATONI_CU_STREAM_NON_BLOCKING,
	                           0) == BATONI_CU_SUCCESS);
	must(cw.sim->context_pop(&popped) == BATONI_CU_SUCCESS);
}

/* kept: memory of windows that were aborted, which stays since another rank might write there. */
static void
check_live(long kept)
{
	static const char *const exact[] = {"streams", "pinned", "pinned_bytes",
	                                    "opened", "registered", "device",
	                                    "captures"};

	for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++)
		driver_sweep_check_live(exact[i], 0);
	/* They are kept for the next use, as many as were in use at a time. */
	driver_sweep_check_live("events", 16);
	driver_sweep_check_live("allocations", kept);
	driver_sweep_check_live("mappings", kept);
	driver_sweep_check_live("reservations", kept);
}

static void
run_twice(void)
{
	const char *function = driver_fault.function;
	long kept;

	setenv(variants[driver_fault.variant].variable,
	       variants[driver_fault.variant].value, 1);
	cuda_world_load();
	must(cw.sim->sim_set("devices", RANKS));
	must(cw.sim->sim_set("peer", 1));
	must(cw.sim->init(0) == BATONI_CU_SUCCESS);
	pageable = malloc(LONG);
	for (int i = 0; i < RANKS; i++)
		begin_side(&sides[i], i);
	pthread_barrier_init(&ranks_meet, NULL, RANKS);
	pthread_barrier_init(&all_meet, NULL, RANKS + 1);
	run_all(true);
	if (driver_fault.sticky || (function && strcmp(function, "cuInit") == 0))
		return;
	kept = atomic_load(&failed);
	run_all(false);
	must(!atomic_load(&failed));
	cw.sim->sim_settle(false);
	must(cw.sim->sim_queued() == 0);
	must(cw.sim->sim_violations() == 0);
	check_live(kept);
}

/* ---- the sweep ------------------------------------------------------------ */

/* NOT_SUPPORTED is answered by doing without. */
static const CUresult results[] = {2, 801, 700, 999};
enum { RESULTS = sizeof(results) / sizeof(results[0]) };

static CUresult
result_of(unsigned i)
{
	return results[i % RESULTS];
}

static void
sweep_all(const char *function, int variant)
{
	long last = driver_sweep_uses(function);

	for (long n = 1; n <= last; n += n < 10 ? 1 : 1 + n / 3) {
		for (unsigned i = 0; i < (n <= 2 ? RESULTS : 1); i++)
			driver_sweep_one((struct driver_fault){
				function, n, result_of((unsigned)n + i), false,
				variant});
		driver_sweep_one(
			(struct driver_fault){function, n, 719, true, variant});
	}
}

/* i: of the function. */
static void
sweep_some(const char *function, unsigned i, int variant)
{
	long last = driver_sweep_uses(function);
	bool turn = i % VARIANTS == (unsigned)variant;

	if (turn && last > 1)
		driver_sweep_one((struct driver_fault){function, 1, result_of(i),
		                                       false, variant});
	driver_sweep_one((struct driver_fault){
		function, last, result_of(i / VARIANTS), false, variant});
	if (turn)
		driver_sweep_one((struct driver_fault){function, (last + 1) / 2,
		                                       719, true, variant});
}

static bool all;
static struct driver_fault single;

START_TEST(every_driver_call_may_fail)
{
	const char *function;

	driver_sweep_begin(run_twice);
	for (int variant = 0; variant < VARIANTS; variant++) {
		if (single.function && single.variant != variant)
			continue;
		driver_sweep_one((struct driver_fault){.variant = variant});
		if (single.function)
			driver_sweep_one(single);
		for (unsigned i = 0; (function = driver_sweep_function(i)) &&
		                     !single.function;
		     i++) {
			if (driver_sweep_uses(function) == 0)
				continue;
			if (all)
				sweep_all(function, variant);
			else
				sweep_some(function, i, variant);
		}
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
	if (argc == 7 && strcmp(argv[1], "one") == 0)
		single = (struct driver_fault){
			argv[2], atol(argv[3]), (CUresult)atol(argv[4]),
			atol(argv[5]) != 0, (int)atol(argv[6])};
	return RUN_TESTS("cuda_window_sweep", tests);
}
