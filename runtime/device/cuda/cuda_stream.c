/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_stream.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "log.h"
#include "mem.h"
#include "thread.h"

/* A stream's thread: it runs launched functions, which may block and may call CUDA.  A stream
 * reaches one function at a time, so one slot suffices. */
struct cuda_worker {
	struct cuda_stream *stream;
	pthread_t thread;
	sem_t work;
	_Atomic(struct batoni_stream_item *) item;
	atomic_bool stop;
};

/* The stream that batoni_cuda_stream_find has found for this thread: a call checks a stream, then uses
 * it.  If the index has gone to another stream meanwhile, the struct has another handle, or that of a
 * default stream, NULL, which is never found so. */
static _Thread_local struct cuda_stream *found_here
	__attribute__((tls_model("initial-exec")));

/* This thread's transaction, on the GPU batoni_cuda_inside: how the thread entered it; the first stream
 * (NULL: it has no index), whose use lasts until the end; how many begins have had no commit. */
static _Thread_local struct transaction {
	struct cuda_guard guard;
	struct cuda_stream *stream;
	CUstream handle;
	unsigned depth;
} transaction __attribute__((tls_model("initial-exec")));

static void
run_launched(struct cuda_stream *stream, struct batoni_stream_item *item)
{
	item->reached(item);
	/* The stream waits for this number, and goes on. */
	atomic_fetch_add(&stream->gpu->returned[stream->index], 1);
	batoni_cuda_released();
}

static void *
worker_main(void *argument)
{
	struct cuda_worker *worker = argument;

	for (;;) {
		struct batoni_stream_item *item;

		while (sem_wait(&worker->work) && errno == EINTR)
			;
		item = atomic_exchange(&worker->item, NULL);
		if (item)
			run_launched(worker->stream, item);
		else if (atomic_load(&worker->stop))
			return NULL;
	}
}

static void
worker_stop(struct cuda_worker *worker)
{
	atomic_store(&worker->stop, true);
	sem_post(&worker->work);
	pthread_join(worker->thread, NULL);
	sem_destroy(&worker->work);
	batoni_mem_keep(-1);
	batoni_free(worker);
}

enum baton_status
batoni_cuda_worker_start(struct cuda_stream *stream)
{
	struct cuda_worker *worker;
	int error;

	pthread_mutex_lock(&stream->lock);
	worker = stream->worker;
	pthread_mutex_unlock(&stream->lock);
	if (worker)
		return BATON_OK;
	worker = batoni_alloc(1, sizeof(*worker));
	if (!worker)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	worker->stream = stream;
	sem_init(&worker->work, 0, 0);
	error = batoni_thread_start(&worker->thread, worker_main, worker);
	if (error) {
		sem_destroy(&worker->work);
		batoni_free(worker);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "no thread for the stream's functions: %s",
		                     strerror(error));
	}
	batoni_mem_keep(1);
	pthread_mutex_lock(&stream->lock);
	if (!stream->worker) {
		stream->worker = worker;
		worker = NULL;
	}
	pthread_mutex_unlock(&stream->lock);
	/* Another thread has started one meanwhile. */
	if (worker)
		worker_stop(worker);
	return BATON_OK;
}

void
batoni_cuda_worker_run(struct cuda_stream *stream,
                       struct batoni_stream_item *item)
{
	struct cuda_worker *worker = stream->worker;

	atomic_store(&worker->item, item);
	sem_post(&worker->work);
}

/* ---- indices ------------------------------------------------------------- */

static bool
has_passed_all(const struct cuda_stream *stream)
{
	return atomic_load(&stream->fired) == stream->triggers &&
	       atomic_load(&stream->gpu->stored[stream->index]) ==
	               stream->puts &&
	       atomic_load(&stream->gpu->passed[stream->index]) ==
	               stream->waits;
}

/* No thread uses it, and no item of Baton is left on the stream.  `waits` and `triggers` change only
 * while a thread uses it. */
static bool
is_free_locked(const struct cuda_stream *stream)
{
	return atomic_load(&stream->users) == 0 && has_passed_all(stream) &&
	       atomic_load(&stream->marked) == 0;
}

bool
batoni_cuda_stream_works_locked(const struct cuda_stream *stream)
{
	return !is_free_locked(stream);
}

