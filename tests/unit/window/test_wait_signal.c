/* SPDX-License-Identifier: BSD-3-Clause */
/* window/wait.c: units of counters, who is met when, parking. */
#include <check.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "rma_world.h"
#include "run_tests.h"

static struct rma_world world;

static void
setup(void)
{
	rma_world_open(&world);
}

static void
teardown(void)
{
	rma_world_close(&world);
}

/* Describe and place a wait for so many of (peer, 0, 0). */
static void
place(uint32_t slot, int op_count, int peer)
{
	struct baton_wait_signal_desc one = wait_desc(op_count, peer, 0, 0);

	describe_wait(&world, slot, 1, &one);
	batoni_wait_place(&world.rma, &world.transfers[slot]);
}

/* ---- being met ---------------------------------------------------------- */

START_TEST(signals_that_came_early_end_the_wait_within_issue)
{
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 1, 0, 0);
	place(0, 2, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_OK);
	ck_assert_uint_eq(world.transfers[0].done_bytes, 0);
	assert_no_waits(&world);
}
END_TEST

START_TEST(wait_ends_with_the_last_of_its_counters)
{
	static const int order[4][3] = {
		{1, 0, 1}, {2, 1, 0}, {1, 1, 1}, {0, 0, 0}};
	struct baton_wait_signal_desc descs[4];

	for (int i = 0; i < 4; i++)
		descs[3 - i] = wait_desc(1, order[i][0], order[i][1], order[i][2]);
	describe_wait(&world, 0, 4, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_uint_eq(world.rma.base.path.load.in_flight, 1);
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(test_waits(&world), 0);
		assert_no_end(&world);
		signal_from(&world, order[i][0], order[i][1], order[i][2]);
	}
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	ck_assert_uint_eq(world.transfers[0].done_bytes, 0);
	assert_no_waits(&world);
}
END_TEST

