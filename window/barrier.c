/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barriers of all ranks, on streams.
 *
 * The algorithm is dissemination: ceil(log2(size)) rounds.  In round k a rank sends a message of
 * no bytes to the rank 2^k after it and receives one of the rank 2^k before it.  It sends that of
 * round k when those of the rounds before have come, and the barrier ends when all have.  A rank's
 * sources differ from round to round, so the (source, tag) of a message tells its round, and
 * one tag of the transport's hidden ones serves all barriers.
 *
 * The queue.  A rank's barriers stand in the order of their calls, from place to their end.
 * The first one begins when its stream has reached it; the others wait for their turn, armed or
 * not.  So at most one is under way, and its messages match those of the same barrier of the
 * other ranks, because a transport keeps the order of a (peer, tag).
 *
 * Ending early.  One that has not begun leaves the queue, and the next one takes its place.  One
 * that has begun cannot be taken back, since other ranks may have its messages: it ends early
 * for this rank's program, LENT, and stays first in the queue until all ranks have come.  So the
 * other ranks see no difference.  Two exceptions: the communicator is broken, or the process of a
 * rank is gone.  Then no later barrier can end in OK: `over` says in what they end.
 *
 * A message may end within the transport's issue, test or take_back, from which the transport
 * may not be called.  What is to be sent then waits for the next test: `due`.
 *
 * Everything runs on the driver, but the call.
 */
#include "window.h"

#include <assert.h>
#include <stdio.h>

#include "direct.h"
#include "engine.h"
#include "enqueue.h"
#include "log.h"
#include "mem.h"
#include "plan.h"
#include "scope.h"

struct round {
	struct batoni_transfer send, receive;
	bool came; /* the message of this round */
};

struct batoni_barriers {
	struct batoni_list_node queue; /* of pending.link */
	bool begun;     /* the first one */
	bool due;       /* a test has something to do */
	enum baton_status over; /* OK; or what every barrier ends in from now on */
	int sent;       /* rounds of the first one whose message has been sent */
	int left;       /* its messages that have not ended */
	int count;      /* of rounds */
	struct round rounds[];
};

static int
count_rounds(int size)
{
	int rounds = 0;

	while ((int64_t)1 << rounds < size)
		rounds++;
	return rounds;
}

enum baton_status
batoni_barriers_open(struct batoni_rma *rma)
{
	int count = count_rounds(rma->size);
	struct batoni_barriers *barriers = batoni_alloc(
		1, sizeof(*barriers) + (size_t)count * sizeof(struct round));

	if (!barriers)
		return BATON_ERR_NOMEM;
	static_assert(BATONI_BARRIER_ROUNDS_MAX >= 31, "ranks are ints");
	batoni_list_init(&barriers->queue);
	barriers->count = count;
	rma->barriers = barriers;
	return BATON_OK;
}

void
batoni_barriers_close(struct batoni_rma *rma)
{
	batoni_free(rma->barriers);
	rma->barriers = NULL;
}

static void
init_message(const struct batoni_rma *rma, struct batoni_transfer *transfer,
             enum batoni_direction direction, int number, int peer)
{
	uint64_t slot = rma->requests_max +
	                batoni_onesided_slots(rma->size, rma->base.contexts_max) -
	                2 * BATONI_BARRIER_ROUNDS_MAX + (uint64_t)number;

	transfer->slot = slot & 0xffffffu;
	transfer->direction = (uint32_t)direction & 3u;
	transfer->peer = peer;
	transfer->tag = batoni_barrier_tag(rma);
}

void
batoni_barriers_start(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	for (int k = 0; k < barriers->count; k++) {
		struct round *round = &barriers->rounds[k];
		int64_t step = (int64_t)1 << k;

		init_message(rma, &round->send, BATONI_SEND, 2 * k,
		             (int)((rma->rank + step) % rma->size));
		init_message(rma, &round->receive, BATONI_RECV, 2 * k + 1,
		             (int)((rma->rank + rma->size - step) % rma->size));
	}
}

/* ---- the first one ---- */

static struct batoni_pending *
first_of(const struct batoni_barriers *barriers)
{
	return batoni_list_empty(&barriers->queue)
	               ? NULL
	               : batoni_container_of(barriers->queue.next,
	                                     struct batoni_pending, link);
}

/* The next test goes on. */
static void
set_due(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	if (barriers->due)
		return;
	barriers->due = true;
	rma->base.path.load.moving++;
	batoni_comm_set_busy(rma->comm);
}

/* The first one has left the queue. */
static void
look_at_next(struct batoni_rma *rma)
{
	const struct batoni_pending *first = first_of(rma->barriers);

	if (first && first->barrier.armed)
		set_due(rma);
}

