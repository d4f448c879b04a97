/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: what matches, what waits for what, and what hangs. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "world.h"

static ncclResult_t
recv_at(int rank, int peer, size_t offset, size_t bytes, CUstream stream)
{
	const struct rank *r = &nw.rank[rank];

	return nw.nccl->recv((void *)(uintptr_t)(r->in + offset), bytes,
	                     BATONI_NCCL_INT8, peer, r->comm, stream);
}

static void
abort_all(void)
{
	for (int i = 0; i < nw.ranks; i++) {
		ck_nccl(nw.nccl->comm_abort(nw.rank[i].comm));
		nw.rank[i].comm = NULL;
	}
}

static void
begin(int ranks)
{
	world_begin(ranks, true);
	world_connect();
}

START_TEST(messages_of_a_peer_arrive_in_order)
{
	begin(2);
	for (unsigned char i = 1; i <= 3; i++) {
		world_fill(0, nw.rank[0].out, i, 1000);
		ck_nccl(world_send(0, 1, 1000));
	}
	for (size_t i = 1; i <= 3; i++)
		ck_nccl(recv_at(1, 0, i * 1000, 1000, nw.rank[1].stream));
	world_settle();
	for (size_t i = 1; i <= 3; i++)
		ck_assert_uint_eq(world_count(nw.rank[1].in + i * 1000,
		                              (unsigned char)i, 1000), 1000);
	world_end();
}
END_TEST

START_TEST(send_ends_with_its_recv)
{
	begin(2);
	ck_nccl(world_send(0, 1, 100));
	world_settle();
	ck_assert(!world_is_done(0));
	ck_nccl(world_recv(1, 0, 100));
	world_settle();
	ck_assert(world_is_done(0) && world_is_done(1));
	world_end();
}
END_TEST

START_TEST(eager_send_ends_without_it)
{
	world_load();
	ck_assert(nw.nccl->sim_set("eager", 1));
	begin(2);
	ck_nccl(world_send(0, 1, 100));
	world_settle();
	ck_assert(world_is_done(0));
	ck_nccl(world_recv(1, 0, 100));
	world_end();
}
END_TEST

START_TEST(recv_waits_for_its_send)
{
	begin(2);
	ck_nccl(world_recv(1, 0, 100));
	world_settle();
	ck_assert(!world_is_done(1));
	world_fill(0, nw.rank[0].out, 7, 100);
	ck_nccl(world_send(0, 1, 100));
	world_settle();
	ck_assert(world_is_done(1));
	ck_assert_uint_eq(world_count(nw.rank[1].in, 7, 100), 100);
	world_end();
}
END_TEST

START_TEST(empty_message_is_a_message)
{
	begin(2);
	ck_nccl(world_recv(1, 0, 0));
	world_settle();
	ck_assert(!world_is_done(1));
	ck_nccl(world_send(0, 1, 0));
	world_settle();
	ck_assert(world_is_done(1));
	world_end();
}
END_TEST

START_TEST(message_may_be_longer_than_what_is_between_the_ranks)
{
	begin(2);
	world_fill(0, nw.rank[0].out, 9, BUFFER);
	ck_nccl(world_send(0, 1, BUFFER));
	ck_nccl(world_recv(1, 0, BUFFER));
	world_settle();
	ck_assert_uint_eq(world_count(nw.rank[1].in, 9, BUFFER), BUFFER);
	world_end();
}
END_TEST

START_TEST(count_is_of_elements)
{
	const struct rank *r;

	begin(2);
	world_fill(0, nw.rank[0].out, 5, 80);
	r = &nw.rank[0];
	ck_nccl(nw.nccl->send((void *)(uintptr_t)r->out, 10,
	                      BATONI_NCCL_FLOAT64, 1, r->comm, r->stream));
	ck_nccl(world_recv(1, 0, 80));
	world_settle();
	ck_assert_uint_eq(world_count(nw.rank[1].in, 5, 81), 80);
	world_end();
}
END_TEST

