/* SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define TIMEOUT_NS INT64_C(60000000000)
#define NS_OF_S INT64_C(1000000000)
/* So long may the start of MPI take, beside the deadline of a creation. */
#define START_S 60
/* A rank's report has at most REPORT_BYTES, and REPORT_BYTES_EACH more for each rank of the job. */
#define REPORT_BYTES 65536u
#define REPORT_BYTES_EACH 128u

/* -1: it is no rank. */
static int
read_rank(const char *text)
{
	char *end;
	long rank;

	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	rank = strtol(text, &end, 10);
	return *end == '\0' && errno == 0 && rank <= INT_MAX ? (int)rank : -1;
}

/* Ranks that are threads share the default stream: none may stand on it. */
static struct job
new_job(int rank, int size)
{
	return (struct job){.rank = rank,
	                    .size = size,
	                    .detached = {.size = sizeof(struct baton_op_options),
	                                 .flags = BATON_OP_DETACHED}};
}

/* Variables in which launchers write the rank of a process, for when Baton cannot tell it. */
int
job_rank_of_launcher(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
	                                    "RANK", "SLURM_PROCID"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = getenv(names[i]);
		int rank = text ? read_rank(text) : -1;

		if (rank >= 0)
			return rank;
	}
	return 0;
}

static void
keep_sentence(char *text, size_t size, enum baton_status status)
{
	snprintf(text, size, "%s",
	         *baton_last_error() ? baton_last_error()
	                             : baton_status_text(status));
}

/* ---- the start of MPI, which has no deadline ---- */

/* A thread of its own, as the library blocks the signals of the one in which MPI starts. */
static void *
await_alarm(void *seconds)
{
	sigset_t alarms;
	int number;

	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	sigwait(&alarms, &number);
	fprintf(stderr,
	        "baton: rank %d: the ranks have not met in %u s: has one ended, or was "
	        "it started with another command?\n",
	        job_rank_of_launcher(), *(const unsigned *)seconds);
	_exit(TOOL_BROKEN);
}

/* MPI's start waits without a limit for a rank that never comes to it, as one whose arguments were refused: an alarm ends
 * this process then. */
static void
set_alarm(unsigned seconds)
{
	static unsigned patience;
	static bool awaited;
	sigset_t alarms;
	pthread_t thread;

	patience = seconds;
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	if (!awaited && pthread_create(&thread, NULL, await_alarm, &patience) == 0) {
		pthread_detach(thread);
		awaited = true;
	}
	alarm(seconds);
}

static enum baton_status
create(const struct baton_comm_options *options, struct baton_comm **comm_p)
{
	enum baton_status status;

	set_alarm((unsigned)(options->timeout_ns / NS_OF_S) + START_S);
	status = baton_comm_create(options, comm_p);
	alarm(0);
	return status;
}

/* ---- the communicators ---- */

static void
open_comm(struct job *job, const struct baton_comm_options *options)
{
	enum baton_status status = create(options, &job->comm);

	if (status != BATON_OK)
		keep_sentence(job->why_not, sizeof(job->why_not), status);
}

/* The creation of `host` may succeed where that of `comm` is refused: it needs no GPU. */
static void
open_host(struct job *job, int64_t timeout_ns)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	enum baton_status status;

	options.device = BATON_DEVICE_HOST;
	options.timeout_ns = timeout_ns;
	status = create(&options, &job->host);
	if (status != BATON_OK)
		keep_sentence(job->why_alone, sizeof(job->why_alone), status);
}

/* From what there is. */
static void
find_place(struct job *job)
{
	struct baton_comm *any = job->host ? job->host : job->comm;

	job->rank = any ? baton_comm_rank(any) : job_rank_of_launcher();
	job->size = any ? baton_comm_size(any) : 1;
}

void
job_open(struct job *job)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	*job = new_job(0, 1);
	options.timeout_ns = TIMEOUT_NS;
	open_comm(job, &options);
	open_host(job, TIMEOUT_NS);
	find_place(job);
}

void
job_open_host(struct job *job)
{
	*job = new_job(0, 1);
	open_host(job, TIMEOUT_NS);
	find_place(job);
}

void
job_open_comm(struct job *job, const struct baton_comm_options *options)
{
	job->detached.timeout_ns = options->timeout_ns;
	open_comm(job, options);
}

