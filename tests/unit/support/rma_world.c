/* SPDX-License-Identifier: BSD-3-Clause */
#include "rma_world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"
#include "message.h"

static void
record_done(struct batoni_upcalls *upcalls,
            struct batoni_transfer *transfer, enum baton_status status)
{
	struct rma_world *world =
		batoni_container_of(upcalls, struct rma_world, comm.upcalls);

	if (transfer->slot >= REQUESTS) {
		batoni_message_done(&world->rma, transfer, status);
		return;
	}
	ck_assert_uint_lt(world->ends, ENDS);
	world->ended[world->ends] = transfer;
	world->status[world->ends++] = status;
}

void
rma_world_forget_end(struct rma_world *world)
{
	world->ends--;
	memmove(world->ended, world->ended + 1,
	        world->ends * sizeof(world->ended[0]));
	memmove(world->status, world->status + 1,
	        world->ends * sizeof(world->status[0]));
}

static enum baton_status
record_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct rma_world *world = batoni_container_of(
		batoni_transport_of(path), struct rma_world, transport);

	if (transfer->direction != BATONI_SEND) {
		world->receives += world->of_receives == BATON_PENDING;
		return world->of_receives;
	}
	if (world->answer == BATON_PENDING) {
		ck_assert_uint_lt(world->messages, ENDS);
		world->message[world->messages++] = transfer;
	}
	return world->answer;
}

static enum baton_status
record_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct rma_world *world = batoni_container_of(
		batoni_transport_of(path), struct rma_world, transport);

	if (transfer->direction != BATONI_RECV)
		return BATON_ERR_BUSY;
	world->receives -= world->of_taking != BATON_ERR_BUSY;
	return world->of_taking;
}

static void
record_broken(struct batoni_upcalls *upcalls, enum baton_status fatal,
              const char *call, int code, const char *text)
{
	struct rma_world *world =
		batoni_container_of(upcalls, struct rma_world, comm.upcalls);

	(void)call, (void)code;
	ck_assert_ptr_nonnull(text);
	world->broken = fatal;
}

static const struct batoni_path_ops messages_ops = {
	.name = "the recording transport",
	.kinds = BATONI_MESSAGES,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = record_issue,
		.take_back = record_take_back,
	},
};

static const struct batoni_transport_ops recording_ops = {
	.name = "recording",
};

void
message_sent(struct rma_world *world, size_t i, enum baton_status status)
{
	ck_assert_uint_lt(i, world->messages);
	world->comm.upcalls.done(&world->comm.upcalls, world->message[i], status);
}

void
answer_came(struct rma_world *world, uint32_t lane, enum baton_status status)
{
	struct batoni_lane *of = &world->rma.messages->lanes[lane];

	ck_assert(of->awaits);
	world->receives--;
	of->payload.done_bytes = of->payload.bytes;
	world->comm.upcalls.done(&world->comm.upcalls, &of->payload, status);
}

static void
open_layer(struct rma_world *world)
{
	struct batoni_rma *rma = &world->rma;

	rma->comm = &world->comm;
	rma->transport = &world->transport;
	rma->rank = ME;
	rma->size = RANKS;
	rma->requests_max = REQUESTS;
	rma->base.signals_max = SIGNALS;
	rma->base.contexts_max = CONTEXTS;
	rma->source_bytes = batoni_onesided_source_bytes(SIGNALS, CONTEXTS);
	rma->pending = batoni_alloc(REQUESTS, sizeof(*rma->pending));
	ck_assert_int_eq(batoni_links_open(rma), BATON_OK);
	rma->signal_path = batoni_alloc(RANKS, sizeof(*rma->signal_path));
	batoni_list_init(&rma->channels_active);
	batoni_unended_init(rma);
	batoni_list_init(&rma->windows);
	for (int rank = 0; rank < RANKS; rank++)
		rma->signal_path[rank] = BATON_WINDOW_PATH_DIRECT;
	ck_assert_int_eq(batoni_nodes_open(rma), BATON_OK);
	ck_assert_int_eq(batoni_messages_open(rma), BATON_OK);
	batoni_messages_start(rma);
	/* The calls make these. */
	for (int rank = 0; rank < RANKS; rank++) {
		struct batoni_link *link = batoni_link_make(rma, rank);

		ck_assert_ptr_nonnull(link);
		for (int i = 0; i < CONTEXTS; i++) {
			struct batoni_wire *wire =
				batoni_wire_make(rma, &link->channels[i]);

			ck_assert_ptr_nonnull(wire);
			wire->greeted = true; /* hellos are test_message.c's */
		}
	}
}

static void
open_window(struct rma_world *world)
{
	struct baton_window *window = batoni_alloc(
		1, sizeof(*window) + RANKS * sizeof(window->peers[0]));

	window->rma = &world->rma;
	window->id = 1;
	for (int rank = 0; rank < RANKS; rank++) {
		world->parts[rank] = batoni_alloc(1, PART_BYTES);
		ck_assert_ptr_nonnull(world->parts[rank]);
		window->peers[rank] = (struct batoni_window_peer){
			.bytes = PART_BYTES,
			.path = BATON_WINDOW_PATH_DIRECT,
			.base = world->parts[rank],
			.address = (uintptr_t)world->parts[rank],
		};
	}
	window->base = world->parts[ME];
	window->bytes = PART_BYTES;
	world->window = window;
}

