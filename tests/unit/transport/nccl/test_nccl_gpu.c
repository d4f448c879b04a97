/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the NCCL transport takes of a GPU and leaves to others, over both simulators: CTAs and
 * memory, the order of launches, groups in progress, and the lock of the device while NCCL frees.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "nccl_world.h"
#include "run_tests.h"

/* Of a rank, with that to itself. */
enum { LANES = 5 };

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};

static void
refused(enum baton_status status, const char *words)
{
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == status &&
		                      strstr(creators[i].why, words),
		              "%d: %s", creators[i].status, creators[i].why);
	await_no_comms();
}

/* ---- the order of launches ---- */

/* NCCL's default, where it is 1: what the lanes are created with says otherwise. */
START_TEST(a_message_that_is_not_begun_holds_up_no_other_lane)
{
	baton_request waits, sends, gets;

	load();
	ck_assert(nccl->sim_set("version", 23203));
	ck_assert(nccl->sim_set("order", 1));
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	hold(0, others[0], 0);
	ck_ok(move_on(others[0], 0, 1, false, 1, BYTES, NULL, &waits));
	sends = move(0, 1, true, NULL);
	gets = move(1, 0, false, NULL);
	finish(sends, BATON_OK);
	finish(gets, BATON_OK);
	let_go(0);
	gets = move(1, 0, true, NULL);
	finish(waits, BATON_OK);
	finish(gets, BATON_OK);
	destroy_all();
}
END_TEST

START_TEST(an_order_of_launches_in_the_environment_is_refused)
{
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
	load();
	create(0, BATON_PROGRESS_AUTO);
	refused(BATON_ERR_UNSUPPORTED, "NCCL_LAUNCH_ORDER_IMPLICIT=1");
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	destroy_all();
}
END_TEST

/* ---- CTAs ---- */

/* With NCCL's default, 32 for each, the receive would leave none for the send. */
START_TEST(a_recv_that_waits_leaves_processors_to_a_send)
{
	baton_request waits, sends, gets;

	load();
	ck_assert(cuda->sim_set("processors", 40));
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	waits = move(1, 0, false, &detached);
	cuda->sim_settle(false);
	sends = move(1, 2, true, &detached);
	gets = move(2, 1, false, NULL);
	finish(sends, BATON_OK);
	finish(gets, BATON_OK);
	gets = move(0, 1, true, NULL);
	finish(waits, BATON_OK);
	finish(gets, BATON_OK);
	destroy_all();
}
END_TEST

static void
create_with_ctas(int ctas, bool lists)
{
	struct baton_comm_options options[RANKS];

	for (int i = 0; i < RANKS; i++) {
		options[i] = nccl_options();
		options[i].nccl_ctas = ctas;
		options[i].nccl_lists = lists;
	}
	create_with(RANKS, options);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
}

static int
ctas_of(const struct baton_comm *comm)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	ck_ok(baton_comm_query(comm, &info));
	return info.nccl_ctas;
}

/* Of three ranks: four lanes, that of the rank alone, and that of lists. */
static void
keep(long processors, int plain, int with_lists)
{
	load();
	ck_assert(cuda->sim_set("processors", processors));
	create_with_ctas(0, false);
	ck_assert_int_eq(ctas_of(comms[1]), plain);
	destroy_all();
	create_with_ctas(0, true);
	ck_assert_int_eq(ctas_of(comms[1]), with_lists);
	destroy_all();
}

START_TEST(all_lanes_together_keep_half_of_the_processors)
{
	keep(132, 8, 8);
}
END_TEST

START_TEST(ctas_are_a_power_of_two)
{
	keep(80, 8, 4);
}
END_TEST

START_TEST(each_lane_has_at_least_one)
{
	keep(11, 1, 1);
}
END_TEST

START_TEST(no_lane_has_more_than_nccl_would_take)
{
	keep(1024, 32, 32);
}
END_TEST

