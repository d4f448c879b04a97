/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on the NCCL transport, over both simulators: a device for each, all in one process,
 * driven by one thread.  Messages are in pinned memory, which the test may touch.
 */
#ifndef CHECKED_WORLD_H
#define CHECKED_WORLD_H

#include "baton.h"
#include "cudasim.h"
#include "ncclsim.h"
#include "run_tests.h"

enum { WORLD_RANKS = 4, WORLD_STREAMS = 2, WORLD_BYTES = 1 << 20 };
#define SECOND ((int64_t)1000000000)

struct nccl_rank {
	struct baton_comm *comm;
	CUcontext context;
	CUstream streams[WORLD_STREAMS];
	unsigned char *memory; /* WORLD_BYTES */
	/* Of its creation. */
	struct baton_comm_options options;
	enum baton_status status;
	char why[256];
};

struct nccl_world {
	const struct cudasim *cuda;
	const struct ncclsim *nccl;
	int size;
	struct nccl_rank ranks[WORLD_RANKS];
};

extern struct nccl_world world;

#define ck_cuda(call) ck_assert_uint_eq((call), BATONI_CU_SUCCESS)
#define ck_ok(call) ck_assert_int_eq((call), BATON_OK)

/* The simulators, the devices' streams and memory, and default options of the ranks. */
void world_load(int size);
/* Create the communicators from the options; the statuses are the ranks'. */
void world_try(void);
/* The same, which has to succeed. */
void world_create(void);
/* Load and create, in checked mode or not. */
void world_begin(int size, bool check);
/* Together; nothing is left, and no rule of the simulators was broken. */
void world_destroy(void);
/* After an abort of each. */
void world_abort(void);
/* Wait for its end, and release it. */
void world_finish(baton_request request, enum baton_status status);
/* The same, when its buffer is not lent any more. */
void world_finish_free(baton_request request, enum baton_status status);

#endif
