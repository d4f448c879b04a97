/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every driver call fails once.
 *
 * A short program of two ranks on the simulator's device 0 is run again and again, each time
 * in a process of its own, in which one use of one driver function fails.  What may come of
 * it: calls are refused with a sentence, or requests end in an error.  What may not: a hang,
 * a crash, an operation that does not end, a stream that stands still, a context or a mode
 * that stays changed, memory that nobody frees.  After an error that is not sticky the same
 * program then runs without a fault.
 *
 * Without arguments the first, second and last use of each function fails.  "all": every use
 * up to the 20th, and from there on every third or so.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_world.h"
#include "mem.h"

enum { FUNCTIONS_MAX = 128, LONG_BYTES = 4 << 20 };

struct fault {
	const char *function; /* NULL: none */
	long n;
	CUresult result;
	bool sticky;
};

/* What a child tells. */
static struct told {
	long uses[FUNCTIONS_MAX];
	bool fired;
	long streams, pinned, pinned_bytes;
} *told;

static struct fault fault;

#define must(condition)                                                       \
	do {                                                                  \
		if (!(condition))                                             \
			complain(#condition, __LINE__);                       \
	} while (0)

static void
complain(const char *what, int line)
{
	fprintf(stderr, "not ok  %s, use %ld, result %u%s: line %d: %s; \"%s\"\n",
	        fault.function ? fault.function : "no fault", fault.n,
	        fault.result, fault.sticky ? ", sticky" : "", line, what,
	        baton_last_error());
	_exit(1);
}

/* ---- the program ---------------------------------------------------------- */

enum {
	SEND, RECV,             /* partners are neighbours */
	LONG_SEND, LONG_RECV,
	GROUP_SEND, GROUP_RECV, /* two short messages, which are copied together */
	GROUP_SEND_2, GROUP_RECV_2,
	SIGNAL, WAIT,
	RECORD, ALONE,
	ALL
};

static struct baton_comm *comms[2];
static baton_request requests[ALL];
static enum baton_status ends[ALL];
static bool refused, failed;
static _Atomic int launched;
static int launches;

/* A call was taken, or refused with a sentence. */
static bool
taken(enum baton_status status)
{
	if (status == BATON_OK)
		return true;
	must(status < 0 && baton_last_error()[0] != '\0');
	refused = true;
	return false;
}

static void
count(void *unused)
{
	(void)unused;
	atomic_fetch_add(&launched, 1);
}

static void
enqueue(baton_stream s, baton_stream t)
{
	unsigned char *to = cw.to, *from = cw.from;

	taken(baton_recv(to, 8, BATON_UINT8, 0, 0, comms[1], s, NULL,
	                 &requests[RECV]));
	taken(baton_send(from, 8, BATON_UINT8, 1, 0, comms[0], t, NULL,
	                 &requests[SEND]));
	taken(baton_recv(to + 64, LONG_BYTES, BATON_UINT8, 0, 1, comms[1], s, NULL,
	                 &requests[LONG_RECV]));
	taken(baton_send(from + 64, LONG_BYTES, BATON_UINT8, 1, 1, comms[0], t,
	                 NULL, &requests[LONG_SEND]));
	if (taken(baton_group_begin(comms[0]))) {
		taken(baton_send(from, 8, BATON_UINT8, 0, 2, comms[0], s, NULL,
		                 &requests[GROUP_SEND]));
		taken(baton_recv(to + 8, 8, BATON_UINT8, 0, 2, comms[0], t, NULL,
		                 &requests[GROUP_RECV]));
		taken(baton_send(from, 8, BATON_UINT8, 0, 3, comms[0], s, NULL,
		                 &requests[GROUP_SEND_2]));
		taken(baton_recv(to + 16, 8, BATON_UINT8, 0, 3, comms[0], t, NULL,
		                 &requests[GROUP_RECV_2]));
		/* Handles of a void group are stale. */
		if (!taken(baton_group_end(comms[0])))
			for (int i = GROUP_SEND; i <= GROUP_RECV_2; i++)
				requests[i] = 0;
	}
	taken(baton_wait_signal(1, &(struct baton_wait_signal_desc){1, 0, 0, 0},
	                        comms[1], s, NULL, &requests[WAIT]));
	taken(baton_signal(1, 0, 0, 0, comms[0], t, NULL, &requests[SIGNAL]));
	launches += taken(baton_stream_launch(comms[0], t, count, NULL));
	if (taken(baton_record(comms[0], t, NULL, &requests[RECORD])))
		taken(baton_stream_wait(comms[1], s, requests[RECORD]));
}

/* One that has no partner would wait for ever. */
static void
cancel_the_partnerless(void)
{
	for (int i = 0; i < RECORD; i += 2) {
		for (int j = 0; j < 2; j++)
			if (!requests[i + j] && requests[i + 1 - j])
				must(baton_cancel(requests[i + 1 - j]) == BATON_OK);
	}
}

static bool
end_all(void)
{
	bool pending = false;
	char text[300];

	for (int i = 0; i < ALL; i++) {
		if (!requests[i])
			continue;
		ends[i] = baton_test(requests[i], NULL);
		if (ends[i] == BATON_PENDING) {
			pending = true;
			continue;
		}
		must(ends[i] != BATON_ERR_STALE && ends[i] != BATON_ERR_INVALID);
		must(baton_request_error(requests[i], text, sizeof(text)) ==
		     BATON_OK);
		must((ends[i] == BATON_OK) == (text[0] == '\0'));
		if (ends[i] != BATON_OK && ends[i] != BATON_ERR_CANCELED)
			failed = true;
		must(baton_release(&requests[i]) == BATON_OK);
	}
	return pending;
}

/* An error on one side leaves the other waiting: that is for the program to end. */
static void
await_ends(void)
{
	bool aborted = false;

	while (end_all()) {
		if (failed && !aborted) {
			for (int i = 0; i < 2; i++)
				must(baton_comm_abort(comms[i]) == BATON_OK);
			aborted = true;
		}
		usleep(100);
	}
}

static void
create(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.requests_max = 32;
	if (taken(baton_comm_create_local(2, &options, comms)))
		return;
	comms[0] = NULL;
	if (fault.sticky || strcmp(fault.function, "cuInit") == 0)
		return;
	must(baton_comm_create_local(2, &options, comms) == BATON_OK);
}

static bool
destroy_stream(baton_stream stream)
{
	enum baton_status status;

	while ((status = baton_stream_destroy(comms[0], stream)) != BATON_OK) {
		must(baton_last_error()[0] != '\0');
		must(status != BATON_ERR_INVALID);
		if (fault.sticky)
			return false;
		usleep(100);
	}
	return true;
}

/* Both streams, of which one is Baton's, are idle at the end, unless the device is not. */
static void
run(void)
{
	baton_stream s = NULL, t = cw.streams[0];
	long left = 0;

	memset(requests, 0, sizeof(requests));
	memset(ends, 0, sizeof(ends));
	refused = failed = false;
	launches = 0;
	atomic_store(&launched, 0);
	create();
	if (!comms[0])
		return;
	if (!taken(baton_stream_create(comms[0], &s)))
		s = cw.streams[1];
	enqueue(s, t);
	cancel_the_partnerless();
	await_ends();
	if (!taken(baton_stream_synchronize(comms[0], t)) ||
	    !taken(baton_stream_synchronize(comms[1], s)))
		must(fault.function != NULL);
	if (!fault.sticky) {
		while (baton_stream_query(comms[1], s) != BATON_OK ||
		       baton_stream_query(comms[0], t) != BATON_OK)
			usleep(100);
		must(atomic_load(&launched) == launches || failed);
	}
	if (s != cw.streams[1])
		left = !destroy_stream(s);
	for (int i = 0; i < 2; i++)
		must(baton_comm_destroy(comms[i]) == BATON_OK);
	comms[0] = NULL;
	must(batoni_mem_blocks() == left);
}

static bool
data_is_there(void)
{
	unsigned char *got = malloc(LONG_BYTES), *sent = malloc(LONG_BYTES);
	bool same;

	cw.sim->sim_peek(got, cuda_world_address(cw.to + 64), LONG_BYTES);
	cw.sim->sim_peek(sent, cuda_world_address(cw.from + 64), LONG_BYTES);
	same = memcmp(got, sent, LONG_BYTES) == 0;
	free(got);
	free(sent);
	return same;
}

static void
check_thread(void)
{
	CUstreamCaptureMode mode = CUDASIM_CAPTURE_GLOBAL;
	CUcontext current = NULL;

	must(cw.sim->context_current(&current) == BATONI_CU_SUCCESS);
	must(current == cw.context);
	must(cw.sim->capture_mode(&mode) == BATONI_CU_SUCCESS);
	must(mode == CUDASIM_CAPTURE_GLOBAL);
}

static void
tell(const long before[FUNCTIONS_MAX])
{
	const char *name;

	for (int i = 0; (name = cw.sim->sim_name(i)) != NULL; i++)
		told->uses[i] = cw.sim->sim_uses(name) - before[i];
	told->streams = cw.sim->sim_live("streams");
	told->pinned = cw.sim->sim_live("pinned");
	told->pinned_bytes = cw.sim->sim_live("pinned_bytes");
}

static void
run_twice(void)
{
	const struct told expected = *told;
	long before[FUNCTIONS_MAX];
	const char *name;

	for (int i = 0; (name = cw.sim->sim_name(i)) != NULL; i++)
		before[i] = cw.sim->sim_uses(name);
	if (fault.function)
		must(cw.sim->sim_fail(fault.function, fault.n, fault.result,
		                      fault.sticky));
	run();
	if (!fault.function)
		tell(before);
	for (int i = 0; fault.function && (name = cw.sim->sim_name(i)); i++)
		if (strcmp(name, fault.function) == 0)
			told->fired = cw.sim->sim_uses(name) - before[i] >= fault.n;
	cw.sim->sim_fail(fault.function ? fault.function : "", 0, 0, false);
	must(cw.sim->sim_violations() == 0);
	if (fault.sticky)
		return;
	check_thread();
	if (fault.function && strcmp(fault.function, "cuInit") == 0)
		return;
	must(refused || failed || data_is_there());
	cuda_world_fill(cw.from, LONG_BYTES + 64, 7);
	run();
	must(!refused && !failed);
	must(data_is_there());
	check_thread();
	cw.sim->sim_settle(false);
	must(cw.sim->sim_queued() == 0);
	must(cw.sim->sim_violations() == 0);
	if (!fault.function)
		return;
	/* What a first try has made, the second has used. */
	must(cw.sim->sim_live("streams") == expected.streams);
	must(cw.sim->sim_live("pinned") == expected.pinned);
	must(cw.sim->sim_live("pinned_bytes") == expected.pinned_bytes);
}

/* ---- the sweep ------------------------------------------------------------ */

static int failures, runs;

static void
one(struct fault now)
{
	pid_t child;
	int status;

	fault = now;
	told->fired = false;
	runs++;
	child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL); /* not the one of Check */
		alarm(60);
		cuda_world_begin();
		cuda_world_fill(cw.from, LONG_BYTES + 64, 5);
		run_twice();
		_exit(0);
	}
	if (waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	    WEXITSTATUS(status) == 0)
		return;
	failures++;
	if (WIFSIGNALED(status))
		fprintf(stderr, "not ok  %s, use %ld, result %u%s: ended by "
		                "signal %d\n",
		        now.function ? now.function : "no fault", now.n,
		        now.result, now.sticky ? ", sticky" : "",
		        WTERMSIG(status));
}

