/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets and flushes; part of bench_put.  Rank 0 works, and the other one waits for it.
 *
 * get_call: a get of 8 bytes on an idle stream and its finish, against a put without a signal
 * of as many bytes and its finish.  get_copy: a get of 1 MiB and its finish, against memcpy of as much out of this
 * process's part of the window.  flush_nothing: a flush with nothing to wait for, the call alone,
 * without a request; flush_request: with one, and its finish.
 */
#include "bench_put.h"

#include <string.h>

#define GET_CALLS 64
#define COPY_BYTES ((size_t)1 << 20)

/* One block of calls on rank 0, and the barrier behind it on both.  Returns ns for each. */
static double
alone(struct put_bench *p, void (*call)(struct put_bench *p), int rounds)
{
	uint64_t start = bench_now(), spent;

	for (int i = 0; p->b->rank == 0 && i < rounds * GET_CALLS; i++)
		call(p);
	spent = bench_now() - start;
	if (p->b->rank == 0)
		put_answer(p);
	else
		put_await(p, 1);
	return (double)spent / ((double)rounds * GET_CALLS);
}

static void
get_same(struct put_bench *p)
{
	struct bench *b = p->b;
	baton_request request;

	bench_must(baton_get(p->source, p->bytes, BATON_UINT8, b->peer, p->window,
	                     0, PUT_CONTEXT, 0, b->comm, b->stream, NULL,
	                     &request) == BATON_OK);
	put_finish(&request);
}

static void
put_same(struct put_bench *p)
{
	struct bench *b = p->b;
	baton_request request;

	bench_must(baton_put(p->source, p->bytes, BATON_UINT8, b->peer, p->window,
	                     0, PUT_CONTEXT, 0, b->comm, b->stream, NULL,
	                     &request) == BATON_OK);
	put_finish(&request);
}

static void
copy(struct put_bench *p)
{
	memcpy(p->source, p->memory, p->bytes);
	__asm__ volatile("" ::: "memory");
}

static void
flush(struct put_bench *p)
{
	struct bench *b = p->b;

	bench_must(baton_flush(b->peer, 0, b->comm, b->stream, NULL, NULL) ==
	           BATON_OK);
}

static void
flush_finish(struct put_bench *p)
{
	struct bench *b = p->b;
	baton_request request;

	bench_must(baton_flush(b->peer, 0, b->comm, b->stream, NULL, &request) ==
	           BATON_OK);
	put_finish(&request);
}

static double
get_block(struct bench *b, void *arg, int rounds)
{
	(void)b;
	return alone(arg, get_same, rounds);
}

static double
put_block(struct bench *b, void *arg, int rounds)
{
	(void)b;
	return alone(arg, put_same, rounds);
}

static double
flush_block(struct bench *b, void *arg, int rounds)
{
	(void)b;
	return alone(arg, flush, rounds);
}

static double
flush_finish_block(struct bench *b, void *arg, int rounds)
{
	(void)b;
	return alone(arg, flush_finish, rounds);
}

/* GB/s. */
static double
get_copy_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;

	(void)b;
	return (double)p->bytes / alone(p, get_same, rounds);
}

static double
copy_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;

	(void)b;
	return (double)p->bytes / alone(p, copy, rounds);
}

static void
measure_flush(struct put_bench *p, const char *name,
              double (*block)(struct bench *b, void *arg, int rounds))
{
	const struct bench_side side = {block, p};
	struct bench_plan plan = put_plan(p);
	struct bench_stat stat;
	struct bench_row row = {.bench = name, .unit = "ns",
	                        .kind = block == flush_block ? BENCH_VALUE_MAX
	                                                     : BENCH_REPORT,
	                        .bar = 20};

	bench_compare(p->b, &side, 1, &plan, &stat);
	put_report(p, &row, &stat, NULL, NULL);
}

void
bench_gets(struct put_bench *p)
{
	const struct bench_side puts = {put_block, p}, copies = {copy_block, p};
	struct bench_row row = {.bench = "get_call", .bytes = 8, .unit = "ns",
	                        .kind = BENCH_RATIO_MAX, .bar = 1.6};

	p->bytes = 8;
	if (bench_wants(p->b, "get_call"))
		put_measure(p, &row, get_block, "put", &puts);
	p->bytes = row.bytes = COPY_BYTES;
	row.bench = "get_copy";
	row.unit = "GB/s";
	row.kind = BENCH_RATIO_MIN;
	row.bar = 0.9;
	if (bench_wants(p->b, "get_copy"))
		put_measure(p, &row, get_copy_block, "memcpy", &copies);
	if (bench_wants(p->b, "flush_nothing"))
		measure_flush(p, "flush_nothing", flush_block);
	if (bench_wants(p->b, "flush_request"))
		measure_flush(p, "flush_request", flush_finish_block);
}
