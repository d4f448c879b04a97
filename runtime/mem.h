/* SPDX-License-Identifier: BSD-3-Clause */
/* All heap memory of the library comes from here, so that tests can make any
 * allocation fail. */
#ifndef BATONI_MEM_H
#define BATONI_MEM_H

#include <stddef.h>

/* Zeroed, aligned to 64 bytes; NULL when there is none (or when told to fail).
 * count times size may not overflow: it gives NULL.  A large block takes memory as
 * it is touched. */
void *batoni_alloc(size_t count, size_t size);
void batoni_free(void *pointer);

/* For tests: let the n-th allocation from now fail (1 is the next), once.  0:
 * none.  Returns how many allocations happened since the last call. */
unsigned long batoni_mem_fail_at(unsigned long n);
/* For tests: blocks that are allocated now. */
long batoni_mem_blocks(void);

#endif
