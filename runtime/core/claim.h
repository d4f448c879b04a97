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

/* Of the path that has the claim's message. */
static inline const struct batoni_unmatched_ops *
batoni_claim_ops(const struct batoni_op *claim)
{
	return batoni_path_of(claim)->ops->unmatched;
}

/* The message of such a receive. */
static inline struct batoni_op *
batoni_claim_of(const struct batoni_op *op)
{
	return &op->comm->pool.ops[op->transfer.turn >> 2];
}

/* The operation, which is being made, is a receive of that message. */
static inline void
batoni_claim_give(struct batoni_op *op, const struct batoni_op *claim)
{
	op->flags |= BATONI_FLAG_IN_LINE;
	op->transfer.turn = (uint64_t)batoni_pool_slot(&op->comm->pool, claim)
	                    << 2 | BATONI_NO_LINE;
}

/* ---- the driver ---- */

/* What the message is: OK, and *held_p is filled; PENDING: that has not all come, ask again.  Anything else: it is
 * no more, and neither is the claim. */
enum baton_status batoni_claim_look(struct batoni_op *claim,
                                    struct batoni_held *held_p);
/* The program gets the message's handle. */
baton_request batoni_claim_publish(struct batoni_op *claim, size_t bytes);
/* The message, of which the program was told, is received (OK), or discarded: observers are told. */
void batoni_claim_spent(struct batoni_op *claim, enum baton_status status);
/* The receive is issued: as batoni_path_issue. */
enum baton_status batoni_claim_meet(struct batoni_op *op);
/* The receive has its message no more: the claim. */
struct batoni_op *batoni_claim_part(struct batoni_op *op);
/* A slot for a message, or NULL; and back, when it holds none. */
struct batoni_op *batoni_claim_new(struct baton_comm *comm, uint8_t kind);
void batoni_claim_free(struct batoni_op *claim);

/* ---- claim_find.c ---- */

/* Look for a message of this peer and tag (-1: any) that no earlier receive takes.  OK: *claim_p, of this kind, has
 * it.  PENDING: there is none.  PEER: nor will there be, since no more comes of that peer, and no earlier receive
 * holds up what has come.  AGAIN: no slot is free. */
enum baton_status batoni_claim_find(struct baton_comm *comm, uint8_t kind,
                                    int peer, int tag,
                                    struct batoni_op **claim_p);
/* The first part of the message, which look has found PENDING, will not come: the claim is no more. */
void batoni_claim_give_up(struct batoni_op *claim);
/* Discard the claim, taken from engine.finish, which nothing receives. */
void batoni_claim_discard(struct batoni_op *claim);
/* Discard the messages that nothing receives: the communicator is destroyed. */
void batoni_claims_drop(struct baton_comm *comm);

/* ---- any thread ---- */

/* Take the message for a receive, or to discard it.  False: it is another one by now, or was taken. */
bool batoni_claim_try(struct batoni_op *claim, uint64_t generation);
/* The message of this handle, which becomes the caller's to receive; NULL: there is none, or another call has it. */
struct batoni_op *batoni_claim_take(struct baton_comm *comm, baton_request handle);
/* The receive is not enqueued after all: its message may be received again. */
void batoni_claim_return(struct batoni_op *op);
void batoni_claim_put_back(struct batoni_op *claim);

#endif
