/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines: guarantee 8.  Either the clock is stopped and moved by hand, or a
 * short real deadline is waited for, however long that takes. */
#include <string.h>

#include "harness.h"

static struct baton_op_options
within(int64_t timeout_ns)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.timeout_ns = timeout_ns;
	return options;
}

/* Return when all deadlines that the clock had passed at the call have been seen to
 * pass.  (A number of calls of baton_progress would not do: each makes a pass only
 * if no other thread drives.)  A receive whose deadline is later than all of theirs
 * ends after them; it is armed at some time of the stopped clock, which is moved on
 * by nanoseconds until it is past. */
static void
step(struct conform *c)
{
	struct baton_op_options options = within(1);
	baton_stream stream = NULL;
	baton_request last = 0;
	unsigned char byte;

	CHECK_OK(c, baton_stream_create(c->comm, &stream));
	last = RECV(c, &byte, 1, c->rank, 0, stream, &options);
	while (baton_wait(last, MS, NULL) == BATON_PENDING)
		conform_clock_advance(1);
	FINISH(c, BATON_ERR_TIMEOUT, &last);
	CHECK_OK(c, baton_stream_synchronize(c->comm, stream));
	CHECK_OK(c, baton_stream_destroy(c->comm, stream));
}

/* ---- when it runs ------------------------------------------------------- */

static void
a_deadline_runs_from_the_moment_of_arming(struct conform *c)
{
	struct baton_op_options soon = within(5 * MS);
	baton_request request, armed = 0;
	unsigned char data[8];
	char why[200] = "";

	soon.flags = BATON_OP_DETACHED;
	if (c->rank != 0)
		return;
	conform_clock_stop();
	conform_gate_launch(c, 0, c->stream);
	request = RECV(c, data, sizeof(data), 0, 0, c->stream, &soon);
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &armed));
	conform_clock_advance(10000 * MS);
	step(c);
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &armed);
	conform_clock_advance(4 * MS);
	step(c);
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	conform_clock_advance(2 * MS);
	step(c);
	CHECK_STATUS(c, BATON_ERR_TIMEOUT, baton_test(request, NULL));
	CHECK_OK(c, baton_request_error(request, why, sizeof(why)));
	CHECK(c, why[0] != '\0');
	FINISH(c, BATON_ERR_TIMEOUT, &request);
}

static void
deadlines_pass_each_at_its_own_time(struct conform *c)
{
	enum { N = 100 };
	baton_request requests[N];
	unsigned char data[8];

	if (c->rank != 0)
		return;
	conform_clock_stop();
	/* In no order: 1 to 100 ms. */
	for (int i = 0; i < N; i++) {
		struct baton_op_options options =
			within((i * 37 % N + 1) * MS);

		options.flags = BATON_OP_DETACHED;
		requests[i] = RECV(c, data, sizeof(data), 0, i, c->stream,
		                   &options);
	}
	/* All are armed: their clocks run. */
	CHECK_STATUS(c, BATON_OK, baton_stream_synchronize(c->comm, c->stream));
	for (int now = 10; now <= N; now += 10) {
		conform_clock_advance(10 * MS);
		/* Past each by half a millisecond. */
		if (now == 10)
			conform_clock_advance(MS / 2);
		step(c);
		for (int i = 0; i < N; i++)
			CHECK_STATUS(c,
			             i * 37 % N + 1 <= now ? BATON_ERR_TIMEOUT
			                                   : BATON_PENDING,
			             baton_test(requests[i], NULL));
	}
	for (int i = 0; i < N; i++)
		FINISH(c, BATON_ERR_TIMEOUT, &requests[i]);
}

