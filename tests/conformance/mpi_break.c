/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that break or abort their communicators, and exit: Baton, which has started MPI,
 * finalises it where nothing forbids that, so mpirun does not call the job failed.
 *
 *   mpirun -n 2 mpi_break abort|live|one|nccl|leave
 *   mpirun -n 2 mpi_break status      (it ends the job)
 *   mpirun --enable-recovery -n 3 mpi_break gone
 *
 * abort: both abort with messages of all kinds under way, and destroy.  live: they do not
 * destroy, and exit with 256, which is 0 for mpirun.  one: rank 0 aborts, destroys and exits; rank 1, which waits for it without a
 * deadline, ends in PEER.  nccl: a deadline breaks the communicator of both.  leave: over NCCL rank 0 returns from main with
 * its communicator alive; rank 1, which waits for it without a deadline, ends in PEER.  status: rank 0
 * aborts, and exits with 3; rank 1 waits for it and is ended by mpirun.  gone: rank 1 is killed;
 * the others have what it breaks, and exit without waiting for it.
 *
 * Where mpirun's exit status says nothing, each rank prints a line behind Baton's exit handler.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cudasim.h"
#include "program.h"

#define MS INT64_C(1000000)

enum { SHORT = 64, LONG = 4 << 20, KINDS = 4 };

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};
/* MPI may use these until the process ends. */
static unsigned char out[KINDS][LONG], in[KINDS][LONG];
static int rank = -1;

static void
say_left(void)
{
	if (failures)
		return;
	printf("rank %d: left in order\n", rank);
	fflush(stdout);
}

static struct baton_comm *
create(enum baton_device device, enum baton_transport transport)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	/* Before Baton's own handler, so that it runs behind it. */
	atexit(say_left);
	options.device = device;
	options.transport = transport;
	CHECK(baton_comm_create(&options, &comm) == BATON_OK);
	if (!comm)
		exit(exit_status());
	rank = baton_comm_rank(comm);
	return comm;
}

static baton_request
start_send(struct baton_comm *comm, int kind, size_t bytes, int peer, int tag)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK(baton_send(out[kind], bytes, BATON_UINT8, peer, tag, comm, NULL,
	                 &detached, &request) == BATON_OK);
	return request;
}

static baton_request
start_recv(struct baton_comm *comm, int kind, size_t bytes, int peer, int tag)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK(baton_recv(in[kind], bytes, BATON_UINT8, peer, tag, comm, NULL,
	                 &detached, &request) == BATON_OK);
	return request;
}

static void
finish(baton_request request, enum baton_status status)
{
	enum baton_status how = baton_finish(&request, -1, NULL);

	CHECK(how == status);
	if (how != status)
		printf("rank %d: it ended in %s\n", rank, baton_status_name(how));
}

/* Messages that are never received, that never come, and that are under way. */
static void
start_all_kinds(struct baton_comm *comm)
{
	int peer = 1 - rank;

	start_send(comm, 0, LONG, peer, 0);
	start_send(comm, 1, SHORT, peer, 1);
	start_recv(comm, 0, LONG, peer, 2);
	start_recv(comm, 1, SHORT, peer, 3);
	for (int i = 2; i < KINDS; i++) {
		start_send(comm, i, LONG, peer, 2 + i);
		start_recv(comm, i, LONG, peer, 2 + i);
	}
	/* Some have begun to move. */
	for (int i = 0; i < 20 * rank; i++)
		baton_progress(comm);
}

static void
abort_both(bool destroy)
{
	struct baton_comm *comm = create(BATON_DEVICE_HOST, BATON_TRANSPORT_MPI);

	start_all_kinds(comm);
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_comm_status(comm) == BATON_ERR_ABORTED);
	if (destroy)
		CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
abort_one(int status)
{
	struct baton_comm *comm = create(BATON_DEVICE_HOST, BATON_TRANSPORT_MPI);

	if (rank == 0) {
		CHECK(baton_comm_abort(comm) == BATON_OK);
		CHECK(baton_comm_destroy(comm) == BATON_OK);
		if (status == 0)
			return;
		printf("rank 0 exits with %d\n", status);
		fflush(stdout);
		exit(status);
	}
	finish(start_recv(comm, 0, SHORT, 0, 0), BATON_ERR_PEER);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
break_nccl(void)
{
	const struct baton_op_options soon = {.size = sizeof(soon),
		                               .timeout_ns = 20 * MS};
	struct baton_comm *comm = create(BATON_DEVICE_CUDA, BATON_TRANSPORT_NCCL);
	baton_request request;
	void *memory = NULL;

	CHECK(baton_mem_alloc(comm, SHORT, &memory) == BATON_OK);
	CHECK(baton_recv(memory, SHORT, BATON_UINT8, 1 - rank, 0, comm, NULL,
	                 &soon, &request) == BATON_OK);
	finish(request, BATON_ERR_TIMEOUT);
	CHECK(baton_comm_status(comm) == BATON_ERR_TIMEOUT);
	CHECK(baton_mem_free(comm, memory) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Of the communicator rank 0 has used nothing that needs MPI: NCCL alone would go on. */
static void
leave_nccl(void)
{
	struct baton_comm *comm = create(BATON_DEVICE_CUDA, BATON_TRANSPORT_NCCL);
	baton_request request;
	void *memory = NULL;

	if (rank == 0)
		return;
	CHECK(baton_mem_alloc(comm, SHORT, &memory) == BATON_OK);
	CHECK(baton_recv(memory, SHORT, BATON_UINT8, 0, 0, comm, NULL, NULL,
	                 &request) == BATON_OK);
	finish(request, BATON_ERR_PEER);
	CHECK(strstr(baton_comm_error(comm), "rank 0"));
	CHECK(baton_mem_free(comm, memory) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
lose_one(void)
{
	struct baton_comm *comm = create(BATON_DEVICE_HOST, BATON_TRANSPORT_MPI);
	struct baton_window *window;

	if (rank == 1)
		raise(SIGKILL);
	CHECK(baton_window_register(in[0], LONG, comm, &window) ==
	      BATON_ERR_PEER);
	CHECK(baton_comm_status(comm) == BATON_ERR_PEER);
	/* One of them is destroyed, and one is not. */
	if (rank == 0)
		CHECK(baton_comm_destroy(comm) == BATON_OK);
}

int
main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "abort";

	if (strcmp(how, "abort") == 0)
		abort_both(true);
	else if (strcmp(how, "live") == 0)
		abort_both(false);
	else if (strcmp(how, "one") == 0)
		abort_one(0);
	else if (strcmp(how, "status") == 0)
		abort_one(3);
	else if (strcmp(how, "nccl") == 0)
		break_nccl();
	else if (strcmp(how, "leave") == 0)
		leave_nccl();
	else
		lose_one();
	if (strcmp(how, "live") == 0 && failures == 0)
		exit(256);
	return exit_status();
}
