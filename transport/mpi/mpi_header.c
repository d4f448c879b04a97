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

/* The fields that all kinds have. */
static bool
read_header(const void *bytes, struct batoni_mpi_header *header)
{
	*header = (struct batoni_mpi_header){0};
	memcpy(header, bytes, BATONI_MPI_HEADER_BYTES);
	return header->magic == MAGIC &&
	       header->version == BATONI_MPI_WIRE_VERSION &&
	       header->length <= INT64_MAX &&
	       memcmp(header->spare, zeros, sizeof(zeros)) == 0;
}

bool
batoni_mpi_header_decode(const void *bytes, size_t n,
                         struct batoni_mpi_range tags,
                         struct batoni_mpi_header *header)
{
	if (n != BATONI_MPI_HEADER_BYTES || !read_header(bytes, header) ||
	    header->pieces != 0)
		return false;
	/* The slot is the sender's: it goes back to it, and no other rank uses it. */
	if (header->kind == BATONI_MPI_HEADER_WAITS)
		return header->body_tag < BATONI_SLOTS_LIMIT;
	return header->kind == BATONI_MPI_HEADER_BODY &&
	       within(tags, header->body_tag);
}

bool
batoni_mpi_list_decode(const void *bytes, size_t n,
                       struct batoni_mpi_range tags,
                       struct batoni_mpi_header *header, size_t *described_p)
{
	const unsigned char *behind =
		(const unsigned char *)bytes + BATONI_MPI_HEADER_BYTES;
	size_t described;

	if (n < BATONI_MPI_HEADER_BYTES + BATONI_MPI_LIST_STEP ||
	    !read_header(bytes, header))
		return false;
	described = batoni_tensors_stated_bytes(behind);
	*described_p = described;
	if (described < BATONI_TENSORS_FIXED_BYTES ||
	    described > BATONI_TENSORS_HEADER_MAX)
		return false;
	if (header->kind == BATONI_MPI_HEADER_LIST)
		return header->pieces == 0 && header->body_tag == 0 &&
		       header->length <= BATONI_MPI_LIST_ROOM &&
		       described + header->length <= BATONI_MPI_LIST_ROOM &&
		       n == batoni_mpi_list_part_bytes(
				    described + (size_t)header->length);
	if (header->pieces == 0 ||
	    n != batoni_mpi_list_part_bytes(described < BATONI_MPI_LIST_ROOM
	                                            ? described
	                                            : BATONI_MPI_LIST_ROOM))
		return false;
	if (header->kind == BATONI_MPI_HEADER_LIST_WAITS)
		return header->body_tag < BATONI_SLOTS_LIMIT;
	return header->kind == BATONI_MPI_HEADER_LIST_BODY &&
	       within(tags, header->body_tag);
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
