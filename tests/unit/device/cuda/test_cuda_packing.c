/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short messages of device memory that are ready together are copied together: the driver's
 * calls are counted.  The test's thread drives, so that it says what one pass finds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_world.h"

enum { MANY = 12, BYTES = 600, AWAY = 1024 };

static baton_request sends[MANY], recvs[MANY];
static int apart = AWAY; /* the buffers of receives */

static void
open_world(long version)
{
	struct baton_comm_options options = cuda_world_options();

	cuda_world_load();
	ck_assert(cw.sim->sim_set("version", version));
	ck_assert(cw.sim->sim_set("pageable", 2));
	options.progress = BATON_PROGRESS_CALLS;
	cuda_world_begin();
	cuda_world_comms(&options);
}

/* Messages on a tag of each, from and into buffers that lie apart.  All are ready when the first
 * pass is made. */
static void
make_ready(int n)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	atomic_store(&cw.words[0], 0);
	for (int i = 0; i < 2; i++)
		cuda_world_hold(cw.streams[i], 0);
	for (int i = 0; i < n; i++) {
		cuda_world_fill(cw.from + i * AWAY, BYTES, (unsigned)i);
		baton_ok(baton_recv(cw.to + i * apart, BYTES, BATON_UINT8, 0, i,
		                    cw.comms[1], cw.streams[1], &detached,
		                    &recvs[i]));
		baton_ok(baton_send(cw.from + i * AWAY, BYTES, BATON_UINT8, 1, i,
		                    cw.comms[0], cw.streams[0], &detached,
		                    &sends[i]));
	}
	cuda_world_let_go(0);
	cw.sim->sim_settle(false);
}

static void
finish(int n)
{
	for (int i = 0; i < n; i++) {
		cuda_world_finish(sends[i], BATON_OK);
		cuda_world_finish(recvs[i], BATON_OK);
		cuda_world_expect(cw.to + i * AWAY, BYTES, (unsigned)i);
	}
}

/* The driver's calls by which copies are started.  ends: what streams write behind copies; the
 * operations are detached, so no stream waits. */
struct calls {
	long together, together_first, single, ends;
};

static struct calls
count(void)
{
	return (struct calls){
		cw.sim->sim_uses("cuMemcpyBatchAsync_v2"),
		cw.sim->sim_uses("cuMemcpyBatchAsync"),
		cw.sim->sim_uses("cuMemcpyAsync"),
		cw.sim->sim_uses("cuStreamBatchMemOp_v2"),
	};
}

/* n messages: out of device memory, and into it. */
static struct calls
pass(int n)
{
	struct calls before = count(), after;

	make_ready(n);
	finish(n);
	after = count();
	return (struct calls){
		after.together - before.together,
		after.together_first - before.together_first,
		after.single - before.single,
		after.ends - before.ends,
	};
}

static void
assert_calls(struct calls calls, long together, long together_first, long single)
{
	printf("%ld + %ld together, %ld single, %ld ends\n", calls.together,
	       calls.together_first, calls.single, calls.ends);
	fflush(stdout);
	ck_assert_int_eq(calls.together, together);
	ck_assert_int_eq(calls.together_first, together_first);
	ck_assert_int_eq(calls.single, single);
}

START_TEST(messages_of_one_pass_are_one_call_in_each_direction)
{
	struct calls calls;

	open_world(13000);
	calls = pass(MANY);
	assert_calls(calls, 2, 0, 0);
	ck_assert_int_eq(calls.ends, 2);
	cuda_world_end();
}
END_TEST

START_TEST(a_driver_of_cuda_12_8_has_the_first_form_of_the_call)
{
	open_world(12080);
	assert_calls(pass(MANY), 0, 2, 0);
	cuda_world_end();
}
END_TEST

/* Each copy is a call, and still one number stands for all. */
START_TEST(an_older_driver_copies_one_by_one)
{
	struct calls calls;

	open_world(12020);
	calls = pass(MANY);
	assert_calls(calls, 0, 0, 2 * MANY);
	ck_assert_int_eq(calls.ends, 2);
	cuda_world_end();
}
END_TEST

START_TEST(a_message_that_is_alone_is_an_ordinary_copy)
{
	open_world(13000);
	assert_calls(pass(1), 0, 0, 2);
	cuda_world_end();
}
END_TEST

