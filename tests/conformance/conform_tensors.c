/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of tensors: one message that describes itself, checked against what the receiver
 * declares, in one order with plain messages.  Tensors and arenas are in the memory of the
 * backend. */
#include <stdio.h>
#include <string.h>

#include "harness.h"

#define CANARIES 64
#define CANARY 0xa5
#define LIST_MAX 16

static struct baton_tensor
tensor(enum baton_datatype type, void *data, int rank, int64_t a, int64_t b)
{
	return (struct baton_tensor){
		.data = data, .type = type, .rank = rank, .shape = {a, b}};
}

static size_t
bytes_of(const struct baton_tensor *one)
{
	return baton_tensors_layout(one, 1, NULL);
}

static baton_request
send_list(struct conform *c, const struct baton_tensor *tensors, size_t n,
          int peer, int tag, const struct baton_tensors_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_send_tensors(tensors, n, peer, tag, c->comm,
	                               c->stream, options, &request));
	return request;
}

static baton_request
recv_list(struct conform *c, struct baton_tensor *tensors, size_t n, int peer,
          int tag, const struct baton_tensors_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_recv_tensors(tensors, n, peer, tag, c->comm,
	                               c->stream, options, &request));
	return request;
}

/* Give each tensor memory of its own, with canaries behind it, filled by seed + i or with
 * canaries. */
static void
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

static void
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

/* Lists and plain messages meet.  Where lists have a path of their own they do not, and plain
 * messages cannot be canceled. */
#define ONE_PATH (BATON_CAP_TENSORS | BATON_CAP_CANCEL)

/* A tag that is not 0, where there are such. */
static int
some_tag(const struct conform *c, int tag)
{
	return c->info.capabilities & BATON_CAP_TAGS ? tag : 0;
}

/* Rank 0 sends the list, rank 1 declares the same. */
static void
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

static struct baton_tensor *
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

static unsigned char *
new_arena(struct conform *c, size_t bytes)
{
	unsigned char *arena = conform_message(c, bytes + CANARIES);

	conform_set(c, arena, CANARY, bytes + CANARIES);
	return arena;
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

/* ---- sides that differ ----------------------------------------------------- */

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

static void
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

static void
expect_mismatch(struct conform *c, baton_request *request_p, const char *words)
{
	expect_failure(c, request_p, BATON_ERR_MISMATCH, words);
}

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

/* ---- order and the rest of an operation's life ------------------------------ */

static void
lists_and_plain_messages_of_a_tag_keep_one_order(struct conform *c)
{
	enum { MESSAGES = 24 };
	struct baton_tensor lists[MESSAGES];
	baton_request requests[MESSAGES];
	unsigned char *plain[MESSAGES];

	if (c->rank > 1)
		return;
	for (int i = 0; i < MESSAGES; i++) {
		size_t bytes = (size_t)(i % 5 == 4 ? 100000 : 100 + i);

		plain[i] = conform_message(c, bytes);
		lists[i] = tensor(BATON_UINT8, plain[i], 1, (int64_t)bytes, 0);
		if (c->rank == 0)
			conform_write(c, plain[i], bytes, (unsigned)i);
		if (i % 3 == 0)
			requests[i] = c->rank == 0
			                      ? SEND(c, plain[i], bytes, 1, 0,
			                             c->stream, &conform_detached)
			                      : RECV(c, plain[i], bytes, 0, 0,
			                             c->stream,
			                             &conform_detached);
		else
			requests[i] = c->rank == 0
			                      ? send_list(c, &lists[i], 1, 1, 0, NULL)
			                      : recv_list(c, &lists[i], 1, 0, 0, NULL);
	}
	FINISH_ALL(c, requests, MESSAGES);
	for (int i = 0; i < MESSAGES; i++)
		CHECK_FILLED(c, plain[i], bytes_of(&lists[i]), (unsigned)i);
}

static void
lists_are_exchanged_in_a_group(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor out[2] = {tensor(BATON_UINT8, NULL, 1, 3000, 0),
		                       tensor(BATON_UINT8, NULL, 1, 200000, 0)};
	struct baton_tensor in[2] = {out[0], out[1]};
	baton_request requests[2];
	int peer = conform_partner(c);

	if (peer < 0)
		return;
	give_memory(c, out, 2, (unsigned)c->rank, true);
	give_memory(c, in, 2, 0, false);
	options.op.flags = BATON_OP_DETACHED;
	CHECK_OK(c, baton_group_begin(c->comm));
	requests[0] = send_list(c, out, 2, peer, 0, &options);
	requests[1] = recv_list(c, in, 2, peer, 0, &options);
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
	check_memory(c, in, 2, (unsigned)peer);
}

static void
a_void_group_gives_its_lists_back(struct conform *c)
{
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 100, 0);
	baton_request request;

	give_memory(c, &one, 1, 1, true);
	for (int i = 0; i < 1000; i++) {
		CHECK_OK(c, baton_group_begin(c->comm));
		request = send_list(c, &one, 1, conform_next(c), 0, NULL);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send_tensors(&one, 1, -1, 0, c->comm,
		                                c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(request, NULL));
	}
}

