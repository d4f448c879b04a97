/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors over NCCL without checked mode, beside plain messages on the program's streams
 * (transport/nccl/nccl_checked.c).  A list here is three tensors, one of them empty, in consecutive
 * memory of LIST_BYTES.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "checked_world.h"
#include "core.h"

enum { LIST_BYTES = 96, ROUNDS = 40 };

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};

static unsigned char *
at(int rank, size_t part)
{
	return world.ranks[rank].memory + part * LIST_BYTES;
}

static void
fill_list_part(int rank, size_t part, int value)
{
	memset(at(rank, part), value, LIST_BYTES);
}

static void
check_filled(int rank, size_t part, int value)
{
	for (size_t i = 0; i < LIST_BYTES; i++)
		ck_assert_msg(at(rank, part)[i] == value,
		              "byte %zu of part %zu of rank %d is %d, not %d", i,
		              part, rank, at(rank, part)[i], value);
}

static baton_request
list_with(int rank, int stream, bool sends, int peer, size_t part,
          const struct baton_op_options *op)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct nccl_rank *own = &world.ranks[rank];
	struct baton_tensor tensors[] = {
		{at(rank, part), BATON_INT32, 2, {2, 4}},
		{at(rank, part), BATON_UINT8, 1, {0}},
		{at(rank, part) + 32, BATON_UINT8, 1, {LIST_BYTES - 32}},
	};
	baton_request request = 0;

	if (op)
		options.op = *op;
	options.op.size = sizeof(options);
	ck_ok(sends ? baton_send_tensors(tensors, 3, peer, 0, own->comm,
	                                 own->streams[stream], &options,
	                                 &request)
	            : baton_recv_tensors(tensors, 3, peer, 0, own->comm,
	                                 own->streams[stream], &options,
	                                 &request));
	return request;
}

static baton_request
list(int rank, int stream, bool sends, int peer, size_t part)
{
	return list_with(rank, stream, sends, peer, part, NULL);
}

static baton_request
plain_with(int rank, int stream, bool sends, int peer, size_t part,
           const struct baton_op_options *options)
{
	struct nccl_rank *own = &world.ranks[rank];
	baton_request request = 0;

	ck_ok(sends ? baton_send(at(rank, part), LIST_BYTES, BATON_UINT8, peer,
	                         0, own->comm, own->streams[stream], options,
	                         &request)
	            : baton_recv(at(rank, part), LIST_BYTES, BATON_UINT8, peer,
	                         0, own->comm, own->streams[stream], options,
	                         &request));
	return request;
}

static baton_request
plain(int rank, int stream, bool sends, int peer, size_t part)
{
	return plain_with(rank, stream, sends, peer, part, NULL);
}

static void
finish_both(baton_request a, baton_request b)
{
	world_finish(a, BATON_OK);
	world_finish(b, BATON_OK);
}

static void
pass_list(int from, int to, int value)
{
	fill_list_part(from, 0, value);
	fill_list_part(to, 1, 255);
	finish_both(list(from, 0, true, to, 0), list(to, 0, false, from, 1));
	check_filled(to, 1, value);
}

static void
pass_plain(int from, int to, int value)
{
	fill_list_part(from, 0, value);
	fill_list_part(to, 1, 255);
	finish_both(plain(from, 0, true, to, 0), plain(to, 0, false, from, 1));
	check_filled(to, 1, value);
}

/* Everything has gone as far as it can: whatever ranks tell each other has come. */
static void
let_run(void)
{
	for (int i = 0; i < 2000; i++)
		for (int rank = 0; rank < world.size; rank++)
			baton_progress(world.ranks[rank].comm);
}

/* ---- what there is ---- */

static unsigned
capabilities(void)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	ck_ok(baton_comm_query(world.ranks[0].comm, &info));
	return info.capabilities;
}

