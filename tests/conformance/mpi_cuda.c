/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that dies while the others put into its device memory, and wait for its signals: rank 1
 * of three puts into the window of each of the others once, and is killed.  What it has signaled
 * has come with its data; what it has not ends in PEER; a put to it ends (its memory may be
 * mapped, and then takes the bytes).  The survivors put to each other after that, and leave in
 * order.
 */
#include <signal.h>
#include <stdio.h>

#include "mpi_device.h"

enum { ROOM = 4 << 20, SHORT = 3000 };

static const struct cudasim *sim;
static struct baton_comm *comm;
static struct baton_window *window;
static unsigned char *part; /* device memory, as is what is put: its upper half */
static baton_stream stream;
static int rank;

static bool
holds(size_t at, size_t bytes, unsigned char value)
{
	return device_holds(sim, part + at, bytes, value);
}

static void
set_part(size_t at, size_t bytes, unsigned char value)
{
	device_set(sim, part + at, bytes, value);
}

static enum baton_status
put_half(int peer, size_t bytes, int index, baton_request *request_p)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	return baton_put_signal(part + ROOM / 2, bytes, BATON_UINT8, peer, window,
	                        (size_t)rank * SHORT, index, 0, 0, comm, stream,
	                        &detached, request_p);
}

static enum baton_status
wait_for(int peer, int index, baton_request *request_p)
{
	struct baton_wait_signal_desc one = { 1, peer, index, 0 };
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;

	detached.flags = BATON_OP_DETACHED;
	return baton_wait_signal(1, &one, comm, stream, &detached, request_p);
}

static void
put_and_die(void)
{
	baton_request request = 0;

	for (int peer = 0; peer < 3; peer += 2) {
		(void)put_half(peer, SHORT, 0, &request);
		(void)baton_finish(&request, -1, NULL);
	}
	raise(SIGKILL);
}

static void
survive(void)
{
	baton_request first = 0, second = 0, large = 0, between = 0;
	int other = rank == 0 ? 2 : 0;
	enum baton_status status;
	uint64_t count = 0;

	CHECK(wait_for(1, 0, &first) == BATON_OK);
	CHECK(wait_for(1, 0, &second) == BATON_OK);
	CHECK(baton_finish(&first, -1, NULL) == BATON_OK);
	CHECK(holds(SHORT, SHORT, 1));
	for (int i = 0; i < 4; i++) {
		CHECK(put_half(1, ROOM / 4, 1, &large) == BATON_OK);
		status = baton_finish(&large, -1, NULL);
		CHECK(status == BATON_OK || status == BATON_ERR_PEER);
	}
	CHECK(baton_finish(&second, -1, NULL) == BATON_ERR_PEER);
	CHECK(baton_signal_count(comm, 1, 0, 0, &count) == BATON_OK);
	CHECK(count == 1);
	/* The living are not concerned. */
	CHECK(baton_comm_status(comm) == BATON_OK);
	for (unsigned char i = 10; i < 30; i++) {
		set_part(ROOM / 2, SHORT, (unsigned char)(i + rank));
		CHECK(put_half(other, SHORT, 2, &between) == BATON_OK);
		CHECK(wait_for(other, 2, &first) == BATON_OK);
		CHECK(baton_finish(&first, -1, NULL) == BATON_OK);
		CHECK(baton_finish(&between, -1, NULL) == BATON_OK);
		CHECK(holds((size_t)other * SHORT, SHORT,
		            (unsigned char)(i + other)));
		/* Seen, before the next one comes. */
		CHECK(baton_signal(other, 3, 0, 0, comm, stream, NULL, NULL) ==
		      BATON_OK);
		CHECK(wait_for(other, 3, &first) == BATON_OK);
		CHECK(baton_finish(&first, -1, NULL) == BATON_OK);
	}
	CHECK(baton_comm_abort(comm) == BATON_OK);
	CHECK(baton_window_deregister(window) == BATON_OK);
	CHECK(baton_stream_destroy(comm, stream) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
	CHECK(sim->sim_violations() == 0);
}

int
main(int argc, char **argv)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	CUdeviceptr memory = 0;
	CUcontext context;

	sim = device_begin(argc, argv, &rank);
	if (!sim)
		return 77;
	options.device = BATON_DEVICE_CUDA;
	options.cuda_device = 0;
	CHECK(baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm) == BATON_OK);
	if (!comm)
		return exit_status();
	CHECK(baton_stream_create(comm, &stream) == BATON_OK);
	CHECK(sim->init(0) == 0 && sim->primary_retain(&context, 0) == 0 &&
	      sim->context_push(context) == 0 &&
	      sim->mem_alloc(&memory, ROOM) == 0);
	part = (unsigned char *)(uintptr_t)memory;
	CHECK(baton_window_register(part, ROOM, comm, &window) == BATON_OK);
	if (rank == 0)
		printf("puts to rank 1 go by path %u\n",
		       baton_window_path(window, 1));
	set_part(0, ROOM, (unsigned char)rank);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1)
		put_and_die();
	survive();
	device_survived(rank);
}
