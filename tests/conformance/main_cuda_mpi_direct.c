/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI transport on the CUDA device, with an MPI that reaches device memory by itself: over
 * the simulator only.  With CONFORM_HOSTS set, ranks with an odd number are on the host device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_aware_mpi.h"
#include "cuda_gpu.h"
#include "on_cuda.h"
#include "runner.h"
#include "testing.h"

static bool on_device; /* this process has a rank on the CUDA device */

static enum baton_status
cuda_create(struct conform *c, const struct baton_comm_options *options,
            struct baton_comm **comm_p)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	bool on_host = getenv("CONFORM_HOSTS") && c->rank % 2 == 1;
	enum baton_status status = batoni_comm_create_mpi_with(
		on_host ? &batoni_device_host_ops : &batoni_device_cuda_ops,
		options, comm_p);

	if (status != BATON_OK || on_host)
		return status;
	on_device = true;
	CHECK_OK(c, baton_comm_query(*comm_p, &info));
	CHECK(c, strstr(info.library, ", CUDA-aware") != NULL);
	return BATON_OK;
}

int
main(int argc, char **argv)
{
	const struct conform_backend backend = {
		.name = "cuda-mpi-direct",
		.memory = &on_cuda_memory,
		.traits = CONFORM_HOST_ISSUED |
		          (getenv("CONFORM_HOSTS") ? CONFORM_TWO_DEVICES : 0),
		.queues = on_cuda_queues(),
		.create = cuda_create,
	};
	const struct cudasim *sim;
	int result;

	if (!on_cuda_begin())
		return 77;
	sim = cudasim_load(NULL);
	if (!sim->sim_peek) {
		printf("SKIP: the MPI of this test reaches simulated devices only\n");
		return 77;
	}
	cuda_aware_mpi_begin(sim, true);
	result = conform_processes(backend, conform_on_memory, argc, argv);
	if (result == 0 && on_device && cuda_aware_mpi_messages() == 0) {
		printf("not ok  no message was passed to MPI from the device\n");
		result = 1;
	}
	return on_cuda_end(result);
}
