/* SPDX-License-Identifier: BSD-3-Clause */
/* Hardware queues of the simulated driver: which streams share one, for what, and what it holds
 * up; how many entries one takes. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "world.h"

/* ---- what shares a queue ---- */

START_TEST(a_wait_holds_up_streams_that_share_its_queue)
{
	CUstream a, b, urgent;
	struct probe behind, beside;
	int least, greatest;

	world_load();
	ck_assert(w.sim->sim_set("queues", 1));
	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->priority_range(&least, &greatest));
	ck_assert_int_lt(greatest, least);
	ck_success(w.sim->stream_create(&urgent, BATONI_CU_STREAM_NON_BLOCKING,
	                                greatest));
	world_wait(a, 0, 1);
	world_probe(b, &behind);
	world_probe(urgent, &beside);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&behind), 0);
	ck_assert_int_eq(world_calls(&beside), 1);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&behind), 1);
	world_end();
}
END_TEST

START_TEST(a_host_function_that_blocks_holds_up_its_queue_too)
{
	CUstream a, b;
	struct gate gate;

	world_load();
	ck_assert(w.sim->sim_set("queues", 1));
	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_gate(a, &gate);
	world_write(b, 0, 1);
	w.sim->sim_settle(true);
	ck_assert_uint_eq(world_load_word(0), 0);
	world_open(&gate);
	ck_success(w.sim->stream_synchronize(b));
	ck_assert_uint_eq(world_load_word(0), 1);
	world_end();
}
END_TEST

/* So many functions of another stream. */
static void
a_waiting_stream_lets_pass(int calls)
{
	struct probe probe;
	CUstream a, b;

	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(a, 0, 1);
	world_probe(b, &probe);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), calls);
	world_store(0, 1);
	world_end();
}

START_TEST(queues_are_as_many_as_connections)
{
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	a_waiting_stream_lets_pass(0);
}
END_TEST

START_TEST(streams_with_queues_of_their_own_do_not_hold_each_other_up)
{
	a_waiting_stream_lets_pass(1);
}
END_TEST

START_TEST(priorities_share_queues_where_they_are_no_levels)
{
	struct probe behind;
	CUstream a, urgent;
	int least, greatest;

	world_load();
	ck_assert(w.sim->sim_set("queues", 1));
	ck_assert(w.sim->sim_set("levels", 0));
	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->priority_range(&least, &greatest));
	ck_success(w.sim->stream_create(&urgent, BATONI_CU_STREAM_NON_BLOCKING,
	                                greatest));
	world_wait(a, 0, 1);
	world_probe(urgent, &behind);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&behind), 0);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&behind), 1);
	world_end();
}
END_TEST

/* ---- queues of copies ---- */

static CUdeviceptr from, to;

static void
alloc_bytes(void)
{
	ck_success(w.sim->mem_alloc(&from, 64));
	ck_success(w.sim->mem_alloc(&to, 64));
}

static void
copy_on(CUstream stream)
{
	ck_success(w.sim->copy(to, from, 64, stream));
}

START_TEST(a_copy_passes_a_wait_where_copies_have_queues)
{
	CUstream a, b;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
	setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "8", 1);
	world_begin();
	alloc_bytes();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(a, 0, 1);
	copy_on(b);
	ck_success(w.sim->stream_synchronize(b));
	ck_assert_uint_eq(w.sim->stream_query(a), BATONI_CU_NOT_READY);
	world_store(0, 1);
	world_end();
}
END_TEST

/* A copy that its stream has not come to stands in the queue of copies all the same. */
START_TEST(a_copy_behind_a_wait_holds_up_its_queue_of_copies)
{
	struct probe probe;
	CUstream a, b;

	world_load();
	ck_assert(w.sim->sim_set("copy_queues", 1));
	world_begin();
	alloc_bytes();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(a, 0, 1);
	copy_on(a);
	copy_on(b);
	world_probe(b, &probe);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), 0);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(b));
	ck_assert_int_eq(world_calls(&probe), 1);
	world_end();
}
END_TEST

START_TEST(a_stream_in_two_queues_keeps_its_order)
{
	struct probe first, last;
	CUstream stream;

	world_load();
	ck_assert(w.sim->sim_set("copy_queues", 2));
	world_begin();
	alloc_bytes();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(stream, 0, 1);
	copy_on(stream);
	world_probe(stream, &first);
	world_wait(stream, 1, 1);
	copy_on(stream);
	world_probe(stream, &last);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&first), 0);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&first), 1);
	ck_assert_int_eq(world_calls(&last), 0);
	world_store(1, 1);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_int_eq(world_calls(&last), 1);
	world_end();
}
END_TEST

START_TEST(a_context_in_error_drops_both_queues_of_a_stream)
{
	CUstream stream;

	world_load();
	ck_assert(w.sim->sim_set("copy_queues", 1));
	world_begin();
	alloc_bytes();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(stream, 0, 1);
	copy_on(stream);
	copy_on(stream);
	world_wait(stream, 0, 1);
	w.sim->sim_settle(false);
	w.sim->sim_break(0, BATONI_CU_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(w.sim->stream_synchronize(stream),
	                  BATONI_CU_ILLEGAL_ADDRESS);
	w.sim->sim_settle(false);
	ck_assert_int_eq(w.sim->sim_queued(), 0);
}
END_TEST

/* ---- entries of a queue ---- */

struct caller {
	CUstream stream;
	CUresult result;
};

static void *
write_main(void *argument)
{
	struct caller *caller = argument;

	ck_success(w.sim->context_push(w.context));
	caller->result =
		w.sim->write_value(caller->stream, world_address(1), 1, 0);
	return NULL;
}

/* Of the queue, and not of a stream: the second one has nothing on it. */
START_TEST(a_call_blocks_where_the_streams_of_a_queue_have_filled_it)
{
	struct caller caller;
	pthread_t thread;
	CUstream a;

	world_load();
	ck_assert(w.sim->sim_set("queues", 1));
	ck_assert(w.sim->sim_set("queue_depth", 3));
	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	caller.stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(a, 0, 1);
	world_wait(a, 0, 2);
	world_wait(a, 0, 3);
	ck_assert_int_eq(pthread_create(&thread, NULL, write_main, &caller), 0);
	while (w.sim->sim_blocked() == 0)
		sched_yield();
	ck_assert_uint_eq(world_load_word(1), 0);
	world_store(0, 3);
	pthread_join(thread, NULL);
	ck_success(caller.result);
	ck_success(w.sim->stream_synchronize(caller.stream));
	ck_assert_uint_eq(world_load_word(1), 1);
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_wait_holds_up_streams_that_share_its_queue,
		a_host_function_that_blocks_holds_up_its_queue_too,
		queues_are_as_many_as_connections,
		streams_with_queues_of_their_own_do_not_hold_each_other_up,
		priorities_share_queues_where_they_are_no_levels,
		a_copy_passes_a_wait_where_copies_have_queues,
		a_copy_behind_a_wait_holds_up_its_queue_of_copies,
		a_stream_in_two_queues_keeps_its_order,
		a_context_in_error_drops_both_queues_of_a_stream,
		a_call_blocks_where_the_streams_of_a_queue_have_filled_it,
	};

	return RUN_TESTS("cudasim_queues", tests);
}
