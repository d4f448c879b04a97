/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which files belong together, and which are missing.
 *
 * A folder may have files of several runs, as the library removes none.  Files of one communicator
 * have its ID; communicators that a process is in belong to one run.  One run is shown: the one that began
 * last, or the one that was asked for.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <baton.h>

bool
trace_same_process(const struct trace_rank *a, const struct trace_rank *b)
{
	return a->header.pid == b->header.pid &&
	       a->header.process_start == b->header.process_start &&
	       strcmp(a->header.boot_id, b->header.boot_id) == 0 &&
	       strcmp(a->header.host, b->header.host) == 0;
}

/* Files of one communicator, and of one process, are of one run: the lowest number of those spreads. */
static void
find_runs(struct trace *trace)
{
	bool changed = true;

	for (size_t i = 0; i < trace->ranks_count; i++)
		trace->ranks[i].run = i;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < trace->ranks_count; i++) {
			struct trace_rank *a = &trace->ranks[i];

			for (size_t k = 0; k < i; k++) {
				struct trace_rank *b = &trace->ranks[k];

				if (a->run == b->run ||
				    (a->header.communicator !=
				             b->header.communicator &&
				     !trace_same_process(a, b)))
					continue;
				a->run = a->run < b->run ? a->run : b->run;
				b->run = a->run;
				changed = true;
			}
		}
	}
}

static bool
is_named(const struct trace *trace, size_t run, uint64_t communicator)
{
	for (size_t i = 0; i < trace->ranks_count; i++) {
		if (trace->ranks[i].run == run &&
		    trace->ranks[i].header.communicator == communicator)
			return true;
	}
	return false;
}

/* The one that has this communicator; of 0 the one that began last.  SIZE_MAX: there is none. */
static size_t
choose_run(const struct trace *trace, uint64_t communicator)
{
	size_t run = SIZE_MAX;
	uint64_t latest = 0;

	for (size_t i = 0; i < trace->ranks_count; i++) {
		const struct trace_rank *rank = &trace->ranks[i];

		if (communicator != 0 && !is_named(trace, rank->run, communicator))
			continue;
		if (run == SIZE_MAX || rank->header.first.real_ns >= latest) {
			run = rank->run;
			latest = rank->header.first.real_ns;
		}
	}
	return run;
}

/* Each of the others once. */
static void
tell_of_run(struct trace *trace, const struct trace_rank *rank, bool *several)
{
	for (const struct trace_rank *other = trace->ranks; other < rank; other++) {
		if (other->run == rank->run)
			return;
	}
	if (!*several)
		trace_check(trace, "the folder has files of several runs: one is shown, "
		                   "and --run chooses another");
	*several = true;
	trace_check(trace, "not shown: the run of %s with %d ranks (--run=%016" PRIx64 ")",
	            rank->header.program, rank->header.size,
	            rank->header.communicator);
}

static bool
keep_run(struct trace *trace, const char *folder, uint64_t communicator)
{
	size_t run = choose_run(trace, communicator), kept = 0;
	bool several = false;

	if (run == SIZE_MAX) {
		fprintf(stderr,
		        communicator == 0
		                ? "baton trace: no file of %s can be read\n"
		                : "baton trace: no file of %s is of that run\n",
		        folder);
		trace_print_checks(trace);
		return false;
	}
	for (size_t i = 0; i < trace->ranks_count; i++) {
		if (trace->ranks[i].run != run)
			tell_of_run(trace, &trace->ranks[i], &several);
	}
	for (size_t i = 0; i < trace->ranks_count; i++) {
		if (trace->ranks[i].run == run)
			trace->ranks[kept++] = trace->ranks[i];
		else
			trace_rank_fini(&trace->ranks[i]);
	}
	trace->ranks_count = kept;
	return true;
}

/* ---- communicators ---- */

static void
find_beginning(const struct trace *trace, struct trace_rank *rank)
{
	rank->began = UINT64_MAX;
	for (size_t i = 0; i < trace->ranks_count; i++) {
		const struct baton_trace_header *other = &trace->ranks[i].header;

		if (other->communicator == rank->header.communicator &&
		    other->first.real_ns < rank->began)
			rank->began = other->first.real_ns;
	}
}

/* The largest communicators first, of these the oldest. */
static int
compare_ranks(const void *a, const void *b)
{
	const struct trace_rank *x = a, *y = b;
	int order = trace_order(y->header.size, x->header.size);

	if (order == 0)
		order = (x->began > y->began) - (x->began < y->began);
	if (order == 0)
		order = (x->header.communicator > y->header.communicator) -
		        (x->header.communicator < y->header.communicator);
	if (order == 0)
		order = trace_order(x->rank, y->rank);
	return order != 0 ? order : strcmp(x->file, y->file);
}

