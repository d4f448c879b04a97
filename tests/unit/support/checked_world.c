/* SPDX-License-Identifier: BSD-3-Clause */
#include "checked_world.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

/* Of cuMemHostAlloc: PORTABLE, MAPPED. */
#define PINNED 3u

struct nccl_world world;
static struct baton_unique_id id;

static void
load_rank(struct nccl_rank *rank, int number)
{
	const struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	CUcontext popped;
	void *memory;

	ck_cuda(world.cuda->primary_retain(&rank->context, number));
	ck_cuda(world.cuda->context_push(rank->context));
	for (int i = 0; i < WORLD_STREAMS; i++)
		ck_cuda(world.cuda->stream_create(
			&rank->streams[i], BATONI_CU_STREAM_NON_BLOCKING, 0));
	ck_cuda(world.cuda->host_alloc(&memory, WORLD_BYTES, PINNED));
	ck_cuda(world.cuda->context_pop(&popped));
	rank->memory = memory;
	rank->options = options;
	rank->options.device = BATON_DEVICE_CUDA;
	rank->options.transport = BATON_TRANSPORT_NCCL;
	rank->options.cuda_device = number;
	rank->options.nccl_lists = true; /* checked mode does not look */
}

void
world_load(int size)
{
	world.cuda = cudasim_load(NULL);
	world.nccl = ncclsim_load(NULL);
	ck_assert_ptr_nonnull(world.cuda);
	ck_assert_ptr_nonnull(world.nccl);
	ck_cuda(world.cuda->init(0));
	world.size = size;
	for (int i = 0; i < size; i++)
		load_rank(&world.ranks[i], i);
}

static void *
creator_main(void *argument)
{
	struct nccl_rank *rank = argument;

	rank->status =
		baton_comm_create_id(world.size, (int)(rank - world.ranks), &id,
	                             &rank->options, &rank->comm);
	snprintf(rank->why, sizeof(rank->why), "%s", baton_last_error());
	return NULL;
}

static void *
destroyer_main(void *argument)
{
	struct nccl_rank *rank = argument;

	rank->status = baton_comm_destroy(rank->comm);
	return NULL;
}

/* On a thread for each rank. */
static void
on_all(void *(*fn)(void *))
{
	pthread_t threads[WORLD_RANKS];

	for (int i = 0; i < world.size; i++)
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, fn, &world.ranks[i]),
			0);
	for (int i = 0; i < world.size; i++)
		pthread_join(threads[i], NULL);
}

void
world_try(void)
{
	ck_ok(baton_unique_id_create(&id));
	on_all(creator_main);
}

void
world_create(void)
{
	world_try();
	for (int i = 0; i < world.size; i++)
		ck_assert_msg(world.ranks[i].status == BATON_OK, "%s",
		              world.ranks[i].why);
}

void
world_begin(int size, bool check)
{
	world_load(size);
	for (int i = 0; i < size; i++)
		world.ranks[i].options.check = check;
	world_create();
}

static void
check_nothing_is_left(void)
{
	ck_assert_int_eq(world.nccl->sim_live("comms"), 0);
	ck_assert_int_eq(world.nccl->sim_violations(), 0);
	ck_assert_int_eq(world.cuda->sim_violations(), 0);
}

void
world_destroy(void)
{
	on_all(destroyer_main);
	for (int i = 0; i < world.size; i++)
		ck_ok(world.ranks[i].status);
	check_nothing_is_left();
}

void
world_abort(void)
{
	for (int i = 0; i < world.size; i++)
		ck_ok(baton_comm_abort(world.ranks[i].comm));
	for (int i = 0; i < world.size; i++)
		ck_ok(baton_comm_destroy(world.ranks[i].comm));
	check_nothing_is_left();
}

void
world_finish(baton_request request, enum baton_status status)
{
	char why[256] = "";

	if (baton_wait(request, 20 * SECOND, NULL) != status)
		baton_request_error(request, why, sizeof(why));
	ck_assert_msg(baton_finish(&request, 0, NULL) == status, "not %s: %s",
	              baton_status_name(status), why);
}

void
world_finish_free(baton_request request, enum baton_status status)
{
	struct baton_completion done;

	do
		ck_assert_int_eq(baton_wait(request, 20 * SECOND, &done), status);
	while (done.flags & BATON_COMPLETION_LENT);
	ck_ok(baton_release(&request));
}
