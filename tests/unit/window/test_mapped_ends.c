/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How puts and signals end that are on a stream, and are not taken back: by a deadline, by
 * an abort, with a stream that stands for good.  On the fake device, whose streams are
 * stepped.
 *
 * A stream that is held passes marks: what is first on it is armed.
 */
#include <poll.h>
#include <string.h>

#include "baton.h"
#include "fake_device.h"
#include "mem.h"
#include "run_tests.h"
#include "testing.h"

#define LONG_NS INT64_C(60000000000)
enum { RECORDS = 16 };
#define ok(call) ck_assert_int_eq((call), BATON_OK)

static struct baton_comm *comms[2];
static baton_stream stream;

static void
open_ranks(int64_t timeout_ns)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.requests_max = RECORDS;
	options.timeout_ns = timeout_ns;
	options.progress = BATON_PROGRESS_CALLS;
	ok(batoni_comm_create_local_with(&batoni_fake_device_ops, 2, &options,
	                                 comms));
	ok(baton_stream_create(comms[0], &stream));
	fake_device_hold(stream);
}

static void
close_ranks(void)
{
	/* Either would wait for the other one: both are this thread's. */
	for (int i = 0; i < 2; i++) {
		if (baton_comm_status(comms[i]) == BATON_OK)
			ok(baton_comm_abort(comms[i]));
	}
	for (int i = 0; i < 2; i++)
		ok(baton_comm_destroy(comms[i]));
	ck_assert_int_eq(fake_device_violations(), 0);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static baton_request
signal_within(int64_t timeout_ns)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request = BATON_REQUEST_NULL;

	options.timeout_ns = timeout_ns;
	ok(baton_signal(1, 0, 0, 0, comms[0], stream, &options, &request));
	return request;
}

/* The same, whose end is told by the queue alone. */
static void
signal_for(struct baton_queue *queue, uint64_t user_data, int64_t timeout_ns)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.timeout_ns = timeout_ns;
	options.queue = queue;
	options.user_data = user_data;
	ok(baton_signal(1, 0, 0, 0, comms[0], stream, &options, NULL));
}

/* The next completion of the queue is that of this one, and tells this. */
static void
await_completion(struct baton_queue *queue, uint64_t user_data,
                 enum baton_status expected)
{
	struct baton_completion done = {0};

	while (baton_queue_poll(queue, &done, 1) == 0)
		;
	ck_assert_uint_eq(done.user_data, user_data);
	ck_assert_int_eq(done.status, expected);
}

/* Something has come to the queue, which is not polled. */
static void
await_descriptor(struct baton_queue *queue)
{
	struct pollfd descriptor = {.fd = baton_queue_fd(queue),
	                            .events = POLLIN};

	ok(baton_queue_arm(queue));
	while (poll(&descriptor, 1, 0) == 0)
		(void)baton_progress(comms[0]);
}

static uint64_t
count(void)
{
	uint64_t n = 0;

	ok(baton_signal_count(comms[1], 0, 0, 0, &n));
	return n;
}

static bool
is_lent(baton_request request, enum baton_status expected)
{
	struct baton_completion done = {0};

	ck_assert_int_eq(baton_test(request, &done), expected);
	return done.flags & BATON_COMPLETION_LENT;
}

static void
await_end_of_loan(baton_request request, enum baton_status expected)
{
	while (is_lent(request, expected))
		(void)baton_progress(comms[0]);
	ok(baton_release(&request));
}

