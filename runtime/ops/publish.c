/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Publishing: a complete operation is put on its stream and handed to the driver.  enqueue.c checks
 * calls and makes operations, and has the note on the order of both.
 *
 * Stream-issued paths get their transfers here, between marks by which the driver sees where each
 * is armed and where it ends.
 */
#include "life.h"

#include <stdio.h>

#include "claim.h"
#include "enqueue.h"
#include "health.h"
#include "log.h"
#include "queue.h"
#include "sweep.h"

/* Only a device that is sick refuses a mark so often. */
#define MARK_TRIES 3u

void
batoni_reached_inline(struct batoni_stream_item *item)
{
	batoni_op_reached(batoni_container_of(item, struct batoni_op, item));
}

void
batoni_reached_posted(struct batoni_stream_item *item)
{
	batoni_post(batoni_container_of(item, struct batoni_op, item));
}

/* ---- publishing ---- */

void
batoni_publish(struct batoni_op *op)
{
	struct batoni_engine *e = &batoni_engine;

	if (unlikely(!batoni_trylock())) {
		batoni_inbox_push(op);
		return;
	}
	if (unlikely(atomic_load_explicit(&e->inbox, memory_order_relaxed)))
		batoni_place_inbox();
	batoni_op_place(op);
	batoni_end_enqueue();
}

void
batoni_publish_chain(struct batoni_op *first)
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_op *op, *next;

	if (unlikely(!batoni_trylock())) {
		batoni_inbox_push_chain(first);
		return;
	}
	if (unlikely(atomic_load_explicit(&e->inbox, memory_order_relaxed)))
		batoni_place_inbox();
	for (op = first; op; op = next) {
		next = op->next;
		batoni_op_place(op);
	}
	batoni_end_enqueue();
}

enum baton_status
batoni_refuse_device(struct baton_comm *comm, enum baton_status status)
{
	struct batoni_fault fault;
	char why[256];

	/* Full: the device's own sentence stays. */
	if (status == BATON_ERR_AGAIN)
		return status;
	snprintf(why, sizeof(why), "%s", baton_last_error());
	batoni_ask_device(comm);
	if (comm->device_ops->memory->health(comm->device, &fault) == BATON_OK)
		return batoni_refuse(status,
		                     "the %s device refused the call: %s",
		                     comm->device_ops->name, why);
	return batoni_refuse(status,
	                     "the %s device takes no work: %s returned %d: %s",
	                     comm->device_ops->name, fault.call, fault.code,
	                     fault.text);
}

/* Put the item on an asynchronous stream, and publish the operation. */
static enum baton_status
publish_async(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	enum baton_status status;

	pthread_mutex_lock(&comm->order.lock);
	status = comm->device_ops->enqueue(comm->device, op->transfer.stream,
	                                   &op->item);
	if (status == BATON_OK)
		batoni_publish(op);
	pthread_mutex_unlock(&comm->order.lock);
	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_device(comm, status);
}

/* ---- stream-issued paths ---- */

static enum baton_status
refuse_broken(const struct baton_comm *comm)
{
	return batoni_refuse((enum baton_status)atomic_load(&comm->status),
	                     "the communicator is broken: %s",
	                     baton_comm_error(comm));
}

enum baton_status
batoni_enqueuing_begin(struct baton_comm *comm)
{
	enum baton_status status;

	pthread_mutex_lock(&comm->order.lock);
	/* Then `status`, see batoni_comm_end_all. */
	atomic_store(&comm->order.enqueuing, true);
	status = (enum baton_status)atomic_load(&comm->status);
	if (status == BATON_OK)
		return BATON_OK;
	batoni_enqueuing_end(comm);
	return refuse_broken(comm);
}

void
batoni_enqueuing_end(struct baton_comm *comm)
{
	atomic_store(&comm->order.enqueuing, false);
	pthread_mutex_unlock(&comm->order.lock);
	if (unlikely(atomic_load(&comm->status) != BATON_OK)) {
		char scratch[BATONI_SENTENCE_BYTES];
		char *kept = batoni_sentence_aside(scratch);

		/* The driver may have left the abort of the paths for now. */
		batoni_lock();
		batoni_comm_end_all(comm);
		batoni_end_and_issue();
		batoni_unlock();
		batoni_sentence_back(kept);
	}
}

void
batoni_break_halfway(struct baton_comm *comm, enum baton_status status,
                     const char *why)
{
	batoni_lock();
	batoni_comm_break(comm, status, why);
	batoni_unlock();
}

/* The path failed half way through an enqueue of transfers, and has said where in the
 * first.  Returns what the communicator is broken with, which may be something earlier. */
