/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All stamps on one clock.
 *
 * Processes of one node have one clock, so one rate and one beginning serve all of its files: those of
 * the file with the longest time between its two readings.  A node's clock is moved to that of the first
 * rank's node by what both did together (baton_trace_round): each round says between which bounds
 * their difference lies, and half of what all rounds leave open is the error that is stated.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <baton.h>

/* So far from 0 a sum of four does not overflow. */
#define FAR (INT64_C(1) << 60)
/* Two readings so far apart tell the rate better than the file does. */
#define APART_NS 10000000u

int
trace_order(long long a, long long b)
{
	return (a > b) - (a < b);
}

static int64_t
clamp(double ns)
{
	return ns > (double)FAR ? FAR : ns < -(double)FAR ? -FAR : (int64_t)ns;
}

/* ---- the clock of a node ---- */

static bool
same_node(const struct trace_rank *a, const struct trace_rank *b)
{
	return strcmp(a->header.boot_id, b->header.boot_id) == 0 &&
	       (a->header.boot_id[0] != '\0' ||
	        strcmp(a->header.host, b->header.host) == 0);
}

/* Nanoseconds between the two readings of a file; 0 where they do not make sense. */
static double
apart(const struct baton_trace_header *header)
{
	const struct baton_trace_reading *a = &header->first, *b = &header->latest;
	double ns, rate;

	if (header->clock != BATON_TRACE_TSC || b->ticks <= a->ticks ||
	    b->monotonic_ns <= a->monotonic_ns + APART_NS)
		return 0;
	ns = (double)(b->monotonic_ns - a->monotonic_ns);
	rate = (double)(b->ticks - a->ticks) / ns * 1e9 /
	       (double)header->ticks_per_second;
	return rate > 0.99 && rate < 1.01 ? ns : 0;
}

/* The file whose readings are the clock of the rank's node. */
static const struct baton_trace_header *
anchor_of(const struct trace *trace, const struct trace_rank *rank)
{
	const struct baton_trace_header *best = NULL;

	for (size_t i = 0; i < trace->ranks_count; i++) {
		const struct baton_trace_header *header = &trace->ranks[i].header;

		if (same_node(&trace->ranks[i], rank) &&
		    header->clock == BATON_TRACE_TSC &&
		    (!best || apart(header) > apart(best)))
			best = header;
	}
	return best;
}

/* In nanoseconds of the node's CLOCK_MONOTONIC. */
static int64_t
monotonic(const struct baton_trace_header *anchor,
          const struct baton_trace_header *header, int64_t ticks)
{
	const struct baton_trace_reading *a = &anchor->first, *b = &anchor->latest;
	double per_tick = 1e9 / (double)anchor->ticks_per_second;

	if (header->clock == BATON_TRACE_PASSES)
		return clamp((double)ticks);
	if (apart(anchor) > 0)
		per_tick = (double)(b->monotonic_ns - a->monotonic_ns) /
		           (double)(b->ticks - a->ticks);
	return clamp((double)a->monotonic_ns) +
	       clamp((double)(int64_t)((uint64_t)ticks - a->ticks) * per_tick);
}

/* Each stamp of the rank becomes what `change` makes of it. */
struct change {
	const struct baton_trace_header *anchor; /* NULL: the stamps are nanoseconds */
	const struct baton_trace_header *header;
	int64_t add;
};

static void
change(const struct change *how, int64_t *stamp)
{
	if (*stamp == TRACE_NEVER)
		return;
	if (how->anchor)
		*stamp = monotonic(how->anchor, how->header, *stamp);
	*stamp += how->add;
}

static void
change_rank(struct trace_rank *rank, const struct change *how)
{
	for (size_t i = 0; i < rank->ops_count; i++) {
		struct trace_op *op = &rank->ops[i];

		change(how, &op->enqueued);
		change(how, &op->armed);
		change(how, &op->issued);
		change(how, &op->ended);
	}
}

static void
change_rounds(struct trace_rank *rank, const struct change *how)
{
	for (size_t i = 0; i < rank->rounds_count; i++) {
		int64_t enter = (int64_t)rank->rounds[i].enter;
		int64_t leave = (int64_t)rank->rounds[i].leave;

		change(how, &enter);
		change(how, &leave);
		rank->rounds[i].enter = (uint64_t)enter;
		rank->rounds[i].leave = (uint64_t)leave;
	}
}

/* ---- between nodes ---- */

struct bounds {
	int64_t low, high;
	bool some;
};

/* What the rounds of i and j say of the time to be added to j's stamps. */
static void
narrow(struct bounds *bounds, const struct trace_rank *i,
       const struct trace_rank *j)
{
	for (size_t a = 0; a < i->rounds_count; a++) {
		for (size_t b = 0; b < j->rounds_count; b++) {
			const struct baton_trace_round *x = &i->rounds[a];
			const struct baton_trace_round *y = &j->rounds[b];
			int64_t low = (int64_t)x->enter - (int64_t)y->leave;
			int64_t high = (int64_t)x->leave - (int64_t)y->enter;

			if (x->number != y->number)
				continue;
			bounds->low = low > bounds->low ? low : bounds->low;
			bounds->high = high < bounds->high ? high : bounds->high;
			bounds->some = true;
		}
	}
}

