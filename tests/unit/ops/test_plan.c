/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans on the host device, over a transport that does as it is told. */
#include <string.h>

#include "core.h"
#include "mem.h"
#include "run_tests.h"
#include "scripted_world.h"

static char cell[8];

static void
note(bool send, baton_stream stream, int tag,
     const struct baton_op_options *options)
{
	ck_assert_int_eq(send ? baton_send(cell, 8, BATON_UINT8, 1, tag, comm,
	                                   stream, options, NULL)
	                      : baton_recv(cell, 8, BATON_UINT8, 1, tag, comm,
	                                   stream, options, NULL),
	                 BATON_OK);
}

static void
begin(void)
{
	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
}

static struct baton_plan *
end_recording(void)
{
	struct baton_plan *plan = NULL;

	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_OK);
	return plan;
}

static void
destroy(struct baton_plan *plan)
{
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
}

static baton_request
launch(struct baton_plan *plan, const struct baton_op_options *options)
{
	baton_request request = 0;

	ck_assert_int_eq(baton_plan_launch(plan, options, &request), BATON_OK);
	return request;
}

/* s1 on s, then {r2 on s, s3 on t}, then s4 on s. */
static struct baton_plan *
usual(void)
{
	begin();
	note(true, s, 1, NULL);
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	note(false, s, 2, NULL);
	note(true, t, 3, NULL);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	note(true, s, 4, NULL);
	return end_recording();
}

START_TEST(launch_issues_what_its_streams_have_reached)
{
	struct baton_plan *plan = usual();
	struct baton_completion done;
	baton_request request;

	assert_log("");
	for (int round = 0; round < 3; round++) {
		transport.log[0] = '\0';
		request = launch(plan, NULL);
		assert_log("s1 ");
		end_send(1, BATON_OK);
		assert_log("s1 r2 s3 ");
		end_send(3, BATON_OK);
		assert_log("s1 r2 s3 ");
		end_recv(2, BATON_OK);
		assert_log("s1 r2 s3 s4 ");
		ck_assert_int_eq(baton_test(request, &done), BATON_PENDING);
		end_send(4, BATON_OK);
		ck_assert_int_eq(baton_test(request, &done), BATON_OK);
		ck_assert_uint_eq(done.bytes, 32);
		scripted_assert_ended(request, BATON_OK);
	}
	destroy(plan);
	assert_all_free();
}
END_TEST

START_TEST(operations_that_end_within_the_launch_end_it)
{
	struct baton_plan *plan = usual();
	baton_request request;

	transport.issue = BATON_OK;
	request = launch(plan, NULL);
	destroy(plan);
	scripted_assert_ended(request, BATON_OK);
	assert_log("s1 r2 s3 s4 ");
	transport.issue = BATON_PENDING;
	assert_all_free();
}
END_TEST

/* What this thread enqueues while another drives is placed as one piece. */
static void *
launch_beside(void *arg)
{
	return launch(arg, NULL) ? arg : NULL;
}

START_TEST(launch_beside_a_driver_is_one_piece)
{
	baton_request blocker = scripted_recv(comm, t, 9, NULL);
	struct baton_op_options free_one = detached();
	struct baton_plan *plan;
	pthread_t driver, other;
	void *result = NULL;

	begin();
	note(true, s, 1, &free_one);
	note(true, s, 1, &free_one);
	plan = end_recording();
	transport.on_test = stop_at_gate;
	driver = drive_into_gate(comm);
	other = thread_of(launch_beside, plan);
	pthread_join(other, &result);
	ck_assert_ptr_eq(result, plan);
	assert_log("r9 ");
	open_gate(driver);
	transport.on_test = NULL;
	baton_progress(comm);
	assert_log("r9 s1 s1 ");
	transport.take_back = BATON_ERR_CANCELED;
	ck_assert_int_eq(baton_cancel(blocker), BATON_OK);
	scripted_assert_ended(blocker, BATON_ERR_CANCELED);
	destroy(plan);
	/* Its request is lost with the thread: an abort ends it. */
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
}
END_TEST

