/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA device that fails for good, over the simulator, and processes that end or fork with
 * operations pending.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "captured.h"
#include "cuda_world.h"
#include "device.h"
#include "mem.h"
#include "testing.h"

/* ---- sticky errors -------------------------------------------------------- */

static void
nothing(void *unused)
{
	(void)unused;
}

enum { RECV, LONG_RECV, RECORD, BEHIND, DETACHED, GROUP_SEND, GROUP_RECV, WAIT, ALL };

/* An operation of each kind that does not end by itself. */
static void
enqueue_all(baton_request requests[ALL], CUstream held)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	CUstream s = cw.streams[0], t = cw.streams[1];

	detached.flags = BATON_OP_DETACHED;
	requests[RECV] = cuda_world_recv(cw.to, 8, 0, s);
	requests[BEHIND] = cuda_world_recv(cw.to, 8, 1, s);
	requests[LONG_RECV] = cuda_world_recv(cw.to, 4 * MIB, 2, t);
	cuda_world_hold(held, 0);
	baton_ok(baton_record(cw.comms[0], held, NULL, &requests[RECORD]));
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 0, 3, cw.comms[1], held,
	                    &detached, &requests[DETACHED]));
	baton_ok(baton_stream_wait(cw.comms[0], t, requests[RECORD]));
	baton_ok(baton_stream_launch(cw.comms[0], held, nothing, NULL));
	baton_ok(baton_group_begin(cw.comms[0]));
	baton_ok(baton_send(cw.from, 8, BATON_UINT8, 1, 5, cw.comms[0], s, NULL,
	                    &requests[GROUP_SEND]));
	baton_ok(baton_recv(cw.to, 8, BATON_UINT8, 1, 5, cw.comms[0], t, NULL,
	                    &requests[GROUP_RECV]));
	baton_ok(baton_group_end(cw.comms[0]));
	baton_ok(baton_wait_signal(1, &(struct baton_wait_signal_desc){1, 0, 0, 0},
	                           cw.comms[1], t, NULL, &requests[WAIT]));
}

static void
ends_with(baton_request request, const char *const words[])
{
	char text[300];

	ck_assert_int_eq(baton_wait(request, LONG_NS, NULL), BATON_ERR_CUDA);
	baton_ok(baton_request_error(request, text, sizeof(text)));
	cuda_world_has(text, words);
	baton_ok(baton_release(&request));
}

static void
refuses_all(void)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *others[2];
	baton_request request = BATON_REQUEST_NULL;
	baton_stream made;

	ck_assert_int_eq(baton_send(cw.from, 8, BATON_UINT8, 1, 0, cw.comms[0],
	                            cw.streams[0], NULL, &request),
	                 BATON_ERR_CUDA);
	assert_said("broken", "719");
	ck_assert_int_eq(baton_comm_status(cw.comms[0]), BATON_ERR_CUDA);
	ck_assert_int_eq(baton_stream_create(cw.comms[0], &made),
	                 BATON_ERR_CUDA);
	assert_said("719");
	ck_assert_int_eq(baton_stream_synchronize(cw.comms[0], cw.streams[0]),
	                 BATON_ERR_CUDA);
	assert_said("baton_stream_synchronize", "719");
	/* It may be made, of what there is already, but works no more. */
	if (baton_comm_create_local(2, &options, others) == BATON_OK) {
		ck_assert_int_eq(baton_record(others[0], cw.streams[0], NULL,
		                              &request),
		                 BATON_ERR_CUDA);
		assert_said("719");
		for (int i = 0; i < 2; i++)
			baton_ok(baton_comm_destroy(others[i]));
	}
}

START_TEST(sticky_error_ends_all_operations_and_says_why)
{
	static const char *const words[] = {"719", "CUDA_ERROR_LAUNCH_FAILED",
	                                    "cu", NULL};
	struct baton_comm_options options = cuda_world_options();
	baton_request requests[ALL];
	CUstream held;

	cuda_world_begin();
	options.requests_max = 64;
	options.timeout_ns = -1;
	cuda_world_comms(&options);
	held = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	enqueue_all(requests, held);
	cw.sim->sim_break(0, 719);
	for (int i = 0; i < ALL; i++)
		ends_with(requests[i], words);
	refuses_all();
	cuda_world_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
}
END_TEST

