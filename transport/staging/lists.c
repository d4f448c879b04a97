/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: messages that are lists of tensors (tensor_list.h), whose tensors may be memory of the
 * host and of any device, mixed.
 *
 * On the wire.  The first message is a header of staging of a kind for lists, and behind it the
 * list's own.  If all of that and the payload fit in an eager message, that is the message
 * (HEADER_LIST).  Otherwise (HEADER_LIST_ASKS) it has as much of the list's header as an eager
 * message has room for; what is left of that header, and then the payload, go in pieces, as a
 * long plain message does: the receiver grants them.  A piece is as long as the shorter of the two
 * ranks' chunks, also between memory of the host, since the two sides lie differently.
 *
 * Sending.  The first message is put together in the bounce buffer of the slot, which a send does
 * not use otherwise; one whose payload comes from memory of a device, in an eager buffer.  Without
 * a free one the list asks.  Pieces are gathered into chunks; one that lies in one tensor of
 * the host goes from there.
 *
 * Receiving.  A receive that has the whole header compares it at once (batoni_tensor_list_meet).  Where
 * some of it is to come, it grants the pieces with the header and no others, and
 * compares when they are there; they may end in any order, so the last of them, which may
 * have payload, is held meanwhile.  A receive that does not agree declines: no piece travels
 * that was not granted before.  The sender accepts that answer also after pieces, and both
 * sides are in step, since all that was granted has come by then.
 *
 * Copying.  A token has a cursor.  What the host may touch it copies, up to a number of
 * bytes in a pass; of the rest, up to BATONI_COPIES_MAX that lie in memory of one device
 * are started together, with one ticket, and the next ones when that has ended; one by one
 * where the memory table has no copies_start, and from managed memory.  A device that takes
 * no more is asked again in the next pass.  A copy that is refused is the end of its
 * message; those that were started with it are waited for.  Tokens of other messages, and
 * other pieces, go on at the same time.
 *
 * The list belongs to the engine; staging reads and writes it from issue to the end of the
 * transfer.  Threads: the driver alone.
 */
#include <string.h>

#include "copies.h"
#include "stage.h"
#include "tensors.h"

static void
skip(const struct batoni_tensor_list *list, struct batoni_tensor_list_cursor *cursor,
     size_t bytes)
{
	while (bytes > 0) {
		struct batoni_segment part =
			batoni_cursor_next(list, cursor, bytes);

		assert(part.bytes > 0);
		bytes -= part.bytes;
	}
}

/* Where these bytes are, if they are in one tensor of the host; else NULL. */
static void *
in_one_tensor(const struct batoni_tensor_list *list,
              struct batoni_tensor_list_cursor cursor, size_t bytes)
{
	struct batoni_segment part = batoni_cursor_peek(list, &cursor, bytes);

	return bytes > 0 && part.bytes == bytes &&
	                       batoni_location_is_host(
				       batoni_tensor_list_memory(list, cursor.segment))
	               ? part.data
	               : NULL;
}

/* May the host touch all memory of the list? */
static bool
is_hosts(const struct batoni_tensor_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->segments[i].bytes > 0 &&
		    !batoni_location_is_host(batoni_tensor_list_memory(list, i)))
			return false;
	return true;
}

/* ---- copies ---- */

/* The copies of one token that are started together. */
struct batch {
	struct batoni_copy copies[BATONI_COPIES_MAX];
	struct stage_cursor cursors[BATONI_COPIES_MAX]; /* before each */
	size_t n;
	int owner; /* the number of the GPU whose memory they name; -1: they name none */
};

static void
advance_cursor(struct stage_cursor *cursor, size_t bytes)
{
	cursor->list.at += bytes;
	cursor->at += bytes;
	cursor->left -= bytes;
}

static bool
overlaps(const struct batch *batch, const struct batoni_copy *copy)
{
	for (size_t i = 0; i < batch->n; i++)
		if (batoni_copies_overlap(&batch->copies[i], copy))
			return true;
	return false;
}

/* Add the part that the cursor is at, in memory of this kind.  False: the batch cannot take it, and
 * it has to come after the others. */
static bool
add_copy(const struct batoni_staging *stage, const struct stage_token *token,
         const struct batoni_segment *part, unsigned location,
         struct batch *batch)
{
	const struct stage_cursor *cursor = &token->cursor;
	struct batoni_copy copy = {cursor->at, part->data, part->bytes};
	int owner = batoni_location_owner(location);

	if (token->direction == RECVS)
		copy = (struct batoni_copy){part->data, cursor->at, part->bytes};
	if (batch->n > 0 &&
	    (!stage->memory->batches || owner < 0 || owner != batch->owner ||
	     batch->n == BATONI_COPIES_MAX ||
	     (token->direction == RECVS && overlaps(batch, &copy))))
		return false;
	batch->owner = owner;
	batch->cursors[batch->n] = *cursor;
	batch->copies[batch->n++] = copy;
	return true;
}

