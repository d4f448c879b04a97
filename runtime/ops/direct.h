/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fast path of the enqueuing calls.  If the host stream is idle, no operation
 * is before this one in its FIFO and no other thread drives, the call hands the
 * operation straight to the transport (direct.c) or to the one-sided layer
 * (window/calls.c).  enqueue.c does the same for all other cases, refusals included.
 * The code is inlined here because a small message has 20 ns for both its ends.
 *
 *   if (batoni_is_usual(...) && (op = batoni_direct_begin(comm, stream))) {
 *           op->transfer.buffer = ..., bytes; batoni_set(peer and tag);
 *           batoni_direct_fill(op, ...);
 *           request = batoni_direct_end(op, status of issue, ...);
 *   }
 *
 * The driver lock is held from begin to end.  An operation that ends within issue
 * was never on its stream, was never counted, and no other thread knows it: its word
 * is written once, by a plain store.
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
	       !batoni_thread.groups &&
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

/* Take the driver lock and a record, if the operation can be issued now.  NULL: neither
 * is held. */
BATONI_ALWAYS_INLINE struct batoni_op *
batoni_direct_begin(struct baton_comm *comm, baton_stream stream)
{
	const struct batoni_engine *e = &batoni_engine;
	struct batoni_op *op = NULL;

	if (unlikely(comm->device_ops->stream_check(comm->device, stream,
	                                            false) != BATON_OK) ||
	    unlikely(!batoni_try()))
		return NULL;
	if (likely(!atomic_load_explicit(&e->inbox, memory_order_relaxed) &&
	           batoni_direct_may_issue(comm) &&
	           comm->device_ops->stream_idle(comm->device, stream) ==
	                   BATON_OK))
		op = batoni_pool_take_driving(&comm->pool);
	if (unlikely(!op))
		batoni_leave();
	return op;
}

BATONI_ALWAYS_INLINE void
batoni_direct_fill(struct batoni_op *op, enum batoni_op_kind kind,
                   uint8_t path, enum batoni_direction direction,
                   struct baton_comm *comm, baton_stream stream,
                   const struct baton_op_options *options)
{
	bool detached = options && options->flags;
	uint32_t slot = batoni_pool_slot(&comm->pool, op);

	batoni_op_begin(op, comm, kind, BATONI_ISSUED,
	                BATONI_FLAG_REACHED |
	                        (detached ? BATONI_FLAG_DETACHED : 0u),
	                path, slot | (uint32_t)direction << 24, stream,
	                batoni_reached_inline,
	                detached ? NULL : &comm->pool.words[slot],
	                comm->pool.values[slot], BATONI_ITEM_PASSED,
	                options ? options->user_data : 0, 0);
}

/* Leave the fast path before anything was issued.  op->comm may not be set yet. */
static inline void
batoni_direct_undo(struct baton_comm *comm, struct batoni_op *op)
{
	batoni_pool_return_driving(&comm->pool, op);
	batoni_leave();
}

/* `status` is what issue has returned.  Releases the lock.  Returns the handle, or
 * the null handle if the program did not ask for one. */
BATONI_ALWAYS_INLINE baton_request
batoni_direct_end(struct batoni_op *op, enum baton_status status, bool handle)
{
	struct baton_comm *comm = op->comm;
	uint64_t word = atomic_load_explicit(&op->word, memory_order_relaxed);
	uint64_t wanted = handle ? BATONI_OP_HANDLE : 0;
	baton_request request = handle ? batoni_op_handle(op, word)
	                               : BATON_REQUEST_NULL;

	if (likely(status == BATON_OK)) {
		batoni_op_close(op, BATON_OK);
		if (handle)
			atomic_store_explicit(&op->word,
			                      word | wanted | BATONI_OP_DONE,
			                      memory_order_release);
		else
			batoni_pool_return_driving(&comm->pool, op);
	} else {
		batoni_set(op->status, (int8_t)status);
		atomic_store_explicit(&op->word,
		                      word | wanted | BATONI_OP_ENGINE |
		                              BATONI_OP_STREAM,
		                      memory_order_release);
		batoni_op_place_direct(op);
		if (unlikely(status != BATON_PENDING))
			batoni_op_complete(op, status);
	}
	batoni_leave_enqueue();
	return request;
}

#endif
