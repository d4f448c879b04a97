/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host device: streams that are FIFO queues in this process.
 *
 * In-engine (device.h): only the driver moves items.  A stream waits for the item at its
 * head.  A stream with no item is idle, and reaches an enqueued item at once.  Launched
 * functions run on the stream's worker, a thread that the check of the first one creates.
 * A function's item keeps the head until its word is released, as an operation's does.
 *
 * A small hash table, keyed by the word, holds the streams whose head waits for a word,
 * so that a release finds them without a search.
 *
 * All communicators share the streams.  They live in one reserved range of addresses, so
 * that checking any handle touches only memory of this device.  The slot of a destroyed
 * stream is reused only when every slot has been used.
 *
 * `registry_lock` guards creation and destruction.  A stream's other fields are the
 * driver's, except `busy` (atomic, for stream_idle) and the worker (it has its own lock).
 */
#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "list.h"
#include "log.h"
#include "mem.h"
#include "thread.h"

#define STREAMS_MAX 65536u
#define BLOCKED_BUCKETS 256u

struct worker {
	pthread_t thread;
	_Atomic(struct batoni_stream_item *) item; /* to run */
	atomic_bool stop;
	atomic_bool asleep; /* stored under the lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

struct stream {
	/* Driver. */
	struct batoni_stream_item *head, *tail;
	bool head_reached;      /* the head was reached; the stream waits for its word */
	struct stream *blocked; /* the next stream in the bucket */
	/* Any thread. */
	atomic_bool busy; /* it has an item */
	atomic_bool live;
	/* Guarded by registry_lock. */
	_Atomic(struct worker *) worker;
	struct stream *next_free;
	char padding[8];
};

static_assert(sizeof(struct stream) == 64, "handles are checked with a mask");

struct host_device {
	struct batoni_device base; /* must be first */
};

static struct host_device host = {
	.base = {.ops = &batoni_device_host_ops, .number = -1}};
static struct stream default_stream = {.live = true};
static struct stream *blocked[BLOCKED_BUCKETS]; /* driver */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *_Atomic range; /* STREAMS_MAX of them */
static struct stream *free_streams;  /* oldest first; guarded by registry_lock */
static struct stream **free_tail = &free_streams; /* likewise */
static uint32_t streams_made;        /* guarded by registry_lock */

static struct stream *
stream_of(baton_stream handle)
{
	return handle ? (struct stream *)(void *)handle : &default_stream;
}

/* ---- advancing a stream; the driver ---- */

static bool
word_has(const _Atomic uint64_t *word, uint64_t value)
{
	return (int64_t)(atomic_load_explicit(word, memory_order_relaxed) -
	                 value) >= 0;
}

static struct stream **
bucket_of(const _Atomic uint64_t *word)
{
	return &blocked[((uintptr_t)word / sizeof(*word)) % BLOCKED_BUCKETS];
}

static void
block(struct stream *stream)
{
	struct stream **bucket = bucket_of(stream->head->word);

	stream->blocked = *bucket;
	*bucket = stream;
}

static void
pop(struct stream *stream)
{
	stream->head = stream->head->next;
	stream->head_reached = false;
	if (!stream->head) {
		stream->tail = NULL;
		/* Pairs with the acquire in host_stream_idle: a thread that sees the
		 * stream idle sees the data. */
		atomic_store_explicit(&stream->busy, false,
		                      memory_order_release);
	}
}

/* Called after a store to `item` or `stop`.  No wake-up is lost: the worker stores
 * `asleep`, then loads both; this thread stores one of them, then loads `asleep`; all
 * seq_cst, so one of them sees the other.  The worker holds the lock until it waits on
 * the condition, so the signal comes after that. */
static void
wake_worker(struct worker *worker)
{
	if (!atomic_load(&worker->asleep))
		return;
	pthread_mutex_lock(&worker->lock);
	pthread_mutex_unlock(&worker->lock);
	pthread_cond_signal(&worker->changed);
}

/* The caller is the driver: the stream is not destroyed before it releases the lock. */
static void
hand_to_worker(struct stream *stream, struct batoni_stream_item *item)
{
	struct worker *worker = atomic_load(&stream->worker);

	atomic_store(&worker->item, item);
	wake_worker(worker);
}

/* The stream has a new head: reach the item, and continue until the head has a word to wait for. */
static void
advance_stream(struct stream *stream)
{
	struct batoni_stream_item *item;

	while ((item = stream->head)) {
		bool open = !item->word || word_has(item->word, item->value);

		if (open && !stream->head_reached) {
			pop(stream);
			item->reached(item);
			continue;
		}
		if (open) {
			pop(stream);
			continue;
		}
		if (!stream->head_reached &&
		    !(item->flags & BATONI_ITEM_WAIT_FIRST)) {
			stream->head_reached = true;
			if (item->flags & BATONI_ITEM_LAUNCH)
				hand_to_worker(stream, item);
			else
				item->reached(item);
		}
		block(stream);
		return;
	}
}

