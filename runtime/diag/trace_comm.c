/* SPDX-License-Identifier: BSD-3-Clause */
/* What a communicator tells its trace beside its operations: its making, paths, rounds and end. */
#include "trace.h"

#include <string.h>

#include "ticks.h"
#include "trace_file.h"

void
batoni_trace_make(struct baton_comm *comm)
{
	if (unlikely(*batoni_config()->trace) && comm->setup.trace_error == 0)
		comm->trace = batoni_trace_file_make(comm);
}

void
batoni_trace_discard(struct baton_comm *comm)
{
	if (comm->trace)
		batoni_trace_file_discard(comm->trace);
	comm->trace = NULL;
}

const struct batoni_observer *
batoni_trace_observer(struct baton_comm *comm)
{
	if (likely(!comm->trace))
		return NULL;
	batoni_trace_file_open(comm->trace, comm);
	return &batoni_trace_observes;
}

void
batoni_trace_paths(struct baton_comm *comm)
{
	struct batoni_trace *trace = comm->trace;
	struct baton_trace_path *paths;

	if (!trace)
		return;
	paths = (void *)((char *)trace->header + trace->header->paths.offset);
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		const char *name = comm->paths[i]->ops->name;

		strncpy(paths[i].name, name, sizeof(paths[i].name) - 1);
	}
	__atomic_store_n(&trace->header->paths_known, comm->paths_count,
	                 __ATOMIC_RELEASE);
}

const char *
batoni_trace_path(const struct baton_comm *comm)
{
	return comm->trace ? comm->trace->path : NULL;
}

void
batoni_trace_round(struct baton_comm *comm, uint64_t enter, uint64_t leave)
{
	struct batoni_trace *trace = comm ? comm->trace : NULL;
	struct baton_trace_round *round;
	uint64_t number;

	if (!trace || !enter)
		return;
	number = trace->header->rounds_known + 1;
	round = &trace->rounds[number < BATONI_TRACE_ROUNDS
	                               ? number - 1
	                               : BATONI_TRACE_ROUNDS - 1];
	*round = (struct baton_trace_round){number, enter, leave, 0};
	__atomic_store_n(&trace->header->rounds_known, number, __ATOMIC_RELEASE);
}

void
batoni_trace_leaves(struct baton_comm *comm)
{
	if (comm->trace && !comm->trace->leaves)
		comm->trace->leaves = batoni_ticks();
}

void
batoni_trace_close(struct baton_comm *comm, bool together)
{
	struct batoni_trace *trace = comm->trace;

	if (!trace)
		return;
	/* An older stamp would make the bound of the clocks wrong. */
	batoni_ticks_pass();
	if (together)
		batoni_trace_round(comm, trace->leaves, batoni_ticks());
	batoni_trace_file_note_fault(trace, comm);
	batoni_trace_file_close(trace);
	comm->trace = NULL;
}
