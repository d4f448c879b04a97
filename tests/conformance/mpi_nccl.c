/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL over MPI, where ranks are processes, over simulators of NCCL and of the CUDA driver.
 *
 *   mpirun -n 3 mpi_nccl lanes|finalize|signals|lists
 *   mpirun --enable-recovery -n 3 mpi_nccl peer|deadline|destroy|puts|orphans
 *
 * lanes: ranks ask for other numbers of lanes.  finalize: the program finalises MPI, and NCCL
 * goes on; signals and lists, which need MPI, are refused.  signals, lists: the same where such
 * were used before, and all ends.  peer: rank 1 is killed while the others send to it and receive from it with no
 * deadline; then these make a communicator of their own.  deadline: the same, with one.
 * destroy: it is killed while they destroy the communicator, with no time limit.  puts: it is killed
 * while the others put into its window by NCCL's one-sided calls, and wait for its puts.  orphans: it
 * is killed while they send lists to it and receive such from it, without a deadline.
 *
 * mpirun's exit status says nothing of the last five, so each survivor prints a line.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "baton_mpi.h"
#include "cudasim.h"
#include "program.h"

#define MS INT64_C(1000000)

enum { BYTES = 1 << 20 };

static const struct baton_op_options detached = {
	.size = sizeof(detached), .flags = BATON_OP_DETACHED};
static unsigned char *out, *in; /* pinned */

static void
make_memory(void)
{
	const struct cudasim *cuda = cudasim_load(NULL);
	CUcontext context;
	void *block = NULL;

	CHECK(cuda != NULL);
	CHECK(cuda->init(0) == 0);
	CHECK(cuda->primary_retain(&context, 0) == 0);
	CHECK(cuda->context_push(context) == 0);
	CHECK(cuda->host_alloc(&block, (size_t)2 * BYTES,
	                       BATONI_CU_HOST_ALLOC_PORTABLE |
	                               BATONI_CU_HOST_ALLOC_MAPPED) == 0);
	CHECK(cuda->context_pop(&context) == 0);
	if (!block)
		exit(exit_status());
	out = block;
	in = out + BYTES;
}

static enum baton_status
create(MPI_Comm parent, int lanes, struct baton_comm **comm_p)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	options.nccl_lanes = lanes;
	options.nccl_lists = true;
	MPI_Comm_rank(MPI_COMM_WORLD, &options.cuda_device);
	return baton_comm_create_mpi(parent, &options, comm_p);
}

static baton_request
move(struct baton_comm *comm, int peer, bool sends,
     const struct baton_op_options *options)
{
	baton_request request = 0;
	baton_stream stream = NULL;

	CHECK(baton_stream_create(comm, &stream) == BATON_OK);
	CHECK((sends ? baton_send(out, BYTES, BATON_UINT8, peer, 0, comm,
	                          stream, options, &request)
	             : baton_recv(in, BYTES, BATON_UINT8, peer, 0, comm, stream,
	                          options, &request)) == BATON_OK);
	return request;
}

static baton_request
move_list(struct baton_comm *comm, int peer, bool sends)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor tensor = {sends ? out : in, BATON_UINT8, 1, {BYTES}};
	baton_request request = 0;

	options.op.flags = BATON_OP_DETACHED;
	CHECK((sends ? baton_send_tensors(&tensor, 1, peer, 0, comm, NULL,
	                                  &options, &request)
	             : baton_recv_tensors(&tensor, 1, peer, 0, comm, NULL,
	                                  &options, &request)) == BATON_OK);
	return request;
}

static void
finish(baton_request request, enum baton_status status)
{
	CHECK(baton_finish(&request, -1, NULL) == status);
}

/* The two ranks send to each other. */
static void
exchange(struct baton_comm *comm, int peer)
{
	baton_request send, recv;

	memset(out, 1 + baton_comm_rank(comm), BYTES);
	memset(in, 0, BYTES);
	send = move(comm, peer, true, &detached);
	recv = move(comm, peer, false, &detached);
	finish(send, BATON_OK);
	finish(recv, BATON_OK);
	CHECK(in[0] == 1 + peer && in[BYTES - 1] == 1 + peer);
}