/* 16 records: two launches of usual() take 6 each, and the third finds 4. */
START_TEST(launch_without_slots_takes_none)
{
	struct baton_plan *plan = usual();
	baton_request a = launch(plan, NULL), b = launch(plan, NULL), c = 77;

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(baton_plan_launch(plan, NULL, &c),
		                 BATON_ERR_AGAIN);
		ck_assert_uint_eq(c, 77);
		ck_assert_ptr_nonnull(strstr(baton_last_error(),
		                             "baton_plan_launch: all 16"));
	}
	transport.take_back = BATON_ERR_CANCELED;
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	/* The second begins where the first has been. */
	assert_log("s1 -s1 s1 ");
	c = launch(plan, NULL);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	ck_assert_int_eq(baton_cancel(c), BATON_OK);
	scripted_assert_ended(c, BATON_ERR_CANCELED);
	destroy(plan);
	assert_all_free();
}
END_TEST

START_TEST(deadline_counts_from_the_first_operation_and_ends_all)
{
	baton_request blocker = scripted_recv(comm, s, 9, NULL);
	struct baton_op_options options = within(100);
	struct baton_plan *plan = usual();
	struct baton_completion done;
	baton_request request;
	char text[200];

	request = launch(plan, &options);
	now += 1000;
	scripted_assert_pending(request);
	end_recv(9, BATON_OK);
	now += 99;
	scripted_assert_pending(request);
	end_send(1, BATON_OK);
	scripted_assert_pending(request);
	now += 1;
	baton_progress(comm);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_TIMEOUT);
	/* The first of the plan that was not OK. */
	ck_assert_int_eq(done.tag, 2);
	ck_assert_int_eq(baton_request_error(request, text, sizeof(text)),
	                 BATON_OK);
	ck_assert_ptr_nonnull(strstr(text, "operation 1 of the plan, recv, "
	                                   "peer 1, tag 2: BATON_ERR_TIMEOUT"));
	assert_log("r9 s1 r2 s3 -r2 -s3 ");
	scripted_assert_ended(request, BATON_ERR_TIMEOUT);
	scripted_assert_ended(blocker, BATON_OK);
	destroy(plan);
	assert_all_free();
}
END_TEST

START_TEST(operations_keep_their_own_deadlines)
{
	struct baton_op_options options = within(50);
	struct baton_plan *plan;
	baton_request request;

	begin();
	note(false, s, 1, &options);
	note(false, s, 2, NULL);
	plan = end_recording();
	request = launch(plan, NULL);
	now += 50;
	baton_progress(comm);
	assert_log("r1 -r1 r2 ");
	scripted_assert_pending(request);
	end_recv(2, BATON_OK);
	scripted_assert_ended(request, BATON_ERR_TIMEOUT);
	destroy(plan);
	assert_all_free();
}
END_TEST

/* The end of the launch does not wait for what is lent, its record does. */
START_TEST(launch_is_lent_while_an_operation_is)
{
	struct baton_plan *plan = usual();
	struct baton_completion done;
	baton_request request = launch(plan, NULL);

	end_send(1, BATON_OK);
	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	/* The receive has its message, and ends as it would have. */
	scripted_assert_pending(request);
	end_recv(2, BATON_OK);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_CANCELED);
	ck_assert_uint_eq(done.flags, BATON_COMPLETION_LENT);
	ck_assert_int_eq(done.tag, 3);
	assert_streams(BATON_OK, BATON_OK);
	end_send(3, BATON_OK);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_CANCELED);
	ck_assert_uint_eq(done.flags, 0);
	scripted_assert_ended(request, BATON_ERR_CANCELED);
	destroy(plan);
	assert_all_free();
}
END_TEST

