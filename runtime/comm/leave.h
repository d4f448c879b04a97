/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a communicator can be closed; the driver, unless said. */
#ifndef BATONI_LEAVE_H
#define BATONI_LEAVE_H

#include "core.h"

/* The communicator is broken, and a destroy has waited so long for its asynchronous
 * device.  True: long enough; the communicator can be closed, although items of it may be
 * on streams. */
bool batoni_comm_leave_behind(struct baton_comm *comm, uint64_t waited_ns);
/* PENDING, or the communicator can be closed now.  INVALID: other ranks are in a
 * different collective call.  Any other error has broken the communicator. */
enum baton_status batoni_comm_try_to_leave(struct baton_comm *comm);
/* TIMEOUT; the sentence for baton_last_error names what is still in use. */
enum baton_status batoni_comm_refuse_to_leave(const struct baton_comm *comm);

#endif
