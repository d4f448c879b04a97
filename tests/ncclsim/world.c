/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

struct world nw;

void
world_load(void)
{
	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	nw.cuda = cudasim_load(NULL);
	nw.nccl = ncclsim_load(NCCLSIM_PATH);
	ck_assert_ptr_nonnull(nw.cuda);
	ck_assert_ptr_nonnull(nw.nccl);
	ck_assert(nw.cuda->sim_set("devices", WORLD_RANKS));
}

void
world_use(int rank)
{
	ck_cuda(nw.cuda->context_set(nw.rank[rank].context));
}

void
world_devices(int ranks)
{
	void *words;

	if (!nw.cuda)
		world_load();
	ck_cuda(nw.cuda->init(0));
	nw.ranks = ranks;
	for (int i = 0; i < ranks; i++) {
		struct rank *rank = &nw.rank[i];

		ck_cuda(nw.cuda->primary_retain(&rank->context, i));
		world_use(i);
		ck_cuda(nw.cuda->stream_create(
			&rank->stream, BATONI_CU_STREAM_NON_BLOCKING, 0));
		ck_cuda(nw.cuda->stream_create(
			&rank->other, BATONI_CU_STREAM_NON_BLOCKING, 0));
		ck_cuda(nw.cuda->mem_alloc(&rank->out, BUFFER));
		ck_cuda(nw.cuda->mem_alloc(&rank->in, BUFFER));
	}
	ck_cuda(nw.cuda->host_alloc(&words, WORDS * sizeof(uint64_t),
	                            BATONI_CU_HOST_ALLOC_PORTABLE |
	                                    BATONI_CU_HOST_ALLOC_MAPPED));
	memset(words, 0, WORDS * sizeof(uint64_t));
	nw.words = words;
}

struct batoni_nccl_config
world_config(bool blocking)
{
	struct batoni_nccl_config config = {
		.size = 80,
		.magic = BATONI_NCCL_CONFIG_MAGIC,
		.version = 22809,
#define UNSET(type, member, unset) .member = (unset),
		BATONI_NCCL_CONFIG_2_28(UNSET)
#undef UNSET
	};

	config.blocking = blocking;
	return config;
}

ncclResult_t
world_create(int ranks, bool blocking)
{
	struct batoni_nccl_config config = world_config(blocking);
	ncclUniqueId id;

	ck_nccl(nw.nccl->get_unique_id(&id));
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < ranks; i++) {
		world_use(i);
		nw.nccl->comm_init(&nw.rank[i].comm, ranks, id, i, &config);
	}
	return nw.nccl->group_end();
}

void
world_await_one(int rank)
{
	ncclResult_t state = BATONI_NCCL_IN_PROGRESS;

	while (nw.rank[rank].comm && state == BATONI_NCCL_IN_PROGRESS) {
		ck_nccl(nw.nccl->comm_error(nw.rank[rank].comm, &state));
		usleep(50);
	}
}

void
world_await(void)
{
	for (int i = 0; i < nw.ranks; i++)
		world_await_one(i);
}

void
world_begin(int ranks, bool blocking)
{
	ncclResult_t result;

	world_devices(ranks);
	result = world_create(ranks, blocking);
	ck_assert_uint_eq(result, blocking ? BATONI_NCCL_SUCCESS
	                                   : BATONI_NCCL_IN_PROGRESS);
	world_await();
}

void
world_connect(void)
{
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < nw.ranks; i++) {
		for (int j = 0; j < nw.ranks; j++) {
			if (i != j) {
				ck_nccl(world_send(i, j, 0));
				ck_nccl(world_recv(i, j, 0));
			}
		}
	}
	nw.nccl->group_end();
	world_await();
	world_settle();
}

void
world_destroy(void)
{
	ncclResult_t result;

	/* All say that they are at the end before one waits for it. */
	ck_nccl(nw.nccl->group_start());
	for (int i = 0; i < nw.ranks; i++) {
		if (nw.rank[i].comm)
			ck_nccl(nw.nccl->comm_finalize(nw.rank[i].comm));
	}
	result = nw.nccl->group_end();
	ck_assert(result == BATONI_NCCL_SUCCESS ||
	          result == BATONI_NCCL_IN_PROGRESS);
	world_await();
	for (int i = 0; i < nw.ranks; i++) {
		if (nw.rank[i].comm)
			ck_nccl(nw.nccl->comm_destroy(nw.rank[i].comm));
		nw.rank[i].comm = NULL;
	}
}

void
world_end(void)
{
	world_destroy();
	world_settle();
	ck_assert_int_eq(nw.cuda->sim_queued(), 0);
	ck_assert_int_eq(nw.cuda->sim_violations(), 0);
	ck_assert_int_eq(nw.nccl->sim_live("comms"), 0);
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 0);
	ck_assert_int_eq(nw.nccl->sim_violations(), nw.violations);
}

void
world_fill(int rank, CUdeviceptr at, unsigned char byte, size_t bytes)
{
	world_use(rank);
	ck_cuda(nw.cuda->set_bytes(at, byte, bytes, nw.rank[rank].stream));
}

size_t
world_count(CUdeviceptr at, unsigned char byte, size_t bytes)
{
	unsigned char *copy = malloc(bytes);
	size_t n = 0;

	nw.cuda->sim_peek(copy, at, bytes);
	while (n < bytes && copy[n] == byte)
		n++;
	free(copy);
	return n;
}

ncclResult_t
world_send(int rank, int peer, size_t bytes)
{
	const struct rank *r = &nw.rank[rank];

	return nw.nccl->send((const void *)(uintptr_t)r->out, bytes,
	                     BATONI_NCCL_UINT8, peer, r->comm, r->stream);
}

ncclResult_t
world_recv(int rank, int peer, size_t bytes)
{
	const struct rank *r = &nw.rank[rank];

	return nw.nccl->recv((void *)(uintptr_t)r->in, bytes,
	                     BATONI_NCCL_UINT8, peer, r->comm, r->stream);
}

bool
world_is_done(int rank)
{
	world_use(rank);
	return nw.cuda->stream_query(nw.rank[rank].stream) ==
	       BATONI_CU_SUCCESS;
}

void
world_settle(void)
{
	nw.cuda->sim_settle(false);
}

void
world_hold(int rank, CUstream stream, int word)
{
	void *host = (void *)(uintptr_t)&nw.words[word];
	CUdeviceptr address;

	world_use(0);
	ck_cuda(nw.cuda->host_device_pointer(&address, host, 0));
	world_use(rank);
	ck_cuda(nw.cuda->wait_value(stream, address, 1, BATONI_CU_WAIT_GEQ));
}

void
world_let_go(int word)
{
	atomic_store(&nw.words[word], 1);
}
