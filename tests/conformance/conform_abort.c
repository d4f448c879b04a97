/* SPDX-License-Identifier: BSD-3-Clause */
/* Abort: every pending operation ends once, in ABORTED, and every stream goes
 * on (guarantees 8, 11).  What an abort leaves in flight may still be read by
 * the peer's library, so buffers of sends are static. */
#include <string.h>

#include "harness.h"

static unsigned char big[4 << 20];

/* One of every kind that can be pending, each with its number as user_data;
 * returns how many. */
static int
make_pending(struct conform *c, baton_stream streams[4],
             struct baton_queue *queue, unsigned char *in,
             baton_request requests[16])
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int other = c->rank ^ 1, n = 0;

	options.queue = queue;
	/* Issued, unmatched. */
	requests[n] = RECV(c, in, 8, other, 0, streams[0],
	                   (options.user_data = (uint64_t)n, &options));
	n++;
	/* Behind it on its stream, so not armed. */
	requests[n] = RECV(c, in + 8, 8, other, 0, streams[0],
	                   (options.user_data = (uint64_t)n, &options));
	n++;
	CHECK_OK(c, baton_record(c->comm, streams[0],
	                         (options.user_data = (uint64_t)n, &options),
	                         &requests[n]));
	n++;
	/* Armed, but behind the unarmed one in its FIFO. */
	requests[n] = RECV(c, in + 16, 8, other, 0, streams[1],
	                   (options.user_data = (uint64_t)n, &options));
	n++;
	/* A large send that nobody takes. */
	requests[n] = SEND(c, big, sizeof(big), other, 0, streams[2],
	                   (options.user_data = (uint64_t)n, &options));
	n++;
	/* A group whose one stream is blocked. */
	CHECK_OK(c, baton_group_begin(c->comm));
	requests[n] = RECV(c, in + 24, 8, other, 0, streams[1],
	                   (options.user_data = (uint64_t)n, &options));
	n++;
	requests[n] = RECV(c, in + 32, 8, other, 0, streams[3],
	                   (options.user_data = (uint64_t)n, &options));
	n++;
	CHECK_OK(c, baton_group_end(c->comm));
	CHECK_OK(c, baton_stream_wait(c->comm, streams[3], requests[0]));
	CHECK_OK(c, baton_record(c->comm, streams[3],
	                         (options.user_data = (uint64_t)n, &options),
	                         &requests[n]));
	n++;
	return n;
}

static void
abort_ends_every_pending_operation_once(struct conform *c)
{
	struct baton_completion done[32];
	baton_request requests[16] = { 0 };
	unsigned char *in = conform_message(c, 64);
	struct baton_queue *queue = NULL;
	baton_stream streams[4];
	int seen[32] = { 0 }, n, got = 0;
	int64_t begin;

	for (int i = 0; i < 4; i++)
		streams[i] = conform_stream(c);
	if ((c->rank ^ 1) >= c->size || (c->rank & 1))
		goto out;
	CHECK_OK(c, baton_queue_create(c->comm, 64, &queue));
	n = make_pending(c, streams, queue, in, requests);
	for (int i = 0; i < n; i++)
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[i], NULL));
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int i = 0; i < n; i++)
		CHECK_STATUS(c, BATON_ERR_ABORTED, baton_test(requests[i], NULL));
	begin = conform_begin();
	while (got < n && STILL(c, begin)) {
		size_t k = baton_queue_poll(queue, done, 32);

		for (size_t i = 0; i < k; i++, got++) {
			CHECK_STATUS(c, BATON_ERR_ABORTED, done[i].status);
			if (CHECK(c, done[i].user_data < (uint64_t)n))
				seen[done[i].user_data]++;
		}
	}
	CHECK_EQ(c, baton_queue_poll(queue, done, 32), 0);
	for (int i = 0; i < n; i++)
		CHECK_EQ(c, seen[i], 1);
	/* They were released; an asynchronous device may still be on its way. */
	for (int i = 0; i < 4; i++)
		while (baton_stream_query(c->comm, streams[i]) != BATON_OK &&
		       STILL(c, begin))
			;
	CHECK_STATUS(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm));
	baton_queue_destroy(queue);
out:
	conform_sync(c);
	/* The others have nothing pending, but cannot leave together either. */
	CHECK_OK(c, baton_comm_abort(c->comm));
}