static void
message_ended(struct batoni_barriers *barriers,
              struct batoni_transfer *transfer, enum baton_status status)
{
	if (status != BATON_OK && barriers->over == BATON_OK)
		barriers->over = status;
	if (transfer->direction == BATONI_RECV)
		batoni_container_of(transfer, struct round, receive)->came = true;
	barriers->left--;
}

static void
start(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	enum baton_status status =
		batoni_path_issue(&rma->transport->messages, transfer);

	if (status != BATON_PENDING)
		message_ended(rma->barriers, transfer, status);
}

/* Send what may be sent.  While this is in the transport, the message that is being started has
 * not ended, so nothing else ends the barrier. */
static void
send_further(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	while (barriers->sent < barriers->count &&
	       (barriers->sent == 0 || barriers->rounds[barriers->sent - 1].came))
		start(rma, &barriers->rounds[barriers->sent++].send);
}

/* Begin the first one, or go on with it.  PENDING, or the status in which it ends. */
static enum baton_status
go_on(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;

	if (barriers->over != BATON_OK)
		return barriers->over;
	if (!barriers->begun) {
		barriers->begun = true;
		barriers->sent = 0;
		barriers->left = 2 * barriers->count;
		for (int k = 0; k < barriers->count; k++)
			barriers->rounds[k].came = false;
		for (int k = 0; k < barriers->count; k++)
			start(rma, &barriers->rounds[k].receive);
	}
	send_further(rma);
	if (barriers->over != BATON_OK)
		return barriers->over;
	return barriers->left == 0 ? BATON_OK : BATON_PENDING;
}

/* It has ended by itself. */
static void
take_out(struct batoni_rma *rma, struct batoni_pending *pending)
{
	if (first_of(rma->barriers) == pending)
		rma->barriers->begun = false;
	batoni_list_remove(&pending->link);
	batoni_transfer_moved(pending->transfer, 0);
	look_at_next(rma);
}

/* It is counted as issued from the return of issue to its end. */
static void
count_issued(struct batoni_rma *rma, int change)
{
	rma->base.path.load.in_flight += (uint32_t)change;
	rma->base.path.load.awaiting += (uint32_t)change;
}

static void
end_first(struct batoni_rma *rma, struct batoni_pending *pending,
          enum baton_status status)
{
	struct batoni_transfer *transfer = pending->transfer;

	take_out(rma, pending);
	count_issued(rma, -1);
	rma->comm->upcalls.done(&rma->comm->upcalls, transfer, status);
}

/* ---- the slots of the layer ---- */

void
batoni_barrier_place(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];

	pending->transfer = transfer;
	pending->barrier.armed = false;
	batoni_list_append(&rma->barriers->queue, &pending->link);
}

void
batoni_barrier_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	batoni_list_remove(&rma->pending[transfer->slot].link);
	look_at_next(rma);
}

enum baton_status
batoni_barrier_issue(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];
	enum baton_status status = rma->barriers->over;

	pending->barrier.armed = true;
	if (first_of(rma->barriers) == pending)
		status = go_on(rma);
	else if (status == BATON_OK)
		status = BATON_PENDING;
	if (status == BATON_PENDING)
		count_issued(rma, 1);
	else
		take_out(rma, pending);
	return status;
}

/* Without a rank, or in a communicator that breaks, it is given up, and its messages with it: what
 * comes of them is not looked at. */
enum baton_status
batoni_barrier_take_back(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *pending = &rma->pending[transfer->slot];
	struct batoni_barriers *barriers = rma->barriers;

	if (barriers->begun && first_of(barriers) == pending) {
		if (!rma->base.path.ending && rma->comm->liveness.gone == 0)
			return BATON_ERR_BUSY;
		barriers->begun = false;
		barriers->over = BATON_ERR_PEER;
	}
	batoni_list_remove(&pending->link);
	count_issued(rma, -1);
	look_at_next(rma);
	return BATON_ERR_CANCELED;
}

void
batoni_barrier_message_done(struct batoni_rma *rma,
                            struct batoni_transfer *transfer,
                            enum baton_status status)
{
	struct batoni_barriers *barriers = rma->barriers;

	message_ended(barriers, transfer, status);
	if (!barriers->begun)
		return;
	if (barriers->left == 0 || barriers->over != BATON_OK)
		set_due(rma);
	else if (barriers->sent < barriers->count &&
	         barriers->rounds[barriers->sent - 1].came)
		set_due(rma);
}

