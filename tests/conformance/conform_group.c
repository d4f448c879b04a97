/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: guarantee 4. */
#include <string.h>

#include "harness.h"

/* The peer has seen nothing of a voided group: the next message that it gets is
 * the one that was sent afterwards.  Run by ranks 0 (which voided) and 1. */
static void
check_nothing_was_sent(struct conform *c)
{
	enum baton_status status = BATON_ERR_AGAIN;
	int64_t begin = conform_begin();
	baton_request request = 0;
	int value = 4711;

	if (c->rank == 0) {
		/* The engine may not have cleared the voided group away yet. */
		while (status == BATON_ERR_AGAIN && STILL(c, begin)) {
			(void)baton_progress(c->comm);
			status = baton_send(&value, sizeof(value), BATON_UINT8,
			                    1, 0, c->comm, c->stream, NULL,
			                    &request);
		}
		CHECK_STATUS(c, BATON_OK, status);
	} else if (c->rank == 1) {
		value = 0;
		request = RECV(c, &value, sizeof(value), 0, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &request);
	CHECK_EQ(c, value, c->rank < 2 ? 4711 : value);
}

/* ---- what a group is for ------------------------------------------------ */

static void
an_exchange_inside_a_group_cannot_deadlock(struct conform *c)
{
	const size_t bytes = 4 * MIB;
	int other = conform_partner(c);
	baton_request requests[2];
	unsigned char *in, *out;

	if (other < 0)
		return;
	in = conform_message(c, bytes);
	out = conform_filled(c, bytes, (unsigned)c->rank);
	for (int round = 0; round < 4; round++) {
		conform_set(c, in, 0, bytes);
		CHECK_OK(c, baton_group_begin(c->comm));
		/* Rank by rank the other way round. */
		if (c->rank & 1)
			requests[1] = RECV(c, in, bytes, other, 0, c->stream,
			                   NULL);
		requests[0] = SEND(c, out, bytes, other, 0, c->stream, NULL);
		if (!(c->rank & 1))
			requests[1] = RECV(c, in, bytes, other, 0, c->stream,
			                   NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		FINISH_ALL(c, requests, 2);
		CHECK_FILLED(c, in, bytes, (unsigned)other);
	}
}

static void
members_of_one_fifo_match_in_the_order_of_their_calls(struct conform *c)
{
	enum { N = 60 };
	baton_request requests[N] = { 0 };
	int values[N];

	for (int k = 0; k < N; k++)
		values[k] = c->rank ? -1 : k;
	CHECK_OK(c, baton_group_begin(c->comm));
	for (int k = 0; k < N && c->rank < 2; k++)
		requests[k] = c->rank ? RECV(c, &values[k], sizeof(int), 0, 0,
		                             c->stream, NULL)
		                      : SEND(c, &values[k], sizeof(int), 1, 0,
		                             c->stream, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	for (int k = 0; k < N && c->rank < 2; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_EQ(c, values[k], k);
	}
}

static void
a_group_is_armed_when_all_its_streams_are_there(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	baton_request requests[2] = { 0 };
	unsigned char data[2][100];

	memset(data, 0, sizeof(data));
	if (c->rank == 0) {
		conform_fill(data[0], 100, 1);
		conform_fill(data[1], 100, 2);
		conform_gate_launch(c, 0, gated);
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, data[0], 100, 1, 0, c->stream, NULL);
		requests[1] = SEND(c, data[1], 100, 1, 0, gated, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		conform_gate_reached(c, 0);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
	} else if (c->rank == 1) {
		requests[0] = RECV(c, data[0], 100, 0, 0, c->stream, NULL);
		requests[1] = RECV(c, data[1], 100, 0, 0, c->stream, NULL);
	}
	conform_sync(c);
	if (c->rank == 1)
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
	conform_sync(c);
	conform_gate_open(c, 0);
	FINISH_ALL(c, requests, c->rank < 2 ? 2 : 0);
	if (c->rank < 2) {
		CHECK_FILLED(c, data[0], 100, 1);
		CHECK_FILLED(c, data[1], 100, 2);
	}
}

static void
each_stream_of_a_group_goes_on_when_all_are_complete(struct conform *c)
{
	baton_stream second = conform_stream(c);
	baton_request requests[2] = { 0 }, after[2] = { 0 };
	unsigned char in[64] = { 0 }, out[64] = { 0 };

	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, out, 64, 1, 0, c->stream, NULL);
		requests[1] = RECV(c, in, 64, 1, 0, second, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after[0]));
		CHECK_OK(c, baton_record(c->comm, second, NULL, &after[1]));
		/* The send can end, the receive cannot. */
		FINISH(c, BATON_OK, &requests[0]);
		CHECK_STATUS(c, BATON_PENDING, baton_test(after[0], NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(after[1], NULL));
	} else if (c->rank == 1) {
		requests[0] = RECV(c, in, 64, 0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &requests[0]);
	}
	conform_sync(c);
	if (c->rank == 1)
		requests[1] = SEND(c, out, 64, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &requests[1]);
	FINISH(c, BATON_OK, &after[0]);
	FINISH(c, BATON_OK, &after[1]);
}

static void
a_detached_group_lets_its_streams_go_on(struct conform *c)
{
	baton_request requests[2] = { 0 }, after = 0;
	unsigned char in[2][64];

	memset(in, 0, sizeof(in));
	if (c->rank == 1) {
		CHECK_OK(c, baton_group_begin(c->comm));
		for (int i = 0; i < 2; i++)
			requests[i] = RECV(c, in[i], 64, 0, 0, c->stream,
			                   &conform_detached);
		CHECK_OK(c, baton_group_end(c->comm));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		FINISH(c, BATON_OK, &after);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[1], NULL));
	}
	conform_sync(c);
	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		for (int i = 0; i < 2; i++)
			requests[i] = SEND(c, in[i], 64, 1, 0, c->stream,
			                   &conform_detached);
		CHECK_OK(c, baton_group_end(c->comm));
	}
	FINISH(c, BATON_OK, &requests[0]);
	FINISH(c, BATON_OK, &requests[1]);
}

