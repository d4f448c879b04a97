/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl_world.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "run_tests.h"

const struct cudasim *cuda;
const struct ncclsim *nccl;
struct baton_comm *comms[RANKS_MAX];
CUcontext contexts[RANKS_MAX];
CUstream streams[RANKS_MAX], others[RANKS_MAX];
struct creator creators[RANKS_MAX];
const struct baton_op_options in_20_ms = {.size = sizeof(in_20_ms),
                                          .timeout_ns = SECOND / 50};
static CUdeviceptr memory[RANKS_MAX];
static _Atomic uint64_t *words;

static void
make_words(void)
{
	void *block;

	ck_cuda(cuda->host_alloc(&block, WORDS * sizeof(*words),
	                         BATONI_CU_HOST_ALLOC_PORTABLE |
	                                 BATONI_CU_HOST_ALLOC_MAPPED));
	memset(block, 0, WORDS * sizeof(*words));
	words = block;
}

void
load(void)
{
	cuda = cudasim_load(NULL);
	nccl = ncclsim_load(NULL);
	ck_assert_ptr_nonnull(cuda);
	ck_assert_ptr_nonnull(nccl);
	ck_cuda(cuda->init(0));
	for (int i = 0; i < RANKS_MAX; i++) {
		CUcontext popped;

		ck_cuda(cuda->primary_retain(&contexts[i], i));
		ck_cuda(cuda->context_push(contexts[i]));
		if (i == 0)
			make_words();
		ck_cuda(cuda->stream_create(&streams[i],
		                            BATONI_CU_STREAM_NON_BLOCKING, 0));
		ck_cuda(cuda->stream_create(&others[i],
		                            BATONI_CU_STREAM_NON_BLOCKING, 0));
		ck_cuda(cuda->mem_alloc(&memory[i], PARTS * BYTES));
		ck_cuda(cuda->context_pop(&popped));
	}
}

struct baton_comm_options
nccl_options(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_CUDA;
	options.transport = BATON_TRANSPORT_NCCL;
	return options;
}

/* create_local puts all ranks on one device; ids let each have its own. */
static void *
creator_main(void *argument)
{
	struct creator *creator = argument;
	int rank = creator->rank;

	creator->options.cuda_device = rank;
	creator->status = baton_comm_create_id(creator->size, rank,
	                                       &creator->id,
	                                       &creator->options, &comms[rank]);
	snprintf(creator->why, sizeof(creator->why), "%s", baton_last_error());
	return NULL;
}

void
create_with(int size, const struct baton_comm_options options[])
{
	pthread_t threads[RANKS_MAX];
	struct baton_unique_id id;

	ck_ok(baton_unique_id_create(&id));
	for (int i = 0; i < size; i++) {
		creators[i] = (struct creator){.id = id,
		                               .options = options[i],
		                               .rank = i,
		                               .size = size};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, creator_main,
		                                &creators[i]),
		                 0);
	}
	for (int i = 0; i < size; i++)
		pthread_join(threads[i], NULL);
}

void
create_some(int size, int64_t timeout_ns, enum baton_progress progress)
{
	struct baton_comm_options options[RANKS_MAX];

	for (int i = 0; i < size; i++) {
		options[i] = nccl_options();
		options[i].timeout_ns = timeout_ns;
		options[i].progress = progress;
	}
	create_with(size, options);
}

void
create(int64_t timeout_ns, enum baton_progress progress)
{
	create_some(RANKS, timeout_ns, progress);
}

void
create_all(void)
{
	load();
	create(0, BATON_PROGRESS_AUTO);
	for (int i = 0; i < RANKS; i++)
		ck_assert_msg(creators[i].status == BATON_OK, "%s",
		              creators[i].why);
}

void *
destroyer_main(void *argument)
{
	int rank = *(int *)argument;

	ck_ok(baton_comm_destroy(comms[rank]));
	return NULL;
}

