/* SPDX-License-Identifier: BSD-3-Clause */
/* The local transport on the CUDA device: ranks are threads, messages in device memory.  With
 * "host" as its first argument: the whole suite, windows and signals included, on CUDA
 * streams with buffers in host memory. */
#include <string.h>

#include "cuda_gpu.h"
#include "on_cuda.h"
#include "runner.h"
#include "testing.h"

static enum baton_status
cuda_open(int size, const struct baton_comm_options *options,
          struct baton_comm *comms[])
{
	return batoni_comm_create_local_with(&batoni_device_cuda_ops, size,
	                                     options, comms);
}

int
main(int argc, char **argv)
{
	if (!on_cuda_begin())
		return 77;
	if (argc > 1 && !strcmp(argv[1], "host")) {
		static const struct conform_list *const all[] = { conform_suite,
			                                          NULL };

		return on_cuda_end(conform_threads_on(
			(struct conform_backend){ .name = "cuda-host",
			                          .memory = &on_cuda_memory,
			                          .traits = CONFORM_HOST_ISSUED |
			                                    CONFORM_HOST_BUFFERS,
			                          .queues = on_cuda_queues(),
			                          .devices = on_cuda_devices() },
			cuda_open, all, argc - 1, argv + 1));
	}
	return on_cuda_end(conform_threads_on(
		(struct conform_backend){ .name = "cuda-local",
		                          .memory = &on_cuda_memory,
		                          .traits = CONFORM_HOST_ISSUED,
		                          .queues = on_cuda_queues(),
		                          .devices = on_cuda_devices() },
		cuda_open, conform_on_memory, argc, argv));
}
