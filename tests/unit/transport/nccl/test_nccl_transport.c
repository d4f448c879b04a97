/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport over both simulators, a device for each rank; one thread drives them.
 * What the conformance suite does not reach: how creation fails, what is refused, how errors
 * arrive, and what needs no look of the host.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "nccl_world.h"
#include "run_tests.h"

/* Of a rank, with that to itself. */
enum { LANES = 5 };

/* ---- creation ---- */

/* The others are told at once: what NCCL waits for on them would take until the time is up. */
static void
fail_one(const char *call, long n)
{
	uint64_t begun = batoni_real_ns();

	ck_assert(nccl->sim_fail(call, n, BATONI_NCCL_SYSTEM_ERROR));
	create(40 * SECOND, BATON_PROGRESS_AUTO);
	nccl->sim_fail(call, 0, 0);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_ERR_NCCL &&
		                      strstr(creators[i].why, "nccl"),
		              "%d: %s", creators[i].status, creators[i].why);
	ck_assert_uint_lt(batoni_real_ns() - begun, 20 * (uint64_t)SECOND);
	await_no_comms();
}

START_TEST(a_creation_that_fails_on_one_rank_fails_on_all)
{
	load();
	/* The next creation in NCCL, on whichever rank. */
	fail_one("job", 1);
	fail_one("ncclCommInitRankConfig", 3);
	fail_one("ncclCommGetAsyncError", 20);
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	destroy_all();
}
END_TEST

/* The connections are the last jobs. */
START_TEST(a_connection_that_fails_on_one_rank_fails_on_all)
{
	long jobs;

	load();
	jobs = nccl->sim_uses("job");
	create(0, BATON_PROGRESS_AUTO);
	jobs = nccl->sim_uses("job") - jobs;
	destroy_all();
	fail_one("job", jobs);
	fail_one("job", jobs - 3);
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	destroy_all();
}
END_TEST

START_TEST(a_host_communicator_is_refused)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_HOST;
	options.transport = BATON_TRANSPORT_NCCL;
	ck_assert_int_eq(baton_comm_create_local(1, &options, comms),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "BATON_DEVICE_CUDA"));
}
END_TEST

START_TEST(a_query_names_the_library_and_what_it_cannot)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	create_all();
	ck_ok(baton_comm_query(comms[1], &info));
	ck_assert_int_eq(info.transport, BATON_TRANSPORT_NCCL);
	ck_assert_str_eq(info.transport_name, "nccl");
	ck_assert_ptr_nonnull(strstr(info.library, "NCCL 2."));
	/* Three ranks are two bits. */
	ck_assert_ptr_nonnull(strstr(info.library, "4 lanes"));
	ck_assert_uint_eq(info.capabilities,
	                  BATON_CAP_DIRECTIONS | BATON_CAP_SELF |
	                          BATON_CAP_SIGNALS | BATON_CAP_WINDOWS);
	ck_assert_int_eq(info.nccl_version, 23007);
	ck_assert_int_eq(info.nccl_lanes, 4);
	ck_assert_str_eq(info.why_not_nccl, "");
	destroy_all();
}
END_TEST

/* As on a communicator of the lower transport. */
START_TEST(signals_go_by_streams_alone)
{
	baton_request request;
	uint64_t n = 0;

	load();
	create(0, BATON_PROGRESS_CALLS);
	for (int rank = 0; rank < RANKS; rank++) {
		struct baton_comm_info info = {.size = sizeof(info)};

		ck_ok(creators[rank].status);
		ck_ok(baton_comm_query(comms[rank], &info));
		ck_assert_str_eq(info.why_engine_puts, "");
	}
	ck_ok(baton_signal(1, 0, 0, 0, comms[0], streams[0], NULL, &request));
	/* No rank makes progress. */
	cuda->sim_settle(true);
	ck_ok(baton_signal_count(comms[1], 0, 0, 0, &n));
	ck_assert_uint_eq(n, 1);
	finish(request, BATON_OK);
	destroy_all();
}
END_TEST

