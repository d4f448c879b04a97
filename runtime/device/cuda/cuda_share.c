/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory between processes of one node, and between the GPUs of one process.
 *
 * Memory of virtual memory management (cuMemCreate) is shared by the handle of its allocation, exported
 * as a file descriptor, if it was created with that type of handle.  A name means the mapping (cuMemMap)
 * that the address is in, and the other process maps that whole.  It begins where its allocation begins,
 * since the driver maps from no other offset.  Memory of cuMemAlloc has an IPC handle of 64 bytes,
 * which needs no descriptor; its block is the allocation.  Memory of a pool (cuMemAllocAsync) and
 * managed memory have neither, and are not shared.
 *
 * A name has the identity of the process (random bytes) and the driver's number of the memory
 * (BUFFER_ID), which the driver does not use again, so a name never means later memory at the same
 * address.  It has
 * the GPU's UUID too, since processes may number GPUs differently.  The process that maps looks for
 * that GPU: its own must be the same, or be able to reach it as a peer.  Where it does not see the
 * GPU, the driver decides.  Puts into memory that the driver then refuses to map go by message; only
 * an error of the device itself is an error of the call.
 *
 * Within a process an address is the same for all GPUs, but not each GPU may use it.  A copy by a GPU
 * that cannot reach the other as a peer, or that has no access to a mapping (cuMemSetAccess, which may
 * have failed for the owner), would break that GPU's context.  Between GPUs that are no peers the driver
 * would stage a copy of cuMemAlloc's memory; the path by messages does that with a bound and without
 * holding a stream up.
 *
 * The IPC handle of a block that this process has mapped gives the same address again; the
 * caller maps a block only once at a time (memory.h).
 *
 * Threads.  There is no state but the identity, which is set once.  The calls of virtual memory
 * management wait for no stream; cuIpcOpenMemHandle may.
 */
#include "cuda_gpu.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "log.h"

enum { KIND_DESCRIPTOR = 1, KIND_IPC = 2 };

/* The content of a struct batoni_memory_name. */
struct name {
	uint32_t kind;
	int32_t device; /* its number in the owner's process, for sentences */
	unsigned char process[16];
	uint64_t buffer;
	CUuuid uuid;
	CUipcMemHandle ipc;
};

static_assert(sizeof(struct name) <= sizeof(struct batoni_memory_name),
              "it fits");

static unsigned char identity[16];
static pthread_once_t identity_once = PTHREAD_ONCE_INIT;

static void
make_identity(void)
{
	uint64_t pid = (uint64_t)getpid();

	/* getrandom fails only before the kernel has any entropy. */
	if (getrandom(identity, sizeof(identity), 0) !=
	    (ssize_t)sizeof(identity))
		memcpy(identity, &pid, sizeof(pid));
}

/* Does the result say that the driver cannot do it, rather than that something is wrong? */
static bool
cannot(CUresult result)
{
	return result == BATONI_CU_NOT_SUPPORTED ||
	       result == BATONI_CU_NOT_PERMITTED ||
	       result == BATONI_CU_INVALID_DEVICE ||
	       result == BATONI_CU_PEER_UNSUPPORTED;
}

/* Is it one of the results for a call that maps memory of another process, where this GPU does not
 * reach that memory, or other namespaces keep the process from it? */
static bool
cannot_map(CUresult result)
{
	return cannot(result) || result == BATONI_CU_MAP_FAILED ||
	       result == BATONI_CU_ALREADY_MAPPED ||
	       result == BATONI_CU_INVALID_VALUE ||
	       result == BATONI_CU_INVALID_CONTEXT;
}

static enum baton_status
refuse_so(const struct cuda_gpu *gpu, const char *call, CUresult result,
          bool cannot_be)
{
	enum baton_status status = batoni_cuda_refuse(gpu, call, result);
	char text[160];

	if (!cannot_be)
		return status;
	batoni_cuda_describe(gpu->api, result, text, sizeof(text));
	return batoni_refuse(BATON_ERR_UNSUPPORTED, "%s: %s", call, text);
}

