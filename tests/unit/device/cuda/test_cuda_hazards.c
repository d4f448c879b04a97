/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The deadlocks that streams that wait can lead to, over the simulator: implicit
 * synchronisation, shared hardware queues, host functions that hold each other up.
 *
 * Rank 0 is on device 0, whose streams stand still; rank 1 sends from device 1.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_world.h"
#include "mem.h"

static CUcontext other;      /* device 1's */
static CUstream other_stream;
static unsigned char *there; /* 8 MiB */

static void
open_two(void)
{
	struct baton_comm_options options = cuda_world_options();
	CUcontext popped;
	CUdeviceptr memory;

	cuda_world_begin();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 8 * MIB));
	there = (void *)(uintptr_t)memory;
	other_stream = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cu_ok(cw.sim->context_pop(&popped));
	/* Without a current context ranks take the devices in turn. */
	cu_ok(cw.sim->context_pop(&popped));
	options.cuda_device = -1;
	cuda_world_comms(&options);
	cu_ok(cw.sim->context_push(popped));
}

static baton_request
receive(size_t bytes, int tag, CUstream stream)
{
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_recv(cw.to, bytes, BATON_UINT8, 1, tag, cw.comms[0],
	                    stream, NULL, &request));
	return request;
}

static void
send_from_there(size_t bytes, int tag)
{
	baton_request request;

	baton_ok(baton_send(there, bytes, BATON_UINT8, 0, tag, cw.comms[1],
	                    other_stream, NULL, &request));
	cuda_world_finish(request, BATON_OK);
}

/* The stream has reached the receive and waits. */
static void
await_arming(baton_request request)
{
	cw.sim->sim_settle(true);
	ck_assert_int_eq(baton_wait(request, 1000000, NULL), BATON_PENDING);
}

/* ---- implicit synchronisation --------------------------------------------- */

/* The calls that may wait for every stream of the context. */
static long
synchronizing_calls(void)
{
	return uses_of(
		"cuMemAlloc",        "cuMemFree",          "cuMemAllocManaged",
		"cuMemHostAlloc",    "cuMemFreeHost",      "cuMemHostRegister",
		"cuMemHostUnregister", "cuModuleLoadData", "cuCtxSynchronize",
		"cuStreamSynchronize", "cuEventSynchronize", "cuMemcpy",
		"cuMemcpyHtoD",      "cuMemcpyDtoH",
		"cuDevicePrimaryCtxRelease");
}

static void
add_one(void *number)
{
	atomic_fetch_add((_Atomic int *)number, 1);
}

static void
all_kinds_of_work(CUstream s, CUstream t)
{
	static const size_t lengths[] = {0, 8, 5000, 4 * MIB};
	static _Atomic int number;
	baton_request request;
	CUstream made;

	for (int i = 0; i < 4; i++) {
		request = receive(lengths[i], 1, s);
		send_from_there(lengths[i], 1);
		cuda_world_finish(request, BATON_OK);
	}
	baton_ok(baton_stream_create(cw.comms[0], &made));
	baton_ok(baton_stream_launch(cw.comms[0], made, add_one, &number));
	baton_ok(baton_record(cw.comms[0], made, NULL, &request));
	baton_ok(baton_stream_wait(cw.comms[0], t, request));
	cuda_world_finish(request, BATON_OK);
	baton_ok(baton_stream_synchronize(cw.comms[0], t));
	baton_ok(baton_stream_destroy(cw.comms[0], made));
	request = receive(8, 2, t);
	baton_ok(baton_cancel(request));
	cuda_world_finish(request, BATON_ERR_CANCELED);
}

