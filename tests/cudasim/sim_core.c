/* SPDX-License-Identifier: BSD-3-Clause */
/* What all calls share: what they begin and end with, counters, violations, the exit. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "sim.h"

/* One call of so many is late, if delays are asked for. */
enum { CALL_ODDS = 16 };

struct sim sim = {
	.set = {
#define SETTING(name, value, least, greatest, before) .name = (value),
		SIM_SETTINGS(SETTING)
#undef SETTING
	},
};
struct simulator sim_simulator = {
	.name = "cudasim",
	.variable = "CUDASIM",
	.any = SIM_FUNCTIONS_N,
};
pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_changed;

static const char *const symbols[] = {
#define SYMBOL(name, symbol, base, version, parameters) #symbol,
	BATONI_CUDA_FUNCTIONS(SYMBOL) BATONI_CUDA_OPTIONAL(SYMBOL)
	CUDASIM_FUNCTIONS(SYMBOL) CUDASIM_KERNELS(SYMBOL)
#undef SYMBOL
};
static const char *const bases[] = {
#define BASE(name, symbol, base, version, parameters) base,
	BATONI_CUDA_FUNCTIONS(BASE) BATONI_CUDA_OPTIONAL(BASE)
	CUDASIM_FUNCTIONS(BASE) CUDASIM_KERNELS(BASE)
#undef BASE
};

static long uses[SIM_FUNCTIONS_N], total;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static _Thread_local bool inside; /* a host function */
static _Thread_local uintptr_t identity; /* 0: has none yet */

/* ---- small things ---- */

const void *
sim_thread(void)
{
	static _Atomic uintptr_t last;

	if (identity == 0)
		identity = atomic_fetch_add(&last, 1) + 1;
	return (const void *)identity;
}

void
sim_set_inside(bool now)
{
	inside = now;
}

uint64_t
sim_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

CUresult
sim_start_thread(void *(*main)(void *), void *argument)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	/* Signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = pthread_create(&thread, &attributes, main, argument);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? BATONI_CU_OUT_OF_MEMORY : BATONI_CU_SUCCESS;
}

void
sim_await_change_locked(uint64_t until)
{
	struct timespec time = {(time_t)(until / 1000000000u),
	                        (long)(until % 1000000000u)};

	if (until == 0)
		pthread_cond_wait(&sim_changed, &sim_lock);
	else
		pthread_cond_timedwait(&sim_changed, &sim_lock, &time);
}

const char *
sim_function_name(enum sim_function function)
{
	return symbols[function];
}

int
sim_function_find(const char *name)
{
	if (name[0] == '\0')
		return SIM_FUNCTIONS_N;
	for (int i = 0; i < SIM_FUNCTIONS_N; i++) {
		if (strcmp(symbols[i], name) == 0)
			return i;
	}
	for (int i = 0; i < SIM_FUNCTIONS_N; i++) {
		if (strcmp(bases[i], name) == 0)
			return i;
	}
	return -1;
}

/* ---- violations ---- */

void
sim_violation(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	simulator_violation(&sim_simulator, sim.set.seed, sim.set.abort, format,
	                    arguments);
	va_end(arguments);
}

int
cudasim_violations(void)
{
	return atomic_load(&sim_simulator.violations);
}

/* ---- the exit, and fork ---- */

/* Calls fail from now on and threads take up nothing new; what they do is waited for, but
 * not functions of the program. */
static void
begin_exit(void)
{
	uint64_t until = sim_now_ns() + 2000000000u;

	/* The condition variables have waiters in the parent alone. */
	if (sim.forked)
		return;
	pthread_mutex_lock(&sim_lock);
	sim.exiting = true;
	pthread_cond_broadcast(&sim_changed);
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		pthread_cond_signal(&sim.contexts[i]->calls);
		sim_queues_wake_locked(sim.contexts[i]);
	}
	while (sim.running > 0 && sim_now_ns() < until)
		sim_await_change_locked(until);
	pthread_mutex_unlock(&sim_lock);
	if (atomic_load(&sim_simulator.violations) > 0)
		fprintf(stderr, "cudasim: %d violations in all "
		                "(CUDASIM_SEED=%ld)\n",
		        atomic_load(&sim_simulator.violations), sim.set.seed);
}

