/* SPDX-License-Identifier: BSD-3-Clause */
/* What all calls share: what they begin and end with, settings, faults, counters. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nsim.h"

enum { DEVICES_MAX = 64 };
/* One call of so many is late, if delays are asked for. */
enum { CALL_ODDS = 8 };

struct setting {
	const char *name;
	_Atomic long *value;
	long least, greatest;
};

/* Who is in calls for a device. */
struct holder {
	pthread_t thread;
	unsigned calls;
};

struct nsim_settings nsim_set = {
#define SETTING(name, value, least, greatest) .name = (value),
	NSIM_SETTINGS(SETTING)
#undef SETTING
};
struct simulator nsim_simulator = {
	.name = "ncclsim",
	.variable = "NCCLSIM",
	.any = NSIM_FUNCTIONS_N,
};
pthread_mutex_t nsim_lock = PTHREAD_MUTEX_INITIALIZER;
const struct cudasim *nsim_cuda;

static const struct setting settings[] = {
#define SETTING(name, value, least, greatest)                                 \
	{#name, &nsim_set.name, least, greatest},
	NSIM_SETTINGS(SETTING)
#undef SETTING
};

static const char *const symbols[] = {
#define SYMBOL(name, symbol, since, result, parameters) #symbol,
	NSIM_ALL(SYMBOL)
#undef SYMBOL
	"job",
	"kernel",
	"thread",
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct holder holders[DEVICES_MAX];
static long uses[NSIM_FUNCTIONS_N], total, delays;
static char last_error[240];

/* The list of communicators; nsim_comm.c adds to it. */
extern struct ncclComm *nsim_comms;

/* ---- small things ---- */

/* FNV-1a. */
uint64_t
nsim_hash(const void *bytes, size_t n, uint64_t seed)
{
	const unsigned char *at = bytes;
	uint64_t hash = seed ^ 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ at[i]) * 1099511628211u;
	return hash;
}

size_t
nsim_type_bytes(ncclDataType_t type)
{
	static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

	return type < sizeof(bytes) ? bytes[type] : 0;
}

void
nsim_maybe_nap(unsigned odds)
{
	unsigned long most = (unsigned long)nsim_set.delay_us, us = 0;
	bool naps;

	if (most == 0)
		return;
	/* Its own lock: kernels come here too, under no other. */
	static pthread_mutex_t random_lock = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&random_lock);
	naps = simulator_random(&nsim_simulator, nsim_set.seed) % odds == 0;
	if (naps) {
		us = simulator_random(&nsim_simulator, nsim_set.seed) % (most + 1);
		delays++;
	}
	pthread_mutex_unlock(&random_lock);
	if (naps)
		simulator_nap((unsigned)us);
}

/* ---- errors and violations ---- */

void
nsim_violation(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	simulator_violation(&nsim_simulator, nsim_set.seed, nsim_set.abort,
	                    format, arguments);
	va_end(arguments);
}

int
ncclsim_violations(void)
{
	return atomic_load(&nsim_simulator.violations);
}

ncclResult_t
nsim_error(ncclResult_t result, const char *format, ...)
{
	va_list arguments;

	pthread_mutex_lock(&nsim_lock);
	va_start(arguments, format);
	vsnprintf(last_error, sizeof(last_error), format, arguments);
	va_end(arguments);
	pthread_mutex_unlock(&nsim_lock);
	return result;
}

const char *
nsim_last_error(void)
{
	static _Thread_local char copy[sizeof(last_error)];

	pthread_mutex_lock(&nsim_lock);
	memcpy(copy, last_error, sizeof(copy));
	pthread_mutex_unlock(&nsim_lock);
	return copy;
}

/* ---- settings and faults ---- */

static bool
set_locked(const char *name, long value)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const struct setting *setting = &settings[i];

		if (strcasecmp(setting->name, name) != 0)
			continue;
		if (value < setting->least || value > setting->greatest)
			return false;
		if (setting->value == &nsim_set.version && value != 22809 &&
		    value != 23007 && value != 23203)
			return false;
		*setting->value = value;
		if (setting->value == &nsim_set.seed && value != 0 &&
		    nsim_set.delay_us == 0)
			nsim_set.delay_us = 100;
		return true;
	}
	return false;
}

