/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an operation waits for.
 *
 * It is asked for a moment: the end of the trace, or, of an operation that ended early (by its deadline, an
 * abort, the end of a peer), just before that.  An operation waits, in this order,
 *
 *   not armed    for its stream: the first operation there that had not ended
 *   not issued   for its turn: the first of its queue that was not issued
 *   issued       for the other side, which is the operation of the peer with the same number in the queue
 *
 * Numbers are those of the moment: what left its queue later was in it then, and what came later was not.
 */
#include "wait.h"

#include <stdarg.h>
#include <string.h>

#include <baton.h>

/* ---- within a rank ---- */

static bool
blocks_stream(const struct trace_op *op, int64_t moment)
{
	return op->row != SIZE_MAX && trace_pending(op, moment) &&
	       !((op->flags & BATON_TRACE_DETACHED) && trace_by(op->armed, moment));
}

static bool
is_before(const struct trace_op *a, const struct trace_op *b)
{
	if (a->of == b->of)
		return a->order < b->order;
	return a->enqueued < b->enqueued;
}

/* The first operation on that row, of any communicator, that holds up the later ones. */
static const struct trace_op *
first_on_row(const struct trace *trace, size_t row, const struct trace_op *before,
             int64_t moment)
{
	const struct trace_op *first = NULL;

	for (size_t i = 0; i < trace->ranks_count; i++) {
		const struct trace_rank *rank = &trace->ranks[i];

		if (rank->place != before->of->place)
			continue;
		for (size_t k = 0; k < rank->ops_count; k++) {
			const struct trace_op *op = &rank->ops[k];

			if (op->row == row && op != before &&
			    blocks_stream(op, moment) && is_before(op, before) &&
			    (!first || is_before(op, first)))
				first = op;
		}
	}
	return first;
}

/* The operation whose end a baton_stream_wait waits for, which had not ended when that was called; or NULL. */
static const struct trace_op *
joined_in(const struct trace_rank *rank, const struct trace_op *join, int64_t moment)
{
	for (size_t i = 0; i < rank->ops_count; i++) {
		const struct trace_op *op = &rank->ops[i];

		if (op->serial == join->joined_serial &&
		    trace_pending(op, join->enqueued) && trace_pending(op, moment))
			return op;
	}
	return NULL;
}

/* Of a group a member that has not ended. */
static const struct trace_op *
pending_member(const struct trace_op *group, int64_t moment)
{
	for (size_t i = 0; i < group->of->ops_count; i++) {
		const struct trace_op *op = &group->of->ops[i];

		if (op->parent == group->serial && trace_pending(op, moment))
			return op;
	}
	return group;
}

/* NULL: it is not known, or has ended by then. */
static const struct trace_op *
find_joined(const struct trace *trace, const struct trace_op *join, int64_t moment)
{
	const struct trace_op *found = NULL;

	for (size_t i = 0; i < trace->ranks_count && join->joined_serial && !found;
	     i++) {
		const struct trace_rank *rank = &trace->ranks[i];

		if (rank->header.index == join->joined_index &&
		    trace_same_process(rank, join->of))
			found = joined_in(rank, join, moment);
	}
	return found ? pending_member(found, moment) : NULL;
}

/* " in communicator 1", where that has to be said of an operation beside one of another. */
static const char *
beside(const struct trace_op *op, const struct trace_op *other)
{
	return op->of->comm_number == 1 && other->of->comm_number > 1
	               ? " in communicator 1"
	               : "";
}

/* A baton_stream_wait whose stream has come to it waits for another operation.  False: that is not known. */
static bool
find_for_join(const struct trace *trace, const struct trace_op *op, int64_t moment,
              struct trace_wait *wait)
{
	const struct trace_op *joined = op->kind == TRACE_JOIN
	                                        ? find_joined(trace, op, moment)
	                                        : NULL;
	char what[128];

	if (!joined)
		return false;
	wait->cause = TRACE_BEHIND;
	wait->next = joined;
	trace_what(joined, what, sizeof(what));
	snprintf(wait->why, sizeof(wait->why),
	         "it waits for the %s%s, which has not ended", what,
	         beside(joined, op));
	return true;
}

