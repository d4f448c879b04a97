/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The forecast: when to poll again.  Each path counts its load (load.h).  This file adds the loads up
 * and judges the sum; nothing else in the engine combines these counters.
 */
#include "core.h"

#include "forecast.h"

#define TICK_NS 900000u
#define TICK_MORE_NS 2000000u
#define TICK_MANY_NS 2500000u
#define TESTS_MANY 128u
#define SLEEP_LISTENING_NS 1000000000u
#define SLEEP_HEALTH_NS 250000000u /* the same, where the health of a device has to be asked for (batoni_awaits_health) */

/* sum->quiet and sum->parks are those of the transport whose messages the one-sided layer uses. */
static void
add_load(struct batoni_load *sum, const struct batoni_load *path)
{
	sum->moving += path->moving;
	sum->parked += path->parked;
	sum->unrung |= path->unrung && path->parked;
	sum->awaiting += path->awaiting;
	sum->polled += path->polled;
	sum->more_tests += path->more_tests;
	if (!path->quiet)
		sum->in_flight += path->in_flight;
	/* If it is quiet, calls of this process bring the messages; if it parks, `parked` counts
	 * the standing receives. */
	if (!sum->quiet && !sum->parks)
		sum->standing += path->standing;
}

struct batoni_load
batoni_comm_load(const struct baton_comm *comm)
{
	const struct batoni_path *messages =
		comm->hosts_path ? comm->hosts_path : &comm->transport->messages;
	struct batoni_load sum = {.quiet = messages->load.quiet,
	                          .parks = messages->load.parks};

	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_load load = comm->paths[i]->load;

		/* Only the marks tell when lent buffers are free. */
		if (comm->fault.aborted && comm->paths[i]->ops->stream_issued)
			load.in_flight = 0;
		add_load(&sum, &load);
	}
	/* A held communicator polls for one-sided messages of its peers. */
	sum.in_flight += comm->work.held;
	sum.awaiting += comm->work.held;
	sum.polled += comm->marks.issued != NULL;
	/* All operations have ended: transfers that still move can only return lent buffers. */
	if (comm->fault.aborted)
		sum.moving = 0;
	return sum;
}

enum batoni_poll
batoni_load_poll(const struct batoni_load *sum)
{
	bool pending = sum->in_flight >
	               sum->parked + sum->awaiting + sum->standing;

	if (sum->moving || (sum->polled && pending))
		return BATONI_POLL_MOVING;
	if (pending)
		return BATONI_POLL_PENDING;
	if (sum->polled)
		return BATONI_POLL_DEVICE;
	if ((sum->awaiting && sum->standing) || sum->unrung)
		return BATONI_POLL_WATCH;
	return BATONI_POLL_WHEN_RUNG;
}

/* A wake costs about 20 us on a virtual machine, and a test of 64 requests 0.1 to 0.4 us.
 * With these values both together take at most 2 % of a core with 4096 requests and 5 % with
 * 16384.  A message is seen half a tick late on average. */
uint64_t
batoni_tick_ns(uint32_t more_tests)
{
	if (more_tests == 0)
		return TICK_NS;
	return more_tests < TESTS_MANY ? TICK_MORE_NS : TICK_MANY_NS;
}

/* The answer for both. */
static enum batoni_poll
soonest(enum batoni_poll a, enum batoni_poll b)
{
	if ((a == BATONI_POLL_DEVICE && b == BATONI_POLL_PENDING) ||
	    (a == BATONI_POLL_PENDING && b == BATONI_POLL_DEVICE))
		return BATONI_POLL_MOVING;
	return a > b ? a : b;
}

struct batoni_forecast
batoni_forecast_now(void)
{
	struct batoni_forecast forecast = {.deadline = BATONI_NEVER};

	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->work.next) {
		struct batoni_load sum;

		if (!batoni_may_drive(comm))
			continue;
		sum = batoni_comm_load(comm);
		forecast.poll = soonest(forecast.poll, batoni_load_poll(&sum));
		if (comm->deadlines.next_ns < forecast.deadline)
			forecast.deadline = comm->deadlines.next_ns;
		forecast.more_tests += sum.more_tests;
		forecast.parked |= sum.parked > 0;
		forecast.parked_on_others |= sum.parked > 0 && !sum.quiet;
	}
	return forecast;
}

bool
batoni_comm_awaits_health(const struct baton_comm *comm)
{
	return !comm->in_engine || comm->liveness.gone > comm->liveness.silent;
}

bool
batoni_awaits_health(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->work.next) {
		if (batoni_comm_awaits_health(comm))
			return true;
	}
	return false;
}

uint64_t
batoni_sleep_most_ns(bool parked, bool health)
{
	if (health)
		return SLEEP_HEALTH_NS;
	return parked ? SLEEP_LISTENING_NS : BATONI_NEVER;
}
