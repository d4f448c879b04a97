/* SPDX-License-Identifier: BSD-3-Clause */
/* Native transports (native.h of transport/): the engine's part of opening one. */
#ifndef BATONI_OPEN_NATIVE_H
#define BATONI_OPEN_NATIVE_H

#include "comm.h"

enum baton_status batoni_comm_create_native(struct baton_comm *comm,
                                            const struct batoni_comm_plan *plan);
/* Nothing, if it was opened. */
void batoni_comm_discard_native(struct baton_comm *comm);

/* What the native transport of a prepared communicator is to lie over, when `transport` is open:
 * it, or staging over it. */
struct batoni_transport *
batoni_comm_below_native(struct baton_comm *comm,
                         struct batoni_transport *transport);
/* One step of opening it over that; by the thread that creates, without the driver lock.  PENDING;
 * OK: *transport_p is open.  An error, on all ranks, with a sentence: `transport` is to be closed
 * as aborted. */
enum baton_status batoni_comm_step_native(struct baton_comm *comm,
                                          struct batoni_transport *below,
                                          struct batoni_transport **transport_p);

#endif
