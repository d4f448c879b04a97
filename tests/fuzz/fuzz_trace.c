/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two files of a trace, as `baton trace` reads them: the first half of the bytes is one, the rest the
 * other.  Whatever they say, what is in memory then holds together, and each operation can be
 * asked what it waits for.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <baton.h>

#include "fuzz.h"
#include "trace/trace.h"
#include "trace/wait.h"

enum { HALF = 2048, KINDS = 15, KIND_CLAIM = 14, RING = 3, COUNTERS = 2 };

/* What files.c has. */
void *
trace_alloc(size_t count, size_t size)
{
	void *memory = calloc(count > 0 ? count : 1, size);

	if (!memory)
		exit(EXIT_FAILURE);
	return memory;
}

void
trace_check(struct trace *trace, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	(void)trace;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
}

void
trace_print_checks(const struct trace *trace)
{
	(void)trace;
}

/* ---- seeds ---- */

struct file {
	struct baton_trace_header header;
	struct baton_trace_operation ring[RING];
	struct baton_trace_counter counters[COUNTERS];
	struct baton_trace_operation handed[1];
};
static_assert(sizeof(struct file) <= HALF, "a seed has two of them");

static struct baton_trace_table
table(size_t offset, size_t stride, unsigned count)
{
	return (struct baton_trace_table){offset, (uint32_t)stride, count};
}

static void
fill_file(struct file *file, int rank)
{
	const struct baton_trace_kind claim = {.role = BATON_TRACE_CLAIM};

	memset(file, 0, sizeof(*file));
	memcpy(file->header.magic, BATON_TRACE_MAGIC, 8);
	file->header.version = BATON_TRACE_VERSION;
	file->header.header_bytes = sizeof(file->header);
	file->header.state = BATON_TRACE_OPEN;
	file->header.clock = BATON_TRACE_TSC;
	file->header.communicator = 7;
	file->header.rank = rank;
	file->header.size = 2;
	file->header.pid = 100 + rank;
	file->header.ticks_per_second = 1000000000;
	file->header.first.ticks = 1000;
	/* Within a text, since there is no more room. */
	static_assert(sizeof(file->header.why) >= KINDS * sizeof(claim), "it fits");
	file->header.kinds = table(offsetof(struct baton_trace_header, why),
	                           sizeof(claim), KINDS);
	memcpy(file->header.why + KIND_CLAIM * sizeof(claim), &claim, sizeof(claim));
	file->header.paths = table(sizeof(*file), 64, 0);
	file->header.modules = table(sizeof(*file), 320, 0);
	file->header.rounds = table(sizeof(*file), 32, 0);
	file->header.counters = table(offsetof(struct file, counters),
	                              sizeof(file->counters[0]), COUNTERS);
	file->header.operations = table(offsetof(struct file, ring),
	                                sizeof(file->ring[0]), RING);
	file->header.handed = table(offsetof(struct file, handed),
	                            sizeof(file->handed[0]), 1);
}

static void
add_call(struct file *file, uint64_t serial, int kind, int peer, int tag, bool ended)
{
	struct baton_trace_operation *op = &file->ring[(serial - 1) % RING];

	*op = (struct baton_trace_operation){.serial = serial,
	                                     .enqueued = 2000 + serial,
	                                     .armed = 2000 + serial,
	                                     .issued = 2000 + serial,
	                                     .completed = ended ? 2100 : 0,
	                                     .kind = (uint8_t)kind,
	                                     .status = ended ? BATON_OK
	                                                     : BATON_PENDING,
	                                     .peer = peer,
	                                     .tag = tag,
	                                     .signal = -1,
	                                     .context = -1};
	if (kind != BATON_OPERATION_WAIT_SIGNAL && kind != BATON_OPERATION_SIGNAL)
		return;
	op->tag = -1;
	op->signal = tag;
	op->context = 0;
	op->signals = 2;
}

/* Both, and which of the second half the operations are. */
static void
seed(void (*make)(struct file *one, struct file *other))
{
	static unsigned char bytes[2 * HALF];
	struct file files[2];

	fill_file(&files[0], 0);
	fill_file(&files[1], 1);
	make(&files[0], &files[1]);
	memset(bytes, 0, sizeof(bytes));
	for (int i = 0; i < 2; i++)
		memcpy(bytes + i * HALF, &files[i], sizeof(files[i]));
	fuzz_seed(bytes, sizeof(bytes));
}

