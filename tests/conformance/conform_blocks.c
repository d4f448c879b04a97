/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from and into memory of baton_mem_alloc.  Near maps it (transport/near/blocks.c), at some
 * moment behind the first message from it: so each case makes several. */
#include <string.h>

#include "harness.h"

enum { ROUNDS = 4 };

static const size_t sizes[] = { 8,     8192,        8193,        16385,
	                        65536, MIB + 4097 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define ROOM (3 * MIB / 2)

static unsigned char *
take_block(struct conform *c, struct baton_comm *comm, size_t bytes)
{
	void *block = NULL;

	CHECK_OK(c, baton_mem_alloc(comm, bytes, &block));
	return block;
}

/* To the other rank of a pair, or from it. */
static void
pass(struct conform *c, struct baton_comm *comm, bool sends, void *data, size_t bytes)
{
	baton_request request = BATON_REQUEST_NULL;
	int peer = 1 - c->rank;

	if (sends)
		CHECK_OK(c, baton_send(data, bytes, BATON_UINT8, peer, 0, comm,
		                       c->stream, NULL, &request));
	else
		CHECK_OK(c, baton_recv(data, bytes, BATON_UINT8, peer, 0, comm,
		                       c->stream, NULL, &request));
	FINISH(c, BATON_OK, &request);
}

static void
messages_of_all_lengths_from_a_block_arrive(struct conform *c)
{
	unsigned char *block;

	if (c->rank > 1)
		return;
	block = take_block(c, c->comm, ROOM);
	for (unsigned i = 0; i < ROUNDS * 2 * SIZES; i++) {
		size_t bytes = sizes[i / 2 % SIZES], at = i * 4099 % (ROOM - bytes);
		bool sends = (i & 1) == (unsigned)c->rank;

		conform_set(c, block, 0xee, ROOM);
		if (sends)
			conform_write(c, block + at, bytes, i);
		pass(c, c->comm, sends, block + at, bytes);
		CHECK_FILLED(c, block + at, bytes, i);
		CHECK_ALL(c, block, at, 0xee);
		CHECK_ALL(c, block + at + bytes, ROOM - at - bytes, 0xee);
	}
	CHECK_OK(c, baton_mem_free(c->comm, block));
}

/* It has the address of the one before, as a rule. */
static void
a_block_that_was_freed_leaves_the_next_one_its_bytes(struct conform *c)
{
	const size_t bytes = 100000;

	for (unsigned i = 0; i < 60 && c->rank < 2; i++) {
		bool sends = (i / 30) == (unsigned)c->rank;
		void *data = sends ? take_block(c, c->comm, bytes)
		                   : conform_alloc(c, bytes);

		for (unsigned k = 0; k < 3; k++) {
			if (sends)
				conform_write(c, data, bytes, 3 * i + k);
			pass(c, c->comm, sends, data, bytes);
			CHECK_FILLED(c, data, bytes, 3 * i + k);
		}
		if (sends)
			CHECK_OK(c, baton_mem_free(c->comm, data));
	}
}

/* More than a receiver keeps mapped. */
static void
messages_from_many_blocks_arrive(struct conform *c)
{
	enum { N = 80 };
	const size_t bytes = 20000;
	unsigned char **blocks = conform_alloc(c, N * sizeof(*blocks));
	unsigned char *in = conform_alloc(c, bytes);

	if (c->rank > 1)
		return;
	for (unsigned i = 0; i < N; i++)
		blocks[i] = take_block(c, c->comm, bytes);
	for (unsigned i = 0; i < 3 * N; i++) {
		unsigned char *data = c->rank == 0 ? blocks[i % N] : in;

		if (c->rank == 0)
			conform_write(c, data, bytes, i);
		pass(c, c->comm, c->rank == 0, data, bytes);
		CHECK_FILLED(c, data, bytes, i);
	}
	for (unsigned i = 0; i < N; i++)
		CHECK_OK(c, baton_mem_free(c->comm, blocks[i]));
}

/* And the other way round; both say that it goes. */
static void
a_block_of_one_communicator_is_sent_over_another(struct conform *c)
{
	const size_t bytes = 300000;
	struct baton_comm *other = conform_comm(c, NULL);

	for (unsigned i = 0; i < 2 * ROUNDS && c->rank < 2; i++) {
		struct baton_comm *owner = i & 1 ? other : c->comm;
		unsigned char *block = take_block(c, owner, bytes);

		for (unsigned k = 0; k < 6; k++) {
			bool sends = (k & 1) == (unsigned)c->rank;

			if (sends)
				conform_write(c, block, bytes, 10 * i + k);
			pass(c, k % 3 ? other : c->comm, sends, block, bytes);
			CHECK_FILLED(c, block, bytes, 10 * i + k);
		}
		CHECK_OK(c, baton_mem_free(owner, block));
	}
	CHECK_OK(c, baton_comm_destroy(other));
}

/* Several blocks, and memory of the program's, in one list. */
static void
lists_of_tensors_in_blocks_arrive(struct conform *c)
{
	enum { N = 100 };
	struct baton_tensor list[N];
	unsigned char *first, *second, *own = conform_alloc(c, MIB);

	if (c->rank > 1)
		return;
	first = take_block(c, c->comm, MIB);
	second = take_block(c, c->comm, MIB);
	for (unsigned round = 0; round < ROUNDS; round++) {
		baton_request request = BATON_REQUEST_NULL;

		for (unsigned i = 0; i < N; i++) {
			unsigned char *in = i % 7 == 3 ? own : i % 5 == 2 ? second
			                                                  : first;
			list[i] = (struct baton_tensor){
				.data = in + (size_t)i * 10000,
				.type = BATON_UINT8,
				.rank = 1,
				.shape = { i % 11 == 5 ? 0 : (int64_t)i * 90 },
			};
			if (c->rank == (int)(round & 1))
				conform_write(c, list[i].data, i * 90u,
				              round * N + i);
		}
		if (c->rank == (int)(round & 1))
			CHECK_OK(c, baton_send_tensors(list, N, 1 - c->rank, 0,
			                               c->comm, c->stream, NULL,
			                               &request));
		else
			CHECK_OK(c, baton_recv_tensors(list, N, 1 - c->rank, 0,
			                               c->comm, c->stream, NULL,
			                               &request));
		FINISH(c, BATON_OK, &request);
		for (unsigned i = 0; i < N; i++)
			if (i % 11 != 5)
				CHECK_FILLED(c, list[i].data, i * 90u,
				             round * N + i);
	}
	CHECK_OK(c, baton_mem_free(c->comm, first));
	CHECK_OK(c, baton_mem_free(c->comm, second));
}

const struct conform_case conform_blocks[] = {
	{ CASE(messages_of_all_lengths_from_a_block_arrive), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS, .flags = CONFORM_HOST_DEVICE },
	{ CASE(a_block_that_was_freed_leaves_the_next_one_its_bytes),
	  .ranks_min = 2, .needs = BATON_CAP_WINDOWS,
	  .flags = CONFORM_HOST_DEVICE },
	{ CASE(messages_from_many_blocks_arrive), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS, .flags = CONFORM_HOST_DEVICE },
	{ CASE(a_block_of_one_communicator_is_sent_over_another), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS, .flags = CONFORM_HOST_DEVICE },
	{ CASE(lists_of_tensors_in_blocks_arrive), .ranks_min = 2,
	  .needs = BATON_CAP_WINDOWS | BATON_CAP_TENSORS,
	  .flags = CONFORM_HOST_DEVICE },
	CASES_END,
};
