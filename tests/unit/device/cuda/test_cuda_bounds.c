/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call on the CUDA device is refused for before the driver is given it, over the simulator: a
 * stream of the host, a buffer that runs past its memory, and more than a stream takes.  And what is not: memory that is mapped
 * in pieces, side by side, as PyTorch's expandable segments are.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "captured.h"
#include "core.h"
#include "cuda_world.h"
#include "device.h"

/* The least that is mapped. */
#define UNIT (2 * MIB)

static long
looks(void)
{
	return cw.sim->sim_uses("cuPointerGetAttributes");
}

static void *
at(CUdeviceptr address)
{
	return (void *)(uintptr_t)address; // NOLINT
}

/* ---- streams of the host ---------------------------------------------------- */

static struct baton_comm *host;
static baton_stream host_stream;

static void
open_both(void)
{
	struct baton_comm_options options = cuda_world_options();

	cuda_world_open();
	options.device = BATON_DEVICE_HOST;
	options.cuda_device = -1;
	baton_ok(baton_comm_create_local(1, &options, &host));
	baton_ok(baton_stream_create(host, &host_stream));
}

static void
nothing(void *argument)
{
	(void)argument;
	ck_abort_msg("a launch that was refused runs");
}

static void
ck_stream_refused(enum baton_status status, const char *call)
{
	ck_assert_msg(status == BATON_ERR_INVALID, "%s: %d", call, (int)status);
	assert_said(call, "host device", "cuda device");
}

/* Calls that put something on the stream. */
static void
enqueuing_calls_refuse(struct baton_comm *comm, baton_stream stream)
{
	struct baton_tensor one = {
		.data = cw.from, .type = BATON_UINT8, .rank = 1, .shape = {8}};
	const struct baton_wait_signal_desc desc = {1, 1, 0, 0};
	baton_request request = BATON_REQUEST_NULL;

	ck_stream_refused(baton_send(cw.from, 8, BATON_UINT8, 1, 0, comm, stream,
	                             NULL, &request),
	                  "baton_send");
	ck_stream_refused(baton_recv(cw.to, 8, BATON_UINT8, 1, 0, comm, stream,
	                             NULL, &request),
	                  "baton_recv");
	ck_stream_refused(baton_send_tensors(&one, 1, 1, 0, comm, stream, NULL,
	                                     &request),
	                  "baton_send_tensors");
	ck_stream_refused(baton_recv_tensors(&one, 1, 1, 0, comm, stream, NULL,
	                                     &request),
	                  "baton_recv_tensors");
	ck_stream_refused(baton_signal(1, 0, 0, 0, comm, stream, NULL, &request),
	                  "baton_signal");
	ck_stream_refused(baton_wait_signal(1, &desc, comm, stream, NULL,
	                                    &request),
	                  "baton_wait_signal");
	ck_stream_refused(baton_record(comm, stream, NULL, &request),
	                  "baton_record");
	ck_stream_refused(baton_stream_launch(comm, stream, nothing, NULL),
	                  "baton_stream_launch");
	ck_assert(request == BATON_REQUEST_NULL);
}

static void
every_call_refuses(baton_stream stream)
{
	struct baton_comm *comm = cw.comms[0];
	baton_request request;

	enqueuing_calls_refuse(comm, stream);
	ck_stream_refused(baton_stream_query(comm, stream), "baton_stream_query");
	ck_stream_refused(baton_stream_synchronize(comm, stream),
	                  "baton_stream_synchronize");
	ck_stream_refused(baton_stream_destroy(comm, stream),
	                  "baton_stream_destroy");
	baton_ok(baton_group_begin(comm));
	ck_stream_refused(baton_send(cw.from, 8, BATON_UINT8, 1, 0, comm, stream,
	                             NULL, &request),
	                  "baton_send");
	ck_assert_int_eq(baton_group_end(comm), BATON_ERR_INVALID);
}

