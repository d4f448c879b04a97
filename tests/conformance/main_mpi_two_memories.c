/* SPDX-License-Identifier: BSD-3-Clause */
/* The same over MPI as main_two_memories.c: processes on the host device, and processes whose
 * messages are in device memory that faults when the host, and so MPI, touches it. */
#include "fake_memory.h"
#include "on_fake_device.h"
#include "runner.h"
#include "testing.h"

/* Ranks with different requests_max agree on the tags of the protocol. */
static enum baton_status
mpi_create(struct conform *c, const struct baton_comm_options *options,
           struct baton_comm **comm_p)
{
	struct baton_comm_options own = BATON_COMM_OPTIONS_INIT;

	if (options)
		own = *options;
	if (own.requests_max == 0)
		own.requests_max = BATON_REQUESTS_MAX_DEFAULT +
		                   1000 * (uint32_t)c->rank;
	return batoni_comm_create_mpi_with(on_two_devices(c->rank), &own, comm_p);
}

int
main(int argc, char **argv)
{
	const struct conform_backend backend = {
		.name = "mpi-two-memories",
		.memory = &on_fake_memory,
		.traits = CONFORM_HOST_ISSUED | CONFORM_TWO_DEVICES,
		.create = mpi_create,
	};

	fake_memory_forgive();
	return on_fake_device_end(
		conform_processes(backend, conform_on_memory, argc, argv));
}
