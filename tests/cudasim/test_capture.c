/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures: which calls disturb them, and from which threads. */
#include <pthread.h>

#include "world.h"

static CUstream captured;

static void
begin(CUstreamCaptureMode mode, unsigned flags)
{
	world_begin();
	captured = world_stream(flags);
	ck_success(w.sim->capture_begin(captured, mode));
}

static void
end_capture(CUresult expected)
{
	CUgraph graph;

	ck_assert_uint_eq(w.sim->capture_end(captured, &graph), expected);
	if (expected == BATONI_CU_SUCCESS)
		ck_success(w.sim->graph_destroy(graph));
	ck_assert_int_eq(w.sim->sim_live("captures"), 0);
	world_end();
}

static CUstreamCaptureStatus
status_of(CUstream stream)
{
	CUstreamCaptureStatus status;

	ck_success(w.sim->stream_capturing(stream, &status));
	return status;
}

START_TEST(work_of_a_captured_stream_is_not_run)
{
	struct probe probe;

	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	ck_assert_uint_eq(status_of(captured), CUDASIM_CAPTURE_ACTIVE);
	world_probe(captured, &probe);
	world_wait(captured, 0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), 0);
	ck_assert_int_eq(w.sim->sim_queued(), 0);
	end_capture(BATONI_CU_SUCCESS);
	ck_assert_uint_eq(status_of(captured), BATONI_CU_CAPTURE_NONE);
	world_probe(captured, &probe);
	ck_success(w.sim->stream_synchronize(captured));
	ck_assert_int_eq(world_calls(&probe), 1);
}
END_TEST

/* Every call that a mode can forbid, on things that the capture does not touch. */
static void
check_unsafe_calls(CUresult expected)
{
	CUdeviceptr device;
	CUstream stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	CUevent event;
	void *pinned = NULL;
	char bytes[8] = {0};

	ck_success(w.sim->event_create(&event, 0));
	ck_assert_uint_eq(w.sim->event_query(event), expected);
	ck_assert_uint_eq(w.sim->event_synchronize(event), expected);
	ck_assert_uint_eq(w.sim->stream_query(stream), expected);
	ck_assert_uint_eq(w.sim->stream_synchronize(stream), expected);
	ck_assert_uint_eq(w.sim->host_alloc(&pinned, 8, 0), expected);
	ck_assert_uint_eq(w.sim->mem_alloc(&device, 8), expected);
	if (expected == BATONI_CU_SUCCESS) {
		ck_success(w.sim->copy_in(device, bytes, 8));
		ck_success(w.sim->mem_free(device));
		ck_success(w.sim->host_free(pinned));
	}
	/* These are safe in all modes. */
	ck_success(w.sim->copy(world_address(0), world_address(1), 8, stream));
	ck_success(w.sim->event_record(event, stream));
	ck_success(w.sim->event_destroy(event));
	ck_success(w.sim->stream_destroy(stream));
}

static void *
call_in_global_mode(void *unused)
{
	(void)unused;
	ck_success(w.sim->context_push(w.context));
	check_unsafe_calls(CUDASIM_CAPTURE_UNSUPPORTED);
	return NULL;
}

static void *
call_in_relaxed_mode(void *unused)
{
	CUstreamCaptureMode mode = BATONI_CU_CAPTURE_RELAXED;

	(void)unused;
	ck_success(w.sim->context_push(w.context));
	ck_success(w.sim->capture_mode(&mode));
	ck_assert_uint_eq(mode, CUDASIM_CAPTURE_GLOBAL);
	check_unsafe_calls(BATONI_CU_SUCCESS);
	ck_success(w.sim->capture_mode(&mode));
	ck_assert_uint_eq(mode, BATONI_CU_CAPTURE_RELAXED);
	return NULL;
}

static void *
call_in_default_mode(void *unused)
{
	(void)unused;
	ck_success(w.sim->context_push(w.context));
	check_unsafe_calls(BATONI_CU_SUCCESS);
	return NULL;
}

static void
on_another_thread(void *(*call)(void *))
{
	pthread_t thread;

	pthread_create(&thread, NULL, call, NULL);
	pthread_join(thread, NULL);
}

