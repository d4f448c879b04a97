/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Baton has loaded the driver and started it (baton_library): here its file is opened once more, so it is
 * the same one.  The names are declared as the driver's documentation has them; the numbers are part of its
 * binary interface.
 */
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <baton.h>

#define ATTRIBUTE_MAJOR 75 /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
#define ATTRIBUTE_MINOR 76

#define PIN_FLAGS 3u      /* CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP */
#define REGISTER_FLAGS 3u /* CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP */
#define NON_BLOCKING 1u   /* CU_STREAM_NON_BLOCKING */
#define MISSING (-1)      /* the driver has no such function */
#define NO_EFFECT (-2)    /* the call did nothing */

typedef unsigned long long address; /* CUdeviceptr */

/* CUmemAllocationProp. */
struct allocation {
	int type, handle_types;
	struct {
		int type, number;
	} location;
	void *metadata;
	unsigned char flags[8];
};

static struct {
	int (*device_count)(int *count);
	int (*device_name)(char *name, int size, int gpu);
	int (*device_bytes)(size_t *bytes, int gpu);
	int (*device_attribute)(int *value, int attribute, int gpu);
	int (*peer_can)(int *can, int gpu, int other);
	int (*error_name)(int error, const char **name);
	int (*retain)(void **context, int gpu);
	int (*release)(int gpu);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*copy_in)(address to, const void *from, size_t bytes);
	int (*copy_out)(void *to, address from, size_t bytes);
	int (*stream_create)(void **stream, unsigned flags);
	int (*stream_destroy)(void *stream);
	int (*stream_wait)(void *stream);
	int (*stream_store)(void *stream, address to, uint64_t value, unsigned flags);
	int (*pin)(void **memory, size_t bytes, unsigned flags);
	int (*pinned_address)(address *memory, void *pinned, unsigned flags);
	int (*unpin)(void *memory);
	int (*host_register)(void *memory, size_t bytes, unsigned flags);
	int (*host_unregister)(void *memory);
	int (*granularity)(size_t *bytes, const struct allocation *how, int which);
	int (*create)(address *handle, size_t bytes, const struct allocation *how,
	              unsigned long long flags);
	int (*destroy)(address handle);
} driver;

static pthread_once_t loaded = PTHREAD_ONCE_INIT; /* ranks may be threads */

bool
tool_find_library(const char *name, struct baton_library_info *info_p)
{
	info_p->size = sizeof(*info_p);
	for (size_t i = 0; baton_library(i, info_p) == BATON_OK; i++) {
		if (strcmp(info_p->name, name) == 0)
			return true;
	}
	return false;
}

bool
tool_look_up(void *library, const char *name, void *pointer_p)
{
	void *found = dlsym(library, name);

	memcpy(pointer_p, &found, sizeof(found));
	return found != NULL;
}

