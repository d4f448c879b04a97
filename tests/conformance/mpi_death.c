/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that dies, or stops: rank 1 raises the signal against itself while the
 * others have operations pending with it.  Those end by their deadlines, what
 * the survivors have among themselves goes on, and they leave in order.
 *
 *   mpirun --enable-recovery -n 3 mpi_death HOW
 *   HOW: kill|stop|signal|register|finalize|peer|calls|order|destroy|close|barrier|lent|open|
 *        probe
 *
 * signal: it is killed while the others wait for its signals with no deadline; that
 * it is gone is noticed on one host, and told as PEER.  register: the same while they
 * register a window; rank 2 only once rank 0 has left because of it, and it names rank 1 all the
 * same.  finalize: rank 1 is not killed, but calls MPI_Finalize, where it stays, while the others
 * deregister a window, as in `register`.  peer: the same while they send to it and receive from it with no
 * deadline; calls: with no thread of the engine.  order: the same with many in order on one stream,
 * which need no more checks of the processes than one does.  destroy: the same while they destroy the
 * communicator, with no time limit; a send of one of them to it is lent.  close: messages go through
 * shared memory, and rank 1 is not killed: it has met what they send, and then aborts and destroys the
 * communicator.  barrier: it is killed while the others are in a barrier, and have more of them.  lent: it is
 * killed when the others have nothing pending but gets from it that they have canceled.  open: the others have
 * receives from any rank and of any tag.  probe: they do nothing but probe, rank 0 with no thread of the engine.
 *
 * CONFORM_FAR=1 in the environment, for kill and stop: rank 2 says that it is of another host than the
 * other two, so that the dead is a peer of near's for rank 0 and of MPI's for rank 2.
 *
 * mpirun's exit status says nothing here, so each survivor prints a line and the
 * test looks for both.  The stopped rank is killed by its neighbour at the end.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "core.h"
#include "program.h"

#define MS INT64_C(1000000)

enum { MANY = 100 };

static unsigned char small[64], large[8 << 20], elsewhere[4096];

/* What waits for the dead ends in TIMEOUT (or, where it is noticed, in PEER). */
static void
check_ended(baton_request *request_p)
{
	enum baton_status status = baton_finish(request_p, -1, NULL);

	CHECK(status == BATON_ERR_TIMEOUT || status == BATON_ERR_PEER ||
	      status == BATON_ERR_MPI);
}

static void
survive(struct baton_comm *comm, int rank)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	struct baton_tensors_options lists = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[2] = {
		{.data = small, .rank = 1, .shape = {sizeof(small)}},
		{.data = large, .rank = 1, .shape = {sizeof(large)}},
	};
	baton_request recv = 0, send = 0, between = 0;
	baton_request list_recv = 0, list_send = 0;
	int other = rank == 0 ? 2 : 0;

	soon.timeout_ns = 300 * MS;
	soon.flags = BATON_OP_DETACHED;
	CHECK(baton_recv(small, sizeof(small), BATON_UINT8, 1, 0, comm, NULL,
	                 &soon, &recv) == BATON_OK);
	CHECK(baton_send(large, sizeof(large), BATON_UINT8, 1, 0, comm, NULL,
	                 &soon, &send) == BATON_OK);
	/* A list is received whole or not, and its send is lent with all that it names. */
	lists.op.timeout_ns = 300 * MS;
	lists.op.flags = BATON_OP_DETACHED;
	CHECK(baton_recv_tensors(list, 2, 1, 1, comm, NULL, &lists, &list_recv) ==
	      BATON_OK);
	CHECK(baton_send_tensors(list, 2, 1, 1, comm, NULL, &lists, &list_send) ==
	      BATON_OK);
	check_ended(&recv);
	check_ended(&send);
	check_ended(&list_recv);
	check_ended(&list_send);
	/* The living are not concerned. */
	soon.timeout_ns = 60000 * MS;
	for (int i = 0; i < 20; i++) {
		if (rank == 0)
			CHECK(baton_send(elsewhere, sizeof(elsewhere),
			                 BATON_UINT8, other, 5, comm, NULL,
			                 &soon, &between) == BATON_OK);
		else
			CHECK(baton_recv(elsewhere, sizeof(elsewhere),
			                 BATON_UINT8, other, 5, comm, NULL,
			                 &soon, &between) == BATON_OK);
		CHECK(baton_finish(&between, -1, NULL) == BATON_OK);
	}
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Rank 1 signals each of the others once and dies after that: the first wait ends
 * well, the second one and the one for both peers end in PEER. */
