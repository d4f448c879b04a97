/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues.
 *
 * An operation that names a queue reserves an entry at the call and keeps it until it is
 * polled, so its completion always has an entry.  Completed operations are linked into the
 * queue through `next`; nothing is copied or allocated.  An operation that is lent may be in the queue
 * while its transport or its stream still has it, so nothing of those is linked through `next`.
 *
 * The lock guards the list, the counts and `armed`.  The descriptor is an eventfd.
 * Arming empties it, and the first delivery after that writes it once.
 *
 * The descriptor is an epoll instance over the eventfd, and over one or both of these:
 *
 * - A timer, if the engine's thread may not drive (MPI below MPI_THREAD_MULTIPLE): no operation ends
 *   while the program sleeps.  It expires TIMER_NS after arming if operations name the queue;
 *   the program wakes, polls, and so makes progress.  With BATON_PROGRESS_CALLS there is no timer:
 *   the program makes progress itself.
 * - The pipe of the process's bell, if some rank is near (pairs.h) and has opened it: queue_pipe.c.  Arming
 *   then makes a pass, and the pipe wakes the program if only peers end what the communicator has
 *   issued.  The timer stays: what is not issued yet, or is another communicator's, comes without the pipe.
 *
 * A poll that answers the pipe suspends the arming: what its own pass brings needs no eventfd.
 *
 * A destroyed queue refuses all calls.  Its memory stays until the operations that
 * name it have ended: `held` is their number, plus 1 while the queue is not
 * destroyed.
 */
#include "core.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "engine.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "liveness.h"
#include "forecast.h"
#include "queue.h"
#include "queue_pipe.h"
#include "request.h"
#include "unobserved.h"

#define ENTRIES_MAX ((size_t)1 << 20)
#define TIMER_NS 1000000

struct baton_queue {
	struct baton_comm *comm;
	size_t entries;
	int fd;    /* the program waits for this one */
	int event; /* the eventfd; equal to fd unless that is an epoll instance */
	int timer; /* -1: none */
	bool listens; /* it may have the pipe */
	struct batoni_watcher watcher;
	pthread_mutex_t lock;
	/* Guarded by lock. */
	struct batoni_op *head, *tail;
	size_t held; /* reserved entries, and 1 while it is alive */
	bool armed, dead;

	struct batoni_handle handle;
};

static struct batoni_handles handles = BATONI_HANDLES(baton_queue);

static bool
needs_timer(const struct baton_comm *comm)
{
	return !comm->driving.by_engine && comm->progress != BATON_PROGRESS_CALLS;
}

/* Is some rank near, and has opened the pipe of this process? */
static bool
is_written_to(const struct baton_comm *comm)
{
	const struct batoni_peer *peers = comm->transport->peers;
	bool some = false;

	for (int rank = 0; peers && rank < comm->size; rank++)
		some |= rank != comm->rank && peers[rank].near &&
		        peers[rank].writes_to_us;
	return some && comm->message_paths & BATON_MESSAGE_PATH_NEAR;
}

static bool
add_to_epoll(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* False: errno says why; the caller closes those that are open. */
static bool
open_descriptors(struct baton_queue *queue, const struct baton_comm *comm)
{
	queue->timer = -1;
	queue->event = queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	queue->listens = is_written_to(comm);
	if (queue->fd < 0 || !(needs_timer(comm) || queue->listens))
		return queue->fd >= 0;
	queue->fd = queue->watcher.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (queue->fd < 0 || !add_to_epoll(queue->fd, queue->event))
		return false;
	if (!needs_timer(comm))
		return true;
	queue->timer = timerfd_create(CLOCK_MONOTONIC,
	                              TFD_CLOEXEC | TFD_NONBLOCK);
	return add_to_epoll(queue->fd, queue->timer);
}

static void
close_descriptors(struct baton_queue *queue)
{
	if (queue->fd >= 0 && queue->fd != queue->event)
		close(queue->fd);
	if (queue->event >= 0)
		close(queue->event);
	if (queue->timer >= 0)
		close(queue->timer);
}

enum baton_status
baton_queue_create(struct baton_comm *comm, size_t entries,
                   struct baton_queue **queue_p)
{
	struct baton_queue *queue;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_queue_create");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_queue_create", comm);
	if (!queue_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_queue_create: queue_p is NULL");
	if (entries == 0 || entries > ENTRIES_MAX)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_queue_create: entries is %zu; it "
		                     "takes 1 to %zu",
		                     entries, ENTRIES_MAX);
	queue = batoni_handle_new(&handles);
	if (!queue)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "baton_queue_create: out of memory");
	if (!open_descriptors(queue, comm)) {
		enum baton_status status = batoni_refuse(
			BATON_ERR_SYSTEM, "baton_queue_create: descriptor: %s",
			strerror(errno));

		close_descriptors(queue);
		batoni_handle_retire(&handles, queue);
		return status;
	}
	queue->comm = comm;
	queue->entries = entries;
	queue->held = 1;
	pthread_mutex_init(&queue->lock, NULL);
	atomic_fetch_add(&comm->queues, 1);
	batoni_handle_start(&queue->handle);
	*queue_p = queue;
	return BATON_OK;
}

