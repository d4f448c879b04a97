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
#include <string.h>
#include <unistd.h>

#include "cuda_world.h"
#include "driver_sweep.h"
#include "mem.h"

enum { LONG_BYTES = 4 << 20 };

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

/* One that has no partner would wait for ever; but a signal waits for none, and may be on its
 * stream, where it is not taken back. */
static void
cancel_the_partnerless(void)
{
	for (int i = 0; i < RECORD; i += 2) {
		for (int j = 0; j < 2; j++)
			if (!requests[i + j] && requests[i + 1 - j] &&
			    i + 1 - j != SIGNAL)
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
	if (driver_fault.sticky || strcmp(driver_fault.function, "cuInit") == 0)
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
		if (driver_fault.sticky)
			return false;
		usleep(100);
	}
	return true;
}

/* Both streams, of which one is Baton's, are idle at the end, unless the device is not. */
static void
run_once(void)
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
		must(driver_fault.function != NULL);
	if (!driver_fault.sticky) {
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
check_live(void)
{
	/* What a first try has made, the second has used. */
	driver_sweep_check_live("streams", 0);
	driver_sweep_check_live("pinned", 0);
	driver_sweep_check_live("pinned_bytes", 0);
}

static void
run_twice(void)
{
	cuda_world_begin();
	cuda_world_fill(cw.from, LONG_BYTES + 64, 5);
	driver_sweep_arm();
	run_once();
	driver_sweep_disarm();
	must(cw.sim->sim_violations() == 0);
	if (!driver_fault.function)
		check_live();
	if (driver_fault.sticky)
		return;
	check_thread();
	if (driver_fault.function && strcmp(driver_fault.function, "cuInit") == 0)
		return;
	must(refused || failed || data_is_there());
	cuda_world_fill(cw.from, LONG_BYTES + 64, 7);
	run_once();
	must(!refused && !failed);
	must(data_is_there());
	check_thread();
	cw.sim->sim_settle(false);
	must(cw.sim->sim_queued() == 0);
	must(cw.sim->sim_violations() == 0);
	if (driver_fault.function)
		check_live();
}

/* ---- the sweep ------------------------------------------------------------ */

/* For good, at the first, second and last use; in passing with each result at the first two,
 * and with one at the last. */
static void
sweep_some(const char *function, long last)
{
	static const CUresult results[] = {2, 700, 999};

	for (long n = 1; n <= 2 && n <= last; n++)
		for (int i = 0; i < 3; i++)
			driver_sweep_one((struct driver_fault){
				function, n, results[i], false, 0});
	if (last > 2)
		driver_sweep_one(
			(struct driver_fault){function, last, 999, false, 0});
	driver_sweep_one((struct driver_fault){function, 1, 719, true, 0});
	if (last > 1)
		driver_sweep_one(
			(struct driver_fault){function, last, 719, true, 0});
}

static void
sweep_all(const char *function, long last)
{
	static const CUresult results[] = {2, 700, 999};
	bool fired = true;

	for (long n = 1; fired || n <= last; n += n < 20 ? 1 : 1 + n / 3) {
		driver_sweep_one((struct driver_fault){
			function, n, results[n % 3], false, 0});
		driver_sweep_one(
			(struct driver_fault){function, n, 719, true, 0});
		fired = driver_sweep_fired();
	}
}

static bool all;
static const char *only;

START_TEST(every_driver_call_may_fail)
{
	const char *function;

	driver_sweep_begin(run_twice);
	driver_sweep_one((struct driver_fault){NULL, 0, 0, false, 0});
	for (unsigned i = 0; (function = driver_sweep_function(i)); i++) {
		long uses = driver_sweep_uses(function);

		if (uses == 0 || (only && strcmp(only, function) != 0))
			continue;
		if (all)
			sweep_all(function, uses);
		else
			sweep_some(function, uses);
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
	only = argc > 2 ? argv[2] : NULL;
	return RUN_TESTS("cuda_sweep", tests);
}