START_TEST(counter_named_twice_adds_up)
{
	struct baton_wait_signal_desc descs[] = {
		wait_desc(1, 1, 0, 0), wait_desc(1, 2, 0, 0), wait_desc(2, 1, 0, 0)};

	signal_from(&world, 2, 0, 0);
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 1, 0, 0);
	describe_wait(&world, 0, 3, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_uint_eq(test_waits(&world), 0);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(sums_do_not_overflow_32_bits)
{
	static struct baton_wait_signal_desc descs[BATON_WAIT_DESCS_MAX];
	uint64_t sum = (uint64_t)BATON_WAIT_DESCS_MAX * INT_MAX;
	_Atomic uint64_t *counter = batoni_link_of(&world.rma, 1)->counters->value;

	for (size_t i = 0; i < BATON_WAIT_DESCS_MAX; i++)
		descs[i] = wait_desc(INT_MAX, 1, 0, 0);
	describe_wait(&world, 0, BATON_WAIT_DESCS_MAX, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	atomic_store(counter, sum - 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_uint_eq(test_waits(&world), 0);
	atomic_store(counter, sum);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(units_are_given_in_the_order_of_placing_not_of_issue)
{
	place(0, 2, 1);
	place(1, 1, 1);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 0);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 1, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(later_wait_waits_for_no_earlier_one)
{
	place(0, 1, 1);
	place(1, 1, 1);
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 1, 0, 0);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_OK);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_OK);
	assert_no_waits(&world);
}
END_TEST

/* ---- ending early ------------------------------------------------------- */

START_TEST(wait_that_units_given_back_meet_is_to_be_looked_at)
{
	place(0, 2, 1);
	place(1, 1, 1);
	signal_from(&world, 1, 0, 0);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	test_waits(&world);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 2);
	ck_assert(!world.comm.work.busy);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert(world.comm.work.busy);
	ck_assert_uint_eq(world.rma.base.path.load.in_flight, 1);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 1, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(giving_back_what_meets_nobody_wakes_nobody)
{
	place(0, 1, 1);
	place(1, 2, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	test_waits(&world);
	signal_from(&world, 1, 0, 1);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert(!world.comm.work.busy);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 1);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	assert_no_waits(&world);
}
END_TEST

START_TEST(units_that_an_abort_gives_back_meet_nobody)
{
	place(0, 2, 1);
	place(1, 1, 1);
	place(2, 1, 2);
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 2, 0, 0);
	for (uint32_t slot = 0; slot < 2; slot++)
		ck_assert_int_eq(issue_wait(&world, slot), BATON_PENDING);
	world.comm.fault.status = BATON_ERR_ABORTED;
	for (uint32_t slot = 0; slot < 2; slot++)
		ck_assert_int_eq(take_wait_back(&world, slot), BATON_ERR_CANCELED);
	/* This one has had its signal before. */
	ck_assert_int_eq(issue_wait(&world, 2), BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(wait_that_is_never_issued_gives_its_units_back)
{
	place(0, 3, 1);
	place(1, 1, 1);
	batoni_wait_unplace(&world.rma, &world.transfers[0]);
	signal_from(&world, 1, 0, 0);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(wait_that_is_met_by_now_is_not_taken_back)
{
	place(0, 1, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	test_waits(&world);
	signal_from(&world, 1, 0, 0);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_OK);
	/* Its unit is used up. */
	place(1, 1, 1);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	assert_no_waits(&world);
}
END_TEST

/* ---- nodes -------------------------------------------------------------- */

START_TEST(description_without_nodes_is_again_and_keeps_none)
{
	struct baton_wait_signal_desc two[] = {wait_desc(1, 0, 0, 0),
	                                       wait_desc(1, 1, 0, 0)};
	uint32_t slot = 0;

	/* 67 nodes: 33 waits of two. */
	for (; slot < (REQUESTS + RANKS) / 2; slot++)
		describe_wait(&world, slot, 2, two);
	ck_assert_int_eq(batoni_wait_describe(&world.rma, slot, 2, two),
	                 BATON_ERR_AGAIN);
	describe_wait(&world, slot, 1, two);
	batoni_wait_forget(&world.rma, slot);
	while (slot-- > 0)
		batoni_wait_forget(&world.rma, slot);
	assert_no_waits(&world);
}
END_TEST

START_TEST(waits_for_one_counter_take_what_nodes_there_are)
{
	struct baton_wait_signal_desc one = wait_desc(2, 1, 0, 0);
	struct baton_wait_signal_desc two[] = {wait_desc(1, 0, 0, 0),
	                                       wait_desc(1, 2, 0, 0)};
	struct batoni_transfer *transfers = world.transfers;
	uint32_t slot = 0;

	/* With nobody's node, as it is met. */
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 1, 0, 0);
	ck_assert_int_eq(batoni_wait_issue_one(&world.rma, &transfers[0], &one),
	                 BATON_OK);
	assert_no_waits(&world);
	/* 67 nodes: 33 waits of two, one of one, and the driver's own. */
	for (; slot < (REQUESTS + RANKS) / 2; slot++)
		describe_wait(&world, slot, 2, two);
	for (uint32_t i = slot; i < slot + 3; i++) {
		transfers[i].direction = BATONI_WAIT;
		ck_assert_int_eq(
			batoni_wait_issue_one(&world.rma, &transfers[i], &one),
			i < slot + 2 ? BATON_PENDING : BATON_ERR_AGAIN);
	}
	ck_assert_uint_eq(world.rma.base.path.load.in_flight, 2);
	signal_from(&world, 1, 0, 0);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, slot, BATON_OK);
	ck_assert_int_eq(take_wait_back(&world, slot + 1), BATON_ERR_CANCELED);
	while (slot-- > 0)
		batoni_wait_forget(&world.rma, slot);
	assert_no_waits(&world);
}
END_TEST

START_TEST(every_failed_allocation_of_open_is_nomem_and_leaks_nothing)
{
	struct batoni_rma rma = {.size = RANKS, .requests_max = REQUESTS};
	long blocks = batoni_mem_blocks();
	unsigned long allocations, n;

	rma.base.signals_max = SIGNALS;
	rma.base.contexts_max = CONTEXTS;
	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_nodes_open(&rma), BATON_OK);
	allocations = batoni_mem_fail_at(0);
	ck_assert_uint_ge(allocations, 1);
	batoni_nodes_close(&rma);
	for (n = 1; n <= allocations; n++) {
		batoni_mem_fail_at(n);
		ck_assert_int_eq(batoni_nodes_open(&rma), BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
		batoni_nodes_close(&rma);
	}
	batoni_mem_fail_at(0);
}
END_TEST

/* ---- parking ------------------------------------------------------------ */

START_TEST(wait_is_parked_once_a_test_has_found_it_unmet)
{
	place(0, 1, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(test_waits(&world), 0);
		ck_assert_uint_eq(world.rma.base.path.load.parked, 1);
		ck_assert_uint_eq(world.rma.base.path.load.in_flight, 1);
	}
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(wait_that_messages_may_end_is_not_parked)
{
	struct baton_wait_signal_desc descs[] = {wait_desc(1, 1, 0, 0),
	                                         wait_desc(1, 2, 0, 0)};

	world.peers[2].reaches_us = false;
	describe_wait(&world, 0, 2, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	test_waits(&world);
	/* Whatever rank 2 does, it takes a store of rank 1 first. */
	ck_assert_uint_eq(world.rma.base.path.load.parked, 1);
	signal_from(&world, 1, 0, 0);
	test_waits(&world);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 0);
	batoni_counter_add(&world.rma, 2, 0, 0, 1);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

START_TEST(source_that_has_signaled_by_message_parks_no_wait_of_its_context)
{
	struct baton_wait_signal_desc other = wait_desc(1, 1, 0, 1);

	place(0, 2, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	describe_wait(&world, 1, 1, &other);
	batoni_wait_place(&world.rma, &world.transfers[1]);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	test_waits(&world);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 2);
	batoni_counter_add(&world.rma, 1, 1, 0, 1);
	test_waits(&world);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 1);
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(world.rma.base.path.load.parked, 1);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	assert_no_waits(&world);
}
END_TEST

/* ---- processes that end ------------------------------------------------- */

/* A process that has ended, and its descriptor. */
static int
ended_process(void)
{
	siginfo_t info;
	pid_t pid = fork();
	int fd;

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		for (;;)
			pause();
	fd = batoni_pidfd_open(pid);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
	return fd;
}

static uint64_t
wanted_of(int source)
{
	return atomic_load(
		&batoni_link_of(&world.rma, source)->counters->value[1]);
}

/* So that a sleeper is not woken by each of many signals. */
START_TEST(who_sleeps_says_from_which_count_on_it_wants_to_be_woken)
{
	ck_assert_uint_eq(wanted_of(1), 0);
	place(0, 3, 1);
	place(1, 2, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	test_waits(&world);
	ck_assert_uint_eq(wanted_of(1), 0);
	atomic_fetch_or(&batoni_bell()->listening, BATONI_ASLEEP_DRIVER);
	test_waits(&world);
	ck_assert_uint_eq(wanted_of(1), 3);
	ck_assert_uint_eq(wanted_of(2), 0);
	/* Two are enough for the other one then. */
	ck_assert_int_eq(take_wait_back(&world, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(wanted_of(1), 2);
	signal_from(&world, 1, 0, 0);
	test_waits(&world);
	ck_assert_uint_eq(wanted_of(1), 2);
	ck_assert_int_eq(take_wait_back(&world, 1), BATON_ERR_CANCELED);
	ck_assert_uint_eq(wanted_of(1), 0);
	atomic_fetch_and(&batoni_bell()->listening, ~BATONI_ASLEEP_DRIVER);
	assert_no_waits(&world);
}
END_TEST

START_TEST(signals_ring_from_the_wanted_count_on)
{
	struct batoni_bell *bell = &world.bells[2];
	_Atomic uint64_t *counter = batoni_segment_counter(
		&world.rma, world.segments[2], ME, 0, 0);

	atomic_store(&counter[1], 2);
	batoni_signal_store(&world.rma, 2, 0, 0, 1);
	batoni_signal_store(&world.rma, 2, 0, 0, 1);
	ck_assert_uint_eq(atomic_load(&bell->doorbell), 0);
	atomic_store(&counter[1], 4);
	atomic_store(&bell->listening, BATONI_ASLEEP_THREAD);
	batoni_signal_store(&world.rma, 2, 0, 0, 1);
	ck_assert_uint_eq(atomic_load(&bell->doorbell), 0);
	batoni_signal_store(&world.rma, 2, 0, 0, 1);
	batoni_signal_store(&world.rma, 2, 0, 0, 1);
	ck_assert_uint_eq(atomic_load(&bell->doorbell), 2);
}
END_TEST

START_TEST(wait_for_a_process_that_is_gone_ends_in_peer)
{
	struct baton_wait_signal_desc descs[] = {wait_desc(1, 1, 0, 0),
	                                         wait_desc(1, 2, 0, 0)};
	int fd = ended_process();

	if (fd < 0) {
		printf("no pidfd here\n");
		return;
	}
	world.peers[2].pidfd = fd;
	signal_from(&world, 2, 0, 1);
	describe_wait(&world, 0, 2, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	place(1, 1, 1);
	/* What it has signaled before counts, wherever the wait has got to. */
	descs[0] = wait_desc(1, 1, 1, 0);
	descs[1] = wait_desc(1, 2, 0, 1);
	describe_wait(&world, 2, 2, descs);
	batoni_wait_place(&world.rma, &world.transfers[2]);
	for (uint32_t slot = 0; slot < 3; slot++)
		ck_assert_int_eq(issue_wait(&world, slot), BATON_PENDING);
	world.rma.peers_checked_ns = 0;
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_ERR_PEER);
	signal_from(&world, 1, 1, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 2, BATON_OK);
	/* The units of the one that ended early are back. */
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 1, BATON_OK);
	batoni_pidfd_close(fd);
	assert_no_waits(&world);
}
END_TEST

/* Not only at the next check of the processes: waits that stand in order would each need one. */
START_TEST(wait_for_a_process_that_is_known_to_be_gone_ends_at_the_first_look)
{
	world.peers[2].gone = true;
	world.rma.peers_checked_ns = UINT64_MAX / 2; /* no check is due */
	signal_from(&world, 2, 0, 0);
	place(0, 1, 2);
	place(1, 1, 2);
	place(2, 1, 1);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_OK);
	ck_assert_int_eq(issue_wait(&world, 1), BATON_PENDING);
	ck_assert_int_eq(issue_wait(&world, 2), BATON_PENDING);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 1, BATON_ERR_PEER);
	signal_from(&world, 1, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 2, BATON_OK);
	assert_no_waits(&world);
}
END_TEST

/* Of peer 1 or 2: its process has ended, or lost MPI; its device's streams go on. */
static void
leave_streams(int peer)
{
	struct batoni_departure *departure = world.peers[peer].segment;

	atomic_store(&departure->away, 1);
	world.peers[peer].streams_here = true;
	world.peers[peer].within = false;
}

/* Streams of its device may go on: what they have under way gets time. */
START_TEST(wait_for_streams_of_a_process_that_is_gone_has_a_second_look)
{
	leave_streams(2);
	world.peers[2].gone = true;
	for (uint32_t slot = 0; slot < 2; slot++) {
		place(slot, 1, 2);
		ck_assert_int_eq(issue_wait(&world, slot), BATON_PENDING);
	}
	for (int i = 0; i < 2; i++) {
		/* The second look is the first check. */
		world.rma.peers_checked_ns = i == 0 ? UINT64_MAX / 2 : 0;
		ck_assert_uint_eq(test_waits(&world), 0);
	}
	/* A stream goes on. */
	signal_from(&world, 2, 0, 0);
	world.rma.peers_checked_ns = UINT64_MAX / 2;
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	world.rma.peers_checked_ns = 0;
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 1, BATON_ERR_PEER);
	/* It has been gone for long. */
	world.peers[2].silent = true;
	world.rma.peers_checked_ns = UINT64_MAX / 2;
	place(2, 1, 2);
	ck_assert_int_eq(issue_wait(&world, 2), BATON_PENDING);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 2, BATON_ERR_PEER);
	assert_no_waits(&world);
}
END_TEST

