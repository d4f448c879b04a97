/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "match.h"
#include "run_tests.h"

#define KEYS 300
#define NODES 10000
#define STEPS 40000

struct item {
	int number;
	struct batoni_match_node node;
};

static struct item *
front_of(const struct batoni_match *match, uint64_t key)
{
	struct batoni_match_node *node = batoni_match_find(match, key);

	return node ? batoni_container_of(node, struct item, node) : NULL;
}

static void
enter(struct batoni_match *match, struct item *item, uint64_t key)
{
	batoni_match_enter(match, &item->node, key,
	                   batoni_match_find(match, key));
}

/* Take all of the key's queue: their numbers, as digits. */
static int
drain(struct batoni_match *match, uint64_t key)
{
	struct item *front;
	int digits = 0;

	while ((front = front_of(match, key)) != NULL) {
		digits = digits * 10 + front->number;
		batoni_match_remove(match, &front->node);
	}
	return digits;
}

/* Four items, numbered from 1, enter one queue. */
static void
open_four(struct batoni_match *match, struct item items[4], uint64_t key)
{
	ck_assert(batoni_match_init(match, 4));
	for (int i = 0; i < 4; i++) {
		items[i].number = i + 1;
		enter(match, &items[i], key);
	}
}

START_TEST(what_waits_is_found_by_its_key_in_order)
{
	struct batoni_match match;
	struct item items[4];

	open_four(&match, items, 7);
	ck_assert_ptr_null(front_of(&match, 8));
	ck_assert_ptr_eq(front_of(&match, 7), &items[0]);
	ck_assert_int_eq(drain(&match, 7), 1234);
	ck_assert_ptr_null(front_of(&match, 7));
	batoni_match_fini(&match);
}
END_TEST

START_TEST(any_node_leaves_and_the_order_stays)
{
	static const int left[] = {234, 134, 124, 123};
	struct batoni_match match;
	struct item items[4];

	for (int i = 0; i < 4; i++) {
		open_four(&match, items, UINT64_MAX);
		batoni_match_remove(&match, &items[i].node);
		ck_assert_int_eq(drain(&match, UINT64_MAX), left[i]);
		batoni_match_fini(&match);
	}
}
END_TEST

START_TEST(one_that_comes_back_is_the_last)
{
	struct batoni_match match;
	struct item items[4];

	open_four(&match, items, 0);
	batoni_match_remove(&match, &items[0].node);
	enter(&match, &items[0], 0);
	batoni_match_remove(&match, &items[2].node);
	enter(&match, &items[2], 0);
	ck_assert_int_eq(drain(&match, 0), 2413);
	batoni_match_fini(&match);
}
END_TEST

START_TEST(queues_of_other_keys_are_apart)
{
	struct batoni_match match;
	struct item items[6];

	/* Fewer than there are: chains hold several keys. */
	ck_assert(batoni_match_init(&match, 1));
	for (int i = 0; i < 6; i++) {
		items[i].number = i + 1;
		enter(&match, &items[i], (uint64_t)(i % 3) << 32);
	}
	batoni_match_remove(&match, &items[1].node);
	ck_assert_int_eq(drain(&match, 0), 14);
	ck_assert_int_eq(drain(&match, (uint64_t)1 << 32), 5);
	ck_assert_int_eq(drain(&match, (uint64_t)2 << 32), 36);
	batoni_match_fini(&match);
}
END_TEST

/* What is in a node is the user's when it has left. */
START_TEST(node_that_left_can_be_overwritten)
{
	struct batoni_match match;
	struct item items[4];

	open_four(&match, items, 5);
	batoni_match_remove(&match, &items[0].node);
	memset(&items[0].node, 0xff, sizeof(items[0].node));
	batoni_match_remove(&match, &items[2].node);
	memset(&items[2].node, 0xff, sizeof(items[2].node));
	enter(&match, &items[0], 5);
	ck_assert_int_eq(drain(&match, 5), 241);
	batoni_match_fini(&match);
}
END_TEST

/* ---- against a reference ---- */

