/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Announced messages: the receiver's copy, and chunks where it cannot copy (near.h).
 *
 *   receive: POSTED -> FETCHING -> over
 *                      FETCHING -> GRANTING -> CHUNKED -> over
 *   send:    ANNOUNCED -> CHUNKING -> over
 *
 * A message of up to NEAR_INLINE_MAX is copied by the slot that has met it.  What copies, of either
 * kind, has turns in near->copies: NEAR_PASS_MAX in a pass together.  The header of a list counts as
 * its bytes do: while some of it is to be read, `verdict` is PENDING and `moved` counts the header.
 *
 * Reading another process's memory.  Only trying shows whether the kernel allows it: a filter of
 * system calls, Yama, another user.  The first refusal is for good: that peer's messages come by
 * chunks.  An address that cannot be read so (memory of a driver, mapped specially) makes its
 * message come by chunks.  After the last read of a message the process's descriptor is asked: if
 * it has ended, another one may have had its number, and what was read does not count.  (What
 * was copied from a mapping of its memory does: no other process writes there.)
 *
 * A scrapped receive is copied no further, and its chunks are dropped.
 */
#include "near.h"

#include <assert.h>

#include "log.h"

/* How many messages that the kernel has read may end behind one check of the process. */
enum { ENDS_AT_ONCE = 4 };

static _Atomic uint64_t *
state_of(const struct batoni_pairs *near, int from, uint32_t slot)
{
	return batoni_ring_state(&near->layout, near->peers[from].area, slot);
}

static bool
exchange_state(struct batoni_pairs *near, int from, uint32_t slot,
               uint32_t generation, enum near_word was, enum near_word is)
{
	return batoni_near_exchange(state_of(near, from, slot), generation, was, is);
}

enum baton_status
batoni_near_match_announced(struct batoni_pairs *near, int from,
                            const struct near_announcement *what)
{
	if (exchange_state(near, from, what->slot, what->generation, NEAR_WAITING,
	                   NEAR_MATCHED))
		return BATON_OK;
	return atomic_load(state_of(near, from, what->slot)) ==
	                       batoni_near_word(what->generation, NEAR_REVOKED)
	               ? BATON_ERR_ABORTED
	               : BATON_ERR_CANCELED;
}

/* The message's bytes are not needed any more.  False: its sender has given it up before. */
static bool
tell_copied(struct batoni_pairs *near, int from, uint32_t slot, uint32_t generation)
{
	struct batoni_ring_out *out = &near->peers[from].out;
	const struct batoni_ring_head head = {
		.kind = BATONI_RING_DONE,
		.cells = 1,
		.length = 8,
	};
	const uint32_t what[2] = {slot, generation};

	if (!exchange_state(near, from, slot, generation, NEAR_MATCHED,
	                    NEAR_COPIED))
		return false;
	if (near->peers[from].connected &&
	    (batoni_ring_has_room(out, 1) ||
	     (batoni_ring_refresh(out) && batoni_ring_has_room(out, 1)))) {
		batoni_ring_copy_in(out, 0, what, sizeof(what));
		batoni_ring_publish(out, &head);
	} else {
		atomic_store(&out->control->scan, 1);
		batoni_ring_call(out);
	}
	return true;
}

/* What the kernel has read of the rank's memory may be another process's.  One check holds for all that was
 * read before it. */
static bool
is_void(struct batoni_pairs *near, int from)
{
	if (near->alive == from)
		return false;
	/* (For a process without a descriptor the answer is false.) */
	if (batoni_pidfd_gone(near->base.peers[from].pidfd))
		return true;
	near->alive = from;
	return false;
}

/* All bytes are here, or no more are needed: end the fetch. */
static enum baton_status
end_fetch(struct batoni_pairs *near, struct near_node *node)
{
	enum baton_status verdict = node->verdict;

	if ((node->by_kernel && is_void(near, node->peer)) ||
	    !tell_copied(near, node->peer, node->what.slot,
	                 node->what.generation))
		return BATON_ERR_PEER;
	batoni_transfer_arrived(node->transfer, verdict, (size_t)node->length);
	return verdict;
}

static void
say_unread(struct batoni_pairs *near, int from)
{
	if (near->peers[from].unread)
		return;
	near->peers[from].unread = true;
	batoni_log(BATONI_LOG_INFO,
	           "rank %d: the kernel does not let this process read the memory "
	           "of rank %d (process_vm_readv): long messages from there are "
	           "copied twice",
	           near->base.rank, from);
}

