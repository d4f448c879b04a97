/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI that is CUDA-aware, for tests over the simulator of the driver.
 *
 * A program that has this file gets MPI_Isend, MPI_Irecv, MPI_Test and MPI_Testsome from it,
 * which take memory of simulated devices too, and MPIX_Query_cuda_support, which says so; all
 * the rest is that of the MPI below.  A device buffer is replaced by one of the host for as
 * long as the request is active.  What was received goes into the device's memory as a
 * network card would write it (sim_remote_write).
 *
 * Stricter than an MPI may be: a thread that passes a device buffer must have a current
 * context; without one the program is aborted.
 */
#ifndef CUDA_AWARE_MPI_H
#define CUDA_AWARE_MPI_H

#include <stdbool.h>

#include "cudasim.h"

/* Before the first communicator.  aware false: it says that it is not CUDA-aware, and passes
 * all buffers on as they are, as it does without this call. */
void cuda_aware_mpi_begin(const struct cudasim *sim, bool aware);

/* How many messages had a buffer of a device, so far. */
long cuda_aware_mpi_messages(void);

#endif
