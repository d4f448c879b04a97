/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory for windows.
 *
 * A block is an allocation of virtual memory management of its own, as NCCL wants it for its
 * windows (ncclMemAlloc makes the same): pinned on the GPU, of the granularity that the driver
 * recommends, exportable as a file descriptor, reachable by network adapters where the GPU says so,
 * and with access for this GPU and those that can reach it.  Where GPU or driver have no such
 * memory, a block is memory of cuMemAlloc.
 *
 * The calls of virtual memory management wait for no stream, as far as is known; cuMemAlloc and
 * cuMemFree may wait for every stream of the context, and one of them may wait for something that
 * the caller does later.  So each of these calls is made by a thread of its own, a *job*, which
 * the caller waits for until its time is over.  A block that comes too late is freed by its job.  A
 * block that is freed goes when the driver lets it, if that takes longer than FREE_NS.
 *
 * Memory is zeroed by the GPU on an internal stream, which no stream of the program holds up.
 *
 * Locks.  `lock` guards the list of blocks, and a job's `done` and `left`.  No driver call is made
 * under it.
 */
#include "cuda_gpu.h"

#include <pthread.h>
#include <time.h>

#include "clock.h"
#include "cond.h"
#include "mem.h"
#include "thread.h"

#define LEAST_NS 500000000u
#define FREE_NS 1000000000u
#define NAP_NS 20000
#define ACCESSES_MAX 64

struct block {
	struct batoni_list_node link; /* of blocks, while it is the caller's */
	struct cuda_gpu *gpu;
	CUdeviceptr base;
	size_t bytes; /* rounded up */
	bool mapped;  /* else of cuMemAlloc */
};

struct job {
	struct block *block;
	bool frees;
	CUresult result; /* of an allocation */
	const char *call;
	bool done, left; /* the caller waits no more: the job frees itself */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended; /* CLOCK_MONOTONIC */
static pthread_once_t ended_once = PTHREAD_ONCE_INIT;
static struct batoni_list_node blocks = {&blocks, &blocks};

static void
make_ended(void)
{
	batoni_cond_init(&ended);
}

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

/* The block's addresses.  After an error none are left. */
static CUresult
map_block(struct job *job, CUmemGenericAllocationHandle handle,
          size_t granularity)
{
	struct block *block = job->block;
	const struct batoni_cuda_api *api = block->gpu->api;
	CUmemAccessDesc accesses[ACCESSES_MAX];
	size_t n = list_accesses(block->gpu, accesses);
	CUresult result;

	job->call = "cuMemAddressReserve";
	result = api->vm_reserve(&block->base, block->bytes, granularity, 0, 0);
	if (result != BATONI_CU_SUCCESS)
		return result;
	job->call = "cuMemMap";
	result = api->vm_map(block->base, block->bytes, 0, handle, 0);
	if (result != BATONI_CU_SUCCESS)
		goto unreserve;
	job->call = "cuMemSetAccess";
	result = api->vm_access(block->base, block->bytes, accesses, n);
	/* A peer that the driver does not take is reached by other ways. */
	if (result != BATONI_CU_SUCCESS && n > 1)
		result = api->vm_access(block->base, block->bytes, accesses, 1);
	if (result == BATONI_CU_SUCCESS)
		return result;
	api->vm_unmap(block->base, block->bytes);
unreserve:
	api->vm_unreserve(block->base, block->bytes);
	return result;
}

/* NOT_SUPPORTED: there is no such memory. */
static CUresult
create(struct job *job)
{
	struct block *block = job->block;
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
	job->call = "cuMemGetAllocationGranularity";
	result = gpu->api->vm_granularity(&granularity, &properties,
	                                  BATONI_CU_GRANULARITY_BEST);
	if (result != BATONI_CU_SUCCESS)
		return result;
	/* More than any driver gives; rounded up, it would be little. */
	job->call = "cuMemCreate, not called with more than there are addresses";
	if (block->bytes > SIZE_MAX - granularity)
		return BATONI_CU_OUT_OF_MEMORY;
	block->bytes = (block->bytes + granularity - 1) / granularity *
	               granularity;
	job->call = "cuMemCreate";
	result = gpu->api->vm_create(&handle, block->bytes, &properties, 0);
	if (result != BATONI_CU_SUCCESS)
		return result;
	result = map_block(job, handle, granularity);
	/* The mapping keeps the memory. */
	gpu->api->vm_release(handle);
	block->mapped = result == BATONI_CU_SUCCESS;
	return result;
}

/* ---- a block ---- */

/* Between enter and leave. */
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

/* Wait for the event, or, without one, for all of the stream.  A query that fails is made again:
 * see cuda_memory.c. */
static CUresult
await_stream(const struct cuda_gpu *gpu, const struct cuda_event *event)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	CUresult result = BATONI_CU_NOT_READY;