START_TEST(a_query_says_why_it_is_not_nccl)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm_options options = nccl_options();

	load();
	options.transport = BATON_TRANSPORT_AUTO;
	ck_ok(baton_comm_create_local(1, &options, comms));
	ck_ok(baton_comm_query(comms[0], &info));
	ck_assert_int_eq(info.nccl_version, 0);
	ck_assert_int_eq(info.nccl_lanes, 0);
	ck_assert_ptr_nonnull(strstr(info.why_not_nccl, "not asked for"));
	ck_ok(baton_comm_destroy(comms[0]));
	options.device = BATON_DEVICE_HOST;
	ck_ok(baton_comm_create_local(1, &options, comms));
	ck_ok(baton_comm_query(comms[0], &info));
	ck_assert_ptr_nonnull(strstr(info.why_not_nccl, "not CUDA"));
	ck_ok(baton_comm_destroy(comms[0]));
}
END_TEST

/* Where a communicator of its own is, whose options leave it all to the environment. */
static void
assert_place(enum baton_device device, enum baton_transport transport)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	load();
	ck_ok(baton_comm_create_local(1, &options, comms));
	ck_ok(baton_comm_query(comms[0], &info));
	ck_assert_int_eq(info.device, device);
	ck_assert_int_eq(info.transport, transport);
	ck_ok(baton_comm_destroy(comms[0]));
}

START_TEST(asking_for_nccl_alone_means_its_device)
{
	unsetenv("BATON_DEVICE");
	setenv("BATON_TRANSPORT", "nccl", 1);
	assert_place(BATON_DEVICE_CUDA, BATON_TRANSPORT_NCCL);
}
END_TEST

START_TEST(asking_for_nccl_and_the_host_stays_on_the_host)
{
	setenv("BATON_DEVICE", "host", 1);
	setenv("BATON_TRANSPORT", "nccl", 1);
	assert_place(BATON_DEVICE_HOST, BATON_TRANSPORT_LOCAL);
}
END_TEST

START_TEST(asking_for_cuda_alone_means_no_nccl)
{
	setenv("BATON_DEVICE", "cuda", 1);
	unsetenv("BATON_TRANSPORT");
	assert_place(BATON_DEVICE_CUDA, BATON_TRANSPORT_LOCAL);
}
END_TEST

/* ---- fewer lanes ---- */

static void
create_lanes(int lanes, int last)
{
	struct baton_comm_options options[RANKS];

	for (int i = 0; i < RANKS; i++) {
		options[i] = nccl_options();
		options[i].nccl_lanes = i + 1 < RANKS ? lanes : last;
	}
	create_with(RANKS, options);
}

START_TEST(fewer_lanes_carry_all_messages)
{
	load();
	for (int lanes = 1; lanes <= 5; lanes++) {
		struct baton_comm_info info = {.size = sizeof(info)};

		create_lanes(lanes, lanes);
		for (int i = 0; i < RANKS; i++)
			ck_assert_msg(creators[i].status == BATON_OK, "%s",
			              creators[i].why);
		ck_ok(baton_comm_query(comms[0], &info));
		ck_assert_int_eq(info.nccl_lanes, lanes < 4 ? lanes : 4);
		ck_assert_int_eq(info.capabilities & BATON_CAP_DIRECTIONS,
		                 lanes < 4 ? 0 : BATON_CAP_DIRECTIONS);
		for (int rank = 0; rank < RANKS; rank++) {
			for (int peer = rank + 1; peer < RANKS; peer++) {
				baton_request there = move(rank, peer, true,
				                           NULL);
				baton_request back;

				finish(move(peer, rank, false, NULL), BATON_OK);
				finish(there, BATON_OK);
				there = move(rank, peer, false, NULL);
				back = move(peer, rank, true, NULL);
				finish(there, BATON_OK);
				finish(back, BATON_OK);
			}
		}
		destroy_all();
	}
}
END_TEST

