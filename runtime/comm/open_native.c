/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A native transport is created with the communicator that it is for (prepare), and opened
 * over the transport that knows the other ranks, when that is open.  Its steps wait for
 * nothing, so one thread opens those of several ranks by turns.  No lock of the engine is
 * held between them: other communicators go on.
 *
 * Where the one-sided layer may have messages with memory of the device, staging lies between
 * the two transports.  It starts here, and so does near, where it is forced: it carries the messages of
 * near ranks over the lower transport, or beside its messages.  Until all is open, the caller closes each
 * lower transport, whose upcalls are the staging's or near's then, and these two are discarded with their
 * communicator.
 */
#include "comm.h"

#include <assert.h>

#include "config.h"
#include "core.h"
#include "health.h"
#include "registry.h"
#include "thread.h"

static void
driver_unlock(void)
{
	batoni_unlock();
}

enum baton_status
batoni_comm_create_native(struct baton_comm *comm,
                          const struct batoni_comm_setup *setup)
{
	const struct batoni_native_config config = {
		.device = comm->device,
		.size = setup->size,
		.lanes = setup->nccl_lanes,
		.until_ns = comm->patience.until_ns,
		.timeout_ns = setup->timeout_ns,
		.slots = setup->requests_max,
		.lower_slot = batoni_comm_native_slot(setup),
		.check = setup->check,
		.ctas = setup->nccl_ctas,
		.lists = setup->nccl_lists,
		.lower_carries = setup->near,
		.driver_lock = batoni_lock,
		.driver_unlock = driver_unlock,
	};

	return batoni_native_layer()->create(&config, &comm->native);
}

void
batoni_comm_discard_native(struct baton_comm *comm)
{
	if (comm->native)
		batoni_native_layer()->discard(comm->native);
	comm->native = NULL;
}

struct batoni_transport *
batoni_comm_lower_native(struct baton_comm *comm,
                         struct batoni_transport *transport)
{
	struct batoni_path *beside = batoni_comm_start_pairs(comm, &transport);

	assert(!beside || comm->staging);
	return comm->staging ? batoni_staging_layer()->start(comm->staging,
	                                                     transport, beside)
	                     : transport;
}

enum baton_status
batoni_comm_step_native(struct baton_comm *comm, struct batoni_transport *lower,
                        struct batoni_transport **transport_p)
{
	enum baton_status status = batoni_native_layer()->step(
		comm->native, lower, transport_p);

	/* Until it is open, both are discarded with the communicator. */
	if (status == BATON_OK) {
		comm->native = NULL;
		/* Of the lower transport. */
		comm->staging = NULL;
		comm->pairs = NULL;
	}
	return status;
}

static enum baton_status
lock_device(const char *call, struct baton_comm *comm, bool take)
{
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm(call, comm);
	if (!comm->transport_ops->locking)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: the %s transport has no lock of its "
		                     "device; %s has",
		                     call, comm->transport_ops->name,
		                     batoni_native_layer()->constant);
	return comm->transport_ops->locking->lock(comm->transport, take);
}

enum baton_status
baton_comm_lock_device(struct baton_comm *comm)
{
	BATONI_ENTER("baton_comm_lock_device");
	return lock_device("baton_comm_lock_device", comm, true);
}

enum baton_status
baton_comm_unlock_device(struct baton_comm *comm)
{
	BATONI_ENTER("baton_comm_unlock_device");
	return lock_device("baton_comm_unlock_device", comm, false);
}
