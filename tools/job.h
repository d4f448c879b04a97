/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks that run the command, and what they tell rank 0.
 *
 * `comm` is what a program gets here that asks for nothing: baton_comm_create with no options, so
 * with the device and transport that the environment names.  Reports go over a communicator of
 * their own, `host`, on the host device: `comm` may be unable to carry memory of the host.
 * Both have deadlines, so that a rank that is gone is told of rather than waited for.  The start of MPI has none:
 * an alarm ends a process whose ranks do not meet.
 */
#ifndef BATON_TOOL_JOB_H
#define BATON_TOOL_JOB_H

#include <stdbool.h>

#include <jansson.h>

#include <baton.h>

struct job {
	struct baton_comm *comm; /* NULL: it was refused */
	struct baton_comm *host; /* NULL: this rank reports alone */
	int rank, size;
	char why_not[512];      /* why comm was refused; "" */
	char why_alone[512];    /* why there are ranks whose report is missing; "" */
	struct baton_op_options detached; /* of what goes over `host` */
};

/* Collective over the job. */
void job_open(struct job *job);
/* The same in two steps: `host`; and `comm` with these options, whose deadline is that of both from then on. */
void job_open_host(struct job *job);
void job_open_comm(struct job *job, const struct baton_comm_options *options);
/* This thread as rank `rank` of `size`, all threads of this process; one id for each of the two. */
void job_open_thread(struct job *job, int rank, int size,
                     const struct baton_unique_id ids[2],
                     const struct baton_comm_options *options);
/* Collective.  What rank 0 has there becomes what all have.  False: some rank did not answer, and why_alone
 * says why. */
bool job_share(struct job *job, void *data, size_t bytes);
/* Collective, behind the report: rank 0 has printed it.  On other ranks why_alone says why it has not. */
void job_tell_printed(struct job *job);
/* On another rank than 0: rank 0 has not heard it, or is not heard.  It has printed why. */
bool job_is_cut_off(const struct job *job, const char *command);
/* Collective.  Returns when all have called.  False: as above. */
bool job_meet(struct job *job);
/* Collective.  On rank 0 an array with the trees of all ranks that have told, in their order; on
 * others NULL.  Takes the reference to `mine`. */
json_t *job_gather(struct job *job, json_t *mine);
/* Collective. */
void job_close(struct job *job);

/* The rank that a launcher has written into the environment; 0: none has.  Of a process that is no rank yet. */
int job_rank_of_launcher(void);

#endif
