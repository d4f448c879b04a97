/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Near's sends.
 *
 *   short: copied into the ring at the call, and over
 *   announced: ANNOUNCED -> over (DONE), or CHUNKING (GRANT) -> over
 *   without room: STARVED, in order with all that wait for room in the ring, until the peer calls
 *
 * What waits for room also are GRANTs and CHUNKs of messages that are under way (fetch.c).
 */
#include "near.h"

#include <assert.h>

/* A copy under way looks at other peers meanwhile. */
#define CHUNKS_AT_ONCE ((size_t)128 << 10)

static _Atomic uint64_t *
state_of(const struct batoni_pairs *near, const struct near_node *node)
{
	return batoni_ring_state(&near->layout, near->area,
	                         (uint32_t)(node - near->nodes));
}

static uint64_t
word_of(const struct near_node *node, enum near_word word)
{
	return batoni_near_word(node->generation, word);
}

static bool
exchange_state(const struct batoni_pairs *near, const struct near_node *node,
               enum near_word was, enum near_word is)
{
	return batoni_near_exchange(state_of(near, node), node->generation, was, is);
}

static uint8_t
type_of(const struct batoni_pairs *near, const struct batoni_transfer *transfer)
{
	return near->check && transfer->tag <= near->base.tag_max
	               ? (uint8_t)(transfer->type + 1)
	               : 0;
}

/* Is there credit for the message, and room as far as is known? */
static bool
may_go_whole(struct batoni_pairs *near, int peer, uint32_t cells)
{
	struct batoni_ring_out *out = &near->peers[peer].out;

	if (batoni_ring_has_credit(out, cells))
		return true;
	if (!batoni_ring_refresh(out)) {
		batoni_near_break(near, peer, "a count of cells");
		return false;
	}
	return batoni_ring_has_credit(out, cells);
}

/* Begin a send: the slot is free, but not yet counted as under way. */
static void
announce(struct batoni_pairs *near, struct near_node *node,
         const struct batoni_transfer *transfer)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	struct batoni_ring_out *out = &near->peers[transfer->peer].out;
	struct batoni_ring_head head = {
		.kind = BATONI_RING_ANNOUNCE,
		.cells = 1,
		.tag = (uint32_t)transfer->tag,
		.length = transfer->bytes,
	};
	struct near_announcement what = {
		.slot = transfer->slot,
		.generation = ++node->generation,
		.address = (uintptr_t)transfer->buffer,
	};

	if (list) {
		head.kind = BATONI_RING_LIST_ANNOUNCE;
		head.cells = 2;
		batoni_near_announce_list(near, transfer->peer, list, &what);
	} else {
		head.type = type_of(near, transfer);
		batoni_near_name_block(near, transfer->peer, transfer->buffer,
		                       transfer->bytes, &what.block);
	}
	if (what.block.serial)
		head.cells = BATONI_RING_BLOCK_CELLS;
	atomic_store(state_of(near, node), word_of(node, NEAR_WAITING));
	batoni_ring_send(out, &head, &what, batoni_near_announced_bytes(&head));
}

/* Publish the message with its bytes: there are credit and room. */
static void
send_whole(struct batoni_pairs *near, const struct batoni_transfer *transfer,
           const struct batoni_ring_head *head)
{
	struct batoni_ring_out *out = &near->peers[transfer->peer].out;

	if (head->kind == BATONI_RING_LIST) {
		batoni_near_put_list(out, batoni_transfer_list(transfer));
		batoni_ring_publish(out, head);
	} else {
		batoni_ring_send(out, head, transfer->buffer, transfer->bytes);
	}
	out->copied += head->cells;
}

/* OK: it has ended; PENDING: it is announced; AGAIN: there is no room. */
static enum baton_status
try_send(struct batoni_pairs *near, struct near_node *node,
         struct batoni_transfer *transfer)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	size_t bytes = list ? batoni_near_list_bytes(list) : transfer->bytes;
	struct batoni_ring_head head = {
		.kind = list ? BATONI_RING_LIST : BATONI_RING_SHORT,
		.tag = (uint32_t)transfer->tag,
		.length = bytes,
	};
	uint32_t cells;

	if (bytes > NEAR_SHORT_MAX)
		goto announced;
	cells = batoni_ring_cells(bytes);
	if (!may_go_whole(near, transfer->peer, cells))
		goto announced;
	if (!batoni_near_room(near, transfer->peer, cells))
		return BATON_ERR_AGAIN;
	head.cells = (uint16_t)cells;
	if (!list)
		head.type = type_of(near, transfer);
	send_whole(near, transfer, &head);
	batoni_transfer_moved(transfer, transfer->bytes);
	return BATON_OK;

announced:
	if (!batoni_near_room(near, transfer->peer, BATONI_RING_BLOCK_CELLS))
		return BATON_ERR_AGAIN;
	announce(near, node, transfer);
	return BATON_PENDING;
}

