/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's inside: what its files (engine, op, enqueue, group, request,
 * queue, stream, comm) share.
 *
 * Locks and order.  The process has one *driver lock*.  The thread that holds it is
 * the driver: only the driver touches what is marked "driver" below, and the state
 * of transports and in-engine devices.  No other lock is held across MPI.  Enqueuing
 * calls only try it; what they cannot do at once they push to the inbox.
 *
 *   comm->order   held by enqueuers on asynchronous devices around {enqueue on
 *                 the device, push to the inbox}, so that the order of a stream
 *                 and the order of matching agree.  Taken first, never by the
 *                 driver.
 *   driver lock
 *   queue->lock, engine.table_lock, errors_lock   leaves: nothing is taken
 *                 under them.
 */
#ifndef BATONI_CORE_H
#define BATONI_CORE_H

#include <pthread.h>

#include "clock.h"
#include "comm.h"
#include "fifo.h"
#include "handle.h"
#include "onesided.h"
#include "pool.h"
#include "thread.h"

#define BATONI_COMMS_MAX 4096u /* index 0 is not used */
#define BATONI_NEVER UINT64_MAX

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct baton_comm {
	/* Immutable after start. */
	struct batoni_device *device;
	struct batoni_transport *transport;
	const struct batoni_device_ops *device_ops;
	const struct batoni_transport_ops *transport_ops;
	struct batoni_onesided *onesided; /* NULL: no signals, no windows */
	struct batoni_pool pool;
	uint32_t index;
	int rank, size, tag_max;
	bool in_engine;     /* the device */
	bool stream_issued; /* the transport */
	bool thread_drives; /* the engine's thread may and shall */
	bool plain; /* in-engine, host-issued, any drive; no default deadline, no
	               time stamps: what direct.h is for */
	enum batoni_drivers drivers;
	pthread_t main_thread;
	int64_t timeout_ns; /* 0: none */
	enum baton_progress progress;
	struct batoni_transport_host host;
	pthread_mutex_t order;

	/* Any thread, atomic. */
	_Atomic int status; /* enum baton_status */
	/* Cancels that the driver has not attended to: how many were announced, and a
	 * list of records (slot + 1), linked by pool.next_free, which is in use for
	 * free ones only otherwise. */
	_Atomic uint32_t cancels, cancelled;
	_Atomic uint32_t queues;  /* alive */
	_Atomic bool any_drives;  /* `drivers` is ANY, and the communicator not lost */
	_Atomic bool lost; /* the transport may not be called any more */
	_Atomic uint32_t joins;   /* streams that wait for records of ours */

	/* Driver. */
	struct batoni_fifo_table fifos;
	struct batoni_list_node deadlines;
	uint64_t deadline_next; /* no deadline is earlier; NEVER: none */
	uint32_t active;        /* placed and not ended */
	uint32_t lent;          /* ended, but the transport still has them */
	uint32_t held;          /* of active: not operations, but held open */
	bool working;           /* on the engine's list */
	bool busy; /* of those, there is something to look at besides waits that
	              are parked: it counts in thread_working */
	struct baton_comm *working_next;
	struct batoni_mark *marks; /* stream-issued: armed and done, by slot */
	baton_stream *observe;     /* scratch of publishing, under order */
	struct batoni_transfer **scratch;
	struct batoni_op *marked, **marked_tail;
	enum baton_status breaking; /* a fatal error, or OK */
	bool broken; /* it has been spread: everything pending has ended */
	uint32_t peers_gone; /* processes of peers that were seen to have ended */
	bool left;   /* all ranks have left it; destroy ends without them */
	char error[256];            /* written once, before status */

	struct batoni_handle handle; /* last: it costs the fields above no line */
};

struct batoni_engine {
	/* The driver's lock.  NULL: free; else whose it is, which is what
	 * batoni_this_thread() is there, or batoni_handed_over. */
	alignas(64) _Atomic(const struct batoni_thread *) driver;
	_Atomic(struct batoni_op *) inbox;  /* enqueued; newest first */
	_Atomic(struct batoni_op *) posted; /* reached elsewhere */
	atomic_uint attention;              /* cancels and breaks to look for */
	atomic_uint wanted; /* by how many: BATONI_TAKER, BATONI_SLEEPER */
	atomic_uint dozing;                 /* BATONI_DOZE_* bits */
	atomic_uint in_hand;                /* the driver is placing or collecting */
	atomic_uint running; /* streams' threads that run a function now and will
	                        drive when it has returned (launch.c) */
	atomic_bool deep;                   /* the thread sleeps for good */
	_Atomic uint32_t clock_ms;          /* as of the last batoni_tick */

