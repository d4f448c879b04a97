/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts into device memory: when their signals are seen, and how they end early.
 *
 * Two ranks, each on a device of its own.  Each device has one hardware queue of the highest
 * priority, which Baton's streams for copies share with a stream of the test: while that one
 * waits for a word, no copy of the device begins.  So a copy is late for as long as the test
 * wants, and sim_settle says that nothing else moves.
 *
 * The path is that of BATON_WINDOW_PATH, or the one that Baton chooses: each test runs on both.
 */
#include <sched.h>
#include <string.h>

#include "clock.h"
#include "cuda_world.h"

enum { ROOM = 1 << 20, MAPPING = 2 << 20 };

static struct side {
	CUcontext context;
	CUstream stream, urgent;
	unsigned char *part; /* device memory */
	struct baton_comm *comm;
} sides[2];
static unsigned char *data; /* pinned */
static bool by_message;
static bool apart; /* neither device reaches the other's memory */
static bool uncopied; /* it does, but its driver refuses copies of it */
static int64_t limit_ns; /* of the communicator */

/* ---- both ranks ------------------------------------------------------------ */

static void
open_sides(void)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *comms[2];
	CUdeviceptr memory;
	CUcontext popped;
	void *pinned;

	cuda_world_load();
	if (by_message)
		setenv("BATON_WINDOW_PATH", "message", 1);
	/* So that the target's chunks do not take a whole put. */
	setenv("BATON_STAGING_CHUNK", "65536", 1);
	setenv("BATON_STAGING_CHUNKS", "2", 1);
	ck_assert(cw.sim->sim_set("devices", 2));
	ck_assert(cw.sim->sim_set("queues", 1));
	ck_assert(cw.sim->sim_set("pageable", 2));
	ck_assert(cw.sim->sim_set("peer", !apart));
	ck_assert(cw.sim->sim_set("peer_copies", !uncopied));
	cuda_world_begin();
	for (int i = 0; i < 2 && apart; i++)
		ck_assert(cw.sim->sim_peers(i, 1 - i, false));
	cu_ok(cw.sim->host_alloc(&pinned, ROOM, BATONI_CU_HOST_ALLOC_PORTABLE));
	data = pinned;
	for (size_t i = 0; i < ROOM; i++)
		data[i] = (unsigned char)(i * 7 + (i >> 9) + 32);
	for (int i = 0; i < 2; i++) {
		cu_ok(cw.sim->primary_retain(&sides[i].context, i));
		cu_ok(cw.sim->context_push(sides[i].context));
		cu_ok(cw.sim->mem_alloc(&memory, ROOM));
		sides[i].part = (void *)(uintptr_t)memory;
		sides[i].stream =
			cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
		sides[i].urgent = cuda_world_urgent_stream();
		cu_ok(cw.sim->context_pop(&popped));
	}
	cu_ok(cw.sim->context_pop(&popped));
	options.cuda_device = -1;
	options.requests_max = 256;
	options.timeout_ns = limit_ns;
	baton_ok(baton_comm_create_local(2, &options, comms));
	cu_ok(cw.sim->context_push(popped));
	for (int i = 0; i < 2; i++) {
		sides[i].comm = comms[i];
		cw.parts[i] = (struct cuda_world_part){.comm = comms[i],
		                                       .base = sides[i].part,
		                                       .bytes = ROOM};
	}
	cuda_world_both(cuda_world_register, BATON_OK);
	ck_assert_uint_eq(baton_window_path(cw.parts[0].window, 1),
	                  by_message || apart || uncopied
	                          ? BATON_WINDOW_PATH_MESSAGE
	                          : BATON_WINDOW_PATH_DIRECT);
}

static void
close_sides(void)
{
	cuda_world_both(cuda_world_deregister, BATON_OK);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(sides[i].comm));
	cuda_world_end();
}

/* ---- late copies ------------------------------------------------------------ */

/* No copy of that rank's device begins until cuda_world_let_go(0). */
static void
hold_copies_of(int rank)
{
	CUcontext popped;

	cu_ok(cw.sim->context_push(sides[rank].context));
	cuda_world_hold(sides[rank].urgent, 0);
	cu_ok(cw.sim->context_pop(&popped));
}

