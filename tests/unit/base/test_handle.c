/* SPDX-License-Identifier: BSD-3-Clause */
/* Tombstones: which memory of a destroyed object is used again, and when
 * (runtime/base/handle.c). */
#include <string.h>

#include "handle.h"
#include "mem.h"
#include "run_tests.h"

struct object {
	char before[40];
	struct batoni_handle handle;
	char content[8];
};

static struct batoni_handles handles = BATONI_HANDLES(object);

static struct object *
new_object(void)
{
	struct object *object = batoni_handle_new(&handles);

	ck_assert_ptr_nonnull(object);
	return object;
}

static void
retire_new(struct object *objects[], unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		objects[i] = new_object();
	for (unsigned i = 0; i < count; i++)
		batoni_handle_retire(&handles, objects[i]);
}

START_TEST(an_object_is_alive_from_its_start_to_its_end)
{
	struct object *object = new_object();

	ck_assert(!batoni_is_alive(&object->handle));
	batoni_handle_start(&object->handle);
	ck_assert(batoni_is_alive(&object->handle));
	batoni_handle_retire(&handles, object);
	ck_assert(!batoni_is_alive(&object->handle));
}
END_TEST

START_TEST(memory_of_a_destroyed_object_waits_for_64_to_be_kept)
{
	struct object *objects[BATONI_HANDLES_KEPT - 1], *newest;

	retire_new(objects, BATONI_HANDLES_KEPT - 1);
	newest = new_object();
	for (unsigned i = 0; i < BATONI_HANDLES_KEPT - 1; i++)
		ck_assert_ptr_ne(newest, objects[i]);
	batoni_handle_retire(&handles, newest);
	/* Now 64 are kept. */
	newest = new_object();
	ck_assert_ptr_eq(newest, objects[0]);
	batoni_handle_retire(&handles, newest);
}
END_TEST

START_TEST(the_oldest_tombstone_serves_first_and_is_zeroed)
{
	static const struct object zeros;
	struct object *objects[BATONI_HANDLES_KEPT + 2], *served[3], *again;

	for (unsigned i = 0; i < BATONI_HANDLES_KEPT + 2; i++) {
		objects[i] = new_object();
		memset(objects[i]->before, 0xa5, sizeof(objects[i]->before));
		memset(objects[i]->content, 0xa5, sizeof(objects[i]->content));
		batoni_handle_start(&objects[i]->handle);
	}
	for (unsigned i = 0; i < BATONI_HANDLES_KEPT + 2; i++)
		batoni_handle_retire(&handles, objects[i]);
	for (unsigned i = 0; i < 3; i++) {
		again = new_object();
		ck_assert_ptr_eq(again, objects[i]);
		ck_assert_mem_eq(again, &zeros, sizeof(zeros));
		served[i] = again;
	}
	/* 63 are left. */
	again = new_object();
	for (unsigned i = 0; i < BATONI_HANDLES_KEPT + 2; i++)
		ck_assert_ptr_ne(again, objects[i]);
	for (unsigned i = 0; i < 3; i++)
		batoni_handle_retire(&handles, served[i]);
	batoni_handle_retire(&handles, again);
}
END_TEST

START_TEST(a_buried_object_keeps_its_content_and_65_are_one_too_many)
{
	struct object *objects[BATONI_HANDLES_KEPT];
	size_t bytes = batoni_mem_bytes(), all;

	for (unsigned i = 0; i < BATONI_HANDLES_KEPT; i++) {
		/* They differ in size. */
		objects[i] = batoni_alloc(1, sizeof(struct object) + i * 64);
		ck_assert_ptr_nonnull(objects[i]);
		strcpy(objects[i]->content, "content");
		batoni_handle_start(&objects[i]->handle);
	}
	for (unsigned i = 0; i < BATONI_HANDLES_KEPT; i++) {
		batoni_handle_bury(&handles, objects[i]);
		ck_assert(!batoni_is_alive(&objects[i]->handle));
		ck_assert_str_eq(objects[i]->content, "content");
	}
	all = batoni_mem_bytes();
	ck_assert_uint_ge(all - bytes,
	                  BATONI_HANDLES_KEPT * sizeof(struct object));
	/* The first one, of the same size, is freed for this one. */
	batoni_handle_bury(&handles, batoni_alloc(1, sizeof(struct object)));
	ck_assert_uint_eq(batoni_mem_bytes(), all);
	ck_assert_str_eq(objects[1]->content, "content");
}
END_TEST

START_TEST(a_tombstone_is_no_live_block)
{
	struct object *objects[BATONI_HANDLES_KEPT];
	long blocks = batoni_mem_blocks();

	retire_new(objects, BATONI_HANDLES_KEPT);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	/* One that serves again is. */
	ck_assert_ptr_eq(new_object(), objects[0]);
	ck_assert_int_eq(batoni_mem_blocks(), blocks + 1);
	batoni_handle_bury(&handles, objects[0]);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	/* And one that is buried frees the oldest. */
	batoni_handle_bury(&handles, batoni_alloc(1, sizeof(struct object)));
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
}
END_TEST

START_TEST(without_memory_there_is_none_and_a_tombstone_still_serves)
{
	struct object *objects[BATONI_HANDLES_KEPT], *object;

	batoni_mem_fail_at(1);
	ck_assert_ptr_null(batoni_handle_new(&handles));
	retire_new(objects, BATONI_HANDLES_KEPT);
	batoni_mem_fail_at(1);
	object = new_object();
	ck_assert_ptr_eq(object, objects[0]);
	ck_assert_ptr_null(batoni_handle_new(&handles));
	batoni_handle_retire(&handles, object);
}
END_TEST

int
main(void)
{
	const TTest *tests[] = {
		an_object_is_alive_from_its_start_to_its_end,
		memory_of_a_destroyed_object_waits_for_64_to_be_kept,
		the_oldest_tombstone_serves_first_and_is_zeroed,
		a_buried_object_keeps_its_content_and_65_are_one_too_many,
		a_tombstone_is_no_live_block,
		without_memory_there_is_none_and_a_tombstone_still_serves,
	};

	return RUN_TESTS("handle", tests);
}
