/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The test's own use of the driver: the primary context of device 0, pushed around each call,
 * and a non-blocking stream for copies, so that nothing here waits for a stream of the cases.
 */
#include "on_cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "cudasim.h"

static const struct cudasim *cuda;
static CUcontext context;
static CUstream stream;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the stream */

static void
must(CUresult result, const char *call)
{
	if (result == 0)
		return;
	fprintf(stderr, "the test's %s failed: %u\n", call, result);
	abort();
}

#define MUST(call) must(cuda->call, #call)

static void
leave(void)
{
	CUcontext popped;

	MUST(context_pop(&popped));
}

static void *
cuda_alloc(size_t bytes)
{
	CUdeviceptr memory = 0;

	MUST(context_push(context));
	MUST(mem_alloc(&memory, bytes > 0 ? bytes : 1));
	pthread_mutex_lock(&lock);
	MUST(set_bytes(memory, 0, bytes > 0 ? bytes : 1, stream));
	MUST(stream_synchronize(stream));
	pthread_mutex_unlock(&lock);
	leave();
	return (void *)(uintptr_t)memory;
}

static void
cuda_free(void *memory)
{
	if (!memory)
		return;
	MUST(context_push(context));
	MUST(mem_free((CUdeviceptr)(uintptr_t)memory));
	leave();
}

static void
cuda_copy(void *to, const void *from, size_t bytes)
{
	if (bytes == 0)
		return;
	MUST(context_push(context));
	pthread_mutex_lock(&lock);
	MUST(copy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes,
	          stream));
	MUST(stream_synchronize(stream));
	pthread_mutex_unlock(&lock);
	leave();
}

const struct conform_memory on_cuda_memory = {
	.alloc = cuda_alloc,
	.free = cuda_free,
	.copy = cuda_copy,
};

bool
on_cuda_begin(void)
{
	cuda = cudasim_load(NULL);
	if (!cuda) {
		printf("skip: no CUDA driver, and no simulator of one\n");
		return false;
	}
	MUST(init(0));
	MUST(primary_retain(&context, 0));
	MUST(context_push(context));
	MUST(stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING, 0));
	leave();
	return true;
}

int
on_cuda_end(int result)
{
	if (!cuda->sim_violations || cuda->sim_violations() == 0)
		return result;
	printf("not ok  CUDA's rules were broken\n");
	return 1;
}
