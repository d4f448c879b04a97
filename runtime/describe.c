/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations in words.  Any thread that holds the record may ask: what does not
 * change is read plainly, the state by an acquiring load (op.h).
 */
#include "describe.h"

#include <stdio.h>
#include <string.h>

static void
describe_transfer(const struct batoni_op *op, char *text, size_t size)
{
	const struct batoni_transfer *t = &op->transfer;

	if (op->kind == BATONI_KIND_WAIT && t->peer < 0)
		snprintf(text, size, "wait_signal of several peers");
	else if (op->kind == BATONI_KIND_WAIT)
		snprintf(text, size, "wait_signal of peer %d", t->peer);
	else if (op->kind == BATONI_KIND_SIGNAL)
		snprintf(text, size, "signal to peer %d, context %d", t->peer,
		         t->tag);
	else if (op->kind == BATONI_KIND_PUT)
		snprintf(text, size,
		         "put_signal to peer %d, context %d, %zu bytes", t->peer,
		         t->tag, t->bytes);
	else
		snprintf(text, size, "%s peer %d, tag %d, %zu bytes",
		         op->kind == BATONI_KIND_SEND ? "send to" : "recv from",
		         t->peer, t->tag, t->bytes);
}

void
batoni_op_describe(const struct batoni_op *op, char *text, size_t size)
{
	switch ((enum batoni_op_kind)op->kind) {
	case BATONI_KIND_SEND:
	case BATONI_KIND_RECV:
	case BATONI_KIND_SIGNAL:
	case BATONI_KIND_PUT:
	case BATONI_KIND_WAIT:
		describe_transfer(op, text, size);
		break;
	case BATONI_KIND_RECORD:
		snprintf(text, size, "%s",
		         op->flags & BATONI_FLAG_LOCAL
		                 ? "baton_stream_synchronize"
		                 : "record");
		break;
	case BATONI_KIND_LAUNCH:
		snprintf(text, size, "launched function");
		break;
	case BATONI_KIND_JOIN:
		snprintf(text, size, "baton_stream_wait");
		break;
	case BATONI_KIND_GROUP:
		snprintf(text, size, "group of %u operations",
		         op->group.members);
		break;
	}
}

static const char *
describe_issued(const struct batoni_op *op)
{
	switch ((enum batoni_direction)op->transfer.direction) {
	case BATONI_SEND:
	case BATONI_RECV:
		return "issued, waits for the peer";
	case BATONI_PUT:
		return "issued, on its way";
	case BATONI_WAIT:
		return "issued, waits for signals";
	}
	return "issued";
}

static const char *
describe_state(const struct batoni_op *op)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_acquire);
	uint8_t state = __atomic_load_n(&op->state, __ATOMIC_ACQUIRE);
	bool group = op->kind == BATONI_KIND_GROUP;

	if (word & BATONI_OP_LENT)
		return "ended, but the transport still has its buffer";
	switch ((enum batoni_op_state)state) {
	case BATONI_NEW:
		return group ? "begun by a thread that has not ended it"
		             : "enqueued, not looked at yet";
	case BATONI_QUEUED:
		return op->group_of ? "waits for the end of its group, and its "
		                      "streams"
		       : group      ? "waits for its streams or members"
		       : batoni_get(op->kind) == BATONI_KIND_LAUNCH
			       ? "its stream has not reached it, or its function "
			         "has not returned"
		                    : "waits for what is before it on its stream";
	case BATONI_ARMED:
		return "armed, waits for those before it of its peer and tag";
	case BATONI_ISSUED:
		return describe_issued(op);
	case BATONI_ENDED:
		return word & BATONI_OP_STREAM
		               ? "ended, its stream has not passed it"
		       : word & BATONI_OP_JOINS
		               ? "ended, a stream that waits for it has not gone "
		                 "on"
		               : "ended";
	}
	return "";
}

uint32_t
batoni_op_age_ms(const struct batoni_op *op)
{
	batoni_tick();
	return atomic_load_explicit(&batoni_engine.clock_ms,
	                            memory_order_relaxed) -
	       op->item.note;
}

void
batoni_op_describe_fully(const struct batoni_op *op, char *text, size_t size)
{
	uint32_t age_ms = batoni_op_age_ms(op);
	char what[BATONI_DESCRIBE_BYTES / 2], where[40] = "";

	batoni_op_describe(op, what, sizeof(what));
	if (op->kind != BATONI_KIND_GROUP && !op->transfer.stream)
		snprintf(where, sizeof(where), " on the default stream,");
	else if (op->kind != BATONI_KIND_GROUP)
		snprintf(where, sizeof(where), " on stream %p,",
		         (void *)op->transfer.stream);
	snprintf(text, size, "%s,%s %s, %u.%03u s old", what, where,
	         describe_state(op), age_ms / 1000, age_ms % 1000);
}
