/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_memory.h"
#include "log.h"

struct fake_machine fake_machine;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;

static pthread_cond_t work = PTHREAD_COND_INITIALIZER;  /* for the runner */
static pthread_cond_t calls = PTHREAD_COND_INITIALIZER; /* for the caller */

static _Atomic int violations;

/* This thread is in a trigger or a launched function. */
static _Thread_local bool inside;

void
fake_device_violation(const char *text)
{
	atomic_fetch_add(&violations, 1);
	fprintf(stderr, "fake device: %s\n", text);
}

int
fake_device_violations(void)
{
	return atomic_load(&violations);
}

/* Every slot of the contract calls this first. */
void
fake_enter(const char *call)
{
	char text[96];

	if (inside) {
		snprintf(text, sizeof(text),
		         "%s from a trigger or a launched function", call);
		fake_device_violation(text);
	}
	pthread_mutex_lock(&fake_lock);
}

void
fake_exit(void)
{
	pthread_mutex_unlock(&fake_lock);
}

void
fake_happened_locked(void)
{
	fake_machine.generation++;
	pthread_cond_signal(&work);
	pthread_cond_broadcast(&fake_changed);
}

static void
break_locked(void)
{
	fake_machine.broken = true;
	fake_machine.break_at = 0;
	fake_happened_locked();
}

enum baton_status
fake_fault_locked(enum fake_device_call call)
{
	if (fake_machine.break_at > 0 && --fake_machine.break_at == 0)
		break_locked();
	if (fake_machine.broken)
		return BATON_ERR_CUDA;
	if (fake_machine.faults[call].n == 0 || --fake_machine.faults[call].n > 0)
		return BATON_OK;
	return fake_machine.faults[call].status;
}

struct fake_stream *
fake_to_stream(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct fake_stream, link);
}

/* NULL for a handle that is no live stream. */
struct fake_stream *
fake_find_locked(baton_stream handle)
{
	struct batoni_list_node *at;

	if (fake_machine.opens == 0)
		return NULL;
	if (!handle)
		return &fake_machine.default_stream;
	for (at = fake_machine.streams.next; at != &fake_machine.streams; at = at->next) {
		if (fake_to_stream(at) == (void *)handle)
			return fake_to_stream(at);
	}
	return NULL;
}

struct fake_stream *
fake_must_find_locked(baton_stream handle)
{
	struct fake_stream *stream = fake_find_locked(handle);

	if (!stream)
		fake_device_violation("a stream that is none");
	else if (stream->captures)
		fake_device_violation("use of a stream that captures a graph");
	return stream;
}

void
fake_append_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	entry->next = NULL;
	if (stream->head)
		stream->tail->next = entry;
	else
		stream->head = entry;
	stream->tail = entry;
	fake_happened_locked();
}

/* ---- running ------------------------------------------------------------ */

bool
fake_word_has_grown(const struct fake_entry *entry)
{
	uint64_t now;

	if (!entry->word)
		return true;
	now = atomic_load_explicit(entry->word, memory_order_acquire);
	return (int64_t)(now - entry->value) >= 0;
}

static void
pop_locked(struct fake_stream *stream)
{
	struct fake_entry *entry = stream->head;

	stream->head = entry->next;
	if (entry->device)
		entry->device->items--;
	free(entry);
}

/* Let the stream's thread carry the item out, and look at its word. */
static void
carry_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	bool waits_first = entry->flags & BATONI_ITEM_WAIT_FIRST;

	entry->phase = waits_first ? WAITING : CALLING;
	entry->carried = true;
	fake_machine.calling += !waits_first;
	stream->launched = entry;
	pthread_cond_signal(&stream->launch);
}

static void
call_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	entry->phase = CALLING;
	fake_machine.calling += !(entry->flags & BATONI_ITEM_LAUNCH);
	if ((entry->flags & BATONI_ITEM_LAUNCH) &&
	    !fake_machine.serialize_launches) {
		stream->launched = entry;
		pthread_cond_signal(&stream->launch);
		return;
	}
	entry->called = NULL;
	if (fake_machine.calls_head)
		fake_machine.calls_tail->called = entry;
	else
		fake_machine.calls_head = entry;
	fake_machine.calls_tail = entry;
	pthread_cond_signal(&calls);
}