static bool
is_alive(const struct baton_queue *queue)
{
	return queue && batoni_is_alive(&queue->handle);
}

static void
queue_free(struct baton_queue *queue)
{
	close_descriptors(queue);
	pthread_mutex_destroy(&queue->lock);
	batoni_handle_retire(&handles, queue);
}

/* The caller holds the lock.  Start the timer if the queue is armed and operations name
 * it, else stop it.  Setting the timer also clears an earlier expiry. */
static void
set_timer(const struct baton_queue *queue)
{
	struct itimerspec in = {.it_value = {.tv_nsec = TIMER_NS}};

	if (queue->timer < 0)
		return;
	if (!queue->armed || queue->held <= 1)
		in.it_value.tv_nsec = 0;
	timerfd_settime(queue->timer, 0, &in, NULL);
}

enum baton_status
batoni_queue_reserve(struct baton_queue *queue, const struct baton_comm *comm)
{
	bool full;

	if (!is_alive(queue))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->queue was destroyed");
	if (queue->comm != comm)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->queue is of another communicator");
	pthread_mutex_lock(&queue->lock);
	full = queue->held > queue->entries;
	queue->held += !full;
	if (queue->armed)
		set_timer(queue);
	pthread_mutex_unlock(&queue->lock);
	if (full)
		return batoni_refuse(BATON_ERR_AGAIN,
		                     "options->queue has all of its %zu entries "
		                     "taken; poll it",
		                     queue->entries);
	return BATON_OK;
}

/* The caller holds the lock.  Releases it, and frees the queue with its last entry. */
static void
give_up_entries(struct baton_queue *queue, size_t n)
{
	bool last;

	queue->held -= n;
	last = queue->held == 0;
	pthread_mutex_unlock(&queue->lock);
	if (last)
		queue_free(queue);
}

void
batoni_queue_unreserve(struct baton_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	give_up_entries(queue, 1);
}

/* The caller holds the lock; the queue is armed.  Wake the program. */
static void
wake_program(struct baton_queue *queue)
{
	const uint64_t one = 1;

	queue->armed = false;
	if (queue->listens)
		batoni_pipe_disarm(&queue->watcher);
	/* Cannot fail: arming read the counter empty.  A raw system call, since write() is a
	 * cancellation point. */
	if (syscall(SYS_write, queue->event, &one, sizeof(one)) < 0)
		batoni_log(BATONI_LOG_ERROR, "eventfd: %s", strerror(errno));
}

void
batoni_queue_deliver(struct baton_queue *queue, struct batoni_op *op)
{
	uint64_t before;

	pthread_mutex_lock(&queue->lock);
	if (queue->dead) {
		enum baton_status status = op->status;

		before = atomic_load(&op->word);
		if (status != BATON_OK && !(before & BATONI_OP_HANDLE))
			batoni_stream_error_note(op, status);
		batoni_op_drop(op, BATONI_OP_QUEUE);
		give_up_entries(queue, 1);
		return;
	}
	batoni_op_list_in(op, BATONI_IN_QUEUE);
	op->next = NULL;
	if (queue->tail)
		queue->tail->next = op;
	else
		queue->head = op;
	queue->tail = op;
	if (queue->armed)
		wake_program(queue);
	pthread_mutex_unlock(&queue->lock);
}

/* Take the oldest completed operation; the caller holds the lock. */
static struct batoni_op *
pop_locked(struct baton_queue *queue)
{
	struct batoni_op *op = queue->head;

	if (!op)
		return NULL;
	queue->head = op->next;
	if (!queue->head)
		queue->tail = NULL;
	batoni_op_list_out(op, BATONI_IN_QUEUE);
	return op;
}

/* The program polls.  True: the pipe has woken it, and the queue was armed; it is not, until resume_arming. */
static bool
suspend_arming(struct baton_queue *queue)
{
	bool armed;

	if (likely(!queue->listens) || !batoni_pipe_answer(&queue->watcher))
		return false;
	pthread_mutex_lock(&queue->lock);
	armed = queue->armed;
	queue->armed = false;
	pthread_mutex_unlock(&queue->lock);
	return armed;
}

