/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_aware_mpi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

int MPIX_Query_cuda_support(void);

/* A request whose buffer is not the program's. */
struct stand_in {
	struct stand_in *next;
	MPI_Request request;
	CUdeviceptr received; /* where to; 0: it is a send */
	size_t bytes;
	unsigned char memory[];
};

static const struct cudasim *sim; /* set before the first message */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stand_in *active; /* under lock */
static atomic_long messages;

void
cuda_aware_mpi_begin(const struct cudasim *driver, bool aware)
{
	sim = aware ? driver : NULL;
}

long
cuda_aware_mpi_messages(void)
{
	return atomic_load(&messages);
}

int
MPIX_Query_cuda_support(void)
{
	return sim != NULL;
}

static bool
is_on_device(const void *buffer)
{
	CUpointer_attribute attribute = BATONI_CU_POINTER_MEMORY_TYPE;
	CUcontext current = NULL;
	unsigned type = 0;
	void *value = &type;

	if (!sim || !buffer ||
	    sim->pointer_attributes(1, &attribute, &value,
	                            (CUdeviceptr)(uintptr_t)buffer) !=
	            BATONI_CU_SUCCESS ||
	    type != BATONI_CU_MEMORY_DEVICE)
		return false;
	if (sim->context_current(&current) != BATONI_CU_SUCCESS || !current) {
		fprintf(stderr, "MPI gets memory of a device, and the thread has "
		                "no current context\n");
		abort();
	}
	atomic_fetch_add(&messages, 1);
	return true;
}

static struct stand_in *
stand_in_for(MPI_Aint count, MPI_Datatype type)
{
	struct stand_in *in;
	int size;

	MPI_Type_size(type, &size);
	in = malloc(sizeof(*in) + (size_t)count * (size_t)size);
	if (!in)
		abort();
	in->bytes = (size_t)count * (size_t)size;
	in->received = 0;
	return in;
}

/* Requests that are complete may share a handle. */
static void
keep(struct stand_in *in, MPI_Request request)
{
	in->request = request;
	pthread_mutex_lock(&lock);
	in->next = active;
	active = in;
	pthread_mutex_unlock(&lock);
}

/* The request is complete, or was canceled. */
static void
ended(MPI_Request request)
{
	struct stand_in **at = &active, *in;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->request != request)
		at = &(*at)->next;
	in = *at;
	if (in)
		*at = in->next;
	pthread_mutex_unlock(&lock);
	if (in && in->received)
		sim->sim_remote_write(in->received, in->memory, in->bytes);
	free(in);
}

int
MPI_Isend(const void *buffer, int count, MPI_Datatype type, int dest, int tag,
          MPI_Comm comm, MPI_Request *request)
{
	struct stand_in *in;
	int code, complete = 0;

	if (!is_on_device(buffer))
		return PMPI_Isend(buffer, count, type, dest, tag, comm, request);
	in = stand_in_for(count, type);
	sim->sim_peek(in->memory, (CUdeviceptr)(uintptr_t)buffer, in->bytes);
	code = PMPI_Isend(in->memory, count, type, dest, tag, comm, request);
	if (code == MPI_SUCCESS)
		PMPI_Request_get_status(*request, &complete, MPI_STATUS_IGNORE);
	if (code != MPI_SUCCESS || complete)
		free(in);
	else
		keep(in, *request);
	return code;
}

/* What receives in place of a buffer in memory of a device. */
static struct stand_in *
receiver_for(void *buffer, int count, MPI_Datatype type)
{
	struct stand_in *in = stand_in_for(count, type);

	in->received = (CUdeviceptr)(uintptr_t)buffer;
	return in;
}

static int
keep_or_free(struct stand_in *in, const MPI_Request *request, int code)
{
	if (code == MPI_SUCCESS)
		keep(in, *request);
	else
		free(in);
	return code;
}

int
MPI_Irecv(void *buffer, int count, MPI_Datatype type, int source, int tag,
          MPI_Comm comm, MPI_Request *request)
{
	struct stand_in *in;

	if (!is_on_device(buffer))
		return PMPI_Irecv(buffer, count, type, source, tag, comm,
		                  request);
	in = receiver_for(buffer, count, type);
	return keep_or_free(in, request,
	                    PMPI_Irecv(in->memory, count, type, source, tag,
	                               comm, request));
}

int
MPI_Imrecv(void *buffer, int count, MPI_Datatype type, MPI_Message *message,
           MPI_Request *request)
{
	struct stand_in *in;

	if (!is_on_device(buffer))
		return PMPI_Imrecv(buffer, count, type, message, request);
	in = receiver_for(buffer, count, type);
	return keep_or_free(in, request,
	                    PMPI_Imrecv(in->memory, count, type, message,
	                                request));
}

int
MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
	MPI_Request before = *request;
	int code = PMPI_Test(request, done, status);

	if (*done && before != MPI_REQUEST_NULL)
		ended(before);
	return code;
}

int
MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[],
             MPI_Status statuses[])
{
	MPI_Request before[256];
	int code;

	if (count > (int)(sizeof(before) / sizeof(before[0])))
		abort();
	memcpy(before, requests, (size_t)count * sizeof(before[0]));
	code = PMPI_Testsome(count, requests, done, indices, statuses);
	for (int i = 0; *done != MPI_UNDEFINED && i < *done; i++)
		ended(before[indices[i]]);
	return code;
}
