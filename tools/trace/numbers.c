/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The number of each operation in its queue.
 *
 * Messages match in the order of the calls on each (communicator, source, target, tag): the n-th
 * send with the n-th receive.  What ended early, before it had a message, has left its queue
 * (semantics.md, "Matching") and gets no number.  A receive from any rank counts in the queue of the rank
 * whose message it got.  A message that a probe has found has its number from when it was found, and its receive has
 * that.  Where the ring has lost the first operations of a rank, numbers are counted
 * backwards from the counters, which nothing overwrites.
 *
 * A signal's number is the units that its counter has with it, and a wait's the units that are to
 * have come.
 */
#include "trace.h"

#include <stdlib.h>

#include <baton.h>

static int
compare_queues(const void *a, const void *b)
{
	const struct trace_queue *x = a, *y = b;
	int order = trace_order(x->side, y->side);

	if (order == 0)
		order = trace_order(x->peer, y->peer);
	if (order == 0)
		order = trace_order(x->tag, y->tag);
	return order != 0 ? order : trace_order(x->context, y->context);
}

struct trace_queue *
trace_queue(const struct trace_rank *rank, enum trace_side side, int peer,
            int tag, int context)
{
	const struct trace_queue key = {
		.side = side, .peer = peer, .tag = tag, .context = context};

	if (rank->queues_count == 0)
		return NULL;
	return bsearch(&key, rank->queues, rank->queues_count,
	               sizeof(rank->queues[0]), compare_queues);
}

/* It has a message, or waits for its own: it keeps its place in its queue. */
bool
trace_keeps_place(const struct trace_op *op)
{
	if (op->kind == TRACE_CLAIM)
		return true;
	switch (op->status) {
	case BATON_OK:
	case BATON_PENDING:
	case BATON_ERR_TRUNCATED:
	case BATON_ERR_MISMATCH:
		return true;
	default:
		return op->flags & BATON_TRACE_LENT;
	}
}

/* What an operation has a number in: the queue, by how much it takes that on, where the number goes. */
struct place {
	struct trace_queue queue;
	uint64_t units;
	uint64_t *number;
};

/* The wait took the units of this term. */
static bool
takes(const struct trace_op *op, const struct trace_term *term)
{
	return op->kind == BATON_OPERATION_WAIT_SIGNAL ||
	       (op->kind == BATON_OPERATION_WAIT_ANY &&
	        op->status == BATON_OK && op->peer == term->peer);
}

static size_t
places(const struct trace_op *op)
{
	if (op->found_serial != 0)
		return 0;
	if (op->terms)
		return op->kind == BATON_OPERATION_WAIT_COUNT ? 0
		                                              : op->terms_count;
	return trace_side(op) != TRACE_NO_SIDE && trace_side(op) != TRACE_WAIT;
}

static struct place
place_of(struct trace_op *op, size_t i)
{
	struct place place = {.units = op->units, .number = &op->number};
	bool barrier = trace_side(op) == TRACE_BARRIER;

	if (op->terms) {
		struct trace_term *term = &op->terms[i];

		place.queue = (struct trace_queue){.side = TRACE_WAIT,
		                                   .peer = term->peer,
		                                   .tag = term->tag,
		                                   .context = term->context};
		place.units = takes(op, term) ? term->units : 0;
		place.number = &term->number;
	} else {
		place.queue = (struct trace_queue){
			.side = trace_side(op),
			.peer = barrier ? -1 : op->peer,
			.tag = barrier ? -1 : op->tag,
			.context = trace_side(op) == TRACE_SIGNAL ? op->context : -1};
	}
	return place;
}

static struct trace_queue *
find_queue(const struct trace_rank *rank, const struct place *place)
{
	return trace_queue(rank, place->queue.side, place->queue.peer,
	                   place->queue.tag, place->queue.context);
}

/* Counters of several kinds may be of one queue: signals, and puts with signals. */
static void
merge_queues(struct trace_rank *rank)
{
	size_t kept = 0;

	qsort(rank->queues, rank->queues_count, sizeof(rank->queues[0]),
	      compare_queues);
	for (size_t i = 0; i < rank->queues_count; i++) {
		const struct trace_queue *queue = &rank->queues[i];

		if (kept == 0 ||
		    compare_queues(&rank->queues[kept - 1], queue) != 0) {
			rank->queues[kept++] = *queue;
			continue;
		}
		rank->queues[kept - 1].called += queue->called;
		rank->queues[kept - 1].ended += queue->ended;
		rank->queues[kept - 1].pending += queue->pending;
		rank->queues[kept - 1].failed += queue->failed;
	}
	rank->queues_count = kept;
}

