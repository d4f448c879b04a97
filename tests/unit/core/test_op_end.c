/* SPDX-License-Identifier: BSD-3-Clause */
/* How operations end that do not end by themselves: by their deadline, with their
 * communicator; and errors that nobody sees. */
#include <string.h>

#include "core.h"
#include "run_tests.h"
#include "scripted_world.h"

/* ---- deadlines ---- */

START_TEST(deadlines_pass_in_any_order_of_arming)
{
	static const int64_t after[] = {30, 10, 20, 10};
	baton_request requests[4];

	for (int i = 0; i < 4; i++) {
		struct baton_op_options options = within(after[i]);

		options.flags = BATON_OP_DETACHED;
		requests[i] = scripted_recv(comm, s, i, &options);
	}
	now += 9;
	baton_progress(comm);
	for (int i = 0; i < 4; i++)
		scripted_assert_pending(requests[i]);
	now += 1;
	baton_progress(comm);
	scripted_assert_ended(requests[1], BATON_ERR_TIMEOUT);
	scripted_assert_ended(requests[3], BATON_ERR_TIMEOUT);
	scripted_assert_pending(requests[0]);
	scripted_assert_pending(requests[2]);
	now += 10;
	baton_progress(comm);
	scripted_assert_ended(requests[2], BATON_ERR_TIMEOUT);
	scripted_assert_pending(requests[0]);
	now += 10;
	baton_progress(comm);
	scripted_assert_ended(requests[0], BATON_ERR_TIMEOUT);
	assert_log("r0 r1 r2 r3 -r1 -r3 -r2 -r0 ");
	assert_all_free();
}
END_TEST

START_TEST(deadline_counts_from_arming)
{
	struct baton_op_options options = within(10);
	baton_request first = scripted_recv(comm, s, 1, &options);
	baton_request second = scripted_recv(comm, s, 2, &options);
	baton_request third = scripted_recv(comm, s, 3, &options);

	/* Each expiry arms the next one, whose time starts then. */
	now += 10;
	baton_progress(comm);
	scripted_assert_ended(first, BATON_ERR_TIMEOUT);
	now += 9;
	scripted_assert_pending(second);
	now += 1;
	baton_progress(comm);
	scripted_assert_ended(second, BATON_ERR_TIMEOUT);
	scripted_assert_pending(third);
	now += 10;
	baton_progress(comm);
	scripted_assert_ended(third, BATON_ERR_TIMEOUT);
	assert_log("r1 -r1 r2 -r2 r3 -r3 ");
	assert_all_free();
}
END_TEST

START_TEST(operation_that_ended_in_time_does_not_expire)
{
	struct baton_op_options options = within(10);
	baton_request a = scripted_recv(comm, s, 1, &options);

	now += 9;
	end_recv(1, BATON_OK);
	now += 100;
	baton_progress(comm);
	scripted_assert_ended(a, BATON_OK);
	/* Nor does one that ends within issue. */
	transport.issue = BATON_OK;
	a = scripted_recv(comm, s, 2, &options);
	transport.issue = BATON_PENDING;
	now += 100;
	baton_progress(comm);
	scripted_assert_ended(a, BATON_OK);
	ck_assert_uint_eq(transport.take_backs, 0);
	assert_all_free();
}
END_TEST

