/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rows of drawings, and of the summary.
 *
 * Streams belong to processes.  So a row is a stream of a process, called as names.c calls that; where several ranks are threads of one process, each of them has rows of
 * its own.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include <baton.h>

/* Streams belong to processes; ranks that are threads of one have rows of their own. */
static int
compare_places(const struct trace_rank *a, const struct trace_rank *b)
{
	int order = trace_order(a->name_comm, b->name_comm);

	if (order == 0)
		order = trace_order(a->name, b->name);
	if (order == 0)
		order = strcmp(a->header.host, b->header.host);
	return order != 0 ? order : trace_order(a->header.pid, b->header.pid);
}

static int
compare_streams(const void *a, const void *b)
{
	const struct trace_op *x = *(struct trace_op *const *)a;
	const struct trace_op *y = *(struct trace_op *const *)b;
	int order = compare_places(x->of, y->of);

	if (order == 0)
		order = (x->stream > y->stream) - (x->stream < y->stream);
	return order != 0 ? order : trace_order(x->enqueued, y->enqueued);
}

static int
compare_rows(const void *a, const void *b)
{
	const struct trace_row *x = a, *y = b;
	int order = compare_places(x->of, y->of);

	return order != 0 ? order : trace_order(x->first, y->first);
}

struct trace_op **
trace_all(const struct trace *trace, size_t *count_p)
{
	struct trace_op **ops;
	size_t count = 0;

	for (size_t i = 0; i < trace->ranks_count; i++)
		count += trace->ranks[i].ops_count;
	ops = trace_alloc(count, sizeof(ops[0]));
	*count_p = 0;
	for (size_t i = 0; i < trace->ranks_count; i++) {
		for (size_t k = 0; k < trace->ranks[i].ops_count; k++)
			ops[(*count_p)++] = &trace->ranks[i].ops[k];
	}
	return ops;
}


/* Groups, launches of plans, and messages that probes have found, are on no stream. */
static bool
is_on_stream(const struct trace_op *op)
{
	return op->kind != BATON_OPERATION_PLAN && op->kind != TRACE_CLAIM &&
	       op->kind != TRACE_OTHER;
}

static struct trace_op **
all_on_streams(const struct trace *trace, size_t *count_p)
{
	size_t all;
	struct trace_op **ops = trace_all(trace, &all);

	*count_p = 0;
	for (size_t i = 0; i < all; i++) {
		ops[i]->row = SIZE_MAX;
		if (is_on_stream(ops[i]))
			ops[(*count_p)++] = ops[i];
	}
	return ops;
}

/* That of its rows; of a rank that has none one behind all that have. */
static void
find_place(struct trace *trace, struct trace_rank *rank)
{
	for (size_t i = 0; i < trace->rows_count; i++) {
		if (compare_places(trace->rows[i].of, rank) == 0) {
			rank->place = trace->rows[i].place;
			return;
		}
	}
	for (const struct trace_rank *other = trace->ranks; other < rank; other++) {
		if (compare_places(other, rank) == 0) {
			rank->place = other->place;
			return;
		}
	}
	rank->place = (int)trace->places_count++;
}

static void
number_rows(struct trace *trace)
{
	for (size_t i = 0; i < trace->rows_count; i++) {
		struct trace_row *row = &trace->rows[i];
		bool same = i > 0 && compare_places(row[-1].of, row->of) == 0;

		row->stream = same ? row[-1].stream + 1 : 0;
		trace->places_count += same ? 0 : 1;
		row->place = (int)trace->places_count - 1;
	}
	for (size_t i = 0; i < trace->ranks_count; i++)
		find_place(trace, &trace->ranks[i]);
}

/* A row for each stream; operations name it by its place in `rows` before that is sorted. */
static void
collect_rows(struct trace *trace, struct trace_op **ops, size_t count)
{
	trace->rows = trace_alloc(count, sizeof(trace->rows[0]));
	for (size_t i = 0; i < count; i++) {
		if (i == 0 || ops[i]->stream != ops[i - 1]->stream ||
		    compare_places(ops[i]->of, ops[i - 1]->of) != 0) {
			trace->rows[trace->rows_count] = (struct trace_row){
				.of = ops[i]->of,
				.handle = ops[i]->stream,
				.first = ops[i]->enqueued,
				.was = trace->rows_count};
			trace->rows_count++;
		}
		ops[i]->row = trace->rows_count - 1;
	}
}

void
trace_rows(struct trace *trace)
{
	struct trace_op **ops;
	size_t count, *place;

	ops = all_on_streams(trace, &count);
	qsort(ops, count, sizeof(ops[0]), compare_streams);
	collect_rows(trace, ops, count);
	qsort(trace->rows, trace->rows_count, sizeof(trace->rows[0]),
	      compare_rows);
	number_rows(trace);
	place = trace_alloc(trace->rows_count, sizeof(place[0]));
	for (size_t i = 0; i < trace->rows_count; i++)
		place[trace->rows[i].was] = i;
	for (size_t i = 0; i < count; i++)
		ops[i]->row = place[ops[i]->row];
	free(place);
	free(ops);
}

