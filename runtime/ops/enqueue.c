/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Enqueuing.  Each call checks everything first, then takes a record, fills it, and
 * publishes it.
 *
 * In-engine device: records are placed in one total order.  The enqueuer tries the
 * driver lock.  If it gets the lock it empties the inbox and places the record
 * itself; an armed operation is issued within the call.  Otherwise it pushes the
 * record to the inbox, and the driver places it.  (The fast path for small host
 * messages bypasses this file: direct.h.)
 *
 * Asynchronous device: the enqueuer puts the trigger and the wait on the stream
 * and pushes the record to the inbox, both under comm->order, so that the order
 * on the stream and the order of matching agree.  If the trigger fires in between,
 * batoni_op_place finds the record already reached.
 */
#include "life.h"

#include <limits.h>
#include <stdio.h>

#include "engine.h"
#include "enqueue.h"
#include "group.h"
#include "health.h"
#include "launch.h"
#include "log.h"
#include "place.h"
#include "plan.h"
#include "queue.h"
#include "registry.h"
#include "request.h"
#include "sized.h"
#include "sweep.h"

/* Only a device that is sick refuses a mark so often. */
#define MARK_TRIES 3u

/* Set the fields of all kinds.  The holders are stored last, with release: a scan by the
 * driver that loads ENGINE (acquire) then reads the state. */
static inline void
init_op(struct batoni_op *op, struct baton_comm *comm, enum batoni_op_kind kind,
        baton_stream stream, uint64_t holders)
{
	uint32_t slot = batoni_pool_slot(&comm->pool, op);
	uint64_t word;

	op->transfer.buffer = NULL;
	op->transfer.bytes = 0;
	op->transfer.native_code = 0;
	batoni_set(op->transfer.peer, -1);
	batoni_set(op->transfer.tag, -1);
	op->item.note = atomic_load_explicit(&batoni_engine.clock_ms,
	                                     memory_order_relaxed);
	batoni_set(op->status, BATON_PENDING);
	batoni_op_begin(op, comm, kind, BATONI_NEW, 0, BATONI_PATH_MESSAGES,
	                slot & 0xffffffu, stream,
	                comm->in_engine ? batoni_reached_inline
	                                : batoni_reached_posted,
	                &comm->pool.words[slot], comm->pool.values[slot], 0, 0,
	                comm->timeout_ns);
	word = atomic_load_explicit(&op->word, memory_order_relaxed);
	atomic_store_explicit(&op->word, word | holders, memory_order_release);
}

/* The pool's list is empty, but the driver's cache may hold free records.  Or the driver
 * may be about to return a record whose end is already visible, to a host or through what
 * a peer sent after it.  Under the lock both are settled. */
static struct batoni_op *
take_cached(struct baton_comm *comm)
{
	struct batoni_op *op;

	batoni_take();
	op = batoni_pool_take_driving(&comm->pool);
	batoni_leave();
	return op;
}

struct batoni_op *
batoni_op_new(struct baton_comm *comm, enum batoni_op_kind kind,
              baton_stream stream, uint64_t holders)
{
	struct batoni_op *op = likely(!batoni_thread.groups)
	                               ? NULL
	                               : batoni_launch_reserved(comm);

	if (likely(!op))
		op = batoni_pool_take(&comm->pool);
	if (unlikely(!op))
		op = take_cached(comm);
	if (unlikely(!op))
		return NULL;
	init_op(op, comm, kind, stream, holders);
	return op;
}

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

	if (unlikely(!batoni_try())) {
		batoni_inbox_push(op);
		return;
	}
	if (unlikely(atomic_load_explicit(&e->inbox, memory_order_relaxed)))
		batoni_place_inbox();
	batoni_op_place(op);
	batoni_leave_enqueue();
}

