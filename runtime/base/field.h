/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fields of a struct that a host may read while the struct is used again
 * (runtime/core/op.h, "Readers").  Writers and such readers go through these; they are
 * plain moves.  Whoever holds the struct may read them plainly.
 */
#ifndef BATONI_FIELD_H
#define BATONI_FIELD_H

#include <stdatomic.h>

#define batoni_get(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define batoni_set(field, value)                                              \
	__atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

#if defined(__SANITIZE_THREAD__)
#define BATONI_NO_FENCES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BATONI_NO_FENCES 1
#endif
#endif

/* ThreadSanitizer knows no fences.  All that they order is atomic, so it has nothing
 * to say, and the machines it runs on keep this order of loads and of stores. */
static inline void
batoni_fence(memory_order order)
{
#ifdef BATONI_NO_FENCES
	atomic_signal_fence(order);
#else
	atomic_thread_fence(order);
#endif
}

#endif