static struct cuda_stream *
find_locked(struct cuda_gpu *gpu, unsigned long long id)
{
	unsigned first = (unsigned)(id % CUDA_STREAMS_MAX), at = first;

	/* A stream may have any index from its hashed one on, since indices go from stream to
	 * stream; the first index that was never used ends the search. */
	do {
		struct cuda_stream *stream = gpu->streams[at];

		if (!stream)
			return NULL;
		if (stream->id == id)
			return stream;
		at = (at + 1) % CUDA_STREAMS_MAX;
	} while (at != first);
	return NULL;
}

/* An index for a stream that has none: the one at *at_p if it was never used, else a free one,
 * whose worker the caller stops. */
static struct cuda_stream *
take_index_locked(struct cuda_gpu *gpu, unsigned long long id, unsigned *at_p,
                  struct cuda_worker **worker_p)
{
	unsigned first = (unsigned)(id % CUDA_STREAMS_MAX), at = first;
	struct cuda_stream *found = NULL;

	do {
		struct cuda_stream *stream = gpu->streams[at];

		if (!stream) {
			*at_p = at;
			return NULL;
		}
		if (!found && is_free_locked(stream))
			found = stream;
		at = (at + 1) % CUDA_STREAMS_MAX;
	} while (at != first);
	*at_p = CUDA_STREAMS_MAX;
	if (found) {
		*worker_p = found->worker;
		found->worker = NULL;
		found->id = id;
	}
	return found;
}

static struct cuda_stream *
make_locked(struct cuda_gpu *gpu, unsigned long long id, unsigned index)
{
	struct cuda_stream *stream = batoni_alloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->gpu = gpu;
	stream->index = index;
	stream->id = id;
	pthread_mutex_init(&stream->lock, NULL);
	batoni_mem_keep(1);
	gpu->streams[index] = stream;
	return stream;
}

/* Warn once, by a stream that is used for the first time, or again after a long time. */
static void
warn_of_priority(const struct cuda_gpu *gpu, CUstream handle)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	int priority = 0;

	if (gpu->api->stream_priority(handle, &priority) != BATONI_CU_SUCCESS ||
	    priority != gpu->priority || atomic_flag_test_and_set(&warned))
		return;
	batoni_log(BATONI_LOG_WARN,
	           "stream %p has the highest priority, as Baton's copies have: "
	           "while such streams wait for messages they can hold up the "
	           "copies that these need; give streams that wait a lower "
	           "priority",
	           (void *)handle);
}

static enum baton_status
look_up(struct cuda_gpu *gpu, CUstream handle, struct cuda_stream **stream_p)
{
	enum baton_status status = BATON_OK;
	struct cuda_worker *worker = NULL;
	struct cuda_stream *stream;
	unsigned index = 0;
	unsigned long long id = 0;
	bool is_new;
	CUresult result = gpu->api->stream_id(handle, &id);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuStreamGetId", result);
	pthread_mutex_lock(&gpu->lock);
	stream = find_locked(gpu, id);
	is_new = !stream;
	if (!stream)
		stream = take_index_locked(gpu, id, &index, &worker);
	if (!stream && index < CUDA_STREAMS_MAX) {
		stream = make_locked(gpu, id, index);
		if (!stream)
			status = BATON_ERR_NOMEM;
	} else if (!stream) {
		status = BATON_ERR_AGAIN;
	}
	if (stream) {
		atomic_fetch_add(&stream->users, 1);
		stream->handle = batoni_cuda_is_default(handle) ? NULL : handle;
	}
	pthread_mutex_unlock(&gpu->lock);
	if (is_new)
		warn_of_priority(gpu, handle);
	if (worker)
		worker_stop(worker);
	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status, "out of memory");
	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "%u streams have operations pending, which is "
		                     "the most that Baton keeps track of",
		                     CUDA_STREAMS_MAX);
	*stream_p = stream;
	return BATON_OK;
}

bool
batoni_cuda_stream_find(struct cuda_gpu *gpu, CUstream handle)
{
	unsigned long long id = 0;

	found_here = NULL;
	if (gpu->api->stream_id(handle, &id) != BATONI_CU_SUCCESS)
		return false;
	pthread_mutex_lock(&gpu->lock);
	found_here = find_locked(gpu, id);
	pthread_mutex_unlock(&gpu->lock);
	return found_here != NULL;
}

