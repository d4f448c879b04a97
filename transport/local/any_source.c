/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives from any rank or of any tag over the local transport (struct batoni_unmatched_ops).
 *
 * The engine matches them (line.c).  For a tag, `find` asks the queue of each rank in turn whether a send is at
 * its front.  For any tag it goes through the list of the sends to this rank that wait.  While a rank expects
 * messages, a send that meets nothing asks that rank's engine for a receive (`receive_for`), and meets that.
 *
 * A message that a probe has found is a send that has left its queue (HELD): its rank cannot take it back.
 *
 * Threads: the driver alone.
 */
#include "local.h"

struct local_node *
batoni_local_receive_for(struct local *local, const struct batoni_transfer *send)
{
	struct local *there = local->shared->ranks[send->peer];
	struct batoni_transfer *transfer;
	struct local_node *node;

	if (!there || send->tag > local->base.tag_max)
		return NULL;
	/* An earlier send of this rank may wait: a receive of any tag may be for that one. */
	transfer = local->waiting_to[send->peer] == 0
	                   ? there->base.upcalls->receive_for(
				     there->base.upcalls, local->base.rank,
				     send->tag)
	                   : NULL;
	if (!transfer) {
		there->base.upcalls->moves(there->base.upcalls);
		return NULL;
	}
	node = &there->nodes[transfer->slot];
	node->transfer = transfer;
	node->local = there;
	there->base.messages.load.in_flight++;
	return node;
}

static void
local_expect(struct batoni_path *path, int change)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	struct local_shared *shared = local->shared;

	local->expects += (uint32_t)change;
	local->base.messages.load.in_flight += (uint32_t)change;
	shared->expecting += (uint32_t)change;
	shared->ranks[local->base.rank] = local->expects ? local : NULL;
}

void
batoni_local_unexpect(struct local *local)
{
	if (local->expects > 0)
		local_expect(&local->base.messages, -(int)local->expects);
}

static bool
may_meet(struct local *local, int from, int tag)
{
	return local->base.upcalls->may_meet(local->base.upcalls, from, tag);
}

static bool
local_has(struct local *local, int from, int tag)
{
	const struct batoni_transfer receive = {
		.peer = from, .tag = tag, .direction = BATONI_RECV};
	const struct local_node *front = batoni_local_front(local->shared,
	                                                    batoni_local_key(local, &receive));

	return front && front->transfer->direction == BATONI_SEND &&
	       may_meet(local, from, tag);
}

/* Of a peer, or of any. */
static int
find_of_tag(struct local *local, int peer, int tag)
{
	if (peer >= 0)
		return local_has(local, peer, tag) ? peer : -1;
	for (int i = 0, rank = local->turn; i < local->base.size; i++) {
		int next = rank + 1 < local->base.size ? rank + 1 : 0;

		if (local_has(local, rank, tag)) {
			local->turn = next;
			return rank;
		}
		rank = next;
	}
	return -1;
}

/* What has waited for longest is first, so no rank starves. */
static int
find_of_any_tag(struct local *local, int peer, int *tag_p)
{
	struct batoni_list_node *sends = &local->shared->sends[local->base.rank];

	for (struct batoni_list_node *at = sends->next; at != sends; at = at->next) {
		const struct local_node *node =
			batoni_container_of(at, struct local_waiting, link)->node;
		int from = node->local->base.rank, tag = node->transfer->tag;

		if ((peer >= 0 && from != peer) || tag > local->base.tag_max ||
		    !may_meet(local, from, tag))
			continue;
		*tag_p = tag;
		return from;
	}
	return -1;
}

/* The one driver issues the receive next: no send is taken back in between. */
static int
local_find(struct batoni_path *path, int peer, int *tag_p)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));

	if (batoni_list_empty(&local->shared->sends[local->base.rank]))
		return -1;
	return *tag_p >= 0 ? find_of_tag(local, peer, *tag_p)
	                   : find_of_any_tag(local, peer, tag_p);
}

/* ---- what probes have found ---- */

/* The send leaves its queue, and its node and that of the slot name each other. */
static enum baton_status
local_hold(struct batoni_path *path, struct batoni_transfer *receive,
           struct batoni_held *held_p)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	struct local_node *node = &local->nodes[receive->slot];
	struct local_node *send = batoni_local_front(
		local->shared, batoni_local_key(local, receive));
	const struct batoni_tensor_list *list =
		batoni_transfer_list(send->transfer);

	assert(node->state == FREE && send->transfer->direction == BATONI_SEND);
	*held_p = (struct batoni_held){
		.bytes = send->transfer->bytes,
		.list = list != NULL,
		.tensors = list ? list->count : 0,
	};
	batoni_local_dequeue(send);
	node->local = local;
	node->transfer = NULL;
	node->state = send->state = HELD;
	node->partner = send;
	send->partner = node;
	return BATON_OK;
}

static enum baton_status
local_meet(struct batoni_path *path, struct batoni_transfer *receive,
           struct batoni_transfer *held)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	struct local_node *node = &local->nodes[held->slot];
	struct local_node *send = node->partner;

	assert(node->state == HELD);
	node->state = FREE;
	batoni_transfer_moved(receive, 0);
	if (!send)
		return BATON_ERR_PEER;
	send->state = FREE;
	return batoni_local_meet(local, receive, send);
}

const struct batoni_unmatched_ops batoni_local_unmatched = {
	.expect = local_expect,
	.find = local_find,
	.hold = local_hold,
	.meet = local_meet,
};
