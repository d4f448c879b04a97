/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows, their memory, and puts with signals: guarantees 6, 7, 10 and 11.
 *
 * All ranks register a window in each case, also those that have no other part in
 * it.  Where BATON_WINDOW_PATH forces a path that this machine or this memory does
 * not give, registering is refused on all ranks and the case ends there, skipped.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness_onesided.h"

#define KIB ((size_t)1 << 10)

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

/* ---- many --------------------------------------------------------------- */

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

static void
a_hundred_windows_live_at_once(struct conform *c)
{
	enum { N = 100 };
	int to = conform_next(c);
	int from = conform_previous(c);
	struct conform_part parts[N];
	int n = 0;

	while (n < N && OPEN(c, &parts[n], 64 + (size_t)n))
		n++;
	for (int i = 0; i < n; i++) {
		unsigned char *data = conform_filled(c, 64, (unsigned)i);

		CHECK_OK(c, baton_put_signal(data, 64, BATON_UINT8, to,
		                             parts[i].window, (size_t)i, 0, 0, 0,
		                             c->comm, c->stream, NULL, NULL));
	}
	if (n > 0)
		AWAIT(c, from, n, 0, 0);
	for (int i = 0; i < n; i++)
		CHECK_FILLED(c, parts[i].base + i, 64, (unsigned)i);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* In another order than they came. */
	for (int i = 0; i < n; i++)
		CLOSE(c, &parts[i % 2 ? n - 1 - i / 2 : i / 2]);
}

static void
windows_come_and_go(struct conform *c)
{
	const int rounds = CONFORM_SANITIZED ? 30 : 200;
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *data = conform_message(c, 5000);
	struct conform_part part;

	for (int i = 0; i < rounds; i++) {
		size_t bytes = 1 + (size_t)i * 61 % 5000;
		baton_request request;

		if (i % 3 == 0 ? !OPEN_PRIVATE(c, &part, bytes) :
		                 !OPEN(c, &part, bytes))
			return;
		conform_write(c, data, bytes, (unsigned)i);
		request = PUT(c, data, bytes, to, part.window, 0, 0, 0,
		              c->stream, NULL);
		FINISH(c, BATON_OK, &request);
		/* What has ended at its source is applied before the window
		 * goes, so it may be looked for afterwards too. */
		if (i % 2) {
			unsigned char *base = part.base;
			bool alloced = part.alloced;

			part.alloced = false;
			CLOSE(c, &part);
			CHECK(c, COUNT(c, from, 0, 0) == (uint64_t)i + 1);
			CHECK_FILLED(c, base, bytes, (unsigned)i);
			if (alloced)
				CHECK_OK(c, baton_mem_free(c->comm, base));
			AWAIT(c, from, 1, 0, 0);
			continue;
		}
		AWAIT(c, from, 1, 0, 0);
		CHECK_FILLED(c, part.base, bytes, (unsigned)i);
		CLOSE(c, &part);
	}
}

