/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that ranks of one node share, for signals and windows, and for messages between
 * pairs of ranks (pairs.h): for transports between processes (MPI, the side channel).
 *
 * Each rank makes a segment:
 *
 *   [ the one-sided layer's, or a departure alone | a byte of each rank | the area of the pairs ]
 *
 * The ranks exchange cards, with the names of the segment and of the
 * process's bell.  Each maps what it can, also that of a rank of its own process, so that each rank
 * frees what it has mapped, whenever the others close.  Streams of its device are let store
 * into what it has mapped (stores.h).  Only trying shows whether a mapping works, because of
 * containers and the kernel's rules.  A failure is no error: messages are used instead.  The two
 * directions may differ, and a rank knows both: in the segment of another one, a rank writes into
 * its byte what of it reaches that segment.
 *
 * Where there are areas of pairs, two ranks are *near* if each has mapped the other's segment and
 * bell, and both know the same format: both bytes say so.  Then a second card tells the lowest rank
 * that this one is not near to, and why.  All ranks read all of them, and so agree whether all are near,
 * and if not, on the sentence that says why.  By the same cards they agree whether all store into the
 * segments of all (all_store).
 *
 * (A missing process descriptor is no failure: the end of that process is then not noticed.  Nor is a pipe
 * that does not open: batoni_peer.pipe; the rank's byte says whether it did.)
 *
 * The thread that creates, and the one that destroys; no locks.
 */
#ifndef BATONI_SEGMENTS_H
#define BATONI_SEGMENTS_H

#include "opening.h"
#include "shm.h"
#include "stores.h"

/* Plain bytes; ranks of other nodes read the host only. */
struct batoni_segments_card {
	struct batoni_shm_name segment, bell;
	int32_t has_bell;
	int32_t pid;
	uint32_t pairs; /* the format of the area; 0: there is none */
};

/* Why a rank is not near to another one. */
enum batoni_lack {
	BATONI_LACK_NOTHING,
	BATONI_LACK_HOST,    /* that one is on another node */
	BATONI_LACK_FORMAT,  /* its segment has another format */
	BATONI_LACK_BELL,    /* its bell is not in shared memory */
	BATONI_LACK_RIGHT,   /* this one may not map its memory */
	BATONI_LACK_MEMORY,  /* this one has no memory or descriptors for it */
	BATONI_LACK_RETURN   /* that one has not reached this one */
};

/* The second card. */
struct batoni_segments_verdict {
	int32_t rank;  /* the lowest that it is not near to; -1: it is near to all */
	uint32_t lack; /* enum batoni_lack */
	/* It has mapped the segments of all ranks, which have mapped its own. */
	uint32_t stores;
};

struct batoni_segments {
	struct batoni_shm segment; /* this rank's; no base: there are no segments */
	struct batoni_stores stores;
	bool onesided;        /* they have the one-sided layer's part */
	size_t flags_at;      /* the ranks' bytes in a segment */
	size_t pairs_at;      /* the area; 0: there is none */
	uint32_t pairs_format;
	struct batoni_segments_verdict verdict;
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
/* The steps of opening behind the one that has written the card: both of these, and, if there are
 * areas of pairs, one more, which sets all_near, why_not_near and all_store of the transport.  PENDING, or OK;
 * UNSUPPORTED, on all ranks, where setup->near_only and not all are near: with a sentence of what is in
 * the way and `instead`, what the program can do. */
enum baton_status batoni_segments_step(struct batoni_segments *segments,
                                       struct batoni_transport *transport,
                                       struct batoni_opening *opening,
                                       const struct batoni_cards *cards,
                                       const char *instead);
/* Free all of it. */
void batoni_segments_free(struct batoni_segments *segments,
                          struct batoni_transport *transport);

#endif
