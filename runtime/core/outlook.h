/* SPDX-License-Identifier: BSD-3-Clause */
/* What is to be looked at, and when; the driver. */
#ifndef BATONI_OUTLOOK_H
#define BATONI_OUTLOOK_H

#include "core.h"

/* The load of all paths of a communicator, its holds and its marks. */
struct batoni_load batoni_comm_load(const struct baton_comm *comm);
enum batoni_look batoni_load_look(const struct batoni_load *sum);

/* How long the engine's thread may nap while operations are PENDING. */
uint64_t batoni_tick_ns(uint32_t more_tests);

/* Of all communicators that this thread may drive. */
struct batoni_outlook {
	enum batoni_look look;
	uint64_t deadline; /* no operation has an earlier one; NEVER: none */
	uint32_t more_tests; /* of all loads */
	bool parked; /* there are parked waits: listen before a sleep */
	bool parked_on_others; /* and other processes end some of them */
};

struct batoni_outlook batoni_look_ahead(void);

/* Is there a working communicator of an asynchronous device, whose health has to be asked
 * for, or one with peers that are gone, which liveness.c looks at for the second time?  Is this such
 * a communicator? */
bool batoni_awaits_health(void);
bool batoni_comm_awaits_health(const struct baton_comm *comm);
/* How long the engine's thread may sleep while it listens, whatever the deadlines: for the
 * processes of peers whose signals are awaited (parked), and for health.  Any
 * thread. */
uint64_t batoni_nap_most(bool parked, bool health);

#endif