START_TEST(ranks_with_other_lanes_are_refused)
{
	load();
	create_lanes(1, 2);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(creators[i].status, BATON_ERR_INVALID);
	create_lanes(65, 65);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(creators[i].status, BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(creators[0].why, "nccl_lanes is 65"));
}
END_TEST

/* ---- what is refused ---- */

START_TEST(memory_that_nccl_does_not_reach_is_refused)
{
	static char pageable[BYTES];

	create_all();
	ck_assert_int_eq(baton_send(pageable, BYTES, BATON_UINT8, 1, 0, comms[0],
	                            streams[0], NULL, NULL),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "not pinned"));
	ck_assert_int_eq(baton_send(at(1, 0), BYTES, BATON_UINT8, 1, 0, comms[0],
	                            streams[0], NULL, NULL),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "GPU 1"));
	destroy_all();
}
END_TEST

static void *
sender_main(void *done_p)
{
	baton_request request = move(0, 1, true, NULL);

	atomic_store((atomic_bool *)done_p, true);
	finish(request, BATON_OK);
	return NULL;
}

START_TEST(a_program_may_have_the_lock_of_the_device)
{
	atomic_bool done = false;
	pthread_t sender;
	baton_request request;

	create_all();
	ck_ok(baton_comm_lock_device(comms[0]));
	ck_assert_int_eq(baton_comm_lock_device(comms[0]), BATON_ERR_INVALID);
	/* Another thread waits for it. */
	ck_assert_int_eq(pthread_create(&sender, NULL, sender_main, &done), 0);
	ck_assert(!atomic_load(&done));
	ck_ok(baton_comm_unlock_device(comms[0]));
	ck_assert_int_eq(baton_comm_unlock_device(comms[0]), BATON_ERR_INVALID);
	request = move(1, 0, false, NULL);
	finish(request, BATON_OK);
	pthread_join(sender, NULL);
	destroy_all();
}
END_TEST

/* What a thread was told that asked for the lock. */
struct refusal {
	bool returned;
	enum baton_status status;
	char why[256];
};

/* That the thread is cancelled changes nothing: what waits for the lock is no cancellation
 * point, where the thread would take the lock with it. */
static void *
refused_main(void *argument)
{
	struct refusal *refusal = argument;

	pthread_cancel(pthread_self());
	refusal->status = baton_send(at(0, 0), BYTES, BATON_UINT8, 1, 0,
	                             comms[0], streams[0], NULL, NULL);
	snprintf(refusal->why, sizeof(refusal->why), "%s", baton_last_error());
	refusal->returned = true;
	return NULL;
}

static void *
second_main(void *argument)
{
	struct refusal *refusal = argument;

	pthread_cancel(pthread_self());
	refusal->status = baton_comm_lock_device(comms[0]);
	refusal->returned = true;
	return NULL;
}

/* Nobody gives it back in time. */
START_TEST(no_call_waits_for_ever_for_the_lock_of_the_device)
{
	struct refusal refusals[2] = {{.returned = false}};
	pthread_t sender, second;

	load();
	create(3 * SECOND, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	ck_ok(baton_comm_lock_device(comms[0]));
	pthread_create(&sender, NULL, refused_main, &refusals[0]);
	pthread_create(&second, NULL, second_main, &refusals[1]);
	pthread_join(sender, NULL);
	pthread_join(second, NULL);
	for (int i = 0; i < 2; i++) {
		ck_assert(refusals[i].returned);
		ck_assert_int_eq(refusals[i].status, BATON_ERR_AGAIN);
	}
	ck_assert_ptr_nonnull(strstr(refusals[0].why, "call of NCCL"));
	ck_ok(baton_comm_unlock_device(comms[0]));
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_comm_abort(comms[i]));
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_comm_destroy(comms[i]));
	ck_assert_int_eq(nccl->sim_violations(), 0);
}
END_TEST

/* ---- lanes ---- */

