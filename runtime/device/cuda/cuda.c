/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA device: streams of the CUDA driver, the program's own or made here.  An
 * asynchronous device (device.h).
 *
 *   cuda_api.[ch]     the driver's functions, loaded at run time
 *   cuda_gpu.[ch]     one GPU: context, internal streams, events
 *   cuda_enter.c      what stands around each call of the driver
 *   cuda_pinned.c     its pinned blocks
 *   cuda_queues.c     how many streams there are for its hardware queues
 *   cuda_stream.[ch]  what is kept of a stream; its thread for launched functions
 *   cuda_item.c       how an item is put on a stream
 *   cuda_room.c       how much a stream takes
 *   cuda_mark.c       marks, and what a stream waits for beside items
 *   cuda_memory.c     the second table: memory
 *   cuda_copy.c       copies
 *
 * Each call of the contract makes its driver calls between batoni_cuda_enter and _exit, so
 * that the caller's current context and capture mode stay as they were.
 *
 * Streams.  NULL and the per-thread handle mean the caller's default streams in the
 * caller's current context; they are refused if that is another than the communicator's.
 * Only calls on the enqueuing thread use them: the engine watches events and words.  The
 * legacy default stream is taken, with a warning: while it waits, all blocking streams of the
 * context wait too, those with the program's sends among them.
 */
#include "cuda_stream.h"

#include <limits.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "thread.h"

#define PASS_NS 1000000000u /* the time in which a stream passes a released wait, on a busy machine too */

/* ---- opens --------------------------------------------------------------- */

/* All opens of one GPU are the same object, so an open that is never closed, on a device that
 * has stopped, leaks nothing. */
static enum baton_status
cuda_open(const struct batoni_device_config *config,
          struct batoni_device **device_p)
{
	struct cuda_gpu *gpu;
	enum baton_status status = batoni_cuda_gpu_open(
		config, &batoni_device_cuda_ops, &gpu);

	if (status == BATON_OK)
		*device_p = &gpu->open;
	return status;
}

static void
cuda_close(struct batoni_device *device)
{
	(void)device;
}

/* ---- streams ------------------------------------------------------------- */

static void
keep_created(struct cuda_gpu *gpu, struct cuda_created *created)
{
	pthread_mutex_lock(&gpu->lock);
	batoni_list_append(&gpu->created, &created->link);
	pthread_mutex_unlock(&gpu->lock);
}

static enum baton_status
create_stream(struct batoni_device *device, int priority, baton_stream *stream_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_created *created = batoni_alloc(1, sizeof(*created));
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result;

	if (!created)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	result = batoni_cuda_enter(gpu, &guard);
	if (result == BATONI_CU_SUCCESS) {
		call = "cuStreamCreateWithPriority";
		result = gpu->api->stream_create(&created->handle,
		                                 BATONI_CU_STREAM_NON_BLOCKING,
		                                 priority);
		/* A stream whose number is not known may be counted twice (cuda_queues.c). */
		if (result == BATONI_CU_SUCCESS)
			gpu->api->stream_id(created->handle, &created->id);
		batoni_cuda_exit(gpu, &guard);
	}
	if (result != BATONI_CU_SUCCESS) {
		batoni_free(created);
		return batoni_cuda_refuse(gpu, call, result);
	}
	keep_created(gpu, created);
	*stream_p = created->handle;
	return BATON_OK;
}

static enum baton_status
cuda_stream_create(struct batoni_device *device, baton_stream *stream_p)
{
	return create_stream(device, 0, stream_p);
}

/* Create a stream with the priority of the streams of copies. */
static enum baton_status
cuda_stream_create_apart(struct batoni_device *device, baton_stream *stream_p)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);

	return create_stream(device, gpu->priority == INT_MIN ? 0 : gpu->priority,
	                     stream_p);
}

/* Where the GPU has three priorities, the stream gets the one between the program's and that of
 * copies. */
static enum baton_status
cuda_stream_create_waiting(struct batoni_device *device, baton_stream *stream_p)
{
	const struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	bool has_one = gpu->priority != INT_MIN && gpu->priority < -1;

	return create_stream(device, has_one ? -1 : 0, stream_p);
}

/* Take it out of the list, so that one of two threads that destroy it gets it. */
static struct cuda_created *
take_created(struct cuda_gpu *gpu, CUstream handle)
{
	struct cuda_created *found = NULL;

	pthread_mutex_lock(&gpu->lock);
	for (struct batoni_list_node *at = gpu->created.next;
	     at != &gpu->created && !found; at = at->next) {
		struct cuda_created *created =
			batoni_container_of(at, struct cuda_created, link);

		if (created->handle == handle)
			found = created;
	}
	if (found)
		batoni_list_remove(&found->link);
	pthread_mutex_unlock(&gpu->lock);
	return found;
}