/* The copies begin in the pass that finds their messages.  (It may see their ends, too, and start
 * those of the other direction.) */
START_TEST(no_message_waits_for_a_later_pass)
{
	struct calls before;

	open_world(13000);
	before = count();
	make_ready(1);
	baton_progress(cw.comms[0]);
	ck_assert_int_ge(count().single, before.single + 1);
	finish(1);
	before = count();
	make_ready(3);
	baton_progress(cw.comms[0]);
	ck_assert_int_ge(count().together, before.together + 1);
	finish(3);
	cuda_world_end();
}
END_TEST

/* A look at a stream issues what is ready, without a pass. */
START_TEST(what_is_issued_outside_a_pass_begins_there)
{
	struct calls before;

	open_world(13000);
	make_ready(MANY);
	before = count();
	baton_ok(baton_stream_query(cw.comms[0], cw.streams[0]));
	ck_assert_int_eq(count().together, before.together + 1);
	finish(MANY);
	cuda_world_end();
}
END_TEST

START_TEST(members_of_a_group_are_copied_together)
{
	baton_request in[4];
	long before;

	open_world(13000);
	before = cw.sim->sim_uses("cuMemcpyBatchAsync_v2");
	baton_ok(baton_group_begin(cw.comms[0]));
	for (int i = 0; i < 4; i++) {
		cuda_world_fill(cw.from + i * AWAY, BYTES, (unsigned)i);
		sends[i] = cuda_world_send(cw.from + i * AWAY, BYTES, i,
		                           cw.streams[0]);
	}
	baton_ok(baton_group_end(cw.comms[0]));
	for (int i = 0; i < 4; i++)
		in[i] = cuda_world_recv(cw.to + i * AWAY, BYTES, i,
		                        cw.streams[1]);
	for (int i = 0; i < 4; i++) {
		cuda_world_finish(sends[i], BATON_OK);
		cuda_world_finish(in[i], BATON_OK);
		cuda_world_expect(cw.to + i * AWAY, BYTES, (unsigned)i);
	}
	ck_assert_int_ge(cw.sim->sim_uses("cuMemcpyBatchAsync_v2"), before + 1);
	cuda_world_end();
}
END_TEST

/* ---- a driver that refuses the call ---------------------------------------- */

START_TEST(a_driver_that_does_not_support_the_call_is_asked_once)
{
	open_world(13000);
	ck_assert(cw.sim->sim_fail("cuMemcpyBatchAsync_v2", 1,
	                           BATONI_CU_NOT_SUPPORTED, false));
	assert_calls(pass(MANY), 1, 0, 2 * MANY);
	assert_calls(pass(MANY), 0, 0, 2 * MANY);
	cuda_world_end();
}
END_TEST

START_TEST(a_call_that_fails_once_is_made_again)
{
	open_world(13000);
	ck_assert(cw.sim->sim_fail("cuMemcpyBatchAsync_v2", 1,
	                           BATONI_CU_OUT_OF_MEMORY, false));
	assert_calls(pass(MANY), 2, 0, MANY);
	assert_calls(pass(MANY), 2, 0, 0);
	cuda_world_end();
}
END_TEST

START_TEST(a_call_that_fails_each_time_is_given_up)
{
	open_world(13000);
	for (long n = 1; n <= 3; n++)
		ck_assert(cw.sim->sim_fail("cuMemcpyBatchAsync_v2", n,
		                           BATONI_CU_INVALID_VALUE, false));
	assert_calls(pass(MANY), 2, 0, 2 * MANY);
	assert_calls(pass(MANY), 1, 0, 2 * MANY);
	assert_calls(pass(MANY), 0, 0, 2 * MANY);
	cuda_world_end();
}
END_TEST

