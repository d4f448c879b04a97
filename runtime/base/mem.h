/* SPDX-License-Identifier: BSD-3-Clause */
/* All heap memory of the library comes from here, so that tests can make any
 * allocation fail. */
#ifndef BATONI_MEM_H
#define BATONI_MEM_H

#include <stddef.h>

/* Zeroed, aligned to 64 bytes.  NULL when memory is out, when count times size
 * overflows, or when a test makes the call fail.  The pages of a large block take
 * memory when they are first touched. */
void *batoni_alloc(size_t count, size_t size);
void batoni_free(void *pointer);
/* One block more (or less, if negative) is kept for good: tests do not miss it. */
void batoni_mem_keep(long change);

/* For tests: make the n-th allocation from now (1 is the next) fail, once; 0 makes
 * none fail.  Returns the number of allocations since the last call. */
unsigned long batoni_mem_fail_at(unsigned long n);
/* For tests: the number of live blocks. */
long batoni_mem_blocks(void);
/* For tests: and their bytes, touched or not. */
size_t batoni_mem_bytes(void);

#endif
