/* SPDX-License-Identifier: BSD-3-Clause */
/* The suite over MPI on the host device, with the cases of MPI alone.  The
 * program starts MPI itself and synchronises its ranks by it, beside Baton. */
#include "baton_mpi.h"
#include "runner.h"

extern const struct conform_case conform_mpi[];

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
	const struct conform_backend backend = {
		.name = "mpi",
		.traits = CONFORM_HOST_ISSUED | CONFORM_HOST_DEVICE,
		.create = mpi_create,
	};

	return conform_processes(backend, lists, argc, argv);
}
