/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launched functions, alone and between signals.
 *
 * stream_launch: one function that does nothing, 64 of them enqueued and then the stream
 * synchronized.  stream_launch_sync: each synchronized.  stream_launch_wait: each behind
 * a wait for a signal of the other rank, whose 64 signals come at once; then one back.
 * ring_rate, ring_p50: the ring of samples/producer_consumer.c: rank 1 fills 1 KiB in a
 * launched function and puts it into one of 16 slots, behind a wait for a credit; rank 0
 * reads it in a launched function behind a wait for the put's signal, then signals the
 * credit.  256 items are enqueued ahead in two batches.  The latency is from the end of
 * the filling to the begin of the reading.
 */
#include <stdlib.h>

#include "bench.h"

#define FILLED 1
#define FREE 2
#define DONE 3
#define SLOTS 16
#define BATCH 128
#define WORDS 128 /* of 8 bytes */
#define LATENCIES_MAX 1000000

struct stream_bench {
	struct bench *b;
	struct baton_window *window;
	uint64_t *ring;           /* rank 0's part of the window */
	uint64_t item[WORDS];     /* rank 1 */
	uint64_t read, made, sum; /* the streams' */
	double latencies_us[LATENCIES_MAX];
	int latencies;
	struct bench_samples p50;
};

static void
nothing(void *argument)
{
	(void)argument;
}

static void
launch(struct bench *b, void (*fn)(void *), void *argument)
{
	bench_must(baton_stream_launch(b->comm, b->stream, fn, argument) ==
	           BATON_OK);
}

static void
synchronize(struct bench *b)
{
	bench_must(baton_stream_synchronize(b->comm, b->stream) == BATON_OK);
}

static void
wait_signals(struct bench *b, int signal_index, int count,
             baton_request *request_p)
{
	const struct baton_wait_signal_desc desc = {count, b->peer,
	                                            signal_index, 0};

	bench_must(baton_wait_signal(1, &desc, b->comm, b->stream, NULL,
	                             request_p) == BATON_OK);
}

static void
signal_peer(struct bench *b, int signal_index, baton_request *request_p)
{
	bench_must(baton_signal(b->peer, signal_index, 0, 0, b->comm, b->stream,
	                        NULL, request_p) == BATON_OK);
}

static void
await_signals(struct bench *b, int signal_index, int count)
{
	baton_request request;

	wait_signals(b, signal_index, count, &request);
	bench_must(baton_finish(&request, -1, NULL) == BATON_OK);
}

/* ---- launches ----------------------------------------------------------- */

static double
launch_block(struct bench *b, void *arg, int rounds)
{
	const int *batch = arg;
	uint64_t start = bench_now();

	for (int i = 0; i < rounds && b->rank == 0; i++) {
		for (int k = 0; k < *batch; k++)
			launch(b, nothing, NULL);
		synchronize(b);
	}
	return (double)(bench_now() - start) * 1e-3 / ((double)rounds * *batch);
}

static double
launch_wait_block(struct bench *b, void *arg, int rounds)
{
	uint64_t start = bench_now();

	(void)arg;
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < BENCH_WINDOW; k++) {
			if (b->rank != 0) {
				signal_peer(b, FILLED, NULL);
				continue;
			}
			wait_signals(b, FILLED, 1, NULL);
			launch(b, nothing, NULL);
		}
		if (b->rank == 0)
			signal_peer(b, DONE, NULL);
		else
			await_signals(b, DONE, 1);
		synchronize(b);
	}
	return (double)(bench_now() - start) * 1e-3 /
	       ((double)rounds * BENCH_WINDOW);
}

/* ---- the ring ----------------------------------------------------------- */

static void
fill_item(void *argument)
{
	struct stream_bench *s = argument;

	s->item[0] = s->made++;
	for (int i = 2; i < WORDS; i++)
		s->item[i] = s->item[i - 1] * 3 + s->made;
	s->item[1] = bench_now();
}

static void
take_item(void *argument)
{
	struct stream_bench *s = argument;
	const uint64_t *item = s->ring + s->read % SLOTS * WORDS;
	uint64_t now = bench_now();

	bench_must(item[0] == s->read);
	s->read++;
	for (int i = 2; i < WORDS; i++)
		s->sum += item[i];
	if (s->latencies < LATENCIES_MAX)
		s->latencies_us[s->latencies++] = (double)(now - item[1]) * 1e-3;
}