START_TEST(no_call_waits_for_all_streams_while_one_waits)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *spare[2];
	baton_request waiting;
	CUstream s, t;
	long before;

	open_two();
	/* Pinning and unpinning wait too. */
	ck_assert(cw.sim->sim_set("implicit", 2));
	s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	t = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	/* What a communicator needs is kept for the next one. */
	baton_ok(baton_comm_create_local(2, &options, spare));
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(spare[i]));
	waiting = receive(8, 0, cw.streams[0]);
	await_arming(waiting);
	before = synchronizing_calls();
	all_kinds_of_work(s, t);
	baton_ok(baton_comm_create_local(2, &options, spare));
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(spare[i]));
	ck_assert_int_eq(synchronizing_calls(), before);
	ck_assert_int_eq(baton_test(waiting, NULL), BATON_PENDING);
	send_from_there(8, 0);
	cuda_world_finish(waiting, BATON_OK);
	cuda_world_destroy();
	ck_assert_int_eq(synchronizing_calls(), before);
	cuda_world_end();
}
END_TEST

/* Another communicator for each rank's device, as the first. */
static enum baton_status
create_another(struct baton_comm *comms[2], int64_t timeout_ns)
{
	struct baton_comm_options options = cuda_world_options();
	CUcontext popped;
	enum baton_status status;

	options.cuda_device = -1;
	options.timeout_ns = timeout_ns;
	cu_ok(cw.sim->context_pop(&popped));
	status = baton_comm_create_local(2, &options, comms);
	cu_ok(cw.sim->context_push(popped));
	return status;
}

static void
destroy_both(struct baton_comm *comms[2])
{
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(comms[i]));
}

/* Pinning waits for the stream, and the stream for a message that is sent later. */
START_TEST(second_creation_needs_no_pinning_on_a_device_that_waits)
{
	struct baton_comm *second[2];
	baton_request waiting;

	open_two();
	ck_assert(cw.sim->sim_set("implicit", 2));
	waiting = receive(8, 0, cw.streams[0]);
	await_arming(waiting);
	baton_ok(create_another(second, 1000000000));
	ck_assert_int_eq(baton_test(waiting, NULL), BATON_PENDING);
	send_from_there(8, 0);
	cuda_world_finish(waiting, BATON_OK);
	destroy_both(second);
	cuda_world_end();
}
END_TEST

/* What is missing in the reserve is pinned at the next creation beside which no stream
 * waits. */
START_TEST(creation_that_would_hang_ends_in_time_and_says_why)
{
	struct baton_comm *second[2], *third[2], *fourth[2];
	baton_request waiting;

	open_two();
	ck_assert(cw.sim->sim_set("implicit", 2));
	waiting = receive(8, 0, cw.streams[0]);
	await_arming(waiting);
	baton_ok(create_another(second, 0));
	ck_assert_int_eq(create_another(third, 20000000), BATON_ERR_TIMEOUT);
	assert_said("cuMemHostAlloc", "device 0", "before streams wait");
	send_from_there(8, 0);
	cuda_world_finish(waiting, BATON_OK);
	baton_ok(create_another(third, 0));
	waiting = receive(8, 0, cw.streams[0]);
	await_arming(waiting);
	baton_ok(create_another(fourth, 0));
	send_from_there(8, 0);
	cuda_world_finish(waiting, BATON_OK);
	destroy_both(second);
	destroy_both(third);
	destroy_both(fourth);
	cuda_world_end();
}
END_TEST

/* A driver that pins beside streams that wait is let do so. */
START_TEST(creation_needs_no_reserve_where_pinning_does_not_wait)
{
	struct baton_comm *more[4][2];
	baton_request waiting;

	open_two();
	waiting = receive(8, 0, cw.streams[0]);
	await_arming(waiting);
	for (int i = 0; i < 4; i++)
		baton_ok(create_another(more[i], 0));
	for (int i = 0; i < 4; i++)
		destroy_both(more[i]);
	send_from_there(8, 0);
	cuda_world_finish(waiting, BATON_OK);
	cuda_world_end();
}
END_TEST

static void *
free_memory(void *memory)
{
	cu_ok(cw.sim->context_push(cw.context));
	cu_ok(cw.sim->mem_free(cuda_world_address(memory)));
	return NULL;
}

