/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baton_wait_signal, and what all calls of this room check.
 *
 * The fast path of a wait goes straight to wait.c (direct.h): valid arguments, an idle
 * host stream, no other driver, and only one descriptor.  In all other cases a
 * call first checks all of its own arguments, in the order of the prototype, and then
 * enqueues as a send does (enqueue.c).  What an operation needs beyond its transfer is
 * filled into pending[slot] before the operation is published.
 */
#include "calls.h"

#include <stdio.h>

#include "direct.h"
#include "engine.h"
#include "health.h"
#include "log.h"
#include "plan.h"
#include "scope.h"

enum baton_status
batoni_check_layer(const char *call, const struct baton_comm *comm)
{
	if (!comm->onesided)
		return batoni_refuse_onesided(call, comm);
	return atomic_load(&comm->driving.lost_lower) ? batoni_refuse_lost(call) : BATON_OK;
}

static enum baton_status
check_peer(const char *call, const char *where, const struct baton_comm *comm,
           int peer)
{
	if (peer < 0 || peer >= comm->size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %speer is %d; ranks are 0 to %d", call,
		                     where, peer, comm->size - 1);
	return BATON_OK;
}

static enum baton_status
check_context(const char *call, const char *where,
              const struct baton_comm *comm, int context)
{
	const struct batoni_onesided *layer = comm->onesided;

	if (context < 0 || context >= layer->contexts_max)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %scontext is %d; contexts are 0 to %d "
		                     "(contexts_max)",
		                     call, where, context,
		                     layer->contexts_max - 1);
	return BATON_OK;
}

/* `where` goes in front of the arguments' names: "", or the descriptor that has them. */
static enum baton_status
check_counter_of(const char *call, const char *where,
                 const struct baton_comm *comm, int peer, int signal_index,
                 int context)
{
	const struct batoni_onesided *layer = comm->onesided;
	enum baton_status status = check_peer(call, where, comm, peer);

	if (status != BATON_OK)
		return status;
	if (signal_index < 0 || signal_index >= layer->signals_max)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %ssignal_index is %d; indices are 0 to "
		                     "%d (signals_max)",
		                     call, where, signal_index,
		                     layer->signals_max - 1);
	return check_context(call, where, comm, context);
}

enum baton_status
batoni_check_channel(const char *call, const struct baton_comm *comm, int peer,
                     int context)
{
	enum baton_status status = check_peer(call, "", comm, peer);

	return status == BATON_OK ? check_context(call, "", comm, context)
	                          : status;
}

enum baton_status
batoni_check_counter(const char *call, const struct baton_comm *comm, int peer,
                     int signal_index, int context)
{
	return check_counter_of(call, "", comm, peer, signal_index, context);
}

enum baton_status
batoni_refuse_peer_memory(const char *call, int peer)
{
	return batoni_refuse(BATON_ERR_NOMEM,
	                     "%s: no memory for what is kept for rank %d", call,
	                     peer);
}

/* ---- waits -------------------------------------------------------------- */

struct wait_more {
	size_t desc_count;
	const struct baton_wait_signal_desc *descs;
};

enum baton_status
batoni_refuse_wait(const char *call, const struct batoni_rma *rma,
                   size_t desc_count, enum baton_status status)
{
	const uint32_t most = rma->requests_max + (uint32_t)rma->size;

	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "%s: all outstanding waits together name more "
		                     "than %u counters (requests_max and one for "
		                     "each rank); let some end",
		                     call, most);
	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status,
		                     "%s: no memory for what is kept for the ranks "
		                     "that it names",
		                     call);
	if (status == BATON_ERR_INVALID)
		return batoni_refuse(status,
		                     "%s: desc_count is %zu, and they name more "
		                     "counters than all waits may together: %u "
		                     "(requests_max and one for each rank)",
		                     call, desc_count, most);
	return status;
}

static enum baton_status
fill_wait(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	const struct wait_more *wait = more;

	return batoni_refuse_wait(
		"baton_wait_signal", rma, wait->desc_count,
		batoni_wait_describe(rma, slot, wait->desc_count, wait->descs));
}

static enum baton_status
check_desc(const char *call, const struct baton_comm *comm, size_t i,
           const struct baton_wait_signal_desc *desc)
{
	enum baton_status status;
	char where[32];

	if (desc->op_count >= 1 &&
	    batoni_counter_fine(comm, desc->peer, desc->signal_index, desc->context))
		return BATON_OK;
	snprintf(where, sizeof(where), "descs[%zu].", i);
	status = check_counter_of(call, where, comm, desc->peer,
	                          desc->signal_index, desc->context);
	if (status != BATON_OK)
		return status;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: %sop_count is %d; it must be at least 1", call,
	                     where, desc->op_count);
}

