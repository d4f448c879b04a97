/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, contexts, each thread's stack of them, and what the driver says of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { STACK_MAX = 16 };

static _Thread_local struct sim_context *stack[STACK_MAX];
static _Thread_local unsigned stack_n;

struct sim_context *
sim_current(void)
{
	return stack_n > 0 ? stack[stack_n - 1] : NULL;
}

CUcontext
sim_handle_of(struct sim_context *context)
{
	return (CUcontext)(void *)context;
}

struct sim_context *
sim_context_of_locked(CUcontext handle)
{
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		if (sim.contexts[i] == (void *)handle && sim.contexts[i]->live)
			return sim.contexts[i];
	}
	return NULL;
}

static struct sim_context *
make_locked(CUdevice device, bool primary)
{
	struct sim_context *context;

	if (sim.contexts_n == sizeof(sim.contexts) / sizeof(sim.contexts[0]))
		return NULL;
	context = sim_alloc(1, sizeof(*context));
	context->live = true;
	context->id = ++sim.next_id;
	context->device = device;
	context->primary = primary;
	pthread_cond_init(&context->calls, NULL);
	sim_queues_init(context);
	sim_stream_init_locked(context, &context->legacy, true, 0);
	sim.contexts[sim.contexts_n++] = context;
	return context;
}

static struct sim_context *
primary_of_locked(CUdevice device)
{
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		if (sim.contexts[i]->primary && sim.contexts[i]->device == device)
			return sim.contexts[i];
	}
	return NULL;
}

bool
sim_is_device(CUdevice device)
{
	return device >= 0 && device < sim.set.devices;
}

/* ---- the driver and its devices ---- */

