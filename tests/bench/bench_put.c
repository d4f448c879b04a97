/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts into a window, against raw MPI and against bare stores.
 *
 * put_latency: half a round trip, baton_put_signal to the end of the peer's
 * baton_wait_signal, in the plain program (one stream, each request finished), beside
 * raw MPI's messages; put_latency_bare: the same by stores alone; mpi_put_latency: by
 * MPI_Put and MPI_Win_flush, twice.  put_copy: the same of 64 KiB, against a copy and
 * a flag.  put_bandwidth: 16 MiB each round, in puts of 1 or 16 MiB, one signal back,
 * against copies with a flag each.  put_rate: 64 puts outstanding.
 *
 * The window is memory of baton_mem_alloc.  The bare rows have mappings of their own,
 * made in the same way (bench_bare.h).  BATON_WINDOW_PATH holds for a process: a run
 * under another path gives its rows other names, and no bars.  bench_signal.c has the
 * rows of signals and calls.
 */
#include "bench_put.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls -------------------------------------------------------------- */

baton_request
put_signal(struct put_bench *p, int peer, size_t bytes, size_t offset,
	   const struct baton_op_options *options)
{
	struct bench *b = p->b;
	baton_request request;

	bench_must(baton_put_signal(p->source + offset, bytes, BATON_UINT8,
	                            peer, p->window, offset, PUT_SIGNAL,
	                            PUT_CONTEXT, 0, b->comm, b->stream, options,
	                            &request) == BATON_OK);
	return request;
}

baton_request
put_wait(struct put_bench *p, int signals)
{
	const struct baton_wait_signal_desc desc = {signals, p->b->peer,
	                                            PUT_SIGNAL, PUT_CONTEXT};
	baton_request request;

	bench_must(baton_wait_signal(1, &desc, p->b->comm, p->b->stream, NULL,
	                             &request) == BATON_OK);
	return request;
}

void
put_finish(baton_request *request)
{
	bench_must(baton_finish(request, -1, NULL) == BATON_OK);
}

void
put_await(struct put_bench *p, int signals)
{
	baton_request request = put_wait(p, signals);

	put_finish(&request);
}

baton_request
put_nothing(struct put_bench *p, const struct baton_op_options *options)
{
	struct bench *b = p->b;
	baton_request request;

	bench_must(baton_signal(b->peer, PUT_SIGNAL, PUT_CONTEXT, 0, b->comm,
	                        b->stream, options, &request) == BATON_OK);
	return request;
}

void
put_answer(struct put_bench *p)
{
	baton_request request = put_nothing(p, NULL);

	put_finish(&request);
}

struct bench_plan
put_plan(const struct put_bench *p)
{
	return (struct bench_plan){.blocks = p->b->quick ? 50 : 200,
	                           .block_ns = 4000000};
}

void
put_report(struct put_bench *p, const struct bench_row *row,
	   const struct bench_stat *value, const char *baseline,
	   const struct bench_stat *base)
{
	struct bench_row shown = *row;
	char name[64];

	snprintf(name, sizeof(name), "%s%s", row->bench,
	         p->path == BATON_WINDOW_PATH_MESSAGE   ? "_message"
	         : p->path == BATON_WINDOW_PATH_VMWRITE ? "_vmwrite"
	                                                : "");
	shown.bench = name;
	shown.value = *value;
	shown.baseline = baseline;
	if (baseline != NULL)
		shown.base = *base;
	if (p->path != BATON_WINDOW_PATH_DIRECT)
		shown.kind = BENCH_REPORT;
	bench_report(p->b, &shown);
}

void
put_measure(struct put_bench *p, const struct bench_row *row,
	    double (*block)(struct bench *b, void *arg, int rounds),
	    const char *baseline, const struct bench_side *base)
{
	const struct bench_side sides[] = {*base, {block, p}};
	struct bench_plan plan = put_plan(p);
	struct bench_stat stats[2];

	bench_compare(p->b, sides, 2, &plan, stats);
	put_report(p, row, &stats[1], baseline, &stats[0]);
}

/* ---- latency ------------------------------------------------------------ */

static struct perf_end
put_end(const struct put_bench *p)
{
	struct perf_end e = bench_end(p->b);

	e.out = p->source;
	e.bytes = p->bytes;
	e.window = p->window;
	e.signal = PUT_SIGNAL;
	e.context = PUT_CONTEXT;
	return e;
}

static double
latency_block(struct bench *b, void *arg, int rounds)
{
	const struct perf_end e = put_end(arg);
	uint64_t start = bench_now();

	(void)b;
	bench_must(perf_put(&e, rounds) == BATON_OK);
	return bench_half_us(start, rounds);
}

