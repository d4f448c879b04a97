/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting threads of the program: which one drives, what the others sleep on, and which
 * thread wakes them.
 *
 * A waiter that gets the driver lock drives until its requests have ended.  It takes the
 * lock from the engine's thread, which makes no second pass while a waiter wants the lock.
 * It takes the lock from another waiter only if this thread alone may drive some
 * communicator (must_drive: FUNNELED).  All other waiters sleep, each on a futex word
 * of its own (struct batoni_sleeper).  A waiter whose request only the main thread can drive
 * is *passive*: it sleeps even if the lock is free.
 *
 * A sleeper wakes for one of three reasons:
 *   - An operation that it waits for ends.  The sleeper lists itself under the handle,
 *     then sets WAITED in the operation's word unless that says DONE.  The driver sets DONE
 *     in the same word and, if it finds WAITED there, searches the list.  One of the two
 *     sees the other.  Releasing a pending request wakes its sleepers in the same way.
 *     Operations without sleepers pay nothing.
 *   - It becomes the *next driver*.  A thread that releases the lock while there are sleepers
 *     (`wanted`) wakes one of them to drive.  It wakes no second one until the next driver has
 *     the lock or passes the role on, by sleeping again or by returning from its wait.
 *     A sleeper adds itself to `wanted`, then loads `driver`; the holder clears
 *     `driver`, then loads `wanted`; all seq_cst.  So no sleeper misses a free lock.
 *   - Its time-out expires, or a second has passed; then it looks again.
 *
 * A driver with nothing to poll ("quiet" transports) sleeps on the bell while holding
 * the lock.  A producer that leaves work rings it, and so does the peer whose signal is
 * awaited.  The driver polls longer before it sleeps in that second case, since a wake by
 * a peer takes as long as 1000 passes.  No wake-up is lost: the driver stores `asleep`,
 * then loads the queues; a producer pushes, then loads `asleep`.  Where signals may
 * arrive as messages, the driver polls for them every 0.1 to 6.4 ms, with exponential
 * back-off; where a device alone works, every 0.1 to 0.8 ms.  A driver that finds nothing for
 * about a millisecond yields its core between passes, for the peers that it may be waiting for.
 *
 * Where two ranks share a core, a rank that polls keeps the awaited one from sending until its first
 * yield.  So a thread remembers whether its last events came while it yielded (`shares_core`);
 * it then yields after a few passes.  Events that come at any other time clear this.  A loop of probes
 * does the same (batoni_probed); other polls leave it to the program.
 *
 * Claimants (batoni_lock) are not sleepers: they spin and yield their core.  A driver checks
 * for claimants after each pass and releases the lock.  The releasing thread hands the lock
 * over (batoni_unlocked), so that no enqueuer or poller gets it before a claimant does.
 *
 * The lists of sleepers are in wake.c.
 *
 * Calls that wait for something else than requests (destroy, the collective calls of
 * the one-sided layer and what these wait for) drive in steps, and sleep without the lock
 * (batoni_drive_until).
 */
#include "core.h"

#include <sched.h>

#include "engine.h"
#include "liveness.h"
#include "forecast.h"
#include "request.h"
#include "room.h"
#include "wait.h"

#define TURN_SPINS 200u  /* tries before a sleep while another thread drives */
#define QUIET_SPINS 500u /* passes without events before a sleep */
#define SHARED_SPINS 16u /* passes without events before a yield, on a shared core */
#define LISTEN_SPINS 10000u /* the same, if a peer's signal would end the sleep */
#define YIELD_PASSES 10000u
/* The same for probes, which make more than a pass each. */
#define SHARED_PROBES 4u
#define YIELD_PROBES 2000u
#define CLAIMANT_YIELDS 100u
#define SLEEP_MAX_NS 1000000000u /* also the period of the peers' liveness check */
#define SLEEP_HEALTH_NS 250000000u /* the same, where batoni_awaits_health */
/* Back-off where signals may arrive as messages; each sleep is twice the last one. */
#define BACKOFF_MESSAGES_MIN_NS 100000u
#define BACKOFF_MESSAGES_MAX_NS 6400000u
#define BACKOFF_WORK_MAX_NS 800000u /* the same, where a device alone works */

