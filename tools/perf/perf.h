/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of `baton perf` share.
 *
 * perf.c runs the tests that perf_options.c has read, over ranks that are processes of a job or threads, once they have
 * found that all were asked for the same (perf_agree.c).  A rank is a
 * struct perf_rank, which one thread uses.  For each test it has buffers (perf_data.c), and for each size a row:
 * perf_measure.c times the loops of perf_loops.c, and in turns with them those of raw MPI or NCCL (perf_raw.c).  Each rank
 * tells rank 0 its times; rank 0 makes the row (perf_row.c) as a tree of JSON and prints it (perf_text.c, perf_plot.c).
 */
#ifndef BATON_TOOL_PERF_H
#define BATON_TOOL_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "job.h"
#include "perf_loops.h"

#define PERF_BYTES_MAX ((size_t)1 << 30) /* of a message */
#define PERF_BLOCKS 20                   /* of rounds, each timed, in a row */
#define PERF_SIDES 5

/* How messages go in a test: which loop of perf_loops.h. */
enum perf_pattern {
	PERF_LATENCY,
	PERF_WINDOW,
	PERF_PUT,
	PERF_PUTS,
	PERF_RING,
	PERF_ALL,
	PERF_OVERLAP
};

struct perf_test {
	const char *name, *says; /* what a row's `us` is of */
	enum perf_pattern pattern;
	const char *figure; /* what a plot shows: a member of rows */
	size_t bytes_min, bytes_max; /* unless others are asked for */
};
extern const struct perf_test perf_tests[];
extern const size_t perf_tests_count;

enum perf_against { PERF_ALONE, PERF_MPI, PERF_NCCL };
enum perf_memory { PERF_AUTO, PERF_HEAP, PERF_BLOCK };

struct perf_options {
	uint32_t tests; /* a bit for each of perf_tests */
	size_t bytes_min, bytes_max; /* 0: the test's */
	size_t factor;
	long iterations; /* 0: as many as time_ns allows */
	long warmup;     /* -1: a block */
	uint64_t time_ns; /* of a row; 0: no limit, with iterations alone */
	size_t depth;
	int ranks; /* threads of a process alone; 0: 2 */
	enum baton_device device;
	enum baton_transport transport;
	enum perf_memory memory;
	enum perf_against against;
	bool check, json, csv;
	const char *plot; /* a file, or NULL */
	const char *message_path, *put_path; /* of --path; NULL: it is not given */
};

/* Bad arguments end the process.  Sets variables of the environment that Baton reads: before its first call. */
void perf_parse(int argc, char **argv, struct perf_options *options);

/* ---- perf_agree.c ---- */

/* Collective.  Were all ranks asked for the same?  refused: a sentence of this one that ends all, or "".  0; or the
 * exit status, and why, alike on all ranks that answer. */
int perf_agree(struct job *job, const struct perf_options *options,
               const char *refused, char *why, size_t size);

struct perf_raw;

struct perf_rank {
	struct job *job;
	const struct perf_options *options;
	const struct perf_test *test;
	struct perf_end end;
	bool takes_part; /* the last of an odd number of ranks has no pair */
	int gpu; /* of the communicator; -1: its memory is the host's */
	bool block; /* buffers are of baton_mem_alloc */
	size_t capacity; /* of each buffer */
	struct perf_raw *raw; /* NULL: alone */
	char failed[512]; /* why this rank can go on no more; "" */
};

/* Keep why, unless a reason is there already; `call` names what failed. */
void perf_fail(struct perf_rank *rank, const char *call, enum baton_status status);

/* ---- perf_data.c ---- */

/* Messages of `bytes` in a window. */
size_t perf_depth(const struct perf_options *options, size_t bytes);
/* Collective.  False: not, and `failed` says why. */
bool perf_data_open(struct perf_rank *rank, size_t bytes_max);
void perf_data_close(struct perf_rank *rank);
/* Data for what this rank sends, of that seed, and into what it receives data that is wrong in each byte. */
void perf_data_fill(struct perf_rank *rank, uint64_t seed);
/* Bytes of what was received that are not what the peers had for that seed. */
size_t perf_data_check(struct perf_rank *rank, uint64_t seed);

/* ---- perf_measure.c ---- */

/* What is timed; in turns. */
enum perf_side {
	PERF_SIDE_BATON,
	PERF_SIDE_RAW,
	/* Of overlap: the transfer alone, computing alone, the raw transfer alone. */
	PERF_SIDE_TRANSFER,
	PERF_SIDE_COMPUTE,
	PERF_SIDE_RAW_TRANSFER
};

struct perf_times {
	int rounds, blocks;
	bool has[PERF_SIDES];
	double ns[PERF_SIDES][PERF_BLOCKS]; /* of each block, here */
	int processor[PERF_BLOCKS]; /* on which Baton's ended */
};

/* Collective, with end.bytes and end.depth set. */
void perf_measure(struct perf_rank *rank, struct perf_times *times);
/* Collective: one round of Baton's loop. */
void perf_round(struct perf_rank *rank);

/* ---- perf_row.c ---- */

/* Collective.  On rank 0 the row of that size, on others NULL.  `number`: another one for each row. */
json_t *perf_row(struct perf_rank *rank, size_t bytes, uint64_t number);

/* ---- perf_raw.c ---- */

/* Collective.  False: there is none here; `why` says why, alike on all ranks. */
bool perf_raw_open(struct perf_rank *rank, char *why, size_t size);
void perf_raw_close(struct perf_rank *rank);
/* What corresponds to the pattern.  Where it fails, `failed` says why. */
void perf_raw_run(struct perf_rank *rank, enum perf_pattern pattern, int rounds);
const char *perf_raw_name(enum perf_against against);

/* ---- perf_text.c, perf_plot.c: on rank 0 ---- */

/* The head of the report, of a test, and a row of it. */
void perf_print_head(const json_t *report);
void perf_print_test(const json_t *report, const struct perf_test *test);
void perf_print_row(const json_t *row, bool csv);
void perf_print_csv_head(void);
/* What the rows say together, beside their figures. */
void perf_print_end(const json_t *report);
/* Is there a gnuplot? */
bool perf_can_plot(void);
/* False: gnuplot did not end well. */
bool perf_plot(const json_t *report, const char *file);

#endif