/* By its name; NSIM_FUNCTIONS_N for ""; -1: there is none. */
static int
find_function(const char *name)
{
	if (name[0] == '\0')
		return NSIM_FUNCTIONS_N;
	for (int i = 0; i < NSIM_FUNCTIONS_N; i++) {
		if (strcmp(symbols[i], name) == 0)
			return i;
	}
	return -1;
}

static bool
fail_locked(const char *name, long n, ncclResult_t result, bool sticky)
{
	return !sticky && simulator_fail(&nsim_simulator, find_function(name), n,
	                                 result, false);
}

/* Every use of a function counts its faults down.  "" is of the calls alone. */
static ncclResult_t
fault_locked(enum nsim_function function)
{
	bool sticky = false;

	return simulator_fault(&nsim_simulator, (int)function,
	                       function < NSIM_JOB, &sticky);
}

/* "2.30" is the version of it that there is; a number is as NCCL writes it. */
static long
read_number(const char *name, const char *value)
{
	char *end;
	long number;

	if (strcasecmp(name, "NCCLSIM_VERSION") == 0 && strchr(value, '.'))
		return strcmp(value, "2.28") == 0   ? 22809
		       : strcmp(value, "2.30") == 0 ? 23007
		       : strcmp(value, "2.32") == 0 ? 23203
		                                    : -1;
	number = strtol(value, &end, 10);
	return *value && *end == '\0' ? number : -1;
}

static void
set_up(void)
{
	const char *value;

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		char name[40];

		simulator_variable(&nsim_simulator, settings[i].name, name,
		                   sizeof(name));
		value = getenv(name);
		if (value && *value &&
		    !set_locked(settings[i].name, read_number(name, value)))
			simulator_refuse_setting(&nsim_simulator, name, value);
	}
	/* "ncclSend:3:5,kernel:1:6"; "*" is any function. */
	value = getenv("NCCLSIM_FAIL");
	if (value)
		value = simulator_read_faults(value, fail_locked);
	if (value)
		simulator_refuse_setting(&nsim_simulator, "NCCLSIM_FAIL", value);
	if (nsim_set.seed != 0)
		fprintf(stderr, "ncclsim: NCCLSIM_SEED=%ld\n",
		        (long)nsim_set.seed);
	nsim_cuda = cudasim_load(getenv("BATON_CUDA_LIBRARY") ? NULL
	                                                      : CUDASIM_PATH);
	if (!nsim_cuda || !nsim_cuda->launch) {
		fprintf(stderr, "ncclsim: BATON_CUDA_LIBRARY is no simulator\n");
		exit(2);
	}
}

/* ---- calls ---- */

ncclResult_t
nsim_use(enum nsim_function function)
{
	ncclResult_t result;

	pthread_once(&once, set_up);
	if (function < NSIM_JOB)
		nsim_maybe_nap(CALL_ODDS);
	pthread_mutex_lock(&nsim_lock);
	uses[function]++;
	total += function < NSIM_JOB;
	result = fault_locked(function);
	pthread_mutex_unlock(&nsim_lock);
	if (result != BATONI_NCCL_SUCCESS)
		nsim_error(result, "%s was made to fail", symbols[function]);
	return result;
}

/* One thread at a time for each device.  Ranks that share one cannot keep to it. */
static bool
takes_device_locked(int device)
{
	struct holder *holder = &holders[device % DEVICES_MAX];
	bool alone = holder->calls == 0 ||
	             pthread_equal(holder->thread, pthread_self()) ||
	             nsim_set.threads || nsim_set.duplicates;

	if (holder->calls++ == 0)
		holder->thread = pthread_self();
	return alone;
}

void
nsim_hold_device(int device)
{
	bool alone;

	pthread_mutex_lock(&nsim_lock);
	alone = takes_device_locked(device);
	pthread_mutex_unlock(&nsim_lock);
	if (!alone)
		nsim_violation("two threads make calls for device %d at once",
		               device);
}

