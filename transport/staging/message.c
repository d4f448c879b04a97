/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: issue, test, take_back; the protocol.
 *
 * Every message begins with a header on its own tag, and the headers of a (peer, tag)
 * leave in the order of issue.  A receive posts a bounce buffer for a header and an eager
 * message; it holds nothing else before it has matched.
 *
 * Short messages (eager) travel behind their header, as one message below.  The bytes are
 * copied to an eager buffer first, together with those of other messages that the engine issues
 * at the same time (chunk.c).  Meanwhile the message stands in the *line* of its
 * (peer, tag), and so do those that are issued after it.  A receive in device memory takes
 * an eager buffer of its own for the way from the bounce buffer.
 *
 * Long ones, and short ones when no eager buffer is free, *ask*: the header is all that is
 * sent, and nothing is held until the receiver answers with a grant, on a tag that belongs
 * to the send's slot.  What follows goes on a tag of the receive's slot.  The receiver
 * says how: as one message, if both buffers are host memory and the transport below takes it; not at all, if it is too
 * short; in pieces otherwise, of which it grants one for each chunk that it has posted.  A
 * grant says how many pieces were granted in all; the next grant leaves when the last one
 * has left.  Pieces of different messages, and copies and messages of different pieces, go
 * on at the same time.
 *
 * A list of tensors has headers of its own kinds (lists.c).  Between processes of one host a message may
 * go by one copy of the receiver's device instead (mapped.c).
 *
 * In checked mode the header of a plain message has its type.  A receive of another type declines, as one
 * that is too short does.
 *
 * A side whose buffer is host memory takes part in the same way, but sends and receives in
 * place; its chunks are only places at the transport below.
 *
 * Events.  The transport below calls `done` within its own slots, also within those of
 * another rank (local): the part is put in a list, and settle() acts on it within a slot
 * of this transport.  So no slot below is called from a callback.
 *
 * A message may be scrapped, whose buffer is about to go: it is over then, in CANCELED.  It grants or
 * sends no more pieces, and its copies that were not started are forgotten; those under way are waited
 * for.  Pieces that were granted still come, into their chunks, and are discarded.  What is
 * sent or received in place, in memory of the host, is taken back, or scrapped below.  The peer's
 * message stays where it is: only a communicator that is broken scraps.
 *
 * A failure of the device's memory breaks the communicator: the peer has been promised
 * bytes that will not come.  A message that has failed ends although parts of it are below,
 * which may never end; but not while one of them lies in memory of the program, which the
 * transport below may still write or read.  The engine then lends the buffer, as it breaks.
 */
#include <stdio.h>
#include <string.h>

#include "stage.h"

/* What the host copies of lists: in a pass; and where a call of the program may be waiting. */
#define TEST_BYTES ((size_t)1 << 20)
#define FLUSH_BYTES ((size_t)16 << 10)

static struct batoni_staging *
to_stage(struct batoni_path *path)
{
	return batoni_container_of(batoni_transport_of(path),
	                           struct batoni_staging, base);
}

static struct stage_message *
to_line(struct batoni_list_node *line)
{
	return batoni_container_of(line, struct stage_message, line);
}

/* ---- counts and ends ---- */

/* The engine is to look again soon: for messages that move, and for events that came
 * within a slot of another rank, also where their message has ended. */
static void
count_load(struct batoni_staging *stage)
{
	struct batoni_load *load = &stage->base.messages.load;
	bool events = !batoni_list_empty(&stage->ended);

	/* What the transport below watches always, it watches through here. */
	load->in_flight = stage->begun + events + load->standing;
	load->moving = stage->moving + events;
}

static void
set_moves(struct batoni_staging *stage, struct stage_message *message, bool moves)
{
	stage->moving += moves;
	stage->moving -= message->moves;
	message->moves = moves;
}

/* Returns the new front, if the message was the front; else NULL. */
static struct stage_message *
leave_line(struct batoni_staging *stage, struct stage_message *message)
{
	bool front = !batoni_list_empty(&message->fronts);
	struct stage_message *next = NULL;

	batoni_list_remove(&message->fronts);
	if (front && !batoni_list_empty(&message->line)) {
		next = to_line(message->line.next);
		batoni_list_append(&stage->lines, &next->fronts);
	}
	batoni_list_remove(&message->line);
	return next;
}

