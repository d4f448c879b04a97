/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of a communicator, checked, with defaults and what the environment says: its
 * plan (opening.h).  AUTO leaves a choice to the environment, on the device that it is about.
 */
#include "comm.h"

#include <string.h>

#include "config.h"
#include "launcher.h"
#include "log.h"
#include "registry.h"
#include "sized.h"

void
batoni_comm_plan_on(struct batoni_comm_plan *plan,
                    const struct batoni_device_ops *device)
{
	plan->device = device->id;
	plan->device_ops = device;
	plan->stages = !device->memory->host_only;
}

/* The device that the thread works on, unless the options name one. */
static enum baton_status
plan_number(struct batoni_comm_plan *plan)
{
	if (plan->device_config.cuda_device >= 0)
		return BATON_OK;
	return plan->device_ops->current(&plan->device_config.cuda_device);
}

/* What the environment says that AUTO is. */
static const struct batoni_device_ops *
default_device(void)
{
	const struct batoni_native_ops *native = batoni_native_layer();
	const struct batoni_config *config = batoni_config();

	if (*config->device)
		return batoni_device_named(config->device);
	/* Asking for a native transport means its device. */
	if (strcmp(config->transport, native->name) == 0)
		return batoni_device_of_native(native->id);
	return batoni_device_find(BATON_DEVICE_HOST);
}

static enum baton_status
plan_device(enum baton_device asked, struct batoni_comm_plan *plan)
{
	const struct batoni_device_ops *ops =
		asked == BATON_DEVICE_AUTO ? default_device()
	                                   : batoni_device_find(asked);
	char list[160];

	if (!ops) {
		batoni_device_list(list, sizeof(list));
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->device is %d; it takes "
		                     "BATON_DEVICE_AUTO (0), %s",
		                     (int)asked, list);
	}
	if (!batoni_device_is_whole(ops))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s%s: the %s device of this build of Baton "
		                     "%s is not complete (the log says what it "
		                     "lacks); use BATON_DEVICE_HOST",
		                     asked == BATON_DEVICE_AUTO
		                             ? "the environment asks for "
		                             : "options->device is ",
		                     ops->constant, ops->name, baton_version());
	batoni_comm_plan_on(plan, ops);
	return plan_number(plan);
}

/* What the environment says holds for AUTO, on the device that it is about. */
static void
plan_transport(struct batoni_comm_plan *plan)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (plan->transport == BATON_TRANSPORT_AUTO &&
	    plan->device_ops->native == native->id &&
	    strcmp(batoni_config()->transport, native->name) == 0)
		plan->transport = native->id;
	plan->onesided = true;
}

static enum baton_status
check_transport(const struct batoni_comm_plan *plan)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (plan->transport == BATON_TRANSPORT_AUTO ||
	    plan->transport == BATON_TRANSPORT_LOCAL ||
	    plan->transport == BATON_TRANSPORT_MPI ||
	    batoni_plan_is_native(plan))
		return BATON_OK;
	if (plan->transport == native->id)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "options->transport is %s, which moves %s: "
		                     "it needs %s",
		                     native->constant, native->moves,
		                     native->needs);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "options->transport is %d; it takes "
	                     "BATON_TRANSPORT_AUTO, _LOCAL, _MPI (0 to 2) or "
	                     "%s (%d)",
	                     (int)plan->transport, native->constant,
	                     (int)native->id);
}

static const struct baton_comm_options defaults = BATON_COMM_OPTIONS_INIT;

static const struct batoni_sized sized_options = {
	.name = "options",
	.size_name = "options->size",
	.advice = "use BATON_COMM_OPTIONS_INIT",
	.smallest = BATONI_SIZED_UNTIL(struct baton_comm_options, timeout_ns),
	.bytes = sizeof(struct baton_comm_options),
	.defaults = &defaults,
	.reserved = {BATONI_RESERVED(struct baton_comm_options, reserved)},
};

