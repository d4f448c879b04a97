/* SPDX-License-Identifier: BSD-3-Clause */
#include "crowd.h"

#include <stdatomic.h>
#include <stdio.h>

#include "core.h"
#include "log.h"

#define DEVICES 64u /* by their numbers, modulo this */

/* By device: so many queues were advised. */
static _Atomic uint32_t told[DEVICES];

static bool
query_crowd(const struct baton_comm *comm, struct batoni_crowd *crowd)
{
	if (!comm->device_ops->shared_queues)
		return false;
	comm->device_ops->shared_queues->crowd(comm->device, crowd);
	return batoni_is_crowded(crowd);
}

static void
describe(const struct baton_comm *comm, const struct batoni_crowd *crowd,
         char *text, size_t size)
{
	bool most = crowd->queues >= crowd->advised &&
	            crowd->copy_queues >= crowd->advised;

	snprintf(text, size,
	         "device %d has %u known streams in %u hardware queue%s (%u for "
	         "copies)%s%s",
	         comm->device->number, crowd->streams, crowd->queues,
	         crowd->queues == 1 ? "" : "s", crowd->copy_queues,
	         most ? ", the most that there are" : "; to part them: ",
	         most ? "" : crowd->advice);
}

bool
batoni_crowd_describe(const struct baton_comm *comm, char *text, size_t size)
{
	struct batoni_crowd crowd;

	text[0] = '\0';
	if (!query_crowd(comm, &crowd))
		return false;
	describe(comm, &crowd, text, size);
	return true;
}

bool
batoni_crowd_is(const struct baton_comm *comm)
{
	struct batoni_crowd crowd;

	return query_crowd(comm, &crowd);
}

/* Streams of the program count while they have operations, so there may be fewer by now. */
void
batoni_crowd_explain(const struct baton_comm *comm, char *text, size_t size)
{
	char now[BATONI_CROWD_BYTES];

	if (!batoni_crowd_describe(comm, now, sizeof(now)))
		snprintf(now, sizeof(now),
		         "device %d had more known streams than hardware queues",
		         comm->device->number);
	snprintf(text, size, "its peer's stream may stand behind another one: %s",
	         now);
}

void
batoni_crowd_query(const struct baton_comm *comm, struct baton_comm_info *info)
{
	struct batoni_crowd crowd;

	if (!comm->device_ops->shared_queues)
		return;
	comm->device_ops->shared_queues->crowd(comm->device, &crowd);
	info->cuda_streams = (int)crowd.streams;
	info->cuda_queues = (int)crowd.queues;
	info->cuda_copy_queues = (int)crowd.copy_queues;
}

void
batoni_crowd_announce(const struct baton_comm *comm)
{
	struct batoni_crowd crowd;

	if (!comm->device_ops->shared_queues)
		return;
	comm->device_ops->shared_queues->crowd(comm->device, &crowd);
	batoni_log(BATONI_LOG_DEBUG,
	           "rank %d: device %d has %u known streams in %u hardware "
	           "queues (%u for copies); a stream takes %u entries of "
	           "Baton's%s",
	           comm->rank, comm->device->number, crowd.streams, crowd.queues,
	           crowd.copy_queues, crowd.entries,
	           crowd.blocking ? crowd.blocking : "");
}

void
batoni_crowd_warn(const struct baton_comm *comm)
{
	struct batoni_crowd crowd;
	bool more, most;
	char text[BATONI_CROWD_BYTES];

	if (!query_crowd(comm, &crowd))
		return;
	more = atomic_exchange(&told[(unsigned)comm->device->number % DEVICES],
	                       crowd.advised) < crowd.advised;
	most = crowd.queues >= crowd.advised &&
	       crowd.copy_queues >= crowd.advised;
	describe(comm, &crowd, text, sizeof(text));
	batoni_log(more && !most ? BATONI_LOG_WARN : BATONI_LOG_INFO,
	           "rank %d: a stream that waits for a peer may hold up others, the "
	           "program's too: %s",
	           comm->rank, text);
}
