/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Half the round trip of a message, against MPI_Isend, MPI_Irecv and an
 * MPI_Test loop in the same order of calls.
 *
 * p2p_latency is the plain program: operations in the order of one stream, each
 * request finished in each round, so that rank 0 sends and then receives.
 * p2p_latency_posted is detached and has the receive posted before the send;
 * Open MPI is slower so, below 1 KiB, which is why each has its own baseline.
 */
#include <stdlib.h>

#include "bench_raw.h"

#define TAG 3

static double
raw_posted_block(struct bench *b, void *arg, int rounds)
{
	const struct bench_raw *m = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		MPI_Request out, in;

		bench_raw_recv(b, m, &in);
		if (b->rank != 0)
			bench_raw_wait(&in);
		bench_raw_send(b, m, &out);
		if (b->rank == 0)
			bench_raw_wait(&in);
		bench_raw_wait(&out);
	}
	return bench_half_us(start, rounds);
}

static void
send(struct bench *b, const struct bench_raw *m,
     const struct baton_op_options *options, baton_request *request)
{
	bench_must(baton_send(m->out, m->bytes, BATON_UINT8, b->peer, TAG,
	                      b->comm, b->stream, options,
	                      request) == BATON_OK);
}

static void
recv(struct bench *b, const struct bench_raw *m,
     const struct baton_op_options *options, baton_request *request)
{
	bench_must(baton_recv(m->in, m->bytes, BATON_UINT8, b->peer, TAG,
	                      b->comm, b->stream, options,
	                      request) == BATON_OK);
}

static void
finish(baton_request *request)
{
	bench_must(baton_finish(request, -1, NULL) == BATON_OK);
}

static double
plain_block(struct bench *b, void *arg, int rounds)
{
	const struct bench_raw *m = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		baton_request out, in;

		if (b->rank == 0) {
			send(b, m, NULL, &out);
			recv(b, m, NULL, &in);
			finish(&in);
		} else {
			recv(b, m, NULL, &in);
			finish(&in);
			send(b, m, NULL, &out);
		}
		finish(&out);
	}
	return bench_half_us(start, rounds);
}

static double
posted_block(struct bench *b, void *arg, int rounds)
{
	const struct bench_raw *m = arg;
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	uint64_t start = bench_now();

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < rounds; i++) {
		baton_request out, in;

		recv(b, m, &detached, &in);
		if (b->rank != 0)
			finish(&in);
		send(b, m, &detached, &out);
		if (b->rank == 0)
			finish(&in);
		finish(&out);
	}
	return bench_half_us(start, rounds);
}

static void
measure(struct bench *b, struct bench_raw *m)
{
	const struct bench_side sides[] = {{bench_raw_latency, m},
	                                   {plain_block, m},
	                                   {raw_posted_block, m},
	                                   {posted_block, m}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 4000000};
	struct bench_stat stats[4];
	struct bench_row row = {.bench = "p2p_latency", .bytes = m->bytes,
	                        .unit = "us", .baseline = "raw MPI",
	                        .kind = BENCH_RATIO_MAX};

	bench_compare(b, sides, 4, &plan, stats);
	row.bar = m->bytes <= 4096 ? 1.15 : 1.03;
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
	row.bench = "p2p_latency_posted";
	row.base = stats[2];
	row.value = stats[3];
	row.kind = BENCH_REPORT;
	bench_report(b, &row);
}

int
main(int argc, char **argv)
{
	static const size_t sizes[] = {8,     64,      512,     4096,
	                               65536, 1048576, 16777216};
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	struct bench_raw message;
	struct bench b;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	message.out = bench_alloc(sizes[count - 1]);
	message.in = bench_alloc(sizes[count - 1]);
	for (size_t i = 0; i < count; i++) {
		message.bytes = sizes[i];
		measure(&b, &message);
	}
	free(message.out);
	free(message.in);
	return bench_fini(&b);
}
