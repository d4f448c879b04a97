/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that probes have found, and the receives of them (claim.c). */
#ifndef BATONI_CLAIM_H
#define BATONI_CLAIM_H

#include "core.h"

/* Is the operation, which has not been issued, a receive of a message that a probe has found? */
static inline bool
batoni_claim_has(const struct batoni_op *op)
{
	return __builtin_expect(op->flags & BATONI_FLAG_IN_LINE, 0) &&
	       batoni_is_transfer(op) &&
	       batoni_op_line(op) == BATONI_NO_LINE;
}

/* The table of the path that has the claim's message. */
static inline const struct batoni_unmatched_ops *
batoni_claim_ops(const struct batoni_op *claim)
{
	return batoni_path_of(claim)->ops->unmatched;
}

/* The claim whose message such a receive is for. */
static inline struct batoni_op *
batoni_claim_of(const struct batoni_op *op)
{
	return &op->comm->pool.ops[op->transfer.turn >> 2];
}

/* Make the operation, which is new, a receive of the claim's message. */
static inline void
batoni_claim_give(struct batoni_op *op, const struct batoni_op *claim)
{
	op->flags |= BATONI_FLAG_IN_LINE;
	op->transfer.turn = (uint64_t)batoni_pool_slot(&op->comm->pool, claim)
	                    << 2 | BATONI_NO_LINE;
}

/* ---- the driver ---- */

/* Ask the path what the message is.  OK: *held_p is filled; PENDING: its first part has not all come, ask again.
 * Anything else: the message is lost, and the claim is freed. */
enum baton_status batoni_claim_examine(struct batoni_op *claim,
                                       struct batoni_held *held_p);
/* Make the message the program's; the handle for it. */
baton_request batoni_claim_publish(struct batoni_op *claim, size_t bytes);
/* Tell observers that the message, which the program knew of, is received (OK) or discarded. */
void batoni_claim_spent(struct batoni_op *claim, enum baton_status status);
/* Issue the receive: as batoni_path_issue. */
enum baton_status batoni_claim_meet(struct batoni_op *op);
/* Part the receive and its claim, which is returned. */
struct batoni_op *batoni_claim_part(struct batoni_op *op);
/* Take a slot for a claim, or NULL; free it when it has no message. */
struct batoni_op *batoni_claim_new(struct baton_comm *comm, uint8_t kind);
void batoni_claim_free(struct batoni_op *claim);

/* ---- claim_find.c ---- */

/* Find a message of this peer and tag (-1: any) that no earlier receive takes.  OK: *claim_p, of this kind, has it.
 * PENDING: there is none.  PEER: there will be none either, since no more comes of that peer, and no earlier receive
 * holds up what has come.  AGAIN: no slot is free. */
enum baton_status batoni_claim_find(struct baton_comm *comm, uint8_t kind,
                                    int peer, int tag,
                                    struct batoni_op **claim_p);
/* Free the claim: the rest of the message's first part, for which it was PENDING, will not come. */
void batoni_claim_give_up(struct batoni_op *claim);
/* Discard the message of a claim from engine.finish, which no receive has, and free the claim. */
void batoni_claim_discard(struct batoni_op *claim);
/* Discard the messages that no receive has taken: the communicator is destroyed. */
void batoni_claims_drop(struct baton_comm *comm);

/* ---- any thread ---- */

/* Take the claim for a receive, or to discard it.  False: the slot has another operation by now, or another call has
 * taken the claim. */
bool batoni_claim_try(struct batoni_op *claim, uint64_t generation);
/* Take the claim of this handle for the caller's receive; NULL: there is none, or another call has it. */
struct batoni_op *batoni_claim_take(struct baton_comm *comm, baton_request handle);
/* The receive is not enqueued after all: give its claim back to the program.  put_back: one that no receive has. */
void batoni_claim_return(struct batoni_op *op);
void batoni_claim_put_back(struct batoni_op *claim);

#endif
