/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked mode: sends and receives meet, and are compared; what the peers say.  The note at the
 * top of nccl_checked.c has the protocol.
 *
 * A receive and a header of one peer never wait for each other: one of the two lists of a peer is
 * empty.
 */
#include <stdio.h>
#include <string.h>

#include "nccl_checked.h"
#include "tensors.h"

/* ---- meeting ---- */

struct batoni_nccl_control
batoni_nccl_describe_op(const struct batoni_nccl_op *op,
                        enum batoni_nccl_says kind, uint32_t slot)
{
	return (struct batoni_nccl_control){
		.kind = (uint8_t)kind,
		.operation = batoni_nccl_sends(op) ? BATON_OPERATION_SEND
	                                           : BATON_OPERATION_RECV,
		.type = (uint8_t)op->type,
		.slot = slot,
		.bytes = op->transfer->bytes,
	};
}

void
batoni_nccl_differ(struct batoni_nccl_op *op, enum batoni_nccl_difference what,
                   int type, size_t bytes)
{
	op->difference = what;
	op->their_type = type;
	op->their_bytes = bytes;
}

/* Say what comes of the header in this slot. */
static void
answer_header(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
              enum batoni_nccl_says kind, uint32_t slot)
{
	struct batoni_nccl_control control =
		batoni_nccl_describe_op(op, kind, slot);

	control.other = op->transfer->slot;
	batoni_nccl_say(checked, op->transfer->peer, &control);
	op->state = BATONI_NCCL_MET;
	batoni_list_remove(&op->link);
}

void
batoni_nccl_agree(struct batoni_nccl_checked *checked,
                  struct batoni_nccl_op *op, uint32_t slot)
{
	if (batoni_nccl_leads(checked, op)) {
		op->other = slot;
		batoni_nccl_make_ready(checked, op);
	} else {
		answer_header(checked, op, BATONI_NCCL_SAYS_AGREED, slot);
	}
}

/* The receive and the header have met: PENDING, or MISMATCH, in which the receive is to end. */
static enum baton_status
meet_header(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
            const struct batoni_nccl_control *header)
{
	if (header->described > 0 || batoni_transfer_list(op->transfer))
		return batoni_nccl_meet_list(checked, op, header);
	if (header->operation == BATON_OPERATION_SEND &&
	    header->bytes == op->transfer->bytes && header->type == op->type) {
		batoni_nccl_agree(checked, op, header->slot);
		return BATON_PENDING;
	}
	answer_header(checked, op, BATONI_NCCL_SAYS_MISMATCH, header->slot);
	batoni_nccl_differ(op, BATONI_NCCL_DIFFERS, header->type,
	                   (size_t)header->bytes);
	return BATON_ERR_MISMATCH;
}

static struct batoni_nccl_header
take_header(struct batoni_nccl_checked *checked, struct batoni_nccl_peer *peer,
            unsigned at)
{
	struct batoni_nccl_header header = peer->headers[at];

	peer->headers_n--;
	memmove(&peer->headers[at], &peer->headers[at + 1],
	        (peer->headers_n - at) * sizeof(header));
	checked->withdrawn -= header.withdrawn;
	return header;
}

static enum baton_status
begin_recv(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	struct batoni_nccl_peer *peer = &checked->peers[op->transfer->peer];
	struct batoni_nccl_header header;

	if (peer->headers_n == 0) {
		op->state = BATONI_NCCL_POSTED;
		batoni_list_append(&peer->receives, &op->link);
		return BATON_PENDING;
	}
	header = take_header(checked, peer, 0);
	return meet_header(checked, op, &header.control);
}

static void
tell_peer(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	const struct batoni_tensor_list *list =
		batoni_transfer_list(op->transfer);
	struct batoni_nccl_control header = batoni_nccl_describe_op(
		op, BATONI_NCCL_SAYS_HEADER, op->transfer->slot);

	header.described = list ? list->header_bytes : 0;
	op->state = BATONI_NCCL_TOLD;
	batoni_list_remove(&op->link);
	checked->peers[op->transfer->peer].told++;
	batoni_nccl_say(checked, op->transfer->peer, &header);
}

void
batoni_nccl_tell_waiting(struct batoni_nccl_checked *checked,
                         struct batoni_nccl_peer *peer)
{
	while (peer->told < BATONI_NCCL_AHEAD &&
	       !batoni_list_empty(&peer->sends))
		tell_peer(checked, batoni_nccl_to_op(peer->sends.next));
}

static enum baton_status
begin_send(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	struct batoni_nccl_peer *peer = &checked->peers[op->transfer->peer];

	op->state = BATONI_NCCL_WAITING;
	batoni_list_append(&peer->sends, &op->link);
	batoni_nccl_tell_waiting(checked, peer);
	return BATON_PENDING;
}

