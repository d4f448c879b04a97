/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of `baton doctor` share.  A check tries one thing and adds a finding, with the
 * same text on ranks that find the same: equal findings of several ranks become one line.
 */
#ifndef BATON_TOOL_DOCTOR_H
#define BATON_TOOL_DOCTOR_H

#include <jansson.h>

#include "job.h"

enum level { GOOD, SLOW, BROKEN };

/* What the check is of, how good it is, and what was found; beside GOOD what that costs, and how it is
 * mended. */
void doctor_find(json_t *findings, const char *name, enum level level,
                 const char *costs, const char *mend, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

/* doctor_host.c: memory, other processes, clock.  It forks, so it comes before MPI and all threads. */
void doctor_host(json_t *findings);
/* doctor_job.c: communicators and what moves messages.  Collective over the job. */
void doctor_job(json_t *findings, struct job *job);
/* doctor_gpu.c: CUDA's driver and NCCL.  Collective over the job. */
void doctor_gpu(json_t *findings, struct job *job);

#endif
