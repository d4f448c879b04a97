/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that enqueue signals, puts and waits.
 *
 * The fast path goes straight to put.c or wait.c (direct.h): valid arguments, an idle
 * host stream, no other driver, and for a wait only one descriptor.  In all other cases a
 * call first checks all of its own arguments, in the order of the prototype, and then
 * enqueues as a send does (enqueue.c).  What an operation needs beyond its transfer is
 * filled into pending[slot] before the record is published.
 */
#include "calls.h"

#include <stdio.h>

#include "direct.h"
#include "engine.h"
#include "health.h"
#include "log.h"
#include "place.h"
#include "plan.h"
#include "scope.h"

enum baton_status
batoni_check_layer(const char *call, const struct baton_comm *comm)
{
	if (!comm->onesided)
		return batoni_refuse_onesided(call, comm);
	return atomic_load(&comm->driving.lost_below) ? batoni_refuse_lost(call) : BATON_OK;
}

/* `where` goes in front of the arguments' names: "", or the descriptor that has them. */
static enum baton_status
check_counter_of(const char *call, const char *where,
                 const struct baton_comm *comm, int peer, int signal_index,
                 int context)
{
	const struct batoni_onesided *layer = comm->onesided;

	if (peer < 0 || peer >= comm->size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %speer is %d; ranks are 0 to %d", call,
		                     where, peer, comm->size - 1);
	if (signal_index < 0 || signal_index >= layer->signals_max)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %ssignal_index is %d; indices are 0 to "
		                     "%d (signals_max)",
		                     call, where, signal_index,
		                     layer->signals_max - 1);
	if (context < 0 || context >= layer->contexts_max)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %scontext is %d; contexts are 0 to %d "
		                     "(contexts_max)",
		                     call, where, context,
		                     layer->contexts_max - 1);
	return BATON_OK;
}

enum baton_status
batoni_check_counter(const char *call, const struct baton_comm *comm, int peer,
                     int signal_index, int context)
{
	return check_counter_of(call, "", comm, peer, signal_index, context);
}

/* The same checks without a message, for the fast path. */
BATONI_ALWAYS_INLINE bool
counter_fine(const struct baton_comm *comm, int peer, int signal_index,
             int context)
{
	const struct batoni_onesided *layer = comm->onesided;

	return layer && (unsigned)peer < (unsigned)comm->size &&
	       (unsigned)signal_index < (unsigned)layer->signals_max &&
	       (unsigned)context < (unsigned)layer->contexts_max;
}

enum baton_status
batoni_refuse_peer_memory(const char *call, int peer)
{
	return batoni_refuse(BATON_ERR_NOMEM,
	                     "%s: no memory for what is kept for rank %d", call,
	                     peer);
}

/* ---- puts and signals --------------------------------------------------- */

struct put_more {
	struct baton_window *window;
	size_t offset; /* of a signal alone: pending.put.more */
	int signal_index;
};

static enum baton_status
refuse_closing(void)
{
	return batoni_refuse(BATON_ERR_INVALID,
	                     "baton_put_signal: the window is being "
	                     "deregistered");
}

static inline void
write_pending(struct batoni_rma *rma, uint32_t slot, const struct put_more *put)
{
	struct batoni_pending *pending = &rma->pending[slot];

	pending->put.window = put->window;
	pending->put.offset = put->offset;
	pending->put.signal_index = put->signal_index;
}

/* After this the window stays: the caller adds to `entering`, then loads `closing`; the thread
 * that deregisters stores `closing`, then loads `entering`. */
static enum baton_status
fill_put(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	const struct put_more *put = more;

	if (put->window) {
		atomic_fetch_add(&put->window->entering, 1);
		if (atomic_load(&put->window->closing)) {
			atomic_fetch_sub(&put->window->entering, 1);
			return refuse_closing();
		}
	}
	write_pending(batoni_rma_from(onesided), slot, put);
	batoni_rma_from(onesided)->pending[slot].put.hosted = false;
	return BATON_OK;
}

