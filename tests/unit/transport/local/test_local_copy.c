/* SPDX-License-Identifier: BSD-3-Clause */
/* The local transport: long messages, messages to oneself, leaving, closing. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "local_world.h"
#include "run_tests.h"

/* ---- long messages ------------------------------------------------------ */

/* A message from rank 0 to rank 1 with both ends issued. */
struct message {
	struct batoni_transfer s, r;
	unsigned char *from, *to;
	size_t bytes;
};

static void
start_message(struct world *world, struct message *message, uint32_t slot,
              size_t bytes)
{
	message->bytes = bytes;
	message->from = pattern(bytes, slot + 1);
	message->to = zeros(bytes);
	message->r = transfer(BATONI_RECV, slot, 0, (int)slot, message->to,
	                      bytes);
	message->s = transfer(BATONI_SEND, slot, 1, (int)slot, message->from,
	                      bytes);
	ck_assert_int_eq(issue(world, 1, &message->r), BATON_PENDING);
	ck_assert_int_eq(issue(world, 0, &message->s), BATON_PENDING);
}

static void
assert_arrived(const struct message *message)
{
	ck_assert_uint_eq(message->r.done_bytes, message->bytes);
	ck_assert_mem_eq(message->from, message->to, message->bytes);
}

static void
free_message(struct message *message)
{
	free(message->from);
	free(message->to);
}

/* Bytes of the message that have arrived, in whatever order. */
static size_t
arrived(const struct message *message)
{
	size_t n = 0;

	/* Every 4 KiB block of a pattern holds something else than zeros. */
	for (size_t at = 0; at < message->bytes; at += 4 * KIB) {
		if (memcmp(message->from + at, message->to + at, 4 * KIB) == 0)
			n += 4 * KIB;
	}
	return n;
}

START_TEST(sixteen_kib_are_copied_by_issue_and_no_more)
{
	struct world world;
	unsigned char *from = pattern(16 * KIB + 1, 3);
	unsigned char *to = zeros(16 * KIB + 1);
	struct batoni_transfer r =
		transfer(BATONI_RECV, 0, 0, 0, to, 16 * KIB);
	struct batoni_transfer s =
		transfer(BATONI_SEND, 0, 1, 0, from, 16 * KIB);

	open_world(&world, 2, 1);
	issue(&world, 1, &r);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_OK);
	ck_assert_uint_eq(world.recorders[1].moves, 0);
	ck_assert_mem_eq(from, to, 16 * KIB);
	memset(to, 0, 16 * KIB);
	r = transfer(BATONI_RECV, 0, 0, 0, to, 16 * KIB + 1);
	s = transfer(BATONI_SEND, 0, 1, 0, from, 16 * KIB + 1);
	issue(&world, 1, &r);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_PENDING);
	/* The other rank's engine is told that there is something to move. */
	ck_assert_uint_eq(world.recorders[1].moves, 1);
	assert_zeros(to, 16 * KIB + 1);
	ck_assert_uint_eq(world.transports[0]->messages.load.moving, 1);
	ck_assert_uint_eq(world.transports[1]->messages.load.moving, 1);
	ck_assert_uint_eq(test(&world, 1), 2);
	assert_last(&world, 0, &s, BATON_OK);
	assert_last(&world, 1, &r, BATON_OK);
	ck_assert_mem_eq(from, to, 16 * KIB + 1);
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	close_world(&world);
	free(from);
	free(to);
}
END_TEST

