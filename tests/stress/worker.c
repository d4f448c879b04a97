/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

baton_stream
any_stream(struct worker *w)
{
	return w->streams[draw(&w->own) % STREAMS];
}

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
