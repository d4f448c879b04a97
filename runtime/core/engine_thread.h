/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's own thread. */
#ifndef BATONI_ENGINE_THREAD_H
#define BATONI_ENGINE_THREAD_H

#include "core.h"

/* Start the engine's thread if it does not run.  OK, SYSTEM. */
enum baton_status batoni_engine_start(void);
/* Stop it for good, at the end of the process.  False: it did not stop in time. */
bool batoni_engine_stop(void);

#endif
