/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <string.h>

#include "mem.h"
#include "pool.h"
#include "run_tests.h"

static struct batoni_device *
device(void)
{
	static const struct batoni_device_config config;
	struct batoni_device *device = NULL;

	ck_assert_int_eq(batoni_device_host_ops.open(&config, &device),
	                 BATON_OK);
	return device;
}

static void
open_pool(struct batoni_pool *pool, uint32_t size, uint32_t generation)
{
	*pool = (struct batoni_pool){0};
	ck_assert_int_eq(
		batoni_pool_init(pool, size, generation, false, device(), 0),
		BATON_OK);
}

static uint32_t
close_pool(struct batoni_pool *pool)
{
	uint32_t generation = batoni_pool_generation(pool);

	ck_assert_int_eq(batoni_pool_fini(pool, device()), BATON_OK);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	return generation;
}

static uint32_t
generation_of(struct batoni_op *op)
{
	return (uint32_t)(atomic_load(&op->word) >> 32);
}

START_TEST(pool_gives_as_many_slots_as_it_has_and_no_more)
{
	static const uint32_t sizes[] = {1, 2, 16, 17, 100};
	struct batoni_pool pool;
	bool seen[100];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		open_pool(&pool, sizes[i], 0);
		memset(seen, 0, sizeof(seen));
		for (uint32_t n = 0; n < sizes[i]; n++) {
			struct batoni_op *op = batoni_pool_take(&pool);

			ck_assert_ptr_nonnull(op);
			ck_assert_uint_lt(batoni_pool_slot(&pool, op), sizes[i]);
			ck_assert(!seen[batoni_pool_slot(&pool, op)]);
			seen[batoni_pool_slot(&pool, op)] = true;
		}
		ck_assert_ptr_null(batoni_pool_take(&pool));
		ck_assert_ptr_null(batoni_pool_take_driving(&pool));
		batoni_pool_return(&pool, &pool.ops[0]);
		ck_assert_ptr_eq(batoni_pool_take(&pool), &pool.ops[0]);
		ck_assert_ptr_null(batoni_pool_take(&pool));
		close_pool(&pool);
	}
}
END_TEST

START_TEST(each_use_has_a_generation_and_a_word_value_of_its_own)
{
	struct batoni_pool pool;

	open_pool(&pool, 1, 41);
	for (uint32_t use = 1; use <= 5; use++) {
		struct batoni_op *op = use % 2
		                               ? batoni_pool_take(&pool)
		                               : batoni_pool_take_driving(&pool);

		ck_assert_uint_eq(generation_of(op), 41 + use);
		ck_assert_uint_eq(atomic_load(&op->word) & UINT32_MAX, 0);
		ck_assert_uint_eq(pool.values[0], use);
		atomic_fetch_or(&op->word, BATONI_OP_DONE | BATONI_OP_CANCEL);
		if (use % 3)
			batoni_pool_return(&pool, op);
		else
			batoni_pool_return_driving(&pool, op);
	}
	/* The next pool at this place goes on from there. */
	ck_assert_uint_eq(close_pool(&pool), 47);
}
END_TEST

START_TEST(generation_0_is_left_out)
{
	struct batoni_pool pool;
	struct batoni_op *op;

	open_pool(&pool, 1, UINT32_MAX - 1);
	op = batoni_pool_take(&pool);
	ck_assert_uint_eq(generation_of(op), UINT32_MAX);
	batoni_pool_return(&pool, op);
	ck_assert_uint_eq(generation_of(op), 1);
	close_pool(&pool);
}
END_TEST

START_TEST(cache_holds_a_few_and_the_rest_goes_back_to_all)
{
	struct batoni_op *ops[BATONI_POOL_CACHE + 4];
	struct batoni_pool pool;

	open_pool(&pool, BATONI_POOL_CACHE + 4, 0);
	for (uint32_t i = 0; i < BATONI_POOL_CACHE + 4; i++)
		ops[i] = batoni_pool_take_driving(&pool);
	for (uint32_t i = 0; i < BATONI_POOL_CACHE + 4; i++) {
		batoni_pool_return_driving(&pool, ops[i]);
		ck_assert_uint_le(pool.cached, BATONI_POOL_CACHE);
	}
	ck_assert_uint_eq(pool.cached, BATONI_POOL_CACHE);
	/* What others can have: all but the cached ones. */
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_nonnull(batoni_pool_take(&pool));
	ck_assert_ptr_null(batoni_pool_take(&pool));
	/* The driver has those, last in, first out. */
	ck_assert_ptr_eq(batoni_pool_take_driving(&pool),
	                 ops[BATONI_POOL_CACHE - 1]);
	for (uint32_t i = 1; i < BATONI_POOL_CACHE; i++)
		ck_assert_ptr_nonnull(batoni_pool_take_driving(&pool));
	ck_assert_ptr_null(batoni_pool_take_driving(&pool));
	close_pool(&pool);
}
END_TEST

