/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Enqueuing.  Each call checks everything first, then takes a slot, fills it, and
 * publishes it.
 *
 * In-engine device: operations are placed in one total order.  The enqueuer tries the
 * driver lock.  If it gets the lock it empties the inbox and places the operation
 * itself; an armed operation is issued within the call.  Otherwise it pushes the
 * operation to the inbox, and the driver places it.  (What can be issued
 * at once on the host device bypasses this file: direct.h.)
 *
 * Asynchronous device: the enqueuer puts the trigger and the wait on the stream
 * and pushes the operation to the inbox, both under comm->order.lock, so that the order
 * on the stream and the order of matching agree.  If the trigger fires in between,
 * batoni_op_place finds the operation already reached.
 */
#include "life.h"

#include <limits.h>
#include <stdio.h>

#include "claim.h"
#include "enqueue.h"
#include "health.h"
#include "log.h"
#include "location.h"
#include "plan.h"
#include "queue.h"
#include "registry.h"
#include "request.h"
#include "scope.h"
#include "sized.h"

/* Set the fields of all kinds.  The holders are stored last, with release: a scan by the
 * driver that loads ENGINE (acquire) then reads the state. */
static inline void
init_op(struct batoni_op *op, struct baton_comm *comm, enum batoni_op_kind kind,
        baton_stream stream, uint64_t holders)
{
	uint32_t slot = batoni_pool_slot(&comm->pool, op);
	uint64_t word;

	batoni_op_name(op, NULL, 0, -1, -1);
	op->transfer.native_code = 0;
	op->item.placed_ms = atomic_load_explicit(&batoni_engine.clock_ms,
	                                          memory_order_relaxed);
	batoni_set(op->status, BATON_PENDING);
	batoni_op_begin(op, comm, kind, BATONI_NEW, 0, BATONI_PATH_MESSAGES,
	                slot & 0xffffffu, stream,
	                comm->in_engine ? batoni_reached_inline
	                                : batoni_reached_posted,
	                &comm->pool.words[slot], comm->pool.values[slot], 0, 0,
	                comm->timeout_ns, batoni_thread.site);
	word = atomic_load_explicit(&op->word, memory_order_relaxed);
	atomic_store_explicit(&op->word, word | holders, memory_order_release);
}

/* The pool's list is empty, but the driver's cache may hold free slots.  Or the driver
 * may be about to return a slot whose end is already visible, to a thread or through what
 * a peer sent after it.  Under the lock both are settled. */
static struct batoni_op *
take_cached(struct baton_comm *comm)
{
	struct batoni_op *op;

	batoni_lock();
	op = batoni_pool_take_driving(&comm->pool);
	batoni_unlock();
	return op;
}

struct batoni_op *
batoni_op_new(struct baton_comm *comm, enum batoni_op_kind kind,
              baton_stream stream, uint64_t holders)
{
	struct batoni_scope *scope = batoni_thread.scopes;
	struct batoni_op *op = NULL;

	/* A launch that is being built is the latest scope. */
	if (unlikely(scope && scope->kind->take_op && scope->comm == comm))
		op = scope->kind->take_op(scope);
	if (likely(!op))
		op = batoni_pool_take(&comm->pool);
	if (unlikely(!op))
		op = take_cached(comm);
	if (unlikely(!op))
		return NULL;
	init_op(op, comm, kind, stream, holders);
	return op;
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

	/* In-engine devices check the handle alone. */
	if (!comm->in_engine && stream) {
		other = batoni_device_other(ops, stream);
		if (unlikely(other != NULL))
			return batoni_refuse(
				BATON_ERR_INVALID,
				"stream %p is a stream of the %s device, and "
				"this rank of the communicator is on the %s "
				"device",
				(void *)stream, other->name, ops->name);
	}
	return ops->stream_check(comm->device, stream, launching);
}

