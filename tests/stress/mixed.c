/* SPDX-License-Identifier: BSD-3-Clause */
/* A run of the mixed load: one rank, from the creation of its communicator to the destroy. */
#include "mixed.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

/* A run whose operations have not ended after so long has lost one. */
#define LIMIT_NS UINT64_C(120000000000)
#define LOOKS_AT_LOANS 2000

void
mixed_fail(const struct rank *rank, const char *format, ...)
{
	va_list arguments;
	char where[400];

	snprintf(where, sizeof(where), "FAILED: run of seed %llu (%s, \"%s\"), rank %d",
	         (unsigned long long)rank->seed, rank->sound ? "sound" : "aborts",
	         baton_comm_error(rank->comm), rank->rank);
	va_start(arguments, format);
	end_in_failure(rank->job->end_job, where, format, arguments);
	va_end(arguments);
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) +
	       (uint64_t)now.tv_nsec;
}

static int
agree(struct rank *rank, int value, bool progresses)
{
	return rank->job->agree(rank->rank, value,
	                        progresses ? rank->comm : NULL);
}

/* ---- begin -------------------------------------------------------------- */

static bool
may_fail(const struct rank *rank)
{
	return rank->faults || baton_comm_status(rank->comm) != BATON_OK;
}

static void
open_window(struct rank *rank, int i, uint64_t *draws)
{
	enum location location = (enum location)(draw(draws) % LOCATIONS);
	unsigned char *part = NULL;
	enum baton_status status;

	if (!memory_is_there(location) || rank->nccl)
		location = rank->nccl ? DEVICE : PAGEABLE;
	if (draw(draws) % 2) {
		void *ours = NULL;

		if (baton_mem_alloc(rank->comm, WINDOW_BYTES, &ours) != BATON_OK &&
		    !may_fail(rank))
			mixed_fail(rank, "mem_alloc");
		part = ours;
	}
	rank->parts_ours[i] = part != NULL;
	if (!part)
		part = memory_take(location, rank->rank, WINDOW_BYTES);
	if (!part)
		part = memory_take(location = PAGEABLE, rank->rank, WINDOW_BYTES);
	rank->parts[i] = part;
	rank->part_locations[i] = location;
	status = baton_window_register(part, WINDOW_BYTES, rank->comm,
	                               &rank->windows[i]);
	if (status != BATON_OK && status != BATON_ERR_UNSUPPORTED &&
	    !may_fail(rank))
		mixed_fail(rank, "window_register: %s",
		           baton_status_name(status));
}

static void
hand_init(struct hand *hand, struct rank *rank, int number)
{
	static const unsigned char nothing[WINDOW_BYTES];

	hand->rank = rank;
	hand->number = number;
	hand->draws = mix(rank->seed, rank->rank, number, 1);
	hand->plan_location = rank->nccl ? DEVICE : PAGEABLE;
	hand->plan_memory = memory_take(hand->plan_location, rank->rank,
	                                WINDOW_BYTES);
	memory_write(hand->plan_location, hand->plan_memory, nothing,
	             sizeof(nothing));
	for (int i = 0; i < STREAMS; i++)
		if (baton_stream_create(rank->comm, &hand->streams[i]) !=
		            BATON_OK &&
		    !rank->faults)
			mixed_fail(rank, "stream_create");
}

static bool
reaches_words(const struct rank *rank)
{
	bool reaches = rank->info.device == BATON_DEVICE_HOST;

	for (int i = 0; i < WINDOWS; i++)
		for (int peer = 0; peer < rank->size && reaches; peer++)
			reaches = rank->windows[i] &&
			          baton_window_path(rank->windows[i], peer) ==
			                  BATON_WINDOW_PATH_DIRECT;
	return reaches;
}

