/* SPDX-License-Identifier: BSD-3-Clause */
#include "life.h"

#include "observer.h"

/* Of the communicators that are made now. */
static _Atomic(const struct batoni_observer *) current;

void
batoni_observer_set(const struct batoni_observer *observer_or_null)
{
	atomic_store(&current, observer_or_null);
}

static void
host_copying(struct batoni_upcalls *upcalls, const struct batoni_transfer *transfer,
             bool begins)
{
	struct baton_comm *comm =
		batoni_container_of(upcalls, struct baton_comm, upcalls);

	/* Messages of the one-sided layer are no operations. */
	if (transfer->slot < comm->pool.size)
		comm->observer->copying(comm->observer->context,
		                        &comm->pool.ops[transfer->slot], begins);
}

void
batoni_observe_comm(struct baton_comm *comm,
                    const struct batoni_observer *(*trace)(
			    struct baton_comm *comm))
{
	comm->observer = atomic_load(&current);
	if (!comm->observer)
		comm->observer = trace(comm);
	comm->observed = comm->pool.stamps || comm->observer;
	if (comm->observer && comm->observer->copying)
		comm->upcalls.copying = host_copying;
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

void
batoni_op_observe_left(struct baton_comm *comm, uint32_t slot)
{
	const struct batoni_observer *observer = comm->observer;

	if (observer && observer->left)
		observer->left(observer->context, comm, slot);
}
