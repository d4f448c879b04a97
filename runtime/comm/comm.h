/* SPDX-License-Identifier: BSD-3-Clause */
/* Making a communicator from a setup and an opened transport: the steps of one rank's creation
 * (creation.c).  And what else the files of this folder offer to each other. */
#ifndef BATONI_COMM_H
#define BATONI_COMM_H

#include "opening.h"

/* Check the options (NULL: the defaults) and fill *setup_p.  OK, INVALID, UNSUPPORTED (with a
 * sentence by batoni_refuse). */
enum baton_status
batoni_comm_setup(const struct baton_comm_options *options,
                  struct batoni_comm_setup *setup_p);
/* Put the setup on this device, instead of the one that the options chose. */
void batoni_comm_setup_on(struct batoni_comm_setup *setup,
                          const struct batoni_device_ops *device);
/* Everything that can fail on this rank alone: table entry, pool, device, engine thread, staging,
 * one-sided layer for setup->size ranks.  OK, NOMEM, AGAIN, SYSTEM, INVALID, UNSUPPORTED, CUDA. */
enum baton_status batoni_comm_prepare(const struct batoni_comm_setup *setup,
                                      struct baton_comm **comm_p);
/* The configuration of the transport for this communicator, which was prepared from the setup. */
struct batoni_transport_config
batoni_comm_transport_config(const struct batoni_comm_setup *setup,
                             const struct baton_comm *comm);
/* The first slot, of the lower transport, of a native transport's own. */
uint32_t batoni_comm_native_slot(const struct batoni_comm_setup *setup);
/* Takes the transport over, and cannot fail. */
void batoni_comm_start(struct baton_comm *comm,
                       struct batoni_transport *transport);
void batoni_comm_discard(struct baton_comm *comm);

/* Add a path, which is preferred to those before it.  Before the communicator's first operation; at
 * most BATONI_PATHS_MAX. */
void batoni_comm_add_path(struct baton_comm *comm, struct batoni_path *path);
/* All paths of messages have been added: choose one for each rank.  Likewise before the first
 * operation. */
void batoni_comm_choose_message_paths(struct baton_comm *comm);
/* Put near between the engine and the transport, where all ranks are near; or make it a path of its
 * own, which is returned, where some are.  comm->pairs is theirs once all is open. */
struct batoni_path *batoni_comm_start_pairs(struct baton_comm *comm,
                                            struct batoni_transport **transport);

/* baton_comm_info.why_engine_puts. */
const char *batoni_why_engine_puts(const struct baton_comm *comm);

/* ---- ranks of one process (comm_local.c), made all at once or one by one (comm_id.c) ---- */

/* How many ranks a communicator may have.  OK, INVALID. */
enum baton_status batoni_local_size(const char *call, int size);
/* The setup, of `call` with so many ranks, is for the local transport from now on, where that is
 * not another one than it names.  OK; UNSUPPORTED, with a sentence. */
enum baton_status batoni_local_transport(const char *call, int size,
                                         struct batoni_comm_setup *setup);

/* baton_comm_create_id, with a setup in place of the options, and an id that a peer has sent: PEER, if it is
 * none. */
enum baton_status batoni_comm_create_by_id(int size, int rank,
                                           const struct baton_unique_id *id,
                                           const struct batoni_comm_setup *setup,
                                           struct baton_comm **comm_p);
/* The ranks of this id of this process will not meet: a rank that comes all the same is refused. */
void batoni_comm_forget_id(const struct baton_unique_id *id);

/* ---- native transports (native.h): the engine's part of opening one (open_native.c) ---- */

enum baton_status batoni_comm_create_native(struct baton_comm *comm,
                                            const struct batoni_comm_setup *setup);
/* Discard the native transport; does nothing if it was opened. */
void batoni_comm_discard_native(struct baton_comm *comm);

/* What the native transport of a prepared communicator is to be layered on, when `transport` is open:
 * it, or staging over it. */
struct batoni_transport *
batoni_comm_lower_native(struct baton_comm *comm,
                         struct batoni_transport *transport);
/* One step of opening it over that; by the thread that creates, without the driver lock.  PENDING;
 * OK: *transport_p is open.  An error, on all ranks, with a sentence: `transport` is to be closed
 * as aborted. */
enum baton_status batoni_comm_step_native(struct baton_comm *comm,
                                          struct batoni_transport *lower,
                                          struct batoni_transport **transport_p);

/* ---- its start and its end (announce.c, leave.c) ---- */

/* The communicator has just been started: log what it is, at level debug. */
void batoni_announce(const struct baton_comm *comm);

/* For a destroy: check whether the program may make it, and drive until the communicator can be
 * closed, which no pass and no call reaches then (*gone_p).  Returns OK, or, if it is gone, the error
 * for which it is closed as an aborted one; if not, why it is still there: BUSY, INVALID,
 * TIMEOUT, with a sentence.  Without the lock. */
enum baton_status batoni_comm_leave(struct baton_comm *comm, bool *gone_p);
/* Take the communicator off the engine's lists.  The driver. */
void batoni_comm_unlist(struct baton_comm *comm);

#endif