static void
a_rank_sends_lists_to_itself(struct conform *c)
{
	struct baton_tensor out[2] = {tensor(BATON_UINT8, NULL, 1, 10, 0),
		                       tensor(BATON_UINT8, NULL, 1, 100000, 0)};
	struct baton_tensor in[2] = {out[0], out[1]};
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	baton_request requests[2];

	give_memory(c, out, 2, 8, true);
	give_memory(c, in, 2, 0, false);
	options.op.flags = BATON_OP_DETACHED;
	requests[0] = send_list(c, out, 2, c->rank, 0, &options);
	requests[1] = recv_list(c, in, 2, c->rank, 0, &options);
	FINISH_ALL(c, requests, 2);
	check_memory(c, in, 2, 8);
	options.flags = BATON_FORBID_SELF;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send_tensors(out, 2, c->rank, 0, c->comm, c->stream,
	                                 &options, NULL),
	              "peer BATON_FORBID_SELF");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_tensors(in, 2, c->rank, 0, c->comm, c->stream,
	                                 &options, NULL),
	              "peer BATON_FORBID_SELF");
}

static void
a_pending_receive_of_a_list_is_cancelled(struct conform *c)
{
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 5000, 0);
	baton_request request;

	give_memory(c, &one, 1, 0, false);
	request = recv_list(c, &one, 1, conform_next(c), 0, NULL);
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	CHECK_OK(c, baton_cancel(request));
	FINISH(c, BATON_ERR_CANCELED, &request);
	CHECK_ALL(c, one.data, 5000, CANARY);
	conform_sync(c);
	conform_sound(c);
}

/* List and cancel meet at every possible moment: each list is received once, by the receive that
 * was to be canceled or by the one after it. */
static void
cancel_never_loses_or_doubles_a_list(struct conform *c)
{
	static const int64_t sizes[] = {8, 1900, 3000, 70000};
	const unsigned n = conform_short() ? 80 : 400;
	struct baton_tensor list[2];

	if (c->rank > 1)
		return;
	for (unsigned i = 0; i < n; i++) {
		enum baton_status status;
		baton_request request;

		list[0] = tensor(BATON_INT16, NULL, 2, 3, 5);
		list[1] = tensor(BATON_UINT8, NULL, 1, sizes[i % 4], 0);
		give_memory(c, list, 2, i, c->rank == 0);
		if (c->rank == 0) {
			request = send_list(c, list, 2, 1, 0, NULL);
			if (!FINISH(c, BATON_OK, &request))
				break;
			continue;
		}
		request = recv_list(c, list, 2, 0, 0, NULL);
		for (unsigned spin = 0; spin < i % 7; spin++)
			(void)baton_test(request, NULL);
		CHECK_OK(c, baton_cancel(request));
		status = baton_wait(request, conform_patience(c), NULL);
		if (status == BATON_ERR_CANCELED) {
			CHECK_OK(c, baton_release(&request));
			request = recv_list(c, list, 2, 0, 0, NULL);
		}
		FINISH(c, BATON_OK, &request);
		check_memory(c, list, 2, i);
		if (atomic_load(&c->failures))
			break;
	}
}

/* A list under way is taken back, and its peer never sees it; or it is lent, with its memory in the
 * communicator, until the peer has taken it. */
