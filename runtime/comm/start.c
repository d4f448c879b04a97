/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The start of a communicator: its transport is open, and nothing can fail any more.
 *
 * What was prepared (comm.c) is put together: near and staging over the transport, the one-sided layer, and the
 * paths in the order of preference.  Then the ways of messages are chosen, one for each rank, and the
 * communicator is entered in the table, from which on the engine may look at it.
 *
 * The thread that creates.
 */
#include "core.h"

#include <assert.h>

#include "comm.h"
#include "crowd.h"
#include "dump.h"
#include "engine.h"
#include "life.h"
#include "nvtx.h"
#include "registry.h"
#include "room.h"
#include "tables.h"
#include "trace.h"

/* May the fast path (direct.h) use this path? */
static bool
is_plain(const struct baton_comm *comm, const struct batoni_path *path)
{
	const struct batoni_path_ops *ops = path->ops;

	if (comm->onesided && path == &comm->onesided->path)
		return true;
	return ops->kinds == BATONI_MESSAGES && path != comm->hosts_path &&
	       ops->host_issued && !ops->checking;
}

static bool
has_near_peer(const struct batoni_transport *transport)
{
	for (int rank = 0; rank < transport->size; rank++) {
		if (rank != transport->rank && transport->peers[rank].near)
			return true;
	}
	return false;
}

void
batoni_comm_add_path(struct baton_comm *comm, struct batoni_path *path)
{
	assert(comm->paths_count < BATONI_PATHS_MAX);
	assert(!batoni_table_missing(&batoni_path_table, path->ops));
	/* The marks of a stream-issued path are the device's. */
	assert(!path->ops->stream_issued || comm->marks.by_slot);
	path->upcalls = &comm->upcalls;
	comm->paths[comm->paths_count++] = path;
	comm->plain &= is_plain(comm, path);
}

struct batoni_path *
batoni_comm_start_pairs(struct baton_comm *comm,
                        struct batoni_transport **transport)
{
	const struct batoni_pairs_ops *layer = batoni_pairs_layer();
	struct batoni_pairs *pairs = comm->pairs;

	comm->why_not_near = (*transport)->why_not_near;
	comm->message_paths = BATON_MESSAGE_PATH_TRANSPORT;
	if (pairs && (*transport)->all_near) {
		comm->message_paths = BATON_MESSAGE_PATH_NEAR;
		*transport = layer->start(pairs, *transport);
	} else if (pairs && has_near_peer(*transport)) {
		comm->message_paths |= BATON_MESSAGE_PATH_NEAR;
		return layer->beside(pairs, *transport);
	} else if (pairs) {
		layer->discard(pairs);
		comm->pairs = NULL;
	}
	return NULL;
}

void
batoni_comm_choose_message_paths(struct baton_comm *comm)
{
	comm->lists = true;
	for (int rank = 0; rank < comm->size; rank++) {
		int i = batoni_choose_path(comm, BATON_OPERATION_SEND, rank);
		const struct batoni_path_ops *ops = comm->paths[i]->ops;

		assert(i == batoni_choose_path(comm, BATON_OPERATION_RECV, rank));
		atomic_init(&comm->message_path[rank],
		            ops->serving ? BATONI_PATH_NONE : (uint8_t)i);
		comm->lists &= ops->lists;
	}
	if (comm->lists_path != BATONI_PATH_NONE)
		comm->lists = comm->paths[comm->lists_path]->ops->lists;
}

/* What the program's messages may do on both ways that they take, where the transport is a native one and near
 * is its lower transport.  NCCL's own messages have no tags. */
