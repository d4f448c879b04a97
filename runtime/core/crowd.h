/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that share the queues of a device: what the engine tells the program of that. */
#ifndef BATONI_CROWD_H
#define BATONI_CROWD_H

#include <stdbool.h>
#include <stddef.h>

#include "baton.h"
#include "device.h"

/* Bytes of a description. */
#define BATONI_CROWD_BYTES 200u

/* Any thread.  Can a stream of the device be held up by another one? text: how many streams and
 * queues there are and what to set; "" if none can be held up. */
bool batoni_crowd_describe(const struct baton_comm *comm, char *text, size_t size);
/* The same, without the text. */
bool batoni_crowd_is(const struct baton_comm *comm);
/* Say why an operation may have ended in TIMEOUT that was CROWDED at its deadline: its peer's
 * stream may have been held up. */
void batoni_crowd_explain(const struct baton_comm *comm, char *text, size_t size);
/* Fill in what baton_comm_query says of the streams and queues. */
void batoni_crowd_query(const struct baton_comm *comm, struct baton_comm_info *info);
/* Log, at the level debug, what the streams of the device have. */
void batoni_crowd_announce(const struct baton_comm *comm);
/* The communicator has just been started: warn, once for what is to be set. */
void batoni_crowd_warn(const struct baton_comm *comm);

#endif
