/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gets and probes by messages (message.c describes the protocol and the lanes).
 *
 * A get holds a lane, as a put does.  Its header is sent, and the lane's payload is the receive of
 * the answer, into the user's buffer.  The target's source sends the answer out of the window.
 * So no side copies the data again.
 *
 * Order.  The headers of a channel are received in order, and the next one only when the
 * answer's buffer is free again.  So a get sees the puts before it in its channel, and those behind it do
 * not change what it reads.  Answers of a channel are sent in the order of their headers, and
 * their receives are posted in that order, so the answer tag needs no numbers.
 *
 * No circle.  The receive of an answer is posted before its header is sent, in one call.  So an answer always
 * finds its receive, and its end depends on no other message.  A get whose receive cannot be posted has asked
 * for nothing; one whose header cannot be sent takes its receive back.
 * A source that answers needs no lane of its own.
 *
 * A get that cannot be met (the target checks header and window as it does those of puts) is
 * answered with nothing, and ends in MISMATCH.
 *
 * Probes.  A put by message ends when its buffer may be used again, which is before its data is in the
 * window.  A get of nothing that is answered shows that what its channel carried before is there: a
 * probe.  Messages with data, and probes, have numbers of the rank (rma->serial).  A wire whose
 * last message with data is not known to be applied is on rma->unacked; an answer moves `acked` to
 * the number of its probe.  One probe of a wire is under way at a time.  The operations that want one are flushes (flush.c).
 *
 * Taking back.  The receive of an answer can be taken back only if no later get of the channel can
 * take that answer for its own: where the communicator is broken, or the target's process is gone
 * (the engine then ends all operations that name it).  Otherwise a get that ends early is
 * LENT until it is answered, or until one of the two happens: message_close.c takes its receive back then.
 *
 * Everything runs on the driver.
 */
#include "message.h"

/* ---- the target ---- */

const char *
batoni_get_fault(const struct batoni_header *header,
                 const struct baton_window *window)
{
	if (header->offset > window->bytes ||
	    header->bytes > window->bytes - header->offset)
		return "it would leave its window";
	return NULL;
}

void
batoni_get_answer(struct batoni_rma *rma, struct batoni_source *source,
                  const void *from, size_t bytes, unsigned location)
{
	union { /* a send only reads it */
		const void *read;
		void *buffer;
	} window = {.read = from};
	enum baton_status status;

	source->answer.buffer = window.buffer;
	source->answer.bytes = bytes;
	source->answer.location = location & 0x3fu;
	source->state = BATONI_SOURCE_ANSWER;
	source->lent = true;
	source->asked = false;
	source->scrapped = false;
	rma->messages->lent++;
	status = batoni_path_issue(&rma->transport->messages, &source->answer);
	if (status != BATON_PENDING)
		batoni_source_ended(rma, source, status);
}

/* ---- the rank that asks ---- */

enum baton_status
batoni_get_judge(const struct batoni_lane *lane, enum baton_status status)
{
	if (status == BATON_ERR_TRUNCATED)
		return BATON_ERR_MISMATCH;
	return status == BATON_OK &&
	                       lane->payload.done_bytes != lane->payload.bytes
	               ? BATON_ERR_MISMATCH
	               : status;
}

void
batoni_wire_carries(struct batoni_rma *rma, struct batoni_wire *wire)
{
	if (wire->last <= wire->acked) {
		batoni_list_append(&rma->unacked, &wire->unacked);
		atomic_fetch_add_explicit(&rma->unacked_count, 1,
		                          memory_order_relaxed);
	}
	wire->last = ++rma->serial;
}

void
batoni_probe_ended(struct batoni_rma *rma, struct batoni_wire *wire,
                   enum baton_status status)
{
	bool unacked = wire->last > wire->acked;

	if (status == BATON_OK) {
		wire->acked = wire->probing;
	} else {
		wire->failed = wire->probing;
		wire->why = status;
	}
	wire->probing = 0;
	if (unacked && wire->last <= wire->acked) {
		batoni_list_remove(&wire->unacked);
		atomic_fetch_sub_explicit(&rma->unacked_count, 1,
		                          memory_order_release);
	}
	batoni_flushes_wake(rma);
}

bool
batoni_get_may_end(const struct batoni_rma *rma, const struct batoni_lane *lane)
{
	return rma->comm->fault.status != BATON_OK ||
	       rma->transport->peers[lane->payload.peer].gone;
}

enum baton_status
batoni_get_take_back(struct batoni_rma *rma, struct batoni_lane *lane)
{
	enum baton_status status;

	if (!lane->awaits)
		return BATON_ERR_BUSY;
	if (!batoni_get_may_end(rma, lane)) {
		batoni_lane_set_left(rma, lane, true);
		return BATON_ERR_BUSY;
	}
	status = batoni_path_take_back(&rma->transport->messages, &lane->payload);
	if (status == BATON_ERR_BUSY)
		return status;
	rma->messages->lent--;
	if (!batoni_lane_part_ended(lane, &lane->payload, status))
		return BATON_ERR_BUSY;
	status = batoni_get_judge(lane, lane->status);
	batoni_lane_give(rma, lane);
	return status;
}
