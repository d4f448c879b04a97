/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport in checked mode (transport/nccl/nccl_checked.c): what the conformance
 * suite, which knows no sides that differ, does not reach.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "checked_world.h"
#include "mem.h"

static const struct baton_op_options detached = {.size = sizeof(detached),
                                                 .flags = BATON_OP_DETACHED};

static baton_request
transfer(int rank, bool sends, int peer, size_t at, size_t count,
         enum baton_datatype type, const struct baton_op_options *options)
{
	struct nccl_rank *own = &world.ranks[rank];
	baton_request request = 0;

	ck_ok(sends ? baton_send(own->memory + at, count, type, peer, 0,
	                         own->comm, own->streams[0], options, &request)
	            : baton_recv(own->memory + at, count, type, peer, 0,
	                         own->comm, own->streams[0], options,
	                         &request));
	return request;
}

/* Detached, and of bytes. */
static baton_request
receive_bytes(int rank, int peer, size_t at, size_t bytes)
{
	return transfer(rank, false, peer, at, bytes, BATON_UINT8, &detached);
}

static baton_request
send_bytes(int rank, int peer, size_t at, size_t bytes)
{
	return transfer(rank, true, peer, at, bytes, BATON_UINT8, &detached);
}

static void
fill_at(int rank, size_t at, size_t bytes, int value)
{
	memset(world.ranks[rank].memory + at, value, bytes);
}

static bool
is_filled(int rank, size_t at, size_t bytes, int value)
{
	const unsigned char *memory = world.ranks[rank].memory + at;
	size_t i = 0;

	while (i < bytes && memory[i] == (unsigned char)value)
		i++;
	return i == bytes;
}

/* One message from 0 to 1 arrives. */
static void
check_a_message(int value)
{
	baton_request requests[2];

	fill_at(0, 0, 100, value);
	fill_at(1, 0, 100, 0);
	requests[0] = send_bytes(0, 1, 0, 100);
	requests[1] = receive_bytes(1, 0, 0, 100);
	world_finish(requests[0], BATON_OK);
	world_finish(requests[1], BATON_OK);
	ck_assert(is_filled(1, 0, 100, value));
}

/* It has ended so, and says this. */
static void
check_explained(baton_request request, enum baton_status status,
                const char *sentence)
{
	char why[400];

	ck_assert_int_eq(baton_wait(request, 20 * SECOND, NULL), status);
	ck_ok(baton_request_error(request, why, sizeof(why)));
	ck_assert_msg(strstr(why, sentence), "\"%s\" has not \"%s\"", why,
	              sentence);
	ck_ok(baton_release(&request));
}

/* ---- creation ---- */

START_TEST(a_query_tells_the_mode)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	world_begin(2, true);
	ck_ok(baton_comm_query(world.ranks[0].comm, &info));
	ck_assert_ptr_nonnull(strstr(info.library, "checked"));
	ck_assert_uint_eq(info.capabilities, BATON_CAP_DIRECTIONS |
	                                             BATON_CAP_CANCEL |
	                                             BATON_CAP_SELF |
	                                             BATON_CAP_TENSORS |
	                                             BATON_CAP_SIGNALS |
	                                             BATON_CAP_WINDOWS);
	world_destroy();
}
END_TEST

START_TEST(the_environment_asks_for_the_mode)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	ck_assert_int_eq(setenv("BATON_CHECK", "1", 1), 0);
	world_begin(2, false);
	ck_ok(baton_comm_query(world.ranks[1].comm, &info));
	ck_assert_ptr_nonnull(strstr(info.library, "checked"));
	world_destroy();
}
END_TEST

START_TEST(all_ranks_are_in_checked_mode_or_none)
{
	world_load(3);
	world.ranks[2].options.check = true;
	world_try();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(world.ranks[i].status, BATON_ERR_INVALID);
		ck_assert_ptr_nonnull(strstr(world.ranks[i].why,
		                             "rank 2 is in checked mode"));
	}
	ck_assert_int_eq(world.nccl->sim_live("comms"), 0);
}
END_TEST

START_TEST(memory_that_nccl_does_not_reach_is_refused_at_the_call)
{
	static char pageable[16];

	world_begin(2, true);
	ck_assert_int_eq(baton_send(pageable, 16, BATON_UINT8, 1, 0,
	                            world.ranks[0].comm,
	                            world.ranks[0].streams[0], NULL, NULL),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "baton_send"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "not pinned"));
	check_a_message(1);
	world_destroy();
}
END_TEST

