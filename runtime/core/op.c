/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of an operation: placed, reached, armed, issued, ended.  All of
 * it runs on the thread that drives.
 *
 * Nothing here recurses.  Ending an operation releases its word.  Streams then go
 * on and call `reached` for their next items from within that call.  `reached`
 * defers all work: it arms the operation, makes a FIFO ready, or appends to
 * engine.finish.  batoni_end_and_issue does that work once the call has returned.
 * transport->issue may end other transfers by upcalls->done, under the same rule.
 *
 * Lent: an issued operation ends early, but its transport cannot give the buffer
 * back yet.  The operation has ended for the program (DONE) and for its stream.  It
 * keeps ENGINE until the transport calls `done`, which clears LENT too; or, of what
 * is on a stream, until its mark is done (sweep.c).
 */
#include "life.h"

#include "claim.h"
#include "describe.h"
#include "engine.h"
#include "health.h"
#include "line.h"
#include "liveness.h"
#include "log.h"
#include "op_word.h"
#include "queue.h"
#include "request.h"
#include "sweep.h"
#include "unobserved.h"
#include "wake.h"

static struct batoni_op *
op_of(struct batoni_transfer *transfer)
{
	return batoni_container_of(transfer, struct batoni_op, transfer);
}

static void publish_end(struct batoni_op *op, enum baton_status status, bool lent);
static enum baton_status take_back(struct batoni_op *op);

/* ---- counting ---- */

static inline void
count_active(struct baton_comm *comm, int change)
{
	struct batoni_engine *e = &batoni_engine;

	comm->work.active += (uint32_t)change;
	if (likely(comm->work.busy))
		return;
	comm->work.busy = true;
	/* The engine's thread may have slept. */
	batoni_tick();
	if (comm->driving.by_engine)
		atomic_fetch_add(&e->thread_working, 1);
	if (comm->work.listed)
		return;
	comm->work.listed = true;
	comm->work.next = e->working;
	e->working = comm;
}

/* Read the clock here, if the engine's thread does not do so from time to time. */
static inline void
note_age(struct batoni_op *op)
{
	if (unlikely(!op->comm->driving.by_engine))
		batoni_tick();
	op->item.placed_ms = atomic_load_explicit(&batoni_engine.clock_ms,
	                                          memory_order_relaxed);
}

void
batoni_comm_count(struct baton_comm *comm, int change)
{
	count_active(comm, change);
}

void
batoni_comm_set_busy(struct baton_comm *comm)
{
	count_active(comm, 0);
}

void
batoni_comm_hold(struct baton_comm *comm, bool hold)
{
	comm->work.held += hold ? 1u : (uint32_t)-1;
	count_active(comm, hold ? 1 : -1);
}

/* ---- placing and arming ---- */

void
batoni_op_end_later(struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;

	assert(op->state != BATONI_ENDED);
	batoni_op_list_in(op, BATONI_IN_FINISH);
	op->next = NULL;
	*e->finish_tail = op;
	e->finish_tail = &op->next;
}

/* The clock of its deadline starts. */
void
batoni_op_start_clock(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	uint64_t now;

	if (unlikely(op->flags & BATONI_FLAG_PLANNED))
		batoni_kind_of(batoni_launch_of(op))
			->launch->armed(batoni_launch_of(op));
	if (likely(op->timeout_ns <= 0))
		return;
	now = batoni_now_ns();
	if (__builtin_add_overflow((int64_t)now, op->timeout_ns,
	                           &op->timeout_ns))
		op->timeout_ns = INT64_MAX;
	/* A thread that sees the flag (request_info.c) sees the deadline. */
	__atomic_store_n(&op->flags,
	                 (uint16_t)(op->flags | BATONI_FLAG_DEADLINE),
	                 __ATOMIC_RELEASE);
	batoni_list_append(&comm->deadlines.list, &op->deadline);
	if ((uint64_t)op->timeout_ns < comm->deadlines.next_ns) {
		comm->deadlines.next_ns = (uint64_t)op->timeout_ns;
		batoni_comm_set_busy(comm);
	}
}

