/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls on the CUDA device, over the simulator: what they leave as it was, what they refuse,
 * which driver calls they make, and which device and memory they work on.
 */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captured.h"
#include "cuda_world.h"
#include "mem.h"

/* ---- the caller's context and capture mode -------------------------------- */

static CUcontext kept;

static void
check_kept(int line)
{
	CUstreamCaptureMode mode = CUDASIM_CAPTURE_THREAD_LOCAL;
	CUcontext current;

	cu_ok(cw.sim->context_current(&current));
	ck_assert_msg(current == kept, "line %d: the current context", line);
	cu_ok(cw.sim->capture_mode(&mode));
	ck_assert_msg(mode == CUDASIM_CAPTURE_THREAD_LOCAL,
	              "line %d: the capture mode", line);
}

#define KEEPS(call)                                                           \
	do {                                                                  \
		baton_ok(call);                                               \
		check_kept(__LINE__);                                         \
	} while (0)

static void
nothing(void *unused)
{
	(void)unused;
}

static void
end_both(baton_request a, baton_request b)
{
	baton_request requests[2] = {a, b};
	char text[100];

	KEEPS(baton_wait_all(requests, 2, LONG_NS));
	for (int i = 0; i < 2; i++) {
		KEEPS(baton_test(requests[i], NULL));
		KEEPS(baton_request_error(requests[i], text, sizeof(text)));
		KEEPS(baton_release(&requests[i]));
	}
}

static void
messages(CUstream s, CUstream t, size_t bytes)
{
	baton_request a, b;

	KEEPS(baton_recv(cw.to, bytes, BATON_UINT8, 0, 0, cw.comms[1], s, NULL,
	                 &b));
	KEEPS(baton_send(cw.from, bytes, BATON_UINT8, 1, 0, cw.comms[0], t, NULL,
	                 &a));
	end_both(a, b);
	KEEPS(baton_group_begin(cw.comms[0]));
	KEEPS(baton_send(cw.from, bytes, BATON_UINT8, 0, 1, cw.comms[0], s, NULL,
	                 &a));
	KEEPS(baton_recv(cw.to, bytes, BATON_UINT8, 0, 1, cw.comms[0], t, NULL,
	                 &b));
	KEEPS(baton_group_end(cw.comms[0]));
	end_both(a, b);
}

static void
cancelled(CUstream s)
{
	baton_request request;

	KEEPS(baton_recv(cw.to, 8, BATON_UINT8, 0, 2, cw.comms[1], s, NULL,
	                 &request));
	ck_assert_int_eq(baton_wait(request, 1000, NULL), BATON_PENDING);
	check_kept(__LINE__);
	KEEPS(baton_cancel(request));
	ck_assert_int_eq(baton_finish(&request, LONG_NS, NULL),
	                 BATON_ERR_CANCELED);
	check_kept(__LINE__);
}

static void
other_calls(CUstream s, CUstream t)
{
	struct baton_queue *queue;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	baton_request a, b;

	KEEPS(baton_record(cw.comms[0], s, NULL, &a));
	KEEPS(baton_stream_wait(cw.comms[1], t, a));
	KEEPS(baton_stream_launch(cw.comms[0], s, nothing, NULL));
	KEEPS(baton_record(cw.comms[1], t, NULL, &b));
	end_both(a, b);
	KEEPS(baton_signal(1, 0, 0, 0, cw.comms[0], s, NULL, &a));
	KEEPS(baton_wait_signal(1,
	                        &(struct baton_wait_signal_desc){1, 0, 0, 0},
	                        cw.comms[1], t, NULL, &b));
	end_both(a, b);
	KEEPS(baton_stream_synchronize(cw.comms[0], s));
	KEEPS(baton_stream_synchronize(cw.comms[1], t));
	KEEPS(baton_stream_query(cw.comms[0], s));
	KEEPS(baton_queue_create(cw.comms[0], 4, &queue));
	options.queue = queue;
	KEEPS(baton_record(cw.comms[0], s, &options, &a));
	while (baton_queue_poll(queue, &completion, 1) == 0)
		baton_progress(cw.comms[0]);
	baton_queue_destroy(queue);
	check_kept(__LINE__);
	ck_assert_int_eq(baton_send(cw.from, 1, BATON_UINT8, 7, 0, cw.comms[0],
	                            s, NULL, NULL),
	                 BATON_ERR_INVALID);
	check_kept(__LINE__);
}

/* Every call leaves this context current; it is the only one of the thread, or there is
 * none. */
