/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages through shared memory (transport/near/): each state of a transfer, room and credit, what
 * a peer may write that no Baton writes, and lack of memory.  Three ranks in one process
 * (near_world.h); the test says who looks when, and writes into areas as a faulty peer would.
 */
#include <check.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "near_world.h"
#include "run_tests.h"

enum { LONG = 20000, HUGE_BYTES = 5 << 18, CELLS = (int)BATONI_RING_CELLS };

static struct near_world world;
static unsigned char from[HUGE_BYTES], to[HUGE_BYTES];

static void
set_up(void)
{
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + i / 256);
	memset(to, 0, sizeof(to));
}

static void
open_world(enum near_reach reach)
{
	near_open(&world, reach, false);
}

static void
close_world(bool aborted)
{
	near_close_all(&world, aborted);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static unsigned char *
map_pages(size_t bytes)
{
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	return pages;
}

static enum baton_status
end_of(int rank, uint32_t slot)
{
	return world.ranks[rank].ends[slot];
}

static void
assert_arrived(int rank, uint32_t slot, size_t bytes)
{
	ck_assert_int_eq(end_of(rank, slot), BATON_OK);
	ck_assert_uint_eq(world.ranks[rank].transfers[slot].done_bytes, bytes);
}

static void
assert_idle(void)
{
	for (int i = 0; i < NEAR_RANKS; i++) {
		const struct batoni_load *load =
			&world.ranks[i].transport->messages.load;

		ck_assert_uint_eq(load->in_flight, 0);
		ck_assert_uint_eq(load->moving, 0);
		ck_assert_int_eq(world.ranks[i].broken, BATON_OK);
	}
}

/* ---- lengths ---- */

START_TEST(every_length_arrives_however_it_is_read)
{
	static const size_t lengths[] = {
		0, 1, 16, 17, 48, 49, 8191, 8192, 8193, 16384, 16385, LONG,
		(1 << 20) + 1, HUGE_BYTES,
	};

	open_world((enum near_reach)_i);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (int first = 0; first < 2; first++) {
			size_t n = lengths[i];

			memset(to, 0, n);
			if (first)
				near_recv(&world, 1, 7, 0, 3, to, sizeof(to));
			near_send(&world, 0, 5, 1, 3, from, n);
			if (!first)
				near_recv(&world, 1, 7, 0, 3, to, sizeof(to));
			near_run(&world);
			assert_arrived(0, 5, n);
			assert_arrived(1, 7, n);
			ck_assert(memcmp(to, from, n) == 0);
		}
	}
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(a_message_to_oneself_arrives)
{
	open_world((enum near_reach)_i);
	near_send(&world, 1, 0, 1, 3, from, HUGE_BYTES);
	near_recv(&world, 1, 1, 1, 3, to, HUGE_BYTES);
	near_run(&world);
	assert_arrived(1, 0, HUGE_BYTES);
	assert_arrived(1, 1, HUGE_BYTES);
	ck_assert(memcmp(to, from, HUGE_BYTES) == 0);
	close_world(false);
}
END_TEST

START_TEST(truncation_writes_nothing_and_ends_the_send_well)
{
	open_world((enum near_reach)_i);
	for (int first = 0; first < 2; first++) {
		for (size_t n = 100; n <= LONG; n += LONG - 100) {
			if (first)
				near_recv(&world, 1, 1, 0, 3, to, n - 1);
			near_send(&world, 0, 0, 1, 3, from, n);
			if (!first)
				near_recv(&world, 1, 1, 0, 3, to, n - 1);
			near_run(&world);
			assert_arrived(0, 0, n);
			ck_assert_int_eq(end_of(1, 1), BATON_ERR_TRUNCATED);
			ck_assert_uint_eq(world.ranks[1].transfers[1].done_bytes,
			                  n);
			ck_assert_int_eq(to[1], 0);
		}
	}
	assert_idle();
	close_world(false);
}
END_TEST

/* ---- how much is copied ---- */

enum { MANY = 200 };

/* Of the receives in the slots from 0 on. */
static size_t
copied_bytes(void)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < MANY; i++)
		bytes += end_of(1, i) == BATON_OK
		                 ? world.ranks[1].transfers[i].done_bytes
		                 : near_node_of(&world, 1, i)->moved;
	return bytes;
}

/* To receives that are posted: messages of the longest that a call copies. */
static void
announce_many(void)
{
	for (uint32_t i = 0; i < MANY; i++)
		near_recv(&world, 1, i, 0, (int)i, to, NEAR_INLINE_MAX);
	for (uint32_t i = 0; i < MANY; i++)
		near_send(&world, 0, i, 1, (int)i, from, NEAR_INLINE_MAX);
	ck_assert_uint_eq(copied_bytes(), 0);
}

static void
assert_many_arrive(void)
{
	near_run(&world);
	for (uint32_t i = 0; i < MANY; i++)
		assert_arrived(1, i, NEAR_INLINE_MAX);
	ck_assert(memcmp(to, from, NEAR_INLINE_MAX) == 0);
}

