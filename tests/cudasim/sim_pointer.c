/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver says of pointers, and what they are for work on a device. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

CUresult
cuMemHostGetDevicePointer_v2(CUdeviceptr *pointer_p, void *host,
                             unsigned int flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemHostGetDevicePointer_v2,
	                            SIM_CONTEXT);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	block = sim_block_find_locked((uintptr_t)host);
	if (flags != 0 || !block ||
	    !sim_is_in((uintptr_t)host, (uintptr_t)block->host, block->bytes) ||
	    (block->memory != SIM_MANAGED &&
	     !(block->flags & BATONI_CU_HOST_ALLOC_MAPPED)))
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	*pointer_p = block->device +
	             ((uintptr_t)host - (uintptr_t)block->host);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

enum {
	POINTER_DEVICE_POINTER = 3,
	POINTER_HOST_POINTER = 4,
	POINTER_MAPPING_BYTES = 18,
	POINTER_MAPPING_BASE = 19,
};

static bool
put_attribute(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return true;
}

/* One attribute of a pointer; block NULL: the driver does not know it. */
static bool
answer(const struct sim_block *block, CUdeviceptr pointer,
       CUpointer_attribute attribute, void *to)
{
	bool of_device = block && block->memory != SIM_PINNED &&
	                 block->memory != SIM_REGISTERED;
	unsigned memory = !block      ? 0u
	                  : of_device ? (unsigned)BATONI_CU_MEMORY_DEVICE
	                              : (unsigned)BATONI_CU_MEMORY_HOST;
	unsigned managed = block && block->memory == SIM_MANAGED;
	int device = block ? block->owner : 0;
	/* Memory that is mapped belongs to no context. */
	CUcontext context = block ? sim_handle_of(block->context) : NULL;
	CUdeviceptr base = block ? block->device : 0, start = base;
	size_t bytes = block ? block->bytes : 0, range = bytes;
	int legacy = block && block->memory == SIM_DEVICE;
	int mapped = block != NULL;
	uint64_t types = block && block->allocation
	                         ? sim_allocation_types_locked(block->allocation)
	                         : 0;
	static char pools[SIM_DEVICES_MAX]; /* the default one of each device */
	void *pool = block && block->memory == SIM_POOL ? &pools[device] : NULL;
	size_t offset = block ? sim_block_offset(block, pointer) : 0;
	CUdeviceptr on_device = block ? block->device + offset : 0;
	void *host = block && block->host ? block->host + offset : NULL;
	unsigned long long id = block ? block->id : 0;

	/* The range of an address in a reservation is all of the reservation, mapped or not. */
	if (!block || block->memory == SIM_MAPPING)
		sim_reservation_of_locked(pointer, &start, &range);
	switch (attribute) {
	case BATONI_CU_POINTER_CONTEXT:
		return put_attribute(to, &context, sizeof(context));
	case BATONI_CU_POINTER_MEMORY_TYPE:
		return put_attribute(to, &memory, sizeof(memory));
	case POINTER_DEVICE_POINTER:
		return put_attribute(to, &on_device, sizeof(on_device));
	case POINTER_HOST_POINTER:
		return put_attribute(to, &host, sizeof(host));
	case BATONI_CU_POINTER_BUFFER_ID:
		return put_attribute(to, &id, sizeof(id));
	case BATONI_CU_POINTER_IS_MANAGED:
		return put_attribute(to, &managed, sizeof(managed));
	case BATONI_CU_POINTER_DEVICE_ORDINAL:
		return put_attribute(to, &device, sizeof(device));
	case BATONI_CU_POINTER_RANGE_START:
		return put_attribute(to, &start, sizeof(start));
	case BATONI_CU_POINTER_RANGE_SIZE:
		return put_attribute(to, &range, sizeof(range));
	case BATONI_CU_POINTER_IS_IPC_CAPABLE:
		return put_attribute(to, &legacy, sizeof(legacy));
	case BATONI_CU_POINTER_HANDLE_TYPES:
		return put_attribute(to, &types, sizeof(types));
	case BATONI_CU_POINTER_POOL:
		return put_attribute(to, &pool, sizeof(pool));
	case BATONI_CU_POINTER_MAPPED:
		return put_attribute(to, &mapped, sizeof(mapped));
	case POINTER_MAPPING_BYTES:
		return put_attribute(to, &bytes, sizeof(bytes));
	case POINTER_MAPPING_BASE:
		return put_attribute(to, &base, sizeof(base));
	default:
		return false;
	}
}

CUresult
cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes,
                       void **data, CUdeviceptr pointer)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuPointerGetAttributes, 0);
	struct sim_block *block;
	bool known = true;

	if (result != BATONI_CU_SUCCESS)
		return result;
	block = sim_block_find_locked(pointer);
	for (unsigned i = 0; i < n; i++)
		known &= answer(block, pointer, attributes[i], data[i]);
	return sim_leave(&call, known && n > 0 ? BATONI_CU_SUCCESS
	                                       : BATONI_CU_INVALID_VALUE);
}