static void
all_calls_keep(CUcontext context)
{
	struct baton_comm_options options = cuda_world_options();
	CUstreamCaptureMode mode = CUDASIM_CAPTURE_THREAD_LOCAL;
	baton_stream made;
	CUcontext popped;

	cu_ok(cw.sim->capture_mode(&mode));
	cu_ok(cw.sim->context_pop(&popped));
	if (context)
		cu_ok(cw.sim->context_push(context));
	kept = context;
	KEEPS(baton_comm_create_local(2, &options, cw.comms));
	KEEPS(baton_stream_create(cw.comms[0], &made));
	messages(cw.streams[0], cw.streams[1], 8);
	messages(cw.streams[0], made, 3 * MIB);
	cancelled(made);
	other_calls(cw.streams[0], made);
	KEEPS(baton_stream_destroy(cw.comms[0], made));
	messages(cw.streams[0], cw.streams[1], 3 * MIB);
	KEEPS(baton_comm_abort(cw.comms[0]));
	KEEPS(baton_comm_destroy(cw.comms[0]));
	KEEPS(baton_comm_destroy(cw.comms[1]));
	cw.comms[0] = NULL;
	/* Nothing was left under it. */
	if (context)
		cu_ok(cw.sim->context_pop(&popped));
	cu_ok(cw.sim->context_current(&popped));
	ck_assert_ptr_null(popped);
	cuda_world_end();
}

START_TEST(calls_leave_a_thread_without_a_context_as_it_was)
{
	cuda_world_begin();
	all_calls_keep(NULL);
}
END_TEST

START_TEST(calls_leave_the_devices_own_context_as_it_was)
{
	cuda_world_begin();
	all_calls_keep(cw.context);
}
END_TEST

START_TEST(calls_leave_another_devices_context_as_it_was)
{
	CUcontext other;

	cuda_world_begin();
	cu_ok(cw.sim->primary_retain(&other, 1));
	all_calls_keep(other);
}
END_TEST

START_TEST(calls_leave_a_context_of_the_programs_own_as_it_was)
{
	CUcontext other, popped;

	cuda_world_begin();
	cu_ok(cw.sim->context_create(&other, 0, 0));
	cu_ok(cw.sim->context_pop(&popped));
	all_calls_keep(other);
}
END_TEST

/* ---- threads that are cancelled ------------------------------------------- */

static struct {
	unsigned char *there; /* memory of device 1, which Baton does not know */
	unsigned calls, refused;
	bool returned;
} doomed;

static void
count(enum baton_status status)
{
	doomed.calls++;
	doomed.refused += status != BATON_OK;
}

static void
enqueue_all_kinds(void)
{
	struct baton_wait_signal_desc desc = {1, 0, 0, 0};
	CUstream s = cw.streams[0], t = cw.streams[1];
	baton_request requests[7];

	count(baton_recv(doomed.there, 8, BATON_UINT8, 0, 0, cw.comms[1], s,
	                 NULL, &requests[0]));
	count(baton_send(cw.from, 8, BATON_UINT8, 1, 0, cw.comms[0], t, NULL,
	                 &requests[1]));
	count(baton_group_begin(cw.comms[0]));
	count(baton_send(cw.from, 8, BATON_UINT8, 0, 1, cw.comms[0], s, NULL,
	                 &requests[2]));
	count(baton_recv(cw.to, 8, BATON_UINT8, 0, 1, cw.comms[0], t, NULL,
	                 &requests[3]));
	count(baton_group_end(cw.comms[0]));
	count(baton_record(cw.comms[0], s, NULL, &requests[4]));
	count(baton_stream_wait(cw.comms[1], t, requests[4]));
	count(baton_stream_launch(cw.comms[0], s, nothing, NULL));
	count(baton_signal(1, 0, 0, 0, cw.comms[0], s, NULL, &requests[5]));
	count(baton_wait_signal(1, &desc, cw.comms[1], t, NULL, &requests[6]));
	count(baton_wait_all(requests, 7, LONG_NS));
	for (int i = 0; i < 7; i++)
		count(baton_finish(&requests[i], LONG_NS, NULL));
	count(baton_stream_synchronize(cw.comms[0], s));
	count(baton_stream_query(cw.comms[0], s));
}

static void *
enqueue_when_cancelled(void *unused)
{
	(void)unused;
	pthread_cancel(pthread_self());
	enqueue_all_kinds();
	doomed.returned = true;
	pthread_testcancel();
	return NULL;
}

