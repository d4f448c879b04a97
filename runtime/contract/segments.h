/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that ranks of one host share, for signals and windows: for transports between
 * processes (MPI, the side channel).
 *
 * Each rank makes a segment.  The ranks exchange cards, with the names of the segment and of the
 * process's bell.  Each maps what it can, also that of a rank of its own process, so that each rank
 * frees what it has mapped, whenever the others close.  Streams of its device are let store
 * into what it has mapped (stores.h).  Only trying shows whether a mapping works, because of
 * containers and the kernel's rules.  A failure is no error: messages are used instead.  The two
 * directions may differ, and a rank knows both: behind what the one-sided layer has of it, a
 * segment has a byte for each rank, in which that rank writes what of it reaches the segment.
 *
 * (A missing process descriptor is no failure: the end of that process is then not noticed.)
 *
 * The thread that creates, and the one that destroys; no locks.
 */
#ifndef BATONI_SEGMENTS_H
#define BATONI_SEGMENTS_H

#include "opening.h"
#include "shm.h"
#include "stores.h"

/* Plain bytes; ranks of other hosts read the host only. */
struct batoni_segments_card {
	struct batoni_shm_name segment, bell;
	int32_t has_bell;
	int32_t pid;
};

struct batoni_segments {
	struct batoni_shm segment; /* this rank's; no base: there are no segments */
	struct batoni_stores stores;
	size_t flags_at; /* the ranks' bytes in a segment */
};

/* transport->peers, and this rank's segment; nothing if there are to be no segments.  OK; NOMEM,
 * SYSTEM: batoni_refuse has said why, and batoni_segments_free is due. */
enum baton_status
batoni_segments_make(struct batoni_segments *segments,
                     struct batoni_transport *transport, int size,
                     const struct batoni_transport_config *config);
void batoni_segments_write_card(const struct batoni_segments *segments,
                                struct batoni_segments_card *card);
/* These two in this order, on all ranks, the second when all have done the first; with rank and
 * size of the transport set.  The first may block for a while. */
void batoni_segments_meet(struct batoni_segments *segments,
                          struct batoni_transport *transport,
                          const struct batoni_cards *cards);
void batoni_segments_met(struct batoni_segments *segments,
                         struct batoni_transport *transport);
/* Free all of it. */
void batoni_segments_free(struct batoni_segments *segments,
                          struct batoni_transport *transport);

#endif
