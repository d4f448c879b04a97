/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room for what peers send (room.c).  The driver.
 */
#ifndef BATONI_ROOM_H
#define BATONI_ROOM_H

#include "core.h"

/* The communicator starts, and nothing of it is pending; or it is about to be closed. */
void batoni_room_begin(struct baton_comm *comm);
void batoni_room_end(struct baton_comm *comm);

/* Of one communicator, for a call that waits for all ranks: a send of a rank may wait for room, and that rank
 * for its send, before it calls too. */
size_t batoni_comm_make_room(struct baton_comm *comm);
/* Of all communicators that passes do not test.  These two return events. */
size_t batoni_make_room(void);
/* Of some of these, others in each call. */
size_t batoni_make_some_room(void);
/* The same for a thread that is about to sleep on the bell: senders that find no room ring from here on, until
 * batoni_room_awake (without the lock).  The caller has loaded the doorbell, and does not sleep if there were
 * events: there may be more.  False: there is no communicator whose peers' sends may wait for room, and so no
 * call of batoni_room_awake. */
bool batoni_room_asleep(unsigned who, size_t *events_p);
void batoni_room_awake(unsigned who);
/* For a thread of the program that has released the lock while the engine's thread is in deep sleep: that one has to
 * wake, or nothing would hear a sender without room.  Without the lock. */
bool batoni_room_unheard(void);

#endif
