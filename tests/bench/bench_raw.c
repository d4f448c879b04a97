/* SPDX-License-Identifier: BSD-3-Clause */
/* See bench_raw.h. */
#include "bench_raw.h"

#include "perf_mpi.h"

#define TAG 3

double
bench_half_us(uint64_t start, int rounds)
{
	return (double)(bench_now() - start) / (2e3 * rounds);
}

double
bench_rate(double ns, int rounds)
{
	return (double)rounds * BENCH_WINDOW * 1e3 / ns;
}

void
bench_raw_wait(MPI_Request *request)
{
	int done = 0;

	while (!done)
		MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

void
bench_raw_send(struct bench *b, const struct bench_raw *m,
	       MPI_Request *request)
{
	MPI_Isend(m->out, (int)m->bytes, MPI_BYTE, b->peer, TAG, b->raw,
	          request);
}

void
bench_raw_recv(struct bench *b, const struct bench_raw *m,
	       MPI_Request *request)
{
	MPI_Irecv(m->in, (int)m->bytes, MPI_BYTE, b->peer, TAG, b->raw,
	          request);
}

double
bench_raw_latency(struct bench *b, void *arg, int rounds)
{
	const struct bench_raw *m = arg;
	struct perf_end e = bench_end(b);
	uint64_t start = bench_now();

	e.out = m->out;
	e.in = m->in;
	e.bytes = m->bytes;
	perf_mpi_latency(b->raw, &e, rounds);
	return bench_half_us(start, rounds);
}

double
bench_raw_stream(struct bench *b, char *buffer, size_t bytes, size_t depth,
                 int rounds)
{
	struct perf_end e = bench_end(b);
	uint64_t start = bench_now();

	e.out = e.in = buffer;
	e.bytes = e.step = bytes;
	e.depth = depth;
	perf_mpi_window(b->raw, &e, rounds);
	return (double)(bench_now() - start);
}

double
bench_raw_rate(struct bench *b, void *arg, int rounds)
{
	const struct bench_raw *m = arg;

	return bench_rate(bench_raw_stream(b, m->out, m->bytes, BENCH_WINDOW, rounds),
	                  rounds);
}
