/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi_world.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the world and of the calls of MPI; mpi_world.h says what each is. */
struct world world;
int texts_asked;
unsigned tested;
unsigned types_made;
const char *failing;
struct reach reach;
int highest_tag;

/* Baton's calls come here first. */
int
MPI_Error_string(int code, char *text, int *length)
{
	texts_asked++;
	return PMPI_Error_string(code, text, length);
}

int
MPI_Testsome(int n, MPI_Request *requests, int *done, int *indices,
             MPI_Status *statuses)
{
	tested += (unsigned)n;
	return PMPI_Testsome(n, requests, done, indices, statuses);
}

int
MPI_Type_create_hindexed(int n, const int *lengths, const MPI_Aint *places,
                         MPI_Datatype type, MPI_Datatype *made_p)
{
	types_made++;
	return PMPI_Type_create_hindexed(n, lengths, places, type, made_p);
}

static bool
fails(const char *name)
{
	reach.outside += reach.watched && reach.entered == 0;
	return failing && strcmp(failing, name) == 0;
}

int
MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
	tested++;
	return fails("MPI_Test") ? MPI_ERR_INTERN
	                         : PMPI_Test(request, done, status);
}

int
MPI_Cancel(MPI_Request *request)
{
	return fails("MPI_Cancel") ? MPI_ERR_INTERN : PMPI_Cancel(request);
}

int
MPI_Iprobe(int source, int tag, MPI_Comm comm, int *here, MPI_Status *status)
{
	return fails("MPI_Iprobe")
	               ? MPI_ERR_INTERN
	               : PMPI_Iprobe(source, tag, comm, here, status);
}

int
MPI_Irecv(void *buffer, int n, MPI_Datatype type, int source, int tag,
          MPI_Comm comm, MPI_Request *request)
{
	return fails("MPI_Irecv") ? MPI_ERR_INTERN
	                          : PMPI_Irecv(buffer, n, type, source, tag,
	                                       comm, request);
}

int
MPI_Issend(const void *buffer, int n, MPI_Datatype type, int target, int tag,
           MPI_Comm comm, MPI_Request *request)
{
	return fails("MPI_Issend") ? MPI_ERR_INTERN
	                           : PMPI_Issend(buffer, n, type, target, tag,
	                                         comm, request);
}

int
MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
	return fails("MPI_Ibarrier") ? MPI_ERR_INTERN
	                             : PMPI_Ibarrier(comm, request);
}

int
MPI_Iallreduce(const void *mine, void *all, int n, MPI_Datatype type, MPI_Op op,
               MPI_Comm comm, MPI_Request *request)
{
	return fails("MPI_Iallreduce")
	               ? MPI_ERR_INTERN
	               : PMPI_Iallreduce(mine, all, n, type, op, comm, request);
}

int
MPI_Iallgather(const void *mine, int n, MPI_Datatype type, void *all, int m,
               MPI_Datatype types, MPI_Comm comm, MPI_Request *request)
{
	return fails("MPI_Iallgather")
	               ? MPI_ERR_INTERN
	               : PMPI_Iallgather(mine, n, type, all, m, types, comm,
	                                 request);
}

int
MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *found)
{
	int code = PMPI_Comm_get_attr(comm, key, value, found);

	if (highest_tag && key == MPI_TAG_UB)
		*(int **)value = &highest_tag;
	return code;
}

/* No message may be left in a communicator that is freed: MPICH gives its context to the
 * next one, where the message would match. */
int
MPI_Comm_free(MPI_Comm *comm)
{
	MPI_Status status;
	int here;

	if (*comm != world.side)
		fails("MPI_Comm_free");
	for (int i = 0; i < 20; i++) {
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, *comm, &here, &status);
		if (here)
			ck_abort_msg("a message of rank %d on tag %d is left",
			             status.MPI_SOURCE, status.MPI_TAG);
	}
	return PMPI_Comm_free(comm);
}

static void
host_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
          enum baton_status status)
{
	struct op *op = (struct op *)(void *)transfer;

	ck_assert_ptr_eq(upcalls, &world.upcalls);
	ck_assert_uint_eq(op->ends, 0);
	op->ends++;
	op->status = status;
}

