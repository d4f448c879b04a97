/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator of some ranks of another one, for a bootstrap of theirs (transport/mpi/derive.c).
 *
 * MPI_Comm_create_group is called by these ranks alone, so that other ones, of other colors or in no group,
 * have no part in it.  (A duplicate of the whole communicator would do for one split, but could not be split
 * again without them.)  It has no form that is polled, and waits for the others inside MPI, though all have said
 * that they will call.  So at MPI_THREAD_MULTIPLE it is a job (thread.h), which the exchanges of the bootstrap
 * poll, and the driver lock is not held meanwhile: the engine and the other threads of the process go on, and a
 * creation that gives up (a rank has died, or does not come) leaves the job's thread in MPI.  What that brings
 * too late stays with MPI.
 *
 * Below MPI_THREAD_MULTIPLE, MPI takes one thread at a time.  The call is made by the thread that creates, with the lock held, and
 * has no limit.  So it is where there is no memory or thread for a job.
 *
 * MPI keeps the tag of the call apart from those of messages, says its standard.  Open MPI 4.1 does not: its own
 * messages in the call have that tag, on the parent, so a receive or a probe of the tag (or of any) would take them,
 * and the new communicator could get the context of another one.  So the tag is one that nothing else has.
 *
 * Threads.  The thread that creates, then with the driver lock; `run` on the job's.
 */
#include "log.h"
#include "mem.h"
#include "mpi_bootstrap.h"
#include "thread.h"

struct batoni_mpi_some {
	struct batoni_job job; /* must be first */
	MPI_Comm parent, comm;
	MPI_Group group;
	int tag, code;
};

static void
run_some(struct batoni_job *job)
{
	struct batoni_mpi_some *some = (void *)job;

	some->code = MPI_Comm_create_group(some->parent, some->group, some->tag,
	                                   &some->comm);
	MPI_Group_free(&some->group);
}

static void
cleanup_made(struct batoni_job *job)
{
	batoni_mem_keep(-1);
	batoni_free(job);
}

static int
make_group(MPI_Comm parent, const int ranks[], int size, MPI_Group *group_p)
{
	MPI_Group all;
	int code = MPI_Comm_group(parent, &all);

	if (code != MPI_SUCCESS)
		return code;
	code = MPI_Group_incl(all, size, ranks, group_p);
	MPI_Group_free(&all);
	return code;
}

int
batoni_mpi_some_begin(struct batoni_mpi_boot *boot, const int ranks[], int size,
                      int tag)
{
	struct batoni_mpi_some own = {.job = {.run = run_some, .cleanup = cleanup_made},
	                              .parent = boot->parent,
	                              .comm = MPI_COMM_NULL,
	                              .tag = tag};
	int code = make_group(boot->parent, ranks, size, &own.group);

	if (code != MPI_SUCCESS)
		return code;
	if (boot->level == MPI_THREAD_MULTIPLE)
		boot->some = batoni_alloc(1, sizeof(own));
	if (boot->some) {
		*boot->some = own;
		boot->phase = BATONI_MPI_MEETING;
		if (batoni_job_start(&boot->some->job) == 0)
			return MPI_SUCCESS;
		batoni_free(boot->some);
		boot->some = NULL;
	}
	run_some(&own.job);
	boot->comm = own.code == MPI_SUCCESS ? own.comm : MPI_COMM_NULL;
	/* The next thing to do is as after a duplication. */
	boot->phase = BATONI_MPI_DUPLICATING;
	return own.code;
}

bool
batoni_mpi_some_test(struct batoni_mpi_boot *boot, int *code_p)
{
	struct batoni_mpi_some *some = boot->some;

	if (!batoni_job_await(&some->job, 0))
		return false;
	*code_p = some->code;
	boot->comm = some->code == MPI_SUCCESS ? some->comm : MPI_COMM_NULL;
	boot->some = NULL;
	batoni_free(some);
	return true;
}

bool
batoni_mpi_some_abandon(struct batoni_mpi_boot *boot)
{
	struct batoni_mpi_some *some = boot->some;
	int code;

	if (batoni_mpi_some_test(boot, &code))
		return true;
	boot->some = NULL;
	batoni_mem_keep(1);
	/* True: it has ended just now. */
	if (batoni_job_finish(&some->job, 0))
		cleanup_made(&some->job);
	return false;
}
