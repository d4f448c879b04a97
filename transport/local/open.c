/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making the local transport, and the memory that its ranks share.
 *
 * What ranks see of each other (segments, struct batoni_peer) is the same for all ranks:
 * one array, which the last rank to close frees.  Where streams of ranks are to store into the
 * segments, these are pinned memory of one of the devices, which this transport opens for
 * itself, since the rank that has it may close before others.
 */
#include "local.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "log.h"
#include "mem.h"

/* What ranks shared whose segments a stream may still store to: it stays for good, with the open of
 * the device.  The driver. */
static struct local_shared *kept;

/* False: `shared` is kept. */
static bool
segments_free(struct local_shared *shared)
{
	struct batoni_device *device = shared->device;

	if (device && shared->stored_to) {
		shared->next_kept = kept;
		kept = shared;
		batoni_mem_keep(1);
		return false;
	}
	if (!device) {
		batoni_free(shared->segments);
	} else {
		device->ops->memory->pinned_free(device, shared->segments);
		device->ops->close(device);
	}
	return true;
}

void
batoni_local_free(struct local_shared *shared)
{
	for (int i = 0; i < 2; i++)
		batoni_free(shared->tables[i].all);
	batoni_free(shared->peers);
	batoni_free(shared->ranks);
	batoni_free(shared->sends);
	batoni_match_fini(&shared->match);
	if (segments_free(shared))
		batoni_free(shared);
}

/* Allocate segments that streams reach; NULL: there is no such memory. */
static char *
pin_segments(struct local_shared *shared, const struct batoni_transport_config *config,
             size_t bytes)
{
	const struct batoni_device_ops *ops = config->stores->ops;
	const struct batoni_device_config device = {
		.cuda_device = config->stores->number,
		.until_ns = config->until_ns,
	};
	void *segments = NULL;

	if (ops->open(&device, &shared->device) != BATON_OK) {
		shared->device = NULL;
	} else if (ops->memory->pinned_alloc(shared->device, bytes,
	                                     config->until_ns,
	                                     &segments) != BATON_OK) {
		ops->close(shared->device);
		shared->device = NULL;
	}
	if (!shared->device) {
		batoni_log(BATONI_LOG_WARN,
		           "the engine carries out puts and signals of streams: no "
		           "pinned memory for their counters: %s",
		           baton_last_error());
		return NULL;
	}
	return memset(segments, 0, bytes);
}

/* OK, NOMEM. */
static enum baton_status
make_peers(struct local_shared *shared, const struct batoni_transport_config *config)
{
	size_t size = (size_t)shared->size;
	size_t segment_bytes = (config->segment_bytes + 63) & ~(size_t)63;

	shared->peers = batoni_alloc(size, sizeof(*shared->peers));
	if (config->stores)
		shared->segments = pin_segments(shared, config,
		                                size * segment_bytes);
	if (!shared->segments)
		shared->segments = batoni_alloc(size, segment_bytes);
	if (!shared->peers || !shared->segments)
		return BATON_ERR_NOMEM;
	for (size_t rank = 0; rank < size; rank++) {
		shared->peers[rank] = (struct batoni_peer){
			.segment = shared->segments + rank * segment_bytes,
			.bell = batoni_bell(),
			.pipe = NULL, /* no thread sleeps for what the others do */
			.pid = getpid(),
			.pidfd = -1,
			.within = true,
			.streams = shared->device ? shared->segments +
			                                    rank * segment_bytes
			                          : NULL,
			.streams_here = shared->device != NULL,
			.reaches_us = true,
		};
	}
	return BATON_OK;
}

static struct local_shared *
shared_create(int size, const struct batoni_transport_config *config)
{
	struct local_shared *shared = batoni_alloc(1, sizeof(*shared));
	uint64_t nodes = (uint64_t)size * config->slots;

	if (!shared)
		return NULL;
	shared->size = size;
	shared->rounds = UINT64_MAX;
	shared->ranks = batoni_alloc((size_t)size, sizeof(struct local *));
	shared->sends = batoni_alloc((size_t)size, sizeof(*shared->sends));
	if (!batoni_match_init(&shared->match, nodes) || !shared->ranks ||
	    !shared->sends ||
	    (config->segment_bytes > 0 &&
	     make_peers(shared, config) != BATON_OK)) {
		batoni_local_free(shared);
		return NULL;
	}
	for (int rank = 0; rank < size; rank++)
		batoni_list_init(&shared->sends[rank]);
	return shared;
}

static void
describe(struct batoni_transport *base, int rank, const struct local_shared *shared,
         const struct batoni_transport_config *config)
{
	base->ops = &batoni_local_ops;
	base->messages.ops = config->check ? &batoni_local_checked_ops : &batoni_local_messages_ops;
	base->rank = rank;
	base->size = shared->size;
	base->slots = config->slots;
	base->hidden_tags = config->hidden_tags;
	base->tag_max = INT_MAX - config->hidden_tags;
	/* Unused when there are none. */
	base->hidden_tag = config->hidden_tags ? base->tag_max + 1 : 0;
	base->any_peer = 0; /* any number will do (batoni_local_key) */
	base->peers = shared->peers;
	base->all_store = shared->peers != NULL;
	base->capabilities = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS |
	                     BATON_CAP_SHORT | BATON_CAP_TRUNCATION |
	                     BATON_CAP_CANCEL | BATON_CAP_SELF;
	if (shared->peers)
		base->capabilities |= BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	base->drivers = BATONI_DRIVERS_ANY;
	base->messages.load.quiet = true;
	base->lets_go = true;
	snprintf(base->library, sizeof(base->library), "in process");
}

static struct local *
rank_create(struct local_shared *shared, int rank,
            const struct batoni_transport_config *config)
{
	struct local *local = batoni_alloc(1, sizeof(*local));

	if (!local)
		return NULL;
	local->nodes = batoni_alloc(config->slots, sizeof(*local->nodes));
	local->waiting = batoni_alloc(config->slots, sizeof(*local->waiting));
	local->waiting_to = batoni_alloc((size_t)shared->size,
	                                 sizeof(*local->waiting_to));
	if (!local->nodes || !local->waiting || !local->waiting_to) {
		batoni_free(local->waiting_to);
		batoni_free(local->waiting);
		batoni_free(local->nodes);
		batoni_free(local);
		return NULL;
	}
	describe(&local->base, rank, shared, config);
	local->shared = shared;
	batoni_list_init(&local->copies);
	shared->open++;
	return local;
}

enum baton_status
batoni_local_open(int size, const struct batoni_transport_config *config,
                  struct batoni_transport *transports[])
{
	struct local_shared *shared;
	struct local *local;
	int rank;

	assert(!config->device);
	shared = shared_create(size, config);
	if (!shared)
		return BATON_ERR_NOMEM;
	for (rank = 0; rank < size; rank++) {
		local = rank_create(shared, rank, config);
		if (!local)
			goto close_ranks;
		transports[rank] = &local->base;
	}
	return BATON_OK;

close_ranks:
	if (rank == 0)
		batoni_local_free(shared);
	while (rank-- > 0)
		transports[rank]->ops->close(transports[rank], true);
	return BATON_ERR_NOMEM;
}