static void *
allocate_memory(void *unused)
{
	CUdeviceptr memory;

	(void)unused;
	cu_ok(cw.sim->context_push(cw.context));
	cu_ok(cw.sim->mem_alloc(&memory, 4096));
	return NULL;
}

static void *
load_module(void *unused)
{
	CUmodule module;

	(void)unused;
	cu_ok(cw.sim->context_push(cw.context));
	cu_ok(cw.sim->module_load(&module, "image"));
	return NULL;
}

/* The program's call waits for the stream, which waits for a message: the message must
 * arrive beside it. */
static void
message_arrives_beside(void *(*call)(void *), void *argument)
{
	baton_request request = receive(4 * MIB, 0, cw.streams[0]);
	pthread_t thread;

	await_arming(request);
	pthread_create(&thread, NULL, call, argument);
	while (cw.sim->sim_blocked() == 0)
		usleep(100);
	cuda_world_fill(there, 4 * MIB, 6);
	send_from_there(4 * MIB, 0);
	cuda_world_finish(request, BATON_OK);
	pthread_join(thread, NULL);
	cuda_world_expect(cw.to, 4 * MIB, 6);
}

START_TEST(message_arrives_beside_a_call_that_waits_for_all_streams)
{
	CUdeviceptr memory;

	open_two();
	cu_ok(cw.sim->mem_alloc(&memory, 4096));
	message_arrives_beside(free_memory, (void *)(uintptr_t)memory);
	message_arrives_beside(allocate_memory, NULL);
	message_arrives_beside(load_module, NULL);
	cuda_world_end();
}
END_TEST

/* ---- pageable memory ------------------------------------------------------ */

/* A rank that puts to itself: into memory of device 0, and into pageable memory. */
static struct {
	struct baton_comm *comm;
	struct baton_window *there, *here;
	unsigned char *memory; /* pageable, of `here` */
	unsigned char *source; /* pageable */
	baton_stream stream;
} self;
enum { SELF_BYTES = 3 * 1024 * 1024 + 7 };

static void
open_self(void)
{
	struct baton_comm_options options = cuda_world_options();

	self.memory = aligned_alloc(4096, 4 * MIB);
	self.source = aligned_alloc(4096, 4 * MIB);
	for (size_t i = 0; i < SELF_BYTES; i++)
		self.source[i] = (unsigned char)(i * 5 + (i >> 9) + 1);
	self.stream = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	baton_ok(baton_comm_create_local(1, &options, &self.comm));
	baton_ok(baton_window_register(cw.to, 4 * MIB, self.comm, &self.there));
	baton_ok(baton_window_register(self.memory, 4 * MIB, self.comm,
	                               &self.here));
}

static void
close_self(void)
{
	baton_ok(baton_window_deregister(self.there));
	baton_ok(baton_window_deregister(self.here));
	baton_ok(baton_comm_destroy(self.comm));
	free(self.memory);
	free(self.source);
	cuda_world_end();
}

static baton_request
put_to_self(const void *from, struct baton_window *to, size_t bytes)
{
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_put_signal(from, bytes, BATON_UINT8, 0, to, 0, 0, 0, 0,
	                          self.comm, self.stream, NULL, &request));
	return request;
}

static void
put_there_and_back(size_t bytes)
{
	cuda_world_finish(put_to_self(self.source, self.there, bytes), BATON_OK);
	cuda_world_finish(put_to_self(cw.to, self.here, bytes), BATON_OK);
	ck_assert_mem_eq(self.memory, self.source, bytes);
}

/* The driver may wait for every stream before it copies pageable memory.  One waits for a
 * message that is sent behind the put. */
