/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes to a rank: messages meet receives, in the order of their keys (match.h), or become
 * arrivals.
 *
 * An arrival has its bytes, of which the sender's credit bounds how many there are; or it is an
 * announcement.  There is one for each source and slot at most: a send that was taken back and announced
 * again takes the place of its old one.  So taking back in a loop costs the receiver no memory.
 *
 * Memory of arrivals is kept for others of their class until the communicator closes.
 */
#include "near.h"

#include <assert.h>

static const size_t class_bytes[NEAR_CLASSES] = {64, 512, 2048, NEAR_SHORT_MAX};

/* Does the arrival have its bytes with it? */
static bool
is_whole(const struct batoni_ring_head *head)
{
	return head->kind == BATONI_RING_SHORT || head->kind == BATONI_RING_LIST;
}

/* ---- arrivals ---- */

static struct near_arrival *
new_arrival(struct batoni_pairs *near, size_t bytes)
{
	unsigned class = 0;
	struct near_arrival *arrival;

	while (class_bytes[class] < bytes)
		class ++;
	arrival = near->free[class];
	if (arrival) {
		near->free[class] = arrival->next_free;
		return arrival;
	}
	arrival = batoni_alloc(1, sizeof(*arrival) + class_bytes[class]);
	if (arrival) {
		arrival->end.is_arrival = true;
		arrival->size_class = class;
		batoni_list_append(&near->arrivals, &arrival->all);
	}
	return arrival;
}

static void
free_arrival(struct batoni_pairs *near, struct near_arrival *arrival)
{
	arrival->next_free = near->free[arrival->size_class];
	near->free[arrival->size_class] = arrival;
}

static uint64_t
slot_key(int from, uint32_t slot)
{
	return (uint64_t)(uint32_t)from << 32 | slot;
}

/* Put the end into the queue of its key, whose front was found. */
static void
enter_arrival(struct batoni_pairs *near, struct near_arrival *arrival, uint64_t key,
              struct near_end *front)
{
	batoni_match_enter(&near->match, &arrival->end.match, key,
	                   front ? &front->match : NULL);
	batoni_list_append(&near->peers[arrival->from].arrived, &arrival->link);
}

/* Take the end out of its queue. */
static void
leave_queue(struct batoni_pairs *near, struct near_arrival *arrival)
{
	batoni_match_remove(&near->match, &arrival->end.match);
	batoni_list_remove(&arrival->link);
	if (!is_whole(&arrival->head))
		batoni_hash_remove(&arrival->by_slot);
}

void
batoni_near_free_arrivals(struct batoni_pairs *near)
{
	while (!batoni_list_empty(&near->arrivals)) {
		struct near_arrival *arrival = batoni_container_of(
			near->arrivals.next, struct near_arrival, all);

		batoni_list_remove(&arrival->all);
		batoni_free(arrival);
	}
}

/* ---- a receive meets a message ---- */

static int
type_of(const struct batoni_ring_head *head)
{
	return head->type - 1;
}

/* The receive meets a message with its bytes, in the ring or in an arrival.  Returns the status
 * in which the receive ends. */
static inline enum baton_status
meet_plain(struct batoni_pairs *near, struct batoni_transfer *transfer, int from,
           const struct batoni_ring_head *head, const unsigned char *bytes_or_null)
{
	struct near_peer *peer = &near->peers[from];
	size_t length = (size_t)head->length;
	enum baton_status status = batoni_transfer_meet_plain(transfer, length,
	                                                      type_of(head));

	if (status == BATON_OK && length > 0) {
		if (bytes_or_null)
			memcpy(transfer->buffer, bytes_or_null, length);
		else
			batoni_ring_copy_out(&peer->in, 0, transfer->buffer,
			                     length);
	}
	batoni_transfer_arrived(transfer, status, length);
	return status;
}

static inline enum baton_status
meet_whole(struct batoni_pairs *near, struct batoni_transfer *transfer, int from,
           const struct batoni_ring_head *head, const unsigned char *bytes_or_null)
{
	enum baton_status status;

	if (head->kind == BATONI_RING_LIST)
		status = batoni_near_meet_list(near, transfer, from, head,
		                               bytes_or_null);
	else
		status = meet_plain(near, transfer, from, head, bytes_or_null);
	batoni_ring_met(&near->peers[from].in, head->cells);
	return status;
}

