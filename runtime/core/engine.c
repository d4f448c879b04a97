/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress engine: one for the process.
 *
 * Exactly one thread drives at a time: the holder of the driver lock.  A thread of the program
 * that waits or polls drives when no other does (wait.c).  When operations
 * are pending and no thread of the program has made a pass lately, the engine's own thread
 * drives (engine_thread.c).
 *
 * No wake-up is lost.  A producer (an enqueuer or a device) pushes to `inbox` or
 * `posted` with a read-modify-write, then tries the lock.  The holder releases the
 * lock with a sequentially consistent store, then loads both lists.  One of the two
 * sees the other.
 *
 * A pass is bounded: it places the inbox, issues armed operations, tests each
 * transport once, and expires deadlines.
 *
 * A path may put off a part of what it is issued, to do it for several operations at once.
 * It is flushed when all that is ready has been issued, in a pass and wherever else operations
 * are issued, with the lock still held: no operation waits for one of a later pass.
 */
#include "core.h"

#include <sched.h>

#include "engine.h"
#include "health.h"
#include "life.h"
#include "line.h"
#include "liveness.h"
#include "log.h"
#include "room.h"
#include "forecast.h"
#include "sweep.h"
#include "ticks.h"
#include "wake.h"

/* How often the clock is read to decide whether to check the peers: in passes, and in
 * polls, which make one pass each. */
#define PASSES_A_CHECK 128u
#define POLLS_A_CHECK 8u

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

static struct batoni_op **
inbox_link(struct batoni_op *op)
{
	return &op->next;
}

static struct batoni_op **
posted_link(struct batoni_op *op)
{
	return &op->posted;
}

/* Empty an MPSC list and serve its operations, oldest first.  Returns how many.  Inline: no call of
 * link or serve goes through a pointer. */
BATONI_ALWAYS_INLINE size_t
drain(_Atomic(struct batoni_op *) *list,
      struct batoni_op **(*link)(struct batoni_op *),
      void (*serve)(struct batoni_op *))
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_op *op, *other, *oldest = NULL;
	size_t events = 0;

	/* batoni_stream_state loads this: operations have left the inbox but have no
	 * place yet. */
	atomic_store(&e->in_hand, 1);
	for (op = atomic_exchange(list, NULL); op; op = other) {
		other = *link(op);
		*link(op) = oldest;
		oldest = op;
	}
	for (op = oldest; op; op = other, events++) {
		other = *link(op);
		serve(op);
	}
	atomic_store(&e->in_hand, 0);
	return events;
}

/* An operation was pushed to the inbox: have a driver place it. */
static void
tell_driver(void)
{
	struct batoni_engine *e = &batoni_engine;

	if (atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER)
		batoni_ring();
	else if (!atomic_load(&e->driver) && batoni_trylock())
		/* The previous holder released the lock before it could see the push;
		 * batoni_unlock serves the inbox. */
		batoni_unlock();
}

void
batoni_inbox_push(struct batoni_op *op)
{
	if (unlikely(op->comm->observed))
		batoni_op_observe_event(op, BATONI_EVENT_HANDED);
	batoni_op_list_in(op, BATONI_IN_INBOX);
	push(&batoni_engine.inbox, op, &op->next);
	tell_driver();
}

void
batoni_inbox_push_chain(struct batoni_op *first)
{
	struct batoni_op *newest = NULL;
	struct batoni_op *op, *next;

	for (op = first; op; op = next) {
		next = op->next;
		if (unlikely(op->comm->observed))
			batoni_op_observe_event(op, BATONI_EVENT_HANDED);
		batoni_op_list_in(op, BATONI_IN_INBOX);
		op->next = newest;
		newest = op;
	}
	push(&batoni_engine.inbox, newest, &first->next);
	tell_driver();
}