static void
hold_copies(void)
{
	hold_copies_of(1);
}

/* All that can happen has, here and at the device. */
static void
run_dry(void)
{
	for (int i = 0; i < 3; i++) {
		for (int pass = 0; pass < 200; pass++)
			(void)baton_progress(sides[pass % 2].comm);
		cw.sim->sim_settle(false);
	}
}

static uint64_t
count(void)
{
	uint64_t value = UINT64_MAX;

	baton_ok(baton_signal_count(sides[1].comm, 0, 0, 0, &value));
	return value;
}

static baton_request
put_in_time(const void *from, size_t bytes, size_t offset, int64_t timeout_ns)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request = BATON_REQUEST_NULL;

	options.timeout_ns = timeout_ns;
	options.flags = BATON_OP_DETACHED;
	baton_ok(baton_put_signal(from, bytes, BATON_UINT8, 1, cw.parts[0].window,
	                          offset, 0, 0, 0, sides[0].comm,
	                          sides[0].stream, &options, &request));
	return request;
}

/* A signal behind all puts has been seen, so their data is there. */
static void
see_all_puts(void)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	uint64_t seen = 0;

	detached.flags = BATON_OP_DETACHED;
	baton_ok(baton_signal(1, 1, 0, 0, sides[0].comm, sides[0].stream,
	                      &detached, NULL));
	while (seen == 0)
		baton_ok(baton_signal_count(sides[1].comm, 0, 1, 0, &seen));
}

static baton_request
wait_for(int units)
{
	struct baton_wait_signal_desc one = {units, 0, 0, 0};
	baton_request request = BATON_REQUEST_NULL;

	baton_ok(baton_wait_signal(1, &one, sides[1].comm, sides[1].stream, NULL,
	                           &request));
	return request;
}

/* A kernel that reads the part, and says whether all bytes of the put are there. */
struct reader {
	struct cudasim_buffer buffer;
	struct cudasim_kernel kernel;
	_Atomic int found; /* 0: it has not run; 1: it has read the bytes; -1: others */
};

static enum cudasim_step
read_part(void *argument)
{
	struct reader *reader = argument;

	atomic_store(&reader->found,
	             memcmp(reader->buffer.reach, data, reader->buffer.bytes) == 0
	                     ? 1
	                     : -1);
	return CUDASIM_ENDED;
}

static void
nothing(void *argument)
{
	(void)argument;
}

static void
launch_reader(struct reader *reader, size_t offset, size_t bytes)
{
	CUcontext popped;

	*reader = (struct reader){
		.buffer = {.address = cuda_world_address(sides[1].part + offset),
	                   .bytes = bytes},
	};
	reader->kernel = (struct cudasim_kernel){
		.step = read_part,
		.gone = nothing,
		.data = reader,
		.buffers = &reader->buffer,
		.buffers_n = 1,
	};
	cu_ok(cw.sim->context_push(sides[1].context));
	cu_ok(cw.sim->launch(&sides[1].stream, 1, &reader->kernel));
	cu_ok(cw.sim->context_pop(&popped));
}

/* Neither host, count nor stream sees the signal before the copy into the part has ended; nobody
 * of rank 1 calls after that, and a kernel behind the wait reads the bytes. */
static void
see_no_signal_before_the_data(size_t bytes, size_t offset)
{
	struct reader reader;
	baton_request request, waited;

	open_sides();
	waited = wait_for(1);
	launch_reader(&reader, offset, bytes);
	hold_copies();
	request = put_in_time(data, bytes, offset, -1);
	run_dry();
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(baton_test(waited, NULL), BATON_PENDING);
	ck_assert_int_eq(atomic_load(&reader.found), 0);
	cuda_world_let_go(0);
	while (atomic_load(&reader.found) == 0)
		sched_yield();
	ck_assert_int_eq(atomic_load(&reader.found), 1);
	ck_assert_uint_eq(count(), 1);
	cuda_world_finish(waited, BATON_OK);
	cuda_world_finish(request, BATON_OK);
	close_sides();
}