static enum baton_status
refuse_sharing(const struct cuda_gpu *gpu, const char *call, CUresult result)
{
	return refuse_so(gpu, call, result, cannot(result));
}

static enum baton_status
refuse_mapping(const struct cuda_gpu *gpu, const char *call, CUresult result)
{
	return refuse_so(gpu, call, result, cannot_map(result));
}

/* Has the driver all calls for descriptors? */
static bool
has_descriptors(const struct batoni_cuda_api *api)
{
	return api->vm_retain && api->vm_release && api->vm_export &&
	       api->vm_import && api->vm_reserve && api->vm_unreserve &&
	       api->vm_map && api->vm_unmap && api->vm_access;
}

static bool
has_ipc(const struct batoni_cuda_api *api)
{
	return api->ipc_handle && api->ipc_open && api->ipc_close;
}

/* ---- the owner ---- */

/* What the driver tells of the memory. */
struct memory {
	CUdeviceptr base;
	size_t bytes;
	int device;
	int ipc_capable;
	unsigned long long buffer;
	void *pool;
};

/* Between enter and exit. */
static CUresult
ask(const struct batoni_cuda_api *api, const void *pointer,
    struct memory *memory, const char **call_p)
{
	CUpointer_attribute attributes[] = {
		BATONI_CU_POINTER_DEVICE_ORDINAL, BATONI_CU_POINTER_BUFFER_ID,
		BATONI_CU_POINTER_IS_IPC_CAPABLE, BATONI_CU_POINTER_POOL};
	void *values[] = {&memory->device, &memory->buffer,
	                  &memory->ipc_capable, &memory->pool};
	CUresult result;

	*memory = (struct memory){.device = -1};
	*call_p = "cuPointerGetAttributes";
	result = api->pointer_attributes(4, attributes, values,
	                                 (CUdeviceptr)(uintptr_t)pointer);
	if (result != BATONI_CU_SUCCESS)
		return result;
	*call_p = "cuMemGetAddressRange";
	return api->address_range(&memory->base, &memory->bytes,
	                          (CUdeviceptr)(uintptr_t)pointer);
}

/* *shared_p has a descriptor unless it is refused.  NOT_FOUND: the memory is not of virtual
 * memory management. */
static CUresult
export_handle(const struct batoni_cuda_api *api, const struct memory *memory,
              int *fd_p, const char **call_p)
{
	CUmemGenericAllocationHandle handle;
	CUresult result;

	*call_p = "cuMemRetainAllocationHandle";
	result = api->vm_retain(&handle, (void *)(uintptr_t)memory->base);
	/* The result for an address of cuMemAlloc. */
	if (result == BATONI_CU_INVALID_VALUE || cannot(result))
		return BATONI_CU_NOT_FOUND;
	if (result != BATONI_CU_SUCCESS)
		return result;
	*call_p = "cuMemExportToShareableHandle";
	result = api->vm_export(fd_p, handle, BATONI_CU_HANDLE_FD, 0);
	api->vm_release(handle);
	/* No other argument can be wrong. */
	return result == BATONI_CU_INVALID_VALUE ? BATONI_CU_NOT_SUPPORTED
	                                         : result;
}

/* Between enter and exit. */
static enum baton_status
name_memory(const struct cuda_gpu *gpu, const struct memory *memory,
            struct name *name, int *fd_p)
{
	const struct batoni_cuda_api *api = gpu->api;
	CUresult result = BATONI_CU_NOT_FOUND;
	const char *call = "";

	if (has_descriptors(api))
		result = export_handle(api, memory, fd_p, &call);
	if (result == BATONI_CU_SUCCESS) {
		name->kind = KIND_DESCRIPTOR;
		return BATON_OK;
	}
	if (result == BATONI_CU_NOT_SUPPORTED)
		return batoni_refuse(
			BATON_ERR_UNSUPPORTED,
			"its allocation (cuMemCreate) was not made to be exported "
			"as a file descriptor");
	if (result != BATONI_CU_NOT_FOUND)
		return refuse_sharing(gpu, call, result);
	if (!memory->ipc_capable)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the driver shares it neither by a file "
		                     "descriptor nor by an IPC handle");
	if (!has_ipc(api))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the driver has no IPC handles");
	result = api->ipc_handle(&name->ipc, memory->base);
	if (result != BATONI_CU_SUCCESS)
		return refuse_sharing(gpu, "cuIpcGetMemHandle", result);
	name->kind = KIND_IPC;
	return BATON_OK;
}

