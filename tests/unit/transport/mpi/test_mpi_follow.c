/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which requests a pass tests (transport/mpi/mpi.c), and receives that follow others and are not tested
 * (follow.c).
 */
#include <sched.h>

#include "mpi_world.h"

/* Requests are added before each pass, as by a server whose replies bring it the next
 * message of a client. */
START_TEST(what_is_finished_is_seen_within_two_rounds_however_many_are_added)
{
	const unsigned window = 64;
	static uint64_t in[SLOTS];
	unsigned passes = 0, most;
	struct op *op, *idle;

	op = post(&in[0], sizeof(in[0]), world.peer, 1);
	for (unsigned i = 1; i < 300; i++) {
		post(&in[i], sizeof(in[i]), world.peer, 1 + (int)i);
		world.transport->messages.ops->test(&world.transport->messages);
	}
	barrier();
	ck_assert_uint_eq(op->ends, 0);
	finish(sent(&in[0], sizeof(in[0]), world.peer, 1), BATON_OK,
	       sizeof(in[0]));
	/* It overtakes nothing: then the first message is there. */
	MPI_Sendrecv(NULL, 0, MPI_BYTE, world.peer, 0, NULL, 0, MPI_BYTE,
	             world.peer, 0, world.side, MPI_STATUS_IGNORE);
	/* Every second pass is a round's. */
	most = 4 * (world.mpi->count / window + 2);
	while (!op->ends && passes++ < most) {
		idle = post(&in[world.used], sizeof(in[0]), world.peer,
		            1 + (int)world.used);
		ck_assert_int_eq(idle->status, BATON_PENDING);
		world.transport->messages.ops->test(&world.transport->messages);
	}
	ck_assert_uint_eq(op->ends, 1);
	take_all_back();
	barrier();
	close_world();
}
END_TEST

START_TEST(a_pass_that_comes_late_tests_all)
{
	enum { N = 1000 };
	static uint64_t in[N];
	uint64_t out = 1;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, i);
	barrier();
	for (int i = 0; i < N; i += 111) {
		finish(sent(&out, sizeof(out), world.peer, i), BATON_OK,
		       sizeof(out));
		MPI_Sendrecv(NULL, 0, MPI_BYTE, world.peer, 0, NULL, 0,
		             MPI_BYTE, world.peer, 0, world.side,
		             MPI_STATUS_IGNORE);
		/* As if no round had been completed for long. */
		world.mpi->round_ns = 0;
		world.transport->messages.ops->test(&world.transport->messages);
		ck_assert_uint_eq(world.ops[i].ends, 1);
		ck_assert_int_eq(world.ops[i].status, BATON_OK);
		world.used--; /* the send's */
	}
	take_all_back();
	barrier();
	close_world();
}
END_TEST

/* The flag tells of the message without a call of MPI, which would receive it. */
START_TEST(a_pass_sees_what_came_before_it)
{
	_Atomic uint64_t *flag = world.transport->peers[0].segment;
	uint64_t in[2], out = 1;
	struct op *op;

	if (!flag)
		ck_abort_msg("the other rank's segment is not mapped");
	for (int i = 0; i < 2 && world.rank == 1; i++)
		post(&in[i], sizeof(in[i]), 0, i);
	barrier();
	if (world.rank == 0) {
		finish(sent(&out, sizeof(out), 1, 1), BATON_OK, sizeof(out));
		atomic_store(flag, 1);
	} else {
		while (!atomic_load(flag))
			sched_yield();
		op = &world.ops[1];
		ck_assert_uint_eq(world.transport->messages.ops->test(&world.transport->messages),
		                  1);
		ck_assert_uint_eq(op->ends, 1);
		ck_assert_int_eq(take_back(&world.ops[0]), BATON_ERR_CANCELED);
	}
	barrier();
	close_world();
}
END_TEST

/* Requests tested by a pass that comes late, when nothing has arrived. */
static unsigned
late_pass(void)
{
	tested = 0;
	world.mpi->round_ns = 0;
	ck_assert_uint_eq(world.transport->messages.ops->test(&world.transport->messages), 0);
	return tested;
}

/* What a pass costs beside is spent once for several looks. */
START_TEST(the_only_request_is_tested_four_times_a_pass)
{
	uint64_t in, out = 3;
	struct op *op = post(&in, sizeof(in), world.peer, 1);

	barrier();
	ck_assert_uint_eq(late_pass(), 4);
	barrier();
	finish(sent(&out, sizeof(out), world.peer, 1), BATON_OK, sizeof(out));
	finish(op, BATON_OK, sizeof(in));
	ck_assert_uint_eq(in, 3);
	close_world();
}
END_TEST

START_TEST(of_many_receives_on_a_tag_only_the_first_is_tested)
{
	enum { N = 900, TAGS = 3 };
	static uint64_t in[N];
	uint64_t out;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, i % TAGS);
	barrier();
	ck_assert_uint_eq(world.transport->messages.load.in_flight, N);
	/* Those that were started while they were few, and the first of each tag. */
	ck_assert_uint_eq(world.mpi->count, 64 + TAGS);
	ck_assert_uint_le(late_pass(), 4 * 64);
	barrier();
	for (int i = 0; i < N; i++) {
		out = (uint64_t)i;
		finish(sent(&out, sizeof(out), world.peer, i % TAGS), BATON_OK,
		       sizeof(out));
		world.used--; /* the send's */
		finish(&world.ops[i], BATON_OK, sizeof(out));
		ck_assert_uint_eq(in[i], (uint64_t)i);
		ck_assert_uint_le(world.mpi->count, 64 + 16 * TAGS);
	}
	barrier();
	close_world();
}
END_TEST

