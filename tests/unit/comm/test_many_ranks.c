/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator of 10,000 ranks, over a transport that pretends them: what ranks cost
 * that this one does not talk to.  Bytes are counted as they are allocated, touched or
 * not.  The others are on other nodes, so that all goes by message.
 */
#include <stdio.h>
#include <string.h>

#include "comm.h"
#include "core.h"
#include "engine.h"
#include "mem.h"
#include "message.h"
#include "run_tests.h"
#include "testing.h"

#define MANY 10000
#define FEW 2
#define MIB ((size_t)1 << 20)

static struct {
	struct batoni_transport base; /* must be first */
	struct batoni_peer peers[MANY];
	struct batoni_transfer *mail; /* the receive that takes from any rank */
	size_t sends, brought;
} pretended;

static size_t before;
static struct baton_comm *comm;

static enum baton_status
pretend_issue(struct batoni_path *path,
              struct batoni_transfer *transfer)
{
	struct batoni_transport *transport = batoni_transport_of(path);
	if (transfer->direction == BATONI_SEND) {
		pretended.sends++;
		return BATON_OK;
	}
	if (transfer->peer == transport->any_peer)
		pretended.mail = transfer;
	transport->messages.load.in_flight++;
	return BATON_PENDING;
}

static size_t
pretend_test(struct batoni_path *path)
{
	(void)path;
	return 0;
}

static enum baton_status
pretend_take_back(struct batoni_path *path,
                  struct batoni_transfer *transfer)
{
	struct batoni_transport *transport = batoni_transport_of(path);
	(void)transfer;
	transport->messages.load.in_flight--;
	return BATON_ERR_CANCELED;
}

/* All ranks bring what this one does. */
static enum baton_status
pretend_exchange(struct batoni_transport *transport, uint64_t what,
                 const void *mine, size_t bytes, void *all)
{
	(void)what;
	for (int i = 0; i < transport->size; i++)
		memcpy((char *)all + (size_t)i * bytes, mine, bytes);
	if (bytes > pretended.brought)
		pretended.brought = bytes;
	return BATON_OK;
}

static enum baton_status
pretend_leave(struct batoni_transport *transport)
{
	(void)transport;
	return BATON_OK;
}

static void
pretend_close(struct batoni_transport *transport, bool aborted)
{
	ck_assert(aborted || transport->messages.load.in_flight == 0);
}

static const struct batoni_path_ops messages_ops = {
	.name = "the pretended transport",
	.kinds = BATONI_MESSAGES,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = pretend_issue,
		.take_back = pretend_take_back,
	},
	.test = pretend_test,
};

static const struct batoni_transport_ops pretend_ops = {
	.name = "pretended",
	.id = BATON_TRANSPORT_LOCAL,
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = pretend_exchange},
	.leave = pretend_leave,
	.close = pretend_close,
};

static void
create(int ranks)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct batoni_transport *transport = &pretended.base;
	const size_t segment = batoni_onesided_segment_bytes(
		MANY, BATON_SIGNALS_MAX_DEFAULT, BATON_CONTEXTS_MAX_DEFAULT);
	static struct batoni_shm shm;

	memset(&pretended, 0, sizeof(pretended));
	for (int i = 0; i < ranks; i++)
		pretended.peers[i].pidfd = -1;
	if (!shm.base)
		ck_assert_int_eq(batoni_shm_create_sparse(
					 segment, &shm,
					 &transport->sparse_segments),
		                 BATON_OK);
	transport->sparse_segments = true;
	pretended.peers[0] = (struct batoni_peer){
		.segment = shm.base,
		.bell = batoni_bell(),
		.pidfd = -1,
		.within = true,
		.reaches_us = true,
	};
	transport->ops = &pretend_ops;
	transport->messages.ops = &messages_ops;
	transport->size = ranks;
	transport->peers = pretended.peers;
	transport->tag_max = 1 << 20;
	transport->any_peer = -1;
	transport->hidden_tag = transport->tag_max + 1;
	transport->hidden_tags =
		batoni_onesided_tags(BATON_CONTEXTS_MAX_DEFAULT);
	transport->capabilities = BATON_CAP_SIGNALS | BATON_CAP_WINDOWS;
	options.progress = BATON_PROGRESS_CALLS;
	before = batoni_mem_bytes();
	ck_assert_int_eq(batoni_comm_create_over(&batoni_device_host_ops,
	                                         &transport, 1, &options,
	                                         &comm),
	                 BATON_OK);
}

static void
setup(void)
{
	create(MANY);
}

