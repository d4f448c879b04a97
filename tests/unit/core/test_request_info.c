/* SPDX-License-Identifier: BSD-3-Clause */
/* baton_request_info: what a request is, in each of its states. */
#include <string.h>

#include "run_tests.h"
#include "scripted_world.h"

static struct baton_request_info
info_of(baton_request request)
{
	struct baton_request_info info;

	memset(&info, 0x55, sizeof(info));
	info.size = sizeof(info);
	ck_assert_int_eq(baton_request_info(request, &info), BATON_OK);
	ck_assert_uint_eq(info.size, sizeof(info));
	ck_assert_uint_eq(info.request, request);
	return info;
}

static void
assert_state(baton_request request, enum baton_request_state state)
{
	ck_assert_int_eq(info_of(request).state, state);
}

START_TEST(message_is_told_in_each_state)
{
	struct baton_op_options options = within(5000);
	baton_request first = scripted_send(comm, s, 1, NULL), second, again;
	struct baton_request_info info;

	options.user_data = 77;
	second = scripted_recv(comm, s, 2, &options);
	info = info_of(second);
	ck_assert_int_eq(info.op, BATON_OPERATION_RECV);
	ck_assert_int_eq(info.state, BATON_STATE_QUEUED);
	ck_assert_int_eq(info.peer, 1);
	ck_assert_int_eq(info.tag, 2);
	ck_assert_uint_eq(info.bytes, 8);
	ck_assert_ptr_eq(info.stream, s);
	ck_assert_ptr_nonnull(info.buffer);
	/* Not armed: no deadline runs. */
	ck_assert_uint_eq(info.deadline_ns, 0);
	ck_assert_uint_eq(info.user_data, 77);
	ck_assert_int_eq(info.signal_index, -1);
	ck_assert_int_eq(info.context, -1);
	ck_assert_uint_eq(info.operations, 0);
	ck_assert_int_eq(info.status, BATON_PENDING);
	ck_assert_uint_eq(info.flags, 0);
	assert_state(first, BATON_STATE_ISSUED);
	now += 1000;
	end_send(1, BATON_OK);
	info = info_of(second);
	ck_assert_int_eq(info.state, BATON_STATE_ISSUED);
	ck_assert_uint_eq(info.deadline_ns, now + 5000);
	/* Behind it in its FIFO, on another stream. */
	again = scripted_recv(comm, t, 2, NULL);
	end_recv(2, BATON_ERR_PEER);
	info = info_of(second);
	ck_assert_int_eq(info.state, BATON_STATE_ENDED);
	ck_assert_int_eq(info.status, BATON_ERR_PEER);
	ck_assert_uint_eq(info.deadline_ns, 0);
	ck_assert_uint_eq(info.age_ns, 0);
	end_recv(2, BATON_OK);
	scripted_assert_ended(first, BATON_OK);
	scripted_assert_ended(second, BATON_ERR_PEER);
	scripted_assert_ended(again, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(armed_behind_another_group_member_and_lent)
{
	struct baton_op_options apart = detached();
	baton_request member, behind, lent;
	struct baton_request_info info;

	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
	member = scripted_send(comm, s, 1, NULL);
	info = info_of(member);
	ck_assert_uint_eq(info.flags, BATON_INFO_GROUP);
	ck_assert_int_le(info.state, BATON_STATE_QUEUED);
	ck_assert_int_eq(baton_group_end(comm), BATON_OK);
	behind = scripted_send(comm, t, 2, &apart);
	ck_assert_uint_eq(info_of(behind).flags, BATON_INFO_DETACHED);
	transport.take_back = BATON_ERR_BUSY;
	lent = behind;
	ck_assert_int_eq(baton_cancel(lent), BATON_OK);
	baton_progress(comm);
	info = info_of(lent);
	ck_assert_int_eq(info.state, BATON_STATE_LENT);
	ck_assert_int_eq(info.status, BATON_ERR_CANCELED);
	ck_assert_uint_eq(info.flags, BATON_INFO_DETACHED);
	end_send(2, BATON_OK);
	assert_state(lent, BATON_STATE_ENDED);
	end_send(1, BATON_OK);
	scripted_assert_ended(member, BATON_OK);
	scripted_assert_ended(lent, BATON_ERR_CANCELED);
	assert_all_free();
}
END_TEST

/* A head that is queued: what is armed behind it has not its turn. */
START_TEST(armed_one_has_not_its_turn)
{
	struct baton_op_options apart = detached();
	baton_request blocker = scripted_recv(comm, s, 9, NULL);
	baton_request head = scripted_send(comm, s, 1, NULL);
	baton_request behind = scripted_send(comm, t, 1, &apart);

	assert_state(head, BATON_STATE_QUEUED);
	assert_state(behind, BATON_STATE_ARMED);
	end_recv(9, BATON_OK);
	end_send(1, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(head, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(launch_of_a_plan_counts_its_operations)
{
	struct baton_plan *plan = NULL;
	struct baton_request_info info;
	baton_request launched;

	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	for (int tag = 1; tag <= 3; tag++)
		ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, tag, comm,
		                            tag == 2 ? t : s, NULL, NULL),
		                 BATON_OK);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_OK);
	ck_assert_int_eq(baton_plan_launch(plan, NULL, &launched), BATON_OK);
	end_send(2, BATON_OK);
	info = info_of(launched);
	ck_assert_int_eq(info.op, BATON_OPERATION_PLAN);
	ck_assert_int_eq(info.peer, -1);
	ck_assert_int_eq(info.tag, -1);
	ck_assert_uint_eq(info.operations, 3);
	ck_assert_uint_eq(info.operations_ended, 1);
	ck_assert_ptr_null(info.stream);
	ck_assert_ptr_null(info.buffer);
	end_send(1, BATON_OK);
	end_send(3, BATON_OK);
	scripted_assert_ended(launched, BATON_OK);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(refusals_write_nothing)
{
	baton_request a = scripted_recv(comm, s, 1, NULL), copy = a;
	struct baton_request_info info = {.size = sizeof(info)}, before = info;

	ck_assert_int_eq(baton_request_info(a, NULL), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_request_info(BATON_REQUEST_NULL, &info),
	                 BATON_ERR_INVALID);
	info.size = before.size = 8;
	ck_assert_int_eq(baton_request_info(a, &info), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "info_p->size is 8"));
	end_recv(1, BATON_OK);
	ck_assert_int_eq(baton_finish(&a, -1, NULL), BATON_OK);
	info.size = before.size = sizeof(info);
	ck_assert_int_eq(baton_request_info(copy, &info), BATON_ERR_STALE);
	ck_assert_mem_eq(&info, &before, sizeof(info));
	assert_all_free();
}
END_TEST

/* ---- over the local transport ---- */

START_TEST(one_sided_ones_tell_their_counter)
{
	struct baton_wait_signal_desc descs[2] = {{5, 0, 3, 1}, {1, 0, 2, 0}};
	struct baton_request_info info;
	struct baton_comm *local = NULL;
	baton_request single, several, record, signal;

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &local), BATON_OK);
	ck_assert_int_eq(baton_wait_signal(1, descs, local, s, NULL, &single),
	                 BATON_OK);
	ck_assert_int_eq(baton_wait_signal(2, descs, local, s, NULL, &several),
	                 BATON_OK);
	ck_assert_int_eq(baton_record(local, s, NULL, &record), BATON_OK);
	ck_assert_int_eq(baton_signal(0, 4, 2, 0, local, s, NULL, &signal),
	                 BATON_OK);
	info = info_of(single);
	ck_assert_int_eq(info.op, BATON_OPERATION_WAIT_SIGNAL);
	ck_assert_int_eq(info.peer, 0);
	ck_assert_int_eq(info.tag, -1);
	ck_assert_int_eq(info.signal_index, 3);
	ck_assert_int_eq(info.context, 1);
	ck_assert_ptr_null(info.buffer);
	info = info_of(several);
	ck_assert_int_eq(info.signal_index, -1);
	ck_assert_int_eq(info.context, -1);
	info = info_of(record);
	ck_assert_int_eq(info.op, BATON_OPERATION_RECORD);
	ck_assert_int_eq(info.peer, -1);
	ck_assert_int_eq(info.tag, -1);
	ck_assert_ptr_null(info.buffer);
	info = info_of(signal);
	ck_assert_int_eq(info.op, BATON_OPERATION_SIGNAL);
	ck_assert_int_eq(info.signal_index, 4);
	ck_assert_int_eq(info.context, 2);
	ck_assert_int_eq(info.tag, -1);
	ck_assert_int_eq(baton_comm_abort(local), BATON_OK);
	/* Also when it has ended, and one that ended within its call. */
	info = info_of(single);
	ck_assert_int_eq(info.status, BATON_ERR_ABORTED);
	ck_assert_int_eq(info.signal_index, 3);
	ck_assert_int_eq(baton_comm_destroy(local), BATON_OK);
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &local), BATON_OK);
	ck_assert_int_eq(baton_signal(0, 1, 3, 0, local, s, NULL, NULL),
	                 BATON_OK);
	descs[0] = (struct baton_wait_signal_desc){1, 0, 1, 3};
	ck_assert_int_eq(baton_wait_signal(1, descs, local, s, NULL, &single),
	                 BATON_OK);
	ck_assert_int_eq(baton_wait(single, -1, NULL), BATON_OK);
	info = info_of(single);
	ck_assert_int_eq(info.state, BATON_STATE_ENDED);
	ck_assert_int_eq(info.signal_index, 1);
	ck_assert_int_eq(info.context, 3);
	ck_assert_int_eq(baton_comm_destroy(local), BATON_OK);
}
END_TEST

