/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading the CUDA driver.  Each test is a process of its own (Check's fork mode), since
 * the driver is loaded once. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_api.h"
#include "loading.h"
#include "run_tests.h"

static const struct batoni_cuda_api *
load(const char *library)
{
	const struct batoni_cuda_api *api = NULL;

	setenv("BATON_CUDA_LIBRARY", library, 1);
	ck_assert_msg(batoni_cuda_load(&api) == BATON_OK, "%s",
	              baton_last_error());
	return api;
}

static enum baton_status
load_any(const void **api_p)
{
	const struct batoni_cuda_api *api;
	enum baton_status status = batoni_cuda_load(&api);

	if (status == BATON_OK)
		*api_p = api;
	return status;
}

static const char *
refusal(const char *library)
{
	const char *sentence;

	if (library)
		setenv("BATON_CUDA_LIBRARY", library, 1);
	sentence = loading_refused(load_any);
	ck_assert_ptr_null(batoni_cuda_loaded());
	return sentence;
}

START_TEST(file_that_is_missing_is_named)
{
	const char *sentence = refusal("/nowhere/libcuda.so.1");

	assert_says(sentence, "/nowhere/libcuda.so.1: ");
	assert_says(sentence, "BATON_CUDA_LIBRARY names");
}
END_TEST

START_TEST(machine_without_the_driver_says_what_to_install)
{
	const char *sentence;

	unsetenv("BATON_CUDA_LIBRARY");
	/* A machine that has it may have a GPU or not. */
	if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
		return;
	sentence = refusal(NULL);
	assert_says(sentence, "libcuda.so.1: ");
	assert_says(sentence, "install NVIDIA's driver");
	assert_says(sentence, "BATON_CUDA_LIBRARY");
}
END_TEST

START_TEST(empty_name_is_the_default)
{
	const struct batoni_cuda_api *api;

	setenv("BATON_CUDA_LIBRARY", "", 1);
	if (batoni_cuda_load(&api) != BATON_OK)
		assert_says(baton_last_error(), "libcuda.so.1");
}
END_TEST

START_TEST(old_driver_names_what_it_lacks)
{
	const char *sentence = refusal(DRIVER_OLD);

	assert_says(sentence, DRIVER_OLD ", of CUDA 11.8,");
	assert_says(sentence, "has no cuStreamGetId;");
	assert_says(sentence, "CUDA 12.0 or later");
}
END_TEST

START_TEST(library_that_is_no_driver_is_refused)
{
	assert_says(refusal("libm.so.6"), "libm.so.6 has no cuInit;");
}
END_TEST

START_TEST(no_device_says_what_to_look_at)
{
	const char *sentence = refusal(DRIVER_NO_DEVICE);

	assert_says(sentence, "cuInit: CUDA_ERROR_NO_DEVICE (100): "
	                      "nothing is plugged in;");
	assert_says(sentence, "nvidia-smi");
	assert_says(sentence, "CUDA_VISIBLE_DEVICES");
}
END_TEST

START_TEST(error_without_a_name_has_its_number)
{
	assert_says(refusal(DRIVER_SICK), "cuInit: CUDA error 12345");
}
END_TEST

/* The function of that name in the library, as what the field of the table should be. */
static void
assert_function(const char *library, const char *name, const void *field)
{
	void *address = dlsym(dlopen(library, RTLD_NOW), name);

	ck_assert_ptr_nonnull(address);
	ck_assert_msg(memcmp(&address, field, sizeof(address)) == 0, "%s",
	              name);
}

START_TEST(functions_are_looked_up_by_name_and_version)
{
	const struct batoni_cuda_api *api = load(DRIVER_GOOD);
	void *wrong = dlsym(dlopen(DRIVER_GOOD, RTLD_NOW),
	                    "small_driver_wrong");

	ck_assert_ptr_nonnull(wrong);
#define NOT_WRONG(name, symbol, base, version, parameters)                    \
	ck_assert_msg(memcmp(&api->name, &wrong, sizeof(wrong)) != 0, #name);
	BATONI_CUDA_FUNCTIONS(NOT_WRONG)
	assert_function(DRIVER_GOOD, "small_driver_init", &api->init);
	assert_function(DRIVER_GOOD, "small_driver_version",
	                &api->driver_version);
	assert_function(DRIVER_GOOD, "small_driver_name", &api->error_name);
	assert_function(DRIVER_GOOD, "small_driver_text", &api->error_text);
	assert_function(DRIVER_GOOD, "small_driver_nothing", &api->copy);
}
END_TEST

START_TEST(functions_are_the_exported_ones_where_there_is_no_lookup)
{
	const struct batoni_cuda_api *api = load(DRIVER_NO_LOOKUP);

#define IS_EXPORTED(name, symbol, base, version, parameters)                  \
	assert_function(DRIVER_NO_LOOKUP, #symbol, &api->name);
	BATONI_CUDA_FUNCTIONS(IS_EXPORTED)
}
END_TEST

START_TEST(a_driver_without_an_optional_function_is_a_driver)
{
	const struct batoni_cuda_api *api = load(DRIVER_GOOD);

	/* CUDA 12.2; what it exports under these names is not asked for. */
	ck_assert(!api->copies && !api->copies_first);
}
END_TEST

/* Asked for the second form, it would give the first. */
START_TEST(a_driver_of_cuda_12_8_has_the_first_form)
{
	const struct batoni_cuda_api *api = load(DRIVER_12_8);

	ck_assert(!api->copies);
	assert_function(DRIVER_12_8, "small_driver_copies_first",
	                &api->copies_first);
}
END_TEST

START_TEST(a_driver_of_cuda_13_0_has_both_forms)
{
	const struct batoni_cuda_api *api = load(DRIVER_13_0);

	assert_function(DRIVER_13_0, "small_driver_copies", &api->copies);
	assert_function(DRIVER_13_0, "small_driver_copies_first",
	                &api->copies_first);
}
END_TEST

START_TEST(simulated_driver_is_a_driver)
{
	const struct batoni_cuda_api *api = load(CUDASIM_PATH);
	int count = 0;

	ck_assert_uint_eq(api->device_count(&count), BATONI_CU_SUCCESS);
	ck_assert_int_gt(count, 0);
}
END_TEST

START_TEST(what_shares_memory_is_there_or_is_not)
{
	const struct batoni_cuda_api *api;

	setenv("CUDASIM_LACKS", "cuMemCreate,cuIpcOpenMemHandle_v2", 1);
	api = load(CUDASIM_PATH);
	ck_assert(!api->vm_create && !api->ipc_open);
	ck_assert(api->vm_release && api->ipc_handle && api->host_register);
}
END_TEST

START_TEST(threads_that_load_at_once_initialise_once)
{
	atomic_int *inits;

	setenv("BATON_CUDA_LIBRARY", DRIVER_GOOD, 1);
	ck_assert_ptr_null(batoni_cuda_loaded());
	ck_assert_ptr_eq(loading_by_threads(load_any), batoni_cuda_loaded());
	inits = dlsym(dlopen(DRIVER_GOOD, RTLD_NOW), "small_driver_inits");
	ck_assert_int_eq(atomic_load(inits), 1);
}
END_TEST

START_TEST(thread_that_is_cancelled_has_loaded)
{
	const void *api;

	setenv("BATON_CUDA_LIBRARY", DRIVER_GOOD, 1);
	api = loading_cancelled(load_any);
	ck_assert_ptr_nonnull(api);
	ck_assert_ptr_eq(api, batoni_cuda_loaded());
}
END_TEST

START_TEST(description_is_cut_to_its_size)
{
	const struct batoni_cuda_api *api = load(DRIVER_GOOD);
	char text[24];

	batoni_cuda_describe(api, BATONI_CU_NO_DEVICE, text, sizeof(text));
	ck_assert_str_eq(text, "CUDA_ERROR_NO_DEVICE (1");
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		file_that_is_missing_is_named,
		machine_without_the_driver_says_what_to_install,
		empty_name_is_the_default,
		old_driver_names_what_it_lacks,
		library_that_is_no_driver_is_refused,
		no_device_says_what_to_look_at,
		error_without_a_name_has_its_number,
		functions_are_looked_up_by_name_and_version,
		functions_are_the_exported_ones_where_there_is_no_lookup,
		a_driver_without_an_optional_function_is_a_driver,
		a_driver_of_cuda_12_8_has_the_first_form,
		a_driver_of_cuda_13_0_has_both_forms,
		simulated_driver_is_a_driver,
		what_shares_memory_is_there_or_is_not,
		threads_that_load_at_once_initialise_once,
		thread_that_is_cancelled_has_loaded,
		description_is_cut_to_its_size,
	};

	return RUN_TESTS("cuda_api", tests);
}
