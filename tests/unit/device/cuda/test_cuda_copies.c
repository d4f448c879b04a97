/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What staged messages cost in calls of the driver.  How the ends of copies are seen: by numbers
 * that streams write, by events where they write none, and by the driver where a GPU is sick.
 * Which context the engine's thread is in.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "cuda_stream.h"
#include "cuda_world.h"
#include "device.h"
#include "memory.h"
#include "thread.h"

static baton_request sender, receiver;

/* The test's thread drives, or the engine's. */
static void
open_world(enum baton_progress progress)
{
	struct baton_comm_options options = cuda_world_options();

	options.progress = progress;
	cuda_world_begin();
	cuda_world_comms(&options);
}

/* A message of 8 bytes, which both streams have come to, and no thread has looked at. */
static void
make_ready(const void *from, void *to)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	baton_ok(baton_recv(to, 8, BATON_UINT8, 0, 0, cw.comms[1], cw.streams[0],
	                    &detached, &receiver));
	baton_ok(baton_send(from, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                    cw.streams[1], &detached, &sender));
	cw.sim->sim_settle(false);
}

static void
finish(enum baton_status expected)
{
	cuda_world_finish(sender, expected);
	cuda_world_finish(receiver, expected);
}

/* The same, and drive until the first copy of all has been started. */
static void
start_copy(const void *from, void *to)
{
	make_ready(from, to);
	while (cw.sim->sim_uses("cuMemcpyAsync") == 0)
		baton_progress(cw.comms[0]);
}

/* Of so many passes a few ask whether the GPU is well. */
START_TEST(to_ask_a_copy_is_no_call)
{
	enum { PASSES = 20000 };
	long before;

	open_world(BATON_PROGRESS_CALLS);
	ck_assert(cw.sim->sim_set("copies", 0));
	cuda_world_fill(cw.from, 8, 3);
	start_copy(cw.from, cw.to);
	before = cw.sim->sim_total();
	for (int i = 0; i < PASSES; i++)
		baton_progress(cw.comms[0]);
	ck_assert_int_le(cw.sim->sim_total() - before, PASSES / 20);
	ck_assert_int_eq(baton_test(sender, NULL), BATON_PENDING);
	ck_assert(cw.sim->sim_set("copies", 1));
	finish(BATON_OK);
	cuda_world_expect(cw.to, 8, 3);
	ck_assert_int_eq(cw.sim->sim_uses("cuEventRecord"), 0);
	ck_assert_int_eq(cw.sim->sim_uses("cuEventQuery"), 0);
	cuda_world_end();
}
END_TEST

/* The write behind the copy of the send is refused, and then the event too. */
START_TEST(a_copy_whose_number_is_refused_ends_by_what_the_driver_says)
{
	open_world(BATON_PROGRESS_CALLS);
	for (long events = 1; events >= 0; events--) {
		long before = cw.sim->sim_uses("cuEventQuery");

		cuda_world_fill(cw.from, 8, (unsigned)events);
		/* Before: the call of the send may start its copy. */
		ck_assert(cw.sim->sim_fail("cuStreamBatchMemOp_v2", 1, 2, false));
		if (events == 0)
			ck_assert(cw.sim->sim_fail("cuEventRecord", 1, 2, false));
		make_ready(cw.from, cw.to);
		finish(BATON_OK);
		cuda_world_expect(cw.to, 8, (unsigned)events);
		ck_assert_int_eq(cw.sim->sim_uses("cuEventQuery") > before,
		                 events);
	}
	/* Numbers go on. */
	make_ready(cw.from, cw.to);
	finish(BATON_OK);
	cuda_world_end();
}
END_TEST

/* Another device than the communicator's copies, and falls sick: nobody asks for its health, as
 * the communicator's own device is well. */
