/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scans over the operations of a communicator: cancels, breaks and aborts, deadlines, and
 * the marks of a stream-issued transport.  All of it runs on the driver.
 *
 * Deadlines: a record with a deadline is on its communicator's list from arming to its
 * end.  deadline_next is a lower bound of them, so that a pass without an expiry costs
 * one compare.  When that time is reached, a scan makes it exact.
 *
 * Marks: the operations of a stream-issued transport are on the list `marked`.  The
 * driver asks the device for each whether its stream has reached it (then its deadline
 * starts) and has passed it (then it has ended).
 */
#include "core.h"

#include <stdio.h>

#include "log.h"

/* ---- abort, cancel ---- */

/* Does the engine hold the record?  Only then does the driver own its state. */
static bool
is_pending(const struct batoni_op *op)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_acquire);

	return (word & BATONI_OP_ENGINE) && !(word & BATONI_OP_LENT) &&
	       op->state != BATONI_NEW && op->state != BATONI_ENDED;
}

void
batoni_comm_end_all(struct baton_comm *comm, enum baton_status status)
{
	comm->broken = true;
	if (comm->stream_issued && !comm->lost)
		comm->transport_ops->abort(comm->transport);
	comm->marked = NULL;
	comm->marked_tail = &comm->marked;
	/* End BATONI_KIND_RECORD operations before transfers: the end of a transfer
	 * would let its stream reach them.  One that was reached has ended in OK.
	 * Launched functions and joins are left to finish. */
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (is_pending(op) && op->kind == BATONI_KIND_RECORD &&
		    !(op->flags & BATONI_FLAG_REACHED))
			batoni_op_end_early(op, status);
	}
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (is_pending(op) && batoni_is_transfer(op))
			batoni_op_end_early(op, status);
	}
	/* Threads in baton_stream_synchronize wait for a while longer at most. */
	for (struct batoni_list_node *node = comm->locals.next;
	     node != &comm->locals; node = node->next)
		batoni_wake_waiters((uintptr_t)batoni_container_of(
			node, struct batoni_op, deadline));
}

/* baton_cancel adds to `cancels`, then sets CANCEL in a word without DONE, then lists the
 * record.  batoni_pass keeps a communicator with cancels on engine.working. */
static size_t
end_cancelled(struct baton_comm *comm)
{
	uint32_t link = atomic_exchange(&comm->cancelled, 0);
	size_t events = 0;

	/* Listed records were pushed to the inbox earlier.  Place the inbox after taking
	 * the list, or a cancel could find its operation unplaced. */
	batoni_place_inbox();
	while (link) {
		struct batoni_op *op = &comm->pool.ops[link - 1];

		link = atomic_load_explicit(&comm->pool.next_free[link - 1],
		                            memory_order_relaxed);
		if (is_pending(op)) {
			batoni_op_end_early(op, BATON_ERR_CANCELED);
			events++;
		}
		batoni_op_drop(op, BATONI_OP_CANCEL);
		atomic_fetch_sub(&comm->cancels, 1);
	}
	return events;
}

size_t
batoni_comm_attend(struct baton_comm *comm)
{
	size_t events = 0;

	if (comm->breaking != BATON_OK && !comm->broken) {
		batoni_comm_end_all(comm, comm->breaking);
		events++;
	}
	if (atomic_load(&comm->cancels) == 0)
		return events;
	return events + end_cancelled(comm);
}

void
batoni_comm_break(struct baton_comm *comm, enum baton_status status,
                  const char *why)
{
	if (comm->breaking != BATON_OK)
		return;
	snprintf(comm->error, sizeof(comm->error), "%s", why);
	comm->breaking = status;
	atomic_store_explicit(&comm->status, (int)status,
	                      memory_order_release);
	batoni_log(status == BATON_ERR_ABORTED ? BATONI_LOG_DEBUG
	                                       : BATONI_LOG_ERROR,
	           "rank %d: communicator broken (%s), %u operations end with "
	           "it: %s",
	           comm->rank, baton_status_name(status), comm->active, why);
	atomic_store(&batoni_engine.attention, 1);
}

/* A stream-issued operation cannot end alone: its deadline breaks the communicator. */
static void
expire_issued(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	batoni_comm_break(comm, BATON_ERR_ABORTED,
	                  "an operation passed its deadline, and this transport "
	                  "can only be aborted as a whole");
	batoni_set(op->status, BATON_ERR_TIMEOUT);
	batoni_comm_end_all(comm, BATON_ERR_ABORTED);
}

/* Move the deadlines that have passed from the communicator's list to *passed, and
 * note the earliest of the others. */
static void
sort_out(struct baton_comm *comm, uint64_t now, struct batoni_list_node *passed)
{
	struct batoni_list_node *node, *next;

	comm->deadline_next = BATONI_NEVER;
	for (node = comm->deadlines.next; node != &comm->deadlines;
	     node = next) {
		const struct batoni_op *op = batoni_container_of(
			node, struct batoni_op, deadline);
		uint64_t deadline = (uint64_t)op->timeout_ns;

		next = node->next;
		if (deadline <= now) {
			batoni_list_remove(node);
			batoni_list_append(passed, node);
		} else if (deadline < comm->deadline_next) {
			comm->deadline_next = deadline;
		}
	}
}

size_t
batoni_comm_expire(struct baton_comm *comm)
{
	uint64_t now = batoni_now_ns();
	struct batoni_list_node passed;
	size_t events = 0;

	if (now < comm->deadline_next)
		return 0;
	batoni_list_init(&passed);
	sort_out(comm, now, &passed);
	/* Ending one operation may end others on the list; those are then removed from
	 * it. */
	while (!batoni_list_empty(&passed)) {
		struct batoni_op *op = batoni_container_of(
			passed.next, struct batoni_op, deadline);

		events++;
		if (comm->stream_issued)
			expire_issued(op);
		else
			batoni_op_end_early(op, BATON_ERR_TIMEOUT);
	}
	return events;
}

/* ---- stream-issued transports ---- */

void
batoni_op_place_issued(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	batoni_op_move(op, BATONI_ISSUED);
	op->next = NULL;
	*comm->marked_tail = op;
	comm->marked_tail = &op->next;
}

/* Test the operation's marks: PENDING, OK, or the device's error. */
static enum baton_status
look_at_marks(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	struct batoni_mark *marks =
		&comm->marks[2 * batoni_pool_slot(&comm->pool, op)];
	enum baton_status status;

	if (!(op->flags & BATONI_FLAG_ARMED)) {
		status = comm->device_ops->mark_done(comm->device, &marks[0]);
		if (status != BATON_OK)
			return status;
		op->flags |= BATONI_FLAG_ARMED;
		batoni_op_start_clock(op);
	}
	return comm->device_ops->mark_done(comm->device, &marks[1]);
}

size_t
batoni_comm_watch(struct baton_comm *comm)
{
	struct batoni_op **link = &comm->marked;
	struct batoni_op *op;
	size_t events = 0;

	while ((op = *link)) {
		enum baton_status status = look_at_marks(op);

		if (status == BATON_PENDING) {
			link = &op->next;
			continue;
		}
		if (status != BATON_OK) {
			batoni_comm_break(comm, status,
			                  "the device lost sight of an operation");
			return events + 1;
		}
		*link = op->next;
		batoni_transfer_moved(&op->transfer, op->transfer.bytes);
		batoni_op_complete(op, BATON_OK);
		events++;
	}
	comm->marked_tail = link;
	return events;
}