static void
an_aborted_communicator_refuses_operations(struct conform *c)
{
	baton_request request = 99, done = 0;
	int value = 0;

	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &done));
	CHECK_OK(c, baton_wait(done, conform_patience(c), NULL));
	CHECK_OK(c, baton_comm_status(c->comm));
	CHECK_OK(c, baton_comm_abort(c->comm));
	CHECK_OK(c, baton_comm_abort(c->comm));
	CHECK_STATUS(c, BATON_ERR_ABORTED, baton_comm_status(c->comm));
	CHECK(c, baton_comm_error(c->comm)[0] != '\0');
	CHECK_REFUSED(c, BATON_ERR_ABORTED,
	              baton_send(&value, 1, BATON_INT32, 0, 0, c->comm,
	                         c->stream, NULL, &request),
	              "abort");
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_recv(&value, 1, BATON_INT32, 0, 0, c->comm, c->stream,
	                        NULL, &request));
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_record(c->comm, c->stream, NULL, &request));
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_stream_wait(c->comm, c->stream, done));
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_stream_launch(c->comm, c->stream, conform_nothing_fn,
	                                 NULL));
	CHECK(c, request == 99);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* What had ended before is still to be had. */
	CHECK_OK(c, baton_test(done, NULL));
	CHECK_OK(c, baton_release(&done));
}

/* Another communicator's work, queued behind the aborted operations, runs. */
static void
abort_releases_the_streams(struct conform *c)
{
	struct baton_comm *second = conform_comm(c, NULL);
	unsigned char *in = conform_message(c, 64);
	baton_request request, after = 0;
	_Atomic int count = 0;

	request = RECV(c, in, 8, conform_next(c), 0, c->stream, NULL);
	CHECK_OK(c, baton_stream_launch(second, c->stream, conform_count_fn,
	                                &count));
	CHECK_OK(c, baton_record(second, c->stream, NULL, &after));
	CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	CHECK_OK(c, baton_comm_abort(c->comm));
	FINISH(c, BATON_ERR_ABORTED, &request);
	FINISH(c, BATON_OK, &after);
	CHECK_EQ(c, atomic_load(&count), 1);
	CHECK_OK(c, baton_comm_status(second));
	CHECK_OK(c, baton_comm_destroy(second));
}

/* The second communicator of the same ranks carries on. */
static void
abort_touches_no_other_communicator(struct conform *c)
{
	struct baton_comm *first;
	unsigned char *in = conform_message(c, 64);
	baton_request stuck;

	stuck = RECV(c, in, 8, conform_next(c), 0, c->stream, &conform_detached);
	first = conform_exchange(c, NULL);
	CHECK_OK(c, baton_comm_abort(first));
	conform_sync(c);
	FINISH(c, BATON_ERR_ABORTED, &stuck);
	conform_sound(c);
	RESTORE(c, first);
}

/* The peers are not told: their own deadlines tell them. */
static void
peers_of_an_aborted_rank_end_by_their_deadlines(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	unsigned char *in = conform_message(c, 8);
	baton_request request;

	soon.timeout_ns = 5 * MS;
	if (c->rank == 0)
		CHECK_OK(c, baton_comm_abort(c->comm));
	conform_sync(c);
	if (c->rank != 0) {
		CHECK_OK(c, baton_comm_status(c->comm));
		request = RECV(c, in, 8, 0, 0, c->stream, &soon);
		FINISH(c, BATON_ERR_TIMEOUT, &request);
		CHECK_OK(c, baton_comm_abort(c->comm));
	}
}

static void
abort_ends_the_waits_of_other_threads(struct conform *c)
{
	unsigned char *in = conform_message(c, 8 * 4);
	struct conform_waiter waiters[4];
	baton_request requests[4];

	for (int i = 0; i < 4; i++) {
		requests[i] = RECV(c, in + 8 * i, 8, conform_next(c), 0,
		                   c->stream, &conform_detached);
		if (!WAITER_START(c, &waiters[i], requests[i]))
			return;
	}
	for (int i = 0; i < 4; i++)
		WAITER_BEGUN(c, &waiters[i]);
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int i = 0; i < 4; i++) {
		WAITER_JOIN(c, BATON_ERR_ABORTED, &waiters[i]);
		CHECK_OK(c, baton_release(&requests[i]));
	}
}

