/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flushes: an operation of a stream that ends when what the stream has put before is there.
 *
 * A flush is a transfer of direction BATONI_WAIT, so it has no place in any channel and delays no put.
 * When it is placed it gets a number.  What it covers: the operations of channels with lower
 * numbers that are on its stream and go to its peer (or to any).  When its stream has come to it:
 *
 *   1. it lets those end that have not (unended.h).  Such are there only where they are detached, or
 *      have ended early and are LENT: others have ended before the stream went on;
 *   2. then it takes its mark, the number of the moment.  Where the data went by stores or copies it is
 *      visible by now.  Where it went by message its buffer is free, and no more is known: each wire to
 *      the peer that has carried data since it was last known to be applied is probed
 *      (message_get.c).  A wire is done when a probe that was sent behind the mark is answered.  One that fails
 *      is the end of all flushes that it was sent behind the mark of, and of no other.
 *
 * It ends when no wire is left.  Puts of other streams that are covered by a probe do it no harm,
 * and no put of another stream is waited for.
 *
 * Accounting.  An issued flush is in flight and awaiting: what ends it is in flight elsewhere.  An end
 * that it may wait for calls batoni_flushes_wake, and the layer's next test checks all flushes.
 * While a process of some rank is gone each test checks them: a target that cannot answer gives PEER.
 *
 * Taking back always succeeds.  Its probes go on: they are of the wires.
 *
 * Threads.  The driver only, but for the call.
 */
#include "calls.h"
#include "direct.h"
#include "enqueue.h"
#include "log.h"
#include "message.h"
#include "plan.h"
#include "scope.h"

/* ---- on the driver ---- */

static bool
goes_to(const struct batoni_transfer *flush, int peer)
{
	return flush->peer < 0 || flush->peer == peer;
}

/* OK: what it covers has ended; PENDING; PEER: it never will. */
static enum baton_status
check_puts(const struct batoni_rma *rma, const struct batoni_pending *flush)
{
	const struct batoni_transfer *transfer = flush->transfer;

	for (struct batoni_list_node *at = rma->unended.next; at != &rma->unended;
	     at = at->next) {
		const struct batoni_pending *put = batoni_container_of(
			at, struct batoni_pending, unended);

		if (put->serial > flush->serial)
			return BATON_OK;
		if (put->transfer->stream == transfer->stream &&
		    goes_to(transfer, put->transfer->peer))
			return rma->transport->peers[put->transfer->peer].gone
			               ? BATON_ERR_PEER
			               : BATON_PENDING;
	}
	return BATON_OK;
}

/* OK: the wire's target has all that was sent before the mark; PENDING: it was asked; else why it
 * cannot be asked, or how the question ended that was sent behind the mark. */
static enum baton_status
check_wire(struct batoni_rma *rma, const struct batoni_pending *flush,
           struct batoni_wire *wire)
{
	enum baton_status status;

	if (!goes_to(flush->transfer, wire->probe.peer) ||
	    wire->acked >= flush->flush.mark)
		return BATON_OK;
	if (rma->transport->peers[wire->probe.peer].gone)
		return BATON_ERR_PEER;
	if (wire->failed >= flush->flush.mark)
		return wire->why;
	if (wire->probing)
		return BATON_PENDING;
	status = batoni_message_probe(rma, wire);
	return status == BATON_ERR_AGAIN ? BATON_PENDING : status;
}

static enum baton_status
flush_status(struct batoni_rma *rma, struct batoni_pending *flush)
{
	enum baton_status all = BATON_OK;

	if (!flush->flush.mark) {
		all = check_puts(rma, flush);
		if (all != BATON_OK)
			return all;
		flush->flush.mark = ++rma->serial;
	}
	for (struct batoni_list_node *at = rma->unacked.next; at != &rma->unacked;
	     at = at->next) {
		enum baton_status one = check_wire(
			rma, flush,
			batoni_container_of(at, struct batoni_wire, unacked));

		if (one != BATON_OK && one != BATON_PENDING)
			return one;
		if (one == BATON_PENDING)
			all = one;
	}
	return all;
}

void
batoni_flush_place(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	rma->pending[transfer->slot].serial = ++rma->serial;
}

enum baton_status
batoni_flush_issue(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *flush = &rma->pending[transfer->slot];
	enum baton_status status;

	flush->transfer = transfer;
	flush->flush.mark = 0;
	status = flush_status(rma, flush);
	if (status == BATON_OK)
		batoni_transfer_moved(transfer, 0);
	if (status != BATON_PENDING)
		return status;
	batoni_list_append(&rma->flushes, &flush->link);
	rma->base.path.load.in_flight++;
	rma->base.path.load.awaiting++;
	return BATON_PENDING;
}

/* The test may not be called any more, since nothing of the layer need be in flight. */
static void
forget_wake(struct batoni_rma *rma)
{
	if (!rma->flushes_due || !batoni_list_empty(&rma->flushes))
		return;
	rma->flushes_due = false;
	rma->base.path.load.moving--;
}

static void
unlink_issued(struct batoni_rma *rma, struct batoni_pending *flush)
{
	batoni_list_remove(&flush->link);
	rma->base.path.load.in_flight--;
	rma->base.path.load.awaiting--;
}

enum baton_status
batoni_flush_take_back(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	unlink_issued(rma, &rma->pending[transfer->slot]);
	forget_wake(rma);
	return BATON_ERR_CANCELED;
}

/* Each flush is taken off the front and appended again, up to a mark, as the end of one may issue
 * others. */
