/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heap memory.
 *
 * Tables and message buffers are sized for the worst case, and most of them are
 * never used.  Blocks therefore come from calloc: a large one consists of zero
 * pages that the kernel supplies when they are first touched.  calloc does not
 * align to a cache line, so a block begins at the first line that leaves space
 * before it for the pointer that free needs and for the length.
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
static _Atomic size_t bytes_now;

static_assert(alignof(max_align_t) >= sizeof(void *) + sizeof(size_t),
              "the least that is before a block takes a pointer and its size");

/* Where the pointer from calloc is stored. */
static void **
whole_of(void *pointer)
{
	return (void **)pointer - 1;
}

static size_t *
size_of(void *pointer)
{
	return (size_t *)pointer - 2;
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
	*size_of(whole + before) = bytes;
	atomic_fetch_add(&bytes_now, bytes);
	atomic_fetch_add(&blocks, 1);
	return whole + before;
}

void
batoni_free(void *pointer)
{
	if (!pointer)
		return;
	atomic_fetch_sub(&blocks, 1);
	atomic_fetch_sub(&bytes_now, *size_of(pointer));
	free(*whole_of(pointer));
}

void
batoni_mem_keep(long change)
{
	atomic_fetch_sub(&blocks, change);
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

size_t
batoni_mem_bytes(void)
{
	return atomic_load(&bytes_now);
}
