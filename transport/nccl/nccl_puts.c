/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts into windows by NCCL's one-sided calls (native_puts.h), where ranks are on different
 * hosts.  nccl_windows_open.c makes what they need, and nccl_windows.c has the windows.
 *
 * Why a communicator of their own.  NCCL carries out everything of one communicator in series, so
 * that on a lane a put would stand behind a message that its peer does not receive.  Its stream
 * is ours, and nothing of the program is on it.
 *
 * Why no wait is unmet for long.  ncclWaitSignal can neither be asked nor taken back, and ncclCommAbort
 * hangs while one is unmet.  It is called only for units whose source has said that they have left,
 * on the same stream as the puts of this rank: these stand behind it for the time that the network
 * needs, and no put of the source has to follow.  Only where the network loses one, with its source or its
 * link, a wait stays unmet: the communicator breaks by its other signs, and its end (nccl_end.c) does
 * not abort NCCL's communicator while `waits` is not 0.
 *
 * Units.  NCCL counts once for each source (signal 0 of context 0: indices and contexts
 * travel in the layer's message, so that all of them work with every version).  A put is
 * one unit if its source is in a window, else one for each chunk; a put that is stopped
 * keeps the units that it has.  The warm-up of nccl_windows_open.c is a unit, too.
 *
 * A put:
 *   BEGUN    nothing is under way; the next part is chosen
 *   COPYING  its source is in no window: the part is copied into the put's chunk
 *   READY    the part may be given to NCCL; one call at a time is LAUNCHING
 *   GIVEN    NCCL has it; a mark behind it says that the bytes have left.  Then BEGUN again, or the end
 *
 * Errors break the communicator.  After an abort no call is made; calls that run end with it, and
 * their marks are still asked for, so that a buffer is given back only when it is free.  A mark that
 * the device refuses is tried again, since any later point of the stream is behind the call too;
 * after MARK_TRIES the communicator breaks.  So it does when the device cannot tell of a
 * mark.  The call is under way all the same (`lost`), and the put's buffer lent: until the mark
 * is done, or, without one, until the communicator is destroyed.
 *
 * Threads and locks.  The driver, and the thread that registers (with the lock of the device, but
 * not the driver's): they share the list of windows, under windows_lock.
 */
#include "nccl_windows.h"

#include <limits.h>

#include "clock.h"
#include "copies.h"
#include "log.h"

/* How often a mark is tried.  Only a sick device refuses so many times. */
#define MARK_TRIES 3u

static struct batoni_nccl *
to_nccl(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_nccl, base);
}

/* ---- calls ---- */

static enum baton_status
refuse_aborted(void)
{
	return batoni_refuse(BATON_ERR_ABORTED,
	                     "the NCCL transport was aborted");
}

static enum baton_status
fail_call(struct batoni_nccl *nccl, const char *call, ncclResult_t result)
{
	struct batoni_upcalls *upcalls = nccl->base.upcalls;
	char text[256];

	batoni_nccl_describe(nccl->api, nccl->puts->lane->comm, result, text,
	                     sizeof(text));
	upcalls->broken(upcalls, BATON_ERR_NCCL, call, (int)result, text);
	return BATON_ERR_NCCL;
}

/* The device does not tell when the call ends. */
static void
lose_call(struct batoni_nccl *nccl, struct batoni_nccl_call *call,
          enum baton_status status)
{
	struct batoni_upcalls *upcalls = nccl->base.upcalls;

	if (!call->lost)
		upcalls->broken(upcalls, status, NULL, 0,
		                "the device lost sight of a put by NCCL");
	call->lost = true;
}

/* What is called, under the lock of the device. */
typedef ncclResult_t (*call_fn)(struct batoni_nccl *nccl, const void *what);

/* Put the mark behind what NCCL has put on the stream. */
static void
put_mark(struct batoni_nccl *nccl, struct batoni_nccl_call *call)
{
	enum baton_status status;

	if (call->lost || atomic_load(&nccl->aborting))
		return;
	status = nccl->device->ops->marks->mark(
		nccl->device, nccl->puts->lane->stream, &call->mark);
	if (status == BATON_OK)
		call->state = BATONI_NCCL_CALL_RUNNING;
	else if (++call->refused == MARK_TRIES)
		lose_call(nccl, call, status);
}

/* NCCL has put it on the stream. */
static enum baton_status
placed(struct batoni_nccl *nccl, struct batoni_nccl_call *call)
{
	call->state = BATONI_NCCL_CALL_PLACED;
	call->refused = 0;
	put_mark(nccl, call);
	return BATON_PENDING;
}

/* AGAIN: not now, and nothing was done.  PENDING: it is under way.  ABORTED, NCCL. */
static enum baton_status
begin_call(struct batoni_nccl *nccl, struct batoni_nccl_call *call,
           const char *name, call_fn fn, const void *what)
{
	struct batoni_nccl_puts *puts = nccl->puts;
	struct batoni_memory_guard guard;
	ncclResult_t result;

	if (atomic_load(&nccl->aborting))
		return refuse_aborted();
	if (puts->launching || atomic_load(&puts->registers) ||
	    batoni_nccl_try_enter(nccl, &guard) != BATON_OK)
		return BATON_ERR_AGAIN;
	/* If an abort has come meanwhile, it has the lanes.  A window may be being registered. */
	if (atomic_load(&nccl->aborting) ||
	    batoni_nccl_puts_state(nccl) == BATONI_NCCL_IN_PROGRESS) {
		batoni_nccl_leave(nccl, &guard);
		return BATON_ERR_AGAIN;
	}
	result = fn(nccl, what);
	batoni_nccl_leave(nccl, &guard);
	call->name = name;
	if (result == BATONI_NCCL_SUCCESS)
		return placed(nccl, call);
	if (result != BATONI_NCCL_IN_PROGRESS)
		return fail_call(nccl, name, result);
	call->state = BATONI_NCCL_CALL_LAUNCHING;
	puts->launching = call;
	puts->launching_limit_ns = batoni_real_ns() + nccl->patience_ns;
	return BATON_PENDING;
}

/* Has NCCL put it on the stream? */
static enum baton_status
ask_launch(struct batoni_nccl *nccl, struct batoni_nccl_call *call)
{
	struct batoni_nccl_puts *puts = nccl->puts;
	struct batoni_memory_guard guard;
	ncclResult_t state;

	if (atomic_load(&nccl->aborting)) {
		/* It ends with its communicator, whose buffers stay until then. */
		return BATON_PENDING;
	}
	if (batoni_nccl_try_enter(nccl, &guard) != BATON_OK)
		return BATON_PENDING;
	state = atomic_load(&nccl->aborting) ? BATONI_NCCL_IN_PROGRESS
	                                     : batoni_nccl_puts_state(nccl);
	batoni_nccl_leave(nccl, &guard);
	if (state == BATONI_NCCL_IN_PROGRESS &&
	    batoni_real_ns() <= puts->launching_limit_ns)
		return BATON_PENDING;
	puts->launching = NULL;
	if (state == BATONI_NCCL_SUCCESS)
		return placed(nccl, call);
	call->state = BATONI_NCCL_CALL_NONE;
	return fail_call(nccl, call->name, state);
}

/* Test a call that was begun.  PENDING; OK: the device has carried it out; NCCL: NCCL has refused
 * it. */
static enum baton_status
ask_call(struct batoni_nccl *nccl, struct batoni_nccl_call *call)
{
	enum baton_status status = BATON_PENDING;

	batoni_nccl_poll(nccl);
	if (call->state == BATONI_NCCL_CALL_LAUNCHING)
		status = ask_launch(nccl, call);
	if (call->state == BATONI_NCCL_CALL_PLACED)
		put_mark(nccl, call);
	if (call->state != BATONI_NCCL_CALL_RUNNING)
		return status;
	status = nccl->device->ops->marks->mark_done(nccl->device, &call->mark);
	if (status == BATON_OK)
		call->state = BATONI_NCCL_CALL_NONE;
	else if (status != BATON_PENDING)
		lose_call(nccl, call, status);
	return status == BATON_OK ? BATON_OK : BATON_PENDING;
}

/* ---- puts ---- */

static char *
chunk_of(const struct batoni_nccl_puts *puts, const struct batoni_nccl_put *put)
{
	return puts->staging + BATONI_NCCL_CHUNK * (size_t)(put - puts->puts);
}

static enum baton_status
puts_put(struct batoni_transport *transport, const struct batoni_native_put *put,
         uint32_t *number_p)
{
	struct batoni_nccl_puts *puts = to_nccl(transport)->puts;

	for (uint32_t i = 0; i < BATONI_NCCL_PUTS; i++) {
		struct batoni_nccl_put *slot = &puts->puts[i];

		if (slot->state != BATONI_NCCL_PUT_FREE)
			continue;
		*slot = (struct batoni_nccl_put){
			.state = BATONI_NCCL_PUT_BEGUN,
			.put = *put,
			.staged = !batoni_nccl_window_has(puts, put->from, put->bytes),
			.call.mark = slot->call.mark,
		};
		*number_p = i;
		return BATON_OK;
	}
	return BATON_ERR_AGAIN;
}

static ncclResult_t
call_put(struct batoni_nccl *nccl, const void *what)
{
	const struct batoni_nccl_put *put = what;
	const struct batoni_nccl_puts *puts = nccl->puts;
	const char *from = put->staged ? chunk_of(puts, put) : put->put.from;

	return nccl->api->put_signal(from, put->part, BATONI_NCCL_INT8,
	                             put->put.peer, put->put.window->handle,
	                             put->put.offset + put->done, 0, 0, 0,
	                             puts->lane->comm, puts->lane->stream);
}

/* Begin the next part of the put.  OK: the put's state has changed; AGAIN: it cannot begin now;
 * CUDA. */
static enum baton_status
begin_part(struct batoni_nccl *nccl, struct batoni_nccl_put *put)
{
	const struct batoni_memory_ops *memory = nccl->device->ops->memory;
	size_t left = put->put.bytes - put->done;
	enum baton_status status;

	if (!put->staged) {
		put->part = left;
		put->state = BATONI_NCCL_PUT_READY;
		return BATON_OK;
	}
	put->part = left < BATONI_NCCL_CHUNK ? left : BATONI_NCCL_CHUNK;
	status = memory->copy_start(nccl->device, chunk_of(nccl->puts, put),
	                            (const char *)put->put.from + put->done,
	                            put->part, nccl->device->number,
	                            &put->ticket);
	if (status == BATON_OK)
		put->state = BATONI_NCCL_PUT_COPYING;
	return status;
}

/* Give the part to NCCL. */
static enum baton_status
give_part(struct batoni_nccl *nccl, struct batoni_nccl_put *put)
{
	enum baton_status status =
		begin_call(nccl, &put->call, "ncclPutSignal", call_put, put);

	if (status != BATON_PENDING)
		return status;
	put->state = BATONI_NCCL_PUT_GIVEN;
	put->units = ++nccl->puts->sides[put->put.peer].sent;
	return BATON_OK;
}

/* One step.  OK: its state has changed; AGAIN, PENDING: not now; an error. */
static enum baton_status
move(struct batoni_nccl *nccl, struct batoni_nccl_put *put)
{
	const struct batoni_memory_ops *memory = nccl->device->ops->memory;
	enum baton_status status = BATON_OK;

	switch (put->state) {
	case BATONI_NCCL_PUT_FREE:
		break;
	case BATONI_NCCL_PUT_BEGUN:
		return begin_part(nccl, put);
	case BATONI_NCCL_PUT_COPYING:
		status = memory->copy_test(nccl->device, &put->ticket);
		if (status != BATON_PENDING)
			put->state = BATONI_NCCL_PUT_READY;
		return status;
	case BATONI_NCCL_PUT_READY:
		return give_part(nccl, put);
	case BATONI_NCCL_PUT_GIVEN:
		status = ask_call(nccl, &put->call);
		if (status == BATON_OK) {
			put->done += put->part;
			put->state = BATONI_NCCL_PUT_BEGUN;
		}
		return status;
	}
	return status;
}

/* Is no part of the put under way? */
static bool
is_at_rest(const struct batoni_nccl_put *put)
{
	return put->state == BATONI_NCCL_PUT_BEGUN ||
	       put->state == BATONI_NCCL_PUT_READY;
}

static enum baton_status
puts_test(struct batoni_transport *transport, uint32_t number, bool stop,
          uint64_t *units_p)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_nccl_put *put = &nccl->puts->puts[number];
	enum baton_status status = BATON_OK;

	while (status == BATON_OK) {
		if (put->done == put->put.bytes)
			break;
		if (stop && is_at_rest(put))
			status = BATON_ERR_CANCELED;
		else
			status = move(nccl, put);
	}
	if (status == BATON_PENDING || status == BATON_ERR_AGAIN)
		return BATON_PENDING;
	*units_p = put->units;
	put->state = BATONI_NCCL_PUT_FREE;
	return status;
}

