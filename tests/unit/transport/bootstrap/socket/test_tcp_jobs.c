/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators between processes without MPI, by ids and by RANK and WORLD_SIZE, over the
 * simulators of CUDA and NCCL.  Ranks are children of the test, which have called nothing before
 * they are forked; they check with assertions of their own, and say in their exit status
 * whether these held.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "baton.h"
#include "captured.h"
#include "clock.h"
#include "cudasim.h"
#include "mem.h"
#include "run_tests.h"
#include "shared_memory.h"
#include "tcp.h"

enum { RANKS_MAX = 4, BYTES = 256 };
#define SECOND ((int64_t)1000000000)
/* Reached by a hang only. */
#define LONG (60 * SECOND)

/* What the processes of one test share. */
static struct shared {
	pthread_barrier_t barrier;
	struct baton_unique_id id;
	char port[16];
	bool over;
} *shared;

static pid_t children[RANKS_MAX];
static int size;

/* ---- the children ---- */

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (condition)                                                \
			break;                                                \
		printf("%s:%d: %s is false (\"%s\")\n", __FILE__, __LINE__,   \
		       #condition, baton_last_error());                       \
		fflush(stdout);                                               \
		_exit(1);                                                     \
	} while (0)

static bool
says(const char *words)
{
	return strstr(baton_last_error(), words) != NULL;
}

static struct baton_comm_options
on_nccl(int64_t timeout_ns)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.timeout_ns = timeout_ns;
	options.requests_max = 16;
	return options;
}

static void
meet(void)
{
	pthread_barrier_wait(&shared->barrier);
}

/* Rank 0's id, for all. */
static void
share_id(int rank)
{
	if (rank == 0)
		CHECK(baton_unique_id_create(&shared->id) == BATON_OK);
	meet();
}

/* Before any communicator: allocating would wait for the streams of other ranks. */
static CUdeviceptr
take_memory(void)
{
	const struct cudasim *cuda = cudasim_load(NULL);
	CUcontext context;
	CUdeviceptr memory;

	CHECK(cuda && cuda->init(0) == 0);
	CHECK(cuda->primary_retain(&context, 0) == 0);
	CHECK(cuda->context_push(context) == 0);
	CHECK(cuda->mem_alloc(&memory, 2 * BYTES) == 0);
	return memory;
}

/* Every rank has as many bytes from the one before it. */
static void
pass_round(struct baton_comm *comm, CUdeviceptr memory)
{
	int rank = baton_comm_rank(comm), n = baton_comm_size(comm);
	baton_stream stream;
	baton_request in, out;

	CHECK(baton_stream_create(comm, &stream) == BATON_OK);
	CHECK(baton_group_begin(comm) == BATON_OK);
	CHECK(baton_send((void *)(uintptr_t)memory, BYTES, BATON_UINT8,
	                 (rank + 1) % n, 0, comm, stream, NULL,
	                 &out) == BATON_OK);
	CHECK(baton_recv((void *)(uintptr_t)(memory + BYTES), BYTES, BATON_UINT8,
	                 (rank + n - 1) % n, 0, comm, stream, NULL,
	                 &in) == BATON_OK);
	CHECK(baton_group_end(comm) == BATON_OK);
	CHECK(baton_finish(&in, LONG, NULL) == BATON_OK);
	CHECK(baton_finish(&out, LONG, NULL) == BATON_OK);
	CHECK(baton_stream_destroy(comm, stream) == BATON_OK);
}

static void
name_job(int rank, const char *secret)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", rank);
	setenv("RANK", number, 1);
	snprintf(number, sizeof(number), "%d", size);
	setenv("WORLD_SIZE", number, 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("BATON_PORT", shared->port, 1);
	setenv("BATON_SECRET", secret, 1);
}

/* ---- the parent ---- */

/* A port that is free now. */
static void
find_port(void)
{
	struct batoni_side_address address = {.family = 4,
	                                      .bytes = {127, 0, 0, 1}};
	int fd;

	ck_assert_int_eq(batoni_tcp_listen_on(&address, &fd), 0);
	close(fd);
	snprintf(shared->port, sizeof(shared->port), "%u", address.port);
}

