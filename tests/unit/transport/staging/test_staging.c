/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging, over device memory that faults when the host touches it. */
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "run_tests.h"
#include "staging_world.h"

#define MANY 4096u

static const size_t lengths[] = {
	0, 1, EAGER - 1, EAGER, EAGER + 1, CHUNK - 1, CHUNK, CHUNK + 1,
	3 * CHUNK, 3 * CHUNK + 7, 20 * CHUNK + 1, 40000,
};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* A message from rank 0 to rank 1, in memory of these kinds. */
static void
pass(struct world *world, size_t bytes, size_t room, unsigned kinds)
{
	static uint32_t slot;
	bool send_first = kinds & 1, from_host = kinds & 2, to_host = kinds & 4;

	slot = (slot + 1) % SLOTS;
	if (send_first)
		start_send(world, 0, slot, 1, 7, bytes, slot, from_host);
	start_recv(world, 1, slot, 0, 7, room, to_host);
	if (!send_first)
		start_send(world, 0, slot, 1, 7, bytes, slot, from_host);
	run(world);
	assert_ended(world, 0, slot, BATON_OK, bytes);
	assert_ended(world, 1, slot,
	             bytes > room ? BATON_ERR_TRUNCATED : BATON_OK, bytes);
	assert_content(world, 1, slot, bytes > room ? 0 : bytes, slot);
	assert_idle(world, 0);
	assert_idle(world, 1);
}

static void
pass_all(const char *devices, bool late)
{
	struct world world;

	open_world(&world, devices, late);
	for (unsigned kinds = 0; kinds < 8; kinds++)
		for (size_t i = 0; i < LENGTHS; i++)
			pass(&world, lengths[i], lengths[i], kinds);
	close_world(&world);
}

/* ---- messages -------------------------------------------------------------- */

START_TEST(every_length_arrives_between_memory_of_all_kinds)
{
	pass_all("dd", false);
}
END_TEST

START_TEST(and_over_a_transport_that_reports_late)
{
	pass_all("dd", true);
}
END_TEST

START_TEST(a_rank_on_the_host_and_one_on_a_device_understand_each_other)
{
	pass_all("dh", false);
	pass_all("hd", true);
	pass_all("hh", false);
}
END_TEST

START_TEST(a_receive_may_be_longer_and_is_not_written_past_the_message)
{
	struct world world;

	open_world(&world, "dd", false);
	for (unsigned kinds = 0; kinds < 8; kinds++)
		for (size_t i = 0; i < LENGTHS; i++)
			pass(&world, lengths[i], lengths[i] + 1 + 13 * i, kinds);
	close_world(&world);
}
END_TEST

START_TEST(a_receive_that_is_too_short_is_not_written)
{
	struct world world;

	open_world(&world, "dd", false);
	for (unsigned kinds = 0; kinds < 8; kinds++) {
		for (size_t i = 1; i < LENGTHS; i++) {
			pass(&world, lengths[i], lengths[i] - 1, kinds);
			pass(&world, lengths[i], 0, kinds);
			/* The next one is not disturbed. */
			pass(&world, lengths[i], lengths[i], kinds);
		}
	}
	close_world(&world);
}
END_TEST

