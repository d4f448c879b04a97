/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals by messages, between ranks of a local transport that are stepped
 * by hand.  What the one-sided layer calls around them (the end of a put, the finding
 * of a window, the hold of a communicator) is the test's own and keeps records.
 */
#include <stdlib.h>
#include <string.h>

#include "life.h"
#include "mem.h"
#include "message.h"
#include "native_path.h"
#include "run_tests.h"

#define RANKS 2
#define CONTEXTS 2
#define SIGNALS 3
#define REQUESTS 64u
#define COUNTERS (RANKS * CONTEXTS * SIGNALS)
#define MIB ((size_t)1 << 20)
#define WINDOW_BYTES (4 * MIB)
#define WINDOW_ID 7u
#define INLINE_BYTES 2008u /* 2 KiB, less the header */
#define NOT_ENDED 1000
#define LANES (BATONI_ONESIDED_LANES + 1) /* that one channel can have */

struct rank {
	struct batoni_rma rma; /* must be first */
	struct batoni_upcalls upcalls;
	struct batoni_transfer transfers[REQUESTS];
	struct batoni_pending pendings[REQUESTS];
	unsigned char signal_path[RANKS];
	struct baton_window *window;
	int status[REQUESTS]; /* of puts: how they ended, or NOT_ENDED */
	int ends, holds, looks;
};

static struct rank *ranks; /* of the test that runs */

/* ---- what is around message.c ---- */

void
batoni_comm_hold(struct baton_comm *comm, bool hold)
{
	struct rank *rank = (struct rank *)(void *)comm;

	rank->holds += hold ? 1 : -1;
}

void
batoni_comm_set_busy(struct baton_comm *comm)
{
	struct rank *rank = (struct rank *)(void *)comm;

	rank->looks++;
}

void
batoni_put_ended(struct batoni_rma *rma, struct batoni_transfer *transfer,
                 enum baton_status status)
{
	struct rank *rank = (struct rank *)(void *)rma;

	ck_assert_ptr_eq(transfer, &rank->transfers[transfer->slot]);
	ck_assert_int_eq(rank->status[transfer->slot], NOT_ENDED);
	rank->status[transfer->slot] = status;
	rank->ends++;
}

struct baton_window *
batoni_window_find(struct batoni_rma *rma, uint64_t id)
{
	struct rank *rank = (struct rank *)(void *)rma;

	return id == WINDOW_ID ? rank->window : NULL;
}

/* The units of rank 0 that have come by the native transport. */
static uint64_t units_come;

enum baton_status
batoni_native_await(const struct batoni_rma *rma, int source, uint64_t units)
{
	ck_assert_ptr_eq(rma, &ranks[1].rma);
	ck_assert_int_eq(source, 0);
	return units <= units_come ? BATON_OK : BATON_PENDING;
}

/* Of those that have come, no more than so many. */
#define UNITS_AHEAD 100u

bool
batoni_native_may_come(const struct batoni_rma *rma, int source, uint64_t units)
{
	ck_assert_ptr_eq(rma, &ranks[1].rma);
	ck_assert_int_eq(source, 0);
	return units <= units_come + UNITS_AHEAD;
}

/* Rank 1 has native puts, and its window is one of the library's. */
static void
make_native(void)
{
	units_come = 0;
	ranks[1].rma.native = ranks[1].rma.transport;
	ranks[1].window->native = (void *)ranks[1].window;
}

/* All ranks are tested in turn. */
static void
host_moves(struct batoni_upcalls *upcalls)
{
	(void)upcalls;
}

/* As the engine does: of this layer's own messages only ends come. */
static void
host_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
          enum baton_status status)
{
	struct rank *rank = batoni_container_of(upcalls, struct rank, upcalls);

	ck_assert_uint_ge(transfer->slot, REQUESTS);
	batoni_message_done(&rank->rma, transfer, status);
}

/* ---- the world ---- */

static void
open_rank(struct rank *rank, int number, struct batoni_transport *transport)
{
	struct batoni_rma *rma = &rank->rma;

	rma->comm = (struct baton_comm *)(void *)rank;
	rma->transport = transport;
	rma->rank = number;
	rma->size = RANKS;
	rma->requests_max = REQUESTS;
	rma->base.signals_max = SIGNALS;
	rma->base.contexts_max = CONTEXTS;
	rma->pending = rank->pendings;
	rma->source_bytes = batoni_onesided_source_bytes(SIGNALS, CONTEXTS);
	rma->signal_path = rank->signal_path;
	batoni_unended_init(rma);
	for (int i = 0; i < RANKS; i++)
		rank->signal_path[i] = BATON_WINDOW_PATH_MESSAGE;
	ck_assert_int_eq(batoni_links_open(rma), BATON_OK);
	for (uint32_t i = 0; i < REQUESTS; i++)
		rank->status[i] = NOT_ENDED;
	rank->upcalls.done = host_done;
	rank->upcalls.moves = host_moves;
	transport->upcalls = &rank->upcalls;
	rank->window = calloc(1, sizeof(*rank->window));
	ck_assert_ptr_nonnull(rank->window);
	rank->window->id = WINDOW_ID;
	rank->window->bytes = WINDOW_BYTES;
	rank->window->base = calloc(1, WINDOW_BYTES);
	ck_assert_ptr_nonnull(rank->window->base);
	ck_assert_int_eq(batoni_messages_open(rma), BATON_OK);
	batoni_messages_start(rma);
}

static void
setup(void)
{
	const struct batoni_transport_config config = {
		.slots = REQUESTS + (uint32_t)batoni_onesided_slots(
			                    RANKS, CONTEXTS),
		.hidden_tags = batoni_onesided_tags(CONTEXTS),
		.segment_bytes = batoni_onesided_segment_bytes(RANKS, SIGNALS,
		                                               CONTEXTS),
	};
	struct batoni_transport *transports[RANKS];

	ranks = calloc(RANKS, sizeof(*ranks));
	ck_assert_ptr_nonnull(ranks);
	ck_assert_int_eq(batoni_local_open(RANKS, &config, transports),
	                 BATON_OK);
	for (int i = 0; i < RANKS; i++)
		open_rank(&ranks[i], i, transports[i]);
}

/* aborted: with messages still at the transport. */
static void
close_rank(struct rank *rank, bool aborted)
{
	struct batoni_transport *transport = rank->rma.transport;

	/* In this order, as a communicator does. */
	transport->ops->close(transport, aborted);
	batoni_messages_close(&rank->rma, aborted);
	batoni_links_close(&rank->rma);
	ck_assert_ptr_null(rank->rma.messages);
	free(rank->window->base);
	free(rank->window);
}

