/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baton_probe and baton_recv_message: what has come, and a receive of exactly that (core/claim.c has the life of a
 * message that was found).
 *
 * One call probes, and takes BATON_ANY_SOURCE and BATON_ANY_TAG as a receive does.  There is no probe that leaves the
 * message where it is: of two threads that both saw one, at most one would receive it; and over MPI and staging only the
 * first part of a message says what the message is, and to read that is to receive it.  There is no call to give a
 * message up either: a receive of no bytes discards it.
 *
 * A probe drives: it makes a pass, has the paths find what has come, and asks them.  If the first part of the message
 * has not all come, the probe continues until it has: if it returned without the message, a later one could overtake
 * it.
 *
 * Threads: any.  Locks: the driver lock, for each pass.
 */
#include "claim.h"
#include "describe.h"

#include <stdio.h>

#include "enqueue.h"
#include "liveness.h"
#include "log.h"
#include "plan.h"
#include "scope.h"
#include "sized.h"
#include "wait.h"

static const struct batoni_sized sized_info = {
	.name = "info_p",
	.size_name = "info_p->size",
	.advice = "set it to sizeof(struct baton_message_info) before the call",
	.smallest = BATONI_SIZED_UNTIL(struct baton_message_info, tag),
	.bytes = sizeof(struct baton_message_info),
};

struct probing {
	struct baton_comm *comm;
	int peer, tag;
	struct batoni_op *claim;
	struct batoni_held held;
	bool none; /* no message is there */
	bool begun; /* a claim has been made, for a message of this peer and tag */
	int from, with;
	baton_message message;
};

static enum baton_status
broken_status(const struct baton_comm *comm)
{
	return (enum baton_status)atomic_load(&comm->status);
}

static enum baton_status
find_claim(struct probing *p)
{
	enum baton_status status = batoni_claim_find(
		p->comm, BATONI_KIND_MESSAGE, p->peer, p->tag, &p->claim);

	p->none = status == BATON_PENDING;
	p->begun = status == BATON_OK;
	if (p->begun) {
		p->from = batoni_get(p->claim->transfer.peer);
		p->with = batoni_get(p->claim->transfer.tag);
	} else if (status == BATON_ERR_PEER) {
		batoni_check_lost(p->comm);
	}
	return status;
}

/* OK: a message is there, or none is.  PENDING: its first part has not all come. */
static enum baton_status
probe_further(void *argument)
{
	struct probing *p = argument;
	enum baton_status status = broken_status(p->comm);

	if (status == BATON_OK && !p->claim)
		status = find_claim(p);
	if (p->none || status != BATON_OK)
		return p->none ? BATON_OK : status;
	status = batoni_claim_examine(p->claim, &p->held);
	if (status == BATON_OK) {
		p->message = batoni_claim_publish(p->claim, p->held.bytes);
	} else if (status == BATON_PENDING &&
	           batoni_is_silent(p->comm, p->from)) {
		/* The rest of its first part does not come.  The next step finds another message, if there is one. */
		batoni_claim_give_up(p->claim);
		p->claim = NULL;
	}
	return status;
}

/* Why there is no answer. */
static enum baton_status
refuse_failed(const char *call, const struct probing *p, enum baton_status status)
{
	struct baton_comm *comm = p->comm;
	enum baton_status broken = broken_status(comm);
	char what[160] = "the processes of all other ranks are gone";

	if (status == BATON_ERR_AGAIN)
		return batoni_refuse_full(call, comm);
	if (broken != BATON_OK)
		return batoni_refuse(broken,
		                     "%s: the communicator is broken: %s", call,
		                     baton_comm_error(comm));
	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status,
		                     "%s: no memory to keep the message from rank "
		                     "%d, tag %d; it stays where it is",
		                     call, p->from, p->with);
	if (p->begun)
		return batoni_refuse(status,
		                     "%s: the message from rank %d, tag %d, was "
		                     "lost before its first part had come",
		                     call, p->from, p->with);
	if (p->peer >= 0)
		batoni_tell_gone(comm, &p->peer, 1, what, sizeof(what));
	return batoni_refuse(status, "%s: %s", call, what);
}

static enum baton_status
check_probe(const char *call, const struct probing *p,
            const baton_message *message_p,
            struct baton_message_info *info_p)
{
	const struct batoni_arguments a = {
		.type = BATON_UINT8, .peer = p->peer, .tag = p->tag};
	enum baton_status status = batoni_check_comm(call, p->comm);
	size_t bytes;

