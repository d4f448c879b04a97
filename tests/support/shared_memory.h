/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that a test shares with the children that it forks afterwards. */
#ifndef SHARED_MEMORY_H
#define SHARED_MEMORY_H

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Zeroed. */
static inline void *
shared_alloc(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	return memory;
}

/* A barrier in it, for so many processes. */
static inline void
shared_barrier(pthread_barrier_t *barrier, int n)
{
	pthread_barrierattr_t attributes;

	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(barrier, &attributes, (unsigned)n);
	pthread_barrierattr_destroy(&attributes);
}

#endif
