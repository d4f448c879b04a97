/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's internal interface, shared by its files (engine, op, enqueue, group,
 * request, queue, stream, comm).
 *
 * Locks and order.  The process has one *driver lock*; its holder is the driver.  Only
 * the driver touches the fields marked "driver" below, the state of transports, and the
 * state of in-engine devices.  No other lock is held across MPI.  Enqueuing calls only
 * try the driver lock; if it is taken, they push the record to the inbox.
 *
 *   comm->order   held by enqueuers on asynchronous devices around {enqueue on
 *                 the device, push to the inbox}, so that the order of a stream
 *                 and the order of matching agree.  Taken first, never by the
 *                 driver.
 *   driver lock
 *   queue->lock, table_lock (comm.c), errors_lock (stream.c)   leaves: nothing is
 *                 taken under them.
 */
#ifndef BATONI_CORE_H
#define BATONI_CORE_H

#include <pthread.h>

#include "clock.h"
#include "comm.h"
#include "fifo.h"
#include "handle.h"
#include "mem.h"
#include "onesided.h"
#include "pool.h"
#include "thread.h"

#define BATONI_COMMS_MAX 4096u /* index 0 is not used */
/* baton_comm.functions: it was left behind, and runs no more functions. */
#define BATONI_GONE UINT32_MAX
#define BATONI_NEVER UINT64_MAX
#define BATONI_PATHS_MAX 4u
/* The first two of each communicator: the messages of its transport, and the one-sided
 * layer, where there is one. */
#define BATONI_PATH_MESSAGES 0u
#define BATONI_PATH_ONESIDED 1u

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct baton_comm {
	/* Immutable after start. */
	struct batoni_device *device;
	struct batoni_transport *transport;
	const struct batoni_device_ops *device_ops;
	const struct batoni_transport_ops *transport_ops;
	struct batoni_onesided *onesided; /* NULL: no signals, no windows */
	struct batoni_staging *staging; /* until start gives it to the transport */
	/* How operations run (path.h).  The last path that carries an operation is
	 * chosen for it. */
	struct batoni_path *paths[BATONI_PATHS_MAX];
	uint32_t paths_count;
	struct batoni_pool pool;
	uint32_t index;
	int rank, size, tag_max;
	bool in_engine;     /* the device */
	bool thread_drives; /* the engine's thread may drive it, and does */
	bool observed; /* life.h: it keeps time stamps, or has an observer */
	const struct batoni_observer *observer; /* or NULL */
	bool plain; /* direct.h applies: in-engine, any thread drives, no default
	               deadline, nothing observes the life of its operations */
	enum batoni_drivers drivers;
	pthread_t main_thread;
	int64_t timeout_ns; /* 0: none */
	enum baton_progress progress;
	struct batoni_host host;
	pthread_mutex_t order;
	atomic_bool enqueuing; /* a path's enqueue runs, under order */

	/* Any thread, atomic. */
	_Atomic int status; /* enum baton_status */
	/* Cancels that the driver has not processed: how many were announced, and a list
	 * of their records (slot + 1).  The list is linked by pool.next_free, which
	 * otherwise links free records only. */
	_Atomic uint32_t cancels, cancelled;
	_Atomic uint32_t queues;  /* alive */
	_Atomic bool any_drives;  /* `drivers` is ANY, and `lost` is false */
	_Atomic bool lost; /* the transport may not be called any more */
	_Atomic uint32_t joins;   /* streams that wait for records of this communicator */

	/* Driver. */
	struct batoni_fifo_table fifos;
	struct batoni_list_node deadlines;
	uint64_t deadline_next; /* no deadline is earlier; NEVER: none */
	uint32_t active;        /* placed and not ended */
	uint32_t lent;          /* ended, but the transport still uses their buffers */
	uint32_t held;          /* of active: no operations, but batoni_comm_hold */
	bool working;           /* on the list engine.working */
	bool busy; /* working, and to be looked at before the bell rings: it counts in
	              thread_working */
	struct baton_comm *working_next;
	/* Asynchronous devices: where stream-issued operations are armed and done, by
	 * slot. */
	struct batoni_mark *marks;
	baton_stream *observe, *follow; /* scratch of publishing, under order */
	struct batoni_transfer **scratch;
	struct batoni_op *marked, **marked_tail;
	enum baton_status breaking; /* a fatal error, or OK */
	/* `breaking` has been applied: to what is host-issued, then to the rest, once no
	 * enqueue runs. */
	bool broken, aborted;
	uint32_t peers_gone; /* peers whose processes were seen to have ended */
	bool left;   /* all ranks have left it; destroy ends without them */
	char error[256];            /* written once, before status */
	/* Records of threads in baton_stream_synchronize; asynchronous devices only. */
	struct batoni_list_node locals;

	/* Any thread, atomic: launched functions that run on an asynchronous device, or
	 * BATONI_GONE. */
	_Atomic uint32_t functions;

	struct batoni_handle handle; /* last, so that it shifts no cache line above */
};