void
batoni_post(struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;
	unsigned asleep;

	push(&e->posted, op, &op->posted);
	asleep = atomic_load(&e->asleep);
	if (asleep & BATONI_ASLEEP_DRIVER)
		batoni_ring();
	else if ((asleep & BATONI_ASLEEP_THREAD) && !atomic_load(&e->driver))
		batoni_ring_thread();
}

void
batoni_post_to_driver(struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;

	push(&e->posted, op, &op->posted);
	if (atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER)
		batoni_ring();
}

void
batoni_nudge(void)
{
	/* The caller has stored `attention`; a holder stores `driver`, then loads
	 * `attention`.  All are sequentially consistent, and so is this load, other than
	 * those of batoni_trylock: either the holder sees the store, or this thread gets the
	 * lock, or a later holder sees it. */
	if (!atomic_load(&batoni_engine.driver) && batoni_trylock_long()) {
		batoni_place_inbox();
		attend();
		batoni_end_and_issue();
		batoni_unlock();
	} else if (atomic_load(&batoni_engine.asleep) & BATONI_ASLEEP_DRIVER) {
		batoni_ring();
	}
}

static void
place_one(struct batoni_op *op)
{
	batoni_op_list_out(op, BATONI_IN_INBOX);
	batoni_op_place(op);
}

__attribute__((noinline)) size_t
batoni_place_inbox(void)
{
	return drain(&batoni_engine.inbox, inbox_link, place_one);
}

/* The trigger of an operation whose communicator was left behind has fired. */
static void
reached_late(struct batoni_op *op)
{
	const struct batoni_kind *kind = batoni_kind_of(op);

	if (kind->left_behind)
		kind->left_behind(op);
}

/* The enqueuer pushes an operation to the inbox before or after the device posts it.  If after,
 * batoni_op_place finds the operation already reached. */
static void
collect_one(struct batoni_op *op)
{
	if (unlikely(batoni_comm_is_gone(op->comm)))
		reached_late(op);
	else
		batoni_op_reached(op);
}

static __attribute__((noinline)) size_t
collect_posted(void)
{
	return drain(&batoni_engine.posted, posted_link, collect_one);
}

enum baton_status
batoni_stream_state(struct baton_comm *comm, baton_stream stream)
{
	struct batoni_engine *e = &batoni_engine;
	enum baton_status status;

	/* An idle asynchronous stream has posted all its triggers. */
	if (!comm->in_engine) {
		status = comm->device_ops->stream_idle(comm->device, stream);
		if (status == BATON_ERR_CUDA)
			batoni_ask_device(comm);
		if (status != BATON_OK)
			return status;
	}
	/* Operations of this stream may be in the inbox, in `posted`, or taken out by
	 * the driver and not yet processed.  Only processing the lists tells which
	 * stream an operation belongs to. */
	if (atomic_load(&e->inbox) || atomic_load(&e->posted) ||
	    atomic_load(&e->in_hand) || !comm->in_engine) {
		batoni_lock();
		batoni_place_inbox();
		collect_posted();
		batoni_watch_all();
		batoni_end_and_issue();
		batoni_unlock();
	}
	if (!comm->in_engine)
		return BATON_OK;
	status = comm->device_ops->stream_idle(comm->device, stream);
	/* The driver publishes an end and lets the stream go on one after the other:
	 * the stream can look idle before waiters and queue have been told, and busy
	 * when all its requests have ended.  Taking the lock waits for both.  A sleeping
	 * driver has done both. */
	if (atomic_load(&e->driver) &&
	    !(atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER)) {
		batoni_lock();
		if (status != BATON_OK)
			status = comm->device_ops->stream_idle(comm->device,
			                                       stream);
		batoni_unlock();
	}
	return status;
}

/* ---- a pass ---- */

/* Is a send ready that was called before the head of this FIFO? */
static inline bool
has_to_wait(const struct batoni_fifo *fifo)
{
	const struct batoni_fifo *other = batoni_engine.ready;

	return unlikely(other != NULL) &&
	       fifo->head->transfer.direction == BATONI_SEND &&
	       other->ready_turn < fifo->head->transfer.turn;
}