START_TEST(a_message_to_oneself_arrives)
{
	struct world world;
	uint32_t slot = 0;

	open_world(&world, "d", false);
	for (size_t i = 0; i < LENGTHS; i++, slot += 2) {
		start_send(&world, 0, slot, 0, 3, lengths[i], slot, false);
		start_recv(&world, 0, slot + 1, 0, 3, lengths[i], false);
		run(&world);
		assert_ended(&world, 0, slot, BATON_OK, lengths[i]);
		assert_ended(&world, 0, slot + 1, BATON_OK, lengths[i]);
		assert_content(&world, 0, slot + 1, lengths[i], slot);
	}
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

START_TEST(a_receive_from_any_rank_on_the_last_hidden_tag_answers_its_sender)
{
	struct world world;
	const struct batoni_transport *t;

	open_world(&world, "ddd", false);
	t = world.ranks[1].transport;
	ck_assert_int_eq(t->hidden_tags, HIDDEN_TAGS);
	start_recv(&world, 1, 0, t->any_peer, t->hidden_tag + HIDDEN_TAGS - 1,
	           5 * CHUNK, false);
	start_send(&world, 2, 0, 1, t->hidden_tag + HIDDEN_TAGS - 1, 5 * CHUNK,
	           1, false);
	run(&world);
	assert_ended(&world, 1, 0, BATON_OK, 5 * CHUNK);
	assert_content(&world, 1, 0, 5 * CHUNK, 1);
	close_world(&world);
}
END_TEST

/* ---- order ----------------------------------------------------------------- */

START_TEST(what_needs_no_copy_does_not_overtake_what_is_being_copied)
{
	static const size_t sizes[] = {EAGER, EAGER, 0, 5 * CHUNK, 10, EAGER};
	struct world world;

	open_world(&world, "dd", false);
	fake_memory_hold(true);
	for (uint32_t i = 0; i < 6; i++)
		start_send(&world, 0, i, 1, 5, sizes[i], i, i == 4);
	/* Nor does what has another tag: a receive may be of any. */
	start_send(&world, 0, 6, 1, 6, 10, 6, true);
	for (uint32_t i = 0; i < 6; i++)
		start_recv(&world, 1, i, 0, 5, 5 * CHUNK, true);
	start_recv(&world, 1, 6, 0, 6, 10, true);
	step(&world, 0);
	step(&world, 1);
	ck_assert_uint_eq(world.ranks[1].ends, 0);
	/* The second copy ends first, and its message waits for the first. */
	fake_memory_end(1);
	step(&world, 0);
	step(&world, 1);
	ck_assert_uint_eq(world.ranks[1].ends, 0);
	fake_memory_hold(false);
	run(&world);
	for (uint32_t i = 0; i < 6; i++) {
		assert_ended(&world, 1, i, BATON_OK, sizes[i]);
		assert_content(&world, 1, i, sizes[i], i);
	}
	assert_ended(&world, 1, 6, BATON_OK, 10);
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

START_TEST(copies_that_end_in_the_wrong_order_do_no_harm)
{
	struct world world;

	open_world(&world, "dd", false);
	fake_memory_hold(true);
	start_send(&world, 0, 0, 1, 5, 9 * CHUNK + 1, 8, false);
	start_recv(&world, 1, 0, 0, 5, 10 * CHUNK, false);
	for (int i = 0; i < 1000 && !world.ranks[1].ended[0]; i++) {
		step(&world, 0);
		step(&world, 1);
		if (fake_memory_copies() > 0)
			fake_memory_end(fake_memory_copies() - 1);
	}
	assert_ended(&world, 1, 0, BATON_OK, 9 * CHUNK + 1);
	assert_content(&world, 1, 0, 9 * CHUNK + 1, 8);
	close_world(&world);
}
END_TEST

/* ---- bounds ---------------------------------------------------------------- */

static void
assert_holds_nothing(const struct world *world, int rank)
{
	for (unsigned direction = 0; direction < DIRECTIONS; direction++)
		for (unsigned kind = 0; kind <= EAGERS; kind++)
			ck_assert_uint_eq(in_use(world, rank, direction, kind),
			                  0);
}

START_TEST(receives_without_a_message_hold_nothing)
{
	struct world world;
	uint32_t i;

	open_world(&world, "dd", false);
	for (i = 0; i < MANY; i++)
		start_recv(&world, 1, i, 0, (int)i, 3 * CHUNK, false);
	ck_assert_uint_eq(world.ranks[1].transport->messages.load.in_flight, MANY);
	ck_assert_uint_eq(world.ranks[1].transport->messages.load.moving, 0);
	assert_holds_nothing(&world, 1);
	start_send(&world, 1, MANY, 0, 0, 20 * CHUNK, 1, false);
	start_recv(&world, 0, MANY, 1, 0, 20 * CHUNK, false);
	run(&world);
	assert_ended(&world, 1, MANY, BATON_OK, 20 * CHUNK);
	assert_content(&world, 0, MANY, 20 * CHUNK, 1);
	/* And each gets its message, the last one first. */
	for (i = MANY; i-- > MANY - 100;)
		start_send(&world, 0, i, 1, (int)i, i % 2 ? 3 * CHUNK : 9, i,
		           false);
	run(&world);
	for (i = MANY - 100; i < MANY; i++)
		assert_content(&world, 1, i, i % 2 ? 3 * CHUNK : 9, i);
	close_world(&world);
}
END_TEST

START_TEST(sends_that_one_peer_does_not_receive_hold_up_no_other)
{
	struct world world;
	uint32_t i;

	open_world(&world, "ddd", false);
	for (i = 0; i < MANY; i++)
		start_send(&world, 0, i, 1, (int)i, i % 2 ? 2 * CHUNK : EAGER, i,
		           false);
	run(&world);
	ck_assert_uint_eq(in_use(&world, 0, SENDS, CHUNKS), 0);
	ck_assert_uint_eq(in_use(&world, 0, SENDS, EAGERS), EAGER_PEER);
	ck_assert_uint_eq(world.ranks[0].transport->messages.load.moving, 0);
	for (i = 0; i < 3; i++) {
		start_send(&world, 0, MANY + i, 2, 0, lengths[3 * i + 1], 1,
		           false);
		start_recv(&world, 2, i, 0, 0, 40000, false);
	}
	run(&world);
	for (i = 0; i < 3; i++)
		assert_content(&world, 2, i, lengths[3 * i + 1], 1);
	/* They are received after all, the last one first. */
	for (i = 0; i < MANY; i++)
		start_recv(&world, 1, i, 0, (int)(MANY - 1 - i), 2 * CHUNK,
		           false);
	run(&world);
	for (i = 0; i < MANY; i++) {
		uint32_t sent = MANY - 1 - i;
		size_t bytes = sent % 2 ? 2 * CHUNK : EAGER;

		assert_ended(&world, 1, i, BATON_OK, bytes);
		assert_ended(&world, 0, sent, BATON_OK, bytes);
		if (i % 64 == 0)
			assert_content(&world, 1, i, bytes, sent);
	}
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	close_world(&world);
}
END_TEST

/* Nine chunks each way between rank 0 and the peer, in slots a and b of both, and of that content. */
static void
start_both_ways(struct world *world, int peer, uint32_t a, uint32_t b)
{
	start_send(world, 0, a, peer, 0, 9 * CHUNK, a, false);
	start_recv(world, peer, a, 0, 0, 9 * CHUNK, false);
	start_send(world, peer, b, 0, 0, 9 * CHUNK, b, false);
	start_recv(world, 0, b, peer, 0, 9 * CHUNK, false);
}

START_TEST(a_peer_that_makes_no_progress_has_its_share_and_no_more)
{
	struct world world;

	open_world(&world, "ddd", false);
	for (uint32_t i = 0; i < 8; i++) {
		start_send(&world, 0, i, 1, (int)i, 9 * CHUNK, i, false);
		start_send(&world, 1, i, 0, (int)i, 9 * CHUNK, i, false);
		start_recv(&world, 0, 20 + i, 1, (int)i, 9 * CHUNK, false);
		start_recv(&world, 1, 20 + i, 0, (int)i, 9 * CHUNK, false);
	}
	/* All grants, then rank 1 sleeps. */
	step(&world, 1);
	step(&world, 0);
	step(&world, 1);
	start_both_ways(&world, 2, 10, 11);
	while (!world.ranks[2].ended[10] || !world.ranks[0].ended[11]) {
		step(&world, 0);
		step(&world, 2);
		for (unsigned d = 0; d < DIRECTIONS; d++)
			ck_assert_uint_le(stage_of(&world, 0)->peers[1].shares[d].held,
			                  CHUNKS_EACH / 2);
	}
	assert_ended(&world, 2, 10, BATON_OK, 9 * CHUNK);
	assert_ended(&world, 0, 11, BATON_OK, 9 * CHUNK);
	assert_content(&world, 2, 10, 9 * CHUNK, 10);
	assert_pending(&world, 0, 7);
	run(&world);
	for (uint32_t i = 0; i < 8; i++) {
		assert_content(&world, 1, 20 + i, 9 * CHUNK, i);
		assert_content(&world, 0, 20 + i, 9 * CHUNK, i);
	}
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

/* Two of them: each keeps what it has, and there is a chunk for the third. */
START_TEST(peers_that_make_no_progress_leave_a_chunk_for_each_other_peer)
{
	struct world world;

	open_world(&world, "dddd", false);
	for (uint32_t i = 0; i < 12; i++) {
		int peer = 1 + (int)i % 2;

		start_send(&world, 0, i, peer, (int)i, 9 * CHUNK, i, false);
		start_recv(&world, peer, i, 0, (int)i, 9 * CHUNK, false);
		start_send(&world, peer, 20 + i, 0, (int)i, 9 * CHUNK, i, false);
		start_recv(&world, 0, 20 + i, peer, (int)i, 9 * CHUNK, false);
	}
	step(&world, 1);
	step(&world, 2);
	step(&world, 0);
	step(&world, 0);
	start_both_ways(&world, 3, 40, 41);
	while (!world.ranks[3].ended[40] || !world.ranks[0].ended[41]) {
		test_once(&world, 0);
		test_once(&world, 3);
	}
	assert_content(&world, 3, 40, 9 * CHUNK, 40);
	assert_content(&world, 0, 41, 9 * CHUNK, 41);
	ck_assert(stage_of(&world, 0)->peers[1].shares[RECVS].held > 0);
	ck_assert(stage_of(&world, 0)->peers[2].shares[RECVS].held > 0);
	run(&world);
	for (uint32_t i = 0; i < 12; i++) {
		assert_content(&world, 1 + (int)i % 2, i, 9 * CHUNK, i);
		assert_content(&world, 0, 20 + i, 9 * CHUNK, i);
	}
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

START_TEST(what_a_peer_that_has_died_was_to_send_gives_its_chunks_back)
{
	struct world world;

	open_world(&world, "dd", false);
	fake_memory_hold(true);
	for (uint32_t i = 0; i < 4; i++) {
		start_send(&world, 0, i, 1, (int)i, 9 * CHUNK, i, i % 2);
		start_recv(&world, 1, i, 0, (int)i, 9 * CHUNK, i > 1);
		start_send(&world, 1, 10 + i, 0, (int)i, 9 * CHUNK, i, i % 2);
		start_recv(&world, 0, 10 + i, 1, (int)i, 9 * CHUNK, i > 1);
	}
	for (int i = 0; i < 6; i++)
		step(&world, i % 2);
	ck_assert_uint_gt(in_use(&world, 1, RECVS, CHUNKS), 0);
	fake_memory_hold(false);
	close_rank(&world, 0);
	stage_of(&world, 1)->base.peers[0].gone = true;
	for (uint32_t i = 0; i < 4; i++) {
		if (!world.ranks[1].ended[i])
			take_back(&world, 1, i);
		if (!world.ranks[1].ended[10 + i])
			take_back(&world, 1, 10 + i);
	}
	run(&world);
	assert_idle(&world, 1);
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert(world.ranks[1].ended[i]);
		ck_assert(world.ranks[1].ended[10 + i]);
	}
	close_world(&world);
}
END_TEST

START_TEST(a_short_message_takes_turns_with_a_long_one)
{
	const struct stage_message *longer;
	struct world world;

	open_world(&world, "dd", false);
	start_send(&world, 0, 0, 1, 0, 400 * CHUNK, 0, false);
	start_recv(&world, 1, 0, 0, 0, 400 * CHUNK, false);
	for (int i = 0; i < 3; i++) {
		step(&world, 0);
		step(&world, 1);
	}
	longer = &stage_of(&world, 1)->messages[0];
	start_send(&world, 0, 1, 1, 1, 5 * CHUNK, 1, false);
	start_recv(&world, 1, 1, 0, 1, 5 * CHUNK, false);
	while (!world.ranks[1].ended[1]) {
		test_once(&world, 0);
		test_once(&world, 1);
	}
	assert_content(&world, 1, 1, 5 * CHUNK, 1);
	ck_assert_uint_lt(longer->ended, 200);
	run(&world);
	assert_content(&world, 1, 0, 400 * CHUNK, 0);
	close_world(&world);
}
END_TEST

START_TEST(pieces_and_copies_of_one_message_overlap)
{
	bool overlap = false;
	struct world world;

	open_world(&world, "dd", false);
	fake_memory_hold(true);
	start_send(&world, 0, 0, 1, 0, 20 * CHUNK, 0, false);
	start_recv(&world, 1, 0, 0, 0, 20 * CHUNK, false);
	while (!world.ranks[1].ended[0]) {
		step(&world, 0);
		step(&world, 1);
		/* From device memory here, and to it there. */
		overlap |= stage_of(&world, 0)->messages[0].copies > 0 &&
		           stage_of(&world, 1)->messages[0].copies > 0;
		if (fake_memory_copies() > 0)
			fake_memory_end(0);
	}
	ck_assert(overlap);
	assert_content(&world, 1, 0, 20 * CHUNK, 0);
	close_world(&world);
}
END_TEST

START_TEST(a_single_chunk_is_enough)
{
	static const struct batoni_staging_config one = {
		.chunk_bytes = 64,
		.chunks = 1,
		.eager_bytes = 8,
		.eager_slots = 1,
		.eager_per_peer = 1,
	};
	struct world world;

	open_world_with(&world, "ddd", true, &one);
	for (uint32_t i = 0; i < 40; i++) {
		int peer = 1 + (int)i % 2;

		start_send(&world, 0, i, peer, 0, 7 * i, i, false);
		start_recv(&world, 0, 100 + i, peer, 0, 7 * i, false);
		start_send(&world, peer, i, 0, 0, 7 * i, i, false);
		start_recv(&world, peer, 100 + i, 0, 0, 7 * i, false);
	}
	run(&world);
	for (uint32_t i = 0; i < 40; i++) {
		assert_content(&world, 0, 100 + i, 7 * i, i);
		assert_content(&world, 1 + (int)i % 2, 100 + i, 7 * i, i);
	}
	for (int i = 0; i < 3; i++)
		assert_idle(&world, i);
	close_world(&world);
}
END_TEST

/* ---- ending early ------------------------------------------------------------ */

/* Pieces are as long as the shorter of the two chunks. */
START_TEST(ranks_with_chunks_of_other_sizes_understand_each_other)
{
	static const struct batoni_staging_config configs[] = {
		{.chunk_bytes = 61, .chunks = 1, .eager_bytes = EAGER,
		 .eager_slots = 1, .eager_per_peer = 1},
		{.chunk_bytes = 3 * CHUNK + 1, .chunks = 5, .eager_bytes = EAGER,
		 .eager_slots = 4, .eager_per_peer = 2},
	};
	const struct batoni_staging_config *each[2];
	struct world world;

	for (unsigned order = 0; order < 2; order++) {
		each[0] = &configs[order];
		each[1] = &configs[1 - order];
		open_world_each(&world, "dd", order, each);
		for (unsigned kinds = 0; kinds < 8; kinds++)
			for (size_t i = 0; i < LENGTHS; i++)
				pass(&world, lengths[i], lengths[i], kinds);
		close_world(&world);
	}
}
END_TEST

START_TEST(a_receive_is_taken_back_until_it_has_matched)
{
	struct world world;

	open_world(&world, "dd", false);
	start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, false);
	start_recv(&world, 1, 1, 0, 0, 9 * CHUNK, false);
	ck_assert_int_eq(take_back(&world, 1, 0), BATON_ERR_CANCELED);
	fake_memory_hold(true);
	start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 4, false);
	step(&world, 1);
	ck_assert_int_eq(take_back(&world, 1, 1), BATON_ERR_BUSY);
	step(&world, 0);
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_BUSY);
	fake_memory_hold(false);
	run(&world);
	assert_ended(&world, 1, 1, BATON_OK, 9 * CHUNK);
	assert_ended(&world, 0, 0, BATON_OK, 9 * CHUNK);
	assert_content(&world, 1, 1, 9 * CHUNK, 4);
	assert_idle(&world, 1);
	close_world(&world);
}
END_TEST