static void
rank_begin(struct rank *rank)
{
	uint64_t common = mix(rank->seed, 0, 0, 2), draws;

	rank->rank = baton_comm_rank(rank->comm);
	draws = mix(rank->seed, rank->rank, 0, 3);
	rank->size = baton_comm_size(rank->comm);
	rank->info.size = sizeof(rank->info);
	if (baton_comm_query(rank->comm, &rank->info) != BATON_OK)
		mixed_fail(rank, "comm_query");
	rank->sound = draw(&common) % 2 && !rank->faults;
	rank->probes = draw(&common) % 3 ? 8 : 60;
	rank->leaves = rank->sound && draw(&common) % 2;
	rank->aborts = !rank->sound &&
	               (int)(draw(&common) % (uint32_t)rank->size) == rank->rank;
	rank->over_mpi = strstr(rank->info.library, "MPI");
	rank->nccl = rank->info.transport == BATON_TRANSPORT_NCCL;
	rank->fixed = !(rank->info.capabilities & BATON_CAP_CANCEL);
	rank->onesided = rank->info.capabilities & BATON_CAP_SIGNALS;
	rank->joins = memory_streams_wait();
	pthread_mutex_init(&rank->lock, NULL);
	pthread_rwlock_init(&rank->queues_lock, NULL);
	for (int i = 0; i < WINDOWS; i++)
		if (rank->info.capabilities & BATON_CAP_WINDOWS)
			open_window(rank, i, &draws);
	rank->words = reaches_words(rank);
	for (int i = 0; i < QUEUES; i++)
		if (baton_queue_create(rank->comm, QUEUE_ENTRIES,
		                       &rank->queues[i]) != BATON_OK)
			mixed_fail(rank, "queue_create");
	for (int i = 0; i < THREADS; i++)
		hand_init(&rank->hands[i], rank, i);
}

/* ---- the threads -------------------------------------------------------- */

static void
abort_rank(struct rank *rank)
{
	atomic_fetch_add(&rank->job->aborted, 1);
	if (baton_comm_abort(rank->comm) != BATON_OK)
		mixed_fail(rank, "abort");
}

static void *
hand_main(void *argument)
{
	struct hand *hand = argument;
	struct rank *rank = hand->rank;
	int steps = rank->job->options.steps;
	int last = rank->aborts ? (int)(draw(&hand->draws) % (uint32_t)steps)
	                        : -1;

	for (int i = 0; i < steps; i++) {
		hand_step(hand);
		if (i == last && hand->number == 0)
			abort_rank(rank);
	}
	return NULL;
}

/* ---- the end ------------------------------------------------------------ */

static unsigned
look_at_all(struct rank *rank)
{
	unsigned pending = 0;

	queues_poll(rank);
	for (int i = 0; i < THREADS; i++)
		pending += slots_look(&rank->hands[i]);
	return pending;
}

static void
cancel_all(struct rank *rank)
{
	for (int i = 0; i < THREADS; i++)
		for (int s = 0; s < SLOTS; s++)
			slot_cancel(&rank->hands[i], &rank->hands[i].slots[s]);
}

static void
fail_pending(struct rank *rank, unsigned pending, const char *why)
{
	(void)baton_comm_dump(rank->comm, 1);
	mixed_fail(rank, "%u operations are pending %s", pending, why);
}

/* All end by themselves: those that nothing tells of, too, but nobody sees that. */
static void
end_soundly(struct rank *rank)
{
	uint64_t limit_ns = now_ns() + LIMIT_NS;
	unsigned pending;

	cancel_all(rank);
	while ((pending = look_at_all(rank)) > 0) {
		(void)baton_progress(rank->comm);
		if (now_ns() > limit_ns)
			fail_pending(rank, pending, "for good");
	}
	if (!rank->leaves)
		found_end(rank, false);
}

static bool
is_lent(struct rank *rank)
{
	bool lent = true;

	for (int i = 0; i < LOOKS_AT_LOANS && lent; i++) {
		(void)baton_progress(rank->comm);
		(void)look_at_all(rank);
		lent = false;
		for (int t = 0; t < THREADS; t++)
			lent |= slots_are_lent(&rank->hands[t]);
	}
	return lent;
}

/* An abort ends all that is pending before it returns. */
static void
end_by_abort(struct rank *rank)
{
	unsigned pending;

	abort_rank(rank);
	/* A poll takes four of each queue. */
	for (int i = 0; i < QUEUE_ENTRIES; i++)
		queues_poll(rank);
	pending = look_at_all(rank);
	if (pending > 0)
		fail_pending(rank, pending, "behind an abort");
	found_end(rank, true);
}

