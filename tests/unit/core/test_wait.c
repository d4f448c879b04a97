/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that wait while another drives, and those that must have the lock. */
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core.h"
#include "request.h"
#include "run_tests.h"
#include "scripted_world.h"
#include "wait.h"

static void
await_asleep(void)
{
	while (!(atomic_load(&batoni_engine.asleep) & BATONI_ASLEEP_DRIVER))
		sched_yield();
}

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

/* A quiet transport's transfers end only within calls. */
static void
issue_ends_the_other(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	scripted_end(scripted, scripted_live(scripted, BATONI_RECV, 1), 8,
	             BATON_OK);
	sem_post(scripted->arg);
}

/* The receive of tag 1, which the driver waits for. */
static void
end_by_a_call(pthread_t driver, baton_request *received)
{
	baton_request b;

	transport.arg = &gate.entered;
	transport.on_issue = issue_ends_the_other;
	b = scripted_send(comm, t, 2, NULL);
	sem_wait(&gate.entered); /* the driver issued it */
	assert_waited(driver, received);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
}

START_TEST(dozing_driver_is_woken_by_an_enqueue)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t driver;

	transport.base.messages.load.quiet = true;
	driver = thread_of(wait_for, &a);
	await_asleep();
	end_by_a_call(driver, &a);
}
END_TEST

START_TEST(dozing_driver_is_woken_by_a_launched_function)
{
	baton_request a, blocker = scripted_recv(comm, t, 9, NULL);
	pthread_t driver;
	sem_t go;

	sem_init(&go, 0, 0);
	transport.base.messages.load.quiet = true;
	ck_assert_int_eq(baton_stream_launch(comm, s, wait_arg, &go), BATON_OK);
	ck_assert_int_eq(baton_record(comm, s, NULL, &a), BATON_OK);
	driver = thread_of(wait_for, &a);
	await_asleep();
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

	transport.base.messages.load.quiet = true;
	driver = thread_of(wait_cancelled, &a);
	await_asleep();
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
	transport.base.messages.load.quiet = other.base.messages.load.quiet = true;
	driver = thread_of(wait_for, &a);
	await_asleep();
	ck_assert_int_eq(baton_comm_abort(aborted), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_ABORTED);
	scripted_close(&other, aborted);
	end_by_a_call(driver, &a);
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

/* The driver is far away, and others have less time than he. */
START_TEST(wait_runs_out_of_time_although_the_driver_dozes)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_recv(comm, t, 3, NULL);
	uint64_t start = batoni_real_ns();
	pthread_t driver;

	transport.base.messages.load.quiet = true;
	driver = thread_of(wait_for, &a);
	await_asleep();
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(baton_wait(b, 1000000, NULL), BATON_PENDING);
	/* He looks up every two seconds. */
	ck_assert_uint_lt(batoni_real_ns() - start, 20000000000u);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	ck_assert_int_eq(baton_wait(b, -1, NULL), BATON_ERR_CANCELED);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	end_by_a_call(driver, &a);
}
END_TEST

/* ---- who gets the lock, and who is woken ---- */

static atomic_int passes_after;

/* In a pass: wait for a claimant.  In later ones: there was none to hand the lock to. */
static void
await_claimant(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	if (!atomic_exchange(&gate.closed, false)) {
		atomic_fetch_add(&passes_after, 1);
		return;
	}
	sem_post(scripted->arg);
	while (atomic_load(&batoni_engine.wanted) < BATONI_CLAIMANT)
		sched_yield();
	atomic_store(&passes_after, 0);
}

static void *
poll_until_over(void *arg)
{
	while (baton_test(*(baton_request *)arg, NULL) == BATON_PENDING)
		baton_progress(comm);
	return NULL;
}

START_TEST(claimant_has_the_lock_before_a_poller_has_it_again)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	pthread_t poller;

	transport.arg = &gate.entered;
	transport.on_test = await_claimant;
	poller = thread_of(poll_until_over, &a);
	for (int i = 0; i < 30; i++) {
		atomic_store(&gate.closed, true);
		sem_wait(&gate.entered);
		batoni_lock();
		ck_assert_int_eq(atomic_load(&passes_after), 0);
		batoni_unlock();
	}
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	pthread_join(poller, NULL);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
}
END_TEST

static void
await_sleepers(unsigned n)
{
	while (atomic_load(&batoni_engine.wanted) != n * BATONI_SLEEPER)
		sched_yield();
}

struct counted {
	struct batoni_awaited awaited;
	atomic_uint looks;
};

