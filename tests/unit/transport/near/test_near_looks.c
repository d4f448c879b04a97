/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rings near looks at (transport/near/near.c): a pass at those of ranks that have called, and a
 * waiter (await) at that of one rank; and in which order a message is written for a reader that polls.
 */
#include <check.h>
#include <string.h>
#include <sys/mman.h>

#include "mem.h"
#include "near_world.h"
#include "run_tests.h"

enum { LONG = 3 << 20 };

static struct near_world world;
static unsigned char from[LONG], to[LONG];

static enum baton_status
end_of(int rank, uint32_t slot)
{
	return world.ranks[rank].ends[slot];
}

static void
open_world(enum near_reach reach)
{
	memset(from, 5, sizeof(from));
	memset(to, 0, sizeof(to));
	near_open(&world, reach, false);
}

static void
close_world(void)
{
	near_close_all(&world, false);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* Nothing may look at the ring from one rank to another; or anything may again. */
static void
forbid(int sender, int receiver, bool forbidden)
{
	char *cells = batoni_ring_cells_of(&world.layout, world.ranks[receiver].area,
	                                   sender);

	ck_assert_int_eq(mprotect(cells, BATONI_RING_BYTES,
	                          forbidden ? PROT_NONE : PROT_READ | PROT_WRITE),
	                 0);
}

/* A look would end the test in SIGSEGV. */
START_TEST(a_pass_does_not_look_at_the_rings_of_silent_ranks)
{
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 0, 2, 3, to, 8);
	near_recv(&world, 1, 1, 0, 3, to, 8);
	forbid(2, 1, true);
	for (int i = 0; i < 1000; i++)
		near_pass(&world, 1);
	near_send(&world, 0, 0, 1, 3, from, 8);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 1), BATON_OK);
	forbid(2, 1, false);
	near_send(&world, 2, 0, 1, 3, from, 8);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 0), BATON_OK);
	close_world();
}
END_TEST

START_TEST(a_waiter_takes_what_its_peer_has_sent)
{
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 0, 0, 3, to, 8);
	near_recv(&world, 1, 1, 0, 4, to + 8, 8);
	near_recv(&world, 1, 2, 2, 3, to + 16, 8);
	near_send(&world, 2, 0, 1, 3, from, 8);
	ck_assert_uint_eq(near_await_one(&world, 1, 0), 0);
	ck_assert_int_eq(end_of(1, 2), BATON_PENDING);
	near_send(&world, 0, 0, 1, 4, from, 8);
	near_send(&world, 0, 1, 1, 3, from, 8);
	ck_assert_uint_eq(near_await_one(&world, 1, 0), 2);
	ck_assert_int_eq(end_of(1, 0), BATON_OK);
	ck_assert_int_eq(end_of(1, 1), BATON_OK);
	ck_assert_int_eq(end_of(1, 2), BATON_PENDING);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 2), BATON_OK);
	ck_assert(memcmp(to, from, 24) == 0);
	close_world();
}
END_TEST

START_TEST(the_waiter_of_an_announced_send_sees_that_it_was_copied)
{
	open_world(NEAR_WITHIN);
	near_send(&world, 0, 0, 1, 3, from, LONG / 100);
	ck_assert_uint_eq(near_await_one(&world, 0, 0), 0);
	near_recv(&world, 1, 0, 0, 3, to, LONG / 100);
	near_run(&world);
	ck_assert_int_eq(end_of(0, 0), BATON_OK);
	near_recv(&world, 1, 0, 0, 3, to, LONG / 100);
	near_send(&world, 0, 0, 1, 3, from, LONG / 100);
	while (end_of(1, 0) == BATON_PENDING)
		near_pass(&world, 1);
	ck_assert_int_eq(end_of(0, 0), BATON_PENDING);
	ck_assert_uint_eq(near_await_one(&world, 0, 0), 1);
	ck_assert_int_eq(end_of(0, 0), BATON_OK);
	close_world();
}
END_TEST

/* More than a pass copies is on its way: only passes go on with it, whatever a waiter waits for. */
START_TEST(while_something_is_copied_a_waiter_asks_for_passes)
{
	open_world(NEAR_READ);
	near_recv(&world, 1, 0, 0, 3, to, LONG);
	near_recv(&world, 1, 1, 2, 3, to, 8);
	near_send(&world, 0, 0, 1, 3, from, LONG);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 0), BATON_PENDING);
	near_send(&world, 2, 0, 1, 3, from, 8);
	ck_assert_uint_eq(near_await_one(&world, 1, 0), 0);
	ck_assert_uint_eq(near_await_one(&world, 1, 1), 0);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 0), BATON_OK);
	ck_assert_int_eq(end_of(1, 1), BATON_OK);
	close_world();
}
END_TEST

/* A message is written in another order up to a length, and its lines begin at either of their cells. */
START_TEST(every_length_arrives_from_every_place_in_the_ring)
{
	enum { LENGTHS = 1200 };

	open_world(NEAR_WITHIN);
	for (size_t i = 0; i < LENGTHS; i++)
		from[i] = (unsigned char)(i * 11 + i / 256);
	for (size_t round = 0; round < 3; round++) {
		for (size_t n = 0; n < LENGTHS; n++) {
			memset(to, 0, LENGTHS);
			near_recv(&world, 1, 0, 0, 3, to, LENGTHS);
			near_send(&world, 0, 0, 1, 3, from + n % 7, n);
			near_pass(&world, 1);
			ck_assert_int_eq(end_of(1, 0), BATON_OK);
			ck_assert(memcmp(to, from + n % 7, n) == 0);
			ck_assert_uint_eq(to[n], 0);
		}
	}
	close_world();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("near_looks");
	TCase *tcase = tcase_create("near_looks");

	tcase_add_test(tcase, a_pass_does_not_look_at_the_rings_of_silent_ranks);
	tcase_add_test(tcase, a_waiter_takes_what_its_peer_has_sent);
	tcase_add_test(tcase,
	               the_waiter_of_an_announced_send_sees_that_it_was_copied);
	tcase_add_test(tcase, every_length_arrives_from_every_place_in_the_ring);
	tcase_add_test(tcase, while_something_is_copied_a_waiter_asks_for_passes);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
