/* SPDX-License-Identifier: BSD-3-Clause */
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *
simulator_alloc(const struct simulator *simulator, size_t n, size_t bytes)
{
	void *memory = calloc(n ? n : 1, bytes);

	if (!memory) {
		fprintf(stderr, "%s: out of memory\n", simulator->name);
		abort();
	}
	return memory;
}

void
simulator_nap(unsigned us)
{
	struct timespec time = {us / 1000000u, (long)(us % 1000000u) * 1000};

	nanosleep(&time, NULL);
}

/* ---- faults ---- */

bool
simulator_fail(struct simulator *simulator, int function, long n, unsigned result,
               bool sticky)
{
	struct simulator_fault *spare = NULL;

	if (function < 0 || n < 0)
		return false;
	for (size_t i = 0; i < SIMULATOR_FAULTS_MAX; i++) {
		struct simulator_fault *fault = &simulator->faults[i];

		if (n == 0 && fault->function == function && fault->n > 0) {
			fault->n = 0;
			simulator->faults_due--;
		}
		if (fault->n == 0)
			spare = fault;
	}
	if (n == 0)
		return true;
	if (!spare)
		return false;
	*spare = (struct simulator_fault){function, n, result, sticky};
	simulator->faults_due++;
	return true;
}

unsigned
simulator_fault(struct simulator *simulator, int function, bool counts_as_any,
                bool *sticky_p)
{
	unsigned result = 0;

	for (size_t i = 0; simulator->faults_due > 0 && i < SIMULATOR_FAULTS_MAX; i++) {
		struct simulator_fault *fault = &simulator->faults[i];
		bool any = counts_as_any && fault->function == simulator->any;

		if (fault->n == 0 || (!any && fault->function != function))
			continue;
		if (--fault->n == 0) {
			simulator->faults_due--;
			result = fault->result;
			*sticky_p = fault->sticky;
		}
	}
	return result;
}

const char *
simulator_read_faults(const char *text,
                      bool (*fail)(const char *name, long n, unsigned result,
                                   bool sticky))
{
	static char copy[1024];
	char name[64], *at, *save = NULL;
	unsigned result;
	long n;
	int end;

	snprintf(copy, sizeof(copy), "%s", text);
	for (at = strtok_r(copy, ",", &save); at;
	     at = strtok_r(NULL, ",", &save)) {
		end = 0;
		if (sscanf(at, "%63[^:]:%ld:%u%n", name, &n, &result, &end) < 3 ||
		    (at[end] != '\0' && strcmp(at + end, ":sticky") != 0) ||
		    !fail(strcmp(name, "*") == 0 ? "" : name, n, result,
		          at[end] != '\0'))
			return at;
	}
	return NULL;
}

/* ---- random numbers, messages ---- */

unsigned long
simulator_random(struct simulator *simulator, long seed)
{
	uint64_t state = simulator->random_state;

	if (state == 0)
		state = (uint64_t)seed * 2654435769u + 88172645463325252u;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	simulator->random_state = state;
	return (unsigned long)(state >> 11);
}

void
simulator_violation(struct simulator *simulator, long seed, bool aborts,
                    const char *format, va_list arguments)
{
	char text[200];

	vsnprintf(text, sizeof(text), format, arguments);
	atomic_fetch_add(&simulator->violations, 1);
	fprintf(stderr, "%s: violation: %s (%s_SEED=%ld)\n", simulator->name,
	        text, simulator->variable, seed);
	if (aborts)
		abort();
}

_Noreturn void
simulator_refuse_setting(const struct simulator *simulator, const char *name,
                         const char *value)
{
	fprintf(stderr, "%s: %s=\"%s\" is not understood\n", simulator->name, name,
	        value);
	exit(2);
}

void
simulator_variable(const struct simulator *simulator, const char *setting,
                   char *variable, size_t size)
{
	snprintf(variable, size, "%s_%s", simulator->variable, setting);
	for (char *at = variable; *at; at++)
		*at = (char)(*at >= 'a' && *at <= 'z' ? *at - 32 : *at);
}
