/* SPDX-License-Identifier: BSD-3-Clause */
/* Events: each is a position in a stream, that of its last record. */
#include "sim.h"

enum { HANDLES_MAX = 1 << 18 };

static struct CUevent_st handles[HANDLES_MAX];
static struct CUevent_st *free_handles;
static unsigned handles_n;

long
sim_events_live_locked(void)
{
	long n = 0;

	for (unsigned i = 0; i < handles_n; i++)
		n += handles[i].context != NULL;
	return n;
}

static struct CUevent_st *
take_handle_locked(void)
{
	struct CUevent_st *event = free_handles;

	if (event)
		free_handles = event->next_free;
	else if (handles_n < HANDLES_MAX)
		event = &handles[handles_n++];
	return event;
}

static void
close_locked(struct CUevent_st *event)
{
	sim_position_drop_locked(&event->at);
	event->context = NULL;
	event->capture = NULL;
	if (!sim.set.reuse && handles_n < HANDLES_MAX)
		return;
	event->next_free = free_handles;
	free_handles = event;
}

void
sim_events_close_locked(struct sim_context *context)
{
	for (unsigned i = 0; i < handles_n; i++) {
		if (handles[i].context == context)
			close_locked(&handles[i]);
	}
}

void
sim_events_uncapture_locked(const struct sim_capture *capture)
{
	for (unsigned i = 0; i < handles_n; i++) {
		if (handles[i].capture == capture)
			handles[i].capture = NULL;
	}
}

static CUresult
check_locked(const struct CUevent_st *event)
{
	uintptr_t at = (uintptr_t)event, first = (uintptr_t)handles;

	if (at >= first && at < first + sizeof(handles) &&
	    (at - first) % sizeof(handles[0]) == 0 && event->context)
		return BATONI_CU_SUCCESS;
	sim_violation("an event that is none, or was destroyed: %p",
	              (const void *)event);
	return BATONI_CU_INVALID_HANDLE;
}

/* The event may be asked, or waited for by a host. */
static CUresult
check_ask_locked(const struct CUevent_st *event)
{
	CUresult result = check_locked(event);

	if (result == BATONI_CU_SUCCESS)
		result = event->context->error;
	if (result == BATONI_CU_SUCCESS && event->capture)
		result = CUDASIM_CAPTURED_EVENT;
	return result;
}

CUresult
cuEventCreate(CUevent *event_p, unsigned int flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuEventCreate, SIM_CONTEXT);
	struct CUevent_st *event;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!event_p || flags > 7)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	event = take_handle_locked();
	if (!event)
		return sim_leave(&call, BATONI_CU_OUT_OF_MEMORY);
	*event = (struct CUevent_st){.context = call.context};
	*event_p = event;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuEventDestroy_v2(CUevent event)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuEventDestroy_v2,
	                            SIM_CONTEXT | SIM_DESTROYS);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = check_locked(event);
	if (result == BATONI_CU_SUCCESS)
		close_locked(event);
	return sim_leave(&call, result);
}

CUresult
cuEventRecord(CUevent event, CUstream handle)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuEventRecord, SIM_CONTEXT);
	struct sim_position at = {0};
	struct sim_stream *stream;
	struct sim_entry *entry;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS)
		result = check_locked(event);
	if (result == BATONI_CU_SUCCESS && event->context != stream->context)
		result = BATONI_CU_INVALID_HANDLE;
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	entry = sim_alloc(1, sizeof(*entry));
	entry->kind = SIM_MARK;
	result = sim_submit_locked(&call, stream, entry, false, &at);
	if (result == BATONI_CU_SUCCESS) {
		sim_position_drop_locked(&event->at);
		event->at = at;
		event->capture = stream->capture;
	}
	return sim_leave(&call, result);
}

CUresult
cuEventQuery(CUevent event)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuEventQuery, SIM_CONTEXT | SIM_UNSAFE);

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = check_ask_locked(event);
	if (result == BATONI_CU_SUCCESS && !sim_reached_locked(event->at))
		result = BATONI_CU_NOT_READY;
	return sim_leave(&call, result);
}

CUresult
cuEventSynchronize(CUevent event)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuEventSynchronize,
	                            SIM_CONTEXT | SIM_UNSAFE);
	struct sim_position at;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = check_ask_locked(event);
	if (result == BATONI_CU_SUCCESS && event->at.stream) {
		at = event->at;
		sim_stream_ref_locked(at.stream);
		result = sim_await_position_locked(event->context, at,
		                                   "cuEventSynchronize", false);
		sim_position_drop_locked(&at);
	}
	return sim_leave(&call, result);
}

/* A stream that waits for an event of a capture joins the capture. */
static CUresult
join_locked(struct sim_stream *stream, const struct CUevent_st *event)
{
	if (stream->capture && stream->capture != event->capture)
		return CUDASIM_CAPTURE_UNMATCHED;
	stream->capture = event->capture;
	return event->capture->invalid ? CUDASIM_CAPTURE_INVALIDATED
	                               : BATONI_CU_SUCCESS;
}

CUresult
cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuStreamWaitEvent, SIM_CONTEXT);
	struct sim_stream *stream;
	struct sim_entry *entry;

	(void)flags;
	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result == BATONI_CU_SUCCESS)
		result = check_locked(event);
	if (result == BATONI_CU_SUCCESS && event->capture)
		return sim_leave(&call, join_locked(stream, event));
	if (result != BATONI_CU_SUCCESS || !event->at.stream)
		return sim_leave(&call, result);
	entry = sim_alloc(1, sizeof(*entry));
	entry->kind = SIM_MARK;
	entry->after = sim_alloc(1, sizeof(*entry->after));
	entry->after[0] = event->at;
	entry->after_n = 1;
	sim_stream_ref_locked(event->at.stream);
	result = sim_submit_locked(&call, stream, entry, false, NULL);
	return sim_leave(&call, result);
}
