/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of any tag (BATON_ANY_TAG), of one rank and of any: which message each gets, and how they end
 * (guarantee 3).  Their order among other receives: conform_any_order.c. */

#include "open_receives.h"

#define TAG BATON_ANY_TAG

/* ---- which message ------------------------------------------------------ */

/* Those of one rank in the order of their issue, whatever their tags; some are there before the receives. */
static void
messages_of_one_rank_are_taken_in_their_order(struct conform *c)
{
	enum { N = 24 };
	int values[N];
	baton_request requests[N];

	if (c->rank == 1) {
		for (int k = 0; k < N; k++)
			conform_send_int(c, k, 0, 7 * k % 11);
	} else if (c->rank == 0) {
		for (int k = 0; k < N; k++)
			requests[k] = conform_recv_int(c, &values[k],
			                               k % 3 ? 1 : ANY, TAG, c->stream);
		for (int k = 0; k < N; k++) {
			conform_finish_as(c, &requests[k], 1, 7 * k % 11);
			CHECK_EQ(c, values[k], k);
		}
	}
}

/* Of several ranks: all that each has sent, in its order. */
static void
any_rank_and_any_tag_take_all(struct conform *c)
{
	enum { EACH = 8, MOST = 8 * EACH };
	const int n = EACH * (c->size - 1 < 8 ? c->size - 1 : 8);
	int values[MOST], counts[MOST / EACH + 1] = {0};
	baton_request requests[MOST];

	for (int k = 0; k < EACH && c->rank > 0 && c->rank <= 8; k++)
		conform_send_int(c, 100 * c->rank + k, 0, k % 3);
	for (int i = 0; i < n && c->rank == 0; i++)
		requests[i] = conform_recv_int(c, &values[i], ANY, TAG, c->stream);
	for (int i = 0; i < n && c->rank == 0; i++) {
		struct baton_completion done = {.peer = 0};

		if (!FINISH_AS(c, BATON_OK, &requests[i], &done))
			break;
		CHECK(c, done.peer > 0 && done.peer < c->size);
		CHECK_EQ(c, done.bytes, sizeof(int));
		CHECK_EQ(c, done.tag, counts[done.peer] % 3);
		CHECK_EQ(c, values[i], 100 * done.peer + counts[done.peer]++);
	}
}

static void
messages_of_all_lengths_may_have_any_tag(struct conform *c)
{
	conform_all_lengths(c, true, 0, TAG);
	conform_sync(c);
	conform_all_lengths(c, false, 0, TAG);
	conform_sync(c);
	conform_all_lengths(c, false, ANY, TAG);
}

/* Both come while the receives wait; a short one has its bytes with it, a long one need not. */
static void
two_of_two_lengths(struct conform *c, const size_t bytes[2])
{
	baton_request requests[2] = {0};
	void *buffers[2];

	for (int k = 0; k < 2 && c->rank == 0; k++) {
		buffers[k] = conform_message(c, MIB);
		requests[k] = RECV(c, buffers[k], MIB, k ? ANY : 1, TAG,
		                   c->stream, &conform_detached);
	}
	conform_sync(c);
	for (int k = 0; k < 2 && c->rank == 1; k++) {
		buffers[k] = conform_filled(c, bytes[k], (unsigned)k);
		requests[k] = SEND(c, buffers[k], bytes[k], 0, 5 + k, c->stream,
		                   &conform_detached);
	}
	for (int k = 0; k < 2 && c->rank == 0; k++) {
		conform_finish_as(c, &requests[k], 1, 5 + k);
		CHECK_FILLED(c, buffers[k], bytes[k], (unsigned)k);
	}
	for (int k = 0; k < 2 && c->rank == 1; k++)
		FINISH(c, BATON_OK, &requests[k]);
}

static void
a_short_message_does_not_overtake_a_long_one(struct conform *c)
{
	two_of_two_lengths(c, (const size_t[]){MIB, 8});
}

