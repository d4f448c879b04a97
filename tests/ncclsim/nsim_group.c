/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: what a thread's calls ask for, and what is done with it at the group's end.  A
 * call outside of a group is a group of its own.
 *
 * First what is aborted, whose kernels have all been told to end by then; then the jobs, all
 * side by side; then the connections that are new, all side by side; then the kernels, one
 * for each communicator.  The host blocks for the first two.  The
 * group of a non-blocking communicator that has any of them goes on in a thread of its own,
 * and its communicators are IN_PROGRESS until that is over.  An abort of one of them ends that
 * for all.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "nsim.h"

enum { OPS_MAX = 2048 }; /* of a group, as NCCL documents it */

struct work {
	struct nsim_job *jobs;
	struct nsim_plan *plans;
};

static _Thread_local struct {
	unsigned depth;
	ncclResult_t result; /* of the first call that failed */
	struct work work;
	ncclComm_t aborted;
	uint64_t devices; /* held, by their bits */
} group;

/* ---- what is in it ---- */

static void
free_work(struct work *work)
{
	struct nsim_plan *plan;
	struct nsim_job *job;

	while ((job = work->jobs) != NULL) {
		work->jobs = job->next;
		free(job);
	}
	while ((plan = work->plans) != NULL) {
		work->plans = plan->next;
		free(plan->ops);
		free(plan->streams);
		free(plan);
	}
}

static struct nsim_plan *
plan_for(ncclComm_t comm)
{
	struct nsim_plan **at = &group.work.plans;

	while (*at && (*at)->comm != comm)
		at = &(*at)->next;
	if (!*at) {
		*at = nsim_alloc(1, sizeof(**at));
		(*at)->comm = comm;
	}
	return *at;
}

static void
add_stream(struct nsim_plan *plan, CUstream stream)
{
	for (size_t i = 0; i < plan->streams_n; i++) {
		if (plan->streams[i] == stream)
			return;
	}
	plan->streams = realloc(plan->streams,
	                        (plan->streams_n + 1) * sizeof(stream));
	if (!plan->streams)
		abort();
	plan->streams[plan->streams_n++] = stream;
}

static void
add_op(struct nsim_plan *plan, const struct nsim_op *op)
{
	if (plan->ops_n == plan->ops_max) {
		plan->ops_max = plan->ops_max ? 2 * plan->ops_max : 8;
		plan->ops = realloc(plan->ops,
		                    plan->ops_max * sizeof(*plan->ops));
		if (!plan->ops)
			abort();
	}
	plan->ops[plan->ops_n++] = *op;
}

/* The communicators that the work concerns, one after another. */
static void
each_comm(const struct work *work, void (*fn)(ncclComm_t comm, unsigned value),
          unsigned value)
{
	for (struct nsim_job *job = work->jobs; job; job = job->next) {
		fn(job->comm, value);
		if (job->parent)
			fn(job->parent, value);
	}
	for (struct nsim_plan *plan = work->plans; plan; plan = plan->next)
		fn(plan->comm, value);
}

/* ---- connections ---- */

/* One of the communicators is being aborted. */
static bool
is_stopped(const struct work *work)
{
	const struct nsim_plan *plan = work->plans;

	while (plan && !atomic_load(&plan->comm->stop))
		plan = plan->next;
	return plan != NULL;
}

static struct nsim_link *
link_of(ncclComm_t comm, const struct nsim_op *op)
{
	return op->kind == NSIM_SEND ? nsim_link(comm, comm->rank, op->peer)
	                             : nsim_link(comm, op->peer, comm->rank);
}

static bool
is_new(const struct nsim_plan *plan, const struct nsim_op *op)
{
	unsigned connected = op->kind == NSIM_SEND ? plan->comm->send_to
	                                           : plan->comm->recv_from;

	return op->kind <= NSIM_RECV && op->peer != plan->comm->rank && !(connected >> op->peer & 1);
}

