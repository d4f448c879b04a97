/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that enqueue a wait for any of several counters, and a wait for a value of a counter; and
 * baton_signal_count.
 *
 * These waits are kinds of their own, which the one-sided layer's own path carries alone: a path that
 * has streams wait for counters by themselves has no way to give units back, or to say which
 * counter it was.  In wait.c they are waits like the others.  They have no fast path: a program that
 * calls them expects to wait.
 */
#include "calls.h"

#include "engine.h"
#include "health.h"
#include "log.h"
#include "location.h"
#include "plan.h"
#include "scope.h"

/* What a recorded call keeps, in front of its descriptors. */
struct watch {
	struct batoni_recorded call;
	size_t desc_count;
	int *index_p;   /* any */
	uint64_t value; /* count */
};

struct watch_more {
	const char *call;
	const struct watch *watch;
	const struct baton_wait_signal_desc *descs;
};

static enum baton_status
fill_any(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	const struct watch_more *any = more;
	size_t twice = 0;
	enum baton_status status = batoni_wait_describe_any(
		rma, slot, any->watch->desc_count, any->descs,
		any->watch->index_p, &twice);

	if (status == BATON_ERR_MISMATCH)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: descs[%zu] names the counter of one "
		                     "before it; each may be named once",
		                     any->call, twice);
	return batoni_refuse_wait(any->call, rma, any->watch->desc_count, status);
}

static enum baton_status
fill_count(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	const struct watch_more *count = more;

	return batoni_refuse_wait(count->call, rma, 1,
	                          batoni_wait_describe_count(
					  rma, slot, count->descs,
					  count->watch->value));
}

static enum baton_status
enqueue(const char *call, struct baton_comm *comm,
        const struct batoni_arguments *a, enum batoni_op_kind kind,
        const struct watch *watch, const struct baton_wait_signal_desc *descs)
{
	const struct watch_more more = {call, watch, descs};

	return batoni_enqueue_onesided(
		call, kind, comm, a, 0,
		kind == BATONI_KIND_WAIT_ANY ? fill_any : fill_count, &more);
}

static enum baton_status
replay(struct baton_comm *comm, const void *payload)
{
	const struct watch *watch = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(&watch->call);

	if (atomic_load(&comm->driving.lost_lower))
		return batoni_refuse_lost("baton_plan_launch");
	return enqueue("baton_plan_launch", comm, &a, watch->call.kind, watch,
	               batoni_plan_entry_more(payload, sizeof(*watch)));
}

/* The arguments have been checked. */
static enum baton_status
enqueue_or_note(const char *call, struct baton_comm *comm,
                const struct batoni_arguments *a, enum batoni_op_kind kind,
                struct watch *watch, const struct baton_wait_signal_desc *descs)
{
	static const struct batoni_plan_entry_ops ops = {.replay = replay};
	enum baton_status status = enqueue(call, comm, a, kind, watch, descs);

	if (status != BATONI_RECORDED)
		return status;
	batoni_recorded_fill(&watch->call, kind, a, 0);
	return batoni_plan_add(call, batoni_plan_recorded(comm), &ops, a->stream,
	                       watch, sizeof(*watch), descs,
	                       watch->desc_count * sizeof(*descs));
}

/* The engine writes *index_p, on a thread of the host. */
static enum baton_status
check_index(const char *call, struct baton_comm *comm, const int *index_p)
{
	unsigned location = BATONI_MEMORY_HOST;
	enum baton_status status = BATON_OK;

	if (!index_p || !batoni_location_counts(comm))
		return BATON_OK;
	status = batoni_location_find(comm, index_p, sizeof(*index_p), &location);
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(comm, status);
	if (status != BATON_OK)
		return batoni_refuse_named(call, status);
	if (batoni_location_is_host(location))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: index_p is %p, memory of a device; it has to be "
	                     "memory of the host",
	                     call, (const void *)index_p);
}

