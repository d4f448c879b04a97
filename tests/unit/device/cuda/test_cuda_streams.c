/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of the CUDA device, over the simulator: triggers, waits, launched functions, full
 * streams, many streams, and streams and memory that the program takes away.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda_world.h"
#include "core.h"
#include "cuda_stream.h"
#include "device.h"
#include "mem.h"
#include "testing.h"

enum { STREAMS_MAX = 1024 }; /* CUDA_STREAMS_MAX */

static void
open_with(uint32_t requests_max)
{
	struct baton_comm_options options = cuda_world_options();

	options.requests_max = requests_max;
	cuda_world_begin();
	cuda_world_comms(&options);
}

/* One message, by other streams than those of the test. */
static void
message_on(CUstream s, CUstream t, size_t bytes, int tag)
{
	baton_request b = cuda_world_recv(cw.to, bytes, tag, s);

	cuda_world_finish(cuda_world_send(cw.from, bytes, tag, t), BATON_OK);
	cuda_world_finish(b, BATON_OK);
}

/* ---- triggers and waits --------------------------------------------------- */

/* The record is not used again before the trigger has fired: of two requests one is taken
 * until then. */
START_TEST(trigger_may_fire_after_its_operation_was_cancelled)
{
	baton_request request, other;

	open_with(2);
	cuda_world_hold(cw.streams[0], 0);
	request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	baton_ok(baton_cancel(request));
	cuda_world_finish(request, BATON_ERR_CANCELED);
	other = cuda_world_recv(cw.to, 8, 1, cw.streams[1]);
	ck_assert_int_eq(baton_recv(cw.to, 8, BATON_UINT8, 0, 2, cw.comms[1],
	                            cw.streams[1], NULL, NULL),
	                 BATON_ERR_AGAIN);
	cuda_world_let_go(0);
	cw.sim->sim_settle(false);
	cuda_world_finish(cuda_world_send(cw.from, 8, 1, cw.streams[0]), BATON_OK);
	cuda_world_finish(other, BATON_OK);
	for (int i = 0; i < 10; i++)
		message_on(cw.streams[0], cw.streams[1], 8, 2);
	cuda_world_end();
}
END_TEST

/* Also a timeout, from which the stream goes on at once. */
START_TEST(stream_goes_on_when_its_operation_ends_early)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request;

	cuda_world_open();
	options.timeout_ns = 1000000;
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 0, cw.comms[1],
	                    cw.streams[0], &options, &request));
	cuda_world_finish(request, BATON_ERR_TIMEOUT);
	cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
	request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	ck_assert_int_eq(baton_wait(request, 1000000, NULL), BATON_PENDING);
	ck_assert_uint_eq(cw.sim->stream_query(cw.streams[0]),
	                  BATONI_CU_NOT_READY);
	baton_ok(baton_cancel(request));
	cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
	cuda_world_finish(request, BATON_ERR_CANCELED);
	request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	baton_ok(baton_comm_abort(cw.comms[1]));
	cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
	cuda_world_finish(request, BATON_ERR_ABORTED);
	cuda_world_end();
}
END_TEST

static CUevent
new_event(void)
{
	CUevent event;

	cu_ok(cw.sim->event_create(&event, BATONI_CU_EVENT_DISABLE_TIMING));
	return event;
}

/* The test's thread makes no call of Baton's: the engine's thread does it all. */
static void
await_event(CUevent event)
{
	CUresult result;

	while ((result = cw.sim->event_query(event)) == BATONI_CU_NOT_READY)
		usleep(50);
	cu_ok(result);
}

