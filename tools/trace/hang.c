/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who waits for whom, and why, at up to three moments: just before the first operation ended at its deadline;
 * just before the first one was aborted, or lost its peer; and at the end.  What comes behind a
 * deadline often follows from it: the stream goes on, and so do the peers.
 *
 * A *head* is an operation that has not ended and that waits for something other than its stream; what stands
 * behind it there is only counted.  Each head waits for one thing (wait.c), so it has at most
 * one *successor*: the head that holds up what it waits for.  Where the peer has not made the call at all, that is
 * the peer's first head: its host may wait for it.  So heads and successors are chains, and each chain ends
 * in a circle or at a head without a successor.  Circles and such ends are the reasons.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <baton.h>

#include "tool.h"
#include "hang.h"

#define HEADS_MAX 100000u /* more are counted */
#define LOST_MAX 1000u
#define STEPS_MAX 64

/* ---- the heads ---- */

static void
add_head(struct hang *h, const struct trace_op *op)
{
	if (h->count == HEADS_MAX) {
		h->uncounted++;
		return;
	}
	h->heads[h->count++] = (struct head){.op = op,
	                                     .listed = trace_end(op) != TRACE_ENDED,
	                                     .next = SIZE_MAX};
}

/* It is what a program calls; groups and launches are told of by their members, and a claim by its receive. */
static bool
is_told(const struct trace_op *op, int64_t moment)
{
	if (op->kind == TRACE_CLAIM)
		return !op->found || !trace_pending(op->found, moment);
	return op->row != SIZE_MAX && op->kind != BATON_OPERATION_RECORD;
}

static void
find_heads(struct hang *h, const struct trace_rank *rank, bool *row_seen)
{
	for (size_t i = 0; i < rank->ops_count; i++) {
		const struct trace_op *op = &rank->ops[i];

		if (!is_told(op, h->moment) || !trace_pending(op, h->moment))
			continue;
		if (op->kind == TRACE_CLAIM) {
			add_head(h, op);
			continue;
		}
		/* The first on its stream waits for no other one of Baton's there. */
		if (trace_by(op->armed, h->moment) || !row_seen[op->row])
			add_head(h, op);
		else
			h->behind++;
		row_seen[op->row] = true;
	}
}

/* Pending operations of the queue that are in the ring. */
static uint64_t
pending_in_ring(const struct trace_rank *rank, const struct trace_queue *queue)
{
	uint64_t count = 0;

	for (size_t i = 0; i < rank->ops_count; i++) {
		const struct trace_op *op = &rank->ops[i];

		count += op->status == BATON_PENDING &&
		         trace_side(op) == queue->side &&
		         op->peer == queue->peer && op->tag == queue->tag;
	}
	return count;
}

/* A message that has not ended, of which only the counters know. */
static void
find_lost(struct hang *h, const struct trace_rank *rank)
{
	for (size_t i = 0; rank->lost > 0 && i < rank->queues_count; i++) {
		const struct trace_queue *queue = &rank->queues[i];
		struct trace_op *op = &h->lost[h->lost_count];

		if (queue->side > TRACE_RECV || queue->pending == 0 ||
		    h->count == HEADS_MAX || h->lost_count == LOST_MAX ||
		    queue->pending <= pending_in_ring(rank, queue))
			continue;
		*op = (struct trace_op){.of = rank,
		                        .kind = queue->side == TRACE_SEND
		                                        ? BATON_OPERATION_SEND
		                                        : BATON_OPERATION_RECV,
		                        .status = BATON_PENDING,
		                        .peer = queue->peer,
		                        .tag = queue->tag,
		                        .context = -1,
		                        .units = 1,
		                        .number = queue->ended + 1,
		                        .row = SIZE_MAX,
		                        .ended = TRACE_NEVER};
		h->lost_count++;
		add_head(h, op);
	}
}

/* ---- successors ---- */

