/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How puts end (guarantees 7 and 11): refused, canceled, aborted, in groups and queues, and beside messages.
 *
 * All ranks register a window in each case, as in conform_window.c.
 */
#include <stdlib.h>
#include <string.h>

#include "harness_onesided.h"

static void
bad_puts_are_refused(struct conform *c)
{
	static unsigned char data[128];
	const size_t huge = SIZE_MAX;
	const struct {
		const void *buffer;
		size_t count;
		int type, peer;
		size_t offset;
		int index, context;
		unsigned flags;
	} bad[] = {
		/* What lies behind the end, and what overflows to lie before. */
		{ data, 101, BATON_UINT8, 0, 0, 0, 0, 0 },
		{ data, 1, BATON_UINT8, 0, 100, 0, 0, 0 },
		{ data, 0, BATON_UINT8, 0, 101, 0, 0, 0 },
		{ data, 26, BATON_FLOAT32, 0, 0, 0, 0, 0 },
		{ data, 25, BATON_FLOAT32, 0, 1, 0, 0, 0 },
		{ data, 2, BATON_UINT8, 0, huge, 0, 0, 0 },
		{ data, 8, BATON_UINT8, 0, huge - 7, 0, 0, 0 },
		{ data, huge, BATON_UINT8, 0, 1, 0, 0, 0 },
		{ data, huge / 8 + 2, BATON_INT64, 0, 0, 0, 0, 0 },
		{ data, huge / 4 + 2, BATON_FLOAT32, 0, 0, 0, 0, 0 },
		/* The others, one after the other. */
		{ NULL, 1, BATON_UINT8, 0, 0, 0, 0, 0 },
		{ data, 1, BATON_DATATYPE_COUNT, 0, 0, 0, 0, 0 },
		{ data, 1, -1, 0, 0, 0, 0, 0 },
		{ data, 1, BATON_UINT8, -1, 0, 0, 0, 0 },
		{ data, 1, BATON_UINT8, c->size, 0, 0, 0, 0 },
		{ data, 1, BATON_UINT8, 0, 0, -1, 0, 0 },
		{ data, 1, BATON_UINT8, 0, 0, c->info.signals_max, 0, 0 },
		{ data, 1, BATON_UINT8, 0, 0, 0, -1, 0 },
		{ data, 1, BATON_UINT8, 0, 0, 0, c->info.contexts_max, 0 },
		{ data, 1, BATON_UINT8, 0, 0, 0, 0, 1 },
	};
	baton_request request = 99;
	struct conform_part part;

	if (!OPEN(c, &part, 100))
		return;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		enum baton_status status = baton_put_signal(
			bad[i].buffer, bad[i].count,
			(enum baton_datatype)bad[i].type, bad[i].peer,
			part.window, bad[i].offset, bad[i].index, bad[i].context,
			bad[i].flags, c->comm, c->stream, NULL, &request);

		if (!CHECK_STATUS(c, BATON_ERR_INVALID, status))
			CHECK_EQ(c, i, -1);
		CHECK(c, baton_last_error()[0] != '\0');
		CHECK(c, request == 99);
	}
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_put_signal(data, 1, BATON_UINT8, 0, NULL, 0, 0, 0, 0,
	                               c->comm, c->stream, NULL, &request),
	              "window");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_put_signal(data, 1, BATON_UINT8, 0, part.window, 0, 0,
	                              0, 0, NULL, c->stream, NULL, &request));
	CHECK(c, request == 99);
	conform_sync(c);
	CHECK_ALL(c, part.base, 100, 0);
	for (int i = 0; i < c->size; i++)
		CHECK(c, COUNT(c, i, 0, 0) == 0);
	CLOSE(c, &part);
}

/* Detached: no stream has it by itself, which could not be cancelled. */
static void
a_canceled_put_never_signals(struct conform *c)
{
	unsigned char *data = conform_filled(c, 64, 1);
	baton_request lost = 0, next = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 128))
		return;
	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		lost = PUT(c, data, 64, 1, part.window, 0, 0, 0, c->stream,
		           &conform_detached);
		next = PUT(c, data, 64, 1, part.window, 64, 1, 0, c->stream,
		           NULL);
		CHECK_OK(c, baton_cancel(lost));
		FINISH(c, BATON_ERR_CANCELED, &lost);
		conform_gate_open(c, 0);
		FINISH(c, BATON_OK, &next);
	}
	if (c->rank == 1) {
		AWAIT(c, 0, 1, 1, 0);
		CHECK_FILLED(c, part.base + 64, 64, 1);
		CHECK_ALL(c, part.base, 64, 0);
		CHECK(c, COUNT(c, 0, 0, 0) == 0);
	}
	CLOSE(c, &part);
}

