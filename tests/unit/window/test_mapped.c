/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals that streams carry out by themselves, on CUDA over the simulator: that no engine
 * is in their way, their order with those of the engine, full streams, and calls that fail.
 * How they end early is in test_mapped_ends.c.
 *
 * Ranks make no progress but where a test waits: BATON_PROGRESS_CALLS.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "cuda_world.h"
#include "forecast.h"
#include "trace_file.h"
#include "trace_folder.h"

static struct baton_comm_options
silent(void)
{
	struct baton_comm_options options = cuda_world_options();

	options.progress = BATON_PROGRESS_CALLS;
	options.requests_max = 512;
	return options;
}

static void
register_both(void)
{
	cuda_world_parts(cw.to, cw.to, CUDA_WORLD_BYTES);
	cuda_world_both(cuda_world_register, BATON_OK);
}

static void
open_silent(void)
{
	struct baton_comm_options options = silent();

	cuda_world_begin();
	cuda_world_comms(&options);
	register_both();
}

static void
end_world(void)
{
	cuda_world_both(cuda_world_deregister, BATON_OK);
	cuda_world_end();
}

static void
progress(int passes)
{
	while (passes-- > 0) {
		(void)baton_progress(cw.comms[0]);
		(void)baton_progress(cw.comms[1]);
	}
}

static const struct baton_op_options detached = {
	.size = sizeof(struct baton_op_options),
	.flags = BATON_OP_DETACHED,
};

static baton_request
put_from_zero(size_t bytes, size_t at, int index, CUstream stream,
              const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_put_signal(cw.from, bytes, BATON_UINT8, 1, cw.parts[0].window, at,
	                          index, 0, 0, cw.comms[0], stream, options,
	                          &request));
	return request;
}

static baton_request
signal_on(CUstream stream, int index, int context,
          const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_signal(1, index, context, 0, cw.comms[0], stream, options,
	                      &request));
	return request;
}

/* What rank 1 has; it makes no progress. */
static uint64_t
count(int index)
{
	uint64_t n = 0;

	baton_ok(baton_signal_count(cw.comms[1], 0, index, 0, &n));
	return n;
}

static void
run_out(CUstream stream)
{
	cu_ok(cw.sim->stream_synchronize(stream));
}

static bool
is_busy(CUstream stream)
{
	return cw.sim->stream_query(stream) == BATONI_CU_NOT_READY;
}

/* Is it the engine's?  It then holds its stream up, which nobody lets go. */
static void
assert_engines(CUstream stream)
{
	cw.sim->sim_settle(true);
	ck_assert(is_busy(stream));
}

static struct baton_comm_info
info(void)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	baton_ok(baton_comm_query(cw.comms[0], &info));
	return info;
}

/* ---- by streams alone ------------------------------------------------------ */

START_TEST(streams_alone_change_memory_and_counter)
{
	baton_request request;

	open_silent();
	ck_assert_str_eq(info().why_engine_puts, "");
	cuda_world_fill(cw.from, MIB, 5);
	cuda_world_hold(cw.streams[0], 0);
	request = put_from_zero(MIB, 64, 3, cw.streams[0], NULL);
	ck_assert_uint_eq(count(3), 0);
	cuda_world_both(cuda_world_deregister, BATON_ERR_BUSY);
	cuda_world_let_go(0);
	run_out(cw.streams[0]);
	ck_assert_uint_eq(count(3), 1);
	cuda_world_expect(cw.to + 64, MIB, 5);
	cuda_world_finish(request, BATON_OK);
	end_world();
}
END_TEST

/* No window is named. */
START_TEST(signals_go_by_streams_alone)
{
	open_silent();
	for (unsigned i = 1; i <= 20; i++) {
		(void)baton_signal(1, 1, 0, 0, cw.comms[0], cw.streams[0], NULL,
		                   NULL);
		run_out(cw.streams[0]);
		ck_assert_uint_eq(count(1), i);
	}
	end_world();
}
END_TEST

