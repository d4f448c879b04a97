/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading the CUDA driver's library.
 *
 * For communicators on the host nothing is loaded: batoni_cuda_present finds the library that
 * the program has loaded, and of it only cuPointerGetAttributes is used.
 *
 * The first caller loads the library and calls cuInit.  The result, good or bad, holds
 * until the process ends, and the library stays loaded as long (library.h).  Loading once orders all
 * accesses to the static state; batoni_cuda_loaded alone reads `loaded` without it.
 *
 * cuGetProcAddress looks each function up, at the version of CUDA that has it as cuda_api.h
 * declares it, since what a plain name means differs between versions of the driver.  The second
 * choice is the exported symbol, whose name has the version in it.  For an optional function
 * there is no second choice where cuGetProcAddress can say that the driver lacks it.
 */
#include "cuda_api.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "found.h"
#include "library.h"
#include "log.h"
#include "thread.h"

#define DEFAULT_LIBRARY "libcuda.so.1"

/* clang-format off */
static const struct batoni_symbol symbols[] = {
#define FUNCTION(name, symbol, base, version, parameters)                     \
	{#symbol, offsetof(struct batoni_cuda_api, name), false},
	BATONI_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, symbol, base, version, parameters)                     \
	{#symbol, offsetof(struct batoni_cuda_api, name), true},
	BATONI_CUDA_OPTIONAL(FUNCTION)
#undef FUNCTION
};

/* The names and versions for cuGetProcAddress, in the order of `symbols`. */
static const struct {
	const char *base;
	int version;
} names[] = {
#define FUNCTION(name, symbol, base, version, parameters) {base, version},
	BATONI_CUDA_FUNCTIONS(FUNCTION)
	BATONI_CUDA_OPTIONAL(FUNCTION)
#undef FUNCTION
};
/* clang-format on */

#define LOOKUP(name, symbol, base, version, parameters)                       \
	typedef CUresult (*lookup_fn) parameters;                             \
	static const char lookup_symbol[] = #symbol;
BATONI_CUDA_LOOKUP(LOOKUP)
#undef LOOKUP

static struct batoni_library driver = BATONI_LIBRARY;
static struct batoni_cuda_api api;
static const char *library; /* the argument of dlopen */
static char version_text[32]; /* "12.2"; load_driver() writes it */
/* Release, when `api` is complete; pairs with the acquire in batoni_cuda_loaded. */
static _Atomic(const struct batoni_cuda_api *) loaded;

static void *
open_library(void)
{
	const char *named = batoni_config()->cuda_library;
	void *handle;

	library = *named ? named : DEFAULT_LIBRARY;
	handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (handle)
		return handle;
	if (*named)
		batoni_library_refuse(&driver,
		                      "the CUDA device needs the library that "
		                      "BATON_CUDA_LIBRARY names: %s",
		                      dlerror());
	else
		batoni_library_refuse(
			&driver,
			"the CUDA device needs the driver's library: %s; install "
			"NVIDIA's driver (in a container: start it with the GPUs), "
			"or name the library's file in BATON_CUDA_LIBRARY",
			dlerror());
	return NULL;
}

/* 0: the driver does not say. */
static int
version_of_driver(void)
{
	int version = 0;

	if (!api.driver_version ||
	    api.driver_version(&version) != BATONI_CU_SUCCESS)
		return 0;
	return version;
}

/* Where functions are looked for. */
struct where {
	void *handle;
	lookup_fn lookup; /* NULL: there is none */
	int version;      /* of the driver; 0: not asked yet, or it does not say */
};

static void *
find_function(void *context, size_t i)
{
	struct where *where = context;
	CUdriverProcAddressQueryResult found;
	void *address = NULL;

	/* The optional ones come last, so driver_version is there by now. */
	if (symbols[i].optional && where->version == 0)
		where->version = version_of_driver();
	if (symbols[i].optional && where->version < names[i].version)
		return NULL;
	/* No flags: a NULL stream is the legacy default stream. */
	if (where->lookup &&
	    where->lookup(names[i].base, &address, names[i].version, 0,
	                  &found) == BATONI_CU_SUCCESS && address)
		return address;
	return where->lookup && symbols[i].optional
	               ? NULL
	               : dlsym(where->handle, symbols[i].name);
}

static void
refuse_missing(const char *symbol)
{
	int version = version_of_driver();

	if (version != 0)
		batoni_library_refuse(
			&driver,
			"the CUDA driver %s, of CUDA %d.%d, has no %s; the CUDA "
			"device needs a driver of CUDA 12.0 or later",
			library, version / 1000, version % 1000 / 10, symbol);
	else
		batoni_library_refuse(
			&driver,
			"%s has no %s; the CUDA device needs a driver of CUDA 12.0 "
			"or later",
			library, symbol);
}

static bool
find_all(void *handle)
{
	void *address = dlsym(handle, lookup_symbol);
	struct where where = {.handle = handle};
	const char *missing;

	memcpy(&where.lookup, &address, sizeof(where.lookup));
	missing = batoni_library_read(&api, symbols,
	                              sizeof(symbols) / sizeof(symbols[0]),
	                              find_function, &where);
	if (missing)
		refuse_missing(missing);
	return !missing;
}

static bool
initialise(void)
{
	const CUresult result = api.init(0);
	char text[160];

	if (result == BATONI_CU_SUCCESS)
		return true;
	batoni_cuda_describe(&api, result, text, sizeof(text));
	if (result == BATONI_CU_NO_DEVICE)
		batoni_library_refuse(
			&driver,
			"the CUDA driver finds no GPU: cuInit: %s; see what "
			"nvidia-smi lists and CUDA_VISIBLE_DEVICES allows, or use "
			"BATON_DEVICE_HOST",
			text);
	else
		batoni_library_refuse(&driver,
		                      "the CUDA driver does not start: cuInit: %s",
		                      text);
	return false;
}

static void
load_driver(void)
{
	void *handle = open_library();

	bool complete = handle && find_all(handle);
	int version = handle ? version_of_driver() : 0;

	if (version != 0)
		snprintf(version_text, sizeof(version_text), "%d.%d",
		         version / 1000, version % 1000 / 10);
	if (complete && initialise())
		atomic_store_explicit(&loaded, &api, memory_order_release);
}

static const struct batoni_cuda_api *
try_load(void)
{
	batoni_library_once(&driver, load_driver);
	return batoni_cuda_loaded();
}

enum baton_status
batoni_cuda_load(const struct batoni_cuda_api **api_p)
{
	const struct batoni_cuda_api *found = try_load();

	if (!found)
		return batoni_refuse(BATON_ERR_UNSUPPORTED, "%s",
		                     driver.refusal);
	*api_p = found;
	return BATON_OK;
}

void
batoni_cuda_find(struct baton_library_info *info_p)
{
	try_load();
	info_p->built = "for CUDA 12.0 and later";
	info_p->version = version_text;
	if (api.driver_version)
		info_p->path = batoni_file_of(
			(void (*)(void))api.driver_version);
	info_p->why_not = driver.refusal;
}

const struct batoni_cuda_api *
batoni_cuda_loaded(void)
{
	return atomic_load_explicit(&loaded, memory_order_acquire);
}

/* ---- the program's own driver ---- */

typedef CUresult (*ask_fn)(unsigned int, CUpointer_attribute *, void **,
                           CUdeviceptr);
static _Atomic(ask_fn) ask;

/* Keeps the library loaded.  NULL: it is not in the process. */
static ask_fn
find_ask(void)
{
	const char *named = batoni_config()->cuda_library;
	void *handle = dlopen(*named ? named : DEFAULT_LIBRARY,
	                      RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	void *address;
	ask_fn found;

	if (!handle)
		return NULL;
	/* This function has one version only, so its plain name will do. */
	address = dlsym(handle, "cuPointerGetAttributes");
	if (!address)
		dlclose(handle);
	memcpy(&found, &address, sizeof(found));
	return found;
}

bool
batoni_cuda_present(void)
{
	const struct batoni_cuda_api *functions = batoni_cuda_loaded();
	ask_fn found = atomic_load(&ask);
	BATONI_UNCANCELLED;

	if (found)
		return true;
	found = functions ? functions->pointer_attributes : find_ask();
	if (found)
		atomic_store(&ask, found);
	return found;
}

CUresult
batoni_cuda_ask(unsigned int n, CUpointer_attribute *attributes, void **values,
                CUdeviceptr pointer)
{
	return atomic_load_explicit(&ask, memory_order_acquire)(
		n, attributes, values, pointer);
}

void
batoni_cuda_describe(const struct batoni_cuda_api *functions, CUresult result,
                     char *text, size_t size)
{
	const char *name = NULL, *words = NULL;

	if (functions->error_name(result, &name) != BATONI_CU_SUCCESS || !name ||
	    functions->error_text(result, &words) != BATONI_CU_SUCCESS || !words)
		snprintf(text, size, "CUDA error %u", result);
	else
		snprintf(text, size, "%s (%u): %s", name, result, words);
}
