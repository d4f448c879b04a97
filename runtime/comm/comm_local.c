/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators whose ranks are in this process, created all at once.  Those that come one by
 * one, with an id: comm_id.c.
 */
#include "core.h"

#include <string.h>

#include "comm_local.h"
#include "config.h"
#include "log.h"
#include "mem.h"
#include "open_native.h"
#include "registry.h"
#include "testing.h"

#define SIZE_MAX_LOCAL ((int)BATONI_COMMS_MAX - 1)

/* ---- all at once ---- */

static void
discard_all(int n, struct baton_comm *comms[])
{
	while (n-- > 0)
		batoni_comm_discard(comms[n]);
}

/* plans: by rank. */
static enum baton_status
prepare_all(const struct batoni_comm_plan plans[], int size,
            struct baton_comm *comms[])
{
	enum baton_status status = BATON_OK;
	int n = 0;

	while (n < size && status == BATON_OK) {
		status = batoni_comm_prepare(&plans[n], &comms[n]);
		n += status == BATON_OK;
	}
	if (status != BATON_OK)
		discard_all(n, comms);
	return status;
}

static enum baton_status
refuse_memory(int size)
{
	return batoni_refuse(BATON_ERR_NOMEM, "no memory for %d local ranks",
	                     size);
}

/* The processes of this host are taken to have as many ranks each. */
static void
number_on_host(struct batoni_comm_plan plans[], int size)
{
	int process = plans[0].device_config.host_rank;

	for (int i = 0; i < size; i++)
		plans[i].device_config.host_rank =
			(process < 0 ? 0 : process) * size + i;
}

void
batoni_local_agree(struct batoni_comm_plan plans[], int size)
{
	batoni_comm_plans_agree(plans, size);
	number_on_host(plans, size);
}

/* They were opened for communicators that do not start. */
static void
close_all(int size, struct batoni_transport *transports[])
{
	batoni_take();
	for (int i = 0; i < size; i++)
		transports[i]->ops->close(transports[i], true);
	batoni_leave();
}

/* A device whose streams are to store into the segments, or NULL.  Its pinned memory is that of
 * all devices of its kind. */
static struct batoni_device *
find_storing(int size, struct baton_comm *comms[])
{
	if (batoni_config()->engine_puts)
		return NULL;
	for (int i = 0; i < size; i++) {
		const struct batoni_device_ops *ops = comms[i]->device_ops;

		if (ops->stream_put && !ops->why_no_puts(comms[i]->device))
			return comms[i]->device;
	}
	return NULL;
}

enum baton_status
batoni_local_start(const struct batoni_comm_plan plans[], int size,
                   struct baton_comm *comms[])
{
	struct batoni_transport **transports =
		batoni_alloc((size_t)size, sizeof(*transports));
	/* The same for all ranks: staging hides their devices. */
	struct batoni_transport_config config =
		batoni_comm_transport_config(&plans[0], comms[0]);
	enum baton_status status = BATON_OK;

	config.until_ns = comms[0]->patience.until_ns;
	config.stores = find_storing(size, comms);
	if (!transports ||
	    batoni_open_local(size, &config, transports) != BATON_OK)
		status = refuse_memory(size);
	if (status == BATON_OK && plans[0].transport == BATON_TRANSPORT_NCCL) {
		status = batoni_comm_open_native(comms, transports, size);
		if (status != BATON_OK)
			close_all(size, transports);
	}
	for (int i = 0; i < size && status == BATON_OK; i++)
		batoni_comm_start(comms[i], transports[i]);
	batoni_free(transports);
	return status;
}

/* plans: by rank.  Writes comms on success only. */
static enum baton_status
build_local(struct batoni_comm_plan plans[], int size,
            struct baton_comm *comms[])
{
	struct baton_comm **built = batoni_alloc((size_t)size, sizeof(*built));
	enum baton_status status;

	if (!built)
		return refuse_memory(size);
	batoni_local_agree(plans, size);
	status = prepare_all(plans, size, built);
	if (status == BATON_OK) {
		status = batoni_local_start(plans, size, built);
		if (status == BATON_OK)
			memcpy(comms, built, (size_t)size * sizeof(*built));
		else
			discard_all(size, built);
	}
	batoni_free(built);
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
batoni_local_plan(const char *call, int size,
                  const struct baton_comm_options *options,
                  struct batoni_comm_plan *plan)
{
	enum baton_status status = batoni_local_size(call, size);

	if (status != BATON_OK)
		return status;
	status = batoni_comm_plan(options, plan);
	if (status != BATON_OK)
		return status;
	if (plan->transport == BATON_TRANSPORT_MPI)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: options->transport is "
		                     "BATON_TRANSPORT_MPI; the ranks of one process "
		                     "meet on BATON_TRANSPORT_LOCAL or _NCCL",
		                     call);
	if (plan->transport == BATON_TRANSPORT_AUTO)
		plan->transport = BATON_TRANSPORT_LOCAL;
	plan->size = size;
	return BATON_OK;
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
	status = batoni_local_plan("baton_comm_create_local", size, options, &plan);
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
	if (status != BATON_OK)
		discard_all(n, comms);
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

	status = batoni_local_plan("batoni_comm_create_local_with", size, options,
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
		status = batoni_local_plan("batoni_comm_create_local_mixed", size,
		                    options, &plans[i]);
		if (status == BATON_OK)
			batoni_comm_plan_on(&plans[i], devices[i]);
	}
	if (status == BATON_OK)
		status = build_local(plans, size, comms);
	batoni_free(plans);
	return status;
}
