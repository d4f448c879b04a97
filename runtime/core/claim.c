/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that probes have found, and the receives of them.
 *
 * For the message that a probe finds the engine makes a *claim*: the path takes the message out of those that receives
 * meet (`hold` of its table `unmatched`), and keeps it by the slot of the claim.  So later receives and probes, of other
 * threads too, see what is behind it.  The message counts as matched: its sender does not take it back.  A probe may
 * find what a receive that is called now would meet (line.c): an earlier receive, armed or not, comes first.
 *
 * A claim is an operation of a kind of its own (ops/probe.c) that is on no stream and never placed: it stays NEW, counts in
 * no load, and sweeps skip it.  Its word:
 *
 *     ENGINE, MESSAGE   the program has its handle, and may receive the message
 *     MESSAGE           a call of a receive has taken it (by compare-and-swap, so one call of two gets it)
 *     neither           the path has had the message meet that receive, and the slot is free
 *
 * A receive of a claim is an operation like any receive, but it waits for its stream in a FIFO of its own, and
 * the path gets it by `meet` in place of `issue`.  Until then its flag IN_LINE says so, and transfer.turn
 * has the slot of the claim.  A call that is refused, and a group that is void or abandoned, give the message back to
 * the program.  A receive that ends early without having been issued discards it; a destroy discards the claims that
 * no receive has taken.
 *
 * How a message is discarded, from engine.finish: the claim itself meets it, as a receive of no bytes, so its sender
 * ends as with a receive that is too short.  If that takes a while, the slot stays lent meanwhile.  On a broken
 * communicator nothing is met: closing frees what the path holds.
 *
 * What finds and discards messages, and drives for that, is in claim_find.c.
 *
 * Threads: the driver, but for what claim.h says.
 */
#include "claim.h"

#include "life.h"

/* ---- a slot ---- */

/* A slot that leaves another one free: the receive of a message takes a second one until it is issued, so
 * messages that were found do not fill the pool. */
static struct batoni_op *
take_slot(struct batoni_pool *pool)
{
	struct batoni_op *op = batoni_pool_take_driving(pool), *spare;

	spare = op ? batoni_pool_take_driving(pool) : NULL;
	if (spare) {
		batoni_pool_return_driving(pool, spare);
		return op;
	}
	if (op)
		batoni_pool_return_driving(pool, op);
	return NULL;
}

struct batoni_op *
batoni_claim_new(struct baton_comm *comm, uint8_t kind)
{
	struct batoni_op *claim = take_slot(&comm->pool);
	uint64_t word;

	if (!claim)
		return NULL;
	batoni_set(claim->comm, comm);
	batoni_set(claim->kind, kind);
	batoni_set(claim->status, BATON_PENDING);
	batoni_set(claim->user_data, 0);
	batoni_set(claim->group_of, NULL);
	claim->group_next = NULL;
	claim->queue = NULL;
	claim->flags = 0;
	claim->timeout_ns = 0;
	claim->item.placed_ms = atomic_load_explicit(&batoni_engine.clock_ms,
	                                             memory_order_relaxed);
	claim->transfer.buffer = NULL;
	claim->transfer.bytes = 0;
	claim->transfer.stream = NULL;
	claim->transfer.native_call = NULL;
	claim->transfer.native_code = 0;
	claim->transfer.slot_direction =
		batoni_pool_slot(&comm->pool, claim) & 0xffffffu;
	claim->transfer.direction = BATONI_RECV;
	batoni_transfer_moved(&claim->transfer, 0);
	__atomic_store_n(&claim->state, BATONI_NEW, __ATOMIC_RELEASE);
	word = atomic_load_explicit(&claim->word, memory_order_relaxed);
	atomic_store_explicit(&claim->word, word | BATONI_OP_MESSAGE,
	                      memory_order_release);
	return claim;
}

void
batoni_claim_free(struct batoni_op *claim)
{
	batoni_list_remove(&claim->deadline);
	batoni_op_drop(claim, BATONI_OP_MESSAGE);
}

enum baton_status
batoni_claim_examine(struct batoni_op *claim, struct batoni_held *held_p)
{
	enum baton_status status = batoni_claim_ops(claim)->hold(
		batoni_path_of(claim), &claim->transfer, held_p);

	if (status != BATON_OK && status != BATON_PENDING)
		batoni_claim_free(claim);
	return status;
}

baton_request
batoni_claim_publish(struct batoni_op *claim, size_t bytes)
{
	uint64_t word;

	claim->transfer.bytes = bytes;
	if (unlikely(claim->comm->observed))
		batoni_op_observe_event(claim, BATONI_EVENT_FOUND);
	word = atomic_fetch_or_explicit(&claim->word, BATONI_OP_ENGINE,
	                                memory_order_release);
	return batoni_op_handle(claim, word);
}

void
batoni_claim_spent(struct batoni_op *claim, enum baton_status status)
{
	batoni_set(claim->status, (int8_t)status);
	if (unlikely(claim->comm->observed))
		batoni_op_observe_event(claim, BATONI_EVENT_SPENT);
}

/* ---- receiving ---- */

bool
batoni_claim_try(struct batoni_op *claim, uint64_t generation)
{
	const uint64_t whole = BATONI_OP_ENGINE | BATONI_OP_MESSAGE;
	uint64_t word = atomic_load_explicit(&claim->word, memory_order_acquire);

	do {
		if (word >> 32 != generation || (word & whole) != whole)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&claim->word, &word, word & ~(uint64_t)BATONI_OP_ENGINE,
		memory_order_acq_rel, memory_order_acquire));
	return true;
}

struct batoni_op *
batoni_claim_take(struct baton_comm *comm, baton_request handle)
{
	uint32_t slot = (uint32_t)handle & 0xfffffu;
	struct batoni_op *claim = &comm->pool.ops[slot];

	return ((handle >> 20) & (BATONI_COMMS_MAX - 1)) == comm->index &&
	                       slot < comm->pool.size &&
	                       batoni_claim_try(claim, handle >> 32)
	               ? claim
	               : NULL;
}

void
batoni_claim_put_back(struct batoni_op *claim)
{
	atomic_fetch_or_explicit(&claim->word, BATONI_OP_ENGINE,
	                         memory_order_release);
}

struct batoni_op *
batoni_claim_part(struct batoni_op *op)
{
	struct batoni_op *claim = batoni_claim_of(op);

	op->flags &= (uint16_t)~BATONI_FLAG_IN_LINE;
	op->transfer.native_call = NULL;
	return claim;
}

void
batoni_claim_return(struct batoni_op *op)
{
	batoni_claim_put_back(batoni_claim_part(op));
}

enum baton_status
batoni_claim_meet(struct batoni_op *op)
{
	struct batoni_op *claim = batoni_claim_part(op);
	enum baton_status status = batoni_claim_ops(claim)->meet(
		batoni_path_of(claim), &op->transfer, &claim->transfer);

	batoni_claim_spent(claim, BATON_OK);
	batoni_claim_free(claim);
	return status;
}
