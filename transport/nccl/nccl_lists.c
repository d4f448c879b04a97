/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that are lists of tensors (tensor_list.h), in checked mode, and in plain mode on a path
 * of their own; the note at the top of nccl_checked.c has the rest.
 *
 * A list has its place in the FIFO of a peer as any message.  HEADER says how long the list's
 * own header is; nothing else of that is sent before a receive has met it.
 *
 *   source                                    target
 *   HEADER (described, bytes) --------------> meets the next receive
 *   TOLD                                      a plain one, or it is a plain message: the receive
 *                                             ends in MISMATCH, TAKEN
 *                                             a list: FETCHING
 *         <------------- FETCH (from, count)
 *   PIECE ... ------------------------------> all that was asked for is there: FETCH again, or
 *                                             the list's header is whole, and is compared
 *                                             differs, arena too small, or there is no payload:
 *                                             the receive ends, TAKEN
 *   ends in OK <------------------- TAKEN ---
 *                                             agrees: as any message that has met
 *
 * So it has met when it has been compared.  Messages behind it may meet and be launched before;
 * both ranks launch in the order in which they say so, as always.
 *
 * The pieces are control messages, so they need no buffers, tags or slots of their own.  At most
 * BATONI_NCCL_PIECES are asked for at a time, for one receive of a peer: how many control messages can wait
 * stays bounded.  A list of up to 20 tensors costs one round trip more than a plain message.
 *
 * The payload.  Each tensor that has bytes is a message of NCCL's, from where it lies to where it
 * is to be: nothing is packed, and no memory is needed.  Both ranks know the same tensors, so they
 * call NCCL alike: BATONI_NCCL_GROUP of them in one group, and group after group on the lane,
 * with nothing between.  The end is a mark behind the last one.
 *
 * Ends.  A receive that is FETCHING has met, and cannot be taken back (BUSY).  Its list, which
 * the pieces are written to, stays until then; so does that of a send, which is lent as long as it
 * is TOLD.  An abort ends both at once, since only this file's code touches them, on the driver.
 * Of lists that differ the receive alone ends in MISMATCH, other than of plain messages.
 *
 * Threads: the driver alone, but for batoni_nccl_check_list.
 */
#include <string.h>

#include "memory.h"
#include "nccl_checked.h"
#include "tensors.h"

static size_t
least(size_t a, size_t b)
{
	return a < b ? a : b;
}

size_t
batoni_nccl_payload(const struct batoni_transfer *transfer)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	return list ? list->payload_bytes : transfer->bytes;
}

/* ---- memory ---- */

static enum baton_status
check_tensor(const struct batoni_nccl *nccl, size_t i, unsigned location,
             size_t bytes)
{
	return bytes == 0 || batoni_nccl_reaches(nccl, location)
	               ? BATON_OK
	               : batoni_nccl_refuse_memory(nccl, location, i);
}

enum baton_status
batoni_nccl_check_list(const struct batoni_nccl *nccl,
                       const struct batoni_transfer *transfer)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	bool sends = transfer->direction == BATONI_SEND;
	size_t n = sends ? list->count : list->declared_n;
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++) {
		size_t bytes;

		if (sends)
			bytes = list->segments[i].bytes;
		else if (list->declared[i].data)
			batoni_tensor_bytes(&list->declared[i], &bytes);
		else
			bytes = list->arena_bytes;
		status = check_tensor(nccl, i, batoni_tensor_list_memory(list, i),
		                      bytes);
	}
	return status;
}

/* ---- the source ---- */

static size_t
piece_bytes(size_t whole, size_t from)
{
	return least(whole - from, BATONI_NCCL_PIECE_BYTES);
}

bool
batoni_nccl_heard_fetch(struct batoni_nccl_checked *checked,
                        const struct batoni_nccl_op *op,
                        const struct batoni_nccl_control *control)
{
	const struct batoni_tensor_list *list =
		batoni_transfer_list(op->transfer);
	uint64_t from = control->bytes;

	/* A target asks when it has all that it has asked for, so none of that waits here.  One
	 * that does not would fill this rank's control messages. */
	if (!list || !batoni_nccl_sends(op) ||
	    control->count > BATONI_NCCL_PIECES ||
	    batoni_nccl_waits_to_say(checked, op->transfer->peer,
	                             BATONI_NCCL_SAYS_PIECE))
		return false;
	for (uint32_t i = 0; i < control->count; i++) {
		struct batoni_nccl_control piece = {
			.kind = BATONI_NCCL_SAYS_PIECE, .slot = control->other};

		if (from >= list->header_bytes)
			return false;
		piece.used = (uint8_t)piece_bytes(list->header_bytes,
		                                  (size_t)from);
		memcpy(piece.piece, list->header + from, piece.used);
		batoni_nccl_say(checked, op->transfer->peer, &piece);
		from += piece.used;
	}
	return true;
}