enum baton_status
baton_wait_signal_any(size_t desc_count,
                      const struct baton_wait_signal_desc *descs, int *index_p,
                      struct baton_comm *comm, baton_stream stream,
                      const struct baton_op_options *options,
                      baton_request *request_p)
{
	static const char *const call = "baton_wait_signal_any";
	struct watch watch = {.desc_count = desc_count, .index_p = index_p};
	struct batoni_arguments a = {.type = BATON_UINT8,
	                             .stream = stream,
	                             .options = options,
	                             .request_p = request_p};
	struct baton_op_options room;
	enum baton_status status = batoni_check_target(call, comm, stream, false);

	BATONI_KEEP_SITE();
	if (status == BATON_OK)
		status = batoni_check_layer(call, comm);
	if (status == BATON_OK)
		status = batoni_check_descs(call, comm, desc_count, descs);
	if (status == BATON_OK)
		status = check_index(call, comm, index_p);
	if (status == BATON_OK)
		status = batoni_take_options(call, &a.options, &room, false);
	if (status == BATON_OK) {
		a.peer = batoni_common_peer(desc_count, descs);
		status = enqueue_or_note(call, comm, &a, BATONI_KIND_WAIT_ANY,
		                         &watch, descs);
	}
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

enum baton_status
baton_wait_signal_count(int peer, int signal_index, int context, uint64_t value,
                        struct baton_comm *comm, baton_stream stream,
                        const struct baton_op_options *options,
                        baton_request *request_p)
{
	static const char *const call = "baton_wait_signal_count";
	const struct baton_wait_signal_desc desc = {1, peer, signal_index, context};
	struct watch watch = {.desc_count = 1, .value = value};
	struct batoni_arguments a = {.type = BATON_UINT8,
	                             .peer = peer,
	                             .stream = stream,
	                             .options = options,
	                             .request_p = request_p};
	struct baton_op_options room;
	enum baton_status status = batoni_check_target(call, comm, stream, false);

	BATONI_KEEP_SITE();
	if (status == BATON_OK)
		status = batoni_check_layer(call, comm);
	if (status == BATON_OK)
		status = batoni_check_counter(call, comm, peer, signal_index,
		                              context);
	if (status == BATON_OK)
		status = batoni_take_options(call, &a.options, &room, false);
	if (status == BATON_OK)
		status = enqueue_or_note(call, comm, &a, BATONI_KIND_WAIT_COUNT,
		                         &watch, &desc);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

/* ---- the count ---------------------------------------------------------- */

/* Apply what has arrived by message. */
static void
receive_signals(struct batoni_rma *rma)
{
	struct baton_comm *comm = rma->comm;

	if (!batoni_trylock()) {
		if (!batoni_is_left_to_us(comm))
			return;
		batoni_lock();
	}
	if (batoni_may_drive(comm) && comm->fault.status == BATON_OK &&
	    !atomic_load(&comm->driving.lost_lower)) {
		batoni_messages_post(rma);
		rma->transport->messages.ops->test(&rma->transport->messages);
		comm->onesided->path.ops->test(&comm->onesided->path);
		batoni_end_and_issue();
	}
	batoni_unlock();
}

enum baton_status
baton_signal_count(struct baton_comm *comm, int peer, int signal_index,
                   int context, uint64_t *count_p)
{
	enum baton_status status;
	struct batoni_link *link;
	struct batoni_rma *rma;

	BATONI_ENTER("baton_signal_count");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_signal_count", comm);
	if (!count_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_signal_count: count_p is NULL");
	/* Also without what is below: the counter is this rank's. */
	status = comm->onesided
	                 ? BATON_OK
	                 : batoni_refuse_onesided("baton_signal_count", comm);
	if (status == BATON_OK)
		status = batoni_check_counter("baton_signal_count", comm, peer,
		                              signal_index, context);
	if (status != BATON_OK)
		return status;
	rma = batoni_rma_of(comm);
	link = batoni_link_make(rma, peer);
	if (!link)
		return batoni_refuse_peer_memory("baton_signal_count", peer);
	if (batoni_comes_by_message(rma, peer) || batoni_messages_posted(rma))
		receive_signals(rma);
	*count_p = atomic_load(
		batoni_counter_of(rma, link, signal_index, context)->value);
	return BATON_OK;
}
