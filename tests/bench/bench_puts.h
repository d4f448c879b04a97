/* SPDX-License-Identifier: BSD-3-Clause */
/* Baton's puts from stream to stream, as bench_cuda and bench_nccl time them beside a
 * baseline of their own.  The caller has the clock. */
#ifndef BATON_BENCH_PUTS_H
#define BATON_BENCH_PUTS_H

#include "bench.h"

#define BENCH_PUTS_ROUNDS 16 /* round trips until the host waits */

struct bench_puts {
	struct baton_comm *comm;
	baton_stream stream;
	int rank, peer; /* rank 0 begins */
	const char *source;
	struct baton_window *window;
	size_t bytes;  /* of a put */
	size_t stride; /* from the place of one put of a row to the next one's */
};

/* BENCH_PUTS_ROUNDS round trips: each side's stream puts when it has got the other one's. */
void bench_puts_pingpong(const struct bench_puts *p);

/* count puts, one behind the other; the target's stream waits for their signals and signals
 * back. */
void bench_puts_row(const struct bench_puts *p, size_t count);

#endif
