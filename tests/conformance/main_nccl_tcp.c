/* SPDX-License-Identifier: BSD-3-Clause */
/* The NCCL transport between processes without MPI, which meet by ids. */
#include <string.h>

#include "on_nccl.h"
#include "runner.h"

/* The ranks reach each other's counters over the side channel's shared memory. */
static void
a_signal_is_its_streams(struct conform *c)
{
	CHECK(c, strcmp(c->info.why_engine_puts, "") == 0);
}

static const struct conform_case of_streams[] = {
	{ CASE(a_signal_is_its_streams), .ranks_min = 2 },
	CASES_END,
};

static const struct conform_list own_lists[] = {
	{ "streams_of_processes", of_streams },
	{ NULL, NULL },
};

static int
run_nccl_tcp(int argc, char **argv)
{
	static const struct conform_list *const lists[] = { conform_messages,
		                                            conform_onesided,
		                                            own_lists, NULL };
	const struct conform_backend backend = {
		.name = "nccl-tcp",
		.memory = &on_cuda_memory,
		.queues = on_cuda_queues(),
		.streams = on_nccl_streams,
	};

	return conform_forked_rank(backend, on_nccl_options, lists, argc, argv);
}

static int
child(int argc, char **argv)
{
	if (!on_nccl_begin())
		return 77;
	return on_nccl_end(on_nccl_run(run_nccl_tcp, argc, argv));
}

int
main(int argc, char **argv)
{
	return conform_forked(child, argc, argv);
}
