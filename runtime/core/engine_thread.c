/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's own thread: it drives when operations are pending and no thread of the program does.
 *
 * It sleeps between passes (backoff.c).  Sleeps are short while events come or bytes move, and one tick
 * while it only waits for peers (a millisecond, with many requests two) or while a waiter drives.
 * It enters deep sleep LINGER_TICKS ticks after the last operation has ended, or a few ticks after
 * a waiter began to block while holding the driver lock.  Two calls wake it from deep
 * sleep: the first enqueue that leaves something pending, and a thread that releases the
 * lock with something pending.  Neither wakes it from a sleep, since a wake costs the
 * caller some microseconds.  The release wakes it from deep sleep with nothing pending too, if it hears no
 * sender that finds no room (batoni_room_unheard).  A device that posts (a trigger fired, a launched function
 * returned) wakes it from any sleep.
 *
 * It also sleeps so while nothing that is pending has to be polled (BATONI_POLL_WHEN_RUNG): on a quiet
 * transport a receive ends within a call of another thread.  If a deadline is to be kept, the
 * health of a device to be checked, or a wait for a signal is *parked* (only the store of a
 * peer ends it), the thread listens: the peer that signals rings the bell (shm.h).  It wakes
 * by itself for deadlines, every SLEEP_LISTENING_NS to check that the processes of the peers
 * still exist, and every SLEEP_HEALTH_NS for devices and for peers that are gone.
 *
 * Where the ringer has woken a program by the pipe (queue_pipe.c), that program polls and drives.  The
 * thread is rung too, and first waits for HEAD_START_NS, so that the two do not compete for the lock.
 *
 * While it watches (BATONI_POLL_WATCH) and waits are parked, it listens in its longer sleeps
 * too: a stream that writes a count rings no bell, but the engine of the source rings
 * when it has seen the write.  So such a wait goes on after that ring, and not
 * after the sleep.
 *
 * A driver may find a resting communicator that this thread does not cover: the thread does
 * not listen, or it would wake after the deadline, or its sleep is longer than the period of a
 * check that the communicator needs.  The driver then keeps the communicator busy (engine.c).
 * It thus releases the lock with something pending, which wakes this thread.
 *
 * The thread sleeps on a futex word of its own, so that waking a sleeping driver does not
 * wake it.  It sleeps on the process's bell only while it listens, or in deep sleep if peers may wait for room in
 * this process (room.h).  A waker clears `deep`, adds to the word, then loads `listening` and `idle`.
 * The thread sets its bit in one of these, then loads `deep` for the last time.  One of them sees the other.
 */
#include "core.h"

#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"
#include "liveness.h"
#include "log.h"
#include "forecast.h"
#include "backoff.h"
#include "queue_pipe.h"
#include "room.h"
#include "wake.h"

#define STOP_S 10 /* how long the stop waits for the thread's last pass */
#define LINGER_TICKS 20u
#define BEHIND_TICKS 3u /* while a sleeping driver has the lock, which wakes this thread when it stops driving */
#define SLICE_NS 100000u /* the shortest slice that Linux gives */
#define SPINS 30u /* passes without events, after a pass with some, before a sleep */
#define HEAD_START_NS 300000u
#define LISTENS_LEAST_NS 200000u /* the shortest sleep in which to listen while it watches */

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;     /* under thread_lock */
static bool thread_started;  /* under thread_lock */
static bool thread_finished; /* under thread_lock: stopped for good */

static uint64_t
processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What the thread sleeps on. */
struct interval {
	uint64_t ns;
	uint32_t rung; /* the sleep returns at once if thread_rung has changed from this */
	bool listens;  /* the sleep is on the bell: it returns at once if that has changed too */
	uint32_t bell;
};

/* Listen in this sleep, and poll once more; the driver. */
static void
listen_asleep(struct interval *interval)
{
	interval->bell = batoni_rung();
	interval->listens = true;
	batoni_listen(BATONI_ASLEEP_THREAD);
	if (batoni_pass())
		interval->ns = BATONI_BACKOFF_MIN_NS;
}

