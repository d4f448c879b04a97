/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the engine's thread sleeps between its polls.
 *
 * After events a sleep is short; each one without events is twice as long as the last, up to
 * a limit that depends on when to poll again (load.h).
 *
 * While bytes move, the limit follows the rate at which they come.  A poll that moves bytes costs
 * processor time, and so work in time stands for that rate.  The wake for a poll costs 15 us, so
 * sleeps become longer for as long as the rate stays: what has come meanwhile was buffered by the
 * transport.  Where it drops, the bytes wait for polls, and sleeps become shorter.
 *
 * While bytes move, a sleep is at least twice as long as the poll before it.  The thread has then
 * had less than its share of the core, and the scheduler lets it preempt the thread that
 * computes.  A thread that has had more waits for the next tick of the kernel, up to 4 ms.
 */
#include "backoff.h"

#define BACKOFF_MOVING_MIN_NS 200000u
#define BACKOFF_MOVING_MAX_NS 800000u
#define BACKOFF_WATCHING_NS 6000000u /* only one-sided messages may arrive */
#define SHARE 2u

static uint64_t
at_most(uint64_t ns, uint64_t most_ns)
{
	return ns < most_ns ? ns : most_ns;
}

/* Adapt the limit behind a sleep of longest_ns. */
static void
follow_rate(struct batoni_backoff *backoff, uint64_t rate)
{
	if (rate >= backoff->rate - backoff->rate / 4)
		backoff->longest_ns = at_most(backoff->longest_ns * 2,
		                              BACKOFF_MOVING_MAX_NS);
	else if (backoff->longest_ns > BACKOFF_MOVING_MIN_NS)
		backoff->longest_ns /= 2;
	backoff->rate = rate;
}

static uint64_t
longest_moving(struct batoni_backoff *backoff, const struct batoni_polled *polled)
{
	uint64_t took_ns = polled->now_ns - backoff->looked_ns;

	if (polled->events || backoff->longest_ns == 0) {
		backoff->longest_ns = BACKOFF_MOVING_MIN_NS;
		backoff->rate = 0;
	} else if (backoff->sleep_ns >= backoff->longest_ns && took_ns > 0) {
		follow_rate(backoff, polled->worked_ns * 1024 / took_ns);
	}
	return backoff->longest_ns;
}

static uint64_t
longest(struct batoni_backoff *backoff, const struct batoni_polled *polled)
{
	if (polled->poll != BATONI_POLL_MOVING &&
	    polled->poll != BATONI_POLL_DEVICE)
		backoff->longest_ns = 0;
	switch (polled->poll) {
	case BATONI_POLL_DEVICE:
	case BATONI_POLL_MOVING:
		return longest_moving(backoff, polled);
	case BATONI_POLL_WATCH:
		return BACKOFF_WATCHING_NS;
	case BATONI_POLL_WHEN_RUNG:
	case BATONI_POLL_PENDING:
		break;
	}
	return polled->tick_ns;
}

uint64_t
batoni_backoff_next(struct batoni_backoff *backoff, const struct batoni_polled *polled)
{
	uint64_t most_ns = longest(backoff, polled);
	uint64_t fair_ns = at_most(polled->worked_ns * SHARE, BATONI_TICK_NS);
	uint64_t sleep_ns = BATONI_BACKOFF_MIN_NS;

	if (!polled->events && backoff->sleep_ns > 0)
		sleep_ns = at_most(backoff->sleep_ns * 2, most_ns);

	if (polled->poll == BATONI_POLL_MOVING && sleep_ns < fair_ns)
		sleep_ns = fair_ns;
	backoff->looked_ns = polled->now_ns;
	backoff->sleep_ns = sleep_ns;
	return sleep_ns;
}
