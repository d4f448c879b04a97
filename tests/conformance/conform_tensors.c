/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors: what arrives, where it was declared or in the arena. */
#include <string.h>

#include "tensor_cases.h"

/* ---- what arrives -------------------------------------------------------- */

static void
a_list_arrives_where_it_was_declared(struct conform *c)
{
	const struct baton_tensor list[] = {
		tensor(BATON_UINT8, NULL, 1, 100, 0),
		tensor(BATON_FLOAT32, NULL, 2, 3, 25),
		tensor(BATON_INT64, NULL, 2, 0, 7),
		tensor(BATON_INT32, NULL, 0, 0, 0),
	};

	pass_list(c, list, 4, 5);
	pass_list(c, list, 1, 6);
	pass_list(c, list, 0, 7);
}

/* Payloads around the steps of the transports' protocols, cut in many ways. */
static void
lists_of_all_lengths_arrive(struct conform *c)
{
	static const size_t totals[] = {
		0,    1,     1700,  1800,        1984,       2048,
		4096, 16384, 16385, (size_t)1 << 18, (size_t)3 << 19, (size_t)20 << 20,
	};
	uint64_t state = 12;

	for (size_t k = 0; k < sizeof(totals) / sizeof(totals[0]); k++) {
		if (totals[k] > 2 * MIB && (conform_short() || CONFORM_SANITIZED))
			continue;
		for (int turn = 0;
		     turn < (totals[k] > MIB ? 2 : conform_turns(10)); turn++) {
			struct baton_tensor list[LIST_MAX];
			size_t n = 1 + conform_random(&state) % LIST_MAX;
			size_t left = totals[k];

			for (size_t i = 0; i < n; i++) {
				size_t part = i + 1 == n ? left
				              : left > 0 ? conform_random(&state) %
				                                   (left + 1)
				                         : 0;

				if (conform_random(&state) % 4 == 0 && i + 1 < n)
					part = 0;
				list[i] = tensor(BATON_UINT8, NULL, 1,
				                 (int64_t)part, 0);
				left -= part;
			}
			pass_list(c, list, n, (unsigned)turn);
		}
		conform_alive();
	}
}

static void
a_thousand_tensors_are_one_message(struct conform *c)
{
	const struct baton_tensor *list = thousand(c);

	pass_list(c, list, 1000, 9);
	pass_list(c, list, 100, 10);
}

static void
many_large_tensors_are_one_message(struct conform *c)
{
	struct baton_tensor list[LIST_MAX];

	for (int i = 0; i < LIST_MAX; i++)
		list[i] = tensor(BATON_FLOAT32, NULL, 2, 1000 + 20000 * (i % 3),
		                 i + 1);
	pass_list(c, list, LIST_MAX, 3);
}

/* Every second tensor is in memory of the host; those of the two ranks differ. */
static void
a_list_is_of_any_memory_mixed(struct conform *c)
{
	static const int64_t sizes[] = {3, 150, 70000, 1 << 20};

	for (unsigned k = 0; k < 8 && c->rank <= 1; k++) {
		struct baton_tensor list[LIST_MAX];
		size_t n = 2 + 2 * (size_t)k;
		baton_request request;

		for (size_t i = 0; i < n; i++)
			list[i] = tensor(BATON_UINT8, NULL, 1,
			                 sizes[(k + i / 3) % (k < 2 ? 2 : 4)], 0);
		give_memory(c, list, n, k, c->rank == 0);
		for (size_t i = (k + (unsigned)c->rank) % 2; i < n; i += 2) {
			size_t bytes = bytes_of(&list[i]) + CANARIES;
			void *data = conform_alloc(c, bytes);

			conform_copy(c, data, list[i].data, bytes);
			list[i].data = data;
		}
		request = c->rank == 0 ? send_list(c, list, n, 1, 0, NULL)
		                       : recv_list(c, list, n, 0, 0, NULL);
		FINISH(c, BATON_OK, &request);
		check_memory(c, list, n, k);
	}
}

/* ---- what is left open ---------------------------------------------------- */

static void
send_three(struct conform *c)
{
	struct baton_tensor list[] = {
		tensor(BATON_FLOAT32, NULL, 1, 25, 0),
		tensor(BATON_UINT8, NULL, 2, 3, 100),
		tensor(BATON_INT32, NULL, 0, 0, 0),
	};
	baton_request request;

	give_memory(c, list, 3, 20, true);
	request = send_list(c, list, 3, 1, 0, NULL);
	FINISH(c, BATON_OK, &request);
}

