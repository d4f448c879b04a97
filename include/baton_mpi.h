/* SPDX-License-Identifier: BSD-3-Clause */
/* Baton over an MPI communicator of the program: the one public header that
 * names MPI types. */
#ifndef BATON_MPI_H
#define BATON_MPI_H

/* The C interface alone.  In C++ the headers of Open MPI and MPICH would add
 * MPI's C++ bindings, and undefined references to a library that nobody links.
 * (A program that includes mpi.h itself, first, has to define these itself.) */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "baton.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The families of MPI whose handles differ, and that of the mpi.h included here. */
#define BATON_MPI_FAMILY_OTHER 0
#define BATON_MPI_FAMILY_OPEN_MPI 1
#define BATON_MPI_FAMILY_MPICH 2 /* MPICH, Intel MPI, MVAPICH, Cray MPICH */
#define BATON_MPI_FAMILY_ABI 3   /* the standard ABI of MPI 5.0 */
#if defined(OPEN_MPI)
#define BATON_MPI_FAMILY BATON_MPI_FAMILY_OPEN_MPI
#elif defined(MPICH_VERSION) || defined(MPICH_NUMVERSION) || \
	defined(I_MPI_VERSION) || defined(MVAPICH2_VERSION)
#define BATON_MPI_FAMILY BATON_MPI_FAMILY_MPICH
#elif defined(MPI_ABI_VERSION)
#define BATON_MPI_FAMILY BATON_MPI_FAMILY_ABI
#else
#define BATON_MPI_FAMILY BATON_MPI_FAMILY_OTHER
#endif

/*
 * Create a communicator with the ranks of any intracommunicator.  parent is
 * duplicated, not kept: the program may free it at once.  MPI must be running;
 * what Baton may do depends on its thread level (docs/semantics.md, "MPI
 * thread levels").  Collective over parent.  Returns as baton_comm_create;
 * INVALID also for MPI_COMM_NULL, an intercommunicator, and MPI not running;
 * UNSUPPORTED also when the program, Baton and the MPI that runs in the process
 * are not of one family.
 */
BATON_API enum baton_status
baton_comm_create_mpi(MPI_Comm parent, const struct baton_comm_options *options,
                      struct baton_comm **comm_p);

/*
 * Is an MPI communicator of a program that was compiled with this family of MPI,
 * and whose MPI_Comm has handle_bytes bytes, what Baton takes for one?  Callable
 * from anywhere, before MPI is initialised too.  The macro below asks it before
 * each creation.  Returns BATON_OK, UNSUPPORTED.
 */
BATON_API enum baton_status baton_mpi_check(int family, size_t handle_bytes);

/* A handle of another MPI must not even be passed as an argument. */
#ifndef BATON_MPI_WITHOUT_CHECK
#define baton_comm_create_mpi(parent, options, comm_p)                        \
	(baton_mpi_check(BATON_MPI_FAMILY, sizeof(MPI_Comm)) == BATON_OK      \
	         ? (baton_comm_create_mpi)((parent), (options), (comm_p))     \
	         : BATON_ERR_UNSUPPORTED)
#endif

#ifdef __cplusplus
}
#endif
#endif
