/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that was compiled with some mpi.h, perhaps not that of Baton's MPI: it
 * is told so instead of crashing.  (Otherwise it is told that MPI is not running.) */
#include <baton_mpi.h>
#include <stdio.h>

int
main(void)
{
	struct baton_comm *comm = NULL;
	enum baton_status status =
		baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm);

	printf("%s: %s\n",
	       status == BATON_ERR_UNSUPPORTED ? "refused" : "not refused",
	       baton_last_error());
	return status == BATON_OK;
}
