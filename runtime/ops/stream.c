/* SPDX-License-Identifier: BSD-3-Clause */
/* The public stream calls, on any device. */
#include "life.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "enqueue.h"
#include "health.h"
#include "log.h"
#include "scope.h"
#include "unobserved.h"
#include "wait.h"

#define LET_PASS_NS 10000000u

/* batoni_check_target for calls that also work on a broken communicator. */
static enum baton_status
check_stream(const char *call, struct baton_comm *comm, baton_stream stream)
{
	enum baton_status status;

	BATONI_ENTER(call);
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm(call, comm);
	status = batoni_stream_check(comm, stream, false);
	return status == BATON_OK
	               ? BATON_OK
	               : batoni_refuse_named(call, status);
}

enum baton_status
baton_stream_create(struct baton_comm *comm, baton_stream *stream_p)
{
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_stream_create");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_stream_create", comm);
	if (!stream_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_stream_create: stream_p is NULL");
	status = comm->device_ops->stream_create(comm->device, stream_p);
	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status,
		                     "baton_stream_create: out of memory, or of "
		                     "streams");
	return status;
}

enum baton_status
baton_stream_destroy(struct baton_comm *comm, baton_stream stream)
{
	enum baton_status status =
		check_stream("baton_stream_destroy", comm, stream);
	char what[BATONI_END_BYTES];
	BATONI_UNCANCELLED;

	if (status != BATON_OK)
		return status;
	if (!stream)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_stream_destroy: stream is NULL: the "
		                     "default stream stays");
	/* On an asynchronous device, items may be left on the stream after all
	 * operations have ended.  Its stream_destroy waits until the stream has passed
	 * them. */
	status = comm->in_engine ? batoni_stream_state(comm, stream) : BATON_OK;
	if (status == BATON_PENDING) {
		batoni_poll(comm);
		status = batoni_stream_state(comm, stream);
	}
	if (status == BATON_OK)
		status = comm->device_ops->stream_destroy(comm->device, stream);
	if (status == BATON_PENDING || status == BATON_ERR_BUSY)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_stream_destroy: work is on the "
		                     "stream; synchronize it first");
	batoni_stream_error_take(stream, what);
	return status;
}

enum baton_status
baton_stream_query(struct baton_comm *comm, baton_stream stream)
{
	enum baton_status status =
		check_stream("baton_stream_query", comm, stream);

	if (status != BATON_OK)
		return status;
	status = batoni_stream_state(comm, stream);
	if (status != BATON_PENDING)
		return status;
	batoni_poll(comm);
	return batoni_stream_state(comm, stream);
}

static bool
is_done(struct batoni_awaited *awaited, bool driving)
{
	(void)driving;
	return atomic_load_explicit(&awaited->local->word,
	                            memory_order_acquire) &
	       BATONI_OP_DONE;
}

/* The stream has reached the operation.  An asynchronous device must still pass its item
 * before it reports the stream idle.  That takes a moment unless other work is behind it,
 * so the retries are bounded. */
static void
let_pass(struct baton_comm *comm, baton_stream stream)
{
	uint64_t end = batoni_real_ns() + LET_PASS_NS;

	for (unsigned tries = 0;
	     !comm->in_engine && batoni_real_ns() < end &&
	     comm->device_ops->stream_idle(comm->device, stream) ==
	             BATON_PENDING;
	     tries++)
		batoni_pause_between(tries);
}

static void
init_local(struct batoni_op *op, struct baton_comm *comm, baton_stream stream)
{
	op->item.placed_ms = atomic_load_explicit(&batoni_engine.clock_ms,
	                                          memory_order_relaxed);
	batoni_op_begin(op, comm, BATONI_KIND_RECORD, BATONI_NEW,
	                BATONI_FLAG_LOCAL, BATONI_PATH_MESSAGES, 0, stream,
	                comm->in_engine ? batoni_reached_inline
	                                : batoni_reached_posted,
	                NULL, 0, 0, 0, 0, NULL);
}

/* The operation is on this stack.  It needs no slot of the pool, so a full pool cannot
 * refuse it.  The wait has no time-out, so the operation outlives its use. */
static enum baton_status
await_in_engine(struct baton_comm *comm, baton_stream stream)
{
	struct batoni_op op = {.word = 0};
	struct batoni_awaited awaited = {.ready = is_done, .local = &op};

	if (batoni_stream_state(comm, stream) == BATON_OK)
		return BATON_OK;
	init_local(&op, comm, stream);
	batoni_publish(&op);
	batoni_wait_until(&awaited, comm, -1);
	return BATON_OK;
}