void
batoni_op_stop_clock(struct batoni_op *op)
{
	if (likely(!(op->flags & BATONI_FLAG_DEADLINE)))
		return;
	op->flags &= (uint16_t)~BATONI_FLAG_DEADLINE;
	batoni_list_remove(&op->deadline);
}

void
batoni_op_arm(struct batoni_op *op)
{
	struct batoni_fifo *fifo;

	assert(op->state == BATONI_QUEUED);
	batoni_op_move(op, BATONI_ARMED);
	batoni_op_start_clock(op);
	fifo = batoni_fifo_find(&op->comm->fifos, batoni_fifo_key_of(op));
	if (fifo->head == op)
		batoni_fifo_make_ready(fifo);
}

void
batoni_op_passed(struct batoni_op *op)
{
	if (op->state == BATONI_ENDED)
		batoni_op_drop(op, BATONI_OP_STREAM);
	else
		batoni_set(op->flags, op->flags | BATONI_FLAG_REACHED);
}

/* A transfer that is not in a group: its item is its own. */
static void
transfer_reached(struct batoni_op *op)
{
	bool waits = op->state == BATONI_QUEUED;

	/* ENDED: it was cancelled before, and this may return its slot. */
	batoni_op_passed(op);
	if (waits)
		batoni_op_arm(op);
	/* NEW: batoni_op_place finds the flag, now or later. */
}

void
batoni_point_reached(struct batoni_op *op)
{
	batoni_set(op->flags, op->flags | BATONI_FLAG_REACHED);
	if (op->state == BATONI_QUEUED)
		batoni_op_end_later(op);
	else if (op->state == BATONI_ENDED)
		batoni_op_drop(op, BATONI_OP_STREAM);
}

void
batoni_op_reached(struct batoni_op *op)
{
	if (!batoni_is_transfer(op))
		batoni_kind_of(op)->reached(op);
	else if (op->group_of && (op->item.flags & BATONI_ITEM_CARRIER))
		batoni_kind_of(op->group_of)->members->reached(op->group_of, op);
	else
		transfer_reached(op);
}

static void
place_on_stream(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	if (comm->in_engine)
		comm->device_ops->enqueue(comm->device, op->transfer.stream,
		                          &op->item);
}

/* Nothing is before it in its FIFO, no other one has its turn, and this thread may issue. */
static inline bool
may_issue_now(const struct batoni_op *op)
{
	const struct baton_comm *comm = op->comm;

	return (comm->fifos.live == 0 ||
	        (!batoni_engine.ready &&
	         !batoni_fifo_find(&comm->fifos,
	                           batoni_fifo_key(&op->transfer)))) &&
	       batoni_may_drive(comm);
}

static inline void
tell_place(struct batoni_op *op)
{
	struct batoni_path *path = batoni_path_of(op);

	if (likely(!path->ops->placing))
		return;
	path->ops->placing->place(path, &op->transfer);
	op->flags |= BATONI_FLAG_PLACED;
}

/* The operation was enqueued by its path at the call. */
static void
place_issued(struct batoni_op *op)
{
	enum baton_status fault;

	tell_place(op);
	fault = batoni_op_move(op, BATONI_ISSUED);
	batoni_comm_mark(op);
	if (unlikely(fault != BATON_OK))
		batoni_comm_break(op->comm, fault,
		                  "a fault was injected into an operation that is "
		                  "on its stream");
}

static void
place_transfer(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	bool grouped = op->group_of != NULL;

	tell_place(op);
	if (!grouped)
		place_on_stream(op);
	if (!batoni_claim_has(op) && !batoni_line_takes(op) &&
	    (op->flags & BATONI_FLAG_REACHED) && !grouped && may_issue_now(op)) {
		batoni_op_move(op, BATONI_ARMED);
		batoni_op_start_clock(op);
		batoni_op_issue(op);
		return;
	}
	batoni_fifo_append(&comm->fifos, op);
	batoni_op_move(op, BATONI_QUEUED);
	if ((op->flags & BATONI_FLAG_REACHED) && !grouped)
		batoni_op_arm(op);
}

