/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals by messages: the path to ranks whose memory cannot be reached.
 * Both ends are here; the driver alone is.
 *
 * On the wire.  Each put or signal is one header, on the header tag of its
 * context.  A payload that fits behind the header travels in the same message; a
 * longer one follows from the user's buffer on the payload tag of the context, and
 * is received where it belongs, so that nothing is copied twice and the transport
 * alone knows how long a message can be.
 *
 * The sender has lanes.  A lane holds one put from the hand-over until the transport
 * has let go of both of its messages: `parts` counts those, and the hand-over itself,
 * so that a message which ends while the other is issued does not end the lane.  There
 * is a pool of them, with room for short payloads, and one without it for each channel,
 * used when the pool is empty: puts that one peer does not receive hold up no other.
 *
 * The target has a source for each (peer, context), with one receive at the transport
 * at a time: the header's, then, if there is a payload of its own, the payload's, then
 * the next header's.  The counter goes up when the data is in its place, and only then
 * is the next header asked for.  Messages of one tag arrive in their order, hence so
 * are they applied; a long payload holds up its own (peer, context) alone.
 *
 * Why the data is seen with the signal.  What is copied here, and what a receive that
 * has ended has written, comes before batoni_counter_add in this thread, and that is a
 * release; who reads the counter by an acquire load sees all of it.  (The driver's lock
 * does the same from one driver to the next.)
 *
 * message_done runs within the transport, which must not be called from there, and a
 * receive may also end in issue.  Either way the source is only noted in `ended`, and
 * batoni_messages_test goes on with it: there is no recursion, whatever has piled up.
 * Each thing noted counts in base.pending and base.moving, and has the communicator
 * looked at, which may have nothing else to do.
 *
 * Where a message ends only when it is received (a quiet transport), receives are
 * posted from the start: a rank can be signaled that never asks for signals.
 *
 * Leaving.  A destroy first drains: this rank's messages are sent, and those of other
 * ranks are received as before.  Only when all ranks have left the transport are the
 * receives taken back.  A destroy that ends in TIMEOUT or INVALID before that has
 * changed nothing.
 *
 * `lent` counts what is at the transport, which is closed before this is.  Memory that
 * a library below may still write to when the communicator was aborted is kept for
 * good; a transport whose bytes move only by calls of this process writes no more.
 *
 * A window whose communicator is broken goes while payloads may be on their way into
 * it (batoni_messages_let_go).  From then on this rank is deaf: nothing that arrives
 * is applied.  The receives into that window are taken back; a copy that cannot be is
 * run to its end where calls of this process move it.  Otherwise the receive stays,
 * and whoever owns the memory has to keep it mapped.  On the sender's side a put that
 * ends early stays lent until the transport has let go of both messages, as a send
 * does.
 */
#include "message.h"

#include <stdatomic.h>
#include <string.h>

#include "log.h"
#include "mem.h"

/* Messages that one test applies: each may copy 16 KiB in the transport. */
#define EVENTS_MAX (BATONI_PUT_SLICE_MAX / BATONI_PUT_INLINE_MAX)

/* Those that a transport may still write to; only added to, by any thread. */
static _Atomic(struct batoni_messages *) kept;

/* ---- opening ---- */

static void
free_messages(struct batoni_messages *messages)
{
	batoni_free(messages->lanes);
	batoni_free(messages->sources);
	batoni_free(messages->buffers);
	batoni_free(messages->sent);
	batoni_free(messages->applied);
	batoni_free(messages);
}

enum baton_status
batoni_messages_open(struct batoni_rma *rma)
{
	struct batoni_messages *messages = batoni_alloc(1, sizeof(*messages));
	size_t size = (size_t)rma->size;

	if (!messages)
		return BATON_ERR_NOMEM;
	messages->count = (uint32_t)rma->size * (uint32_t)rma->base.contexts_max;
	messages->free_lanes = BATONI_ALL_LANES;
	batoni_list_init(&messages->ended);
	batoni_list_init(&messages->ended_lanes);
	messages->lanes = batoni_alloc((size_t)BATONI_ONESIDED_LANES + messages->count,
	                               sizeof(*messages->lanes));
	messages->sources = batoni_alloc(messages->count,
	                                 sizeof(*messages->sources));
	messages->buffers = batoni_alloc((size_t)BATONI_ONESIDED_LANES + messages->count,
	                                 BATONI_MESSAGE_MAX);
	messages->sent = batoni_alloc(size, sizeof(*messages->sent));
	messages->applied = batoni_alloc(size, sizeof(*messages->applied));
	if (!messages->lanes || !messages->sources || !messages->buffers ||
	    !messages->sent || !messages->applied) {
		free_messages(messages);
		return BATON_ERR_NOMEM;
	}
	rma->messages = messages;
	return BATON_OK;
}

