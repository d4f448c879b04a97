/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of the CUDA device share: the simulator as a program of the driver API sees
 * it, and two local ranks on device 0, both driven by the test's thread.
 *
 * Each test runs in a process of its own, and so with a simulator of its own.
 */
#ifndef CUDA_WORLD_H
#define CUDA_WORLD_H

#include <stdatomic.h>

#include "baton.h"
#include "cudasim.h"
#include "run_tests.h"

#define MIB ((size_t)1 << 20)
#define CUDA_WORLD_BYTES (16 * MIB) /* of each buffer */
#define LONG_NS INT64_C(60000000000)
enum { CUDA_WORLD_WORDS = 64 };

/* What a rank registers as its part of a window, and how its last collective call ended. */
struct cuda_world_part {
	struct baton_comm *comm;
	void *base;
	size_t bytes;
	struct baton_window *window;
	enum baton_status (*call)(struct cuda_world_part *part);
	enum baton_status status;
	char why[300];
};

struct cuda_world {
	const struct cudasim *sim;
	CUcontext context; /* device 0's primary one; current */
	struct baton_comm *comms[2];
	CUstream streams[2];     /* non-blocking */
	unsigned char *from, *to; /* memory of device 0 */
	_Atomic uint64_t *words; /* pinned, mapped, zero: they hold streams up */
	struct cuda_world_part parts[2];
	int violations;          /* that the test expects */
};

extern struct cuda_world cw;

/* The simulator alone, before cuInit: for settings. */
void cuda_world_load(void);
/* Context, streams, buffers. */
void cuda_world_begin(void);
struct baton_comm_options cuda_world_options(void);
/* Both ranks; options NULL: cuda_world_options. */
void cuda_world_comms(const struct baton_comm_options *options);
/* cuda_world_begin and cuda_world_comms. */
void cuda_world_open(void);
void cuda_world_destroy(void);
/* Destroys the ranks, if there are any.  Nothing is left: no allocation, no violation. */
void cuda_world_end(void);

#define cu_ok(call) ck_assert_uint_eq((call), BATONI_CU_SUCCESS)
#define baton_ok(call) ck_assert_int_eq((call), BATON_OK)

CUstream cuda_world_stream(unsigned flags);
/* Non-blocking, of the highest priority: it shares no hardware queue with a stream of another
 * priority, which would hold it up while it waits. */
CUstream cuda_world_urgent_stream(void);
CUdeviceptr cuda_world_address(const void *pointer);
/* The stream waits until the word is at least 1. */
void cuda_world_hold(CUstream stream, unsigned word);
void cuda_world_let_go(unsigned word);

/* Rank 0 sends to rank 1, rank 1 receives from rank 0. */
baton_request cuda_world_send(const void *from, size_t bytes, int tag,
                              CUstream stream);
baton_request cuda_world_recv(void *to, size_t bytes, int tag, CUstream stream);
/* Wait until it has ended so; release it. */
void cuda_world_finish(baton_request request, enum baton_status expected);

/* The parts of cw.comms. */
void cuda_world_parts(void *base_0, void *base_1, size_t bytes);
/* A collective call: each rank makes it on a thread, with its part; both end in `expected`. */
void cuda_world_both(enum baton_status (*call)(struct cuda_world_part *part),
                     enum baton_status expected);
enum baton_status cuda_world_register(struct cuda_world_part *part);
enum baton_status cuda_world_deregister(struct cuda_world_part *part);

/* Device memory, beside all streams: set it, and what it holds. */
void cuda_world_fill(void *at, size_t bytes, unsigned seed);
void cuda_world_expect(const void *at, size_t bytes, unsigned seed);

/* How often the functions were called, together; the names end with NULL. */
#define uses_of(...) \
	cuda_world_uses((const char *const[]){__VA_ARGS__, NULL})
long cuda_world_uses(const char *const names[]);

/* The library's last refusal has all these words. */
#define assert_said(...) \
	cuda_world_said((const char *const[]){__VA_ARGS__, NULL})
void cuda_world_said(const char *const words[]);
/* The text has them. */
void cuda_world_has(const char *text, const char *const words[]);

#endif