static void
start_children(int n, void (*child)(int rank))
{
	size = n;
	shared = shared_alloc(sizeof(*shared));
	shared_barrier(&shared->barrier, n);
	find_port();
	setenv("BATON_INTERFACE", "lo", 1);
	fflush(stdout);
	for (int rank = 0; rank < n; rank++) {
		children[rank] = fork();
		if (children[rank] == 0) {
			child(rank);
			fflush(stdout);
			exit(0);
		}
	}
}

/* killed: the rank that ends by a signal, or -1. */
static void
finish(int killed)
{
	for (int rank = 0; rank < size; rank++) {
		int status;

		ck_assert_int_eq(waitpid(children[rank], &status, 0),
		                 children[rank]);
		if (rank == killed)
			ck_assert(WIFSIGNALED(status));
		else
			ck_assert_msg(status == 0, "rank %d: %d", rank, status);
	}
}

/* ---- ids ---- */

static void
by_id(int rank)
{
	struct baton_comm_options options = on_nccl(LONG);
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_comm *comm = NULL, *again = NULL;
	CUdeviceptr memory = take_memory();

	/* Rank 2's process makes it. */
	share_id((rank + 1) % size);
	CHECK(baton_comm_create_id(size, rank, &shared->id, &options, &comm) ==
	      BATON_OK);
	CHECK(baton_comm_rank(comm) == rank && baton_comm_size(comm) == size);
	CHECK(baton_comm_query(comm, &info) == BATON_OK);
	CHECK(info.transport == BATON_TRANSPORT_NCCL);
	pass_round(comm, memory);
	CHECK(info.capabilities & BATON_CAP_SIGNALS);
	CHECK(info.capabilities & BATON_CAP_WINDOWS);
	/* It is spent, wherever. */
	options.timeout_ns = SECOND;
	CHECK(baton_comm_create_id(size, rank, &shared->id, &options, &again) <
	      0);
	CHECK(says("spent"));
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

START_TEST(processes_meet_by_an_id)
{
	start_children(3, by_id);
	finish(-1);
}
END_TEST

struct member {
	pthread_t thread;
	int rank;
	struct baton_comm *comm;
};

static void *
seat_main(void *argument)
{
	struct member *member = argument;
	const struct baton_comm_options options = on_nccl(LONG);
	CUdeviceptr memory = take_memory();

	CHECK(baton_comm_create_id(3, member->rank, &shared->id, &options,
	                           &member->comm) == BATON_OK);
	pass_round(member->comm, memory);
	CHECK(baton_comm_destroy(member->comm) == BATON_OK);
	return NULL;
}

/* Process 0 has ranks 0 and 2, process 1 has rank 1. */
static void
by_id_mixed(int process)
{
	struct member members[2] = {{.rank = process}, {.rank = 2}};

	share_id(process);
	for (int i = 0; i <= !process; i++)
		CHECK(pthread_create(&members[i].thread, NULL, seat_main,
		                     &members[i]) == 0);
	for (int i = 0; i <= !process; i++)
		pthread_join(members[i].thread, NULL);
}

START_TEST(threads_and_processes_meet_by_an_id)
{
	start_children(2, by_id_mixed);
	finish(-1);
}
END_TEST

static void
unlike(int rank)
{
	struct baton_comm_options options = on_nccl(LONG);
	struct baton_comm *comm = NULL;

	for (int i = 0; i < 4; i++) {
		share_id(rank);
		options = on_nccl(LONG);
		if (rank == 1 && i == 0)
			options.signals_max = 5;
		if (rank == 1 && i == 1)
			options.timeout_ns++;
		if (rank == 1 && i == 2)
			options.size = 1;
		if (rank == 0 && i == 3)
			options.transport = BATON_TRANSPORT_LOCAL;
		CHECK(baton_comm_create_id(size, rank, &shared->id, &options,
		                           &comm) ==
		      (i < 3 ? BATON_ERR_INVALID : BATON_ERR_UNSUPPORTED));
		CHECK(i != 0 || says("signals_max is not the same"));
		CHECK(i != 1 || says("timeout_ns is not the same"));
		CHECK(i != 2 || says("options->size is 1"));
		CHECK(i != 3 || says("BATON_TRANSPORT_NCCL, BATON_TRANSPORT_NEAR"));
		CHECK(comm == NULL);
		meet();
	}
	share_id(rank);
	options = on_nccl(LONG);
	CHECK(baton_comm_create_id(size + rank, rank, &shared->id, &options,
	                           &comm) == BATON_ERR_INVALID);
	CHECK(says("has size 3; another rank said 2"));
}

START_TEST(what_differs_is_told_to_all)
{
	start_children(2, unlike);
	finish(-1);
}
END_TEST

static void
one_is_missing(int rank)
{
	struct baton_comm_options options = on_nccl(SECOND / 2);
	struct baton_comm *comm = NULL;
	enum baton_status status;

	share_id(rank);
	status = baton_comm_create_id(size + 1, rank, &shared->id, &options,
	                              &comm);
	/* Whose time is up first; the other is told, or is told that it is gone. */
	CHECK(status == BATON_ERR_TIMEOUT || status == BATON_ERR_PEER);
	CHECK((says("2 of 3 ranks came within") && says("ms, without rank 2")) ||
	      (says("1 of 3 ranks came within") &&
	       says(rank ? "ms, without ranks 0, 2" : "ms, without ranks 1, 2")) ||
	      says("not all ranks came") ||
	      says("given up") || says("does not answer") ||
	      says("cannot connect"));
}

START_TEST(a_rank_that_does_not_come_is_told_to_all)
{
	start_children(2, one_is_missing);
	finish(-1);
}
END_TEST

/* ---- deaths ---- */

static int victim;

static void
wait_for_the_dead(int rank)
{
	struct baton_comm_options options = on_nccl(0);
	struct baton_comm *comm = NULL;
	struct baton_completion completion;
	baton_request request;
	CUdeviceptr memory = take_memory();
	char words[40];

	share_id(rank);
	CHECK(baton_comm_create_id(size, rank, &shared->id, &options, &comm) ==
	      BATON_OK);
	meet();
	if (rank == victim)
		raise(SIGKILL);
	/* From a rank that lives. */
	CHECK(baton_recv((void *)(uintptr_t)memory, BYTES, BATON_UINT8,
	                 3 - victim - rank, 0, comm, NULL, NULL,
	                 &request) == BATON_OK);
	CHECK(baton_wait(request, LONG, &completion) < 0);
	CHECK(completion.status == BATON_ERR_PEER);
	snprintf(words, sizeof(words), "rank %d", victim);
	CHECK(strstr(baton_comm_error(comm), words) != NULL);
	CHECK(baton_comm_status(comm) == BATON_ERR_PEER);
	baton_release(&request);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

/* Rank 0's process relays. */
START_TEST(a_death_ends_what_waits_for_others)
{
	for (victim = 0; victim < 3; victim += 2) {
		start_children(3, wait_for_the_dead);
		finish(victim);
	}
}
END_TEST

/* ---- RANK and WORLD_SIZE ---- */

static void
by_names(int rank)
{
	CUdeviceptr memory = take_memory();

	name_job(rank, "a secret of this test");
	for (int i = 0; i < 3; i++) {
		struct baton_comm_options options = on_nccl(LONG);
		struct baton_comm *comm = NULL;

		/* Without a pause between them. */
		CHECK(baton_comm_create(&options, &comm) == BATON_OK);
		CHECK(baton_comm_rank(comm) == rank);
		CHECK(baton_comm_size(comm) == size);
		if (i == 0)
			pass_round(comm, memory);
		CHECK(baton_comm_destroy(comm) == BATON_OK);
	}
}

START_TEST(processes_meet_by_their_names)
{
	start_children(3, by_names);
	finish(-1);
}
END_TEST

static void
another_secret(int rank)
{
	struct baton_comm_options options = on_nccl(rank ? LONG : SECOND);
	struct baton_comm *comm = NULL;

	name_job(rank, rank ? "a secret of this test" : "a secret of another");
	if (rank == 0) {
		/* Rank 1 may need longer to come on a slow machine: so again. */
		do {
			CHECK(baton_comm_create(&options, &comm) ==
			      BATON_ERR_TIMEOUT);
			CHECK(says("1 of 2 ranks came within"));
			CHECK(says("ms, without rank 1"));
		} while (!says("before it proved"));
		return;
	}
	CHECK(baton_comm_create(&options, &comm) == BATON_ERR_INVALID);
	CHECK(says("has another secret"));
}

static void
alone(int rank)
{
	struct baton_comm_options options = on_nccl(SECOND / 4);
	struct baton_comm *comm = NULL;

	name_job(1, "a secret of this test");
	setenv("WORLD_SIZE", "2", 1);
	CHECK(rank == 0);
	CHECK(baton_comm_create(&options, &comm) == BATON_ERR_TIMEOUT);
	CHECK(says("nothing listened at 127.0.0.1"));
	CHECK(says("BATON_PORT name") && !says("spent"));
}

static void
bad_port(int rank)
{
	struct baton_comm *comm = NULL;

	name_job(1, "a secret of this test");
	setenv("WORLD_SIZE", "2", 1);
	setenv("BATON_PORT", "99999", 1);
	CHECK(rank == 0);
	CHECK(baton_comm_create(NULL, &comm) == BATON_ERR_UNSUPPORTED);
	CHECK(says("needs a BATON_PORT of 1 to 65535"));
}

START_TEST(the_range_of_ports_is_told)
{
	start_children(1, bad_port);
	finish(-1);
}
END_TEST

/* Ranks 0 and 1 of a job of three, whose rank 2 looks for another port; and an id of two, of which
 * one comes. */
static void
wait_for_one(int rank)
{
	/* Rank 1's time ends it for rank 0 too, which says that it waits 3 s after it has come. */
	struct baton_comm_options options =
		on_nccl(rank == 0 ? LONG : 11 * SECOND / 2);
	struct baton_comm *comm = NULL;
	struct baton_unique_id id;
	enum baton_status status;

	meet();
	if (rank == 3) {
		options.device = BATON_DEVICE_HOST;
		options.transport = BATON_TRANSPORT_LOCAL;
		CHECK(baton_unique_id_create(&id) == BATON_OK);
		status = baton_comm_create_id(2, 0, &id, &options, &comm);
	} else {
		name_job(rank, "a secret of this test");
		setenv("WORLD_SIZE", "3", 1);
		if (rank == 2)
			setenv("BATON_PORT", "1", 1);
		status = baton_comm_create(&options, &comm);
	}
	CHECK(status == BATON_ERR_TIMEOUT || status == BATON_ERR_PEER);
}

static void
wait_in_vain(void)
{
	start_children(4, wait_for_one);
	finish(-1);
}

START_TEST(who_is_missing_is_told_while_others_wait)
{
	const struct captured said = capture("info", wait_in_vain);

	ck_assert_ptr_nonnull(strstr(said.text, "rank 0 waits at port "));
	ck_assert_ptr_nonnull(strstr(said.text, "2 of 3 ranks came within "));
	ck_assert_ptr_nonnull(strstr(said.text, "ms, without rank 2"));
	ck_assert_ptr_nonnull(strstr(said.text, "rank 1 has waited for "));
	ck_assert_ptr_nonnull(strstr(said.text, "not all ranks have come"));
	ck_assert_ptr_nonnull(strstr(said.text, "rank 2 has waited for "));
	ck_assert_ptr_nonnull(strstr(said.text, "it cannot connect yet"));
	ck_assert_ptr_nonnull(
		strstr(said.text, "baton_comm_create_id waits: 1 of 2 ranks"));
}
END_TEST

static void
on_no_interface(int rank)
{
	struct baton_comm_options options = on_nccl(LONG);
	struct baton_comm *comm = NULL;
	struct baton_unique_id id;

	setenv("BATON_INTERFACE", rank % 2 ? "192.0.2.77" : "no-such-0", 1);
	if (rank < 2) {
		CHECK(baton_unique_id_create(&id) == BATON_ERR_INVALID);
	} else {
		name_job(0, "a secret of this test");
		setenv("WORLD_SIZE", "2", 1);
		CHECK(baton_comm_create(&options, &comm) == BATON_ERR_INVALID);
	}
	CHECK(says(rank % 2 ? "192.0.2.77" : "no-such-0"));
	CHECK(says("there are: ") && says("lo (127.0.0.1)"));
}

START_TEST(an_interface_that_is_not_there_is_told_with_those_that_are)
{
	start_children(4, on_no_interface);
	finish(-1);
}
END_TEST

START_TEST(a_rank_0_that_does_not_listen_is_told)
{
	start_children(1, alone);
	finish(-1);
}
END_TEST

START_TEST(another_secret_is_told)
{
	start_children(2, another_secret);
	finish(-1);
}
END_TEST

static void
not_named(int rank)
{
	static const char *const names[] = {"MASTER_ADDR", "BATON_PORT",
	                                    "BATON_SECRET", "RANK"};
	struct baton_comm *comm = NULL;

	name_job(rank, "a secret of this test");
	setenv("WORLD_SIZE", "2", 1);
	setenv("RANK", rank < 3 ? "1" : "2", 1);
	if (rank < 3)
		unsetenv(names[rank]);
	CHECK(baton_comm_create(NULL, &comm) ==
	      (rank < 3 ? BATON_ERR_UNSUPPORTED : BATON_ERR_INVALID));
	CHECK(says(names[rank]) && (rank == 3 || says("mpirun")));
	/* A name that is misspelt makes no world of one. */
	if (rank == 3) {
		unsetenv("RANK");
		CHECK(baton_comm_create(NULL, &comm) == BATON_ERR_INVALID);
		CHECK(says("RANK is not"));
	}
	/* What is asked for by name needs nobody else; nor does a job of one. */
	if (rank == 0) {
		struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

		options.transport = BATON_TRANSPORT_LOCAL;
		CHECK(baton_comm_create(&options, &comm) == BATON_OK);
		CHECK(baton_comm_destroy(comm) == BATON_OK);
		setenv("WORLD_SIZE", "1", 1);
		CHECK(baton_comm_create(NULL, &comm) == BATON_OK);
		CHECK(baton_comm_destroy(comm) == BATON_OK);
	}
}

START_TEST(what_is_missing_is_named)
{
	start_children(4, not_named);
	finish(-1);
}
END_TEST

static void
refused_by_names(int rank)
{
	struct baton_comm_options options = on_nccl(LONG);
	struct baton_comm *comm = NULL;

	name_job(rank, "a secret of this test");
	if (rank == 1)
		options.signals_max = -1;
	CHECK(baton_comm_create(&options, &comm) == BATON_ERR_INVALID);
	CHECK(says("options->signals_max is -1"));
	CHECK(rank == 1 || says("rank 1 could not create"));
}

START_TEST(a_refusal_is_told_to_all)
{
	start_children(2, refused_by_names);
	finish(-1);
}
END_TEST

static struct baton_comm_options
on_host(void)
{
	struct baton_comm_options options = on_nccl(LONG);

	options.device = BATON_DEVICE_HOST;
	return options;
}

static void
assert_near(struct baton_comm *comm)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	CHECK(baton_comm_query(comm, &info) == BATON_OK);
	CHECK(info.message_paths == BATON_MESSAGE_PATH_NEAR);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

static void
near_on_host(int rank)
{
	struct baton_comm_options options = on_host();
	struct baton_comm *comm;

	name_job(rank, "a secret of this test");
	CHECK(baton_comm_create(&options, &comm) == BATON_OK);
	assert_near(comm);
	options.transport = BATON_TRANSPORT_NEAR;
	CHECK(baton_comm_create(&options, &comm) == BATON_OK);
	assert_near(comm);
	share_id(rank);
	CHECK(baton_comm_create_id(size, rank, &shared->id, &options, &comm) ==
	      BATON_OK);
	assert_near(comm);
}

START_TEST(memory_of_the_host_goes_near)
{
	start_children(2, near_on_host);
	finish(-1);
}
END_TEST

/* On the process that has made the id and on the other. */
static void
near_by_environment(int rank)
{
	struct baton_comm_options options = on_nccl(LONG);
	struct baton_comm *comm;

	setenv("BATON_TRANSPORT", "near", 1);
	share_id(rank);
	CHECK(baton_comm_create_id(size, rank, &shared->id, &options, &comm) ==
	      BATON_OK);
	assert_near(comm);
}

START_TEST(the_environment_asks_for_near)
{
	start_children(2, near_by_environment);
	finish(-1);
}
END_TEST

static void
refused_on_path(int rank, const char *path,
                const struct baton_comm_options *options,
                enum baton_status status, const char *words)
{
	struct baton_comm *comm = NULL;

	setenv("BATON_MESSAGE_PATH", path, 1);
	share_id(rank);
	CHECK(baton_comm_create_id(size, rank, &shared->id, options, &comm) ==
	      status);
	CHECK(says(words) && !comm);
}

static void
unlike_paths(int rank)
{
	const struct baton_comm_options options = on_host();

	refused_on_path(rank, rank ? "near" : "auto", &options,
	                BATON_ERR_INVALID,
	                "BATON_MESSAGE_PATH is not the same on all ranks: auto "
	                "on rank 0, near on rank 1");
}

static void
mpi_without_mpi(int rank)
{
	const struct baton_comm_options options = on_host();

	refused_on_path(rank, "mpi", &options, BATON_ERR_UNSUPPORTED,
	                "BATON_MESSAGE_PATH is mpi");
}

/* Threads of one process share no memory that near would be for. */
static void
nccl_by_near_on_threads(int rank)
{
	const struct baton_comm_options options = on_nccl(LONG);
	struct baton_comm *comms[2] = {NULL, NULL};

	setenv("BATON_MESSAGE_PATH", "near", 1);
	setenv("BATON_TRANSPORT", "nccl", 1);
	if (rank == 0) {
		CHECK(baton_comm_create_local(2, &options, comms) ==
		      BATON_ERR_UNSUPPORTED);
		CHECK(says("threads of one process, between which "
		           "BATON_TRANSPORT_NCCL"));
	}
}

/* What NCCL has not, near has: tags, a message that is short, a cancel; and puts are as before. */
static void
nccl_by_near(int rank)
{
	const struct baton_comm_options options = on_nccl(LONG);
	const unsigned near = BATON_CAP_TAGS | BATON_CAP_DIRECTIONS |
	                      BATON_CAP_SHORT | BATON_CAP_TRUNCATION |
	                      BATON_CAP_CANCEL | BATON_CAP_SELF |
	                      BATON_CAP_TENSORS;
	struct baton_comm_info info = {.size = sizeof(info)};
	struct baton_completion completion;
	struct baton_comm *comm;
	baton_request request;
	baton_stream stream;
	char bytes[64] = "near";

	setenv("BATON_MESSAGE_PATH", "near", 1);
	share_id(rank);
	CHECK(baton_comm_create_id(size, rank, &shared->id, &options, &comm) ==
	      BATON_OK);
	CHECK(baton_comm_query(comm, &info) == BATON_OK);
	CHECK(info.transport == BATON_TRANSPORT_NCCL);
	CHECK(info.message_paths == BATON_MESSAGE_PATH_NEAR);
	CHECK(strcmp(info.why_not_near, "") == 0);
	CHECK(baton_message_path(comm, 1 - rank) == BATON_MESSAGE_PATH_NEAR);
	CHECK((info.capabilities & near) == near);
	CHECK(info.capabilities & BATON_CAP_WINDOWS);
	CHECK(info.tag_max > 1 << 20);
	CHECK(baton_stream_create(comm, &stream) == BATON_OK);
	if (rank == 0)
		CHECK(baton_send(bytes, 5, BATON_UINT8, 1, info.tag_max, comm,
		                 stream, NULL, &request) == BATON_OK);
	else
		CHECK(baton_recv(bytes, 64, BATON_UINT8, 0, info.tag_max, comm,
		                 stream, NULL, &request) == BATON_OK);
	CHECK(baton_finish(&request, LONG, &completion) == BATON_OK);
	CHECK(completion.bytes == 5 && strcmp(bytes, "near") == 0);
	CHECK(baton_recv(bytes, 64, BATON_UINT8, 1 - rank, 7, comm, stream, NULL,
	                 &request) == BATON_OK);
	CHECK(baton_cancel(request) == BATON_OK);
	CHECK(baton_finish(&request, LONG, NULL) == BATON_ERR_CANCELED);
	CHECK(baton_stream_destroy(comm, stream) == BATON_OK);
	CHECK(baton_comm_destroy(comm) == BATON_OK);
}

START_TEST(near_is_beneath_nccl_where_it_is_forced)
{
	start_children(2, nccl_by_near);
	finish(-1);
}
END_TEST

START_TEST(a_path_of_messages_that_cannot_be_is_refused_on_all)
{
	static void (*const mains[])(int) = {unlike_paths, mpi_without_mpi,
	                                     nccl_by_near_on_threads};

	for (size_t i = 0; i < sizeof(mains) / sizeof(mains[0]); i++) {
		start_children(2, mains[i]);
		finish(-1);
	}
}
END_TEST

/* Each allocation of rank 0's, or of its hub's, fails in its turn, on the way to a refusal. */
static void
without_memory(int rank)
{
	unsigned long n = 0;

	for (;;) {
		struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
		struct baton_comm *comm = NULL;
		enum baton_status status;

		options.device = BATON_DEVICE_HOST;
		options.transport = BATON_TRANSPORT_LOCAL;
		options.timeout_ns = LONG;
		share_id(rank);
		if (rank == 0)
			batoni_mem_fail_at(++n);
		status = baton_comm_create_id(size, rank, &shared->id, &options,
		                              &comm);
		CHECK(status < 0 && comm == NULL && baton_last_error()[0]);
		/* None has waited for its time. */
		CHECK(status != BATON_ERR_TIMEOUT);
		while (batoni_tcp_hubs() > 0)
			sched_yield();
		if (rank == 0) {
			CHECK(batoni_mem_blocks() == 0);
			shared->over = batoni_mem_fail_at(0) < n;
			CHECK(!shared->over || status == BATON_ERR_UNSUPPORTED);
		}
		meet();
		if (shared->over)
			break;
		meet();
	}
	CHECK(rank || n > 10);
}

START_TEST(a_creation_without_memory_is_told_to_all)
{
	start_children(2, without_memory);
	finish(-1);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		processes_meet_by_an_id,
		threads_and_processes_meet_by_an_id,
		what_differs_is_told_to_all,
		a_rank_that_does_not_come_is_told_to_all,
		a_death_ends_what_waits_for_others,
		processes_meet_by_their_names,
		who_is_missing_is_told_while_others_wait,
		an_interface_that_is_not_there_is_told_with_those_that_are,
		a_rank_0_that_does_not_listen_is_told,
		the_range_of_ports_is_told,
		another_secret_is_told,
		what_is_missing_is_named,
		a_refusal_is_told_to_all,
		memory_of_the_host_goes_near,
		the_environment_asks_for_near,
		a_path_of_messages_that_cannot_be_is_refused_on_all,
		near_is_beneath_nccl_where_it_is_forced,
		a_creation_without_memory_is_told_to_all,
	};

	return RUN_TESTS("tcp_jobs", tests);
}