static bool
is_any_new(const struct nsim_plan *plan)
{
	size_t i = 0;

	while (i < plan->ops_n && !is_new(plan, &plan->ops[i]))
		i++;
	return i < plan->ops_n;
}

static bool
is_connected(const struct nsim_plan *plan)
{
	for (size_t i = 0; i < plan->ops_n; i++) {
		const struct nsim_op *op = &plan->ops[i];

		if (op->kind <= NSIM_RECV && op->peer != plan->comm->rank &&
		    atomic_load(&link_of(plan->comm, op)->joined) != 3)
			return false;
	}
	return true;
}

static void
begin_to_connect(const struct nsim_plan *plan)
{
	for (size_t i = 0; i < plan->ops_n; i++) {
		const struct nsim_op *op = &plan->ops[i];

		if (!is_new(plan, op))
			continue;
		atomic_fetch_or(&link_of(plan->comm, op)->joined,
		                op->kind == NSIM_SEND ? 1u : 2u);
		if (op->kind == NSIM_SEND)
			plan->comm->send_to |= 1u << op->peer;
		else
			plan->comm->recv_from |= 1u << op->peer;
		nsim_gpu_use(plan->comm,
		             nsim_gpu_connection(plan->comm,
		                                 op->kind == NSIM_SEND));
	}
}

static ncclResult_t
connect_all(const struct work *work)
{
	ncclResult_t result = BATONI_NCCL_SUCCESS;
	struct nsim_plan *plan;
	unsigned us = 20;

	for (plan = work->plans; plan; plan = plan->next) {
		if (!is_any_new(plan))
			continue;
		result = nsim_use(NSIM_JOB);
		if (result != BATONI_NCCL_SUCCESS)
			return result;
		begin_to_connect(plan);
	}
	for (plan = work->plans; plan; plan = plan->next) {
		while (!is_connected(plan)) {
			if (is_stopped(work))
				return nsim_error(BATONI_NCCL_INTERNAL_ERROR,
				                  "aborted");
			simulator_nap(us);
			us = us < 500 ? us * 2 : us;
		}
	}
	return result;
}

/* ---- carrying it out ---- */

static void
stop_comm(ncclComm_t comm, unsigned unused)
{
	(void)unused;
	atomic_store(&comm->stop, true);
}

static ncclResult_t
run_jobs(const struct work *work)
{
	ncclResult_t result = BATONI_NCCL_SUCCESS, one;
	bool waiting = work->jobs != NULL;

	for (struct nsim_job *job = work->jobs; job; job = job->next) {
		one = nsim_use(NSIM_JOB);
		if (one != BATONI_NCCL_SUCCESS)
			result = one;
	}
	for (unsigned us = 20; waiting && result == BATONI_NCCL_SUCCESS;
	     us = us < 500 ? us * 2 : us) {
		waiting = false;
		for (struct nsim_job *job = work->jobs; job; job = job->next) {
			one = job->over ? BATONI_NCCL_SUCCESS
			                : nsim_job_step(job);
			job->over = one != BATONI_NCCL_IN_PROGRESS;
			waiting |= !job->over;
			if (job->over && one != BATONI_NCCL_SUCCESS)
				result = one;
		}
		if (waiting && result == BATONI_NCCL_SUCCESS)
			simulator_nap(us);
	}
	return result;
}

static ncclResult_t
run_work(const struct work *work)
{
	ncclResult_t result = run_jobs(work);

	if (result == BATONI_NCCL_SUCCESS)
		result = connect_all(work);
	for (struct nsim_plan *plan = work->plans;
	     plan && result == BATONI_NCCL_SUCCESS; plan = plan->next)
		result = nsim_kernel_launch(plan);
	return result;
}

static void
begin_background(ncclComm_t comm, unsigned unused)
{
	(void)unused;
	comm->unseen = true;
	atomic_store(&comm->result, BATONI_NCCL_IN_PROGRESS);
	atomic_store(&comm->working, true);
}

