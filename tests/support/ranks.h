/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the suite with ranks that are threads of this process. */
#ifndef CONFORM_RANKS_H
#define CONFORM_RANKS_H

#include "runner.h"

/* All ranks' communicators at once. */
typedef enum baton_status
conform_open_fn(int size, const struct baton_comm_options *options,
                struct baton_comm *comms[]);

/* The main function of such a program: traits are added to CONFORM_THREADS.
 * Returns the exit status. */
int conform_threads(const char *name, unsigned traits, conform_open_fn *open_fn,
                    const struct conform_list *const lists[], int argc,
                    char **argv);
/* The same; of the backend, name, memory, traits and queues are the caller's. */
int conform_threads_on(struct conform_backend backend, conform_open_fn *open_fn,
                       const struct conform_list *const lists[], int argc,
                       char **argv);

#endif
