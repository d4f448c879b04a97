/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that ranks of one host share, for signals and windows.
 *
 * Each rank makes a segment.  During creation the ranks exchange cards, with the names of the
 * segment and of the process's bell.  Each maps what it can, also that of a rank of its own
 * process, so that each rank frees what it has mapped, whenever the others close.  Streams of its
 * device are let store into what it has mapped (stores.h).  Then the ranks tell each other what
 * they reach.  A mapping that fails is no error: messages are used instead.
 *
 * The thread that creates, and the one that destroys; no locks.
 */
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "mem.h"
#include "rank.h"

/* What a rank tells another: what of it reaches the other's segment. */
enum { HOSTS = 1, STREAMS = 2 };

enum baton_status
batoni_tcp_peers_make(struct batoni_tcp *tcp,
                      const struct batoni_transport_config *config)
{
	const size_t ranks = (size_t)tcp->base.size;

	batoni_stores_init(&tcp->stores, config);
	tcp->base.peers = batoni_alloc(ranks, sizeof(*tcp->base.peers));
	if (!tcp->base.peers)
		return BATON_ERR_NOMEM;
	for (size_t rank = 0; rank < ranks; rank++)
		tcp->base.peers[rank].pidfd = -1;
	tcp->base.capabilities |= BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	return batoni_shm_create_sparse(config->segment_bytes, &tcp->segment,
	                                &tcp->base.sparse_segments);
}

bool
batoni_tcp_shares(const struct batoni_tcp *tcp)
{
	return tcp->base.peers != NULL;
}

size_t
batoni_tcp_card(const struct batoni_tcp *tcp, struct batoni_tcp_card **card_p)
{
	struct batoni_tcp_card *card = batoni_alloc(1, sizeof(*card));

	*card_p = card;
	if (!card)
		return sizeof(*card);
	batoni_shm_name(&tcp->segment, &card->segment);
	card->has_bell = batoni_bell_name(&card->bell);
	return sizeof(*card);
}

/* The segment and the bell, or neither. */
static void
map_peer(struct batoni_peer *peer, const struct batoni_tcp_card *card,
         size_t segment_bytes)
{
	void *base, *bell = batoni_bell();

	if (card->segment.bytes != segment_bytes ||
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
meet_peer(struct batoni_tcp *tcp, int rank, const struct batoni_tcp_card *card)
{
	struct batoni_peer *peer = &tcp->base.peers[rank];

	if (rank == tcp->base.rank) {
		*peer = (struct batoni_peer){
			.segment = tcp->segment.base,
			.bell = batoni_bell(),
			.pid = getpid(),
			.pidfd = -1,
			.within = true,
		};
		return;
	}
	if (!card->has_bell || !batoni_shm_is_here(&card->bell))
		return;
	peer->within = card->bell.pid == getpid();
	if (!peer->within)
		peer->pidfd = batoni_pidfd_open(card->bell.pid);
	/* Without it, another process could have the number later. */
	if (peer->within || peer->pidfd >= 0)
		peer->pid = card->bell.pid;
	if (batoni_config()->window_path != BATON_WINDOW_PATH_MESSAGE)
		map_peer(peer, card, tcp->segment.bytes);
}

void
batoni_tcp_meet(struct batoni_tcp *tcp, const struct batoni_tcp_card *cards,
                unsigned char *mapped)
{
	const struct batoni_peer *peers = tcp->base.peers;

	batoni_stores_begin(&tcp->stores);
	for (int rank = 0; rank < tcp->base.size; rank++) {
		meet_peer(tcp, rank, &cards[rank]);
		batoni_stores_reach(&tcp->stores, &tcp->base, rank,
		                    &cards[rank].segment);
		mapped[rank] = (unsigned char)((peers[rank].segment ? HOSTS : 0) |
		                               (peers[rank].streams ? STREAMS : 0));
	}
}

void
batoni_tcp_met(struct batoni_tcp *tcp, const unsigned char *mapped)
{
	const size_t size = (size_t)tcp->base.size;

	for (size_t rank = 0; rank < size; rank++) {
		unsigned char told = mapped[rank * size + (size_t)tcp->base.rank];

		tcp->base.peers[rank].reaches_us = told & HOSTS;
		tcp->base.peers[rank].streams_here = told & STREAMS;
	}
}

void
batoni_tcp_peers_free(struct batoni_tcp *tcp)
{
	struct batoni_peer *peers = tcp->base.peers;

	if (peers)
		batoni_stores_end(&tcp->stores, &tcp->base);
	for (int rank = 0; peers && rank < tcp->base.size; rank++) {
		if (rank != tcp->base.rank && peers[rank].segment)
			batoni_shm_unmap(peers[rank].segment,
			                 tcp->segment.bytes);
		if (!peers[rank].within && peers[rank].bell)
			batoni_shm_unmap(peers[rank].bell,
			                 sizeof(*peers[rank].bell));
		batoni_pidfd_close(peers[rank].pidfd);
	}
	if (peers)
		batoni_shm_destroy(&tcp->segment);
	batoni_free(peers);
	tcp->base.peers = NULL;
}
