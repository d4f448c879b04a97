/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All ranks go through the same cases in the same order.  They agree on whether a
 * case runs and whether it has failed.
 *
 * One watchdog thread for each process ends the job when a case takes too long,
 * and prints where its ranks are.  It is for hangs only; it measures nothing.
 */
#include "runner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

#define RANKS_MAX 64

/* Guarded by lock, except what the ranks publish atomically. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	struct conform *ranks[RANKS_MAX]; /* of this process */
	int count;
	unsigned long cases; /* begun, ended or said to be alive, by all ranks here */
	bool running;
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the watchdog ------------------------------------------------------- */

static long
limit_s(void)
{
	const char *text = getenv("CONFORM_LIMIT_S");
	long limit = text ? strtol(text, NULL, 10) : 0;

	return limit > 0 ? limit : CONFORM_SANITIZED ? 400 : 150;
}

static void
bite(void)
{
	for (int i = 0; i < watch.count; i++) {
		struct conform *c = watch.ranks[i];
		const char *file = atomic_load(&c->file);

		printf("not ok  %s: no end in %ld s; rank %d of %d was last at "
		       "%s:%d\n",
		       c->now ? c->now->name : "(between cases)", limit_s(),
		       c->rank, c->size, file ? file : "?",
		       atomic_load(&c->line));
	}
	fflush(stdout);
	abort();
}

static void *
watchdog(void *arg)
{
	struct timespec until;
	unsigned long seen = 0;

	(void)arg;
	pthread_mutex_lock(&watch.lock);
	clock_gettime(CLOCK_MONOTONIC, &until);
	while (watch.running) {
		int error;

		if (watch.cases != seen)
			clock_gettime(CLOCK_MONOTONIC, &until);
		seen = watch.cases;
		struct timespec late = { until.tv_sec + limit_s(),
			                 until.tv_nsec };
		error = pthread_cond_timedwait(&watch.changed, &watch.lock,
		                               &late);
		if (error == ETIMEDOUT && watch.running && watch.cases == seen)
			bite();
	}
	pthread_mutex_unlock(&watch.lock);
	return NULL;
}

static void
watch_rank(struct conform *c)
{
	pthread_condattr_t monotonic;

	pthread_mutex_lock(&watch.lock);
	if (watch.count == 0) {
		pthread_condattr_init(&monotonic);
		pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
		pthread_cond_init(&watch.changed, &monotonic);
		watch.running = true;
		if (pthread_create(&watch.thread, NULL, watchdog, NULL))
			abort();
	}
	watch.ranks[watch.count++] = c;
	pthread_mutex_unlock(&watch.lock);
}

void
conform_alive(void)
{
	pthread_mutex_lock(&watch.lock);
	watch.cases++;
	pthread_cond_signal(&watch.changed);
	pthread_mutex_unlock(&watch.lock);
}

static void
unwatch_rank(struct conform *c)
{
	bool last;

	pthread_mutex_lock(&watch.lock);
	for (int i = 0; i < watch.count; i++) {
		if (watch.ranks[i] == c) {
			watch.ranks[i] = watch.ranks[--watch.count];
			break;
		}
	}
	last = watch.count == 0;
	if (last)
		watch.running = false;
	pthread_cond_signal(&watch.changed);
	pthread_mutex_unlock(&watch.lock);
	if (last)
		pthread_join(watch.thread, NULL);
}

/* ---- one rank ----------------------------------------------------------- */

void
conform_init(struct conform *c, const struct conform_backend *backend,
             void *ranks, int rank, int size)
{
	memset(c, 0, sizeof(*c));
	c->backend = backend;
	if (!(backend->traits & CONFORM_TWO_DEVICES && rank % 2))
		c->memory = backend->memory;
	conform_read_kinds(c);
	c->ranks = ranks;
	c->rank = rank;
	c->size = size;
	pthread_mutex_init(&c->lock, NULL);
	for (int i = 0; i < CONFORM_GATES; i++) {
		pthread_mutex_init(&c->gates[i].lock, NULL);
		pthread_cond_init(&c->gates[i].changed, NULL);
	}
	watch_rank(c);
}