enum baton_status
batoni_comm_plan(const struct baton_comm_options *options,
                 struct batoni_comm_plan *plan_p)
{
	struct baton_comm_options room;
	enum baton_status status;

	options = options ? batoni_sized_take(&sized_options, NULL, options, &room)
	                  : &defaults;
	if (!options)
		return BATON_ERR_INVALID;
	if (options->requests_max > BATON_REQUESTS_MAX_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->requests_max is %u; it takes 1 to "
		                     "%u, or 0 for %u",
		                     options->requests_max,
		                     BATON_REQUESTS_MAX_LIMIT,
		                     BATON_REQUESTS_MAX_DEFAULT);
	if (options->signals_max < 0 ||
	    options->signals_max > BATON_SIGNALS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->signals_max is %d; it takes 1 to "
		                     "%d, or 0 for %d",
		                     options->signals_max, BATON_SIGNALS_LIMIT,
		                     BATON_SIGNALS_MAX_DEFAULT);
	if (options->contexts_max < 0 ||
	    options->contexts_max > BATON_CONTEXTS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->contexts_max is %d; it takes 1 to "
		                     "%d, or 0 for %d",
		                     options->contexts_max,
		                     BATON_CONTEXTS_LIMIT,
		                     BATON_CONTEXTS_MAX_DEFAULT);
	if (options->tensors_max > BATON_TENSORS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->tensors_max is %u; it takes 1 to "
		                     "%u, or 0 for %u",
		                     options->tensors_max, BATON_TENSORS_LIMIT,
		                     BATON_TENSORS_MAX_DEFAULT);
	if (options->cuda_device < -1)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->cuda_device is %d; it takes the "
		                     "number of a device, or -1",
		                     options->cuda_device);
	if ((unsigned)options->progress > BATON_PROGRESS_CALLS)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->progress is %d; it takes "
		                     "BATON_PROGRESS_AUTO, _THREAD or _CALLS (0 "
		                     "to 2)",
		                     (int)options->progress);
	if (options->nccl_lanes < 0 ||
	    options->nccl_lanes > BATON_NCCL_LANES_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->nccl_lanes is %d; it takes 1 to "
		                     "%d, or 0 for as many as are of use",
		                     options->nccl_lanes,
		                     BATON_NCCL_LANES_LIMIT);
	if (options->nccl_ctas < 0 || options->nccl_ctas > BATON_NCCL_CTAS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->nccl_ctas is %d; it takes 1 to "
		                     "%d, or 0 for half of the GPU among all lanes",
		                     options->nccl_ctas, BATON_NCCL_CTAS_LIMIT);
	*plan_p = (struct batoni_comm_plan){
		.transport = options->transport,
		.requests_max = options->requests_max
		                        ? options->requests_max
		                        : BATON_REQUESTS_MAX_DEFAULT,
		.signals_max = options->signals_max
		                       ? options->signals_max
		                       : BATON_SIGNALS_MAX_DEFAULT,
		.contexts_max = options->contexts_max
		                        ? options->contexts_max
		                        : BATON_CONTEXTS_MAX_DEFAULT,
		.nccl_lanes = options->nccl_lanes
		                      ? options->nccl_lanes
		                      : (int)batoni_config()->nccl_lanes,
		.nccl_ctas = options->nccl_ctas
		                     ? options->nccl_ctas
		                     : (int)batoni_config()->nccl_ctas,
		.nccl_lists = options->nccl_lists || batoni_config()->nccl_lists,
		.tensors_max = options->tensors_max
		                       ? options->tensors_max
		                       : BATON_TENSORS_MAX_DEFAULT,
		.timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : 0,
		.progress = options->progress,
		.timestamps = options->timestamps,
		.check = options->check || batoni_config()->check,
		.device_config = {.cuda_device = options->cuda_device,
		                  .host_rank = batoni_launcher_host_rank()},
	};
	plan_p->requests_most = plan_p->requests_max;
	status = plan_device(options->device, plan_p);
	if (status != BATON_OK)
		return status;
	plan_transport(plan_p);
	return check_transport(plan_p);
}
