/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a transport.
 *
 * With all ranks: when all have said that they leave, each finalizes its communicators,
 * without blocking, and asks until NCCL says that all ranks have.  Then destroying them
 * waits for no rank.  But it frees memory of the device, for which CUDA waits until all
 * streams of the device are idle, and one of them may wait for a word of the engine, or for a message
 * of another communicator.  So the driver does not make that call either: a job (thread.h) does,
 * the ender, and without the lock of the device.  NCCL takes one thread at a time for a
 * communicator; that several threads may not call it for one device is for the sake of what they
 * launch, and nothing is launched here.
 *
 * By force: ncclCommAbort ends the kernels of a communicator and waits until they have left,
 * those too that are behind other work of their streams.  That may be the kernels of another
 * lane, so all are told to end before any is waited for (ncclCommRevoke; where the library
 * has none, all aborts are in one group).  It may be work of the program, so two jobs make
 * these calls, the stopper and the ender.  The order:
 *   1. the engine has released its own words;
 *   2. `aborting` is set: enqueue refuses from now on, and one that waits for NCCL returns;
 *   3. the stopper takes the lock of the device and tells all lanes to end; the engine asks for
 *      its end, for a grace period at most (an enqueue that hangs inside NCCL has the lock).
 *      NCCL may still be launching a lane's group, of which ncclCommRevoke frees what is used
 *      later: the stopper waits for it, GROUP_NS at most, and aborts the lane if it does not end;
 *   4. when the communicator is destroyed the ender waits for the stopper, and then aborts the
 *      lanes, which frees them.  It waits for those that were revoked first.
 * Not ended so: a group of several lanes whose launch blocks on a full stream, where that is full of
 * kernels of one of these lanes that wait for their peers.  ncclCommAbort of the first lane joins the
 * launch before the other lane is told.  Then the stopper stays in it, the operations end LENT after the
 * grace period, and closing leaves the transport to the ender.
 * From step 2 on only these two use the lanes: a thread that gets the lock of the device later sees
 * `aborting`.  So it aborts without the lock: other communicators of the GPU go on, and another
 * rank of the process may have to end what stands before the kernels.
 * The lane of puts is not aborted while a put that was announced to this rank has not come
 * (nccl_puts.c): ncclCommAbort would wait for it, and it may be lost.  Where that
 * lane cannot be revoked, being in error, it is left alone until then, or for ever.
 * If the ender takes longer than the engine's patience, the transport is left to it: its
 * memory and the device stay.
 */
#include <time.h>

#include "clock.h"
#include "list.h"
#include "log.h"
#include "mem.h"
#include "nccl_transport.h"
#include "thread.h"

/* So long the driver waits for the lock of the device, where there is no thread for a job. */
#define STOP_NS ((uint64_t)1000000000)
/* So long a group may be in progress before its lane is aborted, not revoked; and, below a grace
 * period, messages to oneself may take that were launched. */
#define GROUP_NS ((uint64_t)250000000)
/* The longest back-off of the thread that ends lanes, between two polls. */
#define PAUSE_MAX_NS 100000000
#define GROUP_TRIES 3u

static struct batoni_nccl *
to_nccl(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_nccl, base);
}

/* ---- with all ranks ---- */

static ncclResult_t
finalize_all(struct batoni_nccl *nccl)
{
	ncclResult_t result = nccl->api->group_start();

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++) {
		if (nccl->lanes[i].comm)
			nccl->api->comm_finalize(nccl->lanes[i].comm);
	}
	return nccl->api->group_end();
}

