/* SPDX-License-Identifier: BSD-3-Clause */
/* `baton doctor`: the checks of all ranks as one report. */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

static const char *const level_names[] = {"good", "slow", "broken"};

void
doctor_find(json_t *findings, const char *name, enum level level,
            const char *costs, const char *mend, const char *format, ...)
{
	char found[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(found, sizeof(found), format, arguments);
	va_end(arguments);
	json_array_append_new(
		findings,
		json_pack("{ss si ss ss ss}", "name", name, "level", (int)level,
	                  "found", found, "costs", level == GOOD ? "" : costs,
	                  "mend", level == GOOD ? "" : mend));
}

/* ---- one report of all ranks ---- */

/* The finding of another rank that says the same, or NULL. */
static json_t *
find_equal(json_t *merged, json_t *finding)
{
	json_t *one;
	size_t i;

	json_array_foreach(merged, i, one)
	{
		if (json_equal(json_object_get(one, "finding"), finding))
			return one;
	}
	return NULL;
}

/* Behind the last finding of that name, so that what ranks find differently stands together. */
static size_t
place_of(const json_t *merged, const char *name)
{
	size_t place = json_array_size(merged);

	for (size_t i = 0; i < json_array_size(merged); i++) {
		const json_t *one = json_object_get(json_array_get(merged, i),
		                                    "finding");

		if (strcmp(tool_text(one, "name"), name) == 0)
			place = i + 1;
	}
	return place;
}

static void
merge_rank(json_t *merged, const json_t *rank)
{
	const json_t *findings = json_object_get(rank, "findings");
	json_t *finding, *one;
	size_t i;

	json_array_foreach(findings, i, finding)
	{
		one = find_equal(merged, finding);
		if (!one) {
			one = json_pack("{sO s[]}", "finding", finding, "ranks");
			json_array_insert_new(
				merged,
				place_of(merged, tool_text(finding, "name")), one);
		}
		json_array_append(json_object_get(one, "ranks"),
		                  json_object_get(rank, "rank"));
	}
}

static enum level
level_of(const json_t *finding)
{
	long long level = tool_number(finding, "level");

	return level == GOOD ? GOOD : level == SLOW ? SLOW : BROKEN;
}

/* The report, from what all ranks have told. */
static json_t *
make_report(const json_t *told, const char *missing)
{
	json_t *merged = json_array(), *findings = json_array();
	enum level worst = *missing ? BROKEN : GOOD;
	const json_t *rank, *one;
	size_t i;

	json_array_foreach(told, i, rank)
		merge_rank(merged, rank);
	json_array_foreach(merged, i, one)
	{
		json_t *finding = json_object_get(one, "finding");
		enum level level = level_of(finding);

		worst = level > worst ? level : worst;
		json_object_set_new(finding, "level",
		                    json_string(level_names[level]));
		json_object_set(finding, "ranks", json_object_get(one, "ranks"));
		json_array_append(findings, finding);
	}
	json_decref(merged);
	return json_pack("{ss si si so ss}", "verdict", level_names[worst],
	                 "status", (int)worst, "ranks",
	                 (int)json_array_size(told), "findings", findings,
	                 "ranks_missing", missing);
}

static void
print_text(const json_t *report)
{
	const json_t *findings = json_object_get(report, "findings"), *finding;
	size_t all = (size_t)tool_number(report, "ranks"), i, k;

	json_array_foreach(findings, i, finding)
	{
		const json_t *ranks = json_object_get(finding, "ranks"), *rank;

		printf("%-6s  %s: %s", tool_text(finding, "level"),
		       tool_text(finding, "name"), tool_text(finding, "found"));
		if (*tool_text(finding, "costs"))
			printf(". Costs: %s. Mend: %s",
			       tool_text(finding, "costs"),
			       tool_text(finding, "mend"));
		if (json_array_size(ranks) < all) {
			printf(" (rank");
			json_array_foreach(ranks, k, rank)
				printf(" %lld", json_integer_value(rank));
			printf(")");
		}
		printf("\n");
	}
	if (*tool_text(report, "ranks_missing"))
		printf("broken  the report: ranks are missing: %s\n",
		       tool_text(report, "ranks_missing"));
	printf("%s, on %zu rank%s\n", tool_text(report, "verdict"), all,
	       all == 1 ? "" : "s");
}

static const char doc[] =
	"Try what Baton's speed and safety rest on: shared memory, other processes, MPI and who makes "
	"progress, GPUs, NCCL, the side channel, the clock.  One line each: what was found, what it "
	"costs, and what mends it."
	"\v"
	"Exit status: 0, all is good; 1, something is slow; 2, something is broken; 64 for bad "
	"arguments.";

int
doctor_main(int argc, char **argv)
{
	json_t *findings = json_array(), *told, *report;
	struct tool_arguments arguments;
	struct job job;
	int status = 0;

	tool_parse(argc, argv, doc, &arguments);
	doctor_host(findings);
	job_open(&job);
	doctor_job(findings, &job);
	doctor_gpu(findings, &job);
	told = job_gather(&job, json_pack("{si so}", "rank", job.rank, "findings",
	                                  findings));
	if (told) {
		report = make_report(told, job.why_alone);
		status = (int)tool_number(report, "status");
		if (arguments.json)
			tool_print_json(report);
		else
			print_text(report);
		json_decref(report);
		json_decref(told);
	}
	fflush(stdout);
	job_tell_printed(&job);
	if (job_is_cut_off(&job, "doctor"))
		status = TOOL_BROKEN;
	job_close(&job);
	return status;
}
