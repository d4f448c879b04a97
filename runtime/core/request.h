/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests, as the engine's other files use them. */
#ifndef BATONI_REQUEST_H
#define BATONI_REQUEST_H

#include "core.h"

/* The operation of a live handle, with its word; NULL: stale. */
static inline struct batoni_op *
batoni_request_find(baton_request request, uint64_t *word_p)
{
	uint32_t slot = (uint32_t)request & 0xfffffu;
	struct baton_comm *comm = atomic_load_explicit(
		&batoni_comms[(request >> 20) & (BATONI_COMMS_MAX - 1)],
		memory_order_acquire);
	struct batoni_op *op;

	if (unlikely(!comm || slot >= comm->pool.size))
		return NULL;
	op = &comm->pool.ops[slot];
	*word_p = atomic_load_explicit(&op->word, memory_order_acquire);
	if (unlikely(*word_p >> 32 != request >> 32 ||
	             !(*word_p & BATONI_OP_HANDLE)))
		return NULL;
	return op;
}

/* The completion of the operation as of `word`.  By value, so that it stays in registers
 * until the caller has checked that it is valid. */
static inline struct baton_completion
batoni_completion_at(const struct batoni_op *op, uint64_t word)
{
	const struct batoni_pool *pool = &batoni_get(op->comm)->pool;
	bool done = word & BATONI_OP_DONE;
	enum baton_status status = done ? batoni_get(op->status) : BATON_PENDING;
	uint8_t kind = batoni_get(op->kind);
	struct baton_completion completion = {
		.request = batoni_op_handle(op, word),
		.status = status,
		.peer = batoni_get(op->transfer.peer),
		.tag = batoni_is_onesided_kind(kind)
	                       ? -1
	                       : batoni_get(op->transfer.tag),
		.bytes = status == BATON_OK || status == BATON_ERR_TRUNCATED ||
		                         (done && batoni_kinds[kind]->launch)
	                         ? batoni_get(op->transfer.done_bytes)
	                         : 0,
		.user_data = batoni_get(op->user_data),
		.op = kind,
		.flags = (word & BATONI_OP_LENT ? BATON_COMPLETION_LENT : 0u) |
		         (word & BATONI_OP_BEGUN ? BATON_COMPLETION_BEGUN : 0u),
	};

	if (unlikely(done && pool->stamps)) {
		const struct batoni_stamps *stamps =
			&pool->stamps[batoni_pool_slot(pool, op)];

		completion.enqueued_ns = batoni_get(stamps->enqueued_ns);
		completion.armed_ns = batoni_get(stamps->armed_ns);
		completion.completed_ns = batoni_get(stamps->completed_ns);
	}
	return completion;
}

/* Returns the operation's status, or PENDING, and fills the completion.  STALE: the
 * slot was reused for another operation, and nothing was written. */
static inline enum baton_status
batoni_request_report(const struct batoni_op *op, uint64_t word,
                      struct baton_completion *completion_p)
{
	enum baton_status status = word & BATONI_OP_DONE
	                                   ? batoni_get(op->status)
	                                   : BATON_PENDING;
	struct baton_completion completion;

	if (completion_p)
		completion = batoni_completion_at(op, word);
	if (unlikely(!batoni_op_is_still(op, word)))
		return BATON_ERR_STALE;
	if (completion_p)
		*completion_p = completion;
	return status;
}

/* Can only the main thread end the operation, and is this another thread?  (An operation may
 * end without a driver of its transport.) */
static inline bool
batoni_request_is_main_threads(const struct batoni_op *op)
{
	const struct baton_comm *comm = batoni_get(op->comm);

	return unlikely(comm->driving.drivers == BATONI_DRIVERS_MAIN) &&
	       batoni_is_transfer(op) && !batoni_may_drive(comm);
}

/* Is the operation a member of a group that this thread has not ended?  A wait for it would
 * never return. */
bool batoni_request_in_open_group(const struct batoni_op *op);

/* The operation has ended, as `word` says: fill the completion, if there is one, drop the handle, and
 * return how it ended.  STALE: another thread has dropped it, and nothing was written. */
enum baton_status batoni_request_take(struct batoni_op *op, uint64_t word,
                                      struct baton_completion *completion_p);

/* The look-up of a handle has failed: returns why, with a sentence. */
enum baton_status batoni_refuse_handle(const char *call, baton_request request);

#endif