/* They agree: the receive has the send. */
static void
pair(struct batoni_nccl_checked *checked, struct batoni_nccl_op *send,
     struct batoni_nccl_op *receive)
{
	receive->partner = send;
	send->state = BATONI_NCCL_READY;
	batoni_nccl_make_ready(checked, receive);
}

/* The first of these has come, and the other waited; one of them at least is a list. */
static enum baton_status
lists_meet_here(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op,
                struct batoni_nccl_op *other)
{
	bool sends = batoni_nccl_sends(op);
	struct batoni_nccl_op *send = sends ? op : other;
	struct batoni_nccl_op *receive = sends ? other : op;
	enum baton_status status;

	if (batoni_nccl_meets_itself(send, receive, &status)) {
		pair(checked, send, receive);
		return BATON_PENDING;
	}
	batoni_nccl_op_end(checked, other, sends ? status : BATON_OK);
	return sends ? BATON_OK : status;
}

/* Both ends are this rank's: they meet here, and are launched together. */
static enum baton_status
begin_to_itself(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	struct batoni_nccl_peer *self = &checked->peers[op->transfer->peer];
	struct batoni_list_node *others =
		batoni_nccl_sends(op) ? &self->receives : &self->sends;
	struct batoni_nccl_op *other;

	op->state = BATONI_NCCL_POSTED;
	if (batoni_list_empty(others)) {
		batoni_list_append(batoni_nccl_sends(op) ? &self->sends
		                                         : &self->receives,
		                   &op->link);
		return BATON_PENDING;
	}
	other = batoni_nccl_to_op(others->next);
	batoni_list_remove(&other->link);
	if (batoni_transfer_list(op->transfer) ||
	    batoni_transfer_list(other->transfer))
		return lists_meet_here(checked, op, other);
	if (other->transfer->bytes != op->transfer->bytes ||
	    other->type != op->type) {
		batoni_nccl_differ(op, BATONI_NCCL_DIFFERS, other->type,
		                   other->transfer->bytes);
		batoni_nccl_differ(other, BATONI_NCCL_DIFFERS, op->type,
		                   op->transfer->bytes);
		batoni_nccl_op_end(checked, other, BATON_ERR_MISMATCH);
		return BATON_ERR_MISMATCH;
	}
	pair(checked, batoni_nccl_sends(op) ? op : other,
	     batoni_nccl_sends(op) ? other : op);
	return BATON_PENDING;
}

enum baton_status
batoni_nccl_begin(struct batoni_nccl_checked *checked,
                  struct batoni_nccl_op *op)
{
	if (batoni_nccl_is_to_itself(checked, op))
		return begin_to_itself(checked, op);
	return batoni_nccl_sends(op) ? begin_send(checked, op)
	                             : begin_recv(checked, op);
}

/* ---- what peers say ---- */

static void
heard_header(struct batoni_nccl_checked *checked, struct batoni_nccl_peer *peer,
             const struct batoni_nccl_control *control)
{
	struct batoni_nccl_op *op;

	if (batoni_list_empty(&peer->receives)) {
		peer->headers[peer->headers_n++] =
			(struct batoni_nccl_header){.control = *control};
		return;
	}
	op = batoni_nccl_to_op(peer->receives.next);
	if (meet_header(checked, op, control) == BATON_ERR_MISMATCH)
		batoni_nccl_op_end(checked, op, BATON_ERR_MISMATCH);
}

/* Headers whose sends have ended are answered, if this rank leaves. */
void
batoni_nccl_answer_withdrawn(struct batoni_nccl_checked *checked, int rank)
{
	struct batoni_nccl_peer *peer = &checked->peers[rank];

	for (unsigned i = 0; i < peer->headers_n;) {
		struct batoni_nccl_control answer = {
			.kind = BATONI_NCCL_SAYS_WITHDRAWN,
			.slot = peer->headers[i].control.slot,
		};

		if (!peer->headers[i].withdrawn) {
			i++;
			continue;
		}
		take_header(checked, peer, i);
		batoni_nccl_say(checked, rank, &answer);
	}
}

static void
heard_withdraw(struct batoni_nccl_checked *checked, int rank, uint32_t slot)
{
	struct batoni_nccl_peer *peer = &checked->peers[rank];

	for (unsigned i = 0; i < peer->headers_n; i++) {
		struct batoni_nccl_header *header = &peer->headers[i];

		if (header->control.slot != slot || header->withdrawn)
			continue;
		header->withdrawn = true;
		checked->withdrawn++;
	}
	/* None: it has met a receive meanwhile, and its answer is on the way. */
}

static void
heard_answer(struct batoni_nccl_checked *checked, int rank,
             struct batoni_nccl_op *op, const struct batoni_nccl_control *control)
{
	struct batoni_nccl_peer *peer = &checked->peers[rank];

