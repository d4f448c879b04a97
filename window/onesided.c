/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one-sided layer's implementation of its contract with the engine (onesided.h):
 * memory, dispatch by the kind of operation, and leaving.
 *
 * A rank's layer is created with its communicator, without the state of single peers
 * (link.c).  Signals need no window: the counters are in the segments that the transport
 * provides.  Signals go directly to peers whose segment is mapped, and by message to the
 * others; where BATON_WINDOW_PATH is "message" or "native", all go by message.
 *
 * Leaving: receives stay posted until the transport has left, and are taken back
 * then.  So a destroy that is refused changes nothing (message.c).
 */
#include "window.h"

#include <stdio.h>

#include "config.h"
#include "log.h"
#include "mem.h"

static const struct batoni_path_ops path_ops;

static void
layer_free(struct batoni_rma *rma)
{
	batoni_windows_close(rma);
	pthread_mutex_destroy(&rma->memories_lock);
	batoni_free(rma->pending);
	batoni_links_close(rma);
	batoni_barriers_close(rma);
	batoni_free(rma->signal_path);
	batoni_free(rma->intents);
	batoni_free(rma->rendezvous);
	batoni_free(rma);
}

static enum baton_status
layer_open(const struct batoni_onesided_config *config,
           struct batoni_onesided **onesided_p)
{
	struct batoni_rma *rma = batoni_alloc(1, sizeof(*rma));
	enum baton_status status = BATON_ERR_NOMEM;

	if (!rma)
		return BATON_ERR_NOMEM;
	rma->base.ops = &batoni_onesided_ops;
	rma->base.path.ops = &path_ops;
	rma->size = config->size;
	rma->requests_max = config->requests_max;
	rma->base.signals_max = config->signals_max;
	rma->base.contexts_max = config->contexts_max;
	rma->source_bytes = batoni_onesided_source_bytes(config->signals_max,
	                                                 config->contexts_max);
	pthread_mutex_init(&rma->memories_lock, NULL);
	batoni_list_init(&rma->windows);
	batoni_list_init(&rma->memories);
	batoni_list_init(&rma->channels_active);
	batoni_unended_init(rma);
	rma->pending = batoni_alloc(config->requests_max, sizeof(*rma->pending));
	rma->signal_path = batoni_alloc((size_t)config->size,
	                                sizeof(*rma->signal_path));
	if (!rma->pending || !rma->signal_path ||
	    batoni_links_open(rma) != BATON_OK)
		goto free_layer;
	if (batoni_barriers_open(rma) != BATON_OK ||
	    batoni_nodes_open(rma) != BATON_OK)
		goto free_layer;
	if (batoni_messages_open(rma) != BATON_OK)
		goto close_waits;
	if (config->device)
		status = batoni_bounces_open(rma, config->device,
		                             config->until_ns);
	if (config->device && status != BATON_OK)
		goto close_messages;
	*onesided_p = &rma->base;
	return BATON_OK;
close_messages:
	batoni_messages_close(rma, false);
close_waits:
	batoni_nodes_close(rma);
free_layer:
	layer_free(rma);
	return status;
}

static void
layer_start(struct batoni_onesided *onesided, struct baton_comm *comm)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	unsigned forced = batoni_config()->window_path;
	bool messages;

	rma->comm = comm;
	rma->asks = !comm->device_ops->memory->host_only;
	rma->transport = batoni_hosts_of(comm->transport);
	rma->native = comm->transport->puts ? comm->transport : NULL;
	messages = forced == BATON_WINDOW_PATH_MESSAGE ||
	           (forced == BATON_WINDOW_PATH_NATIVE && rma->native);
	rma->rank = comm->rank;
	for (int peer = 0; peer < rma->size; peer++) {
		rma->signal_path[peer] =
			rma->transport->peers[peer].segment && !messages
				? (unsigned char)BATON_WINDOW_PATH_DIRECT
				: (unsigned char)BATON_WINDOW_PATH_MESSAGE;
		rma->base.signal_paths |= rma->signal_path[peer];
	}
	batoni_messages_start(rma);
	batoni_barriers_start(rma);
	batoni_mapped_start(rma);
	if (!(rma->base.signal_paths & BATON_WINDOW_PATH_MESSAGE))
		return;
	batoni_lock();
	if (rma->transport->unbuffered)
		batoni_messages_listen(rma, 1); /* until it is closed */
	else if (rma->transport->messages.load.quiet)
		batoni_messages_post(rma);
	batoni_unlock();
}

static void
layer_place(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = batoni_rma_from(batoni_onesided_of(path));

	if (batoni_transfer_is_barrier(transfer))
		batoni_barrier_place(rma, transfer);
	else if (batoni_is_flush(transfer))
		batoni_flush_place(rma, transfer);
	else if (transfer->direction == BATONI_WAIT)
		batoni_wait_place(rma, transfer);
	else
		batoni_put_place(rma, transfer);
}

static void
unplace_put(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	batoni_put_unplace(rma, transfer);
	if (rma->mapped)
		batoni_mapped_host_ended(rma, transfer);
}

static void
layer_unplace(struct batoni_path *path,
              struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = batoni_rma_from(batoni_onesided_of(path));

	/* A flush has nothing to undo. */
	if (batoni_is_flush(transfer))
		return;
	if (batoni_transfer_is_barrier(transfer))
		batoni_barrier_unplace(rma, transfer);
	else if (transfer->direction == BATONI_WAIT)
		batoni_wait_unplace(rma, transfer);
	else
		unplace_put(rma, transfer);
}

