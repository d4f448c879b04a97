/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of NCCL that Baton uses: types, constants, functions, and the structure of a
 * communicator's configuration.
 *
 * Baton needs no NCCL to be built and is linked to nothing of it.  The library is looked
 * for when a communicator asks for the NCCL transport.  So the names that <nccl.h> gives
 * are declared here, as NVIDIA's documentation has them.  tests/unit/transport/nccl/test_nccl_header.c
 * compiles this file beside each <nccl.h> that can be had, with BATONI_NCCL_TYPES_GIVEN
 * defined, and compares all of it: the tables below are lists of macros for that purpose.
 *
 * Versions: 2.28 and later.  Numbers, prototypes and the members of ncclConfig_t stay as
 * they are from one version to the next; members are added at the end.  A library that is
 * newer than this file gets the newest layout that this file knows.
 *
 * How the transport is to use it:
 *   - Call batoni_nccl_load where it may block, once for each communicator; keep the
 *     table.  It never changes and is never unloaded.
 *   - An optional function is NULL where the library is older than it.  Ask for the
 *     function, not for the version.
 *   - Begin every configuration with batoni_nccl_config_init and set members after it.  A
 *     member that the loaded library does not know has no effect: see
 *     BATONI_NCCL_CONFIG_HAS.
 *   - One thread at a time calls NCCL for one communicator.  ncclCommGetAsyncError and
 *     ncclCommAbort are no exceptions.
 *   - Calls for several communicators of one device are made under one lock, that of the
 *     device.  It is held for a whole group, from ncclGroupStart to ncclGroupEnd (a group
 *     belongs to its thread), and for each creation.  It is the caller's; nothing here
 *     locks.  A program that calls NCCL on the same device has to hold it too.
 *   - A call that makes or first uses a connection blocks until the peer makes its call.
 *     Connect at creation; hold no other lock meanwhile.
 *   - A non-blocking communicator (`blocking` 0) answers IN_PROGRESS.  Its work is on the
 *     stream only once ncclCommGetAsyncError says SUCCESS: record events after that.
 *   - ncclCommAbort waits for the kernels of the communicator to leave.  Release the words
 *     of our own that they, or what is before them in their streams, wait for first.
 *   - An operation that hangs is not an error for NCCL: deadlines are the transport's.
 */
#ifndef BATONI_NCCL_API_H
#define BATONI_NCCL_API_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* As ncclGetVersion has it: 2.28.9 is 22809. */
#define BATONI_NCCL_VERSION(major, minor, patch)                              \
	((major) * 10000 + (minor) * 100 + (patch))
#define BATONI_NCCL_VERSION_LEAST BATONI_NCCL_VERSION(2, 28, 0)

/* ---- types --------------------------------------------------------------- */

/*
 * Members of ncclConfig_t, after its head, by the version that added them:
 * X(type, member, value that says "not set").
 */
#define BATONI_NCCL_CONFIG_2_28(X)                                            \
	X(int, blocking, INT_MIN)                                             \
	X(int, cgaClusterSize, INT_MIN)                                       \
	X(int, minCTAs, INT_MIN)                                              \
	X(int, maxCTAs, INT_MIN)                                              \
	X(const char *, netName, NULL)                                        \
	X(int, splitShare, INT_MIN)                                           \
	X(int, trafficClass, INT_MIN)                                         \
	X(const char *, commName, NULL)                                       \
	X(int, collnetEnable, INT_MIN)                                        \
	X(int, CTAPolicy, INT_MIN)                                            \
	X(int, shrinkShare, INT_MIN)                                          \
	X(int, nvlsCTAs, INT_MIN)                                             \
	X(int, nChannelsPerNetPeer, INT_MIN)                                  \
	X(int, nvlinkCentricSched, INT_MIN)
#define BATONI_NCCL_CONFIG_2_29(X)                                            \
	X(int, graphUsageMode, INT_MIN)                                       \
	X(int, numRmaCtx, INT_MIN)
#define BATONI_NCCL_CONFIG_2_30(X)                                            \
	X(int, maxP2pPeers, INT_MIN)                                          \
	X(int, graphStreamOrdering, INT_MIN)
