/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tensors; the format is in tensors.h.  Nothing here has state.
 *
 * The decoder may be given any bytes.  It looks at the length before each part that it
 * reads, adds up with checks, and compares every sum that the header states with its own.
 */
#include "tensors.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "datatype.h"
#include "log.h"

#define MAGIC 0x736e7462u /* "btns" */
#define VERSION 1u
#define PACKED 1u
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BYTE_ORDER_HERE 1u
#else
#define BYTE_ORDER_HERE 2u
#endif
#define SHAPE_BYTES 8u /* of a dimension */

static_assert(sizeof(((struct baton_tensor *)0)->shape[0]) == SHAPE_BYTES,
              "dimensions travel as they are");

static unsigned char *
write_number(unsigned char *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*at++ = (unsigned char)(value >> (8 * i));
	return at;
}

static uint64_t
get_number(const unsigned char *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

/* The dimensions, as they travel. */
static unsigned char *
put_shape(unsigned char *at, const struct baton_tensor *tensor)
{
	size_t bytes = SHAPE_BYTES * (size_t)tensor->rank;

	if (BYTE_ORDER_HERE == 1u) {
		memcpy(at, tensor->shape, bytes);
		return at + bytes;
	}
	for (int i = 0; i < tensor->rank; i++)
		at = write_number(at, (uint64_t)tensor->shape[i], SHAPE_BYTES);
	return at;
}

static const unsigned char *
get_shape(const unsigned char *at, struct baton_tensor *tensor)
{
	size_t bytes = SHAPE_BYTES * (size_t)tensor->rank;

	if (BYTE_ORDER_HERE == 1u)
		memcpy(tensor->shape, at, bytes);
	for (int i = 0; i < tensor->rank && BYTE_ORDER_HERE != 1u; i++)
		tensor->shape[i] = (int64_t)get_number(at + SHAPE_BYTES * (size_t)i,
		                                       SHAPE_BYTES);
	return at + bytes;
}

/* ---- sizes ---- */

const char *
batoni_tensor_bytes(const struct baton_tensor *tensor, size_t *bytes_p)
{
	uint64_t bytes;
	bool empty = false, too_many = false;

	if ((unsigned)tensor->type >= BATON_DATATYPE_COUNT)
		return "its type is no datatype";
	if (tensor->rank < 0 || tensor->rank > BATON_TENSOR_RANK_MAX)
		return "its rank is not 0 to 8";
	bytes = batoni_datatype_sizes[tensor->type];
	for (int i = 0; i < tensor->rank; i++) {
		if (tensor->shape[i] < 0)
			return "it has a negative dimension";
		empty |= tensor->shape[i] == 0;
		/* Once it is too much, what is left of it does not matter. */
		too_many |= __builtin_mul_overflow(
			bytes, (uint64_t)tensor->shape[i], &bytes);
	}
	if (!empty && (too_many || bytes > INT64_MAX))
		return "its bytes do not fit in 63 bits";
	*bytes_p = empty ? 0 : (size_t)bytes;
	return NULL;
}

/* ---- words ---- */

void
batoni_tensor_write(const struct baton_tensor *tensor, char *text, size_t size)
{
	size_t at = (size_t)snprintf(text, size, "%s [",
	                             batoni_datatype_name((int)tensor->type));

	for (int i = 0; i < tensor->rank && at < size; i++) {
		const char *comma = i > 0 ? ", " : "";

		if (tensor->shape[i] < 0)
			at += (size_t)snprintf(text + at, size - at, "%s?",
			                       comma);
		else
			at += (size_t)snprintf(text + at, size - at, "%s%lld",
			                       comma,
			                       (long long)tensor->shape[i]);
	}
	if (at < size)
		snprintf(text + at, size - at, "]");
}

/* The first dimension that is none, or -1. */
static int
wrong_dimension(const struct baton_tensor *tensor, bool open)
{
	for (int i = 0; i < tensor->rank; i++) {
		if (tensor->shape[i] < 0 && !(open && tensor->shape[i] == -1))
			return i;
	}
	return -1;
}

void
batoni_tensor_explain(const struct baton_tensor *tensor, bool open, char *text,
                      size_t size)
{
	char shape[192];
	int wrong;

	if ((unsigned)tensor->type >= BATON_DATATYPE_COUNT) {
		snprintf(text, size, "its type is %d; datatypes are 0 to %d",
		         (int)tensor->type, BATON_DATATYPE_COUNT - 1);
		return;
	}
	if (tensor->rank < 0 || tensor->rank > BATON_TENSOR_RANK_MAX) {
		snprintf(text, size, "its rank is %d; ranks are 0 to %d%s",
		         tensor->rank, BATON_TENSOR_RANK_MAX,
		         open ? ", or -1 where type and shape are open" : "");
		return;
	}
	wrong = wrong_dimension(tensor, open);
	if (wrong >= 0) {
		snprintf(text, size,
		         "its dimension %d is %lld; dimensions are 0 or more%s",
		         wrong, (long long)tensor->shape[wrong],
		         open ? ", or -1 where they are open" : "");
		return;
	}
	batoni_tensor_write(tensor, shape, sizeof(shape));
	snprintf(text, size, "it is %s, whose bytes do not fit in 63 bits",
	         shape);
}

/* ---- lists ---- */

const char *
batoni_tensors_bytes(const struct baton_tensor *tensors, size_t count,
                     size_t *bytes_p, size_t *tensor_p)
{
	uint64_t sum = 0;

	*tensor_p = count;
	if (count > BATON_TENSORS_MAX)
		return "there are more than 4096";
	for (size_t i = 0; i < count; i++) {
		size_t bytes = 0;
		const char *wrong = batoni_tensor_bytes(&tensors[i], &bytes);

		*tensor_p = i;
		if (wrong)
			return wrong;
		/* Both are below 2^63. */
		sum += bytes;
		if (sum > INT64_MAX)
			return "the sum of the bytes does not fit in 63 bits";
	}
	*bytes_p = (size_t)sum;
	return NULL;
}

/* This tensor is wrong; NULL: its place is. */
static void
refuse_layout(size_t i, const struct baton_tensor *wrong)
{
	char why[256] = "with it the list does not fit in 63 bits";

	if (wrong)
		batoni_tensor_explain(wrong, false, why, sizeof(why));
	batoni_refuse(BATON_ERR_INVALID, "baton_tensors_layout: tensor %zu: %s",
	              i, why);
}

size_t
baton_tensors_layout(const struct baton_tensor *tensors, size_t count,
                     size_t *offsets)
{
	const size_t mask = BATONI_TENSORS_ALIGNMENT - 1;
	uint64_t end = 0;

	if (!tensors && count > 0) {
		batoni_refuse(BATON_ERR_INVALID,
		              "baton_tensors_layout: tensors is NULL with "
		              "count %zu; NULL is allowed with count 0 only",
		              count);
		return SIZE_MAX;
	}
	for (size_t i = 0; i < count; i++) {
		size_t bytes = 0;
		const char *wrong = batoni_tensor_bytes(&tensors[i], &bytes);

		end = ((end + mask) & ~mask) + bytes;
		if (wrong || end > INT64_MAX) {
			refuse_layout(i, wrong ? &tensors[i] : NULL);
			return SIZE_MAX;
		}
	}
	end = 0;
	for (size_t i = 0; i < count; i++) {
		size_t bytes = 0;

		batoni_tensor_bytes(&tensors[i], &bytes);
		end = (end + mask) & ~mask;
		if (offsets)
			offsets[i] = (size_t)end;
		end += bytes;
	}
	return (size_t)end;
}

/* ---- the header ---- */

/* What is before the dimensions. */
static size_t
before_shapes(size_t count)
{
	return BATONI_TENSORS_FIXED_BYTES + ((2 * count + 7) & ~(size_t)7);
}

size_t
batoni_tensors_header_bytes(const struct baton_tensor *tensors, size_t count)
{
	size_t ranks = 0;

	for (size_t i = 0; i < count; i++)
		ranks += (size_t)tensors[i].rank;
	return before_shapes(count) + SHAPE_BYTES * ranks;
}

size_t
batoni_tensors_encode(const struct baton_tensor *tensors, size_t count,
                      size_t payload, unsigned char *bytes)
{
	unsigned char *shapes = bytes + before_shapes(count);
	unsigned char *at = bytes + BATONI_TENSORS_FIXED_BYTES;
	size_t header_bytes;

	for (size_t i = 0; i < count; i++) {
		*at++ = (unsigned char)tensors[i].type;
		*at++ = (unsigned char)tensors[i].rank;
		shapes = put_shape(shapes, &tensors[i]);
	}
	while (at < bytes + before_shapes(count))
		*at++ = 0;
	header_bytes = (size_t)(shapes - bytes);
	at = write_number(bytes, MAGIC, 4);
	at = write_number(at, VERSION, 2);
	at = write_number(at, BYTE_ORDER_HERE, 1);
	at = write_number(at, PACKED, 1);
	at = write_number(at, count, 4);
	at = write_number(at, header_bytes, 4);
	write_number(at, payload, 8);
	return header_bytes;
}

size_t
batoni_tensors_stated_bytes(const unsigned char *fixed)
{
	return (size_t)get_number(fixed + 12, 4);
}

size_t
batoni_tensors_stated_count(const unsigned char *fixed)
{
	return (size_t)get_number(fixed + 8, 4);
}

/* Are the types, the ranks and the padding behind them well formed, and is the header as long
 * as they make it? */
static const char *
check_table(const struct batoni_tensors *header)
{
	const unsigned char *table = header->bytes + BATONI_TENSORS_FIXED_BYTES;
	const unsigned char *end = header->bytes + before_shapes(header->count);
	size_t ranks = 0;

	for (size_t i = 0; i < header->count; i++) {
		if (table[2 * i] >= BATON_DATATYPE_COUNT)
			return "a tensor's type is no datatype";
		if (table[2 * i + 1] > BATON_TENSOR_RANK_MAX)
			return "a tensor's rank is above 8";
		ranks += table[2 * i + 1];
	}
	for (const unsigned char *at = table + 2 * header->count; at < end; at++) {
		if (*at)
			return "its unused bytes are not 0";
	}
	return header->header_bytes ==
	                       before_shapes(header->count) + SHAPE_BYTES * ranks
	               ? NULL
	               : "its length is not that of its tensors";
}

/* Do the dimensions make as many bytes as it states? */
static const char *
check_sum(struct batoni_tensors header)
{
	struct baton_tensor tensor;
	uint64_t sum = 0;

	while (batoni_tensors_next(&header, &tensor)) {
		size_t bytes = 0;

		if (batoni_tensor_bytes(&tensor, &bytes))
			return "a tensor has a negative dimension, or more "
			       "bytes than fit in 63 bits";
		sum += bytes;
		if (sum > INT64_MAX)
			return "the sum of the bytes does not fit in 63 bits";
	}
	return sum == header.payload_bytes
	               ? NULL
	               : "the bytes of its tensors do not add up to its payload";
}

const char *
batoni_tensors_decode(const unsigned char *bytes, size_t n,
                      struct batoni_tensors *header)
{
	const char *wrong;

	if (n < BATONI_TENSORS_FIXED_BYTES || get_number(bytes, 4) != MAGIC)
		return "it is no list of tensors";
	if (get_number(bytes + 4, 2) != VERSION)
		return "it is of another version of Baton";
	if (bytes[6] != BYTE_ORDER_HERE)
		return "its bytes are in another order than this rank's";
	if (bytes[7] != PACKED)
		return "its layout is unknown";
	*header = (struct batoni_tensors){
		.bytes = bytes,
		.count = (size_t)get_number(bytes + 8, 4),
		.header_bytes = (size_t)get_number(bytes + 12, 4),
		.payload_bytes = (size_t)get_number(bytes + 16, 8),
	};
	if (header->count > BATON_TENSORS_MAX)
		return "it has more than 4096 tensors";
	header->shape = bytes + before_shapes(header->count);
	if (header->header_bytes > n ||
	    header->header_bytes < before_shapes(header->count))
		return "its length is not that of its tensors";
	wrong = check_table(header);
	return wrong ? wrong : check_sum(*header);
}

bool
batoni_tensors_next(struct batoni_tensors *header, struct baton_tensor *tensor)
{
	const unsigned char *entry =
		header->bytes + BATONI_TENSORS_FIXED_BYTES + 2 * header->at;

	if (header->at == header->count)
		return false;
	*tensor = (struct baton_tensor){
		.type = (enum baton_datatype)entry[0],
		.rank = entry[1],
	};
	header->shape = get_shape(header->shape, tensor);
	header->at++;
	return true;
}
