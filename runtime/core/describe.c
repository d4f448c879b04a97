/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations in words.  All words are made from a view, a copy of the operation's fields, so
 * that a dump can use those of an operation that it does not hold.
 */
#include "describe.h"

#include <stdio.h>
#include <string.h>

#include "engine.h"
#include "log.h"

__attribute__((no_sanitize("thread"))) void
batoni_view_transfer(const struct batoni_op *op, struct batoni_view *view)
{
	view->peer = BATONI_VIEW_LOAD(op->transfer.peer);
	view->tag = BATONI_VIEW_LOAD(op->transfer.tag);
	view->bytes = BATONI_VIEW_LOAD(op->transfer.bytes);
	view->stream = BATONI_VIEW_LOAD(op->transfer.stream);
	view->buffer = BATONI_VIEW_LOAD(op->transfer.buffer);
	view->slot_direction = BATONI_VIEW_LOAD(op->transfer.slot_direction);
}

__attribute__((no_sanitize("thread"))) void
batoni_view_tally(const struct batoni_op *op, struct batoni_view *view)
{
	view->members = BATONI_VIEW_LOAD(op->tally.members);
	view->ended = BATONI_VIEW_LOAD(op->tally.ended);
}

/* The word first, and each field by one load, since a dump may read beside the threads that
 * write. */
__attribute__((no_sanitize("thread"))) void
batoni_op_view(const struct batoni_op *op, struct batoni_view *view_p)
{
	struct batoni_view view = {.op = op};
	const struct batoni_kind *kind;

	view.word = atomic_load_explicit(&op->word, memory_order_acquire);
	view.kind = BATONI_VIEW_LOAD(op->kind);
	view.state = batoni_op_state(op);
	view.flags = BATONI_VIEW_LOAD(op->flags);
	view.group_of = batoni_op_group(op);
	view.placed_ms = BATONI_VIEW_LOAD(op->item.placed_ms);
	kind = batoni_kinds[view.kind];
	/* An unused slot has none. */
	if (kind && kind->view)
		kind->view(op, &view);
	else
		batoni_view_transfer(op, &view);
	*view_p = view;
}

void
batoni_view_what(const struct batoni_view *view, const char *details,
                 char *text, size_t size)
{
	const struct batoni_kind *kind = batoni_kinds[view->kind];

	if (kind->what)
		kind->what(view, details, text, size);
	else
		snprintf(text, size, "%s", kind->name);
}

static const char *
queued_waits(const struct batoni_view *view)
{
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

static bool
is_transfer(const struct batoni_view *view)
{
	return BATONI_TRANSFERS >> view->kind & 1u;
}

static const char *
simple_waits(const struct batoni_view *view)
{
	if (view->word & BATONI_OP_LENT)
		return "the transport to let go of its buffer";
	switch ((enum batoni_op_state)view->state) {
	case BATONI_NEW:
		return view->group_of
		               ? "the end of its group (baton_group_end)"
		               : "its call to return, or a thread that drives";
	case BATONI_QUEUED:
		return queued_waits(view);
	case BATONI_ARMED:
		return is_transfer(view) ? "its turn, or a thread that drives"
		                         : queued_waits(view);
	case BATONI_ISSUED:
		return is_transfer(view) ? "its end" : queued_waits(view);
	case BATONI_ENDED:
		return ended_waits(view);
	}
	return "";
}

void
batoni_view_waits(const struct batoni_view *view, bool held, char *text,
                  size_t size)
{
	const struct batoni_kind *kind = batoni_kinds[view->kind];

	if (!(view->word & BATONI_OP_LENT) && kind->waits &&
	    kind->waits(view, held, text, size))
		return;
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
	/* Beside the driver the time may be a later one: the operation may have been placed since
	 * the clock was read. */
	return since_ms > 0 ? (uint32_t)since_ms : 0;
}

void
batoni_view_line(const struct batoni_view *view, const char *what,
                 const char *waits, char *text, size_t size)
{
	uint32_t age = age_ms(view->placed_ms);
	char stream[40] = "";
	bool on_stream = !batoni_kinds[view->kind]->off_stream;

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
	const struct batoni_kind *kind = batoni_kind_of(op);
	struct batoni_failed failed = {.kind = op->kind};
	size_t length;

	batoni_op_describe(op, text, size);
	length = strlen(text);
	if (kind->failed)
		kind->failed(op, &failed);
	snprintf(text + length, size - length, "%s", failed.which);
}

void
batoni_op_describe_fully(const struct batoni_op *op, char *text, size_t size)
{
	char what[96], waits[96];
	struct batoni_view view;

	batoni_op_view(op, &view);
	batoni_view_what(&view, NULL, what, sizeof(what));
	batoni_view_waits(&view, false, waits, sizeof(waits));
	batoni_view_line(&view, what, waits, text, size);
}

uint32_t
batoni_view_age_ms(const struct batoni_view *view)
{
	return age_ms(view->placed_ms);
}

/* The driver may begin and end the deadline meanwhile (batoni_op_start_clock). */
__attribute__((no_sanitize("thread"))) uint64_t
batoni_op_deadline_ns(const struct batoni_op *op)
{
	if (!(__atomic_load_n(&op->flags, __ATOMIC_ACQUIRE) &
	      BATONI_FLAG_DEADLINE))
		return 0;
	return (uint64_t)BATONI_VIEW_LOAD(op->timeout_ns);
}

uint32_t
batoni_op_age_ms(const struct batoni_op *op)
{
	return age_ms(op->item.placed_ms);
}
