/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy device's streams.  Each is a FIFO of items and a thread that carries them out one by
 * one: it calls `reached`, or runs the program's function by that, and waits for the item's word,
 * before or afterwards.  What it needs of an item it keeps, because the engine may reuse the
 * record as soon as the item has nothing left to wait for.
 *
 * `lock` guards all streams, and no code of others runs under it.  `changed` is broadcast for
 * every item, its beginning and end, and every word: the waiters look again.  The default
 * stream's thread lives from the first open to the last close.
 */
#include "copy_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"
#include "log.h"
#include "mem.h"
#include "thread.h"

struct stream {
	struct batoni_list_node link;
	pthread_t thread;
	/* Guarded by `lock`. */
	struct batoni_stream_item *head, *tail; /* not begun */
	bool stops;
	bool runs; /* an item was begun and not left; of it: */
	bool launches;
	_Atomic uint64_t *word; /* or NULL */
	uint64_t value;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct batoni_list_node streams = {&streams, &streams};
static struct stream default_stream;
static unsigned opens;
/* Serialises first opens and last closes.  Taken before `lock`. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;

/* ---- a stream's thread ---- */

static bool
has_grown(const struct stream *stream)
{
	/* Pairs with the release in copy_release. */
	return !stream->word ||
	       (int64_t)(atomic_load_explicit(stream->word,
	                                      memory_order_acquire) -
	                 stream->value) >= 0;
}

static void
await_word_locked(const struct stream *stream)
{
	while (!has_grown(stream))
		pthread_cond_wait(&changed, &lock);
}

/* Begin the first item.  It is touched no more once it was reached. */
static void
run_head_locked(struct stream *stream)
{
	struct batoni_stream_item *item = stream->head;
	bool waits_first = item->flags & BATONI_ITEM_WAIT_FIRST;

	stream->head = item->next;
	stream->runs = true;
	stream->launches = item->flags & BATONI_ITEM_LAUNCH;
	stream->word = item->word;
	stream->value = item->value;
	/* It may be settled now, which a destroy waits for. */
	pthread_cond_broadcast(&changed);
	if (waits_first)
		await_word_locked(stream);
	pthread_mutex_unlock(&lock);
	item->reached(item);
	pthread_mutex_lock(&lock);
	if (!waits_first)
		await_word_locked(stream);
	stream->runs = false;
	stream->word = NULL;
	pthread_cond_broadcast(&changed);
}

static void *
stream_main(void *arg)
{
	struct stream *stream = arg;

	pthread_mutex_lock(&lock);
	while (!stream->stops || stream->head) {
		if (stream->head)
			run_head_locked(stream);
		else
			pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void
stop_stream(struct stream *stream)
{
	pthread_mutex_lock(&lock);
	stream->stops = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(stream->thread, NULL);
}

/* ---- streams ---- */

static baton_stream
handle_of(struct stream *stream)
{
	return (baton_stream)(void *)stream;
}

/* The live stream of this handle, or NULL. */
static struct stream *
find_locked(baton_stream handle)
{
	if (!handle)
		return &default_stream;
	for (struct batoni_list_node *at = streams.next; at != &streams;
	     at = at->next) {
		struct stream *stream =
			batoni_container_of(at, struct stream, link);

		if (handle_of(stream) == handle)
			return stream;
	}
	return NULL;
}

static bool
is_idle(const struct stream *stream)
{
	return !stream->head && !stream->runs;
}

/* It waits for a word or a function of the program, or for nothing: it does not only step over
 * an item that has ended. */
static bool
is_settled(const struct stream *stream)
{
	if (is_idle(stream))
		return true;
	return stream->runs && (stream->word ? !has_grown(stream)
	                                     : stream->launches);
}

static enum baton_status
copy_stream_create(struct batoni_device *device, baton_stream *stream_p)
{
	struct stream *stream = batoni_alloc(1, sizeof(*stream));

	(void)device;
	if (!stream)
		return BATON_ERR_NOMEM;
	if (batoni_thread_start(&stream->thread, stream_main, stream) != 0) {
		batoni_free(stream);
		return BATON_ERR_NOMEM;
	}
	pthread_mutex_lock(&lock);
	batoni_list_append(&streams, &stream->link);
	pthread_mutex_unlock(&lock);
	*stream_p = handle_of(stream);
	return BATON_OK;
}

static enum baton_status
copy_stream_destroy(struct batoni_device *device, baton_stream handle)
{
	enum baton_status status = BATON_OK;
	struct stream *stream;

	(void)device;
	pthread_mutex_lock(&lock);
	while ((stream = find_locked(handle)) && !is_settled(stream))
		pthread_cond_wait(&changed, &lock);
	if (!stream || stream == &default_stream)
		status = BATON_ERR_INVALID;
	else if (!is_idle(stream))
		status = BATON_ERR_BUSY;
	else
		batoni_list_remove(&stream->link);
	pthread_mutex_unlock(&lock);
	if (status != BATON_OK)
		return status;
	stop_stream(stream);
	batoni_free(stream);
	return BATON_OK;
}

/* A handle is an address: it cannot be told. */
static bool
copy_stream_is_ours(baton_stream handle)
{
	(void)handle;
	return false;
}

static enum baton_status
copy_stream_check(struct batoni_device *device, baton_stream handle,
                  bool launching)
{
	bool lives;

	(void)device;
	(void)launching; /* the stream's own thread runs functions */
	pthread_mutex_lock(&lock);
	lives = find_locked(handle) != NULL;
	pthread_mutex_unlock(&lock);
	return lives ? BATON_OK
	             : batoni_refuse(BATON_ERR_INVALID,
	                             "stream %p is no live stream of the copy "
	                             "device",
	                             (void *)handle);
}

static enum baton_status
copy_stream_idle(struct batoni_device *device, baton_stream handle)
{
	bool idle;

	(void)device;
	pthread_mutex_lock(&lock);
	idle = is_idle(find_locked(handle));
	pthread_mutex_unlock(&lock);
	return idle ? BATON_OK : BATON_PENDING;
}

/* ---- items and words ---- */

static enum baton_status
copy_enqueue(struct batoni_device *device, baton_stream handle,
             struct batoni_stream_item *item)
{
	struct stream *stream;

	(void)device;
	item->next = NULL;
	pthread_mutex_lock(&lock);
	stream = find_locked(handle);
	if (stream->head)
		stream->tail->next = item;
	else
		stream->head = item;
	stream->tail = item;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return BATON_OK;
}

static void
copy_release(struct batoni_device *device, _Atomic uint64_t *word,
             uint64_t value)
{
	(void)device;
	pthread_mutex_lock(&lock);
	/* Pairs with the acquire in has_grown. */
	atomic_store_explicit(word, value, memory_order_release);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static enum baton_status
copy_words_alloc(struct batoni_device *device, size_t count, uint64_t until_ns,
                 _Atomic uint64_t **words_p)
{
	size_t *block = batoni_alloc(1, sizeof(*block) +
	                                        count * sizeof(**words_p));

	(void)device;
	(void)until_ns;
	if (!block)
		return BATON_ERR_NOMEM;
	block[0] = count;
	*words_p = (_Atomic uint64_t *)(void *)(block + 1);
	return BATON_OK;
}

/* Does the stream still look at one of these words? */
static bool
looks_at(const struct stream *stream, const _Atomic uint64_t *words,
         size_t count)
{
	return stream->word && (uintptr_t)stream->word - (uintptr_t)words <
	                               count * sizeof(*words);
}

static enum baton_status
copy_words_free(struct batoni_device *device, _Atomic uint64_t *words)
{
	size_t *block = (size_t *)(void *)(uintptr_t)words - 1;
	bool busy;

	(void)device;
	if (!words)
		return BATON_OK;
	pthread_mutex_lock(&lock);
	busy = looks_at(&default_stream, words, block[0]);
	for (struct batoni_list_node *at = streams.next; at != &streams;
	     at = at->next)
		busy |= looks_at(batoni_container_of(at, struct stream, link),
		                 words, block[0]);
	pthread_mutex_unlock(&lock);
	if (busy)
		return BATON_ERR_BUSY;
	batoni_free(block);
	return BATON_OK;
}

/* ---- opening ---- */

static enum baton_status
copy_current(int *number_p)
{
	*number_p = -1;
	return BATON_OK;
}

static enum baton_status
copy_open(const struct batoni_device_config *config,
          struct batoni_device **device_p)
{
	struct batoni_device *device = batoni_alloc(1, sizeof(*device));
	int error = 0;

	(void)config;
	if (!device)
		return BATON_ERR_NOMEM;
	device->ops = &copy_device_ops;
	pthread_mutex_lock(&life);
	if (opens == 0) {
		default_stream.stops = false;
		error = batoni_thread_start(&default_stream.thread, stream_main,
		                            &default_stream);
	}
	opens += error == 0;
	pthread_mutex_unlock(&life);
	if (error) {
		batoni_free(device);
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "the default stream has no thread: %s",
		                     strerror(error));
	}
	*device_p = device;
	return BATON_OK;
}

static void
copy_close(struct batoni_device *device)
{
	pthread_mutex_lock(&life);
	if (--opens == 0)
		stop_stream(&default_stream);
	pthread_mutex_unlock(&life);
	batoni_free(device);
}

const struct batoni_device_ops copy_device_ops = {
	.name = "copy",
	.id = COPY_DEVICE_ID,
	.constant = "COPY_DEVICE_ID",
	.unit = "copy device",
	.memory = &copy_memory_ops,
	.current = copy_current,
	.open = copy_open,
	.close = copy_close,
	.stream_create = copy_stream_create,
	.stream_destroy = copy_stream_destroy,
	.stream_is_ours = copy_stream_is_ours,
	.stream_check = copy_stream_check,
	.stream_idle = copy_stream_idle,
	.enqueue = copy_enqueue,
	.release = copy_release,
	.words_alloc = copy_words_alloc,
	.words_free = copy_words_free,
};
