/* SPDX-License-Identifier: BSD-3-Clause */
#include "cudasim.h"
#include "simulator_load.h"

static bool
look_all_up(const struct simulator_library *library, void *table)
{
	struct cudasim *sim = table;
	bool whole = true;

#define LOOK_UP(name, symbol, base, version, parameters)                      \
	whole &= simulator_must_find(library, #symbol, &sim->name);
	BATONI_CUDA_FUNCTIONS(LOOK_UP)
	CUDASIM_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(name, symbol, base, version, parameters)                      \
	simulator_find(library, #symbol, &sim->name);
	BATONI_CUDA_OPTIONAL(LOOK_UP)
	CUDASIM_KERNELS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(result, name, parameters)                                     \
	simulator_find(library, "cudasim_" #name, &sim->sim_##name);
	CUDASIM_CONTROLS(LOOK_UP)
#undef LOOK_UP
	return whole;
}

const struct cudasim *
cudasim_load(const char *path)
{
	static struct simulator_library library = {
		.loader = "cudasim_load",
		.variable = "BATON_CUDA_LIBRARY",
		.file = "libcuda.so.1",
		.read = look_all_up,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	static struct cudasim loaded;

	return simulator_load(&library, path, &loaded) ? &loaded : NULL;
}
