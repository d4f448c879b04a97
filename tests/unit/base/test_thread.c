/* SPDX-License-Identifier: BSD-3-Clause */
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton.h"
#include "clock.h"
#include "run_tests.h"
#include "shm.h"
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

/* ---- cancellation ---- */

static void
pass_a_region(void)
{
	BATONI_UNCANCELLED;

	pthread_testcancel();
}

static void
pass_nested_regions(void)
{
	BATONI_UNCANCELLED;

	pass_a_region();
	pthread_testcancel();
}

static void
pass_a_region_with_the_lock(void)
{
	batoni_cancel_off();
	pass_a_region();
	pthread_testcancel();
	batoni_cancel_restore();
}

/* *(int *)steps_p: how far it came. */
static void *
cancelled_main(void *steps_p)
{
	int *steps = steps_p;

	pthread_cancel(pthread_self());
	pass_nested_regions();
	++*steps;
	pass_a_region_with_the_lock();
	++*steps;
	pthread_testcancel();
	++*steps;
	return NULL;
}

START_TEST(thread_is_cancelled_behind_the_outermost_region)
{
	pthread_t thread;
	int steps = 0;
	void *result;

	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled_main, &steps), 0);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(steps, 2);
}
END_TEST

/* The driver looks, with its lock. */
static void *
cancelled_looker(void *looked_p)
{
	pthread_cancel(pthread_self());
	*(bool *)looked_p = !batoni_pidfd_gone(-1);
	pthread_testcancel();
	return NULL;
}

START_TEST(thread_is_not_cancelled_where_it_looks_whether_a_process_lives)
{
	pthread_t thread;
	bool looked = false;
	void *result;

	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled_looker, &looked),
	                 0);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(looked);
}
END_TEST

/* ---- jobs ---- */

static struct held {
	struct batoni_job job;
	sem_t begun, may_end, has_cleaned;
	pthread_t ran, cleaned;
} held;

static void
run_held(struct batoni_job *job)
{
	struct held *h = (struct held *)(void *)job;

	h->ran = pthread_self();
	sem_post(&h->begun);
	sem_wait(&h->may_end);
}

static void
cleanup_held(struct batoni_job *job)
{
	struct held *h = (struct held *)(void *)job;

	h->cleaned = pthread_self();
	sem_post(&h->has_cleaned);
}

static void
start_held(bool given_up)
{
	memset(&held, 0, sizeof(held));
	sem_init(&held.begun, 0, 0);
	sem_init(&held.may_end, 0, 0);
	sem_init(&held.has_cleaned, 0, 0);
	held.job.run = run_held;
	held.job.cleanup = cleanup_held;
	held.job.given_up = given_up;
	ck_assert_int_eq(batoni_job_start(&held.job), 0);
	sem_wait(&held.begun);
	ck_assert(!pthread_equal(held.ran, pthread_self()));
}

START_TEST(job_that_ends_in_time_is_the_callers)
{
	start_held(false);
	ck_assert(!batoni_job_await(&held.job, 0));
	ck_assert(!batoni_job_await(&held.job, batoni_real_ns() + 1000));
	sem_post(&held.may_end);
	ck_assert(batoni_job_await(&held.job, UINT64_MAX));
	ck_assert(batoni_job_finish(&held.job, 0));
	ck_assert_int_ne(sem_trywait(&held.has_cleaned), 0);
}
END_TEST

START_TEST(job_that_is_given_up_is_cleaned_up_by_its_own_thread)
{
	start_held(false);
	ck_assert(!batoni_job_finish(&held.job, batoni_real_ns() + 1000));
	ck_assert_int_ne(sem_trywait(&held.has_cleaned), 0);
	sem_post(&held.may_end);
	sem_wait(&held.has_cleaned);
	ck_assert(pthread_equal(held.cleaned, held.ran));
	ck_assert(!batoni_job_take_up(&held.job));
	start_held(true);
	sem_post(&held.may_end);
	sem_wait(&held.has_cleaned);
}
END_TEST

START_TEST(job_that_is_taken_up_again_is_the_callers)
{
	start_held(false);
	ck_assert(!batoni_job_finish(&held.job, 0));
	ck_assert(batoni_job_take_up(&held.job));
	sem_post(&held.may_end);
	ck_assert(batoni_job_finish(&held.job, UINT64_MAX));
	ck_assert_int_ne(sem_trywait(&held.has_cleaned), 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		child_of_a_process_that_never_used_baton_may_call,
		child_of_a_process_that_used_baton_may_not,
		launched_function_may_not_call,
		thread_is_cancelled_behind_the_outermost_region,
		thread_is_not_cancelled_where_it_looks_whether_a_process_lives,
		job_that_ends_in_time_is_the_callers,
		job_that_is_given_up_is_cleaned_up_by_its_own_thread,
		job_that_is_taken_up_again_is_the_callers,
	};

	return RUN_TESTS("thread", tests);
}
