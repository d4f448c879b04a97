/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives that follow others of the same peer and tag, and need no test yet.
 *
 * MPI matches receives of one source and tag in the order in which they were started.  So
 * while one of them waits for its message, those behind it wait too.  A receive that is
 * started while many requests are active is therefore not tested if it is behind another:
 * it *follows*.  It is put into the array of active requests when the one before it
 * has ended.
 *
 * A receive may be finished before the one that it follows only where MPI does not send
 * messages of 2 KiB eagerly, or where the one before it was asked to cancel and is
 * ending.  The former is then seen when the latter has ended.
 *
 * The receives of a queue are linked by slot + 1 (0: none), from one
 * that is tested to the last.  The table `lasts` has the last one's link, by a hash of
 * peer and tag.  Each entry serves one queue at a time: where two queues have the same
 * entry, the next receive of either is tested.  That costs one more test and changes
 * nothing else.  An entry is not cleared when its receive ends: follow() compares it with
 * what is in that slot by then.
 *
 * Invariants: a follower's `before` is tested or follows, and its `next` is the follower;
 * all other `next` are 0.
 *
 * Threads: the driver alone.
 */
#include "mpi_transport.h"

static uint32_t
link_of(const struct batoni_transfer *transfer)
{
	return (uint32_t)transfer->slot + 1;
}

static uint32_t *
find_last(const struct batoni_mpi *mpi, const struct batoni_transfer *transfer)
{
	uint64_t key = (uint64_t)(uint32_t)transfer->peer << 32 |
	               (uint32_t)transfer->tag;

	return &mpi->lasts[batoni_hash_index(key, mpi->lasts_shift)];
}

/* The receive of this link that waits for its first part, or NULL. */
static const struct batoni_transfer *
waiting_in(const struct batoni_mpi *mpi, uint32_t link)
{
	uint32_t slot = link - 1, i;

	if (link == 0)
		return NULL;
	i = mpi->positions[slot];
	if (mpi->followers[slot].transfer)
		return mpi->followers[slot].transfer;
	if (i >= mpi->count || mpi->entries[i].part != BATONI_MPI_FIRST ||
	    mpi->entries[i].transfer->slot != slot)
		return NULL;
	return mpi->entries[i].transfer;
}

bool
batoni_mpi_follow(struct batoni_mpi *mpi, struct batoni_transfer *transfer,
                  uint32_t bounce)
{
	struct batoni_mpi_follower *follower = &mpi->followers[transfer->slot];
	uint32_t *last_p = find_last(mpi, transfer);
	const struct batoni_transfer *last = waiting_in(mpi, *last_p);
	uint32_t before = *last_p;

	*last_p = link_of(transfer);
	if (!last || last->peer != transfer->peer || last->tag != transfer->tag)
		return false;
	follower->before = before;
	mpi->followers[before - 1].next = link_of(transfer);
	follower->transfer = transfer;
	follower->request = mpi->requests[mpi->count];
	follower->bounce = bounce;
	mpi->following++;
	return true;
}

/* Test this receive from now on.  The receives that follow it stay behind it. */
static void
begin_to_test(struct batoni_mpi *mpi, struct batoni_mpi_follower *follower)
{
	mpi->requests[mpi->count] = follower->request;
	batoni_mpi_track(mpi, follower->transfer, BATONI_MPI_FIRST,
	                 follower->bounce);
	follower->transfer = NULL;
	mpi->following--;
}

/* Separate from a receive the one that follows it.  Returns that one's link, or 0. */
static uint32_t
take_next(struct batoni_mpi_follower *receive)
{
	uint32_t next = receive->next;

	receive->next = 0;
	return next;
}

uint32_t
batoni_mpi_behind(struct batoni_mpi *mpi, const struct batoni_transfer *transfer)
{
	return take_next(&mpi->followers[transfer->slot]);
}

void
batoni_mpi_advance(struct batoni_mpi *mpi, uint32_t link, uint32_t n)
{
	while (link && n-- > 0) {
		struct batoni_mpi_follower *follower =
			&mpi->followers[link - 1];

		begin_to_test(mpi, follower);
		link = n > 0 ? take_next(follower) : 0;
	}
}

void
batoni_mpi_unfollow(struct batoni_mpi *mpi,
                    const struct batoni_transfer *transfer)
{
	struct batoni_mpi_follower *follower = &mpi->followers[transfer->slot];
	uint32_t next = take_next(follower);
	uint32_t *last_p;

	if (follower->transfer != transfer) {
		batoni_mpi_advance(mpi, next, 1);
		return;
	}
	mpi->followers[follower->before - 1].next = next;
	if (next)
		mpi->followers[next - 1].before = follower->before;
	last_p = find_last(mpi, transfer);
	if (*last_p == link_of(transfer))
		*last_p = follower->before;
	begin_to_test(mpi, follower);
}

void
batoni_mpi_unfollow_all(struct batoni_mpi *mpi)
{
	for (uint32_t slot = 0; mpi->following > 0; slot++) {
		if (mpi->followers[slot].transfer)
			begin_to_test(mpi, &mpi->followers[slot]);
	}
}
