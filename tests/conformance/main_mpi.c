/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over MPI on the host device, with the cases of MPI alone.  The
 * program starts MPI itself and synchronises its ranks by it, beside Baton. */
#include <stdio.h>

#include "baton_mpi.h"
#include "runner.h"

extern const struct conform_case conform_mpi[];

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

static enum baton_status
mpi_create(struct conform *c, const struct baton_comm_options *options,
           struct baton_comm **comm_p)
{
	(void)c;
	return baton_comm_create_mpi(MPI_COMM_WORLD, options, comm_p);
}

int
main(int argc, char **argv)
{
	static const struct conform_list own[] = { { "mpi", conform_mpi },
		                                   { NULL, NULL } };
	static const struct conform_list *const lists[] = { conform_suite, own,
		                                            NULL };
	static const struct conform_backend backend = {
		.name = "mpi",
		.traits = CONFORM_PROCESSES | CONFORM_HOST_ISSUED |
		          CONFORM_HOST_DEVICE,
		.create = mpi_create,
		.sync = mpi_sync,
		.agree = mpi_agree,
	};
	struct conform_arguments arguments = conform_arguments(argc, argv);
	int level, rank, size, result;
	struct conform conform;

	if (arguments.list)
		return conform_print(lists);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (level < MPI_THREAD_MULTIPLE) {
		printf("SKIP: this MPI has no MPI_THREAD_MULTIPLE\n");
		MPI_Finalize();
		return 77;
	}
	conform_init(&conform, &backend, NULL, rank, size);
	result = conform_run(&conform, lists, &arguments);
	conform_fini(&conform);
	MPI_Finalize();
	return result;
}
