/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging over two paths of messages: those of the lower transport, and those beside it, by which ranks of
 * an even and an odd number reach each other.  One pool of pinned memory serves both.
 */
#include <string.h>

#include "run_tests.h"
#include "staging_world.h"

static const size_t lengths[] = {
	0, 1, EAGER, EAGER + 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7, 20 * CHUNK + 1,
};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static struct world world;

static struct batoni_path *
beside_of(int rank)
{
	return stage_of(&world, rank)->beside;
}

static struct batoni_path *
lower_of(int rank)
{
	return &stage_of(&world, rank)->lower->messages;
}

/* Each rank sends to each, in memory of both kinds. */
static void
send_to_all(size_t bytes)
{
	for (int from = 0; from < world.size; from++)
		for (int to = 0; to < world.size; to++) {
			uint32_t slot = (uint32_t)(from * 4 + to);

			start_send(&world, from, slot, to, 5, bytes, slot,
			           from % 2 == 0 && to > 1);
			start_recv(&world, to, 100 + slot, from, 5, bytes,
			           to == 2);
		}
}

static void
assert_all_came(size_t bytes)
{
	for (uint32_t slot = 0; slot < (uint32_t)world.size * 4; slot++) {
		int from = (int)slot / 4, to = (int)slot % 4;

		if (to >= world.size)
			continue;
		assert_ended(&world, from, slot, BATON_OK, bytes);
		assert_ended(&world, to, 100 + slot, BATON_OK, bytes);
		assert_content(&world, to, 100 + slot, bytes, slot);
	}
	for (int rank = 0; rank < world.size; rank++)
		assert_idle(&world, rank);
}

START_TEST(messages_of_all_lengths_arrive_by_both_paths)
{
	for (size_t i = 0; i < LENGTHS * 2; i++) {
		open_world_beside(&world, "ddhd", i % 2);
		send_to_all(lengths[i / 2]);
		run(&world);
		assert_all_came(lengths[i / 2]);
		close_world(&world);
	}
}
END_TEST

/* Of rank 0: rank 1 is beside, 2 below. */
START_TEST(each_message_is_on_the_path_of_its_peer_alone)
{
	open_world_beside(&world, "ddd", false);
	start_recv(&world, 0, 0, 1, 0, 9 * CHUNK, false);
	ck_assert_uint_eq(beside_of(0)->load.in_flight, 1);
	ck_assert_uint_eq(lower_of(0)->load.in_flight, 0);
	start_recv(&world, 0, 1, 2, 0, 9 * CHUNK, false);
	ck_assert_uint_eq(beside_of(0)->load.in_flight, 1);
	ck_assert_uint_eq(lower_of(0)->load.in_flight, 1);
	ck_assert_int_eq(take_back(&world, 0, 0), BATON_ERR_CANCELED);
	ck_assert_uint_eq(beside_of(0)->load.in_flight, 0);
	ck_assert_int_eq(take_back(&world, 0, 1), BATON_ERR_CANCELED);
	ck_assert_uint_eq(lower_of(0)->load.in_flight, 0);
	close_world(&world);
}
END_TEST

START_TEST(messages_of_the_one_sided_layer_are_those_of_the_transport)
{
	const struct batoni_transport *t;
	int any;

	open_world_beside(&world, "ddd", false);
	t = world.ranks[1].transport;
	any = t->hidden_tag + HIDDEN_TAGS - 1;
	start_recv(&world, 1, 0, t->any_peer, any, 5 * CHUNK, false);
	start_recv(&world, 1, 1, 0, t->hidden_tag, 5 * CHUNK, false);
	ck_assert_uint_eq(beside_of(1)->load.in_flight, 0);
	start_send(&world, 0, 0, 1, any, 5 * CHUNK, 1, false);
	start_send(&world, 0, 1, 1, t->hidden_tag, 5 * CHUNK, 2, false);
	ck_assert_uint_eq(beside_of(0)->load.in_flight, 0);
	run(&world);
	assert_content(&world, 1, 0, 5 * CHUNK, 1);
	assert_content(&world, 1, 1, 5 * CHUNK, 2);
	close_world(&world);
}
END_TEST

