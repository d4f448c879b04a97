/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation of this layer in words, for a dump, and in numbers. */
#include "window.h"

#include <stdio.h>
#include <string.h>

#define NODES_TOLD 3u

/* "index 2 in context 0: 5 of 7 signals", for each counter that the wait names. */
static void
describe_wait(const struct batoni_rma *rma, uint32_t node, char *text,
              size_t size)
{
	uint32_t signals = (uint32_t)rma->base.signals_max;
	size_t used = 0;

	for (unsigned n = 0; node && used + 1 < size; n++) {
		const struct batoni_wait_node *at = batoni_node_at(rma, node);
		const struct batoni_counter *counter = at->counter;
		const struct batoni_channel *channel = counter->channel;
		uint32_t pair = (uint32_t)(counter - channel->link->counters);

		if (n == NODES_TOLD) {
			snprintf(text + used, size - used, ", ...");
			return;
		}
		snprintf(text + used, size - used,
		         "%sindex %u in context %u of rank %d: %llu of %llu",
		         n ? ", " : "",
		         pair % signals,
		         pair / signals,
		         channel->peer,
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

	if (batoni_transfer_is_barrier(transfer))
		batoni_barrier_describe(rma, transfer, text, size);
	else if (batoni_is_flush(transfer))
		text[0] = '\0';
	else if (transfer->direction == BATONI_WAIT)
		describe_wait(rma, pending->wait.nodes, text, size);
	else if (pending->put.signal_index == BATONI_NO_SIGNAL)
		snprintf(text, size, "no signal, in context %d", transfer->tag);
	else if (batoni_put_adds(pending) > 1)
		snprintf(text, size, "index %d in context %d, by %llu",
		         pending->put.signal_index, transfer->tag,
		         (unsigned long long)batoni_put_adds(pending));
	else
		snprintf(text, size, "index %d in context %d",
		         pending->put.signal_index, transfer->tag);
}

void
batoni_rma_counter(struct batoni_onesided *onesided,
                   const struct batoni_transfer *transfer, int *signal_index_p,
                   int *context_p)
{
	const struct batoni_rma *rma =
		(const struct batoni_rma *)(const void *)onesided;
	const struct batoni_pending *pending = &rma->pending[transfer->slot];
	bool waits = transfer->direction == BATONI_WAIT;

	if (batoni_is_flush(transfer)) {
		*signal_index_p = *context_p = -1;
		return;
	}
	*signal_index_p = waits ? pending->wait.signal_index
	                        : pending->put.signal_index;
	*context_p = waits ? pending->wait.context : transfer->tag;
}

/* Each counter that the wait names. */
static size_t
list_nodes(const struct batoni_rma *rma, uint32_t node,
           struct batoni_units units[], size_t max)
{
	const uint32_t signals = (uint32_t)rma->base.signals_max;
	size_t n = 0;

	for (; node && n < max; node = batoni_node_at(rma, node)->next) {
		const struct batoni_wait_node *at = batoni_node_at(rma, node);
		const struct batoni_channel *channel = at->counter->channel;
		uint32_t pair = (uint32_t)(at->counter - channel->link->counters);

		units[n++] = (struct batoni_units){
			.peer = channel->peer,
			.signal_index = (int)(pair % signals),
			.context = (int)(pair / signals),
			.units = at->units,
		};
	}
	return n;
}

size_t
batoni_rma_units(struct batoni_onesided *onesided,
                 const struct batoni_transfer *transfer, bool ended,
                 struct batoni_units units[], size_t max)
{
	const struct batoni_rma *rma =
		(const struct batoni_rma *)(const void *)onesided;
	const struct batoni_pending *pending = &rma->pending[transfer->slot];

	if (batoni_transfer_is_barrier(transfer) || batoni_is_flush(transfer))
		return 0;
	units[0].peer = transfer->peer;
	if (transfer->direction != BATONI_WAIT) {
		units[0].signal_index = pending->put.signal_index;
		units[0].context = transfer->tag;
		units[0].units = pending->put.signal_index == BATONI_NO_SIGNAL
		                         ? 0
		                         : batoni_put_adds(pending);
		return 1;
	}
	units[0].signal_index = pending->wait.signal_index;
	units[0].context = pending->wait.context;
	units[0].units = pending->wait.units;
	if (ended || pending->wait.signal_index >= 0)
		return 1;
	return 1 + list_nodes(rma, pending->wait.nodes, units + 1, max - 1);
}
