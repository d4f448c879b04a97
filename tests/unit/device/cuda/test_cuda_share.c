/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory for windows, and between processes: the slots block_alloc, block_free, share, map
 * and unmap of the CUDA device's memory, over the simulator.
 *
 * A test that needs another process makes a child before its first call of the driver.  The two
 * take turns by two pipes.  A check of the child's that fails ends it with the line's number.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "cuda_gpu.h"
#include "cuda_world.h"
#include "handover.h"
#include "mem.h"
#include "shared.h"

#define BYTES ((size_t)70000)
#define UNIT (2 * MIB)
#define memory_ops (&batoni_cuda_memory_ops)

/* What the child is told. */
struct told {
	struct batoni_memory_shared shared;
	struct batoni_handover_name descriptor; /* of shared.fd, if it is not -1 */
};

static struct batoni_device *device;

static uint64_t
soon(void)
{
	return batoni_real_ns() + UINT64_C(60000000000);
}

/* A GPU of this process, as a communicator opens it. */
static struct batoni_device *
open_gpu(int number)
{
	const struct batoni_device_config config = {.cuda_device = number,
	                                            .until_ns = soon()};
	struct batoni_device *open = NULL;

	return batoni_device_cuda_ops.open(&config, &open) == BATON_OK ? open
	                                                               : NULL;
}

static void
begin(void)
{
	cuda_world_begin();
	device = open_gpu(0);
	ck_assert_ptr_nonnull(device);
}

static void *
alloc(size_t bytes)
{
	void *block = NULL;

	baton_ok(
		memory_ops->blocks->block_alloc(device, bytes, soon(), &block));
	ck_assert_ptr_nonnull(block);
	return block;
}

static int
count_descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(all))
		n++;
	closedir(all);
	return n;
}

/* Nothing of windows' memory is left. */
static void
nothing_left(void)
{
	ck_assert_int_eq(cw.sim->sim_live("allocations"), 0);
	ck_assert_int_eq(cw.sim->sim_live("reservations"), 0);
	ck_assert_int_eq(cw.sim->sim_live("mappings"), 0);
	ck_assert_int_eq(cw.sim->sim_live("opened"), 0);
	ck_assert_int_eq(cw.sim->sim_live("device"), 1); /* cuda_world's */
}

static void
end_closed(void)
{
	nothing_left();
	batoni_device_cuda_ops.close(device);
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
}

/* ---- allocating ---- */

static bool
is_zero(const void *at, size_t bytes)
{
	unsigned char *copy = malloc(bytes);
	bool zero = true;

	cw.sim->sim_peek(copy, cuda_world_address(at), bytes);
	for (size_t i = 0; i < bytes; i++)
		zero &= copy[i] == 0;
	free(copy);
	return zero;
}

/* As NCCL wants it for its windows. */
START_TEST(a_block_is_an_allocation_that_can_be_exported)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	struct batoni_memory_info info;
	void *block;

	begin();
	block = alloc(BYTES);
	ck_assert_uint_eq((uintptr_t)block % UNIT, 0);
	ck_assert(is_zero(block, BYTES));
	cu_ok(cw.sim->vm_retain(&handle, block));
	cu_ok(cw.sim->vm_properties(&properties, handle));
	cu_ok(cw.sim->vm_release(handle));
	ck_assert_uint_eq(properties.type, BATONI_CU_ALLOCATION_PINNED);
	ck_assert_uint_eq(properties.requestedHandleTypes, BATONI_CU_HANDLE_FD);
	ck_assert_uint_eq(properties.allocFlags.gpuDirectRDMACapable, 1);
	baton_ok(memory_ops->inspect(device, (char *)block + 5, 1, &info));
	ck_assert_int_eq(info.kind, BATONI_MEMORY_DEVICE);
	ck_assert_int_eq(info.owner, 0);
	memory_ops->blocks->block_free(device, block);
	end_closed();
}
END_TEST

START_TEST(without_virtual_memory_management_it_is_of_cuMemAlloc)
{
	void *block;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("vmm", 0));
	begin();
	block = alloc(BYTES);
	ck_assert(is_zero(block, BYTES));
	ck_assert_int_eq(cw.sim->sim_live("device"), 2);
	ck_assert_int_eq(cw.sim->sim_live("reservations"), 0);
	memory_ops->blocks->block_free(device, block);
	end_closed();
}
END_TEST

