/* SPDX-License-Identifier: BSD-3-Clause */
#include "open_receives.h"

baton_request
conform_recv_int(struct conform *c, int *value, int peer, int tag, baton_stream stream)
{
	return RECV(c, value, sizeof(*value), peer, tag, stream,
	            &conform_detached);
}

void
conform_send_int(struct conform *c, int value, int peer, int tag)
{
	baton_request request = SEND(c, &value, sizeof(value), peer, tag,
	                             c->stream, NULL);

	FINISH(c, BATON_OK, &request);
}

void
conform_send_ints(struct conform *c, int n, const int *tags, int peer)
{
	int values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	baton_request requests[8];

	for (int k = 0; k < n; k++)
		requests[k] = SEND(c, &values[k], sizeof(int), peer, tags[k],
		                   c->stream, &conform_detached);
	for (int k = 0; k < n; k++)
		FINISH(c, BATON_OK, &requests[k]);
}

void
conform_finish_as(struct conform *c, baton_request *request_p, int peer, int tag)
{
	struct baton_completion done = {.peer = -2};

	if (!FINISH_AS(c, BATON_OK, request_p, &done))
		return;
	CHECK_EQ(c, done.peer, peer);
	CHECK_EQ(c, done.tag, tag);
	CHECK_EQ(c, done.op, BATON_OPERATION_RECV);
}

static const size_t lengths[] = {0, 1, 61, 2048, 2049, 8192, 8193, 65536, MIB, 3 * MIB + 1};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

void
conform_all_lengths(struct conform *c, bool first, int peer, int tag)
{
	for (size_t i = 0; i < LENGTHS; i++) {
		struct baton_completion done = {.peer = 0};
		baton_request request = BATON_REQUEST_NULL;
		int sent = tag == BATON_ANY_TAG ? 3 + (int)i % 2 : tag;
		void *buffer = NULL;

		if (!first)
			conform_sync(c);
		if (c->rank == 1) {
			buffer = conform_message(c, lengths[i] + 1);
			request = RECV(c, buffer, lengths[i] + 1, peer, tag,
			               c->stream, NULL);
		}
		if (first)
			conform_sync(c);
		if (c->rank == 0) {
			buffer = conform_filled(c, lengths[i] + 1, (unsigned)i);
			request = SEND(c, buffer, lengths[i], 1, sent, c->stream,
			               NULL);
		}
		if (c->rank < 2)
			FINISH_AS(c, BATON_OK, &request, &done);
		if (c->rank == 1) {
			CHECK_EQ(c, done.bytes, lengths[i]);
			CHECK_EQ(c, done.tag, sent);
			CHECK_FILLED(c, buffer, lengths[i], (unsigned)i);
		}
	}
}

void
conform_launch_thrice(struct conform *c, struct baton_plan *plan, int *got_p)
{
	for (int k = 0; k < 3 && plan; k++) {
		baton_request request = 0;

		conform_sync(c);
		*got_p = -1;
		CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
		FINISH(c, BATON_OK, &request);
		CHECK_EQ(c, *got_p, conform_previous(c));
	}
}
