/* SPDX-License-Identifier: BSD-3-Clause */
/* Logs, with BATON_LOG=debug, what an engineer asks first about a new communicator. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "config.h"
#include "core.h"
#include "crowd.h"
#include "log.h"

static const char *
who_drives(const struct baton_comm *comm)
{
	if (comm->driving.by_engine)
		return "the engine's thread, or a thread inside Baton";
	if (comm->progress == BATON_PROGRESS_CALLS)
		return "threads inside Baton alone (options.progress is "
		       "BATON_PROGRESS_CALLS)";
	if (comm->driving.drivers == BATONI_DRIVERS_MAIN)
		return "the thread that started MPI alone, inside Baton (MPI's "
		       "thread level)";
	return "threads inside Baton alone (MPI's thread level)";
}

/* Say why this process has not mapped the rank's segment. */
static const char *
why_by_message(const struct batoni_peer *peer)
{
	if (batoni_config()->window_path == BATON_WINDOW_PATH_MESSAGE)
		return "BATON_WINDOW_PATH forces it";
	return peer->pid ? "it is on this node, but its memory cannot be mapped: "
	                   "a container, or kernel.yama.ptrace_scope"
	                 : "it is on another node, or hidden from this process";
}

static void
announce_paths(const struct baton_comm *comm)
{
	const struct batoni_peer *peers = comm->transport->peers;
	int direct = 0, first = -1;

	if (!comm->onesided || !peers)
		return;
	for (int rank = 0; rank < comm->size; rank++) {
		if (peers[rank].segment)
			direct++;
		else if (first < 0)
			first = rank;
	}
	batoni_log(BATONI_LOG_DEBUG,
	           "rank %d: signals reach %d of %d ranks by stores into shared "
	           "memory",
	           comm->rank, direct, comm->size);
	batoni_log(BATONI_LOG_DEBUG,
	           "rank %d: puts and signals are carried out by %s%s",
	           comm->rank,
	           *batoni_why_engine_puts(comm)
	                   ? "the engine: "
	                   : "the streams that they are on, where these can",
	           batoni_why_engine_puts(comm));
	if (first >= 0)
		batoni_log(BATONI_LOG_DEBUG,
		           "rank %d: signals reach %d ranks by message, the "
		           "first of them rank %d: %s",
		           comm->rank, comm->size - direct, first,
		           why_by_message(&peers[first]));
}

void
batoni_announce(const struct baton_comm *comm)
{
	char timeout[32] = "none";

	if (batoni_config()->log_level < BATONI_LOG_DEBUG)
		return;
	if (comm->timeout_ns)
		snprintf(timeout, sizeof(timeout), "%.6g ms",
		         (double)comm->timeout_ns / 1e6);
	batoni_log(BATONI_LOG_DEBUG,
	           "rank %d of %d: communicator %u of process %ld, baton %s, "
	           "transport %s (%s), device %s",
	           comm->rank, comm->size, comm->index, (long)getpid(),
	           baton_version(), comm->transport_ops->name,
	           comm->transport->library, comm->device_ops->name);
	batoni_log(BATONI_LOG_DEBUG, "rank %d: progress is made by %s",
	           comm->rank, who_drives(comm));
	batoni_log(BATONI_LOG_DEBUG,
	           "rank %d: requests_max %u, timeout %s, signals_max %d, "
	           "contexts_max %d, tag_max %d, time stamps %s, small "
	           "operations go %s",
	           comm->rank, comm->pool.size,
	           timeout,
	           comm->onesided ? comm->onesided->signals_max : 0,
	           comm->onesided ? comm->onesided->contexts_max : 0,
	           comm->tag_max, comm->pool.stamps ? "kept" : "not kept",
	           comm->plain ? "the direct way"
	                       : "the general way (a default deadline, time "
	                         "stamps, checked mode, or MPI's thread "
	                         "level)");
	announce_paths(comm);
	batoni_crowd_announce(comm);
}