static inline bool
goes_by_message(const struct batoni_channel *channel, const struct put_more *put)
{
	return !channel->stores ||
	       (put->window &&
	        (put->window->peers[channel->peer].path &
	         (BATON_WINDOW_PATH_MESSAGE | BATON_WINDOW_PATH_NATIVE)));
}

/* Do the link and wire that the put needs exist?  (link.c) */
static inline bool
is_linked(const struct batoni_rma *rma, int peer, int context,
          const struct put_more *put)
{
	struct batoni_link *link = batoni_link_of(rma, peer);

	return link && (!goes_by_message(&link->channels[context], put) ||
	                batoni_wire_of(&link->channels[context]));
}

/* OK, NOMEM. */
static enum baton_status
make_link(const char *call, struct batoni_rma *rma, int peer, int context,
          const struct put_more *put)
{
	struct batoni_link *link = batoni_link_make(rma, peer);

	if (!link || (goes_by_message(&link->channels[context], put) &&
	              !batoni_wire_make(rma, &link->channels[context])))
		return batoni_refuse_peer_memory(call, peer);
	return BATON_OK;
}

/* OK, or AGAIN: not a case for the fast path.  The arguments have been checked. */
BATONI_ALWAYS_INLINE enum baton_status
put_directly(enum batoni_op_kind kind, const struct batoni_arguments *a,
             size_t bytes, const struct put_more *more, struct baton_comm *comm)
{
	struct batoni_rma *rma = batoni_rma_of(comm);
	struct batoni_op *op;

	if (unlikely(!is_linked(rma, a->peer, a->tag, more)))
		return BATON_ERR_AGAIN;
	op = batoni_direct_begin(comm, a->stream);
	if (unlikely(!op))
		return BATON_ERR_AGAIN;
	/* The lock is held, so `closing` is not set before this put is counted. */
	if (more->window && unlikely(atomic_load_explicit(
				    &more->window->closing,
				    memory_order_relaxed))) {
		batoni_direct_undo(comm, op);
		return BATON_ERR_AGAIN;
	}
	batoni_op_name(op, a->buffer, bytes, a->peer, a->tag);
	batoni_direct_fill(op, comm, kind, BATONI_PATH_ONESIDED, BATONI_PUT,
	                   a->stream, batoni_direct_flags(a->options),
	                   a->options ? a->options->user_data : 0);
	write_pending(rma, op->transfer.slot, more);
	batoni_put_count(rma, &op->transfer);
	batoni_direct_end(op, batoni_put_issue(rma, &op->transfer), a->request_p);
	return BATON_OK;
}

/* ---- plans -------------------------------------------------------------- */

struct recorded_put {
	struct batoni_recorded call;
	struct put_more more;
};

static enum baton_status
replay_put(struct baton_comm *comm, const void *payload)
{
	const struct recorded_put *put = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(&put->call);

	if (atomic_load(&comm->driving.lost_below))
		return batoni_refuse_lost("baton_plan_launch");
	return batoni_enqueue_onesided("baton_plan_launch", put->call.kind, comm,
	                               &a, put->call.bytes, fill_put,
	                               &put->more);
}

static void
forget_put(const void *payload)
{
	const struct recorded_put *put = payload;

	if (put->more.window)
		atomic_fetch_sub(&put->more.window->planned, 1);
}

/* The window stays while the plan names it; as in fill_put. */
static enum baton_status
note_put(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
         const struct batoni_arguments *a, size_t bytes,
         const struct put_more *more)
{
	static const struct batoni_note_ops ops = {.replay = replay_put,
	                                           .forget = forget_put};
	struct recorded_put put = {.more = *more};
	enum baton_status status = BATON_OK;

	batoni_recorded_fill(&put.call, kind, a, bytes);
	if (more->window) {
		atomic_fetch_add(&more->window->planned, 1);
		if (atomic_load(&more->window->closing))
			status = refuse_closing();
	}
	if (status == BATON_OK)
		status = batoni_plan_note(call, batoni_plan_recorded(comm), &ops,
		                          a->stream, &put, sizeof(put), NULL, 0);
	if (status != BATON_OK)
		forget_put(&put);
	return status;
}