START_TEST(thread_is_not_cancelled_within_a_call_that_enqueues)
{
	CUcontext other, popped;
	CUdeviceptr memory;
	pthread_t thread;
	void *result;

	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 8));
	cu_ok(cw.sim->context_pop(&popped));
	doomed.there = (void *)(uintptr_t)memory;
	ck_assert_int_eq(pthread_create(&thread, NULL, enqueue_when_cancelled,
	                                NULL),
	                 0);
	pthread_join(thread, &result);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_msg(doomed.returned, "call %u has not returned",
	              doomed.calls + 1);
	ck_assert_uint_eq(doomed.refused, 0);
	cuda_world_end();
}
END_TEST

/* ---- streams that are refused --------------------------------------------- */

static CUstream default_streams[] = {
	NULL, (CUstream)(uintptr_t)BATONI_CU_STREAM_LEGACY_VALUE,
	(CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE};

static enum baton_status
try_recv(CUstream stream)
{
	baton_request request = BATON_REQUEST_NULL;
	enum baton_status status =
		baton_recv(cw.to, 8, BATON_UINT8, 0, 0, cw.comms[1], stream, NULL,
	                   &request);

	ck_assert((status == BATON_OK) == (request != BATON_REQUEST_NULL));
	if (status == BATON_OK) {
		cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[1]),
		                  BATON_OK);
		cuda_world_finish(request, BATON_OK);
	}
	return status;
}

/* No part of a refused call gets to the driver's queues. */
static void
refused(CUstream stream, enum baton_status expected, const char *words)
{
	long functions = cw.sim->sim_uses("cuLaunchHostFunc");

	ck_assert_int_eq(try_recv(stream), expected);
	assert_said(words);
	ck_assert_int_eq(baton_record(cw.comms[0], stream, NULL, NULL), expected);
	assert_said(words);
	ck_assert_int_eq(baton_stream_launch(cw.comms[0], stream, nothing, NULL),
	                 expected);
	assert_said(words);
	ck_assert_int_eq(cw.sim->sim_uses("cuLaunchHostFunc"), functions);
}

START_TEST(default_streams_with_another_current_context_are_refused)
{
	CUcontext other, popped;

	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	for (int i = 0; i < 3; i++)
		refused(default_streams[i], BATON_ERR_INVALID,
		        "current context is not that of the communicator's "
		        "device 0");
	cu_ok(cw.sim->context_pop(&popped));
	cuda_world_end();
}
END_TEST

START_TEST(default_streams_work_with_the_devices_context_or_none)
{
	CUcontext popped;

	cuda_world_open();
	for (int i = 0; i < 3; i++)
		baton_ok(try_recv(default_streams[i]));
	cu_ok(cw.sim->context_pop(&popped));
	for (int i = 0; i < 3; i++)
		baton_ok(try_recv(default_streams[i]));
	cu_ok(cw.sim->context_push(popped));
	cuda_world_end();
}
END_TEST

static void *
receive_on_own_stream(void *request_p)
{
	CUcontext popped;

	cu_ok(cw.sim->context_push(cw.context));
	*(baton_request *)request_p = cuda_world_recv(cw.to, 8, 0,
	                                              default_streams[2]);
	cu_ok(cw.sim->context_pop(&popped));
	return NULL;
}

/* The engine's thread has a per-thread stream of its own, which it never touches. */
START_TEST(operation_on_a_per_thread_stream_outlives_its_thread)
{
	pthread_t thread;
	baton_request request;

	cuda_world_open();
	pthread_create(&thread, NULL, receive_on_own_stream, &request);
	pthread_join(thread, NULL);
	ck_assert_int_le(cw.sim->sim_live("thread_streams"), 1);
	cuda_world_fill(cw.from, 8, 1);
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[0]), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	cuda_world_expect(cw.to, 8, 1);
	cw.sim->sim_settle(false);
	ck_assert_int_eq(cw.sim->sim_live("thread_streams"), 0);
	cuda_world_end();
}
END_TEST

START_TEST(streams_of_another_device_or_context_are_refused)
{
	CUcontext device, own, popped;
	CUstream on_device, on_own;

	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&device, 1));
	cu_ok(cw.sim->context_push(device));
	on_device = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cu_ok(cw.sim->context_pop(&popped));
	cu_ok(cw.sim->context_create(&own, 0, 0));
	on_own = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cu_ok(cw.sim->context_pop(&popped));
	refused(on_device, BATON_ERR_INVALID, "of another device or context");
	refused(on_own, BATON_ERR_INVALID, "of another device or context");
	cuda_world_end();
}
END_TEST