/* The native library may use streams of its own to copy, which this one would stop. */
static enum baton_status
check_direct(const char *call, const struct baton_comm *comm, baton_stream stream)
{
	if (!comm->device_ops->handles ||
	    !comm->device_ops->handles->stops_others(stream))
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

	if (!options || (!record && batoni_options_are_ours(options, false)))
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
refuse_arguments(const char *call, enum batoni_op_kind kind,
                 const struct baton_comm *comm, const struct batoni_arguments *a)
{
	size_t size = baton_datatype_size(a->type);
	bool receives = kind == BATONI_KIND_RECV;

	if (size == 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: type is %d; datatypes are 0 to %d",
		                     call, (int)a->type,
		                     BATON_DATATYPE_COUNT - 1);
	if (a->peer == BATON_ANY_SOURCE && !receives)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: peer is %d (BATON_ANY_SOURCE), which is "
		                     "for receives; ranks are 0 to %d",
		                     call, a->peer, comm->size - 1);
	if ((a->peer < 0 && a->peer != BATON_ANY_SOURCE) ||
	    a->peer >= comm->size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: peer is %d; ranks are 0 to %d%s", call,
		                     a->peer, comm->size - 1,
		                     receives ? ", and BATON_ANY_SOURCE is -1"
		                              : "");
	if (a->tag > 0 && comm->tag_max == 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: tag is %d; the %s transport has no "
		                     "tags but 0",
		                     call, a->tag, comm->transport_ops->name);
	if (a->tag == BATON_ANY_TAG && !receives)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: tag is %d (BATON_ANY_TAG), which is for "
		                     "receives; tags are 0 to %d",
		                     call, a->tag, comm->tag_max);
	if ((a->tag < 0 && a->tag != BATON_ANY_TAG) || a->tag > comm->tag_max)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: tag is %d; tags are 0 to %d%s", call,
		                     a->tag, comm->tag_max,
		                     receives ? ", and BATON_ANY_TAG is -1"
		                              : "");
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
arguments_fine(enum batoni_op_kind kind, const struct baton_comm *comm,
               const struct batoni_arguments *a)
{
	return ((unsigned)a->peer < (unsigned)comm->size ||
	        (a->peer == BATON_ANY_SOURCE && kind == BATONI_KIND_RECV)) &&
	       ((a->tag >= 0 && a->tag <= comm->tag_max) ||
	        (a->tag == BATON_ANY_TAG && kind == BATONI_KIND_RECV)) &&
	       (a->buffer || a->count == 0);
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
	batoni_op_name(op, a->buffer, bytes, a->peer, a->tag);
	op->transfer.direction = batoni_kind_of(op)->direction & 3u;
	if (BATONI_MESSAGES >> op->kind & 1u)
		op->transfer.type = (int)a->type;
	return a->options ? batoni_apply_options(op, a->options) : BATON_OK;
}

static void
refuse_location(const char *call, struct baton_comm *comm, enum baton_status status)
{
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(comm, status);
	batoni_refuse_named(call, status);
}

static enum baton_status
find_buffer_location(const char *call, struct batoni_op *op)
{
	unsigned location;
	enum baton_status status =
		batoni_location_find(op->comm, op->transfer.buffer,
	                             op->transfer.bytes, &location);

	if (likely(status == BATON_OK))
		op->transfer.location = location & 0x3fu;
	else
		refuse_location(call, op->comm, status);
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
	enum baton_status status = path->ops->checking->accepts(path, &op->transfer);

	return status == BATON_OK ? BATON_OK
	                          : batoni_refuse_named(call, status);
}

/* This is the first call that names the rank.  Returns the index of the path of its messages, or
 * -1: the call is refused with *status_p. */
static __attribute__((noinline)) int
connect_path(const char *call, struct baton_comm *comm, int peer,
             enum baton_status *status_p)
{
	int index = batoni_choose_path(comm, BATONI_KIND_SEND, peer);
	struct batoni_path *path = comm->paths[index];

	*status_p = path->ops->serving->connect(path, peer);
	if (*status_p != BATON_OK) {
		batoni_refuse_named(call, *status_p);
		return -1;
	}
	atomic_store_explicit(&comm->message_path[peer], (uint8_t)index,
	                      memory_order_relaxed);
	return index;
}