/* One pass of the engine for a rank. */
static size_t
pass(struct rank *rank)
{
	struct batoni_transport *transport = rank->rma.transport;
	size_t events = 0;

	if (transport->messages.load.in_flight > 0)
		events += transport->messages.ops->test(&transport->messages);
	if (rank->rma.base.path.load.in_flight > 0)
		events += batoni_messages_test(&rank->rma);
	return events;
}

static void
pass_until_still(void)
{
	size_t events;

	do {
		events = 0;
		for (int i = 0; i < RANKS; i++)
			events += pass(&ranks[i]);
	} while (events > 0);
}

static void
teardown(void)
{
	pass_until_still();
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(batoni_messages_drain(&ranks[i].rma),
		                 BATON_OK);
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(batoni_messages_leave(&ranks[i].rma),
		                 BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		ck_assert_uint_eq(ranks[i].rma.base.path.load.in_flight, 0);
		ck_assert_uint_eq(ranks[i].rma.base.path.load.moving, 0);
		ck_assert_uint_eq(ranks[i].rma.transport->messages.load.in_flight, 0);
		close_rank(&ranks[i], false);
	}
	free(ranks);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct batoni_wire *
wire_of(int from, int to, int context)
{
	struct batoni_rma *rma = &ranks[from].rma;
	struct batoni_link *link = batoni_link_make(rma, to);
	struct batoni_wire *wire;

	ck_assert_ptr_nonnull(link);
	wire = batoni_wire_make(rma, &link->channels[context]);
	ck_assert_ptr_nonnull(wire);
	return wire;
}

/* Announce a channel, to a rank that receives that. */
static void
greet(int from, int to, int context)
{
	struct batoni_transport *transport = ranks[from].rma.transport;
	struct batoni_wire *wire = wire_of(from, to, context);

	ck_assert_int_eq(batoni_path_issue(&transport->messages,
	                                   &wire->hello_transfer),
	                 BATON_OK);
	wire->greeted = true;
	pass_until_still();
}

/* All ranks do, and all channels are known. */
static void
listen_all(void)
{
	for (int i = 0; i < RANKS; i++)
		batoni_messages_listen(&ranks[i].rma, 1);
	for (int from = 0; from < RANKS; from++)
		for (int to = 0; to < RANKS; to++)
			for (int context = 0; context < CONTEXTS; context++)
				greet(from, to, context);
	for (int i = 0; i < RANKS; i++)
		ranks[i].looks = 0;
}

/* ---- puts ---- */

static void
describe_put(int from, uint32_t slot, int to, int context, int signal_index,
             const void *data, size_t bytes, size_t offset)
{
	struct rank *rank = &ranks[from];
	struct batoni_transfer *transfer = &rank->transfers[slot];
	struct batoni_pending *pending = &rank->pendings[slot];

	*transfer = (struct batoni_transfer){
		.buffer = (void *)(uintptr_t)data,
		.bytes = bytes,
		.peer = to,
		.tag = context,
	};
	transfer->slot = slot & 0xffffffu;
	transfer->direction = BATONI_PUT;
	pending->transfer = transfer;
	pending->put.window = data ? rank->window : NULL;
	pending->put.offset = offset;
	pending->put.signal_index = signal_index;
	pending->put.task = BATONI_TASK_PUT;
	pending->put.native = false;
	rank->status[slot] = NOT_ENDED;
	wire_of(from, to, context);
}

static enum baton_status
put_at(int from, uint32_t slot, int to, int context, int signal_index,
       const void *data, size_t bytes, size_t offset)
{
	describe_put(from, slot, to, context, signal_index, data, bytes, offset);
	return batoni_message_put(&ranks[from].rma, slot, data != NULL);
}

static enum baton_status
signal_to(int from, uint32_t slot, int to, int context, int signal_index)
{
	return put_at(from, slot, to, context, signal_index, NULL, 0, 0);
}

static uint64_t
count(int at, int from, int context, int signal_index)
{
	const struct batoni_rma *rma = &ranks[at].rma;
	const struct batoni_link *link = batoni_link_of(rma, from);

	return link ? atomic_load(batoni_counter_of(rma, link, signal_index,
	                                            context)
	                                  ->value)
	            : 0;
}

static unsigned char *
window_of(int rank)
{
	return ranks[rank].window->base;
}

static unsigned char *
pattern(size_t bytes, unsigned seed)
{
	unsigned char *block = malloc(bytes + 1);

	ck_assert_ptr_nonnull(block);
	for (size_t i = 0; i < bytes; i++)
		block[i] = (unsigned char)(1 + (i * 7 + i / 251 + seed) % 255);
	return block;
}

START_TEST(signal_alone_is_counted_once_where_it_belongs)
{
	listen_all();
	ck_assert_int_eq(signal_to(0, 3, 1, 1, 2), BATON_PENDING);
	pass_until_still();
	ck_assert_int_eq(ranks[0].status[3], BATON_OK);
	for (int context = 0; context < CONTEXTS; context++) {
		for (int i = 0; i < SIGNALS; i++) {
			ck_assert_uint_eq(count(1, 0, context, i),
			                  context == 1 && i == 2);
			ck_assert_uint_eq(count(1, 1, context, i), 0);
			ck_assert_uint_eq(count(0, 1, context, i), 0);
		}
	}
	ck_assert_uint_eq(batoni_messages_sent(&ranks[0].rma, 1), 1);
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0), 1);
	ck_assert_uint_eq(batoni_messages_sent(&ranks[0].rma, 0), 0);
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 1), 0);
}
END_TEST

/* The sender hears of it from a test, though the message may have ended in issue. */
START_TEST(put_ends_after_its_hand_over)
{
	listen_all();
	ck_assert_int_eq(signal_to(0, 0, 1, 0, 0), BATON_PENDING);
	ck_assert_int_eq(ranks[0].ends, 0);
	ck_assert_uint_gt(ranks[0].rma.base.path.load.in_flight, 0);
	ck_assert_uint_gt(ranks[0].rma.base.path.load.moving, 0);
	batoni_messages_test(&ranks[0].rma);
	ck_assert_int_eq(ranks[0].ends, 1);
	ck_assert_uint_eq(ranks[0].rma.base.path.load.in_flight, 0);
}
END_TEST

