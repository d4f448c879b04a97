/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake device's implementation of the contract.  fake_machine.c runs the streams. */
#include "fake_device.h"

#include <stdlib.h>
#include <string.h>

#include "fake_machine.h"
#include "fake_memory.h"
#include "log.h"
#include "log.h"

struct fake_words {
	struct batoni_list_node link; /* of fake_machine.words */
	size_t count;
	_Atomic uint64_t words[];
};

/* Serialises first opens and last closes.  Taken before fake_lock. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;

/* ---- the contract: streams ---------------------------------------------- */

static enum baton_status
fake_stream_create(struct batoni_device *device, baton_stream *stream_p)
{
	struct fake_stream *stream = NULL;
	enum baton_status status;

	(void)device;
	fake_enter("stream_create");
	status = fake_fault_locked(FAKE_STREAM_CREATE);
	if (status == BATON_OK) {
		stream = calloc(1, sizeof(*stream));
		if (!stream)
			status = BATON_ERR_NOMEM;
	}
	if (stream) {
		pthread_cond_init(&stream->launch, NULL);
		stream->number = ++fake_machine.streams_made;
		batoni_list_append(&fake_machine.streams, &stream->link);
		*stream_p = (baton_stream)(void *)stream;
	}
	fake_exit();
	return status;
}

static enum baton_status
fake_stream_destroy(struct batoni_device *device, baton_stream handle)
{
	struct fake_stream *stream;
	enum baton_status status = BATON_OK;

	(void)device;
	fake_enter("stream_destroy");
	/* Entries that the stream only steps over do not make it busy. */
	while ((stream = handle ? fake_find_locked(handle) : NULL) &&
	       !fake_is_settled_locked(stream))
		pthread_cond_wait(&fake_changed, &fake_lock);
	if (!stream)
		status = BATON_ERR_INVALID;
	else if (stream->head)
		status = BATON_ERR_BUSY;
	else
		batoni_list_remove(&stream->link);
	fake_exit();
	if (status != BATON_OK)
		return status;
	fake_stream_fini(stream);
	free(stream);
	return BATON_OK;
}

static const char *
why_not(enum baton_status status)
{
	return status == BATON_ERR_INVALID ? "is no live stream of the fake device"
	       : status == BATON_ERR_UNSUPPORTED
	               ? "captures a graph, in which Baton puts nothing"
	               : "cannot launch";
}

static enum baton_status
fake_stream_check(struct batoni_device *device, baton_stream handle,
                  bool launching)
{
	struct fake_stream *stream;
	enum baton_status status = BATON_OK;

	(void)device;
	fake_enter("stream_check");
	stream = fake_find_locked(handle);
	if (!stream)
		status = BATON_ERR_INVALID;
	else if (stream->captures)
		status = BATON_ERR_UNSUPPORTED;
	else if (launching)
		status = fake_fault_locked(FAKE_LAUNCH_CHECK);
	if (stream && launching && status == BATON_OK)
		status = fake_worker_start_locked(stream);
	fake_exit();
	return status == BATON_OK
	               ? BATON_OK
	               : batoni_refuse(status, "stream %p %s", (void *)handle,
	                               why_not(status));
}

/* They lie in memory of malloc: it cannot be told. */
static bool
fake_stream_is_ours(baton_stream handle)
{
	(void)handle;
	return false;
}

static enum baton_status
fake_stream_idle(struct batoni_device *device, baton_stream handle)
{
	struct fake_stream *stream;
	enum baton_status status;

	(void)device;
	fake_enter("stream_idle");
	stream = fake_must_find_locked(handle);
	status = fake_fault_locked(FAKE_STREAM_IDLE);
	if (!stream)
		status = BATON_ERR_CUDA;
	else if (status == BATON_OK && stream->head)
		status = BATON_PENDING;
	fake_exit();
	return status;
}

/* ---- the contract: items and words -------------------------------------- */

static struct fake_device *
to_fake(struct batoni_device *device)
{
	return batoni_container_of(device, struct fake_device, base);
}

/* The block that the word is in, or NULL. */
static struct fake_words *
words_of_locked(const _Atomic uint64_t *word)
{
	struct batoni_list_node *at;

	for (at = fake_machine.words.next; at != &fake_machine.words; at = at->next) {
		struct fake_words *block =
			batoni_container_of(at, struct fake_words, link);

		if (word >= block->words && word < block->words + block->count)
			return block;
	}
	return NULL;
}

