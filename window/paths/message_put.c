/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handing puts, gets and probes over to messages: lanes (message.c describes them).
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
	if (part == &lane->payload)
		lane->awaits = false;
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
	lane->probed = NULL;
	lane->awaits = false;
	lane->status = BATON_OK;
	lane->parts = 1;
	return lane;
}

void
batoni_lane_give(struct batoni_rma *rma, struct batoni_lane *lane)
{
	struct batoni_messages *messages = rma->messages;

	lane->put = NULL;
	batoni_lane_set_left(rma, lane, false);
	messages->busy--;
	rma->base.path.load.awaiting--;
	if (lane->number >= 0)
		messages->free_lanes |= 1u << lane->number;
	batoni_flushes_wake(rma);
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
	bool asked = lane->payload.direction == BATONI_RECV;
	enum baton_status status =
		asked ? batoni_get_judge(lane, lane->status) : lane->status;
	struct batoni_wire *probed = lane->probed;
	struct batoni_transfer *put = lane->put;

	/* The lane is free before the end is reported: the report needs nothing of it. */
	batoni_lane_give(rma, lane);
	if (probed)
		batoni_probe_ended(rma, probed, status);
	else
		batoni_put_ended(rma, put, status);
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

/* Write the lane's first message, behind which `behind` bytes of the put go too. */
static void
fill_header(struct batoni_rma *rma, struct batoni_lane *lane,
            const struct batoni_header *header, size_t behind)
{
	const struct batoni_transfer *put = lane->put;
	char *message = lane->header.buffer;

	memcpy(message, header, sizeof(*header));
	if (behind > 0)
		memcpy(message + sizeof(*header), put->buffer, behind);
	lane->header.peer = lane->payload.peer = put->peer;
	lane->header.tag = batoni_header_tag(rma, put->tag);
	lane->header.bytes = sizeof(*header) + behind;
}

/* Describe the lane's second message: the user's buffer, sent, or received for a get. */
static void
fill_payload(struct batoni_lane *lane, bool asks)
{
	const struct batoni_transfer *put = lane->put;

	lane->payload.direction = asks ? BATONI_RECV : BATONI_SEND;
	lane->payload.tag = lane->header.tag + (asks ? BATONI_PART_ANSWER
	                                             : BATONI_PART_PAYLOAD);
	lane->payload.buffer = put->buffer;
	lane->payload.bytes = put->bytes;
	lane->payload.location = put->location & 0x3fu;
}

static bool
fits_behind(const struct batoni_lane *lane, const struct batoni_pending *pending)
{
	return lane->put->bytes <= INLINE_MAX &&
	       lane->header.buffer != &lane->own && !pending->put.device;
}

static enum batoni_payload
payload_of(const struct batoni_lane *lane, const struct batoni_pending *pending,
           bool with_data)
{
	if (pending->put.task == BATONI_TASK_GET)
		return BATONI_PAYLOAD_GET;
	if (pending->put.window && pending->put.native)
		return BATONI_PAYLOAD_NATIVE;
	if (!with_data || lane->put->bytes == 0)
		return BATONI_PAYLOAD_NONE;
	return fits_behind(lane, pending) ? BATONI_PAYLOAD_INLINE
	                                  : BATONI_PAYLOAD_SEPARATE;
}

/* Returns whether a payload message follows, or is to come. */
static bool
fill_lane(struct batoni_rma *rma, struct batoni_lane *lane,
          const struct batoni_pending *pending, bool with_data)
{
	const struct batoni_transfer *put = pending->transfer;
	enum batoni_payload payload = payload_of(lane, pending, with_data);
	struct batoni_header header = {
		.magic = BATONI_MESSAGE_MAGIC,
		.version = BATONI_MESSAGE_VERSION,
		.payload = (uint16_t)payload,
		.signal_index = pending->put.signal_index,
		.context = put->tag,
	};

	if (pending->put.window)
		header.window = pending->put.window->id;
	else
		header.offset = pending->put.more;
	if (payload != BATONI_PAYLOAD_NONE) {
		header.offset = payload == BATONI_PAYLOAD_NATIVE
		                        ? pending->put.units
		                        : pending->put.offset;
		header.bytes = put->bytes;
	}
	fill_header(rma, lane, &header,
	            payload == BATONI_PAYLOAD_INLINE ? put->bytes : 0);
	fill_payload(lane, payload == BATONI_PAYLOAD_GET);
	return payload == BATONI_PAYLOAD_SEPARATE || payload == BATONI_PAYLOAD_GET;
}

/* The header has not left: take the receive of the answer back, which would take that of the channel's next
 * get.  OK; BUSY: it stays, and the communicator has broken. */
static enum baton_status
take_answer_back(struct batoni_rma *rma, struct batoni_lane *lane,
                 enum baton_status why)
{
	enum baton_status status;

	if (!lane->awaits)
		return BATON_OK;
	status = batoni_path_take_back(&rma->transport->messages, &lane->payload);
	if (status == BATON_ERR_BUSY) {
		rma->comm->upcalls.broken(
			&rma->comm->upcalls, why, NULL, 0,
			"the header of a get could not be sent, and the "
			"receive of its answer not be taken back");
		return status;
	}
	rma->messages->lent--;
	batoni_lane_part_ended(lane, &lane->payload, status);
	return BATON_OK;
}

/* Send what the lane has been filled with; the receive of an answer is posted before its header leaves.
 * PENDING: it will end; else the lane is free again. */
static enum baton_status
hand_over(struct batoni_rma *rma, struct batoni_lane *lane, bool second)
{
	struct batoni_link *link = batoni_link_of(rma, lane->put->peer);
	bool asks = second && lane->payload.direction == BATONI_RECV;
	enum baton_status status = BATON_OK;

	lane->awaits = asks;
	if (asks)
		status = send_part(rma, lane, &lane->payload);
	if (status == BATON_OK) {
		status = send_part(rma, lane, &lane->header);
		if (status != BATON_OK &&
		    take_answer_back(rma, lane, status) != BATON_OK)
			return BATON_PENDING;
	}
	if (status != BATON_OK) {
		batoni_lane_give(rma, lane);
		return status;
	}
	link->sent++;
	if (second && !asks)
		send_part(rma, lane, &lane->payload);
	return BATON_PENDING;
}

/* The hand-over is over.  The caller gets PENDING first; batoni_messages_test reports the end. */
static void
let_end(struct batoni_rma *rma, struct batoni_lane *lane)
{
	if (batoni_lane_part_ended(lane, &lane->header, BATON_OK))
		batoni_message_keep(rma, &rma->messages->ended_lanes, &lane->link);
}

/* A lane to the peer of this wire, for this operation.  OK; AGAIN: none is free; MPI, ... */
static enum baton_status
begin_put(struct batoni_rma *rma, struct batoni_wire *wire,
          struct batoni_transfer *put, struct batoni_lane **lane_p)
{
	enum baton_status status;

	/* Peers may signal in return before this rank waits, and on some transports a
	 * message does not end before it is received. */
	batoni_messages_post(rma);
	*lane_p = take_lane(rma, wire, put);
	if (!*lane_p)
		return BATON_ERR_AGAIN;
	status = greet(rma, wire);
	if (status == BATON_OK)
		return BATON_OK;
	put->native_call = wire->hello_transfer.native_call;
	put->native_code = wire->hello_transfer.native_code;
	batoni_lane_give(rma, *lane_p);
	return status;
}

enum baton_status
batoni_message_put(struct batoni_rma *rma, uint32_t slot, bool with_data)
{
	struct batoni_pending *pending = &rma->pending[slot];
	struct batoni_transfer *put = pending->transfer;
	struct batoni_link *link = batoni_link_of(rma, put->peer);
	struct batoni_wire *wire = batoni_wire_of(&link->channels[put->tag]);
	struct batoni_lane *lane;
	enum baton_status status = begin_put(rma, wire, put, &lane);
	bool asks = pending->put.task == BATONI_TASK_GET;
	bool second;

	if (status != BATON_OK)
		return status;
	second = fill_lane(rma, lane, pending, with_data);
	status = hand_over(rma, lane, second);
	if (status != BATON_PENDING)
		return status;
	pending->put.lane = lane;
	if (pending->put.window)
		pending->put.window->sent++;
	if (!asks && (with_data || pending->put.native))
		batoni_wire_carries(rma, wire);
	let_end(rma, lane);
	return BATON_PENDING;
}

enum baton_status
batoni_message_probe(struct batoni_rma *rma, struct batoni_wire *wire)
{
	const struct batoni_header header = {
		.magic = BATONI_MESSAGE_MAGIC,
		.version = BATONI_MESSAGE_VERSION,
		.payload = BATONI_PAYLOAD_GET,
		.signal_index = BATONI_NO_SIGNAL,
		.context = wire->probe.tag,
	};
	struct batoni_lane *lane;
	enum baton_status status = begin_put(rma, wire, &wire->probe, &lane);

	if (status != BATON_OK)
		return status;
	fill_header(rma, lane, &header, 0);
	fill_payload(lane, true);
	lane->probed = wire;
	wire->probing = ++rma->serial;
	status = hand_over(rma, lane, true);
	if (status != BATON_PENDING) {
		wire->probing = 0;
		return status;
	}
	let_end(rma, lane);
	return BATON_PENDING;
}
