/* SPDX-License-Identifier: BSD-3-Clause */
/* What Baton keeps for each thread, and who may call at all. */
#ifndef BATONI_THREAD_H
#define BATONI_THREAD_H

#include <stdatomic.h>

#include "log.h"

struct batoni_op;

struct batoni_thread {
	struct batoni_op *groups; /* open groups, innermost communicator first */
	bool launched;            /* a launched function is running */
	bool engine;              /* the engine's own thread */
	bool must_drive;          /* some communicator has no other driver */
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

/* Notice forks from now on.  Any thread, any number of times. */
void batoni_watch_forks(void);

#endif
