/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts between memory of a device and pageable memory of the host.
 *
 * A driver copies pageable memory through buffers of its own and may block the caller
 * meanwhile.  The caller would be the driver of the engine, and everything else would stand.
 * So a device is only asked for copies of pinned memory, and the host copies the rest: a put
 * takes a *bounce*, and moves on a chunk at a time.
 *
 * A bounce has two chunks, so that the device copies one while the host copies the other.  They
 * are used in turn.  Copies of a device may end in any order, but what ends early waits for
 * the older one.  There are BOUNCES of them; a put that finds none asks again at a later test.
 * A channel moves its first put only, so one channel takes one.
 *
 * A put that is to stop (it was taken back, or a copy failed) begins no further chunk, and
 * what comes out of the device is dropped.  It is over when the copies under way have ended.
 *
 * A *trial* is one copy of a byte out of memory that this rank is about to put into, for which
 * there is a word behind the chunks: does the driver take it?  There is one at a time.  It is waited for no
 * longer than its caller likes; then it goes on, and the next one has to let it end first.
 *
 * The memory is allocated when the communicator is created, and only where the device has
 * memory of its own.  It stays allocated if a copy has not ended at the close.
 *
 * Threads.  The driver only, except open and close.
 */
#include "carry.h"

#include <string.h>

#include "mem.h"

#define BOUNCES 4u
#define CHUNKS 2u
#define CHUNK_BYTES ((size_t)256 << 10)
#define TRIAL_BYTES ((size_t)64)

struct chunk {
	unsigned char *memory;
	size_t at, bytes; /* of the put, while its copy is under way */
	struct batoni_ticket ticket;
};

struct batoni_bounce {
	struct batoni_list_node link; /* of the free ones */
	struct batoni_bounces *all;
	/* The put. */
	char *to;
	const char *from;
	size_t bytes;
	int owner; /* of the device's memory */
	bool out;  /* out of it */
	size_t begun;
	enum baton_status failed;
	/* Chunks begun and ended, of all puts; the difference is under way. */
	unsigned starts, ends;
	struct chunk chunks[CHUNKS];
};

struct batoni_bounces {
	struct batoni_device *device;
	const struct batoni_memory_ops *memory;
	void *block;
	struct batoni_list_node free;
	struct batoni_bounce bounces[BOUNCES];
	void *tried; /* where a trial copies to */
	struct batoni_ticket trial;
	bool trying; /* it has not ended */
};

enum baton_status
batoni_bounces_open(struct batoni_rma *rma, struct batoni_device *device,
                    uint64_t until_ns)
{
	struct batoni_bounces *all = batoni_alloc(1, sizeof(*all));
	unsigned char *at;
	enum baton_status status;

	if (!all)
		return BATON_ERR_NOMEM;
	all->device = device;
	all->memory = device->ops->memory;
	status = all->memory->pinned_alloc(
		device, BOUNCES * CHUNKS * CHUNK_BYTES + TRIAL_BYTES, until_ns,
		&all->block);
	if (status != BATON_OK) {
		batoni_free(all);
		return status;
	}
	at = all->block;
	batoni_list_init(&all->free);
	for (unsigned i = 0; i < BOUNCES; i++) {
		struct batoni_bounce *bounce = &all->bounces[i];

		bounce->all = all;
		batoni_list_append(&all->free, &bounce->link);
		for (unsigned j = 0; j < CHUNKS; j++, at += CHUNK_BYTES)
			bounce->chunks[j].memory = at;
	}
	all->tried = at;
	rma->bounces = all;
	return BATON_OK;
}

void
batoni_bounces_close(struct batoni_rma *rma, bool copies_left)
{
	struct batoni_bounces *all = rma->bounces;

	if (all && !copies_left)
		all->memory->pinned_free(all->device, all->block);
	batoni_free(all);
	rma->bounces = NULL;
}

