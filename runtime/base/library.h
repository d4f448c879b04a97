/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the loaders of libraries have in common that are found at run time (CUDA's driver,
 * NCCL): they run once, they fill a table of functions, and if that fails they keep a sentence.
 */
#ifndef BATONI_LIBRARY_H
#define BATONI_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* The result of the one attempt to load it, good or bad.  All of it is written within that
 * attempt, and read behind it. */
struct batoni_library {
	pthread_once_t once;
	char refusal[1024]; /* why it cannot be used; "": it can */
};

#define BATONI_LIBRARY {.once = PTHREAD_ONCE_INIT}

/* A function of the library. */
struct batoni_symbol {
	const char *name;
	size_t offset; /* of its pointer in the table */
	bool optional; /* the pointer is NULL where the library lacks it */
};

/* Run `load` in the first thread that comes here; the others wait until it has returned.  No
 * thread is cancelled here: that would leave the library half loaded. */
void batoni_library_once(struct batoni_library *library, void (*load)(void));

/* Within `load`: it cannot be used, for this reason. */
void batoni_library_refuse(struct batoni_library *library, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Within `load`: fill the table.  find(context, i) returns the address of symbols[i], or NULL.
 * Returns the name of the first one that is missing and not optional, or NULL. */
const char *batoni_library_read(void *table, const struct batoni_symbol symbols[],
                                size_t n, void *(*find)(void *context, size_t i),
                                void *context);

#endif
