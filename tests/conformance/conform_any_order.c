/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of any tag among others: which of them a message is for, and what waits for it (guarantee 3). */

#include "open_receives.h"

#define TAG BATON_ANY_TAG
#define MANY_TAGS 5

/* A message of rank 1 on this tag, and with it all that it has sent before, has come. */
static void
await_marker(struct conform *c, int tag)
{
	int marker = 0;
	baton_request request = conform_recv_int(c, &marker, 1, tag, c->stream);

	FINISH(c, BATON_OK, &request);
}

static void
receives_of_all_kinds_match_in_their_order(struct conform *c)
{
	static const int named[][2] = {
		{1, TAG}, {1, 5}, {ANY, 5}, {1, TAG}, {ANY, TAG}, {1, 5}, {ANY, 5}, {1, TAG}};
	enum { N = sizeof(named) / sizeof(named[0]) };
	int values[N] = {0};
	baton_request requests[N];

	for (int k = 0; k < N && c->rank == 0; k++)
		requests[k] = conform_recv_int(c, &values[k], named[k][0], named[k][1],
		                               c->stream);
	conform_sync(c);
	for (int k = 0; k < N && c->rank == 1; k++)
		conform_send_int(c, k, 0, 5);
	for (int k = 0; k < N && c->rank == 0; k++) {
		conform_finish_as(c, &requests[k], 1, 5);
		CHECK_EQ(c, values[k], k);
	}
}

/* All are armed, and go on from the line of all at once.  The one in the middle that names a tag has its message first,
 * so the one behind it has the next of that tag, and none that was sent later. */
static void
an_earlier_armed_one_takes_its_message_first(struct conform *c)
{
	static const int named[][3] = {
		{ANY, TAG, 1}, {1, 2, 3}, {ANY, 4, 2}, {ANY, TAG, 4}, {1, TAG, 5}};
	static const int tags[] = {2, 4, 2, 4, 1};
	enum { N = sizeof(tags) / sizeof(tags[0]) };
	baton_stream gated = conform_stream(c);
	baton_request requests[N];
	int values[N] = {0};

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		for (int k = 0; k < N; k++)
			requests[k] = conform_recv_int(c, &values[k], named[k][0],
			                               named[k][1],
			                               k == 0 ? gated : c->stream);
	}
	conform_sync(c);
	if (c->rank == 1) {
		conform_send_ints(c, N, tags, 0);
	} else if (c->rank == 0) {
		conform_gate_open(c, 0);
		for (int k = 0; k < N; k++) {
			conform_finish_as(c, &requests[k], 1, tags[named[k][2] - 1]);
			CHECK_EQ(c, values[k], named[k][2]);
		}
	}
}

/* Its message stays, and those of other tags pass it. */
static void
an_earlier_recv_that_names_its_tag_keeps_its_message(struct conform *c)
{
	int any[2] = {0}, named = 0;
	baton_request early = 0, late[2] = {0};
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		early = conform_recv_int(c, &named, 1, 5, gated);
		await_marker(c, 6);
		late[0] = conform_recv_int(c, &any[0], 1, TAG, c->stream);
		late[1] = conform_recv_int(c, &any[1], ANY, TAG, c->stream);
		conform_finish_as(c, &late[0], 1, 7);
		conform_finish_as(c, &late[1], 1, 8);
		CHECK_STATUS(c, BATON_PENDING, baton_test(early, NULL));
		conform_gate_open(c, 0);
		conform_finish_as(c, &early, 1, 5);
		CHECK_EQ(c, named, 1);
		CHECK_EQ(c, any[0], 3);
		CHECK_EQ(c, any[1], 4);
	} else if (c->rank == 1) {
		conform_send_ints(c, 4, (const int[]){5, 6, 7, 8}, 0);
	}
}

/* With its body, and a list with its tensors: the receive of any tag sees what is behind them. */
static void
long_messages_of_earlier_recvs_hide_none(struct conform *c)
{
	const size_t bytes[2] = {65536, 2 * MIB};
	baton_stream gated = conform_stream(c);
	baton_request early[2] = {0}, late = 0;
	void *buffers[2];
	int any = 0;

	for (int k = 0; k < 2 && c->rank == 1; k++) {
		buffers[k] = conform_filled(c, bytes[k], (unsigned)k);
		early[k] = SEND(c, buffers[k], bytes[k], 0, 5 + k, c->stream,
		                &conform_detached);
	}
	if (c->rank == 1) {
		conform_send_int(c, 3, 0, 7);
	} else if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		for (int k = 0; k < 2; k++) {
			buffers[k] = conform_message(c, bytes[k]);
			early[k] = RECV(c, buffers[k], bytes[k], 1, 5 + k, gated,
			                &conform_detached);
		}
		late = conform_recv_int(c, &any, ANY, TAG, c->stream);
		conform_finish_as(c, &late, 1, 7);
		CHECK_EQ(c, any, 3);
		conform_gate_open(c, 0);
	}
	for (int k = 0; k < 2 && c->rank < 2; k++) {
		FINISH(c, BATON_OK, &early[k]);
		if (c->rank == 0)
			CHECK_FILLED(c, buffers[k], bytes[k], (unsigned)k);
	}
}

