/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives from any rank (BATON_ANY_SOURCE), and of any tag (BATON_ANY_TAG).
 *
 * The engine matches them; to a path they are ordinary receives.  Such a receive waits in the engine, as
 * one whose turn has not come, until a path says that a message which it may take is there and has met no
 * receive.  Then the receive gets that message's rank and tag and is issued.  So it is never posted on two
 * paths, and lengths, types, lists, staging and taking back are those of any receive.
 *
 * Order.  A *line* is a FIFO (fifo.h) of receives in the order of their calls.  It exists while a receive
 * that it is for waits in it, and what comes behind that stands in it too:
 *
 *     line of a tag     receives of the tag from any rank, and later ones that name a rank and the tag
 *     line of a peer    receives of any tag from the peer, and later ones that name a tag and the peer
 *     line of all       receives of any tag from any rank, and all later receives
 *
 * A receive enters the last of these that holds it up.  At the head of a line, one that the line is
 * not for goes on: from the line of all to that of a tag or a peer, from a tag's to its peer's if that
 * has an earlier receive at its head, and else to the FIFO of its rank and tag.  One that the line is for leaves it
 * with its message.  That is a message of which no earlier receive waits, in the FIFO of its rank and tag or in
 * another line, of which the head is the earliest: each receive in a line has a *turn*, a number in the order of the
 * calls.  What is issued and has not met its message is earlier too, but the path sees to that: a message
 * that it meets is not unmatched.
 *
 *     line of tag t:      any, 2, any, 1           armed or not
 *     FIFO of (1, t):     1                        not armed: no message of rank 1 is for the line
 *     line of peer 2:     any tag                  called before the first: nor is one of rank 2
 *     issued, (0, t):     0
 *
 * So an unarmed receive holds up the later receives that could take a message which it could take, and no
 * others.  An armed one takes its message first, and the later one looks again then (`yields`): what lies
 * behind that message may be its own.
 *
 * A path that sees messages come, one by one (near, local), asks for the receive of one that meets none
 * (`receive_for`), as long as some are expected.  Others are looked at behind each test (`find`).
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

#include <assert.h>
#include <limits.h>

#include "life.h"

static struct batoni_fifo *
line_of(const struct baton_comm *comm, enum batoni_line line, int peer, int tag)
{
	if (comm->fifos.lines_of[line] == 0)
		return NULL;
	return batoni_fifo_find(&comm->fifos, batoni_line_key(line, peer, tag));
}

/* The one that this receive waits in, if those up to `most` count. */
static enum batoni_line
line_for(const struct batoni_op *op, enum batoni_line most)
{
	const struct baton_comm *comm = op->comm;
	int peer = op->transfer.peer, tag = op->transfer.tag;

	if (most == BATONI_LINE_ALL &&
	    ((peer < 0 && tag < 0) || comm->fifos.lines_of[BATONI_LINE_ALL] > 0))
		return BATONI_LINE_ALL;
	if (peer < 0 || (tag >= 0 && line_of(comm, BATONI_LINE_TAG, -1, tag)))
		return BATONI_LINE_TAG;
	if (tag < 0 || line_of(comm, BATONI_LINE_PEER, peer, -1))
		return BATONI_LINE_PEER;
	return BATONI_NO_LINE;
}

static inline void
enter_own_line(struct batoni_op *op, enum batoni_line line)
{
	op->transfer.turn = (op->transfer.turn & ~UINT64_C(3)) | line;
}

/* The operation is in no line any more. */
static inline void
remove_from_line(struct batoni_op *op)
{
	op->flags &= (uint16_t)~BATONI_FLAG_IN_LINE;
	op->transfer.native_call = NULL;
}

static inline void
join(struct batoni_op *op, enum batoni_line line)
{
	op->flags |= BATONI_FLAG_IN_LINE;
	op->transfer.turn = ++op->comm->fifos.turns << 2 | line;
}

bool
batoni_line_joins(struct batoni_op *op)
{
	enum batoni_line line = line_for(op, BATONI_LINE_ALL);

	if (line == BATONI_NO_LINE)
		return false;
	join(op, line);
	return true;
}