static void
survive_waiting(struct baton_comm *comm, int rank)
{
	int other = rank == 0 ? 2 : 0;
	struct baton_wait_signal_desc two[2] = { { 1, 1, 1, 0 },
		                                 { 1, other, 0, 0 } };
	struct baton_wait_signal_desc first = { 1, 1, 0, 0 };
	struct baton_wait_signal_desc living = { 1, other, 1, 0 };
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request request = 0, both = 0;
	uint64_t count = 0;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_wait_signal(1, &first, comm, NULL, NULL, &request) ==
	      BATON_OK);
	CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
	CHECK(baton_signal(other, 0, 0, 0, comm, NULL, NULL, NULL) == BATON_OK);
	CHECK(baton_wait_signal(1, &first, comm, NULL, &detached, &request) ==
	      BATON_OK);
	CHECK(baton_wait_signal(2, two, comm, NULL, &detached, &both) ==
	      BATON_OK);
	CHECK(baton_finish(&request, -1, NULL) == BATON_ERR_PEER);
	CHECK(baton_finish(&both, -1, NULL) == BATON_ERR_PEER);
	/* The counters stay, and the living are not concerned. */
	CHECK(baton_signal_count(comm, 1, 0, 0, &count) == BATON_OK);
	CHECK(count == 1);
	CHECK(baton_comm_status(comm) == BATON_OK);
	for (int i = 0; i < 20; i++) {
		CHECK(baton_signal(other, 1, 0, 0, comm, NULL, NULL, NULL) ==
		      BATON_OK);
		CHECK(baton_wait_signal(1, &living, comm, NULL, NULL,
		                        &request) == BATON_OK);
		CHECK(baton_finish(&request, -1, NULL) == BATON_OK);
	}
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Rank 1 sends each of the others one message on tag 9 and dies.  What it has sent
 * arrives, whenever it is received; what it has not ends in PEER, and so does a send that
 * it will not receive. */
static void
survive_sending(struct baton_comm *comm, int rank)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request recv = 0, send = 0, late = 0, between = 0, held = 0;
	struct baton_completion completion;
	int other = rank == 0 ? 2 : 0;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_recv(elsewhere, sizeof(elsewhere), BATON_UINT8, other, 6,
	                 comm, NULL, &detached, &held) == BATON_OK);
	CHECK(baton_recv(small, sizeof(small), BATON_UINT8, 1, 0, comm, NULL,
	                 &detached, &recv) == BATON_OK);
	CHECK(baton_send(large, sizeof(large), BATON_UINT8, 1, 0, comm, NULL,
	                 &detached, &send) == BATON_OK);
	CHECK(baton_finish(&recv, -1, &completion) == BATON_ERR_PEER);
	CHECK(completion.flags == 0);
	CHECK(baton_finish(&send, -1, &completion) == BATON_ERR_PEER);
	CHECK(completion.flags == BATON_COMPLETION_LENT);
	/* Its death is known by now. */
	CHECK(baton_recv(small, sizeof(small), BATON_UINT8, 1, 0, comm, NULL,
	                 &detached, &late) == BATON_OK);
	CHECK(baton_recv(small + 32, 1, BATON_UINT8, 1, 9, comm, NULL,
	                 &detached, &recv) == BATON_OK);
	CHECK(baton_finish(&late, -1, NULL) == BATON_ERR_PEER);
	CHECK(baton_finish(&recv, -1, NULL) == BATON_OK);
	CHECK(small[32] == 9);
	CHECK(baton_comm_status(comm) == BATON_OK);
	/* The living are not concerned. */
	CHECK(baton_send(large, 2, BATON_UINT8, other, 6, comm, NULL, &detached,
	                 &between) == BATON_OK);
	CHECK(baton_finish(&between, -1, NULL) == BATON_OK);
	CHECK(baton_finish(&held, -1, NULL) == BATON_OK);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* With no thread of the engine, all checks are within calls of this thread.  The last one has its
 * message. */
