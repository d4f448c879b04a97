/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's small messages.
 *
 * A node for each slot:
 *
 *   send: FREE -> WAITING (for a READY) -> FREE (DATA is queued: a copy)
 *   receive: FREE -> POSTED (READY is queued) -> OVER (DATA has come) -> FREE (reported)
 *            POSTED -> RETRACTING (take_back) -> OVER (DATA or RETRACTED, whichever comes)
 *
 * Sends and READYs of one peer and tag meet in the order in which they came; a peer's lists
 * are searched from the front.  A READY that has not met is kept, `slots_most` of each peer at
 * most, which is as many as it can have.  So no message comes that no receive waits for, and
 * a message that does not meet holds up no other.  The ends of receives are
 * reported by `test`, since an exchange may not report any.
 *
 * A receive from any rank, of which there is one at a time, has a READY at each.  The first DATA
 * ends it; the READYs of the others stay where they are, for the next one, which is of the same
 * slot, tag and size.  DATA that comes while none is posted is kept, and so there is at most one
 * of each rank.  When it is taken back, all READYs are, and it is over when each was answered.
 *
 * A receive that is RETRACTING may be scrapped: DATA that comes is dropped.
 *
 * When all ranks have left, nothing comes any more, and perhaps no peer is there to answer: what is
 * taken back then ends at once.
 */
#include <assert.h>
#include <string.h>

#include "log.h"
#include "mem.h"
#include "rank.h"

/* A receive that the peer has posted. */
struct ready {
	struct batoni_list_node link;
	uint32_t slot;
	int tag;
	uint64_t bytes;
};

static struct batoni_tcp *
of_path(struct batoni_path *path)
{
	return batoni_container_of(batoni_transport_of(path), struct batoni_tcp,
	                           base);
}

static struct batoni_tcp_node *
to_node(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct batoni_tcp_node, link);
}

static struct ready *
to_ready(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct ready, link);
}

/* ---- what comes ---- */

/* The send meets the receive in `slot` of its peer. */
static void
send_data(struct batoni_tcp *tcp, const struct batoni_transfer *transfer,
          uint32_t slot, uint64_t takes)
{
	uint64_t n = transfer->bytes < takes ? transfer->bytes : takes;
	const struct batoni_tcp_frame frame = {
		.kind = BATONI_TCP_DATA,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)transfer->peer,
		.tag = (uint32_t)transfer->tag,
		.slot = slot,
		.length = (uint32_t)n,
		.bytes = transfer->bytes,
	};

	batoni_tcp_post(tcp, &frame, transfer->buffer);
}

static void
finish_node(struct batoni_tcp *tcp, struct batoni_tcp_node *node, enum baton_status status)
{
	node->state = BATONI_TCP_OVER;
	node->status = status;
	batoni_list_append(&tcp->over, &node->link);
}

static struct batoni_tcp_node *
find_send(struct batoni_tcp_peer *peer, int tag)
{
	struct batoni_list_node *at = peer->sends.next;

	while (at != &peer->sends && to_node(at)->transfer->tag != tag)
		at = at->next;
	return at == &peer->sends ? NULL : to_node(at);
}

static struct ready *
find_ready(struct batoni_tcp_peer *peer, int tag)
{
	struct batoni_list_node *at = peer->readies.next;

	while (at != &peer->readies && to_ready(at)->tag != tag)
		at = at->next;
	return at == &peer->readies ? NULL : to_ready(at);
}

static void
drop_ready(struct batoni_tcp_peer *peer, struct ready *ready)
{
	batoni_list_remove(&ready->link);
	peer->readies_n--;
	batoni_free(ready);
}

static void
hear_ready(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_peer *peer = &tcp->peers[frame->from];
	struct batoni_tcp_node *send = find_send(peer, (int)frame->tag);
	struct ready *ready;

	if (send) {
		batoni_list_remove(&send->link);
		send_data(tcp, send->transfer, frame->slot, frame->bytes);
		batoni_transfer_moved(send->transfer, send->transfer->bytes);
		finish_node(tcp, send, BATON_OK);
		return;
	}
	if (peer->readies_n >= tcp->slots_most) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	ready = batoni_alloc(1, sizeof(*ready));
	if (!ready) {
		tcp->link.error = BATONI_TCP_NO_MEMORY;
		return;
	}
	ready->slot = frame->slot;
	ready->tag = (int)frame->tag;
	ready->bytes = frame->bytes;
	batoni_list_append(&peer->readies, &ready->link);
	peer->readies_n++;
}

