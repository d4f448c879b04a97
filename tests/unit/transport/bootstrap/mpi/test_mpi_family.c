/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process in which another MPI runs than the one that Baton was compiled with:
 * here, by a version text of our own in front of the library's.
 */
#include <stdio.h>
#include <string.h>

#include "baton_mpi.h"
#include "run_tests.h"

static const char *text;

int
MPI_Get_library_version(char *version, int *length)
{
	*length = sprintf(version, "%s", text);
	return MPI_SUCCESS;
}

static const char *
own(void)
{
	return BATON_MPI_FAMILY == BATON_MPI_FAMILY_MPICH ? "MPICH Version: 9"
	                                                  : "Open MPI v9, more";
}

static const char *
other(void)
{
	return BATON_MPI_FAMILY == BATON_MPI_FAMILY_MPICH ? "Open MPI v9, more"
	                                                  : "MPICH Version: 9";
}

START_TEST(another_mpi_in_the_process_is_refused_before_it_is_called)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;
	int initialized = 1;

	text = other();
	options.transport = BATON_TRANSPORT_MPI;
	ck_assert_int_eq(baton_comm_create(&options, &comm),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "in this process"));
	ck_assert_int_eq(baton_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq((baton_comm_create_mpi)(MPI_COMM_WORLD, NULL, &comm),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_null(comm);
	MPI_Initialized(&initialized);
	ck_assert_int_eq(initialized, 0);
}
END_TEST

START_TEST(a_program_of_another_mpi_is_told_which)
{
	int family = BATON_MPI_FAMILY == BATON_MPI_FAMILY_MPICH
	                     ? BATON_MPI_FAMILY_OPEN_MPI
	                     : BATON_MPI_FAMILY_MPICH;

	text = own();
	ck_assert_int_eq(baton_mpi_check(BATON_MPI_FAMILY, sizeof(MPI_Comm)),
	                 BATON_OK);
	ck_assert_int_eq(baton_mpi_check(BATON_MPI_FAMILY_OTHER,
	                                 sizeof(MPI_Comm)),
	                 BATON_OK);
	ck_assert_int_eq(baton_mpi_check(BATON_MPI_FAMILY_OTHER,
	                                 sizeof(MPI_Comm) + 1),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(baton_mpi_check(family, sizeof(MPI_Comm)),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "MPICH"));
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "Open MPI"));
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		another_mpi_in_the_process_is_refused_before_it_is_called,
		a_program_of_another_mpi_is_told_which,
	};

	return RUN_TESTS("mpi_family", tests);
}