/* One that a receive of any tag has passed, and that nobody receives then. */
static void
a_message_that_was_passed_may_be_left_over(struct conform *c)
{
	struct baton_comm *own = conform_exchange(c, NULL);
	baton_stream gated = conform_stream(c);
	baton_request early = 0, late = 0, left = 0;
	int values[3] = {1, 2, 0};
	enum baton_status status;

	if (c->rank == 1) {
		left = SEND(c, &values[0], sizeof(int), 0, 5, c->stream,
		            &conform_detached);
		conform_send_int(c, 2, 0, 7);
	} else if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		early = conform_recv_int(c, &values[0], 1, 5, gated);
		late = conform_recv_int(c, &values[2], 1, TAG, c->stream);
		conform_finish_as(c, &late, 1, 7);
		CHECK_OK(c, baton_cancel(early));
		FINISH(c, BATON_ERR_CANCELED, &early);
		conform_gate_open(c, 0);
	}
	conform_sync(c);
	if (left) {
		CHECK_OK(c, baton_cancel(left));
		status = baton_finish(&left, -1, NULL);
		CHECK(c, status == BATON_OK || status == BATON_ERR_CANCELED);
	}
	RESTORE(c, own);
	conform_sound(c);
}

/* It is not armed: whatever is behind it of its rank waits, and nothing else does. */
static void
an_unarmed_one_holds_up_its_rank_alone(struct conform *c)
{
	int any = 0, named = 0, other = 0, own = 9;
	baton_request first = 0, second = 0, third = 0, out = 0;
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		first = conform_recv_int(c, &any, 1, TAG, gated);
		second = conform_recv_int(c, &named, 1, 6, c->stream);
		third = conform_recv_int(c, &other, ANY, 5, c->stream);
		out = SEND(c, &own, sizeof(int), 0, 5, c->stream,
		           &conform_detached);
		conform_finish_as(c, &third, 0, 5);
		FINISH(c, BATON_OK, &out);
		CHECK_EQ(c, other, 9);
		conform_sync(c);
		/* What comes of the rank is the first one's. */
		CHECK_STATUS(c, BATON_PENDING, baton_test(first, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		conform_gate_open(c, 0);
		conform_finish_as(c, &first, 1, 5);
		conform_finish_as(c, &second, 1, 6);
		CHECK_EQ(c, any, 1);
		CHECK_EQ(c, named, 2);
		return;
	}
	conform_sync(c);
	if (c->rank == 1)
		conform_send_ints(c, 2, (const int[]){5, 6}, 0);
}

/* Two that could take the same message: the earlier one has it.  What neither could take passes both. */
static void
the_earlier_of_any_rank_and_any_tag_has_the_message(struct conform *c)
{
	int values[6] = {0}, own[2] = {8, 9};
	baton_request requests[6] = {0}, out[2];
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		requests[0] = conform_recv_int(c, &values[0], 1, TAG, gated);
		requests[1] = conform_recv_int(c, &values[1], ANY, 5, c->stream);
		requests[2] = conform_recv_int(c, &values[2], 1, 5, c->stream);
		requests[3] = conform_recv_int(c, &values[3], ANY, 5, c->stream);
		requests[4] = conform_recv_int(c, &values[4], 0, TAG, c->stream);
		requests[5] = conform_recv_int(c, &values[5], 1, TAG, c->stream);
		/* Of this rank, neither the first nor the third one waits for. */
		out[0] = SEND(c, &own[0], sizeof(int), 0, 5, c->stream,
		              &conform_detached);
		conform_finish_as(c, &requests[1], 0, 5);
		out[1] = SEND(c, &own[1], sizeof(int), 0, 5, c->stream,
		              &conform_detached);
		conform_finish_as(c, &requests[3], 0, 5);
		FINISH(c, BATON_OK, &out[0]);
		FINISH(c, BATON_OK, &out[1]);
		out[0] = SEND(c, &own[0], sizeof(int), 0, 6, c->stream,
		              &conform_detached);
		conform_finish_as(c, &requests[4], 0, 6);
		FINISH(c, BATON_OK, &out[0]);
	}
	conform_sync(c);
	if (c->rank == 1) {
		conform_send_ints(c, 3, (const int[]){7, 5, 8}, 0);
	} else if (c->rank == 0) {
		conform_gate_open(c, 0);
		conform_finish_as(c, &requests[0], 1, 7);
		conform_finish_as(c, &requests[2], 1, 5);
		conform_finish_as(c, &requests[5], 1, 8);
		CHECK_EQ(c, values[0], 1);
		CHECK_EQ(c, values[2], 2);
		CHECK_EQ(c, values[5], 3);
	}
}