static void
a_list_that_times_out_is_taken_back_or_lent(struct conform *c)
{
	struct baton_comm_options comm = BATON_COMM_OPTIONS_INIT;
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[2] = {
		tensor(BATON_UINT8, NULL, 1, 100, 0),
		tensor(BATON_UINT8, NULL, 1, 8 << 20, 0)};
	struct baton_completion done = {0};
	baton_request request = BATON_REQUEST_NULL;
	struct baton_comm *first;
	bool told = false;
	int lent = 0;

	comm.tensors_max = 8;
	first = conform_exchange(c, &comm);
	if (c->rank <= 1)
		give_memory(c, list, 2, 1, c->rank == 0);
	options.op.timeout_ns = 2 * MS;
	options.output_signal = &told;
	if (c->rank == 0) {
		request = send_list(c, list, 2, 1, 0, &options);
		CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		             baton_wait(request, conform_patience(c), &done));
		lent = (done.flags & BATON_COMPLETION_LENT) != 0;
	}
	if (lent)
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_send_tensors(list, 1, 1, 1, c->comm,
		                                c->stream, NULL, NULL));
	lent = c->backend->agree(c, lent);
	if (lent && c->rank == 1) {
		request = recv_list(c, list, 2, 0, 0, NULL);
		FINISH(c, BATON_OK, &request);
		check_memory(c, list, 2, 1);
	} else if (c->rank == 0) {
		int64_t begin = conform_begin();

		do
			CHECK_STATUS(c, BATON_ERR_TIMEOUT,
			             baton_test(request, &done));
		while ((done.flags & BATON_COMPLETION_LENT) && STILL(c, begin));
		CHECK_OK(c, baton_release(&request));
		CHECK(c, !told);
	}
	conform_sync(c);
	/* The memory is there again. */
	pass_list(c, list, 1, 4);
	conform_sound(c);
	RESTORE(c, first);
}

static void
the_deadline_of_a_list_ends_it(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 5000, 0);
	bool told = false;
	baton_request request;

	give_memory(c, &one, 1, 0, false);
	options.op.timeout_ns = 5 * MS;
	options.output_signal = &told;
	request = recv_list(c, &one, 1, conform_next(c), 0, &options);
	FINISH(c, BATON_ERR_TIMEOUT, &request);
	CHECK(c, !told);
	conform_sync(c);
	conform_sound(c);
}

static void
the_completion_of_a_list_goes_to_its_queue(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 5000, 0);
	struct baton_completion done = {0};
	struct baton_queue *queue = NULL;
	int64_t begin = conform_begin();

	if (c->rank > 1)
		return;
	give_memory(c, &one, 1, 2, c->rank == 0);
	CHECK_OK(c, baton_queue_create(c->comm, 4, &queue));
	options.op.queue = queue;
	options.op.user_data = 99;
	CHECK_OK(c, c->rank == 0
	                    ? baton_send_tensors(&one, 1, 1, 0, c->comm,
	                                         c->stream, &options, NULL)
	                    : baton_recv_tensors(&one, 1, 0, 0, c->comm,
	                                         c->stream, &options, NULL));
	while (baton_queue_poll(queue, &done, 1) == 0 && STILL(c, begin))
		;
	CHECK_EQ(c, done.user_data, 99);
	CHECK_EQ(c, done.status, BATON_OK);
	CHECK_EQ(c, done.bytes, 5000);
	check_memory(c, &one, 1, 2);
	baton_queue_destroy(queue);
}

static void
an_abort_ends_lists_too(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_tensor out[2] = {tensor(BATON_UINT8, NULL, 1, 100, 0),
		                       tensor(BATON_UINT8, NULL, 1, 1 << 20, 0)};
	struct baton_tensor in[2] = {out[0], out[1]};
	struct baton_comm *first = conform_exchange(c, &options);
	baton_request requests[2];

	give_memory(c, out, 2, 8, true);
	give_memory(c, in, 2, 0, false);
	requests[0] = recv_list(c, in, 2, conform_previous(c), some_tag(c, 1),
	                        NULL);
	requests[1] = send_list(c, out, 2, conform_next(c), some_tag(c, 2),
	                        NULL);
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(c->comm));
	FINISH(c, BATON_ERR_ABORTED, &requests[0]);
	FINISH(c, BATON_ERR_ABORTED, &requests[1]);
	CHECK_REFUSED(c, BATON_ERR_ABORTED,
	              baton_send_tensors(out, 2, 0, 0, c->comm, c->stream, NULL,
	                                 NULL),
	              "broken");
	conform_sync(c);
	RESTORE(c, first);
}

/* ---- threads ---------------------------------------------------------------- */

struct worker {
	struct conform *c;
	pthread_t thread;
	int tag;
};

/* Exchange lists with the partner.  Every seventh time both declare another one, and ask
 * why. */
