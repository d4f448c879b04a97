/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Per-thread state, the check whether a thread may call Baton, and jobs.
 *
 * A job is a call of another library that may block for as long as something else stands (a stream
 * that waits, a lane of NCCL's), and for which no thread can wait without a limit.  A thread of its own
 * makes it, and the caller waits for the job's end until a deadline.  Ownership of the record
 * that the job is embedded in, and of what the call leaves behind:
 *
 *   started            the job's; the caller may wait (batoni_job_await)
 *   it has ended       the caller's: what the call has made is taken or undone there
 *   it is given up     the job's for good: when `run` has returned, `cleanup` undoes what the call
 *                      has made, and frees the record, on the same thread, on which that
 *                      may block too.  It can be taken up again until then.
 *
 * A job is given up at its deadline (batoni_job_finish), or was never waited for (`given_up` from the
 * start).  Its thread blocks signals, and is never joined or cancelled.
 */
#ifndef BATONI_THREAD_H
#define BATONI_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "log.h"

struct batoni_refusal;
struct batoni_scope;

/* The library's thread-local storage, here, in log.c and in the leaves, stays below 128 bytes: with the
 * initial-exec model it comes from a reserve that all libraries of a process share that are loaded
 * late (glibc: 512 bytes, the tunable glibc.rtld.optional_static_tls). */
struct batoni_thread {
	struct batoni_scope *scopes; /* what it has open, the latest first (op.h) */
	struct batoni_refusal *refusals; /* of void ones: sentences (scope.c) */
	const void *site; /* of the program: where its call returns to (BATONI_KEEP_SITE) */
	bool launched;            /* a launched function is running */
	bool engine;              /* the engine's own thread, or a stream's */
	bool stays; /* the engine's own: nothing of the program runs on it */
	bool running;             /* a stream's: counted in batoni_engine.running */
	bool must_drive;          /* some communicator has no other driver */
	bool waits;               /* it is in a wait that sleeps or drives for long */
	bool uncancellable;       /* until it releases the driver lock */
	bool in_region;           /* of BATONI_UNCANCELLED */
	bool shares_core;         /* its last wait ended just behind a yield (wait.c) */
	bool probe_yielded;       /* its last probe found nothing, and yielded */
	uint16_t idle_probes;     /* that found nothing, since one that did */
	int cancel_state;         /* while uncancellable: the program's state */
};

/* Its address also identifies the thread, as the holder of the driver lock. */
extern _Thread_local struct batoni_thread batoni_thread
	__attribute__((tls_model("initial-exec")));

/* This process was forked from one that used Baton: all calls are refused. */
extern atomic_bool batoni_forked;

/* For a thread that may not call Baton now: INVALID, with a sentence that says why. */
enum baton_status batoni_refuse_caller(const char *call);

/* Where the public function that has this returns to, for a trace.  The fast path of a call hands it down
 * through what is inlined there; on all other ways it is kept before a slot is taken. */
#define BATONI_SITE __builtin_return_address(0)
#define BATONI_KEEP_SITE() ((void)(batoni_thread.site = BATONI_SITE))

static inline bool
batoni_may_call(void)
{
	return !batoni_thread.launched &&
	       !atomic_load_explicit(&batoni_forked, memory_order_relaxed);
}

#define BATONI_ENTER(call)                                                    \
	do {                                                                  \
		if (__builtin_expect(!batoni_may_call(), 0))                  \
			return batoni_refuse_caller(call);                    \
	} while (0)

/* The last declaration of a public function that waits, opens, joins or writes: the thread is
 * not cancelled (pthread_cancel) within it, where it could leave a lock or half an object
 * behind.  Calls that only enqueue or ask have no cancellation points of their own; a device
 * whose library may have some disables cancellation around its calls, and a send or receive that
 * is enqueued on such a device once for all of them (_IF).
 * Regions nest: one that begins within another, or while the thread is `uncancellable`, changes
 * nothing. */
#define BATONI_UNCANCELLED BATONI_UNCANCELLED_IF(true)
#define BATONI_UNCANCELLED_IF(condition)                                      \
	__attribute__((cleanup(batoni_cancel_state_restore),                  \
	               unused)) const int cancel_state_before =               \
		(condition) ? batoni_cancel_state_off() : BATONI_CANCEL_NESTED
#define BATONI_CANCEL_NESTED (-1)

static inline int
batoni_cancel_state_off(void)
{
	int before;

	if (batoni_thread.uncancellable || batoni_thread.in_region)
		return BATONI_CANCEL_NESTED;
	batoni_thread.in_region = true;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void
batoni_cancel_state_restore(const int *before_p)
{
	if (*before_p == BATONI_CANCEL_NESTED)
		return;
	batoni_thread.in_region = false;
	pthread_setcancelstate(*before_p, NULL);
}

/* Tell the core that this is a spin loop. */
static inline void
batoni_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* This thread blocks all signals but those of faults from now on; *before_p is the mask
 * that it had. */
void batoni_signals_block(sigset_t *before_p);

/* Start a thread of the library.  It blocks all signals except those that its own faults
 * raise, so that the program's signals go to the program's threads.  0, or an errno
 * code. */
int batoni_thread_start(pthread_t *thread_p, void *(*main)(void *), void *arg);

struct batoni_job {
	void (*run)(struct batoni_job *job);
	void (*cleanup)(struct batoni_job *job);
	bool done, given_up; /* under the lock of jobs, a leaf; false at first, but see above */
};

/* 0, or an errno code: there is no thread, and the job is the caller's. */
int batoni_job_start(struct batoni_job *job);
/* Wait for its end until until_ns (batoni_real_ns; 0: ask; UINT64_MAX: no limit).  False: it has not
 * ended. */
bool batoni_job_await(struct batoni_job *job, uint64_t until_ns);
/* The same, and give it up if it has not ended. */
bool batoni_job_finish(struct batoni_job *job, uint64_t until_ns);
/* Of one that was given up, and is known not to be freed: wait for it again.  False: it has ended, and
 * leaves. */
bool batoni_job_take_up(struct batoni_job *job);

/* Disable cancellation (pthread_cancel) of this thread; restore the program's state. */
void batoni_cancel_off(void);
void batoni_cancel_restore(void);

/* Install the fork handler that sets batoni_forked.  Any thread, any number of times. */
void batoni_watch_forks(void);

#endif
