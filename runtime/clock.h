/* SPDX-License-Identifier: BSD-3-Clause */
/* Time: what deadlines of operations and time stamps are counted in. */
#ifndef BATONI_CLOCK_H
#define BATONI_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC, or what a test has put in its place. */
uint64_t batoni_now_ns(void);
/* CLOCK_MONOTONIC, always: for how long a host waits. */
uint64_t batoni_real_ns(void);

#endif