START_TEST(put_of_pageable_memory_waits_for_no_other_stream)
{
	static const size_t lengths[] = {1, 5000, 256 << 10, SELF_BYTES};
	baton_request waiting;

	open_two();
	open_self();
	ck_assert(cw.sim->sim_set("pageable", 1));
	ck_assert(cw.sim->sim_set("limit_ms", 2000));
	waiting = receive(8, 0, cw.streams[0]);
	await_arming(waiting);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		put_there_and_back(lengths[i]);
	ck_assert_int_eq(baton_test(waiting, NULL), BATON_PENDING);
	send_from_there(8, 0);
	cuda_world_finish(waiting, BATON_OK);
	close_self();
}
END_TEST

/* All queues that copies of device 0 may be in stand. */
START_TEST(engine_serves_others_while_a_put_of_pageable_memory_stands)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int64_t number = 7, got = 0;
	baton_request put, sent, timed = BATON_REQUEST_NULL, received;

	open_two();
	open_self();
	ck_assert(cw.sim->sim_set("limit_ms", 2000));
	for (int i = 0; i < 8; i++)
		cuda_world_hold(cuda_world_urgent_stream(), 0);
	put = put_to_self(self.source, self.there, SELF_BYTES);
	await_arming(put);
	/* Messages of host memory, and deadlines. */
	options.timeout_ns = 1000000;
	baton_ok(baton_recv(&got, 8, BATON_UINT8, 1, 1, cw.comms[0],
	                    cw.streams[1], &options, &timed));
	cuda_world_finish(timed, BATON_ERR_TIMEOUT);
	baton_ok(baton_recv(&got, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                    cw.streams[0], NULL, &received));
	baton_ok(baton_send(&number, 8, BATON_UINT8, 0, 0, cw.comms[1],
	                    other_stream, NULL, &sent));
	cuda_world_finish(sent, BATON_OK);
	cuda_world_finish(received, BATON_OK);
	ck_assert_int_eq(got, 7);
	ck_assert_int_eq(baton_test(put, NULL), BATON_PENDING);
	cuda_world_let_go(0);
	cuda_world_finish(put, BATON_OK);
	cuda_world_finish(put_to_self(cw.to, self.here, SELF_BYTES), BATON_OK);
	ck_assert_mem_eq(self.memory, self.source, SELF_BYTES);
	close_self();
}
END_TEST

/* What is pinned as a whole is copied in place, in one piece; what is pinned in part is not. */
START_TEST(only_memory_that_is_pinned_as_a_whole_is_copied_in_place)
{
	size_t half = 2 * MIB;
	long before;

	open_two();
	open_self();
	ck_assert(cw.sim->sim_set("pageable", 2));
	cu_ok(cw.sim->host_register(self.source, half, 0));
	before = cw.sim->sim_uses("cuMemcpyAsync");
	cuda_world_finish(put_to_self(self.source, self.there, half), BATON_OK);
	ck_assert_int_eq(cw.sim->sim_uses("cuMemcpyAsync"), before + 1);
	put_there_and_back(half + 1);
	ck_assert_int_gt(cw.sim->sim_uses("cuMemcpyAsync"), before + 3);
	cu_ok(cw.sim->host_unregister(self.source));
	close_self();
}
END_TEST

/* ---- shared hardware queues ----------------------------------------------- */

/* Copies are on streams of the highest priority, which have queues of their own. */
START_TEST(waiting_streams_do_not_hold_up_copies_with_one_hardware_queue)
{
	baton_request requests[4];
	CUstream streams[4];

	cuda_world_load();
	ck_assert(cw.sim->sim_set("queues", 1));
	open_two();
	for (int i = 0; i < 4; i++) {
		streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		requests[i] = receive(4 * MIB, i, streams[i]);
	}
	await_arming(requests[0]);
	for (int i = 0; i < 4; i++) {
		send_from_there(4 * MIB, i);
		cuda_world_finish(requests[i], BATON_OK);
	}
	cuda_world_end();
}
END_TEST

/* Those of the program that have the highest priority too share them.  One for each queue
 * that no copy uses. */