/* Make passes while they yield events.  Decides how long to sleep, and on what. */
static void
thread_drive(struct batoni_backoff *backoff, struct interval *interval)
{
	struct batoni_polled polled = {.worked_ns = processor_ns()};
	struct batoni_forecast forecast;
	unsigned idle = 0;
	uint64_t sleep_ns;

	batoni_check_peers_soon();
	batoni_make_room();
	while (idle < SPINS &&
	       !atomic_load_explicit(&batoni_engine.wanted,
	                             memory_order_relaxed)) {
		if (batoni_pass()) {
			polled.events = true;
			idle = 0;
		} else if (!polled.events) {
			break;
		} else {
			idle++;
		}
	}
	forecast = batoni_forecast_now();
	polled.poll = forecast.poll;
	polled.tick_ns = batoni_tick_ns(forecast.more_tests);
	polled.now_ns = batoni_now_ns();
	polled.worked_ns = processor_ns() - polled.worked_ns;
	sleep_ns = batoni_backoff_next(backoff, &polled);
	if (forecast.deadline != BATONI_NEVER)
		sleep_ns = batoni_time_left(polled.now_ns, forecast.deadline,
		                            sleep_ns);
	interval->ns = sleep_ns ? sleep_ns : 1000u;
	if (forecast.poll == BATONI_POLL_WATCH && forecast.parked &&
	    interval->ns >= LISTENS_LEAST_NS)
		listen_asleep(interval);
}

/* No wake-up is lost.  The producer pushes, then loads `asleep`; this thread stores
 * `asleep`, then loads the queues; both seq_cst, so one of them sees the other. */
static bool
announce(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_fetch_or(&e->asleep, BATONI_ASLEEP_THREAD);
	return !batoni_work_left() && !atomic_load(&e->stopping);
}

static void
renounce(void)
{
	atomic_fetch_and(&batoni_engine.asleep, ~BATONI_ASLEEP_THREAD);
}

/* No wake-up is lost while it listens: the waker adds to thread_rung, then loads `listening`; this
 * thread has set its bit there, and then loads thread_rung. */
static void
sleep_between(const struct interval *interval)
{
	_Atomic uint32_t *rung = &batoni_engine.thread_rung;
	bool sleeps = announce();

	if (sleeps && interval->listens)
		sleeps = atomic_load(rung) == interval->rung;
	if (sleeps && interval->listens)
		batoni_bell_sleep(batoni_bell(), interval->bell, interval->ns);
	else if (sleeps)
		batoni_futex_wait(rung, interval->rung, interval->ns);
	renounce();
	if (interval->listens)
		batoni_unlisten(BATONI_ASLEEP_THREAD);
}

/* The caller holds the driver lock and has set `deep`.  An enqueuer that leaves something
 * pending takes the lock later, so it sees `deep`.  Releases the lock. */
static void
sleep_idle(uint32_t rung)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t sleep_ns = BATONI_NEVER;
	uint32_t bell = batoni_rung();
	struct batoni_forecast forecast = batoni_forecast_now();
	bool listens = forecast.parked || batoni_awaits_health() ||
	               forecast.deadline != BATONI_NEVER;
	size_t events;
	bool rings = batoni_room_asleep(BATONI_ASLEEP_THREAD, &events);
	bool idle;

	if (listens) {
		batoni_listen(BATONI_ASLEEP_THREAD);
		batoni_check_peers_soon();
		events += batoni_pass();
		forecast = batoni_forecast_now();
		e->thread_wakes = forecast.deadline;
		e->thread_sleeps_ns = batoni_sleep_most_ns(forecast.parked,
		                                           batoni_awaits_health());
		sleep_ns = batoni_time_left(batoni_now_ns(), e->thread_wakes,
		                            e->thread_sleeps_ns);
	}
	idle = atomic_load(&e->thread_working) == 0;
	batoni_unlock();
	/* A pass with events may have left some. */
	if (idle && sleep_ns && !events && announce() && atomic_load(&e->deep)) {
		if (listens || rings)
			batoni_bell_sleep(batoni_bell(), bell, sleep_ns);
		else
			batoni_futex_wait(&e->thread_rung, rung, sleep_ns);
		if (listens && batoni_pipe_was_used())
			batoni_futex_wait(&e->thread_rung, rung, HEAD_START_NS);
	}
	renounce();
	if (listens)
		batoni_unlisten(BATONI_ASLEEP_THREAD);
	if (rings)
		batoni_room_awake(BATONI_ASLEEP_THREAD);
}

/* A waiter sleeps while it drives, or a stream's thread will drive when its function
 * returns.  No wake-up is lost: those threads release the lock or their count in
 * `running`, then load `deep`; this thread stores `deep`, then loads both.  A waiter that has nothing
 * left wakes this thread too, if that does not hear senders without room (room.c). */
static void
sleep_behind(uint32_t rung)
{
	struct batoni_engine *e = &batoni_engine;
	uint32_t bell = batoni_rung();
	bool rings = false;
	size_t events = 0;

	/* A thread that drives, or sleeps as the driver, makes room itself. */
	if (batoni_trylock()) {
		rings = batoni_room_asleep(BATONI_ASLEEP_THREAD, &events);
		batoni_unlock_for_functions();
	}
	if (!events && announce() && atomic_load(&e->deep) &&
	    (atomic_load(&e->driver) || atomic_load(&e->running))) {
		if (rings)
			batoni_bell_sleep(batoni_bell(), bell, BATONI_NEVER);
		else
			batoni_futex_wait(&e->thread_rung, rung, BATONI_NEVER);
	}
	renounce();
	if (rings)
		batoni_room_awake(BATONI_ASLEEP_THREAD);
}

