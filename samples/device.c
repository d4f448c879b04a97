/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each call makes the device's primary context current, and afterwards what was.
 * Copies run on a non-blocking stream of their own, so that they never wait for a
 * stream that waits for a message.
 */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define NON_BLOCKING 1u
#define MEMORY_TYPE 2 /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
#define IS_MANAGED 8
#define DEVICE_MEMORY 2u /* CU_MEMORYTYPE_DEVICE */

typedef int result;                /* CUresult */
typedef unsigned long long address; /* CUdeviceptr */

/* The driver's functions, by the names of their versions. */
static struct {
	result (*init)(unsigned flags);
	result (*device)(int *device_p, int number);
	result (*retain)(void **context_p, int device);
	result (*release)(int device);
	result (*push)(void *context);
	result (*pop)(void **context_p);
	result (*alloc)(address *memory_p, size_t bytes);
	result (*free)(address memory);
	result (*pin)(void **memory_p, size_t bytes, unsigned flags);
	result (*unpin)(void *memory);
	result (*ask)(unsigned count, const int *attributes, void **values,
	              address pointer);
	result (*stream)(void **stream_p, unsigned flags);
	result (*end_stream)(void *stream);
	result (*set)(address memory, unsigned char value, size_t count,
	              void *stream);
	result (*copy)(address to, address from, size_t bytes, void *stream);
	result (*wait)(void *stream);
	result (*name)(result error, const char **name_p);
} cuda;

struct device {
	struct baton_comm *comm;
	int device;
	void *context;
	void *stream;
};

static void fail(struct device *device, const char *call, const char *why)
{
	fprintf(stderr, "rank %d: CUDA: %s: %s\n",
	        baton_comm_rank(device->comm), call, why);
	baton_comm_abort(device->comm);
	exit(EXIT_FAILURE);
}

static void check(struct device *device, const char *call, result error)
{
	const char *name = "an unknown error";

	if (error == 0)
		return;
	cuda.name(error, &name);
	fail(device, call, name);
}

#define MUST(device, call) check((device), #call, cuda.call)

static void find(struct device *device, void *library, const char *name,
                 void *function_p)
{
	void *function = dlsym(library, name);

	if (function == NULL)
		fail(device, "dlsym", dlerror());
	memcpy(function_p, &function, sizeof(function));
}

/* The library that Baton has loaded for its CUDA device. */
static void load(struct device *device)
{
	const char *named = getenv("BATON_CUDA_LIBRARY");
	void *library = dlopen(named != NULL && *named != '\0' ? named
	                                                       : "libcuda.so.1",
	                       RTLD_NOW);

	if (library == NULL)
		fail(device, "dlopen", dlerror());
	find(device, library, "cuInit", &cuda.init);
	find(device, library, "cuDeviceGet", &cuda.device);
	find(device, library, "cuDevicePrimaryCtxRetain", &cuda.retain);
	find(device, library, "cuDevicePrimaryCtxRelease_v2", &cuda.release);
	find(device, library, "cuCtxPushCurrent_v2", &cuda.push);
	find(device, library, "cuCtxPopCurrent_v2", &cuda.pop);
	find(device, library, "cuMemAlloc_v2", &cuda.alloc);
	find(device, library, "cuMemFree_v2", &cuda.free);
	find(device, library, "cuMemHostAlloc", &cuda.pin);
	find(device, library, "cuMemFreeHost", &cuda.unpin);
	find(device, library, "cuPointerGetAttributes", &cuda.ask);
	find(device, library, "cuStreamCreate", &cuda.stream);
	find(device, library, "cuStreamDestroy_v2", &cuda.end_stream);
	find(device, library, "cuMemsetD8Async", &cuda.set);
	find(device, library, "cuMemcpyAsync", &cuda.copy);
	find(device, library, "cuStreamSynchronize", &cuda.wait);
	find(device, library, "cuGetErrorName", &cuda.name);
}

void device_enter(struct device *device)
{
	MUST(device, push(device->context));
}

void device_leave(struct device *device)
{
	void *context;

	MUST(device, pop(&context));
}

void *device_stream(const struct device *device)
{
	return device->stream;
}

struct device *device_open(struct baton_comm *comm)
{
	struct baton_comm_info info = { .size = sizeof(info) };
	struct device *device;

	CHECK(comm, baton_comm_query(comm, &info));
	if (info.device != BATON_DEVICE_CUDA)
		return NULL;
	device = calloc(1, sizeof(*device));
	if (device == NULL) {
		fprintf(stderr, "out of memory\n");
		exit(EXIT_FAILURE);
	}
	device->comm = comm;
	load(device);
	MUST(device, init(0));
	MUST(device, device(&device->device, info.cuda_device));
	MUST(device, retain(&device->context, device->device));
	device_enter(device);
	MUST(device, stream(&device->stream, NON_BLOCKING));
	device_leave(device);
	return device;
}

void device_close(struct device *device)
{
	if (device == NULL)
		return;
	device_enter(device);
	MUST(device, end_stream(device->stream));
	device_leave(device);
	MUST(device, release(device->device));
	free(device);
}

void *device_alloc(struct device *device, size_t bytes)
{
	address memory = 0;

	device_enter(device);
	MUST(device, alloc(&memory, bytes));
	MUST(device, set(memory, 0, bytes, device->stream));
	MUST(device, wait(device->stream));
	device_leave(device);
	return (void *)(uintptr_t)memory;
}

void device_free(struct device *device, void *memory)
{
	device_enter(device);
	MUST(device, free((address)(uintptr_t)memory));
	device_leave(device);
}

bool device_owns(struct device *device, const void *memory)
{
	static const int attributes[] = { MEMORY_TYPE, IS_MANAGED };
	unsigned type = 0, managed = 0;
	void *values[] = { &type, &managed };

	MUST(device, ask(2, attributes, values, (address)(uintptr_t)memory));
	return type == DEVICE_MEMORY && managed == 0;
}

void *device_pinned_alloc(struct device *device, size_t bytes)
{
	void *memory = NULL;

	device_enter(device);
	MUST(device, pin(&memory, bytes, 0));
	device_leave(device);
	memset(memory, 0, bytes);
	return memory;
}

void device_pinned_free(struct device *device, void *memory)
{
	device_enter(device);
	MUST(device, unpin(memory));
	device_leave(device);
}

void device_enqueue_copy(struct device *device, baton_stream stream, void *to,
                         const void *from, size_t bytes)
{
	device_enter(device);
	MUST(device, copy((address)(uintptr_t)to, (address)(uintptr_t)from,
	                  bytes, stream));
	device_leave(device);
}

void device_copy(struct device *device, void *to, const void *from,
                 size_t bytes)
{
	device_enter(device);
	MUST(device, copy((address)(uintptr_t)to, (address)(uintptr_t)from,
	                  bytes, device->stream));
	MUST(device, wait(device->stream));
	device_leave(device);
}
