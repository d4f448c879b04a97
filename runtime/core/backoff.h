/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the engine's thread sleeps between its polls. */
#ifndef BATONI_BACKOFF_H
#define BATONI_BACKOFF_H

#include "load.h"

/* The sleep beside a waiter that drives. */
#define BATONI_TICK_NS 900000u
#define BATONI_BACKOFF_MIN_NS 20000u

/* What a poll has found. */
struct batoni_polled {
	enum batoni_poll poll; /* when to poll again */
	bool events;
	uint64_t tick_ns; /* the longest sleep while peers may end something */
	uint64_t now_ns;
	uint64_t worked_ns; /* processor time that the poll has cost */
};

/* Zero at first. */
struct batoni_backoff {
	uint64_t sleep_ns; /* the last one */
	uint64_t looked_ns;
	uint64_t longest_ns; /* while bytes move; 0: not set yet */
	uint64_t rate; /* work in time, in 1/1024, when longest_ns was last changed */
};

/* The next sleep. */
uint64_t batoni_backoff_next(struct batoni_backoff *backoff,
                             const struct batoni_polled *polled);

#endif
