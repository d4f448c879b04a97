/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pointers, over the simulator.  On the CUDA device: what a buffer is, is asked once and at the
 * call that names it, and never by the thread that drives.  On the host: memory of a device is
 * refused where the program has loaded CUDA.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_world.h"
#include "shm.h"

/* ---- helpers -------------------------------------------------------------- */

static long
looks(void)
{
	return cw.sim->sim_uses("cuPointerGetAttributes");
}

/* A block of device 1, whose primary context the test has; Baton does not know of it. */
static unsigned char *
memory_of_device_1(size_t bytes)
{
	CUcontext other, popped;
	CUdeviceptr memory;

	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, bytes));
	cu_ok(cw.sim->context_pop(&popped));
	return (void *)(uintptr_t)memory;
}

/* ---- one question for each buffer ----------------------------------------- */

static void
message_asks_twice(size_t bytes)
{
	long before = looks();
	baton_request a, b;

	cuda_world_hold(cw.streams[0], 0);
	cuda_world_hold(cw.streams[1], 0);
	b = cuda_world_recv(cw.to, bytes, 0, cw.streams[0]);
	ck_assert_int_eq(looks() - before, bytes > 0);
	a = cuda_world_send(cw.from, bytes, 0, cw.streams[1]);
	ck_assert_int_eq(looks() - before, bytes > 0 ? 2 : 0);
	cuda_world_let_go(0);
	cuda_world_finish(a, BATON_OK);
	cuda_world_finish(b, BATON_OK);
	ck_assert_int_eq(looks() - before, bytes > 0 ? 2 : 0);
}

START_TEST(what_a_buffer_is_is_asked_once_and_at_the_call)
{
	static const size_t lengths[] = {0, 8, 100 * 1024, 4 * MIB};

	cuda_world_open();
	for (int i = 0; i < 4; i++) {
		atomic_store(&cw.words[0], 0);
		message_asks_twice(lengths[i]);
	}
	cuda_world_end();
}
END_TEST

/* Rank 0 puts into the part of rank 1. */
static void
put_to_one(const void *from, size_t bytes)
{
	baton_request request;

	baton_ok(baton_put_signal(from, bytes, BATON_UINT8, 1, cw.parts[0].window,
	                          0, 0, 0, 0, cw.comms[0], cw.streams[0], NULL,
	                          &request));
	cuda_world_finish(request, BATON_OK);
}

static void
await_put(void)
{
	const struct baton_wait_signal_desc desc = {1, 0, 0, 0};
	baton_request request;

	baton_ok(baton_wait_signal(1, &desc, cw.comms[1], cw.streams[1], NULL,
	                           &request));
	cuda_world_finish(request, BATON_OK);
}

static void
puts_ask_once(void)
{
	static const size_t lengths[] = {0, 8, 100 * 1024, 4 * MIB};

	for (int i = 0; i < 4; i++) {
		long before = looks();

		cuda_world_fill(cw.from, 4 * MIB, (unsigned)i);
		put_to_one(cw.from, lengths[i]);
		await_put();
		ck_assert_int_eq(looks() - before, lengths[i] > 0);
		cuda_world_expect(cw.to, lengths[i], (unsigned)i);
	}
}

