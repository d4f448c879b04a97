/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI transport by itself, two ranks, without the engine: a small driver
 * calls its slots and notes what they say.
 *
 * Both ranks run the same tests.  They keep in step by the messages of the test
 * and by barriers on a communicator of their own, never by time.
 */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem.h"
#include "mpi_transport.h"
#include "tensors.h"

#define SLOTS 1024u
#define HIDDEN_SLOTS 8u
#define HIDDEN_TAGS 6
#define SEGMENT_BYTES ((size_t)8256)
#define HEADER ((size_t)BATONI_MPI_HEADER_BYTES)
#define CANARY 0xa5
/* Of the memory that a transport takes, and the pipe of the other rank's process. */
#define BLOCKS 14
#define GUARD 4096u

/* One transfer of the test. */
struct op {
	struct batoni_transfer transfer;
	enum baton_status status;
	unsigned ends;
};

/* Everything that a test uses; made afresh for each. */
static struct world {
	MPI_Comm side; /* for the test's own barriers */
	int rank, peer;
	int type; /* of messages that are issued */
	struct batoni_mpi *mpi;
	struct batoni_transport *transport;
	struct batoni_upcalls upcalls;
	unsigned broken;
	enum baton_status broken_status;
	char broken_text[MPI_MAX_ERROR_STRING];
	const char *broken_call;
	struct op ops[SLOTS + HIDDEN_SLOTS];
	uint32_t used;
} world;

static int texts_asked;

/* Baton's calls come here first. */
int
MPI_Error_string(int code, char *text, int *length)
{
	texts_asked++;
	return PMPI_Error_string(code, text, length);
}

/* Requests that the transport has had tested. */
static unsigned tested;

int
MPI_Testsome(int n, MPI_Request *requests, int *done, int *indices,
             MPI_Status *statuses)
{
	tested += (unsigned)n;
	return PMPI_Testsome(n, requests, done, indices, statuses);
}

/* Derived types that the transport has made. */
static unsigned types_made;

int
MPI_Type_create_hindexed(int n, const int *lengths, const MPI_Aint *places,
                         MPI_Datatype type, MPI_Datatype *made_p)
{
	types_made++;
	return PMPI_Type_create_hindexed(n, lengths, places, type, made_p);
}

/* Not NULL: the function of this name fails, and does nothing. */
static const char *failing;

/* Of a transport whose buffers may be memory of a device: calls of MPI that were made without
 * having entered it. */
static struct {
	bool watched;
	int entered;
	unsigned outside;
} reach;

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

/* Not 0: MPI has tags up to this one. */
static int highest_tag;

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

/* ---- the driver ---- */

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

static const struct batoni_transport_config config = {
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

static void
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

static void
open_world(void)
{
	open_with(&config);
}

/* Call the slot until it says something else than PENDING. */
static enum baton_status
	whole(enum baton_status (*slot)(struct batoni_transport *transport))
{
	enum baton_status status;

	while ((status = slot(world.transport)) == BATON_PENDING)
		sched_yield();
	return status;
}

static void
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

static struct op *
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

static struct op *
post(void *buffer, size_t bytes, int peer, int tag)
{
	return issue_message(BATONI_RECV, buffer, bytes, peer, tag);
}

static struct op *
sent(const void *buffer, size_t bytes, int peer, int tag)
{
	union {
		const void *read;
		void *pointer;
	} only = {.read = buffer};

	return issue_message(BATONI_SEND, only.pointer, bytes, peer, tag);
}

static void
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

static enum baton_status
take_back(struct op *op)
{
	return batoni_path_take_back(&world.transport->messages, &op->transfer);
}

/* All that have not ended; nothing has come for them. */
static void
take_all_back(void)
{
	for (uint32_t i = 0; i < world.used; i++) {
		if (!world.ops[i].ends)
			ck_assert_int_eq(take_back(&world.ops[i]),
			                 BATON_ERR_CANCELED);
	}
}

static void
barrier(void)
{
	MPI_Barrier(world.side);
}

/* Wait until a message on the tag is here, unreceived. */
static void
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

/* ---- buffers ---- */

/* bytes and a guard behind them; all canaries. */
static unsigned char *
room(size_t bytes)
{
	unsigned char *buffer = malloc(bytes + GUARD);

	ck_assert_ptr_nonnull(buffer);
	memset(buffer, CANARY, bytes + GUARD);
	return buffer;
}

static unsigned char
pattern(size_t i, int seed)
{
	return (unsigned char)((i * 7 + i / 251 + (size_t)seed) % 251);
}

static unsigned char *
message(size_t bytes, int seed)
{
	unsigned char *buffer = room(bytes);

	for (size_t i = 0; i < bytes; i++)
		buffer[i] = pattern(i, seed);
	return buffer;
}

static void
check_message(const unsigned char *buffer, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i++) {
		if (buffer[i] != pattern(i, seed))
			ck_abort_msg("byte %zu of %zu is %u, not %u", i, bytes,
			             buffer[i], pattern(i, seed));
	}
}

/* Nothing was written from bytes on. */
static void
check_guard(const unsigned char *buffer, size_t bytes, size_t capacity)
{
	for (size_t i = bytes; i < capacity + GUARD; i++) {
		if (buffer[i] != CANARY)
			ck_abort_msg("byte %zu was written, beyond %zu", i,
			             bytes);
	}
}

