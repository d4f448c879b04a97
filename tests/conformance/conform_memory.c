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
	for (unsigned i = 0; i < 4 * SIZES && c->rank < 2; i++) {
		size_t bytes = sizes[i / 4];
		bool host = c->rank == 0 ? i & 1 : i & 2;
		void *data = host ? conform_alloc(c, bytes)
		                  : conform_message(c, bytes);
		baton_request request;

		if (c->rank == 0) {
			void *content = conform_filled(c, bytes, i);

			conform_copy(c, data, content, bytes);
			request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
		} else {
			request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
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

	for (int passes = 0; passes < 40; passes += 3) {
		struct baton_comm *comm = conform_comm(c, NULL);
		void *in = conform_message(c, bytes);
		void *out = conform_filled(c, bytes, 1);
		int other = (c->rank + 1) % c->size;
		int from = (c->rank + c->size - 1) % c->size;

		if (!CHECK(c, comm != NULL))
			return;
		CHECK_OK(c, baton_send(out, bytes, BATON_UINT8, other, 0, comm,
		                       NULL, &conform_detached, NULL));
		CHECK_OK(c, baton_send(out, 1000, BATON_UINT8, other, 1, comm,
		                       NULL, &conform_detached, NULL));
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

const struct conform_case conform_memory[] = {
	{ CASE(host_and_device_memory_meet_in_any_pair), .ranks_min = 2 },
	{ CASE(unmatched_receives_stop_no_message), .ranks_min = 2 },
	{ CASE(sends_that_one_peer_leaves_stop_none_to_another),
	  .ranks_min = 3 },
	{ CASE(abort_may_come_in_the_middle_of_a_message), .ranks_min = 2,
	  .flags = CONFORM_THREADS | CONFORM_BARE },
	CASES_END,
};
