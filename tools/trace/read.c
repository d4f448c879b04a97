/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One file of BATON_TRACE (baton_trace.h), into memory.
 *
 * Any bytes may stand in it: the process may have died while it wrote, and the file may be anything.  So
 * each table is checked against the bytes that are there, each entry is copied out before it is
 * looked at, and each value that becomes an index, a length or a text is checked here.  Entries that no
 * library writes are left out, and counted.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include <baton.h>

/* More than any communicator has. */
#define RANKS_MAX (1 << 20)
/* Stamps so long after the file's beginning are damaged: ten years. */
#define SECONDS_MAX 315360000.0

struct decoder {
	const unsigned char *bytes;
	size_t size;
	struct trace_rank *rank;
	struct baton_trace_operation *entries; /* by serial */
	size_t count;
};

/* Texts of the file are printed, and go into XML and JSON. */
static void
make_printable(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++) {
		if (*text < ' ' || *text > '~')
			*text = '?';
	}
}

static const char *
check_header(const struct baton_trace_header *header, size_t size)
{
	if (size < 16 || memcmp(header->magic, BATON_TRACE_MAGIC, 8) != 0)
		return "does not begin as a trace does";
	if (header->version == __builtin_bswap32(BATON_TRACE_VERSION))
		return "was written on a machine of the other byte order";
	if (header->version != BATON_TRACE_VERSION)
		return "is of another version of the format";
	if (size < header->header_bytes || header->header_bytes < 128)
		return "is shorter than its header";
	if (header->state == BATON_TRACE_MAKING)
		return "is not complete: its communicator is being created, or its "
		       "process ended meanwhile";
	if (header->size < 1 || header->size > RANKS_MAX || header->rank < 0 ||
	    header->rank >= header->size)
		return "has a rank that there cannot be";
	if (header->clock != BATON_TRACE_TSC && header->clock != BATON_TRACE_PASSES)
		return "has a clock that is not known";
	if (header->ticks_per_second < 1000 ||
	    header->ticks_per_second > UINT64_C(1000000000000))
		return "has a clock of no sensible rate";
	return NULL;
}

static const char *
read_header(const struct decoder *d)
{
	struct baton_trace_header *header = &d->rank->header;
	size_t known = d->size;
	const char *why;

	memset(header, 0, sizeof(*header));
	memcpy(header, d->bytes, known < sizeof(*header) ? known : sizeof(*header));
	why = check_header(header, d->size);
	if (why)
		return why;
	/* What an older library has not in its header is 0. */
	if (header->header_bytes < sizeof(*header))
		memset((char *)header + header->header_bytes, 0,
		       sizeof(*header) - header->header_bytes);
	make_printable(header->boot_id, sizeof(header->boot_id));
	make_printable(header->host, sizeof(header->host));
	make_printable(header->program, sizeof(header->program));
	make_printable(header->library, sizeof(header->library));
	make_printable(header->transport, sizeof(header->transport));
	make_printable(header->device, sizeof(header->device));
	make_printable(header->why, sizeof(header->why));
	return NULL;
}

static bool
is_within(const struct decoder *d, const struct baton_trace_table *table)
{
	return table->stride >= 8 && table->offset <= d->size &&
	       table->count <= (d->size - table->offset) / table->stride;
}

static const char *
check_tables(const struct decoder *d)
{
	const struct baton_trace_header *header = &d->rank->header;

	if (!is_within(d, &header->kinds) || !is_within(d, &header->paths) ||
	    !is_within(d, &header->modules) ||
	    !is_within(d, &header->rounds) || !is_within(d, &header->counters) ||
	    !is_within(d, &header->operations) ||
	    (header->handed.count > 0 && !is_within(d, &header->handed)))
		return "is shorter than its tables: it was cut off";
	return NULL;
}

/* Entry i of a table, as long as this program knows it; what the file has not is 0.  False: there is none. */
static bool
entry(const struct decoder *d, const struct baton_trace_table *table, size_t i,
      void *to, size_t size)
{
	memset(to, 0, size);
	if (i >= table->count)
		return false;
	memcpy(to, d->bytes + table->offset + i * table->stride,
	       table->stride < size ? table->stride : size);
	return true;
}

/* ---- operations ---- */

static int
kind_of(const struct decoder *d, unsigned number)
{
	struct baton_trace_kind kind;

	if (!entry(d, &d->rank->header.kinds, number, &kind, sizeof(kind)))
		return TRACE_OTHER;
	switch (kind.role) {
	case BATON_TRACE_FUNCTION:
		return TRACE_FUNCTION;
	case BATON_TRACE_JOIN:
		return TRACE_JOIN;
	case BATON_TRACE_CLAIM:
		return TRACE_CLAIM;
	default:
		return number >= BATON_OPERATION_SEND &&
				       number <= BATON_OPERATION_ATOMIC
			       ? (int)number
			       : TRACE_OTHER;
	}
}

