/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When to look again.  Each path counts its load (load.h).  Here the loads are added up, and
 * the sum is judged; nothing else in the engine combines these counters.
 */
#include "core.h"

/* sum->quiet is that of the transport. */
static void
add(struct batoni_load *sum, const struct batoni_load *path)
{
	sum->moving += path->moving;
	sum->parked += path->parked;
	sum->awaiting += path->awaiting;
	sum->polled += path->polled;
	if (!path->quiet)
		sum->in_flight += path->in_flight;
	/* Their messages come by calls of this process. */
	if (!sum->quiet)
		sum->standing += path->standing;
}

struct batoni_load
batoni_comm_load(const struct baton_comm *comm)
{
	struct batoni_load sum = {.quiet = comm->transport->messages.load.quiet};

	for (uint32_t i = 0; i < comm->paths_count; i++)
		add(&sum, &comm->paths[i]->load);
	/* A hold is for messages that may come. */
	sum.in_flight += comm->held;
	sum.awaiting += comm->held;
	sum.polled += comm->marked != NULL;
	return sum;
}

enum batoni_look
batoni_load_look(const struct batoni_load *sum)
{
	if (sum->moving || sum->polled)
		return BATONI_LOOK_MOVING;
	if (sum->in_flight > sum->parked + sum->awaiting + sum->standing)
		return BATONI_LOOK_PENDING;
	if (sum->awaiting && sum->standing)
		return BATONI_LOOK_WATCH;
	return BATONI_LOOK_WHEN_RUNG;
}

struct batoni_outlook
batoni_look_ahead(void)
{
	struct batoni_outlook outlook = {.deadline = BATONI_NEVER};

	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		struct batoni_load sum;
		enum batoni_look look;

		if (!batoni_may_drive(comm))
			continue;
		sum = batoni_comm_load(comm);
		look = batoni_load_look(&sum);
		if (look > outlook.look)
			outlook.look = look;
		if (comm->deadline_next < outlook.deadline)
			outlook.deadline = comm->deadline_next;
		outlook.parked |= sum.parked > 0;
		outlook.parked_on_others |= sum.parked > 0 && !sum.quiet;
	}
	return outlook;
}