/* Nothing of the message is being copied: give back what it has. */
static void
give_back(struct batoni_staging *stage, struct stage_message *message)
{
	if (message->eager)
		batoni_stage_give(stage, message->eager);
	if (message->held)
		batoni_stage_give(stage, message->held);
	if (message->mapped)
		batoni_stage_unmap(stage, message);
	while (!batoni_list_empty(&message->pieces_ready))
		batoni_stage_give(stage,
		                  batoni_container_of(message->pieces_ready.next,
		                                      struct stage_token, link));
	leave_line(stage, message);
}

static void
finish(struct batoni_staging *stage, struct stage_message *message)
{
	struct batoni_transfer *transfer = message->transfer;

	give_back(stage, message);
	set_moves(stage, message, false);
	stage->begun--;
	message->transfer = NULL;
	message->state = STAGE_FREE;
	if (message == stage->caller)
		stage->caller_status = message->outcome;
	else
		stage->base.host->done(stage->base.host, transfer,
		                       message->outcome);
}

/* Has the transport below a part of the message that lies in memory of the program? */
static bool
is_below_in_place(const struct batoni_staging *stage,
                  const struct stage_message *message)
{
	if (message->state == STAGE_DIRECT &&
	    (message->transfer->direction == BATONI_SEND
	             ? message->control.below
	             : message->first.below))
		return true;
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		const struct stage_token *token = &stage->tokens[i];

		if (token->message == message && token->part.below &&
		    token->content != token->memory)
			return true;
	}
	return false;
}

/* What is below of a message that has failed may never end.  It is not waited for, where it
 * lies in memory of this transport's. */
static bool
is_over(const struct batoni_staging *stage, const struct stage_message *message)
{
	return message->over && message->copies == 0 &&
	       (message->parts == 0 ||
	        (message->failed && !is_below_in_place(stage, message)));
}

static void
finish_if_over(struct batoni_staging *stage, struct stage_message *message)
{
	if (message->transfer && is_over(stage, message))
		finish(stage, message);
}

void
batoni_stage_over(struct batoni_staging *stage, struct stage_message *message,
                  enum baton_status status)
{
	if (!message->over)
		message->outcome = status;
	message->over = true;
	/* It wants nothing more. */
	batoni_list_remove(&message->turn);
	batoni_list_remove(&message->tell);
	if (message->copies > 0)
		batoni_stage_drop(stage, message);
	finish_if_over(stage, message);
}

/* ---- parts ---- */

static void
part_ended(struct batoni_staging *stage, struct stage_part *part,
           enum baton_status status)
{
	part->status = status;
	batoni_list_append(&stage->ended, &part->link);
}

static enum baton_status
take_part_back(struct batoni_staging *stage, struct stage_part *part)
{
	struct batoni_path *below = &stage->below->messages;
	enum baton_status status;

	/* It has ended, if it is in stage->ended. */
	if (!part->below || !batoni_list_empty(&part->link))
		return BATON_ERR_BUSY;
	/* The engine tells its own paths alone.  At the end of a rank what is taken back below keeps its place
	 * in the order, so that no later message arrives in its stead. */
	below->ending = stage->base.messages.ending;
	status = batoni_path_take_back(below, &part->transfer);
	if (status != BATON_ERR_BUSY)
		part_ended(stage, part, status);
	part->asked = status == BATON_ERR_BUSY;
	return status;
}

/* ---- failures ---- */

/* No more of it is to be moved to or from memory of the program. */
static void
take_places_back(struct batoni_staging *stage, struct stage_message *message)
{
	if (message->state == STAGE_DIRECT)
		take_part_back(stage,
		               message->transfer->direction == BATONI_SEND
		                       ? &message->control
		                       : &message->first);
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		struct stage_token *token = &stage->tokens[i];

		if (token->message == message && token->content != token->memory)
			take_part_back(stage, &token->part);
	}
}

static void
fail(struct batoni_staging *stage, struct stage_message *message,
     const char *call, int code, enum baton_status status)
{
	message->failed = true;
	if (message->transfer) {
		message->transfer->native_call = call;
		message->transfer->native_code = code;
		take_places_back(stage, message);
	}
	batoni_stage_over(stage, message, status);
}

void
batoni_stage_fault(struct batoni_staging *stage, struct stage_message *message,
                   enum baton_status status)
{
	if (stage->fatal == BATON_OK) {
		stage->fatal = status;
		stage->memory->why(stage->device, &stage->fault);
		stage->memory->health(stage->device, &stage->fault);
	}
	fail(stage, message, stage->fault.call, stage->fault.code, status);
}

