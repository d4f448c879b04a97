/* SPDX-License-Identifier: BSD-3-Clause */
/* What Baton keeps for each thread, and who may call at all. */
#ifndef BATONI_THREAD_H
#define BATONI_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "log.h"

struct batoni_op;

/* All thread-local storage of the library, this and log.c's, is below 64 bytes: with the
 * initial-exec model it comes from a small reserve that all libraries of a process
 * share. */
struct batoni_thread {
	struct batoni_op *groups; /* open groups, innermost communicator first */
	bool launched;            /* a launched function is running */
	bool engine;              /* the engine's own thread, or a stream's */
	bool running;             /* a stream's: counted in batoni_engine.running */
	bool must_drive;          /* some communicator has no other driver */
	bool waits;               /* it is in a wait that sleeps or drives for long */
	bool uncancellable;       /* until it gives the driver's lock up */
	int cancel_state;         /* then: what the program had set */
};

/* Its address is also what names the thread, as the holder of the driver's lock. */
extern _Thread_local struct batoni_thread batoni_thread
	__attribute__((tls_model("initial-exec")));

/* The process is a child of one that used Baton: nothing works here. */
extern atomic_bool batoni_forked;

/* INVALID with a sentence when this thread may not call Baton now. */
enum baton_status batoni_refuse_caller(const char *call);

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

/* Start a thread of ours: it blocks all signals but those that a fault of its own
 * raises, so that the program's signals go to the program's threads.  0, or errno's. */
int batoni_thread_start(pthread_t *thread_p, void *(*main)(void *), void *arg);

/* This thread is not cancelled (pthread_cancel) from now on / as the program had it. */
void batoni_cancel_off(void);
void batoni_cancel_restore(void);

/* Notice forks from now on.  Any thread, any number of times. */
void batoni_watch_forks(void);

#endif
