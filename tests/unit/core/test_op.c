/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of an operation: issued, ended, cancelled, lent. */
#include <string.h>

#include "core.h"
#include "kinds.h"
#include "request.h"
#include "run_tests.h"
#include "scripted_world.h"

/* ---- issuing ---- */

START_TEST(operation_on_an_idle_stream_is_issued_at_the_call)
{
	baton_request a = scripted_send(comm, s, 1, NULL);

	assert_log("s1 ");
	scripted_assert_pending(a);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_PENDING);
	end_send(1, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(operation_that_ends_within_issue_leaves_its_stream_idle)
{
	baton_request a;

	transport.issue = BATON_OK;
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	transport.issue = BATON_PENDING;
	assert_all_free();
}
END_TEST

START_TEST(next_of_a_stream_is_issued_when_the_one_before_ends)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_send(comm, s, 2, NULL);
	baton_request c = scripted_send(comm, s, 3, NULL);

	assert_log("r1 ");
	end_recv(1, BATON_OK);
	assert_log("r1 s2 ");
	scripted_assert_ended(a, BATON_OK);
	end_send(2, BATON_OK);
	assert_log("r1 s2 s3 ");
	end_send(3, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_ended(c, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(a_failed_operation_lets_its_stream_go_on)
{
	char text[256];
	uint64_t word;
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_recv(comm, s, 2, NULL);
	baton_request c = scripted_recv(comm, s, 3, NULL);

	transport.fail_at = 1;
	transport.fail_with = BATON_ERR_MPI;
	end_recv(1, BATON_OK);
	assert_log("r1 r2 r3 ");
	scripted_assert_ended(a, BATON_OK);
	ck_assert_int_eq(baton_request_error(b, text, sizeof(text)), BATON_OK);
	ck_assert_ptr_nonnull(strstr(text, "scripted_issue returned 77: "
	                                   "scripted error 77"));
	ck_assert_ptr_nonnull(strstr(text, "BATON_ERR_MPI"));
	/* So it is if it was a put whose message failed. */
	batoni_request_find(b, &word)->kind = BATONI_KIND_PUT;
	ck_assert_int_eq(baton_request_error(b, text, sizeof(text)), BATON_OK);
	ck_assert_ptr_nonnull(strstr(text, "scripted error 77"));
	scripted_assert_ended(b, BATON_ERR_MPI);
	end_recv(3, BATON_OK);
	scripted_assert_ended(c, BATON_OK);
	ck_assert_int_eq(baton_comm_status(comm), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(detached_operation_holds_nothing_up)
{
	struct baton_op_options options = detached();
	baton_request a = scripted_recv(comm, s, 1, &options);
	baton_request b = scripted_recv(comm, s, 2, NULL);
	baton_request c = scripted_recv(comm, s, 3, &options);

	assert_log("r1 r2 ");
	end_recv(2, BATON_OK);
	assert_log("r1 r2 r3 ");
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	scripted_assert_pending(a);
	end_recv(3, BATON_OK);
	end_recv(1, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	scripted_assert_ended(b, BATON_OK);
	scripted_assert_ended(c, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(completion_says_what_arrived)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	baton_request a;

	options.user_data = 4711;
	a = scripted_recv(comm, s, 1, &options);
	scripted_end(&transport, scripted_live(&transport, BATONI_RECV, 1), 100,
	             BATON_ERR_TRUNCATED);
	baton_progress(comm);
	ck_assert_int_eq(baton_test(a, &completion), BATON_ERR_TRUNCATED);
	ck_assert_uint_eq(completion.bytes, 100);
	ck_assert_uint_eq(completion.user_data, 4711);
	ck_assert_int_eq(completion.peer, 1);
	ck_assert_int_eq(completion.tag, 1);
	ck_assert_int_eq(completion.op, BATON_OPERATION_RECV);
	ck_assert_uint_eq(completion.request, a);
	scripted_assert_ended(a, BATON_ERR_TRUNCATED);
}
END_TEST

/* ---- FIFOs across streams ---- */

/* r9 on s, then behind it a send of tag 1: the FIFO's head, not armed. */
static baton_request
block_fifo(baton_request *head_p)
{
	baton_request blocker = scripted_recv(comm, s, 9, NULL);

	*head_p = scripted_send(comm, s, 1, NULL);
	return blocker;
}

START_TEST(armed_one_waits_for_the_head_of_its_fifo_others_do_not)
{
	baton_request head, blocker = block_fifo(&head);
	baton_request behind = scripted_send(comm, t, 1, NULL);
	baton_request last = scripted_send(comm, t, 2, NULL);
	struct baton_op_options options = detached();
	baton_request other_tag, other_direction;

	other_tag = scripted_send(comm, NULL, 3, &options);
	other_direction = scripted_recv(comm, NULL, 1, &options);
	assert_log("r9 s3 r1 ");
	end_recv(9, BATON_OK);
	assert_log("r9 s3 r1 s1 s1 ");
	/* Both are of tag 1; t goes on when its own has ended. */
	end_send(1, BATON_OK);
	end_send(1, BATON_OK);
	assert_log("r9 s3 r1 s1 s1 s2 ");
	end_send(2, BATON_OK);
	end_send(3, BATON_OK);
	end_recv(1, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(head, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	scripted_assert_ended(last, BATON_OK);
	scripted_assert_ended(other_tag, BATON_OK);
	scripted_assert_ended(other_direction, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(fifo_moves_up_when_its_head_is_cancelled)
{
	baton_request head, blocker = block_fifo(&head);
	baton_request behind = scripted_send(comm, t, 1, NULL);

	assert_log("r9 ");
	ck_assert_int_eq(baton_cancel(head), BATON_OK);
	assert_log("r9 s1 ");
	scripted_assert_ended(head, BATON_ERR_CANCELED);
	end_send(1, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	/* The cancelled one is still on s, and lets it pass. */
	end_recv(9, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	assert_log("r9 s1 ");
	assert_all_free();
}
END_TEST

START_TEST(fifo_closes_up_when_one_in_its_middle_is_cancelled)
{
	baton_request head, blocker = block_fifo(&head);
	baton_request middle = scripted_send(comm, t, 1, NULL);
	baton_request last = scripted_send(comm, t, 1, NULL);

	ck_assert_int_eq(baton_cancel(middle), BATON_OK);
	scripted_assert_ended(middle, BATON_ERR_CANCELED);
	scripted_assert_pending(last);
	assert_log("r9 ");
	end_recv(9, BATON_OK);
	assert_log("r9 s1 s1 ");
	end_send(1, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	scripted_assert_ended(head, BATON_OK);
	scripted_assert_ended(last, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(fifo_moves_up_when_its_head_times_out)
{
	struct baton_op_options options = within(10);
	baton_request head, behind, last;

	head = scripted_recv(comm, s, 8, NULL);
	ck_assert_int_eq(baton_cancel(head), BATON_OK);
	scripted_assert_ended(head, BATON_ERR_CANCELED);
	/* Armed on t behind one that is not on s, with a deadline. */
	head = scripted_recv(comm, s, 9, NULL);
	last = scripted_send(comm, s, 1, NULL);
	behind = scripted_send(comm, t, 1, &options);
	now += 10;
	baton_progress(comm);
	scripted_assert_ended(behind, BATON_ERR_TIMEOUT);
	ck_assert_int_eq(baton_stream_query(comm, t), BATON_OK);
	end_recv(9, BATON_OK);
	end_send(1, BATON_OK);
	scripted_assert_ended(head, BATON_OK);
	scripted_assert_ended(last, BATON_OK);
	assert_log("r8 -r8 r9 s1 ");
	assert_all_free();
}
END_TEST

/* ---- cancel ---- */

START_TEST(cancel_of_an_issued_one_takes_it_back)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);
	baton_request b = scripted_recv(comm, s, 2, NULL);

	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	assert_log("r1 -r1 r2 ");
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	scripted_assert_ended(b, BATON_ERR_CANCELED);
	assert_all_free();
}
END_TEST

START_TEST(cancel_that_comes_too_late_ends_as_it_has)
{
	static const enum baton_status ends[] = {
		BATON_OK, BATON_ERR_TRUNCATED, BATON_ERR_MPI};
	struct baton_completion completion;

	for (int i = 0; i < 3; i++) {
		baton_request a = scripted_recv(comm, s, 1, NULL);

		transport.take_back = ends[i];
		ck_assert_int_eq(baton_cancel(a), BATON_OK);
		ck_assert_int_eq(baton_test(a, &completion), ends[i]);
		ck_assert_uint_eq(completion.bytes,
		                  ends[i] == BATON_ERR_MPI ? 0 : 8);
		ck_assert_int_eq(baton_cancel(a), BATON_OK);
		scripted_assert_ended(a, ends[i]);
	}
	assert_all_free();
}
END_TEST

START_TEST(cancel_twice_takes_back_once)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_uint_eq(transport.take_backs, 1);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	ck_assert_int_eq(baton_cancel(a), BATON_ERR_STALE);
	assert_all_free();
}
END_TEST

/* Lent it would be lost: nobody could tell that its message is gone. */
START_TEST(cancel_of_a_receive_that_has_its_message_is_too_late)
{
	baton_request a = scripted_recv(comm, s, 1, NULL);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_uint_eq(transport.take_backs, 1);
	scripted_assert_pending(a);
	end_recv(1, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(cancel_of_a_record_is_unsupported)
{
	baton_request blocker = scripted_recv(comm, s, 1, NULL);
	baton_request record;

	ck_assert_int_eq(baton_record(comm, s, NULL, &record), BATON_OK);
	ck_assert_int_eq(baton_cancel(record), BATON_ERR_UNSUPPORTED);
	end_recv(1, BATON_OK);
	scripted_assert_ended(record, BATON_OK);
	scripted_assert_ended(blocker, BATON_OK);
	assert_all_free();
}
END_TEST

/* ---- lent ---- */

/* A send of tag 1 on s that has ended in status, its buffer lent. */
static void
assert_lent(baton_request request, enum baton_status status, bool lent)
{
	struct baton_completion completion;

	ck_assert_int_eq(baton_test(request, &completion), status);
	ck_assert_uint_eq(completion.flags, lent ? BATON_COMPLETION_LENT : 0);
	ck_assert_uint_eq(completion.bytes, 0);
}

START_TEST(lent_operation_frees_its_stream_and_later_its_buffer)
{
	baton_request a = scripted_send(comm, s, 1, NULL);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	assert_lent(a, BATON_ERR_CANCELED, true);
	ck_assert_int_eq(baton_stream_query(comm, s), BATON_OK);
	/* Cancelling again asks nobody. */
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_uint_eq(transport.take_backs, 1);
	scripted_end(&transport, scripted_live(&transport, BATONI_SEND, 1), 8,
	             BATON_OK);
	/* The status stays. */
	assert_lent(a, BATON_ERR_CANCELED, false);
	scripted_assert_ended(a, BATON_ERR_CANCELED);
	assert_all_free();
}
END_TEST

START_TEST(slot_of_a_lent_operation_is_not_used_again)
{
	baton_request a = scripted_send(comm, s, 1, NULL);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_release(&a), BATON_OK);
	transport.take_back = BATON_ERR_CANCELED;
	scripted_assert_free(comm, 15);
	scripted_end(&transport, scripted_live(&transport, BATONI_SEND, 1), 8,
	             BATON_OK);
	baton_progress(comm);
	assert_all_free();
}
END_TEST

START_TEST(timed_out_operation_may_be_lent_too)
{
	struct baton_op_options options = within(5);
	baton_request a = scripted_send(comm, s, 1, &options);

	transport.take_back = BATON_ERR_BUSY;
	now += 5;
	baton_progress(comm);
	assert_lent(a, BATON_ERR_TIMEOUT, true);
	/* It does not expire again. */
	now += 5;
	baton_progress(comm);
	ck_assert_uint_eq(transport.take_backs, 1);
	end_send(1, BATON_OK);
	scripted_assert_ended(a, BATON_ERR_TIMEOUT);
	assert_all_free();
}
END_TEST

START_TEST(destroy_after_an_abort_does_not_wait_for_lent_buffers)
{
	baton_request a = scripted_send(comm, s, 1, NULL);

	transport.take_back = BATON_ERR_BUSY;
	ck_assert_int_eq(baton_comm_abort(comm), BATON_OK);
	assert_lent(a, BATON_ERR_ABORTED, true);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert(transport.closed_aborted);
	ck_assert_int_eq(baton_test(a, NULL), BATON_ERR_STALE);
	scripted_init(&transport);
	comm = scripted_comm(&transport, NULL);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		operation_on_an_idle_stream_is_issued_at_the_call,
		operation_that_ends_within_issue_leaves_its_stream_idle,
		next_of_a_stream_is_issued_when_the_one_before_ends,
		a_failed_operation_lets_its_stream_go_on,
		detached_operation_holds_nothing_up,
		completion_says_what_arrived,
		armed_one_waits_for_the_head_of_its_fifo_others_do_not,
		fifo_moves_up_when_its_head_is_cancelled,
		fifo_closes_up_when_one_in_its_middle_is_cancelled,
		fifo_moves_up_when_its_head_times_out,
		cancel_of_an_issued_one_takes_it_back,
		cancel_that_comes_too_late_ends_as_it_has,
		cancel_twice_takes_back_once,
		cancel_of_a_receive_that_has_its_message_is_too_late,
		cancel_of_a_record_is_unsupported,
		lent_operation_frees_its_stream_and_later_its_buffer,
		slot_of_a_lent_operation_is_not_used_again,
		timed_out_operation_may_be_lent_too,
		destroy_after_an_abort_does_not_wait_for_lent_buffers,
	};

	return RUN_TESTS_WITH("op", tests, world_setup, world_teardown);
}
