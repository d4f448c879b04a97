/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two sides of each message, joined by their numbers (numbers.c).  A wait for signals is met by the
 * first signal whose number is not less than its own.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include <baton.h>

enum trace_side
trace_side(const struct trace_op *op)
{
	switch (op->kind) {
	case BATON_OPERATION_SEND:
		return TRACE_SEND;
	case BATON_OPERATION_RECV:
	case TRACE_CLAIM:
		return TRACE_RECV;
	case BATON_OPERATION_SIGNAL:
		return TRACE_SIGNAL;
	case BATON_OPERATION_PUT_SIGNAL:
		return op->tag >= 0 ? TRACE_SIGNAL : TRACE_NO_SIDE;
	case BATON_OPERATION_WAIT_SIGNAL:
		return TRACE_WAIT;
	case BATON_OPERATION_BARRIER:
		return TRACE_BARRIER;
	default:
		return TRACE_NO_SIDE;
	}
}

bool
trace_is_transfer(const struct trace_op *op)
{
	switch (op->kind) {
	case BATON_OPERATION_RECORD:
	case BATON_OPERATION_PLAN:
	case TRACE_FUNCTION:
	case TRACE_JOIN:
	case TRACE_CLAIM:
	case TRACE_OTHER:
		return false;
	default:
		return true;
	}
}

int64_t
trace_until(const struct trace *trace, const struct trace_op *op)
{
	return op->ended == TRACE_NEVER ? trace->last : op->ended;
}

int64_t
trace_length(const struct trace *trace, const struct trace_op *op)
{
	int64_t until = trace_until(trace, op);

	return until > op->armed ? until - op->armed : 1;
}

static int64_t
issued_of(const struct trace_op *op)
{
	return op->issued != TRACE_NEVER ? op->issued : op->armed;
}

static bool
is_message(const struct trace_op *op)
{
	return op->kind == BATON_OPERATION_SEND ||
	       op->kind == BATON_OPERATION_RECV;
}

int64_t
trace_moving(const struct trace *trace, const struct trace_op *op)
{
	int64_t until = trace_until(trace, op), both = issued_of(op);

	if (op->match && issued_of(op->match) > both)
		both = issued_of(op->match);
	/* The other side never came. */
	if (!op->match && op->status != BATON_OK && is_message(op))
		both = until;
	/* Whoever waits for a signal moves nothing. */
	if (op->terms || trace_side(op) == TRACE_BARRIER || both > until)
		both = until;
	return both;
}

/* What goes from one rank to another: its place among all. */
struct key {
	size_t comm;
	int from, to, tag, context;
	bool signal;
	uint64_t number;
	struct trace_op *op;
};

static struct key
key_of(struct trace_op *op)
{
	enum trace_side side = trace_side(op);
	bool out = side != TRACE_RECV;

	return (struct key){.comm = op->of->comm,
	                    .from = out ? op->of->rank : op->peer,
	                    .to = out ? op->peer : op->of->rank,
	                    .tag = op->tag,
	                    .context = side == TRACE_SIGNAL ? op->context : -1,
	                    .signal = side == TRACE_SIGNAL,
	                    .number = op->number,
	                    .op = op};
}

static struct key
key_of_term(const struct trace_op *op, const struct trace_term *term)
{
	return (struct key){.comm = op->of->comm,
	                    .from = term->peer,
	                    .to = op->of->rank,
	                    .tag = term->tag,
	                    .context = term->context,
	                    .signal = true,
	                    .number = term->number};
}

static int
compare_pairs(const struct key *x, const struct key *y)
{
	int order = trace_order((long long)x->comm, (long long)y->comm);

	if (order == 0)
		order = trace_order(x->from, y->from);
	if (order == 0)
		order = trace_order(x->to, y->to);
	if (order == 0)
		order = trace_order(x->signal, y->signal);
	if (order == 0)
		order = trace_order(x->tag, y->tag);
	return order != 0 ? order : trace_order(x->context, y->context);
}

static int
compare_keys(const void *a, const void *b)
{
	const struct key *x = a, *y = b;
	int order = compare_pairs(x, y);

	return order != 0 ? order
	                  : (x->number > y->number) - (x->number < y->number);
}

static struct key *
outgoing(const struct trace *trace, size_t *count_p)
{
	size_t all;
	struct trace_op **ops = trace_all(trace, &all);
	struct key *keys = trace_alloc(all, sizeof(keys[0]));

	*count_p = 0;
	for (size_t i = 0; i < all; i++) {
		enum trace_side side = trace_side(ops[i]);

		if ((side == TRACE_SEND || side == TRACE_SIGNAL) &&
		    ops[i]->number > 0)
			keys[(*count_p)++] = key_of(ops[i]);
	}
	free(ops);
	qsort(keys, *count_p, sizeof(keys[0]), compare_keys);
	return keys;
}