START_TEST(released_launch_leaves_its_error_to_the_stream)
{
	struct baton_plan *plan = usual();
	baton_request request = launch(plan, NULL);

	destroy(plan);
	ck_assert_int_eq(baton_release(&request), BATON_OK);
	transport.issue = BATON_OK;
	end_send(1, BATON_ERR_PEER);
	transport.issue = BATON_PENDING;
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_ERR_PEER);
	ck_assert(strstr(baton_last_error(), ", operation 0 of the plan, send, "));
	ck_assert_int_eq(baton_stream_synchronize(comm, s), BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, t), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(the_first_of_the_plan_counts_not_the_first_in_time)
{
	struct baton_op_options free_one = detached();
	struct baton_completion done;
	struct baton_plan *plan;
	baton_request request;

	begin();
	note(false, s, 1, &free_one);
	note(false, s, 2, &free_one);
	note(false, s, 3, &free_one);
	plan = end_recording();
	request = launch(plan, NULL);
	end_recv(3, BATON_ERR_PEER);
	end_recv(2, BATON_ERR_TRUNCATED);
	end_recv(1, BATON_OK);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_TRUNCATED);
	ck_assert_int_eq(done.tag, 2);
	scripted_assert_ended(request, BATON_ERR_TRUNCATED);
	destroy(plan);
	assert_all_free();
}
END_TEST

/* The stream of the second operation is gone: all records are taken, and none is used. */
START_TEST(launch_that_is_refused_gives_its_slots_back)
{
	struct baton_plan *plan = usual();
	baton_request request = 77;

	scripted_stream_close(t);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(baton_plan_launch(plan, NULL, &request),
		                 BATON_ERR_INVALID);
	t = NULL;
	ck_assert_uint_eq(request, 77);
	assert_log("");
	destroy(plan);
	assert_all_free();
}
END_TEST

/* It was refused within a group of the plan. */
START_TEST(refused_launch_leaves_its_thread_nothing_open)
{
	struct baton_plan *plan = usual(), *next;
	baton_request a, b;

	scripted_stream_close(t);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, NULL), BATON_ERR_INVALID);
	ck_assert_ptr_null(batoni_thread.scopes);
	ck_assert_int_eq(baton_group_end(comm), BATON_ERR_INVALID);
	transport.issue = BATON_OK;
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	a = scripted_send(comm, s, 5, NULL);
	b = scripted_recv(comm, s, 6, NULL);
	assert_log("");
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	assert_log("s5 r6 ");
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	begin();
	note(true, s, 7, NULL);
	next = end_recording();
	scripted_assert_ended(launch(next, NULL), BATON_OK);
	assert_log("s5 r6 s7 ");
	transport.issue = BATON_PENDING;
	t = NULL;
	destroy(next);
	destroy(plan);
	assert_all_free();
}
END_TEST

/* While this thread drives, what it launches is in the inbox. */
START_TEST(empty_launch_may_be_cancelled_before_it_is_placed)
{
	struct baton_plan *plan;
	baton_request request;

	begin();
	plan = end_recording();
	ck_assert(batoni_trylock());
	request = launch(plan, NULL);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	batoni_unlock();
	scripted_assert_ended(request, BATON_OK);
	destroy(plan);
	assert_all_free();
}
END_TEST

/* A launch tells of its first failure, and of the bytes of all that was moved. */
START_TEST(launch_says_what_was_truncated)
{
	struct baton_plan *plan = NULL;
	struct baton_completion done;
	struct baton_comm *alone;
	char in[4], out[9] = {0}, text[512];
	baton_request request = 0;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &alone), BATON_OK);
	ck_assert_int_eq(baton_plan_begin(alone), BATON_OK);
	ck_assert_int_eq(baton_group_begin(alone), BATON_OK);
	ck_assert_int_eq(baton_recv(in, 4, BATON_UINT8, 0, 3, alone, NULL, NULL,
	                            NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_send(out, 9, BATON_UINT8, 0, 3, alone, NULL, NULL,
	                            NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_group_end(alone), BATON_OK);
	ck_assert_int_eq(baton_plan_end(alone, &plan), BATON_OK);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &request), BATON_OK);
	ck_assert_int_eq(baton_wait(request, -1, &done), BATON_ERR_TRUNCATED);
	ck_assert_uint_eq(done.bytes, 9);
	ck_assert_int_eq(done.tag, 3);
	ck_assert_int_eq(baton_request_error(request, text, sizeof(text)),
	                 BATON_OK);
	ck_assert_ptr_nonnull(strstr(text, "launch of a plan of 2 operations, "
	                                   "operation 0 of the plan, recv, peer 0, "
	                                   "tag 3: "));
	ck_assert_ptr_nonnull(
		strstr(text, "(the message has 9 bytes, the buffer 4)"));
	ck_assert_int_eq(baton_release(&request), BATON_OK);
	destroy(plan);
	ck_assert_int_eq(baton_comm_destroy(alone), BATON_OK);
}
END_TEST

