/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues, with a real epoll loop. */
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "harness.h"

static struct baton_queue *
new_queue(struct conform *c, size_t entries)
{
	struct baton_queue *queue = NULL;

	CHECK_OK(c, baton_queue_create(c->comm, entries, &queue));
	return queue;
}

static struct baton_op_options
into(struct baton_queue *queue, uint64_t user_data)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	options.queue = queue;
	options.user_data = user_data;
	return options;
}

static struct baton_op_options
record_into(struct baton_queue *queue, uint64_t user_data)
{
	struct baton_op_options options = into(queue, user_data);

	options.flags = 0;
	return options;
}

/* Poll until n have come. */
static size_t
poll_all(struct conform *c, struct baton_queue *queue,
         struct baton_completion *done, size_t n)
{
	int64_t begin = conform_begin();
	size_t got = 0;

	while (got < n && STILL(c, begin))
		got += baton_queue_poll(queue, done + got, n - got);
	return got;
}

static void
completions_come_with_their_data_and_release_the_request(struct conform *c)
{
	enum { N = 20 };
	struct baton_queue *queue = new_queue(c, N);
	struct baton_completion done[N];
	baton_request requests[N] = { 0 };
	unsigned char data[N][32];
	bool seen[N] = { false };

	memset(data, 0, sizeof(data));
	for (int i = 0; i < N && c->rank < 2; i++) {
		struct baton_op_options options = into(queue, 100u + (unsigned)i);

		requests[i] = c->rank ? RECV(c, data[i], 32, 0, 0, c->stream,
		                             &options)
		                      : SEND(c, data[i], (size_t)i, 1, 0,
		                             c->stream, &options);
	}
	if (c->rank < 2)
		CHECK_EQ(c, poll_all(c, queue, done, N), N);
	for (int i = 0; i < N && c->rank < 2; i++) {
		size_t k = (size_t)done[i].user_data - 100;

		if (!CHECK(c, k < N && !seen[k]))
			continue;
		seen[k] = true;
		CHECK_STATUS(c, BATON_OK, done[i].status);
		CHECK_EQ(c, done[i].bytes, k);
		CHECK_EQ(c, done[i].peer, 1 - c->rank);
		CHECK(c, done[i].request == requests[k]);
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(requests[k], NULL));
	}
	CHECK_EQ(c, baton_queue_poll(queue, done, N), 0);
	baton_queue_destroy(queue);
}

/* One stream completes in its order, and the queue keeps it. */
static void
completions_come_oldest_first(struct conform *c)
{
	enum { N = 50 };
	struct baton_queue *queue = new_queue(c, N);
	struct baton_completion done[N];
	size_t got = 0;

	for (unsigned i = 0; i < N; i++) {
		struct baton_op_options options = record_into(queue, i);
		baton_request request = 0;

		CHECK_OK(c, baton_record(c->comm, c->stream, &options,
		                         &request));
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* In small helpings. */
	while (got < N && CHECK(c, baton_queue_poll(queue, &done[got], 1) == 1))
		got++;
	for (unsigned i = 0; i < got; i++) {
		CHECK_EQ(c, done[i].user_data, i);
		CHECK_EQ(c, done[i].op, BATON_OPERATION_RECORD);
	}
	baton_queue_destroy(queue);
}

static void
a_full_queue_is_again_and_recovers(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 4);
	struct baton_op_options options = record_into(queue, 1);
	struct baton_completion done[8];
	baton_request request = 321;

	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++)
			CHECK_OK(c, baton_record(c->comm, c->stream, &options,
			                         NULL));
		CHECK_REFUSED(c, BATON_ERR_AGAIN,
		              baton_record(c->comm, c->stream, &options,
		                           &request),
		              "queue");
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_record(c->comm, c->stream, &options,
		                          &request));
		CHECK(c, request == 321);
		/* One polled, one free. */
		CHECK_EQ(c, poll_all(c, queue, done, 1), 1);
		CHECK_OK(c, baton_record(c->comm, c->stream, &options, NULL));
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_record(c->comm, c->stream, &options, NULL));
		CHECK_EQ(c, poll_all(c, queue, done, 4), 4);
	}
	baton_queue_destroy(queue);
}

