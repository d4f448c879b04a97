/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap of some ranks of a communicator, for one that is made from it (transport.h, deriving).
 *
 * All ranks in their order: MPI_Comm_idup, which the bootstrap polls.  Others: MPI_Comm_create_group
 * (bootstrap/mpi/some.c).
 *
 * The thread that creates.
 */
#include "mpi_transport.h"

static bool
is_all(const struct batoni_mpi *mpi, const int ranks[], int size)
{
	for (int i = 0; i < size; i++) {
		if (ranks[i] != i)
			return false;
	}
	return size == mpi->base.size;
}

static enum baton_status
derive(struct batoni_transport *transport,
       const struct batoni_engine_calls *engine, const int ranks[], int size,
       int rank, struct batoni_bootstrap *bootstrap)
{
	struct batoni_mpi_boot *boot = batoni_mpi_boot_of(bootstrap);
	struct batoni_mpi *mpi = batoni_mpi_of(transport);
	int level, code;

	MPI_Query_thread(&level);
	batoni_mpi_join(mpi->comm, level, rank, size, bootstrap);
	if (is_all(mpi, ranks, size))
		return BATON_OK;
	if (level != MPI_THREAD_MULTIPLE)
		engine->driver_lock();
	code = batoni_mpi_some_begin(boot, ranks, size, mpi->group_tag);
	if (level != MPI_THREAD_MULTIPLE)
		engine->driver_unlock();
	return code == MPI_SUCCESS
	               ? BATON_OK
	               : batoni_mpi_refuse("MPI_Comm_create_group", code);
}

const struct batoni_deriving_ops batoni_mpi_deriving = {.derive = derive};
