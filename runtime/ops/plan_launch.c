/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: launching.  (plan.c records them; plan_need.c has what bounds them.  The usual launch of
 * messages alone takes the way of plan_direct.c; this file does all others.)
 *
 * A launch has an operation of its own, of kind PLAN, which the program's request names.  It is on
 * no stream and in no FIFO.  Its operations are operations like any others, without a handle and
 * without a queue; they are PLANNED, and know the launch by its slot.  Groups of the plan
 * are groups.
 *
 * Building, on the enqueuing thread: the entries are replayed.  Meanwhile the launch is what the thread
 * has open on the communicator (a scope, `struct building`), which gathers what they enqueue; none of
 * it is published.  If a replay is refused, all slots are given back, and the call returns the
 * refusal: nothing was enqueued.
 *
 * Publishing.  In-engine device: the launch's own operation and then all others, in the order of
 * the plan, by one thread that drives, or as one piece of the inbox.  It cannot fail.
 * Asynchronous device: all under comm->order.lock, when all streams have room for it (plan_need.c).  So
 * launches, and calls of other threads, do not mix with a launch.  The device may still refuse
 * an operation after others are on their streams: the operations from that one on are given
 * back, the call returns OK, and the launch ends in the refusal when the others have ended.
 *
 * The launch's own operation is placed before its operations, so no end comes too early.  It ends with
 * the last of them, before that one's stream goes on: a thread that has seen the stream go on
 * finds the launch ended.  Its status is that of the first operation of the plan that
 * did not end in OK.  If operations are lent, so is the launch, until all are given back.  It
 * keeps its slot until then, so the slot that they have stays its own.
 *
 * What it says of that operation (the slot `failed`, plan_drive.c) is kept in its transfer, since the
 * operation's slot is used again.  A list that did not agree is kept for the launch's own operation then.
 *
 * Its deadline counts from the moment when the first of its operations is armed.  Deadline
 * and cancel end all operations that have not ended.  Operations that are placed after its
 * deadline (an asynchronous device may arm the first before the last is on its stream) end at
 * once: EXPIRED.  A launch has the path of one of its operations: of a stream-issued one, if any, so
 * that baton_cancel refuses it as it refuses that one.  Whether a path takes an operation that it
 * shares with the one-sided layer shows when that is put on its stream; before, it counts as
 * the layer's.
 */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "enqueue.h"
#include "group.h"
#include "life.h"
#include "log.h"
#include "tensor_store.h"

static const char call[] = "baton_plan_launch";

/* ---- building ---- */

/* A launch that is being built, on the stack of its call. */
struct building {
	struct batoni_scope scope;
	struct batoni_op *launch;
	struct batoni_op *group; /* that the replay has open, or NULL */
	/* By `next`: its operations and groups, and free slots. */
	struct batoni_op *first, *last, *reserved;
};

static struct building *
building_of(struct batoni_scope *scope)
{
	return batoni_container_of(scope, struct building, scope);
}

/* Add an operation, or a group, behind the others. */
static void
append(struct building *building, struct batoni_op *op)
{
	batoni_op_list_in(op, BATONI_IN_LAUNCH);
	op->next = NULL;
	if (building->last)
		building->last->next = op;
	else
		building->first = op;
	building->last = op;
}

static void
adopt(struct batoni_op *launch, struct batoni_op *op)
{
	op->flags |= BATONI_FLAG_PLANNED;
	op->launch_slot = batoni_pool_slot(&launch->comm->pool, launch);
	op->plan_index = launch->tally.members++;
	/* A cancel asks the path of the launch. */
	if (unlikely(op->flags & BATONI_FLAG_STREAM_ISSUED) &&
	    !batoni_path_of(op)->ops->taking)
		batoni_set(launch->path, op->path);
	else if (op->plan_index == 0)
		batoni_set(launch->path,
		           op->flags & BATONI_FLAG_STREAM_ISSUED
		                   ? BATONI_PATH_ONESIDED
		                   : op->path);
}

