/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reference: docs/semantics.md as an interpreter.
 *
 * Operations are named by the step that made them, so their numbers are the order of
 * the calls.  settle() applies four rules until none changes anything: streams go on,
 * deadlines pass, the heads of FIFOs are issued, waits for signals end.  Nothing here
 * is fast, and nothing is clever.
 *
 * On a stream-issued transport a transfer gets a number at its call, and a group's at its
 * end.  The two transfers of a number meet in the order of the numbers, when the streams
 * of both, or of their groups, have reached them.  The operations of a group end together;
 * detached ones with those of the same peer and direction.
 *
 * A probe holds the send that a receive, called now, would meet.  The receive of it is in no FIFO, and meets it when its
 * stream gets there, whatever has ended the send meanwhile; one that is cancelled before discards it.
 *
 * A receive from any rank is in the FIFOs of all ranks with its tag.  Here only one of them sends on that tag, so it is in
 * that one's, and gets what the FIFO's order says.  So it is with receives of any tag, where no other tag is used.
 */
#include "model.h"

#include <string.h>

unsigned char
model_byte(int step, size_t i)
{
	return (unsigned char)((size_t)step * 37 + i * 11 + 1);
}

size_t
model_part(const struct step *step, int i)
{
	size_t each = step->bytes / (size_t)step->tensors;

	return i + 1 < step->tensors
	               ? each
	               : step->bytes - each * (size_t)(step->tensors - 1);
}

size_t
model_offset(const struct step *step, int i, size_t *needed_p)
{
	size_t offset = 0;

	*needed_p = 0;
	for (int k = 0; k <= i; k++) {
		offset = (*needed_p + 255) / 256 * 256;
		*needed_p = offset + model_part(step, k);
	}
	return offset;
}

bool
step_is_operation(const struct step *step)
{
	return step->kind <= STEP_RECORD;
}

int
model_source(const struct program *program, int rank)
{
	return (rank + 1) % program->ranks;
}

int
model_target(const struct program *program, int rank)
{
	return (rank + program->ranks - 1) % program->ranks;
}

static bool
has_fifo(const struct step *step)
{
	return step->kind <= STEP_PUT && !step->found;
}

static bool
is_pending(const struct op *op)
{
	return op->state >= OP_GROUPED && op->state <= OP_ISSUED;
}

void
model_init(struct model *model, const struct program *program)
{
	*model = (struct model){ .program = program, .group = -1, .now = 1000 };
	for (int i = 0; i < STEPS_MAX; i++)
		model->ops[i] = (struct op){ .partner = -1, .group = -1 };
}

/* ---- calls ---- */

/* Does a stream wait for an operation of the rank?  If the rank breaks, that stream goes on
 * at once, to transfers that may still meet those of the rank: a stream-issued transport is
 * told a moment later. */
static bool
is_joined(const struct model *model, int rank)
{
	for (int s = 0; s < STREAMS; s++) {
		for (int i = 0; i < model->streams[s].count; i++) {
			const struct item *item = &model->streams[s].items[i];

			if (item->kind == ITEM_JOIN &&
			    model->program->steps[item->step].rank == rank)
				return true;
		}
	}
	return false;
}

bool
model_applies(const struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];

	if (step->left_out)
		return false;
	if (model->group >= 0) {
		const struct step *begin = &model->program->steps[model->group];

		return step->kind == STEP_GROUP_END ||
		       step->kind == STEP_ABANDON ||
		       ((step->kind <= STEP_WAIT ||
		         step->kind == STEP_REFUSED) &&
		        step->rank == begin->rank);
	}
	switch (step->kind) {
	case STEP_GROUP_END:
	case STEP_ABANDON:
		return false;
	case STEP_GROUP_BEGIN:
		return model->broken[step->rank] == BATON_OK;
	case STEP_JOIN:
	case STEP_CANCEL:
	case STEP_RELEASE:
		return model->ops[step->target].state != OP_NONE;
	case STEP_SEND:
	case STEP_RECV:
	case STEP_SIGNAL:
	case STEP_GET:
	case STEP_PUT:
	case STEP_FLUSH:
	case STEP_WAIT:
	case STEP_RECORD:
	case STEP_REFUSED:
	case STEP_ADVANCE:
	case STEP_KINDS:
		break;
	case STEP_ABORT:
	case STEP_BREAK:
		return !model->program->issued || !is_joined(model, step->rank);
	case STEP_FAULT:
		return model->program->faults;
	case STEP_PROBE:
		break;
	}
	return true;
}

