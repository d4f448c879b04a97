/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts without a signal, flushes, gets, and atomic operations on a window's words.
 *
 * All ranks register a window in each case.  Ranks tell each other by the harness that they
 * have got so far (conform_sync): that is how a program would that has flushed.
 */
#include <stdint.h>
#include <string.h>

#include "harness_onesided.h"

/* ---- shorter calls ------------------------------------------------------ */

static void
put_detached(struct conform *c, const void *data, size_t bytes, int peer,
             const struct conform_part *part, size_t at, int context,
             const struct baton_op_options *options)
{
	CHECK_OK(c, baton_put(data, bytes, BATON_UINT8, peer, part->window, at,
	                      context, 0, c->comm, c->stream, options, NULL));
}

static baton_request
flush(struct conform *c, int peer, const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_flush(peer, 0, c->comm, c->stream, options, &request));
	return request;
}

static baton_request
get_detached(struct conform *c, void *data, size_t bytes, int peer,
             const struct conform_part *part, size_t at, int context,
             const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_get(data, bytes, BATON_UINT8, peer, part->window, at,
	                      context, 0, c->comm, c->stream, options, &request));
	return request;
}

static void
flush_now(struct conform *c, int peer)
{
	baton_request request = flush(c, peer, NULL);

	FINISH(c, BATON_OK, &request);
}

/* ---- puts without a signal, flushes ------------------------------------- */

static const size_t sizes[] = {1, 64, 2008, 2009, 16385, 70000, MIB + 3};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void
a_put_without_a_signal_is_there_after_a_flush(struct conform *c)
{
	int to = conform_next(c), from = conform_previous(c);
	unsigned char *data = conform_message(c, 2 * MIB);
	struct conform_part part;

	if (!OPEN(c, &part, 2 * MIB))
		return;
	for (unsigned i = 0; i < SIZES; i++) {
		conform_set(c, part.base, 0xee, sizes[i] + 100);
		conform_write(c, data, sizes[i], i + (unsigned)c->rank);
		conform_sync(c);
		put_detached(c, data, sizes[i], to, &part, 7, 1, NULL);
		flush_now(c, to);
		conform_sync(c);
		CHECK_ALL(c, part.base, 7, 0xee);
		CHECK_FILLED(c, part.base + 7, sizes[i], i + (unsigned)from);
		CHECK_ALL(c, part.base + 7 + sizes[i], 90, 0xee);
	}
	/* And none has signaled. */
	for (int i = 0; i < c->info.signals_max; i++)
		CHECK(c, COUNT(c, from, i, 1) == 0);
	CLOSE(c, &part);
}

static void
a_later_signal_shows_puts_without_one(struct conform *c)
{
	enum { N = 20 };
	const size_t bytes = 5000;
	int to = conform_next(c), from = conform_previous(c);
	unsigned char *data = conform_filled(c, N * bytes, (unsigned)c->rank);
	struct conform_part part;

	if (!OPEN(c, &part, N * bytes))
		return;
	for (size_t i = 0; i < N; i++)
		put_detached(c, data + i * bytes, bytes, to, &part, i * bytes, 2,
		             &conform_detached);
	SIGNAL(c, to, 0, 2);
	AWAIT(c, from, 1, 0, 2);
	CHECK_FILLED(c, part.base, N * bytes, (unsigned)from);
	flush_now(c, BATON_ALL_PEERS);
	CLOSE(c, &part);
}

/* To all ranks, in all contexts, long and short; the flush is the only one that waits. */
static void
a_flush_of_all_covers_what_its_stream_has_put_detached(struct conform *c)
{
	enum { EACH = 24 };
	static const size_t lengths[] = {8, 3000, 40000};
	const size_t slot = 40000;
	unsigned char *data = conform_filled(c, EACH * slot, (unsigned)c->rank);
	size_t mine = (size_t)c->rank * EACH * slot;
	struct conform_part part;

	if (!OPEN(c, &part, (size_t)c->size * EACH * slot))
		return;
	for (size_t i = 0; i < EACH; i++)
		for (int to = 0; to < c->size; to++)
			put_detached(c, data + i * slot, lengths[i % 3], to, &part,
			             mine + i * slot, (int)i % c->info.contexts_max,
			             &conform_detached);
	flush_now(c, BATON_ALL_PEERS);
	conform_sync(c);
	for (int from = 0; from < c->size; from++) {
		unsigned char *want = conform_alloc(c, EACH * slot);

		conform_fill(want, EACH * slot, (unsigned)from);
		for (size_t i = 0; i < EACH; i++)
			CHECK_SAME(c,
			           part.base +
			                   ((size_t)from * EACH + i) * slot,
			           want + i * slot, lengths[i % 3]);
	}
	CLOSE(c, &part);
}