static const size_t sizes[] = {
	0,
	1,
	8,
	BATONI_MPI_HEADER_BYTES - 1,
	BATONI_MPI_HEADER_BYTES,
	BATONI_MPI_HEADER_BYTES + 1,
	64,
	2047,
	2048,
	2049,
	3584,
	3585,
	4096,
	7168,
	7169,
	65536,
	1u << 20,
	16u << 20,
	70u << 20,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* ---- messages ---- */

/* A message of each size to the rank, which may be this one, and one from it. */
static void
exchange_all_sizes(int rank)
{
	for (size_t i = 0; i < SIZES; i++) {
		unsigned char *out = message(sizes[i], (int)i + world.rank);
		unsigned char *in = room(sizes[i]);
		struct op *send, *recv;

		world.used = 0;
		send = sent(out, sizes[i], rank, 5);
		recv = post(in, sizes[i], rank, 5);
		/* To oneself: while the receive is open. */
		if (rank == world.rank)
			finish(send, BATON_OK, sizes[i]);
		finish(recv, BATON_OK, sizes[i]);
		if (rank != world.rank)
			finish(send, BATON_OK, sizes[i]);
		check_message(in, sizes[i], (int)i + rank);
		check_guard(in, sizes[i], sizes[i]);
		free(out);
		free(in);
	}
}

START_TEST(every_size_arrives_whole_in_both_directions)
{
	exchange_all_sizes(world.peer);
	close_world();
}
END_TEST

START_TEST(a_shorter_message_leaves_the_rest_of_the_buffer)
{
	const size_t capacities[] = {8, 64, 100, 2048, 4096, 3u << 20};

	for (size_t c = 0; c < 6; c++) {
		for (size_t i = 0; i < SIZES && sizes[i] < capacities[c]; i++) {
			unsigned char *out = message(sizes[i], 3);
			unsigned char *in = room(capacities[c]);
			struct op *send, *recv;

			world.used = 0;
			recv = post(in, capacities[c], world.peer, 0);
			send = sent(out, sizes[i], world.peer, 0);
			finish(send, BATON_OK, sizes[i]);
			finish(recv, BATON_OK, sizes[i]);
			check_message(in, sizes[i], 3);
			check_guard(in, sizes[i], capacities[c]);
			free(out);
			free(in);
		}
	}
	close_world();
}
END_TEST

/* posted: the receive is there before the message; else it comes after. */
static void
truncate_one(size_t capacity, size_t bytes, bool posted)
{
	unsigned char *out = message(bytes, 9);
	unsigned char *in = room(capacity);
	struct op *send, *recv;
	char mark = 'm';

	world.used = 0;
	if (world.rank == 0) {
		if (posted)
			barrier();
		send = sent(out, bytes, 1, 7);
		finish(send, BATON_OK, bytes);
		/* The communicator goes on. */
		finish(sent(&mark, 1, 1, 7), BATON_OK, 1);
	} else {
		if (!posted)
			await_arrival(7);
		recv = post(in, capacity, 0, 7);
		if (posted)
			barrier();
		finish(recv, BATON_ERR_TRUNCATED, bytes);
		check_guard(in, capacity, capacity);
		mark = 0;
		finish(post(&mark, 1, 0, 7), BATON_OK, 1);
		ck_assert_int_eq(mark, 'm');
	}
	free(out);
	free(in);
}

START_TEST(a_longer_message_is_truncated_and_nothing_is_overwritten)
{
	const size_t capacities[] = {0,  1,    8,    60,   61,
	                             62, 2047, 2048, 4096, 65536};
	const size_t lengths[] = {1,    8,    60,   61,    62,
	                          2048, 2049, 4096, 65537, 33u << 20};

	for (size_t c = 0; c < 10; c++) {
		for (size_t l = 0; l < 10; l++) {
			if (lengths[l] <= capacities[c])
				continue;
			truncate_one(capacities[c], lengths[l], true);
			truncate_one(capacities[c], lengths[l], false);
		}
	}
	close_world();
}
END_TEST

/* Open MPI's MPI_Testsome takes other requests away with one that it cut off.  It
 * does so by what their memory held before: the test is run with MALLOC_PERTURB_. */
START_TEST(a_message_that_is_too_long_costs_no_other_transfer)
{
	enum { N = 20, LONG = 100000 };
	unsigned char *out = message(LONG, 3), *in[N], little[100];
	struct op *sends[N], *recvs[N], *cut;

	cut = post(little, sizeof(little), world.peer, 1);
	for (int i = 0; i < N; i++) {
		in[i] = room(LONG);
		recvs[i] = post(in[i], LONG, world.peer, 10 + i);
		sends[i] = sent(out, LONG, world.peer, 10 + i);
	}
	/* All are under way, and tested together. */
	finish(sent(out, 2000, world.peer, 1), BATON_OK, 2000);
	barrier();
	finish(cut, BATON_ERR_TRUNCATED, 2000);
	for (int i = 0; i < N; i++) {
		finish(sends[i], BATON_OK, LONG);
		finish(recvs[i], BATON_OK, LONG);
		check_message(in[i], LONG, 3);
		free(in[i]);
	}
	free(out);
	close_world();
}
END_TEST

/* Open MPI cuts nothing off between a process and itself, at any length. */
static void
truncate_self(size_t capacity, size_t bytes, bool posted)
{
	unsigned char *out = message(bytes, 9);
	unsigned char *in = room(capacity);
	struct op *send = NULL, *recv;

	world.used = 0;
	if (!posted)
		send = sent(out, bytes, world.rank, 7);
	recv = post(in, capacity, world.rank, 7);
	if (posted)
		send = sent(out, bytes, world.rank, 7);
	finish(recv, BATON_ERR_TRUNCATED, bytes);
	finish(send, BATON_OK, bytes);
	check_guard(in, capacity, capacity);
	free(out);
	free(in);
}

START_TEST(a_longer_message_to_oneself_is_truncated_too)
{
	const size_t capacities[] = {0, 8, 60, 61, 62, 511, 2047, 4096};
	const size_t lengths[] = {1,    60,   61,    62,      512,
	                          2048, 2049, 65537, 17u << 20};

	for (size_t c = 0; c < 8; c++) {
		for (size_t l = 0; l < 9; l++) {
			if (lengths[l] <= capacities[c])
				continue;
			truncate_self(capacities[c], lengths[l], true);
			truncate_self(capacities[c], lengths[l], false);
		}
	}
	close_world();
}
END_TEST

START_TEST(messages_of_one_tag_arrive_in_order_whatever_their_path)
{
	enum { N = 60 };
	const size_t lengths[] = {8, 4096, 61, 0, 65536, 2048};
	unsigned char *out[N], *in[N];
	struct op *sends[N], *recvs[N];

	for (int i = 0; i < N; i++) {
		out[i] = message(lengths[i % 6], i);
		in[i] = room(65536);
	}
	for (int i = 0; i < N; i++)
		sends[i] = sent(out[i], lengths[i % 6], world.peer, 1);
	for (int i = 0; i < N; i++)
		recvs[i] = post(in[i], 65536, world.peer, 1);
	for (int i = 0; i < N; i++) {
		finish(recvs[i], BATON_OK, lengths[i % 6]);
		check_message(in[i], lengths[i % 6], i);
	}
	for (int i = 0; i < N; i++) {
		finish(sends[i], BATON_OK, lengths[i % 6]);
		free(out[i]);
		free(in[i]);
	}
	close_world();
}
END_TEST

START_TEST(headers_may_be_received_in_any_order_of_tags)
{
	enum { N = 12 };
	unsigned char *buffers[N];
	struct op *ops[N];

	for (int i = 0; i < N; i++) {
		/* 4 KiB to 8 MiB: eager ones and others, one and two pieces. */
		size_t bytes = (size_t)4096 << i;

		buffers[i] = world.rank ? room(bytes) : message(bytes, i);
	}
	for (int i = 0; i < N && world.rank == 0; i++)
		ops[i] = sent(buffers[i], (size_t)4096 << i, 1, i);
	if (world.rank == 1)
		await_arrival(N - 1);
	for (int i = N; i-- > 0 && world.rank == 1;)
		ops[i] = post(buffers[i], (size_t)4096 << i, 0, i);
	for (int i = N; i-- > 0;) {
		finish(ops[i], BATON_OK, (size_t)4096 << i);
		check_message(buffers[i], (size_t)4096 << i, i);
		free(buffers[i]);
	}
	close_world();
}
END_TEST

START_TEST(hundreds_in_flight_all_end_once)
{
	enum { N = 500 };
	static unsigned char in[N][4200], out[N][4200];
	const size_t lengths[] = {8, 0, 2000, 4096, 61};
	struct op *sends[N], *recvs[N];

	for (int i = 0; i < N; i++)
		recvs[i] = post(in[i], sizeof(in[i]), world.peer, i);
	ck_assert_uint_eq(world.transport->messages.load.in_flight, N);
	ck_assert_uint_eq(world.transport->messages.load.moving, 0);
	barrier();
	for (int i = 0; i < N; i++) {
		/* 7 and 500 have no common factor: all tags, out of order. */
		int tag = i * 7 % N;

		for (size_t b = 0; b < lengths[tag % 5]; b++)
			out[tag][b] = pattern(b, tag);
		sends[tag] = sent(out[tag], lengths[tag % 5], world.peer, tag);
	}
	for (int i = 0; i < N; i++) {
		finish(recvs[i], BATON_OK, lengths[i % 5]);
		finish(sends[i], BATON_OK, lengths[i % 5]);
		check_message(in[i], lengths[i % 5], i);
	}
	close_world();
}
END_TEST

/* Requests are added before each pass, as by a server whose replies bring it the next
 * message of a client. */
START_TEST(what_is_finished_is_seen_within_two_rounds_however_many_are_added)
{
	const unsigned window = 64;
	static uint64_t in[SLOTS];
	unsigned passes = 0, most;
	struct op *op, *idle;

	op = post(&in[0], sizeof(in[0]), world.peer, 1);
	for (unsigned i = 1; i < 300; i++) {
		post(&in[i], sizeof(in[i]), world.peer, 1 + (int)i);
		world.transport->messages.ops->test(&world.transport->messages);
	}
	barrier();
	ck_assert_uint_eq(op->ends, 0);
	finish(sent(&in[0], sizeof(in[0]), world.peer, 1), BATON_OK,
	       sizeof(in[0]));
	/* It overtakes nothing: then the first message is there. */
	MPI_Sendrecv(NULL, 0, MPI_BYTE, world.peer, 0, NULL, 0, MPI_BYTE,
	             world.peer, 0, world.side, MPI_STATUS_IGNORE);
	/* Every second pass is a round's. */
	most = 4 * (world.mpi->count / window + 2);
	while (!op->ends && passes++ < most) {
		idle = post(&in[world.used], sizeof(in[0]), world.peer,
		            1 + (int)world.used);
		ck_assert_int_eq(idle->status, BATON_PENDING);
		world.transport->messages.ops->test(&world.transport->messages);
	}
	ck_assert_uint_eq(op->ends, 1);
	take_all_back();
	barrier();
	close_world();
}
END_TEST

START_TEST(a_pass_that_comes_late_tests_all)
{
	enum { N = 1000 };
	static uint64_t in[N];
	uint64_t out = 1;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, i);
	barrier();
	for (int i = 0; i < N; i += 111) {
		finish(sent(&out, sizeof(out), world.peer, i), BATON_OK,
		       sizeof(out));
		MPI_Sendrecv(NULL, 0, MPI_BYTE, world.peer, 0, NULL, 0,
		             MPI_BYTE, world.peer, 0, world.side,
		             MPI_STATUS_IGNORE);
		/* As if no round had been completed for long. */
		world.mpi->round_ns = 0;
		world.transport->messages.ops->test(&world.transport->messages);
		ck_assert_uint_eq(world.ops[i].ends, 1);
		ck_assert_int_eq(world.ops[i].status, BATON_OK);
		world.used--; /* the send's */
	}
	take_all_back();
	barrier();
	close_world();
}
END_TEST

/* The flag tells of the message without a call of MPI, which would receive it. */
START_TEST(a_pass_sees_what_came_before_it)
{
	_Atomic uint64_t *flag = world.transport->peers[0].segment;
	uint64_t in[2], out = 1;
	struct op *op;

	if (!flag)
		ck_abort_msg("the other rank's segment is not mapped");
	for (int i = 0; i < 2 && world.rank == 1; i++)
		post(&in[i], sizeof(in[i]), 0, i);
	barrier();
	if (world.rank == 0) {
		finish(sent(&out, sizeof(out), 1, 1), BATON_OK, sizeof(out));
		atomic_store(flag, 1);
	} else {
		while (!atomic_load(flag))
			sched_yield();
		op = &world.ops[1];
		ck_assert_uint_eq(world.transport->messages.ops->test(&world.transport->messages),
		                  1);
		ck_assert_uint_eq(op->ends, 1);
		ck_assert_int_eq(take_back(&world.ops[0]), BATON_ERR_CANCELED);
	}
	barrier();
	close_world();
}
END_TEST

/* Requests tested by a pass that comes late, when nothing has arrived. */
static unsigned
late_pass(void)
{
	tested = 0;
	world.mpi->round_ns = 0;
	ck_assert_uint_eq(world.transport->messages.ops->test(&world.transport->messages), 0);
	return tested;
}

/* What a pass costs beside is spent once for several looks. */
START_TEST(the_only_request_is_tested_four_times_a_pass)
{
	uint64_t in, out = 3;
	struct op *op = post(&in, sizeof(in), world.peer, 1);

	barrier();
	ck_assert_uint_eq(late_pass(), 4);
	barrier();
	finish(sent(&out, sizeof(out), world.peer, 1), BATON_OK, sizeof(out));
	finish(op, BATON_OK, sizeof(in));
	ck_assert_uint_eq(in, 3);
	close_world();
}
END_TEST

/* ---- receives that follow others ---- */

START_TEST(of_many_receives_on_a_tag_only_the_first_is_tested)
{
	enum { N = 900, TAGS = 3 };
	static uint64_t in[N];
	uint64_t out;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, i % TAGS);
	barrier();
	ck_assert_uint_eq(world.transport->messages.load.in_flight, N);
	/* Those that were started while they were few, and the first of each tag. */
	ck_assert_uint_eq(world.mpi->count, 64 + TAGS);
	ck_assert_uint_le(late_pass(), 4 * 64);
	barrier();
	for (int i = 0; i < N; i++) {
		out = (uint64_t)i;
		finish(sent(&out, sizeof(out), world.peer, i % TAGS), BATON_OK,
		       sizeof(out));
		world.used--; /* the send's */
		finish(&world.ops[i], BATON_OK, sizeof(out));
		ck_assert_uint_eq(in[i], (uint64_t)i);
		ck_assert_uint_le(world.mpi->count, 64 + 16 * TAGS);
	}
	barrier();
	close_world();
}
END_TEST

START_TEST(messages_for_many_receives_on_a_tag_are_seen_at_once)
{
	enum { N = 500 };
	static uint64_t in[N], out[N];
	unsigned passes = 0;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, 7);
	barrier();
	for (int i = 0; i < N; i++) {
		out[i] = (uint64_t)i;
		sent(&out[i], sizeof(out[i]), world.peer, 7);
	}
	/* MPI has them all, as far as it can without a test of Baton's. */
	for (int i = 0; i < 1000; i++) {
		int here;

		MPI_Iprobe(world.peer, 99, world.mpi->comm, &here,
		           MPI_STATUS_IGNORE);
	}
	barrier();
	while (world.transport->messages.load.in_flight > 0 &&
	       world.transport->messages.ops->test(&world.transport->messages) > 0)
		passes++;
	/* None without an event, and 64 in a pass but for the last. */
	for (int i = 0; i < N; i++) {
		finish(&world.ops[i], BATON_OK, sizeof(in[i]));
		ck_assert_uint_eq(in[i], (uint64_t)i);
	}
	ck_assert_uint_le(passes, 2 * (2 * N / 64) + 2);
	for (uint32_t i = N; i < world.used; i++)
		finish(&world.ops[i], BATON_OK, sizeof(out[0]));
	barrier();
	close_world();
}
END_TEST