static void
push(struct model *model, int stream, enum item_kind kind, int step)
{
	struct item *item = &model->streams[stream]
	                             .items[model->streams[stream].count++];

	*item = (struct item){ .kind = kind, .step = step };
}

static void
end_op(struct model *model, int number, enum baton_status status, size_t bytes)
{
	struct op *op = &model->ops[number];

	op->state = OP_ENDED;
	op->status = status;
	op->bytes = bytes;
}

/* The device is given an item: does that fail? */
static bool
fails(struct model *model)
{
	return model->fault > 0 && --model->fault == 0;
}

/* A stream-issued transport has calls of its own, and those are to fail. */
static bool
is_faulty(const struct model *model, const struct step *step)
{
	return !model->program->issued || step->kind <= STEP_RECV;
}

static void
give_number(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];

	if (!model->program->issued || step->kind > STEP_RECV)
		return;
	model->ops[number].number =
		step->kind == STEP_SEND
			? ++model->numbers[step->rank][step->peer][0]
			: ++model->numbers[step->peer][step->rank][1];
}

static enum baton_status
enqueue(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];
	struct op *op = &model->ops[number];
	struct op *probe = step->found ? &model->ops[step->found - 1] : NULL;

	if (model->broken[step->rank] != BATON_OK)
		return model->broken[step->rank];
	if (probe && (probe->partner < 0 || probe->taken))
		return BATON_ERR_STALE;
	if (model->group >= 0 && model->refusal != BATON_OK)
		return BATON_ERR_INVALID; /* the group is void */
	if (model->group < 0 && is_faulty(model, step) && fails(model))
		return BATON_ERR_CUDA;
	if (probe)
		probe->taken = true;
	op->group = model->group;
	op->state = OP_QUEUED;
	if (model->group < 0)
		give_number(model, number);
	if (model->group >= 0)
		op->state = OP_GROUPED;
	else
		push(model, step->stream, ITEM_OP, number);
	return BATON_OK;
}

static bool
is_member(const struct op *op, int begin)
{
	return op->group == begin && op->state == OP_GROUPED;
}

/* All members of a group of this thread are detached or none is: the group's begin
 * says which. */
enum baton_status
model_end_group(struct model *model)
{
	int begin = model->group;
	bool on[STREAMS] = { false }, called = false;
	enum baton_status refusal = model->refusal;

	model->group = -1;
	model->refusal = BATON_OK;
	for (int i = 0; i < model->program->count && refusal == BATON_OK; i++) {
		int stream = model->program->steps[i].stream;

		if (!is_member(&model->ops[i], begin) || on[stream])
			continue;
		on[stream] = true;
		/* A stream-issued group is one call of the device. */
		if (!(called && model->program->issued) && fails(model))
			refusal = BATON_ERR_CUDA;
		called = true;
	}
	for (int i = 0; i < model->program->count; i++) {
		struct op *op = &model->ops[i];

		if (!is_member(op, begin))
			continue;
		op->state = refusal == BATON_OK ? OP_QUEUED : OP_VOID;
		if (refusal == BATON_OK)
			give_number(model, i);
	}
	for (int i = 0; i < STREAMS && refusal == BATON_OK; i++) {
		if (on[i])
			push(model, i, ITEM_GROUP, begin);
	}
	return refusal;
}

/* It is void, without an end that says so. */
void
model_exit(struct model *model)
{
	if (model->group < 0)
		return;
	if (model->refusal == BATON_OK)
		model->refusal = BATON_ERR_INVALID;
	model_end_group(model);
}

void
model_discard(struct model *model, int probe)
{
	int send = model->ops[probe].partner;

	model->ops[probe].taken = true;
	if (is_pending(&model->ops[send]))
		end_op(model, send, BATON_OK, model->program->steps[send].bytes);
}

enum baton_status
model_cancel(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];
	struct op *op = &model->ops[number];

	if (step->kind == STEP_RECORD)
		return is_pending(op) ? BATON_ERR_UNSUPPORTED : BATON_OK;
	if (!is_pending(op))
		return BATON_OK;
	end_op(model, number, BATON_ERR_CANCELED, 0);
	if (step->found)
		model_discard(model, step->found - 1);
	return BATON_OK;
}