static void
a_flush_of_nothing_ends(struct conform *c)
{
	struct baton_completion done = {0};
	struct conform_part part;
	baton_request request;

	if (!OPEN(c, &part, 64))
		return;
	for (int peer = BATON_ALL_PEERS; peer < c->size; peer++) {
		request = flush(c, peer, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.op, BATON_OPERATION_FLUSH);
		CHECK_EQ(c, done.peer, peer);
		CHECK_EQ(c, done.tag, -1);
		CHECK(c, done.bytes == 0);
	}
	CLOSE(c, &part);
}

/* Its stream has not come to the puts of the other one. */
static void
a_flush_waits_for_no_other_stream(struct conform *c)
{
	unsigned char *data = conform_filled(c, 100, 3);
	baton_stream gated = conform_stream(c);
	baton_request late = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 200))
		return;
	conform_gate_launch(c, 0, gated);
	CHECK_OK(c, baton_put(data, 100, BATON_UINT8, conform_next(c),
	                      part.window, 0, 1, 0, c->comm, gated, NULL,
	                      &late));
	put_detached(c, data, 100, conform_next(c), &part, 100, 0, NULL);
	flush_now(c, BATON_ALL_PEERS);
	conform_sync(c);
	CHECK_FILLED(c, part.base + 100, 100, 3);
	conform_sync(c);
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &late);
	CHECK_OK(c, baton_flush(conform_next(c), 0, c->comm, gated, NULL, &late));
	FINISH(c, BATON_OK, &late);
	conform_sync(c);
	CHECK_FILLED(c, part.base, 100, 3);
	CLOSE(c, &part);
}

static void
a_flush_may_be_canceled(struct conform *c)
{
	unsigned char *data = conform_filled(c, 100, 3);
	baton_request lost, next;
	struct conform_part part;

	if (!OPEN(c, &part, 100))
		return;
	conform_gate_launch(c, 0, c->stream);
	put_detached(c, data, 100, conform_next(c), &part, 0, 0, NULL);
	lost = flush(c, conform_next(c), &conform_detached);
	next = flush(c, conform_next(c), NULL);
	CHECK_OK(c, baton_cancel(lost));
	FINISH(c, BATON_ERR_CANCELED, &lost);
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &next);
	conform_sync(c);
	CHECK_FILLED(c, part.base, 100, 3);
	CLOSE(c, &part);
}

/* ---- gets --------------------------------------------------------------- */

static void
gets_of_all_sizes_bring_what_is_there(struct conform *c)
{
	int from = conform_next(c);
	unsigned char *data = conform_message(c, 2 * MIB);
	struct conform_part part;

	if (!OPEN(c, &part, 2 * MIB))
		return;
	conform_write(c, part.base + 13, MIB + 3, (unsigned)c->rank);
	conform_sync(c);
	for (unsigned i = 0; i < SIZES; i++) {
		struct baton_completion done = {0};
		baton_request request;

		conform_set(c, data, 0xee, sizes[i] + 100);
		request = get_detached(c, data + 9, sizes[i], from, &part, 13, 1, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_ALL(c, data, 9, 0xee);
		CHECK_FILLED(c, data + 9, sizes[i], (unsigned)from);
		CHECK_ALL(c, data + 9 + sizes[i], 90, 0xee);
		CHECK(c, done.bytes == sizes[i]);
		CHECK_EQ(c, done.op, BATON_OPERATION_GET);
		CHECK_EQ(c, done.peer, from);
		CHECK_EQ(c, done.tag, -1);
		CHECK_EQ(c, done.flags, 0);
	}
	conform_sync(c);
	CHECK_FILLED(c, part.base + 13, MIB + 3, (unsigned)c->rank);
	CLOSE(c, &part);
}

static void
gets_of_nothing_and_of_oneself_end(struct conform *c)
{
	unsigned char *data = conform_message(c, 70000);
	struct conform_part part;
	baton_request requests[3];

	if (!OPEN(c, &part, 70000))
		return;
	conform_write(c, part.base, 70000, 4);
	conform_sync(c);
	requests[0] = get_detached(c, NULL, 0, conform_next(c), &part, 70000, 0, NULL);
	requests[1] = get_detached(c, data, 8, c->rank, &part, 0, 0, NULL);
	requests[2] = get_detached(c, data, 70000, c->rank, &part, 0, 3, NULL);
	FINISH_ALL(c, requests, 3);
	CHECK_FILLED(c, data, 70000, 4);
	CLOSE(c, &part);
}

/* One channel: what is put before is read, and what is put behind is not. */
static void
a_get_has_its_place_among_the_puts(struct conform *c)
{
	static const size_t lengths[] = {8, 3000, 300000};
	int to = conform_next(c);
	struct conform_part part;

	if (!OPEN(c, &part, 300000))
		return;
	for (unsigned i = 0; i < 3; i++) {
		unsigned char *before = conform_filled(c, lengths[i], 10 + i);
		unsigned char *behind = conform_filled(c, lengths[i], 20 + i);
		unsigned char *got = conform_message(c, lengths[i]);
		baton_request request;

		put_detached(c, before, lengths[i], to, &part, 0, 0, &conform_detached);
		request = get_detached(c, got, lengths[i], to, &part, 0, 0,
		                       &conform_detached);
		put_detached(c, behind, lengths[i], to, &part, 0, 0, &conform_detached);
		flush_now(c, to);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, got, lengths[i], 10 + i);
		conform_sync(c);
		CHECK_FILLED(c, part.base, lengths[i], 20 + i);
		conform_sync(c);
	}
	CLOSE(c, &part);
}

