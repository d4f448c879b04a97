/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream-issued path for signals, puts and waits, on the fake device: what CUDA's copies
 * and memory operations, or NCCL's one-sided calls, will be.
 *
 *   - A put copies its bytes when its stream gets there, and the signal follows; puts to one
 *     (peer, context) go in the order of the calls, whatever their streams.
 *   - A wait is given its units at the call, and occupies its stream until its counters have
 *     passed them.
 *   - A group starts when all of its streams have reached it, and they continue when all of
 *     it is done.  Detached operations have a stream of their own, by slot.
 *   - Nothing can be taken back.  Abort lets all of its streams continue.
 *   - The next calls of enqueue can be made slow, refused, or to fail half way; and test can
 *     be made to find that the native library has failed.
 *
 * The messages of the same communicator stay those of its transport.
 */
#ifndef FAKE_PATH_H
#define FAKE_PATH_H

#include "baton.h"
#include "device.h"

/* Add the path to a communicator over the fake device whose ranks are in this process,
 * before its first operation.  It goes with the communicator.  OK, NOMEM. */
enum baton_status fake_path_add(struct baton_comm *comm);

enum fake_path_fault {
	FAKE_PATH_SOUND,
	FAKE_PATH_SLOW,    /* enqueue takes 20 ms */
	FAKE_PATH_STUCK,   /* enqueue returns when fake_path_unstick is called */
	FAKE_PATH_REFUSES, /* enqueue: AGAIN */
	FAKE_PATH_HALFWAY, /* enqueue puts half of its transfers on streams, then fails */
	FAKE_PATH_LATE     /* enqueue is fine, and the next test reports an error */
};

/* Is a call of enqueue stuck?  Let it go on. */
bool fake_path_is_stuck(void);
void fake_path_unstick(void);

/* What the next n calls of enqueue do, on all such paths. */
void fake_path_fail(enum fake_path_fault fault, unsigned n);

#endif