struct batoni_engine {
	/* The driver lock.  NULL: free.  Otherwise batoni_this_thread() of its holder, or
	 * the address of handed_over (engine.c) between a handover and its claim. */
	alignas(64) _Atomic(const struct batoni_thread *) driver;
	_Atomic(struct batoni_op *) inbox;  /* enqueued; newest first */
	_Atomic(struct batoni_op *) posted; /* reached on a thread of the device */
	atomic_uint attention;              /* cancels or breaks are to be processed */
	atomic_uint wanted; /* sum of BATONI_TAKER and BATONI_SLEEPER units */
	atomic_uint dozing;                 /* BATONI_DOZE_* bits */
	atomic_uint in_hand;                /* the driver is placing or collecting */
	atomic_uint running; /* streams' threads that run a function now and will
	                        drive when it has returned (launch.c) */
	atomic_bool deep;                   /* the engine's thread is in deep sleep */
	_Atomic uint32_t clock_ms;          /* as of the last batoni_tick */

	/* Driver. */
	alignas(64) struct batoni_op *finish; /* to be completed by batoni_settle */
	struct batoni_op **finish_tail;
	struct batoni_fifo *ready; /* FIFOs whose head is armed */
	struct batoni_fifo **ready_tail;
	struct baton_comm *working; /* communicators with something active */
	_Atomic uint32_t thread_working; /* busy communicators with thread_drives */
	uint32_t passes; /* since the clock was last read for the liveness check */
	uint64_t peers_checked_ns; /* the last liveness check; coarse clock */
	uint64_t thread_wakes; /* deadline at which the listening thread wakes */
	_Atomic uint64_t host_passes;   /* passes made by host threads */

	/* Futex of the engine's thread. */
	alignas(64) _Atomic uint32_t thread_rung;
	_Atomic(const struct batoni_thread *) thread; /* the engine's thread */
	atomic_bool stopping;
};

/* Units of batoni_engine.wanted.  A taker must get the lock: the next holder to release
 * it hands it over.  A sleeper has a pending request, and drives if no other thread
 * does. */
#define BATONI_SLEEPER 1u
#define BATONI_TAKER (1u << 16)

/* The driver sleeps while it holds the lock.  Nothing progresses until a thread calls, or
 * the driver polls at long intervals for messages of the one-sided layer. */
#define BATONI_DOZE_DRIVER 1u
/* The engine's thread sleeps and does not hold the lock. */
#define BATONI_DOZE_THREAD 2u

extern struct batoni_engine batoni_engine;
extern _Atomic(struct baton_comm *) batoni_comms[BATONI_COMMS_MAX];

/* ---- engine.c ---- */

/* The communicator was taken off engine.working; the driver. */
void batoni_comm_rest(struct baton_comm *comm);
/* One bounded pass; the driver.  Returns events. */
size_t batoni_pass(void);
/* Complete the finish list and issue the ready FIFOs, without testing transports; the
 * driver. */
size_t batoni_settle(void);
/* Place what is in the inbox; the driver. */
size_t batoni_place_inbox(void);
/* Called after a release of the lock that found work left or the lock wanted. */
void batoni_left(void);
/* Take the driver lock, waiting for at most one pass of each earlier taker. */
void batoni_take(void);
/* The same with a time limit.  False: the lock was not taken. */
bool batoni_take_within(uint64_t wait_ns);
/* Update clock_ms, from which ages are computed.  Called by a thread that has just slept,
 * and by one that puts a communicator on engine.working.  Any thread. */
