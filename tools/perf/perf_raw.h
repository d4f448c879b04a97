/* SPDX-License-Identifier: BSD-3-Clause */
/* The sides that Baton is measured against: what perf_raw.c calls of perf_raw_mpi.c and perf_nccl.c. */
#ifndef BATON_TOOL_PERF_RAW_H
#define BATON_TOOL_PERF_RAW_H

#include "perf.h"

/* A side; NULL in the place of open: this `baton` was built without it. */
struct perf_raw_ops {
	const char *name;
	/* Collective.  What run and close get; NULL: `why` says why not, maybe not on all ranks. */
	struct perf_raw *(*open)(struct perf_rank *rank, char *why, size_t size);
	/* The rounds of a pattern.  Where it fails, `failed` of the rank says why. */
	void (*run)(struct perf_raw *raw, struct perf_rank *rank,
	            enum perf_pattern pattern, int rounds);
	/* Collective. */
	void (*close)(struct perf_raw *raw);
};

extern const struct perf_raw_ops perf_raw_mpi, perf_raw_nccl;

#endif
