/* SPDX-License-Identifier: BSD-3-Clause */
#include "thread.h"

#include <pthread.h>

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
