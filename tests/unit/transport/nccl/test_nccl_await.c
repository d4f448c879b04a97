/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call of NCCL's costs beside the call: calls of the driver, a thread of NCCL's, and the wait
 * for it, over both simulators.  The program's nanosleep and pthread_setcancelstate are this file's,
 * which note what this thread does.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock.h"
#include "nccl_world.h"
#include "run_tests.h"

/* Of the program. */
enum { SLACK = 123456 };

static _Thread_local bool is_watched;
static _Atomic int naps;
static _Atomic int slack; /* in the last one */
static _Atomic uint64_t first_ns;

int
nanosleep(const struct timespec *time, struct timespec *left)
{
	int error;

	if (is_watched) {
		if (atomic_load(&naps) == 0)
			atomic_store(&first_ns, batoni_real_ns());
		atomic_store(&slack, prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
		atomic_fetch_add(&naps, 1);
	}
	error = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
	if (!error)
		return 0;
	errno = error;
	return -1;
}

static _Thread_local int cancel_changes;

int
pthread_setcancelstate(int state, int *before)
{
	int (*next)(int state, int *before);

	*(void **)&next = dlsym(RTLD_NEXT, "pthread_setcancelstate");
	cancel_changes++;
	return next(state, before);
}

START_TEST(a_call_costs_one_thread_of_nccls)
{
	baton_request requests[2];
	long threads;

	create_all();
	threads = nccl->sim_uses("thread");
	requests[0] = move(1, 0, false, NULL);
	ck_assert_int_eq(nccl->sim_uses("thread"), threads + 1);
	requests[1] = move(0, 1, true, NULL);
	ck_assert_int_eq(nccl->sim_uses("thread"), threads + 2);
	for (int i = 0; i < 2; i++)
		finish(requests[i], BATON_OK);
	ck_assert_int_eq(nccl->sim_uses("thread"), threads + 2);
	/* A group of two is one. */
	ck_ok(baton_group_begin(comms[0]));
	requests[0] = move(0, 0, true, NULL);
	requests[1] = move(0, 0, false, NULL);
	ck_ok(baton_group_end(comms[0]));
	ck_assert_int_eq(nccl->sim_uses("thread"), threads + 3);
	for (int i = 0; i < 2; i++)
		finish(requests[i], BATON_OK);
	destroy_all();
}
END_TEST

/* Rank 0 sends when rank 1 has napped some times. */
static void *
sender_main(void *requests)
{
	while (atomic_load(&naps) < 3)
		sched_yield();
	for (int i = 0; i < 2; i++)
		((baton_request *)requests)[i] = move(0, 1, true, NULL);
	return NULL;
}

/* The second receive's launch waits for the first one's end. */
START_TEST(a_call_asks_for_a_while_before_it_naps_without_slack)
{
	baton_request sends[2], recvs[2];
	pthread_t sender;
	uint64_t begun;

	create_all();
	ck_assert(nccl->sim_set("room", 1));
	recvs[0] = move(1, 0, false, NULL);
	pthread_create(&sender, NULL, sender_main, sends);
	ck_assert_int_eq(prctl(PR_SET_TIMERSLACK, SLACK, 0, 0, 0), 0);
	is_watched = true;
	begun = batoni_real_ns();
	recvs[1] = move(1, 0, false, NULL);
	is_watched = false;
	ck_assert_int_ge(atomic_load(&naps), 3);
	ck_assert_int_eq(atomic_load(&slack), 1);
	ck_assert_uint_ge(atomic_load(&first_ns) - begun, 100000);
	ck_assert_int_eq(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), SLACK);
	pthread_join(sender, NULL);
	for (int i = 0; i < 2; i++) {
		finish(sends[i], BATON_OK);
		finish(recvs[i], BATON_OK);
	}
	destroy_all();
}
END_TEST

/* As behind a stream that is full and does not go on: the call ends with the transport's
 * patience, and what it held is free again. */
START_TEST(a_launch_that_blocks_breaks_its_communicator_in_time)
{
	static const struct baton_op_options endless = {
		.size = sizeof(endless), .timeout_ns = -1};
	baton_request request = 0;

	load();
	create(4 * SECOND, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	ck_assert(nccl->sim_set("room", 1));
	ck_ok(baton_release(&(baton_request){move(1, 0, false, &endless)}));
	ck_assert_int_eq(move_on(streams[1], 1, 0, false, 0, BYTES, &endless,
	                         &request),
	                 BATON_ERR_NCCL);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comms[1]),
	                             "ncclGroupEnd returned 7"));
	ck_ok(baton_comm_lock_device(comms[1]));
	ck_ok(baton_comm_unlock_device(comms[1]));
	abort_all();
}
END_TEST

/* Calls of the driver.  Only one thread makes any. */
struct calls {
	long modes, contexts; /* what the thread is in: asked, changed */
	long streams;         /* questions of the stream */
	long marks, buffers;
};

static struct calls
count_calls(void)
{
	return (struct calls){
		cuda->sim_uses("cuThreadExchangeStreamCaptureMode"),
		cuda->sim_uses("cuCtxGetCurrent"),
		cuda->sim_uses("cuStreamGetId") +
			cuda->sim_uses("cuStreamIsCapturing") +
			cuda->sim_uses("cuStreamGetCtx"),
		cuda->sim_uses("cuEventRecord") +
			cuda->sim_uses("cuEventCreate"),
		cuda->sim_uses("cuPointerGetAttributes"),
	};
}

static void
expect_calls(struct calls before, struct calls expected)
{
	struct calls after = count_calls();

	ck_assert_int_eq(after.modes - before.modes, expected.modes);
	ck_assert_int_eq(after.contexts - before.contexts, expected.contexts);
	ck_assert_int_eq(after.streams - before.streams, expected.streams);
	ck_assert_int_eq(after.marks - before.marks, expected.marks);
	ck_assert_int_eq(after.buffers - before.buffers, expected.buffers);
}

/* One transaction: the stream's number is asked for by the check of the call, and then no more; the
 * device is entered once.  The thread is not cancelled from the check to the end, nor while it drives. */
START_TEST(a_send_enters_the_device_once)
{
	enum { WARM = 3 };
	baton_request requests[2];
	struct calls before;
	CUcontext popped;

	load();
	create(0, BATON_PROGRESS_CALLS);
	for (int i = 0; i <= WARM; i++) {
		ck_cuda(cuda->context_push(contexts[0]));
		before = count_calls();
		cancel_changes = 0;
		requests[0] = move(0, 1, true, NULL);
		if (i == WARM)
			expect_calls(before, (struct calls){2, 1, 2, 2, 1});
		ck_assert_int_eq(cancel_changes, 2);
		ck_cuda(cuda->context_pop(&popped));
		requests[1] = move(1, 0, false, NULL);
		for (int j = 0; j < 2; j++)
			ck_assert(is_idle(j, streams[j]));
		for (int j = 0; j < 2; j++) {
			cancel_changes = 0;
			finish(requests[j], BATON_OK);
			ck_assert_int_le(cancel_changes, 2);
		}
	}
	destroy_all();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_send_enters_the_device_once,
		a_call_costs_one_thread_of_nccls,
		a_call_asks_for_a_while_before_it_naps_without_slack,
		a_launch_that_blocks_breaks_its_communicator_in_time,
	};

	return RUN_TESTS("nccl_await", tests);
}