/* Nothing is applied within the transport. */
START_TEST(message_is_applied_by_a_test)
{
	listen_all();
	signal_to(0, 0, 1, 0, 0);
	ck_assert_uint_eq(count(1, 0, 0, 0), 0);
	ck_assert_int_eq(ranks[1].looks, 1);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.in_flight, 1);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.moving, 1);
	ck_assert_uint_gt(batoni_messages_test(&ranks[1].rma), 0);
	ck_assert_uint_eq(count(1, 0, 0, 0), 1);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.in_flight, 0);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.moving, 0);
}
END_TEST

static const size_t sizes[] = {
	1, 8, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 2048, 16384,
	16385, MIB, 3 * MIB + 5,
};

START_TEST(data_of_every_size_arrives_before_its_signal)
{
	size_t bytes = sizes[_i];
	unsigned char *data = pattern(bytes, 1);
	unsigned char *window = window_of(1);
	size_t offset = 3;

	listen_all();
	ck_assert_int_eq(put_at(0, 0, 1, 0, 1, data, bytes, offset),
	                 BATON_PENDING);
	while (count(1, 0, 0, 1) == 0)
		ck_assert_uint_gt(pass(&ranks[1]) + pass(&ranks[0]), 0);
	ck_assert_mem_eq(window + offset, data, bytes);
	ck_assert_uint_eq(window[offset - 1], 0);
	ck_assert_uint_eq(window[offset + bytes], 0);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 1);
	ck_assert_int_eq(ranks[0].status[0], BATON_OK);
	free(data);
}
END_TEST

START_TEST(put_without_bytes_or_with_its_data_there_is_a_signal)
{
	unsigned char byte = 9;

	listen_all();
	put_at(0, 0, 1, 0, 0, &byte, 0, WINDOW_BYTES);
	put_at(0, 1, 1, 0, 0, &byte, 1, 0);
	ranks[0].status[2] = NOT_ENDED;
	ranks[0].transfers[2] = ranks[0].transfers[1];
	ranks[0].transfers[2].slot = 2;
	ranks[0].pendings[2] = ranks[0].pendings[1];
	ranks[0].pendings[2].transfer = &ranks[0].transfers[2];
	ranks[0].pendings[2].put.offset = 1;
	ck_assert_int_eq(batoni_message_put(&ranks[0].rma, 2, false),
	                 BATON_PENDING);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 3);
	ck_assert_uint_eq(window_of(1)[0], 9);
	ck_assert_uint_eq(window_of(1)[1], 0);
}
END_TEST

/* A put whose data has left by the native transport, with so many units of rank 0 by then. */
static void
put_native(uint32_t slot, int context, uint64_t units)
{
	static unsigned char data[5000];
	struct batoni_pending *pending = &ranks[0].pendings[slot];

	describe_put(0, slot, 1, context, 0, data, sizeof(data), 0);
	pending->put.native = true;
	pending->put.units = units;
	ck_assert_int_eq(batoni_message_put(&ranks[0].rma, slot, false),
	                 BATON_PENDING);
}

START_TEST(native_data_is_signaled_when_it_has_come)
{
	listen_all();
	make_native();
	put_native(0, 0, 2);
	put_native(1, 0, 3);
	put_native(2, 1, 1);
	signal_to(0, 3, 1, 1, 0);
	pass_until_still();
	/* The header behind one whose data has not come is not received. */
	for (uint32_t slot = 0; slot < 4; slot++)
		ck_assert_int_eq(ranks[0].status[slot],
		                 slot % 2 == 0 ? BATON_OK : NOT_ENDED);
	ck_assert_uint_eq(count(1, 0, 0, 0), 0);
	ck_assert_uint_eq(count(1, 0, 1, 0), 0);
	ck_assert_uint_gt(ranks[1].rma.base.path.load.in_flight, 0);
	ck_assert_uint_gt(ranks[1].rma.base.path.load.moving, 0);
	/* Contexts do not wait for each other. */
	units_come = 1;
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 0);
	ck_assert_uint_eq(count(1, 0, 1, 0), 2);
	units_come = 2;
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 1);
	units_come = 3;
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 2);
	for (uint32_t slot = 0; slot < 4; slot++)
		ck_assert_int_eq(ranks[0].status[slot], BATON_OK);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.in_flight, 0);
	/* None of it came by message. */
	for (size_t i = 0; i < 5000; i++)
		ck_assert_uint_eq(window_of(1)[i], 0);
}
END_TEST

/* Long, short and none in turn: a later signal never shows before an earlier one. */
START_TEST(order_of_a_context_is_kept)
{
	unsigned char *data[3];
	uint64_t seen = 0;

	listen_all();
	for (unsigned i = 0; i < 3; i++)
		data[i] = pattern(MIB, i * 50);
	for (uint32_t i = 0; i < 30; i++) {
		size_t bytes = i % 3 == 0 ? MIB : 100;

		ck_assert_int_eq(i % 3 == 2
		                         ? signal_to(0, i, 1, 0, 2)
		                         : put_at(0, i, 1, 0, (int)i % 3,
		                                  data[i / 3 % 3], bytes, 0),
		                 BATON_PENDING);
	}
	while (seen < 30) {
		uint64_t first = count(1, 0, 0, 0);
		uint64_t second = count(1, 0, 0, 1);
		uint64_t third = count(1, 0, 0, 2);

		ck_assert(third <= second && second <= first);
		ck_assert_uint_le(first, third + 1);
		seen = first + second + third;
		ck_assert_uint_gt(seen < 30 ? pass(&ranks[0]) + pass(&ranks[1])
		                            : 1, 0);
	}
	ck_assert_mem_eq(window_of(1), data[0], MIB);
	for (int i = 0; i < 3; i++)
		free(data[i]);
}
END_TEST

START_TEST(contexts_do_not_wait_for_each_other)
{
	unsigned char *data = pattern(3 * MIB, 4);

	listen_all();
	put_at(0, 0, 1, 0, 0, data, 3 * MIB, 0);
	signal_to(0, 1, 1, 0, 0);
	signal_to(0, 2, 1, 1, 0);
	batoni_messages_test(&ranks[1].rma);
	ck_assert_uint_eq(count(1, 0, 1, 0), 1);
	ck_assert_uint_eq(count(1, 0, 0, 0), 0);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 2);
	free(data);
}
END_TEST

