/* SPDX-License-Identifier: BSD-3-Clause */
/* See bench_raw.h. */
#include "bench_raw.h"

#define TAG 3
#define TAG_STREAM 4
#define TAG_ACK 5

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
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		MPI_Request out, in;

		if (b->rank == 0) {
			bench_raw_send(b, m, &out);
			bench_raw_recv(b, m, &in);
			bench_raw_wait(&in);
		} else {
			bench_raw_recv(b, m, &in);
			bench_raw_wait(&in);
			bench_raw_send(b, m, &out);
		}
		bench_raw_wait(&out);
	}
	return bench_half_us(start, rounds);
}

double
bench_raw_stream(struct bench *b, char *buffer, size_t bytes, size_t depth,
                 int rounds)
{
	MPI_Request requests[BENCH_WINDOW];
	uint64_t start = bench_now();
	char ack = 0;

	bench_must(depth <= BENCH_WINDOW);
	for (int i = 0; i < rounds; i++) {
		for (size_t k = 0; k < depth; k++) {
			char *place = buffer + k * bytes;

			if (b->rank == 0)
				MPI_Isend(place, (int)bytes, MPI_BYTE, b->peer,
				          TAG_STREAM, b->raw, &requests[k]);
			else
				MPI_Irecv(place, (int)bytes, MPI_BYTE, b->peer,
				          TAG_STREAM, b->raw, &requests[k]);
		}
		MPI_Waitall((int)depth, requests, MPI_STATUSES_IGNORE);
		if (b->rank == 0)
			MPI_Recv(&ack, 1, MPI_BYTE, b->peer, TAG_ACK, b->raw,
			         MPI_STATUS_IGNORE);
		else
			MPI_Send(&ack, 1, MPI_BYTE, b->peer, TAG_ACK, b->raw);
	}
	return (double)(bench_now() - start);
}

double
bench_raw_rate(struct bench *b, void *arg, int rounds)
{
	const struct bench_raw *m = arg;

	return bench_rate(bench_raw_stream(b, m->out, m->bytes, BENCH_WINDOW, rounds),
	                  rounds);
}