static void
before_fork(void)
{
	pthread_mutex_lock(&sim_lock);
}

static void
after_fork(void)
{
	pthread_mutex_unlock(&sim_lock);
}

static void
after_fork_in_child(void)
{
	sim.forked = sim.initialised;
	/* The parent's threads are not here. */
	sim.running = 0;
	pthread_mutex_unlock(&sim_lock);
}

static void
set_up(void)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&sim_changed, &attributes);
	pthread_condattr_destroy(&attributes);
	sim_environment_read();
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

CUresult
cuInit(unsigned int flags)
{
	struct sim_call call;
	CUresult result = sim_enter(&call, SIM_cuInit, SIM_EARLY);

	if (result != BATONI_CU_SUCCESS)
		return result;
	if (flags != 0)
		return sim_leave(&call, BATONI_CU_INVALID_VALUE);
	if (sim.set.devices == 0)
		return sim_leave(&call, BATONI_CU_NO_DEVICE);
	if (!sim.initialised)
		atexit(begin_exit);
	sim.initialised = true;
	return sim_leave(&call, BATONI_CU_SUCCESS);
}

/* ---- calls ---- */

void
sim_break_locked(struct sim_context *context, CUresult result)
{
	if (context->error == BATONI_CU_SUCCESS)
		context->error = result;
	pthread_cond_broadcast(&sim_changed);
	pthread_cond_signal(&context->calls);
	sim_queues_wake_locked(context);
}

/* The state of the process forbids every call. */
static CUresult
check_process_locked(enum sim_function function, unsigned needs)
{
	if (inside) {
		sim_violation("%s in a host function", symbols[function]);
		return BATONI_CU_NOT_PERMITTED;
	}
	if (sim.forked) {
		sim_violation("%s in a child of fork", symbols[function]);
		return CUDASIM_NOT_INITIALIZED;
	}
	if (sim.exiting)
		return BATONI_CU_DEINITIALIZED;
	if (!sim.initialised && !(needs & SIM_EARLY))
		return CUDASIM_NOT_INITIALIZED;
	return BATONI_CU_SUCCESS;
}

static CUresult
check_faults_locked(enum sim_function function)
{
	struct sim_context *context = sim_current();
	bool sticky = false;
	CUresult result = sim_fault_locked(function, &sticky);

	if (sticky && context)
		sim_break_locked(context, result);
	return result;
}

static CUresult
check_context_locked(struct sim_call *call)
{
	struct sim_context *context = sim_current();

	if (!context)
		return BATONI_CU_INVALID_CONTEXT;
	if (!context->live)
		return CUDASIM_CONTEXT_IS_DESTROYED;
	call->context = context;
	sim.blocked++;
	while (context->holder && context->holder != sim_thread() &&
	       !sim.exiting)
		sim_await_change_locked(0);
	sim.blocked--;
	return context->error;
}

static CUresult
check_locked(struct sim_call *call, enum sim_function function, unsigned needs)
{
	CUresult result = check_process_locked(function, needs);
	unsigned late;

	if (result != BATONI_CU_SUCCESS)
		return result;
	late = needs & SIM_CONTEXT ? sim_delay_locked(CALL_ODDS) : 0;
	if (late > 0) {
		pthread_mutex_unlock(&sim_lock);
		simulator_nap(late);
		pthread_mutex_lock(&sim_lock);
	}
	result = check_faults_locked(function);
	if (result != BATONI_CU_SUCCESS)
		call->error = result;
	if (needs & SIM_CONTEXT) {
		result = check_context_locked(call);
		if (!call->context)
			return result;
		if (call->error == BATONI_CU_SUCCESS)
			call->error = result;
	}
	if (call->error != BATONI_CU_SUCCESS && !(needs & SIM_DESTROYS))
		return call->error;
	return needs & SIM_UNSAFE ? sim_capture_forbids_locked()
	                          : BATONI_CU_SUCCESS;
}