static void
copy_by_host(const struct stage_token *token, const struct batoni_segment *part)
{
	if (token->direction == SENDS)
		memcpy(token->cursor.at, part->data, part->bytes);
	else
		memcpy(part->data, token->cursor.at, part->bytes);
}

/* Copy what the host may, until *most_p is used up, and collect what the device is to copy. */
static void
collect(const struct batoni_staging *stage, struct stage_token *token,
        size_t *most_p, struct batch *batch)
{
	const struct batoni_tensor_list *list = token->message->list;
	struct stage_cursor *cursor = &token->cursor;

	while (cursor->left > 0) {
		struct batoni_segment part =
			batoni_cursor_peek(list, &cursor->list, cursor->left);
		unsigned location =
			batoni_tensor_list_memory(list, cursor->list.segment);

		assert(part.bytes > 0);
		if (batoni_location_is_host(location)) {
			part.bytes = stage_min(part.bytes, *most_p);
			if (part.bytes == 0)
				return;
			copy_by_host(token, &part);
			*most_p -= part.bytes;
		} else if (!add_copy(stage, token, &part, location, batch)) {
			return;
		}
		advance_cursor(cursor, part.bytes);
	}
}

/* Start the copies that were collected.  False: the device takes no more now. */
static bool
start_batch(struct batoni_staging *stage, struct stage_token *token,
            const struct batch *batch)
{
	const struct batoni_copy *first = &batch->copies[0];
	enum baton_status status;
	size_t started = 0;

	if (batch->n > 1) {
		status = stage->memory->batches->copies_start(
			stage->device, batch->copies, batch->n, batch->owner,
			&token->ticket, &started);
	} else {
		status = stage->memory->copy_start(stage->device, first->to,
		                                   first->from, first->bytes,
		                                   batch->owner, &token->ticket);
		started = status == BATON_OK;
	}
	if (started < batch->n)
		token->cursor = batch->cursors[started];
	batoni_list_remove(&token->copying);
	batoni_list_append(started > 0 ? &stage->copies : &stage->listed,
	                   &token->copying);
	if (status != BATON_OK && status != BATON_ERR_AGAIN && started > 0)
		batoni_stage_fault(stage, token->message, status);
	else if (status != BATON_OK && status != BATON_ERR_AGAIN)
		batoni_stage_copy_failed(stage, token, status);
	return status != BATON_ERR_AGAIN;
}

/* Continue the copies of a token, which is in no queue.  False: the device takes no more now. */
static bool
copy_further(struct batoni_staging *stage, struct stage_token *token, size_t *most_p)
{
	struct stage_message *message = token->message;
	struct batch batch;

	batch.n = 0;
	if (!message->over)
		collect(stage, token, most_p, &batch);
	if (batch.n > 0)
		return start_batch(stage, token, &batch);
	if (!message->over && token->cursor.left > 0) {
		batoni_list_append(&stage->listed, &token->copying);
		return true;
	}
	batoni_stage_copy_ends(stage, message);
	batoni_stage_copied(stage, token);
	return true;
}

void
batoni_stage_list_start(struct batoni_staging *stage, size_t most)
{
	struct batoni_list_node now;
	bool more = true;

	/* Those that need another pass are appended to the list meanwhile. */
	batoni_list_append(&stage->listed, &now);
	batoni_list_remove(&stage->listed);
	while (more && !batoni_list_empty(&now)) {
		struct stage_token *token = batoni_container_of(
			now.next, struct stage_token, copying);

		batoni_list_remove(&token->copying);
		more = copy_further(stage, token, &most);
	}
	while (!batoni_list_empty(&now)) {
		struct batoni_list_node *copying = now.next;

		batoni_list_remove(copying);
		batoni_list_append(&stage->listed, copying);
	}
}

/* Copy between the list and the token's memory: its cursor is set. */
static void
begin_copying(struct batoni_staging *stage, struct stage_token *token)
{
	batoni_stage_copy_begins(stage, token->message);
	batoni_list_append(&stage->listed, &token->copying);
	stage->collected = true;
}

/* ---- sending ---- */

/* How many bytes of the list's header are in the first message. */
static size_t
described(const struct batoni_staging *stage,
          const struct batoni_tensor_list *list)
{
	return stage_min(list->header_bytes, stage->config.eager_bytes);
}

void
batoni_stage_list_begin(struct batoni_staging *stage,
                        struct stage_message *message)
{
	const struct batoni_tensor_list *list = message->list;
	size_t most = stage->config.eager_bytes;
	size_t bytes = list->payload_bytes;
	size_t head = list->header_bytes;
	bool hosts;

