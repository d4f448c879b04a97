/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors: their layout, and the header that describes them. */
#include <stdlib.h>
#include <string.h>

#include "run_tests.h"
#include "tensors.h"

static struct baton_tensor
bytes_of(int64_t n)
{
	return (struct baton_tensor){
		.type = BATON_UINT8, .rank = 1, .shape = {n}};
}

static void
check_layout(const int64_t *bytes, const size_t *expected, size_t count,
             size_t total)
{
	struct baton_tensor tensors[4];
	size_t offsets[4];

	for (size_t i = 0; i < count; i++)
		tensors[i] = bytes_of(bytes[i]);
	ck_assert_uint_eq(baton_tensors_layout(tensors, count, offsets), total);
	ck_assert_uint_eq(baton_tensors_layout(tensors, count, NULL), total);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_eq(offsets[i], expected[i]);
}

START_TEST(the_layout_is_that_of_onnx_runtime)
{
	check_layout((int64_t[]){100, 300, 4}, (size_t[]){0, 256, 768}, 3, 772);
	check_layout((int64_t[]){256, 1}, (size_t[]){0, 256}, 2, 257);
	check_layout((int64_t[]){10, 0}, (size_t[]){0, 256}, 2, 256);
	check_layout((int64_t[]){0, 0, 5}, (size_t[]){0, 0, 0}, 3, 5);
	check_layout(NULL, NULL, 0, 0);
}
END_TEST

START_TEST(the_bytes_are_those_of_the_type_and_the_shape)
{
	struct baton_tensor tensor = {
		.type = BATON_FLOAT64, .rank = 8, .shape = {1, 2, 3, 1, 1, 1, 1, 5}};
	size_t bytes = 0;

	ck_assert_ptr_null(batoni_tensor_bytes(&tensor, &bytes));
	ck_assert_uint_eq(bytes, 8 * 30);
	tensor.rank = 0;
	ck_assert_ptr_null(batoni_tensor_bytes(&tensor, &bytes));
	ck_assert_uint_eq(bytes, 8);
	tensor.rank = 3;
	tensor.shape[0] = tensor.shape[1] = INT64_MAX;
	tensor.shape[2] = 0;
	ck_assert_ptr_null(batoni_tensor_bytes(&tensor, &bytes));
	ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(a_list_that_is_none_is_refused_and_named)
{
	static const struct {
		struct baton_tensor tensor;
		const char *why, *said;
	} wrong[] = {
		{{.type = 99}, "no datatype", "type is 99; datatypes are 0 to "},
		{{.type = (enum baton_datatype)-1}, "no datatype", "type is -1;"},
		{{.rank = -1}, "rank", "its rank is -1; ranks are 0 to 8"},
		{{.rank = 9}, "rank", "its rank is 9; ranks are 0 to 8"},
		{{.rank = 2, .shape = {1, -1}}, "negative",
	         "its dimension 1 is -1; dimensions are 0 or more"},
		{{.rank = 2, .shape = {0, INT64_MIN}}, "negative",
	         "its dimension 1 is -9223372036854775808;"},
		{{.type = BATON_INT64, .rank = 1, .shape = {INT64_MAX}}, "63 bits",
	         "it is int64 [9223372036854775807], whose bytes"},
		{{.rank = 2, .shape = {INT64_MAX, INT64_MAX}}, "63 bits",
	         "9223372036854775807, 9223372036854775807]"},
		/* With the other. */
		{{.rank = 1, .shape = {INT64_MAX}}, "63 bits", "63 bits"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct baton_tensor tensors[2] = {bytes_of(7), wrong[i].tensor};
		size_t offsets[2] = {11, 12}, bytes = 13, tensor = 0;

		ck_assert_uint_eq(baton_tensors_layout(tensors, 2, offsets),
		                  SIZE_MAX);
		ck_assert_ptr_nonnull(strstr(baton_last_error(), wrong[i].said));
		ck_assert_ptr_nonnull(strstr(baton_last_error(), "tensor 1"));
		ck_assert_uint_eq(offsets[0], 11);
		ck_assert_uint_eq(offsets[1], 12);
		ck_assert_ptr_nonnull(strstr(
			batoni_tensors_bytes(tensors, 2, &bytes, &tensor),
			wrong[i].why));
		ck_assert_uint_eq(tensor, 1);
		ck_assert_uint_eq(bytes, 13);
	}
	ck_assert_uint_eq(baton_tensors_layout(NULL, 1, NULL), SIZE_MAX);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "NULL"));
}
END_TEST

/* ---- the header ---- */

enum { SAMPLE_TENSORS = 4, SAMPLE_BYTES = 24 + 8 + 8 * (2 + 0 + 8 + 1) };

