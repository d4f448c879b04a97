/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Marks on CUDA streams, and what a stream waits for beside items: another stream, or a mark.  Both are events of
 * the driver.
 *
 * A mark that stands for entries of a stream counts there (cuda_room.c) until a poll finds it passed.  An event may
 * be recorded again before a stream has passed it, or has passed a wait for it: a later record changes neither.
 *
 * Each slot makes its driver calls between batoni_cuda_enter and _exit.
 */
#include "cuda_stream.h"

/* ---- waiting for a stream ------------------------------------------------ */

/* Between enter and exit. */
static CUresult
put_behind(struct cuda_gpu *gpu, CUstream handle, CUstream other, const char **call_p)
{
	struct cuda_event *event;
	CUresult result;

	*call_p = "cuEventCreate";
	event = batoni_cuda_event_take(gpu, &result);
	if (!event)
		return result;
	*call_p = "cuEventRecord";
	result = gpu->api->event_record(event->event, other);
	if (result == BATONI_CU_SUCCESS) {
		*call_p = "cuStreamWaitEvent";
		result = gpu->api->stream_wait_event(handle, event->event, 0);
	}
	batoni_cuda_event_give(gpu, event);
	return result;
}

/* Where host functions wait, one that waits holds up all others; so the stream waits by an event.  Where stream
 * memory operations wait, nothing is needed: in each hardware queue the triggers come before the waits. */
void
batoni_cuda_behind(struct batoni_device *device, baton_stream handle,
                   baton_stream other)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	CUresult result = BATONI_CU_NOT_READY;
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;

	if (gpu->memory_ops)
		return;
	for (unsigned i = 0; i < CUDA_TRIES && result != BATONI_CU_SUCCESS; i++) {
		call = "cuCtxPushCurrent";
		result = batoni_cuda_enter(gpu, &guard);
		if (result != BATONI_CU_SUCCESS)
			continue;
		result = put_behind(gpu, handle, other, &call);
		batoni_cuda_exit(gpu, &guard);
	}
	if (result != BATONI_CU_SUCCESS)
		batoni_cuda_fail(gpu, call, result);
}

static enum baton_status
cuda_follow(struct batoni_device *device, baton_stream handle, baton_stream other)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result == BATONI_CU_SUCCESS) {
		result = put_behind(gpu, handle, other, &call);
		batoni_cuda_exit(gpu, &guard);
	}
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_refuse(gpu, call, result);
}

/* ---- marks --------------------------------------------------------------- */

/* Between enter and exit.  On a stream that has no index (cuda_stream.h) nothing is counted. */
static void
count_mark(struct cuda_gpu *gpu, CUstream handle, struct cuda_event *event,
           uint32_t entries)
{
	struct cuda_stream *stream;

	if (batoni_cuda_stream_use(gpu, handle, &stream) != BATON_OK)
		return;
	batoni_cuda_count(stream, event, entries);
	batoni_cuda_stream_release(stream);
}

/* Give the event of a mark back that no caller will test any more. */
static void
give_mark(struct cuda_gpu *gpu, struct batoni_mark *mark)
{
	batoni_cuda_uncount(mark->object);
	batoni_cuda_event_give(gpu, mark->object);
	mark->object = NULL;
}

static enum baton_status
cuda_mark(struct batoni_device *device, baton_stream handle,
          struct batoni_mark *mark)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_event *event = mark->object;
	const char *call = "cuCtxPushCurrent";
	struct cuda_guard guard;
	CUresult result = batoni_cuda_enter(gpu, &guard);

	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, call, result);
	call = "cuEventCreate";
	if (event)
		batoni_cuda_uncount(event);
	else
		event = batoni_cuda_event_take(gpu, &result);
	if (event) {
		call = "cuEventRecord";
		result = gpu->api->event_record(event->event, handle);
	}
	if (result == BATONI_CU_SUCCESS && mark->entries > 0)
		count_mark(gpu, handle, event, mark->entries);
	batoni_cuda_exit(gpu, &guard);
	if (result != BATONI_CU_SUCCESS) {
		if (event && !mark->object)
			batoni_cuda_event_give(gpu, event);
		return batoni_cuda_refuse(gpu, call, result);
	}
	mark->object = event;
	return BATON_OK;
}

static enum baton_status
cuda_mark_done(struct batoni_device *device, struct batoni_mark *mark)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	struct cuda_event *event = mark->object;
	struct cuda_guard guard;
	CUresult result;

	do {
		result = batoni_cuda_enter(gpu, &guard);
		if (result != BATONI_CU_SUCCESS)
			break;
		result = gpu->api->event_query(event->event);
	} while (batoni_cuda_exit_or_retry(gpu, &guard, result));
	if (result == BATONI_CU_NOT_READY)
		return BATON_PENDING;
	if (result != BATONI_CU_SUCCESS)
		return BATON_ERR_CUDA;
	give_mark(gpu, mark);
	return BATON_OK;
}

/* The event may be recorded again before the stream has passed it. */
static void
cuda_mark_drop(struct batoni_device *device, struct batoni_mark *mark)
{
	give_mark(batoni_cuda_gpu(device), mark);
}

/* Between enter and exit. */
static enum baton_status
follow_event(struct cuda_gpu *gpu, CUstream handle, CUevent event, bool bounded)
{
	struct cuda_stream *stream;
	enum baton_status status;
	CUresult result;

	if (bounded) {
		status = batoni_cuda_stream_use(gpu, handle, &stream);
		if (status != BATON_OK)
			return status == BATON_ERR_CUDA ? status : BATON_PENDING;
		status = batoni_cuda_follow(stream, handle, event);
		batoni_cuda_stream_release(stream);
		return status;
	}
	result = gpu->api->stream_wait_event(handle, event, 0);
	return result == BATONI_CU_SUCCESS
	               ? BATON_OK
	               : batoni_cuda_refuse(gpu, "cuStreamWaitEvent", result);
}

static enum baton_status
cuda_mark_follow(struct batoni_device *device, baton_stream handle,
                 const struct batoni_mark *mark, bool bounded)
{
	struct cuda_gpu *gpu = batoni_cuda_gpu(device);
	const struct cuda_event *event = mark->object;
	enum baton_status status;
	struct cuda_guard guard;
	CUresult result;

	if (!event)
		return BATON_PENDING;
	result = batoni_cuda_enter(gpu, &guard);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, "cuCtxPushCurrent", result);
	status = follow_event(gpu, handle, event->event, bounded);
	batoni_cuda_exit(gpu, &guard);
	return status;
}

const struct batoni_mark_ops batoni_cuda_marks = {
	.mark = cuda_mark,
	.mark_done = cuda_mark_done,
	.mark_drop = cuda_mark_drop,
};

const struct batoni_event_ops batoni_cuda_events = {
	.follow = cuda_follow,
	.mark_follow = cuda_mark_follow,
};