START_TEST(receives_that_follow_are_taken_back_from_any_place)
{
	enum { N = 300 };
	static uint64_t in[N];
	const int gone[] = {64, 65, 66, 150, 151, 152, 298, 299};
	bool is_gone[N] = {false};
	uint64_t out = 0;

	for (int i = 0; i < N; i++)
		post(&in[i], sizeof(in[i]), world.peer, 7);
	for (size_t k = 0; k < sizeof(gone) / sizeof(gone[0]); k++) {
		ck_assert_int_eq(take_back(&world.ops[gone[k]]),
		                 BATON_ERR_CANCELED);
		is_gone[gone[k]] = true;
	}
	/* Behind what is the last one now. */
	post(&out, sizeof(out), world.peer, 7);
	ck_assert_uint_le(world.mpi->count, 65);
	barrier();
	for (int i = 0; i < N; i++) {
		if (is_gone[i])
			continue;
		out = (uint64_t)i;
		finish(sent(&out, sizeof(out), world.peer, 7), BATON_OK,
		       sizeof(out));
		world.used--;
		finish(&world.ops[i], BATON_OK, sizeof(out));
		ck_assert_uint_eq(in[i], (uint64_t)i);
	}
	ck_assert_int_eq(take_back(&world.ops[N]), BATON_ERR_CANCELED);
	barrier();
	close_world();
}
END_TEST

/* Receives and messages on four tags, from this rank to itself, at random: messages match
 * in order whatever is taken back. */
START_TEST(receives_follow_and_are_taken_back_at_random)
{
	enum { TAGS = 4, ALL = SLOTS / 2, LIVE = 200 };
	static uint64_t in[SLOTS], out[SLOTS];
	uint32_t oldest[TAGS] = {0}, live = 0, state = 1;
	unsigned most = 0;

	/* Slots are used once here, so turns are few; the seed is the test's. */
	for (int turn = 0; turn < 20000 && world.used < SLOTS - 1; turn++) {
		struct op *op;
		uint32_t draw;
		int tag;

		state = state * 1664525u + 1013904223u;
		draw = state >> 8;
		tag = (int)(draw % TAGS);
		draw /= TAGS;
		if (draw % 8 < 5 && live < LIVE) {
			post(&in[world.used], 8, world.rank, tag);
			live++;
		} else if (draw % 8 < 6) {
			/* One in the middle, if it is pending. */
			op = &world.ops[draw / 8 % (world.used + 1)];
			if (op->ends || op->transfer.direction != BATONI_RECV ||
			    op >= &world.ops[world.used])
				continue;
			ck_assert_int_eq(take_back(op), BATON_ERR_CANCELED);
			op->ends++;
			live--;
		} else {
			/* The oldest of the tag gets it. */
			while (oldest[tag] < world.used &&
			       (world.ops[oldest[tag]].ends ||
			        world.ops[oldest[tag]].transfer.tag != tag ||
			        world.ops[oldest[tag]].transfer.direction !=
			                BATONI_RECV))
				oldest[tag]++;
			if (oldest[tag] == world.used)
				continue;
			op = &world.ops[oldest[tag]];
			out[world.used] = state;
			finish(sent(&out[world.used], 8, world.rank, tag),
			       BATON_OK, 8);
			finish(op, BATON_OK, 8);
			ck_assert_uint_eq(in[op - world.ops], state);
			live--;
		}
		if (world.mpi->following > most)
			most = world.mpi->following;
		ck_assert_uint_eq(world.transport->messages.load.in_flight, live);
	}
	ck_assert_uint_gt(most, LIVE / 3);
	take_all_back();
	close_world();
}
END_TEST

START_TEST(a_rank_can_send_to_itself)
{
	exchange_all_sizes(world.rank);
	close_world();
}
END_TEST

START_TEST(the_highest_tag_is_a_tag)
{
	int tag = world.transport->tag_max;
	uint64_t out = 42, in = 0;
	struct op *recv;

	ck_assert_int_ge(tag, (1 << 20) - 1);
	recv = post(&in, sizeof(in), world.peer, tag);
	finish(sent(&out, sizeof(out), world.peer, tag), BATON_OK, sizeof(out));
	finish(recv, BATON_OK, sizeof(in));
	ck_assert_uint_eq(in, 42);
	close_world();
}
END_TEST

/* ---- taking back ---- */

START_TEST(an_unmatched_receive_is_taken_back_and_gets_nothing)
{
	const size_t capacities[] = {8, 100, 65536};
	unsigned char *in = room(65536);
	uint64_t out = 7, next = 0;

	for (size_t c = 0; c < 3; c++) {
		struct op *gone = post(in, capacities[c], world.peer, 4);
		struct op *kept = post(&next, sizeof(next), world.peer, 4);

		ck_assert_int_eq(take_back(gone), BATON_ERR_CANCELED);
		ck_assert_uint_eq(world.transport->messages.load.in_flight, 1);
		barrier();
		next = 0;
		finish(sent(&out, sizeof(out), world.peer, 4), BATON_OK,
		       sizeof(out));
		finish(kept, BATON_OK, sizeof(next));
		ck_assert_uint_eq(next, 7);
		ck_assert_uint_eq(gone->ends, 0);
		check_guard(in, 0, 65536);
	}
	free(in);
	close_world();
}
END_TEST

/* What a probe has seen does not come, as of a rank that has died. */
START_TEST(a_first_part_that_a_probe_awaits_is_taken_back)
{
	struct op *held = &world.ops[world.used++];
	struct batoni_path *path = &world.transport->messages;
	struct batoni_held what;
	uint64_t out = 7, next = 0;
	struct op *kept;

	held->transfer = (struct batoni_transfer){
		.peer = world.peer, .tag = 4, .direction = BATONI_RECV};
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(batoni_mpi_hold(path, &held->transfer, &what),
		                 BATON_PENDING);
		ck_assert_uint_eq(path->load.in_flight, 1);
		ck_assert_int_eq(take_back(held), BATON_ERR_CANCELED);
		ck_assert_uint_eq(path->load.in_flight, 0);
	}
	kept = post(&next, sizeof(next), world.peer, 4);
	barrier();
	finish(sent(&out, sizeof(out), world.peer, 4), BATON_OK, sizeof(out));
	finish(kept, BATON_OK, sizeof(next));
	ck_assert_uint_eq(next, 7);
	close_world();
}
END_TEST

START_TEST(taking_back_a_receive_that_was_matched_gives_its_message)
{
	unsigned char *out = message(2000, 3);
	unsigned char *in = room(2000);
	enum baton_status status;
	struct op *op;

	for (size_t bytes = 8; bytes <= 2000; bytes += 1992) {
		if (world.rank == 0) {
			finish(sent(out, bytes, 1, 6), BATON_OK, bytes);
			continue;
		}
		await_arrival(6);
		op = post(in, bytes, 0, 6);
		ck_assert_int_eq(op->status, BATON_PENDING);
		status = take_back(op);
		/* BUSY: the message has still to come, by the peer's progress. */
		if (status == BATON_ERR_BUSY) {
			ck_assert_uint_eq(world.transport->messages.load.moving, 1);
			ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
			finish(op, BATON_OK, bytes);
		} else {
			ck_assert_int_eq(status, BATON_OK);
			ck_assert_uint_eq(op->ends, 0);
		}
		ck_assert_uint_eq(op->transfer.done_bytes, bytes);
		check_message(in, bytes, 3);
	}
	free(out);
	free(in);
	close_world();
}
END_TEST

/* Where MPI does not send eagerly, what was matched comes by the progress of the
 * sender, which here makes none before the receiver has gone on. */
START_TEST(taking_back_does_not_wait_for_the_sender)
{
	struct batoni_peer *peers = world.transport->peers;
	unsigned char *out = message(2000, 3), *in = room(2000);
	_Atomic uint64_t *flag = peers[0].segment;
	enum baton_status status;
	struct op *op;

	if (!flag)
		ck_abort_msg("the other rank's segment is not mapped");
	if (world.rank == 0) {
		op = sent(out, 2000, 1, 6);
		while (!atomic_load(flag))
			sched_yield();
		finish(op, BATON_OK, 2000);
	} else {
		await_arrival(6);
		op = post(in, 2000, 0, 6);
		status = take_back(op);
		atomic_store(flag, 1);
		if (status == BATON_ERR_BUSY)
			finish(op, BATON_OK, 2000);
		else
			ck_assert_int_eq(status, BATON_OK);
		check_message(in, 2000, 3);
	}
	free(out);
	free(in);
	close_world();
}
END_TEST

/* The header has come, the body follows: it must be received whatever happens,
 * or the sender would wait for ever. */
START_TEST(taking_back_a_receive_with_a_body_to_come_lends_it)
{
	const size_t bytes = 33u << 20;
	const size_t capacities[] = {8, 65536, 33u << 20};
	unsigned char *buffer = world.rank ? room(bytes) : message(bytes, 8);
	enum baton_status status;
	struct op *op;

	for (size_t c = 0; c < 3; c++) {
		size_t capacity = capacities[c];

		if (world.rank == 0) {
			op = sent(buffer, bytes, 1, 6);
			if (!op->ends)
				ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
			finish(op, BATON_OK, bytes);
			continue;
		}
		memset(buffer, CANARY, bytes);
		await_arrival(6);
		op = post(buffer, capacity, 0, 6);
		status = take_back(op);
		ck_assert_int_eq(status, BATON_ERR_BUSY);
		ck_assert_uint_eq(world.transport->messages.load.moving, 1);
		ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
		finish(op, capacity < bytes ? BATON_ERR_TRUNCATED : BATON_OK,
		       bytes);
		if (capacity == bytes)
			check_message(buffer, bytes, 8);
		check_guard(buffer, capacity, bytes);
	}
	free(buffer);
	close_world();
}
END_TEST

/* ---- ends ---- */

START_TEST(leave_waits_for_the_other_rank)
{
	if (world.rank == 0) {
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(
				world.transport->ops->leave(world.transport),
				BATON_PENDING);
	}
	barrier();
	close_world();
}
END_TEST

/* Short enough for any MPI to take them, of every kind: raw messages, headers and
 * bodies. */
START_TEST(what_was_not_received_is_not_in_the_next_communicator)
{
	enum { N = 300 };
	const size_t lengths[] = {0, 8, BATONI_MPI_HEADER_BYTES, 900};
	unsigned char *out = message(900, 5), *in = room(900);
	struct op *op;

	for (int i = 0; i < N; i++) {
		size_t bytes = lengths[i % 4];
		int peer = i % 3 ? world.peer : world.rank;

		finish(sent(out, bytes, peer, i % 5), BATON_OK, bytes);
	}
	close_world();
	open_world();
	for (int i = 0; i < 10; i++)
		post(in, 900, i % 2 ? world.peer : world.rank, i / 2);
	barrier();
	for (int i = 0; i < 100; i++)
		world.transport->messages.ops->test(&world.transport->messages);
	take_all_back();
	barrier();
	/* The tags and segments are those of a new one, too. */
	op = post(in, 900, world.peer, 0);
	finish(sent(out, BATONI_MPI_HEADER_BYTES, world.peer, 0), BATON_OK,
	       BATONI_MPI_HEADER_BYTES);
	finish(op, BATON_OK, BATONI_MPI_HEADER_BYTES);
	check_message(in, BATONI_MPI_HEADER_BYTES, 5);
	free(out);
	free(in);
	close_world();
}
END_TEST

