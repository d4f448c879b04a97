/* SPDX-License-Identifier: BSD-3-Clause */
/* The NCCL transport between processes without MPI, which meet by ids. */
#include "forked.h"
#include "on_nccl.h"

static int
run(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            NULL };
	const struct conform_backend backend = {
		.name = "nccl-tcp",
		.memory = &on_cuda_memory,
		.queues = on_cuda_queues(),
	};

	return conform_forked_rank(backend, on_nccl_options, lists, argc, argv);
}

static int
child(int argc, char **argv)
{
	if (!on_nccl_begin())
		return 77;
	return on_nccl_end(on_nccl_run(run, argc, argv));
}

int
main(int argc, char **argv)
{
	return conform_forked(child, argc, argv);
}