START_TEST(lists_have_a_communicator_of_nccl_of_their_own)
{
	world_begin(2, false);
	ck_assert_uint_ne(capabilities() & BATON_CAP_TENSORS, 0);
	/* That of plain messages. */
	ck_assert_uint_eq(capabilities() & BATON_CAP_CANCEL, 0);
	/* Two lanes, that of the rank alone, and this. */
	ck_assert_int_eq(world.nccl->sim_live("comms"), 2 * 4);
	pass_list(0, 1, 1);
	pass_plain(0, 1, 2);
	world_destroy();
}
END_TEST

START_TEST(without_the_option_there_is_none)
{
	struct nccl_rank *own = &world.ranks[0];

	world_load(2);
	for (int i = 0; i < 2; i++)
		world.ranks[i].options.nccl_lists = false;
	world_create();
	ck_assert_uint_eq(capabilities() & BATON_CAP_TENSORS, 0);
	ck_assert_int_eq(world.nccl->sim_live("comms"), 2 * 3);
	ck_assert_int_eq(baton_send_tensors(NULL, 0, 1, 0, own->comm,
	                                    own->streams[0], NULL, NULL),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_msg(strstr(baton_last_error(), "options.nccl_lists, or "
	                                         "BATON_NCCL_LISTS=1"), "%s",
	              baton_last_error());
	pass_plain(0, 1, 2);
	world_destroy();
}
END_TEST

START_TEST(the_environment_asks_for_it)
{
	setenv("BATON_NCCL_LISTS", "1", 1);
	world_load(2);
	for (int i = 0; i < 2; i++)
		world.ranks[i].options.nccl_lists = false;
	world_create();
	pass_list(0, 1, 1);
	world_destroy();
}
END_TEST

/* Checked mode has its own way. */
START_TEST(checked_mode_does_not_need_it)
{
	world_begin(2, true);
	ck_assert_int_eq(world.nccl->sim_live("comms"), 2 * 3);
	pass_list(0, 1, 1);
	world_destroy();
}
END_TEST

START_TEST(a_connection_for_lists_that_fails_is_named)
{
	/* Behind what creates the communicators, and what connects those of messages. */
	world_load(2);
	ck_assert(world.nccl->sim_fail("ncclGroupEnd", 5,
	                               BATONI_NCCL_INTERNAL_ERROR));
	world_try();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(world.ranks[i].status, BATON_ERR_NCCL);
		ck_assert_msg(strstr(world.ranks[i].why, "for lists"), "%s",
		              world.ranks[i].why);
	}
	ck_assert_int_eq(world.nccl->sim_live("comms"), 0);
}
END_TEST

static const struct batoni_load *
load_of_lists(int rank)
{
	const struct baton_comm *comm = world.ranks[rank].comm;

	return &comm->paths[comm->lists_path]->load;
}

static bool
is_quiet(int rank)
{
	const struct batoni_load *load = load_of_lists(rank);

	return load->in_flight == 0 && load->moving == 0 && load->standing == 0 &&
	       load->polled == 0;
}

/* Without a list of this rank there is nothing to look at, also when a peer has told of one.  This
 * thread alone drives, so it may read the loads. */
START_TEST(a_rank_without_a_list_looks_for_none)
{
	baton_request send, recv;

	world_load(2);
	for (int i = 0; i < 2; i++)
		world.ranks[i].options.progress = BATON_PROGRESS_CALLS;
	world_create();
	recv = plain(1, 0, false, 0, 1);
	send = list(0, 1, true, 1, 0);
	while (is_quiet(0))
		baton_progress(world.ranks[0].comm);
	let_run();
	ck_assert(is_quiet(1));
	ck_assert(!is_quiet(0));
	world_finish(plain(0, 0, true, 1, 0), BATON_OK);
	world_finish(recv, BATON_OK);
	ck_assert(is_quiet(1));
	finish_both(list(1, 0, false, 0, 2), send);
	ck_assert_uint_eq(load_of_lists(0)->in_flight, 0);
	ck_assert_uint_eq(load_of_lists(1)->in_flight, 0);
	world_destroy();
}
END_TEST

/* ---- order ---- */

