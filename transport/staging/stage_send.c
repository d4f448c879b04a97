/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: the sender's side of a message: its header and its line, what is sent at once, and what grants let
 * go (message.c has the protocol).
 *
 * The driver.
 */
#include <string.h>

#include "stage.h"

static struct stage_message *
to_line(struct batoni_list_node *line)
{
	return batoni_container_of(line, struct stage_message, line);
}

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
	stage_set_moves(stage, message, !message->lower->load.quiet);
	batoni_stage_post(stage, &message->first, BATONI_SEND, buffer, bytes,
	                  message->peer, transfer->tag);
}

/* Do headers on these tags, to one peer, leave in the order of issue?  Those of the program do, for receives of any
 * tag. */
static bool
in_one_line(const struct batoni_staging *stage, int tag, int other)
{
	return tag == other ||
	       (tag <= stage->base.tag_max && other <= stage->base.tag_max);
}

/* The front of the line that this message belongs to, or NULL.  Only eager messages
 * whose copy is under way make a line, so there are few. */
static struct stage_message *
find_line(struct batoni_staging *stage, const struct stage_message *message)
{
	for (struct batoni_list_node *at = stage->lines.next;
	     at != &stage->lines; at = at->next) {
		struct stage_message *front = batoni_container_of(
			at, struct stage_message, fronts);

		if (front->peer == message->peer &&
		    in_one_line(stage, front->transfer->tag,
		                message->transfer->tag))
			return front;
	}
	return NULL;
}

static void
enter_line(struct batoni_staging *stage, struct stage_message *message)
{
	struct stage_message *front = find_line(stage, message);

	message->state = STAGE_LINE;
	stage_set_moves(stage, message, true);
	if (front)
		batoni_list_append(&front->line, &message->line);
	else
		batoni_list_append(&stage->lines, &message->fronts);
}

/* Returns the new front, if the message was the front; else NULL. */
struct stage_message *
batoni_stage_leave_line(struct batoni_staging *stage,
			struct stage_message *message)
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

void
batoni_stage_advance_line(struct batoni_staging *stage,
			  struct stage_message *front)
{
	while (front && front->ready) {
		struct stage_message *next = batoni_stage_leave_line(stage, front);

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

void
batoni_stage_begin_send(struct batoni_staging *stage,
			struct stage_message *message)
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
		batoni_stage_advance_line(stage, message);
}

/* The first grant says how the message goes. */
static void
begin_body(struct batoni_staging *stage, struct stage_message *message)
{
	const struct stage_grant *grant = &message->grant;

	message->remote = grant->slot;
	stage_set_moves(stage, message, true);
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

void
batoni_stage_send_part_over(struct batoni_staging *stage,
			    struct stage_message *message,
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
