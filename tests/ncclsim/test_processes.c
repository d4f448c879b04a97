/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that are processes: the id goes through a pipe, all else through NCCL. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "world.h"

/* The child is rank 1.  Fork comes before all calls of the driver. */
static int me;
static pid_t child;

static void
fork_and_create(void)
{
	struct batoni_nccl_config config = world_config(true);
	ncclUniqueId id;
	char path[160];
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	me = child == 0;
	world_devices(2);
	if (me == 0) {
		ck_nccl(nw.nccl->get_unique_id(&id));
		ck_assert_int_eq(write(ends[1], &id, sizeof(id)), sizeof(id));
	} else {
		ck_assert_int_eq(read(ends[0], &id, sizeof(id)), sizeof(id));
	}
	close(ends[0]);
	close(ends[1]);
	world_use(me);
	ck_nccl(nw.nccl->comm_init(&nw.rank[me].comm, 2, id, me, &config));
	/* All have it, so nobody needs its name. */
	snprintf(path, sizeof(path), "/dev/shm/%s", id.internal);
	ck_assert_int_ne(access(path, F_OK), 0);
}

/* Both: the other rank's bytes are there. */
static void
exchange(size_t bytes)
{
	world_fill(me, nw.rank[me].out, (unsigned char)(10 + me), bytes);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(me, 1 - me, bytes));
	ck_nccl(world_recv(me, 1 - me, bytes));
	ck_nccl(nw.nccl->group_end());
	world_use(me);
	ck_cuda(nw.cuda->stream_synchronize(nw.rank[me].stream));
	ck_assert_uint_eq(world_count(nw.rank[me].in,
	                              (unsigned char)(11 - me), bytes), bytes);
}

static void
end_both(void)
{
	int status = 0;

	world_end();
	if (me == 1)
		_exit(0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

START_TEST(processes_exchange_messages)
{
	fork_and_create();
	exchange(1);
	exchange(BUFFER);
	for (size_t bytes = 0; bytes < 200000; bytes = 3 * bytes + 7)
		exchange(bytes);
	end_both();
}
END_TEST

START_TEST(processes_split_and_finalize)
{
	ncclComm_t parent;

	fork_and_create();
	parent = nw.rank[me].comm;
	ck_nccl(nw.nccl->comm_split(parent, 3, 0, &nw.rank[me].comm, NULL));
	exchange(1000);
	ck_nccl(nw.nccl->comm_destroy(nw.rank[me].comm));
	nw.rank[me].comm = parent;
	end_both();
}
END_TEST

START_TEST(processes_put_into_each_other)
{
	ncclWaitSignalDesc_t desc = {.opCnt = 1};
	ncclWindow_t window;
	struct rank *r;
	void *memory;

	fork_and_create();
	r = &nw.rank[me];
	desc.peer = 1 - me;
	ck_nccl(nw.nccl->mem_alloc(&memory, 200000));
	ck_nccl(nw.nccl->window_register(r->comm, memory, 200000, &window, 1));
	world_fill(me, (uintptr_t)memory, (unsigned char)(20 + me), 100000);
	ck_nccl(nw.nccl->put_signal(memory, 100000, BATONI_NCCL_UINT8, 1 - me,
	                            window, 100000, 0, 0, 0, r->comm, r->stream));
	ck_nccl(nw.nccl->wait_signal(1, &desc, r->comm, r->stream));
	ck_cuda(nw.cuda->stream_synchronize(r->stream));
	ck_assert_uint_eq(world_count((uintptr_t)memory + 100000,
	                              (unsigned char)(21 - me), 100000), 100000);
	/* The peer's put has come; nobody's window goes before. */
	exchange(1);
	ck_nccl(nw.nccl->window_deregister(r->comm, window));
	ck_nccl(nw.nccl->mem_free(memory));
	end_both();
}
END_TEST

START_TEST(process_that_died_is_noticed)
{
	ncclResult_t state;
	int status;

	fork_and_create();
	exchange(10);
	ck_nccl(world_recv(me, 1 - me, 10));
	if (me == 1)
		_exit(0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	/* As between GPUs of one host: nothing says so. */
	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	ck_assert_uint_eq(state, BATONI_NCCL_SUCCESS);
	ck_assert(nw.nccl->sim_set("notice", 1));
	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	ck_assert_uint_eq(state, BATONI_NCCL_REMOTE_ERROR);
	ck_nccl(nw.nccl->comm_abort(nw.rank[0].comm));
	nw.rank[0].comm = NULL;
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		processes_exchange_messages,
		processes_split_and_finalize,
		processes_put_into_each_other,
		process_that_died_is_noticed,
	};

	return RUN_TESTS("ncclsim_processes", tests);
}