void
rma_world_open(struct rma_world *world)
{
	memset(world, 0, sizeof(*world));
	world->comm.upcalls.done = record_done;
	world->comm.upcalls.broken = record_broken;
	world->answer = world->of_receives = BATON_PENDING;
	/* No message has come for them. */
	world->of_taking = BATON_ERR_CANCELED;
	world->transport.ops = &recording_ops;
	world->transport.messages.ops = &messages_ops;
	world->transport.upcalls = &world->comm.upcalls;
	world->transport.rank = ME;
	world->transport.size = RANKS;
	world->transport.messages.load.quiet = true;
	world->transport.lets_go = true; /* it is gone when it is closed */
	world->transport.hidden_tags = batoni_onesided_tags(CONTEXTS);
	world->transport.peers = world->peers;
	for (int rank = 0; rank < RANKS; rank++) {
		world->segments[rank] = batoni_alloc(
			1, batoni_onesided_segment_bytes(RANKS, SIGNALS,
		                                         CONTEXTS));
		world->peers[rank] = (struct batoni_peer){
			.segment = world->segments[rank],
			.bell = &world->bells[rank],
			.pid = getpid(),
			.pidfd = -1,
			.within = true,
			.reaches_us = true,
		};
	}
	for (uint32_t slot = 0; slot < REQUESTS; slot++)
		world->transfers[slot].slot = slot & 0xffffffu;
	open_layer(world);
	open_window(world);
}

void
rma_world_close(struct rma_world *world)
{
	struct batoni_rma *rma = &world->rma;

	batoni_free(world->window);
	for (int rank = 0; rank < RANKS; rank++) {
		batoni_free(world->segments[rank]);
		batoni_free(world->parts[rank]);
	}
	/* Receives may have been left with the transport; it is gone. */
	batoni_messages_close(rma, true);
	batoni_nodes_close(rma);
	batoni_free(rma->pending);
	batoni_links_close(rma);
	batoni_free(rma->signal_path);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

uint64_t
counter_at(struct rma_world *world, int rank, int source, int signal_index,
           int context)
{
	return atomic_load_explicit(
		batoni_segment_counter(&world->rma, world->segments[rank],
	                               source, signal_index, context),
		memory_order_acquire);
}

void
signal_from(struct rma_world *world, int source, int signal_index, int context)
{
	atomic_fetch_add(batoni_segment_counter(&world->rma,
	                                        world->segments[ME], source,
	                                        signal_index, context),
	                 1);
}

/* ---- waits ---- */

struct baton_wait_signal_desc
wait_desc(int op_count, int peer, int signal_index, int context)
{
	return (struct baton_wait_signal_desc){
		.op_count = op_count,
		.peer = peer,
		.signal_index = signal_index,
		.context = context,
	};
}

void
describe_wait(struct rma_world *world, uint32_t slot, size_t count,
              const struct baton_wait_signal_desc *descs)
{
	world->transfers[slot].direction = BATONI_WAIT;
	world->transfers[slot].done_bytes = 99;
	ck_assert_int_eq(batoni_wait_describe(&world->rma, slot, count, descs), BATON_OK);
}

enum baton_status
issue_wait(struct rma_world *world, uint32_t slot)
{
	return batoni_wait_issue(&world->rma, &world->transfers[slot]);
}

enum baton_status
take_wait_back(struct rma_world *world, uint32_t slot)
{
	return batoni_wait_take_back(&world->rma, &world->transfers[slot]);
}

size_t
test_waits(struct rma_world *world)
{
	return batoni_waits_test(&world->rma);
}

/* All of them can be had: none has been lost. */
static void
assert_all_nodes_are_free(struct batoni_rma *rma)
{
	uint32_t free = 0;

	for (uint32_t i = rma->free_node; i; i = batoni_node_at(rma, i)->next) {
		ck_assert(batoni_list_empty(&batoni_node_at(rma, i)->link));
		free++;
	}
	/* The others are made when they are needed. */
	ck_assert_uint_eq(free, REQUESTS + (rma->nodes_more ? RANKS : 0));
	ck_assert_uint_ne(rma->spare_node, 0);
	ck_assert(batoni_list_empty(&batoni_node_at(rma, rma->spare_node)->link));
}

void
assert_no_waits(struct rma_world *world)
{
	assert_idle(world);
	ck_assert_uint_eq(world->rma.base.path.load.awaiting, 0);
	assert_all_nodes_are_free(&world->rma);
	for (int peer = 0; peer < RANKS; peer++) {
		const struct batoni_link *link = batoni_link_of(&world->rma, peer);

		for (int i = 0; link && i < SIGNALS * CONTEXTS; i++)
			ck_assert(batoni_list_empty(&link->counters[i].nodes));
	}
}