static void
a_deadline_that_is_kept_changes_nothing(struct conform *c)
{
	struct baton_op_options long_enough = within(3600 * 1000 * MS);
	baton_request request = 0;
	unsigned char data[5000] = { 0 };

	for (int i = 0; i < 100; i++) {
		if (c->rank == 0)
			request = SEND(c, data, sizeof(data), 1, 0, c->stream,
			               &long_enough);
		else if (c->rank == 1)
			request = RECV(c, data, sizeof(data), 0, 0, c->stream,
			               &long_enough);
		FINISH(c, BATON_OK, &request);
	}
}

/* ---- receives ----------------------------------------------------------- */

static void
an_issued_recv_times_out(struct conform *c)
{
	static const size_t sizes[] = { 8, 2048, 100000, 8 * MIB };
	struct baton_op_options soon = within(2 * MS);
	struct baton_completion done = { 0 };
	baton_request request = 0, after = 0;

	for (unsigned i = 0; i < 4; i++) {
		unsigned char *data = conform_message(c, sizes[i]);

		if (c->rank == 1) {
			request = RECV(c, data, sizes[i], 0, 0, c->stream,
			               &soon);
			CHECK_OK(c, baton_record(c->comm, c->stream, NULL,
			                         &after));
			FINISH_AS(c, BATON_ERR_TIMEOUT, &request, &done);
			CHECK_EQ(c, done.flags, 0);
			/* Its stream goes on. */
			FINISH(c, BATON_OK, &after);
			CHECK_OK(c, baton_stream_synchronize(c->comm,
			                                     c->stream));
		}
		conform_sync(c);
		/* What comes later is the next one's. */
		if (c->rank == 0) {
			conform_write(c, data, sizes[i], i);
			request = SEND(c, data, sizes[i], 1, 0, c->stream,
			               NULL);
		} else if (c->rank == 1) {
			request = RECV(c, data, sizes[i], 0, 0, c->stream,
			               NULL);
		}
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, data, c->rank < 2 ? sizes[i] : 0, i);
		conform_sync(c);
	}
}

/* Armed, but held by its FIFO: the deadline runs, and the next takes the place. */
static void
an_armed_recv_that_is_not_issued_times_out(struct conform *c)
{
	struct baton_op_options soon = within(2 * MS);
	baton_stream gated = conform_stream(c);
	baton_request requests[3] = { 0 };
	int values[3] = { 0, 0, 0 };

	soon.flags = BATON_OP_DETACHED;
	if (c->rank == 1) {
		conform_gate_launch(c, 0, gated);
		requests[0] = RECV(c, &values[0], sizeof(int), 0, 0, gated,
		                   NULL);
		requests[1] = RECV(c, &values[1], sizeof(int), 0, 0, c->stream,
		                   &soon);
		requests[2] = RECV(c, &values[2], sizeof(int), 0, 0, c->stream,
		                   NULL);
		FINISH(c, BATON_ERR_TIMEOUT, &requests[1]);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[2], NULL));
		conform_gate_open(c, 0);
	} else if (c->rank == 0) {
		values[0] = 1, values[2] = 2;
		requests[0] = SEND(c, &values[0], sizeof(int), 1, 0, c->stream,
		                   NULL);
		requests[2] = SEND(c, &values[2], sizeof(int), 1, 0, c->stream,
		                   NULL);
	}
	FINISH(c, BATON_OK, &requests[0]);
	FINISH(c, BATON_OK, &requests[2]);
	if (c->rank < 2) {
		CHECK_EQ(c, values[0], 1);
		CHECK_EQ(c, values[1], 0);
		CHECK_EQ(c, values[2], 2);
	}
}

/* ---- sends -------------------------------------------------------------- */

static void
a_send_that_times_out_unissued_is_never_sent(struct conform *c)
{
	const struct baton_op_options soon = within(2 * MS);

	conform_lose_unissued(c, &soon);
}

/* Its peer is of this process, or shares memory with it, as all do where there are no other messages; what
 * is staged may be under way. */
static bool
takes_sends_back(const struct conform *c)
{
	return c->info.transport == BATON_TRANSPORT_LOCAL ||
	       (c->info.message_paths == BATON_MESSAGE_PATH_NEAR &&
	        c->info.device == BATON_DEVICE_HOST);
}

