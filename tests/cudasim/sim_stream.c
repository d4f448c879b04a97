/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: their handles, their order, and what is submitted to them. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { HANDLES_MAX = 65536 };

/* A slot that was given back is the next one that is taken: handles are used again. */
static struct CUstream_st handles[HANDLES_MAX];
static struct CUstream_st *free_handles;
static unsigned handles_n;

static pthread_key_t thread_key; /* of threads with a per-thread default stream */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

/* ---- life ---- */

void
sim_stream_init_locked(struct sim_context *context, struct sim_stream *stream,
                       bool blocking, unsigned level)
{
	*stream = (struct sim_stream){
		.next = context->streams,
		.context = context,
		.id = ++sim.next_id,
		.refs = 1,
		.blocking = blocking,
		.priority = -(int)level,
	};
	sim_queue_take_locked(stream, level);
	context->streams = stream;
}

void
sim_stream_ref_locked(struct sim_stream *stream)
{
	stream->refs++;
}

void
sim_stream_unref_locked(struct sim_stream *stream)
{
	struct sim_stream **at = &stream->context->streams;

	if (--stream->refs > 0)
		return;
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
}

void
sim_position_drop_locked(struct sim_position *position)
{
	if (position->stream)
		sim_stream_unref_locked(position->stream);
	position->stream = NULL;
}

/* The handle is used again, unless stale handles are to be found. */
static void
give_handle_locked(struct CUstream_st *handle)
{
	handle->stream = NULL;
	if (!sim.set.reuse && handles_n < HANDLES_MAX)
		return;
	handle->next_free = free_handles;
	free_handles = handle;
}

static struct CUstream_st *
take_handle_locked(void)
{
	struct CUstream_st *handle = free_handles;

	if (handle)
		free_handles = handle->next_free;
	else if (handles_n < HANDLES_MAX)
		handle = &handles[handles_n++];
	return handle;
}

static void
close_locked(struct sim_stream *stream)
{
	stream->destroyed = true;
	stream->thread = NULL;
	sim_stream_unref_locked(stream);
}

void
sim_streams_close_locked(struct sim_context *context)
{
	struct sim_stream *next;

	for (unsigned i = 0; i < handles_n; i++) {
		if (handles[i].stream && handles[i].stream->context == context) {
			close_locked(handles[i].stream);
			give_handle_locked(&handles[i]);
		}
	}
	for (struct sim_stream *at = context->streams; at; at = next) {
		next = at->next;
		if (at->thread)
			close_locked(at);
	}
}

long
sim_streams_live_locked(void)
{
	long n = 0;

	for (unsigned i = 0; i < handles_n; i++)
		n += handles[i].stream != NULL;
	return n;
}

long
sim_thread_streams_live_locked(void)
{
	long n = 0;

	for (unsigned i = 0; i < sim.contexts_n; i++) {
		for (struct sim_stream *at = sim.contexts[i]->streams; at;
		     at = at->next)
			n += at->thread != NULL;
	}
	return n;
}

long
sim_streams_queued_locked(void)
{
	long n = 0;

	for (unsigned i = 0; i < sim.contexts_n; i++) {
		for (struct sim_stream *at = sim.contexts[i]->streams; at;
		     at = at->next)
			n += (long)(at->submitted - at->ended);
	}
	return n;
}

/* ---- per-thread default streams ---- */

static void
end_of_thread(void *unused)
{
	struct sim_stream *next;

	(void)unused;
	pthread_mutex_lock(&sim_lock);
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		for (struct sim_stream *at = sim.contexts[i]->streams; at;
		     at = next) {
			next = at->next;
			if (at->thread == sim_thread())
				close_locked(at);
		}
	}
	pthread_mutex_unlock(&sim_lock);
}

static void
make_key(void)
{
	pthread_key_create(&thread_key, end_of_thread);
}

static struct sim_stream *
per_thread_locked(struct sim_context *context)
{
	struct sim_stream *stream;

	for (stream = context->streams; stream; stream = stream->next) {
		if (stream->thread == sim_thread())
			return stream;
	}
	pthread_once(&key_once, make_key);
	pthread_setspecific(thread_key, &thread_key);
	stream = sim_alloc(1, sizeof(*stream));
	sim_stream_init_locked(context, stream, true, 0);
	stream->thread = sim_thread();
	return stream;
}

