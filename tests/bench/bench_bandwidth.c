/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-way streams of messages, 64 in flight, against MPI_Isend, MPI_Irecv and
 * MPI_Waitall: p2p_bandwidth for large messages, p2p_rate for small ones.
 *
 * A round is a window of 64 messages (4 of those of 16 MiB), each with a buffer of its own, and one
 * small message back that says that all have arrived.  Baton's operations are
 * detached: in plain stream order one would start when the last is complete.
 *
 * p2p_bandwidth_block is the same from and into memory of baton_mem_alloc, on both sides.  The bars
 * are those of the path that Baton's messages take: MPI, or near (BATON_MESSAGE_PATH).
 */
#include <stdlib.h>
#include <string.h>

#include "bench_raw.h"

struct window {
	char *buffer; /* of 64 messages */
	size_t bytes; /* of each */
	size_t depth; /* messages of a round */
	bool rate;    /* the figure is messages, else bytes */
	bool block;   /* the buffer is of baton_mem_alloc */
};

/* Messages a microsecond, or bytes a nanosecond. */
static double
figure(const struct window *w, double ns, int rounds)
{
	double messages = (double)rounds * (double)w->depth;

	return w->rate ? messages * 1e3 / ns : messages * (double)w->bytes / ns;
}

static double
raw_block(struct bench *b, void *arg, int rounds)
{
	const struct window *w = arg;

	return figure(w,
	              bench_raw_stream(b, w->buffer, w->bytes, w->depth, rounds),
	              rounds);
}

static double
baton_block(struct bench *b, void *arg, int rounds)
{
	const struct window *w = arg;
	struct perf_end e = bench_end(b);
	uint64_t start = bench_now();

	e.out = e.in = w->buffer;
	e.bytes = e.step = w->bytes;
	e.depth = w->depth;
	bench_must(perf_window(&e, rounds) == BATON_OK);
	return figure(w, (double)(bench_now() - start), rounds);
}

static double
bar_of(struct bench *b, const struct window *w)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	bench_must(baton_comm_query(b->comm, &info) == BATON_OK);
	if (w->rate)
		return 0.85;
	if (!(info.message_paths & BATON_MESSAGE_PATH_NEAR))
		return 0.97;
	return w->block && w->bytes <= 1048576 ? 1.2 : 1;
}

static void
measure(struct bench *b, struct window *w)
{
	const struct bench_side sides[] = {{raw_block, w}, {baton_block, w}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 5000000};
	struct bench_stat stats[2];
	struct bench_row row = {.bytes = w->bytes, .baseline = "raw MPI",
	                        .kind = BENCH_RATIO_MIN};

	bench_compare(b, sides, 2, &plan, stats);
	row.bench = w->rate ? "p2p_rate"
	            : w->block ? "p2p_bandwidth_block" : "p2p_bandwidth";
	row.unit = w->rate ? "M/s" : "GB/s";
	row.bar = bar_of(b, w);
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
}

int
main(int argc, char **argv)
{
	static const struct window windows[] = {
		{.bytes = 8, .depth = BENCH_WINDOW, .rate = true},
		{.bytes = 65536, .depth = BENCH_WINDOW},
		{.bytes = 1048576, .depth = BENCH_WINDOW},
		{.bytes = 16777216, .depth = 4},
		{.bytes = 65536, .depth = BENCH_WINDOW, .block = true},
		{.bytes = 1048576, .depth = BENCH_WINDOW, .block = true},
		{.bytes = 16777216, .depth = 4, .block = true},
	};
	const size_t most = (size_t)BENCH_WINDOW * 1048576;
	struct bench b;
	void *buffer, *block;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	buffer = bench_alloc(most);
	bench_must(baton_mem_alloc(b.comm, most, &block) == BATON_OK);
	memset(block, 1, most);
	for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		struct window w = windows[i];

		w.buffer = w.block ? block : buffer;
		measure(&b, &w);
	}
	free(buffer);
	bench_must(baton_mem_free(b.comm, block) == BATON_OK);
	return bench_fini(&b);
}