void
model_break(struct model *model, int rank, enum baton_status status)
{
	if (model->broken[rank] != BATON_OK)
		return;
	model->broken[rank] = status;
	for (int i = 0; i < model->program->count; i++) {
		if (model->program->steps[i].rank == rank &&
		    is_pending(&model->ops[i]))
			end_op(model, i, status, 0);
	}
}

bool
model_is_pending(const struct model *model, int rank)
{
	for (int i = 0; i < model->program->count; i++) {
		if (model->program->steps[i].rank == rank &&
		    is_pending(&model->ops[i]))
			return true;
	}
	return false;
}

int64_t
model_next_deadline(const struct model *model)
{
	int64_t next = INT64_MAX;

	for (int i = 0; i < model->program->count; i++) {
		const struct op *op = &model->ops[i];

		if ((op->state == OP_ARMED || op->state == OP_ISSUED) &&
		    op->deadline && op->deadline < next)
			next = op->deadline;
	}
	return next;
}

void
model_advance(struct model *model, int64_t now)
{
	model->now = now;
	for (int i = 0; i < model->program->count; i++) {
		struct op *op = &model->ops[i];

		if ((op->state == OP_ARMED || op->state == OP_ISSUED) &&
		    op->deadline && op->deadline <= now)
			end_op(model, i, BATON_ERR_TIMEOUT, 0);
	}
}

/* Is it issued, of this kind, and may it meet the step? */
static bool
is_unmet(const struct model *model, int number, enum step_kind kind,
         const struct step *step)
{
	const struct step *other = &model->program->steps[number];
	const struct op *op = &model->ops[number];

	return op->state == OP_ISSUED && !op->held && other->kind == kind &&
	       other->rank == step->peer && other->peer == step->rank &&
	       other->tag == step->tag;
}

/* The send that has waited longest, if no receive that was called before is to have it. */
static enum baton_status
probe_messages(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];
	int best = -1;

	if (model->broken[step->rank] != BATON_OK)
		return model->broken[step->rank];
	for (int i = 0; i < model->program->count; i++) {
		const struct step *other = &model->program->steps[i];
		const struct op *op = &model->ops[i];

		if (other->kind == STEP_RECV && has_fifo(other) &&
		    is_pending(op) && other->rank == step->rank &&
		    other->peer == step->peer && other->tag == step->tag)
			return BATON_PENDING;
		if (is_unmet(model, i, STEP_SEND, step) &&
		    (best < 0 || op->issued < model->ops[best].issued))
			best = i;
	}
	if (best < 0)
		return BATON_PENDING;
	model->ops[best].held = true;
	model->ops[number].partner = best;
	return BATON_OK;
}

enum baton_status
model_step(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];

	switch (step->kind) {
	case STEP_SEND:
	case STEP_RECV:
	case STEP_SIGNAL:
	case STEP_GET:
	case STEP_PUT:
	case STEP_FLUSH:
	case STEP_WAIT:
	case STEP_RECORD:
		return enqueue(model, number);
	case STEP_JOIN:
		if (model->broken[step->rank] != BATON_OK)
			return model->broken[step->rank];
		if (is_pending(&model->ops[step->target]) &&
		    is_faulty(model, step) && fails(model))
			return BATON_ERR_CUDA;
		push(model, step->stream, ITEM_JOIN, step->target);
		break;
	case STEP_GROUP_BEGIN:
		model->group = number;
		break;
	case STEP_GROUP_END:
		return model_end_group(model);
	case STEP_ABANDON:
		model_exit(model);
		break;
	case STEP_REFUSED:
		if (model->broken[step->rank] != BATON_OK)
			return model->broken[step->rank];
		if (model->group >= 0 && model->refusal == BATON_OK)
			model->refusal = BATON_ERR_INVALID;
		return BATON_ERR_INVALID;
	case STEP_CANCEL:
		return model_cancel(model, step->target);
	case STEP_ABORT:
		model_break(model, step->rank, BATON_ERR_ABORTED);
		break;
	case STEP_BREAK:
		model_break(model, step->rank, BATON_ERR_MPI);
		break;
	case STEP_FAULT:
		model->fault = step->units;
		break;
	case STEP_PROBE:
		return probe_messages(model, number);
	case STEP_RELEASE:
	case STEP_ADVANCE: /* model_advance, by deadlines */
	case STEP_KINDS:
		break;
	}
	return BATON_OK;
}