/* The caller holds the lock.  The poll takes nothing, so the arming goes on. */
static void
resume_arming(struct baton_queue *queue)
{
	queue->armed = true;
	if (queue->head)
		wake_program(queue);
}

size_t
baton_queue_poll(struct baton_queue *queue,
                 struct baton_completion *completions, size_t max)
{
	struct batoni_op *op;
	bool suspended;
	size_t n = 0;

	if (!is_alive(queue) || !completions || !batoni_may_call())
		return 0;
	suspended = suspend_arming(queue);
	batoni_poll(queue->comm);
	pthread_mutex_lock(&queue->lock);
	while (n < max && (op = pop_locked(queue))) {
		completions[n++] = batoni_completion_at(
			op, atomic_load_explicit(&op->word,
		                                 memory_order_acquire));
		batoni_op_drop(op, BATONI_OP_QUEUE | BATONI_OP_HANDLE);
	}
	queue->held -= n;
	if (unlikely(suspended && n == 0))
		resume_arming(queue);
	pthread_mutex_unlock(&queue->lock);
	return n;
}

int
baton_queue_fd(struct baton_queue *queue)
{
	return is_alive(queue) ? queue->fd : -1;
}

/* Empty the eventfd.  False: errno says why. */
static bool
empty_event(const struct baton_queue *queue)
{
	uint64_t count;

	/* EAGAIN: it was empty already. */
	return syscall(SYS_read, queue->event, &count, sizeof(count)) >= 0 ||
	       errno == EAGAIN;
}

/* Take the driver lock, unless another thread of the program drives, which then delivers; as of a waiting
 * thread (wait.c). */
static bool
take_to_listen(struct baton_comm *comm)
{
	if (!batoni_may_drive(comm))
		return false;
	if (batoni_trylock_long())
		return true;
	if (!batoni_engine_drives() && !batoni_is_left_to_us(comm))
		return false;
	batoni_lock();
	return true;
}

/* The driver.  The pipe can wake the program: only peers end what the communicator has issued. */
static bool
only_peers_end(const struct baton_comm *comm)
{
	const struct batoni_load sum = batoni_comm_load(comm);

	return batoni_load_poll(&sum) == BATONI_POLL_WHEN_RUNG && sum.parked;
}

/* The queue has just been armed.  Let the pipe wake the program, if it can.  OK; PENDING: something has come
 * meanwhile. */
static enum baton_status
listen_on_pipe(struct baton_queue *queue)
{
	enum baton_status status = BATON_OK;

	if (take_to_listen(queue->comm)) {
		if (batoni_pipe_arm(&queue->watcher)) {
			batoni_check_peers_soon();
			batoni_pass();
			if (!only_peers_end(queue->comm))
				batoni_pipe_disarm(&queue->watcher);
		}
		batoni_unlock();
	}
	pthread_mutex_lock(&queue->lock);
	/* It may have been delivered to before the pipe was armed. */
	if (!queue->armed)
		batoni_pipe_disarm(&queue->watcher);
	if (!queue->armed && queue->head) {
		status = BATON_PENDING;
		empty_event(queue);
	}
	pthread_mutex_unlock(&queue->lock);
	return status;
}

enum baton_status
baton_queue_arm(struct baton_queue *queue)
{
	enum baton_status status = BATON_OK;

	BATONI_ENTER("baton_queue_arm");
	if (!is_alive(queue))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_queue_arm: queue %s",
		                     queue ? "was destroyed" : "is NULL");
	pthread_mutex_lock(&queue->lock);
	if (queue->head) {
		status = BATON_PENDING;
	} else {
		if (!empty_event(queue))
			status = batoni_refuse(BATON_ERR_SYSTEM,
			                       "baton_queue_arm: eventfd: %s",
			                       strerror(errno));
		queue->armed = true;
		set_timer(queue);
	}
	pthread_mutex_unlock(&queue->lock);
	return status == BATON_OK && queue->listens ? listen_on_pipe(queue) : status;
}

void
baton_queue_destroy(struct baton_queue *queue)
{
	struct batoni_op *op;
	size_t dropped = 1;
	BATONI_UNCANCELLED;

	if (!is_alive(queue) || !batoni_may_call())
		return;
	/* From here on calls are refused; operations that name the queue continue. */
	atomic_store(&queue->handle.alive, 0);
	pthread_mutex_lock(&queue->lock);
	while ((op = pop_locked(queue))) {
		batoni_op_drop(op, BATONI_OP_QUEUE | BATONI_OP_HANDLE);
		dropped++;
	}
	queue->dead = true;
	if (queue->listens)
		batoni_pipe_stop(&queue->watcher);
	atomic_fetch_sub(&queue->comm->queues, 1);
	give_up_entries(queue, dropped);
}
