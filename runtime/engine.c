/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress engine: one for the process.
 *
 * Exactly one thread drives at a time: the holder of the driver lock.  A host
 * thread that waits or polls drives when nobody does.  When operations are
 * pending and no host thread has made a pass lately, the engine's own thread
 * drives.
 *
 * Nothing is lost between threads: what an enqueuer or a device leaves (inbox,
 * posted) is pushed by a read-modify-write before he tries the lock; the holder
 * gives the lock up by a sequentially consistent store and then looks again.
 * One of the two sees the other.
 *
 * Sleeping.  A driver whose transports have nothing to look at ("quiet") dozes
 * on the doorbell, holding the lock; whoever leaves work rings.  Hosts that wait
 * while another drives sleep on `turn`, for a millisecond at most; a driver that
 * completed something or goes away wakes them.  The engine's thread naps between
 * passes: short while bytes move or events come, a millisecond when it only
 * waits for peers or when a host drives; 20 naps after the last operation has
 * ended it sleeps for good, and the first enqueue that leaves something pending
 * wakes it.
 *
 * A pass is bounded: it places what is in the inbox, issues what is armed, tests
 * each transport once, and expires deadlines.
 */
#include "core.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 900000u       /* the longest nap while something is pending */
#define NAP_MIN_NS 20000u
#define NAP_MOVING_NS 200000u /* the longest nap while bytes move */
#define LINGER_TICKS 20u
#define THREAD_SPINS 30u  /* passes without events before a nap */
#define TURN_SPINS 200u   /* looks before a sleep while another drives */
#define QUIET_SPINS 100u  /* passes without events before a doze */
#define YIELD_PASSES 10000u

struct batoni_engine batoni_engine;
_Atomic(struct baton_comm *) batoni_comms[BATONI_COMMS_MAX];

static pthread_mutex_t thread_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;     /* under thread_lock */
static bool thread_started;  /* under thread_lock */
static bool thread_finished; /* under thread_lock: stopped for good */

/* ---- sleeping and waking ---- */

