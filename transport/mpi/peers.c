/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that processes of one host share.
 *
 * Each rank makes a segment.  The ranks exchange cards, which contain the names of the
 * segment and of the process's bell.  Each rank maps what it can, and tells every rank
 * whether it has mapped that rank's segment.  Only trying shows whether a mapping works,
 * because of containers and the kernel's rules.  A failure is no error: messages are used
 * instead.  The two directions may differ, and a rank knows both.
 *
 * In between, streams of the rank's device are let store into the segments that it has mapped
 * (stores.h), which may take time: the driver's lock is not held then.  The ranks tell each
 * other this too, since a write of a stream rings no bell.
 *
 * Only creation communicates here, after all ranks have agreed that they have their
 * memory; everything is allocated before that.  (A missing process descriptor is no
 * failure: the end of that process is then not noticed.)  No locks.
 */
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "mem.h"
#include "mpi_transport.h"

/* Where a rank's memory is.  Plain bytes; ranks of other hosts read the host only. */
struct batoni_mpi_card {
	struct batoni_shm_name segment, bell;
	int32_t has_bell;
	int32_t pid;
};

/* What a rank tells another: what of it reaches the other's segment. */
enum { HOSTS = 1, STREAMS = 2 };

enum baton_status
batoni_mpi_peers_make(struct batoni_mpi *mpi, int size,
                      const struct batoni_transport_config *config)
{
	size_t ranks = (size_t)size;

	if (config->segment_bytes == 0)
		return BATON_OK;
	batoni_stores_init(&mpi->stores, config);
	mpi->base.peers = batoni_alloc(ranks, sizeof(*mpi->base.peers));
	mpi->cards = batoni_alloc(ranks + 1, sizeof(*mpi->cards));
	mpi->mapped = batoni_alloc(ranks, 2);
	if (!mpi->base.peers || !mpi->cards || !mpi->mapped)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for what %d ranks share", size);
	for (size_t rank = 0; rank < ranks; rank++)
		mpi->base.peers[rank].pidfd = -1;
	return batoni_shm_create_sparse(config->segment_bytes, &mpi->segment,
	                                &mpi->base.sparse_segments);
}

/* What only meeting needs. */
static void
free_scratch(struct batoni_mpi *mpi)
{
	batoni_free(mpi->cards);
	batoni_free(mpi->mapped);
	mpi->cards = NULL;
	mpi->mapped = NULL;
}

static void
unmap_peer(struct batoni_peer *peer, size_t segment_bytes)
{
	if (peer->segment)
		batoni_shm_unmap(peer->segment, segment_bytes);
	if (peer->bell)
		batoni_shm_unmap(peer->bell, sizeof(*peer->bell));
	peer->segment = NULL;
	peer->bell = NULL;
}

void
batoni_mpi_peers_free(struct batoni_mpi *mpi)
{
	struct batoni_peer *peers = mpi->base.peers;

	/* Size is 0 until it is attached, and nothing mapped. */
	if (peers)
		batoni_stores_end(&mpi->stores, &mpi->base);
	for (int rank = 0; peers && rank < mpi->base.size; rank++) {
		if (!peers[rank].within)
			unmap_peer(&peers[rank], mpi->segment.bytes);
		batoni_pidfd_close(peers[rank].pidfd);
	}
	batoni_shm_destroy(&mpi->segment);
	free_scratch(mpi);
	batoni_free(peers);
}

/* The segment and the bell, or neither. */
static void
map_peer(struct batoni_peer *peer, const struct batoni_mpi_card *card,
         size_t segment_bytes)
{
	void *base;

	if (!card->has_bell || card->segment.bytes != segment_bytes)
		return;
	if (batoni_shm_map(&card->segment, 0, segment_bytes, &base) != BATON_OK)
		return;
	peer->segment = base;
	if (batoni_shm_map(&card->bell, 0, sizeof(*peer->bell), &base) ==
	    BATON_OK)
		peer->bell = base;
	else
		unmap_peer(peer, segment_bytes);
}

static void
meet_peer(struct batoni_mpi *mpi, int rank, const struct batoni_mpi_card *card)
{
	struct batoni_peer *peer = &mpi->base.peers[rank];

	if (rank == mpi->base.rank) {
		*peer = (struct batoni_peer){
			.segment = mpi->segment.base,
			.bell = batoni_bell(),
			.pid = getpid(),
			.pidfd = -1,
			.within = true,
		};
		return;
	}
	if (!batoni_shm_is_here(&card->segment))
		return;
	peer->pidfd = batoni_pidfd_open(card->pid);
	/* Without it, another process could have the number later. */
	if (peer->pidfd >= 0)
		peer->pid = card->pid;
	if (batoni_config()->window_path != BATON_WINDOW_PATH_MESSAGE)
		map_peer(peer, card, mpi->segment.bytes);
}

static void
write_card(const struct batoni_mpi *mpi, struct batoni_mpi_card *card)
{
	batoni_shm_name(&mpi->segment, &card->segment);
	card->has_bell = batoni_bell_name(&card->bell);
	card->pid = (int32_t)getpid();
}

enum baton_status
batoni_mpi_peers_meet(struct batoni_mpi *mpi, int (*wait)(MPI_Request *request))
{
	MPI_Request request;
	int size = mpi->base.size;
	struct batoni_mpi_card *mine = &mpi->cards[size];
	int code;

	if (!mpi->base.peers)
		return BATON_OK;
	write_card(mpi, mine);
	code = MPI_Iallgather(mine, (int)sizeof(*mine), MPI_BYTE, mpi->cards,
	                      (int)sizeof(*mine), MPI_BYTE, mpi->comm,
	                      &request);
	if (code == MPI_SUCCESS)
		code = wait(&request);
	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Iallgather", code);
	for (int rank = 0; rank < size; rank++)
		meet_peer(mpi, rank, &mpi->cards[rank]);
	return BATON_OK;
}

void
batoni_mpi_peers_store(struct batoni_mpi *mpi)
{
	if (!mpi->base.peers)
		return;
	batoni_stores_begin(&mpi->stores);
	for (int rank = 0; rank < mpi->base.size; rank++)
		batoni_stores_reach(&mpi->stores, &mpi->base, rank,
		                    &mpi->cards[rank].segment);
}

enum baton_status
batoni_mpi_peers_tell(struct batoni_mpi *mpi, int (*wait)(MPI_Request *request))
{
	struct batoni_peer *peers = mpi->base.peers;
	int code, size = mpi->base.size;
	unsigned char *theirs;
	MPI_Request request;

	if (!peers)
		return BATON_OK;
	for (int rank = 0; rank < size; rank++)
		mpi->mapped[rank] = (unsigned char)((peers[rank].segment ? HOSTS : 0) |
		                                    (peers[rank].streams ? STREAMS : 0));
	theirs = mpi->mapped + size;
	code = MPI_Ialltoall(mpi->mapped, 1, MPI_BYTE, theirs, 1, MPI_BYTE,
	                     mpi->comm, &request);
	if (code == MPI_SUCCESS)
		code = wait(&request);
	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Ialltoall", code);
	for (int rank = 0; rank < size; rank++) {
		peers[rank].reaches_us = theirs[rank] & HOSTS;
		peers[rank].streams_here = theirs[rank] & STREAMS;
	}
	free_scratch(mpi);
	return BATON_OK;
}