void
batoni_publish_chain(struct batoni_op *first)
{
	struct batoni_engine *e = &batoni_engine;
	struct batoni_op *op, *next;

	if (unlikely(!batoni_try())) {
		batoni_inbox_push_chain(first);
		return;
	}
	if (unlikely(atomic_load_explicit(&e->inbox, memory_order_relaxed)))
		batoni_place_inbox();
	for (op = first; op; op = next) {
		next = op->next;
		batoni_op_place(op);
	}
	batoni_leave_enqueue();
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

/* Put the item on an asynchronous stream, and publish the record. */
static enum baton_status
publish_async(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	enum baton_status status;

	pthread_mutex_lock(&comm->order);
	status = comm->device_ops->enqueue(comm->device, op->transfer.stream,
	                                   &op->item);
	if (status == BATON_OK)
		batoni_publish(op);
	pthread_mutex_unlock(&comm->order);
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

	pthread_mutex_lock(&comm->order);
	/* Then `status`, see batoni_comm_end_all. */
	atomic_store(&comm->enqueuing, true);
	status = (enum baton_status)atomic_load(&comm->status);
	if (status == BATON_OK)
		return BATON_OK;
	batoni_enqueuing_end(comm);
	return refuse_broken(comm);
}

void
batoni_enqueuing_end(struct baton_comm *comm)
{
	atomic_store(&comm->enqueuing, false);
	pthread_mutex_unlock(&comm->order);
	if (unlikely(atomic_load(&comm->status) != BATON_OK)) {
		char scratch[BATONI_SENTENCE_BYTES];
		char *kept = batoni_sentence_aside(scratch);

		/* The driver may have left the abort of the paths for now. */
		batoni_take();
		batoni_comm_end_all(comm);
		batoni_end_and_issue();
		batoni_leave();
		batoni_sentence_back(kept);
	}
}

void
batoni_break_halfway(struct baton_comm *comm, enum baton_status status,
                     const char *why)
{
	batoni_take();
	batoni_comm_break(comm, status, why);
	batoni_leave();
}

/* The path failed half way through an enqueue of transfers, and has said where in the
 * first.  Returns what the communicator is broken with, which may be something earlier. */
static enum baton_status
break_on_path(struct baton_comm *comm, const struct batoni_path *path,
              const struct batoni_transfer *first)
{
	char why[256], text[96] = "";

	/* Other paths have no words for their codes. */
	if (path == &comm->transport->messages && first->native_code != 0)
		comm->transport_ops->error_text(comm->transport,
		                                first->native_code, text,
		                                sizeof(text));
	snprintf(why, sizeof(why),
	         "%s failed half way through an enqueue: %s returned %d%s%s",
	         path->ops->name, first->native_call, first->native_code,
	         *text ? ": " : "", text);
	/* Without a code it was the device. */
	batoni_break_halfway(comm,
	                     first->native_code ? path->ops->fails_in
	                                        : BATON_ERR_CUDA,
	                     why);
	return refuse_broken(comm);
}

/* ---- stream-issued: room and marks ---- */

/* Where streams[i], or the stream of transfer i, is. */
static baton_stream
stream_at(const struct baton_comm *comm, const baton_stream *streams, size_t i)
{
	return streams ? streams[i] : comm->scratch[i]->stream;
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

/* Is there room for the call on each stream?  Paths that lend count by themselves. */
static enum baton_status
check_room(struct baton_comm *comm, const struct batoni_path *path, size_t n)
{
	const struct batoni_need call = {.entries = 1};
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++) {
		if (path->ops->lends || !comm->device_ops->room)
			break;
		if (is_first_there(comm, NULL, i))
			status = comm->device_ops->room(
				comm->device, comm->scratch[i]->stream, &call);
	}
	if (status != BATON_OK && status != BATON_ERR_AGAIN)
		batoni_refuse_device(comm, status);
	return status;
}

/* Nothing of the call is on its streams. */
static void
drop_marks(struct baton_comm *comm, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct batoni_mark *mark =
			&comm->marks[comm->scratch[i]->slot].armed;

		pthread_mutex_lock(&comm->marks_lock);
		if (mark->object)
			comm->device_ops->mark_drop(comm->device, mark);
		pthread_mutex_unlock(&comm->marks_lock);
	}
}

