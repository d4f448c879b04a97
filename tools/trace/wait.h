/* SPDX-License-Identifier: BSD-3-Clause */
/* What an operation waits for, at a moment. */
#ifndef BATON_TOOL_TRACE_WAIT_H
#define BATON_TOOL_TRACE_WAIT_H

#include "queue.h"

enum trace_cause {
	TRACE_BEHIND,  /* an earlier operation of its rank: `next` */
	TRACE_LATE,    /* the other side was called, and is not issued: `next` */
	TRACE_ABSENT,  /* rank `peer` has not made the call */
	TRACE_UNDER_WAY, /* both sides are there: rank `peer`, or what carries them, does not go on */
	TRACE_UNKNOWN, /* nothing is known of rank `peer`: its file is missing */
	TRACE_PROGRAM  /* the program: a function, kernels, a request of baton_stream_wait */
};

struct trace_wait {
	enum trace_cause cause;
	int peer; /* -1: none */
	const struct trace_op *next;
	char why[512]; /* a sentence's end: "rank 0 has sent tag 6 twice, and tag 7 never" */
};

void trace_wait_find(const struct trace *trace, const struct trace_op *op,
                     int64_t moment, struct trace_wait *wait);

#endif