void
batoni_stage_done(struct batoni_host *host,
                  struct batoni_transfer *transfer, enum baton_status status)
{
	struct batoni_staging *stage =
		batoni_container_of(host, struct batoni_staging, below_host);

	part_ended(stage,
	           batoni_container_of(transfer, struct stage_part, transfer),
	           status);
	count_load(stage);
	stage->base.host->moves(stage->base.host);
}

/* The message that the part belongs to; *token_p: its token, or NULL. */
static struct stage_message *
owner_of(struct batoni_staging *stage, const struct stage_part *part,
         struct stage_token **token_p)
{
	uint32_t slot = part->transfer.slot;

	*token_p = NULL;
	if (slot < 2 * stage->slots)
		return &stage->messages[slot % stage->slots];
	*token_p = &stage->tokens[slot - 2 * stage->slots];
	return (*token_p)->message;
}

void
batoni_stage_post(struct batoni_staging *stage, struct stage_part *part,
                  enum batoni_direction direction, void *buffer, size_t bytes,
                  int peer, int tag)
{
	struct batoni_transfer *transfer = &part->transfer;
	struct stage_token *token;
	enum baton_status status;

	transfer->buffer = buffer;
	transfer->bytes = bytes;
	transfer->done_bytes = 0;
	transfer->peer = peer;
	transfer->tag = tag;
	transfer->direction = direction;
	transfer->native_call = NULL;
	assert(!part->below);
	part->below = true;
	part->asked = false;
	owner_of(stage, part, &token)->parts++;
	status = batoni_path_issue(&stage->below->messages, transfer);
	if (status != BATON_PENDING)
		part_ended(stage, part, status);
}

/* ---- sending ---- */

static struct stage_header
header_of(const struct batoni_staging *stage,
          const struct stage_message *message)
{
	struct stage_header header;

	batoni_stage_header_init(&header);
	if (message->list) {
		header.kind = message->at_once ? HEADER_LIST : HEADER_LIST_ASKS;
		header.list_bytes = message->list->header_bytes;
	} else {
		header.kind = message->eager || message->length == 0
		                      ? HEADER_EAGER
		                      : HEADER_ASKS;
		if (stage_has_type(stage, message->transfer->tag))
			header.type = (uint32_t)message->transfer->type + 1;
	}
	header.length = message->length;
	header.piece = stage_piece_max(stage, message->host);
	header.source = (uint32_t)stage->base.rank;
	header.slot = message->transfer->slot;
	header.host = message->host;
	return header;
}

/* Of a plain send that asks: the header, with an offer behind it if there is one. */
static void *
asking_header(struct batoni_staging *stage, struct stage_message *message,
              size_t *bytes_p)
{
	unsigned char *bounce =
		stage->bounces +
		message->transfer->slot * (BATONI_STAGING_HEADER_BYTES +
	                                   stage->config.eager_bytes);
	struct stage_offer offer;

	if (!batoni_stage_offer(stage, message, &offer))
		return &message->header;
	memcpy(bounce, &message->header, *bytes_p);
	memcpy(bounce + *bytes_p, &offer, sizeof(offer));
	*bytes_p += sizeof(offer);
	return bounce;
}

/* Send the header, and what goes with it. */
static void
send_first(struct batoni_staging *stage, struct stage_message *message)
{
	const struct batoni_transfer *transfer = message->transfer;
	size_t bytes = BATONI_STAGING_HEADER_BYTES;
	void *buffer = &message->header;

	message->header = header_of(stage, message);
	message->state = STAGE_EAGER;
	if (message->list) {
		buffer = batoni_stage_list_first(stage, message,
		                                 &message->header, &bytes);
	} else if (message->eager) {
		buffer = message->eager->memory;
		memcpy(buffer, &message->header, bytes);
		bytes += message->length;
	} else if (message->stream > 0) {
		buffer = asking_header(stage, message, &bytes);
	}
	if (message->stream > 0) {
		message->state = STAGE_ASKED;
		batoni_stage_post(stage, &message->control, BATONI_RECV,
		                  &message->grant, sizeof(message->grant),
		                  message->peer,
		                  stage->grant_tag + (int)transfer->slot);
	}
	/* On a quiet transport only the peer's receive moves it. */
	set_moves(stage, message, !stage->below->messages.load.quiet);
	batoni_stage_post(stage, &message->first, BATONI_SEND, buffer, bytes,
	                  message->peer, transfer->tag);
}