START_TEST(put_to_oneself_arrives)
{
	unsigned char *data = pattern(MIB, 5);

	listen_all();
	put_at(0, 0, 0, 0, 0, data, 100, MIB);
	put_at(0, 1, 0, 0, 1, data, MIB, 0);
	pass_until_still();
	ck_assert_uint_eq(count(0, 0, 0, 0), 1);
	ck_assert_uint_eq(count(0, 0, 0, 1), 1);
	ck_assert_mem_eq(window_of(0), data, MIB);
	ck_assert_mem_eq(window_of(0) + MIB, data, 100);
	free(data);
}
END_TEST

START_TEST(puts_wait_for_lanes_and_lanes_for_receives)
{
	listen_all();
	batoni_messages_listen(&ranks[1].rma, -1);
	for (uint32_t i = 0; i < LANES; i++)
		ck_assert_int_eq(signal_to(0, i, 1, 0, 0), BATON_PENDING);
	ck_assert_int_eq(signal_to(0, 40, 1, 0, 0), BATON_ERR_AGAIN);
	pass_until_still();
	ck_assert_int_eq(ranks[0].ends, (int)LANES);
	ck_assert_int_eq(signal_to(0, 40, 1, 0, 0), BATON_PENDING);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), LANES + 1);
}
END_TEST

START_TEST(what_came_before_anybody_listened_is_applied)
{
	for (uint32_t i = 0; i < LANES; i++)
		ck_assert_int_eq(signal_to(0, i, 1, 0, 0), BATON_PENDING);
	ck_assert_int_eq(signal_to(0, 40, 1, 0, 0), BATON_ERR_AGAIN);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 0);
	ck_assert_int_eq(ranks[0].ends, 0);
	batoni_messages_post(&ranks[1].rma);
	pass_until_still();
	ck_assert_int_eq(ranks[0].ends, (int)LANES);
	ck_assert_uint_eq(count(1, 0, 0, 0), LANES);
}
END_TEST

/* Of its own, when others have all of the pool; without room for a payload. */
START_TEST(each_channel_has_a_lane_that_others_cannot_take)
{
	unsigned char *data = pattern(100, 9);

	for (uint32_t i = 0; i < LANES; i++)
		ck_assert_int_eq(signal_to(0, i, 1, 0, 0), BATON_PENDING);
	ck_assert_int_eq(signal_to(0, 40, 1, 0, 0), BATON_ERR_AGAIN);
	ck_assert_int_eq(put_at(0, 40, 1, 1, 0, data, 100, 0), BATON_PENDING);
	ck_assert_int_eq(signal_to(0, 41, 1, 1, 0), BATON_ERR_AGAIN);
	ck_assert_int_eq(signal_to(0, 42, 0, 1, 0), BATON_PENDING);
	pass_until_still();
	ck_assert_int_eq(ranks[0].status[42], BATON_OK);
	ck_assert_int_eq(ranks[0].ends, 1);
	batoni_messages_post(&ranks[1].rma);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), LANES);
	ck_assert_uint_eq(count(1, 0, 1, 0), 1);
	ck_assert_mem_eq(window_of(1), data, 100);
	free(data);
}
END_TEST

START_TEST(listening_holds_the_communicator_and_posts_once)
{
	struct rank *rank = &ranks[0];

	batoni_messages_post(&rank->rma);
	ck_assert_int_eq(rank->holds, 0);
	ck_assert_uint_eq(rank->rma.transport->messages.load.in_flight, 1);
	batoni_messages_listen(&rank->rma, 1);
	ck_assert_int_eq(rank->holds, 1);
	batoni_messages_listen(&rank->rma, 1);
	batoni_messages_post(&rank->rma);
	ck_assert_int_eq(rank->holds, 1);
	ck_assert_uint_eq(rank->rma.transport->messages.load.in_flight, 1);
	batoni_messages_listen(&rank->rma, -1);
	ck_assert_int_eq(rank->holds, 1);
	batoni_messages_listen(&rank->rma, -1);
	ck_assert_int_eq(rank->holds, 0);
}
END_TEST

/* ---- channels that begin ---- */

/* One receive whatever the number of ranks; one more for each channel that talks. */
START_TEST(receives_stand_for_those_who_talk)
{
	batoni_messages_post(&ranks[0].rma);
	batoni_messages_post(&ranks[1].rma);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.standing, 1);
	signal_to(0, 0, 1, 1, 0);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 1, 0), 1);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.standing, 2);
	ck_assert_uint_eq(ranks[1].rma.transport->messages.load.in_flight, 2);
	signal_to(0, 0, 1, 1, 0);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 1, 0), 2);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.standing, 2);
	/* The other way it is another channel. */
	ck_assert_uint_eq(ranks[0].rma.base.path.load.standing, 1);
	signal_to(1, 0, 0, 1, 0);
	pass_until_still();
	ck_assert_uint_eq(ranks[0].rma.base.path.load.standing, 2);
}
END_TEST

/* Its messages wait at the transport, and none is lost. */
START_TEST(channel_for_which_there_is_no_memory_begins_later)
{
	batoni_messages_post(&ranks[1].rma);
	wire_of(0, 1, 0);
	for (unsigned long n = 1; n <= 2; n++) {
		batoni_mem_fail_at(n);
		signal_to(0, (uint32_t)n, 1, 0, 0);
		batoni_messages_test(&ranks[1].rma);
		/* Link and wire of the target. */
		ck_assert_uint_ge(batoni_mem_fail_at(0), n == 1);
	}
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 2);
}
END_TEST

START_TEST(bad_announcement_is_dropped_and_the_next_is_obeyed)
{
	struct batoni_wire *wire = wire_of(0, 1, 0);
	struct batoni_hello good_hello = wire->hello;

	batoni_messages_post(&ranks[1].rma);
	for (int i = 0; i < 4; i++) {
		wire->hello = good_hello;
		wire->hello.magic += i == 0;
		wire->hello.version = (uint16_t)(wire->hello.version + (i == 1));
		wire->hello.rank = i == 2 ? RANKS : 0;
		wire->hello.context = i == 3 ? CONTEXTS : 0;
		greet(0, 1, 0);
		ck_assert_uint_eq(ranks[1].rma.base.path.load.standing, 1);
	}
	wire->hello = good_hello;
	greet(0, 1, 0);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.standing, 2);
	/* Twice is once. */
	greet(0, 1, 0);
	ck_assert_uint_eq(ranks[1].rma.base.path.load.standing, 2);
}
END_TEST

/* ---- gets, probes ---- */