/* Make the end of a pending request, or the release of its handle, call batoni_wake_waiters. */
static void
mark_waited_one(baton_request request)
{
	uint64_t word = 0;
	struct batoni_op *op = request ? batoni_request_find(request, &word)
	                               : NULL;

	while (op && !(word & (BATONI_OP_DONE | BATONI_OP_WAITED)) &&
	       !atomic_compare_exchange_weak(&op->word, &word,
	                                     word | BATONI_OP_WAITED)) {
		if (word >> 32 != request >> 32 || !(word & BATONI_OP_HANDLE))
			return;
	}
}

/* Make the end of each awaited operation wake this sleeper.  The caller must check once
 * more, after this, whether they have ended. */
static void
mark_waited(const struct batoni_awaited *awaited)
{
	if (awaited->local) {
		atomic_fetch_or(&awaited->local->word, BATONI_OP_WAITED);
		return;
	}
	for (size_t i = 0; i < awaited->count; i++)
		mark_waited_one(awaited->requests[i]);
}

/* ---- waiting threads ---- */

static void
sleep_on_bell(uint32_t rung, uint64_t sleep_ns)
{
	struct batoni_engine *e = &batoni_engine;

	if (sleep_ns > SLEEP_HEALTH_NS && batoni_awaits_health())
		sleep_ns = SLEEP_HEALTH_NS;
	atomic_fetch_or(&e->asleep, BATONI_ASLEEP_DRIVER);
	if (!batoni_work_left() && atomic_load(&e->wanted) < BATONI_CLAIMANT &&
	    !atomic_load(&e->stopping))
		batoni_bell_sleep(batoni_bell(), rung, sleep_ns);
	batoni_tick();
	batoni_check_peers_soon();
	atomic_fetch_and(&e->asleep, ~BATONI_ASLEEP_DRIVER);
}

/* Sleep while holding the lock; there is nothing to poll.  If signals would end the
 * sleep, make one last pass after starting to listen, and return its events. */
static size_t
sleep_driving(uint64_t deadline, uint64_t limit_ns, uint64_t most_ns)
{
	uint32_t rung = batoni_rung();
	bool listens = batoni_forecast_now().parked;
	size_t events;
	bool rings = batoni_room_asleep(BATONI_ASLEEP_DRIVER, &events);
	uint64_t sleep_ns;

	if (listens) {
		batoni_listen(BATONI_ASLEEP_DRIVER);
		events += batoni_pass();
	}

	sleep_ns = batoni_time_left(batoni_now_ns(), deadline, most_ns);
	if (limit_ns != BATONI_NEVER)
		sleep_ns = batoni_time_left(batoni_real_ns(), limit_ns, sleep_ns);
	if (sleep_ns && !events)
		sleep_on_bell(rung, sleep_ns);
	if (listens)
		batoni_unlisten(BATONI_ASLEEP_DRIVER);
	if (rings)
		batoni_room_awake(BATONI_ASLEEP_DRIVER);
	return events;
}

/* A driver's passes without events. */
struct idleness {
	unsigned passes;   /* since the last events */
	unsigned yielded;  /* `passes` at the last yield */
	uint64_t sleep_ns; /* the next sleep where messages may arrive */
};

/* It may be back only after some milliseconds: too few passes for peers that wait for room. */
static void
yield_core(struct idleness *idle)
{
	idle->yielded = idle->passes;
	sched_yield();
	batoni_make_some_room();
}

static void
end_idleness(struct idleness *idle)
{
	if (idle->passes)
		batoni_thread.shares_core = idle->passes == idle->yielded;
	*idle = (struct idleness){.sleep_ns = BACKOFF_MESSAGES_MIN_NS};
}

