/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program of a user: the CUDA runtime and Baton, nothing else.  Two ranks, threads of one process, each with a
 * stream and memory of the GPU.  Rank 0 fills one half of a vector and rank 1 the other one; each sends its
 * half and receives the other's, all in stream order, and looks at the whole behind one synchronisation.
 *
 * Over the simulators it runs without a GPU (docs/simulators.md):
 *
 *   BATON_CUDA_LIBRARY=.../libcudasim.so user-halves
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "baton.h"

enum { RANKS = 2, ROUNDS = 20, HALF = 100000 };

static struct baton_comm *comms[RANKS];
static struct side {
	unsigned char *vector, *host; /* of the GPU; pinned */
	cudaStream_t stream;
	cudaEvent_t filled;
} sides[RANKS];

static void
cuda(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s (%s)\n", what, cudaGetErrorString(error),
	        cudaGetErrorName(error));
	exit(1);
}
#define CUDA(call) cuda(call, #call)

static void
baton(enum baton_status status, const char *what)
{
	if (status == BATON_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, baton_last_error());
	exit(1);
}
#define BATON(call) baton(call, #call)

/* Before streams wait, since an allocation may wait for all of them. */
static void
set_up(struct side *side)
{
	CUDA(cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking));
	CUDA(cudaEventCreateWithFlags(&side->filled, cudaEventDisableTiming));
	CUDA(cudaMalloc((void **)&side->vector, RANKS * HALF));
	CUDA(cudaMallocHost((void **)&side->host, RANKS * HALF));
}

static void
tear_down(const struct side *side)
{
	CUDA(cudaFreeHost(side->host));
	CUDA(cudaFree(side->vector));
	CUDA(cudaEventDestroy(side->filled));
	CUDA(cudaStreamDestroy(side->stream));
}

/* This rank's half has its bytes when the stream gets there, and the other one will have the peer's. */
static void
exchange(int rank, unsigned char *vector, cudaStream_t stream)
{
	unsigned char *mine = vector + rank * HALF;
	unsigned char *other = vector + (1 - rank) * HALF;

	BATON(baton_group_begin(comms[rank]));
	BATON(baton_send(mine, HALF, BATON_UINT8, 1 - rank, 0, comms[rank],
	                 stream, NULL, NULL));
	BATON(baton_recv(other, HALF, BATON_UINT8, 1 - rank, 0, comms[rank],
	                 stream, NULL, NULL));
	BATON(baton_group_end(comms[rank]));
}

static void
compare_halves(const unsigned char *host, int round)
{
	for (int i = 0; i < RANKS * HALF; i++) {
		int expected = 10 * (i / HALF) + round;

		if (host[i] == expected)
			continue;
		fprintf(stderr, "round %d: byte %d is %d, not %d\n", round, i,
		        host[i], expected);
		exit(1);
	}
}

static void *
run_half(void *argument)
{
	int rank = (int)(size_t)argument;
	const struct side *side = &sides[rank];

	CUDA(cudaSetDevice(0));
	for (int round = 0; round < ROUNDS; round++) {
		CUDA(cudaMemsetAsync(side->vector + rank * HALF,
		                     10 * rank + round, HALF, side->stream));
		CUDA(cudaEventRecord(side->filled, side->stream));
		exchange(rank, side->vector, side->stream);
		CUDA(cudaMemcpyAsync(side->host, side->vector, RANKS * HALF,
		                     cudaMemcpyDeviceToHost, side->stream));
		CUDA(cudaStreamSynchronize(side->stream));
		CUDA(cudaEventQuery(side->filled));
		compare_halves(side->host, round);
	}
	BATON(baton_stream_synchronize(comms[rank], side->stream));
	return NULL;
}

int
main(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	pthread_t threads[RANKS];

	options.device = BATON_DEVICE_CUDA;
	options.cuda_device = 0;
	BATON(baton_comm_create_local(RANKS, &options, comms));
	for (int i = 0; i < RANKS; i++)
		set_up(&sides[i]);
	for (size_t i = 0; i < RANKS; i++)
		pthread_create(&threads[i], NULL, run_half, (void *)i);
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < RANKS; i++)
		BATON(baton_comm_destroy(comms[i]));
	for (int i = 0; i < RANKS; i++)
		tear_down(&sides[i]);
	printf("%d rounds\n", ROUNDS);
	return 0;
}