static enum baton_status
get_from(int at, uint32_t slot, int from, void *buffer, size_t bytes, size_t offset)
{
	describe_put(at, slot, from, 0, BATONI_NO_SIGNAL, buffer, bytes, offset);
	ranks[at].pendings[slot].put.task = BATONI_TASK_GET;
	return batoni_message_put(&ranks[at].rma, slot, true);
}

START_TEST(get_brings_the_bytes_of_the_window)
{
	size_t bytes = sizes[_i];
	unsigned char *want = pattern(bytes, 1), *got = calloc(1, bytes + 1);

	ck_assert_ptr_nonnull(got);
	listen_all();
	memcpy((char *)ranks[1].window->base + 3, want, bytes);
	ck_assert_int_eq(get_from(0, 4, 1, got, bytes, 3), BATON_PENDING);
	pass_until_still();
	ck_assert_int_eq(ranks[0].status[4], BATON_OK);
	ck_assert_mem_eq(got, want, bytes);
	ck_assert_uint_eq(got[bytes], 0);
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0), 1);
	for (int i = 0; i < SIGNALS; i++)
		ck_assert_uint_eq(count(1, 0, 0, i), 0);
	free(want);
	free(got);
}
END_TEST

/* The target checks for itself, and answers all the same. */
START_TEST(get_that_cannot_be_met_ends_in_mismatch_and_the_next_is_met)
{
	const struct {
		uint64_t window;
		size_t offset, bytes;
	} wrong[] = {
		{WINDOW_ID, WINDOW_BYTES - 7, 8},
		{WINDOW_ID, SIZE_MAX - 3, 8},
		{WINDOW_ID + 1, 0, 8},
	};
	unsigned char got[8] = {0};

	listen_all();
	memset(ranks[1].window->base, 0x5a, 8);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ranks[0].window->id = wrong[i].window;
		get_from(0, 0, 1, got, wrong[i].bytes, wrong[i].offset);
		pass_until_still();
		ck_assert_int_eq(ranks[0].status[0], BATON_ERR_MISMATCH);
		ck_assert_uint_eq(got[0], 0);
		ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0),
		                  i + 1);
	}
	ranks[0].window->id = WINDOW_ID;
	get_from(0, 0, 1, got, 8, 0);
	pass_until_still();
	ck_assert_int_eq(ranks[0].status[0], BATON_OK);
	ck_assert_uint_eq(got[7], 0x5a);
}
END_TEST

/* The next header is received when the answer has left the window. */
START_TEST(get_reads_what_was_put_before_it_alone)
{
	unsigned char before = 1, behind = 2, got[2] = {0};

	listen_all();
	put_at(0, 0, 1, 0, BATONI_NO_SIGNAL, &before, 1, 0);
	get_from(0, 1, 1, &got[0], 1, 0);
	put_at(0, 2, 1, 0, BATONI_NO_SIGNAL, &behind, 1, 0);
	get_from(0, 3, 1, &got[1], 1, 0);
	pass_until_still();
	ck_assert_uint_eq(got[0], 1);
	ck_assert_uint_eq(got[1], 2);
}
END_TEST

START_TEST(probe_is_answered_when_the_data_before_it_is_there)
{
	struct batoni_rma *rma = &ranks[0].rma;
	struct batoni_wire *wire;
	unsigned char byte = 9;

	listen_all();
	wire = wire_of(0, 1, 0);
	signal_to(0, 0, 1, 0, 0);
	ck_assert(batoni_list_empty(&rma->unacked));
	put_at(0, 1, 1, 0, 0, &byte, 1, 0);
	ck_assert_uint_eq(rma->unacked_count, 1);
	ck_assert_int_eq(batoni_message_probe(rma, wire), BATON_PENDING);
	ck_assert_uint_gt(wire->probing, wire->last);
	pass_until_still();
	ck_assert_uint_eq(wire->probing, 0);
	ck_assert_uint_gt(wire->acked, wire->last);
	ck_assert_uint_eq(rma->unacked_count, 0);
	ck_assert(batoni_list_empty(&rma->unacked));
	ck_assert_uint_eq(window_of(1)[0], 9);
	/* What goes while a probe is under way is not covered by it. */
	put_at(0, 1, 1, 0, 0, &byte, 1, 1);
	ck_assert_int_eq(batoni_message_probe(rma, wire), BATON_PENDING);
	put_at(0, 2, 1, 0, 0, &byte, 1, 2);
	pass_until_still();
	ck_assert_uint_lt(wire->acked, wire->last);
	ck_assert_uint_eq(rma->unacked_count, 1);
}
END_TEST

/* ---- messages that no rank of this version sends ---- */

/* As message.c has it. */
struct header {
	uint32_t magic;
	uint16_t version, payload;
	uint64_t window, offset, bytes;
	int32_t signal_index, context;
};

static const struct header good = {
	.magic = 0x4261746f, .version = 4, .payload = 1, .window = WINDOW_ID,
	.bytes = 8, .signal_index = 1, .context = 0,
};

static const struct header bad[] = {
	{.magic = 0x6f746142, .version = 4},
	{.magic = 0x4261746f, .version = 2},
	{.magic = 0x4261746f, .version = 4, .payload = 5},
	/* A rank without native puts. */
	{.magic = 0x4261746f, .version = 4, .payload = 3, .bytes = 8,
	 .window = WINDOW_ID},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 9,
	 .window = WINDOW_ID},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 8,
	 .window = WINDOW_ID + 1},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 8,
	 .window = WINDOW_ID, .offset = WINDOW_BYTES - 7},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 8,
	 .window = WINDOW_ID, .offset = UINT64_MAX - 3},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 8,
	 .window = WINDOW_ID, .signal_index = SIGNALS},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 8,
	 .window = WINDOW_ID, .signal_index = -2},
	/* A signal that is none. */
	{.magic = 0x4261746f, .version = 4, .payload = 0, .signal_index = -1},
	{.magic = 0x4261746f, .version = 4, .payload = 1, .bytes = 8,
	 .window = WINDOW_ID, .context = 1},
	/* A signal by more than there is. */
	{.magic = 0x4261746f, .version = 4, .payload = 0, .offset = UINT32_MAX},
	{.magic = 0x4261746f, .version = 4, .payload = 0, .offset = UINT64_MAX},
};

/* A message on a hidden tag, from rank 0 to rank 1, by a slot of no lane. */
static void
forge(int tag_offset, void *message, size_t bytes)
{
	struct batoni_transport *transport = ranks[0].rma.transport;
	struct batoni_transfer transfer = {
		.buffer = message, .bytes = bytes, .peer = 1,
		.tag = transport->hidden_tag + tag_offset,
	};

	transfer.slot = 50;
	transfer.direction = BATONI_SEND;
	ck_assert_int_eq(batoni_path_issue(&transport->messages, &transfer), BATON_OK);
}

