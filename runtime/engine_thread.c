/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's own thread: it drives when operations are pending and no host does.
 *
 * It naps between passes: short while events come or bytes move, a tick (below a
 * millisecond) when it only waits for peers or when a host drives.  LINGER_TICKS
 * ticks after the last operation has ended it sleeps for good, and the first
 * enqueue that leaves something pending wakes it; a lingering one is never woken
 * by an enqueue, since a wake costs the enqueuer some microseconds.  A device that
 * posts (a trigger fired, a launched function returned) wakes it from any nap.
 *
 * Where waits for signals are all that is pending, and only stores of peers can end
 * them ("parked"), it sleeps for good too, but listens: the peer that signals rings
 * the bell (shm.h).  It wakes by itself for deadlines, and now and then to see
 * whether the peers' processes are still there.
 */
#include "core.h"

#include <string.h>
#include <sys/prctl.h>

#include "log.h"

#define TICK_NS 900000u /* the longest nap while something is pending */
#define NAP_MIN_NS 20000u
#define NAP_MOVING_NS 200000u /* the longest nap while bytes move */
#define NAP_WATCHING_NS 4000000u /* while messages may come, and nothing is pending */
#define NAP_LISTENING_NS 250000000u
#define LINGER_TICKS 20u
#define SPINS 30u /* passes without events, after some, before a nap */

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;     /* under thread_lock */
static bool thread_started;  /* under thread_lock */
static bool thread_finished; /* under thread_lock: stopped for good */

static bool
anything_moving(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		if (comm->transport->moving || comm->marked ||
		    (comm->onesided && comm->onesided->moving))
			return true;
	}
	return false;
}

/* Operations that peers may end at any time; not the mere chance of a message. */
static bool
anything_pending(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		if (comm->active > comm->held +
		                           (comm->onesided
		                                    ? comm->onesided->parked
		                                    : 0))
			return true;
	}
	return false;
}

static bool
anything_parked(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		if (comm->onesided && comm->onesided->parked)
			return true;
	}
	return false;
}

/* Drive for as long as things happen.  Returns how long to nap. */
static uint64_t
thread_drive(uint64_t nap_ns)
{
	uint64_t deadline, most;
	unsigned idle = 0;
	bool events = false;

	while (idle < SPINS &&
	       !atomic_load_explicit(&batoni_engine.takers,
	                             memory_order_relaxed)) {
		if (batoni_pass()) {
			events = true;
			idle = 0;
			if (atomic_load(&batoni_engine.sleepers))
				batoni_wake_sleepers();
		} else if (!events) {
			break;
		} else {
			idle++;
		}
	}
	most = anything_moving()    ? NAP_MOVING_NS
	       : anything_pending() ? TICK_NS
	                            : NAP_WATCHING_NS;
	nap_ns = events ? NAP_MIN_NS : nap_ns * 2;
	if (nap_ns > most)
		nap_ns = most;
	batoni_must_look(&deadline);
	if (deadline != BATONI_NEVER)
		nap_ns = batoni_time_left(batoni_now_ns(), deadline, nap_ns);
	return nap_ns ? nap_ns : 1000u;
}

void
batoni_wake_thread(void)
{
	atomic_store(&batoni_engine.deep, false);
	batoni_ring();
}

/* From the moment that we have had the lock with `deep` set, an enqueuer that
 * leaves something pending sees it: he has the lock after us. */
static void
sleep_deep(void)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t nap_ns = BATONI_NEVER, deadline;
	bool listens, idle;
	uint32_t rung;

	atomic_store(&e->deep, true);
	if (batoni_try()) {
		rung = batoni_rung();
		listens = batoni_listen(BATONI_DOZE_THREAD);
		if (listens) {
			if (batoni_pass() && atomic_load(&e->sleepers))
				batoni_wake_sleepers();
			batoni_must_look(&deadline);
			nap_ns = batoni_time_left(batoni_now_ns(), deadline,
			                          NAP_LISTENING_NS);
		}
		idle = atomic_load(&e->thread_working) == 0;
		batoni_leave();
		if (idle && nap_ns)
			batoni_doze(BATONI_DOZE_THREAD, rung, nap_ns);
		if (listens)
			batoni_unlisten(BATONI_DOZE_THREAD);
	}
	atomic_store(&e->deep, false);
}

static void *
thread_main(void *unused)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t seen_passes = 0;
	uint64_t nap_ns = NAP_MIN_NS;
	unsigned idle_ticks = 0;

	(void)unused;
	batoni_thread.engine = true;
	prctl(PR_SET_NAME, "baton-engine", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	while (!atomic_load(&e->stopping)) {
		uint64_t passes = atomic_load(&e->host_passes);
		uint32_t rung = batoni_rung();

		if (idle_ticks > LINGER_TICKS) {
			sleep_deep();
			idle_ticks = 0;
			nap_ns = NAP_MIN_NS;
			continue;
		}
		if (passes != seen_passes || !batoni_try()) {
			nap_ns = TICK_NS; /* a host drives */
			idle_ticks = atomic_load(&e->thread_working)
			                     ? 0
			                     : idle_ticks + 1;
		} else if (!atomic_load(&e->thread_working) && !batoni_work_left()) {
			idle_ticks += anything_parked() ? LINGER_TICKS + 1 : 1;
			batoni_leave();
			nap_ns = TICK_NS;
			if (idle_ticks > LINGER_TICKS)
				continue;
		} else {
			nap_ns = thread_drive(nap_ns);
			idle_ticks = 0;
			batoni_leave();
		}
		seen_passes = passes;
		batoni_doze(BATONI_DOZE_THREAD, rung, nap_ns);
	}
	return NULL;
}

enum baton_status
batoni_engine_start(void)
{
	enum baton_status status = BATON_OK;
	int error = 0;

	batoni_watch_forks();
	pthread_mutex_lock(&thread_lock);
	if (!thread_started && !thread_finished) {
		error = pthread_create(&thread, NULL, thread_main, NULL);
		thread_started = error == 0;
	}
	pthread_mutex_unlock(&thread_lock);
	if (error)
		status = batoni_refuse(BATON_ERR_SYSTEM,
		                       "the engine's thread cannot be started: "
		                       "%s",
		                       strerror(error));
	return status;
}

void
batoni_engine_stop(void)
{
	bool join;

	pthread_mutex_lock(&thread_lock);
	join = thread_started;
	thread_started = false;
	thread_finished = true;
	pthread_mutex_unlock(&thread_lock);
	if (!join)
		return;
	atomic_store(&batoni_engine.stopping, true);
	batoni_ring();
	pthread_join(thread, NULL);
}