static enum baton_status
finalize(struct batoni_nccl *nccl)
{
	struct batoni_upcalls *upcalls = nccl->base.upcalls;
	struct batoni_memory_guard guard;
	struct batoni_nccl_lane *lane = NULL;
	ncclResult_t state = BATONI_NCCL_SUCCESS;
	enum baton_status status = batoni_nccl_try_enter(nccl, &guard);
	char text[256];

	if (status != BATON_OK)
		return status == BATON_ERR_AGAIN ? BATON_PENDING : status;
	if (atomic_load(&nccl->aborting)) {
		batoni_nccl_leave(nccl, &guard);
		return BATON_ERR_ABORTED;
	}
	if (!nccl->finalizing)
		state = finalize_all(nccl);
	nccl->finalizing = true;
	if (state == BATONI_NCCL_SUCCESS || state == BATONI_NCCL_IN_PROGRESS)
		state = batoni_nccl_state(nccl, false, &lane);
	if (state != BATONI_NCCL_SUCCESS && state != BATONI_NCCL_IN_PROGRESS)
		batoni_nccl_describe(nccl->api, lane ? lane->comm : NULL, state,
		                     text, sizeof(text));
	batoni_nccl_leave(nccl, &guard);
	if (state == BATONI_NCCL_IN_PROGRESS)
		return BATON_PENDING;
	nccl->finalized = state == BATONI_NCCL_SUCCESS;
	if (nccl->finalized)
		return BATON_OK;
	upcalls->broken(upcalls, BATON_ERR_NCCL, "ncclCommFinalize", (int)state, text);
	return BATON_ERR_NCCL;
}

enum baton_status
batoni_nccl_clear(struct batoni_transport *transport)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_transport *lower = nccl->lower;
	enum baton_status status;

	batoni_nccl_poll_lower(nccl);
	status = nccl->finalized ? BATON_OK : finalize(nccl);

	if (status != BATON_OK || !lower->ops->clearing)
		return status;
	return lower->ops->clearing->clear(lower);
}

static void
destroy_lanes(struct batoni_nccl *nccl)
{
	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++) {
		if (nccl->lanes[i].comm)
			nccl->api->comm_destroy(nccl->lanes[i].comm);
		nccl->lanes[i].comm = NULL;
	}
	batoni_nccl_puts_reclaim(nccl);
}

/* ---- by force ---- */

/* Would ncclCommAbort wait for a put? */
static bool
is_awaiting(const struct batoni_nccl *nccl, const struct batoni_nccl_lane *lane)
{
	return lane == batoni_nccl_lane_of_puts(nccl) &&
	       batoni_nccl_puts_awaited(nccl);
}

/* NCCL may refuse a group.  Asked again it has taken it; without one, an abort waits for its lane alone,
 * which may wait for another one. */
static bool
begin_group(const struct batoni_nccl *nccl)
{
	ncclResult_t result = BATONI_NCCL_SYSTEM_ERROR;

	for (unsigned i = 0; i < GROUP_TRIES && result != BATONI_NCCL_SUCCESS;
	     i++)
		result = nccl->api->group_start();
	return result == BATONI_NCCL_SUCCESS;
}

/* Together.  not_revoked: only those that were not, and for which ncclCommAbort would not wait. */
static void
abort_some(struct batoni_nccl *nccl, bool not_revoked)
{
	bool grouped = begin_group(nccl);

	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++) {
		struct batoni_nccl_lane *lane = &nccl->lanes[i];

		if (!lane->comm ||
		    (not_revoked && (lane->revoked || is_awaiting(nccl, lane))))
			continue;
		nccl->api->comm_abort(lane->comm);
		lane->comm = NULL;
	}
	if (grouped)
		nccl->api->group_end();
}

void
batoni_nccl_abort_lanes(struct batoni_nccl *nccl)
{
	abort_some(nccl, false);
	batoni_nccl_puts_reclaim(nccl);
}

/* Tell the kernels of the lanes to end, under the lock of the device.  False: a lane has a group
 * that NCCL is still launching, of which revoking would free what it uses. */
static bool
revoke_lanes(struct batoni_nccl *nccl)
{
	const struct batoni_nccl_api *api = nccl->api;
	bool all = true;

	for (unsigned i = 0;
	     i < batoni_nccl_lanes_all(nccl) && api->comm_revoke; i++) {
		struct batoni_nccl_lane *lane = &nccl->lanes[i];
		ncclResult_t result, state = BATONI_NCCL_SUCCESS;

		if (!lane->comm || lane->revoked)
			continue;
		result = api->comm_error(lane->comm, &state);
		if (result == BATONI_NCCL_SUCCESS)
			result = state;
		all &= result != BATONI_NCCL_IN_PROGRESS;
		if (result != BATONI_NCCL_SUCCESS)
			continue;
		result = api->comm_revoke(lane->comm, 0);
		lane->revoked = result == BATONI_NCCL_SUCCESS ||
		                result == BATONI_NCCL_IN_PROGRESS;
	}
	return all;
}