/* Both ranks at once, on one device. */
START_TEST(a_creation_without_memory_leaves_nothing)
{
	struct baton_comm_options options;
	struct baton_comm *comms[2];
	enum baton_status status;
	unsigned long n = 0;
	long blocks;

	/* What the device keeps, it keeps from now on. */
	world_begin(2, true);
	world_destroy();
	ck_assert(world.nccl->sim_set("duplicates", 1));
	options = world.ranks[0].options;
	blocks = batoni_mem_blocks();
	do {
		batoni_mem_fail_at(++n);
		status = baton_comm_create_local(2, &options, comms);
		if (status == BATON_OK)
			break;
		ck_assert_int_eq(status, BATON_ERR_NOMEM);
		ck_assert_int_eq(world.nccl->sim_live("comms"), 0);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	} while (n < 1000);
	batoni_mem_fail_at(0);
	ck_ok(status);
	for (int i = 0; i < 2; i++)
		world.ranks[i].comm = comms[i];
	world_destroy();
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
}
END_TEST

/* ---- mismatches ---- */

START_TEST(sides_that_differ_in_size_end_in_mismatch)
{
	baton_request requests[2];

	world_begin(2, true);
	requests[0] = send_bytes(0, 1, 0, 4096);
	requests[1] = receive_bytes(1, 0, 0, 2048);
	check_explained(requests[0], BATON_ERR_MISMATCH,
	                "rank 0 sends 4096 bytes of uint8, and rank 1 receives "
	                "2048 bytes of uint8");
	check_explained(requests[1], BATON_ERR_MISMATCH,
	                "rank 1 receives 2048 bytes of uint8, and rank 0 sends "
	                "4096 bytes of uint8");
	check_a_message(2);
	world_destroy();
}
END_TEST

/* Both are plain: a launch does not say that a list came. */
START_TEST(a_launch_whose_receive_differs_names_no_list)
{
	struct nccl_rank *own;
	struct baton_plan *plan = NULL;
	baton_request send, request = 0;
	char why[500];

	world_begin(2, true);
	own = &world.ranks[1];
	ck_ok(baton_plan_begin(own->comm));
	ck_ok(baton_recv(own->memory, 50, BATON_UINT8, 0, 0, own->comm,
	                 own->streams[0], NULL, NULL));
	ck_ok(baton_plan_end(own->comm, &plan));
	send = send_bytes(0, 1, 0, 96);
	ck_ok(baton_plan_launch(plan, NULL, &request));
	ck_assert_int_eq(baton_wait(request, 20 * SECOND, NULL),
	                 BATON_ERR_MISMATCH);
	ck_ok(baton_request_error(request, why, sizeof(why)));
	ck_assert_msg(strstr(why, "operation 0 of the plan, recv") &&
	                      !strstr(why, "list"),
	              "%s", why);
	world_finish(request, BATON_ERR_MISMATCH);
	world_finish(send, BATON_ERR_MISMATCH);
	ck_ok(baton_plan_destroy(plan));
	world_destroy();
}
END_TEST

/* As many bytes; the receive is there first. */
START_TEST(sides_that_differ_in_type_end_in_mismatch)
{
	baton_request requests[2];

	world_begin(2, true);
	requests[1] = transfer(1, false, 0, 0, 8, BATON_FLOAT32, NULL);
	requests[0] = transfer(0, true, 1, 0, 4, BATON_INT64, NULL);
	check_explained(
		requests[0], BATON_ERR_MISMATCH,
		"rank 0 sends 32 bytes of int64, and rank 1 receives 32 "
		"bytes of float32");
	check_explained(requests[1], BATON_ERR_MISMATCH, "and rank 0 sends");
	check_a_message(3);
	world_destroy();
}
END_TEST

