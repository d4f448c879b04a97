/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs of puts, signals and waits on streams: rings, back-pressure, unequal partners, more at
 * a time than there is room for.  What one call promises is in conform_signal.c,
 * conform_puts.c and conform_window.c; here many come together, and the hosts stay out of it where they can.
 *
 * A stream of a device takes a bounded number of operations, and a communicator has a bounded
 * number of requests: TRY repeats a call that is refused with AGAIN.
 */
#include <sched.h>

#include "harness_onesided.h"

#define TRY(c, call)                                                          \
	do {                                                                  \
		int64_t try_begin = conform_begin();                          \
		enum baton_status try_status;                                 \
                                                                    \
		while ((try_status = (call)) == BATON_ERR_AGAIN &&            \
		       STILL(c, try_begin))                                   \
			(void)baton_progress((c)->comm);                      \
		conform_status(AT(c), #call, BATON_OK, try_status);           \
	} while (0)

static struct baton_wait_signal_desc
one_of(int peer, int index, int context)
{
	return (struct baton_wait_signal_desc){ 1, peer, index, context };
}

/* ---- streams alone ------------------------------------------------------ */

/* Reads and writes words, also where the host may not touch them. */
static uint64_t
word_at(const struct conform *c, const void *at)
{
	uint64_t word;

	conform_copy(c, &word, at, sizeof(word));
	return word;
}

struct seen {
	struct conform *c;
	const unsigned char *base;
	size_t bytes;
	_Atomic int right; /* 0: not called yet; 1: yes; -1: no */
};

static void
look_fn(void *arg)
{
	struct seen *seen = arg;
	bool right = CHECK_FILLED(seen->c, seen->base, seen->bytes, 6);

	atomic_store(&seen->right, right ? 1 : -1);
}

/* The target enqueues its wait and what reads the data, and then makes no call until that has
 * happened. */
static void
a_stream_gets_a_put_while_its_program_calls_nothing(struct conform *c)
{
	static const size_t sizes[] = { 5, 3000, 70001, 2 * MIB + 3 };
	const size_t room = 3 * MIB;
	unsigned char *data = conform_filled(c, room, 6);
	struct conform_part part;

	if (!OPEN(c, &part, room))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct baton_wait_signal_desc one = one_of(0, 0, 0);
		struct seen seen = { .c = c, .base = part.base + i,
			             .bytes = sizes[i] };
		baton_request request = 0;

		if (c->rank == 1) {
			CHECK_OK(c, baton_wait_signal(1, &one, c->comm, c->stream,
			                              NULL, NULL));
			CHECK_OK(c, baton_stream_launch(c->comm, c->stream,
			                                look_fn, &seen));
		}
		conform_sync(c);
		if (c->rank == 0)
			request = PUT(c, data, sizes[i], 1, part.window, i, 0, 0,
			              c->stream, NULL);
		for (int64_t t = conform_begin();
		     c->rank == 1 && atomic_load(&seen.right) == 0 && STILL(c, t);)
			sched_yield();
		CHECK(c, c->rank != 1 || atomic_load(&seen.right) == 1);
		FINISH(c, BATON_OK, &request);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	CLOSE(c, &part);
}

struct stage {
	struct conform *c;
	const unsigned char *in;
	unsigned char *out;
	uint64_t expected, add;
	_Atomic int wrong;
};

/* What is between a wait and a put: the token, which must be the expected one, and one more. */
static void
stage_fn(void *arg)
{
	struct stage *stage = arg;
	uint64_t word = word_at(stage->c, stage->in);

	if (word != stage->expected)
		atomic_fetch_add(&stage->wrong, 1);
	word += stage->add;
	conform_copy(stage->c, stage->out, &word, sizeof(word));
	stage->expected += stage->add * (uint64_t)stage->c->size;
}

/* A token goes round over streams alone: wait, work, put.  The put of the next round may begin
 * when this one has ended, because its stream waits for it. */
static void
a_token_goes_round_on_streams_alone(struct conform *c)
{
	const int rounds = conform_turns(CONFORM_SANITIZED ? 50 : 300);
	int to = conform_next(c);
	int from = conform_previous(c);
	struct baton_wait_signal_desc one = one_of(from, 0, 0);
	unsigned char *out = conform_message(c, 8);
	struct stage stage = { .c = c, .out = out, .add = 1 };
	struct conform_part part;

	if (!OPEN(c, &part, 64))
		return;
	stage.in = part.base + 8;
	stage.expected = c->rank == 0 ? (uint64_t)c->size : (uint64_t)c->rank;
	if (c->rank == 0) {
		uint64_t first = 1;

		conform_copy(c, out, &first, 8);
		CHECK_OK(c, baton_put_signal(out, 8, BATON_UINT8, to, part.window,
		                             8, 0, 0, 0, c->comm, c->stream,
		                             NULL, NULL));
	}
	for (int i = 0; i < rounds; i++) {
		TRY(c, baton_wait_signal(1, &one, c->comm, c->stream, NULL, NULL));
		TRY(c, baton_stream_launch(c->comm, c->stream, stage_fn, &stage));
		if (c->rank == 0 && i == rounds - 1)
			break;
		TRY(c, baton_put_signal(out, 8, BATON_UINT8, to, part.window, 8, 0,
		                        0, 0, c->comm, c->stream, NULL, NULL));
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_EQ(c, atomic_load(&stage.wrong), 0);
	CHECK_EQ(c, word_at(c, out),
	         c->size * rounds + 1 - (c->rank ? c->size - c->rank : 0));
	CLOSE(c, &part);
}

/* ---- producer and consumers --------------------------------------------- */

enum { SLOTS = 4 };
static const size_t slot_bytes = 20000;

struct consumed {
	struct conform *c;
	const unsigned char *base;
	unsigned next;
	_Atomic int wrong;
};

static void
consume_fn(void *arg)
{
	struct consumed *consumed = arg;
	const unsigned char *slot =
		consumed->base + consumed->next % SLOTS * slot_bytes;

	if (!CHECK_FILLED(consumed->c, slot, slot_bytes, consumed->next))
		atomic_fetch_add(&consumed->wrong, 1);
	consumed->next++;
}

/* Rank 0 fills the slots of all others in turn; a consumer gives each back by a signal on its
 * stream, behind the work on it.  No host waits for anything but its stream, and the consumers
 * are not equally fast: the gate of the last one opens only when the others have all they get. */
static void
consumers_give_slots_back_by_signals(struct conform *c)
{
	const int turns = conform_turns(CONFORM_SANITIZED ? 50 : 200);
	struct consumed consumed = { .c = c };
	struct baton_wait_signal_desc data = one_of(0, 0, 0);
	unsigned char *filled[SLOTS];
	struct conform_part part;
	int last = c->size - 1;

	for (int i = 0; i < SLOTS; i++)
		filled[i] = conform_message(c, slot_bytes);
	if (!OPEN(c, &part, c->rank == 0 ? 0 : SLOTS * slot_bytes))
		return;
	consumed.base = part.base;
	if (c->rank > 0 && c->rank == last && c->size > 2)
		conform_gate_launch(c, 0, c->stream);
	for (int peer = 1; peer < c->size && c->rank == 0; peer++) {
		for (int k = 0; k < turns; k++) {
			unsigned char *from = filled[k % SLOTS];

			if (peer == last && k >= SLOTS && c->size > 2) {
				/* All others have theirs. */
				conform_sync(c);
				break;
			}
			if (k >= SLOTS)
				AWAIT(c, peer, 1, 1, peer % 2);
			conform_write(c, from, slot_bytes, (unsigned)k);
			baton_request put = PUT(c, from, slot_bytes, peer,
			                        part.window,
			                        (size_t)(k % SLOTS) * slot_bytes,
			                        0, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &put);
		}
	}
	if (c->rank == 0 && c->size > 2)
		for (int k = SLOTS; k < turns; k++) {
			unsigned char *from = filled[k % SLOTS];
			baton_request put;

			AWAIT(c, last, 1, 1, last % 2);
			conform_write(c, from, slot_bytes, (unsigned)k);
			put = PUT(c, from, slot_bytes, last, part.window,
			          (size_t)(k % SLOTS) * slot_bytes, 0, 0,
			          c->stream, NULL);
			FINISH(c, BATON_OK, &put);
		}
	for (int k = 0; k < turns && c->rank > 0; k++) {
		TRY(c, baton_wait_signal(1, &data, c->comm, c->stream, NULL, NULL));
		TRY(c, baton_stream_launch(c->comm, c->stream, consume_fn,
		                           &consumed));
		TRY(c, baton_signal(0, 1, c->rank % 2, 0, c->comm, c->stream, NULL,
		                    NULL));
		if (c->rank == last && k == SLOTS - 1 && c->size > 2) {
			conform_sync(c);
			conform_gate_open(c, 0);
		}
	}
	if (c->rank > 0 && c->rank != last && c->size > 2)
		conform_sync(c);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_EQ(c, atomic_load(&consumed.wrong), 0);
	CHECK_EQ(c, consumed.next, c->rank > 0 ? turns : 0);
	CLOSE(c, &part);
}

/* ---- many at a time ----------------------------------------------------- */

/* Every rank puts a word into a place of its own at every other one and itself, again and again,
 * over two streams, and none is observed. */
static void
small_puts_go_from_all_to_all(struct conform *c)
{
	enum { PLACES = 64 };
	const int rounds = conform_turns(CONFORM_SANITIZED ? 20 : 40);
	baton_stream streams[2] = { c->stream, conform_stream(c) };
	const size_t share = PLACES * sizeof(uint64_t);
	uint64_t words[PLACES];
	unsigned char *out = conform_message(c, share);
	struct conform_part part;
	int64_t begin;

	for (unsigned i = 0; i < PLACES; i++)
		words[i] = (uint64_t)c->rank * 1000 + i;
	conform_copy(c, out, words, share);
	if (!OPEN(c, &part, share * (size_t)c->size))
		return;
	for (int k = 0; k < rounds * PLACES; k++) {
		size_t place = (size_t)(k % PLACES) * 8;

		for (int to = 0; to < c->size; to++)
			TRY(c, baton_put_signal(
				       out + place, 8, BATON_UINT8, to, part.window,
				       share * (size_t)c->rank + place, k % 2,
				       to % 3, 0, c->comm, streams[k % 2], NULL,
				       NULL));
	}
	/* A stream that is full takes no wait. */
	begin = conform_begin();
	for (int i = 0; i < 2; i++)
		while (baton_stream_query(c->comm, streams[i]) == BATON_PENDING &&
		       STILL(c, begin))
			;
	for (int from = 0; from < c->size; from++) {
		for (int index = 0; index < 2; index++) {
			int all = rounds * PLACES / 2;

			COUNTS(c, from, index, c->rank % 3, (uint64_t)all);
			AWAIT(c, from, all, index, c->rank % 3);
		}
		for (unsigned i = 0; i < PLACES; i++)
			words[i] = (uint64_t)from * 1000 + i;
		CHECK_SAME(c, part.base + share * (size_t)from, words, share);
	}
	CLOSE(c, &part);
}

/* They stand behind one that is not armed; another context's goes by. */
static void
puts_stand_by_the_thousand_behind_one(struct conform *c)
{
	enum { N = 1500 };
	baton_request *requests = conform_alloc(c, N * sizeof(*requests));
	unsigned char *data = conform_filled(c, 4 * KIB, 3);
	baton_stream gated = conform_stream(c);
	baton_request first = 0, beside = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 8 * KIB))
		return;
	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		first = PUT(c, data, 4 * KIB, 1, part.window, 0, 0, 0, gated,
		            NULL);
		for (int i = 0; i < N; i++)
			TRY(c, baton_put_signal(data, (size_t)i % 64,
			                        BATON_UINT8, 1, part.window,
			                        4 * KIB, 1, 0, 0,
			                        c->comm, c->stream,
			                        &conform_detached, &requests[i]));
		beside = PUT(c, data, 64, 1, part.window, 5 * KIB, 1, 1, c->stream,
		             &conform_detached);
		FINISH(c, BATON_OK, &beside);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[N - 1], NULL));
	}
	if (c->rank == 1)
		AWAIT(c, 0, 1, 1, 1);
	conform_sync(c);
	if (c->rank == 1)
		CHECK_EQ(c, COUNT(c, 0, 1, 0), 0);
	conform_sync(c);
	if (c->rank == 0) {
		conform_gate_open(c, 0);
		FINISH(c, BATON_OK, &first);
		FINISH_ALL(c, requests, N);
	}
	if (c->rank == 1) {
		AWAIT(c, 0, N, 1, 0);
		COUNTS(c, 0, 0, 0, 1);
		CHECK_FILLED(c, part.base, 4 * KIB, 3);
		CHECK_FILLED(c, part.base + 5 * KIB, 64, 3);
	}
	CLOSE(c, &part);
}

