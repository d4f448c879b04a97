/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Half the round trip of a message, against MPI_Isend, MPI_Irecv and an
 * MPI_Test loop in the same order of calls.
 *
 * p2p_latency is the plain program: operations in the order of one stream, each
 * request finished in each round, so that rank 0 sends and then receives.
 * p2p_latency_posted is detached and has the receive posted before the send;
 * Open MPI is slower so, below 1 KiB, which is why each has its own baseline.
 *
 * any_source_latency is p2p_latency at 8 bytes with receives from any rank; its baseline is
 * p2p_latency.
 *
 * waiters_latency is p2p_latency at 8 bytes while 64 other threads of rank 0 wait for
 * messages that do not come; its baseline is the same with one such thread.
 *
 * barrier is a barrier of all processes, enqueued and finished, against MPI_Barrier.
 */
#include <pthread.h>
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
	struct perf_end e = bench_end(b);
	uint64_t start = bench_now();

	e.out = m->out;
	e.in = m->in;
	e.bytes = m->bytes;
	bench_must(perf_latency(&e, rounds) == BATON_OK);
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

/* block: the memory is of baton_mem_alloc. */
static void
measure(struct bench *b, struct bench_raw *m, bool block)
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
	if (block)
		row.bench = "p2p_latency_block";
	row.bar = m->bytes <= 4096 ? 1.15 : 1.03;
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
	row.bench = block ? "p2p_latency_posted_block" : "p2p_latency_posted";
	row.base = stats[2];
	row.value = stats[3];
	row.kind = BENCH_REPORT;
	bench_report(b, &row);
}

/* plain_block, where each receive is from any rank. */
static double
any_block(struct bench *b, void *arg, int rounds)
{
	struct bench any = *b;
	const struct bench_raw *m = arg;
	uint64_t start = bench_now();

	any.peer = BATON_ANY_SOURCE;
	for (int i = 0; i < rounds; i++) {
		baton_request out, in;

		if (b->rank == 0)
			send(b, m, NULL, &out);
		recv(&any, m, NULL, &in);
		finish(&in);
		if (b->rank != 0)
			send(b, m, NULL, &out);
		finish(&out);
	}
	return bench_half_us(start, rounds);
}

static void
measure_any(struct bench *b, struct bench_raw *m)
{
	const struct bench_side sides[] = {{plain_block, m}, {any_block, m}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 4000000};
	struct baton_comm_info info = {.size = sizeof(info)};
	struct bench_stat stats[2];
	struct bench_row row = {.bench = "any_source_latency", .bytes = m->bytes,
	                        .unit = "us", .baseline = "one that names its peer",
	                        .kind = BENCH_RATIO_MAX};

	bench_must(baton_comm_query(b->comm, &info) == BATON_OK);
	bench_compare(b, sides, 2, &plan, stats);
	row.bar = info.message_paths & BATON_MESSAGE_PATH_NEAR ? 1.1 : 1.5;
	row.base = stats[0];
	row.value = stats[1];
	bench_report(b, &row);
}

/* Messages of more than 8 KiB, which the receiver copies by itself over near. */
static void
measure_blocks(struct bench *b, const size_t sizes[], size_t count)
{
	struct bench_raw message;
	void *out, *in;

	bench_must(baton_mem_alloc(b->comm, sizes[count - 1], &out) == BATON_OK);
	bench_must(baton_mem_alloc(b->comm, sizes[count - 1], &in) == BATON_OK);
	message.out = out;
	message.in = in;
	for (size_t i = 0; i < count; i++) {
		message.bytes = sizes[i];
		if (sizes[i] > 8192)
			measure(b, &message, true);
	}
	bench_must(baton_mem_free(b->comm, out) == BATON_OK);
	bench_must(baton_mem_free(b->comm, in) == BATON_OK);
}

/* ---- beside threads that wait ---- */

#define WAITERS 64
#define WAITERS_TAG 100