/* Where some puts go on streams (mapped.c). */
static enum baton_status
issue_beside_streams(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	const struct batoni_channel *channel =
		batoni_channel_of(rma, transfer->peer, transfer->tag);
	enum baton_status status;

	if (atomic_load_explicit(&channel->streamed, memory_order_acquire) > 0)
		return batoni_put_issue_behind(rma, transfer);
	status = batoni_put_issue(rma, transfer);
	if (status != BATON_PENDING)
		batoni_mapped_host_ended(rma, transfer);
	return status;
}

static enum baton_status
layer_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = batoni_rma_from(batoni_onesided_of(path));

	/* The call came before. */
	if (unlikely(atomic_load_explicit(&rma->comm->driving.lost_lower,
	                                  memory_order_relaxed)))
		return BATON_ERR_ABORTED;
	if (batoni_transfer_is_barrier(transfer))
		return batoni_barrier_issue(rma, transfer);
	if (batoni_is_flush(transfer))
		return batoni_flush_issue(rma, transfer);
	if (transfer->direction == BATONI_WAIT)
		return batoni_wait_start(rma, transfer);
	return rma->mapped ? issue_beside_streams(rma, transfer)
	                   : batoni_put_issue(rma, transfer);
}

/* Messages are first, because they may end waits; flushes are last, because all may end them. */
static size_t
layer_test(struct batoni_path *path)
{
	struct batoni_rma *rma = batoni_rma_from(batoni_onesided_of(path));

	return batoni_messages_test(rma) + batoni_puts_test(rma) +
	       batoni_waits_test(rma) + batoni_barriers_test(rma) +
	       batoni_flushes_test(rma);
}

static enum baton_status
layer_take_back(struct batoni_path *path,
                struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = batoni_rma_from(batoni_onesided_of(path));
	enum baton_status status;

	if (batoni_transfer_is_barrier(transfer))
		return batoni_barrier_take_back(rma, transfer);
	if (batoni_is_flush(transfer))
		return batoni_flush_take_back(rma, transfer);
	if (transfer->direction == BATONI_WAIT)
		return batoni_wait_take_back(rma, transfer);
	status = batoni_put_take_back(rma, transfer);
	if (status != BATON_ERR_BUSY && rma->mapped)
		batoni_mapped_host_ended(rma, transfer);
	return status;
}

/* Of this layer nothing is on a stream, but what is LENT has no end of its own. */
static bool
layer_abort(struct batoni_path *path)
{
	batoni_gets_give_up(batoni_rma_from(batoni_onesided_of(path)));
	return true;
}

static void
layer_message_done(struct batoni_onesided *onesided,
                   struct batoni_transfer *transfer, enum baton_status status)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);

	if (transfer->tag == batoni_barrier_tag(rma))
		batoni_barrier_message_done(rma, transfer, status);
	else
		batoni_message_done(rma, transfer, status);
}

static unsigned
count(const struct batoni_list_node *list)
{
	unsigned n = 0;

	for (const struct batoni_list_node *node = list->next; node != list;
	     node = node->next)
		n++;
	return n;
}

static const char *
layer_alive(struct batoni_onesided *onesided)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	unsigned windows, memories;

	batoni_lock();
	windows = count(&rma->windows);
	batoni_unlock();
	pthread_mutex_lock(&rma->memories_lock);
	memories = count(&rma->memories);
	pthread_mutex_unlock(&rma->memories_lock);
	if (windows + memories == 0)
		return NULL;
	snprintf(rma->alive_text, sizeof(rma->alive_text),
	         "%u window%s and %u block%s of baton_mem_alloc", windows,
	         batoni_s(windows), memories, batoni_s(memories));
	return rma->alive_text;
}

static enum baton_status
layer_drain(struct batoni_onesided *onesided)
{
	return batoni_messages_drain(batoni_rma_from(onesided));
}

static enum baton_status
layer_leave(struct batoni_onesided *onesided)
{
	return batoni_messages_leave(batoni_rma_from(onesided));
}

static void
layer_close(struct batoni_onesided *onesided, bool aborted)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);

	if (rma->asks)
		batoni_puts_close(rma);
	batoni_bounces_close(rma, rma->comm && rma->comm->patience.copies_left);
	batoni_messages_close(rma, aborted);
	batoni_nodes_close(rma);
	layer_free(rma);
}

static const struct batoni_path_ops path_ops = {
	.name = "the one-sided layer",
	.kinds = BATONI_ONESIDED | BATONI_COLLECTIVE,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = layer_issue,
		.take_back = layer_take_back,
	},
	.placing = &(const struct batoni_placing_ops){
		.place = layer_place,
		.unplace = layer_unplace,
	},
	.aborting = &(const struct batoni_aborting_ops){.abort = layer_abort},
	.test = layer_test,
};

static const struct batoni_beside_ops beside = {
	.targets = batoni_elsewhere_targets,
	.signal = batoni_elsewhere_signal,
	.hold = batoni_elsewhere_hold,
	.drop = batoni_elsewhere_drop,
};

const struct batoni_onesided_ops batoni_onesided_ops = {
	.beside = &beside,
	.open = layer_open,
	.start = layer_start,
	.describe = batoni_rma_describe,
	.counter = batoni_rma_counter,
	.units = batoni_rma_units,
	.message_done = layer_message_done,
	.forget = batoni_elsewhere_forget,
	.alive = layer_alive,
	.drain = layer_drain,
	.leave = layer_leave,
	.close = layer_close,
};
