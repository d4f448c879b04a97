/* SPDX-License-Identifier: BSD-3-Clause */
/* What a communicator says of itself.  Any thread. */
#include "core.h"

#include "comm.h"
#include "config.h"
#include "crowd.h"
#include "engine.h"
#include "health.h"
#include "line.h"
#include "log.h"
#include "registry.h"
#include "sized.h"
#include "testing.h"

int
baton_comm_rank(const struct baton_comm *comm)
{
	return batoni_comm_lives(comm) ? comm->rank : -1;
}

int
baton_comm_size(const struct baton_comm *comm)
{
	return batoni_comm_lives(comm) ? comm->size : -1;
}

static const char *
why_not_native(const struct baton_comm *comm)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (comm->transport_ops->id == native->id)
		return "";
	return comm->device_ops->native == native->id ? native->why_not_asked
	                                              : native->why_no_device;
}

const char *
batoni_why_engine_puts(const struct baton_comm *comm)
{
	const struct batoni_device_ops *ops = comm->device_ops;
	const struct batoni_transport *hosts;
	const char *why = "";

	for (uint32_t i = 0; i < comm->paths_count; i++) {
		if (comm->paths[i]->ops->taking)
			return "";
	}
	if (!comm->onesided)
		return "the transport has no signals";
	if (comm->in_engine)
		return "the device is the host, whose streams are the engine's";
	if (batoni_config()->engine_puts)
		return "BATON_PUTS=engine says so";
	if (!ops->puts)
		return "streams of the device cannot store a signal";
	why = ops->puts->why_no_puts(comm->device);
	if (why)
		return why;
	if (batoni_config()->window_path == BATON_WINDOW_PATH_MESSAGE)
		return "BATON_WINDOW_PATH=message says that all go by message";
	hosts = batoni_hosts_of(comm->transport);
	if (hosts->why_no_streams)
		return hosts->why_no_streams;
	if (!ops->memory->pins)
		return "streams of the device store into memory of this process "
		       "alone";
	return "there was no pinned memory for the counters";
}

static const char *
why_not_near(const struct baton_comm *comm)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (comm->transport_ops->id == native->id && !comm->hosts_carry)
		return native->why_not_near;
	if (comm->transport_ops->id == BATON_TRANSPORT_LOCAL)
		return "the ranks are threads of one process";
	return comm->why_not_near;
}

static const struct batoni_sized sized_info = {
	.name = "info_p",
	.size_name = "info_p->size",
	.advice = "set it to sizeof(*info_p)",
	.smallest = BATONI_SIZED_UNTIL(struct baton_comm_info, library),
	.bytes = sizeof(struct baton_comm_info),
};

enum baton_status
baton_comm_query(const struct baton_comm *comm, struct baton_comm_info *info_p)
{
	struct baton_comm_info info;

	BATONI_ENTER("baton_comm_query");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_comm_query", comm);
	if (!info_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_query: info_p is NULL");
	info = (struct baton_comm_info){
		.size = sizeof(info),
		.rank = comm->rank,
		.ranks = comm->size,
		.device = comm->device_ops->id,
		.transport = comm->transport_ops->id,
		.device_name = comm->device_ops->name,
		.transport_name = comm->transport_ops->name,
		.library = comm->transport->library,
		.tag_max = comm->tag_max,
		.capabilities = comm->capabilities |
		                (comm->lists ? BATON_CAP_TENSORS : 0u) |
		                (batoni_lines_served(comm)
		                         ? BATON_CAP_ANY_SOURCE | BATON_CAP_ANY_TAG
		                         : 0u),
		.requests_max = comm->pool.size,
		.engine_thread = comm->driving.by_engine,
		.check = comm->checked,
		.nccl_version = comm->transport->nccl_version,
		.nccl_lanes = comm->transport->lanes,
		.nccl_ctas = comm->transport->ctas,
		.nccl_bytes = comm->transport->device_bytes,
		.why_not_nccl = why_not_native(comm),
		.why_engine_puts = batoni_why_engine_puts(comm),
		.cuda_device = comm->device->number,
		.message_paths = comm->message_paths,
		.why_not_near = why_not_near(comm),
	};
	if (comm->onesided) {
		info.signals_max = comm->onesided->signals_max;
		info.contexts_max = comm->onesided->contexts_max;
		info.signal_paths = comm->onesided->signal_paths;
		info.window_paths = atomic_load(&comm->onesided->window_paths);
	}
	batoni_crowd_query(comm, &info);
	return batoni_sized_give(&sized_info, "baton_comm_query", &info, info_p);
}

unsigned
baton_message_path(const struct baton_comm *comm, int peer)
{
	const unsigned both =
		BATON_MESSAGE_PATH_NEAR | BATON_MESSAGE_PATH_TRANSPORT;

	if (!batoni_comm_lives(comm) || peer < 0 || peer >= comm->size)
		return 0;
	/* Near may be a path of the engine's, or staging's lower one. */
	if (comm->message_paths != both)
		return comm->message_paths;
	return comm->transport->peers[peer].near ? BATON_MESSAGE_PATH_NEAR
	                                         : BATON_MESSAGE_PATH_TRANSPORT;
}

size_t
baton_progress(struct baton_comm *comm)
{
	if (!batoni_comm_lives(comm) || !batoni_may_call())
		return 0;
	return batoni_poll(comm);
}

struct batoni_device *
batoni_comm_device(struct baton_comm *comm)
{
	return comm->device;
}