/* The driver gives the handle of a stream that is gone to the next one. */
START_TEST(another_stream_with_the_handle_of_one_that_is_known_is_another)
{
	baton_request requests[2];
	CUstream first, second;

	cuda_world_open();
	first = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	for (unsigned i = 0; i < 2; i++) {
		requests[0] = cuda_world_recv(cw.to, 8, 0, first);
		requests[1] = cuda_world_send(cw.from, 8, 0, first);
		/* The second operation stands behind the first one on one stream. */
		ck_assert_int_eq(baton_wait(requests[1], 1000000, NULL),
		                 BATON_PENDING);
		baton_ok(baton_cancel(requests[0]));
		cuda_world_finish(requests[0], BATON_ERR_CANCELED);
		requests[0] = cuda_world_recv(cw.to, 8, 0, cw.streams[1]);
		for (int j = 0; j < 2; j++)
			cuda_world_finish(requests[j], BATON_OK);
		baton_ok(baton_stream_synchronize(cw.comms[0], first));
		cu_ok(cw.sim->stream_destroy(first));
		second = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		ck_assert_ptr_eq(second, first);
	}
	cuda_world_end();
}
END_TEST

/* ---- captures ------------------------------------------------------------- */

static void
capture_ends_well(CUstream captured)
{
	CUgraph graph;

	cu_ok(cw.sim->capture_end(captured, &graph));
	cu_ok(cw.sim->graph_destroy(graph));
}

START_TEST(capturing_stream_is_refused_and_its_capture_goes_on)
{
	static const CUstreamCaptureMode modes[] = {
		CUDASIM_CAPTURE_GLOBAL, CUDASIM_CAPTURE_THREAD_LOCAL,
		BATONI_CU_CAPTURE_RELAXED};

	cuda_world_open();
	/* Then the stream is one that is known. */
	for (int i = 0; i < 6; i++) {
		cu_ok(cw.sim->capture_begin(cw.streams[0], modes[i % 3]));
		refused(cw.streams[0], BATON_ERR_UNSUPPORTED,
		        "is capturing a graph");
		capture_ends_well(cw.streams[0]);
		if (i == 2)
			baton_ok(try_recv(cw.streams[0]));
	}
	baton_ok(try_recv(cw.streams[0]));
	cuda_world_end();
}
END_TEST

/* In global mode every unsafe call of every thread invalidates it, unless that thread's mode
 * is RELAXED: those of the engine's thread and of creation too. */
START_TEST(global_capture_is_not_disturbed_by_any_call_or_thread)
{
	struct baton_comm *others[2], *second;
	struct baton_comm_options options = cuda_world_options();
	baton_stream made;
	baton_request a, b;
	CUstream captured;

	cuda_world_open();
	captured = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cu_ok(cw.sim->capture_begin(captured, CUDASIM_CAPTURE_GLOBAL));
	baton_ok(baton_comm_create_local(2, &options, others));
	options.cuda_device = 1;
	baton_ok(baton_comm_create_local(1, &options, &second));
	baton_ok(baton_comm_destroy(second));
	baton_ok(baton_stream_create(others[0], &made));
	for (int i = 0; i < 4; i++) {
		b = cuda_world_recv(cw.to, 4 * MIB, 0, cw.streams[0]);
		a = cuda_world_send(cw.from, 4 * MIB, 0, cw.streams[1]);
		/* The engine's thread alone, half of the time. */
		while (i % 2 && cw.sim->sim_queued() > 0)
			usleep(1000);
		cuda_world_finish(a, BATON_OK);
		cuda_world_finish(b, BATON_OK);
	}
	baton_ok(baton_stream_launch(cw.comms[0], cw.streams[0], nothing, NULL));
	baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
	baton_ok(baton_stream_query(cw.comms[0], cw.streams[0]));
	baton_ok(baton_stream_destroy(others[0], made));
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(others[i]));
	cuda_world_destroy();
	capture_ends_well(captured);
	cuda_world_end();
}
END_TEST

/* ---- driver calls --------------------------------------------------------- */

/* Calls that put something on a stream of the program. */
static long
stream_calls(void)
{
	return uses_of(
		"cuLaunchHostFunc",     "cuStreamBatchMemOp",
		"cuStreamWaitValue64",  "cuStreamWriteValue64",
		"cuEventRecord",        "cuStreamWaitEvent",
		"cuMemcpyAsync");
}