/* An entry that a refused or voided operation had reserved is free again. */
static void
refused_operations_reserve_nothing(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 2);
	struct baton_op_options options = into(queue, 1);
	struct baton_op_options record = record_into(queue, 2);
	struct baton_completion done[4];
	int value = 0;

	for (int i = 0; i < 10; i++) {
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send(&value, 1, BATON_INT32, -1, 0, c->comm,
		                        c->stream, &options, NULL));
		CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_send(&value, 1, BATON_INT32, 0, 0, c->comm,
		                       c->stream, &options, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send(&value, 1, BATON_INT32, -1, 0, c->comm,
		                        c->stream, &options, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	}
	CHECK_OK(c, baton_record(c->comm, c->stream, &record, NULL));
	CHECK_OK(c, baton_record(c->comm, c->stream, &record, NULL));
	CHECK_EQ(c, poll_all(c, queue, done, 2), 2);
	CHECK_EQ(c, done[0].user_data, 2);
	baton_queue_destroy(queue);
}

/* ---- the descriptor ----------------------------------------------------- */

/* Waits until the descriptor is readable. */
static bool
sleep_in_epoll(struct conform *c, int epoll)
{
	struct epoll_event event;
	int n = epoll_wait(epoll, &event, 1,
	                   (int)(conform_patience(c) / MS));

	return CHECK_EQ(c, n, 1);
}

static int
new_epoll(struct conform *c, struct baton_queue *queue)
{
	struct epoll_event event = { .events = EPOLLIN };
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	CHECK(c, epoll >= 0);
	CHECK(c, baton_queue_fd(queue) >= 0);
	CHECK_EQ(c, epoll_ctl(epoll, EPOLL_CTL_ADD, baton_queue_fd(queue),
	                      &event), 0);
	return epoll;
}

/* Arm the queue, which is empty, until the program would sleep on the descriptor.  Where peers wake the
 * program (near), the byte of an earlier ring may come after the arming: a wake-up that brings nothing. */
static void
arm_until_it_sleeps(struct conform *c, struct baton_queue *queue, int epoll)
{
	struct baton_completion done[1];
	struct epoll_event event;
	int64_t begin = conform_begin();

	CHECK_OK(c, baton_queue_arm(queue));
	while (epoll_wait(epoll, &event, 1, 0) != 0 && STILL(c, begin)) {
		CHECK_EQ(c, baton_queue_poll(queue, done, 1), 0);
		CHECK_OK(c, baton_queue_arm(queue));
	}
}

/* The queue was armed.  Sleep, poll, and arm again while a wake-up brings nothing: its poll may find the
 * engine's thread driving, which delivers a moment later. */
static size_t
poll_and_sleep(struct conform *c, struct baton_queue *queue, int epoll,
               struct baton_completion *done, size_t max)
{
	int64_t begin = conform_begin();
	size_t got = 0;

	while (sleep_in_epoll(c, epoll) && STILL(c, begin)) {
		do {
			got = baton_queue_poll(queue, done, max);
		} while (got == 0 && baton_queue_arm(queue) == BATON_PENDING);
		if (got > 0)
			break;
	}
	return got;
}

enum { LOOP_MESSAGES = 1000, LOOP_DEPTH = 32 };

struct loop {
	struct baton_queue *queue;
	unsigned char data[LOOP_DEPTH][64];
	unsigned number[LOOP_DEPTH]; /* of the message that is in the buffer */
	unsigned posted, ended;
};

static void
post_next(struct conform *c, struct loop *loop, uint64_t slot)
{
	struct baton_op_options options = into(loop->queue, slot);

	if (loop->posted == LOOP_MESSAGES)
		return;
	loop->number[slot] = loop->posted++;
	if (c->rank == 0) {
		conform_fill(loop->data[slot], 64, loop->number[slot]);
		SEND(c, loop->data[slot], 64, 1, 0, c->stream, &options);
	} else {
		RECV(c, loop->data[slot], 64, 0, 0, c->stream, &options);
	}
}

/* Arm, sleep, poll: the loop of an event-driven program.  Completions may come
 * in another order than the messages; buffers are used again as they come. */
static void
an_epoll_loop_serves_a_thousand_messages(struct conform *c)
{
	struct loop *loop = conform_alloc(c, sizeof(*loop));
	struct baton_completion done[8];
	int epoll;

	loop->queue = new_queue(c, LOOP_DEPTH);
	epoll = new_epoll(c, loop->queue);
	for (uint64_t slot = 0; slot < LOOP_DEPTH && c->rank < 2; slot++)
		post_next(c, loop, slot);
	while (loop->ended < LOOP_MESSAGES && c->rank < 2 &&
	       !atomic_load(&c->failures)) {
		size_t got;

		if (baton_queue_arm(loop->queue) == BATON_OK &&
		    !sleep_in_epoll(c, epoll))
			break;
		got = baton_queue_poll(loop->queue, done, 8);
		for (size_t i = 0; i < got; i++, loop->ended++) {
			uint64_t slot = done[i].user_data;

			CHECK_STATUS(c, BATON_OK, done[i].status);
			if (!CHECK(c, slot < LOOP_DEPTH))
				break;
			CHECK_FILLED(c, loop->data[slot], 64,
			             loop->number[slot]);
			post_next(c, loop, slot);
		}
	}
	close(epoll);
	baton_queue_destroy(loop->queue);
}