/* The front of the line for this message's (peer, tag), or NULL.  Only eager messages
 * whose copy is under way make a line, so there are few. */
static struct stage_message *
find_line(struct batoni_staging *stage, const struct stage_message *message)
{
	for (struct batoni_list_node *at = stage->lines.next;
	     at != &stage->lines; at = at->next) {
		struct stage_message *front = batoni_container_of(
			at, struct stage_message, fronts);

		if (front->peer == message->peer &&
		    front->transfer->tag == message->transfer->tag)
			return front;
	}
	return NULL;
}

static void
enter_line(struct batoni_staging *stage, struct stage_message *message)
{
	struct stage_message *front = find_line(stage, message);

	message->state = STAGE_LINE;
	set_moves(stage, message, true);
	if (front)
		batoni_list_append(&front->line, &message->line);
	else
		batoni_list_append(&stage->lines, &message->fronts);
}

static void
advance_line(struct batoni_staging *stage, struct stage_message *front)
{
	while (front && front->ready) {
		struct stage_message *next = leave_line(stage, front);

		send_first(stage, front);
		front = next;
	}
}

static void
begin_plain(struct batoni_staging *stage, struct stage_message *message)
{
	const struct batoni_transfer *transfer = message->transfer;

	message->length = transfer->bytes;
	if (message->length > 0 && message->length <= stage->config.eager_bytes)
		message->eager = batoni_stage_take(stage, message, SENDS, EAGERS);
	if (message->eager && message->host) {
		memcpy(message->eager->memory + BATONI_STAGING_HEADER_BYTES,
		       transfer->buffer, message->length);
	} else if (message->eager) {
		message->ready = false;
		batoni_stage_copy(stage, message->eager,
		                  message->eager->memory +
		                          BATONI_STAGING_HEADER_BYTES,
		                  transfer->buffer, message->length);
	}
	message->stream = message->eager ? 0 : message->length;
}

static void
begin_send(struct batoni_staging *stage, struct stage_message *message)
{
	message->ready = true;
	if (message->list)
		batoni_stage_list_begin(stage, message);
	else
		begin_plain(stage, message);
	if (message->failed)
		return;
	enter_line(stage, message);
	if (!batoni_list_empty(&message->fronts))
		advance_line(stage, message);
}

/* The first grant says how the message goes. */
static void
begin_body(struct batoni_staging *stage, struct stage_message *message)
{
	const struct stage_grant *grant = &message->grant;

	message->remote = grant->slot;
	set_moves(stage, message, true);
	if (grant->kind == GRANT_PIECES) {
		message->state = STAGE_PIECES;
		message->piece = (size_t)grant->piece;
		message->pieces = (message->stream - 1) / message->piece + 1;
		return;
	}
	batoni_transfer_moved(message->transfer, message->length);
	message->state = STAGE_DIRECT;
	batoni_stage_post(stage, &message->control, BATONI_SEND,
	                  message->transfer->buffer, message->length,
	                  message->peer,
	                  stage->body_tag + (int)message->remote);
}

void
batoni_stage_refuse(struct batoni_staging *stage, struct stage_message *message,
                    const char *what)
{
	stage->fatal = BATON_ERR_PEER;
	stage->fault.call = "staging";
	snprintf(stage->fault.text, sizeof(stage->fault.text),
	         "%s is not one of staging: the ranks run different versions",
	         what);
	fail(stage, message, "staging", 0, BATON_ERR_PEER);
}

static void
granted(struct batoni_staging *stage, struct stage_message *message)
{
	const struct stage_terms terms = {
		.slots = stage->slots_most,
		.length = message->stream,
		.most = message->header.piece,
		.piece = message->state == STAGE_PIECES ? message->piece : 0,
		.granted = message->granted,
		.host = message->host,
		.list = message->list != NULL,
		.offered = message->offered,
	};

	if (!batoni_stage_grant_check(&message->grant,
	                              message->control.transfer.done_bytes,
	                              &terms)) {
		batoni_stage_refuse(stage, message, "a grant");
		return;
	}
	batoni_stage_told(stage, message);
	if (message->grant.kind == GRANT_DROPS ||
	    message->grant.kind == GRANT_MAPPED) {
		message->state = STAGE_DROPPED;
		batoni_transfer_moved(message->transfer, message->length);
		batoni_stage_over(stage, message, BATON_OK);
		return;
	}
	if (message->state == STAGE_ASKED)
		begin_body(stage, message);
	if (message->state != STAGE_PIECES)
		return;
	message->granted = message->grant.granted;
	if (message->granted < message->pieces)
		batoni_stage_post(stage, &message->control, BATONI_RECV,
		                  &message->grant, sizeof(message->grant),
		                  message->peer,
		                  stage->grant_tag +
		                          (int)message->transfer->slot);
	batoni_stage_want(stage, message);
}

