/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the simulated driver: their order, what they share, and what holds them
 * up. */
#include <pthread.h>
#include <stdlib.h>

#include "world.h"

/* ---- order ---- */

START_TEST(stream_does_its_work_in_order)
{
	struct probe first, second;
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(stream, 0, 1);
	world_probe(stream, &first);
	world_wait(stream, 1, 1);
	world_probe(stream, &second);
	world_write(stream, 2, 7);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&first), 0);
	ck_assert_uint_eq(w.sim->stream_query(stream), BATONI_CU_NOT_READY);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&first), 1);
	ck_assert_int_eq(world_calls(&second), 0);
	ck_assert_uint_eq(world_load_word(2), 0);
	world_store(1, 1);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_int_eq(world_calls(&second), 1);
	ck_assert_uint_eq(world_load_word(2), 7);
	ck_success(w.sim->stream_query(stream));
	ck_success(w.sim->stream_destroy(stream));
	world_end();
}
END_TEST

START_TEST(a_wait_compares_cyclically)
{
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_store(0, UINT64_MAX);
	world_wait(stream, 0, 1);
	w.sim->sim_settle(false);
	ck_assert_uint_eq(w.sim->stream_query(stream), BATONI_CU_NOT_READY);
	world_store(0, INT64_MAX);
	ck_success(w.sim->stream_synchronize(stream));
	world_store(0, 2);
	world_wait(stream, 0, UINT64_MAX);
	ck_success(w.sim->stream_synchronize(stream));
	world_end();
}
END_TEST

START_TEST(a_stream_destroyed_does_the_work_that_it_has)
{
	struct probe probe;
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(stream, 0, 1);
	world_probe(stream, &probe);
	ck_success(w.sim->stream_destroy(stream));
	ck_assert_int_eq(w.sim->sim_live("streams"), 0);
	ck_assert_int_eq(w.sim->sim_queued(), 2);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), 1);
	world_end();
}
END_TEST

START_TEST(batch_runs_its_operations_in_order)
{
	CUstreamBatchMemOpParams ops[3] = {0};
	CUstream stream;

	world_begin();
	stream = world_stream(0);
	for (unsigned i = 0; i < 3; i++) {
		ops[i].waitValue.operation = i == 1 ? BATONI_CU_OP_WAIT_64
		                                    : BATONI_CU_OP_WRITE_64;
		ops[i].waitValue.address = world_address(i);
		ops[i].waitValue.value64 = 5;
	}
	ck_success(w.sim->stream_memory_ops(stream, 3, ops, 0));
	w.sim->sim_settle(false);
	ck_assert_uint_eq(world_load_word(0), 5);
	ck_assert_uint_eq(world_load_word(2), 0);
	world_store(1, 5);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(world_load_word(2), 5);
	world_end();
}
END_TEST