static void
start_lane(struct batoni_rma *rma, uint32_t i)
{
	struct batoni_lane *lane = &rma->messages->lanes[i];

	batoni_list_init(&lane->link);
	if (i < BATONI_ONESIDED_LANES)
		lane->header.buffer =
			rma->messages->buffers + (size_t)i * BATONI_MESSAGE_MAX;
	else
		lane->header.buffer = &lane->own;
	lane->header.slot = (rma->requests_max + 2 * i) & 0xffffffu;
	lane->header.direction = BATONI_SEND;
	lane->payload.slot = (rma->requests_max + 2 * i + 1) & 0xffffffu;
	lane->payload.direction = BATONI_SEND;
}

static void
start_source(struct batoni_rma *rma, uint32_t i)
{
	struct batoni_source *source = &rma->messages->sources[i];
	uint32_t slot = rma->requests_max +
	                2 * (BATONI_ONESIDED_LANES + rma->messages->count + i);

	batoni_list_init(&source->link);
	source->context = (int)i % rma->base.contexts_max;
	source->header.buffer = rma->messages->buffers +
	                        (size_t)(BATONI_ONESIDED_LANES + i) * BATONI_MESSAGE_MAX;
	source->header.bytes = BATONI_MESSAGE_MAX;
	source->header.peer = (int)i / rma->base.contexts_max;
	source->header.tag = batoni_header_tag(rma, source->context);
	source->header.slot = slot & 0xffffffu;
	source->header.direction = BATONI_RECV;
	source->payload.peer = source->header.peer;
	source->payload.tag = source->header.tag + 1;
	source->payload.slot = (slot + 1) & 0xffffffu;
	source->payload.direction = BATONI_RECV;
}

void
batoni_messages_start(struct batoni_rma *rma)
{
	assert(rma->transport->hidden_tags >= 2 * rma->base.contexts_max);
	rma->messages->quiet = rma->transport->quiet;
	for (uint32_t i = 0; i < BATONI_ONESIDED_LANES + rma->messages->count; i++)
		start_lane(rma, i);
	for (uint32_t i = 0; i < rma->messages->count; i++)
		start_source(rma, i);
}

/* ---- the target ---- */

static void
receive_ended(struct batoni_rma *rma, struct batoni_source *source,
              enum baton_status status)
{
	assert(source->lent && rma->messages->lent > 0);
	rma->messages->lent--;
	if (source->state == BATONI_SOURCE_HEADER)
		rma->base.standing--;
	source->lent = false;
	source->asked = false;
	source->status = status;
	batoni_message_note(rma, &rma->messages->ended, &source->link);
}

static void
post(struct batoni_rma *rma, struct batoni_source *source,
     enum batoni_source_state state)
{
	struct batoni_transfer *receive = state == BATONI_SOURCE_HEADER
	                                          ? &source->header
	                                          : &source->payload;
	enum baton_status status;

	source->state = state;
	source->lent = true;
	rma->messages->lent++;
	if (state == BATONI_SOURCE_HEADER)
		rma->base.standing++;
	status = rma->transport->ops->issue(rma->transport, receive);
	if (status != BATON_PENDING)
		receive_ended(rma, source, status);
}

static void
post_header(struct batoni_rma *rma, struct batoni_source *source)
{
	if (rma->messages->leaving)
		source->state = BATONI_SOURCE_IDLE;
	else
		post(rma, source, BATONI_SOURCE_HEADER);
}

static void
fail(struct batoni_source *source, const char *what)
{
	batoni_log(BATONI_LOG_ERROR,
	           "the %s of a put from rank %d, context %d, did not arrive: "
	           "%s", what, source->header.peer, source->context,
	           baton_status_name(source->status));
	source->state = BATONI_SOURCE_FAILED;
}

/* The put has been applied, or dropped: account for it, and ask for the next. */
static void
finish(struct batoni_rma *rma, struct batoni_source *source)
{
	int peer = source->header.peer;

	if (!source->dropped)
		batoni_counter_add(rma, peer, source->signal_index,
		                   source->context);
	/* Who waits for all to have been applied waits for dropped ones too. */
	rma->messages->applied[peer]++;
	post_header(rma, source);
}

/* Why the header cannot be obeyed, or NULL.  The sender has checked all of it; but
 * what would be written is this process's memory. */
