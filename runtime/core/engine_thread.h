/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's own thread. */
#ifndef BATONI_ENGINE_THREAD_H
#define BATONI_ENGINE_THREAD_H

#include "core.h"

/* Start the engine's thread if it does not run.  OK, SYSTEM. */
enum baton_status batoni_engine_start(void);
/* Wake it from a nap. */
void batoni_ring_thread(void);
/* Wake it from deep sleep. */
void batoni_wake_thread(void);
/* How long it may sleep while it listens, whatever the deadlines: for the processes of peers
 * whose signals are awaited (parked), and for the health of devices. */
uint64_t batoni_nap_most(bool parked, bool devices);

#endif
