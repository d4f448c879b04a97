/* SPDX-License-Identifier: BSD-3-Clause */
#include "tensor_cases.h"

#include <stdio.h>
#include <string.h>

struct baton_tensor
tensor(enum baton_datatype type, void *data, int rank, int64_t a, int64_t b)
{
	return (struct baton_tensor){
		.data = data, .type = type, .rank = rank, .shape = {a, b}};
}

size_t
bytes_of(const struct baton_tensor *one)
{
	return baton_tensors_layout(one, 1, NULL);
}

baton_request
send_list(struct conform *c, const struct baton_tensor *tensors, size_t n,
          int peer, int tag, const struct baton_tensors_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_send_tensors(tensors, n, peer, tag, c->comm,
	                               c->stream, options, &request));
	return request;
}

baton_request
recv_list(struct conform *c, struct baton_tensor *tensors, size_t n, int peer,
          int tag, const struct baton_tensors_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_recv_tensors(tensors, n, peer, tag, c->comm,
	                               c->stream, options, &request));
	return request;
}

void
give_memory(struct conform *c, struct baton_tensor *tensors, size_t n,
            unsigned seed, bool fill)
{
	for (size_t i = 0; i < n; i++) {
		size_t bytes = bytes_of(&tensors[i]);
		unsigned char *data = conform_message(c, bytes + CANARIES);

		conform_set(c, data, CANARY, bytes + CANARIES);
		if (fill)
			conform_write(c, data, bytes, seed + (unsigned)i);
		tensors[i].data = data;
	}
}

void
check_memory(struct conform *c, const struct baton_tensor *tensors, size_t n,
             unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		const unsigned char *data = tensors[i].data;
		size_t bytes = bytes_of(&tensors[i]);

		CHECK_FILLED(c, data, bytes, seed + (unsigned)i);
		CHECK_ALL(c, data + bytes, CANARIES, CANARY);
	}
}

static size_t
sum_of(const struct baton_tensor *tensors, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += bytes_of(&tensors[i]);
	return sum;
}

int
some_tag(const struct conform *c, int tag)
{
	return c->info.capabilities & BATON_CAP_TAGS ? tag : 0;
}

void
pass_list(struct conform *c, const struct baton_tensor *list, size_t n,
          unsigned seed)
{
	struct baton_tensor *mine = conform_alloc(c, (n + 1) * sizeof(*mine));
	struct baton_completion done = {0};
	baton_request request;
	int tag = some_tag(c, 3);

	if (n > 0)
		memcpy(mine, list, n * sizeof(*mine));
	if (c->rank > 1)
		return;
	give_memory(c, mine, n, seed, c->rank == 0);
	request = c->rank == 0 ? send_list(c, mine, n, 1, tag, NULL)
	                       : recv_list(c, mine, n, 0, tag, NULL);
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.bytes, sum_of(mine, n));
	CHECK_EQ(c, done.tag, tag);
	CHECK_EQ(c, done.op,
	         c->rank == 0 ? BATON_OPERATION_SEND : BATON_OPERATION_RECV);
	check_memory(c, mine, n, seed);
}

struct baton_tensor *
thousand(struct conform *c)
{
	struct baton_tensor *list = conform_alloc(c, 1000 * sizeof(*list));

	for (int i = 0; i < 1000; i++) {
		list[i] = tensor(i % 2 ? BATON_INT16 : BATON_BOOL, NULL, i % 9,
		                 i % 7, 3);
		for (int k = 2; k < 8; k++)
			list[i].shape[k] = 1;
	}
	return list;
}

unsigned char *
new_arena(struct conform *c, size_t bytes)
{
	unsigned char *arena = conform_message(c, bytes + CANARIES);

	conform_set(c, arena, CANARY, bytes + CANARIES);
	return arena;
}

void
expect_failure(struct conform *c, baton_request *request_p,
               enum baton_status status, const char *words)
{
	char why[512] = "";

	CHECK_STATUS(c, status,
	             baton_wait(*request_p, conform_patience(c), NULL));
	CHECK_OK(c, baton_request_error(*request_p, why, sizeof(why)));
	if (!CHECK(c, strstr(why, words)))
		fprintf(stderr, "%s\n", why);
	FINISH(c, status, request_p);
}

void
expect_mismatch(struct conform *c, baton_request *request_p, const char *words)
{
	expect_failure(c, request_p, BATON_ERR_MISMATCH, words);
}
