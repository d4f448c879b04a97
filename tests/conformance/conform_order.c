/* SPDX-License-Identifier: BSD-3-Clause */
/* What waits for what, and what does not: guarantees 2, 3, 9 and 10. */
#include <string.h>

#include "harness.h"

/* ---- the FIFO of (peer, tag, direction) --------------------------------- */

static void
messages_match_in_the_order_of_the_calls(struct conform *c)
{
	enum { N = 100 };
	baton_request requests[N] = { 0 };
	int values[N];

	for (int k = 0; k < N && c->rank < 2; k++) {
		values[k] = c->rank ? -1 : k;
		requests[k] = c->rank
		                      ? RECV(c, &values[k], sizeof(int), 0, 0,
		                             c->stream, &conform_detached)
		                      : SEND(c, &values[k], sizeof(int), 1, 0,
		                             c->stream, &conform_detached);
	}
	for (int k = 0; k < N && c->rank < 2; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_EQ(c, values[k], k);
	}
}

static void
order_holds_across_streams(struct conform *c)
{
	enum { N = 120, STREAMS = 4 };
	baton_stream streams[STREAMS];
	baton_request requests[N] = { 0 };
	int values[N];

	for (int i = 0; i < STREAMS; i++)
		streams[i] = conform_stream(c);
	for (int k = 0; k < N && c->rank < 2; k++) {
		/* The two sides share out their streams differently. */
		baton_stream stream =
			streams[(c->rank ? k / 3 : k) % STREAMS];

		values[k] = c->rank ? -1 : k;
		requests[k] = c->rank ? RECV(c, &values[k], sizeof(int), 0, 0,
		                             stream, NULL)
		                      : SEND(c, &values[k], sizeof(int), 1, 0,
		                             stream, NULL);
	}
	for (int k = 0; k < N && c->rank < 2; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_EQ(c, values[k], k);
	}
}

/* A recv that is armed waits behind one that is not. */
static void
a_recv_does_not_overtake_an_unarmed_one(struct conform *c)
{
	baton_stream gated = conform_stream(c), third = conform_stream(c);
	baton_request first = 0, second = 0, other = 0;
	int a = 0, b = 0, t = 0;

	if (c->rank == 1) {
		conform_gate_launch(c, 0, gated);
		first = RECV(c, &a, sizeof(int), 0, 5, gated, NULL);
		second = RECV(c, &b, sizeof(int), 0, 5, c->stream, NULL);
		other = RECV(c, &t, sizeof(int), 0, 6, third, NULL);
		/* What was sent after the two is here: they have had their
		 * chance. */
		FINISH(c, BATON_OK, &other);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(first, NULL));
		conform_gate_open(c, 0);
	} else if (c->rank == 0) {
		a = 1, b = 2, t = 3;
		first = SEND(c, &a, sizeof(int), 1, 5, c->stream,
		             &conform_detached);
		second = SEND(c, &b, sizeof(int), 1, 5, c->stream,
		              &conform_detached);
		other = SEND(c, &t, sizeof(int), 1, 6, c->stream, NULL);
		FINISH(c, BATON_OK, &other);
	}
	FINISH(c, BATON_OK, &first);
	FINISH(c, BATON_OK, &second);
	if (c->rank < 2) {
		CHECK_EQ(c, a, 1);
		CHECK_EQ(c, b, 2);
		CHECK_EQ(c, t, 3);
	}
}