START_TEST(ctas_are_those_that_are_asked_for)
{
	struct baton_comm_options options[RANKS];

	load();
	create_with_ctas(2, false);
	ck_assert_int_eq(ctas_of(comms[0]), 2);
	destroy_all();
	/* The environment wins, as with NCCL. */
	setenv("NCCL_MAX_CTAS", "6", 1);
	create_with_ctas(2, false);
	ck_assert_int_eq(ctas_of(comms[0]), 6);
	destroy_all();
	unsetenv("NCCL_MAX_CTAS");
	for (int i = 0; i < RANKS; i++) {
		options[i] = nccl_options();
		options[i].nccl_ctas = 65;
	}
	create_with(RANKS, options);
	refused(BATON_ERR_INVALID, "options->nccl_ctas is 65");
	for (int i = 0; i < RANKS; i++) {
		options[i] = nccl_options();
		options[i].nccl_ctas = i + 1;
	}
	create_with(RANKS, options);
	refused(BATON_ERR_INVALID, "");
}
END_TEST

/* ---- memory ---- */

static uint64_t
bytes_of(int ctas, bool lists)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	uint64_t all = 0;

	create_with_ctas(ctas, lists);
	for (int i = 0; i < RANKS; i++) {
		ck_ok(baton_comm_query(comms[i], &info));
		all += info.nccl_bytes;
	}
	ck_assert_uint_eq(all, (uint64_t)nccl->sim_live("bytes"));
	destroy_all();
	return all;
}

/* Each pair is connected once in each direction, of which the lane for lists has all again. */
START_TEST(a_query_tells_the_memory_that_nccl_took)
{
	const uint64_t mib = 1 << 20, pairs = (uint64_t)RANKS * (RANKS - 1);
	uint64_t two, four, lists;

	load();
	two = bytes_of(2, false);
	four = bytes_of(4, false);
	lists = bytes_of(4, true);
	ck_assert_uint_eq(four - two, 2 * 12 * mib * pairs);
	ck_assert_uint_eq(lists - four, 4 * 12 * mib * pairs + 4 * mib * RANKS);
}
END_TEST

/* ---- groups in progress ---- */

static void *
sender_main(void *unused)
{
	enum baton_status status;
	baton_request request = 0;

	(void)unused;
	status = move_on(streams[0], 0, 1, true, 1, BYTES, NULL, &request);
	ck_assert_int_ne(status, BATON_PENDING);
	if (status == BATON_OK)
		baton_release(&request);
	return NULL;
}

/* A send of rank 0 is in NCCL, which does not launch it. */
static pthread_t
begin_send(void)
{
	long groups = nccl->sim_uses("ncclGroupEnd");
	pthread_t sender;

	ck_assert(nccl->sim_set("launches", 0));
	ck_assert_int_eq(pthread_create(&sender, NULL, sender_main, NULL), 0);
	while (nccl->sim_uses("ncclGroupEnd") == groups)
		sched_yield();
	return sender;
}

START_TEST(an_abort_beside_a_group_that_is_never_launched_breaks_no_rule)
{
	pthread_t sender;

	create_all();
	sender = begin_send();
	ck_ok(baton_comm_abort(comms[0]));
	pthread_join(sender, NULL);
	abort_all();
	await_no_comms();
}
END_TEST

static void *
aborter_main(void *comm)
{
	baton_comm_abort(comm);
	return NULL;
}

START_TEST(an_abort_waits_for_a_group_that_is_launched_late)
{
	pthread_t sender, aborter;

	create_all();
	sender = begin_send();
	ck_assert_int_eq(pthread_create(&aborter, NULL, aborter_main,
	                                comms[0]),
	                 0);
	/* The abort takes it from the call. */
	pthread_join(sender, NULL);
	ck_assert(nccl->sim_set("launches", 1));
	pthread_join(aborter, NULL);
	abort_all();
	await_no_comms();
}
END_TEST

/* ---- kernels that leave late ---- */

static bool
is_lent(baton_request request, enum baton_status status)
{
	struct baton_completion completion;

	ck_assert_int_eq(baton_test(request, &completion), status);
	return completion.flags & BATON_COMPLETION_LENT;
}