/* Cancel meets a large put (detached, as above) at any moment: it ends in OK, and has signaled,
 * or in CANCELED, and has not. */
static void
a_put_that_is_canceled_under_way_signals_or_not(struct conform *c)
{
	const size_t bytes = 3 * MIB;
	const int rounds = CONFORM_SANITIZED ? 10 : 60;
	unsigned char *data = conform_filled(c, bytes, 5);
	struct conform_part part;
	int sent = 0, maybe = 0;
	bool by_message;

	if (!OPEN(c, &part, bytes))
		return;
	by_message = baton_window_path(part.window, 1) ==
	             BATON_WINDOW_PATH_MESSAGE;
	for (int i = 0; i < rounds && c->rank == 0; i++) {
		struct baton_completion done = { 0 };
		enum baton_status status;
		baton_request request = PUT(c, data, bytes, 1, part.window, 0, 0,
		                            0, c->stream, &conform_detached);

		for (int spin = 0; spin < i % 10; spin++)
			(void)baton_test(request, NULL);
		CHECK_OK(c, baton_cancel(request));
		status = baton_wait(request, conform_patience(c), &done);
		CHECK(c, status == BATON_OK || status == BATON_ERR_CANCELED);
		sent += status == BATON_OK;
		/* On the others nothing is ever lent, except to a copy of a device.
		 * There, that it is not lent does not say that it was not, a
		 * moment ago. */
		maybe += status != BATON_OK && by_message;
		CHECK(c, by_message || c->memory || done.flags == 0);
		/* The buffer, and the window, are free when it is not lent. */
		for (int64_t t = conform_begin();
		     (done.flags & BATON_COMPLETION_LENT) && STILL(c, t);)
			(void)baton_test(request, &done);
		CHECK_OK(c, baton_release(&request));
	}
	if (c->rank == 0) {
		baton_request last = PUT(c, data, 8, 1, part.window, 0, 1, 0,
		                         c->stream, NULL);

		FINISH(c, BATON_OK, &last);
	}
	sent = c->backend->agree(c, sent);
	maybe = c->backend->agree(c, maybe);
	if (c->rank == 1) {
		AWAIT(c, 0, 1, 1, 0);
		CHECK(c, COUNT(c, 0, 0, 0) >= (uint64_t)sent);
		CHECK(c, COUNT(c, 0, 0, 0) <= (uint64_t)(sent + maybe));
	}
	CLOSE(c, &part);
}

static void
abort_ends_pending_puts(struct conform *c)
{
	static unsigned char data[4 << 20];
	baton_stream gated = conform_stream(c);
	baton_request requests[2] = { 0 };
	enum baton_status status;
	struct conform_part part;

	if (!OPEN(c, &part, sizeof(data)))
		return;
	conform_gate_launch(c, 0, gated);
	requests[0] = PUT(c, data, sizeof(data), conform_next(c),
	                  part.window, 0, 0, 0, gated, NULL);
	requests[1] = PUT(c, data, sizeof(data), conform_next(c),
	                  part.window, 0, 0, 1, c->stream, NULL);
	CHECK_OK(c, baton_comm_abort(c->comm));
	FINISH(c, BATON_ERR_ABORTED, &requests[0]);
	status = baton_finish(&requests[1], conform_patience(c), NULL);
	CHECK(c, status == BATON_OK || status == BATON_ERR_ABORTED);
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_put_signal(data, 1, BATON_UINT8, 0, part.window, 0, 0,
	                              0, 0, c->comm, c->stream, NULL, NULL));
	conform_gate_open(c, 0);
	/* The others may still be putting into this rank's memory. */
	conform_sync(c);
	/* Local now. */
	CLOSE(c, &part);
}

/* ---- groups, queues ----------------------------------------------------- */