/* ---- waits ---- */

struct wait {
	int peer, units;
};

static ncclResult_t
call_wait(struct batoni_nccl *nccl, const void *what)
{
	const struct wait *wait = what;
	const struct batoni_nccl_lane *lane = nccl->puts->lane;
	ncclWaitSignalDesc_t desc = {.opCnt = wait->units, .peer = wait->peer};

	return nccl->api->wait_signal(1, &desc, lane->comm, lane->stream);
}

/* Have NCCL wait for the units that the source has begun, and for which this rank does not wait
 * yet. */
static enum baton_status
begin_wait(struct batoni_nccl *nccl, int source, uint64_t units)
{
	struct batoni_nccl_side *side = &nccl->puts->sides[source];
	struct wait wait = {source, (int)(units - side->asked)};
	enum baton_status status = begin_call(
		nccl, &side->call, "ncclWaitSignal", call_wait, &wait);

	if (status == BATON_PENDING) {
		side->asked += (uint64_t)wait.units;
		atomic_fetch_add(&nccl->puts->waits, 1);
	}
	return status == BATON_ERR_AGAIN ? BATON_PENDING : status;
}

/* As many units as one call can wait for. */
static bool
puts_may_come(struct batoni_transport *transport, int source, uint64_t units)
{
	uint64_t reached = to_nccl(transport)->puts->sides[source].reached;

	return units <= reached || units - reached <= INT_MAX;
}

