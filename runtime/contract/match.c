/* SPDX-License-Identifier: BSD-3-Clause */
#include "match.h"

#include <string.h>

bool
batoni_match_init(struct batoni_match *match, uint64_t nodes)
{
	return batoni_hash_init(&match->fronts, nodes);
}

void
batoni_match_fini(struct batoni_match *match)
{
	batoni_hash_fini(&match->fronts);
}

size_t
batoni_match_move(void *to, const void *from, size_t total, size_t moved, size_t most)
{
	size_t n = total - moved < most ? total - moved : most;
	size_t at = moved;

	assert(moved <= total);
	if ((uintptr_t)to > (uintptr_t)from)
		at = total - moved - n;
	memmove((char *)to + at, (const char *)from + at, n);
	return n;
}