static void
take_back_what_is_copied(bool dead)
{
	struct world world;

	open_world(&world, "dd", false);
	start_recv(&world, 1, 0, 0, 0, EAGER, false);
	start_send(&world, 0, 0, 1, 0, EAGER, 4, false);
	fake_memory_hold(false);
	while (!world.ranks[0].ended[0])
		step(&world, 0);
	fake_memory_hold(true);
	step(&world, 1);
	if (dead) {
		close_rank(&world, 0);
		stage_of(&world, 1)->base.peers[0].gone = true;
	}
	ck_assert_int_eq(take_back(&world, 1, 0), BATON_ERR_BUSY);
	assert_pending(&world, 1, 0);
	fake_memory_hold(false);
	run(&world);
	assert_ended(&world, 1, 0, BATON_OK, EAGER);
	assert_content(&world, 1, 0, EAGER, 4);
	assert_idle(&world, 1);
	close_world(&world);
}

START_TEST(an_eager_message_that_waits_for_its_copy_cannot_be_taken_back)
{
	take_back_what_is_copied(false);
}
END_TEST

START_TEST(nor_can_it_when_its_sender_has_died)
{
	take_back_what_is_copied(true);
}
END_TEST

START_TEST(a_send_is_taken_back_until_it_is_received)
{
	struct world world;

	open_world(&world, "dd", false);
	start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 1, false); /* asks */
	start_send(&world, 0, 1, 1, 0, EAGER, 2, true);      /* below */
	start_send(&world, 0, 2, 1, 0, 0, 3, true);
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_back(&world, 0, 2), BATON_ERR_CANCELED);
	assert_idle(&world, 0);
	start_send(&world, 0, 3, 1, 0, 9 * CHUNK, 4, false);
	start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, false);
	run(&world);
	assert_content(&world, 1, 0, 9 * CHUNK, 4);
	close_world(&world);
}
END_TEST

