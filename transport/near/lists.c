/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors over near (tensor_list.h).
 *
 * A list whose header and payload have room in the ring goes there whole, behind two words: the
 * header's bytes, and 0.  Any other is announced with the addresses of its header and of its
 * segments.  The receiver reads the header, meets it, and then reads the sender's segments,
 * PARTS_MAX at a time, and their bytes to where they are to be: one copy, and two calls of the
 * kernel for so many tensors.  It takes of the sender's segments no more than where they lie: their
 * lengths have to be those of the header.  The announcement names one block (blocks.c), the first that a
 * tensor lies in: those within it are copied from its mapping, and only the others are read by the kernel.
 *
 * By chunks the header comes first and then the payload, cut anywhere.  A receive that does not
 * agree drops what comes.
 */
#include "near.h"

#include <sys/uio.h>

#include "tensors.h"

/* The words before the header. */
#define WORDS_BYTES 8u
#define PARTS_MAX 64u

/* ---- whole, in the ring ---- */

size_t
batoni_near_list_bytes(const struct batoni_tensor_list *list)
{
	return WORDS_BYTES + list->header_bytes + list->payload_bytes;
}

void
batoni_near_put_list(const struct batoni_ring_out *out,
                     const struct batoni_tensor_list *list)
{
	const uint32_t words[2] = {(uint32_t)list->header_bytes, 0};
	size_t at = sizeof(words);

	batoni_ring_copy_in(out, 0, words, sizeof(words));
	batoni_ring_copy_in(out, at, list->header, list->header_bytes);
	at += list->header_bytes;
	for (size_t i = 0; i < list->count; i++) {
		const struct batoni_segment *segment = &list->segments[i];

		if (segment->bytes)
			batoni_ring_copy_in(out, at, segment->data,
			                    segment->bytes);
		at += segment->bytes;
	}
}

/* Copy bytes of the message at the head of the ring, or of an arrival. */
static void
copy_from_message(const struct batoni_ring_in *in,
                  const unsigned char *bytes_or_null, size_t at,
                  void *to, size_t n)
{
	if (n == 0)
		return;
	if (bytes_or_null)
		memcpy(to, bytes_or_null + at, n);
	else
		batoni_ring_copy_out(in, at, to, n);
}

enum baton_status
batoni_near_meet_list(struct batoni_pairs *near, struct batoni_transfer *transfer,
                      int from, const struct batoni_ring_head *head,
                      const unsigned char *bytes_or_null)
{
	const struct batoni_ring_in *in = &near->peers[from].in;
	const struct batoni_tensor_list *list = batoni_transfer_list(transfer);
	size_t length, at = WORDS_BYTES;
	enum baton_status status;
	uint32_t words[2];

	copy_from_message(in, bytes_or_null, 0, words, sizeof(words));
	if (words[0] < BATONI_TENSORS_FIXED_BYTES || words[0] > head->length - at) {
		batoni_near_break(near, from, "a list of tensors");
		return BATON_ERR_PEER;
	}
	length = (size_t)head->length - at - words[0];
	copy_from_message(in, bytes_or_null, at, near->scratch, words[0]);
	at += words[0];
	status = batoni_transfer_meet_list(transfer, near->scratch, words[0],
	                                   words[0], length);
	if (status == BATON_ERR_PEER)
		batoni_near_break(near, from, "a list of tensors");
	for (size_t i = 0; status == BATON_OK && i < list->count; i++) {
		const struct batoni_segment *segment = &list->segments[i];

		copy_from_message(in, bytes_or_null, at, segment->data, segment->bytes);
		at += segment->bytes;
	}
	batoni_transfer_arrived(transfer, status, length);
	return status;
}

void
batoni_near_describe_list(const struct batoni_ring_head *head,
                          const unsigned char *bytes, struct batoni_held *held_p)
{
	uint32_t words[2];

	held_p->list = true;
	copy_from_message(NULL, bytes, 0, words, sizeof(words));
	/* The receive refuses what is none. */
	if (words[0] < BATONI_TENSORS_FIXED_BYTES ||
	    words[0] > head->length - WORDS_BYTES)
		return;
	held_p->bytes = (size_t)head->length - WORDS_BYTES - words[0];
	held_p->tensors = batoni_tensors_stated_count(bytes + WORDS_BYTES);
}

/* ---- announced ---- */

