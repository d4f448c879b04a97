/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace: what each operation of a communicator has gone through, in a ring in a mapped file
 * (baton_trace.h has the format, trace_file.c makes it, trace_slot.c gives slots).
 *
 * The trace is an observer of the life of operations (life.h), a fast one: calls still issue operations themselves.
 *
 *   begun    the call: this file keeps its stamp and call site beside the operation (struct batoni_traced).
 *            A message that its call issues gets its slot of the ring here, and is counted
 *   HANDED   to the inbox: the operation enters the table `handed`, so the file has it even if no thread ever drives
 *   moved    the first move gives any other operation its slot, and counts it; each move writes its
 *            stamp, if the slot still has the operation's serial
 *
 * A claim (claim.c) has no moves: it has its slot when a probe tells the program of it.
 *
 * So a call that is refused has no slot.  What the one-sided layer knows of an operation (its signals) is known when
 * the operation is handed or moved, or, if it ends within its call, at its end: one-sided operations get their slots
 * then.
 *
 * Serials.  A thread takes a slot by adding to header->serials.  Any thread may; the driver takes several at once, and
 * drops the rest of them if other threads have taken half a ring since.
 *
 * Stamps.  Reading one costs as much as the rest together.  So the call's stamp serves for what happens within a call
 * that issues its operation: the end of the operation, and of another rank's that it ends.  After a copy of 4096 bytes
 * or more a new stamp is read.
 *
 * Threads: the driver, but for three events: `begun` of an operation that is handed later and HANDED to the inbox come
 * from the enqueuer, RUNS from the stream's thread.
 */
#include "trace.h"

#include <string.h>

#include "life.h"
#include "ticks.h"
#include "trace_slot.h"

/* The stamp of the call that issues its operation now, on any communicator; 0: none does.  The driver. */
static uint64_t call_stamp;

/* The kinds whose signals the counters add up. */
#define TOLD_AT_ONCE (BATONI_ONESIDED & ~(1u << BATON_OPERATION_WAIT_COUNT))

static inline uint64_t
stamp_now(void)
{
	return likely(call_stamp) ? call_stamp : batoni_ticks();
}

static inline uint64_t
stamp_of_end(const struct batoni_op *op)
{
	return likely(op->transfer.done_bytes < BATONI_TRACE_SHORT) ? stamp_now()
	                                                            : batoni_ticks();
}

/* Later events of the operation are not within its call: it has ended there, or goes on after it. */
static inline void
end_of_call(struct batoni_traced *traced)
{
	if (traced->direct)
		call_stamp = 0;
	traced->direct = false;
}

/* Is it a message that gets its slot at its call?  (The messages of a launch get theirs later, when their launch is
 * known.) */
static inline bool
is_message(const struct batoni_op *op)
{
	return (BATONI_MESSAGES >> op->kind & 1u) &&
	       !(op->flags & BATONI_FLAG_PLANNED);
}

/* The call, whose stamp is `at`, has issued the operation. */
static void
note_issued(struct baton_trace_operation *slot, uint64_t at)
{
	slot->armed = slot->issued = at;
	slot->state = BATON_STATE_ISSUED;
}

/* ---- plain ones ---- */

/* What a plain operation needs, if all of it was looked up lately. */
struct found {
	uint64_t serial;
	struct baton_trace_operation *slot;
	struct baton_trace_counter *counter;
};

/* False: something has to be looked up. */
BATONI_ALWAYS_INLINE bool
find_plainly(const struct batoni_trace *trace, unsigned kind, int peer, int tag,
             int context, const void *site, struct found *found)
{
	found->serial = trace->next;
	found->slot = batoni_trace_slot_at(trace, found->serial);
	found->counter = trace->recent[batoni_trace_recent(kind, peer, tag)];
	return likely(found->serial != trace->taken &&
	              found->slot->serial <= found->serial &&
	              (uintptr_t)site - trace->module.begin < trace->module.bytes &&
	              batoni_trace_counts(found->counter, kind, peer, tag, context));
}

/* Open the operation's slot, and write what all plain operations have. */
BATONI_ALWAYS_INLINE void
fill_plainly(struct batoni_trace *trace, const struct batoni_op *op,
             struct batoni_traced *traced, uint64_t now, enum baton_request_state state,
             const void *site, const struct found *found)
{
	struct baton_trace_operation *slot = found->slot;

	trace->next = found->serial + 1;
	batoni_trace_open_slot(slot);
	batoni_trace_fill(slot, op, now, now, state, batoni_trace_flags(op, true));
	slot->path = op->path;
	slot->bytes = op->transfer.bytes;
	slot->user_data = op->user_data;
	slot->module = trace->module.number;
	slot->offset = (uintptr_t)site - trace->module.base;
	/* The lines that the next operation writes. */
	__builtin_prefetch(slot + 1, 1);
	__builtin_prefetch((char *)(slot + 1) + 64, 1);
	atomic_store_explicit(&traced->serial, found->serial, memory_order_relaxed);
	traced->counter = found->counter;
	traced->placed = true;
	found->counter->called++;
}

