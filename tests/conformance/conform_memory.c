/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of device memory: what staging adds to the cases of the suite.  Only programs
 * whose backend has a memory run these. */
#include "harness.h"

static const size_t sizes[] = { 1, 2000, 2001, 16385, 512 * 1024,
	                        512 * 1024 + 1, 3 * MIB + 5 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* One communicator carries messages between memory of both kinds. */
static void
host_and_device_memory_meet_in_any_pair(struct conform *c)
{
	for (unsigned i = 0; i < 8 * SIZES && c->rank < 2; i++) {
		size_t bytes = sizes[i / 8];
		bool sends = (i >> 2 & 1) == (unsigned)c->rank;
		bool host = sends ? i & 1 : i & 2;
		void *data = host ? conform_alloc(c, bytes)
		                  : conform_message(c, bytes);
		baton_request request;

		if (sends) {
			void *content = conform_filled(c, bytes, i);

			conform_copy(c, data, content, bytes);
			request = SEND(c, data, bytes, 1 - c->rank, 0, c->stream,
			               NULL);
		} else {
			request = RECV(c, data, bytes, 1 - c->rank, 0, c->stream,
			               NULL);
		}
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, data, bytes, i);
	}
}

/* Receives that nobody sends to hold nothing that a message needs. */
static void
unmatched_receives_stop_no_message(struct conform *c)
{
	enum { N = 1000 };
	const size_t bytes = 4 * MIB;
	baton_request *stuck = conform_alloc(c, N * sizeof(*stuck)), request;
	unsigned char *unused = conform_message(c, N * 8);
	int other = c->rank ^ 1;

	if (other >= c->size)
		return;
	for (int i = 0; i < N; i++)
		stuck[i] = RECV(c, unused + 8 * i, 8, other, 1 + i, c->stream,
		                &conform_detached);
	request = c->rank & 1
	                  ? RECV(c, conform_message(c, bytes), bytes, other, 0,
	                         c->stream, NULL)
	                  : SEND(c, conform_filled(c, bytes, 3), bytes, other, 0,
	                         c->stream, NULL);
	FINISH(c, BATON_OK, &request);
	for (int i = 0; i < N; i++) {
		CHECK_OK(c, baton_cancel(stuck[i]));
		FINISH(c, BATON_ERR_CANCELED, &stuck[i]);
	}
}

/* Nor do sends that one peer does not receive stop those to another. */
static void
sends_that_one_peer_leaves_stop_none_to_another(struct conform *c)
{
	enum { N = 300 };
	const size_t bytes = 20000;
	baton_request *stuck = conform_alloc(c, N * sizeof(*stuck));
	void *data = conform_filled(c, bytes, 4), *in = conform_message(c, bytes);
	baton_request request = 0;

	for (int i = 0; i < N && c->rank == 0; i++)
		stuck[i] = SEND(c, data, i & 1 ? bytes : 100, 1, i, c->stream,
		                &conform_detached);
	if (c->rank == 0)
		request = SEND(c, data, bytes, 2, 0, c->stream, NULL);
	if (c->rank == 2)
		request = RECV(c, in, bytes, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
	if (c->rank == 2)
		CHECK_FILLED(c, in, bytes, 4);
	conform_sync(c);
	/* The last one first. */
	for (int i = N; i-- > 0 && c->rank == 1;) {
		request = RECV(c, in, bytes, 0, i, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, in, i & 1 ? bytes : 100, 4);
	}
	FINISH_ALL(c, stuck, c->rank == 0 ? N : 0);
}

/* Whatever the messages are doing then. */
static void
abort_may_come_in_the_middle_of_a_message(struct conform *c)
{
	const size_t bytes = 6 * MIB;
	const int second = c->info.capabilities & BATON_CAP_TAGS ? 1 : 0;

	for (int passes = 0; passes < 40; passes += conform_short() ? 7 : 3) {
		struct baton_comm *comm = conform_comm(c, NULL);
		void *in = conform_message(c, bytes);
		void *out = conform_filled(c, bytes, 1);
		int other = (c->rank + 1) % c->size;
		int from = (c->rank + c->size - 1) % c->size;

		if (!CHECK(c, comm != NULL))
			return;
		CHECK_OK(c, baton_send(out, bytes, BATON_UINT8, other, 0, comm,
		                       NULL, &conform_detached, NULL));
		CHECK_OK(c, baton_send(out, 1000, BATON_UINT8, other, second,
		                       comm, NULL, &conform_detached, NULL));
		CHECK_OK(c, baton_recv(in, bytes, BATON_UINT8, from, 0, comm,
		                       NULL, &conform_detached, NULL));
		for (int i = 0; i < passes; i++)
			(void)baton_progress(comm);
		if (c->rank == passes % c->size)
			CHECK_OK(c, baton_comm_abort(comm));
		conform_sync(c);
		if (c->rank != passes % c->size)
			CHECK_OK(c, baton_comm_abort(comm));
		CHECK_OK(c, baton_comm_destroy(comm));
	}
}

/* Rank `from` puts to rank 1 - from, which waits; `seed` is what the bytes at `offset` are
 * afterwards. */
static void
put_and_see(struct conform *c, int from, struct baton_window *window, void *part,
            size_t offset, const void *source, size_t bytes, unsigned seed)
{
	struct baton_wait_signal_desc one = { .op_count = 1, .peer = from };
	baton_request request = 0;

	if (c->rank == from) {
		CHECK_OK(c, baton_put_signal(source, bytes, BATON_UINT8, 1 - from,
		                             window, offset, 0, 0, 0, c->comm,
		                             c->stream, NULL, &request));
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1 - from) {
		CHECK_OK(c, baton_wait_signal(1, &one, c->comm, c->stream, NULL,
		                              &request));
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, (char *)part + offset, bytes, seed);
	}
	conform_sync(c);
}

