/* SPDX-License-Identifier: BSD-3-Clause */
/* The reports of `baton trace` for people. */
#include "trace.h"

#include <string.h>

#include "tool.h"

#define SHOWN_MAX 6u   /* operations of a rank that hang */
#define STREAMS_MAX 8u /* of a rank */

static void
print_time(FILE *file, const json_t *object, const char *key, double all)
{
	char text[48];

	trace_time(tool_real(object, key), text, sizeof(text));
	fprintf(file, "  %9s", text);
	if (all > 0)
		fprintf(file, " %3.0f %%", 100.0 * tool_real(object, key) / all);
}

static double
busy(const json_t *stream)
{
	return tool_real(stream, "computing_ns") + tool_real(stream, "waiting_ns");
}

/* It is one of the busiest of its rank. */
static bool
is_printed(const json_t *streams, const json_t *stream)
{
	const json_t *other;
	size_t i, busier = 0;

	json_array_foreach(streams, i, other)
	{
		if (tool_number(other, "place") == tool_number(stream, "place") &&
		    busy(other) > busy(stream))
			busier++;
	}
	return busier < STREAMS_MAX;
}

static void
print_stream(const json_t *stream, FILE *file)
{
	double all = tool_real(stream, "ns");
	char name[96];

	snprintf(name, sizeof(name), "%s, stream %lld", tool_text(stream, "name"),
	         tool_number(stream, "stream"));
	fprintf(file, "%-18s", name);
	print_time(file, stream, "computing_ns", all);
	print_time(file, stream, "waiting_ns", all);
	print_time(file, stream, "idle_ns", all);
	fprintf(file, "\n");
}

static void
print_streams(const json_t *report, FILE *file)
{
	const json_t *streams = json_object_get(report, "streams"), *stream;
	size_t left_out = 0, i;

	fprintf(file, "\nStreams                computing          waiting             idle\n");
	json_array_foreach(streams, i, stream)
	{
		if (is_printed(streams, stream))
			print_stream(stream, file);
		else
			left_out++;
	}
	if (left_out > 0)
		fprintf(file, "%zu streams that did less are not shown (--json has them)\n",
		        left_out);
}

static void
print_rank(const json_t *rank, FILE *file)
{
	const json_t *share = json_object_get(rank, "hidden_share");
	char text[48];

	trace_time(tool_real(rank, "transfers_ns"), text, sizeof(text));
	fprintf(file, "%s: %lld messages and puts of %lld bytes in all; transfers "
	              "under way for %s",
	        tool_text(rank, "name"), tool_number(rank, "messages_sent"),
	        tool_number(rank, "bytes_sent"), text);
	if (!json_is_null(share))
		fprintf(file, ", %.0f %% of it hidden by functions on streams",
		        100.0 * json_number_value(share));
	if (tool_number(rank, "waited_most_for") >= 0) {
		trace_time(tool_real(rank, "waited_ns"), text, sizeof(text));
		fprintf(file, "; waited most for %s: %s",
		        tool_text(rank, "waited_most_for_name"), text);
	}
	if (tool_number(rank, "waited_for_nobody_ns") > 0) {
		trace_time(tool_real(rank, "waited_for_nobody_ns"), text,
		           sizeof(text));
		fprintf(file, "; waited for nobody that the trace names: %s", text);
	}
	fprintf(file, "\n");
}

static void
print_clocks(const json_t *report, FILE *file)
{
	const json_t *files = json_object_get(report, "files"), *one;
	double error = 0;
	bool moved = false;
	char text[48];
	size_t i;

	json_array_foreach(files, i, one)
	{
		moved = moved || tool_number(one, "clock_offset_ns") != 0;
		if (tool_real(one, "clock_error_ns") > error)
			error = tool_real(one, "clock_error_ns");
	}
	trace_time(error, text, sizeof(text));
	if (moved)
		fprintf(file, "Clocks: of several nodes, joined to within %s\n", text);
	else
		fprintf(file, "Clocks: all ranks are on one node, which has one clock\n");
}

static void
print_checks(const json_t *report, FILE *file)
{
	const json_t *checks = json_object_get(report, "checks"), *check;
	size_t i;

	if (json_array_size(checks) > 0)
		fprintf(file, "\nTo be known:\n");
	json_array_foreach(checks, i, check)
		fprintf(file, "  %s\n", json_string_value(check));
}

