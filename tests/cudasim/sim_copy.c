/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies, and the setting of bytes. */
#include <stdlib.h>

#include "sim.h"

/* What an asynchronous copy of memory that is not pinned does beside blocking. */
static CUresult
be_pageable_locked(struct sim_call *call)
{
	if (sim.set.pageable == 2) {
		sim_violation("an asynchronous copy names pageable memory");
		return BATONI_CU_INVALID_VALUE;
	}
	return sim.set.pageable == 1
	               ? sim_synchronize_locked(call->context,
	                                        "a copy of pageable memory",
	                                        true)
	               : BATONI_CU_SUCCESS;
}

/* Memory of another device than the one that copies, where copies of that are refused. */
static bool
is_refused(const struct sim_call *call, const struct sim_block *block)
{
	if (sim.set.peer_copies || !block ||
	    block->owner == call->context->device)
		return false;
	return block->memory == SIM_DEVICE || block->memory == SIM_MAPPING ||
	       block->memory == SIM_OPENED || block->memory == SIM_POOL;
}

/* An entry, to be submitted or freed.  *pageable_p: a side is memory that is not pinned. */
static CUresult
make_locked(struct sim_call *call, CUdeviceptr to, CUdeviceptr from,
            size_t bytes, struct sim_entry **entry_p, bool *pageable_p)
{
	struct sim_entry *entry = sim_alloc(1, sizeof(*entry));
	unsigned char *source = NULL;
	CUresult result = BATONI_CU_SUCCESS;

	*entry_p = entry;
	entry->kind = SIM_COPY;
	if (bytes > 0)
		result = sim_reach_locked(call->context, to, bytes, &entry->to,
		                          &entry->blocks[0]);
	if (bytes > 0 && result == BATONI_CU_SUCCESS)
		result = sim_reach_locked(call->context, from, bytes, &source,
		                          &entry->blocks[1]);
	if (is_refused(call, entry->blocks[0]) ||
	    is_refused(call, entry->blocks[1]))
		result = BATONI_CU_NOT_SUPPORTED;
	*pageable_p = bytes > 0 && (!entry->blocks[0] || !entry->blocks[1]);
	for (int i = 0; i < 2; i++) {
		if (entry->blocks[i])
			entry->blocks[i]->entries++;
		if (entry->blocks[i] && result == BATONI_CU_SUCCESS)
			sim_hold_rest_locked(entry, entry->blocks[i],
			                     i ? from : to, bytes);
	}
	entry->from = source;
	entry->bytes = bytes;
	return result;
}

/* A copy of memory that is not pinned blocks until it is over, as the driver's may. */
static CUresult
copy_locked(struct sim_call *call, struct sim_stream *stream, CUdeviceptr to,
            CUdeviceptr from, size_t bytes, bool now)
{
	struct sim_entry *entry;
	bool pageable;
	CUresult result = make_locked(call, to, from, bytes, &entry, &pageable);

	if (pageable && !now && result == BATONI_CU_SUCCESS)
		result = be_pageable_locked(call);
	if (result == BATONI_CU_SUCCESS)
		return sim_submit_locked(call, stream, entry, now || pageable,
		                         NULL);
	sim_entry_free_locked(entry);
	return result;
}

static CUresult
copy_later(enum sim_function function, CUdeviceptr to, CUdeviceptr from,
           size_t bytes, CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, SIM_CONTEXT);
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS)
		result = copy_locked(&call, stream, to, from, bytes, false);
	return sim_leave(&call, result);
}

CUresult
cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
	return copy_later(SIM_cuMemcpyAsync, to, from, bytes, handle);
}

CUresult
cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                     CUstream handle)
{
	return copy_later(SIM_cuMemcpyHtoDAsync_v2, to, (uintptr_t)from, bytes,
	                  handle);
}

CUresult
cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream handle)
{
	return copy_later(SIM_cuMemcpyDtoHAsync_v2, (uintptr_t)to, from, bytes,
	                  handle);
}

/* ---- several in one call ---- */

struct batch {
	const CUdeviceptr *to, *from;
	const size_t *bytes;
	size_t n;
	const CUmemcpyAttributes *attributes;
	const size_t *firsts; /* the copy from which on each is meant */
	size_t attributes_n;
};

static bool
is_whole(const struct batch *batch)
{
	bool whole = batch->to && batch->from && batch->bytes && batch->n > 0 &&
	             batch->attributes && batch->firsts &&
	             batch->attributes_n > 0 && batch->attributes_n <= batch->n &&
	             batch->firsts[0] == 0;

	for (size_t i = 0; whole && i < batch->attributes_n; i++) {
		const CUmemcpyAttributes *attributes = &batch->attributes[i];

		whole = attributes->srcAccessOrder >= BATONI_CU_SOURCE_IN_ORDER &&
		        attributes->srcAccessOrder <= CUDASIM_SOURCE_ANY &&
		        attributes->flags <= BATONI_CU_COPY_BESIDE_COMPUTE &&
		        batch->firsts[i] < batch->n &&
		        (i == 0 || batch->firsts[i] > batch->firsts[i - 1]);
	}
	return whole;
}

