/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library with the names of the CUDA driver, for tests of the loader.
 *
 * Its functions do nothing.  With a lookup (no NO_LOOKUP), the exported ones are the
 * wrong ones: only cuGetProcAddress knows the right ones, each by its name and exactly
 * the version of the list.  Of the functions that a driver may lack it knows those up to its
 * own version, and gives the newest form that it has to who asks for a later one, as NVIDIA's
 * does.
 *
 * VERSION is the driver's version, INIT_RESULT what cuInit returns.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "cuda_api.h"

#ifndef VERSION
#define VERSION 12020
#endif
#ifndef INIT_RESULT
#define INIT_RESULT BATONI_CU_SUCCESS
#endif

#define EXPORTED __attribute__((visibility("default"), used))

EXPORTED atomic_int small_driver_inits;

EXPORTED CUresult small_driver_nothing(void);
EXPORTED CUresult small_driver_wrong(void);
EXPORTED CUresult small_driver_init(unsigned int flags);
EXPORTED CUresult small_driver_version(int *version_p);
EXPORTED CUresult small_driver_name(CUresult result, const char **name_p);
EXPORTED CUresult small_driver_text(CUresult result, const char **text_p);
EXPORTED CUresult small_driver_copies(void);
EXPORTED CUresult small_driver_copies_first(void);

CUresult
small_driver_copies(void)
{
	return BATONI_CU_SUCCESS;
}

CUresult
small_driver_copies_first(void)
{
	return BATONI_CU_NOT_SUPPORTED;
}

CUresult
small_driver_nothing(void)
{
	return BATONI_CU_SUCCESS;
}

CUresult
small_driver_wrong(void)
{
	return BATONI_CU_INVALID_VALUE;
}

CUresult
small_driver_init(unsigned int flags)
{
	atomic_fetch_add(&small_driver_inits, 1);
	pthread_testcancel();
	return flags == 0 ? INIT_RESULT : BATONI_CU_INVALID_VALUE;
}

CUresult
small_driver_version(int *version_p)
{
	*version_p = VERSION;
	return BATONI_CU_SUCCESS;
}

CUresult
small_driver_name(CUresult result, const char **name_p)
{
	*name_p = result == BATONI_CU_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : NULL;
	return *name_p ? BATONI_CU_SUCCESS : BATONI_CU_INVALID_VALUE;
}

CUresult
small_driver_text(CUresult result, const char **text_p)
{
	*text_p = result == BATONI_CU_NO_DEVICE ? "nothing is plugged in" : NULL;
	return *text_p ? BATONI_CU_SUCCESS : BATONI_CU_INVALID_VALUE;
}

/* PICK(OWN_init) is small_driver_init; PICK(OWN_copy), which is no macro, is
 * small_driver_nothing. */
#define SECOND(first, second, ...) second
#define PICK(...) SECOND(__VA_ARGS__, small_driver_nothing, )
#define OWN_init 0, small_driver_init
#define OWN_driver_version 0, small_driver_version
#define OWN_error_name 0, small_driver_name
#define OWN_error_text 0, small_driver_text

/* The assembler exports the names, whatever their types. */
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define EXPORT(symbol, target)                                                \
	__asm__(".globl " TEXT(symbol) "\n.set " TEXT(symbol) ", " TEXT(target));

#ifdef NO_LOOKUP

#define EXPORT_OWN(name, symbol, base, version, parameters)                   \
	EXPORT(symbol, PICK(OWN_##name))
BATONI_CUDA_FUNCTIONS(EXPORT_OWN)
EXPORT(cuMemcpyBatchAsync, small_driver_copies_first)

#else

#define EXPORT_WRONG(name, symbol, base, version, parameters)                 \
	EXPORT(symbol, small_driver_wrong)
BATONI_CUDA_FUNCTIONS(EXPORT_WRONG)
BATONI_CUDA_OPTIONAL(EXPORT_WRONG)

EXPORTED CUresult cuGetProcAddress_v2(const char *name, void **function_p,
                                      int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *found_p);

CUresult
cuGetProcAddress_v2(const char *name, void **function_p, int version,
                    cuuint64_t flags, CUdriverProcAddressQueryResult *found_p)
{
	void (*function)(void) = NULL;

#define LOOK(ours, symbol, base, since, parameters)                           \
	if (flags == 0 && version == since && strcmp(name, base) == 0)        \
		function = (void (*)(void))PICK(OWN_##ours);
	BATONI_CUDA_FUNCTIONS(LOOK)
#undef LOOK
#define LOOK(ours, symbol, base, since, parameters)                           \
	if (!function && VERSION >= since && version >= since &&              \
	    strcmp(name, base) == 0)                                          \
		function = (void (*)(void))small_driver_##ours;
	BATONI_CUDA_COPIES(LOOK)
#undef LOOK
#define LOOK(ours, symbol, base, since, parameters)                           \
	if (!function && VERSION >= since && version >= since &&              \
	    strcmp(name, base) == 0)                                          \
		function = (void (*)(void))small_driver_nothing;
	BATONI_CUDA_SHARING(LOOK)
	/* Without the function, as the driver does: success, and NULL. */
	memcpy(function_p, &function, sizeof(function));
	*found_p = function ? 0 : 1;
	return BATONI_CU_SUCCESS;
}

#endif