static int64_t
stamp_of(uint64_t ticks)
{
	return ticks == 0 ? TRACE_NEVER : (int64_t)ticks;
}

static bool
is_stamp(const struct baton_trace_header *header, uint64_t ticks)
{
	uint64_t second = header->ticks_per_second, first = header->first.ticks;

	if (ticks == 0)
		return true;
	/* Readings of PASSES may be behind by a pass. */
	if (ticks > INT64_MAX / 2 || ticks < (first > second ? first - second : 0))
		return false;
	return ticks < first ||
	       (double)(ticks - first) / (double)second < SECONDS_MAX;
}

/* Is it one that a library has written? */
static bool
is_sane(const struct decoder *d, const struct baton_trace_operation *one)
{
	const struct baton_trace_header *header = &d->rank->header;

	if (one->peer < -1 || one->peer >= header->size || one->tag < -1 ||
	    one->signal < -1 || one->context < -1 || one->context > INT16_MAX)
		return false;
	if (one->flags & BATON_TRACE_TERM)
		return one->peer >= 0;
	return one->enqueued != 0 && is_stamp(header, one->enqueued) &&
	       is_stamp(header, one->armed) && is_stamp(header, one->issued) &&
	       is_stamp(header, one->completed);
}

static void
name_site(const struct decoder *d, const struct baton_trace_operation *from,
          char *site, size_t size)
{
	const char *path, *name;

	if (from->module == 0 || from->module > d->rank->modules_count) {
		if (from->offset != 0)
			snprintf(site, size, "0x%llx",
			         (unsigned long long)from->offset);
		return;
	}
	path = d->rank->modules[from->module - 1].path;
	name = strrchr(path, '/');
	snprintf(site, size, "%.56s+0x%llx", name ? name + 1 : path,
	         (unsigned long long)from->offset);
}

/* Some stamps are left out where the operation went on at once. */
static void
fill_stamps(struct trace_op *op)
{
	if (op->armed == TRACE_NEVER && op->issued != TRACE_NEVER)
		op->armed = op->issued;
	if (op->armed == TRACE_NEVER && op->status == BATON_OK)
		op->armed = op->enqueued;
	if (op->armed != TRACE_NEVER && op->armed < op->enqueued)
		op->armed = op->enqueued;
	if (op->ended != TRACE_NEVER && op->armed != TRACE_NEVER &&
	    op->ended < op->armed)
		op->ended = op->armed;
}

static void
read_operation(const struct decoder *d, const struct baton_trace_operation *from,
               struct trace_op *op)
{
	/* The process may have ended between two of its stores. */
	bool ended = from->completed != 0 && from->status != BATON_PENDING;

	*op = (struct trace_op){
		.of = d->rank,
		.kind = kind_of(d, from->kind),
		.status = ended ? from->status : BATON_PENDING,
		.peer = from->peer,
		.tag = from->tag >= 0 ? from->tag : from->signal,
		.context = from->context,
		.flags = from->flags,
		.path = from->path,
		.fresh = from->state == BATON_STATE_CALLED,
		.bytes = ended ? from->done_bytes : from->bytes,
		.units = 1,
		.serial = from->serial,
		.order = from->serial,
		.stream = from->stream,
		.parent = from->parent,
		.enqueued = stamp_of(from->enqueued),
		.armed = stamp_of(from->armed),
		.issued = stamp_of(from->issued),
		.ended = ended ? stamp_of(from->completed) : TRACE_NEVER,
	};
	if (op->kind == BATON_OPERATION_SIGNAL ||
	    op->kind == BATON_OPERATION_PUT_SIGNAL)
		op->units = from->signals;
	/* The claim has its place among the receives. */
	if (op->kind == BATON_OPERATION_RECV && (op->flags & BATON_TRACE_FOUND)) {
		op->units = 0;
		op->found_serial = from->signals;
	}
	if (op->kind == TRACE_JOIN && (op->flags & BATON_TRACE_JOINED)) {
		op->joined_serial = from->signals;
		op->joined_index = from->user_data;
	}
	fill_stamps(op);
	name_site(d, from, op->site, sizeof(op->site));
}

static bool
waits_for_signals(const struct trace_op *op)
{
	return op->kind == BATON_OPERATION_WAIT_SIGNAL ||
	       op->kind == BATON_OPERATION_WAIT_ANY ||
	       op->kind == BATON_OPERATION_WAIT_COUNT;
}

static struct trace_term
term_of(const struct baton_trace_operation *from)
{
	return (struct trace_term){.peer = from->peer,
	                           .tag = from->signal,
	                           .context = from->context,
	                           .units = from->signals};
}

