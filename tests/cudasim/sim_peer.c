/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: which device can reach the memory of which other one.
 *
 * What the machine can do is the setting `peers`, for all pairs, and the control of that name
 * for one pair, one way.  A device reaches its own memory always.  A context then reaches what
 * another one allocates (cuMemAlloc) once it has enabled it.  Memory that was mapped goes by
 * its own rights (sim_vmm.c), and asks only what the machine can do.
 *
 * Enabled access ends with either context: the id of the other one's life is kept with it.
 */
#include "sim.h"

/* What a test says of a pair: 0 nothing, 1 it can, 2 it cannot.  Under sim_lock. */
static unsigned char said[SIM_DEVICES_MAX][SIM_DEVICES_MAX];

bool
sim_can_reach_locked(CUdevice device, CUdevice owner)
{
	if (device == owner)
		return true;
	if (said[device][owner] != 0)
		return said[device][owner] == 1;
	return sim.set.peers;
}

bool
cudasim_peers(CUdevice device, CUdevice owner, bool can)
{
	bool valid = device >= 0 && device < SIM_DEVICES_MAX && owner >= 0 &&
	             owner < SIM_DEVICES_MAX && device != owner;

	sim_lock_for_control();
	if (valid)
		said[device][owner] = can ? 1 : 2;
	pthread_mutex_unlock(&sim_lock);
	return valid;
}

/* Where the context keeps its access to the other one. */
static int
place_of(const struct sim_context *context, const struct sim_context *other)
{
	for (int i = 0; i < SIM_DEVICES_MAX; i++) {
		if (context->peers[i] == other &&
		    context->peers_ids[i] == other->id)
			return i;
	}
	return -1;
}

bool
sim_peer_is_enabled_locked(const struct sim_context *context,
                           const struct sim_context *other)
{
	return place_of(context, other) >= 0;
}

CUresult
cuDeviceCanAccessPeer(int *can_p, CUdevice device, CUdevice owner)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuDeviceCanAccessPeer, 0);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!sim_is_device(device) || !sim_is_device(owner))
		return sim_leave(&call, BATONI_CU_INVALID_DEVICE);
	*can_p = device != owner && sim_can_reach_locked(device, owner);
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

static CUresult
enable_locked(struct sim_context *context, CUcontext handle, unsigned flags)
{
	struct sim_context *other = sim_context_of_locked(handle);

	if (flags != 0)
		return BATONI_CU_INVALID_VALUE;
	if (!other || other == context)
		return BATONI_CU_INVALID_CONTEXT;
	if (!sim_can_reach_locked(context->device, other->device))
		return BATONI_CU_PEER_UNSUPPORTED;
	if (place_of(context, other) >= 0)
		return BATONI_CU_PEER_ALREADY_ENABLED;
	for (int i = 0; i < SIM_DEVICES_MAX; i++) {
		struct sim_context *old = context->peers[i];

		if (old && old->live && old->id == context->peers_ids[i])
			continue;
		context->peers[i] = other;
		context->peers_ids[i] = other->id;
		return BATONI_CU_SUCCESS;
	}
	return CUDASIM_TOO_MANY_PEERS;
}

CUresult
cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuCtxEnablePeerAccess, SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	return sim_leave(&call, enable_locked(call.context, handle, flags));
}

CUresult
cuCtxDisablePeerAccess(CUcontext handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuCtxDisablePeerAccess,
	                            SIM_CONTEXT | SIM_DESTROYS);
	struct sim_context *other;
	int i;

	if (result != BATONI_CU_SUCCESS)
		return result;
	other = sim_context_of_locked(handle);
	if (!other)
		return sim_leave(&call, BATONI_CU_INVALID_CONTEXT);
	i = place_of(call.context, other);
	if (i < 0)
		return sim_leave(&call, BATONI_CU_PEER_NOT_ENABLED);
	call.context->peers[i] = NULL;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}
