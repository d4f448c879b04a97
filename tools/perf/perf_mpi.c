/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_mpi.h. */
#include "perf_mpi.h"

#define TAG 3
#define TAG_WINDOW 4
#define TAG_BACK 5

static void
wait_for(MPI_Request *request)
{
	int done = 0;

	while (!done)
		MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

static void
send(MPI_Comm comm, const struct perf_end *e, MPI_Request *request)
{
	MPI_Isend(e->out, (int)e->bytes, MPI_BYTE, e->peer, TAG, comm, request);
}

static void
receive(MPI_Comm comm, const struct perf_end *e, MPI_Request *request)
{
	MPI_Irecv(e->in, (int)e->bytes, MPI_BYTE, e->peer, TAG, comm, request);
}

void
perf_mpi_latency(MPI_Comm comm, const struct perf_end *e, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		MPI_Request out, in;

		if (e->first) {
			send(comm, e, &out);
			receive(comm, e, &in);
			wait_for(&in);
		} else {
			receive(comm, e, &in);
			wait_for(&in);
			send(comm, e, &out);
		}
		wait_for(&out);
	}
}

void
perf_mpi_window(MPI_Comm comm, const struct perf_end *e, int rounds)
{
	MPI_Request requests[PERF_WINDOW_MAX];

	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < e->depth; k++) {
			if (e->first)
				MPI_Isend(e->out + k * e->step, (int)e->bytes,
				          MPI_BYTE, e->peer, TAG_WINDOW, comm,
				          &requests[k]);
			else
				MPI_Irecv(e->in + k * e->step, (int)e->bytes,
				          MPI_BYTE, e->peer, TAG_WINDOW, comm,
				          &requests[k]);
		}
		MPI_Waitall((int)e->depth, requests, MPI_STATUSES_IGNORE);
		if (e->first)
			MPI_Recv(e->in, 1, MPI_BYTE, e->peer, TAG_BACK, comm,
			         MPI_STATUS_IGNORE);
		else
			MPI_Send(e->out, 1, MPI_BYTE, e->peer, TAG_BACK, comm);
	}
}

void
perf_mpi_ring(MPI_Comm comm, const struct perf_end *e, int rounds)
{
	int next = (e->rank + 1) % e->size;
	int before = (e->rank + e->size - 1) % e->size;

	for (int i = 0; i < rounds; i++) {
		MPI_Request requests[2];

		MPI_Irecv(e->in, (int)e->bytes, MPI_BYTE, before, TAG, comm,
		          &requests[0]);
		MPI_Isend(e->out, (int)e->bytes, MPI_BYTE, next, TAG, comm,
		          &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
}

void
perf_mpi_all(MPI_Comm comm, const struct perf_end *e, int rounds)
{
	for (int i = 0; i < rounds; i++)
		MPI_Alltoall(e->out, (int)e->bytes, MPI_BYTE, e->in,
		             (int)e->bytes, MPI_BYTE, comm);
}

void
perf_mpi_overlapped(MPI_Comm comm, const struct perf_end *e, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		MPI_Request request;

		if (e->first)
			send(comm, e, &request);
		else
			receive(comm, e, &request);
		perf_spin(e->steps);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
}