static struct bounds
bounds_of(const struct trace *trace, const struct trace_rank *to,
          const struct trace_rank *of)
{
	struct bounds bounds = {.low = -FAR, .high = FAR};

	for (size_t i = 0; i < trace->ranks_count; i++) {
		const struct trace_rank *x = &trace->ranks[i];

		for (size_t k = 0; k < trace->ranks_count && same_node(x, to); k++) {
			const struct trace_rank *y = &trace->ranks[k];

			if (x->comm == y->comm && same_node(y, of))
				narrow(&bounds, x, y);
		}
	}
	return bounds;
}

static int64_t
by_wall(const struct trace_rank *rank)
{
	int64_t ahead = (int64_t)(rank->header.first.real_ns -
	                          rank->header.first.monotonic_ns);

	return ahead > FAR ? FAR : ahead < -FAR ? -FAR : ahead;
}

/* Set the offset of the rank's node. */
static void
measure(const struct trace *trace, struct trace_rank *rank)
{
	const struct trace_rank *to = &trace->ranks[0];
	struct bounds bounds;

	rank->offset_ns = rank->error_ns = 0;
	if (same_node(rank, to))
		return;
	for (const struct trace_rank *other = to; other < rank; other++) {
		if (same_node(other, rank)) {
			rank->offset_ns = other->offset_ns;
			rank->error_ns = other->error_ns;
			return;
		}
	}
	bounds = bounds_of(trace, to, rank);
	if (!bounds.some) {
		rank->offset_ns = by_wall(rank) - by_wall(to);
		rank->error_ns = -1;
		return;
	}
	rank->offset_ns = bounds.low / 2 + bounds.high / 2;
	/* They contradict each other where a clock has drifted over the run. */
	rank->error_ns = bounds.high > bounds.low
	                         ? (bounds.high - bounds.low) / 2
	                         : (bounds.low - bounds.high) / 2;
}

static void
tell_of_clocks(struct trace *trace)
{
	for (size_t i = 1; i < trace->ranks_count; i++) {
		if (trace->ranks[i].error_ns < 0) {
			trace_check(trace,
			            "the clocks of %s and %s were never compared "
			            "(their ranks have no communicator together): "
			            "they are joined by the time of day",
			            trace->ranks[0].header.host,
			            trace->ranks[i].header.host);
			return;
		}
	}
}

/* ---- the beginning ---- */

static void
see(struct trace_rank *rank, int64_t stamp)
{
	if (stamp == TRACE_NEVER)
		return;
	rank->first = stamp < rank->first ? stamp : rank->first;
	rank->last = stamp > rank->last ? stamp : rank->last;
}

static void
find_bounds(struct trace_rank *rank)
{
	rank->first = INT64_MAX;
	rank->last = INT64_MIN;
	for (size_t i = 0; i < rank->ops_count; i++) {
		see(rank, rank->ops[i].enqueued);
		see(rank, rank->ops[i].armed);
		see(rank, rank->ops[i].issued);
		see(rank, rank->ops[i].ended);
	}
}

/* In nanoseconds of this node's CLOCK_MONOTONIC. */
static int64_t
read_monotonic(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void
begin_at_zero(struct trace *trace)
{
	int64_t base = INT64_MAX, now = read_monotonic();

	for (size_t i = 0; i < trace->ranks_count; i++) {
		find_bounds(&trace->ranks[i]);
		if (trace->ranks[i].first < base)
			base = trace->ranks[i].first;
	}
	for (size_t i = 0; i < trace->ranks_count; i++) {
		struct trace_rank *rank = &trace->ranks[i];
		struct change how = {.add = -base};

		/* A process that runs here is on this node. */
		rank->now = rank->life == TRACE_RUNS
		                    ? clamp((double)now) + rank->offset_ns - base
		                    : TRACE_NEVER;
		if (rank->ops_count == 0) {
			rank->first = rank->last = 0;
			continue;
		}
		change_rank(rank, &how);
		rank->first -= base;
		rank->last -= base;
		if (rank->last > trace->last)
			trace->last = rank->last;
	}
}

void
trace_clocks(struct trace *trace)
{
	for (size_t i = 0; i < trace->ranks_count; i++) {
		struct trace_rank *rank = &trace->ranks[i];
		struct change how = {.anchor = anchor_of(trace, rank),
		                     .header = &rank->header};

		if (!how.anchor)
			how.anchor = how.header;
		change_rank(rank, &how);
		change_rounds(rank, &how);
	}
	for (size_t i = 0; i < trace->ranks_count; i++) {
		struct change how = {.add = 0};

		measure(trace, &trace->ranks[i]);
		how.add = trace->ranks[i].offset_ns;
		change_rank(&trace->ranks[i], &how);
	}
	tell_of_clocks(trace);
	begin_at_zero(trace);
}