/* Is the operation a receive that its line is for? */
static inline bool
is_open(const struct batoni_fifo *line, const struct batoni_op *op)
{
	if (line->line == BATONI_LINE_ALL)
		return op->transfer.peer < 0 && op->transfer.tag < 0;
	return op->transfer.peer < 0 || op->transfer.tag < 0;
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

/* Where receives that name both wait, or NULL: there is none. */
static struct batoni_fifo *
named_fifo(const struct baton_comm *comm, int rank, int tag)
{
	const struct batoni_transfer of = {
		.peer = rank, .tag = tag, .direction = BATONI_RECV};
	struct batoni_fifo *fifo;

	if (comm->fifos.live == comm->fifos.lines_live)
		return NULL;
	fifo = batoni_fifo_find(&comm->fifos, batoni_fifo_key(&of));
	return fifo && fifo->head ? fifo : NULL;
}

/* Where the first receive waits that this message is for, if it is earlier than the one that looks; or NULL.
 * One that names both is earlier than those in lines. */
static struct batoni_fifo *
first_before(const struct baton_comm *comm, int rank, int tag)
{
	const struct batoni_fifo_table *table = &comm->fifos;
	struct batoni_fifo *first = named_fifo(comm, rank, tag);
	uint64_t before = table->seeker;

	if (first)
		return first;
	/* One line is that of the receive that looks. */
	if (table->lines_live <= 1 && table->seeker != UINT64_MAX)
		return NULL;
	for (int line = BATONI_LINE_TAG; line <= BATONI_LINE_ALL; line++) {
		struct batoni_fifo *fifo =
			line_of(comm, (enum batoni_line)line, rank, tag);

		if (!fifo || !fifo->head || fifo->head->transfer.turn >= before)
			continue;
		before = fifo->head->transfer.turn;
		first = fifo;
	}
	return first;
}

bool
batoni_line_may_meet(struct baton_comm *comm, int rank, int tag)
{
	struct batoni_fifo_table *table = &comm->fifos;
	struct batoni_fifo *first;

	if (table->yields)
		return false;
	first = first_before(comm, rank, tag);
	if (likely(!first))
		return true;
	table->held_up = true;
	if (first->head->state == BATONI_ARMED ||
	    (first->line && !is_open(first, first->head))) {
		table->yields = true;
		batoni_fifo_make_ready(first);
	}
	return false;
}

static int
find_at(struct batoni_path *path, int peer, int *tag_p)
{
	return path->ops->unmatched
	               ? path->ops->unmatched->find(path, peer, tag_p)
	               : -1;
}

int
batoni_line_find(struct baton_comm *comm, int peer, int *tag_p)
{
	uint32_t n = comm->paths_count;

	if (peer >= 0)
		return find_at(comm->paths[batoni_message_path(comm, peer)],
		               peer, tag_p);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (comm->any_turn + i) % n;
		int rank = find_at(comm->paths[at], peer, tag_p);

		if (rank < 0)
			continue;
		comm->any_turn = (at + 1) % n;
		return rank;
	}
	return -1;
}

/* ---- the line ---- */

static __attribute__((noinline)) void
wake_others(const struct batoni_fifo *left)
{
	struct batoni_fifo_table *table = &left->comm->fifos;

	for (struct batoni_list_node *at = table->lines.next;
	     at != &table->lines; at = at->next) {
		struct batoni_fifo *line = batoni_container_of(
			at, struct batoni_fifo, in_lines);

		if (line->line != left->line && line->expects)
			batoni_fifo_make_ready(line);
	}
}

/* An operation has left a line: a message that it could have taken may be for lines of another
 * kind. */
static inline void
look_again(const struct batoni_fifo *left)
{
	const struct batoni_fifo_table *table = &left->comm->fifos;

	if (unlikely(table->lines_of[left->line] != table->lines_live))
		wake_others(left);
}

/* It is not what the line is for, and nothing that it has to wait for is before it there. */
static void
go_on_in_line(struct batoni_fifo *from, struct batoni_op *op)
{
	struct batoni_fifo_table *table = &op->comm->fifos;
	struct batoni_fifo *to = NULL;
	enum batoni_line line = BATONI_NO_LINE;

	if (from->line == BATONI_LINE_ALL)
		line = line_for(op, BATONI_LINE_TAG);
	else if (from->line == BATONI_LINE_TAG &&
	         (to = line_of(op->comm, BATONI_LINE_PEER, op->transfer.peer, -1)) &&
	         to->head && to->head->transfer.turn < op->transfer.turn)
		line = BATONI_LINE_PEER;
	if (line == BATONI_NO_LINE) {
		remove_from_line(op);
		to = batoni_fifo_append(table, op);
	} else {
		enter_own_line(op, line);
		to = batoni_fifo_insert(table, op);
	}
	/* At the head of a line it may be issued. */
	if (to->head == op && (op->state == BATONI_ARMED || to->line))
		batoni_fifo_make_ready(to);
}

/* Take the head out, for a message of this rank and tag. */
static inline struct batoni_op *
pop_for(struct batoni_fifo *line, int rank, int tag)
{
	struct batoni_op *op = batoni_fifo_pop(line);

	remove_from_line(op);
	batoni_set(op->transfer.peer, rank);
	batoni_set(op->transfer.tag, tag);
	batoni_set(op->path, batoni_message_path(op->comm, rank));
	return op;
}

/* Why the head ends without a message: OK, it does not. */
static enum baton_status
head_ends(const struct batoni_op *op)
{
	const struct baton_comm *comm = op->comm;

	if (comm->fault.status != BATON_OK)
		return comm->fault.status;
	return batoni_op_list(op) && !batoni_kind_of(op)->list->may_issue(op)
	               ? BATON_ERR_INVALID
	               : BATON_OK;
}

/* The rank, and in *tag_p the tag, of a message for the head; or -1: none is there, or, *yields_p, it is to look
 * again behind an earlier receive. */
