/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors: what matches, where the bytes go, why they do not.  No state of its
 * own; the driver calls, or the thread that holds the operation (batoni_tensor_list_explain). */
#include "tensor_list.h"

#include <stdio.h>
#include <string.h>

#include "log.h"
#include "path.h"
#include "tensors.h"

/* ---- matching ---- */

static enum baton_status
differ(struct batoni_tensor_list *list, enum batoni_tensor_list_fault fault)
{
	list->fault = fault;
	return BATON_ERR_MISMATCH;
}

static bool
agrees(const struct baton_tensor *declared, const struct baton_tensor *came)
{
	if (declared->rank < 0)
		return true;
	if (declared->type != came->type || declared->rank != came->rank)
		return false;
	for (int i = 0; i < came->rank; i++) {
		if (declared->shape[i] >= 0 &&
		    declared->shape[i] != came->shape[i])
			return false;
	}
	return true;
}

/* The tensor goes to the program's memory, or behind *end in the arena. */
static struct batoni_segment
segment_of(const struct batoni_tensor_list *list,
           const struct baton_tensor *declared, size_t bytes, size_t *end)
{
	const size_t mask = BATONI_TENSORS_ALIGNMENT - 1;
	struct batoni_segment segment = {declared->data, bytes};
	size_t at;

	if (declared->data)
		return segment;
	/* No overflow: the sum of all bytes is below 2^63, and there are 4096 at most. */
	at = (*end + mask) & ~mask;
	*end = at + bytes;
	if (*end <= list->arena_bytes && list->arena)
		segment.data = list->arena + at;
	return segment;
}

static enum baton_status
place_all(struct batoni_tensor_list *list, struct batoni_tensors came)
{
	struct baton_tensor tensor;
	size_t end = 0;

	for (size_t i = 0; batoni_tensors_next(&came, &tensor); i++) {
		size_t bytes = 0;

		if (!agrees(&list->declared[i], &tensor)) {
			list->fault_tensor = i;
			list->came = tensor;
			return differ(list, BATONI_LIST_TENSOR);
		}
		batoni_tensor_bytes(&tensor, &bytes);
		list->segments[i] =
			segment_of(list, &list->declared[i], bytes, &end);
	}
	list->payload_bytes = came.payload_bytes;
	list->count = came.count;
	if (end <= list->arena_bytes)
		return BATON_OK;
	list->fault = BATONI_LIST_ARENA;
	list->fault_bytes = end;
	return BATON_ERR_TRUNCATED;
}

enum baton_status
batoni_tensor_list_meet(struct batoni_tensor_list *list, const unsigned char *header,
                        size_t n)
{
	struct batoni_tensors came;

	/* It is what was encoded here, so it is well formed.  (A header that came in parts has
	 * been put where that was.) */
	if (list->closed && header != list->header && n == list->header_bytes &&
	    memcmp(header, list->header, n) == 0)
		return BATON_OK;
	list->fault_text = batoni_tensors_decode(header, n, &came);
	if (list->fault_text)
		return differ(list, BATONI_LIST_HEADER);
	list->fault_tensor = came.count;
	if (came.count > list->declared_n ||
	    (came.count < list->declared_n && !list->fewer))
		return differ(list, BATONI_LIST_COUNT);
	if (header != list->header)
		memcpy(list->header, header, came.header_bytes);
	list->header_bytes = came.header_bytes;
	return place_all(list, came);
}

enum baton_status
batoni_tensor_list_meet_plain(struct batoni_tensor_list *list, size_t bytes)
{
	list->fault_bytes = bytes;
	return differ(list, BATONI_LIST_PLAIN);
}

enum baton_status
batoni_transfer_meet_list(struct batoni_transfer *receive,
                          const unsigned char *header, size_t there,
                          size_t whole, size_t length)
{
	struct batoni_tensor_list *list = batoni_transfer_list(receive);
	enum baton_status status;

	if (!list)
		return BATON_ERR_MISMATCH;
	/* header_max is enough for as many tensors as were declared, of any rank. */
	if (whole > list->header_max) {
		list->fault_tensor = batoni_tensors_stated_count(header);
		return differ(list, BATONI_LIST_COUNT);
	}
	if (there < whole) {
		memcpy(list->header, header, there);
		list->header_bytes = whole;
		return BATON_PENDING;
	}
	status = batoni_tensor_list_meet(list, header, whole);
	return status == BATON_OK && (list->payload_bytes != length ||
	                              list->header_bytes != whole)
	               ? BATON_ERR_PEER
	               : status;
}

enum baton_status
batoni_transfer_meet_send(struct batoni_transfer *receive,
                          struct batoni_transfer *send)
{
	const struct batoni_tensor_list *list = batoni_transfer_list(send);
	size_t length = list ? list->payload_bytes : send->bytes;
	enum baton_status status;

	if (list)
		status = batoni_transfer_meet_list(receive, list->header,
		                                   list->header_bytes,
		                                   list->header_bytes, length);
	else
		status = batoni_transfer_meet_plain(receive, length, -1);
	batoni_transfer_arrived(receive, status, length);
	batoni_transfer_moved(send, length);
	return status;
}

