/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts with signals: what arrives, and in which order (guarantees 6 and 10).
 *
 * All ranks register a window in each case, as in conform_window.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness_onesided.h"

/* ---- data --------------------------------------------------------------- */

/* 1 MiB of floats at element 17 of a somewhat larger window. */
static void
check_put_with_neighbours(struct conform *c, struct conform_part *part)
{
	const size_t count = MIB / sizeof(float), at = 17 * sizeof(float);
	unsigned char *data = conform_filled(c, MIB, 5);
	baton_request request = 0;

	conform_set(c, part->base, 0xee, part->bytes);
	conform_sync(c);
	if (c->rank == 0) {
		CHECK_OK(c, baton_put_signal(data, count, BATON_FLOAT32, 1,
		                             part->window, at, 0, 0, 0, c->comm,
		                             c->stream, NULL, &request));
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		AWAIT(c, 0, 1, 0, 0);
		CHECK_ALL(c, part->base, at, 0xee);
		CHECK_FILLED(c, part->base + at, MIB, 5);
		CHECK_ALL(c, part->base + at + MIB, part->bytes - at - MIB,
		          0xee);
	}
	if (c->rank != 1)
		CHECK_ALL(c, part->base, part->bytes, 0xee);
}

static void
a_put_arrives_and_its_neighbours_stay(struct conform *c)
{
	struct conform_part part;

	if (!OPEN(c, &part, MIB + 300))
		return;
	check_put_with_neighbours(c, &part);
	CLOSE(c, &part);
}

static void
a_put_arrives_in_any_memory(struct conform *c)
{
	struct conform_part part;

	if (!OPEN_PRIVATE(c, &part, MIB + 300))
		return;
	check_put_with_neighbours(c, &part);
	CLOSE(c, &part);
}

static void
puts_of_all_sizes_arrive(struct conform *c)
{
	static const size_t sizes[] = { 1,     7,     8,     63,     64,
		                        65,    255,   1024,  2047,   2048,
		                        2049,  4096,  4097,  8191,   16383,
		                        16384, 16385, 65535, 65536,  65537,
		                        99999, MIB,   MIB + 1, 5 * MIB + 3 };
	const size_t n = sizeof(sizes) / sizeof(sizes[0]), most = 6 * MIB;
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *data = conform_message(c, most);
	struct conform_part part;

	if (!OPEN(c, &part, most))
		return;
	for (size_t i = 0; i < n; i++) {
		struct baton_completion done = { 0 };
		size_t at = i * 13 % 70;
		baton_request request;

		conform_set(c, part.base, 0xee, sizes[i] + 200);
		conform_write(c, data, sizes[i], (unsigned)i + (unsigned)c->rank);
		conform_sync(c);
		request = PUT(c, data, sizes[i], to, part.window, at, 1, 2,
		              c->stream, NULL);
		AWAIT(c, from, 1, 1, 2);
		CHECK_ALL(c, part.base, at, 0xee);
		CHECK_FILLED(c, part.base + at, sizes[i],
		             (unsigned)i + (unsigned)from);
		CHECK_ALL(c, part.base + at + sizes[i], 100, 0xee);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK(c, done.bytes == sizes[i]);
		CHECK_EQ(c, done.op, BATON_OPERATION_PUT_SIGNAL);
		CHECK_EQ(c, done.peer, to);
		CHECK_EQ(c, done.tag, -1);
		CHECK_EQ(c, done.flags, 0);
	}
	CLOSE(c, &part);
}