/* A rank that aborts leaves alone, while the others are still at work. */
static void
destroy_is_local_after_an_abort(struct conform *c)
{
	struct baton_comm *first = c->comm;

	if (c->rank == 0) {
		struct baton_comm *mine = c->comm;
		unsigned char data[8];
		baton_request request = RECV(c, data, 8, 0, 0, c->stream,
		                             &conform_detached);

		CHECK_OK(c, baton_comm_abort(mine));
		CHECK_STATUS(c, BATON_ERR_ABORTED, baton_test(request, NULL));
		CHECK_OK(c, baton_stream_synchronize(mine, c->stream));
		for (int i = 0; i < c->streams_count; i++)
			CHECK_OK(c, baton_stream_destroy(mine, c->streams[i]));
		c->streams_count = 0;
		CHECK_OK(c, baton_comm_destroy(mine));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
		c->comm = NULL;
	}
	conform_sync(c);
	if (c->rank != 0) {
		CHECK_OK(c, baton_comm_status(first));
		CHECK_OK(c, baton_comm_abort(first));
	}
}

static void
an_unobserved_abort_is_told_by_synchronize(struct conform *c)
{
	unsigned char *in = conform_message(c, 8);

	CHECK_OK(c, baton_recv(in, 8, BATON_UINT8, conform_next(c), 0,
	                       c->comm, c->stream, NULL, NULL));
	CHECK_OK(c, baton_comm_abort(c->comm));
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
}

/* Abort while other threads enqueue: all that was accepted ends. */
struct busy {
	struct conform *c;
	baton_stream stream;
	unsigned char data[16];
	_Atomic int accepted;
	int ended;
};

static void *
enqueue_until_refused(void *arg)
{
	struct busy *busy = arg;
	struct conform *c = busy->c;

	for (;;) {
		baton_request request = 0;
		enum baton_status status;

		status = baton_recv(busy->data, 16, BATON_UINT8, c->rank, 0,
		                    c->comm, busy->stream, &conform_detached,
		                    &request);
		if (status == BATON_ERR_ABORTED)
			return NULL;
		if (status == BATON_ERR_AGAIN) {
			atomic_fetch_add(&busy->accepted, 1);
			continue;
		}
		CHECK_STATUS(c, BATON_OK, status);
		atomic_fetch_add(&busy->accepted, 1);
		if (atomic_load(&busy->accepted) % 2) {
			(void)baton_release(&request);
			continue;
		}
		(void)baton_cancel(request);
		status = baton_wait(request, -1, NULL);
		CHECK(c, status == BATON_ERR_CANCELED ||
		                 status == BATON_ERR_ABORTED);
		CHECK_OK(c, baton_release(&request));
	}
}

static void
abort_may_come_while_others_enqueue(struct conform *c)
{
	struct busy busy[3];
	pthread_t threads[3];
	int64_t begin = conform_begin();

	memset(busy, 0, sizeof(busy));
	for (int i = 0; i < 3; i++) {
		busy[i].c = c;
		busy[i].stream = conform_stream(c);
		if (!CHECK_EQ(c, pthread_create(&threads[i], NULL,
		                                enqueue_until_refused, &busy[i]),
		              0))
			return;
	}
	for (int i = 0; i < 3; i++)
		while (atomic_load(&busy[i].accepted) < 50 && STILL(c, begin))
			;
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

const struct conform_case conform_abort[] = {
	{ CASE(abort_ends_every_pending_operation_once), .makes = 5, .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS },
	{ CASE(an_aborted_communicator_refuses_operations) },
	{ CASE(abort_releases_the_streams), .ranks_min = 2 },
	{ CASE(abort_touches_no_other_communicator), .comms = 2, .ranks_min = 2 },
	{ CASE(peers_of_an_aborted_rank_end_by_their_deadlines),
	  .ranks_min = 2, .flags = CONFORM_HOST_ISSUED },
	{ CASE(abort_ends_the_waits_of_other_threads), .ranks_min = 2 },
	{ CASE(destroy_is_local_after_an_abort), .ranks_min = 2,
	  .needs = BATON_CAP_SELF },
	{ CASE(an_unobserved_abort_is_told_by_synchronize), .ranks_min = 2 },
	{ CASE(abort_may_come_while_others_enqueue), .requests_max = 64,
	  .needs = BATON_CAP_SELF | BATON_CAP_CANCEL },
	CASES_END,
};
