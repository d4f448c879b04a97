/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much of a transfer hides behind compute, over a link of limited rate (the
 * script `run` makes one; on shared memory the copy itself takes the cores).
 *
 * Rank 0 sends, rank 1 receives, and both compute: enqueue detached, spin in
 * pure arithmetic with no calls, then baton_wait.  For compute of 0.5, 1 and 2
 * times the transfer, efficiency is
 *
 *   max(compute + c, transfer) / measured
 *
 * transfer: raw, both sides in MPI_Wait.  c: the processor time of raw MPI for
 * the same transfer when it is tested every 500 us and sleeps in between, the
 * least that any progress beside compute can cost.  compute: the spin alone.
 * Each figure is the larger of the two ranks', from a common start to each
 * rank's end, and the median over repetitions in which all of them take turns.
 * The baseline is the same program in raw MPI: MPI_Isend or MPI_Irecv, spin,
 * MPI_Wait.
 *
 * Rows that end in _aided compare Baton with the best that raw MPI does on this
 * machine: a second thread of each rank tests the request every 50, 100, 200 or
 * 500 us while the first computes, and the best of the four counts.  Where that is
 * below the bar of the other rows, no schedule of tests reaches it.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"
#include "perf_mpi.h"

#define TAG 10
#define TEST_EVERY_NS 500000u
/* The token bucket of the link must be full again before each repetition. */
#define REFILL_NS 20000000u
#define FACTORS 3
#define PERIODS 4

static const double factors[FACTORS] = {0.5, 1, 2};
static const char *const names[FACTORS] = {"overlap_0.5", "overlap_1",
                                           "overlap_2"};
static const char *const names_aided[FACTORS] = {
	"overlap_0.5_aided", "overlap_1_aided", "overlap_2_aided"};
static const uint64_t periods_ns[PERIODS] = {50000, 100000, 200000, 500000};

/* Steps of perf_spin in ns, the fastest of a few tries. */
static double
spin_rate(void)
{
	const uint64_t steps = 4000000;
	double best = 0;

	for (int i = 0; i < 10; i++) {
		uint64_t start = bench_now();
		double rate;

		perf_spin(steps);
		rate = (double)steps / (double)(bench_now() - start);
		if (rate > best)
			best = rate;
	}
	return best;
}

/* ---- one repetition ----------------------------------------------------- */

/* A start that both ranks agree on. */
static uint64_t
start_together(struct bench *b)
{
	uint64_t start;

	bench_meet(b);
	bench_sleep(REFILL_NS);
	bench_meet(b);
	start = bench_now() + 2000000;
	MPI_Bcast(&start, 1, MPI_UINT64_T, 0, b->raw);
	while (bench_now() < start)
		;
	return start;
}

static double
larger_ms(struct bench *b, uint64_t ns)
{
	double mine = (double)ns / 1e6, larger;

	MPI_Allreduce(&mine, &larger, 1, MPI_DOUBLE, MPI_MAX, b->raw);
	return larger;
}

static MPI_Request
raw_start(struct bench *b, char *buffer, int bytes)
{
	MPI_Request request;

	if (b->rank == 0)
		MPI_Isend(buffer, bytes, MPI_BYTE, b->peer, TAG, b->raw,
		          &request);
	else
		MPI_Irecv(buffer, bytes, MPI_BYTE, b->peer, TAG, b->raw,
		          &request);
	return request;
}

static struct perf_end
end_of(const struct bench *b, char *buffer, size_t bytes, uint64_t steps)
{
	struct perf_end e = bench_end(b);

	e.out = e.in = buffer;
	e.bytes = bytes;
	e.steps = steps;
	return e;
}

/* MPI_Isend or MPI_Irecv, compute, MPI_Wait: with no steps, the transfer. */
static double
time_raw(struct bench *b, char *buffer, int bytes, uint64_t steps)
{
	const struct perf_end e = end_of(b, buffer, (size_t)bytes, steps);
	uint64_t start = start_together(b);

	perf_mpi_overlapped(b->raw, &e, 1);
	return larger_ms(b, bench_now() - start);
}

static uint64_t
process_cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double
time_tested_cpu(struct bench *b, char *buffer, int bytes)
{
	MPI_Request request;
	uint64_t cpu;
	int done = 0;

	start_together(b);
	cpu = process_cpu();
	request = raw_start(b, buffer, bytes);
	for (;;) {
		MPI_Test(&request, &done, MPI_STATUS_IGNORE);
		if (done)
			break;
		bench_sleep(TEST_EVERY_NS);
	}
	return larger_ms(b, process_cpu() - cpu);
}

/* What the second thread of time_aided tests, from `begun` on. */
struct aid {
	sem_t begun;
	MPI_Request request;
	uint64_t period_ns;
};

static void *
test_until_done(void *arg)
{
	struct aid *aid = arg;
	int done = 0;

	while (sem_wait(&aid->begun) != 0)
		;
	for (;;) {
		MPI_Test(&aid->request, &done, MPI_STATUS_IGNORE);
		if (done)
			return NULL;
		bench_sleep(aid->period_ns);
	}
}

