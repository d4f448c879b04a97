/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: launches by the fast path (direct.h).
 *
 * They are for plans of nothing but sends and receives, in no group, without deadlines, on a
 * communicator that is `plain`.  Such a plan is direct, which is found once, at its end
 * (batoni_plan_is_direct).  All that a replay of it would check was checked when it was recorded, but
 * for its streams; so no operation of it can be refused once there are slots for all.
 *
 * The launch takes the driver lock, and keeps it from its first operation to the last: that
 * makes it one piece.  For each operation the steps are those of a call, but for the lock.  One whose
 * stream is not idle, or that has another before it, is placed as any other operation is.  Of what ends
 * within issue the launch is told, and the slot goes back.
 *
 * Anything in the way (another driver, a full pool, what is in the inbox, a stream that is refused) is
 * found before the first operation.  Then this says false, nothing has happened, and the launch
 * takes the way of plan_launch.c, which has the words for refusals.
 *
 * Threads: the enqueuing one, as the driver.
 */
#include "plan.h"

#include "direct.h"
#include "location.h"

bool
batoni_plan_is_direct(const struct baton_plan *plan)
{
	const struct batoni_recorded *recorded;
	const struct batoni_plan_entry *entry;

	for (size_t at = 0; at < plan->bytes; at += entry->bytes) {
		entry = batoni_plan_at(plan, at);
		if (!entry->ops || !entry->ops->message)
			return false;
		recorded = batoni_plan_entry_payload(entry);
		if (!recorded->a.buffer || (recorded->a.peer | recorded->a.tag) < 0 ||
		    (recorded->optioned && recorded->options.timeout_ns > 0))
			return false;
	}
	return plan->operations > 0 && plan->comm->plain;
}

static bool
streams_are_fine(const struct baton_plan *plan)
{
	struct baton_comm *comm = plan->comm;
	const struct batoni_plan_entry *entry, *checked = NULL;

	for (size_t at = 0; at < plan->bytes; at += entry->bytes) {
		entry = batoni_plan_at(plan, at);
		if (checked && entry->stream == checked->stream)
			continue;
		if (comm->device_ops->stream_check(comm->device, entry->stream,
		                                   false) != BATON_OK)
			return false;
		checked = entry;
	}
	return true;
}

/* Take the driver lock, and slots for all operations.  NULL: neither. */
static struct batoni_op *
begin_launch(const struct baton_plan *plan)
{
	struct baton_comm *comm = plan->comm;
	struct batoni_op *first;

	if (!batoni_direct_enter(comm))
		return NULL;
	first = batoni_pool_take_many(&comm->pool, plan->operations);
	if (!first)
		batoni_unlock();
	return first;
}

BATONI_ALWAYS_INLINE void
fill_member(struct batoni_op *launch, struct batoni_op *op, uint32_t index,
            const struct batoni_recorded *recorded, bool now)
{
	const struct batoni_arguments *a = &recorded->a;
	bool detached = recorded->optioned && recorded->options.flags;
	struct baton_comm *comm = launch->comm;

	batoni_op_name(op, a->buffer, recorded->bytes, a->peer, a->tag);
	op->transfer.native_code = 0;
	/* The call that was recorded has connected it. */
	batoni_direct_fill(op, comm, recorded->kind,
	                   batoni_message_path(comm, a->peer),
	                   recorded->kind == BATONI_KIND_SEND ? BATONI_SEND
	                                                      : BATONI_RECV,
	                   a->stream,
	                   BATONI_FLAG_PLANNED | (now ? BATONI_FLAG_REACHED : 0u) |
	                           (detached ? BATONI_FLAG_DETACHED : 0u),
	                   0, batoni_thread.site);
	op->launch_slot = batoni_pool_slot(&comm->pool, launch);
	op->plan_index = index;
}

BATONI_ALWAYS_INLINE void
issue_member(struct batoni_op *launch, struct batoni_op *op)
{
	struct baton_comm *comm = launch->comm;
	struct batoni_path *path = batoni_path_of(op);
	enum baton_status status;

	batoni_launch_armed(launch);
	status = batoni_path_issue(path, &op->transfer);
	if (unlikely(status != BATON_OK)) {
		batoni_direct_keep(op, status, 0);
		return;
	}
	batoni_op_close(op, BATON_OK);
	batoni_launch_member_ended(op, BATON_OK, false);
	batoni_pool_return_driving(&comm->pool, op);
}

/* The launch may end with the last of them, and is not looked at after. */
static void
issue_members(struct batoni_op *launch, const struct baton_plan *plan, struct batoni_op *op)
{
	struct baton_comm *comm = plan->comm;
	const struct batoni_plan_entry *entry;
	struct batoni_op *next;
	uint32_t index = 0;

	for (size_t at = 0; at < plan->bytes; at += entry->bytes, op = next) {
		const struct batoni_recorded *recorded;
		bool now;

		entry = batoni_plan_at(plan, at);
		recorded = batoni_plan_entry_payload(entry);
		next = op->next;
		batoni_op_list_out(op, BATONI_IN_LAUNCH);
		now = batoni_direct_may_issue(comm) &&
		      comm->device_ops->stream_idle(comm->device,
		                                    entry->stream) == BATON_OK;
		fill_member(launch, op, index++, recorded, now);
		if (likely(now)) {
			issue_member(launch, op);
		} else {
			batoni_direct_make(op, BATON_PENDING, 0);
			batoni_op_place(op);
		}
	}
}

bool
batoni_launch_directly(struct batoni_op *launch, const struct baton_plan *plan)
{
	struct batoni_op *first;

	/* With a device's library in the process, buffers are looked at. */
	if (!plan->direct || batoni_location_counts(plan->comm) ||
	    !streams_are_fine(plan))
		return false;
	first = begin_launch(plan);
	if (!first)
		return false;
	batoni_launch_expects(launch, plan->operations);
	batoni_op_place(launch);
	issue_members(launch, plan, first);
	batoni_end_enqueue();
	return true;
}