/* ---- streams ---- */

static void
arm(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];
	struct op *op = &model->ops[number];

	if (op->state != OP_QUEUED)
		return;
	if (step->kind == STEP_RECORD) {
		end_op(model, number, BATON_OK, 0);
		return;
	}
	op->state = model->program->issued ? OP_ISSUED : OP_ARMED;
	op->deadline = step->timeout_ns ? model->now + step->timeout_ns : 0;
}

static bool
all_members_over(const struct model *model, int begin)
{
	for (int i = 0; i < model->program->count; i++) {
		if (model->ops[i].group == begin && is_pending(&model->ops[i]))
			return false;
	}
	return true;
}

static bool
all_streams_reached(const struct model *model, int begin)
{
	for (int s = 0; s < STREAMS; s++) {
		for (int i = 0; i < model->streams[s].count; i++) {
			const struct item *item = &model->streams[s].items[i];

			if (item->kind == ITEM_GROUP && item->step == begin &&
			    !item->reached)
				return false;
		}
	}
	return true;
}

/* May the stream go on after this item, which it has reached? */
static bool
passes(struct model *model, const struct item *item)
{
	const struct step *step = &model->program->steps[item->step];

	switch (item->kind) {
	case ITEM_JOIN:
		return !is_pending(&model->ops[item->step]);
	case ITEM_OP:
		arm(model, item->step);
		return step->detached || !is_pending(&model->ops[item->step]);
	case ITEM_GROUP:
		break;
	}
	if (all_streams_reached(model, item->step)) {
		for (int i = 0; i < model->program->count; i++) {
			if (model->ops[i].group == item->step)
				arm(model, i);
		}
		if (step->detached)
			return true;
	}
	if (step->detached && model->program->issued)
		return true;
	return all_members_over(model, item->step);
}

static bool
streams_go_on(struct model *model)
{
	bool changed = false;

	for (int s = 0; s < STREAMS; s++) {
		struct item *items = model->streams[s].items;

		while (model->streams[s].count) {
			changed |= !items[0].reached;
			items[0].reached = true;
			if (!passes(model, &items[0]))
				break;
			model->streams[s].count--;
			memmove(&items[0], &items[1],
			        (size_t)model->streams[s].count *
			                sizeof(items[0]));
			changed = true;
		}
	}
	return changed;
}

/* ---- stream-issued transfers ---- */

/* The one with the number that is due, if its streams have reached it. */
static int
find_due(const struct model *model, enum step_kind kind, int from, int to)
{
	for (int i = 0; i < model->program->count; i++) {
		const struct step *step = &model->program->steps[i];
		bool sends = step->kind == STEP_SEND;

		if (step->kind == kind && model->ops[i].state == OP_ISSUED &&
		    (sends ? step->rank : step->peer) == from &&
		    (sends ? step->peer : step->rank) == to &&
		    model->ops[i].number == model->met[from][to] + 1)
			return i;
	}
	return -1;
}

static bool
meet_due(struct model *model, int from, int to)
{
	int send = find_due(model, STEP_SEND, from, to);
	int recv = find_due(model, STEP_RECV, from, to);

	if (send < 0 || recv < 0)
		return false;
	model->met[from][to]++;
	model->ops[send].met = model->ops[recv].met = true;
	model->ops[send].partner = recv;
	model->ops[recv].partner = send;
	return true;
}

/* Have those met that end together with this one? */
static bool
is_moved(const struct model *model, int number)
{
	const struct step *steps = model->program->steps;
	int group = model->ops[number].group;

	if (!model->ops[number].met)
		return false;
	for (int i = 0; group >= 0 && i < model->program->count; i++) {
		if (model->ops[i].group != group || model->ops[i].met ||
		    (steps[group].detached &&
		     (steps[i].peer != steps[number].peer ||
		      steps[i].kind != steps[number].kind)))
			continue;
		return false;
	}
	return true;
}