static void
arm_is_pending_while_completions_are_there(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 4);
	struct baton_op_options options = record_into(queue, 0);
	struct baton_completion done[4];
	int epoll = new_epoll(c, queue);

	CHECK_OK(c, baton_queue_arm(queue));
	/* Armed twice is armed once. */
	arm_until_it_sleeps(c, queue, epoll);
	CHECK_OK(c, baton_record(c->comm, c->stream, &options, NULL));
	sleep_in_epoll(c, epoll);
	CHECK_STATUS(c, BATON_PENDING, baton_queue_arm(queue));
	CHECK_EQ(c, poll_all(c, queue, done, 1), 1);
	/* The last wake-up is over. */
	arm_until_it_sleeps(c, queue, epoll);
	CHECK_OK(c, baton_record(c->comm, c->stream, &options, NULL));
	sleep_in_epoll(c, epoll);
	CHECK_EQ(c, poll_all(c, queue, done, 1), 1);
	close(epoll);
	baton_queue_destroy(queue);
}

/* The loop sleeps when the message comes; nobody else drives. */
static void
a_message_wakes_the_sleeper(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 4);
	struct baton_op_options options = into(queue, 5);
	struct baton_completion done[4];
	unsigned char data[5000] = { 0 };
	int epoll = new_epoll(c, queue);
	baton_request request = 0;

	for (int i = 0; i < 20; i++) {
		if (c->rank == 1) {
			RECV(c, data, sizeof(data), 0, 0, c->stream, &options);
			CHECK_OK(c, baton_queue_arm(queue));
		}
		conform_sync(c);
		if (c->rank == 0) {
			request = SEND(c, data, sizeof(data), 1, 0, c->stream,
			               NULL);
		} else if (c->rank == 1) {
			CHECK_EQ(c, poll_and_sleep(c, queue, epoll, done, 4), 1);
		}
		FINISH(c, BATON_OK, &request);
	}
	close(epoll);
	baton_queue_destroy(queue);
}

/* ---- what ends badly, and the queue's end ------------------------------- */

static void
errors_come_through_the_queue(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 4);
	struct baton_op_options options = into(queue, 0);
	struct baton_completion done[2];
	unsigned char data[8];
	baton_request request;

	options.timeout_ns = 2 * MS;
	RECV(c, data, 8, c->rank, 0, c->stream, &options);
	CHECK_EQ(c, poll_all(c, queue, done, 1), 1);
	CHECK_STATUS(c, BATON_ERR_TIMEOUT, done[0].status);
	options.timeout_ns = 0;
	options.user_data = 1;
	request = RECV(c, data, 8, c->rank, 0, c->stream, &options);
	CHECK_OK(c, baton_cancel(request));
	CHECK_EQ(c, poll_all(c, queue, done, 1), 1);
	CHECK_STATUS(c, BATON_ERR_CANCELED, done[0].status);
	CHECK_EQ(c, done[0].user_data, 1);
	/* Polled is observed. */
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	baton_queue_destroy(queue);
}

static void
a_queued_request_can_be_waited_for_too(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 4);
	struct baton_op_options options = record_into(queue, 9);
	struct baton_completion done[4];
	baton_request request = 0;

	CHECK_OK(c, baton_record(c->comm, c->stream, &options, &request));
	CHECK_OK(c, baton_wait(request, conform_patience(c), NULL));
	CHECK_OK(c, baton_test(request, NULL));
	CHECK_EQ(c, poll_all(c, queue, done, 1), 1);
	CHECK_EQ(c, done[0].user_data, 9);
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
	baton_queue_destroy(queue);
}

static void
operations_outlive_their_queue(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 8);
	struct baton_op_options options = into(queue, 0);
	unsigned char data[6000] = { 0 };
	baton_request kept = 0;

	if (c->rank == 1)
		kept = RECV(c, data, sizeof(data), 0, 0, c->stream, &options);
	baton_queue_destroy(queue);
	conform_sync(c);
	if (c->rank == 0) {
		baton_request request;

		conform_fill(data, sizeof(data), 12);
		request = SEND(c, data, sizeof(data), 1, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		baton_request joined = 0;
		enum baton_status status;

		/* Unobserved from now on, so joined before it is looked at. */
		status = baton_stream_wait(c->comm, c->stream, kept);
		if (status == BATON_OK) {
			CHECK_OK(c, baton_record(c->comm, c->stream, NULL,
			                         &joined));
			FINISH(c, BATON_OK, &joined);
			CHECK_FILLED(c, data, sizeof(data), 12);
		} else {
			CHECK_STATUS(c, BATON_ERR_STALE, status);
		}
	}
	conform_sync(c);
	conform_sound(c);
}

