/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels of simulators: cudasim_launch. */
#include "world.h"

struct work {
	_Atomic bool may_end;
	_Atomic int steps, gone;
	unsigned char byte;
	struct cudasim_buffer buffer;
};

static enum cudasim_step
step(void *data)
{
	struct work *work = data;

	atomic_fetch_add(&work->steps, 1);
	if (!atomic_load(&work->may_end))
		return CUDASIM_WAITS;
	if (work->buffer.reach)
		memset(work->buffer.reach, work->byte, work->buffer.bytes);
	return CUDASIM_ENDED;
}

static void
gone(void *data)
{
	struct work *work = data;

	atomic_fetch_add(&work->gone, 1);
}

static CUresult
launch(const CUstream *streams, size_t n, struct work *work)
{
	const struct cudasim_kernel kernel = {step, gone, work, &work->buffer, 1};

	return w.sim->launch(streams, n, &kernel);
}

/* What it waits for is there. */
static void
let_end(struct work *work)
{
	atomic_store(&work->may_end, true);
	w.sim->sim_changed();
}

START_TEST(kernel_runs_in_its_streams_turn)
{
	struct work work = {.may_end = true, .byte = 7};
	CUdeviceptr memory;
	unsigned char byte;
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->mem_alloc(&memory, 100));
	work.buffer = (struct cudasim_buffer){memory, 100, NULL};
	world_wait(stream, 0, 1);
	ck_success(launch(&stream, 1, &work));
	w.sim->sim_settle(false);
	ck_assert_int_eq(atomic_load(&work.steps), 0);
	world_store(0, 1);
	world_end();
	ck_assert_int_eq(atomic_load(&work.gone), 1);
	w.sim->sim_peek(&byte, memory + 99, 1);
	ck_assert_uint_eq(byte, 7);
}
END_TEST

START_TEST(kernel_that_waits_holds_its_stream_up)
{
	struct work work = {.may_end = false};
	struct probe after;
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(launch(&stream, 1, &work));
	world_probe(stream, &after);
	/* Waiting is not moving: this returns. */
	w.sim->sim_settle(false);
	ck_assert_int_gt(atomic_load(&work.steps), 0);
	ck_assert_int_eq(world_calls(&after), 0);
	let_end(&work);
	world_end();
	ck_assert_int_eq(world_calls(&after), 1);
}
END_TEST

START_TEST(kernel_that_waits_holds_its_queue_up)
{
	struct work work = {.may_end = false};
	struct probe beside;
	CUstream stream, neighbour;

	world_load();
	ck_assert(w.sim->sim_set("queues", 1));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	neighbour = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(launch(&stream, 1, &work));
	world_probe(neighbour, &beside);
	w.sim->sim_settle(false);
	ck_assert_int_eq(world_calls(&beside), 0);
	let_end(&work);
	world_end();
}
END_TEST

START_TEST(kernel_of_several_streams_begins_and_ends_with_all)
{
	struct work work = {.may_end = false};
	struct probe after;
	CUstream streams[2];

	world_begin();
	streams[0] = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	streams[1] = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	world_wait(streams[1], 0, 1);
	ck_success(launch(streams, 2, &work));
	world_probe(streams[1], &after);
	w.sim->sim_settle(false);
	ck_assert_int_eq(atomic_load(&work.steps), 0);
	world_store(0, 1);
	w.sim->sim_settle(false);
	ck_assert_int_gt(atomic_load(&work.steps), 0);
	ck_assert_int_eq(world_calls(&after), 0);
	let_end(&work);
	world_end();
	ck_assert_int_eq(world_calls(&after), 1);
}
END_TEST

START_TEST(memory_of_a_kernel_must_be_the_devices)
{
	struct work work = {.may_end = true};
	static unsigned char host[8];
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	work.buffer = (struct cudasim_buffer){(uintptr_t)host, 8, NULL};
	ck_assert_uint_eq(launch(&stream, 1, &work),
	                  BATONI_CU_ILLEGAL_ADDRESS);
	w.violations = 1;
	world_end();
	/* It was never launched. */
	ck_assert_int_eq(atomic_load(&work.gone), 0);
}
END_TEST

START_TEST(memory_stays_until_the_kernel_is_gone)
{
	struct work work = {.may_end = false};
	CUdeviceptr memory;
	CUstream stream;

	world_load();
	ck_assert(w.sim->sim_set("implicit", 0));
	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->mem_alloc(&memory, 100));
	work.buffer = (struct cudasim_buffer){memory, 100, NULL};
	ck_success(launch(&stream, 1, &work));
	ck_success(w.sim->mem_free(memory));
	w.violations = 1;
	let_end(&work);
	world_end();
}
END_TEST

START_TEST(launch_can_be_made_to_fail)
{
	struct work work = {.may_end = true};
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_assert(w.sim->sim_fail("cuLaunchKernel", 1, 719, false));
	ck_assert_uint_eq(launch(&stream, 1, &work), 719);
	ck_assert_int_eq(w.sim->sim_uses("cudasim_launch"), 1);
	world_end();
	ck_assert_int_eq(atomic_load(&work.gone), 0);
}
END_TEST

START_TEST(error_of_the_context_drops_kernels)
{
	struct work work = {.may_end = false}, behind = {.may_end = true};
	CUstream stream;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(launch(&stream, 1, &work));
	ck_success(launch(&stream, 1, &behind));
	w.sim->sim_break(0, BATONI_CU_ILLEGAL_ADDRESS);
	world_end();
	ck_assert_int_eq(atomic_load(&work.gone), 1);
	ck_assert_int_eq(atomic_load(&behind.gone), 1);
	ck_assert_int_eq(atomic_load(&behind.steps), 0);
}
END_TEST

START_TEST(kernel_that_is_captured_is_forgotten)
{
	struct work work = {.may_end = true};
	CUstream stream;
	CUgraph graph;

	world_begin();
	stream = world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	ck_success(w.sim->capture_begin(stream, CUDASIM_CAPTURE_GLOBAL));
	ck_success(launch(&stream, 1, &work));
	ck_assert_int_eq(atomic_load(&work.gone), 1);
	ck_success(w.sim->capture_end(stream, &graph));
	world_end();
	ck_assert_int_eq(atomic_load(&work.steps), 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		kernel_runs_in_its_streams_turn,
		kernel_that_waits_holds_its_stream_up,
		kernel_that_waits_holds_its_queue_up,
		kernel_of_several_streams_begins_and_ends_with_all,
		memory_of_a_kernel_must_be_the_devices,
		memory_stays_until_the_kernel_is_gone,
		launch_can_be_made_to_fail,
		error_of_the_context_drops_kernels,
		kernel_that_is_captured_is_forgotten,
	};

	return RUN_TESTS("cudasim_kernels", tests);
}
