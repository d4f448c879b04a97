/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that is lost, or does not go on, while communicators are made from another one over MPI.  The others
 * are not left inside MPI: their calls end, and what MPI still has of theirs stays with it.
 *
 *   mpirun --enable-recovery -n 5 mpi_split lost
 *   mpirun -n 2 mpi_split late
 *
 * lost: after all have said that they come, rank 4 is killed before its part of an exchange, rank 1 before it makes the
 * communicator of a color, and rank 3 before it duplicates.  The others end in PEER each time, name the
 * dead, and go on.  late: rank 1 duplicates only when rank 0 has given up in TIMEOUT; it ends so, too.  Then both
 * duplicate another one, and leave in order.
 *
 * MPI's functions are this program's, in front of the library's.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "program.h"

#define MS INT64_C(1000000)

/* What the next call of this function does first. */
static const char *trapped = "";
static void (*trap)(void);

static void
pass(const char *function)
{
	if (strcmp(function, trapped) != 0)
		return;
	trapped = "";
	trap();
}

int
MPI_Comm_idup(MPI_Comm comm, MPI_Comm *made_p, MPI_Request *request_p)
{
	pass("MPI_Comm_idup");
	return PMPI_Comm_idup(comm, made_p, request_p);
}

int
MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made_p)
{
	pass("MPI_Comm_create_group");
	return PMPI_Comm_create_group(comm, group, tag, made_p);
}

/* The first exchange of a creation; those of the parent reduce, too, and come before its duplicate. */
int
MPI_Iallgather(const void *mine, int n, MPI_Datatype type, void *all, int m,
               MPI_Datatype types, MPI_Comm comm, MPI_Request *request_p)
{
	pass("MPI_Iallgather");
	return PMPI_Iallgather(mine, n, type, all, m, types, comm, request_p);
}

static void
die(void)
{
	raise(SIGKILL);
}

static void
set_trap(const char *function, void (*action)(void))
{
	trapped = function;
	trap = action;
}

static void
die_in_exchange(void)
{
	set_trap("MPI_Iallgather", die);
}

/* ---- lost ---- */

/* The call of all, within which the rank `dead` of the parent is killed. */
static void
lose(struct baton_comm *parent, int dead, bool backwards)
{
	int rank = baton_comm_rank(parent);
	struct baton_comm *made = NULL;
	enum baton_status status;
	char what[80];

	if (backwards)
		status = baton_comm_split(parent, 0, -rank, NULL, &made);
	else
		status = baton_comm_dup(parent, NULL, &made);
	snprintf(what, sizeof(what), "%s: the process of rank %d is gone",
	         backwards ? "baton_comm_split" : "baton_comm_dup", dead);
	CHECK(status == BATON_ERR_PEER);
	/* Rank 0 may have seen it before, and left. */
	CHECK(strncmp(baton_last_error(), what, strlen(what)) == 0);
	CHECK(made == NULL);
}

static void
leave(struct baton_comm *comm)
{
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Each has ranks 0 and 2, and one that dies. */
static struct baton_comm *
part(struct baton_comm *all, int third)
{
	int rank = baton_comm_rank(all);
	bool within = rank == 0 || rank == 2 || rank == third;
	struct baton_comm *comm = NULL;

	CHECK(baton_comm_split(all, within ? 0 : BATON_COLOR_NONE, rank, NULL,
	                       &comm) == BATON_OK);
	return comm;
}

/* Where MPI is left within the making of a communicator it makes no other one, so that comes last. */
static void
lose_three(struct baton_comm *all, int rank)
{
	struct baton_comm *exchanging = part(all, 4), *meeting = part(all, 1);
	struct baton_comm *duplicating = part(all, 3);

	if (exit_status() != 0)
		return;
	if (rank == 4)
		set_trap("MPI_Comm_idup", die_in_exchange);
	if (exchanging)
		lose(exchanging, 2, false);
	if (rank == 1)
		set_trap("MPI_Comm_create_group", die);
	if (meeting)
		lose(meeting, 1, true);
	if (rank == 3)
		set_trap("MPI_Comm_idup", die);
	if (duplicating)
		lose(duplicating, 2, false);
	CHECK(baton_comm_status(meeting) == BATON_ERR_PEER);
	CHECK(baton_comm_status(duplicating) == BATON_ERR_PEER);
	leave(exchanging);
	leave(meeting);
	leave(duplicating);
	leave(all);
}

/* ---- late ---- */

static void
await_timeout(void)
{
	char byte;

	MPI_Recv(&byte, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void
be_late(struct baton_comm *all, int rank)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *timed = NULL, *made = NULL;
	char byte = 0;

	options.timeout_ns = 1500 * MS;
	CHECK(baton_comm_dup(all, &options, &timed) == BATON_OK);
	if (!timed)
		return;
	if (rank == 1)
		set_trap("MPI_Comm_idup", await_timeout);
	CHECK(baton_comm_dup(timed, NULL, &made) == BATON_ERR_TIMEOUT);
	CHECK(strstr(baton_last_error(), "has not gone on for 1500 ms"));
	if (rank == 0)
		MPI_Send(&byte, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	/* MPI has an operation of its ranks. */
	CHECK(rank == 1 || baton_comm_status(timed) == BATON_ERR_TIMEOUT);
	CHECK(baton_comm_destroy(timed) == BATON_OK);
	CHECK(baton_comm_dup(all, NULL, &made) == BATON_OK);
	CHECK(baton_comm_destroy(made) == BATON_OK);
	CHECK(baton_comm_destroy(all) == BATON_OK);
}

int
main(int argc, char **argv)
{
	bool lost = argc > 1 && strcmp(argv[1], "lost") == 0;
	struct baton_comm *all = NULL;
	int rank, level;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &all) == BATON_OK);
	if (!all)
		return exit_status();
	if (!lost) {
		be_late(all, rank);
		MPI_Finalize();
		return exit_status();
	}
	lose_three(all, rank);
	printf("rank %d: %s\n", rank,
	       failures ? "FAILED" : "left in order after three deaths");
	fflush(stdout);
	/* MPI_Finalize would wait for the dead. */
	_exit(exit_status());
}