static int
compare_heads(const void *a, const void *b)
{
	const struct trace_op *x = ((const struct head *)a)->op;
	const struct trace_op *y = ((const struct head *)b)->op;

	if (x->of != y->of)
		return x->of < y->of ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

/* They are in the order of their ranks, and of the calls there. */
static size_t
head_of(const struct hang *h, const struct trace_op *op)
{
	const struct head key = {.op = op};
	const struct head *head = bsearch(&key, h->heads, h->count,
	                                  sizeof(h->heads[0]), compare_heads);

	return head ? (size_t)(head - h->heads) : SIZE_MAX;
}

static void
find_first(struct hang *h)
{
	for (size_t i = 0; i < h->trace->places_count; i++)
		h->first[i] = SIZE_MAX;
	for (size_t i = h->count; i > 0; i--) {
		int place = h->heads[i - 1].op->of->place;

		/* The host waits for no claim. */
		if (h->heads[i - 1].op->kind != TRACE_CLAIM)
			h->first[place] = i - 1;
	}
}

static size_t
first_head_of(const struct hang *h, const struct trace_op *op, int peer)
{
	const struct trace_rank *rank =
		peer < 0 ? NULL : h->trace->comms[op->of->comm].members[peer];

	return rank ? h->first[rank->place] : SIZE_MAX;
}

/* From what the head waits for to the head that holds that up. */
static void
find_next(struct hang *h, struct head *head)
{
	struct trace_wait wait = head->wait;

	for (int i = 0; i < STEPS_MAX && wait.next; i++) {
		const struct trace_op *next = wait.next;

		head->next = head_of(h, next);
		if (head->next != SIZE_MAX)
			return;
		trace_wait_find(h->trace, next, h->moment, &wait);
	}
	if (head->wait.cause == TRACE_ABSENT) {
		head->next = first_head_of(h, head->op, head->wait.peer);
		head->guessed = head->next != SIZE_MAX;
	}
}

/* ---- the report ---- */

static const char *
state_of(const struct hang *h, const struct head *head)
{
	const struct trace_op *op = head->op;

	if (op->kind == TRACE_CLAIM)
		return "found by a probe";
	if (op->row == SIZE_MAX)
		return "overwritten in the ring";
	if (!trace_by(op->armed, h->moment))
		return op->kind == TRACE_JOIN && head->wait.next &&
		                       head->wait.next->row != op->row
		               ? "waits"
		               : "waits for its stream";
	if (trace_by(op->issued, h->moment) || !trace_is_transfer(op))
		return "issued";
	/* A receive from any rank, or of any tag, is issued when it has a message. */
	return head->wait.cause == TRACE_BEHIND ? "waits for its turn" : "armed";
}

/* Of what has not ended: to when the files were read, or, if its process is gone, to the last event in them. */
static int64_t
until_of(const struct hang *h, const struct trace_op *op)
{
	if (h->moment < h->trace->last)
		return h->moment;
	if (h->moment == TRACE_NEVER && op->of->now != TRACE_NEVER &&
	    op->of->now > h->trace->last)
		return op->of->now;
	return h->trace->last;
}

static json_t *
head_report(const struct hang *h, const struct head *head)
{
	const struct trace_op *op = head->op;
	int64_t since = trace_by(op->armed, h->moment) ? op->armed : op->enqueued;
	bool row = op->row != SIZE_MAX;
	char what[128], id[24], name[64];

	trace_what(op, what, sizeof(what));
	trace_name(op->of, name, sizeof(name));
	snprintf(id, sizeof(id), "%016" PRIx64, h->trace->comms[op->of->comm].id);
	return json_pack(
		"{ss si ss sI si si ss ss ss sI sb ss si sb ss}", "communicator", id,
		"communicator_number", op->of->comm_number, "name", name, "file",
		(json_int_t)(op->of - h->trace->ranks), "rank",
		op->of->rank, "stream", row ? h->trace->rows[op->row].stream : -1,
		"operation", what, "state", state_of(h, head), "status",
		op->status == BATON_PENDING
			? "pending"
			: baton_status_name((enum baton_status)op->status),
		"waited_ns",
		(json_int_t)(row || op->kind == TRACE_CLAIM ? until_of(h, op) - since
		                                            : 0),
		"running",
		op->of->life == TRACE_RUNS, "site",
		op->site, "waits_for_rank", head->wait.peer, "call_never_came",
		head->wait.cause == TRACE_ABSENT, "why", head->wait.why);
}

/* ---- a moment ---- */

/* Just before the first operation ended so; INT64_MIN: none did.  *later_p: those that began to wait after that. */
static int64_t
moment_of(const struct trace *trace, enum trace_end end, json_int_t *later_p)
{
	int64_t first = INT64_MIN;
	size_t count;
	struct trace_op **ops = trace_all(trace, &count);

	for (size_t i = 0; i < count; i++) {
		if (!is_told(ops[i], TRACE_NEVER) || trace_end(ops[i]) != end)
			continue;
		if (end == TRACE_PENDING)
			first = TRACE_NEVER;
		else if (first == INT64_MIN || ops[i]->ended - 1 < first)
			first = ops[i]->ended - 1;
	}
	*later_p = 0;
	for (size_t i = 0; i < count; i++)
		*later_p += is_told(ops[i], TRACE_NEVER) && trace_end(ops[i]) == end &&
		            !trace_pending(ops[i], first);
	free(ops);
	return first;
}

static void
find_all(struct hang *h)
{
	bool *row_seen = trace_alloc(h->trace->rows_count, sizeof(row_seen[0]));

	for (size_t i = 0; i < h->trace->ranks_count; i++) {
		/* In the order of head_of: those have no number. */
		if (h->moment == TRACE_NEVER)
			find_lost(h, &h->trace->ranks[i]);
		find_heads(h, &h->trace->ranks[i], row_seen);
	}
	free(row_seen);
	find_first(h);
	for (size_t i = 0; i < h->count; i++)
		trace_wait_find(h->trace, h->heads[i].op, h->moment,
		                &h->heads[i].wait);
	for (size_t i = 0; i < h->count; i++)
		find_next(h, &h->heads[i]);
}

static json_t *
moment_report(struct hang *h, const char *when, json_int_t later)
{
	json_t *waiting = json_array();

	for (size_t i = 0; i < h->count; i++) {
		if (h->heads[i].listed)
			json_array_append_new(waiting, head_report(h, &h->heads[i]));
	}
	return json_pack("{ss so so sI sI sI so}", "when", when, "at_ns",
	                 h->moment == TRACE_NEVER ? json_null()
	                                          : json_integer(h->moment),
	                 "waiting", waiting, "waiting_more",
	                 (json_int_t)h->uncounted, "behind",
	                 (json_int_t)(h->behind & INT64_MAX), "later", later,
	                 "reasons", trace_reasons(h));
}

json_t *
trace_hang(const struct trace *trace)
{
	static const char *const names[] = {[TRACE_TIMED_OUT] = "deadline",
	                                    [TRACE_BROKEN] = "break",
	                                    [TRACE_PENDING] = "end"};
	json_t *moments = json_array(), *report;
	json_int_t later;

	for (enum trace_end end = TRACE_TIMED_OUT; end < TRACE_ENDED; end++) {
		struct hang h = {.trace = trace};

		h.moment = moment_of(trace, end, &later);
		if (h.moment == INT64_MIN && end != TRACE_PENDING)
			continue;
		h.moment = h.moment == INT64_MIN ? TRACE_NEVER : h.moment;
		h.heads = trace_alloc(HEADS_MAX, sizeof(h.heads[0]));
		h.lost = trace_alloc(LOST_MAX + 1, sizeof(h.lost[0]));
		h.first = trace_alloc(trace->places_count, sizeof(h.first[0]));
		find_all(&h);
		report = moment_report(&h, names[end], later);
		if (json_array_size(json_object_get(report, "waiting")) > 0)
			json_array_append(moments, report);
		json_decref(report);
		free(h.heads);
		free(h.lost);
		free(h.first);
	}
	return json_pack("{so sO}", "moments", moments, "checks", trace->checks);
}