/* near does otherwise then (unit.near): what is taken back keeps its place. */
START_TEST(the_path_lower_is_told_of_the_end_of_the_rank)
{
	struct world world;
	const struct batoni_path *lower;

	open_world(&world, "dd", false);
	lower = &stage_of(&world, 0)->lower->messages;
	start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 1, false);
	start_send(&world, 0, 1, 1, 0, 9 * CHUNK, 2, false);
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_CANCELED);
	ck_assert(!lower->ending);
	world.ranks[0].transport->messages.ending = true;
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_CANCELED);
	ck_assert(lower->ending);
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

START_TEST(a_send_in_a_line_is_taken_back_and_the_line_goes_on)
{
	struct world world;

	open_world(&world, "dd", false);
	fake_memory_hold(true);
	start_send(&world, 0, 0, 1, 0, EAGER, 0, false); /* being copied */
	start_send(&world, 0, 1, 1, 0, 3 * CHUNK, 1, false);
	start_send(&world, 0, 2, 1, 0, EAGER, 2, true);
	start_send(&world, 0, 3, 1, 0, 3 * CHUNK, 3, false);
	start_recv(&world, 1, 0, 0, 0, 3 * CHUNK, true);
	start_recv(&world, 1, 1, 0, 0, 3 * CHUNK, true);
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_CANCELED);
	/* The copy reads the buffer until it ends. */
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_BUSY);
	step(&world, 1);
	assert_ended(&world, 1, 0, BATON_OK, EAGER);
	assert_content(&world, 1, 0, EAGER, 2);
	assert_pending(&world, 0, 0);
	fake_memory_hold(false);
	run(&world);
	assert_ended(&world, 0, 0, BATON_ERR_CANCELED, 0);
	assert_content(&world, 1, 1, 3 * CHUNK, 3);
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