static void
another_device_fails(bool with_words)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *others[2] = {NULL, NULL};
	CUcontext other, popped;
	CUdeviceptr memory;
	char text[300];

	open_world(BATON_PROGRESS_CALLS);
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 4096));
	cu_ok(cw.sim->context_pop(&popped));
	options.cuda_device = 1;
	options.progress = BATON_PROGRESS_CALLS;
	if (with_words)
		baton_ok(baton_comm_create_local(2, &options, others));
	ck_assert(cw.sim->sim_set("copies", 0));
	start_copy((void *)(uintptr_t)memory, cw.to);
	ck_assert_int_eq(cw.sim->sim_uses("cuEventRecord"), !with_words);
	cw.sim->sim_break(1, 700);
	ck_assert_int_eq(baton_wait(sender, LONG_NS, NULL), BATON_ERR_CUDA);
	baton_ok(baton_request_error(sender, text, sizeof(text)));
	cuda_world_has(text, (const char *const[]){"700", "Query", NULL});
	baton_ok(baton_comm_abort(cw.comms[1]));
	baton_ok(baton_release(&sender));
	cuda_world_finish(receiver, BATON_ERR_ABORTED);
	for (int i = 0; i < 2 && with_words; i++)
		baton_ok(baton_comm_destroy(others[i]));
	cuda_world_end();
}

START_TEST(a_copy_of_another_device_that_fails_ends)
{
	another_device_fails(true);
}
END_TEST

START_TEST(a_copy_of_another_device_without_communicators_that_fails_ends)
{
	another_device_fails(false);
}
END_TEST

/* ---- counts ---------------------------------------------------------------- */

/* Calls of the driver, by what they are for. */
struct calls {
	long puts;     /* work on streams, the program's and ours */
	long asks; /* what is: contexts, captures, streams, ends; not whether the GPU is well,
	            * which is asked from time to time (cuStreamQuery) */
	long modes;    /* the capture mode of a thread */
	long contexts; /* its current context */
};

static struct calls
count_calls(void)
{
	return (struct calls){
		uses_of("cuLaunchHostFunc", "cuStreamBatchMemOp",
		        "cuStreamWriteValue64", "cuMemcpyAsync",
		        "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2",
		        "cuEventRecord", "cuStreamWaitEvent"),
		uses_of("cuCtxGetCurrent", "cuCtxGetDevice", "cuStreamGetCtx",
		        "cuStreamIsCapturing", "cuStreamGetId",
		        "cuStreamGetPriority", "cuEventQuery"),
		uses_of("cuThreadExchangeStreamCaptureMode"),
		uses_of("cuCtxPushCurrent", "cuCtxPopCurrent"),
	};
}

/* A send and a receive of 8 bytes, which the engine's thread carries out: the streams stand until
 * the calls have returned, and then the program waits by the driver.  The streams are of the
 * communicators' context, which is current. */
static void
pass_by_thread(struct baton_comm *const comms[2], const CUstream streams[2],
               unsigned char *from, unsigned char *to,
               const struct baton_op_options *sending)
{
	baton_request sent, received;

	atomic_store(&cw.words[0], 0);
	for (int i = 0; i < 2; i++)
		cuda_world_hold(streams[i], 0);
	baton_ok(baton_recv(to, 8, BATON_UINT8, 0, 0, comms[1], streams[0], NULL,
	                    &received));
	baton_ok(baton_send(from, 8, BATON_UINT8, 1, 0, comms[0], streams[1],
	                    sending, &sent));
	cuda_world_let_go(0);
	for (int i = 0; i < 2; i++)
		cu_ok(cw.sim->stream_synchronize(streams[i]));
	baton_ok(baton_release(&sent));
	baton_ok(baton_release(&received));
}

/* Of both together: the least of some, as the first ones find nothing known. */
static void
expect_calls(const struct baton_op_options *sending, struct calls expected)
{
	struct calls least = {1000, 1000, 1000, 1000};

	for (unsigned i = 0; i < 12; i++) {
		struct calls before = count_calls(), after;

		cuda_world_fill(cw.from, 8, i);
		pass_by_thread(cw.comms, cw.streams, cw.from, cw.to, sending);
		cuda_world_expect(cw.to, 8, i);
		/* One that is detached may end after the receive. */
		cw.sim->sim_settle(false);
		after = count_calls();
		if (after.puts + after.asks - before.puts - before.asks <
		    least.puts + least.asks)
			least = (struct calls){after.puts - before.puts,
			                       after.asks - before.asks,
			                       after.modes - before.modes,
			                       after.contexts -
			                               before.contexts};
	}
	ck_assert_int_eq(least.puts, expected.puts);
	ck_assert_int_eq(least.asks, expected.asks);
	ck_assert_int_eq(least.modes, expected.modes);
	ck_assert_int_eq(least.contexts, expected.contexts);
}