START_TEST(puts_ask_once_on_each_path)
{
	static const char *const paths[] = {"", "message"};
	void *bases[2];

	for (int i = 0; i < 2; i++) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			if (*paths[i])
				setenv("BATON_WINDOW_PATH", paths[i], 1);
			cuda_world_open();
			bases[0] = cw.from;
			bases[1] = cw.to;
			cuda_world_parts(bases[0], bases[1], 4 * MIB);
			cuda_world_both(cuda_world_register, BATON_OK);
			puts_ask_once();
			cuda_world_both(cuda_world_deregister, BATON_OK);
			cuda_world_end();
			_exit(0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

/* ---- memory of another device --------------------------------------------- */

START_TEST(another_devices_memory_is_made_ready_at_the_call)
{
	unsigned char *there;
	baton_request request;
	long streams, retains;

	cuda_world_open();
	there = memory_of_device_1(8 * MIB);
	retains = cw.sim->sim_uses("cuDevicePrimaryCtxRetain");
	cuda_world_hold(cw.streams[0], 0);
	request = cuda_world_recv(there, 4 * MIB, 0, cw.streams[0]);
	ck_assert_int_eq(cw.sim->sim_uses("cuDevicePrimaryCtxRetain") - retains,
	                 1);
	streams = cw.sim->sim_uses("cuStreamCreateWithPriority");
	cuda_world_let_go(0);
	cuda_world_fill(cw.from, 4 * MIB, 8);
	cuda_world_finish(cuda_world_send(cw.from, 4 * MIB, 0, cw.streams[1]),
	                  BATON_OK);
	cuda_world_finish(request, BATON_OK);
	cuda_world_expect(there, 4 * MIB, 8);
	ck_assert_int_eq(cw.sim->sim_uses("cuStreamCreateWithPriority"), streams);
	ck_assert_int_eq(cw.sim->sim_uses("cuDevicePrimaryCtxRetain") - retains,
	                 1);
	cuda_world_end();
}
END_TEST

static void
recv_refused(void *to, enum baton_status expected)
{
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_recv(to, 8, BATON_UINT8, 0, 0, cw.comms[1],
	                            cw.streams[0], NULL, &request),
	                 expected);
	ck_assert(request == BATON_REQUEST_NULL);
	assert_said("baton_recv", "memory of CUDA device 1",
	            "could not be set up", "cuStreamCreateWithPriority");
}

START_TEST(device_that_cannot_be_set_up_is_refused_and_tried_once)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *another;
	unsigned char *there;
	baton_request request;
	long retains;

	cuda_world_open();
	there = memory_of_device_1(8 * MIB);
	ck_assert(cw.sim->sim_fail("cuStreamCreateWithPriority", 2,
	                           BATONI_CU_OUT_OF_MEMORY, false));
	recv_refused(there, BATON_ERR_NOMEM);
	retains = cw.sim->sim_uses("cuDevicePrimaryCtxRetain");
	recv_refused(there, BATON_ERR_NOMEM);
	cuda_world_parts(there, cw.to, 8 * MIB);
	cuda_world_both(cuda_world_register, BATON_ERR_NOMEM);
	ck_assert_ptr_nonnull(strstr(cw.parts[0].why, "memory of CUDA device 1"));
	ck_assert_int_eq(cw.sim->sim_uses("cuDevicePrimaryCtxRetain"), retains);
	/* The next communicator tries again. */
	baton_ok(baton_comm_create_local(1, &options, &another));
	baton_ok(baton_comm_destroy(another));
	request = cuda_world_recv(there, 8, 0, cw.streams[0]);
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[1]), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	cuda_world_end();
}
END_TEST

/* Its part is memory that the driver does not know, for which it names device 0. */
START_TEST(puts_of_the_second_device_reach_a_window_of_the_host)
{
	struct baton_comm_options options = cuda_world_options();
	CUcontext other;
	unsigned char *there;
	void *bases[2];

	cuda_world_begin();
	there = memory_of_device_1(8 * MIB);
	/* Device 0 is set up. */
	cuda_world_comms(&options);
	cuda_world_destroy();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	for (int i = 0; i < 2; i++)
		cw.streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	options.cuda_device = 1;
	cuda_world_comms(&options);
	bases[0] = bases[1] = calloc(1, 4 * MIB);
	cuda_world_parts(bases[0], bases[1], 4 * MIB);
	cuda_world_both(cuda_world_register, BATON_OK);
	for (size_t bytes = 8; bytes <= 4 * MIB; bytes *= 4 * MIB / 8) {
		unsigned char *got = bases[1], want[8];

		cuda_world_fill(there, 4 * MIB, 5);
		put_to_one(there, bytes);
		await_put();
		cw.sim->sim_peek(want, cuda_world_address(there + bytes - 8), 8);
		ck_assert_mem_eq(got + bytes - 8, want, 8);
	}
	cuda_world_both(cuda_world_deregister, BATON_OK);
	cuda_world_end();
	free(bases[0]);
}
END_TEST

/* Rank 0 puts from memory of the host, and from that of device 0 if `both`.  Only the owner of
 * the window's memory may copy it, unless `peer`. */