static void
survive_in_order(struct baton_comm *comm)
{
	baton_request requests[MANY];
	uint64_t checked_ns;

	for (int i = 0; i < MANY; i++) {
		if (i % 3 == 1)
			CHECK(baton_send(large, sizeof(large), BATON_UINT8, 1, i,
			                 comm, NULL, NULL, &requests[i]) ==
			      BATON_OK);
		else
			CHECK(baton_recv(small, 1, BATON_UINT8, 1, i, comm, NULL,
			                 NULL, &requests[i]) == BATON_OK);
	}
	CHECK(baton_finish(&requests[0], -1, NULL) == BATON_ERR_PEER);
	checked_ns = batoni_engine.peers_checked_ns;
	for (int i = 1; i < MANY - 1; i++)
		CHECK(baton_finish(&requests[i], -1, NULL) == BATON_ERR_PEER);
	/* Two checks each would be 49 s. */
	CHECK(batoni_engine.peers_checked_ns - checked_ns < 20000000000u);
	CHECK(baton_finish(&requests[MANY - 1], -1, NULL) == BATON_OK);
	CHECK(small[0] == 9);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
send_and_die(struct baton_comm *comm, int tag)
{
	baton_request request = 0;

	small[0] = 9;
	for (int peer = 0; peer < 3; peer += 2) {
		(void)baton_send(small, 1, BATON_UINT8, peer, tag, comm, NULL,
		                 NULL, &request);
		(void)baton_finish(&request, -1, NULL);
	}
	raise(SIGKILL);
}

/* Rank 2 goes on when the process of rank 0 has ended. */
static void
await_the_other(int rank, pid_t other)
{
	struct pollfd entry = { .events = POLLIN };

	if (rank != 2)
		return;
	entry.fd = (int)syscall(SYS_pidfd_open, other, 0);
	CHECK(entry.fd >= 0 && poll(&entry, 1, -1) == 1);
}

static void
check_first(int rank, const char *call, const char *what)
{
	char text[160];

	snprintf(text, sizeof(text), "%s: %s%s", call, what,
	         rank == 2 ? ", and then rank 0 left" : "");
	CHECK(strcmp(baton_last_error(), text) == 0);
}

static void
survive_registering(struct baton_comm *comm, int rank, pid_t other)
{
	struct baton_window *window = NULL;

	await_the_other(rank, other);
	for (int i = 0; i < 2; i++) {
		CHECK(baton_window_register(small, sizeof(small), comm,
		                            &window) == BATON_ERR_PEER);
		check_first(rank, "baton_window_register",
		            "the process of rank 1 is gone");
	}
	CHECK(baton_comm_status(comm) == BATON_ERR_PEER);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* It waits in MPI_Finalize for ranks that wait for it. */
static void
survive_finalizing(struct baton_comm *comm, int rank, pid_t other)
{
	struct baton_window *window = NULL;

	CHECK(baton_window_register(small, sizeof(small), comm, &window) ==
	      BATON_OK);
	if (rank == 1) {
		MPI_Finalize();
		_exit(0);
	}
	await_the_other(rank, other);
	CHECK(baton_window_deregister(window) == BATON_ERR_PEER);
	check_first(rank, "baton_window_deregister",
	            "rank 1 has finalised MPI without destroying the "
	            "communicator");
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Its buffer is lent until MPI lets go of it, which it never does. */
static void
send_to_the_dead(struct baton_comm *comm)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct baton_completion completion;
	baton_request send = 0;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_send(large, sizeof(large), BATON_UINT8, 1, 0, comm, NULL,
	                 &detached, &send) == BATON_OK);
	CHECK(baton_finish(&send, -1, &completion) == BATON_ERR_PEER);
	CHECK(completion.flags == BATON_COMPLETION_LENT);
}

/* What the living have between them ends first. */
static void
survive_destroying(struct baton_comm *comm, int rank)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request recv = 0;
	int other = rank == 0 ? 2 : 0;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_recv(elsewhere, sizeof(elsewhere), BATON_UINT8, other, 5,
	                 comm, NULL, &detached, &recv) == BATON_OK);
	CHECK(baton_send(large, sizeof(elsewhere), BATON_UINT8, other, 5, comm,
	                 NULL, &detached, NULL) == BATON_OK);
	CHECK(baton_finish(&recv, -1, NULL) == BATON_OK);
	if (rank == 0)
		send_to_the_dead(comm);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* What rank 1 meets it has not copied: it drives within calls alone. */