static void *
exchange_lists(void *arg)
{
	struct worker *worker = arg;
	struct conform *c = worker->c;
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	baton_stream stream = conform_stream(c);
	int peer = conform_partner(c);
	struct baton_tensor out[3] = {tensor(BATON_UINT8, NULL, 1, 300, 0),
		                       tensor(BATON_UINT8, NULL, 2, 2, 50),
		                       tensor(BATON_UINT8, NULL, 1, 20000, 0)};
	struct baton_tensor in[3] = {out[0], out[1], out[2]};

	give_memory(c, out, 3, (unsigned)(c->rank + worker->tag), true);
	give_memory(c, in, 3, 0, false);
	options.op.flags = BATON_OP_DETACHED;
	for (int i = 0; i < conform_turns(200); i++) {
		size_t n = 1 + (size_t)i % 3;
		baton_request requests[2] = {0};

		in[0].type = i % 7 == 6 ? BATON_INT8 : BATON_UINT8;
		CHECK_OK(c, baton_send_tensors(out, n, peer, worker->tag, c->comm,
		                               stream, &options, &requests[0]));
		CHECK_OK(c, baton_recv_tensors(in, n, peer, worker->tag, c->comm,
		                               stream, &options, &requests[1]));
		if (i % 7 == 6)
			expect_mismatch(c, &requests[1],
			                "tensor 0: int8 [300] was declared");
		FINISH_ALL(c, requests, 2);
		if (i % 7 != 6)
			check_memory(c, in, n, (unsigned)(peer + worker->tag));
		if (atomic_load(&c->failures))
			break;
	}
	return NULL;
}

static void
threads_exchange_lists(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *first;
	struct worker workers[3];
	int begun = 0;

	/* Little memory: what is kept for sentences has to be used again. */
	options.tensors_max = 128;
	first = conform_exchange(c, &options);
	while (begun < 3 && conform_partner(c) >= 0) {
		workers[begun] = (struct worker){.c = c, .tag = begun};
		if (!CHECK_EQ(c, pthread_create(&workers[begun].thread, NULL,
		                                exchange_lists,
		                                &workers[begun]), 0))
			break;
		begun++;
	}
	for (int i = 0; i < begun; i++)
		pthread_join(workers[i].thread, NULL);
	conform_sync(c);
	RESTORE(c, first);
}

/* ---- signals of ONNX Runtime's edges ----------------------------------------- */

static void
set_true(void *arg)
{
	*(bool *)arg = true;
}

static void
an_input_signal_is_read_when_the_operation_is_armed(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	bool *may = conform_alloc(c, 1), *told = conform_alloc(c, 1);
	baton_request request;

	if (c->rank > 1)
		return;
	give_memory(c, &one, 1, 2, c->rank == 0);
	options.input_signal = may;
	options.output_signal = told;
	CHECK_OK(c, baton_stream_launch(c->comm, c->stream, set_true, may));
	request = c->rank == 0 ? send_list(c, &one, 1, 1, 0, &options)
	                       : recv_list(c, &one, 1, 0, 0, &options);
	FINISH(c, BATON_OK, &request);
	CHECK(c, *told);
	check_memory(c, &one, 1, 2);
}

static void
a_false_input_signal_sends_nothing(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	const bool no = false;
	bool told = false;
	baton_request request;
	char why[256] = "";

	if (c->rank <= 1) {
		give_memory(c, &one, 1, 2, c->rank == 0);
		options.input_signal = &no;
		options.output_signal = &told;
		request = c->rank == 0 ? send_list(c, &one, 1, 1, 0, &options)
		                       : recv_list(c, &one, 1, 0, 0, &options);
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_wait(request, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(request, why, sizeof(why)));
		CHECK(c, strstr(why, "input_signal"));
		FINISH(c, BATON_ERR_INVALID, &request);
		CHECK(c, !told);
	}
	pass_list(c, &one, 1, 3);
}

/* The call with this list, to or from the next rank, is INVALID, and its sentence has these words. */
static void
refuses_sent(struct conform *c, const struct baton_tensor *list, size_t count,
             const struct baton_tensors_options *options, const char *words)
{
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send_tensors(list, count, conform_next(c), 0, c->comm,
	                                 c->stream, options, NULL),
	              words);
}

static void
refuses_received(struct conform *c, struct baton_tensor *list, size_t count,
                 const struct baton_tensors_options *options, const char *words)
{
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_tensors(list, count, conform_next(c), 0, c->comm,
	                                 c->stream, options, NULL),
	              words);
}