static void
a_plan_refuses(baton_stream stream)
{
	struct baton_plan *plan;

	baton_ok(baton_plan_begin(cw.comms[0]));
	ck_stream_refused(baton_send(cw.from, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                             stream, NULL, NULL),
	                  "baton_send");
	ck_assert_int_eq(baton_plan_end(cw.comms[0], &plan), BATON_ERR_INVALID);
}

static void
a_join_refuses(baton_stream stream)
{
	baton_request request = cuda_world_recv(cw.to, 8, 0, cw.streams[1]);

	ck_stream_refused(baton_stream_wait(cw.comms[1], stream, request),
	                  "baton_stream_wait");
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[0]), BATON_OK);
	cuda_world_finish(request, BATON_OK);
}

/* Where a driver looks at what it points to, a program may crash. */
START_TEST(a_stream_of_the_host_gets_to_no_driver)
{
	struct baton_window *window = NULL;
	long asked;

	open_both();
	asked = cw.sim->sim_uses("cuStreamGetCtx");
	every_call_refuses(host_stream);
	a_plan_refuses(host_stream);
	ck_assert_ptr_null(window);
	ck_assert_int_eq(cw.sim->sim_uses("cuStreamGetCtx"), asked);
	a_join_refuses(host_stream);
	baton_ok(baton_stream_destroy(host, host_stream));
	asked = cw.sim->sim_uses("cuStreamGetCtx");
	every_call_refuses(host_stream);
	ck_assert_int_eq(cw.sim->sim_uses("cuStreamGetCtx"), asked);
	baton_ok(baton_comm_destroy(host));
	cuda_world_end();
}
END_TEST

/* ---- buffers that run past their memory ------------------------------------- */

static void
ck_buffer_refused(enum baton_status status, const char *call, size_t bytes,
                  size_t allocation)
{
	char named[32], has[32];

	snprintf(named, sizeof(named), " %zu bytes ", bytes);
	snprintf(has, sizeof(has), " %zu bytes", allocation);
	ck_assert_msg(status == BATON_ERR_INVALID, "%s: %d", call, (int)status);
	assert_said(call, named, has, "runs past its memory");
}

/* The last `left` bytes of an allocation, and one more. */
static void
messages_refuse(const unsigned char *tail, size_t left, size_t allocation)
{
	struct baton_tensor one = {.data = (void *)(uintptr_t)tail,
	                           .type = BATON_UINT8,
	                           .rank = 1,
	                           .shape = {(int64_t)left + 1}};
	baton_request request = BATON_REQUEST_NULL;

	ck_buffer_refused(baton_send(tail, left + 1, BATON_UINT8, 1, 0,
	                             cw.comms[0], cw.streams[0], NULL, &request),
	                  "baton_send", left + 1, allocation);
	ck_buffer_refused(baton_recv((void *)(uintptr_t)tail, left + 1,
	                             BATON_UINT8, 0, 0, cw.comms[1],
	                             cw.streams[1], NULL, &request),
	                  "baton_recv", left + 1, allocation);
	ck_buffer_refused(baton_send_tensors(&one, 1, 1, 0, cw.comms[0],
	                                     cw.streams[0], NULL, &request),
	                  "baton_send_tensors", left + 1, allocation);
	ck_buffer_refused(baton_recv_tensors(&one, 1, 0, 0, cw.comms[1],
	                                     cw.streams[1], NULL, &request),
	                  "baton_recv_tensors", left + 1, allocation);
	ck_assert(request == BATON_REQUEST_NULL);
}

static void
groups_and_plans_refuse(const unsigned char *tail, size_t left, size_t allocation)
{
	struct baton_plan *plan;

	baton_ok(baton_group_begin(cw.comms[0]));
	ck_buffer_refused(baton_send(tail, left + 1, BATON_UINT8, 1, 0,
	                             cw.comms[0], cw.streams[0], NULL, NULL),
	                  "baton_send", left + 1, allocation);
	ck_assert_int_eq(baton_group_end(cw.comms[0]), BATON_ERR_INVALID);
	baton_ok(baton_plan_begin(cw.comms[0]));
	ck_buffer_refused(baton_send(tail, left + 1, BATON_UINT8, 1, 0,
	                             cw.comms[0], cw.streams[0], NULL, NULL),
	                  "baton_send", left + 1, allocation);
	ck_assert_int_eq(baton_plan_end(cw.comms[0], &plan), BATON_ERR_INVALID);
}