START_TEST(a_call_copies_no_more_than_one_message)
{
	open_world((enum near_reach)_i);
	announce_many();
	ck_assert_int_eq(near_recv(&world, 1, MANY, 0, MANY, to, 1),
	                 BATON_PENDING);
	ck_assert_uint_eq(copied_bytes(), NEAR_INLINE_MAX);
	assert_many_arrive();
	near_take(&world, 1, MANY);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(a_pass_copies_no_more_than_its_share)
{
	open_world((enum near_reach)_i);
	announce_many();
	near_pass(&world, 1);
	ck_assert_uint_eq(copied_bytes(), NEAR_PASS_MAX);
	near_pass(&world, 1);
	ck_assert_uint_eq(copied_bytes(), 2 * NEAR_PASS_MAX);
	assert_many_arrive();
	assert_idle();
	close_world(false);
}
END_TEST

/* ---- taking back ---- */

START_TEST(taking_back_in_a_loop_costs_the_receiver_no_memory)
{
	size_t bytes = 0;

	open_world(NEAR_WITHIN);
	for (int i = 0; i < 5000; i++) {
		ck_assert_int_eq(near_send(&world, 0, 0, 1, i % 5, from, LONG),
		                 BATON_PENDING);
		near_pass(&world, 1);
		ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_CANCELED);
		if (i == 10)
			bytes = batoni_mem_bytes();
	}
	ck_assert_uint_eq(batoni_mem_bytes(), bytes);
	/* Of what was taken back nothing is met. */
	near_recv(&world, 1, 1, 0, 4, to, LONG);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 1), BATON_PENDING);
	near_send(&world, 0, 0, 1, 4, from, LONG);
	near_run(&world);
	assert_arrived(1, 1, LONG);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(a_match_wins_against_a_take_back)
{
	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 1), BATON_PENDING);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_BUSY);
	near_run(&world);
	assert_arrived(0, 0, HUGE_BYTES);
	assert_arrived(1, 1, HUGE_BYTES);
	ck_assert(memcmp(to, from, HUGE_BYTES) == 0);
	close_world(false);
}
END_TEST

START_TEST(a_take_back_finds_what_was_copied_before_its_done_is_read)
{
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 1, 0, 3, to, LONG);
	near_send(&world, 0, 0, 1, 3, from, LONG);
	while (end_of(1, 1) == BATON_PENDING)
		near_pass(&world, 1);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_OK);
	assert_arrived(0, 0, LONG);
	/* The DONE that comes is of nobody, also if another send has the slot. */
	near_send(&world, 0, 0, 1, 3, from, LONG);
	near_run(&world);
	ck_assert_int_eq(end_of(0, 0), BATON_PENDING);
	near_recv(&world, 1, 1, 0, 3, to, LONG);
	near_run(&world);
	assert_arrived(0, 0, LONG);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(a_receive_that_has_met_nothing_is_taken_back)
{
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 1, 0, 3, to, 8);
	near_recv(&world, 1, 2, 0, 3, to + 8, 8);
	ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_CANCELED);
	near_send(&world, 0, 0, 1, 3, from, 8);
	near_run(&world);
	assert_arrived(1, 2, 8);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(a_scrapped_receive_is_not_written_any_more)
{
	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_BUSY);
	ck_assert_int_eq(near_scrap(&world, 1, 1), BATON_OK);
	memset(to, 0x77, sizeof(to));
	near_run(&world);
	assert_arrived(0, 0, HUGE_BYTES);
	ck_assert_int_ne(end_of(1, 1), BATON_PENDING);
	/* Each byte is as the one before it. */
	ck_assert_int_eq(to[0], 0x77);
	ck_assert(memcmp(to, to + 1, sizeof(to) - 1) == 0);
	assert_idle();
	close_world(false);
}
END_TEST

/* ---- room and credit ---- */

/* Messages of one cell from this rank, until one is not short any more. */
static uint32_t
fill_ring(int rank, int peer)
{
	uint32_t slot = 0;

	while (near_send(&world, rank, slot, peer, 1, &from[slot], 1) == BATON_OK)
		slot++;
	return slot;
}

START_TEST(done_is_seen_where_there_is_no_room_to_say_so)
{
	uint32_t n;

	open_world(NEAR_WITHIN);
	near_send(&world, 0, 0, 1, 3, from, 12000);
	near_pass(&world, 1);
	n = fill_ring(1, 0);
	ck_assert_uint_eq(n, CELLS - 1);
	ck_assert_int_eq(near_recv(&world, 1, 4000, 0, 3, to, 12000), BATON_OK);
	ck_assert_uint_eq(near_pairs(&world, 0)->peers[1].in.control->scan, 1);
	ck_assert_int_eq(end_of(0, 0), BATON_PENDING);
	near_run(&world);
	assert_arrived(0, 0, 12000);
	/* The one that found no room has its turn. */
	ck_assert_int_eq(near_node_of(&world, 1, n)->state, NEAR_IDLE);
	close_world(true);
}
END_TEST

START_TEST(without_credit_short_messages_are_announced_and_the_receiver_keeps_no_more)
{
	uint32_t n = 0;
	size_t bytes;

	open_world(NEAR_WITHIN);
	/* The receiver takes all out, and none is received. */
	while (near_send(&world, 0, n, 1, 1, &from[n], 1) == BATON_OK) {
		near_pass(&world, 1);
		n++;
	}
	ck_assert_uint_eq(n, BATONI_RING_CREDIT);
	near_run(&world);
	bytes = batoni_mem_bytes();
	for (uint32_t i = 0; i < 100; i++) {
		ck_assert_int_eq(end_of(0, n), BATON_PENDING);
		ck_assert_int_eq(near_node_of(&world, 0, n)->state,
		                 NEAR_ANNOUNCED);
		near_take(&world, 0, n);
		near_send(&world, 0, n, 1, 1, &from[n], 1);
		near_run(&world);
	}
	/* One announcement of a slot. */
	ck_assert_uint_le(batoni_mem_bytes(), bytes + 4096);
	for (uint32_t i = 0; i <= n; i++) {
		near_recv(&world, 1, i, 0, 1, &to[i], 1);
		assert_arrived(1, i, 1);
	}
	near_run(&world);
	assert_arrived(0, n, 1);
	ck_assert(memcmp(to, from, n + 1) == 0);
	/* There is credit again. */
	ck_assert_int_eq(near_send(&world, 0, 0, 1, 1, from, 1), BATON_OK);
	assert_idle();
	close_world(false);
}
END_TEST

