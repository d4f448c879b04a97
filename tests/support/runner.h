/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs lists of cases on one rank, in lockstep with the other ranks. */
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

#endif
