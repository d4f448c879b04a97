/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scans over the operations of a communicator: cancels, breaks and aborts, deadlines, and
 * the marks of stream-issued operations.  All of it runs on the driver.
 *
 * Deadlines: an operation with a deadline is on its communicator's list from arming to its
 * end.  `next_ns` is a lower bound of them, so that a pass without an expiry costs
 * one compare.  When that time is reached, a scan makes it exact.
 *
 * Marks: stream-issued operations are on the list `marks.issued`.  The
 * driver asks the device for each whether its stream has reached it (then its deadline
 * starts) and has passed it (then it has ended; or, if its deadline, a peer's end or an abort
 * has ended it before, and its path lends, its buffer is free).
 *
 * Breaks and aborts go step by step, each asked for again until it is done:
 *   1. what the host issues ends, and the engine's words are released (`host_ended`);
 *   2. no enqueue runs any more;
 *   3. the paths tell what is on their streams to end (`stopping`), and what has begun there leaves
 *      its buffer and ends, as its mark tells.  From here on a mark that is done does not say that the
 *      operation was carried out;
 *   4. the others end (`aborted`).  Those whose marks are not done end LENT: their streams have
 *      not come to them, and a kernel of NCCL for them may find its bytes before it checks whether
 *      it has to end.
 * Steps 2 and 3 have a grace period each: an enqueue or a device that hangs holds up nothing.
 */
#include "life.h"

#include <stdio.h>

#include "crowd.h"
#include "describe.h"
#include "engine.h"
#include "health.h"
#include "liveness.h"
#include "log.h"
#include "sweep.h"
#include "wait.h"

/* ---- abort, cancel ---- */

bool
batoni_is_pending(const struct batoni_op *op)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_acquire);
	enum batoni_op_state state;

	if (!(word & BATONI_OP_ENGINE) || (word & BATONI_OP_LENT))
		return false;
	/* A call that was refused may have given the slot back meanwhile: its state is NEW again
	 * then. */
	state = batoni_op_state(op);
	return state != BATONI_NEW && state != BATONI_ENDED;
}

/* Points that end with their communicator (records) end before transfers: the end of a transfer
 * would let its stream reach them.  One that was reached has ended in OK.  Others (launched
 * functions, joins) are left to finish. */
static void
end_host_issued(struct baton_comm *comm)
{
	for (uint32_t i = 0; i < comm->paths_count; i++)
		comm->paths[i]->ending = true;
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (batoni_is_pending(op) && batoni_kind_of(op)->ends_broken &&
		    !(op->flags & BATONI_FLAG_REACHED))
			batoni_op_end_early(op, comm->fault.status);
	}
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (batoni_is_pending(op) && batoni_is_transfer(op) &&
		    !(op->flags & BATONI_FLAG_STREAM_ISSUED))
			batoni_op_end_early(op, comm->fault.status);
	}
	/* Threads in baton_stream_synchronize wait only a moment longer. */
	for (struct batoni_list_node *node = comm->locals.next;
	     node != &comm->locals; node = node->next)
		batoni_wake_waiters((uintptr_t)batoni_container_of(
			node, struct batoni_op, deadline));
}

static struct batoni_marks *
marks_of(const struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	return &comm->marks.by_slot[batoni_pool_slot(&comm->pool, op)];
}

/* Remove the operation from the list `marked`, in which *link names it. */
static void
unmark(struct batoni_op *op, struct batoni_op **link)
{
	*link = marks_of(op)->next;
	op->flags &= (uint16_t)~BATONI_FLAG_MARKED;
}

/* May the operation end before its mark is done? */
static bool
is_lending(const struct batoni_op *op)
{
	return batoni_path_lends(batoni_path_of(op));
}

/* Test the operation's marks: PENDING, OK, or the device's error. */
static enum baton_status
look_at_marks(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	struct batoni_marks *marks = marks_of(op);
	enum baton_status status;

	if (!(op->flags & BATONI_FLAG_ARMED)) {
		status = comm->device_ops->marks->mark_done(comm->device,
		                                            &marks->armed);
		if (status != BATON_OK)
			return status;
		op->flags |= BATONI_FLAG_ARMED;
		/* The state is ISSUED already; or the operation has ended and is lent. */
		if (op->state == BATONI_ISSUED && comm->observed)
			batoni_op_observe(op, BATONI_ARMED);
		if (op->state == BATONI_ISSUED)
			batoni_op_start_clock(op);
	}
	/* A joining thread holds the lock, maybe in a call that blocks: the mark is dropped in
	 * the next poll. */
	if (pthread_mutex_trylock(&comm->marks.lock) != 0)
		return BATON_PENDING;
	/* The device may have refused it, of a communicator that broke for that. */
	status = marks->ended.object ? comm->device_ops->marks->mark_done(
					       comm->device, &marks->ended)
	                             : BATON_PENDING;
	pthread_mutex_unlock(&comm->marks.lock);
	return status;
}

