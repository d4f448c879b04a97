/* SPDX-License-Identifier: BSD-3-Clause */
/* How long the engine's thread sleeps: by what its polls find and cost, no clock runs. */
#include "backoff.h"
#include "run_tests.h"

static struct batoni_backoff backoff;
static uint64_t clock_ns;

/* A sleep is over: poll, and return the next one. */
static uint64_t
poll_once(enum batoni_poll when, bool events, uint64_t worked_ns)
{
	struct batoni_polled polled = {.poll = when, .events = events,
	                               .worked_ns = worked_ns,
	                               .tick_ns = 900000};

	clock_ns += backoff.sleep_ns + worked_ns;
	polled.now_ns = clock_ns;
	return batoni_backoff_next(&backoff, &polled);
}

/* After so many polls that find nothing. */
static uint64_t
after(unsigned polls, enum batoni_poll when, uint64_t worked_ns)
{
	uint64_t sleep_ns = 0;

	while (polls-- > 0)
		sleep_ns = poll_once(when, false, worked_ns);
	return sleep_ns;
}

START_TEST(backoff_is_short_after_events_and_doubles_without)
{
	ck_assert_uint_eq(poll_once(BATONI_POLL_PENDING, true, 1000), 20000);
	ck_assert_uint_eq(poll_once(BATONI_POLL_PENDING, false, 1000), 40000);
	ck_assert_uint_eq(poll_once(BATONI_POLL_PENDING, false, 1000), 80000);
	ck_assert_uint_eq(poll_once(BATONI_POLL_PENDING, true, 1000), 20000);
}
END_TEST

START_TEST(first_backoff_is_short)
{
	ck_assert_uint_eq(poll_once(BATONI_POLL_PENDING, false, 1000), 20000);
}
END_TEST

START_TEST(longest_backoff_depends_on_when_to_poll_again)
{
	ck_assert_uint_eq(after(20, BATONI_POLL_PENDING, 1000), 900000);
	ck_assert_uint_eq(after(20, BATONI_POLL_WHEN_RUNG, 1000), 900000);
	ck_assert_uint_eq(after(20, BATONI_POLL_WATCH, 1000), 6000000);
	/* The first poll at what moves: no rate is known yet. */
	ck_assert_uint_eq(poll_once(BATONI_POLL_MOVING, false, 1000), 200000);
}
END_TEST

/* The link delivers as much as it can, and all of it is there when the thread polls: the
 * work of a poll grows with the sleep before it. */
START_TEST(backoff_grows_while_the_rate_stays)
{
	poll_once(BATONI_POLL_MOVING, true, 10000);
	for (int i = 0; i < 20; i++)
		poll_once(BATONI_POLL_MOVING, false, backoff.sleep_ns / 10);
	ck_assert_uint_eq(backoff.sleep_ns, 800000);
}
END_TEST

/* Each poll moves what one buffer holds, however long the sleep before it was. */
START_TEST(backoff_does_not_grow_where_bytes_wait_for_polls)
{
	uint64_t longest_ns = 0, sum_ns = 0;

	poll_once(BATONI_POLL_MOVING, true, 10000);
	after(10, BATONI_POLL_MOVING, 10000);
	for (int i = 0; i < 20; i++) {
		uint64_t sleep_ns = poll_once(BATONI_POLL_MOVING, false, 10000);

		sum_ns += sleep_ns;
		longest_ns = sleep_ns > longest_ns ? sleep_ns : longest_ns;
	}
	ck_assert_uint_le(longest_ns, 400000);
	ck_assert_uint_le(sum_ns / 20, 300000);
}
END_TEST

START_TEST(backoff_is_short_again_after_an_event_and_with_the_next_transfer)
{
	for (int i = 0; i < 20; i++)
		poll_once(BATONI_POLL_MOVING, false, backoff.sleep_ns / 10);
	ck_assert_uint_eq(poll_once(BATONI_POLL_MOVING, true, 1000), 20000);
	ck_assert_uint_eq(backoff.longest_ns, 200000);
	for (int i = 0; i < 20; i++)
		poll_once(BATONI_POLL_MOVING, false, backoff.sleep_ns / 10);
	poll_once(BATONI_POLL_PENDING, false, 1000);
	poll_once(BATONI_POLL_MOVING, false, 1000);
	ck_assert_uint_eq(backoff.longest_ns, 200000);
}
END_TEST

START_TEST(backoff_while_bytes_move_is_twice_as_long_as_the_poll)
{
	ck_assert_uint_eq(poll_once(BATONI_POLL_MOVING, true, 50000), 100000);
	/* No bytes move. */
	ck_assert_uint_eq(poll_once(BATONI_POLL_PENDING, true, 50000), 20000);
	/* It is no reason to poll later than a tick. */
	ck_assert_uint_eq(poll_once(BATONI_POLL_MOVING, true, 5000000), 900000);
}
END_TEST

static void
setup(void)
{
	backoff = (struct batoni_backoff){0};
	clock_ns = 1000000000;
}

int
main(void)
{
	const TTest *const tests[] = {
		backoff_is_short_after_events_and_doubles_without,
		first_backoff_is_short,
		longest_backoff_depends_on_when_to_poll_again,
		backoff_grows_while_the_rate_stays,
		backoff_does_not_grow_where_bytes_wait_for_polls,
		backoff_is_short_again_after_an_event_and_with_the_next_transfer,
		backoff_while_bytes_move_is_twice_as_long_as_the_poll,
	};

	return RUN_TESTS_WITH("backoff", tests, setup, NULL);
}