START_TEST(messages_for_many_receives_on_a_tag_are_seen_at_once)
{
	enum { N = 500 };
	static uint64_t in[N], out[N];
	unsigned passes = 0;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, 7);
	barrier();
	for (int i = 0; i < N; i++) {
		out[i] = (uint64_t)i;
		sent(&out[i], sizeof(out[i]), world.peer, 7);
	}
	/* MPI has them all, as far as it can without a test of Baton's. */
	for (int i = 0; i < 1000; i++) {
		int here;

		MPI_Iprobe(world.peer, 99, world.mpi->comm, &here,
		           MPI_STATUS_IGNORE);
	}
	barrier();
	while (world.transport->messages.load.in_flight > 0 &&
	       world.transport->messages.ops->test(&world.transport->messages) > 0)
		passes++;
	/* None without an event, and 64 in a pass but for the last. */
	for (int i = 0; i < N; i++) {
		finish(&world.ops[i], BATON_OK, sizeof(in[i]));
		ck_assert_uint_eq(in[i], (uint64_t)i);
	}
	ck_assert_uint_le(passes, 2 * (2 * N / 64) + 2);
	for (uint32_t i = N; i < world.used; i++)
		finish(&world.ops[i], BATON_OK, sizeof(out[0]));
	barrier();
	close_world();
}
END_TEST

START_TEST(receives_that_follow_are_taken_back_from_any_place)
{
	enum { N = 300 };
	static uint64_t in[N];
	const int gone[] = {64, 65, 66, 150, 151, 152, 298, 299};
	bool is_gone[N] = {false};
	uint64_t out = 0;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, 7);
	for (size_t k = 0; k < sizeof(gone) / sizeof(gone[0]); k++) {
		ck_assert_int_eq(take_back(&world.ops[gone[k]]),
		                 BATON_ERR_CANCELED);
		is_gone[gone[k]] = true;
	}
	/* Behind what is the last one now. */
	post(&out, sizeof(out), world.peer, 7);
	ck_assert_uint_le(world.mpi->count, 65);
	barrier();
	for (int i = 0; i < N; i++) {
		if (is_gone[i])
			continue;
		out = (uint64_t)i;
		finish(sent(&out, sizeof(out), world.peer, 7), BATON_OK,
		       sizeof(out));
		world.used--;
		finish(&world.ops[i], BATON_OK, sizeof(out));
		ck_assert_uint_eq(in[i], (uint64_t)i);
	}
	ck_assert_int_eq(take_back(&world.ops[N]), BATON_ERR_CANCELED);
	barrier();
	close_world();
}
END_TEST

/* Receives and messages on four tags, from this rank to itself, at random: messages match
 * in order whatever is taken back. */
START_TEST(receives_follow_and_are_taken_back_at_random)
{
	enum { TAGS = 4, ALL = SLOTS / 2, LIVE = 200 };
	static uint64_t in[SLOTS], out[SLOTS];
	uint32_t oldest[TAGS] = {0}, live = 0, state = 1;
	unsigned most = 0;

	/* Slots are used once here, so turns are few; the seed is the test's. */
	for (int turn = 0; turn < 20000 && world.used < SLOTS - 1; turn++) {
		struct op *op;
		uint32_t draw;
		int tag;

		state = state * 1664525u + 1013904223u;
		draw = state >> 8;
		tag = (int)(draw % TAGS);
		draw /= TAGS;
		if (draw % 8 < 5 && live < LIVE) {
			post(&in[world.used], 8, world.rank, tag);
			live++;
		} else if (draw % 8 < 6) {
			/* One in the middle, if it is pending. */
			op = &world.ops[draw / 8 % (world.used + 1)];
			if (op->ends || op->transfer.direction != BATONI_RECV ||
			    op >= &world.ops[world.used])
				continue;
			ck_assert_int_eq(take_back(op), BATON_ERR_CANCELED);
			op->ends++;
			live--;
		} else {
			/* The oldest of the tag gets it. */
			while (oldest[tag] < world.used &&
			       (world.ops[oldest[tag]].ends ||
			        world.ops[oldest[tag]].transfer.tag != tag ||
			        world.ops[oldest[tag]].transfer.direction !=
			                BATONI_RECV))
				oldest[tag]++;
			if (oldest[tag] == world.used)
				continue;
			op = &world.ops[oldest[tag]];
			out[world.used] = state;
			finish(sent(&out[world.used], 8, world.rank, tag),
			       BATON_OK, 8);
			finish(op, BATON_OK, 8);
			ck_assert_uint_eq(in[op - world.ops], state);
			live--;
		}
		if (world.mpi->following > most)
			most = world.mpi->following;
		ck_assert_uint_eq(world.transport->messages.load.in_flight, live);
	}
	ck_assert_uint_gt(most, LIVE / 3);
	take_all_back();
	close_world();
}
END_TEST

void
test_mpi_follow(void)
{
	const TTest *const tests[] = {
		what_is_finished_is_seen_within_two_rounds_however_many_are_added,
		a_pass_that_comes_late_tests_all,
		a_pass_sees_what_came_before_it,
		the_only_request_is_tested_four_times_a_pass,
		of_many_receives_on_a_tag_only_the_first_is_tested,
		messages_for_many_receives_on_a_tag_are_seen_at_once,
		receives_that_follow_are_taken_back_from_any_place,
		receives_follow_and_are_taken_back_at_random,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