START_TEST(clearing_waits_for_the_other_rank)
{
	uint64_t word = 1;

	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	if (world.rank == 0) {
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(
				world.transport->ops->clearing->clear(world.transport),
				BATON_PENDING);
		/* There is no way back. */
		ck_assert_int_eq(world.transport->ops->exchanging->exchange(world.transport, 5,
		                                                            &word, 8, &word),
		                 BATON_ERR_PEER);
	}
	barrier();
	ck_assert_int_eq(whole(world.transport->ops->clearing->clear), BATON_OK);
	world.transport->ops->close(world.transport, false);
	MPI_Comm_free(&world.side);
}
END_TEST

START_TEST(a_message_of_another_protocol_breaks_the_transport)
{
	char garbage[BATONI_MPI_HEADER_BYTES] = {0};
	unsigned char in[100];
	struct op *op;

	op = post(in, sizeof(in), world.peer, 9);
	MPI_Send(garbage, (int)HEADER, MPI_BYTE, world.peer, 9,
	         world.mpi->comm);
	finish(op, BATON_ERR_MPI, 0);
	ck_assert_uint_eq(world.broken, 1);
	ck_assert_int_eq(world.broken_status, BATON_ERR_MPI);
	ck_assert_str_eq(op->transfer.native_call, "MPI_Irecv");
	ck_assert_ptr_nonnull(strstr(world.broken_text, "header"));
	close_world();
}
END_TEST

START_TEST(a_call_that_mpi_refuses_breaks_the_transport_with_its_words)
{
	char text[64] = "";
	char byte = 0;
	struct op *op;

	op = post(&byte, 1, 1000, 0);
	ck_assert_int_eq(op->status, BATON_ERR_MPI);
	ck_assert_str_eq(op->transfer.native_call, "MPI_Irecv");
	op = sent(&byte, 1, 1000, 0);
	ck_assert_int_eq(op->status, BATON_ERR_MPI);
	ck_assert_str_eq(op->transfer.native_call, "MPI_Isend");
	ck_assert_uint_eq(world.broken, 2);
	/* Any thread may ask for the text, also one that may not call MPI. */
	texts_asked = 0;
	world.transport->ops->texts->error_text(
		world.transport, op->transfer.native_code, text, sizeof(text));
	ck_assert_int_eq(texts_asked, 0);
	ck_assert_ptr_nonnull(strstr(text, "rank"));
	world.transport->ops->texts->error_text(world.transport, 12345, text,
	                                        sizeof(text));
	ck_assert_str_eq(text, "MPI error 12345");
	close_world();
}
END_TEST

/* ---- few tags ---- */

/* Of the bodies from here to the peer, so many are under way at once without a
 * grant. */
static void
have_few_tags(uint32_t segment_tags)
{
	world.mpi->segment_tags = segment_tags;
	barrier();
}

static const size_t long_sizes[] = {61, 2049, 4096, 10000, 100000, 1u << 20};
#define LONG_SIZES (sizeof(long_sizes) / sizeof(long_sizes[0]))

START_TEST(bodies_are_not_mixed_up_where_tags_are_few)
{
	enum { N = 60 };
	unsigned char *outs[N], *ins[N];
	struct op *sends[N], *recvs[N];

	have_few_tags(1);
	for (int turn = 0; turn < 3; turn++) {
		world.used = 0;
		for (int i = 0; i < N; i++) {
			size_t bytes = long_sizes[(size_t)i % LONG_SIZES];

			outs[i] = message(bytes, i + world.rank);
			ins[i] = room(bytes);
			sends[i] = sent(outs[i], bytes, world.peer, i);
		}
		/* All headers are there, and the last is received first. */
		await_arrival(N - 1);
		for (int i = N; i-- > 0;) {
			size_t bytes = long_sizes[(size_t)i % LONG_SIZES];

			recvs[i] = post(ins[i], bytes, world.peer, i);
			finish(recvs[i], BATON_OK, bytes);
			check_message(ins[i], bytes, i + world.peer);
			check_guard(ins[i], bytes, bytes);
		}
		for (int i = 0; i < N; i++) {
			finish(sends[i], BATON_OK, sends[i]->transfer.bytes);
			free(outs[i]);
			free(ins[i]);
		}
		ck_assert_uint_eq(world.mpi->waiting, 0);
		barrier();
	}
	close_world();
}
END_TEST

/* Both ranks are broken, and sends are left to MPI. */
static void
close_broken(const char *text)
{
	ck_assert_uint_eq(world.broken, 1);
	ck_assert_int_eq(world.broken_status, BATON_ERR_MPI);
	ck_assert_ptr_nonnull(strstr(world.broken_text, text));
	barrier();
	world.transport->ops->close(world.transport, true);
	MPI_Comm_free(&world.side);
}

/* Longer than a grant: it is not received into one. */
START_TEST(a_grant_of_another_length_breaks_the_transport)
{
	static unsigned char out[4096];
	const char garbage[100] = {0};

	have_few_tags(1);
	for (int i = 0; world.mpi->waiting == 0; i++)
		sent(out, sizeof(out), world.peer, i);
	MPI_Send(garbage, (int)sizeof(garbage), MPI_BYTE, world.peer,
	         world.mpi->grant_tag, world.mpi->comm);
	await_arrival(world.mpi->grant_tag);
	world.transport->messages.ops->test(&world.transport->messages);
	close_broken("is no grant");
}
END_TEST

START_TEST(a_release_that_is_not_empty_breaks_the_transport)
{
	static unsigned char out[4096];
	const char garbage[100] = {0};

	have_few_tags(1);
	for (unsigned i = 0; i < BATONI_MPI_SEGMENTS; i++)
		MPI_Send(garbage, (int)sizeof(garbage), MPI_BYTE, world.peer,
		         world.mpi->release_tag + (int)i, world.mpi->comm);
	for (unsigned i = 0; i < BATONI_MPI_SEGMENTS; i++)
		await_arrival(world.mpi->release_tag + (int)i);
	for (int i = 0; i <= (int)BATONI_MPI_SEGMENTS && !world.broken; i++)
		sent(out, sizeof(out), world.peer, i);
	ck_assert_uint_ge(world.broken, 1);
	world.broken = 1;
	close_broken("is no release of tags");
}
END_TEST

/* It does not fit where such messages go. */
START_TEST(what_is_discarded_and_too_long_breaks_the_transport)
{
	/* MPI has it to the end: nobody receives it. */
	static unsigned char out[BATONI_MPI_PIECE_BYTES + 1];
	MPI_Request request;

	MPI_Isend(out, (int)sizeof(out), MPI_BYTE, world.peer, 9,
	          world.mpi->comm, &request);
	await_arrival(9);
	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	ck_assert_int_eq(whole(world.transport->ops->clearing->clear), BATON_ERR_MPI);
	close_broken("and none has more than");
	/* `out` and the request are left to MPI. */
	MPI_Request_free(&request);
}
END_TEST

START_TEST(a_message_left_unreceived_holds_up_no_other)
{
	unsigned char *out = message(4096, 1), *in = room(4096);
	unsigned char *kept = message(3000, 77);
	struct op *left, *send, *recv;

	have_few_tags(4);
	left = sent(kept, 3000, world.peer, 9);
	for (int i = 0; i < 500; i++) {
		world.used = 1;
		send = sent(out, 4096, world.peer, 1);
		recv = post(in, 4096, world.peer, 1);
		finish(recv, BATON_OK, 4096);
		finish(send, BATON_OK, 4096);
		check_message(in, 4096, 1);
	}
	/* Its segment is still in use, the others go round. */
	ck_assert_uint_eq(world.mpi->tags[world.peer].busy & 1, 1);
	ck_assert_uint_ne(world.mpi->tags[world.peer].segment, 0);
	finish(post(in, 3000, world.peer, 9), BATON_OK, 3000);
	check_message(in, 3000, 77);
	finish(left, BATON_OK, 3000);
	free(out);
	free(in);
	free(kept);
	close_world();
}
END_TEST

/* ---- checked mode ---- */

static void
open_checked(void)
{
	struct batoni_transport_config checked = config;

	close_world();
	checked.check = true;
	open_with(&checked);
}

/* Short ones and empty ones have headers too, and some wait for grants. */
START_TEST(messages_of_a_type_meet_in_checked_mode_where_tags_are_few)
{
	static const size_t of[] = {0, 8, 2048, 0, 2056, 61, 4096, 100000};
	enum { N = 48, EACH = sizeof(of) / sizeof(of[0]) };
	unsigned char *outs[N], *ins[N];
	struct op *sends[N], *recvs[N];

	open_checked();
	for (int turn = 0; turn < 3; turn++) {
		have_few_tags(turn == 0 ? 1000 : 1);
		world.used = 0;
		for (int i = 0; i < N; i++) {
			outs[i] = message(of[i % EACH], i + world.rank);
			ins[i] = room(of[i % EACH]);
			world.type = i % 3;
			sends[i] = sent(outs[i], of[i % EACH], world.peer,
			                i / 8);
		}
		await_arrival(N / 8 - 1);
		for (int i = 0; i < N; i++) {
			world.type = i % 5 ? i % 3 : 7;
			recvs[i] = post(ins[i], of[i % EACH], world.peer,
			                i / 8);
		}
		for (int i = N; i-- > 0;) {
			size_t bytes = of[i % EACH];

			finish(recvs[i], i % 5 ? BATON_OK : BATON_ERR_MISMATCH,
			       bytes);
			if (i % 5)
				check_message(ins[i], bytes, i + world.peer);
			check_guard(ins[i], i % 5 ? bytes : 0, bytes);
			ck_assert_int_eq(batoni_transfer_refused_type(
						 &recvs[i]->transfer),
			                 i % 5 ? -1 : i % 3);
			finish(sends[i], BATON_OK, bytes);
			free(outs[i]);
			free(ins[i]);
		}
		ck_assert_uint_eq(world.mpi->waiting, 0);
		barrier();
	}
	close_world();
}
END_TEST

