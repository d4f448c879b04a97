/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local transport: ranks are threads of one process, and a message is one
 * memmove from the sender's buffer to the receiver's.  It is the reference for
 * what every transport must do.
 *
 * One engine drives all ranks of all local communicators.  Every function here therefore
 * runs on the driver's thread, and needs no locks and no atomics.
 *
 * Matching (match.h).  Each transfer has a node, found by its slot.  Unmatched nodes wait in
 * queues, one for each (destination, source, tag), in a table that all ranks share.  A queue holds
 * receives or sends, never both, because those would have matched.  The table is made for as many
 * nodes as there can be.  The sends to a rank that wait are also in one list, for receives of any tag.  All
 * memory is allocated at open.
 *
 * Moving.  A match of at most INLINE_MAX bytes is copied where it is found, in
 * issue.  A longer one becomes a copy: both nodes are MOVING, name each other as
 * partners, and are in their own ranks' `copies`.  The receive's node counts the
 * bytes.  The test of either rank moves a slice of it, so that a rank whose
 * communicator is broken does not hold up its peer.  A copy is never aborted: take_back
 * returns BUSY for both ends, and the copy completes.
 *
 * Buffers may overlap in a message to oneself.  The result is that of memmove.
 *
 * Lists of tensors (tensor_list.h) match as other messages do.  The receive reads the header
 * of the send where it is; then the copy goes from segment to segment.  If they do not
 * agree, or one is no list, both ends are over at once, the send in OK.
 *
 * Checked mode: a path of its own, whose issue looks at the types of what would meet, before anything
 * else does.  Where they differ, both ends are over at once too.
 *
 * Closing.  A rank may close while it has transfers (an abort).  Its waiting nodes leave
 * their queues.  A copy that it sends is completed first; of a copy that it receives, the
 * rest is dropped, since nothing will read it.  In both cases the peer's node becomes OVER:
 * it has no partner, nothing refers to the closed rank, and the peer's next test reports
 * the end.  A message to a closed rank waits in its queue until its deadline.
 *
 * Exchanging.  Each rank writes its part into the table of the round, and copies all parts
 * out when the table is full.  A rank can be one round ahead of another but not two, since
 * a round is full only when all ranks have come to it.  So two tables, used in turn, are
 * enough.  They belong to all ranks together: a rank that has written its part may close.
 * Later rounds can then never be full, and the other ranks get PEER.
 */
#include "local.h"

#include <string.h>

#include "list.h"
#include "mem.h"

#define INLINE_MAX ((size_t)16 << 10)
#define SLICE_MAX ((size_t)1 << 20)

static struct local_node *
to_node(struct batoni_list_node *link)
{
	return batoni_container_of(link, struct local_node, link);
}

/* How a transfer ends that matched a message of this length. */
static enum baton_status
outcome(struct batoni_transfer *transfer, size_t length)
{
	batoni_transfer_moved(transfer, length);
	/* A list whose bytes are moved has its memory. */
	return length > transfer->bytes && !batoni_transfer_list(transfer)
	               ? BATON_ERR_TRUNCATED
	               : BATON_OK;
}

static void
report_as(struct local_node *node, enum baton_status status)
{
	struct local *local = node->local;
	struct batoni_transfer *transfer = node->transfer;

	assert(local->base.messages.load.in_flight > 0);
	local->base.messages.load.in_flight--;
	node->state = FREE;
	node->transfer = NULL;
	local->base.upcalls->done(local->base.upcalls, transfer, status);
}

static void
report(struct local_node *node, size_t length)
{
	report_as(node, outcome(node->transfer, length));
}

static void
start_moving(struct local_node *node, struct local_node *partner, size_t length)
{
	node->state = MOVING;
	node->partner = partner;
	node->length = length;
	node->moved = 0;
	node->local->base.messages.load.moving++;
	batoni_list_append(&node->local->copies, &node->link);
}

static void
stop_moving(struct local_node *node)
{
	assert(node->local->base.messages.load.moving > 0);
	batoni_list_remove(&node->link);
	node->local->base.messages.load.moving--;
}

/* What a transfer meets leaves its queue; a receive that the engine had for it stands in none. */
static inline void
take_out(struct local_node *front)
{
	if (__builtin_expect(front->state == WAITING, 1))
		batoni_local_dequeue(front);
}