static void
groups_nest(struct conform *c)
{
	baton_request requests[3] = { 0 };
	unsigned char in[3][32], out[3][32];
	int other = conform_partner(c);

	if (other < 0) {
		conform_sync(c);
		conform_sync(c);
		return;
	}
	memset(in, 0, sizeof(in));
	if (c->rank & 1) {
		for (int i = 0; i < 3; i++)
			requests[i] = RECV(c, in[i], 32, other, 0, c->stream,
			                   &conform_detached);
		conform_sync(c);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
		conform_sync(c);
	} else {
		for (int i = 0; i < 3; i++)
			conform_fill(out[i], 32, (unsigned)i);
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, out[0], 32, other, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[1] = SEND(c, out[1], 32, other, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		/* The inner end sends nothing. */
		conform_sync(c);
		conform_sync(c);
		requests[2] = SEND(c, out[2], 32, other, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
	}
	for (int i = 0; i < 3; i++) {
		FINISH(c, BATON_OK, &requests[i]);
		if (c->rank & 1)
			CHECK_FILLED(c, in[i], 32, (unsigned)i);
	}
}

static void
an_empty_group_is_nothing(struct conform *c)
{
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_group_end(c->comm));
	CHECK_OK(c, baton_group_end(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_group_end(c->comm), "group");
	conform_sound(c);
}

/* A group without requests: the stream tells when it is done. */
static void
a_group_can_be_fire_and_forget(struct conform *c)
{
	unsigned char in[500] = { 0 }, out[500];
	int to = conform_next(c);
	int from = conform_previous(c);

	conform_fill(out, sizeof(out), (unsigned)c->rank);
	for (int round = 0; round < 10; round++) {
		CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_send(out, sizeof(out), BATON_INT8, to, 0,
		                       c->comm, c->stream, NULL, NULL));
		CHECK_OK(c, baton_recv(in, sizeof(in), BATON_INT8, from, 0,
		                       c->comm, c->stream, NULL, NULL));
		CHECK_OK(c, baton_group_end(c->comm));
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_FILLED(c, in, sizeof(in), (unsigned)from);
}

struct other_thread {
	struct conform *c;
	baton_stream stream;
	baton_request request;
	int value;
};

static void *
send_from_thread(void *arg)
{
	struct other_thread *t = arg;
	struct conform *c = t->c;

	t->request = SEND(c, &t->value, sizeof(int), 1, 0, t->stream, NULL);
	FINISH(c, BATON_OK, &t->request);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	return NULL;
}

/* What another thread sends meanwhile goes at once. */
static void
a_group_belongs_to_its_thread(struct conform *c)
{
	struct other_thread other = { .c = c, .value = 5 };
	baton_request requests[2] = { 0 };
	int values[2] = { 0, 0 };
	pthread_t thread;

	other.stream = conform_stream(c);
	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		if (!pthread_create(&thread, NULL, send_from_thread, &other))
			pthread_join(thread, NULL);
		values[1] = 6;
		requests[1] = SEND(c, &values[1], sizeof(int), 1, 0, c->stream,
		                   NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		FINISH(c, BATON_OK, &requests[1]);
	} else if (c->rank == 1) {
		for (int i = 0; i < 2; i++)
			requests[i] = RECV(c, &values[i], sizeof(int), 0, 0,
			                   c->stream, NULL);
		FINISH_ALL(c, requests, 2);
		CHECK_EQ(c, values[0], 5);
		CHECK_EQ(c, values[1], 6);
	}
}

/* ---- what voids a group ------------------------------------------------- */

static void
a_refused_member_voids_its_group(struct conform *c)
{
	baton_request good = 0, late = 0, bad = 77;
	int value = 1, last = 2;

	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		good = SEND(c, &value, sizeof(value), 1, 0, c->stream, NULL);
		CHECK(c, good != BATON_REQUEST_NULL);
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_send(&value, 1, BATON_INT32, c->size, 0,
		                         c->comm, c->stream, NULL, &bad),
		              "peer");
		CHECK(c, bad == 77);
		/* Members after the refusal: accepted or refused, never sent. */
		(void)baton_send(&last, 1, BATON_INT32, 1, 0, c->comm,
		                 c->stream, NULL, &late);
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(good, NULL));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_wait(good, -1, NULL));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_release(&good));
		if (late != BATON_REQUEST_NULL)
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(late, NULL));
	}
	check_nothing_was_sent(c);
	conform_sync(c);
	conform_sound(c);
}

