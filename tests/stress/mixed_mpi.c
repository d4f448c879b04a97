/* SPDX-License-Identifier: BSD-3-Clause */
/* The mixed load where ranks are processes: over MPI, and NCCL over MPI.  With --faults there is one
 * run, since a driver's sticky error stays. */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "baton_mpi.h"
#include "mixed.h"
#include "shm.h"

static struct mixed_job job;
static MPI_Comm meeting;

static int
agree(int rank, int value, struct baton_comm *comm_or_null)
{
	MPI_Request request;
	int most = value, over = 0;

	(void)rank;
	MPI_Iallreduce(&value, &most, 1, MPI_INT, MPI_MAX, meeting, &request);
	while (!over) {
		if (comm_or_null)
			(void)baton_progress(comm_or_null);
		sched_yield();
		MPI_Test(&request, &over, MPI_STATUS_IGNORE);
	}
	return most;
}

static void
end_job(void)
{
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Rank 0 says whether there is another run. */
static bool
goes_on(int run, int rank, time_t begun)
{
	const struct mixed_options *options = &job.options;
	int more = (options->runs == 0 || run < options->runs) &&
	           (options->seconds == 0 ||
	            time(NULL) - begun < options->seconds) &&
	           !(options->faults && run > 0);

	return agree(rank, rank == 0 && more, NULL);
}

static int
runs(int rank)
{
	time_t begun = time(NULL);
	int run = 0;

	for (; goes_on(run, rank, begun); run++) {
		uint64_t seed = mixed_seed(&job.options, run);
		struct baton_comm_options options = mixed_comm_options(seed);
		struct baton_comm *comm = NULL;
		enum baton_status status;

		if (job.options.talks && rank == 0)
			printf("run %d, seed %llu\n", run,
			       (unsigned long long)seed);
		fflush(stdout);
		if (job.options.faults && (int)(seed % 3) == rank)
			memory_fail(seed);
		status = baton_comm_create_mpi(MPI_COMM_WORLD, &options, &comm);
		if (status == BATON_OK)
			mixed_rank(&job, seed, comm);
		else if (!job.options.faults)
			printf("no communicator: %s\n", baton_last_error());
		if (status != BATON_OK && !job.options.faults)
			end_job();
	}
	return run;
}

int
main(int argc, char **argv)
{
	int level, rank, size, run, bad;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	job.options = mixed_options(argc, argv, size);
	if (job.options.far)
		batoni_shm_pretend_node(rank % 2 != 0);
	if (level < MPI_THREAD_MULTIPLE || !memory_begin(rank, 1)) {
		printf("SKIP: %s\n", level < MPI_THREAD_MULTIPLE
		                             ? "this MPI has no "
		                               "MPI_THREAD_MULTIPLE"
		                             : "the driver is no simulator");
		MPI_Finalize();
		return 77;
	}
	job.agree = agree;
	job.end_job = end_job;
	MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
	/* All ranks draw from the same seed. */
	MPI_Bcast(&job.options.seed, 1, MPI_UINT64_T, 0, meeting);
	if (rank == 0)
		printf("seed %llu: %d ranks, %d steps\n",
		       (unsigned long long)job.options.seed, size,
		       job.options.steps);
	run = runs(rank);
	bad = agree(rank, !memory_is_well(), NULL);
	if (rank == 0)
		printf("%d runs, of this rank %llu operations, %llu completions "
		       "(%llu lent), %llu found, %llu aborts: %s\n",
		       run, (unsigned long long)job.operations,
		       (unsigned long long)job.completions,
		       (unsigned long long)job.lent,
		       (unsigned long long)job.found,
		       (unsigned long long)job.aborted, bad ? "FAILED" : "ok");
	MPI_Comm_free(&meeting);
	MPI_Finalize();
	return bad;
}