/* Wait until the stream has passed the waits that were released, for PASS_NS at most.
 * NOT_READY: it still has work. */
static CUresult
await_idle(const struct cuda_gpu *gpu, CUstream handle)
{
	uint64_t end = batoni_real_ns() + PASS_NS;
	CUresult result;

	for (unsigned tries = 0; (result = gpu->api->stream_query(handle)) ==
	                                 BATONI_CU_NOT_READY &&
	                         batoni_real_ns() < end;
	     tries++)
		batoni_pause_between(tries);
	return result;
}

/* A destroy that reports an error has destroyed the stream all the same: the driver may be
 * reporting the error of an earlier call. */
static CUresult
destroy_idle(const struct cuda_gpu *gpu, CUstream handle)
{
	CUresult result = await_idle(gpu, handle), destroyed;

	if (result != BATONI_CU_SUCCESS)
		return result;
	destroyed = gpu->api->stream_destroy(handle);
	if (destroyed != BATONI_CU_SUCCESS)
		batoni_log(BATONI_LOG_WARN,
		           "cuStreamDestroy failed with %u; the stream is taken "
		           "for destroyed",
		           destroyed);
	return BATONI_CU_SUCCESS;
}

static enum baton_status
destroy_created(struct cuda_gpu *gpu, struct cuda_created *created)
{
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result == BATONI_CU_SUCCESS) {
		call = "cuStreamQuery";
		result = destroy_idle(gpu, created->handle);
		batoni_cuda_exit(gpu, &guard);
	}
	if (result == BATONI_CU_SUCCESS) {
		batoni_free(created);
		return BATON_OK;
	}
	keep_created(gpu, created);
	return result == BATONI_CU_NOT_READY
	               ? BATON_ERR_BUSY
	               : batoni_cuda_refuse(gpu, call, result);
}

static enum baton_status
cuda_stream_destroy(struct batoni_device *device, baton_stream handle)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_created *created = take_created(gpu, handle);

	if (!created)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "stream %p was not made by "
		                     "baton_stream_create on this device",
		                     (void *)handle);
	return destroy_created(gpu, created);
}

/* A default stream belongs to the caller's current context. */
static enum baton_status
check_default(const struct cuda_gpu *gpu)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	CUcontext current = NULL;
	CUresult result = gpu->api->context_current(&current);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxGetCurrent", result);
	if (current && current != gpu->context)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "a default stream was given, and this "
		                     "thread's current context is not that of the "
		                     "communicator's device %d",
		                     gpu->number);
	if (!atomic_flag_test_and_set(&warned))
		batoni_log(BATONI_LOG_WARN,
		           "operations are on a default stream: while the legacy "
		           "one waits for a message, so do all blocking streams "
		           "of its context; use a non-blocking stream");
	return BATON_OK;
}

static bool
cuda_stops_others(baton_stream handle)
{
	return (uintptr_t)(void *)handle <= BATONI_CU_STREAM_LEGACY_VALUE;
}

/* Between enter and exit. */
static enum baton_status
check_live(const struct cuda_gpu *gpu, CUstream handle)
{
	CUstreamCaptureStatus capture = BATONI_CU_CAPTURE_NONE;
	CUcontext context = NULL;
	CUresult result = gpu->api->stream_context(handle, &context);

	if (result == BATONI_CU_INVALID_HANDLE ||
	    result == BATONI_CU_INVALID_CONTEXT ||
	    result == BATONI_CU_INVALID_VALUE)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%p is no live stream of CUDA device %d "
		                     "(cuStreamGetCtx returned %u)",
		                     (void *)handle, gpu->number, result);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuStreamGetCtx", result);
	if (context != gpu->context)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "stream %p is of another device or context "
		                     "than the communicator, whose device is %d",
		                     (void *)handle, gpu->number);
	result = gpu->api->stream_capturing(handle, &capture);
	if (result != BATONI_CU_SUCCESS && result != BATONI_CU_CAPTURE_IMPLICIT)
		return batoni_cuda_refuse(gpu, "cuStreamIsCapturing", result);
	if (result != BATONI_CU_SUCCESS || capture != BATONI_CU_CAPTURE_NONE)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "stream %p is capturing a graph: operations "
		                     "cannot be captured",
		                     (void *)handle);
	return BATON_OK;
}

