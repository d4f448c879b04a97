/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ticks: the cheapest clock that is the same on all processors of the node, for stamps in great
 * numbers.
 *
 * Where the processor says that its time-stamp counter has a constant rate, and the kernel
 * has found those of all processors to agree, it is that: 10 ns, and no call.  Elsewhere reading a
 * clock may be a call of the kernel, so a stamp is what the engine has read in its last pass
 * (batoni_ticks_pass), or, if that is later, the kernel's last tick.
 */
#ifndef BATONI_TICKS_H
#define BATONI_TICKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* The same moment by three clocks. */
struct batoni_reading {
	uint64_t ticks, monotonic_ns, real_ns;
	uint64_t width; /* ticks between the first look and the last */
};

/* Written by batoni_ticks_open.  counter: the time-stamp counter; else pass_ns is kept. */
struct batoni_ticks_source {
	_Atomic bool counter, open;
	uint64_t per_second;
	_Atomic uint64_t pass_ns;
};
extern struct batoni_ticks_source batoni_ticks_source;

/* Find the source, and measure its rate, which takes 2 ms.  Any thread, any number of times; before
 * any other call. */
void batoni_ticks_open(void);
void batoni_ticks_read(struct batoni_reading *reading_p);
/* For tests: no counter from now on (or again what batoni_ticks_open has found).  Stamps of before are
 * of another clock. */
void batoni_ticks_without_counter(bool without);

uint64_t batoni_ticks_of_pass(void);

/* Is a stamp read without a call?  Then batoni_ticks_near reads it. */
static inline bool
batoni_ticks_are_near(void)
{
#if defined(__x86_64__)
	return __builtin_expect(
		atomic_load_explicit(&batoni_ticks_source.counter,
	                             memory_order_relaxed),
		1);
#else
	return false;
#endif
}

static inline uint64_t
batoni_ticks_near(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return 0;
#endif
}

static inline uint64_t
batoni_ticks(void)
{
	return batoni_ticks_are_near() ? batoni_ticks_near()
	                               : batoni_ticks_of_pass();
}

void batoni_ticks_note_pass(void);

/* A pass of the engine begins: the one time that it reads the clock for stamps, if it must. */
static inline void
batoni_ticks_pass(void)
{
	const struct batoni_ticks_source *source = &batoni_ticks_source;

	if (__builtin_expect(atomic_load_explicit(&source->open,
	                                          memory_order_relaxed),
	                     0) &&
	    !atomic_load_explicit(&source->counter, memory_order_relaxed))
		batoni_ticks_note_pass();
}

#endif
