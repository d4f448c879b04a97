/* SPDX-License-Identifier: BSD-3-Clause */
#include "clock.h"
#include "run_tests.h"
#include "testing.h"

static uint64_t
seven(void)
{
	return 7;
}

START_TEST(injected_time_is_what_deadlines_see)
{
	batoni_clock_set(seven);
	ck_assert_uint_eq(batoni_now_ns(), 7);
	ck_assert_uint_eq(batoni_now_ns(), 7);
	batoni_clock_set(NULL);
	ck_assert_uint_gt(batoni_now_ns(), 7);
}
END_TEST

START_TEST(hosts_wait_by_the_real_clock)
{
	uint64_t before = batoni_real_ns();

	batoni_clock_set(seven);
	ck_assert_uint_ge(batoni_real_ns(), before);
	batoni_clock_set(NULL);
}
END_TEST

START_TEST(time_does_not_go_back)
{
	uint64_t before = batoni_now_ns();

	for (int i = 0; i < 1000; i++) {
		uint64_t now = batoni_now_ns();

		ck_assert_uint_ge(now, before);
		before = now;
	}
	ck_assert_uint_ge(batoni_real_ns(), before);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		injected_time_is_what_deadlines_see,
		hosts_wait_by_the_real_clock,
		time_does_not_go_back,
	};

	return RUN_TESTS("clock", tests);
}
