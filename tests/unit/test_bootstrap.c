/* SPDX-License-Identifier: BSD-3-Clause */
/* The bootstrap of ranks in one process (transport/bootstrap/threads/), by turns. */
#include <stdio.h>
#include <string.h>

#include "bootstrap.h"
#include "mem.h"
#include "run_tests.h"

enum { RANKS = 3 };

static struct batoni_bootstrap ranks[RANKS];

static void
join_all(void)
{
	struct batoni_room *room;

	ck_assert_int_eq(batoni_threads_ops.open(RANKS, &room), BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		batoni_threads_ops.join(room, i, &ranks[i]);
		ck_assert_int_eq(ranks[i].rank, i);
		ck_assert_int_eq(ranks[i].size, RANKS);
		ck_assert_int_eq(ranks[i].before, i);
		ck_assert_int_eq(ranks[i].within, RANKS);
	}
}

static void
close_all(void)
{
	for (int i = 0; i < RANKS; i++)
		ranks[i].ops->close(&ranks[i]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

/* What a rank brings in a round. */
static void
fill(unsigned char *record, int rank, int round, size_t bytes)
{
	memset(record, 16 * round + rank, bytes);
}

static enum baton_status
exchange(int rank, int round, size_t bytes, const void **all_p)
{
	unsigned char mine[BATONI_RECORD_MAX];

	fill(mine, rank, round, bytes);
	return ranks[rank].ops->exchange(&ranks[rank], mine, bytes, all_p);
}

static void
assert_all(const unsigned char *all, int round, size_t bytes)
{
	unsigned char expected[BATONI_RECORD_MAX];

	for (int rank = 0; rank < RANKS; rank++) {
		fill(expected, rank, round, bytes);
		ck_assert_mem_eq(all + (size_t)rank * bytes, expected, bytes);
	}
}

START_TEST(each_rank_gets_the_records_of_all)
{
	static const size_t lengths[] = {1, BATONI_RECORD_MAX, 7};
	const void *all;

	join_all();
	for (int round = 0; round < 3; round++) {
		size_t bytes = lengths[round];

		/* The last one comes first in the next round. */
		for (int i = 0; i < RANKS - 1; i++)
			ck_assert_int_eq(exchange((i + round) % RANKS, round, bytes,
			                          &all),
			                 BATON_PENDING);
		for (int i = RANKS; i-- > 0;) {
			ck_assert_int_eq(exchange((i + round) % RANKS, round, bytes,
			                          &all),
			                 BATON_OK);
			assert_all(all, round, bytes);
		}
	}
	close_all();
}
END_TEST

START_TEST(records_stay_while_another_rank_is_a_round_ahead)
{
	const void *first, *next;

	join_all();
	for (int i = 0; i < RANKS - 1; i++)
		exchange(i, 0, 64, &first);
	ck_assert_int_eq(exchange(RANKS - 1, 0, 64, &first), BATON_OK);
	ck_assert_int_eq(exchange(0, 0, 64, &next), BATON_OK);
	ck_assert_int_eq(exchange(0, 1, BATONI_RECORD_MAX, &next),
	                 BATON_PENDING);
	assert_all(first, 0, 64);
	ck_assert_int_eq(exchange(1, 0, 64, &next), BATON_OK);
	assert_all(next, 0, 64);
	close_all();
}
END_TEST

START_TEST(a_rank_that_closes_ends_the_wait_of_the_others)
{
	const void *all;

	join_all();
	ck_assert_int_eq(exchange(0, 0, 8, &all), BATON_PENDING);
	ranks[1].ops->close(&ranks[1]);
	ck_assert_int_eq(exchange(0, 0, 8, &all), BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "has given up"));
	ranks[0].ops->close(&ranks[0]);
	ck_assert_int_gt(batoni_mem_blocks(), 0);
	ranks[2].ops->close(&ranks[2]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

/* It has what all have brought, whoever has left since. */
START_TEST(a_round_that_is_complete_is_had_by_all)
{
	const void *all;

	join_all();
	for (int i = 0; i < RANKS; i++)
		exchange(i, 0, 8, &all);
	ranks[RANKS - 1].ops->close(&ranks[RANKS - 1]);
	ck_assert_int_eq(exchange(0, 0, 8, &all), BATON_OK);
	assert_all(all, 0, 8);
	ck_assert_int_eq(exchange(0, 1, 8, &all), BATON_ERR_PEER);
	for (int i = 0; i < RANKS - 1; i++)
		ranks[i].ops->close(&ranks[i]);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(a_room_without_memory_leaves_nothing)
{
	struct batoni_room *room;
	unsigned long n;

	for (n = 1;; n++) {
		batoni_mem_fail_at(n);
		if (batoni_threads_ops.open(RANKS, &room) == BATON_OK)
			break;
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	batoni_mem_fail_at(0);
	ck_assert_uint_eq(n, 3);
	for (int i = 0; i < RANKS; i++)
		batoni_threads_ops.join(room, i, &ranks[i]);
	close_all();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		each_rank_gets_the_records_of_all,
		records_stay_while_another_rank_is_a_round_ahead,
		a_rank_that_closes_ends_the_wait_of_the_others,
		a_round_that_is_complete_is_had_by_all,
		a_room_without_memory_leaves_nothing,
	};

	return RUN_TESTS("bootstrap", tests);
}