static const char *
fault(const struct batoni_rma *rma, const struct batoni_source *source,
      const struct batoni_header *header, const struct baton_window *window)
{
	if (header->signal_index < 0 ||
	    header->signal_index >= rma->base.signals_max ||
	    header->context != source->context)
		return "it has no such signal";
	if (header->payload == BATONI_PAYLOAD_NONE)
		return NULL;
	if (!window)
		return "it has no such window";
	if (header->offset > window->bytes ||
	    header->bytes > window->bytes - header->offset)
		return "it would leave its window";
	return NULL;
}

/* The message is a header, with as much behind it as that says. */
static bool
well_formed(const struct batoni_header *header, size_t arrived)
{
	if (arrived < sizeof(*header) || header->magic != BATONI_MESSAGE_MAGIC ||
	    header->version != BATONI_MESSAGE_VERSION ||
	    header->payload > BATONI_PAYLOAD_SEPARATE)
		return false;
	return arrived - sizeof(*header) ==
	       (header->payload == BATONI_PAYLOAD_INLINE ? header->bytes : 0);
}

static void
drop(struct batoni_source *source, const char *why)
{
	batoni_log(BATONI_LOG_ERROR,
	           "a put from rank %d, context %d, was dropped: %s",
	           source->header.peer, source->context, why);
	source->dropped = true;
}

static void
header_arrived(struct batoni_rma *rma, struct batoni_source *source)
{
	const char *message = source->header.buffer;
	struct baton_window *window = NULL;
	const char *why = NULL;
	struct batoni_header header;

	memcpy(&header, message, sizeof(header));
	source->dropped = false;
	if (!well_formed(&header, source->header.done_bytes)) {
		drop(source, "it is not one of this version of Baton");
		finish(rma, source);
		return;
	}
	if (header.payload != BATONI_PAYLOAD_NONE)
		window = batoni_window_find(rma, header.window);
	why = fault(rma, source, &header, window);
	if (why)
		drop(source, why);
	source->signal_index = header.signal_index;
	if (header.payload == BATONI_PAYLOAD_SEPARATE) {
		/* One that is dropped has to be received too: into nothing. */
		source->payload.buffer =
			why ? NULL : (char *)window->base + header.offset;
		source->payload.bytes = why ? 0 : (size_t)header.bytes;
		post(rma, source, BATONI_SOURCE_PAYLOAD);
		return;
	}
	if (header.payload == BATONI_PAYLOAD_INLINE && !why)
		memcpy((char *)window->base + header.offset,
		       message + sizeof(header), (size_t)header.bytes);
	finish(rma, source);
}

static void
payload_arrived(struct batoni_rma *rma, struct batoni_source *source)
{
	if (!source->dropped &&
	    source->payload.done_bytes != source->payload.bytes)
		drop(source, "its data has another length");
	finish(rma, source);
}

static void
go_on(struct batoni_rma *rma, struct batoni_source *source)
{
	bool header = source->state == BATONI_SOURCE_HEADER;

	batoni_message_take_note(rma, &source->link);
	if (rma->messages->deaf ||
	    (source->status == BATON_ERR_CANCELED && header))
		source->state = BATONI_SOURCE_IDLE;
	else if (source->status == BATON_OK && header)
		header_arrived(rma, source);
	else if (source->status == BATON_OK ||
	         (source->status == BATON_ERR_TRUNCATED && source->dropped))
		payload_arrived(rma, source);
	else
		fail(source, header ? "header" : "data");
}

void
batoni_messages_post(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;

	if (messages->posted || messages->leaving)
		return;
	messages->posted = true;
	for (uint32_t i = 0; i < messages->count; i++)
		post(rma, &messages->sources[i], BATONI_SOURCE_HEADER);
}

bool
batoni_messages_posted(const struct batoni_rma *rma)
{
	return atomic_load_explicit(&rma->messages->posted, memory_order_acquire);
}

void
batoni_messages_listen(struct batoni_rma *rma, int change)
{
	struct batoni_messages *messages = rma->messages;
	bool before = messages->listeners > 0;
	bool after;

	messages->listeners += change;
	after = messages->listeners > 0;
	assert(messages->listeners >= 0);
	if (after)
		batoni_messages_post(rma);
	if (after != before)
		batoni_comm_hold(rma->comm, after);
}

/* ---- both ---- */

void
batoni_message_done(struct batoni_rma *rma, struct batoni_transfer *transfer,
                    enum baton_status status)
{
	struct batoni_messages *messages = rma->messages;
	uint32_t i = (transfer->slot - rma->requests_max) / 2;

