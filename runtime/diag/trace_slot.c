/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots of the ring, and counters, for all operations but messages that their calls issue (trace.c has those).
 *
 * The ring has one writer, the driver: so the driver may check whether a slot still has its operation, and then write.
 * An enqueuer that hands an operation to another driver reserves its serials, and writes what the call said
 * to the operation's entry in the table `handed`, which is the enqueuer's until then.  The driver writes the slot
 * anew from the operation, and frees the entry.
 *
 * The thread of a stream notes that a function has begun, and may be faster than enqueuer and driver: it writes the
 * stamp to that entry too (`ran`), so the entry stays until the function ends.
 *
 * Groups and launches of plans are parents, and enter the ring as soon as one of their operations does.
 * Their thread may still be adding to them, so it and the driver may both want to reserve the
 * parent's serial: the one that sets `serial` first has reserved it.  The driver alone gives the parent its slot.
 *
 * Counters are the driver's: a table hashed by kind, peer, tag or signal, and context.  An operation is counted when it
 * gets its slot.  A message that a probe finds counts as a receive that is called, since it is matched from then on.
 * So its receive, which takes its counter over, does not count as called.
 */
#include "trace_slot.h"

#include <stddef.h>
#include <string.h>

#include "claim.h"
#include "kind.h"
#include "ticks.h"
#include "trace.h"

/* ---- counters ---- */

