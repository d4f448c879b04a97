/* SPDX-License-Identifier: BSD-3-Clause */
/* All operations of a communicator; the driver. */
#ifndef BATONI_SWEEP_H
#define BATONI_SWEEP_H

#include "core.h"

/* The communicator breaks: end all its operations and release all streams.  False: a
 * path's enqueue runs, so operations of such paths are left; call it again.  The caller
 * lets other threads have the lock meanwhile. */
bool batoni_comm_end_all(struct baton_comm *comm);
/* The same until nothing is left; lets other threads have the lock meanwhile. */
void batoni_comm_end_all_now(struct baton_comm *comm);
/* The communicator is broken, and this memory is about to go: what is lent of it is scrapped (path.h).
 * OK: no operation uses it from now on.  PENDING: one still does; ask again after a pass.  BUSY: a
 * library may use it for an unknown time. */
enum baton_status batoni_comm_scrap(struct baton_comm *comm, const void *base,
                                    size_t bytes);
/* Is the operation placed, and has it not ended?  Only then does the driver own its state. */
bool batoni_is_pending(const struct batoni_op *op);
/* End an operation early.  If it cannot end alone and its deadline has passed, the communicator
 * breaks. */
void batoni_comm_end_one(struct batoni_op *op, enum baton_status status);
/* Expire deadlines.  Returns events. */
size_t batoni_comm_expire(struct baton_comm *comm);
/* Process cancels and a break that other threads asked for.  Returns events. */
size_t batoni_comm_attend(struct baton_comm *comm);
/* Test the marks of stream-issued operations.  Returns events. */
size_t batoni_comm_watch(struct baton_comm *comm);
/* The same for all communicators that have marks. */
size_t batoni_watch_all(void);
/* Test the marks of this stream-issued operation from now on. */
void batoni_comm_mark(struct batoni_op *op);

#endif