/* Each source: what another one's had is not its own. */
START_TEST(each_source_that_is_gone_has_a_second_look)
{
	struct baton_wait_signal_desc descs[2] = {wait_desc(1, 1, 0, 0),
	                                          wait_desc(1, 2, 0, 0)};

	leave_streams(1);
	describe_wait(&world, 0, 2, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	world.rma.peers_checked_ns = 0;
	ck_assert_uint_eq(test_waits(&world), 0);
	/* Its streams have gone on; now the other one goes. */
	signal_from(&world, 1, 0, 0);
	leave_streams(2);
	world.rma.peers_checked_ns = 0;
	ck_assert_uint_eq(test_waits(&world), 0);
	world.rma.peers_checked_ns = 0;
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_ERR_PEER);
	assert_no_waits(&world);
}
END_TEST

/* This peer signals while the other one is asked of.  -1: none. */
static int signals_meanwhile = -1;

bool __real_batoni_peer_is_gone(const struct batoni_peer *peer);
bool __wrap_batoni_peer_is_gone(const struct batoni_peer *peer);

bool
__wrap_batoni_peer_is_gone(const struct batoni_peer *peer)
{
	int signals = signals_meanwhile;

	if (signals >= 0 && peer != &world.peers[signals]) {
		signals_meanwhile = -1;
		signal_from(&world, signals, 0, 0);
	}
	return __real_batoni_peer_is_gone(peer);
}

