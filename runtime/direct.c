/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baton_send and baton_recv, the usual way: on a host stream that is idle, with
 * nothing before it in its FIFO and nobody else driving, an operation goes from
 * the call straight to the transport.  Everything else, refusals included, is
 * batoni_enqueue's (enqueue.c), which does all of this in general; here it is
 * unfolded, because a small message has 20 ns for both its ends.
 *
 * An operation that ends within issue was never on its stream, never counted, and
 * nobody has seen it: its word is written once, by a plain store.
 */
#include "core.h"

static inline bool
is_usual(const struct baton_comm *comm, const struct batoni_arguments *a)
{
	const struct baton_op_options *options = a->options;

	return likely(comm && comm->plain && batoni_may_call() &&
	              !batoni_thread.groups &&
	              atomic_load_explicit(&comm->status,
	                                   memory_order_relaxed) == BATON_OK &&
	              (unsigned)a->type < BATON_DATATYPE_COUNT &&
	              (unsigned)a->peer < (unsigned)comm->size &&
	              (unsigned)a->tag <= (unsigned)comm->tag_max &&
	              a->buffer && a->count <= INT64_MAX / 8 && a->request_p &&
	              (!options || (options->size == sizeof(*options) &&
	                            !(options->flags & ~BATON_OP_DETACHED) &&
	                            options->timeout_ns == 0 &&
	                            !options->queue)));
}

/* With the driver's lock: a record, if it can be issued here and now. */
static inline struct batoni_op *
take(struct baton_comm *comm, baton_stream stream)
{
	const struct batoni_engine *e = &batoni_engine;

	if (unlikely(atomic_load_explicit(&e->inbox, memory_order_relaxed) ||
	             comm->fifos.live != 0 || comm->breaking != BATON_OK ||
	             !comm->any_drives ||
	             comm->device_ops->stream_idle(comm->device, stream) !=
	                     BATON_OK))
		return NULL;
	return batoni_pool_take_driving(&comm->pool);
}

static inline void
fill(struct batoni_op *op, enum batoni_op_kind kind, struct baton_comm *comm,
     const struct batoni_arguments *a)
{
	bool detached = a->options && a->options->flags;
	uint32_t slot = batoni_pool_slot(&comm->pool, op);

	op->comm = comm;
	/* A send's buffer is only read. */
	op->transfer.buffer = (void *)(uintptr_t)a->buffer;
	op->transfer.bytes = a->count * batoni_datatype_sizes[a->type];
	op->transfer.done_bytes = 0;
	op->transfer.stream = a->stream;
	op->transfer.native_call = NULL;
	op->transfer.peer = a->peer;
	op->transfer.tag = a->tag;
	op->transfer.slot = slot & 0xffffffu;
	op->transfer.direction =
		kind == BATONI_KIND_SEND ? BATONI_SEND : BATONI_RECV;
	op->item.next = NULL;
	op->item.reached = batoni_reached_inline;
	op->item.word = detached ? NULL : &comm->pool.words[slot];
	op->item.value = comm->pool.values[slot];
	op->item.flags = BATONI_ITEM_PASSED;
	op->kind = (uint8_t)kind;
	op->state = BATONI_ISSUED;
	op->flags = BATONI_FLAG_REACHED |
	            (detached ? BATONI_FLAG_DETACHED : 0u);
	op->user_data = a->options ? a->options->user_data : 0;
	op->timeout_ns = 0;
	op->queue = NULL;
	op->group_of = NULL;
}

static inline baton_request
issue(struct batoni_op *op)
{
	struct baton_comm *comm = op->comm;
	uint64_t word = atomic_load_explicit(&op->word, memory_order_relaxed);
	baton_request handle = batoni_op_handle(op, word);
	enum baton_status status =
		comm->transport_ops->issue(comm->transport, &op->transfer);

	op->status = status;
	if (status == BATON_OK) {
		op->state = BATONI_ENDED;
		word |= BATONI_OP_HANDLE | BATONI_OP_DONE;
		atomic_store_explicit(&op->word, word, memory_order_release);
		return handle;
	}
	word |= BATONI_OP_HANDLE | BATONI_OP_ENGINE | BATONI_OP_STREAM;
	atomic_store_explicit(&op->word, word, memory_order_release);
	batoni_op_place_direct(op);
	if (unlikely(status != BATON_PENDING))
		batoni_op_complete(op, status);
	return handle;
}

static inline __attribute__((always_inline)) enum baton_status
enqueue(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
        const struct batoni_arguments *a)
{
	struct batoni_op *op;

	if (is_usual(comm, a) &&
	    likely(comm->device_ops->stream_check(comm->device, a->stream,
	                                          false) == BATON_OK) &&
	    likely(batoni_try())) {
		op = take(comm, a->stream);
		if (likely(op != NULL)) {
			fill(op, kind, comm, a);
			*a->request_p = issue(op);
			batoni_leave_enqueue();
			return BATON_OK;
		}
		batoni_leave();
	}
	return batoni_enqueue(call, kind, comm, a);
}

enum baton_status
baton_send(const void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p)
{
	const struct batoni_arguments a = {buffer, count,  type,    peer,
	                                   tag,    stream, options, request_p};

	return enqueue("baton_send", BATONI_KIND_SEND, comm, &a);
}

enum baton_status
baton_recv(void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p)
{
	const struct batoni_arguments a = {buffer, count,  type,    peer,
	                                   tag,    stream, options, request_p};

	return enqueue("baton_recv", BATONI_KIND_RECV, comm, &a);
}
