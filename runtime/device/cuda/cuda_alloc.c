/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory for windows.
 *
 * A block is an allocation of its own, by virtual memory management, as NCCL wants it for its
 * windows (ncclMemAlloc makes the same): pinned on the GPU, of the granularity that the driver
 * recommends, exportable as a file descriptor, open to network adapters where the GPU supports
 * that, and accessible to this GPU and those that can reach it.  Where GPU or driver have no such
 * memory, a block is memory of cuMemAlloc.
 *
 * The calls of virtual memory management wait for no stream, as far as is known; cuMemAlloc and
 * cuMemFree may wait for every stream of the context, and one of them may wait for something that
 * the caller does later.  So each of these calls is a job (thread.h), and the caller waits for it until
 * its time is over.  A job that allocates too late frees its block again.  A job that frees may take
 * longer than FREE_NS; the caller then returns, and the job ends by itself.
 *
 * The GPU zeroes the memory on an internal stream, which no stream of the program holds up.
 *
 * Locks.  `lock` guards the list of blocks.  No driver call is made under it.
 */
#include "cuda_gpu.h"

#include <pthread.h>
#include <time.h>

#include "clock.h"
#include "mem.h"
#include "thread.h"

#define FREE_NS 1000000000u
#define PAUSE_NS 20000
#define ACCESSES_MAX 64

struct block {
	struct batoni_job job;        /* the one that allocates or frees it */
	struct batoni_list_node link; /* of blocks, while it is the caller's */
	struct cuda_gpu *gpu;
	CUdeviceptr base;
	size_t bytes; /* rounded up */
	bool mapped;  /* else of cuMemAlloc */
	/* How the allocation ended. */
	CUresult result;
	const char *call;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node blocks = {&blocks, &blocks};

/* ---- virtual memory management ---- */

static bool
has_calls(const struct batoni_cuda_api *api)
{
	return api->vm_granularity && api->vm_create && api->vm_release &&
	       api->vm_reserve && api->vm_unreserve && api->vm_map &&
	       api->vm_unmap && api->vm_access && api->peer_can;
}

static bool
says(const struct cuda_gpu *gpu, CUdevice_attribute attribute)
{
	int value = 0;

	return gpu->api->device_attribute(&value, attribute, gpu->number) ==
	               BATONI_CU_SUCCESS &&
	       value;
}

/* The GPUs that can reach this one, itself the first. */
static size_t
list_accesses(const struct cuda_gpu *gpu, CUmemAccessDesc accesses[])
{
	int count = 0, can = 0;
	size_t n = 0;

	accesses[n++] = (CUmemAccessDesc){
		.location = {BATONI_CU_LOCATION_DEVICE, gpu->number},
		.flags = BATONI_CU_ACCESS_READ_WRITE,
	};
	if (gpu->api->device_count(&count) != BATONI_CU_SUCCESS)
		return n;
	for (CUdevice i = 0; i < count && n < ACCESSES_MAX; i++) {
		if (i == gpu->number ||
		    gpu->api->peer_can(&can, i, gpu->number) !=
		            BATONI_CU_SUCCESS ||
		    !can)
			continue;
		accesses[n] = accesses[0];
		accesses[n++].location.id = i;
	}
	return n;
}

/* Reserve the block's addresses and map it there.  After an error none are reserved. */
static CUresult
map_block(struct block *block, CUmemGenericAllocationHandle handle,
          size_t granularity)
{
	const struct batoni_cuda_api *api = block->gpu->api;
	CUmemAccessDesc accesses[ACCESSES_MAX];
	size_t n = list_accesses(block->gpu, accesses);
	CUresult result;

	block->call = "cuMemAddressReserve";
	result = api->vm_reserve(&block->base, block->bytes, granularity, 0, 0);
	if (result != BATONI_CU_SUCCESS)
		return result;
	block->call = "cuMemMap";
	result = api->vm_map(block->base, block->bytes, 0, handle, 0);
	if (result != BATONI_CU_SUCCESS)
		goto unreserve;
	block->call = "cuMemSetAccess";
	result = api->vm_access(block->base, block->bytes, accesses, n);
	/* Where the driver refuses a peer, this GPU alone gets access. */
	if (result != BATONI_CU_SUCCESS && n > 1)
		result = api->vm_access(block->base, block->bytes, accesses, 1);
	if (result == BATONI_CU_SUCCESS)
		return result;
	api->vm_unmap(block->base, block->bytes);
unreserve:
	api->vm_unreserve(block->base, block->bytes);
	return result;
}

/* By virtual memory management.  NOT_SUPPORTED: GPU or driver has no such memory. */
static CUresult
create(struct block *block)
{
	const struct cuda_gpu *gpu = block->gpu;
	CUmemAllocationProp properties = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.requestedHandleTypes = BATONI_CU_HANDLE_FD,
		.location = {BATONI_CU_LOCATION_DEVICE, gpu->number},
	};
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;
	CUresult result;

