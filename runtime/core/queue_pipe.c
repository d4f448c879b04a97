/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue whose program is woken by the pipe of the process's bell.
 *
 * Waking the engine's thread, which finds the message and writes the queue's eventfd, takes two
 * wake-ups.  So the descriptor of an armed queue is also readable when there is a byte in the pipe: the
 * ringer, which is a thread of a peer, wakes the program itself, and the program polls and so
 * drives.  The ringer rings the futex as well where the engine's thread listens, so that thread covers what
 * the program does not fetch; with it, all of this only makes a wake-up sooner.
 *
 * One queue of the process has the pipe: it is the *owner*, and its epoll instance contains the
 * pipe.  All other queues are woken by their eventfd: by the engine's thread, or by the owner's program,
 * whose poll drives all communicators.  So a ring wakes one program at most for nothing, however many
 * queues are armed.  A queue becomes the owner when it is armed while the owner is not, or while a ringer has
 * used up the owner's arming: a program that has left its queue armed keeps the pipe for one ring at most.
 * The owner of before, whose program may not have seen its byte yet, needs none: the arming comes with a pass,
 * which drives all communicators and finds what the ring was for, and it writes that queue's eventfd.
 *
 *   not armed -> armed      arm: BATONI_LISTEN_FD is set
 *   armed -> not armed      answer: a ringer has taken the bit, and the program is awake
 *                           disarm: the queue was written its eventfd, or is to be woken by it
 *
 * A bit that a ringer has taken is a byte that has come, or is to come.  All other functions that take the bit are here,
 * under the lock, so `owed` knows how many bytes were not taken out yet.  A byte that comes late (its
 * ringer was held up between the two) wakes the program once for nothing, and its poll takes the byte: the
 * descriptor does not stay readable.  So the wake-ups for nothing are no more than the armings.  (If a process
 * is killed between the two, its byte never comes: owed stays 1 too many, and each poll makes one system
 * call more.  The program then sleeps until the engine's thread polls, as it does while the ringer is stopped
 * between the two: for a second at most (SLEEP_LISTENING_NS of forecast.c), the same as where
 * it is killed or stopped between publishing and ringing.  What others publish meanwhile rings that thread.
 * Without an engine's thread the timer wakes the program; with BATON_PROGRESS_CALLS only the ringer does, when it goes
 * on.)
 *
 * No wake-up is lost.  The program arms, then sleeps:
 *
 *     A1  take owed bytes, set the bit (here)
 *     A2  make a pass: S1 to S4 of transport/near/ring.h, or the loads of counters (window/wait.c)
 *     A3  disarm if there is something for the queue, and do not sleep; or sleep in epoll
 *
 * Let a message be published that A2 does not see.  A1 is S0 of the proof in ring.h, so its sender loads
 * `listening` (W7) behind A1.  (a) It finds the bit, and is the thread that takes it: its byte comes, behind
 * A1.  (b) It does not find the bit, or another one takes it first.  The bit was set by A1, and only a ringer
 * takes it while the program sleeps (or a disarm: then the eventfd was written).  That ringer's byte comes,
 * behind A1.  In both cases a byte comes behind A1, and nothing takes bytes out before A3 but a poll of
 * this queue, whose thread is awake, and has to arm before it sleeps.  (c) A byte that was owed at A1 may come
 * behind it: one more wake-up.  A1 takes bytes before it sets the bit, so it never takes that of its own
 * arming.
 *
 * Two threads that sleep on one descriptor are both woken by a byte, unless the first has taken it by then:
 * one arming is one wake-up.
 *
 * Locks: state.lock guards all here, and is a leaf, taken under queue->lock and the driver lock.  `owner`,
 * `armed` and `owed` are loaded without it, by polls that find nothing to do.
 */
#include "queue_pipe.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>

#include "shm.h"