/* One item of either side. */
static void
enqueue_item(struct stream_bench *s, uint64_t number, baton_request *request_p)
{
	struct bench *b = s->b;
	size_t offset = number % SLOTS * sizeof(s->item);

	if (b->rank == 0) {
		wait_signals(b, FILLED, 1, NULL);
		launch(b, take_item, s);
		signal_peer(b, FREE, request_p);
		return;
	}
	wait_signals(b, FREE, 1, NULL);
	launch(b, fill_item, s);
	bench_must(baton_put_signal(s->item, WORDS, BATON_UINT64, b->peer,
	                            s->window, offset, FILLED, 0, 0, b->comm,
	                            b->stream, NULL, request_p) == BATON_OK);
}

static int
compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double
ring_block(struct bench *b, void *arg, int rounds)
{
	struct stream_bench *s = arg;
	baton_request older = BATON_REQUEST_NULL, newer;
	uint64_t start = bench_now(), number = 0;
	double seconds;

	s->read = s->made = 0;
	s->latencies = 0;
	for (int slot = 0; slot < SLOTS && b->rank == 0; slot++)
		signal_peer(b, FREE, NULL);
	for (int i = 0; i < rounds; i++) {
		for (int k = 1; k < BATCH; k++)
			enqueue_item(s, number++, NULL);
		enqueue_item(s, number++, &newer);
		if (i > 0)
			bench_must(baton_finish(&older, -1, NULL) == BATON_OK);
		older = newer;
	}
	bench_must(baton_finish(&older, -1, NULL) == BATON_OK);
	seconds = (double)(bench_now() - start) * 1e-9;
	/* The last credits. */
	if (b->rank != 0)
		await_signals(b, FREE, SLOTS);
	qsort(s->latencies_us, (size_t)s->latencies, sizeof(double), compare);
	if (b->rank == 0)
		bench_add(&s->p50, s->latencies_us[s->latencies / 2]);
	return (double)number * 1e-3 / seconds;
}

static void
measure_ring(struct stream_bench *s, const struct bench_plan *plan)
{
	const struct bench_side side = {ring_block, s};
	struct bench_row rate = {.bench = "ring_rate", .bytes = 8 * WORDS,
	                         .unit = "K/s", .kind = BENCH_VALUE_MIN,
	                         .bar = 300};
	struct bench_row p50 = {.bench = "ring_p50", .bytes = 8 * WORDS,
	                        .unit = "us", .kind = BENCH_VALUE_MAX,
	                        .bar = 50};
	struct bench *b = s->b;
	size_t bytes = b->rank == 0 ? SLOTS * sizeof(s->item) : 0;
	void *ring = NULL;

	if (bytes)
		bench_must(baton_mem_alloc(b->comm, bytes, &ring) == BATON_OK);
	bench_must(baton_window_register(ring, bytes, b->comm, &s->window) ==
	           BATON_OK);
	s->ring = ring;
	bench_compare(b, &side, 1, plan, &rate.value);
	bench_report(b, &rate);
	if (b->rank == 0)
		p50.value = bench_stat(&s->p50);
	bench_report(b, &p50);
	bench_must(baton_window_deregister(s->window) == BATON_OK);
	bench_must(baton_mem_free(b->comm, ring) == BATON_OK);
}

static void
measure(struct bench *b, const struct bench_plan *plan, const char *name,
        double (*block)(struct bench *b, void *arg, int rounds), void *arg)
{
	const struct bench_side side = {block, arg};
	struct bench_row row = {.bench = name, .unit = "us"};

	if (!bench_wants(b, name))
		return;
	bench_compare(b, &side, 1, plan, &row.value);
	bench_report(b, &row);
}

int
main(int argc, char **argv)
{
	static struct stream_bench s;
	static struct bench b;
	static int many = BENCH_WINDOW, one = 1;
	struct bench_plan plan;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	s.b = &b;
	plan = (struct bench_plan){.blocks = b.quick ? 50 : 200,
	                           .block_ns = 4000000};
	measure(&b, &plan, "stream_launch", launch_block, &many);
	measure(&b, &plan, "stream_launch_sync", launch_block, &one);
	measure(&b, &plan, "stream_launch_wait", launch_wait_block, NULL);
	if (bench_wants(&b, "ring"))
		measure_ring(&s, &plan);
	return bench_fini(&b);
}
