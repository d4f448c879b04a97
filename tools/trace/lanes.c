/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where operations lie that overlap on one stream: detached ones, members of groups.  Each takes the
 * first lane that is free when it begins; if all are, the last one.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include <baton.h>

static bool
is_shown(const struct trace *trace, const struct trace_view *view,
         const struct trace_op *op)
{
	return (trace_is_transfer(op) || op->kind == TRACE_FUNCTION) &&
	       op->armed != TRACE_NEVER && op->armed <= view->end &&
	       trace_until(trace, op) >= view->begin;
}

static int
compare(const void *a, const void *b)
{
	const struct trace_op *x = *(struct trace_op *const *)a;
	const struct trace_op *y = *(struct trace_op *const *)b;
	int order = trace_order((long long)x->row, (long long)y->row);

	if (order == 0)
		order = trace_order(x->armed, y->armed);
	return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static unsigned
take_lane(int64_t *ends, const struct trace *trace, const struct trace_op *op)
{
	unsigned lane = 0;

	while (lane + 1 < TRACE_LANES_MAX && ends[lane] > op->armed)
		lane++;
	ends[lane] = op->armed + trace_length(trace, op);
	return lane;
}

void
trace_lanes_init(struct trace_lanes *lanes, const struct trace *trace,
                 const struct trace_view *view)
{
	int64_t ends[TRACE_LANES_MAX];
	size_t all;

	lanes->ops = trace_all(trace, &all);
	lanes->count = 0;
	for (size_t i = 0; i < all; i++) {
		if (is_shown(trace, view, lanes->ops[i]))
			lanes->ops[lanes->count++] = lanes->ops[i];
	}
	qsort(lanes->ops, lanes->count, sizeof(lanes->ops[0]), compare);
	lanes->lane = trace_alloc(lanes->count, sizeof(lanes->lane[0]));
	lanes->row_lanes = trace_alloc(trace->rows_count,
	                               sizeof(lanes->row_lanes[0]));
	for (size_t i = 0; i < trace->rows_count; i++)
		lanes->row_lanes[i] = 1;
	for (size_t i = 0; i < lanes->count; i++) {
		const struct trace_op *op = lanes->ops[i];
		unsigned *most = &lanes->row_lanes[op->row];

		if (i == 0 || op->row != lanes->ops[i - 1]->row) {
			for (size_t k = 0; k < TRACE_LANES_MAX; k++)
				ends[k] = INT64_MIN;
		}
		lanes->lane[i] = take_lane(ends, trace, op);
		*most = lanes->lane[i] + 1 > *most ? lanes->lane[i] + 1 : *most;
	}
}

void
trace_lanes_fini(struct trace_lanes *lanes)
{
	free(lanes->ops);
	free(lanes->lane);
	free(lanes->row_lanes);
}
