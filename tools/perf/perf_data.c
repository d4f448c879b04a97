/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The buffers of a rank, and whether what arrives in them is what was sent.
 *
 * What a rank sends is made from its number, a seed, and the place in its buffer, so that bytes of another rank, another
 * row, or another place are told from the right ones.  Before, what receives it has each byte inverted: a
 * message that does not come leaves no byte right.  Memory of GPUs is filled and looked at in pieces, by the driver's copies.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "perf.h"

#define WINDOW_BYTES ((size_t)64 << 20) /* of all messages of a window */
#define PIECE 65536u
#define SIGNAL 0
#define CONTEXT 0

size_t
perf_depth(const struct perf_options *options, size_t bytes)
{
	size_t fit = WINDOW_BYTES / bytes;

	return fit < 1 ? 1 : fit < options->depth ? fit : options->depth;
}

static bool
is_window(enum perf_pattern pattern)
{
	return pattern == PERF_WINDOW || pattern == PERF_PUTS;
}

static bool
is_put(enum perf_pattern pattern)
{
	return pattern == PERF_PUT || pattern == PERF_PUTS;
}

/* ---- memory ---- */

static size_t
capacity_of(const struct perf_rank *rank, size_t bytes_max)
{
	size_t window = rank->options->depth * bytes_max;

	if (is_window(rank->test->pattern) && bytes_max < WINDOW_BYTES)
		return window < WINDOW_BYTES ? window : WINDOW_BYTES;
	if (rank->test->pattern == PERF_ALL)
		return bytes_max * (size_t)rank->end.size;
	return bytes_max;
}

static bool
allocate(struct perf_rank *rank, bool block, char **memory_p)
{
	void *memory = NULL;
	enum baton_status status = BATON_OK;

	if (block)
		status = baton_mem_alloc(rank->end.comm, rank->capacity, &memory);
	else if (posix_memalign(&memory, 4096, rank->capacity) != 0)
		status = BATON_ERR_NOMEM;
	if (status != BATON_OK) {
		perf_fail(rank, "memory for the buffers", status);
		return false;
	}
	if (!block)
		memset(memory, 1, rank->capacity); /* has its pages */
	*memory_p = memory;
	return true;
}

static void
release(struct perf_rank *rank, bool block, char **memory_p)
{
	if (block)
		baton_mem_free(rank->end.comm, *memory_p);
	else
		free(*memory_p);
	*memory_p = NULL;
}

/* What is put from need be no block. */
static bool
out_is_block(const struct perf_rank *rank)
{
	return rank->block && (rank->gpu >= 0 || rank->options->memory == PERF_BLOCK);
}

bool
perf_data_open(struct perf_rank *rank, size_t bytes_max)
{
	bool puts = is_put(rank->test->pattern);
	enum perf_memory memory = rank->options->memory;
	bool well;

	rank->capacity = capacity_of(rank, bytes_max);
	rank->block = memory == PERF_BLOCK ||
	              (memory == PERF_AUTO && (puts || rank->gpu >= 0));
	well = allocate(rank, out_is_block(rank), &rank->end.out) &&
	       allocate(rank, rank->block, &rank->end.in);
	rank->end.signal = SIGNAL;
	rank->end.context = CONTEXT;
	/* Ranks without memory register as well: else the others wait. */
	if (puts) {
		enum baton_status status = baton_window_register(
			rank->end.in, well ? rank->capacity : 0, rank->end.comm,
			&rank->end.window);

		if (status != BATON_OK)
			perf_fail(rank, "baton_window_register", status);
	}
	return *rank->failed == '\0';
}

void
perf_data_close(struct perf_rank *rank)
{
	baton_window_deregister(rank->end.window);
	rank->end.window = NULL;
	release(rank, rank->block, &rank->end.in);
	release(rank, out_is_block(rank), &rank->end.out);
}

/* ---- what is in it ---- */

