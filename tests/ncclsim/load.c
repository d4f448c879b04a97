/* SPDX-License-Identifier: BSD-3-Clause */
#include "ncclsim.h"
#include "simulator_load.h"

static bool
look_all_up(const struct simulator_library *library, void *table)
{
	struct ncclsim *sim = table;
	bool whole = true;

#define LOOK_UP(name, symbol, since, result, parameters)                      \
	whole &= simulator_must_find(library, #symbol, &sim->name);
	BATONI_NCCL_FUNCTIONS(LOOK_UP)
	BATONI_NCCL_OPTIONAL_REVOKE(LOOK_UP)
#undef LOOK_UP
	/* Not in 2.28. */
#define LOOK_UP(name, symbol, since, result, parameters)                      \
	simulator_find(library, #symbol, &sim->name);
	BATONI_NCCL_OPTIONAL_SIGNALS(LOOK_UP)
#undef LOOK_UP
#define LOOK_UP(result, name, parameters)                                     \
	simulator_find(library, "ncclsim_" #name, &sim->sim_##name);
	NCCLSIM_CONTROLS(LOOK_UP)
#undef LOOK_UP
	return whole;
}

const struct ncclsim *
ncclsim_load(const char *path)
{
	static struct simulator_library library = {
		.loader = "ncclsim_load",
		.variable = "BATON_NCCL_LIBRARY",
		.file = "libnccl.so.2",
		.read = look_all_up,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	static struct ncclsim loaded;

	return simulator_load(&library, path, &loaded) ? &loaded : NULL;
}