START_TEST(one_pass_moves_one_mib_and_copies_take_turns)
{
	struct world world;
	struct message a, b;

	open_world(&world, 2, 2);
	start_message(&world, &a, 0, 3 * MIB);
	start_message(&world, &b, 1, 3 * MIB);
	ck_assert_uint_eq(world.transports[0]->messages.load.moving, 2);
	for (size_t turn = 1; turn <= 2; turn++) {
		test(&world, 1);
		ck_assert_uint_eq(arrived(&a), turn * MIB);
		ck_assert_uint_eq(arrived(&b), (turn - 1) * MIB);
		test(&world, 1);
		ck_assert_uint_eq(arrived(&b), turn * MIB);
	}
	ck_assert_uint_eq(world.recorders[1].count, 0);
	test(&world, 1);
	assert_last(&world, 1, &a.r, BATON_OK);
	test(&world, 1);
	assert_last(&world, 1, &b.r, BATON_OK);
	ck_assert_uint_eq(world.recorders[0].count, 2);
	ck_assert_uint_eq(test(&world, 1), 0);
	assert_arrived(&a);
	assert_arrived(&b);
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	close_world(&world);
	free_message(&a);
	free_message(&b);
}
END_TEST

START_TEST(what_one_copy_leaves_of_a_pass_goes_to_the_next)
{
	struct world world;
	struct message a, b;

	open_world(&world, 2, 2);
	start_message(&world, &a, 0, 256 * KIB);
	start_message(&world, &b, 1, 3 * MIB);
	test(&world, 1);
	assert_last(&world, 1, &a.r, BATON_OK);
	ck_assert_uint_eq(arrived(&b), 768 * KIB);
	close_world(&world);
	free_message(&a);
	free_message(&b);
}
END_TEST

START_TEST(the_sending_rank_moves_its_copies_too)
{
	struct world world;
	struct message a;

	open_world(&world, 2, 2);
	start_message(&world, &a, 0, 2 * MIB);
	test(&world, 0);
	ck_assert_uint_eq(arrived(&a), MIB);
	test(&world, 0);
	assert_last(&world, 0, &a.s, BATON_OK);
	assert_last(&world, 1, &a.r, BATON_OK);
	assert_arrived(&a);
	close_world(&world);
	free_message(&a);
}
END_TEST

START_TEST(long_message_truncates_at_the_capacity)
{
	struct world world;
	unsigned char *from = pattern(3 * MIB, 1);
	unsigned char *to = zeros(2 * MIB);
	struct batoni_transfer r = transfer(BATONI_RECV, 0, 0, 0, to, MIB);
	struct batoni_transfer s =
		transfer(BATONI_SEND, 0, 1, 0, from, 3 * MIB);

	open_world(&world, 2, 1);
	issue(&world, 0, &s);
	ck_assert_int_eq(issue(&world, 1, &r), BATON_PENDING);
	test(&world, 1);
	assert_last(&world, 1, &r, BATON_ERR_TRUNCATED);
	assert_last(&world, 0, &s, BATON_OK);
	ck_assert_uint_eq(r.done_bytes, 3 * MIB);
	ck_assert_uint_eq(s.done_bytes, 3 * MIB);
	assert_zeros(to + MIB, MIB);
	close_world(&world);
	free(from);
	free(to);
}
END_TEST

START_TEST(copy_under_way_is_busy_and_goes_on_to_its_end)
{
	struct world world;
	struct message a;

	open_world(&world, 2, 1);
	start_message(&world, &a, 0, 2 * MIB);
	test(&world, 1);
	ck_assert_int_eq(take_back(&world, 0, &a.s), BATON_ERR_BUSY);
	ck_assert_int_eq(take_back(&world, 1, &a.r), BATON_ERR_BUSY);
	ck_assert_int_eq(take_back(&world, 1, &a.r), BATON_ERR_BUSY);
	ck_assert_uint_eq(world.transports[1]->messages.load.in_flight, 1);
	test(&world, 1);
	assert_last(&world, 0, &a.s, BATON_OK);
	assert_last(&world, 1, &a.r, BATON_OK);
	assert_arrived(&a);
	close_world(&world);
	free_message(&a);
}
END_TEST

/* ---- self messages ------------------------------------------------------ */

