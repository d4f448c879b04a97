/* SPDX-License-Identifier: BSD-3-Clause */
#include "simulator_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* dlsym's result as a function: ISO C has no cast for it. */
bool
simulator_find(const struct simulator_library *library, const char *name,
               void *function_p)
{
	void *symbol = dlsym(library->handle, name);

	memcpy(function_p, &symbol, sizeof(symbol));
	return symbol != NULL;
}

bool
simulator_must_find(const struct simulator_library *library, const char *name,
                    void *function_p)
{
	if (simulator_find(library, name, function_p))
		return true;
	fprintf(stderr, "%s: there is no %s\n", library->loader, name);
	return false;
}

bool
simulator_load(struct simulator_library *library, const char *path, void *table)
{
	bool whole;

	if (!path)
		path = getenv(library->variable);
	pthread_mutex_lock(&library->lock);
	if (!library->whole) {
		library->handle = dlopen(path ? path : library->file,
		                         RTLD_NOW | RTLD_LOCAL);
		if (!library->handle)
			fprintf(stderr, "%s: %s\n", library->loader, dlerror());
		library->whole = library->handle && library->read(library, table);
	}
	whole = library->whole;
	pthread_mutex_unlock(&library->lock);
	return whole;
}
