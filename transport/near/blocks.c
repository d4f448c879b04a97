/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of a sender (block.h), which the receiver has mapped.
 *
 * An announced message that lies in a block names it: so its bytes need not be read by the kernel.
 * The receiver looks for its mapping of the block, by rank and serial, whenever it copies a part of
 * the message, and copies from there within the same slot: so no mapping goes while it is
 * read.  Where there is none, that part is read as any other memory is.
 *
 *   (none) -> OPENING   the first message from the block: a job maps it
 *   OPENING -> OPEN     the job has ended; the next use of the mapping finds it
 *   OPENING -> REFUSED  the same, or there is no thread: its messages are read by the kernel
 *   any -> (none)       its owner has said GONE, its turn has come, or the communicator closes
 *
 * Jobs (thread.h) map and unmap, since either may take long.  One that maps and is not wanted
 * any more unmaps what it has made, and frees its record.
 *
 * A communicator has at most MAPPINGS_MAX of them, by their last use.  The one that was not used
 * for longest goes when another one is wanted, but only after UNUSED_MIN other uses: a program
 * that walks through more blocks than that keeps those that are there, and maps nothing anew each time.
 *
 * The owner says GONE behind all messages that named the block, and nothing names it afterwards.  Without
 * room for it in the ring, what it says when there is room is that all of its blocks are gone; those
 * that are not are mapped again.
 *
 * A block cannot be made shorter (shm.h), so reading its mapping is safe, whatever its owner does, and also
 * when that has been killed.
 *
 * The driver alone.  A record whose job was given up is the job's.
 */
#include "near.h"

#include <assert.h>

#include "clock.h"
#include "log.h"
#include "thread.h"

enum { MAPPINGS_MAX = 64, UNUSED_MIN = 1024 };

/* How long a close waits for a job that maps. */
#define PATIENCE_NS UINT64_C(1000000000)

enum mapping_state { OPENING, OPEN, REFUSED };

struct near_mapping {
	struct batoni_job job;        /* must be first */
	struct batoni_list_node link; /* near->mappings, the last used one first */
	int peer;
	enum mapping_state state;
	uint64_t serial;
	uint64_t used; /* near->mapping_uses at its last use */
	struct batoni_shm_name name;
	enum baton_status status; /* of the job's mapping */
	void *base;
};

static struct near_mapping *
of_job(struct batoni_job *job)
{
	return batoni_container_of(job, struct near_mapping, job);
}

static struct near_mapping *
of_link(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct near_mapping, link);
}

/* ---- jobs ---- */

static void
run_map(struct batoni_job *job)
{
	struct near_mapping *mapping = of_job(job);

	mapping->status = batoni_shm_map_to_read(&mapping->name, &mapping->base);
}

static void
unmap(struct near_mapping *mapping)
{
	if (mapping->status == BATON_OK)
		batoni_shm_unmap(mapping->base, (size_t)mapping->name.bytes);
	batoni_free(mapping);
}

static void
run_nothing(struct batoni_job *job)
{
	(void)job;
}

static void
cleanup_mapping(struct batoni_job *job)
{
	unmap(of_job(job));
}

/* The mapping is in no list any more: free it. */
static void
give_back(struct near_mapping *mapping)
{
	if (mapping->state == OPENING && !batoni_job_finish(&mapping->job, 0))
		return;
	mapping->job = (struct batoni_job){
		.run = run_nothing, .cleanup = cleanup_mapping, .given_up = true};
	if (mapping->status != BATON_OK || batoni_job_start(&mapping->job) != 0)
		unmap(mapping);
}

/* ---- the mappings of a communicator ---- */

static void
drop_block_mapping(struct batoni_pairs *near, struct near_mapping *mapping)
{
	batoni_list_remove(&mapping->link);
	near->mappings_n--;
	give_back(mapping);
}

static bool
make_room(struct batoni_pairs *near)
{
	struct near_mapping *last = of_link(near->mappings.prev);

	if (near->mappings_n < MAPPINGS_MAX)
		return true;
	if (near->mapping_uses - last->used < UNUSED_MIN)
		return false;
	drop_block_mapping(near, last);
	return true;
}

static void
open_mapping(struct batoni_pairs *near, int from, const struct batoni_shm_block_name *block)
{
	const struct batoni_peer *peer = &near->base.peers[from];
	struct near_mapping *mapping;

	/* A descriptor of the process tells whether it still has its pid. */
	if (!peer->pid || !make_room(near))
		return;
	mapping = batoni_alloc(1, sizeof(*mapping));
	if (!mapping)
		return;
	mapping->job.run = run_map;
	mapping->job.cleanup = cleanup_mapping;
	mapping->peer = from;
	mapping->serial = block->serial;
	mapping->used = near->mapping_uses;
	mapping->status = BATON_ERR_UNSUPPORTED;
	batoni_shm_block_locate(block, peer->pid, &mapping->name);
	mapping->state = batoni_job_start(&mapping->job) == 0 ? OPENING : REFUSED;
	batoni_list_append(near->mappings.next, &mapping->link);
	near->mappings_n++;
}

