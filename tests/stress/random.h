/* SPDX-License-Identifier: BSD-3-Clause */
/* What random loads have in common: numbers, lengths and payloads that they draw, and the end of the job
 * at the first failure. */
#ifndef STRESS_RANDOM_H
#define STRESS_RANDOM_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

enum { BYTES_MAX = 200000 };

/* A number of the sequence, and where a sequence begins. */
uint32_t draw(uint64_t *state);
uint64_t mix(uint64_t seed, int a, int b, int c);
/* Mostly small, sometimes at the steps of a protocol, sometimes long: less than BYTES_MAX. */
size_t draw_bytes(uint64_t *state);

void fill(unsigned char *buffer, size_t bytes, unsigned pattern);

/* The first failure of this process: prints "where: text", with the last error, and ends the job by
 * end_job.  A thread that comes later waits for the end. */
_Noreturn void end_in_failure(void (*end_job)(void), const char *where,
                              const char *format, va_list arguments)
	__attribute__((format(printf, 3, 0)));

#endif
