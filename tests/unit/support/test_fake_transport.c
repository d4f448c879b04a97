/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake stream-issued transport, its streams stepped by hand. */
#include <string.h>

#include "fake_device.h"
#include "fake_transport.h"
#include "run_tests.h"

#define RANKS_MAX 3
#define STREAMS 4

static const struct batoni_device_ops *const ops = &batoni_fake_device_ops;

/* Every rank has STREAMS streams of its own. */
struct world {
	int size;
	struct batoni_device *device;
	struct batoni_transport *transports[RANKS_MAX];
	baton_stream streams[RANKS_MAX][STREAMS];
};

static void
open_world(struct world *world, int size)
{
	world->size = size;
	ck_assert_int_eq(ops->open(NULL, &world->device), BATON_OK);
	ck_assert_int_eq(fake_transport_open(size, world->transports),
	                 BATON_OK);
	for (int i = 0; i < size * STREAMS; i++)
		ck_assert_int_eq(
			ops->stream_create(
				world->device,
				&world->streams[i / STREAMS][i % STREAMS]),
			BATON_OK);
}

static void
settle(struct world *world)
{
	for (int i = 0; i < world->size * STREAMS; i++)
		fake_device_step(world->streams[i / STREAMS][i % STREAMS], 0);
}

static void
close_rank(struct world *world, int rank)
{
	struct batoni_transport *transport = world->transports[rank];

	transport->ops->close(transport, true);
	world->transports[rank] = NULL;
}

static void
close_world_with(struct world *world, int violations)
{
	for (int rank = 0; rank < world->size; rank++) {
		if (world->transports[rank])
			close_rank(world, rank);
	}
	settle(world);
	for (int i = 0; i < world->size * STREAMS; i++)
		ck_assert_int_eq(
			ops->stream_destroy(
				world->device,
				world->streams[i / STREAMS][i % STREAMS]),
			BATON_OK);
	ops->close(world->device);
	ck_assert_int_eq(fake_device_violations(), violations);
}

static void
close_world(struct world *world)
{
	close_world_with(world, 0);
}

static struct batoni_transfer
transfer(const struct world *world, enum batoni_direction direction, int rank,
         int peer, int stream, void *buffer, size_t bytes)
{
	return (struct batoni_transfer){
		.buffer = buffer,
		.bytes = bytes,
		.peer = peer,
		.stream = world->streams[rank][stream],
		.direction = (unsigned)direction & 3u,
	};
}

static enum baton_status
enqueue(struct batoni_transport *transport,
        struct batoni_transfer *const *list, size_t n, bool detached,
        baton_stream *observe)
{
	baton_stream streams[8];
	struct batoni_follow follow = {.streams = streams};

	for (size_t i = 0; i < n; i++) {
		size_t at = 0;

		while (at < follow.count && streams[at] != list[i]->stream)
			at++;
		streams[at] = list[i]->stream;
		follow.count += at == follow.count;
	}
	return transport->messages.ops->stream_issued->enqueue(&transport->messages, list, n,
	                                                       detached ? &follow : NULL,
	                                                       observe);
}

static void
abort_rank(struct batoni_transport *transport)
{
	transport->messages.ops->aborting->abort(&transport->messages);
}

/* Enqueue one int on the rank's stream; returns where it is to be observed. */
static baton_stream
put_int(struct world *world, enum batoni_direction direction, int rank, int peer,
        int stream, bool detached, int *value)
{
	struct batoni_transport *transport = world->transports[rank];
	struct batoni_transfer one = transfer(world, direction, rank, peer,
	                                      stream, value, sizeof(*value));
	struct batoni_transfer *list[] = {&one};
	baton_stream observe = NULL;

	ck_assert_int_eq(enqueue(transport, list, 1, detached,
	                         &observe),
	                 BATON_OK);
	return observe;
}

static bool
idle(struct world *world, baton_stream stream)
{
	fake_device_step(stream, 0);
	return ops->stream_idle(world->device, stream) == BATON_OK;
}

START_TEST(says_what_raw_streams_can_and_cannot)
{
	struct world world;
	struct batoni_transport *t;

	open_world(&world, 2);
	t = world.transports[1];
	ck_assert_int_eq(t->rank, 1);
	ck_assert_int_eq(t->size, 2);
	ck_assert_int_eq(t->tag_max, 0);
	ck_assert_uint_eq(t->capabilities, BATON_CAP_DIRECTIONS);
	ck_assert(t->messages.ops->stream_issued);
	close_world(&world);
}
END_TEST

