/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a path has to have looked at: its load.  A path is one way of carrying out
 * operations: the messages of a transport, the one-sided layer.  Each counts its own load;
 * runtime/core/outlook.c adds up those of a communicator and says when to look again.
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
	 * above 0. */
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
	 * come.  No reason to look unless an operation is awaiting, nor where that path parks them. */
	uint32_t standing;
	/* What the device does not report: marks. */
	uint32_t polled;
	/* A test looks at only a part of what is in flight; so many more look at the
	 * rest. */
	uint32_t more_tests;
	/* Constant.  A parked wait may also be met by what rings no bell at once (a write of a
	 * stream): while there are some, look at growing intervals. */
	bool unrung;
	/* Constant.  What of this path waits for a peer is parked, receives that another path keeps posted on
	 * it too: whoever sends to them rings the bell. */
	bool parks;
	/* Constant.  Only calls of this process end what is in flight and not moving
	 * (local); the peers that end parked waits are of this process too. */
	bool quiet;
};

/* When to look again, from late to soon: the same answer for a host that drives, for the
 * engine's thread, and for a pass. */
enum batoni_look {
	/* Nothing goes on until a thread of this process calls, the bell rings, or a
	 * deadline passes. */
	BATONI_LOOK_WHEN_RUNG,
	/* Only messages to standing receives may come, or counts that streams write: look at
	 * growing intervals. */
	BATONI_LOOK_WATCH,
	/* A device alone ends what is pending, and only a look shows that.  A host looks at
	 * growing intervals when it has looked for long: a kernel may be in front of it. */
	BATONI_LOOK_DEVICE,
	/* A peer may end an operation at any time. */
	BATONI_LOOK_PENDING,
	/* Each look moves bytes; or the two before this one at once. */
	BATONI_LOOK_MOVING
};

#endif
