/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that have started MPI with less than MPI_THREAD_MULTIPLE, or that end
 * it themselves.
 *
 *   mpi_levels funneled|serialized|promised|multiple
 *       What works at that level; "promised" is SERIALIZED where the program
 *       promises to leave MPI alone (BATON_PROGRESS_THREAD).
 *       mpi_watch.h sees that no thread is in MPI that may not be.
 *   mpi_levels finalize
 *       The program calls MPI_Finalize with requests pending.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "baton_mpi.h"
#include "program.h"

/* ---- what works ---- */

static unsigned char in[1 << 20], out[1 << 20];

/* Exchange with every other rank, on this thread alone. */
static void
exchange(struct baton_comm *comm, size_t bytes)
{
	int rank = baton_comm_rank(comm), size = baton_comm_size(comm);
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	for (int step = 1; step < size; step++) {
		int to = (rank + step) % size, from = (rank + size - step) % size;
		baton_request requests[2] = { 0 };

		memset(out, rank + 1, bytes);
		CHECK(baton_recv(in, bytes, BATON_UINT8, from, 0, comm, NULL,
		                 &detached, &requests[0]) == BATON_OK);
		CHECK(baton_send(out, bytes, BATON_UINT8, to, 0, comm, NULL,
		                 &detached, &requests[1]) == BATON_OK);
		CHECK(baton_finish(&requests[1], -1, NULL) == BATON_OK);
		CHECK(baton_finish(&requests[0], -1, NULL) == BATON_OK);
		CHECK(in[0] == from + 1 && in[bytes - 1] == from + 1);
	}
}

struct helper {
	struct baton_comm *comm;
	baton_request request;
	unsigned char *data;
	int peer;
	bool sends;
	_Atomic bool over;
	pthread_t thread;
};

/* A thread that may not drive MPI enqueues; the main thread's calls do it. */
static void *
enqueue(void *arg)
{
	struct helper *helper = arg;

	if (helper->sends)
		CHECK(baton_send(helper->data, 5000, BATON_UINT8, helper->peer,
		                 7, helper->comm, NULL, NULL,
		                 &helper->request) == BATON_OK);
	else
		CHECK(baton_recv(helper->data, 5000, BATON_UINT8, helper->peer,
		                 7, helper->comm, NULL, NULL,
		                 &helper->request) == BATON_OK);
	return NULL;
}

/* 5000 bytes from rank 0 to rank 1.  False: this rank is neither. */
static bool
start_helper(struct helper *helper, struct baton_comm *comm,
             void *(*main)(void *), unsigned char value)
{
	int rank = baton_comm_rank(comm);

	if (rank > 1 || baton_comm_size(comm) < 2)
		return false;
	*helper = (struct helper){ .comm = comm, .peer = rank ^ 1,
		                   .sends = rank == 0, .data = in };
	memset(in, rank == 0 ? value : 0, 5000);
	CHECK(pthread_create(&helper->thread, NULL, main, helper) == 0);
	return true;
}

static void
enqueue_elsewhere(struct baton_comm *comm)
{
	struct helper helper;

	if (!start_helper(&helper, comm, enqueue, 9))
		return;
	pthread_join(helper.thread, NULL);
	CHECK(baton_finish(&helper.request, -1, NULL) == BATON_OK);
	CHECK(in[0] == 9 && in[4999] == 9);
}

/* A thread that waits although it may not drive: served by the main thread. */
static void *
wait_elsewhere(void *arg)
{
	struct helper *helper = arg;

	enqueue(helper);
	CHECK(baton_finish(&helper->request, -1, NULL) == BATON_OK);
	atomic_store(&helper->over, true);
	return NULL;
}

static void
serve_a_waiting_thread(struct baton_comm *comm)
{
	struct helper helper;

	if (!start_helper(&helper, comm, wait_elsewhere, 4))
		return;
	while (!atomic_load(&helper.over))
		(void)baton_progress(comm);
	pthread_join(helper.thread, NULL);
	CHECK(in[0] == 4 && in[4999] == 4);
}

/* A thread that polls a receive and so drives, where it may. */
static void *
poll_until_over(void *arg)
{
	struct helper *helper = arg;

	while (!atomic_load(&helper->over)) {
		CHECK(baton_test(helper->request, NULL) == BATON_PENDING);
		sched_yield();
	}
	return NULL;
}

