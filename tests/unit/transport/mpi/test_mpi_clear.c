/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaving, and receiving what no receive has matched (transport/mpi/clear.c). */
#include <stdlib.h>

#include "mem.h"
#include "mpi_world.h"

START_TEST(leave_waits_for_the_other_rank)
{
	if (world.rank == 0) {
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(
				world.transport->ops->leave(world.transport),
				BATON_PENDING);
	}
	barrier();
	close_world();
}
END_TEST

/* Short enough for any MPI to take them, of every kind: raw messages, headers and
 * bodies. */
START_TEST(what_was_not_received_is_not_in_the_next_communicator)
{
	enum { N = 300 };
	const size_t lengths[] = {0, 8, BATONI_MPI_HEADER_BYTES, 900};
	unsigned char *out = message(900, 5), *in = room(900);
	struct op *op;

	for (int i = 0; i < N; i++) {
		size_t bytes = lengths[i % 4];
		int peer = i % 3 ? world.peer : world.rank;

		finish(sent(out, bytes, peer, i % 5), BATON_OK, bytes);
	}
	close_world();
	open_world();
	for (int i = 0; i < 10; i++)
		post(in, 900, i % 2 ? world.peer : world.rank, i / 2);
	barrier();
	for (int i = 0; i < 100; i++)
		world.transport->messages.ops->test(&world.transport->messages);
	take_all_back();
	barrier();
	/* The tags and segments are those of a new one, too. */
	op = post(in, 900, world.peer, 0);
	finish(sent(out, BATONI_MPI_HEADER_BYTES, world.peer, 0), BATON_OK,
	       BATONI_MPI_HEADER_BYTES);
	finish(op, BATON_OK, BATONI_MPI_HEADER_BYTES);
	check_message(in, BATONI_MPI_HEADER_BYTES, 5);
	free(out);
	free(in);
	close_world();
}
END_TEST

START_TEST(clearing_waits_for_the_other_rank)
{
	uint64_t word = 1;

	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	if (world.rank == 0) {
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(
				world.transport->ops->clearing->clear(world.transport),
				BATON_PENDING);
		/* There is no way back. */
		ck_assert_int_eq(world.transport->ops->exchanging->exchange(world.transport, 5,
		                                                            &word, 8, &word),
		                 BATON_ERR_PEER);
	}
	barrier();
	ck_assert_int_eq(whole(world.transport->ops->clearing->clear), BATON_OK);
	world.transport->ops->close(world.transport, false);
	MPI_Comm_free(&world.side);
}
END_TEST

/* It does not fit where such messages go. */
START_TEST(what_is_discarded_and_too_long_breaks_the_transport)
{
	/* MPI has it to the end: nobody receives it. */
	static unsigned char out[BATONI_MPI_PIECE_BYTES + 1];
	MPI_Request request;

	MPI_Isend(out, (int)sizeof(out), MPI_BYTE, world.peer, 9,
	          world.mpi->comm, &request);
	await_arrival(9);
	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	ck_assert_int_eq(whole(world.transport->ops->clearing->clear), BATON_ERR_MPI);
	close_broken("and none has more than");
	/* `out` and the request are left to MPI. */
	MPI_Request_free(&request);
}
END_TEST

/* The other rank receives no leave message. */
START_TEST(an_aborted_close_stops_clearing)
{
	long blocks = batoni_mem_blocks();
	uint64_t out = 1;

	finish(sent(&out, sizeof(out), world.peer, 3), BATON_OK, sizeof(out));
	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	ck_assert_int_eq(world.transport->ops->clearing->clear(world.transport),
	                 BATON_PENDING);
	close_aborted(blocks);
}
END_TEST

void
test_mpi_clear(void)
{
	const TTest *const tests[] = {
		leave_waits_for_the_other_rank,
		what_was_not_received_is_not_in_the_next_communicator,
		clearing_waits_for_the_other_rank,
		what_is_discarded_and_too_long_breaks_the_transport,
		an_aborted_close_stops_clearing,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
