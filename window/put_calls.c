/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that enqueue what a channel carries: signals, puts with and without one, gets, and
 * atomic operations.
 *
 * The fast path goes straight to put.c (direct.h): valid arguments, an idle host stream, no
 * other driver.  In all other cases a call first checks all of its own arguments, in the order
 * of the prototype, and then enqueues as a send does (enqueue.c).  What an operation needs
 * beyond its transfer (struct put_more) is filled into pending[slot] before the operation is
 * published.
 *
 * A put without a signal is a put whose signal index is BATONI_NO_SIGNAL.  It has the kind of the
 * other puts, and its place in the same channel.
 */
#include "calls.h"

#include "direct.h"
#include "enqueue.h"
#include "health.h"
#include "log.h"
#include "location.h"
#include "plan.h"
#include "scope.h"

struct put_more {
	const char *call; /* in sentences */
	struct baton_window *window;
	size_t offset; /* of a signal alone: pending.put.more */
	int signal_index; /* or BATONI_NO_SIGNAL */
	enum batoni_task task;
	uint64_t operands[2]; /* of an atomic operation */
};

static enum baton_status
refuse_closing(const char *call)
{
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: the window is being deregistered", call);
}

static inline void
write_pending(struct batoni_rma *rma, uint32_t slot, const struct put_more *put)
{
	struct batoni_pending *pending = &rma->pending[slot];

	pending->put.window = put->window;
	pending->put.offset = put->offset;
	pending->put.signal_index = put->signal_index;
	pending->put.task = (unsigned char)put->task;
	if (put->task >= BATONI_TASK_ADD) {
		pending->put.operands[0] = put->operands[0];
		pending->put.operands[1] = put->operands[1];
	}
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
			return refuse_closing(put->call);
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
	                   a->options ? a->options->user_data : 0, BATONI_SITE);
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

	if (atomic_load(&comm->driving.lost_lower))
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
	static const struct batoni_plan_entry_ops ops = {.replay = replay_put,
	                                                 .forget = forget_put};
	struct recorded_put put = {.more = *more};
	enum baton_status status = BATON_OK;

	batoni_recorded_fill(&put.call, kind, a, bytes);
	if (more->window) {
		atomic_fetch_add(&more->window->planned, 1);
		if (atomic_load(&more->window->closing))
			status = refuse_closing(call);
	}
	if (status == BATON_OK)
		status = batoni_plan_add(call, batoni_plan_recorded(comm), &ops,
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

static enum baton_status
check_window(const char *call, const struct baton_comm *comm,
             const struct baton_window *window, int peer, size_t offset,
             size_t bytes)
{
	size_t there;

	if (!batoni_window_lives(window) || window->rma->comm != comm)
		return batoni_refuse(
			BATON_ERR_INVALID,
			"%s: peer_window %s", call,
			!window                        ? "is NULL"
			: !batoni_window_lives(window) ? "was deregistered"
						       : "is of another "
							 "communicator");
	if (atomic_load(&window->closing))
		return refuse_closing(call);
	there = window->peers[peer].bytes;
	if (offset > there || bytes > there - offset)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: %zu bytes at offset %zu; rank %d's part "
		                     "of the window has %zu bytes",
		                     call, bytes, offset, peer, there);
	return BATON_OK;
}

/* Are the puts carried by a path that is not of this layer? */
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
	unsigned location;
	enum baton_status status;

	if (bytes == 0 || !comm->inspects ||
	    more->window->peers[a->peer].path != BATON_WINDOW_PATH_VMWRITE ||
	    goes_elsewhere(comm, a->peer))
		return BATON_OK;
	status = batoni_location_find(comm, a->buffer, bytes, &location);
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(comm, status);
	if (status != BATON_OK)
		return batoni_refuse_named(more->call, status);
	if (batoni_location_is_host(location))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s: local_buffer %p is memory of a device, and "
	                     "BATON_WINDOW_PATH forces vmwrite, which takes memory "
	                     "of the host; set it to direct or message, or do not "
	                     "set it",
	                     more->call, a->buffer);
}

static enum baton_status
check_buffer(const struct batoni_arguments *a, const struct put_more *more,
             size_t *bytes_p)
{
	size_t size = baton_datatype_size(a->type);

	if (size == 0)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: type is %d; datatypes are 0 to %d",
		                     more->call, (int)a->type,
		                     BATON_DATATYPE_COUNT - 1);
	if (a->count > INT64_MAX / size)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: count is %zu elements of %zu bytes; the "
		                     "product must fit in 63 bits",
		                     more->call, a->count, size);
	if (!a->buffer && a->count)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: local_buffer is NULL with count %zu; "
		                     "NULL is allowed with count 0 only",
		                     more->call, a->count);
	*bytes_p = a->count * size;
	return BATON_OK;
}

