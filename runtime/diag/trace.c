/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace: what each operation of a communicator has gone through, in a ring in a mapped file
 * (baton_trace.h has the format, trace_file.c makes it).
 *
 * An observer of the life of records (life.h), a fast one: calls issue operations themselves as without it.
 *
 *   begun    the call: the stamp and the call site are kept beside the record (struct batoni_traced).
 *            A message that its call issues now gets its slot of the ring here
 *   HANDED   to the inbox: it gets its slot, so that it is in the file if no thread ever drives
 *   moved    otherwise its first move gives it a slot, and counts it; each move writes its
 *            stamp, if the slot still has the operation's serial
 *
 * So what is refused has no slot.  What the one-sided layer knows of an operation (its signals) is there
 * when it is handed or moved, or, if it ends within its call, at its end: these get their slots then.
 *
 * Serials.  A slot is taken by adding to header->serials.  Any thread may; the driver takes several at once, and
 * leaves what it has taken if others have taken half a ring since.
 *
 * Groups and launches of plans are parents, and are in the ring as soon as one of their operations is.
 * That may be the driver's doing while their thread still adds to them, so both may want to give the
 * parent its slot: who sets `serial` has.
 *
 * Counters are the driver's: a table hashed by kind, peer, tag or signal, and context.  They are counted at
 * the first move.
 *
 * Stamps.  One costs as much as the rest together.  So what ends within its call and is short takes one.
 */
#include "trace.h"

#include <string.h>

#include "baton_trace.h"
#include "config.h"
#include "life.h"
#include "ticks.h"
#include "trace_file.h"

/* ---- slots ---- */

static inline struct batoni_traced *
traced_of(const struct batoni_op *op)
{
	const struct baton_comm *comm = op->comm;

	return &comm->trace->traced[batoni_pool_slot(&comm->pool, op)];
}

static inline struct baton_trace_operation *
slot_at(const struct batoni_trace *trace, uint64_t serial)
{
	return &trace->ring[(serial - 1) & trace->mask];
}

/* The operation's slot; NULL: another one has it meanwhile. */
static inline struct baton_trace_operation *
slot_of(const struct batoni_trace *trace, const struct batoni_traced *traced)
{
	uint64_t serial = atomic_load_explicit(&traced->serial,
	                                       memory_order_relaxed);
	struct baton_trace_operation *slot;

	if (unlikely(!serial))
		return NULL;
	slot = slot_at(trace, serial);
	return likely(__atomic_load_n(&slot->serial, __ATOMIC_RELAXED) == serial)
	               ? slot
	               : NULL;
}

/* n serials that follow each other.  Any thread. */
static uint64_t
take_serials(struct batoni_trace *trace, uint64_t n)
{
	return __atomic_fetch_add(&trace->header->serials, n, __ATOMIC_RELAXED) +
	       1;
}

/* The driver. */
static inline uint64_t
take_serial(struct batoni_trace *trace)
{
	uint64_t taken = __atomic_load_n(&trace->header->serials,
	                                 __ATOMIC_RELAXED);

	if (unlikely(trace->left == 0 || taken - trace->next > trace->mask / 2)) {
		trace->next = take_serials(trace, BATONI_TRACE_BLOCK);
		trace->left = BATONI_TRACE_BLOCK;
	}
	trace->left--;
	return trace->next++;
}

/* From here on a reader finds the slot to be nobody's. */
static inline struct baton_trace_operation *
open_slot(struct batoni_trace *trace, uint64_t serial)
{
	struct baton_trace_operation *slot = slot_at(trace, serial);

	__atomic_store_n(&slot->serial, 0, __ATOMIC_RELAXED);
	batoni_fence(memory_order_release);
	return slot;
}

static inline void
close_slot(struct baton_trace_operation *slot, uint64_t serial)
{
	__atomic_store_n(&slot->serial, serial, __ATOMIC_RELEASE);
}

/* ---- what is in a slot ---- */

static inline unsigned
flags_of(const struct batoni_op *op, bool direct)
{
	/* Its stream may come to it, and the driver note that, before its enqueuer has handed it. */
	const unsigned said = batoni_get(op->flags);
	unsigned flags = direct ? BATON_TRACE_DIRECT : 0;

	if (said & BATONI_FLAG_DETACHED)
		flags |= BATON_TRACE_DETACHED;
	if (said & BATONI_FLAG_STREAM_ISSUED)
		flags |= BATON_TRACE_STREAM_ISSUED;
	if (said & BATONI_FLAG_PLANNED)
		flags |= BATON_TRACE_PLANNED;
	return flags;
}