static void
differ(size_t sent, size_t received)
{
	begin(2);
	ck_nccl(world_send(0, 1, sent));
	ck_nccl(world_recv(1, 0, received));
	world_settle();
	ck_assert(!world_is_done(0) && !world_is_done(1));
	ck_assert_int_eq(nw.nccl->sim_violations(), 1);
	abort_all();
	nw.violations = 1;
	world_end();
	world_settle();
	ck_assert(world_is_done(0) && world_is_done(1));
}

START_TEST(shorter_message_hangs_both)
{
	differ(99, 100);
}
END_TEST

START_TEST(longer_message_hangs_both)
{
	differ(100, 99);
}
END_TEST

START_TEST(communicator_is_in_series_across_streams)
{
	begin(3);
	/* Rank 1: the first one has no match, the second, on another stream, has. */
	ck_nccl(world_recv(1, 0, 100));
	ck_nccl(recv_at(1, 2, 1000, 100, nw.rank[1].other));
	ck_nccl(world_send(2, 1, 100));
	world_settle();
	ck_assert(!world_is_done(2));
	world_use(1);
	ck_assert_uint_eq(nw.cuda->stream_query(nw.rank[1].other),
	                  BATONI_CU_NOT_READY);
	ck_nccl(world_send(0, 1, 100));
	world_settle();
	ck_assert(world_is_done(0) && world_is_done(1) && world_is_done(2));
	world_end();
}
END_TEST

START_TEST(other_communicator_goes_on)
{
	ncclComm_t first[2], second[2];

	begin(2);
	for (int i = 0; i < 2; i++)
		first[i] = nw.rank[i].comm;
	ck_nccl(world_recv(1, 0, 100));
	ck_nccl(world_create(2, true));
	/* On the other streams, which no kernel is in. */
	ck_nccl(nw.nccl->group_start());
	ck_nccl(recv_at(1, 0, 1000, 10, nw.rank[1].other));
	ck_nccl(nw.nccl->send((void *)(uintptr_t)nw.rank[0].out, 10,
	                      BATONI_NCCL_INT8, 1, nw.rank[0].comm,
	                      nw.rank[0].other));
	ck_nccl(nw.nccl->group_end());
	world_settle();
	world_use(1);
	ck_cuda(nw.cuda->stream_query(nw.rank[1].other));
	ck_assert(!world_is_done(1));
	for (int i = 0; i < 2; i++) {
		second[i] = nw.rank[i].comm;
		nw.rank[i].comm = first[i];
	}
	ck_nccl(world_send(0, 1, 100));
	/* It frees memory, for which it waits for all streams. */
	for (int i = 0; i < 2; i++)
		ck_nccl(nw.nccl->comm_abort(second[i]));
	world_end();
}
END_TEST

static void
exchange(bool in_groups)
{
	begin(2);
	for (int i = 0; i < 2; i++) {
		if (in_groups)
			ck_nccl(nw.nccl->group_start());
		ck_nccl(world_send(i, 1 - i, 100));
		ck_nccl(world_recv(i, 1 - i, 100));
		if (in_groups)
			ck_nccl(nw.nccl->group_end());
	}
	world_settle();
}

START_TEST(exchange_needs_groups)
{
	exchange(false);
	ck_assert(!world_is_done(0) && !world_is_done(1));
	abort_all();
	world_end();
}
END_TEST

START_TEST(group_is_one_kernel)
{
	long before;

	exchange(true);
	ck_assert(world_is_done(0) && world_is_done(1));
	before = nw.nccl->sim_uses("kernel");
	/* Two messages to one peer keep their order in it, long ones too. */
	world_fill(0, nw.rank[0].out, 3, 90000);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 1, 90000));
	ck_nccl(world_send(0, 1, 80000));
	ck_nccl(nw.nccl->group_end());
	ck_assert_int_eq(nw.nccl->sim_uses("kernel"), before + 1);
	ck_nccl(recv_at(1, 0, 0, 90000, nw.rank[1].stream));
	ck_nccl(recv_at(1, 0, 90000, 80000, nw.rank[1].stream));
	world_settle();
	ck_assert_uint_eq(world_count(nw.rank[1].in, 3, 170000), 170000);
	world_end();
}
END_TEST