CUresult
cuDriverGetVersion(int *version_p)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuDriverGetVersion, SIM_EARLY);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!version_p)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	*version_p = (int)sim.set.version;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuDeviceGetCount(int *count_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDeviceGetCount, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	*count_p = (int)sim.set.devices;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuDeviceGet(CUdevice *device_p, int ordinal)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDeviceGet, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(ordinal))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	*device_p = ordinal;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuDeviceGetName(char *name, int size, CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDeviceGetName, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device) || size < 1)
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	snprintf(name, (size_t)size, "simulated device %d", device);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuDeviceGetAttribute(int *value_p, CUdevice_attribute attribute, CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDeviceGetAttribute, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	switch (attribute) {
	case BATONI_CU_DEVICE_PROCESSORS:
		*value_p = (int)sim.set.processors;
		break;
	case BATONI_CU_DEVICE_UNIFIED_ADDRESSING:
		*value_p = 1;
		break;
	case BATONI_CU_DEVICE_MEM_OPS_64:
		*value_p = (int)sim.set.memops;
		break;
	case BATONI_CU_DEVICE_VMM:
		*value_p = (int)sim.set.vmm;
		break;
	case BATONI_CU_DEVICE_FD_HANDLES:
		*value_p = sim.set.vmm && sim.set.vmm_fd;
		break;
	case BATONI_CU_DEVICE_VMM_RDMA:
		*value_p = sim.set.vmm && sim.set.vmm_rdma;
		break;
	case BATONI_CU_DEVICE_IPC:
		*value_p = (int)sim.set.ipc;
		break;
	case BATONI_CU_DEVICE_RDMA_FLUSHES:
		*value_p = sim.set.flush ? BATONI_CU_RDMA_FLUSH_BY_HOST : 0;
		break;
	case BATONI_CU_DEVICE_RDMA_ORDERING:
		*value_p = sim.set.flush ? 0 : BATONI_CU_RDMA_ORDERED_FOR_OWNER;
		break;
	default:
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* The same in all processes. */
CUresult
cuDeviceGetUuid_v2(CUuuid *uuid_p, CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDeviceGetUuid_v2, 0);
	char name[32];

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	memset(name, 0, sizeof(name));
	snprintf(name, sizeof(name), "simulated %d", device);
	memcpy(uuid_p->bytes, name, sizeof(uuid_p->bytes));
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* ---- contexts ---- */

CUresult
cuDevicePrimaryCtxRetain(CUcontext *context_p, CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDevicePrimaryCtxRetain,
	                            SIM_UNSAFE);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	context = primary_of_locked(device);
	if (!context)
		context = make_locked(device, true);
	if (!context)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	if (context->error != BATONI_CU_SUCCESS)
		return sim_leave(&call, context->error);
	if (!context->live)
		context->id = ++sim.next_id;
	context->live = true;
	context->retained++;
	*context_p = sim_handle_of(context);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* The context's streams end, with what is in them. */
static void
destroy_locked(struct sim_context *context)
{
	sim_break_locked(context, CUDASIM_CONTEXT_IS_DESTROYED);
	sim_queues_drain_locked(context);
	sim_streams_close_locked(context);
	sim_events_close_locked(context);
	sim_blocks_close_locked(context);
	context->error = BATONI_CU_SUCCESS;
	context->live = false;
}

CUresult
cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDevicePrimaryCtxRelease_v2,
	                            SIM_DESTROYS);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	context = sim_is_device(device) ? primary_of_locked(device) : NULL;
	if (!context || context->retained == 0) {
		sim_violation("a primary context is released more often than "
		              "retained");
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	}
	if (--context->retained == 0)
		destroy_locked(context);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* It stays as often retained as it was. */
CUresult
cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDevicePrimaryCtxReset_v2,
	                            SIM_DESTROYS);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	context = primary_of_locked(device);
	if (context && context->live)
		destroy_locked(context);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxGetId(CUcontext handle, unsigned long long *id_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxGetId, 0);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	context = handle ? sim_context_of_locked(handle) : sim_current();
	if (!context)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	*id_p = context->id;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxCreate_v2(CUcontext *context_p, unsigned int flags, CUdevice device)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxCreate_v2, 0);
	struct sim_context *context;

	(void)flags;
	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	context = stack_n < STACK_MAX ? make_locked(device, false) : NULL;
	if (!context)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	stack[stack_n++] = context;
	*context_p = sim_handle_of(context);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxDestroy_v2(CUcontext handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxDestroy_v2, SIM_DESTROYS);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	context = sim_context_of_locked(handle);
	if (!context || context->primary)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	if (sim_current() == context)
		stack_n--;
	destroy_locked(context);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxGetCurrent(CUcontext *context_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxGetCurrent, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	*context_p = sim_handle_of(sim_current());
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxSetCurrent(CUcontext handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxSetCurrent, 0);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	context = sim_context_of_locked(handle);
	if (handle && !context)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	if (stack_n > 0)
		stack_n--;
	if (context)
		stack[stack_n++] = context;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxPushCurrent_v2(CUcontext handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxPushCurrent_v2, 0);
	struct sim_context *context;

	if (result != BATONI_CU_SUCCESS)
		return result;
	context = sim_context_of_locked(handle);
	if (!context || stack_n == STACK_MAX)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	stack[stack_n++] = context;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxPopCurrent_v2(CUcontext *context_p)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuCtxPopCurrent_v2, SIM_DESTROYS);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (stack_n == 0)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	stack_n--;
	if (context_p)
		*context_p = sim_handle_of(stack[stack_n]);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxGetDevice(CUdevice *device_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxGetDevice, SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	*device_p = call.context->device;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxGetStreamPriorityRange(int *least_p, int *greatest_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxGetStreamPriorityRange,
	                            SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (least_p)
		*least_p = 0;
	if (greatest_p)
		*greatest_p = 1 - SIM_PRIORITIES;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuCtxSynchronize(void)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxSynchronize,
	                            SIM_CONTEXT | SIM_UNSAFE);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_synchronize_locked(call.context, "cuCtxSynchronize", false);
	return sim_leave(&call, result);
}

/* ---- names ---- */

struct text {
	CUresult result;
	const char *name, *text;
};