/* Sleep, as there is nothing to poll.  Without events the next idle pass sleeps again. */
static void
sleep_idle(struct idleness *idle, const struct batoni_forecast *forecast,
           bool watches, uint64_t limit_ns)
{
	uint64_t most_ns = SLEEP_MAX_NS;

	if (watches) {
		most_ns = idle->sleep_ns;
		if (idle->sleep_ns < BACKOFF_MESSAGES_MAX_NS)
			idle->sleep_ns *= 2;
	}
	if (forecast->poll == BATONI_POLL_DEVICE && most_ns > BACKOFF_WORK_MAX_NS)
		most_ns = BACKOFF_WORK_MAX_NS;
	idle->passes = sleep_driving(forecast->deadline, limit_ns, most_ns)
	                       ? 0
	                       : idle->passes - 1;
}

/* Count a pass without events, and yield or sleep if it is time for that. */
static void
rest(struct idleness *idle, uint64_t limit_ns)
{
	bool shared, quiet, watches;
	struct batoni_forecast forecast = {.poll = BATONI_POLL_PENDING};

	idle->passes++;
	shared = batoni_thread.shares_core && idle->passes % SHARED_SPINS == 0;
	quiet = idle->passes % QUIET_SPINS == 0;
	if (quiet || shared)
		forecast = batoni_forecast_now();
	watches = forecast.poll == BATONI_POLL_WATCH ||
	          forecast.poll == BATONI_POLL_DEVICE;
	if (forecast.poll >= BATONI_POLL_PENDING ||
	    (watches && idle->passes <= YIELD_PASSES)) {
		if (idle->passes > YIELD_PASSES || (shared && !watches))
			yield_core(idle);
	} else if (forecast.poll == BATONI_POLL_WHEN_RUNG &&
	           idle->passes < LISTEN_SPINS && forecast.parked_on_others) {
		/* The process that is to ring may need this processor. */
		yield_core(idle);
	} else if (quiet) {
		sleep_idle(idle, &forecast, watches, limit_ns);
	}
}

/* Drive until what is awaited is ready (OK), the time-out expires (PENDING), a claimant
 * wants the lock (AGAIN), or only the return of a launched function can cause events
 * (BUSY). */
static enum baton_status
drive(struct batoni_awaited *awaited, uint64_t limit_ns)
{
	struct batoni_engine *e = &batoni_engine;
	struct idleness idle = {.sleep_ns = BACKOFF_MESSAGES_MIN_NS};

	for (unsigned passes = 1;; passes++) {
		size_t events = batoni_pass();

		batoni_count_host_pass();
		if (events)
			end_idleness(&idle);
		if (awaited->ready(awaited, true))
			return BATON_OK;
		if (limit_ns != BATONI_NEVER && passes % 16 == 0 &&
		    batoni_real_ns() >= limit_ns)
			return BATON_PENDING;
		if (unlikely(atomic_load_explicit(&e->wanted,
		                                  memory_order_relaxed) >=
		             BATONI_CLAIMANT))
			return BATON_ERR_AGAIN;
		if (!events && unlikely(atomic_load_explicit(
				       &e->running, memory_order_relaxed)) &&
		    batoni_functions_will_drive())
			return BATON_ERR_BUSY;
		if (!events)
			rest(&idle, limit_ns);
	}
}

/* Sleep until an awaited operation ends, this sleeper becomes the next driver, or time is up. */
static bool
sleep_behind_driver(struct batoni_sleeper *sleeper, bool behind_launch, uint64_t limit_ns)
{
	struct batoni_awaited *awaited = sleeper->awaited;
	struct batoni_engine *e = &batoni_engine;
	uint64_t sleep_ns = SLEEP_MAX_NS;
	bool ready;

	batoni_sleeper_pass_on(sleeper);
	batoni_sleeper_enlist(sleeper);
	mark_waited(awaited);
	ready = awaited->ready(awaited, false);
	/* `ready` may have moved on to another request than the one that the sleeper is
	 * listed under.  The end of that one would not wake it, so it must not sleep. */
	if (!ready &&
	    (awaited->count != 1 || awaited->requests[0] == sleeper->key) &&
	    (awaited->passive ||
	     (atomic_load(&e->driver) ? !batoni_engine_drives()
	                              : behind_launch && atomic_load(&e->running)))) {
		if (limit_ns != BATONI_NEVER)
			sleep_ns = batoni_time_left(batoni_real_ns(), limit_ns, sleep_ns);
		batoni_futex_wait(&sleeper->woken, 0, sleep_ns);
	}
	batoni_sleeper_unlist(sleeper);
	return ready;
}

