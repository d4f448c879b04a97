/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL launches on threads of its own: whatever handle the program names its stream by, the
 * send waits for the work before it, and the work behind it for the send.
 *
 * Each way of carrying a message is tried with the default streams' three handles (NULL is the
 * legacy one, as 1 is; 2 is the calling thread's own) and with a created stream.  Rank 0's side is on a
 * thread that has ended when its work begins.
 */
#include <pthread.h>
#include <stdlib.h>

#include "nccl_world.h"
#include "run_tests.h"

enum { SENT, RECEIVED, COPIED, SENT_TOO, RECEIVED_TOO };
enum { STALE = 0x11, FRESH = 0x5a, LATER = 0xee, CREATED = 3, HANDLES };

/* A way: each side enqueues, on a stream, by one thread; and the end of all that. */
struct way {
	void (*begin)(void); /* NULL, and the next: nothing */
	void (*end)(void);
	void (*send)(CUstream stream);
	void (*recv)(CUstream stream);
};

static struct {
	const struct way *way;
	int handle;
	baton_request requests[4];
	int requests_n;
	struct baton_plan *plan;
	struct baton_window *windows[2];
	void *parts[2];
	int reads; /* the receiver's part that the message is in; -1: the window's */
} run;

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};

static CUstream
stream_of(int rank)
{
	return run.handle == CREATED ? streams[rank]
	                             : (CUstream)(uintptr_t)run.handle;
}

static baton_request *
next_request(void)
{
	return &run.requests[run.requests_n++];
}

/* ---- work of the program ---- */

static CUdeviceptr
address(int rank, int part)
{
	return (CUdeviceptr)(uintptr_t)(part < 0 ? run.parts[rank]
	                                         : at(rank, part));
}

static void
set_on_stream(int rank, CUstream stream, int part, unsigned char byte)
{
	CUcontext popped;

	ck_cuda(cuda->context_push(contexts[rank]));
	ck_cuda(cuda->set_bytes(address(rank, part), byte, BYTES, stream));
	ck_cuda(cuda->context_pop(&popped));
}

static void
copy(int rank, CUstream stream)
{
	CUcontext popped;

	ck_cuda(cuda->context_push(contexts[rank]));
	ck_cuda(cuda->copy(address(rank, COPIED), address(rank, run.reads),
	                   BYTES, stream));
	ck_cuda(cuda->context_pop(&popped));
}

/* How many bytes at the start of the copy are this. */
static int
count(int rank, unsigned char byte)
{
	unsigned char bytes[BYTES];
	int n = 0;

	cuda->sim_peek(bytes, address(rank, COPIED), BYTES);
	while (n < BYTES && bytes[n] == byte)
		n++;
	return n;
}

/* ---- both sides ---- */

static void *
sender_main(void *unused)
{
	CUstream stream = stream_of(0);

	hold(0, stream, run.handle);
	set_on_stream(0, stream, SENT, FRESH);
	set_on_stream(0, stream, SENT_TOO, FRESH);
	run.way->send(stream);
	set_on_stream(0, stream, SENT, LATER);
	set_on_stream(0, stream, SENT_TOO, LATER);
	return unused;
}

static void
exchange(int target)
{
	pthread_t thread;

	run.way->recv(stream_of(target));
	copy(target, stream_of(target));
	ck_assert_int_eq(pthread_create(&thread, NULL, sender_main, NULL), 0);
	pthread_join(thread, NULL);
	/* A way that needs the host may go further than this, if it is wrong. */
	cuda->sim_settle(false);
	ck_assert_int_eq(count(target, STALE), BYTES);
	let_go(run.handle);
	for (int i = 0; i < run.requests_n; i++)
		finish(run.requests[i], BATON_OK);
	run.requests_n = 0;
	cuda->sim_settle(false);
	ck_assert_msg(count(target, FRESH) == BYTES,
	              "stream %d: what came is not what was sent", run.handle);
}

static void
try_on(int handle, int target)
{
	run.handle = handle;
	for (int part = SENT; part <= RECEIVED_TOO; part++) {
		fill(0, part, STALE);
		fill(target, part, STALE);
	}
	exchange(target);
}

