/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of the CUDA device: what pointers are, pinned memory, health.  Copies are in
 * cuda_copy.c.
 */
#include "cuda_gpu.h"

#include "thread.h"

/* ---- what a pointer is ---------------------------------------------------- */

/*
 * A buffer must not run past its allocation: the driver would refuse its copies later, and the
 * communicator would break.  So the call that names such a buffer in memory of a device is refused.  What the
 * driver tells of an address is its *range*: for cuMemAlloc the allocation; for virtual memory
 * management the reserved addresses, whatever part of them is mapped (PyTorch's expandable segments
 * reserve more than the GPU has, and map pieces of 2 or 20 MiB side by side).
 *
 *   - If the buffer goes on behind the range, the driver is asked for the next address, and so on.
 *     Adjacent ranges of one GPU may hold a buffer together.
 *   - A range of mappings may have holes; an allocation has none, and is known by its IPC handle, which no
 *     mapping has.  In a range that may have holes the driver is asked for the buffer's last byte too, unless
 *     that is in the page of the first one: the driver maps no less than a page.
 *
 * The usual case takes one driver call.  A buffer is refused only where the driver says that an address
 * is no memory of that GPU; where the driver does not know the range, or the range lacks the address,
 * nothing is refused.  Managed memory is examined only for what is behind its range.  Beside pinned
 * memory the host may use what it likes (location.c).
 */
#define PAGE ((CUdeviceptr)65536)

/* What the driver says of a pointer. */
struct answer {
	unsigned type, managed;
	int ordinal;
	CUdeviceptr base; /* the range's */
	size_t bytes;
	int mapped, ipc_capable;
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
ask_pointer(const struct cuda_gpu *gpu, CUdeviceptr pointer,
            struct answer *answer)
{
	CUpointer_attribute attributes[] = {
		BATONI_CU_POINTER_MEMORY_TYPE, BATONI_CU_POINTER_IS_MANAGED,
		BATONI_CU_POINTER_DEVICE_ORDINAL,
		BATONI_CU_POINTER_RANGE_START, BATONI_CU_POINTER_RANGE_SIZE,
		BATONI_CU_POINTER_MAPPED, BATONI_CU_POINTER_IS_IPC_CAPABLE};
	void *values[] = {&answer->type, &answer->managed, &answer->ordinal,
	                  &answer->base, &answer->bytes, &answer->mapped,
	                  &answer->ipc_capable};
	CUresult result;

