/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fuzz targets share.  A target has the function that libFuzzer calls with any
 * bytes, and `seeds`, which writes the well-formed ones that it begins with; a format that
 * changes changes them too.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A claim of the target: it ends the process, and libFuzzer keeps the bytes. */
#define CLAIM(claim) fuzz_claim(claim, #claim)
void fuzz_claim(bool holds, const char *claim);

/* Write one seed.  Called within `seeds`. */
void fuzz_seed(const void *bytes, size_t n);

/* The same of one byte, and n behind it; of the target's struct unit. */
void fuzz_seed_behind(uint8_t first, const void *bytes, size_t n);
#define SEED(first, ...)                                                      \
	do {                                                                  \
		const struct unit units[] = {__VA_ARGS__};                    \
		fuzz_seed_behind(first, units, sizeof(units));                \
	} while (0)

/* The first byte chooses one of several decoders: an exact copy of the others, on the heap.
 * The caller frees it. */
unsigned char *fuzz_copy(const uint8_t *bytes, size_t n);

/* What a target is told by the bytes, one at a time: 0 when they are at an end. */
struct fuzz_input {
	const uint8_t *at, *end;
};
extern struct fuzz_input fuzz_input;

static inline uint8_t
fuzz_next(void)
{
	return fuzz_input.at < fuzz_input.end ? *fuzz_input.at++ : 0;
}

/* The target's. */
void seeds(void);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
/* fuzz.c's. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

#endif
