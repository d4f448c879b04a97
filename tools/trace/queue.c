/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues at a moment.  A queue is one side of what goes from one rank to another with one tag, or
 * signal; what is counted in it are operations, or units of signals.  What left its queue later was in
 * it at the moment, and what came later was not.
 */
#include "queue.h"

#include <baton.h>

enum trace_end
trace_end(const struct trace_op *op)
{
	switch (op->status) {
	case BATON_PENDING:
		return TRACE_PENDING;
	case BATON_ERR_TIMEOUT:
		return TRACE_TIMED_OUT;
	case BATON_ERR_ABORTED:
	case BATON_ERR_PEER:
		return TRACE_BROKEN;
	default:
		return TRACE_ENDED;
	}
}

bool
trace_by(int64_t stamp, int64_t moment)
{
	return stamp != TRACE_NEVER && stamp <= moment;
}

bool
trace_pending(const struct trace_op *op, int64_t moment)
{
	return trace_by(op->enqueued, moment) && !trace_by(op->ended, moment);
}

/* It had a place in its queue then. */
static bool
has_place(const struct trace_op *op, int64_t moment)
{
	return trace_by(op->enqueued, moment) &&
	       (trace_keeps_place(op) || !trace_by(op->ended, moment));
}

struct trace_place
trace_place_of(const struct trace_op *op)
{
	enum trace_side side = trace_side(op);

	return (struct trace_place){.rank = op->of,
	                            .side = side,
	                            .peer = side == TRACE_BARRIER ? -1 : op->peer,
	                            .tag = side == TRACE_BARRIER ? -1 : op->tag,
	                            .context = side == TRACE_SIGNAL ? op->context : -1};
}

bool
trace_same_place(const struct trace_place *a, const struct trace_place *b)
{
	return a->side == b->side && a->peer == b->peer && a->tag == b->tag &&
	       a->context == b->context;
}

/* By how much the operation takes the queue on. */
static uint64_t
units_in(const struct trace_place *queue, const struct trace_op *op)
{
	struct trace_place own = trace_place_of(op);
	uint64_t units = 0;

	if (queue->side != TRACE_WAIT)
		return trace_same_place(&own, queue) ? op->units : 0;
	for (size_t i = 0; op->kind == BATON_OPERATION_WAIT_SIGNAL &&
	                   i < op->terms_count;
	     i++) {
		own = (struct trace_place){.side = TRACE_WAIT,
		                           .peer = op->terms[i].peer,
		                           .tag = op->terms[i].tag,
		                           .context = op->terms[i].context};
		units += trace_same_place(&own, queue) ? op->terms[i].units : 0;
	}
	return units;
}

/* What the ring has lost of the queue. */
static uint64_t
lost_of(const struct trace_place *queue)
{
	const struct trace_queue *counter = trace_queue(
		queue->rank, queue->side, queue->peer, queue->tag, queue->context);
	uint64_t kept = 0;

	if (!counter)
		return 0;
	for (size_t i = 0; i < queue->rank->ops_count; i++) {
		const struct trace_op *op = &queue->rank->ops[i];

		if (trace_keeps_place(op))
			kept += units_in(queue, op);
	}
	return counter->numbered > kept ? counter->numbered - kept : 0;
}

/* Units of the queue at that moment; up to those of `last`, unless that is NULL. */
uint64_t
trace_count(const struct trace_place *queue, const struct trace_op *last, int64_t moment)
{
	const struct trace_queue *counter = trace_queue(
		queue->rank, queue->side, queue->peer, queue->tag, queue->context);
	struct trace_place own = last ? trace_place_of(last) : *queue;
	uint64_t units;

	/* What is known without a look at all operations. */
	if (!counter)
		return 0;
	if (moment == TRACE_NEVER && !last)
		return counter->numbered;
	/* A receive from any rank has its number in a queue of its own. */
	if (moment == TRACE_NEVER && last->number > 0 && trace_same_place(&own, queue))
		return last->number;
	units = lost_of(queue);
	for (size_t i = 0; i < queue->rank->ops_count; i++) {
		const struct trace_op *op = &queue->rank->ops[i];

		if (has_place(op, moment) && (!last || op->order <= last->order))
			units += units_in(queue, op);
	}
	return units;
}

/* The operation with which the queue has so many units; NULL: there was none yet, or the ring has lost it. */
const struct trace_op *
trace_nth(const struct trace_place *queue, uint64_t number, int64_t moment)
{
	uint64_t units = lost_of(queue);

	if (number <= units)
		return NULL;
	for (size_t i = 0; i < queue->rank->ops_count; i++) {
		const struct trace_op *op = &queue->rank->ops[i];

		if (has_place(op, moment))
			units += units_in(queue, op);
		if (units >= number)
			return op;
	}
	return NULL;
}