static void
find_on_stream(const struct trace *trace, const struct trace_op *op,
               int64_t moment, struct trace_wait *wait)
{
	char what[128];

	wait->next = op->row == SIZE_MAX
	                     ? NULL
	                     : first_on_row(trace, op->row, op, moment);
	/* A group waits for the streams of all of its members. */
	for (size_t i = 0; !wait->next && op->parent != 0 && i < op->of->ops_count;
	     i++) {
		const struct trace_op *other = &op->of->ops[i];

		if (other->parent == op->parent && other->row != SIZE_MAX)
			wait->next = first_on_row(trace, other->row, other, moment);
		if (wait->next && wait->next->parent == op->parent)
			wait->next = NULL;
	}
	if (wait->next) {
		wait->cause = TRACE_BEHIND;
		trace_what(wait->next, what, sizeof(what));
		snprintf(wait->why, sizeof(wait->why),
		         "its stream is not past the %s%s", what,
		         beside(wait->next, op));
	} else if (!find_for_join(trace, op, moment, wait)) {
		wait->cause = TRACE_PROGRAM;
		snprintf(wait->why, sizeof(wait->why),
		         "the trace does not show for what: work of the program's "
		         "own, a group that is not ended, or a wait of the stream");
	}
}

/* A receive from any rank, or of any tag, that has met no message so far. */
static bool
takes_any(const struct trace_op *op)
{
	return op->kind == BATON_OPERATION_RECV && (op->peer < 0 || op->tag < 0);
}

/* Puts, signals, gets and atomic operations are in one queue of their peer and context. */
static bool
is_one_sided(const struct trace_op *op)
{
	return op->kind == BATON_OPERATION_SIGNAL ||
	       op->kind == BATON_OPERATION_PUT_SIGNAL ||
	       op->kind == BATON_OPERATION_GET ||
	       op->kind == BATON_OPERATION_ATOMIC;
}

static bool
have_one_order(const struct trace_op *a, const struct trace_op *b)
{
	if (is_one_sided(a))
		return is_one_sided(b) && a->peer == b->peer &&
		       a->context == b->context;
	if (a->kind != b->kind)
		return false;
	/* A receive from any rank is in the queues of all, and one of any tag in those of all tags. */
	if (a->kind == BATON_OPERATION_RECV)
		return (a->tag == b->tag || a->tag < 0 || b->tag < 0) &&
		       (a->peer == b->peer || a->peer < 0 || b->peer < 0);
	return a->kind == BATON_OPERATION_BARRIER ||
	       (a->kind == BATON_OPERATION_SEND && a->tag == b->tag &&
	        a->peer == b->peer);
}

/* The first operation of its queue that was not issued, if that is another one; NULL: it was its turn. */
static const struct trace_op *
turn_of(const struct trace_op *op, int64_t moment)
{
	if (trace_by(op->issued, moment))
		return NULL;
	for (size_t i = 0; i < op->of->ops_count; i++) {
		const struct trace_op *other = &op->of->ops[i];

		if (other->order >= op->order)
			return NULL;
		if (have_one_order(other, op) && trace_pending(other, moment) &&
		    (!trace_by(other->issued, moment) || other->peer < 0 ||
		     takes_any(other)))
			return other;
	}
	return NULL;
}

/* ---- the other side ---- */

static const struct trace_rank *
member(const struct trace *trace, const struct trace_op *op, int rank)
{
	return rank >= 0 ? trace->comms[op->of->comm].members[rank] : NULL;
}

static const char *
times(uint64_t count, char *text, size_t size)
{
	if (count == 0)
		return "never";
	if (count == 1)
		return "once";
	if (count == 2)
		return "twice";
	snprintf(text, size, "%llu times", (unsigned long long)count);
	return text;
}