/* Record where each of the n transfers is armed, or ends, on streams[i]. */
static enum baton_status
mark_all(struct baton_comm *comm, const struct batoni_path *path, size_t n,
         bool ends, const baton_stream *streams)
{
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++) {
		const struct batoni_transfer *transfer = comm->scratch[i];
		struct batoni_marks *marks = &comm->marks[transfer->slot];
		struct batoni_mark *mark = ends ? &marks->ended : &marks->armed;
		struct batoni_mark set = *mark;

		set.entries = path->ops->lends                 ? 0
		              : is_first_there(comm, streams, i) ? BATONI_CALL_ENTRIES
		                                                 : 1;
		status = comm->device_ops->mark(
			comm->device, stream_at(comm, streams, i), &set);
		/* The call may block: not under the lock, which the driver tries. */
		pthread_mutex_lock(&comm->marks_lock);
		*mark = set;
		pthread_mutex_unlock(&comm->marks_lock);
		if (status != BATON_OK)
			batoni_refuse_device(comm, status);
	}
	return status;
}

/* What is lent until then is lent for good without. */
static enum baton_status
mark_ends(struct baton_comm *comm, const struct batoni_path *path, size_t n)
{
	enum baton_status status = mark_all(comm, path, n, true, comm->observe);

	for (unsigned i = 1;
	     path->ops->lends && i < MARK_TRIES && status != BATON_OK; i++)
		status = mark_all(comm, path, n, true, comm->observe);
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

enum baton_status
batoni_enqueue_on_path(struct baton_comm *comm, unsigned index,
                       struct batoni_op *first, bool detached)
{
	struct batoni_follow follow = {.streams = comm->follow};
	struct batoni_path *path = comm->paths[index];
	enum baton_status status;
	size_t n = 0;

	for (struct batoni_op *op = first; op; op = op->group_next) {
		if (op->path == index)
			comm->scratch[n++] = &op->transfer;
		if (detached)
			note_stream(&follow, comm->follow, op->transfer.stream);
	}
	status = check_room(comm, path, n);
	if (status != BATON_OK)
		return status;
	status = mark_all(comm, path, n, false, NULL);
	if (status == BATON_OK)
		status = path->ops->enqueue(path, comm->scratch, n,
		                            detached ? &follow : NULL,
		                            comm->observe);
	if (status == BATON_ERR_BUSY)
		return break_on_path(comm, path, comm->scratch[0]);
	if (status != BATON_OK)
		drop_marks(comm, n);
	/* The communicator broke meanwhile. */
	if (status == BATON_ERR_ABORTED && atomic_load(&comm->status))
		return refuse_broken(comm);
	if (status != BATON_OK)
		return status;
	if (mark_ends(comm, path, n) != BATON_OK)
		/* They are on their streams, and nothing shows their end. */
		batoni_break_halfway(comm, BATON_ERR_CUDA,
		              "the device could not mark the end of an operation");
	return BATON_OK;
}

static void
leave_to_layer(struct batoni_op *op)
{
	batoni_set(op->path, BATONI_PATH_ONESIDED);
	op->flags &= (uint16_t)~BATONI_FLAG_STREAM_ISSUED;
}

bool
batoni_path_takes(struct batoni_op *op, bool alone)
{
	struct batoni_path *path = batoni_path_of(op);

	if (!path->ops->takes || path->ops->takes(path, &op->transfer, alone))
		return true;
	leave_to_layer(op);
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
	leave_to_layer(op);
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

/* The call is refused late: return its record and its queue entry. */
enum baton_status
batoni_unmake(struct batoni_op *op, enum baton_status status)
{
	if (op->queue)
		batoni_queue_unreserve(op->queue);
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

static enum baton_status
publish(const char *call, struct batoni_op *op)
{
	enum baton_status status = batoni_publish_record(op);

	if (status == BATON_OK)
		return BATON_OK;
	batoni_refuse_named(call, status);
	return batoni_unmake(op, status);
}

/* ---- checks ---- */

enum baton_status
batoni_check_comm(const char *call, const struct baton_comm *comm)
{
	enum baton_status status;

	if (unlikely(!batoni_may_call()))
		return batoni_refuse_caller(call);
	if (unlikely(!batoni_comm_lives(comm)))
		return batoni_refuse_comm(call, comm);
	status = (enum baton_status)atomic_load_explicit(&comm->status,
	                                                 memory_order_relaxed);
	if (unlikely(status != BATON_OK))
		return batoni_refuse(status, "%s: the communicator is broken: %s",
		                     call, baton_comm_error(comm));
	return batoni_check_left(call, comm);
}

enum baton_status
batoni_stream_check(const struct baton_comm *comm, baton_stream stream,
                    bool launching)
{
	const struct batoni_device_ops *ops = comm->device_ops, *other;

	/* In-engine devices look at the handle alone. */
	if (!comm->in_engine && stream) {
		other = batoni_device_of_stream(stream);
		if (unlikely(other && other != ops))
			return batoni_refuse(
				BATON_ERR_INVALID,
				"stream %p is a stream of the %s device, and "
				"this rank of the communicator is on the %s "
				"device",
				(void *)stream, other->name, ops->name);
	}
	return ops->stream_check(comm->device, stream, launching);
}

/* The library below may use streams of its own to copy, which this one would stop. */
static enum baton_status
check_direct(const char *call, const struct baton_comm *comm, baton_stream stream)
{
	if (!comm->device_ops->stops_others ||
	    !comm->device_ops->stops_others(stream))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s: the stream is the legacy default one, and MPI "
	                     "reaches the device's memory by itself: while the "
	                     "stream waited, it could stop the copies that MPI "
	                     "makes; use a non-blocking stream, or set "
	                     "BATON_MPI_CUDA=staged",
	                     call);
}

enum baton_status
batoni_check_target(const char *call, const struct baton_comm *comm,
                    baton_stream stream, bool launching)
{
	enum baton_status status = batoni_check_comm(call, comm);

	if (unlikely(status != BATON_OK))
		return status;
	status = batoni_stream_check(comm, stream, launching);
	if (unlikely(status != BATON_OK))
		return batoni_refuse_named(call, status);
	return likely(!comm->direct) ? BATON_OK
	                             : check_direct(call, comm, stream);
}

static const struct baton_op_options defaults = BATON_OP_OPTIONS_INIT;

static const struct batoni_sized sized_options = {
	.name = "options",
	.size_name = "options->size",
	.advice = "use BATON_OP_OPTIONS_INIT",
	.smallest = BATONI_SIZED_UNTIL(struct baton_op_options, queue),
	.bytes = sizeof(struct baton_op_options),
	.defaults = &defaults,
	.reserved = {BATONI_RESERVED(struct baton_op_options, reserved),
                     BATONI_RESERVED(struct baton_op_options, reserved_more)},
};

enum baton_status
batoni_take_options(const char *call, const struct baton_op_options **options_p,
                    struct baton_op_options *room, bool record)
{
	const struct baton_op_options *options = *options_p;

	if (!options)
		return BATON_OK;
	options = batoni_sized_take(&sized_options, call, options, room);
	if (!options)
		return BATON_ERR_INVALID;
	*options_p = options;
	if (options->flags & ~BATON_OP_DETACHED)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->flags is 0x%x; only "
		                     "BATON_OP_DETACHED (0x%x) is known",
		                     call, options->flags, BATON_OP_DETACHED);
	if (record && options->flags)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->flags is 0x%x; a record takes "
		                     "none",
		                     call, options->flags);
	if (record && options->timeout_ns > 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: options->timeout_ns is %lld; a record "
		                     "takes no deadline",
		                     call, (long long)options->timeout_ns);
	return BATON_OK;
}

