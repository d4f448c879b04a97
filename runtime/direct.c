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

/* Arguments travel as scalars here: a struct would be stored and loaded again. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE bool
is_usual(const struct baton_comm *comm, const void *buffer, size_t count,
         enum baton_datatype type, int peer, int tag,
         const struct baton_op_options *options,
         const baton_request *request_p)
{
	return likely(comm && comm->plain && batoni_may_call() &&
	              !batoni_thread.groups &&
	              atomic_load_explicit(&comm->status,
	                                   memory_order_relaxed) == BATON_OK &&
	              (unsigned)type < BATON_DATATYPE_COUNT &&
	              (unsigned)peer < (unsigned)comm->size &&
	              (unsigned)tag <= (unsigned)comm->tag_max &&
	              buffer && count <= INT64_MAX / 8 && request_p &&
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

ALWAYS_INLINE void
fill(struct batoni_op *op, enum batoni_op_kind kind, struct baton_comm *comm,
     baton_stream stream, const struct baton_op_options *options)
{
	bool detached = options && options->flags;
	uint32_t slot = batoni_pool_slot(&comm->pool, op);

	op->comm = comm;
	op->transfer.done_bytes = 0;
	op->transfer.stream = stream;
	op->transfer.native_call = NULL;
	op->transfer.slot_direction =
		slot | (kind == BATONI_KIND_SEND ? BATONI_SEND << 24
	                                         : BATONI_RECV << 24);
	op->item.next = NULL;
	op->item.reached = batoni_reached_inline;
	op->item.word = detached ? NULL : &comm->pool.words[slot];
	op->item.value = comm->pool.values[slot];
	op->item.flags = BATONI_ITEM_PASSED;
	op->kind = (uint8_t)kind;
	op->state = BATONI_ISSUED;
	op->flags = BATONI_FLAG_REACHED |
	            (detached ? BATONI_FLAG_DETACHED : 0u);
	op->user_data = options ? options->user_data : 0;
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

/* The unusual: refusals, groups, another driver, another kind of device. */
static __attribute__((noinline)) enum baton_status
enqueue_slowly(enum batoni_op_kind kind, const void *buffer, size_t count,
               enum baton_datatype type, int peer, int tag,
               struct baton_comm *comm, baton_stream stream,
               const struct baton_op_options *options,
               baton_request *request_p)
{
	const struct batoni_arguments a = {buffer, count,  type,    peer,
	                                   tag,    stream, options, request_p};

	return batoni_enqueue(kind == BATONI_KIND_SEND ? "baton_send"
	                                               : "baton_recv",
	                      kind, comm, &a);
}

ALWAYS_INLINE enum baton_status
enqueue(enum batoni_op_kind kind, const void *buffer, size_t count,
        enum baton_datatype type, int peer, int tag, struct baton_comm *comm,
        baton_stream stream, const struct baton_op_options *options,
        baton_request *request_p)
{
	struct batoni_op *op;

	if (is_usual(comm, buffer, count, type, peer, tag, options,
	             request_p) &&
	    likely(comm->device_ops->stream_check(comm->device, stream,
	                                          false) == BATON_OK) &&
	    likely(batoni_try())) {
		op = take(comm, stream);
		if (likely(op != NULL)) {
			/* A send's buffer is only read. */
			op->transfer.buffer = (void *)(uintptr_t)buffer;
			op->transfer.bytes =
				count * batoni_datatype_sizes[type];
			op->transfer.peer = peer;
			op->transfer.tag = tag;
			fill(op, kind, comm, stream, options);
			*request_p = issue(op);
			batoni_leave_enqueue();
			return BATON_OK;
		}
		batoni_leave();
	}
	return enqueue_slowly(kind, buffer, count, type, peer, tag, comm,
	                      stream, options, request_p);
}

enum baton_status
baton_send(const void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p)
{
	return enqueue(BATONI_KIND_SEND, buffer, count, type, peer, tag, comm,
	               stream, options, request_p);
}

enum baton_status
baton_recv(void *buffer, size_t count, enum baton_datatype type, int peer,
           int tag, struct baton_comm *comm, baton_stream stream,
           const struct baton_op_options *options, baton_request *request_p)
{
	return enqueue(BATONI_KIND_RECV, buffer, count, type, peer, tag, comm,
	               stream, options, request_p);
}
