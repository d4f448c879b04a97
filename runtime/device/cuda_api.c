/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading the CUDA driver's library.
 *
 * For communicators on the host nothing is loaded: batoni_cuda_present finds the library that
 * the program has loaded, and of it only cuPointerGetAttributes is used.
 *
 * The first caller loads the library and calls cuInit.  The result, good or bad, holds
 * until the process ends, and so does the library.  `once` orders all accesses to the
 * static state, except that batoni_cuda_loaded reads `loaded` without it.
 *
 * Each function is asked for by cuGetProcAddress, at the version of CUDA that has it as
 * cuda_api.h declares it: what a plain name means differs between versions of the driver.
 * The exported symbol, whose name has the version in it, is the second choice; not for a
 * function that the driver may lack, where cuGetProcAddress can say that it does.
 */
#include "cuda_api.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "log.h"

#define DEFAULT_LIBRARY "libcuda.so.1"

static_assert(sizeof(void (*)(void)) == sizeof(void *),
              "dlsym returns functions as void *");

struct function {
	const char *symbol;
	const char *base;
	int version;
	size_t offset; /* in struct batoni_cuda_api */
	bool optional;
};

static const struct function functions[] = {
#define FUNCTION(name, symbol, base, version, parameters)                     \
	{#symbol, base, version, offsetof(struct batoni_cuda_api, name), false},
	BATONI_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, symbol, base, version, parameters)                     \
	{#symbol, base, version, offsetof(struct batoni_cuda_api, name), true},
	BATONI_CUDA_OPTIONAL(FUNCTION)
#undef FUNCTION
};

#define LOOKUP(name, symbol, base, version, parameters)                       \
	typedef CUresult (*lookup_fn) parameters;                             \
	static const char lookup_symbol[] = #symbol;
BATONI_CUDA_LOOKUP(LOOKUP)
#undef LOOKUP

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct batoni_cuda_api api;
static const char *library; /* as dlopen got it */
static char refusal[480];   /* "" if the driver is ready */
/* Release, when `api` is complete; pairs with the acquire in batoni_cuda_loaded. */
static _Atomic(const struct batoni_cuda_api *) loaded;

static void refuse(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

static void
refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(refusal, sizeof(refusal), format, arguments);
	va_end(arguments);
}

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
		refuse("the CUDA device needs the library that "
		       "BATON_CUDA_LIBRARY names: %s",
		       dlerror());
	else
		refuse("the CUDA device needs the driver's library: %s; install "
		       "NVIDIA's driver (in a container: start it with the GPUs), "
		       "or name the library's file in BATON_CUDA_LIBRARY",
		       dlerror());
	return NULL;
}

static void *
find_function(void *handle, lookup_fn lookup, const struct function *function)
{
	CUdriverProcAddressQueryResult found;
	void *address = NULL;

	/* No flags: a NULL stream is the legacy default stream. */
	if (lookup && lookup(function->base, &address, function->version, 0,
	                     &found) == BATONI_CU_SUCCESS && address)
		return address;
	return lookup && function->optional ? NULL
	                                    : dlsym(handle, function->symbol);
}

/* 0: it does not say. */
static int
version_of_driver(void)
{
	int version = 0;

	if (!api.driver_version ||
	    api.driver_version(&version) != BATONI_CU_SUCCESS)
		return 0;
	return version;
}

static void
refuse_missing(const char *symbol)
{
	int version = version_of_driver();

	if (version != 0)
		refuse("the CUDA driver %s, of CUDA %d.%d, has no %s; the CUDA "
		       "device needs a driver of CUDA 12.0 or later",
		       library, version / 1000, version % 1000 / 10, symbol);
	else
		refuse("%s has no %s; the CUDA device needs a driver of CUDA 12.0 "
		       "or later",
		       library, symbol);
}

static bool
find_all(void *handle)
{
	void *address = dlsym(handle, lookup_symbol);
	const char *missing = NULL;
	lookup_fn lookup;

	memcpy(&lookup, &address, sizeof(lookup));
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		const struct function *function = &functions[i];

		/* The optional ones are the last: what tells the version is there. */
		if (function->optional && version_of_driver() < function->version)
			continue;
		address = find_function(handle, lookup, function);
		if (address)
			memcpy((char *)&api + function->offset, &address,
			       sizeof(address));
		else if (!missing && !function->optional)
			missing = function->symbol;
	}
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
		refuse("the CUDA driver finds no GPU: cuInit: %s; see what "
		       "nvidia-smi lists and CUDA_VISIBLE_DEVICES allows, or use "
		       "BATON_DEVICE_HOST",
		       text);
	else
		refuse("the CUDA driver does not start: cuInit: %s", text);
	return false;
}

static void
load(void)
{
	void *handle = open_library();

	if (handle && find_all(handle) && initialise())
		atomic_store_explicit(&loaded, &api, memory_order_release);
}

enum baton_status
batoni_cuda_load(const struct batoni_cuda_api **api_p)
{
	const struct batoni_cuda_api *driver;
	int cancel_state;

	/* A thread cancelled within the driver would leave it half started. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	pthread_once(&once, load);
	pthread_setcancelstate(cancel_state, NULL);
	driver = batoni_cuda_loaded();
	if (!driver)
		return batoni_refuse(BATON_ERR_UNSUPPORTED, "%s", refusal);
	*api_p = driver;
	return BATON_OK;
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

/* The library stays loaded from here on.  NULL: it is not there. */
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
	/* There is one version of it. */
	address = dlsym(handle, "cuPointerGetAttributes");
	if (!address)
		dlclose(handle);
	memcpy(&found, &address, sizeof(found));
	return found;
}

bool
batoni_cuda_present(void)
{
	const struct batoni_cuda_api *driver = batoni_cuda_loaded();
	ask_fn found = atomic_load(&ask);
	int cancel_state;

	if (found)
		return true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	found = driver ? driver->pointer_attributes : find_ask();
	pthread_setcancelstate(cancel_state, NULL);
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
batoni_cuda_describe(const struct batoni_cuda_api *driver, CUresult result,
                     char *text, size_t size)
{
	const char *name = NULL, *words = NULL;

	if (driver->error_name(result, &name) != BATONI_CU_SUCCESS || !name ||
	    driver->error_text(result, &words) != BATONI_CU_SUCCESS || !words)
		snprintf(text, size, "CUDA error %u", result);
	else
		snprintf(text, size, "%s (%u): %s", name, result, words);
}