/* The pairs around those that differ meet each other. */
START_TEST(a_mismatch_uses_up_one_of_each_side)
{
	enum { N = 40 };
	baton_request sends[N], gets[N];

	world_begin(2, true);
	for (int i = 0; i < N; i++) {
		fill_at(0, (size_t)i * 64, 64, i);
		sends[i] = send_bytes(0, 1, (size_t)i * 64, i % 3 == 1 ? 63 : 64);
	}
	for (int i = 0; i < N; i++)
		gets[i] = receive_bytes(1, 0, (size_t)i * 64, 64);
	for (int i = 0; i < N; i++) {
		enum baton_status status =
			i % 3 == 1 ? BATON_ERR_MISMATCH : BATON_OK;

		world_finish(sends[i], status);
		world_finish(gets[i], status);
		ck_assert(status != BATON_OK ||
		          is_filled(1, (size_t)i * 64, 64, i));
	}
	world_destroy();
}
END_TEST

/* Two that send and two that receive: nothing meets, and the deadline ends them. */
START_TEST(both_sides_that_send_are_told_at_the_deadline)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = SECOND / 20};
	baton_request requests[2];

	world_begin(2, true);
	requests[1] = transfer(1, true, 0, 0, 7, BATON_INT8, NULL);
	requests[0] = transfer(0, true, 1, 0, 9, BATON_UINT8, &soon);
	check_explained(
		requests[0], BATON_ERR_TIMEOUT,
		"rank 0 sends 9 bytes of uint8, and rank 1 sends 7 bytes "
		"of int8: neither receives");
	ck_ok(baton_comm_status(world.ranks[0].comm));
	/* Rank 1's meets what comes. */
	requests[0] = transfer(0, false, 1, 0, 7, BATON_INT8, NULL);
	world_finish(requests[0], BATON_OK);
	world_finish(requests[1], BATON_OK);
	world_destroy();
}
END_TEST

/* ---- order ---- */

START_TEST(many_are_in_flight_in_both_directions)
{
	enum { N = 40, PART = 300 };
	baton_request requests[2][2][N];

	world_begin(2, true);
	for (int i = 0; i < N; i++) {
		for (int rank = 0; rank < 2; rank++) {
			size_t at = (size_t)i * PART;

			fill_at(rank, at, PART, 2 * i + rank);
			requests[rank][0][i] = send_bytes(rank, !rank, at, PART);
			requests[rank][1][i] =
				receive_bytes(rank, !rank, at + (size_t)N * PART, PART);
		}
	}
	for (int i = 0; i < N; i++) {
		for (int rank = 0; rank < 2; rank++) {
			world_finish(requests[rank][0][i], BATON_OK);
			world_finish(requests[rank][1][i], BATON_OK);
			ck_assert(is_filled(rank, (size_t)(N + i) * PART, PART,
			                    2 * i + !rank));
		}
	}
	world_destroy();
}
END_TEST

/* Each rank sends to the next, and to some of the others. */
static void
run_ring(int size, int lanes)
{
	enum { N = 12, MOST = 4 * N * WORLD_RANKS };
	baton_request requests[MOST];
	unsigned n = 0;

	world_load(size);
	for (int i = 0; i < size; i++) {
		world.ranks[i].options.check = true;
		world.ranks[i].options.nccl_lanes = lanes;
	}
	world_create();
	for (int i = 0; i < N; i++) {
		for (int rank = 0; rank < size; rank++) {
			int next = (rank + 1) % size;
			int far = (rank + 2) % size;
			bool both = (i + rank) % 2 == 0;

			requests[n++] = send_bytes(rank, next, 0, 5000);
			requests[n++] = receive_bytes(next, rank, 8192, 5000);
			if (!both)
				continue;
			requests[n++] = receive_bytes(far, rank, 16384, 77);
			requests[n++] = send_bytes(rank, far, 0, 77);
		}
	}
	for (unsigned i = 0; i < n; i++)
		world_finish(requests[i], BATON_OK);
	world_destroy();
}

START_TEST(a_ring_of_three_with_unequal_partners)
{
	run_ring(3, 0);
}
END_TEST

START_TEST(a_ring_of_four_with_unequal_partners)
{
	run_ring(4, 0);
}
END_TEST

START_TEST(a_ring_in_three_lanes_of_four)
{
	run_ring(4, 3);
}
END_TEST

START_TEST(a_ring_in_one_lane)
{
	run_ring(3, 1);
}
END_TEST