/* Those that NCCL does not revoke: they are in error, a group of theirs does not end, or the
 * library cannot. */
static void
abort_unrevoked(struct batoni_nccl *nccl)
{
	abort_some(nccl, true);
}

/* The lock of the device is to be had by then.  False: it was not, or the device has failed. */
static bool
stop_lanes(struct batoni_nccl *nccl, uint64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = 100000};
	uint64_t groups_until = batoni_real_ns() + GROUP_NS;
	struct batoni_memory_guard guard;
	bool all = false;

	while (!all &&
	       batoni_nccl_enter(nccl, &guard, until_ns) == BATON_OK) {
		all = revoke_lanes(nccl) || batoni_real_ns() > groups_until;
		batoni_nccl_leave(nccl, &guard);
		if (!all)
			nanosleep(&pause, NULL);
	}
	if (all)
		batoni_nccl_do_apart(nccl, abort_unrevoked);
	return all;
}

bool
batoni_nccl_is_stopped(struct batoni_nccl *nccl)
{
	return batoni_job_await(&nccl->stopper, 0);
}

/* May the lane be aborted?  NCCL says of one that was revoked when its kernels have left. */
static bool
may_abort(const struct batoni_nccl *nccl, const struct batoni_nccl_lane *lane)
{
	ncclResult_t state = BATONI_NCCL_SUCCESS;

	if (!lane->comm)
		return true;
	if (lane->revoked && nccl->api->comm_error(lane->comm, &state) ==
	                             BATONI_NCCL_SUCCESS &&
	    state == BATONI_NCCL_SUCCESS)
		return true;
	return state != BATONI_NCCL_IN_PROGRESS && !is_awaiting(nccl, lane);
}

/* The lock of the device is to be had by then; else the device has failed. */
static bool
may_abort_all(struct batoni_nccl *nccl, uint64_t until_ns)
{
	struct batoni_memory_guard guard;
	bool may = true;

	if (batoni_nccl_enter(nccl, &guard, until_ns) != BATON_OK)
		return until_ns == BATONI_NCCL_FOR_EVER;
	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl) && may; i++)
		may = may_abort(nccl, &nccl->lanes[i]);
	batoni_nccl_leave(nccl, &guard);
	return may;
}

/* ---- the jobs ---- */

static void
run_stop(struct batoni_job *job)
{
	stop_lanes(batoni_container_of(job, struct batoni_nccl, stopper),
	           BATONI_NCCL_FOR_EVER);
}

static struct batoni_nccl *
of_ender(struct batoni_job *job)
{
	return batoni_container_of(job, struct batoni_nccl, ender);
}

/* With all ranks. */
static void
run_destroy(struct batoni_job *job)
{
	batoni_nccl_do_apart(of_ender(job), destroy_lanes);
}

/* By force.  It may take for ever. */
static void
run_abort(struct batoni_job *job)
{
	struct batoni_nccl *nccl = of_ender(job);
	struct timespec pause = {.tv_nsec = 500000};

	if (nccl->stopper_runs)
		batoni_job_await(&nccl->stopper, UINT64_MAX);
	else if (!nccl->stopper.done)
		stop_lanes(nccl, BATONI_NCCL_FOR_EVER);
	while (!may_abort_all(nccl, BATONI_NCCL_FOR_EVER)) {
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < PAUSE_MAX_NS)
			pause.tv_nsec += pause.tv_nsec / 8;
	}
	batoni_nccl_do_apart(nccl, batoni_nccl_abort_lanes);
}

/* The transport is never freed. */
static void
cleanup_nothing(struct batoni_job *job)
{
	(void)job;
}

