/* SPDX-License-Identifier: BSD-3-Clause */
/* Who waits for whom at a moment of a trace: hang.c finds it, reasons.c says what it comes from. */
#ifndef BATON_TOOL_TRACE_HANG_H
#define BATON_TOOL_TRACE_HANG_H

#include "wait.h"

/* An operation that waits for something other than its stream. */
struct head {
	const struct trace_op *op;
	bool listed;   /* it never ended as it should */
	struct trace_wait wait;
	size_t next;   /* index of its successor; SIZE_MAX: it has none */
	bool guessed;  /* the successor is what the peer's host may wait for */
	bool told;     /* it is in a circle that was told of */
	size_t walk;   /* the walk that came here, plus 1 */
};

struct hang {
	const struct trace *trace;
	int64_t moment;
	struct head *heads;
	size_t count, uncounted; /* heads; those beyond HEADS_MAX */
	uint64_t behind;         /* operations that wait behind them */
	size_t *first;           /* [places]: its first head; SIZE_MAX */
	struct trace_op *lost;   /* pending ones that the ring has lost */
	size_t lost_count;
};

/* Objects with kind, ranks and a sentence. */
json_t *trace_reasons(struct hang *h);

#endif