/* Issue what is armed at the head, as long as it is this FIFO's turn. */
static inline size_t
issue_heads(struct batoni_fifo *fifo)
{
	size_t events = 0;

	while (fifo->head && fifo->head->state == BATONI_ARMED && !fifo->line) {
		if (has_to_wait(fifo)) {
			batoni_fifo_make_ready(fifo);
			break;
		}
		batoni_op_issue(batoni_fifo_pop(fifo));
		events++;
	}
	return events;
}

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
		if (unlikely(fifo->line))
			events += batoni_line_advance(fifo);
		events += issue_heads(fifo);
		if (unlikely(comm->fifos.lines_live > 0))
			batoni_line_again(comm, fifo->by_key.key);
		batoni_fifo_retire(&comm->fifos, fifo);
	}
	if (unlikely(parked)) {
		e->ready = parked;
		e->ready_tail = parked_tail;
	}
	return events;
}

/* The operation was taken from the finish list.  Before a point, stream-issued operations have
 * passed their marks: a thread that sees the point ended finds that ended too. */
static void
finish_removed(struct batoni_op *op)
{
	const struct batoni_kind *kind = batoni_kind_of(op);

	if (kind->finish) {
		kind->finish(op);
		return;
	}
	if (unlikely(!op->comm->in_engine))
		batoni_watch_all();
	batoni_op_complete(op, BATON_OK);
}

static __attribute__((noinline)) size_t
flush_deferred(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm *comm;
	size_t events = 0;

	while ((comm = e->deferred)) {
		e->deferred = comm->work.deferred_next;
		comm->work.deferred = false;
		for (uint32_t i = 0; i < comm->paths_count; i++) {
			struct batoni_path *path = comm->paths[i];

			if (path->ops->deferring)
				events += path->ops->deferring->flush(path);
		}
	}
	return events;
}

__attribute__((noinline)) size_t
batoni_end_and_issue(void)
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
			batoni_op_list_out(op, BATONI_IN_FINISH);
			finish_removed(op);
			events++;
		}
		if (e->ready)
			events += issue_ready();
		if (unlikely(e->deferred) && events == before)
			events += flush_deferred();
	} while (unlikely(events != before));
	return events;
}

/* Process rare events: cancels requested while another thread drove, and communicators
 * that broke. */
static __attribute__((noinline)) size_t
attend(void)
{
	struct batoni_engine *e = &batoni_engine;
	size_t events = 0;

	atomic_store(&e->attention, 0);
	for (struct baton_comm *comm = e->working; comm;
	     comm = comm->work.next)
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
	/* A thread that may not drive this communicator left these behind. */
	if (unlikely(atomic_load_explicit(&comm->cancels.announced,
	                                  memory_order_relaxed) ||
	             comm->fault.status != BATON_OK))
		events += batoni_comm_attend(comm);
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (path->load.in_flight) {
			path->tests++;
			events += path->ops->test(path);
		}
	}
	if (unlikely(comm->fifos.lines_live > 0))
		events += batoni_lines_poll(comm);
	if (unlikely(comm->marks.issued))
		events += batoni_comm_watch(comm);
	if (unlikely(comm->deadlines.next_ns != BATONI_NEVER))
		events += batoni_comm_expire(comm);
	return events;
}

static inline bool
any_parked(const struct baton_comm *comm)
{
	bool parked = false;

	for (uint32_t i = 0; i < comm->paths_count; i++)
		parked |= comm->paths[i]->load.parked > 0;
	return parked;
}

/* The communicator needs no poll before the bell rings, a thread calls, or a deadline
 * passes. */
static void
stop_being_busy(struct baton_comm *comm)
{
	if (!comm->work.busy)
		return;
	comm->work.busy = false;
	if (comm->driving.by_engine)
		atomic_fetch_sub(&batoni_engine.thread_working, 1);
}

