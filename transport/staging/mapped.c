/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: long messages between memory of devices in two processes of one node, by one copy of the
 * receiver's device out of the sender's memory, which it has mapped.
 *
 * A send that asks, from memory of a device to a process of this node, has an *offer* behind its
 * header: the name of the block that the buffer lies in, and how it is fetched (shared.h).  A
 * receive into memory of its own device that has the block mapped copies, and grants MAPPED when
 * the copy has ended: that ends the send.  All else is as for any message: its place in the order,
 * types, truncation, and what can be taken back.  From its match to its end such a message is
 * lent on both sides.  Where the receiver has no mapping the message goes in pieces, and the
 * mapping is made meanwhile.  So a first message from a block goes in pieces, often a second one too.
 *
 * The blocks, and what makes and unmakes them, are in stage_blocks.h.
 *
 * Memory that its owner frees.  The descriptor of an offering is closed at baton_mem_free
 * (batoni_offerings_withdraw), or when the driver says at a later send that the block's address is other
 * memory's.  A later offer to each rank then has the block's number as `gone`, one number at a time, and
 * that rank unmaps it; of the oldest, beyond GONE_MAX, it does not hear.  Until then its mapping keeps the memory.  Only memory of which that is documented is
 * offered (`kept` in memory.h); memory of cuMemAlloc, which must not be freed while it is open
 * elsewhere, where the program promises that (maps_all).
 *
 * Ends.  A sender that is gone when the copy has ended may have been gone before: the receive ends in
 * PEER.  A send whose receiver is gone ends as every send that waits for a grant.  A copy that
 * fails breaks the receiver's communicator.
 *
 * Not mapped: lists; managed memory; memory of another GPU than the receiving communicator's; ranks of one
 * process, where a rank that aborts may free memory that its neighbour copies.
 *
 * Threads.  The driver.
 */
#include <stdio.h>
#include <string.h>

#include "stage_blocks.h"
#include "log.h"

/* How many offerings are checked when a new one is made. */
#define CHECKS_MAX 8u

/* ---- sending ---- */

/* Does the rank's process map memory of this one? */
static bool
is_neighbour(const struct batoni_staging *stage, int peer)
{
	const struct batoni_peer *peers = stage->base.peers;

	return peers && peer >= 0 && peer < stage->size && peers[peer].pid > 0 &&
	       !peers[peer].within;
}

static enum baton_status
identify(const struct batoni_staging *stage, const void *pointer, size_t bytes,
         struct batoni_memory_block *of, char *why, size_t size)
{
	char scratch[BATONI_SENTENCE_BYTES], *kept;
	enum baton_status status;

	/* This may be within a call of the program. */
	kept = batoni_sentence_aside(scratch);
	status = stage->memory->sharing->identify(stage->device, pointer, bytes,
	                                          of);
	if (status != BATON_OK)
		snprintf(why, size, "%s", baton_last_error());
	batoni_sentence_back(kept);
	return status;
}

static bool
is_stale(const struct batoni_staging *stage, const struct stage_block *block)
{
	struct batoni_memory_block now;
	char why[160];

	return identify(stage, block->of.base, block->of.bytes, &now, why,
	                sizeof(why)) != BATON_OK ||
	       now.number != block->of.number;
}

/* Drop offerings whose memory was freed by baton_mem_free. */
static void
see_withdrawals(const struct batoni_staging *stage)
{
	struct stage_table *table = &stage->maps->offerings;
	uint64_t now = batoni_withdrawals();
	struct batoni_list_node *at, *next;

	if (now == stage->maps->withdrawals)
		return;
	stage->maps->withdrawals = now;
	for (at = table->blocks.next; at != &table->blocks; at = next) {
		next = at->next;
		if (stage_block_of(at)->state == BLOCK_READY &&
		    atomic_load(&stage_block_of(at)->offering.withdrawn))
			batoni_block_drop(stage, stage_block_of(at));
	}
}

/* A new block is at these addresses.  Drop offerings that were there, and such of the longest unused
 * whose memory is no more. */
static void
drop_stale(const struct batoni_staging *stage,
           const struct batoni_memory_block *of)
{
	struct stage_table *table = &stage->maps->offerings;
	uintptr_t base = (uintptr_t)of->base;
	struct batoni_list_node *at, *next;
	unsigned checks = 0;

	for (at = table->blocks.next; at != &table->blocks; at = next) {
		struct stage_block *block = stage_block_of(at);
		uintptr_t start = (uintptr_t)block->of.base;

		next = at->next;
		if ((start < base + of->bytes && base < start + block->of.bytes) ||
		    (checks++ < CHECKS_MAX && is_stale(stage, block)))
			batoni_block_drop(stage, block);
	}
}

static void
want_offering(const struct batoni_staging *stage,
              const struct batoni_memory_block *of)
{
	struct stage_block *block;

	drop_stale(stage, of);
	block = batoni_block_add(stage, &stage->maps->offerings);
	if (!block)
		return;
	block->of = *of;
	batoni_block_queue(stage, block, BLOCK_QUEUED);
}

/* The number of an offering that is no more and that the peer was not told of; 0: none.  It has heard of
 * it when it answers. */