static void
assert_refused(const void *content, size_t bytes)
{
	unsigned char in[100];
	struct op *op = post(in, sizeof(in), world.peer, 9);
	unsigned before = world.broken;

	MPI_Send(content, (int)bytes, MPI_BYTE, world.peer, 9, world.mpi->comm);
	while (!op->ends)
		world.transport->messages.ops->test(&world.transport->messages);
	ck_assert_int_eq(op->status, BATON_ERR_MPI);
	ck_assert_uint_eq(world.broken, before + 1);
	ck_assert_ptr_nonnull(strstr(world.broken_text, "header"));
	barrier();
}

START_TEST(what_has_no_type_in_checked_mode_breaks_the_transport)
{
	struct batoni_mpi_header header;

	batoni_mpi_header_make(&header, BATONI_MPI_HEADER_BODY, 8,
	                       (uint32_t)world.mpi->body_tag_base);
	header.type = 1;
	assert_refused(&header, BATONI_MPI_HEADER_BYTES);
	open_checked();
	header.type = 0;
	assert_refused(&header, BATONI_MPI_HEADER_BYTES);
	assert_refused("raw", 4);
	/* The one-sided layer's have none, and short ones are raw. */
	{
		unsigned char in[4] = {0};
		struct op *receive = post(in, 4, world.peer,
		                          world.transport->hidden_tag);
		struct op *send = sent("raw", 4, world.peer,
		                       world.transport->hidden_tag);

		finish(receive, BATON_OK, 4);
		finish(send, BATON_OK, 4);
		ck_assert_str_eq((char *)in, "raw");
	}
	close_world();
}
END_TEST

/* Much under way both ways and to oneself, some of it too long for its receive. */
START_TEST(hundreds_end_once_where_tags_are_few)
{
	enum { N = 240 };
	static unsigned char out[10000];
	unsigned char *in = malloc((size_t)N * 10000);
	struct op *sends[N], *recvs[N];

	ck_assert_ptr_nonnull(in);
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = pattern(i, 2);
	have_few_tags(2);
	for (int turn = 0; turn < 4; turn++) {
		world.used = 0;
		for (int i = 0; i < N; i++) {
			int peer = i % 3 ? world.peer : world.rank;
			size_t bytes = 2049 + (size_t)i * 33;

			sends[i] = sent(out, bytes, peer, i % 8);
			recvs[i] = post(in + (size_t)i * 10000,
			                i % 5 ? 10000 : 2100, peer, i % 8);
		}
		for (int i = N; i-- > 0;) {
			size_t bytes = 2049 + (size_t)i * 33;
			bool fits = i % 5 || bytes <= 2100;

			finish(recvs[i], fits ? BATON_OK : BATON_ERR_TRUNCATED,
			       bytes);
			if (fits)
				check_message(in + (size_t)i * 10000, bytes, 2);
		}
		for (int i = 0; i < N; i++)
			finish(sends[i], BATON_OK, 2049 + (size_t)i * 33);
		barrier();
	}
	free(in);
	close_world();
}
END_TEST

/* ---- lists of tensors ---- */

/* A list of n tensors of so many bytes each, with the memory for them; as a receive it declares
 * other bytes if it is to differ. */
struct made {
	struct batoni_tensor_list list;
	struct baton_tensor *tensors;
	unsigned char *data;
};

static void *
zeroed(size_t n, size_t size)
{
	void *memory = calloc(n + 1, size);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static struct made
make_list(size_t n, size_t bytes, int seed, bool differs)
{
	struct made made = {.tensors = zeroed(n, sizeof(*made.tensors)),
	                    .data = message(n * bytes + 1, seed)};
	size_t header;

	made.list.segments = zeroed(n, sizeof(struct batoni_segment));
	for (size_t i = 0; i < n; i++) {
		made.tensors[i] = (struct baton_tensor){
			.data = made.data + i * bytes,
			.type = BATON_UINT8,
			.rank = 1,
			.shape = {(int64_t)bytes + differs}};
		made.list.segments[i] = (struct batoni_segment){
			(char *)made.data + i * bytes, bytes};
	}
	header = batoni_tensors_header_bytes(made.tensors, n);
	made.list.count = made.list.declared_n = n;
	made.list.payload_bytes = n * bytes;
	made.list.header = zeroed(header + 8, 1);
	made.list.header_bytes = made.list.header_max = header;
	made.list.declared = made.tensors;
	batoni_tensors_encode(made.tensors, n, n * (bytes + differs),
	                      made.list.header);
	return made;
}

static void
free_list(struct made *made)
{
	free(made->tensors);
	free(made->data);
	free(made->list.segments);
	free(made->list.header);
}

static struct op *
issue_list(enum batoni_direction direction, struct batoni_tensor_list *list,
           int tag)
{
	struct op *op = &world.ops[world.used];

	memset(op, 0, sizeof(*op));
	op->transfer.buffer = list;
	op->transfer.bytes = list->payload_bytes;
	op->transfer.peer = world.peer;
	op->transfer.tag = tag;
	op->transfer.slot = world.used++ & 0xffffffu;
	op->transfer.direction = (unsigned)direction & 3u;
	op->transfer.location = BATONI_LOCATION_LIST;
	op->status = batoni_path_issue(&world.transport->messages, &op->transfer);
	op->ends = op->status != BATON_PENDING;
	return op;
}

/* How many tensors of how many bytes: inside the first part, with a body of each kind, with a
 * header that is too long for the first part, empty. */
static const struct {
	size_t n, bytes;
} shapes[] = {{8, 50},    {8, 5000},   {2, 200000}, {300, 7},
              {300, 700}, {300, 0},    {0, 0},      {1, (size_t)17 << 20}};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Every third receive differs.  All first parts are there before the last is received. */
static void
pass_lists(int n)
{
	struct made *outs = zeroed((size_t)n, sizeof(*outs));
	struct op **sends = zeroed((size_t)n, sizeof(struct op *));

	world.used = 0;
	for (int i = 0; i < n; i++) {
		size_t shape = (size_t)i % (SHAPES - (i >= (int)SHAPES));

		outs[i] = make_list(shapes[shape].n, shapes[shape].bytes,
		                    i + world.rank, false);
		sends[i] = issue_list(BATONI_SEND, &outs[i].list, i);
	}
	await_arrival(n - 1);
	for (int i = n; i-- > 0;) {
		size_t shape = (size_t)i % (SHAPES - (i >= (int)SHAPES));
		size_t tensors = shapes[shape].n, bytes = shapes[shape].bytes;
		bool differs = i % 3 == 1 && tensors > 0;
		struct made in = make_list(tensors, bytes, 77, differs);
		struct op *recv = issue_list(BATONI_RECV, &in.list, i);

		finish(recv, differs ? BATON_ERR_MISMATCH : BATON_OK,
		       tensors * bytes);
		check_message(in.data, tensors * bytes,
		              differs ? 77 : i + world.peer);
		free_list(&in);
	}
	for (int i = 0; i < n; i++) {
		finish(sends[i], BATON_OK, outs[i].list.payload_bytes);
		free_list(&outs[i]);
	}
	free(sends);
	free(outs);
	barrier();
}

START_TEST(lists_of_every_form_arrive_or_are_drained)
{
	pass_lists(16);
	close_world();
}
END_TEST

START_TEST(lists_wait_for_grants_where_tags_are_few)
{
	have_few_tags(1);
	pass_lists(16);
	ck_assert_uint_eq(world.mpi->waiting, 0);
	pass_lists(16);
	close_world();
}
END_TEST

/* Whatever is complete at once, the rest of a body is posted. */
START_TEST(a_list_in_many_pieces_to_oneself_arrives)
{
	int peer = world.peer;

	world.peer = world.rank;
	for (int differs = 0; differs < 2; differs++) {
		struct made out = make_list(700, 3, 5, false);
		struct made in = make_list(700, 3, 6, differs);
		struct op *send = issue_list(BATONI_SEND, &out.list, 1);

		finish(issue_list(BATONI_RECV, &in.list, 1),
		       differs ? BATON_ERR_MISMATCH : BATON_OK, 2100);
		finish(send, BATON_OK, 2100);
		check_message(in.data, 2100, differs ? 6 : 5);
		free_list(&in);
		free_list(&out);
	}
	world.peer = peer;
	close_world();
}
END_TEST

/* Pass a list both ways, then one that the receive refuses. */
static void
exchange_list(size_t n, size_t bytes)
{
	for (int differs = 0; differs < 2; differs++) {
		struct made out = make_list(n, bytes, world.rank, false);
		struct made in = make_list(n, bytes, 77, differs);
		struct op *recv, *send;

		world.used = 0;
		recv = issue_list(BATONI_RECV, &in.list, 3);
		send = issue_list(BATONI_SEND, &out.list, 3);
		finish(recv, differs ? BATON_ERR_MISMATCH : BATON_OK, n * bytes);
		finish(send, BATON_OK, n * bytes);
		check_message(in.data, n * bytes, differs ? 77 : world.peer);
		free_list(&in);
		free_list(&out);
		barrier();
	}
}

/* Cut by tensors, and by bytes; the longest that is short; more tensors than a derived type of a
 * longer list has parts, with a list's header in two messages. */
static const struct {
	size_t n, bytes;
} short_lists[] = {{8, 512}, {7, 1001}, {8, 1792}, {2, 7168}, {700, 3}};
#define SHORT_LISTS (sizeof(short_lists) / sizeof(short_lists[0]))

START_TEST(a_short_list_makes_no_derived_type)
{
	const unsigned before = types_made;

	for (size_t i = 0; i < SHORT_LISTS; i++)
		exchange_list(short_lists[i].n, short_lists[i].bytes);
	exchange_list(1, 14336);
	ck_assert_uint_eq(types_made, before);
	ck_assert_uint_eq(world.mpi->free_buffers, UINT64_MAX);
	/* It is counted. */
	exchange_list(8, 1793);
	ck_assert_uint_gt(types_made, before);
	close_world();
}
END_TEST

/* Neither rank has a free buffer, or only one. */
START_TEST(a_short_list_arrives_where_no_buffer_is_free)
{
	for (int without = 1; without < 4; without++) {
		bool none = without >> world.rank & 1;
		const unsigned before = types_made;

		world.mpi->free_buffers = none ? 0 : UINT64_MAX;
		for (size_t i = 0; i < SHORT_LISTS; i++)
			exchange_list(short_lists[i].n, short_lists[i].bytes);
		ck_assert_uint_eq(world.mpi->free_buffers,
		                  none ? 0 : UINT64_MAX);
		ck_assert((types_made > before) == none);
	}
	close_world();
}
END_TEST

/* More of them than there are buffers, and every one that waits for a grant has none. */
START_TEST(short_lists_that_wait_have_no_buffer)
{
	enum { N = 80 };
	struct made *outs = zeroed(N, sizeof(*outs));
	struct op *sends[N];

	have_few_tags(1);
	world.used = 0;
	for (int i = 0; i < N; i++) {
		outs[i] = make_list(6, 700, i + world.rank, false);
		sends[i] = issue_list(BATONI_SEND, &outs[i].list, i);
	}
	ck_assert_uint_gt(world.mpi->waiting, 64);
	for (int i = 0; i < N; i++) {
		const struct batoni_mpi_body *body = &world.mpi->bodies[i];

		ck_assert(!body->waiting || !body->buffer);
	}
	await_arrival(N - 1);
	for (int i = N; i-- > 0;) {
		struct made in = make_list(6, 700, 77, false);

		finish(issue_list(BATONI_RECV, &in.list, i), BATON_OK, 4200);
		check_message(in.data, 4200, i + world.peer);
		free_list(&in);
	}
	for (int i = 0; i < N; i++) {
		finish(sends[i], BATON_OK, 4200);
		free_list(&outs[i]);
	}
	ck_assert_uint_eq(world.mpi->free_buffers, UINT64_MAX);
	free(outs);
	barrier();
	close_world();
}
END_TEST

/* Receive the messages to oneself that nobody receives, until this send has ended. */
static void
receive_until_sent(struct op *send)
{
	static unsigned char bytes[BATONI_MPI_EAGER_BYTES];
	MPI_Status status;
	int here;

	while (!send->ends) {
		PMPI_Iprobe(world.rank, MPI_ANY_TAG, world.mpi->comm, &here,
		            &status);
		if (here)
			PMPI_Recv(bytes, sizeof(bytes), MPI_BYTE, world.rank,
			          status.MPI_TAG, world.mpi->comm, &status);
		world.transport->messages.ops->test(&world.transport->messages);
	}
}

START_TEST(the_buffer_of_a_list_that_failed_is_left_to_mpi)
{
	struct made out = make_list(3, 3000, 5, false);
	struct made in = make_list(3, 3000, 6, false);
	void *buffers = world.mpi->buffers;
	struct op *recv, *send;

	world.peer = world.rank;
	recv = issue_list(BATONI_RECV, &in.list, 1);
	send = issue_list(BATONI_SEND, &out.list, 1);
	failing = "MPI_Irecv";
	finish(recv, BATON_ERR_MPI, 0);
	failing = NULL;
	receive_until_sent(send);
	check_message(in.data, 9000, 6);
	ck_assert_uint_eq(world.mpi->count, 0);
	ck_assert_uint_ne(world.mpi->free_buffers, UINT64_MAX);
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(msync(buffers, 4096, MS_ASYNC), 0);
	free_list(&in);
	free_list(&out);
	MPI_Comm_free(&world.side);
}
END_TEST

static enum baton_status
attach_with(uint32_t slots, uint32_t tags, struct batoni_mpi **mpi_p)
{
	struct batoni_transport_config other = config;
	enum baton_status status;

	other.slots = slots;
	ck_assert_int_eq(batoni_mpi_alloc(&other, 2, mpi_p), BATON_OK);
	highest_tag = (int)tags - 1;
	status = batoni_mpi_attach(*mpi_p, world.mpi->comm, MPI_THREAD_MULTIPLE,
	                           BATON_PROGRESS_AUTO);
	highest_tag = 0;
	return status;
}

START_TEST(an_mpi_with_too_few_tags_is_refused)
{
	const uint32_t least = (1u << 20) + HIDDEN_TAGS + (1u << 16);
	struct batoni_mpi *mpi;

	ck_assert_int_eq(attach_with(1000, least - 1, &mpi),
	                 BATON_ERR_UNSUPPORTED);
	batoni_mpi_free(mpi);
	ck_assert_int_eq(attach_with(1u << 15, least, &mpi),
	                 BATON_ERR_UNSUPPORTED);
	batoni_mpi_free(mpi);
	ck_assert_int_eq(attach_with(32000, least, &mpi), BATON_OK);
	/* Segments, a tag for each slot, and those for control, apart. */
	ck_assert_int_eq(mpi->base.hidden_tag + HIDDEN_TAGS,
	                 mpi->body_tag_base);
	ck_assert_int_le(mpi->body_tag_base +
	                         (int)(BATONI_MPI_SEGMENTS * mpi->segment_tags),
	                 mpi->granted_tag);
	ck_assert_int_le(mpi->granted_tag + 32000, mpi->release_tag);
	ck_assert_int_le(mpi->release_tag + (int)BATONI_MPI_SEGMENTS,
	                 mpi->grant_tag);
	ck_assert_int_lt(mpi->grant_tag, mpi->leave_tag);
	ck_assert_int_lt(mpi->leave_tag, (int)least);
	batoni_mpi_free(mpi);
	close_world();
}
END_TEST

/* ---- exchange, segments, hidden tags ---- */

static enum baton_status
exchange(const void *mine, size_t bytes, void *all)
{
	return world.transport->ops->exchanging->exchange(world.transport, 5, mine, bytes,
	                                                  all);
}

static enum baton_status
exchange_for(uint64_t what, const void *mine, size_t bytes, void *all)
{
	enum baton_status status;

	do {
		sched_yield();
		status = world.transport->ops->exchanging->exchange(world.transport, what,
		                                                    mine, bytes, all);
	} while (status == BATON_PENDING);
	return status;
}

static void
exchange_whole(const void *mine, size_t bytes, void *all)
{
	ck_assert_int_eq(exchange_for(5, mine, bytes, all), BATON_OK);
}

START_TEST(an_exchange_waits_for_the_other_rank_and_gives_both)
{
	int mine = 10 + world.rank, all[2] = {0};

	if (world.rank == 0) {
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(exchange(&mine, sizeof(mine), all),
			                 BATON_PENDING);
		ck_assert_int_eq(all[0], 0);
	}
	barrier();
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[0], 10);
	ck_assert_int_eq(all[1], 11);
	close_world();
}
END_TEST

