/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Some of the CUDA runtime's API over the simulated driver, so that programs that use it run without a
 * GPU: libcudasim-cudart.so, in the place of libcudart.so.
 *
 * The driver is what BATON_CUDA_LIBRARY names, as for Baton.  As the real runtime does, it initialises
 * the driver at the first call, gives a thread without a current context the primary one of the device that the
 * thread has set (0 if none), keeps the primary contexts for good, and hands errors on with the driver's numbers,
 * which are the runtime's own.  A thread's last error is that of its last call that failed.
 *
 * There are no kernels, no time stamps of events, and no per-thread variants of the functions (NULL is always
 * the legacy default stream).
 *
 * Threads.  `lock` guards the contexts; no driver call is made under it but the one that retains.
 */
#include <pthread.h>

#include <cuda_runtime_api.h>

#include "cudasim.h"

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES_MAX = 64 };

static const struct cudasim *driver;
static CUresult initialised; /* what came of it */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[DEVICES_MAX]; /* NULL: not retained */

static _Thread_local int chosen; /* device */
static _Thread_local cudaError_t last;

/* ---- what all calls share -------------------------------------------------- */

static cudaError_t
ended(CUresult result)
{
	cudaError_t error = (cudaError_t)result;

	if (error != cudaSuccess)
		last = error;
	return error;
}

static void
begin(void)
{
	driver = cudasim_load(NULL);
	initialised = driver ? driver->init(0)
	                     : (CUresult)cudaErrorInsufficientDriver;
}

static CUresult
start_once(void)
{
	pthread_once(&once, begin);
	return initialised;
}

static CUresult
retain(int device, CUcontext *context_p)
{
	CUresult result = BATONI_CU_SUCCESS;
	int count = 0;

	result = driver->device_count(&count);
	if (result == BATONI_CU_SUCCESS &&
	    (device < 0 || device >= count || device >= DEVICES_MAX))
		result = BATONI_CU_INVALID_DEVICE;
	if (result != BATONI_CU_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	if (!contexts[device])
		result = driver->primary_retain(&contexts[device], device);
	*context_p = contexts[device];
	pthread_mutex_unlock(&lock);
	return result;
}

/* The thread has a current context from here on. */
static CUresult
enter(void)
{
	CUcontext context = NULL;
	CUresult result = start_once();

	if (result == BATONI_CU_SUCCESS)
		result = driver->context_current(&context);
	if (result != BATONI_CU_SUCCESS || context)
		return result;
	result = retain(chosen, &context);
	return result == BATONI_CU_SUCCESS ? driver->context_set(context)
	                                   : result;
}

static CUdeviceptr
address(const void *pointer)
{
	return (CUdeviceptr)(uintptr_t)pointer;
}

/* What the driver has too. */
#define FORWARD(name, parameters, call)                                       \
	EXPORT cudaError_t name parameters                                    \
	{                                                                     \
		CUresult result = enter();                                    \
		return ended(result == BATONI_CU_SUCCESS ? driver->call       \
		                                         : result);           \
	}

/* ---- devices ---------------------------------------------------------------- */

EXPORT cudaError_t
cudaGetDeviceCount(int *count_p)
{
	CUresult result = start_once();

	return ended(result == BATONI_CU_SUCCESS ? driver->device_count(count_p)
	                                         : result);
}

EXPORT cudaError_t
cudaSetDevice(int device)
{
	CUcontext context = NULL;
	CUresult result = start_once();

	if (result == BATONI_CU_SUCCESS)
		result = retain(device, &context);
	if (result == BATONI_CU_SUCCESS)
		result = driver->context_set(context);
	if (result == BATONI_CU_SUCCESS)
		chosen = device;
	return ended(result);
}

EXPORT cudaError_t
cudaGetDevice(int *device_p)
{
	CUcontext context = NULL;
	CUresult result = start_once();

	if (result == BATONI_CU_SUCCESS)
		result = driver->context_current(&context);
	if (result == BATONI_CU_SUCCESS && context)
		result = driver->context_device(&chosen);
	if (result == BATONI_CU_SUCCESS)
		*device_p = chosen;
	return ended(result);
}

FORWARD(cudaDeviceSynchronize, (void), context_synchronize())

/* ---- errors ----------------------------------------------------------------- */

EXPORT cudaError_t
cudaGetLastError(void)
{
	cudaError_t error = last;

	last = cudaSuccess;
	return error;
}

EXPORT cudaError_t
cudaPeekAtLastError(void)
{
	return last;
}

EXPORT const char *
cudaGetErrorName(cudaError_t error)
{
#define NAME(name)                                                            \
	case name:                                                            \
		return #name;
	switch (error) {
		NAME(cudaSuccess)
		NAME(cudaErrorInvalidValue)
		NAME(cudaErrorMemoryAllocation)
		NAME(cudaErrorInitializationError)
		NAME(cudaErrorCudartUnloading)
		NAME(cudaErrorInvalidMemcpyDirection)
		NAME(cudaErrorInsufficientDriver)
		NAME(cudaErrorNoDevice)
		NAME(cudaErrorInvalidDevice)
		NAME(cudaErrorDeviceUninitialized)
		NAME(cudaErrorInvalidResourceHandle)
		NAME(cudaErrorNotReady)
		NAME(cudaErrorIllegalAddress)
		NAME(cudaErrorLaunchFailure)
		NAME(cudaErrorNotPermitted)
		NAME(cudaErrorNotSupported)
		NAME(cudaErrorUnknown)
	}
#undef NAME
	return "unrecognized error code";
}

EXPORT const char *
cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	start_once();
	if (error == cudaErrorInvalidMemcpyDirection)
		return "invalid copy direction for memcpy";
	if (error == cudaErrorInsufficientDriver)
		return "no CUDA driver (BATON_CUDA_LIBRARY)";
	if (!driver ||
	    driver->error_text((CUresult)error, &text) != BATONI_CU_SUCCESS ||
	    !text)
		return "unrecognized error code";
	return text;
}

