/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A seeded random load on one communicator, the same code for ranks that are
 * threads and ranks that are processes.
 *
 * Each rank runs a few workers.  Worker w of one rank talks to worker w of all
 * other ranks, on tags and signals of its own, and both sides draw the same plan
 * from the same seed: what is sent, received, put and waited for, how long it is, on
 * which streams, in groups or not, which messages are lists of tensors, and what their receives
 * declare.  So every payload, length, truncation, mismatch and counter is known.  Beside that each worker makes operations that nobody answers, or too few,
 * and ends them by cancel or deadline, which the other side never notices; and windows
 * come and go.
 */
#ifndef STRESS_H
#define STRESS_H

#include <stdint.h>

#include "baton.h"

struct stress_options {
	uint64_t seed;
	int workers;
	int rounds; /* of each worker */
	int fail;   /* a worker of this rank fails, so that the end of the job is tested; -1: none */
	void (*end_job)(void); /* all ranks, at once; main sets it */
};

/* --seed N, --workers N, --rounds N, --fail RANK.  The seed is drawn when it is not given. */
struct stress_options stress_options(int argc, char **argv, int rounds);

/* What the communicator is to be created with. */
struct baton_comm_options
stress_comm_options(const struct stress_options *options);

/* Run this rank's workers to their end.  The first failure of any rank is printed, with what is needed
 * to have it again, and ends the job. */
void stress_rank(struct baton_comm *comm, const struct stress_options *options);

#endif