static double
time_aided(struct bench *b, char *buffer, int bytes, uint64_t steps,
           uint64_t period_ns)
{
	struct aid aid = {.period_ns = period_ns};
	pthread_t thread;
	uint64_t start, took;

	bench_must(sem_init(&aid.begun, 0, 0) == 0);
	bench_must(pthread_create(&thread, NULL, test_until_done, &aid) == 0);
	start = start_together(b);
	aid.request = raw_start(b, buffer, bytes);
	sem_post(&aid.begun);
	perf_spin(steps);
	pthread_join(thread, NULL);
	took = bench_now() - start;
	sem_destroy(&aid.begun);
	return larger_ms(b, took);
}

static double
time_spin(struct bench *b, uint64_t steps)
{
	uint64_t start = start_together(b);

	perf_spin(steps);
	return larger_ms(b, bench_now() - start);
}

static double
time_baton(struct bench *b, char *buffer, size_t bytes,
	   uint64_t steps)
{
	const struct perf_end e = end_of(b, buffer, bytes, steps);
	uint64_t start = start_together(b);

	bench_must(perf_overlapped(&e, 1) == BATON_OK);
	return larger_ms(b, bench_now() - start);
}

/* ---- all repetitions ---------------------------------------------------- */

struct overlap {
	struct bench_samples transfer, tested_cpu;
	struct bench_samples compute[FACTORS], raw[FACTORS], baton[FACTORS];
	struct bench_samples aided[FACTORS][PERIODS];
};

static void
repeat(struct bench *b, char *buffer, size_t bytes,
       const uint64_t steps[FACTORS], struct overlap *o)
{
	bench_add(&o->transfer, time_raw(b, buffer, (int)bytes, 0));
	bench_add(&o->tested_cpu, time_tested_cpu(b, buffer, (int)bytes));
	for (int f = 0; f < FACTORS; f++) {
		bench_add(&o->compute[f], time_spin(b, steps[f]));
		bench_add(&o->raw[f],
		          time_raw(b, buffer, (int)bytes, steps[f]));
		bench_add(&o->baton[f], time_baton(b, buffer, bytes, steps[f]));
		for (int k = 0; k < PERIODS; k++)
			bench_add(&o->aided[f][k],
			          time_aided(b, buffer, (int)bytes, steps[f],
			                     periods_ns[k]));
	}
}

/* Ideal over measured: a longer measured time is the lower quartile. */
static struct bench_stat
efficiency(double ideal, struct bench_samples *samples)
{
	struct bench_stat ms = bench_stat(samples);

	return (struct bench_stat){.median = ideal / ms.median,
	                           .q1 = ideal / ms.q3, .q3 = ideal / ms.q1,
	                           .count = ms.count};
}

static struct bench_stat
best_efficiency(double ideal, struct bench_samples aided[PERIODS])
{
	struct bench_stat best = efficiency(ideal, &aided[0]);

	for (int k = 1; k < PERIODS; k++) {
		struct bench_stat stat = efficiency(ideal, &aided[k]);

		if (stat.median > best.median)
			best = stat;
	}
	return best;
}

static void
report(struct bench *b, size_t bytes, struct overlap *o)
{
	struct bench_row row = {.bytes = bytes, .unit = "ms"};
	double transfer, c;

	row.bench = "overlap_transfer";
	row.value = bench_stat(&o->transfer);
	transfer = row.value.median;
	bench_report(b, &row);
	row.bench = "overlap_c";
	row.value = bench_stat(&o->tested_cpu);
	c = row.value.median;
	bench_report(b, &row);
	for (int f = 0; f < FACTORS; f++) {
		double compute = bench_stat(&o->compute[f]).median;
		double ideal = compute + c > transfer ? compute + c : transfer;

		row.bench = names[f];
		row.unit = "share";
		row.value = efficiency(ideal, &o->baton[f]);
		row.baseline = "raw MPI, no calls while computing";
		row.base = efficiency(ideal, &o->raw[f]);
		row.kind = BENCH_VALUE_MIN;
		row.bar = 0.95;
		bench_report(b, &row);
		row.bench = names_aided[f];
		row.baseline = "raw MPI, tested by a second thread";
		row.base = best_efficiency(ideal, o->aided[f]);
		row.kind = BENCH_RATIO_MIN;
		row.bar = 0.98;
		bench_report(b, &row);
	}
}

static void
measure(struct bench *b, char *buffer, size_t bytes, int repeats)
{
	struct overlap *o = calloc(1, sizeof(*o));
	uint64_t steps[FACTORS];
	double transfer_ns, rate = spin_rate();
	struct bench_samples *warm = calloc(1, sizeof(*warm));

	bench_must(o != NULL && warm != NULL);
	for (int i = 0; i < 5; i++) {
		bench_add(warm, time_raw(b, buffer, (int)bytes, 0));
		time_baton(b, buffer, bytes, 0);
	}
	transfer_ns = bench_stat(warm).median * 1e6;
	for (int f = 0; f < FACTORS; f++)
		steps[f] = (uint64_t)(transfer_ns * factors[f] * rate);
	MPI_Bcast(steps, FACTORS, MPI_UINT64_T, 0, b->raw);
	for (int i = 0; i < repeats; i++)
		repeat(b, buffer, bytes, steps, o);
	report(b, bytes, o);
	free(warm);
	free(o);
}

int
main(int argc, char **argv)
{
	const size_t large = 16777216;
	struct bench b;
	char *buffer;

	bench_init(&b, &argc, &argv);
	bench_open(&b);
	buffer = bench_alloc(large);
	measure(&b, buffer, 1048576, b.quick ? 7 : 25);
	measure(&b, buffer, large, b.quick ? 3 : 11);
	free(buffer);
	return bench_fini(&b);
}