START_TEST(transfer_occupies_its_stream_until_the_peer_is_there)
{
	struct world world;
	int from = 5, to = 0;
	baton_stream observe;

	open_world(&world, 2);
	observe = put_int(&world, BATONI_RECV, 1, 0, 0, false, &to);
	ck_assert_ptr_eq(observe, world.streams[1][0]);
	ck_assert(!idle(&world, world.streams[1][0]));
	fake_device_hold(world.streams[0][0]);
	put_int(&world, BATONI_SEND, 0, 1, 0, false, &from);
	ck_assert(!idle(&world, world.streams[1][0]));
	ck_assert_int_eq(to, 0);
	from = 6;
	fake_device_step(world.streams[0][0], 1);
	ck_assert(idle(&world, world.streams[0][0]));
	ck_assert(idle(&world, world.streams[1][0]));
	ck_assert_int_eq(to, 6);
	close_world(&world);
}
END_TEST

START_TEST(transfers_match_in_the_order_of_calls_across_streams)
{
	struct world world;
	int from[3] = {1, 2, 3}, to[3] = {0};

	open_world(&world, 2);
	for (int i = 0; i < 3; i++) {
		fake_device_hold(world.streams[0][i]);
		put_int(&world, BATONI_SEND, 0, 1, i, false, &from[i]);
		put_int(&world, BATONI_RECV, 1, 0, i, false, &to[i]);
	}
	/* The later ones are armed first, and overtake nothing. */
	fake_device_step(world.streams[0][2], 1);
	fake_device_step(world.streams[0][1], 1);
	ck_assert(!idle(&world, world.streams[1][2]));
	ck_assert(!idle(&world, world.streams[1][1]));
	fake_device_step(world.streams[0][0], 1);
	for (int i = 0; i < 3; i++) {
		ck_assert(idle(&world, world.streams[1][i]));
		ck_assert_int_eq(to[i], i + 1);
	}
	close_world(&world);
}
END_TEST

START_TEST(peers_and_directions_do_not_wait_for_each_other)
{
	struct world world;
	int a = 1, b = 2, from_1 = 0, from_2 = 0, at_0 = 0;

	open_world(&world, 3);
	put_int(&world, BATONI_RECV, 0, 1, 0, false, &from_1);
	put_int(&world, BATONI_RECV, 0, 2, 1, false, &from_2);
	put_int(&world, BATONI_SEND, 2, 0, 0, false, &a);
	ck_assert(idle(&world, world.streams[0][1]));
	ck_assert_int_eq(from_2, 1);
	put_int(&world, BATONI_SEND, 0, 1, 2, false, &b);
	put_int(&world, BATONI_RECV, 1, 0, 0, false, &at_0);
	ck_assert(idle(&world, world.streams[1][0]));
	ck_assert_int_eq(at_0, 2);
	ck_assert(!idle(&world, world.streams[0][0]));
	close_world(&world);
}
END_TEST

START_TEST(group_starts_when_all_its_streams_are_there_and_ends_as_one)
{
	struct world world;
	int out[2] = {1, 2}, in[2] = {0}, got[2] = {0}, sent[2] = {3, 4};
	struct batoni_transfer s, r;
	struct batoni_transfer *list[] = {&s, &r};
	baton_stream observe[2];

	open_world(&world, 2);
	s = transfer(&world, BATONI_SEND, 0, 1, 0, &out[0], sizeof(int));
	r = transfer(&world, BATONI_RECV, 0, 1, 1, &in[0], sizeof(int));
	fake_device_hold(world.streams[0][1]);
	ck_assert_int_eq(enqueue(world.transports[0], list, 2, false, observe),
	                 BATON_OK);
	ck_assert_ptr_eq(observe[0], world.streams[0][0]);
	ck_assert_ptr_eq(observe[1], world.streams[0][1]);
	put_int(&world, BATONI_RECV, 1, 0, 0, false, &got[0]);
	ck_assert(!idle(&world, world.streams[1][0]));
	fake_device_step(world.streams[0][1], 1);
	/* The send has met its peer, the receive has not: both streams stay. */
	ck_assert(idle(&world, world.streams[1][0]));
	ck_assert_int_eq(got[0], 1);
	ck_assert(!idle(&world, world.streams[0][0]));
	put_int(&world, BATONI_SEND, 1, 0, 1, false, &sent[0]);
	ck_assert(idle(&world, world.streams[0][0]));
	ck_assert(idle(&world, world.streams[0][1]));
	ck_assert_int_eq(in[0], 3);
	close_world(&world);
}
END_TEST

