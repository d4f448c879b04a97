/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of the CUDA device: what pointers are, pinned memory, health.  Copies are in
 * cuda_copy.c.
 */
#include "cuda_gpu.h"

#include "thread.h"

/* ---- what a pointer is ---------------------------------------------------- */

/* What the driver says of a pointer. */
struct answer {
	unsigned type, managed;
	int ordinal;
	CUdeviceptr base;
	size_t bytes;
};

static void
describe(struct batoni_memory_info *memory, const struct answer *answer)
{
	*memory = (struct batoni_memory_info){.kind = BATONI_MEMORY_HOST,
	                                      .owner = -1};
	if (answer->type != BATONI_CU_MEMORY_HOST &&
	    answer->type != BATONI_CU_MEMORY_DEVICE)
		return;
	memory->base = (void *)(uintptr_t)answer->base;
	memory->bytes = answer->bytes;
	if (answer->managed & 1u) {
		memory->kind = BATONI_MEMORY_MANAGED;
	} else if (answer->type == BATONI_CU_MEMORY_DEVICE) {
		memory->kind = BATONI_MEMORY_DEVICE;
		memory->owner = answer->ordinal;
	} else {
		memory->kind = BATONI_MEMORY_REGISTERED;
	}
}

static CUresult
ask_pointer(const struct cuda_gpu *gpu, const void *pointer,
            struct answer *answer)
{
	CUpointer_attribute attributes[] = {
		BATONI_CU_POINTER_MEMORY_TYPE, BATONI_CU_POINTER_IS_MANAGED,
		BATONI_CU_POINTER_DEVICE_ORDINAL,
		BATONI_CU_POINTER_RANGE_START, BATONI_CU_POINTER_RANGE_SIZE};
	void *values[] = {&answer->type, &answer->managed, &answer->ordinal,
	                  &answer->base, &answer->bytes};
	CUresult result;

	*answer = (struct answer){.ordinal = -1};
	result = gpu->api->pointer_attributes(
		sizeof(attributes) / sizeof(attributes[0]), attributes, values,
		(CUdeviceptr)(uintptr_t)pointer);
	/* An address that the driver has never seen. */
	if (result == BATONI_CU_INVALID_VALUE) {
		*answer = (struct answer){.ordinal = -1};
		return BATONI_CU_SUCCESS;
	}
	return result;
}

/* One call of the driver.  It needs no current context, and no capture forbids it; a driver
 * that thinks otherwise is asked again with both in order. */
static enum baton_status
cuda_look(struct batoni_device *device, const void *pointer,
          struct batoni_memory_info *memory_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct answer answer;
	struct cuda_guard guard;
	CUresult result;
	BATONI_UNCANCELLED;

	result = ask_pointer(gpu, pointer, &answer);
	if (result != BATONI_CU_SUCCESS &&
	    batoni_cuda_enter(gpu, &guard) == BATONI_CU_SUCCESS) {
		result = ask_pointer(gpu, pointer, &answer);
		batoni_cuda_leave(gpu, &guard);
	}
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuPointerGetAttributes", result);
	describe(memory_p, &answer);
	if (memory_p->kind == BATONI_MEMORY_DEVICE)
		return batoni_cuda_gpu_prepare(gpu, memory_p->owner);
	return BATON_OK;
}

/* A driver that is not initialised, or gone, has no memory. */
static int
cuda_owner(const void *pointer)
{
	CUpointer_attribute attributes[] = {BATONI_CU_POINTER_MEMORY_TYPE,
	                                    BATONI_CU_POINTER_IS_MANAGED,
	                                    BATONI_CU_POINTER_DEVICE_ORDINAL};
	struct answer answer = {.ordinal = -1};
	void *values[] = {&answer.type, &answer.managed, &answer.ordinal};
	struct batoni_memory_info memory;
	BATONI_UNCANCELLED;

	if (batoni_cuda_ask(3, attributes, values,
	                    (CUdeviceptr)(uintptr_t)pointer) !=
	    BATONI_CU_SUCCESS)
		return -1;
	describe(&memory, &answer);
	return memory.owner;
}

/* ---- a library that reaches the memory ------------------------------------- */

enum { GUARD_MODE, GUARD_PUSHED, GUARD_CANCEL };

static enum baton_status
cuda_enter(struct batoni_device *device, struct batoni_memory_guard *guard_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_note(gpu, "cuCtxPushCurrent", result);
	guard_p->words[GUARD_MODE] = guard.mode;
	guard_p->words[GUARD_PUSHED] = guard.pushed;
	guard_p->words[GUARD_CANCEL] = (uint64_t)guard.cancel_state;
	return BATON_OK;
}