/* Begin a message that its call issues, and that names peer and tag, as most do.  False: it is not so simple, and
 * nothing was written. */
static inline bool
begin_plainly(struct batoni_trace *trace, const struct batoni_op *op,
              struct batoni_traced *traced, uint64_t now, const void *site)
{
	/* Two loads, since the call has just stored them one by one (store forwarding). */
	const int peer = batoni_get(op->transfer.peer);
	const int tag = batoni_get(op->transfer.tag);
	struct found found;

	if (unlikely((peer | tag) < 0 ||
	             !find_plainly(trace, op->kind, peer, tag, -1, site, &found)))
		return false;
	fill_plainly(trace, op, traced, now, BATON_STATE_ISSUED, site, &found);
	found.slot->peer = peer;
	found.slot->tag = tag;
	batoni_trace_close_slot(found.slot, found.serial);
	traced->direct = traced->plain = true;
	call_stamp = now;
	return true;
}

/* End a message within its call or another operation's.  False as above. */
static inline bool
end_plainly(struct batoni_trace *trace, const struct batoni_op *op,
            struct batoni_traced *traced)
{
	struct baton_trace_operation *slot = batoni_trace_slot_of(trace, traced);
	struct baton_trace_counter *counter = traced->counter;
	const uint64_t bytes = op->transfer.done_bytes;
	const uint64_t now = call_stamp;

	if (unlikely(!slot || !now || op->status != BATON_OK ||
	             bytes >= BATONI_TRACE_SHORT || batoni_op_list(op) ||
	             now - trace->read > trace->every))
		return false;
	slot->completed = now;
	slot->state = BATON_STATE_ENDED;
	slot->status = BATON_OK;
	slot->done_bytes = bytes;
	counter->completed++;
	counter->bytes += bytes;
	if (traced->direct)
		call_stamp = 0;
	return true;
}

/* ---- the call ---- */

/* The operation gets its slot when it ends, or is handed. */
BATONI_ALWAYS_INLINE void
begin_later(struct batoni_traced *traced, bool direct, uint64_t now, const void *site)
{
	if (direct)
		call_stamp = now;
	traced->enqueued = now;
	traced->site = site;
	traced->direct = direct;
	traced->placed = traced->plain = false;
	atomic_store_explicit(&traced->serial, 0, memory_order_relaxed);
}

/* Begin any other operation. */
static __attribute__((noinline)) void
begin_traced(const struct batoni_op *op, bool direct, uint64_t now, const void *site)
{
	struct batoni_trace *trace = op->comm->trace;
	struct batoni_traced *traced = batoni_traced_of(op);
	struct baton_trace_operation *slot;

	begin_later(traced, direct, now, site);
	if (unlikely(batoni_kind_of(op)->runs))
		batoni_set(trace->handed[traced - trace->traced].ran, 0);
	if (!direct || !is_message(op))
		return;
	batoni_trace_place(trace, op, traced, false);
	slot = batoni_trace_slot_of(trace, traced);
	if (slot)
		note_issued(slot, now);
}

static __attribute__((noinline)) void
begin_now(const struct batoni_op *op, bool direct, const void *site)
{
	if (!(op->flags & BATONI_FLAG_LOCAL))
		begin_traced(op, direct, batoni_ticks(), site);
}

static void
begun(void *context, const struct batoni_op *op, unsigned state, const void *site)
{
	const bool direct = state == BATONI_ISSUED;
	uint64_t now;

	(void)context;
	if (unlikely(!direct || (op->flags & BATONI_FLAG_LOCAL) ||
	             !batoni_ticks_are_near())) {
		begin_now(op, direct, site);
		return;
	}
	now = batoni_ticks_near();
	if (!is_message(op))
		begin_later(batoni_traced_of(op), true, now, site);
	else if (unlikely(!begin_plainly(op->comm->trace, op, batoni_traced_of(op),
	                                 now, site)))
		begin_traced(op, true, now, site);
}

/* ---- the end ---- */

/* The status.  A group, or a member of a void one, ends without a completion. */
static int
status_of(const struct batoni_op *op)
{
	if (likely(op->status != BATON_PENDING))
		return op->status;
	if (batoni_kind_of(op)->members)
		return op->group.scope.refusal;
	return op->group_of && op->group_of->group.scope.refusal != BATON_OK
	               ? op->group_of->group.scope.refusal
	               : BATON_ERR_CANCELED;
}