static void
send_part_over(struct batoni_staging *stage, struct stage_message *message,
               const struct stage_part *part)
{
	if (part == &message->first && message->state == STAGE_EAGER) {
		batoni_transfer_moved(message->transfer, message->length);
		batoni_stage_over(stage, message, BATON_OK);
	} else if (part == &message->control &&
	           message->state == STAGE_DIRECT) {
		batoni_stage_over(stage, message, BATON_OK);
	} else if (part == &message->control) {
		granted(stage, message);
	}
}

/* ---- receiving ---- */

static void
begin_recv(struct batoni_staging *stage, struct stage_message *message)
{
	const struct batoni_transfer *transfer = message->transfer;
	size_t bytes = BATONI_STAGING_HEADER_BYTES + stage->config.eager_bytes;

	message->state = STAGE_FIRST;
	batoni_stage_post(stage, &message->first, BATONI_RECV,
	                  stage->bounces + transfer->slot * bytes, bytes,
	                  transfer->peer, transfer->tag);
}

void
batoni_stage_grant(struct batoni_staging *stage, struct stage_message *message,
                   uint32_t kind)
{
	message->grant = (struct stage_grant){
		.kind = kind,
		.slot = message->transfer->slot,
		.piece = message->piece,
		.granted = message->begun,
	};
	message->told = message->begun;
	batoni_stage_post(stage, &message->control, BATONI_SEND,
	                  &message->grant, sizeof(message->grant), message->peer,
	                  stage->grant_tag + (int)message->remote);
}

/* Chunks were posted: grant their pieces, unless the last grant has not left. */
static void
tell_grants(struct batoni_staging *stage)
{
	while (!batoni_list_empty(&stage->telling)) {
		struct stage_message *message = batoni_container_of(
			stage->telling.next, struct stage_message, tell);

		batoni_list_remove(&message->tell);
		if (!message->failed && !message->control.below)
			batoni_stage_grant(stage, message, GRANT_PIECES);
	}
}

static void
matched_eager(struct batoni_staging *stage, struct stage_message *message,
              const unsigned char *bytes)
{
	message->state = STAGE_EAGER;
	if (message->length > 0 && !message->host) {
		batoni_stage_want(stage, message);
		return;
	}
	if (message->length > 0)
		memcpy(message->transfer->buffer, bytes, message->length);
	batoni_stage_over(stage, message, BATON_OK);
}

/* What is behind the header of a message that asks.  False: it is no offer, which is the end of the
 * message. */
static bool
hear_offer(struct batoni_staging *stage, struct stage_message *message,
           const unsigned char *behind, struct stage_offer *offer)
{
	size_t n = message->first.transfer.done_bytes - BATONI_STAGING_HEADER_BYTES;

	memset(offer, 0, sizeof(*offer));
	if (n == 0)
		return true;
	if (!batoni_stage_offer_decode(behind, n, message->length, offer)) {
		batoni_stage_refuse(stage, message, "an offer of memory");
		return false;
	}
	batoni_stage_hear(stage, message, offer);
	return true;
}

static void
matched_asking(struct batoni_staging *stage, struct stage_message *message,
               const struct stage_header *header,
               const struct stage_offer *offer)
{
	uint64_t mine = stage_piece_max(stage, message->host);

	if (batoni_stage_map(stage, message, offer)) {
		message->state = STAGE_MAPPED;
		batoni_stage_want(stage, message);
		return;
	}
	if (message->host && header->host && message->length <= mine) {
		message->state = STAGE_DIRECT;
		batoni_stage_post(stage, &message->first, BATONI_RECV,
		                  message->transfer->buffer, message->length,
		                  message->peer,
		                  stage->body_tag +
		                          (int)message->transfer->slot);
		batoni_stage_grant(stage, message, GRANT_DIRECT);
		return;
	}
	message->state = STAGE_PIECES;
	message->stream = message->length;
	message->piece = stage_min((size_t)header->piece, (size_t)mine);
	message->pieces = (message->length - 1) / message->piece + 1;
	message->limit = message->pieces;
	batoni_stage_want(stage, message);
}

