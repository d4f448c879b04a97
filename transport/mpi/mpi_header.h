/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI transport reads from a peer besides the program's bytes: the header that
 * announces a body, and a grant (body.c says what they are for).  Their decoders accept what a
 * rank of the same version may send, and take any bytes.
 */
#ifndef BATONI_MPI_HEADER_H
#define BATONI_MPI_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi_version.h"

/* Odd, so that no array of a wider type has this length.  (In checked mode any message of the
 * program has a header.) */
#define BATONI_MPI_HEADER_BYTES 61
/* The first part of a list of tensors is longer, and has a length that is this much above a
 * multiple of 64, too: what its kind needs of a header, then what there is room for. */
#define BATONI_MPI_LIST_STEP 64u
#define BATONI_MPI_LIST_ROOM (31 * (size_t)BATONI_MPI_LIST_STEP)
#define BATONI_MPI_HEADER_BODY 1u  /* the body follows */
#define BATONI_MPI_HEADER_WAITS 2u /* the body waits for a grant */
/* In the first part of a list of tensors; the length is that of the payload.  Behind it
 * (batoni_mpi_list_front) is the list's own header, or its first BATONI_MPI_LIST_ROOM bytes. */
#define BATONI_MPI_HEADER_LIST 3u       /* and the payload, behind that */
#define BATONI_MPI_HEADER_LIST_BODY 4u  /* the body has the rest of the list's header, and */
#define BATONI_MPI_HEADER_LIST_WAITS 5u /* the payload; as BODY and WAITS */

struct batoni_mpi_header {
	uint32_t magic;
	uint16_t version;
	uint16_t kind; /* BATONI_MPI_HEADER_* */
	uint64_t length;
	/* BATONI_MPI_HEADER_LIST has none of what follows. */
	uint32_t body_tag; /* BATONI_MPI_HEADER_WAITS: the slot of the send */
	uint32_t pieces; /* of a list's body: its messages */
	/* The first part of a list ends here at the latest.  In checked mode, of a plain message of
	 * the program: its type, plus one.  Else 0. */
	uint32_t type;
	unsigned char spare[36]; /* zero */
};

struct batoni_mpi_grant {
	uint32_t slot; /* of the send, from its header */
	uint32_t tag;
};

/* Tags, or slots: from first on, before end. */
struct batoni_mpi_range {
	uint32_t first, end;
};

/* Fill it in; then its first BATONI_MPI_HEADER_BYTES bytes travel. */
void batoni_mpi_header_make(struct batoni_mpi_header *header, unsigned kind,
                            uint64_t length, uint32_t body_tag);
/* False: it is no header, whose body would have one of these tags. */
bool batoni_mpi_header_decode(const void *bytes, size_t n,
                              struct batoni_mpi_range tags,
                              struct batoni_mpi_header *header);
/* What a first part has of its header: short lists stay below the lengths from which
 * MPIs take a detour. */
static inline size_t
batoni_mpi_list_front(unsigned kind)
{
	return kind == BATONI_MPI_HEADER_LIST
	               ? offsetof(struct batoni_mpi_header, body_tag)
	               : offsetof(struct batoni_mpi_header, type);
}

/* The length of a first part that has to have so many bytes. */
static inline size_t
batoni_mpi_list_part_bytes(size_t bytes)
{
	const size_t least = BATONI_MPI_HEADER_BYTES + BATONI_MPI_LIST_STEP;
	size_t more = bytes > least ? bytes - least : 0;

	return least + (more + BATONI_MPI_LIST_STEP - 1) / BATONI_MPI_LIST_STEP *
	                       BATONI_MPI_LIST_STEP;
}

/* Is it a length that only headers and first parts of lists have? */
static inline bool
batoni_mpi_is_special(size_t bytes)
{
	return bytes % BATONI_MPI_LIST_STEP ==
	       BATONI_MPI_HEADER_BYTES % BATONI_MPI_LIST_STEP;
}

/* False: it is no first part of a list. *described_p: the bytes of the list's header, of
 * which at most BATONI_MPI_LIST_ROOM are there, from batoni_mpi_list_front on; they have not been
 * checked. */
bool batoni_mpi_list_decode(const void *bytes, size_t n,
                            struct batoni_mpi_range tags,
                            struct batoni_mpi_header *header,
                            size_t *described_p);
/* False: it is no grant of one of these tags to one of these slots. */
bool batoni_mpi_grant_decode(const void *bytes, size_t n,
                             struct batoni_mpi_range tags,
                             struct batoni_mpi_range slots,
                             struct batoni_mpi_grant *grant);

#endif