/* A receive from any rank, or of any tag, has met a message: count it for that message's rank and tag. */
static void
count_moved(struct batoni_trace *trace, const struct batoni_op *op,
            struct batoni_traced *traced)
{
	if (op->kind != BATON_OPERATION_RECV || traced->counter->used == 2 ||
	    op->transfer.peer < 0 || op->transfer.tag < 0)
		return;
	traced->counter->moved++;
	batoni_trace_count_message(trace, op, traced);
}

static inline void
count_ended(struct batoni_trace *trace, const struct batoni_op *op,
            struct batoni_traced *traced, int status)
{
	if (unlikely(!traced->counter))
		return;
	if (unlikely(traced->counter->peer < 0 || traced->counter->tag < 0))
		count_moved(trace, op, traced);
	if (likely(status == BATON_OK))
		traced->counter->completed++;
	else
		traced->counter->failed++;
	traced->counter->bytes += op->transfer.done_bytes;
}

/* A receive from any rank, or of any tag, may know by now what it has met. */
static inline void
name_met(const struct batoni_op *op, struct baton_trace_operation *slot)
{
	if (op->kind != BATON_OPERATION_RECV)
		return;
	slot->peer = batoni_get(op->transfer.peer);
	slot->tag = batoni_get(op->transfer.tag);
}

/* The function has ended, so its stream's thread writes nothing more. */
static void
end_function(const struct batoni_trace *trace, const struct batoni_op *op,
             struct baton_trace_operation *slot_or_null)
{
	struct baton_trace_operation *entry =
		&trace->handed[batoni_pool_slot(&op->comm->pool, op)];

	if (slot_or_null)
		slot_or_null->armed = batoni_get(entry->ran);
	batoni_trace_close_slot(entry, 0);
}

static __attribute__((noinline)) void
note_end(struct batoni_trace *trace, const struct batoni_op *op,
         struct batoni_traced *traced)
{
	struct baton_trace_operation *slot = batoni_trace_slot_of(trace, traced);
	uint64_t now = stamp_of_end(op);
	int status = status_of(op);

	count_ended(trace, op, traced, status);
	if (likely(slot)) {
		slot->completed = now;
		slot->state = BATON_STATE_ENDED;
		slot->status = (int8_t)status;
		if (likely(batoni_is_transfer(op))) {
			slot->done_bytes = op->transfer.done_bytes;
			slot->path = op->path;
			name_met(op, slot);
		}
		if (unlikely(batoni_op_list(op)))
			slot->flags |= BATON_TRACE_TENSORS;
	}
	if (unlikely(batoni_kind_of(op)->runs))
		end_function(trace, op, slot);
	end_of_call(traced);
	if (unlikely(status != BATON_OK))
		batoni_trace_file_note_fault(trace, op->comm);
	if (unlikely(now - trace->read > trace->every))
		batoni_trace_file_read_clocks(trace);
}

/* ---- between ---- */

static void
note_move(struct baton_trace_operation *slot, const struct batoni_op *op,
          unsigned state)
{
	switch ((enum batoni_op_state)state) {
	case BATONI_QUEUED:
		slot->state = BATON_STATE_QUEUED;
		break;
	case BATONI_ARMED:
		slot->armed = stamp_now();
		if (op->flags & BATONI_FLAG_STREAM_ISSUED)
			break;
		/* Its call did not issue it after all: a receive from any rank, or of any tag. */
		slot->issued = 0;
		slot->state = BATON_STATE_ARMED;
		break;
	case BATONI_ISSUED:
		slot->issued = stamp_now();
		slot->state = BATON_STATE_ISSUED;
		slot->path = op->path;
		name_met(op, slot);
		break;
	case BATONI_NEW:
	case BATONI_ENDED:
		break;
	}
}

static __attribute__((noinline)) enum baton_status
note(struct batoni_trace *trace, const struct batoni_op *op,
     struct batoni_traced *traced, unsigned state)
{
	struct baton_trace_operation *slot;

	if (unlikely(!traced->placed))
		batoni_trace_place(trace, op, traced, state == BATONI_ENDED);
	else if (unlikely(batoni_kind_of(op)->off_stream))
		batoni_trace_adopt(trace, op);
	if (likely(state == BATONI_ENDED)) {
		note_end(trace, op, traced);
		return BATON_OK;
	}
	slot = batoni_trace_slot_of(trace, traced);
	if (slot)
		note_move(slot, op, state);
	end_of_call(traced);
	return BATON_OK;
}

/* Write all the life of an operation of the one-sided layer that has ended within its call. */
static __attribute__((noinline)) enum baton_status
tell_plainly(struct batoni_trace *trace, const struct batoni_op *op,
             struct batoni_traced *traced)
{
	struct batoni_onesided *layer = op->comm->onesided;
	const uint64_t bytes = op->transfer.done_bytes;
	const uint64_t now = call_stamp;
	struct batoni_units units;
	struct found found;