/* The one that waits is let go on by what its caller does next. */
START_TEST(an_allocation_beside_a_stream_that_waits_is_bounded)
{
	void *block = NULL;
	long blocks;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("vmm", 0));
	begin();
	blocks = batoni_mem_blocks();
	ck_assert(cw.sim->sim_set("implicit", 2));
	cuda_world_hold(cw.streams[0], 0);
	ck_assert_int_eq(
		memory_ops->blocks->block_alloc(device, BYTES, 0, &block),
		BATON_ERR_TIMEOUT);
	assert_said("no device memory", "stream", "device 0");
	ck_assert_ptr_null(block);
	cuda_world_let_go(0);
	/* It came too late, and goes. */
	while (cw.sim->sim_uses("cuMemFree_v2") == 0)
		usleep(1000);
	while (cw.sim->sim_live("device") != 1)
		usleep(1000);
	block = alloc(BYTES);
	memory_ops->blocks->block_free(device, block);
	while (batoni_mem_blocks() != blocks)
		usleep(1000);
	end_closed();
}
END_TEST

START_TEST(a_block_that_there_is_no_memory_for_is_refused)
{
	void *block = NULL;

	begin();
	ck_assert_int_eq(memory_ops->blocks->block_alloc(device, SIZE_MAX - 5,
	                                                 soon(), &block),
	                 BATON_ERR_NOMEM);
	assert_said("cuMemCreate, not called", "CUDA_ERROR_OUT_OF_MEMORY");
	cw.sim->sim_fail("cuMemCreate", 1, BATONI_CU_OUT_OF_MEMORY, false);
	ck_assert_int_eq(
		memory_ops->blocks->block_alloc(device, 8, soon(), &block),
		BATON_ERR_NOMEM);
	assert_said("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY");
	batoni_mem_fail_at(1);
	ck_assert_int_eq(
		memory_ops->blocks->block_alloc(device, 8, soon(), &block),
		BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert_ptr_null(block);
	end_closed();
}
END_TEST

/* ---- sharing ---- */

static void
ck_unshared(const void *pointer, size_t bytes, const char *why)
{
	struct batoni_memory_shared shared;

	ck_assert_int_eq(
		memory_ops->sharing->share(device, pointer, bytes, &shared),
		BATON_ERR_UNSUPPORTED);
	assert_said(why);
}

START_TEST(an_offer_without_memory_for_its_handover_keeps_no_descriptor)
{
	struct batoni_offering offering;
	struct batoni_offer offer;
	char *block;
	int before;

	begin();
	block = alloc(BYTES);
	before = count_descriptors();
	batoni_mem_fail_at(1);
	baton_ok(batoni_offer_make(device, memory_ops, block, BYTES, &offering,
	                           &offer));
	batoni_mem_fail_at(0);
	ck_assert_uint_eq(offer.offered, 0);
	ck_assert_ptr_nonnull(strstr(offer.why, "out of memory"));
	ck_assert_int_eq(offering.fd, -1);
	ck_assert_int_eq(count_descriptors(), before);
	memory_ops->blocks->block_free(device, block);
	end_closed();
}
END_TEST

START_TEST(a_name_is_that_of_one_block)
{
	struct batoni_memory_shared one, same, other;
	char *block;

	begin();
	block = alloc(BYTES);
	baton_ok(memory_ops->sharing->share(device, block + 24, BYTES - 24,
	                                    &one));
	baton_ok(memory_ops->sharing->share(device, block, 1, &same));
	ck_assert_mem_eq(&one.name, &same.name, sizeof(one.name));
	ck_assert_uint_eq(one.offset, 24);
	ck_assert_uint_eq(one.bytes, UNIT);
	ck_assert_int_ge(one.fd, 0);
	close(one.fd);
	close(same.fd);
	memory_ops->blocks->block_free(device, block);
	/* Perhaps at the same address. */
	block = alloc(BYTES);
	baton_ok(memory_ops->sharing->share(device, block, 1, &other));
	ck_assert_mem_ne(&one.name, &other.name, sizeof(one.name));
	close(other.fd);
	memory_ops->blocks->block_free(device, block);
	baton_ok(memory_ops->sharing->share(device, cw.to, 8, &one));
	ck_assert_int_eq(one.fd, -1);
	ck_assert_uint_eq(one.offset, CUDA_WORLD_BYTES);
	ck_assert_uint_eq(one.bytes, 2 * CUDA_WORLD_BYTES);
	end_closed();
}
END_TEST

START_TEST(what_cannot_be_shared_says_why)
{
	CUmemAllocationProp properties = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.location = {BATONI_CU_LOCATION_DEVICE, 0},
	};
	const CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, 0},
	                                BATONI_CU_ACCESS_READ_WRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr memory;

	begin();
	cu_ok(cw.sim->pool_alloc(&memory, 64, cw.streams[0]));
	ck_unshared((void *)(uintptr_t)memory, 64, "pool");
	cu_ok(cw.sim->pool_free(memory, cw.streams[0]));
	cu_ok(cw.sim->vm_create(&handle, UNIT, &properties, 0));
	cu_ok(cw.sim->vm_reserve(&memory, UNIT, 0, 0, 0));
	cu_ok(cw.sim->vm_map(memory, UNIT, 0, handle, 0));
	cu_ok(cw.sim->vm_access(memory, UNIT, &access, 1));
	ck_unshared((void *)(uintptr_t)memory, 64, "exported");
	cu_ok(cw.sim->vm_unmap(memory, UNIT));
	cu_ok(cw.sim->vm_unreserve(memory, UNIT));
	cu_ok(cw.sim->vm_release(handle));
	ck_unshared(cw.to, CUDA_WORLD_BYTES + 1, "more than one allocation");
	ck_assert(cw.sim->sim_set("ipc", 0));
	ck_unshared(cw.to, 1, "cuIpcGetMemHandle");
	end_closed();
}
END_TEST