/* True if a launched function runs and nothing else needs polling.  The thread of that
 * function loads `deep` when it stops driving. */
static bool
is_behind_launches(void)
{
	bool is_behind;

	if (!atomic_load(&batoni_engine.running) || !batoni_trylock())
		return false;
	is_behind = batoni_functions_will_drive();
	batoni_unlock_for_functions();
	return is_behind;
}

static void
sleep_deep(void)
{
	struct batoni_engine *e = &batoni_engine;
	uint32_t rung = atomic_load(&e->thread_rung);

	atomic_store(&e->deep, true);
	if (is_behind_launches())
		sleep_behind(rung);
	else if (batoni_trylock())
		sleep_idle(rung);
	else if (atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER)
		sleep_behind(rung);
	atomic_store(&e->deep, false);
}

/* The scheduler lets a thread with a shorter slice preempt the thread that computes; one
 * with the same slice waits for the end of that slice, or for a tick.  Linux 6.12 and later;
 * others ignore it. */
static void
ask_for_short_slice(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime_ns, deadline_ns, period_ns;
	} attributes = {0};

	if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) ||
	    attributes.policy != SCHED_OTHER)
		return;
	attributes.runtime_ns = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *
thread_main(void *unused)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t seen_passes = 0;
	struct batoni_backoff backoff = {0};
	unsigned idle_ticks = 0;

	(void)unused;
	batoni_thread.engine = true;
	batoni_thread.stays = true;
	atomic_store(&e->thread, batoni_this_thread());
	prctl(PR_SET_NAME, "baton-engine", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	ask_for_short_slice();
	while (!atomic_load(&e->stopping)) {
		uint64_t passes = atomic_load(&e->host_passes);
		uint32_t rung = atomic_load(&e->thread_rung);
		struct interval interval = {.ns = BATONI_TICK_NS, .rung = rung};

		batoni_tick();
		if (idle_ticks > LINGER_TICKS) {
			sleep_deep();
			/* No thread has rung: the sleep has ended for a deadline, or for a
			 * check. */
			idle_ticks = atomic_load(&e->thread_rung) == rung
			                     ? LINGER_TICKS
			                     : 0;
			backoff.sleep_ns = 0;
			continue;
		}
		if ((atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER) ||
		    is_behind_launches()) {
			backoff.sleep_ns = interval.ns;
			idle_ticks += LINGER_TICKS / BEHIND_TICKS;
		} else if (passes != seen_passes || atomic_load(&e->wanted) ||
		           !batoni_trylock()) {
			backoff.sleep_ns = interval.ns; /* a waiter drives */
			idle_ticks = atomic_load(&e->thread_working)
			                     ? 0
			                     : idle_ticks + 1;
		} else if (!atomic_load(&e->thread_working) && !batoni_work_left()) {
			batoni_make_room();
			idle_ticks += batoni_forecast_now().parked
			                      ? LINGER_TICKS + 1
			                      : 1;
			batoni_unlock();
			backoff.sleep_ns = interval.ns;
			if (idle_ticks > LINGER_TICKS)
				continue;
		} else {
			thread_drive(&backoff, &interval);
			idle_ticks = 0;
			batoni_unlock();
		}
		seen_passes = passes;
		sleep_between(&interval);
	}
	/* A later thread may get the same address for its batoni_thread. */
	atomic_store(&e->thread, NULL);
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
		error = batoni_thread_start(&thread, thread_main, NULL);
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

/* False: the caller must not finalise the native libraries, since a lock may stay held.
 * exit() may run in a signal handler that has interrupted a call of Baton on this thread.
 * That call may hold the driver lock, or another lock that the engine's thread waits
 * for.  The join is therefore timed. */
bool
batoni_engine_stop(void)
{
	struct timespec limit;
	bool join;

	pthread_mutex_lock(&thread_lock);
	join = thread_started;
	thread_started = false;
	thread_finished = true;
	pthread_mutex_unlock(&thread_lock);
	if (join) {
		atomic_store(&batoni_engine.stopping, true);
		batoni_ring_thread();
		clock_gettime(CLOCK_REALTIME, &limit);
		limit.tv_sec += STOP_S;
		join = pthread_timedjoin_np(thread, NULL, &limit) != 0;
	}
	return !join && !batoni_thread.waits &&
	       atomic_load(&batoni_engine.driver) != batoni_this_thread();
}