void
batoni_stage_decline(struct batoni_staging *stage,
                     struct stage_message *message, bool asks,
                     enum baton_status status)
{
	message->state = STAGE_DROPPED;
	if (asks)
		batoni_stage_grant(stage, message, GRANT_DROPS);
	batoni_stage_over(stage, message, status);
}

static void
matched_plain(struct batoni_staging *stage, struct stage_message *message,
              const struct stage_header *header, const unsigned char *bytes)
{
	bool asks = header->kind == HEADER_ASKS;
	enum baton_status status = batoni_transfer_meet_plain(
		message->transfer, message->length, (int)header->type - 1);
	struct stage_offer offer;

	if (asks && !hear_offer(stage, message, bytes, &offer))
		return;
	if (status != BATON_OK)
		batoni_stage_decline(stage, message, asks, status);
	else if (asks)
		matched_asking(stage, message, header, &offer);
	else
		matched_eager(stage, message, bytes);
}

static bool
decode(const struct batoni_staging *stage, const struct stage_message *message,
       struct stage_header *header)
{
	return batoni_stage_header_decode(message->first.transfer.buffer,
	                                  message->first.transfer.done_bytes,
	                                  stage->size, stage->slots_most,
	                                  header) &&
	       (header->type > 0) ==
	               (header->list_bytes == 0 &&
	                stage_has_type(stage, message->transfer->tag));
}

/* The header has come. */
static void
matched(struct batoni_staging *stage, struct stage_message *message)
{
	const unsigned char *bounce = message->first.transfer.buffer;
	struct stage_header header;

	if (!decode(stage, message, &header)) {
		batoni_stage_refuse(stage, message, "a message's header");
		return;
	}
	message->peer = (int)header.source;
	message->length = (size_t)header.length;
	message->remote = header.slot;
	batoni_transfer_moved(message->transfer, message->length);
	set_moves(stage, message, true);
	if (header.list_bytes > 0)
		batoni_stage_list_matched(
			stage, message, &header, bounce + sizeof(header),
			message->first.transfer.done_bytes - sizeof(header));
	else
		matched_plain(stage, message, &header, bounce + sizeof(header));
}

static void
recv_part_over(struct batoni_staging *stage, struct stage_message *message,
               const struct stage_part *part)
{
	if (part == &message->first && message->state == STAGE_FIRST)
		matched(stage, message);
	else if (part == &message->first)
		batoni_stage_over(stage, message, BATON_OK);
	else if (message->refusing)
		batoni_stage_list_refused(stage, message);
	else if (message->told < message->begun)
		batoni_stage_grant(stage, message, GRANT_PIECES);
}

/* ---- events ---- */

/* The transport below has done with a piece. */
static void
piece_over(struct batoni_staging *stage, struct stage_token *token)
{
	struct stage_message *message = token->message;

	if (token->direction == SENDS || message->host)
		batoni_stage_piece_done(stage, token);
	else if (message->list)
		batoni_stage_list_came(stage, token);
	else
		batoni_stage_copy(stage, token, token->copy.to, token->memory,
		                  token->bytes);
}

static void
part_over(struct batoni_staging *stage, struct stage_part *part)
{
	struct stage_token *token;
	struct stage_message *message = owner_of(stage, part, &token);

	part->below = false;
	message->parts--;
	if (token && (message->over || !message->transfer ||
	              part->status != BATON_OK)) {
		/* Nothing becomes of the piece. */
		batoni_stage_give(stage, token);
		token = NULL;
	}
	if (!message->transfer || message->over) {
		/* It ends, or has ended. */
	} else if (part->status == BATON_ERR_CANCELED) {
		batoni_stage_over(stage, message, BATON_ERR_CANCELED);
	} else if (part->status != BATON_OK) {
		fail(stage, message, part->transfer.native_call,
		     part->transfer.native_code, part->status);
	} else if (token) {
		piece_over(stage, token);
	} else if (message->transfer->direction == BATONI_SEND) {
		send_part_over(stage, message, part);
	} else {
		recv_part_over(stage, message, part);
	}
	finish_if_over(stage, message);
}