/* ---- what a handle means ---- */

static bool
is_handle(const struct CUstream_st *handle)
{
	uintptr_t at = (uintptr_t)handle, first = (uintptr_t)handles;

	return at >= first && at < first + sizeof(handles) &&
	       (at - first) % sizeof(handles[0]) == 0 && handle->stream;
}

static CUresult
find_locked(struct sim_context *context, CUstream handle,
            struct sim_stream **stream_p)
{
	uintptr_t number = (uintptr_t)handle;

	if (number <= BATONI_CU_STREAM_PER_THREAD_VALUE && !context)
		return BATONI_CU_INVALID_CONTEXT;
	if (number == BATONI_CU_STREAM_PER_THREAD_VALUE) {
		*stream_p = per_thread_locked(context);
	} else if (number <= BATONI_CU_STREAM_LEGACY_VALUE) {
		*stream_p = &context->legacy;
	} else if (is_handle(handle)) {
		*stream_p = handle->stream;
	} else {
		sim_violation("a stream that is none, or was destroyed: %p",
		              (void *)handle);
		return BATONI_CU_INVALID_HANDLE;
	}
	return BATONI_CU_SUCCESS;
}

CUresult
sim_stream_of_locked(struct sim_call *call, CUstream handle, bool here,
                     struct sim_stream **stream_p)
{
	CUresult result = find_locked(call->context, handle, stream_p);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (here && (*stream_p)->context != call->context)
		return BATONI_CU_INVALID_HANDLE;
	return (*stream_p)->context->error;
}

/* ---- waiting ---- */

CUresult
sim_await_position_locked(struct sim_context *context,
                          struct sim_position position, const char *why,
                          bool limited)
{
	uint64_t until = 0;
	CUresult result = BATONI_CU_SUCCESS;

	if (limited)
		until = sim_now_ns() + (uint64_t)sim.set.limit_ms * 1000000u;
	sim.blocked++;
	sim.progress++;
	while (result == BATONI_CU_SUCCESS && !sim_reached_locked(position)) {
		sim_await_change_locked(until);
		result = sim.exiting ? BATONI_CU_DEINITIALIZED : context->error;
		if (result == BATONI_CU_SUCCESS && limited &&
		    sim_now_ns() >= until && !sim_reached_locked(position)) {
			sim_violation("%s waits for a stream that does not go "
			              "on",
			              why);
			result = CUDASIM_TIMEOUT;
		}
	}
	sim.blocked--;
	return result == BATONI_CU_SUCCESS ? context->error : result;
}

CUresult
sim_synchronize_locked(struct sim_context *context, const char *why,
                       bool limited)
{
	struct sim_position *ends;
	CUresult result = context->error;
	size_t n = 0;

	for (struct sim_stream *at = context->streams; at; at = at->next)
		n++;
	ends = sim_alloc(n, sizeof(*ends));
	n = 0;
	for (struct sim_stream *at = context->streams; at; at = at->next) {
		ends[n++] = (struct sim_position){at, at->submitted};
		sim_stream_ref_locked(at);
	}
	for (size_t i = 0; i < n; i++) {
		if (result == BATONI_CU_SUCCESS)
			result = sim_await_position_locked(context, ends[i], why,
			                                   limited);
		sim_position_drop_locked(&ends[i]);
	}
	free(ends);
	return result;
}

/* ---- submission ---- */

void
sim_entry_after_locked(struct sim_entry *entry, struct sim_stream *stream)
{
	if (stream->ended == stream->submitted)
		return;
	entry->after = realloc(entry->after,
	                       (entry->after_n + 1) * sizeof(*entry->after));
	if (!entry->after)
		abort();
	entry->after[entry->after_n++] =
		(struct sim_position){stream, stream->submitted};
	sim_stream_ref_locked(stream);
}

/* The legacy default stream waits for all blocking streams of its context, and they
 * for it. */
