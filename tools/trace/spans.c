/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of times, as intervals that lie apart. */
#include "spans.h"

#include <stdlib.h>

#include "trace.h"

void
spans_add(struct spans *spans, int64_t begin, int64_t end)
{
	if (end <= begin)
		return;
	if (spans->count == spans->room) {
		size_t room = spans->room > 0 ? 2 * spans->room : 64;
		struct span *more = trace_alloc(room, sizeof(more[0]));

		for (size_t i = 0; i < spans->count; i++)
			more[i] = spans->at[i];
		free(spans->at);
		spans->at = more;
		spans->room = room;
	}
	spans->at[spans->count++] = (struct span){begin, end};
}

static int
compare(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return trace_order(x->begin, y->begin);
}

void
spans_join(struct spans *spans)
{
	size_t kept = 0;

	if (spans->count == 0)
		return;
	qsort(spans->at, spans->count, sizeof(spans->at[0]), compare);
	for (size_t i = 0; i < spans->count; i++) {
		struct span next = spans->at[i];

		if (kept > 0 && next.begin <= spans->at[kept - 1].end) {
			if (next.end > spans->at[kept - 1].end)
				spans->at[kept - 1].end = next.end;
		} else {
			spans->at[kept++] = next;
		}
	}
	spans->count = kept;
}

int64_t
spans_total(const struct spans *spans)
{
	int64_t total = 0;

	for (size_t i = 0; i < spans->count; i++)
		total += spans->at[i].end - spans->at[i].begin;
	return total;
}

int64_t
spans_common(const struct spans *a, const struct spans *b)
{
	int64_t total = 0;
	size_t i = 0, k = 0;

	while (i < a->count && k < b->count) {
		const struct span *x = &a->at[i], *y = &b->at[k];
		int64_t begin = x->begin > y->begin ? x->begin : y->begin;
		int64_t end = x->end < y->end ? x->end : y->end;

		total += end > begin ? end - begin : 0;
		if (x->end < y->end)
			i++;
		else
			k++;
	}
	return total;
}

void
spans_fini(struct spans *spans)
{
	free(spans->at);
	*spans = (struct spans){0};
}