size_t
batoni_flushes_test(struct batoni_rma *rma)
{
	struct batoni_list_node mark, *at;
	size_t events = 0;

	if (!rma->flushes_due &&
	    (batoni_list_empty(&rma->flushes) || !rma->comm->liveness.gone))
		return 0;
	rma->base.path.load.moving -= rma->flushes_due;
	rma->flushes_due = false;
	batoni_list_append(&rma->flushes, &mark);
	while ((at = rma->flushes.next) != &mark) {
		struct batoni_pending *flush = batoni_container_of(
			at, struct batoni_pending, link);
		struct batoni_transfer *transfer = flush->transfer;
		enum baton_status status = flush_status(rma, flush);

		if (status == BATON_PENDING) {
			batoni_list_remove(at);
			batoni_list_append(&rma->flushes, at);
			continue;
		}
		unlink_issued(rma, flush);
		if (status == BATON_OK)
			batoni_transfer_moved(transfer, 0);
		rma->comm->upcalls.done(&rma->comm->upcalls, transfer, status);
		events++;
	}
	batoni_list_remove(&mark);
	/* A probe that failed at once has given its lane back meanwhile. */
	forget_wake(rma);
	return events;
}

/* ---- the call ---- */

/* OK, or AGAIN: not a case for the fast path. */
BATONI_ALWAYS_INLINE enum baton_status
flush_directly(int peer, struct baton_comm *comm, baton_stream stream,
               const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_op *op = batoni_direct_begin(comm, stream);
	struct batoni_rma *rma = batoni_rma_of(comm);

	if (unlikely(!op))
		return BATON_ERR_AGAIN;
	batoni_op_name(op, NULL, 0, peer, BATONI_FLUSH_TAG);
	batoni_direct_fill(op, comm, BATONI_KIND_FLUSH, BATONI_PATH_ONESIDED,
	                   BATONI_WAIT, stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0, BATONI_SITE);
	if (likely(batoni_list_empty(&rma->unended) &&
	           batoni_list_empty(&rma->unacked))) {
		batoni_transfer_moved(&op->transfer, 0);
		batoni_direct_end(op, BATON_OK, request_p);
		return BATON_OK;
	}
	batoni_flush_place(rma, &op->transfer);
	batoni_direct_end(op, batoni_flush_issue(rma, &op->transfer), request_p);
	return BATON_OK;
}

/* What it needs beyond its transfer is made when it is placed. */
static enum baton_status
fill_flush(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	(void)onesided;
	(void)slot;
	(void)more;
	return BATON_OK;
}

static enum baton_status
replay_flush(struct baton_comm *comm, const void *payload)
{
	const struct batoni_recorded *recorded = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(recorded);

	if (atomic_load(&comm->driving.lost_lower))
		return batoni_refuse_lost("baton_plan_launch");
	return batoni_enqueue_onesided("baton_plan_launch", BATONI_KIND_FLUSH,
	                               comm, &a, 0, fill_flush, NULL);
}

static enum baton_status
note_flush(struct baton_comm *comm, const struct batoni_arguments *a)
{
	static const struct batoni_plan_entry_ops ops = {.replay = replay_flush};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, BATONI_KIND_FLUSH, a, 0);
	return batoni_plan_add("baton_flush", batoni_plan_recorded(comm), &ops,
	                       a->stream, &recorded, sizeof(recorded), NULL, 0);
}

static enum baton_status
check_flush(const struct baton_comm *comm, int peer, unsigned flags)
{
	if (peer < BATON_ALL_PEERS || peer >= comm->size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_flush: peer is %d; ranks are 0 to %d, "
		                     "or BATON_ALL_PEERS (%d)",
		                     peer, comm->size - 1, BATON_ALL_PEERS);
	if (flags)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_flush: flags is 0x%x; it must be 0",
		                     flags);
	return BATON_OK;
}

static __attribute__((noinline)) enum baton_status
flush_slowly(unsigned flags, struct batoni_arguments *a, struct baton_comm *comm)
{
	struct baton_op_options room;
	enum baton_status status;

	status = batoni_check_target("baton_flush", comm, a->stream, false);
	if (status == BATON_OK)
		status = batoni_check_layer("baton_flush", comm);
	if (status == BATON_OK)
		status = check_flush(comm, a->peer, flags);
	if (status == BATON_OK)
		status = batoni_take_options("baton_flush", &a->options, &room,
		                             false);
	if (status == BATON_OK)
		status = batoni_enqueue_onesided("baton_flush",
		                                 BATONI_KIND_FLUSH, comm, a, 0,
		                                 fill_flush, NULL);
	if (unlikely(status == BATONI_RECORDED))
		status = note_flush(comm, a);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

enum baton_status
baton_flush(int peer, unsigned flags, struct baton_comm *comm,
            baton_stream stream, const struct baton_op_options *options,
            baton_request *request_p)
{
	struct batoni_arguments a = {NULL,
	                             0,
	                             BATON_UINT8,
	                             peer,
	                             BATONI_FLUSH_TAG,
	                             stream,
	                             options,
	                             request_p};

	if (likely(batoni_is_usual(comm, options) && comm->onesided && !flags &&
	           peer >= BATON_ALL_PEERS && peer < comm->size &&
	           flush_directly(peer, comm, stream, options, request_p) ==
	                   BATON_OK))
		return BATON_OK;
	BATONI_KEEP_SITE();
	return flush_slowly(flags, &a, comm);
}
