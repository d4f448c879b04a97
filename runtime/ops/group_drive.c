/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups on the driver: placed, reached, armed, ended, and returned.  group.c has the calls, and
 * the note on the whole.
 */
#include "life.h"

#include <stdio.h>

#include "describe.h"
#include "enqueue.h"
#include "log.h"
#include "queue.h"

static bool
is_released(const struct batoni_op *group)
{
	return group->flags & BATONI_FLAG_REACHED;
}

static void
retire(struct batoni_op *group)
{
	if (is_released(group) && group->streams_left == 0 &&
	    batoni_op_is_settled(group))
		batoni_op_vanish(group, BATONI_OP_ENGINE);
}

static void
release_streams(struct batoni_op *group)
{
	struct baton_comm *comm = group->comm;

	group->flags |= BATONI_FLAG_REACHED;
	comm->device_ops->release(comm->device, group->item.word,
	                          group->item.value);
}

/* The streams have reached all carriers: arm the members, and keep only the carriers on
 * the list. */
static void
arm(struct batoni_op *group)
{
	struct batoni_op *op, *next, **keep = &group->group.head;

	for (op = group->group.head; op; op = next) {
		next = op->group_next;
		if (op->item.flags & BATONI_ITEM_CARRIER) {
			*keep = op;
			keep = &op->group_next;
			if (op->state == BATONI_QUEUED)
				batoni_op_arm(op);
		} else if (op->state == BATONI_QUEUED) {
			batoni_op_passed(op);
			batoni_op_arm(op);
		} else {
			batoni_op_passed(op);
		}
	}
	*keep = NULL;
	if (group->flags & BATONI_FLAG_DETACHED)
		batoni_op_end_later(group);
}

static void
finish_group(struct batoni_op *group)
{
	struct batoni_op *op, *next;

	release_streams(group);
	for (op = group->group.head; op; op = next) {
		next = op->group_next;
		if (op->flags & BATONI_FLAG_HELD)
			batoni_op_passed(op);
		else if (!(op->item.flags & BATONI_ITEM_CARRIER))
			batoni_op_passed(op); /* never armed */
	}
	retire(group);
}

static void
carrier_reached(struct batoni_op *group, struct batoni_op *carrier)
{
	group->streams_left--;
	if (is_released(group))
		batoni_op_passed(carrier);
	else
		batoni_set(carrier->flags, carrier->flags | BATONI_FLAG_HELD);
	if (group->state == BATONI_NEW)
		return; /* place continues */
	if (group->streams_left == 0 && !is_released(group) &&
	    !batoni_op_is_settled(group))
		arm(group);
	retire(group);
}

static void
member_ended(struct batoni_op *group)
{
	group->tally.ended++;
	if (group->state == BATONI_NEW || !batoni_op_is_settled(group))
		return;
	if (is_released(group))
		retire(group);
	else if (!(group->flags & BATONI_FLAG_DETACHED) ||
	         group->streams_left > 0)
		batoni_op_end_later(group);
}

/* End the members without a completion.  Carriers that are on a stream stay until it has
 * reached them. */
static void
place_void(struct batoni_op *group)
{
	struct baton_comm *comm = group->comm;
	struct batoni_op *op, *next;
	bool on_stream = group->group.failed != group->group.head;

	group->tally.members = group->tally.ended = 0;
	release_streams(group);
	for (op = group->group.head; op; op = next) {
		bool carrier = op->item.flags & BATONI_ITEM_CARRIER;
		bool held = op->flags & BATONI_FLAG_HELD;

		next = op->group_next;
		if (op == group->group.failed)
			on_stream = false;
		if (carrier && !on_stream)
			group->streams_left--;
		batoni_op_remove_from_fifo(op);
		if (op->queue)
			batoni_queue_unreserve(op->queue);
		/* The member was not published, so it is not counted yet. */
		if (op->flags & BATONI_FLAG_STREAM_ISSUED) {
			batoni_comm_count(comm, 1);
			batoni_forget_described(op);
		}
		if (op->state == BATONI_ENDED) {
			batoni_op_drop(op, BATONI_OP_QUEUE |
			                           (!carrier || !on_stream ||
			                                            held
			                                    ? BATONI_OP_STREAM
			                                    : 0));
			continue;
		}
		batoni_op_vanish(op, BATONI_OP_ENGINE | BATONI_OP_QUEUE |
		                             (carrier && on_stream && !held
		                                      ? 0
		                                      : BATONI_OP_STREAM));
	}
	retire(group);
}

/* Deliver members that were cancelled while the group was open.  They had to wait until
 * here, since a void group delivers no completion. */
static void
deliver_early_ends(struct batoni_op *group)
{
	struct batoni_op *op;

	for (op = group->group.head; op; op = op->group_next) {
		if (op->state == BATONI_ENDED && op->queue)
			batoni_queue_deliver(op->queue, op);
	}
}

static void
place(struct batoni_op *group)
{
	struct baton_comm *comm = group->comm;
	struct batoni_op *op, *next;
	uint32_t carriers = group->streams_left;

	if (group->group.scope.refusal != BATON_OK) {
		batoni_op_move(group, BATONI_QUEUED);
		place_void(group);
		return;
	}
	if (group->tally.ended > 0)
		deliver_early_ends(group);
	for (op = group->group.head; comm->in_engine && carriers; op = next) {
		next = op->group_next;
		if (op->item.flags & BATONI_ITEM_CARRIER) {
			carriers--;
			comm->device_ops->enqueue(
				comm->device, op->transfer.stream, &op->item);
		}
	}
	batoni_op_move(group, BATONI_QUEUED);
	if (batoni_op_is_settled(group))
		batoni_op_end_later(group);
	else if (group->streams_left == 0)
		arm(group);
}

/* ---- in words ---- */

__attribute__((no_sanitize("thread"))) static void
view_group(const struct batoni_op *op, struct batoni_view *view)
{
	batoni_view_tally(op, view);
	view->streams_left = BATONI_VIEW_LOAD(op->streams_left);
}

static void
what(const struct batoni_view *view, const char *details, char *text, size_t size)
{
	(void)details;
	snprintf(text, size, "group of %u operation%s", view->members,
	         batoni_s(view->members));
}

static bool
waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state == BATONI_ENDED)
		return false;
	if (view->state == BATONI_NEW)
		snprintf(text, size,
		         "baton_group_end of the thread that began it");
	else
		snprintf(text, size,
		         "%u of its %u member%s, and %u stream%s to get there",
		         view->members - view->ended, view->members,
		         batoni_s(view->members), view->streams_left,
		         batoni_s(view->streams_left));
	return true;
}

static const struct batoni_members_kind members = {
	.reached = carrier_reached,
	.ended = member_ended,
};

const struct batoni_kind batoni_kind_group = {
	.name = "group",
	.off_stream = true,
	.place = place,
	.finish = finish_group,
	.view = view_group,
	.what = what,
	.waits = waits,
	.members = &members,
};