static void
futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nap_ns)
{
	struct timespec nap = {.tv_sec = (time_t)(nap_ns / 1000000000u),
	                       .tv_nsec = (long)(nap_ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
	        nap_ns == BATONI_NEVER ? NULL : &nap, NULL, 0);
}

static void
futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void
ring(void)
{
	atomic_fetch_add(&batoni_engine.doorbell, 1);
	futex_wake(&batoni_engine.doorbell);
}

static void
wake_sleepers(void)
{
	atomic_fetch_add(&batoni_engine.turn, 1);
	futex_wake(&batoni_engine.turn);
}

static bool
work_left(void)
{
	struct batoni_engine *e = &batoni_engine;

	return atomic_load(&e->inbox) || atomic_load(&e->posted) ||
	       atomic_load(&e->attention) || atomic_load(&e->takers);
}

/* Sleep on the doorbell, announced by `who`, unless there is work: he who leaves
 * work looks at `dozing` after his push, as we look for work after announcing. */
static void
doze(unsigned who, uint64_t nap_ns)
{
	struct batoni_engine *e = &batoni_engine;
	uint32_t rung = atomic_load(&e->doorbell);

	atomic_fetch_or(&e->dozing, who);
	if (!work_left() && !atomic_load(&e->stopping))
		futex_wait(&e->doorbell, rung, nap_ns);
	atomic_fetch_and(&e->dozing, ~who);
}

void
batoni_wake_thread(void)
{
	atomic_store(&batoni_engine.deep, false);
	ring();
}

/* ---- handing over work ---- */

static size_t attend(void);

static void
push(_Atomic(struct batoni_op *) *list, struct batoni_op *op,
     struct batoni_op **link)
{
	struct batoni_op *head = atomic_load_explicit(list,
	                                              memory_order_relaxed);

	do
		*link = head;
	while (!atomic_compare_exchange_weak(list, &head, op));
}

/* Take all of an MPSC list, oldest first. */
static struct batoni_op *
take_inbox(void)
{
	struct batoni_op *op =
		atomic_exchange(&batoni_engine.inbox, NULL);
	struct batoni_op *oldest = NULL;

	while (op) {
		struct batoni_op *older = op->next;

		op->next = oldest;
		oldest = op;
		op = older;
	}
	return oldest;
}

static struct batoni_op *
take_posted(void)
{
	struct batoni_op *op =
		atomic_exchange(&batoni_engine.posted, NULL);
	struct batoni_op *oldest = NULL;

	while (op) {
		struct batoni_op *older = op->posted;

		op->posted = oldest;
		oldest = op;
		op = older;
	}
	return oldest;
}

void
batoni_inbox_push(struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;

	push(&e->inbox, op, &op->next);
	if (atomic_load(&e->dozing) & BATONI_DOZE_DRIVER)
		ring();
	else if (!atomic_load(&e->driver) && batoni_try())
		/* The holder left before he could see it. */
		batoni_leave();
}

void
batoni_post(struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;
	unsigned dozing;

	push(&e->posted, op, &op->posted);
	dozing = atomic_load(&e->dozing);
	if ((dozing & BATONI_DOZE_DRIVER) ||
	    ((dozing & BATONI_DOZE_THREAD) && !atomic_load(&e->driver)))
		ring();
}

void
batoni_nudge(void)
{
	if (batoni_try()) {
		batoni_place_inbox();
		attend();
		batoni_settle();
		batoni_leave();
	} else if (atomic_load(&batoni_engine.dozing) & BATONI_DOZE_DRIVER) {
		ring();
	}
}

size_t
batoni_place_inbox(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_op *op;
	size_t events = 0;

	/* For batoni_stream_state: what left the inbox is not placed yet. */
	atomic_store(&e->placing, 1);
	for (op = take_inbox(); op; events++) {
		struct batoni_op *next = op->next;

		batoni_op_place(op);
		op = next;
	}
	atomic_store(&e->placing, 0);
	return events;
}

static size_t
collect_posted(void)
{
	struct batoni_op *op = take_posted();
	size_t events = 0;

	/* One that is posted was pushed to the inbox before, or is about to be
	 * by its enqueuer: batoni_op_place finds it reached then. */
	for (; op; events++) {
		struct batoni_op *next = op->posted;

		batoni_op_reached(op);
		op = next;
	}
	return events;
}

enum baton_status
batoni_stream_state(struct baton_comm *comm, baton_stream stream)
{
	struct batoni_engine *e = &batoni_engine;

	if (comm->in_engine &&
	    (atomic_load(&e->inbox) || atomic_load(&e->placing)))
		return BATON_PENDING;
	return comm->device_ops->stream_idle(comm->device, stream);
}

/* ---- a pass ---- */

static size_t
issue_ready(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_fifo *parked = NULL, **parked_tail = &parked;
	struct batoni_fifo *fifo;
	size_t events = 0;

	while ((fifo = e->ready)) {
		struct baton_comm *comm = fifo->comm;

		e->ready = fifo->ready_next;
		if (!e->ready)
			e->ready_tail = &e->ready;
		if (unlikely(!batoni_may_drive(comm))) {
			fifo->ready_next = NULL;
			*parked_tail = fifo;
			parked_tail = &fifo->ready_next;
			continue;
		}
		fifo->ready = false;
		while (fifo->head && fifo->head->state == BATONI_ARMED) {
			batoni_op_issue(batoni_fifo_pop(fifo));
			events++;
		}
		batoni_fifo_retire(&comm->fifos, fifo);
	}
	if (unlikely(parked)) {
		e->ready = parked;
		e->ready_tail = parked_tail;
	}
	return events;
}

size_t
batoni_settle(void)
{
	struct batoni_engine *e = &batoni_engine;
	size_t events = 0;
	size_t before;

	do {
		struct batoni_op *op;

		before = events;
		while ((op = e->finish)) {
			e->finish = op->next;
			if (!e->finish)
				e->finish_tail = &e->finish;
			if (op->kind == BATONI_KIND_GROUP)
				batoni_group_finish(op);
			else if (op->state != BATONI_ENDED)
				batoni_op_complete(op, BATON_OK);
			events++;
		}
		if (e->ready)
			events += issue_ready();
	} while (unlikely(events != before));
	return events;
}

/* Rare things: cancels asked for while another drove, communicators that broke. */
static size_t
attend(void)
{
	struct batoni_engine *e = &batoni_engine;
	size_t events = 0;

	atomic_store(&e->attention, 0);
	for (struct baton_comm *comm = e->working; comm;
	     comm = comm->working_next)
		if (batoni_may_drive(comm))
			events += batoni_comm_attend(comm);
	return events;
}

static size_t
serve(struct baton_comm *comm)
{
	size_t events = 0;

	if (!batoni_may_drive(comm))
		return 0;
	/* Left by a thread that may not drive this one. */
	if (unlikely(atomic_load_explicit(&comm->cancels,
	                                  memory_order_relaxed)))
		events += batoni_comm_attend(comm);
	if (comm->transport->in_flight)
		events += comm->transport_ops->test(comm->transport);
	if (unlikely(comm->marked))
		events += batoni_comm_watch(comm);
	if (unlikely(comm->deadline_next != BATONI_NEVER))
		events += batoni_comm_expire(comm);
	return events;
}

size_t
batoni_pass(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm **link = &e->working;
	size_t events = 0;

	if (atomic_load_explicit(&e->inbox, memory_order_relaxed))
		events += batoni_place_inbox();
	if (atomic_load_explicit(&e->posted, memory_order_relaxed))
		events += collect_posted();
	if (unlikely(atomic_load_explicit(&e->attention,
	                                  memory_order_relaxed)))
		events += attend();
	if (e->finish || e->ready)
		events += batoni_settle();
	while (*link) {
		struct baton_comm *comm = *link;

		events += serve(comm);
		if (comm->active == 0 && comm->lent == 0) {
			comm->working = false;
			*link = comm->working_next;
		} else {
			link = &comm->working_next;
		}
	}
	if (e->finish || e->ready)
		events += batoni_settle();
	return events;
}

static void
count_host_pass(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_store_explicit(&e->host_passes,
	                      atomic_load_explicit(&e->host_passes,
	                                           memory_order_relaxed) +
	                              1,
	                      memory_order_relaxed);
}

size_t
batoni_try_pass(void)
{
	size_t events;

	if (!batoni_try())
		return 0;
	events = batoni_pass();
	count_host_pass();
	batoni_leave();
	return events;
}

void
batoni_left(void)
{
	struct batoni_engine *e = &batoni_engine;

	while (work_left() && !atomic_load(&e->takers) && batoni_try()) {
		batoni_place_inbox();
		collect_posted();
		if (atomic_load(&e->attention))
			attend();
		batoni_settle();
		atomic_store(&e->driver, 0);
	}
	if (atomic_load(&e->sleepers))
		wake_sleepers();
}

void
batoni_take(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_fetch_add(&e->takers, 1);
	while (!batoni_try()) {
		if (atomic_load(&e->dozing) & BATONI_DOZE_DRIVER)
			ring();
		sched_yield();
	}
	atomic_fetch_sub(&e->takers, 1);
}

/* ---- hosts that wait ---- */

/* The earliest deadline of an operation, and whether some transport has to be
 * looked at for things to go on. */
static bool
must_look(uint64_t *deadline_p)
{
	uint64_t earliest = BATONI_NEVER;
	bool look = false;

	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		const struct batoni_transport *transport = comm->transport;

		if (!batoni_may_drive(comm))
			continue;
		if (comm->marked ||
		    (transport->quiet ? transport->moving
		                      : transport->in_flight) != 0)
			look = true;
		if (comm->deadline_next < earliest)
			earliest = comm->deadline_next;
	}
	*deadline_p = earliest;
	return look;
}

