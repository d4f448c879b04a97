/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers and grants of MPI and of staging.  The first byte chooses the decoder.  What is
 * accepted can be used without another look: a tag is one of those that there are, a slot one
 * of a table, a piece not longer than a chunk.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "mpi_header.h"
#include "stage_header.h"
#include "tensors.h"

enum { MPI_HEADER, MPI_LIST, MPI_GRANT, STAGE_HEADER, STAGE_GRANT, DECODERS };
enum { SIZE = 8, SLOTS = 4096, FIRST_TAG = 1 << 16, END_TAG = 1 << 20 };
enum { LENGTH = 100000, CHUNK = 1000 };

static const struct batoni_mpi_range tags = {FIRST_TAG, END_TAG};
static const struct batoni_mpi_range slots = {0, SLOTS};

static void
seed(int decoder, const void *content, size_t n)
{
	unsigned char bytes[2048] = {(unsigned char)decoder};

	memcpy(bytes + 1, content, n);
	fuzz_seed(bytes, n + 1);
}

void
seeds(void)
{
	const struct batoni_mpi_grant mpi_grant = {5, FIRST_TAG};
	const struct stage_grant grant = {GRANT_PIECES, 5, CHUNK, 2};
	struct batoni_mpi_header mpi;
	unsigned char eager[sizeof(struct stage_header) + 7] = {0};
	unsigned char list[sizeof(struct stage_header) +
	                   BATONI_TENSORS_FIXED_BYTES + 16] = {0};
	unsigned char asks[sizeof(struct stage_header) +
	                   sizeof(struct stage_offer)] = {0};
	struct stage_header header;
	struct stage_offer offer;

	memset(&offer, 0, sizeof(offer));
	batoni_mpi_header_make(&mpi, BATONI_MPI_HEADER_BODY, LENGTH, FIRST_TAG);
	seed(MPI_HEADER, &mpi, BATONI_MPI_HEADER_BYTES);
	batoni_mpi_header_make(&mpi, BATONI_MPI_HEADER_WAITS, LENGTH, 5);
	seed(MPI_HEADER, &mpi, BATONI_MPI_HEADER_BYTES);
	mpi.type = BATON_FLOAT64 + 1;
	seed(MPI_HEADER, &mpi, BATONI_MPI_HEADER_BYTES);
	for (unsigned kind = BATONI_MPI_HEADER_LIST;
	     kind <= BATONI_MPI_HEADER_LIST_WAITS; kind++) {
		const struct baton_tensor one = {
			.type = BATON_INT8, .rank = 1, .shape = {90}};
		unsigned char part[2000] = {0};
		bool inside = kind == BATONI_MPI_HEADER_LIST;
		size_t front = batoni_mpi_list_front(kind);

		batoni_mpi_header_make(&mpi, kind, 90, inside ? 0 : FIRST_TAG);
		mpi.pieces = !inside;
		memcpy(part, &mpi, front);
		batoni_tensors_encode(&one, 1, 90, part + front);
		seed(MPI_LIST, part,
		     batoni_mpi_list_part_bytes(front + 40 + (inside ? 90 : 0)));
	}
	seed(MPI_GRANT, &mpi_grant, sizeof(mpi_grant));
	batoni_stage_header_init(&header);
	header.kind = HEADER_ASKS;
	header.length = LENGTH;
	header.piece = CHUNK;
	seed(STAGE_HEADER, &header, sizeof(header));
	memcpy(asks, &header, sizeof(header));
	offer.block.offered = 1;
	offer.block.bytes = 2 * LENGTH;
	offer.block.offset = LENGTH;
	offer.number = 3;
	memcpy(asks + sizeof(header), &offer, sizeof(offer));
	seed(STAGE_HEADER, asks, sizeof(asks));
	memset(&offer, 0, sizeof(offer));
	offer.gone = 3;
	memcpy(asks + sizeof(header), &offer, sizeof(offer));
	seed(STAGE_HEADER, asks, sizeof(asks));
	header.kind = HEADER_EAGER;
	header.length = 7;
	memcpy(eager, &header, sizeof(header));
	seed(STAGE_HEADER, eager, sizeof(eager));
	header.type = BATON_FLOAT64 + 1;
	memcpy(eager, &header, sizeof(header));
	seed(STAGE_HEADER, eager, sizeof(eager));
	header.type = 0;
	header.kind = HEADER_LIST_ASKS;
	header.list_bytes = BATONI_TENSORS_FIXED_BYTES + 16;
	header.length = LENGTH;
	memcpy(list, &header, sizeof(header));
	seed(STAGE_HEADER, list, sizeof(list));
	header.kind = HEADER_LIST;
	header.length = 0;
	memcpy(list, &header, sizeof(header));
	seed(STAGE_HEADER, list, sizeof(list));
	seed(STAGE_GRANT, &grant, sizeof(grant));
}

static void
mpi_header(const unsigned char *bytes, size_t n)
{
	struct batoni_mpi_header header;

	if (!batoni_mpi_header_decode(bytes, n, tags, &header))
		return;
	CLAIM(header.length <= INT64_MAX);
	CLAIM(header.type <= BATON_DATATYPE_COUNT);
	CLAIM(header.kind == BATONI_MPI_HEADER_WAITS ||
	      (header.body_tag >= FIRST_TAG && header.body_tag < END_TAG));
}

