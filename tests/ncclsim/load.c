/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ncclsim.h"

/* dlsym's result as a function: ISO C has no cast for it. */
static bool
look_up(void *library, const char *name, void *function_p)
{
	void *symbol = dlsym(library, name);

	memcpy(function_p, &symbol, sizeof(symbol));
	return symbol != NULL;
}

static bool
look_all_up(void *library, struct ncclsim *sim)
{
	const char *missing = NULL;

#define LOOK_UP(name, symbol, since, result, parameters)                      \
	if (!look_up(library, #symbol, &sim->name))                           \
		missing = #symbol;
	BATONI_NCCL_FUNCTIONS(LOOK_UP)
	BATONI_NCCL_OPTIONAL_REVOKE(LOOK_UP)
#undef LOOK_UP
	/* Not in 2.28. */
#define LOOK_UP(name, symbol, since, result, parameters)                      \
	look_up(library, #symbol, &sim->name);
	BATONI_NCCL_OPTIONAL_SIGNALS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(result, name, parameters)                                     \
	look_up(library, "ncclsim_" #name, &sim->sim_##name);
	NCCLSIM_CONTROLS(LOOK_UP)
#undef LOOK_UP
	if (missing)
		fprintf(stderr, "ncclsim_load: there is no %s\n", missing);
	return !missing;
}

const struct ncclsim *
ncclsim_load(const char *path)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct ncclsim loaded;
	static bool whole;
	void *library;

	if (!path)
		path = getenv("BATON_NCCL_LIBRARY");
	pthread_mutex_lock(&lock);
	if (!whole) {
		library = dlopen(path ? path : "libnccl.so.2",
		                 RTLD_NOW | RTLD_LOCAL);
		whole = library && look_all_up(library, &loaded);
		if (!library)
			fprintf(stderr, "ncclsim_load: %s\n", dlerror());
	}
	pthread_mutex_unlock(&lock);
	return whole ? &loaded : NULL;
}
