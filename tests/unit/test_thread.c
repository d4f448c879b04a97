/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton.h"
#include "run_tests.h"
#include "thread.h"

/* The child's answer, as its exit status: 0 is yes. */
static int
in_child(bool (*claim)(void))
{
	pid_t child = fork();
	int status = 0;

	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(claim() ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool
may_call(void)
{
	return batoni_may_call();
}

static bool
calls_are_refused(void)
{
	struct baton_comm *comm = NULL;

	return baton_comm_create_local(1, NULL, &comm) == BATON_ERR_INVALID &&
	       !comm && strstr(baton_last_error(), "baton_comm_create_local") &&
	       strstr(baton_last_error(), "forked child");
}

START_TEST(child_of_a_process_that_never_used_baton_may_call)
{
	ck_assert_int_eq(in_child(may_call), 0);
}
END_TEST

START_TEST(child_of_a_process_that_used_baton_may_not)
{
	batoni_watch_forks();
	batoni_watch_forks();
	ck_assert(batoni_may_call());
	ck_assert_int_eq(in_child(may_call), 1);
	ck_assert_int_eq(in_child(calls_are_refused), 0);
	ck_assert(batoni_may_call());
}
END_TEST

START_TEST(launched_function_may_not_call)
{
	batoni_thread.launched = true;
	ck_assert(!batoni_may_call());
	ck_assert_int_eq(batoni_refuse_caller("baton_wait"), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_wait"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "launched"));
	batoni_thread.launched = false;
	ck_assert(batoni_may_call());
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		child_of_a_process_that_never_used_baton_may_call,
		child_of_a_process_that_used_baton_may_not,
		launched_function_may_not_call,
	};

	return RUN_TESTS("thread", tests);
}
