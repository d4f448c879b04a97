/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI transport on the CUDA device: messages in device memory, staged, also where MPI is
 * CUDA-aware (unless BATON_MPI_CUDA says otherwise). */
#include <stdlib.h>

#include "cuda_gpu.h"
#include "on_cuda.h"
#include "runner.h"
#include "testing.h"

static enum baton_status
cuda_create(struct conform *c, const struct baton_comm_options *options,
            struct baton_comm **comm_p)
{
	(void)c;
	return batoni_comm_create_mpi_with(&batoni_device_cuda_ops, options,
	                                   comm_p);
}

int
main(int argc, char **argv)
{
	const struct conform_backend backend = {
		.name = "cuda-mpi",
		.memory = &on_cuda_memory,
		.traits = CONFORM_HOST_ISSUED,
		.queues = on_cuda_queues(),
		.create = cuda_create,
	};

	setenv("BATON_MPI_CUDA", "staged", 0);
	if (!on_cuda_begin())
		return 77;
	return on_cuda_end(conform_processes(backend, conform_on_memory, argc, argv));
}
