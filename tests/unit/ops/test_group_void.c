/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups in which a call was refused. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "fake_device.h"
#include "fake_path.h"
#include "log.h"
#include "mem.h"
#include "run_tests.h"
#include "scripted_world.h"

static void
begin(void)
{
	ck_assert_int_eq(baton_group_begin(comm), BATON_OK);
}

static void
end_voided(enum baton_status status)
{
	ck_assert_int_eq(baton_group_end(comm), status);
}

static void
assert_stale(baton_request request)
{
	ck_assert_uint_ne(request, BATON_REQUEST_NULL);
	ck_assert_int_eq(baton_test(request, NULL), BATON_ERR_STALE);
}

START_TEST(group_that_fills_the_pool_is_void)
{
	baton_request requests[15], none = BATON_REQUEST_NULL;

	begin();
	for (int i = 0; i < 15; i++)
		requests[i] = scripted_send(comm, i % 2 ? s : t, i, NULL);
	/* The group's own record is the 16th. */
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 15, comm, s, NULL,
	                            &none),
	                 BATON_ERR_AGAIN);
	ck_assert_uint_eq(none, BATON_REQUEST_NULL);
	end_voided(BATON_ERR_AGAIN);
	for (int i = 0; i < 15; i++)
		assert_stale(requests[i]);
	assert_log("");
	assert_all_free();
}
END_TEST

START_TEST(the_first_refusal_is_the_group_s)
{
	baton_request a, none = BATON_REQUEST_NULL;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_send(NULL, 8, BATON_INT8, 1, 2, comm, s, NULL,
	                            &none),
	                 BATON_ERR_INVALID);
	/* What follows is refused for the same reason, and says so. */
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 3, comm, s, NULL,
	                            &none),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "void"));
	begin();
	end_voided(BATON_OK);
	end_voided(BATON_ERR_INVALID);
	/* And its sentence is. */
	ck_assert_str_eq(baton_last_error(),
	                 "baton_send: buffer is NULL with count 8; NULL is allowed "
	                 "with count 0 only");
	assert_stale(a);
	assert_log("");
	assert_all_free();
}
END_TEST

/* Groups of two communicators on one thread, both void; and one whose sentence has no memory. */
START_TEST(each_void_group_has_its_own_sentence)
{
	struct baton_comm *other = NULL;
	char why[200];

	ck_assert_int_eq(baton_comm_create_local(1, NULL, &other), BATON_OK);
	begin();
	ck_assert_int_eq(baton_group_begin(other), BATON_OK);
	ck_assert_int_eq(baton_signal(7, 0, 0, 0, other, NULL, NULL, NULL),
	                 BATON_ERR_INVALID);
	snprintf(why, sizeof(why), "%s", baton_last_error());
	ck_assert_ptr_nonnull(strstr(why, "peer is 7"));
	ck_assert_int_eq(baton_record(comm, s, NULL, NULL), BATON_ERR_INVALID);
	end_voided(BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), "baton_record was called inside a "
	                                     "group, which takes communication "
	                                     "only");
	ck_assert_int_eq(baton_group_end(other), BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), why);
	begin();
	batoni_mem_fail_at(1);
	ck_assert_int_eq(baton_record(comm, s, NULL, NULL), BATON_ERR_INVALID);
	batoni_mem_fail_at(0);
	end_voided(BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_group_end: an earlier call in it was refused "
	                 "(BATON_ERR_INVALID)");
	ck_assert_int_eq(baton_comm_destroy(other), BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(what_waited_behind_a_void_member_goes_on)
{
	struct baton_op_options options = detached();
	baton_request a, behind;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_record(comm, s, NULL, &behind),
	                 BATON_ERR_INVALID);
	end_voided(BATON_ERR_INVALID);
	assert_stale(a);
	behind = scripted_send(comm, t, 1, &options);
	assert_log("s1 ");
	end_send(1, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	assert_all_free();
}
END_TEST

/* Another thread's, which is armed at once. */
static void *
send_behind(void *arg)
{
	*(baton_request *)arg = scripted_send(comm, t, 1, NULL);
	return NULL;
}

START_TEST(armed_one_behind_a_member_goes_on_when_the_group_is_void)
{
	baton_request a, behind, none;
	pthread_t thread;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, send_behind, &behind), 0);
	pthread_join(thread, NULL);
	assert_log("");
	ck_assert_int_eq(baton_record(comm, s, NULL, &none), BATON_ERR_INVALID);
	assert_log("");
	end_voided(BATON_ERR_INVALID);
	assert_log("s1 ");
	assert_stale(a);
	end_send(1, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(detached_and_not_do_not_mix)
{
	struct baton_op_options options = detached();
	baton_request a, none = BATON_REQUEST_NULL;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 2, comm, s, &options,
	                            &none),
	                 BATON_ERR_INVALID);
	end_voided(BATON_ERR_INVALID);
	assert_stale(a);
	assert_all_free();
}
END_TEST