START_TEST(what_the_transport_lower_cannot_take_back_stays_lent)
{
	struct world world;

	open_world(&world, "dd", true);
	start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 1, false);
	start_send(&world, 0, 1, 1, 1, EAGER, 2, true);
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_BUSY);
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_BUSY);
	start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, false);
	start_recv(&world, 1, 1, 0, 1, EAGER, false);
	run(&world);
	assert_ended(&world, 0, 0, BATON_OK, 9 * CHUNK);
	assert_content(&world, 1, 0, 9 * CHUNK, 1);
	assert_content(&world, 1, 1, EAGER, 2);
	/* Receives, asked for now and told later. */
	for (uint32_t i = 10; i < 40; i++) {
		enum baton_status status;

		start_recv(&world, 1, i, 0, 7, 9 * CHUNK, false);
		status = take_back(&world, 1, i);
		ck_assert(status == BATON_ERR_BUSY ||
		          status == BATON_ERR_CANCELED);
		run(&world);
		assert_ended(&world, 1, i, BATON_ERR_CANCELED, 0);
	}
	assert_idle(&world, 1);
	close_world(&world);
}
END_TEST

/* Close one rank after so many steps of an exchange, in whatever phase it is then. */
START_TEST(a_rank_may_abort_in_any_phase)
{
	for (int steps = 0; steps < 60; steps++) {
		struct world world;
		int first = steps % 2;

		open_world(&world, "ddd", steps % 3 == 0);
		fake_memory_hold(true);
		for (uint32_t i = 0; i < LENGTHS; i++) {
			start_send(&world, 0, i, 1, 0, lengths[i], i, i % 3 == 0);
			start_recv(&world, 1, i, 0, 0, lengths[i], i % 4 == 0);
		}
		for (int i = 0; i < steps; i++) {
			step(&world, i % 2);
			if (fake_memory_copies() > 0)
				fake_memory_end(0);
		}
		fake_memory_hold(false);
		close_rank(&world, first);
		/* The others go on. */
		start_send(&world, 1 - first, 50, 2, 0, 0, 9, true);
		start_recv(&world, 2, 50, 1 - first, 0, 0, true);
		run(&world);
		assert_ended(&world, 2, 50, BATON_OK, 0);
		close_world(&world);
	}
}
END_TEST

/* Nothing writes its buffer from now on. */
static void
scrap(struct world *world, int rank, uint32_t slot)
{
	struct rank *r = &world->ranks[rank];
	struct batoni_path *path = &r->transport->messages;
	enum baton_status status;

	while ((status = path->ops->scrapping->scrap(path, &r->transfers[slot])) ==
	       BATON_PENDING) {
		if (fake_memory_copies() > 0)
			fake_memory_end(0);
		test_once(world, rank);
	}
	ck_assert_int_eq(status, BATON_OK);
}

/* Messages from rank 0 to rank 1, in the phase that they are in after so many steps: those of this rank that
 * cannot be taken back are scrapped.  Copies are held. */
static void
open_and_scrap(struct world *world, int steps, int rank)
{
	const char *const devices[] = {"dd", "dh", "hd"};

	open_world(world, devices[steps / 2 % 3], steps % 4 == 3);
	fake_memory_hold(true);
	for (uint32_t i = 0; i < LENGTHS; i++) {
		start_send(world, 0, i, 1, 0, lengths[i], i, i % 3 == 0);
		start_recv(world, 1, i, 0, 0, lengths[i], i % 4 == 0);
	}
	for (int i = 0; i < steps; i++) {
		test_once(world, i % 2);
		if (i % 2 && fake_memory_copies() > 0)
			fake_memory_end(0);
	}
	for (uint32_t i = 0; i < LENGTHS; i++)
		if (!world->ranks[rank].ended[i] &&
		    take_back(world, rank, i) == BATON_ERR_BUSY)
			scrap(world, rank, i);
}