static size_t
min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Returns how many bytes of the message are moved. */
static size_t
moved_in_all(const struct local_node *receive)
{
	return batoni_transfer_list(receive->transfer)
	               ? receive->length
	               : min_size(receive->length, receive->transfer->bytes);
}

/* Move up to `most` bytes of the copy that ends in this receive; returns how
 * many. */
static size_t
move_slice(struct local_node *receive, size_t most)
{
	const struct batoni_transfer *from = receive->partner->transfer;
	const struct batoni_transfer *to = receive->transfer;
	size_t total = moved_in_all(receive);
	size_t n;

	if (batoni_transfer_list(to))
		n = batoni_tensor_list_move(batoni_transfer_list(from),
		                            batoni_transfer_list(to),
		                            min_size(total - receive->moved, most));
	else
		n = batoni_match_move(to->buffer, from->buffer, total,
		                      receive->moved, most);
	receive->moved += n;
	return n;
}

static bool
moved_all(const struct local_node *receive)
{
	return receive->moved == moved_in_all(receive);
}

static struct local_node *
receiving_end(struct local_node *node)
{
	return node->transfer->direction == BATONI_RECV ? node : node->partner;
}

static void
start_copy(struct local_node *node, struct local_node *front, size_t length)
{
	start_moving(front, node, length);
	start_moving(node, front, length);
	front->local->base.upcalls->moves(front->local->base.upcalls);
	node->local->base.messages.load.in_flight++;
}

/* Do what meet does, where at least one end is a list. */
static __attribute__((noinline)) enum baton_status
meet_list(struct local_node *node, struct local_node *front)
{
	bool sends = node->transfer->direction == BATONI_SEND;
	struct batoni_transfer *from = (sends ? node : front)->transfer;
	struct batoni_transfer *to = (sends ? front : node)->transfer;
	enum baton_status status = batoni_transfer_meet_send(to, from);
	size_t length = from->bytes;

	take_out(front);
	if (status == BATON_OK && length > INLINE_MAX) {
		start_copy(node, front, length);
		return BATON_PENDING;
	}
	if (status == BATON_OK)
		batoni_tensor_list_move(batoni_transfer_list(from),
		                        batoni_transfer_list(to), length);
	node->transfer = NULL;
	report_as(front, sends ? status : BATON_OK);
	return sends ? BATON_OK : status;
}

/* The transfer has matched: move the bytes now, or start a copy. */
static enum baton_status
meet_front(struct local_node *node, struct local_node *front)
{
	bool sends = node->transfer->direction == BATONI_SEND;
	const struct batoni_transfer *from = (sends ? node : front)->transfer;
	const struct batoni_transfer *to = (sends ? front : node)->transfer;
	size_t length = from->bytes;
	size_t n = min_size(length, to->bytes);
	enum baton_status status;

	if (__builtin_expect(from->location == BATONI_LOCATION_LIST ||
	                             to->location == BATONI_LOCATION_LIST,
	                     0))
		return meet_list(node, front);
	take_out(front);
	if (n > INLINE_MAX) {
		start_copy(node, front, length);
		return BATON_PENDING;
	}
	if (n > 0)
		memmove(to->buffer, from->buffer, n);
	/* Set the outcome before the report, which makes both ends visible. */
	status = outcome(node->transfer, length);
	node->transfer = NULL;
	report(front, length);
	return status;
}

/* The node that the transfer would meet, or stand behind. */
static struct local_node *
find_other(struct local *local, const struct batoni_transfer *transfer, uint64_t key)
{
	struct local_node *front = batoni_local_front(local->shared, key);

	if (front || __builtin_expect(local->shared->expecting == 0, 1) ||
	    transfer->direction != BATONI_SEND)
		return front;
	return batoni_local_receive_for(local, transfer);
}

static enum baton_status
local_issue(struct batoni_path *path,
            struct batoni_transfer *transfer)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	struct local_node *node = &local->nodes[transfer->slot];
	uint64_t key = batoni_local_key(local, transfer);
	struct local_node *front = find_other(local, transfer, key);

	assert(transfer->slot < local->base.slots && node->state == FREE);
	assert(transfer->peer >= 0 && transfer->peer < local->base.size);
	node->transfer = transfer;
	node->local = local;
	if (front && front->transfer->direction != transfer->direction)
		return meet_front(node, front);
	batoni_local_enter(node, key, front);
	if (transfer->direction == BATONI_SEND)
		batoni_local_send_waits(local, transfer);
	local->base.messages.load.in_flight++;
	return BATON_PENDING;
}