/* What all kinds have; those that name a peer add it. */
static inline void
fill_slot(struct batoni_trace *trace, const struct batoni_op *op,
          const struct batoni_traced *traced, unsigned flags,
          struct baton_trace_operation *slot)
{
	slot->enqueued = traced->enqueued;
	slot->armed = slot->issued = slot->completed = slot->done_bytes = 0;
	slot->state = BATON_STATE_CALLED;
	slot->kind = op->kind;
	slot->path = UINT8_MAX;
	slot->status = BATON_PENDING;
	slot->flags = (uint16_t)flags;
	slot->module = batoni_trace_module(trace, traced->site, &slot->offset);
	slot->bytes = 0;
	slot->stream = 0;
	slot->user_data = 0;
	slot->parent = 0;
	slot->signals = 0;
	slot->peer = slot->tag = slot->signal = slot->context = -1;
}

static inline void
fill_transfer(const struct batoni_op *op, struct baton_trace_operation *slot)
{
	slot->path = op->path;
	slot->bytes = op->transfer.bytes;
	slot->stream = (uintptr_t)op->transfer.stream;
	slot->peer = op->transfer.peer;
	if (BATONI_MESSAGES >> op->kind & 1u)
		slot->tag = op->transfer.tag;
}

/* A receive from any rank, or of any tag, may know better now. */
static inline void
name_met(const struct batoni_op *op, struct baton_trace_operation *slot)
{
	if (unlikely(slot->peer != op->transfer.peer))
		slot->peer = op->transfer.peer;
	if (op->kind == BATON_OPERATION_RECV && unlikely(slot->tag != op->transfer.tag))
		slot->tag = op->transfer.tag;
}

/* ---- parents ---- */

static uint64_t
serial_of_parent(struct batoni_trace *trace, const struct batoni_op *parent)
{
	struct batoni_traced *traced = traced_of(parent);
	struct baton_trace_operation *slot;
	uint64_t serial = 0, mine;

	if (atomic_load(&traced->serial))
		return atomic_load(&traced->serial);
	mine = take_serials(trace, 1);
	if (!atomic_compare_exchange_strong(&traced->serial, &serial, mine))
		return serial;
	slot = open_slot(trace, mine);
	/* Its own flags may be its thread's still. */
	fill_slot(trace, parent, traced, 0, slot);
	if (batoni_kind_of(parent)->launch)
		slot->user_data = parent->user_data;
	close_slot(slot, mine);
	return mine;
}

/* Its group, or its launch. */
static void
name_parent(struct batoni_trace *trace, const struct batoni_op *op,
            struct baton_trace_operation *slot)
{
	const struct batoni_op *parent = batoni_op_group(op);

	if (batoni_get(op->flags) & BATONI_FLAG_PLANNED) {
		slot->user_data = batoni_launch_of(op)->user_data;
		slot->parent = serial_of_parent(trace, batoni_launch_of(op));
	}
	if (!parent)
		return;
	slot->flags |= BATON_TRACE_GROUPED;
	slot->parent = serial_of_parent(trace, parent);
}

/* ---- what the one-sided layer knows ---- */

static size_t
find_units(const struct batoni_op *op, bool ended, struct batoni_units units[])
{
	struct batoni_onesided *layer = op->comm->onesided;

	if (!batoni_is_onesided_kind(op->kind))
		return 0;
	return layer->ops->units(layer, &op->transfer, ended, units,
	                         BATONI_TRACE_TERMS_MAX + 1);
}

static void
name_units(struct baton_trace_operation *slot, const struct batoni_units *units)
{
	slot->peer = units->peer;
	slot->signal = units->signal_index;
	slot->context = units->context;
	slot->signals = units->units;
}

/* Behind the operation's own serial. */
static void
add_terms(struct batoni_trace *trace, const struct batoni_op *op,
          const struct batoni_traced *traced, uint64_t serial,
          const struct batoni_units units[], size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct baton_trace_operation *slot = open_slot(trace, serial + i);

		fill_slot(trace, op, traced, BATON_TRACE_TERM, slot);
		name_units(slot, &units[i]);
		slot->parent = serial;
		close_slot(slot, serial + i);
	}
}