START_TEST(deadline_beyond_all_time_is_none)
{
	struct baton_op_options options = within(INT64_MAX);
	baton_request a = scripted_recv(comm, s, 1, &options);

	now = INT64_MAX - 1;
	scripted_assert_pending(a);
	end_recv(1, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
}
END_TEST

START_TEST(communicator_gives_a_deadline_that_an_operation_may_refuse)
{
	struct baton_comm_options defaults = scripted_options();
	struct baton_op_options none = within(-1), zero = within(0);
	struct scripted other;
	struct baton_comm *timed;
	baton_request a, b, c;

	defaults.timeout_ns = 10;
	scripted_init(&other);
	timed = scripted_comm(&other, &defaults);
	zero.flags = none.flags = BATON_OP_DETACHED;
	a = scripted_recv(timed, s, 1, &zero);
	b = scripted_recv(timed, s, 2, &none);
	c = scripted_recv(timed, s, 3, NULL);
	now += 10;
	baton_progress(timed);
	scripted_assert_ended(a, BATON_ERR_TIMEOUT);
	scripted_assert_ended(c, BATON_ERR_TIMEOUT);
	scripted_assert_pending(b);
	scripted_close(&other, timed);
}
END_TEST

/* Taking one back may end others (a transport looks at what it has). */
static void
end_tag_2(struct scripted *scripted, struct batoni_transfer *transfer)
{
	if (transfer->tag == 1)
		scripted_end_now(scripted,
		                 scripted_live(scripted, BATONI_RECV, 2), 8,
		                 BATON_OK);
}

START_TEST(taking_one_back_may_end_the_next_to_expire)
{
	struct baton_op_options options = within(10);
	baton_request requests[3];

	options.flags = BATON_OP_DETACHED;
	for (int i = 0; i < 3; i++)
		requests[i] = scripted_recv(comm, s, i + 1, &options);
	transport.on_take_back = end_tag_2;
	now += 10;
	baton_progress(comm);
	scripted_assert_ended(requests[0], BATON_ERR_TIMEOUT);
	scripted_assert_ended(requests[1], BATON_OK);
	scripted_assert_ended(requests[2], BATON_ERR_TIMEOUT);
	assert_log("r1 r2 r3 -r1 -r3 ");
	assert_all_free();
}
END_TEST

/* ---- ends that meet ---- */

/* The launch of an empty plan, with a queue, cancelled as the driver places it: this thread holds the
 * lock, so that both are found together. */
static baton_request
launch_and_cancel_an_empty_plan(const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;
	struct baton_plan *plan = NULL;

	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_OK);
	batoni_lock();
	ck_assert_int_eq(baton_plan_launch(plan, options, &request), BATON_OK);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	batoni_unlock();
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	return request;
}

START_TEST(empty_launch_that_is_cancelled_at_once_ends_once)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion done[4];
	struct baton_queue *queue;
	baton_request request;

	scripted_assert_ended(launch_and_cancel_an_empty_plan(NULL), BATON_OK);
	ck_assert_int_eq(baton_queue_create(comm, 4, &queue), BATON_OK);
	options.queue = queue;
	request = launch_and_cancel_an_empty_plan(&options);
	for (int i = 0; i < 3; i++)
		baton_progress(comm);
	ck_assert_uint_eq(baton_queue_poll(queue, done, 4), 1);
	ck_assert_int_eq(done[0].status, BATON_OK);
	ck_assert_uint_eq(done[0].request, request);
	ck_assert_uint_eq(baton_queue_poll(queue, done, 4), 0);
	baton_queue_destroy(queue);
	assert_all_free();
}
END_TEST

/* ---- broken and aborted ---- */

START_TEST(broken_transport_ends_everything_with_its_error)
{
	baton_request issued = scripted_recv(comm, s, 1, NULL);
	baton_request queued = scripted_send(comm, s, 2, NULL);
	baton_request armed_behind = scripted_send(comm, t, 2, NULL);
	baton_request requests[3] = {issued, queued, armed_behind};
	baton_request record, none = BATON_REQUEST_NULL;
	char text[256];

	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	ck_assert_str_eq(baton_comm_error(comm), "");
	scripted_break(&transport, BATON_ERR_PEER, "Peer_read", 104,
	               "connection reset");
	baton_progress(comm);
	baton_progress(comm);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_PEER);
	ck_assert_str_eq(baton_comm_error(comm),
	                 "Peer_read returned 104: connection reset");
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(baton_request_error(requests[i], text,
		                                     sizeof(text)),
		                 BATON_OK);
		ck_assert_ptr_nonnull(strstr(text, "connection reset"));
		ck_assert_ptr_nonnull(strstr(text, "BATON_ERR_PEER"));
		scripted_assert_ended(requests[i], BATON_ERR_PEER);
	}
	scripted_assert_ended(record, BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	ck_assert_int_eq(baton_send(NULL, 0, BATON_UINT8, 1, 1, comm, s, NULL,
	                            &none),
	                 BATON_ERR_PEER);
	ck_assert_uint_eq(none, BATON_REQUEST_NULL);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "connection reset"));
}
END_TEST

