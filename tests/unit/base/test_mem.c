/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem.h"
#include "run_tests.h"

/* ThreadSanitizer's calloc writes to all it gives. */
#if defined(__SANITIZE_THREAD__)
#define CALLOC_WRITES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CALLOC_WRITES 1
#endif
#endif
#ifndef CALLOC_WRITES
#define CALLOC_WRITES 0
#endif

START_TEST(blocks_are_zeroed_and_aligned)
{
	static const unsigned char zeros[1000];
	unsigned char *block;

	for (size_t size = 1; size <= sizeof(zeros); size += 37) {
		/* Twice, so that what was freed dirty may come back. */
		for (int turn = 0; turn < 2; turn++) {
			block = batoni_alloc(1, size);
			ck_assert_ptr_nonnull(block);
			ck_assert_uint_eq((uintptr_t)block % 64, 0);
			ck_assert_mem_eq(block, zeros, size);
			memset(block, 0xa5, size);
			batoni_free(block);
		}
	}
}
END_TEST

/* Pages of the block that are in memory. */
static size_t
resident(unsigned char *block, size_t bytes)
{
	static unsigned char pages[1 << 14];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
	size_t before = (uintptr_t)block % page;
	size_t count = (before + bytes + page - 1) / page;

	ck_assert_uint_le(count, sizeof(pages));
	ck_assert_int_eq(mincore(block - before, before + bytes, pages), 0);
	for (size_t i = 0; i < count; i++)
		n += pages[i] & 1;
	return n;
}

START_TEST(a_large_block_takes_memory_as_it_is_touched)
{
	const size_t bytes = (size_t)32 << 20;
	unsigned char *block = batoni_alloc(bytes, 1);

	ck_assert_ptr_nonnull(block);
	/* What has the allocator's books, and one huge page perhaps. */
	if (!CALLOC_WRITES)
		ck_assert_uint_le(resident(block, bytes), 513);
	ck_assert_uint_eq(block[bytes - 1], 0);
	memset(block, 0xa5, bytes);
	ck_assert_uint_gt(resident(block, bytes), 513);
	batoni_free(block);
}
END_TEST

/* The process has used and freed as much before. */
START_TEST(a_large_block_takes_no_memory_of_a_used_heap)
{
	const size_t bytes = (size_t)16 << 20, used = (size_t)30 << 20;
	unsigned char *block;

	/* The first is mapped, and its end lets the heap have as large ones. */
	for (int turn = 0; turn < 3; turn++) {
		block = malloc(used);
		ck_assert_ptr_nonnull(block);
		memset(block, 0xa5, used);
		free(block);
	}
	block = batoni_alloc(bytes, 1);
	ck_assert_ptr_nonnull(block);
	if (!CALLOC_WRITES)
		ck_assert_uint_le(resident(block, bytes), 513);
	for (size_t i = 0; i < bytes; i += 1000)
		ck_assert_uint_eq(block[i], 0);
	batoni_free(block);
}
END_TEST

START_TEST(empty_block_is_a_block)
{
	void *block = batoni_alloc(0, 100);

	ck_assert_ptr_nonnull(block);
	ck_assert_int_eq(batoni_mem_blocks(), 1);
	batoni_free(block);
}
END_TEST

START_TEST(sizes_that_overflow_give_null)
{
	ck_assert_ptr_null(batoni_alloc(SIZE_MAX, 2));
	ck_assert_ptr_null(batoni_alloc(SIZE_MAX / 8 + 1, 8));
	ck_assert_ptr_null(batoni_alloc(1, SIZE_MAX));
	ck_assert_ptr_null(batoni_alloc(1, SIZE_MAX - 63));
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(blocks_are_counted)
{
	void *a = batoni_alloc(1, 1);
	void *b = batoni_alloc(1, 1);

	ck_assert_int_eq(batoni_mem_blocks(), 2);
	batoni_free(a);
	batoni_free(NULL);
	ck_assert_int_eq(batoni_mem_blocks(), 1);
	batoni_free(b);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(the_nth_allocation_fails_once)
{
	void *blocks[5];

	batoni_mem_fail_at(3);
	for (int i = 0; i < 5; i++)
		blocks[i] = batoni_alloc(1, 8);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(blocks[i] == NULL, i == 2);
		batoni_free(blocks[i]);
	}
	ck_assert_uint_eq(batoni_mem_fail_at(0), 5);
}
END_TEST

START_TEST(fail_at_counts_from_its_call_and_0_disarms)
{
	void *block;

	batoni_free(batoni_alloc(1, 1));
	batoni_mem_fail_at(1);
	ck_assert_ptr_null(batoni_alloc(1, 1));
	batoni_mem_fail_at(1);
	ck_assert_uint_eq(batoni_mem_fail_at(0), 0);
	block = batoni_alloc(1, 1);
	ck_assert_ptr_nonnull(block);
	batoni_free(block);
	ck_assert_uint_eq(batoni_mem_fail_at(0), 1);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		blocks_are_zeroed_and_aligned,
		a_large_block_takes_memory_as_it_is_touched,
		a_large_block_takes_no_memory_of_a_used_heap,
		empty_block_is_a_block,
		sizes_that_overflow_give_null,
		blocks_are_counted,
		the_nth_allocation_fails_once,
		fail_at_counts_from_its_call_and_0_disarms,
	};

	return RUN_TESTS("mem", tests);
}
