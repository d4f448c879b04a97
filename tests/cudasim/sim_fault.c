/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings, faults and delays: what a test, or the environment, asks for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim.h"

enum { FAULTS_MAX = 64, ANY = SIM_FUNCTIONS_N };

struct fault {
	int function; /* ANY: of all */
	long n;       /* 0: none */
	CUresult result;
	bool sticky;
};

struct setting {
	const char *name;
	long *value;
	long least, greatest;
	bool before; /* only before cuInit */
};

static const struct setting settings[] = {
#define SETTING(name, value, least, greatest, before)                         \
	{#name, &sim.set.name, least, greatest, before},
	SIM_SETTINGS(SETTING)
#undef SETTING
};

static struct fault faults[FAULTS_MAX];
static uint64_t random_state;
static long delays;

/* ---- settings ---- */

static bool
set_locked(const char *name, long value)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		const struct setting *setting = &settings[i];

		if (strcasecmp(setting->name, name) != 0)
			continue;
		if (value < setting->least || value > setting->greatest ||
		    (setting->before && sim.initialised))
			return false;
		*setting->value = value;
		if (setting->value == &sim.set.seed) {
			random_state = 0;
			if (value != 0 && sim.set.delay_us == 0)
				sim.set.delay_us = 100;
		}
		return true;
	}
	return false;
}

/* ---- faults ---- */

static bool
fail_locked(const char *name, long n, CUresult result, bool sticky)
{
	int function = sim_function_find(name);
	struct fault *spare = NULL;

	if (function < 0 || n < 0)
		return false;
	for (size_t i = 0; i < FAULTS_MAX; i++) {
		if (n == 0 && faults[i].function == function)
			faults[i].n = 0;
		if (faults[i].n == 0)
			spare = &faults[i];
	}
	if (!spare)
		return false;
	*spare = (struct fault){function, n, result, sticky};
	return true;
}

/* Every use of a function counts its faults down. */
CUresult
sim_fault_locked(enum sim_function function, bool *sticky_p)
{
	CUresult result = BATONI_CU_SUCCESS;

	for (size_t i = 0; i < FAULTS_MAX; i++) {
		struct fault *fault = &faults[i];

		if (fault->n == 0 || (fault->function != ANY &&
		                      fault->function != (int)function))
			continue;
		if (--fault->n == 0) {
			result = fault->result;
			*sticky_p = fault->sticky;
		}
	}
	return result;
}

/* ---- delays ---- */

static unsigned long
next_random_locked(void)
{
	if (random_state == 0)
		random_state = (uint64_t)sim.set.seed * 2654435769u +
		               88172645463325252u;
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned long)(random_state >> 11);
}

unsigned
sim_delay_locked(unsigned odds)
{
	unsigned long most = (unsigned long)sim.set.delay_us;

	if (most == 0 || next_random_locked() % odds != 0)
		return 0;
	delays++;
	return (unsigned)(next_random_locked() % (most + 1));
}

long
sim_delays_locked(void)
{
	return delays;
}

/* ---- where they come from ---- */

static _Noreturn void
refuse_setting(const char *name, const char *value)
{
	fprintf(stderr, "cudasim: %s=\"%s\" is not understood\n", name, value);
	exit(2);
}

/* "cuMemcpyAsync:3:700,cuEventQuery:1:719:sticky"; "*" is any function. */
static void
read_faults(const char *text)
{
	char copy[1024], name[64], *at, *save = NULL;
	unsigned result;
	long n;
	int end;

	snprintf(copy, sizeof(copy), "%s", text);
	for (at = strtok_r(copy, ",", &save); at;
	     at = strtok_r(NULL, ",", &save)) {
		end = 0;
		if (sscanf(at, "%63[^:]:%ld:%u%n", name, &n, &result, &end) < 3 ||
		    (at[end] != '\0' && strcmp(at + end, ":sticky") != 0) ||
		    !fail_locked(strcmp(name, "*") == 0 ? "" : name, n, result,
		                 at[end] != '\0'))
			refuse_setting("CUDASIM_FAIL", text);
	}
}

void
sim_environment_read(void)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	char name[64], *end;

	if (text)
		set_locked("queues", strtol(text, NULL, 10));
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		snprintf(name, sizeof(name), "CUDASIM_%s", settings[i].name);
		for (char *at = name + 8; *at; at++)
			*at = (char)(*at >= 'a' && *at <= 'z' ? *at - 32 : *at);
		text = getenv(name);
		if (!text || text[0] == '\0')
			continue;
		errno = 0;
		if (!set_locked(settings[i].name, strtol(text, &end, 10)) ||
		    *end || errno)
			refuse_setting(name, text);
	}
	text = getenv("CUDASIM_FAIL");
	if (text)
		read_faults(text);
}

bool
cudasim_set(const char *name, long value)
{
	bool done;

	sim_lock_for_control();
	done = set_locked(name, value);
	pthread_cond_broadcast(&sim_changed);
	pthread_mutex_unlock(&sim_lock);
	return done;
}

bool
cudasim_fail(const char *name, long n, CUresult result, bool sticky)
{
	bool done;

	sim_lock_for_control();
	done = fail_locked(name, n, result, sticky);
	pthread_mutex_unlock(&sim_lock);
	return done;
}