static enum baton_status
start_worker(struct cuda_gpu *gpu, CUstream handle)
{
	struct cuda_stream *stream;
	enum baton_status status =
		batoni_cuda_stream_use(gpu, handle, &stream);

	if (status != BATON_OK)
		return status;
	status = batoni_cuda_worker_start(stream);
	batoni_cuda_stream_release(stream);
	return status;
}

/* Is it a stream of this GPU that is not being captured?  Two calls of the driver tell.  False:
 * no sentence has said why. */
static bool
is_known(struct cuda_gpu *gpu, CUstream handle)
{
	CUstreamCaptureStatus capture = BATONI_CU_CAPTURE_NONE;

	return !batoni_cuda_is_default(handle) &&
	       batoni_cuda_stream_find(gpu, handle) &&
	       gpu->api->stream_capturing(handle, &capture) ==
	               BATONI_CU_SUCCESS &&
	       capture == BATONI_CU_CAPTURE_NONE;
}

static enum baton_status
cuda_stream_check(struct batoni_device *device, baton_stream handle,
                  bool launching)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_guard guard;
	enum baton_status status = BATON_OK;
	CUresult result;
	BATONI_UNCANCELLED;

	if (batoni_cuda_is_default(handle))
		status = check_default(gpu);
	if (status != BATON_OK)
		return status;
	if (!launching && is_known(gpu, handle))
		return BATON_OK;
	result = batoni_cuda_enter(gpu, &guard);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	status = check_live(gpu, handle);
	if (status == BATON_OK && launching)
		status = start_worker(gpu, handle);
	batoni_cuda_exit(gpu, &guard);
	return status;
}

/* A handle is a pointer of the driver's, so its value alone says nothing. */
static bool
cuda_stream_is_ours(baton_stream handle)
{
	(void)handle;
	return false;
}

static enum baton_status
cuda_stream_idle(struct batoni_device *device, baton_stream handle)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	result = gpu->api->stream_query(handle);
	batoni_cuda_exit(gpu, &guard);
	if (result == BATONI_CU_NOT_READY)
		return BATON_PENDING;
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_refuse(gpu, "cuStreamQuery", result);
}

/* ---- items and words ----------------------------------------------------- */

static enum baton_status
cuda_enqueue(struct batoni_device *device, baton_stream handle,
             struct batoni_stream_item *item)
{
	bool waits_later = item->flags & BATONI_ITEM_WAITS_LATER;
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_stream *stream;
	struct cuda_guard guard;
	enum baton_status status;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	status = batoni_cuda_stream_use(gpu, handle, &stream);
	if (status == BATON_OK) {
		/* Another stream may have taken the index since the check, and stopped the worker. */
		if (item->flags & BATONI_ITEM_LAUNCH)
			status = batoni_cuda_worker_start(stream);
		if (status == BATON_OK)
			status = batoni_cuda_enqueue(stream, handle, item);
		/* An item that waits later keeps its index until cuda_wait. */
		if (status != BATON_OK || !waits_later)
			batoni_cuda_stream_release(stream);
	}
	batoni_cuda_exit(gpu, &guard);
	return status;
}

static void
cuda_wait(struct batoni_device *device, baton_stream handle,
          struct batoni_stream_item *item)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_stream *stream = (struct cuda_stream *)(void *)item->next;
	CUresult result = BATONI_CU_NOT_READY;
	struct cuda_guard guard;

	for (unsigned i = 0; i < CUDA_TRIES && result != BATONI_CU_SUCCESS; i++)
		result = batoni_cuda_enter(gpu, &guard);
	if (result == BATONI_CU_SUCCESS) {
		batoni_cuda_wait(stream, handle, item);
		batoni_cuda_exit(gpu, &guard);
	} else {
		batoni_cuda_fail(gpu, "cuCtxPushCurrent", result);
	}
	batoni_cuda_stream_release(stream);
}

/* To this device NULL is the legacy default stream; to a library it is the default stream that
 * the library was compiled for. */
static bool
cuda_names(baton_stream handle, baton_stream *name_p)
{
	uintptr_t number = (uintptr_t)(void *)handle;

	*name_p = handle;
	if (number < BATONI_CU_STREAM_LEGACY_VALUE)
		*name_p = (baton_stream)BATONI_CU_STREAM_LEGACY_VALUE;
	return number != BATONI_CU_STREAM_PER_THREAD_VALUE;
}