/* Ask for the bytes by chunks, from the first on. */
static enum baton_status
ask_for_chunks(struct batoni_pairs *near, struct near_node *node)
{
	batoni_list_remove(&node->link);
	batoni_near_set_moving(near, node, false);
	node->moved = 0;
	node->cursor = (struct batoni_tensor_list_cursor){0, 0};
	node->length += node->what.header_bytes;
	node->verdict = BATON_PENDING;
	node->generation++;
	node->state = NEAR_GRANTING;
	if (!batoni_near_grant(near, node))
		batoni_list_append(&near->peers[node->peer].starved, &node->link);
	return BATON_PENDING;
}

enum baton_status
batoni_near_read(struct batoni_pairs *near, struct near_node *node, uint64_t address,
                 void *to, size_t bytes)
{
	int from = node->peer;
	const struct batoni_peer *peer = &near->base.peers[from];
	enum baton_status status = BATON_ERR_UNSUPPORTED;

	if (peer->within) {
		memmove(to, (const void *)(uintptr_t)address, bytes);
		return BATON_OK;
	}
	node->by_kernel = true;
	near->alive = -1;
	if (peer->pid && !near->peers[from].unread)
		status = batoni_vm_read(peer->pid, address, to, bytes);
	return batoni_near_judge(near, from, status);
}

enum baton_status
batoni_near_judge(struct batoni_pairs *near, int from, enum baton_status status)
{
	/* The first thread of a process may have ended before the others. */
	if (status == BATON_ERR_PEER &&
	    !batoni_pidfd_gone(near->base.peers[from].pidfd))
		status = BATON_ERR_UNSUPPORTED;
	if (status == BATON_ERR_UNSUPPORTED)
		say_unread(near, from);
	return status;
}

static enum baton_status
copy_plain(struct batoni_pairs *near, struct near_node *node, size_t *budget)
{
	size_t n = (size_t)(node->length - node->moved);
	uint64_t address = node->what.address + node->moved;
	char *to = (char *)node->transfer->buffer + node->moved;
	enum baton_status status = BATON_OK;
	const void *from;

	if (n > *budget)
		n = *budget;
	from = batoni_near_mapped(near, node->peer, &node->what.block, address, n);
	if (from)
		memcpy(to, from, n);
	else
		status = batoni_near_read(near, node, address, to, n);
	*budget -= n;
	node->moved += n;
	return status;
}

bool
batoni_near_is_matched(const struct batoni_pairs *near, const struct near_node *node)
{
	return atomic_load(state_of(near, node->peer, node->what.slot)) ==
	       batoni_near_word(node->what.generation, NEAR_MATCHED);
}

/* Read up to *budget bytes of a list's header.  OK: it is met, node->verdict; PENDING: there are more, or
 * all comes by chunks now; PEER. */
static enum baton_status
read_header(struct batoni_pairs *near, struct near_node *node, size_t *budget)
{
	enum baton_status status = batoni_near_meet_far_list(near, node, budget);

	if (status == BATON_ERR_UNSUPPORTED || status == BATON_ERR_INVALID)
		return ask_for_chunks(near, node);
	if (status == BATON_ERR_PEER || status == BATON_PENDING)
		return status;
	node->verdict = status;
	return BATON_OK;
}

/* Copy up to *budget bytes.  OK: end_fetch is due; PENDING: there are more, or they come by chunks
 * now; PEER. */
static enum baton_status
copy_some(struct batoni_pairs *near, struct near_node *node, size_t *budget)
{
	enum baton_status status = BATON_OK;

	if (node->scrapped) {
		node->verdict = BATON_OK;
		return BATON_OK;
	}
	/* A rank of this process that has given its buffer up may have freed it. */
	if (near->base.peers[node->peer].within &&
	    !batoni_near_is_matched(near, node))
		return BATON_ERR_PEER;
	if (node->verdict == BATON_PENDING)
		status = read_header(near, node, budget);
	if (status != BATON_OK || node->verdict != BATON_OK)
		return status;
	status = batoni_transfer_list(node->transfer)
	                 ? batoni_near_copy_list(near, node, budget)
	                 : copy_plain(near, node, budget);
	if (status == BATON_ERR_PEER)
		return status;
	if (status != BATON_OK)
		return ask_for_chunks(near, node);
	return node->moved == node->length ? BATON_OK : BATON_PENDING;
}