static void
a_mixture_of_detached_and_not_is_invalid(struct conform *c)
{
	baton_request requests[2] = { 0 };
	enum baton_status second;
	int value = 1;

	for (int detached_first = 0; detached_first < 2 && c->rank == 0;
	     detached_first++) {
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, &value, sizeof(value), 1, 0, c->stream,
		                   detached_first ? &conform_detached : NULL);
		second = baton_send(&value, 1, BATON_INT32, 1, 0, c->comm,
		                    c->stream,
		                    detached_first ? NULL : &conform_detached,
		                    &requests[1]);
		CHECK_STATUS(c, BATON_ERR_INVALID, second);
		CHECK_REFUSED(c, BATON_ERR_INVALID, baton_group_end(c->comm),
		              "DETACHED");
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(requests[0], NULL));
	}
	check_nothing_was_sent(c);
	conform_sync(c);
	conform_sound(c);
}

static void
group_end_returns_the_first_refusal(struct conform *c)
{
	baton_request request = 0;
	int value = 1;

	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		request = SEND(c, &value, sizeof(value), 1, 0, c->stream, NULL);
		/* 15 more fit into the pool, so that AGAIN comes first. */
		for (int i = 0; i < 40; i++)
			(void)baton_send(&value, 1, BATON_INT32, 1, 0, c->comm,
			                 c->stream, NULL, NULL);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send(&value, 1, BATON_INT32, -1, 0, c->comm,
		                        c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_AGAIN, baton_group_end(c->comm));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
	}
	check_nothing_was_sent(c);
}

/* And the pool has all its slots afterwards. */
static void
again_voids_the_group(struct conform *c)
{
	baton_request requests[40] = { 0 };
	int value = 1, accepted = 0;
	enum baton_status status = BATON_OK;

	for (int round = 0; round < 20 && c->rank == 0; round++) {
		int now = 0;

		int64_t begin = conform_begin();

		/* It takes a request too. */
		while ((status = baton_group_begin(c->comm)) ==
		               BATON_ERR_AGAIN && STILL(c, begin))
			(void)baton_progress(c->comm);
		if (!CHECK_STATUS(c, BATON_OK, status))
			break;
		for (int i = 0; i < 40; i++) {
			status = baton_send(&value, sizeof(value), BATON_UINT8, 1, 0,
			                    c->comm, c->stream, NULL,
			                    &requests[i]);
			if (status != BATON_OK)
				break;
			now++;
		}
		CHECK_STATUS(c, BATON_ERR_AGAIN, status);
		CHECK_STATUS(c, BATON_ERR_AGAIN, baton_group_end(c->comm));
		accepted += now;
		for (int i = 0; i < now; i++)
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(requests[i], NULL));
	}
	CHECK(c, c->rank || accepted > 10);
	check_nothing_was_sent(c);
	conform_sync(c);
	conform_sound(c);
}