/* One by one: their slots and bytes are their numbers. */
static size_t
length_of(uint32_t number)
{
	static const size_t lengths[] = {1, 8192, 0, 9000, 40, 70000};

	return lengths[number % 6];
}

START_TEST(what_waits_for_room_keeps_its_order)
{
	enum { N = 700 };
	uint32_t starved = 0;

	open_world((enum near_reach)_i);
	for (uint32_t i = 0; i < N; i++) {
		near_send(&world, 0, i, 1, (int)(i % 2), from + i, length_of(i));
		starved += near_node_of(&world, 0, i)->state == NEAR_STARVED;
	}
	ck_assert_uint_gt(starved, 100);
	/* Of those that wait one is taken back. */
	ck_assert_int_eq(near_take(&world, 0, N - 5), BATON_ERR_CANCELED);
	for (uint32_t i = 0; i < N; i++) {
		if (i == N - 5)
			continue;
		near_recv(&world, 1, i, 0, (int)(i % 2), to, 70000);
		near_run(&world);
		assert_arrived(1, i, length_of(i));
		ck_assert(memcmp(to, from + i, length_of(i)) == 0);
	}
	near_run(&world);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(end_of(0, i),
		                 i == N - 5 ? BATON_ERR_CANCELED : BATON_OK);
	assert_idle();
	close_world(false);
}
END_TEST

/* ---- matching ---- */

START_TEST(arrivals_are_met_in_order_on_each_tag)
{
	enum { N = 300, TAGS = 7 };

	open_world(NEAR_WITHIN);
	for (uint32_t i = 0; i < N; i++)
		near_send(&world, 0, i, 1, (int)(i % TAGS), from + i,
		          i % 4 ? 4 : 8200);
	near_run(&world);
	for (int tag = TAGS - 1; tag >= 0; tag--) {
		for (uint32_t i = (uint32_t)tag; i < N; i += TAGS) {
			near_recv(&world, 1, i, 0, tag, to, 8200);
			near_run(&world);
			assert_arrived(1, i, i % 4 ? 4 : 8200);
			ck_assert(memcmp(to, from + i, 4) == 0);
		}
	}
	near_run(&world);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(the_last_hidden_tag_is_received_from_any_rank)
{
	struct batoni_transport *transport;
	int any, tag;

	open_world(NEAR_WITHIN);
	transport = world.ranks[1].transport;
	any = transport->any_peer;
	tag = transport->hidden_tag - 1 + NEAR_HIDDEN;
	near_send(&world, 2, 0, 1, tag, from + 2, 100);
	near_run(&world);
	near_recv(&world, 1, 0, any, tag, to, 100);
	near_run(&world);
	assert_arrived(1, 0, 100);
	ck_assert(memcmp(to, from + 2, 100) == 0);
	near_recv(&world, 1, 0, any, tag, to, 100);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 0), BATON_PENDING);
	near_send(&world, 0, 1, 1, tag, from, 100);
	near_run(&world);
	assert_arrived(1, 0, 100);
	ck_assert(memcmp(to, from, 100) == 0);
	/* On the other tags it is each rank's own. */
	near_recv(&world, 1, 0, 2, tag - 1, to, 100);
	near_send(&world, 0, 1, 1, tag - 1, from, 100);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 0), BATON_PENDING);
	near_take(&world, 1, 0);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(types_are_compared_in_checked_mode)
{
	near_open(&world, NEAR_WITHIN, true);
	for (size_t n = 8; n <= LONG; n += LONG - 8) {
		near_send(&world, 0, 0, 1, 3, from, n);
		near_run(&world);
		/* The test's transfers are all of one type: this one was changed. */
		near_recv(&world, 1, 1, 0, 4, to, n);
		world.ranks[1].transfers[1].type = BATON_FLOAT32;
		near_send(&world, 0, 1, 1, 4, from, n);
		near_run(&world);
		ck_assert_int_eq(end_of(1, 1), BATON_ERR_MISMATCH);
		ck_assert_int_eq(end_of(0, 1), BATON_OK);
		near_recv(&world, 1, 1, 0, 3, to, n);
		near_run(&world);
		assert_arrived(1, 1, n);
	}
	assert_idle();
	close_world(false);
}
END_TEST

/* ---- the end ---- */

START_TEST(a_rank_that_closes_gives_up_its_sends)
{
	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_send(&world, 0, 1, 1, 4, from, LONG);
	near_pass(&world, 1);
	near_close_rank(&world, 0, true);
	memset(from, 0, sizeof(from));
	near_run(&world);
	/* By chunks it hears of it from the side channel. */
	ck_assert_int_eq(end_of(1, 1), _i == NEAR_BY_CHUNKS ? BATON_PENDING
	                                                    : BATON_ERR_PEER);
	if (_i == NEAR_BY_CHUNKS)
		ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_CANCELED);
	/* What it had announced is no more. */
	near_recv(&world, 1, 2, 0, 4, to, LONG);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 2), BATON_PENDING);
	ck_assert_int_eq(near_take(&world, 1, 2), BATON_ERR_CANCELED);
	close_world(true);
}
END_TEST