/* Several windows in one piece of memory, at odd places. */
static void
windows_may_share_memory(struct conform *c)
{
	int to = conform_next(c);
	int from = conform_previous(c);
	unsigned char *data = conform_filled(c, 1000, 6);
	struct conform_part whole, parts[3];
	int n = 0;

	TAKE(c, &whole, 10000, CONFORM_KIND_ALLOC);
	for (; n < 3 && whole.base; n++) {
		parts[n] = (struct conform_part){
			.base = whole.base + 1234 * n + 7,
			.bytes = 1234,
		};
		if (!REGISTER(c, &parts[n]))
			break;
	}
	for (int i = 0; i < n; i++)
		CHECK_OK(c, baton_put_signal(data, 1000, BATON_UINT8, to,
		                             parts[i].window, 11, 0, 0, 0,
		                             c->comm, c->stream, NULL, NULL));
	if (n > 0)
		AWAIT(c, from, n, 0, 0);
	for (int i = 0; i < n; i++) {
		CHECK_ALL(c, parts[i].base, 11, 0);
		CHECK_FILLED(c, parts[i].base + 11, 1000, 6);
		CHECK_ALL(c, parts[i].base + 1011, 223, 0);
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	for (int i = 0; i < n; i++) {
		if (whole.alloced)
			CHECK_STATUS(c, BATON_ERR_BUSY,
			             baton_mem_free(c->comm, whole.base));
		CLOSE(c, &parts[i]);
	}
	GIVE(c, &whole);
}

/* ---- bounds ------------------------------------------------------------- */

static size_t
size_of(const struct conform *c, int rank)
{
	(void)c;
	return rank % 2 ? 0 : 100 + 1000 * (size_t)rank;
}

/* All ranks put one byte into each part that has any, side by side, so each into a byte of its own:
 * the last ones of the part. */
static void
the_sizes_of_all_parts_are_known(struct conform *c)
{
	const size_t own = 1 + (size_t)c->rank, all = (size_t)c->size;
	unsigned char byte = 7;
	baton_request request = 99;
	struct conform_part part;

	if (!OPEN(c, &part, size_of(c, c->rank)))
		return;
	for (int i = 0; i < c->size; i++)
		CHECK(c, baton_window_size(part.window, i) == size_of(c, i));
	CHECK_EQ(c, baton_window_size(part.window, -1), 0);
	CHECK_EQ(c, baton_window_size(part.window, c->size), 0);
	CHECK_EQ(c, baton_window_size(NULL, 0), 0);
	CHECK_EQ(c, baton_window_path(NULL, 0), 0);
	CHECK_EQ(c, baton_window_path(part.window, -1), 0);
	CHECK_EQ(c, baton_window_path(part.window, c->size), 0);
	/* The peer's size decides, not this rank's own. */
	for (int i = 0; i < c->size; i++) {
		size_t bytes = size_of(c, i);

		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_put_signal(&byte, 1, BATON_UINT8, i,
		                               part.window, bytes, 0, 0, 0,
		                               c->comm, c->stream, NULL,
		                               &request),
		              "offset");
		CHECK(c, request == 99);
		if (bytes > 0)
			CHECK_OK(c, baton_put_signal(&byte, 1, BATON_UINT8, i,
			                             part.window, bytes - own, 0,
			                             0, 0, c->comm, c->stream, NULL,
			                             NULL));
		else
			CHECK_OK(c, baton_put_signal(NULL, 0, BATON_UINT8, i,
			                             part.window, 0, 0, 0, 0,
			                             c->comm, c->stream, NULL,
			                             NULL));
	}
	for (int i = 0; i < c->size; i++)
		AWAIT(c, i, 1, 0, 0);
	if (part.bytes > 0)
		CHECK_ALL(c, part.base + part.bytes - all, all, 7);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CLOSE(c, &part);
}

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

static void
a_window_of_another_communicator_is_refused(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	unsigned char byte = 3;
	baton_request request = 99;
	struct conform_part part;

	if (OPEN(c, &part, 100)) {
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_put_signal(&byte, 1, BATON_UINT8, c->rank,
		                               part.window, 0, 0, 0, 0, first,
		                               c->stream, NULL, &request),
		              "window communicator");
		CHECK(c, request == 99);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_mem_free(first, part.base));
		CLOSE(c, &part);
	}
	RESTORE(c, first);
}

static void
bad_registrations_are_refused_on_all_ranks(struct conform *c)
{
	struct baton_window *window = (struct baton_window *)(void *)&window;
	const struct baton_window *before = window;
	unsigned char *memory = conform_alloc(c, 100);
	void *pointer = &window;

	/* What one rank gives wrong, all are told. */
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_window_register(c->rank == 0 ? NULL : memory, 100,
	                                   c->comm, &window));
	CHECK(c, baton_last_error()[0] != '\0');
	CHECK(c, window == before);
	conform_sync(c);
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_window_register(memory, 100, NULL, &window));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_mem_alloc(c->comm, 0, &pointer));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_mem_alloc(NULL, 8, &pointer));
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_mem_alloc(c->comm, 8, NULL));
	CHECK_STATUS(c, BATON_ERR_NOMEM,
	             baton_mem_alloc(c->comm, (size_t)1 << 60, &pointer));
	CHECK(c, pointer == (void *)&window);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_mem_free(c->comm, memory));
	CHECK_OK(c, baton_mem_free(c->comm, NULL));
	CHECK_OK(c, baton_window_deregister(NULL));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_window_register(memory, 100, c->comm, &window));
	(void)baton_group_end(c->comm);
	conform_sync(c);
	CHECK(c, window == before);
	conform_sound(c);
}

static void
memory_is_zero_and_aligned(struct conform *c)
{
	unsigned char *memory[20] = { NULL };

	for (int i = 0; i < 20; i++) {
		size_t bytes = (size_t)1 << i;
		void *pointer = NULL;

		if (!CHECK_OK(c, baton_mem_alloc(c->comm, bytes, &pointer)))
			continue;
		memory[i] = pointer;
		CHECK_EQ(c, (uintptr_t)pointer % 4096, 0);
		CHECK_ALL(c, memory[i], bytes, 0);
		conform_set(c, memory[i], 0xaa, bytes);
	}
	for (int i = 0; i < 20; i += 2)
		CHECK_OK(c, baton_mem_free(c->comm, memory[i]));
	for (int i = 1; i < 20; i += 2) {
		CHECK_ALL(c, memory[i], (size_t)1 << i, 0xaa);
		CHECK_OK(c, baton_mem_free(c->comm, memory[i]));
	}
}