static bool
has_buffer(const struct batoni_op *op)
{
	return op->transfer.bytes > 0 && !(op->flags & BATONI_FLAG_SEEN);
}

/* The operation has begun on its stream and has not ended there.  A device that cannot tell has
 * failed: it carries out nothing. */
static bool
is_under_way(struct batoni_op *op)
{
	enum baton_status status;

	if (is_lending(op) || !has_buffer(op))
		return false;
	status = look_at_marks(op);
	if (status == BATON_OK)
		op->flags |= BATONI_FLAG_SEEN;
	return status == BATON_PENDING && (op->flags & BATONI_FLAG_ARMED);
}

/* Have the paths tell their work on streams to end.  True: they have told it, and no enqueue is
 * under way. */
static bool
stop_streams(struct baton_comm *comm)
{
	struct batoni_op *op = comm->marks.issued;
	bool told = true;

	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (path->ops->aborting)
			told &= path->ops->aborting->abort(path);
	}
	while (op && !is_under_way(op))
		op = marks_of(op)->next;
	return told && !op;
}

/* The same, for the grace period of a sick device at most. */
static bool
have_streams_stopped(struct baton_comm *comm)
{
	uint64_t now = batoni_real_ns();

	if (comm->driving.lost)
		return true;
	if (!comm->fault.stopping)
		comm->fault.since_ns = now;
	comm->fault.stopping = true;
	return stop_streams(comm) ||
	       now - comm->fault.since_ns >=
	               (uint64_t)batoni_comm_grace_ns(comm);
}

/* Of the marked operations, only those that are lent when they end are watched further: of a path
 * that lends, all; of another one those that have not ended on their streams, whose buffers
 * what was told to end may still touch. */
static void
keep_lent(struct baton_comm *comm)
{
	struct batoni_op *op, **link = &comm->marks.issued;

	while ((op = *link)) {
		if (is_lending(op) ||
		    (has_buffer(op) && look_at_marks(op) == BATON_PENDING))
			link = &marks_of(op)->next;
		else
			unmark(op, link);
	}
	comm->marks.issued_tail = link;
}

static void
end_stream_issued(struct baton_comm *comm)
{
	keep_lent(comm);
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (batoni_is_pending(op) && batoni_is_transfer(op))
			batoni_op_end_early(op, comm->fault.status);
	}
}

/* An enqueue that runs may wait for room on a stream that waits for a word of the engine.  So
 * the words are released first, and paths are aborted when it has returned.  It sets
 * `enqueuing`, then loads `status`; this thread has set `status`, then loads `enqueuing`.
 * One that does not return within the grace period of a sick device is not waited for: what
 * it enqueues ends when it is placed. */
bool
batoni_comm_end_all(struct baton_comm *comm)
{
	if (!comm->fault.host_ended) {
		comm->fault.host_ended = true;
		comm->fault.since_ns = batoni_real_ns();
		/* A thread that pushes from here on sees `status`. */
		batoni_place_inbox();
		batoni_take_in(comm);
		end_host_issued(comm);
	}
	if (comm->fault.aborted)
		return true;
	if (atomic_load(&comm->order.enqueuing) &&
	    !comm->fault.stopping &&
	    batoni_real_ns() - comm->fault.since_ns <
	            (uint64_t)batoni_comm_grace_ns(comm))
		return false;
	/* What was enqueued last. */
	batoni_place_inbox();
	if (!have_streams_stopped(comm))
		return false;
	comm->fault.aborted = true;
	end_stream_issued(comm);
	return true;
}

void
batoni_comm_end_all_now(struct baton_comm *comm)
{
	for (unsigned tries = 0; !batoni_comm_end_all(comm); tries++) {
		batoni_end_and_issue();
		batoni_yield_driver(tries);
	}
}

/* ---- memory that goes ---- */

static bool
overlap(const void *one, size_t one_bytes, const void *other, size_t other_bytes)
{
	uintptr_t a = (uintptr_t)one, b = (uintptr_t)other;

	return a < b + other_bytes && b < a + one_bytes;
}

/* Does the operation use some of this memory? */
static bool
uses(const struct batoni_op *op, const void *base, size_t bytes)
{
	const struct batoni_transfer *transfer = &op->transfer;
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	if (!list)
		return overlap(transfer->buffer, transfer->bytes, base, bytes);
	if (list->arena_bytes > 0 &&
	    overlap(list->arena, list->arena_bytes, base, bytes))
		return true;
	for (size_t i = 0; i < list->count; i++) {
		const struct batoni_segment *segment = &list->segments[i];

		if (overlap(segment->data, segment->bytes, base, bytes))
			return true;
	}
	return false;
}

