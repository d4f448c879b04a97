/* SPDX-License-Identifier: BSD-3-Clause */
#include <poll.h>

#include "mem.h"
#include "run_tests.h"
#include "scripted_transport.h"

static struct scripted transport;
static struct baton_comm *comm;
static struct baton_queue *queue;
static baton_stream s;

static void
setup(void)
{
	scripted_init(&transport);
	comm = scripted_comm(&transport, NULL);
	s = scripted_stream(comm);
	ck_assert_int_eq(baton_queue_create(comm, 3, &queue), BATON_OK);
}

static void
teardown(void)
{
	baton_queue_destroy(queue);
	scripted_close(&transport, comm);
	scripted_stream_close(s);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct baton_op_options
options_of(struct baton_queue *to, uint64_t user_data)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.queue = to;
	options.user_data = user_data;
	options.flags = BATON_OP_DETACHED;
	return options;
}

static baton_request
pend(int tag)
{
	struct baton_op_options options = options_of(queue, (uint64_t)tag);

	return scripted_recv(comm, s, tag, &options);
}

static void
let_end(int tag, enum baton_status status)
{
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, tag), 8,
	             status);
}

static bool
is_readable(int timeout_ms)
{
	struct pollfd poll_fd = {.fd = baton_queue_fd(queue), .events = POLLIN};

	return poll(&poll_fd, 1, timeout_ms) == 1;
}

START_TEST(completions_come_in_the_order_in_which_they_ended)
{
	struct baton_completion completions[3];
	baton_request requests[3];

	for (int i = 0; i < 3; i++)
		requests[i] = pend(i);
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 3), 0);
	let_end(2, BATON_OK);
	let_end(0, BATON_ERR_TRUNCATED);
	/* Polling makes the pass. */
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 3), 2);
	ck_assert_uint_eq(completions[0].request, requests[2]);
	ck_assert_uint_eq(completions[0].user_data, 2);
	ck_assert_int_eq(completions[0].status, BATON_OK);
	ck_assert_uint_eq(completions[1].request, requests[0]);
	ck_assert_int_eq(completions[1].status, BATON_ERR_TRUNCATED);
	/* Each is told once, and its request is gone. */
	ck_assert_int_eq(baton_test(requests[2], NULL), BATON_ERR_STALE);
	ck_assert_int_eq(baton_test(requests[0], NULL), BATON_ERR_STALE);
	scripted_assert_pending(requests[1]);
	scripted_assert_free(comm, 15);
}
END_TEST

START_TEST(poll_takes_no_more_than_asked_for)
{
	struct baton_completion completions[3];

	for (int i = 0; i < 3; i++) {
		pend(i);
		let_end(i, BATON_OK);
	}
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 0), 0);
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 2), 2);
	ck_assert_uint_eq(completions[1].user_data, 1);
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 2), 1);
	ck_assert_uint_eq(completions[0].user_data, 2);
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 2), 0);
	ck_assert_uint_eq(baton_queue_poll(queue, NULL, 2), 0);
	ck_assert_uint_eq(baton_queue_poll(NULL, completions, 2), 0);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(entries_are_reserved_at_the_call_and_freed_by_polling)
{
	struct baton_op_options options = options_of(queue, 9);
	struct baton_completion completion;
	baton_request none = BATON_REQUEST_NULL;

	for (int i = 0; i < 3; i++)
		pend(i);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 3, comm, s,
		                            &options, &none),
		                 BATON_ERR_AGAIN);
		ck_assert_uint_eq(none, BATON_REQUEST_NULL);
		if (i == 0) {
			/* Ended is not polled. */
			let_end(0, BATON_OK);
			baton_progress(comm);
		}
	}
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	pend(3);
	/* Refused calls have taken no request. */
	scripted_assert_free(comm, 13);
}
END_TEST