static bool
count_looks(struct batoni_awaited *awaited, bool driving)
{
	struct counted *counted = batoni_container_of(awaited, struct counted,
	                                              awaited);
	uint64_t word = 0;

	(void)driving;
	atomic_fetch_add(&counted->looks, 1);
	(void)batoni_request_find(awaited->requests[0], &word);
	return word & BATONI_OP_DONE;
}

static void *
wait_counted(void *arg)
{
	struct counted *counted = arg;

	batoni_wait_until(&counted->awaited, NULL, -1);
	return NULL;
}

START_TEST(end_of_an_operation_wakes_nobody_who_waits_for_another)
{
	struct baton_op_options free = detached();
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_recv(comm, t, 2, NULL);
	struct counted counted = {.awaited = {.ready = count_looks,
	                                      .requests = &b, .count = 1}};
	pthread_t driver, sleeper;

	driver = thread_of(wait_for, &a);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	sleeper = thread_of(wait_counted, &counted);
	await_sleepers(1);
	atomic_store(&counted.looks, 0);
	for (int i = 0; i < 1000; i++) {
		baton_request c = scripted_send(comm, NULL, 3, &free);

		ck_assert_int_eq(baton_cancel(c), BATON_OK);
		ck_assert_int_eq(baton_wait(c, -1, NULL), BATON_ERR_CANCELED);
		scripted_assert_ended(c, BATON_ERR_CANCELED);
	}
	/* It looks once after it is counted, and then when its nap is over. */
	ck_assert_uint_lt(atomic_load(&counted.looks), 100);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 2), 8,
	             BATON_OK);
	pthread_join(sleeper, NULL);
	scripted_assert_ended(b, BATON_OK);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
}
END_TEST

static void
await_done(baton_request request)
{
	uint64_t word = 0;

	while (batoni_request_find(request, &word) && !(word & BATONI_OP_DONE))
		sched_yield();
}

/* Of those that are usual, which end on a path of their own, too (op.c). */
START_TEST(end_of_a_detached_operation_wakes_who_sleeps_for_it)
{
	struct baton_op_options free = detached();
	baton_request a = scripted_recv(comm, s, 1, NULL), b;
	uint64_t done_ns, took_ns, shortest_ns = UINT64_MAX;
	pthread_t driver, sleeper;

	driver = thread_of(wait_for, &a);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	for (int i = 0; i < 5; i++) {
		b = scripted_recv(comm, t, 2, &free);
		sleeper = thread_of(wait_for, &b);
		await_sleepers(1);
		/* It looks once more after it is counted. */
		usleep(20000);
		scripted_end(&transport,
		             scripted_await(&transport, BATONI_RECV, 2), 8,
		             BATON_OK);
		await_done(b);
		done_ns = batoni_real_ns();
		assert_waited(sleeper, &b);
		took_ns = batoni_real_ns() - done_ns;
		if (took_ns < shortest_ns)
			shortest_ns = took_ns;
	}
	/* Not by the ends of naps, which are 2 s.  Load delays a wake too, but not each. */
	ck_assert_uint_lt(shortest_ns, 1000000000u);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
}
END_TEST

struct waited {
	baton_request requests[2];
	enum baton_status status;
	size_t index;
};

static void *
wait_any_of(void *arg)
{
	struct waited *w = arg;

	w->status = baton_wait_any(w->requests, 2, -1, &w->index, NULL);
	return NULL;
}

static void *
wait_all_of(void *arg)
{
	struct waited *w = arg;

	w->status = baton_wait_all(w->requests, 2, -1);
	return NULL;
}

static void *
wait_for_first(void *arg)
{
	struct waited *w = arg;

	w->status = baton_wait(w->requests[0], -1, NULL);
	return NULL;
}

/* Another drives until the end of the test. */
START_TEST(sleepers_are_woken_by_the_last_of_all_the_first_of_any_and_a_release)
{
	struct baton_op_options free = detached();
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request first = scripted_recv(comm, t, 2, &free);
	baton_request second = scripted_recv(comm, t, 3, &free);
	baton_request third = scripted_recv(comm, t, 4, &free);
	struct waited all = {{first, second}, BATON_PENDING, 9};
	struct waited any = {{third, second}, BATON_PENDING, 9};
	struct waited released = {{third, third}, BATON_PENDING, 9};
	pthread_t driver, threads[3];

	driver = thread_of(wait_for, &a);
	while (atomic_load(&transport.tests) < 10)
		sched_yield();
	threads[0] = thread_of(wait_all_of, &all);
	threads[1] = thread_of(wait_any_of, &any);
	threads[2] = thread_of(wait_for_first, &released);
	await_sleepers(3);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 2), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_wait(first, -1, NULL), BATON_OK);
	await_sleepers(3);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 3), 8,
	             BATON_OK);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	ck_assert_int_eq(all.status, BATON_OK);
	ck_assert_int_eq(any.status, BATON_OK);
	ck_assert_uint_eq(any.index, 1);
	await_sleepers(1);
	ck_assert_int_eq(baton_release(&third), BATON_OK);
	pthread_join(threads[2], NULL);
	ck_assert_int_eq(released.status, BATON_ERR_STALE);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 4), 8,
	             BATON_OK);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	assert_waited(driver, &a);
	scripted_assert_ended(first, BATON_OK);
	scripted_assert_ended(second, BATON_OK);
}
END_TEST

