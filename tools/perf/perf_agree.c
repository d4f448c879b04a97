/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Were the ranks started alike?  Ranks that run other tests, or other sizes, would wait for each other until their
 * deadlines.  So each tells rank 0 what it was asked for, before anything else; rank 0 finds the first difference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "perf.h"
#include "tool.h"

static json_t *
number_or_default(uint64_t number)
{
	return number ? json_sprintf("%llu", (unsigned long long)number)
	              : json_string("the default");
}

static json_t *
tests_of(const struct perf_options *options)
{
	char names[256] = "";

	for (size_t i = 0; i < perf_tests_count; i++) {
		size_t length = strlen(names);

		if (options->tests & (1u << i))
			snprintf(names + length, sizeof(names) - length, "%s%s",
			         length > 0 ? ", " : "", perf_tests[i].name);
	}
	return json_string(names);
}

/* Each as a sentence names it. */
static json_t *
what_is_asked_for(const struct perf_options *o)
{
	static const char *const memories[] = {[PERF_AUTO] = "the default",
	                                       [PERF_HEAP] = "heap",
	                                       [PERF_BLOCK] = "block"};
	static const char *const against[] = {[PERF_ALONE] = "the default",
	                                      [PERF_MPI] = "mpi",
	                                      [PERF_NCCL] = "nccl"};
	json_t *warmup = o->warmup < 0 ? json_string("the default")
	                               : json_sprintf("%ld", o->warmup);
	json_t *asked = json_object();

	json_object_set_new(asked, "TEST", tests_of(o));
	json_object_set_new(asked, "--min-bytes", number_or_default(o->bytes_min));
	json_object_set_new(asked, "--max-bytes", number_or_default(o->bytes_max));
	json_object_set_new(asked, "--factor", number_or_default(o->factor));
	json_object_set_new(asked, "--window", number_or_default(o->depth));
	json_object_set_new(asked, "--iterations",
	                    number_or_default((uint64_t)o->iterations));
	json_object_set_new(asked, "--warmup", warmup);
	json_object_set_new(asked, "--time", json_sprintf("%g", (double)o->time_ns / 1e9));
	json_object_set_new(asked, "--no-check",
	                    json_string(o->check ? "not given" : "given"));
	json_object_set_new(asked, "--memory", json_string(memories[o->memory]));
	json_object_set_new(asked, "--against", json_string(against[o->against]));
	json_object_set_new(asked, "--ranks", number_or_default((uint64_t)o->ranks));
	return asked;
}

/* Between rank 0 and another one. */
static void
find_difference(const json_t *first, const json_t *other, char *why, size_t size)
{
	json_t *asked = json_object_get(first, "asked"), *value;
	const json_t *theirs = json_object_get(other, "asked");
	const char *name;

	json_object_foreach(asked, name, value)
	{
		if (*why || json_equal(value, json_object_get(theirs, name)))
			continue;
		snprintf(why, size, "%s is %s on rank 0, and %s on rank %lld; all ranks "
		                    "have to be started alike",
		         name, json_string_value(value), tool_text(theirs, name),
		         tool_number(other, "rank"));
	}
}

static int
miss_ranks(const struct job *job, char *why, size_t size)
{
	snprintf(why, size, "ranks are missing: %s",
	         *job->why_alone ? job->why_alone
	                         : "what they were asked for cannot be read");
	return TOOL_BROKEN;
}

/* On rank 0.  The exit status. */
static int
judge(const struct job *job, const json_t *told, char *why, size_t size)
{
	const json_t *rank;
	size_t i;

	json_array_foreach(told, i, rank)
	{
		const char *refused = tool_text(rank, "refused");

		if (!*why && *refused && i == 0)
			snprintf(why, size, "%s", refused);
		else if (!*why && *refused)
			snprintf(why, size, "rank %lld: %s",
			         tool_number(rank, "rank"), refused);
	}
	json_array_foreach(told, i, rank)
	{
		find_difference(json_array_get(told, 0), rank, why, size);
	}
	if (!*why && json_array_size(told) < (size_t)job->size)
		return miss_ranks(job, why, size);
	return *why ? EX_USAGE : 0;
}

int
perf_agree(struct job *job, const struct perf_options *options, const char *refused,
           char *why, size_t size)
{
	json_t *told = job_gather(job, json_pack("{si ss so}", "rank", job->rank,
	                                         "refused", refused, "asked",
	                                         what_is_asked_for(options)));
	int status = 0;

	memset(why, 0, size);
	if (told)
		status = judge(job, told, why, size);
	json_decref(told);
	if (!job_share(job, why, size))
		return miss_ranks(job, why, size);
	return *why && status == 0 ? EX_USAGE : status;
}
