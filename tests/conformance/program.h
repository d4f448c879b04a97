/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs have in common that are tests by themselves, without the harness: they
 * count what is wrong, and their exit status says whether there was anything. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "baton.h"

static _Atomic int failures;

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (condition)                                                \
			break;                                                \
		atomic_fetch_add(&failures, 1);                               \
		printf("%s:%d: %s is false (\"%s\")\n", __FILE__, __LINE__,   \
		       #condition, baton_last_error());                       \
	} while (0)

static inline int
exit_status(void)
{
	return atomic_load(&failures) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* A communicator of the whole job; without it the program ends. */
static inline struct baton_comm *
create_world(void)
{
	struct baton_comm *comm = NULL;

	CHECK(baton_comm_create(NULL, &comm) == BATON_OK);
	if (!comm)
		exit(exit_status());
	return comm;
}

/* ---- mpi_watch.c ---- */

/* The functions of MPI that Baton calls, wrapped (PMPI): below MPI_THREAD_MULTIPLE no two threads may
 * be in MPI, and below SERIALIZED none but the main one.  For programs that have started MPI at
 * such a level.  From now on, at this level; the caller is the main thread. */
void mpi_watch(int level);
/* Calls that the level forbids so far; each was printed. */
int mpi_watch_offences(void);

#endif
