/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives from any rank or of any tag, and what stands behind them (line.c).  The driver. */
#ifndef BATONI_LINE_H
#define BATONI_LINE_H

#include "core.h"

/* Do the paths of messages of all ranks tell what has come?  Any thread. */
bool batoni_lines_served(const struct baton_comm *comm);

bool batoni_line_joins(struct batoni_op *op);

/* Is the operation, which is being placed, one for a line?  Then it is marked as such, and gets
 * its turn. */
static inline bool
batoni_line_takes(struct batoni_op *op)
{
	return __builtin_expect(op->transfer.direction == BATONI_RECV &&
	                                ((op->transfer.peer | op->transfer.tag) < 0 ||
	                                 op->comm->fifos.lines_live > 0),
	                        0) &&
	       batoni_line_joins(op);
}

/* As upcalls->may_meet (path.h). */
bool batoni_line_may_meet(struct baton_comm *comm, int rank, int tag);
/* As upcalls->receive_for (path.h). */
struct batoni_transfer *batoni_line_receive_for(struct baton_comm *comm, int rank,
                                                int tag);
/* The rank, and in *tag_p the tag, of a message that a receive of this peer or tag (-1: any) meets if it is issued
 * next, and that no receive waits for; or -1. */
int batoni_line_find(struct baton_comm *comm, int peer, int *tag_p);
/* The operation, which is armed and before which nothing waits, is to wait in a line. */
void batoni_line_put(struct batoni_op *op);

/* Issue what the head of the line may have, as far as messages have come.  Returns the number of events. */
size_t batoni_line_advance(struct batoni_fifo *line);
/* The operation was removed from the line, and ends early. */
void batoni_line_left(struct batoni_fifo *line, struct batoni_op *op);
/* Operations have left the FIFO of this key: if they were receives that name a rank and a tag, its messages
 * may be for a line now. */
void batoni_line_again(struct baton_comm *comm, uint64_t key);
/* Look for messages that the heads of the communicator's lines wait for.  Returns the number of events. */
size_t batoni_lines_poll(struct baton_comm *comm);

#endif