/* ---- the receive from any rank ---- */

static bool
is_for_any(const struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	return tcp->any.node && frame->slot < tcp->base.slots &&
	       &tcp->nodes[frame->slot] == tcp->any.node &&
	       tcp->peers[frame->from].any_out &&
	       (int)frame->tag == tcp->any.tag;
}

static void
post_any(struct batoni_tcp *tcp, enum batoni_tcp_kind kind, int rank)
{
	const struct batoni_tcp_frame frame = {
		.kind = kind,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)rank,
		.tag = (uint32_t)tcp->any.tag,
		.slot = (uint32_t)(tcp->any.node - tcp->nodes),
		.bytes = kind == BATONI_TCP_READY ? tcp->any.bytes : 0,
	};

	batoni_tcp_post(tcp, &frame, NULL);
}

/* A message of so many bytes, of which the first n are here.  Returns how its receive ends. */
static enum baton_status
give_any(struct batoni_tcp *tcp, const unsigned char *from, uint32_t n,
         uint64_t bytes)
{
	struct batoni_transfer *transfer = tcp->any.node->transfer;

	if (n)
		memcpy(transfer->buffer, from, n);
	batoni_transfer_moved(transfer, bytes);
	return bytes > transfer->bytes ? BATON_ERR_TRUNCATED : BATON_OK;
}

static void
keep_any(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_peer *peer = &tcp->peers[frame->from];

	peer->kept = batoni_alloc(frame->length ? frame->length : 1, 1);
	if (!peer->kept) {
		tcp->link.error = BATONI_TCP_NO_MEMORY;
		return;
	}
	memcpy(peer->kept, tcp->body, frame->length);
	peer->kept_n = frame->length;
	peer->kept_bytes = frame->bytes;
}

static void
may_end_retracting(struct batoni_tcp *tcp)
{
	struct batoni_tcp_any *any = &tcp->any;

	if (any->node->state == BATONI_TCP_RETRACTING && any->out == 0)
		finish_node(tcp, any->node,
		            any->came ? any->status : BATON_ERR_CANCELED);
}

static void
hear_any(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_any *any = &tcp->any;

	if (frame->length > any->bytes ||
	    (frame->length < frame->bytes && frame->length != any->bytes)) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	tcp->peers[frame->from].any_out = false;
	any->out--;
	if (any->node->state == BATONI_TCP_POSTED) {
		finish_node(tcp, any->node,
		            give_any(tcp, tcp->body, frame->length, frame->bytes));
	} else if (any->node->state == BATONI_TCP_RETRACTING && !any->came) {
		any->came = true;
		any->status = give_any(tcp, tcp->body, frame->length,
		                       frame->bytes);
	} else {
		keep_any(tcp, frame);
	}
	may_end_retracting(tcp);
}

/* A message that was kept ends it.  False: there is none. */
static bool
take_kept(struct batoni_tcp *tcp)
{
	struct batoni_tcp_any *any = &tcp->any;

	for (int i = 0; i < tcp->base.size; i++) {
		int rank = (any->turn + i) % tcp->base.size;
		struct batoni_tcp_peer *peer = &tcp->peers[rank];

		if (!peer->kept)
			continue;
		finish_node(tcp, any->node,
		            give_any(tcp, peer->kept, peer->kept_n,
		                     peer->kept_bytes));
		batoni_free(peer->kept);
		peer->kept = NULL;
		any->turn = rank + 1;
		return true;
	}
	return false;
}

static enum baton_status
issue_any(struct batoni_tcp *tcp, struct batoni_transfer *transfer)
{
	struct batoni_tcp_any *any = &tcp->any;
	struct batoni_tcp_node *node = &tcp->nodes[transfer->slot];

	assert(!any->node ||
	       (any->node == node && any->tag == transfer->tag &&
	        any->bytes == transfer->bytes));
	any->node = node;
	any->tag = transfer->tag;
	any->bytes = transfer->bytes;
	any->came = false;
	node->transfer = transfer;
	node->state = BATONI_TCP_POSTED;
	tcp->base.messages.load.in_flight++;
	if (take_kept(tcp))
		return BATON_PENDING;
	for (int rank = 0; rank < tcp->base.size; rank++) {
		if (tcp->peers[rank].any_out)
			continue;
		tcp->peers[rank].any_out = true;
		any->out++;
		post_any(tcp, BATONI_TCP_READY, rank);
	}
	return BATON_PENDING;
}

