/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: operations that are armed together.
 *
 * A group has an operation of its own (no handle).  While it is open, it is what its thread has open on
 * the communicator (a scope, embedded in the operation).  Each call inside the group puts its
 * member into the member's FIFO, unarmed, on no stream.  The first member on each stream
 * is that stream's *carrier*: at the end of the group its item goes on the stream and
 * waits there for the group's word.  When the streams have reached all carriers, the
 * members are armed.  When all members have ended (detached: when they are armed), the
 * word is released and the streams continue.
 *
 * Lifetimes: the group keeps the STREAM holder of a member until the member is armed; of
 * a carrier, until its stream has passed it.  The group's operation is returned when its
 * word is released, all members have ended and all carriers have been reached.
 *
 * A void group places nothing on streams.  Its members leave their FIFOs without a
 * completion, and their words are released for other streams that wait for them.
 * Completions of members that end while the group is open are delivered when the group
 * is placed.
 *
 * Stream-issued members are not placed before the end.  (Puts that could be on their stream
 * or be the one-sided layer's are the layer's in a group: path.h, takes.)  If all members
 * are of one such path, it takes the whole group, and the group's operation only holds the
 * list.  In a mixed group each path takes its members as detached ones, in front of the
 * carriers; they count as members like the others.
 *
 * Flags of the group's own operation: DETACHED, REACHED (the word is released).
 */
#include "life.h"

#include <string.h>

#include "engine.h"
#include "enqueue.h"
#include "group.h"
#include "log.h"
#include "scope.h"
#include "wake.h"

static const struct batoni_scope_kind group_scope;

static struct batoni_op *
operation_of(struct batoni_scope *scope)
{
	assert(scope->kind == &group_scope);
	return batoni_container_of(scope, struct batoni_op, group.scope);
}

struct batoni_op *
batoni_group_new(const char *call, struct baton_comm *comm)
{
	struct batoni_op *group = batoni_op_new(comm, BATONI_KIND_GROUP, NULL,
	                                        BATONI_OP_ENGINE);

	if (!group) {
		batoni_refuse(BATON_ERR_AGAIN,
		              "%s: all %u requests of the communicator are "
		              "taken; a group needs one",
		              call, comm->pool.size);
		return NULL;
	}
	group->timeout_ns = 0;
	group->group.head = group->group.tail = NULL;
	group->tally.members = group->tally.ended = 0;
	group->streams_left = 0;
	batoni_scope_init(&group->group.scope, &group_scope, comm, 1);
	return group;
}

enum baton_status
baton_group_begin(struct baton_comm *comm)
{
	struct batoni_scope *scope;
	struct batoni_op *group;
	enum baton_status status;

	BATONI_KEEP_SITE();
	status = batoni_check_comm("baton_group_begin", comm);
	if (status != BATON_OK)
		return status;
	scope = batoni_scope_of(comm);
	if (scope)
		return scope->kind->group_begin(scope);
	group = batoni_group_new("baton_group_begin", comm);
	if (!group)
		return BATON_ERR_AGAIN;
	batoni_scope_open(&group->group.scope);
	return BATON_OK;
}

static bool
has_carrier(const struct batoni_op *group, baton_stream stream)
{
	const struct batoni_op *member = group->group.head;

	while (member && member->transfer.stream != stream)
		member = member->group_next;
	return member != NULL;
}

static enum baton_status
check_member(const struct batoni_op *group, const struct batoni_op *op)
{
	if (group->group.scope.refusal != BATON_OK)
		return batoni_refuse(group->group.scope.refusal,
		                     "the group is void, since an earlier call in "
		                     "it was refused (%s)",
		                     baton_status_name(group->group.scope.refusal));
	if (group->group.head &&
	    (group->flags ^ op->flags) & BATONI_FLAG_DETACHED)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "a group's operations are all "
		                     "BATON_OP_DETACHED or none is");
	return BATON_OK;
}

/* A path that shares its operations takes no members. */
static void
ask_path(struct batoni_op *op)
{
	if (!(op->flags & BATONI_FLAG_STREAM_ISSUED) ||
	    !batoni_path_of(op)->ops->taking)
		return;
	pthread_mutex_lock(&op->comm->order.lock);
	batoni_path_takes(op, false);
	pthread_mutex_unlock(&op->comm->order.lock);
}