	if (!has_calls(gpu->api) || !says(gpu, BATONI_CU_DEVICE_VMM) ||
	    !says(gpu, BATONI_CU_DEVICE_FD_HANDLES))
		return BATONI_CU_NOT_SUPPORTED;
	properties.allocFlags.gpuDirectRDMACapable =
		says(gpu, BATONI_CU_DEVICE_VMM_RDMA);
	block->call = "cuMemGetAllocationGranularity";
	result = gpu->api->vm_granularity(&granularity, &properties,
	                                  BATONI_CU_GRANULARITY_BEST);
	if (result != BATONI_CU_SUCCESS)
		return result;
	/* No driver gives so much, and rounding up would wrap around. */
	block->call = "cuMemCreate, not called with more than there are addresses";
	if (block->bytes > SIZE_MAX - granularity)
		return BATONI_CU_OUT_OF_MEMORY;
	block->bytes = (block->bytes + granularity - 1) / granularity *
	               granularity;
	block->call = "cuMemCreate";
	result = gpu->api->vm_create(&handle, block->bytes, &properties, 0);
	if (result != BATONI_CU_SUCCESS)
		return result;
	result = map_block(block, handle, granularity);
	/* The mapping keeps the memory. */
	gpu->api->vm_release(handle);
	block->mapped = result == BATONI_CU_SUCCESS;
	return result;
}

/* ---- a block ---- */

/* Between enter and exit. */
static void
give_back(const struct block *block)
{
	const struct batoni_cuda_api *api = block->gpu->api;

	if (!block->mapped) {
		api->mem_free(block->base);
		return;
	}
	api->vm_unmap(block->base, block->bytes);
	api->vm_unreserve(block->base, block->bytes);
}

/* Wait for the event, or, without one, for all of the stream.  A query that fails is repeated:
 * see cuda_copy.c. */
static CUresult
await_stream(const struct cuda_gpu *gpu, const struct cuda_event *event)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	CUresult result = BATONI_CU_NOT_READY;

	for (unsigned failures = 0; failures < CUDA_TRIES;) {
		result = event ? gpu->api->event_query(event->event)
		               : gpu->api->stream_query(
					 gpu->copies[CUDA_COPIES_OTHER]);
		if (result == BATONI_CU_SUCCESS)
			return result;
		failures += result != BATONI_CU_NOT_READY;
		nanosleep(&pause, NULL);
	}
	return result;
}

/* Between enter and exit.  *writes_p: the GPU may still write there. */
static CUresult
zero(struct block *block, bool *writes_p)
{
	struct cuda_gpu *gpu = block->gpu;
	CUstream stream = gpu->copies[CUDA_COPIES_OTHER];
	struct cuda_event *event;
	CUresult result;

	block->call = "cuMemsetD8Async";
	result = gpu->api->set_bytes(block->base, 0, block->bytes, stream);
	if (result != BATONI_CU_SUCCESS)
		return result;
	event = batoni_cuda_event_take(gpu, &result);
	if (event &&
	    gpu->api->event_record(event->event, stream) != BATONI_CU_SUCCESS) {
		batoni_cuda_event_give(gpu, event);
		event = NULL;
	}
	block->call = event ? "cuEventQuery" : "cuStreamQuery";
	result = await_stream(gpu, event);
	*writes_p = result != BATONI_CU_SUCCESS;
	if (event && *writes_p)
		batoni_cuda_event_lose(gpu, event);
	else if (event)
		batoni_cuda_event_give(gpu, event);
	return result;
}

