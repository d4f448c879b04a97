/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of plans on the driver: placed, armed with the first of their operations, ended with
 * the last; and in words.  plan_launch.c has the call, and the note on the whole.
 */
#include "plan.h"

#include <stdio.h>

#include "describe.h"
#include "life.h"
#include "log.h"
#include "sweep.h"
#include "tensor_ends.h"
#include "tensor_store.h"

void
batoni_launch_note_failure(struct batoni_op *launch, uint32_t index,
                           enum baton_status status, unsigned kind,
                           const struct batoni_transfer *transfer)
{
	if (index >= launch->launched.failed)
		return;
	launch->launched.failed = index;
	launch->failed_kind = (uint8_t)kind;
	launch->transfer.stream = transfer->stream;
	launch->transfer.native_call = transfer->native_call;
	launch->transfer.native_code = transfer->native_code;
	/* What was moved, and what there was memory for. */
	launch->transfer.bytes = transfer->bytes;
	batoni_set(launch->launched.came, transfer->done_bytes);
	/* It has no list, unless keep_list says so. */
	launch->transfer.location = 0;
	launch->flags &= (uint16_t)~BATONI_FLAG_MET_LIST;
	batoni_set(launch->transfer.peer, transfer->peer);
	/* What the completion of such an operation tells. */
	batoni_set(launch->transfer.tag,
	           batoni_is_onesided_kind(kind) ? -1 : transfer->tag);
	/* Threads read it only when the launch has ended. */
	batoni_set(launch->status, (int8_t)status);
}

/* It is the operation that failed, a plain one: does a list explain it?  In checked mode, and of a
 * path that compares messages by itself, there are words for all else. */
static bool
has_met_list(const struct batoni_op *op, enum baton_status status)
{
	struct batoni_path *path = batoni_path_of(op);
	char words[160];

	return status == BATON_ERR_MISMATCH && path->ops->lists &&
	       batoni_op_refused_type(op) < 0 &&
	       !(path->ops->checking &&
	         path->ops->checking->explain(path, &op->transfer, words,
	                                      sizeof(words)));
}

/* It is the operation that failed: the sentence about its list stays. */
static void
keep_list(struct batoni_op *launch, const struct batoni_op *op,
          enum baton_status status, bool lent)
{
	struct batoni_tensor_list *list = batoni_op_list(op);

	if (!list && has_met_list(op, status))
		launch->flags |= BATONI_FLAG_MET_LIST;
	if (!list || lent || !batoni_tensors_keep(status))
		return;
	launch->transfer.location = BATONI_LOCATION_LIST;
	launch->transfer.buffer = list;
	batoni_tensor_list_keep(launch, list);
}

static void
place(struct batoni_op *launch)
{
	batoni_op_move(launch, BATONI_QUEUED);
	if (launch->tally.members == 0)
		batoni_op_end_later(launch);
}

void
batoni_launch_armed(struct batoni_op *launch)
{
	if (launch->state != BATONI_QUEUED)
		return;
	batoni_op_move(launch, BATONI_ARMED);
	batoni_op_start_clock(launch);
}

void
batoni_launch_settle(struct batoni_op *launch)
{
	if (batoni_op_is_settled(launch))
		batoni_op_end_launch(launch,
		                     launch->status == BATON_PENDING
		                             ? BATON_OK
		                             : launch->status,
		                     launch->launched.lent > 0);
}

void
batoni_launch_member_ended(const struct batoni_op *op,
                           enum baton_status status, bool lent)
{
	struct batoni_op *launch = batoni_launch_of(op);

	launch->launched.lent += lent;
	if (status == BATON_OK)
		batoni_transfer_moved(&launch->transfer,
		                      launch->transfer.done_bytes +
		                              op->transfer.done_bytes);
	else
		batoni_launch_note_failure(launch, op->plan_index, status,
		                           op->kind, &op->transfer);
	if (unlikely(launch->launched.failed == op->plan_index))
		keep_list(launch, op, status, lent);
	launch->tally.ended++;
	batoni_launch_settle(launch);
}

static void
given_back(struct batoni_op *launch)
{
	if (--launch->launched.lent == 0 && launch->state == BATONI_ENDED)
		batoni_op_give_back(launch);
}

/* It cannot end before the scan is over, and so keeps its slot.  One of no operations is about to end,
 * as it was placed (engine.finish). */
static void
end_early(struct batoni_op *launch, enum baton_status status)
{
	struct baton_comm *comm = launch->comm;
	uint32_t slot = batoni_pool_slot(&comm->pool, launch);

	if (launch->tally.members == 0)
		return;
	batoni_op_stop_clock(launch);
	if (status == BATON_ERR_TIMEOUT)
		launch->flags |= BATONI_FLAG_EXPIRED;
	launch->tally.members++;
	for (uint32_t i = 0; i < comm->pool.size; i++) {
		struct batoni_op *op = &comm->pool.ops[i];

		if (batoni_is_pending(op) &&
		    (op->flags & BATONI_FLAG_PLANNED) &&
		    op->launch_slot == slot)
			batoni_comm_end_one(op, status);
	}
	launch->tally.members--;
	batoni_launch_settle(launch);
}

/* ---- words ---- */

/* Which operation of the plan failed. */
static void
failed(const struct batoni_op *launch, struct batoni_failed *failed_p)
{
	const struct batoni_transfer *transfer = &launch->transfer;
	bool message = BATONI_MESSAGES >> launch->failed_kind & 1u;
	char where[48] = "";

	failed_p->kind = launch->failed_kind;
	failed_p->came = launch->launched.came;
	if (launch->launched.failed == BATONI_NONE_FAILED)
		return;
	if (launch->failed_kind == 0)
		snprintf(where, sizeof(where), ", which was refused");
	else if (message)
		snprintf(where, sizeof(where), ", peer %d, tag %d",
		         transfer->peer, transfer->tag);
	else
		snprintf(where, sizeof(where), ", peer %d", transfer->peer);
	snprintf(failed_p->which, sizeof(failed_p->which),
	         ", operation %u of the plan%s%s%s", launch->launched.failed,
	         launch->failed_kind ? ", " : "",
	         launch->failed_kind ? batoni_kinds[launch->failed_kind]->name
	                             : "",
	         where);
}

__attribute__((no_sanitize("thread"))) static void
view_launch(const struct batoni_op *op, struct batoni_view *view)
{
	batoni_view_transfer(op, view);
	batoni_view_tally(op, view);
}

static void
what(const struct batoni_view *view, const char *details, char *text, size_t size)
{
	(void)details;
	snprintf(text, size, "launch of a plan of %u operation%s",
	         view->members, batoni_s(view->members));
}

static bool
waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state == BATONI_NEW || view->state == BATONI_ENDED)
		return false;
	snprintf(text, size, "%u of its %u operation%s",
	         view->members - view->ended, view->members,
	         batoni_s(view->members));
	return true;
}

static const struct batoni_launch_kind launch = {
	.armed = batoni_launch_armed,
	.ends = batoni_launch_member_ended,
	.given_back = given_back,
};

const struct batoni_kind batoni_kind_plan = {
	.name = "plan",
	.trace = "Plan",
	.off_stream = true,
	.place = place,
	.finish = batoni_launch_settle,
	.end_early = end_early,
	.view = view_launch,
	.what = what,
	.waits = waits,
	.failed = failed,
	.explain = batoni_tensors_explain,
	.launch = &launch,
};
