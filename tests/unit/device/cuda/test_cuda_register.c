/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings of shared memory that streams of a CUDA device store into: pin and unpin of its memory's
 * table, with drivers that refuse them, fail, or wait for a stream.
 */
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "cuda_world.h"
#include "device.h"
#include "shm.h"
#include "testing.h"

/* A part that begins in a page, and ends in the next but one. */
enum { PART_AT = 4096 + 192, PART_BYTES = 8192, SHARED_BYTES = 65536 };

static struct batoni_device *device;
static const struct batoni_memory_ops *memory;
static struct batoni_shm shared;

static void
open_shared(void)
{
	cuda_world_open();
	device = batoni_comm_device(cw.comms[0]);
	memory = device->ops->memory;
	baton_ok(batoni_shm_create(SHARED_BYTES, &shared));
}

static void *
map_part(void)
{
	struct batoni_shm_name name;
	void *at;

	batoni_shm_name(&shared, &name);
	baton_ok(batoni_shm_map(&name, PART_AT, PART_BYTES, &at));
	return at;
}

static bool
is_mapped(void *at)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return msync((void *)((uintptr_t)at / page * page), page, // NOLINT
	             MS_ASYNC) == 0;
}

static void
await_unmapped(void *at)
{
	while (is_mapped(at))
		sched_yield();
	ck_assert_int_eq(cw.sim->sim_live("registered"), 0);
}

static enum baton_status
pin(void *at, uint64_t ns)
{
	return memory->pins->pin(device, at, PART_BYTES, batoni_real_ns() + ns);
}

static void
close_shared(void)
{
	cuda_world_end();
	batoni_shm_destroy(&shared);
}

/* As a signal of a put. */
static void
store(CUstream stream, void *word, uint64_t value)
{
	const struct batoni_stream_put put = {
		.word = word,
		.value = value,
	};

	baton_ok(device->ops->puts->stream_put(device, stream, &put));
}

START_TEST(stream_stores_into_shared_memory)
{
	_Atomic uint64_t *there;
	unsigned char *part;

	open_shared();
	part = map_part();
	baton_ok(pin(part, LONG_NS));
	ck_assert_int_eq(cw.sim->sim_live("registered"), 1);
	/* The first and the last word of it. */
	store(cw.streams[0], part, 7);
	store(cw.streams[0], part + PART_BYTES - 8, 9);
	cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
	there = (void *)((unsigned char *)shared.base + PART_AT);
	ck_assert_uint_eq(atomic_load(there), 7);
	ck_assert_uint_eq(atomic_load(there + PART_BYTES / 8 - 1), 9);
	memory->pins->unpin(device, part);
	await_unmapped(part);
	close_shared();
}
END_TEST

/* Those of two ranks of a process. */
START_TEST(two_mappings_of_the_same_pages_are_pinned)
{
	void *parts[2];

	open_shared();
	for (int i = 0; i < 2; i++) {
		parts[i] = map_part();
		baton_ok(pin(parts[i], LONG_NS));
	}
	memory->pins->unpin(device, parts[0]);
	while (is_mapped(parts[0]))
		sched_yield();
	store(cw.streams[0], parts[1], 5);
	cu_ok(cw.sim->stream_synchronize(cw.streams[0]));
	ck_assert_uint_eq(*(uint64_t *)parts[1], 5);
	memory->pins->unpin(device, parts[1]);
	await_unmapped(parts[1]);
	close_shared();
}
END_TEST

static void
refuse_without(const char *call)
{
	void *part;

	cuda_world_load();
	ck_assert(cw.sim->sim_lack(call, true));
	open_shared();
	part = map_part();
	ck_assert_int_eq(pin(part, LONG_NS), BATON_ERR_UNSUPPORTED);
	assert_said("cuMemHostRegister");
	ck_assert(!is_mapped(part));
	close_shared();
}

START_TEST(driver_without_registering_is_told_of)
{
	refuse_without("cuMemHostRegister_v2");
}
END_TEST

/* What could not be given back is not taken. */
START_TEST(driver_without_unregistering_is_told_of)
{
	refuse_without("cuMemHostUnregister");
}
END_TEST

START_TEST(memory_at_another_address_is_refused)
{
	void *part;

	open_shared();
	ck_assert(cw.sim->sim_set("alias", 1));
	part = map_part();
	ck_assert_int_eq(pin(part, LONG_NS), BATON_ERR_UNSUPPORTED);
	assert_said("another", "address");
	await_unmapped(part);
	ck_assert(cw.sim->sim_set("alias", 0));
	close_shared();
}
END_TEST

START_TEST(call_that_fails_leaves_nothing)
{
	static const struct {
		const char *call;
		CUresult result;
		enum baton_status status;
	} cases[] = {
		{"cuMemHostRegister_v2", BATONI_CU_OUT_OF_MEMORY, BATON_ERR_NOMEM},
		{"cuMemHostRegister_v2", BATONI_CU_NOT_PERMITTED, BATON_ERR_CUDA},
		{"cuMemHostGetDevicePointer_v2", BATONI_CU_INVALID_VALUE,
	         BATON_ERR_CUDA},
		{"cuCtxPushCurrent_v2", BATONI_CU_INVALID_CONTEXT,
	         BATON_ERR_CUDA},
	};
	void *part;

	open_shared();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		part = map_part();
		ck_assert(cw.sim->sim_fail(cases[i].call, 1, cases[i].result,
		                           false));
		ck_assert_int_eq(pin(part, LONG_NS), cases[i].status);
		await_unmapped(part);
		/* The next one is pinned. */
		part = map_part();
		baton_ok(pin(part, LONG_NS));
		memory->pins->unpin(device, part);
		await_unmapped(part);
	}
	close_shared();
}
END_TEST

/* It does so in a process that exits, and after a reset of the GPU. */
START_TEST(memory_that_the_driver_has_let_go_of_is_unmapped)
{
	static const CUresult results[] = {BATONI_CU_DEINITIALIZED,
	                                   BATONI_CU_NOT_REGISTERED};
	void *part;

	open_shared();
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		part = map_part();
		baton_ok(pin(part, LONG_NS));
		ck_assert(cw.sim->sim_fail("cuMemHostUnregister", 1, results[i],
		                           false));
		memory->pins->unpin(device, part);
		await_unmapped(part);
	}
	close_shared();
}
END_TEST

/* Nobody need wait for the driver: neither the creator, for long, nor the one that destroys. */
START_TEST(driver_that_waits_for_a_stream_is_left_to_itself)
{
	void *late, *part;

	open_shared();
	ck_assert(cw.sim->sim_set("implicit", 2));
	part = map_part();
	baton_ok(pin(part, LONG_NS));
	cuda_world_hold(cw.streams[0], 0);
	late = map_part();
	ck_assert_int_eq(pin(late, 1), BATON_ERR_TIMEOUT);
	assert_said("cuMemHostRegister", "streams");
	memory->pins->unpin(device, part);
	while (cw.sim->sim_blocked() != 2)
		sched_yield();
	ck_assert(is_mapped(late) && is_mapped(part));
	cuda_world_let_go(0);
	while (is_mapped(late))
		sched_yield();
	await_unmapped(part);
	close_shared();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		stream_stores_into_shared_memory,
		two_mappings_of_the_same_pages_are_pinned,
		driver_without_registering_is_told_of,
		driver_without_unregistering_is_told_of,
		memory_at_another_address_is_refused,
		call_that_fails_leaves_nothing,
		memory_that_the_driver_has_let_go_of_is_unmapped,
		driver_that_waits_for_a_stream_is_left_to_itself,
	};

	return RUN_TESTS("cuda_register", tests);
}