static void
a_refusal_in_a_nested_group_voids_all(struct conform *c)
{
	baton_request outer = 0, inner = 0;
	int value = 1;

	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		outer = SEND(c, &value, sizeof(value), 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_begin(c->comm));
		inner = SEND(c, &value, sizeof(value), 1, 0, c->stream, NULL);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send(&value, 1, BATON_INT32, 1, -1, c->comm,
		                        c->stream, NULL, NULL));
		/* The inner end enqueues nothing and so refuses nothing, or
		 * says so already. */
		(void)baton_group_end(c->comm);
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(outer, NULL));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(inner, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	}
	check_nothing_was_sent(c);
}

/* It is known by its handle while the group is open. */
static void
a_stream_that_waits_for_a_void_member_goes_on(struct conform *c)
{
	struct baton_comm *other = conform_comm(c, NULL);
	baton_stream waits = conform_stream(c);
	baton_request request = 0, after = 0;
	int to = conform_next(c), value = 1;

	CHECK_OK(c, baton_group_begin(c->comm));
	request = SEND(c, &value, sizeof(value), to, 0, c->stream, NULL);
	CHECK_OK(c, baton_stream_wait(other, waits, request));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_send(&value, 1, BATON_INT32, -1, 0, c->comm,
	                        c->stream, NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	CHECK_OK(c, baton_record(other, waits, NULL, &after));
	FINISH(c, BATON_OK, &after);
	CHECK_OK(c, baton_comm_destroy(other));
	conform_sync(c);
	conform_sound(c);
}

/* Voided groups leave no hole in the order of their FIFO, nor their streams
 * stuck. */
static void
operations_around_a_voided_group_keep_their_order(struct conform *c)
{
	enum { N = 20 };
	baton_request requests[N] = { 0 };
	int values[N], lost = -5;

	for (int i = 0; i < N && c->rank < 2; i++) {
		values[i] = c->rank ? -1 : i;
		if (c->rank) {
			requests[i] = RECV(c, &values[i], sizeof(int), 0, 0,
			                   c->stream, NULL);
			continue;
		}
		requests[i] = SEND(c, &values[i], sizeof(int), 1, 0, c->stream,
		                   NULL);
		CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_send(&lost, 1, BATON_INT32, 1, 0, c->comm,
		                       c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send(NULL, 1, BATON_INT32, 1, 0, c->comm,
		                        c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	}
	for (int i = 0; i < N && c->rank < 2; i++) {
		FINISH(c, BATON_OK, &requests[i]);
		CHECK_EQ(c, values[i], i);
	}
}

static void
what_a_group_does_not_take_is_invalid(struct conform *c)
{
	baton_request done = 0, made = 88;

	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &done));
	CHECK_STATUS(c, BATON_OK, baton_wait(done, conform_patience(c), NULL));

	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_stream_launch(c->comm, c->stream, conform_nothing_fn,
	                                  NULL),
	              "group");
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));

	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_record(c->comm, c->stream, NULL, &made), "group");
	CHECK(c, made == 88);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));

	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_stream_wait(c->comm, c->stream, done), "group");
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));

	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_stream_synchronize(c->comm, c->stream), "group");
	(void)baton_group_end(c->comm);
	CHECK_OK(c, baton_release(&done));
	conform_sync(c);
	conform_sound(c);
}

/* Waiting for what is not enqueued yet would be for ever. */
static void
waiting_for_an_open_group_is_invalid(struct conform *c)
{
	unsigned char in[8] = { 0 }, out[8] = { 0 };
	struct baton_completion kept, untouched;
	baton_request requests[2] = { 0 };
	int to = conform_next(c);
	int from = conform_previous(c);
	size_t index = 9, done = 9, indices[2] = { 9, 9 };

	memset(&kept, 0x11, sizeof(kept));
	memset(&untouched, 0x11, sizeof(untouched));
	CHECK_OK(c, baton_group_begin(c->comm));
	requests[0] = SEND(c, out, 8, to, 0, c->stream, NULL);
	requests[1] = RECV(c, in, 8, from, 0, c->stream, NULL);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_test(requests[0], &kept));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_wait(requests[0], 0, &kept),
	              "group");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_wait_any(requests, 2, 0, &index, &kept));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_wait_all(requests, 2, 0));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_test_some(requests, 2, indices, 2, &done));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_finish_all(requests, 2, 0, NULL));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_finish_some(requests, 2, 0, indices, NULL, 2, &done));
	CHECK(c, memcmp(&kept, &untouched, sizeof(kept)) == 0);
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
}