static void
windows_refuse(unsigned char *tail, size_t left, size_t allocation)
{
	char has[32];

	cuda_world_parts(cw.to, tail, left + 1);
	cw.parts[0].bytes = CUDA_WORLD_BYTES;
	cuda_world_both(cuda_world_register, BATON_ERR_INVALID);
	snprintf(has, sizeof(has), " %zu bytes", allocation);
	cuda_world_has(cw.parts[1].why,
	               (const char *const[]){"baton_window_register: base",
	                                     "runs past its memory", has, NULL});
	cw.parts[1].bytes = left;
	cuda_world_both(cuda_world_register, BATON_OK);
	ck_buffer_refused(baton_put_signal(tail, left + 1, BATON_UINT8, 0,
	                                   cw.parts[1].window, 0, 0, 0, 0,
	                                   cw.comms[1], cw.streams[1], NULL,
	                                   NULL),
	                  "baton_put_signal", left + 1, allocation);
	cuda_world_both(cuda_world_deregister, BATON_OK);
}

/* All of these bytes can be sent and received. */
static void
goes_over(void *from, void *to, size_t bytes, unsigned seed)
{
	baton_request request;

	cuda_world_fill(from, bytes, seed);
	request = cuda_world_recv(to, bytes, 0, cw.streams[1]);
	cuda_world_finish(cuda_world_send(from, bytes, 0, cw.streams[0]),
	                  BATON_OK);
	cuda_world_finish(request, BATON_OK);
	cuda_world_expect(to, bytes, seed);
}

START_TEST(a_buffer_that_runs_past_its_allocation_is_refused)
{
	static const size_t lengths[] = {100, 100000};
	CUdeviceptr memory;
	unsigned char *tail;

	cuda_world_open();
	cu_ok(cw.sim->mem_alloc(&memory, MIB + 7));
	for (int i = 0; i < 2; i++) {
		tail = (unsigned char *)at(memory) + MIB + 7 - lengths[i];
		messages_refuse(tail, lengths[i], MIB + 7);
		groups_and_plans_refuse(tail, lengths[i], MIB + 7);
		windows_refuse(tail, lengths[i], MIB + 7);
		goes_over(tail, cw.to, lengths[i], 3);
		goes_over(cw.to, tail, lengths[i], 4);
	}
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_status(cw.comms[i]));
	cuda_world_end();
}
END_TEST

/* It is asked behind its range, and there is nothing. */
START_TEST(managed_memory_ends_too)
{
	CUdeviceptr memory;

	cuda_world_open();
	cu_ok(cw.sim->managed_alloc(&memory, 200000, 1));
	messages_refuse((unsigned char *)at(memory) + 199000, 1000, 200000);
	cuda_world_end();
}
END_TEST

/* What is beside pinned memory may be the program's too. */
START_TEST(memory_of_the_host_is_never_refused)
{
	unsigned char *block = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE,
	                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *to = malloc(4 * MIB);
	baton_request request;

	cuda_world_open();
	cu_ok(cw.sim->host_register(block + MIB, MIB, 0));
	for (size_t i = 0; i < 4 * MIB; i++)
		block[i] = (unsigned char)(i * 7 + (i >> 12));
	for (size_t from = 0; from <= MIB; from += MIB / 2) {
		request = cuda_world_recv(to, 3 * MIB, 0, cw.streams[1]);
		cuda_world_finish(cuda_world_send(block + from, 3 * MIB, 0,
		                                  cw.streams[0]),
		                  BATON_OK);
		cuda_world_finish(request, BATON_OK);
		ck_assert_mem_eq(block + from, to, 3 * MIB);
	}
	cu_ok(cw.sim->host_unregister(block + MIB));
	cuda_world_end();
	munmap(block, 4 * MIB);
	free(to);
}
END_TEST