/* For good, at the first, second and last use; in passing with each result at the first two,
 * and with one at the last. */
static void
sweep_some(const char *function, long last)
{
	static const CUresult results[] = {2, 700, 999};

	for (long n = 1; n <= 2 && n <= last; n++)
		for (int i = 0; i < 3; i++)
			one((struct fault){function, n, results[i], false});
	if (last > 2)
		one((struct fault){function, last, 999, false});
	one((struct fault){function, 1, 719, true});
	if (last > 1)
		one((struct fault){function, last, 719, true});
}

static void
sweep_all(const char *function, long last)
{
	static const CUresult results[] = {2, 700, 999};

	told->fired = true;
	for (long n = 1; told->fired || n <= last; n += n < 20 ? 1 : 1 + n / 3) {
		one((struct fault){function, n, results[n % 3], false});
		one((struct fault){function, n, 719, true});
	}
}

static bool all;
static const char *only;

START_TEST(every_driver_call_may_fail)
{
	static const char *const functions[] = {
#define NAME(name, symbol, base, version, parameters) #symbol,
		BATONI_CUDA_FUNCTIONS(NAME) BATONI_CUDA_OPTIONAL(NAME)
#undef NAME
	};
	long uses[FUNCTIONS_MAX];

	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
	            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(told != MAP_FAILED);
	one((struct fault){NULL, 0, 0, false});
	memcpy(uses, told->uses, sizeof(uses));
	/* They are the simulator's first. */
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (uses[i] == 0 || (only && strcmp(only, functions[i]) != 0))
			continue;
		if (all)
			sweep_all(functions[i], uses[i]);
		else
			sweep_some(functions[i], uses[i]);
	}
	printf("%d of %d runs failed\n", failures, runs);
	fflush(stdout);
	ck_assert_int_eq(failures, 0);
}
END_TEST

int
main(int argc, char **argv)
{
	const TTest *const tests[] = {every_driver_call_may_fail};

	setenv("BATON_LOG", "none", 1);
	all = argc > 1 && strcmp(argv[1], "all") == 0;
	only = argc > 2 ? argv[2] : NULL;
	return RUN_TESTS("cuda_sweep", tests);
}
