/* SPDX-License-Identifier: BSD-3-Clause */
/* The clocks: one for the deadlines and time stamps of operations, which tests may
 * replace, and one for the waits of the host, which is also read coarsely. */
#ifndef BATONI_CLOCK_H
#define BATONI_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC, or the clock that a test has set (testing.h). */
uint64_t batoni_now_ns(void);
/* Always CLOCK_MONOTONIC: limits how long a host waits. */
uint64_t batoni_real_ns(void);
/* The same to some milliseconds, for the price of a load. */
uint64_t batoni_coarse_ns(void);

/* For tests: deadlines and time stamps come from now_ns; NULL restores the clock. */
void batoni_clock_set(uint64_t (*now_ns)(void));

#endif
