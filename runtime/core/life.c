/* SPDX-License-Identifier: BSD-3-Clause */
#include "life.h"

#include "observer.h"

/* The observer of the communicators that are made from now on. */
static _Atomic(const struct batoni_observer *) current;

void
batoni_observer_set(const struct batoni_observer *observer_or_null)
{
	atomic_store(&current, observer_or_null);
}

static void
upcall_copying(struct batoni_upcalls *upcalls, const struct batoni_transfer *transfer,
               bool begins)
{
	struct baton_comm *comm =
		batoni_container_of(upcalls, struct baton_comm, upcalls);

	/* Messages of the one-sided layer are no operations. */
	if (transfer->slot >= comm->pool.size)
		return;
	for (unsigned i = 0; i < comm->observers_count; i++) {
		const struct batoni_observer *observer = comm->observers[i];

		if (observer->copying)
			observer->copying(observer->context,
			                  &comm->pool.ops[transfer->slot],
			                  begins);
	}
}

void
batoni_observe_comm(struct baton_comm *comm)
{
	comm->observed = comm->off_fast = comm->pool.stamps;
	comm->observers_count = 0;
	comm->only_observer = NULL;
	batoni_observe_comm_by(comm, atomic_load(&current));
}

void
batoni_observe_comm_by(struct baton_comm *comm,
                       const struct batoni_observer *observer_or_null)
{
	if (!observer_or_null)
		return;
	assert(comm->observers_count < BATONI_OBSERVERS_MAX);
	comm->observers[comm->observers_count++] = observer_or_null;
	comm->only_observer = comm->observers_count == 1 && !comm->pool.stamps &&
	                                      observer_or_null->begun &&
	                                      observer_or_null->event
	                              ? observer_or_null
	                              : NULL;
	comm->observed = true;
	comm->off_fast |= !observer_or_null->fast;
	if (observer_or_null->copying)
		comm->upcalls.copying = upcall_copying;
}

static void
stamp(struct batoni_op *op, enum batoni_op_state state)
{
	struct batoni_pool *pool = &op->comm->pool;
	uint32_t slot;

	if (!pool->stamps || (op->flags & BATONI_FLAG_LOCAL))
		return;
	slot = batoni_pool_slot(pool, op);
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

static __attribute__((noinline)) enum baton_status
observe_all(struct batoni_op *op, enum batoni_op_state state)
{
	const struct baton_comm *comm = op->comm;
	enum baton_status status = BATON_OK;

	stamp(op, state);
	for (unsigned i = 0; i < comm->observers_count; i++) {
		const struct batoni_observer *observer = comm->observers[i];
		enum baton_status said =
			observer->moved(observer->context, op, state);

		status = status == BATON_OK ? said : status;
	}
	return status;
}

enum baton_status
batoni_op_observe(struct batoni_op *op, enum batoni_op_state state)
{
	const struct batoni_observer *only = op->comm->only_observer;

	return likely(only) ? only->moved(only->context, op, state)
	                    : observe_all(op, state);
}

static __attribute__((noinline)) void
observe_begun_all(struct batoni_op *op, enum batoni_op_state state, const void *site)
{
	const struct baton_comm *comm = op->comm;

	stamp(op, state);
	for (unsigned i = 0; i < comm->observers_count; i++) {
		const struct batoni_observer *observer = comm->observers[i];

		if (observer->begun)
			observer->begun(observer->context, op, state, site);
		else
			(void)observer->moved(observer->context, op, state);
	}
}

void
batoni_op_observe_begun(struct batoni_op *op, enum batoni_op_state state,
                        const void *site)
{
	const struct batoni_observer *only = op->comm->only_observer;

	if (likely(only))
		only->begun(only->context, op, state, site);
	else
		observe_begun_all(op, state, site);
}

static __attribute__((noinline)) void
observe_event_all(struct batoni_op *op, enum batoni_event event)
{
	const struct baton_comm *comm = op->comm;

	for (unsigned i = 0; i < comm->observers_count; i++) {
		const struct batoni_observer *observer = comm->observers[i];

		if (observer->event)
			observer->event(observer->context, op, event);
	}
}

void
batoni_op_observe_event(struct batoni_op *op, enum batoni_event event)
{
	const struct batoni_observer *only = op->comm->only_observer;

	if (likely(only))
		only->event(only->context, op, event);
	else
		observe_event_all(op, event);
}

void
batoni_op_observe_left(struct baton_comm *comm, uint32_t slot)
{
	for (unsigned i = 0; i < comm->observers_count; i++) {
		const struct batoni_observer *observer = comm->observers[i];

		if (observer->left)
			observer->left(observer->context, comm, slot);
	}
}