	assert(most >= BATONI_TENSORS_FIXED_BYTES);
	message->length = bytes;
	message->rest = head - described(stage, list);
	if (head <= most && bytes <= most - head) {
		hosts = is_hosts(list);
		if (!hosts)
			message->eager =
				batoni_stage_take(stage, message, SENDS, EAGERS);
		message->at_once = hosts || message->eager;
	}
	if (!message->at_once)
		message->stream = message->rest + bytes;
	if (!message->eager)
		return;
	message->ready = false;
	message->eager->cursor = (struct stage_cursor){
		.at = message->eager->memory + BATONI_STAGING_HEADER_BYTES + head,
		.left = bytes,
	};
	begin_copying(stage, message->eager);
}

void *
batoni_stage_list_first(struct batoni_staging *stage,
                        struct stage_message *message,
                        const struct stage_header *header, size_t *bytes_p)
{
	const struct batoni_tensor_list *list = message->list;
	size_t n = described(stage, list);
	unsigned char *bytes =
		message->eager
			? message->eager->memory
			: stage->bounces +
				  message->transfer->slot *
					  (BATONI_STAGING_HEADER_BYTES +
	                                   stage->config.eager_bytes);

	memcpy(bytes, header, sizeof(*header));
	memcpy(bytes + sizeof(*header), list->header, n);
	*bytes_p = sizeof(*header) + n;
	if (!message->at_once)
		return bytes;
	if (!message->eager)
		batoni_tensor_list_gather(list, bytes + *bytes_p);
	*bytes_p += list->payload_bytes;
	return bytes;
}

/* How many bytes of a piece belong to the list's header, of which the first message has the
 * beginning. */
static size_t
header_part(const struct stage_message *message, const struct stage_token *token)
{
	return token->first < message->rest
	               ? stage_min(token->bytes, message->rest - token->first)
	               : 0;
}

/* The payload of the next piece, from where the one before ended: in place, or by copies. */
static void
point_to_payload(struct stage_message *message, struct stage_token *token)
{
	size_t head = header_part(message, token);
	void *data = NULL;

	token->cursor = (struct stage_cursor){
		.list = message->cursor,
		.at = token->memory + head,
		.left = token->bytes - head,
	};
	token->content = token->memory;
	if (head == 0)
		data = in_one_tensor(message->list, message->cursor, token->bytes);
	skip(message->list, &message->cursor, token->bytes - head);
	if (!data)
		return;
	token->content = data;
	token->cursor.left = 0;
}

static void
send_piece(struct batoni_staging *stage, struct stage_message *message,
           struct stage_token *token)
{
	const struct batoni_tensor_list *list = message->list;
	size_t head = header_part(message, token);
	size_t sent = list->header_bytes - message->rest;

	if (head > 0)
		memcpy(token->memory, list->header + sent + token->first, head);
	point_to_payload(message, token);
	batoni_list_append(&message->pieces_ready, &token->link);
	token->ready = token->cursor.left == 0;
	if (token->ready)
		batoni_stage_send_ready(stage, message);
	else
		begin_copying(stage, token);
}

/* ---- receiving ---- */

void
batoni_stage_list_piece(struct batoni_staging *stage,
                        struct stage_message *message, struct stage_token *token)
{
	if (token->direction == SENDS) {
		send_piece(stage, message, token);
		return;
	}
	token->content = token->memory;
	/* Where the payload goes is not known before the list's header is there. */
	if (message->rest_left == 0)
		point_to_payload(message, token);
	batoni_stage_post(stage, &token->part, BATONI_RECV, token->content,
	                  token->bytes, message->peer,
	                  stage->body_tag + (int)message->transfer->slot);
	if (batoni_list_empty(&message->tell))
		batoni_list_append(&stage->telling, &message->tell);
}

/* The receive meets the list, of whose header so much is there: message->verdict, PENDING where more
 * is to come.  False: the header is not that of this message. */
static bool
meet_declared(struct stage_message *message, const unsigned char *header, size_t there,
              size_t whole)
{
	message->verdict =
		batoni_transfer_meet_list(message->transfer, header, there,
	                                  whole, message->length);
	batoni_transfer_arrived(message->transfer, message->verdict,
	                        message->length);
	return message->verdict != BATON_ERR_PEER;
}

static void
receive_at_once(struct batoni_staging *stage, struct stage_message *message,
                const unsigned char *payload)
{
	message->state = STAGE_EAGER;
	if (message->length > 0 && !is_hosts(message->list)) {
		batoni_stage_want(stage, message);
		return;
	}
	batoni_tensor_list_scatter(message->list, payload);
	batoni_stage_over(stage, message, BATON_OK);
}