	if (status == BATON_OK)
		status = batoni_check_buffer(call, p->comm, &a, &bytes);
	if (status != BATON_OK)
		return status;
	if (!message_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: message_p is NULL; what is found is "
		                     "received by its handle",
		                     call);
	/* Check this before the probe: a message that it finds would be lost. */
	if (info_p)
		status = batoni_sized_check(&sized_info, call, info_p);
	if (status != BATON_OK)
		return status;
	if (batoni_scope_of(p->comm))
		return batoni_refuse(BATON_ERR_INVALID, "%s was called %s", call,
		                     batoni_scope_where(p->comm));
	if (!batoni_may_drive(p->comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: MPI runs at MPI_THREAD_FUNNELED; call it "
		                     "on the main thread",
		                     call);
	batoni_find_telling_path(call, p->comm, p->peer, &status);
	return status;
}

static void
tell_found(const struct probing *p, struct baton_message_info *info_p)
{
	const struct baton_message_info info = {
		.size = sizeof(info),
		.bytes = p->held.bytes,
		.peer = p->from,
		.tag = p->with,
		.tensors = (uint32_t)p->held.tensors,
		.list = p->held.list,
	};

	batoni_sized_give(&sized_info, "baton_probe", &info, info_p);
}

enum baton_status
baton_probe(int peer, int tag, struct baton_comm *comm,
            baton_message *message_p, struct baton_message_info *info_p)
{
	static const char call[] = "baton_probe";
	struct probing p = {.comm = comm, .peer = peer, .tag = tag};
	enum baton_status status = check_probe(call, &p, message_p, info_p);

	BATONI_KEEP_SITE();
	if (status != BATON_OK)
		return status;
	status = batoni_drive_until(probe_further, &p, BATONI_NEVER);
	if (status != BATON_OK)
		return refuse_failed(call, &p, status);
	batoni_probed(!p.none);
	if (p.none)
		return BATON_PENDING;
	if (info_p)
		tell_found(&p, info_p);
	*message_p = p.message;
	return BATON_OK;
}

/* ---- receiving ---- */

enum baton_status
batoni_take_claim(const char *call, struct baton_comm *comm,
                  baton_message message, struct batoni_op **claim_p)
{
	if (batoni_plan_recorded(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: a plan is launched many times, and a "
		                     "message is received once",
		                     call);
	*claim_p = batoni_claim_take(comm, message);
	if (*claim_p)
		return BATON_OK;
	if (!message)
		return batoni_refuse(BATON_ERR_STALE,
		                     "%s: message is 0, which is none; baton_probe "
		                     "writes one when it returns BATON_OK",
		                     call);
	return batoni_refuse(BATON_ERR_STALE,
	                     "%s: message 0x%llx does not wait for a receive: it "
	                     "was received already, or no probe of this "
	                     "communicator has found it",
	                     call, (unsigned long long)message);
}

static enum baton_status
recv_message(const char *call, struct baton_comm *comm, baton_message message,
             struct batoni_arguments *a)
{
	struct baton_op_options room;
	enum baton_status status;
	struct batoni_op *claim;
	size_t bytes = 0;
	BATONI_UNCANCELLED_IF(comm && !comm->in_engine);

	status = batoni_check_target(call, comm, a->stream, false);
	if (status == BATON_OK)
		status = batoni_check_buffer(call, comm, a, &bytes);
	if (status == BATON_OK)
		status = batoni_take_options(call, &a->options, &room, false);
	if (status == BATON_OK)
		status = batoni_take_claim(call, comm, message, &claim);
	if (status != BATON_OK)
		return batoni_scope_refuse(comm, status);
	a->peer = batoni_get(claim->transfer.peer);
	a->tag = batoni_get(claim->transfer.tag);
	status = batoni_enqueue_claim(call, claim, a, bytes, false);
	return status == BATON_OK ? BATON_OK : batoni_scope_refuse(comm, status);
}

enum baton_status
baton_recv_message(void *buffer, size_t count, enum baton_datatype type,
                   baton_message message, struct baton_comm *comm,
                   baton_stream stream, const struct baton_op_options *options,
                   baton_request *request_p)
{
	struct batoni_arguments a = {
		buffer, count, type, 0, 0, stream, options, request_p};

	BATONI_KEEP_SITE();
	return recv_message("baton_recv_message", comm, message, &a);
}

/* ---- in words ---- */

static void
what(const struct batoni_view *view, const char *details, char *text, size_t size)
{
	(void)details;
	snprintf(text, size, "message from peer %d, tag %d, %zu byte%s",
	         view->peer, view->tag, view->bytes, batoni_s(view->bytes));
}

static bool
waits(const struct batoni_view *view, bool held, char *text, size_t size)
{
	(void)held;
	(void)view;
	snprintf(text, size, "baton_recv_message, which receives what "
	                     "baton_probe has found");
	return true;
}

const struct batoni_kind batoni_kind_message = {
	.name = "message",
	.off_stream = true,
	.finish = batoni_claim_discard,
	.what = what,
	.waits = waits,
};
