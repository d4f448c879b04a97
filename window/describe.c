/* SPDX-License-Identifier: BSD-3-Clause */
/* What a placed operation of this layer is about, for a dump. */
#include "window.h"

#include <stdio.h>
#include <string.h>

#define NODES_TOLD 3u

/* "index 2 in context 0: 5 of 7 signals", for each counter that the wait names. */
static void
describe_wait(const struct batoni_rma *rma, uint32_t node, char *text,
              size_t size)
{
	uint32_t per_source = (uint32_t)rma->base.contexts_max *
	                      (uint32_t)rma->base.signals_max;
	size_t used = 0;

	for (unsigned n = 0; node && used + 1 < size; n++) {
		const struct batoni_wait_node *at = &rma->nodes[node];
		const struct batoni_counter *counter =
			&rma->counters[at->counter];
		uint32_t pair = at->counter % per_source;

		if (n == NODES_TOLD) {
			snprintf(text + used, size - used, ", ...");
			return;
		}
		snprintf(text + used, size - used,
		         "%sindex %u in context %u of rank %d: %llu of %llu",
		         n ? ", " : "",
		         pair % (uint32_t)rma->base.signals_max,
		         pair / (uint32_t)rma->base.signals_max,
		         batoni_counter_source(rma, at->counter),
		         (unsigned long long)atomic_load(counter->value),
		         (unsigned long long)at->target);
		used += strlen(text + used);
		node = at->next;
	}
}

void
batoni_rma_describe(struct batoni_onesided *onesided,
                    const struct batoni_transfer *transfer, char *text,
                    size_t size)
{
	const struct batoni_rma *rma =
		(const struct batoni_rma *)(const void *)onesided;
	const struct batoni_pending *pending = &rma->pending[transfer->slot];

	if (transfer->direction == BATONI_WAIT)
		describe_wait(rma, pending->wait.nodes, text, size);
	else
		snprintf(text, size, "index %d in context %d",
		         pending->put.signal_index, transfer->tag);
}