static enum baton_status
host_enqueue(struct batoni_device *device, baton_stream handle,
             struct batoni_stream_item *item)
{
	struct stream *stream = stream_of(handle);

	(void)device;
	item->next = NULL;
	if (stream->tail) {
		stream->tail->next = item;
		stream->tail = item;
		return BATON_OK;
	}
	stream->head = stream->tail = item;
	atomic_store_explicit(&stream->busy, true, memory_order_relaxed);
	if (item->flags & BATONI_ITEM_PASSED) {
		stream->head_reached = true;
		block(stream);
		return BATON_OK;
	}
	advance_stream(stream);
	return BATON_OK;
}

static void
host_release(struct batoni_device *device, _Atomic uint64_t *word,
             uint64_t value)
{
	struct stream **link = bucket_of(word);
	struct stream *stream, *ready = NULL;

	(void)device;
	atomic_store_explicit(word, value, memory_order_relaxed);
	/* Usually no stream waits, or one does. */
	while ((stream = *link)) {
		if (stream->head->word != word ||
		    !word_has(word, stream->head->value)) {
			link = &stream->blocked;
			continue;
		}
		*link = stream->blocked;
		stream->blocked = ready;
		ready = stream;
	}
	while ((stream = ready)) {
		ready = stream->blocked;
		advance_stream(stream);
	}
}

static enum baton_status
host_stream_idle(struct batoni_device *device, baton_stream handle)
{
	(void)device;
	return atomic_load_explicit(&stream_of(handle)->busy,
	                            memory_order_acquire)
	               ? BATON_PENDING
	               : BATON_OK;
}

/* ---- workers ---- */

static bool
has_work(struct worker *worker)
{
	return atomic_load(&worker->item) || atomic_load(&worker->stop);
}

static void
sleep_until_work(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	atomic_store(&worker->asleep, true);
	while (!has_work(worker))
		pthread_cond_wait(&worker->changed, &worker->lock);
	atomic_store(&worker->asleep, false);
	pthread_mutex_unlock(&worker->lock);
}

static void *
worker_main(void *arg)
{
	struct worker *worker = arg;
	struct batoni_stream_item *item;

	for (;;) {
		if (!has_work(worker))
			sleep_until_work(worker);
		item = atomic_exchange(&worker->item, NULL);
		if (!item)
			return NULL;
		item->reached(item);
	}
}

static bool
host_launch_waits(struct batoni_device *device, baton_stream handle, bool *ends_p)
{
	struct worker *worker = atomic_load(&stream_of(handle)->worker);
	bool waits = worker && atomic_load(&worker->item);

	(void)device;
	*ends_p = !waits && (!worker || atomic_load(&worker->stop));
	return waits;
}

static enum baton_status
worker_start(struct stream *stream)
{
	struct worker *worker = batoni_alloc(1, sizeof(*worker));
	int error;

	if (!worker)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no memory for the stream's thread");
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->changed, NULL);
	error = batoni_thread_start(&worker->thread, worker_main, worker);
	if (error) {
		pthread_cond_destroy(&worker->changed);
		pthread_mutex_destroy(&worker->lock);
		batoni_free(worker);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "the stream's thread cannot be started: %s",
		                     strerror(error));
	}
	atomic_store(&stream->worker, worker);
	return BATON_OK;
}

static void
worker_stop(struct worker *worker)
{
	atomic_store(&worker->stop, true);
	wake_worker(worker);
	pthread_join(worker->thread, NULL);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->lock);
	batoni_free(worker);
}

/* ---- the registry ---- */

/* Start the stream's worker for its first function. */
static __attribute__((noinline)) enum baton_status
prepare_function(struct stream *stream)
{
	enum baton_status status = BATON_OK;

	pthread_mutex_lock(&registry_lock);
	if (!atomic_load(&stream->worker))
		status = worker_start(stream);
	pthread_mutex_unlock(&registry_lock);
	return status;
}

static __attribute__((noinline, cold)) enum baton_status
refuse_stream(baton_stream handle)
{
	return batoni_refuse(BATON_ERR_INVALID,
	                     "stream %p is no live stream of the host device",
	                     (void *)handle);
}

/* The default stream is NULL, which every device has. */
static bool
host_stream_is_ours(baton_stream handle)
{
	const struct stream *first =
		atomic_load_explicit(&range, memory_order_acquire);

	return first && (uintptr_t)handle - (uintptr_t)first <
	                        STREAMS_MAX * sizeof(*first);
}

static inline bool
is_live(baton_stream handle)
{
	struct stream *first = atomic_load_explicit(&range,
	                                            memory_order_acquire);
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)first;

	return !handle || (first && offset < STREAMS_MAX * sizeof(*first) &&
	                   offset % sizeof(*first) == 0 &&
	                   atomic_load_explicit(&stream_of(handle)->live,
	                                        memory_order_relaxed));
}