void batoni_tick(void);
/* Hand an enqueued record to the driver. */
void batoni_inbox_push(struct batoni_op *op);
/* `reached` on a thread of a device: store and wake. */
void batoni_post(struct batoni_op *op);
/* The same, by a thread that takes the lock afterwards if it is free. */
void batoni_post_to_driver(struct batoni_op *op);
/* `attention` was set: process it here if the lock is free, else wake the driver. */
void batoni_nudge(void);
/* Count a pass of a host thread, so that the engine's thread leaves the lock alone. */
void batoni_count_host_pass(void);
/* Poll: make one pass, unless another driver already serves the communicator. */
size_t batoni_poll(const struct baton_comm *comm_or_null);
/* Is the stream without work, inbox included?  Any thread. */
enum baton_status batoni_stream_state(struct baton_comm *comm,
                                      baton_stream stream);

/* ---- load.c: what is to be looked at, and when; the driver ---- */

/* The load of all paths of a communicator, its holds and its marks. */
struct batoni_load batoni_comm_load(const struct baton_comm *comm);
enum batoni_look batoni_load_look(const struct batoni_load *sum);

/* How long the engine's thread may nap while operations are PENDING. */
uint64_t batoni_tick_ns(uint32_t more_tests);

/* Of all communicators that this thread may drive. */
struct batoni_outlook {
	enum batoni_look look;
	uint64_t deadline; /* no operation has an earlier one; NEVER: none */
	uint32_t more_tests; /* of all loads */
	bool parked; /* there are parked waits: listen before a sleep */
	bool parked_on_others; /* and other processes end some of them */
};

struct batoni_outlook batoni_look_ahead(void);

/* ---- wait.c ---- */

/* Sleep on a word of this process if it still holds `value`; NEVER: without limit.
 * batoni_futex_wake wakes all its sleepers. */
void batoni_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nap_ns);
void batoni_futex_wake(_Atomic uint32_t *word);
/* Wake the dozing driver. */
void batoni_ring(void);
/* Wake one of the sleepers to drive. */
void batoni_wake_heir(void);
/* The record with this handle has ended, or its handle was released: wake its
 * waiters. */
void batoni_wake_waiters(baton_request request);
/* Is there work for a driver that no transport reports: inbox, posted, attention? */
bool batoni_work_left(void);
/* The doorbell's value.  A sleeper reads it before its last check for work. */
uint32_t batoni_rung(void);
/* The driver: ask peers to wake this thread when they signal.  False: no communicator has
 * parked waits.  After true, make one more batoni_pass before the nap, and call
 * batoni_unlisten after it. */
bool batoni_listen(unsigned who);
void batoni_unlisten(unsigned who);
/* Nanoseconds from `now` until `then`, capped at `most`. */
uint64_t batoni_time_left(uint64_t now, uint64_t then, uint64_t most);
/* What a host waits for. */
struct batoni_awaited {
	/* Is the wait over?  Called by the waiting thread; `driving`: it holds the driver
	 * lock.  Not called again after it has returned true. */
	bool (*ready)(struct batoni_awaited *awaited, bool driving);
	/* The end of any of these requests is a reason to call `ready`, which may change
	 * the list.  BATON_REQUEST_NULL entries do not count. */
	const baton_request *requests;
	size_t count;
	/* Instead of requests: a record on this thread's stack. */
	struct batoni_op *local;
	/* Only another thread can drive the awaited operations. */
	bool passive;
};

/* Drive, or sleep while another thread drives, until `ready` returns true, for at most
 * timeout_ns (0 polls once; negative: no limit).  comm is for the poll; NULL: none.
 * Returns the last answer of `ready`. */
bool batoni_wait_until(struct batoni_awaited *awaited,
                       const struct baton_comm *comm, int64_t timeout_ns);
/* A call that retries something under the lock pauses here, without the lock, so that
 * other threads get it.  The first 1000 pauses yield the core; later ones sleep 50 us. */
void batoni_pause_between(unsigned tries);

/* ---- launch.c ---- */

/* `reached` of a launch: runs the function, on a thread of the device. */
void batoni_reached_launch(struct batoni_stream_item *item);
/* The driver: is there nothing to poll until a launched function returns, whose thread
 * then drives, or another thread calls? */
bool batoni_is_left_to_launches(void);
/* Release the lock; if the above holds, without waking an heir. */
void batoni_leave_to_launches(void);

/* ---- engine_thread.c ---- */

