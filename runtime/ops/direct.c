/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baton_send and baton_recv.  The usual call takes the fast path to the transport
 * (direct.h); all others go through batoni_enqueue.
 */
#include "direct.h"

#include "enqueue.h"
#include "line.h"
#include "location.h"

/* Does the receive name a peer, or any, and a tag, or any, whose paths are connected and tell what has come? */
static bool
may_look_for(struct baton_comm *comm, int peer, int tag)
{
	uint8_t path;

	if ((tag != BATON_ANY_TAG && (unsigned)tag > (unsigned)comm->tag_max) ||
	    (peer != BATON_ANY_SOURCE && (unsigned)peer >= (unsigned)comm->size))
		return false;
	if (peer == BATON_ANY_SOURCE)
		return atomic_load_explicit(&comm->any_ready,
		                            memory_order_acquire);
	path = batoni_message_path(comm, peer);
	return path != BATONI_PATH_NONE &&
	       comm->paths[path]->ops->unmatched;
}

/* A receive from any rank or of any tag, on an idle host stream: it meets what has come, or waits in a line.
 * False: it was not begun. */
static bool
enqueue_any(const void *buffer, size_t count, enum baton_datatype type, int peer,
            int tag, struct baton_comm *comm, baton_stream stream,
            const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_op *op;
	uint8_t path;
	int rank;

	if (!batoni_is_usual(comm, options) || !request_p || !buffer ||
	    (unsigned)type >= BATON_DATATYPE_COUNT || count > INT64_MAX / 8 ||
	    !may_look_for(comm, peer, tag) ||
	    !batoni_location_is_ours(buffer, count) ||
	    !(op = batoni_direct_begin(comm, stream)))
		return false;
	rank = batoni_line_find(comm, peer, &tag);
	path = batoni_message_path(comm, rank >= 0 ? rank : peer < 0 ? 0 : peer);
	batoni_op_name(op, buffer, count * batoni_datatype_sizes[type],
	               rank < 0 ? peer : rank, tag);
	batoni_direct_fill(op, comm, BATONI_KIND_RECV, path, BATONI_RECV, stream,
	                   batoni_direct_flags(options),
	                   options ? options->user_data : 0, batoni_thread.site);
	if (rank >= 0) {
		batoni_direct_end(op,
		                  batoni_path_issue(comm->paths[path],
		                                    &op->transfer),
		                  request_p);
		return true;
	}
	*request_p = batoni_op_handle(
		op, atomic_load_explicit(&op->word, memory_order_relaxed));
	batoni_op_enter(op, BATONI_ARMED);
	batoni_direct_keep(op, BATON_PENDING, BATONI_OP_HANDLE);
	batoni_line_put(op);
	batoni_end_enqueue();
	return true;
}

/* The slow path: for refusals, groups, calls beside another driver, asynchronous devices. */
static __attribute__((noinline)) enum baton_status
enqueue_slowly(enum batoni_op_kind kind, const void *buffer, size_t count,
               enum baton_datatype type, int peer, int tag,
               struct baton_comm *comm, baton_stream stream,
               const struct baton_op_options *options,
               baton_request *request_p)
{
	struct batoni_arguments a = {buffer, count,  type,    peer,
	                             tag,    stream, options, request_p};

	if ((peer == BATON_ANY_SOURCE || tag == BATON_ANY_TAG) &&
	    kind == BATONI_KIND_RECV &&
	    enqueue_any(buffer, count, type, peer, tag, comm, stream, options,
	                request_p))
		return BATON_OK;

	return batoni_enqueue(kind == BATONI_KIND_SEND ? "baton_send"
	                                               : "baton_recv",
	                      kind, comm, &a);
}

BATONI_ALWAYS_INLINE bool
is_usual(const struct baton_comm *comm, const void *buffer, size_t count,
         enum baton_datatype type, int peer, int tag,
         const struct baton_op_options *options)
{
	return likely(batoni_is_usual(comm, options) &&
	              (unsigned)type < BATON_DATATYPE_COUNT &&
	              (unsigned)peer < (unsigned)comm->size &&
	              (unsigned)tag <= (unsigned)comm->tag_max &&
	              buffer && count <= INT64_MAX / 8);
}

BATONI_ALWAYS_INLINE enum baton_status
enqueue(enum batoni_op_kind kind, const void *buffer, size_t count,
        enum baton_datatype type, int peer, int tag, struct baton_comm *comm,
        baton_stream stream, const struct baton_op_options *options,
        baton_request *request_p)
{
	struct batoni_op *op;
	uint8_t path;

	if (unlikely(!is_usual(comm, buffer, count, type, peer, tag,
	                       options) ||
	             (path = batoni_message_path(comm, peer)) ==
	                     BATONI_PATH_NONE ||
	             !request_p || !batoni_location_is_ours(buffer, count) ||
	             !(op = batoni_direct_begin(comm, stream)))) {
		BATONI_KEEP_SITE();
		return enqueue_slowly(kind, buffer, count, type, peer, tag,
		                      comm, stream, options, request_p);
	}
	batoni_op_name(op, buffer, count * batoni_datatype_sizes[type], peer, tag);
	batoni_direct_fill(op, comm, kind, path,
	                   kind == BATONI_KIND_SEND ? BATONI_SEND : BATONI_RECV,
	                   stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0, BATONI_SITE);
	batoni_direct_end(op, batoni_path_issue(comm->paths[path], &op->transfer),
	                  request_p);
	return BATON_OK;
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
