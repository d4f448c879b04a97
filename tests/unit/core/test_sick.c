/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices that stop: a trigger that never fires, streams that go nowhere, a sticky error,
 * a stream that is full.  Every call returns, every request ends, and what the device
 * may still touch stays where it is.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "core.h"
#include "fake_device.h"
#include "fake_memory.h"
#include "fake_path.h"
#include "mem.h"
#include "run_tests.h"
#include "sweep.h"
#include "testing.h"

#define MS INT64_C(1000000)
#define LONG_NS (60000 * MS)

static struct baton_comm *comms[2];
static baton_stream s, t;
static int64_t in[8], out[8];

static void
setup(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.requests_max = 64;
	options.timeout_ns = 50 * MS; /* of destroy, and so of its patience */
	ck_assert_int_eq(batoni_comm_create_local_with(&batoni_fake_device_ops,
	                                               2, &options, comms),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_create(comms[0], &s), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comms[0], &t), BATON_OK);
}

static void
teardown(void)
{
	ck_assert_int_eq(fake_device_violations(), 0);
}

static baton_request
receive_on(struct baton_comm *comm, baton_stream stream, int i)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request = BATON_REQUEST_NULL;

	options.timeout_ns = -1;
	ck_assert_int_eq(baton_recv(&in[i], 8, BATON_UINT8, 1, 0, comm, stream,
	                            &options, &request),
	                 BATON_OK);
	return request;
}

static void
abort_and_destroy(void)
{
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(baton_comm_abort(comms[i]), BATON_OK);
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
	}
}

/* ---- a trigger that never fires ---- */

struct synchronizing {
	pthread_t thread;
	enum baton_status status;
	_Atomic bool begun;
	char said[256];
};

static void *
synchronize(void *arg)
{
	struct synchronizing *one = arg;

	atomic_store(&one->begun, true);
	one->status = baton_stream_synchronize(comms[0], s);
	strncpy(one->said, baton_last_error(), sizeof(one->said) - 1);
	return NULL;
}

START_TEST(synchronize_returns_after_an_abort_though_no_trigger_fires)
{
	struct synchronizing threads[3];
	baton_request request;

	memset(threads, 0, sizeof(threads));
	fake_device_hold(s);
	request = receive_on(comms[0], s, 0);
	for (int i = 0; i < 3; i++) {
		pthread_create(&threads[i].thread, NULL, synchronize,
		               &threads[i]);
		while (!atomic_load(&threads[i].begun))
			sched_yield();
	}
	ck_assert_int_eq(baton_comm_abort(comms[0]), BATON_OK);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i].thread, NULL);
		ck_assert_int_eq(threads[i].status, BATON_ERR_ABORTED);
		ck_assert_ptr_nonnull(strstr(threads[i].said, "broken"));
	}
	ck_assert_int_eq(baton_test(request, NULL), BATON_ERR_ABORTED);
	/* One that comes later is told too. */
	ck_assert_int_eq(baton_stream_synchronize(comms[0], s),
	                 BATON_ERR_ABORTED);
	/* The stream gets there after all, in its time: nothing is left then. */
	fake_device_run(s);
	while (baton_stream_synchronize(comms[0], s) != BATON_OK)
		sched_yield();
	ck_assert_int_eq(baton_stream_destroy(comms[0], s), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comms[0], t), BATON_OK);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

static _Atomic int launched;

static void
count_launch(void *arg)
{
	(void)arg;
	atomic_fetch_add(&launched, 1);
}

