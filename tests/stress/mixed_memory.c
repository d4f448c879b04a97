/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for the mixed load: of the heap, and where the driver is simulated also pinned memory and
 * memory of each rank's GPU, which the simulator reads and writes beside all streams.
 *
 * A driver may wait for streams when it allocates, so it is asked once, before any stream waits: for a
 * block of each kind for each rank, which is given out in pieces.
 */
#include "mixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudasim.h"
#include "ncclsim.h"

enum {
	PIECE = (WINDOW_BYTES + 512) / 256 * 256,
	PIECES = THREADS * (SLOTS + 1) + WINDOWS
};

struct block {
	unsigned char *base;
	unsigned char *free[PIECES];
	unsigned free_n;
};

static const struct cudasim *cuda;
static const struct ncclsim *nccl;
static int streams_wait = 1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block blocks[LOCATIONS][RANKS_MAX];

static void
must(CUresult result, const char *call)
{
	if (result == BATONI_CU_SUCCESS)
		return;
	fprintf(stderr, "the test's %s failed: %u\n", call, result);
	abort();
}

#define MUST(call) must(cuda->call, #call)

static void
cut(struct block *block, void *base)
{
	block->base = base;
	for (unsigned i = 0; i < PIECES; i++)
		block->free[block->free_n++] = block->base + (size_t)i * PIECE;
}

static void
take_blocks(int rank, int devices)
{
	CUdeviceptr memory;
	CUcontext context, popped;
	void *pinned;

	MUST(primary_retain(&context, rank % devices));
	MUST(context_push(context));
	MUST(mem_alloc(&memory, (size_t)PIECES * PIECE));
	MUST(host_alloc(&pinned, (size_t)PIECES * PIECE,
	                BATONI_CU_HOST_ALLOC_PORTABLE));
	MUST(context_pop(&popped));
	cut(&blocks[DEVICE][rank], (void *)(uintptr_t)memory);
	cut(&blocks[PINNED][rank], pinned);
}

bool
memory_begin(int first, int ranks)
{
	int devices = 0;

	if (!getenv("BATON_CUDA_LIBRARY"))
		return true;
	cuda = cudasim_load(NULL);
	if (!cuda || !cuda->sim_peek)
		return false;
	if (getenv("BATON_NCCL_LIBRARY"))
		nccl = ncclsim_load(NULL);
	MUST(init(0));
	MUST(device_count(&devices));
	/* Asked before a call is to fail: the n-th may be the test's. */
	MUST(device_attribute(&streams_wait, BATONI_CU_DEVICE_MEM_OPS_64, 0));
	for (int i = first; i < first + ranks; i++)
		take_blocks(i, devices);
	return true;
}

bool
memory_is_well(void)
{
	return (!cuda || cuda->sim_violations() == 0) &&
	       (!nccl || nccl->sim_violations() == 0);
}

void
memory_fail(uint64_t seed)
{
	static const CUresult results[] = {2, 700, 719, 801, 999};
	uint64_t state = mix(seed, 1, 2, 3);
	unsigned exponent = draw(&state) % 13;
	long n = 1 + (long)(draw(&state) % (1u << exponent));

	if (nccl && draw(&state) % 2)
		nccl->sim_fail("", n, 1 + draw(&state) % 3);
	else if (cuda)
		cuda->sim_fail("", n, results[draw(&state) % 5],
		               draw(&state) % 2);
}

bool
memory_streams_wait(void)
{
	return streams_wait;
}

bool
memory_is_there(enum location location)
{
	return location == PAGEABLE || cuda;
}

bool
memory_is_used(void)
{
	return nccl && nccl->sim_live("running") > 0;
}

unsigned char *
memory_take(enum location location, int rank, size_t bytes)
{
	struct block *block = &blocks[location][rank];
	unsigned char *memory = NULL;

	if (location == PAGEABLE) {
		memory = malloc(bytes);
		if (!memory)
			abort();
		return memory;
	}
	pthread_mutex_lock(&lock);
	if (block->free_n > 0)
		memory = block->free[--block->free_n];
	pthread_mutex_unlock(&lock);
	return memory;
}

void
memory_give(enum location location, int rank, unsigned char *memory)
{
	struct block *block = &blocks[location][rank];

	if (location == PAGEABLE) {
		free(memory);
		return;
	}
	pthread_mutex_lock(&lock);
	block->free[block->free_n++] = memory;
	pthread_mutex_unlock(&lock);
}

/* Found by leak checkers from here. */
void
memory_leave(enum location location, unsigned char *memory)
{
	static struct left {
		struct left *next;
		unsigned char *memory;
	} *all;
	struct left *left;

	if (location != PAGEABLE || !memory)
		return;
	left = malloc(sizeof(*left));
	if (!left)
		abort();
	left->memory = memory;
	pthread_mutex_lock(&lock);
	left->next = all;
	all = left;
	pthread_mutex_unlock(&lock);
}

void
memory_write(enum location location, unsigned char *to, const unsigned char *from,
             size_t bytes)
{
	if (location == DEVICE)
		cuda->sim_poke((CUdeviceptr)(uintptr_t)to, from, bytes);
	else
		memcpy(to, from, bytes);
}

void
memory_read(enum location location, unsigned char *to, const unsigned char *from,
            size_t bytes)
{
	if (location == DEVICE)
		cuda->sim_peek(to, (CUdeviceptr)(uintptr_t)from, bytes);
	else
		memcpy(to, from, bytes);
}
