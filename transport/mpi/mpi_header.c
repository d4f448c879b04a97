/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoders of the MPI transport.  Nothing here has state, or calls MPI. */
#include "mpi_header.h"

#include <assert.h>
#include <string.h>

#include "path.h"
#include "tensors.h"

#define MAGIC 0x6e746162u /* "batn", or "ntab" from the other byte order */

static_assert(sizeof(struct batoni_mpi_header) >= BATONI_MPI_HEADER_BYTES &&
                      offsetof(struct batoni_mpi_header, spare) <
                              BATONI_MPI_HEADER_BYTES,
              "what a header says is within the bytes that travel");

static const unsigned char zeros[sizeof(((struct batoni_mpi_header *)0)->spare)];

static bool
within(struct batoni_mpi_range range, uint32_t value)
{
	return value >= range.first && value < range.end;
}

void
batoni_mpi_header_make(struct batoni_mpi_header *header, unsigned kind,
                       uint64_t length, uint32_t body_tag)
{
	*header = (struct batoni_mpi_header){
		.magic = MAGIC,
		.version = BATONI_MPI_WIRE_VERSION,
		.kind = (uint16_t)kind,
		.length = length,
		.body_tag = body_tag,
	};
}

/* Its first n bytes, with the fields that all kinds have. */
static inline bool
read_header(const void *bytes, size_t n, struct batoni_mpi_header *header)
{
	memcpy(header, bytes, n);
	return header->magic == MAGIC &&
	       header->version == BATONI_MPI_WIRE_VERSION &&
	       header->length <= INT64_MAX;
}

bool
batoni_mpi_header_decode(const void *bytes, size_t n,
                         struct batoni_mpi_range tags,
                         struct batoni_mpi_header *header)
{
	*header = (struct batoni_mpi_header){0};
	if (n != BATONI_MPI_HEADER_BYTES || !read_header(bytes, n, header) ||
	    header->pieces != 0 || header->type > BATON_DATATYPE_COUNT ||
	    memcmp(header->spare, zeros, sizeof(zeros)) != 0)
		return false;
	/* The slot is the sender's.  It only goes back to the sender, in the grant. */
	if (header->kind == BATONI_MPI_HEADER_WAITS)
		return header->body_tag < BATONI_SLOTS_LIMIT;
	return header->kind == BATONI_MPI_HEADER_BODY &&
	       within(tags, header->body_tag);
}

/* The same of a list whose payload has no room in its first part. */
static bool
describes_body(const struct batoni_mpi_header *header, size_t n,
               struct batoni_mpi_range tags, size_t described)
{
	size_t there = described < BATONI_MPI_LIST_ROOM ? described
	                                                : BATONI_MPI_LIST_ROOM;

	if (header->pieces == 0 ||
	    n != batoni_mpi_list_part_bytes(
			 batoni_mpi_list_front(header->kind) + there))
		return false;
	if (header->kind == BATONI_MPI_HEADER_LIST_WAITS)
		return header->body_tag < BATONI_SLOTS_LIMIT;
	return header->kind == BATONI_MPI_HEADER_LIST_BODY &&
	       within(tags, header->body_tag);
}

bool
batoni_mpi_list_decode(const void *bytes, size_t n,
                       struct batoni_mpi_range tags,
                       struct batoni_mpi_header *header, size_t *described_p)
{
	const size_t most = batoni_mpi_list_front(BATONI_MPI_HEADER_LIST_BODY);
	size_t front, described;

	if (n < batoni_mpi_list_part_bytes(0) || !read_header(bytes, most, header))
		return false;
	front = batoni_mpi_list_front(header->kind);
	described = batoni_tensors_stated_bytes((const unsigned char *)bytes +
	                                        front);
	*described_p = described;
	if (described < BATONI_TENSORS_FIXED_BYTES ||
	    described > BATONI_TENSORS_HEADER_MAX)
		return false;
	if (header->kind != BATONI_MPI_HEADER_LIST)
		return describes_body(header, n, tags, described);
	/* The bytes that were read there are no part of this header. */
	header->body_tag = header->pieces = 0;
	return header->length <= BATONI_MPI_LIST_ROOM &&
	       described + header->length <= BATONI_MPI_LIST_ROOM &&
	       n == batoni_mpi_list_part_bytes(front + described +
	                                       (size_t)header->length);
}

bool
batoni_mpi_grant_decode(const void *bytes, size_t n,
                        struct batoni_mpi_range tags,
                        struct batoni_mpi_range slots,
                        struct batoni_mpi_grant *grant)
{
	if (n != sizeof(*grant))
		return false;
	memcpy(grant, bytes, sizeof(*grant));
	return within(slots, grant->slot) && within(tags, grant->tag);
}
