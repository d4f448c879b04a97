/* SPDX-License-Identifier: BSD-3-Clause */
#include "near_world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PASSES_MOST 100000

static struct near_rank *
rank_of(struct batoni_upcalls *upcalls)
{
	return batoni_container_of(upcalls, struct near_rank, upcalls);
}

/* ---- the engine ---- */

static void
end_transfer(struct near_rank *rank, struct batoni_transfer *transfer,
             enum baton_status status)
{
	assert(rank->ends[transfer->slot] == BATON_PENDING);
	assert(status != BATON_PENDING);
	rank->ends[transfer->slot] = status;
}

static void
done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
     enum baton_status status)
{
	rank_of(upcalls)->ended++;
	end_transfer(rank_of(upcalls), transfer, status);
}

static void
broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call, int code,
       const char *text)
{
	struct near_rank *rank = rank_of(upcalls);

	(void)call;
	(void)code;
	assert(rank->broken == BATON_OK);
	rank->broken = fatal;
	snprintf(rank->why, sizeof(rank->why), "%s", text);
}

static void
moves(struct batoni_upcalls *upcalls)
{
	(void)upcalls;
}

/* ---- the lower transport ---- */

static size_t
lower_test(struct batoni_path *path)
{
	(void)path;
	return 0;
}

static enum baton_status
lower_leave(struct batoni_transport *lower)
{
	(void)lower;
	return BATON_OK;
}

static void
lower_close(struct batoni_transport *lower, bool aborted)
{
	(void)aborted;
	batoni_container_of(lower, struct near_rank, lower)->lower_closed = true;
}

static const struct batoni_path_ops lower_path = {.name = "nothing",
                                                  .test = lower_test};
static const struct batoni_transport_ops lower_ops = {
	.name = "below",
	.id = BATON_TRANSPORT_AUTO,
	.leave = lower_leave,
	.close = lower_close,
};

/* ---- the world ---- */

static struct batoni_transport_config
config(bool check)
{
	return (struct batoni_transport_config){
		.slots = NEAR_SLOTS,
		.slots_most = NEAR_SLOTS,
		.hidden_tags = NEAR_HIDDEN,
		.check = check,
	};
}

static void
describe(struct near_world *world, int me, enum near_reach reach)
{
	struct near_rank *rank = &world->ranks[me];

	rank->lower = (struct batoni_transport){
		.ops = &lower_ops,
		.messages = {.ops = &lower_path},
		.rank = me,
		.size = NEAR_RANKS,
		.peers = rank->peers,
	};
	rank->upcalls = (struct batoni_upcalls){
		.done = done, .broken = broken, .moves = moves};
	for (int i = 0; i < NEAR_RANKS; i++)
		rank->peers[i] = (struct batoni_peer){
			.segment = &world->ranks[i].segment,
			.pairs = world->ranks[i].area,
			.bell = batoni_bell(),
			.pid = reach == NEAR_READ ? getpid() : 0,
			.pidfd = -1,
			.within = reach == NEAR_WITHIN || i == me,
			.near = true,
			.reaches_us = true,
		};
}

static void
start_path(struct near_rank *rank, struct batoni_pairs *pairs, bool beside)
{
	struct batoni_path *path;

	if (beside) {
		path = batoni_near_ops.beside(pairs, &rank->lower);
		rank->transport = batoni_transport_of(path);
	} else {
		rank->transport = batoni_near_ops.start(pairs, &rank->lower);
		rank->transport->upcalls = &rank->upcalls;
	}
	rank->transport->messages.upcalls = &rank->upcalls;
	rank->transport->patience = &rank->patience;
}

static void
open_all(struct near_world *world, enum near_reach reach, bool check, bool beside)
{
	const struct batoni_transport_config above = config(check);
	size_t bytes = batoni_near_ops.area_bytes(NEAR_RANKS, NEAR_SLOTS);

	memset(world, 0, sizeof(*world));
	batoni_ring_lay_out(NEAR_RANKS, NEAR_SLOTS, &world->layout);
	for (int i = 0; i < NEAR_RANKS; i++) {
		world->ranks[i].area = aligned_alloc(4096, bytes);
		if (!world->ranks[i].area)
			abort();
		memset(world->ranks[i].area, 0, bytes);
	}
	for (int i = 0; i < NEAR_RANKS; i++) {
		struct near_rank *rank = &world->ranks[i];
		struct batoni_pairs *pairs;

		describe(world, i, reach);
		for (int j = 0; beside && j < NEAR_RANKS; j++)
			rank->peers[j].near = i == j || (i != NEAR_RANKS - 1 &&
			                                 j != NEAR_RANKS - 1);
		if (batoni_near_ops.create(&above, NEAR_RANKS, &pairs) != BATON_OK)
			abort();
		start_path(rank, pairs, beside);
	}
}

void
near_open(struct near_world *world, enum near_reach reach, bool check)
{
	open_all(world, reach, check, false);
}

void
near_open_beside(struct near_world *world, enum near_reach reach)
{
	open_all(world, reach, false, true);
}