static void
load(void)
{
	struct baton_library_info info;
	void *handle;

	if (!tool_find_library("CUDA driver", &info) || *info.why_not)
		return;
	handle = dlopen(info.path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return;
	tool_look_up(handle, "cuDeviceGetCount", &driver.device_count);
	tool_look_up(handle, "cuDeviceGetName", &driver.device_name);
	tool_look_up(handle, "cuDeviceTotalMem_v2", &driver.device_bytes);
	tool_look_up(handle, "cuDeviceGetAttribute", &driver.device_attribute);
	tool_look_up(handle, "cuDeviceCanAccessPeer", &driver.peer_can);
	tool_look_up(handle, "cuGetErrorName", &driver.error_name);
	tool_look_up(handle, "cuDevicePrimaryCtxRetain", &driver.retain);
	tool_look_up(handle, "cuDevicePrimaryCtxRelease_v2", &driver.release);
	tool_look_up(handle, "cuCtxPushCurrent_v2", &driver.push);
	tool_look_up(handle, "cuCtxPopCurrent_v2", &driver.pop);
	tool_look_up(handle, "cuMemcpyHtoD_v2", &driver.copy_in);
	tool_look_up(handle, "cuMemcpyDtoH_v2", &driver.copy_out);
	tool_look_up(handle, "cuStreamCreate", &driver.stream_create);
	tool_look_up(handle, "cuStreamDestroy_v2", &driver.stream_destroy);
	tool_look_up(handle, "cuStreamSynchronize", &driver.stream_wait);
	tool_look_up(handle, "cuStreamWriteValue64_v2", &driver.stream_store);
	tool_look_up(handle, "cuMemHostAlloc", &driver.pin);
	tool_look_up(handle, "cuMemHostGetDevicePointer_v2", &driver.pinned_address);
	tool_look_up(handle, "cuMemFreeHost", &driver.unpin);
	tool_look_up(handle, "cuMemHostRegister_v2", &driver.host_register);
	tool_look_up(handle, "cuMemHostUnregister", &driver.host_unregister);
	tool_look_up(handle, "cuMemGetAllocationGranularity", &driver.granularity);
	tool_look_up(handle, "cuMemCreate", &driver.create);
	tool_look_up(handle, "cuMemRelease", &driver.destroy);
}

int
tool_gpus(void)
{
	int count = 0;

	pthread_once(&loaded, load);
	return driver.device_count && driver.device_count(&count) == 0 ? count
	                                                               : 0;
}

void
tool_gpu_name(int gpu, char *name, int size)
{
	if (!driver.device_name || driver.device_name(name, size, gpu) != 0)
		snprintf(name, (size_t)size, "GPU");
}

unsigned long long
tool_gpu_bytes(int gpu)
{
	size_t bytes = 0;

	return driver.device_bytes && driver.device_bytes(&bytes, gpu) == 0
	               ? bytes
	               : 0;
}

int
tool_gpu_generation(int gpu)
{
	int major = 0, minor = 0;

	if (!driver.device_attribute ||
	    driver.device_attribute(&major, ATTRIBUTE_MAJOR, gpu) != 0 ||
	    driver.device_attribute(&minor, ATTRIBUTE_MINOR, gpu) != 0)
		return 0;
	return major * 10 + minor;
}

bool
tool_gpu_reaches(int gpu, int other)
{
	int can = 0;

	return driver.peer_can && driver.peer_can(&can, gpu, other) == 0 && can;
}

/* ---- what is tried ---- */

/* The call, and how it failed. */
struct failure {
	const char *call;
	int error;
};

/* Make the call unless one before has failed; a function that the driver has not is MISSING. */
#define TRY(failure, name, function, arguments)                               \
	do {                                                                  \
		if ((failure)->error == 0) {                                  \
			(failure)->call = (name);                             \
			(failure)->error = driver.function                    \
			                           ? driver.function arguments \
			                           : MISSING;                 \
		}                                                             \
	} while (0)

static void
try_stream_words(struct failure *failure)
{
	const uint64_t value = UINT64_C(0x6261746f6e);
	void *stream = NULL, *word = NULL;
	address to = 0;

	TRY(failure, "cuMemHostAlloc", pin, (&word, sizeof(value), PIN_FLAGS));
	TRY(failure, "cuMemHostGetDevicePointer", pinned_address, (&to, word, 0));
	TRY(failure, "cuStreamCreate", stream_create, (&stream, NON_BLOCKING));
	TRY(failure, "cuStreamWriteValue64", stream_store, (stream, to, value, 0));
	TRY(failure, "cuStreamSynchronize", stream_wait, (stream));
	if (failure->error == 0 && *(volatile uint64_t *)word != value)
		*failure = (struct failure){"cuStreamWriteValue64", NO_EFFECT};
	if (stream && driver.stream_destroy)
		driver.stream_destroy(stream);
	if (word && driver.unpin)
		driver.unpin(word);
}

static void
try_virtual_memory(struct failure *failure, int gpu)
{
	/* Pinned, of a device, with a file descriptor as handle. */
	const struct allocation how = {.type = 1,
	                               .handle_types = 1,
	                               .location = {1, gpu}};
	address handle = 0;
	size_t bytes = 0;

	TRY(failure, "cuMemGetAllocationGranularity", granularity,
	    (&bytes, &how, 0));
	TRY(failure, "cuMemCreate", create, (&handle, bytes, &how, 0));
	TRY(failure, "cuMemRelease", destroy, (handle));
}

static void
try_host_registration(struct failure *failure)
{
	const size_t bytes = 1 << 16;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		*failure = (struct failure){"mmap", NO_EFFECT};
		return;
	}
	TRY(failure, "cuMemHostRegister", host_register,
	    (memory, bytes, REGISTER_FLAGS));
	TRY(failure, "cuMemHostUnregister", host_unregister, (memory));
	munmap(memory, bytes);
}

static void
try_feature(struct failure *failure, int gpu, enum gpu_feature feature)
{
	switch (feature) {
	case GPU_STREAM_WORDS:
		try_stream_words(failure);
		break;
	case GPU_VIRTUAL_MEMORY:
		try_virtual_memory(failure, gpu);
		break;
	case GPU_HOST_REGISTRATION:
		try_host_registration(failure);
		break;
	}
}

/* True: nothing failed. */
static bool
tell(const struct failure *failure, char *why, size_t size)
{
	const char *name = "an unknown error";

	if (failure->error == 0)
		return true;
	if (failure->error == MISSING)
		name = "the driver has no such function";
	else if (failure->error == NO_EFFECT)
		name = "it has done nothing";
	else if (driver.error_name)
		driver.error_name(failure->error, &name);
	snprintf(why, size, "%s fails: %s", failure->call, name);
	return false;
}

bool
tool_gpu_try(int gpu, enum gpu_feature feature, char *why, size_t size)
{
	struct failure failure = {NULL, 0};
	void *context = NULL, *before;

	TRY(&failure, "cuDevicePrimaryCtxRetain", retain, (&context, gpu));
	TRY(&failure, "cuCtxPushCurrent", push, (context));
	if (failure.error == 0) {
		try_feature(&failure, gpu, feature);
		driver.pop(&before);
	}
	if (context)
		driver.release(gpu);
	return tell(&failure, why, size);
}

/* ---- what `baton perf` does ---- */

bool
tool_gpu_enter(int gpu, char *why, size_t size)
{
	struct failure failure = {NULL, 0};
	void *context = NULL;

	tool_gpus(); /* loads the driver */
	TRY(&failure, "cuDevicePrimaryCtxRetain", retain, (&context, gpu));
	TRY(&failure, "cuCtxPushCurrent", push, (context));
	return tell(&failure, why, size);
}

bool
tool_gpu_copy(void *memory, void *host, size_t bytes, bool into,
              char *why, size_t size)
{
	struct failure failure = {NULL, 0};

	if (into)
		TRY(&failure, "cuMemcpyHtoD", copy_in,
		    ((address)(uintptr_t)memory, host, bytes));
	else
		TRY(&failure, "cuMemcpyDtoH", copy_out,
		    (host, (address)(uintptr_t)memory, bytes));
	return tell(&failure, why, size);
}

bool
tool_gpu_finish(void *stream, char *why, size_t size)
{
	struct failure failure = {NULL, 0};

	TRY(&failure, "cuStreamSynchronize", stream_wait, (stream));
	return tell(&failure, why, size);
}