void
batoni_near_announce_list(struct batoni_pairs *near, int peer,
                          const struct batoni_tensor_list *list,
                          struct near_announcement *what)
{
	for (size_t i = 0; i < list->count && i < PARTS_MAX && !what->block.serial; i++)
		if (list->segments[i].bytes)
			batoni_near_name_block(near, peer, list->segments[i].data,
			                       list->segments[i].bytes,
			                       &what->block);
	what->address = (uintptr_t)list->header;
	what->header_bytes = (uint32_t)list->header_bytes;
	what->count = (uint32_t)list->count;
	what->segments = (uintptr_t)list->segments;
}

/* What was read of a sender contradicts itself.  A sender that gives its memory up says so before;
 * if its process has ended, the memory may be another process's. */
static enum baton_status
contradict(struct batoni_pairs *near, const struct near_node *node)
{
	if (batoni_near_is_matched(near, node) &&
	    !batoni_pidfd_gone(near->base.peers[node->peer].pidfd))
		batoni_near_break(near, node->peer, "a list of tensors");
	return BATON_ERR_PEER;
}

enum baton_status
batoni_near_meet_far_list(struct batoni_pairs *near, struct near_node *node,
                          size_t *budget)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(node->transfer);
	const struct near_announcement *what = &node->what;
	size_t whole = what->header_bytes, n = whole - (size_t)node->moved;
	bool first = node->moved == 0;
	enum baton_status status;

	if (whole < BATONI_TENSORS_FIXED_BYTES || whole > BATONI_TENSORS_HEADER_MAX ||
	    node->length > INT64_MAX) {
		batoni_near_break(near, node->peer, "a list of tensors");
		return BATON_ERR_PEER;
	}
	if (n > *budget)
		n = *budget;
	if (first && n < BATONI_TENSORS_FIXED_BYTES)
		n = BATONI_TENSORS_FIXED_BYTES;
	status = batoni_near_read(near, node, what->address + node->moved,
	                          first ? near->scratch : list->header + node->moved,
	                          n);
	if (status != BATON_OK)
		return status;
	*budget -= n < *budget ? n : *budget;
	node->moved += n;
	if (!first && node->moved < whole)
		return BATON_PENDING;
	/* (Of a process that has ended, what is here may be another one's: end_fetch asks.) */
	status = batoni_transfer_meet_list(node->transfer,
	                                   first ? near->scratch : list->header,
	                                   (size_t)node->moved, whole,
	                                   (size_t)node->length);
	if (status == BATON_PENDING)
		return status;
	if (status == BATON_ERR_PEER ||
	    (status == BATON_OK && list->count != what->count))
		return contradict(near, node);
	node->moved = 0;
	return status;
}

/* Where the next bytes lie, on both sides: parts of up to `most` bytes in all. */
struct parts {
	struct iovec from[PARTS_MAX], to[PARTS_MAX];
	size_t n, bytes;
};

/* theirs: the sender's segments, `theirs_n` of them, from the cursor's on.  The cursor goes behind the
 * parts.  False: they are others than its header says. */
static bool
cut(const struct batoni_tensor_list *list, struct batoni_tensor_list_cursor *cursor,
    const struct batoni_segment *theirs, size_t theirs_n, size_t most,
    struct parts *parts)
{
	size_t first = cursor->segment;

	parts->n = parts->bytes = 0;
	while (parts->n < PARTS_MAX && parts->bytes < most) {
		struct batoni_segment part =
			batoni_cursor_peek(list, cursor, most - parts->bytes);
		size_t i = cursor->segment - first;

		if (part.bytes == 0 || i >= theirs_n)
			break;
		if (theirs[i].bytes != list->segments[cursor->segment].bytes)
			return false;
		parts->to[parts->n] = (struct iovec){part.data, part.bytes};
		parts->from[parts->n++] = (struct iovec){
			theirs[i].data + cursor->at, part.bytes};
		parts->bytes += part.bytes;
		cursor->at += part.bytes;
	}
	return true;
}

/* Copy the parts that lie in the mapped block, and take them out; the others keep their order. */
static void
copy_mapped(struct batoni_pairs *near, const struct near_node *node, struct parts *parts)
{
	size_t left = 0;

	for (size_t i = 0; i < parts->n; i++) {
		size_t bytes = parts->to[i].iov_len;
		const void *from = batoni_near_mapped(
			near, node->peer, &node->what.block,
			(uintptr_t)parts->from[i].iov_base, bytes);

		if (from) {
			memcpy(parts->to[i].iov_base, from, bytes);
			continue;
		}
		parts->to[left] = parts->to[i];
		parts->from[left++] = parts->from[i];
	}
	parts->n = left;
}