/* May the communicator stop being busy in this pass?  Operations behind what it waits for,
 * on streams and in FIFOs, make it busy when they are issued.  The engine's thread in deep
 * sleep covers what the communicators had when it began to listen: parked waits, deadlines,
 * devices whose health has to be checked.  Any other that needs it stays busy, so that this
 * thread wakes that one when it releases the lock. */
static bool
may_rest(const struct baton_comm *comm)
{
	const struct batoni_load sum = batoni_comm_load(comm);
	struct batoni_engine *e = &batoni_engine;

	if (batoni_load_poll(&sum) != BATONI_POLL_WHEN_RUNG ||
	    (comm->fault.status != BATON_OK && !comm->fault.aborted))
		return false;
	if (!atomic_load(&e->deep) ||
	    atomic_load(&e->thread) == batoni_this_thread())
		return true;
	if (!sum.parked && comm->deadlines.next_ns == BATONI_NEVER && comm->in_engine)
		return true;
	return (atomic_load(&batoni_bell()->listening) & BATONI_ASLEEP_THREAD) &&
	       comm->deadlines.next_ns >= e->thread_wakes &&
	       batoni_sleep_most_ns(sum.parked > 0, batoni_comm_awaits_health(comm)) >=
	               e->thread_sleeps_ns;
}

/* Has a communicator without operations work left?  A path may have messages of its own, and a
 * lent operation its marks. */
static bool
is_left_with_work(const struct baton_comm *comm)
{
	const struct batoni_load load = batoni_comm_load(comm);

	return load.moving || load.polled;
}

/* The caller has taken the communicator off engine.working. */
void
batoni_comm_rest(struct baton_comm *comm)
{
	comm->work.listed = false;
	stop_being_busy(comm);
}

size_t
batoni_pass(void)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm **link = &e->working;
	/* A communicator without parked waits stays busy while waiters drive: if it rested, they
	 * would only wake the engine's thread again. */
	bool may_all_rest = atomic_load_explicit(&e->thread,
	                                         memory_order_relaxed) ==
	                    batoni_this_thread();
	size_t events = 0;

	batoni_ticks_pass();
	if (atomic_load_explicit(&e->inbox, memory_order_relaxed))
		events += batoni_place_inbox();
	if (atomic_load_explicit(&e->posted, memory_order_relaxed))
		events += collect_posted();
	if (unlikely(atomic_load_explicit(&e->attention,
	                                  memory_order_relaxed)))
		events += attend();
	if (unlikely(++e->passes >= PASSES_A_CHECK)) {
		e->passes = 0;
		events += batoni_check_peers();
		events += batoni_make_some_room();
	}
	if (e->finish || e->ready || e->deferred)
		events += batoni_end_and_issue();
	while (*link) {
		struct baton_comm *comm = *link;

		/* Test before serving: a communicator whose next operation is
		 * enqueued while it is served stays on the list.  Serving may
		 * also insert other communicators before this one. */
		if (unlikely(comm->work.active == 0) && !is_left_with_work(comm) &&
		    (comm->fault.status == BATON_OK || comm->fault.aborted) &&
		    !atomic_load(&comm->cancels.announced)) {
			*link = comm->work.next;
			batoni_comm_rest(comm);
			continue;
		}
		events += serve(comm);
		if (unlikely(!comm->work.busy) || any_parked(comm) || may_all_rest) {
			if (may_rest(comm))
				stop_being_busy(comm);
			else
				/* There is something to poll, or the engine's
				 * thread does not know of it yet. */
				batoni_comm_set_busy(comm);
		}
		link = &comm->work.next;
	}
	if (e->finish || e->ready || e->deferred)
		events += batoni_end_and_issue();
	return events;
}