/* ---- threads that are cancelled ---- */

/* Has MPI such points?  It polls and writes. */
static void
cancellation_point(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)scripted;
	(void)transfer;
	pthread_testcancel();
}

enum way { POLL, TEST, WAIT, FINISH, DELIVER, CANCEL, WAYS };

struct doomed {
	enum way way;
	baton_request request;
};

static void *
call_when_cancelled(void *arg)
{
	struct doomed *doomed = arg;

	pthread_cancel(pthread_self());
	if (doomed->way == TEST)
		baton_test(doomed->request, NULL);
	else if (doomed->way == WAIT)
		baton_wait(doomed->request, 1000000, NULL);
	else if (doomed->way == FINISH)
		baton_finish(&doomed->request, -1, NULL);
	else if (doomed->way == CANCEL)
		baton_cancel(doomed->request);
	else
		baton_progress(comm);
	doomed->way = WAYS; /* it has returned */
	pthread_testcancel();
	return NULL;
}

START_TEST(thread_is_not_cancelled_while_it_has_a_lock)
{
	transport.on_test = cancellation_point;
	transport.on_take_back = cancellation_point;
	for (enum way way = POLL; way < WAYS; way++) {
		struct baton_op_options options = detached();
		struct doomed doomed = {.way = way};
		baton_request a;
		pthread_t thread;
		void *result;

		/* Armed, so that the end of the operation writes. */
		ck_assert_int_eq(baton_queue_create(comm, 1, &options.queue),
		                 BATON_OK);
		ck_assert_int_eq(baton_queue_arm(options.queue), BATON_OK);
		a = doomed.request = scripted_recv(comm, s, 1, &options);
		if (way == FINISH || way == DELIVER)
			scripted_end(&transport,
			             scripted_live(&transport, BATONI_RECV, 1),
			             8, BATON_OK);
		thread = thread_of(call_when_cancelled, &doomed);
		pthread_join(thread, &result);
		ck_assert_ptr_eq(result, PTHREAD_CANCELED);
		ck_assert_int_eq(doomed.way, WAYS);
		ck_assert_ptr_null(atomic_load(&batoni_engine.driver));
		if (way != FINISH) {
			baton_cancel(a);
			ck_assert_int_eq(baton_release(&a), BATON_OK);
		}
		baton_queue_destroy(options.queue);
	}
}
END_TEST

/* Drivers come and go; each time one of those who sleep is the next. */
START_TEST(sleepers_drive_one_after_another)
{
	struct baton_op_options free = detached();
	baton_request requests[8];
	pthread_t threads[8];

	for (int i = 0; i < 8; i++) {
		requests[i] = scripted_recv(comm, t, i, &free);
		threads[i] = thread_of(wait_for, &requests[i]);
	}
	await_sleepers(7);
	for (int i = 0; i < 8; i++) {
		scripted_end(&transport,
		             scripted_live(&transport, BATONI_RECV, i), 8,
		             BATON_OK);
		assert_waited(threads[i], &requests[i]);
	}
	ck_assert_uint_eq(atomic_load(&batoni_engine.wanted), 0);
}
END_TEST

static void
do_nothing(void *unused)
{
	(void)unused;
}

/* Its stream may be destroyed while it looks for the lock. */
START_TEST(thread_of_a_stream_that_is_gone_is_not_counted)
{
	struct baton_comm *local;
	baton_stream stream;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &local), BATON_OK);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(baton_stream_create(local, &stream), BATON_OK);
		ck_assert_int_eq(baton_stream_launch(local, stream, do_nothing,
		                                     NULL),
		                 BATON_OK);
		ck_assert_int_eq(baton_stream_synchronize(local, stream),
		                 BATON_OK);
		ck_assert_int_eq(baton_stream_destroy(local, stream), BATON_OK);
	}
	ck_assert_uint_eq(atomic_load(&batoni_engine.running), 0);
	ck_assert_int_eq(baton_comm_destroy(local), BATON_OK);
}
END_TEST

struct countdown {
	unsigned left, taken;
	enum baton_status end;
};