/* In plain mode each send would wait for the other. */
START_TEST(directions_of_one_lane_do_not_wait_for_each_other)
{
	struct baton_comm_info info = {.size = sizeof(info)};
	baton_request requests[4];

	world_load(2);
	for (int i = 0; i < 2; i++) {
		world.ranks[i].options.check = true;
		world.ranks[i].options.nccl_lanes = 1;
	}
	world_create();
	ck_ok(baton_comm_query(world.ranks[0].comm, &info));
	ck_assert_int_eq(info.nccl_lanes, 1);
	ck_assert_uint_ne(info.capabilities & BATON_CAP_DIRECTIONS, 0);
	for (int round = 0; round < 10; round++) {
		requests[0] = send_bytes(0, 1, 0, 100);
		requests[1] = send_bytes(1, 0, 0, 100);
		requests[2] = receive_bytes(0, 1, 200, 100);
		requests[3] = receive_bytes(1, 0, 200, 100);
		for (int i = 0; i < 4; i++)
			world_finish(requests[i], BATON_OK);
	}
	world_destroy();
}
END_TEST

/* Sources 0 and 2, targets 1 and 3: each order is another one. */
static void
make_circle(baton_request requests[8])
{
	requests[0] = send_bytes(0, 1, 0, 100);
	requests[1] = send_bytes(0, 3, 0, 100);
	requests[2] = send_bytes(2, 3, 0, 100);
	requests[3] = send_bytes(2, 1, 0, 100);
	requests[4] = receive_bytes(1, 2, 0, 100);
	requests[5] = receive_bytes(1, 0, 200, 100);
	requests[6] = receive_bytes(3, 0, 0, 100);
	requests[7] = receive_bytes(3, 2, 200, 100);
}

START_TEST(a_circle_of_orders_is_none)
{
	baton_request requests[8];

	world_begin(4, true);
	for (int round = 0; round < 10; round++) {
		make_circle(requests);
		for (int i = 0; i < 8; i++)
			world_finish(requests[i], BATON_OK);
	}
	world_destroy();
}
END_TEST

/* That it is one: without checks. */
START_TEST(a_circle_of_orders_hangs_in_plain_mode)
{
	baton_request requests[8];

	world_begin(4, false);
	make_circle(requests);
	world.cuda->sim_settle(false);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(baton_test(requests[i], NULL), BATON_PENDING);
	for (int i = 0; i < 4; i++)
		ck_ok(baton_comm_abort(world.ranks[i].comm));
	for (int i = 0; i < 8; i++)
		world_finish(requests[i], BATON_ERR_ABORTED);
	world_abort();
}
END_TEST

START_TEST(a_message_to_oneself_needs_no_group)
{
	baton_request requests[4];

	world_begin(2, true);
	fill_at(1, 0, 100, 9);
	fill_at(1, 200, 100, 0);
	requests[0] = send_bytes(1, 1, 0, 100);
	requests[1] = send_bytes(1, 1, 0, 50);
	requests[2] = receive_bytes(1, 1, 200, 100);
	requests[3] = receive_bytes(1, 1, 400, 51);
	world_finish(requests[0], BATON_OK);
	world_finish(requests[2], BATON_OK);
	ck_assert(is_filled(1, 200, 100, 9));
	check_explained(
		requests[1], BATON_ERR_MISMATCH,
		"rank 1 sends 50 bytes of uint8, and rank 1 receives 51");
	world_finish(requests[3], BATON_ERR_MISMATCH);
	requests[0] = receive_bytes(1, 1, 600, 10);
	requests[1] = send_bytes(1, 1, 0, 10);
	world_finish(requests[0], BATON_OK);
	world_finish(requests[1], BATON_OK);
	world_destroy();
}
END_TEST

/* Its stream waits until the word is released. */
START_TEST(work_behind_an_operation_waits_for_its_end)
{
	struct nccl_rank *own;
	baton_request after = 0, requests[2];

	world_begin(2, true);
	own = &world.ranks[1];
	requests[1] = transfer(1, false, 0, 0, 10, BATON_UINT8, NULL);
	ck_ok(baton_record(own->comm, own->streams[0], NULL, &after));
	world.cuda->sim_settle(false);
	ck_assert_int_eq(baton_test(after, NULL), BATON_PENDING);
	requests[0] = send_bytes(0, 1, 0, 10);
	world_finish(after, BATON_OK);
	world_finish(requests[1], BATON_OK);
	world_finish(requests[0], BATON_OK);
	world_destroy();
}
END_TEST