static _Atomic uint64_t *
hold(int rank, int stream)
{
	const unsigned pinned = 3; /* PORTABLE, MAPPED */
	struct nccl_rank *own = &world.ranks[rank];
	CUdeviceptr address;
	CUcontext popped;
	void *word;

	ck_cuda(world.cuda->context_push(own->context));
	ck_cuda(world.cuda->host_alloc(&word, sizeof(uint64_t), pinned));
	memset(word, 0, sizeof(uint64_t));
	ck_cuda(world.cuda->host_device_pointer(&address, word, 0));
	ck_cuda(world.cuda->wait_value(own->streams[stream], address, 1,
	                               BATONI_CU_WAIT_GEQ));
	ck_cuda(world.cuda->context_pop(&popped));
	return word;
}

START_TEST(a_list_holds_its_stream)
{
	baton_request lists[2], plains[2];
	_Atomic uint64_t *word;

	world_begin(2, false);
	fill_list_part(0, 0, 7);
	fill_list_part(0, 1, 8);
	word = hold(0, 0);
	lists[0] = list(0, 0, true, 1, 0);
	plains[0] = plain(0, 0, true, 1, 1);
	/* The plain message is not before the list on its stream. */
	plains[1] = plain(1, 1, false, 0, 1);
	lists[1] = list(1, 0, false, 0, 0);
	let_run();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(baton_test(lists[i], NULL), BATON_PENDING);
		ck_assert_int_eq(baton_test(plains[i], NULL), BATON_PENDING);
	}
	atomic_store(word, 1);
	finish_both(lists[0], lists[1]);
	finish_both(plains[0], plains[1]);
	check_filled(1, 0, 7);
	check_filled(1, 1, 8);
	world_destroy();
}
END_TEST

/* Rank 1 passes on what has come, each time in the other way. */
START_TEST(what_is_behind_on_a_stream_finds_the_bytes)
{
	world_begin(2, false);
	for (int i = 0; i < ROUNDS; i++) {
		bool first = i % 2;
		baton_request sent, got;

		fill_list_part(0, 0, i);
		fill_list_part(0, 1, 255);
		fill_list_part(1, 0, 254);
		baton_release(&(baton_request){
			(first ? list : plain)(1, 0, false, 0, 0)});
		baton_release(&(baton_request){
			(first ? plain : list)(1, 0, true, 0, 0)});
		sent = (first ? list : plain)(0, 0, true, 1, 0);
		got = (first ? plain : list)(0, 0, false, 1, 1);
		finish_both(sent, got);
		check_filled(0, 1, i);
	}
	world_destroy();
}
END_TEST

/* Plain messages without another end, on all lanes, the rank's own too. */
START_TEST(plain_messages_that_wait_hold_up_no_list)
{
	baton_request waiting[2], self[2], sent;
	_Atomic uint64_t *word;

	world_begin(2, false);
	waiting[0] = plain(0, 0, true, 1, 2);
	waiting[1] = plain(0, 0, false, 1, 3);
	word = hold(1, 0);
	ck_ok(baton_group_begin(world.ranks[1].comm));
	self[0] = plain(1, 0, true, 1, 2);
	self[1] = plain(1, 0, false, 1, 3);
	ck_ok(baton_group_end(world.ranks[1].comm));
	for (int i = 0; i < 4; i++) {
		int from = i & 1, to = i >> 1;

		fill_list_part(from, 0, 9 + i);
		sent = list_with(from, 1, true, to, 0, &detached);
		finish_both(sent, list(to, 1, false, from, 1));
		check_filled(to, 1, 9 + i);
	}
	ck_assert_int_eq(baton_test(self[1], NULL), BATON_PENDING);
	ck_assert_int_eq(baton_test(waiting[0], NULL), BATON_PENDING);
	atomic_store(word, 1);
	finish_both(self[0], self[1]);
	finish_both(plain(1, 0, false, 0, 4), waiting[0]);
	finish_both(plain(1, 0, true, 0, 4), waiting[1]);
	world_destroy();
}
END_TEST

