/* SPDX-License-Identifier: BSD-3-Clause */
/* Seeds: they are written to the folder FUZZ_SEEDS of the environment before libFuzzer reads
 * it. */
#include "fuzz.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fuzz_input fuzz_input;

static const char *folder;
static unsigned written;

void
fuzz_claim(bool holds, const char *claim)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", claim);
	abort();
}

void
fuzz_seed(const void *bytes, size_t n)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/seed-%u", folder, written++);
	file = fopen(path, "wb");
	if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
}

unsigned char *
fuzz_copy(const uint8_t *bytes, size_t n)
{
	unsigned char *copy = malloc(n ? n : 1);

	if (!copy)
		exit(EXIT_FAILURE);
	return memcpy(copy, bytes, n);
}

void
fuzz_seed_behind(uint8_t first, const void *bytes, size_t n)
{
	unsigned char *seed = malloc(1 + n);

	if (!seed)
		exit(EXIT_FAILURE);
	*seed = first;
	memcpy(seed + 1, bytes, n);
	fuzz_seed(seed, 1 + n);
	free(seed);
}

/* ---- the library's, for targets without its memory ---- */

void *
batoni_alloc(size_t count, size_t size)
{
	return calloc(count, size);
}

void
batoni_free(void *memory)
{
	free(memory);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	folder = getenv("FUZZ_SEEDS");
	if (folder)
		seeds();
	return 0;
}
