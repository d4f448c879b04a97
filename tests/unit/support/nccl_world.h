/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the NCCL transport share: both simulators, and ranks that are threads only to
 * create and destroy; otherwise one thread drives them.  Each has a device, two streams, and
 * memory of it in parts of BYTES.
 */
#ifndef NCCL_WORLD_H
#define NCCL_WORLD_H

#include "baton.h"
#include "cudasim.h"
#include "ncclsim.h"

/* RANKS: of most tests. */
enum { RANKS = 3, RANKS_MAX = 4, BYTES = 4096, PARTS = 8, WORDS = 4 };
#define SECOND ((int64_t)1000000000)

extern const struct cudasim *cuda;
extern const struct ncclsim *nccl;
extern struct baton_comm *comms[RANKS_MAX];
extern CUcontext contexts[RANKS_MAX];
extern CUstream streams[RANKS_MAX], others[RANKS_MAX];

/* How a rank's creation went. */
struct creator {
	struct baton_unique_id id;
	struct baton_comm_options options;
	int rank, size;
	enum baton_status status;
	char why[256];
};

extern struct creator creators[RANKS_MAX];

/* A deadline that passes while a test waits for it. */
extern const struct baton_op_options in_20_ms;

#define ck_cuda(call) ck_assert_uint_eq((call), BATONI_CU_SUCCESS)
#define ck_ok(call) ck_assert_int_eq((call), BATON_OK)

/* The simulators, streams and memory. */
void load(void);
/* Options for this device and transport. */
struct baton_comm_options nccl_options(void);
/* The first ranks, each with its options and its device; `creators` says how that went. */
void create_with(int size, const struct baton_comm_options options[]);
void create_some(int size, int64_t timeout_ns, enum baton_progress progress);
/* All ranks. */
void create(int64_t timeout_ns, enum baton_progress progress);
/* The same, from the start and with success. */
void create_all(void);
/* A thread that destroys the rank *(int *)argument. */
void *destroyer_main(void *argument);
/* The first ranks, together; then nothing is left, and no rule was broken. */
void destroy_some(int size);
void destroy_all(void);
/* All ranks, one after the other; then nothing is left, and no rule was broken. */
void abort_all(void);
/* After a destroy: nothing is left, and no rule was broken. */
void await_no_comms(void);

/* A part of the rank's memory; its bytes. */
void *at(int rank, int part);
void fill(int rank, int part, unsigned char byte);
bool is_filled(int rank, int part, unsigned char byte);
/* The stream waits until the word is let go, once. */
void hold(int rank, CUstream stream, int word);
void let_go(int word);
/* The streams have gone as far as they can, and this one has no work left. */
bool is_idle(int rank, CUstream stream);
/* A message of BYTES, with the part of the peer's number. */
baton_request move(int rank, int peer, bool sends,
                   const struct baton_op_options *options);
/* Any part, any stream, so many bytes. */
enum baton_status move_on(baton_stream stream, int rank, int peer, bool sends,
                          int part, size_t bytes,
                          const struct baton_op_options *options,
                          baton_request *request_p);
void finish(baton_request request, enum baton_status status);

#endif
