/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bootstrap of ranks in one process (transport/bootstrap/threads/), by turns; and creations over
 * it, and over the one by sockets, likewise.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "comm.h"
#include "creation.h"
#include "fake_device.h"
#include "fake_native.h"
#include "mem.h"
#include "run_tests.h"
#include "tcp.h"
#include "tcp_world.h"
#include "trace_folder.h"

enum { RANKS = 3 };

static struct batoni_bootstrap ranks[RANKS];

static void
join_all(void)
{
	struct batoni_board *board;

	ck_assert_int_eq(batoni_threads_ops.open(RANKS, &board), BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		batoni_threads_ops.join(board, i, &ranks[i]);
		ck_assert_int_eq(ranks[i].rank, i);
		ck_assert_int_eq(ranks[i].size, RANKS);
		ck_assert_int_eq(ranks[i].before, i);
		ck_assert_int_eq(ranks[i].within, RANKS);
	}
}

static void
close_all(void)
{
	for (int i = 0; i < RANKS; i++)
		ranks[i].ops->close(&ranks[i]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* What a rank brings in a round. */
static void
fill_round(unsigned char *contribution, int rank, int round, size_t bytes)
{
	memset(contribution, 16 * round + rank, bytes);
}

static enum baton_status
exchange(int rank, int round, size_t bytes, const void **all_p)
{
	unsigned char mine[BATONI_EXCHANGE_MAX];

	fill_round(mine, rank, round, bytes);
	return ranks[rank].ops->exchange(&ranks[rank], mine, bytes, all_p);
}

static void
assert_all(const unsigned char *all, int round, size_t bytes)
{
	unsigned char expected[BATONI_EXCHANGE_MAX];

	for (int rank = 0; rank < RANKS; rank++) {
		fill_round(expected, rank, round, bytes);
		ck_assert_mem_eq(all + (size_t)rank * bytes, expected, bytes);
	}
}

START_TEST(each_rank_gets_the_contributions_of_all)
{
	static const size_t lengths[] = {1, BATONI_EXCHANGE_MAX, 7};
	const void *all;

	join_all();
	for (int round = 0; round < 3; round++) {
		size_t bytes = lengths[round];

		/* The last one comes first in the next round. */
		for (int i = 0; i < RANKS - 1; i++)
			ck_assert_int_eq(exchange((i + round) % RANKS, round, bytes,
			                          &all),
			                 BATON_PENDING);
		for (int i = RANKS; i-- > 0;) {
			ck_assert_int_eq(exchange((i + round) % RANKS, round, bytes,
			                          &all),
			                 BATON_OK);
			assert_all(all, round, bytes);
		}
	}
	close_all();
}
END_TEST

START_TEST(contributions_stay_while_another_rank_is_a_round_ahead)
{
	const void *first, *next;

	join_all();
	for (int i = 0; i < RANKS - 1; i++)
		exchange(i, 0, 64, &first);
	ck_assert_int_eq(exchange(RANKS - 1, 0, 64, &first), BATON_OK);
	ck_assert_int_eq(exchange(0, 0, 64, &next), BATON_OK);
	ck_assert_int_eq(exchange(0, 1, BATONI_EXCHANGE_MAX, &next),
	                 BATON_PENDING);
	assert_all(first, 0, 64);
	ck_assert_int_eq(exchange(1, 0, 64, &next), BATON_OK);
	assert_all(next, 0, 64);
	close_all();
}
END_TEST

START_TEST(a_rank_that_closes_ends_the_wait_of_the_others)
{
	const void *all;

	join_all();
	ck_assert_int_eq(exchange(0, 0, 8, &all), BATON_PENDING);
	ranks[1].ops->close(&ranks[1]);
	ck_assert_int_eq(exchange(0, 0, 8, &all), BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "has given up"));
	ranks[0].ops->close(&ranks[0]);
	ck_assert_int_gt(batoni_mem_blocks(), 0);
	ranks[2].ops->close(&ranks[2]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* It has what all have brought, whoever has left since. */
START_TEST(a_round_that_is_complete_is_had_by_all)
{
	const void *all;

	join_all();
	for (int i = 0; i < RANKS; i++)
		exchange(i, 0, 8, &all);
	ranks[RANKS - 1].ops->close(&ranks[RANKS - 1]);
	ck_assert_int_eq(exchange(0, 0, 8, &all), BATON_OK);
	assert_all(all, 0, 8);
	ck_assert_int_eq(exchange(0, 1, 8, &all), BATON_ERR_PEER);
	for (int i = 0; i < RANKS - 1; i++)
		ranks[i].ops->close(&ranks[i]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(a_board_without_memory_leaves_nothing)
{
	struct batoni_board *board;
	unsigned long n;

	for (n = 1;; n++) {
		batoni_mem_fail_at(n);
		if (batoni_threads_ops.open(RANKS, &board) == BATON_OK)
			break;
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	batoni_mem_fail_at(0);
	ck_assert_uint_eq(n, 3);
	for (int i = 0; i < RANKS; i++)
		batoni_threads_ops.join(board, i, &ranks[i]);
	close_all();
}
END_TEST

/* ---- creations ---- */

static struct batoni_creation creations[RANKS];

/* All ranks by turns, until all are over. */
static void
step_all(enum baton_status statuses[RANKS])
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	int left = RANKS;

	for (int i = 0; i < RANKS; i++)
		statuses[i] = BATON_PENDING;
	while (left > 0) {
		for (int i = 0; i < RANKS; i++) {
			if (statuses[i] != BATON_PENDING)
				continue;
			statuses[i] = batoni_creation_step(&creations[i]);
			left -= statuses[i] != BATON_PENDING;
		}
		pause_until(limit);
	}
}

/* One rank alone, whose patience is short.  What was refused there is older than its end. */
static void
assert_impatient(const struct batoni_comm_setup *setup, enum baton_status refused,
                 enum baton_status status, const char *words)
{
	struct batoni_creation *creation = &creations[0];
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	struct batoni_board *board;
	enum baton_status got;

	batoni_creation_begin(creation, setup, refused);
	ck_assert_int_eq(batoni_threads_ops.open(RANKS, &board), BATON_OK);
	batoni_threads_ops.join(board, 0, &creation->bootstrap);
	creation->bootstrap.patience_ns = 1;
	while ((got = batoni_creation_step(creation)) == BATON_PENDING)
		ck_assert_uint_lt(batoni_real_ns(), limit);
	ck_assert_int_eq(got, status);
	ck_assert_msg(strstr(creation->why, words), "%s", creation->why);
	for (int i = 1; i < RANKS; i++) {
		batoni_threads_ops.join(board, i, &ranks[i]);
		ranks[i].ops->close(&ranks[i]);
	}
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

START_TEST(a_rank_that_is_refused_says_why_though_nobody_comes)
{
	struct batoni_comm_setup setup;

	ck_assert_int_eq(batoni_comm_setup(NULL, &setup), BATON_OK);
	assert_impatient(&setup, BATON_OK, BATON_ERR_TIMEOUT,
	                 "one of them has not gone on");
	assert_impatient(NULL, batoni_refuse(BATON_ERR_INVALID, "no, thanks"),
	                 BATON_ERR_INVALID, "no, thanks");
}
END_TEST

/* No rank is told of another one's failure, which is its own. */
START_TEST(ranks_that_fail_alike_have_the_same_sentence)
{
	enum baton_status statuses[RANKS];
	struct batoni_comm_setup setup;
	struct batoni_board *board;

	ck_assert_int_eq(batoni_comm_setup(NULL, &setup), BATON_OK);
	setup.contexts_max = 1 << 21; /* more slots than there can be */
	ck_assert_int_eq(batoni_threads_ops.open(RANKS, &board), BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		batoni_creation_begin(&creations[i], &setup, BATON_OK);
		batoni_threads_ops.join(board, i, &creations[i].bootstrap);
	}
	step_all(statuses);
	for (int i = 0; i < RANKS; i++) {
		ck_assert_int_eq(statuses[i], BATON_ERR_UNSUPPORTED);
		ck_assert_str_eq(creations[i].why, creations[0].why);
		ck_assert_msg(strncmp(creations[i].why, "3 ranks with", 12) == 0,
		              "%s", creations[i].why);
	}
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* ---- traces ---- */

/* From when a rank has its communicator on, the deadlines of its operations run. */
START_TEST(all_files_are_made_when_the_first_rank_has_its_communicator)
{
	enum baton_status first = BATON_PENDING, statuses[RANKS];
	struct batoni_comm_setup setup;
	struct batoni_board *board;

	trace_folder_make();
	ck_assert_int_eq(batoni_comm_setup(NULL, &setup), BATON_OK);
	ck_assert_int_eq(batoni_threads_ops.open(RANKS, &board), BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		batoni_creation_begin(&creations[i], &setup, BATON_OK);
		batoni_threads_ops.join(board, i, &creations[i].bootstrap);
	}
	for (int i = 0; first == BATON_PENDING; i = (i + 1) % RANKS)
		first = batoni_creation_step(&creations[i]);
	ck_assert_int_eq(first, BATON_OK);
	ck_assert_uint_eq(trace_folder_count(), RANKS);
	step_all(statuses);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(baton_comm_destroy(creations[i].comm), BATON_OK);
	trace_folder_remove();
}
END_TEST

/* ---- by sockets ---- */

/* Rank i's link to the hub. */
static void
open_links(struct batoni_side_link links[RANKS])
{
	int fds[RANKS];

	start_hub(RANKS, RANKS, fds);
	for (int i = 0; i < RANKS; i++)
		links[i] = (struct batoni_side_link){.fd = fds[i], .home = 0};
}

static void
on_broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call,
          int code, const char *text)
{
	(void)upcalls;
	(void)call;
	(void)code;
	(void)text;
	ck_assert_int_eq(fatal, BATON_ERR_PEER);
}

/* The last rank fails, and the others wait for it in an exchange. */
static enum baton_status
wait_for_the_last(struct batoni_native *native, struct batoni_transport *lower,
                  struct batoni_transport **transport_p)
{
	static struct batoni_upcalls upcalls = {.broken = on_broken};
	int mine = 0, all[RANKS];
	enum baton_status status;

	(void)native;
	(void)transport_p;
	lower->upcalls = lower->messages.upcalls = &upcalls;
	if (lower->rank == RANKS - 1)
		return batoni_refuse(BATON_ERR_CUDA, "it has no fan");
	batoni_engine_calls.driver_lock();
	status = lower->ops->exchanging->exchange(lower, 1, &mine, sizeof(mine), all);
	batoni_engine_calls.driver_unlock();
	return status;
}

/* Also once the transport has taken the side channel over. */
START_TEST(a_rank_that_ends_while_a_native_transport_is_opened_is_named)
{
	const struct batoni_native_ops native = fake_native_ops(wait_for_the_last);
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct batoni_side_link links[RANKS];
	enum baton_status statuses[RANKS];
	struct batoni_comm_setup setup;

	trace_folder_make();
	batoni_device_put(&batoni_fake_device_ops);
	batoni_native_put(&native);
	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	options.progress = BATON_PROGRESS_CALLS;
	ck_assert_int_eq(batoni_comm_setup(&options, &setup), BATON_OK);
	open_links(links);
	for (int i = 0; i < RANKS; i++) {
		batoni_creation_begin(&creations[i], &setup, BATON_OK);
		ck_assert_int_eq(batoni_side_ops.join(RANKS, i, &links[i], 0,
		                                      &creations[i].bootstrap),
		                 BATON_OK);
	}
	step_all(statuses);
	batoni_native_put(NULL);
	batoni_device_put(NULL);
	ck_assert_int_eq(statuses[RANKS - 1], BATON_ERR_CUDA);
	ck_assert_str_eq(creations[RANKS - 1].why, "it has no fan");
	for (int i = 0; i < RANKS - 1; i++) {
		ck_assert_int_eq(statuses[i], BATON_ERR_PEER);
		ck_assert_msg(strstr(creations[i].why,
		                     "the creation has failed: rank 2 is gone"),
		              "%s", creations[i].why);
	}
	ck_assert_int_eq(fake_natives_alive(), 0);
	await_no_hub();
	ck_assert_uint_eq(trace_folder_count(), 0);
	trace_folder_remove();
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

/* What becomes of a setup for a device with or without a transport of its own. */
START_TEST(the_side_channel_takes_near_and_native_setups)
{
	static const struct {
		bool native;
		enum baton_transport asked;
		enum baton_status status;
		enum baton_transport taken;
		const char *words;
	} cases[] = {
		{false, BATON_TRANSPORT_AUTO, BATON_OK, BATON_TRANSPORT_NEAR, ""},
		{false, BATON_TRANSPORT_NEAR, BATON_OK, BATON_TRANSPORT_NEAR, ""},
		{false, BATON_TRANSPORT_LOCAL, BATON_ERR_UNSUPPORTED,
	         BATON_TRANSPORT_LOCAL,
	         "messages go by BATON_TRANSPORT_NEAR (or BATON_TRANSPORT_AUTO) "
	         "alone"},
		{false, BATON_TRANSPORT_MPI, BATON_ERR_UNSUPPORTED,
	         BATON_TRANSPORT_MPI, "BATON_TRANSPORT_NEAR"},
		{true, BATON_TRANSPORT_AUTO, BATON_OK, BATON_TRANSPORT_NCCL, ""},
		{true, BATON_TRANSPORT_NCCL, BATON_OK, BATON_TRANSPORT_NCCL, ""},
		{true, BATON_TRANSPORT_NEAR, BATON_OK, BATON_TRANSPORT_NEAR, ""},
		{true, BATON_TRANSPORT_MPI, BATON_ERR_UNSUPPORTED,
	         BATON_TRANSPORT_MPI,
	         "messages go by BATON_TRANSPORT_NCCL, BATON_TRANSPORT_NEAR (or "},
	};
	const struct batoni_opening_ops *ops = &batoni_opening_tcp_ops;
	const struct batoni_accord accord = {.stages = true, .unable = 0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct batoni_comm_setup setup;

		ck_assert_int_eq(batoni_comm_setup(NULL, &setup), BATON_OK);
		if (cases[i].native)
			batoni_comm_setup_on(&setup, &batoni_fake_device_ops);
		setup.transport = cases[i].asked;
		ck_assert_int_eq(ops->check(&ranks[0], &setup), cases[i].status);
		ck_assert_int_eq(setup.transport, cases[i].taken);
		ck_assert(cases[i].status == BATON_OK ||
		          strstr(baton_last_error(), cases[i].words));
		ck_assert_int_eq(setup.near, cases[i].status == BATON_OK &&
		                                     cases[i].taken ==
		                                             BATON_TRANSPORT_NEAR);
		/* Only what near does not carry is bounded. */
		ck_assert_int_eq(ops->agree(&accord, &setup), BATON_OK);
		ck_assert_int_eq(setup.message_max == 0, setup.near);
		ck_assert(setup.stages);
	}
}
END_TEST

/* The first step of opening is refused: with the status, and these words. */
static void
assert_unopened(struct batoni_bootstrap *bootstrap, enum baton_status status,
                const char *words)
{
	struct batoni_opening opening = {
		.engine = &batoni_engine_calls,
		.bootstrap = bootstrap,
		.config = {.slots = 4,
		           .slots_most = 4,
		           .segment_bytes = BATONI_DEPARTURE_BYTES},
	};

	ck_assert_int_eq(batoni_opening_tcp_ops.step(&opening, NULL), status);
	ck_assert_msg(strstr(baton_last_error(), words), "%s",
	              baton_last_error());
}

START_TEST(what_the_side_channel_lacks_is_named)
{
	struct batoni_side_link links[RANKS];
	struct rlimit before, few;

	open_links(links);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(batoni_side_ops.join(RANKS, i, &links[i], 0,
		                                      &ranks[i]),
		                 BATON_OK);
	batoni_mem_fail_at(1);
	assert_unopened(&ranks[0], BATON_ERR_NOMEM,
	                "no memory for the side channel of 3 ranks");
	batoni_mem_fail_at(0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_unopened(&ranks[1], BATON_ERR_SYSTEM, "memfd_create");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (int i = 0; i < RANKS; i++)
		ranks[i].ops->close(&ranks[i]);
	await_no_hub();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		each_rank_gets_the_contributions_of_all,
		contributions_stay_while_another_rank_is_a_round_ahead,
		a_rank_that_closes_ends_the_wait_of_the_others,
		a_round_that_is_complete_is_had_by_all,
		a_board_without_memory_leaves_nothing,
		ranks_that_fail_alike_have_the_same_sentence,
		all_files_are_made_when_the_first_rank_has_its_communicator,
		a_rank_that_ends_while_a_native_transport_is_opened_is_named,
		a_rank_that_is_refused_says_why_though_nobody_comes,
		the_side_channel_takes_near_and_native_setups,
		what_the_side_channel_lacks_is_named,
	};

	return RUN_TESTS("bootstrap", tests);
}