/* What is copied from the address itself: the buffer may be freed when its rank has closed. */
START_TEST(what_a_rank_of_this_process_gave_up_is_not_read_any_more)
{
	const size_t bytes = (size_t)4 << 20;
	unsigned char *source = map_pages(bytes), *target = map_pages(bytes);

	memset(source, 7, bytes);
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 1, 0, 3, target, bytes);
	near_send(&world, 0, 0, 1, 3, source, bytes);
	near_pass(&world, 1);
	ck_assert_uint_eq(near_node_of(&world, 1, 1)->moved, NEAR_PASS_MAX);
	near_close_rank(&world, 0, true);
	ck_assert_int_eq(mprotect(source, bytes, PROT_NONE), 0);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 1), BATON_ERR_PEER);
	ck_assert_int_eq(target[NEAR_PASS_MAX - 1], 7);
	ck_assert_int_eq(target[NEAR_PASS_MAX], 0);
	munmap(source, bytes);
	munmap(target, bytes);
	close_world(true);
}
END_TEST

START_TEST(what_a_reader_that_closed_had_matched_is_taken_back)
{
	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	near_pass(&world, 0);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	near_close_rank(&world, 1, true);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(world.ranks[0].transport->messages.load.in_flight, 0);
	close_world(true);
}
END_TEST

/* An abort lends nothing: the program may free the buffer at once. */
START_TEST(what_a_peer_has_matched_is_given_up_at_an_abort)
{
	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	near_pass(&world, 0);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	world.ranks[0].transport->messages.ending = true;
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(world.ranks[0].transport->messages.load.in_flight, 0);
	near_run(&world);
	if (end_of(1, 1) == BATON_PENDING) {
		near_close_rank(&world, 0, true);
		ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_CANCELED);
	} else {
		ck_assert_int_eq(end_of(1, 1), BATON_ERR_PEER);
	}
	close_world(true);
}
END_TEST

/* A send that was lent before the abort, whose buffer is about to go. */
START_TEST(what_is_scrapped_is_not_read)
{
	struct batoni_path *path;

	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	near_pass(&world, 0);
	path = &world.ranks[0].transport->messages;
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	ck_assert_int_eq(batoni_path_scrap(path, &world.ranks[0].transfers[0]),
	                 BATON_ERR_BUSY);
	path->ending = true;
	ck_assert_int_eq(batoni_path_scrap(path, &world.ranks[0].transfers[0]),
	                 BATON_OK);
	ck_assert_int_eq(end_of(0, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(path->load.in_flight, 0);
	near_run(&world);
	ck_assert_int_ne(end_of(1, 1), BATON_OK);
	close_world(true);
}
END_TEST

/* The engine asks for it once. */
START_TEST(what_is_lent_comes_back_when_its_peer_has_gone)
{
	open_world((enum near_reach)_i);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	near_pass(&world, 0);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	near_pairs(&world, 0)->tests = UINT_MAX;
	near_pass(&world, 0);
	ck_assert_int_eq(end_of(0, 0), BATON_PENDING);
	near_close_rank(&world, 1, true);
	near_pairs(&world, 0)->tests = UINT_MAX;
	near_pass(&world, 0);
	ck_assert_int_eq(end_of(0, 0), BATON_ERR_PEER);
	/* The same of a receive that waits for chunks. */
	near_recv(&world, 0, 0, 2, 3, to, HUGE_BYTES);
	near_send(&world, 2, 0, 0, 3, from, HUGE_BYTES);
	near_pass(&world, 0);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	near_close_rank(&world, 2, true);
	near_pairs(&world, 0)->tests = UINT_MAX;
	near_run(&world);
	ck_assert_int_eq(end_of(0, 0), BATON_ERR_PEER);
	ck_assert_uint_eq(near_pairs(&world, 0)->asked, 0);
	ck_assert_uint_eq(world.ranks[0].transport->messages.load.in_flight, 0);
	close_world(true);
}
END_TEST

/* Its process was killed when it had published the message, and before it set its bit. */
START_TEST(what_a_peer_published_before_it_was_killed_arrives)
{
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 0, 0, 3, to, 8);
	near_recv(&world, 1, 1, 0, 4, to + 8, 8);
	near_send(&world, 0, 0, 1, 3, from, 8);
	atomic_store(batoni_ring_bits(world.ranks[1].area, 0), 0);
	for (int i = 0; i < 64; i++)
		near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 0), BATON_PENDING);
	world.ranks[1].peers[0].gone = true;
	for (int i = 0; i < 64; i++)
		near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 0), BATON_OK);
	ck_assert(memcmp(to, from, 8) == 0);
	ck_assert_int_eq(end_of(1, 1), BATON_PENDING);
	ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_CANCELED);
	close_world(true);
}
END_TEST

/* The lower transport breaks in its test, as the side channel does when a rank is gone. */
static size_t
break_lower(struct batoni_path *path)
{
	path->upcalls->broken(path->upcalls, BATON_ERR_PEER, NULL, 0, "gone");
	return 1;
}

/* A rank tests the lower transport in some of its passes. */
static void
break_in_a_test(int rank)
{
	static const struct batoni_path_ops ops = {.name = "broken",
	                                           .test = break_lower};
	struct batoni_path *lower = &world.ranks[rank].lower.messages;

	lower->ops = &ops;
	lower->load.in_flight = 1;
	near_pairs(&world, rank)->tests = UINT_MAX;
	near_pass(&world, rank);
	ck_assert_int_eq(world.ranks[rank].broken, BATON_ERR_PEER);
}