/* The launch of the plan has expired already: possible on an asynchronous device, whose
 * items are on their streams before this. */
static bool
is_too_late(const struct batoni_op *op)
{
	const unsigned planned = op->flags & (BATONI_FLAG_PLANNED |
	                                      BATONI_FLAG_STREAM_ISSUED);

	return planned == BATONI_FLAG_PLANNED &&
	       (batoni_launch_of(op)->flags & BATONI_FLAG_EXPIRED);
}

/* The operation was enqueued while the communicator broke. */
static void
place_broken(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	if (op->flags & BATONI_FLAG_STREAM_ISSUED) {
		place_issued(op);
		if (comm->fault.aborted)
			batoni_op_end_early(op, comm->fault.status);
		return;
	}
	if (!op->group_of)
		place_on_stream(op);
	publish_end(op, comm->fault.status, false);
}

void
batoni_point_place(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	if (unlikely(comm->fault.status != BATON_OK) &&
	    batoni_kind_of(op)->ends_broken &&
	    !(op->flags & BATONI_FLAG_LOCAL)) {
		place_on_stream(op);
		publish_end(op, comm->fault.status, false);
		return;
	}
	if (!comm->in_engine && (op->flags & BATONI_FLAG_LOCAL))
		batoni_list_append(&comm->locals, &op->deadline);
	place_on_stream(op);
	batoni_op_move(op, BATONI_QUEUED);
	if (op->flags & BATONI_FLAG_REACHED)
		batoni_op_end_later(op);
}

void
batoni_op_place(struct batoni_op *op)
{
	assert(op->state == BATONI_NEW);
	count_active(op->comm, 1);
	note_age(op);
	if (unlikely(!batoni_is_transfer(op))) {
		batoni_kind_of(op)->place(op);
		return;
	}
	/* Its path has put the operation on its stream.  No item of the engine is there, unless its group
	 * has one. */
	if (unlikely(op->flags & BATONI_FLAG_STREAM_ISSUED) && !op->group_of)
		op->flags |= BATONI_FLAG_REACHED;
	if (unlikely(is_too_late(op))) {
		tell_place(op);
		publish_end(op, BATON_ERR_TIMEOUT, false);
	} else if (unlikely(op->comm->fault.status != BATON_OK)) {
		place_broken(op);
	} else if (unlikely(op->flags & BATONI_FLAG_STREAM_ISSUED)) {
		place_issued(op);
	} else {
		place_transfer(op);
	}
}

void
batoni_op_place_direct(struct batoni_op *op)
{
	count_active(op->comm, 1);
	note_age(op);
	if (unlikely(op->comm->observed))
		batoni_op_observe_event(op, BATONI_EVENT_HANDED);
	if (op->item.word)
		place_on_stream(op);
}

/* ---- issuing ---- */

/* Does the operation name a silent peer, from which nothing more comes (liveness.c)?  Waits find
 * that out by themselves. */
static bool
names_silent(const struct batoni_op *op)
{
	return op->comm->liveness.silent > 0 &&
	       op->transfer.direction != BATONI_WAIT &&
	       op->comm->transport->peers[op->transfer.peer].silent;
}

/* Take back a receive that was just issued.  The path does not give back one that has its message, which
 * goes on. */
static void
end_unless_matched(struct batoni_op *op)
{
	enum baton_status how = take_back(op);

	if (how == BATON_ERR_CANCELED)
		publish_end(op, BATON_ERR_PEER, false);
	else if (how != BATON_ERR_BUSY)
		publish_end(op, how, false);
}

