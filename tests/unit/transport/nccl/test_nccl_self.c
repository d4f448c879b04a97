/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of a rank to itself over NCCL, whose two ends come in calls of their own. */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "core.h"
#include "kinds.h"
#include "nccl_world.h"
#include "op.h"
#include "run_tests.h"
#include "testing.h"

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};

/* A rank alone. */
static void
create_one(void)
{
	load();
	create_some(1, 0, BATON_PROGRESS_AUTO);
	ck_assert_msg(creators[0].status == BATON_OK, "%s", creators[0].why);
}

static baton_request
one_end(CUstream stream, bool sends, int part, const struct baton_op_options *options)
{
	baton_request request = 0;
	enum baton_status status = move_on(stream, 0, 0, sends, part, BYTES,
	                                   options, &request);

	ck_assert_msg(status == BATON_OK, "%s", baton_last_error());
	return request;
}

START_TEST(ends_meet_in_either_order)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	create_one();
	ck_ok(baton_comm_query(comms[0], &info));
	ck_assert(info.capabilities & BATON_CAP_SELF);
	for (int turn = 0; turn < 4; turn++) {
		const struct baton_op_options *options =
			turn < 2 ? NULL : &detached;
		baton_request first, second;

		fill(0, 0, (unsigned char)(turn + 1));
		fill(0, 1, 99);
		first = one_end(streams[0], turn % 2, !(turn % 2), options);
		if (turn < 2)
			/* Nobody has given its other end. */
			ck_assert(!is_idle(0, streams[0]));
		ck_assert_int_eq(baton_test(first, NULL), BATON_PENDING);
		second = one_end(others[0], !(turn % 2), turn % 2, options);
		finish(first, BATON_OK);
		finish(second, BATON_OK);
		ck_ok(baton_stream_synchronize(comms[0], streams[0]));
		ck_ok(baton_stream_synchronize(comms[0], others[0]));
		ck_assert(is_filled(0, 1, (unsigned char)(turn + 1)));
	}
	destroy_some(1);
}
END_TEST

START_TEST(ends_match_in_the_order_of_the_calls)
{
	baton_request requests[6];

	create_one();
	for (int i = 0; i < 3; i++) {
		fill(0, i, (unsigned char)(i + 1));
		requests[i] = one_end(streams[0], true, i, &detached);
	}
	for (int i = 0; i < 3; i++)
		requests[3 + i] = one_end(i % 2 ? streams[0] : others[0], false,
		                          3 + i, NULL);
	for (int i = 0; i < 6; i++)
		finish(requests[i], BATON_OK);
	for (int i = 0; i < 3; i++)
		ck_assert(is_filled(0, 3 + i, (unsigned char)(i + 1)));
	destroy_some(1);
}
END_TEST

START_TEST(other_lengths_are_refused_and_leave_the_first_end)
{
	baton_request first, second = 0;

	create_one();
	first = one_end(streams[0], true, 0, NULL);
	ck_assert_int_eq(move_on(others[0], 0, 0, false, 1, BYTES / 2, NULL,
	                         &second),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "4096 and 2048 bytes"));
	ck_ok(baton_comm_status(comms[0]));
	second = one_end(others[0], false, 1, NULL);
	finish(first, BATON_OK);
	finish(second, BATON_OK);
	destroy_some(1);
}
END_TEST

/* Two ends in the group, of which one has its other end from before; and a peer. */
START_TEST(a_group_takes_an_end_and_leaves_another)
{
	baton_request requests[6];

	create_all();
	for (int i = 0; i < 4; i++)
		fill(0, i, (unsigned char)(i + 1));
	requests[0] = one_end(others[0], true, 0, NULL);
	ck_ok(baton_group_begin(comms[0]));
	requests[1] = one_end(streams[0], true, 1, NULL);
	requests[2] = one_end(streams[0], false, 4, NULL);
	ck_ok(move_on(streams[0], 0, 1, true, 2, BYTES, NULL, &requests[3]));
	ck_ok(baton_group_end(comms[0]));
	requests[4] = move(1, 0, false, NULL);
	for (int i = 0; i < 5; i++) {
		if (i != 1)
			finish(requests[i], BATON_OK);
	}
	ck_assert(is_filled(0, 4, 1));
	ck_assert_int_eq(baton_test(requests[1], NULL), BATON_PENDING);
	/* The group's streams go on when all of it is complete. */
	ck_assert(!is_idle(0, streams[0]));
	requests[5] = one_end(others[0], false, 5, NULL);
	finish(requests[1], BATON_OK);
	finish(requests[5], BATON_OK);
	ck_assert(is_filled(0, 5, 2));
	ck_ok(baton_stream_synchronize(comms[0], streams[0]));
	destroy_all();
}
END_TEST