/* All hardware queues of the program's streams have one that waits in front. */
START_TEST(streams_that_wait_hold_up_no_launch)
{
	baton_request requests[2][WORLD_STREAMS];

	ck_assert_int_eq(setenv("CUDASIM_QUEUES", "2", 1), 0);
	world_begin(2, true);
	for (int rank = 0; rank < 2; rank++) {
		struct nccl_rank *own = &world.ranks[rank];

		for (int i = 0; i < WORLD_STREAMS; i++)
			ck_ok(rank == 0 ? baton_send(own->memory, 10,
			                             BATON_UINT8, 1, 0,
			                             own->comm, own->streams[i],
			                             NULL, &requests[0][i])
			                : baton_recv(own->memory, 10,
			                             BATON_UINT8, 0, 0,
			                             own->comm, own->streams[i],
			                             NULL, &requests[1][i]));
	}
	for (int i = 0; i < WORLD_STREAMS; i++) {
		world_finish(requests[0][i], BATON_OK);
		world_finish(requests[1][i], BATON_OK);
	}
	world_destroy();
}
END_TEST

/* ---- early ends ---- */

START_TEST(a_recv_that_has_met_nothing_is_cancelled)
{
	struct baton_completion done;
	baton_request request;

	world_begin(2, true);
	request = receive_bytes(1, 0, 0, 100);
	while (baton_progress(world.ranks[1].comm) > 0)
		;
	ck_ok(baton_cancel(request));
	ck_assert_int_eq(baton_wait(request, 20 * SECOND, &done),
	                 BATON_ERR_CANCELED);
	ck_assert_uint_eq(done.flags, 0);
	ck_ok(baton_release(&request));
	check_a_message(4);
	world_destroy();
}
END_TEST

/* Cancelled when its header has left: it is met, or given back at the end. */
START_TEST(an_abandoned_send_is_met_or_withdrawn)
{
	for (int met = 1; met >= 0; met--) {
		struct baton_completion done;
		baton_request send, get_it, later;

		world_begin(2, true);
		send = send_bytes(0, 1, 0, 100);
		/* The other direction goes; so the header was said. */
		later = send_bytes(1, 0, 0, 10);
		get_it = receive_bytes(0, 1, 500, 10);
		world_finish(get_it, BATON_OK);
		world_finish(later, BATON_OK);
		ck_ok(baton_cancel(send));
		ck_assert_int_eq(baton_wait(send, 20 * SECOND, &done),
		                 BATON_ERR_CANCELED);
		ck_assert_uint_eq(done.flags, BATON_COMPLETION_LENT);
		if (met) {
			get_it = receive_bytes(1, 0, 0, 100);
			world_finish(get_it, BATON_OK);
			while (done.flags)
				ck_assert_int_eq(baton_test(send, &done),
				                 BATON_ERR_CANCELED);
		}
		ck_ok(baton_release(&send));
		/* Nobody waits for what is abandoned. */
		world_destroy();
	}
}
END_TEST

/* Its error is that of its own end, whatever comes of its header later. */
START_TEST(what_an_abandoned_send_tells_does_not_change)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = SECOND / 20};
	struct baton_completion done;
	char before[400], after[400];
	baton_request send, get_it;

	world_begin(2, true);
	send = transfer(0, true, 1, 0, 100, BATON_UINT8, &soon);
	ck_assert_int_eq(baton_wait(send, 20 * SECOND, &done),
	                 BATON_ERR_TIMEOUT);
	ck_assert_uint_eq(done.flags, BATON_COMPLETION_LENT);
	ck_ok(baton_request_error(send, before, sizeof(before)));
	get_it = receive_bytes(1, 0, 0, 50);
	world_finish(get_it, BATON_ERR_MISMATCH);
	while (done.flags)
		ck_assert_int_eq(baton_test(send, &done), BATON_ERR_TIMEOUT);
	ck_ok(baton_request_error(send, after, sizeof(after)));
	ck_assert_str_eq(after, before);
	ck_ok(baton_release(&send));
	world_destroy();
}
END_TEST

static void *
leaver_main(void *argument)
{
	(void)argument;
	ck_ok(baton_comm_destroy(world.ranks[1].comm));
	return NULL;
}

