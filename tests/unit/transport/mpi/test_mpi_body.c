/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages in two parts (transport/mpi/body.c): where tags for bodies are few, so that sends wait for
 * grants; in checked mode; and headers, grants and releases that no rank of Baton sends.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi_world.h"

START_TEST(a_message_of_another_protocol_breaks_the_transport)
{
	char garbage[BATONI_MPI_HEADER_BYTES] = {0};
	unsigned char in[100];
	struct op *op;

	op = post(in, sizeof(in), world.peer, 9);
	MPI_Send(garbage, (int)HEADER, MPI_BYTE, world.peer, 9,
	         world.mpi->comm);
	finish(op, BATON_ERR_MPI, 0);
	ck_assert_uint_eq(world.broken, 1);
	ck_assert_int_eq(world.broken_status, BATON_ERR_MPI);
	ck_assert_str_eq(op->transfer.native_call, "MPI_Irecv");
	ck_assert_ptr_nonnull(strstr(world.broken_text, "header"));
	close_world();
}
END_TEST

static const size_t long_sizes[] = {61, 2049, 4096, 10000, 100000, 1u << 20};
#define LONG_SIZES (sizeof(long_sizes) / sizeof(long_sizes[0]))

START_TEST(bodies_are_not_mixed_up_where_tags_are_few)
{
	enum { N = 60 };
	unsigned char *outs[N], *ins[N];
	struct op *sends[N], *recvs[N];

	have_few_tags(1);
	for (int turn = 0; turn < 3; turn++) {
		world.used = 0;
		for (int i = 0; i < N; i++) {
			size_t bytes = long_sizes[(size_t)i % LONG_SIZES];

			outs[i] = message(bytes, i + world.rank);
			ins[i] = room(bytes);
			sends[i] = sent(outs[i], bytes, world.peer, i);
		}
		/* All headers are there, and the last is received first. */
		await_arrival(N - 1);
		for (int i = N; i-- > 0;) {
			size_t bytes = long_sizes[(size_t)i % LONG_SIZES];

			recvs[i] = post(ins[i], bytes, world.peer, i);
			finish(recvs[i], BATON_OK, bytes);
			check_message(ins[i], bytes, i + world.peer);
			check_guard(ins[i], bytes, bytes);
		}
		for (int i = 0; i < N; i++) {
			finish(sends[i], BATON_OK, sends[i]->transfer.bytes);
			free(outs[i]);
			free(ins[i]);
		}
		ck_assert_uint_eq(world.mpi->waiting, 0);
		barrier();
	}
	close_world();
}
END_TEST

/* Longer than a grant: it is not received into one. */
START_TEST(a_grant_of_another_length_breaks_the_transport)
{
	static unsigned char out[4096];
	const char garbage[100] = {0};

	have_few_tags(1);
	for (int i = 0; world.mpi->waiting == 0; i++)
		sent(out, sizeof(out), world.peer, i);
	MPI_Send(garbage, (int)sizeof(garbage), MPI_BYTE, world.peer,
	         world.mpi->grant_tag, world.mpi->comm);
	await_arrival(world.mpi->grant_tag);
	world.transport->messages.ops->test(&world.transport->messages);
	close_broken("is no grant");
}
END_TEST

START_TEST(a_release_that_is_not_empty_breaks_the_transport)
{
	static unsigned char out[4096];
	const char garbage[100] = {0};

	have_few_tags(1);
	for (unsigned i = 0; i < BATONI_MPI_SEGMENTS; i++)
		MPI_Send(garbage, (int)sizeof(garbage), MPI_BYTE, world.peer,
		         world.mpi->release_tag + (int)i, world.mpi->comm);
	for (unsigned i = 0; i < BATONI_MPI_SEGMENTS; i++)
		await_arrival(world.mpi->release_tag + (int)i);
	for (int i = 0; i <= (int)BATONI_MPI_SEGMENTS && !world.broken; i++)
		sent(out, sizeof(out), world.peer, i);
	ck_assert_uint_ge(world.broken, 1);
	world.broken = 1;
	close_broken("is no release of tags");
}
END_TEST

START_TEST(a_message_left_unreceived_holds_up_no_other)
{
	unsigned char *out = message(4096, 1), *in = room(4096);
	unsigned char *kept = message(3000, 77);
	struct op *left, *send, *recv;

	have_few_tags(4);
	left = sent(kept, 3000, world.peer, 9);
	for (int i = 0; i < 500; i++) {
		world.used = 1;
		send = sent(out, 4096, world.peer, 1);
		recv = post(in, 4096, world.peer, 1);
		finish(recv, BATON_OK, 4096);
		finish(send, BATON_OK, 4096);
		check_message(in, 4096, 1);
	}
	/* Its segment is still in use, the others go round. */
	ck_assert_uint_eq(world.mpi->tags[world.peer].busy & 1, 1);
	ck_assert_uint_ne(world.mpi->tags[world.peer].segment, 0);
	finish(post(in, 3000, world.peer, 9), BATON_OK, 3000);
	check_message(in, 3000, 77);
	finish(left, BATON_OK, 3000);
	free(out);
	free(in);
	free(kept);
	close_world();
}
END_TEST

static void
open_checked(void)
{
	struct batoni_transport_config checked = config;

	close_world();
	checked.check = true;
	open_with(&checked);
}

