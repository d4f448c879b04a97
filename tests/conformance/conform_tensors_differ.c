/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors that differ from what their receive declares, and what the request says of it. */
#include <string.h>

#include "tensor_cases.h"

/* What rank 1 declares where rank 0 sends {float32 [3, n], int8 [2]}, and what it is told. */
static const struct {
	struct baton_tensor list[3];
	size_t count;
	const char *words;
} differing[] = {
	{{{.type = BATON_FLOAT32, .rank = 2, .shape = {3, 1}},
	    {.type = BATON_INT8, .rank = 1, .shape = {2}}},
         2, "tensor 0: float32 [3, 1] was declared, float32 [3, "},
	{{{.type = BATON_INT32, .rank = 2, .shape = {3, -1}},
          {.type = BATON_INT8, .rank = 1, .shape = {2}}},
         2, "tensor 0: int32 [3, ?] was declared, float32 [3, "},
	{{{.rank = -1}, {.type = BATON_INT8, .rank = 2, .shape = {2, 1}}},
         2, "tensor 1: int8 [2, 1] was declared, int8 [2] came"},
	{{{.rank = -1}, {.type = BATON_INT8, .rank = 0}},
         2, "tensor 1: int8 [] was declared, int8 [2] came"},
	{{{.rank = -1}}, 1, "1 tensor was declared, 2 came"},
	{{{.rank = -1}, {.rank = -1}, {.rank = -1}},
         3, "3 tensors were declared, 2 came"},
	{{{.rank = 0}}, 0, "0 tensors were declared, 2 came"},
};

/* How rank 1 makes the receive that fails. */
enum how {
	BY_CALL,
	IN_A_GROUP,
	IN_A_PLAN,
	IN_A_GROUP_OF_A_PLAN,
	HOWS
};

static baton_request
recv_list_by(struct conform *c, enum how how, struct baton_tensor *list,
             size_t count, const struct baton_tensors_options *options)
{
	bool grouped = how == IN_A_GROUP || how == IN_A_GROUP_OF_A_PLAN;
	bool planned = how == IN_A_PLAN || how == IN_A_GROUP_OF_A_PLAN;
	baton_request request = BATON_REQUEST_NULL;
	struct baton_plan *plan = NULL;

	if (planned)
		CHECK_OK(c, baton_plan_begin(c->comm));
	if (grouped)
		CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_recv_tensors(list, count, 0, 0, c->comm, c->stream,
	                               options, planned ? NULL : &request));
	if (grouped)
		CHECK_OK(c, baton_group_end(c->comm));
	if (planned) {
		CHECK_OK(c, baton_plan_end(c->comm, &plan));
		CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
		CHECK_OK(c, baton_plan_destroy(plan));
	}
	return request;
}

static void
differ_once(struct conform *c, enum how how, size_t k, int64_t n)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[3];
	unsigned char *arena;
	baton_request request;
	size_t bytes = (size_t)n * 12 + 512;

	if (c->rank == 0) {
		list[0] = tensor(BATON_FLOAT32, NULL, 2, 3, n);
		list[1] = tensor(BATON_INT8, NULL, 1, 2, 0);
		give_memory(c, list, 2, 1, true);
		request = send_list(c, list, 2, 1, 0, NULL);
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		memcpy(list, differing[k].list, sizeof(list));
		arena = new_arena(c, bytes);
		options.arena = arena;
		options.arena_bytes = bytes;
		request = recv_list_by(c, how, list, differing[k].count,
		                       &options);
		expect_mismatch(c, &request, differing[k].words);
		CHECK_ALL(c, arena, bytes + CANARIES, CANARY);
		CHECK(c, memcmp(list, differing[k].list, sizeof(list)) == 0);
	}
}

static void
a_list_that_differs_is_named_and_the_next_is_right(struct conform *c)
{
	static const int64_t sizes[] = {2, 400, 30000, 1 << 18};

	for (size_t k = 0; k < sizeof(differing) / sizeof(differing[0]); k++) {
		for (size_t i = 0; i < 4; i++) {
			const struct baton_tensor next =
				tensor(BATON_UINT16, NULL, 2, 5, sizes[i]);

			differ_once(c, BY_CALL, k, sizes[i]);
			pass_list(c, &next, 1, (unsigned)i);
		}
		conform_alive();
	}
}