static void
cuda_leave(struct batoni_device *device, const struct batoni_memory_guard *guard)
{
	const struct cuda_guard left = {
		.mode = (CUstreamCaptureMode)guard->words[GUARD_MODE],
		.pushed = guard->words[GUARD_PUSHED] != 0,
		.cancel_state = (int)guard->words[GUARD_CANCEL],
	};

	batoni_cuda_leave(batoni_cuda_gpu(device), &left);
}

/* By the GPU that has the memory. */
static enum baton_status
cuda_flush(struct batoni_device *device, int owner)
{
	struct cuda_gpu *ours = batoni_cuda_gpu(device), *gpu = ours;
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result;

	if (owner >= 0 && owner != ours->number)
		gpu = batoni_cuda_gpu_find(owner);
	if (!gpu || !gpu->flushes)
		return BATON_OK;
	result = batoni_cuda_enter(gpu, &guard);
	if (result == BATONI_CU_SUCCESS) {
		call = "cuFlushGPUDirectRDMAWrites";
		result = gpu->api->flush_remote_writes(
			BATONI_CU_RDMA_FLUSH_CURRENT,
			BATONI_CU_RDMA_FLUSH_TO_OWNER);
		batoni_cuda_leave(gpu, &guard);
	}
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_note(ours, call, result);
}

/* ---- pinned memory --------------------------------------------------------- */

static enum baton_status
cuda_pinned_alloc(struct batoni_device *device, size_t bytes,
                  uint64_t until_ns, void **block_p)
{
	struct cuda_block *block;
	enum baton_status status = batoni_cuda_block_take(
		batoni_cuda_gpu(device), bytes, false, until_ns, &block);

	if (status != BATON_OK)
		return status;
	*block_p = block->base;
	batoni_cuda_block_reserve(batoni_cuda_gpu(device), block);
	return BATON_OK;
}

static void
cuda_pinned_free(struct batoni_device *device, void *memory)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_block *block = batoni_cuda_block_of(gpu, memory);

	if (block)
		batoni_cuda_block_give(gpu, block);
}

/* ---- health --------------------------------------------------------------- */

static enum baton_status
cuda_health(struct batoni_device *device, struct batoni_fault *fault_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	CUresult result;

	if (!atomic_load(&gpu->sick)) {
		/* A stream of ours tells of sticky errors. */
		result = batoni_cuda_copies_query(gpu);
		if (result == BATONI_CU_SUCCESS ||
		    result == BATONI_CU_NOT_READY)
			return BATON_OK;
		batoni_cuda_fail(gpu, "cuStreamQuery", result);
	}
	pthread_mutex_lock(&gpu->lock);
	*fault_p = gpu->fault;
	pthread_mutex_unlock(&gpu->lock);
	return BATON_ERR_CUDA;
}

static void
cuda_why(struct batoni_device *device, struct batoni_fault *fault_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);

	pthread_mutex_lock(&gpu->lock);
	*fault_p = gpu->last;
	pthread_mutex_unlock(&gpu->lock);
}

static void
cuda_error_text(struct batoni_device *device, int code, char *text, size_t size)
{
	batoni_cuda_describe(batoni_cuda_gpu(device)->api, (CUresult)code, text,
	                     size);
}

const struct batoni_memory_ops batoni_cuda_memory_ops = {
	.host_only = false,
	.look = cuda_look,
	.pinned_alloc = cuda_pinned_alloc,
	.pinned_free = cuda_pinned_free,
	.copy_start = batoni_cuda_copy_start,
	.copies_start = batoni_cuda_copies_start,
	.copy_test = batoni_cuda_copy_test,
	.enter = cuda_enter,
	.leave = cuda_leave,
	.flush = cuda_flush,
	.why = cuda_why,
	.error_text = cuda_error_text,
	.health = cuda_health,
	.reaches = batoni_cuda_reaches,
	.share = batoni_cuda_share,
	.map = batoni_cuda_map,
	.unmap = batoni_cuda_unmap,
	.block_alloc = batoni_cuda_block_alloc,
	.block_free = batoni_cuda_block_free,
	.pin = batoni_cuda_pin,
	.unpin = batoni_cuda_unpin,
	.present = batoni_cuda_present,
	.owner = cuda_owner,
};