static void
close_windows(struct rank *rank, bool aborted)
{
	uint64_t limit_ns = now_ns() + LIMIT_NS;

	for (int i = 0; i < WINDOWS; i++) {
		enum baton_status status = BATON_ERR_BUSY;

		/* Nobody tells of some puts, which have deadlines. */
		while (status == BATON_ERR_BUSY && now_ns() < limit_ns) {
			status = baton_window_deregister(rank->windows[i]);
			(void)baton_progress(rank->comm);
		}
		if (status != BATON_OK)
			mixed_fail(rank, "window_deregister%s: %s",
			           aborted ? ", aborted" : "",
			           baton_status_name(status));
		if (rank->parts_ours[i] &&
		    baton_mem_free(rank->comm, rank->parts[i]) != BATON_OK)
			mixed_fail(rank, "mem_free");
	}
}

/* BUSY: on a machine that has no time for it the stream has not passed its last items. */
static enum baton_status
destroy_stream(struct rank *rank, baton_stream stream)
{
	uint64_t limit_ns = now_ns() + LIMIT_NS;
	enum baton_status status;

	do
		status = baton_stream_destroy(rank->comm, stream);
	while (status == BATON_ERR_BUSY && now_ns() < limit_ns);
	return status;
}

static void
close_hand(struct hand *hand, bool aborted)
{
	struct rank *rank = hand->rank;

	for (int i = 0; i < STREAMS; i++) {
		enum baton_status status = baton_stream_synchronize(
			rank->comm, hand->streams[i]);

		/* One that still stands stays. */
		if (aborted) {
			(void)baton_stream_destroy(rank->comm, hand->streams[i]);
			continue;
		}
		/* The errors of what nothing tells of, which ends later where it is detached. */
		for (int n = 0; n < SLOTS && status != BATON_OK; n++)
			status = baton_stream_synchronize(rank->comm,
			                                  hand->streams[i]);
		if (status == BATON_OK)
			status = destroy_stream(rank, hand->streams[i]);
		if (status != BATON_OK)
			mixed_fail(rank, "a stream does not end: %s",
			           baton_status_name(status));
	}
	if (!aborted && hand->functions_run != hand->functions)
		mixed_fail(rank, "%u functions of %u ran",
		           (unsigned)hand->functions_run, hand->functions);
}

/* Else it is given back by itself; or, as it was found and not received, by the destroy of the rank that has. */
static bool
lends_for_good(const struct rank *rank)
{
	return rank->over_mpi ||
	       (!rank->leaves && rank->info.device != BATON_DEVICE_HOST);
}

/* What it destroys tells whether all of it is over. */
static void
close_rank(struct rank *rank, bool aborted)
{
	enum baton_status status;

	close_windows(rank, aborted);
	for (int i = 0; i < THREADS; i++)
		close_hand(&rank->hands[i], aborted);
	for (int i = 0; i < QUEUES; i++)
		baton_queue_destroy(rank->queues[i]);
	status = baton_comm_destroy(rank->comm);
	if (status == BATON_ERR_TIMEOUT && !aborted && lends_for_good(rank)) {
		/* Something is lent that nothing tells of. */
		abort_rank(rank);
		status = baton_comm_destroy(rank->comm);
	}
	if (status != BATON_OK)
		mixed_fail(rank, "destroy: %s", baton_status_name(status));
}

static void
end_memory(struct rank *rank, enum location location, unsigned char *memory, bool leaks)
{
	if (leaks)
		memory_leave(location, memory);
	else
		memory_give(location, rank->rank, memory);
}

/* All communicators are gone, and NCCL's kernels have been told to end: on a machine that has no time
 * for it one may be in the middle of a copy, into what was lent. */
static void
await_kernels(struct rank *rank)
{
	uint64_t limit_ns = now_ns() + LIMIT_NS;

	(void)agree(rank, 0, false);
	while (memory_is_used() && now_ns() < limit_ns)
		sched_yield();
	if (memory_is_used())
		mixed_fail(rank, "a kernel outlives its communicator");
}