/* The slow path: find out which argument is wrong. */
static enum baton_status
refuse_arguments(const char *call, const struct baton_comm *comm,
                 const struct batoni_arguments *a)
{
	size_t size = baton_datatype_size(a->type);

	if (size == 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: type is %d; datatypes are 0 to %d",
		                     call, (int)a->type,
		                     BATON_DATATYPE_COUNT - 1);
	if (a->peer < 0 || a->peer >= comm->size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: peer is %d; ranks are 0 to %d", call,
		                     a->peer, comm->size - 1);
	if (a->tag > 0 && comm->tag_max == 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: tag is %d; the %s transport has no "
		                     "tags but 0",
		                     call, a->tag, comm->transport_ops->name);
	if (a->tag < 0 || a->tag > comm->tag_max)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: tag is %d; tags are 0 to %d", call,
		                     a->tag, comm->tag_max);
	if (a->count > INT64_MAX / size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: count is %zu elements of %zu byte%s; the "
		                     "product must fit in 63 bits",
		                     call, a->count, size, batoni_s(size));
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: buffer is NULL with count %zu; NULL is allowed "
	                     "with count 0 only",
	                     call, a->count);
}

static bool
arguments_fine(const struct baton_comm *comm, const struct batoni_arguments *a)
{
	return (unsigned)a->peer < (unsigned)comm->size && a->tag >= 0 &&
	       a->tag <= comm->tag_max && (a->buffer || a->count == 0);
}

