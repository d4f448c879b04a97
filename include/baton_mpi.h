/* SPDX-License-Identifier: BSD-3-Clause */
/* Baton over an MPI communicator of the program: the one public header that
 * names MPI types. */
#ifndef BATON_MPI_H
#define BATON_MPI_H

#include <mpi.h>

#include "baton.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Create a communicator with the ranks of any intracommunicator.  parent is
 * duplicated, not kept: the program may free it at once.  MPI must be running;
 * what Baton may do depends on its thread level (docs/semantics.md, "MPI
 * thread levels").  Collective over parent.  Returns as baton_comm_create;
 * INVALID also for MPI_COMM_NULL, an intercommunicator, and MPI not running.
 */
BATON_API enum baton_status
baton_comm_create_mpi(MPI_Comm parent, const struct baton_comm_options *options,
                      struct baton_comm **comm_p);

#ifdef __cplusplus
}
#endif
#endif
