/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: recording.  (plan_need.c has what bounds them, plan_launch.c launches them.)
 *
 * A plan is a list of entries.  An entry is a call: a function that makes it again, and a copy of its
 * arguments; or the beginning or end of a group.
 *
 * States.  Recording: the plan is what the thread that began it has open on the communicator
 * (`recording`, a scope), so all calls of the thread there go to it.  Void: a call was refused; the
 * plan stays open until its end, which says so and frees it.  Ready: recorded; it does not change
 * any more.
 * Destroyed: a tombstone (handle.h).  There is no state "launched": a launch copies all that it
 * needs into slots of its own, so the plan may be launched again, or destroyed, while
 * operations of it are pending.
 *
 * A call that is recorded goes the whole way of a call: its checks, a slot from the pool,
 * the location of its buffer, its path, up to where it would be published (`add`).
 * There it is refused with BATONI_RECORDED, so that everything is given back, and then it is
 * kept as an entry.  So a plan has only calls that would have been accepted.
 *
 * Lifetimes.  A communicator with plans is not destroyed (comm->plans), and a window that a plan
 * names is not deregistered (its entry counts it).  Streams and buffers are the program's.
 *
 * Threads.  A plan that is ready is only read: any number of threads may launch it at
 * once.  Destroying it beside another call on it is the program's error, as for a queue.
 * Locks: none here but that of the tombstones.
 */
#include "plan.h"

#include <string.h>

#include "enqueue.h"
#include "log.h"

#define ROOM_FIRST ((size_t)1024)

static struct batoni_handles handles = BATONI_HANDLES(baton_plan);

static const struct batoni_scope_kind recording_scope;

static struct baton_plan *
plan_of(struct batoni_scope *scope)
{
	assert(scope->kind == &recording_scope);
	return batoni_container_of(scope, struct baton_plan, recording);
}

struct baton_plan *
batoni_plan_recorded(const struct baton_comm *comm)
{
	struct batoni_scope *scope = batoni_scope_of(comm);

	return scope && scope->kind == &recording_scope ? plan_of(scope) : NULL;
}

/* ---- memory ---- */

static void
plan_free(struct baton_plan *plan)
{
	const struct batoni_plan_entry *entry;

	for (size_t at = 0; at < plan->bytes; at += entry->bytes) {
		entry = batoni_plan_at(plan, at);
		if (entry->ops && entry->ops->forget)
			entry->ops->forget(batoni_plan_entry_payload(entry));
	}
	batoni_scope_forget(&plan->recording);
	batoni_free(plan->entries);
	batoni_free(plan->streams);
	atomic_fetch_sub(&plan->comm->plans, 1);
	batoni_handle_retire(&handles, plan);
}

/* Room for n bytes more. */
static bool
reserve(struct baton_plan *plan, size_t n)
{
	size_t room = plan->room ? plan->room : ROOM_FIRST;
	unsigned char *entries;

	if (plan->room - plan->bytes >= n)
		return true;
	while (room - plan->bytes < n)
		room *= 2;
	entries = batoni_alloc(room, 1);
	if (!entries)
		return false;
	if (plan->bytes > 0)
		memcpy(entries, plan->entries, plan->bytes);
	batoni_free(plan->entries);
	plan->entries = entries;
	plan->room = room;
	return true;
}

/* ---- entries ---- */

static enum baton_status
refuse_memory(const char *call, struct baton_plan *plan)
{
	return batoni_scope_refuse(
		plan->comm, batoni_refuse(BATON_ERR_NOMEM,
	                                  "%s: no memory for the plan", call));
}

enum baton_status
batoni_plan_add(const char *call, struct baton_plan *plan,
                const struct batoni_plan_entry_ops *ops, baton_stream stream,
                const void *payload, size_t n, const void *more, size_t more_n)
{
	size_t first = (n + 15) & ~(size_t)15;
	size_t bytes = BATONI_PLAN_ENTRY_BYTES + first + ((more_n + 15) & ~(size_t)15);
	struct batoni_plan_entry *entry;
	unsigned char *at;

	if (!reserve(plan, bytes))
		return refuse_memory(call, plan);
	at = plan->entries + plan->bytes;
	entry = (struct batoni_plan_entry *)(void *)at;
	*entry = (struct batoni_plan_entry){
		.ops = ops, .stream = stream, .bytes = (uint32_t)bytes};
	memcpy(at + BATONI_PLAN_ENTRY_BYTES, payload, n);
	if (more_n > 0)
		memcpy(at + BATONI_PLAN_ENTRY_BYTES + first, more, more_n);
	plan->bytes += bytes;
	plan->operations++;
	plan->members++;
	return BATON_OK;
}

static enum baton_status
note_group(const char *call, struct baton_plan *plan, bool begins)
{
	struct batoni_plan_entry *entry;

	if (!reserve(plan, BATONI_PLAN_ENTRY_BYTES))
		return refuse_memory(call, plan);
	entry = (struct batoni_plan_entry *)(void *)(plan->entries + plan->bytes);
	*entry = (struct batoni_plan_entry){
		.bytes = (uint32_t)BATONI_PLAN_ENTRY_BYTES, .begins = begins};
	plan->bytes += BATONI_PLAN_ENTRY_BYTES;
	return BATON_OK;
}

/* ---- the scope ---- */

