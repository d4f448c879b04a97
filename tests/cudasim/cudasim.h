/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA driver without a GPU, for tests: stricter than a GPU where programs go wrong.
 * docs/simulators.md says what it models, and has all settings.
 *
 * Baton takes it for the driver when BATON_CUDA_LIBRARY names libcudasim.so.  A test
 * program gets at the same library by cudasim_load: the driver's functions, as a
 * program of the driver API would use them, and the controls below.  The simulator is
 * the one of the process, however often it is loaded.
 */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <stdbool.h>

#include "cuda_api.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUmod_st *CUmodule;

#ifdef __cplusplus
#error "cudasim.h is for C"
#endif

/* The driver's constants that Baton does not use. */
enum {
	CUDASIM_NOT_INITIALIZED = 3,
	CUDASIM_MAP_FAILED = 205,
	CUDASIM_ALREADY_MAPPED = 208,
	CUDASIM_TOO_MANY_PEERS = 711,
	CUDASIM_OPERATING_SYSTEM = 304,
	CUDASIM_ILLEGAL_STATE = 401,
	CUDASIM_CONTEXT_IS_DESTROYED = 709,
	CUDASIM_CAPTURE_UNSUPPORTED = 900,
	CUDASIM_CAPTURE_INVALIDATED = 901,
	CUDASIM_CAPTURE_UNMATCHED = 903,
	CUDASIM_CAPTURE_IMPLICIT = 906,
	CUDASIM_CAPTURED_EVENT = 907,
	CUDASIM_CAPTURE_WRONG_THREAD = 908,
	CUDASIM_TIMEOUT = 909,

	CUDASIM_SOURCE_ANY = 3,
	CUDASIM_ACCESS_READ = 1,

	CUDASIM_CAPTURE_GLOBAL = 0,
	CUDASIM_CAPTURE_THREAD_LOCAL = 1,
	CUDASIM_CAPTURE_ACTIVE = 1,
	CUDASIM_CAPTURE_STATUS_INVALIDATED = 2,
};

/* X(our name, exported name, name for cuGetProcAddress, version, parameters): the
 * driver's functions that test programs use and Baton does not. */