START_TEST(event_after_a_receive_fires_only_when_the_data_is_there)
{
	static const size_t lengths[] = {1, 8, 1999, 2001, 100000, 4 * MIB};
	CUevent event;

	cuda_world_open();
	ck_assert(cw.sim->sim_set("seed", 11));
	event = new_event();
	for (unsigned i = 0; i < 30; i++) {
		size_t bytes = lengths[i % 6];
		baton_request a, b;

		cuda_world_fill(cw.from, bytes, i);
		b = cuda_world_recv(cw.to, bytes, 0, cw.streams[0]);
		cu_ok(cw.sim->event_record(event, cw.streams[0]));
		/* What the stream does next sees the data too. */
		cu_ok(cw.sim->copy(cuda_world_address(cw.to + 8 * MIB),
		                   cuda_world_address(cw.to), bytes,
		                   cw.streams[0]));
		cw.sim->sim_settle(false);
		ck_assert_uint_eq(cw.sim->event_query(event),
		                  BATONI_CU_NOT_READY);
		a = cuda_world_send(cw.from, bytes, 0, cw.streams[1]);
		await_event(event);
		cuda_world_expect(cw.to, bytes, i);
		cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
		cuda_world_expect(cw.to + 8 * MIB, bytes, i);
		cuda_world_finish(a, BATON_OK);
		cuda_world_finish(b, BATON_OK);
	}
	cu_ok(cw.sim->event_destroy(event));
	cuda_world_end();
}
END_TEST

static void
send_detached(size_t bytes, int tag, CUstream stream)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	baton_ok(baton_send(cw.from, bytes, BATON_UINT8, 1, tag, cw.comms[0],
	                    stream, &detached, NULL));
}

static void
add_one(void *number)
{
	atomic_fetch_add((_Atomic int *)number, 1);
}

/* One after the other: a host function that waits holds up all others of the device. */
START_TEST(one_stream_works_where_streams_cannot_wait)
{
	static _Atomic int number;
	baton_request record, b;
	CUevent event;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	cuda_world_open();
	ck_assert(cw.sim->sim_set("seed", 12));
	event = new_event();
	for (unsigned i = 0; i < 12; i++) {
		size_t bytes = i % 2 ? 4 * MIB : 8;

		cuda_world_fill(cw.from, bytes, i);
		send_detached(bytes, 0, cw.streams[0]);
		b = cuda_world_recv(cw.to, bytes, 0, cw.streams[0]);
		cu_ok(cw.sim->event_record(event, cw.streams[0]));
		await_event(event);
		cuda_world_expect(cw.to, bytes, i);
		baton_ok(baton_stream_launch(cw.comms[0], cw.streams[0], add_one,
		                             &number));
		baton_ok(baton_record(cw.comms[0], cw.streams[0], NULL, &record));
		baton_ok(baton_stream_wait(cw.comms[1], cw.streams[0], b));
		cuda_world_finish(record, BATON_OK);
		ck_assert_int_eq(atomic_load(&number), (int)i + 1);
		cuda_world_finish(b, BATON_OK);
	}
	baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
	cu_ok(cw.sim->event_destroy(event));
	cuda_world_end();
}
END_TEST

/* ---- launched functions --------------------------------------------------- */

struct gate {
	_Atomic bool entered, open;
};

static void
pass_gate(void *argument)
{
	struct gate *gate = argument;

	atomic_store(&gate->entered, true);
	while (!atomic_load(&gate->open))
		usleep(100);
}

START_TEST(launched_functions_that_block_hold_up_no_other_stream)
{
	static struct gate gates[2];
	CUstream s, t;
	baton_request record;

	cuda_world_open();
	s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	t = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_stream_launch(cw.comms[i], cw.streams[i],
		                             pass_gate, &gates[i]));
	baton_ok(baton_record(cw.comms[0], cw.streams[0], NULL, &record));
	for (int i = 0; i < 2; i++)
		while (!atomic_load(&gates[i].entered))
			usleep(100);
	message_on(s, t, 8, 0);
	message_on(t, s, 4 * MIB, 0);
	ck_assert_int_eq(baton_test(record, NULL), BATON_PENDING);
	for (int i = 0; i < 2; i++)
		atomic_store(&gates[i].open, true);
	cuda_world_finish(record, BATON_OK);
	baton_ok(baton_stream_synchronize(cw.comms[1], cw.streams[1]));
	cuda_world_end();
}
END_TEST

/* A launched function may call the driver, which a host function may not. */
static void
call_the_driver(void *unused)
{
	CUcontext popped;

	(void)unused;
	cu_ok(cw.sim->context_push(cw.context));
	cu_ok(cw.sim->stream_query(cw.streams[1]));
	cu_ok(cw.sim->context_pop(&popped));
}

