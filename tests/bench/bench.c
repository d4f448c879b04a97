/* SPDX-License-Identifier: BSD-3-Clause */
/* See bench.h. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "baton_mpi.h"
#include "options.h"

#define SIDES_MAX 4
#define ROUNDS_MAX (1 << 20)

void
bench_must_at(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	fprintf(stderr, "%s:%d: failed: %s", file, line, what);
	if (*baton_last_error() != '\0')
		fprintf(stderr, " (Baton's last refusal: %s)",
		        baton_last_error());
	fputc('\n', stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

void *
bench_alloc(size_t bytes)
{
	void *memory = NULL;

	bench_must(posix_memalign(&memory, 4096, bytes) == 0);
	memset(memory, 1, bytes);
	return memory;
}

/* ---- time and meeting --------------------------------------------------- */

uint64_t
bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void
bench_sleep(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
	                     .tv_nsec = (long)(ns % 1000000000u)};

	nanosleep(&t, NULL);
}

void
bench_meet(struct bench *b)
{
	MPI_Barrier(b->raw);
}

void
bench_meet_asleep(struct bench *b)
{
	MPI_Request request;
	int done = 0;

	MPI_Ibarrier(b->raw, &request);
	for (;;) {
		MPI_Test(&request, &done, MPI_STATUS_IGNORE);
		if (done)
			return;
		bench_sleep(1000000);
	}
}

/* ---- start and end ------------------------------------------------------ */

static void
print_header(void)
{
	printf("%-22s %9s %-5s %24s %24s %6s  %-13s %s\n", "bench", "bytes",
	       "unit", "Baton [quartiles]", "base [quartiles]", "ratio", "bar",
	       "met");
	fflush(stdout);
}

/* Before MPI is started: --help ends the program. */
static const char *
parse(struct bench *b, bool *bare_p, int argc, char **argv)
{
	const char *json = NULL;
	const struct test_option options[] = {
		{.name = "--quick", .flag = &b->quick},
		{.name = "--no-header", .flag = bare_p},
		{.name = "--json", .value = "FILE", .text = &json},
		{.name = "--only", .value = "NAMES", .text = &b->only},
		{.name = NULL},
	};

	if (options_read(options, NULL, argc, argv) < 0)
		exit(2);
	return json;
}

static void
open_output(struct bench *b, const char *json, bool bare)
{
	if (json && b->rank == 0) {
		b->json = fopen(json, "a");
		bench_must(b->json != NULL);
	}
	if (b->rank == 0 && !bare)
		print_header();
}

void
bench_init_pairs(struct bench *b, int *argc, char ***argv)
{
	const char *json;
	bool bare = false;
	int level, size;

	*b = (struct bench){0};
	json = parse(b, &bare, *argc, *argv);
	MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
	bench_must(level == MPI_THREAD_MULTIPLE);
	MPI_Comm_dup(MPI_COMM_WORLD, &b->raw);
	MPI_Comm_rank(b->raw, &b->rank);
	MPI_Comm_size(b->raw, &size);
	if (size % 2 != 0 && b->rank == 0)
		fprintf(stderr, "run me with mpirun -np 2\n");
	bench_must(size % 2 == 0);
	b->pairs = size / 2;
	b->sends = b->rank < b->pairs;
	b->peer = (b->rank + b->pairs) % size;
	open_output(b, json, bare);
}

void
bench_init(struct bench *b, int *argc, char ***argv)
{
	bench_init_pairs(b, argc, argv);
	if (b->pairs != 1 && b->rank == 0)
		fprintf(stderr, "run me with mpirun -np 2\n");
	bench_must(b->pairs == 1);
}

bool
bench_wants(const struct bench *b, const char *name)
{
	size_t length = strlen(name);
	const char *at = b->only;

	if (at == NULL)
		return true;
	while ((at = strstr(at, name)) != NULL) {
		bool begins = at == b->only || at[-1] == ',';

		at += length;
		if (begins && (*at == ',' || *at == '\0'))
			return true;
	}
	return false;
}

void
bench_open(struct bench *b)
{
	bench_must(baton_comm_create_mpi(b->raw, NULL, &b->comm) == BATON_OK);
	bench_must(baton_stream_create(b->comm, &b->stream) == BATON_OK);
}

