/* SPDX-License-Identifier: BSD-3-Clause */
/* The NCCL transport, over simulators of NCCL and of the CUDA driver: ranks are threads.  They
 * share one device, of which the messages' memory is (NCCLSIM_DUPLICATES).  With "pinned" as
 * its first argument: each has a device of its own, and messages are in pinned memory. */
#include <string.h>

#include "on_nccl.h"
#include "runner.h"

static enum baton_status
nccl_open(int size, const struct baton_comm_options *options,
          struct baton_comm *comms[])
{
	const struct baton_comm_options mine = on_nccl_options(options);

	return baton_comm_create_local(size, &mine, comms);
}

int
main(int argc, char **argv)
{
	if (!on_nccl_begin())
		return 77;
	if (argc > 1 && !strcmp(argv[1], "pinned"))
		return on_nccl_end(conform_threads_on(
			(struct conform_backend){
				.name = "nccl-pinned",
				.memory = &on_cuda_memory,
				.traits = CONFORM_HOST_BUFFERS,
				.queues = on_cuda_queues(),
				.streams = on_nccl_streams,
				.devices = on_cuda_devices() },
			nccl_open, conform_on_memory, argc - 1, argv + 1));
	return on_nccl_end(conform_threads_on(
		(struct conform_backend){ .name = "nccl-local",
		                          .memory = &on_cuda_memory,
		                          .queues = on_cuda_queues(),
		                          .streams = on_nccl_streams,
		                          .devices = on_cuda_devices() },
		nccl_open, conform_on_memory, argc, argv));
}
