/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of bench_nccl share.  bench_nccl.c has the note on all of it. */
#ifndef BATON_BENCH_NCCL_H
#define BATON_BENCH_NCCL_H

#include "bench_gpu.h"
#include "ncclsim.h"

extern const struct ncclsim *bench_nccl;

#define NCCL(call) bench_must(bench_nccl->call == BATONI_NCCL_SUCCESS)
#define BATON(call) bench_must((call) == BATON_OK)

/* A communicator of each side, of the same ranks. */
struct pair {
	struct baton_comm *comm;
	ncclComm_t raw;
	ncclComm_t in_thread; /* of a rank alone, non-blocking; NULL: of two */
	int peer;
};

/* What a block measures. */
struct task {
	const struct pair *pair;
	size_t bytes;
	bool send; /* nccl_call_*: rank 0's are timed */
	char *out, *in;
	CUstream stream;
	CUevent event;
};

struct row {
	const char *bench, *unit;
	size_t bytes;
	double over; /* the bar, beside 2 %, in the unit; 0: none */
	bool send;
	double (*raw)(struct bench *b, void *arg, int rounds);
	double (*baton)(struct bench *b, void *arg, int rounds);
};

/* Around the raw calls of a block: the device's context, and Baton's lock of it. */
void bench_nccl_begin(const struct task *t);
void bench_nccl_end(const struct task *t);
/* What rounds since then took, each. */
double bench_nccl_us(uint64_t start, int rounds);
/* Rounds of raw calls, each of n, with a wait for their stream: what one of them took, in us. */
double bench_nccl_raw(const struct bench *b, const struct task *t, int rounds, int n,
                      void (*calls)(const struct bench *b, const struct task *t));

/* The rows, but for sizes over the largest and what is not wanted. */
void bench_nccl_measure(struct bench *b, struct task *t, const struct pair *pair,
                        const struct row *rows, size_t count);

/* bench_nccl_put.c: nccl_put_latency and nccl_put_bandwidth. */
void bench_nccl_put(struct bench *b, struct task *t, const struct pair *both);

#endif