/* Start the engine's thread if it does not run.  OK, SYSTEM. */
enum baton_status batoni_engine_start(void);
/* Wake it from a nap. */
void batoni_ring_thread(void);
/* Wake it from deep sleep. */
void batoni_wake_thread(void);

/* Tell the core that this is a spin loop. */
static inline void
batoni_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* The identity of the calling thread: the address of its batoni_thread. */
static inline const struct batoni_thread *
batoni_this_thread(void)
{
	return &batoni_thread;
}

static inline bool
batoni_try(void)
{
	struct batoni_engine *e = &batoni_engine;
	const struct batoni_thread *nobody = NULL;

	return !atomic_load_explicit(&e->driver, memory_order_relaxed) &&
	       atomic_compare_exchange_strong_explicit(
		       &e->driver, &nobody, batoni_this_thread(),
		       memory_order_acquire, memory_order_relaxed);
}

/* Release the lock, without a lost wake-up: this thread stores `driver`, then loads
 * the queues; a producer pushes (a read-modify-write), then loads `driver`.  All are
 * sequentially consistent, so one of the two sees the other. */
static inline void
batoni_leave(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_store(&e->driver, NULL);
	if (unlikely(atomic_load(&e->inbox) || atomic_load(&e->posted) ||
	             atomic_load(&e->attention) || atomic_load(&e->wanted) ||
	             atomic_load(&e->deep)))
		batoni_left();
	if (unlikely(batoni_thread.uncancellable))
		batoni_cancel_restore();
}

/* batoni_try for a thread that will test transports.  It disables cancellation, since MPI
 * has cancellation points.  (An enqueuer holds the lock too briefly to pay for that; it
 * calls MPI_Isend and MPI_Irecv at most.) */
static inline bool
batoni_try_long(void)
{
	if (!batoni_try())
		return false;
	batoni_cancel_off();
	return true;
}

/* Does the engine's thread drive?  It does not serve communicators that only callers may
 * drive. */
static inline bool
batoni_engine_drives(void)
{
	const struct batoni_thread *driver = atomic_load(&batoni_engine.driver);

	return driver && driver == atomic_load_explicit(&batoni_engine.thread,
	                                                memory_order_relaxed);
}

static inline bool
batoni_may_drive(const struct baton_comm *comm)
{
	if (likely(atomic_load_explicit(&comm->any_drives,
	                                memory_order_relaxed)))
		return !batoni_thread.engine || comm->thread_drives;
	if (atomic_load_explicit(&comm->lost, memory_order_relaxed) ||
	    batoni_thread.engine)
		return false;
	return comm->drivers != BATONI_DRIVERS_MAIN ||
	       pthread_equal(pthread_self(), comm->main_thread);
}

/* Another thread holds the lock.  True: that thread may not drive the communicator and
 * this one may, so this thread must take the lock itself. */
static inline bool
batoni_is_left_to_us(const struct baton_comm *comm)
{
	if (likely(comm->thread_drives) || !batoni_may_drive(comm))
		return false;
	return comm->drivers == BATONI_DRIVERS_MAIN || batoni_engine_drives();
}

/* The path of a transfer. */
static inline struct batoni_path *
batoni_path_of(const struct batoni_op *op)
{
	return op->comm->paths[op->path];
}

/* Choose the path of an operation: its index, or -1 if none carries it. */
static inline int
batoni_choose_path(const struct baton_comm *comm, enum batoni_op_kind kind,
                   int peer)
{
	for (uint32_t i = comm->paths_count; i-- > 0;) {
		struct batoni_path *path = comm->paths[i];

		if (path->ops->kinds >> kind & 1u &&
		    (!path->ops->serves ||
		     path->ops->serves(path, (int)kind, peer)))
			return (int)i;
	}
	return -1;
}

/* ---- life.c ---- */

/* Set what watches the communicator's operations. */
void batoni_observe_comm(struct baton_comm *comm);

/* ---- op.c: the life of a record; the driver, unless said ---- */

/* Put the record on its stream and in its FIFO.  It may be issued and end within the
 * call. */
