/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lock of a device: NCCL takes one thread at a time for all of its communicators on one.
 *
 * One for each device number, shared by all transports of the process, for ever.  It is taken
 * with a limit, because a thread that is inside NCCL may not come back (an abort waits for
 * kernels that are behind work of the program).  A thread that gives up holds nothing.  None is
 * cancelled (pthread_cancel) while it waits: it would keep `mutex`.
 *
 * The program may take it for calls of its own (baton_comm_lock_device).  `lent` tells the
 * thread's own calls of Baton, which would wait for themselves.
 *
 * `mutex` guards `held` only and is a leaf: nothing is called under it.
 */

#include "clock.h"
#include "list.h"
#include "log.h"
#include "nccl_transport.h"
#include "thread.h"

struct batoni_nccl_lock {
	pthread_mutex_t mutex;
	pthread_cond_t given; /* on CLOCK_MONOTONIC */
	bool held;
	unsigned waiting;
};

static struct batoni_nccl_lock locks[BATONI_NCCL_DEVICES];
static pthread_once_t locks_once = PTHREAD_ONCE_INIT;
/* Devices whose lock the program has taken on this thread, a bit for each. */
static _Thread_local uint64_t lent __attribute__((tls_model("initial-exec")));

static void
make_locks(void)
{
	for (int i = 0; i < BATONI_NCCL_DEVICES; i++) {
		pthread_mutex_init(&locks[i].mutex, NULL);
		batoni_cond_init(&locks[i].given);
	}
}

struct batoni_nccl_lock *
batoni_nccl_lock_of(int device)
{
	pthread_once(&locks_once, make_locks);
	return &locks[device];
}

/* False: it was not given by then. */
static bool
take_device_lock(struct batoni_nccl_lock *lock, uint64_t until_ns)
{
	bool waits = until_ns > 0, taken;
	BATONI_UNCANCELLED;

	pthread_mutex_lock(&lock->mutex);
	lock->waiting++;
	while (lock->held && waits)
		waits = batoni_cond_wait(&lock->given, &lock->mutex, until_ns);
	lock->waiting--;
	taken = !lock->held;
	lock->held = true;
	pthread_mutex_unlock(&lock->mutex);
	return taken;
}

static void
give(struct batoni_nccl_lock *lock)
{
	pthread_mutex_lock(&lock->mutex);
	lock->held = false;
	if (lock->waiting > 0)
		pthread_cond_signal(&lock->given);
	pthread_mutex_unlock(&lock->mutex);
}

static enum baton_status
enter_locked(struct batoni_nccl *nccl, struct batoni_memory_guard *guard)
{
	enum baton_status status =
		nccl->device->ops->memory->library->enter(nccl->device, guard);

	if (status == BATON_OK)
		return BATON_OK;
	give(nccl->lock);
	return batoni_refuse(status, "GPU %d cannot be used",
	                     nccl->device->number);
}

static enum baton_status
refuse_busy(const struct batoni_nccl *nccl, const char *call)
{
	return batoni_refuse(BATON_ERR_AGAIN,
	                     "%sanother thread is in a call of NCCL for GPU %d "
	                     "and has not come back; nothing was done",
	                     call, nccl->device->number);
}

enum baton_status
batoni_nccl_enter(struct batoni_nccl *nccl, struct batoni_memory_guard *guard,
                  uint64_t until_ns)
{
	if (lent >> nccl->device->number & 1u)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "this thread has the lock of GPU %d "
		                     "(baton_comm_lock_device), under which Baton "
		                     "calls NCCL: give it back first",
		                     nccl->device->number);
	return take_device_lock(nccl->lock, until_ns) ? enter_locked(nccl, guard)
	                                              : refuse_busy(nccl, "");
}

enum baton_status
batoni_nccl_try_enter(struct batoni_nccl *nccl, struct batoni_memory_guard *guard)
{
	return take_device_lock(nccl->lock, 0) ? enter_locked(nccl, guard)
	                                       : BATON_ERR_AGAIN;
}

void
batoni_nccl_leave(struct batoni_nccl *nccl,
                  const struct batoni_memory_guard *guard)
{
	nccl->device->ops->memory->library->exit(nccl->device, guard);
	give(nccl->lock);
}

bool
batoni_nccl_do_apart(struct batoni_nccl *nccl, void (*fn)(struct batoni_nccl *))
{
	const struct batoni_memory_ops *memory = nccl->device->ops->memory;
	struct batoni_memory_guard guard;

	if (memory->library->enter(nccl->device, &guard) != BATON_OK)
		return false;
	fn(nccl);
	memory->library->exit(nccl->device, &guard);
	return true;
}

enum baton_status
batoni_nccl_lock(struct batoni_transport *transport, bool take_it)
{
	struct batoni_nccl *nccl =
		batoni_container_of(transport, struct batoni_nccl, base);
	const uint64_t bit = (uint64_t)1 << nccl->device->number;

	if (take_it == !!(lent & bit))
		return batoni_refuse(
			BATON_ERR_INVALID,
			take_it ? "baton_comm_lock_device: this thread has the "
				  "lock of GPU %d already"
				: "baton_comm_unlock_device: this thread has "
				  "not the lock of GPU %d",
			nccl->device->number);
	if (!take_it)
		give(nccl->lock);
	else if (!take_device_lock(nccl->lock, batoni_real_ns() + nccl->patience_ns))
		return refuse_busy(nccl, "baton_comm_lock_device: ");
	lent ^= bit;
	return BATON_OK;
}
