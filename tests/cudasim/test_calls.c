/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the simulated driver: faults, contexts, bounds, names, and the exit. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

/* ---- faults ---- */

START_TEST(the_nth_use_fails_and_does_nothing)
{
	CUstream stream;
	long before;

	world_begin();
	stream = world_stream(0);
	world_wait(stream, 0, 1);
	before = w.sim->sim_uses("cuStreamWriteValue64");
	ck_assert(w.sim->sim_fail("cuStreamWriteValue64", 2, 719, false));
	world_write(stream, 1, 1);
	ck_assert_uint_eq(w.sim->write_value(stream, world_address(1), 2, 0),
	                  719);
	ck_assert_int_eq(w.sim->sim_queued(), 2);
	ck_assert_int_eq(w.sim->sim_uses("cuStreamWriteValue64_v2"), before + 2);
	world_write(stream, 1, 3);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(world_load_word(1), 3);
	world_end();
}
END_TEST

START_TEST(the_nth_of_all_calls_can_fail)
{
	CUstream stream;
	long total;

	world_begin();
	stream = world_stream(0);
	total = w.sim->sim_total();
	ck_assert(w.sim->sim_fail("", 3, 719, false));
	ck_success(w.sim->stream_query(stream));
	ck_success(w.sim->event_query(NULL) == BATONI_CU_INVALID_HANDLE
	                   ? BATONI_CU_SUCCESS
	                   : 1u);
	ck_assert_uint_eq(w.sim->stream_query(stream), 719);
	ck_success(w.sim->stream_query(stream));
	ck_assert_int_eq(w.sim->sim_total(), total + 4);
	ck_assert(!w.sim->sim_fail("cuNothing", 1, 719, false));
	ck_assert_int_eq(w.sim->sim_uses("cuNothing"), -1);
	ck_assert(w.sim->sim_fail("", 1, 719, false));
	ck_assert(w.sim->sim_fail("", 0, 0, false));
	ck_success(w.sim->stream_query(stream));
	w.violations = 1;
	world_end();
}
END_TEST

START_TEST(functions_can_be_counted_one_by_one)
{
	long total = 0;
	int n = 0;

	world_begin();
	for (; w.sim->sim_name(n); n++)
		total += w.sim->sim_uses(w.sim->sim_name(n));
	ck_assert_int_gt(n, 40);
	ck_assert_int_eq(total, w.sim->sim_total());
	ck_assert_ptr_null(w.sim->sim_name(-1));
}
END_TEST

START_TEST(a_call_that_destroys_does_so_even_if_it_fails)
{
	CUstream stream;
	CUevent event;
	CUcontext popped;
	void *pinned;

	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->event_create(&event, 0));
	ck_success(w.sim->host_alloc(&pinned, 64, 0));
	ck_assert(w.sim->sim_fail("cuStreamDestroy", 1, 719, false));
	ck_assert(w.sim->sim_fail("cuEventDestroy", 1, 719, false));
	ck_assert(w.sim->sim_fail("cuMemFreeHost", 1, 719, false));
	ck_assert(w.sim->sim_fail("cuCtxPopCurrent", 1, 719, false));
	ck_assert_uint_eq(w.sim->stream_destroy(stream), 719);
	ck_assert_uint_eq(w.sim->event_destroy(event), 719);
	ck_assert_uint_eq(w.sim->host_free(pinned), 719);
	ck_assert_int_eq(w.sim->sim_live("streams"), 0);
	ck_assert_int_eq(w.sim->sim_live("events"), 0);
	ck_assert_int_eq(w.sim->sim_live("pinned"), 1);
	ck_assert_uint_eq(w.sim->context_pop(&popped), 719);
	ck_success(w.sim->context_current(&popped));
	ck_assert_ptr_null(popped);
	world_end();
}
END_TEST