static enum baton_status
enqueue_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	enum baton_status status = fake_fault_locked(FAKE_ENQUEUE);

	if (!stream)
		return batoni_refuse(BATON_ERR_CUDA, "fake: no such stream");
	if (status != BATON_OK)
		return batoni_refuse(status, "fake enqueue was told to fail");
	if (entry->word && !words_of_locked(entry->word))
		fake_device_violation("an item with a word of somebody else");
	if ((entry->flags & BATONI_ITEM_LAUNCH) && !stream->working)
		fake_device_violation("a launch without stream_check");
	if (fake_machine.waits_in_items &&
	    fake_worker_start_locked(stream) != BATON_OK)
		return BATON_ERR_CUDA;
	entry->device->items++;
	fake_append_locked(stream, entry);
	return BATON_OK;
}

static enum baton_status
fake_enqueue(struct batoni_device *device, baton_stream handle,
             struct batoni_stream_item *item)
{
	struct fake_entry *entry = calloc(1, sizeof(*entry));
	enum baton_status status;

	if (!entry)
		return BATON_ERR_NOMEM;
	entry->kind = ITEM;
	entry->device = to_fake(device);
	entry->item = item;
	entry->flags = item->flags;
	entry->word = item->word;
	entry->value = item->value;
	fake_enter("enqueue");
	status = enqueue_locked(fake_await_space_locked(handle), entry);
	fake_exit();
	if (status != BATON_OK)
		free(entry);
	return status;
}

static void
fake_release(struct batoni_device *device, _Atomic uint64_t *word,
             uint64_t value)
{
	uint64_t before;

	(void)device;
	fake_enter("release");
	if (!words_of_locked(word))
		fake_device_violation("release of somebody else's word");
	before = atomic_load_explicit(word, memory_order_relaxed);
	if ((int64_t)(value - before) <= 0)
		fake_device_violation("release of a value that has been");
	/* Pairs with the acquire in word_has_grown. */
	atomic_store_explicit(word, value, memory_order_release);
	fake_happened_locked();
	fake_exit();
}

static enum baton_status
fake_words_alloc(struct batoni_device *device, size_t count,
                 uint64_t until_ns, _Atomic uint64_t **words_p)
{
	struct fake_words *block = NULL;
	enum baton_status status;

	(void)device;
	(void)until_ns;
	fake_enter("words_alloc");
	status = fake_fault_locked(FAKE_WORDS_ALLOC);
	if (status == BATON_OK) {
		block = calloc(1, sizeof(*block) +
		                          count * sizeof(block->words[0]));
		if (!block)
			status = BATON_ERR_NOMEM;
	}
	if (block) {
		block->count = count;
		batoni_list_append(&fake_machine.words, &block->link);
		*words_p = block->words;
	}
	fake_exit();
	return status;
}

/* ---- the contract: going away ------------------------------------------- */

static bool
concerns(const struct fake_entry *entry, const struct fake_device *device,
         const struct fake_words *block)
{
	if (entry->kind != ITEM)
		return false;
	if (device)
		return entry->device == device;
	return entry->word >= block->words &&
	       entry->word < block->words + block->count;
}

/* Items in the stream that are the device's or wait for these words.  Those that the
 * stream only steps over are counted.  The others violate the contract: they are
 * reported and made harmless. */
static unsigned
leftovers_locked(struct fake_stream *stream, struct fake_device *device,
                 const struct fake_words *block)
{
	unsigned passing = 0;

	for (struct fake_entry *entry = stream->head; entry; entry = entry->next) {
		if (!concerns(entry, device, block))
			continue;
		if (entry->phase == CALLING ||
		    (entry->phase == CALLED && fake_word_has_grown(entry))) {
			passing++;
			continue;
		}
		fake_device_violation("closed or freed under an item");
		entry->device->items--;
		entry->device = NULL;
		entry->kind = COPY; /* of 0 bytes */
		entry->phase = NEW;
	}
	return passing;
}

static unsigned
all_leftovers_locked(struct fake_device *device, const struct fake_words *block)
{
	unsigned passing = leftovers_locked(&fake_machine.default_stream, device,
	                                    block);
	struct batoni_list_node *at;

	for (at = fake_machine.streams.next; at != &fake_machine.streams;
	     at = at->next)
		passing += leftovers_locked(fake_to_stream(at), device, block);
	return passing;
}

static enum baton_status
fake_words_free(struct batoni_device *device, _Atomic uint64_t *words)
{
	enum baton_status status = BATON_OK;
	struct fake_words *block;

	(void)device;
	if (!words)
		return BATON_OK;
	fake_enter("words_free");
	block = words_of_locked(words);
	if (!block || words != block->words) {
		fake_device_violation("words_free of what is no block");
		block = NULL;
	} else if (all_leftovers_locked(NULL, block)) {
		block = NULL;
		status = BATON_ERR_BUSY;
	} else {
		batoni_list_remove(&block->link);
	}
	fake_exit();
	free(block);
	return status;
}