/* ---- memory that is mapped in pieces ---------------------------------------- */

static CUmemGenericAllocationHandle
create_unit(int gpu)
{
	const CUmemAllocationProp properties = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.location = {BATONI_CU_LOCATION_DEVICE, gpu},
	};
	CUmemGenericAllocationHandle handle;

	cu_ok(cw.sim->vm_create(&handle, UNIT, &properties, 0));
	return handle;
}

static void
map_unit(CUdeviceptr where, int gpu)
{
	const CUmemAccessDesc access = {{BATONI_CU_LOCATION_DEVICE, 0},
	                                BATONI_CU_ACCESS_READ_WRITE};
	CUmemGenericAllocationHandle handle = create_unit(gpu);

	cu_ok(cw.sim->vm_map(where, UNIT, 0, handle, 0));
	cu_ok(cw.sim->vm_access(where, UNIT, &access, 1));
	cu_ok(cw.sim->vm_release(handle));
}

static CUdeviceptr
reserve(size_t units, CUdeviceptr hint)
{
	CUdeviceptr base;

	cu_ok(cw.sim->vm_reserve(&base, units * UNIT, 0, hint, 0));
	return base;
}

static void
unmap_units(CUdeviceptr base, size_t mapped, size_t reserved)
{
	cu_ok(cw.sim->vm_unmap(base, mapped * UNIT));
	cu_ok(cw.sim->vm_unreserve(base, reserved * UNIT));
}

/* More is reserved than is mapped. */
START_TEST(a_buffer_may_span_mappings_and_ends_with_them)
{
	CUdeviceptr base;
	unsigned char *tail;

	cuda_world_open();
	base = reserve(8, 0);
	for (size_t i = 0; i < 3; i++)
		map_unit(base + i * UNIT, 0);
	goes_over(at(base), cw.to, 3 * UNIT, 1);
	goes_over(cw.to, at(base + 4096), 3 * UNIT - 4096, 2);
	goes_over(at(base + UNIT - 8), at(base + 2 * UNIT - 8), 16, 3);
	goes_over(at(base + UNIT - 50000), at(base + 2 * UNIT - 50000), 100000, 4);
	tail = at(base + 3 * UNIT - 100);
	messages_refuse(tail, 100, 8 * UNIT);
	groups_and_plans_refuse(tail, 100, 8 * UNIT);
	messages_refuse(at(base), 3 * UNIT, 8 * UNIT);
	windows_refuse(at(base + UNIT + 64), 2 * UNIT - 64, 8 * UNIT);
	messages_refuse(at(base + UNIT), 7 * UNIT, 8 * UNIT);
	/* Nothing is mapped there at all. */
	ck_assert_int_eq(baton_send(at(base + 5 * UNIT), 8, BATON_UINT8, 1, 0,
	                            cw.comms[0], cw.streams[0], NULL, NULL),
	                 BATON_ERR_INVALID);
	assert_said("baton_send", "nothing is mapped", "16777216 bytes");
	unmap_units(base, 3, 8);
	cuda_world_end();
}
END_TEST