/* One target, two sources: of the slow one nothing comes until the other is done. */
static void
a_slow_source_holds_up_no_other(struct conform *c)
{
	enum { N = 60 };
	const size_t bytes = 90000;
	unsigned char *data = conform_filled(c, bytes, (unsigned)c->rank);
	struct conform_part part;
	bool slow = c->rank == 2;

	if (!OPEN(c, &part, c->rank == 0 ? (size_t)c->size * bytes : 0))
		return;
	if (slow)
		conform_gate_launch(c, 0, c->stream);
	for (int i = 0; i < N && c->rank > 0; i++)
		TRY(c, baton_put_signal(data, bytes - (size_t)i * 1000,
		                        BATON_UINT8, 0, part.window,
		                        (size_t)c->rank * bytes, i % 2, 0, 0,
		                        c->comm, c->stream, NULL, NULL));
	for (int from = 1; from < c->size && c->rank == 0; from++) {
		if (from == 2)
			continue;
		AWAIT(c, from, N / 2, 0, 0);
		AWAIT(c, from, N / 2, 1, 0);
		CHECK_FILLED(c, part.base + (size_t)from * bytes, bytes,
		             (unsigned)from);
	}
	if (c->rank == 0)
		CHECK_EQ(c, COUNT(c, 2, 0, 0), 0);
	conform_sync(c);
	if (slow)
		conform_gate_open(c, 0);
	if (c->rank == 0) {
		AWAIT(c, 2, N / 2, 0, 0);
		AWAIT(c, 2, N / 2, 1, 0);
		CHECK_FILLED(c, part.base + 2 * bytes, bytes, 2);
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CLOSE(c, &part);
}

/* ---- early ends --------------------------------------------------------- */

/* Behind one that is not armed: it leaves, what is behind it goes on, and its bytes are not
 * written. */
static void
a_put_that_times_out_unissued_never_signals(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	unsigned char *data = conform_filled(c, 64, 1);
	baton_stream gated = conform_stream(c);
	baton_request first = 0, late = 0, next = 0;
	struct conform_part part;

	soon.timeout_ns = 5 * MS;
	soon.flags = BATON_OP_DETACHED;
	if (!OPEN(c, &part, 192))
		return;
	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		first = PUT(c, data, 64, 1, part.window, 0, 0, 0, gated, NULL);
		late = PUT(c, data, 64, 1, part.window, 64, 1, 0, c->stream, &soon);
		next = PUT(c, data, 64, 1, part.window, 128, 2, 0, c->stream,
		           &conform_detached);
		FINISH(c, BATON_ERR_TIMEOUT, &late);
		CHECK_STATUS(c, BATON_PENDING, baton_test(next, NULL));
		conform_gate_open(c, 0);
		FINISH(c, BATON_OK, &first);
		FINISH(c, BATON_OK, &next);
	}
	if (c->rank == 1) {
		AWAIT(c, 0, 1, 2, 0);
		CHECK_FILLED(c, part.base, 64, 1);
		CHECK_ALL(c, part.base + 64, 64, 0);
		CHECK_FILLED(c, part.base + 128, 64, 1);
		CHECK_EQ(c, COUNT(c, 0, 1, 0), 0);
	}
	CLOSE(c, &part);
}

