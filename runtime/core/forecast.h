/* SPDX-License-Identifier: BSD-3-Clause */
/* The forecast: what has to be polled, and when.  The driver. */
#ifndef BATONI_FORECAST_H
#define BATONI_FORECAST_H

#include "core.h"

/* The load of all paths of a communicator, its holds and its marks. */
struct batoni_load batoni_comm_load(const struct baton_comm *comm);
enum batoni_poll batoni_load_poll(const struct batoni_load *sum);

/* How long the engine's thread may sleep while operations are PENDING. */
uint64_t batoni_tick_ns(uint32_t more_tests);

/* The forecast of all communicators that this thread may drive. */
struct batoni_forecast {
	enum batoni_poll poll;
	uint64_t deadline; /* no operation has an earlier one; NEVER: none */
	uint32_t more_tests; /* of all loads */
	bool parked; /* there are parked waits: listen before a sleep */
	bool parked_on_others; /* and other processes end some of them */
};

struct batoni_forecast batoni_forecast_now(void);

/* Is there a working communicator of an asynchronous device, whose health has to be asked
 * for, or one with peers that are gone, which liveness.c checks for the second time?  Is this such
 * a communicator? */
bool batoni_awaits_health(void);
bool batoni_comm_awaits_health(const struct baton_comm *comm);
/* How long the engine's thread may sleep while it listens, whatever the deadlines. parked: it has
 * to check the processes of peers whose signals are awaited; health: it has to ask for the health
 * of devices.  Any thread. */
uint64_t batoni_sleep_most_ns(bool parked, bool health);

#endif