static void
nothing(void *arg)
{
	(void)arg;
}

START_TEST(launch_record_wait_and_synchronize_void_the_group)
{
	baton_request done = scripted_recv(comm, s, 1, NULL), a, none;

	ck_assert_int_eq(baton_cancel(done), BATON_OK);
	for (int i = 0; i < 4; i++) {
		begin();
		a = scripted_send(comm, s, 2, NULL);
		ck_assert_int_eq(
			i == 0   ? baton_stream_launch(comm, s, nothing, NULL)
			: i == 1 ? baton_record(comm, s, NULL, &none)
			: i == 2 ? baton_stream_wait(comm, s, done)
				 : baton_stream_synchronize(comm, s),
			BATON_ERR_INVALID);
		end_voided(BATON_ERR_INVALID);
		assert_stale(a);
	}
	scripted_assert_ended(done, BATON_ERR_CANCELED);
	assert_all_free();
}
END_TEST

START_TEST(members_released_before_a_void_end_leave_nothing)
{
	baton_request a, b, none;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	b = scripted_send(comm, t, 2, NULL);
	ck_assert_int_eq(baton_release(&a), BATON_OK);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	ck_assert_int_eq(baton_record(comm, s, NULL, &none), BATON_ERR_INVALID);
	end_voided(BATON_ERR_INVALID);
	assert_stale(b);
	assert_log("");
	assert_all_free();
}
END_TEST

START_TEST(void_group_gives_its_queue_entries_back)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	baton_request none = BATON_REQUEST_NULL;
	struct baton_queue *queue;

	ck_assert_int_eq(baton_queue_create(comm, 2, &queue), BATON_OK);
	options.queue = queue;
	for (int turn = 0; turn < 3; turn++) {
		begin();
		scripted_send(comm, s, 1, &options);
		scripted_send(comm, t, 2, &options);
		ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 3, comm, s,
		                            &options, &none),
		                 BATON_ERR_AGAIN);
		end_voided(BATON_ERR_AGAIN);
	}
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 0);
	baton_queue_destroy(queue);
	assert_all_free();
}
END_TEST

struct join {
	struct baton_comm *comm;
	baton_request request;
};

/* A stream of another thread waits for it. */
static void *
join_on_t(void *arg)
{
	struct join *join = arg;

	return baton_stream_wait(join->comm, t, join->request) == BATON_OK ? arg
	                                                                   : NULL;
}

static void
join_from_a_thread(baton_request request)
{
	struct join join = {comm, request};
	void *result = NULL;

	pthread_join(thread_of(join_on_t, &join), &result);
	ck_assert_ptr_eq(result, &join);
}

/* The carrier waits for the group's word, not for its own; the other one has none. */
START_TEST(streams_that_wait_for_void_members_go_on)
{
	struct baton_op_options options = detached();
	baton_request a, b, none;

	for (int turn = 0; turn < 2; turn++) {
		begin();
		a = scripted_send(comm, s, 1, turn ? &options : NULL);
		b = scripted_send(comm, s, 2, turn ? &options : NULL);
		join_from_a_thread(a);
		join_from_a_thread(b);
		assert_streams(BATON_OK, BATON_PENDING);
		ck_assert_int_eq(baton_record(comm, s, NULL, &none),
		                 BATON_ERR_INVALID);
		end_voided(BATON_ERR_INVALID);
		assert_streams(BATON_OK, BATON_OK);
	}
	assert_all_free();
}
END_TEST

START_TEST(void_group_delivers_no_completion_of_a_cancelled_member)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	baton_request a, none;
	struct baton_queue *queue;

	ck_assert_int_eq(baton_queue_create(comm, 1, &queue), BATON_OK);
	options.queue = queue;
	/* More often than the queue has entries. */
	for (int turn = 0; turn < 3; turn++) {
		begin();
		a = scripted_send(comm, s, 1, &options);
		ck_assert_int_eq(baton_cancel(a), BATON_OK);
		ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 0);
		ck_assert_int_eq(baton_record(comm, s, NULL, &none),
		                 BATON_ERR_INVALID);
		end_voided(BATON_ERR_INVALID);
		ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 0);
		assert_stale(a);
	}
	baton_queue_destroy(queue);
	assert_all_free();
}
END_TEST

