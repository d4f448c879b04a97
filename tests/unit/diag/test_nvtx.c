/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranges of operations, as a tool sees them (nvtx_tool.h): their names, how they nest,
 * and that each one that begins ends.  With the argument "off": BATON_NVTX is not set, and
 * no tool is loaded.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fake_device.h"
#include "fake_memory.h"
#include "mem.h"
#include "nvtx_tool.h"
#include "run_tests.h"
#include "testing.h"

static struct baton_comm *comms[2];
static baton_stream streams[2]; /* of each rank */
static char in[4096], out[4096];

/* NULL: no tool was loaded. */
static struct nvtx_tool *
tool(void)
{
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *library = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	struct nvtx_tool *seen;

	if (!library)
		return NULL;
	seen = dlsym(library, "nvtx_tool_seen");
	dlclose(library);
	return seen;
}

static const struct nvtx_tool_range *
range_named(const char *name)
{
	const struct nvtx_tool *seen = tool();

	for (size_t i = 0; i < seen->count; i++) {
		if (strcmp(seen->ranges[i].name, name) == 0)
			return &seen->ranges[i];
	}
	ck_abort_msg("there is no range %s", name);
	return NULL;
}

static void
assert_before(const struct nvtx_tool_range *a, const struct nvtx_tool_range *b)
{
	ck_assert_uint_gt(a->ended, 0);
	ck_assert_uint_lt(a->ended, b->begun);
}

static void
assert_within(const struct nvtx_tool_range *inner,
              const struct nvtx_tool_range *outer)
{
	ck_assert_uint_gt(inner->begun, outer->begun);
	ck_assert_uint_gt(inner->ended, 0);
	ck_assert_uint_lt(inner->ended, outer->ended);
}

/* Pre, the transfer and Post of one operation follow each other. */
static void
assert_phases(const char *what, unsigned batch, size_t bytes)
{
	static const char *const phases[] = {"Pre", "", "Post"};
	const struct nvtx_tool_range *range, *before = NULL;
	char name[96];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "Batch-%u %s%s", batch, phases[i],
		         what);
		range = range_named(name);
		ck_assert_uint_eq(range->payload, bytes);
		if (before)
			assert_before(before, range);
		before = range;
	}
}

static void
open_on(const struct batoni_device_ops *device)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.progress = BATON_PROGRESS_CALLS;
	if (device)
		ck_assert_int_eq(batoni_comm_create_local_with(device, 2, &options,
		                                               comms),
		                 BATON_OK);
	else
		ck_assert_int_eq(baton_comm_create_local(2, &options, comms),
		                 BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_stream_create(comms[i], &streams[i]),
		                 BATON_OK);
}

/* Whatever happened: all ranges have ended, once, and not only because the communicator goes. */
static void
close_all(void)
{
	const struct nvtx_tool *seen = tool();

	for (size_t i = 0; seen && i < seen->count; i++)
		ck_assert_msg(seen->ranges[i].ended > seen->ranges[i].begun,
		              "%s has not ended", seen->ranges[i].name);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_stream_destroy(comms[i], streams[i]),
		                 BATON_OK);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
	if (seen)
		ck_assert_uint_eq(seen->wrong, 0);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct baton_op_options
batch(unsigned number)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.user_data = number;
	return options;
}

static baton_request
move(bool send, void *buffer, size_t bytes, const struct baton_op_options *options)
{
	baton_request request = 0;

	ck_assert_int_eq(send ? baton_send(buffer, bytes, BATON_UINT8, 1, 0,
	                                   comms[0], streams[0],
	                                   options, &request)
	                      : baton_recv(buffer, bytes, BATON_UINT8, 0, 0,
	                                   comms[1], streams[1],
	                                   options, &request),
	                 BATON_OK);
	return request;
}

static void
finish(baton_request request, enum baton_status status)
{
	ck_assert_int_eq(baton_finish(&request, -1, NULL), status);
}

START_TEST(an_operation_has_onnx_runtimes_phases)
{
	struct baton_op_options seven = batch(7), eight = batch(8);
	baton_request a, b;

	open_on(NULL);
	seven.flags = eight.flags = BATON_OP_DETACHED;
	a = move(true, out, 100, &seven);
	b = move(false, in, 200, &eight);
	finish(a, BATON_OK);
	finish(b, BATON_OK);
	assert_phases("Send-1", 7, 100);
	assert_phases("Recv-0", 8, 200);
	ck_assert_uint_eq(tool()->count, 6);
	ck_assert_str_eq(tool()->domain, "baton");
	close_all();
}
END_TEST

/* Memory of a device is staged: the copies are within the transfer. */
START_TEST(copies_are_a_phase_within_the_transfer)
{
	struct baton_op_options one = batch(1), two = batch(2);
	char *to, *from;
	baton_request a, b;

	open_on(&batoni_fake_device_ops);
	to = fake_memory_alloc(300000);
	from = fake_memory_alloc(300000);
	one.flags = two.flags = BATON_OP_DETACHED;
	a = move(true, from, 300000, &one);
	b = move(false, to, 300000, &two);
	finish(a, BATON_OK);
	finish(b, BATON_OK);
	assert_phases("Send-1", 1, 300000);
	assert_phases("Recv-0", 2, 300000);
	assert_within(range_named("Batch-1 SendMemcpy-1"), range_named("Batch-1 Send-1"));
	assert_within(range_named("Batch-2 RecvMemcpy-0"), range_named("Batch-2 Recv-0"));
	fake_memory_free(to);
	fake_memory_free(from);
	close_all();
}
END_TEST