static void
meet_and_close(struct baton_comm *comm)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	MPI_Barrier(MPI_COMM_WORLD);
	for (int peer = 0; peer < 3; peer += 2)
		CHECK(baton_recv(large, sizeof(large), BATON_UINT8, peer, 0,
		                 comm, NULL, &detached, NULL) == BATON_OK);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	MPI_Barrier(MPI_COMM_WORLD);
	_exit(exit_status());
}

static void
survive_closing(struct baton_comm *comm)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct baton_window *window = NULL;
	baton_request send = 0;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_send(large, sizeof(large), BATON_UINT8, 1, 0, comm, NULL,
	                 &detached, &send) == BATON_OK);
	MPI_Barrier(MPI_COMM_WORLD);
	CHECK(baton_finish(&send, 20000 * MS, NULL) == BATON_ERR_PEER);
	CHECK(baton_window_register(small, sizeof(small), comm, &window) ==
	      BATON_ERR_PEER);
	CHECK(strstr(baton_last_error(),
	             "rank 1 has destroyed its end after an abort or an error"));
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	MPI_Barrier(MPI_COMM_WORLD);
}

static baton_request
recv_open(struct baton_comm *comm, int peer, int tag, struct baton_queue *queue)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request = 0;

	options.flags = BATON_OP_DETACHED;
	options.queue = queue;
	CHECK(baton_recv(small, sizeof(small), BATON_UINT8, peer, tag, comm, NULL,
	                 &options, &request) == BATON_OK);
	return request;
}

/* A launch whose receive from any rank has a deadline. */
static void
launch_in_vain(struct baton_comm *comm)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	struct baton_plan *plan = NULL;
	baton_request launch = 0;

	soon.timeout_ns = 20 * MS;
	CHECK(baton_plan_begin(comm) == BATON_OK);
	CHECK(baton_recv(small, sizeof(small), BATON_UINT8, BATON_ANY_SOURCE, 6,
	                 comm, NULL, &soon, NULL) == BATON_OK);
	CHECK(baton_plan_end(comm, &plan) == BATON_OK);
	CHECK(baton_plan_launch(plan, NULL, &launch) == BATON_OK);
	CHECK(baton_finish(&launch, -1, NULL) == BATON_ERR_TIMEOUT);
	CHECK(baton_plan_destroy(plan) == BATON_OK);
}

/* Rank 1 sends one message to each before it dies.  It is received, what else names rank 1 ends in PEER, and what
 * the other survivor may send is waited for. */