/* The stream of this thread's transaction, if it has this handle; else NULL. */
static struct cuda_stream *
stream_inside(const struct cuda_gpu *gpu, CUstream handle)
{
	return batoni_cuda_inside == gpu && transaction.handle == handle
	               ? transaction.stream
	               : NULL;
}

/* Use the stream that this thread has found.  NULL: it was not found. */
static struct cuda_stream *
use_found(struct cuda_gpu *gpu, CUstream handle)
{
	struct cuda_stream *stream = found_here;

	found_here = NULL;
	if (!stream || stream->gpu != gpu || batoni_cuda_is_default(handle))
		return NULL;
	pthread_mutex_lock(&gpu->lock);
	if (stream->handle == handle)
		atomic_fetch_add(&stream->users, 1);
	else
		stream = NULL;
	pthread_mutex_unlock(&gpu->lock);
	return stream;
}

static void
drop_use(struct cuda_stream *stream)
{
	atomic_fetch_sub(&stream->users, 1);
}

enum baton_status
batoni_cuda_stream_use(struct cuda_gpu *gpu, CUstream handle,
                       struct cuda_stream **stream_p)
{
	enum baton_status status = BATON_OK;

	*stream_p = stream_inside(gpu, handle);
	if (*stream_p)
		return BATON_OK;
	*stream_p = use_found(gpu, handle);
	if (!*stream_p)
		status = look_up(gpu, handle, stream_p);
	/* The transaction's stream by another handle (NULL and the legacy stream's mean the same): the
	 * transaction has its use already. */
	if (status == BATON_OK && *stream_p == transaction.stream)
		drop_use(*stream_p);
	return status;
}

void
batoni_cuda_stream_release(struct cuda_stream *stream)
{
	if (stream != transaction.stream)
		drop_use(stream);
}

enum baton_status
batoni_cuda_begin(struct batoni_device *device, CUstream handle,
                  const struct batoni_need *need)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	enum baton_status status = BATON_OK;
	struct cuda_stream *stream;
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	assert(!batoni_cuda_inside || batoni_cuda_inside == gpu);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	/* Without an index the stream is not bounded. */
	if (batoni_cuda_stream_use(gpu, handle, &stream) != BATON_OK)
		stream = NULL;
	else if (need->entries + need->puts > 0)
		status = batoni_cuda_room(stream, handle, need);
	if (status == BATON_OK && !batoni_cuda_inside) {
		transaction = (struct transaction){guard, stream, handle, 1};
		batoni_cuda_inside = gpu;
		return status;
	}
	transaction.depth += status == BATON_OK;
	if (stream)
		batoni_cuda_stream_release(stream);
	batoni_cuda_exit(gpu, &guard);
	return status;
}

void
batoni_cuda_commit(struct batoni_device *device)
{
	struct cuda_stream *stream = transaction.stream;

	if (--transaction.depth > 0)
		return;
	batoni_cuda_inside = NULL;
	transaction.stream = NULL;
	if (stream)
		batoni_cuda_stream_release(stream);
	batoni_cuda_exit(batoni_cuda_gpu(device), &transaction.guard);
}

bool
batoni_cuda_streams_passed(struct cuda_gpu *gpu)
{
	bool passed = true;

	pthread_mutex_lock(&gpu->lock);
	for (unsigned at = 0; at < CUDA_STREAMS_MAX && passed; at++)
		passed = !gpu->streams[at] ||
		         (atomic_load(&gpu->streams[at]->users) == 0 &&
		          has_passed_all(gpu->streams[at]));
	pthread_mutex_unlock(&gpu->lock);
	return passed;
}

bool
batoni_cuda_words_in_use(struct cuda_gpu *gpu, const struct cuda_block *block)
{
	for (unsigned at = 0; at < CUDA_STREAMS_MAX; at++) {
		uint64_t last = atomic_load(&block->last_wait[at]);

		if (last > atomic_load(&gpu->passed[at]))
			return true;
	}
	return false;
}

_Atomic uint64_t *
batoni_cuda_last_wait(const struct cuda_stream *stream,
                      const _Atomic uint64_t *word)
{
	struct cuda_block *block = batoni_cuda_block_of(
		stream->gpu, (const void *)(uintptr_t)word);

	return block && block->last_wait ? &block->last_wait[stream->index]
	                                 : NULL;
}