static void
rank_end(struct rank *rank)
{
	bool aborted = !rank->sound;
	bool leaks;

	if (rank->sound)
		end_soundly(rank);
	else
		end_by_abort(rank);
	/* They name windows. */
	for (int i = 0; i < THREADS; i++)
		if (baton_plan_destroy(rank->hands[i].plan) != BATON_OK)
			mixed_fail(rank, "plan_destroy");
	(void)agree(rank, 0, true);
	/* What is lent for good (a send that nobody receives) only an abort gives back. */
	if (rank->sound && lends_for_good(rank))
		aborted = agree(rank, is_lent(rank), true);
	if (aborted && rank->sound)
		end_by_abort(rank);
	leaks = aborted && rank->over_mpi;
	(void)agree(rank, 0, true);
	close_rank(rank, aborted);
	await_kernels(rank);
	for (int i = 0; i < THREADS; i++)
		slots_end(&rank->hands[i], leaks);
	/* Others may put into it until they are gone. */
	(void)agree(rank, 0, false);
	for (int i = 0; i < THREADS; i++)
		end_memory(rank, rank->hands[i].plan_location,
		           rank->hands[i].plan_memory, leaks);
	for (int i = 0; i < WINDOWS; i++)
		if (!rank->parts_ours[i] && rank->parts[i])
			end_memory(rank, rank->part_locations[i], rank->parts[i],
			           leaks);
	pthread_rwlock_destroy(&rank->queues_lock);
	pthread_mutex_destroy(&rank->lock);
}

void
mixed_rank(struct mixed_job *job, uint64_t seed, struct baton_comm *comm)
{
	struct rank *rank = calloc(1, sizeof(*rank));

	if (!rank)
		abort();
	rank->job = job;
	rank->seed = seed;
	rank->comm = comm;
	rank->faults = job->options.faults;
	rank_begin(rank);
	(void)agree(rank, 0, true);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&rank->hands[i].thread, NULL, hand_main,
		                   &rank->hands[i]))
			abort();
	children_come_and_go(rank);
	for (int i = 0; i < THREADS; i++)
		pthread_join(rank->hands[i].thread, NULL);
	rank_end(rank);
	free(rank);
}

/* ---- options ------------------------------------------------------------ */

uint64_t
mixed_seed(const struct mixed_options *options, int run)
{
	uint64_t state = mix(options->seed, run, 7, 7);

	/* The first run is that of the seed itself: --seed of a failure has it again. */
	return run == 0 ? options->seed : draw(&state);
}

struct baton_comm_options
mixed_comm_options(uint64_t seed)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	uint64_t draws = mix(seed, 4, 4, 4);

	options.requests_max = 24 + draw(&draws) % 200;
	options.progress = draw(&draws) % 3 ? BATON_PROGRESS_AUTO
	                                    : BATON_PROGRESS_CALLS;
	options.signals_max = INDICES;
	options.contexts_max = CONTEXTS;
	options.timestamps = draw(&draws) % 4 == 0;
	options.timeout_ns = INT64_C(20000000000);
	return options;
}

struct mixed_options
mixed_options(int argc, char **argv, int ranks)
{
	struct mixed_options options = {.runs = 20, .ranks = ranks, .steps = 60};
	const struct test_option known[] = {
		{.name = "--seed", .value = "N", .number = &options.seed},
		{.name = "--runs", .value = "N", .integer = &options.runs},
		{.name = "--seconds", .value = "N", .integer = &options.seconds},
		{.name = "--ranks", .value = "N", .integer = &options.ranks},
		{.name = "--steps", .value = "N", .integer = &options.steps},
		{.name = "--faults", .flag = &options.faults},
		{.name = "--talk", .flag = &options.talks},
		{.name = "--near", .flag = &options.near},
		{.name = "--far", .flag = &options.far},
		{.name = NULL},
	};
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	options.seed = (uint64_t)now.tv_nsec / 1000 + (uint64_t)now.tv_sec;
	if (options_read(known, NULL, argc, argv) < 0 ||
	    options.ranks < 1 || options.ranks > RANKS_MAX)
		exit(2);
	return options;
}