/* Whatever the puts are doing then. */
static void
abort_may_come_in_the_middle_of_puts(struct conform *c)
{
	const size_t bytes = 3 * MIB;
	void *out = conform_filled(c, bytes, 1);
	struct conform_part part;

	for (int passes = 0; passes < 40; passes += 4) {
		int first = passes / 4 % c->size, to = conform_next(c);
		baton_request requests[2] = { 0 };

		c->comm = conform_comm(c, NULL);
		if (!OPEN(c, &part, bytes)) {
			CHECK_OK(c, baton_comm_destroy(c->comm));
			c->comm = NULL;
			return;
		}
		CHECK_OK(c, baton_put_signal(out, bytes, BATON_UINT8, to,
		                             part.window, 0, 0, 0, 0, c->comm,
		                             NULL, &conform_detached,
		                             &requests[0]));
		CHECK_OK(c, baton_put_signal(out, 1000, BATON_UINT8, to,
		                             part.window, 0, 0, 1, 0, c->comm,
		                             NULL, &conform_detached,
		                             &requests[1]));
		for (int i = 0; i < passes; i++)
			(void)baton_progress(c->comm);
		for (int turn = 0; turn < 2; turn++) {
			if ((c->rank == first) == (turn == 0))
				CHECK_OK(c, baton_comm_abort(c->comm));
			conform_sync(c);
		}
		for (int i = 0; i < 2; i++) {
			enum baton_status status = baton_finish(
				&requests[i], conform_patience(c), NULL);

			CHECK(c, status == BATON_OK || status == BATON_ERR_ABORTED);
		}
		conform_sync(c);
		CLOSE(c, &part);
		conform_sync(c);
		CHECK_OK(c, baton_comm_destroy(c->comm));
		c->comm = NULL;
		conform_sync(c);
	}
}