void
batoni_stage_list_eager(struct batoni_staging *stage,
                        struct stage_message *message)
{
	const unsigned char *bounce = message->first.transfer.buffer;
	size_t head = BATONI_STAGING_HEADER_BYTES + message->list->header_bytes;
	struct stage_token *token = message->eager;

	memcpy(token->memory, bounce + head, message->length);
	token->cursor = (struct stage_cursor){.at = token->memory,
	                                      .left = message->length};
	begin_copying(stage, token);
}

/* How many pieces have the first so many of the bytes that go in pieces. */
static uint64_t
pieces_of(const struct stage_message *message, size_t bytes)
{
	return bytes > 0 ? (bytes - 1) / message->piece + 1 : 0;
}

static void
receive_pieces(struct batoni_staging *stage, struct stage_message *message,
               const struct stage_header *header)
{
	message->state = STAGE_PIECES;
	message->stream = message->rest + message->length;
	message->piece = stage_min((size_t)header->piece,
	                           stage->config.chunk_bytes);
	message->pieces = pieces_of(message, message->stream);
	message->limit = message->rest_left > 0
	                         ? pieces_of(message, message->rest)
	                         : message->pieces;
	batoni_stage_want(stage, message);
}

void
batoni_stage_list_matched(struct batoni_staging *stage,
                          struct stage_message *message,
                          const struct stage_header *header,
                          const unsigned char *behind, size_t n)
{
	bool asks = header->kind == HEADER_LIST_ASKS;
	size_t whole = (size_t)header->list_bytes;
	size_t there = asks ? n : whole;
	bool agrees = meet_declared(message, behind, there, whole);

	if (message->verdict == BATON_PENDING)
		message->rest = message->rest_left = whole - there;
	if (!agrees)
		batoni_stage_refuse(stage, message, "the header of a list");
	else if (message->verdict != BATON_OK &&
	         message->verdict != BATON_PENDING)
		batoni_stage_decline(stage, message, asks, message->verdict);
	else if (asks)
		receive_pieces(stage, message, header);
	else
		receive_at_once(stage, message, behind + whole);
}

void
batoni_stage_list_refused(struct batoni_staging *stage,
                          struct stage_message *message)
{
	message->refusing = false;
	batoni_stage_decline(stage, message, message->limit < message->pieces,
	                     message->verdict);
}

/* The rest of the list's header is there, and this piece (or NULL) has payload behind it. */
static void
described_all(struct batoni_staging *stage, struct stage_message *message,
              struct stage_token *token)
{
	struct batoni_tensor_list *list = message->list;
	size_t begun = stage_min((size_t)message->limit * message->piece,
	                         message->stream);

	if (!meet_declared(message, list->header, list->header_bytes,
	                   list->header_bytes)) {
		if (token)
			batoni_stage_give(stage, token);
		batoni_stage_refuse(stage, message, "the header of a list");
		return;
	}
	if (message->verdict != BATON_OK) {
		if (token)
			batoni_stage_give(stage, token);
		/* A grant is answered by one message at a time. */
		message->refusing = true;
		if (!message->control.lower)
			batoni_stage_list_refused(stage, message);
		return;
	}
	skip(list, &message->cursor, begun - message->rest);
	message->limit = message->pieces;
	if (message->begun < message->pieces)
		batoni_stage_want(stage, message);
	if (token)
		begin_copying(stage, token);
}

void
batoni_stage_list_came(struct batoni_staging *stage, struct stage_token *token)
{
	struct stage_message *message = token->message;
	struct batoni_tensor_list *list = message->list;
	size_t head = header_part(message, token), there;

	if (head == 0) {
		if (token->cursor.left > 0)
			begin_copying(stage, token);
		else
			batoni_stage_piece_done(stage, token);
		return;
	}
	there = list->header_bytes - message->rest;
	memcpy(list->header + there + token->first, token->memory, head);
	message->rest_left -= head;
	token->cursor = (struct stage_cursor){
		.at = token->memory + head,
		.left = token->bytes - head,
	};
	if (token->cursor.left > 0) {
		message->held = token;
	} else {
		/* The piece has bytes of the header alone.  Whether it was the last of all is
		 * asked below. */
		batoni_stage_give(stage, token);
		message->ended++;
	}
	if (message->rest_left > 0)
		return;
	token = message->held;
	message->held = NULL;
	described_all(stage, message, token);
	if (message->transfer && !message->over && !message->refusing &&
	    message->ended == message->pieces) {
		batoni_transfer_moved(message->transfer, message->length);
		batoni_stage_over(stage, message, BATON_OK);
	}
}