	peer->told--;
	batoni_nccl_unsay(checked, rank, BATONI_NCCL_SAYS_WITHDRAW,
	                  control->slot);
	if (control->kind == BATONI_NCCL_SAYS_AGREED ||
	    control->kind == BATONI_NCCL_SAYS_GO) {
		op->other = control->other;
		batoni_nccl_make_ready(checked, op);
	} else if (control->kind == BATONI_NCCL_SAYS_WITHDRAWN) {
		batoni_nccl_op_end(checked, op, BATON_ERR_CANCELED);
	} else if (control->kind == BATONI_NCCL_SAYS_TAKEN) {
		batoni_transfer_moved(op->transfer, op->transfer->bytes);
		batoni_nccl_op_end(checked, op, BATON_OK);
	} else {
		/* Of one that has ended before, what is told does not change: a thread of the
		 * program may read it. */
		if (!op->withdrawn)
			batoni_nccl_differ(op, BATONI_NCCL_DIFFERS,
			                   control->type,
			                   (size_t)control->bytes);
		batoni_nccl_op_end(checked, op, BATON_ERR_MISMATCH);
	}
	batoni_nccl_tell_waiting(checked, peer);
}

/* The operation with the peer that is in this slot and this state, or NULL. */
static struct batoni_nccl_op *
find_in_state(struct batoni_nccl_checked *checked, int rank, uint32_t slot,
              enum batoni_nccl_op_state state)
{
	struct batoni_nccl_op *op =
		slot < checked->slots ? &checked->ops[slot] : NULL;

	return op && op->transfer && op->transfer->peer == rank &&
	                       op->state == state
	               ? op
	               : NULL;
}

static bool
heard_launched(struct batoni_nccl_checked *checked, int rank,
               const struct batoni_nccl_control *control)
{
	struct batoni_nccl_check_lane *lane;

	if (control->slot >= checked->lanes_n)
		return false;
	lane = &checked->lanes[control->slot];
	if (control->count > lane->unacknowledged || lane->led != rank)
		return false;
	lane->unacknowledged -= control->count;
	return true;
}

static bool
understand(struct batoni_nccl_checked *checked, int rank,
           const struct batoni_nccl_control *control)
{
	struct batoni_nccl_peer *peer = &checked->peers[rank];
	struct batoni_nccl_op *op;

	switch ((enum batoni_nccl_says)control->kind) {
	case BATONI_NCCL_SAYS_HEADER:
		if (peer->headers_n == BATONI_NCCL_AHEAD ||
		    control->described > BATONI_TENSORS_HEADER_MAX ||
		    (control->described > 0 &&
		     control->described < BATONI_TENSORS_FIXED_BYTES))
			return false;
		heard_header(checked, peer, control);
		return true;
	case BATONI_NCCL_SAYS_WITHDRAW:
		heard_withdraw(checked, rank, control->slot);
		return true;
	case BATONI_NCCL_SAYS_LAUNCHED:
		return heard_launched(checked, rank, control);
	case BATONI_NCCL_SAYS_GO:
		op = find_in_state(checked, rank, control->slot, BATONI_NCCL_MET);
		if (op) {
			batoni_nccl_make_ready(checked, op);
			return true;
		}
		/* fall through */
	case BATONI_NCCL_SAYS_AGREED:
	case BATONI_NCCL_SAYS_MISMATCH:
	case BATONI_NCCL_SAYS_WITHDRAWN:
	case BATONI_NCCL_SAYS_TAKEN:
		op = find_in_state(checked, rank, control->slot, BATONI_NCCL_TOLD);
		if (op)
			heard_answer(checked, rank, op, control);
		return op != NULL;
	case BATONI_NCCL_SAYS_FETCH:
		op = find_in_state(checked, rank, control->slot, BATONI_NCCL_TOLD);
		return op && batoni_nccl_heard_fetch(checked, op, control);
	case BATONI_NCCL_SAYS_PIECE:
		op = find_in_state(checked, rank, control->slot, BATONI_NCCL_FETCHING);
		return op && batoni_nccl_heard_piece(checked, op, control);
	}
	return false;
}

void
batoni_nccl_heard(struct batoni_nccl_checked *checked, int peer,
                  const struct batoni_nccl_control *control)
{
	char text[80];

	/* What was said before an abort, or before the communicator broke, is heard after it. */
	if (checked->dropped || checked->failed || understand(checked, peer, control))
		return;
	snprintf(text, sizeof(text),
	         "record %u of rank %d is not one of checked mode or of lists",
	         control->kind, peer);
	batoni_nccl_fail(checked, BATON_ERR_PEER, NULL, 0, text);
}
