/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: the protocol; ends, parts at the lower transport, failures, events.
 *
 * Every message begins with a header on its own tag, and the headers of the program's
 * messages to a peer leave in the order of issue, whatever their tags, since a receive of any tag takes
 * the first.  A receive posts a bounce buffer for a header and an eager message; it holds nothing else
 * before it has matched.
 *
 * Short messages (eager) travel behind their header, as one message of the lower transport.  The bytes are
 * copied to an eager buffer first, together with those of other messages that the engine issues
 * at the same time (chunk.c).  Meanwhile the message stands in the *line* of its
 * peer, and so do those that are issued after it.  A receive in device memory takes
 * an eager buffer of its own for the way from the bounce buffer.
 *
 * Long ones, and short ones when no eager buffer is free, *ask*: the header is all that is
 * sent, and nothing is held until the receiver answers with a grant, on a tag that belongs
 * to the send's slot.  What follows goes on a tag of the receive's slot.  The receiver
 * says how: as one message, if both buffers are host memory and the lower transport takes it; not at all, if it is too
 * short; in pieces otherwise, of which it grants one for each chunk that it has posted.  A
 * grant says how many pieces were granted in all; the next grant leaves when the last one
 * has left.  Pieces of different messages, and copies and messages of different pieces, go
 * on at the same time.
 *
 * A list of tensors has headers of its own kinds (lists.c).  Between processes of one node a message may
 * go by one copy of the receiver's device instead (mapped.c).
 *
 * In checked mode the header of a plain message has its type.  A receive of another type declines, as one
 * that is too short does.
 *
 * A message goes by one of two lower paths: that of the transport, or one beside it for the peers that this
 * one serves (open.c).  The path of a pair never changes, so order is that of the path.  Chunks, eager
 * buffers and turns are one pool for both.
 *
 * A side whose buffer is host memory takes part in the same way, but sends and receives in
 * place; its chunks are only receives or sends at the lower transport.
 *
 * Events.  The lower transport calls `done` within its own slots, also within those of
 * another rank (local): the part is put in a list, and settle() acts on it within a slot
 * of this transport.  So no slot of the lower transport is called from a callback.
 *
 * A message may be scrapped, whose buffer is about to go: it is over then, in CANCELED.  It grants or
 * sends no more pieces, and its copies that were not started are forgotten; those under way are waited
 * for.  Pieces that were granted still come, into their chunks, and are discarded.  What is
 * sent or received in place, in memory of the host, is taken back at the lower transport, or scrapped there.  The peer's
 * message stays where it is: only a communicator that is broken scraps.
 *
 * A failure of the device's memory breaks the communicator: the peer has been promised
 * bytes that will not come.  A message that has failed ends although parts of it are at the lower transport,
 * which may never end; but not while one of them lies in memory of the program, which the
 * lower transport may still write or read.  The engine then lends the buffer, as it breaks.
 */
#include <stdio.h>

#include "stage.h"

/* ---- counts and ends ---- */

/* The engine has to poll again soon: for messages that move, and for events that came
 * within a slot of another rank, also where their message has ended. */
static void
count_load(struct batoni_staging *stage)
{
	struct batoni_load *load = &stage->base.messages.load;
	bool events = !batoni_list_empty(&stage->ended);

	/* `standing` counts the receives that are kept posted at the lower transport. */
	load->in_flight = stage->begun + stage->expects + events + load->standing;
	load->moving = stage->moving + events;
}

/* No byte of the message is being copied any more: give its tokens back. */
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
	batoni_stage_leave_line(stage, message);
}

static void
finish_staged(struct batoni_staging *stage, struct stage_message *message)
{
	struct batoni_transfer *transfer = message->transfer;

	give_back(stage, message);
	stage_set_moves(stage, message, false);
	stage->begun--;
	message->transfer = NULL;
	message->state = STAGE_FREE;
	if (message->probed)
		message->lost = true;
	else if (message == stage->caller)
		stage->caller_status = message->outcome;
	else
		stage->base.upcalls->done(stage->base.upcalls, transfer,
		                          message->outcome);
}

/* Has the lower transport a part of the message that lies in memory of the program? */
static bool
is_lower_in_place(const struct batoni_staging *stage,
                  const struct stage_message *message)
{
	if (message->state == STAGE_DIRECT &&
	    (message->transfer->direction == BATONI_SEND
	             ? message->control.lower
	             : message->first.lower))
		return true;
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		const struct stage_token *token = &stage->tokens[i];

		if (token->message == message && token->part.lower &&
		    token->content != token->memory)
			return true;
	}
	return false;
}

/* What the lower transport has of a message that has failed may never end.  It is not waited for, where it
 * lies in memory of this transport's. */
