/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals, and what the calls of puts cost; part of bench_put.
 *
 * enqueue_put: one call of 8 bytes on an idle stream, timed in batches of 64
 * (detached) and drained outside the clock.  signal_pingpong: half a round trip of
 * signals, against a bare flag.  signal_rate: 64 signals, one wait for their number,
 * one signal back, against raw messages of no bytes.  put_alltoall: each rank puts
 * to each, itself included, and waits for one signal of each, against MPI_Alltoall.
 * signal_wake: the other rank sleeps in baton_wait; from the clock just before
 * baton_signal to its return, against a futex in shared memory.
 */
#include "bench_put.h"

#include <stdlib.h>

#define TAG_STAMP 12
#define ASLEEP_NS 50000000u
#define RANKS 2

/* ---- the call alone ----------------------------------------------------- */

static double
enqueue_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request requests[BENCH_WINDOW];
	uint64_t spent = 0;

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < rounds; i++) {
		uint64_t start;

		if (b->rank != 0) {
			put_await(p, BENCH_WINDOW);
			put_answer(p);
			continue;
		}
		start = bench_now();
		for (size_t k = 0; k < BENCH_WINDOW; k++)
			requests[k] = put_signal(p, b->peer, 8, 8 * k,
			                         &detached);
		spent += bench_now() - start;
		for (size_t k = 0; k < BENCH_WINDOW; k++)
			put_finish(&requests[k]);
		put_await(p, 1);
	}
	return (double)spent / ((double)rounds * BENCH_WINDOW);
}

static void
measure_enqueue(struct put_bench *p)
{
	const struct bench_side side = {enqueue_block, p};
	struct bench_plan plan = put_plan(p);
	struct bench_stat stat;
	struct bench_row row = {.bench = "enqueue_put", .bytes = 8,
	                        .unit = "ns", .kind = BENCH_VALUE_MAX,
	                        .bar = 100};

	bench_compare(p->b, &side, 1, &plan, &stat);
	put_report(p, &row, &stat, NULL, NULL);
}

/* ---- signals ------------------------------------------------------------ */

static double
pingpong_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++) {
		baton_request out;

		if (b->rank == 0) {
			out = put_nothing(p, NULL);
			put_await(p, 1);
		} else {
			put_await(p, 1);
			out = put_nothing(p, NULL);
		}
		put_finish(&out);
	}
	return bench_half_us(start, rounds);
}

static void
measure_pingpong(struct put_bench *p)
{
	const struct bench_side base = {bench_bare_latency, &p->bare};
	struct bench_row row = {.bench = "signal_pingpong", .unit = "us"};

	p->bare.put_bytes = 0;
	put_measure(p, &row, pingpong_block, "flag", &base);
}

static double
rate_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request requests[BENCH_WINDOW];
	uint64_t start = bench_now();

	detached.flags = BATON_OP_DETACHED;
	for (int i = 0; i < rounds; i++) {
		if (b->rank != 0) {
			put_await(p, BENCH_WINDOW);
			put_answer(p);
			continue;
		}
		for (size_t k = 0; k < BENCH_WINDOW; k++)
			requests[k] = put_nothing(p, &detached);
		for (size_t k = 0; k < BENCH_WINDOW; k++)
			put_finish(&requests[k]);
		put_await(p, 1);
	}
	return bench_rate((double)(bench_now() - start), rounds);
}

static void
measure_rate(struct put_bench *p)
{
	const struct bench_side base = {bench_raw_rate, &p->raw};
	struct bench_row row = {.bench = "signal_rate", .unit = "M/s"};

	p->raw.bytes = 0;
	put_measure(p, &row, rate_block, "raw MPI", &base);
}

/* ---- all to all --------------------------------------------------------- */

static double
raw_alltoall_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;
	char *in = p->source + PUT_WINDOW_BYTES / 2;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds; i++)
		MPI_Alltoall(p->source, (int)p->bytes, MPI_BYTE, in,
		             (int)p->bytes, MPI_BYTE, b->raw);
	return (double)(bench_now() - start) / (1e3 * rounds);
}