/* Short ones and empty ones have headers too, and some wait for grants. */
START_TEST(messages_of_a_type_meet_in_checked_mode_where_tags_are_few)
{
	static const size_t of[] = {0, 8, 2048, 0, 2056, 61, 4096, 100000};
	enum { N = 48, EACH = sizeof(of) / sizeof(of[0]) };
	unsigned char *outs[N], *ins[N];
	struct op *sends[N], *recvs[N];

	open_checked();
	for (int turn = 0; turn < 3; turn++) {
		have_few_tags(turn == 0 ? 1000 : 1);
		world.used = 0;
		for (int i = 0; i < N; i++) {
			outs[i] = message(of[i % EACH], i + world.rank);
			ins[i] = room(of[i % EACH]);
			world.type = i % 3;
			sends[i] = sent(outs[i], of[i % EACH], world.peer,
			                i / 8);
		}
		await_arrival(N / 8 - 1);
		for (int i = 0; i < N; i++) {
			world.type = i % 5 ? i % 3 : 7;
			recvs[i] = post(ins[i], of[i % EACH], world.peer,
			                i / 8);
		}
		for (int i = N; i-- > 0;) {
			size_t bytes = of[i % EACH];

			finish(recvs[i], i % 5 ? BATON_OK : BATON_ERR_MISMATCH,
			       bytes);
			if (i % 5)
				check_message(ins[i], bytes, i + world.peer);
			check_guard(ins[i], i % 5 ? bytes : 0, bytes);
			ck_assert_int_eq(batoni_transfer_refused_type(
						 &recvs[i]->transfer),
			                 i % 5 ? -1 : i % 3);
			finish(sends[i], BATON_OK, bytes);
			free(outs[i]);
			free(ins[i]);
		}
		ck_assert_uint_eq(world.mpi->waiting, 0);
		barrier();
	}
	close_world();
}
END_TEST

static void
assert_refused(const void *content, size_t bytes)
{
	unsigned char in[100];
	struct op *op = post(in, sizeof(in), world.peer, 9);
	unsigned before = world.broken;

	MPI_Send(content, (int)bytes, MPI_BYTE, world.peer, 9, world.mpi->comm);
	while (!op->ends)
		world.transport->messages.ops->test(&world.transport->messages);
	ck_assert_int_eq(op->status, BATON_ERR_MPI);
	ck_assert_uint_eq(world.broken, before + 1);
	ck_assert_ptr_nonnull(strstr(world.broken_text, "header"));
	barrier();
}

START_TEST(what_has_no_type_in_checked_mode_breaks_the_transport)
{
	struct batoni_mpi_header header;

	batoni_mpi_header_make(&header, BATONI_MPI_HEADER_BODY, 8,
	                       (uint32_t)world.mpi->body_tag_base);
	header.type = 1;
	assert_refused(&header, BATONI_MPI_HEADER_BYTES);
	open_checked();
	header.type = 0;
	assert_refused(&header, BATONI_MPI_HEADER_BYTES);
	assert_refused("raw", 4);
	/* The one-sided layer's have none, and short ones are raw. */
	{
		unsigned char in[4] = {0};
		struct op *receive = post(in, 4, world.peer,
		                          world.transport->hidden_tag);
		struct op *send = sent("raw", 4, world.peer,
		                       world.transport->hidden_tag);

		finish(receive, BATON_OK, 4);
		finish(send, BATON_OK, 4);
		ck_assert_str_eq((char *)in, "raw");
	}
	close_world();
}
END_TEST

/* Much under way both ways and to oneself, some of it too long for its receive. */
START_TEST(hundreds_end_once_where_tags_are_few)
{
	enum { N = 240 };
	static unsigned char out[10000];
	unsigned char *in = malloc((size_t)N * 10000);
	struct op *sends[N], *recvs[N];

	ck_assert_ptr_nonnull(in);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = pattern(i, 2);
	have_few_tags(2);
	for (int turn = 0; turn < 4; turn++) {
		world.used = 0;
		for (int i = 0; i < N; i++) {
			int peer = i % 3 ? world.peer : world.rank;
			size_t bytes = 2049 + (size_t)i * 33;

			sends[i] = sent(out, bytes, peer, i % 8);
			recvs[i] = post(in + (size_t)i * 10000,
			                i % 5 ? 10000 : 2100, peer, i % 8);
		}
		for (int i = N; i-- > 0;) {
			size_t bytes = 2049 + (size_t)i * 33;
			bool fits = i % 5 || bytes <= 2100;

			finish(recvs[i], fits ? BATON_OK : BATON_ERR_TRUNCATED,
			       bytes);
			if (fits)
				check_message(in + (size_t)i * 10000, bytes, 2);
		}
		for (int i = 0; i < N; i++)
			finish(sends[i], BATON_OK, 2049 + (size_t)i * 33);
		barrier();
	}
	free(in);
	close_world();
}
END_TEST

void
test_mpi_body(void)
{
	const TTest *const tests[] = {
		a_message_of_another_protocol_breaks_the_transport,
		bodies_are_not_mixed_up_where_tags_are_few,
		a_grant_of_another_length_breaks_the_transport,
		a_release_that_is_not_empty_breaks_the_transport,
		a_message_left_unreceived_holds_up_no_other,
		messages_of_a_type_meet_in_checked_mode_where_tags_are_few,
		what_has_no_type_in_checked_mode_breaks_the_transport,
		hundreds_end_once_where_tags_are_few,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
