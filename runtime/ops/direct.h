/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fast path of the enqueuing calls: one condition and one set of steps, for sends and
 * receives (direct.c), lists (tensor_calls.c), puts, signals and waits (window/calls.c), and
 * launches of plans (plan_direct.c).  The call hands the operation straight to its path if the
 * host stream is idle, no operation of the communicator waits in any FIFO, the inbox is empty,
 * this thread has no open group or recording, the path to the peer is connected, and no other
 * thread drives.  The length of a message is no condition.  enqueue.c has all other cases,
 * refusals included.
 * The code is inlined because the shortest messages have 20 ns for both their ends.
 *
 *   if (batoni_is_usual(...) && (op = batoni_direct_begin(comm, stream))) {
 *           batoni_op_name(op, buffer, bytes, peer, tag);
 *           batoni_direct_fill(op, ...);
 *           batoni_direct_end(op, status of issue, request_p);
 *   }
 *
 * The driver lock is held from begin to end.  A launch takes the lock once for all of its
 * operations (batoni_direct_enter), and ends each of them by itself.  An operation that ends
 * within issue was never on its stream, was never counted, and no other thread knows it: its
 * word is written once, by a plain store.
 */
#ifndef BATONI_DIRECT_H
#define BATONI_DIRECT_H

#include "enqueue.h"
#include "life.h"

/* Do the communicator and the options allow the fast path, for any kind of operation?  (One
 * that a destroy has left is refused on the slow path: only a time limit ends a destroy there,
 * and a communicator that has one is not plain.) */
BATONI_ALWAYS_INLINE bool
batoni_is_usual(const struct baton_comm *comm,
                const struct baton_op_options *options)
{
	return comm && comm->plain && batoni_may_call() &&
	       !batoni_thread.scopes &&
	       atomic_load_explicit(&comm->status, memory_order_relaxed) ==
	               BATON_OK &&
	       (!options || batoni_options_are_ours(options, true));
}

/* Is nothing before an operation that is armed now, and may this thread issue it?  The driver. */
BATONI_ALWAYS_INLINE bool
batoni_direct_may_issue(const struct baton_comm *comm)
{
	return likely(comm->fifos.live == 0 && comm->fault.status == BATON_OK &&
	              comm->liveness.silent == 0 &&
	              atomic_load_explicit(&comm->driving.by_any,
	                                   memory_order_relaxed));
}

/* Take the driver lock, if this thread may issue now.  False: it is not held. */
BATONI_ALWAYS_INLINE bool
batoni_direct_enter(const struct baton_comm *comm)
{
	const struct batoni_engine *e = &batoni_engine;

	if (unlikely(!batoni_trylock()))
		return false;
	if (likely(!atomic_load_explicit(&e->inbox, memory_order_relaxed) &&
	           batoni_direct_may_issue(comm)))
		return true;
	batoni_unlock();
	return false;
}

/* Take the driver lock and a slot, if the operation can be issued now.  NULL: neither
 * is held. */
BATONI_ALWAYS_INLINE struct batoni_op *
batoni_direct_begin(struct baton_comm *comm, baton_stream stream)
{
	struct batoni_op *op = NULL;

	if (unlikely(!batoni_direct_enter(comm)))
		return NULL;
	if (likely(comm->device_ops->in_engine->takes_now(comm->device, stream)))
		op = batoni_pool_take_driving(&comm->pool);
	if (unlikely(!op))
		batoni_unlock();
	return op;
}

/* The flags of an operation with these options that is issued now. */
BATONI_ALWAYS_INLINE unsigned
batoni_direct_flags(const struct baton_op_options *options)
{
	return BATONI_FLAG_REACHED |
	       (options && options->flags ? BATONI_FLAG_DETACHED : 0u);
}

/* flags: DETACHED, PLANNED; REACHED: it is issued now, else it is placed.  site: BATONI_SITE where the
 * public call inlines this. */
BATONI_ALWAYS_INLINE void
batoni_direct_fill(struct batoni_op *op, struct baton_comm *comm,
                   enum batoni_op_kind kind, uint8_t path,
                   enum batoni_direction direction, baton_stream stream,
                   unsigned flags, uint64_t user_data, const void *site)
{
	bool now = flags & BATONI_FLAG_REACHED;
	uint32_t slot = batoni_pool_slot(&comm->pool, op);

	batoni_op_begin(op, comm, kind, now ? BATONI_ISSUED : BATONI_NEW, flags,
	                path, slot | (uint32_t)direction << 24, stream,
	                batoni_reached_inline,
	                flags & BATONI_FLAG_DETACHED ? NULL
	                                             : &comm->pool.words[slot],
	                comm->pool.values[slot], now ? BATONI_ITEM_PASSED : 0,
	                user_data, 0, site);
}

/* Leave the fast path before anything was issued.  op->comm may not be set yet. */
static inline void
batoni_direct_undo(struct baton_comm *comm, struct batoni_op *op)
{
	batoni_pool_return_driving(&comm->pool, op);
	batoni_unlock();
}

/* The operation's life begins for all but this thread.  holders: HANDLE, or none; the
 * engine and the stream hold it in any case. */
BATONI_ALWAYS_INLINE void
batoni_direct_make(struct batoni_op *op, enum baton_status status,
                   uint64_t holders)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_relaxed);

	batoni_set(op->status, (int8_t)status);
	atomic_store_explicit(&op->word,
	                      word | holders | BATONI_OP_ENGINE |
	                              BATONI_OP_STREAM,
	                      memory_order_release);
}

/* Issue has returned this status, which is not OK: the operation goes on as any other does. */
BATONI_ALWAYS_INLINE void
batoni_direct_keep(struct batoni_op *op, enum baton_status status,
                   uint64_t holders)
{
	batoni_direct_make(op, status, holders);
	batoni_op_place_direct(op);
	if (unlikely(status != BATON_PENDING))
		batoni_op_complete(op, status);
}

/* `status` is what issue has returned.  Releases the lock.  *request_p becomes the handle;
 * NULL: the program did not ask for one. */
BATONI_ALWAYS_INLINE void
batoni_direct_end(struct batoni_op *op, enum baton_status status,
                  baton_request *request_p)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_relaxed);
	uint64_t holders = request_p ? BATONI_OP_HANDLE : 0;

	if (request_p)
		*request_p = batoni_op_handle(op, word);
	if (likely(status == BATON_OK)) {
		batoni_op_close(op, BATON_OK);
		if (request_p)
			atomic_store_explicit(&op->word,
			                      word | holders | BATONI_OP_DONE,
			                      memory_order_release);
		else
			batoni_pool_return_driving(&op->comm->pool, op);
	} else {
		batoni_direct_keep(op, status, holders);
	}
	batoni_end_enqueue();
}

#endif
