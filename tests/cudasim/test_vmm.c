/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual memory management and peers of the simulated driver, in one process; test_share.c has
 * two. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "world.h"

enum { UNIT = 2 << 20 }; /* the granularity */

typedef CUmemGenericAllocationHandle handle;

static CUmemAllocationProp
properties(CUdevice device)
{
	return (CUmemAllocationProp){
		.type = BATONI_CU_ALLOCATION_PINNED,
		.requestedHandleTypes = BATONI_CU_HANDLE_FD,
		.location = {BATONI_CU_LOCATION_DEVICE, device},
	};
}

static handle
create(CUdevice device, size_t bytes)
{
	CUmemAllocationProp on = properties(device);
	handle made;

	ck_success(w.sim->vm_create(&made, bytes, &on, 0));
	return made;
}

static CUdeviceptr
reserve(size_t bytes)
{
	CUdeviceptr pointer;

	ck_success(w.sim->vm_reserve(&pointer, bytes, 0, 0, 0));
	return pointer;
}

static CUresult
set_access(CUdeviceptr pointer, size_t bytes, CUdevice device, unsigned flags)
{
	CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, device}, flags};

	return w.sim->vm_access(pointer, bytes, &access, 1);
}

/* A unit of the device, mapped, reached by device 0. */
static CUdeviceptr
mapping(CUdevice device, handle *handle_p)
{
	CUdeviceptr pointer = reserve(UNIT);

	*handle_p = create(device, UNIT);
	ck_success(w.sim->vm_map(pointer, UNIT, 0, *handle_p, 0));
	ck_success(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_READ_WRITE));
	return pointer;
}

static void
check_live(long allocations, long mappings, long reservations)
{
	ck_assert_int_eq(w.sim->sim_live("allocations"), allocations);
	ck_assert_int_eq(w.sim->sim_live("mappings"), mappings);
	ck_assert_int_eq(w.sim->sim_live("reservations"), reservations);
}

/* ---- use ---- */

START_TEST(mapped_memory_is_copied_like_any_of_the_device)
{
	unsigned char bytes[64];
	CUdeviceptr pointer;
	CUstream stream;
	handle made;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	pointer = mapping(0, &made);
	/* The mapping holds the memory. */
	ck_success(w.sim->vm_release(made));
	check_live(1, 1, 1);
	w.sim->sim_peek(bytes, pointer, 64);
	ck_assert_uint_eq(bytes[63], 0xa5);
	world_store(1, 42);
	ck_success(w.sim->copy(pointer + 8, world_address(1), 8, stream));
	ck_success(w.sim->copy(world_address(2), pointer + 8, 8, stream));
	ck_success(w.sim->stream_synchronize(stream));
	ck_assert_uint_eq(world_load_word(2), 42);
	ck_assert_uint_eq(w.sim->copy(pointer + UNIT - 8, world_address(0), 9,
	                              stream),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	check_live(0, 0, 1);
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, stream),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_unreserve(pointer, UNIT));
	check_live(0, 0, 0);
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, stream),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

START_TEST(calls_need_no_context)
{
	CUcontext context;
	CUdeviceptr pointer;
	handle made;

	world_begin();
	ck_success(w.sim->context_pop(&context));
	pointer = mapping(0, &made);
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	ck_success(w.sim->vm_unreserve(pointer, UNIT));
	ck_success(w.sim->vm_release(made));
	world_end();
}
END_TEST