static void
a_send_does_not_overtake_an_unarmed_one(struct conform *c)
{
	baton_stream gated = conform_stream(c), third = conform_stream(c);
	baton_request first = 0, second = 0, other = 0;
	int a = 0, b = 0, t = 0;

	if (c->rank == 0) {
		a = 1, b = 2, t = 3;
		conform_gate_launch(c, 0, gated);
		first = SEND(c, &a, sizeof(int), 1, 5, gated, NULL);
		second = SEND(c, &b, sizeof(int), 1, 5, c->stream, NULL);
		other = SEND(c, &t, sizeof(int), 1, 6, third, NULL);
		FINISH(c, BATON_OK, &other);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
	} else if (c->rank == 1) {
		first = RECV(c, &a, sizeof(int), 0, 5, c->stream,
		             &conform_detached);
		second = RECV(c, &b, sizeof(int), 0, 5, c->stream,
		              &conform_detached);
		other = RECV(c, &t, sizeof(int), 0, 6, c->stream, NULL);
		FINISH(c, BATON_OK, &other);
		CHECK_STATUS(c, BATON_PENDING, baton_test(first, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
	}
	conform_sync(c);
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &first);
	FINISH(c, BATON_OK, &second);
	if (c->rank < 2) {
		CHECK_EQ(c, a, 1);
		CHECK_EQ(c, b, 2);
		CHECK_EQ(c, t, 3);
	}
}

/* ---- what is independent ------------------------------------------------ */

static void
tags_do_not_wait_for_each_other(struct conform *c)
{
	const int tags[] = { 0, 1, 2, 1000, 65535, c->info.tag_max };
	enum { N = sizeof(tags) / sizeof(tags[0]) };
	baton_request requests[N] = { 0 };
	int values[N];

	CHECK(c, c->info.tag_max >= (1 << 20) - 1);
	/* Received in the opposite order of the sends. */
	for (int i = 0; i < N && c->rank < 2; i++) {
		int k = c->rank ? N - 1 - i : i;

		values[k] = c->rank ? -1 : k;
		requests[k] = c->rank ? RECV(c, &values[k], sizeof(int), 0,
		                             tags[k], c->stream,
		                             &conform_detached)
		                      : SEND(c, &values[k], sizeof(int), 1,
		                             tags[k], c->stream,
		                             &conform_detached);
	}
	for (int k = 0; k < N && c->rank < 2; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_EQ(c, values[k], k);
	}
}

static void
an_unmatched_tag_stops_no_other(struct conform *c)
{
	unsigned char big[100000], small[8] = { 0 };
	baton_request stuck = 0, other = 0;

	memset(big, 0, sizeof(big));
	if (c->rank == 1) {
		stuck = RECV(c, big, sizeof(big), 0, 1, c->stream,
		             &conform_detached);
		for (int i = 0; i < 50; i++) {
			other = RECV(c, small, sizeof(small), 0, 2, c->stream,
			             NULL);
			FINISH(c, BATON_OK, &other);
		}
		CHECK_STATUS(c, BATON_PENDING, baton_test(stuck, NULL));
	} else if (c->rank == 0) {
		for (int i = 0; i < 50; i++) {
			other = SEND(c, small, sizeof(small), 1, 2, c->stream,
			             NULL);
			FINISH(c, BATON_OK, &other);
		}
	}
	conform_sync(c);
	if (c->rank == 0)
		stuck = SEND(c, big, sizeof(big), 1, 1, c->stream, NULL);
	FINISH(c, BATON_OK, &stuck);
}

static void
a_thousand_tags_match_whatever_their_order(struct conform *c)
{
	enum { N = 1000 };
	baton_request *requests = conform_alloc(c, N * sizeof(*requests));
	int *values = conform_alloc(c, N * sizeof(*values));

	for (int i = 0; i < N && c->rank < 2; i++) {
		int tag = c->rank ? (i * 7) % N : N - 1 - i;

		values[tag] = c->rank ? -1 : tag * 3;
		requests[tag] = c->rank ? RECV(c, &values[tag], sizeof(int), 0,
		                               tag, c->stream,
		                               &conform_detached)
		                        : SEND(c, &values[tag], sizeof(int), 1,
		                               tag, c->stream,
		                               &conform_detached);
	}
	for (int tag = 0; tag < N && c->rank < 2; tag++) {
		FINISH(c, BATON_OK, &requests[tag]);
		CHECK_EQ(c, values[tag], tag * 3);
	}
}

static void
peers_do_not_wait_for_each_other(struct conform *c)
{
	baton_request stuck = 0, other = 0;
	unsigned char data[3000] = { 0 };

	/* 0 waits for 1, which says nothing; 2 is heard all the same. */
	if (c->rank == 0) {
		stuck = RECV(c, data, 1000, 1, 0, c->stream, &conform_detached);
		other = RECV(c, data + 1000, 1000, 2, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &other);
		CHECK_STATUS(c, BATON_PENDING, baton_test(stuck, NULL));
	} else if (c->rank == 2) {
		other = SEND(c, data, 1000, 0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &other);
	}
	conform_sync(c);
	if (c->rank == 1)
		stuck = SEND(c, data, 1000, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &stuck);
}

static void
directions_do_not_wait_for_each_other(struct conform *c)
{
	unsigned char in[5000] = { 0 }, out[5000] = { 0 };
	baton_stream second = conform_stream(c);
	baton_request stuck = 0, other = 0;

	if (c->rank == 0) {
		stuck = RECV(c, in, sizeof(in), 1, 0, c->stream, NULL);
		other = SEND(c, out, sizeof(out), 1, 0, second, NULL);
		FINISH(c, BATON_OK, &other);
		CHECK_STATUS(c, BATON_PENDING, baton_test(stuck, NULL));
	} else if (c->rank == 1) {
		other = RECV(c, in, sizeof(in), 0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &other);
	}
	conform_sync(c);
	if (c->rank == 1)
		stuck = SEND(c, out, sizeof(out), 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &stuck);
}

/* 256 receives that nothing matches, of one tag and of one each. */
static void
unmatched_receives_do_not_stop_a_send(struct conform *c)
{
	enum { N = 256 };
	baton_request *stuck = conform_alloc(c, 2 * N * sizeof(*stuck));
	unsigned char *in = conform_alloc(c, 2 * N);
	unsigned char out[20000] = { 0 };
	baton_request request = 0;

	for (int i = 0; i < 2 * N && c->rank == 0; i++)
		stuck[i] = RECV(c, &in[i], 1, 1, i < N ? 3 : 10 + i, c->stream,
		                &conform_detached);
	for (int round = 0; round < 20; round++) {
		size_t bytes = round & 1 ? sizeof(out) : 8;

		if (c->rank == 0)
			request = SEND(c, out, bytes, 1, 4, c->stream, NULL);
		else if (c->rank == 1)
			request = RECV(c, out, bytes, 0, 4, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	}
	for (int i = 0; i < 2 * N && c->rank == 0; i++)
		CHECK_STATUS(c, BATON_PENDING, baton_test(stuck[i], NULL));
	conform_sync(c);
	for (int i = 0; i < 2 * N && c->rank == 1; i++) {
		in[i] = (unsigned char)i;
		stuck[i] = SEND(c, &in[i], 1, 0, i < N ? 3 : 10 + i, c->stream,
		                &conform_detached);
	}
	for (int i = 0; i < 2 * N && c->rank < 2; i++) {
		FINISH(c, BATON_OK, &stuck[i]);
		CHECK_EQ(c, in[i], (unsigned char)i);
	}
}

/* Two communicators of the same ranks: the same tags, no mixing. */
static void
communicators_do_not_share_their_matching(struct conform *c)
{
	struct baton_comm *second = conform_comm(c, NULL);
	baton_request a = 0, b = 0;
	int first_value = 0, second_value = 0;

	if (c->rank == 0) {
		first_value = 1, second_value = 2;
		a = SEND(c, &first_value, sizeof(int), 1, 0, c->stream,
		         &conform_detached);
		CHECK_OK(c, baton_send(&second_value, 1, BATON_INT32, 1, 0,
		                       second, c->stream, &conform_detached,
		                       &b));
	} else if (c->rank == 1) {
		CHECK_OK(c, baton_recv(&second_value, 1, BATON_INT32, 0, 0,
		                       second, c->stream, &conform_detached,
		                       &b));
		a = RECV(c, &first_value, sizeof(int), 0, 0, c->stream,
		         &conform_detached);
	}
	FINISH(c, BATON_OK, &b);
	FINISH(c, BATON_OK, &a);
	if (c->rank < 2) {
		CHECK_EQ(c, first_value, 1);
		CHECK_EQ(c, second_value, 2);
	}
	CHECK_OK(c, baton_comm_destroy(second));
}

/* ---- the stream --------------------------------------------------------- */

struct look {
	const unsigned char *data;
	size_t bytes;
	unsigned char seen;
	_Atomic int runs;
};

/* Launched behind a recv: remembers what was there. */
static void
look_fn(void *arg)
{
	struct look *look = arg;

	look->seen = look->data[look->bytes - 1];
	atomic_fetch_add(&look->runs, 1);
}

static void
work_behind_a_recv_sees_its_data(struct conform *c)
{
	static const size_t sizes[] = { 8, 2048, 5000, MIB };

	for (int i = 0; i < 4; i++) {
		unsigned char *data = conform_alloc(c, sizes[i]);
		struct look look = { .data = data, .bytes = sizes[i] };
		baton_request request = 0, after = 0;

		if (c->rank == 1) {
			request = RECV(c, data, sizes[i], 0, 0, c->stream,
			               NULL);
			CHECK_OK(c, baton_stream_launch(c->comm, c->stream,
			                                look_fn, &look));
			CHECK_OK(c, baton_record(c->comm, c->stream, NULL,
			                         &after));
			CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
			CHECK_EQ(c, atomic_load(&look.runs), 0);
		}
		conform_sync(c);
		if (c->rank == 0) {
			memset(data, 0x5a, sizes[i]);
			request = SEND(c, data, sizes[i], 1, 0, c->stream,
			               NULL);
		}
		FINISH(c, BATON_OK, &after);
		FINISH(c, BATON_OK, &request);
		if (c->rank == 1) {
			CHECK_EQ(c, atomic_load(&look.runs), 1);
			CHECK_EQ(c, look.seen, 0x5a);
		}
	}
}

struct paint {
	unsigned char *data;
	size_t bytes;
	unsigned seed;
};

static void
paint_fn(void *arg)
{
	struct paint *paint = arg;

	conform_fill(paint->data, paint->bytes, paint->seed);
}

static void
a_send_reads_what_the_stream_wrote(struct conform *c)
{
	enum { N = 20 };
	struct paint paints[N];
	baton_request requests[N] = { 0 };

	for (unsigned i = 0; i < N && c->rank < 2; i++) {
		size_t bytes = 100 + 1000u * i;

		paints[i].data = conform_alloc(c, bytes);
		paints[i].bytes = bytes;
		paints[i].seed = i;
		if (c->rank == 0) {
			CHECK_OK(c, baton_stream_launch(c->comm, c->stream,
			                                paint_fn, &paints[i]));
			requests[i] = SEND(c, paints[i].data, bytes, 1, 0,
			                   c->stream, NULL);
		} else {
			requests[i] = RECV(c, paints[i].data, bytes, 0, 0,
			                   c->stream, NULL);
		}
	}
	for (unsigned i = 0; i < N && c->rank < 2; i++) {
		FINISH(c, BATON_OK, &requests[i]);
		CHECK_FILLED(c, paints[i].data, paints[i].bytes, i);
	}
}

static void
a_detached_recv_lets_its_stream_go_on(struct conform *c)
{
	unsigned char data[64] = { 0 };
	struct look look = { .data = data, .bytes = 1 };
	baton_request request = 0, after = 0;

	if (c->rank == 1) {
		request = RECV(c, data, sizeof(data), 0, 0, c->stream,
		               &conform_detached);
		CHECK_OK(c, baton_stream_launch(c->comm, c->stream, look_fn,
		                                &look));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		FINISH(c, BATON_OK, &after);
		CHECK_EQ(c, atomic_load(&look.runs), 1);
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	}
	conform_sync(c);
	if (c->rank == 0) {
		conform_fill(data, sizeof(data), 8);
		request = SEND(c, data, sizeof(data), 1, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &request);
	if (c->rank < 2)
		CHECK_FILLED(c, data, sizeof(data), 8);
}

static void
a_detached_recv_is_joined_on_another_stream(struct conform *c)
{
	unsigned char data[4096] = { 0 };
	struct look look = { .data = data, .bytes = sizeof(data) };
	baton_stream joined = conform_stream(c);
	baton_request request = 0, after = 0;

	if (c->rank == 1) {
		request = RECV(c, data, sizeof(data), 0, 0, c->stream,
		               &conform_detached);
		CHECK_OK(c, baton_stream_wait(c->comm, joined, request));
		CHECK_OK(c, baton_stream_launch(c->comm, joined, look_fn,
		                                &look));
		CHECK_OK(c, baton_record(c->comm, joined, NULL, &after));
		CHECK_OK(c, baton_release(&request));
		CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	}
	conform_sync(c);
	if (c->rank == 0) {
		memset(data, 0x77, sizeof(data));
		request = SEND(c, data, sizeof(data), 1, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &after);
	FINISH(c, BATON_OK, &request);
	if (c->rank == 1)
		CHECK_EQ(c, look.seen, 0x77);
}

/* ---- threads ------------------------------------------------------------ */

struct worker {
	struct conform *c;
	pthread_t thread;
	int tag;
	int other;
};

static void *
worker_main(void *arg)
{
	struct worker *worker = arg;
	struct conform *c = worker->c;
	baton_stream stream = conform_stream(c);
	unsigned char in[3000], out[3000];

	for (unsigned i = 0; i < 100; i++) {
		size_t bytes = (i * 37) % sizeof(out);
		unsigned seed = i + 10u * (unsigned)worker->tag;
		baton_request requests[2];

		conform_fill(out, bytes, seed + (unsigned)c->rank);
		requests[0] = SEND(c, out, bytes, worker->other, worker->tag,
		                   stream, &conform_detached);
		requests[1] = RECV(c, in, sizeof(in), worker->other, worker->tag,
		                   stream, NULL);
		FINISH_ALL(c, requests, 2);
		CHECK_FILLED(c, in, bytes, seed + (unsigned)worker->other);
		if (atomic_load(&c->failures))
			break;
	}
	return NULL;
}

static void
threads_share_a_communicator(struct conform *c)
{
	struct worker workers[4];
	int other = c->rank ^ 1;

	if (other >= c->size)
		return;
	for (int i = 0; i < 4; i++) {
		workers[i].c = c;
		workers[i].tag = i + 1;
		workers[i].other = other;
		if (!CHECK_EQ(c, pthread_create(&workers[i].thread, NULL,
		                                worker_main, &workers[i]), 0))
			return;
	}
	for (int i = 0; i < 4; i++)
		pthread_join(workers[i].thread, NULL);
}

/* Order is that of the pair's path. */
static void
each_peer_has_one_path_of_messages(struct conform *c)
{
	MESSAGE_PATHS(c);
}

const struct conform_case conform_order[] = {
	{ CASE(each_peer_has_one_path_of_messages) },
	{ CASE(messages_match_in_the_order_of_the_calls), .ranks_min = 2 },
	{ CASE(order_holds_across_streams), .makes = 5, .streams = 2, .ranks_min = 2 },
	{ CASE(a_recv_does_not_overtake_an_unarmed_one), .streams = 2, .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(a_send_does_not_overtake_an_unarmed_one), .streams = 2, .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(tags_do_not_wait_for_each_other), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(an_unmatched_tag_stops_no_other), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(a_thousand_tags_match_whatever_their_order), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(peers_do_not_wait_for_each_other), .ranks_min = 3,
	  .needs = BATON_CAP_DIRECTIONS },
	{ CASE(directions_do_not_wait_for_each_other), .streams = 2, .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS },
	{ CASE(unmatched_receives_do_not_stop_a_send), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS },
	{ CASE(communicators_do_not_share_their_matching), .ranks_min = 2 },
	{ CASE(work_behind_a_recv_sees_its_data), .ranks_min = 2 },
	{ CASE(a_send_reads_what_the_stream_wrote), .ranks_min = 2 },
	{ CASE(a_detached_recv_lets_its_stream_go_on), .ranks_min = 2 },
	{ CASE(a_detached_recv_is_joined_on_another_stream), .streams = 2, .ranks_min = 2 },
	{ CASE(threads_share_a_communicator), .makes = 5, .streams = 8, .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS | BATON_CAP_SHORT },
	CASES_END,
};