static bool
is_done_or_broken(struct batoni_awaited *awaited, bool driving)
{
	return is_done(awaited, driving) ||
	       atomic_load_explicit(&awaited->local->comm->status,
	                            memory_order_acquire) != BATON_OK;
}

static enum baton_status
refuse_to_wait(const struct baton_comm *comm)
{
	return batoni_refuse(baton_comm_status(comm),
	                     "baton_stream_synchronize: the stream is not done, "
	                     "and may never be; the communicator is broken: %s",
	                     baton_comm_error(comm));
}

/* Put the operation on the stream.  A stream that is full of operations is driven until there is
 * room, since waiting for them is what the caller does.  One of a broken communicator may
 * stand still: it is given a moment longer.  A stream that is idle has room; if it is refused
 * all the same, the device keeps track of no more streams, and none of these operations is on
 * it.
 * OK; PENDING: that, and the operation was not taken; AGAIN: the communicator broke; else why not. */
static enum baton_status
publish_when_there_is_room(struct batoni_op *op, const struct baton_comm *comm,
                           baton_stream stream)
{
	enum baton_status status;
	uint64_t until_ns = 0;
	bool idle = false;

	for (unsigned tries = 0;; tries++) {
		status = batoni_publish_record(op);
		if (status != BATON_ERR_AGAIN)
			return status;
		if (idle)
			return BATON_PENDING;
		idle = comm->device_ops->stream_idle(comm->device, stream) ==
		       BATON_OK;
		if (idle)
			continue;
		if (baton_comm_status(comm) != BATON_OK && until_ns == 0)
			until_ns = batoni_real_ns() +
			           (uint64_t)batoni_comm_grace_ns(comm);
		if (until_ns != 0 && batoni_real_ns() >= until_ns)
			return status;
		if (batoni_poll(comm) > 0)
			tries = 0;
		batoni_pause_between(tries);
	}
}

/* An asynchronous device may never get to the operation.  When the communicator breaks,
 * this thread waits for a moment longer and then leaves the operation to the stream.  The
 * stream may be idle before the engine has processed its last triggers; the operation is
 * posted after them, and so ends after them. */
static enum baton_status
await_device(struct baton_comm *comm, baton_stream stream)
{
	struct batoni_op *op = batoni_alloc(1, sizeof(*op));
	struct batoni_awaited awaited = {.ready = is_done_or_broken,
	                                 .local = op};
	enum baton_status status;
	bool done;
	BATONI_UNCANCELLED;

	if (!op)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_stream_synchronize: out of memory");
	init_local(op, comm, stream);
	atomic_init(&op->word, BATONI_OP_HANDLE | BATONI_OP_STREAM);
	status = publish_when_there_is_room(op, comm, stream);
	if (status != BATON_OK) {
		batoni_free(op);
		return status == BATON_PENDING     ? BATON_OK
		       : status == BATON_ERR_AGAIN ? refuse_to_wait(comm)
		                                   : status;
	}
	batoni_wait_until(&awaited, comm, -1);
	awaited.ready = is_done;
	done = batoni_wait_until(&awaited, comm, batoni_comm_grace_ns(comm));
	batoni_op_drop_local(op, BATONI_OP_HANDLE);
	if (!done)
		return refuse_to_wait(comm);
	let_pass(comm, stream);
	return BATON_OK;
}

enum baton_status
baton_stream_synchronize(struct baton_comm *comm, baton_stream stream)
{
	enum baton_status status =
		check_stream("baton_stream_synchronize", comm, stream);
	char what[BATONI_END_BYTES];

	if (status != BATON_OK)
		return status;
	if (batoni_scope_of(comm))
		return batoni_scope_refuse(
			comm, batoni_refuse(BATON_ERR_INVALID,
		                            "baton_stream_synchronize was called "
		                            "%s",
		                            batoni_scope_where(comm)));
	status = comm->in_engine ? await_in_engine(comm, stream)
	                         : await_device(comm, stream);
	if (status != BATON_OK)
		return status;
	status = batoni_stream_error_take(stream, what);
	if (status == BATON_OK)
		return BATON_OK;
	return batoni_refuse(status,
	                     "baton_stream_synchronize: %s ended in %s, and no "
	                     "request observes it",
	                     what, baton_status_name(status));
}
