/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that only one thread may drive. */
#include <pthread.h>
#include <sched.h>

#include "core.h"
#include "run_tests.h"
#include "scripted_world.h"

struct client {
	struct baton_comm *comm;
	baton_request request;
	enum baton_status status;
};

static void *
enqueue_as_client(void *arg)
{
	struct client *client = arg;

	client->request = scripted_send(client->comm, t, 7, NULL);
	baton_progress(client->comm);
	client->status = baton_wait(client->request, 0, NULL);
	ck_assert_int_eq(baton_comm_destroy(client->comm), BATON_ERR_INVALID);
	return NULL;
}

START_TEST(communicator_of_the_main_thread_is_driven_by_it_alone)
{
	struct scripted funneled;
	struct client client = {0};
	baton_request a;

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	client.comm = scripted_comm(&funneled, NULL);
	a = scripted_recv(client.comm, s, 1, NULL);
	pthread_join(thread_of(enqueue_as_client, &client), NULL);
	ck_assert_int_eq(client.status, BATON_PENDING);
	ck_assert_uint_eq(atomic_load(&funneled.tests), 0);
	ck_assert_str_eq(funneled.log, "r1 ");
	baton_progress(client.comm);
	ck_assert_str_eq(funneled.log, "r1 s7 ");
	ck_assert_uint_gt(atomic_load(&funneled.tests), 0);
	ck_assert_int_eq(baton_cancel(client.request), BATON_OK);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(client.request, BATON_ERR_CANCELED);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_free(client.comm, 16);
	scripted_close(&funneled, client.comm);
}
END_TEST

static void *
cancel_as_client(void *arg)
{
	struct client *client = arg;

	client->status = baton_cancel(client->request);
	baton_progress(client->comm);
	return NULL;
}

START_TEST(cancel_by_another_thread_waits_for_the_main_one)
{
	struct scripted funneled;
	struct client client = {0};

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	client.comm = scripted_comm(&funneled, NULL);
	client.request = scripted_recv(client.comm, s, 1, NULL);
	pthread_join(thread_of(cancel_as_client, &client), NULL);
	ck_assert_int_eq(client.status, BATON_OK);
	ck_assert_uint_eq(funneled.take_backs, 0);
	baton_progress(client.comm);
	scripted_assert_ended(client.request, BATON_ERR_CANCELED);
	scripted_close(&funneled, client.comm);
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
break_before_a_claimant(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	scripted->on_test = NULL;
	sem_post(&gate.entered);
	while (atomic_load(&batoni_engine.wanted) < BATONI_CLAIMANT)
		sched_yield();
	scripted->base.upcalls->broken(scripted->base.upcalls, BATON_ERR_MPI,
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
	pthread_t claimant;
	baton_request a;

	scripted_init(&funneled);
	scripted_init(&other);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	mine = scripted_comm(&funneled, NULL);
	aborted = scripted_comm(&other, NULL);
	a = scripted_recv(mine, s, 1, NULL);
	funneled.on_test = break_before_a_claimant;
	claimant = thread_of(abort_when_entered, aborted);
	baton_progress(mine);
	pthread_join(claimant, NULL);
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
	pthread_t client;

	sem_init(&visitor.ready, 0, 0);
	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	visitor.comm = scripted_comm(&funneled, NULL);
	visitor.cancelled = scripted_recv(visitor.comm, s, 1, NULL);
	funneled.issue = BATON_OK;
	funneled.on_issue = stop_at_gate;
	client = thread_of(leave_work_behind, &visitor);
	sem_wait(&visitor.ready);
	baton_progress(visitor.comm);
	pthread_join(client, NULL);
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

static void
await_asleep(void)
{
	while (!(atomic_load(&batoni_engine.asleep) & BATONI_ASLEEP_DRIVER))
		sched_yield();
}

/* It holds the lock, and will never look at what is the main thread's. */
START_TEST(test_on_the_main_thread_gets_the_lock_from_one_that_dozes)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), requests[2];
	struct scripted funneled;
	size_t indices[2], done;
	struct baton_comm *mine;
	pthread_t other;

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	mine = scripted_comm(&funneled, NULL);
	for (int i = 0; i < 2; i++)
		requests[i] = scripted_recv(mine, t, i, &(struct baton_op_options){
			.size = sizeof(struct baton_op_options),
			.flags = BATON_OP_DETACHED});
	transport.base.messages.load.quiet = true;
	other = thread_of(wait_for, &a);
	await_asleep();
	scripted_end(&funneled, scripted_live(&funneled, BATONI_RECV, 0), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_test(requests[0], NULL), BATON_OK);
	await_asleep();
	scripted_end(&funneled, scripted_live(&funneled, BATONI_RECV, 1), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_test_some(&requests[1], 1, indices, 2, &done),
	                 BATON_OK);
	ck_assert_uint_eq(done, 1);
	scripted_assert_ended(requests[0], BATON_OK);
	scripted_assert_ended(requests[1], BATON_OK);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_cancel(a), BATON_OK); /* a quiet one's wake */
	pthread_join(other, NULL);
	ck_assert_int_ne(baton_test(a, NULL), BATON_PENDING);
	ck_assert_int_eq(baton_release(&a), BATON_OK);
	scripted_close(&funneled, mine);
}
END_TEST

static void *
wait_all_as_client(void *arg)
{
	struct client *client = arg;

	client->status = baton_wait_all(&client->request, 1, -1);
	return NULL;
}

/* Neither of the other threads can drive what it waits for: no lock is taken, and the
 * end wakes them. */
START_TEST(threads_that_may_not_drive_sleep_until_the_main_one_ends_it)
{
	struct scripted funneled;
	struct client all = {0};
	baton_request b;
	pthread_t one, many;

	scripted_init(&funneled);
	funneled.base.drivers = BATONI_DRIVERS_MAIN;
	funneled.base.messages.load.quiet = true;
	all.comm = scripted_comm(&funneled, NULL);
	all.request = b = scripted_recv(all.comm, s, 1, NULL);
	one = thread_of(wait_for, &b);
	many = thread_of(wait_all_as_client, &all);
	for (int i = 0; i < 100; i++) {
		ck_assert_ptr_null(atomic_load(&batoni_engine.driver));
		sched_yield();
		ck_assert_int_eq(baton_test(b, NULL), BATON_PENDING);
	}
	scripted_end(&funneled, scripted_live(&funneled, BATONI_RECV, 1), 8,
	             BATON_OK);
	ck_assert_int_eq(baton_test(b, NULL), BATON_OK);
	pthread_join(many, NULL);
	ck_assert_int_eq(all.status, BATON_OK);
	assert_waited(one, &b);
	scripted_close(&funneled, all.comm);
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

int
main(void)
{
	const TTest *const tests[] = {
		communicator_of_the_main_thread_is_driven_by_it_alone,
		cancel_by_another_thread_waits_for_the_main_one,
		main_thread_has_its_turns_while_another_waits,
		break_is_not_forgotten_by_a_thread_that_may_not_drive,
		communicator_that_begins_work_in_the_middle_of_a_pass_is_served,
		test_on_the_main_thread_gets_the_lock_from_one_that_dozes,
		threads_that_may_not_drive_sleep_until_the_main_one_ends_it,
		thread_that_gave_way_still_sees_its_request_end,
	};

	return RUN_TESTS_WITH("drivers", tests, world_setup, world_teardown);
}
