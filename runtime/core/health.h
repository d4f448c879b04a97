/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a communicator takes operations, and its end by a fault (health.c). */
#ifndef BATONI_HEALTH_H
#define BATONI_HEALTH_H

#include "core.h"

/* comm is NULL, or was destroyed: INVALID, with a sentence. */
enum baton_status batoni_refuse_comm(const char *call,
                                     const struct baton_comm *comm);
/* OK, or INVALID with a sentence: a destroy has left the communicator, and timed out after
 * that.  Any thread.  (The fast path need not ask: what it serves has no time-out.) */
enum baton_status batoni_check_left(const char *call,
                                    const struct baton_comm *comm);
/* Was the communicator left behind (leave.c)?  Items of it may then be on streams. */
static inline bool
batoni_comm_is_gone(const struct baton_comm *comm)
{
	return atomic_load_explicit(&comm->functions, memory_order_relaxed) ==
	       BATONI_GONE;
}

/* Break the communicator.  The first status and reason are kept; the next pass ends what
 * is pending.  The driver. */
void batoni_comm_break(struct baton_comm *comm, enum baton_status status,
                       const char *why);
/* Ask for the health of an asynchronous device; an error breaks the communicator.  The driver.
 * Returns events. */
size_t batoni_check_device(struct baton_comm *comm);
/* A call of the device failed: check its health now.  Any thread but the driver. */
void batoni_ask_device(struct baton_comm *comm);
/* How long a broken communicator still waits for an asynchronous device.  Any thread. */
int64_t batoni_comm_grace_ns(const struct baton_comm *comm);

#endif