void
batoni_op_issue(struct batoni_op *op)
{
	struct batoni_path *path = batoni_path_of(op);
	struct baton_comm *comm = op->comm;
	enum baton_status status;
	bool silent;

	assert(op->state == BATONI_ARMED);
	if (unlikely(comm->fault.status != BATON_OK)) {
		publish_end(op, comm->fault.status, false);
		return;
	}
	if (unlikely(batoni_op_list(op)) &&
	    !batoni_kind_of(op)->list->may_issue(op)) {
		publish_end(op, BATON_ERR_INVALID, false);
		return;
	}
	silent = unlikely(names_silent(op));
	if (silent && op->transfer.direction != BATONI_RECV) {
		publish_end(op, BATON_ERR_PEER, false);
		return;
	}
	status = batoni_op_move(op, BATONI_ISSUED);
	if (unlikely(status != BATON_OK)) {
		publish_end(op, status, false);
		return;
	}
	op->flags &= (uint16_t)~BATONI_FLAG_PLACED;
	status = likely(!batoni_claim_has(op))
	                 ? batoni_path_issue(path, &op->transfer)
	                 : batoni_claim_meet(op);
	if (status == BATON_PENDING)
		batoni_comm_set_busy(comm);
	else
		batoni_op_complete(op, status);
	if (silent && status == BATON_PENDING)
		end_unless_matched(op);
}

/* ---- ending ---- */

/* The operation ends without having been issued, or was stream-issued: have its path forget it. */
static inline void
forget_placed(struct batoni_op *op)
{
	struct batoni_path *path;

	if (likely(!(op->flags & BATONI_FLAG_PLACED)))
		return;
	op->flags &= (uint16_t)~BATONI_FLAG_PLACED;
	path = batoni_path_of(op);
	path->ops->placing->unplace(path, &op->transfer);
}

static void
note_unobserved(struct batoni_op *op, enum baton_status status)
{
	char what[BATONI_END_BYTES];

	/* One line for each stream until its next synchronize. */
	if (!batoni_stream_error_note(op, status))
		return;
	batoni_op_describe_end(op, what, sizeof(what));
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: %s ended in %s, and no request observes it",
	           op->comm->rank, what, baton_status_name(status));
}

/* An operation of baton_stream_synchronize.  In-engine it is on the waiter's stack, which
 * goes with the last touch; otherwise it belongs to the waiter and the stream. */
static void
end_local(struct batoni_op *op)
{
	bool shared = !op->comm->in_engine;
	uint64_t before;

	if (shared)
		batoni_list_remove(&op->deadline);
	before = shared ? atomic_fetch_or(&op->word, BATONI_OP_DONE)
	                : atomic_exchange(&op->word, BATONI_OP_DONE);
	if (before & BATONI_OP_WAITED)
		batoni_wake_waiters((uintptr_t)op);
	if (shared)
		batoni_op_drop_local(op, BATONI_OP_STREAM);
}

static uint64_t
lent_bits(const struct batoni_op *op)
{
	return op->transfer.direction == BATONI_WAIT &&
	                       batoni_transfer_is_barrier(&op->transfer)
	               ? BATONI_OP_LENT | BATONI_OP_BEGUN
	               : BATONI_OP_LENT;
}

