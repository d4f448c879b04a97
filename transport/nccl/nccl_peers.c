/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes of the ranks of this node, so that the engine notices when one ends
 * (runtime/core/liveness.c).  NCCL may say nothing then, and the kernels wait for ever.
 *
 * Each rank's hello has the name of its process's bell, which says node and process.
 * A lower transport that shares memory between ranks (local, MPI) knows them, and then its
 * `peers` are used.  Where it does not (the side channel), segments and bells stay NULL.
 */
#include <unistd.h>

#include "mem.h"
#include "nccl_transport.h"

enum baton_status
batoni_nccl_peers_make(struct batoni_nccl *nccl, int size)
{
	nccl->peers = batoni_alloc((size_t)size, sizeof(*nccl->peers));
	if (!nccl->peers)
		return BATON_ERR_NOMEM;
	nccl->peers_n = size;
	for (int i = 0; i < size; i++)
		nccl->peers[i].pidfd = -1;
	return BATON_OK;
}

void
batoni_nccl_peer_meet(struct batoni_nccl *nccl, int rank,
                      const struct batoni_nccl_card *card)
{
	struct batoni_peer *peer = &nccl->peers[rank];

	if (nccl->base.peers != nccl->peers || !card->has_bell || !batoni_shm_is_here(&card->bell))
		return;
	if (card->bell.pid == getpid()) {
		peer->pid = getpid();
		peer->within = true;
		return;
	}
	peer->pidfd = batoni_pidfd_open(card->bell.pid);
	/* Without it, another process could have the number later. */
	if (peer->pidfd >= 0)
		peer->pid = card->bell.pid;
}

void
batoni_nccl_peers_free(struct batoni_nccl *nccl)
{
	for (int i = 0; i < nccl->peers_n; i++)
		batoni_pidfd_close(nccl->peers[i].pidfd);
	batoni_free(nccl->peers);
}
