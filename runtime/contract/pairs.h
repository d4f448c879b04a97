/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract of a transport over another transport that carries the messages between pairs of
 * ranks itself, through memory that they share.
 *
 * The engine sees one host-issued transport.  Below it is one between processes (MPI, the side
 * channel), whose exchanges and leave it uses, and whose peers have an area each in their
 * segment (batoni_peer.pairs).  That one makes the areas, and lets the ranks agree that all
 * pairs have them (segments.h); so all ranks of a communicator have such a transport or none does.
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
	/* The configuration for the transport below, from that for the one above; the engine adds
	 * the areas (pairs_bytes and what follows it). */
	struct batoni_transport_config (*below)(
		const struct batoni_transport_config *above);
	/* Take everything that can fail on this rank alone.  The thread that creates a communicator
	 * of `size` ranks.  OK, NOMEM. */
	enum baton_status (*create)(const struct batoni_transport_config *above,
	                            int size, struct batoni_pairs **pairs_p);
	/* Free what was not started. */
	void (*discard)(struct batoni_pairs *pairs);
	/* The transport for the engine, over `below`, which it owns from then on: closing it closes
	 * both and frees the pairs. */
	struct batoni_transport *(*start)(struct batoni_pairs *pairs,
	                                  struct batoni_transport *below);
};

/* transport/near/ */
extern const struct batoni_pairs_ops batoni_near_ops;

#endif