	for (unsigned failures = 0; failures < CUDA_TRIES;) {
		result = event ? gpu->api->event_query(event->event)
		               : gpu->api->stream_query(
				       gpu->copies[CUDA_COPIES_OTHER]);
		if (result == BATONI_CU_SUCCESS)
			return result;
		failures += result != BATONI_CU_NOT_READY;
		nanosleep(&nap, NULL);
	}
	return result;
}

/* Between enter and leave.  *writes_p: the GPU may still write there. */
static CUresult
zero(struct job *job, bool *writes_p)
{
	struct cuda_gpu *gpu = job->block->gpu;
	CUstream stream = gpu->copies[CUDA_COPIES_OTHER];
	struct cuda_event *event;
	CUresult result;

	job->call = "cuMemsetD8Async";
	result = gpu->api->set_bytes(job->block->base, 0, job->block->bytes,
	                             stream);
	if (result != BATONI_CU_SUCCESS)
		return result;
	event = batoni_cuda_event_take(gpu, &result);
	if (event &&
	    gpu->api->event_record(event->event, stream) != BATONI_CU_SUCCESS) {
		batoni_cuda_event_give(gpu, event);
		event = NULL;
	}
	job->call = event ? "cuEventQuery" : "cuStreamQuery";
	result = await_stream(gpu, event);
	*writes_p = result != BATONI_CU_SUCCESS;
	if (event && *writes_p)
		batoni_cuda_event_lose(gpu, event);
	else if (event)
		batoni_cuda_event_give(gpu, event);
	return result;
}

/* Between enter and leave. */
static CUresult
allocate(struct job *job)
{
	struct block *block = job->block;
	const struct batoni_cuda_api *api = block->gpu->api;
	bool writes = false;
	CUresult result;

	/* A driver may lack them, as far as the look-up is concerned. */
	job->call = "cuMemAlloc";
	if (!api->mem_alloc || !api->mem_free || !api->set_bytes)
		return BATONI_CU_NOT_SUPPORTED;
	result = create(job);
	if (result == BATONI_CU_NOT_SUPPORTED) {
		job->call = "cuMemAlloc";
		result = api->mem_alloc(&block->base, block->bytes);
	}
	if (result != BATONI_CU_SUCCESS)
		return result;
	result = zero(job, &writes);
	/* Memory that a sick GPU may still write is never given back. */
	if (result != BATONI_CU_SUCCESS && !writes)
		give_back(block);
	return result;
}

/* ---- jobs ---- */

static void
free_job(struct job *job, bool with_block)
{
	batoni_mem_keep(with_block ? -2 : -1);
	if (with_block)
		batoni_free(job->block);
	batoni_free(job);
}

/* A free returns no error of the driver: what fails in passing is tried again. */
static bool
enter(struct job *job, struct cuda_guard *guard)
{
	unsigned tries = job->frees ? CUDA_TRIES : 1;

	job->call = "cuCtxPushCurrent";
	do
		job->result = batoni_cuda_enter(job->block->gpu, guard);
	while (job->result != BATONI_CU_SUCCESS && --tries > 0);
	return job->result == BATONI_CU_SUCCESS;
}