static void
puts_go_between_memory_of_both_kinds(struct conform *c)
{
	const size_t room = 4 * MIB;

	for (unsigned kinds = 0; kinds < 4; kinds++) {
		void *part = kinds & 1 ? conform_message(c, room)
		                       : conform_alloc(c, room);
		struct baton_window *window = NULL;

		if (!CHECK_OK(c, baton_window_register(part, room, c->comm,
		                                       &window)))
			return;
		for (unsigned i = 0; i < SIZES; i++) {
			void *filled = conform_filled(c, sizes[i], i + kinds);
			void *source = filled;

			if (kinds & 2) {
				source = conform_alloc(c, sizes[i]);
				conform_copy(c, source, filled, sizes[i]);
			}
			for (int from = 0; from < 2; from++)
				put_and_see(c, from, window, part, 3 * i,
				            source, sizes[i], i + kinds);
		}
		CHECK_OK(c, baton_window_deregister(window));
	}
}

/* One after the other in one context, long and short: what a signal says of all. */
static void
puts_of_one_context_keep_their_order(struct conform *c)
{
	enum { N = 24 };
	const size_t room = 1 * MIB;
	struct baton_wait_signal_desc all = { .op_count = N, .peer = 0 };
	unsigned char *part = conform_message(c, N * room);
	struct baton_window *window = NULL;
	baton_request request = 0;

	CHECK_OK(c, baton_window_register(part, N * room, c->comm, &window));
	for (unsigned i = 0; i < N && c->rank == 0; i++) {
		size_t bytes = i % 3 ? 100 : room - i;
		void *source = conform_filled(c, bytes, i);

		if (i % 2) {
			void *here = conform_alloc(c, bytes);

			conform_copy(c, here, source, bytes);
			source = here;
		}
		CHECK_OK(c, baton_put_signal(source, bytes, BATON_UINT8, 1, window,
		                             i * room, 0, 0, 0, c->comm,
		                             c->stream, &conform_detached, NULL));
	}
	if (c->rank == 1) {
		CHECK_OK(c, baton_wait_signal(1, &all, c->comm, c->stream, NULL,
		                              &request));
		FINISH(c, BATON_OK, &request);
		for (unsigned i = 0; i < N; i++)
			CHECK_FILLED(c, part + i * room, i % 3 ? 100 : room - i, i);
	}
	conform_sync(c);
	CHECK_OK(c, baton_window_deregister(window));
}

const struct conform_case conform_memory[] = {
	{ CASE(host_and_device_memory_meet_in_any_pair), .ranks_min = 2 },
	{ CASE(unmatched_receives_stop_no_message), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_CANCEL },
	{ CASE(sends_that_one_peer_leaves_stop_none_to_another),
	  .ranks_min = 3, .needs = BATON_CAP_TAGS },
	{ CASE(abort_may_come_in_the_middle_of_a_message), .ranks_min = 2,
	  .flags = CONFORM_THREADS | CONFORM_BARE },
	{ CASE(puts_go_between_memory_of_both_kinds), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(puts_of_one_context_keep_their_order), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	CASES_END,
};