/* Each: [trigger] [wait] on its stream; on ours [copy] [number], or, of the receive, [value and
 * number].  The call asks for the thread's context, the stream's capture and its number; the thread that
 * drives asks nothing. */
START_TEST(a_send_is_four_calls_that_put_and_a_receive_three_and_three_ask)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	open_world(BATON_PROGRESS_AUTO);
	expect_calls(NULL, (struct calls){4 + 3, 3 + 3, 2 + 2, 0});
	detached.flags = BATON_OP_DETACHED;
	expect_calls(&detached, (struct calls){3 + 3, 3 + 3, 2 + 2, 0});
	cuda_world_end();
}
END_TEST

/* One that is refused; then two that nest, and one that is refused within them.  The thread has no
 * context, and a mode of its own. */
START_TEST(transactions_enter_once_and_leave_the_thread_as_it_was)
{
	const struct batoni_need one = {.entries = 1}, much = {.entries = 100000};
	CUstreamCaptureMode mode = CUDASIM_CAPTURE_THREAD_LOCAL;
	struct batoni_mark marks[2] = {{.entries = 3}, {.entries = 3}};
	const struct batoni_device_ops *ops;
	struct batoni_device *device;
	CUcontext popped, current;
	struct calls before, after;

	open_world(BATON_PROGRESS_CALLS);
	ops = cw.comms[0]->device_ops;
	device = cw.comms[0]->device;
	cu_ok(cw.sim->capture_mode(&mode));
	cu_ok(cw.sim->context_pop(&popped));
	ck_assert_int_eq(ops->bounds->begin(device, cw.streams[0], &much),
	                 BATON_ERR_AGAIN);
	before = count_calls();
	for (int i = 0; i < 2; i++)
		baton_ok(ops->bounds->begin(device, cw.streams[i], &one));
	ck_assert_int_eq(ops->bounds->begin(device, cw.streams[1], &much),
	                 BATON_ERR_AGAIN);
	for (int i = 0; i < 2; i++)
		baton_ok(ops->marks->mark(device, cw.streams[i], &marks[i]));
	for (int i = 0; i < 2; i++)
		ops->bounds->commit(device);
	after = count_calls();
	ck_assert_int_eq(after.modes - before.modes, 2);
	ck_assert_int_eq(after.contexts - before.contexts, 2);
	cu_ok(cw.sim->context_current(&current));
	ck_assert_ptr_null(current);
	cu_ok(cw.sim->capture_mode(&mode));
	ck_assert_int_eq(mode, CUDASIM_CAPTURE_THREAD_LOCAL);
	cu_ok(cw.sim->context_push(popped));
	cw.sim->sim_settle(false);
	for (int i = 0; i < 2; i++)
		baton_ok(ops->marks->mark_done(device, &marks[i]));
	cuda_world_end();
}
END_TEST

/* NULL and 1 are two handles of the legacy default stream. */
START_TEST(a_transaction_counts_a_stream_of_two_handles_once)
{
	const struct batoni_need one = {.entries = 1};
	CUstream const handles[] = {NULL, (CUstream)BATONI_CU_STREAM_LEGACY_VALUE};
	const struct batoni_device_ops *ops;
	struct batoni_device *device;

	open_world(BATON_PROGRESS_CALLS);
	ops = cw.comms[0]->device_ops;
	device = cw.comms[0]->device;
	for (int i = 0; i < 4; i++) {
		struct batoni_mark mark = {.entries = 3};

		baton_ok(ops->bounds->begin(device, handles[i / 2], &one));
		baton_ok(ops->marks->mark(device, handles[i % 2], &mark));
		ops->bounds->commit(device);
		cw.sim->sim_settle(false);
		baton_ok(ops->marks->mark_done(device, &mark));
	}
	ck_assert(batoni_cuda_streams_passed(batoni_cuda_gpu(device)));
	cuda_world_end();
}
END_TEST