/* Publish the end to threads, streams and queues; unless lent, the engine drops its hold. */
static void
publish_end(struct batoni_op *op, enum baton_status status, bool lent)
{
	struct baton_comm *comm = op->comm;
	struct baton_queue *queue = op->queue;
	struct batoni_op *group = batoni_op_group(op);
	uint64_t set = BATONI_OP_DONE | (lent ? lent_bits(op) : 0);
	uint64_t drop = lent ? 0 : BATONI_OP_ENGINE;
	uint64_t seen = 0;
	uint32_t slot;

	/* The engine drops its hold: none of its lists has the operation. */
	assert(lent || !(op->flags & BATONI_FLAG_MARKED));
	/* What is lent on a stream keeps what its path has for it. */
	if (!lent || !(op->flags & BATONI_FLAG_STREAM_ISSUED))
		forget_placed(op);
	/* A thread that sees this status finds the communicator broken by it. */
	if (unlikely(status == BATON_ERR_CUDA) && comm->fault.status == BATON_OK)
		batoni_check_device(comm);
	if (unlikely(status == BATON_ERR_PEER) && comm->fault.status == BATON_OK)
		batoni_check_lost(comm);
	/* Lists and claims act before any thread sees the end. */
	if (unlikely(batoni_op_list(op)))
		batoni_kind_of(op)->list->ended(op, status, lent);
	if (unlikely(batoni_claim_has(op)))
		batoni_op_end_later(batoni_claim_part(op));
	batoni_op_close(op, status);
	if (unlikely(lent && comm->observed))
		batoni_op_observe_event(op, BATONI_EVENT_LENT);
	batoni_op_stop_clock(op);
	if (lent)
		comm->work.lent++;
	else
		count_active(comm, -1);
	if (op->flags & BATONI_FLAG_LOCAL) {
		end_local(op);
		return;
	}
	if (unlikely(op->flags & BATONI_FLAG_PLANNED))
		batoni_kind_of(batoni_launch_of(op))
			->launch->ends(op, status, lent);
	/* DONE before the release: a thread that has seen the stream go on must find
	 * the operation ended.  If release lets nothing go on, the word is changed
	 * once, below. */
	if (!comm->in_engine || op->item.next ||
	    (atomic_load_explicit(&op->word, memory_order_relaxed) &
	     BATONI_OP_JOINS))
		seen = atomic_fetch_or_explicit(&op->word, set,
		                                memory_order_acq_rel);
	batoni_op_release_word(op);
	if (op->flags & BATONI_FLAG_REACHED)
		drop |= BATONI_OP_STREAM;
	/* A launch answers for its operations. */
	if (unlikely(status != BATON_OK) &&
	    !(op->flags & BATONI_FLAG_PLANNED) &&
	    (batoni_is_transfer(op) || batoni_kind_of(op)->launch)) {
		if (!seen)
			seen = atomic_load(&op->word);
		if (!(seen & (BATONI_OP_HANDLE | BATONI_OP_QUEUE)))
			note_unobserved(op, status);
	}
	slot = batoni_pool_slot(&comm->pool, op);
	batoni_op_change_word(op, set, drop);
	/* From here on the slot belongs to other holders; a member's stays while
	 * its group is open, and no completion is due before that is placed. */
	if (queue && likely(!group || group->state != BATONI_NEW))
		batoni_queue_deliver(queue, op);
	if (unlikely(group != NULL))
		batoni_kind_of(group)->members->ended(group);
	if (unlikely(comm->observed))
		batoni_op_observe_left(comm, slot);
}

void
batoni_op_vanish(struct batoni_op *op, uint64_t drop)
{
	struct baton_comm *comm = op->comm;
	uint32_t slot;

	assert(!(op->flags & (BATONI_FLAG_DEADLINE | BATONI_FLAG_MARKED)));
	forget_placed(op);
	if (unlikely(batoni_claim_has(op)))
		batoni_claim_return(op);
	if (batoni_op_list(op))
		batoni_kind_of(op)->list->give(op);
	batoni_op_move(op, BATONI_ENDED);
	count_active(op->comm, -1);
	/* Other streams may wait for a member by its handle; its group has
	 * released the group's own word. */
	if (!batoni_kind_of(op)->members)
		batoni_op_release_word(op);
	slot = batoni_pool_slot(&comm->pool, op);
	batoni_op_change_word(op, 0, drop);
	if (unlikely(comm->observed))
		batoni_op_observe_left(comm, slot);
}

void
batoni_op_end_launch(struct batoni_op *launch, enum baton_status status,
                     bool lent)
{
	publish_end(launch, status, lent);
}

void
batoni_op_complete(struct batoni_op *op, enum baton_status status)
{
	assert(op->state != BATONI_ENDED);
	publish_end(op, status, false);
}

