/* SPDX-License-Identifier: BSD-3-Clause */
/* Status codes, datatypes and the version: the numbers are part of the binary
 * interface, so they are written out here a second time. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "baton.h"
#include "log.h"
#include "run_tests.h"

static const struct {
	const char *name;
	enum baton_status status;
	int number;
} statuses[] = {
	{"BATON_OK", BATON_OK, 0},
	{"BATON_PENDING", BATON_PENDING, 1},
	{"BATON_ERR_INVALID", BATON_ERR_INVALID, -1},
	{"BATON_ERR_UNSUPPORTED", BATON_ERR_UNSUPPORTED, -2},
	{"BATON_ERR_AGAIN", BATON_ERR_AGAIN, -3},
	{"BATON_ERR_NOMEM", BATON_ERR_NOMEM, -4},
	{"BATON_ERR_STALE", BATON_ERR_STALE, -5},
	{"BATON_ERR_BUSY", BATON_ERR_BUSY, -6},
	{"BATON_ERR_TRUNCATED", BATON_ERR_TRUNCATED, -10},
	{"BATON_ERR_MISMATCH", BATON_ERR_MISMATCH, -11},
	{"BATON_ERR_TIMEOUT", BATON_ERR_TIMEOUT, -12},
	{"BATON_ERR_CANCELED", BATON_ERR_CANCELED, -13},
	{"BATON_ERR_ABORTED", BATON_ERR_ABORTED, -14},
	{"BATON_ERR_PEER", BATON_ERR_PEER, -15},
	{"BATON_ERR_CUDA", BATON_ERR_CUDA, -20},
	{"BATON_ERR_NCCL", BATON_ERR_NCCL, -21},
	{"BATON_ERR_MPI", BATON_ERR_MPI, -22},
	{"BATON_ERR_SYSTEM", BATON_ERR_SYSTEM, -23},
};

#define STATUSES (sizeof(statuses) / sizeof(statuses[0]))

START_TEST(every_status_has_its_number_name_and_a_text_of_its_own)
{
	for (size_t i = 0; i < STATUSES; i++) {
		const char *text = baton_status_text(statuses[i].status);

		ck_assert_int_eq((int)statuses[i].status, statuses[i].number);
		ck_assert_str_eq(baton_status_name(statuses[i].status),
		                 statuses[i].name);
		ck_assert_uint_gt(strlen(text), 0);
		ck_assert_str_ne(text, "unknown status");
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(text,
			                 baton_status_text(statuses[k].status));
	}
}
END_TEST

START_TEST(no_status_is_missing_from_this_table)
{
	size_t known = 0;

	for (int number = -1000; number <= 1000; number++) {
		if (strcmp(baton_status_name((enum baton_status)number),
		           "unknown status") != 0)
			known++;
	}
	ck_assert_uint_eq(known, STATUSES);
}
END_TEST

START_TEST(a_number_that_is_no_status_is_unknown)
{
	static const int numbers[] = {2, -7, -9, -16, -24, 99};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		enum baton_status status = (enum baton_status)numbers[i];

		ck_assert_str_eq(baton_status_name(status), "unknown status");
		ck_assert_str_eq(baton_status_text(status), "unknown status");
	}
}
END_TEST

/* What another rank tells may be any number. */
START_TEST(an_error_that_is_told_is_one_that_there_is)
{
	static const int64_t others[] = {0, 1, 2, -7, -24, 99, INT64_MIN,
	                                 INT64_MAX, ((int64_t)1 << 32) - 1};

	for (size_t i = 0; i < STATUSES; i++) {
		if (statuses[i].number < 0)
			ck_assert_int_eq(batoni_error_told(statuses[i].number),
			                 statuses[i].status);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_int_eq(batoni_error_told(others[i]), BATON_ERR_PEER);
}
END_TEST

START_TEST(datatypes_have_their_sizes)
{
	static const size_t sizes[] = {
		[BATON_INT8] = 1,       [BATON_UINT8] = 1,
		[BATON_INT16] = 2,      [BATON_UINT16] = 2,
		[BATON_INT32] = 4,      [BATON_UINT32] = 4,
		[BATON_INT64] = 8,      [BATON_UINT64] = 8,
		[BATON_FLOAT16] = 2,    [BATON_BFLOAT16] = 2,
		[BATON_FLOAT32] = 4,    [BATON_FLOAT64] = 8,
		[BATON_FLOAT8E4M3] = 1, [BATON_FLOAT8E5M2] = 1,
		[BATON_BOOL] = 1,
	};

	ck_assert_int_eq(BATON_DATATYPE_COUNT, 15);
	ck_assert_uint_eq(sizeof(sizes) / sizeof(sizes[0]),
	                  BATON_DATATYPE_COUNT);
	for (int type = 0; type < BATON_DATATYPE_COUNT; type++)
		ck_assert_uint_eq(
			baton_datatype_size((enum baton_datatype)type),
			sizes[type]);
}
END_TEST

START_TEST(what_is_no_datatype_has_size_0)
{
	ck_assert_uint_eq(baton_datatype_size(BATON_DATATYPE_COUNT), 0);
	ck_assert_uint_eq(baton_datatype_size((enum baton_datatype)-1), 0);
	ck_assert_uint_eq(baton_datatype_size((enum baton_datatype)1000), 0);
}
END_TEST

START_TEST(version_is_that_of_the_header)
{
	char want[32];

	snprintf(want, sizeof(want), "%d.%d.%d", BATON_VERSION_MAJOR,
	         BATON_VERSION_MINOR, BATON_VERSION_PATCH);
	ck_assert_str_eq(baton_version(), want);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		every_status_has_its_number_name_and_a_text_of_its_own,
		no_status_is_missing_from_this_table,
		a_number_that_is_no_status_is_unknown,
		an_error_that_is_told_is_one_that_there_is,
		datatypes_have_their_sizes,
		what_is_no_datatype_has_size_0,
		version_is_that_of_the_header,
	};

	return RUN_TESTS("status", tests);
}