static void
calls_of_operations(int whole, int detached_calls)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request requests[4];
	long calls[5], before;

	detached.flags = BATON_OP_DETACHED;
	/* The streams stand still, so that no copy is counted. */
	cuda_world_hold(cw.streams[0], 0);
	cuda_world_hold(cw.streams[1], 0);
	before = stream_calls();
	requests[0] = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	calls[0] = stream_calls() - before;
	requests[1] = cuda_world_send(cw.from, 8, 0, cw.streams[1]);
	calls[1] = stream_calls() - before - calls[0];
	before = stream_calls();
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 1, cw.comms[1],
	                    cw.streams[0], &detached, &requests[2]));
	calls[2] = stream_calls() - before;
	before = stream_calls();
	baton_ok(baton_record(cw.comms[0], cw.streams[0], NULL, &requests[3]));
	calls[3] = stream_calls() - before;
	before = stream_calls();
	baton_ok(baton_stream_wait(cw.comms[1], cw.streams[1], requests[2]));
	calls[4] = stream_calls() - before;
	ck_assert_int_eq(calls[0], whole);
	ck_assert_int_eq(calls[1], whole);
	ck_assert_int_eq(calls[2], detached_calls);
	ck_assert_int_eq(calls[3], detached_calls);
	ck_assert_int_eq(calls[4], whole);
	cuda_world_let_go(0);
	cuda_world_finish(requests[0], BATON_OK);
	cuda_world_finish(requests[1], BATON_OK);
	cuda_world_finish(cuda_world_send(cw.from, 8, 1, cw.streams[0]), BATON_OK);
	cuda_world_finish(requests[2], BATON_OK);
	cuda_world_finish(requests[3], BATON_OK);
}

START_TEST(an_operation_is_two_calls_on_its_stream_and_a_detached_one_is_one)
{
	cuda_world_open();
	calls_of_operations(2, 1);
	cuda_world_end();
}
END_TEST

START_TEST(an_operation_is_one_call_where_streams_cannot_wait)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request request;
	long before;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	cuda_world_begin();
	cuda_world_comms(NULL);
	detached.flags = BATON_OP_DETACHED;
	before = stream_calls();
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 0, cw.comms[1],
	                    cw.streams[0], &detached, &request));
	ck_assert_int_eq(stream_calls() - before, 1);
	before = cw.sim->sim_uses("cuLaunchHostFunc");
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[0]), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	ck_assert_int_eq(cw.sim->sim_uses("cuLaunchHostFunc") - before, 1);
	ck_assert_int_eq(cw.sim->sim_uses("cuStreamBatchMemOp"), 0);
	cuda_world_end();
}
END_TEST

/* The driver's calls within one send, while all streams stand still.  The engine's thread may
 * ask whether the device is well in between: the least of a few is the call's own. */
static long
calls_of_a_send(const struct baton_op_options *options, size_t bytes)
{
	long least = LONG_MAX;

	for (int i = 0; i < 8; i++) {
		long before = cw.sim->sim_total(), calls;

		baton_ok(baton_send(cw.from, bytes, BATON_UINT8, 1, 0,
		                    cw.comms[0], cw.streams[1], options, NULL));
		calls = cw.sim->sim_total() - before;
		if (calls < least)
			least = calls;
	}
	return least;
}

/* The check asks for the stream's number, which is known, and whether it is captured; then it is
 * asked what the buffer is.  The enqueue sets the capture mode, looks at the context, puts trigger
 * and wait on the stream, and sets the mode back. */
START_TEST(a_send_is_eight_calls_in_all)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	cuda_world_open();
	detached.flags = BATON_OP_DETACHED;
	cuda_world_hold(cw.streams[1], 0);
	ck_assert_int_eq(calls_of_a_send(NULL, 8), 8);
	ck_assert_int_eq(calls_of_a_send(&detached, 8), 7);
	ck_assert_int_eq(calls_of_a_send(&detached, 0), 6);
	cuda_world_let_go(0);
	for (int i = 0; i < 24; i++)
		cuda_world_finish(cuda_world_recv(cw.to, 8, 0, cw.streams[0]),
		                  BATON_OK);
	cuda_world_end();
}
END_TEST

