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

/* Odd, so that no array of a wider type has this length. */
#define BATONI_MPI_HEADER_BYTES 61
/* Ranks with different versions refuse each other at creation.  The version changes with
 * the format of what travels: raw messages, headers, bodies, grants, cards, terms,
 * farewells, and the one-sided layer's messages.  The record that contains it at creation has the same
 * format in all versions. */
#define BATONI_MPI_WIRE_VERSION 7u

#define BATONI_MPI_HEADER_BODY 1u  /* the body follows */
#define BATONI_MPI_HEADER_WAITS 2u /* the body waits for a grant */

struct batoni_mpi_header {
	uint32_t magic;
	uint16_t version;
	uint16_t kind; /* BATONI_MPI_HEADER_* */
	uint64_t length;
	uint32_t body_tag; /* BATONI_MPI_HEADER_WAITS: the slot of the send */
	unsigned char spare[44]; /* zero; for a description of the content */
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
/* False: it is no grant of one of these tags to one of these slots. */
bool batoni_mpi_grant_decode(const void *bytes, size_t n,
                             struct batoni_mpi_range tags,
                             struct batoni_mpi_range slots,
                             struct batoni_mpi_grant *grant);

#endif