START_TEST(member_cancelled_in_an_open_group_is_delivered_at_its_end)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	struct baton_queue *queue;
	baton_request a, b;

	ck_assert_int_eq(baton_queue_create(comm, 2, &queue), BATON_OK);
	options.queue = queue;
	begin();
	a = scripted_send(comm, s, 1, &options);
	b = scripted_send(comm, t, 2, &options);
	ck_assert_int_eq(baton_cancel(a), BATON_OK);
	ck_assert_int_eq(baton_test(a, NULL), BATON_ERR_CANCELED);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 0);
	end_voided(BATON_OK);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_uint_eq(completion.request, a);
	ck_assert_int_eq(completion.status, BATON_ERR_CANCELED);
	end_send(2, BATON_OK);
	ck_assert_uint_eq(baton_queue_poll(queue, &completion, 1), 1);
	ck_assert_uint_eq(completion.request, b);
	baton_queue_destroy(queue);
	assert_all_free();
}
END_TEST

/* ---- the sentence of a group that is refused at its end ---- */

/* What is issued from now on says something of its own on the thread that drives. */
static enum baton_status
say_at_issue(void *context, const struct batoni_op *op, unsigned state)
{
	unsigned *issues = context;

	(void)op;
	if (state == BATONI_ISSUED && ++*issues)
		return batoni_refuse(BATON_OK, "said by what was issued");
	return BATON_OK;
}

static void *
recv_behind(void *arg)
{
	struct baton_op_options options = detached();
	struct baton_comm *on_device = arg;
	baton_request passed;

	if (baton_recv(NULL, 0, BATON_UINT8, 0, 1, on_device, NULL, &options,
	               NULL) != BATON_OK ||
	    baton_record(on_device, NULL, NULL, &passed) != BATON_OK ||
	    baton_finish(&passed, -1, NULL) != BATON_OK)
		return arg;
	return NULL;
}

/* Clearing the group away issues what had waited behind a member. */
static void
refuse_at_the_end(bool with_message)
{
	unsigned issues = 0;
	const struct batoni_observer observer = {.moved = say_at_issue,
	                                         .context = &issues};
	const struct baton_wait_signal_desc desc = {1, 0, 0, 0};
	struct baton_comm_options options = scripted_options();
	struct baton_comm *on_device;
	baton_stream stream;
	pthread_t thread;
	void *failed;

	batoni_observer_set(&observer);
	ck_assert_int_eq(batoni_comm_create_local_with(&batoni_fake_device_ops,
	                                               1, &options, &on_device),
	                 BATON_OK);
	batoni_observer_set(NULL);
	ck_assert_int_eq(fake_path_add(on_device), BATON_OK);
	ck_assert_int_eq(baton_stream_create(on_device, &stream), BATON_OK);
	ck_assert_int_eq(baton_group_begin(on_device), BATON_OK);
	if (with_message)
		ck_assert_int_eq(baton_recv(NULL, 0, BATON_UINT8, 0, 1,
		                            on_device, stream, NULL, NULL),
		                 BATON_OK);
	ck_assert_int_eq(baton_wait_signal(1, &desc, on_device, stream, NULL,
	                                   NULL),
	                 BATON_OK);
	ck_assert_int_eq(pthread_create(&thread, NULL, recv_behind, on_device),
	                 0);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	issues = 0;
	fake_path_fail(FAKE_PATH_REFUSES, 1);
	ck_assert_int_eq(baton_group_end(on_device), BATON_ERR_AGAIN);
	ck_assert_uint_eq(issues, with_message);
	ck_assert_str_eq(baton_last_error(),
	                 "baton_group_end: the fake path refuses it");
	ck_assert_int_eq(baton_comm_abort(on_device), BATON_OK);
	ck_assert_int_eq(baton_stream_destroy(on_device, stream), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(on_device), BATON_OK);
	ck_assert_int_eq(fake_device_violations(), 0);
}

/* ---- what is abandoned ---- */

static void
abandon(enum baton_status status)
{
	ck_assert_int_eq(baton_group_abandon(comm), status);
}