START_TEST(what_had_arrived_ends_well_when_the_transport_lower_breaks)
{
	open_world(NEAR_WITHIN);
	for (uint32_t i = 0; i < 200; i++)
		near_recv(&world, 1, i, 0, 3, &to[i], 1);
	near_recv(&world, 1, 1000, 2, 3, to + 1000, HUGE_BYTES - 1000);
	near_send(&world, 2, 0, 1, 3, from, HUGE_BYTES - 1000);
	for (uint32_t i = 0; i < 150; i++)
		near_send(&world, 0, i, 1, 3, &from[i], 1);
	break_in_a_test(1);
	for (uint32_t i = 0; i < 150; i++)
		assert_arrived(1, i, 1);
	ck_assert(memcmp(to, from, 150) == 0);
	/* The others are given back, nothing is lent. */
	ck_assert_int_eq(near_take(&world, 1, 150), BATON_ERR_CANCELED);
	ck_assert_int_eq(near_take(&world, 1, 1000), BATON_ERR_CANCELED);
	close_world(true);
}
END_TEST

/* In an exchange nothing may end: the next test does it. */
START_TEST(what_had_arrived_ends_well_when_the_one_lower_breaks_in_an_exchange)
{
	struct batoni_transport *lower;

	open_world(NEAR_WITHIN);
	lower = &world.ranks[1].lower;
	for (uint32_t i = 0; i < 200; i++)
		near_recv(&world, 1, i, 0, 3, &to[i], 1);
	for (uint32_t i = 0; i < 150; i++)
		near_send(&world, 0, i, 1, 3, &from[i], 1);
	lower->upcalls->broken(lower->upcalls, BATON_ERR_PEER, NULL, 0, "rank 2 is gone");
	ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
	ck_assert_int_eq(end_of(1, 0), BATON_PENDING);
	near_pass(&world, 1);
	for (uint32_t i = 0; i < 150; i++)
		assert_arrived(1, i, 1);
	ck_assert_int_eq(near_take(&world, 1, 150), BATON_ERR_CANCELED);
	/* Later ones do not. */
	near_send(&world, 0, 150, 1, 3, from, 1);
	near_pass(&world, 1);
	ck_assert_int_eq(end_of(1, 151), BATON_PENDING);
	close_world(true);
}
END_TEST

/* What comes behind it does not take its place: the receiver may not know of the end yet. */
START_TEST(what_is_taken_back_at_the_end_of_a_rank_keeps_its_place)
{
	bool is_posted = _i % 2, breaks = _i / 2;

	open_world(NEAR_WITHIN);
	if (is_posted)
		near_recv(&world, 1, 1, 0, 3, to, LONG);
	ck_assert_int_eq(near_send(&world, 0, 0, 1, 3, from, LONG), BATON_PENDING);
	ck_assert_int_eq(near_send(&world, 0, 1, 1, 3, from, 1), BATON_OK);
	ck_assert_int_eq(near_send(&world, 0, 2, 1, 4, from, 1), BATON_OK);
	if (breaks)
		break_in_a_test(0);
	else
		world.ranks[0].transport->messages.ending = true;
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_CANCELED);
	near_pass(&world, 1);
	if (!is_posted)
		near_recv(&world, 1, 1, 0, 3, to, LONG);
	near_recv(&world, 1, 2, 0, 3, to, LONG);
	near_pass(&world, 1);
	for (uint32_t slot = 1; slot <= 2; slot++) {
		ck_assert_int_eq(end_of(1, slot), BATON_PENDING);
		ck_assert_int_eq(near_take(&world, 1, slot), BATON_ERR_CANCELED);
	}
	/* Other tags are not barred. */
	near_recv(&world, 1, 3, 0, 4, to, LONG);
	assert_arrived(1, 3, 1);
	close_world(true);
}
END_TEST

/* A process that has ended, where the engine has not seen it yet. */
START_TEST(a_process_that_has_ended_lends_nothing)
{
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	open_world(NEAR_BY_CHUNKS);
	near_recv(&world, 1, 1, 0, 3, to, HUGE_BYTES);
	near_send(&world, 0, 0, 1, 3, from, HUGE_BYTES);
	near_pass(&world, 1);
	near_pass(&world, 0);
	world.ranks[0].peers[1].pidfd = batoni_pidfd_open(child);
	world.ranks[1].peers[0].pidfd = world.ranks[0].peers[1].pidfd;
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_BUSY);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_CANCELED);
	ck_assert_int_eq(near_take(&world, 1, 1), BATON_ERR_CANCELED);
	batoni_pidfd_close(world.ranks[0].peers[1].pidfd);
	close_world(true);
}
END_TEST

/* ---- what no Baton writes ---- */

/* Rank 0's ring to rank 1, as rank 0 writes it. */
static struct batoni_ring_out *
out(void)
{
	return &near_pairs(&world, 0)->peers[1].out;
}

static void
publish(struct batoni_ring_head head, const void *payload, size_t bytes)
{
	batoni_ring_copy_in(out(), 0, payload, bytes);
	batoni_ring_publish(out(), &head);
	batoni_ring_call(out());
}

static void
publish_kind(enum batoni_ring_kind kind, uint16_t cells, uint64_t length)
{
	static const unsigned char none[64];

	publish((struct batoni_ring_head){.kind = (uint8_t)kind,
	                                  .cells = cells,
	                                  .length = length},
	        none, length < sizeof(none) ? (size_t)length : sizeof(none));
}

static void
unknown_kind(void)
{
	publish_kind((enum batoni_ring_kind)99, 1, 8);
}

static void
too_long(void)
{
	publish_kind(BATONI_RING_SHORT, 258, 8193);
}

static void
wrong_cells(void)
{
	publish_kind(BATONI_RING_SHORT, 3, 16);
}

static void
short_chunk(void)
{
	publish_kind(BATONI_RING_CHUNK, 1, 8);
}

static void
endless(void)
{
	publish_kind(BATONI_RING_CHUNK, 2, UINT64_MAX);
}

