/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: how they begin, what state they are in, how they end. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "world.h"

static ncclResult_t
state_of(int rank)
{
	ncclResult_t state;

	ck_nccl(nw.nccl->comm_error(nw.rank[rank].comm, &state));
	return state;
}

static ncclResult_t
create_one(int rank, int ranks, const ncclUniqueId *id, bool blocking)
{
	struct batoni_nccl_config config = world_config(blocking);

	world_use(rank);
	return nw.nccl->comm_init(&nw.rank[rank].comm, ranks, *id, rank,
	                          &config);
}

static void
abort_one(int rank)
{
	ck_nccl(nw.nccl->comm_abort(nw.rank[rank].comm));
	nw.rank[rank].comm = NULL;
}

/* It returns when it can; until then, this is false. */
struct task {
	pthread_t thread;
	void (*fn)(void);
	atomic_bool done;
};

static void *
run_task(void *data)
{
	struct task *task = data;

	task->fn();
	atomic_store(&task->done, true);
	return NULL;
}

static void
start_task(struct task *task, void (*fn)(void))
{
	task->fn = fn;
	atomic_init(&task->done, false);
	ck_assert_int_eq(pthread_create(&task->thread, NULL, run_task, task), 0);
}

/* It cannot be over; if it could, this is time enough for it to show. */
static void
stays_in_progress(int rank)
{
	for (int i = 0; i < 200; i++) {
		ck_assert_uint_eq(state_of(rank), BATONI_NCCL_IN_PROGRESS);
		usleep(100);
	}
}

/* The same, of a task. */
static void
stays_blocked(struct task *task)
{
	for (int i = 0; i < 200; i++) {
		ck_assert(!atomic_load(&task->done));
		usleep(100);
	}
}

/* ---- creation ------------------------------------------------------------ */

START_TEST(communicator_knows_its_ranks)
{
	world_begin(3, true);
	for (int i = 0; i < 3; i++) {
		int count = 0, rank = -1, device = -1;

		ck_nccl(nw.nccl->comm_count(nw.rank[i].comm, &count));
		ck_nccl(nw.nccl->comm_rank(nw.rank[i].comm, &rank));
		ck_nccl(nw.nccl->comm_device(nw.rank[i].comm, &device));
		ck_assert_int_eq(count, 3);
		ck_assert_int_eq(rank, i);
		ck_assert_int_eq(device, i);
	}
	world_end();
}
END_TEST

START_TEST(creation_is_in_progress_until_all_are_there)
{
	ncclUniqueId id;
	int count;

	world_devices(2);
	ck_nccl(nw.nccl->get_unique_id(&id));
	ck_assert_uint_eq(create_one(0, 2, &id, false),
	                  BATONI_NCCL_IN_PROGRESS);
	ck_assert_ptr_nonnull(nw.rank[0].comm);
	stays_in_progress(0);
	/* Nothing else may be asked of it. */
	ck_assert_uint_eq(nw.nccl->comm_count(nw.rank[0].comm, &count),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(world_send(0, 1, 1), BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(create_one(1, 2, &id, false),
	                  BATONI_NCCL_IN_PROGRESS);
	world_await();
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(state_of(1), BATONI_NCCL_SUCCESS);
	world_end();
}
END_TEST

START_TEST(abort_ends_a_creation_that_waits)
{
	ncclUniqueId id;

	world_devices(2);
	ck_nccl(nw.nccl->get_unique_id(&id));
	create_one(0, 2, &id, false);
	abort_one(0);
	world_end();
}
END_TEST

START_TEST(creation_that_is_made_to_fail_has_no_communicator)
{
	ncclUniqueId id;

	world_devices(1);
	ck_nccl(nw.nccl->get_unique_id(&id));
	ck_assert(nw.nccl->sim_fail("job", 1, BATONI_NCCL_SYSTEM_ERROR));
	ck_assert_uint_eq(create_one(0, 1, &id, true),
	                  BATONI_NCCL_SYSTEM_ERROR);
	ck_assert_ptr_null(nw.rank[0].comm);
	/* A non-blocking one has to be aborted. */
	ck_assert(nw.nccl->sim_fail("job", 1, BATONI_NCCL_SYSTEM_ERROR));
	ck_assert_uint_eq(create_one(0, 1, &id, false),
	                  BATONI_NCCL_IN_PROGRESS);
	world_await();
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_SYSTEM_ERROR);
	abort_one(0);
	world_end();
}
END_TEST

static ncclResult_t
create_on_one_device(void)
{
	struct batoni_nccl_config config = world_config(true);
	ncclUniqueId id;
	ncclResult_t result;

	ck_nccl(nw.nccl->get_unique_id(&id));
	world_use(0);
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 2; i++)
		ck_nccl(nw.nccl->comm_init(&nw.rank[i].comm, 2, id, i,
		                           &config));
	result = nw.nccl->group_end();
	abort_one(0);
	abort_one(1);
	return result;
}

