/* SPDX-License-Identifier: BSD-3-Clause */
/* The random load over MPI: ranks are processes. */
#include <stdio.h>

#include "baton_mpi.h"
#include "stress.h"

static void
end_job(void)
{
	MPI_Abort(MPI_COMM_WORLD, 1);
}

int
main(int argc, char **argv)
{
	struct stress_options options = stress_options(argc, argv, 40);
	struct baton_comm_options comm_options;
	struct baton_comm *comm = NULL;
	int level, rank, failed, all;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (level < MPI_THREAD_MULTIPLE) {
		printf("SKIP: this MPI has no MPI_THREAD_MULTIPLE\n");
		MPI_Finalize();
		return 77;
	}
	/* All ranks draw from the same seed. */
	MPI_Bcast(&options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("seed %llu: %d workers, %d rounds\n",
		       (unsigned long long)options.seed, options.workers,
		       options.rounds);
	comm_options = stress_comm_options(&options);
	if (baton_comm_create_mpi(MPI_COMM_WORLD, &comm_options, &comm) !=
	    BATON_OK) {
		printf("no communicator: %s\n", baton_last_error());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	options.end_job = end_job;
	stress_rank(comm, &options);
	failed = baton_comm_destroy(comm) != BATON_OK;
	MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%s\n", all ? "FAILED" : "ok");
	MPI_Finalize();
	return all ? 1 : 0;
}
