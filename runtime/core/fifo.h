/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The FIFOs in which operations wait to be issued: one for each (peer, tag, direction)
 * with such operations.  For puts the tag is the context.  Each wait for signals has a
 * FIFO of its own.  Driver only.
 *
 * A FIFO exists while it has operations or is on the engine's ready list.  The table
 * allocates as many as there are requests, at init.
 *
 * What waits in a FIFO has in transfer.turn its number in the order in which operations were placed: that of the
 * calls.  Of several FIFOs of sends that are ready the one whose head has the lowest is first, so that
 * sends that are armed together leave in the order of their calls, whatever their tags (engine.c).
 *
 * A receive of a message that a probe has found (claim.h) has a FIFO of its own: no other receive delays it.
 *
 * A *line* is a FIFO of receives from any rank or of any tag, and of what waits behind these (line.c).  All that
 * stand in one have the flag IN_LINE, and in transfer.turn also which line it is.
 */
#ifndef BATONI_FIFO_H
#define BATONI_FIFO_H

#include "list.h"
#include "op.h"

enum batoni_line {
	BATONI_NO_LINE,
	BATONI_LINE_TAG,  /* behind receives of its tag from any rank */
	BATONI_LINE_PEER, /* behind receives of any tag from its peer */
	BATONI_LINE_ALL   /* behind receives of any tag from any rank */
};

struct batoni_fifo {
	struct batoni_hash_node by_key; /* must be first */
	struct batoni_op *head, *tail;
	struct baton_comm *comm;
	struct batoni_fifo *ready_next; /* or the next that is free */
	/* On the engine's ready list, which is in this order: the turn that its head had then, or that of what was
	 * before it. */
	bool ready;
	uint8_t line; /* enum batoni_line */
	/* A line: its head is armed, and no message for it has come: the paths expect some. */
	bool expects;
	uint64_t ready_turn;
	struct batoni_list_node in_lines; /* a line: in the table's list */
};

struct batoni_fifo_table {
	struct batoni_hash by_key;
	struct batoni_fifo *fifos;
	struct batoni_fifo *free;
	uint32_t live; /* FIFOs that exist now */
	uint32_t lines_live; /* of these, lines: */
	uint32_t lines_of[BATONI_LINE_ALL + 1];
	uint64_t turns; /* numbers that were given */
	uint64_t seeker; /* turn of the receive that line.c finds a message for; UINT64_MAX: none, behind all that wait */
	bool yields;  /* the one that looks: an earlier receive, which is armed, is to take its message first */
	bool held_up; /* the one that looks: an earlier receive comes first */
	bool yielded; /* one has, in this poll of the lines */
	struct batoni_list_node lines;
	struct batoni_list_node *next_line; /* while line.c goes through all: none may be missed */
};

/* For up to count FIFOs of comm.  OK, NOMEM. */
enum baton_status batoni_fifo_table_init(struct batoni_fifo_table *table,
                                         uint32_t count,
                                         struct baton_comm *comm);
void batoni_fifo_table_fini(struct batoni_fifo_table *table);

static inline uint64_t
batoni_fifo_key(const struct batoni_transfer *transfer)
{
	/* A wait has a FIFO of its own: no other operation delays it. */
	if (transfer->direction == BATONI_WAIT)
		return (uint64_t)transfer->slot << 2 | BATONI_WAIT;
	return (uint64_t)(uint32_t)transfer->peer << 33 |
	       (uint64_t)(uint32_t)transfer->tag << 2 | transfer->direction;
}

/* Of a line; the peer or the tag that it has not is ignored.  No peer of batoni_fifo_key is as large. */
static inline uint64_t
batoni_line_key(enum batoni_line line, int peer, int tag)
{
	uint64_t of = line == BATONI_LINE_PEER ? (uint32_t)peer
	              : line == BATONI_LINE_TAG ? (uint32_t)tag
	                                        : 0;

	return (uint64_t)line << 60 | of << 2 | BATONI_RECV;
}

/* Of a receive for a message that a probe has found, whose `turn` is four times the slot of that. */
#define BATONI_CLAIM_KEY (UINT64_C(4) << 60)

static inline enum batoni_line
batoni_op_line(const struct batoni_op *op)
{
	return (enum batoni_line)(op->transfer.turn & 3);
}

/* Of the one that the operation is in, or would be. */
static inline uint64_t
batoni_fifo_key_of(const struct batoni_op *op)
{
	if (__builtin_expect(!(op->flags & BATONI_FLAG_IN_LINE), 1))
		return batoni_fifo_key(&op->transfer);
	if (batoni_op_line(op) == BATONI_NO_LINE)
		return BATONI_CLAIM_KEY | op->transfer.turn | BATONI_RECV;
	return batoni_line_key(batoni_op_line(op), op->transfer.peer,
	                       op->transfer.tag);
}

/* The FIFO of this key, or NULL. */
struct batoni_fifo *batoni_fifo_find(const struct batoni_fifo_table *table,
                                     uint64_t key);
/* Append the operation to its FIFO, which is created if it does not exist. */
struct batoni_fifo *batoni_fifo_append(struct batoni_fifo_table *table,
                                       struct batoni_op *op);
/* Put the operation into its line, which is created if it does not exist, behind those that were called
 * before it. */
struct batoni_fifo *batoni_fifo_insert(struct batoni_fifo_table *table,
                                       struct batoni_op *op);
/* Pop the head.  The FIFO exists until batoni_fifo_retire. */
struct batoni_op *batoni_fifo_pop(struct batoni_fifo *fifo);
/* Remove an operation from any position; linear in the number before it. */
void batoni_fifo_remove(struct batoni_fifo *fifo, struct batoni_op *op);
/* The FIFO's head is armed, or it is a line: batoni_end_and_issue serves it, sends in the order of their calls. */
void batoni_fifo_make_ready(struct batoni_fifo *fifo);
/* Free the FIFO if it is empty and not on the ready list. */
void batoni_fifo_retire(struct batoni_fifo_table *table,
                        struct batoni_fifo *fifo);

#endif