/* While a long message is on its way, at one moment and another. */
START_TEST(sticky_error_amid_a_message_ends_both_sides)
{
	for (unsigned i = 0; i < 12; i++) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			baton_request a, b;

			cuda_world_open();
			cw.sim->sim_set("seed", (long)i + 1);
			b = cuda_world_recv(cw.to, 8 * MIB, 0, cw.streams[0]);
			a = cuda_world_send(cw.from, 8 * MIB, 0, cw.streams[1]);
			cw.sim->sim_fail("cuMemcpyAsync", 2 * (long)i + 1, 700,
			                 true);
			if (baton_finish(&a, LONG_NS, NULL) == BATON_PENDING ||
			    baton_finish(&b, LONG_NS, NULL) == BATON_PENDING)
				_exit(1);
			cuda_world_destroy();
			_exit(cw.sim->sim_violations() ||
			      batoni_mem_blocks() != 0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

static void *
wait_for(void *request_p)
{
	return (void *)(intptr_t)baton_finish(request_p, LONG_NS, NULL);
}

static void *
synchronize(void *stream)
{
	cu_ok(cw.sim->context_push(cw.context));
	return (void *)(intptr_t)cw.sim->stream_synchronize(stream);
}

/* Threads that wait by Baton and by the driver all return. */
START_TEST(sticky_error_lets_waiting_threads_go)
{
	baton_request request;
	pthread_t by_baton, by_driver;
	void *status;

	cuda_world_open();
	request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	pthread_create(&by_baton, NULL, wait_for, &request);
	pthread_create(&by_driver, NULL, synchronize, cw.streams[0]);
	while (cw.sim->sim_blocked() == 0)
		usleep(100);
	cw.sim->sim_break(0, 700);
	pthread_join(by_driver, &status);
	pthread_join(by_baton, &status);
	ck_assert_int_eq((int)(intptr_t)status, BATON_ERR_CUDA);
	cuda_world_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* The other device's ranks are well. */
START_TEST(sticky_error_of_one_device_leaves_the_others)
{
	struct baton_comm_options options = cuda_world_options();
	struct baton_comm *others[2];
	CUcontext other, popped;
	CUstream streams[2];
	CUdeviceptr memory;
	baton_request request, a, b;

	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 8 * MIB));
	for (int i = 0; i < 2; i++)
		streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	cu_ok(cw.sim->context_pop(&popped));
	options.cuda_device = 1;
	baton_ok(baton_comm_create_local(2, &options, others));
	request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	baton_ok(baton_recv((void *)(uintptr_t)memory, 4 * MIB, BATON_UINT8, 0,
	                    0, others[1], streams[1], NULL, &b));
	cw.sim->sim_break(0, 700);
	cuda_world_finish(request, BATON_ERR_CUDA);
	ck_assert_int_eq(baton_test(b, NULL), BATON_PENDING);
	baton_ok(baton_send((void *)(uintptr_t)(memory + 4 * MIB), 4 * MIB,
	                    BATON_UINT8, 1, 0, others[0], streams[0], NULL, &a));
	cuda_world_finish(a, BATON_OK);
	cuda_world_finish(b, BATON_OK);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_destroy(others[i]));
	cuda_world_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* A message of device 0's ranks has memory of device 1, which fails: the communicator's own
 * device is well. */
START_TEST(error_of_another_devices_copy_is_that_devices)
{
	struct baton_comm *broken[2];
	char text[300], *from = calloc(1, 4 * MIB);
	struct batoni_device *device;
	struct batoni_fault fault;
	CUcontext other, popped;
	baton_request request;
	CUdeviceptr memory;

	cuda_world_open();
	cu_ok(cw.sim->primary_retain(&other, 1));
	cu_ok(cw.sim->context_push(other));
	cu_ok(cw.sim->mem_alloc(&memory, 8 * MIB));
	cu_ok(cw.sim->context_pop(&popped));
	request = cuda_world_recv((void *)(uintptr_t)memory, 4 * MIB, 0,
	                          cw.streams[0]);
	/* Only the receive copies; the first question about a copy finds the error. */
	ck_assert(cw.sim->sim_fail("cuEventQuery", 1, 700, true));
	baton_release(&(baton_request){
		cuda_world_send(from, 4 * MIB, 0, cw.streams[1])});
	ck_assert_int_eq(baton_wait(request, LONG_NS, NULL), BATON_ERR_CUDA);
	baton_ok(baton_request_error(request, text, sizeof(text)));
	cuda_world_has(text, (const char *const[]){"700", NULL});
	baton_ok(baton_release(&request));
	device = batoni_comm_device(cw.comms[0]);
	baton_ok(device->ops->memory->health(device, &fault));
	/* Its ranks are broken; others on device 0 are not. */
	memcpy(broken, cw.comms, sizeof(broken));
	cuda_world_comms(NULL);
	cuda_world_fill(cw.from, 4 * MIB, 2);
	request = cuda_world_recv(cw.to, 4 * MIB, 0, cw.streams[0]);
	cuda_world_finish(cuda_world_send(cw.from, 4 * MIB, 0, cw.streams[1]),
	                  BATON_OK);
	cuda_world_finish(request, BATON_OK);
	cuda_world_expect(cw.to, 4 * MIB, 2);
	request = BATON_REQUEST_NULL;
	ck_assert_int_eq(baton_recv((void *)(uintptr_t)memory, 8, BATON_UINT8, 0,
	                            0, cw.comms[1], cw.streams[0], NULL,
	                            &request),
	                 BATON_ERR_CUDA);
	assert_said("CUDA device 1", "700", "reset");
	cuda_world_destroy();
	for (int i = 0; i < 2; i++) {
		baton_ok(baton_comm_abort(broken[i]));
		baton_ok(baton_comm_destroy(broken[i]));
	}
	free(from);
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* ---- resets --------------------------------------------------------------- */

static void
reset(CUdevice device)
{
	CUcontext context;

	cu_ok(cw.sim->primary_reset(device));
	/* As the program's next call of the runtime does. */
	cu_ok(cw.sim->primary_retain(&context, device));
	cu_ok(cw.sim->primary_release(device));
}

/* What the reset has taken. */
static void
make_anew(void)
{
	CUdeviceptr memory;

	cu_ok(cw.sim->mem_alloc(&memory, 2 * CUDA_WORLD_BYTES));
	cw.from = (void *)(uintptr_t)memory;
	cw.to = cw.from + CUDA_WORLD_BYTES;
	for (int i = 0; i < 2; i++)
		cw.streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
}

static void
messages_arrive(unsigned char *to)
{
	for (size_t bytes = 8; bytes <= 4 * MIB; bytes *= 4 * MIB / 8) {
		baton_request request = cuda_world_recv(to, bytes, 0,
		                                        cw.streams[0]);

		cuda_world_fill(cw.from, bytes, 7);
		cuda_world_finish(cuda_world_send(cw.from, bytes, 0,
		                                  cw.streams[1]),
		                  BATON_OK);
		cuda_world_finish(request, BATON_OK);
		cuda_world_expect(to, bytes, 7);
	}
}

START_TEST(device_that_was_reset_after_a_sticky_error_works_again)
{
	struct baton_comm_options options = cuda_world_options();
	baton_request request;
	struct baton_comm *comm;

	cuda_world_begin();
	for (int i = 0; i < 2; i++) {
		cuda_world_comms(NULL);
		messages_arrive(cw.to);
		request = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
		cw.sim->sim_break(0, 719);
		cuda_world_finish(request, BATON_ERR_CUDA);
		ck_assert_int_eq(baton_comm_create_local(1, &options, &comm),
		                 BATON_ERR_CUDA);
		assert_said("719", "destroy the communicators", "cudaDeviceReset");
		cuda_world_destroy();
		reset(0);
		make_anew();
	}
	cuda_world_comms(NULL);
	messages_arrive(cw.to);
	cuda_world_end();
	/* Nothing of it is left but what the last set-up has made. */
	ck_assert_int_eq(cw.sim->sim_live("streams"), 2 + 3);
}
END_TEST

START_TEST(device_that_was_reset_without_an_error_works_again)
{
	cuda_world_begin();
	for (int i = 0; i < 3; i++) {
		cuda_world_comms(NULL);
		messages_arrive(cw.to);
		cuda_world_destroy();
		reset(0);
		make_anew();
	}
	cuda_world_comms(NULL);
	messages_arrive(cw.to);
	cuda_world_end();
	/* The test has retained it, and so have the last opens, of two ranks and of the local
	 * transport. */
	for (int i = 0; i < 4; i++)
		cu_ok(cw.sim->primary_release(0));
	ck_assert_int_eq(cw.sim->sim_live("streams"), 0);
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
}
END_TEST

START_TEST(another_device_that_was_reset_is_set_up_anew)
{
	CUcontext other, popped;
	CUdeviceptr memory;

	cuda_world_begin();
	cu_ok(cw.sim->primary_retain(&other, 1));
	for (int i = 0; i < 3; i++) {
		cu_ok(cw.sim->context_push(other));
		cu_ok(cw.sim->mem_alloc(&memory, 4 * MIB));
		cu_ok(cw.sim->context_pop(&popped));
		cuda_world_comms(NULL);
		messages_arrive((unsigned char *)(uintptr_t)memory);
		cuda_world_destroy();
		reset(1);
	}
	cuda_world_end();
}
END_TEST

/* ---- exit and fork -------------------------------------------------------- */

static bool is_child;

/* LeakSanitizer asks at exit.  Its check takes the allocator's locks, which a thread of the
 * parent may have held at the fork: the child, which has no such thread, would wait for ever. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int
__lsan_is_turned_off(void)
{
	return is_child;
}

/* Runs fn in a child, which ends by itself with this status, in time. */
static void
child_ends(void (*fn)(void), int expected)
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		is_child = true;
		signal(SIGALRM, SIG_DFL); /* not that of Check */
		alarm(40);
		fn();
		_exit(99);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
	ck_assert_int_eq(WEXITSTATUS(status), expected);
}

static void
check_violations(void)
{
	if (cw.sim->sim_violations() > 0)
		_exit(3);
}

static void
blocks_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

/* The driver calls that come after the exit has begun fail; streams stand still. */
static void
exit_with_operations(void)
{
	baton_request requests[ALL];

	cuda_world_load();
	atexit(check_violations); /* called last */
	cuda_world_open();
	enqueue_all(requests, cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING));
	cuda_world_send(cw.from, 4 * MIB, 2, cuda_world_urgent_stream());
	exit(7);
}

