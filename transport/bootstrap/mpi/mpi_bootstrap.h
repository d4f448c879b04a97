/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap over MPI, as its own files and the MPI transport see it.
 *
 * some.c       the communicator of some ranks of another one
 * bootstrap.c  joining the ranks of an MPI communicator, and their exchange
 * start.c      starting MPI, and finalising an MPI that Baton has started
 * family.c     one MPI for the program, Baton and the process
 */
#ifndef BATONI_MPI_BOOTSTRAP_H
#define BATONI_MPI_BOOTSTRAP_H

#include <mpi.h>

#include "bootstrap.h"
#include "mpi_version.h"

/* What is reduced before contributions are gathered has a status, and the least and the negative of the
 * largest of so many values, of which the first is the version.  All versions have it so. */
#define BATONI_MPI_ALIKE_MAX 16

struct batoni_mpi_terms {
	int64_t status;
	int64_t least[BATONI_MPI_ALIKE_MAX];
	int64_t most[BATONI_MPI_ALIKE_MAX]; /* negatives */
};

enum batoni_mpi_phase {
	BATONI_MPI_BARE,        /* the parent is not duplicated yet */
	BATONI_MPI_MEETING,     /* or: some of its ranks make a communicator (some.c) */
	BATONI_MPI_DUPLICATING,
	BATONI_MPI_IDLE,
	BATONI_MPI_REDUCING,    /* does every rank have memory for the contributions? */
	BATONI_MPI_GATHERING
};

struct batoni_mpi_boot {
	enum batoni_mpi_phase phase;
	int level; /* MPI's thread level */
	MPI_Comm parent;
	struct batoni_mpi_some *some; /* MEETING */
	/* The duplicate.  MPI_COMM_NULL: there is none, or a transport has it. */
	MPI_Comm comm;
	MPI_Request request;
	struct batoni_mpi_terms mine, all;
	unsigned char *contributions; /* this rank's, and then those of all */
};

_Static_assert(sizeof(struct batoni_mpi_boot) <= BATONI_BOOTSTRAP_BYTES, "it fits");

static inline struct batoni_mpi_boot *
batoni_mpi_boot_of(struct batoni_bootstrap *bootstrap)
{
	return (void *)bootstrap->own.bytes;
}

/* bootstrap.c */
/* "MPI_THREAD_MULTIPLE". */
const char *batoni_mpi_level_name(int thread_level);
/* Join the bootstrap of `size` ranks of which this one is `rank`: all of `parent`, which is duplicated first, unless
 * batoni_mpi_some_begin is called. */
void batoni_mpi_join(MPI_Comm parent, int level, int rank, int size,
                     struct batoni_bootstrap *bootstrap);
/* An MPI call of a creation has failed: call batoni_refuse with MPI's text.  Returns
 * BATON_ERR_MPI. */
enum baton_status batoni_mpi_refuse(const char *call, int code);

/* some.c */
/* These ranks of the parent alone are those of the bootstrap.  No message of the parent has the tag, or is received
 * or probed by it.  Below MPI_THREAD_MULTIPLE with the driver lock; may wait for them.  MPI's code. */
int batoni_mpi_some_begin(struct batoni_mpi_boot *boot, const int ranks[], int size,
                          int tag);
/* MEETING.  True: boot->comm is their communicator, or *code_p says why there is none. */
bool batoni_mpi_some_test(struct batoni_mpi_boot *boot, int *code_p);
/* MEETING, and the creation is given up.  True: it has ended, and boot->comm is valid if MPI has made it. */
bool batoni_mpi_some_abandon(struct batoni_mpi_boot *boot);

/* family.c: is the MPI of this process the one that Baton was compiled with?  Call it
 * before any MPI call that takes a handle.  Any thread.  OK; UNSUPPORTED, with
 * batoni_refuse called. */
enum baton_status batoni_mpi_check_library(void);

/* "Open MPI v4.1.4": the library that is called.  Any thread, before MPI is started too. */
#define BATONI_MPI_VERSION_BYTES 81
void batoni_mpi_library_version(char text[BATONI_MPI_VERSION_BYTES]);

/* start.c */
bool batoni_mpi_initialized(void);
bool batoni_mpi_finalized(void);
/* Start MPI, unless it runs.  OK; INVALID, MPI: batoni_refuse has said why. */
enum baton_status batoni_mpi_start(const struct batoni_engine_calls *engine);
/* Ask this before MPI is finalised at exit; may: with that exit status (-1: not known). */
void batoni_mpi_ask_at_exit(bool (*may)(int exit_status));
/* MPI is finalised by Baton at exit, not by the program. */
bool batoni_mpi_is_at_exit(void);

#endif