/* The middle of a pipeline: its receive waits, its send goes. */
START_TEST(a_recv_that_waits_holds_up_no_send_of_the_same_way)
{
	const struct baton_op_options detached = {
		.size = sizeof(detached), .flags = BATON_OP_DETACHED};
	baton_request waits, sends, gets;

	create_all();
	waits = move(1, 0, false, &detached);
	sends = move(1, 2, true, &detached);
	gets = move(2, 1, false, NULL);
	finish(sends, BATON_OK);
	finish(gets, BATON_OK);
	ck_assert_int_eq(baton_test(waits, NULL), BATON_PENDING);
	gets = move(0, 1, true, NULL);
	finish(waits, BATON_OK);
	finish(gets, BATON_OK);
	destroy_all();
}
END_TEST

/* Members of a group move at the same time: what is sent is not received into. */
static baton_request
move_part(int rank, int peer, bool sends)
{
	baton_request request = 0;

	ck_ok(move_on(streams[rank], rank, peer, sends, sends, BYTES, NULL,
	              &request));
	return request;
}

/* The members of rank 1's group are on one stream, and end in the order that rank 0's stream
 * gives them, which is neither that of the calls nor that of the lanes. */
START_TEST(members_of_a_group_do_not_wait_for_each_other)
{
	for (int turn = 0; turn < 2; turn++) {
		baton_request requests[4];

		if (turn == 0)
			create_all();
		ck_ok(baton_group_begin(comms[1]));
		requests[0] = move_part(1, 0, turn);
		requests[1] = move_part(1, 0, !turn);
		ck_ok(baton_group_end(comms[1]));
		requests[2] = move_part(0, 1, turn);
		requests[3] = move_part(0, 1, !turn);
		for (int i = 0; i < 4; i++)
			finish(requests[i], BATON_OK);
	}
	destroy_all();
}
END_TEST

/* ---- joins ---- */

/* Nobody calls Baton meanwhile, and no thread of it drives. */
START_TEST(a_join_needs_no_look_of_the_host)
{
	const struct baton_op_options detached = {
		.size = sizeof(detached), .flags = BATON_OP_DETACHED};
	uint64_t limit = batoni_real_ns() + 10 * (uint64_t)SECOND;
	baton_request recv, send;
	CUcontext popped;
	CUresult result;

	load();
	create(0, BATON_PROGRESS_CALLS);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	recv = move(1, 0, false, &detached);
	ck_ok(baton_stream_wait(comms[1], others[1], recv));
	ck_cuda(cuda->context_push(contexts[1]));
	cuda->sim_settle(false);
	ck_assert_uint_eq(cuda->stream_query(others[1]), BATONI_CU_NOT_READY);
	ck_cuda(cuda->context_pop(&popped));
	send = move(0, 1, true, NULL);
	ck_cuda(cuda->context_push(contexts[1]));
	do {
		result = cuda->stream_query(others[1]);
	} while (result == BATONI_CU_NOT_READY && batoni_real_ns() < limit);
	ck_cuda(cuda->context_pop(&popped));
	ck_assert_uint_eq(result, BATONI_CU_SUCCESS);
	finish(recv, BATON_OK);
	finish(send, BATON_OK);
	destroy_all();
}
END_TEST

/* A call that finds the stream full would block, with the lock that the driver's calls need:
 * joins are refused before. */
START_TEST(joins_do_not_fill_a_stream)
{
	enum baton_status status = BATON_OK;
	baton_request requests[2];
	unsigned joins = 0;
	CUcontext popped;

	create_all();
	ck_assert(cuda->sim_set("depth", 1000));
	ck_assert(cuda->sim_set("depth_lock", 1));
	ck_assert(cuda->sim_set("limit_ms", 2000));
	requests[1] = move(1, 0, false, NULL);
	while (joins < 1100 && status == BATON_OK) {
		status = baton_stream_wait(comms[1], others[1], requests[1]);
		joins += status == BATON_OK;
	}
	ck_assert_int_eq(status, BATON_ERR_AGAIN);
	ck_assert_uint_gt(joins, 300);
	requests[0] = move(0, 1, true, NULL);
	for (int i = 0; i < 2; i++)
		finish(requests[i], BATON_OK);
	ck_cuda(cuda->context_push(contexts[1]));
	ck_cuda(cuda->stream_synchronize(others[1]));
	ck_cuda(cuda->context_pop(&popped));
	ck_assert(cuda->sim_set("depth", 0));
	destroy_all();
}
END_TEST