static bool
touch(const unsigned char *a, const unsigned char *b, const struct sim_entry *x,
      const struct sim_entry *y)
{
	return a < b + y->bytes && b < a + x->bytes;
}

/* They run in any order, so none may write what another one reads or writes. */
static CUresult
check_independent(struct sim_entry *const *entries, size_t n)
{
	const struct sim_entry *last = entries[n - 1];

	for (size_t i = 0; i < n - 1; i++) {
		const struct sim_entry *one = entries[i];

		if (!touch(one->to, last->to, one, last) &&
		    !touch(one->to, last->from, one, last) &&
		    !touch(one->from, last->to, one, last))
			continue;
		sim_violation("cuMemcpyBatchAsync: copies %zu and %zu touch each "
		              "other",
		              i, n - 1);
		return BATONI_CU_INVALID_VALUE;
	}
	return BATONI_CU_SUCCESS;
}

/* All entries, or none.  *wrong_p: the copy that is wrong. */
static CUresult
make_all_locked(struct sim_call *call, const struct batch *batch,
                struct sim_entry **entries, bool *pageable_p, size_t *wrong_p)
{
	CUresult result = BATONI_CU_SUCCESS;
	size_t n = 0;

	while (n < batch->n && result == BATONI_CU_SUCCESS) {
		bool pageable;

		*wrong_p = n;
		if (batch->bytes[n] == 0 || !batch->to[n] || !batch->from[n]) {
			result = BATONI_CU_INVALID_VALUE;
			break;
		}
		result = make_locked(call, batch->to[n], batch->from[n],
		                     batch->bytes[n], &entries[n], &pageable);
		*pageable_p |= pageable;
		n++;
		if (result == BATONI_CU_SUCCESS)
			result = check_independent(entries, n);
	}
	while (result != BATONI_CU_SUCCESS && n > 0)
		sim_entry_free_locked(entries[--n]);
	return result;
}

/* The last one first. */
static CUresult
submit_all_locked(struct sim_call *call, struct sim_stream *stream,
                  struct sim_entry **entries, size_t n, bool now)
{
	CUresult result = BATONI_CU_SUCCESS;

	sim_stream_ref_locked(stream);
	while (n-- > 0) {
		if (result == BATONI_CU_SUCCESS)
			result = sim_submit_locked(call, stream, entries[n], now,
			                           NULL);
		else
			sim_entry_free_locked(entries[n]);
	}
	sim_stream_unref_locked(stream);
	return result;
}

static CUresult
copy_all_locked(struct sim_call *call, CUstream handle,
                const struct batch *batch, size_t *wrong_p)
{
	struct sim_stream *stream;
	struct sim_entry **entries;
	bool pageable = false;
	CUresult result = sim_stream_of_locked(call, handle, true, &stream);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (stream->capture)
		return CUDASIM_CAPTURE_UNSUPPORTED;
	if (!is_whole(batch) || stream == &call->context->legacy)
		return BATONI_CU_INVALID_VALUE;
	entries = sim_alloc(batch->n, sizeof(struct sim_entry *));
	result = make_all_locked(call, batch, entries, &pageable, wrong_p);
	if (result == BATONI_CU_SUCCESS) {
		*wrong_p = SIZE_MAX;
		if (pageable)
			result = be_pageable_locked(call);
		if (result == BATONI_CU_SUCCESS)
			result = submit_all_locked(call, stream, entries,
			                           batch->n, pageable);
		else
			for (size_t i = 0; i < batch->n; i++)
				sim_entry_free_locked(entries[i]);
	}
	free(entries);
	return result;
}

static CUresult
copy_all(enum sim_function function, CUstream handle, const struct batch *batch,
         size_t *wrong_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, SIM_CONTEXT);
	size_t wrong = SIZE_MAX;

	if (result == BATONI_CU_SUCCESS)
		result = sim_leave(&call, copy_all_locked(&call, handle, batch,
		                                          &wrong));
	if (result != BATONI_CU_SUCCESS && wrong_p)
		*wrong_p = wrong;
	return result;
}

CUresult
cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                      size_t n, CUmemcpyAttributes *attributes, size_t *firsts,
                      size_t attributes_n, CUstream handle)
{
	const struct batch batch = {to, from, bytes, n, attributes, firsts,
	                            attributes_n};

	return copy_all(SIM_cuMemcpyBatchAsync_v2, handle, &batch, NULL);
}

CUresult
cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
                   CUmemcpyAttributes *attributes, size_t *firsts,
                   size_t attributes_n, size_t *wrong_p, CUstream handle)
{
	const struct batch batch = {to, from, bytes, n, attributes, firsts,
	                            attributes_n};

	return copy_all(SIM_cuMemcpyBatchAsync, handle, &batch, wrong_p);
}

/* ---- synchronous copies, and setting ---- */

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
	if (entry->blocks[0] && result == BATONI_CU_SUCCESS)
		sim_hold_rest_locked(entry, entry->blocks[0], to, bytes);
	if (result == BATONI_CU_SUCCESS)
		result = sim_submit_locked(&call, stream, entry, false, NULL);
	else
		sim_entry_free_locked(entry);
	return sim_leave(&call, result);
}