static bool
transfers_end(struct model *model)
{
	bool changed = false;

	for (int from = 0; from < model->program->ranks; from++) {
		for (int to = 0; to < model->program->ranks; to++) {
			while (meet_due(model, from, to))
				changed = true;
		}
	}
	for (int i = 0; i < model->program->count; i++) {
		if (model->ops[i].state == OP_ISSUED && is_moved(model, i)) {
			end_op(model, i, BATON_OK, model->program->steps[i].bytes);
			changed = true;
		}
	}
	return changed;
}

/* ---- messages and signals ---- */

static void
meet(struct model *model, int send, int recv)
{
	const struct step *from = &model->program->steps[send];
	const struct step *to = &model->program->steps[recv];
	size_t needed = from->bytes;

	model->ops[send].partner = recv;
	model->ops[recv].partner = send;
	if (is_pending(&model->ops[send]))
		end_op(model, send, BATON_OK, from->bytes);
	if (from->tensors != to->tensors ||
	    (to->tensors > 0 && !to->open && from->bytes != to->bytes)) {
		end_op(model, recv, BATON_ERR_MISMATCH, from->bytes);
		return;
	}
	if (to->tensors > 0 && to->open)
		model_offset(from, from->tensors - 1, &needed);
	if (needed <= to->bytes)
		end_op(model, recv, BATON_OK, from->bytes);
	else
		end_op(model, recv, BATON_ERR_TRUNCATED, needed);
}

/* The other side's operation that has waited longest. */
static void
match(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];
	bool sends = step->kind == STEP_SEND;
	int best = -1;

	for (int i = 0; i < model->program->count; i++) {
		if (is_unmet(model, i, sends ? STEP_RECV : STEP_SEND, step) &&
		    (best < 0 ||
		     model->ops[i].issued < model->ops[best].issued))
			best = i;
	}
	if (best >= 0)
		meet(model, sends ? number : best, sends ? best : number);
}

/* In its own part of the peer's window. */
static void
put_or_get(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];
	unsigned char *part = model->windows[step->peer][step->rank][step->tag];

	if (step->kind == STEP_GET)
		memcpy(model->got[number], part, step->bytes);
	for (size_t i = 0; step->kind == STEP_PUT && i < step->bytes; i++)
		part[i] = model_byte(number, i);
}

static void
issue_op(struct model *model, int number)
{
	const struct step *step = &model->program->steps[number];

	model->ops[number].state = OP_ISSUED;
	model->ops[number].issued = ++model->issues;
	if (step->found) {
		meet(model, model->ops[step->found - 1].partner, number);
		return;
	}
	if (step->kind == STEP_SEND || step->kind == STEP_RECV) {
		match(model, number);
		return;
	}
	put_or_get(model, number);
	if (step->kind == STEP_SIGNAL)
		model->counters[step->peer][step->rank][step->signal][step->tag] +=
			(uint64_t)step->units;
	else if (step->kind == STEP_PUT && !step->silent)
		model->counters[step->peer][step->rank][step->signal][step->tag]++;
	end_op(model, number, BATON_OK,
	       step->kind == STEP_SIGNAL ? 0 : step->bytes);
}

static bool
same_fifo(const struct step *a, const struct step *b)
{
	bool message = a->kind <= STEP_RECV;

	return a->rank == b->rank && a->peer == b->peer && a->tag == b->tag &&
	       (message ? a->kind == b->kind
	                : b->kind > STEP_RECV && b->kind <= STEP_PUT);
}

/* Is something before it in its FIFO? */
static bool
is_behind(const struct model *model, int number)
{
	const struct step *steps = model->program->steps;

	for (int i = 0; i < number; i++) {
		const struct op *op = &model->ops[i];

		if (has_fifo(&steps[i]) && same_fifo(&steps[number], &steps[i]) &&
		    op->state >= OP_GROUPED && op->state <= OP_ARMED)
			return true;
	}
	return false;
}

static bool
issue_heads(struct model *model)
{
	bool changed = false;

	for (int i = 0; i < model->program->count; i++) {
		const struct step *step = &model->program->steps[i];

		if (model->ops[i].state == OP_ARMED &&
		    (step->found || (has_fifo(step) && !is_behind(model, i)))) {
			issue_op(model, i);
			changed = true;
		}
	}
	return changed;
}

static uint64_t
units(const struct step *step, int peer, int signal, int context)
{
	uint64_t sum = 0;

	for (int i = 0; i < step->desc_count; i++) {
		if (step->descs[i].peer == peer &&
		    step->descs[i].signal == signal &&
		    step->descs[i].context == context)
			sum += (uint64_t)step->descs[i].units;
	}
	return sum;
}