START_TEST(message_to_oneself_needs_both_ends_in_one_group)
{
	struct world world;
	int out = 9, in = 0;
	struct batoni_transfer s, r;
	struct batoni_transfer *list[] = {&r, &s};
	baton_stream observe[2];
	struct batoni_transport *t;

	open_world(&world, 1);
	t = world.transports[0];
	s = transfer(&world, BATONI_SEND, 0, 0, 0, &out, sizeof(int));
	r = transfer(&world, BATONI_RECV, 0, 0, 0, &in, sizeof(int));
	ck_assert_int_eq(enqueue(t, list, 1, false, observe),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(enqueue(t, list, 2, false, observe), BATON_OK);
	ck_assert(idle(&world, world.streams[0][0]));
	ck_assert_int_eq(in, 9);
	s.tag = r.tag = 1;
	ck_assert_int_eq(enqueue(t, list, 2, false, observe),
	                 BATON_ERR_UNSUPPORTED);
	close_world(&world);
}
END_TEST

START_TEST(detached_transfers_follow_their_stream_and_let_it_go)
{
	struct world world;
	int from = 5, to = 0;
	baton_stream observe;

	open_world(&world, 2);
	put_int(&world, BATONI_RECV, 1, 0, 0, false, &to);
	fake_device_hold(world.streams[0][0]);
	observe = put_int(&world, BATONI_SEND, 0, 1, 0, true, &from);
	ck_assert_ptr_ne(observe, world.streams[0][0]);
	ck_assert(!idle(&world, observe));
	ck_assert(!idle(&world, world.streams[1][0]));
	fake_device_step(world.streams[0][0], 1);
	ck_assert(idle(&world, world.streams[0][0]));
	ck_assert(idle(&world, world.streams[1][0]));
	ck_assert(idle(&world, observe));
	ck_assert_int_eq(to, 5);
	/* With nobody there to receive, the caller's stream goes on too. */
	fake_device_run(world.streams[0][0]);
	observe = put_int(&world, BATONI_SEND, 0, 1, 0, true, &from);
	ck_assert(idle(&world, world.streams[0][0]));
	ck_assert(!idle(&world, observe));
	close_world(&world);
}
END_TEST

START_TEST(detached_group_members_end_one_by_one)
{
	struct world world;
	int out[2] = {1, 2}, in = 0;
	struct batoni_transfer to_1, to_2;
	struct batoni_transfer *list[] = {&to_1, &to_2};
	baton_stream observe[2];

	open_world(&world, 3);
	to_1 = transfer(&world, BATONI_SEND, 0, 1, 0, &out[0], sizeof(int));
	to_2 = transfer(&world, BATONI_SEND, 0, 2, 1, &out[1], sizeof(int));
	ck_assert_int_eq(enqueue(world.transports[0], list, 2, true, observe),
	                 BATON_OK);
	put_int(&world, BATONI_RECV, 2, 0, 0, false, &in);
	ck_assert(idle(&world, observe[1]));
	ck_assert_int_eq(in, 2);
	ck_assert(!idle(&world, observe[0]));
	ck_assert(idle(&world, world.streams[0][0]));
	close_world(&world);
}
END_TEST

START_TEST(empty_transfers_match_too)
{
	struct world world;
	struct batoni_transfer s, r;
	struct batoni_transfer *out[] = {&s}, *in[] = {&r};
	baton_stream observe;

	open_world(&world, 2);
	s = transfer(&world, BATONI_SEND, 0, 1, 0, NULL, 0);
	r = transfer(&world, BATONI_RECV, 1, 0, 0, NULL, 0);
	enqueue(world.transports[1], in, 1, false,
	        &observe);
	ck_assert(!idle(&world, world.streams[1][0]));
	enqueue(world.transports[0], out, 1, false,
	        &observe);
	ck_assert(idle(&world, world.streams[1][0]));
	close_world(&world);
}
END_TEST

START_TEST(abort_lets_every_stream_go_and_touches_nothing)
{
	struct world world;
	int *gone = malloc(sizeof(*gone));
	int later = 0, from = 7;
	baton_stream lane;

	open_world(&world, 2);
	put_int(&world, BATONI_RECV, 0, 1, 0, false, gone);
	fake_device_hold(world.streams[0][1]);
	put_int(&world, BATONI_RECV, 0, 1, 1, false, &later);
	lane = put_int(&world, BATONI_SEND, 0, 1, 2, true, &from);
	ck_assert(!idle(&world, world.streams[0][0]));
	ck_assert(!idle(&world, lane));
	abort_rank(world.transports[0]);
	free(gone);
	ck_assert(idle(&world, world.streams[0][0]));
	ck_assert(idle(&world, lane));
	/* The peer's end meets nothing, and ends by its own abort. */
	put_int(&world, BATONI_SEND, 1, 0, 0, false, &from);
	ck_assert(!idle(&world, world.streams[1][0]));
	fake_device_step(world.streams[0][1], 1);
	ck_assert(idle(&world, world.streams[0][1]));
	ck_assert_int_eq(later, 0);
	abort_rank(world.transports[1]);
	ck_assert(idle(&world, world.streams[1][0]));
	close_world(&world);
}
END_TEST

START_TEST(rank_may_close_while_a_held_stream_has_its_transfer)
{
	struct world world;
	int value = 0;

	open_world(&world, 2);
	fake_device_hold(world.streams[0][0]);
	put_int(&world, BATONI_RECV, 0, 1, 0, false, &value);
	close_rank(&world, 0);
	close_rank(&world, 1);
	fake_device_step(world.streams[0][0], 1);
	ck_assert(idle(&world, world.streams[0][0]));
	close_world(&world);
}
END_TEST

START_TEST(a_failed_launch_takes_no_place_in_the_order)
{
	struct world world;
	int lost = 1, from = 2, to = 0;
	struct batoni_transfer s;
	struct batoni_transfer *list[] = {&s};
	baton_stream observe;

	open_world(&world, 2);
	s = transfer(&world, BATONI_SEND, 0, 1, 0, &lost, sizeof(int));
	fake_device_fail_at(FAKE_KERNEL, 1, BATON_ERR_CUDA);
	ck_assert_int_eq(enqueue(world.transports[0], list, 1, true,
	                         &observe),
	                 BATON_ERR_CUDA);
	ck_assert(idle(&world, world.streams[0][0]));
	put_int(&world, BATONI_SEND, 0, 1, 0, false, &from);
	put_int(&world, BATONI_RECV, 1, 0, 0, false, &to);
	ck_assert(idle(&world, world.streams[1][0]));
	ck_assert_int_eq(to, 2);
	close_world(&world);
}
END_TEST

START_TEST(every_failed_stream_of_open_is_nomem_and_leaks_nothing)
{
	struct batoni_transport *transports[2];

	for (unsigned n = 1; n <= 8; n++) {
		fake_device_fail_at(FAKE_STREAM_CREATE, n, BATON_ERR_NOMEM);
		ck_assert_int_eq(fake_transport_open(2, transports),
		                 BATON_ERR_NOMEM);
	}
	for (unsigned n = 1; n <= 2; n++) {
		fake_device_fail_at(FAKE_OPEN, n, BATON_ERR_NOMEM);
		ck_assert_int_eq(fake_transport_open(2, transports),
		                 BATON_ERR_NOMEM);
	}
	ck_assert_int_eq(fake_transport_open(2, transports), BATON_OK);
	for (int rank = 0; rank < 2; rank++)
		transports[rank]->ops->close(transports[rank], false);
	ck_assert_int_eq(fake_device_violations(), 0);
}
END_TEST

START_TEST(leave_is_pending_until_every_rank_has_asked)
{
	struct world world;
	struct batoni_transport **t = world.transports;

	open_world(&world, 2);
	ck_assert_int_eq(t[0]->ops->leave(t[0]), BATON_PENDING);
	ck_assert_int_eq(t[0]->ops->leave(t[0]), BATON_PENDING);
	ck_assert_int_eq(t[1]->ops->leave(t[1]), BATON_OK);
	ck_assert_int_eq(t[0]->ops->leave(t[0]), BATON_OK);
	close_world(&world);
}
END_TEST

START_TEST(unequal_lengths_are_a_violation_and_overrun_nothing)
{
	struct world world;
	int from[2] = {1, 2}, to[2] = {0};
	struct batoni_transfer s;
	struct batoni_transfer *list[] = {&s};
	baton_stream observe;

	open_world(&world, 2);
	s = transfer(&world, BATONI_SEND, 0, 1, 0, from, sizeof(from));
	enqueue(world.transports[0], list, 1, false,
	        &observe);
	put_int(&world, BATONI_RECV, 1, 0, 0, false, &to[0]);
	ck_assert(idle(&world, world.streams[1][0]));
	ck_assert_int_eq(to[0], 1);
	ck_assert_int_eq(to[1], 0);
	close_world_with(&world, 1);
}
END_TEST

/* ---- all at once -------------------------------------------------------- */

#define CROWD 300

struct crowd {
	struct world *world;
	int rank;
	int out[CROWD], in[CROWD];
};

static void *
crowd_main(void *argument)
{
	struct crowd *crowd = argument;
	int rank = crowd->rank, peer = 1 - rank;

	for (int i = 0; i < CROWD; i++) {
		crowd->out[i] = rank * CROWD + i;
		put_int(crowd->world, BATONI_SEND, rank, peer, i % 2, i % 3 == 0,
		        &crowd->out[i]);
		put_int(crowd->world, BATONI_RECV, rank, peer, 2 + i % 2,
		        i % 5 == 0, &crowd->in[i]);
	}
	return NULL;
}

START_TEST(two_ranks_beside_each_other_lose_and_mix_nothing)
{
	struct world world;
	struct crowd crowds[2];
	pthread_t threads[2];
	baton_stream lanes[2];
	int last[2] = {-1, -1}, got[2] = {0};

	open_world(&world, 2);
	for (int rank = 0; rank < 2; rank++) {
		crowds[rank].world = &world;
		crowds[rank].rank = rank;
		ck_assert_int_eq(pthread_create(&threads[rank], NULL,
		                                crowd_main, &crowds[rank]),
		                 0);
	}
	for (int rank = 0; rank < 2; rank++)
		pthread_join(threads[rank], NULL);
	/* What comes last on a lane and a stream ends when all has. */
	for (int rank = 0; rank < 2; rank++)
		put_int(&world, BATONI_SEND, rank, 1 - rank, 0, false, &last[rank]);
	for (int rank = 0; rank < 2; rank++)
		lanes[rank] = put_int(&world, BATONI_RECV, rank, 1 - rank, 3, true,
		                      &got[rank]);
	for (int rank = 0; rank < 2; rank++) {
		ck_assert(idle(&world, lanes[rank]));
		for (int i = 0; i < 4; i++)
			ck_assert(idle(&world, world.streams[rank][i]));
	}
	for (int rank = 0; rank < 2; rank++) {
		ck_assert_int_eq(got[rank], -1);
		for (int i = 0; i < CROWD; i++)
			ck_assert_int_eq(crowds[rank].in[i],
			                 (1 - rank) * CROWD + i);
	}
	close_world(&world);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		says_what_raw_streams_can_and_cannot,
		transfer_occupies_its_stream_until_the_peer_is_there,
		transfers_match_in_the_order_of_calls_across_streams,
		peers_and_directions_do_not_wait_for_each_other,
		group_starts_when_all_its_streams_are_there_and_ends_as_one,
		message_to_oneself_needs_both_ends_in_one_group,
		detached_transfers_follow_their_stream_and_let_it_go,
		detached_group_members_end_one_by_one,
		empty_transfers_match_too,
		abort_lets_every_stream_go_and_touches_nothing,
		rank_may_close_while_a_held_stream_has_its_transfer,
		a_failed_launch_takes_no_place_in_the_order,
		every_failed_stream_of_open_is_nomem_and_leaks_nothing,
		leave_is_pending_until_every_rank_has_asked,
		unequal_lengths_are_a_violation_and_overrun_nothing,
		two_ranks_beside_each_other_lose_and_mix_nothing,
	};

	return RUN_TESTS("fake_transport", tests);
}