static void
the_buffer_of_a_put_that_ended_may_be_reused(struct conform *c)
{
	enum { N = 50 };
	const size_t bytes = 40000;
	unsigned char *data = conform_message(c, bytes);
	struct conform_part part;

	if (!OPEN(c, &part, N * bytes))
		return;
	for (int i = 0; i < N && c->rank == 0; i++) {
		baton_request request;

		conform_write(c, data, bytes, (unsigned)i);
		request = PUT(c, data, bytes, 1, part.window, (size_t)i * bytes,
		              0, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	}
	if (c->rank == 1) {
		AWAIT(c, 0, N, 0, 0);
		for (int i = 0; i < N; i++)
			CHECK_FILLED(c, part.base + (size_t)i * bytes, bytes,
			             (unsigned)i);
	}
	CLOSE(c, &part);
}

static void
a_put_of_nothing_signals(struct conform *c)
{
	int to = conform_next(c);
	int from = conform_previous(c);
	baton_request requests[3] = { 0 };
	unsigned char byte = 1;
	struct conform_part part;

	if (!OPEN(c, &part, 64))
		return;
	requests[0] = PUT(c, NULL, 0, to, part.window, 0, 0, 0, c->stream, NULL);
	requests[1] = PUT(c, &byte, 0, to, part.window, 10, 0, 0, c->stream,
	                  NULL);
	/* Just behind the end. */
	requests[2] = PUT(c, NULL, 0, to, part.window, 64, 0, 0, c->stream,
	                  NULL);
	AWAIT(c, from, 3, 0, 0);
	FINISH_ALL(c, requests, 3);
	CHECK_ALL(c, part.base, 64, 0);
	CLOSE(c, &part);
}

static void
a_put_to_oneself_arrives(struct conform *c)
{
	const size_t bytes = 3 * MIB;
	unsigned char *data = conform_filled(c, bytes, 9);
	baton_request requests[2] = { 0 };
	struct conform_part part;

	if (!OPEN(c, &part, bytes + 64))
		return;
	requests[0] = PUT(c, data, bytes, c->rank, part.window, 64, 0, 0,
	                  c->stream, NULL);
	requests[1] = PUT(c, data, 64, c->rank, part.window, 0, 0, 0, c->stream,
	                  NULL);
	AWAIT(c, c->rank, 2, 0, 0);
	CHECK_FILLED(c, part.base, 64, 9);
	CHECK_FILLED(c, part.base + 64, bytes, 9);
	FINISH_ALL(c, requests, 2);
	CLOSE(c, &part);
}

struct checked {
	struct conform *c;
	const unsigned char *base;
	size_t bytes;
	bool good;
};

static void
check_fn(void *arg)
{
	struct checked *checked = arg;

	checked->good = CHECK_FILLED(checked->c, checked->base, checked->bytes,
	                             8);
}

static void
work_behind_a_wait_sees_the_data(struct conform *c)
{
	const size_t bytes = 300000;
	unsigned char *data = conform_filled(c, bytes, 8);
	struct checked checked = { .c = c, .bytes = bytes };
	baton_request request = 0, after = 0;
	struct conform_part part;

	if (!OPEN(c, &part, bytes))
		return;
	if (c->rank == 1) {
		checked.base = part.base;
		request = WAIT(c, 0, 1, 0, 0, c->stream, NULL);
		CHECK_OK(c, baton_stream_launch(c->comm, c->stream, check_fn,
		                                &checked));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
	}
	conform_sync(c);
	if (c->rank == 0)
		request = PUT(c, data, bytes, 1, part.window, 0, 0, 0, c->stream,
		              NULL);
	FINISH(c, BATON_OK, &after);
	FINISH(c, BATON_OK, &request);
	CHECK(c, c->rank != 1 || checked.good);
	CLOSE(c, &part);
}

/* A put that is drawn: from and into a share. */
struct drawn {
	uint32_t kind;
	size_t from, at, bytes;
};

static struct drawn
draw_put(uint64_t *state, size_t share)
{
	struct drawn put = { .kind = conform_random(state) % 4 };

	put.from = conform_random(state) % share;
	put.at = conform_random(state) % share;
	put.bytes = conform_random(state) % (put.kind == 0 ? share : 300);
	if (put.bytes > share - put.from)
		put.bytes = share - put.from;
	if (put.bytes > share - put.at)
		put.bytes = share - put.at;
	return put;
}

/* Every rank puts at random into its own share of every part, and knows, as its
 * target does, what must be there at the end. */
static void
random_puts_make_what_a_model_makes(struct conform *c)
{
	enum { N = 300 };
	const size_t share = 150000, steps = CONFORM_SANITIZED ? 60 : N;
	unsigned char *source = conform_filled(c, share, 3);
	unsigned char *filled = conform_alloc(c, share);
	unsigned char *model = conform_alloc(c, share);
	baton_request requests[N] = { 0 };
	baton_stream streams[3];
	struct conform_part part;

	for (int i = 0; i < 3; i++)
		streams[i] = conform_stream(c);
	conform_fill(filled, share, 3);
	if (!OPEN(c, &part, share * (size_t)c->size))
		return;
	for (int to = 0; to < c->size; to++) {
		uint64_t state = (uint64_t)(c->rank * 64 + to);

		for (size_t i = 0; i < steps; i++) {
			struct drawn put = draw_put(&state, share);

			/* One context, so that they land in this order. */
			requests[i] = PUT(c, source + put.from, put.bytes, to,
			                  part.window,
			                  share * (size_t)c->rank + put.at,
			                  (int)put.kind, 1, streams[i % 3],
			                  &conform_detached);
		}
		FINISH_ALL(c, requests, steps);
	}
	for (int from_rank = 0; from_rank < c->size; from_rank++) {
		uint64_t state = (uint64_t)(from_rank * 64 + c->rank);
		int kinds[4] = { 0 };

		memset(model, 0, share);
		for (size_t i = 0; i < steps; i++) {
			struct drawn put = draw_put(&state, share);

			memcpy(model + put.at, filled + put.from, put.bytes);
			kinds[put.kind]++;
		}
		for (int kind = 0; kind < 4; kind++)
			if (kinds[kind])
				AWAIT(c, from_rank, kinds[kind], kind, 1);
		CHECK_SAME(c, part.base + share * (size_t)from_rank, model,
		           share);
	}
	CLOSE(c, &part);
}

/* A filled buffer that takes no memory to speak of: the pattern begins anew after 251
 * pages, which are mapped again and again.  bytes is of such periods.  NULL: this
 * machine would not. */
static unsigned char *
map_filled(size_t bytes, size_t period, unsigned seed)
{
	unsigned char *base = mmap(NULL, bytes, PROT_NONE,
	                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	                           -1, 0);
	int fd = memfd_create("pattern", MFD_CLOEXEC);
	bool good = base != MAP_FAILED && fd >= 0 &&
	            ftruncate(fd, (off_t)period) == 0;

	for (size_t at = 0; at < bytes && good; at += period)
		good = mmap(base + at, period, PROT_READ | PROT_WRITE,
		            MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (good)
		conform_fill(base, period, seed);
	return good ? base : NULL;
}

/* The wait begins when both are ready: before, a rank has gibibytes to make. */
static void
a_put_of_more_than_2_gib_signals_once(struct conform *c)
{
	const size_t period = 251 * (size_t)sysconf(_SC_PAGESIZE);
	const size_t mapped = (2 * GIB / period + 1) * period;
	const size_t bytes = mapped - 4093;
	struct baton_completion done = { 0 };
	unsigned char *data = NULL;
	baton_request request;
	struct conform_part part;

	if (!OPEN(c, &part, c->rank == 1 ? bytes + 8 : 0))
		return;
	if (c->rank == 0)
		data = map_filled(mapped, period, 1);
	conform_sync(c);
	if (c->rank == 0 && CHECK(c, data != NULL)) {
		request = PUT(c, data, bytes, 1, part.window, 5, 0, 0,
		              c->stream, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK(c, done.bytes == bytes);
	} else if (c->rank == 1) {
		AWAIT(c, 0, 1, 0, 0);
		CHECK_FILLED(c, part.base + 5, bytes, 1);
		CHECK_ALL(c, part.base, 5, 0);
		CHECK_ALL(c, part.base + 5 + bytes, 3, 0);
		CHECK(c, COUNT(c, 0, 0, 0) == 1);
	}
	CLOSE(c, &part);
	if (data)
		munmap(data, mapped);
}

/* ---- order -------------------------------------------------------------- */

/* A small put behind a large one in one context: its signal says that both are
 * there. */
static void
a_small_put_arrives_after_a_large_one_of_its_context(struct conform *c)
{
	const size_t large = 24 * MIB;
	unsigned char *data = conform_filled(c, large, 2);
	baton_request requests[3] = { 0 };
	struct conform_part part;

	if (!OPEN(c, &part, large + 8))
		return;
	if (c->rank == 0) {
		requests[0] = PUT(c, data, large, 1, part.window, 8, 0, 0,
		                  c->stream, &conform_detached);
		requests[1] = PUT(c, data, 8, 1, part.window, 0, 1, 0, c->stream,
		                  &conform_detached);
		requests[2] = SIGNAL_ON(c, 1, 2, 0, c->stream,
		                        &conform_detached);
	}
	if (c->rank == 1) {
		AWAIT(c, 0, 1, 2, 0);
		CHECK_FILLED(c, part.base, 8, 2);
		CHECK_FILLED(c, part.base + 8, large, 2);
		CHECK(c, COUNT(c, 0, 0, 0) == 1 && COUNT(c, 0, 1, 0) == 1);
	}
	FINISH_ALL(c, requests, 3);
	CLOSE(c, &part);
}

/* The first of the channel is not armed: what is behind it in its context waits,
 * also on another stream, and what is in another context does not. */
static void
only_puts_of_one_context_wait_for_each_other(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	unsigned char *data = conform_filled(c, 64 * KIB, 4);
	baton_request requests[3] = { 0 };
	struct conform_part part;

	if (!OPEN(c, &part, 64 * KIB))
		return;
	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		requests[0] = PUT(c, data, 32 * KIB, 1, part.window, 0, 0, 0,
		                  gated, NULL);
		requests[1] = PUT(c, data, 8, 1, part.window, 32 * KIB, 1, 0,
		                  c->stream, &conform_detached);
		requests[2] = PUT(c, data, 8, 1, part.window, 40 * KIB, 1, 1,
		                  c->stream, &conform_detached);
		FINISH(c, BATON_OK, &requests[2]);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[1], NULL));
	}
	if (c->rank == 1) {
		AWAIT(c, 0, 1, 1, 1);
		CHECK_FILLED(c, part.base + 40 * KIB, 8, 4);
		CHECK(c, COUNT(c, 0, 1, 0) == 0);
	}
	conform_sync(c);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	if (c->rank == 1) {
		AWAIT(c, 0, 1, 1, 0);
		CHECK_FILLED(c, part.base, 32 * KIB, 4);
		CHECK_FILLED(c, part.base + 32 * KIB, 8, 4);
	}
	FINISH_ALL(c, requests, 2);
	CLOSE(c, &part);
}

