/* SPDX-License-Identifier: BSD-3-Clause */
/* What test programs understand of their arguments, and what they refuse. */
#include <stdio.h>

#include "options.h"
#include "run_tests.h"

static bool flag;
static int integer;
static uint64_t number;
static const char *text;

static int
read_all(const char *rest, const char *const given[])
{
	static const struct test_option options[] = {
		{ .name = "--flag", .flag = &flag },
		{ .name = "--integer", .value = "N", .integer = &integer },
		{ .name = "--number", .value = "N", .number = &number },
		{ .name = "--text", .value = "T", .text = &text },
		{ .name = NULL },
	};
	char *arguments[8] = { "program" };
	int count = 1;

	for (; given[count - 1]; count++)
		arguments[count] = (char *)(uintptr_t)given[count - 1];
	flag = false;
	integer = 5;
	number = 6;
	text = "as it was";
	return options_read(options, rest, count, arguments);
}

#define READ(rest, ...) read_all(rest, (const char *const[]){ __VA_ARGS__, NULL })

START_TEST(values_go_where_they_belong)
{
	ck_assert_int_eq(READ(NULL, "--text", "--flag", "--integer", "12"), 5);
	ck_assert_str_eq(text, "--flag");
	ck_assert_int_eq(integer, 12);
	ck_assert(!flag);
	ck_assert_uint_eq(number, 6);
	ck_assert_int_eq(READ(NULL, "--flag", "--number",
	                      "18446744073709551615"), 4);
	ck_assert(flag);
	ck_assert_uint_eq(number, UINT64_MAX);
	ck_assert_int_eq(integer, 5);
	ck_assert_str_eq(text, "as it was");
}
END_TEST

START_TEST(other_arguments_begin_where_options_end)
{
	ck_assert_int_eq(READ("PART", "--flag", "one", "--flag"), 2);
	ck_assert_int_eq(READ(NULL, "--flag", "one"), -1);
	ck_assert_int_eq(read_all(NULL, (const char *const[]){ NULL }), 1);
}
END_TEST

START_TEST(what_is_wrong_is_refused)
{
	ck_assert_int_eq(READ("PART", "--unknown"), -1);
	ck_assert_int_eq(READ("PART", "--flags"), -1);
	ck_assert_int_eq(READ("PART", "--integer"), -1);
	ck_assert_int_eq(READ("PART", "--integer", ""), -1);
	ck_assert_int_eq(READ("PART", "--integer", "-1"), -1);
	ck_assert_int_eq(READ("PART", "--integer", "1x"), -1);
	ck_assert_int_eq(READ("PART", "--integer", "2147483648"), -1);
	ck_assert_int_eq(READ("PART", "--number", "18446744073709551616"), -1);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		values_go_where_they_belong,
		other_arguments_begin_where_options_end,
		what_is_wrong_is_refused,
	};

	return RUN_TESTS("options", tests);
}
