/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages over MPI whose buffers are in device memory that faults when the host, and so
 * MPI, touches it: the MPI transport, staged, on the fake asynchronous device. */
#include "fake_memory.h"
#include "on_fake_device.h"
#include "processes.h"
#include "testing.h"

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
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            NULL };
	const struct conform_backend backend = {
		.name = "mpi-memory",
		.memory = &on_fake_memory,
		.traits = CONFORM_HOST_ISSUED,
		.create = mpi_create,
	};

	fake_memory_forgive();
	return on_fake_device_end(
		conform_processes(backend, lists, argc, argv));
}
