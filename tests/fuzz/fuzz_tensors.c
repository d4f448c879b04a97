/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a list of tensors.  What is accepted is exactly what the encoder writes for
 * the list that was read.  And a receive that leaves all open meets it: its segments
 * are within its arena.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tensor_list.h"
#include "tensors.h"

/* The header of a list that is fine. */
static void
encode(const struct baton_tensor *tensors, size_t n, unsigned char *bytes)
{
	size_t sum = 0, which = 0;

	batoni_tensors_bytes(tensors, n, &sum, &which);
	batoni_tensors_encode(tensors, n, sum, bytes);
}

void
seeds(void)
{
	static const struct baton_tensor lists[] = {
		{.type = BATON_FLOAT32, .rank = 2, .shape = {3, 5}},
		{.type = BATON_INT64, .rank = 0},
		{.type = BATON_BOOL, .rank = 8, .shape = {1, 2, 1, 2, 1, 2, 1, 2}},
		{.type = BATON_BFLOAT16, .rank = 1, .shape = {0}},
		{.type = BATON_UINT8, .rank = 3, .shape = {1 << 30, 1 << 30, 4}},
	};
	unsigned char bytes[512];

	for (size_t n = 0; n <= sizeof(lists) / sizeof(lists[0]); n++) {
		encode(lists, n, bytes);
		fuzz_seed(bytes, batoni_tensors_header_bytes(lists, n));
	}
}

static void
meet(const uint8_t *bytes, size_t n)
{
	enum { TENSORS = 8, ARENA = 4096 };
	static char arena[ARENA];
	unsigned char header[1024];
	struct batoni_segment segments[TENSORS];
	struct baton_tensor declared[TENSORS], results[TENSORS];
	struct batoni_tensor_list list = {
		.segments = segments,
		.header = header,
		.header_max = sizeof(header),
		.declared = declared,
		.declared_n = TENSORS,
		.fewer = true,
		.arena = arena,
		.arena_bytes = ARENA,
		.results = results,
	};
	char text[512];

	for (size_t i = 0; i < TENSORS; i++)
		declared[i] = (struct baton_tensor){.rank = -1};
	declared[0] = (struct baton_tensor){
		.type = BATON_FLOAT32, .rank = 2, .shape = {3, -1}};
	if (batoni_tensor_list_meet(&list, bytes, n) != BATON_OK) {
		CLAIM(batoni_tensor_list_explain(&list, text, sizeof(text)));
		return;
	}
	for (size_t i = 0; i < list.count; i++)
		CLAIM(segments[i].data >= arena &&
		      segments[i].bytes <= ARENA &&
		      segments[i].data + segments[i].bytes <= arena + ARENA);
	batoni_tensor_list_deliver(&list);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct batoni_tensors header;
	struct baton_tensor *tensors;
	size_t sum = 0, which = 0, i = 0;
	unsigned char *again;

	meet(bytes, n);
	if (batoni_tensors_decode(bytes, n, &header))
		return 0;
	CLAIM(header.header_bytes <= n);
	CLAIM(header.count <= BATON_TENSORS_MAX);
	tensors = calloc(header.count + 1, sizeof(*tensors));
	again = malloc(header.header_bytes);
	if (!tensors || !again)
		exit(EXIT_FAILURE);
	while (batoni_tensors_next(&header, &tensors[i]))
		i++;
	CLAIM(i == header.count);
	CLAIM(!batoni_tensors_bytes(tensors, i, &sum, &which));
	CLAIM(sum == header.payload_bytes);
	CLAIM(batoni_tensors_header_bytes(tensors, i) == header.header_bytes);
	encode(tensors, i, again);
	CLAIM(memcmp(again, bytes, header.header_bytes) == 0);
	free(again);
	free(tensors);
	return 0;
}
