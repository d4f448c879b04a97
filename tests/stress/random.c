/* SPDX-License-Identifier: BSD-3-Clause */
#include "random.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "baton.h"

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

void
fill(unsigned char *buffer, size_t bytes, unsigned pattern)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)(pattern + i * 7 + (i >> 8));
}

void
end_in_failure(void (*end_job)(void), const char *where, const char *format,
               va_list arguments)
{
	static atomic_flag failed = ATOMIC_FLAG_INIT;
	char text[300];

	/* Another thread ends the job. */
	while (atomic_flag_test_and_set(&failed))
		pause();
	vsnprintf(text, sizeof(text), format, arguments);
	printf("%s: %s (\"%s\")\n", where, text, baton_last_error());
	fflush(stdout);
	end_job();
	abort();
}