/* Receives on a stream, or in a lane, until AGAIN; then all of them end, and the next is taken. */
static void
fill_with_receives(unsigned flags)
{
	static baton_request recvs[2048];
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	enum baton_status status = BATON_OK;
	int n = 0;

	options.flags = flags;
	while (n < 2048 && status == BATON_OK) {
		status = move_on((baton_stream)streams[1], 1, 0, false, 0, 8,
		                 &options, &recvs[n]);
		n += status == BATON_OK;
	}
	ck_assert_int_eq(status, BATON_ERR_AGAIN);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "as many operations are on the stream"));
	ck_assert_int_gt(n, 100);
	for (int i = 0; i < n; i++) {
		baton_request send;

		ck_ok(move_on((baton_stream)streams[0], 0, 1, true, 1, 8, NULL,
		              &send));
		finish(send, BATON_OK);
		finish(recvs[i], BATON_OK);
	}
}

/* As above, of NCCL's calls: the driver would block in them, with Baton's locks. */
START_TEST(a_stream_full_of_receives_is_refused_and_goes_on)
{
	struct baton_comm_options options[RANKS];

	load();
	for (int i = 0; i < RANKS; i++) {
		options[i] = nccl_options();
		options[i].requests_max = 2048;
	}
	create_with(RANKS, options);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	ck_assert(cuda->sim_set("depth", 1000));
	ck_assert(cuda->sim_set("depth_lock", 1));
	ck_assert(cuda->sim_set("limit_ms", 2000));
	fill_with_receives(0);
	fill_with_receives(BATON_OP_DETACHED);
	fill_with_receives(0);
	ck_assert(cuda->sim_set("depth", 0));
	destroy_all();
}
END_TEST

/* One call of more members than a stream takes calls. */
START_TEST(a_long_group_is_taken_by_a_stream_that_is_empty)
{
	enum { MEMBERS = 300 };
	struct baton_comm_options options[RANKS];
	baton_request requests[2][MEMBERS];

	load();
	for (int i = 0; i < RANKS; i++) {
		options[i] = nccl_options();
		options[i].requests_max = 2048;
	}
	create_with(RANKS, options);
	ck_assert(cuda->sim_set("depth", 1000));
	ck_assert(cuda->sim_set("depth_lock", 1));
	ck_assert(cuda->sim_set("limit_ms", 2000));
	for (int rank = 1; rank >= 0; rank--) {
		ck_ok(baton_group_begin(comms[rank]));
		for (int i = 0; i < MEMBERS; i++)
			ck_ok(move_on((baton_stream)streams[rank], rank,
			              1 - rank, rank == 0, i % 2, 8, NULL,
			              &requests[rank][i]));
		ck_ok(baton_group_end(comms[rank]));
	}
	for (int i = 0; i < 2 * MEMBERS; i++)
		finish(requests[i % 2][i / 2], BATON_OK);
	ck_assert(cuda->sim_set("depth", 0));
	destroy_all();
}
END_TEST

/* ---- errors ---- */

START_TEST(an_asynchronous_error_ends_what_is_pending)
{
	struct baton_completion completion;
	baton_request recv;

	create_all();
	ck_assert(nccl->sim_fail("kernel", 1, BATONI_NCCL_REMOTE_ERROR));
	/* It begins when the call has returned. */
	hold(1, streams[1], 0);
	recv = move(1, 0, false, NULL);
	let_go(0);
	ck_assert_int_eq(baton_wait(recv, 20 * SECOND, &completion),
	                 BATON_ERR_NCCL);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comms[1]),
	                             "ncclCommGetAsyncError"));
	/* The stream goes on. */
	ck_ok(baton_stream_synchronize(comms[1], streams[1]));
	baton_release(&recv);
	abort_all();
}
END_TEST

