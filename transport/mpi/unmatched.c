/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What has come and has met no receive (struct batoni_unmatched_ops).
 *
 * A probe names the tag: bodies, grants and hellos are on tags of the same communicator, and only body.c and the
 * one-sided layer receive them.  For a receive of any tag messages are taken out of MPI's queue, until one comes
 * that it may take; those that come before it are kept (kept.c).  A probe does not see a message that a receive at MPI
 * has matched.  Nothing else receives on the tag between a probe and the receive that follows it, since the driver alone calls
 * MPI with this communicator; so a message that was seen is the receive's.  First parts are never
 * cancelled at the sender.
 *
 * Fairness: MPI answers a probe of any source.  Where that is one rank RUN_MAX times in a row, or one whose message
 * is an earlier receive's, the ranks behind the last one are asked one by one.
 */
#include "mpi_transport.h"

#define RUN_MAX 8u
/* How many messages one `find` takes out of MPI's queue. */
#define DRAWN_MAX 64u

static void
expect(struct batoni_path *path, int change)
{
	path->load.in_flight += (uint32_t)change;
}

/* The rank of a message, or -1. */
static int
probe(struct batoni_mpi *mpi, int peer, int tag)
{
	MPI_Status status;
	int code, there = 0;

	code = MPI_Iprobe(peer, tag, mpi->comm, &there, &status);
	if (__builtin_expect(code != MPI_SUCCESS, 0)) {
		batoni_mpi_break(mpi, "MPI_Iprobe", code);
		return -1;
	}
	return there ? status.MPI_SOURCE : -1;
}

static bool
may_meet(struct batoni_mpi *mpi, int rank, int tag)
{
	return mpi->base.upcalls->may_meet(mpi->base.upcalls, rank, tag);
}

/* The first one behind `last`, and at most `most` of them. */
static int
find_behind(struct batoni_mpi *mpi, int last, int tag, int most)
{
	for (int i = 0, rank = last; i < most; i++) {
		rank = rank + 1 < mpi->base.size ? rank + 1 : 0;
		if (may_meet(mpi, rank, tag) && probe(mpi, rank, tag) >= 0)
			return rank;
	}
	return -1;
}

/* The next receive has its message at MPI, or it is kept. */
static int
found(struct batoni_mpi *mpi, int rank)
{
	mpi->named_last = rank;
	mpi->found = true;
	return rank;
}

/* How often a message of this rank was named in a row. */
static uint32_t
count_run(struct batoni_mpi *mpi, int rank)
{
	mpi->named_run = rank == mpi->named_last ? mpi->named_run + 1 : 0;
	return mpi->named_run;
}

/* The first kept message of this peer (-1: of any) and tag (-1: any) that may be met; or NULL.  Where the first of a
 * rank and tag may not, nor may those behind it. */
static struct batoni_mpi_kept *
find_kept(struct batoni_mpi *mpi, int peer, int tag)
{
	struct batoni_list_node *fronts = &mpi->kept_fronts[0];

	for (struct batoni_list_node *at = fronts->next; at != fronts; at = at->next) {
		struct batoni_mpi_kept *kept = batoni_mpi_kept_front(at);

		if ((tag < 0 || kept->tag == tag) &&
		    (peer < 0 || kept->peer == peer) &&
		    may_meet(mpi, kept->peer, kept->tag))
			return kept;
	}
	return NULL;
}

static int
find_of_tag(struct batoni_mpi *mpi, int peer, int tag)
{
	int last = mpi->named_last, rank;
	bool may;

	if (peer >= 0)
		return may_meet(mpi, peer, tag) && probe(mpi, peer, tag) >= 0
		               ? found(mpi, peer)
		               : -1;
	rank = probe(mpi, MPI_ANY_SOURCE, tag);
	if (rank < 0)
		return -1;
	may = may_meet(mpi, rank, tag);
	if (__builtin_expect(count_run(mpi, rank) >= RUN_MAX || !may, 0)) {
		int other = find_behind(mpi, last, tag, mpi->base.size - may);

		mpi->named_run = 0;
		if (other >= 0 || !may)
			rank = other;
	}
	return rank < 0 ? -1 : found(mpi, rank);
}

/* A message of this peer (-1: of any) that was kept before, or is kept now. */
static struct batoni_mpi_kept *
draw(struct batoni_mpi *mpi, int peer)
{
	struct batoni_mpi_kept *kept = find_kept(mpi, peer, -1);

	for (unsigned n = 0; !kept && n < DRAWN_MAX; n++) {
		kept = batoni_mpi_keep(mpi, peer < 0 ? MPI_ANY_SOURCE : peer);
		if (!kept)
			return NULL;
		if (kept->tag > mpi->base.tag_max ||
		    !may_meet(mpi, kept->peer, kept->tag))
			kept = NULL;
	}
	return kept;
}

static struct batoni_mpi_kept *
draw_behind(struct batoni_mpi *mpi, int last)
{
	struct batoni_mpi_kept *kept = NULL;

	for (int i = 1, rank = last; i < mpi->base.size && !kept; i++) {
		rank = rank + 1 < mpi->base.size ? rank + 1 : 0;
		kept = draw(mpi, rank);
	}
	return kept;
}

static int
find_of_any_tag(struct batoni_mpi *mpi, int peer, int *tag_p)
{
	struct batoni_mpi_kept *kept = draw(mpi, peer), *other;

	if (!kept)
		return -1;
	if (peer < 0 && count_run(mpi, kept->peer) >= RUN_MAX) {
		mpi->named_run = 0;
		other = draw_behind(mpi, kept->peer);
		if (other)
			kept = other;
	}
	*tag_p = kept->tag;
	return found(mpi, kept->peer);
}

static int
mpi_find(struct batoni_path *path, int peer, int *tag_p)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	const struct batoni_mpi_kept *kept;

	if (*tag_p < 0)
		return find_of_any_tag(mpi, peer, tag_p);
	if (__builtin_expect(mpi->kept_n > 0, 0)) {
		kept = find_kept(mpi, peer, *tag_p);
		if (kept)
			return found(mpi, kept->peer);
	}
	return find_of_tag(mpi, peer, *tag_p);
}

const struct batoni_unmatched_ops batoni_mpi_unmatched = {
	.expect = expect,
	.find = mpi_find,
	.hold = batoni_mpi_hold,
	.meet = batoni_mpi_meet,
};
