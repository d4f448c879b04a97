/* SPDX-License-Identifier: BSD-3-Clause */
/* The call that enqueues a barrier (barrier.c). */
#include "window.h"

#include "direct.h"
#include "enqueue.h"
#include "plan.h"
#include "scope.h"

static enum baton_status
fill_nothing(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	(void)onesided;
	(void)slot;
	(void)more;
	return BATON_OK;
}

/* A communicator whose native library has been lost ends if it has used the layer, and refuses it
 * from then on if it has not: `used` is stored before `lost_lower` is loaded (upcalls.c). */
static enum baton_status
check_layer(struct baton_comm *comm)
{
	struct batoni_onesided *layer = comm->onesided;

	if (!layer)
		return batoni_refuse_onesided("baton_barrier", comm);
	atomic_store(&layer->used, true);
	return atomic_load(&comm->driving.lost_lower)
	               ? batoni_refuse_lost("baton_barrier")
	               : BATON_OK;
}

/* OK, or AGAIN: not a case for the fast path. */
BATONI_ALWAYS_INLINE enum baton_status
enter_directly(struct baton_comm *comm, baton_stream stream,
               const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_op *op = batoni_direct_begin(comm, stream);
	struct batoni_rma *rma = batoni_rma_of(comm);

	if (unlikely(!op))
		return BATON_ERR_AGAIN;
	batoni_op_name(op, NULL, 0, -1, BATONI_TAG_BARRIER);
	batoni_direct_fill(op, comm, BATONI_KIND_BARRIER, BATONI_PATH_ONESIDED,
	                   BATONI_WAIT, stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0, BATONI_SITE);
	batoni_barrier_place(rma, &op->transfer);
	batoni_direct_end(op, batoni_barrier_issue(rma, &op->transfer), request_p);
	return BATON_OK;
}

static enum baton_status
replay_barrier(struct baton_comm *comm, const void *payload)
{
	const struct batoni_recorded *recorded = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(recorded);

	if (atomic_load(&comm->driving.lost_lower))
		return batoni_refuse_lost("baton_plan_launch");
	return batoni_enqueue_onesided("baton_plan_launch", BATONI_KIND_BARRIER,
	                               comm, &a, 0, fill_nothing, NULL);
}

static enum baton_status
note_barrier(struct baton_comm *comm, const struct batoni_arguments *a)
{
	static const struct batoni_plan_entry_ops ops = {.replay = replay_barrier};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, BATONI_KIND_BARRIER, a, 0);
	return batoni_plan_add("baton_barrier", batoni_plan_recorded(comm),
	                       &ops, a->stream, &recorded, sizeof(recorded),
	                       NULL, 0);
}

enum baton_status
baton_barrier(struct baton_comm *comm, baton_stream stream,
              const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_arguments a = {.type = BATON_UINT8,
	                             .peer = -1,
	                             .tag = BATONI_TAG_BARRIER,
	                             .stream = stream,
	                             .options = options,
	                             .request_p = request_p};
	struct baton_op_options room;
	enum baton_status status;

	if (likely(batoni_is_usual(comm, options) && comm->onesided &&
	           atomic_load_explicit(&comm->onesided->used,
	                                memory_order_relaxed) &&
	           enter_directly(comm, stream, options, request_p) == BATON_OK))
		return BATON_OK;
	BATONI_KEEP_SITE();
	status = batoni_check_target("baton_barrier", comm, stream, false);
	if (status == BATON_OK)
		status = check_layer(comm);
	if (status == BATON_OK)
		status = batoni_take_options("baton_barrier", &a.options, &room,
		                             false);
	if (status == BATON_OK)
		status = batoni_enqueue_onesided("baton_barrier",
		                                 BATONI_KIND_BARRIER, comm, &a,
		                                 0, fill_nothing, NULL);
	if (unlikely(status == BATONI_RECORDED))
		status = note_barrier(comm, &a);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}
