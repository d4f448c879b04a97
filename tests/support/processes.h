/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the suite with ranks that are the processes of MPI_COMM_WORLD, which synchronise
 * by MPI itself, beside Baton. */
#ifndef CONFORM_PROCESSES_H
#define CONFORM_PROCESSES_H

#include "runner.h"

/* The main function of such a program: of the backend, name, memory, traits and create
 * are the caller's.  Starts MPI and ends it.  Returns the exit status. */
int conform_processes(struct conform_backend backend,
                      const struct conform_list *const lists[], int argc,
                      char **argv);

#endif