/* The layer adds the path of streams when the communicator starts. */
START_TEST(a_trace_knows_the_path_of_streams)
{
	trace_folder_make();
	open_silent();
	for (int i = 0; i < 2; i++) {
		const struct batoni_trace *trace = cw.comms[i]->trace;

		ck_assert_ptr_nonnull(trace);
		ck_assert_uint_eq(trace->header->paths_known,
		                  cw.comms[i]->paths_count);
		ck_assert_int_eq(unlink(trace->path), 0);
	}
	trace_folder_remove();
	end_world();
}
END_TEST

/* A stream at the target waits for its word, which its engine releases when it has seen the
 * counter; it sees the data. */
START_TEST(stream_that_waits_goes_on_with_the_data)
{
	struct baton_wait_signal_desc one = {.op_count = 1, .peer = 0};
	struct baton_comm_options options = silent();
	CUdeviceptr copy;

	options.progress = BATON_PROGRESS_AUTO;
	cuda_world_begin();
	cuda_world_comms(&options);
	register_both();
	cw.sim->sim_set("seed", 7);
	copy = cuda_world_address(cw.from + 8 * MIB);
	cuda_world_fill(cw.from, MIB, 9);
	baton_ok(baton_wait_signal(1, &one, cw.comms[1], cw.streams[1], NULL,
	                           NULL));
	cu_ok(cw.sim->copy(copy, cuda_world_address(cw.to), MIB, cw.streams[1]));
	baton_ok(baton_put_signal(cw.from, MIB, BATON_UINT8, 1, cw.parts[0].window, 0, 0,
	                          0, 0, cw.comms[0], cw.streams[0], NULL, NULL));
	run_out(cw.streams[1]);
	cuda_world_expect(cw.from + 8 * MIB, MIB, 9);
	run_out(cw.streams[0]);
	baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
	end_world();
}
END_TEST

/* Nobody need ring when a stream has written, so who waits looks by itself. */
START_TEST(wait_is_looked_at_without_a_ring)
{
	struct baton_wait_signal_desc one = {.op_count = 1, .peer = 0};
	struct batoni_load load;
	baton_request request;

	open_silent();
	baton_ok(baton_wait_signal(1, &one, cw.comms[1], cw.streams[1], NULL,
	                           &request));
	cw.sim->sim_settle(false);
	progress(10);
	batoni_lock();
	load = batoni_comm_load(cw.comms[1]);
	ck_assert_uint_eq(load.parked, 1);
	ck_assert_int_eq(batoni_load_poll(&load), BATONI_POLL_WATCH);
	batoni_unlock();
	(void)signal_on(cw.streams[0], 0, 0, NULL);
	cuda_world_finish(request, BATON_OK);
	run_out(cw.streams[1]);
	end_world();
}
END_TEST

/* It rings when its engine has seen the end. */
START_TEST(thread_listens_while_it_watches)
{
	struct baton_wait_signal_desc one = {.op_count = 1, .peer = 0};
	baton_request request;

	cuda_world_open();
	baton_ok(baton_wait_signal(1, &one, cw.comms[1], cw.streams[1], NULL,
	                           &request));
	while (!(atomic_load(&batoni_bell()->listening) & BATONI_ASLEEP_THREAD))
		sched_yield();
	(void)signal_on(cw.streams[0], 0, 0, NULL);
	cuda_world_finish(request, BATON_OK);
	run_out(cw.streams[0]);
	run_out(cw.streams[1]);
	cuda_world_end();
}
END_TEST

/* ---- order ------------------------------------------------------------------ */

static struct batoni_load
load_of_source(void)
{
	struct batoni_load load;

	batoni_lock();
	load = batoni_comm_load(cw.comms[0]);
	batoni_unlock();
	return load;
}