static void
survive_open(struct baton_comm *comm, int rank)
{
	int other = rank == 0 ? 2 : 0;
	struct baton_completion done = {.peer = -1};
	struct baton_queue *queue = NULL;
	baton_request first, second, any, both, queued;

	CHECK(baton_queue_create(comm, 2, &queue) == BATON_OK);
	first = recv_open(comm, 1, BATON_ANY_TAG, NULL);
	second = recv_open(comm, 1, BATON_ANY_TAG, NULL);
	any = recv_open(comm, BATON_ANY_SOURCE, 5, NULL);
	both = recv_open(comm, BATON_ANY_SOURCE, BATON_ANY_TAG, NULL);
	queued = recv_open(comm, BATON_ANY_SOURCE, BATON_ANY_TAG, queue);
	CHECK(baton_finish(&first, -1, &done) == BATON_OK);
	CHECK(done.peer == 1 && done.tag == 9);
	CHECK(baton_finish(&second, -1, &done) == BATON_ERR_PEER);
	CHECK(done.peer == 1 && done.tag == BATON_ANY_TAG);
	CHECK(baton_comm_status(comm) == BATON_OK);
	launch_in_vain(comm);
	CHECK(baton_cancel(queued) == BATON_OK);
	while (baton_queue_poll(queue, &done, 1) == 0)
		;
	CHECK(done.status == BATON_ERR_CANCELED && done.peer == -1);
	/* The other one ends behind these. */
	for (int tag = 5; tag < 7; tag++)
		CHECK(baton_send(elsewhere, 8, BATON_UINT8, other, tag, comm, NULL,
		                 NULL, NULL) == BATON_OK);
	CHECK(baton_finish(&any, -1, &done) == BATON_OK);
	CHECK(done.peer == other && done.tag == 5);
	CHECK(baton_finish(&both, -1, &done) == BATON_OK);
	CHECK(done.peer == other && done.tag == 6);
	second = recv_open(comm, 1, BATON_ANY_TAG, NULL);
	CHECK(baton_finish(&second, -1, NULL) == BATON_ERR_PEER);
	baton_queue_destroy(queue);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static enum baton_status
probe_on(struct baton_comm *comm, int peer, baton_message *message_p)
{
	enum baton_status status;

	do
		status = baton_probe(peer, BATON_ANY_TAG, comm, message_p, NULL);
	while (status == BATON_PENDING);
	return status;
}

/* Rank 1 sends one message to each before it dies, which is found; then nothing makes liveness look but probes. */
static void
survive_probing(struct baton_comm *comm, int rank)
{
	int other = rank == 0 ? 2 : 0;
	baton_message message = 0;
	baton_request recv = 0;

	CHECK(probe_on(comm, 1, &message) == BATON_OK);
	CHECK(probe_on(comm, 1, &message) == BATON_ERR_PEER);
	CHECK(strstr(baton_last_error(), "rank 1"));
	CHECK(baton_comm_status(comm) == BATON_OK);
	CHECK(baton_recv_message(small, sizeof(small), BATON_UINT8, message, comm,
	                         NULL, NULL, &recv) == BATON_OK);
	CHECK(baton_finish(&recv, -1, NULL) == BATON_OK && small[0] == 9);
	/* The other one lives. */
	CHECK(baton_send(elsewhere, 8, BATON_UINT8, other, 5, comm, NULL, NULL,
	                 NULL) == BATON_OK);
	CHECK(probe_on(comm, BATON_ANY_SOURCE, &message) == BATON_OK);
	CHECK(baton_recv_message(small, sizeof(small), BATON_UINT8, message, comm,
	                         NULL, NULL, &recv) == BATON_OK);
	CHECK(baton_finish(&recv, -1, NULL) == BATON_OK);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Rank 1 makes no progress, so it answers no get. */
static void
survive_lending(struct baton_comm *comm, int rank)
{
	struct baton_completion completion = { .flags = BATON_COMPLETION_LENT };
	struct baton_window *window = NULL;
	baton_request get = 0;

	CHECK(baton_window_register(large, 64, comm, &window) == BATON_OK);
	if (rank == 1) {
		MPI_Barrier(MPI_COMM_WORLD);
		raise(SIGKILL);
	}
	CHECK(baton_get(small, 64, BATON_UINT8, 1, window, 0, 0, 0, comm, NULL,
	                NULL, &get) == BATON_OK);
	CHECK(baton_cancel(get) == BATON_OK);
	CHECK(baton_wait(get, -1, &completion) == BATON_ERR_CANCELED);
	CHECK(completion.flags == BATON_COMPLETION_LENT);
	MPI_Barrier(MPI_COMM_WORLD);
	while (completion.flags & BATON_COMPLETION_LENT)
		CHECK(baton_test(get, &completion) == BATON_ERR_CANCELED);
	CHECK(baton_comm_status(comm) == BATON_OK);
	CHECK(baton_release(&get) == BATON_OK);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
signal_and_die(struct baton_comm *comm)
{
	baton_request request = 0;

	for (int peer = 0; peer < 3; peer += 2) {
		(void)baton_signal(peer, 0, 0, 0, comm, NULL, NULL, &request);
		(void)baton_finish(&request, -1, NULL);
	}
	raise(SIGKILL);
}

/* The barriers that the dead has not come to end in PEER, one that has not begun too; those that are
 * called later as well.  Messages of the living go on. */
static void
survive_barriers(struct baton_comm *comm, int rank)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	int other = rank == 0 ? 2 : 0;
	baton_request requests[3] = { 0 }, late = 0;
	char why[200] = "";

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < 3; i++)
		CHECK(baton_barrier(comm, NULL, &detached, &requests[i]) ==
		      BATON_OK);
	CHECK(baton_wait(requests[0], -1, NULL) == BATON_ERR_PEER);
	CHECK(baton_request_error(requests[0], why, sizeof(why)) == BATON_OK);
	CHECK(strstr(why, "barrier") && strstr(why, "BATON_ERR_PEER"));
	for (int i = 0; i < 3; i++)
		CHECK(baton_finish(&requests[i], -1, NULL) == BATON_ERR_PEER);
	CHECK(baton_barrier(comm, NULL, NULL, &late) == BATON_OK);
	CHECK(baton_finish(&late, -1, NULL) == BATON_ERR_PEER);
	CHECK(baton_comm_status(comm) == BATON_OK);
	CHECK(baton_send(small, 8, BATON_UINT8, other, 5, comm, NULL, &detached,
	                 &requests[0]) == BATON_OK);
	CHECK(baton_recv(elsewhere, 8, BATON_UINT8, other, 5, comm, NULL,
	                 &detached, &requests[1]) == BATON_OK);
	CHECK(baton_finish(&requests[0], -1, NULL) == BATON_OK);
	CHECK(baton_finish(&requests[1], -1, NULL) == BATON_OK);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

int
main(int argc, char **argv)
{
	bool waiting = argc > 1 && strcmp(argv[1], "signal") == 0;
	bool registering = argc > 1 && strcmp(argv[1], "register") == 0;
	bool destroying = argc > 1 && strcmp(argv[1], "destroy") == 0;
	bool calls = argc > 1 && strcmp(argv[1], "calls") == 0;
	bool in_order = argc > 1 && strcmp(argv[1], "order") == 0;
	bool closing = argc > 1 && strcmp(argv[1], "close") == 0;
	bool meeting = argc > 1 && strcmp(argv[1], "barrier") == 0;
	bool lending = argc > 1 && strcmp(argv[1], "lent") == 0;
	bool open = argc > 1 && strcmp(argv[1], "open") == 0;
	bool probing = argc > 1 && strcmp(argv[1], "probe") == 0;
	bool sending = calls || (argc > 1 && strcmp(argv[1], "peer") == 0);
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	bool stop = argc > 1 && strcmp(argv[1], "stop") == 0;
	struct baton_comm *comm = NULL;
	bool finalizing = argc > 1 && strcmp(argv[1], "finalize") == 0;
	int rank, level;
	pid_t mine = getpid(), pids[3];

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (getenv("CONFORM_FAR"))
		batoni_shm_pretend_node(rank == 2);
	MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, pids, (int)sizeof(mine),
	              MPI_BYTE, MPI_COMM_WORLD);
	if (calls || in_order || closing || (lending && rank == 1) ||
	    (probing && rank == 0))
		options.progress = BATON_PROGRESS_CALLS;
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm) ==
	      BATON_OK);
	if (!comm)
		return exit_status();
	if (rank == 1 && waiting)
		signal_and_die(comm);
	if (rank == 1 && (sending || in_order || open || probing))
		send_and_die(comm, in_order ? MANY - 1 : 9);
	if (rank == 1 && closing)
		meet_and_close(comm);
	if (rank == 1 && !finalizing && !lending) {
		raise(stop ? SIGSTOP : SIGKILL);
		return 1;
	}
	if (lending)
		survive_lending(comm, rank);
	else if (waiting)
		survive_waiting(comm, rank);
	else if (open)
		survive_open(comm, rank);
	else if (probing)
		survive_probing(comm, rank);
	else if (sending)
		survive_sending(comm, rank);
	else if (in_order)
		survive_in_order(comm);
	else if (meeting)
		survive_barriers(comm, rank);
	else if (registering)
		survive_registering(comm, rank, pids[0]);
	else if (finalizing)
		survive_finalizing(comm, rank, pids[0]);
	else if (closing)
		survive_closing(comm);
	else if (destroying)
		survive_destroying(comm, rank);
	else
		survive(comm, rank);
	printf("rank %d: %s\n", rank,
	       failures ? "FAILED" : "left in order after a peer's death");
	fflush(stdout);
	if (rank == 0 && stop)
		kill(pids[1], SIGKILL);
	/* MPI_Finalize would wait for the dead. */
	_exit(exit_status());
}
