/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a request is, in numbers.
 *
 * The caller has a handle, and holds the operation while it reads (a join, as baton_request_error
 * does), so the slot stays with the operation throughout.  It reads beside the driver, as a dump
 * without the lock does: each field by one load (batoni_op_view).  What was filled in at the call
 * does not change; state, deadline, counts and the time of the place may be a moment old.  The word
 * decides whether it has ended: an operation whose state says so before its word does counts as issued.
 *
 * Threads: any.  Locks: none.
 */
#include "request.h"

#include "describe.h"
#include "log.h"
#include "sized.h"

static const struct batoni_sized sized_info = {
	.name = "info_p",
	.size_name = "info_p->size",
	.advice = "set it to sizeof(struct baton_request_info) before the call",
	.smallest = BATONI_SIZED_UNTIL(struct baton_request_info, age_ns),
	.bytes = sizeof(struct baton_request_info),
};

static bool
is_list(const struct batoni_view *view)
{
	const struct batoni_transfer transfer = {.slot_direction = view->slot_direction};

	return (BATONI_MESSAGES >> view->kind & 1u) &&
	       transfer.location == BATONI_LOCATION_LIST;
}

static enum baton_request_state
state_of(const struct batoni_view *view)
{
	if (view->word & BATONI_OP_DONE)
		return view->word & BATONI_OP_LENT ? BATON_STATE_LENT
		                                   : BATON_STATE_ENDED;
	switch ((enum batoni_op_state)view->state) {
	case BATONI_NEW:
		return BATON_STATE_CALLED;
	case BATONI_QUEUED:
		return BATON_STATE_QUEUED;
	case BATONI_ARMED:
		return BATON_STATE_ARMED;
	case BATONI_ISSUED:
	case BATONI_ENDED:
		break;
	}
	return BATON_STATE_ISSUED;
}

static unsigned
flags_of(const struct batoni_view *view)
{
	bool cancel = (view->word & (BATONI_OP_CANCEL | BATONI_OP_DONE)) ==
	              BATONI_OP_CANCEL;

	return (view->flags & BATONI_FLAG_DETACHED ? BATON_INFO_DETACHED : 0) |
	       (view->group_of ? BATON_INFO_GROUP : 0) |
	       (cancel ? BATON_INFO_CANCELED : 0) |
	       (is_list(view) ? BATON_INFO_TENSORS : 0);
}

/* The length that the call gave.  A receive of a list has none. */
static void
fill_transfer(const struct batoni_op *op, const struct batoni_view *view,
              struct baton_request_info *info)
{
	struct batoni_onesided *layer = op->comm->onesided;
	bool onesided = batoni_is_onesided_kind(view->kind);
	bool list = is_list(view);

	if (!onesided)
		info->tag = view->tag;
	info->bytes = list && view->kind == BATON_OPERATION_RECV ? 0 : view->bytes;
	info->buffer = list ? NULL : view->buffer;
	if (onesided)
		layer->ops->counter(layer, &op->transfer, &info->signal_index,
		                    &info->context);
}

/* The caller holds the operation. */
static void
fill_request_info(const struct batoni_op *op, uint64_t word, struct baton_request_info *info)
{
	struct batoni_view view;

	batoni_op_view(op, &view);
	*info = (struct baton_request_info){
		.request = batoni_op_handle(op, word),
		.op = (int)view.kind,
		.state = state_of(&view),
		.peer = batoni_get(op->transfer.peer),
		.tag = -1,
		.stream = view.stream,
		.age_ns = view.word & BATONI_OP_DONE
	                          ? 0
	                          : UINT64_C(1000000) *
	                                    batoni_view_age_ms(&view),
		.deadline_ns = batoni_op_deadline_ns(op),
		.user_data = batoni_get(op->user_data),
		.signal_index = -1,
		.context = -1,
		.operations = view.members,
		.operations_ended = view.ended,
		.status = view.word & BATONI_OP_DONE ? batoni_get(op->status)
	                                             : BATON_PENDING,
		.flags = flags_of(&view),
	};
	if (batoni_is_transfer(op))
		fill_transfer(op, &view, info);
	else
		info->tag = batoni_get(op->transfer.tag); /* of a launch */
}

enum baton_status
baton_request_info(baton_request request, struct baton_request_info *info_p)
{
	static const char *const call = "baton_request_info";
	enum baton_status status = BATON_ERR_STALE;
	struct baton_request_info info;
	struct batoni_op *op;
	uint64_t word;

	BATONI_ENTER(call);
	if (!info_p)
		return batoni_refuse(BATON_ERR_INVALID, "%s: info_p is NULL",
		                     call);
	op = batoni_request_find(request, &word);
	if (op)
		status = batoni_op_hold(op, &word, BATONI_OP_HANDLE);
	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "%s: 65535 streams wait for this request; let "
		                     "some go on",
		                     call);
	if (status != BATON_OK)
		return batoni_refuse_handle(call, request);
	fill_request_info(op, word, &info);
	batoni_op_unjoin(op);
	return batoni_sized_give(&sized_info, call, &info, info_p);
}