static void
check_three(struct conform *c, const struct baton_tensor *got,
            const unsigned char *arena)
{
	CHECK_EQ(c, got[0].type, BATON_FLOAT32);
	CHECK_EQ(c, got[0].rank, 1);
	CHECK_EQ(c, got[0].shape[0], 25);
	CHECK_EQ(c, got[1].type, BATON_UINT8);
	CHECK_EQ(c, got[1].rank, 2);
	CHECK_EQ(c, got[1].shape[0], 3);
	CHECK_EQ(c, got[1].shape[1], 100);
	CHECK_EQ(c, got[2].type, BATON_INT32);
	CHECK_EQ(c, got[2].rank, 0);
	CHECK(c, got[0].data == arena);
	CHECK(c, got[1].data == arena + 256);
	CHECK(c, got[2].data == arena + 768);
	CHECK_FILLED(c, arena, 100, 20);
	CHECK_ALL(c, arena + 100, 156, CANARY);
	CHECK_FILLED(c, arena + 256, 300, 21);
	CHECK_ALL(c, arena + 556, 212, CANARY);
	CHECK_FILLED(c, arena + 768, 4, 22);
	CHECK_ALL(c, arena + 772, CANARIES, CANARY);
}

static void
what_is_not_declared_goes_to_the_arena(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[5] = {{.rank = -1}, {.rank = -1}, {.rank = -1},
	                               {.rank = -1}, {.rank = -1}};
	baton_request request;
	size_t count = 77;

	if (c->rank == 0)
		send_three(c);
	if (c->rank != 1)
		return;
	options.arena = new_arena(c, 772);
	options.arena_bytes = 772;
	options.count_p = &count;
	request = recv_list(c, list, 5, 0, 0, &options);
	FINISH(c, BATON_OK, &request);
	CHECK_EQ(c, count, 3);
	check_three(c, list, options.arena);
	CHECK_EQ(c, list[3].rank, -1);
}

static void
open_dimensions_are_told(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[] = {
		tensor(BATON_FLOAT32, NULL, 1, -1, 0),
		tensor(BATON_UINT8, NULL, 2, 3, -1),
		tensor(BATON_INT32, NULL, 0, 0, 0),
	};
	baton_request request;

	if (c->rank == 0)
		send_three(c);
	if (c->rank != 1)
		return;
	options.arena = new_arena(c, 772);
	options.arena_bytes = 772;
	request = recv_list(c, list, 3, 0, 0, &options);
	FINISH(c, BATON_OK, &request);
	check_three(c, list, options.arena);
}

static void
an_arena_takes_only_what_has_no_memory(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[] = {
		tensor(BATON_FLOAT32, NULL, 1, -1, 0),
		tensor(BATON_UINT8, NULL, 2, 3, 100),
		tensor(BATON_INT32, NULL, 0, 0, 0),
	};
	unsigned char *arena, *own;
	baton_request request;

	if (c->rank == 0)
		send_three(c);
	if (c->rank != 1)
		return;
	arena = new_arena(c, 260);
	own = list[1].data = new_arena(c, 300);
	options.arena = arena;
	options.arena_bytes = 260;
	request = recv_list(c, list, 3, 0, 0, &options);
	FINISH(c, BATON_OK, &request);
	CHECK_FILLED(c, arena, 100, 20);
	CHECK_FILLED(c, own, 300, 21);
	CHECK_ALL(c, own + 300, CANARIES, CANARY);
	CHECK_FILLED(c, arena + 256, 4, 22);
	CHECK_ALL(c, arena + 260, CANARIES, CANARY);
	CHECK(c, list[0].data == arena && list[1].data == own &&
	                 list[2].data == arena + 256);
	CHECK_EQ(c, list[0].shape[0], 25);
}

static void
an_arena_that_is_too_small_truncates(struct conform *c)
{
	static const int64_t sizes[] = {300, 5000, 100000, 3 << 20};

	for (size_t k = 0; k < 4; k++) {
		struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
		struct baton_tensor list[2] = {
			tensor(BATON_UINT8, NULL, 1, 100, 0),
			tensor(BATON_UINT8, NULL, 1, sizes[k], 0)};
		struct baton_completion done = {0};
		baton_request request;
		char why[256] = "";

		if (c->rank == 0) {
			give_memory(c, list, 2, 1, true);
			request = send_list(c, list, 2, 1, 0, NULL);
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1) {
			list[0].rank = list[1].rank = -1;
			options.arena = new_arena(c, 300);
			options.arena_bytes = 300;
			request = recv_list(c, list, 2, 0, 0, &options);
			CHECK_STATUS(c, BATON_ERR_TRUNCATED,
			             baton_wait(request, conform_patience(c),
			                        NULL));
			CHECK_OK(c, baton_request_error(request, why,
			                                sizeof(why)));
			CHECK(c, strstr(why, "arena has 300 bytes"));
			FINISH_AS(c, BATON_ERR_TRUNCATED, &request, &done);
			CHECK_EQ(c, done.bytes, 256 + sizes[k]);
			CHECK_ALL(c, options.arena, 300 + CANARIES, CANARY);
			CHECK_EQ(c, list[0].rank, -1);
		}
	}
	conform_sync(c);
	conform_sound(c);
}

const struct conform_case conform_tensors[] = {
	{CASE(a_list_arrives_where_it_was_declared), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(lists_of_all_lengths_arrive), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(a_thousand_tensors_are_one_message), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(many_large_tensors_are_one_message), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(a_list_is_of_any_memory_mixed), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(what_is_not_declared_goes_to_the_arena), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(open_dimensions_are_told), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(an_arena_takes_only_what_has_no_memory), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(an_arena_that_is_too_small_truncates), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	CASES_END,
};
