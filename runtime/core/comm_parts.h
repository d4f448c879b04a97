/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a communicator (struct baton_comm, core.h), each with the file whose rules
 * hold for it.  Later folders keep their own state behind a pointer: the memory of lists
 * (ops/tensor_store.c), ranges (diag/nvtx.c), a trace (diag/trace.c).
 */
#ifndef BATONI_COMM_PARTS_H
#define BATONI_COMM_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "device.h"
#include "list.h"
#include "path.h"
#include "transport.h"

#define BATONI_PATHS_MAX 5u

struct batoni_op;

/* Which threads may drive it (core.h, batoni_may_drive). */
struct batoni_comm_driving {
	/* Immutable after start. */
	enum batoni_drivers drivers;
	bool by_engine; /* the engine's thread may, and does */
	pthread_t main_thread;
	/* Any thread, atomic. */
	_Atomic bool by_any; /* `drivers` is ANY, and `lost` is false */
	_Atomic bool lost;   /* the transport may not be called any more */
	/* The lower transport of a native one may not; the program had used no signals and
	 * windows, and calls that need them are refused. */
	_Atomic bool lost_lower;
};

/* The order of enqueuing calls on an asynchronous device (ops/publish.c). */
struct batoni_comm_order {
	pthread_mutex_t lock;  /* its place among the locks: core.h */
	atomic_bool enqueuing; /* a path's enqueue runs, under the lock */
	/* Scratch of publishing, under the lock. */
	baton_stream *observe, *follow;
	struct batoni_transfer **transfers;
};

/* Cancels that the driver has not processed (sweep.c): how many were announced, and a list of
 * their slots (slot + 1).  The list is linked by pool.next_free, which otherwise links free
 * slots only.  Any thread. */
struct batoni_comm_cancels {
	_Atomic uint32_t announced, slots;
};

/* What there is to do (engine.c).  Driver. */
struct batoni_comm_work {
	uint32_t active; /* placed and not ended */
	uint32_t lent;   /* ended, but the transport still uses their buffers */
	uint32_t held;   /* of active: no operations, but batoni_comm_hold */
	bool listed;     /* on the list engine.working */
	bool busy; /* listed, and has to be polled before the bell rings: counts in
	              thread_working */
	bool deferred; /* on the list engine.deferred: its messages are to be flushed */
	bool ringed;   /* on the list engine.rings: peers' sends may wait for room (room.c) */
	struct baton_comm *next, *deferred_next, *rings_next;
};

/* Operations with a deadline (sweep.c).  Driver. */
struct batoni_comm_deadlines {
	struct batoni_list_node list;
	uint64_t next_ns; /* no deadline is earlier; NEVER: none */
};

/* The processes of its peers (liveness.c).  Driver. */
struct batoni_comm_liveness {
	uint32_t gone;   /* peers whose processes were seen to have ended */
	uint32_t silent; /* of gone: operations with them may end at once */
	/* Of work.lent: buffers that the end of a peer's process frees (gets by message). */
	uint32_t frees;
	uint32_t tests[BATONI_PATHS_MAX]; /* path.tests at the last check */
	bool probed; /* on the list engine.probed: a probe has found nothing */
	uint64_t probed_ns; /* the last such probe; coarse clock */
	struct baton_comm *probed_next;
};

/* Of a stream-issued operation: the marks where it is armed and where it has ended, and its link in
 * the list of marked operations.  That link is not op->next, since a lent operation may be in its
 * completion queue too. */
struct batoni_marks {
	struct batoni_mark armed, ended;
	struct batoni_op *next;
};

/* The marks of stream-issued operations (sweep.c).  Driver. */
struct batoni_comm_marks {
	struct batoni_marks *by_slot;
	struct batoni_op *issued, **issued_tail;
	/* Guards the marks of ends against streams that join them: any thread holds it in
	 * the device's mark_follow; the driver only tries it. */
	pthread_mutex_t lock;
};

/* Why it is broken (sweep.c).  Driver, but for the text. */
struct batoni_comm_fault {
	enum baton_status status; /* a fatal error, or OK */
	/* In order: it has been applied to what is host-issued; what is on streams is told to end,
	 * once no enqueue runs; it has been applied to all. */
	bool host_ended, stopping, aborted;
	uint64_t since_ns; /* when the last of these steps was begun */
	char text[480];    /* written once, before comm->status */
};

#endif
