/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and waits: guarantees 6, 7 and 8.  A signal that has ended at its source
 * may still be on its way, so what must have come is waited for, and what must not
 * have come is what has not been sent. */
#include <string.h>
#include <time.h>

#include "harness_onesided.h"

#define ROUNDS (CONFORM_SANITIZED ? 100 : 1000)

/* A stream of a device takes a bounded number of operations. */
static void
signal_when_there_is_room(struct conform *c, int peer, int index, int context)
{
	int64_t begin = conform_begin();
	enum baton_status status;

	do
		status = baton_signal(peer, index, context, 0, c->comm,
		                      c->stream, NULL, NULL);
	while (status == BATON_ERR_AGAIN && STILL(c, begin));
	CHECK_STATUS(c, BATON_OK, status);
}

/* ---- counting ----------------------------------------------------------- */

static void
a_wait_of_three_ends_after_the_third_signal(struct conform *c)
{
	baton_request request = 0;

	if (c->rank == 1)
		request = WAIT(c, 0, 3, 0, 0, c->stream, NULL);
	if (c->rank == 0) {
		SIGNAL(c, 1, 0, 0);
		SIGNAL(c, 1, 0, 0);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	if (c->rank == 1) {
		COUNTS(c, 0, 0, 0, 2);
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	}
	conform_sync(c);
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	FINISH(c, BATON_OK, &request);
	if (c->rank == 1)
		COUNTS(c, 0, 0, 0, 3);
}

static void
early_signals_are_kept(struct conform *c)
{
	baton_request request;

	if (c->rank == 0)
		for (int i = 0; i < 5; i++)
			SIGNAL(c, 1, 2, 1);
	if (c->rank != 1)
		return;
	COUNTS(c, 0, 2, 1, 5);
	request = WAIT(c, 0, 2, 2, 1, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
	request = WAIT(c, 0, 3, 2, 1, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
	/* Waiting takes nothing from the count. */
	COUNTS(c, 0, 2, 1, 5);
}

/* It never calls until they have ended; more of them than there are lanes. */
static void
signals_end_at_a_rank_that_does_nothing(struct conform *c)
{
	enum { N = 100 };
	baton_request request = BATON_REQUEST_NULL;

	for (int i = 0; i < N && c->rank == 0; i++) {
		request = SIGNAL_ON(c, 1, 0, 0, c->stream, NULL);
		if (i % 10 == 9 || i == N - 1)
			FINISH(c, BATON_OK, &request);
		else
			CHECK_OK(c, baton_release(&request));
	}
	conform_sync(c);
	if (c->rank == 1)
		COUNTS(c, 0, 0, 0, N);
}

static void
a_signal_to_oneself_counts(struct conform *c)
{
	baton_request request = WAIT(c, c->rank, 1, 0, 0, c->stream,
	                             &conform_detached);

	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	SIGNAL(c, c->rank, 0, 0);
	FINISH(c, BATON_OK, &request);
	COUNTS(c, c->rank, 0, 0, 1);
}

static void
a_peer_named_twice_adds_up(struct conform *c)
{
	int from = conform_previous(c);
	int to = conform_next(c);
	struct baton_wait_signal_desc descs[3] = { { 1, from, 0, 0 },
		                                   { 1, from, 1, 0 },
		                                   { 2, from, 0, 0 } };
	baton_request request = 0;

	SIGNAL(c, to, 0, 0);
	SIGNAL(c, to, 1, 0);
	SIGNAL(c, to, 0, 0);
	CHECK_OK(c, baton_wait_signal(3, descs, c->comm, c->stream,
	                              &conform_detached, &request));
	COUNTS(c, from, 0, 0, 2);
	COUNTS(c, from, 1, 0, 1);
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	conform_sync(c);
	SIGNAL(c, to, 0, 0);
	FINISH(c, BATON_OK, &request);
}

/* Who leaves round k has seen everybody enter it, and nobody can be further than
 * the next one. */
static void
a_barrier_by_signals_holds(struct conform *c)
{
	struct baton_wait_signal_desc descs[64];
	baton_request request = 0;

	for (int i = 0; i < c->size; i++)
		descs[i] = (struct baton_wait_signal_desc){ 1, i, 0, 0 };
	for (int round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < c->size; i++)
			SIGNAL(c, i, 0, 0);
		CHECK_OK(c, baton_wait_signal((size_t)c->size, descs, c->comm,
		                              c->stream, NULL, &request));
		if (!FINISH(c, BATON_OK, &request))
			break;
		for (int i = 0; i < c->size; i++) {
			uint64_t count = COUNT(c, i, 0, 0);

			if (!CHECK(c, count >= (uint64_t)round) ||
			    !CHECK(c, count <= (uint64_t)round + 1))
				return;
		}
	}
}

static void
indices_and_contexts_are_independent(struct conform *c)
{
	int to = conform_next(c);
	int from = conform_previous(c);
	baton_request other;

	/* (1, 3) is not (3, 1). */
	other = WAIT(c, from, 3, 3, 1, c->stream, &conform_detached);
	for (int index = 0; index < c->info.signals_max; index++)
		for (int context = 0; context < c->info.contexts_max; context++)
			for (int i = 0; i < 1 + (index * 5 + context) % 3; i++)
				if (index != 3 || context != 1)
					SIGNAL(c, to, index, context);
	for (int index = 0; index < c->info.signals_max; index++)
		for (int context = 0; context < c->info.contexts_max; context++)
			COUNTS(c, from, index, context,
			       index == 3 && context == 1 ?
			               0 :
			               1 + (uint64_t)(index * 5 + context) % 3);
	CHECK_STATUS(c, BATON_PENDING, baton_test(other, NULL));
	conform_sync(c);
	for (int i = 0; i < 3; i++)
		SIGNAL(c, to, 3, 1);
	FINISH(c, BATON_OK, &other);
	/* And the other sources' counters have nothing. */
	for (int i = 0; i < c->size; i++)
		if (i != from)
			COUNTS(c, i, 0, 0, 0);
}

static void
communicators_have_counters_of_their_own(struct conform *c)
{
	struct baton_comm *first = c->comm;
	struct baton_comm *second = conform_comm(c, NULL);
	int to = conform_next(c);
	int from = conform_previous(c);

	SIGNAL(c, to, 0, 0);
	c->comm = second;
	SIGNAL(c, to, 1, 0);
	COUNTS(c, from, 1, 0, 1);
	COUNTS(c, from, 0, 0, 0);
	c->comm = first;
	COUNTS(c, from, 0, 0, 1);
	COUNTS(c, from, 1, 0, 0);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sync(c);
	CHECK_OK(c, baton_comm_destroy(second));
}

static void
the_count_is_all_that_was_sent(struct conform *c)
{
	uint64_t state = 9;

	/* All ranks draw the same table. */
	for (int from = 0; from < c->size; from++)
		for (int to = 0; to < c->size; to++) {
			int n = (int)(conform_random(&state) % 200);

			for (int i = 0; i < n && from == c->rank; i++)
				signal_when_there_is_room(c, to, i % 3, i % 2);
		}
	state = 9;
	for (int from = 0; from < c->size; from++)
		for (int to = 0; to < c->size; to++) {
			int n = (int)(conform_random(&state) % 200);

			for (int k = 0; k < 6 && to == c->rank; k++) {
				int want = 0;

				for (int i = 0; i < n; i++)
					want += i % 3 == k % 3 && i % 2 == k % 2;
				COUNTS(c, from, k % 3, k % 2, (uint64_t)want);
			}
		}
}

/* ---- units -------------------------------------------------------------- */

/* The first wait's stream is held up, and still the first unit is its own. */
static void
units_are_given_at_the_call(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	baton_request first = 0, second = 0;

	if (c->rank == 1) {
		conform_gate_launch(c, 0, gated);
		first = WAIT(c, 0, 1, 0, 0, gated, NULL);
		second = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
	}
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	if (c->rank == 1) {
		COUNTS(c, 0, 0, 0, 1);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
	}
	conform_sync(c);
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	FINISH(c, BATON_OK, &second);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING, baton_test(first, NULL));
		conform_gate_open(c, 0);
	}
	FINISH(c, BATON_OK, &first);
}