START_TEST(launched_functions_may_call_the_driver)
{
	cuda_world_open();
	baton_ok(baton_stream_launch(cw.comms[0], cw.streams[0], call_the_driver,
	                             NULL));
	baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
	cuda_world_end();
}
END_TEST

/* ---- full streams --------------------------------------------------------- */

/* With queues as short as a GPU's, calls on which block with the context's lock. */
static void
open_bounded(void)
{
	cuda_world_load();
	ck_assert(cw.sim->sim_set("depth", 1022));
	ck_assert(cw.sim->sim_set("depth_lock", 1));
	open_with(2048);
}

START_TEST(stream_full_of_receives_is_refused_and_goes_on)
{
	static baton_request requests[2048];
	enum baton_status status = BATON_OK;
	int n = 0;

	open_bounded();
	while (n < 2048 && status == BATON_OK) {
		status = baton_recv(cw.to, 8, BATON_UINT8, 0, 0, cw.comms[1],
		                    cw.streams[0], NULL, &requests[n]);
		n += status == BATON_OK;
	}
	ck_assert_int_eq(status, BATON_ERR_AGAIN);
	assert_said("as many operations are on the stream", "wait for some");
	ck_assert_int_gt(n, 200);
	ck_assert_int_lt(n, 511);
	for (int i = 0; i < n; i++)
		cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[1]),
		                  BATON_OK);
	for (int i = 0; i < n; i++)
		cuda_world_finish(requests[i], BATON_OK);
	message_on(cw.streams[0], cw.streams[1], 8, 0);
	cuda_world_end();
}
END_TEST

struct synchronizer {
	pthread_t thread;
	_Atomic enum baton_status status; /* PENDING: it has not returned */
};

static void *
synchronize(void *argument)
{
	struct synchronizer *s = argument;

	cu_ok(cw.sim->context_push(cw.context));
	atomic_store(&s->status,
	             baton_stream_synchronize(cw.comms[1], cw.streams[0]));
	return NULL;
}

/* Until AGAIN. */
static void
fill_with_records(void)
{
	enum baton_status status = BATON_OK;

	while (status == BATON_OK)
		status = baton_record(cw.comms[1], cw.streams[0], NULL, NULL);
	ck_assert_int_eq(status, BATON_ERR_AGAIN);
	assert_said("as many operations are on the stream");
}

/* Waiting for what is on the stream needs space on it too. */
START_TEST(full_stream_is_synchronized)
{
	struct synchronizer s = {.status = BATON_PENDING};

	open_bounded();
	cuda_world_hold(cw.streams[0], 0);
	fill_with_records();
	pthread_create(&s.thread, NULL, synchronize, &s);
	for (int i = 0; i < 1000; i++)
		(void)baton_progress(cw.comms[1]);
	cw.sim->sim_settle(false);
	ck_assert_int_eq(atomic_load(&s.status), BATON_PENDING);
	cuda_world_let_go(0);
	pthread_join(s.thread, NULL);
	ck_assert_int_eq(atomic_load(&s.status), BATON_OK);
	baton_ok(baton_stream_query(cw.comms[1], cw.streams[0]));
	cuda_world_end();
}
END_TEST

START_TEST(synchronize_of_a_full_stream_ends_when_the_communicator_breaks)
{
	struct synchronizer s = {.status = BATON_PENDING};

	open_bounded();
	cuda_world_hold(cw.streams[0], 0);
	fill_with_records();
	pthread_create(&s.thread, NULL, synchronize, &s);
	baton_ok(baton_comm_abort(cw.comms[1]));
	pthread_join(s.thread, NULL);
	ck_assert_int_eq(atomic_load(&s.status), BATON_ERR_ABORTED);
	cuda_world_let_go(0);
	cuda_world_end();
}
END_TEST