static void
end_background(ncclComm_t comm, unsigned result)
{
	ncclResult_t before = BATONI_NCCL_IN_PROGRESS;

	if (result != BATONI_NCCL_SUCCESS)
		nsim_comm_fail(comm, result);
	else
		atomic_compare_exchange_strong(&comm->result, &before,
		                               BATONI_NCCL_SUCCESS);
	atomic_store(&comm->working, false);
}

static void *
background_main(void *argument)
{
	struct work *work = argument;

	/* The program is to see that it is not over. */
	nsim_maybe_nap(1);
	while (work->plans && !nsim_set.launches && !is_stopped(work))
		simulator_nap(100);
	each_comm(work, end_background, run_work(work));
	free_work(work);
	free(work);
	return NULL;
}

static ncclResult_t
run_in_background(const struct work *from)
{
	struct work *work = nsim_alloc(1, sizeof(*work));
	ncclResult_t fault = nsim_use(NSIM_THREAD);
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	int error;

	*work = *from;
	each_comm(work, begin_background, 0);
	/* Signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	error = fault == BATONI_NCCL_SUCCESS
	                ? pthread_create(&thread, &attributes, background_main,
	                                 work)
	                : EAGAIN;
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return BATONI_NCCL_IN_PROGRESS;
	each_comm(work, end_background, BATONI_NCCL_SYSTEM_ERROR);
	free_work(work);
	free(work);
	return BATONI_NCCL_SYSTEM_ERROR;
}

/* ---- the group's end ---- */

static _Thread_local unsigned kinds; /* 1: blocking, 2: non-blocking */

static void
note_kind(ncclComm_t comm, unsigned unused)
{
	(void)unused;
	kinds |= comm->blocking ? 1u : 2u;
}

/* A message to itself needs both sides in the group. */
static bool
is_self_alone(const struct nsim_plan *plan)
{
	long sends = 0, recvs = 0;

	for (size_t i = 0; i < plan->ops_n; i++) {
		if (plan->ops[i].peer == plan->comm->rank) {
			sends += plan->ops[i].kind == NSIM_SEND;
			recvs += plan->ops[i].kind == NSIM_RECV;
		}
	}
	return sends != recvs;
}

static bool
creates(const struct work *work)
{
	struct nsim_job *job = work->jobs;

	while (job && job->kind == NSIM_RMA)
		job = job->next;
	return job != NULL;
}

static ncclResult_t
check_kinds_of(const struct work *work)
{
	kinds = 0;
	each_comm(work, note_kind, 0);
	if (kinds == 3)
		return nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                  "blocking and non-blocking communicators in one "
		                  "group");
	if (creates(work) && work->plans)
		return nsim_error(BATONI_NCCL_INVALID_USAGE,
		                  "creation and communication in one group");
	for (struct nsim_plan *plan = work->plans; plan; plan = plan->next) {
		if (is_self_alone(plan))
			return nsim_error(BATONI_NCCL_INVALID_USAGE,
			                  "a send or recv to self without its "
			                  "match");
	}
	return BATONI_NCCL_SUCCESS;
}

static bool
blocks(const struct work *work)
{
	struct nsim_plan *plan = work->plans;

	while (plan && !is_any_new(plan))
		plan = plan->next;
	return work->jobs || plan ||
	       (work->plans && (nsim_set.slow || !nsim_set.launches));
}

static void
fail(ncclComm_t comm, unsigned result)
{
	nsim_comm_fail(comm, result);
}