/* The entries behind this one that are terms of it.  Its own counter is the first, if it names one. */
static size_t
read_terms(const struct decoder *d, size_t i, struct trace_op *op,
           struct trace_term *terms)
{
	const struct baton_trace_operation *from = &d->entries[i];
	size_t n = 0;

	if (!waits_for_signals(op))
		return 0;
	op->terms = terms;
	if (from->peer >= 0 && from->signal >= 0 &&
	    !(from->flags & BATON_TRACE_TERMS))
		terms[n++] = term_of(from);
	for (size_t k = i + 1; k < d->count && d->entries[k].parent == from->serial &&
	                       (d->entries[k].flags & BATON_TRACE_TERM);
	     k++)
		terms[n++] = term_of(&d->entries[k]);
	op->terms_count = n;
	return n;
}

static int
compare_entries(const void *a, const void *b)
{
	const struct baton_trace_operation *x = a, *y = b;

	return (x->serial > y->serial) - (x->serial < y->serial);
}

static void
sort_entries(struct decoder *d)
{
	qsort(d->entries, d->count, sizeof(d->entries[0]), compare_entries);
}

/* Copy the entries of the ring that are filled in, and sort them; the number of those that are damaged. */
static size_t
collect_ring(struct decoder *d)
{
	const struct baton_trace_table *table = &d->rank->header.operations;
	size_t damaged = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct baton_trace_operation *next = &d->entries[d->count];

		entry(d, table, i, next, sizeof(*next));
		if (next->serial == 0)
			continue;
		if ((next->serial - 1) % table->count == i && is_sane(d, next))
			d->count++;
		else
			damaged++;
	}
	sort_entries(d);
	return damaged;
}

/* The same of those that the ring has not yet.  Of one that it has, the entry says at most when it began to run. */
static size_t
collect_handed(struct decoder *d)
{
	const struct baton_trace_table *table = &d->rank->header.handed;
	const size_t in_ring = d->count;
	size_t damaged = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct baton_trace_operation *next = &d->entries[d->count], *has, *op;

		entry(d, table, i, next, sizeof(*next));
		if (next->serial == 0)
			continue;
		has = bsearch(next, d->entries, in_ring, sizeof(d->entries[0]),
		              compare_entries);
		if (!is_stamp(&d->rank->header, next->ran) ||
		    (!has && !is_sane(d, next))) {
			damaged++;
			continue;
		}
		op = has ? has : next;
		/* Its stream says that it came to a function, and of nothing else. */
		if (op->armed == 0 && kind_of(d, op->kind) == TRACE_FUNCTION)
			op->armed = next->ran;
		d->count += !has;
	}
	sort_entries(d);
	return damaged;
}

/* The number of entries that are damaged. */
static size_t
collect(struct decoder *d)
{
	const struct baton_trace_header *header = &d->rank->header;

	/* One more: the next one is read before it is known whether there is one. */
	d->entries = trace_alloc((size_t)header->operations.count +
	                                 header->handed.count + 1,
	                         sizeof(d->entries[0]));
	d->count = 0;
	return collect_ring(d) + collect_handed(d);
}

