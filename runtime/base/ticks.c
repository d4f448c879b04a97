/* SPDX-License-Identifier: BSD-3-Clause */
#include "ticks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "clock.h"

#define RATE_NS UINT64_C(2000000) /* how long the rate is measured */
#define READINGS 8u               /* of which the narrowest counts */

struct batoni_ticks_source batoni_ticks_source;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool found; /* the counter */

#if defined(__x86_64__)
/* "Invariant TSC". */
static bool
has_constant_rate(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1u);
}

/* The kernel takes it off this list where the processors' counters differ or stop. */
static bool
kernel_trusts_it(void)
{
	FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/"
	                   "available_clocksource",
	                   "re");
	char names[256] = "";
	size_t n;

	if (!file)
		return false;
	n = fread(names + 1, 1, sizeof(names) - 3, file);
	fclose(file);
	names[0] = ' ';
	for (size_t i = 0; i <= n; i++) {
		if (names[i] == '\n')
			names[i] = ' ';
	}
	names[n + 1] = ' ';
	return strstr(names, " tsc ") != NULL;
}

static bool
find_counter(void)
{
	return has_constant_rate() && kernel_trusts_it();
}
#else
static bool
find_counter(void)
{
	return false;
}
#endif

void
batoni_ticks_read(struct batoni_reading *reading_p)
{
	struct batoni_reading next;

	reading_p->width = UINT64_MAX;
	for (unsigned i = 0; i < READINGS; i++) {
		batoni_ticks_pass();
		next.ticks = batoni_ticks();
		next.monotonic_ns = batoni_real_ns();
		next.real_ns = batoni_wall_ns();
		next.width = batoni_ticks() - next.ticks;
		if (next.width < reading_p->width)
			*reading_p = next;
	}
}

/* Of the counter. */
static uint64_t
measure_rate(void)
{
	struct batoni_reading from, to;

	batoni_ticks_read(&from);
	do
		batoni_ticks_read(&to);
	while (to.monotonic_ns - from.monotonic_ns < RATE_NS);
	return (uint64_t)((double)(to.ticks - from.ticks) * 1e9 /
	                  (double)(to.monotonic_ns - from.monotonic_ns));
}

static void
open_source(void)
{
	struct batoni_ticks_source *source = &batoni_ticks_source;

	source->counter = find_counter();
	found = source->counter;
	batoni_ticks_note_pass();
	source->per_second = found ? measure_rate() : UINT64_C(1000000000);
	source->open = true;
}

void
batoni_ticks_open(void)
{
	pthread_once(&once, open_source);
}

void
batoni_ticks_without_counter(bool without)
{
	batoni_ticks_open();
	batoni_ticks_source.counter = found && !without;
	batoni_ticks_note_pass();
}

void
batoni_ticks_note_pass(void)
{
	atomic_store_explicit(&batoni_ticks_source.pass_ns, batoni_real_ns(),
	                      memory_order_relaxed);
}

uint64_t
batoni_ticks_of_pass(void)
{
	uint64_t pass = atomic_load_explicit(&batoni_ticks_source.pass_ns,
	                                     memory_order_relaxed);
	uint64_t tick = batoni_coarse_ns();

	return pass > tick ? pass : tick;
}