START_TEST(a_sticky_error_ends_the_context)
{
	CUstream stream, other;
	struct probe probe;
	CUevent event;
	CUcontext second;

	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->event_create(&event, 0));
	world_wait(stream, 0, 1);
	world_probe(stream, &probe);
	ck_success(w.sim->event_record(event, stream));
	ck_assert(w.sim->sim_fail("cuMemcpyAsync", 1, 700, true));
	ck_assert_uint_eq(w.sim->copy(world_address(0), world_address(1), 8,
	                              stream),
	                  700);
	ck_assert_uint_eq(w.sim->stream_query(stream), 700);
	ck_assert_uint_eq(w.sim->event_query(event), 700);
	ck_assert_uint_eq(w.sim->stream_create(&other, 0, 0), 700);
	ck_assert_uint_eq(w.sim->context_synchronize(), 700);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), 0);
	/* Another device is well. */
	ck_success(w.sim->primary_retain(&second, 1));
	ck_success(w.sim->context_push(second));
	other = world_stream(0);
	world_probe(other, &probe);
	ck_success(w.sim->stream_synchronize(other));
	ck_assert_int_eq(world_calls(&probe), 1);
	ck_success(w.sim->stream_destroy(other));
	ck_success(w.sim->context_pop(NULL));
	/* Destruction says so, and destroys. */
	ck_assert_uint_eq(w.sim->stream_destroy(stream), 700);
	ck_assert_uint_eq(w.sim->event_destroy(event), 700);
	ck_assert_int_eq(w.sim->sim_live("streams"), 0);
	world_end();
}
END_TEST

static void *
synchronize(void *stream)
{
	ck_success(w.sim->context_push(w.context));
	ck_assert_uint_eq(w.sim->stream_synchronize(stream), 719);
	return NULL;
}

static void
await_blocked(long n)
{
	while (w.sim->sim_blocked() < n)
		usleep(100);
}

START_TEST(a_device_that_breaks_ends_what_waits_and_can_be_healed)
{
	pthread_t thread;
	CUstream stream;
	struct gate gate;
	struct probe probe;

	world_begin();
	stream = world_stream(0);
	world_gate(stream, &gate);
	world_probe(stream, &probe);
	world_await_entry(&gate);
	pthread_create(&thread, NULL, synchronize, stream);
	await_blocked(1);
	w.sim->sim_break(0, 719);
	pthread_join(thread, NULL);
	w.sim->sim_heal();
	ck_success(w.sim->stream_query(stream));
	world_open(&gate);
	ck_assert_int_eq(world_calls(&probe), 0);
	world_probe(stream, &probe);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_int_eq(world_calls(&probe), 1);
	world_end();
}
END_TEST

START_TEST(a_function_that_waits_for_its_turn_is_not_called_after_an_error)
{
	CUstream a, b;
	struct gate gate;
	struct probe probe, next;

	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_gate(a, &gate);
	world_await_entry(&gate);
	world_probe(b, &probe);
	w.sim->sim_settle(true);
	w.sim->sim_break(0, 719);
	w.sim->sim_heal();
	world_open(&gate);
	world_probe(b, &next);
	ck_success(w.sim->stream_synchronize(b));
	ck_assert_int_eq(world_calls(&probe), 0);
	ck_assert_int_eq(world_calls(&next), 1);
	world_end();
}
END_TEST

START_TEST(faults_and_settings_come_from_the_environment)
{
	CUevent event;
	int count;

	setenv("CUDASIM_FAIL", "cuEventCreate:2:2,cuStreamQuery:1:719:sticky", 1);
	setenv("CUDASIM_DEVICES", "3", 1);
	world_begin();
	ck_success(w.sim->device_count(&count));
	ck_assert_int_eq(count, 3);
	ck_success(w.sim->event_create(&event, 0));
	ck_assert_uint_eq(w.sim->event_create(&event, 0), 2);
	ck_assert_uint_eq(w.sim->stream_query(NULL), 719);
	ck_assert_uint_eq(w.sim->event_create(&event, 0), 719);
	ck_assert(!w.sim->sim_set("devices", 4));
	ck_assert(!w.sim->sim_set("memops", 2));
	ck_assert(!w.sim->sim_set("nothing", 0));
}
END_TEST