/* Serials are not in the order of the calls: some threads take several at once.  Stamps are. */
static int
compare_calls(const void *a, const void *b)
{
	const struct trace_op *x = a, *y = b;
	int order = trace_order(x->enqueued, y->enqueued);

	return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

/* It has ended, and later ones are lost: it still stands in a slot whose next serial was reserved and is not used.  Among
 * the first ones, which are lost, its number is not known. */
static bool
is_left_over(const struct trace_rank *rank, const struct baton_trace_operation *one)
{
	return one->serial <= rank->lost && one->completed != 0;
}

static void
read_operations(struct decoder *d)
{
	struct trace_rank *rank = d->rank;
	uint64_t given = d->count > 0 ? d->entries[d->count - 1].serial : 0;
	size_t terms = 0;

	if (given > rank->header.operations.count)
		rank->lost = given - rank->header.operations.count;

	rank->ops = trace_alloc(d->count, sizeof(rank->ops[0]));
	/* An entry is a wait of one counter, or a term. */
	rank->terms = trace_alloc(d->count, sizeof(rank->terms[0]));
	for (size_t i = 0; i < d->count; i++) {
		struct trace_op *op = &rank->ops[rank->ops_count];

		if ((d->entries[i].flags & BATON_TRACE_TERM) ||
		    is_left_over(rank, &d->entries[i]))
			continue;
		read_operation(d, &d->entries[i], op);
		terms += read_terms(d, i, op, rank->terms + terms);
		rank->ops_count++;
	}
	qsort(rank->ops, rank->ops_count, sizeof(rank->ops[0]), compare_calls);
	for (size_t i = 0; i < rank->ops_count; i++)
		rank->ops[i].order = i + 1;
}

/* ---- counters and rounds ---- */

static enum trace_side
side_of_kind(unsigned kind)
{
	switch (kind) {
	case BATON_OPERATION_SEND:
		return TRACE_SEND;
	case BATON_OPERATION_RECV:
		return TRACE_RECV;
	case BATON_OPERATION_SIGNAL:
	case BATON_OPERATION_PUT_SIGNAL:
		return TRACE_SIGNAL;
	case BATON_OPERATION_WAIT_SIGNAL:
		return TRACE_WAIT;
	case BATON_OPERATION_BARRIER:
		return TRACE_BARRIER;
	default:
		return TRACE_NO_SIDE;
	}
}

static bool
is_counter(const struct decoder *d, const struct baton_trace_counter *counter)
{
	return counter->used == 1 && counter->peer >= -1 &&
	       counter->peer < d->rank->header.size && counter->tag >= -1 &&
	       counter->context >= -1 &&
	       side_of_kind(counter->kind) != TRACE_NO_SIDE;
}

static struct trace_queue
queue_of(const struct baton_trace_counter *counter)
{
	enum trace_side side = side_of_kind(counter->kind);
	bool units = side == TRACE_SIGNAL || side == TRACE_WAIT;
	uint64_t done = counter->moved + counter->completed + counter->failed;

	return (struct trace_queue){
		.side = side,
		.peer = counter->peer,
		.tag = counter->tag,
		.context = counter->context,
		.called = units ? counter->signals : counter->called - counter->moved,
		.ended = counter->completed,
		.failed = counter->failed,
		.pending = counter->called > done ? counter->called - done : 0,
		.counted = true};
}

static void
read_counters(const struct decoder *d)
{
	const struct baton_trace_table *table = &d->rank->header.counters;
	struct trace_rank *rank = d->rank;
	struct baton_trace_counter counter;

	rank->queues = trace_alloc(table->count, sizeof(rank->queues[0]));
	for (size_t i = 0; i < table->count; i++) {
		entry(d, table, i, &counter, sizeof(counter));
		if (is_counter(d, &counter))
			rank->queues[rank->queues_count++] = queue_of(&counter);
	}
}

static void
read_rounds(const struct decoder *d)
{
	const struct baton_trace_table *table = &d->rank->header.rounds;
	struct trace_rank *rank = d->rank;

	rank->rounds = trace_alloc(table->count, sizeof(rank->rounds[0]));
	for (size_t i = 0; i < table->count; i++) {
		struct baton_trace_round *next = &rank->rounds[rank->rounds_count];

		entry(d, table, i, next, sizeof(*next));
		if (next->number > 0 && next->enter > 0 &&
		    next->leave >= next->enter &&
		    is_stamp(&rank->header, next->enter) &&
		    is_stamp(&rank->header, next->leave))
			rank->rounds_count++;
	}
}

/* ---- names ---- */

static void
read_names(const struct decoder *d)
{
	const struct baton_trace_header *header = &d->rank->header;
	struct trace_rank *rank = d->rank;
	uint32_t paths = header->paths.count, modules = header->modules.count;

	paths = header->paths_known < paths ? header->paths_known : paths;
	modules = header->modules_known < modules ? header->modules_known : modules;
	rank->paths = trace_alloc(paths, sizeof(rank->paths[0]));
	rank->modules = trace_alloc(modules, sizeof(rank->modules[0]));
	for (uint32_t i = 0; i < paths; i++) {
		struct baton_trace_path *path = &rank->paths[rank->paths_count++];

		entry(d, &header->paths, i, path, sizeof(*path));
		make_printable(path->name, sizeof(path->name));
	}
	for (uint32_t i = 0; i < modules; i++) {
		struct baton_trace_module *module =
			&rank->modules[rank->modules_count++];

		entry(d, &header->modules, i, module, sizeof(*module));
		make_printable(module->path, sizeof(module->path));
		if (module->build_id_bytes > sizeof(module->build_id))
			module->build_id_bytes = 0;
	}
}

const char *
trace_decode(struct trace_rank *rank, const unsigned char *bytes, size_t size,
             size_t *damaged_p)
{
	struct decoder d = {.bytes = bytes, .size = size, .rank = rank};
	const char *why = read_header(&d);

	*damaged_p = 0;
	if (!why)
		why = check_tables(&d);
	if (why)
		return why;
	rank->rank = rank->header.rank;
	read_names(&d);
	*damaged_p = collect(&d);
	read_operations(&d);
	free(d.entries);
	read_counters(&d);
	read_rounds(&d);
	return NULL;
}

void
trace_rank_fini(struct trace_rank *rank)
{
	free(rank->ops);
	free(rank->terms);
	free(rank->queues);
	free(rank->rounds);
	free(rank->paths);
	free(rank->modules);
}