static void
add_text(struct trace_wait *wait, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void
add_text(struct trace_wait *wait, const char *format, ...)
{
	size_t length = strlen(wait->why);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(wait->why + length, sizeof(wait->why) - length, format,
	          arguments);
	va_end(arguments);
}

/* The other side is `op` of rank `peer`: how far is that? */
static void
find_far(const struct trace *trace, const struct trace_op *op, int64_t moment,
         struct trace_wait *wait)
{
	const struct trace_op *turn = turn_of(op, moment);
	struct trace_wait own = {.peer = -1};

	wait->peer = op->of->rank;
	if (op->kind == TRACE_CLAIM) {
		if (op->found && trace_by(op->found->enqueued, moment)) {
			find_far(trace, op->found, moment, wait);
			return;
		}
		wait->cause = TRACE_LATE;
		wait->next = op;
		add_text(wait, "rank %d has found it by a probe and not received it",
		         op->of->rank);
		return;
	}
	if (!trace_by(op->armed, moment)) {
		wait->cause = TRACE_LATE;
		wait->next = op;
		find_on_stream(trace, op, moment, &own);
		add_text(wait, "rank %d has called the %s, but %s", op->of->rank,
		         trace_kind(op->kind), own.why);
	} else if (turn) {
		wait->cause = TRACE_LATE;
		wait->next = op;
		add_text(wait, "rank %d has called the %s, which waits for its turn",
		         op->of->rank, trace_kind(op->kind));
	} else {
		wait->cause = TRACE_UNDER_WAY;
		add_text(wait, "the %s of rank %d is there, and it is under way",
		         trace_kind(op->kind), op->of->rank);
	}
}

/* What the peer has called in the place of this: the same with other tags, to the same rank. */
static bool
add_others(const struct trace_place *queue, int64_t moment, struct trace_wait *wait)
{
	const char *noun = queue->side == TRACE_SIGNAL ? "signal" : "tag";
	bool some = false;
	char text[48];

	for (size_t i = 0; i < queue->rank->queues_count; i++) {
		const struct trace_queue *other = &queue->rank->queues[i];
		struct trace_place key = *queue;
		uint64_t others;

		key.tag = other->tag;
		key.context = other->context;
		if (other->side != queue->side || other->peer != queue->peer ||
		    trace_same_place(&key, queue))
			continue;
		others = trace_count(&key, NULL, moment);
		if (others == 0)
			continue;
		add_text(wait, "%s%s %d", some ? ", " : "", noun, other->tag);
		if (key.context != queue->context)
			add_text(wait, " of context %d", key.context);
		add_text(wait, " %s", times(others, text, sizeof(text)));
		some = true;
	}
	return some;
}

/* The peer's queue has `have` units, and `wanted` are waited for. */
static void
find_absent(const struct trace_place *queue, uint64_t have, uint64_t wanted,
            int64_t moment, struct trace_wait *wait)
{
	bool signal = queue->side == TRACE_SIGNAL;
	const char *verb = queue->side == TRACE_SEND   ? "sent"
	                   : queue->side == TRACE_RECV ? "called receives of"
	                                               : "given";
	char text[48];

	wait->cause = TRACE_ABSENT;
	wait->peer = queue->rank->rank;
	add_text(wait, "rank %d has %s ", queue->rank->rank, verb);
	if (have == 0) {
		add_text(wait, "%s%s %d never",
		         add_others(queue, moment, wait) ? " and " : "",
		         signal ? "signal" : "tag", queue->tag);
	} else {
		add_text(wait, "%s %d %s", signal ? "signal" : "tag", queue->tag,
		         times(have, text, sizeof(text)));
		add_text(wait, ", and this is the %s %llu",
		         signal ? "wait for its unit" : "one with number",
		         (unsigned long long)wanted);
	}
}

/* What the n-th of this queue of the peer's is doing. */
static void
find_nth_far(const struct trace *trace, const struct trace_place *queue, uint64_t number, int64_t moment,
             struct trace_wait *wait)
{
	uint64_t have = trace_count(queue, NULL, moment);
	const struct trace_op *far;

	if (have < number) {
		find_absent(queue, have, number, moment, wait);
		return;
	}
	far = trace_nth(queue, number, moment);
	if (far) {
		find_far(trace, far, moment, wait);
		return;
	}
	wait->cause = TRACE_UNDER_WAY;
	wait->peer = queue->rank->rank;
	add_text(wait, "rank %d has called its side, and the ring has lost how far that is",
	         queue->rank->rank);
}

static void
find_unknown(int rank, struct trace_wait *wait)
{
	wait->cause = TRACE_UNKNOWN;
	wait->peer = rank;
	add_text(wait, "rank %d has left no file, so nothing is known of it", rank);
}

/* A receive from any rank, or of any tag, that could take this send; NULL: there is none. */
static const struct trace_op *
find_taker(const struct trace_rank *rank, const struct trace_op *send, int64_t moment)
{
	for (size_t i = 0; i < rank->ops_count; i++) {
		const struct trace_op *op = &rank->ops[i];

		if (takes_any(op) && trace_pending(op, moment) &&
		    (op->peer < 0 || op->peer == send->of->rank) &&
		    (op->tag < 0 || op->tag == send->tag))
			return op;
	}
	return NULL;
}

static void
find_for_message(const struct trace *trace, const struct trace_op *op,
                 int64_t moment, struct trace_wait *wait)
{
	const struct trace_rank *peer = member(trace, op, op->peer);
	bool sends = op->kind == BATON_OPERATION_SEND;
	struct trace_place own = trace_place_of(op), far = {.rank = peer,
	                                                    .side = sends ? TRACE_RECV
	                                                                  : TRACE_SEND,
	                                                    .peer = op->of->rank,
	                                                    .tag = op->tag,
	                                                    .context = -1};
	const struct trace_op *taker = peer && sends ? find_taker(peer, op, moment) : NULL;

	if (!peer) {
		find_unknown(op->peer, wait);
	} else if (moment == TRACE_NEVER && op->match) {
		find_far(trace, op->match, moment, wait);
	} else if (taker) {
		wait->cause = TRACE_UNDER_WAY;
		wait->peer = op->peer;
		add_text(wait, "rank %d has a receive %s for it", op->peer,
		         taker->peer < 0 ? "from any rank" : "of any tag");
	} else {
		find_nth_far(trace, &far, trace_count(&own, op, moment), moment, wait);
	}
}

/* Is there a message of that rank, on that tag, that no receive before this one took? */
static bool
find_any_on(const struct trace *trace, const struct trace_rank *from, int tag,
            const struct trace_op *op, int64_t moment, struct trace_wait *wait)
{
	struct trace_place own = {.rank = op->of,
	                          .side = TRACE_RECV,
	                          .peer = from->rank,
	                          .tag = tag,
	                          .context = -1};
	struct trace_place far = {.rank = from,
	                          .side = TRACE_SEND,
	                          .peer = op->of->rank,
	                          .tag = tag,
	                          .context = -1};
	uint64_t taken = trace_count(&own, op, moment);

	if (trace_count(&far, NULL, moment) <= taken)
		return false;
	find_nth_far(trace, &far, taken + 1, moment, wait);
	return true;
}

static bool
find_any_from(const struct trace *trace, const struct trace_rank *from, const struct trace_op *op,
              int64_t moment, struct trace_wait *wait)
{
	for (size_t i = 0; i < from->queues_count; i++) {
		const struct trace_queue *queue = &from->queues[i];

		if (queue->side == TRACE_SEND && queue->peer == op->of->rank &&
		    (op->tag < 0 || queue->tag == op->tag) &&
		    find_any_on(trace, from, queue->tag, op, moment, wait))
			return true;
	}
	return false;
}

/* A receive from any rank, or of any tag. */
static void
find_for_any(const struct trace *trace, const struct trace_op *op, int64_t moment,
             struct trace_wait *wait)
{
	const struct trace_comm *comm = &trace->comms[op->of->comm];
	char who[32] = "no rank has sent", what[32] = "anything";

	if (op->peer >= 0 && !comm->members[op->peer]) {
		find_unknown(op->peer, wait);
		return;
	}
	for (int i = 0; i < comm->size; i++) {
		if (comm->members[i] && (op->peer < 0 || op->peer == i) &&
		    find_any_from(trace, comm->members[i], op, moment, wait))
			return;
	}
	wait->cause = TRACE_ABSENT;
	wait->peer = op->peer;
	if (op->peer >= 0)
		snprintf(who, sizeof(who), "rank %d has not sent", op->peer);
	if (op->tag >= 0)
		snprintf(what, sizeof(what), "tag %d", op->tag);
	add_text(wait, "%s %s that it has not received", who, what);
}

static void
find_for_term(const struct trace *trace, const struct trace_op *op,
              const struct trace_term *term, int64_t moment,
              struct trace_wait *wait)
{
	const struct trace_rank *peer = member(trace, op, term->peer);
	struct trace_place own = {.rank = op->of,
	                          .side = TRACE_WAIT,
	                          .peer = term->peer,
	                          .tag = term->tag,
	                          .context = term->context};
	struct trace_place far = {.rank = peer,
	                          .side = TRACE_SIGNAL,
	                          .peer = op->of->rank,
	                          .tag = term->tag,
	                          .context = term->context};
	uint64_t wanted = term->number;

	if (wanted == 0)
		wanted = trace_count(&own, op, moment);
	/* One for any takes its units when it ends. */
	if (op->kind == BATON_OPERATION_WAIT_ANY)
		wanted += term->units;
	if (!peer)
		find_unknown(term->peer, wait);
	else
		find_nth_far(trace, &far, wanted, moment, wait);
}

/* The counter that is furthest from what it is to be. */
static void
find_for_signals(const struct trace *trace, const struct trace_op *op,
                 int64_t moment, struct trace_wait *wait)
{
	static const int rank_of[] = {[TRACE_BEHIND] = 0, [TRACE_UNDER_WAY] = 1,
	                              [TRACE_PROGRAM] = 1, [TRACE_UNKNOWN] = 2,
	                              [TRACE_LATE] = 3, [TRACE_ABSENT] = 4};

	wait->cause = TRACE_UNDER_WAY;
	snprintf(wait->why, sizeof(wait->why), "its signals are on their way");
	for (size_t i = 0; i < op->terms_count; i++) {
		struct trace_wait one = {.peer = -1};

		find_for_term(trace, op, &op->terms[i], moment, &one);
		if (i == 0 || rank_of[one.cause] > rank_of[wait->cause])
			*wait = one;
	}
}

static void
find_for_barrier(const struct trace *trace, const struct trace_op *op,
                 int64_t moment, struct trace_wait *wait)
{
	const struct trace_comm *comm = &trace->comms[op->of->comm];
	struct trace_place queue = trace_place_of(op);
	uint64_t number = trace_count(&queue, op, moment);
	char text[48];

	wait->cause = TRACE_UNDER_WAY;
	for (int i = 0; i < comm->size; i++) {
		const struct trace_op *far;

		queue.rank = comm->members[i];
		if (!queue.rank) {
			find_unknown(i, wait);
			return;
		}
		far = trace_nth(&queue, number, moment);
		if (far && !trace_by(far->armed, moment)) {
			find_far(trace, far, moment, wait);
			return;
		}
		if (far || trace_count(&queue, NULL, moment) >= number)
			continue;
		wait->cause = TRACE_ABSENT;
		wait->peer = i;
		add_text(wait, "rank %d has called barriers %s, and this is number %llu",
		         i, times(trace_count(&queue, NULL, moment), text, sizeof(text)),
		         (unsigned long long)number);
		return;
	}
	add_text(wait, "all ranks have come to it");
}

static void
find_far_side(const struct trace *trace, const struct trace_op *op, int64_t moment,
              struct trace_wait *wait)
{
	if (takes_any(op))
		find_for_any(trace, op, moment, wait);
	else if (op->kind == BATON_OPERATION_SEND ||
	         op->kind == BATON_OPERATION_RECV)
		find_for_message(trace, op, moment, wait);
	else if (op->terms)
		find_for_signals(trace, op, moment, wait);
	else if (op->kind == BATON_OPERATION_BARRIER)
		find_for_barrier(trace, op, moment, wait);
	else if (trace_is_transfer(op)) {
		wait->cause = TRACE_UNDER_WAY;
		wait->peer = op->peer;
		add_text(wait, "what carries it has not answered");
	} else if (!find_for_join(trace, op, moment, wait)) {
		wait->cause = TRACE_PROGRAM;
		add_text(wait, "%s",
		         op->kind == TRACE_FUNCTION ? "the function has not returned"
		         : op->kind == TRACE_JOIN   ? "the request that it waits for has "
		                                      "not ended"
		         : op->kind == TRACE_CLAIM  ? "no call has received it "
		                                      "(baton_recv_message)"
		                                    : "what it is of has not ended");
	}
}

void
trace_wait_find(const struct trace *trace, const struct trace_op *op,
                int64_t moment, struct trace_wait *wait)
{
	const struct trace_op *turn;
	char what[128];

	*wait = (struct trace_wait){.peer = -1};
	if (!trace_by(op->armed, moment)) {
		find_on_stream(trace, op, moment, wait);
		return;
	}
	turn = trace_is_transfer(op) ? turn_of(op, moment) : NULL;
	if (!turn) {
		find_far_side(trace, op, moment, wait);
		return;
	}
	wait->cause = TRACE_BEHIND;
	wait->next = turn;
	trace_what_there(turn, what, sizeof(what));
	add_text(wait, "the %s before it in its queue has not been issued", what);
}