static void
forge_header(const struct header *header)
{
	char message[sizeof(*header) + 8];

	memcpy(message, header, sizeof(*header));
	memset(message + sizeof(*header), 0x55, 8);
	forge(0, message, header->payload == 1 ? sizeof(message)
	                                       : sizeof(*header));
}

static void
assert_untouched(void)
{
	const unsigned char *window = window_of(1);

	for (int i = 0; i < COUNTERS; i++)
		ck_assert_uint_eq(count(1, i / (SIGNALS * CONTEXTS),
		                        i / SIGNALS % CONTEXTS, i % SIGNALS),
		                  0);
	/* Equal to itself, one byte on, and that byte is 0: all are. */
	ck_assert_uint_eq(window[0], 0);
	ck_assert_int_eq(memcmp(window, window + 1, WINDOW_BYTES - 1), 0);
}

START_TEST(bad_header_is_dropped_and_the_next_is_obeyed)
{
	listen_all();
	forge_header(&bad[_i]);
	pass_until_still();
	assert_untouched();
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0), 1);
	forge_header(&good);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 1);
	ck_assert_uint_eq(window_of(1)[7], 0x55);
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0), 2);
}
END_TEST

/* Each awaits what cannot be, or is for a window that does not take it. */
START_TEST(signal_adds_what_its_header_says)
{
	const struct header by_many = {
		.magic = 0x4261746f, .version = 4, .offset = UINT32_MAX - 1,
		.signal_index = 1,
	};

	listen_all();
	forge_header(&by_many);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), UINT32_MAX);
	/* A put adds one, wherever it goes. */
	forge_header(&good);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), UINT64_C(1) + UINT32_MAX);
}
END_TEST

START_TEST(native_header_that_cannot_be_is_dropped)
{
	const struct {
		uint64_t units, bytes, window;
	} wrong[] = {
		{0, 8, WINDOW_ID},
		{5, 8, WINDOW_ID}, /* as the one before it */
		{5 + UNITS_AHEAD + 1, 8, WINDOW_ID},
		{UINT64_MAX, 8, WINDOW_ID},
		{6, 0, WINDOW_ID},
		{6, WINDOW_BYTES + 1, WINDOW_ID},
		{6, 8, WINDOW_ID + 1},
		{6, 8, WINDOW_ID}, /* none of the library's */
	};
	const size_t n = sizeof(wrong) / sizeof(wrong[0]);
	struct header header = {
		.magic = 0x4261746f, .version = 4, .payload = 3,
		.window = WINDOW_ID, .offset = 5, .bytes = 8,
	};

	listen_all();
	make_native();
	units_come = 5;
	forge_header(&header);
	pass_until_still();
	for (size_t i = 0; i < n; i++) {
		if (i == n - 1)
			ranks[1].window->native = NULL;
		header.offset = wrong[i].units;
		header.bytes = wrong[i].bytes;
		header.window = wrong[i].window;
		forge_header(&header);
		pass_until_still();
		ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0),
		                  i + 2);
	}
	ck_assert_uint_eq(count(1, 0, 0, 0), 1);
	/* The most that may be. */
	make_native();
	units_come = 5;
	header.offset = 5 + UNITS_AHEAD;
	forge_header(&header);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 1);
	units_come = header.offset;
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 2);
}
END_TEST

/* The host must not write there. */
START_TEST(data_behind_a_header_does_not_go_to_memory_of_a_device)
{
	listen_all();
	ranks[1].window->location = BATONI_MEMORY_DEVICE;
	forge_header(&good);
	pass_until_still();
	assert_untouched();
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0), 1);
	ranks[1].window->location = BATONI_MEMORY_REGISTERED;
	forge_header(&good);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 1);
	ck_assert_uint_eq(window_of(1)[7], 0x55);
}
END_TEST

START_TEST(short_message_is_dropped)
{
	char message[] = "short";

	listen_all();
	forge(0, message, 0);
	pass_until_still();
	forge(0, message, sizeof(message));
	pass_until_still();
	assert_untouched();
	ck_assert_uint_eq(batoni_messages_applied(&ranks[1].rma, 0), 2);
}
END_TEST

START_TEST(data_that_follows_a_bad_header_goes_nowhere)
{
	struct header header = good;
	char data[100] = "data";

	listen_all();
	header.payload = 2;
	header.offset = WINDOW_BYTES - 10;
	header.bytes = sizeof(data);
	forge_header(&header);
	pass_until_still();
	forge(1, data, sizeof(data));
	pass_until_still();
	assert_untouched();
	forge_header(&good);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 1);
}
END_TEST

START_TEST(data_of_another_length_has_no_signal)
{
	struct header header = good;
	char data[100] = "data";

	listen_all();
	header.payload = 2;
	header.bytes = sizeof(data);
	forge_header(&header);
	pass_until_still();
	forge(1, data, sizeof(data) - 1);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 0);
	forge_header(&good);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 1);
}
END_TEST

/* ---- a transport that fails ---- */

static const struct batoni_path_ops *real_ops;
static int fail_in; /* the issue that fails: 1 is the next */
static bool busy;   /* take_back takes nothing back */

static enum baton_status
failing_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	if (fail_in > 0 && --fail_in == 0) {
		transfer->native_call = "MPI_Isend";
		transfer->native_code = 17;
		return BATON_ERR_MPI;
	}
	return real_ops->host_issued->issue(path, transfer);
}

static enum baton_status
failing_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	return busy ? BATON_ERR_BUSY : real_ops->host_issued->take_back(path, transfer);
}

static void
make_failing(struct batoni_transport *transport)
{
	static const struct batoni_host_issued_ops failing = {
		.issue = failing_issue,
		.take_back = failing_take_back,
	};
	static struct batoni_path_ops ops;

	real_ops = transport->messages.ops;
	ops = *real_ops;
	ops.host_issued = &failing;
	transport->messages.ops = &ops;
}

