/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over MPI whose buffers are in device memory that faults when the host, and so
 * MPI, touches it: the MPI transport, staged, on the fake asynchronous device. */
#include <stdio.h>

#include <mpi.h>

#include "fake_memory.h"
#include "runner.h"
#include "testing.h"

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
	return batoni_comm_create_mpi_with(&batoni_fake_device_ops, options,
	                                   comm_p);
}

int
main(int argc, char **argv)
{
	static const struct conform_memory memory = {
		.alloc = fake_memory_alloc,
		.free = fake_memory_free,
		.copy = fake_memory_copy,
	};
	static const struct conform_list *const lists[] = { conform_messages,
		                                            NULL };
	static const struct conform_backend backend = {
		.name = "mpi-memory",
		.memory = &memory,
		.traits = CONFORM_PROCESSES | CONFORM_HOST_ISSUED,
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
	fake_memory_forgive();
	conform_init(&conform, &backend, NULL, rank, size);
	result = conform_run(&conform, lists, &arguments);
	conform_fini(&conform);
	MPI_Finalize();
	if (fake_device_violations() == 0)
		return result;
	printf("not ok  the device's contract was broken\n");
	return 1;
}
