/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoders of staging.  Nothing here has state. */
#include "stage_header.h"

#include <string.h>

#include "tensors.h"

#define MAGIC 0x67617473u /* "stag" */
#define VERSION 4u

void
batoni_stage_header_init(struct stage_header *header)
{
	*header = (struct stage_header){.magic = MAGIC, .version = VERSION};
}

/* Do `behind` bytes follow the header as it says? */
static bool
is_followed(const struct stage_header *header, uint64_t behind)
{
	uint64_t list = header->list_bytes;
	bool described = list >= BATONI_TENSORS_FIXED_BYTES &&
	                 list <= BATONI_TENSORS_HEADER_MAX;

	switch (header->kind) {
	case HEADER_EAGER:
		return list == 0 && behind == header->length;
	case HEADER_ASKS:
		return list == 0 && header->length > 0 &&
		       (behind == 0 || behind == sizeof(struct stage_offer));
	case HEADER_LIST:
		return described && behind == list + header->length;
	case HEADER_LIST_ASKS:
		return described && behind >= BATONI_TENSORS_FIXED_BYTES &&
		       behind <= list && list - behind + header->length > 0;
	default:
		return false;
	}
}

bool
batoni_stage_header_decode(const void *bytes, size_t n, int size,
                           uint32_t slots, struct stage_header *header)
{
	if (n < sizeof(*header))
		return false;
	memcpy(header, bytes, sizeof(*header));
	if (header->magic != MAGIC || header->version != VERSION ||
	    header->source >= (uint32_t)size || header->slot >= slots ||
	    header->piece == 0 || header->length > INT64_MAX ||
	    header->host > 1 || header->type > BATON_DATATYPE_COUNT ||
	    (header->type > 0 && header->list_bytes > 0))
		return false;
	return is_followed(header, n - sizeof(*header));
}

bool
batoni_stage_offer_decode(const void *bytes, size_t n, uint64_t length,
                          struct stage_offer *offer)
{
	const struct batoni_offer *block = &offer->block;

	if (n != sizeof(*offer))
		return false;
	memcpy(offer, bytes, sizeof(*offer));
	if (block->status != BATON_OK || block->offered > 1)
		return false;
	if (!block->offered)
		return offer->gone != 0;
	return offer->number != 0 && block->offset <= block->bytes &&
	       length <= block->bytes - block->offset;
}

bool
batoni_stage_grant_check(const struct stage_grant *grant, size_t n,
                         const struct stage_terms *terms)
{
	if (n != sizeof(*grant) || grant->slot >= terms->slots ||
	    terms->length == 0)
		return false;
	if (grant->kind == GRANT_DROPS)
		return terms->piece == 0 || terms->list;
	if (grant->kind == GRANT_MAPPED)
		return terms->piece == 0 && terms->offered;
	if (grant->kind == GRANT_DIRECT)
		return terms->piece == 0 && terms->host;
	if (grant->kind != GRANT_PIECES || grant->piece == 0 ||
	    grant->piece > terms->most ||
	    (terms->piece != 0 && grant->piece != terms->piece))
		return false;
	return grant->granted > terms->granted &&
	       grant->granted <= (terms->length - 1) / grant->piece + 1;
}