static void
exit_beside_a_function(void)
{
	cuda_world_load();
	atexit(check_violations);
	cuda_world_open();
	baton_ok(baton_stream_launch(cw.comms[0], cw.streams[0], blocks_for_ever,
	                             NULL));
	cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	exit(7);
}

static void
return_without_memory_operations(void)
{
	cuda_world_load();
	cw.sim->sim_set("memops", 0);
	cuda_world_open();
	cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	cw.sim->sim_settle(true);
	exit(7);
}

static void
exit_after_a_sticky_error(void)
{
	baton_request requests[ALL];

	cuda_world_open();
	enqueue_all(requests, cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING));
	cw.sim->sim_break(0, 700);
	exit(7);
}

static struct baton_window *windows[2];

static void *
register_block(void *argument)
{
	size_t rank = *(const size_t *)argument;
	void *block;

	baton_ok(baton_mem_alloc(cw.comms[rank], 4 * MIB, &block));
	baton_ok(baton_window_register(block, 4 * MIB, cw.comms[rank],
	                               &windows[rank]));
	return NULL;
}

/* A window in device memory, a wait that is never met, and puts on the stream and by the
 * engine; those of each context have their own half of the part. */
static void
open_with_puts(void)
{
	const struct baton_wait_signal_desc never = {1000, 0, 0, 0};
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	size_t ranks[2] = {0, 1};
	pthread_t threads[2];

	cuda_world_load();
	atexit(check_violations);
	cuda_world_open();
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, register_block, &ranks[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	baton_ok(baton_wait_signal(1, &never, cw.comms[1], cw.streams[1], NULL,
	                           NULL));
	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < 10; i++)
		baton_ok(baton_put_signal(cw.from, 2 * MIB, BATON_UINT8, 1,
		                          windows[0], i % 2 ? 2 * MIB : 0, 0,
		                          i % 2, 0, cw.comms[0], cw.streams[0],
		                          i % 3 ? NULL : &detached, NULL));
}