static bool
is_lent(const struct batoni_op *op)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_acquire);

	return (word & BATONI_OP_ENGINE) && (word & BATONI_OP_LENT);
}

/* What a stream carries out has ended when its mark is done. */
static enum baton_status
scrap_one(const struct baton_comm *comm, struct batoni_op *op)
{
	if (op->flags & BATONI_FLAG_STREAM_ISSUED)
		return BATON_PENDING;
	if (comm->driving.lost || !batoni_may_drive(comm))
		return BATON_ERR_BUSY;
	return batoni_path_scrap(batoni_path_of(op), &op->transfer);
}

enum baton_status
batoni_comm_scrap(struct baton_comm *comm, const void *base, size_t bytes)
{
	enum baton_status all = BATON_OK, one;

	if (!comm->fault.aborted && !batoni_comm_end_all(comm))
		return BATON_PENDING;
	for (uint32_t i = 0; i < comm->pool.size && comm->work.lent > 0; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (!is_lent(op) || !batoni_is_transfer(op) ||
		    !uses(op, base, bytes))
			continue;
		one = scrap_one(comm, op);
		/* A PENDING one ends in time, a BUSY one perhaps not. */
		if (all == BATON_OK || one == BATON_PENDING)
			all = one;
	}
	return all;
}

/* baton_cancel adds to `cancels`, then sets CANCEL in a word without DONE, then lists the
 * operation.  batoni_pass keeps a communicator with cancels on engine.working. */
static size_t
end_cancelled(struct baton_comm *comm)
{
	uint32_t link = atomic_exchange(&comm->cancels.slots, 0);
	size_t events = 0;

	/* Listed operations were pushed to the inbox earlier.  Place the inbox after taking
	 * the list, or a cancel could find its operation unplaced. */
	batoni_place_inbox();
	while (link) {
		struct batoni_op *op = &comm->pool.ops[link - 1];

		link = atomic_load_explicit(&comm->pool.next_free[link - 1],
		                            memory_order_relaxed);
		if (batoni_is_pending(op)) {
			batoni_op_end_early(op, BATON_ERR_CANCELED);
			events++;
		}
		batoni_op_drop(op, BATONI_OP_CANCEL);
		atomic_fetch_sub(&comm->cancels.announced, 1);
	}
	return events;
}

size_t
batoni_comm_attend(struct baton_comm *comm)
{
	size_t events = 0;

	if (comm->fault.status != BATON_OK && !comm->fault.aborted)
		events += batoni_comm_end_all(comm);
	if (atomic_load(&comm->cancels.announced) == 0)
		return events;
	return events + end_cancelled(comm);
}

/* A stream-issued operation whose path does not lend cannot end alone: its deadline breaks the
 * communicator. */
static void
expire_issued(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	char what[BATONI_DESCRIBE_BYTES], why[sizeof(comm->fault.text)];
	char crowd[BATONI_CROWD_BYTES];
	bool crowded;

	batoni_op_describe(op, what, sizeof(what));
	crowded = batoni_crowd_describe(comm, crowd, sizeof(crowd));
	snprintf(why, sizeof(why),
	         "%.96s passed its deadline and cannot end alone: it takes the "
	         "communicator with it (%s%.160s%s its other end there, of the "
	         "same size? BATON_CHECK=1 compares them)",
	         what,
	         crowded ? "its stream, or its peer's, may stand behind another "
	                   "one: "
	                 : "",
	         crowd, crowded ? ". Else: is" : "is");
	batoni_op_stop_clock(op);
	batoni_comm_break(comm, BATON_ERR_TIMEOUT, why);
	batoni_comm_end_all(comm);
}

void
batoni_comm_end_one(struct batoni_op *op, enum baton_status status)
{
	if (status == BATON_ERR_TIMEOUT &&
	    (op->flags & BATONI_FLAG_STREAM_ISSUED) && !is_lending(op))
		expire_issued(op);
	else
		batoni_op_end_early(op, status);
}

/* The stream of a host-issued transfer has reached it; its peer's stream may not have reached the
 * other end.  Whether streams are crowded is asked once for all that end together, since the answer
 * changes when they have ended. */
static void
note_crowd(struct batoni_op *op, int *crowded_p)
{
	if (!batoni_is_transfer(op) || op->flags & BATONI_FLAG_STREAM_ISSUED)
		return;
	if (*crowded_p < 0)
		*crowded_p = batoni_crowd_is(op->comm);
	if (*crowded_p)
		op->flags |= BATONI_FLAG_CROWDED;
}

