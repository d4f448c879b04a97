/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots and counters of a trace (trace_slot.c): what trace.c needs of them for each message, inline.
 */
#ifndef BATONI_TRACE_SLOT_H
#define BATONI_TRACE_SLOT_H

#include "baton_trace.h"
#include "core.h"
#include "trace_file.h"

/* ---- trace_slot.c ---- */

/* Give the operation its slot of the ring, and count it; once.  ended: the operation ends now.  The driver. */
void batoni_trace_place(struct batoni_trace *trace, const struct batoni_op *op,
                        struct batoni_traced *traced, bool ended);
/* A group or launch moves that has got its slot already, with one of its operations: free its entry of `handed`, if
 * its enqueuer has written one since.  The driver. */
void batoni_trace_adopt(struct batoni_trace *trace, const struct batoni_op *parent);
/* Write the entry of an operation that the driver has not seen yet.  The enqueuer, before it hands it over. */
void batoni_trace_stage(struct batoni_trace *trace, const struct batoni_op *op,
                        struct batoni_traced *traced);
/* A probe tells the program of a message, which gets a slot, and counts as a receive that is called.  spend: the
 * message is received, or discarded.  The driver. */
void batoni_trace_find(struct batoni_trace *trace, const struct batoni_op *claim);
void batoni_trace_spend(struct batoni_trace *trace, const struct batoni_op *claim);
/* Find the counter, or make it.  The driver. */
struct baton_trace_counter *
batoni_trace_counter(struct batoni_trace *trace, unsigned kind, int peer, int tag,
                     int context);
/* Count a message as called, with the rank and tag that it names now.  The driver. */
void batoni_trace_count_message(struct batoni_trace *trace,
                                const struct batoni_op *op,
                                struct batoni_traced *traced);

/* ---- slots ---- */

static inline struct batoni_traced *
batoni_traced_of(const struct batoni_op *op)
{
	const struct baton_comm *comm = op->comm;

	return &comm->trace->traced[batoni_pool_slot(&comm->pool, op)];
}

static inline struct baton_trace_operation *
batoni_trace_slot_at(const struct batoni_trace *trace, uint64_t serial)
{
	return &trace->ring[(serial - 1) & trace->mask];
}

/* The operation's slot; NULL: a later one has it.  The driver. */
static inline struct baton_trace_operation *
batoni_trace_slot_of(const struct batoni_trace *trace,
                     const struct batoni_traced *traced)
{
	uint64_t serial = atomic_load_explicit(&traced->serial,
	                                       memory_order_relaxed);
	struct baton_trace_operation *slot = batoni_trace_slot_at(trace, serial);

	return likely(slot->serial == serial) ? slot : NULL;
}

/* From here on readers take the slot for empty. */
static inline void
batoni_trace_open_slot(struct baton_trace_operation *slot)
{
	__atomic_store_n(&slot->serial, 0, __ATOMIC_RELAXED);
	batoni_fence(memory_order_release);
}

static inline void
batoni_trace_close_slot(struct baton_trace_operation *slot, uint64_t serial)
{
	__atomic_store_n(&slot->serial, serial, __ATOMIC_RELEASE);
}

/* ---- what is in a slot ---- */

static inline unsigned
batoni_trace_flags(const struct batoni_op *op, bool direct)
{
	/* The stream may reach the operation, and the driver note that, while its enqueuer still hands it. */
	const unsigned said = batoni_get(op->flags);
	unsigned flags = direct ? BATON_TRACE_DIRECT : 0;

	if (said & BATONI_FLAG_DETACHED)
		flags |= BATON_TRACE_DETACHED;
	if (unlikely(said & (BATONI_FLAG_STREAM_ISSUED | BATONI_FLAG_PLANNED))) {
		flags |= said & BATONI_FLAG_STREAM_ISSUED
		                 ? BATON_TRACE_STREAM_ISSUED
		                 : 0;
		flags |= said & BATONI_FLAG_PLANNED ? BATON_TRACE_PLANNED : 0;
	}
	return flags;
}

/* Write all but the serial, the call site, and what names the other side.  at: when the operation was armed and
 * issued; 0: it was not. */
static inline void
batoni_trace_fill(struct baton_trace_operation *slot, const struct batoni_op *op,
                  uint64_t enqueued, uint64_t at, enum baton_request_state state,
                  unsigned flags)
{
	slot->enqueued = enqueued;
	slot->armed = at;
	slot->issued = at;
	slot->completed = 0;
	slot->done_bytes = 0;
	slot->state = (uint8_t)state;
	slot->kind = op->kind;
	slot->status = BATON_PENDING;
	slot->flags = (uint16_t)flags;
	slot->stream = (uintptr_t)op->transfer.stream;
	slot->parent = 0;
	slot->signals = 0;
	slot->signal = slot->context = -1;
}

/* ---- counters; the driver ---- */

static inline unsigned
batoni_trace_recent(unsigned kind, int peer, int tag)
{
	return ((unsigned)peer ^ (unsigned)tag << 1 ^ kind) % BATONI_TRACE_RECENT;
}

static inline bool
batoni_trace_counts(const struct baton_trace_counter *counter, unsigned kind,
                    int peer, int tag, int context)
{
	return counter->peer == peer && counter->tag == tag &&
	       counter->kind == kind && counter->context == context;
}

#endif