START_TEST(settings_that_are_not_understood_end_the_program)
{
	setenv("CUDASIM_QUEUES", "many", 1);
	world_begin();
}
END_TEST

START_TEST(faults_that_are_not_understood_end_the_program)
{
	setenv("CUDASIM_FAIL", "cuEventCreate:2", 1);
	world_begin();
}
END_TEST

START_TEST(a_function_that_is_none_cannot_be_lacking)
{
	setenv("CUDASIM_LACKS", "cuMemCreate,cuMemNothing", 1);
	world_begin();
}
END_TEST

START_TEST(a_violation_can_abort_the_program)
{
	setenv("CUDASIM_ABORT", "1", 1);
	world_begin();
	w.sim->event_query(NULL);
}
END_TEST

/* ---- bounds ---- */

struct filler {
	CUstream stream;
	_Atomic bool asked;
};

static void *
push_and_write(void *data)
{
	struct filler *filler = data;

	ck_success(w.sim->context_push(w.context));
	world_write(filler->stream, 1, 9);
	return NULL;
}

static void *
ask(void *data)
{
	struct filler *filler = data;

	ck_success(w.sim->context_push(w.context));
	ck_success(w.sim->event_query(NULL) == BATONI_CU_INVALID_HANDLE
	                   ? BATONI_CU_SUCCESS
	                   : 1u);
	atomic_store(&filler->asked, true);
	return NULL;
}

static void
fill_up(bool lock)
{
	struct filler filler = {0};
	pthread_t filling, asking;

	world_load();
	ck_assert(w.sim->sim_set("depth", 4));
	ck_assert(w.sim->sim_set("depth_lock", lock));
	world_begin();
	filler.stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	for (unsigned i = 0; i < 4; i++)
		world_wait(filler.stream, 0, 1);
	pthread_create(&filling, NULL, push_and_write, &filler);
	await_blocked(1);
	pthread_create(&asking, NULL, ask, &filler);
	if (lock)
		await_blocked(2);
	else
		pthread_join(asking, NULL);
	ck_assert_int_eq(atomic_load(&filler.asked), !lock);
	ck_assert_int_eq(w.sim->sim_queued(), 4);
	world_store(0, 1);
	pthread_join(filling, NULL);
	if (lock)
		pthread_join(asking, NULL);
	ck_success(w.sim->stream_synchronize(filler.stream));
	ck_assert_uint_eq(world_load_word(1), 9);
	w.violations = 1;
	world_end();
}

START_TEST(a_call_on_a_full_stream_blocks)
{
	fill_up(false);
}
END_TEST

START_TEST(a_call_on_a_full_stream_can_hold_the_lock_of_its_context)
{
	fill_up(true);
}
END_TEST

START_TEST(a_call_that_blocks_for_too_long_is_a_deadlock)
{
	CUstream stream;

	world_load();
	ck_assert(w.sim->sim_set("depth", 1));
	ck_assert(w.sim->sim_set("limit_ms", 50));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(stream, 0, 1);
	ck_assert_uint_eq(w.sim->write_value(stream, world_address(1), 9, 0),
	                  CUDASIM_TIMEOUT);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(world_load_word(1), 0);
	w.violations = 1;
	world_end();
}
END_TEST

/* ---- delays ---- */

START_TEST(with_delays_streams_overtake_each_other)
{
	struct probe first, second;
	bool in_order = false, overtaken = false;
	CUstream a, b;

	world_begin();
	ck_assert_int_eq(w.sim->sim_live("delays"), 0);
	ck_assert(w.sim->sim_set("seed", 7));
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 2000 && !(in_order && overtaken); i++) {
		world_probe(a, &first);
		world_probe(b, &second);
		ck_success(w.sim->context_synchronize());
		if (atomic_load(&first.order) < atomic_load(&second.order))
			in_order = true;
		else
			overtaken = true;
	}
	ck_assert(in_order);
	ck_assert(overtaken);
	ck_assert_int_gt(w.sim->sim_live("delays"), 0);
	world_end();
}
END_TEST