static void *
job_main(void *argument)
{
	struct job *job = argument;
	struct block *block = job->block;
	const struct cuda_gpu *gpu = block->gpu;
	struct cuda_guard guard;
	bool left, entered;

	entered = enter(job, &guard);
	if (entered && job->frees)
		give_back(block);
	else if (entered)
		job->result = allocate(job);
	pthread_mutex_lock(&lock);
	left = job->left;
	job->done = true;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
	/* Unless it is left, job and block are the caller's from here on. */
	if (left && !job->frees && job->result == BATONI_CU_SUCCESS)
		give_back(block);
	if (entered)
		batoni_cuda_leave(gpu, &guard);
	if (left)
		free_job(job, true);
	return NULL;
}

/* False: it goes on by itself, and is not the caller's any more. */
static bool
await(struct job *job, uint64_t until_ns)
{
	const struct timespec time = {(time_t)(until_ns / 1000000000u),
	                              (long)(until_ns % 1000000000u)};
	bool done;

	pthread_mutex_lock(&lock);
	while (!job->done && batoni_real_ns() < until_ns)
		pthread_cond_timedwait(&ended, &lock, &time);
	done = job->done;
	job->left = !done;
	pthread_mutex_unlock(&lock);
	return done;
}

/* A thread for the job.  Job and block count as kept for good while it runs. */
static bool
start(struct job *job)
{
	pthread_t thread;

	pthread_once(&ended_once, make_ended);
	batoni_mem_keep(2);
	if (batoni_thread_start(&thread, job_main, job)) {
		batoni_mem_keep(-2);
		return false;
	}
	pthread_detach(thread);
	return true;
}

/* ---- the slots ---- */

static enum baton_status
refuse_late(const struct cuda_gpu *gpu, uint64_t begun_ns)
{
	return batoni_refuse(
		BATON_ERR_TIMEOUT,
		"no device memory after %llu ms: the driver does not return, as a "
		"stream of CUDA device %d waits for an operation, or for something "
		"of the program's own; allocate before streams wait, or let them "
		"go on first",
		(unsigned long long)((batoni_real_ns() - begun_ns) / 1000000u),
		gpu->number);
}

/* What is not NULL is freed. */
static enum baton_status
refuse_memory(struct job *job, struct block *block)
{
	batoni_free(job);
	batoni_free(block);
	return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
}

enum baton_status
batoni_cuda_block_alloc(struct batoni_device *device, size_t bytes,
                        uint64_t until_ns, void **block_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct job *job = batoni_alloc(1, sizeof(*job));
	struct block *block = batoni_alloc(1, sizeof(*block));
	uint64_t begun_ns = batoni_real_ns();
	enum baton_status status;

	if (!job || !block)
		return refuse_memory(job, block);
	block->gpu = gpu;
	block->bytes = bytes;
	batoni_list_init(&block->link);
	job->block = block;
	if (!start(job)) {
		(void)refuse_memory(job, block);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "no thread to allocate device memory on");
	}
	if (until_ns < begun_ns + LEAST_NS)
		until_ns = begun_ns + LEAST_NS;
	if (!await(job, until_ns))
		return refuse_late(gpu, begun_ns);
	if (job->result != BATONI_CU_SUCCESS) {
		status = batoni_cuda_refuse(gpu, job->call, job->result);
		free_job(job, true);
		return status;
	}
	batoni_mem_keep(-1);
	free_job(job, false);
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
	struct job *job;

	(void)device;
	if (!block)
		return;
	job = batoni_alloc(1, sizeof(*job));
	if (job) {
		job->block = block;
		job->frees = true;
	}
	if (job && start(job)) {
		if (await(job, batoni_real_ns() + FREE_NS))
			free_job(job, true);
		return;
	}
	/* Without a thread the memory stays. */
	batoni_free(job);
	batoni_free(block);
}