/* One signal has come, two more waits stand behind one for three. */
static void
a_canceled_wait_gives_its_units_back(struct conform *c)
{
	baton_request first = 0, second = 0, third = 0;

	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	if (c->rank == 1) {
		first = WAIT(c, 0, 3, 0, 0, c->stream, &conform_detached);
		second = WAIT(c, 0, 1, 0, 0, c->stream, &conform_detached);
		third = WAIT(c, 0, 1, 0, 0, c->stream, &conform_detached);
		COUNTS(c, 0, 0, 0, 1);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		CHECK_OK(c, baton_cancel(first));
		FINISH(c, BATON_ERR_CANCELED, &first);
		FINISH(c, BATON_OK, &second);
		CHECK_STATUS(c, BATON_PENDING, baton_test(third, NULL));
	}
	conform_sync(c);
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	FINISH(c, BATON_OK, &third);
}

static void
a_wait_canceled_unarmed_gives_its_units_back(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	baton_request first = 0, second = 0;

	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	if (c->rank == 1) {
		conform_gate_launch(c, 0, gated);
		first = WAIT(c, 0, 2, 0, 0, gated, NULL);
		second = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
		COUNTS(c, 0, 0, 0, 1);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		CHECK_OK(c, baton_cancel(first));
		FINISH(c, BATON_ERR_CANCELED, &first);
		FINISH(c, BATON_OK, &second);
		conform_gate_open(c, 0);
	}
}