static enum baton_status
check_place(const struct baton_comm *comm, const struct batoni_arguments *a,
            const struct put_more *more, bool signals)
{
	return signals ? batoni_check_counter(more->call, comm, a->peer,
	                                      more->signal_index, a->tag)
	               : batoni_check_channel(more->call, comm, a->peer, a->tag);
}

static enum baton_status
check_flags(const char *call, unsigned flags)
{
	if (flags)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: flags is 0x%x; it must be 0", call,
		                     flags);
	return BATON_OK;
}

static enum baton_status
check_put(const struct baton_comm *comm, const struct batoni_arguments *a,
          const struct put_more *more, bool signals, unsigned flags,
          size_t *bytes_p)
{
	enum baton_status status = check_buffer(a, more, bytes_p);

	if (status == BATON_OK)
		status = check_place(comm, a, more, signals);
	if (status == BATON_OK)
		status = check_window(more->call, comm, more->window, a->peer,
		                      more->offset, *bytes_p);
	return status == BATON_OK ? check_flags(more->call, flags) : status;
}

BATONI_ALWAYS_INLINE bool
put_fine(const struct baton_comm *comm, const struct batoni_arguments *a,
         const struct put_more *more, bool signals)
{
	const struct baton_window *window = more->window;
	size_t bytes, there;

	if (!(signals ? batoni_counter_fine(comm, a->peer, more->signal_index,
	                                    a->tag)
	              : batoni_channel_fine(comm, a->peer, a->tag)) ||
	    (unsigned)a->type >= BATON_DATATYPE_COUNT ||
	    a->count > INT64_MAX / 8 || (!a->buffer && a->count) ||
	    !batoni_window_lives(window) ||
	    &window->rma->base != comm->onesided)
		return false;
	bytes = a->count * batoni_datatype_sizes[a->type];
	there = window->peers[a->peer].bytes;
	return more->offset <= there && bytes <= there - more->offset;
}

/* Enqueue a put that the fast path does not take. */
static __attribute__((noinline)) enum baton_status
put_slowly(enum batoni_op_kind kind, struct batoni_arguments *a,
           const struct put_more *more, bool signals, unsigned flags,
           struct baton_comm *comm)
{
	struct baton_op_options room;
	enum baton_status status;
	size_t bytes = 0;

	status = batoni_check_target(more->call, comm, a->stream, false);
	if (status == BATON_OK)
		status = batoni_check_layer(more->call, comm);
	if (status == BATON_OK)
		status = check_put(comm, a, more, signals, flags, &bytes);
	if (status == BATON_OK)
		status = check_source(comm, a, more, bytes);
	if (status == BATON_OK)
		status = batoni_take_options(more->call, &a->options, &room,
		                             false);
	if (status == BATON_OK)
		status = enqueue_put(more->call, kind, comm, a, bytes, more);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

/* Enqueue an operation that moves bytes between a buffer and a window. */
BATONI_ALWAYS_INLINE enum baton_status
enqueue_put_or_get(enum batoni_op_kind kind, struct batoni_arguments *a,
                   const struct put_more *more, bool signals, unsigned flags,
                   struct baton_comm *comm)
{
	if (likely(batoni_is_usual(comm, a->options) && !flags &&
	           put_fine(comm, a, more, signals) &&
	           batoni_location_is_ours(a->buffer, a->count) &&
	           put_directly(kind, a,
	                        a->count * batoni_datatype_sizes[a->type], more,
	                        comm) == BATON_OK))
		return BATON_OK;
	BATONI_KEEP_SITE();
	return put_slowly(kind, a, more, signals, flags, comm);
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
	const struct put_more more = {.call = "baton_put_signal",
	                              .window = peer_window,
	                              .offset = peer_window_offset_bytes,
	                              .signal_index = signal_index};
	struct batoni_arguments a = {local_buffer, count,  type,    peer,
	                             context,      stream, options, request_p};