BATONI_ALWAYS_INLINE enum baton_status
take_member(struct batoni_op *group, struct batoni_op *op)
{
	enum baton_status status = check_member(group, op);

	if (unlikely(status != BATON_OK))
		return status;
	ask_path(op);
	if (!group->group.head)
		group->flags |= op->flags & BATONI_FLAG_DETACHED;
	batoni_set(op->group_of, group);
	op->group_next = NULL;
	if (!has_carrier(group, op->transfer.stream)) {
		op->item.flags |= BATONI_ITEM_CARRIER;
		op->item.word = group->item.word;
		op->item.value = group->item.value;
		group->streams_left++;
	}
	if (group->group.tail)
		group->group.tail->group_next = op;
	else
		group->group.head = op;
	group->group.tail = op;
	group->tally.members++;
	return BATON_OK;
}

enum baton_status
batoni_group_take(struct batoni_op *group, struct batoni_op *op)
{
	return take_member(group, op);
}

/* ---- the end, on the enqueuing thread ---- */

/* Return members that were never placed.  Other threads may know their handles: streams
 * that wait for a member continue, and waiting threads wake and find the handle stale. */
static void
unmake_all(struct batoni_op *first, enum baton_status refusal)
{
	char scratch[BATONI_SENTENCE_BYTES];
	char *kept = batoni_sentence_aside(scratch);
	struct batoni_op *op, *next;

	batoni_lock();
	for (op = first; op; op = next) {
		struct batoni_pool *pool = &op->comm->pool;
		uint32_t slot = batoni_pool_slot(pool, op);
		uint64_t before;

		next = op->group_next;
		before = batoni_op_drop(op, BATONI_OP_HANDLE);
		if (before & BATONI_OP_WAITED)
			batoni_wake_waiters(batoni_op_handle(op, before));
		op->comm->device_ops->release(op->comm->device,
		                              &pool->words[slot],
		                              pool->values[slot]);
		batoni_forget_described(op);
		batoni_unmake(op, refusal);
	}
	batoni_end_and_issue();
	batoni_unlock();
	batoni_sentence_back(kept);
}

/* All members are of one stream-issued path: it takes the whole group.  If it refuses
 * them, the group is void. */
static enum baton_status
end_issued(struct batoni_op *group, enum baton_status refusal)
{
	struct batoni_op *first = group->group.head, *op, *next;
	bool detached = group->flags & BATONI_FLAG_DETACHED;
	struct baton_comm *comm = group->comm;
	enum baton_status begun = BATON_ERR_INVALID;

	for (op = first; op; op = op->group_next)
		batoni_set(op->group_of, NULL);
	if (refusal == BATON_OK)
		refusal = begun = batoni_enqueuing_begin(comm);
	if (refusal == BATON_OK)
		refusal = batoni_enqueue_on_path(comm, first->path, first,
		                                 detached);
	for (op = first; op && refusal == BATON_OK; op = next) {
		next = op->group_next;
		batoni_publish(op);
	}
	if (begun == BATON_OK)
		batoni_enqueuing_end(comm);
	if (refusal != BATON_OK)
		unmake_all(first, refusal);
	batoni_op_drop(group, BATONI_OP_ENGINE);
	return refusal;
}

/* Make the handles of a void group stale at once; the driver does the rest. */
static void
drop_handles(struct batoni_op *group)
{
	struct batoni_op *op, *next;

	for (op = group->group.head; op; op = next) {
		next = op->group_next;
		batoni_op_drop(op, BATONI_OP_HANDLE);
	}
}

/* For the enqueuer: a member that is placed has its flags written by the driver. */
static bool
is_stream_issued(const struct batoni_op *op)
{
	return batoni_path_of(op)->ops->stream_issued;
}

/* Hand the stream-issued members to their paths, detached: they follow their streams up to
 * here, and the carriers behind them hold the streams until the whole group has ended.
 * *taken_p, 0 before: the paths that have taken theirs, a bit for each. */