static void
teardown(void)
{
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static size_t
taken(void)
{
	return batoni_mem_bytes() - before;
}

static void
signal_to(int peer)
{
	ck_assert_int_eq(baton_signal(peer, 0, 0, 0, comm, NULL, NULL, NULL),
	                 BATON_OK);
	ck_assert_int_eq(baton_stream_synchronize(comm, NULL), BATON_OK);
}

/* Let what the mail's receive waits for come. */
static void
hello_from(int rank, int context)
{
	struct batoni_hello hello = {
		.magic = BATONI_MESSAGE_MAGIC,
		.version = BATONI_MESSAGE_VERSION,
		.context = (uint16_t)context,
		.rank = rank,
	};
	struct batoni_transfer *mail = pretended.mail;

	ck_assert_ptr_nonnull(mail);
	memcpy(mail->buffer, &hello, sizeof(hello));
	mail->done_bytes = sizeof(hello);
	pretended.base.messages.load.in_flight--;
	batoni_lock();
	comm->upcalls.done(&comm->upcalls, mail, BATON_OK);
	batoni_pass();
	batoni_unlock();
}

START_TEST(communicator_of_10000_ranks_takes_little)
{
	size_t many = taken(), few;

	ck_assert_uint_le(many, 16 * MIB);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	create(FEW);
	few = taken();
	ck_assert_uint_le(many - few, (size_t)64 * MANY);
}
END_TEST

START_TEST(peers_that_are_talked_to_are_paid_for_alone)
{
	size_t idle = taken(), one;

	signal_to(1);
	one = taken() - idle;
	ck_assert_uint_le(one, 16 << 10);
	for (int peer = 2; peer <= 100; peer++)
		signal_to(peer);
	ck_assert_uint_eq(taken() - idle, 100 * one);
	/* A hello and a header each; a second signal is one message. */
	ck_assert_uint_eq(pretended.sends, 200);
	signal_to(1);
	ck_assert_uint_eq(pretended.sends, 201);
	ck_assert_uint_eq(taken() - idle, 100 * one);
}
END_TEST

/* And the receives that stand there do not grow with the ranks. */
START_TEST(a_signal_can_come_from_any_rank)
{
	struct batoni_onesided *layer = comm->onesided;

	signal_to(1); /* it may signal back */
	ck_assert_uint_eq(layer->path.load.standing, 1);
	hello_from(MANY - 1, 3);
	ck_assert_uint_eq(layer->path.load.standing, 2);
	hello_from(MANY / 2, 0);
	ck_assert_uint_eq(layer->path.load.standing, 3);
	ck_assert_uint_eq(pretended.base.messages.load.in_flight, 3);
}
END_TEST

START_TEST(registering_gathers_64_bytes_of_a_rank)
{
	struct baton_window *window;
	static char memory[100];

	ck_assert_int_eq(baton_window_register(memory, sizeof(memory), comm,
	                                       &window),
	                 BATON_OK);
	ck_assert_uint_le(pretended.brought, 64);
	ck_assert_uint_le(taken(), 16 * MIB);
	ck_assert_uint_eq(baton_window_size(window, MANY - 1), sizeof(memory));
	ck_assert_uint_eq(baton_window_path(window, MANY - 1),
	                  BATON_WINDOW_PATH_MESSAGE);
	ck_assert_int_eq(baton_window_deregister(window), BATON_OK);
	ck_assert_uint_le(pretended.brought, 64);
}
END_TEST

/* The other half of the nodes is made when it is needed. */
START_TEST(a_wait_can_name_every_rank)
{
	static struct baton_wait_signal_desc descs[MANY];
	baton_request request;

	for (int i = 0; i < MANY; i++)
		descs[i] = (struct baton_wait_signal_desc){1, i, 0, 0};
	ck_assert_int_eq(baton_wait_signal(MANY, descs, comm,
	                                   NULL, NULL, &request),
	                 BATON_OK);
	ck_assert_int_eq(baton_cancel(request), BATON_OK);
	ck_assert_int_eq(baton_finish(&request, -1, NULL), BATON_ERR_CANCELED);
}
END_TEST

/* One more would have the slots of two channels coincide. */
START_TEST(more_channels_than_a_transfer_can_name_are_refused)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *other = NULL;
	struct batoni_comm_setup plan;

	options.contexts_max = BATON_CONTEXTS_LIMIT;
	options.progress = BATON_PROGRESS_CALLS;
	ck_assert_int_eq(batoni_comm_setup(&options, &plan), BATON_OK);
	/* 65,519 * 4 * 64 + 65 + 4096 is just below 2^24. */
	plan.size = 65519;
	ck_assert_int_eq(batoni_comm_prepare(&plan, &other), BATON_OK);
	batoni_comm_discard(other);
	plan.size++;
	ck_assert_int_eq(batoni_comm_prepare(&plan, &other),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "65520 ranks"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "contexts_max"));
	/* The rank with most requests counts. */
	plan.size = 65519;
	plan.requests_most = 100000;
	ck_assert_int_eq(batoni_comm_prepare(&plan, &other),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "100000 requests (on the rank with most; "
	                             "this one has 4096) are 16872993 "
	                             "transfers"));
	/* Nor is it lost in 32 bits. */
	plan.size = 1 << 24;
	ck_assert_int_eq(batoni_comm_prepare(&plan, &other),
	                 BATON_ERR_UNSUPPORTED);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		communicator_of_10000_ranks_takes_little,
		peers_that_are_talked_to_are_paid_for_alone,
		a_signal_can_come_from_any_rank,
		registering_gathers_64_bytes_of_a_rank,
		a_wait_can_name_every_rank,
		more_channels_than_a_transfer_can_name_are_refused,
	};

	return RUN_TESTS_WITH("many_ranks", tests, setup, teardown);
}