void
trace_summary_print(const json_t *report, FILE *file)
{
	const json_t *matched = json_object_get(report, "matched");
	const json_t *ranks = json_object_get(report, "ranks"), *rank;
	char text[48];
	size_t i;

	trace_time(tool_real(report, "ns"), text, sizeof(text));
	fprintf(file,
	        "%s: %s of %lld ranks; the two sides of %lld messages and %lld waits "
	        "for signals were found\n",
	        tool_text(report, "program"), text, tool_number(report, "size"),
	        tool_number(matched, "messages"), tool_number(matched, "waits"));
	print_clocks(report, file);
	print_streams(report, file);
	fprintf(file, "\n");
	json_array_foreach(ranks, i, rank)
		print_rank(rank, file);
	print_checks(report, file);
}

/* ---- hangs ---- */

static void
print_head(const json_t *head, bool at_end, FILE *file)
{
	const char *status = tool_text(head, "status");
	char text[48];

	trace_time((double)tool_number(head, "waited_ns"), text, sizeof(text));
	fprintf(file, "%s", tool_text(head, "name"));
	if (tool_number(head, "stream") >= 0)
		fprintf(file, ", stream %lld", tool_number(head, "stream"));
	fprintf(file, ": %s", tool_text(head, "operation"));
	if (tool_number(head, "communicator_number") > 1)
		fprintf(file, " (as its rank %lld)", tool_number(head, "rank"));
	fprintf(file, ", %s", tool_text(head, "state"));
	if (tool_number(head, "waited_ns") > 0)
		fprintf(file, ", for %s%s",
		        at_end && !json_is_true(json_object_get(head, "running"))
		                ? "at least "
		                : "",
		        text);
	if (strcmp(status, "pending") != 0)
		fprintf(file, ", ended in %s", status);
	if (*tool_text(head, "site"))
		fprintf(file, ", called at %s", tool_text(head, "site"));
	fprintf(file, "\n    %s\n", tool_text(head, "why"));
}

static void
print_when(const json_t *moment, FILE *file)
{
	const char *when = tool_text(moment, "when");
	char text[48];

	trace_time((double)tool_number(moment, "at_ns"), text, sizeof(text));
	if (strcmp(when, "deadline") == 0)
		fprintf(file, "Before the first deadline passed, at %s:\n\n", text);
	else if (strcmp(when, "break") == 0)
		fprintf(file, "Before the first operation ended by an abort, a break or "
		              "the end of its peer, at %s:\n\n",
		        text);
	else
		fprintf(file, "What has not ended:\n\n");
}

static void
print_moment(const json_t *moment, FILE *file)
{
	const json_t *heads = json_object_get(moment, "waiting"), *head;
	const json_t *reasons = json_object_get(moment, "reasons"), *reason;
	/* The files know of no time behind their last event. */
	bool at_end = strcmp(tool_text(moment, "when"), "end") == 0;
	size_t left_out = 0, same = 0, i;
	long long file_number = -1;

	print_when(moment, file);
	json_array_foreach(heads, i, head)
	{
		same = i > 0 && tool_number(head, "file") == file_number ? same + 1 : 0;
		file_number = tool_number(head, "file");
		if (same < SHOWN_MAX)
			print_head(head, at_end, file);
		else
			left_out++;
	}
	if (left_out > 0)
		fprintf(file, "%zu more are not shown (--json has them)\n", left_out);
	if (tool_number(moment, "behind") > 0)
		fprintf(file, "%lld more wait behind these on their streams\n",
		        tool_number(moment, "behind"));
	if (tool_number(moment, "later") > 0)
		fprintf(file, "%lld more ended so later\n",
		        tool_number(moment, "later"));
	if (json_array_size(reasons) > 0)
		fprintf(file, "\nWhy:\n");
	json_array_foreach(reasons, i, reason)
		fprintf(file, "  %s\n", tool_text(reason, "sentence"));
}

void
trace_hang_print(const json_t *report, FILE *file)
{
	const json_t *moments = json_object_get(report, "moments"), *moment;
	size_t i;

	if (json_array_size(moments) == 0)
		fprintf(file, "Nothing hangs: all operations have ended as they should\n");
	json_array_foreach(moments, i, moment)
	{
		fprintf(file, "%s", i > 0 ? "\n" : "");
		print_moment(moment, file);
	}
	print_checks(report, file);
}
