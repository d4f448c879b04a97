/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks, operations, and publishing; enqueuing threads. */
#ifndef BATONI_ENQUEUE_H
#define BATONI_ENQUEUE_H

#include "core.h"
#include "engine.h"
#include "kinds.h"

/* An operation with its common fields set, or NULL when the pool is empty. */
struct batoni_op *batoni_op_new(struct baton_comm *comm,
                                enum batoni_op_kind kind, baton_stream stream,
                                uint64_t holders);
/* Hand over a complete operation: place it at once, or push it to the inbox. */
void batoni_publish(struct batoni_op *op);
/* The same for several, linked by `next`, which no other operation comes between; in-engine devices
 * only. */
void batoni_publish_chain(struct batoni_op *first);
/* Put one operation, in no group, on its asynchronous stream; under the order lock.  The caller
 * publishes it. */
enum baton_status batoni_op_put(struct batoni_op *op);
/* Around what hands transfers to stream-issued paths: takes comm->order.lock, and keeps the
 * paths from being aborted.  OK, or the status of the communicator, which has broken; then
 * there is nothing to end. */
enum baton_status batoni_enqueuing_begin(struct baton_comm *comm);
void batoni_enqueuing_end(struct baton_comm *comm);
/* Break the communicator from an enqueuing thread. */
void batoni_break_halfway(struct baton_comm *comm, enum baton_status status,
                          const char *why);
/* False: its path does not take it, and it is the one-sided layer's from here on (path.h).  Under
 * the order lock, before anything is on a stream for it.  alone: in no group, and not detached. */
bool batoni_path_takes(struct batoni_op *op, bool alone);
/* Hand those transfers of a list (group_next) that have this stream-issued path to it; as
 * detached ones they follow all streams that the list names.  The caller publishes them
 * afterwards, between the two above.  OK; anything else: nothing was
 * enqueued, or the communicator breaks. */
enum baton_status batoni_enqueue_on_path(struct baton_comm *comm, unsigned index,
                                         struct batoni_op *first, bool detached);
/* The arguments of a send or receive. */
struct batoni_arguments {
	const void *buffer;
	size_t count;
	enum baton_datatype type;
	int peer, tag;
	baton_stream stream;
	const struct baton_op_options *options;
	baton_request *request_p;
};

/* What a plan keeps of a call. */
struct batoni_recorded {
	enum batoni_op_kind kind;
	bool optioned; /* has the call options? */
	struct batoni_arguments a; /* but for the options */
	struct baton_op_options options;
	size_t bytes;
};
void batoni_recorded_fill(struct batoni_recorded *recorded,
                          enum batoni_op_kind kind,
                          const struct batoni_arguments *a, size_t bytes);
/* The arguments, with the options where they are now. */
static inline struct batoni_arguments
batoni_recorded_arguments(const struct batoni_recorded *recorded)
{
	struct batoni_arguments a = recorded->a;

	a.options = recorded->optioned ? &recorded->options : NULL;
	return a;
}

/* Any send or receive, with all checks.  It may change a->options. */
enum baton_status batoni_enqueue(const char *call, enum batoni_op_kind kind,
                                 struct baton_comm *comm,
                                 struct batoni_arguments *a);
/* Any send or receive of a list, which is a->buffer; the caller has checked all but the
 * peer and the tag.  a->count is the bytes, of a type of 1.  Anything but OK: the list is
 * still the caller's. */
enum baton_status batoni_enqueue_list(const char *call, enum batoni_op_kind kind,
                                      struct baton_comm *comm,
                                      const struct batoni_arguments *a);
/* Any receive of a message that a probe has found, of which the caller has taken `claim` (core/claim.h) and names
 * peer and tag.  list: a->buffer is one, which the caller has described.  Anything but OK: the claim is the program's
 * again. */
enum baton_status batoni_enqueue_claim(const char *call, struct batoni_op *claim,
                                       const struct batoni_arguments *a,
                                       size_t bytes, bool list);
/* The message that a probe has found, for a call that receives it; anything but OK: the call is refused (probe.c). */
enum baton_status batoni_take_claim(const char *call, struct baton_comm *comm,
                                    baton_message message,
                                    struct batoni_op **claim_p);
/* The path of messages of this peer, for a call that asks what has come (-1: of any peer; then the first).  -1: the
 * call is refused with *status_p. */
int batoni_find_telling_path(const char *call, struct baton_comm *comm, int peer,
                             enum baton_status *status_p);
