/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heap memory.
 *
 * Tables and message buffers are sized for the worst case, and most of their pages are never
 * used.  A large block is therefore mapped: the kernel supplies its pages when they are first
 * touched, and freeing unmaps them.  (calloc maps large blocks too, but after large blocks
 * have been freed it reuses heap memory and zeroes all of it.)  A small block comes from
 * calloc.  Before each block are the start and the length of its memory, which freeing
 * needs; the block begins at the next cache line.
 */
#include "mem.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT 64u

/* Blocks of at least this length are mapped.  Under a sanitizer, which watches the heap,
 * none is. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAPPED_LEAST SIZE_MAX
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MAPPED_LEAST SIZE_MAX
#endif
#endif
#ifndef MAPPED_LEAST
#define MAPPED_LEAST ((size_t)64 << 10)
#endif

static _Atomic unsigned long calls;
static _Atomic unsigned long fail_at; /* compared with calls; 0: never */
static _Atomic long blocks;
static _Atomic size_t bytes_now;

static_assert(alignof(max_align_t) >= sizeof(void *) + sizeof(size_t),
              "the least that is before a block takes a pointer and its size");

/* Where the start of the block's memory is stored. */
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

static void *
allocate_whole(size_t bytes)
{
	void *memory;

	if (bytes < MAPPED_LEAST)
		return calloc(1, bytes);
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
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
	whole = allocate_whole(bytes);
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
	size_t bytes;

	if (!pointer)
		return;
	bytes = *size_of(pointer);
	atomic_fetch_sub(&blocks, 1);
	atomic_fetch_sub(&bytes_now, bytes);
	if (bytes < MAPPED_LEAST)
		free(*whole_of(pointer));
	else
		munmap(*whole_of(pointer), bytes);
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
