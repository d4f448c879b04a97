/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heap memory.
 *
 * Tables are as long as what can be, rooms for messages too, and most of it is
 * never used.  So blocks come from calloc, which has the pages of a large one from
 * the kernel, zero as they are: they cost nothing until they are touched.  calloc
 * does not align enough; the block begins at the first line that leaves room before
 * it for the pointer that free wants.
 */
#include "mem.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT 64u

static _Atomic unsigned long calls;
static _Atomic unsigned long fail_at; /* compared with calls; 0: never */
static _Atomic long blocks;

static_assert(alignof(max_align_t) >= sizeof(void *),
              "the least that is before a block takes a pointer");

/* Where the block's whole is written. */
static void **
whole_of(void *pointer)
{
	return (void **)pointer - 1;
}

void *
batoni_alloc(size_t count, size_t size)
{
	unsigned long call = atomic_fetch_add(&calls, 1) + 1;
	size_t bytes, before;
	char *whole;

	if (call == atomic_load(&fail_at))
		return NULL;
	if (__builtin_mul_overflow(count, size, &bytes) ||
	    __builtin_add_overflow(bytes, ALIGNMENT, &bytes))
		return NULL;
	whole = calloc(1, bytes);
	if (!whole)
		return NULL;
	before = ALIGNMENT - (uintptr_t)whole % ALIGNMENT;
	*whole_of(whole + before) = whole;
	atomic_fetch_add(&blocks, 1);
	return whole + before;
}

void
batoni_free(void *pointer)
{
	if (!pointer)
		return;
	atomic_fetch_sub(&blocks, 1);
	free(*whole_of(pointer));
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