/* ---- contexts ---- */

START_TEST(calls_need_a_current_context)
{
	CUcontext context, current;
	CUstream stream;
	CUevent event;
	int device;

	world_load();
	ck_assert_uint_eq(w.sim->device_count(&device), CUDASIM_NOT_INITIALIZED);
	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->context_pop(&context));
	ck_assert_ptr_eq(context, w.context);
	ck_success(w.sim->context_current(&current));
	ck_assert_ptr_null(current);
	ck_assert_uint_eq(w.sim->event_create(&event, 0),
	                  BATONI_CU_INVALID_CONTEXT);
	ck_assert_uint_eq(w.sim->stream_query(stream),
	                  BATONI_CU_INVALID_CONTEXT);
	ck_assert_uint_eq(w.sim->context_device(&device),
	                  BATONI_CU_INVALID_CONTEXT);
	ck_success(w.sim->context_set(context));
	ck_success(w.sim->context_device(&device));
	ck_assert_int_eq(device, 0);
	ck_assert_uint_eq(w.sim->context_push(NULL), BATONI_CU_INVALID_CONTEXT);
	world_end();
}
END_TEST

START_TEST(a_device_can_have_a_second_context)
{
	CUcontext second, current;
	CUstream stream;
	int device;

	world_begin();
	ck_success(w.sim->context_create(&second, 0, 0));
	ck_success(w.sim->context_current(&current));
	ck_assert_ptr_eq(current, second);
	ck_assert_ptr_ne(second, w.context);
	ck_success(w.sim->context_device(&device));
	ck_assert_int_eq(device, 0);
	stream = world_stream(0);
	ck_success(w.sim->context_destroy(second));
	ck_assert_int_eq(w.sim->sim_live("streams"), 0);
	ck_assert_uint_eq(w.sim->stream_query(stream), BATONI_CU_INVALID_HANDLE);
	ck_success(w.sim->context_current(&current));
	ck_assert_ptr_eq(current, w.context);
	w.violations = 1;
	world_end();
}
END_TEST

START_TEST(the_last_release_of_a_primary_context_ends_it)
{
	CUcontext again;
	CUstream stream;
	struct probe probe;

	world_begin();
	stream = world_stream(0);
	world_wait(stream, 0, 1);
	world_probe(stream, &probe);
	ck_success(w.sim->primary_retain(&again, 0));
	ck_assert_ptr_eq(again, w.context);
	ck_success(w.sim->primary_release(0));
	ck_assert_uint_eq(w.sim->stream_query(stream), BATONI_CU_NOT_READY);
	ck_success(w.sim->primary_release(0));
	ck_assert_uint_eq(w.sim->stream_query(stream),
	                  CUDASIM_CONTEXT_IS_DESTROYED);
	ck_assert_int_eq(w.sim->sim_live("streams"), 0);
	ck_assert_int_eq(w.sim->sim_live("pinned"), 0);
	ck_assert_int_eq(world_calls(&probe), 0);
	ck_assert_uint_eq(w.sim->primary_release(0), BATONI_CU_INVALID_CONTEXT);
	ck_success(w.sim->primary_retain(&again, 0));
	ck_success(w.sim->stream_query(NULL));
	w.violations = 1;
	world_end();
}
END_TEST

/* ---- names ---- */