	if (unlikely(!(TOLD_AT_ONCE >> op->kind & 1u) || op->status != BATON_OK ||
	             (op->flags & BATONI_FLAG_PLANNED) ||
	             bytes >= BATONI_TRACE_SHORT || now - trace->read > trace->every ||
	             layer->ops->units(layer, &op->transfer, true, &units, 1) != 1 ||
	             !find_plainly(trace, op->kind, units.peer, units.signal_index,
	                           units.context, traced->site, &found)))
		return note(trace, op, traced, BATONI_ENDED);
	fill_plainly(trace, op, traced, now, BATON_STATE_ENDED, traced->site, &found);
	found.slot->completed = now;
	found.slot->status = BATON_OK;
	found.slot->done_bytes = bytes;
	found.slot->peer = units.peer;
	found.slot->tag = -1;
	found.slot->signal = units.signal_index;
	found.slot->context = units.context;
	found.slot->signals = units.units;
	batoni_trace_close_slot(found.slot, found.serial);
	found.counter->completed++;
	found.counter->bytes += bytes;
	found.counter->signals += units.units;
	call_stamp = 0;
	return BATON_OK;
}

static enum baton_status
moved(void *context, const struct batoni_op *op, unsigned state)
{
	struct batoni_trace *trace = op->comm->trace;
	struct batoni_traced *traced;

	(void)context;
	if (op->flags & BATONI_FLAG_LOCAL)
		return BATON_OK;
	traced = batoni_traced_of(op);
	if (unlikely(state != BATONI_ENDED))
		return note(trace, op, traced, state);
	if (traced->plain && end_plainly(trace, op, traced))
		return BATON_OK;
	return traced->direct && !traced->placed
	               ? tell_plainly(trace, op, traced)
	               : note(trace, op, traced, state);
}

/* The call has issued the operation, which goes on. */
static __attribute__((noinline)) void
place_direct(struct batoni_trace *trace, const struct batoni_op *op,
             struct batoni_traced *traced)
{
	struct baton_trace_operation *slot;
	const bool placed = traced->placed;

	if (!placed)
		batoni_trace_place(trace, op, traced, false);
	slot = batoni_trace_slot_of(trace, traced);
	if (slot && traced->direct && !placed)
		note_issued(slot, traced->enqueued);
	if (slot && batoni_op_list(op))
		slot->flags |= BATON_TRACE_TENSORS;
	end_of_call(traced);
}

/* The call has handed the operation to the inbox, or has issued it. */
static void
handed(struct batoni_trace *trace, const struct batoni_op *op)
{
	struct batoni_traced *traced = batoni_traced_of(op);

	if (op->state == BATONI_NEW)
		batoni_trace_stage(trace, op, traced);
	else
		place_direct(trace, op, traced);
}

static void
note_lent(const struct batoni_trace *trace, const struct batoni_op *op)
{
	struct baton_trace_operation *slot =
		batoni_trace_slot_of(trace, batoni_traced_of(op));

	if (!slot)
		return;
	slot->state = BATON_STATE_LENT;
	slot->flags |= BATON_TRACE_LENT;
}

static __attribute__((noinline)) void
note_event(const struct batoni_op *op, enum batoni_event what)
{
	struct batoni_trace *trace = op->comm->trace;

	if (batoni_get(op->flags) & BATONI_FLAG_LOCAL)
		return;
	switch (what) {
	case BATONI_EVENT_HANDED:
		handed(trace, op);
		break;
	case BATONI_EVENT_RUNS:
		batoni_set(trace->handed[batoni_pool_slot(&op->comm->pool, op)].ran,
		           batoni_ticks());
		break;
	case BATONI_EVENT_LENT:
		note_lent(trace, op);
		break;
	case BATONI_EVENT_UNDONE:
		end_of_call(batoni_traced_of(op));
		break;
	case BATONI_EVENT_FOUND:
		batoni_trace_find(trace, op);
		break;
	case BATONI_EVENT_SPENT:
		batoni_trace_spend(trace, op);
		break;
	}
}

static void
event(void *context, const struct batoni_op *op, enum batoni_event what)
{
	(void)context;
	/* A plain message that its call has issued goes on.  (Other operations may not be the pool's: LOCAL.) */
	if (likely(what == BATONI_EVENT_HANDED && op->state == BATONI_ISSUED &&
	           batoni_traced_of(op)->plain && !batoni_op_list(op)))
		end_of_call(batoni_traced_of(op));
	else
		note_event(op, what);
}

const struct batoni_observer batoni_trace_observes = {
	.moved = moved,
	.fast = true,
	.begun = begun,
	.event = event,
};