/* How many copies a receive makes; each call sends other bytes. */
static long
copies_of_receive(unsigned char *to, size_t bytes)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	long before = cw.sim->sim_uses("cuMemcpyAsync");
	static unsigned seed;

	detached.flags = BATON_OP_DETACHED;
	cuda_world_fill(cw.from, bytes, ++seed);
	cuda_world_fill(to - 8, 8, 98);
	cuda_world_fill(to + bytes, 8, 99);
	baton_ok(baton_recv(to, bytes, BATON_UINT8, 0, 0, cw.comms[1],
	                    cw.streams[0], &detached, &receiver));
	baton_ok(baton_send(cw.from, bytes, BATON_UINT8, 1, 0, cw.comms[0],
	                    cw.streams[1], &detached, &sender));
	finish(BATON_OK);
	cuda_world_expect(to - 8, 8, 98);
	cuda_world_expect(to, bytes, seed);
	cuda_world_expect(to + bytes, 8, 99);
	/* The send makes one. */
	return cw.sim->sim_uses("cuMemcpyAsync") - before - 1;
}

START_TEST(a_receive_of_8_bytes_of_the_devices_is_written)
{
	CUdeviceptr managed;
	unsigned char *to;

	open_world(BATON_PROGRESS_CALLS);
	ck_assert_int_eq(copies_of_receive(cw.to + 8, 8), 0);
	ck_assert_int_eq(copies_of_receive(cw.to + 12, 8), 1);
	ck_assert_int_eq(copies_of_receive(cw.to + 8, 7), 1);
	ck_assert_int_eq(copies_of_receive(cw.to + 8, 16), 1);
	cu_ok(cw.sim->managed_alloc(&managed, 4096, 1));
	to = (unsigned char *)(uintptr_t)managed;
	ck_assert_int_eq(copies_of_receive(to + 8, 8), 1);
	cuda_world_end();
}
END_TEST

/* The first batch is the number of the send's copy. */
START_TEST(a_value_that_the_driver_refuses_is_copied)
{
	open_world(BATON_PROGRESS_CALLS);
	ck_assert(cw.sim->sim_fail("cuStreamBatchMemOp_v2", 2,
	                           BATONI_CU_NOT_SUPPORTED, false));
	ck_assert_int_eq(copies_of_receive(cw.to + 8, 8), 1);
	ck_assert_int_eq(cw.sim->sim_uses("cuEventRecord"), 0);
	ck_assert_int_eq(copies_of_receive(cw.to + 8, 8), 0);
	cuda_world_end();
}
END_TEST

/* ---- the engine's thread --------------------------------------------------- */

/* The second GPU of a process: what the test needs there. */
static struct {
	CUcontext context;
	struct baton_comm *comms[2];
	CUstream streams[2];
	unsigned char *from, *to;
} second;

static void
open_second(void)
{
	struct baton_comm_options options = cuda_world_options();
	CUdeviceptr memory;
	CUcontext popped;

	cu_ok(cw.sim->primary_retain(&second.context, 1));
	cu_ok(cw.sim->context_push(second.context));
	cu_ok(cw.sim->mem_alloc(&memory, 4096));
	second.from = (void *)(uintptr_t)memory;
	second.to = second.from + 2048;
	for (int i = 0; i < 2; i++)
		second.streams[i] =
			cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cu_ok(cw.sim->context_pop(&popped));
	options.cuda_device = 1;
	baton_ok(baton_comm_create_local(2, &options, second.comms));
}

static void
pass_on_second(unsigned seed)
{
	CUcontext popped;

	cuda_world_fill(second.from, 8, seed);
	cu_ok(cw.sim->context_push(second.context));
	pass_by_thread(second.comms, second.streams, second.from, second.to,
	               NULL);
	cu_ok(cw.sim->context_pop(&popped));
	cuda_world_expect(second.to, 8, seed);
}

