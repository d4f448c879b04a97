/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library with NCCL's names, for tests of the loader.  Its functions do nothing.
 * VERSION is its version, or -1: ncclGetVersion fails.  Defined: NO_SIGNALS, NO_REVOKE,
 * NO_SEND, NO_VERSION lack these functions.
 */
#include "nccl_api.h"

#ifndef VERSION
#define VERSION 23007
#endif

#define EXPORTED __attribute__((visibility("default"), used))

EXPORTED ncclResult_t small_nccl_nothing(void);
EXPORTED ncclResult_t small_nccl_version(int *version_p);
EXPORTED const char *small_nccl_text(ncclResult_t result);
EXPORTED const char *small_nccl_last_error(ncclComm_t comm);

ncclResult_t
small_nccl_nothing(void)
{
	return BATONI_NCCL_SUCCESS;
}

ncclResult_t
small_nccl_version(int *version_p)
{
	if (VERSION < 0)
		return BATONI_NCCL_SYSTEM_ERROR;
	*version_p = VERSION;
	return BATONI_NCCL_SUCCESS;
}

const char *
small_nccl_text(ncclResult_t result)
{
	return result == BATONI_NCCL_INVALID_USAGE ? "a usage of ours" : NULL;
}

const char *
small_nccl_last_error(ncclComm_t comm)
{
	return comm ? "it was misused" : "";
}

/* PICK(OWN_error_text) is small_nccl_text; PICK(OWN_send), which is no macro, is
 * small_nccl_nothing. */
#define SECOND(first, second, ...) second
#define PICK(...) SECOND(__VA_ARGS__, small_nccl_nothing, )
#define OWN_get_version 0, small_nccl_version
#define OWN_error_text 0, small_nccl_text
#define OWN_last_error 0, small_nccl_last_error

/* The assembler exports the names, whatever their types. */
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define EXPORT(symbol, target)                                                \
	__asm__(".globl " TEXT(symbol) "\n.set " TEXT(symbol) ", " TEXT(target));
#define EXPORT_OWN(name, symbol, since, result, parameters)                   \
	EXPORT(symbol, PICK(OWN_##name))

#ifdef NO_SEND
#define ncclSend ncclNoSend
#endif
#ifdef NO_VERSION
#define ncclGetVersion ncclNoGetVersion
#endif

BATONI_NCCL_FUNCTIONS(EXPORT_OWN)
#ifndef NO_REVOKE
BATONI_NCCL_OPTIONAL_REVOKE(EXPORT_OWN)
#endif
#ifndef NO_SIGNALS
BATONI_NCCL_OPTIONAL_SIGNALS(EXPORT_OWN)
#endif