static void
exit_with_puts(void)
{
	open_with_puts();
	exit(7);
}

/* Nothing was destroyed; and a child of fork is refused, and exits. */
static void
use_and_exit_in_a_child(void)
{
	uint64_t count;

	ck_assert_int_eq(baton_signal_count(cw.comms[1], 0, 0, 0, &count),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_window_deregister(windows[0]), BATON_ERR_INVALID);
	ck_assert_int_eq(baton_put_signal(cw.from, 8, BATON_UINT8, 1, windows[0],
	                                  0, 0, 0, 0, cw.comms[0], cw.streams[0],
	                                  NULL, NULL),
	                 BATON_ERR_INVALID);
	exit(7);
}

static void
fork_and_exit_with_puts(void)
{
	open_with_puts();
	child_ends(use_and_exit_in_a_child, 7);
	while (baton_stream_query(cw.comms[0], cw.streams[0]) != BATON_OK)
		sched_yield();
	exit(7);
}

START_TEST(exit_with_a_window_and_puts_does_not_hang)
{
	for (int i = 0; i < 3; i++)
		child_ends(exit_with_puts, 7);
	child_ends(fork_and_exit_with_puts, 7);
}
END_TEST

START_TEST(exit_with_operations_pending_does_not_hang)
{
	for (int i = 0; i < 4; i++)
		child_ends(exit_with_operations, 7);
	child_ends(exit_beside_a_function, 7);
	child_ends(return_without_memory_operations, 7);
	child_ends(exit_after_a_sticky_error, 7);
}
END_TEST

