/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages through shared memory on the CUDA device: staged, between processes without MPI. */
#include "on_cuda.h"
#include "runner.h"

static struct baton_comm_options
options(const struct baton_comm_options *options_or_null)
{
	struct baton_comm_options mine = BATON_COMM_OPTIONS_INIT;

	if (options_or_null)
		mine = *options_or_null;
	mine.device = BATON_DEVICE_CUDA;
	mine.transport = BATON_TRANSPORT_NEAR;
	return mine;
}

static int
child(int argc, char **argv)
{
	const struct conform_backend backend = {
		.name = "cuda-near",
		.memory = &on_cuda_memory,
		.traits = CONFORM_HOST_ISSUED,
		.queues = on_cuda_queues(),
	};

	if (!on_cuda_begin())
		return 77;
	return on_cuda_end(conform_forked_rank(backend, options, conform_on_memory,
	                                       argc, argv));
}

int
main(int argc, char **argv)
{
	return conform_forked(child, argc, argv);
}
