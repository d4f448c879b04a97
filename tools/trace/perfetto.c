/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace as JSON of Chrome's format, which Perfetto (ui.perfetto.dev) shows: ranks are processes,
 * streams are threads, operations are slices, and flows go from the send to the receive, from the
 * signal to the wait.
 *
 * Slices of one thread must lie within each other or apart, so operations of a stream that overlap are
 * on threads of their own (lanes).  A flow is bound to the slice that is there at its stamp: its
 * ends are a nanosecond within.  Events are written one by one: a tree of all would take
 * hundreds of bytes for each.
 */
#include "trace.h"

#include <errno.h>
#include <string.h>

#include <baton.h>

struct output {
	FILE *file;
	const struct trace *trace;
	const struct trace_lanes *lanes;
	bool some;
};

static void
put_event(struct output *output, json_t *event)
{
	fputs(output->some ? ",\n" : "\n", output->file);
	output->some = true;
	json_dumpf(event, output->file, JSON_COMPACT | JSON_REAL_PRECISION(15));
	json_decref(event);
}

static long long
thread_of(const struct trace_row *row, unsigned lane)
{
	return row->stream * (long long)TRACE_LANES_MAX + lane + 1;
}

static void
put_names(struct output *output)
{
	for (size_t i = 0; i < output->trace->rows_count; i++) {
		const struct trace_row *row = &output->trace->rows[i];
		char rank[64], name[160];

		if (row->stream == 0) {
			trace_name(row->of, rank, sizeof(rank));
			snprintf(name, sizeof(name), "%s (%s, process %lld)", rank,
			         row->of->header.host, (long long)row->of->header.pid);
			put_event(output,
			          json_pack("{ss ss si s{ss}}", "ph", "M", "name",
			                    "process_name", "pid", row->place,
			                    "args", "name", name));
		}
		for (unsigned lane = 0; lane < output->lanes->row_lanes[i]; lane++) {
			snprintf(name, sizeof(name), "stream %d (0x%llx)",
			         row->stream, (unsigned long long)row->handle);
			put_event(output,
			          json_pack("{ss ss si sI s{ss}}", "ph", "M",
			                    "name", "thread_name", "pid",
			                    row->place, "tid",
			                    (json_int_t)thread_of(row, lane),
			                    "args", "name", name));
		}
	}
}

static double
us(int64_t stamp)
{
	return (double)stamp / 1e3;
}

/* Null where it did not come so far. */
static json_t *
stamp_or_null(int64_t stamp)
{
	return stamp == TRACE_NEVER ? json_null() : json_real(us(stamp));
}

static json_t *
arguments_of(const struct trace_op *op)
{
	return json_pack(
		"{si si si si si sI ss ss so so so so ss}", "communicator",
		op->of->comm_number, "rank", op->of->rank,
		"peer", op->peer, "tag", op->tag, "context", op->context,
		"bytes", (json_int_t)(op->bytes & INT64_MAX), "path", trace_path(op), "status",
		op->status == BATON_PENDING
			? "it has not ended"
			: baton_status_name((enum baton_status)op->status),
		"enqueued_us", stamp_or_null(op->enqueued), "armed_us",
		stamp_or_null(op->armed), "issued_us", stamp_or_null(op->issued),
		"ended_us", stamp_or_null(op->ended), "site", op->site);
}

static void
put_slice(struct output *output, size_t i)
{
	const struct trace_op *op = output->lanes->ops[i];
	const struct trace_row *row = &output->trace->rows[op->row];
	char name[128];

	trace_what(op, name, sizeof(name));
	put_event(output,
	          json_pack("{ss ss ss sf sf si sI so}", "ph", "X", "name", name,
	                    "cat", trace_kind(op->kind), "ts", us(op->armed),
	                    "dur", us(trace_length(output->trace, op)),
	                    "pid", row->place, "tid",
	                    (json_int_t)thread_of(row, op->lane),
	                    "args", arguments_of(op)));
}

/* phase: "s" where the flow starts, "f" where it ends. */
static void
put_flow(struct output *output, size_t i, const char *phase, size_t id)
{
	const struct trace_op *op = output->lanes->ops[i];
	const struct trace_row *row = &output->trace->rows[op->row];
	int64_t at = op->armed;

	if (*phase == 'f')
		at += trace_length(output->trace, op) - 1;
	put_event(output,
	          json_pack("{ss ss ss ss sI sf si sI}", "ph", phase, "bp", "e",
	                    "name", "message", "cat", "message", "id",
	                    (json_int_t)id, "ts", us(at), "pid", row->place,
	                    "tid",
	                    (json_int_t)thread_of(row, op->lane)));
}

static void
put_flows(struct output *output)
{
	const struct trace_lanes *lanes = output->lanes;

	for (size_t i = 0; i < lanes->count; i++)
		lanes->ops[i]->drawn = i + 1;
	for (size_t i = 0; i < lanes->count; i++) {
		const struct trace_op *op = lanes->ops[i];
		enum trace_side side = trace_side(op);

		if ((side != TRACE_RECV && !op->terms) || !op->match ||
		    op->match->drawn == 0 || op->ended == TRACE_NEVER)
			continue;
		put_flow(output, op->match->drawn - 1, "s", i + 1);
		put_flow(output, i, "f", i + 1);
	}
	for (size_t i = 0; i < lanes->count; i++)
		lanes->ops[i]->drawn = 0;
}

bool
trace_perfetto(const struct trace *trace, const struct trace_view *view,
               const char *path)
{
	struct output output = {.file = fopen(path, "w"), .trace = trace};
	struct trace_lanes lanes;
	bool good = output.file != NULL;

	if (good) {
		trace_lanes_init(&lanes, trace, view, SIZE_MAX, TRACE_LANES_MAX);
		output.lanes = &lanes;
		fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", output.file);
		put_names(&output);
		for (size_t i = 0; i < lanes.count; i++)
			put_slice(&output, i);
		put_flows(&output);
		fputs("\n]}\n", output.file);
		trace_lanes_fini(&lanes);
		good = !ferror(output.file);
		good = fclose(output.file) == 0 && good;
	}
	if (!good)
		fprintf(stderr, "baton trace: %s cannot be written: %s\n", path,
		        strerror(errno));
	return good;
}