START_TEST(unsafe_calls_of_any_thread_invalidate_a_global_capture)
{
	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	on_another_thread(call_in_global_mode);
	ck_assert_uint_eq(status_of(captured),
	                  CUDASIM_CAPTURE_STATUS_INVALIDATED);
	ck_assert_uint_eq(w.sim->write_value(captured, world_address(0), 1, 0),
	                  CUDASIM_CAPTURE_INVALIDATED);
	end_capture(CUDASIM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(a_relaxed_thread_disturbs_no_capture)
{
	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	on_another_thread(call_in_relaxed_mode);
	end_capture(BATONI_CU_SUCCESS);
}
END_TEST

START_TEST(a_thread_local_capture_forbids_its_own_thread_alone)
{
	begin(CUDASIM_CAPTURE_THREAD_LOCAL, BATONI_CU_STREAM_NON_BLOCKING);
	on_another_thread(call_in_default_mode);
	ck_assert_uint_eq(status_of(captured), CUDASIM_CAPTURE_ACTIVE);
	check_unsafe_calls(CUDASIM_CAPTURE_UNSUPPORTED);
	end_capture(CUDASIM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(a_relaxed_capture_forbids_nothing)
{
	begin(BATONI_CU_CAPTURE_RELAXED, BATONI_CU_STREAM_NON_BLOCKING);
	check_unsafe_calls(BATONI_CU_SUCCESS);
	end_capture(BATONI_CU_SUCCESS);
}
END_TEST

START_TEST(a_query_of_the_captured_stream_invalidates_in_every_mode)
{
	CUstreamCaptureMode mode = BATONI_CU_CAPTURE_RELAXED;

	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->capture_mode(&mode));
	ck_assert_uint_eq(w.sim->stream_query(captured),
	                  CUDASIM_CAPTURE_UNSUPPORTED);
	end_capture(CUDASIM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(the_legacy_stream_disturbs_captures_of_blocking_streams)
{
	CUstreamCaptureMode mode = BATONI_CU_CAPTURE_RELAXED;
	CUstreamCaptureStatus status;

	begin(CUDASIM_CAPTURE_GLOBAL, 0);
	ck_success(w.sim->capture_mode(&mode));
	ck_assert_uint_eq(w.sim->stream_capturing(NULL, &status),
	                  CUDASIM_CAPTURE_IMPLICIT);
	ck_assert_uint_eq(status_of(captured), CUDASIM_CAPTURE_ACTIVE);
	ck_assert_uint_eq(w.sim->write_value(NULL, world_address(0), 1, 0),
	                  CUDASIM_CAPTURE_IMPLICIT);
	end_capture(CUDASIM_CAPTURE_INVALIDATED);
}
END_TEST

START_TEST(the_legacy_stream_leaves_captures_of_other_streams_alone)
{
	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	world_write(NULL, 0, 1);
	ck_assert_uint_eq(status_of(NULL), BATONI_CU_CAPTURE_NONE);
	end_capture(BATONI_CU_SUCCESS);
}
END_TEST

START_TEST(a_captured_event_takes_other_streams_into_the_capture)
{
	CUstreamCaptureMode mode = BATONI_CU_CAPTURE_RELAXED;
	CUstream joined;
	CUgraph graph;
	CUevent event;

	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	joined = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->event_create(&event, 0));
	ck_success(w.sim->event_record(event, captured));
	ck_success(w.sim->stream_wait_event(joined, event, 0));
	ck_assert_uint_eq(status_of(joined), CUDASIM_CAPTURE_ACTIVE);
	ck_success(w.sim->capture_mode(&mode));
	ck_assert_uint_eq(w.sim->event_query(event), CUDASIM_CAPTURED_EVENT);
	ck_assert_uint_eq(w.sim->capture_end(joined, &graph),
	                  CUDASIM_CAPTURE_UNMATCHED);
	end_capture(BATONI_CU_SUCCESS);
	ck_assert_uint_eq(status_of(joined), BATONI_CU_CAPTURE_NONE);
	ck_success(w.sim->event_query(event));
}
END_TEST

static void *
end_elsewhere(void *unused)
{
	CUgraph graph;

	(void)unused;
	ck_success(w.sim->context_push(w.context));
	ck_assert_uint_eq(w.sim->capture_end(captured, &graph),
	                  CUDASIM_CAPTURE_WRONG_THREAD);
	return NULL;
}

START_TEST(captures_begin_and_end_where_they_may)
{
	CUgraph graph;

	begin(CUDASIM_CAPTURE_GLOBAL, BATONI_CU_STREAM_NON_BLOCKING);
	ck_assert_uint_eq(w.sim->capture_begin(captured, 0),
	                  CUDASIM_ILLEGAL_STATE);
	ck_assert_uint_eq(w.sim->capture_begin(NULL, 0),
	                  CUDASIM_CAPTURE_UNSUPPORTED);
	on_another_thread(end_elsewhere);
	end_capture(BATONI_CU_SUCCESS);
	ck_assert_uint_eq(w.sim->capture_end(captured, &graph),
	                  CUDASIM_ILLEGAL_STATE);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		work_of_a_captured_stream_is_not_run,
		unsafe_calls_of_any_thread_invalidate_a_global_capture,
		a_relaxed_thread_disturbs_no_capture,
		a_thread_local_capture_forbids_its_own_thread_alone,
		a_relaxed_capture_forbids_nothing,
		a_query_of_the_captured_stream_invalidates_in_every_mode,
		the_legacy_stream_disturbs_captures_of_blocking_streams,
		the_legacy_stream_leaves_captures_of_other_streams_alone,
		a_captured_event_takes_other_streams_into_the_capture,
		captures_begin_and_end_where_they_may,
	};

	return RUN_TESTS("cudasim_capture", tests);
}
