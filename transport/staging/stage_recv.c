/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: the receiver's side of a message: its header, how it goes, and grants (message.c has the protocol).
 *
 * The driver.
 */
#include <string.h>

#include "stage.h"

void
batoni_stage_begin_recv(struct batoni_staging *stage,
			struct stage_message *message)
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
void
batoni_stage_tell_grants(struct batoni_staging *stage)
{
	while (!batoni_list_empty(&stage->telling)) {
		struct stage_message *message = batoni_container_of(
			stage->telling.next, struct stage_message, tell);

		batoni_list_remove(&message->tell);
		if (!message->failed && !message->control.lower)
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

/* Only on hidden tags are there receives of any rank. */
bool
batoni_stage_decode(const struct batoni_staging *stage,
                    const struct stage_message *message,
                    struct stage_header *header)
{
	const struct batoni_transfer *transfer = message->transfer;

	return batoni_stage_header_decode(message->first.transfer.buffer,
	                                  message->first.transfer.done_bytes,
	                                  stage->size, stage->slots_most,
	                                  header) &&
	       (transfer->tag > stage->base.tag_max ||
	        header->source == (uint32_t)transfer->peer) &&
	       (header->type > 0) ==
	               (header->list_bytes == 0 &&
	                stage_has_type(stage, message->transfer->tag));
}

void
batoni_stage_matched(struct batoni_staging *stage, struct stage_message *message)
{
	const unsigned char *bounce = message->first.transfer.buffer;
	struct stage_header header;

	if (!batoni_stage_decode(stage, message, &header)) {
		batoni_stage_refuse(stage, message, "a message's header");
		return;
	}
	message->peer = (int)header.source;
	message->length = (size_t)header.length;
	message->remote = header.slot;
	batoni_transfer_moved(message->transfer, message->length);
	stage_set_moves(stage, message, true);
	if (header.list_bytes > 0)
		batoni_stage_list_matched(
			stage, message, &header, bounce + sizeof(header),
			message->first.transfer.done_bytes - sizeof(header));
	else
		matched_plain(stage, message, &header, bounce + sizeof(header));
}

void
batoni_stage_recv_part_over(struct batoni_staging *stage,
			    struct stage_message *message,
                            const struct stage_part *part)
{
	if (part == &message->first && message->state == STAGE_FIRST &&
	    message->probed)
		message->state = STAGE_HELD;
	else if (part == &message->first && message->state == STAGE_FIRST)
		batoni_stage_matched(stage, message);
	else if (part == &message->first)
		batoni_stage_over(stage, message, BATON_OK);
	else if (message->refusing)
		batoni_stage_list_refused(stage, message);
	else if (message->told < message->begun)
		batoni_stage_grant(stage, message, GRANT_PIECES);
}
