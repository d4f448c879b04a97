/* SPDX-License-Identifier: BSD-3-Clause */
/* Condition variables that are waited for by CLOCK_MONOTONIC (batoni_real_ns). */
#ifndef BATONI_COND_H
#define BATONI_COND_H

#include <pthread.h>
#include <time.h>

static inline void
batoni_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attributes);
	pthread_condattr_destroy(&attributes);
}

#endif
