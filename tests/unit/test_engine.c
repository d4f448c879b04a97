/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who drives, and what happens to work that another thread leaves meanwhile.
 *
 * A gate in the transport's test (or issue) holds the thread that drives exactly
 * there, with the driver's lock, until the test lets it go.
 */
#include <pthread.h>
#include <sched.h>

#include "core.h"
#include "mem.h"
#include "run_tests.h"
#include "scripted_transport.h"

struct gate {
	sem_t entered, go;
	atomic_bool closed; /* the next one that comes stops here */
};

static struct scripted transport;
static struct baton_comm *comm; /* by calls alone */
static baton_stream s, t;
static struct gate gate;

static void
stop_at_gate(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)scripted;
	(void)transfer;
	if (!atomic_exchange(&gate.closed, false))
		return;
	sem_post(&gate.entered);
	sem_wait(&gate.go);
}

static void
setup(void)
{
	sem_init(&gate.entered, 0, 0);
	sem_init(&gate.go, 0, 0);
	scripted_init(&transport);
	comm = scripted_comm(&transport, NULL);
	s = scripted_stream(comm);
	t = scripted_stream(comm);
}

static void
teardown(void)
{
	scripted_close(&transport, comm);
	scripted_stream_close(s);
	scripted_stream_close(t);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	sem_destroy(&gate.entered);
	sem_destroy(&gate.go);
}

static pthread_t
thread_of(void *(*fn)(void *), void *arg)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fn, arg), 0);
	return thread;
}

static void *
one_pass(void *arg)
{
	baton_progress(arg);
	return NULL;
}

static void *
wait_for(void *arg)
{
	baton_request *request = arg;

	return baton_wait(*request, -1, NULL) == BATON_OK ? arg : NULL;
}

static void
assert_waited(pthread_t thread, baton_request *request)
{
	void *result = NULL;

	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, request);
	scripted_assert_ended(*request, BATON_OK);
}

/* A thread that makes one pass over the communicator, and holds the driver's lock
 * in the middle of it.  Something must be in flight. */
static pthread_t
drive_into_gate(struct baton_comm *driven)
{
	pthread_t thread;

	atomic_store(&gate.closed, true);
	thread = thread_of(one_pass, driven);
	sem_wait(&gate.entered);
	return thread;
}

static void
open_gate(pthread_t thread)
{
	sem_post(&gate.go);
	pthread_join(thread, NULL);
}

static void
await_dozing(void)
{
	while (!(atomic_load(&batoni_engine.dozing) & BATONI_DOZE_DRIVER))
		sched_yield();
}

static struct baton_op_options
detached(void)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	return options;
}

/* ---- the inbox ---- */

