/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks do together, step by step: creation, split, shrink, windows, the end.  A step
 * never blocks, so that one thread can do the jobs of several ranks.
 */
#include <stdio.h>
#include <string.h>

#include "nsim.h"

enum { MEET = 10 }; /* the state in which a communicator's ranks begin to meet */

static ncclResult_t
meet(struct nsim_job *job)
{
	ncclComm_t comm = job->comm;
	ncclResult_t result;

	if (job->state == MEET) {
		result = nsim_map_open(comm->id, comm->ranks, &comm->map);
		if (result != BATONI_NCCL_SUCCESS)
			return result;
		if (!nsim_join(comm)) {
			nsim_violation("two ranks %d of one communicator",
			               comm->rank);
			return BATONI_NCCL_INVALID_USAGE;
		}
		job->state++;
	}
	if (!nsim_all_joined(comm))
		return BATONI_NCCL_IN_PROGRESS;
	if (nsim_shares_gpu(comm))
		return nsim_error(BATONI_NCCL_INVALID_USAGE,
		                  "Duplicate GPU detected: two ranks on one device");
	comm->rma = comm->eager_rma;
	return comm->rma ? nsim_agent_start(comm) : BATONI_NCCL_SUCCESS;
}

/* ---- split --------------------------------------------------------------- */

/* The place of the rank among those of its colour, by key and rank. */
static void
take_place(struct nsim_job *job, const struct nsim_exchange *all)
{
	ncclComm_t comm = job->comm, parent = job->parent;
	char text[NSIM_ID + 64];
	uint64_t hash;

	for (int i = 0; i < parent->ranks; i++) {
		int key = atomic_load(&all->key[i]);

		if (atomic_load(&all->colour[i]) != job->colour)
			continue;
		comm->ranks++;
		if (key < job->key || (key == job->key && i < parent->rank))
			comm->rank++;
	}
	snprintf(text, sizeof(text), "%s split %u %d", parent->id, job->number,
	         job->colour);
	hash = nsim_hash(text, strlen(text), 3);
	snprintf(comm->id, sizeof(comm->id), "ncclsim-%016llx%016llx",
	         (unsigned long long)hash,
	         (unsigned long long)nsim_hash(text, strlen(text), hash));
}

static ncclResult_t
split(struct nsim_job *job)
{
	const struct nsim_exchange *all;

	if (job->state == 0) {
		nsim_exchange_give(job->parent, job->number, job->colour,
		                   job->key);
		job->state = 1;
	}
	if (job->state == 1) {
		all = nsim_exchange_look(job->parent, job->number);
		if (!all)
			return BATONI_NCCL_IN_PROGRESS;
		if (job->colour < 0) {
			/* It only had to say that it takes no part. */
			nsim_comm_close(job->comm);
			return BATONI_NCCL_SUCCESS;
		}
		take_place(job, all);
		job->state = MEET;
	}
	return meet(job);
}

/* ---- the others ---------------------------------------------------------- */

static ncclResult_t
shrink(struct nsim_job *job)
{
	if (job->state == 0) {
		if (job->drains && atomic_load(&job->parent->pending) > 0)
			return BATONI_NCCL_IN_PROGRESS;
		if (job->drains)
			atomic_store(&job->parent->stop, false);
		job->state = MEET;
	}
	return meet(job);
}

static ncclResult_t
make_window(struct nsim_job *job)
{
	if (job->state == 0) {
		nsim_exchange_give(job->comm, job->number, 0, 0);
		job->state = 1;
	}
	if (!nsim_exchange_look(job->comm, job->number))
		return BATONI_NCCL_IN_PROGRESS;
	nsim_window_made(job);
	/* Before 2.31 the first one-sided operation does that. */
	if (nsim_set.version < 23100)
		return BATONI_NCCL_SUCCESS;
	job->comm->rma = true;
	return nsim_agent_start(job->comm);
}

/* What the first one-sided operation waits for. */
static ncclResult_t
prepare_rma(struct nsim_job *job)
{
	if (job->state == 0) {
		nsim_exchange_give(job->comm, job->number, 0, 0);
		job->state = 1;
	}
	return nsim_exchange_look(job->comm, job->number)
	               ? nsim_agent_start(job->comm)
	               : BATONI_NCCL_IN_PROGRESS;
}

/* All ranks' work is over before any of them is done. */
static ncclResult_t
finalize(struct nsim_job *job)
{
	struct nsim_segment *segment = job->comm->map->segment;

	if (job->state == 0) {
		if (atomic_load(&job->comm->pending) > 0)
			return BATONI_NCCL_IN_PROGRESS;
		nsim_say(job->comm, NSIM_FINALIZED);
		atomic_fetch_add(&segment->finalized, 1);
		job->state = 1;
	}
	return atomic_load(&segment->finalized) == job->comm->ranks
	               ? BATONI_NCCL_SUCCESS
	               : BATONI_NCCL_IN_PROGRESS;
}

static ncclResult_t
revoke(struct nsim_job *job)
{
	if (atomic_load(&job->comm->pending) > 0)
		return BATONI_NCCL_IN_PROGRESS;
	atomic_store(&job->comm->stop, false);
	return BATONI_NCCL_SUCCESS;
}

static bool
is_stopped(const struct nsim_job *job)
{
	if (job->kind == NSIM_REVOKE || job->drains)
		return false;
	return atomic_load(&job->comm->stop) ||
	       (job->parent && atomic_load(&job->parent->stop));
}

ncclResult_t
nsim_job_step(struct nsim_job *job)
{
	if (is_stopped(job))
		return nsim_error(BATONI_NCCL_INTERNAL_ERROR, "aborted");
	switch (job->kind) {
	case NSIM_INIT:
		if (job->state == 0)
			job->state = MEET;
		return meet(job);
	case NSIM_SPLIT:
		return split(job);
	case NSIM_SHRINK:
		return shrink(job);
	case NSIM_WINDOW:
		return make_window(job);
	case NSIM_FINALIZE:
		return finalize(job);
	case NSIM_REVOKE:
		return revoke(job);
	case NSIM_RMA:
		return prepare_rma(job);
	}
	return BATONI_NCCL_INTERNAL_ERROR;
}

ncclResult_t
nsim_job_run(struct nsim_job *job)
{
	ncclResult_t result;

	for (unsigned us = 20;; us = us < 500 ? us * 2 : us) {
		result = nsim_job_step(job);
		if (result != BATONI_NCCL_IN_PROGRESS)
			return result;
		simulator_nap(us);
	}
}
