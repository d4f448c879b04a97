/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts, signals and waits that another path carries (runtime/contract/path.h): copies and waits that
 * live on a device's streams.  The layer has checked and described the operation as it does
 * its own.  It tells the path where the bytes go and which counters are meant, and keeps the
 * window, and the nodes of a wait, until the operation has ended.  A wait that is carried
 * elsewhere gets its units from its path, so all waits of a communicator go one way.
 */
#include "carry.h"

static size_t
target_of_put(const struct batoni_rma *rma,
              const struct batoni_transfer *transfer,
              struct batoni_target *target)
{
	const struct batoni_pending *put = &rma->pending[transfer->slot];
	void *segment = rma->transport->peers[transfer->peer].segment;
	const struct batoni_window_peer *part =
		put->put.window ? &put->put.window->peers[transfer->peer] : NULL;

	if (!segment || (part && transfer->bytes &&
	                 part->path != BATON_WINDOW_PATH_DIRECT))
		return 0;
	*target = (struct batoni_target){
		.peer = transfer->peer,
		.signal_index = put->put.signal_index,
		.context = transfer->tag,
		.counter = put->put.signal_index == BATONI_NO_SIGNAL
	                           ? NULL
	                           : batoni_segment_counter(
					     rma, segment, rma->rank,
					     put->put.signal_index,
					     transfer->tag),
		.units = batoni_put_adds(put),
		.data = part && transfer->bytes ? part->base + put->put.offset
	                                        : NULL,
	};
	return 1;
}

size_t
batoni_elsewhere_targets(struct batoni_onesided *onesided,
                         const struct batoni_transfer *transfer,
                         struct batoni_target *targets, size_t max)
{
	const struct batoni_rma *rma = batoni_rma_from(onesided);
	struct batoni_target target;
	size_t n = 0;

	if (transfer->direction != BATONI_WAIT) {
		n = target_of_put(rma, transfer, &target);
		if (n && max)
			targets[0] = target;
		return n;
	}
	for (uint32_t i = rma->pending[transfer->slot].wait.nodes; i;
	     i = batoni_node_at(rma, i)->next, n++) {
		const struct batoni_wait_node *node = batoni_node_at(rma, i);
		const struct batoni_channel *channel = node->counter->channel;

		if (n >= max)
			continue;
		targets[n] = (struct batoni_target){
			.peer = channel->peer,
			.signal_index =
				(int)(node->counter - channel->link->counters) %
				rma->base.signals_max,
			.context = channel->context,
			.counter = node->counter->value,
			.units = node->units,
		};
	}
	return n;
}

void
batoni_elsewhere_signal(struct batoni_onesided *onesided,
                        const struct batoni_target *target)
{
	if (target->counter)
		batoni_signal_store(batoni_rma_from(onesided), target->peer,
		                    target->signal_index, target->context,
		                    target->units);
}

void
batoni_elsewhere_forget(struct batoni_onesided *onesided,
                        struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	struct baton_window *window;

	if (batoni_transfer_is_barrier(transfer) || batoni_is_flush(transfer))
		return;
	if (transfer->direction == BATONI_WAIT) {
		batoni_wait_forget(rma, transfer->slot);
		return;
	}
	batoni_mapped_host_ended(rma, transfer);
	/* The call that described it entered. */
	window = rma->pending[transfer->slot].put.window;
	if (window)
		atomic_fetch_sub(&window->entering, 1);
}

void
batoni_elsewhere_hold(struct batoni_onesided *onesided,
                      struct batoni_transfer *transfer)
{
	if (transfer->direction != BATONI_WAIT)
		batoni_put_place(batoni_rma_from(onesided), transfer);
}

void
batoni_elsewhere_drop(struct batoni_onesided *onesided,
                      struct batoni_transfer *transfer)
{
	if (transfer->direction == BATONI_WAIT)
		batoni_wait_forget(batoni_rma_from(onesided), transfer->slot);
	else
		batoni_put_unplace(batoni_rma_from(onesided), transfer);
}