START_TEST(what_is_enqueued_while_another_drives_keeps_its_order)
{
	struct baton_op_options options = detached();
	baton_request requests[6];
	pthread_t driver;

	transport.on_test = stop_at_gate;
	requests[0] = scripted_recv(comm, s, 9, NULL);
	driver = drive_into_gate(comm);
	for (int i = 1; i < 6; i++)
		requests[i] = scripted_send(comm, i % 2 ? t : NULL, i,
		                            &options);
	/* Nobody else may drive, and nothing has moved. */
	ck_assert_uint_eq(baton_progress(comm), 0);
	ck_assert_int_eq(baton_test(requests[1], NULL), BATON_PENDING);
	ck_assert_str_eq(transport.log, "r9 ");
	open_gate(driver);
	/* It was placed by the driver on its way out. */
	ck_assert_str_eq(transport.log, "r9 s1 s2 s3 s4 s5 ");
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(streams_keep_their_order_through_the_inbox)
{
	baton_request blocker = scripted_recv(comm, s, 9, NULL), a, b, record;
	pthread_t driver;

	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	ck_assert_int_eq(baton_stream_wait(comm, t, a), BATON_OK);
	b = scripted_send(comm, t, 2, NULL);
	open_gate(driver);
	ck_assert_str_eq(transport.log, "r9 ");
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 9), 8,
	             BATON_OK);
	baton_progress(comm);
	ck_assert_str_eq(transport.log, "r9 s1 ");
	scripted_assert_pending(record);
	scripted_end(&transport, scripted_live(&transport, BATONI_SEND, 1), 8,
	             BATON_OK);
	baton_progress(comm);
	scripted_assert_ended(record, BATON_OK);
	ck_assert_str_eq(transport.log, "r9 s1 s2 ");
	scripted_end(&transport, scripted_live(&transport, BATONI_SEND, 2), 8,
	             BATON_OK);
	baton_progress(comm);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(group_may_be_enqueued_while_another_drives)
{
	baton_request blocker = scripted_recv(comm, NULL, 9, NULL), a, b;
	pthread_t driver;

	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_recv(comm, t, 2, NULL);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	ck_assert_str_eq(transport.log, "r9 ");
	open_gate(driver);
	ck_assert_str_eq(transport.log, "r9 s1 r2 ");
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	ck_assert_int_eq(baton_cancel(blocker), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	scripted_assert_ended(blocker, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(one_that_is_cancelled_in_the_inbox_is_never_issued)
{
	baton_request blocker = scripted_recv(comm, NULL, 9, NULL), a, b;
	pthread_t driver;

	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(comm, s, 2, NULL);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	open_gate(driver);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_pending(b);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	ck_assert_int_eq(baton_cancel(blocker), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	scripted_assert_ended(blocker, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

/* The driver has emptied the inbox and is placing what was there, when one is
 * enqueued and cancelled. */
START_TEST(cancel_is_seen_although_the_inbox_was_emptied_just_before)
{
	baton_request blocker = scripted_recv(comm, NULL, 9, NULL), a, b;
	pthread_t driver;

	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	a = scripted_send(comm, s, 1, NULL);
	transport.on_issue = stop_at_gate;
	atomic_store(&gate.closed, true);
	sem_post(&gate.go);
	sem_wait(&gate.entered); /* the driver is placing a */
	b = scripted_send(comm, t, 2, NULL);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	open_gate(driver);
	baton_progress(comm);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_cancel(blocker), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_ended(blocker, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(one_enqueued_into_a_breaking_communicator_ends_with_its_error)
{
	baton_request blocker = scripted_recv(comm, NULL, 9, NULL), a, record;
	pthread_t driver;

	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	scripted_break(&transport, BATON_ERR_PEER, "Peer", 1, "gone");
	open_gate(driver);
	baton_progress(comm);
	scripted_assert_ended(blocker, BATON_ERR_PEER);
	scripted_assert_ended(a, BATON_ERR_PEER);
	scripted_assert_ended(record, BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	ck_assert_str_eq(transport.log, "r9 -r9 ");
}
END_TEST

/* ---- waiting beside a driver ---- */

START_TEST(two_threads_may_wait_for_one_another_s_driver)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_recv(comm, t, 2, NULL);
	pthread_t first, second;

	first = thread_of(wait_for, &a);
	second = thread_of(wait_for, &b);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 2), 8,
	             BATON_OK);
	assert_waited(second, &b);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(first, &a);
}
END_TEST

static void
wait_arg(void *arg)
{
	sem_wait(arg);
}

static void
issue_posts(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	sem_post(scripted->arg);
}

START_TEST(dozing_driver_is_woken_by_an_enqueue)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), b;
	pthread_t driver;

	transport.base.quiet = true;
	driver = thread_of(wait_for, &a);
	await_dozing();
	transport.arg = &gate.entered;
	transport.on_issue = issue_posts;
	b = scripted_send(comm, t, 2, NULL);
	sem_wait(&gate.entered); /* the driver issued it */
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
}
END_TEST

START_TEST(dozing_driver_is_woken_by_a_launched_function)
{
	baton_request a, blocker = scripted_recv(comm, t, 9, NULL);
	pthread_t driver;
	sem_t go;

	sem_init(&go, 0, 0);
	transport.base.quiet = true;
	ck_assert_int_eq(baton_stream_launch(comm, s, wait_arg, &go), BATON_OK);
	ck_assert_int_eq(baton_record(comm, s, NULL, &a), BATON_OK);
	driver = thread_of(wait_for, &a);
	await_dozing();
	sem_post(&go);
	assert_waited(driver, &a);
	ck_assert_int_eq(baton_cancel(blocker), BATON_OK);
	scripted_assert_ended(blocker, BATON_ERR_CANCELED);
	sem_destroy(&go);
}
END_TEST

static void *
wait_cancelled(void *arg)
{
	return baton_wait(*(baton_request *)arg, -1, NULL) == BATON_ERR_CANCELED
	               ? arg
	               : NULL;
}

START_TEST(dozing_driver_is_woken_by_a_cancel)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t driver;
	void *result;

	transport.base.quiet = true;
	driver = thread_of(wait_cancelled, &a);
	await_dozing();
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	pthread_join(driver, &result);
	ck_assert_ptr_eq(result, &a);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
}
END_TEST

START_TEST(dozing_driver_gives_way_to_an_abort)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), b;
	struct scripted other;
	struct baton_comm *aborted;
	pthread_t driver;

	scripted_init(&other);
	aborted = scripted_comm(&other, NULL);
	b = scripted_recv(aborted, t, 1, NULL);
	transport.base.quiet = other.base.quiet = true;
	driver = thread_of(wait_for, &a);
	await_dozing();
	ck_assert_int_eq(baton_comm_abort(aborted), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_ABORTED);
	scripted_close(&other, aborted);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
}
END_TEST

START_TEST(driver_that_is_busy_gives_way_to_a_destroy)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	struct scripted other;
	struct baton_comm *gone;
	pthread_t driver;

	scripted_init(&other);
	gone = scripted_comm(&other, NULL);
	driver = thread_of(wait_for, &a);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	scripted_close(&other, gone);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
}
END_TEST

