/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging: pinned memory, copies, and whose turn it is.
 *
 * Chunks are for pieces, eager buffers for short messages; each direction has its own of
 * both, so that sends never wait for what receives hold, nor receives for sends.
 *
 * Turns.  A message that wants a chunk is in the queue of its direction.  The front gets one, and
 * if it wants more it goes to the end: chunks go round among the messages, one at a time.  A peer
 * that makes no progress must not stop the others.  So the messages with one peer always may have
 * one chunk, and more only while more chunks are free than there are peers without one (at most
 * half of the chunks are kept for such peers).  A message that must not have more is parked with
 * its peer.  When a chunk is given back one parked message gets its next turn: one of the same peer
 * if that has no chunk left, else one of the peer whose turn it is.
 *
 * Nothing waits in a circle.  A receive takes a chunk, posts it at the lower transport, and only then
 * grants the piece.  A send takes a chunk only for a piece that was granted.  So a send's
 * chunk always finds its receive, and is given back without further conditions; a
 * receive's chunk needs one of the peer's send chunks, of which each comes back.
 *
 * Copies.  A long one is started at once.  Short ones, as long as an eager message at most, are
 * collected, and started when the engine has issued all that was ready (`flush`), or at the end
 * of `test`: those of one direction and one GPU together, where the memory table can do that
 * (copies_start), and so with one ticket.  So what one pass finds costs one call of the driver
 * for each direction, and no copy waits for what a later pass finds.  One that is alone is an
 * ordinary copy.  Two that write the same bytes, since a program may name one buffer in several
 * receives, are not started together: the later message's stay.  Managed memory, which is
 * neither the host's nor the device's, is not collected.  Laying eager buffers side by side
 * would save nothing: each copy has the program's buffer on its other side.
 *
 * A copy that waits to be started is forgotten when its message is over; one that was started is
 * waited for.  Of copies that are started together, one that the device refuses is one that
 * fails alone: those before it are under way, those behind it are tried again.
 *
 * Tokens of lists have copies of their own (lists.c): several for one buffer.
 *
 * A copy that the device cannot take now (AGAIN) is tried again at the next of these moments,
 * before those that came later.
 */
#include <string.h>

#include "copies.h"
#include "stage.h"

static struct stage_token *
to_token(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct stage_token, link);
}

static struct stage_message *
to_waiter(struct batoni_list_node *turn)
{
	return batoni_container_of(turn, struct stage_message, turn);
}

/* How many chunks are kept for the peers that have none. */
static uint32_t
reserve(const struct batoni_staging *stage, unsigned direction)
{
	uint32_t without = (uint32_t)stage->size - stage->holders[direction];
	uint32_t half = stage->config.chunks / 2;

	return without < half ? without : half;
}

/* May the messages with this peer have one chunk more? */
static bool
may_have(const struct batoni_staging *stage, const struct stage_share *share,
         unsigned direction)
{
	uint32_t free_chunks = stage->config.chunks - stage->held[direction];

	return share->held == 0 || free_chunks > reserve(stage, direction);
}

static void
park(struct batoni_staging *stage, struct stage_share *share, unsigned direction,
     struct stage_message *message)
{
	batoni_list_append(&share->parked, &message->turn);
	if (batoni_list_empty(&share->crowd))
		batoni_list_append(&stage->crowd[direction], &share->crowd);
}

/* Let one of the share's parked messages have its turn.  The share then goes to the end of
 * stage->crowd, or leaves it if no message is parked any more.  False: none was parked (all have
 * ended). */
static bool
unpark(struct batoni_staging *stage, struct stage_share *share,
       unsigned direction)
{
	struct batoni_list_node *turn = share->parked.next;
	bool any = !batoni_list_empty(&share->parked);

	batoni_list_remove(&share->crowd);
	if (any) {
		batoni_list_remove(turn);
		batoni_list_append(&stage->wanting[direction], turn);
	}
	if (!batoni_list_empty(&share->parked))
		batoni_list_append(&stage->crowd[direction], &share->crowd);
	return any;
}

/* The share has given a chunk back: a parked message gets its turn. */
static void
unpark_one(struct batoni_staging *stage, struct stage_share *share,
           unsigned direction)
{
	struct batoni_list_node *crowd = &stage->crowd[direction];
	bool done = share->held == 0 && unpark(stage, share, direction);

	while (!done && !batoni_list_empty(crowd))
		done = unpark(stage,
		              batoni_container_of(crowd->next,
		                                  struct stage_share, crowd),
		              direction);
}

/* ---- tokens ---- */

