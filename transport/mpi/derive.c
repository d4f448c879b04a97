/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap of some ranks of a communicator, for one that is made from it (transport.h, deriving).
 *
 * All ranks in their order: MPI_Comm_idup, which the bootstrap polls.  Others: MPI_Comm_create_group,
 * which the ranks of the group alone call, so that other ones, of other colors or in no group, have no part in
 * it.  (A duplicate of the whole communicator would do for one split, but could not be split again
 * without them.)  It has no form that is polled, and waits for the others, which have all
 * said that they will call.  At MPI_THREAD_MULTIPLE the driver lock is not held meanwhile, so the
 * engine and the other threads of the process go on.  Below, MPI takes one thread at a time, and the lock is held.
 *
 * The thread that creates.
 */
#include "log.h"
#include "mpi_transport.h"

/* Of calls for one communicator at the same time; there is one at a time. */
#define GROUP_TAG 1

static bool
is_all(const struct batoni_mpi *mpi, const int ranks[], int size)
{
	for (int i = 0; i < size; i++) {
		if (ranks[i] != i)
			return false;
	}
	return size == mpi->base.size;
}

static int
create_group(MPI_Comm comm, const int ranks[], int size, MPI_Comm *comm_p)
{
	MPI_Group all, some;
	int code = MPI_Comm_group(comm, &all);

	if (code != MPI_SUCCESS)
		return code;
	code = MPI_Group_incl(all, size, ranks, &some);
	MPI_Group_free(&all);
	if (code != MPI_SUCCESS)
		return code;
	code = MPI_Comm_create_group(comm, some, GROUP_TAG, comm_p);
	MPI_Group_free(&some);
	return code;
}

static enum baton_status
derive(struct batoni_transport *transport,
       const struct batoni_engine_calls *engine, const int ranks[], int size,
       int rank, struct batoni_bootstrap *bootstrap)
{
	struct batoni_mpi *mpi = batoni_mpi_of(transport);
	MPI_Comm comm = MPI_COMM_NULL;
	int level, code = MPI_SUCCESS;

	MPI_Query_thread(&level);
	if (level != MPI_THREAD_MULTIPLE)
		engine->driver_lock();
	if (!is_all(mpi, ranks, size))
		code = create_group(mpi->comm, ranks, size, &comm);
	if (level != MPI_THREAD_MULTIPLE)
		engine->driver_unlock();
	if (code != MPI_SUCCESS)
		return batoni_mpi_refuse("MPI_Comm_create_group", code);
	batoni_mpi_join(mpi->comm, comm, level, rank, size, bootstrap);
	return BATON_OK;
}

const struct batoni_deriving_ops batoni_mpi_deriving = {.derive = derive};
