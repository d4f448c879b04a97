/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels, for simulators of libraries that launch them (tests/ncclsim): code of the
 * simulator's that a stream runs in its turn, that may wait, and that reaches the memory
 * it was given.  A kernel that waits holds up its stream and its hardware queue.
 */
#include <stdlib.h>

#include "sim.h"

static CUresult
reach_locked(struct sim_call *call, struct sim_entry *entry,
             struct cudasim_buffer *buffer)
{
	struct sim_block *block;
	CUresult result;

	buffer->reach = NULL;
	if (buffer->bytes == 0)
		return BATONI_CU_SUCCESS;
	result = sim_reach_locked(call->context, buffer->address, buffer->bytes,
	                          &buffer->reach, &block);
	if (result == BATONI_CU_SUCCESS && !block)
		result = BATONI_CU_ILLEGAL_ADDRESS;
	if (result != BATONI_CU_SUCCESS) {
		sim_violation("a kernel is given memory that its device does not "
		              "reach: %#llx, %zu bytes",
		              buffer->address, buffer->bytes);
		return BATONI_CU_ILLEGAL_ADDRESS;
	}
	sim_hold_locked(entry, block);
	sim_hold_rest_locked(entry, block, buffer->address, buffer->bytes);
	return BATONI_CU_SUCCESS;
}

/* The entry after what all streams have been given so far. */
static CUresult
order_locked(struct sim_call *call, const CUstream *handles, size_t n,
             struct sim_entry *entry)
{
	struct sim_stream *stream;
	CUresult result = BATONI_CU_SUCCESS;

	for (size_t i = 0; i < n && result == BATONI_CU_SUCCESS; i++) {
		result = sim_stream_of_locked(call, handles[i], true, &stream);
		if (result == BATONI_CU_SUCCESS && i > 0)
			sim_entry_after_locked(entry, stream);
	}
	return result;
}

/* The other streams go on after the first one's last entry. */
static CUresult
join_locked(struct sim_call *call, const CUstream *handles, size_t n,
            struct sim_stream *first)
{
	struct sim_stream *stream;
	CUresult result = BATONI_CU_SUCCESS;

	for (size_t i = 1; i < n && result == BATONI_CU_SUCCESS; i++) {
		struct sim_entry *mark;

		result = sim_stream_of_locked(call, handles[i], true, &stream);
		if (result != BATONI_CU_SUCCESS || stream == first)
			continue;
		mark = sim_alloc(1, sizeof(*mark));
		mark->kind = SIM_MARK;
		sim_entry_after_locked(mark, first);
		result = sim_submit_locked(call, stream, mark, false, NULL);
	}
	return result;
}

static CUresult
launch_locked(struct sim_call *call, const CUstream *handles, size_t n,
              const struct cudasim_kernel *kernel)
{
	struct sim_entry *entry = sim_alloc(1, sizeof(*entry));
	struct sim_position at = {NULL, 0};
	struct sim_stream *stream;
	CUresult result;

	entry->kind = SIM_KERNEL;
	entry->kernel = *kernel;
	result = order_locked(call, handles, n, entry);
	for (size_t i = 0;
	     i < kernel->buffers_n && result == BATONI_CU_SUCCESS; i++)
		result = reach_locked(call, entry, &kernel->buffers[i]);
	/* From here on the entry's end is the kernel's. */
	entry->kernel.gone = NULL;
	if (result == BATONI_CU_SUCCESS)
		result = sim_stream_of_locked(call, handles[0], true, &stream);
	if (result != BATONI_CU_SUCCESS) {
		sim_entry_free_locked(entry);
		return result;
	}
	result = sim_submit_locked(call, stream, entry, false, &at);
	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!at.stream) {
		/* Captured, and so forgotten. */
		kernel->gone(kernel->data);
		return BATONI_CU_SUCCESS;
	}
	entry->kernel.gone = kernel->gone;
	result = join_locked(call, handles, n, stream);
	sim_position_drop_locked(&at);
	/* The kernel is launched, whatever comes of the other streams. */
	if (result != BATONI_CU_SUCCESS)
		sim_violation("a stream could not be joined to a kernel: %u",
		              result);
	return BATONI_CU_SUCCESS;
}

CUresult
cudasim_launch(const CUstream *handles, size_t n,
               const struct cudasim_kernel *kernel)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cudasim_launch, SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = n > 0 ? launch_locked(&call, handles, n, kernel)
	               : BATONI_CU_INVALID_VALUE;
	return sim_leave(&call, result);
}

void
cudasim_changed(void)
{
	sim_lock_for_control();
	sim.progress++;
	pthread_cond_broadcast(&sim_changed);
	pthread_mutex_unlock(&sim_lock);
}

/* ---- in its queue (sim_queue.c) ---- */

enum cudasim_step
sim_kernel_step_locked(struct sim_entry *entry)
{
	unsigned long before = sim.progress;
	enum cudasim_step step;

	sim.running++;
	pthread_mutex_unlock(&sim_lock);
	step = entry->kernel.step(entry->kernel.data);
	pthread_mutex_lock(&sim_lock);
	sim.running--;
	/* What it saw is no older than this. */
	entry->seen = before;
	entry->stuck = step == CUDASIM_WAITS;
	if (step == CUDASIM_MOVED) {
		entry->since = 0;
		sim.progress++;
		pthread_cond_broadcast(&sim_changed);
	}
	return step;
}

bool
sim_kernel_is_still_locked(const struct sim_entry *entry)
{
	return entry->stuck && entry->seen == sim.progress;
}