/* ---- the direct way ---- */

/* Records that the engine has put on a host stream. */
static unsigned put;
static struct batoni_device_ops counting;
static const struct batoni_device_ops *uncounted;

static enum baton_status
count_put(struct batoni_device *device, baton_stream stream,
          struct batoni_stream_item *item)
{
	put++;
	return uncounted->enqueue(device, stream, item);
}

static void
begin_counting(void)
{
	put = 0;
	uncounted = comm->device_ops;
	counting = *uncounted;
	counting.enqueue = count_put;
	comm->device_ops = &counting;
}

static unsigned
end_counting(void)
{
	comm->device_ops = uncounted;
	return put;
}

/* s1, r2, s3, all detached. */
static struct baton_plan *
free_plan(void)
{
	struct baton_op_options free_one = detached();

	begin();
	note(true, s, 1, &free_one);
	note(false, s, 2, &free_one);
	note(true, t, 3, &free_one);
	return end_recording();
}

START_TEST(messages_on_idle_streams_are_never_put_on_them)
{
	struct baton_op_options options = within(100);
	struct baton_plan *plan = free_plan();
	struct baton_completion done;
	baton_request request;

	begin_counting();
	request = launch(plan, NULL);
	ck_assert_uint_eq(end_counting(), 0);
	assert_log("s1 r2 s3 ");
	end_send(3, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_pending(request);
	end_recv(2, BATON_OK);
	ck_assert_int_eq(baton_test(request, &done), BATON_OK);
	ck_assert_uint_eq(done.bytes, 24);
	scripted_assert_ended(request, BATON_OK);
	/* A deadline and a cancel end what has not ended. */
	request = launch(plan, &options);
	end_send(1, BATON_OK);
	now += 100;
	baton_progress(comm);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_TIMEOUT);
	ck_assert_int_eq(done.tag, 2);
	scripted_assert_ended(request, BATON_ERR_TIMEOUT);
	request = launch(plan, NULL);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	scripted_assert_ended(request, BATON_ERR_CANCELED);
	destroy(plan);
	assert_all_free();
}
END_TEST

/* What is behind something, in its FIFO or on its stream, goes the usual way. */
START_TEST(messages_behind_others_wait_for_them)
{
	struct baton_plan *plan = free_plan(), *held;
	baton_request blocker = scripted_send(comm, t, 9, NULL);
	baton_request request = launch(plan, NULL);

	assert_log("s9 s1 r2 ");
	end_send(9, BATON_OK);
	assert_log("s9 s1 r2 s3 ");
	scripted_assert_ended(blocker, BATON_OK);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	scripted_assert_ended(request, BATON_ERR_CANCELED);
	destroy(plan);
	begin();
	note(true, s, 1, NULL);
	note(false, s, 2, NULL);
	note(true, t, 2, NULL);
	held = end_recording();
	transport.log[0] = '\0';
	request = launch(held, NULL);
	assert_log("s1 s2 ");
	assert_streams(BATON_PENDING, BATON_PENDING);
	end_send(1, BATON_OK);
	assert_log("s1 s2 r2 ");
	end_send(2, BATON_OK);
	assert_streams(BATON_PENDING, BATON_OK);
	end_recv(2, BATON_OK);
	scripted_assert_ended(request, BATON_OK);
	destroy(held);
	assert_all_free();
}
END_TEST

START_TEST(messages_that_end_at_once_end_the_launch_at_once)
{
	struct baton_plan *plan = free_plan();
	struct baton_completion done;
	baton_request request;

	transport.issue = BATON_OK;
	for (int i = 0; i < 20; i++) {
		request = launch(plan, NULL);
		ck_assert_int_eq(baton_test(request, &done), BATON_OK);
		ck_assert_uint_eq(done.bytes, 24);
		ck_assert_int_eq(baton_release(&request), BATON_OK);
		ck_assert_int_eq(baton_plan_launch(plan, NULL, NULL), BATON_OK);
	}
	/* The second fails, and the others go on. */
	transport.fail_at = 2;
	transport.fail_with = BATON_ERR_PEER;
	request = launch(plan, NULL);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_PEER);
	ck_assert_int_eq(done.tag, 2);
	scripted_assert_ended(request, BATON_ERR_PEER);
	destroy(plan);
	transport.issue = BATON_PENDING;
	assert_all_free();
}
END_TEST

