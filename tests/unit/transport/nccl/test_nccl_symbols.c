/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVIDIA's real libraries, without a GPU: each is taken, has its version, and every
 * function that the version should have.  LIBRARY is one of them; tests/fetch_nccl brings
 * more.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_api.h"
#include "run_tests.h"

/* Asked by the leak sanitizer.  What leaks here is NCCL's: the job of a group that fails, and
 * what its threads have begun when the process ends.  unit.nccl_api looks for leaks of the
 * loader. */
int __lsan_is_turned_off(void);

int
__lsan_is_turned_off(void)
{
	return 1;
}

static const struct batoni_nccl_api *api;

static void
setup(void)
{
	setenv("BATON_NCCL_LIBRARY", LIBRARY, 1);
	ck_assert_msg(batoni_nccl_load(&api) == BATON_OK, "%s",
	              baton_last_error());
}

START_TEST(library_is_the_one_that_was_named)
{
	ck_assert_str_eq(api->library, LIBRARY);
#ifdef VERSION
	char text[32];

	batoni_nccl_version_text(api->version, text, sizeof(text));
	ck_assert_str_eq(text, VERSION);
#endif
}
END_TEST

START_TEST(every_function_of_the_version_is_there)
{
	void *library = dlopen(LIBRARY, RTLD_NOW);

	ck_assert_ptr_nonnull(library);
#define IS_THERE(name, symbol, since, result, parameters)                     \
	ck_assert_msg((dlsym(library, #symbol) != NULL) ==                    \
	                      (api->version >= (since)),                      \
	              "%s in %d", #symbol, api->version);                     \
	ck_assert_msg((api->name != NULL) == (api->version >= (since)),       \
	              "%s in %d", #symbol, api->version);
	BATONI_NCCL_FUNCTIONS(IS_THERE)
	BATONI_NCCL_OPTIONAL(IS_THERE)
}
END_TEST

START_TEST(results_are_described)
{
	char text[200];

	batoni_nccl_describe(api, NULL, BATONI_NCCL_INVALID_ARGUMENT, text,
	                     sizeof(text));
	ck_assert_msg(strncmp(text, "invalid argument", 16) == 0 &&
	                      strstr(text, " (NCCL result 4)"),
	              "%s", text);
}
END_TEST

START_TEST(unique_ids_need_no_gpu)
{
	ncclUniqueId one, two;

	/* The interface, where there is no network. */
	setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	ck_assert_uint_eq(api->get_unique_id(&one), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->get_unique_id(&two), BATONI_NCCL_SUCCESS);
	ck_assert_int_ne(memcmp(&one, &two, sizeof(one)), 0);
}
END_TEST

/* tests/ncclsim/test_calls.c says the same of the simulator. */
START_TEST(calls_without_a_communicator)
{
	ncclResult_t state;

	ck_assert_uint_eq(api->comm_finalize(NULL), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->comm_destroy(NULL), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->comm_abort(NULL), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->comm_error(NULL, &state),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(api->send(NULL, 1, BATONI_NCCL_INT8, 0, NULL, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(api->group_start(), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->recv(NULL, 1, BATONI_NCCL_INT8, 0, NULL, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(api->group_end(), BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(api->group_start(), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->group_end(), BATONI_NCCL_SUCCESS);
	ck_assert_uint_eq(api->group_end(), BATONI_NCCL_INVALID_USAGE);
	ck_assert_str_eq(api->error_text(BATONI_NCCL_TIMEOUT),
	                 api->version < 23000 ? "unknown result code"
	                                      : "timeout");
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		library_is_the_one_that_was_named,
		every_function_of_the_version_is_there,
		results_are_described,
		unique_ids_need_no_gpu,
		calls_without_a_communicator,
	};

	return RUN_TESTS_WITH("nccl_symbols", tests, setup, NULL);
}
