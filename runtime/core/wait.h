/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that sleep, and what wakes them. */
#ifndef BATONI_WAIT_H
#define BATONI_WAIT_H

#include "core.h"

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
/* The driver: ask peers to wake this thread when they signal.  Make one more batoni_pass
 * before the nap, and call batoni_unlisten after it. */
void batoni_listen(unsigned who);
void batoni_unlisten(unsigned who);
/* Nanoseconds from `now` until `then`, capped at `most`. */
uint64_t batoni_time_left(uint64_t now, uint64_t then, uint64_t most);
/* Is there a working communicator of an asynchronous device, whose health has to be asked
 * for?  The driver. */
bool batoni_awaits_devices(void);
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

#endif
