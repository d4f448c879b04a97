/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handing puts over to messages: lanes (message.c describes them).
 *
 * Everything runs on the driver.  A lane is freed before the end of its put is reported,
 * so that an operation which continues at that end can use the lane.
 */
#include "message.h"

#include <string.h>

/* The payload that fits behind a header. */
#define INLINE_MAX (BATONI_MESSAGE_MAX - sizeof(struct batoni_header))

bool
batoni_lane_part_ended(struct batoni_lane *lane,
                       const struct batoni_transfer *part,
                       enum baton_status status)
{
	if (status != BATON_OK && lane->status == BATON_OK) {
		lane->status = status;
		lane->put->native_call = part->native_call;
		lane->put->native_code = part->native_code;
	}
	assert(lane->parts > 0);
	return --lane->parts == 0;
}

/* A lane for this put; NULL: none is free. */
static struct batoni_lane *
take_lane(struct batoni_rma *rma, struct batoni_wire *wire,
          struct batoni_transfer *put)
{
	struct batoni_messages *messages = rma->messages;
	struct batoni_lane *lane = &wire->lane;

	if (messages->free_lanes)
		lane = &messages->lanes[__builtin_ctz(messages->free_lanes)];
	if (lane->put)
		return NULL;
	/* No effect on a channel's lane. */
	messages->free_lanes &= messages->free_lanes - 1;
	messages->busy++;
	rma->base.path.load.awaiting++;
	lane->put = put;
	lane->status = BATON_OK;
	lane->parts = 1;
	return lane;
}

static void
give_lane(struct batoni_rma *rma, struct batoni_lane *lane)
{
	struct batoni_messages *messages = rma->messages;

	lane->put = NULL;
	messages->busy--;
	rma->base.path.load.awaiting--;
	if (lane->number >= 0)
		messages->free_lanes |= 1u << lane->number;
}

/* Announce this channel to the peer. */
static enum baton_status
greet(struct batoni_rma *rma, struct batoni_wire *wire)
{
	struct batoni_messages *messages = rma->messages;
	enum baton_status status;

	if (wire->greeted)
		return BATON_OK;
	messages->lent++;
	messages->busy++;
	status = batoni_path_issue(&rma->transport->messages,
	                           &wire->hello_transfer);
	wire->greeted = status == BATON_PENDING || status == BATON_OK;
	if (status == BATON_PENDING)
		return BATON_OK;
	messages->lent--;
	messages->busy--;
	return status;
}

void
batoni_lane_end(struct batoni_rma *rma, struct batoni_lane *lane)
{
	struct batoni_transfer *put = lane->put;

	/* The lane is free before the end is reported: the report needs nothing of it. */
	give_lane(rma, lane);
	batoni_put_ended(rma, put, lane->status);
}

/* Hand one message of the lane over to the transport. */
static enum baton_status
send_part(struct batoni_rma *rma, struct batoni_lane *lane,
          struct batoni_transfer *part)
{
	enum baton_status status;

	part->native_call = NULL;
	part->native_code = 0;
	lane->parts++;
	rma->messages->lent++;
	status = batoni_path_issue(&rma->transport->messages, part);
	if (status == BATON_PENDING)
		return BATON_OK;
	rma->messages->lent--;
	batoni_lane_part_ended(lane, part, status);
	return status;
}

/* Write the lane's first message.  Returns whether a payload message follows. */
static bool
fill(struct batoni_rma *rma, struct batoni_lane *lane,
     const struct batoni_pending *pending, bool with_data)
{
	const struct batoni_transfer *put = pending->transfer;
	struct batoni_header header = {
		.magic = BATONI_MESSAGE_MAGIC,
		.version = BATONI_MESSAGE_VERSION,
		.payload = BATONI_PAYLOAD_NONE,
		.signal_index = pending->put.signal_index,
		.context = put->tag,
	};
	char *message = lane->header.buffer;

	if (pending->put.window)
		header.window = pending->put.window->id;
	else
		header.offset = pending->put.more;

	lane->header.peer = lane->payload.peer = put->peer;
	lane->header.tag = batoni_header_tag(rma, put->tag);
	lane->header.bytes = sizeof(header);
	if (with_data && put->bytes > 0) {
		bool fits = put->bytes <= INLINE_MAX &&
		            lane->header.buffer != &lane->own &&
		            !pending->put.device;

		header.payload = fits ? BATONI_PAYLOAD_INLINE : BATONI_PAYLOAD_SEPARATE;
		header.offset = pending->put.offset;
		header.bytes = put->bytes;
		if (fits) {
			memcpy(message + sizeof(header), put->buffer, put->bytes);
			lane->header.bytes += put->bytes;
		}
	}
	if (pending->put.window && pending->put.native) {
		header.payload = BATONI_PAYLOAD_NATIVE;
		header.offset = pending->put.units;
		header.bytes = put->bytes;
	}
	memcpy(message, &header, sizeof(header));
	lane->payload.tag = lane->header.tag + 1;
	lane->payload.buffer = put->buffer;
	lane->payload.bytes = put->bytes;
	lane->payload.place = put->place & 0x3fu;
	return header.payload == BATONI_PAYLOAD_SEPARATE;
}

enum baton_status
batoni_message_put(struct batoni_rma *rma, uint32_t slot, bool with_data)
{
	struct batoni_messages *messages = rma->messages;
	struct batoni_pending *pending = &rma->pending[slot];
	struct batoni_transfer *put = pending->transfer;
	struct batoni_link *link = batoni_link_of(rma, put->peer);
	struct batoni_wire *wire = batoni_wire_of(&link->channels[put->tag]);
	enum baton_status status;
	struct batoni_lane *lane;
	bool separate;

	/* Peers may signal in return before this rank waits, and on some transports a
	 * message does not end before it is received. */
	batoni_messages_post(rma);
	lane = take_lane(rma, wire, put);
	if (!lane)
		return BATON_ERR_AGAIN;
	status = greet(rma, wire);
	if (status != BATON_OK) {
		put->native_call = wire->hello_transfer.native_call;
		put->native_code = wire->hello_transfer.native_code;
		give_lane(rma, lane);
		return status;
	}
	separate = fill(rma, lane, pending, with_data);
	status = send_part(rma, lane, &lane->header);
	if (status != BATON_OK) {
		give_lane(rma, lane);
		return status;
	}
	link->sent++;
	if (pending->put.window)
		pending->put.window->sent++;
	if (separate)
		send_part(rma, lane, &lane->payload);
	/* The caller gets PENDING first; batoni_messages_test reports the end. */
	if (batoni_lane_part_ended(lane, &lane->header, BATON_OK))
		batoni_message_note(rma, &messages->ended_lanes, &lane->link);
	return BATON_PENDING;
}