START_TEST(lists_have_no_buffer)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor tensors[2] = {{NULL, BATON_INT32, 1, {4}},
	                                  {NULL, BATON_INT8, -1, {0}}};
	struct baton_request_info info;
	struct baton_comm *local = NULL;
	baton_request request;
	char arena[1024];

	options.arena = arena;
	options.arena_bytes = sizeof(arena);
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &local), BATON_OK);
	ck_assert_int_eq(baton_recv_tensors(tensors, 2, 0, 6, local, s, &options,
	                                    &request),
	                 BATON_OK);
	info = info_of(request);
	ck_assert_int_eq(info.op, BATON_OPERATION_RECV);
	ck_assert_uint_eq(info.flags, BATON_INFO_TENSORS);
	ck_assert_int_eq(info.tag, 6);
	ck_assert_uint_eq(info.bytes, 0);
	ck_assert_ptr_null(info.buffer);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_ERR_CANCELED);
	ck_assert_int_eq(baton_comm_destroy(local), BATON_OK);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		message_is_told_in_each_state,
		armed_behind_another_group_member_and_lent,
		armed_one_has_not_its_turn,
		launch_of_a_plan_counts_its_operations,
		refusals_write_nothing,
		one_sided_ones_tell_their_counter,
		lists_have_no_buffer,
	};

	return RUN_TESTS_WITH("request_info", tests, world_setup, world_teardown);
}
