/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on an asynchronous device that refuses, and that is slow. */
#include <sched.h>
#include <string.h>

#include "clock.h"
#include "core.h"
#include "fake_device.h"
#include "mem.h"
#include "run_tests.h"
#include "testing.h"

static struct baton_comm *comms[2];
static baton_stream s, t;
static char in[8][8], out[8][8];
static _Atomic uint64_t now;

static uint64_t
injected(void)
{
	return atomic_load(&now);
}

static void
setup(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.requests_max = 16;
	atomic_store(&now, 1000);
	batoni_clock_set(injected);
	ck_assert_int_eq(batoni_comm_create_local_with(&batoni_fake_device_ops,
	                                               2, &options, comms),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_create(comms[0], &s), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comms[0], &t), BATON_OK);
}

static void
teardown(void)
{
	ck_assert_int_eq(baton_stream_destroy(comms[0], s), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comms[0], t), BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
	batoni_clock_set(NULL);
	ck_assert_int_eq(fake_device_violations(), 0);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static void
send_one(int tag, baton_stream stream)
{
	ck_assert_int_eq(baton_send(out[tag], 8, BATON_UINT8, 1, tag, comms[0],
	                            stream, NULL, NULL),
	                 BATON_OK);
}

/* s: tags 0 and 1; a group of 2 (s) and 3 (t); t: 4. */
static struct baton_plan *
usual(void)
{
	struct baton_plan *plan = NULL;

	ck_assert_int_eq(baton_plan_begin(comms[0]), BATON_OK);
	send_one(0, s);
	send_one(1, s);
	ck_assert_int_eq(baton_group_begin(comms[0]), BATON_OK);
	send_one(2, s);
	send_one(3, t);
	ck_assert_int_eq(baton_group_end(comms[0]), BATON_OK);
	send_one(4, t);
	ck_assert_int_eq(baton_plan_end(comms[0], &plan), BATON_OK);
	return plan;
}

static void
receive(int tag)
{
	baton_request request = 0;

	ck_assert_int_eq(baton_recv(in[tag], 8, BATON_UINT8, 0, tag, comms[1],
	                            NULL, NULL, &request),
	                 BATON_OK);
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
}

/* All records can be had again: a plan that takes them all is launched. */
static void
assert_all_free(void)
{
	struct baton_plan *plan = NULL;
	baton_request request = 0;

	ck_assert_int_eq(baton_plan_begin(comms[0]), BATON_OK);
	for (int i = 0; i < 15; i++)
		send_one(7, s);
	ck_assert_int_eq(baton_plan_end(comms[0], &plan), BATON_OK);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &request), BATON_OK);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	for (int i = 0; i < 15; i++)
		receive(7);
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
}

START_TEST(launch_whose_first_operation_is_refused_enqueues_nothing)
{
	struct baton_plan *plan = usual();
	baton_request request = 77;

	fake_device_fail_at(FAKE_ENQUEUE, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &request), BATON_ERR_CUDA);
	ck_assert_uint_eq(request, 77);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	assert_all_free();
}
END_TEST

/* Five items in all: two single operations, two carriers, and one more. */
START_TEST(launch_that_is_refused_halfway_ends_in_the_refusal)
{
	static const int sent[] = {0, 0, 1, 2, 2, 4};
	static const char *const which[] = {"", "", "operation 1", "operation 2",
	                                    "operation 2", "operation 4"};

	for (unsigned n = 2; n <= 5; n++) {
		struct baton_plan *plan = usual();
		struct baton_completion done;
		baton_request request = 0;
		char text[200] = "";

		fake_device_fail_at(FAKE_ENQUEUE, n, BATON_ERR_CUDA);
		ck_assert_int_eq(baton_plan_launch(plan, NULL, &request),
		                 BATON_OK);
		ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
		for (int tag = 0; tag < sent[n]; tag++)
			receive(tag);
		ck_assert_int_eq(baton_wait(request, -1, &done),
		                 BATON_ERR_CUDA);
		ck_assert_int_eq(done.op, BATON_OPERATION_PLAN);
		ck_assert_uint_eq(done.bytes, 8 * (size_t)sent[n]);
		ck_assert_int_eq(baton_request_error(request, text,
		                                     sizeof(text)),
		                 BATON_OK);
		ck_assert_msg(strstr(text, which[n]) != NULL, "%s", text);
		ck_assert_ptr_nonnull(strstr(text, "refused"));
		ck_assert_int_eq(baton_release(&request), BATON_OK);
		ck_assert_int_eq(baton_stream_synchronize(comms[0], s), BATON_OK);
		ck_assert_int_eq(baton_stream_synchronize(comms[0], t), BATON_OK);
		assert_all_free();
	}
}
END_TEST