START_TEST(no_signal_is_seen_before_a_short_put_is_in_device_memory)
{
	see_no_signal_before_the_data(3, 1);
}
END_TEST

START_TEST(no_signal_is_seen_before_a_long_put_is_in_device_memory)
{
	see_no_signal_before_the_data(ROOM - 77, 13);
}
END_TEST

/* Signals and puts behind a late one wait for it; those of another context do not. */
START_TEST(signals_behind_a_late_put_wait_for_it)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request request, second;
	uint64_t other = 0;

	open_sides();
	hold_copies();
	request = put_in_time(data, 5000, 0, -1);
	detached.flags = BATON_OP_DETACHED;
	for (int context = 0; context < 2; context++)
		baton_ok(baton_signal(1, 0, context, 0, sides[0].comm,
		                      sides[0].stream, &detached, NULL));
	second = put_in_time(data, 0, 0, -1);
	while (other == 0)
		baton_ok(baton_signal_count(sides[1].comm, 0, 0, 1, &other));
	run_dry();
	ck_assert_uint_eq(count(), 0);
	cuda_world_let_go(0);
	cuda_world_finish(wait_for(3), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	cuda_world_finish(second, BATON_OK);
	ck_assert_uint_eq(count(), 3);
	close_sides();
}
END_TEST

/* ---- early ends ------------------------------------------------------------- */

/* Copies that Baton has asked for so far. */
static long
copies(void)
{
	return cw.sim->sim_uses("cuMemcpyAsync") +
	       cw.sim->sim_uses("cuMemcpyBatchAsync");
}

/* A put that times out or is canceled while its bytes are under way is lent until nothing reads
 * its buffer any more.  Then the window can be deregistered, and the next one arrives.  On a
 * slow machine the time may be over before a copy is asked for: then nothing is lent. */
static void
end_early(bool cancel)
{
	struct baton_completion done = {0};
	baton_request request;
	long before;
	bool lent;

	open_sides();
	hold_copies();
	before = copies();
	request = put_in_time(data, ROOM, 0, cancel ? -1 : 20000000);
	while (copies() == before && baton_test(request, NULL) == BATON_PENDING)
		(void)baton_progress(sides[1].comm);
	if (cancel)
		baton_ok(baton_cancel(request));
	ck_assert_int_eq(baton_wait(request, LONG_NS, &done),
	                 cancel ? BATON_ERR_CANCELED : BATON_ERR_TIMEOUT);
	lent = done.flags & BATON_COMPLETION_LENT;
	ck_assert(lent || (!cancel && copies() == before));
	if (lent)
		cuda_world_both(cuda_world_deregister, BATON_ERR_BUSY);
	cuda_world_let_go(0);
	while (done.flags & BATON_COMPLETION_LENT)
		(void)baton_test(request, &done);
	baton_ok(baton_release(&request));
	/* A message may carry it; a copy of the device signals no more. */
	run_dry();
	ck_assert_uint_le(count(), by_message && lent ? 1 : 0);
	cuda_world_finish(put_in_time(data, 100, 50, -1), BATON_OK);
	see_all_puts();
	ck_assert_uint_ge(count(), 1);
	cw.sim->sim_peek(data + 1000, cuda_world_address(sides[1].part + 50), 100);
	ck_assert_mem_eq(data + 1000, data, 100);
	close_sides();
}

START_TEST(put_that_times_out_under_way_is_lent)
{
	end_early(false);
}
END_TEST

START_TEST(put_that_is_canceled_under_way_is_lent)
{
	end_early(true);
}
END_TEST