#define BATONI_NCCL_CONFIG_2_31(X)                                            \
	X(int, launchOrderImplicit, INT_MIN)                                  \
	X(int, numRmaSig, INT_MIN)                                            \
	X(int, rmaEagerInit, INT_MIN)                                         \
	X(int, hostCftMode, INT_MIN)
#define BATONI_NCCL_CONFIG_2_32(X)                                            \
	X(int, nvlsHostMode, INT_MIN)

/* The newest layout; older ones are its first `size` bytes. */
struct batoni_nccl_config {
	size_t size;
	unsigned int magic;
	unsigned int version;
#define BATONI_NCCL_MEMBER(type, member, unset) type member;
	BATONI_NCCL_CONFIG_2_28(BATONI_NCCL_MEMBER)
	BATONI_NCCL_CONFIG_2_29(BATONI_NCCL_MEMBER)
	BATONI_NCCL_CONFIG_2_30(BATONI_NCCL_MEMBER)
	BATONI_NCCL_CONFIG_2_31(BATONI_NCCL_MEMBER)
	BATONI_NCCL_CONFIG_2_32(BATONI_NCCL_MEMBER)
#undef BATONI_NCCL_MEMBER
};

#ifndef BATONI_NCCL_TYPES_GIVEN
typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef unsigned int ncclResult_t;
typedef unsigned int ncclDataType_t;
typedef struct batoni_nccl_config ncclConfig_t;
typedef struct {
	char internal[128];
} ncclUniqueId;
typedef struct {
	int opCnt;
	int peer;
	int sigIdx;
	int ctx;
} ncclWaitSignalDesc_t;
#endif

/* X(type, bytes).  ncclConfig_t differs between versions: see above. */
#define BATONI_NCCL_TYPES(X)                                                  \
	X(ncclComm_t, 8)                                                      \
	X(ncclWindow_t, 8)                                                    \
	X(ncclResult_t, 4)                                                    \
	X(ncclDataType_t, 4)                                                  \
	X(ncclUniqueId, 128)

/* X(type, bytes), X(type, member, offset): from 2.29.2 on. */
#define BATONI_NCCL_SIGNAL_TYPES(X) X(ncclWaitSignalDesc_t, 16)
#define BATONI_NCCL_SIGNAL_MEMBERS(X)                                         \
	X(ncclWaitSignalDesc_t, opCnt, 0)                                     \
	X(ncclWaitSignalDesc_t, peer, 4)                                      \
	X(ncclWaitSignalDesc_t, sigIdx, 8)                                    \
	X(ncclWaitSignalDesc_t, ctx, 12)

/* ---- constants ----------------------------------------------------------- */

/* X(our name, NCCL's name, value).  NCCL's names are not declared here. */
#define BATONI_NCCL_CONSTANTS(X)                                              \
	X(BATONI_NCCL_SUCCESS, ncclSuccess, 0)                                \
	X(BATONI_NCCL_CUDA_ERROR, ncclUnhandledCudaError, 1)                  \
	X(BATONI_NCCL_SYSTEM_ERROR, ncclSystemError, 2)                       \
	X(BATONI_NCCL_INTERNAL_ERROR, ncclInternalError, 3)                   \
	X(BATONI_NCCL_INVALID_ARGUMENT, ncclInvalidArgument, 4)               \
	X(BATONI_NCCL_INVALID_USAGE, ncclInvalidUsage, 5)                     \
	X(BATONI_NCCL_REMOTE_ERROR, ncclRemoteError, 6)                       \
	X(BATONI_NCCL_IN_PROGRESS, ncclInProgress, 7)                         \
	X(BATONI_NCCL_INT8, ncclInt8, 0)                                      \
	X(BATONI_NCCL_UINT8, ncclUint8, 1)                                    \
	X(BATONI_NCCL_INT32, ncclInt32, 2)                                    \
	X(BATONI_NCCL_UINT32, ncclUint32, 3)                                  \
	X(BATONI_NCCL_INT64, ncclInt64, 4)                                    \
	X(BATONI_NCCL_UINT64, ncclUint64, 5)                                  \
	X(BATONI_NCCL_FLOAT16, ncclFloat16, 6)                                \
	X(BATONI_NCCL_FLOAT32, ncclFloat32, 7)                                \
	X(BATONI_NCCL_FLOAT64, ncclFloat64, 8)                                \
	X(BATONI_NCCL_BFLOAT16, ncclBfloat16, 9)                              \
	X(BATONI_NCCL_FLOAT8E4M3, ncclFloat8e4m3, 10)                         \
	X(BATONI_NCCL_FLOAT8E5M2, ncclFloat8e5m2, 11)                         \
	X(BATONI_NCCL_CONFIG_UNSET, NCCL_CONFIG_UNDEF_INT, INT_MIN)           \
	X(BATONI_NCCL_NO_COLOUR, NCCL_SPLIT_NOCOLOR, -1)                      \
	X(BATONI_NCCL_WINDOW_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC, 1)           \
	X(BATONI_NCCL_WINDOW_ALIGNMENT, NCCL_WIN_REQUIRED_ALIGNMENT, 4096)    \
	X(BATONI_NCCL_SHRINK_DEFAULT, NCCL_SHRINK_DEFAULT, 0)                 \
	X(BATONI_NCCL_SHRINK_ABORT, NCCL_SHRINK_ABORT, 1)                     \
	X(BATONI_NCCL_UNIQUE_ID_BYTES, NCCL_UNIQUE_ID_BYTES, 128)

