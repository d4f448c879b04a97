/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `baton perf`: measure what goes between ranks here.
 *
 * The ranks are the processes of the job.  A process alone has threads for them.  All run the same tests and sizes in
 * the same order; rank 0 decides what depends on what was seen (perf_measure.c), and has the report.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "cuda.h"
#include "perf.h"
#include "tool.h"

#define PATIENCE_NS UINT64_C(60000000000)
#define THREADS_MAX 64

const struct perf_test perf_tests[] = {
	{"latency", "half a round trip of a message", PERF_LATENCY, "us", 8, 4194304},
	{"bandwidth", "a message of a window", PERF_WINDOW, "gbytes_per_s", 4096, 4194304},
	{"rate", "a message of a window", PERF_WINDOW, "messages_per_us", 1, 1024},
	{"put", "half a round trip of a put, to the end of the wait for its signal", PERF_PUT, "us", 8, 4194304},
	{"puts", "a put of a window", PERF_PUTS, "gbytes_per_s", 8, 4194304},
	{"ring", "a message to the next rank and one from the rank before", PERF_RING, "us", 8, 4194304},
	{"alltoall", "a message to each rank and one from each", PERF_ALL, "us", 8, 1048576},
	{"overlap", "a message beside computing that takes as long", PERF_OVERLAP, "hidden", 65536, 4194304},
};
const size_t perf_tests_count = sizeof(perf_tests) / sizeof(perf_tests[0]);

/* An operation can end in it, so the last refusal may be an earlier call's. */
static bool
is_of_completion(enum baton_status status)
{
	return status == BATON_ERR_TRUNCATED || status == BATON_ERR_MISMATCH ||
	       status == BATON_ERR_TIMEOUT || status == BATON_ERR_CANCELED ||
	       status == BATON_ERR_ABORTED || status == BATON_ERR_PEER;
}

void
perf_fail(struct perf_rank *rank, const char *call, enum baton_status status)
{
	const char *why = baton_comm_error(rank->end.comm);
	const char *last = baton_last_error();
	size_t length = strlen(call);
	bool own = strncmp(last, call, length) == 0 && last[length] == ':';

	if (*rank->failed)
		return;
	if (!*why && own)
		why = last + length + strspn(last + length, ": ");
	else if (!*why && *last && !is_of_completion(status))
		why = last;
	else if (!*why)
		why = baton_status_text(status);
	snprintf(rank->failed, sizeof(rank->failed), "%s: %s: %s", call,
	         baton_status_name(status), why);
}

/* ---- tests ---- */

/* The report, on rank 0; `go` is what all have of it. */
struct report {
	json_t *tree;
	bool go, bad;
};