static enum baton_status
move(struct batoni_pairs *near, const struct near_node *node, struct parts *parts)
{
	const struct batoni_peer *peer = &near->base.peers[node->peer];

	if (node->what.block.serial)
		copy_mapped(near, node, parts);
	if (parts->n == 0)
		return BATON_OK;
	near->alive = -1;
	if (!peer->within)
		return batoni_near_judge(
			near, node->peer,
			batoni_vm_read_parts(peer->pid, parts->from, parts->to,
		                             parts->n));
	for (size_t i = 0; i < parts->n; i++)
		memmove(parts->to[i].iov_base, parts->from[i].iov_base,
		        parts->to[i].iov_len);
	return BATON_OK;
}

enum baton_status
batoni_near_copy_list(struct batoni_pairs *near, struct near_node *node,
                      size_t *budget)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(node->transfer);
	enum baton_status status = BATON_OK;

	while (*budget > 0 && node->moved < node->length) {
		struct batoni_segment theirs[PARTS_MAX];
		struct parts parts;
		size_t n;

		/* Go past tensors that are empty or done. */
		batoni_cursor_peek(list, &node->cursor, 1);
		n = list->count - node->cursor.segment;
		if (n > PARTS_MAX)
			n = PARTS_MAX;
		status = batoni_near_read(near, node,
		                          node->what.segments +
		                                  node->cursor.segment *
		                                          sizeof(theirs[0]),
		                          theirs, n * sizeof(theirs[0]));
		if (status != BATON_OK)
			return status;
		if (!cut(list, &node->cursor, theirs, n, *budget, &parts))
			return contradict(near, node);
		status = move(near, node, &parts);
		if (status != BATON_OK)
			return status;
		*budget -= parts.bytes;
		node->moved += parts.bytes;
	}
	return status;
}

/* ---- by chunks ---- */

void
batoni_near_put_part(const struct batoni_ring_out *out, struct near_node *node,
                     size_t at, size_t n)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(node->transfer);

	if (node->moved < list->header_bytes) {
		size_t first = list->header_bytes - (size_t)node->moved;

		if (first > n)
			first = n;
		batoni_ring_copy_in(out, at, list->header + node->moved, first);
		at += first;
		n -= first;
	}
	while (n > 0) {
		struct batoni_segment part = batoni_cursor_next(list, &node->cursor,
		                                                n);

		batoni_ring_copy_in(out, at, part.data, part.bytes);
		at += part.bytes;
		n -= part.bytes;
	}
}

/* Bytes of the header, of which so many are here now.  False: they contradict the announcement. */
static bool
take_header(struct near_node *node, const struct batoni_ring_in *in, size_t at,
            size_t n, unsigned char *scratch)
{
	struct batoni_tensor_list *list = batoni_transfer_list(node->transfer);
	size_t whole = node->what.header_bytes, there = (size_t)node->moved + n;
	size_t length = (size_t)(node->length - whole);

	if (node->verdict != BATON_PENDING)
		return true;
	if (node->moved == 0) {
		batoni_ring_copy_out(in, at, scratch, n);
		node->verdict = batoni_transfer_meet_list(node->transfer, scratch,
		                                          there, whole, length);
	} else {
		batoni_ring_copy_out(in, at, list->header + node->moved, n);
		if (there == whole)
			node->verdict = batoni_transfer_meet_list(
				node->transfer, list->header, there, whole,
				length);
	}
	return node->verdict != BATON_ERR_PEER;
}

bool
batoni_near_take_part(struct batoni_pairs *near, struct near_node *node, size_t at,
                      size_t n)
{
	const struct batoni_ring_in *in = &near->peers[node->peer].in;
	const struct batoni_tensor_list *list = batoni_transfer_list(node->transfer);

	if (node->moved < node->what.header_bytes) {
		size_t first = node->what.header_bytes - (size_t)node->moved;

		if (first > n)
			first = n;
		if (!take_header(node, in, at, first, near->scratch))
			return false;
		at += first;
		n -= first;
	}
	while (n > 0 && node->verdict == BATON_OK && !node->scrapped) {
		struct batoni_segment part = batoni_cursor_next(list, &node->cursor,
		                                                n);

		batoni_ring_copy_out(in, at, part.data, part.bytes);
		at += part.bytes;
		n -= part.bytes;
	}
	return true;
}