/* ---- lifetimes ---------------------------------------------------------- */

static void
deregister_is_busy_while_a_put_is_pending(struct conform *c)
{
	unsigned char *data = conform_filled(c, 64 * KIB, 7);
	baton_request request = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 64 * KIB))
		return;
	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		request = PUT(c, data, 64 * KIB, c->size - 1, part.window, 0, 0,
		              0, c->stream, NULL);
	}
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(c, BATON_ERR_BUSY,
		             baton_window_deregister(part.window));
		CHECK(c, baton_last_error()[0] != '\0');
	}
	CHECK_EQ(c, baton_window_size(part.window, 0), 64 * KIB);
	conform_sync(c);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &request);
	if (c->rank == c->size - 1) {
		AWAIT(c, 0, 1, 0, 0);
		CHECK_FILLED(c, part.base, 64 * KIB, 7);
	}
	CLOSE(c, &part);
}

static void
windows_and_memory_keep_their_communicator(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	void *memory = NULL;
	struct conform_part part;

	CHECK_OK(c, baton_mem_alloc(c->comm, 100, &memory));
	CHECK_REFUSED(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm), "1");
	CHECK_OK(c, baton_mem_free(c->comm, memory));
	if (OPEN(c, &part, 100)) {
		CHECK_STATUS(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm));
		if (part.alloced)
			CHECK_STATUS(c, BATON_ERR_BUSY,
			             baton_mem_free(c->comm, part.base));
		CHECK_OK(c, baton_comm_status(c->comm));
		conform_sync(c);
		CLOSE(c, &part);
	}
	RESTORE(c, first);
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

/* ---- paths -------------------------------------------------------------- */

static unsigned
forced_path(void)
{
	const char *path = getenv("BATON_WINDOW_PATH");

	if (!path)
		return 0;
	return strcmp(path, "direct") == 0  ? BATON_WINDOW_PATH_DIRECT :
	       strcmp(path, "vmwrite") == 0 ? BATON_WINDOW_PATH_VMWRITE :
	       strcmp(path, "native") == 0  ? BATON_WINDOW_PATH_NATIVE :
	                                      BATON_WINDOW_PATH_MESSAGE;
}

static void
every_peer_has_one_path(struct conform *c)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	unsigned all = 0;
	struct conform_part part;

	if (!OPEN(c, &part, 100))
		return;
	for (int i = 0; i < c->size; i++) {
		unsigned path = baton_window_path(part.window, i);

		CHECK(c, path != 0 && (path & (path - 1)) == 0);
		all |= path;
		if (forced_path() && i != c->rank)
			CHECK_EQ(c, path, forced_path());
	}
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.window_paths, all);
	CLOSE(c, &part);
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	CHECK_EQ(c, info.window_paths, 0);
}

/* Names in /dev/shm with ours in them. */
static int
names_left(struct conform *c)
{
	DIR *directory = opendir("/dev/shm");
	struct dirent *entry;
	int n = 0;

	if (!directory)
		return 0;
	while ((entry = readdir(directory)))
		if (strstr(entry->d_name, "baton")) {
			printf("    /dev/shm/%s\n", entry->d_name);
			n++;
		}
	closedir(directory);
	(void)c;
	return n;
}

static void
windows_have_no_names(struct conform *c)
{
	struct conform_part part;

	if (!OPEN(c, &part, MIB))
		return;
	conform_sync(c);
	CHECK_EQ(c, names_left(c), 0);
	conform_sync(c);
	CLOSE(c, &part);
	CHECK_EQ(c, names_left(c), 0);
}

const struct conform_case conform_window[] = {
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
	{ CASE(a_hundred_windows_live_at_once), .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_come_and_go), .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_may_share_memory), .needs = BATON_CAP_WINDOWS },
	{ CASE(the_sizes_of_all_parts_are_known), .needs = BATON_CAP_WINDOWS },
	{ CASE(bad_puts_are_refused), .needs = BATON_CAP_WINDOWS },
	{ CASE(a_window_of_another_communicator_is_refused),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(bad_registrations_are_refused_on_all_ranks),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(memory_is_zero_and_aligned), .needs = BATON_CAP_WINDOWS },
	{ CASE(deregister_is_busy_while_a_put_is_pending),
	  .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_and_memory_keep_their_communicator),
	  .needs = BATON_CAP_WINDOWS },
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
	{ CASE(every_peer_has_one_path), .needs = BATON_CAP_WINDOWS },
	{ CASE(windows_have_no_names), .needs = BATON_CAP_WINDOWS },
	{ CASE(a_put_of_more_than_2_gib_signals_once), .ranks_min = 2,
	  .ranks_max = 2, .needs = BATON_CAP_WINDOWS, .flags = CONFORM_LONG,
	  .memory = 4 * GIB },
	CASES_END,
};