static bool
start_job(struct batoni_nccl *nccl, struct batoni_job *job,
          void (*run)(struct batoni_job *))
{
	int error;

	*job = (struct batoni_job){.run = run, .cleanup = cleanup_nothing};
	error = batoni_job_start(job);
	if (error)
		batoni_log(BATONI_LOG_WARN,
		           "rank %d: no thread to end NCCL with (%d)",
		           nccl->base.rank, error);
	return error == 0;
}

/* Begin to stop the lanes, once. */
static void
begin_to_stop(struct batoni_nccl *nccl)
{
	uint64_t half = nccl->patience_ns / 2;

	atomic_store(&nccl->aborting, true);
	nccl->stop_until_ns = batoni_real_ns() +
	                      (half < GROUP_NS ? half : GROUP_NS);
	nccl->stopper_runs = start_job(nccl, &nccl->stopper, run_stop);
	if (!nccl->stopper_runs)
		nccl->stopper.done =
			stop_lanes(nccl, batoni_real_ns() + STOP_NS);
}

bool
batoni_nccl_abort(struct batoni_path *path)
{
	struct batoni_nccl *nccl = to_nccl(batoni_transport_of(path));
	bool told;

	if (!atomic_load(&nccl->aborting))
		begin_to_stop(nccl);
	told = !nccl->stopper_runs || batoni_nccl_is_stopped(nccl);
	return batoni_nccl_self_stop(nccl, nccl->stop_until_ns) && told;
}

/* ---- closing ---- */

/* The ender ends the lanes.  False: it goes on without us. */
static bool
await_ender(struct batoni_nccl *nccl)
{
	struct batoni_patience *patience = nccl->base.patience;

	for (unsigned tries = 0; !batoni_job_await(&nccl->ender, 0); tries++) {
		if (batoni_real_ns() >= patience->until_ns)
			return batoni_job_finish(&nccl->ender, 0);
		patience->yield(tries);
	}
	return true;
}

/* False: the stopper or the ender goes on without us. */
static bool
end_lanes(struct batoni_nccl *nccl, bool aborted)
{
	if (start_job(nccl, &nccl->ender, aborted ? run_abort : run_destroy))
		return await_ender(nccl);
	if (nccl->stopper_runs && !batoni_nccl_is_stopped(nccl))
		return false;
	/* This thread has the driver lock: it may not wait for the program's work. */
	if (aborted && !may_abort_all(nccl, batoni_real_ns() + STOP_NS))
		return false;
	batoni_nccl_do_apart(nccl, aborted ? batoni_nccl_abort_lanes
	                                   : destroy_lanes);
	return true;
}

static void
leave_to_ender(struct batoni_nccl *nccl)
{
	batoni_log(BATONI_LOG_WARN,
	           "rank %d: communicator destroyed, but NCCL waits for what is on "
	           "streams of GPU %d: its communicators and the device stay open",
	           nccl->base.rank, nccl->device->number);
	nccl->base.patience->copies_left = true;
	/* The transport and its arrays. */
	batoni_mem_keep((nccl->checked ? 7 + BATONI_NCCL_CHECKED_BLOCKS : 7) +
	                batoni_nccl_puts_blocks(nccl));
}

void
batoni_nccl_close(struct batoni_transport *transport, bool aborted)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_transport *lower = nccl->lower;
	bool reached;

	lower->patience = transport->patience;
	batoni_nccl_puts_end(nccl);
	if (aborted)
		batoni_nccl_abort(&transport->messages);
	if (!end_lanes(nccl, aborted)) {
		leave_to_ender(nccl);
		lower->ops->close(lower, aborted);
		return;
	}
	/* On a device that has failed they are out of reach. */
	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++)
		nccl->lanes[i].comm = NULL;
	batoni_nccl_self_close(nccl);
	batoni_nccl_puts_drop_marks(nccl);
	if (nccl->checked)
		batoni_nccl_checked_drop_marks(nccl);
	reached = !lower->lets_go && lower->messages.load.in_flight > 0;
	lower->ops->close(lower, aborted); /* it may still make upcalls, which come here */
	if (nccl->checked && reached)
		batoni_nccl_checked_leak(nccl);
	batoni_nccl_free(nccl);
}
