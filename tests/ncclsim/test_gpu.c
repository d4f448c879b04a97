/* SPDX-License-Identifier: BSD-3-Clause */
/* What communicators take of a GPU: CTAs, memory, the order of launches, the driver's version. */
#include <stdlib.h>

#include "world.h"

enum { MIB = 1 << 20, CHANNEL = 12 * MIB };

static ncclComm_t others[WORLD_RANKS];

/* A second communicator of all ranks, on their other streams.  Both are connected. */
static void
begin_two(int ranks)
{
	ncclComm_t first[WORLD_RANKS];

	world_begin(ranks, true);
	world_connect();
	for (int i = 0; i < ranks; i++)
		first[i] = nw.rank[i].comm;
	ck_nccl(world_create(ranks, true));
	world_connect();
	for (int i = 0; i < ranks; i++) {
		others[i] = nw.rank[i].comm;
		nw.rank[i].comm = first[i];
	}
}

static void
end_two(void)
{
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < nw.ranks; i++)
		ck_nccl(nw.nccl->comm_finalize(others[i]));
	ck_nccl(nw.nccl->group_end());
	for (int i = 0; i < nw.ranks; i++)
		ck_nccl(nw.nccl->comm_destroy(others[i]));
	world_end();
}

static void
send_by_other(int rank, int peer)
{
	const struct rank *r = &nw.rank[rank];

	ck_nccl(nw.nccl->send((const void *)(uintptr_t)r->out, 10,
	                      BATONI_NCCL_INT8, peer, others[rank], r->other));
}

static void
recv_by_other(int rank, int peer)
{
	const struct rank *r = &nw.rank[rank];

	ck_nccl(nw.nccl->recv((void *)(uintptr_t)(r->in + 100), 10,
	                      BATONI_NCCL_INT8, peer, others[rank], r->other));
}

static bool
other_is_done(int rank)
{
	world_use(rank);
	return nw.cuda->stream_query(nw.rank[rank].other) == BATONI_CU_SUCCESS;
}

/* Two kernels on so many processors: the first waits for its send. */
static bool
runs_beside_one_that_waits(long processors)
{
	bool done;

	world_load();
	ck_assert(nw.cuda->sim_set("processors", processors));
	begin_two(2);
	ck_assert(nw.nccl->sim_set("eager", 1));
	ck_nccl(world_recv(0, 1, 10));
	world_settle();
	send_by_other(0, 1);
	world_settle();
	done = other_is_done(0);
	ck_nccl(world_send(1, 0, 10));
	world_settle();
	ck_assert(other_is_done(0) && world_is_done(0));
	recv_by_other(1, 0);
	world_settle();
	end_two();
	return done;
}

START_TEST(kernel_waits_for_free_ctas)
{
	ck_assert(!runs_beside_one_that_waits(63));
}
END_TEST

START_TEST(kernels_that_fit_run_side_by_side)
{
	ck_assert(runs_beside_one_that_waits(64));
}
END_TEST

START_TEST(environment_says_how_many_ctas)
{
	setenv("NCCL_MAX_CTAS", "3", 1); /* a power of two: 4 */
	ck_assert(runs_beside_one_that_waits(8));
	ck_assert_int_eq(nw.nccl->sim_live("bytes"), 0);
}
END_TEST

START_TEST(kernel_that_waits_for_ctas_holds_its_queue_up)
{
	CUstream beside[2];

	world_load();
	ck_assert(nw.cuda->sim_set("processors", 40));
	ck_assert(nw.cuda->sim_set("queues", 2));
	begin_two(2);
	ck_assert(nw.nccl->sim_set("eager", 1));
	world_use(0);
	for (int i = 0; i < 2; i++)
		ck_cuda(nw.cuda->stream_create(
			&beside[i], BATONI_CU_STREAM_NON_BLOCKING, 0));
	ck_nccl(world_recv(0, 1, 10));
	world_settle();
	send_by_other(0, 1);
	/* One is in the queue of the kernel that waits for its send, one in that of the other. */
	world_use(0);
	for (int i = 0; i < 2; i++)
		ck_cuda(nw.cuda->set_bytes(
			nw.rank[0].in + 500 + (CUdeviceptr)i, 1, 1, beside[i]));
	world_settle();
	world_use(0);
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(nw.cuda->stream_query(beside[i]),
		                  BATONI_CU_NOT_READY);
	ck_nccl(world_send(1, 0, 10));
	world_settle();
	recv_by_other(1, 0);
	world_settle();
	world_use(0);
	for (int i = 0; i < 2; i++)
		ck_cuda(nw.cuda->stream_query(beside[i]));
	end_two();
}
END_TEST

START_TEST(aborted_kernels_give_their_ctas_back)
{
	world_load();
	ck_assert(nw.cuda->sim_set("processors", 32));
	begin_two(2);
	ck_nccl(world_recv(0, 1, 10));
	world_settle();
	send_by_other(0, 1);
	recv_by_other(1, 0);
	world_settle();
	ck_assert(!other_is_done(0));
	for (int i = 0; i < 2; i++) {
		ck_nccl(nw.nccl->comm_abort(nw.rank[i].comm));
		nw.rank[i].comm = NULL;
	}
	world_settle();
	ck_assert(other_is_done(0));
	end_two();
}
END_TEST