size_t
batoni_poll(const struct baton_comm *comm_or_null)
{
	size_t events;

	if (!batoni_trylock_long()) {
		if (!comm_or_null || !batoni_is_left_to_us(comm_or_null))
			return 0;
		batoni_lock();
	}
	if (unlikely(atomic_load_explicit(&batoni_engine.host_passes,
	                                  memory_order_relaxed) %
	                     POLLS_A_CHECK ==
	             0))
		batoni_check_peers_soon();
	events = batoni_pass();
	batoni_count_host_pass();
	batoni_unlock();
	return events;
}

/* ---- releasing and taking the lock ---- */

/* The lock word between the handover and a claimant's claim. */
static const struct batoni_thread handed_over;

static bool
take_handed_over(void)
{
	const struct batoni_thread *holder = &handed_over;

	return atomic_compare_exchange_strong_explicit(
		&batoni_engine.driver, &holder, batoni_this_thread(),
		memory_order_acquire, memory_order_relaxed);
}

void
batoni_unlocked(void)
{
	struct batoni_engine *e = &batoni_engine;
	char scratch[BATONI_SENTENCE_BYTES];
	char *kept = batoni_sentence_aside(scratch);

	while (batoni_work_left() &&
	       atomic_load(&e->wanted) < BATONI_CLAIMANT && batoni_trylock_long()) {
		batoni_place_inbox();
		collect_posted();
		if (atomic_load(&e->attention))
			attend();
		batoni_end_and_issue();
		atomic_store(&e->driver, NULL);
	}
	batoni_sentence_back(kept);
	if (atomic_load(&e->wanted) >= BATONI_CLAIMANT) {
		/* If another thread gets the lock first, its release comes through here
		 * too. */
		if (batoni_trylock()) {
			atomic_store(&e->driver, &handed_over);
			/* The last claimant may have timed out.  It subtracts from
			 * `wanted`, then tries the handed-over lock; this thread
			 * stores the lock word, then loads `wanted`.  One of the
			 * two takes the lock. */
			if (atomic_load(&e->wanted) < BATONI_CLAIMANT &&
			    take_handed_over())
				batoni_unlock();
		}
	} else if (atomic_load(&e->wanted)) {
		batoni_wake_next_driver();
	}
	if (atomic_load(&e->deep) &&
	    (atomic_load(&e->thread_working) || batoni_room_unheard()))
		batoni_wake_thread();
}

void
batoni_lock(void)
{
	struct batoni_engine *e = &batoni_engine;

	assert(atomic_load(&e->driver) != batoni_this_thread());
	batoni_cancel_off();
	if (batoni_trylock())
		return;
	atomic_fetch_add(&e->wanted, BATONI_CLAIMANT);
	while (!take_handed_over() && !batoni_trylock()) {
		if (atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER)
			batoni_ring();
		sched_yield();
	}
	atomic_fetch_sub(&e->wanted, BATONI_CLAIMANT);
}

bool
batoni_lock_within(uint64_t wait_ns)
{
	struct batoni_engine *e = &batoni_engine;
	uint64_t limit_ns = batoni_real_ns() + wait_ns;
	bool taken;

	/* The pause is a cancellation point.  A thread cancelled there would leave its
	 * units in `wanted` for ever. */
	batoni_cancel_off();
	atomic_fetch_add(&e->wanted, BATONI_CLAIMANT);
	for (unsigned tries = 0; !(taken = take_handed_over() || batoni_trylock()) &&
	                         batoni_real_ns() < limit_ns; tries++) {
		if (atomic_load(&e->asleep) & BATONI_ASLEEP_DRIVER)
			batoni_ring();
		batoni_pause_between(tries);
	}
	atomic_fetch_sub(&e->wanted, BATONI_CLAIMANT);
	/* The holder may have handed the lock over to this thread before the
	 * subtraction; no other thread would take it. */
	taken = taken || take_handed_over();
	if (!taken)
		batoni_cancel_restore();
	return taken;
}