/* Who waits for each key, in order. */
struct reference {
	struct batoni_match match;
	struct item items[NODES];
	uint64_t keys[NODES]; /* of those that wait */
	bool waits[NODES];
	int queues[KEYS][NODES];
	int lengths[KEYS];
};

static uint64_t
key_of(int queue)
{
	return (uint64_t)queue << 40 | (uint64_t)(queue % 7);
}

static void
assert_front(const struct reference *r, int queue)
{
	const struct item *front = front_of(&r->match, key_of(queue));

	if (r->lengths[queue] == 0) {
		ck_assert_ptr_null(front);
		return;
	}
	ck_assert_ptr_nonnull(front);
	ck_assert_int_eq(front->number, r->queues[queue][0]);
}

static void
reference_enter(struct reference *r, int number, int queue)
{
	enter(&r->match, &r->items[number], key_of(queue));
	r->waits[number] = true;
	r->keys[number] = (uint64_t)queue;
	r->queues[queue][r->lengths[queue]++] = number;
}

static void
reference_leave(struct reference *r, int number)
{
	int queue = (int)r->keys[number];
	int *numbers = r->queues[queue];
	int at = 0;

	batoni_match_remove(&r->match, &r->items[number].node);
	r->waits[number] = false;
	while (numbers[at] != number)
		at++;
	r->lengths[queue]--;
	memmove(&numbers[at], &numbers[at + 1],
	        (size_t)(r->lengths[queue] - at) * sizeof(numbers[0]));
}

static void
reference_drain(struct reference *r, int queue)
{
	while (r->lengths[queue] > 0) {
		assert_front(r, queue);
		reference_leave(r, r->queues[queue][0]);
	}
	assert_front(r, queue);
}

START_TEST(ten_thousand_nodes_in_random_order_wait_as_the_reference_does)
{
	struct reference *r = calloc(1, sizeof(*r));
	unsigned seed = 20261124;

	ck_assert_ptr_nonnull(r);
	printf("seed %u\n", seed);
	ck_assert(batoni_match_init(&r->match, NODES));
	for (int i = 0; i < NODES; i++)
		r->items[i].number = i;
	for (int step = 0; step < STEPS; step++) {
		int number = rand_r(&seed) % NODES;
		int queue = rand_r(&seed) % KEYS;

		if (r->waits[number]) {
			queue = (int)r->keys[number];
			reference_leave(r, number);
		} else {
			reference_enter(r, number, queue);
		}
		assert_front(r, queue);
	}
	for (int queue = 0; queue < KEYS; queue++)
		reference_drain(r, queue);
	batoni_match_fini(&r->match);
	free(r);
}
END_TEST

/* ---- moving ---- */

static void
assert_moves_as_memmove(size_t to, size_t from, size_t total, size_t most)
{
	char whole[64], sliced[64];
	size_t moved = 0;

	for (int i = 0; i < 64; i++)
		whole[i] = sliced[i] = (char)i;
	memmove(whole + to, whole + from, total);
	while (moved < total) {
		size_t n = batoni_match_move(sliced + to, sliced + from, total,
		                             moved, most);

		ck_assert_uint_eq(n, total - moved < most ? total - moved : most);
		moved += n;
	}
	ck_assert_mem_eq(sliced, whole, sizeof(whole));
}

START_TEST(slices_of_buffers_that_overlap_move_as_memmove_does)
{
	for (size_t most = 1; most < 12; most++) {
		assert_moves_as_memmove(10, 0, 40, most);
		assert_moves_as_memmove(0, 10, 40, most);
		assert_moves_as_memmove(5, 5, 40, most);
		assert_moves_as_memmove(40, 8, 24, most);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		what_waits_is_found_by_its_key_in_order,
		any_node_leaves_and_the_order_stays,
		one_that_comes_back_is_the_last,
		queues_of_other_keys_are_apart,
		node_that_left_can_be_overwritten,
		ten_thousand_nodes_in_random_order_wait_as_the_reference_does,
		slices_of_buffers_that_overlap_move_as_memmove_does,
	};

	return RUN_TESTS("match", tests);
}