/* Every call of the driver fails once, and nothing stays of it. */
START_TEST(a_call_that_fails_leaves_nothing)
{
	bool failed = true;
	int descriptors;
	long blocks;

	begin();
	memory_ops->blocks->block_free(device, alloc(1)); /* events, threads */
	descriptors = count_descriptors();
	blocks = batoni_mem_blocks();
	for (long n = 1; failed; n++) {
		struct batoni_memory_shared shared = {.fd = -1};
		enum baton_status status;
		void *block = NULL;

		ck_assert_int_lt(n, 200);
		cw.sim->sim_fail("", n, BATONI_CU_ILLEGAL_ADDRESS, false);
		status = memory_ops->blocks->block_alloc(device, BYTES, soon(),
		                                         &block);
		if (status != BATON_OK)
			assert_said("cu", "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
		else
			status = memory_ops->sharing->share(device, block, 8,
			                                    &shared);
		failed = status != BATON_OK;
		if (failed) {
			ck_assert_int_eq(status, BATON_ERR_CUDA);
			assert_said("cu", "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
			ck_assert_int_eq(shared.fd, -1);
		} else {
			/* Was it one whose failure does not matter? */
			failed = n < 25;
			close(shared.fd);
		}
		cw.sim->sim_fail("", 0, 0, false);
		if (block)
			memory_ops->blocks->block_free(device, block);
		nothing_left();
		ck_assert_int_eq(count_descriptors(), descriptors);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	}
	end_closed();
}
END_TEST

/* ---- two processes ---- */

static int to_child[2], to_test[2];
static pid_t child;

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (!(condition))                                             \
			_exit(__LINE__ % 250 + 1);                            \
	} while (0)

static bool
hear(struct told *told)
{
	return read(to_child[0], told, sizeof(*told)) == sizeof(*told);
}

static void
answer(void)
{
	CHECK(write(to_test[1], "", 1) == 1);
}

/* The child's side, on its own device. */
static void *
map(struct batoni_device *own, const struct told *told)
{
	void *base = NULL;
	int fd = -1;

	if (told->shared.fd >= 0)
		CHECK(batoni_handover_fetch(&told->descriptor, -1, soon(),
		                            &fd) == BATON_OK);
	CHECK(memory_ops->sharing->map(own, &told->shared.name, fd,
	                               told->shared.bytes, &base) == BATON_OK);
	if (fd >= 0)
		close(fd);
	return base;
}

/* Between device memory and pinned memory, by the device. */
static void
copy(struct batoni_device *own, void *to, const void *from, size_t bytes)
{
	struct batoni_ticket ticket;
	enum baton_status status;

	CHECK(memory_ops->copy_start(own, to, from, bytes, own->number,
	                             &ticket) == BATON_OK);
	do
		status = memory_ops->copy_test(own, &ticket);
	while (status == BATON_PENDING);
	CHECK(status == BATON_OK);
}

static void
child_maps(int number)
{
	unsigned char *pinned;
	struct batoni_device *own;
	struct told told;
	void *block, *base;

	CHECK(hear(&told));
	own = open_gpu(number);
	CHECK(own);
	CHECK(memory_ops->pinned_alloc(own, 4096, soon(), &block) == BATON_OK);
	pinned = block;
	do {
		base = map(own, &told);
		copy(own, pinned, (char *)base + told.shared.offset, 4096);
		for (int i = 0; i < 4096; i++)
			CHECK(pinned[i] == 7);
		memset(pinned, 9, 4096);
		copy(own, (char *)base + told.shared.offset, pinned, 4096);
		memory_ops->sharing->unmap(own, &told.shared.name, base,
		                           told.shared.bytes);
		CHECK(cw.sim->sim_live("allocations") == 0);
		CHECK(cw.sim->sim_live("reservations") == 0);
		CHECK(cw.sim->sim_live("opened") == 0);
		answer();
	} while (hear(&told));
	CHECK(cw.sim->sim_violations() == 0);
	_exit(0);
}

static void
child_on_the_same(void)
{
	child_maps(0);
}

static void
child_on_another(void)
{
	child_maps(1);
}

/* Every call fails once. */
static void
child_fails(void)
{
	struct batoni_device *own;
	struct told told;
	int descriptors, fd = -1;
	bool failed = true;

	CHECK(hear(&told));
	own = open_gpu(0);
	CHECK(own);
	if (told.shared.fd >= 0)
		CHECK(batoni_handover_fetch(&told.descriptor, -1, soon(),
		                            &fd) == BATON_OK);
	descriptors = count_descriptors();
	for (long n = 1; failed; n++) {
		enum baton_status status;
		void *base = NULL;

		cw.sim->sim_fail("", n, BATONI_CU_ILLEGAL_ADDRESS, false);
		status = memory_ops->sharing->map(own, &told.shared.name, fd,
		                                  told.shared.bytes, &base);
		cw.sim->sim_fail("", 0, 0, false);
		failed = status != BATON_OK;
		CHECK(!failed || status == BATON_ERR_CUDA);
		CHECK(!failed || strstr(baton_last_error(), "cu"));
		/* What gives the context back may fail unseen. */
		failed |= n < 12;
		if (base)
			memory_ops->sharing->unmap(own, &told.shared.name, base,
			                           told.shared.bytes);
		CHECK(cw.sim->sim_live("allocations") == 0);
		CHECK(cw.sim->sim_live("reservations") == 0);
		CHECK(cw.sim->sim_live("opened") == 0);
		CHECK(count_descriptors() == descriptors);
		CHECK(n < 100);
	}
	answer();
	_exit(0);
}

/* A GPU that it cannot reach, and one that it does not see. */
static void
child_does_not_reach(void)
{
	struct batoni_device *own;
	struct told told;
	void *base = NULL;
	int fd = -1;

	CHECK(hear(&told));
	CHECK(cw.sim->sim_peers(1, 0, false));
	own = open_gpu(1);
	CHECK(own);
	if (told.shared.fd >= 0)
		CHECK(batoni_handover_fetch(&told.descriptor, -1, soon(),
		                            &fd) == BATON_OK);
	CHECK(memory_ops->sharing->map(own, &told.shared.name, fd,
	                               told.shared.bytes,
	                               &base) == BATON_ERR_UNSUPPORTED);
	CHECK(strstr(baton_last_error(), "cannot reach"));
	CHECK(!base);
	answer();
	_exit(0);
}

/* The driver does not let it have the memory: that is no error of the device. */
static void
child_may_not_map(void)
{
	static const CUresult answers[] = {
		BATONI_CU_MAP_FAILED,      BATONI_CU_ALREADY_MAPPED,
		BATONI_CU_INVALID_VALUE,   BATONI_CU_INVALID_CONTEXT,
		BATONI_CU_PEER_UNSUPPORTED};
	struct batoni_device *own;
	struct told told;
	void *base = NULL;
	int fd = -1;

	CHECK(hear(&told));
	own = open_gpu(0);
	CHECK(own);
	if (told.shared.fd >= 0)
		CHECK(batoni_handover_fetch(&told.descriptor, -1, soon(),
		                            &fd) == BATON_OK);
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		CHECK(cw.sim->sim_fail(fd < 0 ? "cuIpcOpenMemHandle_v2"
		                              : "cuMemSetAccess",
		                       1, answers[i], false));
		CHECK(memory_ops->sharing->map(own, &told.shared.name, fd,
		                               told.shared.bytes,
		                               &base) == BATON_ERR_UNSUPPORTED);
		cw.sim->sim_fail("", 0, 0, false);
	}
	CHECK(!base);
	answer();
	_exit(0);
}