/* Its streams go on, its handles are stale, and what comes next is the first that the peer sees. */
static void
an_abandoned_group_enqueues_nothing(struct conform *c)
{
	baton_request requests[3] = { 0 }, after = 0;
	int value = 1, got = 2;

	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, &value, sizeof(value), 1, 0, c->stream,
		                   NULL);
		requests[1] = RECV(c, &got, sizeof(got), 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_abandon(c->comm));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(requests[0], NULL));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_release(&requests[1]));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		FINISH(c, BATON_OK, &after);
		CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[2] = SEND(c, &value, sizeof(value), 1, 0, c->stream,
		                   NULL);
		CHECK_OK(c, baton_group_abandon(c->comm));
		CHECK_REFUSED(c, BATON_ERR_CANCELED, baton_group_end(c->comm),
		              "baton_group_abandon");
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(requests[2], NULL));
	}
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_group_abandon(c->comm),
	              "group");
	check_nothing_was_sent(c);
	CHECK_EQ(c, got, 2);
	conform_sync(c);
	conform_sound(c);
}

/* ---- members that end badly --------------------------------------------- */

static void
a_member_that_times_out_holds_no_other(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	baton_request requests[2] = { 0 }, after = 0;
	unsigned char in[64] = { 0 }, out[64] = { 0 };

	soon.timeout_ns = 2 * MS;
	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = RECV(c, in, 64, 1, 1, c->stream, &soon);
		requests[1] = SEND(c, out, 64, 1, 2, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		FINISH(c, BATON_ERR_TIMEOUT, &requests[0]);
		FINISH(c, BATON_OK, &requests[1]);
		FINISH(c, BATON_OK, &after);
	} else if (c->rank == 1) {
		requests[1] = RECV(c, in, 64, 0, 2, c->stream, NULL);
		FINISH(c, BATON_OK, &requests[1]);
	}
	conform_sync(c);
	conform_sound(c);
}

const struct conform_case conform_group[] = {
	{ CASE(an_exchange_inside_a_group_cannot_deadlock), .ranks_min = 2 },
	{ CASE(members_of_one_fifo_match_in_the_order_of_their_calls),
	  .ranks_min = 2 },
	{ CASE(a_group_is_armed_when_all_its_streams_are_there), .streams = 2,
	  .ranks_min = 2 },
	{ CASE(each_stream_of_a_group_goes_on_when_all_are_complete),
	  .ranks_min = 2, .needs = BATON_CAP_DIRECTIONS,
	  .flags = CONFORM_HOST_ISSUED },
	{ CASE(a_detached_group_lets_its_streams_go_on), .ranks_min = 2 },
	{ CASE(groups_nest) },
	{ CASE(an_empty_group_is_nothing) },
	{ CASE(a_group_can_be_fire_and_forget) },
	{ CASE(a_group_belongs_to_its_thread), .ranks_min = 2 },
	{ CASE(a_refused_member_voids_its_group), .ranks_min = 2 },
	{ CASE(a_mixture_of_detached_and_not_is_invalid), .ranks_min = 2 },
	{ CASE(group_end_returns_the_first_refusal), .ranks_min = 2,
	  .requests_max = 16 },
	{ CASE(again_voids_the_group), .ranks_min = 2, .requests_max = 16 },
	{ CASE(a_refusal_in_a_nested_group_voids_all), .ranks_min = 2 },
	{ CASE(a_stream_that_waits_for_a_void_member_goes_on) },
	{ CASE(operations_around_a_voided_group_keep_their_order),
	  .ranks_min = 2 },
	{ CASE(what_a_group_does_not_take_is_invalid) },
	{ CASE(waiting_for_an_open_group_is_invalid) },
	{ CASE(an_abandoned_group_enqueues_nothing), .ranks_min = 2 },
	{ CASE(a_member_that_times_out_holds_no_other), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_CANCEL },
	CASES_END,
};
