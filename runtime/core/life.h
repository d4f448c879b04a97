/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of an operation: how it begins, moves from state to state, and ends.  All ways of
 * enqueuing and ending go through these functions, the fast one (direct.h) too.
 *
 * What watches operations hooks in here: time stamps, and observers (traces, or faults
 * that a test injects).  A communicator that has either is `observed`; the others pay for one test of
 * that flag.  Unless all its observers are `fast`, it is also `off_fast`: its operations do not take the
 * fast path.
 */
#ifndef BATONI_LIFE_H
#define BATONI_LIFE_H

#include "core.h"

/* Arguments are passed as scalars: a struct would be stored to memory and reloaded. */
#define BATONI_ALWAYS_INLINE static inline __attribute__((always_inline))

/* The operation was moved: take its time stamp, and tell the observer.  Returns what that
 * answers (BATON_OK without any). */
enum baton_status batoni_op_observe(struct batoni_op *op,
                                    enum batoni_op_state state);
/* The same of its first state; site: where the program's call returns to. */
void batoni_op_observe_begun(struct batoni_op *op, enum batoni_op_state state,
                             const void *site);
void batoni_op_observe_event(struct batoni_op *op, enum batoni_event event);

/* It has ended, and all threads have been told; the slot may be another operation's. */
void batoni_op_observe_left(struct baton_comm *comm, uint32_t slot);

/* A thread that holds the operation and loads its state (acquire) sees the fields that were
 * filled in before. */
static inline enum baton_status
batoni_op_enter(struct batoni_op *op, enum batoni_op_state state)
{
	__atomic_store_n(&op->state, (uint8_t)state, __ATOMIC_RELEASE);
	if (likely(!batoni_get(op->comm)->observed))
		return BATON_OK;
	return batoni_op_observe(op, state);
}

/* The driver.  States follow in their order, and some may be skipped; an ended operation stays
 * ended.  ISSUED: anything but OK is a fault, in which the caller ends it; or, where the operation is
 * stream-issued and cannot end alone, breaks its communicator. */
static inline enum baton_status
batoni_op_move(struct batoni_op *op, enum batoni_op_state state)
{
	assert(op->state < state);
	return batoni_op_enter(op, state);
}

/* Fill in all that the caller does not: it sets the transfer's buffer, bytes, peer and tag
 * before, and the holders after.  word: on which its stream waits, or NULL.  site: for observers. */
BATONI_ALWAYS_INLINE void
batoni_op_begin(struct batoni_op *op, struct baton_comm *comm,
                unsigned kind, enum batoni_op_state state,
                unsigned flags, uint8_t path, uint32_t slot_direction,
                baton_stream stream,
                void (*reached)(struct batoni_stream_item *item),
                _Atomic uint64_t *word, uint64_t value, unsigned item_flags,
                uint64_t user_data, int64_t timeout_ns, const void *site)
{
	batoni_set(op->comm, comm);
	batoni_transfer_moved(&op->transfer, 0);
	op->transfer.stream = stream;
	op->transfer.native_call = NULL;
	op->transfer.slot_direction = slot_direction;
	op->item.next = NULL;
	op->item.reached = reached;
	op->item.word = word;
	op->item.value = value;
	op->item.flags = item_flags;
	batoni_set(op->path, path);
	batoni_set(op->kind, (uint8_t)kind);
	op->flags = (uint16_t)flags;
	batoni_set(op->user_data, user_data);
	op->timeout_ns = timeout_ns;
	op->queue = NULL;
	batoni_set(op->group_of, NULL);
	__atomic_store_n(&op->state, (uint8_t)state, __ATOMIC_RELEASE);
	if (unlikely(comm->observed))
		batoni_op_observe_begun(op, state, site);
}

/* It has ended in `status`; its word, which other threads poll, changes after this.  It is in no list of
 * operations that wait for their end. */
static inline void
batoni_op_close(struct batoni_op *op, enum baton_status status)
{
	assert(op->listed == BATONI_UNLISTED);
	batoni_set(op->status, (int8_t)status);
	batoni_op_move(op, BATONI_ENDED);
}

/* What watches the operations of a communicator that is made now: time stamps, and what a test has set. */
void batoni_observe_comm(struct baton_comm *comm);
/* Add an observer, unless it is NULL. There is room for it. */
void batoni_observe_comm_by(struct baton_comm *comm,
                            const struct batoni_observer *observer_or_null);

/* ---- op.c; the driver, unless said ---- */

/* Put the operation on its stream and in its FIFO.  It may be issued and end within the
 * call. */
void batoni_op_place(struct batoni_op *op);
/* The enqueuer has issued it: its in-engine stream is idle, its FIFO empty. */
void batoni_op_place_direct(struct batoni_op *op);
/* The stream has reached the operation's item. */
void batoni_op_reached(struct batoni_op *op);
/* The same two for a point: an operation on a stream that is no transfer, and ends when its stream gets
 * there (kind.h). */
void batoni_point_place(struct batoni_op *op);
void batoni_point_reached(struct batoni_op *op);
void batoni_op_arm(struct batoni_op *op);
void batoni_op_issue(struct batoni_op *op);
/* The only function that completes operations. */
void batoni_op_complete(struct batoni_op *op, enum baton_status status);
/* The same for an operation that answers for operations that have all ended. */
void batoni_op_end_launch(struct batoni_op *launch, enum baton_status status,
                          bool lent);
/* End the operation early, with status unless it has already ended by itself. */
void batoni_op_end_early(struct batoni_op *op, enum baton_status status);
/* The stream does not touch the operation's item any more. */
void batoni_op_passed(struct batoni_op *op);
/* Start its deadline and take its time stamp. */
void batoni_op_start_clock(struct batoni_op *op);
/* The operation has no deadline from here on. */
void batoni_op_stop_clock(struct batoni_op *op);

/* The buffer that the operation has lent is free; the slot belongs to its other holders. */
void batoni_op_give_back(struct batoni_op *op);

/* Put the operation on the engine's finish list: batoni_end_and_issue ends it, and until then nothing
 * else may. */
void batoni_op_end_later(struct batoni_op *op);
/* End the operation without a completion: a group's operation, a member of a void group. */
void batoni_op_vanish(struct batoni_op *op, uint64_t drop);
/* Remove the operation from the FIFO that it waits in, if any. */
void batoni_op_remove_from_fifo(struct batoni_op *op);
/* Count an operation in or out of comm->work.active. */
void batoni_comm_count(struct baton_comm *comm, int change);
/* hold: keep polling the communicator, at a slow rate, even without operations.  Not
 * hold: stop that. */
void batoni_comm_hold(struct baton_comm *comm, bool hold);
/* Mark the communicator busy, so that drivers poll it even if no operation is
 * pending. */
void batoni_comm_set_busy(struct baton_comm *comm);
/* What paths call when a transfer has ended (path.h). */
void batoni_upcall_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
                        enum baton_status status);
/* Set up the upcalls of its paths (upcalls.c). */
void batoni_upcalls_init(struct baton_comm *comm);

#endif