START_TEST(functions_are_found_by_name_and_version)
{
	CUdriverProcAddressQueryResult why;
	CUresult (*query)(CUstream) = NULL;
	const char *name, *text;
	void *address;

	world_begin();
	ck_success(w.sim->proc_address("cuStreamQuery", &address, 12000, 0,
	                               &why));
	ck_assert_uint_eq(why, 0);
	memcpy(&query, &address, sizeof(query));
	ck_assert(query == w.sim->stream_query);
	ck_success(w.sim->proc_address("cuStreamBatchMemOp", &address, 11000, 0,
	                               &why));
	ck_assert_ptr_null(address);
	ck_assert_uint_eq(why, 2);
	ck_success(w.sim->proc_address("cuNothing", &address, 12000, 0, &why));
	ck_assert_ptr_null(address);
	ck_assert_uint_eq(why, 1);
	ck_success(w.sim->error_name(700, &name));
	ck_assert_str_eq(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
	ck_success(w.sim->error_text(700, &text));
	ck_assert_uint_eq(w.sim->error_name(12345, &name),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_ptr_null(name);
	world_end();
}
END_TEST

START_TEST(without_devices_init_says_so)
{
	world_load();
	ck_assert(w.sim->sim_set("devices", 0));
	ck_assert_uint_eq(w.sim->init(0), BATONI_CU_NO_DEVICE);
}
END_TEST

/* ---- the exit, and fork ---- */

/* Run in a child, which must exit with 0 by itself. */
static void
check_child(void (*child)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		alarm(60);
		child();
		exit(1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

static void
call_late(void)
{
	if (w.sim->stream_query(NULL) != BATONI_CU_DEINITIALIZED)
		_exit(2);
}

static void
exit_with_work(void)
{
	static struct gate gate;
	CUstream a, b;

	atexit(call_late); /* runs after the driver's own */
	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(a, 0, 1);
	world_gate(b, &gate);
	world_await_entry(&gate);
	exit(0);
}

START_TEST(the_exit_waits_for_no_stream_and_later_calls_fail)
{
	check_child(exit_with_work);
}
END_TEST

static void
call_in_child(void)
{
	int before = w.sim->sim_violations();
	CUresult result = w.sim->stream_query(NULL);

	_exit(result != CUDASIM_NOT_INITIALIZED ||
	      w.sim->sim_violations() != before + 1);
}

START_TEST(a_child_of_fork_has_no_driver)
{
	world_begin();
	check_child(call_in_child);
	world_end();
}
END_TEST

static void
add_ending(Suite *suite, const char *name, const TTest *test, int signal_number,
           int status)
{
	TCase *tcase = tcase_create(name);

	if (signal_number)
		tcase_add_test_raise_signal(tcase, test, signal_number);
	else
		tcase_add_exit_test(tcase, test, status);
	suite_add_tcase(suite, tcase);
}

/* Tests that are to end their process. */
static int
run_ends(void)
{
	Suite *suite = suite_create("cudasim_ends");

	add_ending(suite, "setting", settings_that_are_not_understood_end_the_program,
	           0, 2);
	add_ending(suite, "fault", faults_that_are_not_understood_end_the_program, 0,
	           2);
	add_ending(suite, "lack", a_function_that_is_none_cannot_be_lacking, 0, 2);
	add_ending(suite, "abort", a_violation_can_abort_the_program, SIGABRT, 0);
	return run_suite(suite);
}

int
main(void)
{
	const TTest *const tests[] = {
		the_nth_use_fails_and_does_nothing,
		the_nth_of_all_calls_can_fail,
		functions_can_be_counted_one_by_one,
		a_call_that_destroys_does_so_even_if_it_fails,
		a_sticky_error_ends_the_context,
		a_device_that_breaks_ends_what_waits_and_can_be_healed,
		a_function_that_waits_for_its_turn_is_not_called_after_an_error,
		faults_and_settings_come_from_the_environment,
		a_call_on_a_full_stream_blocks,
		a_call_on_a_full_stream_can_hold_the_lock_of_its_context,
		a_call_that_blocks_for_too_long_is_a_deadlock,
		with_delays_streams_overtake_each_other,
		calls_need_a_current_context,
		a_device_can_have_a_second_context,
		the_last_release_of_a_primary_context_ends_it,
		functions_are_found_by_name_and_version,
		without_devices_init_says_so,
		the_exit_waits_for_no_stream_and_later_calls_fail,
		a_child_of_fork_has_no_driver,
	};
	int failed = run_ends();

	return RUN_TESTS("cudasim_calls", tests) || failed;
}