/* The driver gives two ranges side by side, or the test has nothing to look at. */
static bool
reserve_two(CUdeviceptr bases[2], size_t units)
{
	char *room = mmap(NULL, 2 * units * UNIT + UNIT, PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CUdeviceptr hint = ((uintptr_t)room + UNIT - 1) / UNIT * UNIT;

	munmap(room, 2 * units * UNIT + UNIT);
	bases[0] = reserve(units, hint);
	bases[1] = reserve(units, bases[0] + units * UNIT);
	return bases[1] == bases[0] + units * UNIT;
}

START_TEST(a_buffer_is_looked_for_behind_its_range)
{
	CUdeviceptr bases[2];

	cuda_world_open();
	ck_assert(reserve_two(bases, 1));
	for (int i = 0; i < 2; i++)
		map_unit(bases[i], 0);
	/* That the simulator does not copy it as one is another matter. */
	messages_refuse(at(bases[0] + 64), 2 * UNIT - 64, 2 * UNIT);
	for (int i = 0; i < 2; i++)
		unmap_units(bases[i], 1, 1);
	cuda_world_end();
}
END_TEST

/* Side by side, but not of one GPU. */
START_TEST(memory_of_another_gpu_is_no_part_of_a_buffer)
{
	CUdeviceptr base;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", 2));
	cuda_world_open();
	base = reserve(2, 0);
	map_unit(base, 0);
	map_unit(base + UNIT, 1);
	messages_refuse(at(base + UNIT - 4096), 4096, 2 * UNIT);
	goes_over(at(base + UNIT - 4096), cw.to, 4096, 1);
	unmap_units(base, 2, 2);
	cuda_world_end();
}
END_TEST

/* A message asks what its buffer is by so many calls. */
static void
ck_asks(void *from, size_t bytes, long expected)
{
	baton_request request = cuda_world_recv(cw.to, bytes, 0, cw.streams[1]);
	long before = looks();

	baton_request sent = cuda_world_send(from, bytes, 0, cw.streams[0]);
	ck_assert_int_eq(looks() - before, expected);
	cuda_world_finish(sent, BATON_OK);
	cuda_world_finish(request, BATON_OK);
}

START_TEST(the_driver_is_asked_once_and_of_long_mapped_memory_twice)
{
	CUdeviceptr base, pool;

	cuda_world_open();
	base = reserve(4, 0);
	for (size_t i = 0; i < 3; i++)
		map_unit(base + i * UNIT, 0);
	ck_asks(cw.from, 8, 1);
	ck_asks(cw.from, 16 * MIB, 1);
	ck_asks(at(base + 3 * UNIT - 8), 8, 1);
	ck_asks(at(base + 65536), 65536, 1);
	ck_asks(at(base + 65536), 65537, 2);
	ck_asks(at(base), 3 * UNIT, 2);
	cu_ok(cw.sim->pool_alloc(&pool, 200000, cw.streams[0]));
	ck_asks(at(pool), 200000, 2);
	cu_ok(cw.sim->pool_free(pool, cw.streams[0]));
	unmap_units(base, 3, 4);
	cuda_world_end();
}
END_TEST

/* ---- how much a stream takes -------------------------------------------------- */

enum { RECORDS = 4096 };

/* Records on a stream that waits, until one is refused. */
static unsigned
fill_stream(baton_request *requests)
{
	unsigned n = 0;

	cuda_world_hold(cw.streams[0], 0);
	while (n < RECORDS && baton_record(cw.comms[0], cw.streams[0], NULL,
	                                   &requests[n]) == BATON_OK)
		n++;
	return n;
}

/* A call on a stream that is full blocks; none does. */
static void
fills(const char *scale, long depth, unsigned entries)
{
	struct baton_comm_options options = cuda_world_options();
	baton_request *requests = calloc(RECORDS, sizeof(*requests));
	char said[32];
	unsigned n;

	setenv("CUDA_SCALE_LAUNCH_QUEUES", scale, 1);
	cuda_world_load();
	ck_assert(cw.sim->sim_set("depth", depth));
	ck_assert(cw.sim->sim_set("limit_ms", 5000));
	cuda_world_begin();
	options.requests_max = RECORDS;
	cuda_world_comms(&options);
	n = fill_stream(requests);
	snprintf(said, sizeof(said), "(%u entries", entries);
	assert_said("baton_record", said);
	ck_assert_uint_le(n, entries);
	ck_assert_uint_ge(n, entries / 2);
	cuda_world_let_go(0);
	for (unsigned i = 0; i < n; i++)
		cuda_world_finish(requests[i], BATON_OK);
	cuda_world_end();
	free(requests);
}

START_TEST(a_queue_that_is_scaled_down_is_not_overfilled)
{
	fills("0.25x", 250, 200);
}
END_TEST

START_TEST(a_queue_that_is_scaled_up_takes_more)
{
	fills("2x", 2000, 1600);
}
END_TEST

START_TEST(a_scale_that_the_driver_does_not_know_is_none)
{
	fills("0.1x", 1000, 800);
}
END_TEST

/* The driver has read the scale, whatever becomes of it before the next GPU is used. */
START_TEST(all_gpus_have_the_scale_of_the_first)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *other;
	struct batoni_device *device;
	struct batoni_crowd crowd;

	setenv("CUDA_SCALE_LAUNCH_QUEUES", "0.25x", 1);
	cuda_world_load();
	ck_assert(cw.sim->sim_set("devices", 2));
	cuda_world_open();
	unsetenv("CUDA_SCALE_LAUNCH_QUEUES");
	options.cuda_device = 1;
	baton_ok(baton_comm_create_local(1, &options, &other));
	device = cw.comms[0]->device;
	device->ops->shared_queues->crowd(device, &crowd);
	ck_assert_uint_eq(crowd.entries, 200);
	baton_ok(baton_comm_destroy(other));
	cuda_world_end();
}
END_TEST