	/* Driver. */
	alignas(64) struct batoni_op *finish; /* ended by being reached */
	struct batoni_op **finish_tail;
	struct batoni_fifo *ready; /* FIFOs whose head is armed */
	struct batoni_fifo **ready_tail;
	struct baton_comm *working; /* communicators with something active */
	_Atomic uint32_t thread_working; /* the busy ones that its thread drives */
	uint32_t passes; /* since the last look whether to check peers */
	uint64_t peers_checked_ns; /* when; the coarse clock */
	uint64_t thread_wakes; /* the deadline for which it does, listening */
	_Atomic uint64_t host_passes;   /* passes that threads of hosts made */

	/* Futex of the engine's thread. */
	alignas(64) _Atomic uint32_t thread_rung;
	_Atomic(const struct batoni_thread *) thread; /* the engine's thread */
	atomic_bool stopping;
};

/* Units of batoni_engine.wanted.  A taker must have the lock, and the next holder
 * that lets go hands it over.  A sleeper has a request that is pending, and drives
 * when nobody else does. */
#define BATONI_SLEEPER 1u
#define BATONI_TAKER (1u << 16)

/* The driver sleeps while it holds the lock: nothing moves until a thread calls, or it
 * only polls now and then for messages of the one-sided layer. */
#define BATONI_DOZE_DRIVER 1u
/* The engine's thread sleeps, not holding it. */
#define BATONI_DOZE_THREAD 2u

extern struct batoni_engine batoni_engine;
extern _Atomic(struct baton_comm *) batoni_comms[BATONI_COMMS_MAX];

/* ---- engine.c ---- */

/* It was taken off engine.working; the driver. */
void batoni_comm_rest(struct baton_comm *comm);
/* One bounded pass; the driver.  Returns events. */
size_t batoni_pass(void);
/* Finish what has become ready without looking at the transports; the driver. */
size_t batoni_settle(void);
/* Place what is in the inbox; the driver. */
size_t batoni_place_inbox(void);
/* After the lock was given up: somebody left work or wants the lock. */
void batoni_left(void);
/* Have the driver's lock, whatever it takes (a pass of each taker before at most). */
void batoni_take(void);
/* The same, unless it takes longer.  False: the lock is another thread's. */
bool batoni_take_within(uint64_t wait_ns);
/* Set clock_ms, by which ages are told: whoever has just slept, and who puts a
 * communicator among those that work.  Any thread. */
void batoni_tick(void);
/* Hand an enqueued record to whoever drives. */
void batoni_inbox_push(struct batoni_op *op);
/* `reached` on a thread of a device: store and wake. */
void batoni_post(struct batoni_op *op);
/* The same by a thread that then takes the lock, if it is free. */
void batoni_post_to_driver(struct batoni_op *op);
/* There is something to attend to: have it seen soon, by this thread if it can. */
void batoni_nudge(void);
/* Count a pass by a thread of a host, so that the engine's thread stays away. */
void batoni_count_host_pass(void);
/* A poll: one pass, unless a thread drives that may drive the communicator. */
size_t batoni_poll(const struct baton_comm *comm_or_null);
/* Is the stream without work, inbox included?  Any thread. */
enum baton_status batoni_stream_state(struct baton_comm *comm,
                                      baton_stream stream);

/* ---- wait.c ---- */

/* Sleep on a word of this process unless it is not `value` any more; NEVER: for
 * good.  Wake all who do. */
void batoni_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t nap_ns);
void batoni_futex_wake(_Atomic uint32_t *word);
/* Wake the driver who dozes. */
void batoni_ring(void);
/* One of the sleepers drives from now on. */
void batoni_wake_heir(void);
/* The record with this handle has ended, or its handle is gone: wake those who wait
 * for it. */
void batoni_wake_waiters(baton_request request);
/* Is something left for a driver to do that no transport knows of? */
bool batoni_work_left(void);
/* What the doorbell is now: read before the last look for work. */
uint32_t batoni_rung(void);
/* The driver: want to be woken by signals, if waits for them are all there is of some
 * communicator.  False: no such one.  Look once more, with batoni_pass, after true,
 * and call batoni_unlisten after the nap. */
bool batoni_listen(unsigned who);
/* Are there such waits? */
bool batoni_anything_parked(void);
void batoni_unlisten(unsigned who);

enum batoni_look {
	BATONI_LOOK_WHEN_RUNG, /* nothing goes on unless somebody calls */
	BATONI_LOOK_AT_TIMES,  /* signals may come by message */
	BATONI_LOOK_AGAIN      /* a transport has to be looked at for things to go on */
};