	*answer = (struct answer){.ordinal = -1};
	result = gpu->api->pointer_attributes(
		sizeof(attributes) / sizeof(attributes[0]), attributes, values,
		pointer);
	/* The driver has never seen the address. */
	if (result == BATONI_CU_INVALID_VALUE) {
		*answer = (struct answer){.ordinal = -1};
		return BATONI_CU_SUCCESS;
	}
	return result;
}

/* Ask the driver by one call, which needs no current context, and which no capture forbids.  If the
 * driver refuses all the same, ask again between enter and exit. */
static enum baton_status
ask_anyhow(const struct cuda_gpu *gpu, CUdeviceptr pointer, struct answer *answer)
{
	CUresult result = ask_pointer(gpu, pointer, answer);
	struct cuda_guard guard;

	if (result != BATONI_CU_SUCCESS &&
	    batoni_cuda_enter(gpu, &guard) == BATONI_CU_SUCCESS) {
		result = ask_pointer(gpu, pointer, answer);
		batoni_cuda_exit(gpu, &guard);
	}
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_refuse(gpu, "cuPointerGetAttributes",
	                                    result);
}

/* The bytes from the pointer to the end of its range; 0: the driver does not say. */
static size_t
left_in_range(const struct answer *answer, CUdeviceptr pointer)
{
	CUdeviceptr offset = pointer - answer->base;

	return answer->base != 0 && offset < answer->bytes
	               ? answer->bytes - (size_t)offset
	               : 0;
}

/* Is the other address memory of the same GPU, or managed as well? */
static bool
is_alike(const struct answer *first, const struct answer *other)
{
	if ((first->managed | other->managed) & 1u)
		return (first->managed & other->managed & 1u) != 0;
	return other->type == first->type &&
	       other->ordinal == first->ordinal &&
	       (!first->mapped || other->mapped);
}

static enum baton_status
refuse_buffer(CUdeviceptr pointer, size_t bytes, const struct answer *first,
              CUdeviceptr end)
{
	return batoni_refuse(
		BATON_ERR_INVALID,
		"the buffer of %zu bytes at %#llx runs past its memory: the "
		"allocation, or what is mapped side by side, is of %zu bytes, of "
		"which %zu are behind that address",
		bytes, (unsigned long long)pointer, (size_t)(end - first->base),
		(size_t)(end - pointer));
}

static enum baton_status
refuse_hole(CUdeviceptr pointer, size_t bytes, const struct answer *first)
{
	return batoni_refuse(
		BATON_ERR_INVALID,
		"the buffer of %zu bytes at %#llx runs past its memory: at its "
		"last byte nothing of that GPU is mapped, in a range of %zu bytes "
		"that is reserved (cuMemAddressReserve), of which %zu are behind "
		"that address",
		bytes, (unsigned long long)pointer, first->bytes,
		left_in_range(first, pointer));
}

/* The bytes go on behind the range: ask for the ranges that follow.  *last_p: the answer for the last
 * one. */
static enum baton_status
follow_ranges(const struct cuda_gpu *gpu, CUdeviceptr pointer, size_t bytes,
              const struct answer *first, struct answer *last_p)
{
	size_t left = left_in_range(first, pointer), covered = left;
	enum baton_status status;

	*last_p = *first;
	while (left > 0 && covered < bytes) {
		status = ask_anyhow(gpu, pointer + covered, last_p);
		if (status != BATON_OK)
			return status;
		if (!is_alike(first, last_p))
			return refuse_buffer(pointer, bytes, first,
			                     pointer + covered);
		left = left_in_range(last_p, pointer + covered);
		covered += left;
	}
	return BATON_OK;
}

/* Memory of a device, or managed: does it end before these bytes do? */
static enum baton_status
check_end(const struct cuda_gpu *gpu, CUdeviceptr pointer, size_t bytes,
          const struct answer *first)
{
	CUdeviceptr end = pointer + (bytes - 1);
	struct answer last = *first;
	enum baton_status status = BATON_OK;

	if (left_in_range(first, pointer) < bytes)
		status = follow_ranges(gpu, pointer, bytes, first, &last);
	if (status != BATON_OK || last.ipc_capable || last.managed & 1u ||
	    pointer / PAGE == end / PAGE)
		return status;
	status = ask_anyhow(gpu, end, &last);
	return status != BATON_OK || is_alike(first, &last)
	               ? status
	               : refuse_hole(pointer, bytes, first);
}

static enum baton_status
cuda_inspect(struct batoni_device *device, const void *pointer, size_t bytes,
             struct batoni_memory_info *memory_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
	struct answer answer;
	enum baton_status status;
	BATONI_UNCANCELLED;

	status = ask_anyhow(gpu, address, &answer);
	if (status != BATON_OK)
		return status;
	describe(memory_p, &answer);
	if (memory_p->kind >= BATONI_MEMORY_MANAGED)
		status = check_end(gpu, address, bytes, &answer);
	else if (memory_p->kind == BATONI_MEMORY_HOST &&
	         left_in_range(&answer, address) > 0 && !answer.mapped)
		status = batoni_refuse(
			BATON_ERR_INVALID,
			"at %p nothing is mapped, in a range of %zu bytes that "
			"is reserved (cuMemAddressReserve)",
			pointer, answer.bytes);
	if (status == BATON_OK && memory_p->kind == BATONI_MEMORY_DEVICE)
		status = batoni_cuda_gpu_prepare(gpu, memory_p->owner);
	return status;
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
	CUresult result;

	batoni_cuda_doubt();
	result = batoni_cuda_enter(gpu, &guard);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_note(gpu, "cuCtxPushCurrent", result);
	batoni_cuda_lend(gpu);
	guard_p->words[GUARD_MODE] = guard.mode;
	guard_p->words[GUARD_PUSHED] = guard.pushed;
	guard_p->words[GUARD_CANCEL] = (uint64_t)guard.cancel_state;
	return BATON_OK;
}

static void
cuda_exit(struct batoni_device *device, const struct batoni_memory_guard *guard)
{
	const struct cuda_guard left = {
		.mode = (CUstreamCaptureMode)guard->words[GUARD_MODE],
		.pushed = guard->words[GUARD_PUSHED] != 0,
		.cancel_state = (int)guard->words[GUARD_CANCEL],
	};

	batoni_cuda_lend(NULL);
	batoni_cuda_exit(batoni_cuda_gpu(device), &left);
	batoni_cuda_doubt();
}

/* The GPU that has the memory flushes. */
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
		batoni_cuda_exit(gpu, &guard);
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
		/* A query of an internal stream returns sticky errors. */
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

static uint64_t
cuda_available(struct batoni_device *device)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	size_t left = 0, all;
	struct cuda_guard guard;

	if (!gpu->api->mem_info ||
	    batoni_cuda_enter(gpu, &guard) != BATONI_CU_SUCCESS)
		return 0;
	if (gpu->api->mem_info(&left, &all) != BATONI_CU_SUCCESS)
		left = 0;
	batoni_cuda_exit(gpu, &guard);
	return left;
}

static const struct batoni_batch_ops batches = {
	.copies_start = batoni_cuda_copies_start,
};

static const struct batoni_library_ops library = {
	.mpi_query = "MPIX_Query_cuda_support",
	.enter = cuda_enter,
	.exit = cuda_exit,
	.flush = cuda_flush,
	.available = cuda_available,
};

static const struct batoni_presence_ops presence = {
	.present = batoni_cuda_present,
	.owner = cuda_owner,
};

static const struct batoni_sharing_ops sharing = {
	.identify = batoni_cuda_identify,
	.share = batoni_cuda_share,
	.map = batoni_cuda_map,
	.unmap = batoni_cuda_unmap,
};

static const struct batoni_reach_ops reach = {
	.reaches = batoni_cuda_reaches,
};

static const struct batoni_block_ops blocks = {
	.block_alloc = batoni_cuda_block_alloc,
	.block_free = batoni_cuda_block_free,
};

static const struct batoni_pin_ops pins = {
	.pin = batoni_cuda_pin,
	.unpin = batoni_cuda_unpin,
};

const struct batoni_memory_ops batoni_cuda_memory_ops = {
	.host_only = false,
	.batches = &batches,
	.library = &library,
	.presence = &presence,
	.sharing = &sharing,
	.reach = &reach,
	.blocks = &blocks,
	.pins = &pins,
	.inspect = cuda_inspect,
	.pinned_alloc = cuda_pinned_alloc,
	.pinned_free = cuda_pinned_free,
	.copy_start = batoni_cuda_copy_start,
	.copy_test = batoni_cuda_copy_test,
	.why = cuda_why,
	.error_text = cuda_error_text,
	.health = cuda_health,
};