static void
slot_too_high(void)
{
	const uint32_t what[4] = {NEAR_SLOTS, 1, 0, 0};

	publish((struct batoni_ring_head){.kind = BATONI_RING_ANNOUNCE,
	                                  .cells = 1,
	                                  .length = LONG},
	        what, sizeof(what));
}

static void
done_too_high(void)
{
	const uint32_t what[2] = {NEAR_SLOTS, 1};

	publish((struct batoni_ring_head){.kind = BATONI_RING_DONE,
	                                  .cells = 1,
	                                  .length = 8},
	        what, sizeof(what));
}

static void
chunk_too_high(void)
{
	const uint32_t what[3] = {UINT32_MAX, 1, 0};

	publish((struct batoni_ring_head){.kind = BATONI_RING_CHUNK,
	                                  .cells = 1,
	                                  .length = 12},
	        what, sizeof(what));
}

static void
grant_too_high(void)
{
	const uint32_t what[6] = {NEAR_SLOTS, 1, 0, 0, 1, 0};

	publish((struct batoni_ring_head){.kind = BATONI_RING_GRANT,
	                                  .cells = 2,
	                                  .length = 24},
	        what, sizeof(what));
}

/* Of a send that is announced, but not of its length. */
static void
grant_of_another_length(void)
{
	uint32_t what[6] = {9, 0, 0, 0, LONG + 1, 0};

	near_send(&world, 1, 9, 0, 3, from, LONG);
	what[1] = near_node_of(&world, 1, 9)->generation;
	publish((struct batoni_ring_head){.kind = BATONI_RING_GRANT,
	                                  .cells = 2,
	                                  .length = 24},
	        what, sizeof(what));
}

/* More than is left of the message that the receive waits for. */
static void
chunk_too_long(void)
{
	static unsigned char bytes[5008];
	const struct near_node *node = near_node_of(&world, 1, 9);
	struct batoni_ring_head head = {.kind = BATONI_RING_CHUNK,
	                                .length = sizeof(bytes)};

	near_recv(&world, 1, 9, 0, 3, to, LONG);
	near_send(&world, 0, 9, 1, 3, from, 8193);
	while (node->state != NEAR_CHUNKED)
		near_pass(&world, 1);
	memcpy(bytes, &(uint32_t[2]){9, node->generation}, 8);
	head.cells = (uint16_t)batoni_ring_cells(head.length);
	publish(head, bytes, sizeof(bytes));
	publish(head, bytes, sizeof(bytes));
}

static void
taken_too_many(void)
{
	fill_ring(1, 0);
	atomic_store(&near_pairs(&world, 0)->peers[1].in.control->taken, 5000);
	batoni_ring_call(out());
}

static void
matched_too_many(void)
{
	atomic_store(&near_pairs(&world, 0)->peers[1].in.control->matched, 5000);
	fill_ring(1, 0);
}

static const struct {
	void (*write)(void);
	const char *word;
} faults[] = {
	{unknown_kind, "a header"},
	{too_long, "a header"},
	{wrong_cells, "a header"},
	{short_chunk, "a header"},
	{endless, "a header"},
	{slot_too_high, "a slot"},
	{done_too_high, "the end of a message"},
	{chunk_too_high, "the end of a message"},
	{grant_too_high, "the end of a message"},
	{grant_of_another_length, "the end of a message"},
	{chunk_too_long, "the end of a message"},
	{taken_too_many, "a count of cells"},
	{matched_too_many, "a count of cells"},
};

START_TEST(what_no_baton_writes_breaks_the_communicator)
{
	char words[200];

	open_world(NEAR_BY_CHUNKS);
	near_recv(&world, 1, NEAR_SLOTS - 2, 0, 77, to, 1);
	faults[_i].write();
	for (int i = 0; i < 5; i++)
		near_pass(&world, 1);
	ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
	snprintf(words, sizeof(words),
	         "rank 0 has written what no Baton writes into the memory that it "
	         "shares with rank 1: %s",
	         faults[_i].word);
	ck_assert_str_eq(world.ranks[1].why, words);
	/* Nothing moves from here on, and all is given back. */
	ck_assert_uint_eq(near_pass(&world, 1), 0);
	for (uint32_t slot = 0; slot < NEAR_SLOTS; slot++)
		if (near_node_of(&world, 1, slot)->state != NEAR_IDLE)
			ck_assert_int_eq(near_take(&world, 1, slot),
			                 BATON_ERR_CANCELED);
	ck_assert_uint_eq(world.ranks[1].transport->messages.load.in_flight, 0);
	close_world(true);
}
END_TEST

START_TEST(it_breaks_once_and_for_the_first_reason)
{
	open_world(NEAR_WITHIN);
	near_recv(&world, 1, 0, 0, 3, to, 1);
	unknown_kind();
	break_in_a_test(1);
	ck_assert_ptr_nonnull(strstr(world.ranks[1].why, "a header"));
	break_lower(&world.ranks[1].lower.messages);
	close_world(true);
}
END_TEST

