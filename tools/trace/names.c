/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks are called, where there are communicators of other ranks than the first and largest one has.
 *
 * An operation's ranks are those of its communicator.  That one has a number of its own then, which is said with the
 * operation; a communicator that has the same ranks as the first one (a copy of it) has that one's.  Rows are of
 * processes: a process is called by its rank in its largest communicator.  Of ranks that are threads of one
 * process the files do not say which thread of one communicator is which of another.
 */
#include "trace.h"

#include <inttypes.h>
#include <string.h>

#include <baton.h>

#define SENTENCES_MAX 16u
#define MEMBERS_MAX 32

static bool
shares_process(const struct trace_comm *comm, const struct trace_rank *rank)
{
	for (int i = 0; i < comm->size; i++) {
		if (comm->members[i] && comm->members[i] != rank &&
		    trace_same_process(comm->members[i], rank))
			return true;
	}
	return false;
}

/* As far as is known. */
static bool
has_same_ranks(const struct trace_comm *a, const struct trace_comm *b)
{
	if (a->size != b->size)
		return false;
	for (int i = 0; i < a->size; i++) {
		if (a->members[i] && b->members[i] &&
		    !trace_same_process(a->members[i], b->members[i]))
			return false;
	}
	return true;
}

static void
number_comms(struct trace *trace)
{
	for (size_t i = 0; i < trace->comms_count; i++) {
		struct trace_comm *comm = &trace->comms[i];

		comm->number = has_same_ranks(comm, &trace->comms[0]) ? 1 : (int)i + 1;
	}
	for (size_t i = 0; i < trace->ranks_count; i++)
		trace->ranks[i].comm_number = trace->comms[trace->ranks[i].comm].number;
}

/* The n-th communicator that has a number of its own, from 0 on. */
static const struct trace_comm *
find_numbered(const struct trace *trace, size_t n)
{
	for (size_t i = 1; i < trace->comms_count; i++) {
		if (trace->comms[i].number > 1 && n-- == 0)
			return &trace->comms[i];
	}
	return NULL;
}

/* The rank by which the process is called: that of its largest communicator, which comes first. */
static const struct trace_rank *
find_name(const struct trace *trace, const struct trace_rank *rank)
{
	if (shares_process(&trace->comms[rank->comm], rank))
		return rank;
	for (size_t i = 0; i < trace->ranks_count; i++) {
		if (trace_same_process(&trace->ranks[i], rank))
			return &trace->ranks[i];
	}
	return rank;
}

void
trace_names(struct trace *trace)
{
	number_comms(trace);
	trace->comms_differ = find_numbered(trace, 0) != NULL;
	for (size_t i = 0; i < trace->ranks_count; i++) {
		const struct trace_rank *named = find_name(trace, &trace->ranks[i]);

		trace->ranks[i].name = named->rank;
		trace->ranks[i].name_comm = named->comm_number;
	}
	for (size_t i = 0; i < SENTENCES_MAX + 1; i++) {
		char text[512];

		if (!trace_comm_sentence(trace, i, text, sizeof(text)))
			break;
		trace_check(trace, "%s",
		            i < SENTENCES_MAX ? text
		                              : "and there are more communicators of "
		                                "other ranks");
	}
}

/* ---- in words ---- */

void
trace_name(const struct trace_rank *rank, char *text, size_t size)
{
	if (rank->name_comm > 1)
		snprintf(text, size, "rank %d of communicator %d", rank->name,
		         rank->name_comm);
	else
		snprintf(text, size, "rank %d", rank->name);
}

/* "2, 3, -": the members by their ranks in the first communicator.  How many are there. */
static int
list_members(const struct trace_comm *comm, char *text, size_t size)
{
	int known = 0;

	text[0] = '\0';
	for (int i = 0; i < comm->size; i++) {
		const struct trace_rank *rank = comm->members[i];
		size_t length = strlen(text);

		known += rank && rank->name_comm == 1;
		if (i == MEMBERS_MAX)
			snprintf(text + length, size - length, ", ...");
		else if (i < MEMBERS_MAX && rank && rank->name_comm == 1)
			snprintf(text + length, size - length, "%s%d",
			         i > 0 ? ", " : "", rank->name);
		else if (i < MEMBERS_MAX)
			snprintf(text + length, size - length, "%s-",
			         i > 0 ? ", " : "");
	}
	return known;
}

bool
trace_comm_sentence(const struct trace *trace, size_t n, char *text, size_t size)
{
	const struct trace_comm *comm = n == 0 ? &trace->comms[0]
	                                       : find_numbered(trace, n - 1);
	char members[256];
	int known;

	if (!comm || !trace->comms_differ)
		return false;
	if (n == 0) {
		snprintf(text, size,
		         "ranks are those of communicator 1 (%016" PRIx64 ", of %d "
		         "ranks) where no other one is named",
		         comm->id, comm->size);
		return true;
	}
	known = list_members(comm, members, sizeof(members));
	snprintf(text, size,
	         known == 0 ? "communicator %d (%016" PRIx64 ") has %d ranks; the "
	                      "files do not say which of communicator 1 they are"
	                    : "communicator %d (%016" PRIx64 ") has %d ranks, which in "
	                      "communicator 1 are: %s%s",
	         comm->number, comm->id, comm->size, members,
	         known < comm->size ? " (-: not known, or not in it)" : "");
	return true;
}