static void
a_wait_that_times_out_gives_its_units_back(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	baton_request first = 0, second = 0;
	char why[200] = "";

	soon.timeout_ns = 5 * MS;
	soon.flags = BATON_OP_DETACHED;
	if (c->rank == 1) {
		first = WAIT(c, 0, 2, 0, 0, c->stream, &soon);
		second = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
		CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		             baton_wait(first, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(first, why, sizeof(why)));
		CHECK(c, strstr(why, "wait_signal from peer 0: ") != NULL);
		FINISH(c, BATON_ERR_TIMEOUT, &first);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
	}
	conform_sync(c);
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	FINISH(c, BATON_OK, &second);
}

static void
a_wait_of_many_units_waits_for_no_other(struct conform *c)
{
	enum { N = 100 };
	baton_stream streams[4];
	baton_request requests[N] = { 0 };

	for (int i = 0; i < 4; i++)
		streams[i] = conform_stream(c);
	if (c->rank == 1)
		for (int i = 0; i < N; i++)
			requests[i] = WAIT(c, 0, 1 + i % 3, 0, 0, streams[i % 4],
			                   i & 1 ? &conform_detached : NULL);
	conform_sync(c);
	if (c->rank == 0)
		for (int i = 0; i < N; i++)
			for (int k = 0; k < 1 + i % 3; k++)
				SIGNAL(c, 1, 0, 0);
	/* From the end: none needs another to be looked at. */
	for (int i = N - 1; i >= 0; i--)
		FINISH(c, BATON_OK, &requests[i]);
}

/* Rank 1's waits, of random numbers of units, are canceled or time out or do not:
 * every unit that was sent is then met by exactly one wait, or left. */
static void
units_are_never_lost_or_doubled(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	uint64_t state = 77;
	int sent = 0, met = 0;
	baton_request last;

	soon.flags = BATON_OP_DETACHED;
	for (int round = 0; round < ROUNDS / 2; round++) {
		int more = (int)(conform_random(&state) % 4);
		int units = 1 + (int)(conform_random(&state) % 3);
		uint32_t time = conform_random(&state) % 50000;
		baton_request early, rest = 0;
		enum baton_status status;
		bool sure;

		sent += more;
		for (int i = 0; i < more && c->rank == 0; i++)
			signal_when_there_is_room(c, 1, 0, 0);
		if (c->rank != 1)
			continue;
		soon.timeout_ns = round % 2 ? 1 + (int64_t)time : 0;
		early = WAIT(c, 0, units, 0, 0, c->stream, &soon);
		if (more > 0)
			rest = WAIT(c, 0, more, 0, 0, c->stream,
			            &conform_detached);
		if (round % 2 == 0)
			CHECK_OK(c, baton_cancel(early));
		status = baton_finish(&early, conform_patience(c), NULL);
		if (status == BATON_OK)
			met += units;
		else
			CHECK_STATUS(c, round % 2 ? BATON_ERR_TIMEOUT :
			                            BATON_ERR_CANCELED, status);
		if (!rest)
			continue;
		/* Rank 0 may be ahead, and its signals be taken: then there is
		 * nothing that the second one could count on. */
		sure = met + more <= sent;
		if (!sure)
			CHECK_OK(c, baton_cancel(rest));
		status = baton_finish(&rest, conform_patience(c), NULL);
		if (status == BATON_OK)
			met += more;
		else if (!CHECK_STATUS(c, sure ? BATON_OK : BATON_ERR_CANCELED,
		                       status))
			break;
	}
	conform_sync(c);
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	if (c->rank != 1)
		return;
	COUNTS(c, 0, 0, 0, (uint64_t)sent + 1);
	last = WAIT(c, 0, sent + 1 - met, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &last);
	last = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
	CHECK_STATUS(c, BATON_PENDING, baton_test(last, NULL));
	CHECK_OK(c, baton_cancel(last));
	FINISH(c, BATON_ERR_CANCELED, &last);
}

static void
a_wait_for_several_peers_needs_all(struct conform *c)
{
	struct baton_wait_signal_desc descs[64];
	baton_request request = 0;
	int n = 0;

	for (int i = 1; i < c->size; i++)
		descs[n++] = (struct baton_wait_signal_desc){ i, i, i % 3, 1 };
	if (c->rank == 0)
		CHECK_OK(c, baton_wait_signal((size_t)n, descs, c->comm,
		                              c->stream, NULL, &request));
	for (int last = 0; last < 2; last++) {
		for (int i = 0; i < c->rank && c->rank > 0 &&
		                (c->rank == c->size - 1) == (last == 1); i++)
			SIGNAL(c, 0, c->rank % 3, 1);
		if (last == 0 && c->rank == 0) {
			for (int i = 1; i < c->size - 1; i++)
				COUNTS(c, i, i % 3, 1, (uint64_t)i);
			CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
		}
		conform_sync(c);
	}
	FINISH(c, BATON_OK, &request);
}