static void
retract_any(struct batoni_tcp *tcp)
{
	tcp->any.node->state = BATONI_TCP_RETRACTING;
	for (int rank = 0; rank < tcp->base.size; rank++)
		if (tcp->peers[rank].any_out)
			post_any(tcp, BATONI_TCP_RETRACT, rank);
}

/* ---- receives ---- */

/* The receive in this slot, which the frame's sender was told of; or NULL, and the rules are
 * broken. */
static struct batoni_tcp_node *
receive_of(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_node *node = frame->slot < tcp->base.slots
	                                       ? &tcp->nodes[frame->slot]
	                                       : NULL;

	if (node && (node->state == BATONI_TCP_POSTED || node->state == BATONI_TCP_RETRACTING) &&
	    node->transfer->peer == (int)frame->from &&
	    node->transfer->tag == (int)frame->tag)
		return node;
	tcp->link.error = BATONI_TCP_BROKE_RULES;
	return NULL;
}

static void
hear_data(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_node *node;
	struct batoni_transfer *transfer;

	if (is_for_any(tcp, frame)) {
		hear_any(tcp, frame);
		return;
	}
	node = receive_of(tcp, frame);
	if (!node)
		return;
	transfer = node->transfer;
	if (frame->length > transfer->bytes ||
	    (frame->length < frame->bytes &&
	     frame->length != transfer->bytes)) {
		tcp->link.error = BATONI_TCP_BROKE_RULES;
		return;
	}
	if (frame->length && !node->scrapped)
		memcpy(transfer->buffer, tcp->body, frame->length);
	batoni_transfer_moved(transfer, frame->bytes);
	finish_node(tcp, node, frame->bytes > transfer->bytes ? BATON_ERR_TRUNCATED
	                                                  : BATON_OK);
}

static void
hear_retract(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_peer *peer = &tcp->peers[frame->from];
	const struct batoni_tcp_frame answer = {
		.kind = BATONI_TCP_RETRACTED,
		.from = (uint32_t)tcp->base.rank,
		.to = frame->from,
		.tag = frame->tag,
		.slot = frame->slot,
	};

	for (struct batoni_list_node *at = peer->readies.next;
	     at != &peer->readies; at = at->next) {
		if (to_ready(at)->slot != frame->slot)
			continue;
		drop_ready(peer, to_ready(at));
		batoni_tcp_post(tcp, &answer, NULL);
		return;
	}
}

static void
hear_retracted(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	struct batoni_tcp_node *node;

	if (is_for_any(tcp, frame) &&
	    tcp->any.node->state == BATONI_TCP_RETRACTING) {
		tcp->peers[frame->from].any_out = false;
		tcp->any.out--;
		may_end_retracting(tcp);
		return;
	}
	node = receive_of(tcp, frame);
	if (!node)
		return;
	if (node->state == BATONI_TCP_RETRACTING)
		finish_node(tcp, node, BATON_ERR_CANCELED);
	else
		tcp->link.error = BATONI_TCP_BROKE_RULES;
}

void
batoni_tcp_hear(struct batoni_tcp *tcp, const struct batoni_tcp_frame *frame)
{
	switch (frame->kind) {
	case BATONI_TCP_READY:
		hear_ready(tcp, frame);
		return;
	case BATONI_TCP_DATA:
		hear_data(tcp, frame);
		return;
	case BATONI_TCP_RETRACT:
		hear_retract(tcp, frame);
		return;
	default:
		hear_retracted(tcp, frame);
	}
}

/* ---- transfers ---- */

static enum baton_status
refuse_length(const struct batoni_transfer *transfer)
{
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "a message of %zu bytes: the side channel carries %u, "
	                     "and no data of the program; that needs MPI",
	                     transfer->bytes, BATONI_TCP_MESSAGE_MAX);
}

static enum baton_status
issue_send(struct batoni_tcp *tcp, struct batoni_transfer *transfer)
{
	struct batoni_tcp_peer *peer = &tcp->peers[transfer->peer];
	struct batoni_tcp_node *node = &tcp->nodes[transfer->slot];
	struct ready *ready = find_ready(peer, transfer->tag);

	if (transfer->bytes > BATONI_TCP_MESSAGE_MAX)
		return refuse_length(transfer);
	if (!ready) {
		node->transfer = transfer;
		node->state = BATONI_TCP_WAITING;
		batoni_list_append(&peer->sends, &node->link);
		tcp->base.messages.load.in_flight++;
		return BATON_PENDING;
	}
	send_data(tcp, transfer, ready->slot, ready->bytes);
	drop_ready(peer, ready);
	batoni_transfer_moved(transfer, transfer->bytes);
	return BATON_OK;
}

