/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVIDIA's real driver library, without a GPU: it has every function, at the version that
 * is asked for, and cuInit finds no device.  tests/fetch_cuda brings it.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_api.h"
#include "log.h"
#include "run_tests.h"

#define LOOKUP(name, symbol, base, version, parameters)                       \
	typedef CUresult (*lookup_fn) parameters;                             \
	static const char lookup_symbol[] = #symbol;
BATONI_CUDA_LOOKUP(LOOKUP)

static const struct function {
	const char *symbol, *base;
	int version;
} functions[] = {
#define FUNCTION(name, symbol, base, version, parameters)                     \
	{#symbol, base, version},
	BATONI_CUDA_FUNCTIONS(FUNCTION)
};

#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static const struct function optional[] = {
	BATONI_CUDA_OPTIONAL(FUNCTION)
};

#define OPTIONAL (sizeof(optional) / sizeof(optional[0]))

static void *driver;
static lookup_fn lookup;

static void
setup(void)
{
	void *address;

	driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(driver != NULL, "%s", dlerror());
	address = dlsym(driver, lookup_symbol);
	ck_assert_ptr_nonnull(address);
	memcpy(&lookup, &address, sizeof(lookup));
}

static void *
look_up(const char *base, int version)
{
	CUdriverProcAddressQueryResult found = 0;
	void *address = NULL;

	ck_assert_uint_eq(lookup(base, &address, version, 0, &found),
	                  BATONI_CU_SUCCESS);
	ck_assert((found == 0) == (address != NULL));
	return address;
}

START_TEST(every_function_is_exported)
{
	for (size_t i = 0; i < FUNCTIONS; i++)
		ck_assert_msg(dlsym(driver, functions[i].symbol) != NULL, "%s",
		              functions[i].symbol);
}
END_TEST

START_TEST(every_function_is_there_at_its_version)
{
	for (size_t i = 0; i < FUNCTIONS; i++) {
		const struct function *f = &functions[i];

		ck_assert_msg(look_up(f->base, f->version) ==
		                      dlsym(driver, f->symbol),
		              "%s at %d", f->base, f->version);
	}
}
END_TEST

START_TEST(no_function_is_there_before_its_version)
{
	for (size_t i = 0; i < FUNCTIONS; i++) {
		const struct function *f = &functions[i];

		ck_assert_msg(look_up(f->base, f->version - 10) !=
		                      dlsym(driver, f->symbol),
		              "%s before %d", f->base, f->version);
	}
	ck_assert_ptr_null(look_up("cuStreamGetNoId", 12000));
}
END_TEST

static int
version_of_driver(void)
{
	CUresult (*ask)(int *);
	void *address = dlsym(driver, "cuDriverGetVersion");
	int version = 0;

	ck_assert_ptr_nonnull(address);
	memcpy(&ask, &address, sizeof(ask));
	ck_assert_uint_eq(ask(&version), BATONI_CU_SUCCESS);
	return version;
}

/* What a driver of their version has, an older one does not name at all, or names in another
 * form. */
START_TEST(optional_functions_are_there_from_their_version_on)
{
	for (size_t i = 0; i < OPTIONAL; i++) {
		const struct function *f = &optional[i];
		void *exported = dlsym(driver, f->symbol);

		ck_assert_msg((version_of_driver() >= f->version) ==
		                      (exported != NULL),
		              "%s in a driver of %d", f->symbol,
		              version_of_driver());
		if (exported)
			ck_assert_msg(look_up(f->base, f->version) == exported,
			              "%s at %d", f->base, f->version);
		ck_assert_msg(!exported ||
		                      look_up(f->base, f->version - 10) != exported,
		              "%s before %d", f->base, f->version);
	}
}
END_TEST

/* Why the version is asked for first: a driver takes any. */
START_TEST(a_version_that_the_driver_does_not_know_gets_its_newest_form)
{
	int newer = version_of_driver() + 1000;

	ck_assert_ptr_nonnull(look_up("cuStreamBatchMemOp", newer));
	ck_assert_ptr_eq(look_up("cuStreamBatchMemOp", newer),
	                 dlsym(driver, "cuStreamBatchMemOp_v2"));
}
END_TEST

START_TEST(cuda_finds_no_device)
{
	const struct batoni_cuda_api *api = NULL;

	setenv("BATON_CUDA_LIBRARY", DRIVER, 1);
	/* Beside a kernel module it may say many things. */
	if (access("/proc/driver/nvidia/version", F_OK) == 0)
		return;
	ck_assert_int_eq(batoni_cuda_load(&api), BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "finds no GPU: cuInit: "
	                             "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable "
	                             "device is detected; "));
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		every_function_is_exported,
		every_function_is_there_at_its_version,
		no_function_is_there_before_its_version,
		optional_functions_are_there_from_their_version_on,
		a_version_that_the_driver_does_not_know_gets_its_newest_form,
		cuda_finds_no_device,
	};

	return RUN_TESTS_WITH("cuda_driver", tests, setup, NULL);
}
