/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of what carries the messages between pairs of ranks through memory that they
 * share.  The transport that knows the ranks (MPI, the side channel) makes an area in the segment
 * of each (batoni_peer.pairs), and lets the ranks agree which pairs are near (segments.h).
 *
 * Where all are, it is a transport over that one, whose exchanges and leave it uses: the engine sees one
 * host-issued transport.  Where some are, it is a path beside the messages of that one, to near peers,
 * and the one-sided layer's messages are the other one's.  All ranks of a communicator choose alike
 * (batoni_transport.all_near).
 *
 * transport/near/ implements it.
 */
#ifndef BATONI_PAIRS_H
#define BATONI_PAIRS_H

#include "transport.h"

struct batoni_pairs;

struct batoni_pairs_ops {
	/* Of the area, not 0.  A rank does not understand that of another format. */
	uint32_t format;

	/* Of each rank's area, zeroed at first and aligned to a page: the same on all ranks.
	 * slots_most: of the transport above.  Any thread. */
	size_t (*area_bytes)(int size, uint32_t slots_most);
	/* Of these, at the beginning, what peers write before they are asked to: its memory is
	 * there from creation on.  The rest is there when batoni_shm_populate has allocated it
	 * (transport->sparse_segments). */
	size_t (*control_bytes)(int size);
	/* The configuration for the lower transport, from that for the one above; the engine adds
	 * the areas (pairs_bytes and what follows it). */
	struct batoni_transport_config (*lower)(
		const struct batoni_transport_config *above);
	/* Take everything that can fail on this rank alone.  The thread that creates a communicator
	 * of `size` ranks.  OK, NOMEM. */
	enum baton_status (*create)(const struct batoni_transport_config *above,
	                            int size, struct batoni_pairs **pairs_p);
	/* Free what was not started. */
	void (*discard)(struct batoni_pairs *pairs);
	/* The transport for the engine, over `lower`, which it owns from then on: closing it closes
	 * both and frees the pairs. */
	struct batoni_transport *(*start)(struct batoni_pairs *pairs,
	                                  struct batoni_transport *lower);
	/* The path for the engine, beside the messages of `transport`: it serves near peers.  Closing
	 * it frees the pairs. */
	struct batoni_path *(*beside)(struct batoni_pairs *pairs,
	                              const struct batoni_transport *transport);
};

/* transport/near/ */
extern const struct batoni_pairs_ops batoni_near_ops;

#endif