enum baton_status
batoni_near_send(struct batoni_pairs *near, struct batoni_transfer *transfer)
{
	struct near_node *node = &near->nodes[transfer->slot];
	struct near_peer *peer = &near->peers[transfer->peer];
	enum baton_status status = BATON_ERR_AGAIN;

	if (batoni_list_empty(&peer->starved))
		status = try_send(near, node, transfer);
	if (status == BATON_OK)
		return status;
	batoni_near_begin(near, node, transfer,
	                  status == BATON_PENDING ? NEAR_ANNOUNCED : NEAR_STARVED);
	if (status == BATON_ERR_AGAIN)
		batoni_list_append(&peer->starved, &node->link);
	return BATON_PENDING;
}

/* What is taken back leaves its place to the next message; at the end of the rank a message of the
 * program's does not. */
static enum near_word
word_of_end(const struct batoni_pairs *near, const struct near_node *node)
{
	return (near->broken || near->base.messages.ending) &&
	                       node->transfer->tag <= near->base.tag_max
	               ? NEAR_REVOKED
	               : NEAR_TAKEN;
}

enum baton_status
batoni_near_unsend(struct batoni_pairs *near, struct near_node *node)
{
	struct batoni_transfer *transfer = node->transfer;

	if (exchange_state(near, node, NEAR_WAITING, word_of_end(near, node)) ||
	    ((near->broken || near->base.messages.ending ||
	      batoni_near_is_gone(near, transfer->peer)) &&
	     exchange_state(near, node, NEAR_MATCHED, NEAR_REVOKED))) {
		batoni_near_finish(near, node);
		return BATON_ERR_CANCELED;
	}
	if (atomic_load(state_of(near, node)) != word_of(node, NEAR_COPIED))
		return BATON_ERR_BUSY;
	batoni_transfer_moved(transfer, transfer->bytes);
	batoni_near_finish(near, node);
	return BATON_OK;
}

void
batoni_near_give_up(struct batoni_pairs *near)
{
	for (uint32_t slot = 0; slot < near->base.slots; slot++) {
		const struct near_node *node = &near->nodes[slot];

		if ((node->state == NEAR_ANNOUNCED ||
		     node->state == NEAR_CHUNKING) &&
		    !exchange_state(near, node, NEAR_WAITING, NEAR_TAKEN))
			exchange_state(near, node, NEAR_MATCHED, NEAR_REVOKED);
	}
}

/* ---- what has been copied ---- */

static bool
end_if_copied(struct batoni_pairs *near, struct near_node *node)
{
	if (atomic_load(state_of(near, node)) != word_of(node, NEAR_COPIED))
		return false;
	batoni_transfer_moved(node->transfer, node->transfer->bytes);
	batoni_near_end(near, node, BATON_OK);
	return true;
}

bool
batoni_near_done(struct batoni_pairs *near, int peer, uint32_t slot,
                 uint32_t generation)
{
	struct near_node *node;

	if (slot >= near->base.slots)
		return false;
	node = &near->nodes[slot];
	/* Otherwise the send has ended meanwhile (unsend), or another one has its slot. */
	if (node->state == NEAR_ANNOUNCED && node->generation == generation &&
	    node->transfer->peer == peer)
		return end_if_copied(near, node);
	return true;
}

size_t
batoni_near_scan(struct batoni_pairs *near, int peer)
{
	size_t events = 0;

	for (uint32_t slot = 0; slot < near->base.slots; slot++) {
		struct near_node *node = &near->nodes[slot];

		if (node->state == NEAR_ANNOUNCED &&
		    node->transfer->peer == peer)
			events += end_if_copied(near, node);
	}
	return events;
}

/* ---- what waits for room ---- */

/* Send what waits.  False: there is no room for it. */
static bool
feed_one(struct batoni_pairs *near, struct near_node *node)
{
	struct batoni_transfer *transfer = node->transfer;
	size_t budget = CHUNKS_AT_ONCE;
	enum baton_status status;

	if (node->state == NEAR_GRANTING)
		return batoni_near_grant(near, node);
	if (node->state == NEAR_CHUNKING)
		return batoni_near_send_chunks(near, node, &budget);
	assert(node->state == NEAR_STARVED);
	status = try_send(near, node, transfer);
	if (status == BATON_ERR_AGAIN)
		return false;
	if (status == BATON_OK) {
		batoni_near_end(near, node, status);
		return true;
	}
	node->state = NEAR_ANNOUNCED;
	batoni_list_remove(&node->link);
	return true;
}

size_t
batoni_near_feed(struct batoni_pairs *near, int peer)
{
	struct batoni_list_node *starved = &near->peers[peer].starved;
	size_t events = batoni_near_say_all_gone(near, peer);

	while (!batoni_list_empty(starved) && !near->broken &&
	       feed_one(near, batoni_near_node(starved->next)))
		events++;
	return events;
}