/* They are in two FIFOs. */
START_TEST(a_list_and_a_plain_message_never_meet)
{
	baton_request sent, received;

	world_begin(2, false);
	fill_list_part(0, 0, 3);
	fill_list_part(0, 1, 4);
	sent = list(0, 0, true, 1, 0);
	received = plain(1, 0, false, 0, 1);
	let_run();
	ck_assert_int_eq(baton_test(sent, NULL), BATON_PENDING);
	ck_assert_int_eq(baton_test(received, NULL), BATON_PENDING);
	finish_both(list(1, 1, false, 0, 0), sent);
	finish_both(plain(0, 1, true, 1, 1), received);
	check_filled(1, 0, 3);
	check_filled(1, 1, 4);
	world_destroy();
}
END_TEST

/* ---- groups and traffic ---- */

/* Two lists and a plain message in each direction. */
static void
exchange_in_a_group(const struct baton_op_options *options, int streams)
{
	baton_request requests[2][6];

	for (int rank = 0; rank < 2; rank++) {
		struct baton_comm *comm = world.ranks[rank].comm;
		int peer = 1 - rank, other = streams - 1;

		for (size_t part = 0; part < 3; part++) {
			fill_list_part(rank, part, 10 * rank + (int)part);
			fill_list_part(rank, 3 + part, 255);
		}
		ck_ok(baton_group_begin(comm));
		requests[rank][0] = list_with(rank, 0, true, peer, 0, options);
		requests[rank][1] = plain_with(rank, other, true, peer, 1, options);
		requests[rank][2] = list_with(rank, other, true, peer, 2, options);
		requests[rank][3] = list_with(rank, other, false, peer, 3, options);
		requests[rank][4] = plain_with(rank, 0, false, peer, 4, options);
		requests[rank][5] = list_with(rank, 0, false, peer, 5, options);
		ck_ok(baton_group_end(comm));
	}
	for (int rank = 0; rank < 2; rank++) {
		for (size_t i = 0; i < 6; i++)
			world_finish(requests[rank][i], BATON_OK);
		for (size_t part = 0; part < 3; part++)
			check_filled(rank, 3 + part, 10 * (1 - rank) + (int)part);
	}
}

START_TEST(lists_and_plain_messages_are_one_group)
{
	world_begin(2, false);
	for (int i = 0; i < 4; i++)
		exchange_in_a_group(i & 1 ? &detached : NULL, 1 + i / 2);
	world_destroy();
}
END_TEST

/* A call in it is refused, and nothing of it has left. */
START_TEST(a_void_group_leaves_no_list)
{
	struct nccl_rank *own = &world.ranks[0];

	world_begin(2, false);
	for (int i = 0; i < 100; i++) {
		ck_ok(baton_group_begin(own->comm));
		list(0, 0, true, 1, 0);
		plain(0, 0, true, 1, 1);
		ck_assert_int_eq(baton_send(NULL, 1, BATON_UINT8, 1, -1,
		                            own->comm, own->streams[0], NULL,
		                            NULL),
		                 BATON_ERR_INVALID);
		ck_assert_int_eq(baton_group_end(own->comm), BATON_ERR_INVALID);
	}
	pass_list(0, 1, 4);
	pass_plain(0, 1, 5);
	world_destroy();
}
END_TEST

