/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that store into the segments of ranks of other processes: for transports whose segments
 * are shared memory (MPI, the side channel).
 *
 * A rank maps its part of each segment a second time, for its streams alone, and its device pins
 * that mapping (memory.h), a page or a few of each segment.  The mapping is the device's, so it may
 * outlive the transport.  It does where a stream may still store when the communicator is
 * destroyed (copies_left): then it stays for good.
 *
 * Pinning may wait for what is on streams.  A segment has until BATONI_STORES_NS after the
 * first one was begun, or what the device gives any at least (cuda_register.c, LEAST_NS) if
 * that is later; no other one is tried after a refusal.  A refusal is no error: the engine
 * carries out the puts and signals to those peers.
 *
 * The thread that creates, without the driver's lock; the one that destroys.
 */
#ifndef BATONI_STORES_H
#define BATONI_STORES_H

#include <stdio.h>

#include "clock.h"
#include "device.h"
#include "log.h"
#include "transport.h"

#define BATONI_STORES_NS UINT64_C(1000000000)

struct batoni_stores {
	struct batoni_device *device; /* NULL: streams store into no segment */
	size_t part_at, part_bytes;   /* of the transport's configuration */
	uint64_t until_ns;
	char why[240]; /* the refusal; "": there was none */
};

/* When the transport is made. */
static inline void
batoni_stores_init(struct batoni_stores *stores,
                   const struct batoni_transport_config *config)
{
	*stores = (struct batoni_stores){
		.device = config->stores,
		.part_at = config->part_at,
		.part_bytes = config->part_bytes,
		.until_ns = config->until_ns,
	};
}

/* Before the first segment. */
static inline void
batoni_stores_begin(struct batoni_stores *stores)
{
	uint64_t until_ns = batoni_real_ns() + BATONI_STORES_NS;

	if (until_ns < stores->until_ns)
		stores->until_ns = until_ns;
}

static inline void
batoni_stores_refused(struct batoni_stores *stores,
                      struct batoni_transport *transport, const char *why)
{
	snprintf(stores->why, sizeof(stores->why),
	         "streams do not store into the counters of other ranks: %s",
	         why);
	transport->why_no_streams = stores->why;
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: the engine carries out puts and signals of streams: "
	           "%s",
	           transport->rank, stores->why);
}

/* Let streams store into the segment of a rank, which has this name, if its hosts do. */
static inline void
batoni_stores_reach(struct batoni_stores *stores,
                    struct batoni_transport *transport, int rank,
                    const struct batoni_shm_name *segment)
{
	size_t at = stores->part_at +
	            stores->part_bytes * (size_t)transport->rank;
	struct batoni_peer *peer = &transport->peers[rank];
	void *base;

	if (!stores->device || !peer->segment || *stores->why)
		return;
	if (batoni_shm_map(segment, at, stores->part_bytes, &base) != BATON_OK)
		batoni_stores_refused(stores, transport, "they cannot be mapped");
	else if (stores->device->ops->memory->pins->pin(
			 stores->device, base, stores->part_bytes,
			 stores->until_ns) != BATON_OK)
		batoni_stores_refused(stores, transport, baton_last_error());
	else
		peer->streams = (char *)base - at;
}

/* Before the peers go.  Streams may still store if copies are left. */
static inline void
batoni_stores_end(const struct batoni_stores *stores,
                  struct batoni_transport *transport)
{
	const struct batoni_patience *patience = transport->patience;
	size_t at = stores->part_at +
	            stores->part_bytes * (size_t)transport->rank;

	for (int rank = 0; rank < transport->size; rank++) {
		struct batoni_peer *peer = &transport->peers[rank];

		if (peer->streams && !(patience && patience->copies_left))
			stores->device->ops->memory->pins->unpin(
				stores->device, peer->streams + at);
		peer->streams = NULL;
	}
}

#endif
