/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudasim.h"

/* dlsym's result as a function: ISO C has no cast for it. */
static void
look_up(void *library, const char *name, void *function_p)
{
	void *symbol = dlsym(library, name);

	memcpy(function_p, &symbol, sizeof(symbol));
}

static bool
look_up_driver(void *library, const char *name, void *function_p)
{
	void *symbol = dlsym(library, name);

	if (!symbol)
		fprintf(stderr, "cudasim_load: there is no %s\n", name);
	memcpy(function_p, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static bool
look_all_up(void *library, struct cudasim *sim)
{
	bool whole = true;

#define LOOK_UP(name, symbol, base, version, parameters)                      \
	whole &= look_up_driver(library, #symbol, &sim->name);
	BATONI_CUDA_FUNCTIONS(LOOK_UP)
	CUDASIM_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(name, symbol, base, version, parameters)                      \
	look_up(library, #symbol, &sim->name);
	BATONI_CUDA_OPTIONAL(LOOK_UP)
	CUDASIM_KERNELS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(result, name, parameters)                                     \
	look_up(library, "cudasim_" #name, &sim->sim_##name);
	CUDASIM_CONTROLS(LOOK_UP)
#undef LOOK_UP
	return whole;
}

const struct cudasim *
cudasim_load(const char *path)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct cudasim loaded;
	static bool whole;
	void *library;

	if (!path)
		path = getenv("BATON_CUDA_LIBRARY");
	pthread_mutex_lock(&lock);
	if (!whole) {
		library = dlopen(path ? path : "libcuda.so.1",
		                 RTLD_NOW | RTLD_LOCAL);
		whole = library && look_all_up(library, &loaded);
		if (!library)
			fprintf(stderr, "cudasim_load: %s\n", dlerror());
	}
	pthread_mutex_unlock(&lock);
	return whole ? &loaded : NULL;
}