struct stage_token *
batoni_stage_take(struct batoni_staging *stage, struct stage_message *message,
                  unsigned direction, unsigned kind)
{
	struct batoni_list_node *free_tokens = &stage->free[direction][kind];
	struct stage_peer *peer = &stage->peers[message->peer];
	struct stage_token *token;

	if (batoni_list_empty(free_tokens))
		return NULL;
	if (kind == EAGERS && direction == SENDS) {
		if (peer->eager == stage->config.eager_per_peer)
			return NULL;
		peer->eager++;
	}
	if (kind == CHUNKS) {
		stage->holders[direction] += peer->shares[direction].held++ == 0;
		stage->held[direction]++;
	}
	token = to_token(free_tokens->next);
	batoni_list_remove(&token->link);
	token->message = message;
	token->ready = false;
	token->cursor.left = 0;
	return token;
}

void
batoni_stage_give(struct batoni_staging *stage, struct stage_token *token)
{
	unsigned direction = token->direction;
	struct stage_peer *peer = &stage->peers[token->message->peer];
	struct stage_share *share = &peer->shares[direction];

	assert(!token->part.lower && batoni_list_empty(&token->copying) &&
	       batoni_list_empty(&token->packed));
	batoni_list_remove(&token->link);
	batoni_list_append(&stage->free[direction][token->kind], &token->link);
	if (token->kind != CHUNKS) {
		peer->eager -= token->kind == EAGERS && direction == SENDS;
		return;
	}
	stage->held[direction]--;
	stage->holders[direction] -= --share->held == 0;
	unpark_one(stage, share, direction);
}

/* ---- copies ---- */

void
batoni_stage_copy_failed(struct batoni_staging *stage, struct stage_token *token,
                         enum baton_status status)
{
	batoni_list_remove(&token->copying);
	batoni_stage_copy_ends(stage, token->message);
	/* Others are given back with their message. */
	if (token->kind != EAGERS && token->direction == RECVS)
		batoni_stage_give(stage, token);
	batoni_stage_fault(stage, token->message, status);
}

static struct stage_token *
to_copying(struct batoni_list_node *copying)
{
	return batoni_container_of(copying, struct stage_token, copying);
}

/* The number of the GPU whose memory the copy names; -1: it names none. */
static int
owner_of(const struct stage_token *token)
{
	return batoni_location_owner(token->message->transfer->location);
}

/* May it be started together with others? */
static bool
packs(const struct batoni_staging *stage, const struct stage_token *token)
{
	return stage->memory->batches && token->kind != COPIES &&
	       token->copy.bytes <= stage->config.eager_bytes &&
	       owner_of(token) >= 0;
}

/* The device has taken the copy: by itself, or as the first of several. */
static void
copy_started(struct batoni_staging *stage, struct stage_token *token)
{
	batoni_list_remove(&token->copying);
	batoni_list_append(&stage->copies, &token->copying);
}

/* False: the device takes no more copies now. */
static bool
start_one(struct batoni_staging *stage, struct stage_token *token)
{
	enum baton_status status = stage->memory->copy_start(
		stage->device, token->copy.to, token->copy.from,
		token->copy.bytes, owner_of(token), &token->ticket);

	if (status == BATON_ERR_AGAIN)
		return false;
	if (status == BATON_OK)
		copy_started(stage, token);
	else
		batoni_stage_copy_failed(stage, token, status);
	return true;
}

/* Does the copy write where one of the n copies does? (Each eager buffer of a send is written by
 * one copy alone.) */
static bool
overlaps(const struct stage_token *token, struct stage_token *const tokens[],
         size_t n)
{
	for (size_t i = 0; i < n && token->direction == RECVS; i++)
		if (batoni_copies_overlap(&token->copy, &tokens[i]->copy))
			return true;
	return false;
}

/* Collect the copies that wait and may be started with this one, which is the first of them, up to
 * one that has to come after them.  Returns how many there are. */
static size_t
gather(struct batoni_staging *stage, struct stage_token *first,
       struct stage_token *tokens[BATONI_COPIES_MAX])
{
	struct batoni_list_node *at = &first->copying;
	size_t n = 0;

	for (; at != &stage->waiting && n < BATONI_COPIES_MAX; at = at->next) {
		struct stage_token *token = to_copying(at);

		if (!packs(stage, token) ||
		    token->direction != first->direction ||
		    owner_of(token) != owner_of(first))
			continue;
		if (overlaps(token, tokens, n))
			break;
		tokens[n++] = token;
	}
	return n;
}

static bool
start_several(struct batoni_staging *stage,
              struct stage_token *tokens[BATONI_COPIES_MAX], size_t n)
{
	struct batoni_copy copies[BATONI_COPIES_MAX];
	struct stage_token *first = tokens[0];
	enum baton_status status;
	size_t started = 0;