static void *
wait_long(void *arg)
{
	bench_must(baton_finish(arg, -1, NULL) == BATON_OK);
	return NULL;
}

/* The latency while so many threads of rank 0 wait. */
static struct bench_stat
measure_beside(struct bench *b, struct bench_raw *m, int waiters)
{
	const struct bench_side side = {plain_block, m};
	const struct bench_plan plan = {.blocks = 50, .block_ns = 20000000};
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request requests[WAITERS];
	pthread_t threads[WAITERS];
	struct bench_stat stat;

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < waiters && b->rank == 0; i++) {
		bench_must(baton_recv(NULL, 0, BATON_UINT8, b->peer,
		                      WAITERS_TAG + i, b->comm, b->stream,
		                      &detached, &requests[i]) == BATON_OK);
		bench_must(pthread_create(&threads[i], NULL, wait_long,
		                          &requests[i]) == 0);
	}
	bench_sleep(100000000); /* they have begun to wait */
	bench_meet(b);
	bench_compare(b, &side, 1, &plan, &stat);
	for (int i = 0; i < waiters && b->rank != 0; i++) {
		bench_must(baton_send(NULL, 0, BATON_UINT8, b->peer,
		                      WAITERS_TAG + i, b->comm, b->stream,
		                      &detached, &requests[i]) == BATON_OK);
		bench_must(baton_finish(&requests[i], -1, NULL) == BATON_OK);
	}
	for (int i = 0; i < waiters && b->rank == 0; i++)
		pthread_join(threads[i], NULL);
	return stat;
}

static void
measure_waiters(struct bench *b, struct bench_raw *m)
{
	struct bench_row row = {.bench = "waiters_latency", .bytes = 8,
	                        .unit = "us", .baseline = "one waits",
	                        .kind = BENCH_RATIO_MAX, .bar = 2};

	m->bytes = 8;
	row.base = measure_beside(b, m, 1);
	row.value = measure_beside(b, m, WAITERS);
	bench_report(b, &row);
}

/* ---- barriers ---- */

static double
raw_barriers(struct bench *b, void *arg, int rounds)
{
	uint64_t start = bench_now();

	(void)b;
	(void)arg;
	for (int i = 0; i < rounds; i++)
		bench_must(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
	return 2 * bench_half_us(start, rounds);
}

static double
barriers(struct bench *b, void *arg, int rounds)
{
	uint64_t start = bench_now();

	(void)arg;
	for (int i = 0; i < rounds; i++) {
		baton_request request;

		bench_must(baton_barrier(b->comm, b->stream, NULL,
		                         &request) == BATON_OK);
		finish(&request);
	}
	return 2 * bench_half_us(start, rounds);
}

static void
measure_barriers(struct bench *b)
{
	const struct bench_side sides[] = {{raw_barriers, NULL},
	                                   {barriers, NULL}};
	struct bench_plan plan = {.blocks = b->quick ? 50 : 200,
	                          .block_ns = 4000000};
	struct bench_row row = {.bench = "barrier", .unit = "us",
	                        .baseline = "MPI_Barrier",
	                        .kind = BENCH_RATIO_MAX, .bar = 1};
	struct bench_stat stats[2];

	bench_compare(b, sides, 2, &plan, stats);
	row.base = stats[0];
	row.value = stats[1];
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
	for (size_t i = 0; i < count && bench_wants(&b, "p2p_latency"); i++) {
		message.bytes = sizes[i];
		measure(&b, &message, false);
	}
	if (bench_wants(&b, "p2p_latency"))
		measure_blocks(&b, sizes, count);
	if (bench_wants(&b, "waiters_latency"))
		measure_waiters(&b, &message);
	if (bench_wants(&b, "barrier"))
		measure_barriers(&b);
	message.bytes = 8;
	if (bench_wants(&b, "any_source_latency"))
		measure_any(&b, &message);
	free(message.out);
	free(message.in);
	return bench_fini(&b);
}