/* Three sends and a receive, then three receives and a send. */
START_TEST(groups_leave_several_ends)
{
	baton_request requests[8];

	create_one();
	for (int turn = 0; turn < 2; turn++) {
		ck_ok(baton_group_begin(comms[0]));
		for (int i = 0; i < 4; i++) {
			bool sends = (i < 3) != turn;

			if (sends)
				fill(0, i, (unsigned char)(10 * turn + i + 1));
			requests[4 * turn + i] =
				one_end(turn ? others[0] : streams[0], sends, i + 4 * !sends,
			                NULL);
		}
		ck_ok(baton_group_end(comms[0]));
	}
	for (int i = 0; i < 8; i++)
		finish(requests[i], BATON_OK);
	/* The receives have parts 7, 4, 5 and 6; the sends 0, 1, 2 and 3. */
	ck_assert(is_filled(0, 7, 1));
	ck_assert(is_filled(0, 4, 2));
	ck_assert(is_filled(0, 5, 3));
	ck_assert(is_filled(0, 6, 14));
	destroy_some(1);
}
END_TEST

/* The second receive is on a stream that waits for the first. */
START_TEST(members_of_a_group_take_ends_that_wait_for_each_other)
{
	baton_request requests[4];

	create_one();
	requests[0] = one_end(streams[0], false, 2, NULL);
	requests[1] = one_end(streams[0], false, 3, NULL);
	fill(0, 0, 1);
	fill(0, 1, 2);
	ck_ok(baton_group_begin(comms[0]));
	requests[2] = one_end(others[0], true, 0, NULL);
	requests[3] = one_end(others[0], true, 1, NULL);
	ck_ok(baton_group_end(comms[0]));
	for (int i = 0; i < 4; i++)
		finish(requests[i], BATON_OK);
	ck_assert(is_filled(0, 2, 1));
	ck_assert(is_filled(0, 3, 2));
	destroy_some(1);
}
END_TEST

START_TEST(an_end_waits_for_its_stream_and_not_for_later_ends)
{
	baton_request requests[4];

	create_one();
	requests[0] = one_end(streams[0], true, 0, &detached);
	hold(0, others[0], 0);
	requests[1] = one_end(others[0], true, 1, &detached);
	requests[2] = one_end(streams[0], false, 2, &detached);
	finish(requests[0], BATON_OK);
	finish(requests[2], BATON_OK);
	requests[3] = one_end(streams[0], false, 3, &detached);
	is_idle(0, streams[0]);
	ck_assert_int_eq(baton_test(requests[1], NULL), BATON_PENDING);
	ck_assert_int_eq(baton_test(requests[3], NULL), BATON_PENDING);
	let_go(0);
	finish(requests[1], BATON_OK);
	finish(requests[3], BATON_OK);
	destroy_some(1);
}
END_TEST

START_TEST(an_abort_lets_streams_go_on)
{
	baton_request requests[3];

	create_one();
	requests[0] = one_end(streams[0], true, 0, NULL);
	requests[1] = one_end(others[0], true, 1, NULL);
	/* This one has its other end, but not its stream. */
	hold(0, others[0], 0);
	requests[2] = one_end(others[0], false, 2, NULL);
	ck_ok(baton_comm_abort(comms[0]));
	for (int i = 0; i < 3; i++)
		finish(requests[i], BATON_ERR_ABORTED);
	ck_assert(is_idle(0, streams[0]));
	let_go(0);
	ck_ok(baton_comm_destroy(comms[0]));
	ck_assert(is_idle(0, others[0]));
	await_no_comms();
	ck_assert_int_eq(cuda->sim_violations(), 0);
}
END_TEST

START_TEST(a_deadline_ends_an_end_without_its_other)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = SECOND / 50};

	create_one();
	finish(one_end(streams[0], false, 0, &soon), BATON_ERR_TIMEOUT);
	ck_assert_int_eq(baton_comm_status(comms[0]), BATON_ERR_TIMEOUT);
	ck_assert(is_idle(0, streams[0]));
	ck_ok(baton_comm_destroy(comms[0]));
}
END_TEST

START_TEST(as_many_ends_as_there_is_room_for_are_kept)
{
	enum { MOST = 128 };
	baton_request requests[MOST], more = 0;

	create_one();
	for (int i = 0; i < MOST; i++)
		requests[i] = one_end(streams[0], true, 0, &detached);
	ck_assert_int_eq(move_on(streams[0], 0, 0, true, 0, BYTES, &detached,
	                         &more),
	                 BATON_ERR_AGAIN);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "128 messages"));
	for (int i = 0; i < MOST; i++) {
		finish(one_end(streams[0], false, 1, &detached), BATON_OK);
		finish(requests[i], BATON_OK);
	}
	/* There is room again. */
	requests[0] = one_end(streams[0], true, 0, &detached);
	requests[1] = one_end(streams[0], false, 1, &detached);
	finish(requests[0], BATON_OK);
	finish(requests[1], BATON_OK);
	destroy_some(1);
}
END_TEST