static void
order_legacy_locked(struct sim_stream *stream, struct sim_entry *entry)
{
	struct sim_context *context = stream->context;

	if (stream != &context->legacy) {
		if (stream->blocking)
			sim_entry_after_locked(entry, &context->legacy);
		return;
	}
	for (struct sim_stream *at = context->streams; at; at = at->next) {
		if (at != stream && at->blocking)
			sim_entry_after_locked(entry, at);
	}
}

/* What has to end before the stream, or its queue, takes the entry; NULL stream: nothing. */
static struct sim_position
find_full(struct sim_stream *stream, const struct sim_entry *entry)
{
	const struct sim_queue *queue = sim_queue_of(stream, entry);

	if (sim.set.depth > 0 &&
	    stream->submitted - stream->ended >= (uint64_t)sim.set.depth)
		return (struct sim_position){stream, stream->ended + 1};
	if (sim.set.queue_depth > 0 &&
	    queue->entries >= (uint64_t)sim.set.queue_depth)
		return (struct sim_position){queue->head->stream,
		                             queue->head->seq};
	return (struct sim_position){NULL, 0};
}

/* Block while the stream, or its queue, is full. */
static CUresult
await_space_locked(struct sim_stream *stream, const struct sim_entry *entry)
{
	struct sim_context *context = stream->context;
	struct sim_position first = find_full(stream, entry);
	CUresult result = BATONI_CU_SUCCESS;

	if (!first.stream)
		return BATONI_CU_SUCCESS;
	if (sim.set.depth_lock)
		context->holder = sim_thread();
	sim_stream_ref_locked(stream);
	while (result == BATONI_CU_SUCCESS && first.stream) {
		sim_stream_ref_locked(first.stream);
		result = sim_await_position_locked(
			context, first, "a call behind a full stream", true);
		sim_position_drop_locked(&first);
		first = find_full(stream, entry);
	}
	sim_stream_unref_locked(stream);
	if (context->holder == sim_thread()) {
		context->holder = NULL;
		pthread_cond_broadcast(&sim_changed);
	}
	return result;
}

CUresult
sim_submit_locked(struct sim_call *call, struct sim_stream *stream,
                  struct sim_entry *entry, bool wait, struct sim_position *at_p)
{
	struct sim_position end;
	bool captured = false;
	CUresult result = sim_capture_takes_locked(stream, &captured);

	if (result == BATONI_CU_SUCCESS && !captured)
		result = await_space_locked(stream, entry);
	if (result != BATONI_CU_SUCCESS || captured) {
		sim_entry_free_locked(entry);
		return result;
	}
	order_legacy_locked(stream, entry);
	entry->stream = stream;
	entry->seq = stream->submitted + 1;
	sim_stream_ref_locked(stream);
	result = sim_queue_put_locked(entry);
	if (result != BATONI_CU_SUCCESS) {
		sim_entry_free_locked(entry);
		return result;
	}
	stream->submitted++;
	end = (struct sim_position){stream, stream->submitted};
	sim_stream_ref_locked(stream);
	if (wait)
		result = sim_await_position_locked(
			call->context, end, "a copy that blocks", true);
	if (at_p && result == BATONI_CU_SUCCESS)
		*at_p = end;
	else
		sim_position_drop_locked(&end);
	return result;
}

/* ---- the driver's calls ---- */

static CUresult
create_locked(struct sim_call *call, CUstream *handle_p, unsigned flags,
              int priority)
{
	struct CUstream_st *handle;
	int level = priority > 0 ? 0 : -priority;

	if (!handle_p || flags & ~(unsigned)BATONI_CU_STREAM_NON_BLOCKING)
		return BATONI_CU_INVALID_VALUE;
	handle = take_handle_locked();
	if (!handle)
		return BATONI_CU_OUT_OF_MEMORY;
	if (level >= SIM_PRIORITIES)
		level = SIM_PRIORITIES - 1;
	handle->stream = sim_alloc(1, sizeof(*handle->stream));
	sim_stream_init_locked(call->context, handle->stream,
	                       !(flags & BATONI_CU_STREAM_NON_BLOCKING),
	                       (unsigned)level);
	*handle_p = handle;
	return BATONI_CU_SUCCESS;
}