static uint64_t
until(uint64_t now, uint64_t then, uint64_t most)
{
	if (then <= now)
		return 0;
	return then - now < most ? then - now : most;
}

/* Give way to a thread that must have the lock. */
static void
give_way(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_store(&e->driver, 0);
	while (atomic_load(&e->takers))
		sched_yield();
	while (!batoni_try())
		sched_yield();
}

/* Nothing happened in the last `idle` passes. */
static void
rest(unsigned idle, uint64_t limit_ns)
{
	uint64_t deadline, nap;

	if (idle >= QUIET_SPINS && !must_look(&deadline)) {
		nap = until(batoni_now_ns(), deadline, 100000000u);
		if (limit_ns != BATONI_NEVER)
			nap = until(batoni_real_ns(), limit_ns, nap);
		if (nap)
			doze(BATONI_DOZE_DRIVER, nap);
	} else if (idle > YIELD_PASSES) {
		sched_yield();
	}
}

static bool
drive(bool (*ready)(void *, bool), void *arg, uint64_t limit_ns)
{
	struct batoni_engine *e = &batoni_engine;
	unsigned idle = 0;

	for (;;) {
		size_t events = batoni_pass();

		count_host_pass();
		if (ready(arg, true))
			return true;
		if (unlikely(atomic_load_explicit(&e->takers,
		                                  memory_order_relaxed)))
			give_way();
		if (events) {
			idle = 0;
			if (atomic_load_explicit(&e->sleepers,
			                         memory_order_relaxed))
				wake_sleepers();
			continue;
		}
		idle++;
		if (limit_ns != BATONI_NEVER &&
		    (limit_ns == 0 || idle % 16 == 0) &&
		    batoni_real_ns() >= limit_ns)
			return false;
		rest(idle, limit_ns);
	}
}