/* ---- many threads to one peer ------------------------------------------- */

#define PUTTERS 4
#define PUTS (CONFORM_SANITIZED ? 60 : 400)
#define SLOT ((size_t)1 << 10)

struct putter {
	struct conform *c;
	struct baton_window *window;
	baton_stream stream;
	const unsigned char *base; /* of this rank's own part */
	int peer, number;          /* and the index */
	int context;
};

/* Slot k of this thread's share holds its number in every word, and is put once. */
static size_t
slot_at(const struct putter *p, int rank, int k)
{
	return SLOT * ((size_t)(rank * PUTTERS + p->number) * (size_t)PUTS +
	               (size_t)k);
}

static size_t
slot_bytes(int k)
{
	return 8 * (1 + (size_t)k * 37 % (SLOT / 8));
}

static void *
put_in_sequence(void *arg)
{
	struct putter *p = arg;
	struct conform *c = p->c;
	uint64_t *words = conform_alloc(c, SLOT * (size_t)PUTS);
	unsigned char *data = conform_message(c, SLOT * (size_t)PUTS);
	baton_request last = 0;

	for (size_t i = 0; i < SLOT / 8 * (size_t)PUTS; i++)
		words[i] = i / (SLOT / 8) + 1;
	conform_copy(c, data, words, SLOT * (size_t)PUTS);
	for (int k = 0; k < PUTS; k++) {
		if (last && k % 16 == 0)
			FINISH(c, BATON_OK, &last);
		if (last)
			CHECK_OK(c, baton_release(&last));
		last = PUT(c, data + SLOT * (size_t)k, slot_bytes(k), p->peer,
		           p->window,
		           slot_at(p, c->rank, k), p->number, p->context,
		           p->stream, NULL);
	}
	FINISH(c, BATON_OK, &last);
	return NULL;
}