static void
puts_reach_the_other_device(const char *path, bool peer, bool both)
{
	unsigned char *there, *here = malloc(4 * MIB);
	void *bases[2];

	if (*path)
		setenv("BATON_WINDOW_PATH", path, 1);
	cuda_world_load();
	ck_assert(cw.sim->sim_set("peer", peer));
	cuda_world_open();
	there = memory_of_device_1(4 * MIB);
	bases[0] = cw.to;
	bases[1] = there;
	cuda_world_parts(bases[0], bases[1], 4 * MIB);
	cuda_world_both(cuda_world_register, BATON_OK);
	for (size_t bytes = 8; bytes <= 4 * MIB; bytes *= 4 * MIB / 8) {
		cuda_world_fill(cw.from, bytes, 3);
		cw.sim->sim_peek(here, cuda_world_address(cw.from), bytes);
		put_to_one(here, bytes);
		await_put();
		cuda_world_expect(there, bytes, 3);
		if (!both)
			continue;
		cuda_world_fill(cw.from, bytes, 4);
		put_to_one(cw.from, bytes);
		await_put();
		cuda_world_expect(there, bytes, 4);
	}
	cuda_world_both(cuda_world_deregister, BATON_OK);
	cuda_world_end();
	free(here);
}

START_TEST(puts_reach_a_window_in_another_devices_memory)
{
	puts_reach_the_other_device("", false, false);
}
END_TEST

START_TEST(puts_reach_it_from_a_device_that_may_copy_it)
{
	puts_reach_the_other_device("", true, true);
}
END_TEST

START_TEST(puts_by_message_reach_a_window_in_another_devices_memory)
{
	puts_reach_the_other_device("message", false, true);
}
END_TEST

static bool
kernel_writes(void)
{
	char from = 1, to = 0;

	return batoni_vm_write(getpid(), (uintptr_t)&to, &from, 1) == BATON_OK;
}

static void
put_is_refused(const void *from)
{
	baton_request request = BATON_REQUEST_NULL;

	ck_assert_int_eq(baton_put_signal(from, 8, BATON_UINT8, 1,
	                                  cw.parts[0].window, 0, 0, 0, 0,
	                                  cw.comms[0], cw.streams[0], NULL,
	                                  &request),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert(request == BATON_REQUEST_NULL);
	assert_said("baton_put_signal: local_buffer", "memory of a device",
	            "vmwrite");
}

/* The kernel does not read it. */
START_TEST(put_from_a_device_is_refused_where_vmwrite_is_forced)
{
	CUdeviceptr managed;
	int64_t here = 5;
	void *bases[2];

	if (!kernel_writes()) {
		printf("no process_vm_writev here\n");
		return;
	}
	setenv("BATON_WINDOW_PATH", "vmwrite", 1);
	cuda_world_open();
	cu_ok(cw.sim->managed_alloc(&managed, 4096, 1));
	bases[0] = bases[1] = calloc(1, 4096);
	cuda_world_parts(bases[0], bases[1], 4096);
	cuda_world_both(cuda_world_register, BATON_OK);
	put_is_refused(cw.from);
	put_is_refused((void *)(uintptr_t)managed);
	put_to_one(cw.from, 0);
	await_put();
	put_to_one(&here, 8);
	await_put();
	ck_assert_mem_eq(bases[1], &here, 8);
	cuda_world_both(cuda_world_deregister, BATON_OK);
	cuda_world_end();
	free(bases[0]);
}
END_TEST

/* The driver is asked once: then the buffer's pages are gone.  What the copy finds is an error
 * of the request, and no fault of the engine's thread. */
START_TEST(buffer_that_is_freed_before_its_turn_ends_its_operation)
{
	baton_request request;
	CUdeviceptr memory;

	cuda_world_load();
	ck_assert(cw.sim->sim_set("implicit", 0));
	cuda_world_open();
	cu_ok(cw.sim->mem_alloc(&memory, 8 * MIB));
	cuda_world_hold(cw.streams[0], 0);
	request = cuda_world_recv((void *)(uintptr_t)memory, 8, 0, cw.streams[0]);
	cu_ok(cw.sim->mem_free(memory));
	cuda_world_let_go(0);
	cuda_world_finish(cuda_world_send(cw.from, 8, 0, cw.streams[1]), BATON_OK);
	cuda_world_finish(request, BATON_ERR_CUDA);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_abort(cw.comms[i]));
	cuda_world_end();
}
END_TEST

