/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the engine's thread naps between its looks. */
#ifndef BATONI_PACE_H
#define BATONI_PACE_H

#include "load.h"

/* The nap beside a host that drives. */
#define BATONI_TICK_NS 900000u
#define BATONI_NAP_MIN_NS 20000u

/* What a look has found. */
struct batoni_looked {
	enum batoni_look look; /* when to look again */
	bool events;
	uint64_t tick_ns; /* the longest nap while peers may end something */
	uint64_t now_ns;
	uint64_t worked_ns; /* processor time that the look has cost */
};

/* Zero at first. */
struct batoni_pace {
	uint64_t nap_ns; /* the last one */
	uint64_t looked_ns;
	uint64_t longest_ns; /* while bytes move; 0: not set yet */
	uint64_t rate; /* work in time, in 1/1024, when longest_ns was last changed */
};

/* The next nap. */
uint64_t batoni_pace_nap(struct batoni_pace *pace,
                         const struct batoni_looked *looked);

#endif
