/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops of perf_loops.h in raw MPI, for `baton perf --against mpi` and the baselines of tests/bench: the same calls in
 * the same order, as far as MPI has them.  They look at the peer, first, out, in, bytes, depth, step and steps of a
 * struct perf_end, and not at its communicator.  MPI's error handler takes errors.
 */
#ifndef BATON_TOOL_PERF_MPI_H
#define BATON_TOOL_PERF_MPI_H

#include <mpi.h>

#include "perf_loops.h"

/* There and back: MPI_Isend, MPI_Irecv and a loop of MPI_Test, in the order of one stream. */
void perf_mpi_latency(MPI_Comm comm, const struct perf_end *e, int rounds);
/* `depth` messages one way, MPI_Waitall, and one byte back. */
void perf_mpi_window(MPI_Comm comm, const struct perf_end *e, int rounds);
/* MPI_Irecv, MPI_Isend, MPI_Waitall. */
void perf_mpi_ring(MPI_Comm comm, const struct perf_end *e, int rounds);
/* MPI_Alltoall. */
void perf_mpi_all(MPI_Comm comm, const struct perf_end *e, int rounds);
/* MPI_Isend or MPI_Irecv, perf_spin, MPI_Wait. */
void perf_mpi_overlapped(MPI_Comm comm, const struct perf_end *e, int rounds);

#endif