/* The same, from 2.30 on. */
#define BATONI_NCCL_CONSTANTS_2_30(X) X(BATONI_NCCL_TIMEOUT, ncclTimeout, 8)

/* clang-format off */
enum {
#define BATONI_NCCL_CONSTANT(ours, theirs, value) ours = value,
	BATONI_NCCL_CONSTANTS(BATONI_NCCL_CONSTANT)
	BATONI_NCCL_CONSTANTS_2_30(BATONI_NCCL_CONSTANT)
#undef BATONI_NCCL_CONSTANT
};
/* clang-format on */

#define BATONI_NCCL_CONFIG_MAGIC 0xcafebeefu

/* ---- functions ----------------------------------------------------------- */

/*
 * X(our name, exported name, version that has it, result, parameters).  A library that
 * lacks one of these is refused.
 */
#define BATONI_NCCL_FUNCTIONS(X)                                              \
	X(get_version, ncclGetVersion, 22800, ncclResult_t, (int *))          \
	X(get_unique_id, ncclGetUniqueId, 22800, ncclResult_t,                \
	  (ncclUniqueId *))                                                   \
	X(error_text, ncclGetErrorString, 22800, const char *,                \
	  (ncclResult_t))                                                     \
	X(last_error, ncclGetLastError, 22800, const char *, (ncclComm_t))    \
	X(comm_init, ncclCommInitRankConfig, 22800, ncclResult_t,             \
	  (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))             \
	X(comm_finalize, ncclCommFinalize, 22800, ncclResult_t, (ncclComm_t)) \
	X(comm_destroy, ncclCommDestroy, 22800, ncclResult_t, (ncclComm_t))   \
	X(comm_abort, ncclCommAbort, 22800, ncclResult_t, (ncclComm_t))       \
	X(comm_split, ncclCommSplit, 22800, ncclResult_t,                     \
	  (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))               \
	X(comm_shrink, ncclCommShrink, 22800, ncclResult_t,                   \
	  (ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int))        \
	X(comm_error, ncclCommGetAsyncError, 22800, ncclResult_t,             \
	  (ncclComm_t, ncclResult_t *))                                       \
	X(comm_count, ncclCommCount, 22800, ncclResult_t,                     \
	  (const ncclComm_t, int *))                                          \
	X(comm_device, ncclCommCuDevice, 22800, ncclResult_t,                 \
	  (const ncclComm_t, int *))                                          \
	X(comm_rank, ncclCommUserRank, 22800, ncclResult_t,                   \
	  (const ncclComm_t, int *))                                          \
	X(group_start, ncclGroupStart, 22800, ncclResult_t, (void))           \
	X(group_end, ncclGroupEnd, 22800, ncclResult_t, (void))               \
	X(send, ncclSend, 22800, ncclResult_t,                                \
	  (const void *, size_t, ncclDataType_t, int, ncclComm_t,             \
	   struct CUstream_st *))                                             \
	X(recv, ncclRecv, 22800, ncclResult_t,                                \
	  (void *, size_t, ncclDataType_t, int, ncclComm_t,                   \
	   struct CUstream_st *))                                             \
	X(mem_alloc, ncclMemAlloc, 22800, ncclResult_t, (void **, size_t))    \
	X(mem_free, ncclMemFree, 22800, ncclResult_t, (void *))               \
	X(window_register, ncclCommWindowRegister, 22800, ncclResult_t,       \
	  (ncclComm_t, void *, size_t, ncclWindow_t *, int))                  \
	X(window_deregister, ncclCommWindowDeregister, 22800, ncclResult_t,   \
	  (ncclComm_t, ncclWindow_t))

