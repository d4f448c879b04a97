/* SPDX-License-Identifier: BSD-3-Clause */
/* A row of `baton perf`: all ranks measure, and rank 0 makes it of what they tell. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"
#include "tool.h"

struct figures {
	double middle, least, most; /* us, of the rounds of a block */
};

static int
compare(const void *left, const void *right)
{
	const double *l = left, *r = right;

	return (*l > *r) - (*l < *r);
}

/* Of each block the time of the slowest rank. */
static struct figures
figures_of(const json_t *told, enum perf_side side, int blocks, int rounds)
{
	double us[PERF_BLOCKS] = {0};
	const json_t *rank;
	size_t i;

	json_array_foreach(told, i, rank)
	{
		const json_t *times = json_array_get(
			json_object_get(rank, "ns"), (size_t)side);

		for (int k = 0; k < blocks; k++)
			us[k] = fmax(us[k], json_number_value(json_array_get(
						    times, (size_t)k)) /
			                            (1e3 * rounds));
	}
	qsort(us, (size_t)blocks, sizeof(us[0]), compare);
	return (struct figures){us[blocks / 2], us[0], us[blocks - 1]};
}

/* What a round of the test has of what `us` is of. */
static double
shares(const struct perf_rank *rank)
{
	switch (rank->test->pattern) {
	case PERF_LATENCY:
	case PERF_PUT:
		return 2;
	case PERF_WINDOW:
	case PERF_PUTS:
		return (double)rank->end.depth;
	case PERF_RING:
	case PERF_ALL:
	case PERF_OVERLAP:
		return 1;
	}
	return 1;
}

/* Messages that one rank sends to others meanwhile. */
static double
messages(const struct perf_rank *rank)
{
	return rank->test->pattern == PERF_ALL ? rank->end.size - 1 : 1;
}

/* The part of the transfer that computing hid. */
static double
hidden(double both, double compute, double transfer)
{
	double share = (transfer + compute - both) / transfer;

	return transfer <= 0 ? 0 : share < 0 ? 0 : share > 1 ? 1 : share;
}

static void
set_number(json_t *row, const char *name, double value)
{
	json_object_set_new(row, name, json_real(value));
}

static void
add_overlap(json_t *row, const json_t *told, const struct perf_times *times)
{
	double transfer = figures_of(told, PERF_SIDE_TRANSFER, times->blocks,
	                             times->rounds).middle;
	double compute = figures_of(told, PERF_SIDE_COMPUTE, times->blocks,
	                            times->rounds).middle;

	set_number(row, "transfer_us", transfer);
	set_number(row, "compute_us", compute);
	set_number(row, "hidden",
	           hidden(tool_real(row, "us"), compute,
	                  transfer));
	if (!times->has[PERF_SIDE_RAW])
		return;
	transfer = figures_of(told, PERF_SIDE_RAW_TRANSFER, times->blocks,
	                      times->rounds).middle;
	set_number(row, "raw_hidden",
	           hidden(tool_real(row, "raw_us"),
	                  compute, transfer));
}

/* All ranks have failed, in the same way. */
static bool
fail_alike(const json_t *told)
{
	const char *first = tool_text(json_array_get(told, 0), "failed");
	const json_t *rank;
	size_t i;

	json_array_foreach(told, i, rank)
	{
		if (strcmp(tool_text(rank, "failed"), first) != 0)
			return false;
	}
	return *first && json_array_size(told) > 1;
}

/* The sentences of ranks that failed; one, if all say the same. */
static json_t *
failures_of(const json_t *told)
{
	json_t *all = json_array();
	const json_t *rank;
	size_t i;

	if (fail_alike(told)) {
		json_array_append_new(all, json_string(tool_text(
						   json_array_get(told, 0), "failed")));
		return all;
	}

	json_array_foreach(told, i, rank)
	{
		const char *why = tool_text(rank, "failed");

		if (*why)
			json_array_append_new(all, json_sprintf(
							   "rank %lld: %s",
							   tool_number(rank, "rank"),
							   why));
	}
	return all;
}

/* Do two of the ranks end that block on one processor of one node? */
static bool
shares_processor(const json_t *told, size_t block)
{
	const json_t *rank, *other;
	size_t i;

	json_array_foreach(told, i, rank)
	{
		const json_t *mine = json_array_get(
			json_object_get(rank, "processors"), block);

		for (size_t k = i + 1; k < json_array_size(told) && mine; k++) {
			other = json_array_get(told, k);
			if (strcmp(tool_text(rank, "node"),
			           tool_text(other, "node")) == 0 &&
			    json_equal(mine, json_array_get(
						     json_object_get(other, "processors"),
						     block)))
				return true;
		}
	}
	return false;
}

