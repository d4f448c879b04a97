/* SPDX-License-Identifier: BSD-3-Clause */
#include "driver_sweep.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_world.h"
#include "shared_memory.h"

enum { FUNCTIONS_MAX = 128, LIVE_MAX = 16, LIMIT_S = 120 };

/* What a child tells. */
static struct told {
	long uses[FUNCTIONS_MAX]; /* without a fault */
	bool fired;
	struct {
		char what[24];
		long n;
	} live[LIVE_MAX]; /* likewise */
} *told;

struct driver_fault driver_fault;
static void (*program)(void);
static long before[FUNCTIONS_MAX];
static int runs, failures;

static void
describe(char text[160], const struct driver_fault *fault)
{
	snprintf(text, 160, "%s, use %ld, result %u%s, variant %d",
	         fault->function ? fault->function : "no fault", fault->n,
	         fault->result, fault->sticky ? ", sticky" : "", fault->variant);
}

void
driver_sweep_complain(const char *what, int line)
{
	char text[160];

	describe(text, &driver_fault);
	fprintf(stderr, "not ok  %s: line %d: %s; \"%s\"\n", text, line, what,
	        baton_last_error());
	_exit(1);
}

/* ---- in a child ---- */

void
driver_sweep_arm(void)
{
	const char *name;

	for (int i = 0; (name = cw.sim->sim_name(i)) != NULL; i++)
		before[i] = cw.sim->sim_uses(name);
	if (driver_fault.function)
		must(cw.sim->sim_fail(driver_fault.function, driver_fault.n,
		                      driver_fault.result, driver_fault.sticky));
}

void
driver_sweep_disarm(void)
{
	const char *name;

	for (int i = 0; (name = cw.sim->sim_name(i)) != NULL; i++) {
		long uses = cw.sim->sim_uses(name) - before[i];

		if (!driver_fault.function)
			told->uses[i] = uses;
		else if (strcmp(name, driver_fault.function) == 0)
			told->fired = uses >= driver_fault.n;
	}
	cw.sim->sim_fail(driver_fault.function ? driver_fault.function : "", 0,
	                 0, false);
}

void
driver_sweep_check_live(const char *what, long more)
{
	long n = cw.sim->sim_live(what);
	int i = 0;

	while (told->live[i].what[0] && strcmp(told->live[i].what, what) != 0)
		i++;
	must(i < LIVE_MAX - 1 && strlen(what) < sizeof(told->live[i].what));
	if (driver_fault.function) {
		if (n <= told->live[i].n + more)
			return;
		fprintf(stderr, "%s: %ld, not %ld\n", what, n, told->live[i].n);
		driver_sweep_complain("no more than without a fault", __LINE__);
	}
	memcpy(told->live[i].what, what, strlen(what) + 1);
	told->live[i].n = n;
}

/* ---- in the parent ---- */

void
driver_sweep_begin(void (*child)(void))
{
	told = shared_alloc(sizeof(*told));
	program = child;
}

bool
driver_sweep_one(struct driver_fault fault)
{
	char text[160];
	pid_t child;
	int status;

	driver_fault = fault;
	told->fired = false;
	runs++;
	child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL); /* not the one of Check */
		alarm(LIMIT_S);
		program();
		_exit(0);
	}
	if (waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	    WEXITSTATUS(status) == 0)
		return true;
	failures++;
	describe(text, &fault);
	if (WIFSIGNALED(status))
		fprintf(stderr, "not ok  %s: ended by signal %d\n", text,
		        WTERMSIG(status));
	return false;
}

const char *
driver_sweep_function(unsigned i)
{
	static const char *const functions[] = {
#define NAME(name, symbol, base, version, parameters) #symbol,
		BATONI_CUDA_FUNCTIONS(NAME) BATONI_CUDA_OPTIONAL(NAME)
#undef NAME
	};

	return i < sizeof(functions) / sizeof(functions[0]) ? functions[i] : NULL;
}

/* They are the simulator's first, in this order. */
long
driver_sweep_uses(const char *function)
{
	const char *name;

	for (unsigned i = 0; (name = driver_sweep_function(i)) != NULL; i++) {
		if (strcmp(name, function) == 0)
			return told->uses[i];
	}
	return 0;
}

bool
driver_sweep_fired(void)
{
	return told->fired;
}

int
driver_sweep_end(void)
{
	printf("%d of %d runs failed\n", failures, runs);
	fflush(stdout);
	return failures;
}