/* One place for each source, as MPI_Alltoall has. */
static double
alltoall_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	struct baton_wait_signal_desc descs[RANKS];
	baton_request puts[RANKS], wait;
	uint64_t start = bench_now();

	detached.flags = BATON_OP_DETACHED;
	for (int rank = 0; rank < RANKS; rank++)
		descs[rank] = (struct baton_wait_signal_desc){
			.op_count = 1, .peer = rank,
			.signal_index = PUT_SIGNAL, .context = PUT_CONTEXT};
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < RANKS; k++) {
			int to = (b->rank + k) % RANKS;

			bench_must(baton_put_signal(
					   p->source + p->bytes * (size_t)to,
					   p->bytes, BATON_UINT8, to, p->window,
					   p->bytes * (size_t)b->rank,
					   PUT_SIGNAL, PUT_CONTEXT, 0, b->comm,
					   b->stream, &detached,
					   &puts[k]) == BATON_OK);
		}
		bench_must(baton_wait_signal(RANKS, descs, b->comm, b->stream,
		                             NULL, &wait) == BATON_OK);
		put_finish(&wait);
		for (int k = 0; k < RANKS; k++)
			put_finish(&puts[k]);
	}
	return (double)(bench_now() - start) / (1e3 * rounds);
}

static void
measure_alltoall(struct put_bench *p, size_t bytes)
{
	const struct bench_side base = {raw_alltoall_block, p};
	struct bench_row row = {.bench = "put_alltoall", .bytes = bytes,
	                        .unit = "us"};

	p->bytes = bytes;
	put_measure(p, &row, alltoall_block, "MPI_Alltoall", &base);
}

/* ---- wake --------------------------------------------------------------- */

static double
wake(struct put_bench *p)
{
	struct bench *b = p->b;
	uint64_t stamp = 0, now;
	baton_request request;

	if (b->rank != 0) {
		bench_meet(b);
		bench_sleep(ASLEEP_NS);
		stamp = bench_now();
		put_answer(p);
		MPI_Send(&stamp, 1, MPI_UINT64_T, b->peer, TAG_STAMP, b->raw);
		return 0;
	}
	request = put_wait(p, 1);
	bench_meet(b);
	bench_must(baton_wait(request, -1, NULL) == BATON_OK);
	now = bench_now();
	bench_must(baton_release(&request) == BATON_OK);
	MPI_Recv(&stamp, 1, MPI_UINT64_T, b->peer, TAG_STAMP, b->raw,
	         MPI_STATUS_IGNORE);
	return (double)(now - stamp) / 1e3;
}

static void
measure_wake(struct put_bench *p)
{
	static struct bench_samples bare, baton;
	struct bench_row row = {.bench = "signal_wake", .unit = "us"};
	struct bench_stat stats[2];
	int pauses = p->b->quick ? 20 : 60;

	for (int i = 0; i < pauses; i++) {
		bench_add(&bare, bench_bare_wake(p->b, &p->bare, ASLEEP_NS));
		bench_add(&baton, wake(p));
	}
	stats[0] = bench_stat(&bare);
	stats[1] = bench_stat(&baton);
	put_report(p, &row, &stats[1], "futex", &stats[0]);
}

void
bench_signals(struct put_bench *p)
{
	if (bench_wants(p->b, "enqueue_put"))
		measure_enqueue(p);
	if (bench_wants(p->b, "signal_pingpong"))
		measure_pingpong(p);
	if (bench_wants(p->b, "signal_rate"))
		measure_rate(p);
	if (bench_wants(p->b, "put_alltoall")) {
		measure_alltoall(p, 8);
		measure_alltoall(p, 65536);
	}
	if (bench_wants(p->b, "signal_wake"))
		measure_wake(p);
}