/* The ranks in the other order, of which two are split again. */
static void
split_and_exchange(struct baton_comm *comm)
{
	int rank = baton_comm_rank(comm), size = baton_comm_size(comm);
	struct baton_comm *turned = NULL, *pair = NULL;

	CHECK(baton_comm_split(comm, 0, -rank, NULL, &turned) == BATON_OK);
	CHECK(baton_comm_rank(turned) == size - 1 - rank);
	CHECK(baton_comm_split(turned, rank < 2 ? 1 : BATON_COLOR_NONE, rank,
	                       NULL, &pair) == BATON_OK);
	CHECK((pair != NULL) == (rank < 2));
	CHECK(baton_comm_destroy(turned) == BATON_OK);
	if (!pair)
		return;
	CHECK(baton_comm_rank(pair) == rank && baton_comm_size(pair) == 2);
	CHECK(baton_comm_destroy(pair) == BATON_OK);
}

static void
create_beside_a_driver(struct baton_comm *comm)
{
	struct helper helper = { .comm = comm,
		                 .peer = baton_comm_rank(comm), .data = in };
	pthread_t thread;

	enqueue(&helper);
	CHECK(pthread_create(&thread, NULL, poll_until_over, &helper) == 0);
	for (int i = 0; i < 3; i++) {
		struct baton_comm *more = NULL;

		CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &more) ==
		      BATON_OK);
		CHECK(baton_comm_destroy(more) == BATON_OK);
	}
	split_and_exchange(comm);
	atomic_store(&helper.over, true);
	pthread_join(thread, NULL);
	CHECK(baton_cancel(helper.request) == BATON_OK);
	CHECK(baton_finish(&helper.request, -1, NULL) == BATON_ERR_CANCELED);
}

static void
run_level(const char *name, int level)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = { .size = sizeof(info) };
	bool promised = strcmp(name, "promised") == 0;
	struct baton_comm *comm = NULL;

	if (promised)
		options.progress = BATON_PROGRESS_THREAD;
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm) ==
	      BATON_OK);
	if (!comm)
		return;
	CHECK(baton_comm_query(comm, &info) == BATON_OK);
	CHECK(info.engine_thread ==
	      (level == MPI_THREAD_MULTIPLE ||
	       (level == MPI_THREAD_SERIALIZED && promised)));
	CHECK(strstr(info.library, "MPI_THREAD_") != NULL);
	exchange(comm, 8);
	exchange(comm, 5000);
	exchange(comm, sizeof(in));
	enqueue_elsewhere(comm);
	serve_a_waiting_thread(comm);
	create_beside_a_driver(comm);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* MPI goes away under pending requests: they end, and nothing hangs. */
static void
run_finalize(void)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct baton_comm *comm = NULL;
	baton_request recv = 0, late = 0;
	int rank;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm) == BATON_OK);
	if (!comm)
		return;
	exchange(comm, 5000);
	rank = baton_comm_rank(comm);
	CHECK(baton_recv(in, 5000, BATON_UINT8, rank, 3, comm, NULL, &detached,
	                 &recv) == BATON_OK);
	CHECK(baton_test(recv, NULL) == BATON_PENDING);
	MPI_Finalize();
	CHECK(baton_wait(recv, -1, NULL) == BATON_ERR_ABORTED);
	CHECK(baton_comm_status(comm) == BATON_ERR_ABORTED);
	CHECK(baton_comm_error(comm)[0] != '\0');
	CHECK(baton_send(out, 8, BATON_UINT8, rank, 3, comm, NULL, NULL,
	                 &late) == BATON_ERR_ABORTED);
	CHECK(baton_stream_synchronize(comm, NULL) == BATON_OK);
	CHECK(baton_release(&recv) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	comm = NULL;
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm) ==
	      BATON_ERR_INVALID);
}

int
main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "multiple";
	int asked = MPI_THREAD_MULTIPLE, level, all;

	if (strcmp(name, "funneled") == 0)
		asked = MPI_THREAD_FUNNELED;
	if (strcmp(name, "serialized") == 0 || strcmp(name, "promised") == 0)
		asked = MPI_THREAD_SERIALIZED;
	MPI_Init_thread(&argc, &argv, asked, &level);
	if (strcmp(name, "finalize") == 0) {
		run_finalize();
		return exit_status();
	}
	/* Some give more than was asked for: then there is nothing to see. */
	if (level != asked) {
		printf("SKIP: MPI gave thread level %d for %d\n", level, asked);
		MPI_Finalize();
		return 77;
	}
	mpi_watch(level);
	run_level(name, level);
	CHECK(mpi_watch_offences() == 0);
	level = atomic_load(&failures);
	MPI_Allreduce(&level, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	MPI_Finalize();
	return all ? 1 : 0;
}