	return enqueue_put_or_get(BATONI_KIND_PUT, &a, &more, true, flags, comm);
}

enum baton_status
baton_put(const void *local_buffer, size_t count, enum baton_datatype type,
          int peer, struct baton_window *peer_window,
          size_t peer_window_offset_bytes, int context, unsigned flags,
          struct baton_comm *comm, baton_stream stream,
          const struct baton_op_options *options, baton_request *request_p)
{
	const struct put_more more = {.call = "baton_put",
	                              .window = peer_window,
	                              .offset = peer_window_offset_bytes,
	                              .signal_index = BATONI_NO_SIGNAL};
	struct batoni_arguments a = {local_buffer, count,  type,    peer,
	                             context,      stream, options, request_p};

	return enqueue_put_or_get(BATONI_KIND_PUT, &a, &more, false, flags, comm);
}

enum baton_status
baton_get(void *local_buffer, size_t count, enum baton_datatype type, int peer,
          struct baton_window *peer_window, size_t peer_window_offset_bytes,
          int context, unsigned flags, struct baton_comm *comm,
          baton_stream stream, const struct baton_op_options *options,
          baton_request *request_p)
{
	const struct put_more more = {.call = "baton_get",
	                              .window = peer_window,
	                              .offset = peer_window_offset_bytes,
	                              .signal_index = BATONI_NO_SIGNAL,
	                              .task = BATONI_TASK_GET};
	struct batoni_arguments a = {local_buffer, count,  type,    peer,
	                             context,      stream, options, request_p};

	return enqueue_put_or_get(BATONI_KIND_GET, &a, &more, false, flags, comm);
}

/* ---- atomic operations ---- */

/* Does this rank's processor reach the word? */
BATONI_ALWAYS_INLINE bool
word_fine(const struct baton_window *window, int peer, size_t offset)
{
	const struct batoni_window_peer *part = &window->peers[peer];

	return part->path == BATON_WINDOW_PATH_DIRECT && !part->device &&
	       batoni_location_is_host(part->location) &&
	       ((uintptr_t)part->base + offset) % sizeof(uint64_t) == 0;
}

static enum baton_status
check_word(const struct put_more *more, int peer)
{
	const struct batoni_window_peer *part = &more->window->peers[peer];

	if (word_fine(more->window, peer, more->offset))
		return BATON_OK;
	if (part->path == BATON_WINDOW_PATH_DIRECT && !part->device &&
	    batoni_location_is_host(part->location))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: offset %zu is no multiple of 8 bytes from "
		                     "address 0, as the word of an atomic operation "
		                     "must be",
		                     more->call, more->offset);
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s: this rank's processor does not reach rank %d's "
	                     "part of the window, which an atomic operation needs "
	                     "(%s); memory of the host that baton_mem_alloc gives "
	                     "on the same node is reached",
	                     more->call, peer,
	                     part->path == BATON_WINDOW_PATH_DIRECT
	                             ? "it is memory of a device"
	                             : "its path is not BATON_WINDOW_PATH_DIRECT");
}

static enum baton_status
check_result(struct baton_comm *comm, const struct put_more *more,
             const struct batoni_arguments *a)
{
	enum baton_status status;
	unsigned location;

	if (!a->buffer || !comm->inspects)
		return BATON_OK;
	status = batoni_location_find(comm, a->buffer, sizeof(uint64_t), &location);
	if (status == BATON_ERR_CUDA)
		batoni_refuse_device(comm, status);
	if (status != BATON_OK)
		return batoni_refuse_named(more->call, status);
	if (batoni_location_is_host(location))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s: result_p %p is not memory of the host, which the "
	                     "processor writes it to",
	                     more->call, a->buffer);
}

static __attribute__((noinline)) enum baton_status
atomic_slowly(struct batoni_arguments *a, const struct put_more *more,
              unsigned flags, struct baton_comm *comm)
{
	struct baton_op_options room;
	enum baton_status status;

	status = batoni_check_target(more->call, comm, a->stream, false);
	if (status == BATON_OK)
		status = batoni_check_layer(more->call, comm);
	if (status == BATON_OK)
		status = batoni_check_channel(more->call, comm, a->peer, a->tag);
	if (status == BATON_OK)
		status = check_window(more->call, comm, more->window, a->peer,
		                      more->offset, sizeof(uint64_t));
	if (status == BATON_OK)
		status = check_word(more, a->peer);
	if (status == BATON_OK)
		status = check_result(comm, more, a);
	if (status == BATON_OK)
		status = check_flags(more->call, flags);
	if (status == BATON_OK)
		status = batoni_take_options(more->call, &a->options, &room,
		                             false);
	if (status == BATON_OK)
		status = enqueue_put(more->call, BATONI_KIND_ATOMIC, comm, a,
		                     a->count * sizeof(uint64_t), more);
	return status == BATON_OK ? BATON_OK
	                          : batoni_scope_refuse(comm, status);
}

