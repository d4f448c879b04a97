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
	       op->row != SIZE_MAX &&
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
		order = trace_order(x->lane, y->lane);
	if (order == 0)
		order = trace_order(x->armed, y->armed);
	return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static unsigned
take_lane(int64_t *ends, unsigned lanes_max, const struct trace *trace,
          const struct trace_op *op)
{
	unsigned lane = 0;

	while (lane + 1 < lanes_max && ends[lane] > op->armed)
		lane++;
	ends[lane] = op->armed + trace_length(trace, op);
	return lane;
}

/* How long each row is busy in the view; 0: it has nothing there. */
static int64_t *
measure_rows(const struct trace *trace, const struct trace_view *view,
             struct trace_op **ops, size_t count)
{
	int64_t *busy = trace_alloc(trace->rows_count, sizeof(busy[0]));

	for (size_t i = 0; i < count; i++) {
		int64_t begin = ops[i]->armed, end;

		if (!is_shown(trace, view, ops[i]))
			continue;
		end = begin + trace_length(trace, ops[i]);
		begin = begin > view->begin ? begin : view->begin;
		end = end < view->end ? end : view->end;
		busy[ops[i]->row] += end > begin ? end - begin : 1;
	}
	return busy;
}

/* It is one of the rows_max busiest of its rank. */
static bool
is_busy(const struct trace *trace, const int64_t *busy, size_t row, size_t rows_max)
{
	size_t busier = 0;

	if (busy[row] == 0)
		return false;
	for (size_t i = 0; i < trace->rows_count; i++) {
		if (trace->rows[i].place == trace->rows[row].place &&
		    (busy[i] > busy[row] || (busy[i] == busy[row] && i < row)))
			busier++;
	}
	return busier < rows_max;
}

static void
choose_rows(struct trace_lanes *lanes, const struct trace *trace,
            const struct trace_view *view, size_t all, size_t rows_max)
{
	int64_t *busy = measure_rows(trace, view, lanes->ops, all);

	lanes->row_lanes = trace_alloc(trace->rows_count,
	                               sizeof(lanes->row_lanes[0]));
	lanes->rows_left_out = 0;
	for (size_t i = 0; i < trace->rows_count; i++) {
		lanes->row_lanes[i] = is_busy(trace, busy, i, rows_max);
		lanes->rows_left_out += busy[i] > 0 && lanes->row_lanes[i] == 0;
	}
	free(busy);
}

void
trace_lanes_init(struct trace_lanes *lanes, const struct trace *trace,
                 const struct trace_view *view, size_t rows_max, unsigned lanes_max)
{
	int64_t ends[TRACE_LANES_MAX];
	size_t all;

	lanes->ops = trace_all(trace, &all);
	choose_rows(lanes, trace, view, all, rows_max);
	lanes->count = 0;
	for (size_t i = 0; i < all; i++) {
		struct trace_op *op = lanes->ops[i];

		op->lane = 0;
		if (is_shown(trace, view, op) && lanes->row_lanes[op->row] > 0)
			lanes->ops[lanes->count++] = op;
	}
	qsort(lanes->ops, lanes->count, sizeof(lanes->ops[0]), compare);
	for (size_t i = 0; i < lanes->count; i++) {
		struct trace_op *op = lanes->ops[i];
		unsigned *most = &lanes->row_lanes[op->row];

		if (i == 0 || op->row != lanes->ops[i - 1]->row) {
			for (size_t k = 0; k < TRACE_LANES_MAX; k++)
				ends[k] = INT64_MIN;
		}
		op->lane = take_lane(ends, lanes_max, trace, op);
		*most = op->lane + 1 > *most ? op->lane + 1 : *most;
	}
	qsort(lanes->ops, lanes->count, sizeof(lanes->ops[0]), compare);
}

void
trace_lanes_fini(struct trace_lanes *lanes)
{
	free(lanes->ops);
	free(lanes->row_lanes);
}