/* Does count times size fit in 63 bits? */
static bool
bytes_fit(size_t count, size_t size, size_t *bytes_p)
{
	return size != 0 && !__builtin_mul_overflow(count, size, bytes_p) &&
	       *bytes_p <= INT64_MAX;
}

/* ---- the calls ---- */

enum baton_status
batoni_apply_options(struct batoni_op *op, const struct baton_op_options *options)
{
	enum baton_status status;

	batoni_set(op->user_data, options->user_data);
	if (options->timeout_ns != 0)
		op->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns
		                                         : 0;
	if (options->flags & BATON_OP_DETACHED) {
		op->flags |= BATONI_FLAG_DETACHED;
		op->item.word = NULL;
	}
	if (!options->queue)
		return BATON_OK;
	status = batoni_queue_reserve(options->queue, op->comm);
	if (status != BATON_OK)
		return status;
	op->queue = options->queue;
	atomic_fetch_or_explicit(&op->word, BATONI_OP_QUEUE,
	                         memory_order_relaxed);
	return BATON_OK;
}

enum baton_status
batoni_refuse_full(const char *call, const struct baton_comm *comm)
{
	return batoni_refuse(BATON_ERR_AGAIN,
	                     "%s: all %u requests of the communicator are taken; "
	                     "finish or release some (requests_max)",
	                     call, comm->pool.size);
}

/* Set the fields that only transfers have.  The options may refuse the call. */
static inline enum baton_status
init_transfer(struct batoni_op *op, const struct batoni_arguments *a, size_t bytes)
{
	/* A send's buffer is only read. */
	op->transfer.buffer = (void *)(uintptr_t)a->buffer;
	op->transfer.bytes = bytes;
	batoni_set(op->transfer.peer, a->peer);
	batoni_set(op->transfer.tag, a->tag);
	if (op->kind == BATONI_KIND_SEND || op->kind == BATONI_KIND_RECV) {
		op->transfer.direction = op->kind == BATONI_KIND_SEND
		                                 ? BATONI_SEND
		                                 : BATONI_RECV;
		op->transfer.type = (int)a->type;
	} else {
		op->transfer.direction = op->kind == BATONI_KIND_WAIT
		                                 ? BATONI_WAIT
		                                 : BATONI_PUT;
	}
	return a->options ? batoni_apply_options(op, a->options) : BATON_OK;
}

static void
refuse_place(const char *call, struct baton_comm *comm, enum baton_status status)
{
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(comm, status);
	batoni_refuse_named(call, status);
}

static enum baton_status
look(const char *call, struct batoni_op *op)
{
	unsigned place;
	enum baton_status status =
		batoni_place_find(op->comm, op->transfer.buffer,
	                          op->transfer.bytes, &place);

	if (likely(status == BATON_OK))
		op->transfer.place = place & 0x3fu;
	else
		refuse_place(call, op->comm, status);
	return status;
}

static inline uint64_t
holders_of(const struct batoni_arguments *a)
{
	const uint64_t held = BATONI_OP_ENGINE | BATONI_OP_STREAM;

	return a->request_p ? held | BATONI_OP_HANDLE : held;
}

/* The path may refuse what it has been chosen for. */
static enum baton_status
accept(const char *call, struct batoni_op *op)
{
	struct batoni_path *path = batoni_path_of(op);
	enum baton_status status = path->ops->accepts(path, &op->transfer);

	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_named(call, status);
}