static void
messages(struct file *one, struct file *other)
{
	add_call(one, 1, BATON_OPERATION_SEND, 1, 3, true);
	add_call(one, 2, BATON_OPERATION_RECV, 1, 3, false);
	add_call(one, 6, BATON_OPERATION_BARRIER, -1, -1, false);
	add_call(other, 1, BATON_OPERATION_RECV, 0, 3, true);
	add_call(other, 2, BATON_OPERATION_RECV, -1, 4, false);
	other->handed[0] = other->ring[1];
	other->handed[0].serial = 4;
	one->counters[0] = (struct baton_trace_counter){
		.peer = 1, .tag = 3, .context = -1, .kind = BATON_OPERATION_SEND,
		.used = 1, .called = 5, .completed = 4};
}

static void
signals(struct file *one, struct file *other)
{
	add_call(one, 1, BATON_OPERATION_SIGNAL, 1, 2, true);
	add_call(one, 2, BATON_OPERATION_PUT_SIGNAL, 1, -1, true);
	add_call(other, 1, BATON_OPERATION_WAIT_SIGNAL, 0, 2, true);
	add_call(other, 2, BATON_OPERATION_WAIT_SIGNAL, -1, -1, false);
	other->ring[1].flags = BATON_TRACE_TERMS;
	add_call(other, 3, 0, 0, -1, false);
	other->ring[2].flags = BATON_TRACE_TERM;
	other->ring[2].parent = 2;
	other->ring[2].signal = 5;
	other->ring[2].context = 0;
	other->ring[2].signals = 1;
}

/* What a probe has found: its receive, and one that waits for the next message. */
static void
claims(struct file *one, struct file *other)
{
	add_call(one, 1, BATON_OPERATION_SEND, 1, 3, false);
	add_call(other, 1, KIND_CLAIM, 0, 3, false);
	add_call(other, 2, BATON_OPERATION_RECV, 0, 3, false);
	other->ring[1].flags = BATON_TRACE_FOUND;
	other->ring[1].signals = 1;
	add_call(other, 3, BATON_OPERATION_RECV, 0, 3, false);
}

void
seeds(void)
{
	seed(claims);
	seed(messages);
	seed(signals);
}

/* ---- the target ---- */

static void
look_at(const struct trace *trace, const struct trace_op *op)
{
	struct trace_wait wait;
	char what[128];

	CLAIM(op->row == SIZE_MAX || op->row < trace->rows_count);
	CLAIM(op->enqueued != TRACE_NEVER);
	CLAIM(op->ended == TRACE_NEVER || op->ended <= trace->last);
	if (op->match && trace_side(op) == TRACE_RECV)
		CLAIM(op->match->match == op && op->match->of->rank == op->peer);
	trace_what(op, what, sizeof(what));
	CLAIM(what[0] != '\0');
	if (trace_end(op) == TRACE_ENDED)
		return;
	trace_wait_find(trace, op,
	                op->ended == TRACE_NEVER ? TRACE_NEVER : op->ended - 1,
	                &wait);
	CLAIM(wait.why[0] != '\0');
}

static void
examine_trace(struct trace *trace)
{
	size_t count;
	struct trace_op **ops;

	trace_match(trace);
	ops = trace_all(trace, &count);
	for (size_t i = 0; i < count; i++)
		look_at(trace, ops[i]);
	free(ops);
}

static void
release(struct trace *trace)
{
	for (size_t i = 0; i < trace->ranks_count; i++)
		trace_rank_fini(&trace->ranks[i]);
	for (size_t i = 0; i < trace->comms_count; i++)
		free(trace->comms[i].members);
	free(trace->comms);
	free(trace->rows);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct trace_rank ranks[2] = {{{0}}};
	struct trace trace = {.ranks = ranks};
	size_t damaged;

	for (size_t at = 0; at < n && at < 2 * HALF; at += HALF) {
		size_t size = n - at < HALF || at > 0 ? n - at : HALF;
		unsigned char *file = fuzz_copy(bytes + at, size);
		struct trace_rank *rank = &ranks[trace.ranks_count];

		memset(rank, 0, sizeof(*rank));
		if (trace_decode(rank, file, size, &damaged) == NULL)
			trace.ranks_count++;
		else
			trace_rank_fini(rank);
		free(file);
	}
	if (trace.ranks_count > 0 && trace_choose_run(&trace, "fuzz", 0))
		examine_trace(&trace);
	release(&trace);
	return 0;
}