/* The front of the queue of this key, or NULL. */
static struct near_end *
find_front(struct batoni_pairs *near, uint64_t key)
{
	struct batoni_match_node *front = batoni_match_find(&near->match, key);

	return front ? batoni_container_of(front, struct near_end, match) : NULL;
}

/* A receive that was posted ends, unless it is PENDING. */
static void
end_posted(struct batoni_pairs *near, struct near_node *node,
           enum baton_status status)
{
	if (status != BATON_PENDING)
		batoni_near_end(near, node, status);
}

/* The message at the head of the ring becomes an arrival.  False: there is no memory. */
static __attribute__((noinline)) bool
keep_whole(struct batoni_pairs *near, int from, const struct batoni_ring_head *head,
           uint64_t key, struct near_end *front)
{
	struct near_arrival *arrival = new_arrival(near, (size_t)head->length);

	if (!arrival)
		return false;
	arrival->from = from;
	arrival->head = *head;
	arrival->bars = false;
	batoni_ring_copy_out(&near->peers[from].in, 0, arrival->bytes,
	                     (size_t)head->length);
	enter_arrival(near, arrival, key, front);
	return true;
}

/* The receive from any rank or of any tag that meets the message: it has begun; or NULL. */
static struct near_node *
open_receive_for(struct batoni_pairs *near, int from,
                 const struct batoni_ring_head *head)
{
	struct batoni_upcalls *upcalls = near->base.messages.upcalls;
	struct batoni_transfer *transfer =
		head->tag <= (uint32_t)near->base.tag_max
			? upcalls->receive_for(upcalls, from, (int)head->tag)
			: NULL;
	struct near_node *node;

	if (!transfer)
		return NULL;
	node = &near->nodes[transfer->slot];
	batoni_near_begin(near, node, transfer, NEAR_POSTED);
	return node;
}

static inline bool
arrive_whole(struct batoni_pairs *near, int from, const struct batoni_ring_head *head)
{
	uint64_t key = batoni_near_key(near, from, head->tag);
	struct near_end *front = find_front(near, key);
	struct near_node *node;

	/* Behind what has come before of its rank, a receive of any tag may be for that. */
	if (!front && __builtin_expect(near->expects > 0, 0) &&
	    batoni_list_empty(&near->peers[from].arrived) &&
	    (node = open_receive_for(near, from, head))) {
		batoni_near_end(near, node,
		                meet_whole(near, node->transfer, from, head,
		                           NULL));
		return true;
	}
	if (!front || front->is_arrival)
		return keep_whole(near, from, head, key, front);
	node = (struct near_node *)front;
	batoni_match_remove(&near->match, &front->match);
	end_posted(near, node,
	           meet_whole(near, node->transfer, from, head, NULL));
	return true;
}

static bool
keep_announced(struct batoni_pairs *near, int from,
               const struct batoni_ring_head *head,
               const struct near_announcement *what, uint64_t key)
{
	uint64_t by_slot = slot_key(from, what->slot);
	struct batoni_hash_node *old = batoni_hash_find(&near->announced, by_slot);
	struct near_arrival *arrival;
	struct near_end *front;

	if (old) {
		arrival = batoni_container_of(old, struct near_arrival, by_slot);
		leave_queue(near, arrival);
	} else {
		arrival = new_arrival(near, 0);
		if (!arrival)
			return false;
	}
	arrival->from = from;
	arrival->head = *head;
	arrival->what = *what;
	arrival->matched = arrival->bars = false;
	batoni_hash_add(&near->announced, &arrival->by_slot, by_slot);
	front = find_front(near, key);
	enter_arrival(near, arrival, key, front);
	return true;
}

/* The posted receives of this key meet nothing any more, and nor do later ones. */
static bool
bar(struct batoni_pairs *near, int from, const struct batoni_ring_head *head,
    const struct near_announcement *what, uint64_t key)
{
	struct near_end *front;

	/* The arrival is at the front of the queue, where a receive was. */
	while ((front = find_front(near, key)) && !front->is_arrival) {
		batoni_match_remove(&near->match, &front->match);
		((struct near_node *)front)->state = NEAR_BARRED;
	}
	return keep_announced(near, from, head, what, key);
}

