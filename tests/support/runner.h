/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs lists of cases on one rank, in lockstep with the other ranks: threads, processes of MPI, or
 * processes without it. */
#ifndef CONFORM_RUNNER_H
#define CONFORM_RUNNER_H

#include "harness.h"

struct conform_list {
	const char *name; /* "p2p": cases are called p2p.<claim> */
	const struct conform_case *cases;
};

/* The whole suite of send and recv, ended by a NULL name. */
extern const struct conform_list conform_suite[];

/* The lists that backends with a memory run. */
extern const struct conform_list conform_messages[];
/* Those of signals and windows, which they run too (CMakeLists.txt has them in runs apart). */
extern const struct conform_list conform_onesided[];
/* Both. */
extern const struct conform_list *const conform_on_memory[];

struct conform_arguments {
	int ranks; /* --ranks N, where ranks are threads */
	bool list; /* --list */
	const char *without; /* --without PART: leave such cases out */
	char **filters; /* run the cases whose names contain one of them */
	int filters_count;
};

/* Exit status 2 and a usage line on anything unknown. */
struct conform_arguments conform_arguments(int argc, char **argv);

/* --list: print the names.  Returns 0. */
int conform_print(const struct conform_list *const lists[]);

void conform_init(struct conform *c, const struct conform_backend *backend,
                  void *ranks, int rank, int size);
void conform_fini(struct conform *c);

/* All lists (a NULL-ended array of suites); rank 0 reports.  Returns the exit
 * status: 0, 1 when a case failed, 77 when all were skipped. */
int conform_run(struct conform *c, const struct conform_list *const lists[],
                const struct conform_arguments *arguments);

/* What the ranks agree on: the largest of their values. */
int conform_most(const int values[], int size);

/* ---- ranks that are threads of this process (ranks.c) ---- */

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

/* ---- ranks that are the processes of MPI_COMM_WORLD (processes.c) ---- */

/* They synchronise by MPI itself, beside Baton.  The main function of such a program: of the backend, name, memory, traits and create
 * are the caller's.  Starts MPI and ends it.  Returns the exit status. */
int conform_processes(struct conform_backend backend,
                      const struct conform_list *const lists[], int argc,
                      char **argv);

/* ---- ranks that are processes without MPI (forked.c) ---- */

/* They are children of this program, which synchronise by memory that they share; communicators are
 * made by ids.  The main function of such a program: `child` is what each rank does, in a process that has
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
