/* SPDX-License-Identifier: BSD-3-Clause */
/* Launched functions, and streams' threads that drive after them. */
#ifndef BATONI_LAUNCH_H
#define BATONI_LAUNCH_H

#include "core.h"

/* `reached` of a launch: runs the function, on a thread of the device. */
void batoni_reached_launch(struct batoni_stream_item *item);
/* The driver: is there nothing to poll until a launched function returns, whose thread
 * then drives, or another thread calls? */
bool batoni_is_left_to_launches(void);
/* Release the lock; if the above holds, without waking an heir. */
void batoni_leave_to_launches(void);

#endif