static void
with_child(void (*main)(void))
{
	cuda_world_load();
	ck_assert_int_eq(pipe(to_child), 0);
	ck_assert_int_eq(pipe(to_test), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		close(to_child[1]);
		main();
	}
	close(to_test[1]);
	begin();
}

/* Tell the child of the block, and wait for its answer. */
static void
share_with_child(const void *pointer)
{
	struct batoni_handover *handover = NULL;
	struct told told;
	char byte;

	memset(&told, 0, sizeof(told));
	baton_ok(memory_ops->sharing->share(device, pointer, 4096,
	                                    &told.shared));
	if (told.shared.fd >= 0)
		baton_ok(batoni_handover_open(told.shared.fd, &handover,
		                              &told.descriptor));
	ck_assert_int_eq(write(to_child[1], &told, sizeof(told)),
	                 sizeof(told));
	ck_assert_int_eq(read(to_test[0], &byte, 1), 1);
	batoni_handover_close(handover);
	if (told.shared.fd >= 0)
		close(told.shared.fd);
}

static void
end_child(void)
{
	int status = -1;

	close(to_child[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	              "the child ended with %#x", (unsigned)status);
}

static void
two_processes(void (*main)(void))
{
	unsigned char sevens[4096], nines[4096], seen[4096];
	unsigned char *block;
	const void *memory[2];

	with_child(main);
	block = alloc(BYTES);
	memory[0] = block + 512; /* by a descriptor */
	memory[1] = cw.to + 512; /* by an IPC handle */
	memset(sevens, 7, sizeof(sevens));
	memset(nines, 9, sizeof(nines));
	for (int i = 0; i < 4; i++) {
		const void *at = memory[i % 2];

		cw.sim->sim_poke(cuda_world_address(at), sevens, 4096);
		share_with_child(at);
		cw.sim->sim_peek(seen, cuda_world_address(at), 4096);
		ck_assert_mem_eq(seen, nines, 4096);
	}
	end_child();
	memory_ops->blocks->block_free(device, block);
	end_closed();
}

START_TEST(another_process_reaches_memory_of_both_kinds)
{
	two_processes(child_on_the_same);
}
END_TEST

START_TEST(another_gpu_reaches_it_as_a_peer)
{
	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", 2));
	ck_assert(cw.sim->sim_set("peer", 1));
	two_processes(child_on_another);
}
END_TEST

static void
one_answer(void (*main)(void), bool ipc)
{
	void *block;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", 2));
	with_child(main);
	block = alloc(BYTES);
	share_with_child(ipc ? cw.to : block);
	end_child();
	memory_ops->blocks->block_free(device, block);
	end_closed();
}

START_TEST(a_gpu_that_cannot_reach_it_says_so)
{
	one_answer(child_does_not_reach, _i);
}
END_TEST

START_TEST(memory_that_may_not_be_mapped_is_no_error_of_the_device)
{
	one_answer(child_may_not_map, _i);
}
END_TEST

START_TEST(a_mapping_that_fails_leaves_nothing)
{
	one_answer(child_fails, _i);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_block_is_an_allocation_that_can_be_exported,
		without_virtual_memory_management_it_is_of_cuMemAlloc,
		an_allocation_beside_a_stream_that_waits_is_bounded,
		a_block_that_there_is_no_memory_for_is_refused,
		an_offer_without_memory_for_its_handover_keeps_no_descriptor,
		a_name_is_that_of_one_block,
		what_cannot_be_shared_says_why,
		a_call_that_fails_leaves_nothing,
		another_process_reaches_memory_of_both_kinds,
		another_gpu_reaches_it_as_a_peer,
		NULL,
	};
	Suite *suite = suite_create("cuda_share");
	TCase *tcase = tcase_create("cuda_share");

	for (int i = 0; tests[i]; i++)
		tcase_add_test(tcase, tests[i]);
	tcase_add_loop_test(tcase, a_gpu_that_cannot_reach_it_says_so, 0, 2);
	tcase_add_loop_test(
		tcase, memory_that_may_not_be_mapped_is_no_error_of_the_device,
		0, 2);
	tcase_add_loop_test(tcase, a_mapping_that_fails_leaves_nothing, 0, 2);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