/* Move the deadlines that have passed from the communicator's list to *passed, and
 * note the earliest of the others. */
static void
sort_out(struct baton_comm *comm, uint64_t now, struct batoni_list_node *passed)
{
	struct batoni_list_node *node, *next;

	comm->deadlines.next_ns = BATONI_NEVER;
	for (node = comm->deadlines.list.next; node != &comm->deadlines.list;
	     node = next) {
		const struct batoni_op *op = batoni_container_of(
			node, struct batoni_op, deadline);
		uint64_t deadline = (uint64_t)op->timeout_ns;

		next = node->next;
		if (deadline <= now) {
			batoni_list_remove(node);
			batoni_list_append(passed, node);
		} else if (deadline < comm->deadlines.next_ns) {
			comm->deadlines.next_ns = deadline;
		}
	}
}

size_t
batoni_comm_expire(struct baton_comm *comm)
{
	uint64_t now = batoni_now_ns();
	struct batoni_list_node passed;
	int crowded = -1; /* not asked yet */
	size_t events = 0;

	if (now < comm->deadlines.next_ns)
		return 0;
	batoni_list_init(&passed);
	sort_out(comm, now, &passed);
	/* Ending one operation may end others on the list; those are then removed from
	 * it. */
	while (!batoni_list_empty(&passed)) {
		struct batoni_op *op = batoni_container_of(
			passed.next, struct batoni_op, deadline);

		events++;
		note_crowd(op, &crowded);
		batoni_comm_end_one(op, BATON_ERR_TIMEOUT);
	}
	return events;
}

/* ---- stream-issued operations ---- */

void
batoni_comm_mark(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	assert(!(op->flags & BATONI_FLAG_MARKED));
	op->flags |= BATONI_FLAG_MARKED;
	marks_of(op)->next = NULL;
	*comm->marks.issued_tail = op;
	comm->marks.issued_tail = &marks_of(op)->next;
}

/* Flag those whose marks the device has passed.  A stream goes on while its marks are
 * tested: where one was passed behind one that was not yet, all are tested again, so that
 * what is before it on its stream is found too.  OK, or the device's error. */
static enum baton_status
look_at_all(struct baton_comm *comm)
{
	bool again = true;

	while (again) {
		bool skipped = false;

		again = false;
		for (struct batoni_op *op = comm->marks.issued; op;
		     op = marks_of(op)->next) {
			enum baton_status status;

			if (op->flags & BATONI_FLAG_SEEN)
				continue;
			status = look_at_marks(op);
			if (status == BATON_PENDING) {
				skipped = true;
				continue;
			}
			if (status != BATON_OK)
				return status;
			op->flags |= BATONI_FLAG_SEEN;
			again |= skipped;
		}
	}
	return BATON_OK;
}

/* The device could not tell of a mark.  Its health says why, if it has failed. */
static void
break_on_mark(struct baton_comm *comm, enum baton_status status)
{
	char why[128];

	if (batoni_check_device(comm))
		return;
	snprintf(why, sizeof(why),
	         "the %s device lost sight of an operation: mark_done returned "
	         "%s",
	         comm->device_ops->name, baton_status_name(status));
	batoni_comm_break(comm, status, why);
}

/* Operations end in the order of the calls. */
size_t
batoni_comm_watch(struct baton_comm *comm)
{
	enum baton_status status = look_at_all(comm);
	struct batoni_op **link = &comm->marks.issued;
	struct batoni_op *op;
	size_t events = 0;

	if (status != BATON_OK && comm->fault.aborted) {
		/* What is lent stays so. */
		while (comm->marks.issued)
			unmark(comm->marks.issued, &comm->marks.issued);
		comm->marks.issued_tail = &comm->marks.issued;
		return 0;
	}
	if (status != BATON_OK) {
		break_on_mark(comm, status);
		return 1;
	}
	while ((op = *link)) {
		if (!(op->flags & BATONI_FLAG_SEEN)) {
			link = &marks_of(op)->next;
			continue;
		}
		unmark(op, link);
		events++;
		if (op->state == BATONI_ENDED) {
			batoni_op_give_back(op);
			continue;
		}
		/* The operation does not use its buffer any more, whether it was told to end or
		 * not. */
		if (comm->fault.stopping && !is_lending(op)) {
			batoni_op_complete(op, comm->fault.status);
			continue;
		}
		batoni_transfer_moved(&op->transfer, op->transfer.bytes);
		batoni_op_complete(op, BATON_OK);
	}
	comm->marks.issued_tail = link;
	return events;
}

size_t
batoni_watch_all(void)
{
	size_t events = 0;

	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->work.next) {
		if (comm->marks.issued && batoni_may_drive(comm))
			events += batoni_comm_watch(comm);
	}
	return events;
}
