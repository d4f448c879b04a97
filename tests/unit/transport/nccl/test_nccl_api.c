/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading NCCL.  Each test is a process of its own (Check's fork mode), since NCCL is
 * loaded once. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captured.h"
#include "loading.h"
#include "log.h"
#include "nccl_api.h"
#include "run_tests.h"

static const struct batoni_nccl_api *
load(const char *library)
{
	const struct batoni_nccl_api *api = NULL;

	if (library)
		setenv("BATON_NCCL_LIBRARY", library, 1);
	else
		unsetenv("BATON_NCCL_LIBRARY");
	ck_assert_msg(batoni_nccl_load(&api) == BATON_OK, "%s",
	              baton_last_error());
	return api;
}

static enum baton_status
load_any(const void **api_p)
{
	const struct batoni_nccl_api *api;
	enum baton_status status = batoni_nccl_load(&api);

	if (status == BATON_OK)
		*api_p = api;
	return status;
}

static const char *
refusal(const char *library)
{
	const char *sentence, *why;

	setenv("BATON_NCCL_LIBRARY", library, 1);
	sentence = loading_refused(load_any);
	batoni_refuse(BATON_ERR_INVALID, "another");
	ck_assert_ptr_null(batoni_nccl_try(&why));
	ck_assert_str_eq(why, sentence);
	ck_assert_str_eq(baton_last_error(), "another");
	return sentence;
}

START_TEST(file_that_is_missing_is_named)
{
	const char *sentence = refusal("/nowhere/libnccl.so.2");

	assert_says(sentence, "/nowhere/libnccl.so.2: ");
	assert_says(sentence, "BATON_NCCL_LIBRARY names");
}
END_TEST

START_TEST(library_that_is_no_nccl_is_refused)
{
	assert_says(refusal("libm.so.6"), "libm.so.6 has no ncclGetVersion;");
}
END_TEST

START_TEST(old_library_has_its_version_in_the_refusal)
{
	const char *sentence = refusal(NCCL_OLD);

	/* Not what it lacks: it is old. */
	assert_says(sentence, NCCL_OLD " is NCCL 2.27.3; ");
	assert_says(sentence, "needs NCCL 2.28 or later");
}
END_TEST

START_TEST(library_of_another_series_is_refused)
{
	assert_says(refusal(NCCL_THREE), " is NCCL 3.0.1; ");
}
END_TEST

START_TEST(library_that_lacks_a_function_names_it)
{
	assert_says(refusal(NCCL_NO_SEND), NCCL_NO_SEND " has no ncclSend;");
}
END_TEST

START_TEST(library_that_cannot_say_its_version_is_refused)
{
	assert_says(refusal(NCCL_SICK), "ncclGetVersion of " NCCL_SICK
	                                " returned 2;");
}
END_TEST

START_TEST(machine_without_nccl_says_what_to_do)
{
	const struct batoni_nccl_api *api = NULL;

	unsetenv("BATON_NCCL_LIBRARY");
	if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL))
		return;
	ck_assert_int_eq(batoni_nccl_load(&api), BATON_ERR_UNSUPPORTED);
	assert_says(baton_last_error(), "libnccl.so.2: ");
	assert_says(baton_last_error(), "BATON_NCCL_LIBRARY");
}
END_TEST

