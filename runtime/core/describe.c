/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations in words.  All words are made from a view, a copy of the record's fields, so
 * that a dump can use those of a record that it does not hold.
 */
#include "describe.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "log.h"
#include "plan.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* The word first, and each field by one load, since a dump may read beside the threads that
 * write. */
__attribute__((no_sanitize("thread"))) void
batoni_op_view(const struct batoni_op *op, struct batoni_view *view_p)
{
	struct batoni_view view = {.op = op};

	view.word = atomic_load_explicit(&op->word, memory_order_acquire);
	view.kind = LOAD(op->kind);
	view.state = batoni_op_state(op);
	view.flags = LOAD(op->flags);
	view.group_of = LOAD(op->group_of);
	view.placed_ms = LOAD(op->item.note);
	/* A group has its own fields where a transfer has these. */
	if (view.kind == BATONI_KIND_GROUP) {
		view.members = LOAD(op->group.members);
		view.ended = LOAD(op->group.ended);
		view.streams_left = LOAD(op->group.streams_left);
	} else {
		view.peer = LOAD(op->transfer.peer);
		view.tag = LOAD(op->transfer.tag);
		view.bytes = LOAD(op->transfer.bytes);
		view.stream = LOAD(op->transfer.stream);
		view.buffer = LOAD(op->transfer.buffer);
		view.place = LOAD(op->transfer.slot_direction);
	}
	if (view.kind == BATONI_KIND_PLAN) {
		view.members = LOAD(op->plan.members);
		view.ended = LOAD(op->plan.ended);
	}
	*view_p = view;
}

static bool
is_transfer(const struct batoni_view *view)
{
	return view->kind == BATONI_KIND_SEND ||
	       view->kind == BATONI_KIND_RECV ||
	       batoni_is_onesided_kind(view->kind);
}

const char *
batoni_kind_name(unsigned kind)
{
	switch ((enum batoni_op_kind)kind) {
	case BATONI_KIND_SEND:
		return "send";
	case BATONI_KIND_RECV:
		return "recv";
	case BATONI_KIND_RECORD:
		return "record";
	case BATONI_KIND_SIGNAL:
		return "signal";
	case BATONI_KIND_PUT:
		return "put_signal";
	case BATONI_KIND_WAIT:
		return "wait_signal";
	case BATONI_KIND_LAUNCH:
		return "launched function";
	case BATONI_KIND_PLAN:
		return "plan";
	case BATONI_KIND_JOIN:
		return "stream_wait";
	case BATONI_KIND_GROUP:
		return "group";
	}
	return "?";
}

/* The bytes of a receive of one say what its memory is worth, which is no message's length. */
static bool
is_list(const struct batoni_view *view)
{
	const struct batoni_transfer transfer = {.slot_direction = view->place};

	return transfer.place == BATONI_PLACE_LIST;
}

static void
transfer_what(const struct batoni_view *view, const char *details, char *text,
              size_t size)
{
	bool from = view->kind == BATONI_KIND_RECV ||
	            view->kind == BATONI_KIND_WAIT;
	bool message = view->kind == BATONI_KIND_SEND ||
	               view->kind == BATONI_KIND_RECV;
	char peer[32], place[24] = "", bytes[56] = "";

	snprintf(peer, sizeof(peer), "peer %d", view->peer);
	if (message)
		snprintf(place, sizeof(place), ", tag %d", view->tag);
	else if (!details && view->kind != BATONI_KIND_WAIT)
		snprintf(place, sizeof(place), ", context %d", view->tag);
	if (is_list(view) && from)
		snprintf(bytes, sizeof(bytes), ", a list of tensors");
	else if (message || view->kind == BATONI_KIND_PUT)
		snprintf(bytes, sizeof(bytes), ", %s%zu byte%s",
		         is_list(view) ? "a list of tensors, " : "",
		         view->bytes, batoni_s(view->bytes));
	snprintf(text, size, "%s %s %s%s%s%s%s", batoni_kind_name(view->kind),
	         from ? "from" : "to",
	         view->kind == BATONI_KIND_WAIT && view->peer < 0
	                 ? "several peers"
	                 : peer,
	         place, details ? ", " : "", details ? details : "", bytes);
}

void
batoni_view_what(const struct batoni_view *view, const char *details,
                 char *text, size_t size)
{
	if (is_transfer(view))
		transfer_what(view, details, text, size);
	else if (view->kind == BATONI_KIND_GROUP)
		snprintf(text, size, "group of %u operation%s", view->members,
		         batoni_s(view->members));
	else if (view->kind == BATONI_KIND_PLAN)
		snprintf(text, size, "launch of a plan of %u operation%s",
		         view->members, batoni_s(view->members));
	else if (view->kind == BATONI_KIND_RECORD &&
	         view->flags & BATONI_FLAG_LOCAL)
		snprintf(text, size, "stream_synchronize");
	else
		snprintf(text, size, "%s", batoni_kind_name(view->kind));
}