static struct {
	pthread_mutex_t lock;
	_Atomic(struct batoni_watcher *) owner;
	atomic_bool armed;   /* the owner */
	_Atomic size_t owed; /* bytes that were not read yet: they have come or will come */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool
is_listening(void)
{
	return atomic_load(&batoni_bell()->listening) & BATONI_LISTEN_FD;
}

/* The caller holds the lock. */
static void
count_taken(bool was_taken)
{
	if (was_taken)
		atomic_fetch_add(&state.owed, 1);
}

/* The caller holds the lock.  True: a ringer has used the arming up. */
static bool
settle(void)
{
	bool used = atomic_load(&state.armed) && !is_listening();

	if (used)
		atomic_store(&state.armed, false);
	count_taken(used);
	return used;
}

/* The caller holds the lock. */
static void
take_owed(void)
{
	size_t owed = atomic_load(&state.owed);

	if (owed)
		atomic_fetch_sub(&state.owed, batoni_pipe_take(owed));
}

/* The caller holds the lock. */
static void
stop_listening(void)
{
	uint32_t before;

	if (!atomic_load(&state.armed))
		return;
	before = atomic_fetch_and(&batoni_bell()->listening, ~BATONI_LISTEN_FD);
	count_taken(!(before & BATONI_LISTEN_FD));
	atomic_store(&state.armed, false);
}

/* The caller holds the lock; the owner is not armed.  False: it has no pipe. */
static bool
give_to(struct batoni_watcher *watcher)
{
	struct batoni_watcher *before = atomic_load(&state.owner);
	struct epoll_event event = {.events = EPOLLIN};
	int pipe = batoni_pipe_fd();

	if (pipe < 0)
		return false;
	if (before)
		epoll_ctl(before->epoll, EPOLL_CTL_DEL, pipe, NULL);
	if (epoll_ctl(watcher->epoll, EPOLL_CTL_ADD, pipe, &event) != 0)
		watcher = NULL;
	atomic_store(&state.owner, watcher);
	return watcher != NULL;
}

bool
batoni_pipe_arm(struct batoni_watcher *watcher)
{
	struct batoni_bell *bell = batoni_bell();
	bool is_owner;

	pthread_mutex_lock(&state.lock);
	settle();
	is_owner = atomic_load(&state.owner) == watcher;
	if (!is_owner && !atomic_load(&state.armed))
		is_owner = give_to(watcher);
	if (is_owner) {
		bool again, was_set;

		take_owed();
		again = atomic_load(&state.armed);
		was_set = atomic_fetch_or(&bell->listening, BATONI_LISTEN_FD) &
		          BATONI_LISTEN_FD;
		count_taken(again && !was_set);
		atomic_store(&state.armed, true);
	}
	pthread_mutex_unlock(&state.lock);
	return is_owner;
}

void
batoni_pipe_disarm(struct batoni_watcher *watcher)
{
	pthread_mutex_lock(&state.lock);
	if (atomic_load(&state.owner) == watcher)
		stop_listening();
	pthread_mutex_unlock(&state.lock);
}

bool
batoni_pipe_answer(struct batoni_watcher *watcher)
{
	bool used = false;

	if (atomic_load(&state.owner) != watcher ||
	    (!atomic_load(&state.owed) &&
	     (!atomic_load(&state.armed) || is_listening())))
		return false;
	pthread_mutex_lock(&state.lock);
	if (atomic_load(&state.owner) == watcher) {
		used = settle();
		take_owed();
	}
	pthread_mutex_unlock(&state.lock);
	return used;
}

bool
batoni_pipe_was_used(void)
{
	return atomic_load(&state.armed) && !is_listening();
}

void
batoni_pipe_stop(struct batoni_watcher *watcher)
{
	pthread_mutex_lock(&state.lock);
	if (atomic_load(&state.owner) == watcher) {
		stop_listening();
		epoll_ctl(watcher->epoll, EPOLL_CTL_DEL, batoni_pipe_fd(), NULL);
		atomic_store(&state.owner, NULL);
	}
	pthread_mutex_unlock(&state.lock);
}