/* Call the trigger or the function, then move the entry to CALLED. */
static void
make_call_locked(struct fake_entry *entry)
{
	struct batoni_stream_item *item = entry->item;

	pthread_mutex_unlock(&fake_lock);
	inside = true;
	item->reached(item);
	inside = false;
	pthread_mutex_lock(&fake_lock);
	entry->phase = CALLED;
	fake_machine.calling -= !(entry->flags & BATONI_ITEM_LAUNCH);
	fake_happened_locked();
}

/* The machine's second thread: triggers. */
static void *
caller_main(void *unused)
{
	struct fake_entry *entry;

	pthread_mutex_lock(&fake_lock);
	while (!fake_machine.stop) {
		entry = fake_machine.calls_head;
		if (!entry) {
			pthread_cond_wait(&calls, &fake_lock);
			continue;
		}
		fake_machine.calls_head = entry->called;
		make_call_locked(entry);
	}
	pthread_mutex_unlock(&fake_lock);
	return unused;
}

/* What a host function would do that waits.  Returns whether the word has grown. */
static bool
await_word_locked(const struct fake_stream *stream,
                  const struct fake_entry *entry)
{
	while (!stream->stop && !fake_machine.broken &&
	       (fake_machine.frozen || !fake_word_has_grown(entry)))
		pthread_cond_wait(&fake_changed, &fake_lock);
	return fake_word_has_grown(entry) && !fake_machine.broken;
}

/* Both halves of an item on one thread, which holds up no other stream. */
static void
carry_out_locked(const struct fake_stream *stream, struct fake_entry *entry)
{
	bool goes_on = true;

	if (entry->phase == WAITING) {
		goes_on = await_word_locked(stream, entry);
		fake_machine.calling += goes_on;
		if (goes_on) {
			entry->word = NULL; /* may be freed after the call */
			entry->phase = CALLING;
		}
	}
	if (goes_on)
		make_call_locked(entry);
	if (goes_on && entry->word)
		await_word_locked(stream, entry);
	entry->carried = false;
	fake_happened_locked();
}

/* A stream's thread: launched functions, and items if waits_in_items. */
static void *
worker_main(void *argument)
{
	struct fake_stream *stream = argument;
	struct fake_entry *entry;

	pthread_mutex_lock(&fake_lock);
	while (!stream->stop) {
		entry = stream->launched;
		if (!entry) {
			pthread_cond_wait(&stream->launch, &fake_lock);
			continue;
		}
		stream->launched = NULL;
		if (entry->carried)
			carry_out_locked(stream, entry);
		else
			make_call_locked(entry);
	}
	pthread_mutex_unlock(&fake_lock);
	return NULL;
}

static void
pass_mark(struct fake_mark *mark)
{
	mark->done = true;
	if (mark->orphan)
		free(mark);
}

static void
begin_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	switch (entry->kind) {
	case ITEM:
		if (fake_machine.waits_in_items &&
		    !(entry->flags & BATONI_ITEM_LAUNCH))
			carry_locked(stream, entry);
		else if (entry->flags & BATONI_ITEM_WAIT_FIRST)
			entry->phase = WAITING;
		else
			call_locked(stream, entry);
		return;
	case COPY:
		entry->phase = CALLING; /* counts as under way */
		pthread_mutex_unlock(&fake_lock);
		if (entry->bytes > 0)
			memcpy(entry->to, entry->from, entry->bytes);
		pthread_mutex_lock(&fake_lock);
		pop_locked(stream);
		return;
	case PUT:
		entry->phase = CALLING;
		pthread_mutex_unlock(&fake_lock);
		if (entry->put.bytes > 0)
			fake_memory_copy(entry->put.to, entry->put.from,
			                 entry->put.bytes);
		if (entry->put.word)
			atomic_store_explicit(entry->put.word,
			                      entry->put.value,
			                      memory_order_release);
		pthread_mutex_lock(&fake_lock);
		stream->puts--;
		pop_locked(stream);
		return;
	case MARK:
		pass_mark(entry->mark);
		pop_locked(stream);
		return;
	case KERNEL:
		entry->phase = RUNNING;
		return;
	}
}