/* ---- streams, groups, queues -------------------------------------------- */

static void
work_behind_a_wait_starts_after_it(struct conform *c)
{
	baton_request wait = 0, after = 0;
	_Atomic int count = 0;

	if (c->rank == 1) {
		wait = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
		CHECK_OK(c, baton_stream_launch(c->comm, c->stream,
		                                conform_count_fn, &count));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		CHECK_STATUS(c, BATON_PENDING, baton_test(wait, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
		CHECK_EQ(c, atomic_load(&count), 0);
	}
	conform_sync(c);
	if (c->rank == 0)
		SIGNAL(c, 1, 0, 0);
	/* Nobody waits for the wait itself. */
	FINISH(c, BATON_OK, &after);
	CHECK_EQ(c, atomic_load(&count), c->rank == 1);
	FINISH(c, BATON_OK, &wait);
}

static void
a_signal_goes_when_its_stream_is_there(struct conform *c)
{
	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		SIGNAL(c, 1, 0, 0);
	}
	conform_sync(c);
	if (c->rank == 1)
		COUNTS(c, 0, 0, 0, 0);
	conform_sync(c);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	if (c->rank == 1)
		COUNTS(c, 0, 0, 0, 1);
}

static void
a_detached_wait_lets_its_stream_go_and_is_joined(struct conform *c)
{
	baton_stream joined = conform_stream(c);
	baton_request wait = 0, behind = 0, after = 0;

	if (c->rank == 1) {
		wait = WAIT(c, 0, 2, 0, 0, c->stream, &conform_detached);
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &behind));
		FINISH(c, BATON_OK, &behind);
		CHECK_OK(c, baton_stream_wait(c->comm, joined, wait));
		CHECK_OK(c, baton_record(c->comm, joined, NULL, &after));
		CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	}
	conform_sync(c);
	if (c->rank == 0) {
		SIGNAL(c, 1, 0, 0);
		SIGNAL(c, 1, 0, 0);
	}
	FINISH(c, BATON_OK, &after);
	if (c->rank == 1)
		CHECK_OK(c, baton_test(wait, NULL));
	FINISH(c, BATON_OK, &wait);
}