CUresult
sim_enter(struct sim_call *call, enum sim_function function, unsigned needs)
{
	CUresult result;

	pthread_once(&once, set_up);
	/* A driver opens files, reads and sleeps. */
	pthread_testcancel();
	call->context = NULL;
	call->error = BATONI_CU_SUCCESS;
	pthread_mutex_lock(&sim_lock);
	uses[function]++;
	total++;
	sim.progress++;
	result = check_locked(call, function, needs);
	if (result != BATONI_CU_SUCCESS)
		pthread_mutex_unlock(&sim_lock);
	return result;
}

CUresult
sim_leave(struct sim_call *call, CUresult result)
{
	pthread_mutex_unlock(&sim_lock);
	return call->error != BATONI_CU_SUCCESS ? call->error : result;
}

/* ---- the test's controls ---- */

void
sim_lock_for_control(void)
{
	pthread_once(&once, set_up);
	pthread_mutex_lock(&sim_lock);
}

void
cudasim_break(CUdevice device, CUresult result)
{
	sim_lock_for_control();
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		if (sim.contexts[i]->live && sim.contexts[i]->device == device)
			sim_break_locked(sim.contexts[i], result);
	}
	pthread_mutex_unlock(&sim_lock);
}

void
cudasim_heal(void)
{
	sim_lock_for_control();
	for (unsigned i = 0; i < sim.contexts_n; i++) {
		struct sim_context *context = sim.contexts[i];

		if (context->error == BATONI_CU_SUCCESS)
			continue;
		sim_queues_drain_locked(context);
		context->error = BATONI_CU_SUCCESS;
	}
	pthread_mutex_unlock(&sim_lock);
}

long
cudasim_uses(const char *name)
{
	int function = sim_function_find(name);
	long n;

	sim_lock_for_control();
	n = function < 0 ? -1 : function == SIM_FUNCTIONS_N ? total : uses[function];
	pthread_mutex_unlock(&sim_lock);
	return n;
}

const char *
cudasim_name(int number)
{
	return number >= 0 && number < SIM_FUNCTIONS_N ? symbols[number] : NULL;
}

long
cudasim_total(void)
{
	return cudasim_uses("");
}

long
cudasim_live(const char *what)
{
	static const char *const memories[] = {"device", "managed", "pinned",
	                                       "registered", "mappings",
	                                       "opened", "pool"};
	long n = -1;

	sim_lock_for_control();
	if (strcmp(what, "streams") == 0)
		n = sim_streams_live_locked();
	else if (strcmp(what, "events") == 0)
		n = sim_events_live_locked();
	else if (strcmp(what, "captures") == 0)
		n = sim_captures_live_locked();
	else if (strcmp(what, "thread_streams") == 0)
		n = sim_thread_streams_live_locked();
	else if (strcmp(what, "delays") == 0)
		n = sim_delays_locked();
	else if (strcmp(what, "pinned_bytes") == 0)
		n = sim_blocks_live_locked(SIM_PINNED, true);
	else if (strcmp(what, "allocations") == 0)
		n = sim_allocations_live_locked();
	else if (strcmp(what, "reservations") == 0)
		n = sim_reservations_live_locked();
	for (int i = 0; i < 7; i++) {
		if (strcmp(what, memories[i]) == 0)
			n = sim_blocks_live_locked((enum sim_memory)i, false);
	}
	pthread_mutex_unlock(&sim_lock);
	return n;
}

long
cudasim_queued(void)
{
	long n;

	sim_lock_for_control();
	n = sim_streams_queued_locked();
	pthread_mutex_unlock(&sim_lock);
	return n;
}

long
cudasim_blocked(void)
{
	long n;

	sim_lock_for_control();
	n = (long)sim.blocked;
	pthread_mutex_unlock(&sim_lock);
	return n;
}

void
cudasim_settle(bool in_functions)
{
	unsigned long before;

	sim_lock_for_control();
	do {
		before = sim.progress;
		while (!sim_is_settled_locked(in_functions) && !sim.exiting)
			sim_await_change_locked(sim_now_ns() + 200000u);
	} while (before != sim.progress && !sim.exiting);
	pthread_mutex_unlock(&sim_lock);
}