static enum baton_status
puts_await(struct batoni_transport *transport, int source, uint64_t units)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_nccl_side *side = &nccl->puts->sides[source];
	enum baton_status status = BATON_OK;

	while (side->reached < units && status == BATON_OK) {
		if (side->call.state == BATONI_NCCL_CALL_NONE) {
			/* After a call that NCCL has refused the communicator breaks. */
			status = side->asked > side->reached
			                 ? refuse_aborted()
			                 : begin_wait(nccl, source, units);
			continue;
		}
		status = ask_call(nccl, &side->call);
		if (status == BATON_OK)
			side->reached = side->asked;
		if (status == BATON_OK || status == BATON_ERR_NCCL)
			atomic_fetch_sub(&nccl->puts->waits, 1);
		/* It may still be pending, but no thread waits for it. */
		if (status == BATON_PENDING && side->call.lost)
			status = refuse_aborted();
	}
	return status;
}

bool
batoni_nccl_puts_awaited(const struct batoni_nccl *nccl)
{
	return nccl->puts && atomic_load(&nccl->puts->waits) > 0;
}

const struct batoni_native_puts_ops batoni_nccl_puts_ops = {
	.inspect = batoni_nccl_window_inspect,
	.open = batoni_nccl_window_open,
	.opened = batoni_nccl_window_opened,
	.let_go = batoni_nccl_window_let_go,
	.close = batoni_nccl_window_close,
	.put = puts_put,
	.test = puts_test,
	.may_come = puts_may_come,
	.await = puts_await,
};

