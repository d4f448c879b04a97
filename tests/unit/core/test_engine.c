/* SPDX-License-Identifier: BSD-3-Clause */
/* What other threads leave in the inbox while one drives. */
#include <pthread.h>
#include <sched.h>

#include "core.h"
#include "run_tests.h"
#include "scripted_world.h"

/* Those that are left are cancelled; then nothing is held. */
static void
cancel_all(const baton_request requests[], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	scripted_assert_free(comm, 16);
}

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
	cancel_all(requests, 6);
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
	cancel_all((const baton_request[]){a, b, blocker}, 3);
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
	cancel_all((const baton_request[]){b, blocker}, 2);
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
	cancel_all((const baton_request[]){a, blocker}, 2);
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

/* ---- launched functions ---- */

static void
nothing(void *arg)
{
	(void)arg;
}

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
		baton_stream_launch(comm, t, nothing, NULL),
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
	cancel_all(&a, 1);
}
END_TEST

/* The main thread wants the lock now. */
static void *
open_when_wanted(void *arg)
{
	while (atomic_load(&batoni_engine.wanted) < BATONI_CLAIMANT)
		sched_yield();
	sem_post(&gate.go);
	return arg;
}

/* Not AGAIN: one operation has ended, and the driver is about to return its record. */
START_TEST(a_slot_that_the_driver_is_about_to_return_is_found)
{
	struct baton_op_options options = detached();
	baton_request requests[16];
	pthread_t driver, opener;

	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 99, comm, t, NULL,
	                            NULL),
	                 BATON_OK);
	for (int i = 1; i < 16; i++)
		requests[i] = scripted_recv(comm, s, i, &options);
	transport.on_test = stop_at_gate;
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 99), 0,
	             BATON_OK);
	driver = drive_into_gate(comm);
	opener = thread_of(open_when_wanted, NULL);
	requests[0] = scripted_recv(comm, s, 100, &options);
	pthread_join(opener, NULL);
	pthread_join(driver, NULL);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	assert_all_free();
}
END_TEST

/* ---- cancels that wait for the driver ---- */

START_TEST(cancels_asked_for_while_another_drives_end_all_of_them)
{
	struct baton_op_options free = detached();
	baton_request requests[16];
	pthread_t driver;

	for (int i = 0; i < 16; i++)
		requests[i] = scripted_recv(comm, s, i, &free);
	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	for (int i = 0; i < 16; i++)
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
	/* Once more: it is listed once. */
	ck_assert_int_eq(baton_cancel(requests[3]), BATON_OK);
	ck_assert_uint_eq(atomic_load(&comm->cancels.announced), 16);
	open_gate(driver);
	ck_assert_uint_eq(atomic_load(&comm->cancels.announced), 0);
	for (int i = 0; i < 16; i++)
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	assert_all_free();
}
END_TEST

static void
end_it_here(struct scripted *scripted, struct batoni_transfer *transfer)
{
	stop_at_gate(scripted, transfer);
	scripted->on_test = NULL;
	scripted_end_now(scripted, scripted_live(scripted, BATONI_RECV, 1), 8,
	                 BATON_OK);
}

/* The record is listed when it ends, is released, and is the only one left. */
START_TEST(operation_that_ends_before_its_cancel_is_seen_gives_its_slot_back)
{
	struct baton_op_options free = detached();
	baton_request a = scripted_recv(comm, s, 1, &free);
	pthread_t driver;

	transport.on_test = end_it_here;
	driver = drive_into_gate(comm);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_release(&a), BATON_OK);
	open_gate(driver);
	baton_progress(comm);
	ck_assert_uint_eq(atomic_load(&comm->cancels.announced), 0);
	ck_assert(!comm->work.listed);
	assert_all_free();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_slot_that_the_driver_is_about_to_return_is_found,
		what_is_enqueued_while_another_drives_keeps_its_order,
		streams_keep_their_order_through_the_inbox,
		group_may_be_enqueued_while_another_drives,
		one_that_is_cancelled_in_the_inbox_is_never_issued,
		cancel_is_seen_although_the_inbox_was_emptied_just_before,
		one_enqueued_into_a_breaking_communicator_ends_with_its_error,
		launched_function_is_refused_everything,
		cancels_asked_for_while_another_drives_end_all_of_them,
		operation_that_ends_before_its_cancel_is_seen_gives_its_slot_back,
	};

	return RUN_TESTS_WITH("engine", tests, world_setup, world_teardown);
}