static enum baton_status
enqueue_put(const char *call, enum batoni_op_kind kind, struct baton_comm *comm,
            const struct batoni_arguments *a, size_t bytes,
            const struct put_more *more)
{
	enum baton_status status =
		make_link(call, batoni_rma_of(comm), a->peer, a->tag, more);

	if (status != BATON_OK)
		return status;
	status = batoni_enqueue_onesided(call, kind, comm, a, bytes, fill_put,
	                                 more);
	if (unlikely(status == BATONI_RECORDED))
		return note_put(call, kind, comm, a, bytes, more);
	return status;
}

BATONI_ALWAYS_INLINE bool
signal_directly(const struct batoni_arguments *a, const struct put_more *more,
                unsigned flags, struct baton_comm *comm)
{
	return batoni_is_usual(comm, a->options) &&
	       counter_fine(comm, a->peer, more->signal_index, a->tag) && !flags &&
	       put_directly(BATONI_KIND_SIGNAL, a, 0, more, comm) == BATON_OK;
}

static enum baton_status
enqueue_signal(const char *call, struct batoni_arguments *a,
               const struct put_more *more, unsigned flags,
               struct baton_comm *comm, bool adds_nothing)
{
	struct baton_op_options room;
	enum baton_status status = batoni_check_target(call, comm, a->stream, false);

	if (status == BATON_OK)
		status = batoni_check_layer(call, comm);
	if (status == BATON_OK)
		status = batoni_check_counter(call, comm, a->peer,
		                              more->signal_index, a->tag);
	if (status == BATON_OK && adds_nothing)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "%s: units is 0; it must be at least 1",
		                       call);
	if (status == BATON_OK && flags)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "%s: flags is 0x%x; it must be 0", call,
		                       flags);
	if (status == BATON_OK)
		status = batoni_take_options(call, &a->options, &room, false);
	if (status == BATON_OK)
		status = enqueue_put(call, BATONI_KIND_SIGNAL, comm, a, 0, more);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

enum baton_status
baton_signal(int peer, int signal_index, int context, unsigned flags,
             struct baton_comm *comm, baton_stream stream,
             const struct baton_op_options *options, baton_request *request_p)
{
	const struct put_more more = {NULL, 0, signal_index};
	struct batoni_arguments a = {NULL,   0,       BATON_UINT8, peer,
	                             context, stream, options,     request_p};

	if (likely(signal_directly(&a, &more, flags, comm)))
		return BATON_OK;
	return enqueue_signal("baton_signal", &a, &more, flags, comm, false);
}

enum baton_status
baton_signal_add(int peer, int signal_index, int context, uint32_t units,
                 unsigned flags, struct baton_comm *comm, baton_stream stream,
                 const struct baton_op_options *options,
                 baton_request *request_p)
{
	/* In the place of an offset: what it adds beyond 1. */
	const struct put_more more = {NULL, (size_t)units - 1, signal_index};
	struct batoni_arguments a = {NULL,   0,       BATON_UINT8, peer,
	                             context, stream, options,     request_p};

	if (likely(units > 0 && signal_directly(&a, &more, flags, comm)))
		return BATON_OK;
	return enqueue_signal("baton_signal_add", &a, &more, flags, comm,
	                      units == 0);
}

static enum baton_status
check_window(const struct baton_comm *comm, const struct baton_window *window,
             int peer, size_t offset, size_t bytes)
{
	size_t there;

	if (!batoni_window_lives(window) || window->rma->comm != comm)
		return batoni_refuse(
			BATON_ERR_INVALID,
			"baton_put_signal: peer_window %s",
			!window                        ? "is NULL"
			: !batoni_window_lives(window) ? "was deregistered"
						       : "is of another "
							 "communicator");
	if (atomic_load(&window->closing))
		return refuse_closing();
	there = window->peers[peer].bytes;
	if (offset > there || bytes > there - offset)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_put_signal: %zu bytes at offset %zu; "
		                     "rank %d's part of the window has %zu bytes",
		                     bytes, offset, peer, there);
	return BATON_OK;
}

