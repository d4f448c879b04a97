/* SPDX-License-Identifier: BSD-3-Clause */
/* Native transports (native.h of transport/): the engine's part of opening one. */
#ifndef BATONI_OPEN_NATIVE_H
#define BATONI_OPEN_NATIVE_H

#include "comm.h"

enum baton_status batoni_comm_create_native(struct baton_comm *comm,
                                            const struct batoni_comm_plan *plan);
/* Nothing, if it was opened. */
void batoni_comm_discard_native(struct baton_comm *comm);

/* Open the native transports of n communicators that were prepared from plans that ask for
 * them, over transports[0..n-1]; by the thread that creates, without the driver lock.  OK:
 * transports has the native ones.  An error: it is unchanged, and they are to be closed as
 * aborted. */
enum baton_status batoni_comm_open_native(struct baton_comm *comms[],
                                          struct batoni_transport *transports[],
                                          int n);

#endif