/* Another thread drives: sleep until it has done something or gone away. */
static bool
await_turn(bool (*ready)(void *, bool), void *arg)
{
	struct batoni_engine *e = &batoni_engine;
	uint32_t turn = atomic_load(&e->turn);

	bool is_ready;

	atomic_fetch_add(&e->sleepers, 1);
	is_ready = ready(arg, false);
	if (!is_ready && atomic_load(&e->driver))
		futex_wait(&e->turn, turn, 1000000u);
	atomic_fetch_sub(&e->sleepers, 1);
	return is_ready;
}

bool
batoni_wait_until(bool (*ready)(void *, bool), void *arg, int64_t timeout_ns)
{
	uint64_t limit_ns = BATONI_NEVER;
	bool is_ready;

	if (ready(arg, false))
		return true;
	if (timeout_ns == 0) {
		batoni_try_pass();
		return ready(arg, false);
	}
	if (timeout_ns > 0)
		limit_ns = batoni_real_ns() + (uint64_t)timeout_ns;
	for (unsigned spins = 0;; spins++) {
		if (batoni_try()) {
			is_ready = drive(ready, arg, limit_ns);
			batoni_leave();
			return is_ready;
		}
		if (ready(arg, false))
			return true;
		if (limit_ns != BATONI_NEVER && spins % 16 == 15 &&
		    batoni_real_ns() >= limit_ns)
			return false;
		if (spins < TURN_SPINS)
			__builtin_ia32_pause();
		else if (await_turn(ready, arg))
			return true;
	}
}

/* ---- the engine's own thread ---- */

static bool
anything_moving(void)
{
	for (struct baton_comm *comm = batoni_engine.working; comm;
	     comm = comm->working_next) {
		if (comm->transport->moving || comm->marked)
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

	while (idle < THREAD_SPINS &&
	       !atomic_load_explicit(&batoni_engine.takers,
	                             memory_order_relaxed)) {
		if (batoni_pass()) {
			events = true;
			idle = 0;
			if (atomic_load(&batoni_engine.sleepers))
				wake_sleepers();
		} else if (!events) {
			break;
		} else {
			idle++;
		}
	}
	most = anything_moving() ? NAP_MOVING_NS : TICK_NS;
	nap_ns = events ? NAP_MIN_NS : nap_ns * 2;
	if (nap_ns > most)
		nap_ns = most;
	must_look(&deadline);
	if (deadline != BATONI_NEVER)
		nap_ns = until(batoni_now_ns(), deadline, nap_ns);
	return nap_ns ? nap_ns : 1000u;
}

static void
thread_sleep_deep(void)
{
	struct batoni_engine *e = &batoni_engine;
	uint32_t rung = atomic_load(&e->doorbell);
	bool idle;

	atomic_store(&e->deep, true);
	if (!batoni_try())
		return; /* somebody is at it: linger on */
	idle = atomic_load(&e->thread_active) == 0;
	batoni_leave();
	if (!idle || work_left() || atomic_load(&e->stopping)) {
		atomic_store(&e->deep, false);
		return;
	}
	/* From here on an enqueuer that leaves something pending sees `deep`:
	 * he had the lock after us. */
	atomic_fetch_or(&e->dozing, BATONI_DOZE_THREAD);
	if (!work_left())
		futex_wait(&e->doorbell, rung, BATONI_NEVER);
	atomic_fetch_and(&e->dozing, ~BATONI_DOZE_THREAD);
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

		if (idle_ticks > LINGER_TICKS) {
			thread_sleep_deep();
			idle_ticks = 0;
			nap_ns = NAP_MIN_NS;
			continue;
		}
		if (passes != seen_passes || !batoni_try()) {
			nap_ns = TICK_NS; /* a host drives */
			idle_ticks = atomic_load(&e->thread_active)
			                     ? 0
			                     : idle_ticks + 1;
		} else if (!atomic_load(&e->thread_active) && !work_left()) {
			batoni_leave();
			nap_ns = TICK_NS;
			idle_ticks++;
		} else {
			nap_ns = thread_drive(nap_ns);
			idle_ticks = 0;
			batoni_leave();
		}
		seen_passes = passes;
		doze(BATONI_DOZE_THREAD, nap_ns);
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
	ring();
	pthread_join(thread, NULL);
}

__attribute__((constructor)) static void
engine_init(void)
{
	batoni_engine.finish_tail = &batoni_engine.finish;
	batoni_engine.ready_tail = &batoni_engine.ready;
}
