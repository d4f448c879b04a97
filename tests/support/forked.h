/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the suite with ranks that are processes without MPI: children of this program, which
 * synchronise by memory that they share.  Communicators are made by ids. */
#ifndef CONFORM_FORKED_H
#define CONFORM_FORKED_H

#include "runner.h"

/* The main function of such a program: `child` is what each rank does, in a process that has
 * called nothing yet; it calls conform_forked_rank.  Returns the exit status: the worst of
 * theirs. */
int conform_forked(int (*child)(int argc, char **argv), int argc, char **argv);

/* Of the backend, name and memory are the caller's.  options: those of each communicator. */
int conform_forked_rank(struct conform_backend backend,
                        struct baton_comm_options (*options)(
				const struct baton_comm_options *options_or_null),
                        const struct conform_list *const lists[], int argc,
                        char **argv);

#endif