/* The records that the driver keeps are free ones too. */
START_TEST(waiting_thread_keeps_no_free_request_from_others)
{
	struct baton_op_options options = detached();
	baton_request a, requests[16];
	pthread_t driver;

	/* The driver gives all records back, into its own hands. */
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, i, comm, s,
		                            &options, NULL),
		                 BATON_OK);
	for (int i = 0; i < 16; i++)
		scripted_end(&transport,
		             scripted_live(&transport, BATONI_RECV, i), 0,
		             BATON_OK);
	baton_progress(comm);
	a = scripted_recv(comm, s, 1, NULL);
	driver = thread_of(wait_for, &a);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	for (int i = 0; i < 15; i++)
		requests[i] = scripted_send(comm, t, 2, &options);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
	baton_progress(comm);
	for (int i = 0; i < 15; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
}
END_TEST

static void
end_after_a_million(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	if (atomic_load(&scripted->tests) == 1000000)
		scripted->test_events = 0;
}

START_TEST(wait_runs_out_of_time_although_others_make_progress)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	transport.test_events = 1;
	transport.on_test = end_after_a_million;
	ck_assert_int_eq(baton_wait(a, 1, NULL), BATON_PENDING);
	ck_assert_uint_lt(atomic_load(&transport.tests), 1000000);
}
END_TEST

/* ---- who may drive what ---- */

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

struct guest {
	struct baton_comm *comm;
	baton_request request;
	enum baton_status status;
};

static void *
enqueue_as_guest(void *arg)
{
	struct guest *guest = arg;

	guest->request = scripted_send(guest->comm, t, 7, NULL);
	baton_progress(guest->comm);
	guest->status = baton_wait(guest->request, 0, NULL);
	ck_assert_int_eq(baton_comm_destroy(guest->comm), BATON_ERR_INVALID);
	return NULL;
}

START_TEST(communicator_of_the_main_thread_is_driven_by_it_alone)
{
	struct scripted funneled;
	struct guest guest = {0};
	baton_request a;

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	guest.comm = scripted_comm(&funneled, NULL);
	a = scripted_recv(guest.comm, s, 1, NULL);
	pthread_join(thread_of(enqueue_as_guest, &guest), NULL);
	ck_assert_int_eq(guest.status, BATON_PENDING);
	ck_assert_uint_eq(atomic_load(&funneled.tests), 0);
	ck_assert_str_eq(funneled.log, "r1 ");
	baton_progress(guest.comm);
	ck_assert_str_eq(funneled.log, "r1 s7 ");
	ck_assert_uint_gt(atomic_load(&funneled.tests), 0);
	ck_assert_int_eq(baton_cancel(guest.request), BATON_OK);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(guest.request, BATON_ERR_CANCELED);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_free(guest.comm, 16);
	scripted_close(&funneled, guest.comm);
}
END_TEST

static void *
cancel_as_guest(void *arg)
{
	struct guest *guest = arg;

	guest->status = baton_cancel(guest->request);
	baton_progress(guest->comm);
	return NULL;
}

START_TEST(cancel_by_another_thread_waits_for_the_main_one)
{
	struct scripted funneled;
	struct guest guest = {0};

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	guest.comm = scripted_comm(&funneled, NULL);
	guest.request = scripted_recv(guest.comm, s, 1, NULL);
	pthread_join(thread_of(cancel_as_guest, &guest), NULL);
	ck_assert_int_eq(guest.status, BATON_OK);
	ck_assert_uint_eq(funneled.take_backs, 0);
	baton_progress(guest.comm);
	scripted_assert_ended(guest.request, BATON_ERR_CANCELED);
	scripted_close(&funneled, guest.comm);
}
END_TEST

/* Another thread waits for long, and holds the driver's lock. */
START_TEST(main_thread_has_its_turns_while_another_waits)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), b;
	struct scripted funneled;
	struct baton_comm *mine;
	pthread_t other;

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	mine = scripted_comm(&funneled, NULL);
	b = scripted_recv(mine, t, 1, NULL);
	other = thread_of(wait_for, &a);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	scripted_end(&funneled, scripted_live(&funneled, BATONI_RECV, 1), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_wait(b, -1, NULL), BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(other, &a);
	scripted_close(&funneled, mine);
}
END_TEST

