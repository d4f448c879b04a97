/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Baton has loaded the driver and started it (baton_library): here its file is opened once more, so it is
 * the same one.  The names are declared as the driver's documentation has them; the numbers are part of its
 * binary interface.
 */
#include "cuda.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <baton.h>

#define ATTRIBUTE_MAJOR 75 /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
#define ATTRIBUTE_MINOR 76

static struct {
	int (*device_count)(int *count);
	int (*device_name)(char *name, int size, int gpu);
	int (*device_bytes)(size_t *bytes, int gpu);
	int (*device_attribute)(int *value, int attribute, int gpu);
	int (*peer_can)(int *can, int gpu, int other);
} driver;

static bool tried;

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

static void
look_up(void *handle, const char *name, void *pointer_p)
{
	void *address = dlsym(handle, name);

	memcpy(pointer_p, &address, sizeof(address));
}

static void
load(void)
{
	struct baton_library_info info;
	void *handle;

	tried = true;
	if (!tool_find_library("CUDA driver", &info) || *info.why_not)
		return;
	handle = dlopen(info.path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return;
	look_up(handle, "cuDeviceGetCount", &driver.device_count);
	look_up(handle, "cuDeviceGetName", &driver.device_name);
	look_up(handle, "cuDeviceTotalMem_v2", &driver.device_bytes);
	look_up(handle, "cuDeviceGetAttribute", &driver.device_attribute);
	look_up(handle, "cuDeviceCanAccessPeer", &driver.peer_can);
}

int
tool_gpus(void)
{
	int count = 0;

	if (!tried)
		load();
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