void
conform_fini(struct conform *c)
{
	unwatch_rank(c);
	for (int i = 0; i < CONFORM_GATES; i++) {
		pthread_mutex_destroy(&c->gates[i].lock);
		pthread_cond_destroy(&c->gates[i].changed);
	}
	pthread_mutex_destroy(&c->lock);
}

int
conform_most(const int values[], int size)
{
	int most = values[0];

	for (int i = 1; i < size; i++)
		if (values[i] > most)
			most = values[i];
	return most;
}

/* The free memory of the machine or of this container; 0: unknown. */
static size_t
memory_free(void)
{
	static const char *const limits[][2] = {
		{ "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current" },
		{ "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		  "/sys/fs/cgroup/memory/memory.usage_in_bytes" },
	};
	unsigned long long free_kb = 0, most, used;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu kB", &free_kb) == 1)
			break;
	if (file)
		fclose(file);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		FILE *max = fopen(limits[i][0], "r");
		FILE *now = fopen(limits[i][1], "r");

		if (max && now && fscanf(max, "%llu", &most) == 1 &&
		    fscanf(now, "%llu", &used) == 1 && most > used &&
		    (most - used) / 1024 < free_kb)
			free_kb = (most - used) / 1024;
		if (max)
			fclose(max);
		if (now)
			fclose(now);
	}
	return (size_t)free_kb * 1024;
}

/* The most streams that the case makes. */
static unsigned
streams_made(const struct conform_case *one)
{
	return one->makes > 0 ? one->makes : CONFORM_STREAMS_USUAL;
}

/* Do streams of the case hold up others that they wait for?  A device gives its queues to
 * streams in the order of creation, whichever rank creates them. */
static bool
lacks_queues(const struct conform *c, const struct conform_case *one)
{
	const struct conform_backend *backend = c->backend;
	unsigned ranks = (unsigned)c->size, streams, sharing = 1;

	if (backend->queues == 0)
		return false;
	if (backend->devices > 0)
		sharing = (ranks + backend->devices - 1) / backend->devices;
	streams = sharing > 1        ? streams_made(one)
	          : one->streams > 0 ? one->streams
	                             : 1;
	if (backend->streams && one->comms > 1 &&
	    one->comms * backend->streams(c->size) > backend->queues / sharing)
		return true;
	return streams > backend->queues / sharing;
}

/* NULL: it can run here. */
static const char *
cannot_run(struct conform *c, const struct conform_case *one)
{
	unsigned wants = one->flags & (CONFORM_THREADS | CONFORM_PROCESSES |
	                               CONFORM_HOST_ISSUED |
	                               CONFORM_HOST_DEVICE);
	unsigned lacks = wants & ~c->backend->traits;

	if (lacks & CONFORM_THREADS)
		return "ranks are processes";
	if (lacks & CONFORM_PROCESSES)
		return "ranks are threads";
	if (lacks & CONFORM_HOST_ISSUED)
		return "the transport is stream-issued";
	if (one->flags & CONFORM_ALONE &&
	    c->backend->traits & CONFORM_STREAM_ISSUED_PUTS)
		return "puts and waits are stream-issued";
	if (lacks & CONFORM_HOST_DEVICE)
		return "the device is not the host";
	if (lacks_queues(c, one))
		return "its streams would share hardware queues";
	if (one->needs & ~c->info.capabilities)
		return "the transport has not got the capability";
	if (c->size < one->ranks_min)
		return "needs more ranks";
	if (one->ranks_max && c->size > one->ranks_max)
		return "needs fewer ranks";
	if (CONFORM_SANITIZED && (one->flags & CONFORM_LONG))
		return "too long under a sanitizer";
	if (conform_short() && one->memory > 2 * GIB)
		return "too large for a short run";
	if (one->memory > memory_free())
		return "needs more free memory";
	return NULL;
}