static enum baton_status
add_to_launch(struct batoni_scope *scope, struct batoni_op *op)
{
	struct building *building = building_of(scope);
	enum baton_status status = BATON_OK;

	if (building->group)
		status = batoni_group_take(building->group, op);
	if (status != BATON_OK)
		return status;
	adopt(building->launch, op);
	if (!building->group)
		append(building, op);
	return BATON_OK;
}

static struct batoni_op *
take_reserved(struct batoni_scope *scope)
{
	struct building *building = building_of(scope);
	struct batoni_op *op = building->reserved;

	if (!op)
		return NULL;
	building->reserved = op->next;
	batoni_op_list_out(op, BATONI_IN_LAUNCH);
	return op;
}

/* It is open within one call, which calls nothing of the program's. */
static const struct batoni_scope_kind launch_scope = {
	.where = "within a launch",
	.add = add_to_launch,
	.take_op = take_reserved,
};

/* Those that a refused replay has left. */
static void
return_reserved(struct building *building)
{
	struct batoni_op *op;

	while ((op = take_reserved(&building->scope)))
		batoni_pool_return(&building->scope.comm->pool, op);
}

/* Give back an operation that was not published. */
static void
unmake(struct batoni_op *op)
{
	struct batoni_tensor_list *list = batoni_op_list(op);

	batoni_forget_described(op);
	if (list)
		batoni_tensor_list_give(op->comm, list);
	batoni_unmake(op, BATON_OK);
}

/* Give back what was built from `op` on.  Returns the number of operations. */
static uint32_t
unmake_from(struct batoni_op *op)
{
	struct batoni_op *member, *next;
	uint32_t n = 0;

	for (; op; op = next) {
		next = op->next;
		batoni_op_list_out(op, BATONI_IN_LAUNCH);
		if (op->kind != BATONI_KIND_GROUP) {
			unmake(op);
			n++;
			continue;
		}
		for (member = op->group.head; member;) {
			struct batoni_op *after = member->group_next;

			unmake(member);
			member = after;
			n++;
		}
		batoni_op_drop(op, BATONI_OP_ENGINE);
	}
	return n;
}

static enum baton_status
replay_group(struct building *building, const struct batoni_plan_entry *entry)
{
	struct batoni_op *group = building->group;

	if (entry->begins) {
		building->group = batoni_group_new(call, building->scope.comm);
		return building->group ? BATON_OK : BATON_ERR_AGAIN;
	}
	building->group = NULL;
	if (group->group.head)
		append(building, group);
	else
		batoni_op_drop(group, BATONI_OP_ENGINE);
	return BATON_OK;
}

static enum baton_status
replay(struct building *building, const struct baton_plan *plan)
{
	struct baton_comm *comm = plan->comm;
	enum baton_status status = BATON_OK;
	const struct batoni_plan_entry *entry, *checked = NULL;

	for (size_t at = 0; at < plan->bytes && status == BATON_OK;
	     at += entry->bytes) {
		entry = batoni_plan_at(plan, at);
		if (!entry->ops) {
			status = replay_group(building, entry);
			continue;
		}
		/* What may have changed: the stream, and what the replay asks for. */
		if (!checked || entry->stream != checked->stream)
			status = batoni_check_target(call, comm, entry->stream,
			                             false);
		checked = entry;
		if (status == BATON_OK)
			status = entry->ops->replay(comm,
			                            batoni_plan_entry_payload(entry));
	}
	return status;
}

void
batoni_launch_expects(struct batoni_op *launch, uint32_t members)
{
	launch->tally.members = members;
	launch->tally.ended = 0;
	launch->launched.failed = BATONI_NONE_FAILED;
	launch->launched.lent = 0;
	batoni_set(launch->launched.came, 0);
}

/* Gather all operations of the launch.  OK: *first_p is the first, or NULL. */
static enum baton_status
build(struct batoni_op *launch, const struct baton_plan *plan,
      struct batoni_op **first_p)
{
	uint32_t slots = plan->operations + plan->groups;
	struct building building = {.launch = launch};
	enum baton_status status;

