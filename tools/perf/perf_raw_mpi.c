/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `baton perf --against mpi`.  Built where there is an MPI, which the library uses as well: it has started it, at
 * MPI_THREAD_MULTIPLE, when the job's communicator was made, and ends it at exit.
 *
 * MPI has no put that its target waits for by a count, so puts are compared with messages of as many bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "perf_mpi.h"
#include "perf_raw.h"

struct perf_raw {
	MPI_Comm comm;
};

static const char *
why_not(const struct perf_rank *rank)
{
	int started = 0, size = 0;

	MPI_Initialized(&started);
	if (started)
		MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != rank->end.size)
		return "--against mpi: the ranks are not those of MPI; start them by "
		       "mpirun -np 2 baton perf";
	if (rank->gpu >= 0 && rank->options->memory != PERF_HEAP)
		return "--against mpi: MPI is measured with memory of the host; "
		       "--memory heap or --device host has that";
	return NULL;
}

static struct perf_raw *
open_mpi(struct perf_rank *rank, char *why, size_t size)
{
	struct perf_raw *raw = malloc(sizeof(*raw));
	const char *reason = raw ? why_not(rank) : "out of memory";

	if (reason) {
		snprintf(why, size, "%s", reason);
		free(raw);
		return NULL;
	}
	MPI_Comm_dup(MPI_COMM_WORLD, &raw->comm);
	return raw;
}

static void
run_mpi(struct perf_raw *raw, struct perf_rank *rank,
        enum perf_pattern pattern, int rounds)
{
	const struct perf_end *e = &rank->end;

	switch (pattern) {
	case PERF_LATENCY:
	case PERF_PUT:
		perf_mpi_latency(raw->comm, e, rounds);
		break;
	case PERF_WINDOW:
	case PERF_PUTS:
		perf_mpi_window(raw->comm, e, rounds);
		break;
	case PERF_RING:
		perf_mpi_ring(raw->comm, e, rounds);
		break;
	case PERF_ALL:
		perf_mpi_all(raw->comm, e, rounds);
		break;
	case PERF_OVERLAP:
		perf_mpi_overlapped(raw->comm, e, rounds);
		break;
	}
}

static void
close_mpi(struct perf_raw *raw)
{
	MPI_Comm_free(&raw->comm);
	free(raw);
}

const struct perf_raw_ops perf_raw_mpi = {"MPI", open_mpi, run_mpi, close_mpi};
