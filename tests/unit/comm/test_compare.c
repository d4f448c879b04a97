/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks are told whose setups differ (runtime/comm/compare.c). */
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "creation.h"
#include "run_tests.h"

enum { SIZE = 3, CHANGED = 1 };

static struct batoni_comm_setup setup;
static struct batoni_proposal offers[SIZE];

static void
begin(void)
{
	setup = (struct batoni_comm_setup){
		.transport = BATON_TRANSPORT_LOCAL,
		.device_ops = &batoni_device_host_ops,
		.signals_max = 5,
	};
	for (int rank = 0; rank < SIZE; rank++)
		batoni_setup_values(&setup, offers[rank].values);
}

/* This rank has the setup as it is now. */
static void
change(int rank)
{
	batoni_setup_values(&setup, offers[rank].values);
}

static void
told(bool strict, const char *why)
{
	ck_assert_int_eq(batoni_proposals_compare(offers, SIZE, strict),
	                 BATON_ERR_INVALID);
	ck_assert_str_eq(baton_last_error(), why);
}

START_TEST(ranks_that_are_alike_are_told_nothing)
{
	begin();
	ck_assert_int_eq(batoni_proposals_compare(offers, SIZE, true), BATON_OK);
}
END_TEST

START_TEST(a_transport_is_told_by_its_name)
{
	begin();
	setup.transport = BATON_TRANSPORT_MPI;
	change(CHANGED);
	told(false, "options.transport is not the same on all ranks: "
	            "BATON_TRANSPORT_LOCAL on rank 0, BATON_TRANSPORT_MPI on "
	            "rank 1");
	for (int i = BATON_TRANSPORT_AUTO; i <= BATON_TRANSPORT_NEAR; i++) {
		setup.transport = (enum baton_transport)i;
		change(CHANGED);
		if (i == BATON_TRANSPORT_LOCAL)
			continue;
		ck_assert_int_eq(batoni_proposals_compare(offers, SIZE, false),
		                 BATON_ERR_INVALID);
		ck_assert_ptr_null(strpbrk(strstr(baton_last_error(), "ranks: "),
		                           "23456789"));
	}
}
END_TEST

START_TEST(a_way_of_progress_is_told_by_its_name_where_it_counts)
{
	begin();
	setup.progress = BATON_PROGRESS_CALLS;
	change(CHANGED);
	ck_assert_int_eq(batoni_proposals_compare(offers, SIZE, false), BATON_OK);
	told(true, "options.progress is not the same on all ranks: "
	           "BATON_PROGRESS_AUTO on rank 0, BATON_PROGRESS_CALLS on rank "
	           "1");
}
END_TEST

START_TEST(a_number_is_told_as_it_is)
{
	begin();
	setup.signals_max = 2;
	change(CHANGED);
	told(false, "options.signals_max is not the same on all ranks: 2 on rank "
	            "1, 5 on rank 0");
}
END_TEST

/* The values come from other ranks. */
START_TEST(a_value_without_a_name_is_told_as_a_number)
{
	const int64_t odd[] = {INT64_MIN, -1, 5, INT64_MAX};

	begin();
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		char text[24];

		snprintf(text, sizeof(text), "%lld on", (long long)odd[i]);
		/* The first one is the transport's. */
		offers[CHANGED].values[0] = odd[i];
		ck_assert_int_eq(batoni_proposals_compare(offers, SIZE, true),
		                 BATON_ERR_INVALID);
		ck_assert_ptr_nonnull(
			strstr(baton_last_error(), "options.transport"));
		ck_assert_ptr_nonnull(strstr(baton_last_error(), text));
	}
}
END_TEST

int
main(void)
{
	const TTest *tests[] = {
		ranks_that_are_alike_are_told_nothing,
		a_transport_is_told_by_its_name,
		a_way_of_progress_is_told_by_its_name_where_it_counts,
		a_number_is_told_as_it_is,
		a_value_without_a_name_is_told_as_a_number,
	};

	return RUN_TESTS("compare", tests);
}
