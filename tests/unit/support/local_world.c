/* SPDX-License-Identifier: BSD-3-Clause */
#include "local_world.h"

#include <check.h>
#include <stdlib.h>

#include "list.h"
#include "mem.h"

static void
record_done(struct batoni_upcalls *upcalls,
            struct batoni_transfer *transfer, enum baton_status status)
{
	struct recorder *recorder =
		batoni_container_of(upcalls, struct recorder, upcalls);

	ck_assert_uint_lt(recorder->count, SLOTS);
	recorder->ended[recorder->count] = transfer;
	recorder->status[recorder->count] = status;
	recorder->count++;
}

static void
record_moves(struct batoni_upcalls *upcalls)
{
	batoni_container_of(upcalls, struct recorder, upcalls)->moves++;
}

void
open_world(struct world *world, int size, uint32_t slots)
{
	const struct batoni_transport_config config = {
		.slots = slots,
		.hidden_tags = HIDDEN_TAGS,
		.segment_bytes = SEGMENT_BYTES,
	};

	world->size = size;
	world->recorders = calloc((size_t)size, sizeof(*world->recorders));
	ck_assert_ptr_nonnull(world->recorders);
	ck_assert_int_eq(batoni_local_open(size, &config, world->transports),
	                 BATON_OK);
	for (int rank = 0; rank < size; rank++) {
		world->recorders[rank].upcalls.done = record_done;
		world->recorders[rank].upcalls.moves = record_moves;
		world->transports[rank]->upcalls = &world->recorders[rank].upcalls;
	}
}

void
close_rank(struct world *world, int rank)
{
	struct batoni_transport *transport = world->transports[rank];

	transport->ops->close(transport, true);
	world->transports[rank] = NULL;
}

void
close_world(struct world *world)
{
	for (int rank = 0; rank < world->size; rank++) {
		if (world->transports[rank])
			close_rank(world, rank);
	}
	free(world->recorders);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

enum baton_status
issue(struct world *world, int rank, struct batoni_transfer *transfer)
{
	struct batoni_transport *transport = world->transports[rank];

	return batoni_path_issue(&transport->messages, transfer);
}

size_t
test(struct world *world, int rank)
{
	struct batoni_transport *transport = world->transports[rank];

	return transport->messages.ops->test(&transport->messages);
}

enum baton_status
take_back(struct world *world, int rank, struct batoni_transfer *transfer)
{
	struct batoni_transport *transport = world->transports[rank];

	return batoni_path_take_back(&transport->messages, transfer);
}

struct batoni_transfer
transfer(enum batoni_direction direction, uint32_t slot, int peer, int tag,
         void *buffer, size_t bytes)
{
	return (struct batoni_transfer){
		.buffer = buffer,
		.bytes = bytes,
		.peer = peer,
		.tag = tag,
		.slot = slot & 0xffffffu,
		.direction = (unsigned)direction & 3u,
	};
}

void
assert_idle(const struct world *world, int rank)
{
	ck_assert_uint_eq(world->transports[rank]->messages.load.in_flight, 0);
	ck_assert_uint_eq(world->transports[rank]->messages.load.moving, 0);
}

void
assert_last(const struct world *world, int rank,
            const struct batoni_transfer *ended, enum baton_status status)
{
	const struct recorder *recorder = &world->recorders[rank];

	ck_assert_uint_gt(recorder->count, 0);
	ck_assert_ptr_eq(recorder->ended[recorder->count - 1], ended);
	ck_assert_int_eq(recorder->status[recorder->count - 1], status);
}

unsigned char *
pattern(size_t bytes, unsigned seed)
{
	unsigned char *block = malloc(bytes ? bytes : 1);

	ck_assert_ptr_nonnull(block);
	for (size_t i = 0; i < bytes; i++)
		block[i] = (unsigned char)((131 * seed + i) % 251);
	return block;
}

unsigned char *
zeros(size_t bytes)
{
	unsigned char *block = calloc(1, bytes);

	ck_assert_ptr_nonnull(block);
	return block;
}

void
assert_zeros(const unsigned char *block, size_t bytes)
{
	size_t at = 0;

	while (at < bytes && block[at] == 0)
		at++;
	ck_assert_uint_eq(at, bytes);
}
