/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies, and the setting of bytes. */
#include "sim.h"

/* What an asynchronous copy of memory that is not pinned does beside blocking. */
static CUresult
be_pageable_locked(struct sim_call *call)
{
	if (sim.set.pageable == 2) {
		sim_violation("cuMemcpyAsync names pageable memory");
		return BATONI_CU_INVALID_VALUE;
	}
	return sim.set.pageable == 1
	               ? sim_synchronize_locked(call->context,
	                                        "a copy of pageable memory",
	                                        true)
	               : BATONI_CU_SUCCESS;
}

/* A copy of memory that is not pinned blocks until it is over, as the driver's may. */
static CUresult
copy_locked(struct sim_call *call, struct sim_stream *stream, CUdeviceptr to,
            CUdeviceptr from, size_t bytes, bool now)
{
	bool synchronous = now;
	struct sim_entry *entry = sim_alloc(1, sizeof(*entry));
	unsigned char *source = NULL;
	CUresult result = BATONI_CU_SUCCESS;

	entry->kind = SIM_COPY;
	if (bytes > 0)
		result = sim_reach_locked(call->context, to, bytes, &entry->to,
		                          &entry->blocks[0]);
	if (bytes > 0 && result == BATONI_CU_SUCCESS)
		result = sim_reach_locked(call->context, from, bytes, &source,
		                          &entry->blocks[1]);
	if (bytes > 0 && (!entry->blocks[0] || !entry->blocks[1]))
		now = true;
	if (now && !synchronous && result == BATONI_CU_SUCCESS)
		result = be_pageable_locked(call);
	for (int i = 0; i < 2; i++) {
		if (entry->blocks[i])
			entry->blocks[i]->entries++;
	}
	entry->from = source;
	entry->bytes = bytes;
	if (result == BATONI_CU_SUCCESS)
		return sim_submit_locked(call, stream, entry, now, NULL);
	sim_entry_free_locked(entry);
	return result;
}

CUresult
cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemcpyAsync, SIM_CONTEXT);
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS)
		result = copy_locked(&call, stream, to, from, bytes, false);
	return sim_leave(&call, result);
}

/* On the legacy default stream. */
static CUresult
copy_now(enum sim_function function, CUdeviceptr to, CUdeviceptr from,
         size_t bytes)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, SIM_CONTEXT | SIM_UNSAFE);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = copy_locked(&call, &call.context->legacy, to, from, bytes,
	                     true);
	return sim_leave(&call, result);
}

CUresult
cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy_now(SIM_cuMemcpy, to, from, bytes);
}

CUresult
cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_now(SIM_cuMemcpyHtoD_v2, to, (uintptr_t)from, bytes);
}

CUresult
cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	return copy_now(SIM_cuMemcpyDtoH_v2, (uintptr_t)to, from, bytes);
}

CUresult
cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes,
                CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemsetD8Async, SIM_CONTEXT);
	struct sim_stream *stream;
	struct sim_entry *entry;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	entry = sim_alloc(1, sizeof(*entry));
	entry->kind = SIM_SET;
	entry->byte = byte;
	entry->bytes = bytes;
	result = sim_reach_locked(call.context, to, bytes, &entry->to,
	                          &entry->blocks[0]);
	if (result == BATONI_CU_SUCCESS && !entry->blocks[0])
		result = BATONI_CU_INVALID_VALUE;
	if (entry->blocks[0])
		entry->blocks[0]->entries++;
	if (result == BATONI_CU_SUCCESS)
		result = sim_submit_locked(&call, stream, entry, false, NULL);
	else
		sim_entry_free_locked(entry);
	return sim_leave(&call, result);
}