/* The third of the single copies fails: what was started before it is waited for. */
START_TEST(one_copy_that_fails_breaks_its_rank_and_leaves_nothing)
{
	char why[300];

	open_world(12020);
	make_ready(MANY);
	ck_assert(cw.sim->sim_fail("cuMemcpyAsync", 3,
	                           BATONI_CU_ILLEGAL_ADDRESS, false));
	while (baton_comm_status(cw.comms[0]) == BATON_OK)
		baton_progress(cw.comms[0]);
	for (int i = 0; i < MANY; i++) {
		ck_assert_int_eq(baton_wait(sends[i], LONG_NS, NULL),
		                 BATON_ERR_CUDA);
		baton_ok(baton_request_error(sends[i], why, sizeof(why)));
		ck_assert_ptr_nonnull(strstr(why, "cuMemcpyAsync"));
		baton_ok(baton_release(&sends[i]));
	}
	baton_ok(baton_comm_abort(cw.comms[1]));
	for (int i = 0; i < MANY; i++)
		cuda_world_finish(recvs[i], BATON_ERR_ABORTED);
	cuda_world_end();
}
END_TEST

START_TEST(an_error_of_the_device_ends_all)
{
	open_world(13000);
	make_ready(MANY);
	ck_assert(cw.sim->sim_fail("cuMemcpyBatchAsync_v2", 1, 719, true));
	while (baton_comm_status(cw.comms[0]) == BATON_OK)
		baton_progress(cw.comms[0]);
	for (int i = 0; i < MANY; i++)
		cuda_world_finish(sends[i], BATON_ERR_CUDA);
	for (int i = 0; i < MANY; i++)
		cuda_world_finish(recvs[i], BATON_ERR_CUDA);
	cuda_world_end();
}
END_TEST

/* ---- what goes in one call ------------------------------------------------- */

/* Long messages are copied in pieces, each by itself. */
START_TEST(pieces_of_long_messages_are_single_copies)
{
	baton_request a, b;

	open_world(13000);
	cuda_world_fill(cw.from, 3 * MIB, 3);
	a = cuda_world_send(cw.from, 3 * MIB, 0, cw.streams[0]);
	b = cuda_world_recv(cw.to, 3 * MIB, 0, cw.streams[1]);
	cuda_world_finish(a, BATON_OK);
	cuda_world_finish(b, BATON_OK);
	cuda_world_expect(cw.to, 3 * MIB, 3);
	ck_assert_int_eq(count().together, 0);
	cuda_world_end();
}
END_TEST

/* MPI forbids that, and every MPI bears it. */
START_TEST(of_receives_into_one_buffer_the_last_message_stays)
{
	struct calls before;

	open_world(13000);
	apart = 0;
	before = count();
	make_ready(MANY);
	for (int i = 0; i < MANY; i++) {
		cuda_world_finish(sends[i], BATON_OK);
		cuda_world_finish(recvs[i], BATON_OK);
	}
	cuda_world_expect(cw.to, BYTES, MANY - 1);
	ck_assert_int_eq(count().together, before.together + 1);
	ck_assert_int_eq(count().single, before.single + MANY);
	cuda_world_end();
}
END_TEST

/* The driver would want to be told where it is. */
START_TEST(managed_memory_is_copied_by_itself)
{
	struct calls before;
	CUdeviceptr managed;

	open_world(13000);
	cu_ok(cw.sim->managed_alloc(&managed, 2 * MANY * AWAY, 1));
	cw.from = (unsigned char *)(uintptr_t)managed;
	cw.to = cw.from + MANY * AWAY;
	before = count();
	make_ready(MANY);
	finish(MANY);
	ck_assert_int_eq(count().together, before.together);
	ck_assert_int_eq(count().single, before.single + 2 * MANY);
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		messages_of_one_pass_are_one_call_in_each_direction,
		a_driver_of_cuda_12_8_has_the_first_form_of_the_call,
		an_older_driver_copies_one_by_one,
		a_message_that_is_alone_is_an_ordinary_copy,
		no_message_waits_for_a_later_pass,
		what_is_issued_outside_a_pass_begins_there,
		members_of_a_group_are_copied_together,
		a_driver_that_does_not_support_the_call_is_asked_once,
		a_call_that_fails_once_is_made_again,
		a_call_that_fails_each_time_is_given_up,
		one_copy_that_fails_breaks_its_rank_and_leaves_nothing,
		an_error_of_the_device_ends_all,
		pieces_of_long_messages_are_single_copies,
		of_receives_into_one_buffer_the_last_message_stays,
		managed_memory_is_copied_by_itself,
	};

	return RUN_TESTS("cuda_packing", tests);
}
