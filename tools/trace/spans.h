/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BATON_TOOL_TRACE_SPANS_H
#define BATON_TOOL_TRACE_SPANS_H

#include <stddef.h>
#include <stdint.h>

struct span {
	int64_t begin, end;
};

/* {0} is empty. */
struct spans {
	struct span *at;
	size_t count, room;
};

void spans_add(struct spans *spans, int64_t begin, int64_t end);
/* Sort them, and make one of those that touch.  The two below want that. */
void spans_join(struct spans *spans);
int64_t spans_total(const struct spans *spans);
/* What is in both. */
int64_t spans_common(const struct spans *a, const struct spans *b);
void spans_fini(struct spans *spans);

#endif
