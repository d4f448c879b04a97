/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulator's tests share: both simulators, ranks that one thread drives, each
 * with a device, a stream and memory, and words that hold streams up.  Each test is a
 * process of its own.
 */
#ifndef NCCLSIM_WORLD_H
#define NCCLSIM_WORLD_H

#include <stdatomic.h>
#include <string.h>

#include "cudasim.h"
#include "ncclsim.h"
#include "run_tests.h"

enum { WORLD_RANKS = 4, WORDS = 16, BUFFER = 1 << 20 };

struct rank {
	CUcontext context;
	CUstream stream, other; /* of two hardware queues */
	CUdeviceptr out, in;    /* BUFFER bytes each */
	ncclComm_t comm;
};

struct world {
	const struct cudasim *cuda;
	const struct ncclsim *nccl;
	int ranks;
	struct rank rank[WORLD_RANKS];
	_Atomic uint64_t *words; /* pinned, mapped, zero */
	int violations;          /* that the test expects, of NCCL's rules */
};

extern struct world nw;

#define ck_nccl(call) ck_assert_uint_eq((call), BATONI_NCCL_SUCCESS)
#define ck_cuda(call) ck_assert_uint_eq((call), BATONI_CU_SUCCESS)

/* The simulators alone: for settings. */
void world_load(void);
/* Devices, streams, memory. */
void world_devices(int ranks);
/* That, and a communicator of all ranks, blocking or not, with nothing connected. */
void world_begin(int ranks, bool blocking);
/* Everything has ended: communicators are destroyed, streams are empty, and violations
 * are those that were expected. */
void world_end(void);

/* The device of the rank is the current one. */
void world_use(int rank);
/* As NCCL fills it in. */
struct batoni_nccl_config world_config(bool blocking);
/* All ranks in one group, by this thread; on failure what ncclGroupEnd returned. */
ncclResult_t world_create(int ranks, bool blocking);
/* Until this rank's communicator is not IN_PROGRESS; until none is. */
void world_await_one(int rank);
void world_await(void);
/* Every pair in both directions. */
void world_connect(void);
void world_destroy(void);

/* Bytes of the rank's memory, all the same. */
void world_fill(int rank, CUdeviceptr at, unsigned char byte, size_t bytes);
/* The number of bytes from the start that have this value. */
size_t world_count(CUdeviceptr at, unsigned char byte, size_t bytes);
ncclResult_t world_send(int rank, int peer, size_t bytes);
ncclResult_t world_recv(int rank, int peer, size_t bytes);
bool world_is_done(int rank);
/* Nothing moves any more: what is not done now is not going to be. */
void world_settle(void);
/* The stream waits until the word is not 0; and that. */
void world_hold(int rank, CUstream stream, int word);
void world_let_go(int word);

#endif