/* ---- refusals ------------------------------------------------------------------ */

static void
bad_lists_are_refused(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	char data[8] = "";
	const struct {
		struct baton_tensor one;
		const char *send, *recv; /* words, or NULL where it is legal */
	} wrong[] = {
		{tensor(99, data, 1, 1, 0), "tensor 1 type 99 datatypes",
		  "tensor 1 type 99 datatypes"},
		{tensor(BATON_INT8, data, 9, 1, 1), "tensor 1 rank is 9; 0 to 8",
		  "tensor 1 rank is 9; 0 to 8"},
		{tensor(BATON_INT8, data, -2, 1, 1), "tensor 1 rank -2;",
		  "tensor 1 rank -2; -1 open"},
		{tensor(BATON_INT8, data, 2, 3, -2), "tensor 1 dimension -2; more",
		  "tensor 1 dimension -2; -1 open"},
		{tensor(BATON_INT8, data, 1, -1, 0), "tensor 1 dimension -1;",
		  "tensor 1 open"},
		{tensor(BATON_INT8, data, -1, 0, 0), "tensor 1 rank -1;",
		  "tensor 1 open"},
		{tensor(BATON_INT8, NULL, 1, 1, 0), "tensor 1 NULL",
		  "tensor 1 arena"},
		{tensor(BATON_INT64, data, 2, INT64_MAX, 2),
		  "tensor 1 int64 9223372036854775807 63",
		  "tensor 1 int64 9223372036854775807 63"},
	};
	int peer = conform_next(c);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct baton_tensor list[2] = {
			tensor(BATON_INT8, data, 1, 8, 0), wrong[i].one};

		refuses_sent(c, list, 2, NULL, wrong[i].send);
		refuses_received(c, list, 2, NULL, wrong[i].recv);
	}
	refuses_sent(c, NULL, 1, NULL, "tensors NULL");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_tensors(NULL, 0, peer, -2, c->comm, c->stream,
	                                 NULL, NULL),
	              "tag");
	options.op.size = sizeof(options.op);
	refuses_sent(c, NULL, 0, &options, "size BATON_TENSORS_OPTIONS_INIT");
	options.op.size = sizeof(options);
	options.flags = 2;
	refuses_sent(c, NULL, 0, &options, "options->flags 0x2 FORBID_SELF");
	options.flags = 0;
	options.op.flags = 2;
	refuses_sent(c, NULL, 0, &options, "options->op.flags 0x2 DETACHED");
}

static void
a_send_has_no_arena_and_no_count(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	char arena[16];
	size_t count;

	options.arena = arena;
	options.arena_bytes = sizeof(arena);
	refuses_sent(c, NULL, 0, &options, "arena 16 receive");
	options.arena = NULL;
	options.arena_bytes = 0;
	options.count_p = &count;
	refuses_sent(c, NULL, 0, &options, "count_p receive");
}

/* The engine's thread reads and writes these. */
static void
signals_in_memory_of_a_device_are_refused(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor one = tensor(BATON_UINT8, NULL, 1, 300, 0);
	void *away = conform_message(c, 64);

	if (!c->memory || !c->memory->is_device(away))
		return;
	give_memory(c, &one, 1, 2, true);
	options.input_signal = away;
	refuses_sent(c, &one, 1, &options, "input_signal host");
	refuses_received(c, &one, 1, &options, "input_signal host");
	options.input_signal = NULL;
	options.output_signal = away;
	refuses_sent(c, &one, 1, &options, "output_signal host");
	options.output_signal = NULL;
	options.count_p = away;
	refuses_received(c, &one, 1, &options, "count_p host");
}

/* Receive lists of n open tensors until that is refused: AGAIN, or INVALID where not even one
 * fits.  Returns how many; all are canceled. */
static int
receive_until_full(struct conform *c, size_t n, enum baton_status end)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor list[32];
	enum baton_status status = BATON_OK;
	baton_request requests[64];
	int taken = 0;

	for (size_t i = 0; i < n; i++)
		list[i] = (struct baton_tensor){.rank = -1};
	options.arena = new_arena(c, 64);
	options.arena_bytes = 64;
	while (taken < 64 && status == BATON_OK) {
		status = baton_recv_tensors(list, n, conform_next(c), 0, c->comm,
		                            c->stream, &options,
		                            &requests[taken]);
		taken += status == BATON_OK;
	}
	CHECK_STATUS(c, end, status);
	CHECK(c, strstr(baton_last_error(), "tensors_max"));
	for (int i = 0; i < taken; i++) {
		CHECK_OK(c, baton_cancel(requests[i]));
		FINISH(c, BATON_ERR_CANCELED, &requests[i]);
	}
	return taken;
}