START_TEST(header_that_fails_is_told_at_once_and_holds_no_lane)
{
	listen_all();
	make_failing(ranks[0].rma.transport);
	for (uint32_t i = 0; i < 2 * BATONI_ONESIDED_LANES; i++) {
		fail_in = 1;
		ck_assert_int_eq(signal_to(0, 5, 1, 0, 0), BATON_ERR_MPI);
	}
	ck_assert_str_eq(ranks[0].transfers[5].native_call, "MPI_Isend");
	ck_assert_int_eq(ranks[0].transfers[5].native_code, 17);
	ck_assert_uint_eq(batoni_messages_sent(&ranks[0].rma, 1), 0);
	pass_until_still();
	ck_assert_int_eq(ranks[0].ends, 0);
	ck_assert_int_eq(signal_to(0, 5, 1, 0, 0), BATON_PENDING);
	pass_until_still();
	ck_assert_int_eq(ranks[0].status[5], BATON_OK);
	ck_assert_ptr_null(ranks[0].transfers[5].native_call);
}
END_TEST

START_TEST(data_that_fails_is_the_end_of_its_put)
{
	unsigned char *data = pattern(MIB, 6);

	listen_all();
	make_failing(ranks[0].rma.transport);
	fail_in = 2;
	ck_assert_int_eq(put_at(0, 5, 1, 0, 1, data, MIB, 0), BATON_PENDING);
	pass_until_still();
	ck_assert_int_eq(ranks[0].status[5], BATON_ERR_MPI);
	ck_assert_str_eq(ranks[0].transfers[5].native_call, "MPI_Isend");
	ck_assert_uint_eq(count(1, 0, 0, 1), 0);
	/* The other end waits for it; give it an end. */
	ck_assert_int_eq(batoni_messages_leave(&ranks[1].rma), BATON_PENDING);
	forge(1, data, 100);
	free(data);
}
END_TEST

START_TEST(receive_that_fails_stays_away)
{
	listen_all();
	make_failing(ranks[1].rma.transport);
	fail_in = 1; /* the one that follows the first signal */
	signal_to(0, 0, 1, 1, 0);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 1, 0), 1);
	signal_to(0, 0, 1, 0, 0);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 1);
	ck_assert_uint_eq(ranks[1].rma.transport->messages.load.in_flight,
	                  RANKS * CONTEXTS + 1 - 1);
}
END_TEST

/* ---- leaving and closing ---- */

START_TEST(draining_goes_on_receiving)
{
	listen_all();
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_int_eq(batoni_messages_drain(&ranks[1].rma), BATON_OK);
		signal_to(0, i, 1, 0, 0);
	}
	while (batoni_messages_drain(&ranks[0].rma) != BATON_OK)
		batoni_messages_drain(&ranks[1].rma);
	ck_assert_int_eq(batoni_messages_drain(&ranks[1].rma), BATON_OK);
	ck_assert_uint_eq(count(1, 0, 0, 0), 5);
}
END_TEST

START_TEST(leaving_takes_receives_back_for_good)
{
	struct rank *rank = &ranks[1];

	listen_all();
	batoni_messages_listen(&rank->rma, -1);
	ck_assert_int_eq(batoni_messages_leave(&rank->rma), BATON_OK);
	ck_assert_uint_eq(rank->rma.transport->messages.load.in_flight, 0);
	batoni_messages_post(&rank->rma);
	ck_assert_uint_eq(rank->rma.transport->messages.load.in_flight, 0);
	ck_assert_int_eq(batoni_messages_leave(&rank->rma), BATON_OK);
}
END_TEST

START_TEST(leaving_waits_for_puts_that_are_under_way)
{
	unsigned char *data = pattern(3 * MIB, 7);

	listen_all();
	put_at(0, 0, 1, 0, 0, data, 3 * MIB, 0);
	ck_assert_int_eq(batoni_messages_drain(&ranks[0].rma), BATON_PENDING);
	while (batoni_messages_drain(&ranks[0].rma) != BATON_OK)
		ck_assert_int_eq(batoni_messages_drain(&ranks[1].rma), BATON_OK);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 0), 1);
	ck_assert_mem_eq(window_of(1), data, 3 * MIB);
	free(data);
}
END_TEST

START_TEST(leaving_waits_for_a_receive_that_cannot_be_taken_back)
{
	struct rank *rank = &ranks[1];

	listen_all();
	make_failing(rank->rma.transport);
	busy = true;
	ck_assert_int_eq(batoni_messages_leave(&rank->rma), BATON_PENDING);
	ck_assert_int_eq(batoni_messages_leave(&rank->rma), BATON_PENDING);
	busy = false;
	/* Asked once, it is not asked again; its messages end it. */
	ck_assert_int_eq(batoni_messages_leave(&rank->rma), BATON_PENDING);
	for (int context = 0; context < CONTEXTS; context++) {
		signal_to(0, (uint32_t)context, 1, context, 0);
		signal_to(1, (uint32_t)context, 1, context, 0);
	}
	greet(0, 1, 0);
	pass_until_still();
	ck_assert_int_eq(batoni_messages_leave(&rank->rma), BATON_OK);
	ck_assert_uint_eq(count(1, 0, 1, 0), 1);
	ck_assert_uint_eq(count(1, 1, 0, 0), 1);
}
END_TEST

/* ---- windows that go when the communicator is broken ---- */

/* A payload has been announced to rank 1, and is not there. */
static void
announce(size_t bytes)
{
	struct header header = good;

	header.payload = 2;
	header.bytes = bytes;
	forge_header(&header);
	pass_until_still();
}

static enum baton_status
let_go(void)
{
	return batoni_messages_let_go(&ranks[1].rma, window_of(1), WINDOW_BYTES);
}

static bool
writes_to(size_t offset, size_t bytes)
{
	return batoni_messages_write_to(&ranks[1].rma, window_of(1) + offset,
	                                bytes);
}

START_TEST(copy_into_a_window_is_over_before_that_goes)
{
	unsigned char *data = pattern(3 * MIB, 8);
	enum baton_status status;

	listen_all();
	put_at(0, 0, 1, 0, 0, data, 3 * MIB, 0);
	batoni_messages_test(&ranks[1].rma);
	ck_assert(writes_to(3 * MIB - 1, 1));
	ck_assert(!writes_to(3 * MIB, MIB));
	do
		status = let_go();
	while (status == BATON_PENDING);
	ck_assert_int_eq(status, BATON_OK);
	ck_assert(!writes_to(0, WINDOW_BYTES));
	memset(window_of(1), 0, WINDOW_BYTES);
	pass_until_still();
	assert_untouched();
	ck_assert_int_eq(ranks[0].status[0], BATON_OK);
	free(data);
}
END_TEST