void
batoni_stage_copied(struct batoni_staging *stage, struct stage_token *token)
{
	struct stage_message *message = token->message;
	bool sends = token->direction == SENDS;

	if (token->kind != EAGERS && message->over) {
		batoni_stage_give(stage, token);
	} else if (token->kind == COPIES) {
		batoni_stage_give(stage, token);
		batoni_stage_mapped_copied(stage, message);
	} else if (token->kind == CHUNKS && sends) {
		token->ready = true;
		batoni_stage_send_ready(stage, message);
	} else if (token->kind == CHUNKS) {
		batoni_stage_piece_done(stage, token);
	} else if (!sends) {
		batoni_stage_over(stage, message, BATON_OK);
	} else if (!message->over) {
		message->ready = true;
		if (!batoni_list_empty(&message->fronts))
			advance_line(stage, message);
	}
	finish_if_over(stage, message);
}

/* Act on all events, and give out what has become free. */
static size_t
settle(struct batoni_staging *stage)
{
	size_t events = 0;

	do {
		while (!batoni_list_empty(&stage->ended)) {
			struct stage_part *part = batoni_container_of(
				stage->ended.next, struct stage_part, link);

			batoni_list_remove(&part->link);
			part_over(stage, part);
			events++;
		}
		batoni_stage_hand_out(stage);
		tell_grants(stage);
	} while (!batoni_list_empty(&stage->ended));
	return events;
}

/* The end of a slot function. */
static void
tell_engine(struct batoni_staging *stage)
{
	count_load(stage);
	if (stage->fatal == BATON_OK)
		return;
	stage->base.host->broken(stage->base.host, stage->fatal,
	                         stage->fault.call, stage->fault.code,
	                         stage->fault.text);
	stage->fatal = BATON_OK;
}

/* ---- the slots ---- */

/* Of a call about this message: how it ended, or PENDING. */
static enum baton_status
leave(struct batoni_staging *stage, const struct stage_message *message)
{
	enum baton_status status;

	settle(stage);
	status = message->transfer ? BATON_PENDING : stage->caller_status;
	stage->caller = NULL;
	if (stage->collected)
		stage->base.host->deferred(stage->base.host);
	tell_engine(stage);
	return status;
}

static void
begin(struct batoni_staging *stage, struct stage_message *message,
      struct batoni_transfer *transfer)
{
	uint32_t slot = transfer->slot;

	*message = (struct stage_message){
		.transfer = transfer,
		.peer = transfer->peer,
		.host = batoni_place_is_host(transfer->place),
		.list = batoni_transfer_list(transfer),
	};
	message->first.transfer.slot = slot & 0xffffff;
	message->control.transfer.slot = (stage->slots + slot) & 0xffffff;
	batoni_list_init(&message->first.link);
	batoni_list_init(&message->control.link);
	batoni_list_init(&message->turn);
	batoni_list_init(&message->tell);
	batoni_list_init(&message->line);
	batoni_list_init(&message->fronts);
	batoni_list_init(&message->pieces_ready);
	stage->begun++;
}

static enum baton_status
issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_staging *stage = to_stage(path);
	struct stage_message *message = &stage->messages[transfer->slot];

	assert(transfer->slot < stage->slots && !message->transfer);
	batoni_transfer_moved(transfer, 0);
	begin(stage, message, transfer);
	stage->caller = message;
	if (transfer->direction == BATONI_SEND)
		begin_send(stage, message);
	else
		begin_recv(stage, message);
	return leave(stage, message);
}

static size_t
test(struct batoni_path *path)
{
	struct batoni_staging *stage = to_stage(path);
	struct batoni_path *below = &stage->below->messages;
	size_t events = 0;

	if (below->load.in_flight > 0)
		below->ops->test(below);
	events += batoni_stage_poll(stage);
	if (stage->maps)
		events += batoni_stage_maps_test(stage);
	events += settle(stage);
	batoni_stage_start(stage, TEST_BYTES);
	tell_engine(stage);
	return events;
}

static size_t
flush(struct batoni_path *path)
{
	struct batoni_staging *stage = to_stage(path);
	bool collected = stage->collected;

	if (collected)
		batoni_stage_start(stage, FLUSH_BYTES);
	tell_engine(stage);
	return collected;
}