START_TEST(exchanges_follow_one_another_between_messages)
{
	unsigned char *out = message(100000, world.rank);
	unsigned char *in = room(100000);
	struct op *recv = post(in, 100000, world.peer, 3);
	struct op *send = sent(out, 100000, world.peer, 3);
	int mine[100], all[2][100];

	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 100; i++)
			mine[i] = 1000 * round + 2 * i + world.rank;
		exchange_whole(mine, sizeof(mine), all);
		/* What was brought is not looked at any more. */
		memset(mine, 0, sizeof(mine));
		for (int i = 0; i < 200; i++)
			ck_assert_int_eq(all[i % 2][i / 2],
			                 1000 * round + i);
	}
	finish(recv, BATON_OK, 100000);
	finish(send, BATON_OK, 100000);
	check_message(in, 100000, world.peer);
	free(out);
	free(in);
	close_world();
}
END_TEST

START_TEST(an_exchange_without_memory_is_refused_on_all_and_the_next_works)
{
	long blocks = batoni_mem_blocks();
	int mine = 7 + world.rank, all[2] = {0};

	for (int turn = 0; turn < 2; turn++) {
		if (turn == world.rank)
			batoni_mem_fail_at(1);
		ck_assert_int_eq(exchange_for(5, &mine, sizeof(mine), all),
		                 BATON_ERR_NOMEM);
		batoni_mem_fail_at(0);
		ck_assert_int_eq(all[world.peer], 0);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	}
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[world.peer], 7 + world.peer);
	close_world();
}
END_TEST

START_TEST(an_exchange_that_ranks_mean_differently_is_refused_on_all)
{
	size_t bytes = world.rank ? 8 : 8000;
	char mine[8000] = {0}, all[2 * 8000];

	ck_assert_int_eq(exchange_for(5, mine, bytes, all), BATON_ERR_INVALID);
	ck_assert_int_eq(exchange_for(4 + (uint64_t)world.rank, mine, 8, all),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(exchange_for((uint64_t)INT64_MAX * (world.rank == 0),
	                              mine, 8, all),
	                 BATON_ERR_INVALID);
	mine[3] = (char)(5 + world.rank);
	ck_assert_int_eq(exchange_for(INT64_MAX, mine, 8, all), BATON_OK);
	ck_assert_int_eq(all[3], 5);
	ck_assert_int_eq(all[11], 6);
	close_world();
}
END_TEST

START_TEST(leaving_while_others_exchange_is_refused_on_all)
{
	int mine = 8 + world.rank, all[2] = {0};

	ck_assert_int_eq(world.rank ? exchange_for(5, &mine, sizeof(mine), all)
	                            : whole(world.transport->ops->leave),
	                 BATON_ERR_INVALID);
	/* A leave that is given up is still met by the others, once. */
	if (world.rank == 0)
		ck_assert_int_eq(world.transport->ops->leave(world.transport),
		                 BATON_PENDING);
	else
		ck_assert_int_eq(exchange_for(5, &mine, sizeof(mine), all),
		                 BATON_ERR_INVALID);
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[world.peer], 8 + world.peer);
	close_world();
}
END_TEST

START_TEST(a_rank_of_the_same_host_adds_to_the_others_counter)
{
	struct batoni_peer *peers = world.transport->peers;
	_Atomic uint64_t *own, *theirs;

	ck_assert_uint_eq(world.transport->capabilities, 0xff);
	ck_assert(peers[world.rank].within && !peers[world.peer].within);
	ck_assert(peers[world.rank].reaches_us);
	ck_assert_ptr_eq(peers[world.rank].bell, batoni_bell());
	ck_assert_int_eq(peers[world.rank].pid, getpid());
	ck_assert_int_ne(peers[world.peer].pid, getpid());
	if (!peers[world.peer].segment || !peers[world.peer].reaches_us)
		ck_abort_msg("the other rank's segment is not mapped");
	own = peers[world.rank].segment;
	theirs = peers[world.peer].segment;
	for (size_t i = 0; i < SEGMENT_BYTES / 8; i++)
		ck_assert_uint_eq(own[i], 0);
	barrier();
	for (int i = 0; i < 1000; i++) {
		atomic_fetch_add(&own[7], 1);
		atomic_fetch_add(&theirs[7], 1);
	}
	atomic_fetch_add(&theirs[SEGMENT_BYTES / 8 - 1],
	                 (uint64_t)world.rank + 1);
	batoni_bell_ring(peers[world.peer].bell);
	barrier();
	ck_assert_uint_eq(own[7], 2000);
	ck_assert_uint_eq(own[SEGMENT_BYTES / 8 - 1],
	                  (uint64_t)world.peer + 1);
	ck_assert_uint_ge(batoni_bell()->doorbell, 1);
	ck_assert(!batoni_pidfd_gone(peers[world.peer].pidfd));
	close_world();
}
END_TEST

