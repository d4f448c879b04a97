/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors over NCCL in checked mode (transport/nccl/nccl_lists.c): what the conformance
 * suite, which knows nothing of groups, lanes and headers in pieces, does not reach.  Those of
 * plain mode are in test_nccl_plain_lists.c.
 *
 * A list of LONG_N tensors of eight dimensions has a header of 4 KB, which is asked for six
 * times.  The tensors of a list lie one after the other in the memory of a rank.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "checked_world.h"

enum { LONG_N = 60, MANY_N = 1000, TENSOR_BYTES = 16 };

static struct baton_tensors_options detached = BATON_TENSORS_OPTIONS_INIT;

/* Every eighth one is empty. */
static void
describe(int rank, size_t at, struct baton_tensor *tensors, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		tensors[i] = (struct baton_tensor){
			.data = world.ranks[rank].memory + at + i * TENSOR_BYTES,
			.type = BATON_UINT8,
			.rank = BATON_TENSOR_RANK_MAX,
			.shape = {1, 1, 4, 1, 1, 1, 2, i % 8 == 5 ? 0 : 2},
		};
	}
}

static baton_request
pass(int rank, bool sends, int peer, size_t at, size_t n)
{
	struct nccl_rank *own = &world.ranks[rank];
	struct baton_tensor tensors[MANY_N];
	baton_request request = 0;

	detached.op.flags = BATON_OP_DETACHED;
	describe(rank, at, tensors, n);
	ck_ok(sends ? baton_send_tensors(tensors, n, peer, 0, own->comm,
	                                 own->streams[0], &detached, &request)
	            : baton_recv_tensors(tensors, n, peer, 0, own->comm,
	                                 own->streams[0], &detached, &request));
	return request;
}

static void
fill_tensors(int rank, size_t at, size_t n, int value)
{
	memset(world.ranks[rank].memory + at, value, n * TENSOR_BYTES);
}

/* All tensors have this value, and what lies between them another one. */
static void
check_filled(int rank, size_t at, size_t n, int value, int between)
{
	const unsigned char *memory = world.ranks[rank].memory + at;

	for (size_t i = 0; i < n * TENSOR_BYTES; i++)
		ck_assert_msg(memory[i] == (i / TENSOR_BYTES % 8 == 5 ? between
		                                                      : value),
		              "byte %zu is %d", i, memory[i]);
}

static void
check_a_list(int from, int to, size_t n, int value)
{
	baton_request requests[2];

	fill_tensors(from, 0, n, value);
	fill_tensors(to, WORLD_BYTES / 2, n, 255);
	requests[0] = pass(from, true, to, 0, n);
	requests[1] = pass(to, false, from, WORLD_BYTES / 2, n);
	world_finish(requests[0], BATON_OK);
	world_finish(requests[1], BATON_OK);
	check_filled(to, WORLD_BYTES / 2, n, value, 255);
}

/* ---- what is refused ---- */