static bool
poll_locked(struct fake_stream *stream, struct fake_entry *entry)
{
	bool over;

	pthread_mutex_unlock(&fake_lock);
	over = entry->kernel->poll(entry->kernel, entry->part);
	pthread_mutex_lock(&fake_lock);
	if (over)
		pop_locked(stream);
	return over;
}

static bool
is_held(const struct fake_stream *stream, const struct fake_entry *entry)
{
	return stream->held && stream->credits == 0 && entry->kind != MARK;
}

static void
pop_all_locked(struct fake_stream *stream)
{
	/* A trigger or a function that is being called ends. */
	while (stream->head && stream->head->phase != CALLING &&
	       !stream->head->carried && stream->head->kind != KERNEL) {
		if (stream->head->kind == MARK && stream->head->mark->orphan)
			free(stream->head->mark);
		else if (stream->head->kind == MARK)
			stream->head->mark->dropped = true;
		else if (stream->head->kind == PUT)
			stream->puts--;
		pop_locked(stream);
	}
}

/* Move the stream on by one step, if it can. */
static bool
advance_locked(struct fake_stream *stream)
{
	struct fake_entry *entry = stream->head;

	if (!entry || entry->carried ||
	    (fake_machine.frozen && entry->kind != KERNEL))
		return false;
	if (fake_machine.broken && entry->phase != CALLING &&
	    entry->kind != KERNEL) {
		pop_all_locked(stream);
		return true;
	}
	switch (entry->phase) {
	case NEW:
		if (is_held(stream, entry))
			return false;
		if (stream->held && entry->kind != MARK)
			stream->credits--;
		begin_locked(stream, entry);
		return true;
	case WAITING:
		if (!fake_word_has_grown(entry))
			return false;
		entry->word = NULL; /* may be freed after the call */
		call_locked(stream, entry);
		return true;
	case CALLING:
		return false;
	case CALLED:
		if (!fake_word_has_grown(entry))
			return false;
		pop_locked(stream);
		return true;
	case RUNNING:
		return poll_locked(stream, entry);
	}
	return false;
}

/* The machine's thread: all streams. */
static void *
runner_main(void *unused)
{
	struct batoni_list_node *at;
	uint64_t generation;
	bool moved;

	pthread_mutex_lock(&fake_lock);
	while (!fake_machine.stop) {
		generation = fake_machine.generation;
		moved = advance_locked(&fake_machine.default_stream);
		/* A stream with entries keeps its place in the list.  For one
		 * without entries the lock is not released here. */
		for (at = fake_machine.streams.next; at != &fake_machine.streams;
		     at = at->next)
			moved |= advance_locked(fake_to_stream(at));
		if (!moved && generation == fake_machine.generation)
			fake_machine.still = generation;
		pthread_cond_broadcast(&fake_changed);
		if (fake_machine.still == fake_machine.generation &&
		    !fake_machine.stop)
			pthread_cond_wait(&work, &fake_lock);
	}
	pthread_mutex_unlock(&fake_lock);
	return unused;
}

/* ---- holding and stepping ----------------------------------------------- */

bool
fake_is_settled_locked(const struct fake_stream *stream)
{
	const struct fake_entry *entry = stream->head;

	if (!entry || (fake_machine.frozen && entry->phase != CALLING))
		return true;
	switch (entry->phase) {
	case NEW:
		return is_held(stream, entry);
	case WAITING:
	case CALLED:
		return !fake_word_has_grown(entry);
	case CALLING:
		return entry->flags & BATONI_ITEM_LAUNCH;
	case RUNNING:
		/* Its peers are on other streams. */
		return fake_machine.still == fake_machine.generation &&
		       fake_machine.calling == 0;
	}
	return true;
}

void
fake_device_capture(baton_stream handle, bool captures)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_lock);
	stream = fake_find_locked(handle);
	if (stream)
		stream->captures = captures;
	pthread_mutex_unlock(&fake_lock);
}

static void
set_hold(baton_stream handle, bool held)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_lock);
	stream = fake_must_find_locked(handle);
	if (stream) {
		stream->held = held;
		stream->credits = 0;
		fake_happened_locked();
	}
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_hold(baton_stream handle)
{
	set_hold(handle, true);
}