START_TEST(receive_of_data_that_has_not_come_is_taken_back)
{
	char data[100] = "data";

	listen_all();
	announce(sizeof(data));
	ck_assert(writes_to(0, WINDOW_BYTES));
	ck_assert_int_eq(let_go(), BATON_OK);
	ck_assert(!writes_to(0, WINDOW_BYTES));
	/* Nothing is applied any more either. */
	signal_to(0, 0, 1, 1, 0);
	pass_until_still();
	assert_untouched();
}
END_TEST

START_TEST(receive_that_cannot_be_taken_back_is_known_to_write)
{
	char data[100] = "data";

	ranks[1].rma.transport->messages.load.quiet = false;
	batoni_messages_start(&ranks[1].rma);
	listen_all();
	make_failing(ranks[1].rma.transport);
	announce(sizeof(data));
	busy = true;
	ck_assert_int_eq(let_go(), BATON_ERR_BUSY);
	ck_assert_int_eq(let_go(), BATON_ERR_BUSY);
	ck_assert(writes_to(0, WINDOW_BYTES));
	busy = false;
	forge(1, data, sizeof(data));
	ck_assert(!writes_to(0, WINDOW_BYTES));
	ck_assert_int_eq(let_go(), BATON_OK);
	pass_until_still();
	ck_assert_uint_eq(count(1, 0, 0, 1), 0);
}
END_TEST

START_TEST(every_failed_allocation_of_open_is_nomem_and_leaks_nothing)
{
	struct batoni_rma rma = {.size = 2, .requests_max = 4};
	long blocks = batoni_mem_blocks();
	unsigned long allocations, n;

	rma.base.contexts_max = 2;
	batoni_messages_close(&rma, false);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_messages_open(&rma), BATON_OK);
	allocations = batoni_mem_fail_at(0);
	ck_assert_uint_ge(allocations, 2);
	batoni_messages_close(&rma, false);
	for (n = 1; n <= allocations; n++) {
		batoni_mem_fail_at(n);
		ck_assert_int_eq(batoni_messages_open(&rma), BATON_ERR_NOMEM);
		ck_assert_ptr_null(rma.messages);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	}
	batoni_mem_fail_at(0);
}
END_TEST

/* Without the fixture: these worlds end otherwise.  One transport writes nothing
 * when it is closed, another may. */
START_TEST(aborted_memory_is_kept_while_something_may_write_to_it)
{
	bool lets_go = _i != 0;
	long before = batoni_mem_blocks();

	setup();
	ranks[0].rma.transport->lets_go = lets_go;
	batoni_messages_start(&ranks[0].rma);
	batoni_messages_post(&ranks[0].rma);
	for (int i = 0; i < RANKS; i++)
		close_rank(&ranks[i], true);
	free(ranks);
	if (lets_go)
		ck_assert_int_eq(batoni_mem_blocks(), before);
	else
		ck_assert_int_gt(batoni_mem_blocks(), before);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("message");
	TCase *puts = tcase_create("puts");
	TCase *abort_case = tcase_create("abort");

	tcase_add_checked_fixture(puts, setup, teardown);
	tcase_add_test(puts, signal_alone_is_counted_once_where_it_belongs);
	tcase_add_test(puts, put_ends_after_its_hand_over);
	tcase_add_test(puts, message_is_applied_by_a_test);
	tcase_add_loop_test(puts, data_of_every_size_arrives_before_its_signal,
	                    0, (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_test(puts,
	               put_without_bytes_or_with_its_data_there_is_a_signal);
	tcase_add_test(puts, native_data_is_signaled_when_it_has_come);
	tcase_add_test(puts, order_of_a_context_is_kept);
	tcase_add_test(puts, contexts_do_not_wait_for_each_other);
	tcase_add_test(puts, put_to_oneself_arrives);
	tcase_add_test(puts, puts_wait_for_lanes_and_lanes_for_receives);
	tcase_add_test(puts, each_channel_has_a_lane_that_others_cannot_take);
	tcase_add_test(puts, what_came_before_anybody_listened_is_applied);
	tcase_add_test(puts, listening_holds_the_communicator_and_posts_once);
	tcase_add_test(puts, receives_stand_for_those_who_talk);
	tcase_add_test(puts, channel_for_which_there_is_no_memory_begins_later);
	tcase_add_test(puts,
	               bad_announcement_is_dropped_and_the_next_is_obeyed);
	tcase_add_loop_test(puts, bad_header_is_dropped_and_the_next_is_obeyed,
	                    0, (int)(sizeof(bad) / sizeof(bad[0])));
	tcase_add_test(puts, signal_adds_what_its_header_says);
	tcase_add_test(puts, native_header_that_cannot_be_is_dropped);
	tcase_add_loop_test(puts, get_brings_the_bytes_of_the_window, 0,
	                    (int)(sizeof(sizes) / sizeof(sizes[0])));
	tcase_add_test(
		puts,
		get_that_cannot_be_met_ends_in_mismatch_and_the_next_is_met);
	tcase_add_test(puts, get_reads_what_was_put_before_it_alone);
	tcase_add_test(puts,
	               probe_is_answered_when_the_data_before_it_is_there);
	tcase_add_test(puts,
	               data_behind_a_header_does_not_go_to_memory_of_a_device);
	tcase_add_test(puts, short_message_is_dropped);
	tcase_add_test(puts, data_that_follows_a_bad_header_goes_nowhere);
	tcase_add_test(puts, data_of_another_length_has_no_signal);
	tcase_add_test(puts,
	               header_that_fails_is_told_at_once_and_holds_no_lane);
	tcase_add_test(puts, data_that_fails_is_the_end_of_its_put);
	tcase_add_test(puts, receive_that_fails_stays_away);
	tcase_add_test(puts, draining_goes_on_receiving);
	tcase_add_test(puts, leaving_takes_receives_back_for_good);
	tcase_add_test(puts, leaving_waits_for_puts_that_are_under_way);
	tcase_add_test(puts,
	               leaving_waits_for_a_receive_that_cannot_be_taken_back);
	tcase_add_test(puts, copy_into_a_window_is_over_before_that_goes);
	tcase_add_test(puts, receive_of_data_that_has_not_come_is_taken_back);
	tcase_add_test(puts,
	               receive_that_cannot_be_taken_back_is_known_to_write);
	tcase_add_test(
		puts,
		every_failed_allocation_of_open_is_nomem_and_leaks_nothing);
	tcase_add_loop_test(
		abort_case,
		aborted_memory_is_kept_while_something_may_write_to_it, 0, 2);
	suite_add_tcase(suite, puts);
	suite_add_tcase(suite, abort_case);
	return run_suite(suite);
}