static void
check_refused(bool sends, struct baton_tensor *tensors, size_t n,
              const struct baton_tensors_options *options, const char *words)
{
	struct nccl_rank *own = &world.ranks[0];
	baton_stream stream = own->streams[0];

	ck_assert_int_eq(sends ? baton_send_tensors(tensors, n, 1, 0, own->comm,
	                                            stream, options, NULL)
	                       : baton_recv_tensors(tensors, n, 1, 0, own->comm,
	                                            stream, options, NULL),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_msg(strstr(baton_last_error(), words), "\"%s\" has not \"%s\"",
	              baton_last_error(), words);
}

START_TEST(memory_that_nccl_does_not_reach_is_named)
{
	static char pageable[64];
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor tensors[3];
	CUcontext popped;
	CUdeviceptr other;

	world_begin(2, true);
	ck_cuda(world.cuda->context_push(world.ranks[1].context));
	ck_cuda(world.cuda->mem_alloc(&other, 64));
	ck_cuda(world.cuda->context_pop(&popped));
	for (int sends = 0; sends < 2; sends++) {
		describe(0, 0, tensors, 3);
		tensors[1].data = pageable;
		check_refused(sends, tensors, 3, NULL,
		              "tensor 1 is memory of the host that is not pinned");
		tensors[1].data = world.ranks[0].memory;
		tensors[2].data = (void *)(uintptr_t)other;
		check_refused(sends, tensors, 3, NULL,
		              "tensor 2 is memory of GPU 1");
	}
	options.arena = pageable;
	options.arena_bytes = sizeof(pageable);
	tensors[2].data = NULL;
	check_refused(false, tensors, 3, &options,
	              "tensor 2 is memory of the host that is not pinned");
	/* Nobody reads an empty one. */
	check_a_list(0, 1, 3, 1);
	ck_cuda(world.cuda->context_push(world.ranks[1].context));
	ck_cuda(world.cuda->mem_free(other));
	ck_cuda(world.cuda->context_pop(&popped));
	world_destroy();
}
END_TEST

/* ---- groups ---- */

static long
groups_of(size_t n)
{
	long before = world.nccl->sim_uses("ncclGroupEnd");

	check_a_list(0, 1, n, (int)(n % 200));
	return world.nccl->sim_uses("ncclGroupEnd") - before;
}

/* The cost that docs/transports.md states; NCCL takes 2048 operations in a group. */
START_TEST(a_list_is_a_group_for_each_512_tensors)
{
	world_begin(2, true);
	ck_assert_int_eq(groups_of(1), 2);
	ck_assert_int_eq(groups_of(20), 2);
	ck_assert_int_eq(groups_of(580), 2); /* 508 are not empty */
	ck_assert_int_eq(groups_of(MANY_N), 4);
	/* It has no bytes. */
	ck_assert_int_eq(groups_of(0), 0);
	world_destroy();
}
END_TEST

/* 4096 is the most. */
START_TEST(the_longest_list_arrives)
{
	static struct baton_tensor sent[BATON_TENSORS_MAX],
		received[BATON_TENSORS_MAX];
	struct nccl_rank *ranks = world.ranks;
	baton_request requests[2];

	world_load(2);
	for (int i = 0; i < 2; i++) {
		ranks[i].options.check = true;
		ranks[i].options.tensors_max = BATON_TENSORS_LIMIT;
	}
	world_create();
	describe(0, 0, sent, BATON_TENSORS_MAX);
	describe(1, 0, received, BATON_TENSORS_MAX);
	fill_tensors(0, 0, BATON_TENSORS_MAX, 3);
	fill_tensors(1, 0, BATON_TENSORS_MAX, 4);
	ck_ok(baton_send_tensors(sent, BATON_TENSORS_MAX, 1, 0, ranks[0].comm,
	                         ranks[0].streams[0], NULL, &requests[0]));
	ck_ok(baton_recv_tensors(received, BATON_TENSORS_MAX, 0, 0, ranks[1].comm,
	                         ranks[1].streams[0], NULL, &requests[1]));
	world_finish(requests[0], BATON_OK);
	world_finish(requests[1], BATON_OK);
	check_filled(1, 0, BATON_TENSORS_MAX, 3, 4);
	world_destroy();
}
END_TEST

/* NCCL puts each group on its stream in the background; nothing comes between two of a list. */
START_TEST(groups_that_are_in_progress_keep_their_order)
{
	enum { N = 6 };
	const size_t bytes = MANY_N * TENSOR_BYTES;
	baton_request requests[2][N];

	world_begin(2, true);
	for (size_t i = 0; i < N; i++) {
		size_t n = i % 2 ? 3 : MANY_N;

		fill_tensors(0, i * bytes, n, (int)i);
		fill_tensors(1, i * bytes, n, 255);
		requests[0][i] = pass(0, true, 1, i * bytes, n);
		requests[1][i] = pass(1, false, 0, i * bytes, n);
	}
	for (size_t i = 0; i < N; i++) {
		world_finish(requests[0][i], BATON_OK);
		world_finish(requests[1][i], BATON_OK);
		check_filled(1, i * bytes, i % 2 ? 3 : MANY_N, (int)i, 255);
	}
	world_destroy();
}
END_TEST

/* The first group of it is on its stream. */
START_TEST(a_group_that_nccl_refuses_breaks_the_communicator)
{
	for (int n = 1; n <= 2; n++) {
		baton_request requests[2];

		world_begin(2, true);
		ck_assert(world.nccl->sim_fail("ncclGroupEnd", n,
		                               BATONI_NCCL_INTERNAL_ERROR));
		requests[0] = pass(0, true, 1, 0, MANY_N);
		requests[1] = pass(1, false, 0, 0, MANY_N);
		/* The target calls NCCL first. */
		world_finish(requests[1], BATON_ERR_NCCL);
		ck_assert_int_eq(baton_test(requests[0], NULL), BATON_PENDING);
		ck_ok(baton_comm_abort(world.ranks[0].comm));
		world_finish(requests[0], BATON_ERR_ABORTED);
		world_abort();
	}
}
END_TEST

/* ---- headers in pieces, order, lanes ---- */

/* In both directions; a plain message, a short list and a long one by turns. */
static void
exchange(int lanes)
{
	enum { N = 24 };
	const size_t bytes = LONG_N * TENSOR_BYTES;
	baton_request sends[2][N], recvs[2][N];

	world_load(2);
	for (int i = 0; i < 2; i++) {
		world.ranks[i].options.check = true;
		world.ranks[i].options.nccl_lanes = lanes;
	}
	world_create();
	for (int rank = 0; rank < 2; rank++) {
		fill_tensors(rank, 0, N * LONG_N, rank + 1);
		fill_tensors(rank, N * bytes, N * LONG_N, 255);
	}
	for (size_t i = 0; i < N; i++) {
		for (int rank = 0; rank < 2; rank++) {
			struct nccl_rank *own = &world.ranks[rank];
			size_t at = i * bytes, n = i % 3 == 1 ? 4 : LONG_N;

			if (i % 3 > 0) {
				sends[rank][i] = pass(rank, true, 1 - rank, at,
				                      n);
				recvs[rank][i] = pass(rank, false, 1 - rank,
				                      (N + i) * bytes, n);
				continue;
			}
			ck_ok(baton_send(own->memory + at, 33, BATON_UINT8,
			                 1 - rank, 0, own->comm, own->streams[0],
			                 &(struct baton_op_options){
						 .size = sizeof(struct baton_op_options),
						 .flags = BATON_OP_DETACHED},
			                 &sends[rank][i]));
			ck_ok(baton_recv(own->memory + (N + i) * bytes, 33,
			                 BATON_UINT8, 1 - rank, 0, own->comm,
			                 own->streams[0],
			                 &(struct baton_op_options){
						 .size = sizeof(struct baton_op_options),
						 .flags = BATON_OP_DETACHED},
			                 &recvs[rank][i]));
		}
	}
	for (size_t i = 0; i < N; i++) {
		for (int rank = 0; rank < 2; rank++) {
			world_finish(sends[rank][i], BATON_OK);
			world_finish(recvs[rank][i], BATON_OK);
			if (i % 3 > 0)
				check_filled(rank, (N + i) * bytes,
				             i % 3 == 1 ? 4 : LONG_N, 2 - rank,
				             255);
			else
				ck_assert_int_eq(
					world.ranks[rank]
						.memory[(N + i) * bytes + 32],
					2 - rank);
		}
	}
	world_destroy();
}

START_TEST(long_headers_short_ones_and_plain_messages_keep_one_order)
{
	exchange(0);
}
END_TEST

/* There the lower rank leads, also as the source. */
START_TEST(the_same_in_one_lane)
{
	exchange(1);
}
END_TEST

START_TEST(a_list_to_oneself_is_one_group)
{
	long before;

	world_begin(1, true);
	before = world.nccl->sim_uses("ncclGroupEnd");
	check_a_list(0, 0, LONG_N, 7);
	ck_assert_int_eq(world.nccl->sim_uses("ncclGroupEnd") - before, 1);
	/* More than 2048 operations: two for each tensor. */
	check_a_list(0, 0, MANY_N, 8);
	check_a_list(0, 0, 0, 9);
	world_destroy();
}
END_TEST

/* What is declared is shorter than what comes, and so is the memory for its header. */
START_TEST(a_header_that_is_too_long_says_how_many_tensors_came)
{
	char why[400];
	baton_request requests[2];

	world_begin(2, true);
	requests[0] = pass(0, true, 1, 0, LONG_N);
	requests[1] = pass(1, false, 0, 0, 2);
	world_finish(requests[0], BATON_OK);
	ck_assert_int_eq(baton_wait(requests[1], 20 * SECOND, NULL),
	                 BATON_ERR_MISMATCH);
	ck_ok(baton_request_error(requests[1], why, sizeof(why)));
	ck_assert_msg(strstr(why, "2 tensors were declared, 60 came"), "%s", why);
	ck_ok(baton_release(&requests[1]));
	check_a_list(0, 1, LONG_N, 5);
	world_destroy();
}
END_TEST

/* ---- early ends ---- */

/* It has ended early, and its memory is not free. */
static void
check_lent(baton_request request, enum baton_status status)
{
	struct baton_completion done;

	ck_assert_int_eq(baton_wait(request, 20 * SECOND, &done), status);
	ck_assert_uint_eq(done.flags, BATON_COMPLETION_LENT);
}

static void
cancel_lent(baton_request request)
{
	ck_ok(baton_cancel(request));
	check_lent(request, BATON_ERR_CANCELED);
}

/* Rank 1 has been told of a list. */
static baton_request
say_a_list(void)
{
	baton_request send = pass(0, true, 1, 0, LONG_N);
	/* The answer to this one comes behind it. */
	baton_request other = pass(1, true, 0, 8192, 2);

	world_finish(pass(0, false, 1, 8192, 2), BATON_OK);
	world_finish(other, BATON_OK);
	return send;
}

/* Another thread calls NCCL for rank 0's GPU meanwhile, so Baton does not. */
static struct {
	pthread_t thread;
	sem_t taken, over;
} holder;

static void *
holder_main(void *argument)
{
	(void)argument;
	ck_ok(baton_comm_lock_device(world.ranks[0].comm));
	sem_post(&holder.taken);
	sem_wait(&holder.over);
	ck_ok(baton_comm_unlock_device(world.ranks[0].comm));
	return NULL;
}

static void
hold_nccl(void)
{
	sem_init(&holder.taken, 0, 0);
	sem_init(&holder.over, 0, 0);
	ck_assert_int_eq(pthread_create(&holder.thread, NULL, holder_main, NULL),
	                 0);
	sem_wait(&holder.taken);
}

static void
release_nccl(void)
{
	sem_post(&holder.over);
	pthread_join(holder.thread, NULL);
}

/* The list of an operation stays as long as that is lent. */
START_TEST(what_has_met_goes_on_lent)
{
	long groups;
	baton_request send, recv;

	world_begin(2, true);
	groups = world.nccl->sim_uses("ncclGroupEnd");
	fill_tensors(0, 0, LONG_N, 6);
	fill_tensors(1, 0, LONG_N, 7);
	send = say_a_list();
	hold_nccl();
	/* It meets the list as soon as it is armed, so its deadline finds it lent. */
	detached.op.timeout_ns = SECOND / 20;
	recv = pass(1, false, 0, 0, LONG_N);
	detached.op.timeout_ns = 0;
	/* The target's kernel waits for the source's. */
	while (world.nccl->sim_uses("ncclGroupEnd") < groups + 3)
		baton_progress(world.ranks[1].comm);
	check_lent(recv, BATON_ERR_TIMEOUT);
	cancel_lent(send);
	release_nccl();
	world_finish_free(recv, BATON_ERR_TIMEOUT);
	world_finish_free(send, BATON_ERR_CANCELED);
	check_filled(1, 0, LONG_N, 6, 7);
	check_a_list(0, 1, LONG_N, 8);
	world_destroy();
}
END_TEST

START_TEST(an_abandoned_list_is_met_or_withdrawn)
{
	for (int met = 1; met >= 0; met--) {
		baton_request send;

		world_begin(2, true);
		send = say_a_list();
		cancel_lent(send);
		if (met) {
			world_finish(pass(1, false, 0, 0, LONG_N), BATON_OK);
			world_finish_free(send, BATON_ERR_CANCELED);
		} else {
			ck_ok(baton_release(&send));
		}
		/* Nobody waits for what is abandoned. */
		world_destroy();
	}
}
END_TEST

static void *
abort_main(void *comm)
{
	ck_ok(baton_comm_abort(comm));
	return NULL;
}

/* Of rank 0 half have met, and wait for NCCL; of rank 1 those have been launched.  All end before
 * NCCL is let go. */
START_TEST(an_abort_ends_lists_that_are_deferred)
{
	enum { N = 20 };
	baton_request sends[N], recvs[N], theirs[N / 2];
	pthread_t threads[2];

	world_begin(2, true);
	hold_nccl();
	for (int i = 0; i < N; i++) {
		sends[i] = pass(0, true, 1, 0, LONG_N);
		recvs[i] = pass(0, false, 1, 0, LONG_N);
		if (i % 2)
			theirs[i / 2] = pass(1, false, 0, 0, LONG_N);
	}
	for (int i = 0; i < 1000; i++)
		baton_progress(world.ranks[1].comm);
	for (int rank = 0; rank < 2; rank++)
		pthread_create(&threads[rank], NULL, abort_main,
		               world.ranks[rank].comm);
	for (int rank = 0; rank < 2; rank++)
		while (baton_comm_status(world.ranks[rank].comm) == BATON_OK)
			sched_yield();
	release_nccl();
	for (int rank = 0; rank < 2; rank++)
		pthread_join(threads[rank], NULL);
	for (int i = 0; i < N; i++) {
		world_finish_free(sends[i], BATON_ERR_ABORTED);
		world_finish_free(recvs[i], BATON_ERR_ABORTED);
		if (i % 2)
			world_finish_free(theirs[i / 2], BATON_ERR_ABORTED);
	}
	world_abort();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		memory_that_nccl_does_not_reach_is_named,
		a_list_is_a_group_for_each_512_tensors,
		the_longest_list_arrives,
		groups_that_are_in_progress_keep_their_order,
		a_group_that_nccl_refuses_breaks_the_communicator,
		long_headers_short_ones_and_plain_messages_keep_one_order,
		the_same_in_one_lane,
		a_list_to_oneself_is_one_group,
		a_header_that_is_too_long_says_how_many_tensors_came,
		what_has_met_goes_on_lent,
		an_abandoned_list_is_met_or_withdrawn,
		an_abort_ends_lists_that_are_deferred,
	};

	return RUN_TESTS("nccl_lists", tests);
}