/*
 * A send that is under way either is taken back, and its peer never sees it,
 * or stays lent until the peer has taken it.
 */
static void
an_issued_send_times_out_taken_back_or_lent(struct conform *c)
{
	const size_t bytes = 8 * MIB;
	struct baton_op_options soon = within(2 * MS);
	struct baton_completion done = { 0 };
	unsigned char *data = conform_message(c, bytes);
	baton_request request = 0, after = 0;
	int lent = 0;

	if (c->rank == 0) {
		conform_write(c, data, bytes, 1);
		request = SEND(c, data, bytes, 1, 0, c->stream, &soon);
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
		CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		             baton_wait(request, conform_patience(c), &done));
		FINISH(c, BATON_OK, &after);
		lent = (done.flags & BATON_COMPLETION_LENT) != 0;
		CHECK_EQ(c, lent, !takes_sends_back(c));
	}
	lent = c->backend->agree(c, lent);
	if (lent && c->rank == 1) {
		request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, data, bytes, 1);
	} else if (lent && c->rank == 0) {
		int64_t begin = conform_begin();

		/* How it ended does not change; the bit does. */
		do
			CHECK_STATUS(c, BATON_ERR_TIMEOUT,
			             baton_test(request, &done));
		while ((done.flags & BATON_COMPLETION_LENT) && STILL(c, begin));
	}
	if (c->rank == 0)
		CHECK_OK(c, baton_release(&request));
	conform_sync(c);
	conform_sound(c);
}

/* The handle of a lent send may go before its buffer comes back. */
static void
a_lent_request_may_be_released(struct conform *c)
{
	const size_t bytes = MIB;
	struct baton_op_options soon = within(2 * MS);
	unsigned char *data = conform_filled(c, bytes, 3);
	baton_request request = 0;

	for (int round = 0; round < 10; round++) {
		if (c->info.transport != BATON_TRANSPORT_MPI ||
		    takes_sends_back(c))
			break;
		if (c->rank == 0) {
			request = SEND(c, data, bytes, 1, 0, c->stream, &soon);
			FINISH(c, BATON_ERR_TIMEOUT, &request);
		}
		conform_sync(c);
		if (c->rank == 1) {
			conform_set(c, data, 0, bytes);
			request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
			CHECK_FILLED(c, data, bytes, 3);
		}
		conform_sync(c);
	}
	conform_sound(c);
}

/* ---- the communicator's deadline ---------------------------------------- */

static void
the_communicators_deadline_is_the_default(struct conform *c)
{
	struct baton_op_options never = within(-1), own = within(1 * MS);
	baton_request by_default, by_never, by_own;
	unsigned char data[4][8];

	if (c->rank != 0)
		return;
	conform_clock_stop();
	never.flags = own.flags = BATON_OP_DETACHED;
	by_default = RECV(c, data[0], 8, 0, 0, c->stream, &conform_detached);
	by_never = RECV(c, data[1], 8, 0, 0, c->stream, &never);
	by_own = RECV(c, data[2], 8, 0, 0, c->stream, &own);
	CHECK_STATUS(c, BATON_OK, baton_stream_synchronize(c->comm, c->stream));
	conform_clock_advance(2 * MS);
	step(c);
	CHECK_STATUS(c, BATON_PENDING, baton_test(by_default, NULL));
	CHECK_STATUS(c, BATON_PENDING, baton_test(by_never, NULL));
	FINISH(c, BATON_ERR_TIMEOUT, &by_own);
	conform_clock_advance(6000 * MS);
	step(c);
	FINISH(c, BATON_ERR_TIMEOUT, &by_default);
	conform_clock_advance(3600 * 1000 * MS);
	step(c);
	CHECK_STATUS(c, BATON_PENDING, baton_test(by_never, NULL));
	CHECK_OK(c, baton_cancel(by_never));
	FINISH(c, BATON_ERR_CANCELED, &by_never);
}