/* A group that comes first, and of which one carrier is on its stream. */
START_TEST(launch_of_a_group_that_is_refused_halfway_enqueues_nothing)
{
	struct baton_plan *plan = NULL;
	baton_request request = 77;

	ck_assert_int_eq(baton_plan_begin(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_group_begin(comms[0]), BATON_OK);
	send_one(2, s);
	send_one(3, t);
	ck_assert_int_eq(baton_group_end(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_plan_end(comms[0], &plan), BATON_OK);
	for (unsigned n = 1; n <= 2; n++) {
		fake_device_fail_at(FAKE_ENQUEUE, n, BATON_ERR_CUDA);
		ck_assert_int_eq(baton_plan_launch(plan, NULL, &request),
		                 BATON_ERR_CUDA);
		ck_assert_uint_eq(request, 77);
		ck_assert_int_eq(baton_stream_synchronize(comms[0], s), BATON_OK);
	}
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	assert_all_free();
}
END_TEST

struct launching {
	struct baton_plan *plan;
	baton_request request;
	enum baton_status status;
};

static void *
launch_within(void *arg)
{
	struct launching *launching = arg;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.timeout_ns = 100;
	launching->status = baton_plan_launch(launching->plan, &options,
	                                      &launching->request);
	return NULL;
}

/* The first operation is armed, and its deadline passes, before the last is on its stream. */
START_TEST(operations_that_come_after_the_deadline_end_at_once)
{
	struct launching launching = {0};
	baton_request record = 0, fill[3] = {0};
	pthread_t thread;

	ck_assert_int_eq(baton_plan_begin(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_recv(in[0], 8, BATON_UINT8, 1, 0, comms[0], s,
	                            NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(in[1], 8, BATON_UINT8, 1, 1, comms[0], t,
	                            NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_plan_end(comms[0], &launching.plan), BATON_OK);
	/* t stands still, and is full: the second operation's enqueue blocks. */
	fake_device_hold(t);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(baton_record(comms[0], t, NULL, &fill[i]),
		                 BATON_OK);
	fake_device_bound(3);
	pthread_create(&thread, NULL, launch_within, &launching);
	while (fake_device_blocked() == 0)
		sched_yield();
	/* s goes on when the deadline has ended the first.  (A record needs the order lock,
	 * which the launch holds.) */
	while (baton_stream_query(comms[0], s) == BATON_PENDING) {
		atomic_fetch_add(&now, 100);
		sched_yield();
	}
	fake_device_bound(0);
	fake_device_run(t);
	pthread_join(thread, NULL);
	ck_assert_int_eq(launching.status, BATON_OK);
	/* The clock stands still now. */
	ck_assert_int_eq(baton_finish(&launching.request, -1, NULL),
	                 BATON_ERR_TIMEOUT);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(baton_finish(&fill[i], -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_record(comms[0], t, NULL, &record), BATON_OK);
	ck_assert_int_eq(baton_finish(&record, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_plan_destroy(launching.plan), BATON_OK);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		launch_whose_first_operation_is_refused_enqueues_nothing,
		launch_that_is_refused_halfway_ends_in_the_refusal,
		launch_of_a_group_that_is_refused_halfway_enqueues_nothing,
		operations_that_come_after_the_deadline_end_at_once,
	};

	return RUN_TESTS_WITH("plan_async", tests, setup, teardown);
}