static uint64_t
next_gone(const struct batoni_staging *stage, struct stage_message *message)
{
	struct stage_peer *peer = &stage->peers[message->peer];
	const struct stage_maps *maps = stage->maps;

	if (maps->gone_n - peer->told_gone > GONE_MAX)
		peer->told_gone = maps->gone_n - GONE_MAX;
	if (peer->told_gone == maps->gone_n)
		return 0;
	message->tells = peer->told_gone + 1;
	return maps->gone[peer->told_gone % GONE_MAX];
}

void
batoni_stage_told(struct batoni_staging *stage,
                  const struct stage_message *message)
{
	struct stage_peer *peer = &stage->peers[message->peer];

	if (message->tells > peer->told_gone)
		peer->told_gone = message->tells;
}

/* Offer these bytes, if their block is ready. */
static void
offer_bytes(const struct batoni_staging *stage, const char *buffer, size_t bytes,
            struct stage_offer *offer)
{
	struct stage_maps *maps = stage->maps;
	struct batoni_memory_block of = {.number = 0};
	struct stage_block *block;
	char why[160] = "the driver has no number of it";

	if (identify(stage, buffer, bytes, &of, why, sizeof(why)) != BATON_OK ||
	    of.number == 0) {
		if (!maps->told)
			batoni_log(BATONI_LOG_INFO,
			           "rank %d: a message from device memory at %p goes "
			           "in pieces through pinned memory: %s",
			           stage->base.rank, (const void *)buffer, why);
		maps->told = true;
		return;
	}
	block = batoni_block_find(&maps->offerings, -1, of.number);
	if (!block) {
		want_offering(stage, &of);
		return;
	}
	batoni_block_touch(&maps->offerings, block);
	if (block->state != BLOCK_READY || of.bytes != block->of.bytes)
		return;
	offer->block = block->offer;
	/* The same memory may be at more than one address. */
	offer->block.offset += (uint64_t)(buffer - of.base);
	offer->number = of.number;
}

bool
batoni_stage_offer(struct batoni_staging *stage, struct stage_message *message,
                   struct stage_offer *offer)
{
	const struct batoni_transfer *transfer = message->transfer;

	if (!stage->maps || batoni_location_owner(transfer->location) < 0 ||
	    message->list || message->length <= stage->config.eager_bytes ||
	    !is_neighbour(stage, message->peer))
		return false;
	memset(offer, 0, sizeof(*offer));
	offer->block.descriptor.fd = -1;
	see_withdrawals(stage);
	offer_bytes(stage, transfer->buffer, message->length, offer);
	offer->gone = next_gone(stage, message);
	message->offered = offer->block.offered;
	return message->offered || offer->gone;
}

/* ---- receiving ---- */

static void
want_mapping(const struct batoni_staging *stage, int peer,
             const struct stage_offer *offer)
{
	struct stage_block *block = batoni_block_add(stage, &stage->maps->mappings);

	if (!block)
		return;
	block->foreign = true;
	block->peer = peer;
	block->of.number = offer->number;
	block->offer = offer->block;
	batoni_block_queue(stage, block, BLOCK_QUEUED);
}

/* Does the receive's buffer lie in memory that its device copies into? */
static bool
is_own_device(const struct batoni_staging *stage,
              const struct stage_message *message)
{
	return batoni_location_owner(message->transfer->location) ==
	       stage->device->number;
}

void
batoni_stage_hear(struct batoni_staging *stage,
                  const struct stage_message *message,
                  const struct stage_offer *offer)
{
	struct stage_block *block = NULL;

	if (stage->maps && offer->gone)
		block = batoni_block_find(&stage->maps->mappings, message->peer, offer->gone);
	if (block)
		batoni_block_drop(stage, block);
}

bool
batoni_stage_map(struct batoni_staging *stage, struct stage_message *message,
                 const struct stage_offer *offer)
{
	struct stage_maps *maps = stage->maps;
	struct stage_block *block;

	if (!maps || !offer->block.offered ||
	    !is_neighbour(stage, message->peer) ||
	    !is_own_device(stage, message))
		return false;
	block = batoni_block_find(&maps->mappings, message->peer, offer->number);
	if (!block) {
		want_mapping(stage, message->peer, offer);
		return false;
	}
	batoni_block_touch(&maps->mappings, block);
	if (block->state != BLOCK_READY ||
	    block->offer.bytes != offer->block.bytes)
		return false;
	block->users++;
	message->mapped = block;
	message->source = block->base + offer->block.offset;
	return true;
}

void
batoni_stage_unmap(struct batoni_staging *stage, struct stage_message *message)
{
	struct stage_block *block = message->mapped;

	message->mapped = NULL;
	if (--block->users == 0 && block->dropped)
		batoni_block_queue(stage, block, BLOCK_LEAVING);
}

/* The sender's process, or its end of the communicator, is gone: the copy may have read
 * anything. */
static bool
is_gone(const struct batoni_staging *stage, int rank)
{
	const struct batoni_peer *peer = &stage->base.peers[rank];
	const struct batoni_departure *departure = batoni_departure_of(peer);

	return peer->gone || (departure && atomic_load(&departure->away)) ||
	       batoni_pidfd_gone(peer->pidfd);
}

void
batoni_stage_mapped_copied(struct batoni_staging *stage,
                           struct stage_message *message)
{
	if (is_gone(stage, message->peer)) {
		batoni_stage_over(stage, message, BATON_ERR_PEER);
		return;
	}
	batoni_stage_grant(stage, message, GRANT_MAPPED);
	batoni_stage_over(stage, message, BATON_OK);
}