/* 16 records: the fifth launch finds none, and says so. */
START_TEST(messages_without_slots_are_not_begun)
{
	struct baton_plan *plan = free_plan();
	baton_request requests[4], none = 77;

	for (int i = 0; i < 4; i++)
		requests[i] = launch(plan, NULL);
	transport.log[0] = '\0';
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &none),
	                 BATON_ERR_AGAIN);
	ck_assert_uint_eq(none, 77);
	assert_log("");
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	/* Free ones are in the driver's cache too. */
	for (int i = 0; i < 4; i++)
		requests[i] = launch(plan, NULL);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(baton_cancel(requests[i]), BATON_OK);
		scripted_assert_ended(requests[i], BATON_ERR_CANCELED);
	}
	destroy(plan);
	assert_all_free();
}
END_TEST

static void
break_it(struct scripted *scripted, struct batoni_transfer *transfer)
{
	if (transfer->tag == 2)
		scripted->base.upcalls->broken(scripted->base.upcalls, BATON_ERR_MPI,
		                               "call", 5, "broken by the test");
}

START_TEST(a_communicator_that_breaks_amid_a_launch_ends_it)
{
	struct baton_plan *plan = free_plan();
	struct baton_completion done;
	baton_request request;

	transport.on_issue = break_it;
	request = launch(plan, NULL);
	transport.on_issue = NULL;
	baton_progress(comm);
	ck_assert_int_eq(baton_test(request, &done), BATON_ERR_MPI);
	ck_assert_int_eq(baton_release(&request), BATON_OK);
	ck_assert_ptr_null(strstr(transport.log, "s3"));
	destroy(plan);
}
END_TEST

static void *
record_and_exit(void *arg)
{
	begin();
	note(true, s, 1, NULL);
	return arg;
}

START_TEST(recording_that_its_thread_leaves_open_is_no_plan)
{
	pthread_join(thread_of(record_and_exit, NULL), NULL);
	begin();
	destroy(end_recording());
	assert_all_free();
}
END_TEST

/* A group within the recording, and one of another communicator around it; both are void. */
static void *
leave_all_open(void *other)
{
	ck_assert_int_eq(baton_group_begin(other), BATON_OK);
	ck_assert_int_eq(baton_group_begin(other), BATON_OK);
	scripted_send(other, s, 1, NULL);
	begin();
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	note(true, s, 1, NULL);
	ck_assert_int_eq(baton_record(other, s, NULL, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_record(comm, s, NULL, NULL), BATON_ERR_INVALID);
	return NULL;
}

START_TEST(thread_that_exits_leaves_nothing_open)
{
	long blocks = batoni_mem_blocks();
	struct scripted other_transport;
	struct baton_comm *other;

	scripted_init(&other_transport);
	other = scripted_comm(&other_transport, NULL);
	pthread_join(thread_of(leave_all_open, other), NULL);
	ck_assert_str_eq(other_transport.log, "");
	scripted_assert_free(other, 16);
	assert_all_free();
	scripted_close(&other_transport, other);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
}
END_TEST

/* Each end is its own communicator's, in any order. */
START_TEST(recording_and_group_of_two_communicators_may_overlap)
{
	struct baton_plan *plan, *pending = usual();
	baton_request a, b = launch(pending, NULL);
	struct scripted other_transport;
	struct baton_comm *other;

	scripted_init(&other_transport);
	other = scripted_comm(&other_transport, NULL);
	begin();
	ck_assert_int_eq(baton_group_begin(other), BATON_OK);
	note(true, s, 7, NULL);
	a = scripted_send(other, NULL, 8, NULL);
	plan = end_recording();
	ck_assert_int_eq(baton_group_end(comm), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "no group of this "
	                                                 "communicator is open"));
	/* A launch is a member of no group. */
	ck_assert_int_eq(baton_test(b, NULL), BATON_PENDING);
	ck_assert_int_eq(baton_test(a, NULL), BATON_ERR_INVALID);
	other_transport.issue = BATON_OK;
	ck_assert_int_eq(baton_group_end(other), BATON_OK);
	ck_assert_ptr_null(batoni_thread.scopes);
	scripted_assert_ended(a, BATON_OK);
	ck_assert_str_eq(other_transport.log, "s8 ");
	transport.take_back = BATON_ERR_CANCELED;
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	destroy(pending);
	destroy(plan);
	assert_all_free();
	scripted_close(&other_transport, other);
}
END_TEST

