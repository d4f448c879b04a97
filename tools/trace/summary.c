/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the time of each stream went, and what each rank waited for.
 *
 * A stream computes while a function runs on it.  On CUDA also from when an operation was enqueued, and
 * all before it of Baton's had ended, to when the stream came to it: then the stream was with kernels
 * of the program.  It waits while an operation that is not detached is between armed and ended, or
 * a baton_stream_wait.  Else it is idle.  A rank's transfers are hidden while one of its streams
 * computes.  A rank waits for a peer from when its operation is armed to when the peer's side is
 * there too; for a signal, and where that side never came, to its end.  In a barrier it waits for the rank that comes
 * last.  Where the trace names nobody, the time is nobody's, and the report says how long that is.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <baton.h>

#include "tool.h"
#include "spans.h"
#include "wait.h"

/* Of a rank, whatever communicators it has. */
struct place {
	const struct trace_rank *rank; /* of one of its communicators */
	bool has_rows;
	struct span life;
	struct spans computing, transfers;
	struct spans *waited; /* [places]: for that one */
	struct spans waited_for_nobody; /* that the trace names */
	uint64_t messages, bytes; /* sent */
};

struct summary {
	const struct trace *trace;
	struct place *places;
	size_t places_count;
	struct spans *computing, *waiting; /* [rows] */
	int64_t *free_at; /* [rows]: when the last operation of Baton's had ended */
};

/* ---- gathering ---- */

/* Those that are not armed come last (compare_armed). */
static bool
is_timed(const struct trace_op *op)
{
	return op->row != SIZE_MAX &&
	       (op->armed != TRACE_NEVER || op->kind == TRACE_JOIN);
}

/* A wait for any of several counters waits for no rank in particular, unless all of them are of one. */
static bool
waits_for_some(const struct trace_op *op)
{
	for (size_t i = 1; op->kind == BATON_OPERATION_WAIT_ANY && i < op->terms_count;
	     i++) {
		if (op->terms[i].peer != op->terms[0].peer)
			return true;
	}
	return false;
}

/* The rank that had not come when the operation ended early, or has not come yet; -1: the trace names none. */
static int
find_absent(const struct trace *trace, const struct trace_op *op)
{
	struct trace_wait wait;

	if (op->status == BATON_OK || op->kind == BATON_OPERATION_RECV ||
	    waits_for_some(op))
		return -1;
	trace_wait_find(trace, op,
	                op->ended == TRACE_NEVER ? TRACE_NEVER : op->ended - 1,
	                &wait);
	return wait.cause == TRACE_LATE || wait.cause == TRACE_ABSENT ||
	                       wait.cause == TRACE_UNKNOWN
	               ? wait.peer
	               : -1;
}

/* It waits for other ranks to make a call. */
static bool
waits_for_ranks(const struct trace_op *op)
{
	enum trace_side side = trace_side(op);

	return op->terms || side == TRACE_BARRIER || side == TRACE_SEND ||
	       side == TRACE_RECV;
}

/* The rank that it waited for; -1: the trace names none. */
static int
find_awaited(const struct trace *trace, const struct trace_op *op)
{
	if (op->peer >= 0)
		return op->peer;
	if (!waits_for_ranks(op))
		return -1;
	return op->match ? op->match->of->rank : find_absent(trace, op);
}

static void
see_peer(struct summary *s, struct place *place, const struct trace_op *op)
{
	const struct trace_rank *peer = NULL;
	int number = find_awaited(s->trace, op);
	int64_t from = op->armed, until = trace_moving(s->trace, op);

	/* A receive from any rank is issued when it has a message. */
	if (op->kind == BATON_OPERATION_RECV && op->issued != TRACE_NEVER &&
	    !(op->flags & BATON_TRACE_ANY_SOURCE))
		from = op->issued;
	if (trace_side(op) == TRACE_BARRIER && op->match)
		until = op->match->armed;
	if (until <= from)
		return;
	if (number >= 0)
		peer = s->trace->comms[op->of->comm].members[number];
	if (peer)
		spans_add(&place->waited[peer->place], from, until);
	else if (waits_for_ranks(op))
		spans_add(&place->waited_for_nobody, from, until);
}

static void
see_function(struct summary *s, struct place *place, const struct trace_op *op)
{
	int64_t until = trace_until(s->trace, op);

	spans_add(&s->computing[op->row], op->armed, until);
	spans_add(&place->computing, op->armed, until);
}

static void
see_transfer(struct summary *s, struct place *place, const struct trace_op *op)
{
	int64_t until = trace_until(s->trace, op);

	if (!(op->flags & BATON_TRACE_DETACHED))
		spans_add(&s->waiting[op->row], op->armed, until);
	spans_add(&place->transfers, op->armed, until);
	see_peer(s, place, op);
	if (op->kind == BATON_OPERATION_SEND ||
	    op->kind == BATON_OPERATION_PUT_SIGNAL) {
		place->messages++;
		place->bytes += op->bytes;
	}
}