static enum baton_status
choose_path(const char *call, struct batoni_op *op)
{
	int path = likely(!batoni_op_list(op))
	                   ? batoni_choose_path(op->comm, op->kind,
	                                        op->transfer.peer)
	                   : (int)op->comm->lists_path;

	if (unlikely(path < 0))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: no path of the communicator carries it "
		                     "to rank %d",
		                     call, op->transfer.peer);
	batoni_set(op->path, (uint8_t)path);
	if (unlikely(op->comm->paths[path]->ops->stream_issued))
		op->flags |= BATONI_FLAG_STREAM_ISSUED;
	return likely(!op->comm->paths[path]->ops->accepts)
	               ? BATON_OK
	               : accept(call, op);
}

/* The last part of a call: the record has its holders and, if it is one-sided, what the
 * layer keeps for it.  Anything but OK: the record is still the caller's. */
static enum baton_status
enqueue_made(const char *call, struct batoni_op *op,
             const struct batoni_arguments *a, size_t bytes)
{
	enum baton_status status = init_transfer(op, a, bytes);
	struct batoni_op *group;
	baton_request handle;

	if (unlikely(status != BATON_OK))
		return batoni_refuse_named(call, status);
	if (bytes > 0 && batoni_place_counts(op->comm) &&
	    op->transfer.place != BATONI_PLACE_LIST)
		status = look(call, op);
	if (status == BATON_OK)
		status = choose_path(call, op);
	if (unlikely(status != BATON_OK))
		return status;
	/* Read the handle now: a published record may end and be returned. */
	handle = batoni_op_handle(op, atomic_load_explicit(
					      &op->word, memory_order_relaxed));
	group = batoni_group_open(op->comm);
	status = group ? batoni_group_add(group, op) : batoni_publish_record(op);
	if (unlikely(status != BATON_OK))
		return status == BATONI_RECORDED
		               ? status
		               : batoni_refuse_named(call, status);
	if (a->request_p)
		*a->request_p = handle;
	return BATON_OK;
}

static enum baton_status
enqueue(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
        const struct batoni_arguments *a, size_t bytes)
{
	struct batoni_op *op =
		batoni_op_new(comm, kind, a->stream, holders_of(a));
	enum baton_status status;

	if (unlikely(!op))
		return batoni_refuse_full(call, comm);
	status = enqueue_made(call, op, a, bytes);
	return likely(status == BATON_OK) ? BATON_OK : batoni_unmake(op, status);
}

void
batoni_recorded_fill(struct batoni_recorded *recorded, enum batoni_op_kind kind,
                     const struct batoni_arguments *a, size_t bytes)
{
	*recorded = (struct batoni_recorded){
		.kind = kind,
		.optioned = a->options != NULL,
		.a = *a,
		.bytes = bytes,
	};
	if (a->options)
		recorded->options = *a->options;
}

static enum baton_status
replay_message(struct baton_comm *comm, const void *payload)
{
	const struct batoni_recorded *recorded = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(recorded);

	return enqueue("baton_plan_launch", recorded->kind, comm, &a,
	               recorded->bytes);
}

static enum baton_status
note_message(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
             const struct batoni_arguments *a, size_t bytes)
{
	static const struct batoni_note_ops ops = {.replay = replay_message,
	                                           .message = true};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, kind, a, bytes);
	return batoni_plan_note(call, batoni_plan_recorded(comm), &ops,
	                        a->stream, &recorded, sizeof(recorded), NULL, 0);
}

enum baton_status
batoni_enqueue(const char *call, enum batoni_op_kind kind,
               struct baton_comm *comm, struct batoni_arguments *a)
{
	struct baton_op_options room;
	enum baton_status status;
	size_t bytes = 0;

	status = batoni_check_target(call, comm, a->stream, false);
	if (status == BATON_OK &&
	    (!arguments_fine(comm, a) ||
	     !bytes_fit(a->count, baton_datatype_size(a->type), &bytes)))
		status = refuse_arguments(call, comm, a);
	if (status == BATON_OK)
		status = batoni_take_options(call, &a->options, &room, false);
	if (status == BATON_OK)
		status = enqueue(call, kind, comm, a, bytes);
	if (unlikely(status == BATONI_RECORDED))
		return note_message(call, kind, comm, a, bytes);
	return status == BATON_OK ? BATON_OK
	                          : batoni_group_refuse(comm, status);
}

