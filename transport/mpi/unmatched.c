/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What has come and has met no receive (struct batoni_unmatched_ops).
 *
 * A probe names the tag, never MPI_ANY_TAG: bodies, grants and hellos are on tags of the same communicator,
 * and are nobody's but body.c's and the one-sided layer's.  What a receive at MPI has matched no probe sees.
 * Nothing else receives on the tag between a probe and the receive that follows it, since the driver alone calls
 * MPI with this communicator; so a message that was seen is the receive's.  First parts are never
 * cancelled at the sender.
 *
 * Fairness: MPI answers a probe of any source.  Where that is one rank RUN_MAX times in a row, or one whose message
 * is an earlier receive's, the ranks behind the last one are asked one by one.
 */
#include "mpi_transport.h"

#define RUN_MAX 8u

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

static int
find(struct batoni_path *path, int tag)
{
	struct batoni_mpi *mpi = batoni_mpi_of(batoni_transport_of(path));
	int rank = probe(mpi, MPI_ANY_SOURCE, tag);
	int last = mpi->named_last;
	bool may;

	if (rank < 0)
		return -1;
	may = may_meet(mpi, rank, tag);
	mpi->named_run = rank == last ? mpi->named_run + 1 : 0;
	if (__builtin_expect(!may || mpi->named_run >= RUN_MAX, 0)) {
		int other = find_behind(mpi, last, tag, mpi->base.size - may);

		mpi->named_run = 0;
		if (other >= 0 || !may)
			rank = other;
	}
	if (rank < 0)
		return -1;
	mpi->named_last = rank;
	mpi->found = true;
	return rank;
}

const struct batoni_unmatched_ops batoni_mpi_unmatched = {
	.expect = expect,
	.find = find,
};
