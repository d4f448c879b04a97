/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: the copies of short messages that are issued together, or that have come together,
 * are started together.  World and memory as in test_staging.c; here a rank issues several
 * messages and then ends its pass (flush).
 */
#include "run_tests.h"
#include "staging_world.h"

/* As many as a peer may have; slots and tags 0, 1, 2. */
enum { N = EAGER_PEER };

static struct world world;

static void
open_gathering(const char *devices)
{
	open_world(&world, devices, false);
	world.gathers = true;
}

static void
send_short(int peer, uint32_t slot)
{
	start_send(&world, 0, slot, peer, (int)slot, EAGER, slot, false);
}

static void
send_all(void)
{
	for (uint32_t i = 0; i < N; i++)
		send_short(1, i);
}

static void
recv_all(void)
{
	for (uint32_t i = 0; i < N; i++)
		start_recv(&world, 1, i, 0, (int)i, EAGER, false);
}

static void
assert_arrived(uint32_t slot)
{
	assert_ended(&world, 0, slot, BATON_OK, EAGER);
	assert_ended(&world, 1, slot, BATON_OK, EAGER);
	assert_content(&world, 1, slot, EAGER, slot);
}

static void
close_idle(void)
{
	for (int i = 0; i < world.size; i++)
		assert_idle(&world, i);
	close_world(&world);
}

START_TEST(messages_of_one_pass_are_one_start_in_each_direction)
{
	size_t before;

	open_gathering("ddd");
	recv_all();
	for (uint32_t i = 0; i < N; i++)
		start_recv(&world, 2, i, 0, (int)(N + i), EAGER, false);
	before = fake_memory_starts();
	send_all();
	for (uint32_t i = N; i < 2 * N; i++)
		send_short(2, i);
	ck_assert_uint_eq(fake_memory_starts(), before);
	flush(&world);
	ck_assert_uint_eq(fake_memory_starts(), before + 1);
	/* The peers look when all have come. */
	while (world.ranks[0].ends < 2 * N)
		step(&world, 0);
	ck_assert_uint_eq(fake_memory_starts(), before + 1);
	test_once(&world, 1);
	test_once(&world, 2);
	ck_assert_uint_eq(fake_memory_starts(), before + 3);
	run(&world);
	ck_assert_uint_eq(fake_memory_starts(), before + 3);
	for (uint32_t i = 0; i < N; i++) {
		assert_arrived(i);
		assert_content(&world, 2, i, EAGER, N + i);
	}
	close_idle();
}
END_TEST

START_TEST(a_test_ends_a_pass_too)
{
	size_t before;

	open_gathering("dd");
	recv_all();
	before = fake_memory_starts();
	send_all();
	test_once(&world, 0);
	ck_assert_uint_eq(fake_memory_starts(), before + 1);
	/* Nothing is left for the flush that was asked for. */
	flush(&world);
	ck_assert_uint_eq(fake_memory_starts(), before + 1);
	run(&world);
	for (uint32_t i = 0; i < N; i++)
		assert_arrived(i);
	close_idle();
}
END_TEST

START_TEST(both_directions_of_a_pass_are_two_starts)
{
	size_t before;

	open_gathering("dd");
	recv_all();
	for (uint32_t i = 0; i < N; i++)
		start_recv(&world, 0, 10 + i, 1, (int)i, EAGER, false);
	fake_memory_hold(true);
	for (uint32_t i = 0; i < N; i++)
		start_send(&world, 1, 10 + i, 0, (int)i, EAGER, 10 + i, true);
	before = fake_memory_starts();
	send_all();
	/* What has come, and what goes. */
	test_once(&world, 0);
	ck_assert_uint_eq(fake_memory_starts(), before + 2);
	ck_assert_uint_eq(fake_memory_copies(), 2 * N);
	fake_memory_hold(false);
	run(&world);
	for (uint32_t i = 0; i < N; i++) {
		assert_arrived(i);
		assert_content(&world, 0, 10 + i, EAGER, 10 + i);
	}
	close_idle();
}
END_TEST

