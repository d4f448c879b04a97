/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of MPI that Baton calls, wrapped (PMPI): below MPI_THREAD_MULTIPLE no two threads may
 * be in MPI, and below SERIALIZED none but the main one.  For programs that have started MPI at
 * such a level.
 */
#ifndef MPI_WATCH_H
#define MPI_WATCH_H

/* From now on, at this level; the caller is the main thread. */
void mpi_watch(int level);
/* Calls that the level forbids so far; each was printed. */
int mpi_watch_offences(void);

#endif