/* Queues without a counter in the file get one, made of the operations that are there. */
static void
add_queues(struct trace_rank *rank)
{
	size_t known = rank->queues_count, count = known, more = 0;
	struct trace_queue *queues;

	for (size_t i = 0; i < rank->ops_count; i++)
		more += places(&rank->ops[i]);
	queues = trace_alloc(known + more, sizeof(queues[0]));
	for (size_t i = 0; i < known; i++)
		queues[i] = rank->queues[i];
	for (size_t i = 0; i < rank->ops_count; i++) {
		for (size_t k = 0; k < places(&rank->ops[i]); k++) {
			struct place place = place_of(&rank->ops[i], k);

			if (!find_queue(rank, &place))
				queues[count++] = place.queue;
		}
	}
	free(rank->queues);
	rank->queues = queues;
	rank->queues_count = count;
	merge_queues(rank);
}

static bool
is_failed(const struct trace_op *op)
{
	return op->status != BATON_OK && op->status != BATON_PENDING;
}

/* A receive of a message that was found has the claim's place, and its failure is counted with its own kind.  One that
 * ended without the message may have been followed by another, which was counted anew: it stays among those of which
 * nobody knows. */
static void
count_claimed(const struct trace_rank *rank, struct trace_op *op)
{
	struct place place = place_of(op, 0);
	struct trace_queue *queue = find_queue(rank, &place);

	if (queue && queue->failed > 0 && is_failed(op) && trace_keeps_place(op))
		queue->failed--;
}

static void
count_queues(struct trace_rank *rank)
{
	for (size_t i = 0; i < rank->ops_count; i++) {
		struct trace_op *op = &rank->ops[i];

		if (op->found_serial != 0)
			count_claimed(rank, op);
		for (size_t k = 0; k < places(op); k++) {
			struct place place = place_of(op, k);
			struct trace_queue *queue = find_queue(rank, &place);

			if (op->fresh && queue->counted)
				continue;
			queue->numbered += place.units;
			queue->failed -= queue->failed > 0 && is_failed(op);
			if (queue->counted)
				continue;
			queue->called += place.units;
			queue->ended += op->status == BATON_OK;
			queue->pending += op->status == BATON_PENDING;
		}
	}
}

/* What the ring has lost had the first numbers.  They are not known where it has lost waits for several
 * counters, or operations that failed: some of those have left their queue, and some have not. */
static void
begin_numbers(struct trace_rank *rank)
{
	bool several = trace_queue(rank, TRACE_WAIT, -1, -1, -1) != NULL;

	for (size_t i = 0; i < rank->queues_count; i++) {
		struct trace_queue *queue = &rank->queues[i];

		queue->numbered = queue->called > queue->numbered
		                          ? queue->called - queue->numbered
		                          : 0;
		queue->unknown = rank->lost > 0 &&
		                 (!queue->counted || queue->failed > 0 ||
		                  (queue->side == TRACE_WAIT && several));
	}
}

static void
number_ops(struct trace_rank *rank)
{
	begin_numbers(rank);
	for (size_t i = 0; i < rank->ops_count; i++) {
		struct trace_op *op = &rank->ops[i];

		for (size_t k = 0; trace_keeps_place(op) && k < places(op); k++) {
			struct place place = place_of(op, k);
			struct trace_queue *queue = find_queue(rank, &place);

			queue->numbered += place.units;
			if (!queue->unknown && place.units > 0)
				*place.number = queue->numbered;
		}
		for (size_t k = 0; op->kind == BATON_OPERATION_WAIT_COUNT &&
		                   k < op->terms_count;
		     k++)
			op->terms[k].number = op->terms[k].units;
	}
}

static int
compare_serials(const void *a, const void *b)
{
	const struct trace_op *x = *(struct trace_op *const *)a;
	const struct trace_op *y = *(struct trace_op *const *)b;

	return (x->serial > y->serial) - (x->serial < y->serial);
}

/* Join claims and their receives, which have one number. */
static void
join_claims(struct trace_rank *rank)
{
	struct trace_op **claims = trace_alloc(rank->ops_count, sizeof(claims[0]));
	size_t count = 0;

	for (size_t i = 0; i < rank->ops_count; i++) {
		if (rank->ops[i].kind == TRACE_CLAIM)
			claims[count++] = &rank->ops[i];
	}
	qsort(claims, count, sizeof(claims[0]), compare_serials);
	for (size_t i = 0; count > 0 && i < rank->ops_count; i++) {
		struct trace_op *op = &rank->ops[i], **found;
		const struct trace_op key = {.serial = op->found_serial}, *at = &key;

		found = op->found_serial == 0
		                ? NULL
		                : bsearch(&at, claims, count, sizeof(claims[0]),
		                          compare_serials);
		if (!found || (*found)->peer != op->peer || (*found)->tag != op->tag)
			continue;
		/* An earlier one ended without it. */
		if ((*found)->found)
			(*found)->found->number = 0;
		op->found = *found;
		(*found)->found = op;
		op->number = (*found)->number;
	}
	free(claims);
}

void
trace_number(struct trace_rank *rank)
{
	merge_queues(rank);
	add_queues(rank);
	count_queues(rank);
	number_ops(rank);
	join_claims(rank);
}