static void
set_up(struct conform *c, const struct conform_case *one)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	c->now = one;
	c->comm = NULL;
	c->stream = NULL;
	c->streams_count = 0;
	atomic_store(&c->failures, 0);
	for (int i = 0; i < CONFORM_GATES; i++) {
		c->gates[i].open = false;
		c->gates[i].inside = 0;
	}
	conform_alive();
	if (one->flags & CONFORM_BARE)
		return;
	options.requests_max = one->requests_max;
	options.timeout_ns = one->timeout_ns;
	options.timestamps = one->flags & CONFORM_TIMESTAMPS;
	if (one->flags & CONFORM_STEP)
		options.progress = BATON_PROGRESS_CALLS;
	c->comm = conform_comm(c, &options);
	c->stream = conform_stream(c);
}

/* A communicator with a short deadline may have to be asked more than once. */
static void
leave(struct conform *c)
{
	enum baton_status status;
	int64_t begin = conform_begin();

	do
		status = baton_comm_destroy(c->comm);
	while (status == BATON_ERR_TIMEOUT && c->now->timeout_ns > 0 &&
	       STILL(c, begin));
	CHECK_STATUS(c, BATON_OK, status);
}

/* Clean up, however the case has ended. */
static void
tear_down(struct conform *c, bool failed)
{
	for (int i = 0; i < CONFORM_GATES; i++)
		conform_gate_open(c, i);
	conform_clock_release();
	if (c->comm && failed)
		(void)baton_comm_abort(c->comm);
	if ((unsigned)c->streams_count > streams_made(c->now))
		CHECK_EQ(c, streams_made(c->now), c->streams_count);
	for (int i = 0; i < c->streams_count; i++) {
		enum baton_status status =
			baton_stream_synchronize(c->comm, c->streams[i]);

		/* Errors that no request observes are for the case to check. */
		if (baton_comm_status(c->comm) == BATON_OK)
			CHECK_STATUS(c, BATON_OK, status);
		CHECK_OK(c, baton_stream_destroy(c->comm, c->streams[i]));
	}
	if (c->comm)
		leave(c);
	c->comm = NULL;
	/* Operations that a failed case left in flight may still touch its blocks. */
	if (!failed)
		conform_free_blocks(c);
	c->blocks = NULL;
}

enum outcome { PASSED, FAILED, SKIPPED };