static enum baton_status
issue_receive(struct batoni_tcp *tcp, struct batoni_transfer *transfer)
{
	struct batoni_tcp_node *node = &tcp->nodes[transfer->slot];
	const struct batoni_tcp_frame frame = {
		.kind = BATONI_TCP_READY,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)transfer->peer,
		.tag = (uint32_t)transfer->tag,
		.slot = transfer->slot,
		.bytes = transfer->bytes,
	};

	node->transfer = transfer;
	node->state = BATONI_TCP_POSTED;
	node->scrapped = false;
	batoni_tcp_post(tcp, &frame, NULL);
	tcp->base.messages.load.in_flight++;
	return BATON_PENDING;
}

static enum baton_status
tcp_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_tcp *tcp = of_path(path);
	enum baton_status status;

	assert(transfer->slot < tcp->base.slots);
	assert(tcp->nodes[transfer->slot].state == BATONI_TCP_FREE);
	if (tcp->why[0])
		return BATON_ERR_PEER;
	if (transfer->direction == BATONI_SEND)
		status = issue_send(tcp, transfer);
	else if (transfer->peer == tcp->base.any_peer)
		status = issue_any(tcp, transfer);
	else
		status = issue_receive(tcp, transfer);
	batoni_tcp_link_write(&tcp->link);
	return status;
}

static enum baton_status
end_node(struct batoni_tcp *tcp, struct batoni_tcp_node *node)
{
	batoni_list_remove(&node->link);
	node->state = BATONI_TCP_FREE;
	node->transfer = NULL;
	tcp->base.messages.load.in_flight--;
	return node->status;
}

static size_t
tcp_test(struct batoni_path *path)
{
	struct batoni_tcp *tcp = of_path(path);
	struct batoni_upcalls *upcalls = tcp->base.upcalls;
	size_t events = batoni_tcp_pump(tcp);

	while (!batoni_list_empty(&tcp->over)) {
		struct batoni_tcp_node *node = to_node(tcp->over.next);
		struct batoni_transfer *transfer = node->transfer;

		upcalls->done(upcalls, transfer, end_node(tcp, node));
		events++;
	}
	batoni_tcp_tell(tcp);
	return events;
}

static enum baton_status
tcp_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_tcp *tcp = of_path(path);
	struct batoni_tcp_node *node = &tcp->nodes[transfer->slot];
	const struct batoni_tcp_frame frame = {
		.kind = BATONI_TCP_RETRACT,
		.from = (uint32_t)tcp->base.rank,
		.to = (uint32_t)transfer->peer,
		.tag = (uint32_t)transfer->tag,
		.slot = transfer->slot,
	};

	/* Nothing comes over a channel that is broken, or that all have left. */
	if (node->state == BATONI_TCP_WAITING ||
	    (node->state != BATONI_TCP_OVER && (tcp->why[0] || tcp->all_left))) {
		node->status = BATON_ERR_CANCELED;
		return end_node(tcp, node);
	}
	if (node->state == BATONI_TCP_OVER)
		return end_node(tcp, node);
	if (node->state == BATONI_TCP_POSTED) {
		node->state = BATONI_TCP_RETRACTING;
		if (transfer->peer == tcp->base.any_peer)
			retract_any(tcp);
		else
			batoni_tcp_post(tcp, &frame, NULL);
		batoni_tcp_link_write(&tcp->link);
	}
	return BATON_ERR_BUSY;
}

/* The receive from any rank is the layer's above, whose buffer stays. */
static enum baton_status
tcp_scrap(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_tcp *tcp = of_path(path);

	assert(transfer->peer != tcp->base.any_peer);
	tcp->nodes[transfer->slot].scrapped = true;
	return BATON_OK;
}

const struct batoni_path_ops batoni_tcp_messages_ops = {
	.name = "the side channel",
	.kinds = BATONI_MESSAGES,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = tcp_issue,
		.take_back = tcp_take_back,
	},
	.scrapping = &(const struct batoni_scrapping_ops){.scrap = tcp_scrap},
	.test = tcp_test,
};

void
batoni_tcp_forget(struct batoni_tcp *tcp)
{
	for (int rank = 0; tcp->peers && rank < tcp->base.size; rank++) {
		struct batoni_tcp_peer *peer = &tcp->peers[rank];

		while (!batoni_list_empty(&peer->readies))
			drop_ready(peer, to_ready(peer->readies.next));
		batoni_free(peer->kept);
	}
}
