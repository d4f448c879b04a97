/* SPDX-License-Identifier: BSD-3-Clause */
/* How test programs get at the library of a simulator (tests/cudasim, tests/ncclsim), or at the
 * real one. */
#ifndef SIMULATOR_LOAD_H
#define SIMULATOR_LOAD_H

#include <pthread.h>
#include <stdbool.h>

struct simulator_library {
	const char *loader;   /* messages begin with it: "cudasim_load" */
	const char *variable; /* of the environment, that names the file */
	const char *file;     /* where that is not set */
	/* Fill the table.  False: it lacks a function. */
	bool (*read)(const struct simulator_library *library, void *table);
	/* Guarded by lock; `read` may use the handle. */
	pthread_mutex_t lock;
	void *handle;
	bool whole;
};

/* Fill the table, once in a process; path NULL: the file that the variable names.  False: there is
 * no such library, or it lacks a function; stderr says which.  Any thread. */
bool simulator_load(struct simulator_library *library, const char *path,
                    void *table);

/* For `read`: set a pointer to a function.  NULL, and false: the library lacks it. */
bool simulator_find(const struct simulator_library *library, const char *name,
                    void *function_p);
/* The same; stderr says if it lacks it. */
bool simulator_must_find(const struct simulator_library *library,
                         const char *name, void *function_p);

#endif