/* ---- streams ---------------------------------------------------------------- */

FORWARD(cudaStreamCreateWithFlags, (cudaStream_t *stream_p, unsigned int flags),
        plain_stream_create(stream_p, flags))

EXPORT cudaError_t
cudaStreamCreate(cudaStream_t *stream_p)
{
	return cudaStreamCreateWithFlags(stream_p, cudaStreamDefault);
}

FORWARD(cudaStreamDestroy, (cudaStream_t stream), stream_destroy(stream))
FORWARD(cudaStreamQuery, (cudaStream_t stream), stream_query(stream))
FORWARD(cudaStreamSynchronize, (cudaStream_t stream),
        stream_synchronize(stream))
FORWARD(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
        stream_wait_event(stream, event, flags))

/* ---- events ----------------------------------------------------------------- */

FORWARD(cudaEventCreateWithFlags, (cudaEvent_t *event_p, unsigned int flags),
        event_create(event_p, flags))

EXPORT cudaError_t
cudaEventCreate(cudaEvent_t *event_p)
{
	return cudaEventCreateWithFlags(event_p, cudaEventDefault);
}

FORWARD(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
        event_record(event, stream))
FORWARD(cudaEventQuery, (cudaEvent_t event), event_query(event))
FORWARD(cudaEventSynchronize, (cudaEvent_t event), event_synchronize(event))
FORWARD(cudaEventDestroy, (cudaEvent_t event), event_destroy(event))

/* ---- memory ----------------------------------------------------------------- */

/* The driver refuses no bytes; the runtime gives NULL. */
EXPORT cudaError_t
cudaMalloc(void **pointer_p, size_t bytes)
{
	CUresult result = enter();
	CUdeviceptr memory = 0;

	if (result == BATONI_CU_SUCCESS && bytes > 0)
		result = driver->mem_alloc(&memory, bytes);
	if (result == BATONI_CU_SUCCESS)
		*pointer_p = (void *)(uintptr_t)memory;
	return ended(result);
}

EXPORT cudaError_t
cudaFree(void *pointer)
{
	CUresult result = enter();

	return ended(result == BATONI_CU_SUCCESS && pointer
	                     ? driver->mem_free(address(pointer))
	                     : result);
}

EXPORT cudaError_t
cudaMallocHost(void **pointer_p, size_t bytes)
{
	CUresult result = enter();
	void *memory = NULL;

	if (result == BATONI_CU_SUCCESS && bytes > 0)
		result = driver->host_alloc(&memory, bytes,
		                            BATONI_CU_HOST_ALLOC_PORTABLE |
		                                    BATONI_CU_HOST_ALLOC_MAPPED);
	if (result == BATONI_CU_SUCCESS)
		*pointer_p = memory;
	return ended(result);
}

EXPORT cudaError_t
cudaFreeHost(void *pointer)
{
	CUresult result = enter();

	return ended(result == BATONI_CU_SUCCESS && pointer
	                     ? driver->host_free(pointer)
	                     : result);
}

EXPORT cudaError_t
cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	CUresult result = enter();

	if (result != BATONI_CU_SUCCESS)
		return ended(result);
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return ended(driver->copy_in(address(to), from, bytes));
	case cudaMemcpyDeviceToHost:
		return ended(driver->copy_out(to, address(from), bytes));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDeviceToDevice:
	case cudaMemcpyDefault:
		return ended(driver->copy_now(address(to), address(from), bytes));
	}
	return ended((CUresult)cudaErrorInvalidMemcpyDirection);
}

EXPORT cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                enum cudaMemcpyKind kind, cudaStream_t stream)
{
	CUresult result = enter();

	if (result != BATONI_CU_SUCCESS)
		return ended(result);
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return ended(driver->copy_in_later(address(to), from, bytes,
		                                   stream));
	case cudaMemcpyDeviceToHost:
		return ended(driver->copy_out_later(to, address(from), bytes,
		                                    stream));
	case cudaMemcpyHostToHost:
	case cudaMemcpyDeviceToDevice:
	case cudaMemcpyDefault:
		return ended(driver->copy(address(to), address(from), bytes,
		                          stream));
	}
	return ended((CUresult)cudaErrorInvalidMemcpyDirection);
}

EXPORT cudaError_t
cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
	CUresult result = enter();

	return ended(result == BATONI_CU_SUCCESS && bytes > 0
	                     ? driver->set_bytes(address(to), (unsigned char)byte,
	                                         bytes, stream)
	                     : result);
}

EXPORT cudaError_t
cudaMemset(void *to, int byte, size_t bytes)
{
	return cudaMemsetAsync(to, byte, bytes, NULL);
}