START_TEST(rank_sends_to_itself_as_to_others)
{
	struct world world;
	size_t sizes[] = {4, 16 * MIB};

	open_world(&world, 1, 2);
	for (int i = 0; i < 2; i++) {
		unsigned char *from = pattern(sizes[i], 5);
		unsigned char *to = zeros(sizes[i]);
		struct batoni_transfer s =
			transfer(BATONI_SEND, 0, 0, 1, from, sizes[i]);
		struct batoni_transfer r =
			transfer(BATONI_RECV, 1, 0, 1, to, sizes[i]);

		ck_assert_int_eq(issue(&world, 0, &s), BATON_PENDING);
		issue(&world, 0, &r);
		while (world.transports[0]->messages.load.moving > 0)
			ck_assert_uint_gt(test(&world, 0), 0);
		assert_idle(&world, 0);
		ck_assert_uint_eq(r.done_bytes, sizes[i]);
		ck_assert_mem_eq(from, to, sizes[i]);
		free(from);
		free(to);
	}
	ck_assert_uint_eq(world.recorders[0].count, 3);
	close_world(&world);
}
END_TEST

/* Send block[from..] to block[to..] of the same rank, and compare with memmove. */
static void
overlap(size_t from, size_t to, size_t bytes)
{
	struct world world;
	size_t all = (from > to ? from : to) + bytes;
	unsigned char *block = pattern(all, 9);
	unsigned char *want = pattern(all, 9);
	struct batoni_transfer s =
		transfer(BATONI_SEND, 0, 0, 0, block + from, bytes);
	struct batoni_transfer r =
		transfer(BATONI_RECV, 1, 0, 0, block + to, bytes);

	memmove(want + to, want + from, bytes);
	open_world(&world, 1, 2);
	issue(&world, 0, &r);
	issue(&world, 0, &s);
	while (world.transports[0]->messages.load.moving > 0)
		test(&world, 0);
	ck_assert_mem_eq(block, want, all);
	close_world(&world);
	free(block);
	free(want);
}

START_TEST(overlapping_buffers_end_as_memmove_leaves_them)
{
	overlap(0, 5, 100);
	overlap(5, 0, 100);
	overlap(0, 0, 3 * MIB);
	overlap(0, 1000, 3 * MIB + 7);
	overlap(1000, 0, 3 * MIB + 7);
	overlap(0, 2 * MIB, 3 * MIB);
	overlap(2 * MIB, 0, 3 * MIB);
}
END_TEST

/* ---- leaving and closing ------------------------------------------------ */

static enum baton_status
leave(struct world *world, int rank)
{
	struct batoni_transport *transport = world->transports[rank];

	return transport->ops->leave(transport);
}

START_TEST(a_rank_leaves_alone)
{
	struct world world;

	open_world(&world, 3, 4);
	ck_assert_int_eq(leave(&world, 2), BATON_OK);
	ck_assert_int_eq(leave(&world, 2), BATON_OK);
	close_world(&world);
}
END_TEST

START_TEST(what_a_closed_rank_had_waiting_matches_nothing)
{
	struct world world;
	int a = 1, b = 2, c = 0, d = 0;
	struct batoni_transfer gone = transfer(BATONI_SEND, 0, 1, 4, &a, 4);
	struct batoni_transfer behind = transfer(BATONI_SEND, 1, 1, 4, &b, 4);
	struct batoni_transfer late = transfer(BATONI_RECV, 0, 0, 4, &c, 4);
	struct batoni_transfer lost = transfer(BATONI_RECV, 1, 1, 4, &d, 4);
	struct batoni_transfer to_it = transfer(BATONI_SEND, 1, 0, 4, &d, 4);

	open_world(&world, 2, 2);
	issue(&world, 0, &gone);
	issue(&world, 0, &behind);
	close_rank(&world, 0);
	ck_assert_int_eq(issue(&world, 1, &late), BATON_PENDING);
	ck_assert_int_eq(issue(&world, 1, &to_it), BATON_PENDING);
	ck_assert_uint_eq(world.transports[1]->messages.load.in_flight, 2);
	ck_assert_uint_eq(test(&world, 1), 0);
	ck_assert_int_eq(take_back(&world, 1, &late), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_back(&world, 1, &to_it), BATON_ERR_CANCELED);
	lost.slot = 0;
	issue(&world, 1, &lost);
	close_world(&world);
}
END_TEST