static uint64_t
word_at(uint64_t seed, int rank, size_t index)
{
	uint64_t x = (seed << 40) + ((uint64_t)rank << 32) + index +
	             UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Bytes from there on of what the rank sends. */
static void
make_bytes(char *to, size_t bytes, uint64_t seed, int rank, size_t from)
{
	size_t done = 0;

	while (done < bytes) {
		uint64_t word = word_at(seed, rank, (from + done) / 8);
		size_t skip = (from + done) % 8;
		size_t some = 8 - skip < bytes - done ? 8 - skip : bytes - done;

		memcpy(to + done, (const char *)&word + skip, some);
		done += some;
	}
}

/* `into`: from `piece` into the buffer, else back. */
static bool
copy(struct perf_rank *rank, bool block, char *buffer, char *piece,
     size_t bytes, bool into)
{
	if (block && rank->gpu >= 0)
		return tool_gpu_copy(buffer, piece, bytes, into,
		                     rank->failed, sizeof(rank->failed));
	memcpy(into ? buffer : piece, into ? piece : buffer, bytes);
	return true;
}

/* What one rank sends, where this one has it or receives it. */
struct area {
	char *at;
	bool block;
	size_t bytes;
	int from;      /* the rank that sends it */
	size_t offset; /* in that one's buffer */
};

static void
write_area(struct perf_rank *rank, const struct area *area, uint64_t seed,
           bool inverted)
{
	char piece[PIECE];

	for (size_t done = 0; done < area->bytes; done += PIECE) {
		size_t left = area->bytes - done;
		size_t some = left < PIECE ? left : PIECE;

		make_bytes(piece, some, seed, area->from, area->offset + done);
		for (size_t i = 0; i < some && inverted; i++)
			piece[i] = (char)~piece[i];
		if (!copy(rank, area->block, area->at + done, piece, some, true))
			return;
	}
}

static size_t
count_wrong(struct perf_rank *rank, const struct area *area, uint64_t seed)
{
	char piece[PIECE], right[PIECE];
	size_t wrong = 0;

	for (size_t done = 0; done < area->bytes; done += PIECE) {
		size_t left = area->bytes - done;
		size_t some = left < PIECE ? left : PIECE;

		make_bytes(right, some, seed, area->from, area->offset + done);
		if (!copy(rank, area->block, area->at + done, piece, some, false))
			return wrong;
		if (memcmp(piece, right, some) == 0)
			continue;
		for (size_t i = 0; i < some; i++)
			wrong += piece[i] != right[i];
	}
	return wrong;
}

/* The bytes that this rank sends, or takes, in a round. */
static size_t
extent(const struct perf_rank *rank)
{
	const struct perf_end *e = &rank->end;

	return is_window(rank->test->pattern)          ? e->bytes * e->depth
	       : rank->test->pattern == PERF_ALL ? e->bytes * (size_t)e->size
	                                         : e->bytes;
}

/* What arrives here, area `index` of it; false: there are not as many. */
static bool
find_area(const struct perf_rank *rank, int index, struct area *area_p)
{
	const struct perf_end *e = &rank->end;
	enum perf_pattern pattern = rank->test->pattern;

	*area_p = (struct area){.at = e->in, .block = rank->block,
	                        .bytes = extent(rank), .from = e->peer};
	if (!rank->takes_part)
		return false;
	if (pattern == PERF_ALL) {
		area_p->bytes = e->bytes;
		area_p->at = e->in + (size_t)index * e->bytes;
		area_p->from = index;
		area_p->offset = (size_t)e->rank * e->bytes;
		return index < e->size;
	}
	if (pattern == PERF_RING)
		area_p->from = (e->rank + e->size - 1) % e->size;
	if (e->first && (is_window(pattern) || pattern == PERF_OVERLAP))
		return false; /* it sends alone */
	return index == 0;
}

void
perf_data_fill(struct perf_rank *rank, uint64_t seed)
{
	const struct area mine = {.at = rank->end.out,
	                          .block = out_is_block(rank),
	                          .bytes = extent(rank),
	                          .from = rank->end.rank};
	struct area area;

	if (*rank->failed || !rank->takes_part)
		return;
	write_area(rank, &mine, seed, false);
	for (int i = 0; find_area(rank, i, &area) && !*rank->failed; i++)
		write_area(rank, &area, seed, true);
}

size_t
perf_data_check(struct perf_rank *rank, uint64_t seed)
{
	struct area area;
	size_t wrong = 0;

	for (int i = 0; !*rank->failed && find_area(rank, i, &area); i++)
		wrong += count_wrong(rank, &area, seed);
	return wrong;
}
