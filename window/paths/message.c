/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals by messages: the path to ranks whose memory cannot be reached.
 * Both ends are here.  Everything runs on the driver.
 *
 * On the wire.  Each put or signal is one header, on the header tag of its
 * context.  A payload that fits behind the header is part of the same message.  A
 * longer one follows from the user's buffer on the payload tag of the context, and
 * is received in its place.  So long payloads are not copied again, and only the
 * transport limits the length of a message.
 *
 * The sender has lanes.  A lane holds one put from the hand-over until the transport
 * has let go of both of its messages.  `parts` counts those and the hand-over itself,
 * so that a message which ends while the other is issued does not end the lane.  There
 * is a pool of lanes, with buffers for short payloads, and one lane without a buffer for
 * each channel, used when the pool is empty.  So puts that one peer does not receive delay
 * no other peer.
 *
 * The target has a source for each channel that talks to it, with one receive at the
 * transport at a time: the header's, then the payload's if there is a separate one, then
 * the next header's.  The counter is increased when the data is in its place, and only
 * then is the next header's receive posted.  Messages of one tag arrive in order, so they
 * are applied in order.  A long payload delays its own (peer, context) only.
 *
 * A get is a header whose target sends the data, on the answer tag of the context (message_get.c).  Its
 * lane has the header and the receive of the answer; its source sends the answer before it receives
 * the next header.
 *
 * A header may say that its data goes by a native transport (native_path.c).  The source
 * keeps it, on `natives`, until that has come.  What it says to await is checked: a wait of the library
 * that is never met cannot be taken back.  Puts of a channel have units of their own each, so it is more than
 * the header before said, and less than no transport would wait for.  No closer bound holds: units of puts
 * that were stopped, and of other contexts, are announced by no header, or by one that comes later.
 *
 * Announcements.  Lane and source of a channel are created when it is first used (link.c
 * says by which thread), so memory and receives grow with the peers that talk, not with the
 * ranks.  The first message of a channel is a hello, on a tag of its own that the target
 * receives from any rank, one at a time.  It makes the target create the source and post
 * its receive.  Headers that arrive earlier wait at the transport.  A hello is not answered.
 *
 * Visibility.  What is copied here, and what a completed receive has written, comes before
 * batoni_counter_add in this thread, which is a release.  A thread that reads the counter
 * by an acquire load sees all of it.  (The driver's lock gives the same order from one
 * driver to the next.)
 *
 * No recursion.  message_done runs within the transport, which must not be called from
 * there; a receive may also end in issue.  In both cases the source is only appended to
 * `ended`, and batoni_messages_test continues with it.  Each entry is in flight and moving in
 * the layer's load, and marks the communicator busy, since it may have nothing else to do.
 *
 * On a quiet transport a message ends only when it is received.  There, receives are
 * posted from the start, because a rank that never waits for signals can be signaled.  On an
 * unbuffered one (the side channel) the same holds, and the engine keeps polling for them,
 * until the communicator is destroyed.
 *
 * message_close.c says how a rank leaves, and message_get.c has gets.
 */
#include "message.h"

#include <stdatomic.h>
#include <string.h>

#include "life.h"
#include "log.h"
#include "mem.h"
#include "native_path.h"

/* Messages that one test applies: each may copy 16 KiB in the transport. */
#define EVENTS_MAX (BATONI_PUT_SLICE_MAX / BATONI_PUT_INLINE_MAX)

/* ---- opening ---- */

void
batoni_messages_free(struct batoni_messages *messages)
{
	batoni_free(messages->buffers);
	batoni_free(messages);
}

enum baton_status
batoni_messages_open(struct batoni_rma *rma)
{
	struct batoni_messages *messages = batoni_alloc(1, sizeof(*messages));

	if (!messages)
		return BATON_ERR_NOMEM;
	messages->buffers = batoni_alloc(BATONI_ONESIDED_LANES,
	                                 BATONI_MESSAGE_MAX);
	if (!messages->buffers) {
		batoni_messages_free(messages);
		return BATON_ERR_NOMEM;
	}
	messages->free_lanes = BATONI_ALL_LANES;
	batoni_list_init(&messages->ended);
	batoni_list_init(&messages->natives);
	batoni_list_init(&messages->ended_lanes);
	batoni_list_init(&messages->mail.link);
	rma->messages = messages;
	return BATON_OK;
}

/* A slot of the transport.  The pool's lanes come first, then the receive of hellos, then
 * four for each channel. */