/* The units up to its own, of all waits that have kept theirs, have come. */
static bool
is_signaled(const struct model *model, int number)
{
	const struct step *steps = model->program->steps;
	int rank = steps[number].rank;

	if (steps[number].counts)
		return model->counters[rank][steps[number].descs[0].peer]
		                      [steps[number].descs[0].signal]
		                      [steps[number].descs[0].context] + 1 >=
		       (uint64_t)steps[number].units;
	for (int d = 0; d < steps[number].desc_count; d++) {
		int peer = steps[number].descs[d].peer;
		int signal = steps[number].descs[d].signal;
		int context = steps[number].descs[d].context;
		uint64_t needed = 0;

		for (int i = 0; i <= number; i++) {
			const struct op *op = &model->ops[i];

			if (steps[i].kind != STEP_WAIT || steps[i].counts ||
			    steps[i].rank != rank || op->state == OP_NONE ||
			    op->state == OP_VOID ||
			    (op->state == OP_ENDED && op->status != BATON_OK))
				continue;
			needed += units(&steps[i], peer, signal, context);
		}
		if (model->counters[rank][peer][signal][context] < needed)
			return false;
	}
	return true;
}

/* The puts and gets of its stream that were called before it have ended; signals too, of which it tells nothing. */
static bool
is_flushed(const struct model *model, int number)
{
	const struct step *steps = model->program->steps;
	const struct step *flush = &steps[number];

	for (int i = 0; i < number; i++) {
		if (steps[i].kind >= STEP_SIGNAL && steps[i].kind <= STEP_PUT &&
		    steps[i].rank == flush->rank &&
		    steps[i].stream == flush->stream &&
		    (flush->all || steps[i].peer == flush->peer) &&
		    is_pending(&model->ops[i]))
			return false;
	}
	return true;
}

static bool
waits_end(struct model *model)
{
	bool changed = false;

	for (int i = 0; i < model->program->count; i++) {
		const struct step *step = &model->program->steps[i];

		if (model->ops[i].state == OP_ARMED &&
		    ((step->kind == STEP_WAIT && is_signaled(model, i)) ||
		     (step->kind == STEP_FLUSH && is_flushed(model, i)))) {
			end_op(model, i, BATON_OK, 0);
			changed = true;
		}
	}
	return changed;
}

void
model_settle(struct model *model)
{
	bool changed;

	do {
		changed = streams_go_on(model);
		if (model->program->issued) {
			changed |= transfers_end(model);
			continue;
		}
		changed |= issue_heads(model);
		changed |= waits_end(model);
	} while (changed);
}

/* What an operation that has ended was on the way there does not matter any more. */
static bool
same_op(const struct op *a, const struct op *b)
{
	if (a->state != b->state || a->status != b->status ||
	    a->bytes != b->bytes || a->group != b->group ||
	    a->held != b->held || a->taken != b->taken)
		return false;
	if (a->state == OP_ENDED)
		return a->partner == b->partner;
	return a->deadline == b->deadline;
}

static bool
same_stream(const struct model *a, const struct model *b, int stream)
{
	if (a->streams[stream].count != b->streams[stream].count)
		return false;
	for (int i = 0; i < a->streams[stream].count; i++) {
		const struct item *x = &a->streams[stream].items[i];
		const struct item *y = &b->streams[stream].items[i];

		if (x->kind != y->kind || x->step != y->step ||
		    x->reached != y->reached)
			return false;
	}
	return true;
}

bool
model_equal(const struct model *a, const struct model *b)
{
	for (int i = 0; i < a->program->count; i++) {
		if (!same_op(&a->ops[i], &b->ops[i]))
			return false;
	}
	for (int i = 0; i < STREAMS; i++) {
		if (!same_stream(a, b, i))
			return false;
	}
	return memcmp(a->counters, b->counters, sizeof(a->counters)) == 0 &&
	       memcmp(a->windows, b->windows, sizeof(a->windows)) == 0 &&
	       memcmp(a->got, b->got, sizeof(a->got)) == 0 &&
	       memcmp(a->broken, b->broken, sizeof(a->broken)) == 0 &&
	       a->now == b->now && a->fault == b->fault;
}
