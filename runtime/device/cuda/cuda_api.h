/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of the CUDA driver API that Baton uses: types, constants, functions.
 *
 * Baton needs no CUDA Toolkit to be built and is linked to nothing of it.  The driver's
 * library is loaded when a communicator on the CUDA device is first asked for.  So the
 * names that <cuda.h> gives are declared here, as the driver's documentation has them.
 * tests/unit/device/cuda/test_cuda_header.c compiles this file beside a real <cuda.h>, with
 * BATONI_CUDA_TYPES_GIVEN defined, and compares all of it: the tables below are lists of
 * macros for that purpose.
 *
 * The numbers are part of the driver's binary interface, which NVIDIA keeps stable, and so is the
 * rule that a CUdevice is the device's number.
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
typedef unsigned int CUmemAllocationType;
typedef unsigned int CUmemAllocationHandleType;
typedef unsigned int CUmemAllocationGranularity_flags;
typedef unsigned int CUmemAccess_flags;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef void (*CUhostFn)(void *user_data);

/* The two members of the driver's union that Baton uses. */
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

/* For copies that one call starts. */
typedef struct CUmemLocation_st {
	unsigned int type;
	int id;
} CUmemLocation;
typedef struct CUmemcpyAttributes_st {
	unsigned int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;

/* For virtual memory management. */
typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

/* The name of a block of device memory for other processes. */
typedef struct CUipcMemHandle_st {
	char reserved[64];
} CUipcMemHandle;

/* The same for a device in all processes.  The macro keeps the CUDA runtime's headers from
 * declaring it too. */
#ifndef CU_UUID_HAS_BEEN_DEFINED
#define CU_UUID_HAS_BEEN_DEFINED
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
#endif
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
	X(CUmemcpyAttributes, 24)                                             \
	X(CUmemAllocationType, 4)                                             \
	X(CUmemAllocationHandleType, 4)                                       \
	X(CUmemAllocationGranularity_flags, 4)                                \
	X(CUmemAccess_flags, 4)                                               \
	X(CUmemGenericAllocationHandle, 8)                                    \
	X(CUmemAllocationProp, 32)                                            \
	X(CUmemAccessDesc, 12)                                                \
	X(CUipcMemHandle, 64)                                                 \
	X(CUuuid, 16)

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
	X(CUmemcpyAttributes, flags, 20)                                      \
	X(CUmemAllocationProp, type, 0)                                       \
	X(CUmemAllocationProp, requestedHandleTypes, 4)                       \
	X(CUmemAllocationProp, location, 8)                                   \
	X(CUmemAllocationProp, win32HandleMetaData, 16)                       \
	X(CUmemAllocationProp, allocFlags.compressionType, 24)                \
	X(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable, 25)           \
	X(CUmemAllocationProp, allocFlags.usage, 26)                          \
	X(CUmemAccessDesc, location, 0)                                       \
	X(CUmemAccessDesc, flags, 8)

/* ---- constants ----------------------------------------------------------- */

/* X(our name, the driver's name, value).  The driver's names are not declared here. */
#define BATONI_CUDA_CONSTANTS(X)                                              \
	X(BATONI_CU_SUCCESS, CUDA_SUCCESS, 0)                                 \
	X(BATONI_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1)               \
	X(BATONI_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)               \
	X(BATONI_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, 4)               \
	X(BATONI_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                     \
	X(BATONI_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101)           \
	X(BATONI_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201)         \
	X(BATONI_CU_MAP_FAILED, CUDA_ERROR_MAP_FAILED, 205)                   \
	X(BATONI_CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED, 208)           \
	X(BATONI_CU_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217) \
	X(BATONI_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400)           \
	X(BATONI_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500)                     \
	X(BATONI_CU_NOT_READY, CUDA_ERROR_NOT_READY, 600)                     \
	X(BATONI_CU_PEER_ALREADY_ENABLED,                                     \
	  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                        \
	X(BATONI_CU_PEER_NOT_ENABLED, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705) \
	X(BATONI_CU_ALREADY_REGISTERED,                                       \
	  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                     \
	X(BATONI_CU_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,    \
	  713)                                                                \
	X(BATONI_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED, 800)             \
	X(BATONI_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801)             \
	X(BATONI_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700)         \
	X(BATONI_CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) \
	X(BATONI_CU_DEVICE_PROCESSORS,                                        \
	  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                       \
	X(BATONI_CU_DEVICE_UNIFIED_ADDRESSING,                                \
	  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                         \
	X(BATONI_CU_DEVICE_MEM_OPS_64,                                        \
	  CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)             \
	X(BATONI_CU_DEVICE_VMM,                                               \
	  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)       \
	X(BATONI_CU_DEVICE_FD_HANDLES,                                        \
	  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,    \
	  103)                                                                \
	X(BATONI_CU_DEVICE_VMM_RDMA,                                          \
	  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)   \
	X(BATONI_CU_DEVICE_IPC, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125) \
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
	X(BATONI_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT, 1)         \
	X(BATONI_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) \
	X(BATONI_CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)     \
	X(BATONI_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)   \
	X(BATONI_CU_POINTER_DEVICE_ORDINAL,                                   \
	  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                             \
	X(BATONI_CU_POINTER_IS_IPC_CAPABLE,                                   \
	  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                \
	X(BATONI_CU_POINTER_RANGE_START,                                      \
	  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                          \
	X(BATONI_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)  \
	X(BATONI_CU_POINTER_MAPPED, CU_POINTER_ATTRIBUTE_MAPPED, 13)          \
	X(BATONI_CU_POINTER_HANDLE_TYPES,                                     \
	  CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                      \
	X(BATONI_CU_POINTER_POOL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)    \
	X(BATONI_CU_IPC_ENABLE_PEERS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)  \
	X(BATONI_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED, 1)      \
	X(BATONI_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1)          \
	X(BATONI_CU_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE, 0)                  \
	X(BATONI_CU_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)   \
	X(BATONI_CU_GRANULARITY_LEAST, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)   \
	X(BATONI_CU_GRANULARITY_BEST, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1) \
	X(BATONI_CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE, 0)            \
	X(BATONI_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) \
	X(BATONI_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST, 1)                       \
	X(BATONI_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE, 2)                   \
	X(BATONI_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)           \
	X(BATONI_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING, 2)         \
	X(BATONI_CU_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)         \
	X(BATONI_CU_HOST_ALLOC_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP, 2)          \
	X(BATONI_CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE, 1)   \
	X(BATONI_CU_HOST_REGISTER_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP, 2)    \
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
 * The same, of functions that a driver may lack: then they are NULL.  They are looked up only
 * in a driver of at least their version (cuDriverGetVersion): asked for a version newer than its
 * own, a driver returns the newest form that it has, whose parameters differ.
 */
#define BATONI_CUDA_OPTIONAL(X) BATONI_CUDA_COPIES(X) BATONI_CUDA_SHARING(X)

/* Several copies in one call. */
#define BATONI_CUDA_COPIES(X)                                                 \
	X(copies, cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000,         \
	  (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,                    \
	   CUmemcpyAttributes *, size_t *, size_t, CUstream))                 \
	X(copies_first, cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080,      \
	  (CUdeviceptr *, CUdeviceptr *, size_t *, size_t,                    \
	   CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream))

/* Device memory that other processes and devices reach, and host memory that devices do. */
#define BATONI_CUDA_SHARING(X)                                                \
	X(mem_alloc, cuMemAlloc_v2, "cuMemAlloc", 3020,                       \
	  (CUdeviceptr *, size_t))                                            \
	X(mem_free, cuMemFree_v2, "cuMemFree", 3020, (CUdeviceptr))           \
	X(mem_info, cuMemGetInfo_v2, "cuMemGetInfo", 3020,                    \
	  (size_t *, size_t *))                                               \
	X(set_bytes, cuMemsetD8Async, "cuMemsetD8Async", 3020,                \
	  (CUdeviceptr, unsigned char, size_t, CUstream))                     \
	X(address_range, cuMemGetAddressRange_v2, "cuMemGetAddressRange",     \
	  3020, (CUdeviceptr *, size_t *, CUdeviceptr))                       \
	X(host_register, cuMemHostRegister_v2, "cuMemHostRegister", 6050,     \
	  (void *, size_t, unsigned int))                                     \
	X(host_unregister, cuMemHostUnregister, "cuMemHostUnregister", 4000,  \
	  (void *))                                                           \
	X(device_uuid, cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040,          \
	  (CUuuid *, CUdevice))                                               \
	X(ipc_handle, cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010,           \
	  (CUipcMemHandle *, CUdeviceptr))                                    \
	X(ipc_open, cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000,       \
	  (CUdeviceptr *, CUipcMemHandle, unsigned int))                      \
	X(ipc_close, cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010,        \
	  (CUdeviceptr))                                                      \
	X(peer_can, cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000,     \
	  (int *, CUdevice, CUdevice))                                        \
	X(peer_enable, cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000,  \
	  (CUcontext, unsigned int))                                          \
	X(peer_disable, cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess",     \
	  4000, (CUcontext))                                                  \
	X(vm_granularity, cuMemGetAllocationGranularity,                      \
	  "cuMemGetAllocationGranularity", 10020,                             \
	  (size_t *, const CUmemAllocationProp *,                             \
	   CUmemAllocationGranularity_flags))                                 \
	X(vm_create, cuMemCreate, "cuMemCreate", 10020,                       \
	  (CUmemGenericAllocationHandle *, size_t,                            \
	   const CUmemAllocationProp *, unsigned long long))                  \
	X(vm_release, cuMemRelease, "cuMemRelease", 10020,                    \
	  (CUmemGenericAllocationHandle))                                     \
	X(vm_reserve, cuMemAddressReserve, "cuMemAddressReserve", 10020,      \
	  (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))   \
	X(vm_unreserve, cuMemAddressFree, "cuMemAddressFree", 10020,          \
	  (CUdeviceptr, size_t))                                              \
	X(vm_map, cuMemMap, "cuMemMap", 10020,                                \
	  (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,         \
	   unsigned long long))                                               \
	X(vm_unmap, cuMemUnmap, "cuMemUnmap", 10020, (CUdeviceptr, size_t))   \
	X(vm_access, cuMemSetAccess, "cuMemSetAccess", 10020,                 \
	  (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))             \
	X(vm_has_access, cuMemGetAccess, "cuMemGetAccess", 10020,             \
	  (unsigned long long *, const CUmemLocation *, CUdeviceptr))         \
	X(vm_export, cuMemExportToShareableHandle,                            \
	  "cuMemExportToShareableHandle", 10020,                              \
	  (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,   \
	   unsigned long long))                                               \
	X(vm_import, cuMemImportFromShareableHandle,                          \
	  "cuMemImportFromShareableHandle", 10020,                            \
	  (CUmemGenericAllocationHandle *, void *,                            \
	   CUmemAllocationHandleType))                                        \
	X(vm_retain, cuMemRetainAllocationHandle,                             \
	  "cuMemRetainAllocationHandle", 11000,                               \
	  (CUmemGenericAllocationHandle *, void *))                           \
	X(vm_properties, cuMemGetAllocationPropertiesFromHandle,              \
	  "cuMemGetAllocationPropertiesFromHandle", 10020,                    \
	  (CUmemAllocationProp *, CUmemGenericAllocationHandle))

/* The function that looks the others up, in the same form. */
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

/* Is the driver's library in this process, loaded by the program or by Baton?  The question
 * loads nothing and does not call cuInit.  True: batoni_cuda_ask works from now on.  Any
 * thread; may block. */
bool batoni_cuda_present(void);
/* cuPointerGetAttributes. */
CUresult batoni_cuda_ask(unsigned int n, CUpointer_attribute *attributes,
                         void **values, CUdeviceptr pointer);

/* Write "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered".
 * Terminated, cut to size.  Any thread that may call the driver. */
void batoni_cuda_describe(const struct batoni_cuda_api *functions, CUresult result,
                          char *text, size_t size);
#endif

#endif