void
nsim_release_device(int device)
{
	pthread_mutex_lock(&nsim_lock);
	holders[device % DEVICES_MAX].calls--;
	pthread_mutex_unlock(&nsim_lock);
}

static bool
is_live_locked(ncclComm_t comm)
{
	struct ncclComm *at = nsim_comms;

	while (at && at != comm)
		at = at->next;
	return at && at->live;
}

ncclResult_t
nsim_enter_apart(ncclComm_t comm, enum nsim_function function)
{
	bool live, alone = true;

	if (!comm)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT, "%s of NULL",
		                  symbols[function]);
	pthread_mutex_lock(&nsim_lock);
	live = is_live_locked(comm);
	if (live) {
		alone = comm->calls == 0 || nsim_set.threads ||
		        pthread_equal(comm->caller, pthread_self());
		if (comm->calls++ == 0)
			comm->caller = pthread_self();
	}
	pthread_mutex_unlock(&nsim_lock);
	if (!live) {
		nsim_violation("%s of a communicator that is none, or was "
		               "destroyed: %p",
		               symbols[function], (void *)comm);
		return BATONI_NCCL_INVALID_ARGUMENT;
	}
	if (!alone)
		nsim_violation("%s beside a call of another thread for the same "
		               "communicator",
		               symbols[function]);
	return BATONI_NCCL_SUCCESS;
}

ncclResult_t
nsim_enter(ncclComm_t comm, enum nsim_function function)
{
	ncclResult_t result = nsim_enter_apart(comm, function);

	if (result == BATONI_NCCL_SUCCESS)
		nsim_hold_device(comm->device);
	return result;
}

void
nsim_leave_apart(ncclComm_t comm)
{
	pthread_mutex_lock(&nsim_lock);
	comm->calls--;
	pthread_mutex_unlock(&nsim_lock);
}

void
nsim_leave(ncclComm_t comm)
{
	nsim_release_device(comm->device);
	nsim_leave_apart(comm);
}

/* ---- the test's controls ---- */

bool
ncclsim_set(const char *name, long value)
{
	bool done;

	pthread_once(&once, set_up);
	pthread_mutex_lock(&nsim_lock);
	done = set_locked(name, value);
	pthread_mutex_unlock(&nsim_lock);
	return done;
}

bool
ncclsim_fail(const char *name, long n, ncclResult_t result)
{
	bool done;

	pthread_once(&once, set_up);
	pthread_mutex_lock(&nsim_lock);
	done = fail_locked(name, n, result, false);
	pthread_mutex_unlock(&nsim_lock);
	return done;
}

void
ncclsim_break(ncclComm_t comm, ncclResult_t result)
{
	nsim_comm_fail(comm, result);
	nsim_cuda->sim_changed();
}

long
ncclsim_uses(const char *name)
{
	int function = find_function(name);
	long n;

	pthread_mutex_lock(&nsim_lock);
	n = function < 0 ? -1 : function == NSIM_FUNCTIONS_N ? total : uses[function];
	pthread_mutex_unlock(&nsim_lock);
	return n;
}

long
ncclsim_live(const char *what)
{
	long comms = 0, kernels = 0, running = 0, n = -1;

	pthread_mutex_lock(&nsim_lock);
	for (struct ncclComm *at = nsim_comms; at; at = at->next) {
		comms += at->live;
		kernels += atomic_load(&at->pending);
		running += atomic_load(&at->running);
	}
	if (strcmp(what, "comms") == 0)
		n = comms;
	else if (strcmp(what, "kernels") == 0)
		n = kernels;
	else if (strcmp(what, "running") == 0)
		n = running;
	else if (strcmp(what, "windows") == 0)
		n = nsim_windows_live_locked();
	else if (strcmp(what, "blocks") == 0)
		n = nsim_blocks_live_locked();
	else if (strcmp(what, "bytes") == 0)
		n = (long)nsim_gpu_bytes_locked();
	else if (strcmp(what, "delays") == 0)
		n = delays;
	pthread_mutex_unlock(&nsim_lock);
	return n;
}
