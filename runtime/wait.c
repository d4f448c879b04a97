/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts that wait, and how threads sleep and wake each other.
 *
 * A host that waits drives if nobody does.  A driver whose transports have nothing
 * to look at ("quiet") dozes on the doorbell, holding the lock; whoever leaves
 * work rings, and so does the peer whose signal is waited for (it looks some more
 * first then, since a peer's wake takes as long as 1000 passes).  Where signals may
 * come by message, he looks for those every 0.1 to 6 ms, the longer the rarer.  Hosts that wait while
 * another drives sleep on `turn`, for a millisecond at most unless he dozes; a driver
 * that completed something or goes away wakes them.  A driver that finds nothing for
 * long (about a millisecond) yields its core between passes, for the peers that it may
 * be waiting for.
 *
 * No wake-up is lost: who sleeps announces himself (dozing, sleepers) and then
 * looks for work; who leaves work pushes it and then looks for sleepers; both by
 * sequentially consistent operations.
 */
#include "core.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TURN_SPINS 200u  /* looks before a sleep while another drives */
#define QUIET_SPINS 500u /* passes without events before a doze */
#define LISTEN_SPINS 10000u /* the same, where a peer would end the doze */
#define YIELD_PASSES 10000u
#define DOZE_MAX_NS 2000000000u /* also: how often peers' processes are looked at */
/* Where signals may come by message: longer and longer. */
#define DOZE_MESSAGES_MIN_NS 100000u
#define DOZE_MESSAGES_MAX_NS 6400000u
#define TURN_MAX_NS 1000000u

/* ---- sleeping and waking ---- */

void
batoni_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nap_ns)
{
	struct timespec nap = {.tv_sec = (time_t)(nap_ns / 1000000000u),
	                       .tv_nsec = (long)(nap_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
	        nap_ns == BATONI_NEVER ? NULL : &nap, NULL, 0);
}

void
batoni_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void
batoni_ring(void)
{
	batoni_bell_ring(batoni_bell());
}

uint32_t
batoni_rung(void)
{
	return atomic_load(&batoni_bell()->doorbell);
}

bool
batoni_anything_parked(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		if (comm->onesided && comm->onesided->parked)
			return true;
	}
	return false;
}

bool
batoni_listen(unsigned who)
{
	if (!batoni_anything_parked())
		return false;
	atomic_fetch_or(&batoni_bell()->listening, who);
	return true;
}

void
batoni_unlisten(unsigned who)
{
	atomic_fetch_and(&batoni_bell()->listening, ~who);
}

void
batoni_wake_sleepers(void)
{
	atomic_fetch_add(&batoni_engine.turn, 1);
	batoni_futex_wake(&batoni_engine.turn);
}

bool
batoni_work_left(void)
{
	struct batoni_engine *e = &batoni_engine;

	return atomic_load(&e->inbox) || atomic_load(&e->posted) ||
	       atomic_load(&e->attention) || atomic_load(&e->takers);
}

/* ---- hosts that wait ---- */

/* Tell the core that this is a spin. */
static inline void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static enum batoni_look
what_to_look_at_of(const struct baton_comm *comm)
{
	const struct batoni_transport *transport = comm->transport;
	const struct batoni_onesided *onesided = comm->onesided;
	uint32_t standing = onesided ? onesided->standing : 0;

	if (comm->marked || transport->moving ||
	    (onesided && onesided->moving))
		return BATONI_LOOK_AGAIN;
	if (transport->quiet || transport->in_flight == 0)
		return BATONI_LOOK_WHEN_RUNG;
	if (transport->in_flight > standing)
		return BATONI_LOOK_AGAIN;
	/* Does anything hang on the messages that stand there to be received? */
	return comm->held || onesided->pending > onesided->parked
	               ? BATONI_LOOK_AT_TIMES
	               : BATONI_LOOK_WHEN_RUNG;
}

enum batoni_look
batoni_what_to_look_at(uint64_t *deadline_p)
{
	enum batoni_look most = BATONI_LOOK_WHEN_RUNG;
	uint64_t earliest = BATONI_NEVER;

	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		enum batoni_look look;

		if (!batoni_may_drive(comm))
			continue;
		look = what_to_look_at_of(comm);
		if (look > most)
			most = look;
		if (comm->deadline_next < earliest)
			earliest = comm->deadline_next;
	}
	*deadline_p = earliest;
	return most;
}

uint64_t
batoni_time_left(uint64_t now, uint64_t then, uint64_t most)
{
	if (then <= now)
		return 0;
	return then - now < most ? then - now : most;
}

/* He who leaves work looks at `dozing` after his push, as we look for work after
 * announcing. */
static void
doze(uint32_t rung, uint64_t nap_ns)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_fetch_or(&e->dozing, BATONI_DOZE_DRIVER);
	if (!batoni_work_left() && !atomic_load(&e->stopping))
		batoni_bell_sleep(batoni_bell(), rung, nap_ns);
	batoni_tick();
	atomic_fetch_and(&e->dozing, ~BATONI_DOZE_DRIVER);
}

/* Sleep with the lock, for there is nothing to look at.  Returns the events of the
 * last look, which is taken when signals are what would wake us. */