/* The sender may answer a GRANT before the call that has made it returns. */
START_TEST(chunks_within_its_call_end_a_receive_there)
{
	static unsigned char bytes[8 + 8192];
	const struct batoni_ring_head heads[2] = {
		{.kind = BATONI_RING_CHUNK,
	         .cells = (uint16_t)batoni_ring_cells(8 + 8192),
	         .length = 8 + 8192},
		{.kind = BATONI_RING_CHUNK,
	         .cells = (uint16_t)batoni_ring_cells(8 + 808),
	         .length = 8 + 808},
	};
	uint32_t generation;

	open_world(NEAR_BY_CHUNKS);
	generation = near_node_of(&world, 1, 9)->generation + 1;
	near_send(&world, 0, 0, 1, 3, from, 9000);
	memcpy(bytes, &(uint32_t[2]){9, generation}, 8);
	for (int i = 0; i < 2; i++) {
		memcpy(bytes + 8, from + 8192 * i, i ? 808 : 8192);
		publish(heads[i], bytes, i ? 8 + 808 : sizeof(bytes));
	}
	ck_assert_int_eq(near_recv(&world, 1, 9, 0, 3, to, 9000), BATON_OK);
	ck_assert_uint_eq(world.ranks[1].ended, 0);
	assert_arrived(1, 9, 9000);
	ck_assert(memcmp(to, from, 9000) == 0);
	near_run(&world);
	assert_arrived(0, 0, 9000);
	assert_idle();
	close_world(false);
}
END_TEST

/* What belongs to nothing that is under way may be late, and is dropped. */
START_TEST(what_comes_late_is_dropped)
{
	const uint32_t what[6] = {9, 1, 9, 1, 1, 0};

	open_world(NEAR_BY_CHUNKS);
	near_recv(&world, 1, 9, 0, 77, to, 1);
	publish((struct batoni_ring_head){.kind = BATONI_RING_DONE,
	                                  .cells = 1,
	                                  .length = 8},
	        what, 8);
	publish((struct batoni_ring_head){.kind = BATONI_RING_GRANT,
	                                  .cells = 2,
	                                  .length = 24},
	        what, 24);
	publish((struct batoni_ring_head){.kind = BATONI_RING_CHUNK,
	                                  .cells = 1,
	                                  .length = 12},
	        what, 12);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 9), BATON_PENDING);
	near_take(&world, 1, 9);
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(any_word_in_a_state_loses_the_message_alone)
{
	_Atomic uint64_t *state;

	open_world(NEAR_WITHIN);
	state = batoni_ring_state(&world.layout, world.ranks[0].area, 0);
	near_send(&world, 0, 0, 1, 3, from, LONG);
	atomic_store(state, UINT64_MAX);
	near_recv(&world, 1, 1, 0, 3, to, LONG);
	near_run(&world);
	ck_assert_int_eq(end_of(1, 1), BATON_PENDING);
	ck_assert_int_eq(near_take(&world, 0, 0), BATON_ERR_BUSY);
	near_take(&world, 1, 1);
	close_world(true);
}
END_TEST

/* ---- beside another transport's messages ---- */

START_TEST(beside_another_transport_it_serves_near_peers)
{
	const struct batoni_serving_ops *serving;
	struct batoni_path *path;
	uint64_t bit = UINT64_C(1) << 2;

	near_open_beside(&world, (enum near_reach)_i);
	path = &world.ranks[0].transport->messages;
	serving = path->ops->serving;
	ck_assert(serving->serves(path, BATON_OPERATION_SEND, 0));
	ck_assert(serving->serves(path, BATON_OPERATION_RECV, 1));
	ck_assert(!serving->serves(path, BATON_OPERATION_SEND, 2));
	/* No rank that it serves may send it to the ring of one that it does not. */
	atomic_fetch_or(batoni_ring_bits(world.ranks[0].area, 2), bit);
	for (size_t n = 8; n <= HUGE_BYTES; n += HUGE_BYTES - 8) {
		memset(to, 0, sizeof(to));
		near_send(&world, 0, 0, 1, 3, from, n);
		near_recv(&world, 1, 1, 0, 3, to, sizeof(to));
		near_run(&world);
		assert_arrived(0, 0, n);
		assert_arrived(1, 1, n);
		ck_assert(memcmp(to, from, n) == 0);
	}
	assert_idle();
	close_world(false);
}
END_TEST

START_TEST(closing_a_path_after_an_abort_gives_up_what_it_announced)
{
	near_open_beside(&world, NEAR_READ);
	near_send(&world, 0, 0, 1, 3, from, LONG);
	near_close_rank(&world, 0, true);
	ck_assert_uint_eq(atomic_load(&world.ranks[0].segment.away),
	                  BATONI_AWAY_CLOSED);
	near_recv(&world, 1, 1, 0, 3, to, LONG);
	near_run(&world);
	/* The message is no more. */
	ck_assert_int_eq(end_of(1, 1), BATON_PENDING);
	ck_assert_int_eq(to[1], 0);
	near_take(&world, 1, 1);
	close_world(true);
}
END_TEST

/* ---- memory ---- */

START_TEST(a_peer_without_memory_for_the_rings_is_refused_until_there_is)
{
	struct batoni_path *path;
	char *cells;

	if (!batoni_shm_is_sparse())
		return;
	open_world(NEAR_WITHIN);
	path = &world.ranks[0].transport->messages;
	world.ranks[0].transport->sparse_segments = true;
	cells = batoni_ring_cells_of(&world.layout, world.ranks[1].area, 0);
	/* As if there were no page. */
	ck_assert_int_eq(mprotect(cells, BATONI_RING_BYTES, PROT_READ), 0);
	ck_assert_int_eq(path->ops->serving->connect(path, 1), BATON_ERR_NOMEM);
	ck_assert_str_eq(baton_last_error(), "no shared memory for the rings "
	                                     "between ranks 0 and 1");
	ck_assert_int_eq(near_send(&world, 0, 0, 1, 3, from, 8), BATON_ERR_NOMEM);
	ck_assert_int_eq(mprotect(cells, BATONI_RING_BYTES,
	                          PROT_READ | PROT_WRITE), 0);
	ck_assert_int_eq(path->ops->serving->connect(path, 1), BATON_OK);
	ck_assert_int_eq(near_send(&world, 0, 0, 1, 3, from, 8), BATON_OK);
	close_world(false);
}
END_TEST