/* A group of four on two streams: a trigger and a wait on each. */
START_TEST(a_group_is_two_calls_on_each_of_its_streams)
{
	baton_request requests[4];
	long before;

	cuda_world_open();
	cuda_world_hold(cw.streams[0], 0);
	cuda_world_hold(cw.streams[1], 0);
	before = stream_calls();
	baton_ok(baton_group_begin(cw.comms[0]));
	for (int i = 0; i < 2; i++) {
		baton_ok(baton_send(cw.from, 8, BATON_UINT8, 0, i, cw.comms[0],
		                    cw.streams[i], NULL, &requests[2 * i]));
		baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, i, cw.comms[0],
		                    cw.streams[i], NULL, &requests[2 * i + 1]));
	}
	baton_ok(baton_group_end(cw.comms[0]));
	ck_assert_int_eq(stream_calls() - before, 4);
	cuda_world_let_go(0);
	for (int i = 0; i < 4; i++)
		cuda_world_finish(requests[i], BATON_OK);
	cuda_world_end();
}
END_TEST

/* ---- devices and memory --------------------------------------------------- */

START_TEST(device_that_is_not_there_is_refused)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *comms[2];

	cuda_world_begin();
	options.cuda_device = 2;
	ck_assert_int_eq(baton_comm_create_local(2, &options, comms),
	                 BATON_ERR_INVALID);
	assert_said("cuda_device is 2", "2 devices");
	options.cuda_device = -2;
	ck_assert_int_eq(baton_comm_create_local(2, &options, comms),
	                 BATON_ERR_INVALID);
	assert_said("cuda_device");
	cuda_world_end();
}
END_TEST

static int
device_of(int option)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm *comm;

	options.cuda_device = option;
	baton_ok(baton_comm_create_local(1, &options, &comm));
	baton_ok(baton_comm_query(comm, &info));
	baton_ok(baton_comm_destroy(comm));
	return info.cuda_device;
}

START_TEST(no_device_named_is_that_of_the_current_context)
{
	CUcontext other, popped;

	cuda_world_begin();
	cu_ok(cw.sim->primary_retain(&other, 1));
	ck_assert_int_eq(device_of(-1), 0);
	cu_ok(cw.sim->context_push(other));
	ck_assert_int_eq(device_of(-1), 1);
	ck_assert_int_eq(device_of(0), 0);
	cu_ok(cw.sim->context_pop(&popped));
	ck_assert_int_eq(device_of(1), 1);
	cuda_world_end();
}
END_TEST

/* One rank on each device, each with a stream and memory there. */
START_TEST(ranks_on_two_devices_talk_to_each_other)
{
	struct baton_comm_options options = cuda_world_options();
	CUcontext other, popped;
	CUdeviceptr memory;
	CUstream stream;
	baton_request a, b;

	cuda_world_begin();
	cu_ok(cw.sim->context_pop(&popped));
	options.cuda_device = -1;
	cuda_world_comms(&options);
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 4 * MIB));
	stream = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cuda_world_fill(cw.from, 4 * MIB, 3);
	for (size_t bytes = 8; bytes <= 4 * MIB; bytes *= 4 * MIB / 8) {
		b = cuda_world_recv((void *)(uintptr_t)memory, bytes, 0, stream);
		a = cuda_world_send(cw.from, bytes, 0, cw.streams[0]);
		cuda_world_finish(a, BATON_OK);
		cuda_world_finish(b, BATON_OK);
		cuda_world_expect((void *)(uintptr_t)memory, bytes, 3);
	}
	cuda_world_end();
}
END_TEST

/* Streams wait in host functions: the release of a word of one device wakes a wait on
 * another's stream. */
START_TEST(a_function_that_waits_for_another_devices_operation_is_woken)
{
	struct baton_comm_options options = cuda_world_options();
	baton_request request, passed;
	struct baton_comm *comm;
	CUstream stream;
	CUcontext other;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	stream = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	options.cuda_device = 1;
	baton_ok(baton_comm_create_local(1, &options, &comm));
	request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	baton_ok(baton_stream_wait(comm, stream, request));
	baton_ok(baton_record(comm, stream, NULL, &passed));
	ck_assert_int_eq(baton_wait(passed, 50000000, NULL), BATON_PENDING);
	baton_ok(baton_cancel(request));
	cuda_world_finish(passed, BATON_OK);
	cuda_world_finish(request, BATON_ERR_CANCELED);
	baton_ok(baton_comm_destroy(comm));
	cuda_world_end();
}
END_TEST