START_TEST(stamps_are_kept_if_asked_for)
{
	struct batoni_pool pool = {0};

	ck_assert_int_eq(batoni_pool_init(&pool, 4, 0, true, device(), 0),
	                 BATON_OK);
	ck_assert_ptr_nonnull(pool.stamps);
	close_pool(&pool);
	open_pool(&pool, 4, 0);
	ck_assert_ptr_null(pool.stamps);
	close_pool(&pool);
}
END_TEST

START_TEST(pool_without_memory_leaves_nothing_behind)
{
	struct batoni_pool pool = {0};
	unsigned long n = 0;
	enum baton_status status;

	do {
		batoni_mem_fail_at(++n);
		status = batoni_pool_init(&pool, 8, 7, true, device(), 0);
		if (status != BATON_OK) {
			ck_assert_int_eq(status, BATON_ERR_NOMEM);
			ck_assert_int_eq(batoni_mem_blocks(), 0);
		}
	} while (status != BATON_OK);
	batoni_mem_fail_at(0);
	ck_assert_uint_eq(n, 6); /* five allocations */
	close_pool(&pool);
}
END_TEST

/* ---- threads ---- */

#define RECORDS 3u
#define ROUNDS 20000u

struct claimant {
	pthread_t thread;
	struct batoni_pool *pool;
	_Atomic uint32_t *owners;
	uint32_t got;
};

static void *
take_and_return(void *arg)
{
	struct claimant *claimant = arg;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct batoni_op *op = batoni_pool_take(claimant->pool);
		uint32_t slot;

		if (!op)
			continue;
		slot = batoni_pool_slot(claimant->pool, op);
		/* Nobody else has it. */
		if (atomic_fetch_add(&claimant->owners[slot], 1) != 0)
			return NULL;
		op->user_data = i;
		atomic_fetch_sub(&claimant->owners[slot], 1);
		batoni_pool_return(claimant->pool, op);
		claimant->got++;
	}
	return claimant;
}

/* With few records the same index is the head again and again: ABA. */
START_TEST(threads_that_take_and_return_never_share_a_slot)
{
	_Atomic uint32_t owners[RECORDS] = {0};
	struct claimant claimants[4];
	struct batoni_pool pool;
	uint32_t got = 0;
	void *result;

	open_pool(&pool, RECORDS, 0);
	for (int i = 0; i < 4; i++) {
		claimants[i] = (struct claimant){.pool = &pool, .owners = owners};
		ck_assert_int_eq(pthread_create(&claimants[i].thread, NULL,
		                                take_and_return, &claimants[i]),
		                 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(claimants[i].thread, &result);
		ck_assert_ptr_eq(result, &claimants[i]);
		got += claimants[i].got;
	}
	/* Every use took one generation, and all records are back. */
	for (uint32_t i = 0; i < RECORDS; i++)
		got -= generation_of(&pool.ops[i]) - 1;
	ck_assert_uint_eq(got, 0);
	for (uint32_t i = 0; i < RECORDS; i++)
		ck_assert_ptr_nonnull(batoni_pool_take(&pool));
	ck_assert_ptr_null(batoni_pool_take(&pool));
	close_pool(&pool);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		pool_gives_as_many_slots_as_it_has_and_no_more,
		each_use_has_a_generation_and_a_word_value_of_its_own,
		generation_0_is_left_out,
		cache_holds_a_few_and_the_rest_goes_back_to_all,
		stamps_are_kept_if_asked_for,
		pool_without_memory_leaves_nothing_behind,
		threads_that_take_and_return_never_share_a_slot,
	};

	return RUN_TESTS("pool", tests);
}
