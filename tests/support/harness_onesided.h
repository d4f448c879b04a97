/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals, waits, puts and windows, for conformance cases.
 *
 * As SEND and RECV of harness.h: on the case's communicator, every call is checked,
 * and a failure is printed with the line of the case.  What a case expects to be
 * refused it calls by itself.
 */
#ifndef CONFORM_HARNESS_ONESIDED_H
#define CONFORM_HARNESS_ONESIDED_H

#include "harness.h"

/* ---- signals ------------------------------------------------------------ */

/* SIGNAL: on the stream of the rank, with no request.  SIGNAL_ON: on any stream, and
 * its request. */
void conform_signal_to(struct conform *c, int peer, int index, int context);
baton_request conform_signal_on(struct conform *c, int peer, int index,
                                int context, baton_stream stream,
                                const struct baton_op_options *options);
/* For so many signals of one peer. */
baton_request conform_wait_for(struct conform *c, int peer, int units,
                               int index, int context, baton_stream stream,
                               const struct baton_op_options *options);
/* The same, on the stream of the rank, to its end; returns whether they came. */
bool conform_await(struct conform *c, int peer, int units, int index,
                   int context);
uint64_t conform_count(struct conform *c, int peer, int index, int context);
/* The counter gets there, and not beyond. */
void conform_counts(struct conform *c, int peer, int index, int context,
                    uint64_t want);
#define SIGNAL(c, ...) conform_signal_to(AT(c), __VA_ARGS__)
#define SIGNAL_ON(c, ...) conform_signal_on(AT(c), __VA_ARGS__)
#define WAIT(c, ...) conform_wait_for(AT(c), __VA_ARGS__)
#define AWAIT(c, ...) conform_await(AT(c), __VA_ARGS__)
#define COUNT(c, ...) conform_count(AT(c), __VA_ARGS__)
#define COUNTS(c, ...) conform_counts(AT(c), __VA_ARGS__)

/* ---- windows ------------------------------------------------------------ */

/* This rank's part of a window. */
struct conform_part {
	unsigned char *base; /* the host may not touch it: harness.h */
	size_t bytes;
	bool alloced; /* by baton_mem_alloc */
	struct baton_window *window;
};

/* Collective: a window of a part of so many bytes, in memory of baton_mem_alloc (OPEN) or
 * in memory that nobody shares (OPEN_PRIVATE), or in what CONFORM_WINDOWS says (harness.h);
 * REGISTER: where the case has set base and bytes.  False: there is none, and the case must
 * end; it is skipped where BATON_WINDOW_PATH forces a path that does not reach this memory. */
bool conform_open(struct conform *c, struct conform_part *part, size_t bytes);
bool conform_open_private(struct conform *c, struct conform_part *part,
                          size_t bytes);
bool conform_register(struct conform *c, struct conform_part *part);
/* The memory of a part alone, zeroed, and its end.  usual: its kind where CONFORM_WINDOWS says
 * nothing. */
void conform_take(struct conform *c, struct conform_part *part, size_t bytes,
                  enum conform_kind usual);
void conform_give(struct conform *c, struct conform_part *part);
/* Collective: ranks whose own puts have not all ended make it BUSY for all, so that
 * they have ended is seen to first. */
void conform_close(struct conform *c, struct conform_part *part);
#define OPEN(c, ...) conform_open(AT(c), __VA_ARGS__)
#define OPEN_PRIVATE(c, ...) conform_open_private(AT(c), __VA_ARGS__)
#define REGISTER(c, ...) conform_register(AT(c), __VA_ARGS__)
#define CLOSE(c, ...) conform_close(AT(c), __VA_ARGS__)
#define TAKE(c, ...) conform_take(AT(c), __VA_ARGS__)
#define GIVE(c, ...) conform_give(AT(c), __VA_ARGS__)

/* Bytes to an offset of the peer's part, and the signal behind them. */
baton_request conform_put(struct conform *c, const void *data, size_t bytes,
                          int peer, struct baton_window *window, size_t offset,
                          int index, int context, baton_stream stream,
                          const struct baton_op_options *options);
#define PUT(c, ...) conform_put(AT(c), __VA_ARGS__)

#endif