/* A thread that is about to sleep looks again where a counter has grown.  That is no second check. */
START_TEST(a_second_look_is_the_next_check)
{
	struct baton_wait_signal_desc descs[2] = {wait_desc(1, 1, 0, 0),
	                                          wait_desc(1, 2, 0, 0)};

	atomic_store(&batoni_bell()->listening, BATONI_ASLEEP_THREAD);
	leave_streams(2);
	describe_wait(&world, 0, 2, descs);
	batoni_wait_place(&world.rma, &world.transfers[0]);
	ck_assert_int_eq(issue_wait(&world, 0), BATON_PENDING);
	world.rma.peers_checked_ns = 0;
	signals_meanwhile = 1;
	ck_assert_uint_eq(test_waits(&world), 0);
	ck_assert_int_eq(signals_meanwhile, -1);
	/* What was under way has come. */
	signal_from(&world, 2, 0, 0);
	ck_assert_uint_eq(test_waits(&world), 1);
	assert_ended(&world, 0, BATON_OK);
	atomic_store(&batoni_bell()->listening, 0);
	assert_no_waits(&world);
}
END_TEST

/* ---- everything, against a model ---------------------------------------- */

#define STEPS 20000

enum model_state {
	FREE,
	PLACED,
	ISSUED
};

static struct {
	enum model_state state;
	uint64_t units[RANKS], target[RANKS];
	uint64_t order;
} model[REQUESTS];
static uint64_t signaled[RANKS], given[RANKS];

