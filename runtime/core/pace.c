/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the engine's thread naps between its looks.
 *
 * After events a nap is short; each one without events is twice as long as the last, up to
 * a limit that depends on when to look again (load.h).
 *
 * While bytes move, the limit follows the rate at which they come.  A look that moves bytes
 * costs processor time, and so work in time stands for that rate.  The wake for a look costs
 * 15 us, so naps become longer for as long as the rate stays: what has come meanwhile was
 * buffered below.  Where it drops, the bytes wait for looks, and naps become shorter.
 *
 * While bytes move, a nap is at least twice as long as the look before it.  The thread has then
 * had less than its share of the core, and the scheduler lets it preempt the thread that
 * computes.  A thread that has had more waits for the next tick of the kernel, up to 4 ms.
 */
#include "pace.h"

#define NAP_MOVING_MIN_NS 200000u
#define NAP_MOVING_MAX_NS 800000u
#define NAP_WATCHING_NS 6000000u /* only one-sided messages may arrive */
#define SHARE 2u

static uint64_t
at_most(uint64_t ns, uint64_t most_ns)
{
	return ns < most_ns ? ns : most_ns;
}

/* A nap of longest_ns is over. */
static void
follow_rate(struct batoni_pace *pace, uint64_t rate)
{
	if (rate >= pace->rate - pace->rate / 4)
		pace->longest_ns = at_most(pace->longest_ns * 2,
		                           NAP_MOVING_MAX_NS);
	else if (pace->longest_ns > NAP_MOVING_MIN_NS)
		pace->longest_ns /= 2;
	pace->rate = rate;
}

static uint64_t
longest_moving(struct batoni_pace *pace, const struct batoni_looked *looked)
{
	uint64_t took_ns = looked->now_ns - pace->looked_ns;

	if (looked->events || pace->longest_ns == 0) {
		pace->longest_ns = NAP_MOVING_MIN_NS;
		pace->rate = 0;
	} else if (pace->nap_ns >= pace->longest_ns && took_ns > 0) {
		follow_rate(pace, looked->worked_ns * 1024 / took_ns);
	}
	return pace->longest_ns;
}

static uint64_t
longest(struct batoni_pace *pace, const struct batoni_looked *looked)
{
	if (looked->look != BATONI_LOOK_MOVING &&
	    looked->look != BATONI_LOOK_DEVICE)
		pace->longest_ns = 0;
	switch (looked->look) {
	case BATONI_LOOK_DEVICE:
	case BATONI_LOOK_MOVING:
		return longest_moving(pace, looked);
	case BATONI_LOOK_WATCH:
		return NAP_WATCHING_NS;
	case BATONI_LOOK_WHEN_RUNG:
	case BATONI_LOOK_PENDING:
		break;
	}
	return looked->tick_ns;
}

uint64_t
batoni_pace_nap(struct batoni_pace *pace, const struct batoni_looked *looked)
{
	uint64_t most_ns = longest(pace, looked);
	uint64_t fair_ns = at_most(looked->worked_ns * SHARE, BATONI_TICK_NS);
	uint64_t nap_ns = BATONI_NAP_MIN_NS;

	if (!looked->events && pace->nap_ns > 0)
		nap_ns = at_most(pace->nap_ns * 2, most_ns);

	if (looked->look == BATONI_LOOK_MOVING && nap_ns < fair_ns)
		nap_ns = fair_ns;
	pace->looked_ns = looked->now_ns;
	pace->nap_ns = nap_ns;
	return nap_ns;
}