static bool
is_over(const struct batoni_staging *stage, const struct stage_message *message)
{
	return message->over && message->copies == 0 &&
	       (message->parts == 0 ||
	        (message->failed && !is_lower_in_place(stage, message)));
}

static void
finish_if_over(struct batoni_staging *stage, struct stage_message *message)
{
	if (message->transfer && is_over(stage, message))
		finish_staged(stage, message);
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

enum baton_status
batoni_stage_take_part_back(struct batoni_staging *stage,
			    struct stage_part *part)
{
	struct batoni_path *lower = part->lower;
	enum baton_status status;

	/* A part that is in stage->ended has ended already. */
	if (!lower || !batoni_list_empty(&part->link))
		return BATON_ERR_BUSY;
	/* The engine tells its own paths alone.  At the end of a rank what is taken back at the lower transport keeps its place
	 * in the order, so that no later message arrives in its stead. */
	lower->ending = stage->base.messages.ending;
	status = batoni_path_take_back(lower, &part->transfer);
	if (status != BATON_ERR_BUSY)
		part_ended(stage, part, status);
	part->asked = status == BATON_ERR_BUSY;
	return status;
}

/* ---- failures ---- */

/* End all movement of the message's bytes to or from memory of the program. */
static void
take_places_back(struct batoni_staging *stage, struct stage_message *message)
{
	if (message->state == STAGE_DIRECT)
		batoni_stage_take_part_back(stage,
		                            message->transfer->direction == BATONI_SEND
		                                    ? &message->control
		                                    : &message->first);
	for (uint32_t i = 0; i < DIRECTIONS * stage->config.chunks; i++) {
		struct stage_token *token = &stage->tokens[i];

		if (token->message == message && token->content != token->memory)
			batoni_stage_take_part_back(stage, &token->part);
	}
}

void
batoni_stage_fail(struct batoni_staging *stage, struct stage_message *message,
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
	batoni_stage_fail(stage, message, stage->fault.call, stage->fault.code, status);
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
	batoni_stage_fail(stage, message, "staging", 0, BATON_ERR_PEER);
}

void
batoni_stage_done(struct batoni_upcalls *upcalls,
                  struct batoni_transfer *transfer, enum baton_status status)
{
	struct batoni_staging *stage =
		batoni_container_of(upcalls, struct batoni_staging, lower_upcalls);

	part_ended(stage,
	           batoni_container_of(transfer, struct stage_part, transfer),
	           status);
	count_load(stage);
	stage->base.upcalls->moves(stage->base.upcalls);
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
	struct stage_message *message = owner_of(stage, part, &token);
	enum baton_status status;

	transfer->buffer = buffer;
	transfer->bytes = bytes;
	transfer->done_bytes = 0;
	transfer->peer = peer;
	transfer->tag = tag;
	transfer->direction = direction;
	transfer->native_call = NULL;
	assert(!part->lower);
	part->lower = message->lower;
	part->asked = false;
	message->parts++;
	status = batoni_path_issue(part->lower, transfer);
	if (status != BATON_PENDING)
		part_ended(stage, part, status);
}

/* ---- events ---- */

/* The lower transport has ended the transfer of a piece. */
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

	part->lower = NULL;
	message->parts--;
	if (token && (message->over || !message->transfer ||
	              part->status != BATON_OK)) {
		/* Discard the piece. */
		batoni_stage_give(stage, token);
		token = NULL;
	}
	if (!message->transfer || message->over) {
		/* It ends, or has ended. */
	} else if (part->status == BATON_ERR_CANCELED) {
		batoni_stage_over(stage, message, BATON_ERR_CANCELED);
	} else if (part->status != BATON_OK) {
		batoni_stage_fail(stage, message, part->transfer.native_call,
		                  part->transfer.native_code, part->status);
	} else if (token) {
		piece_over(stage, token);
	} else if (message->transfer->direction == BATONI_SEND) {
		batoni_stage_send_part_over(stage, message, part);
	} else {
		batoni_stage_recv_part_over(stage, message, part);
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
			batoni_stage_advance_line(stage, message);
	}
	finish_if_over(stage, message);
}

/* Act on all events, and give out what has become free. */
size_t
batoni_stage_settle(struct batoni_staging *stage)
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
		batoni_stage_tell_grants(stage);
	} while (!batoni_list_empty(&stage->ended));
	return events;
}

/* The end of a slot function. */
void
batoni_stage_tell_engine(struct batoni_staging *stage)
{
	count_load(stage);
	if (stage->fatal == BATON_OK)
		return;
	stage->base.upcalls->broken(stage->base.upcalls, stage->fatal,
	                            stage->fault.call, stage->fault.code,
	                            stage->fault.text);
	stage->fatal = BATON_OK;
}
