/* SPDX-License-Identifier: BSD-3-Clause */
/* The side that Baton is measured against, whichever it is. */
#include "perf_raw.h"

#include <stdio.h>

#include "tool.h"

/* Of a `baton` without MPI. */
#ifndef BATON_PERF_MPI
const struct perf_raw_ops perf_raw_mpi = {.name = "MPI"};
#endif

static const struct perf_raw_ops *const sides[] = {
	[PERF_MPI] = &perf_raw_mpi, [PERF_NCCL] = &perf_raw_nccl};

const char *
perf_raw_name(enum perf_against against)
{
	return against == PERF_ALONE ? "" : sides[against]->name;
}

/* On rank 0 the first sentence of the ranks that have one, which all get. */
static bool
agree(struct job *job, const char *mine, char *why, size_t size)
{
	json_t *told = job_gather(job, json_pack("{ss}", "why", mine));
	const json_t *rank;
	size_t i;

	why[0] = '\0';
	json_array_foreach(told, i, rank)
	{
		if (!*why)
			snprintf(why, size, "%s", tool_text(rank, "why"));
	}
	json_decref(told);
	return job_share(job, why, size) && *why == '\0';
}

bool
perf_raw_open(struct perf_rank *rank, char *why, size_t size)
{
	enum perf_against against = rank->options->against;
	const struct perf_raw_ops *ops;
	char mine[512] = "";

	if (against == PERF_ALONE)
		return true;
	ops = sides[against];
	if (ops->open)
		rank->raw = ops->open(rank, mine, sizeof(mine));
	else
		snprintf(mine, sizeof(mine), "--against mpi: this baton was built "
		                             "without MPI");
	return agree(rank->job, mine, why, size);
}

void
perf_raw_close(struct perf_rank *rank)
{
	if (rank->raw)
		sides[rank->options->against]->close(rank->raw);
	rank->raw = NULL;
}

void
perf_raw_run(struct perf_rank *rank, enum perf_pattern pattern, int rounds)
{
	sides[rank->options->against]->run(rank->raw, rank, pattern, rounds);
}