static const struct baton_tensor sample[SAMPLE_TENSORS] = {
	{.type = BATON_FLOAT32, .rank = 2, .shape = {3, 5}},
	{.type = BATON_INT64, .rank = 0},
	{.type = BATON_BOOL, .rank = 8, .shape = {1, 2, 1, 2, 1, 2, 1, 2}},
	{.type = BATON_BFLOAT16, .rank = 1, .shape = {0}},
};

/* The header of a list that is fine. */
static void
encode(const struct baton_tensor *tensors, size_t n, unsigned char *bytes)
{
	size_t sum = 0, which = 0;

	batoni_tensors_bytes(tensors, n, &sum, &which);
	batoni_tensors_encode(tensors, n, sum, bytes);
}

/* A copy with nothing behind it, so that a sanitizer sees what is read beyond. */
static unsigned char *
exact(const unsigned char *bytes, size_t n)
{
	unsigned char *copy = malloc(n ? n : 1);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, n);
	return copy;
}

static const char *
decode(const unsigned char *bytes, size_t n, struct batoni_tensors *header)
{
	unsigned char *copy = exact(bytes, n);
	const char *wrong = batoni_tensors_decode(copy, n, header);

	free(copy);
	return wrong;
}

static void
make_sample(unsigned char bytes[SAMPLE_BYTES])
{
	ck_assert_uint_eq(batoni_tensors_header_bytes(sample, SAMPLE_TENSORS),
	                  SAMPLE_BYTES);
	encode(sample, SAMPLE_TENSORS, bytes);
}

START_TEST(a_header_brings_types_ranks_and_shapes)
{
	unsigned char bytes[SAMPLE_BYTES + 3];
	struct batoni_tensors header;
	struct baton_tensor tensor;

	make_sample(bytes);
	ck_assert_ptr_null(
		batoni_tensors_decode(bytes, sizeof(bytes), &header));
	ck_assert_uint_eq(header.count, SAMPLE_TENSORS);
	ck_assert_uint_eq(header.header_bytes, SAMPLE_BYTES);
	ck_assert_uint_eq(header.payload_bytes, 60 + 8 + 16);
	for (size_t i = 0; i < SAMPLE_TENSORS; i++) {
		ck_assert(batoni_tensors_next(&header, &tensor));
		ck_assert_int_eq(tensor.type, sample[i].type);
		ck_assert_int_eq(tensor.rank, sample[i].rank);
		ck_assert_mem_eq(tensor.shape, sample[i].shape,
		                 sizeof(tensor.shape));
		ck_assert_ptr_null(tensor.data);
	}
	ck_assert(!batoni_tensors_next(&header, &tensor));
}
END_TEST

START_TEST(an_empty_list_has_a_header)
{
	unsigned char bytes[BATONI_TENSORS_FIXED_BYTES];
	struct batoni_tensors header;
	struct baton_tensor tensor;

	ck_assert_uint_eq(batoni_tensors_header_bytes(NULL, 0), sizeof(bytes));
	encode(NULL, 0, bytes);
	ck_assert_ptr_null(decode(bytes, sizeof(bytes), &header));
	ck_assert(!batoni_tensors_next(&header, &tensor));
}
END_TEST

START_TEST(the_bytes_of_a_header_are_these)
{
	static const unsigned char expected[] = {
		'b', 't', 'n', 's', 1, 0, 1, 1, 1, 0, 0, 0, 40, 0, 0, 0,
		44,  1,   0,   0,   0, 0, 0, 0, 4, 1, 0, 0, 0,  0, 0, 0,
		75,  0,   0,   0,   0, 0, 0, 0,
	};
	const struct baton_tensor tensor = {
		.type = BATON_INT32, .rank = 1, .shape = {75}};
	unsigned char bytes[sizeof(expected)];

	encode(&tensor, 1, bytes);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	bytes[6] = 1;
#endif
	ck_assert_mem_eq(bytes, expected, sizeof(expected));
}
END_TEST

START_TEST(a_header_that_is_cut_short_is_refused)
{
	unsigned char bytes[SAMPLE_BYTES];
	struct batoni_tensors header;

	make_sample(bytes);
	for (size_t n = 0; n < SAMPLE_BYTES; n++)
		ck_assert_ptr_nonnull(decode(bytes, n, &header));
	ck_assert_ptr_null(decode(bytes, SAMPLE_BYTES, &header));
}
END_TEST