void batoni_op_place(struct batoni_op *op);
/* The enqueuer has issued it: its in-engine stream is idle, its FIFO empty. */
void batoni_op_place_direct(struct batoni_op *op);
/* The stream has reached the record's item. */
void batoni_op_reached(struct batoni_op *op);
void batoni_op_arm(struct batoni_op *op);
void batoni_op_issue(struct batoni_op *op);
/* The only function that completes operations. */
void batoni_op_complete(struct batoni_op *op, enum baton_status status);
/* End the operation early, with status unless it has already ended by itself. */
void batoni_op_end_early(struct batoni_op *op, enum baton_status status);
/* The stream does not touch the record's item any more. */
void batoni_op_passed(struct batoni_op *op);
/* Start its deadline and take its time stamp. */
void batoni_op_start_clock(struct batoni_op *op);

/* The FIFO's head is armed: batoni_settle issues it. */
void batoni_fifo_make_ready(struct batoni_fifo *fifo);
/* Put the record on the engine's finish list: batoni_settle ends it. */
void batoni_op_finish(struct batoni_op *op);
/* End the record without a completion: a group's record, a member of a void group. */
void batoni_op_vanish(struct batoni_op *op, uint64_t drop);
/* Remove the record from the FIFO that it waits in, if any. */
void batoni_op_leave_fifo(struct batoni_op *op);
/* Count a record in or out of comm->active. */
void batoni_comm_count(struct baton_comm *comm, int change);
/* hold: keep polling the communicator, at a slow rate, even without operations.  Not
 * hold: stop that. */
void batoni_comm_hold(struct baton_comm *comm, bool hold);
/* Mark the communicator busy, so that drivers poll it even if no operation is
 * pending. */
void batoni_comm_look(struct baton_comm *comm);
/* Set up the callbacks for paths. */
void batoni_host_init(struct baton_comm *comm);

/* ---- liveness.c ---- */

/* Ask an asynchronous device how it is; an error breaks the communicator.  The driver.
 * Returns events. */
size_t batoni_check_device(struct baton_comm *comm);

/* Liveness check: end the operations that wait for a peer whose process has ended.  Does
 * nothing if the last check was a moment ago.  The driver, within a pass.  Returns
 * events. */
size_t batoni_check_peers(void);

/* A call of the device failed: look at its health now.  Any thread but the driver. */
void batoni_ask_device(struct baton_comm *comm);

/* Make the next pass call it, for callers whose passes are far apart.  The driver. */
static inline void
batoni_check_peers_soon(void)
{
	batoni_engine.passes = UINT32_MAX - 1;
}

/* ---- sweep.c: all operations of a communicator; the driver ---- */

/* The communicator breaks: end all its operations and release all streams.  False: a
 * path's enqueue runs, so operations of such paths are left; call it again.  The caller
 * lets other threads have the lock meanwhile. */
bool batoni_comm_end_all(struct baton_comm *comm);
/* Expire deadlines.  Returns events. */
size_t batoni_comm_expire(struct baton_comm *comm);
/* Process cancels and a break that other threads asked for.  Returns events. */
size_t batoni_comm_attend(struct baton_comm *comm);
/* Test the marks of stream-issued operations.  Returns events. */
size_t batoni_comm_watch(struct baton_comm *comm);
/* The same for all communicators that have marks. */
size_t batoni_watch_all(void);
/* Test the marks of this stream-issued operation from now on. */
void batoni_comm_mark(struct batoni_op *op);
/* Break the communicator.  The first status and reason are kept; the next pass ends what
 * is pending. */
void batoni_comm_break(struct baton_comm *comm, enum baton_status status,
                       const char *why);

/* Any thread: drop holders; dropping the last one returns the record to the pool.
 * Returns the word as it was before. */
static inline uint64_t
batoni_op_drop(struct batoni_op *op, uint64_t holders)
{
	uint64_t before = atomic_fetch_and_explicit(&op->word, ~holders,
	                                            memory_order_acq_rel);

	if ((before & ~holders & BATONI_OP_HELD) == 0)
		batoni_pool_return(&op->comm->pool, op);
	return before;
}

/* The same for a record that belongs to a thread in baton_stream_synchronize (LOCAL)
 * and to its asynchronous stream: HANDLE, STREAM. */
static inline void
batoni_op_drop_local(struct batoni_op *op, uint64_t holder)
{
	uint64_t before = atomic_fetch_and_explicit(&op->word, ~holder,
	                                            memory_order_acq_rel);

	if ((before & ~holder & BATONI_OP_HELD) == 0)
		batoni_free(op);
}

