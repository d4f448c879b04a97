/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static uint64_t (*_Atomic injected)(void);

static uint64_t
read_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
batoni_real_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

uint64_t
batoni_coarse_ns(void)
{
	return read_ns(CLOCK_MONOTONIC_COARSE);
}

uint64_t
batoni_now_ns(void)
{
	uint64_t (*now_ns)(void) =
		atomic_load_explicit(&injected, memory_order_relaxed);

	return now_ns ? now_ns() : batoni_real_ns();
}

void
batoni_clock_set(uint64_t (*now_ns)(void))
{
	atomic_store(&injected, now_ns);
}