START_TEST(memory_operations_are_checked)
{
	CUstreamBatchMemOpParams ops[256] = {0};
	uint64_t pageable = 0;
	CUdeviceptr on_device;
	void *unmapped;
	CUstream stream;

	world_begin();
	stream = world_stream(0);
	for (unsigned i = 0; i < 256; i++) {
		ops[i].writeValue.operation = BATONI_CU_OP_WRITE_64;
		ops[i].writeValue.address = world_address(0);
	}
	ck_success(w.sim->stream_memory_ops(stream, 255, ops, 0));
	ck_assert_uint_eq(w.sim->stream_memory_ops(stream, 256, ops, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->stream_memory_ops(stream, 0, ops, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->stream_memory_ops(stream, 1, ops, 1),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->wait_value(stream, (uintptr_t)&pageable, 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->wait_value(stream, world_address(0) + 4, 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->wait_value(stream, world_address(WORDS), 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->mem_alloc(&on_device, 64));
	ck_assert_uint_eq(w.sim->wait_value(stream, on_device, 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->host_alloc(&unmapped, 64, 0));
	ck_assert_uint_eq(w.sim->wait_value(stream, (uintptr_t)unmapped, 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

/* Of the stream's own device, which the simulator lets it write only. */
START_TEST(memory_of_the_device_can_be_written)
{
	const uint64_t value = UINT64_C(0x0123456789abcdef);
	CUdeviceptr own, others;
	CUcontext other, popped;
	uint64_t read = 0;
	CUstream stream;

	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->mem_alloc(&own, 64));
	ck_success(w.sim->write_value(stream, own + 8, value, 0));
	ck_success(w.sim->stream_synchronize(stream));
	w.sim->sim_peek(&read, own + 8, sizeof(read));
	ck_assert_uint_eq(read, value);
	ck_assert_uint_eq(w.sim->write_value(stream, own + 4, value, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->write_value(stream, own + 64, value, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->primary_retain(&other, 1));
	ck_success(w.sim->context_push(other));
	ck_success(w.sim->mem_alloc(&others, 64));
	ck_success(w.sim->context_pop(&popped));
	ck_assert_uint_eq(w.sim->write_value(stream, others, value, 0),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

START_TEST(memory_operations_can_be_switched_off)
{
	CUstream stream;
	int has = 1;

	world_load();
	ck_assert(w.sim->sim_set("memops", 0));
	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->device_attribute(&has, BATONI_CU_DEVICE_MEM_OPS_64, 0));
	ck_assert_int_eq(has, 0);
	ck_assert_uint_eq(w.sim->wait_value(stream, world_address(0), 0, 0),
	                  BATONI_CU_NOT_SUPPORTED);
	ck_assert(w.sim->sim_set("memops", 1));
	ck_success(w.sim->device_attribute(&has, BATONI_CU_DEVICE_MEM_OPS_64, 0));
	ck_assert_int_eq(has, 1);
	world_end();
}
END_TEST

/* ---- host functions ---- */

START_TEST(host_functions_run_one_at_a_time)
{
	CUstream a, b;
	struct probe probe;
	struct gate gate;

	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_gate(a, &gate);
	world_await_entry(&gate);
	world_probe(b, &probe);
	w.sim->sim_settle(true);
	ck_assert_int_eq(world_calls(&probe), 0);
	world_open(&gate);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), 1);
	world_end();
}
END_TEST

static void
call_the_driver(void *data)
{
	*(CUresult *)data = w.sim->stream_query(NULL);
}

START_TEST(a_driver_call_in_a_host_function_fails_and_is_a_violation)
{
	CUresult result = BATONI_CU_SUCCESS;
	CUstream stream;

	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->host_function(stream, call_the_driver, &result));
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(result, BATONI_CU_NOT_PERMITTED);
	w.violations = 1;
	world_end();
}
END_TEST

/* ---- default streams ---- */

START_TEST(legacy_default_stream_waits_for_blocking_streams_and_they_for_it)
{
	CUstream blocking, other, free_stream;
	struct probe on_legacy, on_other, on_free;

	world_begin();
	blocking = world_stream(0);
	other = world_stream(0);
	free_stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(blocking, 0, 1);
	world_probe(NULL, &on_legacy);
	world_probe(other, &on_other);
	world_probe(free_stream, &on_free);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&on_legacy), 0);
	ck_assert_int_eq(world_calls(&on_other), 0);
	ck_assert_int_eq(world_calls(&on_free), 1);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_uint_lt(atomic_load(&on_legacy.order),
	                  atomic_load(&on_other.order));
	world_end();
}
END_TEST

static void *
ask_for_the_per_thread_stream(void *data)
{
	CUstream handle = (CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;

	ck_success(w.sim->context_push(w.context));
	ck_success(w.sim->stream_id(handle, data));
	return NULL;
}

START_TEST(special_handles_have_ids_of_their_own)
{
	CUstream legacy = (CUstream)(uintptr_t)BATONI_CU_STREAM_LEGACY_VALUE;
	CUstream per_thread =
		(CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;
	unsigned long long null_id, legacy_id, mine, again, theirs[2] = {0};
	pthread_t thread;
	CUcontext context;

	world_begin();
	ck_success(w.sim->stream_id(NULL, &null_id));
	ck_success(w.sim->stream_id(legacy, &legacy_id));
	ck_success(w.sim->stream_id(per_thread, &mine));
	ck_success(w.sim->stream_id(per_thread, &again));
	ck_assert_int_eq(w.sim->sim_live("thread_streams"), 1);
	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, ask_for_the_per_thread_stream,
		               &theirs[i]);
		pthread_join(thread, NULL);
	}
	ck_assert_uint_eq(null_id, legacy_id);
	ck_assert_uint_eq(mine, again);
	ck_assert_uint_ne(mine, legacy_id);
	ck_assert_uint_ne(mine, theirs[0]);
	ck_assert_uint_ne(mine, theirs[1]);
	ck_assert_uint_ne(theirs[0], theirs[1]);
	ck_assert_int_eq(w.sim->sim_live("thread_streams"), 1);
	ck_success(w.sim->stream_context(per_thread, &context));
	ck_assert_ptr_eq(context, w.context);
	ck_success(w.sim->context_pop(&context));
	ck_assert_uint_eq(w.sim->stream_id(NULL, &null_id),
	                  BATONI_CU_INVALID_CONTEXT);
	ck_assert_uint_eq(w.sim->stream_context(legacy, &context),
	                  BATONI_CU_INVALID_CONTEXT);
	world_end();
}
END_TEST

/* ---- handles ---- */

START_TEST(handles_are_used_again_and_ids_are_not)
{
	unsigned long long first, second;
	CUstream a, b;

	world_begin();
	a = world_stream(0);
	ck_success(w.sim->stream_id(a, &first));
	ck_success(w.sim->stream_destroy(a));
	b = world_stream(0);
	ck_success(w.sim->stream_id(b, &second));
	ck_assert_ptr_eq(a, b);
	ck_assert_uint_ne(first, second);
	world_end();
}
END_TEST

START_TEST(handles_of_what_was_destroyed_are_violations)
{
	CUstream stream;
	CUevent event;

	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->event_create(&event, BATONI_CU_EVENT_DISABLE_TIMING));
	ck_success(w.sim->stream_destroy(stream));
	ck_success(w.sim->event_destroy(event));
	ck_assert_uint_eq(w.sim->stream_query(stream), BATONI_CU_INVALID_HANDLE);
	ck_assert_uint_eq(w.sim->event_query(event), BATONI_CU_INVALID_HANDLE);
	ck_assert_uint_eq(w.sim->stream_destroy(stream),
	                  BATONI_CU_INVALID_HANDLE);
	w.violations = 3;
	world_end();
}
END_TEST

START_TEST(a_stream_of_another_context_is_refused)
{
	CUcontext second, owner;
	CUevent event;
	CUstream stream;

	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->event_create(&event, 0));
	ck_success(w.sim->primary_retain(&second, 1));
	ck_assert_ptr_ne(second, w.context);
	ck_success(w.sim->context_push(second));
	ck_assert_uint_eq(w.sim->event_record(event, stream),
	                  BATONI_CU_INVALID_HANDLE);
	ck_assert_uint_eq(w.sim->event_record(event, NULL),
	                  BATONI_CU_INVALID_HANDLE);
	ck_success(w.sim->stream_query(stream));
	ck_success(w.sim->stream_context(stream, &owner));
	ck_assert_ptr_eq(owner, w.context);
	world_end();
}
END_TEST

/* ---- events ---- */

START_TEST(an_event_is_the_place_of_its_last_record)
{
	CUstream a, b;
	CUevent event;
	struct probe probe;

	world_begin();
	a = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	b = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->event_create(&event, BATONI_CU_EVENT_DISABLE_TIMING));
	ck_success(w.sim->event_query(event));
	world_wait(a, 0, 1);
	ck_success(w.sim->event_record(event, a));
	ck_success(w.sim->stream_wait_event(b, event, 0));
	world_probe(b, &probe);
	w.sim->sim_settle(false);
	ck_assert_uint_eq(w.sim->event_query(event), BATONI_CU_NOT_READY);
	ck_assert_int_eq(world_calls(&probe), 0);
	/* What b waits for is the first record. */
	world_wait(a, 1, 1);
	ck_success(w.sim->event_record(event, a));
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&probe), 1);
	ck_assert_uint_eq(w.sim->event_query(event), BATONI_CU_NOT_READY);
	world_store(1, 1);
	ck_success(w.sim->event_synchronize(event));
	ck_success(w.sim->event_query(event));
	ck_success(w.sim->event_destroy(event));
	ck_assert_int_eq(w.sim->sim_live("events"), 0);
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		stream_does_its_work_in_order,
		a_wait_compares_cyclically,
		a_stream_destroyed_does_the_work_that_it_has,
		batch_runs_its_operations_in_order,
		memory_operations_are_checked,
		memory_of_the_device_can_be_written,
		memory_operations_can_be_switched_off,
		host_functions_run_one_at_a_time,
		a_driver_call_in_a_host_function_fails_and_is_a_violation,
		legacy_default_stream_waits_for_blocking_streams_and_they_for_it,
		special_handles_have_ids_of_their_own,
		handles_are_used_again_and_ids_are_not,
		handles_of_what_was_destroyed_are_violations,
		a_stream_of_another_context_is_refused,
		an_event_is_the_place_of_its_last_record,
	};

	return RUN_TESTS("cudasim_streams", tests);
}