void
near_close_rank(struct near_world *world, int rank, bool aborted)
{
	struct near_rank *me = &world->ranks[rank];

	struct batoni_path *path = &me->transport->messages;
	bool beside = path->ops->closing != NULL;

	if (beside)
		path->ops->closing->close(path, aborted);
	else
		me->transport->ops->close(me->transport, aborted);
	me->transport = NULL;
	assert(me->lower_closed == !beside);
}

void
near_close_all(struct near_world *world, bool aborted)
{
	for (int i = 0; i < NEAR_RANKS; i++)
		if (world->ranks[i].transport)
			near_close_rank(world, i, aborted);
	for (int i = 0; i < NEAR_RANKS; i++)
		free(world->ranks[i].area);
}

/* ---- transfers ---- */

static struct batoni_path *
path_of(struct near_world *world, int rank)
{
	return &world->ranks[rank].transport->messages;
}

struct batoni_pairs *
near_pairs(struct near_world *world, int rank)
{
	return batoni_near_of(path_of(world, rank));
}

struct near_node *
near_node_of(struct near_world *world, int rank, uint32_t slot)
{
	return &near_pairs(world, rank)->nodes[slot];
}

static void
check_load(struct near_world *world, int rank)
{
	const struct batoni_load *load = &path_of(world, rank)->load;

	assert(load->in_flight <= NEAR_SLOTS);
	assert(load->moving + load->parked == load->in_flight);
}

static enum baton_status
issue_near(struct near_world *world, int me, uint32_t slot, struct batoni_transfer transfer)
{
	struct near_rank *rank = &world->ranks[me];
	enum baton_status status;

	transfer.slot = slot & 0xffffffu;
	transfer.type = BATON_UINT8;
	rank->transfers[slot] = transfer;
	rank->ends[slot] = BATON_PENDING;
	status = batoni_path_issue(path_of(world, me), &rank->transfers[slot]);
	/* Its end is told once: by the call, or by `done` after it. */
	assert(rank->ends[slot] == BATON_PENDING);
	if (status != BATON_PENDING)
		end_transfer(rank, &rank->transfers[slot], status);
	check_load(world, me);
	return status;
}

enum baton_status
near_send(struct near_world *world, int rank, uint32_t slot, int peer, int tag,
          const void *from, size_t bytes)
{
	return issue_near(world, rank, slot,
	                  (struct batoni_transfer){.buffer = (void *)(uintptr_t)from,
	                                           .bytes = bytes,
	                                           .peer = peer,
	                                           .tag = tag,
	                                           .direction = BATONI_SEND});
}

enum baton_status
near_recv(struct near_world *world, int rank, uint32_t slot, int peer, int tag,
          void *to, size_t bytes)
{
	return issue_near(world, rank, slot,
	                  (struct batoni_transfer){.buffer = to,
	                                           .bytes = bytes,
	                                           .peer = peer,
	                                           .tag = tag,
	                                           .direction = BATONI_RECV});
}

static enum baton_status
issue_list(struct near_world *world, int rank, uint32_t slot, int peer, int tag,
           struct batoni_tensor_list *list, enum batoni_direction direction)
{
	return issue_near(world, rank, slot,
	                  (struct batoni_transfer){.buffer = list,
	                                           .bytes = list->payload_bytes,
	                                           .peer = peer,
	                                           .tag = tag,
	                                           .location = BATONI_LOCATION_LIST,
	                                           .direction = direction & 3u});
}

enum baton_status
near_send_list(struct near_world *world, int rank, uint32_t slot, int peer, int tag,
               struct batoni_tensor_list *list)
{
	return issue_list(world, rank, slot, peer, tag, list, BATONI_SEND);
}

enum baton_status
near_recv_list(struct near_world *world, int rank, uint32_t slot, int peer, int tag,
               struct batoni_tensor_list *list)
{
	return issue_list(world, rank, slot, peer, tag, list, BATONI_RECV);
}

enum baton_status
near_take(struct near_world *world, int rank, uint32_t slot)
{
	struct batoni_transfer *transfer = &world->ranks[rank].transfers[slot];
	enum baton_status status = batoni_path_take_back(path_of(world, rank),
	                                                 transfer);

	if (status != BATON_ERR_BUSY)
		end_transfer(&world->ranks[rank], transfer, status);
	check_load(world, rank);
	return status;
}

enum baton_status
near_scrap(struct near_world *world, int rank, uint32_t slot)
{
	struct batoni_path *path = path_of(world, rank);

	return path->ops->scrapping->scrap(path,
	                                   &world->ranks[rank].transfers[slot]);
}

size_t
near_await_one(struct near_world *world, int rank, uint32_t slot)
{
	struct batoni_path *path = path_of(world, rank);
	size_t events = path->ops->awaiting->await(
		path, &world->ranks[rank].transfers[slot], 1);

	check_load(world, rank);
	return events;
}

size_t
near_pass(struct near_world *world, int rank)
{
	struct batoni_path *path = path_of(world, rank);
	size_t events = path->ops->test(path);

	check_load(world, rank);
	return events;
}

void
near_run(struct near_world *world)
{
	size_t events = 1;

	for (int pass = 0; events; pass++) {
		assert(pass < PASSES_MOST);
		events = 0;
		for (int i = 0; i < NEAR_RANKS; i++)
			if (world->ranks[i].transport)
				events += near_pass(world, i);
	}
}