START_TEST(hidden_tags_and_slots_are_beyond_those_of_requests)
{
	int hidden = world.transport->hidden_tag;
	unsigned char *out = message(10000, world.rank);
	unsigned char *in = room(10000);
	struct op *recv, *send;

	ck_assert_int_eq(hidden, world.transport->tag_max + 1);
	ck_assert_int_ge(world.transport->tag_max, (1 << 20) - 1);
	ck_assert_int_eq(hidden + HIDDEN_TAGS, world.mpi->body_tag_base);
	ck_assert_uint_eq(world.transport->slots, SLOTS + HIDDEN_SLOTS);
	world.used = SLOTS + HIDDEN_SLOTS - 2;
	recv = post(in, 10000, world.peer, hidden + HIDDEN_TAGS - 1);
	send = sent(out, 10000, world.peer, hidden + HIDDEN_TAGS - 1);
	ck_assert_uint_eq(send->transfer.slot, SLOTS + HIDDEN_SLOTS - 1);
	finish(recv, BATON_OK, 10000);
	finish(send, BATON_OK, 10000);
	check_message(in, 10000, world.peer);
	free(out);
	free(in);
	close_world();
}
END_TEST

/* What is there afterwards is nobody's concern, but all arrive: receives of programs on
 * one tag and on several, and those of puts that overlap in a window. */
START_TEST(pending_receives_may_name_one_buffer)
{
	static const size_t lengths[] = {2048, 2049, 10000, 100000};
	enum { N = 12 };
	unsigned char *in = room(lengths[3]), *out = message(lengths[3], 6);
	int hidden = world.transport->hidden_tag, mark = 1000;
	struct op *recvs[N], *sends[N], *last;

	for (int i = 0; i < N; i++) {
		/* Four on one tag, four on several, four hidden. */
		int tag = i < 4 ? 7 : i < 8 ? i : hidden + i - 8;

		recvs[i] = post(in, lengths[i % 4], world.peer, tag);
	}
	barrier();
	for (int i = 0; i < N; i++)
		sends[i] = sent(out, lengths[i % 4], world.peer,
		                recvs[i]->transfer.tag);
	/* All headers have come before any is looked at. */
	last = sent(out, 1, world.peer, mark);
	await_arrival(mark);
	for (int i = 0; i < N; i++) {
		finish(recvs[i], BATON_OK, lengths[i % 4]);
		finish(sends[i], BATON_OK, lengths[i % 4]);
	}
	finish(post(in, 1, world.peer, mark), BATON_OK, 1);
	finish(last, BATON_OK, 1);
	ck_assert_uint_eq(world.broken, 0);
	free(in);
	free(out);
	close_world();
}
END_TEST

/* Rank 0 gives up an exchange for which the other rank never comes (parts false), or
 * has brought its terms and no more. */
static void
give_up_exchange(bool parts)
{
	long blocks = batoni_mem_blocks();
	int mine = 5, all[2];

	if (world.rank == 0 || parts)
		ck_assert_int_eq(exchange(&mine, sizeof(mine), all),
		                 BATON_PENDING);
	while (world.rank == 0 && parts &&
	       world.mpi->exchanging != BATONI_MPI_PARTS)
		ck_assert_int_eq(exchange(&mine, sizeof(mine), all),
		                 BATON_PENDING);
	barrier();
	world.transport->ops->close(world.transport, true);
	MPI_Comm_free(&world.side);
	open_world();
	/* A room is left of the transport, and has been lent once more. */
	if (world.rank == 0)
		ck_assert_int_eq(batoni_mem_blocks(), blocks + 1);
	mine = 6 + world.rank;
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[world.peer], 6 + world.peer);
}

START_TEST(an_aborted_close_leaves_an_exchange_its_room)
{
	give_up_exchange(false);
	give_up_exchange(true);
	close_world();
}
END_TEST

START_TEST(opening_survives_any_allocation_that_fails)
{
	struct batoni_transport_config shared = config;
	struct batoni_mpi *mpi;
	unsigned long n;
	long blocks = batoni_mem_blocks();

	shared.segment_bytes = SEGMENT_BYTES;
	for (n = 1;; n++) {
		enum baton_status status;

		batoni_mem_fail_at(n);
		mpi = NULL;
		status = batoni_mpi_alloc(&config, 2, &mpi);
		if (status == BATON_OK)
			status = batoni_segments_make(&mpi->segments,
			                              &mpi->base, 2,
			                              &shared);
		if (status == BATON_OK)
			break;
		if (mpi)
			batoni_mpi_free(mpi);
		ck_assert_int_eq(status, BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	}
	batoni_mem_fail_at(0);
	ck_assert_uint_gt(n, 11);
	batoni_mpi_free(mpi);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	close_world();
}
END_TEST

START_TEST(the_thread_level_says_who_may_drive)
{
	static const struct {
		int level;
		enum baton_progress progress;
		enum batoni_drivers drivers;
		const char *name;
	} cases[] = {
		{MPI_THREAD_MULTIPLE, BATON_PROGRESS_AUTO, BATONI_DRIVERS_ANY,
	         ", MPI_THREAD_MULTIPLE"},
		{MPI_THREAD_SERIALIZED, BATON_PROGRESS_AUTO,
	         BATONI_DRIVERS_CALLERS, ", MPI_THREAD_SERIALIZED"},
		{MPI_THREAD_SERIALIZED, BATON_PROGRESS_THREAD,
	         BATONI_DRIVERS_ANY, ", MPI_THREAD_SERIALIZED"},
		{MPI_THREAD_FUNNELED, BATON_PROGRESS_THREAD,
	         BATONI_DRIVERS_MAIN, ", MPI_THREAD_FUNNELED"},
		{MPI_THREAD_SINGLE, BATON_PROGRESS_AUTO, BATONI_DRIVERS_MAIN,
	         ", MPI_THREAD_SINGLE"},
	};

	for (size_t i = 0; i < 5; i++) {
		struct batoni_mpi *mpi;

		ck_assert_int_eq(batoni_mpi_alloc(&config, 2, &mpi), BATON_OK);
		ck_assert_int_eq(batoni_mpi_attach(mpi, world.mpi->comm,
		                                   cases[i].level,
		                                   cases[i].progress),
		                 BATON_OK);
		ck_assert_int_eq(mpi->base.drivers, cases[i].drivers);
		ck_assert_ptr_nonnull(
			strstr(mpi->base.library, cases[i].name));
		ck_assert_ptr_nonnull(strstr(mpi->base.library, "MPI"));
		ck_assert_ptr_null(strchr(mpi->base.library, '\n'));
		batoni_mpi_free(mpi);
	}
	close_world();
}
END_TEST

/* Both ranks send before either receives, so that the sends cannot end. */
START_TEST(an_aborted_close_leaves_to_mpi_what_mpi_still_has)
{
	static unsigned char out[1u << 20], in[1u << 20];
	long blocks = batoni_mem_blocks();
	uint64_t word;

	sent(out, sizeof(out), world.peer, 1);
	ck_assert_uint_ge(world.transport->messages.load.moving, 1);
	post(in, sizeof(in), world.peer, 2);
	post(&word, sizeof(word), world.peer, 3);
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(batoni_mem_blocks(), blocks - BLOCKS);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

static uint64_t exchanged_words[2];

static enum baton_status
exchange_word(struct batoni_transport *transport)
{
	static const uint64_t mine = 1;

	return transport->ops->exchanging->exchange(transport, 5, &mine, sizeof(mine),
	                                            exchanged_words);
}

/* Receive what comes until both ranks are here: the other one may wait for that. */
static void
receive_until_both_are_here(void)
{
	MPI_Request both;
	MPI_Status status;
	uint64_t word;
	int done, here;

	PMPI_Ibarrier(world.side, &both);
	do {
		PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world.mpi->comm, &here,
		            &status);
		if (here)
			PMPI_Recv(&word, sizeof(word), MPI_BYTE,
			          status.MPI_SOURCE, status.MPI_TAG,
			          world.mpi->comm, MPI_STATUS_IGNORE);
		PMPI_Test(&both, &done, MPI_STATUS_IGNORE);
	} while (!done);
}

/* Both ranks' call fails in this slot: the engine is told which call, and what MPI says. */
static void
fail_in(enum baton_status (*slot)(struct batoni_transport *transport),
        const char *call)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	failing = call;
	ck_assert_int_eq(whole(slot), BATON_ERR_MPI);
	failing = NULL;
	ck_assert_uint_eq(world.broken, 1);
	ck_assert_int_eq(world.broken_status, BATON_ERR_MPI);
	ck_assert_str_eq(world.broken_call, call);
	PMPI_Error_string(MPI_ERR_INTERN, text, &length);
	ck_assert_str_eq(world.broken_text, text);
	receive_until_both_are_here();
	world.transport->ops->close(world.transport, true);
	MPI_Comm_free(&world.side);
}

START_TEST(engine_is_told_which_call_of_a_collective_step_has_failed)
{
	static const char *const of_clear[] = {"MPI_Issend", "MPI_Ibarrier",
	                                       "MPI_Iprobe", "MPI_Irecv",
	                                       "MPI_Test"};
	const uint64_t unreceived = 1;

	fail_in(world.transport->ops->leave, "MPI_Iallreduce");
	open_world();
	fail_in(exchange_word, "MPI_Iallreduce");
	open_world();
	fail_in(exchange_word, "MPI_Iallgather");
	for (size_t i = 0; i < sizeof(of_clear) / sizeof(of_clear[0]); i++) {
		open_world();
		finish(sent(&unreceived, sizeof(unreceived), world.peer, 3),
		       BATON_OK, sizeof(unreceived));
		ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
		fail_in(world.transport->ops->clearing->clear, of_clear[i]);
	}
}
END_TEST