static enum baton_status
break_on_path(struct baton_comm *comm, const struct batoni_path *path,
              const struct batoni_transfer *first)
{
	char why[256], text[96] = "";

	/* Other paths have no words for their codes. */
	if (path == &comm->transport->messages && first->native_code != 0 &&
	    comm->transport_ops->texts)
		comm->transport_ops->texts->error_text(comm->transport,
		                                       first->native_code, text,
		                                       sizeof(text));
	snprintf(why, sizeof(why),
	         "%s failed half way through an enqueue: %s returned %d%s%s",
	         path->ops->name, first->native_call, first->native_code,
	         *text ? ": " : "", text);
	/* Without a code it was the device. */
	batoni_break_halfway(comm,
	                     first->native_code ? path->ops->stream_issued->fails_in
	                                        : BATON_ERR_CUDA,
	                     why);
	return refuse_broken(comm);
}

/* ---- stream-issued: transactions and marks ---- */

/* Where streams[i], or the stream of transfer i, is. */
static baton_stream
stream_at(const struct baton_comm *comm, const baton_stream *streams, size_t i)
{
	return streams ? streams[i] : comm->order.transfers[i]->stream;
}

/* Is transfer i the first of the call on its stream? */
static bool
is_first_there(const struct baton_comm *comm, const baton_stream *streams, size_t i)
{
	size_t j = 0;

	while (stream_at(comm, streams, j) != stream_at(comm, streams, i))
		j++;
	return i == j;
}

/* Begin a transaction on each stream of the call, with room for it; *begun_p: on so many.  Paths that
 * lend count by themselves. */
static enum baton_status
begin_all(struct baton_comm *comm, const struct batoni_path *path, size_t n,
          size_t *begun_p)
{
	const struct batoni_bound_ops *bounds = comm->device_ops->bounds;
	const struct batoni_need call = {.entries = !batoni_path_lends(path)};
	enum baton_status status = BATON_OK;

	*begun_p = 0;
	for (size_t i = 0; bounds && i < n && status == BATON_OK; i++) {
		if (!is_first_there(comm, NULL, i))
			continue;
		status = bounds->begin(comm->device,
		                       comm->order.transfers[i]->stream, &call);
		*begun_p += status == BATON_OK;
	}
	if (status != BATON_OK && status != BATON_ERR_AGAIN)
		batoni_refuse_device(comm, status);
	return status;
}

static void
commit_all(const struct baton_comm *comm, size_t begun)
{
	for (; begun > 0; begun--)
		comm->device_ops->bounds->commit(comm->device);
}

static struct batoni_marks *
marks_at(const struct baton_comm *comm, size_t i)
{
	return &comm->marks.by_slot[comm->order.transfers[i]->slot];
}

/* Nothing of the call is on its streams. */
static void
drop_marks(struct baton_comm *comm, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct batoni_mark *mark = &marks_at(comm, i)->armed;

		if (mark->object)
			comm->device_ops->marks->mark_drop(comm->device, mark);
	}
}

/* Record a mark of transfer i on streams[i], or on its own. */
static enum baton_status
set_mark(struct baton_comm *comm, const struct batoni_path *path,
         const baton_stream *streams, size_t i, struct batoni_mark *mark)
{
	enum baton_status status;

	mark->entries = batoni_path_lends(path)            ? 0
	                : is_first_there(comm, streams, i) ? BATONI_CALL_ENTRIES
	                                                   : 1;
	status = comm->device_ops->marks->mark(
		comm->device, stream_at(comm, streams, i), mark);
	if (status != BATON_OK)
		batoni_refuse_device(comm, status);
	return status;
}

static enum baton_status
mark_armed(struct baton_comm *comm, const struct batoni_path *path, size_t n)
{
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++)
		status = set_mark(comm, path, NULL, i, &marks_at(comm, i)->armed);
	return status;
}

/* On `observe`.  A thread may ask for the mark of a member of a group, which it joins. */
static enum baton_status
mark_ended(struct baton_comm *comm, const struct batoni_path *path, size_t n)
{
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++) {
		struct batoni_mark *mark = &marks_at(comm, i)->ended, set = *mark;

		/* The call may block: not under the lock, which the driver tries. */
		status = set_mark(comm, path, comm->order.observe, i, &set);
		pthread_mutex_lock(&comm->marks.lock);
		*mark = set;
		pthread_mutex_unlock(&comm->marks.lock);
	}
	return status;
}

/* Mark the ends.  Without the end mark a lent buffer is never returned, so the mark is retried. */
static enum baton_status
mark_ends(struct baton_comm *comm, const struct batoni_path *path, size_t n)
{
	enum baton_status status = mark_ended(comm, path, n);

	for (unsigned i = 1;
	     batoni_path_lends(path) && i < MARK_TRIES && status != BATON_OK; i++)
		status = mark_ended(comm, path, n);
	return status;
}

