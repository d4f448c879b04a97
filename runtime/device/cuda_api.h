/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of the CUDA driver API that Baton uses: types, constants, functions.
 *
 * Baton needs no CUDA Toolkit to be built and is linked to nothing of it.  The driver's
 * library is loaded when a communicator on the CUDA device is first asked for.  So the
 * names that <cuda.h> gives are declared here, as the driver's documentation has them.
 * tests/unit/test_cuda_api.c compiles this file beside a real <cuda.h>, with
 * BATONI_CUDA_TYPES_GIVEN defined, and compares all of it: the tables below are lists of
 * macros for that purpose.
 *
 * The numbers are part of the driver's binary interface, which NVIDIA keeps.  So is that a
 * CUdevice is the device's number.
 */
#ifndef BATONI_CUDA_API_H
#define BATONI_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* ---- types --------------------------------------------------------------- */

#ifndef BATONI_CUDA_TYPES_GIVEN
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUresult;
typedef unsigned int CUdevice_attribute;
typedef unsigned int CUpointer_attribute;
typedef unsigned int CUstreamCaptureStatus;
typedef unsigned int CUstreamCaptureMode;
typedef unsigned int CUdriverProcAddressQueryResult;
typedef unsigned int CUflushGPUDirectRDMAWritesTarget;
typedef unsigned int CUflushGPUDirectRDMAWritesScope;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef void (*CUhostFn)(void *user_data);

/* Two of the driver's operations; the others are not used. */
struct CUstreamMemOpWaitValueParams_st {
	unsigned int operation;
	CUdeviceptr address;
	uint64_t value64;
	unsigned int flags;
	CUdeviceptr alias;
};
struct CUstreamMemOpWriteValueParams_st {
	unsigned int operation;
	CUdeviceptr address;
	uint64_t value64;
	unsigned int flags;
	CUdeviceptr alias;
};
typedef union CUstreamBatchMemOpParams_union {
	struct CUstreamMemOpWaitValueParams_st waitValue;
	struct CUstreamMemOpWriteValueParams_st writeValue;
	uint64_t pad[6];
} CUstreamBatchMemOpParams;

