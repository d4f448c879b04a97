/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine's own thread drives, and how it is woken. */
#include <pthread.h>
#include <sched.h>

#include "core.h"
#include "run_tests.h"
#include "scripted_world.h"

/* A communicator whose one request keeps the engine's thread busy: each of its
 * tests is announced. */
static struct scripted busy;
static struct baton_comm *busy_comm;

static void
keep_thread_busy(void)
{
	struct baton_comm_options options = scripted_options();

	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&busy);
	busy.signals = true;
	busy_comm = scripted_comm(&busy, &options);
	scripted_recv(busy_comm, NULL, 1, NULL);
}

static void
await_tests(int n)
{
	while (n-- > 0)
		sem_wait(&busy.tested);
}

START_TEST(engine_thread_drives_what_it_may)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	keep_thread_busy();
	ck_assert_int_eq(baton_comm_query(busy_comm, &info), BATON_OK);
	ck_assert(info.engine_thread);
	await_tests(10);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_thread_leaves_communicators_of_calls_alone)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	baton_request a = scripted_recv(comm, s, 1, NULL);

	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	ck_assert(!info.engine_thread);
	keep_thread_busy();
	await_tests(10);
	ck_assert_uint_eq(atomic_load(&transport.tests), 0);
	scripted_assert_pending(a);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_thread_leaves_communicators_of_callers_alone)
{
	struct baton_comm_options options = scripted_options();
	struct baton_comm_info info = {.size = sizeof(info)};
	struct scripted callers;
	struct baton_comm *mine;
	baton_request a;

	scripted_init(&callers);
	callers.base.drivers = BATONI_DRIVERS_CALLERS;
	options.progress = BATON_PROGRESS_AUTO;
	mine = scripted_comm(&callers, &options);
	ck_assert_int_eq(baton_comm_query(mine, &info), BATON_OK);
	ck_assert(!info.engine_thread);
	a = scripted_recv(mine, s, 1, NULL);
	baton_progress(mine); /* whoever had the lock at the call */
	ck_assert_str_eq(callers.log, "r1 ");
	keep_thread_busy();
	await_tests(10);
	scripted_end(&callers, scripted_live(&callers, BATONI_RECV, 1), 8,
	             BATON_OK);
	await_tests(10);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_close(&callers, mine);
	scripted_close(&busy, busy_comm);
}
END_TEST

/* ---- asleep ---- */

static void
await_deep_sleep(void)
{
	while (!atomic_load(&batoni_engine.deep) ||
	       !(atomic_load(&batoni_engine.dozing) & BATONI_DOZE_THREAD))
		sched_yield();
}

START_TEST(enqueue_wakes_the_engine_thread)
{
	struct baton_comm_options options = scripted_options();

	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&busy);
	busy.signals = true;
	busy_comm = scripted_comm(&busy, &options);
	await_deep_sleep();
	scripted_recv(busy_comm, NULL, 1, NULL);
	await_tests(3);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(enqueue_wakes_the_engine_thread_even_if_another_places_it)
{
	struct baton_comm_options options = scripted_options();
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t driver;

	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&busy);
	busy.signals = true;
	busy_comm = scripted_comm(&busy, &options);
	await_deep_sleep();
	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	scripted_recv(busy_comm, NULL, 1, NULL);
	open_gate(driver);
	/* Nobody calls any more. */
	await_tests(3);
	scripted_close(&busy, busy_comm);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
}
END_TEST

START_TEST(engine_thread_sleeps_behind_a_dozing_host_until_he_has_gone)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t host;

	transport.base.quiet = true;
	keep_thread_busy();
	busy.base.quiet = true;
	host = thread_of(wait_for, &a);
	await_deep_sleep();
	ck_assert(atomic_load(&batoni_engine.dozing) & BATONI_DOZE_DRIVER);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	pthread_join(host, NULL);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	while (sem_trywait(&busy.tested) == 0)
		;
	/* Nobody calls any more. */
	await_tests(3);
	scripted_close(&busy, busy_comm);
}
END_TEST

START_TEST(engine_that_was_stopped_leaves_progress_to_calls)
{
	struct baton_comm_options options = scripted_options();
	baton_request a;

	keep_thread_busy();
	await_tests(1);
	batoni_engine_stop();
	batoni_engine_stop();
	options.progress = BATON_PROGRESS_AUTO;
	scripted_close(&busy, busy_comm);
	scripted_init(&busy);
	busy_comm = scripted_comm(&busy, &options);
	a = scripted_recv(busy_comm, s, 1, NULL);
	scripted_end(&busy, scripted_live(&busy, BATONI_RECV, 1), 8, BATON_OK);
	ck_assert_uint_eq(atomic_load(&busy.tests), 0);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_close(&busy, busy_comm);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		engine_thread_drives_what_it_may,
		engine_thread_leaves_communicators_of_calls_alone,
		engine_thread_leaves_communicators_of_callers_alone,
		enqueue_wakes_the_engine_thread,
		enqueue_wakes_the_engine_thread_even_if_another_places_it,
		engine_thread_sleeps_behind_a_dozing_host_until_he_has_gone,
		engine_that_was_stopped_leaves_progress_to_calls,
	};

	return RUN_TESTS_WITH("engine_thread", tests, world_setup, world_teardown);
}