START_TEST(group_has_at_most_2048_operations)
{
	begin(2);
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 1024; i++) {
		ck_nccl(world_send(0, 1, 0));
		ck_nccl(world_recv(1, 0, 0));
	}
	ck_assert_uint_eq(world_send(0, 1, 0), BATONI_NCCL_INVALID_USAGE);
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_INVALID_USAGE);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 1, 10));
	ck_nccl(world_recv(1, 0, 10));
	ck_nccl(nw.nccl->group_end());
	world_settle();
	world_end();
}
END_TEST

START_TEST(group_of_two_streams_begins_and_ends_with_both)
{
	struct rank *r = &nw.rank[0];

	begin(2);
	world_hold(0, r->other, 0);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 1, 10));
	ck_nccl(recv_at(0, 1, 0, 10, r->other));
	ck_nccl(nw.nccl->group_end());
	/* Its match for the first alone. */
	ck_nccl(world_recv(1, 0, 10));
	world_settle();
	ck_assert(!world_is_done(1));
	world_let_go(0);
	world_settle();
	ck_assert(world_is_done(1));
	ck_assert(!world_is_done(0));
	world_use(0);
	ck_assert_uint_eq(nw.cuda->stream_query(r->other), BATONI_CU_NOT_READY);
	ck_nccl(world_send(1, 0, 10));
	world_settle();
	ck_assert(world_is_done(0));
	world_use(0);
	ck_cuda(nw.cuda->stream_query(r->other));
	world_end();
}
END_TEST

START_TEST(message_to_self_needs_both_sides_in_a_group)
{
	long kernels;

	begin(1);
	ck_assert_uint_eq(world_send(0, 0, 10), BATONI_NCCL_INVALID_USAGE);
	ck_assert_uint_eq(world_recv(0, 0, 10), BATONI_NCCL_INVALID_USAGE);
	kernels = nw.nccl->sim_uses("kernel");
	ck_assert_int_eq(kernels, 0);
	world_fill(0, nw.rank[0].out, 4, BUFFER);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_recv(0, 0, BUFFER));
	ck_nccl(world_send(0, 0, BUFFER));
	ck_nccl(nw.nccl->group_end());
	world_settle();
	ck_assert_uint_eq(world_count(nw.rank[0].in, 4, BUFFER), BUFFER);
	world_end();
}
END_TEST

START_TEST(message_waits_for_its_stream)
{
	begin(2);
	world_hold(0, nw.rank[0].stream, 0);
	ck_nccl(world_send(0, 1, 10));
	ck_nccl(world_recv(1, 0, 10));
	world_settle();
	ck_assert(!world_is_done(1));
	world_let_go(0);
	world_settle();
	ck_assert(world_is_done(1));
	world_end();
}
END_TEST

START_TEST(memory_of_the_host_is_out_of_reach)
{
	static char host[10];

	begin(2);
	ck_assert_uint_eq(nw.nccl->send(host, 10, BATONI_NCCL_INT8, 1,
	                                nw.rank[0].comm, nw.rank[0].stream),
	                  BATONI_NCCL_CUDA_ERROR);
	ck_assert_int_eq(nw.cuda->sim_violations(), 1);
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 0);
	/* The communicator goes on. */
	ck_nccl(world_send(0, 1, 10));
	ck_nccl(world_recv(1, 0, 10));
	world_settle();
	ck_assert(world_is_done(1));
	world_destroy();
}
END_TEST

static void *
abort_first(void *done)
{
	ck_nccl(nw.nccl->comm_abort(nw.rank[0].comm));
	atomic_store((atomic_bool *)done, true);
	return NULL;
}

START_TEST(abort_waits_for_what_is_before_its_kernels)
{
	atomic_bool done = false;
	pthread_t thread;

	begin(2);
	world_hold(0, nw.rank[0].stream, 0);
	ck_nccl(world_send(0, 1, 10));
	pthread_create(&thread, NULL, abort_first, &done);
	while (nw.nccl->sim_uses("ncclCommAbort") == 0)
		usleep(100);
	world_settle();
	ck_assert(!atomic_load(&done));
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 1);
	world_let_go(0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 0);
	nw.rank[0].comm = NULL;
	ck_nccl(nw.nccl->comm_abort(nw.rank[1].comm));
	nw.rank[1].comm = NULL;
	world_end();
}
END_TEST

