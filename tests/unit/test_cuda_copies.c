/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the ends of copies are seen: by numbers that streams write, by events where they write
 * none, and by the driver where a GPU is sick.
 */
#include <string.h>

#include "cuda_world.h"

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

/* The write behind the copy is refused, and then the event too. */
START_TEST(a_copy_whose_number_is_refused_ends_by_what_the_driver_says)
{
	open_world(BATON_PROGRESS_CALLS);
	for (long events = 1; events >= 0; events--) {
		long before = cw.sim->sim_uses("cuEventQuery");

		cuda_world_fill(cw.from, 8, (unsigned)events);
		make_ready(cw.from, cw.to);
		ck_assert(cw.sim->sim_fail("cuStreamBatchMemOp_v2", 1, 2, false));
		if (events == 0)
			ck_assert(cw.sim->sim_fail("cuEventRecord", 1, 2, false));
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

int
main(void)
{
	const TTest *const tests[] = {
		to_ask_a_copy_is_no_call,
		a_copy_whose_number_is_refused_ends_by_what_the_driver_says,
		a_copy_of_another_device_that_fails_ends,
		a_copy_of_another_device_without_communicators_that_fails_ends,
	};

	return RUN_TESTS("cuda_copies", tests);
}