/* After every signal, all that the count says are there. */
static void *
check_in_sequence(void *arg)
{
	struct putter *p = arg;
	struct conform *c = p->c;
	int checked = 0;

	for (int k = 0; k < PUTS; k++) {
		baton_request request = WAIT(c, p->peer, 1, p->number,
		                             p->context, p->stream, NULL);
		uint64_t count;

		if (!FINISH(c, BATON_OK, &request))
			break;
		count = COUNT(c, p->peer, p->number, p->context);
		if (!CHECK(c, count > (uint64_t)k && count <= (uint64_t)PUTS))
			break;
		for (; checked < (int)count; checked++) {
			uint64_t slot[SLOT / 8];

			conform_copy(c, slot,
			             p->base + slot_at(p, p->peer, checked),
			             slot_bytes(checked));
			for (size_t i = 0; i < slot_bytes(checked) / 8; i++)
				if (slot[i] != (uint64_t)checked + 1) {
					CHECK_EQ(c, slot[i], checked + 1);
					return NULL;
				}
		}
	}
	return NULL;
}

/* Rank 0 receives from all the others, each of which puts from several threads on
 * several streams; contexts are shared by two threads each. */
static void
data_is_visible_at_each_signal_of_many_threads(struct conform *c)
{
	struct putter putters[PUTTERS * 4];
	pthread_t threads[PUTTERS * 4];
	struct conform_part part;
	int n = 0;

	if (!OPEN(c, &part, SLOT * PUTTERS * (size_t)PUTS * (size_t)c->size))
		return;
	for (int peer = 0; peer < c->size && peer < 5; peer++) {
		for (int i = 0; i < PUTTERS; i++) {
			if (c->rank == 0 ? peer == 0 : peer != 0)
				continue;
			putters[n++] = (struct putter){
				.c = c,
				.window = part.window,
				.stream = conform_stream(c),
				.base = part.base,
				.peer = peer,
				.number = i,
				.context = i / 2,
			};
		}
	}
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL,
		                   c->rank == 0 ? check_in_sequence :
		                                  put_in_sequence,
		                   &putters[i]))
			abort();
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	CLOSE(c, &part);
}