START_TEST(fire_and_forget_and_released_ones_are_delivered)
{
	struct baton_op_options options = options_of(queue, 42);
	struct baton_completion completions[3];
	baton_request released = pend(1);

	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 2, comm, s, &options,
	                            NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_release(&released), BATON_OK);
	let_end(1, BATON_ERR_PEER);
	let_end(2, BATON_ERR_PEER);
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 3), 2);
	ck_assert_uint_eq(completions[1].user_data, 42);
	/* The queue has told their errors. */
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(request_may_be_tested_and_released_before_it_is_polled)
{
	struct baton_completion completion;
	baton_request a = pend(1), copy = a;

	let_end(1, BATON_OK);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_finish(&a, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_test(copy, NULL), BATON_ERR_STALE);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_uint_eq(completion.user_data, 1);
	ck_assert_int_eq(completion.status, BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(records_are_delivered_too)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;

	options.queue = queue;
	options.user_data = 5;
	ck_assert_int_eq(baton_record(comm, s, &options, NULL), BATON_OK);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_int_eq(completion.op, BATON_OPERATION_RECORD);
	ck_assert_int_eq(completion.peer, -1);
	ck_assert_int_eq(completion.tag, -1);
	ck_assert_uint_eq(completion.user_data, 5);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(operation_that_ends_within_its_call_is_delivered)
{
	struct baton_completion completion;

	transport.issue = BATON_OK;
	pend(1);
	transport.issue = BATON_PENDING;
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_uint_eq(completion.bytes, 8);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(lent_completion_says_so)
{
	struct baton_op_options options = options_of(queue, 1);
	struct baton_completion completion;
	baton_request a = scripted_send(comm, s, 1, &options);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_int_eq(completion.status, BATON_ERR_CANCELED);
	ck_assert_uint_eq(completion.flags, BATON_COMPLETION_LENT);
	transport.take_back = BATON_ERR_CANCELED;
	scripted_assert_free(comm, 15);
	scripted_end(&transport, scripted_live(&transport, BATONI_SEND, 1), 8,
	             BATON_OK);
	baton_progress(comm);
	scripted_assert_free(comm, 16);
}
END_TEST

/* ---- the descriptor ---- */

START_TEST(descriptor_is_readable_once_an_armed_queue_has_completions)
{
	struct baton_completion completion;

	ck_assert_int_ge(baton_queue_fd(queue), 0);
	pend(1);
	pend(2);
	ck_assert(!is_readable(0));
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_readable(0));
	let_end(1, BATON_OK);
	baton_progress(comm);
	ck_assert(is_readable(0));
	/* There is one already: poll first. */
	ck_assert_int_eq(baton_queue_arm(queue), BATON_PENDING);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_readable(0));
	let_end(2, BATON_OK);
	baton_progress(comm);
	ck_assert(is_readable(0));
}
END_TEST

START_TEST(one_arm_serves_one_wake_up)
{
	struct baton_completion completions[3];

	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	for (int i = 0; i < 3; i++)
		pend(i);
	let_end(0, BATON_OK);
	let_end(1, BATON_OK);
	baton_progress(comm);
	ck_assert(is_readable(0));
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 3), 2);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_readable(0));
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 3), 0);
	let_end(2, BATON_OK);
	baton_progress(comm);
	ck_assert(is_readable(0));
}
END_TEST

START_TEST(unarmed_queue_leaves_its_descriptor_alone)
{
	pend(1);
	let_end(1, BATON_OK);
	baton_progress(comm);
	ck_assert(!is_readable(0));
	ck_assert_int_eq(baton_queue_arm(queue), BATON_PENDING);
	ck_assert(!is_readable(0));
}
END_TEST

START_TEST(engine_thread_wakes_who_sleeps_on_the_descriptor)
{
	struct baton_comm_options options = scripted_options();
	struct baton_op_options op = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	struct scripted busy;
	struct baton_comm *driven;
	struct baton_queue *own;

	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&busy);
	driven = scripted_comm(&busy, &options);
	ck_assert_int_eq(baton_queue_create(driven, 1, &own), BATON_OK);
	baton_queue_destroy(queue);
	queue = own; /* for is_readable */
	op.queue = own;
	op.timeout_ns = 1;
	ck_assert_int_eq(baton_queue_arm(own), BATON_OK);
	/* Nobody calls; its deadline ends it. */
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, driven, s, &op,
	                            NULL),
	                 BATON_OK);
	ck_assert(is_readable(-1));
	ck_assert_uint_eq(baton_queue_poll(own, &completion, 1), 1);
	ck_assert_int_eq(completion.status, BATON_ERR_TIMEOUT);
	baton_queue_destroy(own);
	queue = NULL;
	scripted_close(&busy, driven);
}
END_TEST

START_TEST(without_the_engine_thread_a_timer_wakes_who_sleeps_on_the_descriptor)
{
	struct baton_comm_options options = scripted_options();
	struct baton_op_options op = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	struct scripted mains;
	struct baton_comm *driven;

	options.progress = BATON_PROGRESS_AUTO;
	scripted_init(&mains);
	mains.base.drivers = BATONI_DRIVERS_MAIN;
	mains.base.main_thread = pthread_self();
	driven = scripted_comm(&mains, &options);
	baton_queue_destroy(queue);
	ck_assert_int_eq(baton_queue_create(driven, 1, &queue), BATON_OK);
	op.queue = queue;
	for (int before = 0; before < 2; before++) {
		if (before)
			ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
		scripted_recv(driven, NULL, 1, &op);
		if (!before)
			ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
		ck_assert(is_readable(-1));
		ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 0);
		/* Again for each arm, and not in between. */
		ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
		ck_assert(is_readable(-1));
		scripted_end(&mains, scripted_live(&mains, BATONI_RECV, 1), 8,
		             BATON_OK);
		ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	}
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert(!is_readable(0));
	baton_queue_destroy(queue);
	queue = NULL;
	scripted_close(&mains, driven);
}
END_TEST

