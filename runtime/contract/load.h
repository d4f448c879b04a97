/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load of a path: how much it has in flight, by how soon that has to be polled.  A path is one way of carrying out
 * operations: the messages of a transport, the one-sided layer.  Each counts its own load;
 * runtime/core/forecast.c adds up those of a communicator and says when to poll again.
 */
#ifndef BATONI_LOAD_H
#define BATONI_LOAD_H

#include <stdbool.h>
#include <stdint.h>

/* Written by the path, read by the engine between calls (driver).  An operation is counted
 * in in_flight, and in at most one of parked and awaiting.  A peer may end one that is in
 * neither at any time, and only a test shows that. */
struct batoni_load {
	/* What the path has begun and not ended.  `test` is called only while this is
	 * above 0, or if the path makes room. */
	uint32_t in_flight;
	/* Bytes move, and move on only by a test. */
	uint32_t moving;
	/* Waits that a test has found unmet, and that only a deadline ends or the store of
	 * a peer, which then rings the bell. */
	uint32_t parked;
	/* Operations that only what is in flight on another path ends: messages, or work on a
	 * stream that they are behind. */
	uint32_t awaiting;
	/* Receives that this path keeps posted on another one, for messages that may
	 * come.  They need no poll unless an operation is awaiting, and none where that path parks them. */
	uint32_t standing;
	/* Marks, whose end the device does not report: only a query of the device shows it. */
	uint32_t polled;
	/* A test covers only a part of what is in flight; this many more tests cover the rest. */
	uint32_t more_tests;
	/* Constant.  A parked wait may also be met by what rings no bell at once (a write of a
	 * stream): while there are some, poll at growing intervals. */
	bool unrung;
	/* Constant.  What of this path waits for a peer is parked, receives that another path keeps posted on
	 * it too: whoever sends to them rings the bell. */
	bool parks;
	/* Constant.  Only calls of this process end what is in flight and not moving
	 * (local); the peers that end parked waits are of this process too. */
	bool quiet;
	/* Constant.  What peers send goes through memory of a bounded size, and their sends wait for room that
	 * `test` makes, with nothing in flight too (runtime/core/room.c). */
	bool makes_room;
};

/* When to poll again, from late to soon: the same answer for a waiter that drives, for the
 * engine's thread, and for a pass. */
enum batoni_poll {
	/* Nothing goes on until a thread of this process calls, the bell rings, or a
	 * deadline passes. */
	BATONI_POLL_WHEN_RUNG,
	/* Only messages to standing receives may come, or counts that streams write: poll at
	 * growing intervals. */
	BATONI_POLL_WATCH,
	/* A device alone ends what is pending, and only a poll shows that.  A waiter polls at
	 * growing intervals when it has polled for long: a kernel may be in front of it. */
	BATONI_POLL_DEVICE,
	/* A peer may end an operation at any time. */
	BATONI_POLL_PENDING,
	/* Each poll moves bytes; or PENDING and DEVICE both hold. */
	BATONI_POLL_MOVING
};

#endif
