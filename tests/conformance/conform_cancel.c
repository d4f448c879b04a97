/* SPDX-License-Identifier: BSD-3-Clause */
/* Cancel: an operation ends in CANCELED or as it would have, never both, and
 * matching shifts by one when it leaves its FIFO unissued (guarantees 3, 8). */
#include <string.h>

#include "harness.h"

static void
a_pending_recv_can_be_canceled(struct conform *c)
{
	struct baton_completion done = { 0 };
	baton_request request = 0, after = 0;
	int value = 0;

	if (c->rank == 1) {
		request = RECV(c, &value, sizeof(int), 0, 0, c->stream, NULL);
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
		CHECK_OK(c, baton_cancel(request));
		CHECK_STATUS(c, BATON_ERR_CANCELED,
		             baton_wait(request, conform_patience(c), &done));
		CHECK_EQ(c, done.flags, 0);
		/* Again, when it is over: nothing changes. */
		CHECK_OK(c, baton_cancel(request));
		FINISH(c, BATON_ERR_CANCELED, &request);
		/* The stream goes on. */
		FINISH(c, BATON_OK, &after);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	conform_sync(c);
	if (c->rank == 0) {
		value = 31;
		request = SEND(c, &value, sizeof(int), 1, 0, c->stream, NULL);
	} else if (c->rank == 1) {
		request = RECV(c, &value, sizeof(int), 0, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &request);
	CHECK_EQ(c, value, c->rank < 2 ? 31 : 0);
}

/* Five wait; the 2nd and the 4th go; the three messages find the others. */
static void
cancel_in_the_middle_of_a_fifo_shifts_the_matching(struct conform *c)
{
	baton_request requests[5] = { 0 };
	int values[5] = { 0 };

	if (c->rank == 1) {
		for (int i = 0; i < 5; i++)
			requests[i] = RECV(c, &values[i], sizeof(int), 0, 0,
			                   c->stream, &conform_detached);
		CHECK_OK(c, baton_cancel(requests[1]));
		CHECK_OK(c, baton_cancel(requests[3]));
		FINISH(c, BATON_ERR_CANCELED, &requests[1]);
		FINISH(c, BATON_ERR_CANCELED, &requests[3]);
	}
	conform_sync(c);
	for (int i = 0; i < 5 && c->rank < 2; i += 2) {
		if (c->rank == 0) {
			values[i] = 10 + i;
			requests[i] = SEND(c, &values[i], sizeof(int), 1, 0,
			                   c->stream, NULL);
		}
		FINISH(c, BATON_OK, &requests[i]);
		CHECK_EQ(c, values[i], 10 + i);
		CHECK_EQ(c, values[1] + values[3], 0);
	}
}

/* The record of the cancelled one may be in use again when its stream gets
 * there; nothing happens then but that the stream goes on. */
static void
the_trigger_of_a_canceled_operation_may_fire_later(struct conform *c)
{
	enum { N = 8 };
	baton_stream gated = conform_stream(c);
	baton_request gone[N] = { 0 }, after = 0, next = 0;
	int values[N] = { 0 }, value = 0;

	if (c->rank == 1) {
		conform_gate_launch(c, 0, gated);
		for (int i = 0; i < N; i++)
			gone[i] = RECV(c, &values[i], sizeof(int), 0, 0, gated,
			               NULL);
		CHECK_OK(c, baton_record(c->comm, gated, NULL, &after));
		for (int i = 0; i < N; i++) {
			CHECK_OK(c, baton_cancel(gone[i]));
			FINISH(c, BATON_ERR_CANCELED, &gone[i]);
		}
		CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	}
	conform_sync(c);
	for (int i = 0; i < 30; i++) {
		if (c->rank == 0) {
			value = i;
			next = SEND(c, &value, sizeof(int), 1, 0, c->stream,
			            NULL);
		} else if (c->rank == 1) {
			value = -1;
			next = RECV(c, &value, sizeof(int), 0, 0, c->stream,
			            NULL);
			if (i == 15)
				conform_gate_open(c, 0);
		}
		FINISH(c, BATON_OK, &next);
		CHECK_EQ(c, value, c->rank < 2 ? i : 0);
	}
	FINISH(c, BATON_OK, &after);
	for (int i = 0; i < N; i++)
		CHECK_EQ(c, values[i], 0);
}

static void
a_canceled_unarmed_operation_holds_its_fifo_no_longer(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	baton_request first = 0, second = 0;
	int values[2] = { 0, 0 };

	if (c->rank == 1) {
		conform_gate_launch(c, 0, gated);
		first = RECV(c, &values[0], sizeof(int), 0, 0, gated, NULL);
		second = RECV(c, &values[1], sizeof(int), 0, 0, c->stream,
		              NULL);
	} else if (c->rank == 0) {
		values[1] = 8;
		second = SEND(c, &values[1], sizeof(int), 1, 0, c->stream,
		              NULL);
	}
	conform_sync(c);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		CHECK_OK(c, baton_cancel(first));
		FINISH(c, BATON_ERR_CANCELED, &first);
	}
	FINISH(c, BATON_OK, &second);
	if (c->rank < 2)
		CHECK_EQ(c, values[1], 8);
}

static void
an_armed_operation_that_is_not_issued_can_be_canceled(struct conform *c)
{
	conform_lose_unissued(c, NULL);
}

static void
a_canceled_unarmed_send_is_never_sent(struct conform *c)
{
	baton_request lost = 0, next = 0;
	int value = 1, second = 2;

	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		lost = SEND(c, &value, sizeof(int), 1, 0, c->stream, NULL);
		next = SEND(c, &second, sizeof(int), 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_cancel(lost));
		FINISH(c, BATON_ERR_CANCELED, &lost);
		conform_gate_open(c, 0);
	} else if (c->rank == 1) {
		second = 0;
		next = RECV(c, &second, sizeof(int), 0, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &next);
	CHECK_EQ(c, second, 2);
}

/* Under way: taken back, or lent until the peer has it. */
static void
an_issued_send_is_taken_back_or_lent(struct conform *c)
{
	const size_t bytes = 4 * MIB;
	unsigned char *data = conform_filled(c, bytes, 6);
	struct baton_completion done = { 0 };
	baton_request request = 0;
	int lent = 0;

	if (c->rank == 0) {
		request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_cancel(request));
		CHECK_STATUS(c, BATON_ERR_CANCELED,
		             baton_wait(request, conform_patience(c), &done));
		lent = (done.flags & BATON_COMPLETION_LENT) != 0;
		CHECK_OK(c, baton_release(&request));
	}
	lent = c->backend->agree(c, lent);
	if (lent && c->rank == 1) {
		conform_set(c, data, 0, bytes);
		request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, data, bytes, 6);
	}
	conform_sync(c);
	conform_sound(c);
}

