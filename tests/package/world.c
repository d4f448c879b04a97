/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator over MPI_COMM_WORLD: shows that baton_mpi.h is usable where it
 * is installed.  Compiled as C11; run as a world of one. */
#include <baton_mpi.h>
#include <stdio.h>

int
main(int argc, char **argv)
{
	struct baton_comm *comm;
	enum baton_status status;
	int level;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	status = baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm);
	if (status == BATON_OK) {
		printf("rank %d of %d\n", baton_comm_rank(comm),
		       baton_comm_size(comm));
		status = baton_comm_destroy(comm);
	}
	printf("%s\n", baton_status_name(status));
	MPI_Finalize();
	return status == BATON_OK ? 0 : 1;
}