START_TEST(memory_of_another_device_is_copied_by_that_device)
{
	CUcontext other, popped;
	CUdeviceptr memory;
	unsigned char *there;
	baton_request a, b;

	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 8 * MIB));
	cu_ok(cw.sim->context_pop(&popped));
	there = (void *)(uintptr_t)memory;
	for (size_t bytes = 8; bytes <= 4 * MIB; bytes *= 4 * MIB / 8) {
		cuda_world_fill(there, bytes, 4);
		b = cuda_world_recv(there + 4 * MIB, bytes, 0, cw.streams[0]);
		a = cuda_world_send(there, bytes, 0, cw.streams[1]);
		cuda_world_finish(a, BATON_OK);
		cuda_world_finish(b, BATON_OK);
		cuda_world_expect(there + 4 * MIB, bytes, 4);
	}
	cuda_world_end();
}
END_TEST

enum { DEVICE, MANAGED, PINNED, REGISTERED, PAGEABLE, KINDS };

static unsigned char *buffers[KINDS]; /* 4 MiB to send from, 4 MiB to receive into */

static void
make_buffers(void)
{
	CUdeviceptr managed;
	void *pinned;

	buffers[DEVICE] = cw.from;
	cu_ok(cw.sim->managed_alloc(&managed, 8 * MIB, 1));
	buffers[MANAGED] = (void *)(uintptr_t)managed;
	cu_ok(cw.sim->host_alloc(&pinned, 8 * MIB, 0));
	buffers[PINNED] = pinned;
	buffers[REGISTERED] = aligned_alloc(4096, 8 * MIB);
	cu_ok(cw.sim->host_register(buffers[REGISTERED], 8 * MIB, 0));
	buffers[PAGEABLE] = malloc(8 * MIB);
}

static void
put_bytes(int kind, size_t bytes, int value)
{
	unsigned char *values = malloc(bytes);

	memset(values, value, bytes);
	if (kind == DEVICE)
		cw.sim->sim_poke(cuda_world_address(buffers[kind]), values, bytes);
	else
		memcpy(buffers[kind], values, bytes);
	free(values);
}

static void
check_bytes(int kind, size_t bytes, int value)
{
	unsigned char *values = malloc(bytes), *at = buffers[kind] + 4 * MIB;

	if (kind == DEVICE)
		cw.sim->sim_peek(values, cuda_world_address(at), bytes);
	else
		memcpy(values, at, bytes);
	for (size_t i = 0; i < bytes; i++)
		if (values[i] != value)
			ck_abort_msg("byte %zu of %zu", i, bytes);
	free(values);
}

START_TEST(buffers_of_all_kinds_are_sent_and_received)
{
	static const size_t lengths[] = {8, 100 * 1024, 4 * MIB};
	int value = 0;

	cuda_world_open();
	make_buffers();
	for (int from = 0; from < KINDS; from++) {
		for (int to = 0; to < KINDS; to++) {
			for (int i = 0; i < 3; i++) {
				size_t bytes = lengths[i];
				baton_request a, b;

				value = (value + 1) & 127;
				put_bytes(from, bytes, value);
				b = cuda_world_recv(buffers[to] + 4 * MIB, bytes,
				                    0, cw.streams[0]);
				a = cuda_world_send(buffers[from], bytes, 0,
				                    cw.streams[1]);
				cuda_world_finish(a, BATON_OK);
				cuda_world_finish(b, BATON_OK);
				check_bytes(to, bytes, value);
			}
		}
	}
	cuda_world_end();
	free(buffers[PAGEABLE]);
}
END_TEST

START_TEST(pinned_memory_at_another_address_is_refused)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *comms[2];

	cuda_world_load();
	ck_assert(cw.sim->sim_set("alias", 1));
	cu_ok(cw.sim->init(0));
	ck_assert_int_eq(baton_comm_create_local(2, &options, comms),
	                 BATON_ERR_UNSUPPORTED);
	assert_said("pinned memory", "address");
	ck_assert_int_eq(cw.sim->sim_live("pinned"), 0);
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
}
END_TEST

/* ---- warnings ------------------------------------------------------------- */

static int
times(const char *text, const char *words)
{
	int n = 0;

	for (; (text = strstr(text, words)) != NULL; text += strlen(words))
		n++;
	return n;
}

static void
use_default_streams(void)
{
	cuda_world_open();
	for (int i = 0; i < 6; i++)
		if (try_recv(default_streams[i % 3]) != BATON_OK)
			_exit(1);
	cuda_world_destroy();
	cuda_world_comms(NULL);
	if (try_recv(NULL) != BATON_OK)
		_exit(1);
}

START_TEST(default_streams_are_warned_about_once)
{
	struct captured captured = capture("warn", use_default_streams);

	ck_assert_int_eq(times(captured.text, "default stream"), 1);
	ck_assert_int_eq(times(captured.text, "MAX_CONNECTIONS"), 0);
}
END_TEST