/* The stream stands still for a reason of the program's own. */
START_TEST(stream_full_of_records_is_refused_and_goes_on)
{
	static baton_request requests[2048];
	enum baton_status status = BATON_OK;
	int n = 0;

	open_bounded();
	cuda_world_hold(cw.streams[0], 0);
	while (n < 2048 && status == BATON_OK) {
		status = baton_record(cw.comms[1], cw.streams[0], NULL,
		                      &requests[n]);
		n += status == BATON_OK;
	}
	ck_assert_int_eq(status, BATON_ERR_AGAIN);
	assert_said("as many operations are on the stream");
	ck_assert_int_gt(n, 400);
	ck_assert_int_lt(n, 1021);
	send_detached(8, 1, cw.streams[1]);
	cuda_world_finish(cuda_world_recv(cw.to, 8, 1, cw.streams[1]), BATON_OK);
	cuda_world_let_go(0);
	for (int i = 0; i < n; i++)
		cuda_world_finish(requests[i], BATON_OK);
	baton_ok(baton_record(cw.comms[1], cw.streams[0], NULL, &requests[0]));
	cuda_world_finish(requests[0], BATON_OK);
	cuda_world_end();
}
END_TEST

/* ---- nothing grows -------------------------------------------------------- */

struct level {
	long streams, thread_streams, device, pinned, pinned_bytes, blocks;
};

static struct level
level_now(void)
{
	return (struct level){cw.sim->sim_live("streams"),
	                      cw.sim->sim_live("thread_streams"),
	                      cw.sim->sim_live("device"),
	                      cw.sim->sim_live("pinned"),
	                      cw.sim->sim_live("pinned_bytes"),
	                      batoni_mem_blocks()};
}

static void
assert_level(const struct level *before)
{
	const struct level now = level_now();

	ck_assert_int_eq(now.streams, before->streams);
	ck_assert_int_eq(now.thread_streams, before->thread_streams);
	ck_assert_int_eq(now.device, before->device);
	ck_assert_int_eq(now.pinned, before->pinned);
	ck_assert_int_eq(now.pinned_bytes, before->pinned_bytes);
	ck_assert_int_eq(now.blocks, before->blocks);
}

static void
four_messages(void)
{
	static const size_t lengths[] = {8, 3000, 1, 700000};
	baton_request requests[8];

	for (int i = 0; i < 4; i++)
		requests[i] = cuda_world_recv(cw.to + (size_t)i * MIB, lengths[i],
		                              i, cw.streams[0]);
	for (int i = 0; i < 4; i++)
		requests[4 + i] = cuda_world_send(cw.from, lengths[i], i,
		                                  cw.streams[1]);
	for (int i = 0; i < 8; i++)
		cuda_world_finish(requests[i], BATON_OK);
}

/* Of operations that are aborted: nobody asks for their marks any more. */
START_TEST(marks_that_are_dropped_leave_nothing)
{
	const struct batoni_device_ops *ops;
	struct batoni_device *device;
	struct batoni_mark mark = {0};
	long events = 0;

	cuda_world_open();
	ops = cw.comms[0]->device_ops;
	device = cw.comms[0]->device;
	cuda_world_hold(cw.streams[0], 0);
	for (int i = 0; i < 100; i++) {
		baton_ok(ops->marks->mark(device, cw.streams[i % 2], &mark));
		ops->marks->mark_drop(device, &mark);
		ck_assert_ptr_null(mark.object);
		if (i == 0)
			events = cw.sim->sim_live("events");
	}
	ck_assert_int_eq(cw.sim->sim_live("events"), events);
	/* An event that was dropped before its stream had passed it works. */
	baton_ok(ops->marks->mark(device, cw.streams[0], &mark));
	ck_assert_int_eq(ops->marks->mark_done(device, &mark), BATON_PENDING);
	cuda_world_let_go(0);
	cw.sim->sim_settle(false);
	baton_ok(ops->marks->mark_done(device, &mark));
	cuda_world_end();
}
END_TEST

START_TEST(nothing_grows_over_ten_thousand_operations)
{
	struct level before;
	long events;

	cuda_world_open();
	for (int i = 0; i < 50; i++)
		four_messages();
	before = level_now();
	for (int i = 0; i < 1250; i++)
		four_messages();
	assert_level(&before);
	/* As many as copies were under way at a time. */
	events = cw.sim->sim_live("events");
	ck_assert_int_lt(events, 64);
	cuda_world_end();
}
END_TEST