static void
break_before_a_taker(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	scripted->on_test = NULL;
	sem_post(&gate.entered);
	while (atomic_load(&batoni_engine.takers) == 0)
		sched_yield();
	scripted->base.host->broken(scripted->base.host, BATON_ERR_MPI,
	                            "MPI_Test", 1, "gone");
}

static void *
abort_when_entered(void *arg)
{
	sem_wait(&gate.entered);
	baton_comm_abort(arg);
	return NULL;
}

/* It breaks, and the next to have the lock is a thread that may not touch it. */
START_TEST(break_is_not_forgotten_by_a_thread_that_may_not_drive)
{
	struct scripted funneled, other;
	struct baton_comm *mine, *aborted;
	pthread_t taker;
	baton_request a;

	scripted_init(&funneled);
	scripted_init(&other);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	mine = scripted_comm(&funneled, NULL);
	aborted = scripted_comm(&other, NULL);
	a = scripted_recv(mine, s, 1, NULL);
	funneled.on_test = break_before_a_taker;
	taker = thread_of(abort_when_entered, aborted);
	baton_progress(mine);
	pthread_join(taker, NULL);
	pthread_join(thread_of(one_pass, comm), NULL);
	baton_progress(mine);
	scripted_assert_ended(a, BATON_ERR_MPI);
	scripted_close(&funneled, mine);
	scripted_close(&other, aborted);
}
END_TEST

struct visitor {
	struct baton_comm *comm; /* of the main thread */
	baton_request cancelled, issued, other;
	sem_t ready;
};

/* Leave a cancel and an armed operation for the main thread; and, while that
 * issues it, one of another communicator. */
static void *
leave_work_behind(void *arg)
{
	struct visitor *visitor = arg;

	ck_assert_int_eq(baton_cancel(visitor->cancelled), BATON_OK);
	atomic_store(&gate.closed, true);
	visitor->issued = scripted_send(visitor->comm, t, 2, NULL);
	sem_post(&visitor->ready);
	sem_wait(&gate.entered);
	visitor->other = scripted_recv(comm, NULL, 3, NULL);
	sem_post(&gate.go);
	return NULL;
}

START_TEST(communicator_that_begins_work_in_the_middle_of_a_pass_is_served)
{
	struct scripted funneled;
	struct visitor visitor;
	pthread_t guest;

	sem_init(&visitor.ready, 0, 0);
	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	visitor.comm = scripted_comm(&funneled, NULL);
	visitor.cancelled = scripted_recv(visitor.comm, s, 1, NULL);
	funneled.issue = BATON_OK;
	funneled.on_issue = stop_at_gate;
	guest = thread_of(leave_work_behind, &visitor);
	sem_wait(&visitor.ready);
	baton_progress(visitor.comm);
	pthread_join(guest, NULL);
	scripted_assert_ended(visitor.cancelled, BATON_ERR_CANCELED);
	scripted_assert_ended(visitor.issued, BATON_OK);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 3), 8,
	             BATON_OK);
	baton_progress(comm);
	scripted_assert_ended(visitor.other, BATON_OK);
	scripted_close(&funneled, visitor.comm);
	sem_destroy(&visitor.ready);
}
END_TEST

struct relay {
	baton_request first;        /* the thread waits for this */
	struct scripted *then;      /* and then lets end what */
	struct batoni_transfer *end; /* the main thread waits for */
};

static void *
wait_then_end(void *arg)
{
	struct relay *relay = arg;

	baton_wait(relay->first, -1, NULL);
	scripted_end(relay->then, relay->end, 8, BATON_OK);
	return NULL;
}

/* On the main thread, which has the lock now. */
static void
end_first(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	scripted->on_test = NULL;
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
}

START_TEST(thread_that_gave_way_still_sees_its_request_end)
{
	struct scripted funneled;
	struct baton_comm *mine;
	struct relay relay = {.then = &funneled};
	baton_request last;
	pthread_t other;

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	mine = scripted_comm(&funneled, NULL);
	relay.first = scripted_recv(comm, s, 1, NULL);
	last = scripted_recv(mine, t, 2, NULL);
	relay.end = scripted_live(&funneled, BATONI_RECV, 2);
	other = thread_of(wait_then_end, &relay);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	funneled.on_test = end_first;
	ck_assert_int_eq(baton_wait(last, -1, NULL), BATON_OK);
	pthread_join(other, NULL);
	scripted_assert_ended(relay.first, BATON_OK);
	scripted_assert_ended(last, BATON_OK);
	scripted_close(&funneled, mine);
}
END_TEST