/* A signal behind a get says that it has read. */
static void
a_signal_behind_a_get_lets_its_target_write(struct conform *c)
{
	enum { N = 20 };
	const size_t bytes = 9000;
	int from = conform_next(c), reader = conform_previous(c);
	unsigned char *data = conform_message(c, N * bytes);
	struct conform_part part;

	if (!OPEN(c, &part, bytes))
		return;
	for (unsigned i = 0; i < N; i++) {
		conform_write(c, part.base, bytes, i + (unsigned)c->rank);
		conform_sync(c);
		CHECK_OK(c, baton_get(data + i * bytes, bytes, BATON_UINT8,
		                      from, part.window, 0, 0, 0, c->comm,
		                      c->stream, &conform_detached, NULL));
		SIGNAL(c, from, 0, 0);
		AWAIT(c, reader, 1, 0, 0);
	}
	flush_now(c, from);
	for (unsigned i = 0; i < N; i++)
		CHECK_FILLED(c, data + i * bytes, bytes, i + (unsigned)from);
	CLOSE(c, &part);
}

static void
more_gets_than_lanes_end(struct conform *c)
{
	enum { N = 90 };
	const size_t bytes = 2500;
	unsigned char *data = conform_message(c, N * bytes);
	struct conform_part part;
	int from = conform_next(c);

	if (!OPEN(c, &part, N * bytes))
		return;
	conform_write(c, part.base, N * bytes, (unsigned)c->rank);
	conform_sync(c);
	for (size_t i = 0; i < N; i++)
		CHECK_OK(c, baton_get(data + i * bytes, bytes, BATON_UINT8,
		                      from, part.window, i * bytes,
		                      (int)i % c->info.contexts_max, 0, c->comm,
		                      c->stream, &conform_detached, NULL));
	flush_now(c, BATON_ALL_PEERS);
	CHECK_FILLED(c, data, N * bytes, (unsigned)from);
	conform_sync(c);
	CLOSE(c, &part);
}

/* ---- with the rest ------------------------------------------------------ */

/* Members of a group are armed together, so the get and the flush see each other's puts as the
 * queue has them. */
