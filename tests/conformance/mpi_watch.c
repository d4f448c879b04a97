/* SPDX-License-Identifier: BSD-3-Clause */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <mpi.h>

static int mpi_level = MPI_THREAD_MULTIPLE;
static pthread_t main_thread;
static _Atomic int inside, offences;

void
mpi_watch(int level)
{
	main_thread = pthread_self();
	mpi_level = level;
}

int
mpi_watch_offences(void)
{
	return atomic_load(&offences);
}

static void
enter(const char *name)
{
	const char *what = NULL;

	if (mpi_level == MPI_THREAD_MULTIPLE)
		return;
	if (atomic_fetch_add(&inside, 1) != 0)
		what = "beside another thread";
	if (mpi_level < MPI_THREAD_SERIALIZED &&
	    !pthread_equal(pthread_self(), main_thread))
		what = "on another thread than the main one";
	if (!what)
		return;
	atomic_fetch_add(&offences, 1);
	printf("%s is called %s\n", name, what);
}

static void
leave(void)
{
	if (mpi_level != MPI_THREAD_MULTIPLE)
		atomic_fetch_sub(&inside, 1);
}

#define WRAP(name, parameters, arguments)                                     \
	int name parameters                                                   \
	{                                                                     \
		int code;                                                     \
		enter(#name);                                                      \
		code = P##name arguments;                                     \
		leave();                                                      \
		return code;                                                  \
	}

WRAP(MPI_Isend,
     (const void *buffer, int count, MPI_Datatype type, int peer, int tag,
      MPI_Comm comm, MPI_Request *request),
     (buffer, count, type, peer, tag, comm, request))
WRAP(MPI_Issend,
     (const void *buffer, int count, MPI_Datatype type, int peer, int tag,
      MPI_Comm comm, MPI_Request *request),
     (buffer, count, type, peer, tag, comm, request))
WRAP(MPI_Irecv,
     (void *buffer, int count, MPI_Datatype type, int peer, int tag,
      MPI_Comm comm, MPI_Request *request),
     (buffer, count, type, peer, tag, comm, request))
WRAP(MPI_Test, (MPI_Request *request, int *flag, MPI_Status *status),
     (request, flag, status))
WRAP(MPI_Testsome,
     (int n, MPI_Request requests[], int *count, int indices[],
      MPI_Status statuses[]),
     (n, requests, count, indices, statuses))
WRAP(MPI_Iprobe,
     (int peer, int tag, MPI_Comm comm, int *flag, MPI_Status *status),
     (peer, tag, comm, flag, status))
WRAP(MPI_Recv,
     (void *buffer, int count, MPI_Datatype type, int peer, int tag,
      MPI_Comm comm, MPI_Status *status),
     (buffer, count, type, peer, tag, comm, status))
WRAP(MPI_Wait, (MPI_Request *request, MPI_Status *status), (request, status))
WRAP(MPI_Waitall, (int n, MPI_Request requests[], MPI_Status statuses[]),
     (n, requests, statuses))
WRAP(MPI_Cancel, (MPI_Request *request), (request))
WRAP(MPI_Comm_create_group,
     (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
     (comm, group, tag, made))
WRAP(MPI_Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
WRAP(MPI_Iallreduce,
     (const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op,
      MPI_Comm comm, MPI_Request *request),
     (mine, all, count, type, op, comm, request))
WRAP(MPI_Iallgather,
     (const void *mine, int n, MPI_Datatype type, void *all, int count,
      MPI_Datatype types, MPI_Comm comm, MPI_Request *request),
     (mine, n, type, all, count, types, comm, request))
WRAP(MPI_Ialltoall,
     (const void *mine, int n, MPI_Datatype type, void *all, int count,
      MPI_Datatype types, MPI_Comm comm, MPI_Request *request),
     (mine, n, type, all, count, types, comm, request))
WRAP(MPI_Allreduce,
     (const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op,
      MPI_Comm comm),
     (mine, all, count, type, op, comm))
WRAP(MPI_Allgather,
     (const void *mine, int n, MPI_Datatype type, void *all, int count,
      MPI_Datatype types, MPI_Comm comm),
     (mine, n, type, all, count, types, comm))
WRAP(MPI_Alltoall,
     (const void *mine, int n, MPI_Datatype type, void *all, int count,
      MPI_Datatype types, MPI_Comm comm),
     (mine, n, type, all, count, types, comm))
WRAP(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm *twin), (comm, twin))
WRAP(MPI_Comm_idup, (MPI_Comm comm, MPI_Comm *twin, MPI_Request *request),
     (comm, twin, request))
WRAP(MPI_Comm_free, (MPI_Comm *comm), (comm))
WRAP(MPI_Comm_size, (MPI_Comm comm, int *size), (comm, size))
WRAP(MPI_Comm_rank, (MPI_Comm comm, int *rank), (comm, rank))
WRAP(MPI_Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler),
     (comm, handler))
WRAP(MPI_Type_create_hindexed,
     (int n, const int lengths[], const MPI_Aint places[], MPI_Datatype old,
      MPI_Datatype *new_p),
     (n, lengths, places, old, new_p))
WRAP(MPI_Type_commit, (MPI_Datatype *type), (type))
WRAP(MPI_Type_free, (MPI_Datatype *type), (type))
WRAP(MPI_Test_cancelled, (const MPI_Status *status, int *flag), (status, flag))
WRAP(MPI_Get_count, (const MPI_Status *status, MPI_Datatype type, int *n),
     (status, type, n))
WRAP(MPI_Comm_get_attr, (MPI_Comm comm, int key, void *value, int *flag),
     (comm, key, value, flag))
WRAP(MPI_Comm_test_inter, (MPI_Comm comm, int *flag), (comm, flag))