enum baton_status
batoni_enqueue_list(const char *call, enum batoni_op_kind kind,
                    struct baton_comm *comm, const struct batoni_arguments *a)
{
	enum baton_status status;
	struct batoni_op *op;

	if (!arguments_fine(comm, a))
		return refuse_arguments(call, comm, a);
	op = batoni_op_new(comm, kind, a->stream, holders_of(a));
	if (unlikely(!op))
		return batoni_refuse_full(call, comm);
	op->transfer.place = BATONI_PLACE_LIST;
	status = enqueue_made(call, op, a, a->count);
	return status == BATON_OK ? BATON_OK : batoni_unmake(op, status);
}

enum baton_status
batoni_enqueue_onesided(const char *call, enum batoni_op_kind kind,
                        struct baton_comm *comm,
                        const struct batoni_arguments *a, size_t bytes,
                        enum baton_status (*fill)(struct batoni_onesided *onesided,
                                                  uint32_t slot,
                                                  const void *more),
                        const void *more)
{
	enum baton_status status;
	struct batoni_op *op;

	op = batoni_op_new(comm, kind, a->stream, holders_of(a));
	if (unlikely(!op))
		return batoni_refuse_full(call, comm);
	status = fill(comm->onesided, op->transfer.slot, more);
	if (unlikely(status != BATON_OK))
		return batoni_unmake(op, status);
	status = enqueue_made(call, op, a, bytes);
	if (likely(status == BATON_OK))
		return BATON_OK;
	comm->onesided->ops->forget(comm->onesided, &op->transfer);
	return batoni_unmake(op, status);
}

/* For calls that are not allowed inside a group. */
static enum baton_status
check_ungrouped(const char *call, const struct baton_comm *comm)
{
	if (!batoni_thread.groups || !batoni_group_open(comm))
		return BATON_OK;
	return batoni_group_refuse(
		comm, batoni_refuse(BATON_ERR_INVALID,
	                            "%s was called %s, which takes communication "
	                            "only",
	                            call, batoni_group_where(comm)));
}

enum baton_status
baton_record(struct baton_comm *comm, baton_stream stream,
             const struct baton_op_options *options, baton_request *request_p)
{
	const uint64_t held = BATONI_OP_ENGINE | BATONI_OP_STREAM;
	struct baton_op_options room;
	enum baton_status status;
	struct batoni_op *op;
	baton_request handle;

	status = batoni_check_target("baton_record", comm, stream, false);
	if (status == BATON_OK)
		status = check_ungrouped("baton_record", comm);
	if (status == BATON_OK)
		status = batoni_take_options("baton_record", &options, &room,
		                             true);
	if (status != BATON_OK)
		return status;
	op = batoni_op_new(comm, BATONI_KIND_RECORD, stream,
	                   request_p ? held | BATONI_OP_HANDLE : held);
	if (!op)
		return batoni_refuse_full("baton_record", comm);
	op->item.word = NULL;
	op->timeout_ns = 0;
	if (options) {
		status = batoni_apply_options(op, options);
		op->timeout_ns = 0;
		if (status != BATON_OK) {
			batoni_refuse_named("baton_record", status);
			return batoni_unmake(op, status);
		}
	}
	handle = batoni_op_handle(op, atomic_load(&op->word));
	status = publish("baton_record", op);
	if (status == BATON_OK && request_p)
		*request_p = handle;
	return status;
}

enum baton_status
baton_stream_launch(struct baton_comm *comm, baton_stream stream,
                    void (*fn)(void *arg), void *arg)
{
	enum baton_status status;
	struct batoni_op *op;

	status = batoni_check_target("baton_stream_launch", comm, stream, false);
	if (status == BATON_OK)
		status = check_ungrouped("baton_stream_launch", comm);
	if (status == BATON_OK && !fn)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_stream_launch: fn is NULL");
	if (status == BATON_OK)
		status = batoni_check_target("baton_stream_launch", comm,
		                             stream, true);
	if (status != BATON_OK)
		return status;
	op = batoni_op_new(comm, BATONI_KIND_LAUNCH, stream,
	                   BATONI_OP_ENGINE | BATONI_OP_STREAM);
	if (!op)
		return batoni_refuse_full("baton_stream_launch", comm);
	batoni_set(op->launch, fn);
	op->transfer.buffer = arg;
	op->timeout_ns = 0;
	op->item.flags = BATONI_ITEM_LAUNCH;
	op->item.reached = batoni_reached_launch;
	/* An asynchronous device makes its stream wait for the function by itself. */
	if (!comm->in_engine)
		op->item.word = NULL;
	return publish("baton_stream_launch", op);
}