/* NCCL tells the kernels at each call, and waits at the group's end. */
START_TEST(aborts_of_a_group_end_all_their_kernels_together)
{
	const struct rank *r = &nw.rank[0];
	ncclComm_t second[2];

	begin(2);
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 2; i++)
		ck_nccl(nw.nccl->comm_split(nw.rank[i].comm, 0, i, &second[i],
		                            NULL));
	ck_nccl(nw.nccl->group_end());
	ck_nccl(nw.nccl->group_start());
	ck_nccl(nw.nccl->send((void *)(uintptr_t)nw.rank[1].out, 1,
	                      BATONI_NCCL_INT8, 0, second[1],
	                      nw.rank[1].stream));
	ck_nccl(nw.nccl->recv((void *)(uintptr_t)r->in, 1, BATONI_NCCL_INT8, 1,
	                      second[0], r->stream));
	ck_nccl(nw.nccl->group_end());
	world_settle();
	/* The second one's is behind the first one's. */
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(nw.nccl->recv((void *)(uintptr_t)r->in, 1, BATONI_NCCL_INT8, 1,
	                      second[0], r->stream));
	ck_nccl(nw.nccl->group_start());
	ck_nccl(nw.nccl->comm_abort(second[0]));
	ck_nccl(nw.nccl->comm_abort(r->comm));
	ck_nccl(nw.nccl->group_end());
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 0);
	nw.rank[0].comm = NULL;
	ck_nccl(nw.nccl->comm_abort(second[1]));
	ck_nccl(nw.nccl->comm_abort(nw.rank[1].comm));
	nw.rank[1].comm = NULL;
	world_end();
}
END_TEST

START_TEST(kernel_that_is_made_to_fail_hangs_with_its_error)
{
	ncclResult_t state;

	begin(2);
	ck_assert(nw.nccl->sim_fail("kernel", 2, BATONI_NCCL_REMOTE_ERROR));
	ck_nccl(world_send(0, 1, 10));
	ck_nccl(world_recv(1, 0, 10));
	world_settle();
	ck_assert(!world_is_done(1));
	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	ck_assert_uint_eq(state, BATONI_NCCL_SUCCESS);
	ck_nccl(nw.nccl->comm_error(nw.rank[1].comm, &state));
	ck_assert_uint_eq(state, BATONI_NCCL_REMOTE_ERROR);
	/* It stays, and calls return it. */
	ck_assert_uint_eq(world_recv(1, 0, 10), BATONI_NCCL_REMOTE_ERROR);
	abort_all();
	world_end();
}
END_TEST

START_TEST(kernels_of_a_context_in_error_are_dropped)
{
	ncclResult_t state;

	begin(2);
	ck_nccl(world_recv(1, 0, 10));
	nw.cuda->sim_break(1, BATONI_CU_ILLEGAL_ADDRESS);
	while (nw.nccl->sim_live("kernels") > 0)
		usleep(100);
	ck_nccl(nw.nccl->comm_error(nw.rank[1].comm, &state));
	ck_assert_uint_eq(state, BATONI_NCCL_CUDA_ERROR);
	abort_all();
	nw.cuda->sim_heal();
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		messages_of_a_peer_arrive_in_order,
		send_ends_with_its_recv,
		eager_send_ends_without_it,
		recv_waits_for_its_send,
		empty_message_is_a_message,
		message_may_be_longer_than_what_is_between_the_ranks,
		count_is_of_elements,
		shorter_message_hangs_both,
		longer_message_hangs_both,
		communicator_is_in_series_across_streams,
		other_communicator_goes_on,
		exchange_needs_groups,
		group_is_one_kernel,
		group_has_at_most_2048_operations,
		group_of_two_streams_begins_and_ends_with_both,
		message_to_self_needs_both_sides_in_a_group,
		message_waits_for_its_stream,
		memory_of_the_host_is_out_of_reach,
		abort_waits_for_what_is_before_its_kernels,
		aborts_of_a_group_end_all_their_kernels_together,
		kernel_that_is_made_to_fail_hangs_with_its_error,
		kernels_of_a_context_in_error_are_dropped,
	};

	return RUN_TESTS("ncclsim_p2p", tests);
}
