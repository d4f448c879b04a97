/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short messages to a rank that has nothing pending in their communicator: their sends end all the same
 * (runtime/core/room.c).
 *
 * Rank 0 sends more than a ring of near holds, and less than what a rank takes of one sender without a
 * receive (docs/transports.md), each when the one before has ended: staged ones may be as many as there are
 * eager buffers.  MPI takes as many.  It sends more only when these have been received.
 */
#include <time.h>

#include "harness.h"

enum { MESSAGES = 60, BYTES = 900 };

/* For pauses in which a rank falls asleep, and others in which it does not. */
static void
pause_for(int ms)
{
	const struct timespec pause = { .tv_nsec = ms * 1000000L };

	nanosleep(&pause, NULL);
}

static void
send_all(struct conform *c)
{
	static unsigned char out[BYTES];

	conform_fill(out, sizeof(out), 3);
	for (int i = 0; c->rank == 0 && i < MESSAGES; i++) {
		baton_request request = SEND(c, out, sizeof(out), 1, 0, c->stream,
		                             &conform_detached);

		FINISH(c, BATON_OK, &request);
	}
}

static void
receive_all(struct conform *c)
{
	unsigned char in[BYTES];

	for (int i = 0; c->rank == 1 && i < MESSAGES; i++) {
		baton_request request;

		conform_fill(in, sizeof(in), 4);
		request = RECV(c, in, sizeof(in), 0, 0, c->stream,
		               &conform_detached);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, in, sizeof(in), 3);
	}
}

static void
a_rank_in_a_collective_call_takes_short_messages(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL), *part = NULL;
	struct baton_window *window = NULL;
	unsigned char memory[64];

	send_all(c);
	CHECK_OK(c, baton_comm_split(c->comm, 0, 0, NULL, &part));
	receive_all(c);
	CHECK_OK(c, baton_comm_destroy(part));
	send_all(c);
	CHECK_OK(c, baton_window_register(memory, sizeof(memory), c->comm,
	                                  &window));
	receive_all(c);
	CHECK_OK(c, baton_window_deregister(window));
	/* These are not received. */
	send_all(c);
	conform_restore(c, first);
}

/* Where its puts came as messages, receives for them stay posted. */
static void
a_rank_that_has_had_a_window_takes_short_messages(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	struct baton_window *window = NULL;
	unsigned char memory[64];

	CHECK_OK(c, baton_window_register(memory, sizeof(memory), c->comm,
	                                  &window));
	CHECK_OK(c, baton_window_deregister(window));
	for (int i = 0; c->info.engine_thread && i < 2; i++) {
		send_all(c);
		conform_sync(c);
		receive_all(c);
		conform_sync(c);
	}
	conform_restore(c, first);
}

static void
an_idle_rank_takes_short_messages(struct conform *c)
{
	static const int pauses_ms[] = { 0, 5, 60, 200 };

	for (unsigned i = 0; c->info.engine_thread && i < 4; i++) {
		conform_sync(c);
		pause_for(pauses_ms[i]);
		send_all(c);
		conform_sync(c);
		receive_all(c);
	}
}

/* While it waited its engine's thread left all to the thread that waits. */
static void
a_rank_that_has_waited_takes_short_messages(struct conform *c)
{
	static const int pauses_ms[] = { 0, 60, 60 };
	unsigned char in[BYTES];

	for (unsigned i = 0; c->info.engine_thread && i < 3; i++) {
		baton_request request = 0;

		conform_sync(c);
		if (c->rank == 0) {
			pause_for(pauses_ms[i]);
			conform_fill(in, sizeof(in), 5);
			request = SEND(c, in, sizeof(in), 1, 1, c->stream,
			               &conform_detached);
		} else if (c->rank == 1) {
			request = RECV(c, in, sizeof(in), 0, 1, c->stream,
			               &conform_detached);
		}
		if (c->rank < 2)
			FINISH(c, BATON_OK, &request);
		send_all(c);
		conform_sync(c);
		receive_all(c);
	}
}

/* Its only receive is of another communicator, and comes behind the short messages. */
static void
a_rank_that_waits_elsewhere_takes_short_messages(struct conform *c)
{
	struct baton_comm *elsewhere = conform_comm(c, NULL);
	unsigned char in[BYTES];

	for (int ms = 0; ms < 200; ms = 2 * ms + 30) {
		baton_request request = 0;

		conform_sync(c);
		if (c->rank == 0) {
			pause_for(ms);
			send_all(c);
			conform_fill(in, sizeof(in), 5);
			CHECK_OK(c, baton_send(in, sizeof(in), BATON_UINT8, 1, 0,
			                       elsewhere, c->stream, &conform_detached,
			                       &request));
		} else if (c->rank == 1) {
			conform_fill(in, sizeof(in), 4);
			CHECK_OK(c, baton_recv(in, sizeof(in), BATON_UINT8, 0, 0,
			                       elsewhere, c->stream, &conform_detached,
			                       &request));
		}
		if (c->rank < 2)
			FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, in, c->rank < 2 ? sizeof(in) : 0, 5);
		receive_all(c);
	}
	CHECK_OK(c, baton_comm_destroy(elsewhere));
}

/* The engine's thread leaves all to the thread of that function. */
static void
a_rank_that_runs_a_function_takes_short_messages(struct conform *c)
{
	static const int pauses_ms[] = { 0, 60 };

	for (unsigned i = 0; c->info.engine_thread && i < 2; i++) {
		conform_sync(c);
		if (c->rank == 1)
			conform_gate_launch(c, (int)i, c->stream);
		pause_for(pauses_ms[i]);
		send_all(c);
		conform_sync(c);
		if (c->rank == 1)
			conform_gate_open(c, (int)i);
		receive_all(c);
	}
}

#define ROOM_FLAGS (CONFORM_PROCESSES | CONFORM_HOST_ISSUED)

const struct conform_case conform_room[] = {
	{ CASE(a_rank_in_a_collective_call_takes_short_messages), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS, .flags = ROOM_FLAGS },
	{ CASE(a_rank_that_has_had_a_window_takes_short_messages), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS, .flags = ROOM_FLAGS },
	{ CASE(an_idle_rank_takes_short_messages), .ranks_min = 2,
	  .flags = ROOM_FLAGS },
	{ CASE(a_rank_that_has_waited_takes_short_messages), .ranks_min = 2,
	  .flags = ROOM_FLAGS },
	{ CASE(a_rank_that_waits_elsewhere_takes_short_messages), .ranks_min = 2,
	  .flags = ROOM_FLAGS },
	{ CASE(a_rank_that_runs_a_function_takes_short_messages), .ranks_min = 2,
	  .flags = ROOM_FLAGS },
	CASES_END,
};