START_TEST(put_behind_one_of_another_stream_is_the_engines)
{
	struct batoni_load load;
	baton_request a, b;

	open_silent();
	cuda_world_hold(cw.streams[0], 0);
	a = put_from_zero(64, 0, 0, cw.streams[0], NULL);
	b = put_from_zero(64, 64, 1, cw.streams[1], NULL);
	assert_engines(cw.streams[1]);
	progress(50);
	ck_assert_uint_eq(count(1), 0);
	/* No reason to look but the marks of the first. */
	load = load_of_source();
	ck_assert_uint_eq(load.moving, 0);
	ck_assert_int_eq(batoni_load_poll(&load), BATONI_POLL_DEVICE);
	cuda_world_let_go(0);
	cuda_world_finish(b, BATON_OK);
	ck_assert_uint_eq(count(0), 1);
	ck_assert_uint_eq(count(1), 1);
	cuda_world_finish(a, BATON_OK);
	run_out(cw.streams[1]);
	end_world();
}
END_TEST

/* Also on the stream that had some before. */
/* It takes several looks then. */
START_TEST(put_behind_a_stream_moves_bytes_when_that_has_ended)
{
	struct batoni_load load;
	baton_request a, b;

	open_silent();
	cuda_world_hold(cw.streams[0], 0);
	a = signal_on(cw.streams[0], 0, 0, NULL);
	b = put_from_zero(MIB, 64, 1, cw.streams[1], NULL);
	/* Its stream has come to it. */
	while (load_of_source().awaiting == 0)
		progress(1);
	ck_assert(cw.sim->sim_set("copies", 0));
	cuda_world_let_go(0);
	cuda_world_finish(a, BATON_OK);
	load = load_of_source();
	ck_assert_uint_eq(load.moving, 1);
	ck_assert_uint_eq(load.awaiting, 0);
	ck_assert_uint_eq(count(1), 0);
	ck_assert(cw.sim->sim_set("copies", 1));
	cuda_world_finish(b, BATON_OK);
	ck_assert_uint_eq(count(1), 1);
	load = load_of_source();
	ck_assert_uint_eq(load.moving, 0);
	run_out(cw.streams[1]);
	end_world();
}
END_TEST

START_TEST(put_behind_the_engines_is_the_engines)
{
	baton_request a, b;

	open_silent();
	cuda_world_hold(cw.streams[1], 0);
	a = put_from_zero(64, 0, 0, cw.streams[1], &detached);
	b = put_from_zero(64, 64, 1, cw.streams[0], NULL);
	assert_engines(cw.streams[0]);
	progress(50);
	ck_assert_uint_eq(count(1), 0);
	cuda_world_let_go(0);
	cuda_world_finish(b, BATON_OK);
	ck_assert_uint_eq(count(0), 1);
	cuda_world_finish(a, BATON_OK);
	run_out(cw.streams[0]);
	/* Both have ended: streams have it again. */
	a = put_from_zero(64, 0, 0, cw.streams[0], NULL);
	run_out(cw.streams[0]);
	ck_assert_uint_eq(count(0), 2);
	cuda_world_finish(a, BATON_OK);
	end_world();
}
END_TEST

START_TEST(other_contexts_do_not_wait)
{
	open_silent();
	cuda_world_hold(cw.streams[0], 0);
	(void)signal_on(cw.streams[0], 0, 1, NULL);
	(void)signal_on(cw.streams[1], 0, 0, NULL);
	run_out(cw.streams[1]);
	ck_assert_uint_eq(count(0), 1);
	cuda_world_let_go(0);
	end_world();
}
END_TEST

