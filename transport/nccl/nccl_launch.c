/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked mode: NCCL is called for what has met, and the ends of its kernels are seen.  The note
 * at the top of nccl_checked.c has the order of launches.
 */
#include "clock.h"
#include "nccl_checked.h"

/* Kernels on the stream of a lane: streams are bounded, and the driver must not block. */
#define RUNNING_MAX 64u
/* Launches of a test. */
#define LAUNCHES_MAX 16

/* ---- whose turn it is ---- */

/* Does this rank launch it first? */
bool
batoni_nccl_leads(const struct batoni_nccl_checked *checked,
                  const struct batoni_nccl_op *op)
{
	const struct batoni_nccl *nccl = checked->nccl;
	bool all_lanes = nccl->config.check &&
	                 nccl->lanes_n - 1 == 2 * nccl->bits;

	return all_lanes ? !batoni_nccl_sends(op)
	                 : nccl->base.rank < op->transfer->peer;
}

static unsigned
lane_of(const struct batoni_nccl_checked *checked,
        const struct batoni_nccl_op *op)
{
	const struct batoni_nccl *nccl = checked->nccl;
	int rank = nccl->base.rank, peer = op->transfer->peer;

	if (!nccl->config.check)
		return 0;
	return batoni_nccl_sends(op) ? batoni_nccl_lane_of(nccl, rank, peer)
	                             : batoni_nccl_lane_of(nccl, peer, rank);
}

void
batoni_nccl_make_ready(struct batoni_nccl_checked *checked,
                       struct batoni_nccl_op *op)
{
	unsigned lane = lane_of(checked, op);

	op->state = BATONI_NCCL_READY;
	op->leads = batoni_nccl_leads(checked, op);
	batoni_list_remove(&op->link);
	batoni_list_append(&checked->lanes[lane].ready, &op->link);
}

/* What is READY first in the lane may be launched. */
static bool
is_in_turn(const struct batoni_nccl_check_lane *lane,
           const struct batoni_nccl_op *op)
{
	return lane->unacknowledged == 0 ||
	       (op->leads && lane->led == op->transfer->peer &&
	        lane->unacknowledged < BATONI_NCCL_LED);
}

static bool
may_launch(const struct batoni_nccl_check_lane *lane)
{
	return !batoni_list_empty(&lane->ready) &&
	       lane->running_n < RUNNING_MAX &&
	       is_in_turn(lane, batoni_nccl_to_op(lane->ready.next));
}

bool
batoni_nccl_any_may_launch(const struct batoni_nccl_checked *checked)
{
	bool any = checked->launching != NULL;

	if (checked->failed || atomic_load(&checked->nccl->aborting))
		return false;
	for (unsigned i = 0; i < checked->lanes_n && !any; i++)
		any = may_launch(&checked->lanes[i]);
	return any;
}

/* ---- launching, under the lock of the device ---- */

static void
fail_in_nccl(struct batoni_nccl_checked *checked, unsigned lane,
             const char *call, ncclResult_t result)
{
	char text[256];

	batoni_nccl_describe(checked->nccl->api, checked->nccls[lane].comm,
	                     result, text, sizeof(text));
	batoni_nccl_fail(checked, BATON_ERR_NCCL, call, (int)result, text);
}

/* All of it that will ever be on its stream is there: mark its end. */
static void
mark_running(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
             unsigned number)
{
	struct batoni_nccl_check_lane *lane = &checked->lanes[number];
	struct batoni_device *device = checked->nccl->device;
	enum baton_status status = device->ops->marks->mark(
		device, checked->nccls[number].stream, &op->mark);

	op->state = BATONI_NCCL_RUNNING;
	if (status != BATON_OK) {
		batoni_nccl_fail(checked, status, "a mark on a stream", 0,
		                 baton_last_error());
		return;
	}
	batoni_list_append(&lane->running, &op->link);
	lane->running_n++;
	checked->running++;
}