void
job_open_thread(struct job *job, int rank, int size,
                const struct baton_unique_id ids[2],
                const struct baton_comm_options *options)
{
	struct baton_comm_options host = BATON_COMM_OPTIONS_INIT;
	enum baton_status status;

	*job = new_job(rank, size);
	status = baton_comm_create_id(size, rank, &ids[0], options, &job->comm);
	if (status != BATON_OK)
		keep_sentence(job->why_not, sizeof(job->why_not), status);
	host.device = BATON_DEVICE_HOST;
	host.timeout_ns = options->timeout_ns;
	status = baton_comm_create_id(size, rank, &ids[1], &host, &job->host);
	if (status != BATON_OK)
		keep_sentence(job->why_alone, sizeof(job->why_alone), status);
}

/* Wait for one message.  The bytes that came; 0: it failed, and why_alone says why. */
static size_t
finish(struct job *job, baton_request *request, enum baton_status status)
{
	struct baton_completion done = {0};

	if (status != BATON_OK) {
		keep_sentence(job->why_alone, sizeof(job->why_alone), status);
		return 0;
	}
	if (baton_wait(*request, -1, &done) != BATON_OK)
		baton_request_error(*request, job->why_alone,
		                    sizeof(job->why_alone));
	baton_release(request);
	return done.status == BATON_OK ? done.bytes : 0;
}

static void
tell(struct job *job, const json_t *mine)
{
	char *text = json_dumps(mine, JSON_COMPACT);
	baton_request request = BATON_REQUEST_NULL;

	if (text)
		finish(job, &request,
		       baton_send(text, strlen(text), BATON_UINT8, 0, 0,
		                  job->host, NULL, &job->detached, &request));
	free(text);
}

static json_t *
hear(struct job *job, int rank, char *text, size_t size)
{
	baton_request request = BATON_REQUEST_NULL;
	size_t bytes = finish(job, &request,
	                      baton_recv(text, size, BATON_UINT8, rank, 0,
	                                 job->host, NULL, &job->detached,
	                                 &request));

	return bytes > 0 ? json_loadb(text, bytes, 0, NULL) : NULL;
}

json_t *
job_gather(struct job *job, json_t *mine)
{
	size_t size = REPORT_BYTES + REPORT_BYTES_EACH * (size_t)job->size;
	json_t *all = NULL;
	char *text;

	if (job->rank != 0) {
		if (job->host)
			tell(job, mine);
		json_decref(mine);
		return NULL;
	}
	all = json_array();
	json_array_append_new(all, mine);
	text = job->host ? malloc(size) : NULL;
	for (int rank = 1; text && rank < job->size; rank++) {
		json_t *theirs = hear(job, rank, text, size);

		if (theirs)
			json_array_append_new(all, theirs);
	}
	free(text);
	return all;
}

bool
job_is_cut_off(const struct job *job, const char *command)
{
	if (job->rank == 0 || !*job->why_alone)
		return false;
	fprintf(stderr, "baton %s: rank %d cannot report to rank 0: %s\n", command,
	        job->rank, job->why_alone);
	return true;
}

bool
job_share(struct job *job, void *data, size_t bytes)
{
	bool well = job->host != NULL;

	/* A rank that is gone does not keep it from those behind. */
	for (int peer = 1; job->host && peer < job->size; peer++) {
		baton_request request = BATON_REQUEST_NULL;
		enum baton_status status;

		if (job->rank == 0)
			status = baton_send(data, bytes, BATON_UINT8, peer, 0,
			                    job->host, NULL, &job->detached, &request);
		else if (job->rank == peer)
			status = baton_recv(data, bytes, BATON_UINT8, 0, 0,
			                    job->host, NULL, &job->detached, &request);
		else
			continue;
		well = finish(job, &request, status) == bytes && well;
	}
	return well;
}

void
job_tell_printed(struct job *job)
{
	char printed = 1;

	if (job->rank == 0 || !*job->why_alone)
		job_share(job, &printed, sizeof(printed));
}

bool
job_meet(struct job *job)
{
	baton_request request = BATON_REQUEST_NULL;
	enum baton_status status;

	if (!job->host)
		return false;
	status = baton_barrier(job->host, NULL, &job->detached, &request);
	finish(job, &request, status);
	return *job->why_alone == '\0';
}

/* A communicator whose ranks do not agree to leave it is aborted, so that the process ends. */
static void
close_comm(struct baton_comm *comm)
{
	if (baton_comm_destroy(comm) == BATON_OK)
		return;
	baton_comm_abort(comm);
	baton_comm_destroy(comm);
}

void
job_close(struct job *job)
{
	/* A rank that has not answered would be waited for once more. */
	if (job->host && *job->why_alone)
		baton_comm_abort(job->host);
	if (job->host)
		close_comm(job->host);
	if (job->comm)
		close_comm(job->comm);
}