/* Would these two plain messages of the program meet, and differ in type? */
static bool
differ(const struct local *local, const struct batoni_transfer *transfer,
       const struct batoni_transfer *other)
{
	return other->direction != transfer->direction &&
	       transfer->tag <= local->base.tag_max &&
	       !batoni_transfer_list(transfer) && !batoni_transfer_list(other) &&
	       other->type != transfer->type;
}

/* They are of different types, and the other one is in no queue. */
static enum baton_status
refuse_type(struct batoni_transfer *transfer, struct local_node *front)
{
	bool sends = transfer->direction == BATONI_SEND;
	struct batoni_transfer *from = sends ? transfer : front->transfer;
	struct batoni_transfer *to = sends ? front->transfer : transfer;
	enum baton_status status = batoni_transfer_compare(to, from->type);

	batoni_transfer_moved(from, from->bytes);
	batoni_transfer_moved(to, from->bytes);
	report_as(front, sends ? status : BATON_OK);
	return sends ? BATON_OK : status;
}

static enum baton_status
checked_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	uint64_t key = batoni_local_key(local, transfer);
	struct local_node *front = find_other(local, transfer, key);

	/* It is looked for again. */
	if (front && front->state == FREE)
		batoni_local_enter(front, key, NULL);
	if (!front || !differ(local, transfer, front->transfer))
		return local_issue(path, transfer);
	batoni_local_dequeue(front);
	return refuse_type(transfer, front);
}

enum baton_status
batoni_local_meet(struct local *local, struct batoni_transfer *receive,
                  struct local_node *send)
{
	struct local_node *node = &local->nodes[receive->slot];

	assert(node->state == FREE && send->state == FREE);
	if (local->base.messages.ops == &batoni_local_checked_ops &&
	    differ(local, receive, send->transfer))
		return refuse_type(receive, send);
	node->transfer = receive;
	node->local = local;
	return meet_front(node, send);
}

/* Move bytes of the copy, or report its end; returns the bytes moved. */
static size_t
work_on(struct local_node *node, size_t budget, size_t *events)
{
	struct local_node *partner = node->partner;
	size_t length = node->length;
	size_t n;

	++*events;
	if (node->state == OVER) {
		stop_moving(node);
		report(node, length);
		return 0;
	}
	n = move_slice(receiving_end(node), budget);
	if (!moved_all(receiving_end(node))) {
		batoni_list_remove(&node->link);
		batoni_list_append(&node->local->copies, &node->link);
		return n;
	}
	stop_moving(node);
	stop_moving(partner);
	report(node, length);
	report(partner, length);
	++*events;
	return n;
}

static size_t
local_test(struct batoni_path *path)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	size_t budget = SLICE_MAX;
	size_t events = 0;

	while (budget > 0 && !batoni_list_empty(&local->copies))
		budget -= work_on(to_node(local->copies.next), budget, &events);
	return events;
}

static enum baton_status
local_take_back(struct batoni_path *path,
                struct batoni_transfer *transfer)
{
	struct local *local = batoni_local_of(batoni_transport_of(path));
	struct local_node *node = &local->nodes[transfer->slot];

	assert(node->state != FREE && node->transfer == transfer);
	switch (node->state) {
	case WAITING:
		batoni_local_dequeue(node);
		local->base.messages.load.in_flight--;
		node->transfer = NULL;
		return BATON_ERR_CANCELED;
	case HELD:
	case MOVING:
		return BATON_ERR_BUSY;
	case OVER:
		stop_moving(node);
		local->base.messages.load.in_flight--;
		node->state = FREE;
		node->transfer = NULL;
		return outcome(transfer, node->length);
	case FREE:
		break;
	}
	return BATON_ERR_INVALID;
}

static void
bring(struct local_table *table, const struct local *local, uint64_t what,
      const void *mine, size_t bytes, bool able)
{
	if (table->brought++ == 0) {
		table->what = what;
		table->bytes = bytes;
		table->all = batoni_alloc((size_t)local->base.size, bytes);
		table->status = table->all ? BATON_OK : BATON_ERR_NOMEM;
	}
	if (!able)
		table->status = BATON_ERR_NOMEM;
	/* The ranks make their collective calls in different orders. */
	if (table->what != what || table->bytes != bytes)
		table->status = BATON_ERR_INVALID;
	if (table->status == BATON_OK)
		memcpy(table->all + (size_t)local->base.rank * bytes, mine,
		       bytes);
}

