/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors: their layout in memory, and the header of a message that carries one.
 *
 * The header describes the message completely, so the two sides need not have agreed on
 * anything.  Its integers are little-endian, whatever the ranks are:
 *
 *   bytes  0  4  magic, "btns"
 *          4  2  version
 *          6  1  byte order of the payload: 1 little-endian, 2 big-endian
 *          7  1  layout of the payload: 1 packed
 *          8  4  number of tensors, BATON_TENSORS_MAX at most
 *         12  4  bytes of the header, this field included
 *         16  8  bytes of the payload
 *         24  2  of each tensor: its type, its rank
 *             .  zeros up to a multiple of 8
 *             8  of each dimension of each tensor, in their order: its length
 *
 * Packed: the bytes of each tensor follow those of the one before.  There are no gaps, so
 * none are sent; where a tensor lies in memory is each side's own matter.
 */
#ifndef BATONI_TENSORS_H
#define BATONI_TENSORS_H

#include "baton.h"

#define BATONI_TENSORS_FIXED_BYTES 24u
#define BATONI_TENSORS_ALIGNMENT ((size_t)256)
/* What a tensor adds, at most: type, rank, dimensions. */
#define BATONI_TENSORS_ENTRY_MAX (2 + 8 * BATON_TENSOR_RANK_MAX)

/* The longest header. */
#define BATONI_TENSORS_HEADER_MAX                                             \
	(BATONI_TENSORS_FIXED_BYTES +                                         \
	 BATON_TENSORS_MAX * BATONI_TENSORS_ENTRY_MAX)

/* A header, which stays where it is; and a cursor, for batoni_tensors_next. */
struct batoni_tensors {
	const unsigned char *bytes;
	size_t header_bytes;
	size_t payload_bytes;
	size_t count;
	size_t at;                  /* the next tensor */
	const unsigned char *shape; /* of that */
};

/* The bytes of a tensor, 0 if one dimension is 0.  NULL, or what is wrong with it: the type,
 * the rank, a dimension, more bytes than fit in 63 bits.  Any thread, as all below. */
const char *batoni_tensor_bytes(const struct baton_tensor *tensor,
                                size_t *bytes_p);
/* The same in a sentence, with its values and those that are allowed.  open: a rank and dimensions
 * of -1 are. */
void batoni_tensor_explain(const struct baton_tensor *tensor, bool open,
                           char *text, size_t size);
/* "float32 [3, 4]", with "?" for a dimension that is open, and for all where the rank is. */
void batoni_tensor_write(const struct baton_tensor *tensor, char *text,
                         size_t size);

/* The length of the header of this list.  The ranks are 0 to BATON_TENSOR_RANK_MAX. */
size_t batoni_tensors_header_bytes(const struct baton_tensor *tensors,
                                   size_t count);
/* Write that many bytes, and return how many.  The list is one that batoni_tensors_bytes
 * accepts, of so many bytes in all. */
size_t batoni_tensors_encode(const struct baton_tensor *tensors, size_t count,
                             size_t payload, unsigned char *bytes);

/* Add up the bytes of a list.  NULL, or what is wrong, and with which tensor (count: with
 * none of them): as of one tensor; more than BATON_TENSORS_MAX of them; a sum of more than
 * 63 bits. */
const char *batoni_tensors_bytes(const struct baton_tensor *tensors,
                                 size_t count, size_t *bytes_p,
                                 size_t *tensor_p);

/* What the first BATONI_TENSORS_FIXED_BYTES of a header, of any bytes, state as its length and
 * as its number of tensors. */
size_t batoni_tensors_stated_bytes(const unsigned char *fixed);
size_t batoni_tensors_stated_count(const unsigned char *fixed);

/* Is this the header of a list?  `n` bytes are there, any bytes: it reads no others, and
 * accepts exactly what batoni_tensors_encode writes, with or without more bytes behind it.
 * NULL, and *header is before the first tensor; or what is wrong. */
const char *batoni_tensors_decode(const unsigned char *bytes, size_t n,
                                  struct batoni_tensors *header);
/* Read the next tensor of a header that was accepted: type, rank, shape; the rest of the
 * shape is 0, data NULL.  False: there is no other. */
bool batoni_tensors_next(struct batoni_tensors *header,
                         struct baton_tensor *tensor);

#endif