START_TEST(deadline_ends_a_put_alone_and_lends_it)
{
	baton_request late, next;

	open_ranks(0);
	late = signal_within(1000000);
	next = signal_within(-1);
	ck_assert_int_eq(baton_wait(late, LONG_NS, NULL), BATON_ERR_TIMEOUT);
	ck_assert(is_lent(late, BATON_ERR_TIMEOUT));
	ok(baton_comm_status(comms[0]));
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(baton_test(next, NULL), BATON_PENDING);
	/* It arrives all the same, and nothing is lost behind it. */
	fake_device_step(stream, 2);
	ck_assert_uint_eq(count(), 2);
	ok(baton_finish(&next, LONG_NS, NULL));
	await_end_of_loan(late, BATON_ERR_TIMEOUT);
	fake_device_run(stream);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

/* Its deadline runs from there. */
START_TEST(put_that_is_not_armed_has_no_deadline)
{
	baton_request first, second;

	open_ranks(0);
	first = signal_within(-1);
	second = signal_within(1);
	for (int i = 0; i < 200; i++)
		(void)baton_progress(comms[0]);
	ck_assert_int_eq(baton_test(second, NULL), BATON_PENDING);
	fake_device_step(stream, 1);
	ok(baton_finish(&first, LONG_NS, NULL));
	ck_assert_int_eq(baton_wait(second, LONG_NS, NULL), BATON_ERR_TIMEOUT);
	fake_device_run(stream);
	await_end_of_loan(second, BATON_ERR_TIMEOUT);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

/* A lent one is still before the engine's. */
START_TEST(lent_put_keeps_its_place)
{
	static const struct baton_op_options detached = {
		.size = sizeof(struct baton_op_options),
		.flags = BATON_OP_DETACHED,
	};
	baton_request late, engines = BATON_REQUEST_NULL;
	baton_stream other;

	open_ranks(0);
	ok(baton_stream_create(comms[0], &other));
	late = signal_within(1000000);
	ck_assert_int_eq(baton_wait(late, LONG_NS, NULL), BATON_ERR_TIMEOUT);
	ok(baton_signal(1, 0, 0, 0, comms[0], other, &detached, &engines));
	for (int i = 0; i < 100; i++)
		(void)baton_progress(comms[0]);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(baton_test(engines, NULL), BATON_PENDING);
	fake_device_run(stream);
	ok(baton_finish(&engines, LONG_NS, NULL));
	ck_assert_uint_eq(count(), 2);
	await_end_of_loan(late, BATON_ERR_TIMEOUT);
	ok(baton_stream_destroy(comms[0], other));
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

/* All of the pool's records are free, once what was lent is. */
static void
await_all_free(void)
{
	baton_request requests[RECORDS];
	int taken = 0;

	while (taken < RECORDS) {
		enum baton_status status = baton_record(comms[0], stream, NULL,
		                                        &requests[taken]);

		if (status == BATON_OK)
			taken++;
		else
			ck_assert_int_eq(status, BATON_ERR_AGAIN);
		(void)baton_progress(comms[0]);
	}
	while (taken-- > 0)
		ok(baton_finish(&requests[taken], LONG_NS, NULL));
}

/* It waits for its mark, and is in its queue: what is behind it in either is not lost. */
START_TEST(lent_put_is_in_its_queue_and_keeps_its_mark)
{
	struct baton_queue *queue;
	baton_request next;

	open_ranks(0);
	ok(baton_queue_create(comms[0], 8, &queue));
	signal_for(queue, 1, 1000000);
	next = signal_within(-1);
	signal_for(queue, 2, -1);
	await_completion(queue, 1, BATON_ERR_TIMEOUT);
	fake_device_run(stream);
	ok(baton_finish(&next, LONG_NS, NULL));
	await_completion(queue, 2, BATON_OK);
	ck_assert_uint_eq(count(), 3);
	await_all_free();
	baton_queue_destroy(queue);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

/* Others come to the queue while it is there, and its loan ends while it is. */
START_TEST(lent_put_that_is_not_polled_yet_keeps_its_mark)
{
	struct baton_queue *queue;
	baton_request record = BATON_REQUEST_NULL;

	open_ranks(0);
	ok(baton_queue_create(comms[0], 8, &queue));
	for (uint64_t i = 1; i <= 4; i++)
		signal_for(queue, i, i == 1 ? 1000000 : -1);
	await_descriptor(queue);
	fake_device_run(stream);
	ok(baton_record(comms[0], stream, NULL, &record));
	ok(baton_finish(&record, LONG_NS, NULL));
	for (int i = 0; i < 100; i++)
		(void)baton_progress(comms[0]);
	await_completion(queue, 1, BATON_ERR_TIMEOUT);
	await_completion(queue, 2, BATON_OK);
	await_completion(queue, 3, BATON_OK);
	await_completion(queue, 4, BATON_OK);
	await_all_free();
	baton_queue_destroy(queue);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

START_TEST(abort_lends_puts_that_have_a_queue)
{
	struct baton_queue *queue;
	baton_request requests[3];

	open_ranks(0);
	ok(baton_queue_create(comms[0], 8, &queue));
	for (uint64_t i = 0; i < 3; i++) {
		requests[i] = signal_within(-1);
		signal_for(queue, i, -1);
	}
	ok(baton_comm_abort(comms[0]));
	for (uint64_t i = 0; i < 3; i++)
		await_completion(queue, i, BATON_ERR_ABORTED);
	fake_device_run(stream);
	for (int i = 0; i < 3; i++)
		await_end_of_loan(requests[i], BATON_ERR_ABORTED);
	ck_assert_uint_eq(count(), 6);
	baton_queue_destroy(queue);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

START_TEST(abort_lends_what_is_on_a_stream)
{
	baton_request request;

	open_ranks(0);
	request = signal_within(-1);
	ok(baton_comm_abort(comms[0]));
	ck_assert_int_eq(baton_wait(request, LONG_NS, NULL), BATON_ERR_ABORTED);
	ck_assert(is_lent(request, BATON_ERR_ABORTED));
	fake_device_run(stream);
	await_end_of_loan(request, BATON_ERR_ABORTED);
	ck_assert_uint_eq(count(), 1);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

/* The destroy waits for as long as for a device that stands, and then leaves all that the
 * stream will touch. */
START_TEST(destroy_leaves_a_stream_that_stands)
{
	baton_stream standing;
	struct baton_comm *first;
	long kept;

	open_ranks(20000000);
	standing = stream;
	(void)signal_within(-1);
	first = comms[0];
	for (int i = 0; i < 2; i++)
		ok(baton_comm_abort(comms[i]));
	for (int i = 0; i < 2; i++)
		ok(baton_comm_destroy(comms[i]));
	kept = (long)batoni_mem_blocks();
	ck_assert_int_eq(kept, 0);
	ck_assert_int_eq(baton_comm_rank(first), -1);
	/* It writes now, into a segment that is still there. */
	fake_device_run(standing);
	fake_device_step(standing, 0);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

START_TEST(destroy_waits_for_the_stream)
{
	open_ranks(0);
	(void)signal_within(-1);
	ok(baton_comm_abort(comms[0]));
	fake_device_run(stream);
	close_ranks();
}
END_TEST

/* The mark behind a put is asked for again. */
START_TEST(mark_that_is_refused_once_breaks_nothing)
{
	baton_request request;

	open_ranks(0);
	fake_device_run(stream);
	fake_device_fail_at(FAKE_MARK, 2, BATON_ERR_CUDA);
	request = signal_within(-1);
	ok(baton_finish(&request, LONG_NS, NULL));
	ck_assert_uint_eq(count(), 1);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

/* PENDING is how a stream says that it is full. */
START_TEST(put_that_the_stream_has_no_room_for_is_the_engines)
{
	baton_request request;

	open_ranks(0);
	fake_device_fail_at(FAKE_PUT, 1, BATON_PENDING);
	request = signal_within(-1);
	/* The stream comes to it when the call has returned, and nobody drives. */
	fake_device_run(stream);
	fake_device_step(stream, 0);
	ck_assert_uint_eq(count(), 0);
	ok(baton_finish(&request, LONG_NS, NULL));
	ck_assert_uint_eq(count(), 1);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

START_TEST(put_that_is_refused_leaves_nothing)
{
	baton_request request = BATON_REQUEST_NULL;

	open_ranks(0);
	fake_device_run(stream);
	fake_device_fail_at(FAKE_PUT, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(baton_signal(1, 0, 0, 0, comms[0], stream, NULL,
	                              &request),
	                 BATON_ERR_CUDA);
	ck_assert_uint_eq(request, BATON_REQUEST_NULL);
	request = signal_within(-1);
	ok(baton_finish(&request, LONG_NS, NULL));
	ck_assert_uint_eq(count(), 1);
	ok(baton_stream_destroy(comms[0], stream));
	close_ranks();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		deadline_ends_a_put_alone_and_lends_it,
		put_that_is_not_armed_has_no_deadline,
		lent_put_keeps_its_place,
		lent_put_is_in_its_queue_and_keeps_its_mark,
		lent_put_that_is_not_polled_yet_keeps_its_mark,
		abort_lends_puts_that_have_a_queue,
		abort_lends_what_is_on_a_stream,
		destroy_leaves_a_stream_that_stands,
		destroy_waits_for_the_stream,
		mark_that_is_refused_once_breaks_nothing,
		put_that_the_stream_has_no_room_for_is_the_engines,
		put_that_is_refused_leaves_nothing,
	};

	return RUN_TESTS("mapped_ends", tests);
}