/* When the operation had been called, and what is before it on its stream had ended. */
static int64_t
free_since(const struct summary *s, const struct trace_op *op)
{
	int64_t free_at = s->free_at[op->row];

	return op->enqueued > free_at ? op->enqueued : free_at;
}

/* Its stream does not say when it came to a baton_stream_wait, only when it was past that. */
static void
see_join(struct summary *s, const struct trace_op *op)
{
	int64_t from = op->armed == TRACE_NEVER ? free_since(s, op) : op->armed;
	int64_t until = trace_until(s->trace, op);

	if (until > from)
		spans_add(&s->waiting[op->row], from, until);
}

/* On CUDA: the stream was with what Baton does not see. */
static void
see_gap(struct summary *s, struct place *place, const struct trace_op *op)
{
	int64_t from = free_since(s, op);

	if (strcmp(op->of->header.device, "cuda") == 0 &&
	    op->armed != TRACE_NEVER && op->armed > from) {
		spans_add(&s->computing[op->row], from, op->armed);
		spans_add(&place->computing, from, op->armed);
	}
}

static void
see_op(struct summary *s, const struct trace_op *op)
{
	struct place *place = &s->places[s->trace->rows[op->row].place];
	int64_t until = trace_until(s->trace, op);
	int64_t *free_at = &s->free_at[op->row];

	if (op->enqueued < place->life.begin)
		place->life.begin = op->enqueued;
	if (until > place->life.end)
		place->life.end = until;
	see_gap(s, place, op);
	if (op->kind == TRACE_FUNCTION)
		see_function(s, place, op);
	else if (op->kind == TRACE_JOIN)
		see_join(s, op);
	else if (trace_is_transfer(op))
		see_transfer(s, place, op);
	if (op->flags & BATON_TRACE_DETACHED)
		until = op->armed;
	*free_at = until > *free_at ? until : *free_at;
}

static int
compare_armed(const void *a, const void *b)
{
	const struct trace_op *x = *(struct trace_op *const *)a;
	const struct trace_op *y = *(struct trace_op *const *)b;

	return trace_order(x->armed, y->armed);
}

static void
gather(struct summary *s)
{
	const struct trace *trace = s->trace;
	size_t count;
	struct trace_op **ops = trace_all(trace, &count);

	s->places = trace_alloc(trace->places_count, sizeof(s->places[0]));
	s->computing = trace_alloc(trace->rows_count, sizeof(s->computing[0]));
	s->waiting = trace_alloc(trace->rows_count, sizeof(s->waiting[0]));
	s->free_at = trace_alloc(trace->rows_count, sizeof(s->free_at[0]));
	for (size_t i = 0; i < trace->places_count; i++) {
		s->places[i].life = (struct span){INT64_MAX, 0};
		s->places[i].waited = trace_alloc(trace->places_count,
		                                  sizeof(struct spans));
	}
	for (size_t i = 0; i < trace->ranks_count; i++)
		s->places[trace->ranks[i].place].rank = &trace->ranks[i];
	for (size_t i = 0; i < trace->rows_count; i++)
		s->places[trace->rows[i].place].has_rows = true;
	qsort(ops, count, sizeof(ops[0]), compare_armed);
	for (size_t i = 0; i < count; i++) {
		if (is_timed(ops[i]))
			see_op(s, ops[i]);
	}
	free(ops);
	for (size_t i = 0; i < trace->rows_count; i++) {
		spans_join(&s->computing[i]);
		spans_join(&s->waiting[i]);
	}
	for (size_t i = 0; i < trace->places_count; i++) {
		spans_join(&s->places[i].computing);
		spans_join(&s->places[i].transfers);
		for (size_t k = 0; k < trace->places_count; k++)
			spans_join(&s->places[i].waited[k]);
		spans_join(&s->places[i].waited_for_nobody);
	}
}

static void
release(struct summary *s)
{
	for (size_t i = 0; i < s->trace->rows_count; i++) {
		spans_fini(&s->computing[i]);
		spans_fini(&s->waiting[i]);
	}
	for (size_t i = 0; i < s->trace->places_count; i++) {
		spans_fini(&s->places[i].computing);
		spans_fini(&s->places[i].transfers);
		for (size_t k = 0; k < s->trace->places_count; k++)
			spans_fini(&s->places[i].waited[k]);
		spans_fini(&s->places[i].waited_for_nobody);
		free(s->places[i].waited);
	}
	free(s->places);
	free(s->computing);
	free(s->waiting);
	free(s->free_at);
}

/* ---- the report ---- */

static json_t *
stream_report(const struct summary *s, size_t i)
{
	const struct trace_row *row = &s->trace->rows[i];
	const struct span *life = &s->places[row->place].life;
	int64_t all = life->end > life->begin ? life->end - life->begin : 0;
	int64_t computing = spans_total(&s->computing[i]);
	int64_t waiting = spans_total(&s->waiting[i]) -
	                  spans_common(&s->waiting[i], &s->computing[i]);
	char handle[32], name[64];

	trace_name(row->of, name, sizeof(name));
	snprintf(handle, sizeof(handle), "0x%" PRIx64, row->handle);
	return json_pack("{ss si si si ss sI sI sI sI}", "name", name, "rank",
	                 row->of->name, "place", row->place, "stream", row->stream, "handle", handle, "ns", (json_int_t)all,
	                 "computing_ns",
	                 (json_int_t)computing, "waiting_ns", (json_int_t)waiting,
	                 "idle_ns", (json_int_t)(all - computing - waiting));
}

