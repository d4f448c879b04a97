/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of every length, to the other rank and to this one (transport/mpi/mpi.c, body.c). */
#include <sched.h>
#include <stdlib.h>

#include "mpi_world.h"

static const size_t sizes[] = {
	0,
	1,
	8,
	BATONI_MPI_HEADER_BYTES - 1,
	BATONI_MPI_HEADER_BYTES,
	BATONI_MPI_HEADER_BYTES + 1,
	64,
	2047,
	2048,
	2049,
	3584,
	3585,
	4096,
	7168,
	7169,
	65536,
	1u << 20,
	16u << 20,
	70u << 20,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* A message of each size to the rank, which may be this one, and one from it. */
static void
exchange_all_sizes(int rank)
{
	for (size_t i = 0; i < SIZES; i++) {
		unsigned char *out = message(sizes[i], (int)i + world.rank);
		unsigned char *in = room(sizes[i]);
		struct op *send, *recv;

		world.used = 0;
		send = sent(out, sizes[i], rank, 5);
		recv = post(in, sizes[i], rank, 5);
		/* To oneself: while the receive is open. */
		if (rank == world.rank)
			finish(send, BATON_OK, sizes[i]);
		finish(recv, BATON_OK, sizes[i]);
		if (rank != world.rank)
			finish(send, BATON_OK, sizes[i]);
		check_message(in, sizes[i], (int)i + rank);
		check_guard(in, sizes[i], sizes[i]);
		free(out);
		free(in);
	}
}

START_TEST(every_size_arrives_whole_in_both_directions)
{
	exchange_all_sizes(world.peer);
	close_world();
}
END_TEST

START_TEST(a_shorter_message_leaves_the_rest_of_the_buffer)
{
	const size_t capacities[] = {8, 64, 100, 2048, 4096, 3u << 20};

	for (size_t c = 0; c < 6; c++) {
		for (size_t i = 0; i < SIZES && sizes[i] < capacities[c]; i++) {
			unsigned char *out = message(sizes[i], 3);
			unsigned char *in = room(capacities[c]);
			struct op *send, *recv;

			world.used = 0;
			recv = post(in, capacities[c], world.peer, 0);
			send = sent(out, sizes[i], world.peer, 0);
			finish(send, BATON_OK, sizes[i]);
			finish(recv, BATON_OK, sizes[i]);
			check_message(in, sizes[i], 3);
			check_guard(in, sizes[i], capacities[c]);
			free(out);
			free(in);
		}
	}
	close_world();
}
END_TEST

/* posted: the receive is there before the message; else it comes after. */
static void
truncate_one(size_t capacity, size_t bytes, bool posted)
{
	unsigned char *out = message(bytes, 9);
	unsigned char *in = room(capacity);
	struct op *send, *recv;
	char mark = 'm';

	world.used = 0;
	if (world.rank == 0) {
		if (posted)
			barrier();
		send = sent(out, bytes, 1, 7);
		finish(send, BATON_OK, bytes);
		/* The communicator goes on. */
		finish(sent(&mark, 1, 1, 7), BATON_OK, 1);
	} else {
		if (!posted)
			await_arrival(7);
		recv = post(in, capacity, 0, 7);
		if (posted)
			barrier();
		finish(recv, BATON_ERR_TRUNCATED, bytes);
		check_guard(in, capacity, capacity);
		mark = 0;
		finish(post(&mark, 1, 0, 7), BATON_OK, 1);
		ck_assert_int_eq(mark, 'm');
	}
	free(out);
	free(in);
}

START_TEST(a_longer_message_is_truncated_and_nothing_is_overwritten)
{
	const size_t capacities[] = {0,  1,    8,    60,   61,
	                             62, 2047, 2048, 4096, 65536};
	const size_t lengths[] = {1,    8,    60,   61,    62,
	                          2048, 2049, 4096, 65537, 33u << 20};

	for (size_t c = 0; c < 10; c++) {
		for (size_t l = 0; l < 10; l++) {
			if (lengths[l] <= capacities[c])
				continue;
			truncate_one(capacities[c], lengths[l], true);
			truncate_one(capacities[c], lengths[l], false);
		}
	}
	close_world();
}
END_TEST

/* Open MPI's MPI_Testsome takes other requests away with one that it cut off.  It
 * does so by what their memory held before: the test is run with MALLOC_PERTURB_. */
START_TEST(a_message_that_is_too_long_costs_no_other_transfer)
{
	enum { N = 20, LONG = 100000 };
	unsigned char *out = message(LONG, 3), *in[N], little[100];
	struct op *sends[N], *recvs[N], *cut;

	cut = post(little, sizeof(little), world.peer, 1);
	for (int i = 0; i < N; i++) {
		in[i] = room(LONG);
		recvs[i] = post(in[i], LONG, world.peer, 10 + i);
		sends[i] = sent(out, LONG, world.peer, 10 + i);
	}
	/* All are under way, and tested together. */
	finish(sent(out, 2000, world.peer, 1), BATON_OK, 2000);
	barrier();
	finish(cut, BATON_ERR_TRUNCATED, 2000);
	for (int i = 0; i < N; i++) {
		finish(sends[i], BATON_OK, LONG);
		finish(recvs[i], BATON_OK, LONG);
		check_message(in[i], LONG, 3);
		free(in[i]);
	}
	free(out);
	close_world();
}
END_TEST

/* Open MPI cuts nothing off between a process and itself, at any length. */
static void
truncate_self(size_t capacity, size_t bytes, bool posted)
{
	unsigned char *out = message(bytes, 9);
	unsigned char *in = room(capacity);
	struct op *send = NULL, *recv;

	world.used = 0;
	if (!posted)
		send = sent(out, bytes, world.rank, 7);
	recv = post(in, capacity, world.rank, 7);
	if (posted)
		send = sent(out, bytes, world.rank, 7);
	finish(recv, BATON_ERR_TRUNCATED, bytes);
	finish(send, BATON_OK, bytes);
	check_guard(in, capacity, capacity);
	free(out);
	free(in);
}

START_TEST(a_longer_message_to_oneself_is_truncated_too)
{
	const size_t capacities[] = {0, 8, 60, 61, 62, 511, 2047, 4096};
	const size_t lengths[] = {1,    60,   61,    62,      512,
	                          2048, 2049, 65537, 17u << 20};

	for (size_t c = 0; c < 8; c++) {
		for (size_t l = 0; l < 9; l++) {
			if (lengths[l] <= capacities[c])
				continue;
			truncate_self(capacities[c], lengths[l], true);
			truncate_self(capacities[c], lengths[l], false);
		}
	}
	close_world();
}
END_TEST

START_TEST(messages_of_one_tag_arrive_in_order_whatever_their_path)
{
	enum { N = 60 };
	const size_t lengths[] = {8, 4096, 61, 0, 65536, 2048};
	unsigned char *out[N], *in[N];
	struct op *sends[N], *recvs[N];

	for (int i = 0; i < N; i++) {
		out[i] = message(lengths[i % 6], i);
		in[i] = room(65536);
	}
	for (int i = 0; i < N; i++)
		sends[i] = sent(out[i], lengths[i % 6], world.peer, 1);
	for (int i = 0; i < N; i++)
		recvs[i] = post(in[i], 65536, world.peer, 1);
	for (int i = 0; i < N; i++) {
		finish(recvs[i], BATON_OK, lengths[i % 6]);
		check_message(in[i], lengths[i % 6], i);
	}
	for (int i = 0; i < N; i++) {
		finish(sends[i], BATON_OK, lengths[i % 6]);
		free(out[i]);
		free(in[i]);
	}
	close_world();
}
END_TEST

START_TEST(headers_may_be_received_in_any_order_of_tags)
{
	enum { N = 12 };
	unsigned char *buffers[N];
	struct op *ops[N];

	for (int i = 0; i < N; i++) {
		/* 4 KiB to 8 MiB: eager ones and others, one and two pieces. */
		size_t bytes = (size_t)4096 << i;

		buffers[i] = world.rank ? room(bytes) : message(bytes, i);
	}
	for (int i = 0; i < N && world.rank == 0; i++)
		ops[i] = sent(buffers[i], (size_t)4096 << i, 1, i);
	if (world.rank == 1)
		await_arrival(N - 1);
	for (int i = N; i-- > 0 && world.rank == 1;)
		ops[i] = post(buffers[i], (size_t)4096 << i, 0, i);
	for (int i = N; i-- > 0;) {
		finish(ops[i], BATON_OK, (size_t)4096 << i);
		check_message(buffers[i], (size_t)4096 << i, i);
		free(buffers[i]);
	}
	close_world();
}
END_TEST

START_TEST(hundreds_in_flight_all_end_once)
{
	enum { N = 500 };
	static unsigned char in[N][4200], out[N][4200];
	const size_t lengths[] = {8, 0, 2000, 4096, 61};
	struct op *sends[N], *recvs[N];

	for (int i = 0; i < N; i++)
		recvs[i] = post(in[i], sizeof(in[i]), world.peer, i);
	ck_assert_uint_eq(world.transport->messages.load.in_flight, N);
	ck_assert_uint_eq(world.transport->messages.load.moving, 0);
	barrier();
	for (int i = 0; i < N; i++) {
		/* 7 and 500 have no common factor: all tags, out of order. */
		int tag = i * 7 % N;

		for (size_t b = 0; b < lengths[tag % 5]; b++)
			out[tag][b] = pattern(b, tag);
		sends[tag] = sent(out[tag], lengths[tag % 5], world.peer, tag);
	}
	for (int i = 0; i < N; i++) {
		finish(recvs[i], BATON_OK, lengths[i % 5]);
		finish(sends[i], BATON_OK, lengths[i % 5]);
		check_message(in[i], lengths[i % 5], i);
	}
	close_world();
}
END_TEST

START_TEST(a_rank_can_send_to_itself)
{
	exchange_all_sizes(world.rank);
	close_world();
}
END_TEST

START_TEST(the_highest_tag_is_a_tag)
{
	int tag = world.transport->tag_max;
	uint64_t out = 42, in = 0;
	struct op *recv;

	ck_assert_int_ge(tag, (1 << 20) - 1);
	recv = post(&in, sizeof(in), world.peer, tag);
	finish(sent(&out, sizeof(out), world.peer, tag), BATON_OK, sizeof(out));
	finish(recv, BATON_OK, sizeof(in));
	ck_assert_uint_eq(in, 42);
	close_world();
}
END_TEST

/* What is there afterwards is nobody's concern, but all arrive: receives of programs on
 * one tag and on several, and those of puts that overlap in a window. */
START_TEST(pending_receives_may_name_one_buffer)
{
	static const size_t lengths[] = {2048, 2049, 10000, 100000};
	enum { N = 12 };
	unsigned char *in = room(lengths[3]), *out = message(lengths[3], 6);
	int hidden = world.transport->hidden_tag, mark = 1000;
	struct op *recvs[N], *sends[N], *last;

	for (int i = 0; i < N; i++) {
		/* Four on one tag, four on several, four hidden. */
		int tag = i < 4 ? 7 : i < 8 ? i : hidden + i - 8;

		recvs[i] = post(in, lengths[i % 4], world.peer, tag);
	}
	barrier();
	for (int i = 0; i < N; i++)
		sends[i] = sent(out, lengths[i % 4], world.peer,
		                recvs[i]->transfer.tag);
	/* All headers have come before any is looked at. */
	last = sent(out, 1, world.peer, mark);
	await_arrival(mark);
	for (int i = 0; i < N; i++) {
		finish(recvs[i], BATON_OK, lengths[i % 4]);
		finish(sends[i], BATON_OK, lengths[i % 4]);
	}
	finish(post(in, 1, world.peer, mark), BATON_OK, 1);
	finish(last, BATON_OK, 1);
	ck_assert_uint_eq(world.broken, 0);
	free(in);
	free(out);
	close_world();
}
END_TEST

void
test_mpi_messages(void)
{
	const TTest *const tests[] = {
		every_size_arrives_whole_in_both_directions,
		a_shorter_message_leaves_the_rest_of_the_buffer,
		a_longer_message_is_truncated_and_nothing_is_overwritten,
		a_message_that_is_too_long_costs_no_other_transfer,
		a_longer_message_to_oneself_is_truncated_too,
		messages_of_one_tag_arrive_in_order_whatever_their_path,
		headers_may_be_received_in_any_order_of_tags,
		hundreds_in_flight_all_end_once,
		a_rank_can_send_to_itself,
		the_highest_tag_is_a_tag,
		pending_receives_may_name_one_buffer,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
