/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of device memory between two processes of one host by one copy (transport/staging/mapped.c),
 * over the driver's simulator and memory that the ranks share.
 *
 * The test is rank 0; rank 1 is a child that it makes before the first call of the driver.  The two meet
 * at a barrier.  A check of the child's that fails ends it, and so the test.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_gpu.h"
#include "cuda_world.h"
#include "mem.h"
#include "shared.h"
#include "shared_memory.h"

#define LONG MIB
#define TRIES 20000 /* messages until one is mapped; each waits for its end */

static struct shared {
	struct baton_unique_id id;
	pthread_barrier_t barrier;
	_Atomic bool mapped; /* the last message was one copy */
	_Atomic bool began;  /* a copy stands */
	_Atomic int copies[2]; /* of both ranks, of some messages */
} *shared;

static int rank;
static pid_t child;
static struct baton_comm *comm;

/* ---- the two ranks ---- */

static void
meet(void)
{
	pthread_barrier_wait(&shared->barrier);
}

static void
create(void)
{
	struct baton_comm_options options = cuda_world_options();

	options.transport = BATON_TRANSPORT_NEAR;
	options.timeout_ns = LONG_NS;
	if (rank == 0)
		baton_ok(baton_unique_id_create(&shared->id));
	meet();
	baton_ok(baton_comm_create_id(2, rank, &shared->id, &options, &comm));
}

static void
destroy(void)
{
	baton_ok(baton_comm_destroy(comm));
	comm = NULL;
}

/* Nothing is left: no mapping, no descriptor that keeps memory. */
static void
end_without_rest(void)
{
	if (comm)
		destroy();
	ck_assert_uint_eq(batoni_mappings(), 0);
	ck_assert_int_eq(cw.sim->sim_live("allocations"), 0);
	ck_assert_int_eq(cw.sim->sim_live("mappings"), 0);
	ck_assert_int_eq(cw.sim->sim_live("opened"), 0);
	/* Rank 0 relays for the other until that has left too. */
	while (batoni_mem_blocks() > 0)
		sched_yield();
	cuda_world_end();
}

/* A rank that has failed does not come to the barrier. */
static void
child_ended(int signal, siginfo_t *about, void *context)
{
	(void)signal;
	(void)context;
	if (about->si_code == CLD_EXITED && about->si_status != 0)
		_exit(3);
}

/* Make rank 1, which runs `other` and ends. */
static void
begin(void (*other)(void))
{
	struct sigaction action = {.sa_sigaction = child_ended,
	                           .sa_flags = SA_SIGINFO | SA_RESTART};

	shared = shared_alloc(sizeof(*shared));
	shared_barrier(&shared->barrier, 2);
	sigaction(SIGCHLD, &action, NULL);
	child = fork();
	ck_assert_int_ge(child, 0);
	rank = child == 0;
	if (rank == 1) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
	}
	cuda_world_begin();
	create();
	if (rank == 1) {
		other();
		_exit(0);
	}
}