static bool
host_takes_now(struct batoni_device *device, baton_stream handle)
{
	(void)device;
	return is_live(handle) && !stream_of(handle)->head;
}

static enum baton_status
host_stream_check(struct batoni_device *device, baton_stream handle,
                  bool launching)
{
	struct stream *stream = stream_of(handle);

	(void)device;
	if (!is_live(handle))
		return refuse_stream(handle);
	if (!launching || atomic_load(&stream->worker))
		return BATON_OK;
	return prepare_function(stream);
}

static enum baton_status
reserve_range_locked(void)
{
	void *pages;

	if (atomic_load(&range))
		return BATON_OK;
	pages = mmap(NULL, STREAMS_MAX * sizeof(struct stream),
	             PROT_READ | PROT_WRITE,
	             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages == MAP_FAILED)
		return BATON_ERR_NOMEM;
	atomic_store_explicit(&range, pages, memory_order_release);
	return BATON_OK;
}

/* A slot for a new stream; the caller holds registry_lock.  Unused slots come first, then
 * the slot that has been free the longest, so that a handle used after its stream was
 * destroyed does not soon match another stream. */
static struct stream *
take_slot_locked(void)
{
	struct stream *stream;

	if (reserve_range_locked() != BATON_OK)
		return NULL;
	if (streams_made < STREAMS_MAX)
		return &atomic_load(&range)[streams_made++];
	stream = free_streams;
	if (stream) {
		free_streams = stream->next_free;
		if (!free_streams)
			free_tail = &free_streams;
	}
	return stream;
}

static enum baton_status
host_stream_create(struct batoni_device *device, baton_stream *handle_p)
{
	struct stream *stream;

	(void)device;
	pthread_mutex_lock(&registry_lock);
	stream = take_slot_locked();
	pthread_mutex_unlock(&registry_lock);
	if (!stream)
		return BATON_ERR_NOMEM;
	atomic_store(&stream->live, true);
	*handle_p = (baton_stream)(void *)stream;
	return BATON_OK;
}

static enum baton_status
host_stream_destroy(struct batoni_device *device, baton_stream handle)
{
	struct stream *stream = stream_of(handle);
	struct worker *worker;

	(void)device;
	if (atomic_load(&stream->busy))
		return BATON_ERR_BUSY;
	pthread_mutex_lock(&registry_lock);
	if (!atomic_exchange(&stream->live, false)) {
		pthread_mutex_unlock(&registry_lock);
		return BATON_ERR_INVALID;
	}
	pthread_mutex_unlock(&registry_lock);
	worker = atomic_load(&stream->worker);
	if (worker)
		worker_stop(worker);
	/* Free the slot only now: until the worker has ended, it may call
	 * host_launch_waits with this handle. */
	atomic_store(&stream->worker, NULL);
	pthread_mutex_lock(&registry_lock);
	stream->next_free = NULL;
	*free_tail = stream;
	free_tail = &stream->next_free;
	pthread_mutex_unlock(&registry_lock);
	return BATON_OK;
}

/* ---- opening ---- */

static enum baton_status
host_current(int *number_p)
{
	*number_p = -1;
	return BATON_OK;
}

static enum baton_status
host_open(const struct batoni_device_config *config,
          struct batoni_device **device_p)
{
	(void)config;
	*device_p = &host.base;
	return BATON_OK;
}

static void
host_close(struct batoni_device *device)
{
	(void)device;
}

static enum baton_status
host_words_alloc(struct batoni_device *device, size_t count,
                 uint64_t until_ns, _Atomic uint64_t **words_p)
{
	_Atomic uint64_t *words = batoni_alloc(count, sizeof(*words));

	(void)device;
	(void)until_ns;
	if (!words)
		return BATON_ERR_NOMEM;
	*words_p = words;
	return BATON_OK;
}

static enum baton_status
host_words_free(struct batoni_device *device, _Atomic uint64_t *words)
{
	(void)device;
	batoni_free((void *)(uintptr_t)words);
	return BATON_OK;
}

static const struct batoni_in_engine_ops in_engine = {
	.takes_now = host_takes_now,
	.launch_waits = host_launch_waits,
};

const struct batoni_device_ops batoni_device_host_ops = {
	.name = "host",
	.id = BATON_DEVICE_HOST,
	.constant = "BATON_DEVICE_HOST",
	.unit = "the host",
	.in_engine = &in_engine,
	.memory = &batoni_host_memory_ops,
	.current = host_current,
	.open = host_open,
	.close = host_close,
	.stream_create = host_stream_create,
	.stream_destroy = host_stream_destroy,
	.stream_check = host_stream_check,
	.stream_idle = host_stream_idle,
	.stream_is_ours = host_stream_is_ours,
	.enqueue = host_enqueue,
	.release = host_release,
	.words_alloc = host_words_alloc,
	.words_free = host_words_free,
};
