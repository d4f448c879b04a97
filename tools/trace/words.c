/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations in words. */
#include "trace.h"

#include <string.h>

#include <baton.h>

const char *
trace_kind(int kind)
{
	switch (kind) {
	case BATON_OPERATION_SEND:
		return "send";
	case BATON_OPERATION_RECV:
		return "receive";
	case BATON_OPERATION_RECORD:
		return "record";
	case BATON_OPERATION_SIGNAL:
		return "signal";
	case BATON_OPERATION_PUT_SIGNAL:
		return "put";
	case BATON_OPERATION_WAIT_SIGNAL:
	case BATON_OPERATION_WAIT_ANY:
	case BATON_OPERATION_WAIT_COUNT:
		return "wait";
	case BATON_OPERATION_PLAN:
		return "plan";
	case BATON_OPERATION_BARRIER:
		return "barrier";
	case BATON_OPERATION_GET:
		return "get";
	case BATON_OPERATION_FLUSH:
		return "flush";
	case BATON_OPERATION_ATOMIC:
		return "atomic";
	case TRACE_FUNCTION:
		return "function";
	case TRACE_JOIN:
		return "join";
	case TRACE_CLAIM:
		return "message";
	default:
		return "operation";
	}
}

const char *
trace_path(const struct trace_op *op)
{
	return op->path < op->of->paths_count ? op->of->paths[op->path].name : "";
}

static void
name_peer(int peer, const char *none, char *text, size_t size)
{
	if (peer >= 0)
		snprintf(text, size, "rank %d", peer);
	else
		snprintf(text, size, "%s", none);
}

static void
what_message(const struct trace_op *op, char *text, size_t size)
{
	bool sends = op->kind == BATON_OPERATION_SEND;
	char peer[32], tag[32] = "any tag";

	name_peer(op->peer, "any rank", peer, sizeof(peer));
	if (op->tag >= 0)
		snprintf(tag, sizeof(tag), "tag %d", op->tag);
	snprintf(text, size, "%s of %s %s %s", trace_kind(op->kind), tag,
	         sends ? "to" : "from", peer);
}

static void
what_signal(const struct trace_op *op, char *text, size_t size)
{
	char peer[32];

	name_peer(op->peer, "several ranks", peer, sizeof(peer));
	if (op->kind == BATON_OPERATION_PUT_SIGNAL && op->tag < 0)
		snprintf(text, size, "put to %s", peer);
	else if (op->terms_count > 1 || op->tag < 0)
		snprintf(text, size, "wait for %s of %zu signals",
		         op->kind == BATON_OPERATION_WAIT_ANY ? "one" : "all",
		         op->terms_count);
	else if (op->kind == BATON_OPERATION_SIGNAL)
		snprintf(text, size, "signal %d of context %d to %s", op->tag,
		         op->context, peer);
	else if (op->kind == BATON_OPERATION_PUT_SIGNAL)
		snprintf(text, size, "put to %s with signal %d of context %d",
		         peer, op->tag, op->context);
	else
		snprintf(text, size, "wait for signal %d of context %d of %s",
		         op->tag, op->context, peer);
}

void
trace_what_there(const struct trace_op *op, char *text, size_t size)
{
	char peer[32];

	switch (op->kind) {
	case BATON_OPERATION_SEND:
	case BATON_OPERATION_RECV:
	case TRACE_CLAIM:
		what_message(op, text, size);
		return;
	case BATON_OPERATION_SIGNAL:
	case BATON_OPERATION_PUT_SIGNAL:
	case BATON_OPERATION_WAIT_SIGNAL:
	case BATON_OPERATION_WAIT_ANY:
	case BATON_OPERATION_WAIT_COUNT:
		what_signal(op, text, size);
		return;
	case BATON_OPERATION_GET:
	case BATON_OPERATION_FLUSH:
	case BATON_OPERATION_ATOMIC:
		name_peer(op->peer, "all ranks", peer, sizeof(peer));
		snprintf(text, size, "%s of %s", trace_kind(op->kind), peer);
		return;
	case TRACE_JOIN:
		snprintf(text, size, "baton_stream_wait");
		return;
	default:
		snprintf(text, size, "%s", trace_kind(op->kind));
	}
}

void
trace_what(const struct trace_op *op, char *text, size_t size)
{
	size_t length;

	trace_what_there(op, text, size);
	length = strlen(text);
	if (op->of->comm_number > 1)
		snprintf(text + length, size - length, " in communicator %d",
		         op->of->comm_number);
}

void
trace_time(double ns, char *text, size_t size)
{
	static const struct {
		double ns;
		const char *name;
	} units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		double value = ns / units[i].ns;

		if (value >= 0.9995 || value <= -0.9995) {
			snprintf(text, size, "%.*f %s",
			         value < 9.995 ? 2 : value < 99.95 ? 1 : 0,
			         value, units[i].name);
			return;
		}
	}
	snprintf(text, size, "%.0f ns", ns);
}