/* ---- the engine's thread asleep ---- */

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

/* ---- launched functions ---- */

struct inside {
	baton_request request;
	baton_stream made;
	struct baton_queue *queue;
	int refused, calls;
	size_t events;
};

static void
call_everything(void *arg)
{
	struct inside *inside = arg;
	baton_request request = inside->request, made = BATON_REQUEST_NULL;
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_completion completion;
	struct baton_comm *none = NULL;
	char text[64];
	size_t index, done;
	const enum baton_status said[] = {
		baton_send(NULL, 0, BATON_INT8, 1, 1, comm, t, NULL, &made),
		baton_recv(NULL, 0, BATON_INT8, 1, 1, comm, t, NULL, &made),
		baton_record(comm, t, NULL, &made),
		baton_group_begin(comm),
		baton_group_end(comm),
		baton_test(request, &completion),
		baton_wait(request, 0, &completion),
		baton_finish(&request, 0, &completion),
		baton_stream_wait(comm, t, request),
		baton_wait_any(&request, 1, 0, &index, &completion),
		baton_wait_all(&request, 1, 0),
		baton_test_some(&request, 1, &index, 1, &done),
		baton_cancel(request),
		baton_release(&request),
		baton_request_error(request, text, sizeof(text)),
		baton_stream_create(comm, &inside->made),
		baton_stream_destroy(comm, t),
		baton_stream_launch(comm, t, wait_arg, NULL),
		baton_stream_synchronize(comm, t),
		baton_stream_query(comm, t),
		baton_comm_create(NULL, &none),
		baton_comm_create_local(1, NULL, &none),
		baton_comm_destroy(comm),
		baton_comm_abort(comm),
		baton_comm_query(comm, &info),
		baton_queue_create(comm, 1, &inside->queue),
		baton_queue_arm(inside->queue),
	};

	inside->calls = (int)(sizeof(said) / sizeof(said[0]));
	for (int i = 0; i < inside->calls; i++)
		inside->refused += said[i] == BATON_ERR_INVALID;
	inside->events = baton_progress(comm);
}

START_TEST(launched_function_is_refused_everything)
{
	baton_request a = scripted_recv(comm, t, 1, NULL);
	struct inside inside = {.request = a};

	ck_assert_int_eq(baton_stream_launch(comm, s, call_everything, &inside),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	ck_assert_int_eq(inside.calls, 27);
	ck_assert_int_eq(inside.refused, inside.calls);
	ck_assert_uint_eq(inside.events, 0);
	ck_assert_ptr_null(inside.made);
	ck_assert_ptr_null(inside.queue);
	scripted_assert_pending(a);
	ck_assert_int_eq(baton_comm_status(comm), BATON_OK);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_free(comm, 16);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		what_is_enqueued_while_another_drives_keeps_its_order,
		streams_keep_their_order_through_the_inbox,
		group_may_be_enqueued_while_another_drives,
		one_that_is_cancelled_in_the_inbox_is_never_issued,
		cancel_is_seen_although_the_inbox_was_emptied_just_before,
		one_enqueued_into_a_breaking_communicator_ends_with_its_error,
		two_threads_may_wait_for_one_another_s_driver,
		dozing_driver_is_woken_by_an_enqueue,
		dozing_driver_is_woken_by_a_launched_function,
		dozing_driver_is_woken_by_a_cancel,
		dozing_driver_gives_way_to_an_abort,
		driver_that_is_busy_gives_way_to_a_destroy,
		waiting_thread_keeps_no_free_request_from_others,
		wait_runs_out_of_time_although_others_make_progress,
		engine_thread_drives_what_it_may,
		engine_thread_leaves_communicators_of_calls_alone,
		engine_thread_leaves_communicators_of_callers_alone,
		communicator_of_the_main_thread_is_driven_by_it_alone,
		cancel_by_another_thread_waits_for_the_main_one,
		main_thread_has_its_turns_while_another_waits,
		break_is_not_forgotten_by_a_thread_that_may_not_drive,
		communicator_that_begins_work_in_the_middle_of_a_pass_is_served,
		thread_that_gave_way_still_sees_its_request_end,
		enqueue_wakes_the_engine_thread,
		enqueue_wakes_the_engine_thread_even_if_another_places_it,
		engine_that_was_stopped_leaves_progress_to_calls,
		launched_function_is_refused_everything,
	};

	return RUN_TESTS_WITH("engine", tests, setup, teardown);
}
