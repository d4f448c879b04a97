/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators whose ranks are in this process, created all at once.  Those that come one by
 * one, with an id: comm_id.c.
 */
#include "core.h"

#include <string.h>

#include "comm.h"
#include "creation.h"
#include "log.h"
#include "mem.h"
#include "registry.h"
#include "testing.h"

#define SIZE_MAX_LOCAL ((int)BATONI_COMMS_MAX - 1)

/* ---- all at once ---- */

static enum baton_status
refuse_memory(int size)
{
	return batoni_refuse(BATON_ERR_NOMEM, "no memory for %d local ranks",
	                     size);
}

/* Some ranks have failed, and others may have started. */
static enum baton_status
refuse_all(const struct batoni_creation *failed,
           struct batoni_creation creations[], int size)
{
	for (int i = 0; i < size; i++) {
		if (creations[i].comm) {
			baton_comm_abort(creations[i].comm);
			baton_comm_destroy(creations[i].comm);
		}
	}
	return batoni_refuse(failed->status, "%s", failed->why);
}

/* plans: by rank.  Writes comms on success only. */
static enum baton_status
build_local(const struct batoni_comm_plan plans[], int size,
            struct baton_comm *comms[])
{
	struct batoni_creation *creations =
		batoni_alloc((size_t)size, sizeof(*creations));
	enum baton_status status = BATON_OK;
	struct batoni_creation *failed;
	struct batoni_room *room;

	if (!creations ||
	    batoni_threads_layer()->open(size, &room) != BATON_OK) {
		batoni_free(creations);
		return refuse_memory(size);
	}
	for (int i = 0; i < size; i++) {
		batoni_creation_begin(&creations[i], &plans[i], BATON_OK);
		batoni_threads_layer()->join(room, i, &creations[i].bootstrap);
	}
	failed = batoni_creation_run_all(creations, size);
	if (failed)
		status = refuse_all(failed, creations, size);
	for (int i = 0; i < size && !failed; i++)
		comms[i] = creations[i].comm;
	batoni_free(creations);
	return status;
}

/* All ranks have the plan. */
static enum baton_status
build_alike(const struct batoni_comm_plan *plan, int size,
            struct baton_comm *comms[])
{
	struct batoni_comm_plan *plans =
		batoni_alloc((size_t)size, sizeof(*plans));
	enum baton_status status;

	if (!plans)
		return refuse_memory(size);
	for (int i = 0; i < size; i++)
		plans[i] = *plan;
	status = build_local(plans, size, comms);
	batoni_free(plans);
	return status;
}

enum baton_status
batoni_local_size(const char *call, int size)
{
	if (size >= 1 && size <= SIZE_MAX_LOCAL)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: size is %d; it takes 1 to %d", call, size,
	                     SIZE_MAX_LOCAL);
}

enum baton_status
batoni_local_transport(const char *call, int size, struct batoni_comm_plan *plan)
{
	if (plan->transport == BATON_TRANSPORT_MPI)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: options->transport is "
		                     "BATON_TRANSPORT_MPI; the ranks of one process "
		                     "meet on BATON_TRANSPORT_LOCAL or %s",
		                     call, batoni_native_layer()->constant);
	/* Between ranks of one process, near is nothing else. */
	if (plan->transport == BATON_TRANSPORT_AUTO ||
	    plan->transport == BATON_TRANSPORT_NEAR)
		plan->transport = BATON_TRANSPORT_LOCAL;
	plan->size = size;
	return BATON_OK;
}

static enum baton_status
plan_local(const char *call, int size, const struct baton_comm_options *options,
           struct batoni_comm_plan *plan)
{
	enum baton_status status = batoni_local_size(call, size);

	if (status == BATON_OK)
		status = batoni_comm_plan(options, plan);
	return status == BATON_OK ? batoni_local_transport(call, size, plan)
	                          : status;
}

enum baton_status
baton_comm_create_local(int size, const struct baton_comm_options *options,
                        struct baton_comm *comms[])
{
	struct batoni_comm_plan plan;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create_local");
	if (!comms)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create_local: comms is NULL");
	status = plan_local("baton_comm_create_local", size, options, &plan);
	return status == BATON_OK ? build_alike(&plan, size, comms) : status;
}

/* ---- for tests ---- */

enum baton_status
batoni_comm_create_over(const struct batoni_device_ops *device,
                        struct batoni_transport *transports[], int size,
                        const struct baton_comm_options *options,
                        struct baton_comm *comms[])
{
	struct batoni_comm_plan plan;
	enum baton_status status;
	int n = 0;

	status = batoni_comm_plan(options, &plan);
	if (status != BATON_OK)
		return status;
	batoni_comm_plan_on(&plan, device);
	plan.onesided = !transports[0]->messages.ops->stream_issued;
	plan.check = false; /* these transports were opened without */
	/* A stream-issued transport reaches memory of the device. */
	plan.stages &= plan.onesided;
	plan.size = transports[0]->size;
	while (n < size && status == BATON_OK) {
		plan.device_config.host_rank = n;
		status = batoni_comm_prepare(&plan, &comms[n]);
		n += status == BATON_OK;
	}
	while (status != BATON_OK && n > 0)
		batoni_comm_discard(comms[--n]);
	for (int i = 0; i < size && status == BATON_OK; i++)
		batoni_comm_start(comms[i], transports[i]);
	return status;
}

enum baton_status
batoni_comm_create_local_with(const struct batoni_device_ops *device, int size,
                              const struct baton_comm_options *options,
                              struct baton_comm *comms[])
{
	struct batoni_comm_plan plan;
	enum baton_status status;

	status = plan_local("batoni_comm_create_local_with", size, options,
	                    &plan);
	if (status != BATON_OK)
		return status;
	batoni_comm_plan_on(&plan, device);
	return build_alike(&plan, size, comms);
}

enum baton_status
batoni_comm_create_local_mixed(const struct batoni_device_ops *const devices[],
                               int size,
                               const struct baton_comm_options *options,
                               struct baton_comm *comms[])
{
	struct batoni_comm_plan *plans =
		batoni_alloc((size_t)size, sizeof(*plans));
	enum baton_status status = plans ? BATON_OK : BATON_ERR_NOMEM;

	for (int i = 0; i < size && status == BATON_OK; i++) {
		status = plan_local("batoni_comm_create_local_mixed", size,
		                    options, &plans[i]);
		if (status == BATON_OK)
			batoni_comm_plan_on(&plans[i], devices[i]);
	}
	if (status == BATON_OK)
		status = build_local(plans, size, comms);
	batoni_free(plans);
	return status;
}
