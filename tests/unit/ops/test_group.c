/* SPDX-License-Identifier: BSD-3-Clause */
#include "run_tests.h"
#include "scripted_world.h"

static void
begin(void)
{
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
}

static void
end_with(enum baton_status status)
{
	ck_assert_int_eq(baton_group_end(comm), status);
}

/* ---- arming and going on ---- */

START_TEST(members_are_issued_at_the_end_all_at_once)
{
	baton_request a, b, c, after;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_recv(comm, s, 2, NULL);
	c = scripted_send(comm, s, 3, NULL);
	assert_log("");
	end_with(BATON_OK);
	assert_log("s1 r2 s3 ");
	after = scripted_send(comm, s, 4, NULL);
	/* The stream goes on when all are complete. */
	end_send(3, BATON_OK);
	end_send(1, BATON_OK);
	assert_log("s1 r2 s3 ");
	end_recv(2, BATON_OK);
	assert_log("s1 r2 s3 s4 ");
	end_send(4, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_ended(c, BATON_OK);
	scripted_assert_ended(after, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(members_that_end_within_issue_end_the_group)
{
	baton_request a, b;

	transport.issue = BATON_OK;
	begin();
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(comm, t, 2, NULL);
	end_with(BATON_OK);
	transport.issue = BATON_PENDING;
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(group_over_two_streams_waits_for_both)
{
	baton_request blocker = scripted_recv(comm, t, 9, NULL);
	baton_request a, b, on_s, on_t;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(comm, t, 2, NULL);
	end_with(BATON_OK);
	on_s = scripted_send(comm, s, 3, NULL);
	on_t = scripted_send(comm, t, 4, NULL);
	assert_log("r9 ");
	assert_streams(BATON_PENDING, BATON_PENDING);
	end_recv(9, BATON_OK);
	assert_log("r9 s1 s2 ");
	end_send(1, BATON_OK);
	/* s has its own member done, and waits for the group. */
	assert_log("r9 s1 s2 ");
	end_send(2, BATON_OK);
	assert_log("r9 s1 s2 s3 s4 ");
	end_send(3, BATON_OK);
	end_send(4, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_ended(on_s, BATON_OK);
	scripted_assert_ended(on_t, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(detached_group_lets_its_streams_go_on_when_it_is_armed)
{
	struct baton_op_options options = detached();
	baton_request blocker = scripted_recv(comm, t, 9, NULL);
	baton_request a, b, after;

	begin();
	a = scripted_send(comm, s, 1, &options);
	b = scripted_send(comm, t, 2, &options);
	end_with(BATON_OK);
	after = scripted_send(comm, s, 3, NULL);
	assert_log("r9 ");
	end_recv(9, BATON_OK);
	/* s goes on before either member has ended. */
	assert_log("r9 s1 s2 s3 ");
	assert_streams(BATON_PENDING, BATON_OK);
	end_send(3, BATON_OK);
	end_send(2, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_ended(after, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(members_take_their_fifo_places_at_their_calls)
{
	struct baton_op_options options = detached();
	baton_request member, outside, other;

	begin();
	member = scripted_send(comm, s, 1, NULL);
	end_with(BATON_OK);
	begin();
	other = scripted_send(comm, s, 1, NULL);
	end_with(BATON_OK);
	outside = scripted_send(comm, t, 1, &options);
	/* The second group is not armed: what is behind it waits. */
	assert_log("s1 ");
	end_send(1, BATON_OK);
	assert_log("s1 s1 s1 ");
	end_send(1, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_ended(member, BATON_OK);
	scripted_assert_ended(other, BATON_OK);
	scripted_assert_ended(outside, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(each_member_waits_for_its_own_fifo_only)
{
	baton_request blocker = scripted_recv(comm, s, 9, NULL);
	baton_request head = scripted_send(comm, s, 1, NULL), a, b;

	begin();
	a = scripted_send(comm, t, 1, NULL); /* behind head */
	b = scripted_send(comm, t, 2, NULL);
	end_with(BATON_OK);
	assert_log("r9 s2 ");
	end_recv(9, BATON_OK);
	assert_log("r9 s2 s1 s1 ");
	end_send(2, BATON_OK);
	end_send(1, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(head, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(groups_nest_and_the_outermost_end_enqueues)
{
	baton_request a, b;

	begin();
	begin();
	a = scripted_send(comm, s, 1, NULL);
	end_with(BATON_OK);
	assert_log("");
	b = scripted_send(comm, s, 2, NULL);
	end_with(BATON_OK);
	assert_log("s1 s2 ");
	end_with(BATON_ERR_INVALID);
	end_send(1, BATON_OK);
	end_send(2, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(groups_of_two_communicators_may_overlap)
{
	struct scripted other_transport;
	struct baton_comm *other;
	baton_request a, b;

	scripted_init(&other_transport);
	other = scripted_comm(&other_transport, NULL);
	begin();
	ck_assert_int_eq(baton_group_begin(other), BATON_OK);
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(other, s, 2, NULL);
	end_with(BATON_OK);
	assert_log("s1 ");
	ck_assert_str_eq(other_transport.log, "");
	ck_assert_int_eq(baton_group_end(other), BATON_OK);
	/* Its place on the stream is that of its end. */
	ck_assert_str_eq(other_transport.log, "");
	end_send(1, BATON_OK);
	ck_assert_str_eq(other_transport.log, "s2 ");
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	assert_all_free();
	scripted_assert_free(other, 16);
	scripted_close(&other_transport, other);
}
END_TEST

START_TEST(empty_group_is_nothing)
{
	begin();
	end_with(BATON_OK);
	begin();
	begin();
	end_with(BATON_OK);
	end_with(BATON_OK);
	end_with(BATON_ERR_INVALID);
	assert_all_free();
}
END_TEST

/* ---- cancel, time, abort ---- */

START_TEST(member_may_be_cancelled_before_the_group_ends)
{
	baton_request a, b;

	begin();
	a = scripted_send(comm, s, 1, NULL); /* the carrier of s */
	b = scripted_send(comm, s, 2, NULL);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	end_with(BATON_OK);
	assert_log("s2 ");
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	assert_streams(BATON_PENDING, BATON_OK);
	end_send(2, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(group_whose_members_are_all_cancelled_before_its_end_passes)
{
	baton_request blocker = scripted_recv(comm, s, 9, NULL), a, b;

	for (int turn = 0; turn < 2; turn++) {
		struct baton_op_options options = detached();

		begin();
		a = scripted_send(comm, s, 1, turn ? &options : NULL);
		b = scripted_send(comm, t, 2, turn ? &options : NULL);
		ck_assert_int_eq(baton_cancel(a), BATON_OK);
		ck_assert_int_eq(baton_cancel(b), BATON_OK);
		end_with(BATON_OK);
		scripted_assert_ended(a, BATON_ERR_CANCELED);
		scripted_assert_ended(b, BATON_ERR_CANCELED);
		ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	}
	end_recv(9, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(member_may_be_cancelled_before_it_is_armed)
{
	baton_request blocker = scripted_recv(comm, t, 9, NULL), a, b, c;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(comm, t, 2, NULL);
	c = scripted_send(comm, t, 3, NULL);
	end_with(BATON_OK);
	/* One carrier that has been reached, one plain member. */
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_cancel(c), BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_ended(c, BATON_ERR_CANCELED);
	/* The group is still to come: s waits. */
	assert_streams(BATON_PENDING, BATON_PENDING);
	end_recv(9, BATON_OK);
	assert_log("r9 s2 ");
	end_send(2, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(group_that_is_cancelled_before_it_is_armed_frees_its_streams)
{
	for (int turn = 0; turn < 2; turn++) {
		struct baton_op_options options = detached();
		baton_request blocker = scripted_recv(comm, t, 9, NULL), a, b, c;

		begin();
		a = scripted_send(comm, s, 1, turn ? &options : NULL);
		b = scripted_send(comm, t, 2, turn ? &options : NULL);
		c = scripted_send(comm, t, 3, turn ? &options : NULL);
		end_with(BATON_OK);
		ck_assert_int_eq(baton_cancel(c), BATON_OK);
		ck_assert_int_eq(baton_cancel(b), BATON_OK);
		assert_streams(BATON_PENDING, BATON_PENDING);
		ck_assert_int_eq(baton_cancel(a), BATON_OK);
		/* The carrier on t has its turn later. */
		assert_streams(BATON_OK, BATON_PENDING);
		end_recv(9, BATON_OK);
		scripted_assert_ended(blocker, BATON_OK);
		scripted_assert_ended(a, BATON_ERR_CANCELED);
		scripted_assert_ended(b, BATON_ERR_CANCELED);
		scripted_assert_ended(c, BATON_ERR_CANCELED);
		assert_all_free();
	}
}
END_TEST

START_TEST(lent_member_lets_the_group_end)
{
	struct baton_completion completion;
	baton_request a, b;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(comm, t, 2, NULL);
	end_with(BATON_OK);
	end_send(2, BATON_OK);
	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	assert_streams(BATON_OK, BATON_OK);
	ck_assert_int_eq(baton_test(a, &completion), BATON_ERR_CANCELED);
	ck_assert_uint_eq(completion.flags, BATON_COMPLETION_LENT);
	end_send(1, BATON_OK);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	scripted_assert_ended(b, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(deadlines_of_members_count_from_the_group_s_arming)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request blocker = scripted_recv(comm, t, 9, NULL), a, b;

	options.timeout_ns = 10;
	begin();
	a = scripted_send(comm, s, 1, &options);
	b = scripted_send(comm, t, 2, NULL);
	end_with(BATON_OK);
	now += 100;
	scripted_assert_pending(a);
	end_recv(9, BATON_OK);
	now += 9;
	scripted_assert_pending(a);
	now += 1;
	baton_progress(comm);
	scripted_assert_ended(a, BATON_ERR_TIMEOUT);
	assert_streams(BATON_PENDING, BATON_PENDING);
	end_send(2, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	assert_all_free();
}
END_TEST

static void
assert_stale(baton_request request)
{
	ck_assert_uint_ne(request, BATON_REQUEST_NULL);
	ck_assert_int_eq(baton_test(request, NULL), BATON_ERR_STALE);
}

START_TEST(abort_ends_groups_of_any_age)
{
	baton_request blocker = scripted_recv(comm, t, 9, NULL);
	baton_request issued, unarmed[2], open, after;

	begin();
	issued = scripted_send(comm, s, 1, NULL);
	end_with(BATON_OK);
	begin();
	unarmed[0] = scripted_send(comm, s, 2, NULL);
	unarmed[1] = scripted_send(comm, t, 3, NULL);
	end_with(BATON_OK);
	begin();
	open = scripted_send(comm, s, 4, NULL);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 5, comm, s, NULL,
	                            &after),
	                 BATON_ERR_ABORTED);
	end_with(BATON_ERR_ABORTED);
	assert_stale(open);
	scripted_assert_ended(blocker, BATON_ERR_ABORTED);
	scripted_assert_ended(issued, BATON_ERR_ABORTED);
	scripted_assert_ended(unarmed[0], BATON_ERR_ABORTED);
	scripted_assert_ended(unarmed[1], BATON_ERR_ABORTED);
	assert_streams(BATON_OK, BATON_OK);
}
END_TEST

START_TEST(group_that_ends_after_an_abort_frees_its_streams)
{
	baton_request a;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	end_with(BATON_OK);
	scripted_assert_ended(a, BATON_ERR_ABORTED);
	assert_streams(BATON_OK, BATON_OK);
}
END_TEST

/* ---- waiting ---- */

START_TEST(waiting_for_a_member_of_an_open_group_is_refused)
{
	baton_request a;
	size_t index = 0, done = 0;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_test(a, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_finish(&a, -1, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_wait_all(&a, 1, -1), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_wait_any(&a, 1, -1, &index, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_test_some(&a, 1, &index, 1, &done),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_ERR_INVALID);
	/* Asking voids nothing. */
	end_with(BATON_OK);
	end_send(1, BATON_OK);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	assert_all_free();
}
END_TEST

/* A new group's record may be that of an old one. */
START_TEST(members_of_an_old_group_may_be_waited_for_in_a_new_one)
{
	struct baton_comm_options few = scripted_options();
	struct scripted small_transport;
	struct baton_comm *small;
	baton_request a, b;

	few.requests_max = 3;
	scripted_init(&small_transport);
	small = scripted_comm(&small_transport, &few);
	small_transport.issue = BATON_OK;
	ck_assert_int_eq(baton_group_begin(small), BATON_OK);
	a = scripted_send(small, s, 1, NULL);
	b = scripted_send(small, s, 2, NULL);
	ck_assert_int_eq(baton_group_end(small), BATON_OK);
	ck_assert_int_eq(baton_group_begin(small), BATON_OK);
	ck_assert_int_eq(baton_wait(a, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_wait_all(&b, 1, -1), BATON_OK);
	ck_assert_int_eq(baton_finish(&b, -1, NULL), BATON_OK);
	ck_assert_int_eq(baton_group_end(small), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_close(&small_transport, small);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		members_are_issued_at_the_end_all_at_once,
		members_that_end_within_issue_end_the_group,
		group_over_two_streams_waits_for_both,
		detached_group_lets_its_streams_go_on_when_it_is_armed,
		members_take_their_fifo_places_at_their_calls,
		each_member_waits_for_its_own_fifo_only,
		groups_nest_and_the_outermost_end_enqueues,
		groups_of_two_communicators_may_overlap,
		empty_group_is_nothing,
		member_may_be_cancelled_before_the_group_ends,
		group_whose_members_are_all_cancelled_before_its_end_passes,
		member_may_be_cancelled_before_it_is_armed,
		group_that_is_cancelled_before_it_is_armed_frees_its_streams,
		lent_member_lets_the_group_end,
		deadlines_of_members_count_from_the_group_s_arming,
		abort_ends_groups_of_any_age,
		group_that_ends_after_an_abort_frees_its_streams,
		waiting_for_a_member_of_an_open_group_is_refused,
		members_of_an_old_group_may_be_waited_for_in_a_new_one,
	};

	return RUN_TESTS_WITH("group", tests, world_setup, world_teardown);
}
