/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that were taken out of MPI's queue before the receives for them.
 *
 * Why: a receive of any tag has to see what has come, and MPI tells only of the message that is first in its
 * queue.  That may be one that an earlier receive waits for, or no message of the program at all: bodies, grants
 * and the one-sided layer's messages are on tags of the same communicator.  So while such a receive waits,
 * messages are taken out one by one (MPI_Improbe), and those that are not its own are kept here in their order.
 *
 * Nothing is lost, and nothing overtakes: whatever receives or probes on this communicator looks here first, by
 * rank and tag.  A message that is here met no receive that was at MPI, and came before all that MPI has of
 * its rank and tag.
 *
 * Each takes a few bytes, allocated when it is taken out; without memory it stays at MPI for now.  What nobody has
 * received is discarded before the communicator is freed (clear.c), or, after an abort, when it closes.
 *
 * Threads: the driver alone.
 */
#include <limits.h>

#include "mem.h"
#include "mpi_transport.h"

struct batoni_mpi_kept *
batoni_mpi_keep(struct batoni_mpi *mpi, int peer)
{
	struct batoni_mpi_kept *kept = batoni_alloc(1, sizeof(*kept));
	MPI_Status status;
	int code, there = 0;

	if (!kept)
		return NULL;
	code = MPI_Improbe(peer, MPI_ANY_TAG, mpi->comm, &there, &kept->message,
	                   &status);
	if (code != MPI_SUCCESS)
		batoni_mpi_break(mpi, "MPI_Improbe", code);
	if (code != MPI_SUCCESS || !there) {
		batoni_free(kept);
		return NULL;
	}
	kept->peer = status.MPI_SOURCE;
	kept->tag = status.MPI_TAG;
	/* A count that is no int is MPI_UNDEFINED. */
	MPI_Get_count(&status, MPI_BYTE, &kept->bytes);
	batoni_list_append(&mpi->kept, &kept->link);
	mpi->kept_n++;
	return kept;
}

struct batoni_mpi_kept *
batoni_mpi_kept_find(const struct batoni_mpi *mpi, int peer, int tag)
{
	for (struct batoni_list_node *at = mpi->kept.next; at != &mpi->kept;
	     at = at->next) {
		struct batoni_mpi_kept *kept = batoni_mpi_kept_of(at);

		if (kept->tag == tag &&
		    (peer == MPI_ANY_SOURCE || kept->peer == peer))
			return kept;
	}
	return NULL;
}

int
batoni_mpi_kept_take(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept,
                     void *buffer, int count, MPI_Datatype type,
                     MPI_Request *request_p)
{
	MPI_Message message = kept->message;

	batoni_list_remove(&kept->link);
	mpi->kept_n--;
	batoni_free(kept);
	return MPI_Imrecv(buffer, count, type, &message, request_p);
}

int
batoni_mpi_irecv_kept(struct batoni_mpi *mpi, void *buffer, int count,
                      MPI_Datatype type, int peer, int tag)
{
	struct batoni_mpi_kept *kept = batoni_mpi_kept_find(mpi, peer, tag);
	MPI_Request *request = &mpi->requests[mpi->count];

	return kept ? batoni_mpi_kept_take(mpi, kept, buffer, count, type, request)
	            : MPI_Irecv(buffer, count, type, peer, tag, mpi->comm,
	                        request);
}

void
batoni_mpi_kept_drop(struct batoni_mpi *mpi, bool callable)
{
	while (!batoni_list_empty(&mpi->kept)) {
		struct batoni_mpi_kept *kept = batoni_mpi_kept_of(mpi->kept.next);
		bool fits = kept->bytes >= 0 &&
		            (size_t)kept->bytes <= BATONI_MPI_PIECE_BYTES;
		MPI_Request request;

		if (!callable || !fits) {
			batoni_list_remove(&kept->link);
			batoni_free(kept);
			continue;
		}
		/* Nobody waits for it: it ends when its sender has sent it. */
		if (batoni_mpi_kept_take(mpi, kept, batoni_mpi_drain(),
		                         kept->bytes, MPI_BYTE,
		                         &request) == MPI_SUCCESS)
			MPI_Request_free(&request);
	}
	mpi->kept_n = 0;
}
