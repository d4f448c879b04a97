/* SPDX-License-Identifier: BSD-3-Clause */
/* What bench_put.c, bench_get.c and bench_signal.c share: one window, and the calls. */
#ifndef BATON_BENCH_PUT_H
#define BATON_BENCH_PUT_H

#include "bench_bare.h"
#include "bench_raw.h"

#define PUT_WINDOW_BYTES ((size_t)16 << 20)
/* The counter of all puts and signals. */
#define PUT_SIGNAL 3
#define PUT_CONTEXT 1

struct put_bench {
	struct bench *b;
	char *source; /* PUT_WINDOW_BYTES, as the window */
	char *memory; /* the window's */
	struct baton_window *window;
	unsigned path;   /* to the peer, BATON_WINDOW_PATH_* */
	size_t bytes;    /* of a put of the figure */
	size_t puts;     /* in a round of the figure */
	struct bench_raw raw;
	struct bench_bare bare;
};

/* Enqueue; options NULL is plain stream order. */
baton_request put_signal(struct put_bench *p, int peer, size_t bytes,
                         size_t offset, const struct baton_op_options *options);
/* A signal alone. */
baton_request put_nothing(struct put_bench *p,
                          const struct baton_op_options *options);
baton_request put_wait(struct put_bench *p, int signals);
void put_finish(baton_request *request);
/* Wait for so many signals of the peer, to the end. */
void put_await(struct put_bench *p, int signals);
/* put_nothing, to the end. */
void put_answer(struct put_bench *p);

/* Report under the name, with the path after it unless that is direct; then no bar
 * holds, since all of them are for direct puts.  baseline NULL: base is not read. */
void put_report(struct put_bench *p, const struct bench_row *row,
                const struct bench_stat *value, const char *baseline,
                const struct bench_stat *base);
/* Compare the block, whose argument is p, with the baseline, and report. */
void put_measure(struct put_bench *p, const struct bench_row *row,
                 double (*block)(struct bench *b, void *arg, int rounds),
                 const char *baseline, const struct bench_side *base);
struct bench_plan put_plan(const struct put_bench *p);

/* bench_signal.c */
void bench_signals(struct put_bench *p);
/* bench_get.c */
void bench_gets(struct put_bench *p);

#endif
