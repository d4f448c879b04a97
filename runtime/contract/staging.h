/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of staging: a transport over another transport, for programs whose buffers
 * may be memory that the host cannot touch.
 *
 * The engine sees one host-issued transport.  The lower one moves bytes between
 * host memory only (local, near, MPI), which staging uses by its contract alone; messages to some peers may
 * go by a path beside that one's.  In between is one bounded pool of pinned memory, and the copies of the
 * device's memory table.  All ranks
 * of a communicator stage or none does; a rank whose memory is all the host's may be among
 * those that do.
 *
 * transport/staging/ implements it; the engine gets it from registry.h.
 */
#ifndef BATONI_STAGING_H
#define BATONI_STAGING_H

#include "device.h"
#include "transport.h"

/* A message as the lower transport carries it: a header first. */
#define BATONI_STAGING_HEADER_BYTES ((size_t)48)

struct batoni_staging_config {
	/* Of a pinned chunk; a long message goes in pieces of at most this length, and of at
	 * most that of the peer's chunks. */
	size_t chunk_bytes;
	uint32_t chunks; /* for each direction; 1 or more */
	/* The longest message that may be sent before the receiver has asked for it.
	 * The same on all ranks. */
	size_t eager_bytes;
	/* Pinned buffers for such messages, for each direction; and how many of them the
	 * messages to one peer may have. */
	uint32_t eager_slots, eager_per_peer;
	/* The longest message of the lower transport, the same on all ranks: no chunk is
	 * longer, and longer messages go in pieces between any memory.  0: there is no such
	 * bound. */
	size_t whole_max;
	/* Long messages of device memory between processes of one node go by one copy, where that
	 * works; also out of memory that must not be freed while it is mapped (`kept` in memory.h). */
	bool maps, maps_all;
};

/* The slots that it needs of the lower transport: two for each message, and one for each
 * chunk. */
static inline uint64_t
batoni_staging_slots(uint64_t above, const struct batoni_staging_config *staging)
{
	return 2 * (above + staging->chunks);
}

struct batoni_staging;

struct batoni_staging_ops {
	/* Header and eager message together are as long as what MPI sends raw. */
	struct batoni_staging_config defaults;

	/* The configuration for the lower transport, from that for the one above; the same
	 * tags on all ranks. */
	struct batoni_transport_config (*lower)(
		const struct batoni_transport_config *above,
		const struct batoni_staging_config *staging);
	/* Take everything that can fail.  above->device (not NULL) stays the caller's.
	 * The thread that creates a communicator of `size` ranks.  OK, NOMEM, what the
	 * device's pinned_alloc returns. */
	enum baton_status (*create)(const struct batoni_transport_config *above,
	                            const struct batoni_staging_config *staging,
	                            int size, struct batoni_staging **staging_p);
	/* Free what was not started. */
	void (*discard)(struct batoni_staging *staging);
	/* The transport for the engine, over `lower`, which it owns from then on: closing
	 * it closes both and frees the staging.  beside: NULL, or a path of messages, to the peers that it
	 * serves, beside those of `lower` (`serving` and `closing` of path.h).  It has the tags and slots of
	 * `lower`, lets go of buffers at its close, and is owned and closed likewise.  The messages of the
	 * one-sided layer are those of `lower`. */
	struct batoni_transport *(*start)(struct batoni_staging *staging,
	                                  struct batoni_transport *lower,
	                                  struct batoni_path *beside);
};

extern const struct batoni_staging_ops batoni_staging_ops;

#endif