/* The receive meets the message.  Returns how it ends, OK once its bytes are copied; PENDING: it is
 * a list, whose header is to be read. */
static enum baton_status
meet_by_head(struct batoni_transfer *transfer, const struct batoni_ring_head *head)
{
	if (head->kind == BATONI_RING_ANNOUNCE)
		return batoni_transfer_meet_plain(transfer, (size_t)head->length,
		                                  head->type - 1);
	return batoni_transfer_list(transfer) ? BATON_PENDING
	                                      : BATON_ERR_MISMATCH;
}

static bool
is_within_a_call(const struct batoni_pairs *near, uint64_t bytes)
{
	return bytes <= NEAR_INLINE_MAX && bytes <= near->budget;
}

enum baton_status
batoni_near_fetch(struct batoni_pairs *near, struct near_node *node, int from,
                  const struct batoni_ring_head *head,
                  const struct near_announcement *what)
{
	enum baton_status status = BATON_OK;

	node->state = NEAR_FETCHING;
	node->peer = from;
	node->what = *what;
	node->length = head->length;
	node->moved = 0;
	node->by_kernel = false;
	node->cursor = (struct batoni_tensor_list_cursor){0, 0};
	node->verdict = meet_by_head(node->transfer, head);
	if (node->verdict == BATON_PENDING &&
	    is_within_a_call(near, what->header_bytes))
		status = read_header(near, node, &near->budget);
	if (status != BATON_OK)
		return status;
	if (node->verdict != BATON_PENDING &&
	    (node->verdict != BATON_OK || node->length == 0))
		return end_fetch(near, node);
	if (node->verdict == BATON_OK && is_within_a_call(near, node->length)) {
		status = copy_some(near, node, &near->budget);
		return status == BATON_OK ? end_fetch(near, node) : status;
	}
	batoni_list_append(&near->copies, &node->link);
	batoni_near_set_moving(near, node, true);
	return BATON_PENDING;
}

/* ---- chunks ---- */

bool
batoni_near_grant(struct batoni_pairs *near, struct near_node *node)
{
	struct batoni_ring_out *out = &near->peers[node->peer].out;
	const struct batoni_ring_head head = {
		.kind = BATONI_RING_GRANT,
		.cells = 2,
		.length = 24,
	};
	const uint32_t what[4] = {
		node->what.slot,
		node->what.generation,
		node->transfer->slot,
		node->generation,
	};

	if (!batoni_near_room(near, node->peer, head.cells))
		return false;
	batoni_ring_copy_in(out, 0, what, sizeof(what));
	batoni_ring_copy_in(out, sizeof(what), &node->length,
	                    sizeof(node->length));
	batoni_ring_publish(out, &head);
	batoni_list_remove(&node->link);
	node->state = NEAR_CHUNKED;
	return true;
}

/* How many bytes of the message go by chunks. */
static uint64_t
bytes_by_chunks(const struct batoni_transfer *transfer)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);

	return transfer->bytes + (list ? list->header_bytes : 0);
}

bool
batoni_near_granted(struct batoni_pairs *near, int peer, uint32_t slot,
                    uint32_t generation, uint32_t theirs,
                    uint32_t their_generation, uint64_t most)
{
	struct near_node *node;

	if (slot >= near->base.slots)
		return false;
	node = &near->nodes[slot];
	/* It may have been given up meanwhile. */
	if (node->state != NEAR_ANNOUNCED || node->generation != generation ||
	    node->transfer->peer != peer)
		return true;
	if (most == 0 || most != bytes_by_chunks(node->transfer))
		return false;
	node->state = NEAR_CHUNKING;
	node->what.slot = theirs;
	node->what.generation = their_generation;
	node->length = most;
	node->moved = 0;
	node->cursor = (struct batoni_tensor_list_cursor){0, 0};
	batoni_list_append(&near->copies, &node->link);
	batoni_near_set_moving(near, node, true);
	return true;
}

/* Send one chunk, for which there is room. */
static void
send_chunk(struct batoni_pairs *near, struct near_node *node, size_t n)
{
	struct batoni_ring_out *out = &near->peers[node->peer].out;
	const struct batoni_ring_head head = {
		.kind = BATONI_RING_CHUNK,
		.cells = (uint16_t)batoni_ring_cells(8 + n),
		.length = 8 + n,
	};
	const uint32_t what[2] = {node->what.slot, node->what.generation};

	batoni_ring_copy_in(out, 0, what, sizeof(what));
	if (batoni_transfer_list(node->transfer))
		batoni_near_put_part(out, node, sizeof(what), n);
	else
		batoni_ring_copy_in(out, sizeof(what),
		                    (const char *)node->transfer->buffer +
		                            node->moved,
		                    n);
	batoni_ring_publish(out, &head);
	node->moved += n;
}