/* ---- the end ---- */

/* Wait for the copies into chunks. */
void
batoni_nccl_puts_end(struct batoni_nccl *nccl)
{
	struct batoni_patience *patience = nccl->base.patience;

	for (unsigned i = 0; nccl->puts && i < BATONI_NCCL_PUTS; i++) {
		struct batoni_nccl_put *put = &nccl->puts->puts[i];

		if (put->state != BATONI_NCCL_PUT_COPYING)
			continue;
		if (!batoni_copy_await(nccl->device, &put->ticket, patience)) {
			patience->copies_left = true;
			nccl->puts->staging = NULL; /* it stays */
			return;
		}
		put->state = BATONI_NCCL_PUT_READY;
	}
}

static void
drop_mark(struct batoni_nccl *nccl, struct batoni_nccl_call *call)
{
	if (call->mark.object)
		nccl->device->ops->marks->mark_drop(nccl->device, &call->mark);
	call->mark.object = NULL;
}

void
batoni_nccl_puts_drop_marks(struct batoni_nccl *nccl)
{
	struct batoni_nccl_puts *puts = nccl->puts;

	for (unsigned i = 0; puts && i < BATONI_NCCL_PUTS; i++)
		drop_mark(nccl, &puts->puts[i].call);
	for (int i = 0; puts && i < nccl->base.size; i++)
		drop_mark(nccl, &puts->sides[i].call);
}
