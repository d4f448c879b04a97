/* SPDX-License-Identifier: BSD-3-Clause */
/* The report of `baton perf` as tables, in the manner of nccl-tests, and as CSV. */
#include <stdio.h>
#include <string.h>

#include "perf.h"
#include "tool.h"

void
perf_print_head(const json_t *report)
{
	long long ranks = tool_number(report, "ranks");
	bool threads = json_is_true(json_object_get(report, "threads"));

	printf("# baton perf %s: %lld ranks on %s over %s (%s), messages by %s\n",
	       tool_text(report, "version"), ranks, tool_text(report, "device"),
	       tool_text(report, "transport"), tool_text(report, "library"),
	       tool_text(report, "messages"));
	if (threads)
		printf("# The ranks are threads of this process; between processes: "
		       "mpirun -np 2 baton perf\n");
	if (ranks > 2)
		printf("# Pairs: rank r sends to rank r + %lld%s\n",
		       tool_number(report, "pairs"),
		       ranks % 2 ? "; the last has no peer, and is in ring and "
		                   "alltoall alone"
		                 : "");
}

void
perf_print_test(const json_t *report, const struct perf_test *test)
{
	const char *against = tool_text(report, "against");
	bool overlap = test->pattern == PERF_OVERLAP;

	printf("#\n# %s: us of %s\n", test->name, test->says);
	printf("#%9s %10s %9s %9s %9s", "bytes", "iterations", "us", "min", "max");
	if (overlap)
		printf(" %9s %9s %7s", "transfer", "compute", "hidden");
	else
		printf(" %9s %9s", "GB/s", "M/s");
	if (*against) {
		char title[32];

		snprintf(title, sizeof(title), "%s us", against);
		printf(" %9s %6s", title, "ratio");
		if (overlap)
			printf(" %7s", "hidden");
	}
	printf(" %7s\n", "#wrong");
}

/* Short and long times alike in four or five digits. */
static void
print_figure(double value, int width)
{
	int digits = value >= 10000 ? 0 : value >= 100 ? 1 : value >= 1 ? 2 : 3;

	printf(" %*.*f", width, digits, value);
}

static void
print_table_row(const json_t *row)
{
	bool overlap = json_object_get(row, "hidden") != NULL;

	printf("%10lld %10lld", tool_number(row, "bytes"),
	       tool_number(row, "iterations"));
	print_figure(tool_real(row, "us"), 9);
	print_figure(tool_real(row, "us_min"), 9);
	print_figure(tool_real(row, "us_max"), 9);
	print_figure(tool_real(row, overlap ? "transfer_us" : "gbytes_per_s"), 9);
	print_figure(tool_real(row, overlap ? "compute_us" : "messages_per_us"), 9);
	if (overlap)
		printf(" %6.0f%%", 100 * tool_real(row, "hidden"));
	if (json_object_get(row, "ratio")) {
		print_figure(tool_real(row, "raw_us"), 9);
		printf(" %6.2f", tool_real(row, "ratio"));
		if (overlap)
			printf(" %6.0f%%", 100 * tool_real(row, "raw_hidden"));
	}
	if (json_is_null(json_object_get(row, "wrong")))
		printf(" %7s\n", "N/A");
	else
		printf(" %7lld\n", tool_number(row, "wrong"));
}

void
perf_print_end(const json_t *report)
{
	const json_t *rows = json_object_get(report, "rows"), *row;
	int shared = 0;
	size_t i;

	json_array_foreach(rows, i, row)
		shared += tool_real(row, "shared_processor") > 0.5;
	if (shared == 0)
		return;
	printf("#\n# In %d of %zu rows ranks shared a processor, and waited for each "
	       "other there.\n",
	       shared, json_array_size(rows));
	if (!json_is_true(json_object_get(report, "threads")))
		printf("# Where there are enough, bind them: mpirun --bind-to core\n");
}

/* ---- CSV ---- */

/* In this order; those that a row has not are empty. */
static const char *const columns[] = {
	"us",          "us_min",     "us_max", "gbytes_per_s", "messages_per_us",
	"transfer_us", "compute_us", "hidden", "raw_us", "raw_gbytes_per_s",
	"raw_messages_per_us", "ratio", "raw_hidden"};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

void
perf_print_csv_head(void)
{
	printf("test,bytes,window,iterations");
	for (size_t i = 0; i < COLUMNS; i++)
		printf(",%s", columns[i]);
	printf(",wrong\n");
}

static void
print_csv_row(const json_t *row)
{
	printf("%s,%lld,%lld,%lld", tool_text(row, "test"),
	       tool_number(row, "bytes"), tool_number(row, "window"),
	       tool_number(row, "iterations"));
	for (size_t i = 0; i < COLUMNS; i++) {
		printf(",");
		if (json_object_get(row, columns[i]))
			printf("%.6g", tool_real(row, columns[i]));
	}
	printf(",");
	if (!json_is_null(json_object_get(row, "wrong")))
		printf("%lld", tool_number(row, "wrong"));
	printf("\n");
}

void
perf_print_row(const json_t *row, bool csv)
{
	const json_t *failures = json_object_get(row, "failed"), *failure;
	size_t i;

	if (json_object_get(row, "us")) {
		if (csv)
			print_csv_row(row);
		else
			print_table_row(row);
	}
	json_array_foreach(failures, i, failure)
		fprintf(stderr, "baton perf: %s of %lld bytes: %s\n",
		        tool_text(row, "test"), tool_number(row, "bytes"),
		        json_string_value(failure));
	if (tool_number(row, "wrong") > 0)
		fprintf(stderr, "baton perf: %s of %lld bytes: %lld bytes arrived "
		                "wrong\n",
		        tool_text(row, "test"), tool_number(row, "bytes"),
		        tool_number(row, "wrong"));
}
