/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of MPI that fail: which one the engine is told of, and in which words (transport/mpi/fail.c). */
#include <string.h>

#include "mpi_world.h"

START_TEST(a_call_that_mpi_refuses_breaks_the_transport_with_its_words)
{
	char text[64] = "";
	char byte = 0;
	struct op *op;

	op = post(&byte, 1, 1000, 0);
	ck_assert_int_eq(op->status, BATON_ERR_MPI);
	ck_assert_str_eq(op->transfer.native_call, "MPI_Irecv");
	op = sent(&byte, 1, 1000, 0);
	ck_assert_int_eq(op->status, BATON_ERR_MPI);
	ck_assert_str_eq(op->transfer.native_call, "MPI_Isend");
	ck_assert_uint_eq(world.broken, 2);
	/* Any thread may ask for the text, also one that may not call MPI. */
	texts_asked = 0;
	world.transport->ops->texts->error_text(
		world.transport, op->transfer.native_code, text, sizeof(text));
	ck_assert_int_eq(texts_asked, 0);
	ck_assert_ptr_nonnull(strstr(text, "rank"));
	world.transport->ops->texts->error_text(world.transport, 12345, text,
	                                        sizeof(text));
	ck_assert_str_eq(text, "MPI error 12345");
	close_world();
}
END_TEST

static uint64_t exchanged_words[2];

static enum baton_status
exchange_word(struct batoni_transport *transport)
{
	static const uint64_t mine = 1;

	return transport->ops->exchanging->exchange(transport, 5, &mine, sizeof(mine),
	                                            exchanged_words);
}

/* Receive what comes until both ranks are here: the other one may wait for that. */
static void
receive_until_both_are_here(void)
{
	MPI_Request both;
	MPI_Status status;
	uint64_t word;
	int done, here;

	PMPI_Ibarrier(world.side, &both);
	do {
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world.mpi->comm, &here,
		            &status);
		if (here)
			PMPI_Recv(&word, sizeof(word), MPI_BYTE,
			          status.MPI_SOURCE, status.MPI_TAG,
			          world.mpi->comm, MPI_STATUS_IGNORE);
		PMPI_Test(&both, &done, MPI_STATUS_IGNORE);
	} while (!done);
}

/* Both ranks' call fails in this slot: the engine is told which call, and what MPI says. */
static void
fail_in(enum baton_status (*slot)(struct batoni_transport *transport),
        const char *call)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	failing = call;
	ck_assert_int_eq(whole(slot), BATON_ERR_MPI);
	failing = NULL;
	ck_assert_uint_eq(world.broken, 1);
	ck_assert_int_eq(world.broken_status, BATON_ERR_MPI);
	ck_assert_str_eq(world.broken_call, call);
	PMPI_Error_string(MPI_ERR_INTERN, text, &length);
	ck_assert_str_eq(world.broken_text, text);
	receive_until_both_are_here();
	world.transport->ops->close(world.transport, true);
	MPI_Comm_free(&world.side);
}

START_TEST(engine_is_told_which_call_of_a_collective_step_has_failed)
{
	static const char *const of_clear[] = {"MPI_Issend", "MPI_Ibarrier",
	                                       "MPI_Iprobe", "MPI_Irecv",
	                                       "MPI_Test"};
	const uint64_t unreceived = 1;

	fail_in(world.transport->ops->leave, "MPI_Iallreduce");
	open_world();
	fail_in(exchange_word, "MPI_Iallreduce");
	open_world();
	fail_in(exchange_word, "MPI_Iallgather");
	for (size_t i = 0; i < sizeof(of_clear) / sizeof(of_clear[0]); i++) {
		open_world();
		finish(sent(&unreceived, sizeof(unreceived), world.peer, 3),
		       BATON_OK, sizeof(unreceived));
		ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
		fail_in(world.transport->ops->clearing->clear, of_clear[i]);
	}
}
END_TEST

void
test_mpi_fail(void)
{
	const TTest *const tests[] = {
		a_call_that_mpi_refuses_breaks_the_transport_with_its_words,
		engine_is_told_which_call_of_a_collective_step_has_failed,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