static const char *
issued_waits(const struct batoni_view *view)
{
	switch ((enum batoni_op_kind)view->kind) {
	case BATONI_KIND_SEND:
		return "the peer's receive, or its bytes to move";
	case BATONI_KIND_RECV:
		return "a message of that peer and tag, or its bytes to move";
	case BATONI_KIND_WAIT:
		return "signals";
	case BATONI_KIND_SIGNAL:
	case BATONI_KIND_PUT:
		return "its bytes to move, behind earlier puts to that peer in "
		       "that context";
	case BATONI_KIND_RECORD:
	case BATONI_KIND_PLAN:
	case BATONI_KIND_LAUNCH:
	case BATONI_KIND_JOIN:
	case BATONI_KIND_GROUP:
		break;
	}
	return "its end";
}

static const char *
new_waits(const struct batoni_view *view)
{
	if (view->group_of)
		return "the end of its group (baton_group_end)";
	if (view->kind == BATONI_KIND_GROUP)
		return "baton_group_end of the thread that began it";
	return "its call to return, or a thread that drives";
}

static const char *
queued_waits(const struct batoni_view *view)
{
	if (view->kind == BATONI_KIND_LAUNCH)
		return "its stream to get there, or its function to return";
	if (view->kind == BATONI_KIND_JOIN)
		return "its stream to get there, then another request";
	return view->group_of ? "all streams of its group to get there"
	                      : "its stream to get there";
}

static const char *
ended_waits(const struct batoni_view *view)
{
	if (view->word & BATONI_OP_STREAM)
		return "its stream to pass it";
	return view->word & BATONI_OP_JOINS
	               ? "a stream that waits for it to go on"
	               : "its end to be published";
}

static const char *
simple_waits(const struct batoni_view *view)
{
	if (view->word & BATONI_OP_LENT)
		return "the transport to let go of its buffer";
	switch ((enum batoni_op_state)view->state) {
	case BATONI_NEW:
		return new_waits(view);
	case BATONI_QUEUED:
		return queued_waits(view);
	case BATONI_ARMED:
		return is_transfer(view)
		               ? "its turn, or a thread that drives"
		               : queued_waits(view);
	case BATONI_ISSUED:
		return is_transfer(view) ? issued_waits(view)
		                                           : queued_waits(view);
	case BATONI_ENDED:
		return ended_waits(view);
	}
	return "";
}

void
batoni_view_waits(const struct batoni_view *view, char *text, size_t size)
{
	if (view->kind == BATONI_KIND_GROUP && view->state != BATONI_NEW &&
	    view->state != BATONI_ENDED)
		snprintf(text, size,
		         "%u of its %u member%s, and %u stream%s to get there",
		         view->members - view->ended, view->members,
		         batoni_s(view->members), view->streams_left,
		         batoni_s(view->streams_left));
	else if (view->kind == BATONI_KIND_PLAN &&
	         view->state != BATONI_NEW && view->state != BATONI_ENDED)
		snprintf(text, size, "%u of its %u operation%s",
		         view->members - view->ended, view->members,
		         batoni_s(view->members));
	else
		snprintf(text, size, "%s", simple_waits(view));
}

static const char *
state_name(const struct batoni_view *view)
{
	static const char *const names[] = {"new", "queued", "armed", "issued",
	                                    "ended"};

	if (view->word & BATONI_OP_LENT)
		return "lent";
	return view->state < sizeof(names) / sizeof(names[0])
	               ? names[view->state]
	               : "?";
}

static uint32_t
age_ms(uint32_t placed_ms)
{
	int32_t since_ms;

	batoni_tick();
	since_ms = (int32_t)(atomic_load_explicit(&batoni_engine.clock_ms,
	                                          memory_order_relaxed) -
	                     placed_ms);
	/* Beside the driver, it may have been placed since. */
	return since_ms > 0 ? (uint32_t)since_ms : 0;
}

void
batoni_view_line(const struct batoni_view *view, const char *what,
                 const char *waits, char *text, size_t size)
{
	uint32_t age = age_ms(view->placed_ms);
	char stream[40] = "";
	bool on_stream = view->kind != BATONI_KIND_GROUP &&
	                 view->kind != BATONI_KIND_PLAN;

	if (on_stream && view->stream)
		snprintf(stream, sizeof(stream), ", stream %p",
		         (void *)view->stream);
	else if (on_stream)
		snprintf(stream, sizeof(stream), ", default stream");
	snprintf(text, size, "%s%s%s, %s, age %u.%03u s, waits for %s", what,
	         stream,
	         view->flags & BATONI_FLAG_DETACHED ? " (detached)" : "",
	         state_name(view), age / 1000, age % 1000, waits);
}

void
batoni_op_describe(const struct batoni_op *op, char *text, size_t size)
{
	struct batoni_view view;

	batoni_op_view(op, &view);
	batoni_view_what(&view, NULL, text, size);
}

void
batoni_op_describe_end(const struct batoni_op *op, char *text, size_t size)
{
	size_t length;

	batoni_op_describe(op, text, size);
	length = strlen(text);
	if (op->kind == BATONI_KIND_PLAN)
		batoni_launch_explain(op, text + length, size - length);
}

void
batoni_op_describe_fully(const struct batoni_op *op, char *text, size_t size)
{
	char what[96], waits[96];
	struct batoni_view view;

	batoni_op_view(op, &view);
	batoni_view_what(&view, NULL, what, sizeof(what));
	batoni_view_waits(&view, waits, sizeof(waits));
	batoni_view_line(&view, what, waits, text, size);
}

uint32_t
batoni_op_age_ms(const struct batoni_op *op)
{
	return age_ms(op->item.note);
}
