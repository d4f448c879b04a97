/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that sleep, and what wakes them. */
#ifndef BATONI_WAKE_H
#define BATONI_WAKE_H

#include "core.h"

/* Sleep on a word of this process if it still holds `value`; NEVER: without limit.
 * batoni_futex_wake wakes all its sleepers. */
void batoni_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t sleep_ns);
void batoni_futex_wake(_Atomic uint32_t *word);
/* Wake the sleeping driver. */
void batoni_ring(void);
/* Wake the engine's thread from a sleep; from deep sleep. */
void batoni_ring_thread(void);
void batoni_wake_thread(void);
/* The bell's value.  A sleeper reads it before its last check for work. */
uint32_t batoni_rung(void);
/* The driver: ask peers to wake this thread when they signal.  Make one more batoni_pass
 * before the sleep, and call batoni_unlisten after it. */
void batoni_listen(unsigned who);
void batoni_unlisten(unsigned who);
/* Nanoseconds from `now` until `then`, capped at `most`. */
uint64_t batoni_time_left(uint64_t now, uint64_t then, uint64_t most);

/* ---- waiters that sleep ---- */

/* What a thread waits for. */
struct batoni_awaited {
	/* Is the wait over?  Called by the waiting thread; `driving`: it holds the driver
	 * lock.  Not called again after it has returned true. */
	bool (*ready)(struct batoni_awaited *awaited, bool driving);
	/* The end of any of these requests is a reason to call `ready`, which may change
	 * the list.  BATON_REQUEST_NULL entries do not count. */
	const baton_request *requests;
	size_t count;
	/* Instead of requests: an operation on this thread's stack. */
	struct batoni_op *local;
	/* Only another thread can drive the awaited operations. */
	bool passive;
};

struct batoni_sleeper {
	struct batoni_awaited *awaited;
	/* Under sleepers.lock while `woken` is 0. */
	bool one; /* it waits for one request or operation */
	union {
		struct batoni_hash_node by_key;
		struct batoni_list_node several;
	};
	struct batoni_list_node driving;  /* in `candidates`, unless passive */
	uint64_t key;
	bool next_driver; /* chosen, and the role is not passed on yet */
	_Atomic uint32_t woken; /* futex */
};

/* List the sleeper, before it looks for the last time and sleeps on `woken`; and take it off the
 * lists, unless the thread that woke it has. */
void batoni_sleeper_enlist(struct batoni_sleeper *sleeper);
void batoni_sleeper_unlist(struct batoni_sleeper *sleeper);
/* The next driver drives, sleeps again, or returns from its wait: the role is free. */
void batoni_sleeper_pass_on(struct batoni_sleeper *sleeper);
/* Wake one of the sleepers to drive. */
void batoni_wake_next_driver(void);
/* The operation with this handle has ended, or its handle was released: wake its
 * waiters. */
void batoni_wake_waiters(baton_request request);

#endif