/* The same for those that are NULL where the library lacks them: */
#define BATONI_NCCL_OPTIONAL_REVOKE(X)                                        \
	X(comm_revoke, ncclCommRevoke, 22807, ncclResult_t, (ncclComm_t, int))
#define BATONI_NCCL_OPTIONAL_SIGNALS(X)                                       \
	X(put_signal, ncclPutSignal, 22902, ncclResult_t,                     \
	  (const void *, size_t, ncclDataType_t, int, ncclWindow_t, size_t,   \
	   int, int, unsigned int, ncclComm_t, struct CUstream_st *))         \
	X(signal, ncclSignal, 22902, ncclResult_t,                            \
	  (int, int, int, unsigned int, ncclComm_t, struct CUstream_st *))    \
	X(wait_signal, ncclWaitSignal, 22902, ncclResult_t,                   \
	  (int, ncclWaitSignalDesc_t *, ncclComm_t, struct CUstream_st *))    \
	X(window_pointer, ncclWinGetUserPtr, 22902, ncclResult_t,             \
	  (ncclComm_t, ncclWindow_t, void **))
#define BATONI_NCCL_OPTIONAL(X)                                               \
	BATONI_NCCL_OPTIONAL_REVOKE(X)                                        \
	BATONI_NCCL_OPTIONAL_SIGNALS(X)

#ifndef BATONI_NCCL_TYPES_GIVEN
struct batoni_nccl_api {
#define BATONI_NCCL_FUNCTION(name, symbol, since, result, parameters)         \
	result (*name) parameters;
	BATONI_NCCL_FUNCTIONS(BATONI_NCCL_FUNCTION)
	BATONI_NCCL_OPTIONAL(BATONI_NCCL_FUNCTION)
#undef BATONI_NCCL_FUNCTION
	int version;      /* the library's */
	char library[512]; /* its file */
};

/* ---- loading (nccl_api.c) ------------------------------------------------ */

#include "baton.h"

/*
 * NCCL's functions: searched for at the first call, and kept until the process ends.  In
 * this order: the file that BATON_NCCL_LIBRARY names; libnccl.so.2 if the program has
 * loaded it; the NCCL that is part of the program; libnccl.so.2.  Any thread; may block.
 * OK; UNSUPPORTED (there is no such library, it lacks a function, or it is older than
 * 2.28: batoni_refuse has said which, and what to do).  Later calls return as the first.
 */
enum baton_status batoni_nccl_load(const struct batoni_nccl_api **api_p);

/* The same without a refusal.  NULL, and *why_p (may be NULL): the sentence. */
const struct batoni_nccl_api *batoni_nccl_try(const char **why_p);

/* The layout that the library knows, with nothing set. */
void batoni_nccl_config_init(const struct batoni_nccl_api *nccl,
                             struct batoni_nccl_config *config);

/* The loaded library reads the member. */
#define BATONI_NCCL_CONFIG_HAS(config, member)                                \
	((config)->size >= offsetof(struct batoni_nccl_config, member) +      \
	                           sizeof((config)->member))

/* Write "unhandled cuda error (NCCL result 1)", and the library's last error where it has
 * one.  comm may be NULL.  Terminated, cut to size.  The thread that may call NCCL. */
void batoni_nccl_describe(const struct batoni_nccl_api *nccl, ncclComm_t comm,
                          ncclResult_t result, char *text, size_t size);

/* Write "2.28.9".  Terminated, cut to size. */
void batoni_nccl_version_text(int version, char *text, size_t size);
#endif

#endif