static enum baton_status
take_contributions(struct local_table *table, int size, void *all)
{
	enum baton_status status = table->status;

	if (status == BATON_OK)
		memcpy(all, table->all, (size_t)size * table->bytes);
	if (++table->taken == size) {
		batoni_free(table->all);
		*table = (struct local_table){.all = NULL};
	}
	return status;
}

static enum baton_status
local_exchange(struct batoni_transport *transport, uint64_t what,
               const void *mine, size_t bytes, void *all)
{
	struct local *local = batoni_local_of(transport);
	struct local_table *table = &local->shared->tables[local->round % 2];

	if (!local->brought)
		bring(table, local, what, mine, bytes, all != NULL);
	local->brought = true;
	if (table->brought < transport->size)
		return local->round < local->shared->rounds ? BATON_PENDING
		                                            : BATON_ERR_PEER;
	local->brought = false;
	local->round++;
	return take_contributions(table, transport->size, all);
}

/* A rank leaves without the others: its sends have been copied when they end, and one
 * thread may own several ranks and destroy them one after the other. */
static enum baton_status
local_leave(struct batoni_transport *transport)
{
	(void)transport;
	return BATON_OK;
}

/* This rank goes, and so does one side of a message that a probe has found: a send of another rank is over, as
 * where the rest of a copy is dropped; what a probe of another rank has found has no bytes. */
static void
part_held(struct local_node *node)
{
	struct local_node *partner = node->partner;

	node->state = FREE;
	if (!partner)
		return;
	partner->partner = NULL;
	if (!partner->transfer)
		return;
	start_moving(partner, NULL, partner->transfer->bytes);
	partner->state = OVER;
	partner->local->base.upcalls->moves(partner->local->base.upcalls);
}

/* Detach the node from its queue or its partner, so that the rank can be freed. */
static void
detach(struct local_node *node)
{
	switch (node->state) {
	case WAITING:
		batoni_local_dequeue(node);
		return;
	case HELD:
		part_held(node);
		return;
	case MOVING:
		if (node->transfer->direction == BATONI_SEND)
			move_slice(node->partner, SIZE_MAX);
		node->partner->state = OVER;
		node->partner->partner = NULL;
		/* In a message to oneself the partner is a node of this rank too, and is
		 * detached in its turn. */
		stop_moving(node);
		node->state = FREE;
		return;
	case OVER:
	case FREE:
		return;
	}
}

static void
local_close(struct batoni_transport *transport, bool aborted)
{
	struct local *local = batoni_local_of(transport);
	struct local_shared *shared = local->shared;

	(void)aborted; /* closing never communicates */
	assert(aborted || transport->messages.load.in_flight == 0);
	batoni_local_unexpect(local);
	for (uint32_t i = 0; i < local->base.slots; i++)
		detach(&local->nodes[i]);
	if (local->round + local->brought < shared->rounds)
		shared->rounds = local->round + local->brought;
	shared->stored_to |= transport->patience &&
	                     transport->patience->copies_left;
	batoni_free(local->waiting_to);
	batoni_free(local->waiting);
	batoni_free(local->nodes);
	batoni_free(local);
	if (--shared->open == 0)
		batoni_local_free(shared);
}

const struct batoni_path_ops batoni_local_messages_ops = {
	.name = "the local transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = local_issue,
		.take_back = local_take_back,
	},
	.unmatched = &batoni_local_unmatched,
	.test = local_test,
};

const struct batoni_path_ops batoni_local_checked_ops = {
	.name = "the local transport",
	.kinds = BATONI_MESSAGES,
	.lists = true,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = checked_issue,
		.take_back = local_take_back,
	},
	.unmatched = &batoni_local_unmatched,
	.test = local_test,
};

const struct batoni_transport_ops batoni_local_ops = {
	.name = "local",
	.id = BATON_TRANSPORT_LOCAL,
	.exchanging = &(const struct batoni_exchanging_ops){.exchange = local_exchange},
	.leave = local_leave,
	.close = local_close,
};