static const struct text texts[] = {
	{0, "CUDA_SUCCESS", "no error"},
	{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
	{208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
	{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
	 "peer access is not supported between these two devices"},
	{304, "CUDA_ERROR_OPERATING_SYSTEM",
	 "OS call failed or operation not supported on this OS"},
	{400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in "
	                                  "the present state"},
	{500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{600, "CUDA_ERROR_NOT_READY", "device not ready"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was "
	                                    "encountered"},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
	 "peer access is already enabled"},
	{705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
	 "peer access has not been enabled"},
	{709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	{711, "CUDA_ERROR_TOO_MANY_PEERS", "too many peers"},
	{712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
	 "part or all of the requested memory range is already mapped"},
	{713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
	 "pointer does not correspond to a registered memory region"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	 "operation not permitted when stream is capturing"},
	{901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
	 "operation failed due to a previous error during capture"},
	{906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
	 "operation would make the legacy stream depend on a capturing blocking "
	 "stream"},
	{909, "CUDA_ERROR_TIMEOUT", "wait operation timed out"},
	{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult
describe(enum sim_function function, CUresult which, const char **text_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, SIM_EARLY);

	if (result != BATONI_CU_SUCCESS)
		return result;
	*text_p = NULL;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (texts[i].result == which)
			*text_p = function == SIM_cuGetErrorName
			                  ? texts[i].name
			                  : texts[i].text;
	}
	return sim_leave(&call, *text_p ? BATONI_CU_SUCCESS
	                                : BATONI_CU_INVALID_VALUE);
}

CUresult
cuGetErrorName(CUresult which, const char **text_p)
{
	return describe(SIM_cuGetErrorName, which, text_p);
}

CUresult
cuGetErrorString(CUresult which, const char **text_p)
{
	return describe(SIM_cuGetErrorString, which, text_p);
}

struct address {
	const char *symbol, *base;
	int version;
	void (*function)(void);
};

static const struct address addresses[] = {
#define ADDRESS(name, symbol, base, version, parameters)                      \
	{#symbol, base, version, (void (*)(void))symbol},
	BATONI_CUDA_FUNCTIONS(ADDRESS) BATONI_CUDA_OPTIONAL(ADDRESS)
	CUDASIM_FUNCTIONS(ADDRESS)
#undef ADDRESS
};

/* A test says that the driver does not have it.  Under sim_lock. */
static bool lacking[sizeof(addresses) / sizeof(addresses[0])];

bool
sim_lack_locked(const char *name, bool lacks)
{
	bool found = false;

	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		if (strcmp(addresses[i].symbol, name) != 0 &&
		    strcmp(addresses[i].base, name) != 0)
			continue;
		lacking[i] = lacks;
		found = true;
	}
	return found;
}

/* The newest form of the function that this driver has and that is not newer than what is asked
 * for; NULL: there is none, and *why_p says why. */
static const struct address *
find_address_locked(const char *name, int version,
                    CUdriverProcAddressQueryResult *why_p)
{
	const struct address *found = NULL;

	*why_p = 1; /* not found */
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		const struct address *address = &addresses[i];

		if (strcmp(address->base, name) != 0 || lacking[i] ||
		    address->version > sim.set.version)
			continue;
		if (!found)
			*why_p = 2; /* it is newer */
		if (address->version > version ||
		    (found && found->version > address->version))
			continue;
		found = address;
		*why_p = 0;
	}
	return found;
}

/* An older form of a function than the ones that are here is a version too low. */
CUresult
cuGetProcAddress_v2(const char *name, void **address_p, int version,
                    cuuint64_t flags, CUdriverProcAddressQueryResult *why_p)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuGetProcAddress_v2, SIM_EARLY);
	CUdriverProcAddressQueryResult why;
	const struct address *found;

	(void)flags;
	if (result != BATONI_CU_SUCCESS)
		return result;
	*address_p = NULL;
	found = find_address_locked(name, version, &why);
	if (found)
		memcpy(address_p, &found->function, sizeof(*address_p));
	if (why_p)
		*why_p = why;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}
