/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals: the calls, and the agent that carries them out at the target.
 *
 * The agent takes from each source's ring what has arrived, writes the bytes into the
 * window, and then counts the signal; so what a wait lets by is there, and all that its
 * source had put before.  NCCL does not look whether the bytes fit into the window: here
 * that is a violation, and nothing is written.
 *
 * The calls came with 2.29.2.  Where NCCLSIM_VERSION, or `version` at the time of the
 * look-up, is 2.28, dlsym does not find them.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "nsim.h"

/* What the agent is at, of one source. */
struct inbox {
	bool has_head;
	struct nsim_put put;
	uint64_t done;
};

/* ---- the agent ----------------------------------------------------------- */

/* Bytes of a put, as many as are there. */
static void
write_part(ncclComm_t comm, struct nsim_link *link, struct inbox *inbox,
           uint64_t at, size_t n)
{
	unsigned char *to;

	if (n == 0)
		return;
	/* Under the lock the window is not taken away. */
	pthread_mutex_lock(&nsim_lock);
	to = nsim_window_reach_locked(comm, inbox->put.window,
	                              inbox->put.offset, inbox->put.bytes);
	if (to)
		nsim_ring_get(link->puts, NSIM_PUTS, at, to + inbox->done, n);
	pthread_mutex_unlock(&nsim_lock);
	if (!to && inbox->done == 0)
		nsim_violation("a put of %llu bytes at %llu is outside of the "
		               "window of rank %d",
		               (unsigned long long)inbox->put.bytes,
		               (unsigned long long)inbox->put.offset,
		               comm->rank);
}

/* true: it got further. */
static bool
take_from_link(ncclComm_t comm, int source, struct inbox *inbox)
{
	struct nsim_link *link = nsim_link(comm, source, comm->rank);
	uint64_t written = atomic_load_explicit(&link->put_written,
	                                        memory_order_acquire);
	uint64_t at = atomic_load_explicit(&link->put_read,
	                                   memory_order_relaxed);
	uint64_t before = at, left;
	size_t n;

	if (!inbox->has_head && written - at >= sizeof(inbox->put)) {
		nsim_ring_get(link->puts, NSIM_PUTS, at, &inbox->put,
		              sizeof(inbox->put));
		at += sizeof(inbox->put);
		inbox->has_head = true;
		inbox->done = 0;
	}
	if (!inbox->has_head)
		return false;
	left = inbox->put.bytes - inbox->done;
	n = (size_t)(left < written - at ? left : written - at);
	write_part(comm, link, inbox, at, n);
	at += n;
	inbox->done += n;
	atomic_store_explicit(&link->put_read, at, memory_order_release);
	if (inbox->done == inbox->put.bytes) {
		inbox->has_head = false;
		atomic_fetch_add_explicit(&link->signals[inbox->put.signal], 1,
		                          memory_order_release);
	}
	return at != before;
}

static void *
agent_main(void *argument)
{
	struct inbox inboxes[NSIM_RANKS_MAX] = {0};
	ncclComm_t comm = argument;
	unsigned us = 20;

	while (!atomic_load(&comm->agent_stops)) {
		bool moved = false;

		for (int i = 0; i < comm->ranks; i++)
			moved |= take_from_link(comm, i, &inboxes[i]);
		if (moved) {
			us = 20;
			nsim_cuda->sim_changed();
		} else {
			simulator_nap(us);
			us = us < 500 ? us * 2 : us;
		}
	}
	return NULL;
}

ncclResult_t
nsim_agent_start(ncclComm_t comm)
{
	sigset_t all, before;

	if (comm->has_agent)
		return BATONI_NCCL_SUCCESS;
	/* Signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	comm->has_agent = pthread_create(&comm->agent, NULL, agent_main,
	                                 comm) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return comm->has_agent ? BATONI_NCCL_SUCCESS
	                       : nsim_error(BATONI_NCCL_SYSTEM_ERROR,
	                                    "no thread");
}

void
nsim_agent_end(ncclComm_t comm)
{
	if (!comm->has_agent)
		return;
	atomic_store(&comm->agent_stops, true);
	pthread_join(comm->agent, NULL);
	comm->has_agent = false;
}

/* ---- calls --------------------------------------------------------------- */

/* What the three check.  SUCCESS: nsim_leave follows. */
static ncclResult_t
enter(ncclComm_t comm, enum nsim_function function)
{
	ncclResult_t result = nsim_comm_begin(comm, function);

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (!nsim_gpu_has_one_sided())
		result = nsim_error(BATONI_NCCL_INVALID_USAGE,
		                    "one-sided calls need a CUDA driver of 12.5");
	if (result == BATONI_NCCL_SUCCESS && !comm->rma &&
	    nsim_set.version >= 23100)
		result = nsim_error(BATONI_NCCL_INVALID_USAGE,
		                    "no window is registered, and rmaEagerInit "
		                    "is not 1");
	if (result != BATONI_NCCL_SUCCESS) {
		nsim_group_refuse(result);
		nsim_leave(comm);
	}
	return result;
}

/* The first one brings a collective with it. */
static ncclResult_t
add_to_stream(ncclComm_t comm, const struct nsim_op *op, CUstream stream)
{
	struct nsim_job job = {.kind = NSIM_RMA, .comm = comm};

	nsim_group_begin();
	if (!comm->rma) {
		comm->rma = true;
		job.number = comm->exchanges++;
		nsim_group_job(comm, &job);
	}
	nsim_group_op(comm, op, stream);
	return nsim_group_finish();
}

static bool
is_signal(ncclComm_t comm, int peer, int signal, int context)
{
	return peer >= 0 && peer < comm->ranks && signal >= 0 &&
	       signal < comm->signals && context >= 0 &&
	       context < comm->contexts;
}

static ncclResult_t
put_op(enum nsim_function function, struct nsim_op *op, ncclWindow_t window,
       int signal, int context, unsigned flags, ncclComm_t comm, CUstream stream)
{
	ncclResult_t result = enter(comm, function);
	void *base;

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	op->put.window = -1;
	if (!is_signal(comm, op->peer, signal, context) || flags != 0)
		result = nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
		                    "peer %d, signal %d, context %d, flags %u",
		                    op->peer, signal, context, flags);
	op->put.signal = context * comm->signals + signal;
	if (function == NSIM_ncclPutSignal && result == BATONI_NCCL_SUCCESS) {
		op->put.window = nsim_window_number(comm, window, &base);
		if (op->put.window < 0 ||
		    (op->bytes > 0 && !nsim_in_window(comm, op->at, op->bytes)))
			result = nsim_error(BATONI_NCCL_INVALID_ARGUMENT,
			                    "no window, or a source outside of "
			                    "all windows");
	}
	if (result == BATONI_NCCL_SUCCESS)
		result = add_to_stream(comm, op, stream);
	else
		nsim_group_refuse(result);
	nsim_leave(comm);
	return result;
}