static void
host_broken(struct batoni_upcalls *upcalls, enum baton_status fatal,
            const char *call, int code, const char *text)
{
	ck_assert_ptr_eq(upcalls, &world.upcalls);
	ck_assert_ptr_nonnull(call);
	ck_assert_int_ne(code, MPI_SUCCESS);
	world.broken++;
	world.broken_status = fatal;
	world.broken_call = call;
	strncpy(world.broken_text, text, sizeof(world.broken_text) - 1);
}

const struct batoni_transport_config config = {
	.slots = SLOTS + HIDDEN_SLOTS,
	.hidden_tags = HIDDEN_TAGS,
	.segment_bytes = SEGMENT_BYTES,
};

/* What the creation does between the steps of opening. */
static void
meet(struct batoni_mpi *mpi, MPI_Comm comm)
{
	struct batoni_segments_card mine, cards[2];
	const struct batoni_cards all = {(const void *)cards, sizeof(mine)};

	batoni_segments_write_card(&mpi->segments, &mine);
	MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, cards,
	              (int)sizeof(mine), MPI_BYTE, comm);
	batoni_segments_meet(&mpi->segments, &mpi->base, &all);
	MPI_Barrier(comm);
	batoni_segments_met(&mpi->segments, &mpi->base);
}

void
open_with(const struct batoni_transport_config *opened)
{
	struct batoni_transport_config shared = *opened;
	MPI_Comm comm;

	shared.segment_bytes = SEGMENT_BYTES;
	memset(&world, 0, sizeof(world));
	world.upcalls.done = host_done;
	world.upcalls.broken = host_broken;
	MPI_Comm_dup(MPI_COMM_WORLD, &world.side);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(comm, &world.rank);
	world.peer = 1 - world.rank;
	ck_assert_int_eq(batoni_mpi_alloc(opened, 2, &world.mpi), BATON_OK);
	ck_assert_int_eq(batoni_segments_make(&world.mpi->segments,
	                                      &world.mpi->base, 2, &shared),
	                 BATON_OK);
	ck_assert_int_eq(batoni_mpi_attach(world.mpi, comm, MPI_THREAD_MULTIPLE,
	                                   BATON_PROGRESS_AUTO),
	                 BATON_OK);
	meet(world.mpi, world.side);
	world.transport = &world.mpi->base;
	world.transport->upcalls = &world.upcalls;
}

void
open_world(void)
{
	open_with(&config);
}

enum baton_status
	whole(enum baton_status (*slot)(struct batoni_transport *transport))
{
	enum baton_status status;

	while ((status = slot(world.transport)) == BATON_PENDING)
		sched_yield();
	return status;
}

void
close_world(void)
{
	ck_assert_uint_eq(world.transport->messages.load.in_flight, 0);
	ck_assert_uint_eq(world.transport->messages.load.moving, 0);
	ck_assert_uint_eq(world.mpi->count, 0);
	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	ck_assert_int_eq(whole(world.transport->ops->clearing->clear), BATON_OK);
	world.transport->ops->close(world.transport, false);
	MPI_Comm_free(&world.side);
}

struct op *
issue_message(enum batoni_direction direction, void *buffer, size_t bytes, int peer,
              int tag)
{
	struct op *op = &world.ops[world.used];

	ck_assert_uint_lt(world.used, SLOTS + HIDDEN_SLOTS);
	memset(op, 0, sizeof(*op));
	op->transfer.buffer = buffer;
	op->transfer.bytes = bytes;
	op->transfer.peer = peer;
	op->transfer.tag = tag;
	op->transfer.slot = world.used++ & 0xffffffu;
	op->transfer.direction = (unsigned)direction & 3u;
	op->transfer.type = world.type;
	op->transfer.done_bytes = SIZE_MAX;
	op->status = batoni_path_issue(&world.transport->messages,
	                               &op->transfer);
	if (op->status != BATON_PENDING)
		op->ends++;
	return op;
}

struct op *
post(void *buffer, size_t bytes, int peer, int tag)
{
	return issue_message(BATONI_RECV, buffer, bytes, peer, tag);
}

struct op *
sent(const void *buffer, size_t bytes, int peer, int tag)
{
	union {
		const void *read;
		void *pointer;
	} only = {.read = buffer};

	return issue_message(BATONI_SEND, only.pointer, bytes, peer, tag);
}