static void
a_group_of_signals_and_waits_completes(struct conform *c)
{
	int to = conform_next(c);
	int from = conform_previous(c);
	baton_stream streams[2] = { c->stream, conform_stream(c) };

	for (int round = 0; round < 50; round++) {
		baton_request requests[2] = { 0 };

		CHECK_OK(c, baton_group_begin(c->comm));
		/* The wait first: it holds up nothing in the group. */
		requests[0] = WAIT(c, from, 1, 0, 0, streams[round % 2], NULL);
		requests[1] = SIGNAL_ON(c, to, 0, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		FINISH_ALL(c, requests, 2);
	}
	COUNTS(c, from, 0, 0, 50);
}

/* A group that is void has given no units and sent no signal. */
static void
a_void_group_leaves_counters_alone(struct conform *c)
{
	int to = conform_next(c);
	int from = conform_previous(c);
	baton_request lost, next;

	CHECK_OK(c, baton_group_begin(c->comm));
	lost = WAIT(c, from, 5, 0, 0, c->stream, NULL);
	SIGNAL(c, to, 0, 0);
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_signal(c->size, 0, 0, 0, c->comm, c->stream, NULL,
	                          NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(lost, NULL));
	next = WAIT(c, from, 1, 0, 0, c->stream, &conform_detached);
	conform_sync(c);
	COUNTS(c, from, 0, 0, 0);
	conform_sync(c);
	SIGNAL(c, to, 0, 0);
	FINISH(c, BATON_OK, &next);
}

static void
waits_and_signals_are_delivered_to_queues(struct conform *c)
{
	enum { N = 20 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion done[2 * N];
	struct baton_queue *queue = NULL;
	int seen[2 * N] = { 0 }, got = 0;
	int to = conform_next(c);
	int from = conform_previous(c);
	int64_t begin = conform_begin();

	CHECK_OK(c, baton_queue_create(c->comm, (size_t)2 * N, &queue));
	options.queue = queue;
	options.flags = BATON_OP_DETACHED;
	for (int i = 0; i < 2 * N; i++) {
		options.user_data = (uint64_t)i;
		if (i < N)
			(void)WAIT(c, from, 1, 3, 2, c->stream, &options);
		else
			(void)SIGNAL_ON(c, to, 3, 2, c->stream, &options);
	}
	while (got < 2 * N && STILL(c, begin)) {
		size_t n = baton_queue_poll(queue, done, (size_t)2 * N);

		for (size_t i = 0; i < n; i++, got++) {
			CHECK_STATUS(c, BATON_OK, done[i].status);
			if (!CHECK(c, done[i].user_data < (uint64_t)2 * N))
				continue;
			seen[done[i].user_data]++;
			CHECK_EQ(c, done[i].op,
			         done[i].user_data < N ?
			                 BATON_OPERATION_WAIT_SIGNAL :
			                 BATON_OPERATION_SIGNAL);
		}
	}
	for (int i = 0; i < 2 * N; i++)
		CHECK_EQ(c, seen[i], 1);
	baton_queue_destroy(queue);
}

static void
a_completion_describes_its_signal_or_wait(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_wait_signal_desc descs[2] = { { 1, c->rank, 0, 0 },
		                                   { 1, c->rank, 1, 0 } };
	struct baton_completion done = { 0 };
	baton_request request = 0;

	options.user_data = 4711;
	request = SIGNAL_ON(c, c->rank, 0, 0, c->stream, &options);
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.op, BATON_OPERATION_SIGNAL);
	CHECK_EQ(c, done.peer, c->rank);
	CHECK_EQ(c, done.tag, -1);
	CHECK_EQ(c, done.bytes, 0);
	CHECK_EQ(c, done.user_data, 4711);
	CHECK_EQ(c, done.flags, 0);
	request = WAIT(c, c->rank, 1, 0, 0, c->stream, NULL);
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.op, BATON_OPERATION_WAIT_SIGNAL);
	CHECK_EQ(c, done.peer, c->rank);
	CHECK_EQ(c, done.tag, -1);
	CHECK_EQ(c, done.bytes, 0);
	SIGNAL(c, c->rank, 0, 0);
	SIGNAL(c, c->rank, 1, 0);
	if (c->size < 2)
		return;
	descs[1] = (struct baton_wait_signal_desc){
		1, conform_previous(c), 2, 0
	};
	SIGNAL(c, conform_next(c), 2, 0);
	CHECK_OK(c, baton_wait_signal(2, descs, c->comm, c->stream, NULL,
	                              &request));
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.peer, -1);
}

static void
a_canceled_unarmed_signal_is_never_sent(struct conform *c)
{
	baton_request lost = 0;

	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		/* Detached, no stream has it by itself. */
		lost = SIGNAL_ON(c, 1, 0, 0, c->stream, &conform_detached);
		SIGNAL(c, 1, 1, 0);
		CHECK_OK(c, baton_cancel(lost));
		FINISH(c, BATON_ERR_CANCELED, &lost);
		conform_gate_open(c, 0);
	}
	if (c->rank == 1) {
		COUNTS(c, 0, 1, 0, 1);
		COUNTS(c, 0, 0, 0, 0);
	}
}

/* ---- bounds ------------------------------------------------------------- */

static void
bad_signals_are_refused(struct conform *c)
{
	const int signals = c->info.signals_max, contexts = c->info.contexts_max;
	const struct {
		int peer, index, context;
		unsigned flags;
		const char *words;
	} bad[] = {
		{ -1, 0, 0, 0, "peer -1" },
		{ c->size, 0, 0, 0, "peer" },
		{ 0, -1, 0, 0, "signal_index -1" },
		{ 0, signals, 0, 0, "signal_index" },
		{ 0, 0, -1, 0, "context -1" },
		{ 0, 0, contexts, 0, "context" },
		{ 0, 0, 0, 1, "flags" },
		{ 0, 0, 0, 1u << 31, "flags" },
	};
	struct baton_op_options odd = BATON_OP_OPTIONS_INIT;
	baton_request request = 99;
	uint64_t count = 98;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_signal(bad[i].peer, bad[i].index,
		                           bad[i].context, bad[i].flags, c->comm,
		                           c->stream, NULL, &request),
		              bad[i].words);
		if (bad[i].flags)
			continue;
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_signal_count(c->comm, bad[i].peer,
		                                 bad[i].index, bad[i].context,
		                                 &count),
		              bad[i].words);
	}
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_signal(0, 0, 0, 0, NULL, c->stream, NULL, &request));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_signal_count(NULL, 0, 0, 0, &count));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_signal_count(c->comm, 0, 0, 0, NULL));
	odd.flags = 1u << 30;
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_signal(0, 0, 0, 0, c->comm, c->stream, &odd,
	                          &request));
	CHECK(c, request == 99);
	CHECK(c, count == 98);
	conform_sync(c);
	for (int i = 0; i < c->size; i++)
		COUNTS(c, i, 0, 0, 0);
}