START_TEST(urgent_streams_that_wait_leave_copies_their_queues)
{
	baton_request requests[5];

	open_two();
	for (int i = 0; i < 5; i++)
		requests[i] = receive(4 * MIB, i, cuda_world_urgent_stream());
	for (int i = 4; i >= 0; i--) {
		await_arming(requests[i]);
		send_from_there(4 * MIB, i);
		cuda_world_finish(requests[i], BATON_OK);
	}
	cuda_world_end();
}
END_TEST

/* ---- host functions that block -------------------------------------------- */

static struct {
	_Atomic bool entered, open;
} gate;

static void
pass_gate(void *unused)
{
	(void)unused;
	atomic_store(&gate.entered, true);
	while (!atomic_load(&gate.open))
		usleep(100);
}

/* What is armed goes on; what is not can still be cancelled, time out, or be aborted. */
START_TEST(host_function_that_blocks_holds_up_only_what_is_not_armed)
{
	baton_request armed, later, cancelled;
	CUstream s, t;

	open_two();
	s = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	t = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	armed = receive(4 * MIB, 0, cw.streams[0]);
	await_arming(armed);
	cu_ok(cw.sim->host_function(cw.streams[1], pass_gate, NULL));
	while (!atomic_load(&gate.entered))
		usleep(100);
	later = receive(8, 1, s);
	cancelled = receive(8, 2, t);
	send_from_there(4 * MIB, 0);
	cuda_world_finish(armed, BATON_OK);
	baton_ok(baton_cancel(cancelled));
	cuda_world_finish(cancelled, BATON_ERR_CANCELED);
	ck_assert_int_eq(baton_wait(later, 1000000, NULL), BATON_PENDING);
	atomic_store(&gate.open, true);
	send_from_there(8, 1);
	cuda_world_finish(later, BATON_OK);
	cuda_world_end();
}
END_TEST

START_TEST(abort_beside_a_host_function_that_blocks_ends_everything)
{
	baton_request request;

	open_two();
	cu_ok(cw.sim->host_function(cw.streams[1], pass_gate, NULL));
	request = receive(8, 1, cw.streams[0]);
	baton_ok(baton_comm_abort(cw.comms[0]));
	cuda_world_finish(request, BATON_ERR_ABORTED);
	atomic_store(&gate.open, true);
	cuda_world_end();
}
END_TEST

/* Where streams cannot wait, an operation that waits holds up the trigger of its partner. */
START_TEST(host_functions_that_wait_for_each_other_end_at_the_deadline)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request a, b;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	cuda_world_open();
	options.timeout_ns = 20000000;
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 0, cw.comms[1],
	                    cw.streams[0], &options, &b));
	cw.sim->sim_settle(true);
	baton_ok(baton_send(cw.from, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                    cw.streams[1], &options, &a));
	cuda_world_finish(b, BATON_ERR_TIMEOUT);
	ck_assert_int_ne(baton_finish(&a, LONG_NS, NULL), BATON_PENDING);
	for (int i = 0; i < 2; i++)
		cu_ok(cw.sim->stream_synchronize(cw.streams[i]));
	cuda_world_end();
}
END_TEST

/* Streams cannot wait, and two receives are detached on a stream of their own; their tags are `step`
 * apart. */
static void
open_with_receives(int step, baton_request receives[2])
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	CUstream third;

	detached.flags = BATON_OP_DETACHED;
	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	cuda_world_open();
	/* For the test itself, which holds a stream up. */
	ck_assert(cw.sim->sim_set("memops", 1));
	third = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_recv(cw.to + i, 1, BATON_UINT8, 0, i * step,
		                    cw.comms[1], third, &detached, &receives[i]));
	cw.sim->sim_settle(true);
}

/* Two sends of one (peer, tag), on two streams; the stream of the second gets there first.  The second
 * has the options, and the first has their flags. */