/* And the earliest deadline of an operation; the driver. */
enum batoni_look batoni_what_to_look_at(uint64_t *deadline_p);
/* Nanoseconds from now until then, `most` at most. */
uint64_t batoni_time_left(uint64_t now, uint64_t then, uint64_t most);
/* What a host waits for. */
struct batoni_awaited {
	/* Is it over?  Called by the waiting thread; `driving`: it has the driver's
	 * lock.  Not called again after true. */
	bool (*ready)(struct batoni_awaited *awaited, bool driving);
	/* Requests of which the end of any is a reason to call ready; those that are
	 * BATON_REQUEST_NULL do not count.  `ready` may change which. */
	const baton_request *requests;
	size_t count;
	/* Instead of requests: a record of this thread's stack. */
	struct batoni_op *local;
	/* Only another thread can drive what ends it. */
	bool passive;
};

/* Drive, or sleep while another drives, until it is ready, for at most timeout_ns
 * (0 polls once, negative for ever).  comm is for the poll: NULL for none.  Returns
 * ready's last answer. */
bool batoni_wait_until(struct batoni_awaited *awaited,
                       const struct baton_comm *comm, int64_t timeout_ns);
/* A call that tries something with the lock again and again lets others have it: for
 * a moment at first, 50 us later on. */
void batoni_pause_between(unsigned tries);

/* ---- launch.c ---- */

/* `reached` of a launch: runs the function, on a thread of the device. */
void batoni_reached_launch(struct batoni_stream_item *item);
/* The driver: is nothing to be looked at until a launched function returns, whose
 * thread drives then, or somebody calls? */
bool batoni_is_left_to_launches(void);
/* Give the lock up; in that case, without waking an heir. */
void batoni_leave_to_launches(void);

/* ---- engine_thread.c ---- */

/* There is a thread of the engine from now on.  OK, SYSTEM. */
enum baton_status batoni_engine_start(void);
/* Wake it from a nap. */
void batoni_ring_thread(void);
/* Wake it out of its deep sleep. */
void batoni_wake_thread(void);

/* Tell the core that this is a spin. */
static inline void
batoni_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* What names the calling thread: its address differs from thread to thread. */
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

/* Give the lock up, without a lost wake-up: this thread stores `driver`, then loads
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

/* batoni_try, to hold the lock while transports are tested: MPI has cancellation points.
 * (The thread that enqueues holds it too briefly to pay for that; it calls MPI_Isend and
 * MPI_Irecv at most.) */
static inline bool
batoni_try_long(void)
{
	if (!batoni_try())
		return false;
	batoni_cancel_off();
	return true;
}

/* The engine's thread drives: not what only callers may drive. */
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

/* Another thread has the lock: is it one that may not drive the communicator, although
 * this one may?  Then this thread must not leave it to that. */
static inline bool
batoni_is_left_to_us(const struct baton_comm *comm)
{
	if (likely(comm->thread_drives) || !batoni_may_drive(comm))
		return false;
	return comm->drivers == BATONI_DRIVERS_MAIN || batoni_engine_drives();
}

/* ---- op.c: the life of a record; the driver, unless said ---- */

/* Give it its place: stream and FIFO.  It may be issued and ended within. */
void batoni_op_place(struct batoni_op *op);
/* It was issued by its enqueuer: its in-engine stream is idle, its FIFO empty. */
void batoni_op_place_direct(struct batoni_op *op);
/* Its stream got there. */
void batoni_op_reached(struct batoni_op *op);
void batoni_op_arm(struct batoni_op *op);
void batoni_op_issue(struct batoni_op *op);
/* The one place where operations end. */
void batoni_op_complete(struct batoni_op *op, enum baton_status status);
/* End it early, with status unless it has ended by itself. */
void batoni_op_end_early(struct batoni_op *op, enum baton_status status);
/* The stream does not touch its item any more. */
void batoni_op_passed(struct batoni_op *op);
/* The clock of its deadline starts, and its time stamp is taken. */
void batoni_op_start_clock(struct batoni_op *op);

/* Its head is armed: batoni_settle issues it. */
void batoni_fifo_make_ready(struct batoni_fifo *fifo);
/* On the engine's finish list: batoni_settle ends it. */
void batoni_op_finish(struct batoni_op *op);
/* It goes without a completion: a group's record, a member of a void group. */
void batoni_op_vanish(struct batoni_op *op, uint64_t drop);
/* Out of the FIFO it waits in, if any. */
void batoni_op_leave_fifo(struct batoni_op *op);
/* Keep the communicator among those that are looked at, at a slow rate, without an
 * operation; or not any more. */
void batoni_comm_hold(struct baton_comm *comm, bool hold);
/* There is something to look at ("busy"): have that done, also where no operation is
 * pending. */
void batoni_comm_look(struct baton_comm *comm);
/* The callbacks that the transport gets. */
void batoni_host_init(struct baton_comm *comm);

/* ---- liveness.c ---- */