/* Beside the lines of a terminal, and only there. */
static void
show_progress(const struct perf_rank *rank, size_t bytes)
{
	if (rank->job->rank == 0 && isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s %zu bytes ... ", rank->test->name, bytes);
}

static void
clear_progress(const struct perf_rank *rank)
{
	if (rank->job->rank == 0 && isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

static bool
is_good(const json_t *row)
{
	return json_array_size(json_object_get(row, "failed")) == 0 &&
	       tool_number(row, "wrong") == 0 && json_object_get(row, "us");
}

/* Rank 0 has a row: it is kept, and printed unless all is printed at the end. */
static void
keep_row(struct report *report, const struct perf_options *options, json_t *row)
{
	report->bad = report->bad || !is_good(row);
	/* Wrong data are told of and do not stop what follows; a failure does. */
	report->go = json_object_get(row, "us") &&
	             json_array_size(json_object_get(row, "failed")) == 0;
	json_array_append_new(json_object_get(report->tree, "rows"), row);
	if (options->json)
		return;
	perf_print_row(row, options->csv);
	fflush(stdout);
}

static void
run_sizes(struct perf_rank *rank, struct report *report, size_t least,
          size_t most)
{
	uint64_t number = 1;

	for (size_t bytes = least; bytes <= most && report->go;
	     bytes *= rank->options->factor, number++) {
		json_t *row;

		show_progress(rank, bytes);
		row = perf_row(rank, bytes, number);
		clear_progress(rank);
		report->go = false;
		if (row)
			keep_row(report, rank->options, row);
		if (!job_share(rank->job, &report->go, sizeof(report->go)))
			report->go = false;
	}
}

static void
set_pair(struct perf_rank *rank)
{
	int pairs = rank->end.size / 2;
	bool all = rank->test->pattern == PERF_RING ||
	           rank->test->pattern == PERF_ALL;

	rank->takes_part = all || rank->end.rank < 2 * pairs;
	rank->end.first = rank->end.rank < pairs;
	rank->end.peer = rank->end.first ? rank->end.rank + pairs
	                                 : rank->end.rank - pairs;
	if (!rank->takes_part)
		rank->end.peer = rank->end.rank;
}

/* Collective.  A rank that got no buffers has told so in the row, and ends the run. */
static void
run_test(struct perf_rank *rank, struct report *report)
{
	const struct perf_options *o = rank->options;
	const struct perf_test *test = rank->test;
	size_t least = o->bytes_min ? o->bytes_min : test->bytes_min;
	size_t most = o->bytes_max ? o->bytes_max : test->bytes_max;
	struct baton_comm_info info = {.size = sizeof(info)};

	/* One of the two was asked for, and is beyond the test's own. */
	if (least > most && o->bytes_min)
		most = least;
	else if (least > most)
		least = most;
	baton_comm_query(rank->end.comm, &info);
	set_pair(rank);
	if ((test->pattern == PERF_PUT || test->pattern == PERF_PUTS) &&
	    !(info.capabilities & BATON_CAP_WINDOWS)) {
		if (report->tree)
			json_array_append_new(json_object_get(report->tree,
			                                      "left_out"),
			                      json_string(test->name));
		return;
	}
	perf_data_open(rank, most);
	if (report->tree && !o->json && !o->csv)
		perf_print_test(report->tree, test);
	run_sizes(rank, report, least, most);
	perf_data_close(rank);
}

/* ---- all ---- */

static const char *
path_name(unsigned paths, const struct baton_comm_info *info)
{
	return paths == BATON_MESSAGE_PATH_NEAR        ? "near"
	       : paths == BATON_MESSAGE_PATH_TRANSPORT ? info->transport_name
	                                               : "near and by the transport";
}

static json_t *
start_report(const struct perf_rank *rank, bool threads)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	baton_comm_query(rank->end.comm, &info);
	return json_pack("{ss si sb ss ss ss ss ss si s[] s[]}", "version",
	                 baton_version(), "ranks", info.ranks, "threads", threads,
	                 "device", info.device_name, "transport",
	                 info.transport_name, "library", info.library,
	                 "messages", path_name(info.message_paths, &info),
	                 "against",
	                 rank->raw ? perf_raw_name(rank->options->against) : "",
	                 "pairs", info.ranks / 2, "rows", "left_out");
}

static void
finish_report(const struct perf_rank *rank, struct report *report)
{
	const struct perf_options *o = rank->options;

	json_object_set_new(report->tree, "ranks_missing",
	                    json_string(rank->job->why_alone));
	report->bad = report->bad || *rank->job->why_alone;
	if (o->json)
		tool_print_json(report->tree);
	else if (!o->csv)
		perf_print_end(report->tree);
	if (o->plot && !perf_plot(report->tree, o->plot))
		report->bad = true;
	if (*rank->job->why_alone)
		fprintf(stderr, "baton perf: ranks are missing: %s\n",
		        rank->job->why_alone);
}

/* Nothing is measured.  The exit status, and rank 0's sentence; of another rank if it does not hear rank 0. */
static int
complain(const struct job *job, int status, const char *why)
{
	if (job->rank != 0)
		return job_is_cut_off(job, "perf") ? TOOL_BROKEN : 0;
	fprintf(stderr, "baton perf: %s\n", why);
	return status;
}

/* Why the job's communicator is not what is to be measured; alike on all ranks.  False: it is. */
static bool
refuses_comm(const struct job *job, const struct baton_comm_info *info, char *why,
             size_t size)
{
	const char *used = path_name(info->message_paths, info);
	const char *asked = getenv("BATON_MESSAGE_PATH");

	if (info->ranks != job->size && strcmp(info->transport_name, "local") == 0) {
		snprintf(why, size, "the local transport moves messages between "
		                    "threads of one process, and the %d ranks of this "
		                    "job are processes; leave it out, or start one "
		                    "process alone",
		         job->size);
		return true;
	}
	if (info->ranks != job->size) {
		snprintf(why, size, "over %s a communicator has %d of the job's %d "
		                    "ranks; start them by mpirun -np %d baton perf",
		         info->transport_name, info->ranks, job->size, job->size);
		return true;
	}
	if (!asked || !*asked || strcmp(asked, "auto") == 0 ||
	    strcmp(asked, used) == 0)
		return false;
	snprintf(why, size, "messages are to go by %s (--path, or BATON_MESSAGE_PATH), "
	                    "and here they go by %s%s",
	         asked, used,
	         strcmp(used, "local") == 0
	                 ? ", between threads of a process alone; mpirun -np 2 "
	                   "baton perf has ranks that are processes"
	                 : "");
	return true;
}

static bool
open_rank(struct perf_rank *rank, char *why, size_t size)
{
	struct job *job = rank->job;
	struct baton_comm_info info = {.size = sizeof(info)};
	bool plots = !rank->options->plot || job->rank != 0 || perf_can_plot();
	enum baton_status status;

	if (!job->comm || !job->host) {
		snprintf(why, size, "%s",
		         job->comm ? job->why_alone : job->why_not);
		return false;
	}
	job_share(job, &plots, sizeof(plots));
	if (!plots) {
		snprintf(why, size, "--plot needs gnuplot, and there is none in PATH "
		                    "(Debian and Ubuntu: apt-get install "
		                    "gnuplot-nox)");
		return false;
	}
	baton_comm_query(job->comm, &info);
	if (refuses_comm(job, &info, why, size))
		return false;
	rank->end = (struct perf_end){.comm = job->comm, .rank = info.rank,
	                              .size = info.ranks};
	rank->gpu = info.device == BATON_DEVICE_CUDA ? info.cuda_device : -1;
	if (rank->gpu >= 0)
		tool_gpu_enter(rank->gpu, rank->failed, sizeof(rank->failed));
	status = baton_stream_create(job->comm, &rank->end.stream);
	if (status != BATON_OK)
		perf_fail(rank, "baton_stream_create", status);
	return perf_raw_open(rank, why, size);
}

static void
close_rank(struct perf_rank *rank)
{
	perf_raw_close(rank);
	if (*rank->failed)
		baton_comm_abort(rank->end.comm);
	else if (rank->end.stream)
		baton_stream_synchronize(rank->end.comm, rank->end.stream);
	if (rank->end.stream)
		baton_stream_destroy(rank->end.comm, rank->end.stream);
}

/* Collective: this rank's part of all.  The exit status, which is 0 on all ranks but 0, unless rank 0's word does not
 * come any more. */
static int
run_rank(struct job *job, const struct perf_options *options, bool threads)
{
	struct perf_rank rank = {.job = job, .options = options, .gpu = -1};
	struct report report = {.go = true};
	char why[600] = "";

	if (!open_rank(&rank, why, sizeof(why))) {
		close_rank(&rank);
		return complain(job, TOOL_BROKEN, why);
	}
	if (job->rank == 0) {
		report.tree = start_report(&rank, threads);
		if (options->csv)
			perf_print_csv_head();
		else if (!options->json)
			perf_print_head(report.tree);
	}
	for (size_t i = 0; i < perf_tests_count && report.go; i++) {
		rank.test = &perf_tests[i];
		if (options->tests & (1u << i))
			run_test(&rank, &report);
	}
	close_rank(&rank);
	if (report.tree)
		finish_report(&rank, &report);
	json_decref(report.tree);
	return job_is_cut_off(job, "perf") || report.bad ? TOOL_BROKEN : 0;
}

/* ---- ranks that are threads ---- */

struct thread {
	pthread_t thread;
	int rank, size;
	const struct baton_unique_id *ids;
	const struct perf_options *options;
	const struct baton_comm_options *comm;
	int status;
};

static void *
run_thread(void *argument)
{
	struct thread *thread = argument;
	struct job job;

	job_open_thread(&job, thread->rank, thread->size, thread->ids,
	                thread->comm);
	thread->status = run_rank(&job, thread->options, true);
	job_close(&job);
	return NULL;
}

static int
run_threads(const struct perf_options *options,
            const struct baton_comm_options *comm)
{
	struct thread threads[THREADS_MAX];
	struct baton_unique_id ids[2];
	int size = options->ranks ? options->ranks : 2;

	for (int i = 0; i < 2; i++) {
		if (baton_unique_id_create(&ids[i]) == BATON_OK)
			continue;
		fprintf(stderr, "baton perf: %s\n", baton_last_error());
		return TOOL_BROKEN;
	}
	for (int i = 0; i < size; i++) {
		threads[i] = (struct thread){.rank = i, .size = size, .ids = ids,
		                             .options = options, .comm = comm};
		if (pthread_create(&threads[i].thread, NULL, run_thread,
		                   &threads[i]) == 0)
			continue;
		fprintf(stderr, "baton perf: this process gets no more threads\n");
		_exit(TOOL_BROKEN); /* the others wait for it */
	}
	for (int i = 0; i < size; i++)
		pthread_join(threads[i].thread, NULL);
	return threads[0].status;
}

static int
refuse_ranks(const struct job *job)
{
	if (job->rank != 0)
		return 0;
	fprintf(stderr, "baton perf: --ranks is for a process alone; this job has "
	                "%d\n",
	        job->size);
	return EX_USAGE;
}

/* Not a process alone, but a rank of a job that cannot be: threads are not what it asked for. */
static int
refuse_job(const struct job *job)
{
	fprintf(stderr, "baton perf: %s\n", job->why_alone);
	return TOOL_BROKEN;
}

/* Why what is measured would be something else than what the environment asks for, or "". */
static void
find_refused(char *why, size_t size)
{
	struct baton_variable_info info = {.size = sizeof(info)};

	*why = '\0';
	for (size_t i = 0; baton_variable(i, &info) == BATON_OK; i++) {
		size_t length = strlen(why);

		if (info.source == BATON_VARIABLE_REFUSED)
			snprintf(why + length, size - length, "%s%s is \"%s\"; it takes %s",
			         length > 0 ? "; " : "", info.name,
			         getenv(info.name), info.values);
	}
}

/* Ranks that are processes.  The exit status. */
static int
run_job(struct job *job, const struct perf_options *options,
        const struct baton_comm_options *comm, const char *refused)
{
	char why[600];
	int status = perf_agree(job, options, refused, why, sizeof(why));

	if (status != 0)
		return complain(job, status, why);
	if (options->ranks)
		return refuse_ranks(job);
	job_open_comm(job, comm);
	return run_rank(job, options, false);
}

int
perf_main(int argc, char **argv)
{
	struct baton_comm_options comm = BATON_COMM_OPTIONS_INIT;
	struct perf_options options;
	char refused[512];
	struct job job;
	int status;

	perf_parse(argc, argv, &options);
	find_refused(refused, sizeof(refused));
	comm.device = options.device;
	comm.transport = options.transport;
	/* The others of a row may take so long. */
	comm.timeout_ns = (int64_t)(PATIENCE_NS + 4 * options.time_ns);
	job_open_host(&job);
	if (job.size == 1 && *refused) {
		fprintf(stderr, "baton perf: %s\n", refused);
		status = EX_USAGE;
	} else if (!job.host) {
		status = refuse_job(&job);
	} else if (job.size == 1) {
		job_close(&job);
		return run_threads(&options, &comm);
	} else {
		status = run_job(&job, &options, &comm, refused);
	}
	fflush(stdout);
	job_close(&job);
	return status;
}