/* What may be recorded? */
static enum baton_status
record_operation(struct batoni_scope *scope, struct batoni_op *op)
{
	struct baton_plan *plan = plan_of(scope);
	enum baton_status refusal = scope->refusal;
	unsigned detached = op->flags & BATONI_FLAG_DETACHED;

	if (refusal != BATON_OK)
		return batoni_refuse(refusal,
		                     "the plan is void, since an earlier call in "
		                     "it was refused (%s)",
		                     baton_status_name(refusal));
	if (atomic_load_explicit(&op->word, memory_order_relaxed) &
	    BATONI_OP_HANDLE)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "request_p is not NULL in a plan; a launch has "
		                     "one request (baton_plan_launch)");
	if (op->queue)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->queue is not NULL in a plan; a launch "
		                     "names the queue (baton_plan_launch)");
	if (scope->depth > 0 && plan->members > 0 && detached != plan->detached)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "a group's operations are all "
		                     "BATON_OP_DETACHED or none is");
	plan->detached = detached;
	plan->calls += scope->depth == 0;
	if (!batoni_plan_count(plan, op))
		return batoni_refuse(BATON_ERR_NOMEM, "no memory for the plan");
	return BATONI_RECORDED;
}

static enum baton_status
group_begin(struct batoni_scope *scope)
{
	struct baton_plan *plan = plan_of(scope);
	enum baton_status status = BATON_OK;

	if (scope->depth == 0)
		status = note_group("baton_group_begin", plan, true);
	if (status != BATON_OK)
		return status;
	if (scope->depth++ == 0) {
		plan->groups++;
		plan->calls++;
		plan->members = 0;
	}
	return BATON_OK;
}

static enum baton_status
group_end(struct batoni_scope *scope)
{
	enum baton_status status;

	if (scope->depth == 0)
		return batoni_scope_refuse(
			scope->comm,
			batoni_refuse(BATON_ERR_INVALID,
		                      "baton_group_end: no group is open in the "
		                      "plan that is recorded"));
	if (--scope->depth > 0)
		return BATON_OK;
	status = note_group("baton_group_end", plan_of(scope), false);
	return scope->refusal != BATON_OK
	               ? batoni_scope_say("baton_group_end", scope,
	                                  scope->refusal)
	               : status;
}

/* What the group has recorded cannot be told from the rest of the plan any more. */
static enum baton_status
group_abandon(struct batoni_scope *scope)
{
	if (scope->depth == 0)
		return batoni_scope_refuse(
			scope->comm,
			batoni_refuse(BATON_ERR_INVALID,
		                      "baton_group_abandon: no group is open in "
		                      "the plan that is recorded"));
	scope->depth--;
	batoni_scope_void(scope);
	return BATON_OK;
}

static void
abandon(struct batoni_scope *scope)
{
	struct baton_plan *plan = plan_of(scope);

	batoni_log(BATONI_LOG_WARN,
	           "rank %d: a thread exits while it records a plan of %u "
	           "operation%s: there is no plan",
	           plan->comm->rank, plan->operations,
	           batoni_s(plan->operations));
	plan_free(plan);
}

static const struct batoni_scope_kind recording_scope = {
	.where = "within the recording of a plan",
	.add = record_operation,
	.group_begin = group_begin,
	.group_end = group_end,
	.group_abandon = group_abandon,
	.abandon = abandon,
};

/* ---- the calls ---- */

enum baton_status
baton_plan_begin(struct baton_comm *comm)
{
	struct baton_plan *plan;
	enum baton_status status = batoni_check_comm("baton_plan_begin", comm);

	if (status != BATON_OK)
		return status;
	if (batoni_scope_of(comm))
		return batoni_scope_refuse(
			comm, batoni_refuse(BATON_ERR_INVALID,
		                            "baton_plan_begin was called %s",
		                            batoni_scope_where(comm)));
	plan = batoni_handle_new(&handles);
	if (!plan)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_plan_begin: out of memory");
	plan->comm = comm;
	batoni_scope_init(&plan->recording, &recording_scope, comm, 0);
	atomic_fetch_add(&comm->plans, 1);
	batoni_scope_open(&plan->recording);
	return BATON_OK;
}

/* Can the plan be launched at all? */
static enum baton_status
check_plan(const struct baton_plan *plan)
{
	uint64_t slots = (uint64_t)plan->operations + plan->groups + 1;

	if (plan->recording.refusal != BATON_OK)
		return batoni_scope_say("baton_plan_end", &plan->recording,
		                        plan->recording.refusal);
	if (plan->recording.depth > 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_plan_end: a group is open; there is no "
		                     "plan");
	if (slots > plan->comm->pool.size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_plan_end: a launch of %u operation%s and "
		                     "%u group%s takes %llu requests, and the "
		                     "communicator has %u (requests_max)",
		                     plan->operations, batoni_s(plan->operations),
		                     plan->groups, batoni_s(plan->groups),
		                     (unsigned long long)slots,
		                     plan->comm->pool.size);
	return batoni_plan_fits("baton_plan_end", plan);
}

enum baton_status
baton_plan_end(struct baton_comm *comm, struct baton_plan **plan_p)
{
	struct baton_plan *plan = comm ? batoni_plan_recorded(comm) : NULL;
	enum baton_status status;

	BATONI_ENTER("baton_plan_end");
	if (!plan)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_plan_end: this thread records no plan "
		                     "of this communicator");
	batoni_scope_close(&plan->recording);
	status = check_plan(plan);
	if (status == BATON_OK && !plan_p)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_plan_end: plan_p is NULL; there is no "
		                       "plan");
	if (status != BATON_OK) {
		plan_free(plan);
		return status;
	}
	plan->direct = batoni_plan_is_direct(plan);
	batoni_handle_start(&plan->handle);
	*plan_p = plan;
	return BATON_OK;
}

enum baton_status
baton_plan_destroy(struct baton_plan *plan)
{
	BATONI_ENTER("baton_plan_destroy");
	if (!plan)
		return BATON_OK;
	if (!batoni_is_alive(&plan->handle))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_plan_destroy: plan was destroyed");
	plan_free(plan);
	return BATON_OK;
}