/* The copy into the part fails: the put does not signal, and what waits ends in an error. */
START_TEST(put_whose_copy_fails_does_not_signal)
{
	baton_request request, waited;
	enum baton_status status;

	open_sides();
	waited = wait_for(1);
	ck_assert_int_eq(baton_test(waited, NULL), BATON_PENDING);
	cw.sim->sim_fail("cuMemcpyAsync", 1, 700, true);
	request = put_in_time(data, ROOM, 0, -1);
	status = baton_wait(waited, LONG_NS, NULL);
	ck_assert_int_eq(status, BATON_ERR_CUDA);
	baton_ok(baton_release(&waited));
	ck_assert_int_eq(baton_comm_status(sides[1].comm), BATON_ERR_CUDA);
	ck_assert_uint_eq(count(), 0);
	baton_ok(baton_comm_abort(sides[0].comm));
	status = baton_finish(&request, LONG_NS, NULL);
	ck_assert(status == BATON_OK || status == BATON_ERR_ABORTED ||
	          status == BATON_ERR_CUDA);
	cuda_world_both(cuda_world_deregister, BATON_OK);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(sides[i].comm));
}
END_TEST

/* Ranks of one process: its address is known, but the device may not use it. */
START_TEST(a_part_that_the_device_does_not_reach_is_put_into_by_message)
{
	baton_request request;

	apart = true;
	open_sides();
	ck_assert_uint_eq(baton_window_path(cw.parts[0].window, 0),
	                  by_message ? BATON_WINDOW_PATH_MESSAGE
	                             : BATON_WINDOW_PATH_DIRECT);
	if (!by_message)
		cuda_world_has(baton_window_why(cw.parts[0].window, 1),
		               (const char *const[]){"out of reach",
	                                             "CUDA device 0",
	                                             "device 1", NULL});
	request = put_in_time(sides[0].part, 70000, 100, -1);
	cuda_world_finish(wait_for(1), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	close_sides();
}
END_TEST

/* It could be reached, as far as the driver says; the copy that is tried shows that it is not. */
START_TEST(a_part_that_the_driver_does_not_copy_is_put_into_by_message)
{
	baton_request request;

	uncopied = true;
	open_sides();
	ck_assert_uint_eq(baton_window_path(cw.parts[0].window, 0),
	                  by_message ? BATON_WINDOW_PATH_MESSAGE
	                             : BATON_WINDOW_PATH_DIRECT);
	for (int i = 0; i < 2 && !by_message; i++)
		cuda_world_has(
			baton_window_why(cw.parts[i].window, 1 - i),
			(const char *const[]){"copies", "refused",
		                              "cuMemcpyAsync",
		                              "CUDA_ERROR_NOT_SUPPORTED", NULL});
	request = put_in_time(sides[0].part, 70000, 100, -1);
	cuda_world_finish(wait_for(1), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	ck_assert_int_eq(baton_comm_status(sides[0].comm), BATON_OK);
	close_sides();
}
END_TEST

/* The copy that is tried stands behind a stream that waits: registering goes on without it. */
START_TEST(a_copy_that_stands_holds_up_no_registration_for_long)
{
	open_sides();
	cuda_world_both(cuda_world_deregister, BATON_OK);
	hold_copies();
	cuda_world_both(cuda_world_register, BATON_OK);
	ck_assert_uint_eq(baton_window_path(cw.parts[1].window, 0),
	                  BATON_WINDOW_PATH_MESSAGE);
	if (!by_message)
		cuda_world_has(baton_window_why(cw.parts[1].window, 0),
		               (const char *const[]){"copy", "not ended", NULL});
	cuda_world_let_go(0);
	cuda_world_finish(put_in_time(sides[0].part, 70000, 100, -1), BATON_OK);
	run_dry();
	cuda_world_both(cuda_world_deregister, BATON_OK);
	/* The next one lets it end first. */
	cuda_world_both(cuda_world_register, BATON_OK);
	ck_assert_uint_eq(baton_window_path(cw.parts[1].window, 0),
	                  by_message ? BATON_WINDOW_PATH_MESSAGE
	                             : BATON_WINDOW_PATH_DIRECT);
	close_sides();
}
END_TEST

/* Rank 0 is the first to call, and so the first whose time is over. */
static enum baton_status
register_in_turn(struct cuda_world_part *part)
{
	uint64_t later = batoni_real_ns() + 100000000;

	while (part == &cw.parts[1] && batoni_real_ns() < later)
		(void)baton_progress(part->comm);
	return cuda_world_register(part);
}

/* Nor does it take all the time that the call has. */
START_TEST(a_copy_that_stands_leaves_time_for_the_registration)
{
	limit_ns = 4000000000;
	open_sides();
	cuda_world_both(cuda_world_deregister, BATON_OK);
	hold_copies();
	cuda_world_both(register_in_turn, BATON_OK);
	ck_assert_uint_eq(baton_window_path(cw.parts[1].window, 0),
	                  BATON_WINDOW_PATH_MESSAGE);
	cuda_world_let_go(0);
	run_dry();
	close_sides();
}
END_TEST

/* Memory of device 0 that a program has mapped for that device alone. */
START_TEST(a_source_that_only_its_own_device_reaches_is_put_by_that_device)
{
	const CUmemAllocationProp properties = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.location = {BATONI_CU_LOCATION_DEVICE, 0},
	};
	const CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, 0},
	                                BATONI_CU_ACCESS_READ_WRITE};
	CUmemGenericAllocationHandle handle;
	baton_request request;
	CUdeviceptr memory;

	open_sides();
	cu_ok(cw.sim->vm_create(&handle, MAPPING, &properties, 0));
	cu_ok(cw.sim->vm_reserve(&memory, MAPPING, 0, 0, 0));
	cu_ok(cw.sim->vm_map(memory, MAPPING, 0, handle, 0));
	cu_ok(cw.sim->vm_access(memory, MAPPING, &access, 1));
	request = put_in_time((const void *)(uintptr_t)memory, 70000, 100, -1); // NOLINT
	cuda_world_finish(request, BATON_OK);
	cuda_world_finish(wait_for(1), BATON_OK);
	cu_ok(cw.sim->vm_unmap(memory, MAPPING));
	cu_ok(cw.sim->vm_unreserve(memory, MAPPING));
	cu_ok(cw.sim->vm_release(handle));
	close_sides();
}
END_TEST