static void
measure_latency(struct put_bench *p)
{
	const struct bench_side sides[] = {{bench_raw_latency, &p->raw},
	                                   {latency_block, p},
	                                   {bench_bare_latency, &p->bare},
	                                   {bench_mpi_put_latency, &p->bare}};
	bool direct = p->path == BATON_WINDOW_PATH_DIRECT;
	struct bench_plan plan = put_plan(p);
	struct bench_stat stats[4];
	struct bench_row row = {.bench = "put_latency", .bytes = 8,
	                        .unit = "us", .kind = BENCH_RATIO_MAX,
	                        .bar = 0.9};

	p->bytes = p->raw.bytes = p->bare.put_bytes = row.bytes;
	bench_compare(p->b, sides, direct ? 4 : 2, &plan, stats);
	put_report(p, &row, &stats[1], "raw MPI", &stats[0]);
	if (!direct)
		return;
	row.kind = BENCH_REPORT;
	row.bench = "put_latency_bare";
	put_report(p, &row, &stats[2], "raw MPI", &stats[0]);
	row.bench = "mpi_put_latency";
	put_report(p, &row, &stats[3], "raw MPI", &stats[0]);
}

static void
measure_copy(struct put_bench *p)
{
	const struct bench_side base = {bench_bare_latency, &p->bare};
	struct bench_row row = {.bench = "put_copy", .bytes = 65536,
	                        .unit = "us", .kind = BENCH_RATIO_MAX,
	                        .bar = 1.3};

	p->bytes = p->bare.put_bytes = row.bytes;
	put_measure(p, &row, latency_block, "copy and flag", &base);
}

/* ---- streams of puts ---------------------------------------------------- */

/* The nanoseconds of rounds of p->puts puts and one signal back; offsets step. */
static double
stream_ns(struct put_bench *p, int rounds, size_t step)
{
	struct perf_end e = put_end(p);
	uint64_t start = bench_now();

	e.step = step;
	e.depth = p->puts;
	bench_must(perf_puts(&e, rounds) == BATON_OK);
	return (double)(bench_now() - start);
}

static double
bandwidth_block(struct bench *b, void *arg, int rounds)
{
	struct put_bench *p = arg;

	(void)b;
	return (double)rounds * (double)(p->puts * p->bytes) /
	       stream_ns(p, rounds, p->bytes);
}

static void
measure_bandwidth(struct put_bench *p, size_t bytes)
{
	const struct bench_side base = {bench_bare_bandwidth, &p->bare};
	struct bench_row row = {.bench = "put_bandwidth", .bytes = bytes,
	                        .unit = "GB/s", .kind = BENCH_RATIO_MIN,
	                        .bar = 0.9};

	p->bytes = p->bare.put_bytes = bytes;
	p->puts = p->bare.puts = PUT_WINDOW_BYTES / bytes;
	put_measure(p, &row, bandwidth_block, "copy and flag", &base);
}

static double
rate_block(struct bench *b, void *arg, int rounds)
{
	(void)b;
	return bench_rate(stream_ns(arg, rounds, 8), rounds);
}

static void
measure_rate(struct put_bench *p)
{
	const struct bench_side base = {bench_raw_rate, &p->raw};
	struct bench_row row = {.bench = "put_rate", .bytes = 8, .unit = "M/s"};

	p->bytes = p->raw.bytes = row.bytes;
	p->puts = BENCH_WINDOW;
	put_measure(p, &row, rate_block, "raw MPI", &base);
}

/* ---- start and end ------------------------------------------------------ */

/* False: this machine does not allow the path that is forced; both ranks agree. */
static bool
open_window(struct put_bench *p)
{
	struct bench *b = p->b;
	enum baton_status status;
	void *memory;

	bench_must(baton_mem_alloc(b->comm, PUT_WINDOW_BYTES, &memory) ==
	           BATON_OK);
	p->memory = memory;
	status = baton_window_register(memory, PUT_WINDOW_BYTES, b->comm,
	                               &p->window);
	if (status == BATON_ERR_UNSUPPORTED) {
		if (b->rank == 0)
			printf("put: skipped: %s\n", baton_last_error());
		bench_must(baton_mem_free(b->comm, memory) == BATON_OK);
		return false;
	}
	bench_must(status == BATON_OK);
	p->path = baton_window_path(p->window, b->peer);
	p->source = bench_alloc(PUT_WINDOW_BYTES);
	p->raw.out = bench_alloc((size_t)8 * BENCH_WINDOW);
	p->raw.in = bench_alloc(8);
	bench_bare_open(b, &p->bare, p->source, PUT_WINDOW_BYTES);
	return true;
}

static void
close_window(struct put_bench *p)
{
	bench_bare_close(p->b, &p->bare);
	bench_must(baton_window_deregister(p->window) == BATON_OK);
	bench_must(baton_mem_free(p->b->comm, p->memory) == BATON_OK);
	free(p->raw.out);
	free(p->raw.in);
	free(p->source);
}

int
main(int argc, char **argv)
{
	static struct put_bench put;
	struct bench b;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	put.b = &b;
	if (open_window(&put)) {
		if (bench_wants(&b, "put_latency"))
			measure_latency(&put);
		if (bench_wants(&b, "put_copy"))
			measure_copy(&put);
		if (bench_wants(&b, "put_bandwidth")) {
			measure_bandwidth(&put, (size_t)1 << 20);
			measure_bandwidth(&put, (size_t)16 << 20);
		}
		if (bench_wants(&b, "put_rate"))
			measure_rate(&put);
		bench_signals(&put);
		bench_gets(&put);
		close_window(&put);
	}
	return bench_fini(&b);
}