/* Find what may be shared of the pointer's memory.  Between enter and exit. */
static enum baton_status
find_memory(const struct cuda_gpu *gpu, const void *pointer, size_t bytes,
            struct memory *memory, size_t *offset_p)
{
	const char *call;
	CUresult result = ask(gpu->api, pointer, memory, &call);
	size_t offset;

	if (result != BATONI_CU_SUCCESS)
		return refuse_sharing(gpu, call, result);
	offset = (size_t)((CUdeviceptr)(uintptr_t)pointer - memory->base);
	if (offset > memory->bytes || bytes > memory->bytes - offset)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "it lies in more than one allocation");
	if (memory->pool)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "memory of a pool (cuMemAllocAsync) is not "
		                     "shared with other processes; that of "
		                     "baton_mem_alloc and cuMemAlloc is");
	*offset_p = offset;
	return BATON_OK;
}

/* Between enter and exit. */
static enum baton_status
share(const struct cuda_gpu *gpu, const void *pointer, size_t bytes,
      struct batoni_memory_shared *shared_p)
{
	struct memory memory;
	struct name name = {0};
	enum baton_status status;
	CUresult result;

	status = find_memory(gpu, pointer, bytes, &memory, &shared_p->offset);
	if (status != BATON_OK)
		return status;
	result = gpu->api->device_uuid(&name.uuid, memory.device);
	if (result != BATONI_CU_SUCCESS)
		return refuse_sharing(gpu, "cuDeviceGetUuid", result);
	pthread_once(&identity_once, make_identity);
	memcpy(name.process, identity, sizeof(name.process));
	name.device = memory.device;
	name.buffer = memory.buffer;
	shared_p->bytes = memory.bytes;
	shared_p->fd = -1;
	status = name_memory(gpu, &memory, &name, &shared_p->fd);
	/* cuMemFree of a block that another process has open is undefined. */
	shared_p->kept = name.kind == KIND_DESCRIPTOR;
	memset(&shared_p->name, 0, sizeof(shared_p->name));
	memcpy(&shared_p->name, &name, sizeof(name));
	return status;
}

/* OK: the caller exits. */
static enum baton_status
enter_sharing(const struct cuda_gpu *gpu, struct cuda_guard *guard)
{
	CUresult result;

	if (!gpu->api->address_range || !gpu->api->device_uuid)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the driver lacks the calls to share memory");
	result = batoni_cuda_enter(gpu, guard);
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
}

enum baton_status
batoni_cuda_identify(struct batoni_device *device, const void *pointer,
                     size_t bytes, struct batoni_memory_block *block_p)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct memory memory;
	struct cuda_guard guard;
	enum baton_status status = enter_sharing(gpu, &guard);
	size_t offset;

	if (status != BATON_OK)
		return status;
	status = find_memory(gpu, pointer, bytes, &memory, &offset);
	batoni_cuda_exit(gpu, &guard);
	if (status == BATON_OK)
		*block_p = (struct batoni_memory_block){
			.number = memory.buffer,
			.base = (const char *)(uintptr_t)memory.base,
			.bytes = memory.bytes,
		};
	return status;
}

enum baton_status
batoni_cuda_share(struct batoni_device *device, const void *pointer,
                  size_t bytes, struct batoni_memory_shared *shared_p)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct batoni_memory_shared shared;
	struct cuda_guard guard;
	enum baton_status status = enter_sharing(gpu, &guard);

	if (status != BATON_OK)
		return status;
	status = share(gpu, pointer, bytes, &shared);
	batoni_cuda_exit(gpu, &guard);
	if (status == BATON_OK)
		*shared_p = shared;
	return status;
}

/* ---- the other process ---- */