/* A recording, and a group, are their communicator's: a launch with another one is neither recorded
 * nor refused, and its own refusal voids nothing of them. */
START_TEST(plan_of_another_communicator_is_launched_at_once)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_op_options apart = detached();
	struct baton_plan *plan = NULL, *recorded;
	struct baton_comm *other = NULL;
	char in[2] = {0}, out[2] = {5, 6};
	baton_request request = 0;

	options.requests_max = 7;
	ck_assert_int_eq(baton_comm_create_local(1, &options, &other), BATON_OK);
	ck_assert_int_eq(baton_plan_begin(other), BATON_OK);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(baton_group_begin(other), BATON_OK);
		ck_assert_int_eq(baton_recv(&in[i], 1, BATON_UINT8, 0, i, other,
		                            NULL, NULL, NULL),
		                 BATON_OK);
		ck_assert_int_eq(baton_send(&out[i], 1, BATON_UINT8, 0, i, other,
		                            NULL, NULL, NULL),
		                 BATON_OK);
		ck_assert_int_eq(baton_group_end(other), BATON_OK);
	}
	ck_assert_int_eq(baton_plan_end(other, &plan), BATON_OK);

	begin();
	note(true, s, 1, NULL);
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	note(true, s, 2, NULL);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &request), BATON_OK);
	scripted_assert_ended(request, BATON_OK);
	ck_assert_mem_eq(in, out, sizeof(in));
	/* All requests but one are taken. */
	ck_assert_int_eq(baton_recv(in, 1, BATON_UINT8, 0, 9, other, NULL, &apart,
	                            &request),
	                 BATON_OK);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, NULL), BATON_ERR_AGAIN);
	note(true, s, 3, NULL);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	recorded = end_recording();
	ck_assert_int_eq(baton_send(out, 1, BATON_UINT8, 0, 9, other, NULL, NULL,
	                            NULL),
	                 BATON_OK);
	scripted_assert_ended(request, BATON_OK);
	assert_log("");
	transport.issue = BATON_OK;
	scripted_assert_ended(launch(recorded, NULL), BATON_OK);
	assert_log("s1 s2 s3 ");
	/* Of the same communicator it is refused, and voids the plan. */
	begin();
	ck_assert_int_eq(baton_plan_launch(recorded, NULL, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_plan_end(comm, &(struct baton_plan *){NULL}),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), "baton_plan_launch was called within "
	                                     "the recording of a plan");
	transport.issue = BATON_PENDING;
	destroy(recorded);
	destroy(plan);
	ck_assert_int_eq(baton_comm_destroy(other), BATON_OK);
	assert_all_free();
}
END_TEST

static void
assert_voids(const struct baton_op_options *options, baton_request *request_p,
             const char *why)
{
	struct baton_plan *plan = NULL;

	begin();
	ck_assert_int_eq(baton_recv(cell, 8, BATON_UINT8, 1, 0, comm, s, options,
	                            request_p),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), why);
	ck_assert_int_eq(baton_recv(cell, 8, BATON_UINT8, 1, 0, comm, s, NULL,
	                            NULL),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_recv: the plan is void, since an earlier call in it "
	                 "was refused (BATON_ERR_INVALID)");
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_ERR_INVALID);
}