static int
find_for_head(struct baton_comm *comm, const struct batoni_op *head, int *tag_p,
              bool *yields_p)
{
	struct batoni_fifo_table *table = &comm->fifos;
	int rank;

	table->seeker = head->transfer.turn;
	table->yields = false;
	rank = batoni_line_find(comm, head->transfer.peer, tag_p);
	table->seeker = UINT64_MAX;
	*yields_p = table->yields;
	table->yields = false;
	table->yielded |= *yields_p;
	return rank;
}

/* The head is armed, and what the line is for.  False: no message for it is there. */
static bool
issue_head(struct batoni_fifo *line)
{
	struct baton_comm *comm = line->comm;
	struct batoni_op *op = line->head;
	enum baton_status status = head_ends(op);
	int peer = op->transfer.peer, tag = op->transfer.tag;
	bool yields;

	if (likely(status == BATON_OK)) {
		peer = find_for_head(comm, op, &tag, &yields);
		if (peer >= 0) {
			batoni_op_issue(pop_for(line, peer, tag));
			return true;
		}
		/* Nothing comes from that rank any more. */
		peer = op->transfer.peer;
		if (likely(comm->liveness.silent == 0 || yields || peer < 0 ||
		           !comm->transport->peers[peer].silent))
			return false;
		status = BATON_ERR_PEER;
	}
	remove_from_line(batoni_fifo_pop(line));
	batoni_op_complete(op, status);
	return true;
}

size_t
batoni_line_advance(struct batoni_fifo *line)
{
	size_t events = 0;
	struct batoni_op *op;

	while ((op = line->head)) {
		if (!is_open(line, op))
			go_on_in_line(line, batoni_fifo_pop(line));
		else if (op->state != BATONI_ARMED || !issue_head(line))
			break;
		events++;
	}
	set_expects(line, op && op->state == BATONI_ARMED);
	if (events > 0)
		look_again(line);
	return events;
}

void
batoni_line_left(struct batoni_fifo *line, struct batoni_op *op)
{
	remove_from_line(op);
	/* The head may be one that takes nothing: it names a rank, or is not armed. */
	set_expects(line, false);
	if (line->head)
		batoni_fifo_make_ready(line);
	look_again(line);
}

void
batoni_line_put(struct batoni_op *op)
{
	enum batoni_line line = op->transfer.peer >= 0 ? BATONI_LINE_PEER
	                        : op->transfer.tag >= 0 ? BATONI_LINE_TAG
	                                                : BATONI_LINE_ALL;

	join(op, line);
	set_expects(batoni_fifo_append(&op->comm->fifos, op), true);
}

struct batoni_transfer *
batoni_line_receive_for(struct baton_comm *comm, int rank, int tag)
{
	struct batoni_fifo *line = first_before(comm, rank, tag);
	const struct batoni_op *next;
	struct batoni_op *op;

	/* Without a receive that looks, `line` is where the first of all waits; if that names both, it is no line
	 * and expects nothing.  What may end otherwise than by its message is left to issue_head, and so is
	 * what is to look again: an earlier message may be for it. */
	assert(comm->fifos.seeker == UINT64_MAX);
	if (!line || !line->expects || line->ready || comm->off_fast ||
	    comm->fault.status != BATON_OK || comm->liveness.silent > 0 ||
	    /* Within issue_head the line still expects for the one that has just left it. */
	    line->head->state != BATONI_ARMED || !is_open(line, line->head) ||
	    batoni_op_list(line->head))
		return NULL;
	op = pop_for(line, rank, tag);
	batoni_op_move(op, BATONI_ISSUED);
	look_again(line);
	next = line->head;
	if (next && is_open(line, next) && next->state == BATONI_ARMED)
		return &op->transfer;
	set_expects(line, false);
	if (next)
		batoni_fifo_make_ready(line);
	else
		batoni_fifo_retire(&comm->fifos, line);
	return &op->transfer;
}

static void
look_if_expects(struct batoni_fifo *line)
{
	if (line && line->expects)
		batoni_fifo_make_ready(line);
}

void
batoni_line_again(struct baton_comm *comm, uint64_t key)
{
	const int peer = (int)(key >> 33), tag = (int)(key >> 2 & INT_MAX);

	/* A line has looked at the others itself. */
	if ((key & 3) != BATONI_RECV || key >> 60)
		return;
	look_if_expects(line_of(comm, BATONI_LINE_TAG, peer, tag));
	look_if_expects(line_of(comm, BATONI_LINE_PEER, peer, tag));
	look_if_expects(line_of(comm, BATONI_LINE_ALL, peer, tag));
}

static size_t
poll_once(struct baton_comm *comm)
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

/* Twice, if a receive has yielded to one whose line was before: it may find that the message was taken back. */
size_t
batoni_lines_poll(struct baton_comm *comm)
{
	size_t events;

	comm->fifos.yielded = false;
	events = poll_once(comm);
	if (unlikely(comm->fifos.yielded))
		events += poll_once(comm);
	return events;
}
