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
fill(struct batoni_list_node *list, struct thing things[3])
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
	fill(&list, things);
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
		fill(&list, things);
		batoni_list_remove(&things[i].node);
		ck_assert_int_eq(digits(&list), left[i]);
	}
}
END_TEST

START_TEST(node_in_no_list_knows_it_and_may_be_removed_again)
{
	struct batoni_list_node list;
	struct thing things[3];

	fill(&list, things);
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

	fill(&list, things);
	for (int i = 0; i < 3; i++)
		batoni_list_remove(&things[i].node);
	ck_assert(batoni_list_empty(&list));
	ck_assert_int_eq(digits(&list), 0);
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
	};

	return RUN_TESTS("list", tests);
}
