/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals, puts, gets, flushes, waits and barriers, as the core asks for them (kind.h). */
#include <stdio.h>

#include "describe.h"
#include "kinds.h"
#include "log.h"

/* details: the layer's words for a placed one, or NULL. */
static void
what_is_put(const struct batoni_view *view, const char *details, char *text,
            size_t size)
{
	char context[24] = "", bytes[40] = "";

	if (!details)
		snprintf(context, sizeof(context), "context %d", view->tag);
	if (view->kind != BATONI_KIND_SIGNAL)
		snprintf(bytes, sizeof(bytes), ", %zu byte%s", view->bytes,
		         batoni_s(view->bytes));
	snprintf(text, size, "%s to peer %d, %s%s",
	         batoni_kinds[view->kind]->name, view->peer,
	         details ? details : context, bytes);
}

static bool
put_waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state != BATONI_ISSUED)
		return false;
	snprintf(text, size,
	         "its bytes to move, behind earlier puts to that peer in that "
	         "context");
	return true;
}

const struct batoni_kind batoni_kind_signal = {
	.name = "signal",
	.trace = "Signal",
	.direction = BATONI_PUT,
	.what = what_is_put,
	.waits = put_waits,
};

const struct batoni_kind batoni_kind_put = {
	.name = "put_signal",
	.trace = "Put",
	.direction = BATONI_PUT,
	.what = what_is_put,
	.waits = put_waits,
};

const struct batoni_kind batoni_kind_get = {
	.name = "get",
	.trace = "Get",
	.direction = BATONI_PUT,
	.what = what_is_put,
	.waits = put_waits,
};

const struct batoni_kind batoni_kind_atomic = {
	.name = "atomic",
	.trace = "Atomic",
	.direction = BATONI_PUT,
	.what = what_is_put,
	.waits = put_waits,
};

static void
what_is_flushed(const struct batoni_view *view, const char *details, char *text,
                size_t size)
{
	char peer[32] = "all peers";

	(void)details;
	if (view->peer >= 0)
		snprintf(peer, sizeof(peer), "peer %d", view->peer);
	snprintf(text, size, "flush to %s", peer);
}

static bool
flush_waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state != BATONI_ISSUED)
		return false;
	snprintf(text, size,
	         "earlier puts of its stream to end, and their targets to have them");
	return true;
}

const struct batoni_kind batoni_kind_flush = {
	.name = "flush",
	.trace = "Flush",
	.direction = BATONI_WAIT,
	.what = what_is_flushed,
	.waits = flush_waits,
};

static void
what_is_awaited(const struct batoni_view *view, const char *details, char *text,
                size_t size)
{
	char peer[32] = "several peers";

	if (view->peer >= 0)
		snprintf(peer, sizeof(peer), "peer %d", view->peer);
	snprintf(text, size, "%s from %s%s%s", batoni_kinds[view->kind]->name, peer,
	         details ? ", " : "", details ? details : "");
}

static bool
wait_waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state != BATONI_ISSUED)
		return false;
	snprintf(text, size, "signals");
	return true;
}

const struct batoni_kind batoni_kind_wait = {
	.name = "wait_signal",
	.trace = "Wait",
	.direction = BATONI_WAIT,
	.what = what_is_awaited,
	.waits = wait_waits,
};

const struct batoni_kind batoni_kind_wait_any = {
	.name = "wait_signal_any",
	.trace = "Wait",
	.direction = BATONI_WAIT,
	.what = what_is_awaited,
	.waits = wait_waits,
};

const struct batoni_kind batoni_kind_wait_count = {
	.name = "wait_signal_count",
	.trace = "Wait",
	.direction = BATONI_WAIT,
	.what = what_is_awaited,
	.waits = wait_waits,
};

static void
what_is_met(const struct batoni_view *view, const char *details, char *text,
            size_t size)
{
	(void)view;
	snprintf(text, size, "barrier%s%s", details && *details ? ", " : "",
	         details ? details : "");
}

static bool
barrier_waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	if (view->state != BATONI_ISSUED)
		return false;
	snprintf(text, size,
	         "the barriers of the other ranks, or an earlier one of this "
	         "rank");
	return true;
}

const struct batoni_kind batoni_kind_barrier = {
	.name = "barrier",
	.trace = "Barrier",
	.direction = BATONI_WAIT,
	.what = what_is_met,
	.waits = barrier_waits,
};
