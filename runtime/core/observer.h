/* SPDX-License-Identifier: BSD-3-Clause */
/* What watches the life of operations (life.h): a trace, or a test. */
#ifndef BATONI_OBSERVER_H
#define BATONI_OBSERVER_H

#include "baton.h"

struct batoni_op;

/* Gets each move of an operation from state to state (enum batoni_op_state), on the
 * thread that moves it; it may only read.  For ISSUED it returns OK, or the status in which
 * the operation ends without being issued (a stream-issued one: in which its communicator
 * breaks). */
struct batoni_observer {
	enum baton_status (*moved)(void *context, const struct batoni_op *op,
	                           unsigned state);
	void *context;
	/* Both may be NULL; the driver.  left: the operation in that slot has ended, and everybody has
	 * been told.  copying: bytes of the operation, which is issued, begin to be copied between
	 * its buffer and memory of its path, or are not copied any more. */
	void (*left)(void *context, const struct baton_comm *comm, uint32_t slot);
	void (*copying)(void *context, const struct batoni_op *op, bool begins);
};

/* For the communicators that are made from now on; NULL: none.  The caller owns it, and
 * keeps it as long as they live. */
void batoni_observer_set(const struct batoni_observer *observer_or_null);

#endif