static enum baton_status
count_down(void *argument)
{
	struct countdown *countdown = argument;

	ck_assert_ptr_eq(atomic_load(&batoni_engine.driver),
	                 batoni_this_thread());
	countdown->taken++;
	return countdown->left-- > 0 ? BATON_PENDING : countdown->end;
}

START_TEST(steps_are_driven_until_one_ends_or_time_is_up)
{
	struct countdown steps = {.left = 5, .end = BATON_ERR_INVALID};

	ck_assert_int_eq(batoni_drive_until(count_down, &steps, BATONI_NEVER),
	                 BATON_ERR_INVALID);
	ck_assert_uint_eq(steps.taken, 6);
	/* One step is taken in any case. */
	steps = (struct countdown){.left = 5, .end = BATON_OK};
	ck_assert_int_eq(batoni_drive_until(count_down, &steps, 0),
	                 BATON_PENDING);
	ck_assert_uint_eq(steps.taken, 1);
	ck_assert_ptr_ne(atomic_load(&batoni_engine.driver),
	                 batoni_this_thread());
}
END_TEST

static void
end_this(struct scripted *scripted, struct batoni_transfer *transfer)
{
	scripted_end_now(scripted, transfer, 8, BATON_OK);
}

/* However many messages a program finishes that come at once, all others are served too. */
START_TEST(finish_asks_the_peer_alone_and_makes_a_pass_now_and_then)
{
	enum { MESSAGES = 170 };
	size_t tests = atomic_load(&transport.tests);
	baton_request request;

	transport.on_await = end_this;
	for (int i = 0; i < MESSAGES; i++) {
		request = scripted_recv(comm, s, 1, NULL);
		ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	}
	tests = atomic_load(&transport.tests) - tests;
	ck_assert_uint_ge(tests, 9);
	ck_assert_uint_le(tests, 11);
}
END_TEST

/* Another rank, which needs this thread's core to send, and how many passes the thread had
 * made when it yielded. */
static _Thread_local struct {
	int tag; /* 0: none */
	uint64_t passes;
} other_rank;

/* In place of the C library's, for the library too. */
int
sched_yield(void)
{
	int tag = other_rank.tag;

	if (!tag)
		return (int)syscall(SYS_sched_yield);
	other_rank.tag = 0;
	other_rank.passes = atomic_load(&batoni_engine.host_passes);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, tag), 8,
	             BATON_OK);
	return 0;
}

static uint64_t
passes_until_yield(int tag)
{
	baton_request request = scripted_recv(comm, s, tag, NULL);
	uint64_t before = atomic_load(&batoni_engine.host_passes);

	other_rank.tag = tag;
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	return other_rank.passes - before;
}

static void
end_in_a_later_test(struct scripted *scripted, struct batoni_transfer *none)
{
	(void)none;
	if (atomic_load(&scripted->tests) % 100 != 99)
		return;
	scripted->on_test = NULL;
	scripted_end(scripted, scripted_live(scripted, BATONI_RECV, 10), 8,
	             BATON_OK);
}

START_TEST(rank_that_shares_its_core_yields_after_a_few_passes)
{
	baton_request request;

	ck_assert_uint_gt(passes_until_yield(1), 1000);
	for (int tag = 2; tag < 10; tag++)
		ck_assert_uint_le(passes_until_yield(tag), 20);

	/* A message that comes without a yield. */
	transport.on_test = end_in_a_later_test;
	request = scripted_recv(comm, s, 10, NULL);
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_OK);
	ck_assert_uint_gt(passes_until_yield(11), 1000);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		two_threads_may_wait_for_one_another_s_driver,
		dozing_driver_is_woken_by_an_enqueue,
		dozing_driver_is_woken_by_a_launched_function,
		dozing_driver_is_woken_by_a_cancel,
		dozing_driver_gives_way_to_an_abort,
		driver_that_is_busy_gives_way_to_a_destroy,
		waiting_thread_keeps_no_free_request_from_others,
		wait_runs_out_of_time_although_others_make_progress,
		wait_runs_out_of_time_although_the_driver_dozes,
		claimant_has_the_lock_before_a_poller_has_it_again,
		end_of_an_operation_wakes_nobody_who_waits_for_another,
		end_of_a_detached_operation_wakes_who_sleeps_for_it,
		sleepers_are_woken_by_the_last_of_all_the_first_of_any_and_a_release,
		sleepers_drive_one_after_another,
		thread_of_a_stream_that_is_gone_is_not_counted,
		thread_is_not_cancelled_while_it_has_a_lock,
		steps_are_driven_until_one_ends_or_time_is_up,
		finish_asks_the_peer_alone_and_makes_a_pass_now_and_then,
		rank_that_shares_its_core_yields_after_a_few_passes,
	};

	return RUN_TESTS_WITH("wait", tests, world_setup, world_teardown);
}
