/* SPDX-License-Identifier: BSD-3-Clause */
/* The NCCL transport over MPI: ranks are processes.  Over the simulators each has a device of
 * its own; on a machine with one GPU they share it, as tests/gpu/run has it. */
#include "on_nccl.h"
#include "runner.h"

static enum baton_status
nccl_create(struct conform *c, const struct baton_comm_options *options,
            struct baton_comm **comm_p)
{
	const struct baton_comm_options mine = on_nccl_options(options);

	(void)c;
	return baton_comm_create(&mine, comm_p);
}

static int
run_nccl_mpi(int argc, char **argv)
{
	const struct conform_backend backend = {
		.name = "nccl-mpi",
		.memory = &on_cuda_memory,
		.queues = on_cuda_queues(),
		.streams = on_nccl_streams,
		.create = nccl_create,
	};

	return conform_processes(backend, conform_on_memory, argc, argv);
}

int
main(int argc, char **argv)
{
	if (!on_nccl_begin())
		return 77;
	return on_nccl_end(on_nccl_run(run_nccl_mpi, argc, argv));
}
