/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room for what peers send, while nothing of this rank is pending.
 *
 * A pass tests the paths of communicators that have something pending.  On most paths nothing else needs
 * a test.  Where the sends of peers go through memory of a bounded size that `test` empties (makes_room: the
 * rings of near), a peer may wait for room, and its program for that send, while this rank waits in
 * a collective call, for another communicator, or for nothing.  So these communicators are on the list
 * engine.rings for as long as they live, and are tested too
 *
 *   - by a collective call that waits for all ranks (batoni_comm_make_room);
 *   - by the engine's thread, in each of its ticks;
 *   - by any driver, every 128 passes and after each yield of its core, a few communicators at a time;
 *   - before a thread sleeps on the bell without a limit, or for long, and when a sender that finds no
 *     room has rung (bell->idle).
 *
 * No wake-up is lost.  A sender without room has published what fills its ring, with a fence behind it (W4 of
 * ring.h).  It stores `hungry`, loads `taken` once more, then loads `idle`.  The sleeper loads the doorbell,
 * stores `idle`, makes a fence, then tests, which stores `taken` and loads `hungry`.  If the sender does not see
 * `idle`, the test sees all that it has published, and takes it; then one of them sees the other as ring.h says
 * (Room).  If it does, it rings, and the sleeper does not sleep, or wakes.  A test with events may have left
 * some in the ring, for which nobody rings: the sleeper tests again.
 *
 * The engine's thread may be in deep sleep because a waiter has the lock, and then hears no sender.  That waiter makes
 * room itself, and wakes the thread when it releases the lock (batoni_room_unheard).
 *
 * Where the engine's thread may not drive a communicator (BATON_PROGRESS_CALLS, MPI below
 * MPI_THREAD_MULTIPLE), only the program's calls make room.
 *
 * The driver.
 */
#include "room.h"

#include "field.h"
#include "wake.h"

/* Of so many does a pass make room: with 500, all of them took longer than a round trip. */
#define COMMS_AT_ONCE 16u

void
batoni_room_begin(struct baton_comm *comm)
{
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		if (!comm->paths[i]->load.makes_room || comm->work.ringed)
			continue;
		comm->work.ringed = true;
		comm->work.rings_next = batoni_engine.rings;
		batoni_engine.rings = comm;
	}
	/* It may sleep on its futex, since there was none yet. */
	if (comm->work.ringed && !comm->work.rings_next)
		batoni_wake_thread();
}

void
batoni_room_end(struct baton_comm *comm)
{
	struct baton_comm *before = batoni_engine.rings;

	if (!comm->work.ringed)
		return;
	if (batoni_engine.rings_turn == comm)
		batoni_engine.rings_turn = comm->work.rings_next;
	if (before == comm) {
		batoni_engine.rings = comm->work.rings_next;
	} else {
		while (before->work.rings_next != comm)
			before = before->work.rings_next;
		before->work.rings_next = comm->work.rings_next;
	}
	comm->work.ringed = false;
}

/* Do passes test the path?  They test a communicator without operations only while it is held, although
 * receives for the one-sided layer may be in flight. */
static bool
is_passed(const struct baton_comm *comm, const struct batoni_path *path)
{
	return comm->work.listed && path->load.in_flight;
}

size_t
batoni_comm_make_room(struct baton_comm *comm)
{
	size_t events = 0;

	if (!comm->work.ringed || comm->fault.status != BATON_OK ||
	    !batoni_may_drive(comm))
		return 0;
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (path->load.makes_room && !is_passed(comm, path))
			events += path->ops->test(path);
	}
	return events;
}

size_t
batoni_make_room(void)
{
	struct baton_comm *next;
	size_t events = 0;

	for (struct baton_comm *comm = batoni_engine.rings; comm; comm = next) {
		next = comm->work.rings_next;
		events += batoni_comm_make_room(comm);
	}
	return events;
}

size_t
batoni_make_some_room(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm *comm = e->rings_turn ? e->rings_turn : e->rings;
	size_t events = 0;

	for (unsigned n = 0; comm && n < COMMS_AT_ONCE; n++) {
		struct baton_comm *next = comm->work.rings_next;

		events += batoni_comm_make_room(comm);
		comm = next;
	}
	e->rings_turn = comm;
	return events;
}

bool
batoni_room_asleep(unsigned who, size_t *events_p)
{
	*events_p = 0;
	if (!batoni_engine.rings)
		return false;
	atomic_fetch_or(&batoni_bell()->idle, who);
	/* `test` loads what the sender has published, and its bit, without an order of their own. */
	batoni_fence(memory_order_seq_cst);
	*events_p = batoni_make_room();
	return true;
}

void
batoni_room_awake(unsigned who)
{
	atomic_fetch_and(&batoni_bell()->idle, ~who);
}

bool
batoni_room_unheard(void)
{
	return atomic_load(&batoni_engine.rings) && !batoni_thread.engine &&
	       !(atomic_load(&batoni_bell()->idle) & BATONI_ASLEEP_THREAD);
}