static void
what_has_ended_is_not_canceled(struct conform *c)
{
	struct baton_completion done = { 0 };
	baton_request request = 0;
	int value = 3;

	if (c->rank == 0)
		request = SEND(c, &value, sizeof(int), 1, 0, c->stream, NULL);
	else if (c->rank == 1)
		request = RECV(c, &value, sizeof(int), 0, 0, c->stream, NULL);
	else
		return;
	CHECK_OK(c, baton_wait(request, conform_patience(c), NULL));
	CHECK_OK(c, baton_cancel(request));
	CHECK_OK(c, baton_test(request, &done));
	CHECK_EQ(c, done.bytes, sizeof(int));
	FINISH(c, BATON_OK, &request);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_cancel(request));
}

static void
a_record_cannot_be_canceled(struct conform *c)
{
	baton_request request = 0;

	conform_gate_launch(c, 0, c->stream);
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &request));
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED, baton_cancel(request),
	              "record");
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &request);
}

static void
cancel_is_unsupported_where_none_can_end_alone(struct conform *c)
{
	baton_request request = 0;
	int value = 0;

	if (c->info.capabilities & BATON_CAP_CANCEL)
		return;
	if (c->rank == 1) {
		request = RECV(c, &value, sizeof(int), 0, 0, c->stream, NULL);
		CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED, baton_cancel(request),
		              "BATON_CAP_CANCEL");
	}
	conform_sync(c);
	if (c->rank == 0) {
		value = 6;
		request = SEND(c, &value, sizeof(int), 1, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &request);
	CHECK_EQ(c, value, c->rank < 2 ? 6 : 0);
}