/* Of so many sends to itself; nothing of it is enqueued. */
static void
refuse_group(int members, enum baton_status expected)
{
	baton_request request = 0;

	ck_ok(baton_group_begin(comms[0]));
	for (int i = 0; i < members; i++)
		ck_ok(move_on(streams[0], 0, 0, true, 0, BYTES, &detached,
		              &request));
	ck_assert_int_eq(baton_group_end(comms[0]), expected);
	ck_ok(baton_comm_status(comms[0]));
}

/* There is room for the first ones of its ends. */
START_TEST(a_group_for_which_the_stream_has_no_room_is_refused_whole)
{
	enum { MOST = 128, MEMBERS = 8 };
	baton_request requests[MOST];
	int n = 0;

	setenv("CUDA_SCALE_LAUNCH_QUEUES", "0.25x", 1);
	create_one();
	while (n < MOST && move_on(streams[0], 0, 0, true, 0, BYTES, &detached,
	                           &requests[n]) == BATON_OK)
		n++;
	ck_assert_int_lt(n, MOST);
	/* Of the first one the stream has passed all. */
	finish(one_end(streams[0], false, 1, &detached), BATON_OK);
	finish(requests[0], BATON_OK);
	refuse_group(MEMBERS, BATON_ERR_AGAIN);
	for (int i = 1; i < n; i++) {
		finish(one_end(streams[0], false, 1, &detached), BATON_OK);
		finish(requests[i], BATON_OK);
	}
	/* More than it ever has. */
	refuse_group(MOST, BATON_ERR_UNSUPPORTED);
	destroy_some(1);
}
END_TEST

/* As a put does whose message MPI does not take. */
static enum baton_status
fail_in_mpi(void *context, const struct batoni_op *op, unsigned state)
{
	struct batoni_op *failed = (struct batoni_op *)(uintptr_t)op;

	(void)context;
	if (state != BATONI_ISSUED || op->kind != BATONI_KIND_SIGNAL)
		return BATON_OK;
	failed->transfer.native_call = "MPI_Isend";
	failed->transfer.native_code = 5; /* ncclInvalidUsage */
	return BATON_ERR_MPI;
}

/* What carries signals and puts is not NCCL. */
START_TEST(a_signal_that_fails_lower_is_not_explained_by_nccl)
{
	static const struct batoni_observer observer = {.moved = fail_in_mpi};
	baton_request request = 0;
	char text[512];

	batoni_observer_set(&observer);
	create_one();
	ck_ok(baton_signal(0, 0, 0, 0, comms[0], streams[0], &detached, &request));
	ck_assert_int_eq(baton_wait(request, -1, NULL), BATON_ERR_MPI);
	ck_ok(baton_request_error(request, text, sizeof(text)));
	ck_assert_msg(strstr(text, "(MPI_Isend returned 5: )") != NULL, "%s",
	              text);
	ck_ok(baton_release(&request));
	destroy_some(1);
	batoni_observer_set(NULL);
}
END_TEST

/* The first end's stream goes on when the kernel that has both ends has left: here one that fails, which
 * breaks the communicator, and leaves late. */
START_TEST(an_end_that_was_kept_ends_when_its_kernel_has_left)
{
	enum baton_status sent;
	baton_request first;
	uint64_t begun;
	bool left;

	create_one();
	first = one_end(streams[0], false, 1, NULL);
	ck_assert(nccl->sim_set("linger", 100000));
	ck_assert(nccl->sim_fail("kernel", 1, BATONI_NCCL_SYSTEM_ERROR));
	/* On a slow machine the call itself finds the failure. */
	sent = move_on(others[0], 0, 0, true, 0, BYTES, NULL, NULL);
	ck_assert(sent == BATON_OK || sent == BATON_ERR_NCCL);
	while (baton_comm_status(comms[0]) == BATON_OK)
		baton_test(first, NULL);
	begun = batoni_real_ns();
	ck_assert_int_eq(baton_wait(first, 20 * SECOND, NULL), BATON_ERR_NCCL);
	left = nccl->sim_live("running") == 0;
	/* Nor may the abort have had the time to wait for it. */
	ck_assert(left || sent != BATON_OK ||
	          batoni_real_ns() - begun > SECOND / 5);
	ck_ok(baton_release(&first));
	ck_ok(baton_comm_destroy(comms[0]));
	await_no_comms();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_signal_that_fails_lower_is_not_explained_by_nccl,
		ends_meet_in_either_order,
		ends_match_in_the_order_of_the_calls,
		other_lengths_are_refused_and_leave_the_first_end,
		a_group_takes_an_end_and_leaves_another,
		groups_leave_several_ends,
		members_of_a_group_take_ends_that_wait_for_each_other,
		an_end_waits_for_its_stream_and_not_for_later_ends,
		an_abort_lets_streams_go_on,
		an_end_that_was_kept_ends_when_its_kernel_has_left,
		a_deadline_ends_an_end_without_its_other,
		as_many_ends_as_there_is_room_for_are_kept,
		a_group_for_which_the_stream_has_no_room_is_refused_whole,
	};

	return RUN_TESTS("nccl_self", tests);
}
