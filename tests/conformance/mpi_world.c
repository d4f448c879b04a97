/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that never names MPI: baton_comm_create makes the communicator of
 * whatever job it is started in, and what Baton has started it also finishes.
 *
 *   mpirun -n N mpi_world N     the MPI world
 *   mpi_world 1                 started alone: a world of one
 *   mpi_world N exit            leaves by exit() with everything still there
 *   mpi_world 3 died            so do two ranks, when the process of the third has died, which had
 *                               aborted and destroyed its communicator: MPI is not finalised
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "baton.h"
#include "program.h"

/* Each rank hands a number around. */
static void
ring(struct baton_comm *comm)
{
	int rank = baton_comm_rank(comm), size = baton_comm_size(comm);
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request requests[2] = { 0 };
	int in = -1, out = rank * 3;

	detached.flags = BATON_OP_DETACHED;
	CHECK(baton_send(&out, 1, BATON_INT32, (rank + 1) % size, 1, comm, NULL,
	                 &detached, &requests[0]) == BATON_OK);
	CHECK(baton_recv(&in, 1, BATON_INT32, (rank + size - 1) % size, 1, comm,
	                 NULL, NULL, &requests[1]) == BATON_OK);
	CHECK(baton_wait_all(requests, 2, -1) == BATON_OK);
	CHECK(in == (rank + size - 1) % size * 3);
	CHECK(baton_release(&requests[0]) == BATON_OK);
	CHECK(baton_release(&requests[1]) == BATON_OK);
}

/* ---- died ---- */

static int rank_left = -1;
static bool finalised;

int PMPI_Finalize(void);
int MPI_Finalize(void);

/* Baton's call. */
int
MPI_Finalize(void)
{
	finalised = true;
	return rank_left < 0 ? PMPI_Finalize() : 0;
}

/* Behind what Baton does at exit. */
static void
tell(void)
{
	if (rank_left >= 0 && !finalised && failures == 0)
		printf("%d: left in order\n", rank_left);
}

/* Rank 1 says which process it is, and dies when the others know.  They wait for what it does not send, and
 * until it is no more. */
static void
lose_one(struct baton_comm *comm)
{
	int rank = baton_comm_rank(comm), pid = (int)getpid();
	baton_request requests[2] = { 0 };

	for (int i = 0; i < 2 && rank == 1; i++)
		CHECK(baton_send(&pid, 1, BATON_INT32, 2 * i, 0, comm, NULL, NULL,
		                 &requests[i]) == BATON_OK);
	if (rank != 1)
		CHECK(baton_recv(&pid, 1, BATON_INT32, 1, 0, comm, NULL, NULL,
		                 &requests[0]) == BATON_OK);
	CHECK(baton_wait_all(requests, 2, -1) == BATON_OK);
	ring(comm);
	if (rank == 1) {
		CHECK(baton_comm_abort(comm) == BATON_OK);
		CHECK(baton_comm_destroy(comm) == BATON_OK);
		raise(SIGKILL);
	}
	CHECK(baton_release(&requests[0]) == BATON_OK);
	CHECK(baton_recv(NULL, 0, BATON_INT32, 1, 1, comm, NULL, NULL,
	                 &requests[0]) == BATON_OK);
	CHECK(baton_finish(&requests[0], -1, NULL) == BATON_ERR_PEER);
	while (kill(pid, 0) == 0)
		usleep(1000);
	rank_left = rank;
	exit(exit_status());
}

int
main(int argc, char **argv)
{
	/* Before Baton has any such function. */
	int told = atexit(tell);
	int size = argc > 1 ? atoi(argv[1]) : 1;
	struct baton_comm_info info = { .size = sizeof(info) };
	struct baton_comm *first = create_world(), *second;

	CHECK(told == 0);
	CHECK(baton_comm_size(first) == size);
	CHECK(baton_comm_query(first, &info) == BATON_OK);
	/* Alone, it is no MPI job, whatever is installed. */
	CHECK(info.transport ==
	      (getenv("CONFORM_ALONE") ? BATON_TRANSPORT_LOCAL
	                               : BATON_TRANSPORT_MPI));
	ring(first);
	if (argc > 2 && strcmp(argv[2], "died") == 0)
		lose_one(first);
	second = create_world();
	ring(second);
	ring(first);
	if (argc > 2 && strcmp(argv[2], "exit") == 0)
		exit(exit_status());
	CHECK(baton_comm_destroy(first) == BATON_OK);
	ring(second);
	CHECK(baton_comm_destroy(second) == BATON_OK);
	/* A third after all have gone: MPI is still there. */
	first = create_world();
	ring(first);
	CHECK(baton_comm_destroy(first) == BATON_OK);
	return exit_status();
}
