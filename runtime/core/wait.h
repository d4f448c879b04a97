/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the program that wait. */
#ifndef BATONI_WAIT_H
#define BATONI_WAIT_H

#include "wake.h"

/* Drive, or sleep while another thread drives, until `ready` returns true, for at most
 * timeout_ns (0 polls once; negative: no limit).  comm is for the poll; NULL: none.
 * Returns the last answer of `ready`. */
bool batoni_wait_until(struct batoni_awaited *awaited,
                       const struct baton_comm *comm, int64_t timeout_ns);

/* A probe has, or has not, found a message.  A program that awaits one has nothing to sleep in, so its loop yields the core
 * as a wait does. */
void batoni_probed(bool found);

/* The driver gives other threads a turn. */
void batoni_yield_driver(unsigned tries);

/* For a call of the program that needs the lock for each poll, and not between polls: make a pass
 * and take the step, with the driver lock held, until the step returns something else than PENDING.
 * Returns that, or PENDING if limit_ns (batoni_real_ns; BATONI_NEVER: no limit) has passed.  The
 * step is taken once at least, and neither waits nor releases the lock.  The caller does
 * not hold it. */
enum baton_status batoni_drive_until(enum baton_status (*step)(void *argument),
                                     void *argument, uint64_t limit_ns);

#endif