/* ---- the order of launches ---- */

/* A message of the second communicator, behind one of the first that waits in its stream. */
static bool
overtakes(void)
{
	bool done;

	begin_two(2);
	world_hold(0, nw.rank[0].stream, 0);
	ck_nccl(world_send(0, 1, 10));
	send_by_other(0, 1);
	recv_by_other(1, 0);
	world_settle();
	done = other_is_done(0);
	world_let_go(0);
	ck_nccl(world_recv(1, 0, 10));
	world_settle();
	ck_assert(other_is_done(0));
	end_two();
	return done;
}

START_TEST(launches_have_no_order)
{
	ck_assert(overtakes());
}
END_TEST

START_TEST(environment_puts_launches_in_order)
{
	setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
	ck_assert(!overtakes());
}
END_TEST

START_TEST(setting_puts_launches_in_order)
{
	world_load();
	ck_assert(nw.nccl->sim_set("order", 1));
	ck_assert(!overtakes());
}
END_TEST

/* ---- memory ---- */

static long long
free_bytes(int rank)
{
	size_t left, all;

	world_use(rank);
	ck_cuda(nw.cuda->mem_info(&left, &all));
	return (long long)left;
}

START_TEST(connections_take_memory_of_the_device)
{
	long long before, made;

	world_devices(2);
	before = free_bytes(0);
	ck_nccl(world_create(2, true));
	made = free_bytes(0);
	ck_assert_int_lt(made, before);
	world_connect();
	/* One peer, both directions, 32 channels. */
	ck_assert_int_eq(made - free_bytes(0), 32ll * CHANNEL);
	ck_assert_int_eq(nw.nccl->sim_live("bytes"),
	                 2 * (before - free_bytes(0)));
	world_destroy();
	ck_assert_int_eq(free_bytes(0), before);
	world_end();
}
END_TEST

START_TEST(fewer_ctas_take_less_memory)
{
	struct batoni_nccl_config config;
	ncclUniqueId id;

	world_devices(2);
	config = world_config(true);
	config.maxCTAs = 8;
	ck_nccl(nw.nccl->get_unique_id(&id));
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 2; i++) {
		world_use(i);
		nw.nccl->comm_init(&nw.rank[i].comm, 2, id, i, &config);
	}
	ck_nccl(nw.nccl->group_end());
	world_connect();
	ck_assert_int_lt(nw.nccl->sim_live("bytes"), 2ll * 9 * CHANNEL);
	world_end();
}
END_TEST

/* ---- a group in progress ---- */

START_TEST(revoke_while_a_group_is_in_progress_is_a_violation)
{
	world_begin(2, false);
	world_connect();
	ck_assert(nw.nccl->sim_set("launches", 0));
	ck_assert_uint_eq(world_send(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	ck_assert_uint_eq(nw.nccl->comm_revoke(nw.rank[0].comm, 0),
	                  BATONI_NCCL_INTERNAL_ERROR);
	nw.violations = 1;
	ck_assert(nw.nccl->sim_set("launches", 1));
	world_await();
	world_recv(1, 0, 10);
	world_await();
	world_end();
}
END_TEST

START_TEST(group_that_is_not_launched_is_in_progress_until_the_abort)
{
	ncclResult_t state;

	world_begin(2, false);
	world_connect();
	ck_assert(nw.nccl->sim_set("launches", 0));
	ck_assert_uint_eq(world_send(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	world_settle();
	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	ck_assert_uint_eq(state, BATONI_NCCL_IN_PROGRESS);
	for (int i = 0; i < 2; i++) {
		ck_nccl(nw.nccl->comm_abort(nw.rank[i].comm));
		nw.rank[i].comm = NULL;
	}
	world_end();
}
END_TEST

/* ---- the driver ---- */

START_TEST(one_sided_calls_need_a_driver_of_12_5)
{
	world_load();
	ck_assert(nw.cuda->sim_set("version", 12040));
	world_begin(2, true);
	ck_assert_uint_eq(nw.nccl->signal(1, 0, 0, 0, nw.rank[0].comm,
	                                  nw.rank[0].stream),
	                  BATONI_NCCL_INVALID_USAGE);
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		kernel_waits_for_free_ctas,
		kernels_that_fit_run_side_by_side,
		environment_says_how_many_ctas,
		kernel_that_waits_for_ctas_holds_its_queue_up,
		aborted_kernels_give_their_ctas_back,
		launches_have_no_order,
		environment_puts_launches_in_order,
		setting_puts_launches_in_order,
		connections_take_memory_of_the_device,
		fewer_ctas_take_less_memory,
		revoke_while_a_group_is_in_progress_is_a_violation,
		group_that_is_not_launched_is_in_progress_until_the_abort,
		one_sided_calls_need_a_driver_of_12_5,
	};

	return RUN_TESTS("ncclsim_gpu", tests);
}
