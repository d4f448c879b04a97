/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives from any rank (BATON_ANY_SOURCE).
 *
 * The engine matches them; to a path they are ordinary receives.  Such a receive waits in the engine, as
 * one whose turn has not come, until a path says that a message of its tag is there which no receive has met.
 * Then the receive gets that message's rank and is issued.  So it is never posted on two paths, and
 * lengths, types, lists, staging and taking back are those of any receive.
 *
 * Order.  The *line* of a tag is a FIFO (fifo.h) of receives in the order of their calls.  It exists while
 * a receive from any rank waits in it, and what comes behind one stands in it too, whatever rank it names:
 * a message that comes now is the earlier one's.  What names a rank and has come to the head of the line
 * goes on to the FIFO of its rank and tag.  A receive from any rank leaves the line with its message. That
 * message is of a rank that no receive waits for in the FIFO of that rank and tag, because that one is
 * earlier.  What is issued and has not met its message is earlier too, but the path sees to that: a message
 * that it meets is not unmatched.
 *
 *     line of tag t:      any, 2, any, 1           armed or not
 *     FIFO of (1, t):     1                        not armed: no message of rank 1 is for the line
 *     issued, (0, t):     0
 *
 * So an unarmed receive from any rank holds up all later receives of its tag; an unarmed one that names a rank
 * holds up those of its rank, and receives from any rank go on with the messages of others.
 *
 * A path that sees messages come, one by one (near, local), asks for the receive of one that meets none
 * (`claim`), as long as some are expected.  Others are looked at behind each test (`find`).
 *
 * Fairness.  Each path has its ranks in turn (batoni_unmatched_ops), and the paths are asked in turn.
 *
 * Expecting.  While the head of a line is armed and finds no message, the paths are told (`expect`), so that
 * they are tested and the driver looks and sleeps as for a receive that is posted.  A line expects only
 * for such a head.
 *
 * Threads: the driver alone.
 */
#include "line.h"

#include <limits.h>

#include "life.h"

bool
batoni_line_joins(struct batoni_op *op)
{
	if (op->transfer.peer < 0)
		return true;
	if (!batoni_fifo_find(&op->comm->fifos,
	                      batoni_line_key(op->transfer.tag)))
		return false;
	op->flags |= BATONI_FLAG_IN_LINE;
	return true;
}

/* ---- the paths ---- */

bool
batoni_lines_served(const struct baton_comm *comm)
{
	for (int rank = 0; rank < comm->size; rank++) {
		int index = batoni_choose_path(comm, BATON_OPERATION_RECV, rank);

		if (index < 0 || !comm->paths[index]->ops->unmatched)
			return false;
	}
	return true;
}

static void
set_expects(struct batoni_fifo *line, bool expects)
{
	struct baton_comm *comm = line->comm;

	if (line->expects == expects)
		return;
	line->expects = expects;
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (path->ops->unmatched)
			path->ops->unmatched->expect(path, expects ? 1 : -1);
	}
	if (expects)
		batoni_comm_set_busy(comm);
}

bool
batoni_line_may_meet(const struct baton_comm *comm, int rank, int tag)
{
	const struct batoni_transfer of = {
		.peer = rank, .tag = tag, .direction = BATONI_RECV};
	const struct batoni_fifo *fifo;

	if (comm->fifos.live == comm->fifos.lines_live)
		return true;
	fifo = batoni_fifo_find(&comm->fifos, batoni_fifo_key(&of));
	return !fifo || !fifo->head;
}

int
batoni_line_find(struct baton_comm *comm, int tag)
{
	uint32_t n = comm->paths_count;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (comm->any_turn + i) % n;
		struct batoni_path *path = comm->paths[at];
		int rank = path->ops->unmatched
		                   ? path->ops->unmatched->find(path, tag)
		                   : -1;

		if (rank < 0)
			continue;
		comm->any_turn = (at + 1) % n;
		return rank;
	}
	return -1;
}

/* ---- the line ---- */

/* It names its rank, and nothing that it has to wait for is before it in the line. */
static void
go_on(struct batoni_op *op)
{
	struct batoni_fifo *fifo;

	op->flags &= (uint16_t)~BATONI_FLAG_IN_LINE;
	fifo = batoni_fifo_append(&op->comm->fifos, op);
	if (fifo->head == op && op->state == BATONI_ARMED)
		batoni_fifo_make_ready(fifo);
}