static enum baton_status
cannot_reach(const struct cuda_gpu *gpu, int other)
{
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "CUDA device %d cannot reach the memory of device "
	                     "%d (cuDeviceCanAccessPeer)",
	                     gpu->number, other);
}

/* Can this GPU reach the one with the UUID, as far as the driver tells before it is tried? */
static enum baton_status
check_reach(const struct cuda_gpu *gpu, const struct name *name)
{
	const struct batoni_cuda_api *api = gpu->api;
	CUresult result;
	int count = 0, can = 1;

	result = api->device_count(&count);
	if (result != BATONI_CU_SUCCESS)
		return refuse_sharing(gpu, "cuDeviceGetCount", result);
	for (CUdevice i = 0; i < count; i++) {
		CUuuid uuid;

		result = api->device_uuid(&uuid, i);
		if (result != BATONI_CU_SUCCESS)
			return refuse_sharing(gpu, "cuDeviceGetUuid", result);
		if (memcmp(&uuid, &name->uuid, sizeof(uuid)) != 0)
			continue;
		if (i == gpu->number)
			return BATON_OK;
		result = api->peer_can(&can, gpu->number, i);
		if (result != BATONI_CU_SUCCESS)
			return refuse_sharing(gpu, "cuDeviceCanAccessPeer", result);
		return can ? BATON_OK : cannot_reach(gpu, i);
	}
	return BATON_OK; /* this process does not see it: the driver decides */
}

/* Is it a mapping that this GPU has no access to? */
static bool
lacks_access(const struct cuda_gpu *gpu, const void *pointer)
{
	const struct batoni_cuda_api *api = gpu->api;
	const CUmemLocation here = {BATONI_CU_LOCATION_DEVICE, gpu->number};
	unsigned long long flags = BATONI_CU_ACCESS_NONE;
	CUmemGenericAllocationHandle handle;

	if (!api->vm_retain || !api->vm_release || !api->vm_has_access)
		return false;
	/* The driver refuses memory that is no mapping's. */
	if (api->vm_retain(&handle, (void *)(uintptr_t)pointer) != // NOLINT
	    BATONI_CU_SUCCESS)
		return false;
	api->vm_release(handle);
	return api->vm_has_access(&flags, &here,
	                          (CUdeviceptr)(uintptr_t)pointer) !=
	               BATONI_CU_SUCCESS ||
	       flags != BATONI_CU_ACCESS_READ_WRITE;
}

/* Between enter and exit. */
static enum baton_status
ask_reach(const struct cuda_gpu *gpu, const void *pointer, int owner)
{
	CUresult result;
	int can = 0;

	result = gpu->api->peer_can(&can, gpu->number, owner);
	if (result != BATONI_CU_SUCCESS)
		return refuse_sharing(gpu, "cuDeviceCanAccessPeer", result);
	if (!can)
		return cannot_reach(gpu, owner);
	if (lacks_access(gpu, pointer))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "CUDA device %d has no access to the mapping "
		                     "of its memory (cuMemSetAccess)",
		                     gpu->number);
	return BATON_OK;
}

enum baton_status
batoni_cuda_reaches(struct batoni_device *device, const void *pointer, int owner)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_guard guard;
	enum baton_status status;
	CUresult result;

	if (owner == gpu->number || !gpu->api->peer_can)
		return BATON_OK;
	result = batoni_cuda_enter(gpu, &guard);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	status = ask_reach(gpu, pointer, owner);
	batoni_cuda_exit(gpu, &guard);
	return status;
}