#define WINDOWS (BATON_CAP_WINDOWS | BATON_CAP_SIGNALS)

const struct conform_case conform_programs[] = {
	{ CASE(a_stream_gets_a_put_while_its_program_calls_nothing),
	  .ranks_min = 2, .needs = WINDOWS },
	{ CASE(a_token_goes_round_on_streams_alone), .ranks_min = 2,
	  .needs = WINDOWS },
	{ CASE(consumers_give_slots_back_by_signals), .ranks_min = 2,
	  .needs = WINDOWS },
	{ CASE(small_puts_go_from_all_to_all), .needs = WINDOWS, .streams = 2 },
	{ CASE(puts_stand_by_the_thousand_behind_one), .ranks_min = 2,
	  .needs = WINDOWS, .streams = 2, .requests_max = 2000 },
	{ CASE(a_slow_source_holds_up_no_other), .ranks_min = 3,
	  .needs = WINDOWS },
	{ CASE(a_put_that_times_out_unissued_never_signals), .ranks_min = 2,
	  .needs = WINDOWS, .streams = 2, .flags = CONFORM_ALONE },
	{ CASE(abort_may_come_in_the_middle_of_puts), .ranks_min = 2,
	  .needs = WINDOWS, .flags = CONFORM_THREADS | CONFORM_BARE },
	CASES_END,
};