enum baton_status
batoni_check_descs(const char *call, const struct baton_comm *comm,
                   size_t desc_count, const struct baton_wait_signal_desc *descs)
{
	enum baton_status status = BATON_OK;

	if (desc_count < 1 || desc_count > BATON_WAIT_DESCS_MAX || !descs)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: desc_count is %zu%s; it takes 1 to %u "
		                     "descriptors",
		                     call, desc_count, descs ? "" : ", descs NULL",
		                     BATON_WAIT_DESCS_MAX);
	for (size_t i = 0; i < desc_count && status == BATON_OK; i++)
		status = check_desc(call, comm, i, &descs[i]);
	return status;
}

/* OK, or AGAIN: not a case for the fast path. */
BATONI_ALWAYS_INLINE enum baton_status
wait_directly(const struct baton_wait_signal_desc *desc,
              struct baton_comm *comm, baton_stream stream,
              const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_op *op = batoni_direct_begin(comm, stream);
	enum baton_status status;

	if (unlikely(!op))
		return BATON_ERR_AGAIN;
	batoni_op_name(op, NULL, 0, desc->peer, 0);
	batoni_direct_fill(op, comm, BATONI_KIND_WAIT, BATONI_PATH_ONESIDED,
	                   BATONI_WAIT, stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0, BATONI_SITE);
	status = batoni_wait_issue_one(batoni_rma_of(comm), &op->transfer, desc);
	if (unlikely(status == BATON_ERR_AGAIN)) {
		if (unlikely(comm->observed))
			batoni_op_observe_event(op, BATONI_EVENT_UNDONE);
		batoni_direct_undo(comm, op);
		return status;
	}
	batoni_direct_end(op, status, request_p);
	return BATON_OK;
}

static enum baton_status
replay_wait(struct baton_comm *comm, const void *payload)
{
	const struct batoni_recorded *recorded = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(recorded);
	const struct wait_more more = {
		.desc_count = recorded->a.count,
		.descs = batoni_plan_entry_more(payload, sizeof(*recorded)),
	};
	struct batoni_arguments none = a;

	none.count = 0;
	if (atomic_load(&comm->driving.lost_lower))
		return batoni_refuse_lost("baton_plan_launch");
	return batoni_enqueue_onesided("baton_plan_launch", BATONI_KIND_WAIT,
	                               comm, &none, 0, fill_wait, &more);
}

/* The plan keeps the number of descriptors as the count. */
static enum baton_status
note_wait(struct baton_comm *comm, const struct batoni_arguments *a,
          const struct wait_more *more)
{
	static const struct batoni_plan_entry_ops ops = {.replay = replay_wait};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, BATONI_KIND_WAIT, a, 0);
	recorded.a.count = more->desc_count;
	return batoni_plan_add("baton_wait_signal", batoni_plan_recorded(comm),
	                       &ops, a->stream, &recorded, sizeof(recorded),
	                       more->descs,
	                       more->desc_count * sizeof(*more->descs));
}

int
batoni_common_peer(size_t desc_count, const struct baton_wait_signal_desc *descs)
{
	for (size_t i = 1; i < desc_count; i++) {
		if (descs[i].peer != descs[0].peer)
			return -1;
	}
	return descs[0].peer;
}

enum baton_status
baton_wait_signal(size_t desc_count, const struct baton_wait_signal_desc *descs,
                  struct baton_comm *comm, baton_stream stream,
                  const struct baton_op_options *options,
                  baton_request *request_p)
{
	const struct wait_more more = {desc_count, descs};
	struct batoni_arguments a = {.type = BATON_UINT8,
	                             .stream = stream,
	                             .options = options,
	                             .request_p = request_p};
	struct baton_op_options room;
	enum baton_status status;

	if (likely(batoni_is_usual(comm, options) && desc_count == 1 && descs &&
	           batoni_counter_fine(comm, descs->peer, descs->signal_index,
	                               descs->context) &&
	           descs->op_count >= 1 &&
	           wait_directly(descs, comm, stream, options, request_p) ==
	                   BATON_OK))
		return BATON_OK;
	BATONI_KEEP_SITE();
	status = batoni_check_target("baton_wait_signal", comm, stream, false);
	if (status == BATON_OK)
		status = batoni_check_layer("baton_wait_signal", comm);
	if (status == BATON_OK)
		status = batoni_check_descs("baton_wait_signal", comm,
		                            desc_count, descs);
	if (status == BATON_OK)
		status = batoni_take_options("baton_wait_signal", &a.options,
		                             &room, false);
	if (status == BATON_OK) {
		a.peer = batoni_common_peer(desc_count, descs);
		status = batoni_enqueue_onesided("baton_wait_signal",
		                                 BATONI_KIND_WAIT, comm, &a, 0,
		                                 fill_wait, &more);
	}
	if (unlikely(status == BATONI_RECORDED))
		status = note_wait(comm, &a, &more);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}