/* Makes no driver call: the device sees the store. */
static void
cuda_release(struct batoni_device *device, _Atomic uint64_t *word, uint64_t value)
{
	(void)device;
	/* What the stream does next sees everything before this store: the device
	 * sees stores to pinned memory in their order. */
	atomic_store(word, value);
	batoni_cuda_released();
}

static enum baton_status
cuda_words_alloc(struct batoni_device *device, size_t count,
                 uint64_t until_ns, _Atomic uint64_t **words_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_block *block;
	enum baton_status status = batoni_cuda_block_take(
		gpu, count * sizeof(**words_p), true, until_ns, &block);

	if (status != BATON_OK)
		return status;
	*words_p = (_Atomic uint64_t *)(void *)block->base;
	batoni_cuda_block_reserve(gpu, block);
	return BATON_OK;
}

static enum baton_status
cuda_words_free(struct batoni_device *device, _Atomic uint64_t *words)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_block *block = batoni_cuda_block_of(gpu, (const void *)(uintptr_t)words);

	if (!block)
		return BATON_OK;
	if (batoni_cuda_words_in_use(gpu, block))
		return BATON_ERR_BUSY;
	batoni_cuda_block_give(gpu, block);
	return BATON_OK;
}

/* ---- puts ---------------------------------------------------------------- */

static const char *
cuda_why_no_puts(struct batoni_device *device)
{
	return batoni_cuda_gpu(device)->memory_ops
	               ? NULL
	               : "the GPU has no 64-bit stream memory operations";
}

static enum baton_status
cuda_stream_number(struct batoni_device *device, baton_stream handle,
                   uint64_t *number_p)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	const char *call = "cuCtxPushCurrent";
	unsigned long long id = 0;
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result == BATONI_CU_SUCCESS) {
		call = "cuStreamGetId";
		result = gpu->api->stream_id(handle, &id);
		batoni_cuda_exit(gpu, &guard);
	}
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, call, result);
	*number_p = id;
	return BATON_OK;
}

static enum baton_status
cuda_stream_put(struct batoni_device *device, baton_stream handle,
                const struct batoni_stream_put *put)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_stream *stream;
	enum baton_status status;
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	status = batoni_cuda_stream_use(gpu, handle, &stream);
	if (status == BATON_OK) {
		status = batoni_cuda_put(stream, handle, put);
		batoni_cuda_stream_release(stream);
	}
	batoni_cuda_exit(gpu, &guard);
	/* AGAIN: all indices are taken.  PENDING has the engine carry the put out by an item,
	 * whose call is refused if no index is free for that either. */
	return status == BATON_ERR_AGAIN ? BATON_PENDING : status;
}

static const struct batoni_bound_ops bounds = {
	.begin = batoni_cuda_begin,
	.commit = batoni_cuda_commit,
	.holds = batoni_cuda_holds,
};

static const struct batoni_shared_queue_ops shared_queues = {
	.stream_create_apart = cuda_stream_create_apart,
	.stream_create_waiting = cuda_stream_create_waiting,
	.crowd = batoni_cuda_crowd,
	.foreign_streams = batoni_cuda_foreign_streams,
	.wait = cuda_wait,
	.behind = batoni_cuda_behind,
};

static const struct batoni_handle_ops handles = {
	.stops_others = cuda_stops_others,
	.names = cuda_names,
};

static const struct batoni_stream_put_ops stream_puts = {
	.why_no_puts = cuda_why_no_puts,
	.stream_number = cuda_stream_number,
	.stream_put = cuda_stream_put,
};

const struct batoni_device_ops batoni_device_cuda_ops = {
	.name = "cuda",
	.id = BATON_DEVICE_CUDA,
	.constant = "BATON_DEVICE_CUDA",
	.unit = "GPU",
	.native = BATON_TRANSPORT_NCCL,
	.marks = &batoni_cuda_marks,
	.events = &batoni_cuda_events,
	.bounds = &bounds,
	.shared_queues = &shared_queues,
	.handles = &handles,
	.puts = &stream_puts,
	.needs_thread = true,
	.memory = &batoni_cuda_memory_ops,
	.current = batoni_cuda_current,
	.open = cuda_open,
	.close = cuda_close,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_check = cuda_stream_check,
	.stream_idle = cuda_stream_idle,
	.enqueue = cuda_enqueue,
	.stream_is_ours = cuda_stream_is_ours,
	.release = cuda_release,
	.words_alloc = cuda_words_alloc,
	.words_free = cuda_words_free,
};