/* ---- counters; the driver ---- */

static inline uint32_t
hash(uint64_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline bool
is_counter(const struct baton_trace_counter *at, unsigned kind, int peer, int tag,
           int context)
{
	return at->peer == peer && at->tag == tag && at->kind == kind &&
	       at->context == context;
}

/* The last entry takes what does not fit. */
static struct baton_trace_counter *
find_full(struct batoni_trace *trace)
{
	struct baton_trace_counter *last =
		&trace->counters[BATONI_TRACE_COUNTERS - 1];

	if (!last->used) {
		last->peer = last->tag = -2;
		last->context = -1;
		__atomic_store_n(&last->used, 2, __ATOMIC_RELEASE);
	}
	trace->header->counters_missed++;
	return last;
}

static inline struct baton_trace_counter *
find_counter(struct batoni_trace *trace, unsigned kind, int peer, int tag,
             int context)
{
	uint32_t at = hash((uint64_t)(uint32_t)peer << 32 ^ (uint32_t)tag ^
	                   (uint64_t)kind << 24 ^ (uint64_t)(uint32_t)context << 48);
	struct baton_trace_counter *counter;

	for (unsigned tries = 0; tries < 64; tries++, at++) {
		/* All but the last entry. */
		counter = &trace->counters[at % (BATONI_TRACE_COUNTERS - 1)];
		if (likely(counter->used &&
		           is_counter(counter, kind, peer, tag, context)))
			return counter;
		if (counter->used)
			continue;
		counter->peer = peer;
		counter->tag = tag;
		counter->context = (int16_t)context;
		counter->kind = (uint8_t)kind;
		__atomic_store_n(&counter->used, 1, __ATOMIC_RELEASE);
		return counter;
	}
	return find_full(trace);
}

static inline void
count_message(struct batoni_trace *trace, const struct batoni_op *op,
              struct batoni_traced *traced)
{
	traced->counted = true;
	traced->counter = find_counter(trace, op->kind, op->transfer.peer,
	                               op->transfer.tag, -1);
	traced->counter->called++;
}

/* n: of units that find_units has found. */
static void
count_units(struct batoni_trace *trace, const struct batoni_op *op,
            struct batoni_traced *traced, const struct batoni_units *units,
            size_t n)
{
	const struct batoni_units none = {op->transfer.peer, -1, -1, 0};
	struct baton_trace_counter *counter;

	if (BATONI_MESSAGES >> op->kind & 1u) {
		count_message(trace, op, traced);
		return;
	}
	traced->counted = true;
	traced->counter = NULL;
	if (!batoni_is_transfer(op))
		return;
	if (n == 0)
		units = &none;
	counter = find_counter(trace, op->kind, units->peer, units->signal_index,
	                       units->context);
	traced->counter = counter;
	counter->called++;
	if (op->kind != BATON_OPERATION_WAIT_COUNT)
		counter->signals += units->units;
	else if (units->units > counter->signals)
		counter->signals = units->units;
}

/* What was handed; its slot may have gone to another operation long ago. */
static void
count_called(struct batoni_trace *trace, const struct batoni_op *op,
             struct batoni_traced *traced, bool ended)
{
	struct batoni_units units[BATONI_TRACE_TERMS_MAX + 1];

	count_units(trace, op, traced, units, find_units(op, ended, units));
}

/* ---- a slot for an operation ---- */

/* A function may run already: pairs with note_run. */
static inline void
set_serial(const struct batoni_op *op, struct batoni_traced *traced,
           struct baton_trace_operation *slot, uint64_t serial)
{
	uint64_t ran;

	if (likely(!batoni_kind_of(op)->runs)) {
		atomic_store_explicit(&traced->serial, serial,
		                      memory_order_relaxed);
		return;
	}
	atomic_store(&traced->serial, serial);
	ran = atomic_load(&traced->ran);
	if (ran)
		batoni_set(slot->armed, ran);
}

/* shared: the enqueuer; else the driver, which counts it too. */
static void
give_slot(struct batoni_trace *trace, const struct batoni_op *op,
          struct batoni_traced *traced, bool shared, bool ended)
{
	struct batoni_units units[BATONI_TRACE_TERMS_MAX + 1];
	size_t n = find_units(op, ended, units);
	struct baton_trace_operation *slot;
	uint64_t serial;

	if (batoni_kind_of(op)->off_stream) {
		(void)serial_of_parent(trace, op);
		return;
	}
	serial = shared || n > 1 ? take_serials(trace, n > 1 ? n : 1)
	                         : take_serial(trace);
	slot = open_slot(trace, serial);
	fill_slot(trace, op, traced, flags_of(op, traced->direct), slot);
	if (batoni_is_transfer(op))
		fill_transfer(op, slot);
	else
		slot->stream = (uintptr_t)op->transfer.stream;
	if (batoni_is_transfer(op) || op->kind == BATON_OPERATION_RECORD)
		slot->user_data = op->user_data;
	name_parent(trace, op, slot);
	if (unlikely(batoni_op_list(op)))
		slot->flags |= BATON_TRACE_TENSORS;
	if (n > 0)
		name_units(slot, &units[0]);
	if (n > 1)
		slot->flags |= BATON_TRACE_TERMS;
	if (n > BATONI_TRACE_TERMS_MAX)
		slot->flags |= BATON_TRACE_TERMS_CUT;
	close_slot(slot, serial);
	set_serial(op, traced, slot, serial);
	add_terms(trace, op, traced, serial, units, n);
	if (!shared)
		count_units(trace, op, traced, units, n);
}

/* A receive from any rank, or of any tag, has met a message of this one. */
static void
count_moved(struct batoni_trace *trace, const struct batoni_op *op,
            struct batoni_traced *traced)
{
	if (op->kind != BATON_OPERATION_RECV || traced->counter->used == 2 ||
	    op->transfer.peer < 0 || op->transfer.tag < 0)
		return;
	traced->counter->moved++;
	count_message(trace, op, traced);
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

/* ---- what is observed ---- */

/* A message that its call issues. */
static inline void
begin_message(struct batoni_trace *trace, const struct batoni_op *op,
              struct batoni_traced *traced)
{
	uint64_t serial = take_serial(trace);
	struct baton_trace_operation *slot = open_slot(trace, serial);

	fill_slot(trace, op, traced, flags_of(op, traced->direct), slot);
	fill_transfer(op, slot);
	slot->state = BATON_STATE_ISSUED;
	slot->armed = slot->issued = traced->enqueued;
	slot->user_data = op->user_data;
	close_slot(slot, serial);
	atomic_store_explicit(&traced->serial, serial, memory_order_relaxed);
	/* What the next one writes. */
	__builtin_prefetch(slot_at(trace, serial + 1), 1);
	__builtin_prefetch((char *)slot_at(trace, serial + 1) + 64, 1);
	count_message(trace, op, traced);
}

static inline void
begin_other(struct batoni_traced *traced)
{
	atomic_store_explicit(&traced->serial, 0, memory_order_relaxed);
	atomic_store_explicit(&traced->ran, 0, memory_order_relaxed);
}

static void
begun(void *context, const struct batoni_op *op, unsigned state, const void *site)
{
	struct batoni_trace *trace = op->comm->trace;
	struct batoni_traced *traced;

	(void)context;
	if (op->flags & BATONI_FLAG_LOCAL)
		return;
	traced = traced_of(op);
	traced->enqueued = batoni_ticks();
	traced->site = site;
	traced->counted = false;
	traced->direct = state == BATONI_ISSUED;
	if (likely(traced->direct && (BATONI_MESSAGES >> op->kind & 1u) &&
	           !(op->flags & BATONI_FLAG_PLANNED)))
		begin_message(trace, op, traced);
	else
		begin_other(traced);
}

/* What ends without a completion: a group's record, or a member of a void one. */
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

/* Short ones that their calls end: at their beginning. */
static inline uint64_t
end_stamp(const struct batoni_op *op, const struct batoni_traced *traced)
{
	return likely(traced->direct) &&
	                       op->transfer.done_bytes < BATONI_TRACE_SHORT
	               ? traced->enqueued
	               : batoni_ticks();
}

static void
note_end(struct batoni_trace *trace, const struct batoni_op *op,
         struct batoni_traced *traced)
{
	struct baton_trace_operation *slot = slot_of(trace, traced);
	uint64_t now = end_stamp(op, traced);
	int status = status_of(op);

	count_ended(trace, op, traced, status);
	if (likely(slot)) {
		slot->completed = now;
		slot->state = BATON_STATE_ENDED;
		slot->status = (int8_t)status;
		if (batoni_is_transfer(op)) {
			slot->done_bytes = op->transfer.done_bytes;
			slot->path = op->path;
			name_met(op, slot);
			if (unlikely(batoni_op_list(op)))
				slot->flags |= BATON_TRACE_TENSORS;
		}
	}
	if (unlikely(status != BATON_OK))
		batoni_trace_file_note_fault(trace, op->comm);
	if (unlikely(now - trace->read > trace->every))
		batoni_trace_file_read_clocks(trace);
}

static void
note_move(struct baton_trace_operation *slot, const struct batoni_op *op,
          unsigned state)
{
	switch ((enum batoni_op_state)state) {
	case BATONI_QUEUED:
		slot->state = BATON_STATE_QUEUED;
		break;
	case BATONI_ARMED:
		slot->armed = batoni_ticks();
		if (op->flags & BATONI_FLAG_STREAM_ISSUED)
			break;
		/* A receive from any rank, which its call did not issue. */
		slot->issued = 0;
		slot->state = BATON_STATE_ARMED;
		break;
	case BATONI_ISSUED:
		slot->issued = batoni_ticks();
		slot->state = BATON_STATE_ISSUED;
		slot->path = op->path;
		name_met(op, slot);
		break;
	case BATONI_NEW:
	case BATONI_ENDED:
		break;
	}
}

static enum baton_status
moved(void *context, const struct batoni_op *op, unsigned state)
{
	struct batoni_trace *trace = op->comm->trace;
	const bool ended = state == BATONI_ENDED;
	struct baton_trace_operation *slot;
	struct batoni_traced *traced;

	(void)context;
	if (op->flags & BATONI_FLAG_LOCAL)
		return BATON_OK;
	traced = traced_of(op);
	if (unlikely(!atomic_load_explicit(&traced->serial, memory_order_relaxed)))
		give_slot(trace, op, traced, false, ended);
	if (unlikely(!traced->counted))
		count_called(trace, op, traced, ended);
	if (ended) {
		note_end(trace, op, traced);
		return BATON_OK;
	}
	/* It did not end in its call. */
	traced->direct = false;
	slot = slot_of(trace, traced);
	if (slot)
		note_move(slot, op, state);
	return BATON_OK;
}

/* To the inbox; or what its call has issued is on its way. */
static void
handed(struct batoni_trace *trace, const struct batoni_op *op)
{
	struct batoni_traced *traced = traced_of(op);
	const bool shared = op->state == BATONI_NEW;
	struct baton_trace_operation *slot;

	if (!atomic_load_explicit(&traced->serial, memory_order_relaxed))
		give_slot(trace, op, traced, shared, false);
	if (shared)
		return;
	if (!traced->counted)
		count_called(trace, op, traced, false);
	slot = slot_of(trace, traced);
	if (slot && op->state == BATONI_ISSUED) {
		slot->armed = slot->issued = traced->enqueued;
		slot->state = BATON_STATE_ISSUED;
	}
	if (slot && unlikely(batoni_op_list(op)))
		slot->flags |= BATON_TRACE_TENSORS;
	traced->direct = false;
}

/* A thread of the stream, which may come to the function before it has its slot: see set_serial. */
static void
note_run(const struct batoni_trace *trace, struct batoni_traced *traced)
{
	const uint64_t now = batoni_ticks();
	struct baton_trace_operation *slot;

	/* Dekker's pattern: store the stamp, then load the serial; set_serial stores the serial, then loads
	 * the stamp. */
	atomic_store(&traced->ran, now);
	if (atomic_load(&traced->serial) == 0)
		return;
	slot = slot_of(trace, traced);
	if (slot)
		batoni_set(slot->armed, now);
}

static void
event(void *context, const struct batoni_op *op, enum batoni_event what)
{
	struct batoni_trace *trace = op->comm->trace;
	struct baton_trace_operation *slot;

	(void)context;
	if (batoni_get(op->flags) & BATONI_FLAG_LOCAL)
		return;
	if (what == BATONI_EVENT_HANDED) {
		handed(trace, op);
		return;
	}
	if (what == BATONI_EVENT_RUNS) {
		note_run(trace, traced_of(op));
		return;
	}
	slot = slot_of(trace, traced_of(op));
	if (slot) {
		slot->state = BATON_STATE_LENT;
		slot->flags |= BATON_TRACE_LENT;
	}
}

const struct batoni_observer batoni_trace_observes = {
	.moved = moved,
	.fast = true,
	.begun = begun,
	.event = event,
};
