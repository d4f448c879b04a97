/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How an operation's word changes at its end: by it threads see the end, and the holders give up their bits (op.h).
 * For op.c alone, whose ways to an end have these inlined; the usual end is here as a whole.
 *
 * Whoever clears the last holder returns the slot.  A waiter sets WAITED in the word before it sleeps, so the
 * change that sets DONE sees the bit, or the waiter sees DONE.  The word that streams wait for (batoni_op_release_word) is
 * another one, of the pool.
 *
 * The driver.
 */
#ifndef BATONI_OP_WORD_H
#define BATONI_OP_WORD_H

#include "engine.h"
#include "life.h"
#include "request.h"
#include "wake.h"

/* An operation of a launch has no handle: no other thread changes its word. */
static inline void
batoni_op_change_planned(struct batoni_op *op, uint64_t set, uint64_t drop)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_relaxed);

	word = (word | set) & ~drop;
	atomic_store_explicit(&op->word, word, memory_order_release);
	if ((word & BATONI_OP_HELD) == 0)
		batoni_pool_return_driving(&op->comm->pool, op);
}

/* Change the word of the operation, by which threads see its end and others hold it. */
static inline void
batoni_op_change_word(struct batoni_op *op, uint64_t set, uint64_t drop)
{
	uint64_t before = atomic_load_explicit(&op->word,
	                                       memory_order_relaxed);
	struct baton_comm *comm = op->comm;

	if (unlikely(op->flags & BATONI_FLAG_PLANNED)) {
		batoni_op_change_planned(op, set, drop);
		return;
	}
	while (!atomic_compare_exchange_weak_explicit(
		&op->word, &before, (before | set) & ~drop,
		memory_order_acq_rel, memory_order_relaxed))
		;
	if ((((before | set) & ~drop) & BATONI_OP_HELD) == 0)
		batoni_pool_return_driving(&comm->pool, op);
	if (unlikely(before & BATONI_OP_WAITED))
		batoni_wake_waiters(batoni_handle(comm, op, before));
}

static inline void
batoni_op_release_word(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	uint32_t slot = batoni_pool_slot(&comm->pool, op);

	comm->device_ops->release(comm->device, &comm->pool.words[slot],
	                          comm->pool.values[slot]);
}

/* The driver is in baton_finish of this operation: release the handle with the end.  False: the operation has
 * other holders, and nothing has changed. */
static inline bool
batoni_op_finish_at_once(struct batoni_op *op, uint64_t word)
{
	const uint64_t holders = BATONI_OP_FINISHING;
	struct batoni_finishing *finishing = &batoni_engine.finishing;
	struct baton_completion completion;

	if (likely(op != finishing->op) || unlikely(word != finishing->word))
		return false;
	if (finishing->completion_p)
		completion = batoni_completion_at(op, word | BATONI_OP_DONE);
	if (unlikely(!atomic_compare_exchange_strong_explicit(
		    &op->word, &word, (word | BATONI_OP_DONE) & ~holders,
		    memory_order_acq_rel, memory_order_relaxed)))
		return false;
	if (finishing->completion_p)
		*finishing->completion_p = completion;
	finishing->op = NULL;
	batoni_pool_return_driving(&op->comm->pool, op);
	return true;
}

/* publish_end() of op.c without queue, group, deadline and stamps, on a stream with nothing behind the
 * operation: the usual case.  The word shows a join that comes meanwhile. */
static inline bool
batoni_op_end_simply(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	const uint64_t drop = BATONI_OP_ENGINE | BATONI_OP_STREAM;
	uint64_t before = atomic_load_explicit(&op->word, memory_order_relaxed);

	/* Each of the four is usually 0: one test of them. */
	if (unlikely(!comm->plain ||
	             ((uintptr_t)op->queue | (uintptr_t)op->group_of |
	              (uintptr_t)op->item.next | (before & BATONI_OP_JOINS)) ||
	             (op->flags & (BATONI_FLAG_DEADLINE | BATONI_FLAG_PLANNED |
	                           BATONI_FLAG_REACHED)) !=
	                     BATONI_FLAG_REACHED))
		return false;
	if (unlikely(batoni_op_list(op)))
		batoni_kind_of(op)->list->ended(op, BATON_OK, false);
	batoni_op_close(op, BATON_OK);
	comm->work.active--;
	if (op->item.word) {
		/* A join that comes from here on finds the word released. */
		batoni_op_release_word(op);
		if (!batoni_op_finish_at_once(op, before))
			batoni_op_change_word(op, BATONI_OP_DONE, drop);
		return true;
	}
	if (batoni_op_finish_at_once(op, before))
		return true;
	/* No stream waits for the word, unless a join comes before this change. */
	while (!atomic_compare_exchange_weak_explicit(
		&op->word, &before, (before | BATONI_OP_DONE) & ~drop,
		memory_order_acq_rel, memory_order_relaxed)) {
		if (before & BATONI_OP_JOINS) {
			atomic_fetch_or_explicit(&op->word, BATONI_OP_DONE,
			                         memory_order_acq_rel);
			batoni_op_release_word(op);
			batoni_op_change_word(op, 0, drop);
			return true;
		}
	}
	if ((before & ~drop & BATONI_OP_HELD) == 0)
		batoni_pool_return_driving(&comm->pool, op);
	if (unlikely(before & BATONI_OP_WAITED))
		batoni_wake_waiters(batoni_handle(comm, op, before));
	return true;
}

#endif