START_TEST(two_ranks_of_a_device_are_refused_unless_allowed)
{
	world_devices(2);
	ck_assert_uint_eq(create_on_one_device(), BATONI_NCCL_INVALID_USAGE);
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
	ck_nccl(create_on_one_device());
	/* It came with 2.30. */
	ck_assert(nw.nccl->sim_set("version", 22809));
	ck_assert_uint_eq(create_on_one_device(), BATONI_NCCL_INVALID_USAGE);
	ck_assert(nw.nccl->sim_set("duplicates", 1));
	ck_nccl(create_on_one_device());
	world_end();
}
END_TEST

/* ---- connections --------------------------------------------------------- */

static void
recv_first(void)
{
	ck_nccl(world_recv(0, 1, 10));
}

START_TEST(first_use_of_a_peer_blocks_the_host_until_it_joins)
{
	struct task task;

	world_begin(2, true);
	start_task(&task, recv_first);
	while (nw.nccl->sim_uses("job") < 3)
		usleep(100);
	world_settle();
	stays_blocked(&task);
	ck_nccl(world_send(1, 0, 10));
	pthread_join(task.thread, NULL);
	/* From now on neither blocks. */
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(world_send(1, 0, 10));
	ck_nccl(world_send(1, 0, 10));
	world_end();
}
END_TEST

START_TEST(work_in_progress_is_not_on_the_stream)
{
	world_begin(2, false);
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	world_settle();
	/* An event that is recorded now is one of before it. */
	ck_assert(world_is_done(0));
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_IN_PROGRESS);
	ck_assert_uint_eq(world_send(1, 0, 10), BATONI_NCCL_IN_PROGRESS);
	world_await();
	world_settle();
	ck_assert(world_is_done(0) && world_is_done(1));
	/* Connected, too. */
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	world_await();
	world_settle();
	ck_assert(!world_is_done(0));
	ck_assert_uint_eq(world_send(1, 0, 10), BATONI_NCCL_IN_PROGRESS);
	world_await();
	world_end();
}
END_TEST

START_TEST(quick_communicator_launches_in_the_caller)
{
	world_load();
	ck_assert(nw.nccl->sim_set("slow", 0));
	world_begin(2, false);
	world_connect();
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(world_send(1, 0, 10));
	world_end();
}
END_TEST

/* Rank 0 sends on the handle of its thread's own stream, which waits. */
static void
send_on_own_stream(bool blocking)
{
	CUstream own =
		(CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;
	struct rank *r = &nw.rank[0];

	world_begin(2, blocking);
	world_connect();
	world_recv(1, 0, 10);
	world_hold(0, own, 0);
	nw.nccl->send((void *)(uintptr_t)r->out, 10, BATONI_NCCL_UINT8, 1,
	              r->comm, own);
	world_await();
	world_settle();
	ck_assert_int_eq(world_is_done(1), !blocking);
	world_let_go(0);
	world_use(0);
	ck_cuda(nw.cuda->stream_synchronize(own));
	world_end();
}

START_TEST(own_stream_of_the_caller_is_meant_if_the_caller_launches)
{
	send_on_own_stream(true);
}
END_TEST

START_TEST(own_stream_of_nccls_thread_is_meant_if_that_launches)
{
	send_on_own_stream(false);
}
END_TEST

START_TEST(launch_blocks_when_so_many_are_there)
{
	world_begin(2, false);
	world_connect();
	ck_assert(nw.nccl->sim_set("room", 1));
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	world_await();
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	stays_in_progress(0);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(world_send(1, 0, 10),
		                  BATONI_NCCL_IN_PROGRESS);
		world_await_one(1);
	}
	world_await();
	world_end();
}
END_TEST

START_TEST(connection_that_fails_leaves_nothing_on_the_stream)
{
	world_begin(2, false);
	ck_assert(nw.nccl->sim_fail("job", 1, BATONI_NCCL_REMOTE_ERROR));
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	world_await();
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_REMOTE_ERROR);
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 0);
	abort_one(0);
	abort_one(1);
	world_end();
}
END_TEST

START_TEST(abort_ends_a_connection_that_waits)
{
	world_begin(2, false);
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_IN_PROGRESS);
	abort_one(0);
	abort_one(1);
	world_end();
}
END_TEST

/* ---- the end ------------------------------------------------------------- */

