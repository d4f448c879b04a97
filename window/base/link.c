/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state that a rank keeps for each peer that it talks to.
 *
 * A link holds the one-sided layer's state of one peer: the channels to it, by context,
 * and the counters of its signals.  A wire is a channel's part of the path by messages: a
 * lane, a receive, and their buffers.  A peer that this rank does not talk to costs 8 bytes,
 * an entry of rma->links, and one byte for the path of signals.
 *
 * Creation.  Nothing is allocated between enqueue and completion, so the call that
 * enqueues creates what its operation will need: a link for a put, signal or wait, and a
 * wire where a put or signal may go by message.  If it cannot, it returns NOMEM.
 * baton_signal_count creates a link too.  At the target a wire is created when the first
 * message of a channel is announced (message.c); the announcement waits until there is
 * memory for it.
 *
 * Any thread creates them and publishes them by a compare-and-swap (release); readers load
 * with acquire.  They stay until the communicator is freed.  Their contents belong to the
 * driver, except the fields that rma.h names.
 *
 * Segments are sparse.  The counters of one source take a block of 64 bytes or more of
 * the target's segment, and the block's pages come into being when either side makes its
 * link: the source for the block that it stores into, the target for the same block, from
 * which it reads.  batoni_shm_populate does that and says when there is no memory; a
 * store into a page that is not there could kill the process (SIGBUS).
 */
#include "rma.h"

#include "mem.h"

static struct batoni_link *
link_new(struct batoni_rma *rma, int peer)
{
	size_t contexts = (size_t)rma->base.contexts_max;
	size_t signals = (size_t)rma->base.signals_max;
	size_t head = sizeof(struct batoni_link) +
	              contexts * sizeof(struct batoni_channel);
	size_t counters = contexts * signals * sizeof(struct batoni_counter);
	struct batoni_link *link = batoni_alloc(1, head + counters);

	if (!link)
		return NULL;
	link->counters = (struct batoni_counter *)(void *)((char *)link + head);
	for (int i = 0; i < (int)contexts; i++) {
		struct batoni_channel *channel = &link->channels[i];

		channel->link = link;
		channel->peer = peer;
		channel->context = i;
		channel->stores = rma->signal_path[peer] ==
		                  BATON_WINDOW_PATH_DIRECT;
		batoni_list_init(&channel->queue);
		batoni_list_init(&channel->active);
	}
	for (size_t i = 0; i < contexts * signals; i++) {
		struct batoni_counter *counter = &link->counters[i];

		counter->channel = &link->channels[i / signals];
		counter->value = batoni_segment_counter(
			rma, rma->transport->peers[rma->rank].segment, peer,
			(int)(i % signals), (int)(i / signals));
		batoni_list_init(&counter->nodes);
	}
	return link;
}

/* Populate the block of this rank's segment that the peer stores into, and the block of the
 * peer's segment that this rank stores into. */
static bool
populate(const struct batoni_rma *rma, int peer)
{
	const struct batoni_peer *peers = rma->transport->peers;
	void *ours = peers[rma->rank].segment;
	void *theirs = peers[peer].segment;

	if (!rma->transport->sparse_segments)
		return true;
	return batoni_shm_populate(batoni_segment_counter(rma, ours, peer, 0, 0),
	                           rma->source_bytes) &&
	       (!theirs ||
	        batoni_shm_populate(batoni_segment_counter(rma, theirs, rma->rank,
	                                                   0, 0),
	                            rma->source_bytes));
}

struct batoni_link *
batoni_link_make(struct batoni_rma *rma, int peer)
{
	struct batoni_link *link = batoni_link_of(rma, peer), *other = NULL;

	if (link)
		return link;
	atomic_store(&rma->base.used, true);
	if (!populate(rma, peer))
		return NULL;
	link = link_new(rma, peer);
	if (!link)
		return NULL;
	if (atomic_compare_exchange_strong(&rma->links[peer], &other, link))
		return link;
	batoni_free(link);
	return other;
}

enum baton_status
batoni_links_open(struct batoni_rma *rma)
{
	rma->links = batoni_alloc((size_t)rma->size, sizeof(*rma->links));
	return rma->links ? BATON_OK : BATON_ERR_NOMEM;
}

void
batoni_links_close(struct batoni_rma *rma)
{
	for (int peer = 0; rma->links && peer < rma->size; peer++) {
		struct batoni_link *link = batoni_link_of(rma, peer);

		for (int i = 0; link && i < rma->base.contexts_max; i++)
			batoni_free(batoni_wire_of(&link->channels[i]));
		batoni_free(link);
	}
	batoni_free(rma->links);
	rma->links = NULL;
}
