/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of bench_cuda share.  bench_cuda.c has the note on all of it. */
#ifndef BATON_BENCH_CUDA_H
#define BATON_BENCH_CUDA_H

#include "bench_gpu.h"

/* What the measurements use: on rank 0 messages leave, on rank 1 they arrive. */
struct bench_memory {
	char *on_device, *on_host; /* the host's is pinned */
	size_t bytes;              /* of a message */
	size_t window;             /* messages in flight */
};

/* A detached send or receive, to or from the peer. */
baton_request bench_cuda_enqueue(struct bench *b, bool send, char *buffer,
                                 size_t bytes, int tag);

/* bench_cuda_stream.c: cuda_trigger, cuda_trigger_write and cuda_wait. */
void bench_cuda_stream(struct bench *b);
/* bench_cuda_overlap.c: cuda_overlap_send and cuda_overlap_recv. */
void bench_cuda_overlap(struct bench *b, struct bench_memory *m);
/* bench_cuda_put.c: cuda_put_latency and cuda_put_bandwidth. */
void bench_cuda_put(struct bench *b);

#endif