/* Each rank with each other one, and itself, on two streams; nothing is waited for between. */
static void
exchange_all(void)
{
	enum { PARTS = 8 };
	baton_request requests[WORLD_RANKS][WORLD_RANKS][PARTS];

	for (int round = 0; round < ROUNDS; round++) {
		for (int a = 0; a < world.size; a++)
			for (int b = 0; b < world.size; b++)
				for (int i = 0; i < PARTS / 2; i++) {
					size_t part = (size_t)(b * PARTS + i);

					fill_list_part(a, part, 64 * a + 16 * b + 4 * i +
					                      round % 4);
					fill_list_part(a, part + PARTS / 2, 255);
					requests[a][b][i] =
						(i % 2 ? plain_with : list_with)(
							a, i / 2, true, b, part,
							&detached);
					requests[a][b][i + PARTS / 2] =
						(i % 2 ? plain_with : list_with)(
							a, i / 2, false, b,
							part + PARTS / 2,
							&detached);
				}
		for (int a = 0; a < world.size; a++)
			for (int b = 0; b < world.size; b++)
				for (int i = 0; i < PARTS; i++)
					world_finish(requests[a][b][i], BATON_OK);
		for (int a = 0; a < world.size; a++)
			for (int b = 0; b < world.size; b++)
				for (int i = 0; i < PARTS / 2; i++)
					check_filled(
						a,
						(size_t)(b * PARTS + i +
					                 PARTS / 2),
						64 * b + 16 * a + 4 * i +
							round % 4);
	}
}

START_TEST(many_lists_go_beside_plain_messages)
{
	world_begin(3, false);
	exchange_all();
	world_destroy();
}
END_TEST

/* In one lane of messages, and driven by calls alone. */
START_TEST(the_same_driven_by_calls)
{
	world_load(2);
	for (int i = 0; i < 2; i++) {
		world.ranks[i].options.progress = BATON_PROGRESS_CALLS;
		world.ranks[i].options.nccl_lanes = 2;
	}
	world_create();
	exchange_all();
	world_destroy();
}
END_TEST

/* ---- early ends ---- */

/* Also of one that the peer has been told of, whose memory is lent until that receives it. */
START_TEST(the_deadline_of_a_list_leaves_the_communicator_whole)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
	                                      .timeout_ns = SECOND / 50};
	struct baton_completion done;
	baton_request send, beside;

	world_begin(2, false);
	beside = plain(0, 1, false, 1, 5);
	world_finish(list_with(0, 0, false, 1, 0, &soon), BATON_ERR_TIMEOUT);
	fill_list_part(0, 2, 6);
	send = list_with(0, 0, true, 1, 2, &soon);
	ck_assert_int_eq(baton_wait(send, 20 * SECOND, &done),
	                 BATON_ERR_TIMEOUT);
	ck_assert_uint_eq(done.flags, BATON_COMPLETION_LENT);
	world_finish(list(1, 0, false, 0, 3), BATON_OK);
	check_filled(1, 3, 6);
	world_finish_free(send, BATON_ERR_TIMEOUT);
	for (int rank = 0; rank < 2; rank++)
		ck_ok(baton_comm_status(world.ranks[rank].comm));
	pass_list(1, 0, 7);
	finish_both(plain(1, 1, true, 0, 5), beside);
	world_destroy();
}
END_TEST

START_TEST(a_list_is_cancelled_alone)
{
	baton_request recv, send;

	world_begin(2, false);
	recv = list(0, 0, false, 1, 0);
	send = plain(0, 1, true, 1, 1);
	ck_assert_int_eq(baton_cancel(send), BATON_ERR_UNSUPPORTED);
	ck_ok(baton_cancel(recv));
	world_finish(recv, BATON_ERR_CANCELED);
	finish_both(plain(1, 1, false, 0, 1), send);
	pass_list(1, 0, 5);
	world_destroy();
}
END_TEST

/* An abandoned list of a rank that has had none itself holds up no destroy. */
START_TEST(a_list_that_nobody_receives_is_withdrawn)
{
	baton_request send;

	world_begin(2, false);
	send = list(0, 0, true, 1, 0);
	let_run();
	ck_ok(baton_cancel(send));
	ck_assert_int_eq(baton_wait(send, 20 * SECOND, NULL), BATON_ERR_CANCELED);
	ck_ok(baton_release(&send));
	world_destroy();
}
END_TEST