static void
bad_waits_are_refused(struct conform *c)
{
	const struct baton_wait_signal_desc good = { 1, 0, 0, 0 };
	const struct {
		struct baton_wait_signal_desc desc;
		const char *words;
	} bad[] = {
		{ { 0, 0, 0, 0 }, "op_count 0" },
		{ { -1, 0, 0, 0 }, "op_count -1" },
		{ { 1, -1, 0, 0 }, "peer -1" },
		{ { 1, c->size, 0, 0 }, "peer" },
		{ { 1, 0, -1, 0 }, "signal_index -1" },
		{ { 1, 0, c->info.signals_max, 0 }, "signal_index" },
		{ { 1, 0, 0, -1 }, "context -1" },
		{ { 1, 0, 0, c->info.contexts_max }, "context" },
	};
	baton_request request = 99;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct baton_wait_signal_desc both[2] = { good, bad[i].desc };

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_wait_signal(1, &bad[i].desc, c->comm,
		                                c->stream, NULL, &request),
		              bad[i].words);
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_wait_signal(2, both, c->comm, c->stream,
		                                NULL, &request),
		              bad[i].words);
		CHECK(c, strstr(baton_last_error(), "descs[1]."));
	}
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal(0, &good, c->comm, c->stream, NULL,
	                                &request),
	              "desc_count");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal(BATON_WAIT_DESCS_MAX + 1, &good, c->comm,
	                                c->stream, NULL, &request),
	              "desc_count");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal(1, NULL, c->comm, c->stream, NULL,
	                                &request),
	              "descs");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_wait_signal(1, &good, NULL, c->stream, NULL,
	                               &request));
	CHECK(c, request == 99);
	/* The refused ones were given nothing: the first unit is still there. */
	SIGNAL(c, c->rank, 0, 0);
	request = WAIT(c, c->rank, 1, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
}

/* As many as there are requests, and a few more for a wait for all peers. */
static void
the_descriptors_of_waits_are_bounded(struct conform *c)
{
	struct baton_wait_signal_desc descs[16];
	struct baton_wait_signal_desc many[64];
	baton_request all = 0, more = 0;

	/* More than there can be is no matter of waiting. */
	for (int i = 0; i < 64; i++)
		many[i] = (struct baton_wait_signal_desc){ 1, c->rank, i % 16,
			                                   i / 16 };
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal(64, many, c->comm, c->stream, NULL,
	                                &more),
	              "desc_count");
	for (int i = 0; i < 16; i++)
		descs[i] = (struct baton_wait_signal_desc){ 1, c->rank, i, 0 };
	CHECK_OK(c, baton_wait_signal(16, descs, c->comm, c->stream,
	                              &conform_detached, &all));
	CHECK_REFUSED(c, BATON_ERR_AGAIN,
	              baton_wait_signal(16, descs, c->comm, c->stream, NULL,
	                                &more),
	              "requests_max");
	CHECK(c, more == 0);
	CHECK_OK(c, baton_cancel(all));
	FINISH(c, BATON_ERR_CANCELED, &all);
	/* The refused one has left nothing, neither nodes nor units. */
	CHECK_OK(c, baton_wait_signal(16, descs, c->comm, c->stream,
	                              &conform_detached, &more));
	for (int i = 0; i < 16; i++) {
		SIGNAL(c, c->rank, i, 0);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	FINISH(c, BATON_OK, &more);
}

static void
the_query_tells_of_signals(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_comm *first;

	CHECK_EQ(c, c->info.signals_max, BATON_SIGNALS_MAX_DEFAULT);
	CHECK_EQ(c, c->info.contexts_max, BATON_CONTEXTS_MAX_DEFAULT);
	options.signals_max = 3;
	options.contexts_max = 5;
	first = conform_exchange(c, &options);
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.signals_max, 3);
	CHECK_EQ(c, info.contexts_max, 5);
	CHECK(c, info.signal_paths != 0);
	CHECK_EQ(c, info.signal_paths & ~(BATON_WINDOW_PATH_DIRECT |
	                                  BATON_WINDOW_PATH_MESSAGE), 0);
	CHECK_EQ(c, info.window_paths, 0);
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_signal(0, 3, 0, 0, c->comm, c->stream, NULL, NULL),
	              "signal_index 3");
	SIGNAL(c, c->rank, 2, 4);
	COUNTS(c, c->rank, 2, 4, 1);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	RESTORE(c, first);
}

