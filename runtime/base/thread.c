/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread.h"

#include <pthread.h>
#include <signal.h>

#include "clock.h"

_Thread_local struct batoni_thread batoni_thread
	__attribute__((tls_model("initial-exec")));
atomic_bool batoni_forked;

static pthread_once_t once = PTHREAD_ONCE_INIT;

enum baton_status
batoni_refuse_caller(const char *call)
{
	if (batoni_thread.launched)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s was called from a function launched on "
		                     "a stream; launched functions may not call "
		                     "Baton",
		                     call);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s was called in a forked child; only the process "
	                     "that first used Baton may",
	                     call);
}

void
batoni_signals_block(sigset_t *before_p)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
	                             SIGSYS};
	sigset_t blocked;

	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&blocked, faults[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, before_p);
}

int
batoni_thread_start(pthread_t *thread_p, void *(*main)(void *), void *arg)
{
	sigset_t before;
	int error;

	/* The thread inherits the mask. */
	batoni_signals_block(&before);
	error = pthread_create(thread_p, NULL, main, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

/* ---- jobs ---- */

static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_ended; /* some job has */
static pthread_once_t job_once = PTHREAD_ONCE_INIT;

static void
init_jobs(void)
{
	batoni_cond_init(&job_ended);
}

static void *
job_main(void *argument)
{
	struct batoni_job *job = argument;
	bool given_up;

	job->run(job);
	pthread_mutex_lock(&jobs_lock);
	job->done = true;
	given_up = job->given_up;
	pthread_cond_broadcast(&job_ended);
	pthread_mutex_unlock(&jobs_lock);
	/* Unless it was given up, it is the caller's from here on. */
	if (given_up)
		job->cleanup(job);
	return NULL;
}

int
batoni_job_start(struct batoni_job *job)
{
	pthread_t thread;
	int error;

	pthread_once(&job_once, init_jobs);
	error = batoni_thread_start(&thread, job_main, job);
	if (!error)
		pthread_detach(thread);
	return error;
}

static bool
await_locked(struct batoni_job *job, uint64_t until_ns)
{
	bool waits = until_ns > 0;

	while (!job->done && waits)
		waits = batoni_cond_wait(&job_ended, &jobs_lock, until_ns);
	return job->done;
}

bool
batoni_job_await(struct batoni_job *job, uint64_t until_ns)
{
	bool done;

	pthread_mutex_lock(&jobs_lock);
	done = await_locked(job, until_ns);
	pthread_mutex_unlock(&jobs_lock);
	return done;
}

bool
batoni_job_finish(struct batoni_job *job, uint64_t until_ns)
{
	bool done;

	pthread_mutex_lock(&jobs_lock);
	done = await_locked(job, until_ns);
	job->given_up = !done;
	pthread_mutex_unlock(&jobs_lock);
	return done;
}

bool
batoni_job_take_up(struct batoni_job *job)
{
	bool done;

	pthread_mutex_lock(&jobs_lock);
	done = job->done;
	if (!done)
		job->given_up = false;
	pthread_mutex_unlock(&jobs_lock);
	return !done;
}

/* ---- cancellation, and forks ---- */

void
batoni_cancel_off(void)
{
	struct batoni_thread *self = &batoni_thread;

	if (self->uncancellable)
		return;
	self->uncancellable = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &self->cancel_state);
}

void
batoni_cancel_restore(void)
{
	struct batoni_thread *self = &batoni_thread;

	self->uncancellable = false;
	pthread_setcancelstate(self->cancel_state, NULL);
}

static void
in_child(void)
{
	atomic_store(&batoni_forked, true);
}

static void
watch(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

void
batoni_watch_forks(void)
{
	pthread_once(&once, watch);
}