/* Does a path carry the puts that is not of this layer? */
static bool
goes_elsewhere(const struct baton_comm *comm, int peer)
{
	int path = batoni_choose_path(comm, BATONI_KIND_PUT, peer);

	return path != BATONI_PATH_ONESIDED &&
	       (path < 0 || !comm->paths[path]->ops->taking);
}

/* The kernel reads the memory of the host alone.  Where puts may come from a device, vmwrite is a
 * peer's path only if it is forced. */
static enum baton_status
check_source(struct baton_comm *comm, const struct batoni_arguments *a,
             const struct put_more *more, size_t bytes)
{
	unsigned place;
	enum baton_status status;

	if (bytes == 0 || !comm->looks ||
	    more->window->peers[a->peer].path != BATON_WINDOW_PATH_VMWRITE ||
	    goes_elsewhere(comm, a->peer))
		return BATON_OK;
	status = batoni_place_find(comm, a->buffer, bytes, &place);
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(comm, status);
	if (status != BATON_OK)
		return batoni_refuse_named("baton_put_signal", status);
	if (batoni_place_is_host(place))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "baton_put_signal: local_buffer %p is memory of a "
	                     "device, and BATON_WINDOW_PATH forces vmwrite, which "
	                     "takes memory of the host; set it to direct or "
	                     "message, or do not set it",
	                     a->buffer);
}

static enum baton_status
check_put(const struct baton_comm *comm, const struct batoni_arguments *a,
          const struct put_more *more, unsigned flags, size_t *bytes_p)
{
	size_t size = baton_datatype_size(a->type);
	enum baton_status status;

	if (size == 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_put_signal: type is %d; datatypes are "
		                     "0 to %d",
		                     (int)a->type, BATON_DATATYPE_COUNT - 1);
	if (a->count > INT64_MAX / size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_put_signal: count is %zu elements of "
		                     "%zu bytes; the product must fit in 63 bits",
		                     a->count, size);
	if (!a->buffer && a->count)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_put_signal: local_buffer is NULL with "
		                     "count %zu; NULL is allowed with count 0 only",
		                     a->count);
	status = batoni_check_counter("baton_put_signal", comm, a->peer,
	                       more->signal_index, a->tag);
	if (status != BATON_OK)
		return status;
	*bytes_p = a->count * size;
	status = check_window(comm, more->window, a->peer, more->offset,
	                      *bytes_p);
	if (status == BATON_OK && flags)
		status = batoni_refuse(BATON_ERR_INVALID,
		                       "baton_put_signal: flags is 0x%x; it must "
		                       "be 0",
		                       flags);
	return status;
}

BATONI_ALWAYS_INLINE bool
put_fine(const struct baton_comm *comm, const struct batoni_arguments *a,
         const struct put_more *more)
{
	const struct baton_window *window = more->window;
	size_t bytes, there;

	if (!counter_fine(comm, a->peer, more->signal_index, a->tag) ||
	    (unsigned)a->type >= BATON_DATATYPE_COUNT ||
	    a->count > INT64_MAX / 8 || (!a->buffer && a->count) ||
	    !batoni_window_lives(window) ||
	    &window->rma->base != comm->onesided)
		return false;
	bytes = a->count * batoni_datatype_sizes[a->type];
	there = window->peers[a->peer].bytes;
	return more->offset <= there && bytes <= there - more->offset;
}

