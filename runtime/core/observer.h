/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What watches the life of operations (life.h): traces, or a test.  A communicator may have several
 * observers, and tells all of them.
 */
#ifndef BATONI_OBSERVER_H
#define BATONI_OBSERVER_H

#include "baton.h"

struct batoni_op;

/* What happens to an operation beside its moves. */
enum batoni_event {
	/* The call is not refused any more, and all that it has said is in the operation.  In the
	 * inbox: the enqueuer, before it pushes.  Of what the call itself has issued, and what has not ended
	 * there: the driver. */
	BATONI_EVENT_HANDED,
	/* Of a function: its stream has come to it, and runs it now.  A thread of the stream. */
	BATONI_EVENT_RUNS,
	/* It has ended, and its path keeps its buffer.  The driver. */
	BATONI_EVENT_LENT,
	/* It began ISSUED, and its call does not issue it: the record is not used, and the call begins with
	 * another one.  The driver. */
	BATONI_EVENT_UNDONE,
	/* Of a claim, which has no moves: a probe tells the program of it; and its receive meets it, or it
	 * is discarded.  The driver. */
	BATONI_EVENT_FOUND,
	BATONI_EVENT_SPENT
};

/* `moved` is told of each move of an operation from state to state (enum batoni_op_state), on the
 * thread that moves it; it may only look.  For ISSUED it returns OK, or the status in which
 * the operation ends without being issued (a stream-issued one: in which its communicator
 * breaks). */
struct batoni_observer {
	enum baton_status (*moved)(void *context, const struct batoni_op *op,
	                           unsigned state);
	void *context;
	/* It answers OK to all, and takes part where a call issues an operation itself: the
	 * communicator keeps its fast path (direct.h). */
	bool fast;
	/* Each may be NULL. */
	/* In place of `moved` for the first state, NEW or ISSUED: the enqueuer.  site: where the program's
	 * call returns to.  ISSUED: the call issues it now, and what the one-sided layer
	 * keeps of it may not be there yet, nor the launch of what is PLANNED; if it does not end
	 * within its call, HANDED follows. */
	void (*begun)(void *context, const struct batoni_op *op, unsigned state,
	              const void *site);
	void (*event)(void *context, const struct batoni_op *op,
	              enum batoni_event event);
	/* The driver.  left: the operation in that slot has ended, and everybody has
	 * been told.  copying: bytes of the operation, which is issued, begin to be copied between
	 * its buffer and memory of its path, or are not copied any more. */
	void (*left)(void *context, const struct baton_comm *comm, uint32_t slot);
	void (*copying)(void *context, const struct batoni_op *op, bool begins);
};

#define BATONI_OBSERVERS_MAX 3u /* a test's, NVTX, the trace */

/* The first one of the communicators that are made from now on; NULL: none.  It stays the caller's, and
 * stays as long as they live. */
void batoni_observer_set(const struct batoni_observer *observer_or_null);

#endif