static void
puts_flushes_and_gets_may_be_in_a_group(struct conform *c)
{
	const size_t bytes = 20000;
	int to = conform_next(c);
	unsigned char *data = conform_filled(c, bytes, (unsigned)c->rank);
	unsigned char *got = conform_message(c, bytes);
	struct conform_part part;
	baton_request requests[2] = {0};

	if (!OPEN(c, &part, bytes))
		return;
	CHECK_OK(c, baton_group_begin(c->comm));
	put_detached(c, data, bytes, to, &part, 0, 0, NULL);
	requests[0] = get_detached(c, got, bytes, to, &part, 0, 0, NULL);
	requests[1] = flush(c, to, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
	CHECK_FILLED(c, got, bytes, (unsigned)c->rank);
	conform_sync(c);
	CHECK_FILLED(c, part.base, bytes, (unsigned)conform_previous(c));
	CLOSE(c, &part);
}

static void
puts_flushes_and_gets_may_be_in_a_plan(struct conform *c)
{
	const size_t bytes = 20000;
	int to = conform_next(c);
	unsigned char *data = conform_message(c, bytes);
	unsigned char *got = conform_message(c, bytes);
	struct baton_plan *plan = NULL;
	struct conform_part part;

	if (!OPEN(c, &part, bytes))
		return;
	CHECK_OK(c, baton_plan_begin(c->comm));
	put_detached(c, data, bytes, to, &part, 0, 0, NULL);
	CHECK_OK(c, baton_get(got, bytes, BATON_UINT8, to, part.window, 0, 0, 0,
	                      c->comm, c->stream, NULL, NULL));
	CHECK_OK(c, baton_flush(BATON_ALL_PEERS, 0, c->comm, c->stream, NULL,
	                        NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	for (unsigned i = 0; i < 3; i++) {
		baton_request request = BATON_REQUEST_NULL;

		conform_write(c, data, bytes, i + (unsigned)c->rank);
		CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, got, bytes, i + (unsigned)c->rank);
		conform_sync(c);
		CHECK_FILLED(c, part.base, bytes,
		             i + (unsigned)conform_previous(c));
		conform_sync(c);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
	CLOSE(c, &part);
}

static void
gets_and_flushes_are_delivered_to_queues(struct conform *c)
{
	enum { N = 10 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	unsigned char *data = conform_message(c, N * 64);
	struct baton_completion done[2];
	struct conform_part part;
	int ended = 0, sum = 0;

	if (!OPEN(c, &part, 64))
		return;
	CHECK_OK(c, baton_queue_create(c->comm, 2 * N, &options.queue));
	for (unsigned i = 0; i < N; i++) {
		options.user_data = i;
		CHECK_OK(c, baton_get(data + (size_t)i * 64, 64, BATON_UINT8,
		                      conform_next(c), part.window, 0, 0, 0,
		                      c->comm, c->stream, &options, NULL));
		CHECK_OK(c, baton_flush(conform_next(c), 0, c->comm, c->stream,
		                        &options, NULL));
	}
	for (int64_t begin = conform_begin(); ended < 2 * N && STILL(c, begin);) {
		size_t n = baton_queue_poll(options.queue, done, 2);

		for (size_t i = 0; i < n; i++, ended++) {
			CHECK_EQ(c, done[i].status, BATON_OK);
			sum += (int)done[i].user_data;
		}
	}
	CHECK_EQ(c, sum, N * (N - 1));
	baton_queue_destroy(options.queue);
	CLOSE(c, &part);
}

static void
deregister_is_busy_while_a_get_is_pending(struct conform *c)
{
	unsigned char *data = conform_message(c, 64 * KIB);
	baton_request request = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 64 * KIB))
		return;
	conform_write(c, part.base, 64 * KIB, (unsigned)c->rank);
	conform_sync(c);
	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		request = get_detached(c, data, 64 * KIB, c->size - 1, &part, 0, 0, NULL);
	}
	CHECK_STATUS(c, BATON_ERR_BUSY, baton_window_deregister(part.window));
	conform_sync(c);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &request);
	if (c->rank == 0)
		CHECK_FILLED(c, data, 64 * KIB, (unsigned)(c->size - 1));
	CLOSE(c, &part);
}

static void
abort_ends_pending_gets_and_flushes(struct conform *c)
{
	static unsigned char data[1 << 20];
	baton_stream gated = conform_stream(c);
	baton_request requests[3] = {0};
	enum baton_status status;
	struct conform_part part;

	if (!OPEN(c, &part, sizeof(data)))
		return;
	conform_gate_launch(c, 0, gated);
	CHECK_OK(c, baton_get(data, sizeof(data), BATON_UINT8, conform_next(c),
	                      part.window, 0, 0, 0, c->comm, gated, NULL,
	                      &requests[0]));
	CHECK_OK(c, baton_flush(BATON_ALL_PEERS, 0, c->comm, gated, NULL,
	                        &requests[1]));
	requests[2] = get_detached(c, data, sizeof(data), conform_next(c), &part, 0, 1,
	                           NULL);
	CHECK_OK(c, baton_comm_abort(c->comm));
	FINISH(c, BATON_ERR_ABORTED, &requests[0]);
	FINISH(c, BATON_ERR_ABORTED, &requests[1]);
	status = baton_finish(&requests[2], conform_patience(c), NULL);
	CHECK(c, status == BATON_OK || status == BATON_ERR_ABORTED);
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_flush(0, 0, c->comm, c->stream, NULL, NULL));
	conform_gate_open(c, 0);
	/* The others may still be reading this rank's memory. */
	conform_sync(c);
	CLOSE(c, &part);
}