/* It can be one, and a plain message lies in it.  (Where it does lie, and how long it is, its mapping
 * shows.) */
static bool
is_sound_block(const struct batoni_ring_head *head, const struct near_announcement *what)
{
	const struct batoni_shm_block_name *block = &what->block;
	uint64_t offset = what->address - block->base;

	if (head->cells != BATONI_RING_BLOCK_CELLS)
		return true;
	/* In chunks the header's bytes would count as bytes of the message (fetch.c). */
	if (head->kind == BATONI_RING_ANNOUNCE && what->header_bytes != 0)
		return false;
	if (block->serial == 0 || block->bytes == 0 || block->bytes > PTRDIFF_MAX)
		return false;
	return head->kind == BATONI_RING_LIST_ANNOUNCE ||
	       (offset <= block->bytes && head->length <= block->bytes - offset);
}

static bool
arrive_announced(struct batoni_pairs *near, int from,
                 const struct batoni_ring_head *head)
{
	uint64_t key = batoni_near_key(near, from, head->tag);
	struct near_end *front = find_front(near, key);
	struct near_announcement what = {.slot = 0};
	enum baton_status status;
	struct near_node *node;

	batoni_ring_copy_out(&near->peers[from].in, 0, &what,
	                     batoni_near_announced_bytes(head));
	if (what.slot >= near->slots_most) {
		batoni_near_break(near, from, "a slot");
		return true;
	}
	if (!is_sound_block(head, &what)) {
		batoni_near_break(near, from, "a block");
		return true;
	}
	if (!front || front->is_arrival)
		return keep_announced(near, from, head, &what, key);
	status = batoni_near_match_announced(near, from, &what);
	if (status == BATON_ERR_ABORTED)
		return bar(near, from, head, &what, key);
	if (status != BATON_OK)
		return true;
	node = (struct near_node *)front;
	batoni_match_remove(&near->match, &front->match);
	end_posted(near, node,
	           batoni_near_fetch(near, node, from, head, &what));
	return true;
}

static bool
arrive_done(struct batoni_pairs *near, int from)
{
	uint32_t what[2];

	batoni_ring_copy_out(&near->peers[from].in, 0, what, sizeof(what));
	return batoni_near_done(near, from, what[0], what[1]);
}

static void
arrive_gone(struct batoni_pairs *near, int from)
{
	uint64_t serial;

	batoni_ring_copy_out(&near->peers[from].in, 0, &serial, sizeof(serial));
	batoni_near_forget(near, from, serial);
}

static bool
arrive_grant(struct batoni_pairs *near, int from)
{
	uint32_t what[4];
	uint64_t most;

	batoni_ring_copy_out(&near->peers[from].in, 0, what, sizeof(what));
	batoni_ring_copy_out(&near->peers[from].in, sizeof(what), &most,
	                     sizeof(most));
	return batoni_near_granted(near, from, what[0], what[1], what[2], what[3],
	                           most);
}

static __attribute__((noinline)) bool
arrive_other(struct batoni_pairs *near, int peer,
             const struct batoni_ring_head *head)
{
	bool sound = true;

	switch ((enum batoni_ring_kind)head->kind) {
	case BATONI_RING_LIST:
		return arrive_whole(near, peer, head);
	case BATONI_RING_ANNOUNCE:
	case BATONI_RING_LIST_ANNOUNCE:
		return arrive_announced(near, peer, head);
	case BATONI_RING_DONE:
		sound = arrive_done(near, peer);
		break;
	case BATONI_RING_GRANT:
		sound = arrive_grant(near, peer);
		break;
	case BATONI_RING_CHUNK:
		sound = batoni_near_chunk(near, peer, head);
		break;
	case BATONI_RING_GONE:
		arrive_gone(near, peer);
		break;
	case BATONI_RING_SHORT:
	case BATONI_RING_NONE:
	case BATONI_RING_KINDS:
		sound = false;
	}
	if (!sound)
		batoni_near_break(near, peer, "the end of a message");
	return true;
}

/* Take the message at the head of the ring from this peer.  False: there is no memory for it, and
 * it stays there. */