static void
note_stream(struct batoni_follow *follow, baton_stream *streams,
            baton_stream stream)
{
	size_t i = 0;

	while (i < follow->count && streams[i] != stream)
		i++;
	streams[i] = stream;
	if (i == follow->count)
		follow->count++;
}

/* What the path puts on the streams, and the marks before and behind it.  *lost_p: it is there, and
 * nothing shows its end. */
static enum baton_status
put_between_marks(struct baton_comm *comm, struct batoni_path *path, size_t n,
                  const struct batoni_follow *follow, bool *lost_p)
{
	enum baton_status status = mark_armed(comm, path, n);

	if (status == BATON_OK)
		status = path->ops->stream_issued->enqueue(
			path, comm->order.transfers, n, follow,
			comm->order.observe);
	if (status == BATON_OK)
		*lost_p = mark_ends(comm, path, n) != BATON_OK;
	else if (status != BATON_ERR_BUSY)
		drop_marks(comm, n);
	return status;
}

enum baton_status
batoni_enqueue_on_path(struct baton_comm *comm, unsigned index,
                       struct batoni_op *first, bool detached)
{
	struct batoni_follow follow = {.streams = comm->order.follow};
	struct batoni_path *path = comm->paths[index];
	enum baton_status status;
	size_t n = 0, begun;
	bool lost = false;

	for (struct batoni_op *op = first; op; op = op->group_next) {
		if (op->path == index)
			comm->order.transfers[n++] = &op->transfer;
		if (detached)
			note_stream(&follow, comm->order.follow, op->transfer.stream);
	}
	status = begin_all(comm, path, n, &begun);
	if (status == BATON_OK)
		status = put_between_marks(comm, path, n,
		                           detached ? &follow : NULL, &lost);
	commit_all(comm, begun);
	if (status == BATON_ERR_BUSY)
		return break_on_path(comm, path, comm->order.transfers[0]);
	/* The communicator broke meanwhile. */
	if (status == BATON_ERR_ABORTED && atomic_load(&comm->status))
		return refuse_broken(comm);
	if (lost)
		batoni_break_halfway(comm, BATON_ERR_CUDA,
		                     "the device could not mark the end of an "
		                     "operation");
	return status;
}

static void
hand_to_layer(struct batoni_op *op)
{
	batoni_set(op->path, BATONI_PATH_ONESIDED);
	op->flags &= (uint16_t)~BATONI_FLAG_STREAM_ISSUED;
}

bool
batoni_path_takes(struct batoni_op *op, bool alone)
{
	struct batoni_path *path = batoni_path_of(op);

	if (!path->ops->taking ||
	    path->ops->taking->takes(path, &op->transfer, alone))
		return true;
	hand_to_layer(op);
	return false;
}

/* The path has it on its stream, or leaves it to the one-sided layer. */
static enum baton_status
put_issued(struct batoni_op *op)
{
	bool detached = op->flags & BATONI_FLAG_DETACHED;
	struct baton_comm *comm = op->comm;
	enum baton_status status = BATON_PENDING;

	if (batoni_path_takes(op, !detached))
		status = batoni_enqueue_on_path(comm, op->path, op, detached);
	if (status != BATON_PENDING)
		return status;
	hand_to_layer(op);
	status = comm->device_ops->enqueue(comm->device, op->transfer.stream,
	                                   &op->item);
	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_device(comm, status);
}

enum baton_status
batoni_op_put(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	enum baton_status status;

	op->group_next = NULL;
	if (op->flags & BATONI_FLAG_STREAM_ISSUED)
		return put_issued(op);
	status = comm->device_ops->enqueue(comm->device, op->transfer.stream,
	                                   &op->item);
	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_device(comm, status);
}

static enum baton_status
publish_issued(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	enum baton_status status = batoni_enqueuing_begin(comm);

	if (status != BATON_OK)
		return status;
	status = put_issued(op);
	if (status == BATON_OK)
		batoni_publish(op);
	batoni_enqueuing_end(comm);
	return status;
}

/* The call is refused late: return its slot and its queue entry. */
enum baton_status
batoni_unmake(struct batoni_op *op, enum baton_status status)
{
	if (op->queue)
		batoni_queue_unreserve(op->queue);
	if (unlikely(batoni_claim_has(op)))
		batoni_claim_return(op);
	batoni_op_drop(op, BATONI_OP_HANDLE | BATONI_OP_ENGINE |
	                           BATONI_OP_STREAM | BATONI_OP_QUEUE);
	return status;
}

enum baton_status
batoni_publish_record(struct batoni_op *op)
{
	if (likely(op->comm->in_engine)) {
		batoni_publish(op);
		return BATON_OK;
	}
	op->group_next = NULL;
	return op->flags & BATONI_FLAG_STREAM_ISSUED ? publish_issued(op)
	                                             : publish_async(op);
}