/* Each names the call, also where what is refused is found late in it. */
START_TEST(refusals_name_the_call)
{
	struct baton_op_options queued = BATON_OP_OPTIONS_INIT;
	struct baton_comm *other = NULL;
	baton_request request;

	assert_voids(NULL, &request,
	             "baton_recv: request_p is not NULL in a plan; a launch has one "
	             "request (baton_plan_launch)");
	ck_assert_int_eq(baton_queue_create(comm, 1, &queued.queue), BATON_OK);
	assert_voids(&queued, NULL,
	             "baton_recv: options->queue is not NULL in a plan; a launch "
	             "names the queue (baton_plan_launch)");
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_BUSY);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_comm_destroy: the communicator still has 1 queue "
	                 "(baton_queue_destroy)");
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &other), BATON_OK);
	ck_assert_int_eq(baton_record(other, NULL, &queued, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), "baton_record: options->queue is of "
	                                     "another communicator");
	baton_queue_destroy(queued.queue);
	ck_assert_int_eq(baton_comm_destroy(other), BATON_OK);
}
END_TEST

/* The ends of the recording and of a group in it say the first one's sentence. */
START_TEST(void_plan_ends_with_the_first_refusal_and_its_sentence)
{
	struct baton_plan *plan = NULL;

	begin();
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	ck_assert_int_eq(baton_send(cell, 8, BATON_UINT8, 1, -5, comm, s, NULL,
	                            NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_send(cell, 8, BATON_UINT8, 99, 0, comm, s, NULL,
	                            NULL),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "peer is 99"));
	ck_assert_int_eq(baton_group_end(comm), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_send: tag is -5; "));
	ck_assert_int_eq(baton_release(NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_send: tag is -5; "));
	ck_assert_ptr_null(plan);
	/* The next one has its own. */
	begin();
	ck_assert_int_eq(baton_record(comm, s, NULL, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_record was called "));
	assert_all_free();
}
END_TEST

/* Each allocation fails in turn: the plan is void, or there is none, and nothing is left. */
START_TEST(plans_without_memory_leave_nothing)
{
	struct baton_plan *plan = NULL;
	enum baton_status status;
	long blocks = batoni_mem_blocks();
	unsigned long n = 0;

	do {
		plan = NULL;
		batoni_mem_fail_at(++n);
		status = baton_plan_begin(comm);
		for (int i = 0; status == BATON_OK && i < 14; i++)
			status = baton_send(cell, 8, BATON_UINT8, 1, i, comm, s,
			                    NULL, NULL);
		if (status == BATON_OK)
			status = baton_plan_end(comm, &plan);
		else if (n > 1)
			ck_assert_int_eq(baton_plan_end(comm, &plan),
			                 BATON_ERR_NOMEM);
		batoni_mem_fail_at(0);
		if (status != BATON_OK) {
			ck_assert_int_eq(status, BATON_ERR_NOMEM);
			ck_assert_ptr_null(plan);
			ck_assert_int_eq(batoni_mem_blocks(), blocks);
		}
	} while (status != BATON_OK);
	/* The plan and its notes, which grew once at least. */
	ck_assert_uint_ge(n, 3);
	destroy(plan);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	assert_all_free();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		launch_issues_what_its_streams_have_reached,
		operations_that_end_within_the_launch_end_it,
		launch_beside_a_driver_is_one_piece,
		launch_without_slots_takes_none,
		deadline_counts_from_the_first_operation_and_ends_all,
		operations_keep_their_own_deadlines,
		launch_is_lent_while_an_operation_is,
		released_launch_leaves_its_error_to_the_stream,
		the_first_of_the_plan_counts_not_the_first_in_time,
		launch_that_is_refused_gives_its_slots_back,
		refused_launch_leaves_its_thread_nothing_open,
		empty_launch_may_be_cancelled_before_it_is_placed,
		launch_says_what_was_truncated,
		messages_on_idle_streams_are_never_put_on_them,
		messages_behind_others_wait_for_them,
		messages_that_end_at_once_end_the_launch_at_once,
		messages_without_slots_are_not_begun,
		a_communicator_that_breaks_amid_a_launch_ends_it,
		recording_that_its_thread_leaves_open_is_no_plan,
		thread_that_exits_leaves_nothing_open,
		recording_and_group_of_two_communicators_may_overlap,
		plan_of_another_communicator_is_launched_at_once,
		refusals_name_the_call,
		void_plan_ends_with_the_first_refusal_and_its_sentence,
		plans_without_memory_leave_nothing,
	};

	return RUN_TESTS_WITH("plan", tests, world_setup, world_teardown);
}
