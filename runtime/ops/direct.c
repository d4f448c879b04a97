/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * baton_send and baton_recv.  The usual call takes the fast path to the transport
 * (direct.h); all others go through batoni_enqueue.
 */
#include "direct.h"

#include "enqueue.h"
#include "place.h"

/* For refusals, groups, calls beside another driver, asynchronous devices. */
static __attribute__((noinline)) enum baton_status
enqueue_slowly(enum batoni_op_kind kind, const void *buffer, size_t count,
               enum baton_datatype type, int peer, int tag,
               struct baton_comm *comm, baton_stream stream,
               const struct baton_op_options *options,
               baton_request *request_p)
{
	struct batoni_arguments a = {buffer, count,  type,    peer,
	                             tag,    stream, options, request_p};

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
	             !request_p || !batoni_place_is_ours(buffer, count) ||
	             !(op = batoni_direct_begin(comm, stream))))
		return enqueue_slowly(kind, buffer, count, type, peer, tag,
		                      comm, stream, options, request_p);
	batoni_op_name(op, buffer, count * batoni_datatype_sizes[type], peer, tag);
	batoni_direct_fill(op, comm, kind, path,
	                   kind == BATONI_KIND_SEND ? BATONI_SEND : BATONI_RECV,
	                   stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0);
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
