/* SPDX-License-Identifier: BSD-3-Clause */
/* How much memory a device has left. */
#include "sim.h"

/* Blocks, mappings of virtual memory management, and what another simulator has taken. */
static size_t
used_locked(CUdevice device)
{
	size_t used = sim.used[device];

	for (const struct sim_block *at = sim.blocks; at; at = at->next) {
		if (at->owner == device &&
		    (at->memory == SIM_DEVICE || at->memory == SIM_MAPPING ||
		     at->memory == SIM_POOL))
			used += at->bytes;
	}
	return used;
}

CUresult
cuMemGetInfo_v2(size_t *free_p, size_t *total_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuMemGetInfo_v2, SIM_CONTEXT);
	size_t used;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!free_p || !total_p)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	used = used_locked(call.context->device);
	*total_p = (size_t)sim.set.memory_mib << 20;
	*free_p = used < *total_p ? *total_p - used : 0;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

void
cudasim_use(CUdevice device, long long bytes)
{
	sim_lock_for_control();
	if (sim_is_device(device))
		sim.used[device] += (size_t)bytes;
	pthread_mutex_unlock(&sim_lock);
}
