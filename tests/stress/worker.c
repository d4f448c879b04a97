/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

baton_stream
any_stream(struct worker *w)
{
	return w->streams[draw(&w->own) % STREAMS];
}

void
fail(struct worker *w, int round, const char *format, ...)
{
	va_list arguments;
	char where[100];

	snprintf(where, sizeof(where), "seed %llu, rank %d, worker %d, round %d",
	         (unsigned long long)w->options->seed, w->rank, w->number, round);
	va_start(arguments, format);
	end_in_failure(w->options->end_job, where, format, arguments);
	va_end(arguments);
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