	batoni_launch_expects(launch, 0);
	/* All together: one step. */
	if (slots > 0)
		building.reserved =
			batoni_pool_take_many(&launch->comm->pool, slots);
	batoni_scope_init(&building.scope, &launch_scope, launch->comm, 0);
	batoni_scope_push(&building.scope);
	status = replay(&building, plan);
	batoni_scope_close(&building.scope);
	return_reserved(&building);
	if (status == BATON_OK) {
		*first_p = building.first;
		return BATON_OK;
	}
	if (building.group)
		append(&building, building.group);
	unmake_from(building.first);
	return status;
}

/* ---- publishing, in-engine ---- */

/* One list, linked by `next`: the launch, then all operations, each group behind its
 * members. */
static void
chain(struct batoni_op *launch, struct batoni_op *first)
{
	struct batoni_op **tail = &launch->next;
	struct batoni_op *op, *next;

	for (op = first; op; op = next) {
		next = op->next;
		batoni_op_list_out(op, BATONI_IN_LAUNCH);
		if (op->kind == BATONI_KIND_GROUP) {
			batoni_set(op->group.failed, op->group.head);
			for (struct batoni_op *member = op->group.head; member;
			     member = member->group_next) {
				*tail = member;
				tail = &member->next;
			}
		}
		*tail = op;
		tail = &op->next;
	}
	*tail = NULL;
}

/* ---- publishing, asynchronous ---- */

/* The launch has begun to be put on its streams. */
struct putting {
	struct batoni_op *launch; /* NULL: it is published */
	struct batoni_op *refused; /* the first operation or group that was not put */
	uint32_t index;            /* of the plan's operations, the first in it */
	bool void_group; /* a part of `refused` is on streams: the driver has it */
};

/* OK; the refusal: nothing of it was enqueued, or the communicator breaks. */
static enum baton_status
put_one(struct putting *putting, struct batoni_op *op)
{
	/* Once its item is on a stream the driver changes its flags; a put that its path has left to
	 * the one-sided layer has that one's path. */
	bool issued = op->flags & BATONI_FLAG_STREAM_ISSUED;
	unsigned path = op->path;
	enum baton_status status;

	if (op->kind == BATONI_KIND_GROUP)
		return batoni_group_put(op, &putting->launch,
		                        &putting->void_group);
	status = batoni_op_put(op);
	if (status != BATON_OK)
		return status;
	if (issued && op->path == path)
		batoni_set(op->comm->pool.ops[op->launch_slot].path, op->path);
	if (putting->launch)
		batoni_publish(putting->launch);
	putting->launch = NULL;
	batoni_publish(op);
	return BATON_OK;
}

static uint32_t
first_index(const struct batoni_op *op)
{
	return op->kind == BATONI_KIND_GROUP ? op->group.head->plan_index
	                                     : op->plan_index;
}

static enum baton_status
put_all(struct putting *putting, struct batoni_op *first)
{
	enum baton_status status = BATON_OK;
	struct batoni_op *op, *next;

	for (op = first; op; op = next) {
		/* Published, it may end and be used again. */
		next = op->next;
		putting->index = first_index(op);
		batoni_op_list_out(op, BATONI_IN_LAUNCH);
		status = put_one(putting, op);
		if (status != BATON_OK) {
			putting->refused = putting->void_group ? next : op;
			if (!putting->void_group)
				batoni_op_list_in(op, BATONI_IN_LAUNCH);
			break;
		}
	}
	return status;
}

/* The rest was refused when a part was on its streams.  It ends in the refusal. */
static void
end_halfway(struct batoni_op *launch, const struct putting *putting,
            uint32_t members, enum baton_status status)
{
	struct batoni_transfer nothing = {.peer = -1, .tag = -1};

	unmake_from(putting->refused);
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: a launch of a plan of %u operation%s was refused "
	           "from operation %u on, when others were on their streams: %s",
	           launch->comm->rank, members, batoni_s(members), putting->index,
	           baton_last_error());
	batoni_lock();
	batoni_launch_note_failure(launch, putting->index, status, 0, &nothing);
	launch->tally.ended += members - putting->index;
	batoni_launch_settle(launch);
	batoni_end_and_issue();
	batoni_unlock();
}

