/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are threads share the engine, so slots of all ranks run under one driver lock, and the
 * meeting needs none of its own.
 *
 * QUEUED until the stream gets there, then ARMED: in the meeting, with a deadline.  The first ones of
 * all ranks end together.  One that ends early leaves the meeting, and the next of its rank takes
 * its place.
 *
 * BATONI_FLAG_REACHED is set when it is about to end, or, while it is NEW, to tell `place`: what has the
 * flag is left alone by the sweep of a broken communicator.
 */
#include "barrier.h"

#include <stdio.h>

#include "describe.h"
#include "enqueue.h"
#include "life.h"
#include "log.h"
#include "scope.h"

/* ---- the call ---- */

static enum baton_status
check_test_barrier(struct baton_comm *comm, baton_stream stream)
{
	enum baton_status status =
		batoni_check_target("test_barrier", comm, stream, false);

	if (status != BATON_OK || !batoni_scope_of(comm))
		return status;
	return batoni_scope_refuse(
		comm, batoni_refuse(BATON_ERR_INVALID,
	                            "test_barrier was called %s",
	                            batoni_scope_where(comm)));
}

static enum baton_status
refuse(struct batoni_op *op, enum baton_status status)
{
	batoni_refuse_named("test_barrier", status);
	return batoni_unmake(op, status);
}

enum baton_status
test_barrier(struct test_meeting *meeting, struct baton_comm *comm,
             baton_stream stream, const struct baton_op_options *options,
             baton_request *request_p)
{
	const uint64_t held = BATONI_OP_ENGINE | BATONI_OP_STREAM;
	enum baton_status status = check_test_barrier(comm, stream);
	struct baton_op_options room;
	struct batoni_op *op;
	baton_request handle;

	if (status == BATON_OK)
		status = batoni_take_options("test_barrier", &options, &room,
		                             false);
	if (status != BATON_OK)
		return status;
	op = batoni_op_new(comm, BATONI_KIND_MEETING, stream,
	                   request_p ? held | BATONI_OP_HANDLE : held);
	if (!op)
		return batoni_refuse_full("test_barrier", comm);
	op->transfer.buffer = meeting;
	if (options)
		status = batoni_apply_options(op, options);
	if (status != BATON_OK)
		return refuse(op, status);
	handle = batoni_op_handle(op, atomic_load(&op->word));
	status = batoni_publish_record(op);
	if (status != BATON_OK)
		return refuse(op, status);
	if (request_p)
		*request_p = handle;
	return BATON_OK;
}

/* ---- on the driver ---- */

static struct batoni_op **
waiting(const struct batoni_op *op)
{
	struct test_meeting *meeting = op->transfer.buffer;

	return &meeting->waiting[op->comm->rank];
}

/* All ranks are there: nothing else may end the first of each from here on. */
static void
meet(struct test_meeting *meeting)
{
	for (int i = 0; i < meeting->ranks; i++)
		if (!meeting->waiting[i])
			return;
	for (int i = 0; i < meeting->ranks; i++) {
		struct batoni_op *op = meeting->waiting[i];

		meeting->waiting[i] = op->next;
		batoni_op_list_out(op, BATONI_IN_KIND);
		batoni_op_stop_clock(op);
		op->flags |= BATONI_FLAG_REACHED;
		batoni_op_end_later(op);
	}
}

static void
arrive(struct batoni_op *op)
{
	struct batoni_op **link = waiting(op);

	batoni_op_move(op, BATONI_ARMED);
	batoni_op_start_clock(op);
	while (*link)
		link = &(*link)->next;
	batoni_op_list_in(op, BATONI_IN_KIND);
	op->next = NULL;
	*link = op;
	meet(op->transfer.buffer);
}

static void
reached(struct batoni_op *op)
{
	if (op->state == BATONI_QUEUED)
		arrive(op);
	else
		batoni_op_passed(op);
}

static void
place(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;

	if (comm->in_engine)
		comm->device_ops->enqueue(comm->device, op->transfer.stream,
		                          &op->item);
	if (comm->fault.status != BATON_OK) {
		batoni_op_complete(op, comm->fault.status);
	} else if (op->flags & BATONI_FLAG_REACHED) {
		op->flags &= (uint16_t)~BATONI_FLAG_REACHED;
		arrive(op);
	} else {
		batoni_op_move(op, BATONI_QUEUED);
	}
}

static void
end_early(struct batoni_op *op, enum baton_status status)
{
	struct batoni_op **link = waiting(op);

	if (op->flags & BATONI_FLAG_REACHED)
		return; /* it has met the others */
	if (op->state == BATONI_ARMED) {
		while (*link != op)
			link = &(*link)->next;
		*link = op->next;
		batoni_op_list_out(op, BATONI_IN_KIND);
		op->flags |= BATONI_FLAG_REACHED;
	}
	batoni_op_complete(op, status);
}

static bool
waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state != BATONI_ARMED)
		return false;
	snprintf(text, size, "the barriers of other ranks");
	return true;
}

const struct batoni_kind batoni_kind_meeting = {
	.name = "meeting",
	.ends_broken = true,
	.place = place,
	.reached = reached,
	.end_early = end_early,
	.waits = waits,
};