struct batoni_bounce *
batoni_bounce_take(struct batoni_rma *rma, char *to, const char *from,
                   size_t bytes, int owner, bool out)
{
	struct batoni_list_node *first = rma->bounces->free.next;
	struct batoni_bounce *bounce;

	if (batoni_list_empty(&rma->bounces->free))
		return NULL;
	batoni_list_remove(first);
	bounce = batoni_container_of(first, struct batoni_bounce, link);
	bounce->to = to;
	bounce->from = from;
	bounce->bytes = bytes;
	bounce->owner = owner;
	bounce->out = out;
	bounce->begun = 0;
	bounce->failed = BATON_OK;
	return bounce;
}

static void
pay(size_t *budget_p, size_t bytes)
{
	*budget_p -= bytes < *budget_p ? bytes : *budget_p;
}

/* The oldest copy, which is under way.  False: it has not ended. */
static bool
end_chunk(struct batoni_bounce *bounce, bool stop, size_t *budget_p)
{
	const struct batoni_bounces *all = bounce->all;
	struct chunk *chunk = &bounce->chunks[bounce->ends % CHUNKS];
	enum baton_status status =
		all->memory->copy_test(all->device, &chunk->ticket);

	if (status == BATON_PENDING)
		return false;
	bounce->ends++;
	if (status != BATON_OK) {
		bounce->failed = status;
	} else if (bounce->out && !stop && bounce->failed == BATON_OK) {
		memcpy(bounce->to + chunk->at, chunk->memory, chunk->bytes);
		pay(budget_p, chunk->bytes);
	}
	return true;
}

/* False: the device takes no copy now. */
static bool
begin_chunk(struct batoni_bounce *bounce, size_t *budget_p)
{
	const struct batoni_bounces *all = bounce->all;
	struct chunk *chunk = &bounce->chunks[bounce->starts % CHUNKS];
	size_t left = bounce->bytes - bounce->begun;
	char *to = bounce->to + bounce->begun;
	const char *from = bounce->from + bounce->begun;
	enum baton_status status;

	chunk->at = bounce->begun;
	chunk->bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
	if (!bounce->out) {
		memcpy(chunk->memory, from, chunk->bytes);
		pay(budget_p, chunk->bytes);
	}
	status = all->memory->copy_start(
		all->device, bounce->out ? (void *)chunk->memory : to,
		bounce->out ? from : (const void *)chunk->memory, chunk->bytes,
		bounce->owner, &chunk->ticket);
	if (status == BATON_ERR_AGAIN)
		return false;
	if (status != BATON_OK) {
		bounce->failed = status;
		return false;
	}
	bounce->starts++;
	bounce->begun += chunk->bytes;
	return true;
}

enum baton_status
batoni_bounce_move(struct batoni_bounce *bounce, bool stop, size_t *budget_p)
{
	bool more = true;

	while (bounce->ends != bounce->starts && (stop || *budget_p > 0) &&
	       end_chunk(bounce, stop, budget_p))
		;
	while (more && !stop && bounce->failed == BATON_OK && *budget_p > 0 &&
	       bounce->begun < bounce->bytes &&
	       bounce->starts - bounce->ends < CHUNKS)
		more = begin_chunk(bounce, budget_p);
	if (bounce->ends != bounce->starts ||
	    (!stop && bounce->failed == BATON_OK &&
	     bounce->begun < bounce->bytes))
		return BATON_ERR_AGAIN;
	batoni_list_append(&bounce->all->free, &bounce->link);
	return bounce->failed;
}

/* ---- trials ---- */

enum baton_status
batoni_trial_start(struct batoni_rma *rma, const void *from)
{
	struct batoni_bounces *all = rma->bounces;
	enum baton_status status;

	if (all->trying)
		return BATON_ERR_AGAIN;
	status = all->memory->copy_start(all->device, all->tried, from, 1, -1,
	                                 &all->trial);
	all->trying = status == BATON_OK;
	return status;
}

enum baton_status
batoni_trial_test(struct batoni_rma *rma)
{
	struct batoni_bounces *all = rma->bounces;
	enum baton_status status = BATON_OK;

	if (all->trying)
		status = all->memory->copy_test(all->device, &all->trial);
	all->trying = status == BATON_PENDING;
	return status;
}