/* Has the process of a peer ended?  End what waits for it.  Does nothing when it was
 * called a moment ago.  The driver, within a pass.  Returns events. */
size_t batoni_check_peers(void);

/* Passes of this caller are far apart: call it in the next one.  The driver. */
static inline void
batoni_check_peers_soon(void)
{
	batoni_engine.passes = UINT32_MAX - 1;
}

/* ---- sweep.c: a communicator's operations together; the driver ---- */

/* End all operations of the communicator with status and release all streams. */
void batoni_comm_end_all(struct baton_comm *comm, enum baton_status status);
/* Expire deadlines.  Returns events. */
size_t batoni_comm_expire(struct baton_comm *comm);
/* Cancels that were asked for while another drove. */
size_t batoni_comm_attend(struct baton_comm *comm);
/* Look at the marks of a stream-issued transport. */
size_t batoni_comm_watch(struct baton_comm *comm);
/* A transfer that a stream-issued transport has got already. */
void batoni_op_place_issued(struct batoni_op *op);
/* Break: status and why, once; what is pending ends at the next pass. */
void batoni_comm_break(struct baton_comm *comm, enum baton_status status,
                       const char *why);

/* Any thread: give up holders; the last one returns the record.  Returns the
 * word as it was before. */
static inline uint64_t
batoni_op_drop(struct batoni_op *op, uint64_t holders)
{
	uint64_t before = atomic_fetch_and_explicit(&op->word, ~holders,
	                                            memory_order_acq_rel);

	if ((before & ~holders & BATONI_OP_HELD) == 0)
		batoni_pool_return(&op->comm->pool, op);
	return before;
}

/* Any thread: keep a record from being used again, as the item of a waiting stream
 * does.  *word_p is its word as it was seen, then as it was when it was held.  OK: to
 * be given up by batoni_op_unjoin.  STALE: it has another generation, or none of the
 * holders in `holders`.  AGAIN: too many hold it so. */
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
	/* Destroy waits for these. */
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

/* ---- leave.c; the driver ---- */

/* PENDING, or the communicator can be closed now; INVALID: other ranks make another
 * collective call. */
enum baton_status batoni_comm_try_to_leave(struct baton_comm *comm);
/* TIMEOUT, with a sentence that says what is in the way. */
enum baton_status batoni_comm_refuse_to_leave(const struct baton_comm *comm);

/* ---- enqueue.c ---- */

/* A record with its common fields set, or NULL when the pool is empty. */
struct batoni_op *batoni_op_new(struct baton_comm *comm,
                                enum batoni_op_kind kind, baton_stream stream,
                                uint64_t holders);
/* Hand over a complete record: to its place at once, or to the inbox. */
void batoni_publish(struct batoni_op *op);
/* Hand the transfers of a list (group_next) to a stream-issued transport, and
 * their records over.  OK; anything else: nothing was enqueued. */
enum baton_status batoni_publish_issued(struct baton_comm *comm,
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
/* Any one-sided operation, whose own arguments have been checked: a->tag is the
 * context.  fill gives the layer what it needs beyond the transfer, by slot: OK, or
 * why it is refused (it has taken nothing then); forget takes it back when the call
 * is refused after that. */
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

/* An enqueuer gives the driver's lock up. */
static inline void
batoni_leave_enqueue(void)
{
	const struct batoni_engine *e = &batoni_engine;

	if (unlikely(e->finish || e->ready))
		batoni_settle();
	batoni_leave();
}

/* A complete record, on any device: what publishing one operation means. */
enum baton_status batoni_publish_record(struct batoni_op *op);
/* Give back a record that is refused after all; returns status. */
enum baton_status batoni_unmake(struct batoni_op *op,
                                enum baton_status status);
/* The `reached` of items, by what the record is and where it is called. */
void batoni_reached_inline(struct batoni_stream_item *item);
void batoni_reached_posted(struct batoni_stream_item *item);
/* INVALID, where comm is NULL or was destroyed. */
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
/* A call inside it was refused: void it (keeps the first), return status. */
enum baton_status batoni_group_refuse(const struct baton_comm *comm,
                                      enum baton_status status);
/* Make the record a member.  OK, or the refusal (the record is returned). */
enum baton_status batoni_group_add(struct batoni_op *group,
                                   struct batoni_op *op);
/* The driver's half. */
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
/* Have the end of a pending request, or of its handle, call batoni_wake_waiters. */
void batoni_request_mark_waited(baton_request request);
void batoni_completion_fill(const struct batoni_op *op, uint64_t word,
                            struct baton_completion *completion);

/* ---- stream.c ---- */

/* An operation on the stream failed and nobody can see it.  True: it is the first
 * one since the stream was synchronized.  Any thread. */
bool batoni_stream_error_note(const struct batoni_op *op,
                              enum baton_status status);

#endif