struct perf_end
bench_end(const struct bench *b)
{
	return (struct perf_end){.comm = b->comm, .stream = b->stream,
	                         .peer = b->peer, .first = b->rank == 0};
}

int
bench_fini(struct bench *b)
{
	if (b->comm != NULL) {
		bench_must(baton_stream_synchronize(b->comm, b->stream) ==
		           BATON_OK);
		bench_must(baton_stream_destroy(b->comm, b->stream) ==
		           BATON_OK);
		bench_must(baton_comm_destroy(b->comm) == BATON_OK);
	}
	if (b->json != NULL)
		bench_must(fclose(b->json) == 0);
	MPI_Comm_free(&b->raw);
	MPI_Finalize();
	return 0;
}

/* ---- samples ------------------------------------------------------------ */

void
bench_add(struct bench_samples *samples, double value)
{
	bench_must(samples->count < BENCH_SAMPLES_MAX);
	samples->value[samples->count++] = value;
}

static int
compare_doubles(const void *left, const void *right)
{
	const double *l = left, *r = right;

	return (*l > *r) - (*l < *r);
}

/* Between the two samples nearest to the rank that share names. */
static double
quantile(const struct bench_samples *sorted, double share)
{
	double at = share * (sorted->count - 1);
	int low = (int)at;
	int high = low + 1 < sorted->count ? low + 1 : low;

	return sorted->value[low] +
	       (at - low) * (sorted->value[high] - sorted->value[low]);
}

struct bench_stat
bench_stat(struct bench_samples *samples)
{
	struct bench_stat stat = {.count = samples->count};

	bench_must(samples->count > 0);
	qsort(samples->value, (size_t)samples->count, sizeof(double),
	      compare_doubles);
	stat.median = quantile(samples, 0.5);
	stat.q1 = quantile(samples, 0.25);
	stat.q3 = quantile(samples, 0.75);
	return stat;
}

double
bench_percentile(struct bench_samples *samples, double share)
{
	bench_must(samples->count > 0);
	qsort(samples->value, (size_t)samples->count, sizeof(double),
	      compare_doubles);
	return quantile(samples, share);
}

struct bench_stat
bench_single(double value, int count)
{
	return (struct bench_stat){
		.median = value, .q1 = value, .q3 = value, .count = count};
}

/* ---- blocks in turn ----------------------------------------------------- */

static double
one_block(struct bench *b, const struct bench_side *side,
	  int rounds)
{
	double value;

	bench_meet(b);
	value = side->block(b, side->arg, rounds);
	bench_meet(b);
	return value;
}

/* Rounds that make side's block last about block_ns; the same on both ranks. */
static int
choose_rounds(struct bench *b, const struct bench_side *side,
	      uint64_t block_ns)
{
	int rounds = 1;
	uint64_t took;

	for (;;) {
		uint64_t start = bench_now();

		one_block(b, side, rounds);
		took = bench_now() - start;
		MPI_Bcast(&took, 1, MPI_UINT64_T, 0, b->raw);
		if (took >= block_ns / 4 || rounds >= ROUNDS_MAX)
			break;
		rounds *= 2;
	}
	rounds = (int)((double)rounds * (double)block_ns / (double)took);
	return rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
}

void
bench_compare(struct bench *b, const struct bench_side *sides, int count,
	      const struct bench_plan *plan, struct bench_stat stats[])
{
	static struct bench_samples samples[SIDES_MAX];
	int rounds;

	bench_must(count >= 1 && count <= SIDES_MAX);
	rounds = choose_rounds(b, &sides[0], plan->block_ns);
	for (int i = 0; i < count; i++) {
		samples[i].count = 0;
		one_block(b, &sides[i], rounds);
	}
	for (int block = 0; block < plan->blocks; block++)
		for (int i = 0; i < count; i++)
			bench_add(&samples[i], one_block(b, &sides[i], rounds));
	for (int i = 0; i < count; i++)
		stats[i] = bench_stat(&samples[i]);
}

/* ---- rows --------------------------------------------------------------- */

static const char *const kind_names[] = {
	[BENCH_REPORT] = "none",           [BENCH_RATIO_MAX] = "ratio_max",
	[BENCH_RATIO_MIN] = "ratio_min",   [BENCH_EXCESS_MAX] = "excess_max",
	[BENCH_VALUE_MAX] = "value_max",   [BENCH_VALUE_MIN] = "value_min"};