static bool
model_met(uint32_t slot)
{
	for (int rank = 0; rank < RANKS; rank++)
		if (model[slot].units[rank] &&
		    signaled[rank] < model[slot].target[rank])
			return false;
	return true;
}

static void
model_gives_back(uint32_t slot)
{
	for (int rank = 0; rank < RANKS; rank++) {
		given[rank] -= model[slot].units[rank];
		for (uint32_t i = 0; i < REQUESTS; i++)
			if (model[i].order > model[slot].order)
				model[i].target[rank] -=
					model[slot].units[rank];
	}
	model[slot].state = FREE;
}

static void
model_places(uint32_t slot, uint64_t order)
{
	struct baton_wait_signal_desc descs[4];
	size_t count = 1 + (size_t)rand() % 4;

	for (int rank = 0; rank < RANKS; rank++)
		model[slot].units[rank] = 0;
	for (size_t i = 0; i < count; i++) {
		descs[i] = wait_desc(1 + rand() % 3, rand() % RANKS, 0, 0);
		model[slot].units[descs[i].peer] += (uint64_t)descs[i].op_count;
	}
	if (batoni_wait_describe(&world.rma, slot, count, descs) != BATON_OK)
		return;
	batoni_wait_place(&world.rma, &world.transfers[slot]);
	for (int rank = 0; rank < RANKS; rank++) {
		given[rank] += model[slot].units[rank];
		model[slot].target[rank] = given[rank];
	}
	model[slot].state = PLACED;
	model[slot].order = order;
}

/* Described, placed and issued at once. */
static void
model_issues_one(uint32_t slot, uint64_t order)
{
	struct baton_wait_signal_desc one = wait_desc(1 + rand() % 3,
	                                              rand() % RANKS, 0, 0);
	enum baton_status status;
	bool met;

	world.transfers[slot].direction = BATONI_WAIT;
	status = batoni_wait_issue_one(&world.rma, &world.transfers[slot], &one);
	if (status == BATON_ERR_AGAIN)
		return;
	for (int rank = 0; rank < RANKS; rank++) {
		model[slot].units[rank] =
			rank == one.peer ? (uint64_t)one.op_count : 0;
		given[rank] += model[slot].units[rank];
		model[slot].target[rank] = given[rank];
	}
	model[slot].order = order;
	met = model_met(slot);
	ck_assert_int_eq(status, met ? BATON_OK : BATON_PENDING);
	model[slot].state = met ? FREE : ISSUED;
}