/* Take the lock if it is this thread's turn to drive. */
static bool
take_turn(const struct batoni_awaited *awaited)
{
	if (awaited->passive)
		return false;
	if (!batoni_thread.must_drive) {
		if (batoni_trylock_long())
			return true;
		if (!batoni_engine_drives() ||
		    atomic_load(&batoni_engine.wanted) >= BATONI_CLAIMANT)
			return false;
	}
	batoni_lock();
	return true;
}

static bool
wait_long(struct batoni_sleeper *sleeper, uint64_t limit_ns)
{
	struct batoni_awaited *awaited = sleeper->awaited;
	enum baton_status status;

	for (unsigned spins = 0;; spins++) {
		bool behind_launch = false;

		if (take_turn(awaited)) {
			batoni_sleeper_pass_on(sleeper);
			status = drive(awaited, limit_ns);
			behind_launch = status == BATON_ERR_BUSY;
			if (behind_launch)
				batoni_unlock_for_functions();
			else
				batoni_unlock();
			if (status == BATON_OK || status == BATON_PENDING)
				return status == BATON_OK;
			/* Several claimants may follow each other.  Bound the yields:
			 * a claimant may end what is awaited, or the time-out may
			 * expire. */
			for (unsigned yields = 0;
			     yields < CLAIMANT_YIELDS &&
			     atomic_load(&batoni_engine.wanted) >= BATONI_CLAIMANT;
			     yields++)
				sched_yield();
		}
		if (awaited->ready(awaited, false))
			return true;
		if (limit_ns != BATONI_NEVER &&
		    (spins % 16 == 15 || spins >= TURN_SPINS) &&
		    batoni_real_ns() >= limit_ns)
			return false;
		if (spins < TURN_SPINS && !awaited->passive && !behind_launch)
			batoni_relax();
		else if (sleep_behind_driver(sleeper, behind_launch, limit_ns))
			return true;
	}
}

bool
batoni_wait_until(struct batoni_awaited *awaited,
                  const struct baton_comm *comm, int64_t timeout_ns)
{
	struct batoni_sleeper sleeper = {.awaited = awaited};
	uint64_t limit_ns = BATONI_NEVER;
	bool ready;

	if (awaited->ready(awaited, false))
		return true;
	if (timeout_ns == 0) {
		batoni_poll(comm);
		return awaited->ready(awaited, false);
	}
	if (timeout_ns > 0)
		limit_ns = batoni_real_ns() + (uint64_t)timeout_ns;
	batoni_thread.waits = true;
	ready = wait_long(&sleeper, limit_ns);
	batoni_sleeper_pass_on(&sleeper);
	batoni_thread.waits = false;
	return ready;
}

void
batoni_probed(bool found)
{
	struct batoni_thread *self = &batoni_thread;

	if (found) {
		if (self->idle_probes)
			self->shares_core = self->probe_yielded;
		self->idle_probes = 0;
		return;
	}
	if (self->idle_probes < YIELD_PROBES)
		self->idle_probes++;
	self->probe_yielded = self->idle_probes == YIELD_PROBES ||
	                      (self->shares_core &&
	                       self->idle_probes % SHARED_PROBES == 0);
	if (self->probe_yielded)
		sched_yield();
}

void
batoni_yield_driver(unsigned tries)
{
	batoni_unlock();
	batoni_pause_between(tries);
	batoni_lock();
}

enum baton_status
batoni_drive_until(enum baton_status (*step)(void *argument), void *argument,
                   uint64_t limit_ns)
{
	for (unsigned tries = 0;; tries++) {
		enum baton_status status;

		batoni_lock();
		batoni_pass();
		status = step(argument);
		batoni_unlock();
		if (status != BATON_PENDING || batoni_real_ns() >= limit_ns)
			return status;
		batoni_pause_between(tries);
	}
}
