/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the simulated driver: who may touch it, what pointers are, and copies. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

/* ---- who may touch it ---- */

static CUdeviceptr
device_memory(size_t bytes)
{
	CUdeviceptr pointer;

	ck_success(w.sim->mem_alloc(&pointer, bytes));
	return pointer;
}

/* The signal's own action: a sanitizer's would make another exit of it. */
static void
fault_as_the_system_does(void)
{
	signal(SIGSEGV, SIG_DFL);
}

START_TEST(the_host_cannot_touch_device_memory)
{
	CUdeviceptr pointer;

	world_begin();
	pointer = device_memory(64);
	fault_as_the_system_does();
	*(volatile char *)(uintptr_t)pointer = 1;
	_exit(0);
}
END_TEST

START_TEST(the_host_cannot_touch_what_was_freed)
{
	void *pinned;

	world_begin();
	ck_success(w.sim->host_alloc(&pinned, 64, 0));
	*(volatile char *)pinned = 1;
	ck_success(w.sim->host_free(pinned));
	fault_as_the_system_does();
	*(volatile char *)pinned = 1;
	_exit(0);
}
END_TEST

START_TEST(freed_memory_is_refused)
{
	CUdeviceptr pointer;
	void *pinned;

	world_begin();
	pointer = device_memory(64);
	ck_success(w.sim->host_alloc(&pinned, 64, 0));
	ck_success(w.sim->copy(pointer, (uintptr_t)pinned, 64, NULL));
	ck_success(w.sim->mem_free(pointer));
	ck_assert_uint_eq(w.sim->copy(pointer, (uintptr_t)pinned, 64, NULL),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_int_eq(w.sim->sim_live("device"), 0);
	ck_assert_uint_eq(w.sim->mem_free(pointer), BATONI_CU_INVALID_VALUE);
	w.violations = 1;
	world_end();
}
END_TEST

START_TEST(memory_begins_with_rubbish)
{
	unsigned char bytes[64];
	unsigned char *pinned;
	void *memory;

	world_begin();
	w.sim->sim_peek(bytes, device_memory(64), 64);
	ck_assert_uint_ne(bytes[0], 0);
	ck_success(w.sim->host_alloc(&memory, 64, 0));
	pinned = memory;
	ck_assert_uint_ne(pinned[63], 0);
	world_end();
}
END_TEST

/* ---- pointers ---- */

struct attributes {
	unsigned memory, managed;
	int device;
	CUdeviceptr start;
	size_t bytes;
};

static struct attributes
ask(CUdeviceptr pointer)
{
	CUpointer_attribute which[] = {
		BATONI_CU_POINTER_MEMORY_TYPE,
		BATONI_CU_POINTER_IS_MANAGED,
		BATONI_CU_POINTER_DEVICE_ORDINAL,
		BATONI_CU_POINTER_RANGE_START,
		BATONI_CU_POINTER_RANGE_SIZE,
	};
	struct attributes a = {7, 7, 7, 7, 7};
	void *data[] = {&a.memory, &a.managed, &a.device, &a.start, &a.bytes};

	ck_success(w.sim->pointer_attributes(5, which, data, pointer));
	return a;
}

static void
check_attributes(CUdeviceptr pointer, CUdeviceptr start, size_t bytes, unsigned memory,
                 bool managed, int device)
{
	struct attributes a = ask(pointer);

	ck_assert_uint_eq(a.memory, memory);
	ck_assert_uint_eq(a.managed, managed);
	ck_assert_int_eq(a.device, device);
	ck_assert_uint_eq(a.start, start);
	ck_assert_uint_eq(a.bytes, bytes);
}

START_TEST(the_driver_says_what_a_pointer_is)
{
	static char registered[256], pageable[256];
	CUdeviceptr device, managed, second;
	CUcontext context;
	void *pinned;

	world_begin();
	device = device_memory(100);
	ck_success(w.sim->managed_alloc(&managed, 100, 1));
	ck_success(w.sim->host_alloc(&pinned, 100, 0));
	ck_success(w.sim->host_register(registered, 256, 0));
	ck_success(w.sim->primary_retain(&context, 1));
	ck_success(w.sim->context_push(context));
	second = device_memory(100);
	check_attributes(device, device, 100, BATONI_CU_MEMORY_DEVICE, false, 0);
	check_attributes(device + 99, device, 100, BATONI_CU_MEMORY_DEVICE, false, 0);
	check_attributes(device + 100, 0, 0, 0, false, 0);
	check_attributes(second, second, 100, BATONI_CU_MEMORY_DEVICE, false, 1);
	check_attributes(managed, managed, 100, BATONI_CU_MEMORY_DEVICE, true, 0);
	check_attributes((uintptr_t)pinned + 5, (uintptr_t)pinned, 100,
	                 BATONI_CU_MEMORY_HOST, false, 0);
	check_attributes((uintptr_t)registered + 5, (uintptr_t)registered, 256,
	                 BATONI_CU_MEMORY_HOST, false, 0);
	check_attributes((uintptr_t)pageable, 0, 0, 0, false, 0);
	ck_assert_uint_eq(w.sim->host_register(registered + 255, 2, 0),
	                  BATONI_CU_ALREADY_REGISTERED);
	ck_success(w.sim->host_unregister(registered));
	check_attributes((uintptr_t)registered, 0, 0, 0, false, 0);
	/* The host may touch these. */
	*(volatile char *)(uintptr_t)managed = 1;
	*(volatile char *)pinned = 1;
	world_end();
}
END_TEST

START_TEST(memory_that_is_not_there_is_not_registered)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages;

	world_begin();
	pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
	             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_success(w.sim->host_register(pages + 100, 2 * page - 100, 0));
	ck_success(w.sim->host_unregister(pages + 100));
	munmap(pages + page, page);
	ck_assert_uint_eq(w.sim->host_register(pages, page + 1, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->host_register(pages, page, 0));
	ck_success(w.sim->host_unregister(pages));
	munmap(pages, page);
	world_end();
}
END_TEST

START_TEST(the_device_can_have_an_address_of_its_own)
{
	CUdeviceptr alias;
	CUstream stream;
	void *pinned;

	world_load();
	ck_assert(w.sim->sim_set("alias", 1));
	world_begin();
	stream = world_stream(0);
	ck_success(w.sim->host_alloc(&pinned, 64, BATONI_CU_HOST_ALLOC_MAPPED));
	ck_success(w.sim->host_device_pointer(&alias, pinned, 0));
	ck_assert_uint_ne(alias, (uintptr_t)pinned);
	ck_success(w.sim->write_value(stream, alias + 8, 9, 0));
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(((uint64_t *)pinned)[1], 9);
	ck_assert_uint_eq(w.sim->write_value(stream, (uintptr_t)pinned, 9, 0),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

START_TEST(words_belong_to_a_context_unless_they_are_portable)
{
	CUcontext context;
	CUstream stream;
	void *pinned;

	world_begin();
	ck_success(w.sim->host_alloc(&pinned, 64, BATONI_CU_HOST_ALLOC_MAPPED));
	ck_success(w.sim->primary_retain(&context, 1));
	ck_success(w.sim->context_push(context));
	stream = world_stream(0);
	ck_assert_uint_eq(w.sim->write_value(stream, (uintptr_t)pinned, 9, 0),
	                  BATONI_CU_INVALID_VALUE);
	world_write(stream, 0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	world_end();
}
END_TEST

/* ---- copies ---- */

START_TEST(a_copy_of_pinned_memory_reads_when_the_stream_gets_there)
{
	CUdeviceptr device;
	CUstream stream;
	void *memory;
	unsigned char *pinned;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	ck_success(w.sim->host_alloc(&memory, 128, 0));
	pinned = memory;
	memset(pinned, 1, 128);
	world_wait(stream, 0, 1);
	ck_success(w.sim->copy(device, (uintptr_t)pinned, 64, stream));
	ck_success(w.sim->copy((uintptr_t)pinned + 64, device, 64, stream));
	w.sim->sim_settle(false);
	memset(pinned, 2, 64);
	ck_assert_uint_eq(pinned[64], 1);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(pinned[64], 2);
	ck_assert_uint_eq(pinned[127], 2);
	ck_success(w.sim->set_bytes(device, 3, 64, stream));
	ck_success(w.sim->copy((uintptr_t)pinned, device, 64, stream));
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(pinned[0], 3);
	world_end();
}
END_TEST

START_TEST(copies_past_the_end_of_a_block_are_refused)
{
	CUdeviceptr device;

	world_begin();
	device = device_memory(64);
	ck_assert_uint_eq(w.sim->copy(device, world_address(0), 65, NULL),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->copy(device + 1, world_address(0), 64, NULL),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->copy(device, 0, 64, NULL),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->copy(device, world_address(0), 64, NULL));
	ck_success(w.sim->copy(device, world_address(0), 0, NULL));
	world_end();
}
END_TEST

START_TEST(memory_of_another_device_needs_its_own_context)
{
	CUdeviceptr device;
	CUcontext context;

	world_begin();
	device = device_memory(64);
	ck_success(w.sim->primary_retain(&context, 1));
	ck_success(w.sim->context_push(context));
	ck_assert_uint_eq(w.sim->copy(device, world_address(0), 64, NULL),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert(w.sim->sim_set("peer", 1));
	ck_success(w.sim->copy(device, world_address(0), 64, NULL));
	world_end();
}
END_TEST

/* Behind what the stream waits for. */
START_TEST(copies_in_and_out_come_in_stream_order)
{
	CUdeviceptr device;
	CUstream stream;
	uint64_t *word;
	unsigned char *there;
	void *pinned;

	world_begin();
	device = device_memory(64);
	ck_success(w.sim->host_alloc(&pinned, 4096,
	                             BATONI_CU_HOST_ALLOC_PORTABLE |
	                                     BATONI_CU_HOST_ALLOC_MAPPED));
	word = memset(pinned, 0, 4096);
	there = (unsigned char *)pinned + 64;
	memset(there, 5, 64);
	ck_success(w.sim->stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING,
	                                0));
	ck_success(w.sim->wait_value(stream, (uintptr_t)word, 1,
	                             BATONI_CU_WAIT_GEQ));
	ck_success(w.sim->copy_in_later(device, there, 64, stream));
	ck_success(w.sim->copy_out_later(there + 64, device, 64, stream));
	w.sim->sim_settle(false);
	ck_assert_int_eq(there[64], 0);
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_mem_eq(there, there + 64, 64);
	world_end();
}
END_TEST

START_TEST(synchronous_copies_are_over_when_they_return)
{
	unsigned char here[64], there[64] = {0};
	CUdeviceptr device;

	world_begin();
	device = device_memory(64);
	memset(here, 5, sizeof(here));
	ck_success(w.sim->copy_in(device, here, 64));
	w.sim->sim_peek(there, device, 64);
	ck_assert_mem_eq(here, there, 64);
	here[0] = 6;
	w.sim->sim_poke(device, here, 1);
	ck_success(w.sim->copy_out(there, device, 64));
	ck_assert_mem_eq(here, there, 64);
	ck_success(w.sim->copy_now(device, (uintptr_t)there, 64));
	world_end();
}
END_TEST

/* ---- deadlocks ---- */

START_TEST(a_copy_of_pageable_memory_blocks_until_it_is_over)
{
	unsigned char pageable[64] = {0};
	CUdeviceptr device;
	CUstream stream;

	world_load();
	ck_assert(w.sim->sim_set("limit_ms", 50));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	ck_success(w.sim->copy((uintptr_t)pageable, device, 64, stream));
	ck_assert_uint_eq(pageable[63], 0xa5);
	world_wait(stream, 0, 1);
	ck_assert_uint_eq(w.sim->copy((uintptr_t)pageable, device, 64, stream),
	                  CUDASIM_TIMEOUT);
	world_store(0, 1);
	w.violations = 1;
	world_end();
}
END_TEST

START_TEST(a_copy_of_pageable_memory_may_wait_for_other_streams)
{
	unsigned char pageable[64] = {0};
	CUdeviceptr device;
	CUstream waiting, stream;

	world_load();
	ck_assert(w.sim->sim_set("limit_ms", 50));
	ck_assert(w.sim->sim_set("pageable", 1));
	world_begin();
	waiting = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	ck_success(w.sim->copy((uintptr_t)pageable, device, 64, stream));
	ck_assert_uint_eq(pageable[63], 0xa5);
	world_wait(waiting, 0, 1);
	ck_assert_uint_eq(w.sim->copy(device, (uintptr_t)pageable, 64, stream),
	                  CUDASIM_TIMEOUT);
	ck_success(w.sim->copy(device, world_address(0), 64, stream));
	ck_success(w.sim->stream_synchronize(stream));
	world_store(0, 1);
	w.violations = 1;
	world_end();
}
END_TEST

START_TEST(a_copy_of_pageable_memory_can_be_forbidden)
{
	unsigned char pageable[64] = {0};
	CUdeviceptr device;
	CUstream stream;

	world_begin();
	ck_assert(w.sim->sim_set("pageable", 2));
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	ck_assert_uint_eq(w.sim->copy((uintptr_t)pageable, device, 64, stream),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->copy(device, (uintptr_t)pageable, 64, stream),
	                  BATONI_CU_INVALID_VALUE);
	/* Synchronous ones block by their nature. */
	ck_success(w.sim->copy_in(device, pageable, 64));
	ck_success(w.sim->copy(device, world_address(0), 64, stream));
	ck_success(w.sim->copy(device, (uintptr_t)pageable, 0, stream));
	w.violations = 2;
	world_end();
}
END_TEST

/* What a stream then copies out. */
static unsigned char
seen_by_a_stream(CUdeviceptr device, CUstream stream)
{
	unsigned char byte = 0;

	ck_success(w.sim->copy((uintptr_t)&byte, device, 1, stream));
	ck_success(w.sim->stream_synchronize(stream));
	return byte;
}

START_TEST(remote_writes_are_seen_behind_a_flush_where_the_device_asks_for_it)
{
	const unsigned char byte = 7;
	CUdeviceptr device;
	CUstream stream;
	int value;

	world_load();
	ck_assert(w.sim->sim_set("flush", 1));
	world_begin();
	ck_success(w.sim->device_attribute(&value, BATONI_CU_DEVICE_RDMA_FLUSHES,
	                                   0));
	ck_assert_int_eq(value, BATONI_CU_RDMA_FLUSH_BY_HOST);
	ck_success(w.sim->device_attribute(&value,
	                                   BATONI_CU_DEVICE_RDMA_ORDERING, 0));
	ck_assert_int_lt(value, BATONI_CU_RDMA_ORDERED_FOR_OWNER);
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	w.sim->sim_remote_write(device, &byte, 1);
	ck_assert_uint_eq(seen_by_a_stream(device, stream), 0xa5);
	ck_success(w.sim->flush_remote_writes(BATONI_CU_RDMA_FLUSH_CURRENT,
	                                      BATONI_CU_RDMA_FLUSH_TO_OWNER));
	ck_assert_uint_eq(seen_by_a_stream(device, stream), 7);
	world_end();
}
END_TEST

START_TEST(other_devices_show_remote_writes_at_once)
{
	const unsigned char byte = 7;
	CUdeviceptr device;
	CUstream stream;
	int value;

	world_load();
	world_begin();
	ck_success(w.sim->device_attribute(&value,
	                                   BATONI_CU_DEVICE_RDMA_ORDERING, 0));
	ck_assert_int_eq(value, BATONI_CU_RDMA_ORDERED_FOR_OWNER);
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	w.sim->sim_remote_write(device, &byte, 1);
	ck_assert_uint_eq(seen_by_a_stream(device, stream), 7);
	ck_assert_uint_eq(
		w.sim->flush_remote_writes(BATONI_CU_RDMA_FLUSH_CURRENT,
	                                   BATONI_CU_RDMA_FLUSH_TO_OWNER),
		BATONI_CU_NOT_SUPPORTED);
	world_end();
}
END_TEST

START_TEST(allocation_while_a_stream_waits_is_a_deadlock)
{
	CUdeviceptr device, other;
	CUmodule module;
	CUstream stream;
	void *pinned;

	world_load();
	ck_assert(w.sim->sim_set("limit_ms", 50));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	world_wait(stream, 0, 1);
	ck_assert_uint_eq(w.sim->mem_alloc(&other, 64), CUDASIM_TIMEOUT);
	ck_assert_uint_eq(w.sim->mem_free(device), CUDASIM_TIMEOUT);
	ck_assert_uint_eq(w.sim->module_load(&module, ""), CUDASIM_TIMEOUT);
	ck_success(w.sim->host_alloc(&pinned, 64, 0));
	ck_success(w.sim->host_free(pinned));
	ck_assert(w.sim->sim_set("implicit", 2));
	ck_assert_uint_eq(w.sim->host_alloc(&pinned, 64, 0), CUDASIM_TIMEOUT);
	ck_assert(w.sim->sim_set("implicit", 0));
	ck_success(w.sim->mem_alloc(&other, 64));
	ck_success(w.sim->mem_free(device));
	ck_success(w.sim->module_load(&module, ""));
	ck_assert_int_eq(w.sim->sim_live("device"), 1);
	world_store(0, 1);
	w.violations = 4;
	world_end();
}
END_TEST

START_TEST(memory_freed_under_a_stream_is_a_violation_and_stays_for_it)
{
	CUdeviceptr device;
	CUstream stream;
	void *words;

	world_load();
	ck_assert(w.sim->sim_set("implicit", 0));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	device = device_memory(64);
	ck_success(w.sim->host_alloc(&words, 64, BATONI_CU_HOST_ALLOC_MAPPED));
	memset(words, 0, 64);
	world_wait(stream, 0, 1);
	ck_success(w.sim->copy(device, world_address(0), 64, stream));
	ck_success(w.sim->wait_value(stream, (uintptr_t)words, 0, 0));
	ck_success(w.sim->mem_free(device));
	ck_success(w.sim->host_free(words));
	ck_assert_int_eq(w.sim->sim_live("device"), 0);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	w.violations = 2;
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		freed_memory_is_refused,
		memory_begins_with_rubbish,
		the_driver_says_what_a_pointer_is,
		memory_that_is_not_there_is_not_registered,
		the_device_can_have_an_address_of_its_own,
		words_belong_to_a_context_unless_they_are_portable,
		a_copy_of_pinned_memory_reads_when_the_stream_gets_there,
		copies_past_the_end_of_a_block_are_refused,
		memory_of_another_device_needs_its_own_context,
		copies_in_and_out_come_in_stream_order,
		synchronous_copies_are_over_when_they_return,
		a_copy_of_pageable_memory_blocks_until_it_is_over,
		a_copy_of_pageable_memory_may_wait_for_other_streams,
		a_copy_of_pageable_memory_can_be_forbidden,
		remote_writes_are_seen_behind_a_flush_where_the_device_asks_for_it,
		other_devices_show_remote_writes_at_once,
		allocation_while_a_stream_waits_is_a_deadlock,
		memory_freed_under_a_stream_is_a_violation_and_stays_for_it,
	};
	const TTest *const faults[] = {
		the_host_cannot_touch_device_memory,
		the_host_cannot_touch_what_was_freed,
	};
	Suite *suite = suite_create("cudasim_memory_faults");
	TCase *tcase = tcase_create("faults");
	int failed;

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		tcase_add_test_raise_signal(tcase, faults[i], SIGSEGV);
	suite_add_tcase(suite, tcase);
	failed = run_suite(suite);
	return RUN_TESTS("cudasim_memory", tests) || failed;
}