START_TEST(members_of_a_group_are_the_engines)
{
	baton_request request;

	open_silent();
	baton_ok(baton_group_begin(cw.comms[0]));
	request = put_from_zero(64, 0, 0, cw.streams[0], NULL);
	baton_ok(baton_group_end(cw.comms[0]));
	assert_engines(cw.streams[0]);
	cuda_world_finish(request, BATON_OK);
	run_out(cw.streams[0]);
	/* One that is void leaves nothing in the way. */
	baton_ok(baton_group_begin(cw.comms[0]));
	(void)put_from_zero(64, 0, 0, cw.streams[0], NULL);
	ck_assert_int_eq(baton_signal(7, 0, 0, 0, cw.comms[0], cw.streams[0], NULL,
	                              NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_group_end(cw.comms[0]), BATON_ERR_INVALID);
	progress(5);
	request = put_from_zero(64, 0, 0, cw.streams[0], NULL);
	run_out(cw.streams[0]);
	ck_assert_uint_eq(count(0), 2);
	cuda_world_finish(request, BATON_OK);
	end_world();
}
END_TEST

static void *
signal_by_default_stream(void *unused)
{
	CUstream stream = (CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;

	cu_ok(cw.sim->context_push(cw.context));
	(void)baton_signal(1, 1, 0, 0, cw.comms[0], stream, NULL, NULL);
	assert_engines(stream);
	cuda_world_let_go(0);
	while (is_busy(stream))
		progress(1);
	return unused;
}

/* One handle, and two streams. */
START_TEST(default_streams_of_two_threads_are_two_streams)
{
	CUstream stream = (CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;
	pthread_t thread;

	open_silent();
	cuda_world_hold(stream, 0);
	(void)signal_on(stream, 0, 0, NULL);
	pthread_create(&thread, NULL, signal_by_default_stream, NULL);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(count(0), 1);
	ck_assert_uint_eq(count(1), 1);
	end_world();
}
END_TEST

/* Numbers of streams and engine alternate: each counter is right whoever wrote it last. */
START_TEST(counts_are_right_after_stores_and_writes)
{
	unsigned seed = 12345;
	uint64_t sent[3] = {0};

	open_silent();
	cw.sim->sim_set("seed", 3);
	for (int i = 0; i < 600; i++) {
		unsigned dice = (seed = seed * 1103515245u + 12345u) >> 16;
		int index = (int)(dice % 3);

		baton_ok(baton_signal(1, index, 0, 0, cw.comms[0],
		                      cw.streams[dice / 3 % 2],
		                      dice / 8 % 4 ? NULL : &detached, NULL));
		sent[index]++;
		if (dice / 32 % 5 == 0)
			progress((int)(dice % 7));
		if (i % 50 == 49) {
			baton_ok(baton_stream_synchronize(cw.comms[0],
			                                  cw.streams[0]));
			baton_ok(baton_stream_synchronize(cw.comms[0],
			                                  cw.streams[1]));
		}
	}
	cuda_world_both(cuda_world_deregister, BATON_OK);
	while (count(0) + count(1) + count(2) < 600)
		progress(1);
	for (int index = 0; index < 3; index++)
		ck_assert_uint_eq(count(index), sent[index]);
	cuda_world_end();
}
END_TEST

/* Each rank on a GPU of its own.  A put from one to the other's memory. */
START_TEST(streams_of_another_gpu_put_too)
{
	struct baton_comm_options options = silent();
	CUcontext other;
	CUstream stream;
	baton_request request;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", 2));
	ck_assert(cw.sim->sim_set("peer", 1));
	cuda_world_begin();
	options.cuda_device = -1;
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->stream_create(&stream, BATONI_CU_STREAM_NON_BLOCKING, 0));
	options.cuda_device = 1;
	cuda_world_comms(&options);
	register_both();
	cuda_world_fill(cw.from, 4096, 2);
	request = put_from_zero(4096, 0, 0, stream, NULL);
	run_out(stream);
	ck_assert_uint_eq(count(0), 1);
	cuda_world_expect(cw.to, 4096, 2);
	cuda_world_finish(request, BATON_OK);
	end_world();
}
END_TEST

/* ---- bounds and failures ----------------------------------------------------- */

START_TEST(full_stream_blocks_no_call)
{
	enum { N = 200 }; /* more than a stream takes */

	open_silent();
	ck_assert(cw.sim->sim_set("depth", 1000));
	cuda_world_hold(cw.streams[0], 0);
	for (int i = 0; i < N; i++)
		baton_ok(baton_signal(1, 0, 0, 0, cw.comms[0], cw.streams[0],
		                      NULL, NULL));
	ck_assert_int_eq(cw.sim->sim_blocked(), 0);
	cuda_world_let_go(0);
	while (count(0) < N)
		progress(1);
	baton_ok(baton_stream_synchronize(cw.comms[0], cw.streams[0]));
	ck_assert_uint_eq(count(0), N);
	end_world();
}
END_TEST

START_TEST(put_whose_copy_is_refused_is_the_engines)
{
	baton_request request;

	open_silent();
	cuda_world_fill(cw.from, 4096, 6);
	ck_assert(cw.sim->sim_fail("cuMemcpyAsync", 1, BATONI_CU_INVALID_VALUE,
	                           false));
	request = put_from_zero(4096, 0, 0, cw.streams[0], NULL);
	assert_engines(cw.streams[0]);
	cuda_world_finish(request, BATON_OK);
	cuda_world_expect(cw.to, 4096, 6);
	ck_assert_uint_eq(count(0), 1);
	run_out(cw.streams[0]);
	end_world();
}
END_TEST

START_TEST(write_that_is_refused_once_is_asked_for_again)
{
	baton_request request;

	open_silent();
	ck_assert(cw.sim->sim_fail("cuStreamBatchMemOp", 1,
	                           BATONI_CU_INVALID_VALUE, false));
	request = put_from_zero(4096, 0, 0, cw.streams[0], NULL);
	run_out(cw.streams[0]);
	ck_assert_uint_eq(count(0), 1);
	cuda_world_finish(request, BATON_OK);
	end_world();
}
END_TEST

/* The copy is on the stream, and the write cannot be. */
START_TEST(write_that_is_never_taken_breaks_the_communicator)
{
	baton_request request = BATON_REQUEST_NULL;

	open_silent();
	ck_assert(cw.sim->sim_fail("cuStreamBatchMemOp", 1, 700, true));
	(void)baton_put_signal(cw.from, 4096, BATON_UINT8, 1, cw.parts[0].window, 0, 0, 0,
	                       0, cw.comms[0], cw.streams[0], NULL, &request);
	if (request != BATON_REQUEST_NULL)
		ck_assert_int_eq(baton_wait(request, LONG_NS, NULL),
		                 BATON_ERR_CUDA);
	progress(3);
	while (baton_comm_status(cw.comms[0]) == BATON_OK)
		progress(1);
	ck_assert_int_eq(baton_comm_status(cw.comms[0]), BATON_ERR_CUDA);
	ck_assert_uint_eq(count(0), 0);
	baton_ok(baton_comm_abort(cw.comms[1]));
	for (int i = 0; i < 2; i++)
		baton_ok(baton_window_deregister(cw.parts[i].window));
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(cw.comms[i]));
}
END_TEST

/* All puts are the engine's; the query says that it is because of `why`. */
static void
see_engine_puts(const char *why)
{
	baton_request request;

	open_silent();
	ck_assert_ptr_nonnull(strstr(info().why_engine_puts, why));
	request = put_from_zero(64, 0, 0, cw.streams[0], NULL);
	assert_engines(cw.streams[0]);
	cuda_world_finish(request, BATON_OK);
	run_out(cw.streams[0]);
	end_world();
}

START_TEST(without_memory_operations_the_engine_puts)
{
	cuda_world_load();
	ck_assert(cw.sim->sim_set("memops", 0));
	see_engine_puts("memory operations");
}
END_TEST

START_TEST(environment_leaves_puts_to_the_engine)
{
	setenv("BATON_PUTS", "engine", 1);
	see_engine_puts("BATON_PUTS");
}
END_TEST

START_TEST(stream_that_captures_takes_no_put)
{
	CUgraph graph;

	open_silent();
	cu_ok(cw.sim->capture_begin(cw.streams[0], CUDASIM_CAPTURE_GLOBAL));
	ck_assert_int_eq(baton_signal(1, 0, 0, 0, cw.comms[0], cw.streams[0], NULL,
	                              NULL),
	                 BATON_ERR_UNSUPPORTED);
	assert_said("capturing");
	cu_ok(cw.sim->capture_end(cw.streams[0], &graph));
	cu_ok(cw.sim->graph_destroy(graph));
	(void)signal_on(cw.streams[0], 0, 0, NULL);
	run_out(cw.streams[0]);
	ck_assert_uint_eq(count(0), 1);
	end_world();
}
END_TEST

START_TEST(put_on_a_stream_is_not_cancelled)
{
	baton_request request;

	open_silent();
	cuda_world_hold(cw.streams[0], 0);
	request = put_from_zero(64, 0, 0, cw.streams[0], NULL);
	ck_assert_int_eq(baton_cancel(request), BATON_ERR_UNSUPPORTED);
	assert_said("on its stream", "cannot be taken back");
	cuda_world_let_go(0);
	cuda_world_finish(request, BATON_OK);
	end_world();
}
END_TEST

/* A launch is cancelled unless one of its puts is on a stream: that one of pageable memory is the
 * engine's shows at the launch. */
START_TEST(launch_of_the_engines_puts_is_cancelled)
{
	static char pageable[4096];
	struct baton_plan *plan;
	baton_request request;

	open_silent();
	ck_assert(cw.sim->sim_set("pageable", 2));
	for (int streams = 0; streams < 2; streams++) {
		baton_ok(baton_plan_begin(cw.comms[0]));
		for (int i = 0; i < 2; i++)
			baton_ok(baton_put_signal(
				i < streams ? (void *)cw.from : pageable, 64,
				BATON_UINT8, 1, cw.parts[0].window, 0, i, i, 0,
				cw.comms[0], cw.streams[i], NULL, NULL));
		baton_ok(baton_plan_end(cw.comms[0], &plan));
		for (int i = 0; i < 2; i++)
			cuda_world_hold(cw.streams[i], (unsigned)streams);
		baton_ok(baton_plan_launch(plan, NULL, &request));
		ck_assert_int_eq(baton_cancel(request),
		                 streams ? BATON_ERR_UNSUPPORTED : BATON_OK);
		cuda_world_let_go((unsigned)streams);
		cuda_world_finish(request,
		                  streams ? BATON_OK : BATON_ERR_CANCELED);
		for (int i = 0; i < 2; i++)
			run_out(cw.streams[i]);
		baton_plan_destroy(plan);
	}
	ck_assert_uint_eq(count(0), 1);
	end_world();
}
END_TEST

START_TEST(pageable_source_is_the_engines)
{
	static char pageable[4096];
	baton_request request;

	open_silent();
	ck_assert(cw.sim->sim_set("pageable", 2));
	baton_ok(baton_put_signal(pageable, sizeof(pageable), BATON_UINT8, 1,
	                          cw.parts[0].window, 0, 0, 0, 0, cw.comms[0],
	                          cw.streams[0], NULL, &request));
	assert_engines(cw.streams[0]);
	cuda_world_finish(request, BATON_OK);
	run_out(cw.streams[0]);
	end_world();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		streams_alone_change_memory_and_counter,
		signals_go_by_streams_alone,
		a_trace_knows_the_path_of_streams,
		stream_that_waits_goes_on_with_the_data,
		wait_is_looked_at_without_a_ring,
		thread_listens_while_it_watches,
		put_behind_one_of_another_stream_is_the_engines,
		put_behind_a_stream_moves_bytes_when_that_has_ended,
		put_behind_the_engines_is_the_engines,
		other_contexts_do_not_wait,
		members_of_a_group_are_the_engines,
		default_streams_of_two_threads_are_two_streams,
		counts_are_right_after_stores_and_writes,
		streams_of_another_gpu_put_too,
		full_stream_blocks_no_call,
		put_whose_copy_is_refused_is_the_engines,
		write_that_is_refused_once_is_asked_for_again,
		write_that_is_never_taken_breaks_the_communicator,
		without_memory_operations_the_engine_puts,
		environment_leaves_puts_to_the_engine,
		stream_that_captures_takes_no_put,
		put_on_a_stream_is_not_cancelled,
		launch_of_the_engines_puts_is_cancelled,
		pageable_source_is_the_engines,
	};

	return RUN_TESTS("mapped", tests);
}
