/* SPDX-License-Identifier: BSD-3-Clause */
#include "segments.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "mem.h"

/* What of a rank reaches the segment of another. */
enum { HOSTS = 1, STREAMS = 2 };

static_assert(sizeof(struct batoni_segments_card) <= BATONI_CARD_BYTES,
              "it is a card");

/* In the segment of a rank, the byte of another. */
static _Atomic unsigned char *
flag_of(const struct batoni_segments *segments, void *segment, int rank)
{
	return (_Atomic unsigned char *)((char *)segment + segments->flags_at) + rank;
}

enum baton_status
batoni_segments_make(struct batoni_segments *segments,
                     struct batoni_transport *transport, int size,
                     const struct batoni_transport_config *config)
{
	size_t ranks = (size_t)size;
	enum baton_status status;

	if (config->segment_bytes == 0)
		return BATON_OK;
	batoni_stores_init(&segments->stores, config);
	transport->peers = batoni_alloc(ranks, sizeof(*transport->peers));
	if (!transport->peers)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for what %d ranks share", size);
	for (size_t rank = 0; rank < ranks; rank++)
		transport->peers[rank].pidfd = -1;
	segments->flags_at = (config->segment_bytes + 63) / 64 * 64;
	status = batoni_shm_create_sparse(segments->flags_at + ranks,
	                                  &segments->segment,
	                                  &transport->sparse_segments);
	/* The others write there before they look. */
	if (status == BATON_OK && transport->sparse_segments &&
	    !batoni_shm_populate((char *)segments->segment.base +
	                                 segments->flags_at,
	                         ranks))
		status = batoni_refuse(BATON_ERR_NOMEM,
		                       "no shared memory for what %d ranks tell "
		                       "each other",
		                       size);
	return status;
}

void
batoni_segments_write_card(const struct batoni_segments *segments,
                           struct batoni_segments_card *card)
{
	memset(card, 0, sizeof(*card));
	batoni_shm_name(&segments->segment, &card->segment);
	card->has_bell = batoni_bell_name(&card->bell);
	card->pid = (int32_t)getpid();
}

/* The segment and the bell, or neither. */
static void
map_peer(struct batoni_peer *peer, const struct batoni_segments_card *card,
         size_t segment_bytes)
{
	void *base, *bell = batoni_bell();

	if (!card->has_bell || card->segment.bytes != segment_bytes ||
	    batoni_shm_map(&card->segment, 0, segment_bytes, &base) != BATON_OK)
		return;
	if (!peer->within && batoni_shm_map(&card->bell, 0, sizeof(*peer->bell),
	                                    &bell) != BATON_OK) {
		batoni_shm_unmap(base, segment_bytes);
		return;
	}
	peer->segment = base;
	peer->bell = bell;
}

static void
meet_peer(struct batoni_segments *segments,
          struct batoni_transport *transport, int rank,
          const struct batoni_segments_card *card)
{
	struct batoni_peer *peer = &transport->peers[rank];

	if (rank == transport->rank) {
		*peer = (struct batoni_peer){
			.segment = segments->segment.base,
			.bell = batoni_bell(),
			.pid = getpid(),
			.pidfd = -1,
			.within = true,
		};
		return;
	}
	if (!batoni_shm_is_here(&card->segment))
		return;
	peer->within = card->pid == getpid();
	if (!peer->within)
		peer->pidfd = batoni_pidfd_open(card->pid);
	/* Without it, another process could have the number later. */
	if (peer->within || peer->pidfd >= 0)
		peer->pid = card->pid;
	if (batoni_config()->window_path != BATON_WINDOW_PATH_MESSAGE)
		map_peer(peer, card, segments->segment.bytes);
}

void
batoni_segments_meet(struct batoni_segments *segments,
                     struct batoni_transport *transport,
                     const struct batoni_cards *cards)
{
	if (!transport->peers)
		return;
	batoni_stores_begin(&segments->stores);
	for (int rank = 0; rank < transport->size; rank++) {
		const struct batoni_segments_card *card = batoni_card_of(cards, rank);
		struct batoni_peer *peer = &transport->peers[rank];
		unsigned char reached;

		meet_peer(segments, transport, rank, card);
		batoni_stores_reach(&segments->stores, transport, rank,
		                    &card->segment);
		reached = (unsigned char)((peer->segment ? HOSTS : 0) |
		                          (peer->streams ? STREAMS : 0));
		if (peer->segment)
			atomic_store(flag_of(segments, peer->segment,
			                     transport->rank),
			             reached);
	}
}

void
batoni_segments_met(struct batoni_segments *segments,
                    struct batoni_transport *transport)
{
	if (!transport->peers)
		return;
	for (int rank = 0; rank < transport->size; rank++) {
		unsigned char reached = atomic_load(
			flag_of(segments, segments->segment.base, rank));

		transport->peers[rank].reaches_us = reached & HOSTS;
		transport->peers[rank].streams_here = reached & STREAMS;
	}
}

static void
unmap_peer(struct batoni_peer *peer, size_t segment_bytes)
{
	if (peer->segment)
		batoni_shm_unmap(peer->segment, segment_bytes);
	if (!peer->within && peer->bell)
		batoni_shm_unmap(peer->bell, sizeof(*peer->bell));
}

void
batoni_segments_free(struct batoni_segments *segments,
                     struct batoni_transport *transport)
{
	struct batoni_peer *peers = transport->peers;

	/* The transport's size is 0 until its ranks are known, and nothing mapped. */
	if (peers)
		batoni_stores_end(&segments->stores, transport);
	for (int rank = 0; peers && rank < transport->size; rank++) {
		if (rank != transport->rank)
			unmap_peer(&peers[rank], segments->segment.bytes);
		batoni_pidfd_close(peers[rank].pidfd);
	}
	batoni_shm_destroy(&segments->segment);
	batoni_free(peers);
	transport->peers = NULL;
}