static void
the_limits_of_counters_hold(struct conform *c)
{
	static const int odd[][2] = { { -1, 0 },
		                      { BATON_SIGNALS_LIMIT + 1, 0 },
		                      { 0, -1 },
		                      { 0, BATON_CONTEXTS_LIMIT + 1 } };
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL, *first;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		options.signals_max = odd[i][0];
		options.contexts_max = odd[i][1];
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             c->backend->create(c, &options, &comm));
		CHECK(c, comm == NULL);
	}
	options.signals_max = BATON_SIGNALS_LIMIT;
	options.contexts_max = BATON_CONTEXTS_LIMIT;
	first = conform_exchange(c, &options);
	SIGNAL(c, conform_next(c), BATON_SIGNALS_LIMIT - 1,
	       BATON_CONTEXTS_LIMIT - 1);
	COUNTS(c, conform_previous(c), BATON_SIGNALS_LIMIT - 1,
	       BATON_CONTEXTS_LIMIT - 1, 1);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sync(c);
	RESTORE(c, first);
}

/* Rank 0 wants to go and the others do not come; or they make another collective call.
 * More signals than a channel has receives posted. */
static void
a_refused_destroy_goes_on_receiving(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *first;
	struct baton_window *window = NULL;
	enum baton_status status = BATON_ERR_TIMEOUT;
	int64_t begin = conform_begin();

	/* Only rank 0 is to give up; the others wait as long as its next call takes to come.  Where all
	 * have the same options, that has to be within the second. */
	options.timeout_ns = c->rank == 0 ? 200 * MS : 20000 * MS;
	if (c->backend->traits & CONFORM_BY_ID)
		options.timeout_ns = 1000 * MS;
	first = conform_exchange(c, &options);
	if (c->rank == 0)
		CHECK_STATUS(c, BATON_ERR_TIMEOUT, baton_comm_destroy(c->comm));
	conform_sync(c);
	for (int i = 0; i < 5 && c->rank == 1; i++)
		SIGNAL(c, 0, 0, 0);
	if (c->rank == 0)
		COUNTS(c, 1, 0, 0, 5);
	conform_sync(c);
	if (c->rank == 0) {
		while (status == BATON_ERR_TIMEOUT && STILL(c, begin))
			status = baton_comm_destroy(c->comm);
		CHECK_STATUS(c, BATON_ERR_INVALID, status);
	} else {
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_window_register(NULL, 0, c->comm, &window));
	}
	conform_sync(c);
	for (int i = 0; i < 5 && c->rank == 1; i++)
		SIGNAL(c, 0, 0, 0);
	if (c->rank == 0)
		COUNTS(c, 1, 0, 0, 10);
	conform_sync(c);
	do
		status = baton_comm_destroy(c->comm);
	while (status == BATON_ERR_TIMEOUT && STILL(c, begin));
	CHECK_STATUS(c, BATON_OK, status);
	c->comm = first;
}

static void
ranks_that_disagree_on_counters_are_all_told(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	options.signals_max = 8 + c->rank;
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             c->backend->create(c, &options, &comm));
	CHECK(c, baton_last_error()[0] != '\0');
	options.signals_max = 8;
	options.contexts_max = 2 + (c->rank == c->size - 1);
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             c->backend->create(c, &options, &comm));
	CHECK(c, comm == NULL);
}

/* ---- abort -------------------------------------------------------------- */

static void
abort_ends_pending_waits(struct conform *c)
{
	struct baton_wait_signal_desc descs[64];
	baton_stream gated = conform_stream(c);
	baton_request requests[5] = { 0 };

	for (int i = 0; i < c->size; i++)
		descs[i] = (struct baton_wait_signal_desc){ 1, i, 0, 0 };
	conform_gate_launch(c, 0, gated);
	requests[0] = WAIT(c, c->rank, 1, 0, 0, c->stream, &conform_detached);
	requests[1] = WAIT(c, conform_next(c), 2, 0, 1, c->stream, NULL);
	requests[2] = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
	requests[3] = WAIT(c, 0, 1, 0, 0, gated, NULL);
	CHECK_OK(c, baton_wait_signal((size_t)c->size, descs, c->comm,
	                              conform_stream(c), NULL, &requests[4]));
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int i = 0; i < 5; i++)
		FINISH(c, BATON_ERR_ABORTED, &requests[i]);
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_signal(0, 0, 0, 0, c->comm, c->stream, NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_wait_signal(1, descs, c->comm, c->stream, NULL,
	                               NULL));
	conform_gate_open(c, 0);
}