/* The first of these keys that is not before this one. */
static struct key *
not_before(struct key *keys, size_t count, const struct key *key)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare_keys(&keys[middle], key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count ? &keys[low] : NULL;
}

static void
match_message(struct trace_op *op, struct key *keys, size_t count)
{
	struct key key = key_of(op), *found = not_before(keys, count, &key);

	if (op->number == 0 || !found || compare_keys(found, &key) != 0)
		return;
	op->match = found->op;
	found->op->match = op;
}

/* Each counter is met by the first signal that has enough; the wait by the last of these. */
static void
match_wait(struct trace_op *op, struct key *keys, size_t count)
{
	for (size_t i = 0; i < op->terms_count; i++) {
		struct trace_term *term = &op->terms[i];
		struct key key = key_of_term(op, term), *found;

		found = not_before(keys, count, &key);
		if (term->number == 0 || !found || compare_pairs(found, &key) != 0)
			continue;
		term->match = found->op;
		if (!op->match || issued_of(op->match) < issued_of(found->op))
			op->match = found->op;
	}
}

/* By communicator and number; of those the one that came last is the last. */
static int
compare_barriers(const void *a, const void *b)
{
	const struct trace_op *x = *(struct trace_op *const *)a;
	const struct trace_op *y = *(struct trace_op *const *)b;
	int order = trace_order((long long)x->of->comm, (long long)y->of->comm);

	if (order == 0)
		order = (x->number > y->number) - (x->number < y->number);
	return order != 0 ? order : trace_order(x->armed, y->armed);
}

/* A barrier to which all ranks have come is met by the rank that came last. */
static void
match_barriers(const struct trace *trace)
{
	size_t all, count = 0, next;
	struct trace_op **ops = trace_all(trace, &all);

	for (size_t i = 0; i < all; i++) {
		if (trace_side(ops[i]) == TRACE_BARRIER && ops[i]->number > 0 &&
		    ops[i]->armed != TRACE_NEVER)
			ops[count++] = ops[i];
	}
	qsort(ops, count, sizeof(ops[0]), compare_barriers);
	for (size_t i = 0; i < count; i = next) {
		next = i + 1;
		while (next < count && ops[next]->of->comm == ops[i]->of->comm &&
		       ops[next]->number == ops[i]->number)
			next++;
		for (size_t k = i; k < next; k++) {
			if (next - i == (size_t)trace->comms[ops[i]->of->comm].size)
				ops[k]->match = ops[next - 1];
		}
	}
	free(ops);
}

/* A message that was there before its sender had been asked: clocks, or the joining, are wrong. */
static bool
is_early(const struct trace_op *op)
{
	const struct trace_op *from = op->match;
	int64_t error = 0;

	if (op->kind != BATON_OPERATION_RECV || !from || op->status != BATON_OK ||
	    from->enqueued == TRACE_NEVER)
		return false;
	if (op->of->error_ns > 0)
		error += op->of->error_ns;
	if (from->of->error_ns > 0)
		error += from->of->error_ns;
	return op->ended < from->enqueued - error;
}

static void
match_all(struct trace *trace)
{
	size_t count, early = 0, messages = 0;
	struct key *keys = outgoing(trace, &count);

	for (size_t i = 0; i < trace->ranks_count; i++) {
		for (size_t k = 0; k < trace->ranks[i].ops_count; k++) {
			struct trace_op *op = &trace->ranks[i].ops[k];

			/* A claim leaves its message to its receive. */
			if (trace_side(op) == TRACE_RECV &&
			    (op->kind != TRACE_CLAIM || !op->found))
				match_message(op, keys, count);
			match_wait(op, keys, count);
			messages += op->kind == BATON_OPERATION_RECV && op->match;
			early += is_early(op);
		}
	}
	free(keys);
	match_barriers(trace);
	if (early > 0)
		trace_check(trace,
		            "%zu of %zu messages end at their receiver before "
		            "they were sent: the clocks differ by more than the "
		            "error that the files state, or programs went on "
		            "after operations that had ended early",
		            early, messages);
}

void
trace_match(struct trace *trace)
{
	trace_clocks(trace);
	trace_names(trace);
	trace_rows(trace);
	for (size_t i = 0; i < trace->ranks_count; i++)
		trace_number(&trace->ranks[i]);
	match_all(trace);
}