/* The buffers of receives go, in whatever phase these are: what comes of them later is not
 * written, and holds nothing up. */
START_TEST(what_was_scrapped_is_not_written)
{
	for (int steps = 0; steps < 60; steps++) {
		unsigned char *before[LENGTHS], now[40 * CHUNK];
		struct world world;

		open_and_scrap(&world, steps, 1);
		for (uint32_t i = 0; i < LENGTHS; i++) {
			ck_assert_uint_le(lengths[i], sizeof(now));
			before[i] = malloc(lengths[i] + 1);
			fake_memory_copy(before[i], world.ranks[1].buffers[i],
			                 lengths[i]);
		}
		fake_memory_hold(false);
		run(&world);
		for (uint32_t i = 0; i < LENGTHS; i++) {
			fake_memory_copy(now, world.ranks[1].buffers[i],
			                 lengths[i]);
			ck_assert_mem_eq(now, before[i], lengths[i]);
			free(before[i]);
		}
		ck_assert_uint_eq(
			stage_of(&world, 1)->base.messages.load.moving, 0);
		ck_assert_int_eq(world.ranks[1].broken, BATON_OK);
		start_send(&world, 0, 50, 1, 1, 3 * CHUNK, 9, true);
		start_recv(&world, 1, 50, 0, 1, 3 * CHUNK, true);
		run(&world);
		assert_content(&world, 1, 50, 3 * CHUNK, 9);
		close_world(&world);
	}
}
END_TEST

/* The same of sends: of what is in their buffers afterwards nothing leaves. */
START_TEST(what_was_scrapped_is_not_read)
{
	for (int steps = 0; steps < 60; steps++) {
		static unsigned char other[40 * CHUNK];
		struct world world;

		memset(other, 0x5a, sizeof(other));
		open_and_scrap(&world, steps, 0);
		for (uint32_t i = 0; i < LENGTHS; i++)
			fake_memory_copy(world.ranks[0].buffers[i], other,
			                 lengths[i]);
		fake_memory_hold(false);
		run(&world);
		for (uint32_t i = 0; i < LENGTHS; i++) {
			static unsigned char now[40 * CHUNK];

			fake_memory_copy(now, world.ranks[1].buffers[i],
			                 lengths[i]);
			for (size_t at = 0; at + 8 <= lengths[i]; at += 8)
				ck_assert(memcmp(now + at, other, 8) != 0);
		}
		ck_assert_int_eq(world.ranks[0].broken, BATON_OK);
		close_world(&world);
	}
}
END_TEST

/* ---- failures ---------------------------------------------------------------- */

START_TEST(a_copy_that_fails_breaks_its_rank)
{
	static const enum fake_device_call calls[] = {FAKE_COPY_START,
		                                      FAKE_COPY_TEST};

	for (unsigned n = 1; n <= 24; n++) {
		struct world world;
		size_t bytes = n % 3 ? 5 * CHUNK : EAGER;

		open_world(&world, "dd", n % 2);
		fake_device_fail_at(calls[n % 2], n % 12 + 1, BATON_ERR_CUDA);
		for (uint32_t i = 0; i < 12; i++) {
			start_send(&world, 0, i, 1, 0, bytes, i, false);
			start_recv(&world, 1, i, 0, 0, bytes, false);
		}
		run(&world);
		ck_assert(world.ranks[0].broken == BATON_ERR_CUDA ||
		          world.ranks[1].broken == BATON_ERR_CUDA);
		close_world(&world);
	}
}
END_TEST

START_TEST(a_header_without_a_type_breaks_a_rank_in_checked_mode)
{
	/* Either has one that the other has not. */
	for (int checked = 0; checked < 2; checked++) {
		struct world world;

		open_world(&world, "dd", false);
		stage_of(&world, checked)->check = true;
		start_recv(&world, 1, 0, 0, 0, EAGER, false);
		start_send(&world, 0, 0, 1, 0, EAGER, 4, false);
		run(&world);
		assert_ended(&world, 1, 0, BATON_ERR_PEER, 0);
		assert_content(&world, 1, 0, 0, 4);
		ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
		close_world(&world);
	}
}
END_TEST

/* As the engine does: a path is tested while it has something in flight. */
static void
step_in_flight(struct world *world, int rank)
{
	struct batoni_path *path = &world->ranks[rank].transport->messages;

	for (int i = 0; i < 20 && path->load.in_flight > 0; i++)
		test_once(world, rank);
}

/* A send fails at its second piece; the receiver has its first, and grants another. */
START_TEST(what_the_peer_ends_of_a_failed_message_leaves_nothing_to_look_at)
{
	const struct batoni_load *load;
	struct world world;

	open_world(&world, "dd", false);
	load = &world.ranks[0].transport->messages.load;
	fake_memory_hold(true);
	start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, false);
	start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 1, false);
	step(&world, 1);
	step(&world, 0);
	ck_assert_uint_ge(fake_memory_copies(), 2);
	fake_memory_end(0);
	step(&world, 0);
	fake_device_fail_at(FAKE_COPY_TEST, 1, BATON_ERR_CUDA);
	fake_memory_end(0);
	fake_memory_hold(false);
	while (load->in_flight > 0)
		step_in_flight(&world, 0);
	ck_assert_int_eq(world.ranks[0].broken, BATON_ERR_CUDA);
	ck_assert_uint_eq(load->moving, 0);
	world.ranks[0].moves = 0;
	while (load->moving == 0)
		step(&world, 1);
	/* The engine was told to look. */
	ck_assert_uint_gt(world.ranks[0].moves, 0);
	step_in_flight(&world, 0);
	ck_assert_uint_eq(load->moving, 0);
	ck_assert_uint_eq(load->in_flight, 0);
	close_world(&world);
}
END_TEST

