/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting MPI, and its end where Baton has started it: at exit, in the same process only (a child
 * of fork has no MPI).  Launchers take a process that exits without MPI_Finalize for a failure:
 * mpirun then ends the other ranks and returns an error, unless an option forbids it (Open MPI:
 * --enable-recovery; MPICH: mpiexec.gforker, docs/transports.md).  But MPI_Finalize waits for all
 * ranks, so the transport says whether it may be called (transport/mpi/finish.c).
 *
 * Locks: start_lock, so that one thread starts MPI; it guards the statics.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "mpi_bootstrap.h"
#include "thread.h"

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t starter; /* the process in which Baton initialised MPI, or 0 */
static bool (*stop_engine)(void);
static bool (*_Atomic may_finalize)(int exit_status); /* NULL: no transport was opened */
static atomic_bool at_exit;

bool
batoni_mpi_initialized(void)
{
	int yes = 0;

	MPI_Initialized(&yes);
	return yes;
}

bool
batoni_mpi_finalized(void)
{
	int yes = 0;

	MPI_Finalized(&yes);
	return yes;
}

/* ---- at exit ---- */

void
batoni_mpi_ask_at_exit(bool (*may)(int exit_status))
{
	atomic_store(&may_finalize, may);
}

bool
batoni_mpi_is_at_exit(void)
{
	return atomic_load(&at_exit);
}

static void
finalize_at_exit(int exit_status, void *unused)
{
	bool (*may)(int exit_status) = atomic_load(&may_finalize);

	(void)unused;
	if (getpid() != starter || !stop_engine())
		return;
	atomic_store(&at_exit, true);
	if (!batoni_mpi_finalized() && (!may || may(exit_status)))
		MPI_Finalize();
}

#ifndef __GLIBC__
/* The C library does not tell the status. */
static void
finalize_at_some_exit(void)
{
	finalize_at_exit(-1, NULL);
}
#endif

static void
finalize_later(const struct batoni_engine_calls *engine)
{
	stop_engine = engine->stop;
	starter = getpid();
#ifdef __GLIBC__
	on_exit(finalize_at_exit, NULL);
#else
	atexit(finalize_at_some_exit);
#endif
}

/* ---- the start ---- */

enum baton_status
batoni_mpi_start(const struct batoni_engine_calls *engine)
{
	enum baton_status status = BATON_OK;
	int provided, code;
	sigset_t mask;

	pthread_mutex_lock(&start_lock);
	if (batoni_mpi_finalized()) {
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "MPI has been finalised in this process "
		                       "and cannot run again");
	} else if (!batoni_mpi_initialized()) {
		/* Threads that MPI starts inherit the mask: the program's signals go to
		 * the program's threads, as with ours. */
		batoni_signals_block(&mask);
		code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE,
		                       &provided);
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
		if (code != MPI_SUCCESS)
			status = batoni_refuse(BATON_ERR_MPI,
			                       "MPI_Init_thread failed");
		else
			finalize_later(engine);
	}
	pthread_mutex_unlock(&start_lock);
	return status;
}