/* A frozen device closes: its entries outlive it. */
static void
disown_locked(const struct fake_device *device)
{
	struct batoni_list_node *at = &fake_machine.streams;
	struct fake_stream *stream = &fake_machine.default_stream;

	for (;;) {
		for (struct fake_entry *entry = stream->head; entry;
		     entry = entry->next) {
			if (entry->device == device)
				entry->device = NULL;
		}
		at = at->next;
		if (at == &fake_machine.streams)
			return;
		stream = fake_to_stream(at);
	}
}

_Thread_local int fake_device_current = -1;

static enum baton_status
fake_current(int *number_p)
{
	*number_p = fake_device_current;
	return BATON_OK;
}

/* Tests that open it themselves may have no configuration. */
static int
number_of(const struct batoni_device_config *config)
{
	if (!config)
		return 0;
	return config->cuda_device >= 0 ? config->cuda_device
	                                : config->host_rank % FAKE_DEVICES;
}

static enum baton_status
fake_open(const struct batoni_device_config *config,
          struct batoni_device **device_p)
{
	struct fake_device *device;
	enum baton_status status;

	fake_enter("open");
	status = fake_fault_locked(FAKE_OPEN);
	if (status == BATON_OK && fake_machine.opens == 0)
		status = fake_choose_waits();
	fake_exit();
	if (status != BATON_OK)
		return status;
	device = calloc(1, sizeof(*device));
	if (!device)
		return BATON_ERR_NOMEM;
	device->base.ops = &batoni_fake_device_ops;
	device->base.number = number_of(config);
	batoni_list_init(&device->marks);
	pthread_mutex_lock(&life);
	if (fake_machine.opens == 0)
		status = fake_machine_start();
	pthread_mutex_lock(&fake_lock);
	if (status == BATON_OK)
		fake_machine.opens++;
	pthread_mutex_unlock(&fake_lock);
	pthread_mutex_unlock(&life);
	if (status == BATON_OK)
		*device_p = &device->base;
	else
		free(device);
	return status;
}

/* Its entry may be in a stream for some time. */
static void
drop_mark_locked(struct fake_mark *mark)
{
	batoni_list_remove(&mark->link);
	fake_machine.marks--;
	mark->orphan = true;
	if (mark->done || mark->dropped)
		free(mark);
}

static void
fake_close(struct batoni_device *base)
{
	struct fake_device *device = to_fake(base);
	bool last;

	pthread_mutex_lock(&life);
	fake_enter("close");
	/* What it only has to step over has no word of the engine's any more. */
	while (all_leftovers_locked(device, NULL) && !fake_machine.frozen)
		pthread_cond_wait(&fake_changed, &fake_lock);
	if (fake_machine.frozen)
		disown_locked(device);
	if (!batoni_list_empty(&device->marks))
		fake_device_violation("closed with a mark that was neither seen "
		                      "done nor dropped");
	while (!batoni_list_empty(&device->marks))
		drop_mark_locked(batoni_container_of(device->marks.next,
		                                     struct fake_mark, link));
	last = --fake_machine.opens == 0;
	fake_exit();
	if (last)
		fake_machine_stop();
	pthread_mutex_unlock(&life);
	free(device);
}

/* ---- the contract: marks ------------------------------------------------ */

static enum baton_status
mark_locked(struct fake_device *device, struct fake_stream *stream,
            struct fake_mark *mark, struct fake_entry *entry)
{
	enum baton_status status = fake_fault_locked(FAKE_MARK);

	if (!stream)
		return batoni_refuse(BATON_ERR_CUDA, "fake: no such stream");
	if (status != BATON_OK)
		return batoni_refuse(status, "fake mark was told to fail");
	entry->kind = MARK;
	entry->mark = mark;
	batoni_list_append(&device->marks, &mark->link);
	fake_machine.marks++;
	fake_append_locked(stream, entry);
	return BATON_OK;
}

static void
fake_mark_drop(struct batoni_device *device, struct batoni_mark *mark_p)
{
	(void)device;
	fake_enter("mark_drop");
	drop_mark_locked(mark_p->object);
	fake_exit();
	mark_p->object = NULL;
}

static enum baton_status
fake_mark(struct batoni_device *device, baton_stream handle,
          struct batoni_mark *mark_p)
{
	struct fake_entry *entry = calloc(1, sizeof(*entry));
	struct fake_mark *mark = calloc(1, sizeof(*mark));
	enum baton_status status = BATON_ERR_CUDA;

