/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mixed load without MPI.  Ranks are threads, over the local transport and NCCL; with --near they are processes
 * that meet by an id, whose messages go through memory that they share.  The devices are those of the
 * environment (BATON_DEVICE, BATON_TRANSPORT).
 *
 * With --faults each run is a process of its own, since a driver's sticky error stays.  Where the load
 * goes on for long, RUNS_APART runs are one: what an aborted communicator leaves (memory that other
 * ranks of the process may still write) stays for the life of the process.
 */
#include "mixed.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared_memory.h"

#define RUNS_APART 50
#define SECONDS_APART 60

/* Shared with the processes of runs: they count. */
static struct mixed_job *job;
static struct {
	int runs; /* that have ended well */
	uint64_t seed; /* of the last one */
} *done;

/* ---- agreeing ----------------------------------------------------------- */

/* Shared with the ranks that are processes. */
static struct {
	pthread_mutex_t lock;
	int come, most, result;
	unsigned round;
	struct baton_unique_id id;
} *meeting;

static void
meeting_begin(void)
{
	pthread_mutexattr_t attributes;

	meeting = shared_alloc(sizeof(*meeting));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&meeting->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

static int
agree(int rank, int value, struct baton_comm *comm_or_null)
{
	unsigned round;
	bool over;
	int result;

	(void)rank;
	pthread_mutex_lock(&meeting->lock);
	round = meeting->round;
	if (meeting->come == 0 || value > meeting->most)
		meeting->most = value;
	if (++meeting->come == job->options.ranks) {
		meeting->come = 0;
		meeting->result = meeting->most;
		meeting->round++;
	}
	do {
		/* A rank cannot be two rounds ahead: the result is that of this one. */
		over = meeting->round != round;
		result = meeting->result;
		pthread_mutex_unlock(&meeting->lock);
		if (over)
			break;
		if (comm_or_null)
			(void)baton_progress(comm_or_null);
		sched_yield();
		pthread_mutex_lock(&meeting->lock);
	} while (true);
	return result;
}

static void
end_job(void)
{
	_exit(1);
}

/* ---- a run -------------------------------------------------------------- */

struct part {
	pthread_t thread;
	struct baton_comm *comm;
	uint64_t seed;
};

static void *
part_main(void *argument)
{
	struct part *part = argument;

	mixed_rank(job, part->seed, part->comm);
	return NULL;
}

/* Returns 0 or 1. */
static int
run_local(uint64_t seed)
{
	struct baton_comm_options options = mixed_comm_options(seed);
	struct baton_comm *comms[RANKS_MAX] = {NULL};
	struct part parts[RANKS_MAX];
	enum baton_status status;

	if (job->options.faults)
		memory_fail(seed);
	status = baton_comm_create_local(job->options.ranks, &options, comms);
	if (status != BATON_OK && job->options.faults)
		return 0;
	if (status != BATON_OK) {
		printf("no communicator: %s\n", baton_last_error());
		return 1;
	}
	for (int i = 0; i < job->options.ranks; i++) {
		parts[i] = (struct part){.comm = comms[i], .seed = seed};
		if (pthread_create(&parts[i].thread, NULL, part_main, &parts[i]))
			abort();
	}
	for (int i = 0; i < job->options.ranks; i++)
		pthread_join(parts[i].thread, NULL);
	if (!memory_is_well()) {
		printf("FAILED: run of seed %llu: rules were broken\n",
		       (unsigned long long)seed);
		return 1;
	}
	return 0;
}

/* A rank that is a process. */
_Noreturn static void
near_main(int rank, uint64_t seed)
{
	struct baton_comm_options options = mixed_comm_options(seed);
	struct baton_comm *comm = NULL;
	enum baton_status status = BATON_OK;

	if (!memory_begin(rank, 1)) {
		printf("SKIP: the driver is no simulator\n");
		exit(77);
	}
	if (rank == 0)
		status = baton_unique_id_create(&meeting->id);
	(void)agree(rank, 0, NULL);
	if (status == BATON_OK)
		status = baton_comm_create_id(job->options.ranks, rank,
		                              &meeting->id, &options, &comm);
	if (status != BATON_OK) {
		printf("no communicator: %s\n", baton_last_error());
		exit(1);
	}
	mixed_rank(job, seed, comm);
	exit(memory_is_well() ? 0 : 1);
}

/* Returns 0, 1, or 77.  The first process that fails ends the others, which would wait for it. */
static int
run_near(uint64_t seed)
{
	pid_t pids[RANKS_MAX];
	int result = 0, status;

	for (int i = 0; i < job->options.ranks; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			near_main(i, seed);
		if (pids[i] < 0)
			abort();
	}
	for (int left = job->options.ranks; left > 0; left--) {
		pid_t pid = wait(&status);

		for (int i = 0; i < job->options.ranks; i++) {
			if (pids[i] == pid)
				pids[i] = 0;
			else if (status != 0 && pids[i] > 0)
				kill(pids[i], SIGKILL);
		}
		if (status == 0 || result != 0)
			continue;
		result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (result == 1)
			printf("FAILED: run of seed %llu: status %#x\n",
			       (unsigned long long)seed, (unsigned)status);
	}
	return result;
}

static int
begin_and_run(uint64_t seed)
{
	static bool begun;

	if (job->options.near)
		return run_near(seed);
	if (!begun && !memory_begin(0, job->options.ranks)) {
		printf("SKIP: the driver is no simulator\n");
		return 77;
	}
	begun = true;
	return run_local(seed);
}

/* Is there no other run? */
static bool
is_over(time_t begun)
{
	const struct mixed_options *options = &job->options;

	return (options->runs > 0 && done->runs == options->runs) ||
	       (options->seconds > 0 && time(NULL) - begun >= options->seconds);
}

/* Up to n. */
static int
some_runs(int n, time_t begun)
{
	int result = 0;

	while (result == 0 && n-- > 0 && !is_over(begun)) {
		done->seed = mixed_seed(&job->options, done->runs);
		if (job->options.talks)
			printf("run %d, seed %llu\n", done->runs,
			       (unsigned long long)done->seed);
		fflush(stdout);
		result = begin_and_run(done->seed);
		done->runs += result == 0;
	}
	return result;
}

/* In a process of their own. */
static int
runs_apart(int n, time_t begun)
{
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		status = some_runs(n, begun);
		fflush(stdout);
		/* Behind a fault nobody looks for leaks. */
		if (job->options.faults)
			_exit(status);
		exit(status);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	printf("FAILED: run of seed %llu: signal %d\n",
	       (unsigned long long)done->seed, WTERMSIG(status));
	return 1;
}

/* How many runs are a process; 0: all are this one. */
static int
runs_of_process(void)
{
	const struct mixed_options *options = &job->options;
	bool is_long = options->runs == 0 || options->runs > RUNS_APART;

	if (options->near)
		return 0;
	if (options->faults)
		return 1;
	if (options->seconds > 0)
		is_long = options->seconds > SECONDS_APART;
	return is_long ? RUNS_APART : 0;
}

int
main(int argc, char **argv)
{
	time_t begun = time(NULL);
	int result = 0, apart;

	job = shared_alloc(sizeof(*job));
	done = shared_alloc(sizeof(*done));
	meeting_begin();
	job->options = mixed_options(argc, argv, 3);
	job->agree = agree;
	job->end_job = end_job;
	printf("seed %llu: %d ranks, %d steps\n",
	       (unsigned long long)job->options.seed, job->options.ranks,
	       job->options.steps);
	apart = runs_of_process();
	if (apart == 0)
		result = some_runs(INT_MAX, begun);
	while (apart > 0 && result == 0 && !is_over(begun))
		result = runs_apart(apart, begun);
	printf("%d runs, %llu operations, %llu completions (%llu lent), %llu "
	       "found, %llu aborts: %s\n",
	       done->runs, (unsigned long long)job->operations,
	       (unsigned long long)job->completions,
	       (unsigned long long)job->lent, (unsigned long long)job->found,
	       (unsigned long long)job->aborted,
	       result == 0    ? "ok"
	       : result == 77 ? "skipped"
	                      : "FAILED");
	return result;
}