static void
find_capabilities(struct baton_comm *comm)
{
	const struct batoni_transport *transport = comm->transport;
	const struct batoni_transport *hosts = batoni_hosts_of(comm->transport);
	const unsigned onesided = BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;

	comm->capabilities = transport->capabilities;
	comm->tag_max = transport->tag_max;
	comm->hosts_carry = transport->hosts &&
	                    comm->message_paths & BATON_MESSAGE_PATH_NEAR;
	if (!comm->hosts_carry)
		return;
	if (comm->message_paths & BATON_MESSAGE_PATH_TRANSPORT) {
		comm->capabilities &= hosts->capabilities;
		return;
	}
	comm->capabilities = (transport->capabilities & onesided) |
	                     (hosts->capabilities & ~onesided);
	comm->tag_max = hosts->tag_max - 1;
}

/* Lists have a path of their own, unless near carries all messages. */
static void
add_lists(struct baton_comm *comm)
{
	comm->lists_path = BATONI_PATH_NONE;
	if (!comm->transport->lists)
		return;
	if (!comm->hosts_carry ||
	    comm->message_paths & BATON_MESSAGE_PATH_TRANSPORT)
		comm->lists_path = (uint8_t)comm->paths_count;
	batoni_comm_add_path(comm, comm->transport->lists);
}

void
batoni_comm_start(struct baton_comm *comm, struct batoni_transport *transport)
{
	/* With a native transport near has started already (open_native.c). */
	struct batoni_path *near =
		transport->hosts ? NULL
				 : batoni_comm_start_pairs(comm, &transport);

	comm->pairs = NULL;
	if (comm->staging) {
		transport = batoni_staging_layer()->start(comm->staging,
		                                          transport, near);
		comm->staging = NULL; /* the transport has both */
		near = NULL;
	}
	assert(!batoni_table_missing(&batoni_transport_table, transport->ops));
	assert(!batoni_table_missing(&batoni_transport_table,
	                             batoni_hosts_of(transport)->ops));
	comm->transport = transport;
	comm->transport_ops = transport->ops;
	comm->rank = transport->rank;
	comm->size = transport->size;
	find_capabilities(comm);
	comm->driving.drivers = transport->drivers;
	comm->driving.main_thread = transport->main_thread;
	comm->driving.by_any = transport->drivers == BATONI_DRIVERS_ANY;
	comm->driving.by_engine =
		comm->driving.by_any && comm->progress != BATON_PROGRESS_CALLS;
	batoni_observe_comm(comm);
	batoni_observe_comm_by(comm, batoni_nvtx_observer(comm));
	batoni_observe_comm_by(comm, batoni_trace_observer(comm));
	comm->plain = comm->driving.by_any && comm->in_engine &&
	              comm->timeout_ns == 0 && !comm->off_fast && !comm->inspects &&
	              !comm->checked;
	/* The thread that creates such a communicator is the one that drives it. */
	if (transport->drivers == BATONI_DRIVERS_MAIN)
		batoni_thread.must_drive = true;
	transport->upcalls = &comm->upcalls;
	/* Without peers, other ranks are reachable only by the transport's messages:
	 * no one-sided layer. */
	if (comm->onesided && !batoni_hosts_of(transport)->peers) {
		comm->onesided->ops->close(comm->onesided, false);
		comm->onesided = NULL;
	}
	batoni_comm_add_path(comm, &transport->messages);
	if (comm->onesided) {
		batoni_comm_add_path(comm, &comm->onesided->path);
		/* Add the path of the layer's messages, where another transport carries them. */
		if (transport->hosts) {
			comm->hosts_path = &transport->hosts->messages;
			batoni_comm_add_path(comm, comm->hosts_path);
		}
	}
	add_lists(comm);
	if (near)
		batoni_comm_add_path(comm, near);
	batoni_comm_choose_message_paths(comm);
	batoni_handle_start(&comm->handle);
	atomic_store_explicit(&batoni_comms[comm->index], comm,
	                      memory_order_release);
	/* From here on the engine may look at it. */
	if (comm->onesided)
		comm->onesided->ops->start(comm->onesided, comm);
	/* The layer may have added a path. */
	batoni_trace_paths(comm);
	batoni_lock();
	batoni_room_begin(comm);
	batoni_unlock();
	batoni_dump_start();
	batoni_announce(comm);
	batoni_crowd_warn(comm);
}