/* A receive from any rank: connect all of them, and see whether their paths tell what has come. */
static __attribute__((noinline)) enum baton_status
connect_any(const char *call, struct baton_comm *comm)
{
	enum baton_status status = BATON_OK;

	if (atomic_load_explicit(&comm->any_ready, memory_order_acquire))
		return BATON_OK;
	for (int rank = 0; rank < comm->size && status == BATON_OK; rank++) {
		int index = batoni_message_path(comm, rank);

		if (index == BATONI_PATH_NONE)
			index = connect_path(call, comm, rank, &status);
		if (status == BATON_OK && !comm->paths[index]->ops->unmatched)
			return batoni_refuse(
				BATON_ERR_UNSUPPORTED,
				"%s: peer is %d (BATON_ANY_SOURCE), and %s does "
				"not tell whose messages have come: streams "
				"receive from the rank that the call names",
				call, BATON_ANY_SOURCE,
				comm->paths[index]->ops->name);
	}
	if (status == BATON_OK)
		atomic_store_explicit(&comm->any_ready, true,
		                      memory_order_release);
	return status;
}

/* Until it is issued, the path of such a receive is that of rank 0. */
static int
find_any_path(const char *call, struct baton_comm *comm,
              enum baton_status *status_p)
{
	*status_p = connect_any(call, comm);
	return *status_p == BATON_OK ? batoni_message_path(comm, 0) : -1;
}

/* The path of a receive from this peer, which may be any. */
static int
find_recv_path(const char *call, struct baton_comm *comm, int peer,
               enum baton_status *status_p)
{
	int index;

	if (peer < 0)
		return find_any_path(call, comm, status_p);
	index = batoni_message_path(comm, peer);
	return index == BATONI_PATH_NONE
	               ? connect_path(call, comm, peer, status_p)
	               : index;
}

int
batoni_find_telling_path(const char *call, struct baton_comm *comm, int peer,
                         enum baton_status *status_p)
{
	int index;

	*status_p = BATON_OK;
	index = find_recv_path(call, comm, peer, status_p);
	if (index < 0 || comm->paths[index]->ops->unmatched)
		return index;
	*status_p = batoni_refuse(
		BATON_ERR_UNSUPPORTED,
		"%s: %s does not tell which messages have come: streams "
		"receive what the calls name",
		call, comm->paths[index]->ops->name);
	return -1;
}

/* Choose the path of a receive from any rank or of any tag, which has to tell what has come. -1: it
 * does not tell, and the call is refused with *status_p. */
static __attribute__((noinline)) int
find_open_path(const char *call, struct batoni_op *op, enum baton_status *status_p)
{
	struct baton_comm *comm = op->comm;
	int index = find_recv_path(call, comm, op->transfer.peer, status_p);

	if (index < 0 || comm->paths[index]->ops->unmatched)
		return index;
	*status_p = batoni_refuse(
		BATON_ERR_UNSUPPORTED,
		"%s: tag is %d (BATON_ANY_TAG), and %s does not tell on which "
		"tags messages have come: receives name their tag",
		call, BATON_ANY_TAG, comm->paths[index]->ops->name);
	return -1;
}

/* Of a message. */
static int
find_path(const char *call, struct batoni_op *op, enum baton_status *status_p)
{
	const struct baton_comm *comm = op->comm;
	uint8_t path;

	if (unlikely((op->transfer.peer | op->transfer.tag) < 0))
		return find_open_path(call, op, status_p);
	path = likely(!batoni_op_list(op)) ||
	                       comm->lists_path == BATONI_PATH_NONE
	               ? batoni_message_path(comm, op->transfer.peer)
	               : comm->lists_path;

	return likely(path != BATONI_PATH_NONE)
	               ? path
	               : connect_path(call, op->comm, op->transfer.peer, status_p);
}

static enum baton_status
choose_path(const char *call, struct batoni_op *op)
{
	enum baton_status status = BATON_OK;
	int path = BATONI_MESSAGES >> op->kind & 1u
	                   ? find_path(call, op, &status)
	                   : batoni_choose_path(op->comm, op->kind,
	                                        op->transfer.peer);

	if (unlikely(status != BATON_OK))
		return status;
	if (unlikely(path < 0))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s: no path of the communicator carries it "
		                     "to rank %d",
		                     call, op->transfer.peer);
	batoni_set(op->path, (uint8_t)path);
	if (unlikely(op->comm->paths[path]->ops->stream_issued))
		op->flags |= BATONI_FLAG_STREAM_ISSUED;
	return likely(!op->comm->paths[path]->ops->checking)
	               ? BATON_OK
	               : accept(call, op);
}