static void
share_one_queue(void)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	cuda_world_open();
	cuda_world_destroy();
	cuda_world_comms(NULL);
	cuda_world_destroy();
}

START_TEST(one_hardware_queue_is_warned_about_once)
{
	struct captured captured = capture("warn", share_one_queue);

	ck_assert_int_eq(times(captured.text,
	                       "in 1 hardware queue (1 for copies); to part them: "
	                       "CUDA_DEVICE_MAX_CONNECTIONS=8\n"),
	                 1);
	ck_assert_int_eq(times(captured.text, "default stream"), 0);
}
END_TEST

static void
use_urgent_streams(void)
{
	cuda_world_open();
	for (int i = 0; i < 3; i++)
		if (try_recv(cuda_world_urgent_stream()) != BATON_OK)
			_exit(1);
}

static void
use_other_streams(void)
{
	cuda_world_open();
	if (try_recv(cw.streams[0]) != BATON_OK)
		_exit(1);
}

START_TEST(streams_of_the_priority_of_copies_are_warned_about_once)
{
	struct captured captured = capture("warning", use_urgent_streams);

	ck_assert_int_eq(times(captured.text, "highest priority"), 1);
	captured = capture("warning", use_other_streams);
	ck_assert_int_eq(times(captured.text, "highest priority"), 0);
}
END_TEST

static void
have_no_memory_operations(void)
{
	cuda_world_load();
	cw.sim->sim_set("memops", 0);
	cuda_world_open();
	cuda_world_destroy();
	cuda_world_comms(NULL);
	cuda_world_destroy();
}

START_TEST(missing_memory_operations_are_warned_about_once)
{
	struct captured captured = capture("warn", have_no_memory_operations);

	ck_assert_int_eq(times(captured.text, "stream memory"), 1);
}
END_TEST

/* ---- the chunks of staging ------------------------------------------------- */

START_TEST(environment_sets_the_size_and_number_of_chunks)
{
	baton_request recv;

	setenv("BATON_STAGING_CHUNK", "4099", 1);
	setenv("BATON_STAGING_CHUNKS", "1", 1);
	cuda_world_open();
	/* The usual chunks of the two ranks are 32 MiB. */
	ck_assert_int_lt(cw.sim->sim_live("pinned_bytes"), (long)(16 * MIB));
	cuda_world_fill(cw.from, 3 * MIB, 1);
	recv = cuda_world_recv(cw.to, 3 * MIB, 0, cw.streams[1]);
	cuda_world_finish(cuda_world_send(cw.from, 3 * MIB, 0, cw.streams[0]),
	                  BATON_OK);
	cuda_world_finish(recv, BATON_OK);
	cuda_world_expect(cw.to, 3 * MIB, 1);
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		calls_leave_a_thread_without_a_context_as_it_was,
		calls_leave_the_devices_own_context_as_it_was,
		calls_leave_another_devices_context_as_it_was,
		calls_leave_a_context_of_the_programs_own_as_it_was,
		thread_is_not_cancelled_within_a_call_that_enqueues,
		default_streams_with_another_current_context_are_refused,
		default_streams_work_with_the_devices_context_or_none,
		operation_on_a_per_thread_stream_outlives_its_thread,
		streams_of_another_device_or_context_are_refused,
		another_stream_with_the_handle_of_one_that_is_known_is_another,
		capturing_stream_is_refused_and_its_capture_goes_on,
		global_capture_is_not_disturbed_by_any_call_or_thread,
		an_operation_is_two_calls_on_its_stream_and_a_detached_one_is_one,
		an_operation_is_one_call_where_streams_cannot_wait,
		a_send_is_eight_calls_in_all,
		a_group_is_two_calls_on_each_of_its_streams,
		device_that_is_not_there_is_refused,
		no_device_named_is_that_of_the_current_context,
		ranks_on_two_devices_talk_to_each_other,
		a_function_that_waits_for_another_devices_operation_is_woken,
		memory_of_another_device_is_copied_by_that_device,
		buffers_of_all_kinds_are_sent_and_received,
		pinned_memory_at_another_address_is_refused,
		default_streams_are_warned_about_once,
		one_hardware_queue_is_warned_about_once,
		streams_of_the_priority_of_copies_are_warned_about_once,
		missing_memory_operations_are_warned_about_once,
		environment_sets_the_size_and_number_of_chunks,
	};

	return RUN_TESTS("cuda_calls", tests);
}
