/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts, signals and waits for them. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "world.h"

enum { WINDOW = 65536 };

static void *memory[WORLD_RANKS];
static ncclWindow_t windows[WORLD_RANKS];

static CUdeviceptr
address(int rank)
{
	return (uintptr_t)memory[rank];
}

/* A window of each rank, which is also what puts come from. */
static void
begin(int ranks)
{
	world_begin(ranks, true);
	for (int i = 0; i < ranks; i++) {
		world_use(i);
		ck_nccl(nw.nccl->mem_alloc(&memory[i], WINDOW));
		world_fill(i, address(i), 0, WINDOW);
	}
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < ranks; i++)
		ck_nccl(nw.nccl->window_register(nw.rank[i].comm, memory[i],
		                                 WINDOW, &windows[i], 1));
	ck_nccl(nw.nccl->group_end());
	world_settle();
	/* The collective of the first one. */
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < ranks; i++)
		ck_nccl(nw.nccl->signal(i, 0, 0, 0, nw.rank[i].comm,
		                        nw.rank[i].stream));
	ck_nccl(nw.nccl->group_end());
	world_settle();
}

static void
end_windows(void)
{
	for (int i = 0; i < nw.ranks; i++) {
		if (nw.rank[i].comm)
			ck_nccl(nw.nccl->window_deregister(nw.rank[i].comm,
			                                   windows[i]));
		world_use(i);
		ck_nccl(nw.nccl->mem_free(memory[i]));
	}
	world_end();
}

static ncclResult_t
put_to(int rank, int peer, size_t offset, size_t bytes)
{
	return nw.nccl->put_signal(memory[rank], bytes, BATONI_NCCL_UINT8, peer,
	                           windows[rank], offset, 0, 0, 0,
	                           nw.rank[rank].comm, nw.rank[rank].stream);
}

static ncclResult_t
signal_to(int rank, int peer)
{
	return nw.nccl->signal(peer, 0, 0, 0, nw.rank[rank].comm,
	                       nw.rank[rank].stream);
}

static ncclResult_t
wait_for(int rank, int peer, int count)
{
	ncclWaitSignalDesc_t desc = {.opCnt = count, .peer = peer};

	return nw.nccl->wait_signal(1, &desc, nw.rank[rank].comm,
	                            nw.rank[rank].stream);
}

/* The agent is not of the streams: its writing is waited for by the stream. */
static void
synchronize(int rank)
{
	world_use(rank);
	ck_cuda(nw.cuda->stream_synchronize(nw.rank[rank].stream));
}

START_TEST(put_is_there_when_its_signal_is)
{
	begin(2);
	ck_nccl(wait_for(1, 0, 1));
	world_settle();
	ck_assert(!world_is_done(1));
	world_fill(0, address(0), 8, 1000);
	ck_nccl(put_to(0, 1, 4096, 1000));
	synchronize(1);
	ck_assert_uint_eq(world_count(address(1), 0, WINDOW), 4096);
	ck_assert_uint_eq(world_count(address(1) + 4096, 8, 1001), 1000);
	end_windows();
}
END_TEST

START_TEST(put_may_be_longer_than_what_is_between_the_ranks)
{
	begin(2);
	world_fill(0, address(0), 9, WINDOW);
	ck_nccl(put_to(0, 1, 0, WINDOW));
	/* Behind it, the same way. */
	ck_nccl(signal_to(0, 1));
	ck_nccl(wait_for(1, 0, 2));
	synchronize(1);
	ck_assert_uint_eq(world_count(address(1), 9, WINDOW), WINDOW);
	end_windows();
}
END_TEST

START_TEST(signals_add_up)
{
	begin(2);
	for (int i = 0; i < 3; i++)
		ck_nccl(signal_to(0, 1));
	ck_nccl(wait_for(1, 0, 2));
	synchronize(1);
	ck_nccl(wait_for(1, 0, 2));
	world_settle();
	ck_assert(!world_is_done(1));
	ck_nccl(signal_to(0, 1));
	synchronize(1);
	end_windows();
}
END_TEST

START_TEST(wait_is_for_all_that_it_names)
{
	ncclWaitSignalDesc_t descs[] = {{.opCnt = 1, .peer = 1},
	                                {.opCnt = 1, .peer = 2}};

	begin(3);
	ck_nccl(nw.nccl->wait_signal(2, descs, nw.rank[0].comm,
	                             nw.rank[0].stream));
	ck_nccl(signal_to(1, 0));
	synchronize(1);
	world_settle();
	ck_assert(!world_is_done(0));
	ck_nccl(signal_to(2, 0));
	synchronize(0);
	/* A rank that there is not: NCCL would not look. */
	descs[0].peer = 3;
	ck_assert_uint_eq(nw.nccl->wait_signal(1, descs, nw.rank[0].comm,
	                                       nw.rank[0].stream),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	nw.violations = 1;
	end_windows();
}
END_TEST

START_TEST(unmet_wait_holds_the_communicator_up)
{
	struct rank *r = &nw.rank[1];

	begin(3);
	ck_nccl(wait_for(1, 0, 1));
	/* On another stream, to another rank. */
	ck_nccl(nw.nccl->signal(2, 0, 0, 0, r->comm, r->other));
	ck_nccl(wait_for(2, 1, 1));
	world_settle();
	ck_assert(!world_is_done(2));
	ck_nccl(signal_to(0, 1));
	synchronize(2);
	end_windows();
}
END_TEST

START_TEST(one_sided_operations_come_before_messages_in_a_group)
{
	begin(2);
	world_connect();
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_recv(0, 1, 10));
	ck_nccl(signal_to(0, 1));
	ck_nccl(nw.nccl->group_end());
	/* Rank 1 sends only after the signal. */
	ck_nccl(wait_for(1, 0, 1));
	ck_nccl(world_send(1, 0, 10));
	synchronize(0);
	end_windows();
}
END_TEST