/* A group whose kernels wait for each other's stream as long as one lane lives. */
START_TEST(an_abort_ends_all_lanes_together)
{
	baton_request requests[2];

	create_all();
	requests[0] = move(1, 0, false, NULL);
	requests[1] = move(1, 2, true, NULL);
	ck_ok(baton_comm_abort(comms[1]));
	finish(requests[0], BATON_ERR_ABORTED);
	finish(requests[1], BATON_ERR_ABORTED);
	ck_assert_int_eq(baton_send(at(1, 0), 1, BATON_UINT8, 0, 0, comms[1],
	                            streams[1], NULL, NULL),
	                 BATON_ERR_ABORTED);
	abort_all();
	cuda->sim_settle(false);
	ck_assert_int_eq(cuda->sim_queued(), 0);
	await_no_comms();
	/* On the same devices. */
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	requests[0] = move(1, 0, false, NULL);
	requests[1] = move(0, 1, true, NULL);
	finish(requests[0], BATON_OK);
	finish(requests[1], BATON_OK);
	destroy_all();
}
END_TEST

/* NCCL refuses to begin the group of the aborts; to end one that was not begun is a violation. */
static void
abort_without_a_group(long refusals)
{
	baton_request requests[2];

	create_all();
	requests[0] = move(1, 0, false, NULL);
	requests[1] = move(1, 2, true, NULL);
	for (long i = 1; i <= refusals; i++)
		ck_assert(nccl->sim_fail("ncclGroupStart", i,
		                         BATONI_NCCL_SYSTEM_ERROR));
	ck_ok(baton_comm_abort(comms[1]));
	finish(requests[0], BATON_ERR_ABORTED);
	finish(requests[1], BATON_ERR_ABORTED);
	abort_all();
}

START_TEST(aborts_whose_group_is_refused_once_are_made_together)
{
	abort_without_a_group(1);
}
END_TEST

START_TEST(aborts_whose_group_is_refused_are_made_alone)
{
	abort_without_a_group(3);
}
END_TEST

/* Rank 2 is gone, and NCCL says so. */
START_TEST(survivors_make_a_communicator_of_their_own)
{
	baton_request requests[2];

	create_all();
	ck_assert(nccl->sim_set("notice", 1));
	requests[0] = move(0, 1, false, NULL);
	ck_ok(baton_comm_abort(comms[2]));
	ck_ok(baton_comm_destroy(comms[2]));
	finish(requests[0], BATON_ERR_NCCL);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comms[0]), "remote"));
	for (int i = 0; i < 2; i++) {
		baton_comm_abort(comms[i]);
		ck_ok(baton_comm_destroy(comms[i]));
	}
	create_some(2, 0, BATON_PROGRESS_AUTO);
	ck_ok(creators[0].status);
	ck_ok(creators[1].status);
	requests[0] = move(0, 1, false, NULL);
	requests[1] = move(1, 0, true, NULL);
	finish(requests[0], BATON_OK);
	finish(requests[1], BATON_OK);
	destroy_some(2);
}
END_TEST

/* Alone, for want of the others; then with them. */
START_TEST(a_destroy_alone_ends_in_timeout)
{
	load();
	/* Creating has the same time. */
	create(2 * SECOND, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	ck_assert_int_eq(baton_comm_destroy(comms[0]), BATON_ERR_TIMEOUT);
	ck_ok(baton_comm_status(comms[0]));
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_comm_abort(comms[i]));
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_comm_destroy(comms[i]));
	await_no_comms();
}
END_TEST

/* Two ranks on the device of rank 0, which NCCL has nothing to do with. */
static struct baton_comm *beside[2];