/* It holds up receives, and nothing else. */
static void
an_unarmed_one_of_everything_holds_up_all_receives(struct conform *c)
{
	int values[4] = {0}, own = 4;
	baton_request requests[4], out = 0;
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		requests[0] = conform_recv_int(c, &values[0], ANY, TAG, gated);
		requests[1] = conform_recv_int(c, &values[1], 1, 5, c->stream);
		requests[2] = conform_recv_int(c, &values[2], ANY, 6, c->stream);
		requests[3] = conform_recv_int(c, &values[3], 1, TAG, c->stream);
		out = SEND(c, &own, sizeof(int), 1, 9, c->stream,
		           &conform_detached);
		FINISH(c, BATON_OK, &out);
	} else if (c->rank == 1) {
		requests[0] = conform_recv_int(c, &values[0], 0, 9, c->stream);
		conform_finish_as(c, &requests[0], 0, 9);
	}
	conform_sync(c);
	for (int k = 1; k < 4 && c->rank == 0; k++)
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[k], NULL));
	if (c->rank == 0)
		conform_gate_open(c, 0);
	if (c->rank == 1)
		conform_send_ints(c, 4, (const int[]){5, 5, 6, 7}, 0);
	for (int k = 0; k < 4 && c->rank == 0; k++) {
		conform_finish_as(c, &requests[k], 1, (const int[]){5, 5, 6, 7}[k]);
		CHECK_EQ(c, values[k], k + 1);
	}
}

/* Receives of all kinds, in one order: those that name a tag get its messages, the others what is left. */
static void
many_of_all_kinds_wait_at_once(struct conform *c)
{
	enum { N = 600 };
	int *values = conform_alloc(c, N * sizeof(*values));
	baton_request *requests = conform_alloc(c, N * sizeof(*requests));

	for (int k = 0; k < N && c->rank == 0; k++)
		requests[k] = conform_recv_int(c, &values[k], k % 3 ? 1 : ANY,
		                               k % 4 ? TAG : k % MANY_TAGS, c->stream);
	conform_sync(c);
	/* Each on a tag that its receive may take; so all match in the order of their issue. */
	for (int k = 0; k < N && c->rank == 1; k++)
		conform_send_int(c, k, 0, k % MANY_TAGS);
	for (int k = 0; k < N && c->rank == 0; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_EQ(c, values[k], k);
	}
}

/* All are there before; a receive that names a tag takes one from the middle. */
static void
many_messages_of_many_tags_wait(struct conform *c)
{
	enum { N = 600 };
	int *values = conform_alloc(c, N * sizeof(*values));
	baton_request *requests = conform_alloc(c, N * sizeof(*requests));
	int last = -1, named = -1;

	for (int k = 0; k < N && c->rank == 1; k++) {
		values[k] = k;
		requests[k] = SEND(c, &values[k], sizeof(int), 0, k, c->stream,
		                   &conform_detached);
	}
	if (c->rank == 0) {
		await_marker(c, N - 1);
		requests[0] = conform_recv_int(c, &named, 1, N / 2, c->stream);
		conform_finish_as(c, &requests[0], 1, N / 2);
	}
	for (int k = 0; k < N - 2 && c->rank == 0; k++) {
		struct baton_completion done = {.peer = 0};
		baton_request request = conform_recv_int(c, &values[k], 1, TAG, c->stream);

		if (!FINISH_AS(c, BATON_OK, &request, &done))
			break;
		CHECK(c, done.tag > last && done.tag != N / 2);
		CHECK_EQ(c, values[k], done.tag);
		last = done.tag;
	}
	for (int k = 0; k < N && c->rank == 1; k++)
		FINISH(c, BATON_OK, &requests[k]);
}

#define NEEDS .needs = BATON_CAP_ANY_TAG

const struct conform_case conform_any_order[] = {
	{CASE(receives_of_all_kinds_match_in_their_order), .ranks_min = 2, NEEDS},
	{CASE(an_earlier_armed_one_takes_its_message_first), .ranks_min = 2, NEEDS,
	  .streams = 2},
	{CASE(an_earlier_recv_that_names_its_tag_keeps_its_message), .ranks_min = 2, NEEDS,
	  .streams = 2},
	{CASE(long_messages_of_earlier_recvs_hide_none), .ranks_min = 2, NEEDS, .streams = 2},
	{CASE(a_message_that_was_passed_may_be_left_over), .ranks_min = 2, NEEDS,
	  .streams = 2, .comms = 2},
	{CASE(an_unarmed_one_holds_up_its_rank_alone), .ranks_min = 2, NEEDS, .streams = 2},
	{CASE(the_earlier_of_any_rank_and_any_tag_has_the_message), .ranks_min = 2, NEEDS,
	  .streams = 2},
	{CASE(an_unarmed_one_of_everything_holds_up_all_receives), .ranks_min = 2, NEEDS,
	  .streams = 2},
	{CASE(many_of_all_kinds_wait_at_once), .ranks_min = 2, NEEDS},
	{CASE(many_messages_of_many_tags_wait), .ranks_min = 2, NEEDS},
	CASES_END,
};
