/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loading NCCL.
 *
 * The first caller searches for the library.  The result, good or bad, holds until the
 * process ends, and so does the library (library.h).
 *
 * Two NCCLs in one process take the GPU from each other: kernels of one may wait behind
 * those of the other for ever.  So the one that the program has loaded comes before the
 * one that the dynamic linker would find; only BATON_NCCL_LIBRARY comes before it, and a
 * second one is warned of.
 */
#include "nccl_api.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "found.h"
#include "library.h"
#include "log.h"

#define DEFAULT_LIBRARY "libnccl.so.2"
#define NEEDS "; the NCCL transport needs NCCL 2.28 or later"

/* clang-format off */
static const struct batoni_symbol symbols[] = {
#define FUNCTION(name, symbol, since, result, parameters)                     \
	{#symbol, offsetof(struct batoni_nccl_api, name), false},
	BATONI_NCCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, symbol, since, result, parameters)                     \
	{#symbol, offsetof(struct batoni_nccl_api, name), true},
	BATONI_NCCL_OPTIONAL(FUNCTION)
#undef FUNCTION
};
/* clang-format on */

/* The version that began the layout, and the bytes of it.  A structure's size is a
 * multiple of 8. */
struct layout {
	int since;
	size_t size;
};

#define ROUND_8(bytes) (((bytes) + 7) / 8 * 8)
#define SIZE_UP_TO(member)                                                    \
	ROUND_8(offsetof(struct batoni_nccl_config, member) + sizeof(int))

static const struct layout layouts[] = {
	{BATONI_NCCL_VERSION(2, 28, 0), SIZE_UP_TO(nvlinkCentricSched)},
	{BATONI_NCCL_VERSION(2, 29, 0), SIZE_UP_TO(numRmaCtx)},
	{BATONI_NCCL_VERSION(2, 30, 0), SIZE_UP_TO(graphStreamOrdering)},
	{BATONI_NCCL_VERSION(2, 31, 0), SIZE_UP_TO(hostCftMode)},
	{BATONI_NCCL_VERSION(2, 32, 0), SIZE_UP_TO(nvlsHostMode)},
};

#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* The last version that is known to have the last layout. */
#define VERSION_KNOWN BATONI_NCCL_VERSION(2, 32, 99)

static_assert(sizeof(struct batoni_nccl_config) == SIZE_UP_TO(nvlsHostMode),
              "the last layout is the whole structure");

static struct batoni_library library = BATONI_LIBRARY;
static struct batoni_nccl_api api;
static char version_text[32]; /* written within the load */

/* ---- the library --------------------------------------------------------- */

static void *
open_named(const char *name)
{
	void *loaded = dlopen(DEFAULT_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		batoni_library_refuse(&library,
		                      "the NCCL transport needs the library that "
		                      "BATON_NCCL_LIBRARY names: %s",
		                      dlerror());
	else if (loaded && loaded != handle)
		batoni_log(BATONI_LOG_WARN,
		           "BATON_NCCL_LIBRARY names %s beside the NCCL that the "
		           "program has loaded; the two can hold each other up",
		           name);
	return handle;
}

/* One that is in the program, or in a library of another name that it has made global. */
static void *
find_in_program(void)
{
	return dlsym(RTLD_DEFAULT, "ncclGetVersion")
	               ? dlopen(NULL, RTLD_NOW)
	               : NULL;
}

static void *
open_library(void)
{
	const char *named = batoni_config()->nccl_library;
	void *handle;

	if (*named)
		return open_named(named);
	handle = dlopen(DEFAULT_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
	if (!handle)
		handle = find_in_program();
	if (!handle)
		handle = dlopen(DEFAULT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		batoni_library_refuse(
			&library,
			"the NCCL transport needs NCCL's library: %s; install NCCL "
			"2.28 or later, load it before, or name its file in "
			"BATON_NCCL_LIBRARY",
			dlerror());
	return handle;
}

static void *
find_symbol(void *handle, size_t i)
{
	return dlsym(handle, symbols[i].name);
}

static void
name_library(void)
{
	Dl_info info;
	void *address;

	memcpy(&address, &api.get_version, sizeof(address));
	snprintf(api.library, sizeof(api.library), "%s",
	         dladdr(address, &info) && info.dli_fname
	                 ? info.dli_fname
	                 : DEFAULT_LIBRARY);
}

static bool
check_version(void)
{
	ncclResult_t result = api.get_version(&api.version);

	if (result != BATONI_NCCL_SUCCESS) {
		batoni_library_refuse(&library,
		                      "ncclGetVersion of %s returned %u" NEEDS,
		                      api.library, result);
		return false;
	}
	batoni_nccl_version_text(api.version, version_text,
	                         sizeof(version_text));
	if (api.version >= BATONI_NCCL_VERSION_LEAST &&
	    api.version < BATONI_NCCL_VERSION(3, 0, 0))
		return true;
	if (api.version < BATONI_NCCL_VERSION_LEAST)
		batoni_library_refuse(&library, "%s is NCCL %s" NEEDS,
		                      api.library, version_text);
	else
		batoni_library_refuse(&library,
		                      "%s is NCCL %s" NEEDS ", of the 2 series",
		                      api.library, version_text);
	return false;
}

static bool
look_all_up(void *handle)
{
	const char *missing = batoni_library_read(
		&api, symbols, sizeof(symbols) / sizeof(symbols[0]), find_symbol,
		handle);

	if (!api.get_version) {
		batoni_library_refuse(&library, "%s has no ncclGetVersion" NEEDS,
		                      *batoni_config()->nccl_library
		                              ? batoni_config()->nccl_library
		                              : DEFAULT_LIBRARY);
		return false;
	}
	name_library();
	/* An old library lacks functions because it is old. */
	if (!check_version())
		return false;
	if (missing)
		batoni_library_refuse(&library, "%s has no %s" NEEDS,
		                      api.library, missing);
	return !missing;
}

static void
load_nccl(void)
{
	void *handle = open_library();

	if (handle)
		look_all_up(handle);
}

const struct batoni_nccl_api *
batoni_nccl_try(const char **why_p)
{
	batoni_library_once(&library, load_nccl);
	if (why_p)
		*why_p = library.refusal;
	return *library.refusal ? NULL : &api;
}

enum baton_status
batoni_nccl_load(const struct batoni_nccl_api **api_p)
{
	const char *why;
	const struct batoni_nccl_api *found = batoni_nccl_try(&why);

	if (!found)
		return batoni_refuse(BATON_ERR_UNSUPPORTED, "%s", why);
	*api_p = found;
	return BATON_OK;
}

void
batoni_nccl_find(struct baton_library_info *info_p)
{
	batoni_nccl_try(&info_p->why_not);
	info_p->built = "for NCCL 2.28 and later";
	info_p->version = version_text;
	info_p->path = api.library;
}

/* ---- what depends on the version ----------------------------------------- */

void
batoni_nccl_config_init(const struct batoni_nccl_api *nccl,
                        struct batoni_nccl_config *config)
{
	size_t i = LAYOUTS - 1;

	while (i > 0 && nccl->version < layouts[i].since)
		i--;
	/* clang-format off */
	*config = (struct batoni_nccl_config){
		.size = layouts[i].size,
		.magic = BATONI_NCCL_CONFIG_MAGIC,
		/* Not more than was filled in. */
		.version = (unsigned)(nccl->version < VERSION_KNOWN
	                                      ? nccl->version
	                                      : VERSION_KNOWN),
#define UNSET(type, member, unset) .member = (unset),
		BATONI_NCCL_CONFIG_2_28(UNSET)
		BATONI_NCCL_CONFIG_2_29(UNSET)
		BATONI_NCCL_CONFIG_2_30(UNSET)
		BATONI_NCCL_CONFIG_2_31(UNSET)
		BATONI_NCCL_CONFIG_2_32(UNSET)
#undef UNSET
	};
	/* clang-format on */
}

void
batoni_nccl_version_text(int version, char *text, size_t size)
{
	/* Up to 2.8 the major number counted thousands. */
	if (version < 10000)
		snprintf(text, size, "%d.%d.%d", version / 1000,
		         version % 1000 / 100, version % 100);
	else
		snprintf(text, size, "%d.%d.%d", version / 10000,
		         version % 10000 / 100, version % 100);
}

void
batoni_nccl_describe(const struct batoni_nccl_api *nccl, ncclComm_t comm,
                     ncclResult_t result, char *text, size_t size)
{
	const char *words = nccl->error_text(result);
	const char *last = nccl->last_error(comm);

	snprintf(text, size, "%s (NCCL result %u)%s%s",
	         words ? words : "unknown result", result,
	         last && *last ? "; NCCL says: " : "", last ? last : "");
}