size_t
batoni_barriers_test(struct batoni_rma *rma)
{
	struct batoni_barriers *barriers = rma->barriers;
	struct batoni_pending *first;
	enum baton_status status;
	size_t events = 0;

	if (likely(!barriers->due))
		return 0;
	barriers->due = false;
	rma->base.path.load.moving--;
	while ((first = first_of(barriers)) && first->barrier.armed) {
		status = go_on(rma);
		if (status == BATON_PENDING)
			break;
		end_first(rma, first, status);
		events++;
	}
	return events;
}

void
batoni_barrier_describe(const struct batoni_rma *rma,
                        const struct batoni_transfer *transfer, char *text,
                        size_t size)
{
	const struct batoni_barriers *barriers = rma->barriers;
	int k = 0;

	text[0] = '\0';
	if (!barriers->begun ||
	    first_of(barriers) != &rma->pending[transfer->slot])
		return;
	while (k < barriers->count && barriers->rounds[k].came)
		k++;
	if (k < barriers->count)
		snprintf(text, size, "round %d of %d: no message of rank %d yet",
		         k + 1, barriers->count, barriers->rounds[k].receive.peer);
}

/* ---- the call ---- */

static enum baton_status
fill_nothing(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	(void)onesided;
	(void)slot;
	(void)more;
	return BATON_OK;
}

/* One whose native library has been lost ends all that have used the layer, and refuses it from then
 * on: `used` is stored before `lost_lower` is loaded (host_calls.c). */
static enum baton_status
check_layer(struct baton_comm *comm)
{
	struct batoni_onesided *layer = comm->onesided;

	if (!layer)
		return batoni_refuse_onesided("baton_barrier", comm);
	atomic_store(&layer->used, true);
	return atomic_load(&comm->driving.lost_lower)
	               ? batoni_refuse_lost("baton_barrier")
	               : BATON_OK;
}

/* OK, or AGAIN: not a case for the fast path. */
BATONI_ALWAYS_INLINE enum baton_status
enter_directly(struct baton_comm *comm, baton_stream stream,
               const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_op *op = batoni_direct_begin(comm, stream);
	struct batoni_rma *rma = batoni_rma_of(comm);

	if (unlikely(!op))
		return BATON_ERR_AGAIN;
	batoni_op_name(op, NULL, 0, -1, BATONI_TAG_BARRIER);
	batoni_direct_fill(op, comm, BATONI_KIND_BARRIER, BATONI_PATH_ONESIDED,
	                   BATONI_WAIT, stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0);
	batoni_barrier_place(rma, &op->transfer);
	batoni_direct_end(op, batoni_barrier_issue(rma, &op->transfer), request_p);
	return BATON_OK;
}

static enum baton_status
replay_barrier(struct baton_comm *comm, const void *payload)
{
	const struct batoni_recorded *recorded = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(recorded);

	if (atomic_load(&comm->driving.lost_lower))
		return batoni_refuse_lost("baton_plan_launch");
	return batoni_enqueue_onesided("baton_plan_launch", BATONI_KIND_BARRIER,
	                               comm, &a, 0, fill_nothing, NULL);
}

static enum baton_status
note_barrier(struct baton_comm *comm, const struct batoni_arguments *a)
{
	static const struct batoni_plan_entry_ops ops = {.replay = replay_barrier};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, BATONI_KIND_BARRIER, a, 0);
	return batoni_plan_add("baton_barrier", batoni_plan_recorded(comm),
	                       &ops, a->stream, &recorded, sizeof(recorded),
	                       NULL, 0);
}

enum baton_status
baton_barrier(struct baton_comm *comm, baton_stream stream,
              const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_arguments a = {.type = BATON_UINT8,
	                             .peer = -1,
	                             .tag = BATONI_TAG_BARRIER,
	                             .stream = stream,
	                             .options = options,
	                             .request_p = request_p};
	struct baton_op_options room;
	enum baton_status status;

	if (likely(batoni_is_usual(comm, options) && comm->onesided &&
	           atomic_load_explicit(&comm->onesided->used,
	                                memory_order_relaxed) &&
	           enter_directly(comm, stream, options, request_p) == BATON_OK))
		return BATON_OK;
	status = batoni_check_target("baton_barrier", comm, stream, false);
	if (status == BATON_OK)
		status = check_layer(comm);
	if (status == BATON_OK)
		status = batoni_take_options("baton_barrier", &a.options, &room,
		                             false);
	if (status == BATON_OK)
		status = batoni_enqueue_onesided("baton_barrier",
		                                 BATONI_KIND_BARRIER, comm, &a,
		                                 0, fill_nothing, NULL);
	if (unlikely(status == BATONI_RECORDED))
		status = note_barrier(comm, &a);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}