/* Between enter and exit. */
static CUresult
allocate(struct block *block)
{
	const struct batoni_cuda_api *api = block->gpu->api;
	bool writes = false;
	CUresult result;

	/* These are optional in the table of functions. */
	block->call = "cuMemAlloc";
	if (!api->mem_alloc || !api->mem_free || !api->set_bytes)
		return BATONI_CU_NOT_SUPPORTED;
	result = create(block);
	if (result == BATONI_CU_NOT_SUPPORTED) {
		block->call = "cuMemAlloc";
		result = api->mem_alloc(&block->base, block->bytes);
	}
	if (result != BATONI_CU_SUCCESS)
		return result;
	result = zero(block, &writes);
	/* Memory that a sick GPU may still write to is leaked on purpose. */
	if (result != BATONI_CU_SUCCESS && !writes)
		give_back(block);
	return result;
}

/* ---- jobs ---- */

static struct block *
to_block(struct batoni_job *job)
{
	return batoni_container_of(job, struct block, job);
}

static void
run_alloc(struct batoni_job *job)
{
	struct block *block = to_block(job);
	struct cuda_guard guard;

	block->call = "cuCtxPushCurrent";
	block->result = batoni_cuda_enter(block->gpu, &guard);
	if (block->result != BATONI_CU_SUCCESS)
		return;
	block->result = allocate(block);
	batoni_cuda_exit(block->gpu, &guard);
}

/* A free reports no error of the driver; entering the context is tried again. */
static void
run_free(struct batoni_job *job)
{
	struct block *block = to_block(job);
	unsigned tries = CUDA_TRIES;
	struct cuda_guard guard;
	CUresult result;

	do
		result = batoni_cuda_enter(block->gpu, &guard);
	while (result != BATONI_CU_SUCCESS && --tries > 0);
	if (result != BATONI_CU_SUCCESS)
		return;
	give_back(block);
	batoni_cuda_exit(block->gpu, &guard);
}

/* While a job has a block, it counts as kept for good (mem.h). */
static void
free_block(struct batoni_job *job)
{
	batoni_mem_keep(-1);
	batoni_free(to_block(job));
}

/* The allocation has ended after its caller had given it up. */
static void
cleanup_alloc(struct batoni_job *job)
{
	if (to_block(job)->result == BATONI_CU_SUCCESS)
		run_free(job);
	free_block(job);
}

static bool
start_job(struct block *block, void (*run)(struct batoni_job *),
          void (*cleanup)(struct batoni_job *))
{
	block->job = (struct batoni_job){.run = run, .cleanup = cleanup};
	batoni_mem_keep(1);
	if (batoni_job_start(&block->job) == 0)
		return true;
	batoni_mem_keep(-1);
	return false;
}

/* ---- the slots ---- */

enum baton_status
batoni_cuda_block_alloc(struct batoni_device *device, size_t bytes,
                        uint64_t until_ns, void **block_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct block *block = batoni_alloc(1, sizeof(*block));
	uint64_t begun_ns = batoni_real_ns();
	enum baton_status status;

	if (!block)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	block->gpu = gpu;
	block->bytes = bytes;
	batoni_list_init(&block->link);
	if (!start_job(block, run_alloc, cleanup_alloc)) {
		batoni_free(block);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "no thread to allocate device memory on");
	}
	if (!batoni_job_finish(&block->job,
	                       batoni_cuda_until(begun_ns, until_ns)))
		return batoni_cuda_refuse_late(gpu, begun_ns, "no device memory",
		                               "allocate");
	if (block->result != BATONI_CU_SUCCESS) {
		status = batoni_cuda_refuse(gpu, block->call, block->result);
		free_block(&block->job);
		return status;
	}
	batoni_mem_keep(-1);
	pthread_mutex_lock(&lock);
	batoni_list_append(&blocks, &block->link);
	pthread_mutex_unlock(&lock);
	*block_p = (void *)(uintptr_t)block->base;
	return BATON_OK;
}

static struct block *
take_block(const void *at)
{
	struct block *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct batoni_list_node *node = blocks.next;
	     node != &blocks && !found; node = node->next) {
		struct block *block =
			batoni_container_of(node, struct block, link);

		if (block->base == (CUdeviceptr)(uintptr_t)at)
			found = block;
	}
	if (found)
		batoni_list_remove(&found->link);
	pthread_mutex_unlock(&lock);
	return found;
}

void
batoni_cuda_block_free(struct batoni_device *device, void *at)
{
	struct block *block = take_block(at);

	(void)device;
	if (!block)
		return;
	if (!start_job(block, run_free, free_block))
		batoni_free(block); /* without a thread the device memory is leaked */
	else if (batoni_job_finish(&block->job, batoni_real_ns() + FREE_NS))
		free_block(&block->job);
}
