/* SPDX-License-Identifier: BSD-3-Clause */
/* How a communicator is left, before it is closed. */
#ifndef BATONI_LEAVE_H
#define BATONI_LEAVE_H

#include "core.h"

/* For a destroy: check whether the program may make it, and drive until the communicator can be
 * closed, which no pass and no call reaches then (*gone_p).  Returns OK, or, if it is gone, the error
 * for which it is closed as an aborted one; if not, why it is still there: BUSY, INVALID,
 * TIMEOUT, with a sentence.  Without the lock. */
enum baton_status batoni_comm_leave(struct baton_comm *comm, bool *gone_p);
/* Take it off the engine's lists.  The driver. */
void batoni_comm_unlist(struct baton_comm *comm);

#endif
