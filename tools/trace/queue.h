/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations and their queues at a moment of the trace; TRACE_NEVER is its end. */
#ifndef BATON_TOOL_TRACE_QUEUE_H
#define BATON_TOOL_TRACE_QUEUE_H

#include "trace.h"

/* One side of what goes from one rank to another with one tag, or signal. */
struct trace_place {
	const struct trace_rank *rank;
	enum trace_side side;
	int peer, tag, context;
};

/* The stamp is not later than the moment. */
bool trace_by(int64_t stamp, int64_t moment);
/* How it ended, as far as that tells of a hang. */
enum trace_end {
	TRACE_TIMED_OUT, /* at its deadline */
	TRACE_BROKEN,    /* with its communicator, or its peer */
	TRACE_PENDING,   /* it has not */
	TRACE_ENDED      /* as it should; or it was canceled */
};
enum trace_end trace_end(const struct trace_op *op);
/* It was called, and had not ended. */
bool trace_pending(const struct trace_op *op, int64_t moment);

struct trace_place trace_place_of(const struct trace_op *op);
bool trace_same_place(const struct trace_place *a, const struct trace_place *b);
/* Units of the queue; up to those of `last`, unless that is NULL. */
uint64_t trace_count(const struct trace_place *queue, const struct trace_op *last,
                     int64_t moment);
/* The operation with which the queue has so many units; NULL: there was none yet, or the ring has lost it. */
const struct trace_op *trace_nth(const struct trace_place *queue, uint64_t number,
                                 int64_t moment);

#endif