/* Of each kind one that stream s has not reached, or that waits for it. */
static void
fill_stream(baton_request requests[5])
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	detached.timeout_ns = -1;
	requests[0] = receive_on(comms[0], s, 0);
	ck_assert_int_eq(baton_record(comms[0], s, NULL, &requests[1]),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_launch(comms[0], s, count_launch, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_group_begin(comms[0]), BATON_OK);
	requests[2] = receive_on(comms[0], s, 1);
	requests[3] = receive_on(comms[0], t, 2);
	ck_assert_int_eq(baton_group_end(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_recv(&in[3], 8, BATON_UINT8, 1, 1, comms[0],
	                            NULL, &detached, &requests[4]),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_wait(comms[0], s, requests[4]), BATON_OK);
}

START_TEST(destroy_after_an_abort_leaves_to_a_stuck_stream_what_it_has)
{
	baton_request requests[5], later = BATON_REQUEST_NULL;
	struct baton_comm *next[2];

	fake_device_hold(s);
	fill_stream(requests);
	abort_and_destroy();
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(baton_test(requests[i], NULL),
		                 BATON_ERR_STALE);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_ERR_INVALID);
	/* Late triggers come to nothing, and no function of it is called. */
	ck_assert_int_eq(batoni_comm_create_local_with(&batoni_fake_device_ops,
	                                               2, NULL, next),
	                 BATON_OK);
	fake_device_run(s);
	ck_assert_int_eq(baton_record(next[0], s, NULL, &later), BATON_OK);
	ck_assert_int_eq(baton_finish(&later, LONG_NS, NULL), BATON_OK);
	ck_assert_int_eq(atomic_load(&launched), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_comm_abort(next[i]), BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_comm_destroy(next[i]), BATON_OK);
	batoni_lock();
	ck_assert_ptr_null(batoni_engine.working);
	batoni_unlock();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* A stream waits for a request of a communicator that is left behind, and goes on. */
START_TEST(join_of_another_communicator_outlives_one_that_is_left_behind)
{
	struct baton_comm *others[2];
	baton_request request, record = BATON_REQUEST_NULL;

	ck_assert_int_eq(batoni_comm_create_local_with(&batoni_fake_device_ops,
	                                               2, NULL, others),
	                 BATON_OK);
	request = receive_on(comms[0], t, 0);
	fake_device_hold(s);
	ck_assert_int_eq(baton_stream_wait(others[0], s, request), BATON_OK);
	ck_assert_int_eq(baton_record(others[0], s, NULL, &record), BATON_OK);
	abort_and_destroy();
	ck_assert_int_eq(baton_test(record, NULL), BATON_PENDING);
	fake_device_run(s);
	ck_assert_int_eq(baton_finish(&record, LONG_NS, NULL), BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_comm_abort(others[i]), BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_comm_destroy(others[i]), BATON_OK);
}
END_TEST

static void
hold_the_stream(void *arg)
{
	_Atomic int *stage = arg;

	atomic_store(stage, 1);
	while (atomic_load(stage) < 2)
		sched_yield();
}

/* A function of the program runs to its end before destroy returns. */
START_TEST(no_communicator_is_left_behind_while_its_function_runs)
{
	_Atomic int stage = 0;

	ck_assert_int_eq(baton_stream_launch(comms[0], s, hold_the_stream,
	                                     &stage),
	                 BATON_OK);
	while (atomic_load(&stage) < 1)
		sched_yield();
	ck_assert_int_eq(baton_comm_abort(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_ERR_TIMEOUT);
	atomic_store(&stage, 2);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* ---- streams that go nowhere ---- */

START_TEST(words_are_not_freed_while_a_stream_may_look_at_them)
{
	baton_request request = receive_on(comms[0], s, 0);

	/* The stream has reached the operation and waits for its word. */
	fake_device_step(s, 0);
	ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
	fake_device_freeze();
	ck_assert_int_eq(baton_comm_abort(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_test(request, NULL), BATON_ERR_ABORTED);
	abort_and_destroy();
	ck_assert_int_eq(baton_test(request, NULL), BATON_ERR_STALE);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	/* It looks at them now. */
	fake_device_heal();
	fake_device_step(s, 0);
}
END_TEST

/* A device that says this of its words, always. */
static struct {
	struct batoni_device_ops ops;
	enum baton_status answer;
	unsigned asked;
	uint64_t first_ns, last_ns, before_ns; /* when it was asked */
	uint64_t begun_ns, ended_ns; /* the destroy */
	/* Copies stand still until they have been asked for so often. */
	struct batoni_memory_ops memory;
	unsigned copy_asks;
	void (*on_copy_ask)(void);
	unsigned asked_beside_a_driver;
	uint64_t copy_last_ns, copy_before_ns; /* when they were asked for */
} teller;

static enum baton_status
tell_of_words(struct batoni_device *device, _Atomic uint64_t *words)
{
	(void)device;
	(void)words;
	teller.before_ns = teller.last_ns;
	teller.last_ns = batoni_real_ns();
	if (teller.asked++ == 0)
		teller.first_ns = teller.last_ns;
	return teller.answer;
}

static enum baton_status
open_teller(const struct batoni_device_config *config,
            struct batoni_device **device_p)
{
	enum baton_status status = batoni_fake_device_ops.open(config, device_p);

	if (status == BATON_OK)
		(*device_p)->ops = &teller.ops;
	return status;
}

static enum baton_status
tell_of_copy(struct batoni_device *device, struct batoni_ticket *ticket)
{
	if (atomic_load(&batoni_engine.driver) != batoni_this_thread())
		teller.asked_beside_a_driver++;
	teller.copy_before_ns = teller.copy_last_ns;
	teller.copy_last_ns = batoni_real_ns();
	if (teller.on_copy_ask)
		teller.on_copy_ask();
	if (teller.copy_asks && --teller.copy_asks == 0)
		fake_memory_hold(false);
	return batoni_fake_memory_ops.copy_test(device, ticket);
}

static struct baton_comm *
create_on_teller(int64_t grace_ns)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	teller.ops = batoni_fake_device_ops;
	teller.memory = batoni_fake_memory_ops;
	teller.memory.copy_test = tell_of_copy;
	teller.ops.memory = &teller.memory;
	teller.ops.open = open_teller;
	options.progress = BATON_PROGRESS_CALLS;
	options.timeout_ns = grace_ns;
	ck_assert_int_eq(batoni_comm_create_local_with(&teller.ops, 1, &options,
	                                               &comm),
	                 BATON_OK);
	return comm;
}

static void
destroy_on_teller(enum baton_status answer, int64_t grace_ns)
{
	struct baton_comm *comm = create_on_teller(grace_ns);

	teller.ops.words_free = tell_of_words;
	teller.answer = answer;
	teller.asked = 0;
	teller.begun_ns = batoni_real_ns();
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	teller.ended_ns = batoni_real_ns();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

START_TEST(words_of_a_device_that_cannot_tell_are_asked_for_once)
{
	abort_and_destroy();
	destroy_on_teller(BATON_ERR_UNSUPPORTED, LONG_NS);
	ck_assert_uint_eq(teller.asked, 1);
}
END_TEST

START_TEST(destroy_asks_for_words_no_longer_than_one_grace)
{
	abort_and_destroy();
	destroy_on_teller(BATON_ERR_BUSY, 200 * MS);
	/* Once, where this thread did not run until the grace was over. */
	ck_assert(teller.asked > 1 ||
	          teller.ended_ns - teller.begun_ns >= 200 * MS);
	/* It was not over when it was asked the last time but one. */
	if (teller.asked > 1)
		ck_assert_uint_lt(teller.before_ns - teller.first_ns, 200 * MS);
}
END_TEST

/* Aborted while the device copies a put of the rank to itself. */
static struct baton_comm *
abort_under_a_copy(unsigned char *target, struct baton_window **window_p,
                   int64_t grace_ns)
{
	static const unsigned char source[64] = {1};
	struct baton_comm *comm = create_on_teller(grace_ns);

	ck_assert_int_eq(baton_window_register(target, sizeof(source), comm,
	                                       window_p),
	                 BATON_OK);
	fake_memory_hold(true);
	ck_assert_int_eq(baton_put_signal(source, sizeof(source), BATON_UINT8, 0,
	                                  *window_p, 0, 0, 0, 0, comm, NULL,
	                                  NULL, NULL),
	                 BATON_OK);
	while (fake_memory_copies() == 0)
		baton_progress(comm);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_uint_eq(fake_memory_copies(), 1);
	return comm;
}

START_TEST(deregister_after_an_abort_waits_for_a_copy_into_its_own_part)
{
	unsigned char *target = fake_memory_alloc(64);
	struct baton_window *window = NULL;
	struct baton_comm *comm = abort_under_a_copy(target, &window, LONG_NS);

	teller.copy_asks = 5;
	ck_assert_int_eq(baton_window_deregister(window), BATON_OK);
	ck_assert_uint_eq(fake_memory_copies(), 0);
	fake_memory_free(target);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(destroy_after_an_abort_asks_for_copies_as_the_driver)
{
	unsigned char *target = fake_memory_alloc(64);
	struct baton_window *window = NULL;
	struct baton_comm *comm = abort_under_a_copy(target, &window, 200 * MS);

	/* It is not waited for longer than a grace. */
	ck_assert_int_eq(baton_window_deregister(window), BATON_OK);
	ck_assert_uint_eq(fake_memory_copies(), 1);
	teller.copy_asks = 3;
	/* The destroy has time for three. */
	comm->timeout_ns = LONG_NS;
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_uint_eq(fake_memory_copies(), 0);
	ck_assert_uint_eq(teller.asked_beside_a_driver, 0);
	fake_memory_free(target);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(destroy_leaves_the_device_open_under_a_copy_that_does_not_end)
{
	unsigned char *target = fake_memory_alloc(64);
	struct baton_window *window = NULL;
	struct baton_comm *comm = abort_under_a_copy(target, &window, 200 * MS);

	ck_assert_int_eq(baton_window_deregister(window), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_uint_eq(fake_memory_copies(), 1);
	fake_memory_hold(false);
	while (fake_memory_copies() > 0)
		sched_yield();
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* Aborted while the device copies a message of the rank to itself. */
static struct baton_comm *
abort_under_a_staged_copy(const unsigned char *source)
{
	struct baton_comm *comm = create_on_teller(200 * MS);

	fake_memory_hold(true);
	ck_assert_int_eq(baton_send(source, 64, BATON_UINT8, 0, 0, comm, NULL,
	                            NULL, NULL),
	                 BATON_OK);
	while (fake_memory_copies() == 0)
		baton_progress(comm);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	return comm;
}

static struct baton_comm *being_destroyed;
static pthread_t other_driver;
static _Atomic bool other_drove;

static void *
drive_once(void *arg)
{
	batoni_lock();
	atomic_store(&other_drove, true);
	batoni_unlock();
	return arg;
}

/* The copy ends when another thread has had the lock; until then destroy is patient. */
static void
let_another_drive(void)
{
	being_destroyed->patience.until_ns = UINT64_MAX;
	if (!other_driver)
		ck_assert_int_eq(pthread_create(&other_driver, NULL, drive_once,
		                                NULL),
		                 0);
	if (atomic_load(&other_drove))
		fake_memory_hold(false);
}

START_TEST(others_drive_while_destroy_waits_for_staged_copies)
{
	unsigned char *source = fake_memory_alloc(64);

	being_destroyed = abort_under_a_staged_copy(source);
	teller.on_copy_ask = let_another_drive;
	ck_assert_int_eq(baton_comm_destroy(being_destroyed), BATON_OK);
	teller.on_copy_ask = NULL;
	pthread_join(other_driver, NULL);
	ck_assert_uint_eq(fake_memory_copies(), 0);
	ck_assert_uint_eq(teller.asked_beside_a_driver, 0);
	fake_memory_free(source);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(destroy_asks_for_staged_copies_no_longer_than_one_grace)
{
	unsigned char *source = fake_memory_alloc(64);
	struct baton_comm *comm = abort_under_a_staged_copy(source);
	uint64_t begun_ns, ended_ns;

	begun_ns = batoni_real_ns();
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ended_ns = batoni_real_ns();
	/* Once, where this thread did not run until the grace was over. */
	ck_assert(teller.copy_before_ns > begun_ns ||
	          ended_ns - begun_ns >= 200 * MS);
	/* It was not over when they were asked for the last time but one. */
	if (teller.copy_before_ns > begun_ns)
		ck_assert_uint_lt(teller.copy_before_ns - begun_ns, 400 * MS);
	ck_assert_uint_eq(fake_memory_copies(), 1);
	fake_memory_hold(false);
	while (fake_memory_copies() > 0)
		sched_yield();
	fake_memory_free(source);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* ---- a sticky error ---- */

static void *
break_the_device(void *arg)
{
	sched_yield();
	fake_device_break();
	return arg;
}

START_TEST(sticky_error_breaks_the_communicator_and_ends_what_is_pending)
{
	baton_request request = receive_on(comms[0], s, 0), refused = 99;
	struct synchronizing waiter = { .begun = false };
	pthread_t breaker;

	fake_device_hold(s);
	pthread_create(&waiter.thread, NULL, synchronize, &waiter);
	while (!atomic_load(&waiter.begun))
		sched_yield();
	pthread_create(&breaker, NULL, break_the_device, NULL);
	ck_assert_int_eq(baton_wait(request, LONG_NS, NULL), BATON_ERR_CUDA);
	pthread_join(breaker, NULL);
	pthread_join(waiter.thread, NULL);
	ck_assert_int_eq(waiter.status, BATON_ERR_CUDA);
	ck_assert_int_eq(baton_comm_status(comms[0]), BATON_ERR_CUDA);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comms[0]),
	                             "an illegal address"));
	ck_assert_int_eq(baton_send(out, 8, BATON_UINT8, 1, 0, comms[0], s, NULL,
	                            &refused),
	                 BATON_ERR_CUDA);
	/* The other rank had nothing pending, and finds out by its next call. */
	ck_assert_int_eq(baton_comm_status(comms[1]), BATON_OK);
	ck_assert_int_eq(baton_send(out, 8, BATON_UINT8, 0, 0, comms[1], s, NULL,
	                            &refused),
	                 BATON_ERR_CUDA);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "takes no work"));
	ck_assert_uint_eq(refused, 99);
	ck_assert_int_eq(baton_stream_synchronize(comms[1], s), BATON_ERR_CUDA);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_comm_abort(comms[1]), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comms[1]), BATON_OK);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* A stream-issued operation is asked for by its marks. */
static void
wait_breaks_with(baton_request wait, const char *said)
{
	ck_assert_int_eq(baton_wait(wait, LONG_NS, NULL), BATON_ERR_CUDA);
	ck_assert_msg(strstr(baton_comm_error(comms[0]), said), "%s",
	              baton_comm_error(comms[0]));
	fake_device_heal();
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static baton_request
wait_on_the_path(void)
{
	const struct baton_wait_signal_desc desc = {1, 1, 0, 0};
	baton_request wait = BATON_REQUEST_NULL;

	ck_assert_int_eq(fake_path_add(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_wait_signal(1, &desc, comms[0], s, NULL, &wait),
	                 BATON_OK);
	return wait;
}

START_TEST(sick_device_is_named_by_its_fault_where_a_mark_fails)
{
	baton_request wait = wait_on_the_path();

	batoni_lock();
	fake_device_break();
	batoni_comm_watch(comms[0]);
	batoni_unlock();
	wait_breaks_with(wait, "returned 700: an illegal address");
}
END_TEST

START_TEST(mark_that_fails_on_a_device_that_says_it_is_well_is_named)
{
	baton_request wait = wait_on_the_path();

	fake_device_fail_at(FAKE_MARK_DONE, 1, BATON_ERR_CUDA);
	wait_breaks_with(wait, "mark_done returned BATON_ERR_CUDA");
}
END_TEST

/* Whatever each call says: all that was accepted ends, and both ranks go. */
static void
run_until_it_breaks(unsigned n)
{
	baton_request requests[16] = { 0 };
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	int count = 0;

	detached.flags = BATON_OP_DETACHED;
	detached.timeout_ns = -1;
	fake_device_break_at(n);
	for (int i = 0; i < 2; i++) {
		struct baton_comm *comm = comms[i];

		(void)baton_recv(&in[i], 8, BATON_UINT8, !i, 0, comm, i ? t : s,
		                 &detached, &requests[count++]);
		(void)baton_send(&out[i], 8, BATON_UINT8, !i, 0, comm, i ? t : s,
		                 NULL, &requests[count++]);
		if (requests[0])
			(void)baton_stream_wait(comm, i ? t : s, requests[0]);
		(void)baton_stream_launch(comm, i ? t : s, count_launch, NULL);
		if (baton_group_begin(comm) == BATON_OK) {
			(void)baton_signal(!i, 0, 0, 0, comm, s, NULL,
			                   &requests[count++]);
			(void)baton_recv(&in[2 + i], 8, BATON_UINT8, !i, 3, comm,
			                 t, NULL, &requests[count++]);
			(void)baton_group_end(comm);
		}
		(void)baton_record(comm, s, NULL, &requests[count++]);
		(void)baton_stream_query(comm, s);
	}
	fake_device_break(); /* at the latest, and these calls find out */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_stream_query(comms[i], s),
		                 BATON_ERR_CUDA);
	for (int i = 0; i < count; i++) {
		enum baton_status status =
			requests[i] ? baton_wait(requests[i], LONG_NS, NULL)
				    : BATON_OK;

		ck_assert_int_ne(status, BATON_PENDING);
	}
	for (int i = 0; i < 2; i++)
		(void)baton_stream_synchronize(comms[i], i ? t : s);
	abort_and_destroy();
	fake_device_heal();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

START_TEST(device_that_breaks_at_any_call_hangs_nothing)
{
	for (unsigned n = 1; n <= 45; n++) {
		run_until_it_breaks(n);
		setup();
	}
	abort_and_destroy();
}
END_TEST

/* ---- streams that are full ---- */

static void *
fill_up(void *requests)
{
	baton_request *each = requests;

	for (int i = 0; i < 8; i++)
		each[i] = receive_on(comms[0], s, i);
	return NULL;
}

static void
begin_to_fill(pthread_t *thread, baton_request requests[8])
{
	fake_device_bound(3);
	pthread_create(thread, NULL, fill_up, requests);
	while (fake_device_blocked() == 0)
		sched_yield();
}

START_TEST(full_stream_blocks_its_enqueuer_and_nobody_who_could_empty_it)
{
	baton_request requests[8] = { 0 };
	pthread_t thread;

	begin_to_fill(&thread, requests);
	for (int i = 0; i < 8; i++) {
		out[i] = 100 + i;
		ck_assert_int_eq(baton_send(&out[i], 8, BATON_UINT8, 0, 0,
		                            comms[1], t, NULL, NULL),
		                 BATON_OK);
	}
	pthread_join(thread, NULL);
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(baton_finish(&requests[i], LONG_NS, NULL),
		                 BATON_OK);
		ck_assert_int_eq(in[i], 100 + i);
	}
	abort_and_destroy();
}
END_TEST

static void *
fill_until_refused(void *arg)
{
	baton_request request = BATON_REQUEST_NULL;
	enum baton_status status;

	do
		status = baton_recv(in, 8, BATON_UINT8, 1, 0, comms[0], s, NULL,
		                    &request);
	while (status == BATON_OK);
	ck_assert_int_eq(status, BATON_ERR_ABORTED);
	return arg;
}

START_TEST(abort_lets_an_enqueuer_on_that_a_full_stream_blocks)
{
	pthread_t thread;

	fake_device_bound(3);
	pthread_create(&thread, NULL, fill_until_refused, NULL);
	while (fake_device_blocked() == 0)
		sched_yield();
	ck_assert_int_eq(baton_comm_abort(comms[0]), BATON_OK);
	pthread_join(thread, NULL);
	abort_and_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		synchronize_returns_after_an_abort_though_no_trigger_fires,
		destroy_after_an_abort_leaves_to_a_stuck_stream_what_it_has,
		join_of_another_communicator_outlives_one_that_is_left_behind,
		no_communicator_is_left_behind_while_its_function_runs,
		words_are_not_freed_while_a_stream_may_look_at_them,
		words_of_a_device_that_cannot_tell_are_asked_for_once,
		destroy_asks_for_words_no_longer_than_one_grace,
		deregister_after_an_abort_waits_for_a_copy_into_its_own_part,
		destroy_after_an_abort_asks_for_copies_as_the_driver,
		destroy_leaves_the_device_open_under_a_copy_that_does_not_end,
		destroy_asks_for_staged_copies_no_longer_than_one_grace,
		others_drive_while_destroy_waits_for_staged_copies,
		sticky_error_breaks_the_communicator_and_ends_what_is_pending,
		sick_device_is_named_by_its_fault_where_a_mark_fails,
		mark_that_fails_on_a_device_that_says_it_is_well_is_named,
		device_that_breaks_at_any_call_hangs_nothing,
		full_stream_blocks_its_enqueuer_and_nobody_who_could_empty_it,
		abort_lets_an_enqueuer_on_that_a_full_stream_blocks,
	};

	return RUN_TESTS_WITH("sick", tests, setup, teardown);
}