/* The last part of a call: the operation has its holders and, if it is one-sided, what the
 * layer keeps for it.  Anything but OK: the operation is still the caller's. */
static enum baton_status
enqueue_made(const char *call, struct batoni_op *op,
             const struct batoni_arguments *a, size_t bytes)
{
	enum baton_status status = init_transfer(op, a, bytes);
	struct batoni_scope *scope;
	baton_request handle;

	if (unlikely(status != BATON_OK))
		return batoni_refuse_named(call, status);
	if (bytes > 0 && batoni_location_counts(op->comm) &&
	    op->transfer.location != BATONI_LOCATION_LIST)
		status = find_buffer_location(call, op);
	if (status == BATON_OK)
		status = choose_path(call, op);
	if (unlikely(status != BATON_OK))
		return status;
	/* Read the handle now: a published operation may end and be returned. */
	handle = batoni_op_handle(op, atomic_load_explicit(
					      &op->word, memory_order_relaxed));
	scope = batoni_scope_of(op->comm);
	status = scope ? scope->kind->add(scope, op) : batoni_publish_record(op);
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
	static const struct batoni_plan_entry_ops ops = {.replay = replay_message,
	                                                 .message = true};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, kind, a, bytes);
	return batoni_plan_add(call, batoni_plan_recorded(comm), &ops,
	                       a->stream, &recorded, sizeof(recorded), NULL, 0);
}

enum baton_status
batoni_enqueue(const char *call, enum batoni_op_kind kind,
               struct baton_comm *comm, struct batoni_arguments *a)
{
	struct baton_op_options room;
	enum baton_status status;
	size_t bytes = 0;
	BATONI_UNCANCELLED_IF(comm && !comm->in_engine);

	status = batoni_check_target(call, comm, a->stream, false);
	if (status == BATON_OK &&
	    (!arguments_fine(kind, comm, a) ||
	     !bytes_fit(a->count, baton_datatype_size(a->type), &bytes)))
		status = refuse_arguments(call, kind, comm, a);
	if (status == BATON_OK)
		status = batoni_take_options(call, &a->options, &room, false);
	if (status == BATON_OK)
		status = enqueue(call, kind, comm, a, bytes);
	if (unlikely(status == BATONI_RECORDED))
		return note_message(call, kind, comm, a, bytes);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

enum baton_status
batoni_check_buffer(const char *call, const struct baton_comm *comm,
                    const struct batoni_arguments *a, size_t *bytes_p)
{
	return arguments_fine(BATONI_KIND_RECV, comm, a) &&
	                       bytes_fit(a->count, baton_datatype_size(a->type),
	                                 bytes_p)
	               ? BATON_OK
	               : refuse_arguments(call, BATONI_KIND_RECV, comm, a);
}

enum baton_status
batoni_enqueue_claim(const char *call, struct batoni_op *claim,
                     const struct batoni_arguments *a, size_t bytes, bool list)
{
	struct baton_comm *comm = claim->comm;
	struct batoni_op *op = batoni_op_new(comm, BATONI_KIND_RECV, a->stream,
	                                     holders_of(a));
	enum baton_status status;

	if (unlikely(!op)) {
		batoni_claim_put_back(claim);
		return batoni_refuse_full(call, comm);
	}
	if (list)
		op->transfer.location = BATONI_LOCATION_LIST;
	batoni_claim_give(op, claim);
	status = enqueue_made(call, op, a, bytes);
	return status == BATON_OK ? BATON_OK : batoni_unmake(op, status);
}

enum baton_status
batoni_enqueue_list(const char *call, enum batoni_op_kind kind,
                    struct baton_comm *comm, const struct batoni_arguments *a)
{
	enum baton_status status;
	struct batoni_op *op;

	if (!arguments_fine(kind, comm, a))
		return refuse_arguments(call, kind, comm, a);
	op = batoni_op_new(comm, kind, a->stream, holders_of(a));
	if (unlikely(!op))
		return batoni_refuse_full(call, comm);
	op->transfer.location = BATONI_LOCATION_LIST;
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