/* The other rank has closed: a pass ends this side of the message, and with it the world. */
static void
end_last(struct world *world, int rank, struct message *message,
         const struct batoni_transfer *side)
{
	ck_assert_uint_eq(test(world, rank), 1);
	assert_last(world, rank, side, BATON_OK);
	ck_assert_uint_eq(side->done_bytes, message->bytes);
	assert_idle(world, rank);
	close_world(world);
	free_message(message);
}

START_TEST(receive_from_a_rank_that_closes_in_mid_copy_gets_it_all)
{
	struct world world;
	struct message a;

	open_world(&world, 2, 1);
	start_message(&world, &a, 0, 5 * MIB);
	test(&world, 1);
	close_rank(&world, 0);
	/* The sender's buffer is the program's again: it may go. */
	ck_assert_mem_eq(a.from, a.to, 5 * MIB);
	memset(a.from, 0xff, 5 * MIB);
	ck_assert_uint_eq(world.recorders[1].count, 0);
	ck_assert_uint_eq(world.transports[1]->messages.load.moving, 1);
	end_last(&world, 1, &a, &a.r);
}
END_TEST

START_TEST(send_to_a_rank_that_closes_in_mid_copy_ends)
{
	struct world world;
	struct message a;

	open_world(&world, 2, 1);
	start_message(&world, &a, 0, 5 * MIB);
	test(&world, 0);
	close_rank(&world, 1);
	/* Nothing may touch the receiver's buffer any more. */
	free(a.to);
	a.to = NULL;
	end_last(&world, 0, &a, &a.s);
}
END_TEST

START_TEST(taking_back_what_is_only_to_be_reported_says_how_it_ended)
{
	struct world world;
	struct message a;

	open_world(&world, 2, 1);
	start_message(&world, &a, 0, 5 * MIB);
	close_rank(&world, 0);
	ck_assert_int_eq(take_back(&world, 1, &a.r), BATON_OK);
	assert_arrived(&a);
	assert_idle(&world, 1);
	ck_assert_uint_eq(test(&world, 1), 0);
	ck_assert_uint_eq(world.recorders[1].count, 0);
	close_world(&world);
	free_message(&a);
}
END_TEST

START_TEST(rank_may_close_in_the_middle_of_a_message_to_itself)
{
	struct world world;
	unsigned char *from = pattern(3 * MIB, 1);
	unsigned char *to = zeros(3 * MIB);
	struct batoni_transfer s, r;

	for (uint32_t receive_slot = 0; receive_slot < 2; receive_slot++) {
		open_world(&world, 1, 2);
		s = transfer(BATONI_SEND, 1 - receive_slot, 0, 0, from,
		             3 * MIB);
		r = transfer(BATONI_RECV, receive_slot, 0, 0, to, 3 * MIB);
		issue(&world, 0, &s);
		issue(&world, 0, &r);
		test(&world, 0);
		close_world(&world);
	}
	free(from);
	free(to);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		sixteen_kib_are_copied_by_issue_and_no_more,
		one_pass_moves_one_mib_and_copies_take_turns,
		what_one_copy_leaves_of_a_pass_goes_to_the_next,
		the_sending_rank_moves_its_copies_too,
		long_message_truncates_at_the_capacity,
		copy_under_way_is_busy_and_goes_on_to_its_end,
		rank_sends_to_itself_as_to_others,
		overlapping_buffers_end_as_memmove_leaves_them,
		a_rank_leaves_alone,
		what_a_closed_rank_had_waiting_matches_nothing,
		receive_from_a_rank_that_closes_in_mid_copy_gets_it_all,
		send_to_a_rank_that_closes_in_mid_copy_ends,
		taking_back_what_is_only_to_be_reported_says_how_it_ended,
		rank_may_close_in_the_middle_of_a_message_to_itself,
	};

	return RUN_TESTS("local_copy", tests);
}
