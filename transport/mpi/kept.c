/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that were taken out of MPI's queue before the receives for them.
 *
 * A receive of any tag has to find out what has come, and MPI shows only the message that is first in its queue.
 * That may be one that an earlier receive waits for, or no message of the program at all: bodies, grants
 * and the one-sided layer's messages are on tags of the same communicator.  So while such a receive waits, this
 * file takes messages out one by one (MPI_Improbe), and keeps those that are not for it in their order.
 *
 * No message is lost, and none overtakes another: each receive and probe on this communicator searches here first,
 * by rank and tag.  A message that is kept met no receive that was at MPI, and came before all messages of its rank
 * and tag that MPI still has.
 *
 * The messages of one rank and tag are a queue (match.h), and the first of each queue is in a list of fronts, in the
 * order of all.  So the length of the queues does not matter: a search by rank and tag takes constant time, and one
 * by less goes through the fronts alone.
 *
 * Each message takes a few bytes, allocated when it is taken out; without memory it stays at MPI for now.  Messages
 * that no receive takes are discarded before the communicator is freed (clear.c), or, after an abort, when it closes.
 *
 * Threads: the driver alone.
 */
#include <limits.h>

#include "mem.h"
#include "mpi_transport.h"

/* Up to this number of queues one is found in constant time. */
#define QUEUES 1024u

void
batoni_mpi_kept_init(struct batoni_mpi *mpi)
{
	batoni_list_init(&mpi->kept);
	batoni_list_init(&mpi->kept_fronts[0]);
	batoni_list_init(&mpi->kept_fronts[1]);
}

static uint64_t
key_of(int peer, int tag)
{
	return (uint64_t)(uint32_t)peer << 32 | (uint32_t)tag;
}

static struct batoni_mpi_kept *
queue_front(const struct batoni_mpi *mpi, int peer, int tag)
{
	struct batoni_match_node *front =
		mpi->kept_n > 0 ? batoni_match_find(&mpi->kept_match,
	                                            key_of(peer, tag))
	                        : NULL;

	return front ? batoni_container_of(front, struct batoni_mpi_kept, same)
	             : NULL;
}

/* Enter a message that has become the first of its queue into the fronts.  Mostly its place is near one of the ends:
 * a message that was just taken out is behind all, and one whose predecessor was received is before most. */
static void
enter_front(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept)
{
	struct batoni_list_node *fronts =
		&mpi->kept_fronts[kept->tag > mpi->base.tag_max];
	struct batoni_list_node *at = fronts;

	if (!batoni_list_empty(fronts) &&
	    batoni_mpi_kept_front(fronts->prev)->number > kept->number)
		for (at = fronts->next;
		     batoni_mpi_kept_front(at)->number < kept->number;)
			at = at->next;
	/* This inserts it before `at`. */
	batoni_list_append(at, &kept->front);
}

static void
enter_kept(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept)
{
	struct batoni_mpi_kept *front = queue_front(mpi, kept->peer, kept->tag);

	kept->number = ++mpi->kept_number;
	batoni_list_append(&mpi->kept, &kept->link);
	batoni_match_enter(&mpi->kept_match, &kept->same,
	                   key_of(kept->peer, kept->tag),
	                   front ? &front->same : NULL);
	batoni_list_init(&kept->front);
	if (!front)
		enter_front(mpi, kept);
	mpi->kept_n++;
}

static void
remove_kept(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept)
{
	bool first = queue_front(mpi, kept->peer, kept->tag) == kept;
	struct batoni_mpi_kept *next;

	batoni_list_remove(&kept->link);
	batoni_list_remove(&kept->front);
	batoni_match_remove(&mpi->kept_match, &kept->same);
	next = first ? queue_front(mpi, kept->peer, kept->tag) : NULL;
	if (next)
		enter_front(mpi, next);
	mpi->kept_n--;
}

/* Make the table of queues with the first message.  False: there is no memory. */
static bool
has_table(struct batoni_mpi *mpi)
{
	return mpi->kept_match.fronts.chains ||
	       batoni_match_init(&mpi->kept_match, QUEUES);
}

/* Take the message that is first in MPI's queue, unless it is MPI's own (bootstrap/mpi/some.c), which MPI soon takes.
 * MPI_Improbe names the rank and tag that MPI_Iprobe has found, as another thread may meanwhile be in
 * MPI_Comm_create_group. */
static int
take_next(struct batoni_mpi *mpi, int peer, int *there_p, MPI_Message *message_p,
          MPI_Status *status_p)
{
	int code = MPI_Iprobe(peer, MPI_ANY_TAG, mpi->comm, there_p, status_p);

	if (code != MPI_SUCCESS || !*there_p)
		return code;
	if (status_p->MPI_TAG == mpi->group_tag) {
		*there_p = 0;
		return MPI_SUCCESS;
	}
	return MPI_Improbe(status_p->MPI_SOURCE, status_p->MPI_TAG, mpi->comm,
	                   there_p, message_p, status_p);
}

struct batoni_mpi_kept *
batoni_mpi_keep(struct batoni_mpi *mpi, int peer)
{
	struct batoni_mpi_kept *kept =
		has_table(mpi) ? batoni_alloc(1, sizeof(*kept)) : NULL;
	MPI_Status status;
	int code, there = 0;

	if (!kept)
		return NULL;
	code = take_next(mpi, peer, &there, &kept->message, &status);
	if (code != MPI_SUCCESS)
		batoni_mpi_break(mpi, "MPI_Improbe", code);
	if (code != MPI_SUCCESS || !there) {
		batoni_free(kept);
		return NULL;
	}
	kept->peer = status.MPI_SOURCE;
	kept->tag = status.MPI_TAG;
	/* MPI_UNDEFINED: the length does not fit into an int. */
	MPI_Get_count(&status, MPI_BYTE, &kept->bytes);
	enter_kept(mpi, kept);
	return kept;
}

struct batoni_mpi_kept *
batoni_mpi_kept_find(const struct batoni_mpi *mpi, int peer, int tag)
{
	const struct batoni_list_node *fronts =
		&mpi->kept_fronts[tag > mpi->base.tag_max];

	if (peer != MPI_ANY_SOURCE)
		return queue_front(mpi, peer, tag);
	for (struct batoni_list_node *at = fronts->next; at != fronts; at = at->next)
		if (batoni_mpi_kept_front(at)->tag == tag)
			return batoni_mpi_kept_front(at);
	return NULL;
}

int
batoni_mpi_kept_take(struct batoni_mpi *mpi, struct batoni_mpi_kept *kept,
                     void *buffer, int count, MPI_Datatype type,
                     MPI_Request *request_p)
{
	MPI_Message message = kept->message;

	remove_kept(mpi, kept);
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
			remove_kept(mpi, kept);
			batoni_free(kept);
			continue;
		}
		/* Nothing waits for this request: it ends when its sender has sent the message. */
		if (batoni_mpi_kept_take(mpi, kept, batoni_mpi_drain(),
		                         kept->bytes, MPI_BYTE,
		                         &request) == MPI_SUCCESS)
			MPI_Request_free(&request);
	}
}