/* Take the head out, for a message of this rank. */
static struct batoni_op *
pop_for(struct batoni_fifo *line, int rank)
{
	struct batoni_op *op = batoni_fifo_pop(line);

	batoni_set(op->transfer.peer, rank);
	batoni_set(op->path, batoni_message_path(op->comm, rank));
	return op;
}

/* The head is armed, and from any rank.  False: no message for it is there. */
static bool
issue_head(struct batoni_fifo *line)
{
	struct baton_comm *comm = line->comm;
	struct batoni_op *op = line->head;
	bool refuses = batoni_op_list(op) &&
	               !batoni_kind_of(op)->list->may_issue(op);
	int rank;

	if (unlikely(comm->fault.status != BATON_OK || refuses)) {
		batoni_op_complete(batoni_fifo_pop(line),
		                   comm->fault.status != BATON_OK
		                           ? comm->fault.status
		                           : BATON_ERR_INVALID);
		return true;
	}
	rank = batoni_line_find(comm, op->transfer.tag);
	if (rank < 0)
		return false;
	batoni_op_issue(pop_for(line, rank));
	return true;
}

size_t
batoni_line_advance(struct batoni_fifo *line)
{
	size_t events = 0;
	struct batoni_op *op;

	while ((op = line->head)) {
		if (op->transfer.peer >= 0)
			go_on(batoni_fifo_pop(line));
		else if (op->state != BATONI_ARMED || !issue_head(line))
			break;
		events++;
	}
	set_expects(line, op && op->state == BATONI_ARMED);
	return events;
}

void
batoni_line_left(struct batoni_fifo *line, struct batoni_op *op)
{
	op->flags &= (uint16_t)~BATONI_FLAG_IN_LINE;
	/* The head may be one that claims nothing: it names a rank, or is not armed. */
	set_expects(line, false);
	if (line->head)
		batoni_fifo_make_ready(line);
}

void
batoni_line_put(struct batoni_op *op)
{
	set_expects(batoni_fifo_append(&op->comm->fifos, op), true);
}

struct batoni_transfer *
batoni_line_claim(struct baton_comm *comm, int rank, int tag)
{
	struct batoni_fifo *line =
		batoni_fifo_find(&comm->fifos, batoni_line_key(tag));
	const struct batoni_op *next;
	struct batoni_op *op;

	/* What may end otherwise than by its message is left to issue_head. */
	if (!line || !line->expects || comm->observed ||
	    comm->fault.status != BATON_OK || comm->liveness.silent > 0 ||
	    batoni_op_list(line->head) || !batoni_line_may_meet(comm, rank, tag))
		return NULL;
	op = pop_for(line, rank);
	batoni_op_move(op, BATONI_ISSUED);
	next = line->head;
	if (next && next->transfer.peer < 0 && next->state == BATONI_ARMED)
		return &op->transfer;
	set_expects(line, false);
	if (next)
		batoni_fifo_make_ready(line);
	else
		batoni_fifo_retire(&comm->fifos, line);
	return &op->transfer;
}

void
batoni_line_again(struct baton_comm *comm, uint64_t key)
{
	const int tag = (int)(key >> 2 & INT_MAX);
	struct batoni_fifo *line;

	if ((key & 3) != BATONI_RECV || key == batoni_line_key(tag))
		return;
	line = batoni_fifo_find(&comm->fifos, batoni_line_key(tag));
	if (line && line->expects)
		batoni_fifo_make_ready(line);
}

size_t
batoni_lines_poll(struct baton_comm *comm)
{
	struct batoni_fifo_table *table = &comm->fifos;
	size_t events = 0;

	for (table->next_line = table->lines.next;
	     table->next_line != &table->lines;) {
		struct batoni_fifo *line = batoni_container_of(
			table->next_line, struct batoni_fifo, in_lines);

		table->next_line = line->in_lines.next;
		if (!line->expects)
			continue;
		events += batoni_line_advance(line);
		batoni_fifo_retire(table, line);
	}
	table->next_line = NULL;
	return events;
}