/* A thread that sleeps for a signal is woken by a cancel, and by an abort. */
static void
a_sleeping_waiter_is_woken(struct conform *c)
{
	for (int how = 0; how < 3; how++) {
		struct timespec nap = { 0, 20 * 1000 * 1000 };
		struct conform_waiter waiter;
		baton_request request = WAIT(c, conform_next(c), 1, 0, how,
		                             c->stream, &conform_detached);

		if (!WAITER_START(c, &waiter, request))
			return;
		WAITER_BEGUN(c, &waiter);
		/* Not to synchronise: so that it is likely asleep. */
		nanosleep(&nap, NULL);
		if (how == 0)
			SIGNAL(c, conform_previous(c), 0, 0);
		else if (how == 1)
			CHECK_OK(c, baton_cancel(request));
		else
			CHECK_OK(c, baton_comm_abort(c->comm));
		WAITER_JOIN(c,
		            how == 0 ? BATON_OK :
		            how == 1 ? BATON_ERR_CANCELED :
		                       BATON_ERR_ABORTED,
		            &waiter);
		CHECK_OK(c, baton_release(&request));
		conform_sync(c);
	}
}

/* ---- what waiting costs ------------------------------------------------- */

static int64_t
clock_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000 * MS + now.tv_nsec;
}

/* Rank 1 waits, on the host and then on the stream alone, for what rank 0 signals
 * a good while later. */
static void
a_waiting_rank_costs_no_processor_time(struct conform *c)
{
	struct timespec while_waiting = { 0, 300 * MS };
	bool direct = c->info.signal_paths == BATON_WINDOW_PATH_DIRECT;

	for (int i = 0; i < 2 && direct; i++) {
		int64_t cpu, wall;
		baton_request request;

		conform_sync(c);
		if (c->rank == 0) {
			nanosleep(&while_waiting, NULL);
			SIGNAL(c, 1, 0, 0);
			continue;
		}
		if (c->rank != 1)
			continue;
		cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
		wall = clock_of(CLOCK_MONOTONIC);
		request = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
		if (i == 1) {
			conform_gate_launch(c, 0, c->stream);
			conform_gate_reached(c, 0);
			conform_gate_open(c, 0);
		}
		FINISH(c, BATON_OK, &request);
		cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
		wall = clock_of(CLOCK_MONOTONIC) - wall;
		/* Of the whole process: on the local transport the ranks that
		 * do not wait are part of it, and sleep too. */
		if (!CHECK(c, cpu * 20 <= wall || cpu < 5 * MS))
			CHECK_EQ(c, cpu, wall / 20);
	}
}

const struct conform_case conform_signal[] = {
	{ CASE(a_wait_of_three_ends_after_the_third_signal), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(early_signals_are_kept), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(signals_end_at_a_rank_that_does_nothing), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_signal_to_oneself_counts), .needs = BATON_CAP_SIGNALS },
	{ CASE(a_peer_named_twice_adds_up), .needs = BATON_CAP_SIGNALS },
	{ CASE(a_barrier_by_signals_holds), .needs = BATON_CAP_SIGNALS },
	{ CASE(indices_and_contexts_are_independent),
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(communicators_have_counters_of_their_own),
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(the_count_is_all_that_was_sent), .needs = BATON_CAP_SIGNALS },
	{ CASE(units_are_given_at_the_call), .ranks_min = 2, .streams = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_canceled_wait_gives_its_units_back), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_wait_canceled_unarmed_gives_its_units_back), .ranks_min = 2,
	  .streams = 2,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_wait_that_times_out_gives_its_units_back), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_wait_of_many_units_waits_for_no_other), .makes = 5, .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(units_are_never_lost_or_doubled), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_wait_for_several_peers_needs_all), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(work_behind_a_wait_starts_after_it), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_signal_goes_when_its_stream_is_there), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_detached_wait_lets_its_stream_go_and_is_joined),
	  .ranks_min = 2, .needs = BATON_CAP_SIGNALS },
	{ CASE(a_group_of_signals_and_waits_completes),
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_void_group_leaves_counters_alone), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(waits_and_signals_are_delivered_to_queues),
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_completion_describes_its_signal_or_wait),
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_canceled_unarmed_signal_is_never_sent), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(bad_signals_are_refused), .needs = BATON_CAP_SIGNALS },
	{ CASE(bad_waits_are_refused), .needs = BATON_CAP_SIGNALS },
	{ CASE(the_descriptors_of_waits_are_bounded), .requests_max = 16,
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(the_query_tells_of_signals), .needs = BATON_CAP_SIGNALS },
	{ CASE(the_limits_of_counters_hold), .needs = BATON_CAP_SIGNALS },
	{ CASE(a_refused_destroy_goes_on_receiving), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS, .flags = CONFORM_PROCESSES },
	{ CASE(ranks_that_disagree_on_counters_are_all_told), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS, .flags = CONFORM_PROCESSES },
	{ CASE(abort_ends_pending_waits), .needs = BATON_CAP_SIGNALS },
	{ CASE(a_sleeping_waiter_is_woken),
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_waiting_rank_costs_no_processor_time), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS,
	  .flags = CONFORM_LONG | CONFORM_HOST_DEVICE },
	CASES_END,
};