/* A receive of rank 0 that waits for its send in a kernel, which leaves late when it is told. */
static baton_request
recv_that_lingers(long us, const struct baton_op_options *options)
{
	baton_request recv = move(0, 1, false, options);

	while (nccl->sim_live("running") == 0)
		sched_yield();
	ck_assert(nccl->sim_set("linger", us));
	return recv;
}

/* At the end of the operation its buffer is the program's: the kernel has left it. */
START_TEST(an_abort_ends_what_runs_when_it_has_left)
{
	baton_request recv, send;

	create_all();
	recv = recv_that_lingers(200000, NULL);
	fill(0, 1, 1);
	ck_ok(baton_comm_abort(comms[0]));
	ck_assert(is_lent(recv, BATON_ERR_ABORTED) ||
	          nccl->sim_live("running") == 0);
	ck_ok(baton_release(&recv));
	while (nccl->sim_live("running") > 0)
		sched_yield();
	send = move(1, 0, true, NULL);
	cuda->sim_settle(false);
	ck_assert(is_filled(0, 1, 1));
	ck_ok(baton_comm_abort(comms[1]));
	finish(send, BATON_ERR_ABORTED);
	abort_all();
}
END_TEST

START_TEST(a_deadline_ends_what_runs_when_it_has_left)
{
	baton_request recv;

	create_all();
	recv = recv_that_lingers(200000, &in_20_ms);
	ck_assert_int_eq(baton_wait(recv, 20 * SECOND, NULL), BATON_ERR_TIMEOUT);
	ck_assert(is_lent(recv, BATON_ERR_TIMEOUT) ||
	          nccl->sim_live("running") == 0);
	ck_ok(baton_release(&recv));
	abort_all();
}
END_TEST

/* What another stream of the communicator waited for has its end before that stream goes on: a
 * synchronize of one says that its receive has failed, while the kernel of the other one is there. */
START_TEST(a_stream_that_goes_on_at_a_deadline_says_so)
{
	baton_request recv;

	create_all();
	recv = recv_that_lingers(300000, NULL);
	ck_ok(move_on(others[0], 0, 2, false, 2, BYTES, &in_20_ms, NULL));
	ck_assert_int_eq(baton_stream_synchronize(comms[0], others[0]),
	                 BATON_ERR_TIMEOUT);
	finish(recv, BATON_ERR_TIMEOUT);
	abort_all();
}
END_TEST

/* What is allocated after rank 0 was destroyed while a receive waited for so long. */
static size_t
bytes_after_a_destroy(int64_t timeout_ns)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = timeout_ns};

	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_ok(creators[i].status);
	ck_ok(move_on(streams[0], 0, 1, false, 1, BYTES, &soon, NULL));
	ck_ok(baton_comm_destroy(comms[0]));
	for (int i = 1; i < RANKS; i++) {
		baton_comm_abort(comms[i]);
		ck_ok(baton_comm_destroy(comms[i]));
	}
	await_no_comms();
	return batoni_mem_bytes();
}

/* A destroy that has waited for longer than for a broken communicator, when the deadline of what it
 * waits for passes, still ends that, and frees its requests. */
START_TEST(a_deadline_within_a_destroy_ends_its_operation)
{
	size_t bytes;

	create_all();
	destroy_all();
	bytes = bytes_after_a_destroy(SECOND / 50);
	/* The requests alone of a communicator that is left behind are 800 KiB. */
	ck_assert_uint_lt(bytes_after_a_destroy(SECOND * 3 / 2),
	                  bytes + 100000);
}
END_TEST

