/* SPDX-License-Identifier: BSD-3-Clause */
/* The NCCL transport, over simulators of NCCL and of the CUDA driver: ranks are threads, and
 * share one device, of which the messages' memory is (NCCLSIM_DUPLICATES). */
#include <stdio.h>

#include "cuda_gpu.h"
#include "ncclsim.h"
#include "on_cuda.h"
#include "ranks.h"
#include "testing.h"

static enum baton_status
nccl_open(int size, const struct baton_comm_options *options,
          struct baton_comm *comms[])
{
	struct baton_comm_options mine = BATON_COMM_OPTIONS_INIT;

	if (options)
		mine = *options;
	mine.transport = BATON_TRANSPORT_NCCL;
	return batoni_comm_create_local_with(&batoni_device_cuda_ops, size,
	                                     &mine, comms);
}

int
main(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_messages,
		                                            NULL };
	const struct ncclsim *nccl = ncclsim_load(NULL);
	int result;

	if (!nccl || !on_cuda_begin())
		return 77;
	result = on_cuda_end(conform_threads_on(
		(struct conform_backend){ .name = "nccl-local",
		                          .memory = &on_cuda_memory,
		                          .queues = on_cuda_queues(),
		                          .devices = on_cuda_devices() },
		nccl_open, lists, argc, argv));
	if (!nccl->sim_violations || nccl->sim_violations() == 0)
		return result;
	printf("not ok  NCCL's rules were broken\n");
	return 1;
}
