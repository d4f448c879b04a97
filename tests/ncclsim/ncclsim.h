/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL without GPUs, for tests: its names over the simulated CUDA driver, stricter than
 * the real one where programs go wrong.  docs/simulators.md says what it models, and has
 * all settings.
 *
 * Baton takes it for NCCL when BATON_NCCL_LIBRARY names libncclsim.so.  A test program
 * gets at the same library by ncclsim_load: NCCL's functions and the controls below.  The
 * simulator is the one of the process, however often it is loaded.
 */
#ifndef NCCLSIM_H
#define NCCLSIM_H

#include <stdbool.h>

#include "nccl_api.h"

/*
 * X(result, name, parameters): what a test tells the simulator, and asks it.  Each is
 * exported as ncclsim_<name>.  Any thread.
 *
 *   set         a setting: docs/simulators.md, without the NCCLSIM_ and in small letters.
 *               false: there is none of that name, or the value is not one of it.
 *   fail        the n-th use from now of a function (1: the next one) returns the result.
 *               Names beside the exported ones: "" any function; "job": what NCCL does
 *               in the background, or while the host blocks (a creation, a connection),
 *               fails; "kernel": the n-th kernel never ends, and its communicator has the
 *               result as its asynchronous error; "thread": NCCL gets no thread for a
 *               group (ncclSystemError, whatever the result is).  n 0: forget.
 *   break       the communicator has an asynchronous error from now on.
 *   uses        calls of a function so far ("": of all; "job", "kernel", "thread"); of a
 *               name that is none: -1.
 *   live        "comms", "kernels" (launched, not gone), "running" (those of them that
 *               have begun and not ended), "windows", "blocks" (ncclMemAlloc), "bytes" (of
 *               device memory, of communicators and their connections), "delays" (how many
 *               there were).
 *   violations  breaches of NCCL's rules so far; each was printed.
 */
#define NCCLSIM_CONTROLS(X)                                                   \
	X(bool, set, (const char *name, long value))                          \
	X(bool, fail, (const char *name, long n, ncclResult_t result))        \
	X(void, break, (ncclComm_t comm, ncclResult_t result))                \
	X(long, uses, (const char *name))                                     \
	X(long, live, (const char *what))                                     \
	X(int, violations, (void))

struct ncclsim {
#define NCCLSIM_FUNCTION(name, symbol, since, result, parameters)             \
	result (*name) parameters;
	BATONI_NCCL_FUNCTIONS(NCCLSIM_FUNCTION)
	BATONI_NCCL_OPTIONAL(NCCLSIM_FUNCTION)
#undef NCCLSIM_FUNCTION
#define NCCLSIM_CONTROL(result, name, parameters) result (*sim_##name) parameters;
	NCCLSIM_CONTROLS(NCCLSIM_CONTROL)
#undef NCCLSIM_CONTROL
};

/* load.c: the simulator's functions; path NULL: what BATON_NCCL_LIBRARY names.  A library
 * that is no simulator has no controls: they are NULL.  NULL: there is no such library, or
 * it lacks a function; stderr says which. */
const struct ncclsim *ncclsim_load(const char *path);

#endif