START_TEST(nothing_grows_over_a_hundred_communicators)
{
	static _Atomic int number;
	struct level before = {0};

	cuda_world_begin();
	for (int i = 0; i < 105; i++) {
		cuda_world_comms(NULL);
		four_messages();
		baton_ok(baton_stream_launch(cw.comms[0], cw.streams[0], add_one,
		                             &number));
		baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
		cuda_world_destroy();
		if (i == 4)
			before = level_now();
	}
	ck_assert_int_eq(atomic_load(&number), 105);
	assert_level(&before);
	ck_assert_int_lt(cw.sim->sim_live("events"), 64);
	cuda_world_end();
}
END_TEST

/* ---- many streams --------------------------------------------------------- */

START_TEST(more_streams_than_indices_one_after_the_other)
{
	static _Atomic int number;
	struct level before = {0};

	cuda_world_open();
	for (int i = 0; i < 5 * STREAMS_MAX / 2; i++) {
		CUstream s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);

		if (i % 50 == 0) {
			baton_ok(baton_stream_launch(cw.comms[0], s, add_one,
			                             &number));
			baton_ok(baton_stream_synchronize(cw.comms[0], s));
		}
		send_detached(8, 0, cw.streams[1]);
		cuda_world_finish(cuda_world_recv(cw.to, 8, 0, s), BATON_OK);
		cu_ok(cw.sim->stream_destroy(s));
		if (i == STREAMS_MAX)
			before = level_now();
	}
	ck_assert_int_eq(atomic_load(&number), 5 * STREAMS_MAX / 2 / 50 + 1);
	assert_level(&before);
	cuda_world_end();
}
END_TEST

START_TEST(more_streams_than_indices_at_a_time_are_refused)
{
	static CUstream streams[STREAMS_MAX + 1];
	static baton_request requests[STREAMS_MAX + 1];

	open_with(2 * STREAMS_MAX);
	for (int i = 0; i <= STREAMS_MAX; i++) {
		streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		cuda_world_hold(streams[i], 0);
	}
	for (int i = 0; i < STREAMS_MAX; i++)
		baton_ok(baton_record(cw.comms[0], streams[i], NULL,
		                      &requests[i]));
	ck_assert_int_eq(baton_record(cw.comms[0], streams[STREAMS_MAX], NULL,
	                              &requests[STREAMS_MAX]),
	                 BATON_ERR_AGAIN);
	assert_said("1024 streams");
	/* Nothing is on that one, for which nobody need wait until another has ended. */
	baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
	cuda_world_let_go(0);
	for (int i = 0; i < STREAMS_MAX; i++)
		cuda_world_finish(requests[i], BATON_OK);
	baton_ok(baton_record(cw.comms[0], streams[STREAMS_MAX], NULL,
	                      &requests[STREAMS_MAX]));
	cuda_world_finish(requests[STREAMS_MAX], BATON_OK);
	message_on(streams[STREAMS_MAX], streams[1], 8, 0);
	cuda_world_end();
}
END_TEST

static _Atomic bool reached;

static void
note_reached(struct batoni_stream_item *item)
{
	(void)item;
	atomic_store(&reached, true);
}

/* Between the check of a launch and the launch other streams may take the place. */
START_TEST(launch_finds_its_thread_though_the_place_was_taken)
{
	static struct batoni_stream_item item = {.reached = note_reached,
	                                         .flags = BATONI_ITEM_LAUNCH};
	struct batoni_device *device;

	cuda_world_open();
	device = batoni_comm_device(cw.comms[0]);
	baton_ok(device->ops->stream_check(device, cw.streams[0], true));
	for (int i = 0; i < 2 * STREAMS_MAX; i++) {
		CUstream s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		baton_request request;

		baton_ok(baton_record(cw.comms[0], s, NULL, &request));
		cuda_world_finish(request, BATON_OK);
		cu_ok(cw.sim->stream_destroy(s));
	}
	baton_ok(device->ops->enqueue(device, cw.streams[0], &item));
	cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
	ck_assert(atomic_load(&reached));
	cuda_world_end();
}
END_TEST