/* One of its pieces fails, while others are being received into its buffer. */
START_TEST(a_failed_receive_is_not_written_after_its_end)
{
	for (unsigned n = 1; n <= 9; n++) {
		unsigned char before[9 * CHUNK];
		const unsigned char *buffer;
		struct world world;

		open_world(&world, "dh", true);
		fail_piece_lower(&world, 1, n);
		start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, true);
		start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 1, false);
		for (int i = 0; !world.ranks[1].ended[0]; i++)
			test_once(&world, i % 2);
		ck_assert_int_eq(world.ranks[1].status[0], BATON_ERR_MPI);
		buffer = world.ranks[1].buffers[0];
		memcpy(before, buffer, sizeof(before));
		run(&world);
		ck_assert_mem_eq(buffer, before, sizeof(before));
		close_world(&world);
	}
}
END_TEST

/* The engine, which breaks the communicator, is told that the buffer is in use. */
START_TEST(a_failed_receive_is_lent_while_its_pieces_are_lower)
{
	unsigned lent = 0;

	for (unsigned n = 1; n <= 9; n++) {
		const struct stage_message *message;
		struct world world;

		open_world(&world, "dh", true);
		fail_piece_lower(&world, 1, n);
		start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, true);
		start_send(&world, 0, 0, 1, 0, 9 * CHUNK, 1, false);
		message = &stage_of(&world, 1)->messages[0];
		for (int i = 0; !message->failed; i++)
			test_once(&world, i % 2);
		if (!world.ranks[1].ended[0]) {
			lent++;
			ck_assert_int_eq(take_back(&world, 1, 0),
			                 BATON_ERR_BUSY);
		}
		for (int i = 0; !world.ranks[1].ended[0]; i++)
			test_once(&world, i % 2);
		ck_assert_int_eq(world.ranks[1].status[0], BATON_ERR_MPI);
		close_world(&world);
	}
	ck_assert_uint_gt(lent, 0);
}
END_TEST

/* Between two calls about it.  The second call does not take the message behind. */
START_TEST(a_probe_hears_that_the_first_part_of_its_message_has_failed)
{
	const struct batoni_staging_config config = {
		.chunk_bytes = CHUNK,
		.chunks = CHUNKS_EACH,
		/* A first part is as long as a piece. */
		.eager_bytes = CHUNK - BATONI_STAGING_HEADER_BYTES,
		.eager_slots = EAGERS_EACH,
		.eager_per_peer = EAGER_PEER,
	};
	struct batoni_transfer probe = {
		.tag = 7, .slot = 5, .direction = BATONI_RECV};
	struct batoni_held held;
	struct batoni_path *path;
	struct world world;

	open_world_with(&world, "dh", true, &config);
	fail_piece_lower(&world, 1, 1);
	for (unsigned i = 0; i < 2; i++)
		start_send(&world, 0, i, 1, 7, 10, 1 + i, false);
	path = &world.ranks[1].transport->messages;
	ck_assert_int_eq(batoni_stage_hold(path, &probe, &held), BATON_PENDING);
	while (stage_of(&world, 1)->begun > 0)
		for (int rank = 0; rank < 2; rank++)
			test_once(&world, rank);
	ck_assert_int_eq(batoni_stage_hold(path, &probe, &held), BATON_ERR_PEER);
	ck_assert_uint_eq(world.ranks[1].ends, 0);
	start_recv(&world, 1, 0, 0, 7, 10, true);
	run(&world);
	assert_ended(&world, 1, 0, BATON_OK, 10);
	assert_content(&world, 1, 0, 10, 2);
	assert_idle(&world, 1);
	/* The slot is good for another. */
	start_send(&world, 0, 2, 1, 7, 10, 3, false);
	run(&world);
	while (batoni_stage_hold(path, &probe, &held) == BATON_PENDING)
		test_once(&world, 1);
	ck_assert_uint_eq(held.bytes, 10);
	ck_assert_int_eq(batoni_stage_meet(path, &probe, &probe),
	                 BATON_ERR_TRUNCATED);
	close_world(&world);
}
END_TEST

START_TEST(a_device_that_takes_no_more_copies_now_is_asked_again)
{
	struct world world;

	open_world(&world, "dd", false);
	for (unsigned n = 1; n <= 12; n++) {
		fake_device_fail_at(FAKE_COPY_START, n, BATON_ERR_AGAIN);
		pass(&world, 5 * CHUNK + n, 5 * CHUNK + n, 0);
		fake_device_fail_at(FAKE_COPY_START, 1 + n % 2, BATON_ERR_AGAIN);
		pass(&world, EAGER, EAGER, 0);
	}
	ck_assert_int_eq(world.ranks[0].broken, BATON_OK);
	close_world(&world);
}
END_TEST

