/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- numbers ------------------------------------------------------------ */

uint32_t
draw(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = *state;

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)(z >> 32);
}

uint64_t
mix(uint64_t seed, int a, int b, int c)
{
	uint64_t state = seed;

	state = state * 31 + (uint64_t)a + 1;
	(void)draw(&state);
	state = state * 31 + (uint64_t)b + 1;
	(void)draw(&state);
	state = state * 31 + (uint64_t)c + 1;
	(void)draw(&state);
	return state;
}

size_t
draw_bytes(uint64_t *state)
{
	static const size_t steps[] = { 0,    1,    2047,  2048,  2049, 4096,
		                        7168, 16384, 16385, 65536 };
	uint32_t kind = draw(state) % 10;

	if (kind < 5)
		return draw(state) % 300;
	if (kind < 8)
		return steps[draw(state) % (sizeof(steps) / sizeof(steps[0]))];
	return draw(state) % BYTES_MAX;
}

baton_stream
any_stream(struct worker *w)
{
	return w->streams[draw(&w->own) % STREAMS];
}

/* ---- failures and payloads ---------------------------------------------- */

void
fail(struct worker *w, int round, const char *format, ...)
{
	static atomic_flag failed = ATOMIC_FLAG_INIT;
	va_list arguments;
	char text[300];

	/* Another worker ends the job. */
	while (atomic_flag_test_and_set(&failed))
		pause();
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("seed %llu, rank %d, worker %d, round %d: %s (\"%s\")\n",
	       (unsigned long long)w->options->seed, w->rank, w->number, round,
	       text, baton_last_error());
	fflush(stdout);
	w->options->end_job();
	abort();
}

void
fill(unsigned char *buffer, size_t bytes, unsigned pattern)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)(pattern + i * 7 + (i >> 8));
}

void
check_filled(struct worker *w, int round, const unsigned char *buffer,
             size_t bytes, unsigned pattern)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned char want =
			(unsigned char)(pattern + i * 7 + (i >> 8));

		if (buffer[i] == want)
			continue;
		fail(w, round, "byte %zu of %zu is %u, expected %u", i, bytes,
		     buffer[i], want);
		return;
	}
}