START_TEST(memory_lives_by_its_handle_alone)
{
	unsigned char byte = 7;
	CUdeviceptr first, second;
	handle made, again;

	world_begin();
	first = mapping(0, &made);
	w.sim->sim_poke(first + 5, &byte, 1);
	/* Two mappings of one allocation show the same bytes. */
	second = reserve(UNIT);
	ck_success(w.sim->vm_map(second, UNIT, 0, made, 0));
	byte = 0;
	w.sim->sim_peek(&byte, second + 5, 1);
	ck_assert_uint_eq(byte, 7);
	ck_success(w.sim->vm_unmap(second, UNIT));
	ck_success(w.sim->vm_retain(&again, (void *)(uintptr_t)(first + 100)));
	ck_assert_uint_eq(again, made);
	ck_success(w.sim->vm_release(made));
	ck_success(w.sim->vm_unmap(first, UNIT));
	check_live(1, 0, 2);
	/* The retained handle holds it still. */
	ck_success(w.sim->vm_map(second, UNIT, 0, again, 0));
	byte = 0;
	w.sim->sim_peek(&byte, second + 5, 1);
	ck_assert_uint_eq(byte, 7);
	ck_success(w.sim->vm_unmap(second, UNIT));
	ck_success(w.sim->vm_release(again));
	check_live(0, 0, 2);
	ck_assert_uint_eq(w.sim->vm_retain(&again, (void *)(uintptr_t)first),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

START_TEST(the_host_cannot_touch_a_mapping)
{
	handle made;
	CUdeviceptr pointer;

	world_begin();
	pointer = mapping(0, &made);
	/* A sanitizer's action would make another exit of it. */
	signal(SIGSEGV, SIG_DFL);
	*(volatile char *)(uintptr_t)pointer = 1;
	_exit(0);
}
END_TEST

/* ---- what a pointer is ---- */

START_TEST(a_range_is_the_reservation_and_an_address_range_the_mapping)
{
	CUpointer_attribute which[] = {
		BATONI_CU_POINTER_MEMORY_TYPE, BATONI_CU_POINTER_CONTEXT,
		BATONI_CU_POINTER_DEVICE_ORDINAL, BATONI_CU_POINTER_RANGE_START,
		BATONI_CU_POINTER_RANGE_SIZE, BATONI_CU_POINTER_IS_IPC_CAPABLE,
		BATONI_CU_POINTER_HANDLE_TYPES, BATONI_CU_POINTER_MAPPED,
	};
	unsigned memory = 9;
	int device = 9, legacy = 9, mapped = 9;
	CUcontext context = w.context;
	CUdeviceptr pointer, start, base;
	uint64_t types = 9;
	size_t range, bytes;
	void *data[] = {&memory, &context, &device, &start, &range, &legacy,
	                &types, &mapped};
	handle made;

	world_begin();
	pointer = reserve(3 * (size_t)UNIT);
	made = create(1, UNIT);
	ck_success(w.sim->vm_map(pointer + UNIT, UNIT, 0, made, 0));
	ck_success(w.sim->pointer_attributes(8, which, data, pointer + UNIT + 9));
	ck_assert_uint_eq(memory, BATONI_CU_MEMORY_DEVICE);
	ck_assert_ptr_null(context);
	ck_assert_int_eq(device, 1);
	ck_assert_uint_eq(start, pointer);
	ck_assert_uint_eq(range, 3 * (size_t)UNIT);
	ck_assert_int_eq(legacy, 0);
	ck_assert_int_eq(mapped, 1);
	ck_assert_uint_eq(types, BATONI_CU_HANDLE_FD);
	/* Where nothing is mapped, too. */
	ck_success(w.sim->pointer_attributes(8, which, data, pointer + 9));
	ck_assert_uint_eq(start, pointer);
	ck_assert_uint_eq(range, 3 * (size_t)UNIT);
	ck_assert_int_eq(mapped, 0);
	ck_assert_uint_eq(memory, 0);
	ck_success(w.sim->address_range(&base, &bytes, pointer + UNIT + 9));
	ck_assert_uint_eq(base, pointer + UNIT);
	ck_assert_uint_eq(bytes, UNIT);
	ck_assert_uint_eq(w.sim->address_range(&base, &bytes, pointer),
	                  BATONI_CU_NOT_FOUND);
	ck_success(w.sim->mem_alloc(&pointer, 100));
	ck_success(w.sim->pointer_attributes(8, which, data, pointer + 9));
	ck_assert_ptr_eq(context, w.context);
	ck_assert_uint_eq(range, 100);
	ck_assert_int_eq(legacy, 1);
	ck_assert_uint_eq(types, BATONI_CU_HANDLE_NONE);
	ck_success(w.sim->address_range(&base, NULL, pointer + 9));
	ck_assert_uint_eq(base, pointer);
	world_end();
}
END_TEST

START_TEST(a_handle_tells_its_properties)
{
	CUmemAllocationProp asked = properties(1), told;
	handle made;

	world_begin();
	asked.allocFlags.gpuDirectRDMACapable = 1;
	ck_success(w.sim->vm_create(&made, UNIT, &asked, 0));
	ck_success(w.sim->vm_properties(&told, made));
	ck_assert_int_eq(told.location.id, 1);
	ck_assert_uint_eq(told.requestedHandleTypes, BATONI_CU_HANDLE_FD);
	ck_assert_uint_eq(told.allocFlags.gpuDirectRDMACapable, 1);
	ck_success(w.sim->vm_release(made));
	ck_assert_uint_eq(w.sim->vm_properties(&told, made),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

/* ---- refusals ---- */

START_TEST(no_device_reaches_a_mapping_before_it_has_access)
{
	CUdeviceptr pointer;
	CUcontext second;
	handle made;

	world_begin();
	pointer = reserve(UNIT);
	made = create(0, UNIT);
	ck_success(w.sim->vm_map(pointer, UNIT, 0, made, 0));
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 1;
	ck_success(set_access(pointer, UNIT, 1, BATONI_CU_ACCESS_READ_WRITE));
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 2;
	ck_success(w.sim->primary_retain(&second, 1));
	ck_success(w.sim->context_push(second));
	ck_success(w.sim->copy(pointer, world_address(0), 8, NULL));
	/* Nothing orders the next copy behind this one: its NULL stream is of
	   the other device. */
	w.sim->sim_settle(false);
	ck_success(w.sim->context_pop(&second));
	ck_success(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_READ_WRITE));
	ck_success(w.sim->copy(pointer, world_address(0), 8, NULL));
	w.sim->sim_settle(false);
	ck_success(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_NONE));
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 3;
	/* A new mapping has none. */
	ck_success(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_READ_WRITE));
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	ck_success(w.sim->vm_map(pointer, UNIT, 0, made, 0));
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 4;
	world_end();
}
END_TEST

START_TEST(sizes_and_addresses_are_multiples_of_the_granularity)
{
	CUmemAllocationProp on = properties(0);
	CUdeviceptr pointer;
	size_t bytes = 0;
	handle made;

	world_load();
	ck_assert(w.sim->sim_set("granularity", 3 * 65536));
	world_begin();
	ck_success(w.sim->vm_granularity(&bytes, &on,
	                                 BATONI_CU_GRANULARITY_BEST));
	ck_assert_uint_eq(bytes, 3 * 65536);
	ck_assert_uint_eq(w.sim->vm_create(&made, bytes + 4096, &on, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_create(&made, 0, &on, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_create(&made, bytes, &on, 1),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_reserve(&pointer, bytes + 4096, 0, 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_reserve(&pointer, bytes, 3000, 0, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_reserve(&pointer, 2 * bytes, 0, 0, 0));
	ck_assert_uint_eq(pointer % bytes, 0);
	made = create(0, bytes);
	ck_assert_uint_eq(w.sim->vm_map(pointer + 4096, bytes, 0, made, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_map(pointer, bytes, 4096, made, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_map(pointer, 2 * bytes, 0, made, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_map(pointer + 2 * bytes, bytes, 0, made, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_map(pointer + bytes, bytes, 0, made, 0));
	ck_assert_uint_eq(w.sim->vm_map(pointer + bytes, bytes, 0, made, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(set_access(pointer + bytes, 4096, 0, 3),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(set_access(pointer, 2 * bytes, 0, 3),
	                  BATONI_CU_INVALID_VALUE);
	world_end();
}
END_TEST

START_TEST(properties_that_the_device_does_not_have_are_refused)
{
	CUmemAllocationProp on = properties(0);
	handle made;

	world_begin();
	on.location.id = 2;
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_INVALID_DEVICE);
	on = properties(0);
	on.type = 0;
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_INVALID_VALUE);
	on = properties(0);
	on.requestedHandleTypes = 8; /* fabric */
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_NOT_SUPPORTED);
	on = properties(0);
	on.allocFlags.gpuDirectRDMACapable = 1;
	ck_success(w.sim->vm_create(&made, UNIT, &on, 0));
	ck_assert(w.sim->sim_set("vmm_rdma", 0));
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_NOT_SUPPORTED);
	ck_assert(w.sim->sim_set("vmm_fd", 0));
	on = properties(0);
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_NOT_SUPPORTED);
	on.requestedHandleTypes = BATONI_CU_HANDLE_NONE;
	ck_success(w.sim->vm_create(&made, UNIT, &on, 0));
	world_end();
}
END_TEST

/* What ends in the wrong order. */
START_TEST(a_mapping_that_a_stream_is_still_to_use_is_a_violation_and_stays_for_it)
{
	unsigned char before = 7, after = 0;
	CUdeviceptr pointer;
	CUstream stream;
	handle made;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	pointer = mapping(0, &made);
	ck_success(w.sim->vm_release(made));
	w.sim->sim_poke(pointer, &before, 1);
	world_store(1, 0);
	world_wait(stream, 0, 1);
	ck_success(w.sim->copy(world_address(1), pointer, 1, stream));
	ck_assert_uint_eq(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_NONE),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 1;
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	w.violations = 2;
	check_live(1, 0, 1);
	world_store(0, 1);
	ck_success(w.sim->stream_synchronize(stream));
	after = (unsigned char)world_load_word(1);
	ck_assert_uint_eq(after, 7);
	check_live(0, 0, 1);
	world_end();
}
END_TEST

START_TEST(what_ends_out_of_order_is_a_violation)
{
	CUdeviceptr pointer;
	handle made;

	world_begin();
	pointer = mapping(0, &made);
	ck_assert_uint_eq(w.sim->vm_unreserve(pointer, UNIT),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_unmap(pointer, UNIT / 2),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->mem_free(pointer), BATONI_CU_INVALID_VALUE);
	w.violations = 3;
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	ck_assert_uint_eq(w.sim->vm_unmap(pointer, UNIT),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_unreserve(pointer, UNIT / 2),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_unreserve(pointer, UNIT));
	ck_assert_uint_eq(w.sim->vm_unreserve(pointer, UNIT),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_release(made));
	ck_assert_uint_eq(w.sim->vm_release(made), BATONI_CU_INVALID_VALUE);
	w.violations = 7;
	check_live(0, 0, 0);
	world_end();
}
END_TEST

START_TEST(unmapping_may_wait_for_the_streams_of_the_device)
{
	CUdeviceptr pointer;
	CUstream stream;
	handle made;

	world_load();
	ck_assert(w.sim->sim_set("limit_ms", 50));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	pointer = mapping(0, &made);
	world_wait(stream, 0, 1);
	ck_assert(w.sim->sim_set("implicit", 2));
	ck_assert_uint_eq(w.sim->vm_unmap(pointer, UNIT), CUDASIM_TIMEOUT);
	w.violations = 1;
	check_live(1, 1, 1);
	ck_assert(w.sim->sim_set("implicit", 1));
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	world_store(0, 1);
	world_end();
}
END_TEST

START_TEST(mappings_side_by_side_are_given_access_and_unmapped_together)
{
	CUdeviceptr pointer;
	handle first, second;
	char got[8];

	world_begin();
	pointer = reserve(2 * (size_t)UNIT);
	first = create(0, UNIT);
	second = create(0, UNIT);
	ck_success(w.sim->vm_map(pointer, UNIT, 0, first, 0));
	ck_success(w.sim->vm_map(pointer + UNIT, UNIT, 0, second, 0));
	ck_success(set_access(pointer, 2 * (size_t)UNIT, 0,
	                      BATONI_CU_ACCESS_READ_WRITE));
	ck_success(w.sim->copy(pointer + UNIT, world_address(0), 8, NULL));
	w.sim->sim_settle(false);
	/* A copy may run over both, and not past them. */
	w.sim->sim_poke(pointer + UNIT - 4, "abcdefgh", 8);
	ck_success(w.sim->copy(pointer + 8, pointer + UNIT - 4, 8, NULL));
	ck_assert_uint_eq(w.sim->copy(pointer + 2 * UNIT - 4, world_address(0),
	                              8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	w.sim->sim_settle(false);
	w.sim->sim_peek(got, pointer + 8, 8);
	ck_assert_mem_eq(got, "abcdefgh", 8);
	/* Both are held until it has ended. */
	ck_assert(w.sim->sim_set("copies", 0));
	ck_success(w.sim->copy(pointer + UNIT - 4, world_address(0), 8, NULL));
	ck_assert_uint_eq(set_access(pointer + UNIT, UNIT, 0,
	                             BATONI_CU_ACCESS_NONE),
	                  BATONI_CU_INVALID_VALUE);
	w.violations = 1;
	ck_assert(w.sim->sim_set("copies", 1));
	w.sim->sim_settle(false);
	ck_success(w.sim->vm_unmap(pointer, 2 * (size_t)UNIT));
	ck_success(w.sim->vm_release(first));
	ck_success(w.sim->vm_release(second));
	check_live(0, 0, 1);
	world_end();
}
END_TEST

START_TEST(the_driver_tells_which_device_has_access)
{
	const CUmemLocation here = {BATONI_CU_LOCATION_DEVICE, 0};
	const CUmemLocation there = {BATONI_CU_LOCATION_DEVICE, 1};
	const CUmemLocation nowhere = {BATONI_CU_LOCATION_DEVICE, 99};
	unsigned long long flags = 99;
	CUdeviceptr pointer, plain;
	handle made;

	world_begin();
	pointer = reserve(UNIT);
	made = create(0, UNIT);
	ck_success(w.sim->mem_alloc(&plain, 64));
	ck_assert_uint_eq(w.sim->vm_has_access(&flags, &here, pointer),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_map(pointer, UNIT, 0, made, 0));
	ck_success(w.sim->vm_has_access(&flags, &here, pointer + 5));
	ck_assert_uint_eq(flags, BATONI_CU_ACCESS_NONE);
	ck_success(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_READ_WRITE));
	ck_success(w.sim->vm_has_access(&flags, &here, pointer + 5));
	ck_assert_uint_eq(flags, BATONI_CU_ACCESS_READ_WRITE);
	ck_success(w.sim->vm_has_access(&flags, &there, pointer));
	ck_assert_uint_eq(flags, BATONI_CU_ACCESS_NONE);
	ck_assert_uint_eq(w.sim->vm_has_access(&flags, &nowhere, pointer),
	                  BATONI_CU_INVALID_DEVICE);
	ck_assert_uint_eq(w.sim->vm_has_access(&flags, &here, plain),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->mem_free(plain));
	ck_success(w.sim->vm_unmap(pointer, UNIT));
	ck_success(w.sim->vm_release(made));
	check_live(0, 0, 1);
	world_end();
}
END_TEST

/* ---- handles ---- */

static void *
as_handle(int fd)
{
	return (void *)(intptr_t)fd;
}

START_TEST(only_a_descriptor_that_was_exported_is_imported)
{
	CUmemAllocationProp on = properties(0);
	char name[64];
	handle made, plain, other;
	int fd = -1, reopened, memory;

	world_begin();
	made = create(1, UNIT);
	ck_success(w.sim->vm_export(&fd, made, BATONI_CU_HANDLE_FD, 0));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	ck_success(w.sim->vm_import(&other, as_handle(fd), BATONI_CU_HANDLE_FD));
	ck_assert_uint_ne(other, made);
	ck_success(w.sim->vm_properties(&on, other));
	ck_assert_int_eq(on.location.id, 1);
	check_live(2, 0, 0);
	/* The descriptor stays the caller's. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	reopened = open(name, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(reopened, 0);
	ck_assert_uint_eq(w.sim->vm_import(&plain, as_handle(reopened),
	                                   BATONI_CU_HANDLE_FD),
	                  BATONI_CU_INVALID_VALUE);
	memory = memfd_create("no handle", MFD_CLOEXEC);
	ck_assert_uint_eq(w.sim->vm_import(&plain, as_handle(memory),
	                                   BATONI_CU_HANDLE_FD),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_import(&plain, as_handle(-1),
	                                   BATONI_CU_HANDLE_FD),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->vm_import(&plain, as_handle(fd), 8),
	                  BATONI_CU_INVALID_VALUE);
	on = properties(0);
	on.requestedHandleTypes = BATONI_CU_HANDLE_NONE;
	ck_success(w.sim->vm_create(&plain, UNIT, &on, 0));
	ck_assert_uint_eq(w.sim->vm_export(&fd, plain, BATONI_CU_HANDLE_FD, 0),
	                  BATONI_CU_INVALID_VALUE);
	ck_success(w.sim->vm_release(plain));
	ck_success(w.sim->vm_release(made));
	ck_success(w.sim->vm_release(other));
	check_live(0, 0, 0);
	world_end();
}
END_TEST

START_TEST(a_driver_may_be_without_it)
{
	CUmemAllocationProp on = properties(0);
	CUdriverProcAddressQueryResult why;
	int value = 7;
	void *address;
	handle made;

	world_begin();
	ck_success(w.sim->device_attribute(&value, BATONI_CU_DEVICE_VMM, 0));
	ck_assert_int_eq(value, 1);
	ck_success(w.sim->device_attribute(&value, BATONI_CU_DEVICE_FD_HANDLES,
	                                   0));
	ck_assert_int_eq(value, 1);
	ck_success(w.sim->device_attribute(&value, BATONI_CU_DEVICE_VMM_RDMA, 0));
	ck_assert_int_eq(value, 1);
	ck_success(w.sim->proc_address("cuMemCreate", &address, 10020, 0, &why));
	ck_assert_ptr_nonnull(address);
	ck_assert(w.sim->sim_lack("cuMemCreate", true));
	ck_success(w.sim->proc_address("cuMemCreate", &address, 10020, 0, &why));
	ck_assert_ptr_null(address);
	ck_assert_uint_eq(why, 1);
	ck_assert(w.sim->sim_lack("cuMemCreate", false));
	ck_assert(!w.sim->sim_lack("cuMemNothing", true));
	ck_success(w.sim->proc_address("cuMemCreate", &address, 10020, 0, &why));
	ck_assert_ptr_nonnull(address);
	ck_assert(w.sim->sim_set("vmm", 0));
	ck_success(w.sim->device_attribute(&value, BATONI_CU_DEVICE_VMM, 0));
	ck_assert_int_eq(value, 0);
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_NOT_SUPPORTED);
	ck_assert(w.sim->sim_set("vmm", 1));
	ck_assert(w.sim->sim_fail("cuMemCreate", 2, 2, false));
	ck_success(w.sim->vm_create(&made, UNIT, &on, 0));
	ck_assert_uint_eq(w.sim->vm_create(&made, UNIT, &on, 0),
	                  BATONI_CU_OUT_OF_MEMORY);
	/* A call that ends something does so all the same. */
	ck_assert(w.sim->sim_fail("cuMemRelease", 1, 999, false));
	ck_assert_uint_eq(w.sim->vm_release(made), 999);
	check_live(0, 0, 0);
	world_end();
}
END_TEST

/* ---- peers ---- */

START_TEST(access_is_for_devices_that_can_reach_the_memory)
{
	CUdeviceptr pointer;
	handle made;
	int can = 7;

	world_begin();
	pointer = reserve(UNIT);
	made = create(1, UNIT);
	ck_success(w.sim->vm_map(pointer, UNIT, 0, made, 0));
	ck_success(w.sim->peer_can(&can, 0, 1));
	ck_assert_int_eq(can, 1);
	ck_assert(w.sim->sim_peers(0, 1, false));
	ck_success(w.sim->peer_can(&can, 0, 1));
	ck_assert_int_eq(can, 0);
	ck_success(w.sim->peer_can(&can, 1, 0));
	ck_assert_int_eq(can, 1);
	ck_success(w.sim->peer_can(&can, 1, 1));
	ck_assert_int_eq(can, 0);
	ck_assert_uint_eq(w.sim->peer_can(&can, 0, 2), BATONI_CU_INVALID_DEVICE);
	ck_assert_uint_eq(set_access(pointer, UNIT, 0,
	                             BATONI_CU_ACCESS_READ_WRITE),
	                  BATONI_CU_INVALID_DEVICE);
	ck_success(set_access(pointer, UNIT, 1, BATONI_CU_ACCESS_READ_WRITE));
	ck_assert(w.sim->sim_peers(0, 1, true));
	ck_success(set_access(pointer, UNIT, 0, BATONI_CU_ACCESS_READ_WRITE));
	ck_success(w.sim->copy(pointer, world_address(0), 8, NULL));
	world_end();
}
END_TEST

START_TEST(a_context_reaches_another_one_that_it_has_enabled)
{
	CUdeviceptr pointer;
	CUcontext second;

	world_begin();
	ck_success(w.sim->primary_retain(&second, 1));
	ck_success(w.sim->context_push(second));
	ck_success(w.sim->mem_alloc(&pointer, 64));
	ck_success(w.sim->context_pop(&second));
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->peer_enable(w.context, 0),
	                  BATONI_CU_INVALID_CONTEXT);
	ck_assert_uint_eq(w.sim->peer_enable(second, 1),
	                  BATONI_CU_INVALID_VALUE);
	ck_assert_uint_eq(w.sim->peer_disable(second),
	                  BATONI_CU_PEER_NOT_ENABLED);
	ck_assert(w.sim->sim_set("peers", 0));
	ck_assert_uint_eq(w.sim->peer_enable(second, 0),
	                  BATONI_CU_PEER_UNSUPPORTED);
	ck_assert(w.sim->sim_set("peers", 1));
	ck_success(w.sim->peer_enable(second, 0));
	ck_assert_uint_eq(w.sim->peer_enable(second, 0),
	                  BATONI_CU_PEER_ALREADY_ENABLED);
	ck_success(w.sim->copy(pointer, world_address(0), 8, NULL));
	ck_success(w.sim->peer_disable(second));
	ck_assert_uint_eq(w.sim->copy(pointer, world_address(0), 8, NULL),
	                  BATONI_CU_INVALID_VALUE);
	/* It ends with the other context. */
	ck_success(w.sim->peer_enable(second, 0));
	ck_success(w.sim->primary_reset(1));
	ck_success(w.sim->primary_retain(&second, 1));
	ck_assert_uint_eq(w.sim->peer_disable(second),
	                  BATONI_CU_PEER_NOT_ENABLED);
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		mapped_memory_is_copied_like_any_of_the_device,
		calls_need_no_context,
		memory_lives_by_its_handle_alone,
		a_range_is_the_reservation_and_an_address_range_the_mapping,
		a_handle_tells_its_properties,
		no_device_reaches_a_mapping_before_it_has_access,
		sizes_and_addresses_are_multiples_of_the_granularity,
		properties_that_the_device_does_not_have_are_refused,
		a_mapping_that_a_stream_is_still_to_use_is_a_violation_and_stays_for_it,
		what_ends_out_of_order_is_a_violation,
		unmapping_may_wait_for_the_streams_of_the_device,
		mappings_side_by_side_are_given_access_and_unmapped_together,
		the_driver_tells_which_device_has_access,
		only_a_descriptor_that_was_exported_is_imported,
		a_driver_may_be_without_it,
		access_is_for_devices_that_can_reach_the_memory,
		a_context_reaches_another_one_that_it_has_enabled,
	};
	Suite *suite = suite_create("cudasim_vmm_faults");
	TCase *tcase = tcase_create("faults");
	int failed;

	tcase_add_test_raise_signal(tcase, the_host_cannot_touch_a_mapping,
	                            SIGSEGV);
	suite_add_tcase(suite, tcase);
	failed = run_suite(suite);
	return RUN_TESTS("cudasim_vmm", tests) || failed;
}
