/* SPDX-License-Identifier: BSD-3-Clause */
/* The decoders of staging.  Nothing here has state. */
#include "stage_header.h"

#include <string.h>

#define MAGIC 0x67617473u /* "stag" */
#define VERSION 1u

void
batoni_stage_header_init(struct stage_header *header)
{
	*header = (struct stage_header){.magic = MAGIC, .version = VERSION};
}

bool
batoni_stage_header_decode(const void *bytes, size_t n, int size,
                           uint32_t slots, struct stage_header *header)
{
	size_t behind;

	if (n < sizeof(*header))
		return false;
	memcpy(header, bytes, sizeof(*header));
	behind = n - sizeof(*header);
	if (header->magic != MAGIC || header->version != VERSION ||
	    header->source >= (uint32_t)size || header->slot >= slots ||
	    header->piece == 0 || header->length > INT64_MAX ||
	    header->host > 1 || header->spare != 0)
		return false;
	if (header->kind == HEADER_EAGER)
		return behind == header->length;
	return header->kind == HEADER_ASKS && header->length > 0 && behind == 0;
}

bool
batoni_stage_grant_check(const struct stage_grant *grant, size_t n,
                         const struct stage_terms *terms)
{
	if (n != sizeof(*grant) || grant->slot >= terms->slots ||
	    terms->length == 0)
		return false;
	if (grant->kind == GRANT_DIRECT || grant->kind == GRANT_DROPS)
		return terms->piece == 0 &&
		       (grant->kind == GRANT_DROPS || terms->host);
	if (grant->kind != GRANT_PIECES || grant->piece == 0 ||
	    grant->piece > terms->most ||
	    (terms->piece != 0 && grant->piece != terms->piece))
		return false;
	return grant->granted > terms->granted &&
	       grant->granted <= (terms->length - 1) / grant->piece + 1;
}