CUresult
cuStreamCreateWithPriority(CUstream *handle_p, unsigned int flags, int priority)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuStreamCreateWithPriority,
	                            SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = create_locked(&call, handle_p, flags, priority);
	return sim_leave(&call, result);
}

CUresult
cuStreamCreate(CUstream *handle_p, unsigned int flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuStreamCreate, SIM_CONTEXT);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = create_locked(&call, handle_p, flags, 0);
	return sim_leave(&call, result);
}

CUresult
cuStreamDestroy_v2(CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuStreamDestroy_v2,
	                            SIM_CONTEXT | SIM_DESTROYS);
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if ((uintptr_t)handle <= BATONI_CU_STREAM_PER_THREAD_VALUE)
		return sim_leave(&call, BATONI_CU_INVALID_HANDLE);
	result = find_locked(call.context, handle, &stream);
	if (result == BATONI_CU_SUCCESS) {
		result = stream->context->error;
		close_locked(stream);
		give_handle_locked(handle);
	}
	return sim_leave(&call, result);
}

CUresult
cuStreamQuery(CUstream handle)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuStreamQuery, SIM_CONTEXT | SIM_UNSAFE);
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, false, &stream);
	if (result == BATONI_CU_SUCCESS)
		result = sim_capture_query_locked(stream);
	if (result == BATONI_CU_SUCCESS && stream->ended < stream->submitted)
		result = BATONI_CU_NOT_READY;
	return sim_leave(&call, result);
}

CUresult
cuStreamSynchronize(CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuStreamSynchronize,
	                            SIM_CONTEXT | SIM_UNSAFE);
	struct sim_position end;
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, false, &stream);
	if (result == BATONI_CU_SUCCESS)
		result = sim_capture_query_locked(stream);
	if (result == BATONI_CU_SUCCESS) {
		end = (struct sim_position){stream, stream->submitted};
		sim_stream_ref_locked(stream);
		result = sim_await_position_locked(stream->context, end,
		                                   "cuStreamSynchronize", false);
		sim_position_drop_locked(&end);
	}
	return sim_leave(&call, result);
}

/* What a stream is; no context needs to be current. */
static CUresult
read_stream(enum sim_function function, CUstream handle, struct sim_stream *stream_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, function, 0);
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	call.context = sim_current();
	result = sim_stream_of_locked(&call, handle, false, &stream);
	if (result == BATONI_CU_SUCCESS)
		*stream_p = *stream;
	return sim_leave(&call, result);
}

CUresult
cuStreamGetPriority(CUstream handle, int *priority_p)
{
	struct sim_stream stream;
	CUresult result = read_stream(SIM_cuStreamGetPriority, handle, &stream);

	if (result == BATONI_CU_SUCCESS)
		*priority_p = stream.priority;
	return result;
}

CUresult
cuStreamGetCtx(CUstream handle, CUcontext *context_p)
{
	struct sim_stream stream;
	CUresult result = read_stream(SIM_cuStreamGetCtx, handle, &stream);

	if (result == BATONI_CU_SUCCESS)
		*context_p = sim_handle_of(stream.context);
	return result;
}

CUresult
cuStreamGetId(CUstream handle, unsigned long long *id_p)
{
	struct sim_stream stream;
	CUresult result = read_stream(SIM_cuStreamGetId, handle, &stream);

	if (result == BATONI_CU_SUCCESS)
		*id_p = stream.id;
	return result;
}

CUresult
cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuLaunchHostFunc, SIM_CONTEXT);
	struct sim_stream *stream;
	struct sim_entry *entry;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS && !function)
		result = BATONI_CU_INVALID_VALUE;
	if (result == BATONI_CU_SUCCESS) {
		entry = sim_alloc(1, sizeof(*entry));
		entry->kind = SIM_CALL;
		entry->function = function;
		entry->data = data;
		result = sim_submit_locked(&call, stream, entry, false, NULL);
	}
	return sim_leave(&call, result);
}
