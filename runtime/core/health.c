/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a communicator take operations?  It is alive, no destroy has left it, it is not broken, and
 * its device is well.
 *
 * It breaks once: the first status and sentence are kept, under the driver lock, and stored
 * before `status`, which any thread reads.  What is pending ends in a later pass (sweep.c).
 */
#include "health.h"

#include <stdio.h>

#include "life.h"
#include "log.h"

/* How long the destroy of a broken communicator waits for an asynchronous device that
 * reports no fault. */
#define GRACE_NS INT64_C(1000000000)

/* ---- what a call finds ---- */

enum baton_status
batoni_refuse_comm(const char *call, const struct baton_comm *comm)
{
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: comm is %s", call,
	                     comm ? "of a communicator that was destroyed"
	                          : "NULL");
}

enum baton_status
baton_comm_status(const struct baton_comm *comm)
{
	if (!batoni_comm_lives(comm))
		return BATON_ERR_INVALID;
	return (enum baton_status)atomic_load_explicit(&comm->status,
	                                               memory_order_acquire);
}

const char *
baton_comm_error(const struct baton_comm *comm)
{
	return batoni_comm_lives(comm) && baton_comm_status(comm) != BATON_OK
	               ? comm->fault.text
	               : "";
}

enum baton_status
batoni_check_left(const char *call, const struct baton_comm *comm)
{
	if (!atomic_load_explicit(&comm->left, memory_order_relaxed))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: the communicator has been left by a "
	                     "baton_comm_destroy, which timed out after that; "
	                     "destroy it again, or abort it first",
	                     call);
}

/* ---- breaking ---- */

/* The program asked for an abort, and for the end of its process, after which a device may refuse
 * all calls: neither is an error to log. */
static enum batoni_log_level
level_of_break(struct baton_comm *comm, enum baton_status status)
{
	struct batoni_fault fault;

	if (status == BATON_ERR_ABORTED)
		return BATONI_LOG_DEBUG;
	if (!comm->in_engine &&
	    comm->device_ops->memory->health(comm->device, &fault) !=
	            BATON_OK &&
	    fault.exiting)
		return BATONI_LOG_DEBUG;
	return BATONI_LOG_ERROR;
}

void
batoni_comm_break(struct baton_comm *comm, enum baton_status status,
                  const char *why)
{
	uint32_t operations = comm->work.active - comm->work.held;
	char with[40] = "";

	if (comm->fault.status != BATON_OK)
		return;
	if (operations)
		snprintf(with, sizeof(with), ", %u operation%s with it", operations,
		         operations == 1 ? " ends" : "s end");
	snprintf(comm->fault.text, sizeof(comm->fault.text), "%s", why);
	comm->fault.status = status;
	atomic_store(&comm->status, (int)status);
	/* Passes serve the communicator although nothing may be pending. */
	batoni_comm_set_busy(comm);
	batoni_log(level_of_break(comm, status),
	           "rank %d: communicator broken (%s)%s: %s", comm->rank,
	           baton_status_name(status), with, why);
	atomic_store(&batoni_engine.attention, 1);
}

/* ---- devices ---- */

/* A device with a sticky error calls no trigger and takes no work any more. */
size_t
batoni_check_device(struct baton_comm *comm)
{
	enum baton_status status;
	struct batoni_fault fault;
	char why[256];

	if (comm->in_engine || comm->fault.status != BATON_OK)
		return 0;
	status = comm->device_ops->memory->health(comm->device, &fault);
	if (status == BATON_OK)
		return 0;
	snprintf(why, sizeof(why), "the %s device: %s returned %d: %s",
	         comm->device_ops->name, fault.call, fault.code, fault.text);
	batoni_comm_break(comm, status, why);
	return 1;
}

void
batoni_ask_device(struct baton_comm *comm)
{
	batoni_lock();
	batoni_check_device(comm);
	batoni_unlock();
}

int64_t
batoni_comm_grace_ns(const struct baton_comm *comm)
{
	struct batoni_fault fault;

	if (comm->device_ops->memory->health(comm->device, &fault) != BATON_OK)
		return 0;
	return comm->timeout_ns && comm->timeout_ns < GRACE_NS ? comm->timeout_ns
	                                                       : GRACE_NS;
}
