/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The test's own use of the driver: the primary context of device 0, pushed around each call,
 * and a non-blocking stream for copies, of the highest priority, so that nothing here waits
 * for a stream of the cases.  Pageable memory goes through a pinned block, because a driver
 * may wait for streams when it copies it.
 *
 * cuMemAlloc and cuMemFree would: they wait for all streams of the context, of which one may
 * wait for a message of the rank that allocates.  So there is one block for all, of which the
 * cases get parts, first fit, with GAP bytes between them.
 */
#include "on_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudasim.h"

#define BLOCK_BYTES GIB
#define PINNED_BYTES ((size_t)1 << 20)
#define PARTS_MAX 16384u
#define ALIGNMENT 256u
#define GAP 256u

static const struct cudasim *cuda;
static CUcontext context;
static CUstream stream;
static CUdeviceptr block;
static unsigned char *pinned;

/* Guards the stream, the pinned block and the parts. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	size_t place, bytes;
} parts[PARTS_MAX]; /* by place */
static unsigned parts_n;

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

/* Takes a part of the block; returns its place. */
static size_t
take_locked(size_t bytes)
{
	size_t place = 0;
	unsigned at = 0;

	while (at < parts_n && parts[at].place - place < bytes) {
		place = parts[at].place + parts[at].bytes;
		at++;
	}
	if (parts_n == PARTS_MAX || BLOCK_BYTES - place < bytes) {
		fprintf(stderr, "the test's block of device memory is full\n");
		abort();
	}
	memmove(&parts[at + 1], &parts[at], (parts_n - at) * sizeof(parts[0]));
	parts[at].place = place;
	parts[at].bytes = bytes;
	parts_n++;
	return place;
}

static void *
cuda_alloc(size_t bytes)
{
	size_t taken = (bytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	CUdeviceptr memory;

	MUST(context_push(context));
	pthread_mutex_lock(&lock);
	memory = block + take_locked(taken);
	MUST(set_bytes(memory, 0, taken, stream));
	MUST(stream_synchronize(stream));
	pthread_mutex_unlock(&lock);
	leave();
	return (void *)(uintptr_t)memory;
}

static void
cuda_free(void *memory)
{
	size_t place = (size_t)((CUdeviceptr)(uintptr_t)memory - block);
	unsigned at = 0;

	if (!memory)
		return;
	pthread_mutex_lock(&lock);
	while (at < parts_n && parts[at].place != place)
		at++;
	if (at == parts_n)
		abort();
	parts_n--;
	memmove(&parts[at], &parts[at + 1], (parts_n - at) * sizeof(parts[0]));
	pthread_mutex_unlock(&lock);
}

static bool
is_in_block(const void *at)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;

	return address >= block && address - block < BLOCK_BYTES;
}

/* One side is the pinned block. */
static void
copy_locked(void *to, const void *from, size_t bytes)
{
	if (is_in_block(to) || is_in_block(from)) {
		MUST(copy((CUdeviceptr)(uintptr_t)to,
		          (CUdeviceptr)(uintptr_t)from, bytes, stream));
		MUST(stream_synchronize(stream));
	} else {
		memcpy(to, from, bytes);
	}
}

static void
cuda_copy(void *to, const void *from, size_t bytes)
{
	MUST(context_push(context));
	pthread_mutex_lock(&lock);
	for (size_t at = 0; at < bytes; at += PINNED_BYTES) {
		size_t left = bytes - at;
		size_t n = left < PINNED_BYTES ? left : PINNED_BYTES;

		copy_locked(pinned, (const char *)from + at, n);
		copy_locked((char *)to + at, pinned, n);
	}
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
	int least = 0, greatest = 0;
	void *memory;

	cuda = cudasim_load(NULL);
	if (!cuda) {
		printf("skip: no CUDA driver, and no simulator of one\n");
		return false;
	}
	MUST(init(0));
	MUST(primary_retain(&context, 0));
	MUST(context_push(context));
	MUST(priority_range(&least, &greatest));
	MUST(stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING, greatest));
	MUST(mem_alloc(&block, BLOCK_BYTES));
	MUST(host_alloc(&memory, PINNED_BYTES, 0));
	pinned = memory;
	leave();
	return true;
}

unsigned
on_cuda_queues(void)
{
	const char *text = getenv("CUDASIM_QUEUES");

	const char *memory_ops = getenv("CUDASIM_MEMOPS");

	/* Host functions that wait do so one at a time. */
	if (memory_ops && !strcmp(memory_ops, "0"))
		return 1;
	if (!text)
		text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	return text ? (unsigned)strtoul(text, NULL, 10) : 8;
}

unsigned
on_cuda_devices(void)
{
	int count = 0;

	MUST(device_count(&count));
	return (unsigned)count;
}

int
on_cuda_end(int result)
{
	if (!cuda->sim_violations || cuda->sim_violations() == 0)
		return result;
	printf("not ok  CUDA's rules were broken\n");
	return 1;
}