bool
batoni_near_send_chunks(struct batoni_pairs *near, struct near_node *node,
                        size_t *budget)
{
	batoni_list_remove(&node->link);
	while (node->moved < node->length && *budget > 0) {
		size_t n = (size_t)(node->length - node->moved);

		if (n > NEAR_CHUNK_MAX)
			n = NEAR_CHUNK_MAX;
		if (!batoni_near_room(near, node->peer, batoni_ring_cells(8 + n))) {
			struct near_peer *peer = &near->peers[node->peer];

			batoni_near_set_moving(near, node, false);
			/* It goes before the sends that are not announced yet, since its turn
			 * was before theirs. */
			batoni_list_append(peer->starved.next, &node->link);
			return false;
		}
		send_chunk(near, node, n);
		*budget -= n < *budget ? n : *budget;
	}
	if (node->moved < node->length) {
		batoni_near_set_moving(near, node, true);
		batoni_list_append(&near->copies, &node->link);
		return true;
	}
	batoni_transfer_moved(node->transfer, node->transfer->bytes);
	batoni_near_end(near, node, BATON_OK);
	return true;
}

/* All bytes have come. */
static void
end_chunked(struct batoni_pairs *near, struct near_node *node)
{
	bool list = batoni_transfer_list(node->transfer) != NULL;
	enum baton_status status = list ? node->verdict : BATON_OK;

	batoni_transfer_arrived(node->transfer, status,
	                        (size_t)(node->length - node->what.header_bytes));
	batoni_near_end(near, node, status);
}

bool
batoni_near_chunk(struct batoni_pairs *near, int peer,
                  const struct batoni_ring_head *head)
{
	const struct batoni_ring_in *in = &near->peers[peer].in;
	size_t n = (size_t)head->length - 8;
	struct near_node *node;
	uint32_t what[2];

	batoni_ring_copy_out(in, 0, what, sizeof(what));
	if (what[0] >= near->base.slots)
		return false;
	node = &near->nodes[what[0]];
	/* The receive may have ended meanwhile, for example since the peer is gone. */
	if (node->state != NEAR_CHUNKED || node->generation != what[1] ||
	    node->peer != peer)
		return true;
	if (n > node->length - node->moved)
		return false;
	if (batoni_transfer_list(node->transfer)) {
		if (!batoni_near_take_part(near, node, sizeof(what), n))
			return false;
	} else if (!node->scrapped) {
		batoni_ring_copy_out(in, sizeof(what),
		                     (char *)node->transfer->buffer + node->moved,
		                     n);
	}
	node->moved += n;
	if (node->moved == node->length)
		end_chunked(near, node);
	return true;
}

/* ---- turns ---- */

static void
end_all(struct batoni_pairs *near, struct batoni_list_node *copied)
{
	while (!batoni_list_empty(copied)) {
		struct near_node *node = batoni_near_node(copied->next);

		batoni_near_end(near, node, end_fetch(near, node));
	}
}

size_t
batoni_near_copy(struct batoni_pairs *near)
{
	struct batoni_list_node copied;
	size_t events = 0, n = 0;

	batoni_list_init(&copied);

	while (near->budget > 0 && !batoni_list_empty(&near->copies)) {
		struct near_node *node = batoni_near_node(near->copies.next);
		enum baton_status status;

		events++;
		if (node->state == NEAR_CHUNKING) {
			batoni_near_send_chunks(near, node, &near->budget);
			continue;
		}
		assert(node->state == NEAR_FETCHING);
		batoni_list_remove(&node->link);
		batoni_list_append(&near->copies, &node->link);
		status = copy_some(near, node, &near->budget);
		if (status == BATON_OK) {
			batoni_list_remove(&node->link);
			batoni_list_append(&copied, &node->link);
			/* Messages that were copied from a mapping need no check. */
			if (!node->by_kernel || ++n % ENDS_AT_ONCE == 0)
				end_all(near, &copied);
		} else if (status != BATON_PENDING) {
			batoni_near_end(near, node, status);
		}
	}
	end_all(near, &copied);
	return events;
}