static void
completions_not_polled_are_dropped(struct conform *c)
{
	baton_request requests[8] = { 0 };

	for (int round = 0; round < 50; round++) {
		struct baton_queue *queue = new_queue(c, 8);
		struct baton_op_options options = record_into(queue, 0);

		for (int i = 0; i < 8; i++)
			CHECK_OK(c, baton_record(c->comm, c->stream, &options,
			                         &requests[i]));
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
		baton_queue_destroy(queue);
		for (int i = 0; i < 8; i++)
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(requests[i], NULL));
		if (atomic_load(&c->failures))
			break;
	}
}

static void
a_communicator_with_a_queue_is_busy(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 1);

	CHECK_REFUSED(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm), "queue");
	baton_queue_destroy(queue);
	conform_sync(c);
	conform_sound(c);
}

/* ---- threads ------------------------------------------------------------ */

struct producer {
	struct conform *c;
	struct baton_queue *queue;
	pthread_t thread;
	unsigned number;
};

enum { PRODUCERS = 4, EACH = 500 };

static void *
produce(void *arg)
{
	struct producer *producer = arg;
	struct conform *c = producer->c;
	baton_stream stream = conform_stream(c);
	int64_t begin = conform_begin();

	for (unsigned i = 0; i < EACH;) {
		struct baton_op_options options = record_into(
			producer->queue, producer->number * EACH + i);
		enum baton_status status =
			baton_record(c->comm, stream, &options, NULL);

		if (status == BATON_OK)
			i++;
		else if (!CHECK_STATUS(c, BATON_ERR_AGAIN, status) ||
		         !STILL(c, begin))
			break;
	}
	return NULL;
}

static void
many_threads_feed_one_loop(struct conform *c)
{
	struct baton_queue *queue = new_queue(c, 64);
	int epoll = new_epoll(c, queue), ended = 0;
	struct producer producers[PRODUCERS];
	unsigned next[PRODUCERS] = { 0 };
	struct baton_completion done[16];

	for (unsigned i = 0; i < PRODUCERS; i++) {
		producers[i].c = c;
		producers[i].queue = queue;
		producers[i].number = i;
		if (!CHECK_EQ(c, pthread_create(&producers[i].thread, NULL,
		                                produce, &producers[i]), 0))
			return;
	}
	while (ended < PRODUCERS * EACH) {
		size_t got;

		if (baton_queue_arm(queue) == BATON_OK &&
		    !sleep_in_epoll(c, epoll))
			break;
		got = baton_queue_poll(queue, done, 16);
		for (size_t i = 0; i < got; i++, ended++) {
			unsigned from = (unsigned)done[i].user_data / EACH;

			/* Each one's own order holds. */
			if (CHECK(c, from < PRODUCERS))
				CHECK_EQ(c, done[i].user_data % EACH,
				         next[from]++);
		}
	}
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(producers[i].thread, NULL);
	close(epoll);
	baton_queue_destroy(queue);
}

const struct conform_case conform_queue[] = {
	{ CASE(completions_come_with_their_data_and_release_the_request),
	  .ranks_min = 2, .needs = BATON_CAP_SHORT },
	{ CASE(completions_come_oldest_first) },
	{ CASE(a_full_queue_is_again_and_recovers) },
	{ CASE(refused_operations_reserve_nothing) },
	{ CASE(an_epoll_loop_serves_a_thousand_messages), .ranks_min = 2 },
	{ CASE(arm_is_pending_while_completions_are_there) },
	{ CASE(a_message_wakes_the_sleeper), .ranks_min = 2 },
	{ CASE(errors_come_through_the_queue),
	  .needs = BATON_CAP_CANCEL | BATON_CAP_SELF },
	{ CASE(a_queued_request_can_be_waited_for_too) },
	{ CASE(operations_outlive_their_queue), .ranks_min = 2 },
	{ CASE(completions_not_polled_are_dropped), .requests_max = 8 },
	{ CASE(a_communicator_with_a_queue_is_busy) },
	{ CASE(many_threads_feed_one_loop), .makes = 5 },
	CASES_END,
};