/* ---- communicators on the host -------------------------------------------- */

static struct baton_comm_options
on_the_host(void)
{
	struct baton_comm_options options = cuda_world_options();

	options.device = BATON_DEVICE_HOST;
	options.cuda_device = -1;
	return options;
}

static void
open_on_the_host(void)
{
	struct baton_comm_options options = on_the_host();

	cuda_world_begin();
	cuda_world_comms(&options);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_stream_create(cw.comms[i], &cw.streams[i]));
}

static void
close_on_the_host(void)
{
	for (int i = 0; i < 2; i++)
		baton_ok(baton_stream_destroy(cw.comms[i], cw.streams[i]));
	cuda_world_end();
}

static void
host_refuses(enum baton_status status, const char *call, const char *device)
{
	ck_assert_int_eq(status, BATON_ERR_INVALID);
	assert_said(call, device, "is on the host", "BATON_DEVICE_CUDA",
	            "copy to memory of the host");
}

static void
messages_are_refused(const unsigned char *memory, const char *device)
{
	const struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request = BATON_REQUEST_NULL;

	host_refuses(baton_send(memory, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                        cw.streams[0], NULL, &request),
	             "baton_send", device);
	host_refuses(baton_send(memory + 5, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                        NULL, &options, NULL),
	             "baton_send", device);
	host_refuses(baton_recv((void *)(uintptr_t)memory, 1, BATON_INT64, 0, 0,
	                        cw.comms[1], cw.streams[1], NULL, &request),
	             "baton_recv", device);
	baton_ok(baton_group_begin(cw.comms[0]));
	host_refuses(baton_send(memory, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                        cw.streams[0], NULL, &request),
	             "baton_send", device);
	ck_assert_int_eq(baton_group_end(cw.comms[0]), BATON_ERR_INVALID);
	ck_assert(request == BATON_REQUEST_NULL);
}

/* Tensors, and what the engine reads and writes beside them. */
static void
lists_are_refused(void *memory, const char *device)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = {
		.data = memory, .type = BATON_UINT8, .rank = 1, .shape = {8}};

	host_refuses(baton_send_tensors(&one, 1, 1, 0, cw.comms[0],
	                                cw.streams[0], NULL, NULL),
	             "baton_send_tensors", device);
	host_refuses(baton_recv_tensors(&one, 1, 0, 0, cw.comms[1],
	                                cw.streams[1], NULL, NULL),
	             "baton_recv_tensors", device);
	options.input_signal = memory;
	ck_assert_int_eq(baton_send_tensors(NULL, 0, 1, 0, cw.comms[0],
	                                    cw.streams[0], &options, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "input_signal"));
	options.input_signal = NULL;
	options.output_signal = memory;
	ck_assert_int_eq(baton_recv_tensors(NULL, 0, 0, 0, cw.comms[1],
	                                    cw.streams[1], &options, NULL),
	                 BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "output_signal"));
}