/* ---- a ring ------------------------------------------------------------- */

/* Producers 1... put into rings in the window of rank 0, which checks each slot and
 * gives it back by a signal. */
static void
a_ring_of_slots_with_credits_runs(struct conform *c)
{
	enum { SLOTS = 8, BYTES = 256 };
	const int rounds = conform_turns(CONFORM_SANITIZED ? 500 : 10000);
	unsigned char *out = conform_message(c, (size_t)SLOTS * BYTES);
	struct conform_part part;
	uint64_t words[BYTES / 8];

	if (!OPEN(c, &part, c->rank == 0 ? (size_t)SLOTS * BYTES : 0))
		return;
	for (int k = 0; k < rounds && c->rank == 1; k++) {
		unsigned char *slot = out + (size_t)(k % SLOTS) * BYTES;

		/* The credit for this slot's last use. */
		if (k >= SLOTS && !AWAIT(c, 0, 1, 1, 0))
			break;
		for (int i = 0; i < BYTES / 8; i++)
			words[i] = (uint64_t)k * 1000 + (uint64_t)i;
		conform_copy(c, slot, words, BYTES);
		CHECK_OK(c, baton_put_signal(slot, BYTES / 8, BATON_UINT64, 0,
		                             part.window,
		                             (size_t)(k % SLOTS) * BYTES, 0, 0,
		                             0, c->comm, c->stream, NULL, NULL));
	}
	for (int k = 0; k < rounds && c->rank == 0; k++) {
		bool good = AWAIT(c, 1, 1, 0, 0);

		conform_copy(c, words, part.base + (size_t)(k % SLOTS) * BYTES,
		             BYTES);
		for (int i = 0; i < BYTES / 8 && good; i++)
			good = CHECK_EQ(c, words[i],
			                (uint64_t)k * 1000 + (uint64_t)i);
		if (!good)
			break;
		SIGNAL(c, 1, 1, 0);
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CLOSE(c, &part);
}

static void
more_puts_than_lanes_arrive(struct conform *c)
{
	enum { N = 200 };
	const size_t bytes = 100000;
	unsigned char *data = conform_message(c, N * bytes);
	int to = conform_next(c);
	int from = conform_previous(c);
	baton_request requests[N] = { 0 };
	struct conform_part part;

	for (int i = 0; i < N; i++)
		conform_write(c, data + (size_t)i * bytes, bytes, (unsigned)i);
	if (!OPEN(c, &part, N * bytes))
		return;
	for (int i = 0; i < N; i++)
		requests[i] = PUT(c, data + (size_t)i * bytes, bytes, to,
		                  part.window, (size_t)i * bytes, i % 5, i % 4,
		                  c->stream, &conform_detached);
	for (int i = 0; i < 20; i++)
		AWAIT(c, from, N / 20, i % 5, i % 4);
	for (int i = 0; i < N; i++)
		if (!CHECK_FILLED(c, part.base + (size_t)i * bytes, bytes,
		                  (unsigned)i))
			break;
	FINISH_ALL(c, requests, N);
	CLOSE(c, &part);
}

const struct conform_case conform_puts[] = {
	{ CASE(a_put_arrives_and_its_neighbours_stay), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(a_put_arrives_in_any_memory), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(puts_of_all_sizes_arrive), .needs = BATON_CAP_WINDOWS },
	{ CASE(the_buffer_of_a_put_that_ended_may_be_reused), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(a_put_of_nothing_signals), .needs = BATON_CAP_WINDOWS },
	{ CASE(a_put_to_oneself_arrives), .needs = BATON_CAP_WINDOWS },
	{ CASE(work_behind_a_wait_sees_the_data), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(random_puts_make_what_a_model_makes),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(a_small_put_arrives_after_a_large_one_of_its_context),
	  .ranks_min = 2, .needs = BATON_CAP_WINDOWS },
	{ CASE(only_puts_of_one_context_wait_for_each_other), .ranks_min = 2,
	  .streams = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(data_is_visible_at_each_signal_of_many_threads), .makes = 13,
	  .streams = 4,
	  .ranks_min = 2, .ranks_max = 5, .needs = BATON_CAP_WINDOWS },
	{ CASE(a_ring_of_slots_with_credits_runs), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(more_puts_than_lanes_arrive), .needs = BATON_CAP_WINDOWS },
	{ CASE(a_put_of_more_than_2_gib_signals_once), .ranks_min = 2,
	  .ranks_max = 2, .needs = BATON_CAP_WINDOWS, .flags = CONFORM_LONG,
	  .memory = 4 * GIB },
	CASES_END,
};
