/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What memory that two processes share can do with no library in between: the
 * baselines of the puts.
 *
 * Each process makes a memfd and maps the other's by way of /proc, as Baton does
 * for memory of baton_mem_alloc; a figure is a copy into the peer's mapping, then a
 * release store of a flag in another line, for which the peer spins.  The waits and
 * wakes are those of a futex in that memory.  MPI_Put, MPI_Win_flush and a flag by
 * the same two calls are beside them, on MPI_Win_allocate's memory.
 */
#ifndef BATON_BENCH_BARE_H
#define BATON_BENCH_BARE_H

#include "bench.h"

struct bench_bare_line;

struct bench_bare {
	int fd;
	size_t bytes; /* of the data */
	size_t mapped_bytes;
	struct bench_bare_line *mine, *theirs; /* a page of flags, then the data */
	char *source;
	uint64_t sent, seen; /* flags */
	size_t put_bytes, puts; /* the figure's: of one put, and puts in a round */
	MPI_Win rma;
	char *rma_base;
};

/* Collective; source has bytes bytes. */
void bench_bare_open(struct bench *b, struct bench_bare *bare, char *source,
                     size_t bytes);
void bench_bare_close(struct bench *b, struct bench_bare *bare);

/* bench_side.block, arg a struct bench_bare.  Half round trips in us, of put_bytes
 * (0: a flag alone): */
double bench_bare_latency(struct bench *b, void *arg, int rounds);
double bench_mpi_put_latency(struct bench *b, void *arg, int rounds);
/* Bytes a ns: `puts` copies with a flag each, one flag back. */
double bench_bare_bandwidth(struct bench *b, void *arg, int rounds);

/* Rank 0 sleeps on its flag; rank 1 stores and wakes it after ns.  The time from
 * rank 1's clock before the store to rank 0's return, on rank 0, in us. */
double bench_bare_wake(struct bench *b, struct bench_bare *bare, uint64_t ns);

#endif