/* ---- refusals ----------------------------------------------------------- */

static void
bad_gets_puts_and_flushes_are_refused(struct conform *c)
{
	static unsigned char data[128];
	static const struct {
		void *buffer;
		size_t count, offset;
		int type, peer, context;
		unsigned flags;
	} bad[] = {
		{data, 101, 0, BATON_UINT8, 0, 0, 0},
		{data, 1, 100, BATON_UINT8, 0, 0, 0},
		{data, 2, SIZE_MAX, BATON_UINT8, 0, 0, 0},
		{data, SIZE_MAX, 1, BATON_UINT8, 0, 0, 0},
		{data, SIZE_MAX / 8 + 2, 0, BATON_INT64, 0, 0, 0},
		{NULL, 1, 0, BATON_UINT8, 0, 0, 0},
		{data, 1, 0, BATON_DATATYPE_COUNT, 0, 0, 0},
		{data, 1, 0, BATON_UINT8, -1, 0, 0},
		{data, 1, 0, BATON_UINT8, 1 << 20, 0, 0},
		{data, 1, 0, BATON_UINT8, 0, -1, 0},
		{data, 1, 0, BATON_UINT8, 0, 1 << 20, 0},
		{data, 1, 0, BATON_UINT8, 0, 0, 1},
	};
	baton_request request = 99;
	struct conform_part part;

	if (!OPEN(c, &part, 100))
		return;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		enum baton_datatype type = (enum baton_datatype)bad[i].type;

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_get(bad[i].buffer, bad[i].count, type,
		                        bad[i].peer, part.window, bad[i].offset,
		                        bad[i].context, bad[i].flags, c->comm,
		                        c->stream, NULL, &request),
		              "baton_get: ");
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_put(bad[i].buffer, bad[i].count, type,
		                        bad[i].peer, part.window, bad[i].offset,
		                        bad[i].context, bad[i].flags, c->comm,
		                        c->stream, NULL, &request),
		              "baton_put: ");
	}
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_get(data, 1, BATON_UINT8, 0, NULL, 0, 0, 0, c->comm,
	                        c->stream, NULL, &request),
	              "window is NULL");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_flush(-2, 0, c->comm, c->stream, NULL, &request),
	              "BATON_ALL_PEERS");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_flush(c->size, 0, c->comm, c->stream, NULL, &request),
	              "ranks are 0 to");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_flush(0, 4, c->comm, c->stream, NULL, &request),
	              "flags is 0x4");
	CHECK(c, request == 99);
	conform_sync(c);
	CHECK_ALL(c, part.base, 100, 0);
	CLOSE(c, &part);
}

/* ---- atomic operations -------------------------------------------------- */

/* Read a word. */
static uint64_t
word_at(struct conform *c, const struct conform_part *part, size_t at)
{
	baton_request request = 0;
	uint64_t word = 0;

	CHECK_OK(c, baton_fetch_add(&word, 0, 0, part->window, at, 0, 0, c->comm,
	                            c->stream, NULL, &request));
	FINISH(c, BATON_OK, &request);
	return word;
}

/* Rank 0's words are added to by all ranks, at once. */
static void
add_from_all(struct conform *c, const struct conform_part *part)
{
	enum { N = 200 };
	uint64_t before[N], sum;

	for (int i = 0; i < N; i++)
		CHECK_OK(c, baton_fetch_add(&before[i], 3, 0, part->window, 8, 0,
		                            0, c->comm, c->stream, NULL, NULL));
	flush_now(c, 0);
	for (int i = 0; i < N; i++) {
		CHECK(c, before[i] % 3 == 0);
		CHECK(c, i == 0 || before[i] > before[i - 1]);
	}
	conform_sync(c);
	/* Some ranks may not reach it. */
	sum = word_at(c, part, 8);
	CHECK(c, sum % (3 * N) == 0 && sum >= 3 * N);
	CHECK(c, word_at(c, part, 0) == 0);
}