START_TEST(creation_without_memory_keeps_nothing)
{
	const struct batoni_transport_config above = {
		.slots = 16, .slots_most = 16, .hidden_tags = 1};
	struct batoni_pairs *pairs;
	unsigned long n;

	for (n = 1;; n++) {
		enum baton_status status;

		batoni_mem_fail_at(n);
		status = batoni_near_ops.create(&above, 3, &pairs);
		batoni_mem_fail_at(0);
		if (status == BATON_OK)
			break;
		ck_assert_int_eq(status, BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	ck_assert_uint_gt(n, 3);
	batoni_near_ops.discard(pairs);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(arrivals_without_memory_stay_in_the_ring)
{
	size_t bytes = _i ? LONG : 100;

	open_world(NEAR_WITHIN);
	for (uint32_t i = 0; i < 5; i++)
		near_send(&world, 0, i, 1, (int)i, from + i, bytes);
	/* The first one stays, and so do those behind it. */
	batoni_mem_fail_at(1);
	ck_assert_int_eq(near_recv(&world, 1, 4, 0, 4, to, bytes),
	                 BATON_PENDING);
	batoni_mem_fail_at(0);
	near_run(&world);
	assert_arrived(1, 4, bytes);
	for (uint32_t i = 0; i < 4; i++) {
		near_recv(&world, 1, i, 0, (int)i, to, bytes);
		near_run(&world);
		assert_arrived(1, i, bytes);
		ck_assert(memcmp(to, from + i, bytes) == 0);
	}
	near_run(&world);
	assert_idle();
	close_world(false);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("near");
	TCase *tcase = tcase_create("near");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, every_length_arrives_however_it_is_read, 0, 3);
	tcase_add_loop_test(tcase, a_message_to_oneself_arrives, 0, 3);
	tcase_add_loop_test(tcase,
	                    truncation_writes_nothing_and_ends_the_send_well, 0,
	                    3);
	tcase_add_loop_test(tcase, a_call_copies_no_more_than_one_message, 0, 2);
	tcase_add_loop_test(tcase, a_pass_copies_no_more_than_its_share, 0, 2);
	tcase_add_test(tcase, taking_back_in_a_loop_costs_the_receiver_no_memory);
	tcase_add_loop_test(tcase, a_match_wins_against_a_take_back, 0, 3);
	tcase_add_test(tcase,
	               a_take_back_finds_what_was_copied_before_its_done_is_read);
	tcase_add_test(tcase, a_receive_that_has_met_nothing_is_taken_back);
	tcase_add_loop_test(tcase, a_scrapped_receive_is_not_written_any_more, 0,
	                    3);
	tcase_add_test(tcase, done_is_seen_where_there_is_no_room_to_say_so);
	tcase_add_test(
		tcase,
		without_credit_short_messages_are_announced_and_the_receiver_keeps_no_more);
	tcase_add_loop_test(tcase, what_waits_for_room_keeps_its_order, 0, 3);
	tcase_add_test(tcase, arrivals_are_met_in_order_on_each_tag);
	tcase_add_test(tcase, the_last_hidden_tag_is_received_from_any_rank);
	tcase_add_test(tcase, types_are_compared_in_checked_mode);
	tcase_add_loop_test(tcase, a_rank_that_closes_gives_up_its_sends, 0, 3);
	tcase_add_test(tcase,
	               what_a_rank_of_this_process_gave_up_is_not_read_any_more);
	tcase_add_loop_test(tcase,
	                    what_a_reader_that_closed_had_matched_is_taken_back,
	                    0, 3);
	tcase_add_loop_test(tcase, what_a_peer_has_matched_is_given_up_at_an_abort,
	                    0, 3);
	tcase_add_loop_test(tcase, what_is_scrapped_is_not_read,
	                    0, 3);
	tcase_add_loop_test(tcase, what_is_lent_comes_back_when_its_peer_has_gone,
	                    0, 3);
	tcase_add_test(tcase, what_a_peer_published_before_it_was_killed_arrives);
	tcase_add_test(
		tcase,
		what_had_arrived_ends_well_when_the_transport_lower_breaks);
	tcase_add_test(
		tcase,
		what_had_arrived_ends_well_when_the_one_lower_breaks_in_an_exchange);
	tcase_add_loop_test(tcase,
	                    what_is_taken_back_at_the_end_of_a_rank_keeps_its_place, 0,
	                    4);
	tcase_add_test(tcase, it_breaks_once_and_for_the_first_reason);
	tcase_add_test(tcase, a_process_that_has_ended_lends_nothing);
	tcase_add_loop_test(tcase, what_no_baton_writes_breaks_the_communicator, 0,
	                    (int)(sizeof(faults) / sizeof(faults[0])));
	tcase_add_test(tcase, chunks_within_its_call_end_a_receive_there);
	tcase_add_test(tcase, what_comes_late_is_dropped);
	tcase_add_test(tcase, any_word_in_a_state_loses_the_message_alone);
	tcase_add_loop_test(tcase, beside_another_transport_it_serves_near_peers, 0,
	                    3);
	tcase_add_test(tcase,
	               closing_a_path_after_an_abort_gives_up_what_it_announced);
	tcase_add_test(
		tcase,
		a_peer_without_memory_for_the_rings_is_refused_until_there_is);
	tcase_add_test(tcase, creation_without_memory_keeps_nothing);
	tcase_add_loop_test(tcase, arrivals_without_memory_stay_in_the_ring, 0, 2);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
