/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BATONI_ANNOUNCE_H
#define BATONI_ANNOUNCE_H

struct baton_comm;

/* The communicator has just been started: log what it is, at level debug. */
void batoni_announce(const struct baton_comm *comm);

#endif