START_TEST(named_library_is_taken)
{
	const struct batoni_nccl_api *api = load(NCCL_GOOD);
	void *library = dlopen(NCCL_GOOD, RTLD_NOW);

	ck_assert_int_eq(api->version, 23007);
	ck_assert_str_eq(api->library, NCCL_GOOD);
#define IS_EXPORTED(name, symbol, since, result, parameters)                  \
	{                                                                     \
		void *address = dlsym(library, #symbol);                      \
		ck_assert_ptr_nonnull(address);                               \
		ck_assert_msg(memcmp(&address, &api->name,                    \
		                     sizeof(address)) == 0, #symbol);         \
	}
	BATONI_NCCL_FUNCTIONS(IS_EXPORTED)
	BATONI_NCCL_OPTIONAL(IS_EXPORTED)
}
END_TEST

START_TEST(optional_functions_are_null_where_they_are_not)
{
	const struct batoni_nccl_api *api = load(NCCL_FIRST);

	ck_assert_int_eq(api->version, 22803);
#define IS_NULL(name, symbol, since, result, parameters)                      \
	ck_assert_msg(!api->name, #symbol);
	BATONI_NCCL_OPTIONAL(IS_NULL)
}
END_TEST

START_TEST(library_that_the_program_has_loaded_is_the_one)
{
	/* Its soname is libnccl.so.2; its file has another name. */
	ck_assert_ptr_nonnull(dlopen(NCCL_FIRST, RTLD_NOW | RTLD_LOCAL));
	ck_assert_str_eq(load(NULL)->library, NCCL_FIRST);
}
END_TEST

START_TEST(nccl_that_is_part_of_the_program_is_the_one)
{
	ck_assert_ptr_nonnull(dlopen(NCCL_GOOD, RTLD_NOW | RTLD_GLOBAL));
	ck_assert_str_eq(load(NULL)->library, NCCL_GOOD);
}
END_TEST

static void
load_second(void)
{
	dlopen(NCCL_FIRST, RTLD_NOW | RTLD_LOCAL);
	load(NCCL_GOOD);
}

static void
load_first(void)
{
	dlopen(NCCL_FIRST, RTLD_NOW | RTLD_LOCAL);
	load(NCCL_FIRST);
}

START_TEST(second_nccl_of_a_process_is_warned_of)
{
	assert_says(capture(NULL, load_second).text,
	            "beside the NCCL that the program has loaded");
	ck_assert_str_eq(capture(NULL, load_first).text, "");
}
END_TEST

START_TEST(threads_that_load_at_once_get_the_same)
{
	setenv("BATON_NCCL_LIBRARY", NCCL_GOOD, 1);
	loading_by_threads(load_any);
}
END_TEST

START_TEST(configuration_has_the_layout_of_the_library)
{
	/* The structure of each version is as long as its members. */
	static const struct {
		int version;
		size_t size;
		unsigned said;
	} cases[] = {
		{22803, 80, 22803},  {22809, 80, 22809},  {22900, 88, 22900},
		{22999, 88, 22999},  {23007, 96, 23007},  {23101, 112, 23101},
		{23203, 120, 23203}, {24001, 120, 23299},
	};
	struct batoni_nccl_config config;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct batoni_nccl_api api = {.version =
		                                            cases[i].version};

		batoni_nccl_config_init(&api, &config);
		ck_assert_uint_eq(config.size, cases[i].size);
		ck_assert_uint_eq(config.version, cases[i].said);
		ck_assert_uint_eq(config.magic, 0xcafebeef);
		ck_assert(BATONI_NCCL_CONFIG_HAS(&config, blocking));
		ck_assert(BATONI_NCCL_CONFIG_HAS(&config, numRmaCtx) ==
		          (cases[i].version >= 22900));
		ck_assert(BATONI_NCCL_CONFIG_HAS(&config, rmaEagerInit) ==
		          (cases[i].version >= 23100));
#define IS_UNSET(type, member, unset) ck_assert(config.member == (unset));
		BATONI_NCCL_CONFIG_2_28(IS_UNSET)
		BATONI_NCCL_CONFIG_2_29(IS_UNSET)
		BATONI_NCCL_CONFIG_2_30(IS_UNSET)
		BATONI_NCCL_CONFIG_2_31(IS_UNSET)
		BATONI_NCCL_CONFIG_2_32(IS_UNSET)
	}
}
END_TEST

START_TEST(versions_are_written_as_people_write_them)
{
	char text[16];

	batoni_nccl_version_text(22809, text, sizeof(text));
	ck_assert_str_eq(text, "2.28.9");
	batoni_nccl_version_text(2708, text, sizeof(text));
	ck_assert_str_eq(text, "2.7.8");
}
END_TEST

START_TEST(results_are_described_and_cut_to_their_size)
{
	const struct batoni_nccl_api *api = load(NCCL_GOOD);
	ncclComm_t comm;
	void *some = &api;
	char text[100];

	memcpy(&comm, &some, sizeof(comm));
	batoni_nccl_describe(api, NULL, BATONI_NCCL_INVALID_USAGE, text,
	                     sizeof(text));
	ck_assert_str_eq(text, "a usage of ours (NCCL result 5)");
	batoni_nccl_describe(api, comm, BATONI_NCCL_INVALID_USAGE, text,
	                     sizeof(text));
	ck_assert_str_eq(text, "a usage of ours (NCCL result 5); NCCL says: "
	                       "it was misused");
	batoni_nccl_describe(api, NULL, 99, text, sizeof(text));
	ck_assert_str_eq(text, "unknown result (NCCL result 99)");
	batoni_nccl_describe(api, NULL, 99, text, 8);
	ck_assert_str_eq(text, "unknown");
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		file_that_is_missing_is_named,
		library_that_is_no_nccl_is_refused,
		old_library_has_its_version_in_the_refusal,
		library_of_another_series_is_refused,
		library_that_lacks_a_function_names_it,
		library_that_cannot_say_its_version_is_refused,
		machine_without_nccl_says_what_to_do,
		named_library_is_taken,
		optional_functions_are_null_where_they_are_not,
		library_that_the_program_has_loaded_is_the_one,
		nccl_that_is_part_of_the_program_is_the_one,
		second_nccl_of_a_process_is_warned_of,
		threads_that_load_at_once_get_the_same,
		configuration_has_the_layout_of_the_library,
		versions_are_written_as_people_write_them,
		results_are_described_and_cut_to_their_size,
	};

	return RUN_TESTS("nccl_api", tests);
}