/* ---- ways out ---- */

START_TEST(destroyed_queue_lets_its_operations_go_on_unobserved)
{
	baton_request kept = pend(1), released = pend(2);

	ck_assert_int_eq(baton_release(&released), BATON_OK);
	baton_queue_destroy(queue);
	queue = NULL;
	scripted_assert_pending(kept);
	let_end(1, BATON_ERR_TRUNCATED);
	let_end(2, BATON_ERR_PEER);
	baton_progress(comm);
	scripted_assert_ended(kept, BATON_ERR_TRUNCATED);
	/* Nobody sees the other one's error but its stream. */
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(destroyed_queue_drops_what_was_not_polled)
{
	baton_request ended = pend(1);

	let_end(1, BATON_OK);
	baton_progress(comm);
	baton_queue_destroy(queue);
	queue = NULL;
	ck_assert_int_eq(baton_test(ended, NULL), BATON_ERR_STALE);
	scripted_assert_free(comm, 16);
}
END_TEST

START_TEST(communicator_is_busy_while_its_queues_live)
{
	struct baton_queue *second;

	ck_assert_int_eq(baton_queue_create(comm, 1, &second), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_BUSY);
	baton_queue_destroy(queue);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_BUSY);
	ck_assert_uint_eq(transport.leaves, 0);
	baton_queue_destroy(second);
	queue = NULL;
}
END_TEST

START_TEST(abort_delivers_everything)
{
	struct baton_completion completions[3];

	for (int i = 0; i < 3; i++)
		pend(i);
	ck_assert_int_eq(baton_queue_arm(queue), BATON_OK);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert(is_readable(0));
	ck_assert_uint_eq(baton_queue_poll(queue, completions, 3), 3);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(completions[i].status, BATON_ERR_ABORTED);
}
END_TEST

START_TEST(queue_of_another_communicator_is_refused)
{
	struct baton_op_options options = options_of(queue, 1);
	baton_request none = BATON_REQUEST_NULL;
	struct scripted other_transport;
	struct baton_comm *other;

	scripted_init(&other_transport);
	other = scripted_comm(&other_transport, NULL);
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_INT8, 1, 1, other, s,
	                            &options, &none),
	                 BATON_ERR_INVALID);
	ck_assert_uint_eq(none, BATON_REQUEST_NULL);
	scripted_assert_free(other, 16);
	scripted_close(&other_transport, other);
}
END_TEST

START_TEST(arguments_are_checked)
{
	struct baton_queue *none = NULL;

	ck_assert_int_eq(baton_queue_create(NULL, 1, &none), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_queue_create(comm, 1, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_queue_create(comm, 0, &none), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_queue_create(comm, ((size_t)1 << 20) + 1, &none),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_queue_arm(NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_queue_fd(NULL), -1);
	baton_queue_destroy(NULL);
	batoni_mem_fail_at(1);
	ck_assert_int_eq(baton_queue_create(comm, 1, &none), BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert_ptr_null(none);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		completions_come_in_the_order_in_which_they_ended,
		poll_takes_no_more_than_asked_for,
		entries_are_reserved_at_the_call_and_freed_by_polling,
		fire_and_forget_and_released_ones_are_delivered,
		request_may_be_tested_and_released_before_it_is_polled,
		records_are_delivered_too,
		operation_that_ends_within_its_call_is_delivered,
		lent_completion_says_so,
		descriptor_is_readable_once_an_armed_queue_has_completions,
		one_arm_serves_one_wake_up,
		unarmed_queue_leaves_its_descriptor_alone,
		without_the_engine_thread_a_timer_wakes_who_sleeps_on_the_descriptor,
		engine_thread_wakes_who_sleeps_on_the_descriptor,
		destroyed_queue_lets_its_operations_go_on_unobserved,
		destroyed_queue_drops_what_was_not_polled,
		communicator_is_busy_while_its_queues_live,
		abort_delivers_everything,
		queue_of_another_communicator_is_refused,
		arguments_are_checked,
	};

	return RUN_TESTS_WITH("queue", tests, setup, teardown);
}