/* Each rank has abandoned one, and is lent until the other answers, which neither receives. */
START_TEST(lists_that_both_ranks_abandon_hold_up_no_destroy)
{
	baton_request sends[2];

	for (int check = 0; check < 2; check++) {
		world_load(2);
		for (int rank = 0; rank < 2; rank++) {
			world.ranks[rank].options.check = check;
			world.ranks[rank].options.timeout_ns = 20 * SECOND;
		}
		world_create();
		for (int rank = 0; rank < 2; rank++)
			sends[rank] = list(rank, 0, true, 1 - rank, 0);
		let_run();
		for (int rank = 0; rank < 2; rank++) {
			ck_ok(baton_cancel(sends[rank]));
			ck_assert_int_eq(baton_wait(sends[rank], 20 * SECOND, NULL),
			                 BATON_ERR_CANCELED);
			ck_ok(baton_release(&sends[rank]));
		}
		world_destroy();
	}
}
END_TEST

/* Lists that wait, that are told, that run behind nothing, and plain messages. */
START_TEST(an_abort_ends_lists_and_plain_messages)
{
	baton_request requests[2][5];

	world_begin(2, false);
	for (int rank = 0; rank < 2; rank++) {
		for (size_t i = 0; i < 2; i++)
			requests[rank][i] = list_with(rank, 0, i == 0, 1 - rank, i,
			                              &detached);
		requests[rank][2] = plain(rank, 1, rank == 0, 1 - rank, 2);
		requests[rank][3] = plain(rank, 1, rank == 0, 1 - rank, 3);
		requests[rank][4] = list(rank, 1, rank == 0, 1 - rank, 4);
	}
	/* More of one side than of the other. */
	plain(0, 0, true, 1, 5);
	for (size_t i = 6; i < 10; i++)
		list_with(0, 0, true, 1, i, &detached);
	for (int rank = 0; rank < 2; rank++)
		ck_ok(baton_comm_abort(world.ranks[rank].comm));
	for (int rank = 0; rank < 2; rank++) {
		for (int i = 0; i < 5; i++) {
			enum baton_status status =
				baton_wait(requests[rank][i], 20 * SECOND, NULL);

			ck_assert(status == BATON_ERR_ABORTED ||
			          status == BATON_OK);
			world_finish_free(requests[rank][i], status);
		}
	}
	world_abort();
}
END_TEST

/* As a plain message would: the device's stream is lost with it. */
START_TEST(a_list_that_nccl_refuses_breaks_the_communicator)
{
	baton_request send, recv;

	world_begin(2, false);
	ck_assert(world.nccl->sim_fail("ncclGroupEnd", 1,
	                               BATONI_NCCL_INTERNAL_ERROR));
	send = list(0, 0, true, 1, 0);
	recv = list(1, 0, false, 0, 0);
	/* The lower rank leads. */
	world_finish(send, BATON_ERR_NCCL);
	ck_assert_int_eq(baton_comm_status(world.ranks[0].comm), BATON_ERR_NCCL);
	ck_ok(baton_comm_abort(world.ranks[1].comm));
	world_finish(recv, BATON_ERR_ABORTED);
	world_abort();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		lists_have_a_communicator_of_nccl_of_their_own,
		without_the_option_there_is_none,
		the_environment_asks_for_it,
		checked_mode_does_not_need_it,
		a_connection_for_lists_that_fails_is_named,
		a_rank_without_a_list_looks_for_none,
		a_list_holds_its_stream,
		what_is_behind_on_a_stream_finds_the_bytes,
		plain_messages_that_wait_hold_up_no_list,
		a_list_and_a_plain_message_never_meet,
		lists_and_plain_messages_are_one_group,
		a_void_group_leaves_no_list,
		many_lists_go_beside_plain_messages,
		the_same_driven_by_calls,
		the_deadline_of_a_list_leaves_the_communicator_whole,
		a_list_is_cancelled_alone,
		a_list_that_nobody_receives_is_withdrawn,
		lists_that_both_ranks_abandon_hold_up_no_destroy,
		an_abort_ends_lists_and_plain_messages,
		a_list_that_nccl_refuses_breaks_the_communicator,
	};

	return RUN_TESTS("nccl_plain_lists", tests);
}
