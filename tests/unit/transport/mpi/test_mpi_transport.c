/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport by itself, two ranks, without the engine: the cases of test_mpi_*.c, each of
 * which is about the file of transport/mpi/ that its first comment names.
 */
#include <stdio.h>
#include <stdlib.h>

#include "mpi_world.h"

static void
run_all(void)
{
	test_mpi_messages();
	test_mpi_follow();
	test_mpi_take_back();
	test_mpi_body();
	test_mpi_lists();
	test_mpi_open();
	test_mpi_clear();
	test_mpi_fail();
	test_mpi_reach();
}

int
main(int argc, char **argv)
{
	int provided, size;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		printf("SKIP: needs two ranks, has %d\n", size);
	else
		run_all();
	MPI_Finalize();
	return size == 2 ? EXIT_SUCCESS : 77;
}