/* Its queue entry is free, what is behind it in its FIFO goes on, and so do its streams. */
START_TEST(abandoned_group_enqueues_nothing)
{
	struct baton_op_options queued = BATON_OP_OPTIONS_INIT;
	baton_request a, b, behind, after;
	struct baton_completion done;

	ck_assert_int_eq(baton_queue_create(comm, 1, &queued.queue), BATON_OK);
	ck_assert_int_eq(baton_release(NULL), BATON_ERR_INVALID);
	begin();
	a = scripted_send(comm, s, 1, &queued);
	b = scripted_recv(comm, t, 2, NULL);
	pthread_join(thread_of(send_behind, &behind), NULL);
	ck_assert_int_eq(baton_cancel(b), BATON_OK);
	abandon(BATON_OK);
	/* It is no refusal. */
	ck_assert_str_eq(baton_last_error(),
	                 "baton_release: request_p is NULL");
	assert_stale(a);
	assert_stale(b);
	ck_assert_uint_eq(baton_queue_poll(queued.queue, &done, 1), 0);
	assert_log("s1 ");
	after = scripted_send(comm, s, 3, &queued);
	assert_log("s1 s3 ");
	end_send(1, BATON_OK);
	end_send(3, BATON_OK);
	scripted_assert_ended(behind, BATON_OK);
	ck_assert_uint_eq(baton_queue_poll(queued.queue, &done, 1), 1);
	ck_assert_uint_eq(done.request, after);
	ck_assert_int_eq(baton_release(&a), BATON_ERR_STALE);
	baton_queue_destroy(queued.queue);
	abandon(BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "no group of this"));
	ck_assert_int_eq(baton_group_abandon(NULL), BATON_ERR_INVALID);
	assert_all_free();
}
END_TEST

START_TEST(what_is_around_an_abandoned_group_is_void)
{
	struct baton_plan *plan = NULL;
	baton_request a, none = BATON_REQUEST_NULL;

	begin();
	a = scripted_send(comm, s, 1, NULL);
	begin();
	begin();
	abandon(BATON_OK);
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 2, comm, s, NULL,
	                            &none),
	                 BATON_ERR_CANCELED);
	end_voided(BATON_OK);
	end_voided(BATON_ERR_CANCELED);
	ck_assert_str_eq(baton_last_error(),
	                 "a group within it was abandoned (baton_group_abandon)");
	assert_stale(a);
	/* All of them may be abandoned, also after a refusal. */
	begin();
	begin();
	ck_assert_int_eq(baton_record(comm, s, NULL, NULL), BATON_ERR_INVALID);
	abandon(BATON_OK);
	abandon(BATON_OK);
	abandon(BATON_ERR_INVALID);
	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	abandon(BATON_ERR_INVALID);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	begin();
	ck_assert_int_eq(baton_send(NULL, 0, BATON_INT8, 1, 2, comm, s, NULL,
	                            NULL),
	                 BATON_OK);
	abandon(BATON_OK);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_ERR_CANCELED);
	ck_assert_ptr_null(plan);
	/* The next ones are whole. */
	begin();
	a = scripted_send(comm, s, 3, NULL);
	end_voided(BATON_OK);
	assert_log("s3 ");
	end_send(3, BATON_OK);
	scripted_assert_ended(a, BATON_OK);
	assert_all_free();
}
END_TEST

START_TEST(group_refused_at_its_end_returns_its_own_sentence)
{
	refuse_at_the_end(true);
	refuse_at_the_end(false);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		group_that_fills_the_pool_is_void,
		the_first_refusal_is_the_group_s,
		each_void_group_has_its_own_sentence,
		what_waited_behind_a_void_member_goes_on,
		armed_one_behind_a_member_goes_on_when_the_group_is_void,
		detached_and_not_do_not_mix,
		launch_record_wait_and_synchronize_void_the_group,
		members_released_before_a_void_end_leave_nothing,
		void_group_gives_its_queue_entries_back,
		streams_that_wait_for_void_members_go_on,
		void_group_delivers_no_completion_of_a_cancelled_member,
		member_cancelled_in_an_open_group_is_delivered_at_its_end,
		group_refused_at_its_end_returns_its_own_sentence,
		abandoned_group_enqueues_nothing,
		what_is_around_an_abandoned_group_is_void,
	};

	return RUN_TESTS_WITH("group_void", tests, world_setup, world_teardown);
}
