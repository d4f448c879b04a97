/* SPDX-License-Identifier: BSD-3-Clause */
#include "life.h"

#include "testing.h"

/* Of the communicators that are made now. */
static _Atomic(const struct batoni_observer *) current;

void
batoni_observer_set(const struct batoni_observer *observer_or_null)
{
	atomic_store(&current, observer_or_null);
}

void
batoni_observe_comm(struct baton_comm *comm)
{
	comm->observer = atomic_load(&current);
	comm->observed = comm->pool.stamps || comm->observer;
}

static void
stamp(struct batoni_op *op, enum batoni_op_state state)
{
	struct batoni_pool *pool = &op->comm->pool;
	uint32_t slot = batoni_pool_slot(pool, op);

	if (!pool->stamps || (op->flags & BATONI_FLAG_LOCAL))
		return;
	switch (state) {
	case BATONI_NEW:
		batoni_pool_start_stamps(pool, slot, batoni_now_ns());
		break;
	case BATONI_ARMED:
		batoni_set(pool->stamps[slot].armed_ns, batoni_now_ns());
		break;
	case BATONI_ENDED:
		batoni_set(pool->stamps[slot].completed_ns, batoni_now_ns());
		break;
	case BATONI_QUEUED:
	case BATONI_ISSUED:
		break;
	}
}

enum baton_status
batoni_op_observe(struct batoni_op *op, enum batoni_op_state state)
{
	const struct batoni_observer *observer = op->comm->observer;

	stamp(op, state);
	return observer ? observer->moved(observer->context, op, state)
	                : BATON_OK;
}