static baton_request seen_ended;

/* After the driver has ended. */
static void
see_the_engine_notice(void)
{
	if (baton_wait(seen_ended, LONG_NS, NULL) == BATON_PENDING)
		_exit(4);
}

static void
exit_and_see(void)
{
	baton_request requests[ALL];

	cuda_world_load();
	atexit(see_the_engine_notice);
	cuda_world_open();
	enqueue_all(requests, cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING));
	cw.sim->sim_settle(true);
	seen_ended = requests[LONG_RECV];
	exit(0);
}

static void
sticky_error_and_see(void)
{
	cuda_world_open();
	seen_ended = cuda_world_recv(cw.to, 8, 0, cw.streams[0]);
	cw.sim->sim_break(0, 700);
	see_the_engine_notice();
}

/* Nothing went wrong: the process has ended. */
START_TEST(exit_with_operations_pending_is_silent)
{
	struct captured captured = capture("warning", exit_and_see);

	ck_assert_str_eq(captured.text, "");
	captured = capture("warning", sticky_error_and_see);
	ck_assert_ptr_nonnull(strstr(captured.text, "communicator broken"));
}
END_TEST

static void
just_exit(void)
{
	exit(7);
}

START_TEST(child_of_fork_makes_no_driver_call)
{
	baton_request requests[ALL];

	cuda_world_load();
	atexit(check_violations);
	cuda_world_open();
	enqueue_all(requests, cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING));
	child_ends(just_exit, 7);
	/* The parent goes on. */
	cuda_world_finish(cuda_world_send(cw.from, 8, 0,
	                                  cuda_world_urgent_stream()),
	                  BATON_OK);
	cuda_world_finish(requests[RECV], BATON_OK);
	ck_assert_int_eq(cw.sim->sim_violations(), 0);
	cuda_world_let_go(0);
	for (int i = 0; i < 2; i++)
		baton_ok(baton_comm_abort(cw.comms[i]));
	cuda_world_end();
}
END_TEST

START_TEST(memory_of_windows_goes_although_a_call_of_the_driver_fails_in_passing)
{
	static const char *const calls[] = {"cuThreadExchangeStreamCaptureMode",
	                                    "cuCtxGetCurrent",
	                                    "cuCtxPushCurrent_v2"};
	void *block;

	cuda_world_open();
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		baton_ok(baton_mem_alloc(cw.comms[0], MIB, &block));
		ck_assert_int_gt(cw.sim->sim_live("allocations"), 0);
		ck_assert(cw.sim->sim_fail(calls[i], 1, 2, false));
		baton_ok(baton_mem_free(cw.comms[0], block));
		ck_assert_int_eq(cw.sim->sim_live("allocations"), 0);
		ck_assert_int_eq(cw.sim->sim_live("reservations"), 0);
	}
	cuda_world_end();
}
END_TEST

START_TEST(memory_of_windows_is_refused_where_the_driver_lacks_a_function)
{
	void *block;

	cuda_world_load();
	ck_assert(cw.sim->sim_lack("cuMemsetD8Async", true));
	cuda_world_open();
	ck_assert_int_eq(baton_mem_alloc(cw.comms[0], MIB, &block),
	                 BATON_ERR_CUDA);
	assert_said("cuMemAlloc", "801");
	cuda_world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		memory_of_windows_goes_although_a_call_of_the_driver_fails_in_passing,
		memory_of_windows_is_refused_where_the_driver_lacks_a_function,
		sticky_error_ends_all_operations_and_says_why,
		sticky_error_amid_a_message_ends_both_sides,
		sticky_error_lets_waiting_threads_go,
		sticky_error_of_one_device_leaves_the_others,
		error_of_another_devices_copy_is_that_devices,
		device_that_was_reset_after_a_sticky_error_works_again,
		device_that_was_reset_without_an_error_works_again,
		another_device_that_was_reset_is_set_up_anew,
		exit_with_a_window_and_puts_does_not_hang,
		exit_with_operations_pending_does_not_hang,
		exit_with_operations_pending_is_silent,
		child_of_fork_makes_no_driver_call,
	};

	return RUN_TESTS("cuda_errors", tests);
}