static void
mpi_list(const unsigned char *bytes, size_t n)
{
	struct batoni_mpi_header header;
	size_t described, front;

	if (!batoni_mpi_list_decode(bytes, n, tags, &header, &described))
		return;
	front = batoni_mpi_list_front(header.kind);
	CLAIM(described >= BATONI_TENSORS_FIXED_BYTES);
	CLAIM(described <= BATONI_TENSORS_HEADER_MAX);
	if (header.kind == BATONI_MPI_HEADER_LIST) {
		CLAIM(front + described + header.length <= n);
		return;
	}
	CLAIM(front + (described < BATONI_MPI_LIST_ROOM
	                       ? described
	                       : BATONI_MPI_LIST_ROOM) <=
	      n);
	CLAIM(header.pieces > 0);
	CLAIM(header.kind == BATONI_MPI_HEADER_LIST_WAITS ||
	      (header.body_tag >= FIRST_TAG && header.body_tag < END_TAG));
}

static void
mpi_grant(const unsigned char *bytes, size_t n)
{
	struct batoni_mpi_grant grant;

	if (!batoni_mpi_grant_decode(bytes, n, tags, slots, &grant))
		return;
	CLAIM(grant.slot < SLOTS);
	CLAIM(grant.tag >= FIRST_TAG && grant.tag < END_TAG);
}

/* What a receive copies is in the block that the sender says it has. */
static void
stage_offer(const unsigned char *bytes, size_t n, uint64_t length)
{
	struct stage_offer offer;

	if (!batoni_stage_offer_decode(bytes, n, length, &offer))
		return;
	CLAIM(n == sizeof(offer));
	CLAIM(offer.block.offered <= 1 && (offer.block.offered || offer.gone));
	if (!offer.block.offered)
		return;
	CLAIM(offer.number > 0);
	CLAIM(offer.block.offset + length >= length &&
	      offer.block.offset + length <= offer.block.bytes);
}

static void
stage_header(const unsigned char *bytes, size_t n)
{
	struct stage_header header;

	if (!batoni_stage_header_decode(bytes, n, SIZE, SLOTS, &header))
		return;
	CLAIM(header.source < SIZE && header.slot < SLOTS);
	CLAIM(header.length <= INT64_MAX);
	CLAIM(header.piece > 0);
	CLAIM(header.type <= BATON_DATATYPE_COUNT);
	CLAIM(header.type == 0 || header.list_bytes == 0);
	if (header.kind == HEADER_ASKS)
		CLAIM(n == sizeof(header) ||
		      n == sizeof(header) + sizeof(struct stage_offer));
	if (header.kind == HEADER_ASKS)
		stage_offer(bytes + sizeof(header), n - sizeof(header),
		            header.length);
	else if (header.kind == HEADER_EAGER || header.kind == HEADER_LIST)
		CLAIM(header.list_bytes + header.length == n - sizeof(header));
	else
		CLAIM(header.list_bytes + header.length > n - sizeof(header));
	if (header.kind == HEADER_LIST || header.kind == HEADER_LIST_ASKS)
		CLAIM(n - sizeof(header) >= BATONI_TENSORS_FIXED_BYTES &&
		      header.list_bytes >= BATONI_TENSORS_FIXED_BYTES &&
		      header.list_bytes <= BATONI_TENSORS_HEADER_MAX);
	else
		CLAIM(header.list_bytes == 0);
}

/* Grants come one after the other, as long as they are accepted. */
static void
stage_grants(const unsigned char *bytes, size_t n)
{
	struct stage_terms terms = {.slots = SLOTS,
	                            .length = LENGTH,
	                            .most = CHUNK,
	                            .offered = n % 2 == 0};
	uint64_t pieces;

	for (struct stage_grant grant; n >= sizeof(grant);
	     bytes += sizeof(grant), n -= sizeof(grant)) {
		memcpy(&grant, bytes, sizeof(grant));
		if (!batoni_stage_grant_check(&grant, sizeof(grant), &terms))
			return;
		CLAIM(grant.slot < SLOTS);
		CLAIM(grant.kind != GRANT_MAPPED ||
		      (terms.offered && terms.piece == 0));
		if (grant.kind != GRANT_PIECES)
			return;
		CLAIM(grant.piece > 0 && grant.piece <= CHUNK);
		pieces = (LENGTH - 1) / grant.piece + 1;
		CLAIM(grant.granted > terms.granted && grant.granted <= pieces);
		CLAIM(terms.piece == 0 || grant.piece == terms.piece);
		terms.piece = grant.piece;
		terms.granted = grant.granted;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	unsigned char *copy;

	if (n == 0)
		return 0;
	copy = fuzz_copy(bytes + 1, n - 1);
	switch (bytes[0] % DECODERS) {
	case MPI_HEADER:
		mpi_header(copy, n - 1);
		break;
	case MPI_LIST:
		mpi_list(copy, n - 1);
		break;
	case MPI_GRANT:
		mpi_grant(copy, n - 1);
		break;
	case STAGE_HEADER:
		stage_header(copy, n - 1);
		break;
	default:
		stage_grants(copy, n - 1);
	}
	free(copy);
	return 0;
}