START_TEST(finalize_is_over_when_all_ranks_are_at_the_end)
{
	world_begin(2, false);
	ck_assert_uint_eq(nw.nccl->comm_finalize(nw.rank[0].comm),
	                  BATONI_NCCL_IN_PROGRESS);
	stays_in_progress(0);
	ck_assert_uint_eq(nw.nccl->comm_finalize(nw.rank[1].comm),
	                  BATONI_NCCL_IN_PROGRESS);
	world_await();
	ck_assert_uint_eq(world_send(0, 1, 1), BATONI_NCCL_INVALID_ARGUMENT);
	for (int i = 0; i < 2; i++) {
		ck_nccl(nw.nccl->comm_destroy(nw.rank[i].comm));
		nw.rank[i].comm = NULL;
	}
	world_end();
}
END_TEST

static void
destroy_first(void)
{
	ck_nccl(nw.nccl->comm_destroy(nw.rank[0].comm));
}

START_TEST(destroy_waits_for_work_and_for_the_others)
{
	struct task task;

	world_begin(2, true);
	world_connect();
	ck_nccl(world_recv(0, 1, 10));
	start_task(&task, destroy_first);
	while (nw.nccl->sim_uses("ncclCommDestroy") == 0)
		usleep(100);
	world_settle();
	stays_blocked(&task);
	ck_nccl(world_send(1, 0, 10));
	world_settle();
	stays_blocked(&task);
	ck_nccl(nw.nccl->comm_destroy(nw.rank[1].comm));
	pthread_join(task.thread, NULL);
	nw.rank[0].comm = nw.rank[1].comm = NULL;
	world_end();
}
END_TEST

START_TEST(peer_that_aborts_is_noticed_if_that_is_asked_for)
{
	world_begin(2, true);
	world_connect();
	ck_nccl(world_recv(0, 1, 10));
	abort_one(1);
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_SUCCESS);
	ck_assert(nw.nccl->sim_set("notice", 1));
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_REMOTE_ERROR);
	world_settle();
	ck_assert(!world_is_done(0));
	abort_one(0);
	world_end();
}
END_TEST

START_TEST(break_is_an_asynchronous_error)
{
	world_begin(1, true);
	nw.nccl->sim_break(nw.rank[0].comm, BATONI_NCCL_INTERNAL_ERROR);
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_INTERNAL_ERROR);
	nw.nccl->sim_break(nw.rank[0].comm, BATONI_NCCL_SYSTEM_ERROR);
	ck_assert_uint_eq(state_of(0), BATONI_NCCL_INTERNAL_ERROR);
	abort_one(0);
	world_end();
}
END_TEST

START_TEST(revoke_ends_what_runs_and_forbids_more)
{
	world_begin(2, true);
	world_connect();
	ck_nccl(world_recv(0, 1, 10));
	world_settle();
	ck_assert(!world_is_done(0));
	ck_nccl(nw.nccl->comm_revoke(nw.rank[0].comm, 0));
	ck_assert(world_is_done(0));
	ck_assert_uint_eq(world_recv(0, 1, 10), BATONI_NCCL_INVALID_USAGE);
	ck_assert_uint_eq(nw.nccl->comm_finalize(nw.rank[0].comm),
	                  BATONI_NCCL_INVALID_USAGE);
	ck_assert_uint_eq(nw.nccl->comm_revoke(nw.rank[1].comm, 1),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_nccl(nw.nccl->comm_destroy(nw.rank[0].comm));
	nw.rank[0].comm = NULL;
	abort_one(1);
	world_end();
}
END_TEST

/* ---- children ------------------------------------------------------------ */

START_TEST(split_makes_one_of_each_colour)
{
	static const int colours[4] = {5, BATONI_NCCL_NO_COLOUR, 5, 5};
	ncclComm_t parents[4], children[4];
	int rank, count;

	world_begin(4, true);
	ck_nccl(nw.nccl->group_start());
	/* Keys turn the order round. */
	for (int i = 0; i < 4; i++)
		ck_nccl(nw.nccl->comm_split(nw.rank[i].comm, colours[i], -i,
		                            &children[i], NULL));
	ck_nccl(nw.nccl->group_end());
	ck_assert_ptr_null(children[1]);
	for (int i = 0; i < 4; i++) {
		parents[i] = nw.rank[i].comm;
		if (i == 1)
			continue;
		ck_nccl(nw.nccl->comm_count(children[i], &count));
		ck_nccl(nw.nccl->comm_rank(children[i], &rank));
		ck_assert_int_eq(count, 3);
		ck_assert_int_eq(rank, i == 0 ? 2 : i == 2 ? 1 : 0);
	}
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 4; i++) {
		if (children[i])
			ck_nccl(nw.nccl->comm_finalize(children[i]));
	}
	ck_nccl(nw.nccl->group_end());
	for (int i = 0; i < 4; i++) {
		if (children[i])
			ck_nccl(nw.nccl->comm_destroy(children[i]));
		nw.rank[i].comm = parents[i];
	}
	world_end();
}
END_TEST