enum baton_status
baton_put_signal(const void *local_buffer, size_t count,
                 enum baton_datatype type, int peer,
                 struct baton_window *peer_window,
                 size_t peer_window_offset_bytes, int signal_index, int context,
                 unsigned flags, struct baton_comm *comm, baton_stream stream,
                 const struct baton_op_options *options,
                 baton_request *request_p)
{
	const struct put_more more = {peer_window, peer_window_offset_bytes,
	                              signal_index};
	struct batoni_arguments a = {local_buffer, count,  type,    peer,
	                             context,      stream, options, request_p};
	struct baton_op_options room;
	enum baton_status status;
	size_t bytes = 0;

	if (likely(batoni_is_usual(comm, options) && !flags &&
	           put_fine(comm, &a, &more) &&
	           batoni_place_is_ours(local_buffer, count) &&
	           put_directly(BATONI_KIND_PUT, &a,
	                        count * batoni_datatype_sizes[type], &more,
	                        comm) == BATON_OK))
		return BATON_OK;
	status = batoni_check_target("baton_put_signal", comm, stream, false);
	if (status == BATON_OK)
		status = batoni_check_layer("baton_put_signal", comm);
	if (status == BATON_OK)
		status = check_put(comm, &a, &more, flags, &bytes);
	if (status == BATON_OK)
		status = check_source(comm, &a, &more, bytes);
	if (status == BATON_OK)
		status = batoni_take_options("baton_put_signal", &a.options,
		                             &room, false);
	if (status == BATON_OK)
		status = enqueue_put("baton_put_signal", BATONI_KIND_PUT, comm,
		                     &a, bytes, &more);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

/* ---- waits -------------------------------------------------------------- */

struct wait_more {
	size_t desc_count;
	const struct baton_wait_signal_desc *descs;
};

enum baton_status
batoni_refuse_wait(const char *call, const struct batoni_rma *rma,
                   size_t desc_count, enum baton_status status)
{
	const uint32_t most = rma->requests_max + (uint32_t)rma->size;

	if (status == BATON_ERR_AGAIN)
		return batoni_refuse(status,
		                     "%s: all outstanding waits together name more "
		                     "than %u counters (requests_max and one for "
		                     "each rank); let some end",
		                     call, most);
	if (status == BATON_ERR_NOMEM)
		return batoni_refuse(status,
		                     "%s: no memory for what is kept for the ranks "
		                     "that it names",
		                     call);
	if (status == BATON_ERR_INVALID)
		return batoni_refuse(status,
		                     "%s: desc_count is %zu, and they name more "
		                     "counters than all waits may together: %u "
		                     "(requests_max and one for each rank)",
		                     call, desc_count, most);
	return status;
}

static enum baton_status
fill_wait(struct batoni_onesided *onesided, uint32_t slot, const void *more)
{
	struct batoni_rma *rma = batoni_rma_from(onesided);
	const struct wait_more *wait = more;

	return batoni_refuse_wait(
		"baton_wait_signal", rma, wait->desc_count,
		batoni_wait_describe(rma, slot, wait->desc_count, wait->descs));
}

static enum baton_status
check_desc(const char *call, const struct baton_comm *comm, size_t i,
           const struct baton_wait_signal_desc *desc)
{
	enum baton_status status;
	char where[32];

	if (desc->op_count >= 1 &&
	    counter_fine(comm, desc->peer, desc->signal_index, desc->context))
		return BATON_OK;
	snprintf(where, sizeof(where), "descs[%zu].", i);
	status = check_counter_of(call, where, comm, desc->peer,
	                          desc->signal_index, desc->context);
	if (status != BATON_OK)
		return status;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: %sop_count is %d; it must be at least 1", call,
	                     where, desc->op_count);
}

enum baton_status
batoni_check_descs(const char *call, const struct baton_comm *comm,
                   size_t desc_count, const struct baton_wait_signal_desc *descs)
{
	enum baton_status status = BATON_OK;

	if (desc_count < 1 || desc_count > BATON_WAIT_DESCS_MAX || !descs)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: desc_count is %zu%s; it takes 1 to %u "
		                     "descriptors",
		                     call, desc_count, descs ? "" : ", descs NULL",
		                     BATON_WAIT_DESCS_MAX);
	for (size_t i = 0; i < desc_count && status == BATON_OK; i++)
		status = check_desc(call, comm, i, &descs[i]);
	return status;
}