/* What did not agree, and why, is said of a launch as of a call: a tensor, the arena, a signal. */
static void
a_list_that_differs_is_named_in_groups_and_plans_too(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	struct baton_tensor open = {.rank = -1};
	bool may = false;
	baton_request request;

	for (int how = IN_A_GROUP; how < HOWS; how++)
		for (size_t k = 0; k < 5; k += 2)
			differ_once(c, (enum how)how, k, k ? 400 : 2);
	if (c->rank > 1)
		return;
	if (c->rank == 0) {
		give_memory(c, &one, 1, 6, true);
		request = send_list(c, &one, 1, 1, 0, NULL);
		FINISH(c, BATON_OK, &request);
		return;
	}
	options.arena = new_arena(c, 256);
	options.arena_bytes = 256;
	request = recv_list_by(c, IN_A_PLAN, &open, 1, &options);
	expect_failure(c, &request, BATON_ERR_TRUNCATED,
	               "the arena has 256 bytes, the tensors need 300");
	options.input_signal = &may;
	request = recv_list_by(c, IN_A_GROUP_OF_A_PLAN, &open, 1, &options);
	expect_failure(c, &request, BATON_ERR_INVALID,
	               "its input_signal was false");
}

static void
a_launch_says_that_a_list_came(struct conform *c)
{
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	struct baton_plan *plan = NULL;
	baton_request request;

	if (c->rank == 0) {
		give_memory(c, &one, 1, 6, true);
		request = send_list(c, &one, 1, 1, 0, NULL);
		FINISH(c, BATON_OK, &request);
	}
	if (c->rank != 1)
		return;
	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_OK(c, baton_recv(new_arena(c, 256), 256, BATON_UINT8, 0, 0, c->comm,
	                       c->stream, NULL, NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
	expect_failure(c, &request, BATON_ERR_MISMATCH,
	               "a list of tensors came, which baton_recv_tensors receives, and "
	               "baton_recv_message_tensors if a probe has found it");
	CHECK_OK(c, baton_plan_destroy(plan));
}

/* Its header comes in parts, where what was declared has been. */
static void
one_of_a_thousand_that_differs_is_named(struct conform *c)
{
	struct baton_tensor *list = thousand(c);
	baton_request request;

	if (c->rank <= 1)
		give_memory(c, list, 1000, 4, c->rank == 0);
	if (c->rank == 0) {
		request = send_list(c, list, 1000, 1, 0, NULL);
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		/* As many bytes. */
		list[778].shape[0] = 3;
		list[778].shape[1] = 1;
		request = recv_list(c, list, 1000, 0, 0, NULL);
		expect_mismatch(c, &request, "tensor 778: ");
		CHECK_ALL(c, list[778].data, 3, CANARY);
	}
	pass_list(c, list, 3, 5);
}

static void
a_list_and_a_plain_message_do_not_match(struct conform *c)
{
	static const size_t sizes[] = {0,    1,    61,    125,
		                        2000, 5000, 100000, 2000000};

	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct baton_tensor one =
			tensor(BATON_UINT8, NULL, 1, (int64_t)sizes[k], 0);
		unsigned char *plain = new_arena(c, sizes[k]);
		baton_request first, second, third;

		if (c->rank > 1)
			continue;
		give_memory(c, &one, 1, 4, c->rank == 0);
		if (c->rank == 0) {
			first = send_list(c, &one, 1, 1, 0, NULL);
			second = SEND(c, plain, sizes[k], 1, 0, c->stream, NULL);
			third = send_list(c, &one, 1, 1, 0, NULL);
			FINISH(c, BATON_OK, &first);
			FINISH(c, BATON_OK, &second);
		} else {
			first = RECV(c, plain, sizes[k], 0, 0, c->stream, NULL);
			expect_mismatch(c, &first, "a list of tensors came");
			CHECK_ALL(c, plain, sizes[k] + CANARIES, CANARY);
			second = recv_list(c, &one, 1, 0, 0, NULL);
			expect_mismatch(c, &second, "a plain message of");
			CHECK_ALL(c, one.data, sizes[k] + CANARIES, CANARY);
			third = recv_list(c, &one, 1, 0, 0, NULL);
		}
		FINISH(c, BATON_OK, &third);
		check_memory(c, &one, 1, 4);
	}
	conform_sync(c);
	conform_sound(c);
}

const struct conform_case conform_tensors_differ[] = {
	{CASE(a_list_that_differs_is_named_and_the_next_is_right),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(a_list_that_differs_is_named_in_groups_and_plans_too),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(a_launch_says_that_a_list_came), .ranks_min = 2, .needs = ONE_PATH},
	{CASE(one_of_a_thousand_that_differs_is_named), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(a_list_and_a_plain_message_do_not_match), .ranks_min = 2,
	  .needs = ONE_PATH},
	CASES_END,
};