	if (i >= BATONI_ONESIDED_LANES + messages->count) {
		receive_ended(rma,
		              &messages->sources[i - BATONI_ONESIDED_LANES - messages->count],
		              status);
		return;
	}
	assert(messages->lent > 0);
	messages->lent--;
	if (batoni_lane_part_ended(&messages->lanes[i], transfer, status))
		batoni_lane_end(rma, &messages->lanes[i]);
}

size_t
batoni_messages_test(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;
	struct batoni_list_node *link;
	size_t events = 0;

	while (!batoni_list_empty(&messages->ended_lanes)) {
		link = messages->ended_lanes.next;
		batoni_message_take_note(rma, link);
		batoni_lane_end(rma, batoni_container_of(link, struct batoni_lane, link));
		events++;
	}
	/* Whoever goes on may be noted again, behind the others. */
	for (size_t n = 0; n < EVENTS_MAX && !batoni_list_empty(&messages->ended);
	     n++) {
		link = messages->ended.next;
		go_on(rma, batoni_container_of(link, struct batoni_source, link));
		events++;
	}
	return events;
}

uint64_t
batoni_messages_sent(const struct batoni_rma *rma, int peer)
{
	return rma->messages->sent[peer];
}

uint64_t
batoni_messages_applied(const struct batoni_rma *rma, int peer)
{
	return rma->messages->applied[peer];
}

/* ---- closing ---- */

static void
take_back(struct batoni_rma *rma, struct batoni_source *source)
{
	struct batoni_transfer *receive = source->state == BATONI_SOURCE_HEADER
	                                          ? &source->header
	                                          : &source->payload;
	enum baton_status status =
		rma->transport->ops->take_back(rma->transport, receive);

	if (status == BATON_ERR_BUSY)
		source->asked = true;
	else
		receive_ended(rma, source, status);
}

/* Is a payload on its way into this memory? */
static bool
writes_to(const struct batoni_source *source, const void *base, size_t bytes)
{
	uintptr_t to = (uintptr_t)source->payload.buffer;
	uintptr_t from = (uintptr_t)base;

	return source->lent && source->state == BATONI_SOURCE_PAYLOAD &&
	       to < from + bytes && from < to + source->payload.bytes;
}

bool
batoni_messages_write_to(const struct batoni_rma *rma, const void *base,
                         size_t bytes)
{
	const struct batoni_messages *messages = rma->messages;

	for (uint32_t i = 0; i < messages->count; i++) {
		if (writes_to(&messages->sources[i], base, bytes))
			return true;
	}
	return false;
}

enum baton_status
batoni_messages_let_go(struct batoni_rma *rma, const void *base, size_t bytes)
{
	struct batoni_messages *messages = rma->messages;

	messages->leaving = true;
	messages->deaf = true;
	for (uint32_t i = 0; i < messages->count; i++) {
		struct batoni_source *source = &messages->sources[i];

		if (writes_to(source, base, bytes) && !source->asked)
			take_back(rma, source);
	}
	if (!batoni_messages_write_to(rma, base, bytes))
		return BATON_OK;
	if (!messages->quiet)
		return BATON_ERR_BUSY;
	rma->transport->ops->test(rma->transport);
	return BATON_PENDING;
}

enum baton_status
batoni_messages_drain(struct batoni_rma *rma)
{
	/* A communicator with no operation pending is not on the engine's list, so
	 * nothing else tests its transport. */
	if (rma->transport->in_flight > 0)
		rma->transport->ops->test(rma->transport);
	batoni_messages_test(rma);
	return rma->messages->busy_lanes == 0 ? BATON_OK : BATON_PENDING;
}

enum baton_status
batoni_messages_leave(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;

	batoni_messages_test(rma);
	messages->leaving = true;
	for (uint32_t i = 0; i < messages->count; i++) {
		struct batoni_source *source = &messages->sources[i];

		if (source->lent && source->state == BATONI_SOURCE_HEADER &&
		    !source->asked)
			take_back(rma, source);
	}
	batoni_messages_test(rma);
	return messages->lent == 0 && batoni_list_empty(&messages->ended)
	               ? BATON_OK
	               : BATON_PENDING;
}

void
batoni_messages_close(struct batoni_rma *rma, bool aborted)
{
	struct batoni_messages *messages = rma->messages;

	if (!messages)
		return;
	rma->messages = NULL;
	assert(aborted || messages->lent == 0);
	if (aborted && messages->lent > 0 && !messages->quiet) {
		messages->kept_next = atomic_load(&kept);
		while (!atomic_compare_exchange_weak(
			&kept, &messages->kept_next, messages))
			;
		return;
	}
	free_messages(messages);
}