static void
create_beside(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.cuda_device = 0;
	ck_ok(baton_comm_create_local(2, &options, beside));
}

/* NCCL frees memory of the device, which waits for all streams of it.  One of them waits for a
 * message that another thread has yet to send: it can, and the rest goes on. */
START_TEST(a_destroy_holds_up_nobody_while_nccl_waits_for_streams)
{
	baton_request requests[2] = {0, 0};
	int ranks[RANKS] = {0, 1, 2};
	pthread_t threads[RANKS];

	load();
	create(0, BATON_PROGRESS_AUTO);
	create_beside();
	ck_assert(cuda->sim_set("limit_ms", 10000));
	ck_ok(baton_recv(at(0, 0), BYTES, BATON_UINT8, 0, 0, beside[1],
	                 streams[0], NULL, &requests[1]));
	for (int i = 0; i < RANKS; i++)
		pthread_create(&threads[i], NULL, destroyer_main, &ranks[i]);
	/* All lanes of the others, and the first one here. */
	while (nccl->sim_uses("ncclCommDestroy") < 2 * LANES + 1)
		sched_yield();
	ck_ok(baton_send(at(0, 1), BYTES, BATON_UINT8, 1, 0, beside[0],
	                 others[0], NULL, &requests[0]));
	finish(requests[0], BATON_OK);
	finish(requests[1], BATON_OK);
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++)
		ck_ok(baton_comm_abort(beside[i]));
	for (int i = 0; i < 2; i++)
		ck_ok(baton_comm_destroy(beside[i]));
	await_no_comms();
	ck_assert_int_eq(cuda->sim_violations(), 0);
}
END_TEST

/* The kernel of rank 0 is behind work of the program, which NCCL's abort waits for. */
START_TEST(a_destroy_that_waits_for_the_program_leaves_the_device_to_others)
{
	create_all();
	hold(0, streams[0], 0);
	baton_release(&(baton_request){move(0, 1, true, NULL)});
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_comm_abort(comms[i]));
	for (int i = 0; i < RANKS; i++)
		ck_ok(baton_comm_destroy(comms[i]));
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	let_go(0);
	destroy_all();
}
END_TEST

/* What connects the ranks is over, so a rank that aborts leaves nothing of it to the others. */
START_TEST(a_creation_leaves_no_kernel)
{
	load();
	ck_assert(nccl->sim_set("delay_us", 20000));
	for (int i = 0; i < 3; i++) {
		create(0, BATON_PROGRESS_AUTO);
		for (int j = 0; j < RANKS; j++)
			ck_ok(creators[j].status);
		ck_assert_int_eq(nccl->sim_live("kernels"), 0);
		destroy_all();
	}
}
END_TEST

START_TEST(a_deadline_ends_in_timeout)
{
	baton_request recv, other;
	char text[400];

	create_all();
	recv = move(1, 0, false, &in_20_ms);
	other = move(1, 2, false, NULL);
	finish(recv, BATON_ERR_TIMEOUT);
	/* What ends with it says whose deadline it was; nobody has aborted. */
	ck_assert_int_eq(baton_wait(other, 20 * SECOND, NULL), BATON_ERR_TIMEOUT);
	ck_ok(baton_request_error(other, text, sizeof(text)));
	ck_assert_ptr_nonnull(strstr(text, "(recv from peer 0"));
	ck_assert_ptr_nonnull(strstr(text, "passed its deadline"));
	ck_ok(baton_release(&other));
	ck_assert_int_eq(baton_comm_status(comms[1]), BATON_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comms[1]),
	                             "recv from peer 0"));
	ck_assert_int_eq(baton_send(at(1, 0), BYTES, BATON_UINT8, 0, 0, comms[1],
	                            streams[1], NULL, NULL),
	                 BATON_ERR_TIMEOUT);
	abort_all();
}
END_TEST

