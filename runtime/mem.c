/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64u

static _Atomic unsigned long calls;
static _Atomic unsigned long fail_at; /* compared with calls; 0: never */
static _Atomic long blocks;

void *
batoni_alloc(size_t count, size_t size)
{
	unsigned long call = atomic_fetch_add(&calls, 1) + 1;
	void *pointer;
	size_t bytes;

	if (call == atomic_load(&fail_at))
		return NULL;
	if (__builtin_mul_overflow(count, size, &bytes) ||
	    bytes > SIZE_MAX - ALIGNMENT)
		return NULL;
	bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	pointer = aligned_alloc(ALIGNMENT, bytes ? bytes : ALIGNMENT);
	if (!pointer)
		return NULL;
	atomic_fetch_add(&blocks, 1);
	return memset(pointer, 0, bytes);
}

void
batoni_free(void *pointer)
{
	if (!pointer)
		return;
	atomic_fetch_sub(&blocks, 1);
	free(pointer);
}

unsigned long
batoni_mem_fail_at(unsigned long n)
{
	unsigned long before = atomic_exchange(&calls, 0);

	atomic_store(&fail_at, n);
	return before;
}

long
batoni_mem_blocks(void)
{
	return atomic_load(&blocks);
}