static struct {
	sem_t asked, told, ended;
	unsigned index; /* that its default stream is to have */
} thread;

/* Has operations on its own default stream. */
static void *
per_thread_main(void *unused)
{
	CUstream own = (CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;
	unsigned long long id = 0;
	baton_request request;

	(void)unused;
	cu_ok(cw.sim->context_push(cw.context));
	cu_ok(cw.sim->stream_id(own, &id));
	thread.index = (unsigned)(id % STREAMS_MAX);
	sem_post(&thread.told);
	sem_wait(&thread.asked);
	baton_ok(baton_record(cw.comms[0], own, NULL, &request));
	cuda_world_finish(request, BATON_OK);
	sem_post(&thread.told);
	sem_wait(&thread.ended);
	return NULL;
}

/* A call has found a record that then became that of another thread's default stream. */
START_TEST(a_default_stream_does_not_get_what_was_found_for_another_one)
{
	const struct cuda_gpu *gpu;
	uint64_t triggers;
	baton_request request;
	pthread_t other;

	sem_init(&thread.asked, 0, 0);
	sem_init(&thread.told, 0, 0);
	sem_init(&thread.ended, 0, 0);
	cuda_world_open();
	gpu = batoni_cuda_gpu(batoni_comm_device(cw.comms[0]));
	for (int i = 0; i < STREAMS_MAX; i++) {
		CUstream s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);

		baton_ok(baton_record(cw.comms[0], s, NULL, &request));
		cuda_world_finish(request, BATON_OK);
	}
	ck_assert_int_eq(pthread_create(&other, NULL, per_thread_main, NULL), 0);
	sem_wait(&thread.told);
	baton_ok(baton_stream_query(cw.comms[0],
	                            gpu->streams[thread.index]->handle));
	sem_post(&thread.asked);
	sem_wait(&thread.told);
	ck_assert_ptr_null(gpu->streams[thread.index]->handle);
	triggers = gpu->streams[thread.index]->triggers;
	baton_ok(baton_record(cw.comms[0], NULL, NULL, &request));
	cuda_world_finish(request, BATON_OK);
	ck_assert_uint_eq(gpu->streams[thread.index]->triggers, triggers);
	sem_post(&thread.ended);
	pthread_join(other, NULL);
	cuda_world_end();
}
END_TEST

/* ---- what the program takes away ------------------------------------------ */

/* baton_stream_destroy asks for a second whether the stream is idle.  Without sleeps it asks a million times. */
START_TEST(destroy_of_a_busy_stream_leaves_its_core)
{
	baton_stream busy;
	baton_request request;
	long asked;

	cuda_world_open();
	baton_ok(baton_stream_create(cw.comms[1], &busy));
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 0, cw.comms[1], busy, NULL,
	                    &request));
	asked = cw.sim->sim_uses("cuStreamQuery");
	ck_assert_int_eq(baton_stream_destroy(cw.comms[1], busy), BATON_ERR_BUSY);
	asked = cw.sim->sim_uses("cuStreamQuery") - asked;
	ck_assert_int_gt(asked, 1);
	ck_assert_int_lt(asked, 25000);
	baton_ok(baton_cancel(request));
	cuda_world_finish(request, BATON_ERR_CANCELED);
	baton_ok(baton_stream_destroy(cw.comms[1], busy));
	cuda_world_end();
}
END_TEST