START_TEST(the_first_call_connects_what_is_beside)
{
	struct batoni_path *path;

	open_world_beside(&world, "ddd", false);
	path = &world.ranks[0].transport->messages;
	for (int peer = 0; peer < 3; peer++) {
		ck_assert(path->ops->serving->serves(path, BATON_OPERATION_SEND,
		                                     peer));
		ck_assert_int_eq(path->ops->serving->connect(path, peer),
		                 BATON_OK);
	}
	ck_assert_uint_eq(connects_beside(), 1);
	close_world(&world);
	open_world(&world, "dd", false);
	ck_assert_ptr_null(world.ranks[0].transport->messages.ops->serving);
	close_world(&world);
}
END_TEST

/* Rank 1, beside, makes no progress with many long messages: rank 2, below, has chunks, as if both were on
 * one path; and the other way round. */
static void
hold_up(int silent)
{
	int other = 3 - silent;

	open_world_beside(&world, "ddd", false);
	for (uint32_t i = 0; i < 8; i++) {
		start_send(&world, 0, i, silent, 0, 9 * CHUNK, i, false);
		start_recv(&world, silent, i, 0, 0, 9 * CHUNK, false);
	}
	for (int i = 0; i < 40; i++) {
		test_once(&world, silent);
		test_once(&world, 0);
	}
	/* From here on it takes nothing. */
	start_send(&world, 0, 20, other, 0, 9 * CHUNK, 20, false);
	start_recv(&world, other, 20, 0, 0, 9 * CHUNK, false);
	while (!world.ranks[other].ended[20]) {
		test_once(&world, 0);
		test_once(&world, other);
	}
	assert_content(&world, other, 20, 9 * CHUNK, 20);
	ck_assert_uint_le(stage_of(&world, 0)->held[SENDS], CHUNKS_EACH);
	run(&world);
	for (uint32_t i = 0; i < 8; i++)
		assert_content(&world, silent, i, 9 * CHUNK, i);
	assert_idle(&world, 0);
	close_world(&world);
}

START_TEST(a_silent_peer_of_one_path_leaves_chunks_to_the_other)
{
	hold_up(1);
	hold_up(2);
}
END_TEST

START_TEST(a_rank_may_abort_in_any_phase)
{
	for (int steps = 0; steps < 40; steps++) {
		open_world_beside(&world, "ddd", steps % 3 == 0);
		fake_memory_hold(true);
		for (uint32_t i = 0; i < LENGTHS; i++)
			for (int to = 1; to < 3; to++) {
				uint32_t slot = i * 2 + (uint32_t)to;

				start_send(&world, 0, slot, to, 0, lengths[i], i,
				           i % 3 == 0);
				start_recv(&world, to, slot, 0, 0, lengths[i],
				           false);
			}
		for (int i = 0; i < steps; i++) {
			step(&world, i % 3);
			if (fake_memory_copies() > 0)
				fake_memory_end(0);
		}
		fake_memory_hold(false);
		close_rank(&world, steps % 3);
		close_world(&world);
	}
}
END_TEST

/* Its grants would go to a rank that the path does not serve. */
START_TEST(a_header_that_names_another_rank_breaks_the_receiver)
{
	struct batoni_transfer lie = {.bytes = BATONI_STAGING_HEADER_BYTES,
	                              .peer = 1};
	struct stage_header header;

	open_world_beside(&world, "ddd", false);
	start_recv(&world, 1, 0, 0, 0, 9 * CHUNK, false);
	batoni_stage_header_init(&header);
	header.kind = HEADER_ASKS;
	header.length = 9 * CHUNK;
	header.piece = CHUNK;
	header.source = 2;
	lie.buffer = &header;
	lie.slot = 3;
	lie.direction = BATONI_SEND;
	batoni_path_issue(beside_of(0), &lie);
	run(&world);
	ck_assert_int_eq(world.ranks[1].broken, BATON_ERR_PEER);
	assert_ended(&world, 1, 0, BATON_ERR_PEER, 0);
	close_world(&world);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		messages_of_all_lengths_arrive_by_both_paths,
		each_message_is_on_the_path_of_its_peer_alone,
		messages_of_the_one_sided_layer_are_those_of_the_transport,
		the_first_call_connects_what_is_beside,
		a_silent_peer_of_one_path_leaves_chunks_to_the_other,
		a_rank_may_abort_in_any_phase,
		a_header_that_names_another_rank_breaks_the_receiver,
	};

	return RUN_TESTS("staging_beside", tests);
}
