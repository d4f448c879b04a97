/* SPDX-License-Identifier: BSD-3-Clause */
/* Baselines in raw MPI that several benchmarks share. */
#ifndef BATON_BENCH_RAW_H
#define BATON_BENCH_RAW_H

#include "bench.h"

/* bench_side.block, arg a struct bench_raw: half a round trip in us, by MPI_Isend,
 * MPI_Irecv and an MPI_Test loop, in the order of one stream. */
struct bench_raw {
	char *out, *in;
	size_t bytes;
};
double bench_raw_latency(struct bench *b, void *arg, int rounds);

/* The pieces, for other orders of the same calls. */
void bench_raw_send(struct bench *b, const struct bench_raw *m,
                    MPI_Request *request);
void bench_raw_recv(struct bench *b, const struct bench_raw *m,
                    MPI_Request *request);
void bench_raw_wait(MPI_Request *request);
/* Half of what each of the rounds took since then. */
double bench_half_us(uint64_t start, int rounds);
/* Millions a second of BENCH_WINDOW operations in each round of what took ns. */
double bench_rate(double ns, int rounds);

/* Nanoseconds for `rounds` times `depth` messages (BENCH_WINDOW at most) from rank 0 to rank 1, each
 * with a buffer of its own, MPI_Waitall, and one small message back. */
double bench_raw_stream(struct bench *b, char *buffer, size_t bytes, size_t depth,
                        int rounds);
/* bench_side.block, arg a struct bench_raw: the rate of these messages, from out, which
 * has room for BENCH_WINDOW of them. */
double bench_raw_rate(struct bench *b, void *arg, int rounds);

#endif