/* NCCL does not say that a rank has aborted. */
START_TEST(a_rank_that_aborts_leaves_the_others_to_their_deadlines)
{
	baton_request recv;

	create_all();
	finish(move(0, 2, true, &in_20_ms), BATON_ERR_TIMEOUT);
	ck_ok(baton_comm_abort(comms[1]));
	ck_ok(baton_comm_destroy(comms[1]));
	recv = move(2, 1, false, &in_20_ms);
	finish(recv, BATON_ERR_TIMEOUT);
	for (int i = 0; i < RANKS; i += 2)
		ck_ok(baton_comm_destroy(comms[i]));
	await_no_comms();
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	destroy_all();
}
END_TEST

START_TEST(a_group_that_nccl_refuses_breaks_the_communicator)
{
	baton_request request = 0;

	create_all();
	ck_assert(nccl->sim_fail("ncclGroupEnd", 1, BATONI_NCCL_INTERNAL_ERROR));
	ck_assert_int_lt(baton_send(at(0, 1), BYTES, BATON_UINT8, 1, 0, comms[0],
	                            streams[0], NULL, &request),
	                 0);
	ck_assert_int_eq(baton_comm_status(comms[0]), BATON_ERR_NCCL);
	ck_assert_ptr_nonnull(strstr(baton_comm_error(comms[0]),
	                             "ncclGroupEnd returned 3: internal error"));
	abort_all();
}
END_TEST

/* The work comes on the stream in the background: the call returns when it is there. */
START_TEST(a_call_returns_when_its_work_is_on_the_stream)
{
	baton_request requests[2];
	CUcontext popped;

	create_all();
	requests[0] = move(1, 0, false, NULL);
	ck_cuda(cuda->context_push(contexts[1]));
	ck_assert_uint_eq(cuda->stream_query(streams[1]), BATONI_CU_NOT_READY);
	ck_cuda(cuda->context_pop(&popped));
	requests[1] = move(0, 1, true, NULL);
	finish(requests[0], BATON_OK);
	finish(requests[1], BATON_OK);
	destroy_all();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_creation_that_fails_on_one_rank_fails_on_all,
		a_connection_that_fails_on_one_rank_fails_on_all,
		a_host_communicator_is_refused,
		a_query_names_the_library_and_what_it_cannot,
		signals_go_by_streams_alone,
		a_query_says_why_it_is_not_nccl,
		asking_for_nccl_alone_means_its_device,
		asking_for_nccl_and_the_host_stays_on_the_host,
		asking_for_cuda_alone_means_no_nccl,
		fewer_lanes_carry_all_messages,
		ranks_with_other_lanes_are_refused,
		memory_that_nccl_does_not_reach_is_refused,
		a_program_may_have_the_lock_of_the_device,
		no_call_waits_for_ever_for_the_lock_of_the_device,
		a_recv_that_waits_holds_up_no_send_of_the_same_way,
		members_of_a_group_do_not_wait_for_each_other,
		a_join_needs_no_look_of_the_host,
		joins_do_not_fill_a_stream,
		a_stream_full_of_receives_is_refused_and_goes_on,
		a_long_group_is_taken_by_a_stream_that_is_empty,
		an_asynchronous_error_ends_what_is_pending,
		an_abort_ends_all_lanes_together,
		aborts_whose_group_is_refused_once_are_made_together,
		aborts_whose_group_is_refused_are_made_alone,
		survivors_make_a_communicator_of_their_own,
		a_destroy_alone_ends_in_timeout,
		a_destroy_holds_up_nobody_while_nccl_waits_for_streams,
		a_destroy_that_waits_for_the_program_leaves_the_device_to_others,
		a_creation_leaves_no_kernel,
		a_deadline_ends_in_timeout,
		a_rank_that_aborts_leaves_the_others_to_their_deadlines,
		a_group_that_nccl_refuses_breaks_the_communicator,
		a_call_returns_when_its_work_is_on_the_stream,
	};

	return RUN_TESTS("nccl_transport", tests);
}