/* The child has ended, in order unless it was killed. */
static void
await_child(bool killed)
{
	int status = -1;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(killed ? WIFSIGNALED(status)
	                 : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static long
copies(void)
{
	return uses_of("cuMemcpyAsync", "cuMemcpyBatchAsync_v2",
	               "cuMemcpyBatchAsync");
}

static unsigned char *
alloc(size_t bytes)
{
	void *memory = NULL;

	baton_ok(baton_mem_alloc(comm, bytes, &memory));
	return memory;
}

static baton_request
send_to(const void *from, size_t bytes, int tag)
{
	baton_request request = 0;

	baton_ok(baton_send(from, bytes, BATON_UINT8, 1 - rank, tag, comm,
	                    cw.streams[0], NULL, &request));
	return request;
}

/* Detached: its stream holds up nothing. */
static baton_request
recv_from(void *to, size_t bytes, int tag)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request request = 0;

	detached.flags = BATON_OP_DETACHED;
	baton_ok(baton_recv(to, bytes, BATON_UINT8, 1 - rank, tag, comm,
	                    cw.streams[0], &detached, &request));
	return request;
}

static enum baton_status
finish(baton_request request, unsigned *flags_p)
{
	struct baton_completion completion = {.flags = 0};
	enum baton_status status = baton_finish(&request, LONG_NS, &completion);

	if (flags_p)
		*flags_p = completion.flags;
	return status;
}

/* Rank 0 sends, and this is rank 1's end or rank 0's.  The message's bytes are right. */
static void
pass(unsigned char *memory, size_t bytes, unsigned seed)
{
	if (rank == 0) {
		cuda_world_fill(memory, bytes, seed);
		baton_ok(finish(send_to(memory, bytes, 3), NULL));
	} else {
		baton_ok(finish(recv_from(memory, bytes, 3), NULL));
		cuda_world_expect(memory, bytes, seed);
	}
}

/* Pass messages until one is one copy of rank 1's; false: none was. */
static bool
pass_until_mapped(unsigned char *memory, size_t bytes, unsigned most)
{
	for (unsigned i = 0; i < most; i++) {
		long before = copies();

		pass(memory, bytes, i);
		if (rank == 0)
			atomic_store(&shared->copies[0],
			             (int)(copies() - before));
		meet();
		if (rank == 1)
			atomic_store(&shared->mapped,
			             copies() - before == 1 &&
			                     shared->copies[0] == 0);
		meet();
		if (atomic_load(&shared->mapped))
			return true;
	}
	return false;
}

/* ---- one copy ---- */

static void
count_ten(unsigned char *memory)
{
	long before = copies();

	for (unsigned i = 0; i < 10; i++)
		pass(memory, LONG - i, 100 + i);
	ck_assert_int_eq(copies() - before, rank == 0 ? 0 : 10);
}

static void
one_copy(void)
{
	unsigned char *memory = alloc(LONG);

	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	count_ten(memory);
	/* A part of it, and not from its beginning. */
	pass(memory + 4099, 100000, 7);
	ck_assert_uint_eq(batoni_mappings(), (unsigned)rank);
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(a_long_message_between_processes_is_one_copy)
{
	begin(one_copy);
	one_copy();
	await_child(false);
}
END_TEST

static void
short_and_long(void)
{
	unsigned char *memory = alloc(LONG), *other = alloc(LONG);
	baton_request requests[8];

	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	if (rank == 0)
		cuda_world_fill(memory, LONG, 1);
	/* All on one tag: 10, 90000, 11, 90001 ... bytes. */
	for (int i = 0; i < 8; i++) {
		size_t bytes = (i % 2 ? 90000u : 10u) + (size_t)i;
		unsigned char *at = memory + (size_t)i * 100000;

		requests[i] = rank == 0 ? send_to(memory, bytes, 5)
		                        : recv_from(at, 99999, 5);
	}
	for (int i = 0; i < 8; i++) {
		struct baton_completion completion;

		baton_ok(baton_finish(&requests[i], LONG_NS, &completion));
		ck_assert_uint_eq(completion.bytes,
		                  (i % 2 ? 90000u : 10u) + (size_t)i);
		if (rank == 1)
			cuda_world_expect(memory + (size_t)i * 100000,
			                  completion.bytes, 1);
	}
	/* A receive that is too short takes no byte, and the send ends. */
	if (rank == 0)
		baton_ok(finish(send_to(memory, LONG, 6), NULL));
	else
		ck_assert_int_eq(finish(recv_from(other, LONG - 1, 6), NULL),
		                 BATON_ERR_TRUNCATED);
	baton_ok(baton_mem_free(comm, memory));
	baton_ok(baton_mem_free(comm, other));
	end_without_rest();
}

START_TEST(mapped_messages_keep_the_order_of_their_tag)
{
	begin(short_and_long);
	short_and_long();
	await_child(false);
}
END_TEST

static void
both_ways(void)
{
	unsigned char *from = alloc(LONG), *to = alloc(LONG);
	bool mapped = false;

	cuda_world_fill(from, LONG, (unsigned)rank);
	for (unsigned i = 0; i < TRIES && !mapped; i++) {
		long before = copies();
		baton_request receive = recv_from(to, LONG, 9);

		baton_ok(finish(send_to(from, LONG, 9), NULL));
		baton_ok(finish(receive, NULL));
		cuda_world_expect(to, LONG, (unsigned)(1 - rank));
		atomic_store(&shared->copies[rank], (int)(copies() - before));
		meet();
		mapped = shared->copies[0] == 1 && shared->copies[1] == 1;
		meet();
	}
	ck_assert(mapped);
	baton_ok(baton_mem_free(comm, from));
	baton_ok(baton_mem_free(comm, to));
	end_without_rest();
}

START_TEST(both_ranks_map_each_other_s_memory)
{
	begin(both_ways);
	both_ways();
	await_child(false);
}
END_TEST

/* ---- memory that is freed ---- */

static void
freed(void)
{
	unsigned char *memory = alloc(LONG);

	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	/* Of the same length, so that it may be at the same address. */
	for (unsigned round = 0; round < 3; round++) {
		if (rank == 0) {
			baton_ok(baton_mem_free(comm, memory));
			memory = alloc(LONG);
		}
		ck_assert(pass_until_mapped(memory, LONG, TRIES));
		ck_assert_uint_eq(batoni_mappings(), (unsigned)rank);
	}
	/* The sender keeps nothing of what it has freed, whoever has it mapped. */
	baton_ok(baton_mem_free(comm, memory));
	meet();
	ck_assert_int_eq(cw.sim->sim_live("allocations"), rank);
	end_without_rest();
}

START_TEST(memory_that_is_freed_is_unmapped_and_what_has_its_address_is_another_block)
{
	begin(freed);
	freed();
	await_child(false);
}
END_TEST

static void
legacy(void)
{
	/* It is of cuMemAlloc. */
	unsigned char *memory = rank == 0 ? cw.from : cw.to;

	ck_assert(!pass_until_mapped(memory, LONG, 50));
	ck_assert_uint_eq(batoni_mappings(), 0);
	end_without_rest();
}

START_TEST(memory_that_must_not_be_freed_while_it_is_mapped_goes_in_pieces)
{
	begin(legacy);
	legacy();
	await_child(false);
}
END_TEST

static void
promised(void)
{
	unsigned char *memory = rank == 0 ? cw.from : cw.to;

	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	count_ten(memory);
	/* Behind the communicator it may be freed at once. */
	destroy();
	cu_ok(cw.sim->mem_free(cuda_world_address(cw.from)));
	end_without_rest();
}

START_TEST(unless_the_program_promises_that)
{
	setenv("BATON_STAGING_MAPS", "all", 1);
	begin(promised);
	promised();
	await_child(false);
}
END_TEST

static void
unmapped(void)
{
	unsigned char *memory = alloc(LONG);

	ck_assert(!pass_until_mapped(memory, LONG, 50));
	ck_assert_uint_eq(batoni_mappings(), 0);
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(none_turns_it_off)
{
	setenv("BATON_STAGING_MAPS", "none", 1);
	begin(unmapped);
	unmapped();
	await_child(false);
}
END_TEST

/* What the driver refuses, on either side, goes in pieces. */
START_TEST(what_the_driver_refuses_goes_in_pieces)
{
	static const char *const calls[] = {
		"cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
		"cuMemMap", "cuMemGetAddressRange_v2"};
	char fault[100];

	snprintf(fault, sizeof(fault), "%s", calls[_i]);
	setenv("CUDASIM_LACKS", fault, 1);
	begin(unmapped);
	unmapped();
	await_child(false);
}
END_TEST

/* ---- the bound ---- */

enum { BLOCKS = 66, SMALL = 5000 };

static void
many(void)
{
	unsigned char *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = alloc(SMALL);
	for (int i = 0; i < BLOCKS; i++) {
		ck_assert(pass_until_mapped(blocks[i], SMALL, TRIES));
		ck_assert_uint_le(batoni_mappings(), 64);
	}
	if (rank == 1)
		ck_assert_uint_ge(batoni_mappings(), 32);
	/* The longest unused one went, and comes back. */
	ck_assert(pass_until_mapped(blocks[0], SMALL, TRIES));
	for (int i = 0; i < BLOCKS; i++)
		baton_ok(baton_mem_free(comm, blocks[i]));
	end_without_rest();
}

START_TEST(at_most_64_blocks_are_mapped)
{
	begin(many);
	many();
	await_child(false);
}
END_TEST

/* ---- what ends while the copy stands ---- */

/* Rank 1's copy of the message stands, and both ranks know that: what either does next the other's checks
 * here do not see. */
static baton_request
begin_standing(unsigned char *memory)
{
	baton_request request;
	long before;

	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	if (rank == 0) {
		cuda_world_fill(memory, LONG, 77);
		request = send_to(memory, LONG, 3);
		while (!atomic_load(&shared->began))
			ck_assert_int_eq(baton_test(request, NULL),
			                 BATON_PENDING);
		meet();
		return request;
	}
	cw.sim->sim_set("copies", 0);
	before = copies();
	request = recv_from(memory, LONG, 3);
	while (copies() == before)
		ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
	atomic_store(&shared->began, true);
	meet();
	return request;
}

static void
canceled(void)
{
	unsigned char *memory = alloc(LONG);
	baton_request request = begin_standing(memory);
	unsigned flags;

	if (rank == 0) {
		baton_ok(baton_cancel(request));
		ck_assert_int_eq(finish(request, &flags), BATON_ERR_CANCELED);
		ck_assert_uint_ne(flags & BATON_COMPLETION_LENT, 0);
		meet();
	} else {
		meet();
		/* It has its message. */
		baton_ok(baton_cancel(request));
		ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
		cw.sim->sim_set("copies", 1);
		baton_ok(finish(request, NULL));
		cuda_world_expect(memory, LONG, 77);
	}
	meet();
	/* All goes on. */
	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(both_sides_are_lent_until_the_copy_has_ended)
{
	begin(canceled);
	canceled();
	await_child(false);
}
END_TEST

static int aborts; /* the rank that does */

static void
aborted(void)
{
	unsigned char *memory = alloc(LONG);
	baton_request request = begin_standing(memory);
	unsigned flags;

	if (rank == aborts) {
		baton_ok(baton_comm_abort(comm));
		ck_assert_int_eq(finish(request, &flags), BATON_ERR_ABORTED);
		ck_assert_uint_ne(flags & BATON_COMPLETION_LENT, 0);
		/* Until then its buffer is lent. */
		if (rank == 1) {
			cw.sim->sim_set("copies", 1);
			cw.sim->sim_settle(false);
		}
		baton_ok(baton_mem_free(comm, memory));
		destroy();
		meet();
	} else {
		enum baton_status status;

		meet();
		if (rank == 1)
			cw.sim->sim_set("copies", 1);
		status = finish(request, NULL);

		/* What a rank has matched arrives also when it has aborted, while its engine
		 * looks. */
		ck_assert(status == BATON_ERR_PEER ||
		          (status == BATON_OK && rank == 0));
		if (baton_comm_status(comm) == BATON_OK)
			baton_ok(baton_comm_abort(comm));
		baton_ok(baton_mem_free(comm, memory));
		destroy();
	}
	end_without_rest();
}

START_TEST(a_rank_that_aborts_while_the_copy_stands_ends_both)
{
	aborts = _i;
	begin(aborted);
	aborted();
	await_child(false);
}
END_TEST

/* The receiver is killed. */
static void
killed_receiver(void)
{
	unsigned char *memory = alloc(LONG);
	baton_request request = begin_standing(memory);

	if (rank == 1)
		pause();
	kill(child, SIGKILL);
	ck_assert_int_eq(finish(request, NULL), BATON_ERR_PEER);
	baton_ok(baton_comm_abort(comm));
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(a_send_ends_in_peer_when_its_receiver_dies_in_the_copy)
{
	begin(killed_receiver);
	killed_receiver();
	await_child(true);
}
END_TEST

/* The sender is killed: here rank 1 is the one to check, and the test's process, of which rank 0 is a
 * child. */
static void
killed_sender(void)
{
	unsigned char *memory = alloc(LONG);
	baton_request request = begin_standing(memory);

	if (rank == 0) {
		while (true)
			pause();
	}
	kill(child, SIGKILL);
	await_child(true);
	cw.sim->sim_set("copies", 1);
	ck_assert_int_eq(finish(request, NULL), BATON_ERR_PEER);
	baton_ok(baton_comm_abort(comm));
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(a_receive_ends_in_peer_when_its_sender_dies_in_the_copy)
{
	shared = shared_alloc(sizeof(*shared));
	shared_barrier(&shared->barrier, 2);
	child = fork();
	rank = child != 0;
	if (rank == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
	}
	cuda_world_begin();
	create();
	killed_sender();
}
END_TEST

/* ---- other GPUs ---- */

static void
begin_on_other_gpu(void (*other)(void), const char *peers)
{
	setenv("CUDASIM_PEER", peers, 1);
	begin(other);
}

static void
create_on(int device)
{
	struct baton_comm_options options = cuda_world_options();

	destroy();
	options.cuda_device = device;
	options.transport = BATON_TRANSPORT_NEAR;
	options.timeout_ns = LONG_NS;
	if (rank == 0)
		baton_ok(baton_unique_id_create(&shared->id));
	meet();
	baton_ok(baton_comm_create_id(2, rank, &shared->id, &options, &comm));
	for (int i = 0; i < 2; i++) {
		CUcontext context;

		cu_ok(cw.sim->primary_retain(&context, device));
		cu_ok(cw.sim->context_push(context));
		cw.streams[i] = cuda_world_stream(BATONI_CU_STREAM_NON_BLOCKING);
	}
}

static void
two_gpus(void)
{
	unsigned char *memory;

	create_on(rank);
	memory = alloc(LONG);
	ck_assert(pass_until_mapped(memory, LONG, TRIES));
	count_ten(memory);
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(two_gpus_that_reach_each_other_make_one_copy)
{
	begin_on_other_gpu(two_gpus, "1");
	two_gpus();
	await_child(false);
}
END_TEST

static void
two_apart(void)
{
	unsigned char *memory;

	create_on(rank);
	memory = alloc(LONG);
	ck_assert(!pass_until_mapped(memory, LONG, 50));
	ck_assert_uint_eq(batoni_mappings(), 0);
	baton_ok(baton_mem_free(comm, memory));
	end_without_rest();
}

START_TEST(two_gpus_that_do_not_go_in_pieces)
{
	setenv("CUDASIM_PEERS", "0", 1);
	begin(two_apart);
	two_apart();
	await_child(false);
}
END_TEST

/* They say that they reach each other, and the copy is refused: the trial finds it. */
START_TEST(nor_do_those_whose_copies_are_refused)
{
	setenv("CUDASIM_PEER_COPIES", "0", 1);
	begin(two_apart);
	two_apart();
	await_child(false);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("cuda_mapped");
	TCase *tcase = tcase_create("cuda_mapped");

	tcase_add_test(tcase, a_long_message_between_processes_is_one_copy);
	tcase_add_test(tcase, mapped_messages_keep_the_order_of_their_tag);
	tcase_add_test(tcase, both_ranks_map_each_other_s_memory);
	tcase_add_test(
		tcase,
		memory_that_is_freed_is_unmapped_and_what_has_its_address_is_another_block);
	tcase_add_test(
		tcase, memory_that_must_not_be_freed_while_it_is_mapped_goes_in_pieces);
	tcase_add_test(tcase, unless_the_program_promises_that);
	tcase_add_test(tcase, none_turns_it_off);
	tcase_add_loop_test(tcase, what_the_driver_refuses_goes_in_pieces, 0, 4);
	tcase_add_test(tcase, at_most_64_blocks_are_mapped);
	tcase_add_test(tcase, both_sides_are_lent_until_the_copy_has_ended);
	tcase_add_loop_test(tcase, a_rank_that_aborts_while_the_copy_stands_ends_both,
	                    0, 2);
	tcase_add_test(tcase,
	               a_send_ends_in_peer_when_its_receiver_dies_in_the_copy);
	tcase_add_test(tcase,
	               a_receive_ends_in_peer_when_its_sender_dies_in_the_copy);
	tcase_add_test(tcase, two_gpus_that_reach_each_other_make_one_copy);
	tcase_add_test(tcase, two_gpus_that_do_not_go_in_pieces);
	tcase_add_test(tcase, nor_do_those_whose_copies_are_refused);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