START_TEST(creation_without_memory_leaves_none)
{
	struct batoni_transport_config above = {.slots = 8, .slots_most = 8};
	const struct batoni_staging_config *config = &batoni_staging_ops.defaults;
	struct batoni_staging *staging;
	struct batoni_device *device;
	unsigned long n, allocations;

	batoni_fake_device_ops.open(NULL, &device);
	above.device = device;
	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_staging_ops.create(&above, config, 2, &staging),
	                 BATON_OK);
	allocations = batoni_mem_fail_at(0);
	ck_assert_uint_eq(allocations, 5);
	/* Bounded, and all of it now. */
	ck_assert_uint_ge(fake_memory_pinned(),
	                  2 * config->chunks * config->chunk_bytes);
	ck_assert_uint_le(fake_memory_pinned(), (size_t)17 << 20);
	batoni_staging_ops.discard(staging);
	for (n = 1; n <= allocations; n++) {
		batoni_mem_fail_at(n);
		ck_assert_int_eq(batoni_staging_ops.create(&above, config, 2,
		                                           &staging),
		                 BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	batoni_mem_fail_at(0);
	fake_memory_budget(1 << 20);
	ck_assert_int_eq(batoni_staging_ops.create(&above, config, 2, &staging),
	                 BATON_ERR_NOMEM);
	fake_device_fail_at(FAKE_PINNED_ALLOC, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(batoni_staging_ops.create(&above, config, 2, &staging),
	                 BATON_ERR_CUDA);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	ck_assert_uint_eq(fake_memory_pinned(), 0);
	batoni_fake_device_ops.close(device);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

/* ---- at random ----------------------------------------------------------------- */

/* Sends and receives of all ranks in any order, over three tags: the k-th send of a
 * (source, target, tag) is received by the k-th receive. */
static void
random_traffic(const char *devices, bool late, unsigned seed)
{
	enum { TAGS = 3, EACH = 12 };
	struct world world;
	int size = (int)strlen(devices);
	int lines = size * size * TAGS;
	int sent[RANKS_MAX * RANKS_MAX * TAGS] = {0};
	int received[RANKS_MAX * RANKS_MAX * TAGS] = {0};

	open_world(&world, devices, late);
	for (int left = 2 * lines * EACH; left > 0;) {
		int line = rand_r(&seed) % lines;
		int tag = line % TAGS, from = line / TAGS % size;
		int to = line / TAGS / size;
		bool host = rand_r(&seed) % 3 == 0;
		uint32_t slot;

		world.gathers = rand_r(&seed) % 4 != 0;

		if (rand_r(&seed) % 2 && sent[line] < EACH) {
			slot = (uint32_t)(line * EACH + sent[line]++);
			start_send(&world, from, slot, to, tag,
			           lengths[slot * 7 % LENGTHS], slot, host);
			left--;
		} else if (received[line] < EACH) {
			slot = (uint32_t)(line * EACH + received[line]++);
			start_recv(&world, to, slot + SLOTS / 2, from, tag,
			           lengths[slot * 7 % LENGTHS], host);
			left--;
		}
		test_once(&world, from);
	}
	run(&world);
	for (int line = 0; line < lines; line++) {
		for (int i = 0; i < EACH; i++) {
			uint32_t slot = (uint32_t)(line * EACH + i);
			size_t bytes = lengths[slot * 7 % LENGTHS];

			assert_ended(&world, line / TAGS % size, slot, BATON_OK,
			             bytes);
			assert_ended(&world, line / TAGS / size,
			             slot + SLOTS / 2, BATON_OK, bytes);
			assert_content(&world, line / TAGS / size,
			               slot + SLOTS / 2, bytes, slot);
		}
	}
	for (int i = 0; i < size; i++)
		assert_idle(&world, i);
	close_world(&world);
}

START_TEST(any_traffic_arrives_in_order)
{
	static const char *const devices[] = {"dd", "dhd", "dddd", "hd"};

	for (unsigned seed = 1; seed <= 12; seed++) {
		printf("seed %u\n", seed);
		random_traffic(devices[seed % 4], seed % 2, seed);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		every_length_arrives_between_memory_of_all_kinds,
		and_over_a_transport_that_reports_late,
		a_rank_on_the_host_and_one_on_a_device_understand_each_other,
		a_receive_may_be_longer_and_is_not_written_past_the_message,
		a_receive_that_is_too_short_is_not_written,
		a_message_to_oneself_arrives,
		a_receive_from_any_rank_on_the_last_hidden_tag_answers_its_sender,
		what_needs_no_copy_does_not_overtake_what_is_being_copied,
		copies_that_end_in_the_wrong_order_do_no_harm,
		receives_without_a_message_hold_nothing,
		sends_that_one_peer_does_not_receive_hold_up_no_other,
		a_peer_that_makes_no_progress_has_its_share_and_no_more,
		peers_that_make_no_progress_leave_a_chunk_for_each_other_peer,
		what_a_peer_that_has_died_was_to_send_gives_its_chunks_back,
		a_short_message_takes_turns_with_a_long_one,
		pieces_and_copies_of_one_message_overlap,
		a_single_chunk_is_enough,
		ranks_with_chunks_of_other_sizes_understand_each_other,
		a_receive_is_taken_back_until_it_has_matched,
		an_eager_message_that_waits_for_its_copy_cannot_be_taken_back,
		nor_can_it_when_its_sender_has_died,
		a_send_is_taken_back_until_it_is_received,
		the_path_lower_is_told_of_the_end_of_the_rank,
		a_send_in_a_line_is_taken_back_and_the_line_goes_on,
		what_the_transport_lower_cannot_take_back_stays_lent,
		a_rank_may_abort_in_any_phase,
		what_was_scrapped_is_not_written,
		what_was_scrapped_is_not_read,
		a_copy_that_fails_breaks_its_rank,
		a_header_without_a_type_breaks_a_rank_in_checked_mode,
		what_the_peer_ends_of_a_failed_message_leaves_nothing_to_look_at,
		a_failed_receive_is_not_written_after_its_end,
		a_failed_receive_is_lent_while_its_pieces_are_lower,
		a_probe_hears_that_the_first_part_of_its_message_has_failed,
		a_device_that_takes_no_more_copies_now_is_asked_again,
		creation_without_memory_leaves_none,
		any_traffic_arrives_in_order,
	};

	return RUN_TESTS("staging", tests);
}