/* Map an allocation whole.  After an error nothing is left. */
static CUresult
map_allocation(const struct cuda_gpu *gpu, CUmemGenericAllocationHandle handle,
               size_t bytes, CUdeviceptr *base_p, const char **call_p)
{
	const struct batoni_cuda_api *api = gpu->api;
	const CUmemAccessDesc access = {
		.location = {BATONI_CU_LOCATION_DEVICE, gpu->number},
		.flags = BATONI_CU_ACCESS_READ_WRITE,
	};
	CUdeviceptr base = 0;
	CUresult result;

	*call_p = "cuMemAddressReserve";
	result = api->vm_reserve(&base, bytes, 0, 0, 0);
	if (result != BATONI_CU_SUCCESS)
		return result;
	*call_p = "cuMemMap";
	result = api->vm_map(base, bytes, 0, handle, 0);
	if (result != BATONI_CU_SUCCESS)
		goto unreserve;
	*call_p = "cuMemSetAccess";
	result = api->vm_access(base, bytes, &access, 1);
	if (result != BATONI_CU_SUCCESS)
		goto unmap;
	*base_p = base;
	return result;

unmap:
	api->vm_unmap(base, bytes);
unreserve:
	api->vm_unreserve(base, bytes);
	return result;
}

static enum baton_status
map_descriptor(const struct cuda_gpu *gpu, int fd, size_t bytes,
               CUdeviceptr *base_p)
{
	const struct batoni_cuda_api *api = gpu->api;
	const char *call = "cuMemImportFromShareableHandle";
	CUmemGenericAllocationHandle handle;
	CUresult result;

	if (!has_descriptors(api))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the driver lacks virtual memory management");
	result = api->vm_import(&handle, (void *)(intptr_t)fd, // NOLINT
	                        BATONI_CU_HANDLE_FD);
	if (result == BATONI_CU_SUCCESS) {
		result = map_allocation(gpu, handle, bytes, base_p, &call);
		/* The mapping keeps the memory. */
		api->vm_release(handle);
	}
	return result == BATONI_CU_SUCCESS ? BATON_OK
	                                   : refuse_mapping(gpu, call, result);
}

static enum baton_status
map_ipc(const struct cuda_gpu *gpu, const struct name *name, CUdeviceptr *base_p)
{
	CUresult result;

	if (!has_ipc(gpu->api))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the driver has no IPC handles");
	result = gpu->api->ipc_open(base_p, name->ipc, BATONI_CU_IPC_ENABLE_PEERS);
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : refuse_mapping(gpu, "cuIpcOpenMemHandle", result);
}

/* Between enter and exit. */
static enum baton_status
map(const struct cuda_gpu *gpu, const struct name *name, int fd, size_t bytes,
    CUdeviceptr *base_p)
{
	enum baton_status status = check_reach(gpu, name);

	if (status != BATON_OK)
		return status;
	return name->kind == KIND_IPC ? map_ipc(gpu, name, base_p)
	                              : map_descriptor(gpu, fd, bytes, base_p);
}

enum baton_status
batoni_cuda_map(struct batoni_device *device,
                const struct batoni_memory_name *name_p, int fd, size_t bytes,
                void **base_p)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_guard guard;
	enum baton_status status;
	CUdeviceptr base = 0;
	struct name name;
	CUresult result;

	memcpy(&name, name_p, sizeof(name));
	if (!gpu->api->device_uuid || !gpu->api->peer_can)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the driver lacks the calls to share memory");
	result = batoni_cuda_enter(gpu, &guard);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	status = map(gpu, &name, fd, bytes, &base);
	batoni_cuda_exit(gpu, &guard);
	if (status == BATON_OK)
		*base_p = (void *)(uintptr_t)base;
	return status;
}

void
batoni_cuda_unmap(struct batoni_device *device,
                  const struct batoni_memory_name *name_p, void *at, size_t bytes)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	const struct batoni_cuda_api *api = gpu->api;
	CUdeviceptr base = (CUdeviceptr)(uintptr_t)at;
	struct cuda_guard guard;
	struct name name;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	memcpy(&name, name_p, sizeof(name));
	if (result == BATONI_CU_SUCCESS) {
		if (name.kind == KIND_IPC)
			result = api->ipc_close(base);
		else
			result = api->vm_unmap(base, bytes);
		if (result == BATONI_CU_SUCCESS && name.kind != KIND_IPC)
			result = api->vm_unreserve(base, bytes);
		batoni_cuda_exit(gpu, &guard);
	}
	if (result != BATONI_CU_SUCCESS)
		batoni_log(BATONI_LOG_WARN,
		           "CUDA device %d: memory of another process stays "
		           "mapped: error %u",
		           gpu->number, result);
}