	for (size_t i = 0; i < n; i++)
		copies[i] = tokens[i]->copy;
	status = stage->memory->batches->copies_start(stage->device, copies, n,
	                                              owner_of(first),
	                                              &first->ticket, &started);
	if (started > 0)
		copy_started(stage, first);
	for (size_t i = 1; i < started; i++) {
		batoni_list_remove(&tokens[i]->copying);
		batoni_list_append(&first->packed, &tokens[i]->copying);
	}
	if (status == BATON_ERR_AGAIN)
		return false;
	if (status != BATON_OK)
		batoni_stage_copy_failed(stage, tokens[started], status);
	return true;
}

void
batoni_stage_start(struct batoni_staging *stage, size_t most)
{
	struct stage_token *tokens[BATONI_COPIES_MAX];
	bool more = true;

	stage->collected = false;
	/* Each round starts the first one, or it fails. */
	while (more && !batoni_list_empty(&stage->waiting)) {
		struct stage_token *first = to_copying(stage->waiting.next);
		size_t n = packs(stage, first) ? gather(stage, first, tokens)
		                               : 1;

		more = n > 1 ? start_several(stage, tokens, n)
		             : start_one(stage, first);
	}
	if (!batoni_list_empty(&stage->listed))
		batoni_stage_list_start(stage, most);
}

void
batoni_stage_copy(struct batoni_staging *stage, struct stage_token *token,
                  void *to, const void *from, size_t bytes)
{
	token->copy = (struct batoni_copy){to, from, bytes};
	batoni_stage_copy_begins(stage, token->message);
	batoni_list_append(&stage->waiting, &token->copying);
	if (packs(stage, token))
		stage->collected = true;
	else
		start_one(stage, token);
}

static void
drop_from(struct batoni_staging *stage, struct batoni_list_node *queue,
          struct stage_message *message)
{
	struct batoni_list_node *at, *next;

	for (at = queue->next; at != queue; at = next) {
		struct stage_token *token = to_copying(at);

		next = at->next;
		if (token->message != message)
			continue;
		batoni_list_remove(&token->copying);
		batoni_stage_copy_ends(stage, message);
		/* An eager buffer is given back with its message. */
		if (token->kind != EAGERS)
			batoni_stage_give(stage, token);
	}
}

void
batoni_stage_drop(struct batoni_staging *stage, struct stage_message *message)
{
	drop_from(stage, &stage->waiting, message);
	drop_from(stage, &stage->listed, message);
}

static void
end_copy(struct batoni_staging *stage, struct stage_token *token,
         enum baton_status status)
{
	if (status != BATON_OK) {
		batoni_stage_copy_failed(stage, token, status);
		return;
	}
	batoni_list_remove(&token->copying);
	if (token->cursor.left > 0 && !token->message->over) {
		batoni_list_append(&stage->listed, &token->copying);
		return;
	}
	batoni_stage_copy_ends(stage, token->message);
	batoni_stage_copied(stage, token);
}

/* Ask whether a copy has ended, and with it those that were started together.  Returns how many
 * have ended. */
static size_t
test_copy(struct batoni_staging *stage, struct stage_token *token)
{
	enum baton_status status =
		stage->memory->copy_test(stage->device, &token->ticket);
	struct batoni_list_node together;
	size_t events = 0;

	if (status == BATON_PENDING)
		return 0;
	/* The token may get another copy when this one has ended. */
	batoni_list_init(&together);
	batoni_list_append(&token->packed, &together);
	batoni_list_remove(&token->packed);
	batoni_list_remove(&token->copying);
	batoni_list_append(together.next, &token->copying);
	while (!batoni_list_empty(&together)) {
		end_copy(stage, to_copying(together.next), status);
		events++;
	}
	return events;
}

size_t
batoni_stage_poll(struct batoni_staging *stage)
{
	struct batoni_list_node *end = stage->copies.prev;
	struct batoni_list_node *at = stage->copies.next, *next;
	bool last = batoni_list_empty(&stage->copies);
	size_t events = 0;

	/* Copies that are started meanwhile are left for the next poll. */
	for (; !last; at = next) {
		next = at->next;
		last = at == end;
		events += test_copy(stage, to_copying(at));
	}
	return events;
}

/* ---- turns ---- */

void
batoni_stage_want(struct batoni_staging *stage, struct stage_message *message)
{
	struct batoni_list_node *queue =
		&stage->wanting[message->transfer->direction];

	if (message->state == STAGE_EAGER)
		queue = &stage->eager_wanting;
	else if (message->state == STAGE_MAPPED)
		queue = &stage->copy_wanting;
	if (batoni_list_empty(&message->turn))
		batoni_list_append(queue, &message->turn);
}

