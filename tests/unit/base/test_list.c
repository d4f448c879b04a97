/* SPDX-License-Identifier: BSD-3-Clause */
#include "list.h"
#include "run_tests.h"

struct thing {
	int number;
	struct batoni_list_node node;
};

/* The numbers in the list, read forwards and checked backwards. */
static int
digits(struct batoni_list_node *list)
{
	struct batoni_list_node *at;
	int forwards = 0, backwards = 0, scale = 1;

	for (at = list->next; at != list; at = at->next)
		forwards = forwards * 10 +
		           batoni_container_of(at, struct thing, node)->number;
	for (at = list->prev; at != list; at = at->prev) {
		backwards += scale *
		             batoni_container_of(at, struct thing, node)->number;
		scale *= 10;
	}
	ck_assert_int_eq(forwards, backwards);
	return forwards;
}

static void
fill_things(struct batoni_list_node *list, struct thing things[3])
{
	batoni_list_init(list);
	for (int i = 0; i < 3; i++) {
		things[i].number = i + 1;
		batoni_list_init(&things[i].node);
		batoni_list_append(list, &things[i].node);
	}
}

START_TEST(appended_nodes_come_in_order)
{
	struct batoni_list_node list;
	struct thing things[3];

	batoni_list_init(&list);
	ck_assert(batoni_list_empty(&list));
	fill_things(&list, things);
	ck_assert(!batoni_list_empty(&list));
	ck_assert_int_eq(digits(&list), 123);
}
END_TEST

START_TEST(any_node_can_be_removed)
{
	static const int left[] = {23, 13, 12};
	struct batoni_list_node list;
	struct thing things[3];

	for (int i = 0; i < 3; i++) {
		fill_things(&list, things);
		batoni_list_remove(&things[i].node);
		ck_assert_int_eq(digits(&list), left[i]);
	}
}
END_TEST

START_TEST(node_in_no_list_knows_it_and_may_be_removed_again)
{
	struct batoni_list_node list;
	struct thing things[3];

	fill_things(&list, things);
	ck_assert(!batoni_list_empty(&things[1].node));
	batoni_list_remove(&things[1].node);
	ck_assert(batoni_list_empty(&things[1].node));
	batoni_list_remove(&things[1].node);
	ck_assert_int_eq(digits(&list), 13);
	batoni_list_append(&list, &things[1].node);
	ck_assert_int_eq(digits(&list), 132);
}
END_TEST

START_TEST(list_is_empty_when_all_are_gone)
{
	struct batoni_list_node list;
	struct thing things[3];

	fill_things(&list, things);
	for (int i = 0; i < 3; i++)
		batoni_list_remove(&things[i].node);
	ck_assert(batoni_list_empty(&list));
	ck_assert_int_eq(digits(&list), 0);
}
END_TEST

/* ---- hash tables ---- */

struct keyed {
	char digit;
	struct batoni_hash_node node;
};

static struct keyed *
find_keyed(const struct batoni_hash *hash, uint64_t key)
{
	struct batoni_hash_node *node = batoni_hash_find(hash, key);

	return node ? batoni_container_of(node, struct keyed, node) : NULL;
}

START_TEST(nodes_of_a_table_are_found_by_their_keys)
{
	static struct keyed nodes[1000];
	struct batoni_hash hash;

	/* More than it is made for: chains are long. */
	ck_assert(batoni_hash_init(&hash, 20));
	ck_assert_uint_eq(hash.shift, 64 - 5);
	for (unsigned i = 0; i < 1000; i++)
		batoni_hash_add(&hash, &nodes[i].node, (uint64_t)i << (i % 50));
	for (unsigned i = 1; i < 1000; i += 2)
		batoni_hash_remove(&nodes[i].node);
	for (unsigned i = 0; i < 1000; i += 2) {
		const struct keyed *found = find_keyed(&hash, nodes[i].node.key);

		ck_assert_ptr_nonnull(found);
		ck_assert_uint_eq(found->node.key, nodes[i].node.key);
	}
	ck_assert_ptr_null(find_keyed(&hash, 3));
	batoni_hash_fini(&hash);
}
END_TEST

START_TEST(of_nodes_with_one_key_the_last_is_found_first)
{
	struct keyed a, b, c;
	struct batoni_hash hash;

	ck_assert(batoni_hash_init(&hash, 1));
	batoni_hash_add(&hash, &a.node, 7);
	batoni_hash_add(&hash, &b.node, 7);
	batoni_hash_add(&hash, &c.node, 7);
	ck_assert_ptr_eq(find_keyed(&hash, 7), &c);
	batoni_hash_remove(&b.node);
	batoni_hash_remove(&c.node);
	ck_assert_ptr_eq(find_keyed(&hash, 7), &a);
	batoni_hash_remove(&a.node);
	ck_assert_ptr_null(find_keyed(&hash, 7));
	batoni_hash_fini(&hash);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		appended_nodes_come_in_order,
		any_node_can_be_removed,
		node_in_no_list_knows_it_and_may_be_removed_again,
		list_is_empty_when_all_are_gone,
		nodes_of_a_table_are_found_by_their_keys,
		of_nodes_with_one_key_the_last_is_found_first,
	};

	return RUN_TESTS("list", tests);
}