#define CUDASIM_FUNCTIONS(X)                                                  \
	X(proc_address, cuGetProcAddress_v2, "cuGetProcAddress", 12000,       \
	  (const char *, void **, int, cuuint64_t,                            \
	   CUdriverProcAddressQueryResult *))                                 \
	X(device_get, cuDeviceGet, "cuDeviceGet", 2000, (CUdevice *, int))    \
	X(primary_reset, cuDevicePrimaryCtxReset_v2,                          \
	  "cuDevicePrimaryCtxReset", 11000, (CUdevice))                       \
	X(context_create, cuCtxCreate_v2, "cuCtxCreate", 3020,                \
	  (CUcontext *, unsigned int, CUdevice))                              \
	X(context_destroy, cuCtxDestroy_v2, "cuCtxDestroy", 4000,             \
	  (CUcontext))                                                        \
	X(context_set, cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (CUcontext)) \
	X(context_synchronize, cuCtxSynchronize, "cuCtxSynchronize", 2000,    \
	  (void))                                                             \
	X(plain_stream_create, cuStreamCreate, "cuStreamCreate", 2000,        \
	  (CUstream *, unsigned int))                                         \
	X(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize",     \
	  2000, (CUstream))                                                   \
	X(wait_value, cuStreamWaitValue64_v2, "cuStreamWaitValue64", 11070,   \
	  (CUstream, CUdeviceptr, cuuint64_t, unsigned int))                  \
	X(write_value, cuStreamWriteValue64_v2, "cuStreamWriteValue64",       \
	  11070, (CUstream, CUdeviceptr, cuuint64_t, unsigned int))           \
	X(capture_begin, cuStreamBeginCapture_v2, "cuStreamBeginCapture",     \
	  10010, (CUstream, CUstreamCaptureMode))                             \
	X(capture_end, cuStreamEndCapture, "cuStreamEndCapture", 10000,       \
	  (CUstream, CUgraph *))                                              \
	X(graph_destroy, cuGraphDestroy, "cuGraphDestroy", 10000, (CUgraph))  \
	X(event_destroy, cuEventDestroy_v2, "cuEventDestroy", 4000,           \
	  (CUevent))                                                          \
	X(event_synchronize, cuEventSynchronize, "cuEventSynchronize", 2000,  \
	  (CUevent))                                                          \
	X(managed_alloc, cuMemAllocManaged, "cuMemAllocManaged", 6000,        \
	  (CUdeviceptr *, size_t, unsigned int))                              \
	X(pool_alloc, cuMemAllocAsync, "cuMemAllocAsync", 11020,              \
	  (CUdeviceptr *, size_t, CUstream))                                  \
	X(pool_free, cuMemFreeAsync, "cuMemFreeAsync", 11020,                 \
	  (CUdeviceptr, CUstream))                                            \
	X(copy_in, cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020,                     \
	  (CUdeviceptr, const void *, size_t))                                \
	X(copy_out, cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020,                    \
	  (void *, CUdeviceptr, size_t))                                      \
	X(copy_in_later, cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020,     \
	  (CUdeviceptr, const void *, size_t, CUstream))                      \
	X(copy_out_later, cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020,    \
	  (void *, CUdeviceptr, size_t, CUstream))                            \
	X(copy_now, cuMemcpy, "cuMemcpy", 4000,                               \
	  (CUdeviceptr, CUdeviceptr, size_t))                                 \
	X(module_load, cuModuleLoadData, "cuModuleLoadData", 2000,            \
	  (CUmodule *, const void *))

/*
 * A kernel: what a simulator of a library that launches kernels puts on a stream
 * (docs/simulators.md).
 *
 *   step     runs a part of it, when the stream and its queue have got there.  WAITS: for
 *            what is not there yet, and to be called again; MOVED: it got further, and
 *            others may now; ENDED.  On the queue's thread.  It makes no call of the driver.
 *   gone     called once after a launch that succeeded: the kernel has ended, or was
 *            dropped with its context's error or by a capture.  It may store and free,
 *            nothing else.
 *   buffers  memory that it uses: each must be the device's or pinned, and stays until the
 *            kernel is gone.  reach is set to where step finds the bytes.
 */
enum cudasim_step { CUDASIM_WAITS, CUDASIM_MOVED, CUDASIM_ENDED };

struct cudasim_buffer {
	CUdeviceptr address;
	size_t bytes;
	unsigned char *reach;
};

struct cudasim_kernel {
	enum cudasim_step (*step)(void *data);
	void (*gone)(void *data);
	void *data;
	struct cudasim_buffer *buffers;
	size_t buffers_n;
};

/* As above, and not of the driver: the kernel is launched on the first stream, after the
 * work of all n, and all go on after it. */
#define CUDASIM_KERNELS(X)                                                    \
	X(launch, cudasim_launch, "cuLaunchKernel", 4000,                     \
	  (const CUstream *, size_t, const struct cudasim_kernel *))

/*
 * X(result, name, parameters): what a test tells the simulator, and asks it.  Each is
 * exported as cudasim_<name>.  Any thread, in a host function too.
 *
 *   set         a setting: docs/simulators.md, without the CUDASIM_ and in small letters.
 *               false: there is none of that name, the value is not one of it, or it is of
 *               those that must be set before cuInit.
 *   fail        the n-th use from now of a driver's function (1: the next one) returns the
 *               result.  An empty name: of any function.  sticky: so does every later call
 *               in its context, and its streams stop.  n 0: forget.  A call that destroys
 *               does its work all the same.
 *   break       the device's contexts are in error from now on.
 *   heal        contexts in error are as before; what was in their streams is lost.
 *   uses        calls of a driver's function so far; of a name that is none: -1.
 *   name        the driver's functions by number, from 0; NULL: there is none.
 *   total       calls of all driver's functions so far.
 *   live        objects: "streams" (created ones), "thread_streams" (per-thread default
 *               ones), "events", "captures"; blocks of memory: "device", "managed",
 *               "pinned", "registered"; "pinned_bytes"; of virtual memory management
 *               "allocations", "reservations", "mappings"; "opened" (by IPC handles),
 *               "pool"; and "delays", of which it is
 *               how many there were.
 *   queued      entries of all streams that have not ended.
 *   blocked     calls that are blocked now: full streams, synchronisation of all kinds.
 *   violations  breaches of CUDA's rules so far; each was printed.
 *   settle      return when nothing moves any more without the program: every stream is
 *               empty, waits for a value or stands at a copy.  in_functions: or is in a host function.
 *   changed     what kernels wait for may have changed: they are to look again.
 *   reach       where the simulator has these bytes of device or pinned memory, for one
 *               that writes without a stream, as a network card does.  NULL: they are none.
 *               The memory is in use until unreach gets what is left at *hold_p.
 *   unreach     the end of that.
 *   use         another simulator takes so much of the device's memory, beside all blocks;
 *               negative: it gives that back.  cuMemGetInfo tells of it.
 *   peers       whether the device can reach the other one's memory.  false: they are no
 *               pair of devices.
 *   lack        from now on the driver does (not) have the function: a look-up does not
 *               find it.  false: there is no function of that name.
 *   peek, poke  read or write device memory, at once and beside all streams.
 *   remote_write  write device memory as a network card does: with the setting "flush" streams
 *               and copies see it only behind a cuFlushGPUDirectRDMAWrites.
 */
#define CUDASIM_CONTROLS(X)                                                   \
	X(bool, set, (const char *name, long value))                          \
	X(bool, fail, (const char *name, long n, CUresult result, bool sticky)) \
	X(void, break, (CUdevice device, CUresult result))                    \
	X(void, heal, (void))                                                 \
	X(long, uses, (const char *name))                                     \
	X(const char *, name, (int number))                                   \
	X(long, total, (void))                                                \
	X(long, live, (const char *what))                                     \
	X(long, queued, (void))                                               \
	X(long, blocked, (void))                                              \
	X(int, violations, (void))                                            \
	X(void, settle, (bool in_functions))                                  \
	X(void, changed, (void))                                              \
	X(unsigned char *, reach,                                             \
	  (CUdeviceptr address, size_t bytes, void **hold_p))                 \
	X(void, unreach, (void *hold))                                        \
	X(void, use, (CUdevice device, long long bytes))                      \
	X(bool, peers, (CUdevice device, CUdevice owner, bool can))           \
	X(bool, lack, (const char *name, bool lacks))                         \
	X(void, peek, (void *to, CUdeviceptr from, size_t bytes))             \
	X(void, poke, (CUdeviceptr to, const void *from, size_t bytes))       \
	X(void, remote_write, (CUdeviceptr to, const void *from, size_t bytes))

struct cudasim {
#define CUDASIM_FUNCTION(name, symbol, base, version, parameters)             \
	CUresult (*name) parameters;
	BATONI_CUDA_FUNCTIONS(CUDASIM_FUNCTION)
	BATONI_CUDA_OPTIONAL(CUDASIM_FUNCTION) /* NULL in a driver that lacks them */
	CUDASIM_FUNCTIONS(CUDASIM_FUNCTION)
	CUDASIM_KERNELS(CUDASIM_FUNCTION)
#undef CUDASIM_FUNCTION
#define CUDASIM_CONTROL(result, name, parameters) result (*sim_##name) parameters;
	CUDASIM_CONTROLS(CUDASIM_CONTROL)
#undef CUDASIM_CONTROL
};

/* load.c: the simulator's functions; path NULL: what BATON_CUDA_LIBRARY names.  A library
 * that is no simulator (a real driver) has no controls and no launch: they are NULL.  NULL:
 * there is no such library, or it lacks a function of the driver's; stderr says which. */
const struct cudasim *cudasim_load(const char *path);

#endif