void
destroy_some(int size)
{
	int ranks[RANKS_MAX];
	pthread_t threads[RANKS_MAX];

	for (int i = 0; i < size; i++) {
		ranks[i] = i;
		pthread_create(&threads[i], NULL, destroyer_main, &ranks[i]);
	}
	for (int i = 0; i < size; i++)
		pthread_join(threads[i], NULL);
	await_no_comms();
	ck_assert_int_eq(cuda->sim_violations(), 0);
}

void
destroy_all(void)
{
	destroy_some(RANKS);
}

/* On a slow machine the destroy leaves them to a thread. */
void
await_no_comms(void)
{
	uint64_t limit = batoni_real_ns() + 20 * (uint64_t)SECOND;

	while (nccl->sim_live("comms") > 0 && batoni_real_ns() < limit)
		sched_yield();
	ck_assert_int_eq(nccl->sim_live("comms"), 0);
	ck_assert_int_eq(nccl->sim_violations(), 0);
}

void
abort_all(void)
{
	for (int i = 0; i < RANKS; i++) {
		baton_comm_abort(comms[i]);
		ck_ok(baton_comm_destroy(comms[i]));
	}
	await_no_comms();
}

void *
at(int rank, int part)
{
	return (void *)(uintptr_t)(memory[rank] + (CUdeviceptr)(part * BYTES));
}

void
fill(int rank, int part, unsigned char byte)
{
	unsigned char bytes[BYTES];
	CUcontext popped;

	memset(bytes, byte, sizeof(bytes));
	ck_cuda(cuda->context_push(contexts[rank]));
	ck_cuda(cuda->copy_in((CUdeviceptr)(uintptr_t)at(rank, part), bytes,
	                      BYTES));
	ck_cuda(cuda->context_pop(&popped));
}

bool
is_filled(int rank, int part, unsigned char byte)
{
	unsigned char bytes[BYTES];
	CUcontext popped;
	size_t i = 0;

	ck_cuda(cuda->context_push(contexts[rank]));
	ck_cuda(cuda->copy_out(bytes, (CUdeviceptr)(uintptr_t)at(rank, part),
	                       BYTES));
	ck_cuda(cuda->context_pop(&popped));
	while (i < sizeof(bytes) && bytes[i] == byte)
		i++;
	return i == sizeof(bytes);
}

void
hold(int rank, CUstream stream, int word)
{
	CUdeviceptr address;
	CUcontext popped;

	ck_cuda(cuda->context_push(contexts[rank]));
	ck_cuda(cuda->host_device_pointer(
		&address, (void *)(uintptr_t)&words[word], 0));
	ck_cuda(cuda->wait_value(stream, address, 1, BATONI_CU_WAIT_GEQ));
	ck_cuda(cuda->context_pop(&popped));
}

void
let_go(int word)
{
	atomic_store(&words[word], 1);
}

bool
is_idle(int rank, CUstream stream)
{
	CUcontext popped;
	CUresult result;

	ck_cuda(cuda->context_push(contexts[rank]));
	cuda->sim_settle(false);
	result = cuda->stream_query(stream);
	ck_cuda(cuda->context_pop(&popped));
	return result == BATONI_CU_SUCCESS;
}

enum baton_status
move_on(baton_stream stream, int rank, int peer, bool sends, int part,
        size_t bytes, const struct baton_op_options *options,
        baton_request *request_p)
{
	return sends ? baton_send(at(rank, part), bytes, BATON_UINT8, peer, 0,
	                          comms[rank], stream, options, request_p)
	             : baton_recv(at(rank, part), bytes, BATON_UINT8, peer, 0,
	                          comms[rank], stream, options, request_p);
}

baton_request
move(int rank, int peer, bool sends, const struct baton_op_options *options)
{
	baton_request request = 0;

	ck_ok(move_on(streams[rank], rank, peer, sends, peer, BYTES, options,
	              &request));
	return request;
}

void
finish(baton_request request, enum baton_status status)
{
	ck_assert_int_eq(baton_finish(&request, 20 * SECOND, NULL), status);
}