/* The job of a mapping may have ended. */
static void
settle(struct batoni_pairs *near, struct near_mapping *mapping)
{
	if (!batoni_job_await(&mapping->job, 0))
		return;
	mapping->state = REFUSED;
	if (mapping->status != BATON_OK)
		batoni_log(BATONI_LOG_DEBUG,
		           "rank %d: a block of %llu bytes of rank %d cannot be "
		           "mapped (%s): messages from there are read by the kernel",
		           near->base.rank, (unsigned long long)mapping->name.bytes,
		           mapping->peer, baton_status_name(mapping->status));
	else if (!batoni_pidfd_gone(near->base.peers[mapping->peer].pidfd))
		mapping->state = OPEN;
}

static struct near_mapping *
find_mapping(struct batoni_pairs *near, int from, uint64_t serial)
{
	for (struct batoni_list_node *node = near->mappings.next;
	     node != &near->mappings; node = node->next) {
		struct near_mapping *mapping = of_link(node);

		if (mapping->serial == serial && mapping->peer == from)
			return mapping;
	}
	return NULL;
}

const void *
batoni_near_mapped(struct batoni_pairs *near, int from,
                   const struct batoni_shm_block_name *block, uint64_t address,
                   size_t bytes)
{
	uint64_t offset = address - block->base;
	struct near_mapping *mapping;

	if (block->serial == 0)
		return NULL;
	mapping = find_mapping(near, from, block->serial);
	near->mapping_uses++;
	if (!mapping) {
		open_mapping(near, from, block);
		return NULL;
	}
	mapping->used = near->mapping_uses;
	batoni_list_remove(&mapping->link);
	batoni_list_append(near->mappings.next, &mapping->link);
	if (mapping->state == OPENING)
		settle(near, mapping);
	/* What was mapped decides, whatever this message says of the block. */
	if (mapping->state != OPEN || offset > mapping->name.bytes ||
	    bytes > mapping->name.bytes - offset)
		return NULL;
	return (const char *)mapping->base + offset;
}

void
batoni_near_forget(struct batoni_pairs *near, int from, uint64_t serial)
{
	struct batoni_list_node *next;

	for (struct batoni_list_node *node = near->mappings.next;
	     node != &near->mappings; node = next) {
		struct near_mapping *mapping = of_link(node);

		next = node->next;
		if (mapping->peer == from &&
		    (serial == 0 || mapping->serial == serial))
			drop_block_mapping(near, mapping);
	}
}

/* All mappings are unmapped when this returns, except one in which a job is stuck. */
void
batoni_near_close_blocks(struct batoni_pairs *near)
{
	uint64_t until_ns = batoni_real_ns() + PATIENCE_NS;

	if (near->observes)
		batoni_shm_block_observe_no_more(&near->observer);
	while (!batoni_list_empty(&near->mappings)) {
		struct near_mapping *mapping = of_link(near->mappings.next);

		batoni_list_remove(&mapping->link);
		if (mapping->state != OPENING ||
		    batoni_job_finish(&mapping->job, until_ns))
			unmap(mapping);
	}
}

/* ---- the owner's end ---- */

static bool
say_gone(struct batoni_pairs *near, int peer, uint64_t serial)
{
	struct batoni_ring_out *out = &near->peers[peer].out;
	const struct batoni_ring_head head = {
		.kind = BATONI_RING_GONE,
		.cells = 1,
		.length = sizeof(serial),
	};
	bool broken;

	/* (What is broken is found by those that need room.) */
	if (!batoni_ring_has_room(out, head.cells) &&
	    !batoni_ring_starve(out, head.cells, &broken))
		return false;
	batoni_ring_copy_in(out, 0, &serial, sizeof(serial));
	batoni_ring_publish(out, &head);
	return true;
}

size_t
batoni_near_say_all_gone(struct batoni_pairs *near, int peer)
{
	if (!near->peers[peer].gone_due || !say_gone(near, peer, 0))
		return 0;
	near->peers[peer].gone_due = false;
	return 1;
}

/* (A peer ignores a serial that it does not know.) */
static void
gone(struct batoni_shm_block_observer *observer, uint64_t serial)
{
	struct batoni_pairs *near =
		batoni_container_of(observer, struct batoni_pairs, observer);

	for (int rank = 0; rank < near->base.size && !near->broken; rank++) {
		struct near_peer *peer = &near->peers[rank];

		if (peer->named_blocks && !say_gone(near, rank, serial))
			peer->gone_due = true;
	}
}

void
batoni_near_name_block(struct batoni_pairs *near, int peer, const void *from,
                       size_t bytes, struct batoni_shm_block_name *name_p)
{
	if (near->base.peers[peer].within || !batoni_shm_block_find(from, bytes, name_p))
		return;
	near->peers[peer].named_blocks = true;
	if (near->observes)
		return;
	near->observes = true;
	near->observer.gone = gone;
	batoni_shm_block_observe(&near->observer);
}