/* The other rank receives no leave message. */
START_TEST(an_aborted_close_stops_clearing)
{
	long blocks = batoni_mem_blocks();
	uint64_t out = 1;

	finish(sent(&out, sizeof(out), world.peer, 3), BATON_OK, sizeof(out));
	ck_assert_int_eq(whole(world.transport->ops->leave), BATON_OK);
	ck_assert_int_eq(world.transport->ops->clearing->clear(world.transport),
	                 BATON_PENDING);
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(batoni_mem_blocks(), blocks - BLOCKS);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

START_TEST(an_aborted_close_takes_unmatched_receives_back)
{
	static unsigned char in[2][100];
	long blocks = batoni_mem_blocks();

	post(in[0], 100, world.peer, 2);
	post(in[1], 8, world.peer, 3);
	for (int i = 0; i < 200; i++)
		post(in[1], 8, world.peer, 4);
	ck_assert_uint_gt(world.mpi->following, 100);
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(batoni_mem_blocks(), blocks - BLOCKS);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

/* ---- memory of a device that MPI reaches ---- */

/* In truth it is the host's.  Copies end when the test says so. */
static struct {
	int copies, flushes, yields;
	bool ends; /* copies end */
} device;

static enum baton_status
device_alloc(struct batoni_device *unused, size_t bytes, uint64_t until_ns,
             void **block_p)
{
	(void)unused;
	(void)until_ns;
	*block_p = malloc(bytes);
	return *block_p ? BATON_OK : BATON_ERR_NOMEM;
}

static void
device_free(struct batoni_device *unused, void *block)
{
	(void)unused;
	free(block);
}

static enum baton_status
device_copy(struct batoni_device *unused, void *to, const void *from,
            size_t bytes, int owner, struct batoni_ticket *ticket_p)
{
	(void)unused;
	(void)ticket_p;
	ck_assert_int_eq(owner, 1);
	ck_assert_int_eq(reach.entered, 1);
	memcpy(to, from, bytes);
	device.copies++;
	return BATON_OK;
}

static enum baton_status
device_test(struct batoni_device *unused, struct batoni_ticket *ticket)
{
	(void)unused;
	(void)ticket;
	return device.ends ? BATON_OK : BATON_PENDING;
}

static enum baton_status
device_health(struct batoni_device *unused, struct batoni_fault *fault_p)
{
	(void)unused;
	(void)fault_p;
	return BATON_OK;
}

static enum baton_status
device_enter(struct batoni_device *unused, struct batoni_memory_guard *guard_p)
{
	(void)unused;
	(void)guard_p;
	reach.entered++;
	return BATON_OK;
}

static void
device_exit(struct batoni_device *unused,
            const struct batoni_memory_guard *guard)
{
	(void)unused;
	(void)guard;
	reach.entered--;
}

static enum baton_status
device_flush(struct batoni_device *unused, int owner)
{
	(void)unused;
	ck_assert_int_eq(owner, 1);
	device.flushes++;
	return BATON_OK;
}

static const struct batoni_library_ops device_library = {
	.enter = device_enter,
	.exit = device_exit,
	.flush = device_flush,
};
static const struct batoni_memory_ops device_memory = {
	.library = &device_library,
	.pinned_alloc = device_alloc,
	.pinned_free = device_free,
	.copy_start = device_copy,
	.copy_test = device_test,
	.health = device_health,
};
static const struct batoni_device_ops device_ops = {.memory = &device_memory};

/* In the place of the world that is open. */
static void
open_reaching(void)
{
	static struct batoni_device opened = {.ops = &device_ops};
	struct batoni_transport_config reaching = config;

	close_world();
	memset(&device, 0, sizeof(device));
	reaching.device = &opened;
	open_with(&reaching);
	reach.watched = true;
	reach.outside = 0;
}

/* MPI was called with the device entered alone. */
static void
assert_entered(void)
{
	ck_assert_uint_eq(reach.outside, 0);
	ck_assert_int_eq(reach.entered, 0);
	reach.watched = false;
}

static void
close_reaching(void)
{
	close_world();
	assert_entered();
}

/* Into memory of device 1. */
static struct op *
post_device(void *buffer, size_t bytes, int tag)
{
	struct op *op = post(buffer, bytes, world.peer, tag);

	op->transfer.location = (BATONI_MEMORY_DEVICE + 1) & 0x3fu;
	return op;
}

/* A receive whose message is being copied. */
static struct op *
receive_short(void *buffer, size_t bytes)
{
	unsigned char *out = message(bytes, world.rank);
	struct op *op = post_device(buffer, bytes, 5);

	finish(sent(out, bytes, world.peer, 5), BATON_OK, bytes);
	while (device.copies == 0)
		world.transport->messages.ops->test(&world.transport->messages);
	ck_assert_int_eq(reach.entered, 0);
	ck_assert_uint_eq(op->ends, 0);
	ck_assert_uint_eq(world.transport->messages.load.moving, 1);
	free(out);
	return op;
}

START_TEST(a_short_message_for_a_device_ends_with_its_copy)
{
	unsigned char *in;
	struct op *op;

	open_reaching();
	in = room(100);
	op = receive_short(in, 100);
	world.transport->messages.ops->test(&world.transport->messages);
	ck_assert_int_eq(take_back(op), BATON_ERR_BUSY);
	ck_assert_uint_eq(op->ends, 0);
	device.ends = true;
	finish(op, BATON_OK, 100);
	check_message(in, 100, world.peer);
	ck_assert_int_eq(device.copies, 1);
	ck_assert_int_eq(device.flushes, 0);
	free(in);
	close_reaching();
}
END_TEST

START_TEST(a_body_for_a_device_is_received_there_and_flushed)
{
	unsigned char *in[2], *out;
	struct op *ops[2];

	open_reaching();
	in[0] = room(50000);
	in[1] = room(50000);
	out = message(50000, world.rank);
	ops[0] = post_device(in[0], 50000, 5);
	ops[1] = post(in[1], 50000, world.peer, 6);
	for (int tag = 5; tag < 7; tag++) {
		struct op *send = sent(out, 50000, world.peer, tag);

		finish(ops[tag - 5], BATON_OK, 50000);
		finish(send, BATON_OK, 50000);
		check_message(in[tag - 5], 50000, world.peer);
		/* The second is memory of the host. */
		ck_assert_int_eq(device.flushes, 1);
	}
	ck_assert_int_eq(device.copies, 0);
	free(in[0]);
	free(in[1]);
	free(out);
	close_reaching();
}
END_TEST

START_TEST(an_exchange_of_a_reaching_transport_enters_the_device)
{
	uint64_t mine = (uint64_t)world.rank + 1, all[2];
	enum baton_status status;

	open_reaching();
	do {
		status = world.transport->ops->exchanging->exchange(
			world.transport, 7, &mine, sizeof(mine), all);
	} while (status == BATON_PENDING);
	ck_assert_int_eq(status, BATON_OK);
	ck_assert_uint_eq(all[0] + all[1], 3);
	close_reaching();
}
END_TEST

START_TEST(an_aborted_close_enters_the_device)
{
	unsigned char *in;
	unsigned calls;

	open_reaching();
	in = room(50000);
	post_device(in, 50000, 5);
	world.transport->ops->leave(world.transport);
	calls = tested;
	world.transport->ops->close(world.transport, true);
	/* Of the receive and of the exchange. */
	ck_assert_uint_eq(tested, calls + 2);
	assert_entered();
	free(in);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

/* Another thread that has the driver's lock meanwhile. */
static void
end_copies(unsigned tries)
{
	(void)tries;
	device.yields++;
	device.ends = true;
}

START_TEST(an_aborted_close_gives_way_while_it_waits_for_copies)
{
	struct batoni_patience patience = {.until_ns = UINT64_MAX,
	                                   .yield = end_copies};
	unsigned char *in;

	open_reaching();
	in = room(100);
	receive_short(in, 100);
	barrier();
	world.transport->patience = &patience;
	world.transport->ops->close(world.transport, true);
	ck_assert_int_eq(device.yields, 1);
	ck_assert(!patience.copies_left);
	assert_entered();
	free(in);
	barrier();
	MPI_Comm_free(&world.side);
}
END_TEST

/* ---- */

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

static void
run_all(void)
{
	const TTest *const tests[] = {
		every_size_arrives_whole_in_both_directions,
		a_shorter_message_leaves_the_rest_of_the_buffer,
		a_longer_message_is_truncated_and_nothing_is_overwritten,
		a_message_that_is_too_long_costs_no_other_transfer,
		a_longer_message_to_oneself_is_truncated_too,
		messages_of_one_tag_arrive_in_order_whatever_their_path,
		headers_may_be_received_in_any_order_of_tags,
		hundreds_in_flight_all_end_once,
		what_is_finished_is_seen_within_two_rounds_however_many_are_added,
		a_pass_that_comes_late_tests_all,
		a_pass_sees_what_came_before_it,
		the_only_request_is_tested_four_times_a_pass,
		of_many_receives_on_a_tag_only_the_first_is_tested,
		messages_for_many_receives_on_a_tag_are_seen_at_once,
		receives_that_follow_are_taken_back_from_any_place,
		receives_follow_and_are_taken_back_at_random,
		a_rank_can_send_to_itself,
		the_highest_tag_is_a_tag,
		an_unmatched_receive_is_taken_back_and_gets_nothing,
		a_first_part_that_a_probe_awaits_is_taken_back,
		taking_back_a_receive_that_was_matched_gives_its_message,
		taking_back_does_not_wait_for_the_sender,
		taking_back_a_receive_with_a_body_to_come_lends_it,
		leave_waits_for_the_other_rank,
		what_was_not_received_is_not_in_the_next_communicator,
		clearing_waits_for_the_other_rank,
		a_message_of_another_protocol_breaks_the_transport,
		a_grant_of_another_length_breaks_the_transport,
		a_release_that_is_not_empty_breaks_the_transport,
		what_is_discarded_and_too_long_breaks_the_transport,
		a_call_that_mpi_refuses_breaks_the_transport_with_its_words,
		bodies_are_not_mixed_up_where_tags_are_few,
		a_message_left_unreceived_holds_up_no_other,
		hundreds_end_once_where_tags_are_few,
		messages_of_a_type_meet_in_checked_mode_where_tags_are_few,
		what_has_no_type_in_checked_mode_breaks_the_transport,
		lists_of_every_form_arrive_or_are_drained,
		lists_wait_for_grants_where_tags_are_few,
		a_list_in_many_pieces_to_oneself_arrives,
		a_short_list_makes_no_derived_type,
		a_short_list_arrives_where_no_buffer_is_free,
		short_lists_that_wait_have_no_buffer,
		the_buffer_of_a_list_that_failed_is_left_to_mpi,
		an_mpi_with_too_few_tags_is_refused,
		an_exchange_waits_for_the_other_rank_and_gives_both,
		exchanges_follow_one_another_between_messages,
		an_exchange_without_memory_is_refused_on_all_and_the_next_works,
		an_exchange_that_ranks_mean_differently_is_refused_on_all,
		leaving_while_others_exchange_is_refused_on_all,
		a_rank_of_the_same_host_adds_to_the_others_counter,
		hidden_tags_and_slots_are_beyond_those_of_requests,
		pending_receives_may_name_one_buffer,
		an_aborted_close_leaves_an_exchange_its_room,
		opening_survives_any_allocation_that_fails,
		the_thread_level_says_who_may_drive,
		an_aborted_close_takes_unmatched_receives_back,
		engine_is_told_which_call_of_a_collective_step_has_failed,
		an_aborted_close_stops_clearing,
		an_aborted_close_leaves_to_mpi_what_mpi_still_has,
		a_short_message_for_a_device_ends_with_its_copy,
		a_body_for_a_device_is_received_there_and_flushed,
		an_exchange_of_a_reaching_transport_enters_the_device,
		an_aborted_close_enters_the_device,
		an_aborted_close_gives_way_while_it_waits_for_copies,
	};

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		run_in_process(tests[i]);
}

int
main(int argc, char **argv)
{
	int provided, size;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2)
		printf("SKIP: needs two ranks, has %d\n", size);
	else
		run_all();
	MPI_Finalize();
	return size == 2 ? EXIT_SUCCESS : 77;
}
