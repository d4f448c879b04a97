/* SPDX-License-Identifier: BSD-3-Clause */
/* What random loads draw: numbers, lengths, payloads. */
#ifndef STRESS_RANDOM_H
#define STRESS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

enum { BYTES_MAX = 200000 };

/* A number of the sequence, and where a sequence begins. */
uint32_t draw(uint64_t *state);
uint64_t mix(uint64_t seed, int a, int b, int c);
/* Mostly small, sometimes at the steps of a protocol, sometimes long: less than BYTES_MAX. */
size_t draw_bytes(uint64_t *state);

void fill(unsigned char *buffer, size_t bytes, unsigned pattern);

#endif