/* ---- errors that nobody observes ---------------------------------------- */

static void
synchronize_returns_an_unobserved_error_once(struct conform *c)
{
	struct baton_op_options soon = within(1 * MS);
	baton_stream other = conform_stream(c);
	baton_request request;
	unsigned char data[8];

	if (c->rank != 0)
		return;
	CHECK_OK(c, baton_recv(data, 8, BATON_UINT8, 0, 0, c->comm, c->stream,
	                       &soon, NULL));
	CHECK_STATUS(c, BATON_ERR_TIMEOUT,
	             baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));

	request = RECV(c, data, 8, 0, 0, c->stream, &soon);
	CHECK_OK(c, baton_release(&request));
	CHECK_OK(c, baton_stream_synchronize(c->comm, other));
	CHECK_STATUS(c, BATON_ERR_TIMEOUT,
	             baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
}

static void
synchronize_does_not_repeat_an_observed_error(struct conform *c)
{
	struct baton_op_options soon = within(1 * MS);
	baton_request request;
	unsigned char data[8];

	if (c->rank != 0)
		return;
	request = RECV(c, data, 8, 0, 0, c->stream, &soon);
	CHECK_STATUS(c, BATON_ERR_TIMEOUT,
	             baton_wait(request, conform_patience(c), NULL));
	CHECK_OK(c, baton_release(&request));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
}

/* ---- where no operation can end alone ----------------------------------- */

static void
a_deadline_that_passes_breaks_a_stream_issued_communicator(struct conform *c)
{
	struct baton_op_options soon = within(2 * MS);
	baton_request request, second;
	unsigned char data[16];

	if (c->info.capabilities & BATON_CAP_CANCEL)
		return;
	if (c->rank == 1) {
		request = RECV(c, data, 8, 0, 0, c->stream, &soon);
		second = RECV(c, data + 8, 8, 0, 0, c->stream, NULL);
		FINISH(c, BATON_ERR_TIMEOUT, &request);
		CHECK(c, baton_wait(second, conform_patience(c), NULL) < 0);
		CHECK_OK(c, baton_release(&second));
		CHECK(c, baton_comm_status(c->comm) != BATON_OK);
		CHECK(c, baton_comm_error(c->comm)[0] != '\0');
	}
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(c->comm));
}

const struct conform_case conform_timeout[] = {
	{ CASE(a_deadline_runs_from_the_moment_of_arming), .streams = 2,
	  .needs = BATON_CAP_CANCEL, .flags = CONFORM_STEP },
	{ CASE(deadlines_pass_each_at_its_own_time), .flags = CONFORM_STEP,
	  .needs = BATON_CAP_CANCEL | BATON_CAP_TAGS },
	{ CASE(a_deadline_that_is_kept_changes_nothing), .ranks_min = 2 },
	{ CASE(an_issued_recv_times_out), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(an_armed_recv_that_is_not_issued_times_out), .streams = 2, .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(a_send_that_times_out_unissued_is_never_sent), .streams = 2, .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(an_issued_send_times_out_taken_back_or_lent), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL },
	{ CASE(a_lent_request_may_be_released), .ranks_min = 2,
	  .needs = BATON_CAP_CANCEL, .requests_max = 8 },
	{ CASE(the_communicators_deadline_is_the_default),
	  .flags = CONFORM_STEP, .needs = BATON_CAP_CANCEL,
	  .timeout_ns = 5000 * MS },
	{ CASE(synchronize_returns_an_unobserved_error_once),
	  .needs = BATON_CAP_CANCEL },
	{ CASE(synchronize_does_not_repeat_an_observed_error),
	  .needs = BATON_CAP_CANCEL },
	{ CASE(a_deadline_that_passes_breaks_a_stream_issued_communicator),
	  .ranks_min = 2 },
	CASES_END,
};
