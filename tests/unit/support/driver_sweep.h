/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that is run again and again over the CUDA driver's simulator, each time in a process of
 * its own, in which one use of one driver function fails.
 *
 * The program arms its fault, does what it does, disarms it, and says what must hold with `must`.
 * It is run without a fault first: that tells how often each function is used.
 */
#ifndef DRIVER_SWEEP_H
#define DRIVER_SWEEP_H

#include <stdbool.h>

#include "cuda_api.h"

struct driver_fault {
	const char *function; /* NULL: none */
	long n;               /* its use, from 1 */
	CUresult result;
	bool sticky;
	int variant; /* the program's: its number of a way to run */
};

/* The fault of this process. */
extern struct driver_fault driver_fault;

/* In a child: if it is false, the run has failed. */
#define must(condition)                                                       \
	do {                                                                  \
		if (!(condition))                                             \
			driver_sweep_complain(#condition, __LINE__);          \
	} while (0)
_Noreturn void driver_sweep_complain(const char *what, int line);

/* The fault is armed, and the uses from here to the disarming are counted. */
void driver_sweep_arm(void);
void driver_sweep_disarm(void);

/* Objects of the simulator (sim_live), of which no run may leave more than the one without a
 * fault: called there, this notes their number.  more: how many more there may be. */
void driver_sweep_check_live(const char *what, long more);

/* Once, before the others: child is the program. */
void driver_sweep_begin(void (*child)(void));
/* Run the program once.  False: it has failed, and stderr says how. */
bool driver_sweep_one(struct driver_fault fault);
/* The uses of the function in the last run without a fault. */
long driver_sweep_uses(const char *function);
/* Did the fault of the last run happen? */
bool driver_sweep_fired(void);
/* All functions of the driver, then NULL. */
const char *driver_sweep_function(unsigned i);
/* Prints how many runs there were, and returns how many of them failed. */
int driver_sweep_end(void);

#endif