static bool
bar_met(const struct bench_row *row)
{
	double value = row->value.median, base = row->base.median;

	switch (row->kind) {
	case BENCH_RATIO_MAX:
		return value <= row->bar * base;
	case BENCH_RATIO_MIN:
		return value >= row->bar * base;
	case BENCH_EXCESS_MAX:
		return value - base <= row->bar;
	case BENCH_VALUE_MAX:
		return value <= row->bar;
	case BENCH_VALUE_MIN:
		return value >= row->bar;
	case BENCH_REPORT:
		break;
	}
	return true;
}

static void
bar_text(const struct bench_row *row, char *text, size_t size)
{
	switch (row->kind) {
	case BENCH_RATIO_MAX:
		snprintf(text, size, "<= %g x", row->bar);
		return;
	case BENCH_RATIO_MIN:
		snprintf(text, size, ">= %g x", row->bar);
		return;
	case BENCH_EXCESS_MAX:
		snprintf(text, size, "<= base + %g", row->bar);
		return;
	case BENCH_VALUE_MAX:
		snprintf(text, size, "<= %g", row->bar);
		return;
	case BENCH_VALUE_MIN:
		snprintf(text, size, ">= %g", row->bar);
		return;
	case BENCH_REPORT:
		break;
	}
	snprintf(text, size, "-");
}

static void
stat_text(const struct bench_stat *stat, char *text, size_t size)
{
	if (stat->q1 == stat->q3)
		snprintf(text, size, "%.4g", stat->median);
	else
		snprintf(text, size, "%.4g [%.4g %.4g]", stat->median, stat->q1,
		         stat->q3);
}

static void
print_row(const struct bench_row *row)
{
	char value[48], base[48] = "-", ratio[16] = "-", bar[24];

	stat_text(&row->value, value, sizeof(value));
	if (row->baseline != NULL)
		stat_text(&row->base, base, sizeof(base));
	if (row->baseline != NULL && row->base.median > 0)
		snprintf(ratio, sizeof(ratio), "%.3f",
		         row->value.median / row->base.median);
	bar_text(row, bar, sizeof(bar));
	printf("%-22s %9zu %-5s %24s %24s %6s  %-13s %s\n", row->bench,
	       row->bytes, row->unit, value, base, ratio, bar,
	       row->kind == BENCH_REPORT ? "-" : bar_met(row) ? "yes" : "NO");
	fflush(stdout);
}

static void
json_row(FILE *out, const struct bench_row *row)
{
	const struct bench_stat *v = &row->value, *base = &row->base;
	bool compared = row->baseline != NULL;

	fprintf(out, "{\"bench\":\"%s\",\"bytes\":%zu,\"unit\":\"%s\","
	             "\"value\":%.6g,", row->bench, row->bytes, row->unit,
	        v->median);
	if (compared)
		fprintf(out, "\"baseline\":\"%s\",\"baseline_value\":%.6g,",
		        row->baseline, base->median);
	else
		fprintf(out, "\"baseline\":null,\"baseline_value\":null,");
	if (compared && base->median > 0)
		fprintf(out, "\"ratio\":%.4f,", v->median / base->median);
	else
		fprintf(out, "\"ratio\":null,");
	if (row->kind == BENCH_REPORT)
		fprintf(out, "\"bar\":null,\"met\":null,");
	else
		fprintf(out, "\"bar\":%g,\"met\":%s,", row->bar,
		        bar_met(row) ? "true" : "false");
	fprintf(out, "\"bar_kind\":\"%s\",\"samples\":%d,"
	             "\"value_quartiles\":[%.6g,%.6g]", kind_names[row->kind],
	        v->count, v->q1, v->q3);
	if (compared)
		fprintf(out, ",\"baseline_quartiles\":[%.6g,%.6g]", base->q1,
		        base->q3);
	fprintf(out, "}\n");
	fflush(out);
}

void
bench_report(struct bench *b, const struct bench_row *row)
{
	if (b->rank != 0)
		return;
	print_row(row);
	if (b->json != NULL)
		json_row(b->json, row);
}
