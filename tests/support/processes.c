/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as processes of a job of MPI.
 *
 * CONFORM_FAR=1 in the environment: ranks of odd numbers say that they are of another host than
 * those of even ones.
 */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "shm.h"

/* Baton's calls come here first.  No message may be left in a communicator that is freed:
 * MPICH gives its context to the next one, where the message would match. */
int
MPI_Comm_free(MPI_Comm *comm)
{
	MPI_Status status;
	int here;

	PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &here, &status);
	if (here) {
		printf("a communicator is freed, and a message of its rank %d on "
		       "tag %d is left\n",
		       status.MPI_SOURCE, status.MPI_TAG);
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return PMPI_Comm_free(comm);
}

static void
mpi_sync(struct conform *c)
{
	(void)c;
	MPI_Barrier(MPI_COMM_WORLD);
}

static int
mpi_agree(struct conform *c, int value)
{
	int most;

	(void)c;
	MPI_Allreduce(&value, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	return most;
}

int
conform_processes(struct conform_backend backend,
                  const struct conform_list *const lists[], int argc,
                  char **argv)
{
	struct conform_arguments arguments = conform_arguments(argc, argv);
	int level, rank, size, result;
	struct conform conform;

	if (arguments.list)
		return conform_print(lists);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (getenv("CONFORM_FAR"))
		batoni_shm_pretend_node(rank % 2 != 0);
	if (level < MPI_THREAD_MULTIPLE) {
		printf("SKIP: this MPI has no MPI_THREAD_MULTIPLE\n");
		MPI_Finalize();
		return 77;
	}
	backend.traits |= CONFORM_PROCESSES;
	backend.sync = mpi_sync;
	backend.agree = mpi_agree;
	conform_init(&conform, &backend, NULL, rank, size);
	result = conform_run(&conform, lists, &arguments);
	conform_fini(&conform);
	MPI_Finalize();
	return result;
}