static uint32_t
hash(uint64_t key)
{
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* The table is full here: the last entry counts all operations that find no other. */
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

static struct baton_trace_counter *
find_counter(struct batoni_trace *trace, unsigned kind, int peer, int tag,
             int context)
{
	uint32_t at = hash((uint64_t)(uint32_t)peer << 32 ^ (uint32_t)tag ^
	                   (uint64_t)kind << 24 ^ (uint64_t)(uint32_t)context << 48);
	struct baton_trace_counter *counter;

	for (unsigned tries = 0; tries < 64; tries++, at++) {
		/* The last entry is find_full's. */
		counter = &trace->counters[at % (BATONI_TRACE_COUNTERS - 1)];
		if (counter->used &&
		    batoni_trace_counts(counter, kind, peer, tag, context))
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

struct baton_trace_counter *
batoni_trace_counter(struct batoni_trace *trace, unsigned kind, int peer, int tag,
                     int context)
{
	struct baton_trace_counter **recent =
		&trace->recent[batoni_trace_recent(kind, peer, tag)];

	if (!batoni_trace_counts(*recent, kind, peer, tag, context))
		*recent = find_counter(trace, kind, peer, tag, context);
	return *recent;
}

void
batoni_trace_count_message(struct batoni_trace *trace, const struct batoni_op *op,
                           struct batoni_traced *traced)
{
	traced->counter = batoni_trace_counter(trace, op->kind, op->transfer.peer,
	                                       op->transfer.tag, -1);
	traced->counter->called++;
}

/* Count a receive of a message that a probe has found.  The message was counted then; if an earlier receive of it has
 * ended without it, and taken its counter, this one is counted anew. */
static void
count_claimed(struct batoni_trace *trace, const struct batoni_op *op,
              struct batoni_traced *traced)
{
	struct batoni_traced *claim = batoni_traced_of(batoni_claim_of(op));

	if (!claim->counter) {
		batoni_trace_count_message(trace, op, traced);
		return;
	}
	traced->counter = claim->counter;
	claim->counter = NULL;
}

/* n: the number of units that find_units has found. */
static void
count_units(struct batoni_trace *trace, const struct batoni_op *op,
            struct batoni_traced *traced, const struct batoni_units *units,
            size_t n)
{
	const struct batoni_units none = {op->transfer.peer, -1, -1, 0};
	struct baton_trace_counter *counter;

	traced->counter = NULL;
	if (!batoni_is_transfer(op))
		return;
	if (n == 0)
		units = &none;
	counter = batoni_trace_counter(trace, op->kind, units->peer,
	                               units->signal_index, units->context);
	traced->counter = counter;
	counter->called++;
	if (op->kind != BATON_OPERATION_WAIT_COUNT)
		counter->signals += units->units;
	else if (units->units > counter->signals)
		counter->signals = units->units;
}

/* ---- call sites ---- */

/* Write the call site; its module, if it is in one, becomes trace->module. */
static void
name_site(struct batoni_trace *trace, const void *site,
          struct baton_trace_operation *slot)
{
	struct batoni_trace_module *recent = &trace->module;
	const struct baton_trace_module *found;

	if (likely((uintptr_t)site - recent->begin < recent->bytes)) {
		slot->module = recent->number;
		slot->offset = (uintptr_t)site - recent->base;
		return;
	}
	slot->module = batoni_trace_module(trace, site, &slot->offset);
	if (slot->module == 0)
		return;
	found = &trace->modules[slot->module - 1];
	*recent = (struct batoni_trace_module){.begin = found->begin,
	                                       .bytes = found->end - found->begin,
	                                       .base = found->base,
	                                       .number = slot->module};
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

/* ---- slots ---- */

/* Take n consecutive serials, and return the first.  Any thread. */
static uint64_t
take_serials(struct batoni_trace *trace, uint64_t n)
{
	return __atomic_fetch_add(&trace->header->serials, n, __ATOMIC_RELAXED) +
	       1;
}

/* Take one serial.  The driver, which takes several at once. */
static uint64_t
take_serial(struct batoni_trace *trace)
{
	if (trace->next == trace->taken) {
		trace->next = take_serials(trace, BATONI_TRACE_BLOCK);
		trace->taken = trace->next + BATONI_TRACE_BLOCK;
	}
	return trace->next++;
}

/* The driver drops the serials that it has taken if other threads have taken half a ring since: their slots would
 * soon be overwritten. */
static void
note_serial(struct batoni_trace *trace, uint64_t serial)
{
	if (serial > trace->taken && serial - trace->taken > trace->mask / 2)
		trace->next = trace->taken;
}

/* Open the slot of this serial.  NULL: a later operation has it. */
static struct baton_trace_operation *
open_ring(struct batoni_trace *trace, uint64_t serial)
{
	struct baton_trace_operation *slot = batoni_trace_slot_at(trace, serial);

	if (unlikely(slot->serial > serial))
		return NULL;
	batoni_trace_open_slot(slot);
	return slot;
}

uint64_t
batoni_trace_serial(const struct batoni_op *op)
{
	return op->comm->trace ? atomic_load_explicit(&batoni_traced_of(op)->serial,
	                                              memory_order_relaxed)
	                       : 0;
}

/* Write what every operation has, but its call site. */
static void
fill_slot(struct baton_trace_operation *slot, const struct batoni_op *op,
          const struct batoni_traced *traced)
{
	const bool transfer = batoni_is_transfer(op);
	const bool message = BATONI_MESSAGES >> op->kind & 1u;
	unsigned flags = batoni_trace_flags(op, traced->direct);

	if (op->kind == BATON_OPERATION_RECV && op->transfer.peer < 0)
		flags |= BATON_TRACE_ANY_SOURCE;
	if (unlikely(batoni_op_list(op)))
		flags |= BATON_TRACE_TENSORS;
	if (unlikely(batoni_claim_has(op)))
		flags |= BATON_TRACE_FOUND;
	if (unlikely(batoni_kind_of(op)->joins) && op->transfer.bytes != 0)
		flags |= BATON_TRACE_JOINED;
	batoni_trace_fill(slot, op, traced->enqueued, 0, BATON_STATE_CALLED, flags);
	if (unlikely(flags & BATON_TRACE_FOUND))
		slot->signals = atomic_load_explicit(
			&batoni_traced_of(batoni_claim_of(op))->serial,
			memory_order_relaxed);
	if (unlikely(flags & BATON_TRACE_JOINED))
		slot->signals = op->transfer.bytes;
	slot->path = transfer ? op->path : UINT8_MAX;
	slot->bytes = transfer ? op->transfer.bytes : 0;
	slot->peer = transfer ? op->transfer.peer : -1;
	slot->tag = message ? op->transfer.tag : -1;
	slot->user_data = transfer || op->kind == BATON_OPERATION_RECORD ||
	                                  flags & BATON_TRACE_JOINED
	                          ? op->user_data
	                          : 0;
}

/* Fill the slots of further units, whose serials follow the operation's own. */
static void
add_terms(struct batoni_trace *trace, const struct batoni_op *op,
          const struct batoni_traced *traced, uint64_t serial,
          const struct batoni_units units[], size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct baton_trace_operation *slot = open_ring(trace, serial + i);

		if (!slot)
			continue;
		fill_slot(slot, op, traced);
		slot->flags = BATON_TRACE_TERM;
		slot->path = UINT8_MAX;
		slot->module = 0;
		slot->offset = slot->bytes = slot->stream = slot->user_data = 0;
		name_units(slot, &units[i]);
		slot->parent = serial;
		batoni_trace_close_slot(slot, serial + i);
	}
}

/* ---- parents ---- */

/* The parent's serial, reserved by this call if it has none yet.  Any thread. */
static uint64_t
reserve_parent(struct batoni_trace *trace, const struct batoni_op *parent)
{
	struct batoni_traced *traced = batoni_traced_of(parent);
	uint64_t serial = 0, mine;

	if (atomic_load(&traced->serial))
		return atomic_load(&traced->serial);
	mine = take_serials(trace, 1);
	return atomic_compare_exchange_strong(&traced->serial, &serial, mine)
	               ? mine
	               : serial;
}

/* Write what does not change while the parent's thread still adds operations. */
static void
fill_parent(struct baton_trace_operation *slot, const struct batoni_op *parent,
            const struct batoni_traced *traced)
{
	batoni_trace_fill(slot, parent, traced->enqueued, 0, BATON_STATE_CALLED, 0);
	slot->path = UINT8_MAX;
	slot->bytes = slot->stream = 0;
	slot->peer = slot->tag = -1;
	slot->user_data = batoni_kind_of(parent)->launch ? parent->user_data : 0;
}

/* Give the parent its slot, if it has none, and return its serial.  The driver. */
static uint64_t
place_parent(struct batoni_trace *trace, const struct batoni_op *parent)
{
	struct batoni_traced *traced = batoni_traced_of(parent);
	uint64_t serial = reserve_parent(trace, parent);
	struct baton_trace_operation *slot;

	if (traced->placed)
		return serial;
	traced->placed = true;
	traced->counter = NULL;
	slot = open_ring(trace, serial);
	if (slot) {
		fill_parent(slot, parent, traced);
		name_site(trace, traced->site, slot);
		batoni_trace_close_slot(slot, serial);
	}
	return serial;
}

/* Write the serial of the operation's group, or of its launch. */
static void
name_parent(struct batoni_trace *trace, const struct batoni_op *op,
            struct baton_trace_operation *slot,
            uint64_t (*serial_of)(struct batoni_trace *trace,
                                  const struct batoni_op *parent))
{
	const struct batoni_op *parent = batoni_op_group(op);

	if (unlikely(batoni_get(op->flags) & BATONI_FLAG_PLANNED)) {
		slot->user_data = batoni_launch_of(op)->user_data;
		slot->parent = serial_of(trace, batoni_launch_of(op));
	}
	if (likely(!parent))
		return;
	slot->flags |= BATON_TRACE_GROUPED;
	slot->parent = serial_of(trace, parent);
}

/* ---- a slot for an operation ---- */

static void
mark_terms(struct baton_trace_operation *slot, const struct batoni_units units[],
           size_t n)
{
	if (n > 0)
		name_units(slot, &units[0]);
	if (n > 1)
		slot->flags |= BATON_TRACE_TERMS;
	if (n > BATONI_TRACE_TERMS_MAX)
		slot->flags |= BATON_TRACE_TERMS_CUT;
}

/* Write the entry of a function that was not handed, as its enqueuer would have: all but when it began to run. */
static void
copy_function(const struct batoni_trace *trace, const struct batoni_op *op,
              struct baton_trace_operation *entry)
{
	const struct baton_trace_operation *slot =
		batoni_trace_slot_of(trace, batoni_traced_of(op));

	if (!slot)
		return;
	memcpy((char *)entry + sizeof(entry->serial),
	       (const char *)slot + sizeof(slot->serial),
	       offsetof(struct baton_trace_operation, ran) - sizeof(slot->serial));
	batoni_trace_close_slot(entry, slot->serial);
}

/* The driver has the operation now, and frees its entry.  A function's entry stays until the function ends, since its
 * stream's thread writes there. */
static void
take_over(struct batoni_trace *trace, const struct batoni_op *op)
{
	struct baton_trace_operation *entry =
		&trace->handed[batoni_pool_slot(&op->comm->pool, op)];

	if (unlikely(batoni_kind_of(op)->runs)) {
		if (entry->serial == 0)
			copy_function(trace, op, entry);
	} else if (entry->serial != 0) {
		batoni_trace_close_slot(entry, 0);
	}
}

void
batoni_trace_adopt(struct batoni_trace *trace, const struct batoni_op *parent)
{
	take_over(trace, parent);
}

void
batoni_trace_place(struct batoni_trace *trace, const struct batoni_op *op,
                   struct batoni_traced *traced, bool ended)
{
	struct batoni_units units[BATONI_TRACE_TERMS_MAX + 1];
	uint64_t serial = atomic_load_explicit(&traced->serial,
	                                       memory_order_relaxed);
	struct baton_trace_operation *slot;
	size_t n;

	if (batoni_kind_of(op)->off_stream) {
		place_parent(trace, op);
		take_over(trace, op);
		return;
	}
	n = find_units(op, ended, units);
	if (serial == 0)
		serial = n > 1 ? take_serials(trace, n) : take_serial(trace);
	note_serial(trace, serial);
	slot = open_ring(trace, serial);
	if (likely(slot)) {
		fill_slot(slot, op, traced);
		name_site(trace, traced->site, slot);
		name_parent(trace, op, slot, place_parent);
		mark_terms(slot, units, n);
		batoni_trace_close_slot(slot, serial);
	}
	atomic_store_explicit(&traced->serial, serial, memory_order_relaxed);
	traced->placed = true;
	take_over(trace, op);
	add_terms(trace, op, traced, serial, units, n);
	if (unlikely(batoni_claim_has(op)))
		count_claimed(trace, op, traced);
	else if (BATONI_MESSAGES >> op->kind & 1u)
		batoni_trace_count_message(trace, op, traced);
	else
		count_units(trace, op, traced, units, n);
}

void
batoni_trace_stage(struct batoni_trace *trace, const struct batoni_op *op,
                   struct batoni_traced *traced)
{
	struct batoni_units units[BATONI_TRACE_TERMS_MAX + 1];
	size_t n = find_units(op, false, units);
	struct baton_trace_operation *entry =
		&trace->handed[batoni_pool_slot(&op->comm->pool, op)];
	uint64_t serial;

	if (batoni_kind_of(op)->off_stream) {
		serial = reserve_parent(trace, op);
		fill_parent(entry, op, traced);
	} else {
		serial = take_serials(trace, n > 1 ? n : 1);
		atomic_store_explicit(&traced->serial, serial,
		                      memory_order_relaxed);
		fill_slot(entry, op, traced);
		name_parent(trace, op, entry, reserve_parent);
		mark_terms(entry, units, n);
	}
	entry->module = batoni_trace_module(trace, traced->site, &entry->offset);
	/* A function's call has cleared `ran`, and its stream's thread may have written it since. */
	if (!batoni_kind_of(op)->runs)
		entry->ran = 0;
	batoni_trace_close_slot(entry, serial);
}

/* ---- messages that probes have found ---- */

void
batoni_trace_find(struct batoni_trace *trace, const struct batoni_op *claim)
{
	struct batoni_traced *traced = batoni_traced_of(claim);
	uint64_t now = batoni_ticks(), serial = take_serial(trace);
	struct baton_trace_operation *slot;

	traced->placed = true;
	traced->direct = traced->plain = false;
	traced->counter = batoni_trace_counter(trace, BATON_OPERATION_RECV,
	                                       claim->transfer.peer,
	                                       claim->transfer.tag, -1);
	traced->counter->called++;
	atomic_store_explicit(&traced->serial, serial, memory_order_relaxed);
	slot = open_ring(trace, serial);
	if (unlikely(!slot))
		return;
	batoni_trace_fill(slot, claim, now, now, BATON_STATE_ISSUED, 0);
	slot->path = claim->path;
	slot->bytes = claim->transfer.bytes;
	slot->peer = claim->transfer.peer;
	slot->tag = claim->transfer.tag;
	slot->user_data = 0;
	name_site(trace, batoni_thread.site, slot);
	batoni_trace_close_slot(slot, serial);
}

void
batoni_trace_spend(struct batoni_trace *trace, const struct batoni_op *claim)
{
	struct batoni_traced *traced = batoni_traced_of(claim);
	struct baton_trace_operation *slot = batoni_trace_slot_of(trace, traced);

	/* The message is discarded, and there is no receive to count that. */
	if (traced->counter)
		traced->counter->failed++;
	if (!slot)
		return;
	slot->completed = batoni_ticks();
	slot->state = BATON_STATE_ENDED;
	slot->status = claim->status;
}