START_TEST(put_outside_of_the_window_is_a_violation)
{
	begin(2);
	ck_nccl(put_to(0, 1, WINDOW - 10, 11));
	ck_nccl(wait_for(1, 0, 1));
	synchronize(1);
	ck_assert_uint_eq(world_count(address(1), 0, WINDOW), WINDOW);
	/* The source is looked at. */
	ck_assert_uint_eq(nw.nccl->put_signal(
				  (void *)(uintptr_t)nw.rank[0].out, 1,
				  BATONI_NCCL_UINT8, 1, windows[0], 0, 0, 0, 0,
				  nw.rank[0].comm, nw.rank[0].stream),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(put_to(0, 1, 0, WINDOW + 1),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	nw.violations = 1;
	end_windows();
}
END_TEST

/* ---- memory -------------------------------------------------------------- */

enum { UNIT = 2 << 20 }; /* the granularity of cudasim */

/* A mapping of virtual memory management on the rank's device. */
static CUdeviceptr
map_unit(int rank)
{
	const CUmemAllocationProp properties = {
		.type = BATONI_CU_ALLOCATION_PINNED,
		.location = {BATONI_CU_LOCATION_DEVICE, rank},
	};
	const CUmemAccessDesc access = {
		.location = {BATONI_CU_LOCATION_DEVICE, rank},
		.flags = BATONI_CU_ACCESS_READ_WRITE,
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;

	world_use(rank);
	ck_cuda(nw.cuda->vm_reserve(&at, UNIT, 0, 0, 0));
	ck_cuda(nw.cuda->vm_create(&handle, UNIT, &properties, 0));
	ck_cuda(nw.cuda->vm_map(at, UNIT, 0, handle, 0));
	ck_cuda(nw.cuda->vm_access(at, UNIT, &access, 1));
	ck_cuda(nw.cuda->vm_release(handle));
	return at;
}

static ncclResult_t
make_window(CUdeviceptr at, size_t bytes, ncclWindow_t *window_p)
{
	return nw.nccl->window_register(nw.rank[0].comm, (void *)(uintptr_t)at,
	                                bytes, window_p, 1);
}

START_TEST(windows_are_in_memory_of_the_two_kinds)
{
	ncclWindow_t window;
	CUdeviceptr at;

	world_begin(1, true);
	at = map_unit(0);
	ck_nccl(make_window(at + 4096, UNIT - 4096, &window));
	ck_nccl(nw.nccl->put_signal((void *)(uintptr_t)(at + 8192), 100,
	                            BATONI_NCCL_UINT8, 0, window, 0, 0, 0, 0,
	                            nw.rank[0].comm, nw.rank[0].stream));
	ck_nccl(wait_for(0, 0, 1));
	synchronize(0);
	ck_nccl(nw.nccl->window_deregister(nw.rank[0].comm, window));
	/* Off the alignment; beyond its end; of cuMemAlloc. */
	ck_assert_uint_eq(make_window(at + 64, 64, &window),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(make_window(at + 4096, UNIT, &window),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(make_window(nw.rank[0].out, 4096, &window),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_cuda(nw.cuda->vm_unmap(at, UNIT));
	ck_cuda(nw.cuda->vm_unreserve(at, UNIT));
	world_end();
}
END_TEST

START_TEST(over_sockets_windows_are_null)
{
	ncclWindow_t window = (ncclWindow_t)(void *)&nw;

	world_begin(1, true);
	ck_nccl(nw.nccl->mem_alloc(&memory[0], WINDOW));
	ck_assert(nw.nccl->sim_set("sockets", 1));
	ck_nccl(make_window(address(0), WINDOW, &window));
	ck_assert_ptr_null(window);
	ck_assert_int_eq(nw.nccl->sim_live("windows"), 0);
	ck_nccl(nw.nccl->mem_free(memory[0]));
	world_end();
}
END_TEST

/* ---- who waits for whom -------------------------------------------------- */

struct task {
	pthread_t thread;
	atomic_bool done;
};

static void *
abort_second(void *data)
{
	struct task *task = data;

	ck_nccl(nw.nccl->comm_abort(nw.rank[1].comm));
	atomic_store(&task->done, true);
	return NULL;
}

START_TEST(abort_hangs_while_a_wait_is_unmet)
{
	struct task task = {.done = false};

	begin(2);
	ck_nccl(wait_for(1, 0, 1));
	pthread_create(&task.thread, NULL, abort_second, &task);
	for (int i = 0; i < 200; i++) {
		ck_assert(!atomic_load(&task.done));
		usleep(100);
	}
	ck_nccl(signal_to(0, 1));
	pthread_join(task.thread, NULL);
	nw.rank[1].comm = NULL;
	synchronize(0);
	ck_nccl(nw.nccl->window_deregister(nw.rank[0].comm, windows[0]));
	ck_nccl(nw.nccl->comm_abort(nw.rank[0].comm));
	nw.rank[0].comm = NULL;
	end_windows();
}
END_TEST

static void *
signal_first(void *data)
{
	struct task *task = data;

	ck_nccl(signal_to(0, 1));
	atomic_store(&task->done, true);
	return NULL;
}

START_TEST(first_one_is_a_collective)
{
	struct task task = {.done = false};

	world_begin(2, true);
	pthread_create(&task.thread, NULL, signal_first, &task);
	for (int i = 0; i < 200; i++) {
		ck_assert(!atomic_load(&task.done));
		usleep(100);
	}
	ck_nccl(wait_for(1, 0, 1));
	pthread_join(task.thread, NULL);
	synchronize(1);
	world_end();
}
END_TEST

START_TEST(those_of_a_non_blocking_communicator_are_in_progress)
{
	world_begin(2, false);
	ck_assert_uint_eq(signal_to(0, 1), BATONI_NCCL_IN_PROGRESS);
	ck_assert_uint_eq(wait_for(1, 0, 1), BATONI_NCCL_IN_PROGRESS);
	world_await();
	synchronize(1);
	ck_assert_uint_eq(signal_to(0, 1), BATONI_NCCL_IN_PROGRESS);
	ck_assert_uint_eq(wait_for(1, 0, 1), BATONI_NCCL_IN_PROGRESS);
	world_await();
	synchronize(1);
	world_end();
}
END_TEST

/* ---- versions ------------------------------------------------------------ */

START_TEST(from_2_31_it_needs_a_window_or_the_option)
{
	struct batoni_nccl_api api = {.version = 23203};
	struct batoni_nccl_config config;
	struct rank *r = &nw.rank[0];
	ncclUniqueId id;

	world_load();
	ck_assert(nw.nccl->sim_set("version", 23203));
	world_begin(1, true);
	ck_assert_uint_eq(signal_to(0, 0), BATONI_NCCL_INVALID_USAGE);
	world_destroy();
	batoni_nccl_config_init(&api, &config);
	config.rmaEagerInit = 1;
	config.numRmaSig = 4;
	config.numRmaCtx = 2;
	ck_nccl(nw.nccl->get_unique_id(&id));
	ck_nccl(nw.nccl->comm_init(&r->comm, 1, id, 0, &config));
	ck_nccl(nw.nccl->signal(0, 3, 1, 0, r->comm, r->stream));
	ck_assert_uint_eq(nw.nccl->signal(0, 4, 0, 0, r->comm, r->stream),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->signal(0, 0, 2, 0, r->comm, r->stream),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->signal(0, 0, 0, 1, r->comm, r->stream),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	/* Its counter, and no other. */
	ck_nccl(nw.nccl->wait_signal(
		1, &(ncclWaitSignalDesc_t){.opCnt = 1, .sigIdx = 3, .ctx = 1},
		r->comm, r->stream));
	synchronize(0);
	world_end();
}
END_TEST

START_TEST(before_2_31_there_is_one_signal)
{
	begin(1);
	ck_assert_uint_eq(nw.nccl->signal(0, 1, 0, 0, nw.rank[0].comm,
	                                  nw.rank[0].stream),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	end_windows();
}
END_TEST

START_TEST(window_knows_its_pointer)
{
	void *pointer;

	begin(1);
	ck_nccl(nw.nccl->window_pointer(nw.rank[0].comm, windows[0], &pointer));
	ck_assert_ptr_eq(pointer, memory[0]);
	end_windows();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		put_is_there_when_its_signal_is,
		put_may_be_longer_than_what_is_between_the_ranks,
		signals_add_up,
		wait_is_for_all_that_it_names,
		unmet_wait_holds_the_communicator_up,
		one_sided_operations_come_before_messages_in_a_group,
		put_outside_of_the_window_is_a_violation,
		windows_are_in_memory_of_the_two_kinds,
		over_sockets_windows_are_null,
		abort_hangs_while_a_wait_is_unmet,
		first_one_is_a_collective,
		those_of_a_non_blocking_communicator_are_in_progress,
		from_2_31_it_needs_a_window_or_the_option,
		before_2_31_there_is_one_signal,
		window_knows_its_pointer,
	};

	return RUN_TESTS("ncclsim_signals", tests);
}
