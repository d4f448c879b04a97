/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The test's own use of the driver: the primary context of device 0, pushed around each call,
 * and a non-blocking stream for copies, of the highest priority, so that nothing here waits
 * for a stream of the cases.  Pageable memory goes through a pinned block, because a driver
 * may wait for streams when it copies it.
 *
 * cuMemAlloc and cuMemFree would: they wait for all streams of the context, of which one may
 * wait for a message of the rank that allocates.  So there is one block of each kind for all, of
 * which the cases get parts, first fit, with GAP bytes between them.
 */
#include "on_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudasim.h"

#define BLOCK_BYTES GIB
#define OTHERS_BYTES (GIB / 4) /* of each other kind */
#define PINNED_BYTES ((size_t)1 << 20)
#define PARTS_MAX 16384u
#define ALIGNMENT 256u
#define GAP 256u
#define ATTACH_GLOBAL 1u

struct block {
	CUdeviceptr base;
	size_t bytes; /* 0: there is none of this kind */
	unsigned parts_n;
	struct {
		size_t offset, bytes;
	} parts[PARTS_MAX]; /* by offset */
};

static const struct cudasim *cuda;
static CUcontext context;
static CUstream stream;
static unsigned char *pinned;

/* Guards the stream, the pinned memory for copies, and the blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[CONFORM_KINDS];

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

/* Takes a part of the block; returns its offset. */
static size_t
take_locked(struct block *block, size_t bytes)
{
	size_t offset = 0;
	unsigned at = 0;

	while (at < block->parts_n && block->parts[at].offset - offset < bytes) {
		offset = block->parts[at].offset + block->parts[at].bytes;
		at++;
	}
	if (block->parts_n == PARTS_MAX || block->bytes - offset < bytes) {
		fprintf(stderr, "the test's block of memory is full\n");
		abort();
	}
	memmove(&block->parts[at + 1], &block->parts[at],
	        (block->parts_n - at) * sizeof(block->parts[0]));
	block->parts[at].offset = offset;
	block->parts[at].bytes = bytes;
	block->parts_n++;
	return offset;
}

static void *
cuda_alloc(enum conform_kind kind, size_t bytes)
{
	size_t taken = (bytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	struct block *block = &blocks[kind];
	CUdeviceptr memory;

	if (block->bytes == 0)
		return NULL;
	MUST(context_push(context));
	pthread_mutex_lock(&lock);
	memory = block->base + take_locked(block, taken);
	if (kind == CONFORM_KIND_PINNED) {
		memset((void *)(uintptr_t)memory, 0, taken);
	} else {
		MUST(set_bytes(memory, 0, taken, stream));
		MUST(stream_synchronize(stream));
	}
	pthread_mutex_unlock(&lock);
	leave();
	return (void *)(uintptr_t)memory;
}

static struct block *
block_of(const void *memory)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory;

	for (unsigned i = 0; i < CONFORM_KINDS; i++)
		if (address >= blocks[i].base &&
		    address - blocks[i].base < blocks[i].bytes)
			return &blocks[i];
	abort();
}

static void
cuda_free(void *memory)
{
	struct block *block;
	size_t offset;
	unsigned at = 0;

	if (!memory)
		return;
	block = block_of(memory);
	offset = (size_t)((CUdeviceptr)(uintptr_t)memory - block->base);
	pthread_mutex_lock(&lock);
	while (at < block->parts_n && block->parts[at].offset != offset)
		at++;
	if (at == block->parts_n)
		abort();
	block->parts_n--;
	memmove(&block->parts[at], &block->parts[at + 1],
	        (block->parts_n - at) * sizeof(block->parts[0]));
	pthread_mutex_unlock(&lock);
}

/* Whoever has allocated it. */
static bool
cuda_is_device(const void *pointer)
{
	CUpointer_attribute attributes[] = { BATONI_CU_POINTER_MEMORY_TYPE,
		                             BATONI_CU_POINTER_IS_MANAGED };
	unsigned type = 0, managed = 0;
	void *values[] = { &type, &managed };

	MUST(pointer_attributes(2, attributes, values,
	                        (CUdeviceptr)(uintptr_t)pointer));
	return type == BATONI_CU_MEMORY_DEVICE || (managed & 1u);
}

/* One side is the pinned memory. */
static void
copy_locked(void *to, const void *from, size_t bytes)
{
	if (cuda_is_device(to) || cuda_is_device(from)) {
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
	.is_device = cuda_is_device,
};

/* The other kinds are taken where the run asks for them. */
static bool
is_asked_for(const char *kind)
{
	const char *windows = getenv("CONFORM_WINDOWS");
	const char *buffers = getenv("CONFORM_BUFFERS");

	return (windows && strstr(windows, kind)) ||
	       (buffers && strstr(buffers, kind));
}

static void
take_blocks(void)
{
	struct block *device = &blocks[CONFORM_KIND_DEVICE];
	struct block *host = &blocks[CONFORM_KIND_PINNED];
	struct block *managed = &blocks[CONFORM_KIND_MANAGED];
	struct block *pool = &blocks[CONFORM_KIND_POOL];
	void *memory;

	MUST(mem_alloc(&device->base, BLOCK_BYTES));
	device->bytes = BLOCK_BYTES;
	if (is_asked_for("pinned")) {
		MUST(host_alloc(&memory, OTHERS_BYTES,
		                BATONI_CU_HOST_ALLOC_PORTABLE));
		host->base = (CUdeviceptr)(uintptr_t)memory;
		host->bytes = OTHERS_BYTES;
	}
	if (is_asked_for("managed")) {
		MUST(managed_alloc(&managed->base, OTHERS_BYTES,
		                   ATTACH_GLOBAL));
		managed->bytes = OTHERS_BYTES;
	}
	if (is_asked_for("pool")) {
		MUST(pool_alloc(&pool->base, OTHERS_BYTES, stream));
		MUST(stream_synchronize(stream));
		pool->bytes = OTHERS_BYTES;
	}
}

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
	take_blocks();
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
