/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `baton perf` and tests/bench time: the loops, each written once.
 *
 * A loop runs `rounds` rounds of one pattern on this rank's end and takes no time by itself; whoever calls it
 * looks at the clock before and after.  The peers run the same loop with as many rounds.  It returns BATON_OK,
 * or the first status that was another: requests are left then, and the communicator is to be aborted.
 */
#ifndef BATON_TOOL_PERF_LOOPS_H
#define BATON_TOOL_PERF_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <baton.h>

#define PERF_WINDOW_MAX 1024 /* messages of a window */

/* One rank's end.  All loops look at comm, stream, out, in and bytes. */
struct perf_end {
	struct baton_comm *comm;
	baton_stream stream;
	int rank, size; /* ring, all to all */
	int peer;       /* of a pair */
	bool first;     /* of a pair: it sends first, or alone */
	char *out, *in;
	size_t bytes; /* of a message or put */
	size_t depth; /* messages or puts of a window, PERF_WINDOW_MAX at most */
	size_t step;  /* from one message of a window to the next in its buffer */
	/* Of puts: a window over `in` of all ranks, and the counter of their signals. */
	struct baton_window *window;
	int signal, context;
	uint64_t steps; /* of perf_spin beside each transfer */
};

/* There and back, in the plain order of a stream: send, receive, each request finished. */
enum baton_status perf_latency(const struct perf_end *e, int rounds);
/* `depth` messages one way, detached, each request finished, and one byte back. */
enum baton_status perf_window(const struct perf_end *e, int rounds);
/* There and back: a put with signal, and the wait for the peer's. */
enum baton_status perf_put(const struct perf_end *e, int rounds);
/* `depth` puts one way, detached, one wait for all their signals, and one signal back. */
enum baton_status perf_puts(const struct perf_end *e, int rounds);
/* A message to the next rank and one from the rank before, as a group. */
enum baton_status perf_ring(const struct perf_end *e, int rounds);
/* A message to each rank and one from each, as a group; `out` and `in` have `bytes` for each. */
enum baton_status perf_all(const struct perf_end *e, int rounds);
/* A detached message one way, perf_spin, and the wait for it. */
enum baton_status perf_overlapped(const struct perf_end *e, int rounds);

/* Pure arithmetic, without a call. */
void perf_spin(uint64_t steps);

#endif