/* Of copies that one call starts. */
typedef struct CUmemLocation_st {
	unsigned int type;
	int id;
} CUmemLocation;
typedef struct CUmemcpyAttributes_st {
	unsigned int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;
#endif

/* X(type, bytes) */
#define BATONI_CUDA_TYPES(X)                                                  \
	X(CUdevice, 4)                                                        \
	X(CUdeviceptr, 8)                                                     \
	X(CUresult, 4)                                                        \
	X(CUdevice_attribute, 4)                                              \
	X(CUpointer_attribute, 4)                                             \
	X(CUstreamCaptureStatus, 4)                                           \
	X(CUstreamCaptureMode, 4)                                             \
	X(CUdriverProcAddressQueryResult, 4)                                  \
	X(CUflushGPUDirectRDMAWritesTarget, 4)                                \
	X(CUflushGPUDirectRDMAWritesScope, 4)                                 \
	X(cuuint64_t, 8)                                                      \
	X(CUcontext, 8)                                                       \
	X(CUstream, 8)                                                        \
	X(CUevent, 8)                                                         \
	X(CUhostFn, 8)                                                        \
	X(CUstreamBatchMemOpParams, 48)                                       \
	X(CUmemLocation, 8)                                                   \
	X(CUmemcpyAttributes, 24)

/* X(type, member, offset) */
#define BATONI_CUDA_MEMBERS(X)                                                \
	X(CUstreamBatchMemOpParams, waitValue.operation, 0)                   \
	X(CUstreamBatchMemOpParams, waitValue.address, 8)                     \
	X(CUstreamBatchMemOpParams, waitValue.value64, 16)                    \
	X(CUstreamBatchMemOpParams, waitValue.flags, 24)                      \
	X(CUstreamBatchMemOpParams, writeValue.operation, 0)                  \
	X(CUstreamBatchMemOpParams, writeValue.address, 8)                    \
	X(CUstreamBatchMemOpParams, writeValue.value64, 16)                   \
	X(CUstreamBatchMemOpParams, writeValue.flags, 24)                     \
	X(CUmemLocation, id, 4)                                               \
	X(CUmemcpyAttributes, srcAccessOrder, 0)                              \
	X(CUmemcpyAttributes, srcLocHint, 4)                                  \
	X(CUmemcpyAttributes, dstLocHint, 12)                                 \
	X(CUmemcpyAttributes, flags, 20)

/* ---- constants ----------------------------------------------------------- */

/* X(our name, the driver's name, value).  The driver's names are not declared here. */
#define BATONI_CUDA_CONSTANTS(X)                                              \
	X(BATONI_CU_SUCCESS, CUDA_SUCCESS, 0)                                 \
	X(BATONI_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1)               \
	X(BATONI_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)               \
	X(BATONI_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, 4)               \
	X(BATONI_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                     \
	X(BATONI_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201)         \
	X(BATONI_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)           \
	X(BATONI_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                     \
	X(BATONI_CU_NOT_READY, CUDA_ERROR_NOT_READY, 600)                     \
	X(BATONI_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED, 800)             \
	X(BATONI_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)             \
	X(BATONI_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)         \
	X(BATONI_CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) \
	X(BATONI_CU_DEVICE_UNIFIED_ADDRESSING,                                \
	  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                         \
	X(BATONI_CU_DEVICE_MEM_OPS_64,                                        \
	  CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)             \
	X(BATONI_CU_DEVICE_RDMA_FLUSHES,                                      \
	  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 117)      \
	X(BATONI_CU_DEVICE_RDMA_ORDERING,                                     \
	  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 118)           \
	X(BATONI_CU_RDMA_FLUSH_BY_HOST,                                       \
	  CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, 1)                     \
	X(BATONI_CU_RDMA_ORDERED_FOR_OWNER,                                   \
	  CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, 100)                      \
	X(BATONI_CU_RDMA_FLUSH_CURRENT,                                       \
	  CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, 0)              \
	X(BATONI_CU_RDMA_FLUSH_TO_OWNER,                                      \
	  CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER, 100)                      \
	X(BATONI_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) \
	X(BATONI_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)   \
	X(BATONI_CU_POINTER_DEVICE_ORDINAL,                                   \
	  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                             \
	X(BATONI_CU_POINTER_RANGE_START,                                      \
	  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                          \
	X(BATONI_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)  \
	X(BATONI_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST, 1)                       \
	X(BATONI_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE, 2)                   \
	X(BATONI_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)           \
	X(BATONI_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING, 2)         \
	X(BATONI_CU_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)         \
	X(BATONI_CU_HOST_ALLOC_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP, 2)          \
	X(BATONI_CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ, 0)                    \
	X(BATONI_CU_OP_WAIT_64, CU_STREAM_MEM_OP_WAIT_VALUE_64, 4)            \
	X(BATONI_CU_OP_WRITE_64, CU_STREAM_MEM_OP_WRITE_VALUE_64, 5)          \
	X(BATONI_CU_SOURCE_IN_ORDER, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 1)    \
	X(BATONI_CU_COPY_BESIDE_COMPUTE,                                      \
	  CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE, 1)                      \
	X(BATONI_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE, 0)           \
	X(BATONI_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2)

enum {
#define BATONI_CUDA_CONSTANT(ours, theirs, value) ours = value,
	BATONI_CUDA_CONSTANTS(BATONI_CUDA_CONSTANT)
#undef BATONI_CUDA_CONSTANT
};

/* The driver's handles of its two default streams. */
#define BATONI_CU_STREAM_LEGACY_VALUE 1
#define BATONI_CU_STREAM_PER_THREAD_VALUE 2

/* ---- functions ----------------------------------------------------------- */

/*
 * X(our name, exported name, name for cuGetProcAddress, CUDA version that has it as it
 * is declared here, parameters).  All return CUresult.  A driver that lacks one of them
 * is refused; the version is a thousand times the major number, plus ten times the
 * minor.
 */
#define BATONI_CUDA_FUNCTIONS(X)                                              \
	X(init, cuInit, "cuInit", 2000, (unsigned int))                       \
	X(driver_version, cuDriverGetVersion, "cuDriverGetVersion", 2020,     \
	  (int *))                                                            \
	X(error_name, cuGetErrorName, "cuGetErrorName", 6000,                 \
	  (CUresult, const char **))                                          \
	X(error_text, cuGetErrorString, "cuGetErrorString", 6000,             \
	  (CUresult, const char **))                                          \
	X(device_count, cuDeviceGetCount, "cuDeviceGetCount", 2000, (int *))  \
	X(device_name, cuDeviceGetName, "cuDeviceGetName", 2000,              \
	  (char *, int, CUdevice))                                            \
	X(device_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute",     \
	  2000, (int *, CUdevice_attribute, CUdevice))                        \
	X(primary_retain, cuDevicePrimaryCtxRetain,                           \
	  "cuDevicePrimaryCtxRetain", 7000, (CUcontext *, CUdevice))          \
	X(primary_release, cuDevicePrimaryCtxRelease_v2,                      \
	  "cuDevicePrimaryCtxRelease", 11000, (CUdevice))                     \
	X(context_id, cuCtxGetId, "cuCtxGetId", 12000,                        \
	  (CUcontext, unsigned long long *))                                  \
	X(context_current, cuCtxGetCurrent, "cuCtxGetCurrent", 4000,          \
	  (CUcontext *))                                                      \
	X(context_push, cuCtxPushCurrent_v2, "cuCtxPushCurrent", 4000,        \
	  (CUcontext))                                                        \
	X(context_pop, cuCtxPopCurrent_v2, "cuCtxPopCurrent", 4000,           \
	  (CUcontext *))                                                      \
	X(context_device, cuCtxGetDevice, "cuCtxGetDevice", 2000,             \
	  (CUdevice *))                                                       \
	X(priority_range, cuCtxGetStreamPriorityRange,                        \
	  "cuCtxGetStreamPriorityRange", 5050, (int *, int *))                \
	X(capture_mode, cuThreadExchangeStreamCaptureMode,                    \
	  "cuThreadExchangeStreamCaptureMode", 10010, (CUstreamCaptureMode *)) \
	X(stream_create, cuStreamCreateWithPriority,                          \
	  "cuStreamCreateWithPriority", 5050, (CUstream *, unsigned int, int)) \
	X(stream_destroy, cuStreamDestroy_v2, "cuStreamDestroy", 4000,        \
	  (CUstream))                                                         \
	X(stream_query, cuStreamQuery, "cuStreamQuery", 2000, (CUstream))     \
	X(stream_priority, cuStreamGetPriority, "cuStreamGetPriority", 5050,  \
	  (CUstream, int *))                                                  \
	X(stream_context, cuStreamGetCtx, "cuStreamGetCtx", 9020,             \
	  (CUstream, CUcontext *))                                            \
	X(stream_id, cuStreamGetId, "cuStreamGetId", 12000,                   \
	  (CUstream, unsigned long long *))                                   \
	X(stream_capturing, cuStreamIsCapturing, "cuStreamIsCapturing", 10000, \
	  (CUstream, CUstreamCaptureStatus *))                                \
	X(stream_memory_ops, cuStreamBatchMemOp_v2, "cuStreamBatchMemOp",     \
	  11070, (CUstream, unsigned int, CUstreamBatchMemOpParams *,         \
	          unsigned int))                                              \
	X(host_function, cuLaunchHostFunc, "cuLaunchHostFunc", 10000,         \
	  (CUstream, CUhostFn, void *))                                       \
	X(event_create, cuEventCreate, "cuEventCreate", 2000,                 \
	  (CUevent *, unsigned int))                                          \
	X(event_record, cuEventRecord, "cuEventRecord", 2000,                 \
	  (CUevent, CUstream))                                                \
	X(event_query, cuEventQuery, "cuEventQuery", 2000, (CUevent))         \
	X(stream_wait_event, cuStreamWaitEvent, "cuStreamWaitEvent", 3020,    \
	  (CUstream, CUevent, unsigned int))                                  \
	X(host_alloc, cuMemHostAlloc, "cuMemHostAlloc", 2020,                 \
	  (void **, size_t, unsigned int))                                    \
	X(host_free, cuMemFreeHost, "cuMemFreeHost", 2000, (void *))          \
	X(host_device_pointer, cuMemHostGetDevicePointer_v2,                  \
	  "cuMemHostGetDevicePointer", 3020,                                  \
	  (CUdeviceptr *, void *, unsigned int))                              \
	X(flush_remote_writes, cuFlushGPUDirectRDMAWrites,                    \
	  "cuFlushGPUDirectRDMAWrites", 11030,                                \
	  (CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope)) \
	X(copy, cuMemcpyAsync, "cuMemcpyAsync", 4000,                         \
	  (CUdeviceptr, CUdeviceptr, size_t, CUstream))                       \
	X(pointer_attributes, cuPointerGetAttributes,                         \
	  "cuPointerGetAttributes", 7000,                                     \
	  (unsigned int, CUpointer_attribute *, void **, CUdeviceptr))

/*
 * The same, of functions that a driver may lack: then they are NULL.  They are looked for only
 * in a driver of at least their version (cuDriverGetVersion): asked for a version that is newer
 * than itself, a driver returns the newest form that it has, whose parameters are others.
 */
#define BATONI_CUDA_OPTIONAL(X)                                               \
	X(copies, cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000,         \
	  (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,                    \
	   CUmemcpyAttributes *, size_t *, size_t, CUstream))                 \
	X(copies_first, cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080,      \
	  (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,                    \
	   CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream))

/* The function that looks the others up, as above. */
#define BATONI_CUDA_LOOKUP(X)                                                 \
	X(lookup, cuGetProcAddress_v2, "cuGetProcAddress", 12000,             \
	  (const char *, void **, int, cuuint64_t,                            \
	   CUdriverProcAddressQueryResult *))

struct batoni_cuda_api {
#define BATONI_CUDA_FUNCTION(name, symbol, base, version, parameters)         \
	CUresult (*name) parameters;
	BATONI_CUDA_FUNCTIONS(BATONI_CUDA_FUNCTION)
	BATONI_CUDA_OPTIONAL(BATONI_CUDA_FUNCTION)
#undef BATONI_CUDA_FUNCTION
};

/* ---- loading (cuda_api.c) ------------------------------------------------ */

#ifndef BATONI_CUDA_TYPES_GIVEN
#include <stdbool.h>

#include "baton.h"

/*
 * The driver's functions, after cuInit: loaded at the first call, from libcuda.so.1 or
 * the file that BATON_CUDA_LIBRARY names, and kept until the process ends.  Any thread;
 * may block.  OK; UNSUPPORTED (there is no such library, it lacks a function, or the
 * driver finds no device: batoni_refuse has said which, and what to do).  Later calls
 * return as the first.
 */
enum baton_status batoni_cuda_load(const struct batoni_cuda_api **api_p);

/* The functions if they have been loaded, else NULL.  Any thread. */
const struct batoni_cuda_api *batoni_cuda_loaded(void);

/* Is the driver's library in this process, by the program's doing or by ours?  It is not
 * loaded, and cuInit is not called, for the question.  True: batoni_cuda_ask works from now
 * on.  Any thread; may block. */
bool batoni_cuda_present(void);
/* cuPointerGetAttributes. */
CUresult batoni_cuda_ask(unsigned int n, CUpointer_attribute *attributes,
                         void **values, CUdeviceptr pointer);

/* Write "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered".
 * Terminated, cut to size.  Any thread that may call the driver. */
void batoni_cuda_describe(const struct batoni_cuda_api *api, CUresult result,
                          char *text, size_t size);
#endif

#endif