/* Also where the short one is copied to another buffer first. */
static void
a_long_message_does_not_overtake_a_short_one(struct conform *c)
{
	for (int round = 0; round < 8; round++)
		two_of_two_lengths(c, (const size_t[]){64, MIB});
}

static void
a_longer_message_of_any_tag_ends_in_truncated(struct conform *c)
{
	const size_t long_ones[] = {16, 4096, MIB};

	for (size_t i = 0; i < 3; i++) {
		size_t bytes = long_ones[i];
		struct baton_completion done = {.peer = 0};
		baton_request request = BATON_REQUEST_NULL;

		if (c->rank == 1) {
			request = RECV(c, conform_message(c, bytes), bytes / 2,
			               0, TAG, c->stream, NULL);
			FINISH_AS(c, BATON_ERR_TRUNCATED, &request, &done);
			CHECK_EQ(c, done.bytes, bytes);
			CHECK_EQ(c, done.tag, 3);
		} else if (c->rank == 0) {
			request = SEND(c, conform_filled(c, bytes, 1), bytes, 1,
			               3, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		}
	}
	conform_sound(c);
}

static void
a_message_to_oneself_may_have_any_tag(struct conform *c)
{
	int got[2] = {0}, sent[2] = {10 + c->rank, 20 + c->rank};
	baton_request in[2], out[2];

	in[0] = conform_recv_int(c, &got[0], c->rank, TAG, c->stream);
	for (int k = 0; k < 2; k++)
		out[k] = SEND(c, &sent[k], sizeof(int), c->rank, 4 + k,
		              c->stream, &conform_detached);
	in[1] = conform_recv_int(c, &got[1], ANY, TAG, c->stream);
	for (int k = 0; k < 2; k++) {
		conform_finish_as(c, &in[k], c->rank, 4 + k);
		FINISH(c, BATON_OK, &out[k]);
		CHECK_EQ(c, got[k], sent[k]);
	}
}

/* ---- ends ---------------------------------------------------------------- */

static void
one_of_any_tag_that_is_canceled_leaves_its_place(struct conform *c)
{
	static const int named[][2] = {{1, TAG}, {1, 5}, {ANY, TAG}, {ANY, 5}, {1, TAG}, {1, 5}};
	struct baton_completion done = {.peer = 0};
	int values[6] = {0};
	baton_request requests[6];

	for (int k = 0; k < 6 && c->rank == 0; k++)
		requests[k] = conform_recv_int(c, &values[k], named[k][0], named[k][1],
		                               c->stream);
	for (int k = 0; k < 5 && c->rank == 0; k += 2) {
		CHECK_OK(c, baton_cancel(requests[k]));
		FINISH_AS(c, BATON_ERR_CANCELED, &requests[k], &done);
		CHECK_EQ(c, done.peer, named[k][0]);
		CHECK_EQ(c, done.tag, TAG);
		CHECK_EQ(c, done.flags, 0);
		CHECK_EQ(c, done.bytes, 0);
	}
	conform_sync(c);
	for (int k = 1; k < 6 && c->rank == 1; k += 2)
		conform_send_int(c, k, 0, 5);
	for (int k = 1; k < 6 && c->rank == 0; k += 2) {
		conform_finish_as(c, &requests[k], 1, 5);
		CHECK_EQ(c, values[k], k);
	}
}

static void
one_of_any_tag_that_times_out_leaves_its_place(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int values[2] = {0};
	baton_request requests[2];

	options.timeout_ns = 5 * MS;
	options.flags = BATON_OP_DETACHED;
	if (c->rank == 0) {
		requests[0] = RECV(c, &values[0], sizeof(int), 1, TAG, c->stream,
		                   &options);
		requests[1] = conform_recv_int(c, &values[1], 1, 5, c->stream);
		FINISH(c, BATON_ERR_TIMEOUT, &requests[0]);
	}
	conform_sync(c);
	if (c->rank == 1)
		conform_send_int(c, 9, 0, 5);
	if (c->rank == 0) {
		conform_finish_as(c, &requests[1], 1, 5);
		CHECK_EQ(c, values[1], 9);
	}
}

static void
an_abort_ends_those_of_any_tag(struct conform *c)
{
	struct baton_comm *own = conform_exchange(c, NULL);
	static const int tags[] = {TAG, TAG, 5, 5, TAG};
	int values[5] = {0};
	baton_request requests[5];

	for (int k = 0; k < 5; k++)
		requests[k] = conform_recv_int(c, &values[k], k % 2 ? ANY : conform_next(c),
		                               tags[k], c->stream);
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int k = 0; k < 5; k++)
		FINISH(c, BATON_ERR_ABORTED, &requests[k]);
	/* A rank that destroys it would be gone to one that has not aborted yet. */
	conform_sync(c);
	RESTORE(c, own);
	conform_sound(c);
}