static void
try_with(const struct way *way, int target, bool check)
{
	struct baton_comm_options options[2] = {nccl_options(), nccl_options()};

	options[0].check = options[1].check = check;
	options[0].nccl_lists = options[1].nccl_lists = true;
	load();
	/* NULL is the legacy default stream, whatever NCCL was compiled for. */
	ck_assert(nccl->sim_set("per_thread", 1));
	create_with(2, options);
	for (int i = 0; i < 2; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
	run.way = way;
	run.reads = RECEIVED;
	for (int handle = 0; handle < HANDLES; handle++) {
		if (way->begin)
			way->begin();
		try_on(handle, target);
		if (way->end)
			way->end();
	}
	destroy_some(2);
}

/* ---- the ways ---- */

static void
send_part(CUstream stream, int peer, int part)
{
	ck_ok(move_on(stream, 0, peer, true, part, BYTES, NULL, next_request()));
}

static void
send_plain(CUstream stream)
{
	send_part(stream, 1, SENT);
}

static void
recv_plain(CUstream stream)
{
	ck_ok(move_on(stream, 1, 0, false, RECEIVED, BYTES, NULL,
	              next_request()));
}

static const struct way plain = {.send = send_plain, .recv = recv_plain};

START_TEST(a_plain_message)
{
	try_with(&plain, 1, false);
}
END_TEST

START_TEST(a_checked_message)
{
	try_with(&plain, 1, true);
}
END_TEST

static void
send_detached(CUstream stream)
{
	ck_ok(move_on(stream, 0, 1, true, SENT, BYTES, &detached,
	              next_request()));
	/* It lets its stream go on: that waits for it where the program says so. */
	ck_ok(baton_stream_wait(comms[0], stream, run.requests[1]));
}

static void
recv_detached(CUstream stream)
{
	ck_ok(move_on(stream, 1, 0, false, RECEIVED, BYTES, &detached,
	              next_request()));
	ck_ok(baton_stream_wait(comms[1], stream, run.requests[0]));
}

START_TEST(a_detached_message_that_is_joined)
{
	static const struct way way = {.send = send_detached,
	                               .recv = recv_detached};

	try_with(&way, 1, false);
}
END_TEST

static void
recv_elsewhere(CUstream stream)
{
	recv_plain(others[1]);
	ck_ok(baton_stream_wait(comms[1], stream, run.requests[0]));
}

START_TEST(a_receive_on_another_stream_that_is_joined)
{
	static const struct way way = {.send = send_plain,
	                               .recv = recv_elsewhere};

	try_with(&way, 1, false);
}
END_TEST

/* Two of one lane. */
static void
send_two(CUstream stream)
{
	ck_ok(baton_group_begin(comms[0]));
	send_part(stream, 1, SENT);
	send_part(others[0], 1, SENT_TOO);
	ck_ok(baton_group_end(comms[0]));
}

static void
recv_two(CUstream stream)
{
	ck_ok(baton_group_begin(comms[1]));
	recv_plain(stream);
	ck_ok(move_on(others[1], 1, 0, false, RECEIVED_TOO, BYTES, NULL,
	              next_request()));
	ck_ok(baton_group_end(comms[1]));
}

START_TEST(a_group_of_one_lane_and_two_streams)
{
	static const struct way way = {.send = send_two, .recv = recv_two};

	try_with(&way, 1, false);
}
END_TEST

static void
send_and_recv(CUstream stream)
{
	ck_ok(baton_group_begin(comms[0]));
	send_part(stream, 1, SENT);
	ck_ok(move_on(stream, 0, 1, false, RECEIVED_TOO, BYTES, NULL,
	              next_request()));
	ck_ok(baton_group_end(comms[0]));
}

static void
recv_and_send(CUstream stream)
{
	ck_ok(baton_group_begin(comms[1]));
	recv_plain(stream);
	ck_ok(move_on(stream, 1, 0, true, SENT_TOO, BYTES, NULL,
	              next_request()));
	ck_ok(baton_group_end(comms[1]));
}

START_TEST(a_group_of_two_lanes)
{
	static const struct way way = {.send = send_and_recv,
	                               .recv = recv_and_send};

	try_with(&way, 1, false);
}
END_TEST

static struct baton_tensor
tensor_of(int rank, int part)
{
	return (struct baton_tensor){.data = at(rank, part),
	                             .type = BATON_UINT8,
	                             .rank = 1,
	                             .shape = {BYTES}};
}

static void
send_list(CUstream stream)
{
	struct baton_tensor tensors[] = {tensor_of(0, SENT_TOO),
	                                 tensor_of(0, SENT)};

	ck_ok(baton_send_tensors(tensors, 2, 1, 0, comms[0], stream, NULL,
	                         next_request()));
}

static void
recv_list(CUstream stream)
{
	struct baton_tensor tensors[] = {tensor_of(1, RECEIVED_TOO),
	                                 tensor_of(1, RECEIVED)};

	ck_ok(baton_recv_tensors(tensors, 2, 0, 0, comms[1], stream, NULL,
	                         next_request()));
}

static const struct way list = {.send = send_list, .recv = recv_list};

START_TEST(a_list)
{
	try_with(&list, 1, false);
}
END_TEST

START_TEST(a_checked_list)
{
	try_with(&list, 1, true);
}
END_TEST

/* To oneself, the end that is kept on the stream in question. */
static void
recv_kept(CUstream stream)
{
	ck_ok(move_on(stream, 0, 0, false, RECEIVED, BYTES, NULL,
	              next_request()));
}

static void
send_taking(CUstream stream)
{
	hold(0, others[0], run.handle);
	set_on_stream(0, others[0], SENT, FRESH);
	ck_ok(move_on(others[0], 0, 0, true, SENT, BYTES, NULL,
	              next_request()));
	set_on_stream(0, others[0], SENT, LATER);
	(void)stream;
}

static void *
claimant_main(void *unused)
{
	send_taking(NULL);
	return unused;
}

/* The whole of it on the receive's stream is behind the receive, so only that is there. */
START_TEST(a_message_to_oneself_in_two_calls)
{
	pthread_t thread;

	load();
	create_some(1, 0, BATON_PROGRESS_AUTO);
	run.reads = RECEIVED;
	for (run.handle = 0; run.handle < HANDLES; run.handle++) {
		for (int part = SENT; part <= COPIED; part++)
			fill(0, part, STALE);
		recv_kept(stream_of(0));
		copy(0, stream_of(0));
		pthread_create(&thread, NULL, claimant_main, NULL);
		pthread_join(thread, NULL);
		cuda->sim_settle(false);
		ck_assert_int_eq(count(0, STALE), BYTES);
		let_go(run.handle);
		for (int i = 0; i < 2; i++)
			finish(run.requests[i], BATON_OK);
		run.requests_n = 0;
		cuda->sim_settle(false);
		ck_assert_int_eq(count(0, FRESH), BYTES);
	}
	destroy_some(1);
}
END_TEST

static void
recv_nothing(CUstream stream)
{
	(void)stream;
}

static void
send_to_oneself(CUstream stream)
{
	ck_ok(baton_group_begin(comms[0]));
	send_part(stream, 0, SENT);
	recv_kept(stream);
	ck_ok(baton_group_end(comms[0]));
	copy(0, stream);
}

/* The copy in front of it all is of stale bytes. */
START_TEST(a_message_to_oneself_in_a_group)
{
	static const struct way way = {.send = send_to_oneself,
	                               .recv = recv_nothing};

	try_with(&way, 0, false);
}
END_TEST

/* Recorded by this thread, and launched by the sender's: its own stream is meant. */
static void
record_plan(void)
{
	ck_ok(baton_plan_begin(comms[0]));
	ck_ok(baton_send(at(0, SENT_TOO), BYTES, BATON_UINT8, 1, 0, comms[0],
	                 stream_of(0), NULL, NULL));
	ck_ok(baton_send(at(0, SENT), BYTES, BATON_UINT8, 1, 0, comms[0],
	                 stream_of(0), NULL, NULL));
	ck_ok(baton_plan_end(comms[0], &run.plan));
}

static void
launch_plan(CUstream stream)
{
	(void)stream;
	ck_ok(baton_plan_launch(run.plan, NULL, next_request()));
}

static void
recv_both(CUstream stream)
{
	record_plan();
	ck_ok(move_on(stream, 1, 0, false, RECEIVED_TOO, BYTES, NULL,
	              next_request()));
	recv_plain(stream);
}

static void
destroy_plan(void)
{
	ck_ok(baton_plan_destroy(run.plan));
}

START_TEST(a_plan)
{
	static const struct way way = {.send = launch_plan, .recv = recv_both,
	                               .end = destroy_plan};

	try_with(&way, 1, false);
}
END_TEST

/* ---- puts ---- */

static void *
register_main(void *argument)
{
	int rank = *(int *)argument;

	ck_ok(baton_window_register(run.parts[rank], BYTES, comms[rank],
	                            &run.windows[rank]));
	return NULL;
}

static void *
deregister_main(void *argument)
{
	ck_ok(baton_window_deregister(run.windows[*(int *)argument]));
	return NULL;
}

static void
on_both(void *(*main)(void *))
{
	int ranks[] = {0, 1};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, main, &ranks[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static void
make_window(void)
{
	for (int i = 0; i < 2; i++)
		ck_ok(baton_mem_alloc(comms[i], BYTES, &run.parts[i]));
	on_both(register_main);
	run.reads = -1;
}

static void
end_window(void)
{
	on_both(deregister_main);
	for (int i = 0; i < 2; i++)
		ck_ok(baton_mem_free(comms[i], run.parts[i]));
}

static void
send_put(CUstream stream)
{
	ck_ok(baton_put_signal(at(0, SENT), BYTES, BATON_UINT8, 1,
	                       run.windows[0], 0, 0, 0, 0, comms[0], stream,
	                       NULL, next_request()));
}

static void
await_put(CUstream stream)
{
	const struct baton_wait_signal_desc desc = {.op_count = 1, .peer = 0};

	ck_ok(baton_wait_signal(1, &desc, comms[1], stream, NULL,
	                        next_request()));
}

static const struct way put = {.begin = make_window, .end = end_window,
                               .send = send_put, .recv = await_put};

START_TEST(a_put_by_nccl)
{
	setenv("BATON_WINDOW_PATH", "native", 1);
	try_with(&put, 1, false);
}
END_TEST

START_TEST(a_put_by_a_stream)
{
	try_with(&put, 1, false);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_plain_message,
		a_checked_message,
		a_detached_message_that_is_joined,
		a_receive_on_another_stream_that_is_joined,
		a_group_of_one_lane_and_two_streams,
		a_group_of_two_lanes,
		a_list,
		a_checked_list,
		a_message_to_oneself_in_two_calls,
		a_message_to_oneself_in_a_group,
		a_plan,
		a_put_by_nccl,
		a_put_by_a_stream,
	};

	return RUN_TESTS("nccl_streams", tests);
}