/* More often than a stack of contexts is deep. */
START_TEST(the_engines_thread_goes_from_one_device_to_another)
{
	open_world(BATON_PROGRESS_AUTO);
	open_second();
	for (unsigned i = 0; i < 40; i++) {
		pass_on_second(i);
		cuda_world_fill(cw.from, 8, i + 1);
		pass_by_thread(cw.comms, cw.streams, cw.from, cw.to, NULL);
		cuda_world_expect(cw.to, 8, i + 1);
	}
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(second.comms[i]));
	cuda_world_end();
}
END_TEST

/* The thread is in the context that is reset, and in another one. */
START_TEST(the_engines_thread_leaves_a_context_that_was_reset)
{
	open_world(BATON_PROGRESS_AUTO);
	for (unsigned i = 0; i < 6; i++) {
		open_second();
		pass_on_second(i);
		for (int j = 0; j < 2; j++)
			baton_ok(baton_comm_destroy(second.comms[j]));
		if (i % 2)
			pass_by_thread(cw.comms, cw.streams, cw.from, cw.to,
			               NULL);
		cu_ok(cw.sim->primary_reset(1));
	}
	pass_by_thread(cw.comms, cw.streams, cw.from, cw.to, NULL);
	cuda_world_end();
}
END_TEST

/* This thread stands for the engine's, on which a library below has changed the context, or
 * taken it away. */
START_TEST(a_context_that_a_library_has_changed_is_found)
{
	CUcontext other, popped;

	open_world(BATON_PROGRESS_CALLS);
	cu_ok(cw.sim->primary_retain(&other, 1));
	batoni_thread.stays = true;
	for (unsigned i = 0; i < 9; i++) {
		cuda_world_fill(cw.from, 8, i);
		make_ready(cw.from, cw.to);
		if (i % 3 == 1)
			cu_ok(cw.sim->context_set(other));
		if (i % 3 == 2)
			cu_ok(cw.sim->context_pop(&popped));
		finish(BATON_OK);
		cuda_world_expect(cw.to, 8, i);
	}
	/* It was this one's when the test began. */
	batoni_thread.stays = false;
	cuda_world_end();
}
END_TEST

/* As a CUDA-aware MPI has it, of whose messages one has come for another GPU. */
START_TEST(a_library_keeps_its_context_when_another_device_copies)
{
	struct batoni_device *device;
	const struct batoni_memory_ops *memory;
	struct batoni_memory_guard guard;
	struct batoni_ticket ticket;
	CUcontext current;

	open_world(BATON_PROGRESS_CALLS);
	open_second();
	device = cw.comms[0]->device;
	memory = device->ops->memory;
	batoni_thread.stays = true;
	baton_ok(memory->library->enter(device, &guard));
	baton_ok(memory->copy_start(device, second.to, second.from, 8, 1,
	                            &ticket));
	cu_ok(cw.sim->context_current(&current));
	ck_assert_ptr_eq(current, cw.context);
	while (memory->copy_test(device, &ticket) == BATON_PENDING)
		;
	cu_ok(cw.sim->context_current(&current));
	ck_assert_ptr_eq(current, cw.context);
	memory->library->exit(device, &guard);
	batoni_thread.stays = false;
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(second.comms[i]));
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_send_is_four_calls_that_put_and_a_receive_three_and_three_ask,
		transactions_enter_once_and_leave_the_thread_as_it_was,
		a_transaction_counts_a_stream_of_two_handles_once,
		a_receive_of_8_bytes_of_the_devices_is_written,
		a_value_that_the_driver_refuses_is_copied,
		to_ask_a_copy_is_no_call,
		a_copy_whose_number_is_refused_ends_by_what_the_driver_says,
		a_copy_of_another_device_that_fails_ends,
		a_copy_of_another_device_without_communicators_that_fails_ends,
		the_engines_thread_goes_from_one_device_to_another,
		the_engines_thread_leaves_a_context_that_was_reset,
		a_context_that_a_library_has_changed_is_found,
		a_library_keeps_its_context_when_another_device_copies,
	};

	return RUN_TESTS("cuda_copies", tests);
}
