/* SPDX-License-Identifier: BSD-3-Clause */
/* The clocks: one for the deadlines and time stamps of operations, which tests may
 * replace, and one for the waits of the host, which is also read coarsely. */
#ifndef BATONI_CLOCK_H
#define BATONI_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC, or the clock that a test has set (testing.h). */
uint64_t batoni_now_ns(void);
/* Always CLOCK_MONOTONIC: limits how long a host waits. */
uint64_t batoni_real_ns(void);
/* The same to some milliseconds, for the price of a load. */
uint64_t batoni_coarse_ns(void);
/* CLOCK_REALTIME, for people and for other nodes; it may jump. */
uint64_t batoni_wall_ns(void);

/* The pause between two tries of a call that polls, or that retries under a lock: without the lock, so that
 * other threads get it.  The first 1000 pauses yield the core; later ones sleep 50 us. */
void batoni_pause_between(unsigned tries);

/* A condition variable that is waited for with a limit.  False: until_ns (batoni_real_ns;
 * UINT64_MAX: no limit) has passed.  As pthread_cond_wait, it may return early, and is a
 * cancellation point. */
void batoni_cond_init(pthread_cond_t *cond);
bool batoni_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
                      uint64_t until_ns);

/* For tests: deadlines and time stamps come from now_ns; NULL restores the clock. */
void batoni_clock_set(uint64_t (*now_ns)(void));

#endif