/* They have one end. */
START_TEST(what_was_started_together_goes_on_when_all_of_it_has_ended)
{
	open_gathering("dd");
	recv_all();
	fake_memory_hold(true);
	send_all();
	flush(&world);
	ck_assert_uint_eq(fake_memory_copies(), N);
	fake_memory_end(2);
	fake_memory_end(0);
	step(&world, 0);
	ck_assert_uint_eq(world.ranks[0].ends, 0);
	fake_memory_end(0);
	step(&world, 0);
	ck_assert_uint_eq(world.ranks[0].ends, N);
	fake_memory_hold(false);
	run(&world);
	for (uint32_t i = 0; i < N; i++)
		assert_arrived(i);
	close_idle();
}
END_TEST

START_TEST(longer_pieces_and_managed_memory_start_by_themselves_and_at_once)
{
	size_t before;

	open_gathering("dd");
	world.managed = true;
	before = fake_memory_starts();
	send_all();
	ck_assert_uint_eq(fake_memory_starts(), before + N);
	recv_all();
	run(&world);
	ck_assert_uint_eq(fake_memory_starts(), before + 2 * N);
	world.managed = false;
	/* Two pieces there are, and the rest of EAGER bytes. */
	before = fake_memory_starts();
	start_recv(&world, 1, 20, 0, 0, 2 * CHUNK + EAGER, true);
	start_send(&world, 0, 20, 1, 0, 2 * CHUNK + EAGER, 20, false);
	run(&world);
	assert_content(&world, 1, 20, 2 * CHUNK + EAGER, 20);
	ck_assert_uint_eq(fake_memory_starts(), before + 3);
	close_idle();
}
END_TEST

/* Copies started together run in any order, and none may write what another one writes: the world
 * counts that as a violation. */
START_TEST(receives_into_one_buffer_are_not_started_together)
{
	struct batoni_transfer *transfers;
	size_t before;

	open_gathering("dd");
	transfers = world.ranks[1].transfers;
	recv_all();
	transfers[1].buffer = transfers[0].buffer;
	send_all();
	flush(&world);
	while (world.ranks[0].ends < N)
		step(&world, 0);
	before = fake_memory_starts();
	test_once(&world, 1);
	/* 0; 1 and 2. */
	ck_assert_uint_eq(fake_memory_starts(), before + 2);
	run(&world);
	assert_arrived(2);
	close_idle();
}
END_TEST

START_TEST(a_device_that_cannot_start_several_gets_one_after_the_other)
{
	struct batoni_memory_ops single = batoni_fake_memory_ops;
	size_t before;

	open_gathering("dd");
	single.batches = NULL;
	for (int i = 0; i < 2; i++)
		stage_of(&world, i)->memory = &single;
	before = fake_memory_starts();
	recv_all();
	send_all();
	ck_assert_uint_eq(fake_memory_starts(), before + N);
	run(&world);
	ck_assert_uint_eq(fake_memory_starts(), before + 2 * N);
	for (uint32_t i = 0; i < N; i++)
		assert_arrived(i);
	close_idle();
}
END_TEST

/* ---- a device that refuses ------------------------------------------------- */

START_TEST(copies_that_the_device_cannot_take_now_are_tried_again)
{
	for (unsigned n = 1; n <= N; n++) {
		open_gathering("dd");
		recv_all();
		fake_memory_hold(true);
		send_all();
		fake_device_fail_at(FAKE_COPY_START, n, BATON_ERR_AGAIN);
		flush(&world);
		/* Those before it are under way. */
		ck_assert_uint_eq(fake_memory_copies(), n - 1);
		send_short(1, N); /* asks, or is short of an eager buffer */
		test_once(&world, 0);
		ck_assert_uint_eq(fake_memory_copies(), N);
		start_recv(&world, 1, N, 0, N, EAGER, false);
		fake_memory_hold(false);
		run(&world);
		for (uint32_t i = 0; i <= N; i++)
			assert_arrived(i);
		close_idle();
	}
}
END_TEST

/* It fails alone, and with it its rank. */
START_TEST(one_of_several_that_fails_leaves_the_others_under_way)
{
	for (unsigned n = 1; n <= N; n++) {
		open_gathering("dd");
		fake_memory_hold(true);
		send_all();
		fake_device_fail_at(FAKE_COPY_START, n, BATON_ERR_CUDA);
		flush(&world);
		ck_assert_int_eq(world.ranks[0].broken, BATON_ERR_CUDA);
		for (uint32_t i = 0; i < N; i++) {
			if (i + 1 == n)
				assert_ended(&world, 0, i, BATON_ERR_CUDA, 0);
			else
				assert_pending(&world, 0, i);
		}
		ck_assert_uint_eq(fake_memory_copies(), N - 1);
		fake_memory_hold(false);
		close_world(&world);
	}
}
END_TEST

