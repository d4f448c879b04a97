/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the engine's thread naps: by what its looks find and cost, no clock runs. */
#include "pace.h"
#include "run_tests.h"

static struct batoni_pace pace;
static uint64_t clock_ns;

/* A nap is over: look, and return the next one. */
static uint64_t
look(enum batoni_look when, bool events, uint64_t worked_ns)
{
	struct batoni_looked looked = {.look = when, .events = events,
	                               .worked_ns = worked_ns,
	                               .tick_ns = 900000};

	clock_ns += pace.nap_ns + worked_ns;
	looked.now_ns = clock_ns;
	return batoni_pace_nap(&pace, &looked);
}

/* After so many looks that find nothing. */
static uint64_t
after(unsigned looks, enum batoni_look when, uint64_t worked_ns)
{
	uint64_t nap_ns = 0;

	while (looks-- > 0)
		nap_ns = look(when, false, worked_ns);
	return nap_ns;
}

START_TEST(naps_are_short_after_events_and_double_without)
{
	ck_assert_uint_eq(look(BATONI_LOOK_PENDING, true, 1000), 20000);
	ck_assert_uint_eq(look(BATONI_LOOK_PENDING, false, 1000), 40000);
	ck_assert_uint_eq(look(BATONI_LOOK_PENDING, false, 1000), 80000);
	ck_assert_uint_eq(look(BATONI_LOOK_PENDING, true, 1000), 20000);
}
END_TEST

START_TEST(first_nap_is_short)
{
	ck_assert_uint_eq(look(BATONI_LOOK_PENDING, false, 1000), 20000);
}
END_TEST

START_TEST(longest_nap_depends_on_when_to_look_again)
{
	ck_assert_uint_eq(after(20, BATONI_LOOK_PENDING, 1000), 900000);
	ck_assert_uint_eq(after(20, BATONI_LOOK_WHEN_RUNG, 1000), 900000);
	ck_assert_uint_eq(after(20, BATONI_LOOK_WATCH, 1000), 6000000);
	/* The first look at what moves: no rate is known yet. */
	ck_assert_uint_eq(look(BATONI_LOOK_MOVING, false, 1000), 200000);
}
END_TEST

/* The link delivers as much as it can, and all of it is there when the thread looks: the
 * work of a look grows with the nap before it. */
START_TEST(naps_grow_while_the_rate_stays)
{
	look(BATONI_LOOK_MOVING, true, 10000);
	for (int i = 0; i < 20; i++)
		look(BATONI_LOOK_MOVING, false, pace.nap_ns / 10);
	ck_assert_uint_eq(pace.nap_ns, 800000);
}
END_TEST

/* Each look moves what one buffer holds, however long the nap before it was. */
START_TEST(naps_do_not_grow_where_bytes_wait_for_looks)
{
	uint64_t longest_ns = 0, sum_ns = 0;

	look(BATONI_LOOK_MOVING, true, 10000);
	after(10, BATONI_LOOK_MOVING, 10000);
	for (int i = 0; i < 20; i++) {
		uint64_t nap_ns = look(BATONI_LOOK_MOVING, false, 10000);

		sum_ns += nap_ns;
		longest_ns = nap_ns > longest_ns ? nap_ns : longest_ns;
	}
	ck_assert_uint_le(longest_ns, 400000);
	ck_assert_uint_le(sum_ns / 20, 300000);
}
END_TEST

START_TEST(naps_are_short_again_after_an_event_and_with_the_next_transfer)
{
	for (int i = 0; i < 20; i++)
		look(BATONI_LOOK_MOVING, false, pace.nap_ns / 10);
	ck_assert_uint_eq(look(BATONI_LOOK_MOVING, true, 1000), 20000);
	ck_assert_uint_eq(pace.longest_ns, 200000);
	for (int i = 0; i < 20; i++)
		look(BATONI_LOOK_MOVING, false, pace.nap_ns / 10);
	look(BATONI_LOOK_PENDING, false, 1000);
	look(BATONI_LOOK_MOVING, false, 1000);
	ck_assert_uint_eq(pace.longest_ns, 200000);
}
END_TEST

START_TEST(nap_while_bytes_move_is_twice_as_long_as_the_look)
{
	ck_assert_uint_eq(look(BATONI_LOOK_MOVING, true, 50000), 100000);
	/* No bytes move. */
	ck_assert_uint_eq(look(BATONI_LOOK_PENDING, true, 50000), 20000);
	/* It is no reason to look later than a tick. */
	ck_assert_uint_eq(look(BATONI_LOOK_MOVING, true, 5000000), 900000);
}
END_TEST

static void
setup(void)
{
	pace = (struct batoni_pace){0};
	clock_ns = 1000000000;
}

int
main(void)
{
	const TTest *const tests[] = {
		naps_are_short_after_events_and_double_without,
		first_nap_is_short,
		longest_nap_depends_on_when_to_look_again,
		naps_grow_while_the_rate_stays,
		naps_do_not_grow_where_bytes_wait_for_looks,
		naps_are_short_again_after_an_event_and_with_the_next_transfer,
		nap_while_bytes_move_is_twice_as_long_as_the_look,
	};

	return RUN_TESTS_WITH("pace", tests, setup, NULL);
}
