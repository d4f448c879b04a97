/* SPDX-License-Identifier: BSD-3-Clause */
/* What baton_library tells, with the CUDA driver that the environment names, and NCCL's. */
#include <string.h>

#include <baton.h>

#include "run_tests.h"

/* The library of that name; there is one. */
static struct baton_library_info
library_named(const char *name)
{
	struct baton_library_info info = {.size = sizeof(info)};
	size_t i = 0;

	while (baton_library(i, &info) == BATON_OK &&
	       strcmp(info.name, name) != 0)
		i++;
	ck_assert_str_eq(info.name, name);
	return info;
}

START_TEST(libraries_are_told_once_each_and_no_text_is_missing)
{
	struct baton_library_info info = {.size = sizeof(info)};
	const char *names[16];
	size_t n = 0;

	for (; baton_library(n, &info) == BATON_OK; n++) {
		ck_assert(n < 16 && info.name && *info.name && info.built &&
		          info.version && info.path && info.why_not);
		/* One that can be used has a version, another one a sentence. */
		ck_assert_msg(*info.why_not || *info.version, "%s", info.name);
		ck_assert_msg(*info.built || *info.why_not, "%s", info.name);
		for (size_t i = 0; i < n; i++)
			ck_assert_str_ne(names[i], info.name);
		names[n] = info.name;
	}
	ck_assert_uint_ge(n, 5);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "there are 5 libraries"));
	ck_assert_int_eq(baton_library(0, NULL), BATON_ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "info_p is NULL"));
}
END_TEST

START_TEST(baton_tells_its_version_and_file)
{
	struct baton_library_info info = library_named("Baton");

	ck_assert_str_eq(info.version, baton_version());
	ck_assert_ptr_nonnull(strstr(info.path, "libraries"));
	ck_assert_str_eq(info.why_not, "");
}
END_TEST

START_TEST(mpi_tells_its_version_before_it_is_started)
{
	struct baton_library_info info = library_named("MPI");

#ifdef BATONI_WITH_MPI
	ck_assert_str_eq(info.why_not, "");
	ck_assert_ptr_nonnull(strstr(info.built, "headers of"));
	ck_assert_ptr_nonnull(strstr(info.path, "libmpi"));
#else
	ck_assert_ptr_nonnull(strstr(info.why_not, "left it out"));
	ck_assert_str_eq(info.built, "");
	ck_assert_str_eq(info.version, "");
#endif
}
END_TEST

START_TEST(cuda_and_nccl_that_the_environment_names_are_told)
{
	struct baton_library_info cuda = library_named("CUDA driver"), nccl = library_named("NCCL");

	ck_assert_str_eq(cuda.why_not, "");
	ck_assert_ptr_nonnull(strstr(cuda.path, "cudasim"));
	ck_assert(cuda.version[0] == '1' && strchr(cuda.version, '.'));
	ck_assert_ptr_nonnull(strstr(nccl.why_not, "/nowhere/libnccl.so"));
	ck_assert_str_eq(nccl.version, "");
	ck_assert_str_eq(nccl.path, "");
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		libraries_are_told_once_each_and_no_text_is_missing,
		baton_tells_its_version_and_file,
		mpi_tells_its_version_before_it_is_started,
		cuda_and_nccl_that_the_environment_names_are_told,
	};

	return RUN_TESTS("libraries", tests);
}
