/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the path by messages leaves, and how a window goes while it has messages (message.c
 * describes the protocol).  Everything runs on the driver.
 *
 * Leaving.  A destroy first drains: this rank's messages are sent, and those of other
 * ranks are received as before.  The receives are taken back only when all ranks have left
 * the transport.  A destroy that ends in TIMEOUT or INVALID before that has changed
 * nothing.
 *
 * `lent` counts the messages at the transport, which is closed before this layer is.
 * Memory that a library below may still write to after an abort is leaked on purpose.  A
 * transport whose bytes move only by calls of this process writes no more.
 *
 * Deregistering a window of a broken communicator, while payloads may be on their way into
 * it (batoni_messages_let_go).  From then on this rank discards incoming messages (`discards`).
 * The receives into that window are taken back.  One that cannot be is scrapped (path.h): what
 * comes of it later is dropped, and a copy that is under way is waited for.  Where the native library may write for as long as it likes (MPI), the receive stays, and the memory's owner
 * has to keep it mapped.  An answer out of that window is treated as such a receive.  On the
 * sender's side a put that ends early stays
 * lent until the transport has let go of both messages, as a send does.
 *
 * A get that has ended early keeps the receive of its answer, in the program's buffer.  When the
 * communicator breaks, or its target is gone, that is taken back (batoni_gets_give_up), so
 * that nothing is written there when the program frees it behind an abort.
 */
#include "message.h"

#include <stdatomic.h>

#include "mem.h"

/* Those that a transport may still write to; only added to, by any thread. */
static _Atomic(struct batoni_messages *) kept;

/* The wire of channel i, or NULL. */
static struct batoni_wire *
wire_at(const struct batoni_rma *rma, uint32_t i)
{
	uint32_t contexts = (uint32_t)rma->base.contexts_max;
	struct batoni_link *link = batoni_link_of(rma, (int)(i / contexts));

	return link ? batoni_wire_of(&link->channels[i % contexts]) : NULL;
}

static uint32_t
channels_count(const struct batoni_rma *rma)
{
	return (uint32_t)rma->size * (uint32_t)rma->base.contexts_max;
}

static void
take_back(struct batoni_rma *rma, struct batoni_source *source)
{
	struct batoni_transfer *current =
		source->state == BATONI_SOURCE_HEADER   ? &source->header
		: source->state == BATONI_SOURCE_ANSWER ? &source->answer
		                                        : &source->payload;
	enum baton_status status =
		batoni_path_take_back(&rma->transport->messages, current);

	if (status == BATON_ERR_BUSY)
		source->asked = true;
	else
		batoni_source_ended(rma, source, status);
}

static void
take_back_header(struct batoni_rma *rma, struct batoni_source *source)
{
	if (source->lent && source->state == BATONI_SOURCE_HEADER &&
	    !source->asked)
		take_back(rma, source);
}

/* May a payload's receive, which is at the transport, write into this memory, or an answer read it? */
static bool
touches(const struct batoni_source *source, const void *base, size_t bytes)
{
	bool answers = source->state == BATONI_SOURCE_ANSWER;
	const struct batoni_transfer *transfer =
		answers ? &source->answer : &source->payload;
	uintptr_t there = (uintptr_t)transfer->buffer;
	uintptr_t from = (uintptr_t)base;

	return source->lent && (answers || source->state == BATONI_SOURCE_PAYLOAD) &&
	       !source->scrapped && there < from + bytes &&
	       from < there + transfer->bytes;
}

bool
batoni_messages_write_to(const struct batoni_rma *rma, const void *base,
                         size_t bytes)
{
	for (uint32_t i = 0; i < channels_count(rma); i++) {
		const struct batoni_wire *wire = wire_at(rma, i);

		if (wire && touches(&wire->source, base, bytes))
			return true;
	}
	return false;
}

/* OK: the payload is not written, or the answer read, any more; PENDING, BUSY: as of scrap. */
static enum baton_status
stop_source(struct batoni_rma *rma, struct batoni_source *source)
{
	enum baton_status status;

	if (!source->asked)
		take_back(rma, source);
	if (!source->lent)
		return BATON_OK;
	status = batoni_path_scrap(&rma->transport->messages,
	                           source->state == BATONI_SOURCE_ANSWER
	                                   ? &source->answer
	                                   : &source->payload);
	source->scrapped = status == BATON_OK && source->lent;
	return status;
}

enum baton_status
batoni_messages_let_go(struct batoni_rma *rma, const void *base, size_t bytes)
{
	struct batoni_messages *messages = rma->messages;
	enum baton_status all = BATON_OK, one;

	messages->leaving = true;
	messages->discards = true;
	for (uint32_t i = 0; i < channels_count(rma); i++) {
		struct batoni_wire *wire = wire_at(rma, i);

		if (!wire || !touches(&wire->source, base, bytes))
			continue;
		one = stop_source(rma, &wire->source);
		/* PENDING passes, BUSY may not. */
		if (all == BATON_OK || one == BATON_PENDING)
			all = one;
	}
	if (all == BATON_PENDING)
		rma->transport->messages.ops->test(&rma->transport->messages);
	return all;
}

/* ---- gets that are LENT ---- */

static void
give_up_lane(struct batoni_rma *rma, struct batoni_lane *lane)
{
	enum baton_status status;

	if (!lane->left || !lane->awaits || !batoni_get_may_end(rma, lane))
		return;
	/* Asked once: what the transport keeps then has begun to arrive. */
	batoni_lane_set_left(rma, lane, false);
	status = batoni_path_take_back(&rma->transport->messages, &lane->payload);
	if (status == BATON_ERR_BUSY)
		return;
	rma->messages->lent--;
	if (batoni_lane_part_ended(lane, &lane->payload, status))
		batoni_lane_end(rma, lane);
}

void
batoni_gets_give_up(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;

	if (!messages->left || !batoni_may_drive(rma->comm))
		return;
	for (uint32_t i = 0; i < BATONI_ONESIDED_LANES; i++)
		give_up_lane(rma, &messages->lanes[i]);
	for (uint32_t i = 0; i < channels_count(rma) && messages->left; i++) {
		struct batoni_wire *wire = wire_at(rma, i);

		if (wire)
			give_up_lane(rma, &wire->lane);
	}
}

enum baton_status
batoni_messages_drain(struct batoni_rma *rma)
{
	/* A communicator with no operation pending is not on the engine's list, so
	 * nothing else tests its transport. */
	if (rma->transport->messages.load.in_flight > 0)
		rma->transport->messages.ops->test(&rma->transport->messages);
	batoni_messages_test(rma);
	return rma->messages->busy == 0 ? BATON_OK : BATON_PENDING;
}

enum baton_status
batoni_messages_leave(struct batoni_rma *rma)
{
	struct batoni_messages *messages = rma->messages;

	batoni_messages_test(rma);
	messages->leaving = true;
	take_back_header(rma, &messages->mail);
	for (uint32_t i = 0; i < channels_count(rma); i++) {
		struct batoni_wire *wire = wire_at(rma, i);

		if (wire)
			take_back_header(rma, &wire->source);
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
	if (aborted && messages->lent > 0 && !messages->lets_go) {
		messages->kept_links = rma->links;
		rma->links = NULL;
		messages->kept_next = atomic_load(&kept);
		while (!atomic_compare_exchange_weak(
			&kept, &messages->kept_next, messages))
			;
		return;
	}
	batoni_messages_free(messages);
}
