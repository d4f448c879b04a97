/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Points on streams: a record, a launched function, and a stream that waits for another request
 * (a join).  None moves data: each ends when its stream gets there, a function when it has
 * returned, and a join waits on the stream for the word of the other operation.
 */
#include "life.h"

#include <stdio.h>

#include "describe.h"
#include "engine.h"
#include "enqueue.h"
#include "log.h"
#include "mem.h"
#include "request.h"
#include "scope.h"
#include "trace.h"

static enum baton_status
publish(const char *call, struct batoni_op *op)
{
	enum baton_status status = batoni_publish_record(op);

	if (status == BATON_OK)
		return BATON_OK;
	batoni_refuse_named(call, status);
	return batoni_unmake(op, status);
}

/* For calls that are not allowed inside a group. */
static enum baton_status
check_ungrouped(const char *call, const struct baton_comm *comm)
{
	if (!batoni_scope_of(comm))
		return BATON_OK;
	return batoni_scope_refuse(
		comm, batoni_refuse(BATON_ERR_INVALID,
	                            "%s was called %s, which takes communication "
	                            "only",
	                            call, batoni_scope_where(comm)));
}

enum baton_status
baton_record(struct baton_comm *comm, baton_stream stream,
             const struct baton_op_options *options, baton_request *request_p)
{
	const uint64_t held = BATONI_OP_ENGINE | BATONI_OP_STREAM;
	struct baton_op_options room;
	enum baton_status status;
	struct batoni_op *op;
	baton_request handle;

	BATONI_KEEP_SITE();
	status = batoni_check_target("baton_record", comm, stream, false);
	if (status == BATON_OK)
		status = check_ungrouped("baton_record", comm);
	if (status == BATON_OK)
		status = batoni_take_options("baton_record", &options, &room,
		                             true);
	if (status != BATON_OK)
		return status;
	op = batoni_op_new(comm, BATONI_KIND_RECORD, stream,
	                   request_p ? held | BATONI_OP_HANDLE : held);
	if (!op)
		return batoni_refuse_full("baton_record", comm);
	op->item.word = NULL;
	op->timeout_ns = 0;
	if (options) {
		status = batoni_apply_options(op, options);
		op->timeout_ns = 0;
		if (status != BATON_OK) {
			batoni_refuse_named("baton_record", status);
			return batoni_unmake(op, status);
		}
	}
	handle = batoni_op_handle(op, atomic_load(&op->word));
	status = publish("baton_record", op);
	if (status == BATON_OK && request_p)
		*request_p = handle;
	return status;
}

enum baton_status
baton_stream_launch(struct baton_comm *comm, baton_stream stream,
                    void (*fn)(void *arg), void *arg)
{
	enum baton_status status;
	struct batoni_op *op;

	BATONI_KEEP_SITE();
	status = batoni_check_target("baton_stream_launch", comm, stream, false);
	if (status == BATON_OK)
		status = check_ungrouped("baton_stream_launch", comm);
	if (status == BATON_OK && !fn)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_stream_launch: fn is NULL");
	if (status == BATON_OK)
		status = batoni_check_target("baton_stream_launch", comm,
		                             stream, true);
	if (status != BATON_OK)
		return status;
	op = batoni_op_new(comm, BATONI_KIND_LAUNCH, stream,
	                   BATONI_OP_ENGINE | BATONI_OP_STREAM);
	if (!op)
		return batoni_refuse_full("baton_stream_launch", comm);
	batoni_set(op->launch, fn);
	op->transfer.buffer = arg;
	op->timeout_ns = 0;
	op->item.flags = BATONI_ITEM_LAUNCH;
	op->item.reached = batoni_reached_launch;
	/* An asynchronous device makes its stream wait for the function by itself. */
	if (!comm->in_engine)
		op->item.word = NULL;
	return publish("baton_stream_launch", op);
}

/* Hold the operation of a live handle by a join. */
static enum baton_status
join_target(baton_request request, struct batoni_op **target_p, bool *done_p)
{
	uint64_t word = 0;
	struct batoni_op *target = batoni_request_find(request, &word);
	enum baton_status status = BATON_ERR_STALE;

	if (target)
		status = batoni_op_hold(target, &word, BATONI_OP_HANDLE);
	if (status == BATON_ERR_STALE)
		return batoni_refuse(status,
		                     "baton_stream_wait: request 0x%llx was "
		                     "released",
		                     (unsigned long long)request);
	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "baton_stream_wait: 65535 streams wait for "
		                     "this request already");
	*target_p = target;
	*done_p = word & BATONI_OP_DONE;
	return BATON_OK;
}

/* Let the stream wait for the mark of the target's end, which no look of the driver has to
 * release.  PENDING: it has none (it is not stream-issued, its group is open, it is of
 * another device, or it has ended), or the stream has many such waits; the stream is to wait for
 * its word. */