static enum baton_status
publish_async(struct batoni_op *launch, const struct baton_plan *plan,
              struct batoni_op *first)
{
	struct putting putting = {.launch = launch};
	struct baton_comm *comm = launch->comm;
	uint32_t members = launch->tally.members;
	enum baton_status status;

	if (!first) {
		batoni_publish(launch);
		return BATON_OK;
	}
	status = batoni_enqueuing_begin(comm);
	if (status != BATON_OK) {
		unmake_from(first);
		return status;
	}
	putting.refused = first;
	status = batoni_plan_room(plan);
	if (status == BATON_OK)
		status = put_all(&putting, first);
	else if (status != BATON_ERR_AGAIN)
		batoni_refuse_device(comm, status);
	batoni_enqueuing_end(comm);
	if (status == BATON_OK)
		return BATON_OK;
	if (!putting.launch) {
		end_halfway(launch, &putting, members, status);
		return BATON_OK;
	}
	unmake_from(putting.refused);
	if (putting.void_group)
		batoni_group_settle();
	return status;
}

/* ---- the call ---- */

static enum baton_status
check_launch(const struct baton_plan *plan,
             const struct baton_op_options **options_p,
             struct baton_op_options *room)
{
	const struct baton_op_options *options;
	enum baton_status status;

	if (!plan || !batoni_is_alive(&plan->handle))
		return batoni_refuse(BATON_ERR_INVALID, "%s: plan %s", call,
		                     plan ? "was destroyed" : "is NULL");
	status = batoni_check_comm(call, plan->comm);
	if (status == BATON_OK && batoni_scope_of(plan->comm))
		status = batoni_scope_refuse(
			plan->comm,
			batoni_refuse(BATON_ERR_INVALID, "%s was called %s",
		                      call, batoni_scope_where(plan->comm)));
	if (status == BATON_OK)
		status = batoni_take_options(call, options_p, room, false);
	options = *options_p;
	if (status == BATON_OK && options && options->flags)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "%s: options->flags is 0x%x; a launch takes "
		                       "none (its operations were recorded with "
		                       "theirs)",
		                       call, options->flags);
	return status;
}

static enum baton_status
launch_on(const struct baton_plan *plan, struct batoni_op *launch,
          const struct baton_op_options *options)
{
	enum baton_status status = BATON_OK;
	struct batoni_op *first = NULL;

	launch->item.word = NULL;
	launch->timeout_ns = 0;
	if (options)
		status = batoni_apply_options(launch, options);
	if (status == BATON_OK && batoni_launch_directly(launch, plan))
		return BATON_OK;
	if (status == BATON_OK)
		status = build(launch, plan, &first);
	if (status != BATON_OK)
		return status;
	if (!launch->comm->in_engine)
		return publish_async(launch, plan, first);
	chain(launch, first);
	batoni_publish_chain(launch);
	return BATON_OK;
}

/* What is replayed names the call; the device, a path and the queue do not. */
static void
name_call(enum baton_status status)
{
	if (strncmp(baton_last_error(), call, sizeof(call) - 1) != 0)
		batoni_refuse_named(call, status);
}

enum baton_status
baton_plan_launch(struct baton_plan *plan, const struct baton_op_options *options,
                  baton_request *request_p)
{
	struct baton_op_options room;
	enum baton_status status;
	struct batoni_op *launch;
	baton_request handle;

	BATONI_ENTER(call);
	BATONI_KEEP_SITE();
	status = check_launch(plan, &options, &room);
	if (status != BATON_OK)
		return status;
	launch = batoni_op_new(plan->comm, BATONI_KIND_PLAN, NULL,
	                       request_p ? BATONI_OP_ENGINE | BATONI_OP_HANDLE
	                                 : BATONI_OP_ENGINE);
	if (!launch)
		return batoni_refuse_full(call, plan->comm);
	handle = batoni_op_handle(launch, atomic_load(&launch->word));
	status = launch_on(plan, launch, options);
	if (status != BATON_OK) {
		name_call(status);
		return batoni_unmake(launch, status);
	}
	if (request_p)
		*request_p = handle;
	return BATON_OK;
}