/* It has ended in status, its buffer lent. */
static void
assert_lent(baton_request request, enum baton_status status)
{
	struct baton_completion completion;

	ck_assert_int_eq(baton_test(request, &completion), status);
	ck_assert_uint_eq(completion.flags, BATON_COMPLETION_LENT);
	ck_assert_uint_eq(completion.bytes, 0);
}

START_TEST(the_first_error_is_the_one_that_is_kept)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	scripted_break(&transport, BATON_ERR_MPI, "First", 1, "one");
	transport.take_back = BATON_ERR_BUSY;
	baton_progress(comm);
	scripted_break(&transport, BATON_ERR_PEER, "Second", 2, "two");
	baton_progress(comm);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_MPI);
	ck_assert_str_eq(baton_comm_error(comm), "First returned 1: one");
	assert_lent(a, BATON_ERR_MPI);
}
END_TEST

static void
break_now(struct scripted *scripted, struct batoni_transfer *transfer)
{
	(void)transfer;
	scripted->base.upcalls->broken(scripted->base.upcalls, BATON_ERR_MPI,
	                               "MPI_Isend", 15, "unclassified");
}

START_TEST(transport_may_break_within_issue)
{
	baton_request pending = scripted_recv(comm, t, 1, NULL), a;

	transport.on_issue = break_now;
	transport.fail_at = 1;
	transport.fail_with = BATON_ERR_MPI;
	a = scripted_send(comm, s, 2, NULL);
	scripted_assert_ended(a, BATON_ERR_MPI);
	baton_progress(comm);
	scripted_assert_ended(pending, BATON_ERR_MPI);
	ck_assert_int_eq(baton_comm_status(comm), BATON_ERR_MPI);
}
END_TEST

START_TEST(a_broken_transport_is_handed_nothing_more)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_recv(comm, s, 2, NULL);

	/* The end of a arms b in the very pass in which it breaks. */
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 8,
	             BATON_OK);
	scripted_break(&transport, BATON_ERR_MPI, "MPI_Test", 1, "gone");
	baton_progress(comm);
	baton_progress(comm);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_ERR_MPI);
	assert_log("r1 ");
}
END_TEST

static void
set_to_one(void *arg)
{
	*(int *)arg = 1;
}

START_TEST(abort_ends_all_kinds_and_frees_all_streams)
{
	struct baton_op_options options = within(10);
	baton_stream u = scripted_stream(comm);
	baton_request issued, queued, record, timed, detached_one;
	int ran = 0;

	issued = scripted_recv(comm, s, 1, NULL);
	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	queued = scripted_send(comm, s, 2, NULL);
	ck_assert_int_eq(baton_stream_launch(comm, s, set_to_one, &ran), BATON_OK);
	ck_assert_int_eq(baton_stream_wait(comm, t, queued), BATON_OK);
	timed = scripted_recv(comm, t, 3, &options);
	options = detached();
	detached_one = scripted_send(comm, u, 4, &options);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	scripted_assert_ended(issued, BATON_ERR_ABORTED);
	scripted_assert_ended(queued, BATON_ERR_ABORTED);
	scripted_assert_ended(record, BATON_ERR_ABORTED);
	scripted_assert_ended(timed, BATON_ERR_ABORTED);
	scripted_assert_ended(detached_one, BATON_ERR_ABORTED);
	/* The launched function runs; then nothing is left. */
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	ck_assert_int_eq(ran, 1);
	ck_assert_int_eq(baton_stream_synchronize(comm, t), BATON_OK);
	ck_assert_int_eq(baton_stream_query(comm, u), BATON_OK);
	/* Expiry finds nothing of it. */
	now += 100;
	baton_progress(comm);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comm),
	                             "baton_comm_abort"));
	ck_assert_int_eq(baton_stream_destroy(comm, s), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comm, t), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(comm, u), BATON_OK);
	s = t = NULL;
}
END_TEST

/* ---- errors that nobody sees ---- */

static void
fire(baton_stream on, int tag)
{
	ck_assert_int_eq(baton_recv(NULL, 0, BATON_UINT8, 1, tag, comm, on, NULL,
	                            NULL),
	                 BATON_OK);
}