START_TEST(stream_destroyed_under_an_operation_harms_no_other)
{
	CUstream s, t, sender;
	baton_request old, new;

	cuda_world_open();
	sender = cuda_world_urgent_stream();
	for (int i = 0; i < 20; i++) {
		s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		old = cuda_world_recv(cw.to, 8, 1, s);
		cu_ok(cw.sim->stream_destroy(s));
		/* It has the handle of the other. */
		t = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		ck_assert_ptr_eq(t, s);
		new = cuda_world_recv(cw.to + 64, 8, 2, t);
		cuda_world_fill(cw.from, 8, 1);
		cuda_world_fill(cw.from + 64, 8, 2);
		if (i % 2) {
			cuda_world_finish(cuda_world_send(cw.from + 64, 8, 2,
			                                  sender),
			                  BATON_OK);
			cuda_world_finish(new, BATON_OK);
		}
		cuda_world_finish(cuda_world_send(cw.from, 8, 1, sender),
		                  BATON_OK);
		cuda_world_finish(old, BATON_OK);
		if (i % 2 == 0) {
			cuda_world_finish(cuda_world_send(cw.from + 64, 8, 2,
			                                  sender),
			                  BATON_OK);
			cuda_world_finish(new, BATON_OK);
		}
		cuda_world_expect(cw.to, 8, 1);
		cuda_world_expect(cw.to + 64, 8, 2);
		cu_ok(cw.sim->stream_destroy(t));
	}
	cuda_world_end();
}
END_TEST

/* The freed block's communicator may break; others do not notice. */
static void
free_under_a_receive(size_t bytes)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *others[2];
	struct baton_completion ended;
	baton_request a, b, other;
	CUdeviceptr memory;
	char text[256];

	baton_ok(baton_comm_create_local(2, &options, others));
	cu_ok(cw.sim->mem_alloc(&memory, 4 * MIB));
	b = cuda_world_recv((void *)(uintptr_t)memory, bytes, 0, cw.streams[0]);
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 0, others[1], cw.streams[0],
	                    NULL, &other));
	/* It is issued: the memory was looked at. */
	cw.sim->sim_settle(false);
	ck_assert_int_eq(baton_wait(b, 1000000, NULL), BATON_PENDING);
	cu_ok(cw.sim->mem_free(memory));
	a = cuda_world_send(cw.from, bytes, 0, cw.streams[1]);
	ck_assert_int_ne(baton_wait(b, LONG_NS, &ended), BATON_PENDING);
	ck_assert_int_ne(ended.status, BATON_OK);
	baton_ok(baton_request_error(b, text, sizeof(text)));
	ck_assert_str_ne(text, "");
	ck_assert_int_ne(baton_finish(&a, LONG_NS, NULL), BATON_PENDING);
	baton_ok(baton_release(&b));
	ck_assert_int_eq(baton_test(other, NULL), BATON_PENDING);
	baton_ok(baton_send(cw.from, 8, BATON_UINT8, 1, 0, others[0],
	                    cw.streams[1], NULL, &a));
	cuda_world_finish(a, BATON_OK);
	cuda_world_finish(other, BATON_OK);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(others[i]));
	cuda_world_destroy();
}

START_TEST(memory_freed_under_a_receive_harms_no_other_communicator)
{
	static const size_t lengths[] = {8, 4 * MIB};

	/* Else freeing would wait for the stream, which waits for the message. */
	cuda_world_load();
	ck_assert(cw.sim->sim_set("implicit", 0));
	cuda_world_begin();
	for (int i = 0; i < 2; i++) {
		cuda_world_comms(NULL);
		free_under_a_receive(lengths[i]);
	}
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		trigger_may_fire_after_its_operation_was_cancelled,
		stream_goes_on_when_its_operation_ends_early,
		event_after_a_receive_fires_only_when_the_data_is_there,
		one_stream_works_where_streams_cannot_wait,
		launched_functions_that_block_hold_up_no_other_stream,
		launched_functions_may_call_the_driver,
		stream_full_of_receives_is_refused_and_goes_on,
		stream_full_of_records_is_refused_and_goes_on,
		full_stream_is_synchronized,
		synchronize_of_a_full_stream_ends_when_the_communicator_breaks,
		marks_that_are_dropped_leave_nothing,
		nothing_grows_over_ten_thousand_operations,
		nothing_grows_over_a_hundred_communicators,
		more_streams_than_indices_one_after_the_other,
		more_streams_than_indices_at_a_time_are_refused,
		launch_finds_its_thread_though_the_place_was_taken,
		a_default_stream_does_not_get_what_was_found_for_another_one,
		destroy_of_a_busy_stream_leaves_its_core,
		stream_destroyed_under_an_operation_harms_no_other,
		memory_freed_under_a_receive_harms_no_other_communicator,
	};

	return RUN_TESTS("cuda_streams", tests);
}
