/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One side of a message that is a list of tensors, as the engine describes it for the
 * transports.
 *
 * The engine fills it in at the call, in memory that stays until the transport has let go
 * of the transfer.  From issue on it belongs to the driver.  A transport sends the header and the
 * payload, which is the bytes of all segments one after the other, or receives them:
 *
 *   1. It brings the header of the message that has matched to batoni_transfer_meet_list, or
 *      says that a plain message has: batoni_transfer_meet_plain (path.h).  Where the header
 *      comes in several parts, it does so with the first, and again when all are there.
 *   2. OK: segments say where the payload goes.  Anything else: the receive ends in that
 *      status, and the payload is not written anywhere.
 *   3. When the payload is there, the receive ends in OK.  Then the engine writes what the
 *      program asked for (batoni_tensor_list_deliver).
 *
 * A transport that cannot read a header from the message itself (one whose library moves bytes on
 * streams, and wants both lengths at the call) needs nothing else of this file: the sender hands
 * the header_bytes of `header` to the receiver beside it, the receiver meets them and answers with
 * the verdict, and after OK both know payload_bytes and all segments.  Where the payload has to lie
 * together, batoni_cursor_next_piece cuts it alike on both sides into parts to be copied, and
 * batoni_tensor_list_memory says what the memory of each segment is.  After another verdict nothing of the
 * payload is moved; the send ends in OK.
 */
#ifndef BATONI_TENSOR_LIST_H
#define BATONI_TENSOR_LIST_H

#include "baton.h"

/* Of one tensor; the bytes may be 0. */
struct batoni_segment {
	char *data;
	size_t bytes;
};

/* A cursor over the payload of a list: the tensor, by its index, and the byte of it that is next.
 * Zeros are before the first byte. */
struct batoni_tensor_list_cursor {
	size_t segment, at;
};

/* Why a receive has ended in MISMATCH or TRUNCATED. */
enum batoni_tensor_list_fault {
	BATONI_LIST_FINE,
	BATONI_LIST_PLAIN,  /* a plain message has come */
	BATONI_LIST_HEADER, /* its header is wrong: fault_text */
	BATONI_LIST_COUNT,  /* other than so many tensors were declared */
	BATONI_LIST_TENSOR, /* fault_tensor is another than was declared */
	BATONI_LIST_ARENA   /* the arena is too small */
};

struct batoni_tensor_list {
	/* Of a send: the tensors.  Of a receive: those declared, until it has met; then
	 * those that have come. */
	size_t count;
	struct batoni_segment *segments;
	/* What the memory of each segment is, by its index (a transfer's `location`); NULL: all is
	 * the host's. */
	unsigned char *locations;
	size_t payload_bytes;
	/* The message's header.  Of a receive: what has come, header_max bytes at most. */
	unsigned char *header;
	size_t header_bytes, header_max;
	/* Of a send. */
	const bool *input_signal; /* of both: NULL, or false for a message that must not be */
	bool *output_signal;      /* of both: NULL, or set when it ends in OK */
	/* Of a receive. */
	struct baton_tensor *declared; /* declared_n; rank -1: anything; dimension -1: open */
	size_t declared_n;
	bool fewer; /* fewer than declared may come */
	/* Nothing is open: the header is that of what must come, and the segments are set. */
	bool closed;
	char *arena;
	size_t arena_bytes;
	struct baton_tensor *results; /* NULL: nothing is to be told */
	size_t *count_p;
	enum batoni_tensor_list_fault fault;
	size_t fault_tensor;
	size_t fault_bytes;     /* of a plain message; of the arena, that are needed */
	const char *fault_text; /* a string constant */
	struct baton_tensor came; /* BATONI_LIST_TENSOR */
	/* Where batoni_tensor_list_move goes on, of a receive. */
	struct batoni_tensor_list_cursor moved;
};

/* A receive has matched this header, of n bytes: any bytes, which may be those of its own
 * header.  OK, MISMATCH, TRUNCATED. */
enum baton_status batoni_tensor_list_meet(struct batoni_tensor_list *list,
                                          const unsigned char *header, size_t n);
/* It has matched a plain message of this length: MISMATCH. */
enum baton_status batoni_tensor_list_meet_plain(struct batoni_tensor_list *list,
                                                size_t bytes);

/* What the memory of a segment is. */
static inline unsigned
batoni_tensor_list_memory(const struct batoni_tensor_list *list, size_t segment)
{
	return list->locations ? list->locations[segment] : 0;
}

/* The bytes at the cursor that lie together, `most` at most.  The cursor moves on from a tensor whose
 * end it has reached, so cursor->segment is the tensor that these bytes are of.  A caller that takes n of
 * the bytes adds n to cursor->at.  There are 0 bytes if `most` is 0, or behind the last tensor
 * (cursor->segment is list->count). */
static inline struct batoni_segment
batoni_cursor_peek(const struct batoni_tensor_list *list,
                   struct batoni_tensor_list_cursor *cursor, size_t most)
{
	const struct batoni_segment *segment = &list->segments[cursor->segment];
	size_t left;

	while (cursor->segment < list->count && cursor->at == segment->bytes) {
		segment++;
		cursor->segment++;
		cursor->at = 0;
	}
	if (cursor->segment == list->count)
		return (struct batoni_segment){NULL, 0};
	left = segment->bytes - cursor->at;
	return (struct batoni_segment){segment->data + cursor->at,
	                               left < most ? left : most};
}

/* The same bytes; the cursor is behind them afterwards. */
static inline struct batoni_segment
batoni_cursor_next(const struct batoni_tensor_list *list,
                   struct batoni_tensor_list_cursor *cursor, size_t most)
{
	struct batoni_segment part = batoni_cursor_peek(list, cursor, most);

	cursor->at += part.bytes;
	return part;
}

/* How a payload is cut into pieces for transports that cannot send it at once: both ranks cut
 * alike.  The piece that begins at the cursor is `alone` or more bytes of one tensor, and
 * `most` at most; or tensors one after the other of which less than `alone` bytes are left,
 * `together` bytes or parts_max of them at most.  Writes its parts, unless parts is NULL, moves
 * the cursor behind it and returns how many parts it has; 0: there are no more bytes. */
struct batoni_tensor_list_cut {
	size_t alone, together, most, parts_max;
};
size_t batoni_cursor_next_piece(const struct batoni_tensor_list *list,
                                const struct batoni_tensor_list_cut *cut,
                                struct batoni_tensor_list_cursor *cursor,
                                struct batoni_segment *parts);

/* Copy up to `most` bytes of a send to a receive that has met it, behind what was copied
 * before; returns how many. */
size_t batoni_tensor_list_move(const struct batoni_tensor_list *from,
                               struct batoni_tensor_list *to, size_t most);
/* Copy all bytes of the payload to one buffer, or from one. */
void batoni_tensor_list_gather(const struct batoni_tensor_list *list, void *buffer);
void batoni_tensor_list_scatter(const struct batoni_tensor_list *list,
                                const void *buffer);

/* The receive has ended in OK: tell the program what has come. */
void batoni_tensor_list_deliver(const struct batoni_tensor_list *list);
/* Why it has not, in words.  False: there are none. */
bool batoni_tensor_list_explain(const struct batoni_tensor_list *list, char *text,
                                size_t size);

#endif