/* The share of the blocks of which this is so. */
static double
shared_processor(const json_t *told, int blocks)
{
	int shared = 0;

	for (int i = 0; i < blocks; i++)
		shared += shares_processor(told, (size_t)i);
	return (double)shared / blocks;
}

static void
add_times(json_t *row, const struct perf_rank *rank, const json_t *told,
          const struct perf_times *times)
{
	double share = shares(rank);
	struct figures us = figures_of(told, PERF_SIDE_BATON, times->blocks,
	                               times->rounds);

	double rate = messages(rank) * share / us.middle;
	double gbytes = rate * (double)rank->end.bytes / 1e3;

	set_number(row, "us", us.middle / share);
	set_number(row, "us_min", us.least / share);
	set_number(row, "us_max", us.most / share);
	set_number(row, "messages_per_us", rate);
	set_number(row, "gbytes_per_s", gbytes);
	set_number(row, "shared_processor",
	           shared_processor(told, times->blocks));
	if (times->has[PERF_SIDE_RAW]) {
		struct figures raw = figures_of(told, PERF_SIDE_RAW,
		                                times->blocks, times->rounds);
		double ratio = us.middle / raw.middle;

		set_number(row, "raw_us", raw.middle / share);
		set_number(row, "raw_messages_per_us", rate * ratio);
		set_number(row, "raw_gbytes_per_s", gbytes * ratio);
		set_number(row, "ratio", ratio);
	}
	if (rank->test->pattern == PERF_OVERLAP)
		add_overlap(row, told, times);
}

/* From what all ranks have told. */
static json_t *
make_row(const struct perf_rank *rank, const json_t *told,
         const struct perf_times *times)
{
	json_t *row = json_pack("{ss sI sI sI so}", "test", rank->test->name,
	                        "bytes", (json_int_t)rank->end.bytes, "window",
	                        (json_int_t)rank->end.depth, "iterations",
	                        (json_int_t)times->rounds * times->blocks,
	                        "failed", failures_of(told));
	json_int_t wrong = 0;
	const json_t *one;
	size_t i;

	json_array_foreach(told, i, one)
		wrong += tool_number(one, "wrong");
	json_object_set_new(row, "wrong", rank->options->check
	                                          ? json_integer(wrong)
	                                          : json_null());
	if (times->blocks > 0)
		add_times(row, rank, told, times);
	return row;
}

static json_t *
times_tree(const struct perf_times *times)
{
	json_t *sides = json_array();

	for (int side = 0; side < PERF_SIDES; side++) {
		json_t *blocks = json_array();

		for (int i = 0; i < times->blocks && times->has[side]; i++)
			json_array_append_new(blocks,
			                      json_real(times->ns[side][i]));
		json_array_append_new(sides, blocks);
	}
	return sides;
}

/* What a rank tells of a row. */
static json_t *
rank_tree(const struct perf_rank *rank, const struct perf_times *times,
          size_t wrong)
{
	json_t *processors = json_array();
	char node[256] = "";

	gethostname(node, sizeof(node) - 1);
	for (int i = 0; i < times->blocks && rank->takes_part; i++)
		json_array_append_new(processors,
		                      json_integer(times->processor[i]));
	return json_pack("{si ss sI so ss so}", "rank", rank->job->rank, "failed",
	                 rank->failed, "wrong", (json_int_t)wrong, "ns",
	                 times_tree(times), "node", node, "processors", processors);
}

json_t *
perf_row(struct perf_rank *rank, size_t bytes, uint64_t number)
{
	bool check = rank->options->check;
	struct perf_times times;
	size_t wrong = 0;
	json_t *told, *row = NULL;

	rank->end.bytes = rank->end.step = bytes;
	rank->end.depth = perf_depth(rank->options, bytes);
	if (check)
		perf_data_fill(rank, 2 * number);
	perf_measure(rank, &times);
	if (check) {
		/* What came last, and what comes in one more round: other data. */
		wrong = perf_data_check(rank, 2 * number);
		perf_data_fill(rank, 2 * number + 1);
		perf_round(rank);
		wrong += perf_data_check(rank, 2 * number + 1);
	}
	/* A rank without times does not count. */
	if (!rank->takes_part)
		memset(times.ns, 0, sizeof(times.ns));
	told = job_gather(rank->job, rank_tree(rank, &times, wrong));
	if (told) {
		row = make_row(rank, told, &times);
		json_decref(told);
	}
	return row;
}