static void
init_transfer(const struct batoni_rma *rma, struct batoni_transfer *transfer,
              uint32_t slot, enum batoni_direction direction)
{
	transfer->slot = (rma->requests_max + slot) & 0xffffffu;
	transfer->direction = (uint32_t)direction & 3u;
}

static void
init_lane(const struct batoni_rma *rma, struct batoni_lane *lane, uint32_t slot)
{
	batoni_list_init(&lane->link);
	init_transfer(rma, &lane->header, slot, BATONI_SEND);
	init_transfer(rma, &lane->payload, slot + 1, BATONI_SEND);
}

/* A source has one receive or answer at a time, so header, payload and answer share a slot. */
static void
init_source(const struct batoni_rma *rma, struct batoni_source *source,
            uint32_t slot)
{
	batoni_list_init(&source->link);
	init_transfer(rma, &source->header, slot, BATONI_RECV);
	init_transfer(rma, &source->payload, slot, BATONI_RECV);
	init_transfer(rma, &source->answer, slot, BATONI_SEND);
}

void
batoni_messages_start(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;

	assert(rma->transport->hidden_tags >=
	       batoni_onesided_tags(rma->base.contexts_max));
	messages->lets_go = rma->transport->lets_go;
	for (uint32_t i = 0; i < BATONI_ONESIDED_LANES; i++) {
		init_lane(rma, &messages->lanes[i], 2 * i);
		messages->lanes[i].number = (int)i;
		messages->lanes[i].header.buffer =
			messages->buffers + (size_t)i * BATONI_MESSAGE_MAX;
	}
	init_source(rma, &messages->mail, 2 * BATONI_ONESIDED_LANES);
	messages->mail.header.buffer = &messages->mail_buffer;
	messages->mail.header.bytes = sizeof(messages->mail_buffer);
	messages->mail.header.peer = rma->transport->any_peer;
	messages->mail.header.tag = batoni_mail_tag(rma);
}

static struct batoni_wire *
wire_new(struct batoni_rma *rma, const struct batoni_channel *channel)
{
	struct batoni_wire *wire = batoni_alloc(1, sizeof(*wire));
	uint32_t slot = 2 * BATONI_ONESIDED_LANES + 1 +
	                4 * (uint32_t)(channel->peer * rma->base.contexts_max +
	                               channel->context);

	if (!wire)
		return NULL;
	init_lane(rma, &wire->lane, slot);
	wire->lane.number = -1;
	wire->lane.header.buffer = &wire->lane.own;
	init_source(rma, &wire->source, slot + 2);
	wire->source.context = channel->context;
	wire->source.header.buffer = wire->buffer;
	wire->source.header.bytes = BATONI_MESSAGE_MAX;
	wire->source.header.peer = channel->peer;
	wire->source.header.tag = batoni_header_tag(rma, channel->context);
	wire->source.payload.peer = channel->peer;
	wire->source.payload.tag = wire->source.header.tag + 1;
	wire->source.answer.peer = channel->peer;
	wire->source.answer.tag = wire->source.header.tag + 2;
	batoni_list_init(&wire->unacked);
	wire->probe.peer = channel->peer;
	wire->probe.tag = channel->context;
	init_transfer(rma, &wire->hello_transfer, slot + 3, BATONI_SEND);
	wire->hello = (struct batoni_hello){
		.magic = BATONI_MESSAGE_MAGIC,
		.version = BATONI_MESSAGE_VERSION,
		.context = (uint16_t)channel->context,
		.rank = rma->rank,
	};
	wire->hello_transfer.buffer = &wire->hello;
	wire->hello_transfer.bytes = sizeof(wire->hello);
	wire->hello_transfer.peer = channel->peer;
	wire->hello_transfer.tag = batoni_mail_tag(rma);
	return wire;
}

struct batoni_wire *
batoni_wire_make(struct batoni_rma *rma, struct batoni_channel *channel)
{
	struct batoni_wire *wire = batoni_wire_of(channel), *other = NULL;

	if (wire)
		return wire;
	wire = wire_new(rma, channel);
	if (!wire)
		return NULL;
	if (atomic_compare_exchange_strong(&channel->wire, &other, wire))
		return wire;
	batoni_free(wire);
	return other;
}

/* ---- the target ---- */

