/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are threads, each with a communicator for what it sends to higher ranks and one
 * for what it sends to lower ones, under a random load with delays.  What is sent and its
 * length follow from the seed, the round and the ranks, so that each receiver knows them.
 * A run with NCCLSIM_SEED takes that seed, else each test has its own.
 */
#include <pthread.h>
#include <stdlib.h>

#include "world.h"

enum { RANKS = 3, ROUNDS = 40, LANES = 2, MOST = 90000 };

static ncclUniqueId ids[LANES];
static long seed;
static bool blocking;

struct thread {
	int rank;
	ncclComm_t lanes[LANES]; /* 0: to higher ranks, 1: to lower ones */
};

static size_t
length_of(int source, int target, int round)
{
	uint64_t x = (uint64_t)seed * 7919 + (uint64_t)(source * 31 + target) * 131 +
	             (uint64_t)round * 104729;

	x ^= x >> 7;
	x *= 2654435761u;
	return (x >> 5) % 4 == 0 ? (size_t)(x >> 8) % MOST
	                         : (size_t)(x >> 8) % 300;
}

static unsigned char
byte_of(int source, int target, int round)
{
	return (unsigned char)(source * 64 + target * 16 + round);
}

static void
await(ncclComm_t comm, ncclResult_t result)
{
	while (result == BATONI_NCCL_IN_PROGRESS)
		ck_nccl(nw.nccl->comm_error(comm, &result));
	ck_nccl(result);
}

static void
create(struct thread *thread)
{
	struct batoni_nccl_config config = world_config(blocking);

	for (int lane = 0; lane < LANES; lane++) {
		ncclResult_t result = nw.nccl->comm_init(
			&thread->lanes[lane], RANKS, ids[lane], thread->rank,
			&config);

		await(thread->lanes[lane], result);
	}
}

/* The rank's part of a lane in a round: one group. */
static void
run_lane(struct thread *thread, int lane, int round)
{
	const struct rank *r = &nw.rank[thread->rank];
	CUstream stream = lane == 0 ? r->stream : r->other;
	ncclComm_t comm = thread->lanes[lane];
	ncclResult_t result;
	size_t part = BUFFER / 8;

	ck_nccl(nw.nccl->group_start());
	for (int peer = 0; peer < RANKS; peer++) {
		size_t offset = part * (size_t)(peer + 4 * lane);
		bool sends = lane == 0 ? peer > thread->rank
		                       : peer < thread->rank;
		size_t bytes = sends ? length_of(thread->rank, peer, round)
		                     : length_of(peer, thread->rank, round);

		if (peer == thread->rank)
			continue;
		if (sends) {
			ck_cuda(nw.cuda->set_bytes(r->out + offset,
			                           byte_of(thread->rank, peer,
			                                   round),
			                           part, stream));
			ck_nccl(nw.nccl->send((void *)(uintptr_t)(r->out +
			                                          offset),
			                      bytes, BATONI_NCCL_UINT8, peer,
			                      comm, stream));
		} else {
			ck_nccl(nw.nccl->recv((void *)(uintptr_t)(r->in +
			                                          offset),
			                      bytes, BATONI_NCCL_UINT8, peer,
			                      comm, stream));
		}
	}
	result = nw.nccl->group_end();
	await(comm, result);
}

static void
check_lane(const struct thread *thread, int lane, int round)
{
	const struct rank *r = &nw.rank[thread->rank];

	for (int peer = 0; peer < RANKS; peer++) {
		size_t offset = BUFFER / 8 * (size_t)(peer + 4 * lane);
		size_t bytes = length_of(peer, thread->rank, round);
		bool received = lane == 0 ? peer < thread->rank
		                          : peer > thread->rank;

		if (!received)
			continue;
		ck_assert_uint_eq(world_count(r->in + offset,
		                              byte_of(peer, thread->rank, round),
		                              bytes), bytes);
	}
}

static void *
run_rank(void *data)
{
	struct thread *thread = data;
	const struct rank *r = &nw.rank[thread->rank];

	world_use(thread->rank);
	create(thread);
	for (int round = 0; round < ROUNDS; round++) {
		for (int lane = 0; lane < LANES; lane++)
			run_lane(thread, lane, round);
		ck_cuda(nw.cuda->stream_synchronize(r->stream));
		ck_cuda(nw.cuda->stream_synchronize(r->other));
		for (int lane = 0; lane < LANES; lane++)
			check_lane(thread, lane, round);
	}
	for (int lane = 0; lane < LANES; lane++)
		ck_nccl(nw.nccl->comm_destroy(thread->lanes[lane]));
	return NULL;
}

static void
run_all(long with_seed, bool as_blocking)
{
	struct thread ranks[RANKS];
	pthread_t threads[RANKS];

	blocking = as_blocking;
	world_load();
	seed = getenv("NCCLSIM_SEED") ? atol(getenv("NCCLSIM_SEED")) : with_seed;
	ck_assert(nw.nccl->sim_set("seed", seed));
	ck_assert(nw.cuda->sim_set("seed", seed));
	ck_assert(nw.nccl->sim_set("eager", seed % 2));
	ck_assert(nw.nccl->sim_set("slow", seed / 2 % 2));
	world_devices(RANKS);
	for (int lane = 0; lane < LANES; lane++)
		ck_nccl(nw.nccl->get_unique_id(&ids[lane]));
	for (int i = 0; i < RANKS; i++) {
		ranks[i].rank = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_rank,
		                                &ranks[i]), 0);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_gt(nw.nccl->sim_live("delays"), 0);
	world_end();
}

START_TEST(blocking_ranks_exchange)
{
	run_all(1, true);
}
END_TEST

START_TEST(blocking_ranks_exchange_without_room)
{
	run_all(2, true);
}
END_TEST

START_TEST(non_blocking_ranks_exchange)
{
	run_all(3, false);
}
END_TEST

START_TEST(non_blocking_ranks_exchange_quickly)
{
	run_all(4, false);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		blocking_ranks_exchange,
		blocking_ranks_exchange_without_room,
		non_blocking_ranks_exchange,
		non_blocking_ranks_exchange_quickly,
	};

	return RUN_TESTS("ncclsim_threads", tests);
}