/* Remove the operation from its FIFO, in which the next one may become the head. */
void
batoni_op_remove_from_fifo(struct batoni_op *op)
{
	struct batoni_fifo_table *table = &op->comm->fifos;
	struct batoni_fifo *fifo;

	if (!(op->flags & BATONI_FLAG_FIFO))
		return;
	fifo = batoni_fifo_find(table, batoni_fifo_key_of(op));
	batoni_fifo_remove(fifo, op);
	if (unlikely(fifo->line))
		batoni_line_left(fifo, op);
	else if (fifo->head && fifo->head->state == BATONI_ARMED)
		batoni_fifo_make_ready(fifo);
	if (unlikely(table->lines_live > 0))
		batoni_line_again(op->comm, fifo->by_key.key);
	batoni_fifo_retire(table, fifo);
}

/* Ask the path: CANCELED, BUSY, or how it had ended. */
static enum baton_status
take_back(struct batoni_op *op)
{
	struct batoni_path *path = batoni_path_of(op);

	/* On a path that does not lend, the operation ends with its communicator, and keeps its
	 * mark while its stream has not passed it. */
	if (op->flags & BATONI_FLAG_STREAM_ISSUED)
		return batoni_path_lends(path) ||
		                       op->flags & BATONI_FLAG_MARKED
		               ? BATON_ERR_BUSY
		               : BATON_ERR_CANCELED;
	if (!batoni_may_drive(op->comm))
		return BATON_ERR_BUSY;
	return batoni_path_take_back(path, &op->transfer);
}

void
batoni_op_end_early(struct batoni_op *op, enum baton_status status)
{
	const struct batoni_kind *kind = batoni_kind_of(op);
	enum baton_status how;

	if (unlikely(kind->end_early != NULL)) {
		kind->end_early(op, status);
		return;
	}
	if (op->state != BATONI_ISSUED) {
		batoni_op_remove_from_fifo(op);
		publish_end(op, status, false);
		return;
	}
	how = take_back(op);
	if (how == BATON_ERR_CANCELED)
		publish_end(op, status, false);
	else if (how == BATON_ERR_BUSY && status == BATON_ERR_CANCELED &&
	         op->transfer.direction == BATONI_RECV)
		return; /* the receive has its message, and ends as it would have */
	else if (how == BATON_ERR_BUSY)
		publish_end(op, status, true);
	else
		publish_end(op, how, false);
}

/* ---- what transports call ---- */

void
batoni_op_give_back(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	assert(op->state == BATONI_ENDED && comm->work.lent > 0);
	assert(!(op->flags & BATONI_FLAG_MARKED));
	forget_placed(op);
	if (unlikely(op->flags & BATONI_FLAG_PLANNED))
		batoni_kind_of(batoni_launch_of(op))
			->launch->given_back(batoni_launch_of(op));
	comm->work.lent--;
	count_active(comm, -1);
	if (unlikely(batoni_op_list(op)))
		batoni_kind_of(op)->list->give(op);
	batoni_op_drop(op, BATONI_OP_ENGINE | BATONI_OP_LENT);
}

void
batoni_upcall_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
                   enum baton_status status)
{
	struct baton_comm *comm =
		batoni_container_of(upcalls, struct baton_comm, upcalls);
	struct batoni_op *op = op_of(transfer);

	if (unlikely(transfer->slot >= comm->pool.size)) {
		comm->onesided->ops->message_done(comm->onesided, transfer,
		                                  status);
		return;
	}
	/* end_unless_matched has asked for the cancel, and did not get it at once. */
	if (unlikely(status == BATON_ERR_CANCELED) && names_silent(op))
		status = BATON_ERR_PEER;
	if (likely(op->state == BATONI_ISSUED)) {
		if (unlikely(status != BATON_OK) || unlikely(!batoni_op_end_simply(op)))
			publish_end(op, status, false);
		return;
	}
	/* What a probe has found, of a communicator that breaks. */
	if (unlikely(op->state == BATONI_NEW))
		return;
	batoni_op_give_back(op);
}