/* Hold the record of a live handle by a join. */
static enum baton_status
join_target(baton_request request, struct batoni_op **target_p, bool *done_p)
{
	uint64_t word = 0;
	struct batoni_op *target = batoni_request_find(request, &word);
	enum baton_status status = BATON_ERR_STALE;

	if (target)
		status = batoni_op_hold(target, &word, BATONI_OP_HANDLE);
	if (status == BATON_ERR_STALE)
		return batoni_refuse(status,
		                     "baton_stream_wait: request 0x%llx was "
		                     "released",
		                     (unsigned long long)request);
	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "baton_stream_wait: 65535 streams wait for "
		                     "this request already");
	*target_p = target;
	*done_p = word & BATONI_OP_DONE;
	return BATON_OK;
}

/* Let the stream wait for the mark of the target's end, which no look of the driver has to
 * release.  PENDING: it has none (it is not stream-issued, its group is open, it is of
 * another device, or it has ended), or the stream has many such waits; the stream is to wait for
 * its word. */
static enum baton_status
join_mark(struct baton_comm *comm, baton_stream stream,
          const struct batoni_op *target)
{
	struct baton_comm *theirs = target->comm;
	uint32_t slot = batoni_pool_slot(&theirs->pool, target);
	enum baton_status status;

	if (!theirs->marks || !comm->device_ops->mark_follow ||
	    comm->device->number != theirs->device->number)
		return BATON_PENDING;
	pthread_mutex_lock(&theirs->marks_lock);
	status = comm->device_ops->mark_follow(comm->device, stream,
	                                       &theirs->marks[slot].ended,
	                                       true);
	pthread_mutex_unlock(&theirs->marks_lock);
	if (status != BATON_OK && status != BATON_PENDING) {
		batoni_refuse_device(comm, status);
		batoni_refuse_named("baton_stream_wait", status);
	}
	return status;
}

enum baton_status
baton_stream_wait(struct baton_comm *comm, baton_stream stream,
                  baton_request request)
{
	struct batoni_op *op, *target = NULL;
	enum baton_status status;
	uint32_t slot;
	bool done = false;

	status = batoni_check_target("baton_stream_wait", comm, stream, false);
	if (status == BATON_OK)
		status = check_ungrouped("baton_stream_wait", comm);
	if (status != BATON_OK)
		return status;
	if (request == BATON_REQUEST_NULL)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_stream_wait: request is "
		                     "BATON_REQUEST_NULL");
	status = join_target(request, &target, &done);
	if (status != BATON_OK)
		return status;
	if (target->comm->device_ops != comm->device_ops) {
		batoni_op_unjoin(target);
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_stream_wait: the request is of "
		                     "another device");
	}
	status = done ? BATON_OK : join_mark(comm, stream, target);
	if (status != BATON_PENDING) {
		batoni_op_unjoin(target);
		return status;
	}
	op = batoni_op_new(comm, BATONI_KIND_JOIN, stream,
	                   BATONI_OP_ENGINE | BATONI_OP_STREAM);
	if (!op) {
		batoni_op_unjoin(target);
		return batoni_refuse_full("baton_stream_wait", comm);
	}
	slot = batoni_pool_slot(&target->comm->pool, target);
	op->transfer.buffer = target;
	op->timeout_ns = 0;
	op->item.flags = BATONI_ITEM_WAIT_FIRST;
	op->item.word = &target->comm->pool.words[slot];
	op->item.value = target->comm->pool.values[slot];
	status = publish("baton_stream_wait", op);
	if (status != BATON_OK)
		batoni_op_unjoin(target);
	return status;
}