static void
send_in_the_other_order(const struct baton_op_options *options,
                        enum baton_status *statuses)
{
	struct baton_op_options first = BATON_OP_OPTIONS_INIT;
	baton_request sends[2], receives[2];

	first.flags = options->flags;
	open_with_receives(0, receives);
	cuda_world_hold(cw.streams[0], 0);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_send(cw.from + i, 1, BATON_UINT8, 1, 0,
		                    cw.comms[0], cw.streams[i],
		                    i == 0 ? &first : options, &sends[i]));
	cw.sim->sim_settle(true);
	cuda_world_let_go(0);
	for (int i = 0; i < 2; i++)
		statuses[i] = baton_finish(&sends[i], LONG_NS, NULL);
	for (int i = 0; i < 2; i++) {
		baton_cancel(receives[i]);
		(void)baton_finish(&receives[i], LONG_NS, NULL);
	}
	for (int i = 0; i < 2; i++)
		cu_ok(cw.sim->stream_synchronize(cw.streams[i]));
	cuda_world_end();
}

/* Where streams cannot wait, the second holds up the trigger of the first, for whose turn it waits,
 * until its deadline.  The first then goes its way. */
START_TEST(one_channel_on_two_streams_stands_until_the_deadline)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	enum baton_status statuses[2];

	options.timeout_ns = 200000000;
	send_in_the_other_order(&options, statuses);
	ck_assert_int_eq(statuses[1], BATON_ERR_TIMEOUT);
	ck_assert_int_eq(statuses[0], BATON_OK);
}
END_TEST

/* They hold up nothing. */
START_TEST(one_channel_on_two_streams_moves_detached)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	enum baton_status statuses[2];

	options.flags = BATON_OP_DETACHED;
	send_in_the_other_order(&options, statuses);
	ck_assert_int_eq(statuses[0], BATON_OK);
	ck_assert_int_eq(statuses[1], BATON_OK);
}
END_TEST

/* The trigger of the second stream comes long after the first stream has passed its own: if that
 * one waited by then, in a host function, the second could never pass. */
START_TEST(streams_of_a_group_wait_when_all_have_passed_their_triggers)
{
	baton_request sends[2], receives[2];

	open_with_receives(1, receives);
	cuda_world_hold(cw.streams[1], 0);
	baton_ok(baton_group_begin(cw.comms[0]));
	for (int i = 0; i < 2; i++)
		sends[i] = cuda_world_send(cw.from + i, 1, i, cw.streams[i]);
	baton_ok(baton_group_end(cw.comms[0]));
	cw.sim->sim_settle(true);
	cuda_world_let_go(0);
	for (int i = 0; i < 2; i++) {
		cuda_world_finish(sends[i], BATON_OK);
		cuda_world_finish(receives[i], BATON_OK);
	}
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		no_call_waits_for_all_streams_while_one_waits,
		second_creation_needs_no_pinning_on_a_device_that_waits,
		creation_that_would_hang_ends_in_time_and_says_why,
		creation_needs_no_reserve_where_pinning_does_not_wait,
		message_arrives_beside_a_call_that_waits_for_all_streams,
		put_of_pageable_memory_waits_for_no_other_stream,
		engine_serves_others_while_a_put_of_pageable_memory_stands,
		only_memory_that_is_pinned_as_a_whole_is_copied_in_place,
		waiting_streams_do_not_hold_up_copies_with_one_hardware_queue,
		urgent_streams_that_wait_leave_copies_their_queues,
		host_function_that_blocks_holds_up_only_what_is_not_armed,
		abort_beside_a_host_function_that_blocks_ends_everything,
		host_functions_that_wait_for_each_other_end_at_the_deadline,
		one_channel_on_two_streams_stands_until_the_deadline,
		one_channel_on_two_streams_moves_detached,
		streams_of_a_group_wait_when_all_have_passed_their_triggers,
	};

	return RUN_TESTS("cuda_hazards", tests);
}