/* Files that the ones before them contradict are left out. */
static void
drop_contradictions(struct trace *trace)
{
	size_t kept = 0;

	for (size_t i = 0; i < trace->ranks_count; i++) {
		struct trace_rank *rank = &trace->ranks[i], *before = NULL;

		for (size_t k = 0; k < kept; k++) {
			if (trace->ranks[k].header.communicator ==
			            rank->header.communicator &&
			    (trace->ranks[k].rank == rank->rank ||
			     trace->ranks[k].header.size != rank->header.size))
				before = &trace->ranks[k];
		}
		if (!before) {
			if (kept < i)
				trace->ranks[kept] = *rank;
			kept++;
			continue;
		}
		trace->incomplete = true;
		trace_check(trace,
		            "%s is left out: it says that it is rank %d of %d of a "
		            "communicator of which %s is rank %d of %d",
		            rank->file, rank->rank, rank->header.size, before->file,
		            before->rank, before->header.size);
		trace_rank_fini(rank);
	}
	trace->ranks_count = kept;
}

static void
tell_of_missing(struct trace *trace, const struct trace_comm *comm)
{
	char text[256] = "";
	int missing = 0;

	for (int i = 0; i < comm->size; i++) {
		size_t length = strlen(text);

		if (comm->members[i])
			continue;
		missing++;
		if (length + 16 < sizeof(text))
			snprintf(text + length, sizeof(text) - length, "%s%d",
			         length > 0 ? ", " : "", i);
		else if (text[length - 1] != '.')
			snprintf(text + length, sizeof(text) - length, " ...");
	}
	if (missing == 0)
		return;
	trace->incomplete = true;
	trace_check(trace,
	            "communicator %016" PRIx64 " has %d ranks, and the files of %d "
	            "are missing: rank %s",
	            comm->id, comm->size, missing, text);
}

static void
tell_of_rank(struct trace *trace, const struct trace_rank *rank)
{
	const struct baton_trace_header *header = &rank->header;

	if (rank->lost > 0)
		trace_check(trace,
		            "%s: the first %" PRIu64 " operations were overwritten "
		            "in the ring, which has room for %u "
		            "(BATON_TRACE_OPERATIONS); --hang still counts them, "
		            "and times, messages and bytes are of the rest",
		            rank->file, rank->lost, header->operations.count);
	if (header->status != BATON_OK)
		trace_check(trace, "%s: the communicator ended in %s: %s",
		            rank->file,
		            baton_status_name((enum baton_status)header->status),
		            header->why);
	if (header->counters_missed > 0)
		trace_check(trace,
		            "%s: %" PRIu64 " operations had peers and tags for which "
		            "the table of counters, of %u, had no room",
		            rank->file, header->counters_missed,
		            header->counters.count);
}

/* Ranks of a communicator by what is known of their processes: "0, 1, 2"; their number. */
static int
list_ranks(const struct trace_comm *comm, enum trace_life life, char *text, size_t size)
{
	int count = 0;

	text[0] = '\0';
	for (int i = 0; i < comm->size; i++) {
		const struct trace_rank *rank = comm->members[i];
		size_t length = strlen(text);

		if (!rank || rank->life != life)
			continue;
		count++;
		if (length + 16 < size)
			snprintf(text + length, size - length, "%s%d",
			         length > 0 ? ", " : "", i);
	}
	return count;
}

static void
tell_of_ends(struct trace *trace, const struct trace_comm *comm)
{
	static const struct {
		enum trace_life life;
		const char *words;
	} lives[] = {{TRACE_RUNS, "still run"},
	             {TRACE_GONE, "have ended without destroying it"},
	             {TRACE_ELSEWHERE,
	              "have not destroyed it, and whether they still run only their "
	              "own nodes know"}};
	char text[256];

	for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
		int count = list_ranks(comm, lives[i].life, text, sizeof(text));

		if (count > 0)
			trace_check(trace,
			            "communicator %016" PRIx64 ": %d of %d ranks %s: %s",
			            comm->id, count, comm->size, lives[i].words, text);
	}
}

static void
make_comms(struct trace *trace)
{
	trace->comms = trace_alloc(trace->ranks_count, sizeof(trace->comms[0]));
	for (size_t i = 0; i < trace->ranks_count; i++) {
		struct trace_rank *rank = &trace->ranks[i];
		struct trace_comm *comm = &trace->comms[trace->comms_count];

		if (i > 0 && rank[-1].header.communicator ==
		                     rank->header.communicator) {
			comm--;
		} else {
			*comm = (struct trace_comm){
				.id = rank->header.communicator,
				.size = rank->header.size};
			comm->members = trace_alloc((size_t)comm->size,
			                            sizeof(comm->members[0]));
			trace->comms_count++;
		}
		rank->comm = (size_t)(comm - trace->comms);
		comm->members[rank->rank] = rank;
		for (size_t k = 0; k < rank->ops_count; k++)
			rank->ops[k].of = rank;
	}
}

bool
trace_choose_run(struct trace *trace, const char *folder, uint64_t run)
{
	find_runs(trace);
	if (!keep_run(trace, folder, run))
		return false;
	for (size_t i = 0; i < trace->ranks_count; i++)
		find_beginning(trace, &trace->ranks[i]);
	qsort(trace->ranks, trace->ranks_count, sizeof(trace->ranks[0]),
	      compare_ranks);
	drop_contradictions(trace);
	make_comms(trace);
	for (size_t i = 0; i < trace->comms_count; i++) {
		tell_of_missing(trace, &trace->comms[i]);
		tell_of_ends(trace, &trace->comms[i]);
	}
	for (size_t i = 0; i < trace->ranks_count; i++)
		tell_of_rank(trace, &trace->ranks[i]);
	return true;
}