static ncclResult_t
carry_out(struct work *work)
{
	ncclResult_t result = check_kinds_of(work);

	if (result == BATONI_NCCL_SUCCESS && kinds == 2 && blocks(work))
		return run_in_background(work);
	if (result == BATONI_NCCL_SUCCESS) {
		result = run_work(work);
		/* The ranks of one thread do not wait for one that failed. */
		if (result != BATONI_NCCL_SUCCESS && work->jobs)
			each_comm(work, stop_comm, 0);
	}
	if (result != BATONI_NCCL_SUCCESS && kinds == 2)
		each_comm(work, fail, result);
	free_work(work);
	return result;
}

static void
release_devices(void)
{
	for (int i = 0; i < 64; i++) {
		if (group.devices >> i & 1)
			nsim_release_device(i);
	}
	group.devices = 0;
}

static ncclResult_t
end_group(void)
{
	struct work work = group.work;
	ncclResult_t result = group.result;

	if (--group.depth > 0)
		return BATONI_NCCL_SUCCESS;
	while (group.aborted) {
		ncclComm_t comm = group.aborted;

		group.aborted = comm->next_aborted;
		nsim_comm_reclaim(comm);
	}
	group.work = (struct work){NULL, NULL};
	group.result = BATONI_NCCL_SUCCESS;
	if (result == BATONI_NCCL_SUCCESS)
		result = carry_out(&work);
	else
		free_work(&work);
	release_devices();
	return result;
}

/* ---- calls ---- */

void
nsim_group_begin(void)
{
	group.depth++;
}

ncclResult_t
nsim_group_finish(void)
{
	return end_group();
}

ncclResult_t
nsim_group_refuse(ncclResult_t result)
{
	if (group.depth > 0 && group.result == BATONI_NCCL_SUCCESS)
		group.result = result;
	return result;
}

static void
hold(ncclComm_t comm)
{
	if (group.depth > 1 && !(group.devices >> comm->device % 64 & 1)) {
		nsim_hold_device(comm->device % 64);
		group.devices |= (uint64_t)1 << comm->device % 64;
	}
}

ncclResult_t
nsim_group_job(ncclComm_t comm, const struct nsim_job *job)
{
	struct nsim_job **at = &group.work.jobs, *copy;

	group.depth++;
	hold(comm);
	copy = nsim_alloc(1, sizeof(*copy));
	*copy = *job;
	while (*at)
		at = &(*at)->next;
	*at = copy;
	return end_group();
}

ncclResult_t
nsim_group_abort(ncclComm_t comm)
{
	group.depth++;
	comm->next_aborted = group.aborted;
	group.aborted = comm;
	return end_group();
}

static size_t
count_ops(void)
{
	size_t n = 0;

	for (struct nsim_plan *plan = group.work.plans; plan; plan = plan->next)
		n += plan->ops_n;
	return n;
}

ncclResult_t
nsim_group_op(ncclComm_t comm, const struct nsim_op *op, CUstream stream)
{
	struct nsim_plan *plan;

	if (count_ops() == OPS_MAX)
		return nsim_group_refuse(BATONI_NCCL_INVALID_USAGE);
	/* What it was compiled for. */
	if (!stream && nsim_set.per_thread)
		stream = (CUstream)(uintptr_t)BATONI_CU_STREAM_PER_THREAD_VALUE;
	group.depth++;
	hold(comm);
	plan = plan_for(comm);
	add_op(plan, op);
	add_stream(plan, stream);
	return end_group();
}

ncclResult_t
ncclGroupStart(void)
{
	ncclResult_t result = nsim_use(NSIM_ncclGroupStart);

	if (result == BATONI_NCCL_SUCCESS)
		group.depth++;
	return result;
}

ncclResult_t
ncclGroupEnd(void)
{
	ncclResult_t result = nsim_use(NSIM_ncclGroupEnd);

	if (group.depth == 0) {
		nsim_violation("ncclGroupEnd without ncclGroupStart");
		return BATONI_NCCL_INVALID_USAGE;
	}
	/* The group is over, whatever comes. */
	if (result != BATONI_NCCL_SUCCESS)
		nsim_group_refuse(result);
	return end_group();
}