static void
model_tests(void)
{
	size_t met = 0;

	for (uint32_t i = 0; i < REQUESTS; i++)
		met += model[i].state == ISSUED && model_met(i);
	ck_assert_uint_eq(test_waits(&world), met);
	while (world.ends) {
		uint32_t slot = world.ended[0]->slot;

		ck_assert_int_eq(world.status[0], BATON_OK);
		ck_assert(model[slot].state == ISSUED && model_met(slot));
		model[slot].state = FREE;
		rma_world_forget_end(&world);
	}
	/* Whoever is left has been looked at. */
	ck_assert_uint_eq(world.rma.base.path.load.parked, world.rma.base.path.load.in_flight);
}

static void
model_moves(uint32_t slot, uint64_t order)
{
	bool early = rand() % 3 == 0;

	if (model[slot].state == FREE && early) {
		model_issues_one(slot, order);
	} else if (model[slot].state == FREE) {
		model_places(slot, order);
	} else if (model[slot].state == PLACED && early) {
		batoni_wait_unplace(&world.rma, &world.transfers[slot]);
		model_gives_back(slot);
	} else if (model[slot].state == PLACED) {
		bool met = model_met(slot);

		ck_assert_int_eq(issue_wait(&world, slot), met ? BATON_OK : BATON_PENDING);
		model[slot].state = met ? FREE : ISSUED;
	} else if (early) {
		bool met = model_met(slot);

		ck_assert_int_eq(take_wait_back(&world, slot),
		                 met ? BATON_OK : BATON_ERR_CANCELED);
		if (met)
			model[slot].state = FREE;
		else
			model_gives_back(slot);
	}
}

START_TEST(any_sequence_does_as_the_model_says)
{
	unsigned seed = (unsigned)time(NULL);

	printf("seed %u\n", seed);
	srand(seed);
	for (uint64_t step = 1; step <= STEPS; step++) {
		int rank = rand() % RANKS;
		uint32_t issued = 0;

		if (rand() % 2) {
			signal_from(&world, rank, 0, 0);
			signaled[rank]++;
		}
		model_moves((uint32_t)rand() % REQUESTS, step);
		if (rand() % 3 == 0)
			model_tests();
		for (uint32_t i = 0; i < REQUESTS; i++)
			issued += model[i].state == ISSUED;
		ck_assert_uint_eq(world.rma.base.path.load.in_flight, issued);
	}
	for (uint32_t i = 0; i < REQUESTS; i++) {
		if (model[i].state == ISSUED)
			take_wait_back(&world, i);
		else if (model[i].state == PLACED)
			batoni_wait_unplace(&world.rma, &world.transfers[i]);
	}
	assert_no_waits(&world);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		signals_that_came_early_end_the_wait_within_issue,
		wait_ends_with_the_last_of_its_counters,
		counter_named_twice_adds_up,
		sums_do_not_overflow_32_bits,
		units_are_given_in_the_order_of_placing_not_of_issue,
		later_wait_waits_for_no_earlier_one,
		wait_that_units_given_back_meet_is_to_be_looked_at,
		giving_back_what_meets_nobody_wakes_nobody,
		units_that_an_abort_gives_back_meet_nobody,
		wait_that_is_never_issued_gives_its_units_back,
		wait_that_is_met_by_now_is_not_taken_back,
		description_without_nodes_is_again_and_keeps_none,
		waits_for_one_counter_take_what_nodes_there_are,
		every_failed_allocation_of_open_is_nomem_and_leaks_nothing,
		wait_is_parked_once_a_test_has_found_it_unmet,
		wait_that_messages_may_end_is_not_parked,
		source_that_has_signaled_by_message_parks_no_wait_of_its_context,
		who_sleeps_says_from_which_count_on_it_wants_to_be_woken,
		signals_ring_from_the_wanted_count_on,
		wait_for_a_process_that_is_gone_ends_in_peer,
		wait_for_a_process_that_is_known_to_be_gone_ends_at_the_first_look,
		wait_for_streams_of_a_process_that_is_gone_has_a_second_look,
		each_source_that_is_gone_has_a_second_look,
		a_second_look_is_the_next_check,
		any_sequence_does_as_the_model_says,
	};

	return RUN_TESTS_WITH("wait_signal", tests, setup, teardown);
}