START_TEST(lists_of_tensors_have_them_too)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[2] = {
		{.data = out, .type = BATON_UINT8, .rank = 1, .shape = {50}},
		{.data = out + 100, .type = BATON_UINT8, .rank = 1, .shape = {20}},
	};
	baton_request a = 0, b = 0;

	open_on(NULL);
	options.op.user_data = 3;
	options.op.flags = BATON_OP_DETACHED;
	ck_assert_int_eq(baton_send_tensors(list, 2, 1, 0, comms[0], streams[0],
	                                    &options, &a),
	                 BATON_OK);
	list[0].data = in;
	list[1].data = in + 100;
	ck_assert_int_eq(baton_recv_tensors(list, 2, 0, 0, comms[1], streams[1],
	                                    &options, &b),
	                 BATON_OK);
	finish(a, BATON_OK);
	finish(b, BATON_OK);
	assert_phases("Send-1", 3, 70);
	/* All of it is declared. */
	assert_phases("Recv-0", 3, 70);
	close_all();
}
END_TEST

START_TEST(signals_waits_records_and_plans_have_ranges)
{
	struct baton_wait_signal_desc descs[2] = {{.op_count = 1},
	                                          {.op_count = 1, .peer = 1}};
	struct baton_op_options five = batch(5);
	struct baton_plan *plan = NULL;
	baton_request request = 0, record = 0;

	open_on(NULL);
	ck_assert_int_eq(baton_plan_begin(comms[0]), BATON_OK);
	ck_assert_int_eq(baton_signal(1, 0, 0, 0, comms[0], streams[0], NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_signal(0, 0, 0, 0, comms[0], streams[0], NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_signal(0, 0, 0, 0, comms[1], streams[1], NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_wait_signal(2, descs, comms[0], streams[0], NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_plan_end(comms[0], &plan), BATON_OK);
	ck_assert_int_eq(baton_plan_launch(plan, &five, &request), BATON_OK);
	ck_assert_int_eq(baton_plan_destroy(plan), BATON_OK);
	finish(request, BATON_OK);
	ck_assert_int_eq(baton_record(comms[0], streams[0], &five, &record), BATON_OK);
	finish(record, BATON_OK);
	/* The operations have the number of the launch. */
	assert_phases("Signal-1", 5, 0);
	assert_phases("Signal-0", 5, 0);
	assert_phases("Wait-several", 5, 0);
	assert_within(range_named("Batch-5 Wait-several"), range_named("Batch-5 Plan"));
	range_named("Batch-5 Record");
	close_all();
}
END_TEST

/* close_all looks whether all have ended. */
START_TEST(ranges_end_however_operations_do)
{
	struct baton_op_options late = batch(1);
	baton_request request;

	open_on(NULL);
	/* Canceled, behind another one. */
	request = move(false, in, 10, NULL);
	finish(move(true, out, 10, NULL), BATON_OK);
	finish(request, BATON_OK);
	request = move(false, in, 10, NULL);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	finish(request, BATON_ERR_CANCELED);
	/* Timed out. */
	late.timeout_ns = 1;
	finish(move(false, in, 10, &late), BATON_ERR_TIMEOUT);
	/* Refused. */
	ck_assert_int_eq(baton_send(out, 10, BATON_UINT8, 2, 0, comms[0], streams[0],
	                            NULL, NULL),
	                 BATON_ERR_INVALID);
	/* Of a void group. */
	ck_assert_int_eq(baton_group_begin(comms[1]), BATON_OK);
	ck_assert_int_eq(baton_recv(in, 10, BATON_UINT8, 0, 0, comms[1], streams[1],
	                            NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_recv(in, 10, BATON_UINT8, 9, 0, comms[1], streams[1],
	                            NULL, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_group_end(comms[1]), BATON_ERR_INVALID);
	/* Truncated. */
	request = move(false, in, 5, NULL);
	finish(move(true, out, 10, NULL), BATON_OK);
	finish(request, BATON_ERR_TRUNCATED);
	/* Aborted, one issued and one behind it. */
	request = move(false, in, 10, NULL);
	baton_release(&request);
	request = move(false, in, 10, NULL);
	ck_assert_int_eq(baton_comm_abort(comms[1]), BATON_OK);
	finish(request, BATON_ERR_ABORTED);
	ck_assert_uint_gt(tool()->count, 20);
	close_all();
}
END_TEST

START_TEST(nothing_is_drawn_that_was_not_asked_for)
{
	baton_request a, b;

	open_on(NULL);
	a = move(true, out, 100, NULL);
	b = move(false, in, 100, NULL);
	finish(a, BATON_OK);
	finish(b, BATON_OK);
	ck_assert_ptr_null(tool());
	close_all();
}
END_TEST

int
main(int argc, char **argv)
{
	const TTest *const tests[] = {
		an_operation_has_onnx_runtimes_phases,
		copies_are_a_phase_within_the_transfer,
		lists_of_tensors_have_them_too,
		signals_waits_records_and_plans_have_ranges,
		ranges_end_however_operations_do,
	};
	const TTest *const off[] = {nothing_is_drawn_that_was_not_asked_for};

	if (argc > 1 && strcmp(argv[1], "off") == 0)
		return RUN_TESTS("nvtx_off", off);
	return RUN_TESTS("nvtx", tests);
}
