/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"
#include "config.h"
#include "run_tests.h"

static void
print_level(void)
{
	/* Twice: the environment is read once. */
	int before = (int)batoni_config()->log_level;

	setenv("BATON_LOG", "none", 1);
	fprintf(stderr, "%d %d", before, (int)batoni_config()->log_level);
}

START_TEST(environment_names_the_level_and_is_read_once)
{
	static const struct {
		const char *value, *level;
	} cases[] = {
		{"none", "0 0"}, {"error", "1 1"}, {"warning", "2 2"},
		{"info", "3 3"}, {"debug", "4 4"}, {NULL, "2 2"},
		{"", "2 2"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct captured out = capture(cases[i].value, print_level);

		ck_assert_str_eq(out.text, cases[i].level);
	}
}
END_TEST

START_TEST(value_that_is_no_level_is_told_once_and_leaves_the_default)
{
	static const char *const values[] = {"verbose", "Debug", "3", " info"};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct captured out = capture(values[i], print_level);
		char quoted[32];

		snprintf(quoted, sizeof(quoted), "\"%s\"", values[i]);
		ck_assert_ptr_nonnull(strstr(out.text, "baton: warning: "));
		ck_assert_ptr_nonnull(strstr(out.text, "BATON_LOG"));
		ck_assert_ptr_nonnull(strstr(out.text, quoted));
		ck_assert_ptr_nonnull(strstr(out.text, "debug\n2 2"));
		ck_assert_ptr_null(strstr(strstr(out.text, "BATON_LOG") + 1,
		                          "BATON_LOG"));
	}
}
END_TEST

static void
print_path(void)
{
	unsigned before = batoni_config()->window_path;

	setenv("BATON_WINDOW_PATH", "direct", 1);
	fprintf(stderr, "%u %u", before, batoni_config()->window_path);
}

START_TEST(environment_names_the_path_of_windows)
{
	static const struct {
		const char *value, *paths;
	} cases[] = {
		{"direct", "1 1"}, {"vmwrite", "2 2"}, {"message", "4 4"},
		{"", "0 0"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("BATON_WINDOW_PATH", cases[i].value, 1);
		ck_assert_str_eq(capture(NULL, print_path).text,
		                 cases[i].paths);
	}
	unsetenv("BATON_WINDOW_PATH");
	ck_assert_str_eq(capture(NULL, print_path).text, "0 0");
}
END_TEST

START_TEST(value_that_is_no_path_is_told_and_leaves_the_choice)
{
	struct captured out;

	setenv("BATON_WINDOW_PATH", "mesage", 1);
	out = capture(NULL, print_path);
	ck_assert_ptr_nonnull(strstr(out.text,
	                             "baton: warning: BATON_WINDOW_PATH"));
	ck_assert_ptr_nonnull(strstr(out.text, "\"mesage\""));
	ck_assert_ptr_nonnull(strstr(out.text, "vmwrite or message\n0 0"));
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		environment_names_the_level_and_is_read_once,
		value_that_is_no_level_is_told_once_and_leaves_the_default,
		environment_names_the_path_of_windows,
		value_that_is_no_path_is_told_and_leaves_the_choice,
	};

	return RUN_TESTS("config", tests);
}