static enum baton_status
join_mark(struct baton_comm *comm, baton_stream stream,
          const struct batoni_op *target)
{
	struct baton_comm *theirs = target->comm;
	uint32_t slot = batoni_pool_slot(&theirs->pool, target);
	enum baton_status status;

	if (!theirs->marks.by_slot || !comm->device_ops->events ||
	    comm->device->number != theirs->device->number)
		return BATON_PENDING;
	pthread_mutex_lock(&theirs->marks.lock);
	status = comm->device_ops->events->mark_follow(
		comm->device, stream, &theirs->marks.by_slot[slot].ended, true);
	pthread_mutex_unlock(&theirs->marks.lock);
	if (status != BATON_OK && status != BATON_PENDING) {
		batoni_refuse_device(comm, status);
		batoni_refuse_named("baton_stream_wait", status);
	}
	return status;
}

enum baton_status
baton_stream_wait(struct baton_comm *comm, baton_stream stream,
                  baton_request request)
{
	struct batoni_op *op, *target = NULL;
	enum baton_status status;
	uint32_t slot;
	bool done = false;

	BATONI_KEEP_SITE();
	status = batoni_check_target("baton_stream_wait", comm, stream, false);
	if (status == BATON_OK)
		status = check_ungrouped("baton_stream_wait", comm);
	if (status != BATON_OK)
		return status;
	if (request == BATON_REQUEST_NULL)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_stream_wait: request is "
		                     "BATON_REQUEST_NULL");
	status = join_target(request, &target, &done);
	if (status != BATON_OK)
		return status;
	if (target->comm->device_ops != comm->device_ops) {
		batoni_op_unjoin(target);
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_stream_wait: the request is of "
		                     "another device");
	}
	status = done ? BATON_OK : join_mark(comm, stream, target);
	if (status != BATON_PENDING) {
		batoni_op_unjoin(target);
		return status;
	}
	op = batoni_op_new(comm, BATONI_KIND_JOIN, stream,
	                   BATONI_OP_ENGINE | BATONI_OP_STREAM);
	if (!op) {
		batoni_op_unjoin(target);
		return batoni_refuse_full("baton_stream_wait", comm);
	}
	slot = batoni_pool_slot(&target->comm->pool, target);
	op->transfer.buffer = target;
	/* For the trace: the target may be gone when the driver writes that. */
	op->transfer.bytes = batoni_trace_serial(target);
	batoni_set(op->user_data, target->comm->index);
	op->timeout_ns = 0;
	op->item.flags = BATONI_ITEM_WAIT_FIRST;
	op->item.word = &target->comm->pool.words[slot];
	op->item.value = target->comm->pool.values[slot];
	status = publish("baton_stream_wait", op);
	if (status != BATON_OK)
		batoni_op_unjoin(target);
	return status;
}

/* ---- their kinds ---- */

/* A record of baton_stream_synchronize is its waiter's and its stream's. */
static void
record_left_behind(struct batoni_op *op)
{
	if (!(op->flags & BATONI_FLAG_LOCAL))
		return;
	batoni_list_remove(&op->deadline);
	batoni_op_drop_local(op, BATONI_OP_STREAM);
	batoni_mem_keep(-1);
}

static void
record_what(const struct batoni_view *view, const char *details, char *text,
            size_t size)
{
	(void)details;
	snprintf(text, size, "%s",
	         view->flags & BATONI_FLAG_LOCAL ? "stream_synchronize"
	                                         : "record");
}

const struct batoni_kind batoni_kind_record = {
	.name = "record",
	.trace = "Record",
	.why_no_cancel = "a record ends when its stream gets there",
	.ends_broken = true,
	.place = batoni_point_place,
	.reached = batoni_point_reached,
	.left_behind = record_left_behind,
	.what = record_what,
};

static bool
waits_on_stream(const struct batoni_view *view)
{
	return view->state != BATONI_NEW && view->state != BATONI_ENDED;
}

static bool
launch_waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (!waits_on_stream(view))
		return false;
	snprintf(text, size,
	         "its stream to get there, or its function to return");
	return true;
}

const struct batoni_kind batoni_kind_launch = {
	.name = "launched function",
	.runs = true,
	.place = batoni_point_place,
	.reached = batoni_point_reached,
	.waits = launch_waits,
};

static void
join_left_behind(struct batoni_op *op)
{
	batoni_op_unjoin(op->transfer.buffer);
}

static void
join_reached(struct batoni_op *op)
{
	batoni_op_unjoin(op->transfer.buffer);
	batoni_point_reached(op);
}

/* Its stream holds the other operation until it has passed. */
static bool
join_waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	const struct batoni_op *other = held ? view->buffer : NULL;

	if (!waits_on_stream(view))
		return false;
	if (!other)
		snprintf(text, size,
		         "its stream to get there, then another request");
	else
		snprintf(text, size,
		         "its stream to get there, then the %s in slot %u of "
		         "communicator %u",
		         batoni_kind_of(other)->name,
		         batoni_pool_slot(&other->comm->pool, other),
		         other->comm->index);
	return true;
}

const struct batoni_kind batoni_kind_join = {
	.name = "stream_wait",
	.joins = true,
	.place = batoni_point_place,
	.reached = join_reached,
	.left_behind = join_left_behind,
	.waits = join_waits,
};