START_TEST(shrink_with_abort_leaves_a_dead_rank_behind)
{
	int excluded[] = {1}, rank, count;
	ncclComm_t parents[3], children[3];

	world_begin(3, true);
	world_connect();
	/* Both wait for rank 1, which does nothing any more. */
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(world_send(2, 1, 10));
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 3; i += 2)
		ck_nccl(nw.nccl->comm_shrink(nw.rank[i].comm, excluded, 1,
		                             &children[i], NULL,
		                             BATONI_NCCL_SHRINK_ABORT));
	ck_nccl(nw.nccl->group_end());
	ck_assert(world_is_done(0) && world_is_done(2));
	for (int i = 0; i < 3; i++)
		parents[i] = nw.rank[i].comm;
	nw.rank[0].comm = children[0];
	nw.rank[2].comm = children[2];
	nw.rank[1].comm = NULL;
	ck_nccl(nw.nccl->comm_count(children[2], &count));
	ck_nccl(nw.nccl->comm_rank(children[2], &rank));
	ck_assert_int_eq(count, 2);
	ck_assert_int_eq(rank, 1);
	world_fill(2, nw.rank[2].out, 6, 10);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(2, 0, 10));
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(nw.nccl->group_end());
	world_settle();
	ck_assert_uint_eq(world_count(nw.rank[0].in, 6, 10), 10);
	for (int i = 0; i < 3; i++)
		ck_nccl(nw.nccl->comm_abort(parents[i]));
	world_end();
}
END_TEST

/* ---- windows ------------------------------------------------------------- */

START_TEST(window_is_made_by_all_ranks)
{
	ncclWindow_t windows[2];
	void *memory[2];

	world_begin(2, true);
	for (int i = 0; i < 2; i++) {
		world_use(i);
		ck_nccl(nw.nccl->mem_alloc(&memory[i], 8192));
	}
	/* Not of ncclMemAlloc; not aligned; too long. */
	ck_assert_uint_eq(nw.nccl->window_register(
				  nw.rank[0].comm,
				  (void *)(uintptr_t)nw.rank[0].out, 4096,
				  &windows[0], 1),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->window_register(nw.rank[0].comm,
	                                           (char *)memory[0] + 64, 64,
	                                           &windows[0], 1),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->window_register(nw.rank[0].comm, memory[0],
	                                           8193, &windows[0], 1),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < 2; i++)
		ck_nccl(nw.nccl->window_register(nw.rank[i].comm, memory[i],
		                                 8192, &windows[i], 1));
	ck_nccl(nw.nccl->group_end());
	ck_assert_int_eq(nw.nccl->sim_live("windows"), 2);
	for (int i = 0; i < 2; i++) {
		ck_nccl(nw.nccl->window_deregister(nw.rank[i].comm,
		                                   windows[i]));
		world_use(i);
		ck_nccl(nw.nccl->mem_free(memory[i]));
	}
	ck_assert_int_eq(nw.nccl->sim_live("windows"), 0);
	ck_assert_int_eq(nw.nccl->sim_live("blocks"), 0);
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		communicator_knows_its_ranks,
		creation_is_in_progress_until_all_are_there,
		abort_ends_a_creation_that_waits,
		creation_that_is_made_to_fail_has_no_communicator,
		two_ranks_of_a_device_are_refused_unless_allowed,
		first_use_of_a_peer_blocks_the_host_until_it_joins,
		work_in_progress_is_not_on_the_stream,
		quick_communicator_launches_in_the_caller,
		own_stream_of_the_caller_is_meant_if_the_caller_launches,
		own_stream_of_nccls_thread_is_meant_if_that_launches,
		launch_blocks_when_so_many_are_there,
		connection_that_fails_leaves_nothing_on_the_stream,
		abort_ends_a_connection_that_waits,
		finalize_is_over_when_all_ranks_are_at_the_end,
		destroy_waits_for_work_and_for_the_others,
		peer_that_aborts_is_noticed_if_that_is_asked_for,
		break_is_an_asynchronous_error,
		revoke_ends_what_runs_and_forbids_more,
		split_makes_one_of_each_colour,
		shrink_with_abort_leaves_a_dead_rank_behind,
		window_is_made_by_all_ranks,
	};

	return RUN_TESTS("ncclsim_life", tests);
}