static size_t
doze_driving(uint64_t deadline, uint64_t limit_ns, uint64_t most_ns)
{
	uint32_t rung = batoni_rung();
	bool listens = batoni_listen(BATONI_DOZE_DRIVER);
	size_t events = listens ? batoni_pass() : 0;
	uint64_t nap;

	nap = batoni_time_left(batoni_now_ns(), deadline, most_ns);
	if (limit_ns != BATONI_NEVER)
		nap = batoni_time_left(batoni_real_ns(), limit_ns, nap);
	if (nap && !events)
		doze(rung, nap);
	if (listens)
		batoni_unlisten(BATONI_DOZE_DRIVER);
	return events;
}

/* Would processes of peers wake us?  That takes longer than it takes a thread. */
static bool
awaits_peers(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		if (comm->onesided && comm->onesided->parked &&
		    !comm->transport->quiet)
			return true;
	}
	return false;
}

/* Nothing happened in the last `idle` passes.  Returns how many that are to be called
 * now: none after events, and as few as lead here again when it was a doze.  *nap_ns
 * is for how long where messages may come. */
static unsigned
rest(unsigned idle, uint64_t limit_ns, uint64_t *nap_ns)
{
	enum batoni_look look = BATONI_LOOK_AGAIN;
	uint64_t deadline, most_ns = DOZE_MAX_NS;
	size_t events;

	if (idle % QUIET_SPINS == 0)
		look = batoni_what_to_look_at(&deadline);
	if (look == BATONI_LOOK_AGAIN ||
	    (look == BATONI_LOOK_AT_TIMES && idle <= YIELD_PASSES)) {
		if (idle > YIELD_PASSES)
			sched_yield();
		return idle;
	}
	if (look == BATONI_LOOK_WHEN_RUNG && idle < LISTEN_SPINS &&
	    awaits_peers())
		return idle;
	if (look == BATONI_LOOK_AT_TIMES) {
		most_ns = *nap_ns;
		if (*nap_ns < DOZE_MESSAGES_MAX_NS)
			*nap_ns *= 2;
	}
	events = doze_driving(deadline, limit_ns, most_ns);
	if (!events)
		return idle - 1;
	if (atomic_load(&batoni_engine.sleepers))
		batoni_wake_sleepers();
	return 0;
}

/* Drive until it is ready (OK) or the time is up (PENDING), or until another thread
 * must have the lock (AGAIN). */
static enum baton_status
drive(bool (*ready)(void *, bool), void *arg, uint64_t limit_ns)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t nap_ns = DOZE_MESSAGES_MIN_NS;
	unsigned idle = 0;

	for (unsigned passes = 1;; passes++) {
		size_t events = batoni_pass();

		batoni_count_host_pass();
		if (ready(arg, true))
			return BATON_OK;
		if (limit_ns != BATONI_NEVER && passes % 16 == 0 &&
		    batoni_real_ns() >= limit_ns)
			return BATON_PENDING;
		if (unlikely(atomic_load_explicit(&e->takers,
		                                  memory_order_relaxed)))
			return BATON_ERR_AGAIN;
		if (!events) {
			idle = rest(idle + 1, limit_ns, &nap_ns);
			continue;
		}
		idle = 0;
		nap_ns = DOZE_MESSAGES_MIN_NS;
		if (atomic_load_explicit(&e->sleepers, memory_order_relaxed))
			batoni_wake_sleepers();
	}
}

/* Another thread drives: sleep until it has done something or gone away. */
static bool
await_turn(bool (*ready)(void *, bool), void *arg, uint64_t limit_ns)
{
	struct batoni_engine *e = &batoni_engine;
	uint32_t turn = atomic_load(&e->turn);
	bool is_ready;
	uint64_t nap;

	atomic_fetch_add(&e->sleepers, 1);
	is_ready = ready(arg, false);
	if (!is_ready && atomic_load(&e->driver)) {
		/* Who dozes wakes us when something ends, and there is nothing to
		 * take over from him meanwhile. */
		nap = atomic_load(&e->dozing) & BATONI_DOZE_DRIVER ? DOZE_MAX_NS
		                                                   : TURN_MAX_NS;
		if (limit_ns != BATONI_NEVER)
			nap = batoni_time_left(batoni_real_ns(), limit_ns, nap);
		batoni_futex_wait(&e->turn, turn, nap);
	}
	atomic_fetch_sub(&e->sleepers, 1);
	return is_ready;
}

void
batoni_pause_between(unsigned tries)
{
	const struct timespec nap = {.tv_nsec = 50000};

	if (tries < 1000)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

bool
batoni_wait_until(bool (*ready)(void *, bool), void *arg, int64_t timeout_ns)
{
	uint64_t limit_ns = BATONI_NEVER;
	enum baton_status status;

	if (ready(arg, false))
		return true;
	if (timeout_ns == 0) {
		batoni_try_pass();
		return ready(arg, false);
	}
	if (timeout_ns > 0)
		limit_ns = batoni_real_ns() + (uint64_t)timeout_ns;
	for (unsigned spins = 0;; spins++) {
		if (batoni_try_or_take()) {
			status = drive(ready, arg, limit_ns);
			batoni_leave();
			if (status != BATON_ERR_AGAIN)
				return status == BATON_OK;
			while (atomic_load(&batoni_engine.takers))
				sched_yield();
		}
		if (ready(arg, false))
			return true;
		if (limit_ns != BATONI_NEVER &&
		    (spins % 16 == 15 || spins >= TURN_SPINS) &&
		    batoni_real_ns() >= limit_ns)
			return false;
		if (spins < TURN_SPINS)
			relax();
		else if (await_turn(ready, arg, limit_ns))
			return true;
	}
}