static inline bool
arrive(struct batoni_pairs *near, int peer, const struct batoni_ring_head *head)
{
	return __builtin_expect(head->kind == BATONI_RING_SHORT, 1)
	               ? arrive_whole(near, peer, head)
	               : arrive_other(near, peer, head);
}

void
batoni_near_call_later(struct batoni_pairs *near, int peer)
{
	atomic_fetch_or(batoni_ring_bits(near->area, peer),
	                UINT64_C(1) << peer % 64);
}

size_t
batoni_near_drain(struct batoni_pairs *near, int peer, size_t most)
{
	struct near_peer *from = &near->peers[peer];
	struct batoni_ring_head head;
	enum batoni_ring_found found = BATONI_RING_EMPTY;
	size_t n;

	for (n = 0; n < most && !near->broken; n++) {
		found = batoni_ring_peek(&from->in, &head);
		if (found != BATONI_RING_HERE)
			break;
		/* Without memory for it the engine must not sleep: nothing tells when there is memory again. */
		if (!arrive(near, peer, &head)) {
			batoni_near_call_later(near, peer);
			return n + 1;
		}
		if (batoni_ring_take(&from->in, head.cells))
			batoni_ring_call(&from->out);
	}
	if (found == BATONI_RING_BROKEN)
		batoni_near_break(near, peer, "a header");
	else if (found == BATONI_RING_HERE && most > 1 && !near->broken &&
	         !batoni_ring_is_empty(&from->in))
		batoni_near_call_later(near, peer);
	return n;
}

/* A ring has at most as many messages as cells. */
size_t
batoni_near_take_all(struct batoni_pairs *near)
{
	size_t events = 0;

	for (int rank = 0; rank < near->base.size && !near->broken; rank++)
		if (near->peers[rank].connected)
			events += batoni_near_drain(near, rank, BATONI_RING_CELLS);
	return events;
}

/* ---- receives ---- */

/* The receive meets an arrival that has left its queue, and is this rank's. */
static enum baton_status
meet_left(struct batoni_pairs *near, struct near_node *node,
          struct batoni_transfer *transfer, struct near_arrival *arrival)
{
	enum baton_status status;

	if (is_whole(&arrival->head)) {
		status = meet_whole(near, transfer, arrival->from, &arrival->head,
		                    arrival->bytes);
	} else {
		batoni_near_begin(near, node, transfer, NEAR_POSTED);
		status = batoni_near_fetch(near, node, arrival->from,
		                           &arrival->head, &arrival->what);
		if (status != BATON_PENDING)
			batoni_near_finish(near, node);
	}
	free_arrival(near, arrival);
	return status;
}

/* The receive meets the arrival at the front, which leaves the queue, unless it bars.  AGAIN: its
 * sender has taken it back. */
static enum baton_status
meet_arrival(struct batoni_pairs *near, struct near_node *node,
             struct batoni_transfer *transfer, struct near_arrival *arrival)
{
	enum baton_status status =
		is_whole(&arrival->head) || arrival->matched
			? BATON_OK
			: batoni_near_match_announced(near, arrival->from, &arrival->what);

	if (status == BATON_ERR_ABORTED) {
		batoni_near_begin(near, node, transfer, NEAR_BARRED);
		return BATON_PENDING;
	}
	leave_queue(near, arrival);
	if (status == BATON_OK)
		return meet_left(near, node, transfer, arrival);
	free_arrival(near, arrival);
	return BATON_ERR_AGAIN;
}

/* Post the receive, and take what is in the peer's ring: a message that is there ends it within
 * the call. */
static enum baton_status
post(struct batoni_pairs *near, struct near_node *node,
     struct batoni_transfer *transfer, uint64_t key, struct near_end *front)
{
	batoni_near_begin(near, node, transfer, NEAR_POSTED);
	batoni_match_enter(&near->match, &node->end.match, key,
	                   front ? &front->match : NULL);
	if (front)
		return BATON_PENDING;
	near->issuing = node;
	near->issued = BATON_PENDING;
	batoni_near_drain(near, transfer->peer, NEAR_TAKE_MAX);
	near->issuing = NULL;
	return near->issued;
}