static enum baton_status
enqueue_issued(struct batoni_op *group, unsigned *taken_p)
{
	struct baton_comm *comm = group->comm;
	enum baton_status status = BATON_OK;

	for (struct batoni_op *op = group->group.head; op && status == BATON_OK;
	     op = op->group_next) {
		if (!is_stream_issued(op) || *taken_p >> op->path & 1u)
			continue;
		status = batoni_enqueue_on_path(comm, op->path, op, true);
		if (status == BATON_OK) {
			*taken_p |= 1u << op->path;
		} else if (*taken_p) {
			/* What another path has taken cannot be taken back.  AGAIN
			 * would ask the program to retry. */
			if (status == BATON_ERR_AGAIN)
				status = BATON_ERR_UNSUPPORTED;
			batoni_break_halfway(comm, status,
			                     "a path refused its part of a "
			                     "group of which another has "
			                     "taken its part");
		}
	}
	return status;
}

/* No stream that carriers before `end` are on waits before all of these streams have passed
 * their triggers: each is put behind the one before it, and then all behind the last. */
static void
gather(struct baton_comm *comm, struct batoni_op *first, const struct batoni_op *end)
{
	const struct batoni_device_ops *ops = comm->device_ops;
	const struct batoni_op *last = NULL;
	struct batoni_op *op;

	for (op = first; op != end; op = op->group_next) {
		if (!(op->item.flags & BATONI_ITEM_WAITS_LATER))
			continue;
		if (last)
			ops->shared_queues->behind(comm->device,
			                           op->transfer.stream,
			                           last->transfer.stream);
		last = op;
	}
	for (op = first; last && op != last; op = op->group_next) {
		if (op->item.flags & BATONI_ITEM_WAITS_LATER)
			ops->shared_queues->behind(comm->device,
			                           op->transfer.stream,
			                           last->transfer.stream);
	}
}

/* Put the triggers of the carriers on their asynchronous streams, up to the first that is
 * refused (*refused_p, else NULL), and then the waits. */
static enum baton_status
put_carriers(struct baton_comm *comm, struct batoni_op *first,
             struct batoni_op **refused_p)
{
	const struct batoni_device_ops *ops = comm->device_ops;
	enum baton_status status = BATON_OK;
	struct batoni_op *op;

	for (op = first; op; op = op->group_next) {
		if (!(op->item.flags & BATONI_ITEM_CARRIER))
			continue;
		if (ops->shared_queues && op->item.word)
			op->item.flags |= BATONI_ITEM_WAITS_LATER;
		status = ops->enqueue(comm->device, op->transfer.stream,
		                      &op->item);
		if (status != BATON_OK)
			break;
	}
	*refused_p = op;
	if (ops->shared_queues)
		gather(comm, first, *refused_p);
	for (op = first; op != *refused_p; op = op->group_next) {
		if (op->item.flags & BATONI_ITEM_WAITS_LATER)
			ops->shared_queues->wait(
				comm->device, op->transfer.stream, &op->item);
	}
	return status;
}

static enum baton_status
enqueue_carriers(struct batoni_op *group)
{
	struct baton_comm *comm = group->comm;
	struct batoni_op *refused;
	enum baton_status status =
		put_carriers(comm, group->group.head, &refused);

	if (status != BATON_OK)
		batoni_refuse_device(comm, status);
	/* Carriers from this one on are on no stream and will not be reached. */
	batoni_set(group->group.failed, refused);
	return status;
}

/* The requests and queue entries of a void group are free when the call returns, even if
 * another thread drives. */
void
batoni_group_settle(void)
{
	char scratch[BATONI_SENTENCE_BYTES];
	char *kept = batoni_sentence_aside(scratch);

	batoni_lock();
	batoni_place_inbox();
	batoni_end_and_issue();
	batoni_unlock();
	batoni_sentence_back(kept);
}

static void
void_async(struct batoni_op *group, enum baton_status refusal)
{
	char scratch[BATONI_SENTENCE_BYTES];
	char *kept = batoni_sentence_aside(scratch);

	drop_handles(group);
	group->group.scope.refusal = refusal;
	batoni_publish(group);
	batoni_sentence_back(kept);
}