/* On all ranks. */
static enum outcome
run_case(struct conform *c, const char *list, const struct conform_case *one)
{
	struct timespec begin, end;
	bool failed, skipped;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	c->skip = NULL;
	set_up(c, one);
	one->run(c);
	failed = c->backend->agree(c, atomic_load(&c->failures)) > 0;
	tear_down(c, failed);
	failed = c->backend->agree(c, atomic_load(&c->failures)) > 0;
	skipped = c->backend->agree(c, c->skip != NULL) > 0 && !failed;
	clock_gettime(CLOCK_MONOTONIC, &end);
	conform_alive();
	if (c->rank == 0 && skipped)
		printf("skip    %s.%s: %s\n", list, one->name,
		       c->skip ? c->skip : "another rank cannot");
	else if (c->rank == 0)
		printf("%-7s %s.%s (%.3f s)\n", failed ? "not ok" : "ok", list,
		       one->name,
		       (double)(end.tv_sec - begin.tv_sec) +
		               (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	return failed ? FAILED : skipped ? SKIPPED : PASSED;
}

/* Does the name contain one of the parts, which commas separate? */
static bool
is_left_out(const char *full, const char *parts)
{
	while (parts && *parts != '\0') {
		size_t length = strcspn(parts, ",");

		if (length > 0 && memmem(full, strlen(full), parts, length))
			return true;
		parts += length + (parts[length] == ',');
	}
	return false;
}

static bool
is_wanted(const char *list, const char *name,
          const struct conform_arguments *arguments)
{
	char full[256];

	snprintf(full, sizeof(full), "%s.%s", list, name);
	if (is_left_out(full, arguments->without))
		return false;
	for (int i = 0; i < arguments->filters_count; i++)
		if (strstr(full, arguments->filters[i]))
			return true;
	return arguments->filters_count == 0;
}

struct tally {
	int passed, failed, skipped;
	const char *reason; /* of the last one skipped */
};

static void
run_list(struct conform *c, const struct conform_list *list,
         const struct conform_arguments *arguments, struct tally *tally)
{
	for (const struct conform_case *one = list->cases; one->name; one++) {
		enum outcome outcome;
		const char *reason;

		if (!is_wanted(list->name, one->name, arguments))
			continue;
		reason = cannot_run(c, one);
		if (c->backend->agree(c, reason != NULL)) {
			tally->skipped++;
			tally->reason = reason ? reason : "another rank cannot";
			if (c->rank == 0)
				printf("skip    %s.%s: %s\n", list->name,
				       one->name, tally->reason);
			continue;
		}
		outcome = run_case(c, list->name, one);
		if (outcome == SKIPPED)
			tally->reason = c->skip ? c->skip : "another rank cannot";
		tally->passed += outcome == PASSED;
		tally->failed += outcome == FAILED;
		tally->skipped += outcome == SKIPPED;
	}
}

int
conform_run(struct conform *c, const struct conform_list *const lists[],
            const struct conform_arguments *arguments)
{
	static const struct conform_case probe = { .name = "(the query)" };
	struct tally tally = { .reason = "none is selected" };
	struct baton_comm *comm;

	setvbuf(stdout, NULL, _IOLBF, 0);
	c->now = &probe;
	comm = conform_comm(c, NULL);
	c->info.size = sizeof(c->info);
	CHECK_OK(c, baton_comm_query(comm, &c->info));
	CHECK_OK(c, baton_comm_destroy(comm));
	if (c->rank == 0)
		printf("conform: %s, %d ranks: %s on %s (%s)\n",
		       c->backend->name, c->size, c->info.transport_name,
		       c->info.device_name, c->backend->name);
	for (size_t i = 0; lists[i]; i++)
		for (const struct conform_list *list = lists[i]; list->name;
		     list++)
			run_list(c, list, arguments, &tally);
	if (c->rank == 0)
		printf("%d passed, %d failed, %d skipped\n", tally.passed,
		       tally.failed, tally.skipped);
	if (c->rank == 0 && tally.passed + tally.failed == 0)
		printf("SKIP: no case runs here: %s\n", tally.reason);
	fflush(stdout);
	return tally.failed ? 1 : tally.passed ? 0 : 77;
}

/* ---- arguments ---------------------------------------------------------- */

struct conform_arguments
conform_arguments(int argc, char **argv)
{
	struct conform_arguments arguments = { .ranks = 2 };
	const struct test_option options[] = {
		{ .name = "--list", .flag = &arguments.list },
		{ .name = "--ranks", .value = "N", .integer = &arguments.ranks },
		{ .name = "--without", .value = "PART[,PART...]",
		  .text = &arguments.without },
		{ .name = NULL },
	};
	int rest = options_read(options, "PART OF A NAME", argc, argv);

	if (rest < 0)
		exit(2);
	if (arguments.ranks < 1 || arguments.ranks > RANKS_MAX) {
		fprintf(stderr, "--ranks: 1 to %d\n", RANKS_MAX);
		exit(2);
	}
	arguments.filters = argv + rest;
	arguments.filters_count = argc - rest;
	return arguments;
}

int
conform_print(const struct conform_list *const lists[])
{
	for (size_t i = 0; lists[i]; i++)
		for (const struct conform_list *list = lists[i]; list->name;
		     list++)
			for (const struct conform_case *one = list->cases;
			     one->name; one++)
				printf("%s.%s\n", list->name, one->name);
	return 0;
}