/* Spoil each bit: it is refused, or is the header of another list. */
START_TEST(a_header_with_a_spoiled_bit_is_refused_or_another_list)
{
	unsigned char bytes[SAMPLE_BYTES], again[SAMPLE_BYTES];

	make_sample(bytes);
	for (size_t bit = 0; bit < 8 * SAMPLE_BYTES; bit++) {
		struct baton_tensor tensors[SAMPLE_TENSORS];
		struct batoni_tensors header;
		unsigned char *copy;

		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		copy = exact(bytes, SAMPLE_BYTES);
		if (!batoni_tensors_decode(copy, SAMPLE_BYTES, &header)) {
			ck_assert_uint_eq(header.count, SAMPLE_TENSORS);
			for (size_t i = 0; i < SAMPLE_TENSORS; i++)
				ck_assert(batoni_tensors_next(&header,
				                              &tensors[i]));
			encode(tensors, SAMPLE_TENSORS, again);
			ck_assert_mem_eq(again, bytes, SAMPLE_BYTES);
		}
		free(copy);
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
}
END_TEST

static void
poke(unsigned char *at, uint64_t value, size_t n)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (unsigned char)(value >> 8 * i);
}

START_TEST(what_is_wrong_with_a_header_is_said)
{
	/* Bytes of the sample that are set, and what is then said. */
	static const struct {
		size_t at, n;
		uint64_t value;
		const char *why;
	} changes[] = {
		{0, 4, 0, "no list of tensors"},
		{4, 2, 2, "another version"},
		{6, 1, 3, "another order"},
		{7, 1, 2, "layout"},
		{8, 4, BATON_TENSORS_MAX + 1, "more than 4096"},
		{8, 4, UINT32_MAX, "more than 4096"},
		{8, 4, 3, "not 0"},
		{8, 4, 5, "its length"},
		{8, 4, BATON_TENSORS_MAX, "its length"},
		{12, 4, SAMPLE_BYTES - 1, "its length"},
		{12, 4, UINT32_MAX, "its length"},
		{12, 4, 0, "its length"},
		{16, 8, 85, "add up"},
		{16, 8, UINT64_MAX, "add up"},
		{24, 1, BATON_DATATYPE_COUNT, "no datatype"},
		{24, 1, BATON_FLOAT64, "add up"},
		{25, 1, 9, "above 8"},
		{25, 1, 255, "above 8"},
		{25, 1, 3, "its length"},
		{32, 8, (uint64_t)-1, "negative"},
		{32, 8, (uint64_t)INT64_MIN, "negative"},
		{32, 8, INT64_MAX, "63 bits"},
		{32, 8, (uint64_t)INT64_MAX / 20, "63 bits"},
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		unsigned char bytes[SAMPLE_BYTES];
		struct batoni_tensors header;
		const char *wrong;

		make_sample(bytes);
		poke(bytes + changes[i].at, changes[i].value, changes[i].n);
		wrong = decode(bytes, SAMPLE_BYTES, &header);
		ck_assert_msg(wrong && strstr(wrong, changes[i].why),
		              "change %zu: %s", i, wrong ? wrong : "accepted");
	}
}
END_TEST

START_TEST(unused_bytes_of_a_header_are_0)
{
	const struct baton_tensor tensor = {.type = BATON_INT32, .rank = 0};
	unsigned char bytes[BATONI_TENSORS_FIXED_BYTES + 8];
	struct batoni_tensors header;

	encode(&tensor, 1, bytes);
	ck_assert_ptr_null(decode(bytes, sizeof(bytes), &header));
	bytes[sizeof(bytes) - 1] = 1;
	ck_assert_ptr_nonnull(
		strstr(decode(bytes, sizeof(bytes), &header), "not 0"));
}
END_TEST

START_TEST(the_longest_header_is_read)
{
	static struct baton_tensor tensors[BATON_TENSORS_MAX + 1];
	size_t n, bytes = 0, which = 0;
	struct batoni_tensors header;
	unsigned char *all;

	for (size_t i = 0; i <= BATON_TENSORS_MAX; i++)
		tensors[i] = (struct baton_tensor){
			.rank = 8, .shape = {1, 1, 1, 1, 1, 1, 1, 1}};
	n = batoni_tensors_header_bytes(tensors, BATON_TENSORS_MAX);
	all = malloc(n);
	ck_assert_ptr_nonnull(all);
	encode(tensors, BATON_TENSORS_MAX, all);
	ck_assert_ptr_null(batoni_tensors_decode(all, n, &header));
	ck_assert_uint_eq(header.payload_bytes, BATON_TENSORS_MAX);
	free(all);
	ck_assert_ptr_nonnull(
		strstr(batoni_tensors_bytes(tensors, BATON_TENSORS_MAX + 1,
	                                    &bytes, &which),
	               "4096"));
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		the_layout_is_that_of_onnx_runtime,
		the_bytes_are_those_of_the_type_and_the_shape,
		a_list_that_is_none_is_refused_and_named,
		a_header_brings_types_ranks_and_shapes,
		an_empty_list_has_a_header,
		the_bytes_of_a_header_are_these,
		a_header_that_is_cut_short_is_refused,
		a_header_with_a_spoiled_bit_is_refused_or_another_list,
		what_is_wrong_with_a_header_is_said,
		unused_bytes_of_a_header_are_0,
		the_longest_header_is_read,
	};

	return RUN_TESTS("tensors", tests);
}