/* The peer's destroy has begun. */
START_TEST(a_send_is_withdrawn_from_a_peer_that_leaves)
{
	struct nccl_rank *own = &world.ranks[0];
	struct baton_completion done;
	baton_request send, after = 0;
	pthread_t leaver;

	world_begin(2, true);
	ck_assert_int_eq(pthread_create(&leaver, NULL, leaver_main, NULL), 0);
	for (int i = 0; i < 2; i++) {
		send = send_bytes(0, 1, 0, 100);
		/* It is issued, and so told. */
		ck_ok(baton_record(own->comm, own->streams[0], NULL, &after));
		world_finish(after, BATON_OK);
		ck_ok(baton_cancel(send));
		do
			ck_assert_int_eq(baton_wait(send, 20 * SECOND, &done),
			                 BATON_ERR_CANCELED);
		while (done.flags & BATON_COMPLETION_LENT);
		ck_ok(baton_release(&send));
	}
	ck_ok(baton_comm_destroy(own->comm));
	pthread_join(leaver, NULL);
}
END_TEST

START_TEST(a_deadline_ends_one_operation_alone)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = SECOND / 50};
	baton_request request;

	world_begin(2, true);
	request = transfer(1, false, 0, 0, 100, BATON_UINT8, &soon);
	world_finish(request, BATON_ERR_TIMEOUT);
	ck_ok(baton_comm_status(world.ranks[1].comm));
	check_a_message(5);
	world_destroy();
}
END_TEST

START_TEST(an_abort_ends_what_is_deferred)
{
	enum { N = 40 };
	baton_request sends[N], recvs[N], after = 0;
	struct baton_completion done;

	world_begin(2, true);
	for (int i = 0; i < N; i++) {
		sends[i] = send_bytes(0, 1, 0, 100);
		recvs[i] = receive_bytes(0, 1, 200, 100);
	}
	ck_ok(baton_record(world.ranks[0].comm, world.ranks[0].streams[0], NULL,
	                   &after));
	ck_ok(baton_comm_abort(world.ranks[0].comm));
	for (int i = 0; i < N; i++) {
		/* No buffer stays lent. */
		do {
			ck_assert_int_eq(
				baton_wait(sends[i], 20 * SECOND, &done),
				BATON_ERR_ABORTED);
			baton_progress(world.ranks[0].comm);
		} while (done.flags & BATON_COMPLETION_LENT);
		ck_ok(baton_release(&sends[i]));
		world_finish(recvs[i], BATON_ERR_ABORTED);
	}
	ck_ok(baton_release(&after));
	world_abort();
}
END_TEST

/* A kernel that never ends, at both. */
START_TEST(an_abort_ends_what_was_launched)
{
	baton_request requests[2];

	world_begin(2, true);
	ck_assert(world.nccl->sim_fail("kernel", 1, BATONI_NCCL_REMOTE_ERROR));
	requests[0] = send_bytes(0, 1, 0, 100);
	requests[1] = receive_bytes(1, 0, 0, 100);
	/* The first kernel is the target's. */
	world_finish(requests[1], BATON_ERR_NCCL);
	ck_ok(baton_comm_abort(world.ranks[0].comm));
	world_finish(requests[0], BATON_ERR_ABORTED);
	world_abort();
}
END_TEST

/* The others go on. */
START_TEST(a_peer_that_leaves_holds_up_only_its_own)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = SECOND / 20};
	baton_request requests[2];

	world_begin(3, true);
	/* Kernels that connect the ranks may still run. */
	world.cuda->sim_settle(false);
	ck_ok(baton_comm_abort(world.ranks[2].comm));
	ck_ok(baton_comm_destroy(world.ranks[2].comm));
	requests[0] = transfer(0, true, 2, 0, 100, BATON_UINT8, &soon);
	requests[1] = transfer(1, false, 2, 0, 100, BATON_UINT8, &soon);
	world_finish(requests[0], BATON_ERR_TIMEOUT);
	world_finish(requests[1], BATON_ERR_TIMEOUT);
	check_a_message(6);
	world.size = 2;
	world_abort();
}
END_TEST

/* ---- NCCL ---- */

START_TEST(a_launch_waits_for_the_lock_of_the_device)
{
	baton_request requests[2];

	world_begin(2, true);
	ck_ok(baton_comm_lock_device(world.ranks[1].comm));
	requests[0] = send_bytes(0, 1, 0, 100);
	requests[1] = receive_bytes(1, 0, 0, 100);
	for (int i = 0; i < 1000; i++)
		baton_progress(world.ranks[1].comm);
	ck_assert_int_eq(baton_test(requests[1], NULL), BATON_PENDING);
	ck_ok(baton_comm_unlock_device(world.ranks[1].comm));
	world_finish(requests[0], BATON_OK);
	world_finish(requests[1], BATON_OK);
	world_destroy();
}
END_TEST