static void
a_member_of_a_group_can_be_canceled(struct conform *c)
{
	baton_request requests[2] = { 0 }, after = 0;
	int in = 0, out = 9;

	if (c->rank == 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = RECV(c, &in, sizeof(int), 1, 0, c->stream, NULL);
		requests[1] = SEND(c, &out, sizeof(int), 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		FINISH(c, BATON_OK, &requests[1]);
		CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
		CHECK_OK(c, baton_cancel(requests[0]));
		FINISH(c, BATON_ERR_CANCELED, &requests[0]);
		FINISH(c, BATON_OK, &after);
	} else if (c->rank == 1) {
		requests[1] = RECV(c, &in, sizeof(int), 0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &requests[1]);
		CHECK_EQ(c, in, 9);
	}
}

/*
 * Message and cancel meet at every possible moment: each message is received
 * once, by the receive that was to be cancelled or by the one after it.  A
 * receive that has its message already ends as it would have.
 */
static void
cancel_never_loses_or_doubles_a_message(struct conform *c)
{
	static const size_t sizes[] = { 8, 3000, 70000 };
	unsigned char *data = conform_message(c, 70000);
	const unsigned n = conform_short() ? 150 : 600;
	struct baton_completion done;

	for (unsigned i = 0; i < n && c->rank < 2; i++) {
		size_t bytes = sizes[i % 3];
		baton_request request;
		enum baton_status status;

		if (c->rank == 0) {
			conform_write(c, data, bytes, i);
			request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
			if (!FINISH(c, BATON_OK, &request))
				break;
			continue;
		}
		conform_set(c, data, 0xff, bytes);
		request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
		for (unsigned spin = 0; spin < i % 7; spin++)
			(void)baton_test(request, NULL);
		CHECK_OK(c, baton_cancel(request));
		status = baton_wait(request, conform_patience(c), &done);
		if (status == BATON_ERR_CANCELED) {
			CHECK_EQ(c, done.flags, 0);
			CHECK_OK(c, baton_release(&request));
			request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		} else {
			FINISH(c, BATON_OK, &request);
		}
		if (!CHECK_FILLED(c, data, bytes, i))
			break;
	}
}

static void
a_thousand_cancels_leave_the_pool_whole(struct conform *c)
{
	baton_request request;
	unsigned char data[8];

	for (int i = 0; i < 1000; i++) {
		request = RECV(c, data, sizeof(data), c->rank, 0, c->stream,
		               i & 1 ? &conform_detached : NULL);
		CHECK_OK(c, baton_cancel(request));
		if (!FINISH(c, BATON_ERR_CANCELED, &request))
			return;
		/* The triggers of those may still fire: they keep their slots
		 * until the stream has passed them. */
		if (i % 8 == 7)
			CHECK_OK(c, baton_stream_synchronize(c->comm,
			                                     c->stream));
	}
	conform_sync(c);
	conform_sound(c);
}

const struct conform_case conform_cancel[] = {
	{ CASE(a_pending_recv_can_be_canceled), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(cancel_in_the_middle_of_a_fifo_shifts_the_matching),
	  .ranks_min = 2, .needs = BATON_CAP_CANCEL },
	{ CASE(the_trigger_of_a_canceled_operation_may_fire_later), .streams = 2,
	  .ranks_min = 2, .needs = BATON_CAP_CANCEL },
	{ CASE(a_canceled_unarmed_operation_holds_its_fifo_no_longer), .streams = 2,
	  .ranks_min = 2, .needs = BATON_CAP_CANCEL },
	{ CASE(an_armed_operation_that_is_not_issued_can_be_canceled), .streams = 2,
	  .ranks_min = 2, .needs = BATON_CAP_CANCEL },
	{ CASE(a_canceled_unarmed_send_is_never_sent), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(an_issued_send_is_taken_back_or_lent), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(what_has_ended_is_not_canceled), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(a_record_cannot_be_canceled) },
	{ CASE(cancel_is_unsupported_where_none_can_end_alone),
	  .ranks_min = 2 },
	{ CASE(a_member_of_a_group_can_be_canceled), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL | BATON_CAP_DIRECTIONS },
	{ CASE(cancel_never_loses_or_doubles_a_message), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(a_thousand_cancels_leave_the_pool_whole),
	  .needs = BATON_CAP_CANCEL | BATON_CAP_SELF, .requests_max = 8 },
	CASES_END,
};
