/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream-ordered allocation, as far as it takes to have device memory that no process can export:
 * blocks of each device's default pool.
 *
 * The memory is there at once.  It is given back when the stream gets to its end, and when
 * nothing names it any more; from the call on the driver does not know the pointer.
 */
#include "sim.h"

CUresult
cuMemAllocAsync(CUdeviceptr *pointer_p, size_t bytes, CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemAllocAsync, SIM_CONTEXT);
	struct sim_stream *stream;
	struct sim_block *block;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS && stream->capture)
		result = CUDASIM_CAPTURE_UNSUPPORTED;
	if (result == BATONI_CU_SUCCESS && !pointer_p)
		result = BATONI_CU_INVALID_VALUE;
	if (result == BATONI_CU_SUCCESS)
		result = sim_block_alloc_locked(&call, SIM_POOL, bytes, 0,
		                                &block);
	if (result == BATONI_CU_SUCCESS)
		*pointer_p = block->device;
	return sim_leave(&call, result);
}

CUresult
cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemFreeAsync, SIM_CONTEXT);
	struct sim_stream *stream;
	struct sim_block *block;
	struct sim_entry *entry;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	block = sim_block_find_locked(pointer);
	if (!block || block->memory != SIM_POOL || block->device != pointer) {
		sim_violation("cuMemFreeAsync of what is no block of a pool");
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	}
	entry = sim_alloc(1, sizeof(*entry));
	entry->kind = SIM_MARK;
	entry->blocks[0] = block;
	block->entries++;
	sim_block_forget_locked(block);
	return sim_leave(&call, sim_submit_locked(&call, stream, entry, false,
	                                          NULL));
}