/* NCCL puts each on its stream in the background. */
START_TEST(launches_that_are_in_progress_keep_their_order)
{
	enum { N = 30 };
	baton_request requests[2][N];

	world_begin(2, true);
	for (int i = 0; i < N; i++) {
		fill_at(0, (size_t)i * 64, 64, i);
		requests[0][i] = send_bytes(0, 1, (size_t)i * 64, 64);
		requests[1][i] = receive_bytes(1, 0, (size_t)i * 64, 64);
	}
	for (int i = 0; i < N; i++) {
		world_finish(requests[0][i], BATON_OK);
		world_finish(requests[1][i], BATON_OK);
		ck_assert(is_filled(1, (size_t)i * 64, 64, i));
	}
	world_destroy();
}
END_TEST

START_TEST(a_launch_that_nccl_refuses_breaks_the_communicator)
{
	baton_request requests[2];

	world_begin(2, true);
	ck_assert(world.nccl->sim_fail("ncclGroupEnd", 1,
	                               BATONI_NCCL_INTERNAL_ERROR));
	requests[0] = send_bytes(0, 1, 0, 100);
	requests[1] = receive_bytes(1, 0, 0, 100);
	world_finish(requests[1], BATON_ERR_NCCL);
	ck_assert_ptr_nonnull(
		strstr(baton_comm_error(world.ranks[1].comm),
	               "ncclGroupEnd returned 3: internal error"));
	/* The source was not told to launch. */
	ck_assert_int_eq(baton_test(requests[0], NULL), BATON_PENDING);
	ck_ok(baton_comm_abort(world.ranks[0].comm));
	world_finish(requests[0], BATON_ERR_ABORTED);
	world_abort();
}
END_TEST

/* The cost that docs/transports.md states. */
START_TEST(a_message_is_one_group_of_nccl_on_each_side)
{
	long groups;

	world_begin(2, true);
	groups = world.nccl->sim_uses("ncclGroupEnd");
	for (int i = 0; i < 10; i++)
		check_a_message(i);
	ck_assert_int_eq(world.nccl->sim_uses("ncclGroupEnd") - groups, 20);
	world_destroy();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_query_tells_the_mode,
		the_environment_asks_for_the_mode,
		all_ranks_are_in_checked_mode_or_none,
		memory_that_nccl_does_not_reach_is_refused_at_the_call,
		a_creation_without_memory_leaves_nothing,
		sides_that_differ_in_size_end_in_mismatch,
		a_launch_whose_receive_differs_names_no_list,
		sides_that_differ_in_type_end_in_mismatch,
		a_mismatch_uses_up_one_of_each_side,
		both_sides_that_send_are_told_at_the_deadline,
		many_are_in_flight_in_both_directions,
		a_ring_of_three_with_unequal_partners,
		a_ring_of_four_with_unequal_partners,
		a_ring_in_three_lanes_of_four,
		a_ring_in_one_lane,
		directions_of_one_lane_do_not_wait_for_each_other,
		a_circle_of_orders_is_none,
		a_circle_of_orders_hangs_in_plain_mode,
		a_message_to_oneself_needs_no_group,
		work_behind_an_operation_waits_for_its_end,
		streams_that_wait_hold_up_no_launch,
		a_recv_that_has_met_nothing_is_cancelled,
		an_abandoned_send_is_met_or_withdrawn,
		what_an_abandoned_send_tells_does_not_change,
		a_send_is_withdrawn_from_a_peer_that_leaves,
		a_deadline_ends_one_operation_alone,
		an_abort_ends_what_is_deferred,
		an_abort_ends_what_was_launched,
		a_peer_that_leaves_holds_up_only_its_own,
		a_launch_waits_for_the_lock_of_the_device,
		launches_that_are_in_progress_keep_their_order,
		a_launch_that_nccl_refuses_breaks_the_communicator,
		a_message_is_one_group_of_nccl_on_each_side,
	};

	return RUN_TESTS("nccl_checked", tests);
}
