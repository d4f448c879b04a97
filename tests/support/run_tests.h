/* SPDX-License-Identifier: BSD-3-Clause */
/* The main() of a unit test: one suite, one case, all its tests. */
#ifndef RUN_TESTS_H
#define RUN_TESTS_H

#include <check.h>
#include <stdlib.h>

/* tests is an array of what START_TEST defined. */
#define RUN_TESTS(name, tests) RUN_TESTS_WITH(name, tests, NULL, NULL)
/* The same, with what is run before and after each test. */
#define RUN_TESTS_WITH(name, tests, setup, teardown)                          \
	run_tests(name, tests, sizeof(tests) / sizeof((tests)[0]), setup,     \
	          teardown)

/* The suite's tests; the exit status. */
static inline int
run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static inline int
run_tests(const char *name, const TTest *const tests[], size_t count,
          void (*setup)(void), void (*teardown)(void))
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}

#endif
