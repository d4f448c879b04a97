/* SPDX-License-Identifier: BSD-3-Clause */
/* All heap memory of the library is allocated here, so that tests can make any allocation
 * fail. */
#ifndef BATONI_MEM_H
#define BATONI_MEM_H

#include <stddef.h>

/* Zeroed memory, aligned to 64 bytes.  NULL: out of memory, count times size overflows, or
 * a test makes the call fail.  The pages of a large block take
 * memory when they are first touched. */
void *batoni_alloc(size_t count, size_t size);
void batoni_free(void *pointer);
/* So many more blocks (or fewer, if negative) are kept for good: batoni_mem_blocks does not
 * count them. */
void batoni_mem_keep(long change);

/* For tests: make the n-th allocation from now (1 is the next) fail, once; 0 makes
 * none fail.  Returns the number of allocations since the last call. */
unsigned long batoni_mem_fail_at(unsigned long n);
/* For tests: the number of live blocks. */
long batoni_mem_blocks(void);
/* For tests: the bytes of the live blocks, touched or not. */
size_t batoni_mem_bytes(void);

#endif