/* So many tensors of all lists together, each counted as a multiple of 8. */
static void
the_memory_of_lists_is_bounded(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *first;

	options.tensors_max = 64;
	first = conform_exchange(c, &options);
	/* Also behind those of another length, whose memory lies ready for them. */
	for (int turn = 0; turn < 2; turn++) {
		CHECK_EQ(c, receive_until_full(c, 8, BATON_ERR_AGAIN), 8);
		CHECK_EQ(c, receive_until_full(c, 0, BATON_ERR_AGAIN), 8);
		CHECK_EQ(c, receive_until_full(c, 9, BATON_ERR_AGAIN), 4);
		CHECK_EQ(c, receive_until_full(c, 32, BATON_ERR_AGAIN), 2);
	}
	RESTORE(c, first);
	options.tensors_max = 1;
	first = conform_exchange(c, &options);
	CHECK_EQ(c, receive_until_full(c, 8, BATON_ERR_AGAIN), 1);
	CHECK_EQ(c, receive_until_full(c, 9, BATON_ERR_INVALID), 0);
	RESTORE(c, first);
}

/* Each sentence stays with its request, and then its memory is used again. */
static void
the_memory_of_a_sentence_is_used_again(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_tensor out = tensor(BATON_INT8, NULL, 1, 1, 0);
	struct baton_tensor in = tensor(BATON_INT16, NULL, 1, 1, 0);
	struct baton_comm *first;
	baton_request request;

	options.tensors_max = 32;
	first = conform_exchange(c, &options);
	give_memory(c, &out, 1, 1, true);
	give_memory(c, &in, 1, 1, false);
	for (int i = 0; i < 100; i++) {
		if (c->rank == 0) {
			request = send_list(c, &out, 1, 1, 0, NULL);
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1) {
			request = recv_list(c, &in, 1, 0, 0, NULL);
			expect_mismatch(c, &request, "int16 [1] was declared");
		}
	}
	RESTORE(c, first);
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
	{CASE(a_list_that_differs_is_named_and_the_next_is_right),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(a_list_that_differs_is_named_in_groups_and_plans_too),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(a_launch_says_that_a_list_came), .ranks_min = 2, .needs = ONE_PATH},
	{CASE(one_of_a_thousand_that_differs_is_named), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(a_list_and_a_plain_message_do_not_match), .ranks_min = 2,
	  .needs = ONE_PATH},
	{CASE(lists_and_plain_messages_of_a_tag_keep_one_order),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(lists_are_exchanged_in_a_group), .needs = BATON_CAP_TENSORS},
	{CASE(a_void_group_gives_its_lists_back), .needs = BATON_CAP_TENSORS},
	{CASE(a_rank_sends_lists_to_itself), .needs = BATON_CAP_TENSORS},
	{CASE(a_pending_receive_of_a_list_is_cancelled),
	  .needs = BATON_CAP_TENSORS},
	{CASE(cancel_never_loses_or_doubles_a_list), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(a_list_that_times_out_is_taken_back_or_lent), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(the_deadline_of_a_list_ends_it), .needs = BATON_CAP_TENSORS},
	{CASE(an_abort_ends_lists_too), .needs = BATON_CAP_TENSORS},
	{CASE(threads_exchange_lists), .ranks_min = 2, .makes = 4,
	  .needs = BATON_CAP_TENSORS | BATON_CAP_TAGS},
	{CASE(the_completion_of_a_list_goes_to_its_queue), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(an_input_signal_is_read_when_the_operation_is_armed),
	  .ranks_min = 2, .needs = BATON_CAP_TENSORS},
	{CASE(a_false_input_signal_sends_nothing), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	{CASE(bad_lists_are_refused), .needs = BATON_CAP_TENSORS},
	{CASE(a_send_has_no_arena_and_no_count), .needs = BATON_CAP_TENSORS},
	{CASE(signals_in_memory_of_a_device_are_refused),
	  .needs = BATON_CAP_TENSORS},
	{CASE(the_memory_of_lists_is_bounded), .needs = BATON_CAP_TENSORS},
	{CASE(the_memory_of_a_sentence_is_used_again), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS},
	CASES_END,
};