/* It is on its stream: its end is marked, and the peer is told. */
static void
placed(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
       unsigned number)
{
	struct batoni_nccl_check_lane *lane = &checked->lanes[number];
	int peer = op->transfer->peer;
	struct batoni_nccl_control control = {
		.kind = BATONI_NCCL_SAYS_LAUNCHED, .slot = number, .count = 1};

	mark_running(checked, op, number);
	if (op->partner)
		return;
	if (op->leads) {
		lane->led = peer;
		lane->unacknowledged++;
		control = batoni_nccl_describe_op(op, BATONI_NCCL_SAYS_GO,
		                                  op->other);
	}
	batoni_nccl_say(checked, peer, &control);
}

/* The calls of a message that is no list. */
static void
call_plain(const struct batoni_nccl *nccl, const struct batoni_nccl_op *op,
           const struct batoni_nccl_lane *lane)
{
	const struct batoni_transfer *own = op->transfer;

	if (op->partner)
		batoni_nccl_call(nccl, lane, op->partner->transfer,
		                 op->partner->transfer->buffer,
		                 op->partner->transfer->bytes, lane->stream);
	batoni_nccl_call(nccl, lane, own, own->buffer, own->bytes,
	                 lane->stream);
}

/* The calls for the next tensors of a list.  The two ends have the same ones. */
static void
call_tensors(const struct batoni_nccl *nccl, struct batoni_nccl_op *op,
             const struct batoni_tensor_list *list,
             const struct batoni_nccl_lane *lane)
{
	const struct batoni_tensor_list *partner =
		op->partner ? batoni_transfer_list(op->partner->transfer) : NULL;
	struct batoni_segment tensor =
		batoni_cursor_peek(list, &op->next, SIZE_MAX);

	for (unsigned n = 0; tensor.bytes > 0 && n < BATONI_NCCL_GROUP; n++) {
		if (partner)
			batoni_nccl_call(
				nccl, lane, op->partner->transfer,
				partner->segments[op->next.segment].data,
				tensor.bytes, lane->stream);
		batoni_nccl_call(nccl, lane, op->transfer, tensor.data,
		                 tensor.bytes, lane->stream);
		op->next.at += tensor.bytes;
		/* Behind tensors without bytes too: no group is empty. */
		tensor = batoni_cursor_peek(list, &op->next, SIZE_MAX);
	}
}

static ncclResult_t
call_group(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
           unsigned number, const char **call_p)
{
	const struct batoni_nccl *nccl = checked->nccl;
	const struct batoni_nccl_lane *lane = &checked->nccls[number];
	const struct batoni_tensor_list *list =
		batoni_transfer_list(op->transfer);
	ncclResult_t result;

	*call_p = "ncclGroupStart";
	result = nccl->api->group_start();
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (list)
		call_tensors(nccl, op, list, lane);
	else
		call_plain(nccl, op, lane);
	*call_p = "ncclGroupEnd";
	return nccl->api->group_end();
}

/* It has another group. */
static bool
has_more(const struct batoni_nccl_op *op)
{
	const struct batoni_tensor_list *list =
		batoni_transfer_list(op->transfer);

	return list && op->next.segment < list->count;
}

/* Its groups, until NCCL is busy with one. */
static void
launch_groups(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
              unsigned lane)
{
	const char *failed;
	ncclResult_t result;

	do
		result = call_group(checked, op, lane, &failed);
	while (result == BATONI_NCCL_SUCCESS && has_more(op));
	if (result == BATONI_NCCL_SUCCESS) {
		placed(checked, op, lane);
		return;
	}
	checked->launching = op;
	checked->launching_on = lane;
	checked->launching_limit_ns =
		batoni_real_ns() + checked->nccl->patience_ns;
	if (result != BATONI_NCCL_IN_PROGRESS)
		fail_in_nccl(checked, lane, failed, result);
}

static void
launch(struct batoni_nccl_checked *checked, unsigned lane)
{
	struct batoni_nccl_op *op =
		batoni_nccl_to_op(checked->lanes[lane].ready.next);

	batoni_list_remove(&op->link);
	op->state = BATONI_NCCL_LAUNCHING;
	op->next = (struct batoni_tensor_list_cursor){0, 0};
	launch_groups(checked, op, lane);
}

