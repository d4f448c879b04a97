/* SPDX-License-Identifier: BSD-3-Clause */
/* Driving a collective call until it succeeds, times out, or a peer or the communicator is
 * lost. */
#include "collective.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "health.h"
#include "liveness.h"
#include "room.h"
#include "scope.h"
#include "wait.h"

enum baton_status
batoni_collective_begin(struct batoni_collective *c, struct batoni_rma *rma,
                        const char *call)
{
	enum baton_status status;

	*c = (struct batoni_collective){.rma = rma,
	                                .call = call,
	                                .late = "not all ranks have called",
	                                .unlike = "not all ranks make this call, "
	                                          "for this window",
	                                .roll = {.call = call,
	                                         .called_ns = batoni_real_ns()},
	                                .limit_ns = BATONI_NEVER};
	if (atomic_exchange(&rma->collective, true))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: another thread of this rank is in a "
		                     "collective call; the other ranks are not "
		                     "told",
		                     call);
	status = baton_comm_status(rma->comm);
	if (status != BATON_OK) {
		batoni_collective_end(c);
		return batoni_refuse_broken(c, status);
	}
	if (rma->comm->timeout_ns)
		c->limit_ns = batoni_real_ns() + (uint64_t)rma->comm->timeout_ns;
	return BATON_OK;
}

void
batoni_collective_end(struct batoni_collective *c)
{
	atomic_store(&c->rma->collective, false);
}

void
batoni_object(struct batoni_collective *c, enum baton_status status,
              const char *format, ...)
{
	va_list list;

	if (c->status != BATON_OK)
		return;
	c->status = status;
	va_start(list, format);
	vsnprintf(c->why, sizeof(c->why), format, list);
	va_end(list);
}

enum baton_status
batoni_refuse_broken(const struct batoni_collective *c, enum baton_status status)
{
	const char *why = baton_comm_error(c->rma->comm);

	/* The same call, perhaps this one, broke it: the text begins with its name. */
	if (strncmp(why, c->call, strlen(c->call)) == 0)
		return batoni_refuse(status, "%s", why);
	return batoni_refuse(status, "%s: %s", c->call, why);
}

enum baton_status
batoni_collective_late(const struct batoni_collective *c)
{
	struct baton_comm *comm = c->rma->comm;
	char why[200];

	snprintf(why, sizeof(why),
	         "%s: after %lld ms %s, so that the ranks do not agree any more",
	         c->call, (long long)(comm->timeout_ns / 1000000), c->late);
	batoni_lock();
	batoni_comm_break(comm, BATON_ERR_TIMEOUT, why);
	batoni_unlock();
	return batoni_refuse(BATON_ERR_TIMEOUT, "%s", why);
}

/* Do all ranks return this status? */
static bool
is_told(enum baton_status status)
{
	return status == BATON_ERR_NOMEM || status == BATON_ERR_INVALID;
}

static enum baton_status
refuse_told(const struct batoni_collective *c, enum baton_status status)
{
	return batoni_refuse(status, "%s: %s", c->call,
	                     status == BATON_ERR_NOMEM
	                             ? "a rank has no memory for what the ranks "
	                               "tell each other"
	                             : c->unlike);
}

static enum baton_status
take_step(struct batoni_collective *c,
          enum baton_status (*step)(struct batoni_collective *c))
{
	enum baton_status status = step(c);

	/* Otherwise the other ranks would wait for this one for ever. */
	if (status != BATON_OK && status != BATON_PENDING && !is_told(status))
		batoni_comm_break(c->rma->comm, status,
		                  status == BATON_ERR_PEER
		                          ? "a rank has left the communicator "
		                            "that a collective call needs"
		                          : "the ranks could not exchange what "
		                            "a collective call needs");
	return status;
}

static enum baton_status
step_once(void *argument)
{
	struct batoni_collective *c = argument;
	struct baton_comm *comm = c->rma->comm;
	enum baton_status status;

	batoni_comm_make_room(comm);
	if (comm->fault.status != BATON_OK)
		return comm->fault.status;
	status = take_step(c, c->step);
	c->told = is_told(status);
	if (status != BATON_PENDING)
		return status;
	/* Without a deadline nothing else would end the wait for a rank that never calls. */
	batoni_check_ranks(comm, &c->roll, batoni_real_ns());
	return comm->fault.status != BATON_OK ? comm->fault.status
	                                      : BATON_PENDING;
}

enum baton_status
batoni_collective_drive(struct batoni_collective *c,
                        enum baton_status (*step)(struct batoni_collective *c))
{
	enum baton_status status;

	c->step = step;
	status = batoni_drive_until(step_once, c, c->limit_ns);
	if (status == BATON_OK)
		return status;
	if (status == BATON_PENDING)
		return batoni_collective_late(c);
	return c->told ? refuse_told(c, status) : batoni_refuse_broken(c, status);
}

static enum baton_status
exchange_step(struct batoni_collective *c)
{
	struct batoni_transport *transport = c->rma->transport;

	return transport->ops->exchanging->exchange(transport, c->what, c->mine, c->bytes,
	                                            c->all);
}

enum baton_status
batoni_collect(struct batoni_collective *c, const void *mine, size_t bytes,
               void *all)
{
	c->mine = mine;
	c->bytes = bytes;
	c->all = all;
	return batoni_collective_drive(c, exchange_step);
}

enum baton_status
batoni_check_collective(const char *call, const struct baton_comm *comm)
{
	if (batoni_scope_of(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s was called %s; the other ranks are "
		                     "not told",
		                     call, batoni_scope_where(comm));
	if (!comm->driving.lost && !batoni_may_drive(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: MPI runs at MPI_THREAD_FUNNELED; call "
		                     "it on the main thread (the other ranks are "
		                     "not told)",
		                     call);
	return batoni_check_left(call, comm);
}