/* OK, or AGAIN: not a case for the fast path. */
BATONI_ALWAYS_INLINE enum baton_status
wait_directly(const struct baton_wait_signal_desc *desc,
              struct baton_comm *comm, baton_stream stream,
              const struct baton_op_options *options, baton_request *request_p)
{
	struct batoni_op *op = batoni_direct_begin(comm, stream);
	enum baton_status status;

	if (unlikely(!op))
		return BATON_ERR_AGAIN;
	batoni_op_name(op, NULL, 0, desc->peer, 0);
	batoni_direct_fill(op, comm, BATONI_KIND_WAIT, BATONI_PATH_ONESIDED,
	                   BATONI_WAIT, stream, batoni_direct_flags(options),
	                   options ? options->user_data : 0);
	status = batoni_wait_issue_one(batoni_rma_of(comm), &op->transfer, desc);
	if (unlikely(status == BATON_ERR_AGAIN)) {
		batoni_direct_undo(comm, op);
		return status;
	}
	batoni_direct_end(op, status, request_p);
	return BATON_OK;
}

static enum baton_status
replay_wait(struct baton_comm *comm, const void *payload)
{
	const struct batoni_recorded *recorded = payload;
	const struct batoni_arguments a = batoni_recorded_arguments(recorded);
	const struct wait_more more = {
		.desc_count = recorded->a.count,
		.descs = batoni_note_more(payload, sizeof(*recorded)),
	};
	struct batoni_arguments none = a;

	none.count = 0;
	if (atomic_load(&comm->driving.lost_below))
		return batoni_refuse_lost("baton_plan_launch");
	return batoni_enqueue_onesided("baton_plan_launch", BATONI_KIND_WAIT,
	                               comm, &none, 0, fill_wait, &more);
}

/* The plan keeps the number of descriptors as the count. */
static enum baton_status
note_wait(struct baton_comm *comm, const struct batoni_arguments *a,
          const struct wait_more *more)
{
	static const struct batoni_note_ops ops = {.replay = replay_wait};
	struct batoni_recorded recorded;

	batoni_recorded_fill(&recorded, BATONI_KIND_WAIT, a, 0);
	recorded.a.count = more->desc_count;
	return batoni_plan_note("baton_wait_signal", batoni_plan_recorded(comm),
	                        &ops, a->stream, &recorded, sizeof(recorded),
	                        more->descs,
	                        more->desc_count * sizeof(*more->descs));
}

int
batoni_common_peer(size_t desc_count, const struct baton_wait_signal_desc *descs)
{
	for (size_t i = 1; i < desc_count; i++) {
		if (descs[i].peer != descs[0].peer)
			return -1;
	}
	return descs[0].peer;
}

enum baton_status
baton_wait_signal(size_t desc_count, const struct baton_wait_signal_desc *descs,
                  struct baton_comm *comm, baton_stream stream,
                  const struct baton_op_options *options,
                  baton_request *request_p)
{
	const struct wait_more more = {desc_count, descs};
	struct batoni_arguments a = {.type = BATON_UINT8,
	                             .stream = stream,
	                             .options = options,
	                             .request_p = request_p};
	struct baton_op_options room;
	enum baton_status status;

	if (likely(batoni_is_usual(comm, options) && desc_count == 1 && descs &&
	           counter_fine(comm, descs->peer, descs->signal_index,
	                        descs->context) &&
	           descs->op_count >= 1 &&
	           wait_directly(descs, comm, stream, options, request_p) ==
	                   BATON_OK))
		return BATON_OK;
	status = batoni_check_target("baton_wait_signal", comm, stream, false);
	if (status == BATON_OK)
		status = batoni_check_layer("baton_wait_signal", comm);
	if (status == BATON_OK)
		status = batoni_check_descs("baton_wait_signal", comm,
		                            desc_count, descs);
	if (status == BATON_OK)
		status = batoni_take_options("baton_wait_signal", &a.options,
		                             &room, false);
	if (status == BATON_OK) {
		a.peer = batoni_common_peer(desc_count, descs);
		status = batoni_enqueue_onesided("baton_wait_signal",
		                                 BATONI_KIND_WAIT, comm, &a, 0,
		                                 fill_wait, &more);
	}
	if (unlikely(status == BATONI_RECORDED))
		status = note_wait(comm, &a, &more);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}