/* ---- with the rest of the interface --------------------------------------- */

static void
a_group_may_receive_any_tag(struct conform *c)
{
	int got[2] = {-1, -1}, sent = c->rank;
	baton_request in[2] = {0}, out[2] = {0};

	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_recv(&got[0], sizeof(int), BATON_UINT8,
	                       conform_previous(c), TAG, c->comm, c->stream, NULL,
	                       &in[0]));
	CHECK_OK(c, baton_recv(&got[1], sizeof(int), BATON_UINT8, ANY, TAG,
	                       c->comm, c->stream, NULL, &in[1]));
	for (int k = 0; k < 2; k++)
		CHECK_OK(c, baton_send(&sent, sizeof(int), BATON_UINT8,
		                       conform_next(c), 8 + k, c->comm, c->stream,
		                       NULL, &out[k]));
	CHECK_OK(c, baton_group_end(c->comm));
	for (int k = 0; k < 2; k++) {
		conform_finish_as(c, &in[k], conform_previous(c), 8 + k);
		FINISH(c, BATON_OK, &out[k]);
		CHECK_EQ(c, got[k], conform_previous(c));
	}
}

static void
a_plan_may_receive_any_tag(struct conform *c)
{
	struct baton_plan *plan = NULL;
	int got = -1, sent = c->rank;

	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_OK(c, baton_send(&sent, sizeof(sent), BATON_UINT8, conform_next(c),
	                       9, c->comm, c->stream, &conform_detached, NULL));
	CHECK_OK(c, baton_recv(&got, sizeof(got), BATON_UINT8,
	                       conform_previous(c), TAG, c->comm, c->stream,
	                       &conform_detached, NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	conform_launch_thrice(c, plan, &got);
	CHECK_OK(c, baton_plan_destroy(plan));
}

/* The library's own messages are no messages. */
static void
signals_and_barriers_are_nobodys_message(struct conform *c)
{
	int value = 0;
	baton_request request = 0, others[3] = {0};

	if (c->rank == 0)
		request = conform_recv_int(c, &value, ANY, TAG, c->stream);
	CHECK_OK(c, baton_signal(conform_next(c), 0, 0, 0, c->comm, c->stream, NULL,
	                         &others[0]));
	CHECK_OK(c, baton_wait_signal(1,
	                              &(struct baton_wait_signal_desc){
					      .peer = conform_previous(c), .op_count = 1},
	                              c->comm, c->stream, NULL, &others[1]));
	CHECK_OK(c, baton_barrier(c->comm, c->stream, NULL, &others[2]));
	for (int k = 0; k < 3; k++)
		FINISH(c, BATON_OK, &others[k]);
	conform_sync(c);
	if (c->rank == 1)
		conform_send_int(c, 6, 0, 2);
	if (c->rank == 0) {
		conform_finish_as(c, &request, 1, 2);
		CHECK_EQ(c, value, 6);
	}
}

static void
a_list_of_tensors_may_have_any_tag(struct conform *c)
{
	struct baton_completion done = {.peer = -1};
	float *data = conform_message(c, 6 * sizeof(float));
	struct baton_tensor tensor = {
		.data = data, .type = BATON_FLOAT32, .rank = 2, .shape = {2, 3}};
	baton_request request = 0;

	for (unsigned k = 0; k < 3; k++) {
		if (c->rank == 0) {
			conform_write(c, data, 6 * sizeof(float), k);
			CHECK_OK(c, baton_send_tensors(&tensor, 1, 1, 2 + (int)k,
			                               c->comm, c->stream, NULL,
			                               &request));
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1 && k < 2) {
			CHECK_OK(c, baton_recv_tensors(&tensor, 1, k ? ANY : 0,
			                               TAG, c->comm, c->stream,
			                               NULL, &request));
			FINISH_AS(c, BATON_OK, &request, &done);
			CHECK_EQ(c, done.peer, 0);
			CHECK_EQ(c, done.tag, 2 + (int)k);
			CHECK_FILLED(c, data, 6 * sizeof(float), k);
		} else if (c->rank == 1) {
			/* A plain receive meets it in MISMATCH. */
			request = RECV(c, data, 6 * sizeof(float), 0, TAG,
			               c->stream, NULL);
			FINISH(c, BATON_ERR_MISMATCH, &request);
		}
	}
	/* A receive from any rank and of any tag would meet what ranks that are done send next. */
	conform_sync(c);
	conform_sound(c);
}

/* ---- refusals -------------------------------------------------------------- */

static void
any_tag_is_for_receives_where_the_paths_tell_what_came(struct conform *c)
{
	int value = 0;
	baton_request request = 0;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send(&value, 1, BATON_INT32, 0, TAG, c->comm,
	                         c->stream, NULL, &request),
	              "tag -1 BATON_ANY_TAG receives");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv(&value, 1, BATON_INT32, 0, -2, c->comm,
	                         c->stream, NULL, &request),
	              "tag -2 tags");
	if (!(c->info.capabilities & BATON_CAP_ANY_TAG) &&
	    baton_message_path(c->comm, 0) != BATON_MESSAGE_PATH_NEAR)
		CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
		              baton_recv(&value, 1, BATON_INT32, 0, TAG, c->comm,
		                         c->stream, NULL, &request),
		              "BATON_ANY_TAG tell");
	CHECK_EQ(c, request, 0);
}