/* ---- bytes ---- */

size_t
batoni_cursor_next_piece(const struct batoni_tensor_list *list,
                         const struct batoni_tensor_list_cut *cut,
                         struct batoni_tensor_list_cursor *cursor,
                         struct batoni_segment *parts)
{
	struct batoni_segment part = batoni_cursor_peek(list, cursor, cut->most);
	size_t sum = 0, n = 0;

	if (part.bytes >= cut->alone) {
		if (parts)
			parts[0] = part;
		cursor->at += part.bytes;
		return 1;
	}
	while (part.bytes > 0 && part.bytes < cut->alone &&
	       n < cut->parts_max && sum + part.bytes <= cut->together) {
		if (parts)
			parts[n] = part;
		cursor->at += part.bytes;
		sum += part.bytes;
		n++;
		part = batoni_cursor_peek(list, cursor, cut->most);
	}
	return n;
}

size_t
batoni_tensor_list_move(const struct batoni_tensor_list *from,
                        struct batoni_tensor_list *to, size_t most)
{
	struct batoni_tensor_list_cursor *cursor = &to->moved;
	struct batoni_segment part;
	size_t left = most;

	while ((part = batoni_cursor_peek(to, cursor, left)).bytes > 0) {
		memmove(part.data,
		        from->segments[cursor->segment].data + cursor->at,
		        part.bytes);
		cursor->at += part.bytes;
		left -= part.bytes;
	}
	return most - left;
}

/* Lists are often of a few numbers each, and a call costs more than to copy those. */
static inline void
copy_bytes(char *to, const char *from, size_t n)
{
	uint64_t first, last;

	if (n < sizeof(first) || n > 2 * sizeof(first)) {
		if (n > 0)
			memcpy(to, from, n);
		return;
	}
	memcpy(&first, from, sizeof(first));
	memcpy(&last, from + n - sizeof(last), sizeof(last));
	memcpy(to, &first, sizeof(first));
	memcpy(to + n - sizeof(last), &last, sizeof(last));
}

void
batoni_tensor_list_gather(const struct batoni_tensor_list *list, void *buffer)
{
	char *at = buffer;

	for (size_t i = 0; i < list->count; i++) {
		const struct batoni_segment *segment = &list->segments[i];

		copy_bytes(at, segment->data, segment->bytes);
		at += segment->bytes;
	}
}

void
batoni_tensor_list_scatter(const struct batoni_tensor_list *list, const void *buffer)
{
	const char *at = buffer;

	for (size_t i = 0; i < list->count; i++) {
		const struct batoni_segment *segment = &list->segments[i];

		copy_bytes(segment->data, at, segment->bytes);
		at += segment->bytes;
	}
}

/* ---- telling ---- */

void
batoni_tensor_list_deliver(const struct batoni_tensor_list *list)
{
	struct batoni_tensors came;
	struct baton_tensor tensor;

	if (list->count_p)
		*list->count_p = list->count;
	if (!list->results ||
	    batoni_tensors_decode(list->header, list->header_bytes, &came))
		return;
	for (size_t i = 0; batoni_tensors_next(&came, &tensor); i++) {
		tensor.data = list->segments[i].data;
		list->results[i] = tensor;
	}
}

static void
explain_tensor(const struct batoni_tensor_list *list, char *text, size_t size)
{
	char declared[192], came[192];

	batoni_tensor_write(&list->declared[list->fault_tensor], declared,
	                    sizeof(declared));
	batoni_tensor_write(&list->came, came, sizeof(came));
	snprintf(text, size, "tensor %zu: %s was declared, %s came",
	         list->fault_tensor, declared, came);
}

static const char *
were(size_t n)
{
	return n == 1 ? " was" : "s were";
}

bool
batoni_tensor_list_explain(const struct batoni_tensor_list *list, char *text,
                           size_t size)
{
	switch (list->fault) {
	case BATONI_LIST_FINE:
		return false;
	case BATONI_LIST_PLAIN:
		snprintf(text, size,
		         "%zu tensor%s declared, a plain message of %zu byte%s "
		         "came",
		         list->declared_n, were(list->declared_n),
		         list->fault_bytes, batoni_s(list->fault_bytes));
		return true;
	case BATONI_LIST_HEADER:
		snprintf(text, size, "the header of the message: %s",
		         list->fault_text);
		return true;
	case BATONI_LIST_COUNT:
		snprintf(text, size, "%s%zu tensor%s declared, %zu came",
		         list->fewer ? "at most " : "", list->declared_n,
		         were(list->declared_n), list->fault_tensor);
		return true;
	case BATONI_LIST_TENSOR:
		explain_tensor(list, text, size);
		return true;
	case BATONI_LIST_ARENA:
		snprintf(text, size,
		         "the arena has %zu byte%s, the tensors need %zu",
		         list->arena_bytes, batoni_s(list->arena_bytes),
		         list->fault_bytes);
		return true;
	}
	return false;
}