START_TEST(host_refuses_messages_of_device_memory)
{
	unsigned char *there;
	baton_request request;

	open_on_the_host();
	there = memory_of_device_1(MIB);
	messages_are_refused(cw.from, "memory of GPU 0");
	messages_are_refused(there + MIB - 100, "memory of GPU 1");
	lists_are_refused(cw.from, "memory of GPU 0");
	/* No bytes are no memory. */
	request = cuda_world_recv(cw.to, 0, 0, cw.streams[1]);
	cuda_world_finish(cuda_world_send(cw.from, 0, 0, cw.streams[0]), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	close_on_the_host();
}
END_TEST

START_TEST(host_refuses_windows_and_puts_of_device_memory)
{
	void *bases[2] = {calloc(1, 4096), calloc(1, 4096)};

	open_on_the_host();
	cuda_world_parts(bases[0], cw.to, 4096);
	cuda_world_both(cuda_world_register, BATON_ERR_INVALID);
	cuda_world_has(cw.parts[1].why,
	               (const char *const[]){"baton_window_register", "base",
	                                     "memory of GPU 0", "is on the host",
	                                     NULL});
	cuda_world_parts(bases[0], bases[1], 4096);
	cuda_world_both(cuda_world_register, BATON_OK);
	host_refuses(baton_put_signal(cw.from, 8, BATON_UINT8, 1, cw.parts[0].window, 0, 0,
	                              0, 0, cw.comms[0], cw.streams[0], NULL, NULL),
	             "baton_put_signal", "memory of GPU 0");
	memset(bases[0], 7, 4096);
	put_to_one(bases[0], 4096);
	await_put();
	ck_assert_mem_eq(bases[0], bases[1], 4096);
	cuda_world_both(cuda_world_deregister, BATON_OK);
	close_on_the_host();
	free(bases[0]);
	free(bases[1]);
}
END_TEST

START_TEST(host_takes_managed_pinned_and_registered_memory)
{
	CUdeviceptr managed;
	void *buffers[4];

	open_on_the_host();
	cu_ok(cw.sim->managed_alloc(&managed, 2 * MIB, 1));
	buffers[0] = (void *)(uintptr_t)managed;
	cu_ok(cw.sim->host_alloc(&buffers[1], 2 * MIB, 0));
	buffers[2] = aligned_alloc(4096, 2 * MIB);
	cu_ok(cw.sim->host_register(buffers[2], 2 * MIB, 0));
	buffers[3] = malloc(2 * MIB);
	for (int i = 0; i < 4; i++) {
		unsigned char *from = buffers[i], *to = buffers[(i + 1) % 4];
		baton_request request = cuda_world_recv(to + MIB, MIB, 0,
		                                        cw.streams[1]);

		memset(from, i + 1, MIB);
		cuda_world_finish(cuda_world_send(from, MIB, 0, cw.streams[0]),
		                  BATON_OK);
		cuda_world_finish(request, BATON_OK);
		ck_assert_mem_eq(from, to + MIB, MIB);
	}
	cu_ok(cw.sim->host_unregister(buffers[2]));
	close_on_the_host();
	free(buffers[2]);
	free(buffers[3]);
}
END_TEST

/* The library is not loaded for the question, and not started where the program has not
 * started it. */
START_TEST(host_neither_loads_nor_starts_the_driver)
{
	struct baton_comm_options options = on_the_host();
	struct baton_comm *early[2];
	baton_request request = BATON_REQUEST_NULL;
	char here = 1, there = 0;
	baton_stream stream;

	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	baton_ok(baton_comm_create_local(2, &options, early));
	ck_assert_ptr_null(dlopen(CUDASIM_PATH, RTLD_NOW | RTLD_NOLOAD));
	cuda_world_load();
	cuda_world_comms(&options);
	baton_ok(baton_stream_create(cw.comms[0], &stream));
	request = cuda_world_recv(&there, 1, 0, stream);
	cuda_world_finish(cuda_world_send(&here, 1, 0, NULL), BATON_OK);
	cuda_world_finish(request, BATON_OK);
	ck_assert_int_eq(there, 1);
	ck_assert_int_eq(cw.sim->sim_uses("cuInit"), 0);
	baton_ok(baton_stream_destroy(cw.comms[0], stream));
	/* From there on an older communicator refuses too. */
	cuda_world_begin();
	ck_assert_int_eq(baton_send(cw.from, 8, BATON_UINT8, 1, 0, early[0], NULL,
	                            NULL, &request),
	                 BATON_ERR_INVALID);
	assert_said("memory of GPU 0");
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(early[i]));
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		what_a_buffer_is_is_asked_once_and_at_the_call,
		puts_ask_once_on_each_path,
		another_devices_memory_is_made_ready_at_the_call,
		device_that_cannot_be_set_up_is_refused_and_tried_once,
		puts_of_the_second_device_reach_a_window_of_the_host,
		puts_reach_a_window_in_another_devices_memory,
		puts_reach_it_from_a_device_that_may_copy_it,
		puts_by_message_reach_a_window_in_another_devices_memory,
		put_from_a_device_is_refused_where_vmwrite_is_forced,
		buffer_that_is_freed_before_its_turn_ends_its_operation,
		host_refuses_messages_of_device_memory,
		host_refuses_windows_and_puts_of_device_memory,
		host_takes_managed_pinned_and_registered_memory,
		host_neither_loads_nor_starts_the_driver,
	};

	return RUN_TESTS("cuda_pointers", tests);
}