enum baton_status
batoni_near_receive(struct batoni_pairs *near, struct batoni_transfer *transfer)
{
	struct near_node *node = &near->nodes[transfer->slot];
	uint64_t key = batoni_near_key(near, transfer->peer, (uint32_t)transfer->tag);
	struct near_end *front = find_front(near, key);
	enum baton_status status;

	while (front && front->is_arrival) {
		status = meet_arrival(near, node, transfer,
		                      (struct near_arrival *)front);
		if (status != BATON_ERR_AGAIN)
			return status;
		front = find_front(near, key);
	}
	return post(near, node, transfer, key, front);
}

/* ---- receives from any rank, or of any tag ---- */

/* The arrival is the first of its rank and tag.  OK: it is to be met.  ABORTED: it is not to be met, and nor is
 * what is behind it.  AGAIN: its sender has taken it back, and it is no more. */
static enum baton_status
fix(struct batoni_pairs *near, struct near_arrival *arrival)
{
	struct batoni_upcalls *upcalls = near->base.messages.upcalls;
	enum baton_status status = BATON_OK;

	if (arrival->bars ||
	    !upcalls->may_meet(upcalls, arrival->from, (int)arrival->head.tag))
		return BATON_ERR_ABORTED;
	if (!is_whole(&arrival->head) && !arrival->matched)
		status = batoni_near_match_announced(near, arrival->from, &arrival->what);
	arrival->matched |= status == BATON_OK;
	arrival->bars = status == BATON_ERR_ABORTED;
	if (status == BATON_OK || status == BATON_ERR_ABORTED)
		return status;
	leave_queue(near, arrival);
	free_arrival(near, arrival);
	return BATON_ERR_AGAIN;
}

static bool
fix_of_tag(struct batoni_pairs *near, int from, int tag)
{
	uint64_t key = batoni_near_key(near, from, (uint32_t)tag);
	enum baton_status status = BATON_ERR_AGAIN;
	struct near_end *front;

	while (status == BATON_ERR_AGAIN && (front = find_front(near, key)) &&
	       front->is_arrival)
		status = fix(near, (struct near_arrival *)front);
	return status == BATON_OK;
}

static bool
fix_of_any_tag(struct batoni_pairs *near, int from, int *tag_p)
{
	struct batoni_list_node *arrived = &near->peers[from].arrived, *next;

	for (struct batoni_list_node *at = arrived->next; at != arrived; at = next) {
		struct near_arrival *arrival =
			batoni_container_of(at, struct near_arrival, link);
		uint32_t tag = arrival->head.tag;
		uint64_t key = batoni_near_key(near, from, tag);

		next = at->next;
		if (tag > (uint32_t)near->base.tag_max ||
		    find_front(near, key) != &arrival->end ||
		    fix(near, arrival) != BATON_OK)
			continue;
		*tag_p = (int)tag;
		return true;
	}
	return false;
}

bool
batoni_near_fix_arrival(struct batoni_pairs *near, int from, int *tag_p)
{
	return *tag_p >= 0 ? fix_of_tag(near, from, *tag_p)
	                   : fix_of_any_tag(near, from, tag_p);
}

/* ---- what probes have found ---- */

void
batoni_near_hold(struct batoni_pairs *near, const struct batoni_transfer *receive,
                 struct batoni_held *held_p)
{
	struct near_arrival *arrival = (struct near_arrival *)find_front(
		near, batoni_near_key(near, receive->peer, (uint32_t)receive->tag));
	const struct batoni_ring_head *head = &arrival->head;

	*held_p = (struct batoni_held){.bytes = (size_t)head->length};
	if (head->kind == BATONI_RING_LIST) {
		batoni_near_describe_list(head, arrival->bytes, held_p);
	} else if (head->kind == BATONI_RING_LIST_ANNOUNCE) {
		held_p->list = true;
		held_p->tensors = arrival->what.count;
	}
	leave_queue(near, arrival);
	near->nodes[receive->slot].held = arrival;
}

enum baton_status
batoni_near_meet_held(struct batoni_pairs *near, struct batoni_transfer *receive,
                      const struct batoni_transfer *held)
{
	struct near_node *node = &near->nodes[held->slot];
	struct near_arrival *arrival = node->held;

	node->held = NULL;
	return meet_left(near, &near->nodes[receive->slot], receive, arrival);
}