START_TEST(an_end_that_fails_is_that_of_all)
{
	open_gathering("dd");
	send_all();
	fake_device_fail_at(FAKE_COPY_TEST, 1, BATON_ERR_CUDA);
	flush(&world);
	while (world.ranks[0].ends < N)
		step(&world, 0);
	for (uint32_t i = 0; i < N; i++)
		assert_ended(&world, 0, i, BATON_ERR_CUDA, 0);
	ck_assert_int_eq(world.ranks[0].broken, BATON_ERR_CUDA);
	close_world(&world);
}
END_TEST

/* ---- ending early ---------------------------------------------------------- */

/* Its buffer is free at once: the device has not been asked for the copy. */
START_TEST(a_send_is_taken_back_before_its_copy_is_started)
{
	size_t before;

	open_gathering("dd");
	recv_all();
	before = fake_memory_starts();
	send_all();
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_CANCELED);
	fake_memory_free(world.ranks[0].buffers[1]);
	world.ranks[0].buffers[1] = NULL;
	flush(&world);
	ck_assert_uint_eq(fake_memory_starts(), before + 1);
	run(&world);
	assert_arrived(0);
	assert_arrived(2);
	assert_pending(&world, 1, 1);
	ck_assert_uint_eq(in_use(&world, 0, SENDS, EAGERS), 0);
	/* Of all that were to be started. */
	start_send(&world, 0, 10, 1, 10, EAGER, 10, false);
	ck_assert_int_eq(take_back(&world, 0, 10), BATON_ERR_CANCELED);
	before = fake_memory_starts();
	flush(&world);
	test_once(&world, 0);
	ck_assert_uint_eq(fake_memory_starts(), before);
	start_send(&world, 0, 11, 1, 1, EAGER, 1, false);
	run(&world);
	assert_content(&world, 1, 1, EAGER, 1);
	close_idle();
}
END_TEST

/* The line of its tag goes on, and one whose copy was started is waited for. */
START_TEST(a_line_goes_on_without_the_one_that_was_taken_back)
{
	open_gathering("dd");
	for (uint32_t i = 0; i < N; i++)
		start_recv(&world, 1, i, 0, 0, EAGER, false);
	fake_memory_hold(true);
	for (uint32_t i = 0; i < N; i++)
		start_send(&world, 0, i, 1, 0, EAGER, i, false);
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_CANCELED);
	flush(&world);
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_BUSY);
	fake_memory_hold(false);
	run(&world);
	assert_ended(&world, 0, 1, BATON_ERR_CANCELED, 0);
	assert_content(&world, 1, 0, EAGER, 2);
	assert_pending(&world, 1, 1);
	ck_assert_int_eq(take_back(&world, 1, 1), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_back(&world, 1, 2), BATON_ERR_CANCELED);
	close_idle();
}
END_TEST

START_TEST(an_abort_starts_nothing_and_waits_for_what_was_started)
{
	size_t before = fake_memory_starts();

	open_gathering("dd");
	send_all();
	close_rank(&world, 0);
	ck_assert_uint_eq(fake_memory_starts(), before);
	close_world(&world);
	open_gathering("dd");
	fake_memory_delay(2000);
	send_all();
	flush(&world);
	close_rank(&world, 0);
	ck_assert_uint_eq(fake_memory_copies(), 0);
	close_world(&world);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		messages_of_one_pass_are_one_start_in_each_direction,
		a_test_ends_a_pass_too,
		both_directions_of_a_pass_are_two_starts,
		what_was_started_together_goes_on_when_all_of_it_has_ended,
		longer_pieces_and_managed_memory_start_by_themselves_and_at_once,
		receives_into_one_buffer_are_not_started_together,
		a_device_that_cannot_start_several_gets_one_after_the_other,
		copies_that_the_device_cannot_take_now_are_tried_again,
		one_of_several_that_fails_leaves_the_others_under_way,
		an_end_that_fails_is_that_of_all,
		a_send_is_taken_back_before_its_copy_is_started,
		a_line_goes_on_without_the_one_that_was_taken_back,
		an_abort_starts_nothing_and_waits_for_what_was_started,
	};

	return RUN_TESTS("staging_packing", tests);
}