static enum baton_status
put_members(struct batoni_op *group, unsigned *taken_p)
{
	enum baton_status status = enqueue_issued(group, taken_p);

	if (status != BATON_OK)
		return status;
	status = enqueue_carriers(group);
	if (status != BATON_OK && *taken_p)
		batoni_break_halfway(group->comm, status,
		                     "the device refused a part of a group of "
		                     "which a path has taken another");
	return status;
}

/* On an asynchronous device.  The members that are stream-issued are published here, in
 * front of the group. */
static enum baton_status
end_async(struct batoni_op *group)
{
	struct baton_comm *comm = group->comm;
	enum baton_status refusal = batoni_enqueuing_begin(comm);
	bool begun = refusal == BATON_OK;
	struct batoni_op *op, *next;
	unsigned taken = 0;

	if (begun)
		refusal = put_members(group, &taken);
	for (op = group->group.head; op && refusal == BATON_OK; op = next) {
		next = op->group_next;
		if (is_stream_issued(op))
			batoni_publish(op);
	}
	if (refusal == BATON_OK)
		batoni_publish(group);
	else
		void_async(group, refusal);
	if (begun)
		batoni_enqueuing_end(comm);
	return refusal;
}

static enum baton_status
end_placed(struct batoni_op *group, enum baton_status refusal)
{
	struct baton_comm *comm = group->comm;

	batoni_set(group->group.failed, group->group.head);
	if (comm->in_engine) {
		if (refusal != BATON_OK)
			drop_handles(group);
		batoni_publish(group);
		if (refusal != BATON_OK)
			batoni_group_settle();
		return refusal;
	}
	if (refusal == BATON_OK)
		refusal = end_async(group);
	else
		void_async(group, refusal);
	if (refusal != BATON_OK)
		batoni_group_settle();
	return refusal;
}

/* Are members of different paths, or of a host-issued one? */
static bool
is_placed(const struct batoni_op *group)
{
	const struct batoni_op *first = group->group.head;

	for (const struct batoni_op *op = first; op; op = op->group_next) {
		if (!is_stream_issued(op) || op->path != first->path)
			return true;
	}
	return false;
}

/* ---- of a launch of a plan ---- */

static void
publish_first(struct batoni_op **first_p)
{
	struct batoni_op *first = *first_p;

	*first_p = NULL;
	if (first)
		batoni_publish(first);
}

/* All members are of one stream-issued path. */
static enum baton_status
put_issued_group(struct batoni_op *group, struct batoni_op **first_p)
{
	struct batoni_op *first = group->group.head, *op, *next;
	enum baton_status status;

	for (op = first; op; op = op->group_next)
		batoni_set(op->group_of, NULL);
	status = batoni_enqueue_on_path(group->comm, first->path, first,
	                                group->flags & BATONI_FLAG_DETACHED);
	if (status != BATON_OK)
		return status;
	publish_first(first_p);
	for (op = first; op; op = next) {
		next = op->group_next;
		batoni_publish(op);
	}
	batoni_op_drop(group, BATONI_OP_ENGINE);
	return BATON_OK;
}

/* A part of it is on streams.  Its members are not the launch's any more.  Flags are changed as
 * the driver: a trigger that has fired lets the driver change those of its carrier (HELD). */
static void
void_put(struct batoni_op *group, enum baton_status refusal)
{
	char scratch[BATONI_SENTENCE_BYTES];
	char *kept = batoni_sentence_aside(scratch);
	struct batoni_op *op, *next;

	batoni_lock();
	for (op = group->group.head; op; op = op->group_next)
		op->flags &= (uint16_t)~BATONI_FLAG_PLANNED;
	batoni_unlock();
	for (op = group->group.head; op; op = next) {
		next = op->group_next;
		if (!is_stream_issued(op))
			batoni_publish(op);
	}
	group->group.scope.refusal = refusal;
	batoni_publish(group);
	batoni_sentence_back(kept);
}

/* The members are published behind the carriers' items here; a trigger that fires in between
 * finds the group not placed. */