static ncclResult_t
put_signal(const void *from, size_t count, ncclDataType_t type, int peer,
           ncclWindow_t window, size_t offset, int signal, int context,
           unsigned int flags, ncclComm_t comm, struct CUstream_st *stream)
{
	struct nsim_op op = {.kind = NSIM_PUT, .peer = peer,
	                     .at = (uintptr_t)from,
	                     .bytes = count * nsim_type_bytes(type)};

	op.put.offset = offset;
	return put_op(NSIM_ncclPutSignal, &op, window, signal, context, flags, comm,
	              stream);
}

static ncclResult_t
signal_alone(int peer, int signal, int context, unsigned int flags,
             ncclComm_t comm, struct CUstream_st *stream)
{
	struct nsim_op op = {.kind = NSIM_PUT, .peer = peer};

	return put_op(NSIM_ncclSignal, &op, NULL, signal, context, flags, comm,
	              stream);
}

static ncclResult_t
add_wait(ncclComm_t comm, const ncclWaitSignalDesc_t *desc, CUstream stream)
{
	int number = desc->ctx * comm->signals + desc->sigIdx;
	struct nsim_op op = {.kind = NSIM_WAIT, .peer = desc->peer,
	                     .signal = number};

	comm->waited[desc->peer][number] += (uint64_t)desc->opCnt;
	op.count = comm->waited[desc->peer][number];
	return add_to_stream(comm, &op, stream);
}

static ncclResult_t
wait_signal(int n, ncclWaitSignalDesc_t *descs, ncclComm_t comm,
            struct CUstream_st *stream)
{
	ncclResult_t result = enter(comm, NSIM_ncclWaitSignal);

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (n < 1 || !descs)
		result = BATONI_NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n && result == BATONI_NCCL_SUCCESS; i++) {
		if (is_signal(comm, descs[i].peer, descs[i].sigIdx,
		              descs[i].ctx) && descs[i].opCnt >= 0)
			continue;
		/* NCCL does not look. */
		nsim_violation("a wait for signal %d of context %d of rank %d",
		               descs[i].sigIdx, descs[i].ctx, descs[i].peer);
		result = BATONI_NCCL_INVALID_ARGUMENT;
	}
	if (result != BATONI_NCCL_SUCCESS) {
		nsim_group_refuse(result);
		nsim_leave(comm);
		return result;
	}
	/* All in one kernel. */
	nsim_group_begin();
	for (int i = 0; i < n; i++)
		add_wait(comm, &descs[i], stream);
	result = nsim_group_finish();
	nsim_leave(comm);
	return result;
}

static ncclResult_t
window_pointer(ncclComm_t comm, ncclWindow_t window, void **pointer_p)
{
	ncclResult_t result = nsim_use(NSIM_ncclWinGetUserPtr);

	if (result == BATONI_NCCL_SUCCESS)
		result = nsim_enter(comm, NSIM_ncclWinGetUserPtr);
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	if (nsim_window_number(comm, window, pointer_p) < 0)
		result = BATONI_NCCL_INVALID_ARGUMENT;
	nsim_leave(comm);
	return result;
}

/* ---- what dlsym finds ---------------------------------------------------- */

/* It runs within dlsym, so it only looks. */
__attribute__((no_sanitize("thread", "address", "undefined"))) static bool
has_signals(void)
{
	const char *given = getenv("NCCLSIM_VERSION");

	return nsim_set.version > 22902 &&
	       !(given && (strncmp(given, "2.28", 4) == 0 ||
	                   strncmp(given, "228", 3) == 0));
}

#define EXPORT(name, symbol, since, result, parameters)                       \
	__attribute__((no_sanitize("thread", "address", "undefined"), used))  \
	static result (*resolve_##name(void)) parameters                      \
	{                                                                     \
		return has_signals() ? (name) : NULL;                         \
	}                                                                     \
	NSIM_EXPORT result symbol parameters                                  \
		__attribute__((ifunc("resolve_" #name)));
#define signal signal_alone
BATONI_NCCL_OPTIONAL_SIGNALS(EXPORT)
