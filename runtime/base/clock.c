/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"

#include <sched.h>
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
batoni_wall_ns(void)
{
	return read_ns(CLOCK_REALTIME);
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
batoni_pause_between(unsigned tries)
{
	const struct timespec sleep = {.tv_nsec = 50000};

	if (tries < 1000)
		sched_yield();
	else
		nanosleep(&sleep, NULL);
}

void
batoni_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool
batoni_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / 1000000000u),
		.tv_nsec = (long)(until_ns % 1000000000u),
	};

	if (until_ns == UINT64_MAX)
		return pthread_cond_wait(cond, lock) == 0;
	return pthread_cond_timedwait(cond, lock, &until) == 0;
}

void
batoni_clock_set(uint64_t (*now_ns)(void))
{
	atomic_store(&injected, now_ns);
}