static void
differ_in_lanes(int rank)
{
	struct baton_comm *comm = NULL;

	CHECK(create(MPI_COMM_WORLD, rank == 1 ? 2 : 1, &comm) ==
	      BATON_ERR_INVALID);
	CHECK(strstr(baton_last_error(), "1 lanes on rank 0 and 2 on rank 1"));
	/* Both are more than are of use. */
	CHECK(create(MPI_COMM_WORLD, rank == 1 ? 0 : 9, &comm) == BATON_OK);
	if (comm)
		CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
outlive_mpi(int rank)
{
	struct baton_window *window = NULL;
	struct baton_comm *comm = NULL;
	baton_request pending;
	uint64_t count = 1;

	CHECK(create(MPI_COMM_WORLD, 0, &comm) == BATON_OK);
	if (!comm)
		return;
	pending = move(comm, (rank + 2) % 3, false, &detached);
	MPI_Finalize();
	CHECK(baton_comm_status(comm) == BATON_OK);
	CHECK(baton_signal(rank, 0, 0, 0, comm, NULL, NULL, NULL) ==
	      BATON_ERR_ABORTED);
	CHECK(strstr(baton_last_error(), "has finalised MPI"));
	CHECK(baton_send_tensors(NULL, 0, rank, 0, comm, NULL, NULL, NULL) ==
	      BATON_ERR_ABORTED);
	CHECK(strstr(baton_last_error(), "has finalised the library"));
	CHECK(baton_signal_count(comm, rank, 0, 0, &count) == BATON_OK);
	CHECK(count == 0);
	CHECK(baton_window_register(out, BYTES, comm, &window) ==
	      BATON_ERR_ABORTED);
	finish(move(comm, (rank + 1) % 3, true, NULL), BATON_OK);
	finish(pending, BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Rank 0 finalises MPI first, with operations that name rank 1.  Those of the others name rank 0,
 * and these wait until they have seen its end, which breaks the communicator.  What was first
 * stays. */
static void
finalize_in_order(int rank, const struct baton_comm *comm, baton_request a,
                  baton_request b)
{
	enum baton_status status = rank == 0 ? BATON_ERR_ABORTED
	                                     : BATON_ERR_PEER;

	if (rank > 0) {
		CHECK(baton_wait(a, -1, NULL) == status);
		CHECK(baton_wait(b, -1, NULL) == status);
	}
	MPI_Finalize();
	finish(a, status);
	finish(b, status);
	CHECK(baton_comm_status(comm) == status);
	CHECK(strstr(baton_comm_error(comm),
	             rank == 0 ? "the program has called MPI_Finalize"
	                       : "rank 0 has finalised MPI"));
}

static void
signals_end_with_mpi(int rank)
{
	const struct baton_wait_signal_desc next = {.op_count = 1,
		                                     .peer = rank == 0};
	struct baton_comm *comm = NULL;
	struct baton_window *window = NULL;
	baton_request pending, wait = 0;
	uint64_t count = 1;
	void *memory = NULL;

	CHECK(create(MPI_COMM_WORLD, 0, &comm) == BATON_OK);
	if (!comm)
		return;
	CHECK(baton_mem_alloc(comm, BYTES, &memory) == BATON_OK);
	CHECK(baton_window_register(memory, BYTES, comm, &window) == BATON_OK);
	pending = move(comm, rank == 0, false, &detached);
	CHECK(baton_wait_signal(1, &next, comm, NULL, &detached, &wait) ==
	      BATON_OK);
	finalize_in_order(rank, comm, pending, wait);
	CHECK(baton_signal_count(comm, rank, 0, 0, &count) == BATON_OK);
	CHECK(count == 0);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_mem_free(comm, memory) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
lists_end_with_mpi(int rank)
{
	struct baton_comm *comm = NULL;
	baton_request pending, list;

	CHECK(create(MPI_COMM_WORLD, 0, &comm) == BATON_OK);
	if (!comm)
		return;
	pending = move(comm, rank == 0, false, &detached);
	list = move_list(comm, rank == 0, false);
	finalize_in_order(rank, comm, pending, list);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* MPI knows that a process of its world is gone, and goes on without it. */
static void
shrink(int rank)
{
	static const int excluded[] = { 1 };
	struct baton_comm *comm = NULL;
	MPI_Group all, left;
	MPI_Comm survivors;

	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_excl(all, 1, excluded, &left);
	CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, left, 7, &survivors) ==
	      MPI_SUCCESS);
	CHECK(create(survivors, 0, &comm) == BATON_OK);
	if (!comm)
		return;
	exchange(comm, rank == 0 ? 1 : 0);
	finish(move_list(comm, rank == 0 ? 1 : 0, rank == 0), BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Nothing hangs. */
static void
survive_lists(struct baton_comm *comm, int rank)
{
	baton_request lists[] = {move_list(comm, 1, false),
		                  move_list(comm, 1, true)};

	for (int i = 0; i < 2; i++) {
		enum baton_status status = baton_finish(&lists[i], -1, NULL);

		CHECK(status == BATON_ERR_PEER || status == BATON_ERR_MPI);
	}
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	shrink(rank);
}

static void
survive(struct baton_comm *comm, int rank, const struct baton_op_options *options)
{
	baton_request recv = move(comm, 1, false, options);
	baton_request send = move(comm, 1, true, options);
	enum baton_status status = baton_finish(&recv, -1, NULL);

	if (options->timeout_ns)
		CHECK(status == BATON_ERR_TIMEOUT || status == BATON_ERR_PEER);
	else
		CHECK(status == BATON_ERR_PEER);
	status = baton_finish(&send, -1, NULL);
	/* The communicator broke, and said why. */
	CHECK(status == baton_comm_status(comm));
	if (!options->timeout_ns)
		CHECK(strstr(baton_comm_error(comm), "process of rank 1"));
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	shrink(rank);
}

/* Each puts its fill, and waits for so many of rank 1, on streams. */
static void
put_on(struct baton_comm *comm, struct baton_window *window, int n,
       baton_request requests[])
{
	const struct baton_wait_signal_desc desc = {.op_count = 1, .peer = 1};
	baton_stream stream = NULL;

	CHECK(baton_stream_create(comm, &stream) == BATON_OK);
	for (int i = 0; i < n; i++) {
		CHECK(baton_put_signal(out, BYTES, BATON_UINT8, 1, window, 0, 0,
		                       0, 0, comm, stream, NULL,
		                       &requests[2 * i]) == BATON_OK);
		CHECK(baton_wait_signal(1, &desc, comm, stream, NULL,
		                        &requests[2 * i + 1]) == BATON_OK);
	}
}

static void
survive_puts(struct baton_comm *comm, int rank)
{
	enum { PUTS = 6, BEFORE = 3 };
	struct baton_window *window = NULL;
	baton_request requests[2 * PUTS] = {0};
	void *memory = NULL;
	int good = 0, late = 0;

	CHECK(baton_mem_alloc(comm, BYTES, &memory) == BATON_OK);
	CHECK(baton_window_register(memory, BYTES, comm, &window) == BATON_OK);
	CHECK(baton_window_path(window, 1) == BATON_WINDOW_PATH_NATIVE);
	for (int i = 0; i < BEFORE && rank == 1; i++) {
		for (int peer = 0; peer < 3; peer += 2)
			CHECK(baton_put_signal(out, BYTES, BATON_UINT8, peer,
			                       window, 0, 0, 0, 0, comm, NULL,
			                       NULL, NULL) == BATON_OK);
	}
	if (rank == 1) {
		CHECK(baton_stream_synchronize(comm, NULL) == BATON_OK);
		raise(SIGKILL);
	}
	put_on(comm, window, PUTS, requests);
	/* What it had put counts.  Nothing hangs. */
	for (int i = 0; i < 2 * PUTS; i++) {
		enum baton_status status = baton_finish(&requests[i], -1, NULL);

		good += status == BATON_OK && i % 2 == 1;
		late += status != BATON_OK && status != BATON_ERR_PEER;
	}
	CHECK(good <= BEFORE);
	CHECK(late == 0);
	/* With puts at NCCL that do not end. */
	baton_comm_abort(comm);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_mem_free(comm, memory) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
lose_a_rank(int rank, const char *how)
{
	struct baton_op_options options = detached;
	struct baton_comm *comm = NULL;

	CHECK(create(MPI_COMM_WORLD, 0, &comm) == BATON_OK);
	if (!comm)
		return;
	if (rank == 1 && strcmp(how, "puts") != 0)
		raise(SIGKILL);
	if (strcmp(how, "deadline") == 0)
		options.timeout_ns = 50 * MS;
	if (strcmp(how, "destroy") == 0)
		CHECK(baton_comm_destroy(comm) == BATON_OK);
	else if (strcmp(how, "puts") == 0)
		survive_puts(comm, rank);
	else if (strcmp(how, "orphans") == 0)
		survive_lists(comm, rank);
	else
		survive(comm, rank, &options);
	printf("rank %d: %s\n", rank,
	       failures ? "FAILED" : "left in order after a peer's death");
	fflush(stdout);
	/* MPI_Finalize would wait for the dead. */
	_exit(exit_status());
}

int
main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	int rank, level;

	/* Where a count would look for messages. */
	if (strcmp(how, "finalize") == 0)
		setenv("BATON_WINDOW_PATH", "message", 1);
	if (strcmp(how, "puts") == 0)
		setenv("BATON_WINDOW_PATH", "native", 1);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	make_memory();
	if (strcmp(how, "finalize") == 0) {
		outlive_mpi(rank);
		return exit_status();
	}
	if (strcmp(how, "signals") == 0) {
		signals_end_with_mpi(rank);
		return exit_status();
	}
	if (strcmp(how, "lists") == 0) {
		lists_end_with_mpi(rank);
		return exit_status();
	}
	if (strcmp(how, "lanes") == 0)
		differ_in_lanes(rank);
	else
		lose_a_rank(rank, how);
	MPI_Finalize();
	return exit_status();
}
