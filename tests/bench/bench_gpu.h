/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPU of this rank, by the driver's own calls: what bench_cuda and bench_nccl share. */
#ifndef BATON_BENCH_GPU_H
#define BATON_BENCH_GPU_H

#include "bench.h"
#include "cudasim.h"

struct bench_gpu {
	const struct cudasim *cuda;
	CUcontext context;
	CUstream copies;  /* of the baselines: non-blocking, of the lowest priority */
	int processors;   /* multiprocessors */
	bool simulated;   /* no GPU: no figure is printed */
};
extern struct bench_gpu bench_gpu;

#define CUDA(call) bench_must(bench_gpu.cuda->call == BATONI_CU_SUCCESS)

/* Load the driver.  Before a communicator is created. */
void bench_gpu_load(void);
/* The device, by its number, and what else the struct has. */
void bench_gpu_open(int device);

/* Its context is current between the two. */
void bench_gpu_enter(void);
void bench_gpu_leave(void);

/* Memory of the device, written once; for good. */
void *bench_gpu_alloc(size_t bytes);

/* Are the ranks on one GPU, whose time they share then?  Both call; its context is
 * current. */
bool bench_gpu_is_shared(struct bench *b);
/* The same number of bytes of each rank to the other. */
void bench_exchange(struct bench *b, const void *mine, void *theirs, int bytes);
/* "direct": of a BATON_WINDOW_PATH_*. */
const char *bench_path_name(unsigned path);

/* A row; over the simulator, that it ran and no figure. */
void bench_gpu_report(struct bench *b, const struct bench_row *row);

#endif