/* All ranks count up one word by swaps, of which some fail. */
static void
swap_from_all(struct conform *c, const struct conform_part *part)
{
	enum { N = 50 };
	uint64_t expected = 0, before;
	struct baton_completion done = {0};
	baton_request request = 0;

	for (int i = 0; i < N;) {
		CHECK_OK(c, baton_compare_swap(&before, expected, expected + 1, 0,
		                               part->window, 16, 0, 0, c->comm,
		                               c->stream, NULL, &request));
		if (!FINISH_AS(c, BATON_OK, &request, &done))
			break;
		CHECK_EQ(c, done.op, BATON_OPERATION_ATOMIC);
		i += before == expected;
		expected = before == expected ? expected + 1 : before;
	}
	CHECK_OK(c, baton_fetch_add(NULL, N, 0, part->window, 24, 0, 0, c->comm,
	                            c->stream, NULL, NULL));
	flush_now(c, 0);
	conform_sync(c);
	CHECK(c, word_at(c, part, 16) == word_at(c, part, 24));
}

static void
words_are_added_to_and_swapped_where_they_are_reached(struct conform *c)
{
	struct conform_part part;
	enum baton_status status;
	uint64_t word = 77;

	if (!OPEN(c, &part, 64))
		return;
	conform_sync(c);
	status = baton_fetch_add(&word, 0, 0, part.window, 0, 0, 0, c->comm,
	                         c->stream, NULL, NULL);
	if (status == BATON_OK) {
		add_from_all(c, &part);
		swap_from_all(c, &part);
	} else {
		CHECK_EQ(c, status, BATON_ERR_UNSUPPORTED);
		CHECK(c, strstr(baton_last_error(), "rank 0's part") != NULL);
		conform_sync(c);
		conform_sync(c);
		CHECK(c, word == 77);
	}
	if (baton_window_path(part.window, 0) == BATON_WINDOW_PATH_DIRECT &&
	    status == BATON_OK) {
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_fetch_add(NULL, 1, 0, part.window, 4, 0, 0,
		                              c->comm, c->stream, NULL, NULL),
		              "multiple of 8");
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_compare_swap(NULL, 1, 1, 0, part.window, 64,
		                                 0, 0, c->comm, c->stream, NULL,
		                                 NULL),
		              "8 bytes at offset 64");
	}
	CLOSE(c, &part);
}

const struct conform_case conform_gets[] = {
	{CASE(a_put_without_a_signal_is_there_after_a_flush),
	  .needs = BATON_CAP_WINDOWS},
	{CASE(a_later_signal_shows_puts_without_one), .needs = BATON_CAP_WINDOWS},
	{CASE(a_flush_of_all_covers_what_its_stream_has_put_detached),
	  .needs = BATON_CAP_WINDOWS},
	{CASE(a_flush_of_nothing_ends), .needs = BATON_CAP_WINDOWS},
	{CASE(a_flush_waits_for_no_other_stream), .streams = 2,
	  .needs = BATON_CAP_WINDOWS},
	{CASE(a_flush_may_be_canceled),
	  .needs = BATON_CAP_WINDOWS | BATON_CAP_CANCEL},
	{CASE(gets_of_all_sizes_bring_what_is_there), .needs = BATON_CAP_WINDOWS},
	{CASE(gets_of_nothing_and_of_oneself_end), .needs = BATON_CAP_WINDOWS},
	{CASE(a_get_has_its_place_among_the_puts), .needs = BATON_CAP_WINDOWS,
	  .flags = CONFORM_ALONE},
	{CASE(a_signal_behind_a_get_lets_its_target_write),
	  .needs = BATON_CAP_WINDOWS, .flags = CONFORM_ALONE},
	{CASE(more_gets_than_lanes_end), .needs = BATON_CAP_WINDOWS},
	{CASE(puts_flushes_and_gets_may_be_in_a_group),
	  .needs = BATON_CAP_WINDOWS, .flags = CONFORM_ALONE},
	{CASE(puts_flushes_and_gets_may_be_in_a_plan), .needs = BATON_CAP_WINDOWS},
	{CASE(gets_and_flushes_are_delivered_to_queues),
	  .needs = BATON_CAP_WINDOWS},
	{CASE(deregister_is_busy_while_a_get_is_pending),
	  .needs = BATON_CAP_WINDOWS},
	{CASE(abort_ends_pending_gets_and_flushes), .streams = 2,
	  .needs = BATON_CAP_WINDOWS},
	{CASE(bad_gets_puts_and_flushes_are_refused), .needs = BATON_CAP_WINDOWS},
	{CASE(words_are_added_to_and_swapped_where_they_are_reached),
	  .needs = BATON_CAP_WINDOWS},
	CASES_END,
};