/* One that hangs is waited for as a sick device is, for a second; then its buffer is lent. */
START_TEST(an_abort_does_not_wait_for_a_kernel_that_hangs)
{
	baton_request recv;

	create_all();
	recv = recv_that_lingers(60000000, NULL);
	ck_ok(baton_comm_abort(comms[0]));
	ck_assert_int_eq(nccl->sim_live("running"), 1);
	ck_assert(is_lent(recv, BATON_ERR_ABORTED));
	ck_assert(nccl->sim_set("linger", 0));
	while (is_lent(recv, BATON_ERR_ABORTED))
		sched_yield();
	ck_assert_int_eq(nccl->sim_live("running"), 0);
	ck_ok(baton_release(&recv));
	abort_all();
}
END_TEST

/* A kernel that begins after the abort may find its message there before it looks for the abort. */
START_TEST(an_abort_lends_what_its_stream_has_not_come_to)
{
	baton_request recv;

	create_all();
	hold(0, streams[0], 0);
	recv = move(0, 1, false, NULL);
	ck_ok(baton_comm_abort(comms[0]));
	ck_assert(is_lent(recv, BATON_ERR_ABORTED));
	let_go(0);
	while (is_lent(recv, BATON_ERR_ABORTED))
		sched_yield();
	ck_ok(baton_release(&recv));
	abort_all();
}
END_TEST

/* ---- freeing ---- */

static struct baton_comm *first[RANKS];

static void *
first_destroyer_main(void *argument)
{
	return (void *)(intptr_t)baton_comm_destroy(first[*(int *)argument]);
}

/* NCCL frees the first communicator's memory, for which CUDA waits until all streams of the GPU
 * are idle; one of them waits for what the second one has yet to be asked for. */
START_TEST(memory_is_freed_without_the_lock_of_the_device)
{
	int ranks[RANKS] = {0, 1, 2};
	baton_request waits, requests[2];
	pthread_t threads[RANKS];

	create_all();
	memcpy(first, comms, sizeof(first));
	create(5 * SECOND, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	ck_assert(nccl->sim_set("frees", 1));
	ck_ok(move_on(streams[0], 0, 1, false, 1, BYTES, NULL, &waits));
	cuda->sim_settle(false);
	for (int i = 0; i < RANKS; i++)
		pthread_create(&threads[i], NULL, first_destroyer_main,
		               &ranks[i]);
	/* All of the other ranks, and the first one here. */
	while (nccl->sim_uses("ncclCommDestroy") <= (RANKS - 1) * LANES)
		sched_yield();
	while (cuda->sim_blocked() == 0)
		sched_yield();
	ck_ok(move_on(others[0], 0, 1, true, 0, BYTES, NULL, &requests[0]));
	ck_ok(move_on(others[1], 1, 0, false, 0, BYTES, NULL, &requests[1]));
	finish(requests[0], BATON_OK);
	finish(requests[1], BATON_OK);
	requests[0] = move(1, 0, true, NULL);
	finish(waits, BATON_OK);
	finish(requests[0], BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		void *status;

		pthread_join(threads[i], &status);
		ck_ok((enum baton_status)(intptr_t)status);
	}
	destroy_all();
	ck_assert_int_eq(cuda->sim_violations(), 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_message_that_is_not_begun_holds_up_no_other_lane,
		an_order_of_launches_in_the_environment_is_refused,
		a_recv_that_waits_leaves_processors_to_a_send,
		all_lanes_together_keep_half_of_the_processors,
		ctas_are_a_power_of_two,
		each_lane_has_at_least_one,
		no_lane_has_more_than_nccl_would_take,
		ctas_are_those_that_are_asked_for,
		a_query_tells_the_memory_that_nccl_took,
		an_abort_beside_a_group_that_is_never_launched_breaks_no_rule,
		an_abort_waits_for_a_group_that_is_launched_late,
		an_abort_ends_what_runs_when_it_has_left,
		a_deadline_ends_what_runs_when_it_has_left,
		a_stream_that_goes_on_at_a_deadline_says_so,
		a_deadline_within_a_destroy_ends_its_operation,
		an_abort_does_not_wait_for_a_kernel_that_hangs,
		an_abort_lends_what_its_stream_has_not_come_to,
		memory_is_freed_without_the_lock_of_the_device,
	};

	return RUN_TESTS("nccl_gpu", tests);
}