	if (entry && mark) {
		fake_enter("mark");
		status = mark_locked(to_fake(device), fake_must_find_locked(handle),
		                     mark, entry);
		fake_exit();
	}
	if (status != BATON_OK) {
		free(entry);
		free(mark);
		return status;
	}
	if (mark_p->object)
		fake_mark_drop(device, mark_p);
	mark_p->object = mark;
	mark_p->value = 0;
	return BATON_OK;
}

static enum baton_status
fake_mark_done(struct batoni_device *device, struct batoni_mark *mark_p)
{
	struct fake_mark *mark = mark_p->object;
	enum baton_status status;

	(void)device;
	fake_enter("mark_done");
	status = fake_fault_locked(FAKE_MARK_DONE);
	if (!mark) {
		fake_device_violation("mark_done of a mark that was done");
		status = BATON_ERR_CUDA;
	}
	if (status == BATON_OK && !mark->done)
		status = BATON_PENDING;
	if (status == BATON_OK) {
		batoni_list_remove(&mark->link);
		fake_machine.marks--;
	}
	fake_exit();
	if (status == BATON_OK) {
		free(mark);
		mark_p->object = NULL;
	}
	return status;
}

/* ---- the contract: puts --------------------------------------------------- */

#define PUTS_MAX 64u /* on a stream */

static const char *
fake_why_no_puts(struct batoni_device *device)
{
	(void)device;
	return fake_machine.waits_in_items
	               ? "the fake device was told to have no operations on "
			 "words (FAKE_DEVICE_WAITS)"
	               : NULL;
}

static enum baton_status
fake_stream_number(struct batoni_device *device, baton_stream handle,
                   uint64_t *number_p)
{
	const struct fake_stream *stream;

	(void)device;
	fake_enter("stream_number");
	stream = fake_must_find_locked(handle);
	if (stream)
		*number_p = stream->number;
	fake_exit();
	return stream ? BATON_OK
	              : batoni_refuse(BATON_ERR_CUDA, "fake: no such stream");
}

static enum baton_status
put_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	enum baton_status status = fake_fault_locked(FAKE_PUT);

	if (!stream)
		return batoni_refuse(BATON_ERR_CUDA, "fake: no such stream");
	if (status != BATON_OK && status != BATON_PENDING)
		batoni_refuse(status, "fake put was told to fail");
	if (status == BATON_OK && stream->puts >= PUTS_MAX)
		status = BATON_PENDING;
	if (status != BATON_OK)
		return status;
	stream->puts++;
	fake_append_locked(stream, entry);
	return BATON_OK;
}

static enum baton_status
fake_stream_put(struct batoni_device *device, baton_stream handle,
                const struct batoni_stream_put *put)
{
	struct fake_entry *entry = calloc(1, sizeof(*entry));
	enum baton_status status;

	(void)device;
	if (!entry)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	entry->kind = PUT;
	entry->put = *put;
	fake_enter("stream_put");
	if (put->word && !fake_memory_pinned_holds_locked(put->word, sizeof(*put->word)))
		fake_device_violation("a put's word is in no pinned block");
	status = put_locked(fake_must_find_locked(handle), entry);
	fake_exit();
	if (status != BATON_OK)
		free(entry);
	return status;
}

static const struct batoni_mark_ops marks = {
	.mark = fake_mark,
	.mark_done = fake_mark_done,
	.mark_drop = fake_mark_drop,
};

static const struct batoni_stream_put_ops stream_puts = {
	.why_no_puts = fake_why_no_puts,
	.stream_number = fake_stream_number,
	.stream_put = fake_stream_put,
};

const struct batoni_device_ops batoni_fake_device_ops = {
	.name = "fake",
	.id = BATON_DEVICE_CUDA,
	.constant = "BATON_DEVICE_CUDA",
	.unit = "GPU",
	.native = BATON_TRANSPORT_NCCL,
	.needs_thread = true,
	.memory = &batoni_fake_memory_ops,
	.marks = &marks,
	.puts = &stream_puts,
	.current = fake_current,
	.open = fake_open,
	.close = fake_close,
	.stream_create = fake_stream_create,
	.stream_destroy = fake_stream_destroy,
	.stream_check = fake_stream_check,
	.stream_idle = fake_stream_idle,
	.stream_is_ours = fake_stream_is_ours,
	.enqueue = fake_enqueue,
	.release = fake_release,
	.words_alloc = fake_words_alloc,
	.words_free = fake_words_free,
};
