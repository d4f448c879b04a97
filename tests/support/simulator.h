/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulators (tests/cudasim, tests/ncclsim) have in common: faults that a test asks for,
 * random numbers, and messages.  Each has a struct simulator of its own.
 *
 * No locks: the simulator's own guards it, except for what says otherwise.
 */
#ifndef SIMULATOR_H
#define SIMULATOR_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIMULATOR_FAULTS_MAX = 64 };

/* The n-th use from now of a function returns the result. */
struct simulator_fault {
	int function;
	long n; /* 0: there is no fault here */
	unsigned result;
	bool sticky;
};

struct simulator {
	const char *name;     /* messages begin with it */
	const char *variable; /* names in the environment do, behind it an underscore */
	int any;              /* as a fault's function: all of them */
	struct simulator_fault faults[SIMULATOR_FAULTS_MAX];
	size_t faults_due;    /* how many have n above 0: mostly none, and each call asks */
	uint64_t random_state; /* 0: the next number is the seed's first */
	_Atomic int violations;
};

/* Zeroed memory.  Any thread, no lock. */
void *simulator_alloc(const struct simulator *simulator, size_t n, size_t bytes);
/* Any thread, no lock. */
void simulator_nap(unsigned us);

/* ---- faults ---- */

/* n 0: the function's faults are taken away.  False: function or n is negative, or there are as
 * many faults as there can be. */
bool simulator_fail(struct simulator *simulator, int function, long n,
                    unsigned result, bool sticky);
/* The function is used: its faults are counted down, and if counts_as_any those of `any`.  The
 * result of the one that is due, or 0. */
unsigned simulator_fault(struct simulator *simulator, int function,
                         bool counts_as_any, bool *sticky_p);
/* "cuMemcpyAsync:3:700,*:1:719:sticky" from the environment: `fail` is called for each, with ""
 * for the star; false: it is not understood.  NULL, or the fault that is not understood, which
 * stays until the next call. */
const char *simulator_read_faults(const char *text,
                                  bool (*fail)(const char *name, long n,
                                               unsigned result, bool sticky));

/* ---- random numbers, messages ---- */

/* The same sequence for the same seed, which is not 0. */
unsigned long simulator_random(struct simulator *simulator, long seed);

/* Count a violation, and print it; the process is aborted if `aborts`.  Any thread, no
 * lock. */
void simulator_violation(struct simulator *simulator, long seed, bool aborts,
                         const char *format, va_list arguments)
	__attribute__((format(printf, 4, 0)));

/* A setting of the environment is not understood: the end of the program. */
_Noreturn void simulator_refuse_setting(const struct simulator *simulator,
                                        const char *name, const char *value);

/* The variable of a setting: "seed" is CUDASIM_SEED.  Cut to size. */
void simulator_variable(const struct simulator *simulator, const char *setting,
                        char *variable, size_t size);

#endif
