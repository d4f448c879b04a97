/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the benchmarks share: two processes, a raw MPI communicator beside a
 * Baton one, blocks of the compared sides in turn, medians, and rows.
 *
 * A row compares Baton with its baseline in the same program, at the same MPI
 * thread level, in the same seconds: the sides run short blocks in turn (raw,
 * baton, raw, baton, ...), and the ratio is that of the medians of the blocks.
 * Machines drift; ratios taken so drift much less.
 *
 * A benchmark is one main() that calls bench_init, bench_open, measures, calls
 * bench_report for each row and ends with bench_fini.  Rank 0 prints rows for
 * people and, with --json FILE, appends one JSON object a line.
 */
#ifndef BATON_BENCH_H
#define BATON_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <mpi.h>

#include "baton.h"
#include "perf_loops.h"

#define BENCH_SAMPLES_MAX 4096
#define BENCH_WINDOW 64 /* operations in flight: bandwidth, rate, enqueue */

struct bench {
	int rank; /* 0 measures and reports, 1 answers */
	int peer;
	int pairs;  /* of processes: half their number */
	bool sends; /* it is of the first half, and its peer of the second */
	bool quick;
	const char *only; /* with --only: names of measurements; else NULL */
	FILE *json;   /* rank 0, with --json; else NULL */
	MPI_Comm raw; /* for the baselines and for meeting */
	struct baton_comm *comm;
	baton_stream stream;
};

struct bench_samples {
	int count;
	double value[BENCH_SAMPLES_MAX];
};

/* Median and quartiles of count samples. */
struct bench_stat {
	double median, q1, q3;
	int count;
};

enum bench_bar {
	BENCH_REPORT,     /* no bar */
	BENCH_RATIO_MAX,  /* value / baseline <= bar */
	BENCH_RATIO_MIN,  /* value / baseline >= bar */
	BENCH_EXCESS_MAX, /* value - baseline <= bar */
	BENCH_VALUE_MAX,  /* value <= bar */
	BENCH_VALUE_MIN   /* value >= bar */
};

struct bench_row {
	const char *bench;
	size_t bytes;
	const char *unit;
	struct bench_stat value;
	const char *baseline; /* what it is compared with; NULL: nothing */
	struct bench_stat base;
	enum bench_bar kind;
	double bar;
};

/* One side of a comparison: run `rounds` rounds and return the figure in the
 * row's unit.  Both ranks call; only what rank 0 returns counts. */
struct bench_side {
	double (*block)(struct bench *b, void *arg, int rounds);
	void *arg;
};

/* How long to compare: `blocks` blocks of each side, of about block_ns. */
struct bench_plan {
	int blocks;
	uint64_t block_ns;
};

/* Initialise MPI with MPI_THREAD_MULTIPLE, read --quick, --json FILE, --only
 * NAME[,NAME...] and --no-header, and print the header.  The job must have two
 * processes. */
void bench_init(struct bench *b, int *argc, char ***argv);
/* The same for any even number of processes. */
void bench_init_pairs(struct bench *b, int *argc, char ***argv);
/* Is this measurement wanted?  All are, without --only. */
bool bench_wants(const struct bench *b, const char *name);
/* Create the Baton communicator and a stream of it. */
void bench_open(struct bench *b);
/* This rank's end for the loops of tools/perf, which `baton perf` times as well; buffers and sizes are the
 * caller's. */
struct perf_end bench_end(const struct bench *b);
/* Give back what bench_init and bench_open made.  The exit status. */
int bench_fini(struct bench *b);

/* End the job unless ok. */
#define bench_must(ok) bench_must_at((ok), #ok, __FILE__, __LINE__)
void bench_must_at(bool ok, const char *what, const char *file, int line);

/* Memory that has been touched. */
void *bench_alloc(size_t bytes);

uint64_t bench_now(void); /* CLOCK_MONOTONIC: the same for both processes */
void bench_sleep(uint64_t ns);
/* Meet the other rank: spinning in MPI, or asleep but for a look each ms. */
void bench_meet(struct bench *b);
void bench_meet_asleep(struct bench *b);

void bench_add(struct bench_samples *samples, double value);
struct bench_stat bench_stat(struct bench_samples *samples);
/* The value that a share of the samples does not exceed. */
double bench_percentile(struct bench_samples *samples, double share);
/* A figure that is not a median of samples. */
struct bench_stat bench_single(double value, int count);

/* Run the sides' blocks in turn, after one block of each that does not count;
 * rounds is chosen so that side 0's block takes about plan->block_ns. */
void bench_compare(struct bench *b, const struct bench_side *sides, int count,
                   const struct bench_plan *plan, struct bench_stat stats[]);

void bench_report(struct bench *b, const struct bench_row *row);

#endif
