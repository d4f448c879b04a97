/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of the kinds of operations: what the core relies on is there. */
#include "kinds.h"
#include "run_tests.h"

#define TRANSFERS BATONI_TRANSFERS

START_TEST(every_kind_of_the_list_has_a_table_and_a_name_of_its_own)
{
#define NUMBER(kind, number, table) (number),
	const unsigned numbers[] = {BATONI_KINDS(NUMBER)};
	const size_t n = sizeof(numbers) / sizeof(numbers[0]);

	for (size_t i = 0; i < n; i++) {
		const struct batoni_kind *kind = batoni_kinds[numbers[i]];

		ck_assert_ptr_nonnull(kind);
		ck_assert_ptr_nonnull(kind->name);
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(kind->name,
			                 batoni_kinds[numbers[j]]->name);
	}
	/* A record that was never used is of no kind. */
	ck_assert_ptr_null(batoni_kinds[0]);
}
END_TEST

START_TEST(transfers_are_moved_by_the_core_and_all_others_by_their_tables)
{
	for (unsigned i = 0; i < BATONI_KINDS_MAX; i++) {
		const struct batoni_kind *kind = batoni_kinds[i];
		bool transfer = TRANSFERS >> i & 1u;
		/* What a probe has found is never placed. */
		bool found = i == BATONI_KIND_MESSAGE;

		if (!kind)
			continue;
		ck_assert_msg((transfer || found) == !kind->place, "%s: place",
		              kind->name);
		ck_assert_msg((transfer || kind->off_stream) == !kind->reached,
		              "%s: reached", kind->name);
		/* What is on no stream is ended by what it answers for. */
		ck_assert_msg(kind->off_stream ==
		                      (kind->members || kind->launch || found),
		              "%s: off_stream", kind->name);
		ck_assert_msg(!kind->off_stream || kind->finish, "%s: finish",
		              kind->name);
		/* The core would ask a path. */
		ck_assert_msg(!kind->launch || kind->end_early, "%s: end_early",
		              kind->name);
	}
}
END_TEST

START_TEST(optional_tables_are_whole)
{
	for (unsigned i = 0; i < BATONI_KINDS_MAX; i++) {
		const struct batoni_kind *kind = batoni_kinds[i];

		if (kind && kind->list)
			ck_assert(kind->list->may_issue && kind->list->ended &&
			          kind->list->give);
		if (kind && kind->members)
			ck_assert(kind->members->reached &&
			          kind->members->ended);
		if (kind && kind->launch)
			ck_assert(kind->launch->armed && kind->launch->ends &&
			          kind->launch->given_back);
		/* Messages may be lists of tensors. */
		if (BATONI_MESSAGES >> i & 1u)
			ck_assert_ptr_nonnull(kind->list);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		every_kind_of_the_list_has_a_table_and_a_name_of_its_own,
		transfers_are_moved_by_the_core_and_all_others_by_their_tables,
		optional_tables_are_whole,
	};

	return RUN_TESTS("kinds", tests);
}