static json_t *
rank_report(const struct summary *s, size_t i)
{
	const struct place *place = &s->places[i];
	int64_t all = place->life.end > place->life.begin
	                      ? place->life.end - place->life.begin
	                      : 0;
	int64_t transfers = spans_total(&place->transfers);
	int64_t hidden = spans_common(&place->transfers, &place->computing);
	int64_t longest = 0;
	size_t most = 0;
	char name[64], waited_for[64] = "";

	for (size_t k = 0; k < s->trace->places_count; k++) {
		int64_t waited = spans_total(&place->waited[k]);

		most = waited > longest ? k : most;
		longest = waited > longest ? waited : longest;
	}
	trace_name(place->rank, name, sizeof(name));
	if (longest > 0)
		trace_name(s->places[most].rank, waited_for, sizeof(waited_for));
	return json_pack(
		"{ss si sI sI sI so sI sI si ss sI sI}", "name", name, "rank", place->rank->name, "ns",
		(json_int_t)all, "transfers_ns", (json_int_t)transfers, "hidden_ns",
		(json_int_t)hidden, "hidden_share",
		transfers > 0 ? json_real((double)hidden / (double)transfers)
			      : json_null(),
		"messages_sent", (json_int_t)(place->messages & INT64_MAX),
		"bytes_sent", (json_int_t)(place->bytes & INT64_MAX),
		"waited_most_for",
		longest > 0 ? s->places[most].rank->name : -1, "waited_most_for_name",
		waited_for, "waited_ns",
		(json_int_t)longest, "waited_for_nobody_ns",
		(json_int_t)spans_total(&place->waited_for_nobody));
}

static json_t *
modules_report(const struct trace_rank *rank)
{
	json_t *modules = json_array();

	for (size_t i = 0; i < rank->modules_count; i++) {
		const struct baton_trace_module *module = &rank->modules[i];
		char id[2 * sizeof(module->build_id) + 1] = "";

		for (uint32_t k = 0; k < module->build_id_bytes; k++)
			snprintf(id + 2 * k, 3, "%02x", module->build_id[k]);
		json_array_append_new(modules,
		                      json_pack("{ss ss}", "path", module->path,
		                                "build_id", id));
	}
	return modules;
}

static json_t *
file_report(const struct trace_rank *rank)
{
	const struct baton_trace_header *header = &rank->header;
	char id[24];

	snprintf(id, sizeof(id), "%016" PRIx64, header->communicator);
	return json_pack(
		"{ss ss si si ss si ss ss ss sb sb ss ss sI so sI sI so}", "file",
		rank->file, "communicator", id, "rank", rank->rank, "ranks",
		header->size, "host", header->host, "process", header->pid,
		"program", header->program, "transport", header->transport, "device",
		header->device, "closed", header->state == BATON_TRACE_CLOSED,
		"running", rank->life == TRACE_RUNS, "status",
		baton_status_name((enum baton_status)header->status), "why",
		header->why, "clock_offset_ns", (json_int_t)rank->offset_ns,
		"clock_error_ns",
		rank->error_ns < 0 ? json_null() : json_integer(rank->error_ns),
		"operations", (json_int_t)rank->ops_count, "overwritten",
		(json_int_t)(rank->lost & INT64_MAX), "modules", modules_report(rank));
}

static json_t *
messages_report(const struct trace *trace)
{
	json_int_t messages = 0, signals = 0;

	for (size_t i = 0; i < trace->ranks_count; i++) {
		for (size_t k = 0; k < trace->ranks[i].ops_count; k++) {
			const struct trace_op *op = &trace->ranks[i].ops[k];

			messages += op->kind == BATON_OPERATION_RECV && op->match;
			signals += op->terms && op->match;
		}
	}
	return json_pack("{sI sI}", "messages", messages, "waits", signals);
}

json_t *
trace_summary(const struct trace *trace)
{
	json_t *streams = json_array(), *ranks = json_array();
	json_t *files = json_array();
	struct summary s = {.trace = trace};

	gather(&s);
	for (size_t i = 0; i < trace->rows_count; i++)
		json_array_append_new(streams, stream_report(&s, i));
	for (size_t i = 0; i < trace->places_count && s.places[i].has_rows; i++)
		json_array_append_new(ranks, rank_report(&s, i));
	for (size_t i = 0; i < trace->ranks_count; i++)
		json_array_append_new(files, file_report(&trace->ranks[i]));
	release(&s);
	return json_pack("{ss si sI so sO so so so}", "program",
	                 trace->ranks[0].header.program, "size",
	                 trace->ranks[0].header.size, "ns",
	                 (json_int_t)trace->last, "matched",
	                 messages_report(trace), "checks", trace->checks, "files",
	                 files, "streams", streams, "ranks", ranks);
}