void
batoni_source_ended(struct batoni_rma *rma, struct batoni_source *source,
                    enum baton_status status)
{
	assert(source->lent && rma->messages->lent > 0);
	rma->messages->lent--;
	if (source->state == BATONI_SOURCE_HEADER)
		rma->base.path.load.standing--;
	source->lent = false;
	source->asked = false;
	source->status = status;
	batoni_message_keep(rma, &rma->messages->ended, &source->link);
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
	source->scrapped = false;
	rma->messages->lent++;
	if (state == BATONI_SOURCE_HEADER)
		rma->base.path.load.standing++;
	status = batoni_path_issue(&rma->transport->messages, receive);
	if (status != BATON_PENDING)
		batoni_source_ended(rma, source, status);
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
fail_source(struct batoni_source *source, const char *what)
{
	batoni_log(BATONI_LOG_ERROR,
	           "the %s of rank %d, context %d, did not arrive: %s", what,
	           source->header.peer, source->context,
	           baton_status_name(source->status));
	source->state = BATONI_SOURCE_FAILED;
}

/* The put has been applied or dropped: account for it, and post the next receive. */
static void
finish_source(struct batoni_rma *rma, struct batoni_source *source)
{
	struct batoni_link *link = batoni_link_of(rma, source->header.peer);
	struct baton_window *window = NULL;

	if (!source->dropped && source->signal_index != BATONI_NO_SIGNAL)
		batoni_counter_add(rma, source->header.peer,
		                   source->signal_index, source->context,
		                   source->adds);
	/* Dropped ones are counted too: deregistering waits until as many are applied
	 * as were sent. */
	if (source->window)
		window = batoni_window_find(rma, source->window);
	if (window)
		window->applied++;
	link->applied++;
	post_header(rma, source);
}

/* The same, for data that goes by a native transport. */
static const char *
native_fault(const struct batoni_rma *rma, const struct batoni_source *source,
             const struct batoni_header *header, const struct baton_window *window)
{
	if (!rma->native)
		return "it came by a path that is not here";
	if (!window->native)
		return "its window is none of the library's";
	if (header->bytes == 0 || header->bytes > window->bytes)
		return "it would leave its window";
	if (header->offset <= source->units ||
	    !batoni_native_may_come(rma, source->header.peer, header->offset))
		return "it counts transfers that there cannot be";
	return NULL;
}

/* A message that carries no data signals; a put may do without, and a get does. */
static bool
has_such_signal(const struct batoni_rma *rma, const struct batoni_header *header)
{
	if (header->signal_index == BATONI_NO_SIGNAL)
		return header->payload != BATONI_PAYLOAD_NONE;
	return header->payload != BATONI_PAYLOAD_GET && header->signal_index >= 0 &&
	       header->signal_index < rma->base.signals_max;
}

/* Why the header must be rejected, or NULL.  The sender has checked all of it, but the
 * memory that would be written is this process's, so it is checked again. */
static const char *
fault(const struct batoni_rma *rma, const struct batoni_source *source,
      const struct batoni_header *header, const struct baton_window *window)
{
	if (!has_such_signal(rma, header) || header->context != source->context)
		return "it has no such signal";
	if (header->payload == BATONI_PAYLOAD_NONE)
		return header->offset < UINT32_MAX
		               ? NULL
		               : "it adds more than a signal can";
	if (batoni_is_probe(header))
		return NULL;
	if (!window)
		return "it has no such window";
	if (header->payload == BATONI_PAYLOAD_GET)
		return batoni_get_fault(header, window);
	if (header->payload == BATONI_PAYLOAD_NATIVE)
		return native_fault(rma, source, header, window);
	if (header->offset > window->bytes ||
	    header->bytes > window->bytes - header->offset)
		return "it would leave its window";
	/* The host must not touch that. */
	if (header->payload == BATONI_PAYLOAD_INLINE &&
	    !batoni_location_is_host(window->location))
		return "its data is behind its header, and its window is memory of "
		       "a device";
	return NULL;
}

/* Is the message a header, followed by as many bytes as the header says? */
static bool
well_formed(const struct batoni_header *header, size_t arrived)
{
	if (arrived < sizeof(*header) || header->magic != BATONI_MESSAGE_MAGIC ||
	    header->version != BATONI_MESSAGE_VERSION ||
	    header->payload > BATONI_PAYLOAD_GET)
		return false;
	return arrived - sizeof(*header) ==
	       (header->payload == BATONI_PAYLOAD_INLINE ? header->bytes : 0);
}

static void
drop_source(struct batoni_source *source, const char *why)
{
	batoni_log(BATONI_LOG_ERROR,
	           "a put or get of rank %d, context %d, was dropped: %s",
	           source->header.peer, source->context, why);
	source->dropped = true;
}

/* A get that was dropped is answered too, with nothing: its rank waits. */
static void
answer_get(struct batoni_rma *rma, struct batoni_source *source,
           const struct batoni_header *header, const struct baton_window *window)
{
	if (window)
		batoni_get_answer(rma, source,
		                  (const char *)window->base + header->offset,
		                  (size_t)header->bytes, window->location);
	else
		batoni_get_answer(rma, source, NULL, 0, 0);
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
	source->window = 0;
	if (!well_formed(&header, source->header.done_bytes)) {
		drop_source(source, "it is not one of this version of Baton");
		finish_source(rma, source);
		return;
	}
	source->window = header.window;
	if (header.payload != BATONI_PAYLOAD_NONE && !batoni_is_probe(&header))
		window = batoni_window_find(rma, header.window);
	why = fault(rma, source, &header, window);
	if (why)
		drop_source(source, why);
	source->signal_index = header.signal_index;
	source->adds = header.payload == BATONI_PAYLOAD_NONE ? header.offset + 1 : 1;
	if (header.payload == BATONI_PAYLOAD_GET) {
		answer_get(rma, source, &header, why ? NULL : window);
		return;
	}
	if (header.payload == BATONI_PAYLOAD_SEPARATE) {
		/* A dropped payload has to be received too, with length 0. */
		source->payload.buffer =
			why ? NULL : (char *)window->base + header.offset;
		source->payload.bytes = why ? 0 : (size_t)header.bytes;
		source->payload.location = why ? 0 : window->location & 0x3fu;
		post(rma, source, BATONI_SOURCE_PAYLOAD);
		return;
	}
	if (header.payload == BATONI_PAYLOAD_NATIVE && !why) {
		source->state = BATONI_SOURCE_NATIVE;
		source->units = header.offset;
		batoni_message_keep(rma, &rma->messages->natives,
		                    &source->link);
		return;
	}
	if (header.payload == BATONI_PAYLOAD_INLINE && !why)
		memcpy((char *)window->base + header.offset,
		       message + sizeof(header), (size_t)header.bytes);
	finish_source(rma, source);
}

static void
payload_arrived(struct batoni_rma *rma, struct batoni_source *source)
{
	if (!source->dropped &&
	    source->payload.done_bytes != source->payload.bytes)
		drop_source(source, "its data has another length");
	finish_source(rma, source);
}

/* Look at each source whose header has come before its data.  Returns events. */
static size_t
test_natives(struct batoni_rma *rma)
{
	struct batoni_list_node *list = &rma->messages->natives, *next;
	size_t events = 0;

	for (struct batoni_list_node *at = list->next; at != list; at = next) {
		struct batoni_source *source =
			batoni_container_of(at, struct batoni_source, link);
		enum baton_status status = BATON_ERR_ABORTED;

		next = at->next;
		if (!rma->messages->discards)
			status = batoni_native_await(rma, source->header.peer,
			                             source->units);
		if (status == BATON_PENDING)
			continue;
		batoni_message_take(rma, at);
		events++;
		if (status == BATON_OK)
			finish_source(rma, source);
		else
			source->state = BATONI_SOURCE_IDLE; /* it is broken */
	}
	return events;
}

/* ---- announcements ---- */

/* Another rank has announced a channel to this one: post its receive.  False: there is no
 * memory for it now. */
static bool
accept_hello(struct batoni_rma *rma)
{
	const struct batoni_hello *hello = &rma->messages->mail_buffer;
	struct batoni_link *link;
	struct batoni_wire *wire;

	if (rma->messages->mail.header.done_bytes != sizeof(*hello) ||
	    hello->magic != BATONI_MESSAGE_MAGIC ||
	    hello->version != BATONI_MESSAGE_VERSION || hello->rank < 0 ||
	    hello->rank >= rma->size ||
	    hello->context >= rma->base.contexts_max) {
		batoni_log(BATONI_LOG_ERROR,
		           "the announcement of puts was dropped: it is not one "
		           "of this version of Baton");
		return true;
	}
	link = batoni_link_make(rma, hello->rank);
	if (!link)
		return false;
	wire = batoni_wire_make(rma, &link->channels[hello->context]);
	if (!wire)
		return false;
	if (wire->source.state == BATONI_SOURCE_IDLE)
		post_header(rma, &wire->source);
	return true;
}

static void
go_on_with_mail(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;
	struct batoni_source *mail = &messages->mail;

	if (messages->discards || messages->leaving ||
	    mail->status == BATON_ERR_CANCELED) {
		mail->state = BATONI_SOURCE_IDLE;
	} else if (mail->status != BATON_OK) {
		batoni_log(BATONI_LOG_ERROR,
		           "announcements of puts do not arrive any more: %s",
		           baton_status_name(mail->status));
		mail->state = BATONI_SOURCE_FAILED;
	} else if (accept_hello(rma)) {
		post_header(rma, mail);
	} else {
		/* Tried again at a later test. */
		batoni_message_keep(rma, &messages->ended, &mail->link);
	}
}

static void
go_on_with_source(struct batoni_rma *rma, struct batoni_source *source)
{
	bool header = source->state == BATONI_SOURCE_HEADER;
	bool answers = source->state == BATONI_SOURCE_ANSWER;

	batoni_message_take(rma, &source->link);
	if (source == &rma->messages->mail)
		go_on_with_mail(rma);
	else if (rma->messages->discards ||
	         (source->status == BATON_ERR_CANCELED && (header || answers)))
		source->state = BATONI_SOURCE_IDLE;
	else if (source->status == BATON_OK && answers)
		finish_source(rma, source);
	else if (source->status == BATON_OK && header)
		header_arrived(rma, source);
	else if (source->status == BATON_OK ||
	         (source->status == BATON_ERR_TRUNCATED && source->dropped))
		payload_arrived(rma, source);
	else
		fail_source(source, header   ? "header of a put"
		                    : answers ? "answer to a get"
		                              : "data of a put");
}

void
batoni_messages_post(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;

	if (messages->posted || messages->leaving)
		return;
	messages->posted = true;
	post(rma, &messages->mail, BATONI_SOURCE_HEADER);
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

/* The source whose receive or answer this is. */
static struct batoni_source *
source_of(enum batoni_message_part part, struct batoni_transfer *transfer)
{
	if (part == BATONI_PART_ANSWER)
		return batoni_container_of(transfer, struct batoni_source, answer);
	if (part == BATONI_PART_PAYLOAD)
		return batoni_container_of(transfer, struct batoni_source, payload);
	return batoni_container_of(transfer, struct batoni_source, header);
}

/* Direction and tag tell what a transfer of this layer is: an answer is sent by a source, and
 * received by a lane. */
void
batoni_message_done(struct batoni_rma *rma, struct batoni_transfer *transfer,
                    enum baton_status status)
{
	struct batoni_messages *messages = rma->messages;
	bool mail = transfer->tag == batoni_mail_tag(rma);
	enum batoni_message_part part =
		mail ? BATONI_PART_HEADER : batoni_message_part(rma, transfer);
	struct batoni_lane *lane;

	if ((transfer->direction == BATONI_RECV) != (part == BATONI_PART_ANSWER)) {
		batoni_source_ended(rma, source_of(part, transfer), status);
		return;
	}
	assert(messages->lent > 0);
	messages->lent--;
	if (mail) {
		messages->busy--;
		return;
	}
	lane = part == BATONI_PART_HEADER
	               ? batoni_container_of(transfer, struct batoni_lane, header)
	               : batoni_container_of(transfer, struct batoni_lane, payload);
	if (batoni_lane_part_ended(lane, transfer, status))
		batoni_lane_end(rma, lane);
}

size_t
batoni_messages_test(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;
	struct batoni_list_node *link;
	size_t events = 0;

	while (!batoni_list_empty(&messages->ended_lanes)) {
		link = messages->ended_lanes.next;
		batoni_message_take(rma, link);
		batoni_lane_end(rma, batoni_container_of(link, struct batoni_lane, link));
		events++;
	}
	if (unlikely(messages->left) && (rma->comm->liveness.gone ||
	                                 rma->comm->fault.status != BATON_OK))
		batoni_gets_give_up(rma);
	events += test_natives(rma);
	/* An entry that is continued may be appended again, behind the others. */
	for (size_t n = 0; n < EVENTS_MAX && !batoni_list_empty(&messages->ended);
	     n++) {
		link = messages->ended.next;
		go_on_with_source(rma, batoni_container_of(link, struct batoni_source, link));
		events++;
	}
	return events;
}

uint64_t
batoni_messages_sent(const struct batoni_rma *rma, int peer)
{
	const struct batoni_link *link = batoni_link_of(rma, peer);

	return link ? link->sent : 0;
}

uint64_t
batoni_messages_applied(const struct batoni_rma *rma, int peer)
{
	const struct batoni_link *link = batoni_link_of(rma, peer);

	return link ? link->applied : 0;
}
