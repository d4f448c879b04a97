/* SPDX-License-Identifier: BSD-3-Clause */
/* What of an mpi.h baton_mpi.h meets: in the manner of MPICH, or of Open MPI. */
#ifndef OTHER_MPI_H
#define OTHER_MPI_H

#if defined(LIKE_MPICH)
#define MPICH_VERSION "4.2.0"
typedef int MPI_Comm;
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#else
#define OPEN_MPI 1
typedef struct ompi_communicator_t *MPI_Comm;
#define MPI_COMM_WORLD ((MPI_Comm)0x1000)
#endif

#endif