START_TEST(error_of_a_fire_and_forget_is_told_once_by_its_stream)
{
	fire(s, 1);
	end_recv(1, BATON_ERR_TRUNCATED);
	ck_assert_int_eq(baton_stream_synchronize(comm, t), BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, s),
	                 BATON_ERR_TRUNCATED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "recv from peer 1, tag 1"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "TRUNCATED"));
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(error_of_a_request_released_while_pending_is_told)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	ck_assert_int_eq(baton_release(&a), BATON_OK);
	ck_assert_uint_eq(a, BATON_REQUEST_NULL);
	end_recv(1, BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_ERR_PEER);
	assert_all_free();
}
END_TEST

START_TEST(error_that_a_request_shows_is_not_told_again)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	end_recv(1, BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(the_first_unseen_error_of_a_stream_is_the_one_told)
{
	fire(s, 1);
	fire(s, 2);
	fire(s, 3);
	end_recv(1, BATON_OK);
	end_recv(2, BATON_ERR_TRUNCATED);
	end_recv(3, BATON_ERR_PEER);
	ck_assert_int_eq(baton_stream_synchronize(comm, s),
	                 BATON_ERR_TRUNCATED);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(released_request_that_ends_well_gives_its_slot_back)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request copy = a;

	ck_assert_int_eq(baton_release(&a), BATON_OK);
	ck_assert_int_eq(baton_test(copy, NULL), BATON_ERR_STALE);
	scripted_assert_free(comm, 15);
	end_recv(1, BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	assert_all_free();
}
END_TEST

static baton_request watched;
static unsigned looks;

/* The clock is read in the middle of an end: whoever sees it sees its time. */
static uint64_t
look_at_watched(void)
{
	struct baton_completion completion;

	if (baton_test(watched, &completion) == BATON_OK) {
		ck_assert_uint_ne(completion.completed_ns, 0);
		looks++;
	}
	return now;
}

START_TEST(an_end_that_is_seen_has_its_time)
{
	struct baton_comm_options options = scripted_options();
	struct baton_completion completion;
	struct scripted its;
	struct baton_comm *stamped;
	baton_request behind;

	scripted_init(&its);
	options.timestamps = true;
	stamped = scripted_comm(&its, &options);
	watched = scripted_send(stamped, s, 1, NULL);
	behind = scripted_send(stamped, s, 2, NULL);
	looks = 0;
	batoni_clock_set(look_at_watched);
	scripted_end(&its, scripted_live(&its, BATONI_SEND, 1), 8, BATON_OK);
	baton_progress(stamped);
	scripted_end(&its, scripted_live(&its, BATONI_SEND, 2), 8, BATON_OK);
	baton_progress(stamped);
	ck_assert_uint_gt(looks, 0);
	ck_assert_int_eq(baton_test(watched, &completion), BATON_OK);
	ck_assert_uint_eq(completion.completed_ns, now);
	batoni_clock_set(NULL);
	scripted_assert_ended(watched, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	scripted_close(&its, stamped);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		deadlines_pass_in_any_order_of_arming,
		deadline_counts_from_arming,
		operation_that_ended_in_time_does_not_expire,
		deadline_beyond_all_time_is_none,
		communicator_gives_a_deadline_that_an_operation_may_refuse,
		taking_one_back_may_end_the_next_to_expire,
		empty_launch_that_is_cancelled_at_once_ends_once,
		broken_transport_ends_everything_with_its_error,
		the_first_error_is_the_one_that_is_kept,
		transport_may_break_within_issue,
		a_broken_transport_is_handed_nothing_more,
		abort_ends_all_kinds_and_frees_all_streams,
		error_of_a_fire_and_forget_is_told_once_by_its_stream,
		error_of_a_request_released_while_pending_is_told,
		error_that_a_request_shows_is_not_told_again,
		the_first_unseen_error_of_a_stream_is_the_one_told,
		released_request_that_ends_well_gives_its_slot_back,
		an_end_that_is_seen_has_its_time,
	};

	return RUN_TESTS_WITH("op_end", tests, world_setup, world_teardown);
}
