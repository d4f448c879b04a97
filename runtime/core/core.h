/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all files of the engine share: the communicator, the engine, the driver lock, and
 * the holders of an operation.  What a file offers to the others is in its own header.
 *
 * Locks and order.  The process has one *driver lock*; its holder is the driver.  Only
 * the driver touches the fields marked "driver" below, the state of transports, and the
 * state of in-engine devices.  Enqueuing calls only try the driver lock; if it is taken,
 * they push the operation to the inbox.  (They wait for it where the pool has no other free
 * slot than those in the driver's cache: take_cached in enqueue.c.)
 *
 *   comm->order.lock
 *                 held by enqueuers on asynchronous devices around {enqueue on
 *                 the device, push to the inbox}, so that the order of a stream
 *                 and the order of matching agree.  Taken first: no thread that
 *                 holds the driver lock waits for it.  An enqueuer that gets the
 *                 driver lock as well places and issues under both, so this one
 *                 lock may be held across MPI; then other enqueuers of the
 *                 communicator wait for that call.
 *   driver lock
 *   queue->lock, table_lock (comm.c), errors_lock (unobserved.c), comm->marks.lock,
 *                 the lock of a communicator's lists of tensors (tensor_store.c)
 *                 leaves: nothing is taken under them, but that of the pipe (queue_pipe.c)
 *                 under queue->lock.
 */
#ifndef BATONI_CORE_H
#define BATONI_CORE_H

#include <pthread.h>

#include "clock.h"
#include "comm_parts.h"
#include "fifo.h"
#include "handle.h"
#include "kind.h"
#include "mem.h"
#include "native.h"
#include "observer.h"
#include "onesided.h"
#include "opening.h"
#include "pool.h"
#include "thread.h"

#define BATONI_COMMS_MAX 4096u /* index 0 is not used */
/* The value of baton_comm.functions of a communicator that was left behind: it runs no more
 * functions. */
#define BATONI_GONE UINT32_MAX
#define BATONI_NEVER UINT64_MAX
/* The first two of each communicator: the messages of its transport, and the one-sided
 * layer, where there is one. */
#define BATONI_PATH_MESSAGES 0u
#define BATONI_PATH_ONESIDED 1u
/* No index: the path of messages of a rank that no call has named (message_path); the one of the
 * peer (lists_path). */
#define BATONI_PATH_NONE UINT8_MAX

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* A communicator; its parts are in comm_parts.h. */
struct baton_comm {
	/* Immutable after start. */
	struct batoni_device *device;
	struct batoni_transport *transport;
	const struct batoni_device_ops *device_ops;
	const struct batoni_transport_ops *transport_ops;
	struct batoni_onesided *onesided; /* NULL: no signals, no windows */
	struct batoni_staging *staging; /* until start gives it to the transport */
	struct batoni_pairs *pairs;     /* likewise */
	struct batoni_native *native;   /* until its transport is open */
	/* How operations run (path.h).  The last path that carries an operation is
	 * chosen for it. */
	struct batoni_path *paths[BATONI_PATHS_MAX];
	uint32_t paths_count;
	/* One of them: the messages of a native transport's lower one, for those
	 * of the one-sided layer.  It is tested as the others are, and never chosen, unless hosts_carry. */
	struct batoni_path *hosts_path;
	bool hosts_carry; /* it carries the program's messages of near ranks */
	/* By rank, the index of the path of messages to and from it.  Atomic: NONE, where that path has
	 * to be connected (batoni_serving_ops), until a call that names the rank has done so; else it
	 * never changes. */
	_Atomic uint8_t *message_path;
	/* The index of the path of messages that are lists of tensors, where they have one of their
	 * own; NONE: they go where the peer's other messages go. */
	uint8_t lists_path;
	bool lists; /* messages may be lists */
	struct batoni_pool pool;
	uint32_t index;
	int rank, size, tag_max;
	bool in_engine;     /* the device */
	bool inspects;      /* the device is asked what each buffer is */
	bool direct; /* the transport's library reaches the device's memory by itself */
	bool checked; /* the two sides of a message are compared */
	unsigned capabilities;  /* BATON_CAP_*, but for lists */
	unsigned message_paths; /* BATON_MESSAGE_PATH_*, or'ed */
	const char *why_not_near; /* why not all messages go through shared memory */
	bool observed; /* life.h: it keeps time stamps, or has observers */
	bool off_fast; /* and that keeps operations off the fast path */
	uint8_t observers_count;
	const struct batoni_observer *observers[BATONI_OBSERVERS_MAX];
	/* The one that is told, of all that there is to tell; NULL: there are several, or none, or time stamps
	 * are kept. */
	const struct batoni_observer *only_observer;
	struct batoni_nvtx *nvtx;   /* nvtx.c, or NULL */
	struct batoni_trace *trace; /* trace.h, or NULL */
	bool plain; /* direct.h applies: in-engine, memory of the host, messages that are
	               host-issued and not checked by their path, any thread drives,
	               no default deadline, nothing that keeps operations off the fast
	               path observes them, and nothing asks for their types */
	int64_t timeout_ns; /* 0: none */
	enum baton_progress progress;
	struct batoni_upcalls upcalls;
	struct batoni_comm_driving driving;
	uint32_t tensors_max;
	/* Memory of lists (tensor_store.c), from the first call that needs it. */
	_Atomic(struct batoni_tensor_store *) tensors;
	struct batoni_comm_order order;

	/* Any thread, atomic. */
	_Atomic int status; /* enum baton_status */
	struct batoni_comm_cancels cancels;
	_Atomic uint32_t queues;  /* alive */
	_Atomic uint32_t plans;   /* recorded, or being recorded */
	/* A destroy has left the communicator, together with the other ranks where the transport
	 * asks them.  It takes no operations any more. */
	_Atomic bool left;
	_Atomic bool any_ready; /* all paths of messages are connected, for receives from any rank */
	_Atomic uint32_t joins;   /* streams that wait for operations of this communicator */

	/* Driver. */
	struct batoni_fifo_table fifos;
	uint32_t any_turn; /* line.c: the path that is asked first */
	struct batoni_list_node claims; /* claim.c: messages that probes have found */
	struct batoni_comm_work work;
	struct batoni_comm_deadlines deadlines;
	struct batoni_comm_liveness liveness;
	struct batoni_comm_marks marks; /* asynchronous devices */
	struct batoni_comm_fault fault;
	struct batoni_patience patience; /* of the creation, then the destroy, with its device */
	/* What a destroy waits for when it does not wait for this rank; or NULL (leave.c). */
	const char *leave_awaits;
	/* Operations of threads in baton_stream_synchronize; asynchronous devices only. */
	struct batoni_list_node locals;

	/* Any thread, atomic: launched functions that run on an asynchronous device, or
	 * BATONI_GONE. */
	_Atomic uint32_t functions;

	/* From this other communicators are made (window/split.c).  Immutable after start. */
	struct batoni_transport *opened; /* over the bootstrap, the lowest; NULL: a test
	                                    has made the transport */
	enum batoni_bootstrap_kind bootstrap;
	struct batoni_comm_setup setup; /* as the ranks have agreed */

	struct batoni_handle handle; /* last, so that it shifts no cache line above */
};

/* The operation that the driver is about to finish (baton_finish).  If it ends in OK and no other thread has changed
 * its word, its end releases its handle too: by one change of the word in place of two. */
#define BATONI_OP_FINISHING                                                   \
	(BATONI_OP_ENGINE | BATONI_OP_STREAM | BATONI_OP_HANDLE)
struct batoni_finishing {
	struct batoni_op *op; /* NULL: there is none, or it has ended so */
	uint64_t word;        /* as the driver has seen it; 0: it has other holders than these */
	struct baton_completion *completion_p; /* NULL: not wanted */
};

struct batoni_engine {
	/* The driver lock.  NULL: free.  Otherwise batoni_this_thread() of its holder, or
	 * the address of handed_over (engine.c) from a handover until its claimant takes it. */
	alignas(64) _Atomic(const struct batoni_thread *) driver;
	_Atomic(struct batoni_op *) inbox;  /* enqueued; newest first */
	_Atomic(struct batoni_op *) posted; /* reached on a thread of the device */
	atomic_uint attention;              /* cancels or breaks are to be processed */
	atomic_uint wanted; /* sum of BATONI_CLAIMANT and BATONI_SLEEPER units */
	atomic_uint asleep;                 /* BATONI_ASLEEP_* bits */
	atomic_uint in_hand;                /* the driver is placing or collecting */
	atomic_uint running; /* streams' threads that run a function now and will
	                        drive when it has returned (launch.c) */
	atomic_bool deep;                   /* the engine's thread is in deep sleep */
	atomic_bool foreign; /* a device's library is loaded: location.c asks it */
	_Atomic uint32_t clock_ms;          /* as of the last batoni_tick */

	/* Driver. */
	alignas(64) struct batoni_op *finish; /* to be completed by batoni_end_and_issue */
	struct batoni_op **finish_tail;
	struct batoni_fifo *ready; /* FIFOs whose head is armed */
	struct batoni_fifo **ready_tail;
	struct baton_comm *working; /* communicators with something active */
	struct baton_comm *deferred; /* communicators whose messages put something off */
	_Atomic(struct baton_comm *) rings; /* communicators to whose ranks peers' sends may wait for room */
	struct baton_comm *rings_turn; /* the next of them for batoni_make_some_room; NULL: the first */
	_Atomic uint32_t thread_working; /* busy communicators with driving.by_engine */
	uint32_t awaited; /* messages that await has taken, since a pass in between */
	struct batoni_finishing finishing;
	uint32_t passes; /* since the clock was last read for the liveness check */
	uint64_t peers_checked_ns; /* the last liveness check; coarse clock */
	struct baton_comm *probed; /* communicators that it covers though nothing is pending */
	/* Of the engine's thread while it listens: the deadline at which it wakes, and the
	 * bound of its sleep. */
	uint64_t thread_wakes, thread_sleeps_ns;
	_Atomic uint64_t host_passes;   /* passes made by threads of the program */

	/* Futex of the engine's thread. */
	alignas(64) _Atomic uint32_t thread_rung;
	_Atomic(const struct batoni_thread *) thread; /* the engine's thread */
	atomic_bool stopping;
};

/* Units of batoni_engine.wanted.  A claimant must get the lock: the next holder to release
 * it hands it over.  A sleeper has a pending request, and drives if no other thread
 * does. */
#define BATONI_SLEEPER 1u
#define BATONI_CLAIMANT (1u << 16)

/* The driver sleeps while it holds the lock.  Nothing progresses until a thread calls, or
 * the driver polls at long intervals for messages of the one-sided layer. */
#define BATONI_ASLEEP_DRIVER 1u
/* The engine's thread sleeps and does not hold the lock. */
#define BATONI_ASLEEP_THREAD 2u

extern struct batoni_engine batoni_engine;
extern _Atomic(struct baton_comm *) batoni_comms[BATONI_COMMS_MAX];

/* ---- the driver lock (engine.c) ---- */

/* Called after a release of the lock that found work left or the lock wanted. */
void batoni_unlocked(void);
/* Take the driver lock, waiting for at most one pass of each earlier claimant. */
void batoni_lock(void);
/* The same with a time limit.  False: the lock was not taken. */
bool batoni_lock_within(uint64_t wait_ns);

/* The identity of the calling thread: the address of its batoni_thread. */
static inline const struct batoni_thread *
batoni_this_thread(void)
{
	return &batoni_thread;
}

static inline bool
batoni_trylock(void)
{
	struct batoni_engine *e = &batoni_engine;
	const struct batoni_thread *none = NULL;

	return !atomic_load_explicit(&e->driver, memory_order_relaxed) &&
	       atomic_compare_exchange_strong_explicit(
		       &e->driver, &none, batoni_this_thread(),
		       memory_order_acquire, memory_order_relaxed);
}

/* Release the lock, without a lost wake-up: this thread stores `driver`, then loads
 * the queues; a producer pushes (a read-modify-write), then loads `driver`.  All are
 * sequentially consistent, so one of the two sees the other. */
static inline void
batoni_unlock(void)
{
	struct batoni_engine *e = &batoni_engine;

	atomic_store(&e->driver, NULL);
	/* One test: usually all are 0. */
	if (unlikely((uintptr_t)atomic_load(&e->inbox) |
	             (uintptr_t)atomic_load(&e->posted) |
	             atomic_load(&e->attention) | atomic_load(&e->wanted) |
	             atomic_load(&e->deep)))
		batoni_unlocked();
	if (unlikely(batoni_thread.uncancellable))
		batoni_cancel_restore();
}

/* batoni_trylock for a thread that will test transports.  It disables cancellation, since MPI
 * has cancellation points.  (An enqueuer holds the lock too briefly to pay for that; it
 * calls MPI_Isend and MPI_Irecv at most.) */
static inline bool
batoni_trylock_long(void)
{
	if (!batoni_trylock())
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
	if (likely(atomic_load_explicit(&comm->driving.by_any,
	                                memory_order_relaxed)))
		return !batoni_thread.engine || comm->driving.by_engine;
	if (atomic_load_explicit(&comm->driving.lost, memory_order_relaxed) ||
	    batoni_thread.engine)
		return false;
	return comm->driving.drivers != BATONI_DRIVERS_MAIN ||
	       pthread_equal(pthread_self(), comm->driving.main_thread);
}

/* Another thread holds the lock.  True: that thread may not drive the communicator and
 * this one may, so this thread must take the lock itself. */
static inline bool
batoni_is_left_to_us(const struct baton_comm *comm)
{
	if (likely(comm->driving.by_engine) || !batoni_may_drive(comm))
		return false;
	return comm->driving.drivers == BATONI_DRIVERS_MAIN || batoni_engine_drives();
}

/* The list that the operation sends or receives, or NULL. */
static inline struct batoni_tensor_list *
batoni_op_list(const struct batoni_op *op)
{
	return likely(op->transfer.location != BATONI_LOCATION_LIST) ||
	                       !(BATONI_MESSAGES >> op->kind & 1u)
	               ? NULL
	               : (struct batoni_tensor_list *)op->transfer.buffer;
}

/* In checked mode: the type of the message that the receive, or of a launch of a plan the operation
 * that failed, was refused for.  -1: there was none. */
static inline int
batoni_op_refused_type(const struct batoni_op *op)
{
	return op->comm->checked ? batoni_transfer_refused_type(&op->transfer)
	                         : -1;
}

/* The operation that answers for an operation that is PLANNED. */
static inline struct batoni_op *
batoni_launch_of(const struct batoni_op *op)
{
	return &op->comm->pool.ops[op->launch_slot];
}

/* The path of a transfer. */
static inline struct batoni_path *
batoni_path_of(const struct batoni_op *op)
{
	return op->comm->paths[op->path];
}

/* The index of the path of messages to and from a rank, or BATONI_PATH_NONE. */
static inline uint8_t
batoni_message_path(const struct baton_comm *comm, int peer)
{
	return atomic_load_explicit(&comm->message_path[peer],
	                            memory_order_relaxed);
}

/* Does this path carry none of the program's messages with this peer? */
static inline bool
batoni_is_hosts_alone(const struct baton_comm *comm,
                      const struct batoni_path *path, int peer)
{
	return path == comm->hosts_path &&
	       !(comm->hosts_carry && comm->transport->peers[peer].near);
}

/* Choose the path of an operation: its index, or -1 if none carries it. */
static inline int
batoni_choose_path(const struct baton_comm *comm, unsigned kind, int peer)
{
	for (uint32_t i = comm->paths_count; i-- > 0;) {
		struct batoni_path *path = comm->paths[i];

		if (path->ops->kinds >> kind & 1u &&
		    !batoni_is_hosts_alone(comm, path, peer) &&
		    (!path->ops->serving ||
		     path->ops->serving->serves(path, (int)kind, peer)))
			return (int)i;
	}
	return -1;
}

/* ---- holders of an operation ---- */

/* Any thread: drop holders; dropping the last one returns the slot to the pool.
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

/* The same for an operation that belongs to a thread in baton_stream_synchronize (LOCAL)
 * and to its asynchronous stream: HANDLE, STREAM. */
static inline void
batoni_op_drop_local(struct batoni_op *op, uint64_t holder)
{
	uint64_t before = atomic_fetch_and_explicit(&op->word, ~holder,
	                                            memory_order_acq_rel);

	if ((before & ~holder & BATONI_OP_HELD) == 0)
		batoni_free(op);
}

/* Any thread: keep a slot from being reused, as the item of a waiting stream does.
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

/* ---- handles ---- */

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

/* False: comm is NULL or was destroyed; batoni_refuse_comm then returns INVALID. */
static inline bool
batoni_comm_lives(const struct baton_comm *comm)
{
	return comm && batoni_is_alive(&comm->handle);
}

#endif