void
finish(struct op *op, enum baton_status status, size_t bytes)
{
	while (!op->ends) {
		ck_assert_uint_gt(world.transport->messages.load.in_flight, 0);
		if (world.transport->messages.ops->test(
			    &world.transport->messages) == 0)
			sched_yield();
	}
	if (op->status != status)
		ck_abort_msg("it ended in %s, not %s: %s, code %d (%s)",
		             baton_status_name(op->status),
		             baton_status_name(status),
		             op->transfer.native_call
		                     ? op->transfer.native_call
		                     : "no call",
		             op->transfer.native_code, world.broken_text);
	ck_assert_uint_eq(op->transfer.done_bytes, bytes);
}

enum baton_status
take_back(struct op *op)
{
	return batoni_path_take_back(&world.transport->messages, &op->transfer);
}

void
take_all_back(void)
{
	for (uint32_t i = 0; i < world.used; i++) {
		if (!world.ops[i].ends)
			ck_assert_int_eq(take_back(&world.ops[i]),
			                 BATON_ERR_CANCELED);
	}
}

void
barrier(void)
{
	MPI_Barrier(world.side);
}

void
await_arrival(int tag)
{
	int here = 0;

	for (;;) {
		MPI_Iprobe(world.peer, tag, world.mpi->comm, &here,
		           MPI_STATUS_IGNORE);
		if (here)
			return;
		sched_yield();
	}
}

unsigned char *
room(size_t bytes)
{
	unsigned char *buffer = malloc(bytes + GUARD);

	ck_assert_ptr_nonnull(buffer);
	memset(buffer, CANARY, bytes + GUARD);
	return buffer;
}

unsigned char
pattern(size_t i, int seed)
{
	return (unsigned char)((i * 7 + i / 251 + (size_t)seed) % 251);
}

unsigned char *
message(size_t bytes, int seed)
{
	unsigned char *buffer = room(bytes);

	for (size_t i = 0; i < bytes; i++)
		buffer[i] = pattern(i, seed);
	return buffer;
}

void
check_message(const unsigned char *buffer, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i++) {
		if (buffer[i] != pattern(i, seed))
			ck_abort_msg("byte %zu of %zu is %u, not %u", i, bytes,
			             buffer[i], pattern(i, seed));
	}
}

void
check_guard(const unsigned char *buffer, size_t bytes, size_t capacity)
{
	for (size_t i = bytes; i < capacity + GUARD; i++) {
		if (buffer[i] != CANARY)
			ck_abort_msg("byte %zu was written, beyond %zu", i,
			             bytes);
	}
}

void
have_few_tags(uint32_t segment_tags)
{
	world.mpi->segment_tags = segment_tags;
	barrier();
}

void
close_broken(const char *text)
{
	ck_assert_uint_eq(world.broken, 1);
	ck_assert_int_eq(world.broken_status, BATON_ERR_MPI);
	ck_assert_ptr_nonnull(strstr(world.broken_text, text));
	barrier();
	world.transport->ops->close(world.transport, true);
	MPI_Comm_free(&world.side);
}

void
close_aborted(long blocks)
{
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(batoni_mem_blocks(), blocks - BLOCKS);
	barrier();
	MPI_Comm_free(&world.side);
}

void *
zeroed(size_t n, size_t size)
{
	void *memory = calloc(n + 1, size);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

/* One test at a time: when it fails here, the other rank may be waiting in it for
 * what this one will never send.  For the same reason a test takes its world down
 * by its last line, not in a fixture. */
static void
run_in_process(const TTest *test)
{
	Suite *suite = suite_create("mpi_transport");
	TCase *tcase = tcase_create(test->name);
	SRunner *runner = srunner_create(suite);

	tcase_add_checked_fixture(tcase, open_world, NULL);
	tcase_add_test(tcase, test);
	suite_add_tcase(suite, tcase);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	if (srunner_ntests_failed(runner)) {
		srunner_print(runner, CK_NORMAL);
		fflush(stdout);
		MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
	}
	if (world.rank == 0) {
		printf("ok %s\n", test->name);
		fflush(stdout);
	}
	srunner_free(runner);
}

void
run_cases(const TTest *const tests[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		run_in_process(tests[i]);
}