/* Any thread: keep a record from being reused, as the item of a waiting stream does.
 * *word_p: in, the word as last read; out, the word at the moment of the join.  OK: the
 * caller ends the join with batoni_op_unjoin.  STALE: another generation, or none of the
 * holders in `holders` is left.  AGAIN: too many joins. */
static inline enum baton_status
batoni_op_hold(struct batoni_op *op, uint64_t *word_p, uint64_t holders)
{
	const uint64_t generation = *word_p >> 32;

	do {
		if (*word_p >> 32 != generation || !(*word_p & holders))
			return BATON_ERR_STALE;
		if ((*word_p & BATONI_OP_JOINS) == BATONI_OP_JOINS)
			return BATON_ERR_AGAIN;
	} while (!atomic_compare_exchange_weak(&op->word, word_p,
	                                       *word_p + BATONI_OP_JOIN));
	/* baton_comm_destroy waits until this is 0. */
	atomic_fetch_add(&op->comm->joins, 1);
	return BATON_OK;
}

static inline void
batoni_op_unjoin(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	uint64_t before = atomic_fetch_sub_explicit(
		&op->word, BATONI_OP_JOIN, memory_order_acq_rel);

	if (((before - BATONI_OP_JOIN) & BATONI_OP_HELD) == 0)
		batoni_pool_return(&comm->pool, op);
	atomic_fetch_sub_explicit(&comm->joins, 1, memory_order_release);
}

/* ---- leave.c; the driver, unless said ---- */

/* How long a broken communicator still waits for an asynchronous device.  Any thread. */
int64_t batoni_comm_grace_ns(const struct baton_comm *comm);
/* The communicator is broken, and a destroy has waited so long for its asynchronous
 * device.  True: long enough; the communicator can be closed, although items of it may be
 * on streams. */
bool batoni_comm_leave_behind(struct baton_comm *comm, uint64_t waited_ns);
/* A trigger of a communicator that was left behind. */
void batoni_op_reached_late(struct batoni_op *op);

static inline bool
batoni_comm_is_gone(const struct baton_comm *comm)
{
	return atomic_load_explicit(&comm->functions, memory_order_relaxed) ==
	       BATONI_GONE;
}

/* PENDING, or the communicator can be closed now.  INVALID: other ranks are in a
 * different collective call. */
enum baton_status batoni_comm_try_to_leave(struct baton_comm *comm);
/* TIMEOUT; the sentence for baton_last_error names what is still in use. */
enum baton_status batoni_comm_refuse_to_leave(const struct baton_comm *comm);

/* ---- enqueue.c ---- */

/* A record with its common fields set, or NULL when the pool is empty. */
struct batoni_op *batoni_op_new(struct baton_comm *comm,
                                enum batoni_op_kind kind, baton_stream stream,
                                uint64_t holders);
/* Hand over a complete record: place it at once, or push it to the inbox. */
void batoni_publish(struct batoni_op *op);
/* Around what hands transfers to stream-issued paths: takes comm->order, and keeps the
 * paths from being aborted.  OK, or the status of the communicator, which has broken; then
 * there is nothing to end. */
enum baton_status batoni_enqueuing_begin(struct baton_comm *comm);
void batoni_enqueuing_end(struct baton_comm *comm);
/* Break the communicator from an enqueuing thread. */
void batoni_break_halfway(struct baton_comm *comm, enum baton_status status,
                          const char *why);
/* Hand those transfers of a list (group_next) that have this stream-issued path to it; as
 * detached ones they follow all streams that the list names;
 * batoni_publish follows.  Caller: between the two above.  OK; anything else: nothing was
 * enqueued, or the communicator breaks. */
enum baton_status batoni_enqueue_on_path(struct baton_comm *comm, unsigned path,
                                         struct batoni_op *first, bool detached);
/* The arguments of a send or receive. */
struct batoni_arguments {
	const void *buffer;
	size_t count;
	enum baton_datatype type;
	int peer, tag;
	baton_stream stream;
	const struct baton_op_options *options;
	baton_request *request_p;
};

/* Any send or receive, with all checks. */
enum baton_status batoni_enqueue(const char *call, enum batoni_op_kind kind,
                                 struct baton_comm *comm,
                                 const struct batoni_arguments *a);
