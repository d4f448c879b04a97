/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives that are taken back, matched or not (take_back of transport/mpi/mpi.c and hold.c). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_world.h"

START_TEST(an_unmatched_receive_is_taken_back_and_gets_nothing)
{
	const size_t capacities[] = {8, 100, 65536};
	unsigned char *in = room(65536);
	uint64_t out = 7, next = 0;

	for (size_t c = 0; c < 3; c++) {
		struct op *gone = post(in, capacities[c], world.peer, 4);
		struct op *kept = post(&next, sizeof(next), world.peer, 4);

		ck_assert_int_eq(take_back(gone), BATON_ERR_CANCELED);
		ck_assert_uint_eq(world.transport->messages.load.in_flight, 1);
		barrier();
		next = 0;
		finish(sent(&out, sizeof(out), world.peer, 4), BATON_OK,
		       sizeof(out));
		finish(kept, BATON_OK, sizeof(next));
		ck_assert_uint_eq(next, 7);
		ck_assert_uint_eq(gone->ends, 0);
		check_guard(in, 0, 65536);
	}
	free(in);
	close_world();
}
END_TEST

/* What a probe has seen does not come, as of a rank that has died. */
START_TEST(a_first_part_that_a_probe_awaits_is_taken_back)
{
	struct op *held = &world.ops[world.used++];
	struct batoni_path *path = &world.transport->messages;
	struct batoni_held what;
	uint64_t out = 7, next = 0;
	struct op *kept;

	held->transfer = (struct batoni_transfer){
		.peer = world.peer, .tag = 4, .direction = BATONI_RECV};
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(batoni_mpi_hold(path, &held->transfer, &what),
		                 BATON_PENDING);
		ck_assert_uint_eq(path->load.in_flight, 1);
		ck_assert_int_eq(take_back(held), BATON_ERR_CANCELED);
		ck_assert_uint_eq(path->load.in_flight, 0);
	}
	kept = post(&next, sizeof(next), world.peer, 4);
	barrier();
	finish(sent(&out, sizeof(out), world.peer, 4), BATON_OK, sizeof(out));
	finish(kept, BATON_OK, sizeof(next));
	ck_assert_uint_eq(next, 7);
	close_world();
}
END_TEST

START_TEST(taking_back_a_receive_that_was_matched_gives_its_message)
{
	unsigned char *out = message(2000, 3);
	unsigned char *in = room(2000);
	enum baton_status status;
	struct op *op;

	for (size_t bytes = 8; bytes <= 2000; bytes += 1992) {
		if (world.rank == 0) {
			finish(sent(out, bytes, 1, 6), BATON_OK, bytes);
			continue;
		}
		await_arrival(6);
		op = post(in, bytes, 0, 6);
		ck_assert_int_eq(op->status, BATON_PENDING);
		status = take_back(op);
		/* BUSY: the message has still to come, by the peer's progress. */
		if (status == BATON_ERR_BUSY) {
			ck_assert_uint_eq(world.transport->messages.load.moving, 1);
			ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
			finish(op, BATON_OK, bytes);
		} else {
			ck_assert_int_eq(status, BATON_OK);
			ck_assert_uint_eq(op->ends, 0);
		}
		ck_assert_uint_eq(op->transfer.done_bytes, bytes);
		check_message(in, bytes, 3);
	}
	free(out);
	free(in);
	close_world();
}
END_TEST

/* Where MPI does not send eagerly, what was matched comes by the progress of the
 * sender, which here makes none before the receiver has gone on. */
START_TEST(taking_back_does_not_wait_for_the_sender)
{
	struct batoni_peer *peers = world.transport->peers;
	unsigned char *out = message(2000, 3), *in = room(2000);
	_Atomic uint64_t *flag = peers[0].segment;
	enum baton_status status;
	struct op *op;

	if (!flag)
		ck_abort_msg("the other rank's segment is not mapped");
	if (world.rank == 0) {
		op = sent(out, 2000, 1, 6);
		while (!atomic_load(flag))
			sched_yield();
		finish(op, BATON_OK, 2000);
	} else {
		await_arrival(6);
		op = post(in, 2000, 0, 6);
		status = take_back(op);
		atomic_store(flag, 1);
		if (status == BATON_ERR_BUSY)
			finish(op, BATON_OK, 2000);
		else
			ck_assert_int_eq(status, BATON_OK);
		check_message(in, 2000, 3);
	}
	free(out);
	free(in);
	close_world();
}
END_TEST

/* The header has come, the body follows: it must be received whatever happens,
 * or the sender would wait for ever. */
START_TEST(taking_back_a_receive_with_a_body_to_come_lends_it)
{
	const size_t bytes = 33u << 20;
	const size_t capacities[] = {8, 65536, 33u << 20};
	unsigned char *buffer = world.rank ? room(bytes) : message(bytes, 8);
	enum baton_status status;
	struct op *op;

	for (size_t c = 0; c < 3; c++) {
		size_t capacity = capacities[c];

		if (world.rank == 0) {
			op = sent(buffer, bytes, 1, 6);
			if (!op->ends)
				ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
			finish(op, BATON_OK, bytes);
			continue;
		}
		memset(buffer, CANARY, bytes);
		await_arrival(6);
		op = post(buffer, capacity, 0, 6);
		status = take_back(op);
		ck_assert_int_eq(status, BATON_ERR_BUSY);
		ck_assert_uint_eq(world.transport->messages.load.moving, 1);
		ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
		finish(op, capacity < bytes ? BATON_ERR_TRUNCATED : BATON_OK,
		       bytes);
		if (capacity == bytes)
			check_message(buffer, bytes, 8);
		check_guard(buffer, capacity, bytes);
	}
	free(buffer);
	close_world();
}
END_TEST

void
test_mpi_take_back(void)
{
	const TTest *const tests[] = {
		an_unmatched_receive_is_taken_back_and_gets_nothing,
		a_first_part_that_a_probe_awaits_is_taken_back,
		taking_back_a_receive_that_was_matched_gives_its_message,
		taking_back_does_not_wait_for_the_sender,
		taking_back_a_receive_with_a_body_to_come_lends_it,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