void
fake_device_run(baton_stream handle)
{
	set_hold(handle, false);
}

void
fake_device_step(baton_stream handle, unsigned n)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_lock);
	stream = fake_must_find_locked(handle);
	if (stream) {
		stream->credits += n;
		fake_happened_locked();
		while (!fake_is_settled_locked(stream))
			pthread_cond_wait(&fake_changed, &fake_lock);
		if (!stream->head)
			stream->credits = 0;
	}
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_serialize_launches(bool serialize)
{
	pthread_mutex_lock(&fake_lock);
	fake_machine.serialize_launches = serialize;
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_fail_at(enum fake_device_call call, unsigned n,
                    enum baton_status status)
{
	pthread_mutex_lock(&fake_lock);
	fake_machine.faults[call].n = n;
	fake_machine.faults[call].status = status;
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_break(void)
{
	pthread_mutex_lock(&fake_lock);
	break_locked();
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_break_at(unsigned n)
{
	pthread_mutex_lock(&fake_lock);
	fake_machine.break_at = n;
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_freeze(void)
{
	pthread_mutex_lock(&fake_lock);
	fake_machine.frozen = true;
	fake_happened_locked();
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_heal(void)
{
	pthread_mutex_lock(&fake_lock);
	fake_machine.broken = fake_machine.frozen = false;
	fake_machine.break_at = 0;
	fake_happened_locked();
	pthread_mutex_unlock(&fake_lock);
}

void
fake_device_bound(unsigned entries)
{
	pthread_mutex_lock(&fake_lock);
	fake_machine.bound = entries;
	fake_happened_locked();
	pthread_mutex_unlock(&fake_lock);
}

unsigned
fake_device_blocked(void)
{
	unsigned blocked;

	pthread_mutex_lock(&fake_lock);
	blocked = fake_machine.blocked;
	pthread_mutex_unlock(&fake_lock);
	return blocked;
}

static bool
is_full(const struct fake_stream *stream)
{
	unsigned entries = 0;

	for (const struct fake_entry *entry = stream->head; entry;
	     entry = entry->next)
		entries++;
	return fake_machine.bound && entries >= fake_machine.bound;
}

struct fake_stream *
fake_await_space_locked(baton_stream handle)
{
	struct fake_stream *stream;

	fake_machine.blocked++;
	while ((stream = fake_must_find_locked(handle)) &&
	       !fake_machine.broken && is_full(stream))
		pthread_cond_wait(&fake_changed, &fake_lock);
	fake_machine.blocked--;
	return stream;
}

unsigned
fake_device_marks(void)
{
	unsigned marks;

	pthread_mutex_lock(&fake_lock);
	marks = fake_machine.marks;
	pthread_mutex_unlock(&fake_lock);
	return marks;
}

/* ---- copies and kernels ------------------------------------------------- */

enum baton_status
fake_device_copy(baton_stream handle, void *to, const void *from, size_t bytes)
{
	struct fake_entry *entry = calloc(1, sizeof(*entry));
	struct fake_stream *stream;

	if (!entry)
		return BATON_ERR_NOMEM;
	entry->kind = COPY;
	entry->to = to;
	entry->from = from;
	entry->bytes = bytes;
	fake_enter("copy");
	stream = fake_must_find_locked(handle);
	if (stream)
		fake_append_locked(stream, entry);
	fake_exit();
	if (!stream)
		free(entry);
	return stream ? BATON_OK : BATON_ERR_CUDA;
}

static enum baton_status
launch_locked(struct fake_entry *entries, const baton_stream *streams, size_t n)
{
	struct fake_entry *entry = entries;
	enum baton_status status = fake_fault_locked(FAKE_KERNEL);

	if (status != BATON_OK)
		return status;
	for (size_t i = 0; i < n; i++) {
		if (!fake_must_find_locked(streams[i]))
			return BATON_ERR_CUDA;
	}
	for (size_t i = 0; i < n; i++) {
		struct fake_entry *after = entry->next;

		fake_append_locked(fake_find_locked(streams[i]), entry);
		entry = after;
	}
	return BATON_OK;
}

enum baton_status
fake_device_launch(struct fake_kernel *kernel, const baton_stream *streams,
                   size_t n)
{
	struct fake_entry *entries = NULL, *entry;
	enum baton_status status = BATON_ERR_NOMEM;

	for (size_t part = n; part-- > 0;) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			goto free_entries;
		entry->kind = KERNEL;
		entry->kernel = kernel;
		entry->part = part;
		entry->next = entries;
		entries = entry;
	}
	fake_enter("launch of a kernel");
	status = launch_locked(entries, streams, n);
	fake_exit();
	if (status == BATON_OK)
		return BATON_OK;

free_entries:
	while (entries) {
		entry = entries->next;
		free(entries);
		entries = entry;
	}
	return status;
}

void
fake_device_kick(void)
{
	pthread_mutex_lock(&fake_lock);
	fake_happened_locked();
	pthread_mutex_unlock(&fake_lock);
}

/* ---- starting and stopping ---------------------------------------------- */

enum baton_status
fake_worker_start_locked(struct fake_stream *stream)
{
	if (stream->working)
		return BATON_OK;
	if (pthread_create(&stream->worker, NULL, worker_main, stream))
		return BATON_ERR_SYSTEM;
	stream->working = true;
	return BATON_OK;
}

void
fake_stream_fini(struct fake_stream *stream)
{
	pthread_mutex_lock(&fake_lock);
	stream->stop = true;
	pthread_cond_signal(&stream->launch);
	fake_happened_locked();
	pthread_mutex_unlock(&fake_lock);
	if (stream->working)
		pthread_join(stream->worker, NULL);
	pthread_cond_destroy(&stream->launch);
	while (stream->head) {
		struct fake_entry *entry = stream->head;

		stream->head = entry->next;
		if (entry->kind == MARK)
			pass_mark(entry->mark);
		/* A kernel that was aborted ends here at the latest. */
		if (entry->kind == KERNEL)
			entry->kernel->poll(entry->kernel, entry->part);
		free(entry);
	}
}

enum baton_status
fake_choose_waits(void)
{
	const char *waits = getenv("FAKE_DEVICE_WAITS");

	if (waits && strcmp(waits, "none") == 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the fake device's streams cannot wait for a "
		                     "word, and it has no thread that may");
	fake_machine.waits_in_items = waits && strcmp(waits, "items") == 0;
	return BATON_OK;
}

enum baton_status
fake_machine_start(void)
{
	fake_machine.stop = false;
	fake_machine.calls_head = NULL;
	fake_machine.calling = 0;
	batoni_list_init(&fake_machine.streams);
	batoni_list_init(&fake_machine.words);
	memset(&fake_machine.default_stream, 0, sizeof(fake_machine.default_stream));
	pthread_cond_init(&fake_machine.default_stream.launch, NULL);
	if (fake_memory_start() != BATON_OK)
		return BATON_ERR_NOMEM;
	if (pthread_create(&fake_machine.runner, NULL, runner_main, NULL)) {
		fake_memory_stop();
		return BATON_ERR_NOMEM;
	}
	if (pthread_create(&fake_machine.caller, NULL, caller_main, NULL) == 0)
		return BATON_OK;
	pthread_mutex_lock(&fake_lock);
	fake_machine.stop = true;
	fake_happened_locked();
	pthread_mutex_unlock(&fake_lock);
	pthread_join(fake_machine.runner, NULL);
	fake_memory_stop();
	return BATON_ERR_NOMEM;
}

void
fake_machine_stop(void)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_lock);
	fake_machine.stop = true;
	fake_happened_locked();
	pthread_cond_signal(&calls);
	pthread_mutex_unlock(&fake_lock);
	pthread_join(fake_machine.runner, NULL);
	pthread_join(fake_machine.caller, NULL);
	fake_stream_fini(&fake_machine.default_stream);
	while (!batoni_list_empty(&fake_machine.streams)) {
		stream = fake_to_stream(fake_machine.streams.next);
		batoni_list_remove(&stream->link);
		fake_stream_fini(stream);
		free(stream);
	}
	if (!batoni_list_empty(&fake_machine.words))
		fake_device_violation("closed with words not freed");
	fake_memory_stop();
}
