/* SPDX-License-Identifier: BSD-3-Clause */
/* Making a communicator from a plan and an opened transport: the steps of one rank's creation
 * (creation.c). */
#ifndef BATONI_COMM_H
#define BATONI_COMM_H

#include "opening.h"

/* Check the options (NULL: the defaults) and fill *plan_p.  OK, INVALID, UNSUPPORTED (with a
 * sentence by batoni_refuse). */
enum baton_status
batoni_comm_plan(const struct baton_comm_options *options,
                 struct batoni_comm_plan *plan_p);
/* Put the plan on this device, instead of the one that the options chose. */
void batoni_comm_plan_on(struct batoni_comm_plan *plan,
                         const struct batoni_device_ops *device);
/* Everything that can fail on this rank alone: table entry, pool, device, engine thread, staging,
 * one-sided layer for plan->size ranks.  OK, NOMEM, AGAIN, SYSTEM, INVALID, UNSUPPORTED, CUDA. */
enum baton_status batoni_comm_prepare(const struct batoni_comm_plan *plan,
                                      struct baton_comm **comm_p);
/* The configuration of the transport for this communicator, which was prepared from the plan. */
struct batoni_transport_config
batoni_comm_transport_config(const struct batoni_comm_plan *plan,
                             const struct baton_comm *comm);
/* The first slot, of the transport below, of a native transport's own. */
uint32_t batoni_comm_native_slot(const struct batoni_comm_plan *plan);
/* Takes the transport over, and cannot fail. */
void batoni_comm_start(struct baton_comm *comm,
                       struct batoni_transport *transport);
void batoni_comm_discard(struct baton_comm *comm);

/* One more way to carry out operations, preferred to those before it.  Before the
 * communicator's first operation; at most BATONI_PATHS_MAX. */
void batoni_comm_add_path(struct baton_comm *comm, struct batoni_path *path);

/* baton_comm_info.why_engine_puts. */
const char *batoni_why_engine_puts(const struct baton_comm *comm);

#endif