/* A receive: the bytes wait in the bounce buffer of its first part. */
static void
copy_eager(struct batoni_staging *stage, struct stage_message *message,
           struct stage_token *token)
{
	const unsigned char *bounce = message->first.transfer.buffer;

	message->eager = token;
	if (message->list) {
		batoni_stage_list_eager(stage, message);
		return;
	}
	memcpy(token->memory, bounce + BATONI_STAGING_HEADER_BYTES,
	       message->length);
	batoni_stage_copy(stage, token, message->transfer->buffer, token->memory,
	                  message->length);
}

static bool
wants_more(const struct stage_message *message)
{
	return message->begun < (message->transfer->direction == BATONI_SEND
	                                 ? message->granted
	                                 : message->limit);
}

void
batoni_stage_send_ready(struct batoni_staging *stage,
                        struct stage_message *message)
{
	/* One tag has all pieces: they leave in order, whichever copy ended first. */
	while (!batoni_list_empty(&message->pieces_ready)) {
		struct stage_token *token =
			to_token(message->pieces_ready.next);

		if (!token->ready)
			return;
		batoni_list_remove(&token->link);
		batoni_stage_post(stage, &token->part, BATONI_SEND,
		                  token->content, token->bytes, message->peer,
		                  stage->body_tag + (int)message->remote);
	}
}

static void
begin_piece(struct batoni_staging *stage, struct stage_message *message,
            struct stage_token *token)
{
	const struct batoni_transfer *transfer = message->transfer;
	size_t at = (size_t)message->begun * message->piece;
	char *begin;

	message->begun++;
	token->first = at;
	token->bytes = stage_min(message->piece, message->stream - at);
	if (message->list) {
		batoni_stage_list_piece(stage, message, token);
		return;
	}
	begin = (char *)transfer->buffer + at;
	token->content = message->host ? (void *)begin : token->memory;
	if (transfer->direction == BATONI_RECV) {
		token->copy.to = begin;
		batoni_stage_post(stage, &token->part, BATONI_RECV,
		                  token->content, token->bytes, message->peer,
		                  stage->body_tag + (int)transfer->slot);
		if (batoni_list_empty(&message->tell))
			batoni_list_append(&stage->telling, &message->tell);
		return;
	}
	batoni_list_append(&message->pieces_ready, &token->link);
	token->ready = message->host;
	if (token->ready)
		batoni_stage_send_ready(stage, message);
	else
		batoni_stage_copy(stage, token, token->memory, begin,
		                  token->bytes);
}

static void
hand_out_chunks(struct batoni_staging *stage, unsigned direction)
{
	struct batoni_list_node *wanting = &stage->wanting[direction];
	struct batoni_list_node *free_chunks = &stage->free[direction][CHUNKS];

	while (!batoni_list_empty(wanting) && !batoni_list_empty(free_chunks)) {
		struct stage_message *message = to_waiter(wanting->next);
		struct stage_share *share =
			&stage->peers[message->peer].shares[direction];

		batoni_list_remove(&message->turn);
		if (!may_have(stage, share, direction)) {
			park(stage, share, direction, message);
			continue;
		}
		begin_piece(stage, message,
		            batoni_stage_take(stage, message, direction, CHUNKS));
		if (!message->over && wants_more(message))
			batoni_list_append(wanting, &message->turn);
	}
}

/* The first message that wants a token of this kind, with the token in *token_p.  NULL: no message
 * wants one, or no token is free. */
static struct stage_message *
next_waiter(struct batoni_staging *stage, struct batoni_list_node *wanting,
            unsigned kind, struct stage_token **token_p)
{
	struct stage_message *message;

	if (batoni_list_empty(wanting) ||
	    batoni_list_empty(&stage->free[RECVS][kind]))
		return NULL;
	message = to_waiter(wanting->next);
	batoni_list_remove(&message->turn);
	*token_p = batoni_stage_take(stage, message, RECVS, kind);
	return message;
}

void
batoni_stage_hand_out(struct batoni_staging *stage)
{
	struct stage_message *message;
	struct stage_token *token;

	while ((message = next_waiter(stage, &stage->eager_wanting, EAGERS,
	                              &token)))
		copy_eager(stage, message, token);
	while ((message = next_waiter(stage, &stage->copy_wanting, COPIES,
	                              &token)))
		batoni_stage_copy(stage, token, message->transfer->buffer,
		                  message->source, message->length);
	hand_out_chunks(stage, SENDS);
	hand_out_chunks(stage, RECVS);
}

void
batoni_stage_piece_done(struct batoni_staging *stage, struct stage_token *token)
{
	struct stage_message *message = token->message;

	batoni_stage_give(stage, token);
	if (++message->ended < message->pieces)
		return;
	batoni_transfer_moved(message->transfer, message->length);
	batoni_stage_over(stage, message, BATON_OK);
}