/* What is sent or received in place.  OK, PENDING, BUSY: as scrap. */
static enum baton_status
scrap_part(struct batoni_staging *stage, struct stage_part *part)
{
	struct batoni_path *below = &stage->below->messages;

	if (!part->below || (!part->asked &&
	                     take_part_back(stage, part) != BATON_ERR_BUSY))
		return BATON_OK;
	return batoni_path_scrap(below, &part->transfer);
}

/* A receive whose bytes are here: they are copied from the bounce buffer, and nothing of the peer is
 * needed. */
static bool
has_come(const struct stage_message *message)
{
	return message->state == STAGE_EAGER &&
	       message->transfer->direction == BATONI_RECV;
}

/* The peer's process has ended: nothing that this waits for will come. */
static void
abandon(struct batoni_staging *stage, struct stage_message *message)
{
	take_part_back(stage, &message->first);
	take_part_back(stage, &message->control);
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		struct stage_token *token = &stage->tokens[i];

		if (token->message == message)
			take_part_back(stage, &token->part);
	}
	batoni_stage_over(stage, message, BATON_ERR_CANCELED);
}

static bool
is_gone(const struct batoni_staging *stage, int peer)
{
	const struct batoni_peer *peers = stage->base.peers;

	return peers && peer >= 0 && peer < stage->size && peers[peer].gone;
}

static enum baton_status
take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_staging *stage = to_stage(path);
	struct stage_message *message = &stage->messages[transfer->slot];
	enum baton_status status;

	stage->caller = message;
	/* What has ended in a slot of another rank is still to be seen. */
	settle(stage);
	switch (message->state) {
	case STAGE_LINE:
		advance_line(stage, leave_line(stage, message));
		batoni_stage_over(stage, message, BATON_ERR_CANCELED);
		break;
	case STAGE_FIRST:
	case STAGE_EAGER:
	case STAGE_ASKED:
		/* If the peer has seen no header, there will be no grant. */
		if (take_part_back(stage, &message->first) == BATON_ERR_CANCELED)
			take_part_back(stage, &message->control);
		break;
	case STAGE_FREE:
	case STAGE_PIECES:
	case STAGE_DIRECT:
	case STAGE_MAPPED:
	case STAGE_DROPPED:
		break;
	}
	/* What has just been taken back is not asked for again. */
	settle(stage);
	if (message->state != STAGE_FREE && !has_come(message) &&
	    is_gone(stage, message->peer))
		abandon(stage, message);
	status = leave(stage, message);
	return status == BATON_PENDING ? BATON_ERR_BUSY : status;
}

/* PENDING where any part says so, since that passes. */
static enum baton_status
scrap_in_place(struct batoni_staging *stage, struct stage_message *message)
{
	enum baton_status all = BATON_OK, one = BATON_OK;

	if (message->state == STAGE_DIRECT)
		all = scrap_part(stage, message->transfer->direction == BATONI_SEND
		                                ? &message->control
		                                : &message->first);
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		struct stage_token *token = &stage->tokens[i];

		if (token->message == message && token->content != token->memory)
			one = scrap_part(stage, &token->part);
		if (all == BATON_OK || one == BATON_PENDING)
			all = one;
	}
	return all;
}

static enum baton_status
scrap(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_staging *stage = to_stage(path);
	struct stage_message *message = &stage->messages[transfer->slot];
	enum baton_status status = BATON_OK;

	/* What has ended is seen first: that part is not to be asked of. */
	settle(stage);
	if (message->transfer) {
		set_moves(stage, message, false);
		batoni_stage_over(stage, message, BATON_ERR_CANCELED);
	}
	if (message->transfer && message->host)
		status = scrap_in_place(stage, message);
	settle(stage);
	if (message->transfer && message->copies > 0)
		status = BATON_PENDING;
	tell_engine(stage);
	return status;
}

static const struct batoni_host_issued_ops host_issued = {
	.issue = issue,
	.take_back = take_back,
};

static const struct batoni_scrapping_ops scrapping = {.scrap = scrap};

static const struct batoni_deferring_ops deferring = {.flush = flush};

void
batoni_stage_messages(struct batoni_staging *stage)
{
	stage->messages_ops = (struct batoni_path_ops){
		.name = stage->below->messages.ops->name,
		.kinds = BATONI_MESSAGES,
		.lists = true,
		.host_issued = &host_issued,
		.scrapping = &scrapping,
		.deferring = &deferring,
		.test = test,
	};
	stage->base.messages.ops = &stage->messages_ops;
}
