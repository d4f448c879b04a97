/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Captures: what a stream is given meanwhile is not run, and is forgotten (no graph is
 * made of it).  What is modelled are the rules: which calls are unsafe in which mode of
 * the calling thread, and what they do to the capture.
 */
#include <stdlib.h>

#include "sim.h"

static _Thread_local CUstreamCaptureMode thread_mode; /* GLOBAL at first */
static struct CUgraph_st {
	char unused;
} graph; /* all captures' */

long
sim_captures_live_locked(void)
{
	long n = 0;

	for (struct sim_capture *at = sim.captures; at; at = at->next)
		n++;
	return n;
}

/* Does the capture forbid unsafe calls to this thread? */
static bool
forbids(const struct sim_capture *capture)
{
	if (thread_mode == BATONI_CU_CAPTURE_RELAXED)
		return false;
	if (capture->thread == sim_thread())
		return capture->mode != BATONI_CU_CAPTURE_RELAXED;
	return thread_mode == CUDASIM_CAPTURE_GLOBAL &&
	       capture->mode == CUDASIM_CAPTURE_GLOBAL;
}

CUresult
sim_capture_forbids_locked(void)
{
	CUresult result = BATONI_CU_SUCCESS;

	for (struct sim_capture *at = sim.captures; at; at = at->next) {
		if (!forbids(at))
			continue;
		at->invalid = true;
		result = CUDASIM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

/* A blocking stream of this context is captured. */
static struct sim_capture *
blocking_capture_locked(const struct sim_context *context)
{
	for (struct sim_stream *at = context->streams; at; at = at->next) {
		if (at->blocking && at->capture)
			return at->capture;
	}
	return NULL;
}

/* The legacy default stream would have to wait for a stream that is captured. */
static CUresult
check_legacy_locked(const struct sim_stream *stream)
{
	struct sim_capture *capture;

	if (stream != &stream->context->legacy)
		return BATONI_CU_SUCCESS;
	capture = blocking_capture_locked(stream->context);
	if (!capture)
		return BATONI_CU_SUCCESS;
	capture->invalid = true;
	return CUDASIM_CAPTURE_IMPLICIT;
}

CUresult
sim_capture_takes_locked(struct sim_stream *stream, bool *captured_p)
{
	*captured_p = stream->capture != NULL;
	if (stream->capture && stream->capture->invalid)
		return CUDASIM_CAPTURE_INVALIDATED;
	return check_legacy_locked(stream);
}

CUresult
sim_capture_query_locked(struct sim_stream *stream)
{
	if (stream->capture) {
		stream->capture->invalid = true;
		return CUDASIM_CAPTURE_UNSUPPORTED;
	}
	return check_legacy_locked(stream);
}

CUresult
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuThreadExchangeStreamCaptureMode, 0);
	CUstreamCaptureMode before = thread_mode;

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (!mode || *mode > BATONI_CU_CAPTURE_RELAXED)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	thread_mode = *mode;
	*mode = before;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status_p)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuStreamIsCapturing, SIM_CONTEXT);
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, false, &stream);
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	if (stream == &stream->context->legacy &&
	    blocking_capture_locked(stream->context))
		return sim_leave(&call, CUDASIM_CAPTURE_IMPLICIT);
	*status_p = !stream->capture          ? BATONI_CU_CAPTURE_NONE
	            : stream->capture->invalid ? CUDASIM_CAPTURE_STATUS_INVALIDATED
	                                       : CUDASIM_CAPTURE_ACTIVE;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

CUresult
cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuStreamBeginCapture_v2, SIM_CONTEXT);
	struct sim_capture *capture;
	struct sim_stream *stream;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	if (mode > BATONI_CU_CAPTURE_RELAXED)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	if (stream == &stream->context->legacy)
		return sim_leave(&call, CUDASIM_CAPTURE_UNSUPPORTED);
	if (stream->capture)
		return sim_leave(&call, CUDASIM_ILLEGAL_STATE);
	capture = sim_alloc(1, sizeof(*capture));
	*capture = (struct sim_capture){
		.next = sim.captures,
		.origin = stream,
		.thread = sim_thread(),
		.mode = mode,
	};
	sim_stream_ref_locked(stream);
	sim.captures = capture;
	stream->capture = capture;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* The capture is over: no stream is part of it. */
static void
end_locked(struct sim_capture *capture)
{
	struct sim_context *context = capture->origin->context;
	struct sim_capture **at = &sim.captures;

	for (struct sim_stream *s = context->streams; s; s = s->next) {
		if (s->capture == capture)
			s->capture = NULL;
	}
	sim_events_uncapture_locked(capture);
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	sim_stream_unref_locked(capture->origin);
	free(capture);
}

CUresult
cuStreamEndCapture(CUstream handle, CUgraph *graph_p)
{
	struct sim_call call;
	CUresult result =
		sim_enter(&call, SIM_cuStreamEndCapture, SIM_CONTEXT);
	struct sim_capture *capture;
	struct sim_stream *stream;
	bool invalid;

	if (result != BATONI_CU_SUCCESS)
		return result;
	result = sim_stream_of_locked(&call, handle, true, &stream);
	if (result != BATONI_CU_SUCCESS)
		return sim_leave(&call, result);
	capture = stream->capture;
	if (!capture)
		return sim_leave(&call, CUDASIM_ILLEGAL_STATE);
	if (capture->origin != stream)
		return sim_leave(&call, CUDASIM_CAPTURE_UNMATCHED);
	if (capture->mode != BATONI_CU_CAPTURE_RELAXED &&
	    capture->thread != sim_thread())
		return sim_leave(&call, CUDASIM_CAPTURE_WRONG_THREAD);
	invalid = capture->invalid;
	end_locked(capture);
	*graph_p = invalid ? NULL : &graph;
	return sim_leave(&call, invalid ? CUDASIM_CAPTURE_INVALIDATED
	                                : BATONI_CU_SUCCESS);
}

CUresult
cuGraphDestroy(CUgraph which)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuGraphDestroy, SIM_DESTROYS);

	if (result != BATONI_CU_SUCCESS)
		return result;
	return sim_leave(&call, which == &graph ? BATONI_CU_SUCCESS
	                                        : BATONI_CU_INVALID_VALUE);
}
