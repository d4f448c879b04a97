/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs that begin with their size: three ages of one, of which the library has the second. */
#include "sized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_tests.h"

struct old {
	size_t size;
	int a;
	unsigned reserved;
};

struct here {
	size_t size;
	int a;
	unsigned reserved;
	int64_t b; /* its default is 7, as it is no new field */
	unsigned reserved_more[2];
};

struct later {
	struct here here;
	uint64_t c[2];
};

static const struct here defaults = {.size = sizeof(defaults), .b = 7};
static const struct batoni_sized sized = {
	.name = "options",
	.size_name = "options->size",
	.advice = "use INIT",
	.smallest = BATONI_SIZED_UNTIL(struct here, reserved),
	.bytes = sizeof(struct here),
	.defaults = &defaults,
	.reserved = {BATONI_RESERVED(struct here, reserved),
                     BATONI_RESERVED(struct here, reserved_more)},
};

/* The size as any program may have it, in memory that ends with it, so that a sanitizer sees
 * what is read or written behind it. */
static unsigned char *
of_size(size_t size, size_t bytes)
{
	unsigned char *made = calloc(1, bytes);

	ck_assert_ptr_nonnull(made);
	memcpy(made, &size, sizeof(size));
	return made;
}

START_TEST(own_size_is_taken_as_it_is)
{
	struct here here = {.size = sizeof(here), .a = 1, .b = 2}, room;

	ck_assert_ptr_eq(batoni_sized_take(&sized, "call", &here, &room), &here);
}
END_TEST

START_TEST(what_an_older_struct_lacks_has_its_default)
{
	struct {
		struct old old;
		int64_t behind;
	} program = {{.size = sizeof(struct old), .a = 1}, -1};
	struct here room;
	const struct here *taken =
		batoni_sized_take(&sized, "call", &program, &room);

	ck_assert_ptr_eq(taken, &room);
	ck_assert_uint_eq(taken->size, sizeof(struct here));
	ck_assert_int_eq(taken->a, 1);
	ck_assert_int_eq(taken->b, 7);
	ck_assert_uint_eq(taken->reserved_more[0], 0);
}
END_TEST

START_TEST(what_a_later_struct_has_more_must_be_zero)
{
	struct later later = {{.size = sizeof(later), .a = 1, .b = 2}, {0, 0}};
	struct here room;
	const struct here *taken =
		batoni_sized_take(&sized, "call", &later, &room);

	ck_assert_ptr_eq(taken, &room);
	ck_assert_uint_eq(taken->size, sizeof(struct here));
	ck_assert_int_eq(taken->a, 1);
	ck_assert_int_eq(taken->b, 2);
	for (size_t at = sizeof(struct here); at < sizeof(later); at++) {
		char byte[32];

		((unsigned char *)&later)[at] = 0x80;
		ck_assert_ptr_null(
			batoni_sized_take(&sized, "call", &later, &room));
		snprintf(byte, sizeof(byte), "not 0 at byte %zu:", at);
		ck_assert_ptr_nonnull(strstr(baton_last_error(), byte));
		ck_assert_ptr_nonnull(strstr(baton_last_error(),
		                             "call: options->size is 48, this "
		                             "library's is 32"));
		((unsigned char *)&later)[at] = 0;
	}
}
END_TEST

START_TEST(reserved_fields_must_be_zero)
{
	static const size_t at[] = {12, 15, 24, 31};
	struct here here = {.size = sizeof(here)}, room;

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		char byte[32];

		((unsigned char *)&here)[at[i]] = 1;
		ck_assert_ptr_null(batoni_sized_take(&sized, NULL, &here, &room));
		snprintf(byte, sizeof(byte), "not 0 at byte %zu,", at[i]);
		ck_assert_ptr_nonnull(strstr(baton_last_error(), byte));
		ck_assert_int_eq(strncmp(baton_last_error(), "*options", 8), 0);
		((unsigned char *)&here)[at[i]] = 0;
	}
	ck_assert_ptr_eq(batoni_sized_take(&sized, NULL, &here, &room), &here);
}
END_TEST

/* Of a struct that ends before them, they are the program's other memory. */
START_TEST(reserved_fields_behind_an_older_struct_are_not_looked_at)
{
	struct here program = {.size = 24, .b = 3, .reserved_more = {1, 1}}, room;
	const struct here *taken =
		batoni_sized_take(&sized, "call", &program, &room);

	ck_assert_ptr_eq(taken, &room);
	ck_assert_int_eq(taken->b, 3);
	ck_assert_uint_eq(taken->reserved_more[0], 0);
}
END_TEST

START_TEST(sizes_of_no_version_are_refused_with_all_sizes)
{
	static const size_t wrong[] = {
		0,  1,  8,  15,   17,   31,       33,
		36, 47, 49, 1025, 1032, SIZE_MAX, SIZE_MAX - 7,
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		unsigned char *program = of_size(wrong[i], sizeof(size_t));
		struct here room;
		char text[128];

		ck_assert_ptr_null(
			batoni_sized_take(&sized, "call", program, &room));
		snprintf(text, sizeof(text),
		         "call: options->size is %zu; this library's is 32, and "
		         "it takes multiples of 8 from 16 to 1024 (use INIT)",
		         wrong[i]);
		ck_assert_str_eq(baton_last_error(), text);
		ck_assert_int_eq(batoni_sized_give(&sized, "call", &defaults,
		                                   program),
		                 BATON_ERR_INVALID);
		ck_assert_str_eq(baton_last_error(), text);
		free(program);
	}
}
END_TEST

START_TEST(every_other_size_is_taken_and_given_within_its_bytes)
{
	static const struct here mine = {.size = 32, .a = 5, .b = 6};

	for (size_t size = 16; size <= BATONI_SIZED_MAX; size += 8) {
		unsigned char *program = of_size(size, size);
		struct here room;
		const struct here *taken =
			batoni_sized_take(&sized, "call", program, &room);
		size_t both = size < sizeof(mine) ? size : sizeof(mine);

		ck_assert_ptr_nonnull(taken);
		ck_assert_uint_eq(taken->size, sizeof(struct here));
		ck_assert_int_eq(taken->b, size < 24 ? 7 : 0);
		memset(program + 8, 0xee, size - 8);
		ck_assert_int_eq(batoni_sized_give(&sized, "call", &mine,
		                                   program),
		                 BATON_OK);
		ck_assert_mem_eq(program, &size, sizeof(size));
		ck_assert_mem_eq(program + 8, (const char *)&mine + 8, both - 8);
		for (size_t at = both; at < size; at++)
			ck_assert_uint_eq(program[at], 0);
		free(program);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		own_size_is_taken_as_it_is,
		what_an_older_struct_lacks_has_its_default,
		what_a_later_struct_has_more_must_be_zero,
		reserved_fields_must_be_zero,
		reserved_fields_behind_an_older_struct_are_not_looked_at,
		sizes_of_no_version_are_refused_with_all_sizes,
		every_other_size_is_taken_and_given_within_its_bytes,
	};

	return RUN_TESTS("sized", tests);
}