CUresult
cuMemGetAddressRange_v2(CUdeviceptr *base_p, size_t *bytes_p,
                        CUdeviceptr pointer)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuMemGetAddressRange_v2, SIM_CONTEXT);
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	block = sim_block_find_locked(pointer);
	if (!block)
		return sim_leave(&call, BATONI_CU_NOT_FOUND);
	/* Of memory that is mapped: the mapping. */
	if (base_p)
		*base_p = block->device;
	if (bytes_p)
		*bytes_p = block->bytes;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* ---- what a pointer is for a call ---- */

/* The context's device reaches the block. */
static bool
may_reach_locked(const struct sim_context *context,
                 const struct sim_block *block)
{
	switch (block->memory) {
	case SIM_DEVICE:
		return sim.set.peer || block->owner == context->device ||
		       sim_peer_is_enabled_locked(context, block->context);
	case SIM_OPENED:
		return sim.set.peer || block->context->device == context->device;
	case SIM_POOL:
		return sim.set.peer || block->owner == context->device;
	case SIM_MAPPING:
		if (block->access & 1u << context->device)
			return true;
		sim_violation("device %d has no access to the mapping at %#llx",
		              context->device, block->device);
		return false;
	case SIM_MANAGED:
	case SIM_PINNED:
	case SIM_REGISTERED:
		break;
	}
	return true;
}

/* Of the bytes from the pointer on, which is in the block, so many more lie in mappings behind it. */
static bool
goes_on_locked(const struct sim_context *context, const struct sim_block *first,
               CUdeviceptr pointer, size_t bytes)
{
	CUdeviceptr at = first->device + first->bytes, end = pointer + bytes;

	if (first->memory != SIM_MAPPING)
		return false;
	while (at < end) {
		const struct sim_block *block = sim_block_find_locked(at);

		if (!block || block->memory != SIM_MAPPING ||
		    block->range != first->range ||
		    !may_reach_locked(context, block))
			return false;
		at = block->device + block->bytes;
	}
	return true;
}

void
sim_hold_locked(struct sim_entry *entry, struct sim_block *block)
{
	size_t n = entry->reached_n + 1;
	struct sim_block **held = sim_alloc(n, sizeof(*held));

	for (size_t i = 0; i < entry->reached_n; i++)
		held[i] = entry->reached[i];
	free(entry->reached);
	held[n - 1] = block;
	block->entries++;
	entry->reached = held;
	entry->reached_n = n;
}

void
sim_hold_rest_locked(struct sim_entry *entry, const struct sim_block *first,
                     CUdeviceptr pointer, size_t bytes)
{
	CUdeviceptr at = first->device + first->bytes, end = pointer + bytes;

	while (first->memory == SIM_MAPPING && at < end) {
		struct sim_block *block = sim_block_find_locked(at);

		sim_hold_locked(entry, block);
		at = block->device + block->bytes;
	}
}

CUresult
sim_reach_locked(struct sim_context *context, CUdeviceptr pointer, size_t bytes,
                 unsigned char **reach_p, struct sim_block **block_p)
{
	struct sim_block *block = sim_block_find_locked(pointer);
	size_t offset;

	*block_p = NULL;
	if (!block) {
		*reach_p = (unsigned char *)(uintptr_t)pointer;
		return pointer == 0 || sim_is_grave_locked(pointer) ||
		                       sim_is_reserved_locked(pointer)
		               ? BATONI_CU_INVALID_VALUE
		               : BATONI_CU_SUCCESS;
	}
	offset = sim_block_offset(block, pointer);
	if (!may_reach_locked(context, block))
		return BATONI_CU_INVALID_VALUE;
	if (bytes > block->bytes - offset &&
	    !goes_on_locked(context, block, pointer, bytes))
		return BATONI_CU_INVALID_VALUE;
	*reach_p = block->reach + offset;
	*block_p = block;
	return BATONI_CU_SUCCESS;
}

/* Memory of the host, by a word that both sides reach. */
static bool
is_host_word(const struct sim_context *context, const struct sim_block *block,
             CUdeviceptr pointer)
{
	return (block->memory == SIM_PINNED || block->memory == SIM_REGISTERED) &&
	       (block->flags & BATONI_CU_HOST_ALLOC_MAPPED) &&
	       sim_is_in(pointer, block->device, block->bytes) &&
	       (block->context == context ||
	        (block->flags & BATONI_CU_HOST_ALLOC_PORTABLE));
}

/* Memory of the device itself. */
static bool
is_device_word(const struct sim_context *context, const struct sim_block *block)
{
	return (block->memory == SIM_DEVICE || block->memory == SIM_POOL ||
	        block->memory == SIM_MAPPING) &&
	       block->owner == context->device &&
	       may_reach_locked(context, block);
}

CUresult
sim_word_locked(struct sim_context *context, CUdeviceptr pointer,
                struct sim_op *op)
{
	struct sim_block *block = sim_block_find_locked(pointer);
	size_t offset;

	if (!block || pointer % sizeof(uint64_t) != 0 ||
	    (!is_host_word(context, block, pointer) &&
	     (op->waits || !is_device_word(context, block))))
		return BATONI_CU_INVALID_VALUE;
	offset = sim_block_offset(block, pointer);
	if (block->bytes - offset < sizeof(uint64_t))
		return BATONI_CU_INVALID_VALUE;
	op->word = (_Atomic uint64_t *)(void *)(block->reach + offset);
	op->block = block;
	block->entries++;
	return BATONI_CU_SUCCESS;
}