/* Any one-sided operation; the caller has checked its own arguments.  a->tag is the
 * context.  `fill` gives the one-sided layer, by slot, what it needs beyond the transfer.
 * It returns OK, or the refusal, and then it keeps nothing.  `forget` undoes `fill` if
 * the call is refused later. */
enum baton_status
batoni_enqueue_onesided(const char *call, enum batoni_op_kind kind,
                        struct baton_comm *comm,
                        const struct batoni_arguments *a, size_t bytes,
                        enum baton_status (*fill)(struct batoni_onesided *onesided,
                                                  uint32_t slot,
                                                  const void *more),
                        void (*forget)(struct batoni_onesided *onesided,
                                       uint32_t slot),
                        const void *more);

/* An enqueuer releases the driver lock. */
static inline void
batoni_leave_enqueue(void)
{
	const struct batoni_engine *e = &batoni_engine;

	if (unlikely(e->finish || e->ready))
		batoni_settle();
	batoni_leave();
}

/* Publish one complete record, on any kind of device. */
enum baton_status batoni_publish_record(struct batoni_op *op);
/* Return a record to the pool when its call is refused late; returns status. */
enum baton_status batoni_unmake(struct batoni_op *op,
                                enum baton_status status);
/* The device does not take an item: returns status, with a sentence. */
enum baton_status batoni_refuse_device(struct baton_comm *comm,
                                       enum baton_status status);
/* The `reached` of items: inline on the driver, posted on a thread of the device. */
void batoni_reached_inline(struct batoni_stream_item *item);
void batoni_reached_posted(struct batoni_stream_item *item);
/* False: comm is NULL or was destroyed; batoni_refuse_comm then returns INVALID. */
static inline bool
batoni_comm_lives(const struct baton_comm *comm)
{
	return comm && batoni_is_alive(&comm->handle);
}

enum baton_status batoni_refuse_comm(const char *call,
                                     const struct baton_comm *comm);
/* Checks that all enqueuing calls share. */
enum baton_status batoni_check_target(const char *call,
                                      const struct baton_comm *comm,
                                      baton_stream stream, bool launching);

static inline baton_request
batoni_handle(const struct baton_comm *comm, const struct batoni_op *op,
              uint64_t word)
{
	return (word >> 32) << 32 | (uint64_t)comm->index << 20 |
	       batoni_pool_slot(&comm->pool, op);
}

static inline baton_request
batoni_op_handle(const struct batoni_op *op, uint64_t word)
{
	return batoni_handle(batoni_get(op->comm), op, word);
}

/* ---- group.c ---- */

/* The group of this thread on comm, or NULL. */
struct batoni_op *batoni_group_open(const struct baton_comm *comm);
/* A call inside the group was refused: void the group (the first refusal is kept) and
 * return status. */
enum baton_status batoni_group_refuse(const struct baton_comm *comm,
                                      enum baton_status status);
/* Make the record a member.  OK, or the refusal (the record is returned). */
enum baton_status batoni_group_add(struct batoni_op *group,
                                   struct batoni_op *op);
/* These four: the driver. */
void batoni_group_place(struct batoni_op *group);
void batoni_group_reached(struct batoni_op *group, struct batoni_op *carrier);
void batoni_group_finish(struct batoni_op *group);
void batoni_group_member_ended(struct batoni_op *group);

/* ---- queue.c ---- */

/* Reserve an entry for an operation of comm.  OK, AGAIN, INVALID. */
enum baton_status batoni_queue_reserve(struct baton_queue *queue,
                                       const struct baton_comm *comm);
void batoni_queue_unreserve(struct baton_queue *queue);
/* The operation has ended; the driver. */
void batoni_queue_deliver(struct baton_queue *queue, struct batoni_op *op);

/* ---- request.c ---- */

/* The record of a live handle, with its word; NULL: stale. */
struct batoni_op *batoni_request_find(baton_request request,
                                      uint64_t *word_p);
/* Make the end of a pending request, or the release of its handle, call
 * batoni_wake_waiters. */
void batoni_request_mark_waited(baton_request request);
void batoni_completion_fill(const struct batoni_op *op, uint64_t word,
                            struct baton_completion *completion);

/* ---- stream.c ---- */

/* Note the failure of an operation that no request observes.  True: it is the first one
 * since the stream was synchronized.  Any thread. */
bool batoni_stream_error_note(const struct batoni_op *op,
                              enum baton_status status);

#endif