/* ---- the target ---- */

static void
say_taken(struct batoni_nccl_checked *checked, const struct batoni_nccl_op *op,
          uint32_t slot)
{
	const struct batoni_nccl_control control =
		batoni_nccl_describe_op(op, BATONI_NCCL_SAYS_TAKEN, slot);

	batoni_nccl_say(checked, op->transfer->peer, &control);
}

/* For the next pieces. */
static void
fetch(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	size_t most = BATONI_NCCL_PIECES * BATONI_NCCL_PIECE_BYTES;
	size_t bytes = least(op->wanted - op->fetched, most);
	const struct batoni_nccl_control control = {
		.kind = BATONI_NCCL_SAYS_FETCH,
		.slot = op->other,
		.other = op->transfer->slot,
		.count = (uint32_t)((bytes + BATONI_NCCL_PIECE_BYTES - 1) /
	                            BATONI_NCCL_PIECE_BYTES),
		.bytes = op->fetched,
	};

	op->asked = op->fetched + bytes;
	batoni_nccl_say(checked, op->transfer->peer, &control);
}

enum baton_status
batoni_nccl_meet_list(struct batoni_nccl_checked *checked,
                      struct batoni_nccl_op *op,
                      const struct batoni_nccl_control *header)
{
	struct batoni_nccl_peer *peer = &checked->peers[op->transfer->peer];
	struct batoni_tensor_list *list = batoni_transfer_list(op->transfer);

	batoni_list_remove(&op->link);
	if (!list || header->described == 0) {
		say_taken(checked, op, header->slot);
		batoni_transfer_moved(op->transfer, (size_t)header->bytes);
		if (list)
			batoni_tensor_list_meet_plain(list, (size_t)header->bytes);
		return BATON_ERR_MISMATCH;
	}
	op->state = BATONI_NCCL_FETCHING;
	op->other = header->slot;
	op->payload = (size_t)header->bytes;
	op->described = (size_t)header->described;
	op->fetched = 0;
	/* Of one that does not fit: how many tensors it has. */
	op->wanted = op->described <= list->header_max
	                     ? op->described
	                     : BATONI_TENSORS_FIXED_BYTES;
	batoni_list_append(&peer->fetches, &op->link);
	if (peer->fetches.next == &op->link)
		fetch(checked, op);
	return BATON_PENDING;
}

/* The list's header is there: how the receive stands. */
static enum baton_status
compare(struct batoni_nccl_op *op)
{
	const struct batoni_tensor_list *list =
		batoni_transfer_list(op->transfer);
	enum baton_status status = batoni_transfer_meet_list(
		op->transfer, list->header, op->wanted, op->described,
		op->payload);

	batoni_transfer_arrived(op->transfer, status, op->payload);
	return status;
}

/* False: the list's header is not what the control messages say of it. */
static bool
fetched(struct batoni_nccl_checked *checked, struct batoni_nccl_op *op)
{
	struct batoni_nccl_peer *peer = &checked->peers[op->transfer->peer];
	enum baton_status status = compare(op);

	batoni_list_remove(&op->link);
	if (!batoni_list_empty(&peer->fetches))
		fetch(checked, batoni_nccl_to_op(peer->fetches.next));
	if (status == BATON_ERR_PEER)
		return false;
	if (status == BATON_OK && op->payload > 0) {
		batoni_nccl_agree(checked, op, op->other);
		return true;
	}
	say_taken(checked, op, op->other);
	batoni_nccl_op_end(checked, op, status);
	return true;
}

bool
batoni_nccl_heard_piece(struct batoni_nccl_checked *checked,
                        struct batoni_nccl_op *op,
                        const struct batoni_nccl_control *control)
{
	const struct batoni_nccl_peer *peer =
		&checked->peers[op->transfer->peer];
	struct batoni_tensor_list *list = batoni_transfer_list(op->transfer);
	/* Of one that is cut off the last piece may have more. */
	size_t bytes = piece_bytes(op->wanted, op->fetched);

	if (peer->fetches.next != &op->link || op->fetched == op->asked ||
	    control->used != piece_bytes(op->described, op->fetched))
		return false;
	memcpy(list->header + op->fetched, control->piece, bytes);
	op->fetched += bytes;
	if (op->fetched == op->wanted)
		return fetched(checked, op);
	if (op->fetched == op->asked)
		fetch(checked, op);
	return true;
}

/* ---- to oneself ---- */

bool
batoni_nccl_meets_itself(struct batoni_nccl_op *send,
                         struct batoni_nccl_op *receive,
                         enum baton_status *status_p)
{
	*status_p = batoni_transfer_meet_send(receive->transfer, send->transfer);
	return *status_p == BATON_OK && batoni_nccl_payload(send->transfer) > 0;
}