enum baton_status
batoni_group_put(struct batoni_op *group, struct batoni_op **first_p, bool *void_p)
{
	struct batoni_op *op, *next;
	enum baton_status status;
	unsigned taken = 0;

	if (!is_placed(group))
		return put_issued_group(group, first_p);
	batoni_set(group->group.failed, group->group.head);
	status = put_members(group, &taken);
	if (status != BATON_OK) {
		*void_p = taken || group->group.failed != group->group.head;
		if (*void_p)
			void_put(group, status);
		return status;
	}
	publish_first(first_p);
	for (op = group->group.head; op; op = next) {
		next = op->group_next;
		batoni_publish(op);
	}
	batoni_publish(group);
	return BATON_OK;
}

/* The caller has taken the group off its thread's list. */
static enum baton_status
end_group(struct batoni_op *group)
{
	enum baton_status refusal = group->group.scope.refusal;

	if (is_placed(group))
		return end_placed(group, refusal);
	if (group->group.head)
		return end_issued(group, refusal);
	batoni_op_drop(group, BATONI_OP_ENGINE);
	return refusal;
}

enum baton_status
baton_group_end(struct baton_comm *comm)
{
	struct batoni_scope *scope;

	BATONI_ENTER("baton_group_end");
	scope = batoni_scope_of(comm);
	if (!scope)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_group_end: no group of this "
		                     "communicator is open on this thread");
	return scope->kind->group_end(scope);
}

enum baton_status
baton_group_abandon(struct baton_comm *comm)
{
	struct batoni_scope *scope;

	BATONI_ENTER("baton_group_abandon");
	scope = batoni_scope_of(comm);
	if (!scope)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_group_abandon: no group of this "
		                     "communicator is open on this thread");
	return scope->kind->group_abandon(scope);
}

/* ---- the scope ---- */

static enum baton_status
add_to_group(struct batoni_scope *scope, struct batoni_op *op)
{
	enum baton_status status = take_member(operation_of(scope), op);

	if (status == BATON_OK && !(op->flags & BATONI_FLAG_STREAM_ISSUED))
		batoni_publish(op);
	return status;
}

static enum baton_status
begin_another(struct batoni_scope *scope)
{
	batoni_set(scope->depth, scope->depth + 1);
	return BATON_OK;
}

static enum baton_status
end_one(struct batoni_scope *scope)
{
	enum baton_status refusal = scope->refusal, status;

	if (scope->depth > 1) {
		batoni_set(scope->depth, scope->depth - 1);
		return BATON_OK;
	}
	batoni_scope_close(scope);
	status = end_group(operation_of(scope));
	if (unlikely(refusal == BATON_OK && status != BATON_OK))
		batoni_refuse_named("baton_group_end", status);
	if (unlikely(refusal != BATON_OK))
		/* The slot may be another's by now; its address is still the key. */
		batoni_scope_say("baton_group_end", scope, refusal);
	batoni_scope_forget(scope);
	return status;
}

/* The scope is off its thread's list.  If nothing was refused before, the group is void in this
 * status. */
static void
end_void(struct batoni_scope *scope, enum baton_status refusal)
{
	if (scope->refusal == BATON_OK)
		scope->refusal = refusal;
	batoni_scope_forget(scope);
	end_group(operation_of(scope));
}

static enum baton_status
abandon_one(struct batoni_scope *scope)
{
	if (scope->depth > 1) {
		batoni_set(scope->depth, scope->depth - 1);
		batoni_scope_void(scope);
		return BATON_OK;
	}
	batoni_scope_close(scope);
	end_void(scope, BATON_ERR_CANCELED);
	return BATON_OK;
}

static void
abandon(struct batoni_scope *scope)
{
	const struct batoni_op *group = operation_of(scope);

	batoni_log(BATONI_LOG_WARN,
	           "rank %d: a thread exits with a group of %u operation%s open: "
	           "the group is void",
	           scope->comm->rank, group->tally.members,
	           batoni_s(group->tally.members));
	end_void(scope, BATON_ERR_INVALID);
}

static const struct batoni_scope_kind group_scope = {
	.where = "inside a group",
	.add = add_to_group,
	.group_begin = begin_another,
	.group_end = end_one,
	.group_abandon = abandon_one,
	.abandon = abandon,
};