/* Has NCCL put the launch on its stream? */
static size_t
ask_launch(struct batoni_nccl_checked *checked)
{
	struct batoni_nccl_op *op = checked->launching;
	const struct batoni_nccl *nccl = checked->nccl;
	unsigned lane = checked->launching_on;
	ncclResult_t state = BATONI_NCCL_SUCCESS, result;

	result = nccl->api->comm_error(checked->nccls[lane].comm, &state);
	if (result == BATONI_NCCL_SUCCESS)
		result = state;
	if (result == BATONI_NCCL_IN_PROGRESS &&
	    batoni_real_ns() <= checked->launching_limit_ns)
		return 0;
	if (result != BATONI_NCCL_SUCCESS) {
		fail_in_nccl(checked, lane, "ncclGroupEnd", result);
		return 1;
	}
	checked->launching = NULL;
	if (has_more(op))
		launch_groups(checked, op, lane);
	else
		placed(checked, op, lane);
	return 1;
}

static size_t
launch_locked(struct batoni_nccl_checked *checked)
{
	unsigned lanes_n = checked->lanes_n;
	unsigned looked = 0;
	size_t events = 0;

	if (checked->launching && !checked->failed)
		events += ask_launch(checked);
	while (!checked->launching && !checked->failed && looked < lanes_n &&
	       events < LAUNCHES_MAX) {
		unsigned lane = checked->turn;

		checked->turn = (lane + 1) % lanes_n;
		looked++;
		if (!may_launch(&checked->lanes[lane]))
			continue;
		launch(checked, lane);
		looked = 0;
		events++;
	}
	return events;
}

/* After an abort.  A launch that was with NCCL, or that NCCL refused, may be on its stream in part:
 * the buffer is free when what is there has ended. */
static size_t
stop_launch(struct batoni_nccl_checked *checked)
{
	struct batoni_nccl_op *op = checked->launching;

	if (!op || !batoni_nccl_is_stopped(checked->nccl))
		return 0;
	checked->launching = NULL;
	mark_running(checked, op, checked->launching_on);
	return 1;
}

size_t
batoni_nccl_launch_all(struct batoni_nccl_checked *checked)
{
	struct batoni_nccl *nccl = checked->nccl;
	struct batoni_memory_guard guard;
	size_t events = 0;

	if (atomic_load(&nccl->aborting))
		return stop_launch(checked);
	if (!batoni_nccl_any_may_launch(checked) ||
	    batoni_nccl_try_enter(nccl, &guard) != BATON_OK)
		return 0;
	/* If an abort has come meanwhile, it has the lanes. */
	if (!atomic_load(&nccl->aborting))
		events = launch_locked(checked);
	batoni_nccl_leave(nccl, &guard);
	return events;
}

/* ---- running ---- */

static void
run_over(struct batoni_nccl_checked *checked,
         struct batoni_nccl_check_lane *lane, struct batoni_nccl_op *op)
{
	struct batoni_nccl_op *partner = op->partner;

	lane->running_n--;
	checked->running--;
	if (partner) {
		batoni_transfer_moved(partner->transfer,
		                      batoni_nccl_payload(partner->transfer));
		batoni_nccl_op_end(checked, partner, BATON_OK);
	}
	batoni_transfer_moved(op->transfer, batoni_nccl_payload(op->transfer));
	batoni_nccl_op_end(checked, op, BATON_OK);
}

/* Those of a lane end in their order. */
static size_t
watch_lane(struct batoni_nccl_checked *checked,
           struct batoni_nccl_check_lane *lane)
{
	struct batoni_device *device = checked->nccl->device;
	enum baton_status status = BATON_OK;
	size_t events = 0;

	while (!batoni_list_empty(&lane->running) && status == BATON_OK) {
		struct batoni_nccl_op *op =
			batoni_nccl_to_op(lane->running.next);

		status = device->ops->marks->mark_done(device, &op->mark);
		if (status == BATON_OK) {
			run_over(checked, lane, op);
			events++;
		} else if (status != BATON_PENDING) {
			batoni_nccl_fail(checked, status, "a mark on a stream",
			                 0,
			                 "the device lost sight of a message");
		}
	}
	return events;
}

size_t
batoni_nccl_watch_all(struct batoni_nccl_checked *checked)
{
	size_t events = 0;

	for (unsigned i = 0; i < checked->lanes_n && checked->running > 0; i++)
		events += watch_lane(checked, &checked->lanes[i]);
	return events;
}