/* ---- launches that block ------------------------------------------------------ */

static void
open_blocking(void)
{
	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	setenv("CUDA_SCALE_LAUNCH_QUEUES", "0.5x", 1);
	cuda_world_open();
	cuda_world_destroy();
}

static void
open_twice(void)
{
	open_blocking();
	cuda_world_comms(NULL);
	cuda_world_destroy();
}

static unsigned
times(const char *text, const char *what)
{
	unsigned n = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		n++;
	}
	return n;
}

START_TEST(launches_that_block_are_warned_of_once_and_told_of)
{
	struct captured warned = capture("warn", open_twice);
	struct captured told = capture("debug", open_blocking);

	ck_assert_uint_eq(times(warned.text, "CUDA_LAUNCH_BLOCKING is set"), 1);
	/* The warning, and each rank. */
	ck_assert_uint_eq(times(told.text, "CUDA_LAUNCH_BLOCKING is set"), 3);
	ck_assert_uint_eq(times(told.text, "takes 400 entries"), 2);
}
END_TEST

/* The driver has read them, and the program may be changing its environment just now. */
START_TEST(the_environment_is_read_when_the_gpu_is_set_up)
{
	struct batoni_device *device;
	struct batoni_crowd crowd;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
	setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "2", 1);
	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	cuda_world_open();
	unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
	unsetenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS");
	unsetenv("CUDA_LAUNCH_BLOCKING");
	device = cw.comms[0]->device;
	device->ops->shared_queues->crowd(device, &crowd);
	ck_assert(crowd.blocking);
	ck_assert_str_eq(crowd.advice, "CUDA_DEVICE_MAX_CONNECTIONS=8 and "
	                               "CUDA_DEVICE_MAX_COPY_CONNECTIONS=8");
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_queue_that_is_scaled_down_is_not_overfilled,
		a_queue_that_is_scaled_up_takes_more,
		a_scale_that_the_driver_does_not_know_is_none,
		all_gpus_have_the_scale_of_the_first,
		launches_that_block_are_warned_of_once_and_told_of,
		the_environment_is_read_when_the_gpu_is_set_up,
		a_stream_of_the_host_gets_to_no_driver,
		a_buffer_that_runs_past_its_allocation_is_refused,
		managed_memory_ends_too,
		memory_of_the_host_is_never_refused,
		a_buffer_may_span_mappings_and_ends_with_them,
		a_buffer_is_looked_for_behind_its_range,
		memory_of_another_gpu_is_no_part_of_a_buffer,
		the_driver_is_asked_once_and_of_long_mapped_memory_twice,
	};

	return RUN_TESTS("cuda_bounds", tests);
}