static void
an_exchange_by_puts_in_one_group_completes(struct conform *c)
{
	const size_t bytes = 200000;
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *data = conform_filled(c, bytes, (unsigned)c->rank);
	struct conform_part part;

	if (!OPEN(c, &part, bytes))
		return;
	for (int i = 0; i < 20; i++) {
		baton_request requests[2] = { 0 };

		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = WAIT(c, from, 1, 0, 0, c->stream, NULL);
		requests[1] = PUT(c, data, bytes, to, part.window, 0, 0, 0,
		                  c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		FINISH_ALL(c, requests, 2);
		CHECK_FILLED(c, part.base, bytes, (unsigned)from);
		/* Looked at before the next one comes. */
		conform_sync(c);
	}
	CLOSE(c, &part);
}

static void
puts_are_delivered_to_queues(struct conform *c)
{
	enum { N = 60 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	unsigned char *data = conform_filled(c, 40000, 2);
	int to = conform_next(c);
	int from = conform_previous(c);
	struct baton_completion done[8];
	struct baton_queue *queue = NULL;
	int seen[N] = { 0 };
	int64_t begin;
	struct conform_part part;

	if (!OPEN(c, &part, 40000))
		return;
	CHECK_OK(c, baton_queue_create(c->comm, N, &queue));
	options.queue = queue;
	for (int i = 0; i < N; i++) {
		options.user_data = (uint64_t)i;
		(void)PUT(c, data, (size_t)(i * 661 % 40000), to, part.window, 0,
		          i % 2, i % 2, c->stream, &options);
	}
	begin = conform_begin();
	for (int got = 0; got < N && STILL(c, begin);) {
		size_t n = baton_queue_poll(queue, done, 8);

		for (size_t i = 0; i < n; i++, got++) {
			CHECK_STATUS(c, BATON_OK, done[i].status);
			if (CHECK(c, done[i].user_data < N))
				seen[done[i].user_data]++;
		}
	}
	for (int i = 0; i < N; i++)
		CHECK_EQ(c, seen[i], 1);
	AWAIT(c, from, N / 2, 0, 0);
	AWAIT(c, from, N / 2, 1, 1);
	baton_queue_destroy(queue);
	CLOSE(c, &part);
}

/* Memory for a message beside puts.  With CONFORM_BUFFERS, whose kinds include pinned memory for
 * this, NCCL carries less than a put does: of the others only its own GPU's. */
static void *
beside_puts(struct conform *c, size_t bytes)
{
	return c->info.transport == BATON_TRANSPORT_NCCL &&
	                       getenv("CONFORM_BUFFERS")
	               ? conform_alloc_kind(c, CONFORM_KIND_PINNED, bytes)
	               : conform_message(c, bytes);
}

/* Puts, sends and receives at once do not disturb each other. */
static void
puts_and_messages_go_side_by_side(struct conform *c)
{
	enum { N = 60 };
	const size_t bytes = 30000;
	const int tags = c->info.capabilities & BATON_CAP_TAGS ? 4 : 1;
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *out = conform_filled(c, bytes, (unsigned)c->rank);
	unsigned char *sent = beside_puts(c, bytes);
	unsigned char *in = beside_puts(c, bytes * N);
	baton_request requests[3 * N] = { 0 };
	struct conform_part part;

	conform_write(c, sent, bytes, (unsigned)c->rank);
	if (!OPEN(c, &part, bytes * N))
		return;
	for (size_t i = 0; i < N; i++) {
		size_t length = i % 3 ? bytes : i;

		requests[3 * i] = RECV(c, in + i * bytes, length, from,
		                       (int)i % tags, c->stream,
		                       &conform_detached);
		requests[3 * i + 1] = PUT(c, out, length, to, part.window,
		                          i * bytes, (int)i % 4, (int)i % 4,
		                          c->stream, &conform_detached);
		requests[3 * i + 2] = SEND(c, sent, length, to, (int)i % tags,
		                           c->stream, &conform_detached);
	}
	FINISH_ALL(c, requests, (size_t)3 * N);
	for (int i = 0; i < 4; i++)
		AWAIT(c, from, N / 4, i, i);
	for (size_t i = 0; i < N; i++) {
		size_t length = i % 3 ? bytes : i;

		CHECK_FILLED(c, in + i * bytes, length, (unsigned)from);
		CHECK_FILLED(c, part.base + i * bytes, length, (unsigned)from);
	}
	CLOSE(c, &part);
}

const struct conform_case conform_puts_ends[] = {
	{ CASE(bad_puts_are_refused), .needs = BATON_CAP_WINDOWS },
	{ CASE(a_canceled_put_never_signals), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_put_that_is_canceled_under_way_signals_or_not),
	  .ranks_min = 2, .needs = BATON_CAP_WINDOWS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(abort_ends_pending_puts), .needs = BATON_CAP_WINDOWS },
	{ CASE(an_exchange_by_puts_in_one_group_completes),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(puts_are_delivered_to_queues), .needs = BATON_CAP_WINDOWS },
	{ CASE(puts_and_messages_go_side_by_side),
	  .needs = BATON_CAP_WINDOWS | BATON_CAP_SELF },
	CASES_END,
};