BATONI_ALWAYS_INLINE enum baton_status
atomic(struct batoni_arguments *a, const struct put_more *more, unsigned flags,
       struct baton_comm *comm)
{
	static const uint64_t any;
	struct batoni_arguments word = *a;

	/* The word must lie in the part, whether there is a result or not. */
	word.buffer = &any;
	word.count = 1;
	if (likely(batoni_is_usual(comm, a->options) && !flags &&
	           put_fine(comm, &word, more, false) &&
	           word_fine(more->window, a->peer, more->offset) &&
	           batoni_location_is_ours(a->buffer, a->count) &&
	           put_directly(BATONI_KIND_ATOMIC, a,
	                        a->count * sizeof(uint64_t), more, comm) ==
	                   BATON_OK))
		return BATON_OK;
	BATONI_KEEP_SITE();
	return atomic_slowly(a, more, flags, comm);
}

enum baton_status
baton_fetch_add(uint64_t *result_p, uint64_t value, int peer,
                struct baton_window *peer_window,
                size_t peer_window_offset_bytes, int context, unsigned flags,
                struct baton_comm *comm, baton_stream stream,
                const struct baton_op_options *options,
                baton_request *request_p)
{
	const struct put_more more = {.call = "baton_fetch_add",
	                              .window = peer_window,
	                              .offset = peer_window_offset_bytes,
	                              .signal_index = BATONI_NO_SIGNAL,
	                              .task = BATONI_TASK_ADD,
	                              .operands = {value, 0}};
	struct batoni_arguments a = {result_p, result_p ? 1 : 0,
	                             BATON_UINT64, peer,
	                             context, stream,
	                             options, request_p};

	return atomic(&a, &more, flags, comm);
}

enum baton_status
baton_compare_swap(uint64_t *result_p, uint64_t expected, uint64_t desired,
                   int peer, struct baton_window *peer_window,
                   size_t peer_window_offset_bytes, int context, unsigned flags,
                   struct baton_comm *comm, baton_stream stream,
                   const struct baton_op_options *options,
                   baton_request *request_p)
{
	const struct put_more more = {.call = "baton_compare_swap",
	                              .window = peer_window,
	                              .offset = peer_window_offset_bytes,
	                              .signal_index = BATONI_NO_SIGNAL,
	                              .task = BATONI_TASK_SWAP,
	                              .operands = {expected, desired}};
	struct batoni_arguments a = {result_p, result_p ? 1 : 0,
	                             BATON_UINT64, peer,
	                             context, stream,
	                             options, request_p};

	return atomic(&a, &more, flags, comm);
}

/* ---- signals ---- */

BATONI_ALWAYS_INLINE bool
signal_directly(const struct batoni_arguments *a, const struct put_more *more,
                unsigned flags, struct baton_comm *comm)
{
	return batoni_is_usual(comm, a->options) &&
	       batoni_counter_fine(comm, a->peer, more->signal_index, a->tag) &&
	       !flags &&
	       put_directly(BATONI_KIND_SIGNAL, a, 0, more, comm) == BATON_OK;
}

static enum baton_status
enqueue_signal(struct batoni_arguments *a, const struct put_more *more,
               unsigned flags, struct baton_comm *comm, bool adds_nothing)
{
	const char *call = more->call;
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
	if (status == BATON_OK)
		status = check_flags(call, flags);
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
	const struct put_more more = {.call = "baton_signal",
	                              .signal_index = signal_index};
	struct batoni_arguments a = {NULL,   0,       BATON_UINT8, peer,
	                             context, stream, options,     request_p};

	if (likely(signal_directly(&a, &more, flags, comm)))
		return BATON_OK;
	BATONI_KEEP_SITE();
	return enqueue_signal(&a, &more, flags, comm, false);
}

enum baton_status
baton_signal_add(int peer, int signal_index, int context, uint32_t units,
                 unsigned flags, struct baton_comm *comm, baton_stream stream,
                 const struct baton_op_options *options,
                 baton_request *request_p)
{
	/* The offset of a signal alone is the amount that it adds beyond 1. */
	const struct put_more more = {.call = "baton_signal_add",
	                              .offset = (size_t)units - 1,
	                              .signal_index = signal_index};
	struct batoni_arguments a = {NULL,   0,       BATON_UINT8, peer,
	                             context, stream, options,     request_p};

	if (likely(units > 0 && signal_directly(&a, &more, flags, comm)))
		return BATON_OK;
	BATONI_KEEP_SITE();
	return enqueue_signal(&a, &more, flags, comm, units == 0);
}