/* The checks of a receive's count and type, and what it may take. */
enum baton_status batoni_check_buffer(const char *call,
                                      const struct baton_comm *comm,
                                      const struct batoni_arguments *a,
                                      size_t *bytes_p);
/* Any one-sided operation; the caller has checked its own arguments and the options.  a->tag is the
 * context.  `fill` gives the one-sided layer, by slot, what it needs beyond the transfer.
 * It returns OK, or the refusal, and then it keeps nothing.  The layer's slot `forget`
 * undoes it if the call is refused later. */
enum baton_status
batoni_enqueue_onesided(const char *call, enum batoni_op_kind kind,
                        struct baton_comm *comm,
                        const struct batoni_arguments *a, size_t bytes,
                        enum baton_status (*fill)(struct batoni_onesided *onesided,
                                                  uint32_t slot,
                                                  const void *more),
                        const void *more);

/* The fields of a transfer that its call names. */
static inline void
batoni_op_name(struct batoni_op *op, const void *buffer, size_t bytes, int peer,
               int tag)
{
	/* The cast takes const away: a send only reads its buffer. */
	op->transfer.buffer = (void *)(uintptr_t)buffer;
	op->transfer.bytes = bytes;
	batoni_set(op->transfer.peer, peer);
	batoni_set(op->transfer.tag, tag);
}

/* The operation was not placed: the one-sided layer drops what it keeps for it. */
static inline void
batoni_forget_described(struct batoni_op *op)
{
	struct batoni_onesided *layer = op->comm->onesided;

	if (batoni_is_onesided_kind(op->kind))
		layer->ops->forget(layer, &op->transfer);
}

/* An enqueuer releases the driver lock. */
static inline void
batoni_end_enqueue(void)
{
	const struct batoni_engine *e = &batoni_engine;

	if (unlikely(e->finish || e->ready || e->deferred))
		batoni_end_and_issue();
	batoni_unlock();
}

/* What a call of a path that calls a library puts on a stream beside the marks of its transfers: a
 * kernel, an edge or two.  One half goes with the first mark before it, the other with the first
 * behind it.  Other marks are one entry each. */
#define BATONI_CALL_ENTRIES 3u
/* Publish one complete operation, on any kind of device. */
enum baton_status batoni_publish_record(struct batoni_op *op);
/* Set the fields of an operation that the options say.  OK, or the refusal. */
enum baton_status batoni_apply_options(struct batoni_op *op,
                                       const struct baton_op_options *options);
/* The program's struct is of this library's version and asks for nothing unknown; usual: nor for
 * a deadline or a queue.  One test; nothing behind the size is read of a shorter struct. */
static inline bool
batoni_options_are_ours(const struct baton_op_options *options, bool usual)
{
	const uint64_t *more = options->reserved_more;

	return options->size == sizeof(*options) &&
	       !((options->flags & ~BATON_OP_DETACHED) | options->reserved |
	         more[0] | more[1] | more[2] |
	         (usual ? (uint64_t)options->timeout_ns |
	                          (uintptr_t)options->queue
	                : 0));
}

/* Check the options of a call, NULL too, and have them point to what the rest of it may read:
 * the program's own, or *room, if its struct is older or later than ours.  INVALID. */
enum baton_status
batoni_take_options(const char *call, const struct baton_op_options **options_p,
                    struct baton_op_options *room, bool record);
enum baton_status batoni_refuse_full(const char *call,
                                     const struct baton_comm *comm);
/* Return a slot to the pool when its call is refused late; returns status. */
enum baton_status batoni_unmake(struct batoni_op *op,
                                enum baton_status status);
/* The device does not take an item: returns status, with a sentence. */
enum baton_status batoni_refuse_device(struct baton_comm *comm,
                                       enum baton_status status);
/* The `reached` of items: inline on the driver, posted on a thread of the device. */
void batoni_reached_inline(struct batoni_stream_item *item);
void batoni_reached_posted(struct batoni_stream_item *item);
/* The check of a stream that a call names, of the device's table: a stream of another device does
 * not get there.  Returns as stream_check. */
enum baton_status batoni_stream_check(const struct baton_comm *comm,
                                      baton_stream stream, bool launching);
/* Checks that all enqueuing calls share: of the caller and the communicator; of the stream
 * too. */
enum baton_status batoni_check_comm(const char *call,
                                    const struct baton_comm *comm);
enum baton_status batoni_check_target(const char *call,
                                      const struct baton_comm *comm,
                                      baton_stream stream, bool launching);

#endif