/* The target has aborted and its window is gone while pieces of a put are still to come.  Another
 * window keeps it looking for messages. */
START_TEST(pieces_that_come_behind_a_window_write_nothing)
{
	struct baton_window *gone[2];
	baton_request request;

	apart = true;
	open_sides();
	for (int i = 0; i < 2; i++)
		gone[i] = cw.parts[i].window;
	cuda_world_both(cuda_world_register, BATON_OK);
	hold_copies_of(0);
	baton_ok(baton_put_signal(sides[0].part, 400000, BATON_UINT8, 1, gone[0],
	                          0, 0, 0, 0, sides[0].comm, sides[0].stream,
	                          NULL, &request));
	run_dry();
	baton_ok(baton_comm_abort(sides[1].comm));
	baton_ok(baton_window_deregister(gone[1]));
	cuda_world_fill(sides[1].part, ROOM, 5);
	cuda_world_let_go(0);
	run_dry();
	cuda_world_expect(sides[1].part, ROOM, 5);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
	baton_ok(baton_comm_abort(sides[0].comm));
	cuda_world_finish(request, BATON_ERR_ABORTED);
	baton_ok(baton_window_deregister(gone[0]));
	close_sides();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_source_that_only_its_own_device_reaches_is_put_by_that_device,
		a_part_that_the_device_does_not_reach_is_put_into_by_message,
		a_part_that_the_driver_does_not_copy_is_put_into_by_message,
		a_copy_that_stands_holds_up_no_registration_for_long,
		a_copy_that_stands_leaves_time_for_the_registration,
		no_signal_is_seen_before_a_short_put_is_in_device_memory,
		no_signal_is_seen_before_a_long_put_is_in_device_memory,
		signals_behind_a_late_put_wait_for_it,
		put_that_times_out_under_way_is_lent,
		put_that_is_canceled_under_way_is_lent,
		put_whose_copy_fails_does_not_signal,
		pieces_that_come_behind_a_window_write_nothing,
	};
	int result = RUN_TESTS("cuda_put, the path that is chosen", tests);

	by_message = true;
	return RUN_TESTS("cuda_put, by message", tests) | result;
}