#define NEEDS .needs = BATON_CAP_ANY_TAG

const struct conform_case conform_any_tag[] = {
	{CASE(messages_of_one_rank_are_taken_in_their_order), .ranks_min = 2, NEEDS},
	{CASE(any_rank_and_any_tag_take_all), .ranks_min = 2, NEEDS},
	{CASE(messages_of_all_lengths_may_have_any_tag), .ranks_min = 2, NEEDS},
	{CASE(a_short_message_does_not_overtake_a_long_one), .ranks_min = 2, NEEDS},
	{CASE(a_long_message_does_not_overtake_a_short_one), .ranks_min = 2, NEEDS},
	{CASE(a_longer_message_of_any_tag_ends_in_truncated), .ranks_min = 2, NEEDS},
	{CASE(a_message_to_oneself_may_have_any_tag), NEEDS},
	{CASE(one_of_any_tag_that_is_canceled_leaves_its_place), .ranks_min = 2, NEEDS},
	{CASE(one_of_any_tag_that_times_out_leaves_its_place), .ranks_min = 2, NEEDS},
	{CASE(an_abort_ends_those_of_any_tag), NEEDS, .comms = 2},
	{CASE(a_group_may_receive_any_tag), NEEDS},
	{CASE(a_plan_may_receive_any_tag), NEEDS},
	{CASE(signals_and_barriers_are_nobodys_message), .ranks_min = 2,
	  .needs = BATON_CAP_ANY_TAG | BATON_CAP_SIGNALS},
	{CASE(a_list_of_tensors_may_have_any_tag), .ranks_min = 2,
	  .needs = BATON_CAP_ANY_TAG | BATON_CAP_TENSORS},
	{CASE(any_tag_is_for_receives_where_the_paths_tell_what_came)},
	CASES_END,
};
