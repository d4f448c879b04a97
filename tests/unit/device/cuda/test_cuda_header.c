/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lists of cuda_api.h, beside a real <cuda.h>: every type, member, constant and
 * function.  cudaTypedefs.h has a type for each version of each function, by which the
 * versions that cuGetProcAddress is asked for are checked too.
 *
 * Copies by one call came with CUDA 12.8.  A header that is older does not know what they need: it is
 * declared here, so that the rest compiles and is compared.
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <string.h>

#if CUDA_VERSION < 12080
typedef struct {
	unsigned int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;
enum {
	CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
	CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1,
};
#endif

#define BATONI_CUDA_TYPES_GIVEN
#include "cuda_api.h"
#include "run_tests.h"

#define SAME(type, other) __builtin_types_compatible_p(type, other)

START_TEST(types_have_their_sizes)
{
#define SIZE(type, bytes) ck_assert_msg(sizeof(type) == (bytes), #type);
	BATONI_CUDA_TYPES(SIZE)
}
END_TEST

START_TEST(members_are_where_they_are)
{
#define OFFSET(type, member, bytes)                                           \
	ck_assert_msg(offsetof(type, member) == (bytes), #member);
	BATONI_CUDA_MEMBERS(OFFSET)
}
END_TEST

START_TEST(constants_have_their_values)
{
#define VALUE(ours, theirs, value)                                            \
	ck_assert_msg((long long)(theirs) == (value) && (ours) == (value),    \
	              #theirs);
	BATONI_CUDA_CONSTANTS(VALUE)
	ck_assert_uint_eq((uintptr_t)CU_STREAM_LEGACY,
	                  BATONI_CU_STREAM_LEGACY_VALUE);
	ck_assert_uint_eq((uintptr_t)CU_STREAM_PER_THREAD,
	                  BATONI_CU_STREAM_PER_THREAD_VALUE);
}
END_TEST

START_TEST(functions_have_their_prototypes)
{
#define PROTOTYPE(name, symbol, base, version, parameters)                    \
	ck_assert_msg(SAME(__typeof__(symbol), CUresult parameters), #symbol);
	BATONI_CUDA_FUNCTIONS(PROTOTYPE)
	BATONI_CUDA_SHARING(PROTOTYPE)
	BATONI_CUDA_LOOKUP(PROTOTYPE)
}
END_TEST

/* A header declares the newest form of a function, under the name without its version too. */
#if CUDA_VERSION >= 12080
START_TEST(copies_have_their_prototypes)
{
	int seen = 0;

#undef PROTOTYPE
#define PROTOTYPE(name, symbol, base, version, parameters)                    \
	if (SAME(__typeof__(BASE_##symbol), CUresult parameters))             \
		seen++;
#define BASE_cuMemcpyBatchAsync cuMemcpyBatchAsync
#define BASE_cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync
	BATONI_CUDA_COPIES(PROTOTYPE)
	ck_assert_int_eq(seen, 1);
#if CUDA_VERSION >= 13000
	ck_assert(SAME(__typeof__(cuMemcpyBatchAsync),
	               __typeof__(*((struct batoni_cuda_api *)0)->copies)));
#else
	ck_assert(SAME(__typeof__(cuMemcpyBatchAsync),
	               __typeof__(*((struct batoni_cuda_api *)0)->copies_first)));
#endif
}
END_TEST
#endif

/* The types are named by what cuGetProcAddress is asked for. */
#define PFN_cuCtxPushCurrent_v2_v4000 PFN_cuCtxPushCurrent_v4000
#define PFN_cuCtxPopCurrent_v2_v4000 PFN_cuCtxPopCurrent_v4000
#define PFN_cuDevicePrimaryCtxRelease_v2_v11000 \
	PFN_cuDevicePrimaryCtxRelease_v11000
#define PFN_cuStreamDestroy_v2_v4000 PFN_cuStreamDestroy_v4000
#define PFN_cuStreamBatchMemOp_v2_v11070 PFN_cuStreamBatchMemOp_v11070
#define PFN_cuMemHostGetDevicePointer_v2_v3020 \
	PFN_cuMemHostGetDevicePointer_v3020
#define PFN_cuMemAlloc_v2_v3020 PFN_cuMemAlloc_v3020
#define PFN_cuMemFree_v2_v3020 PFN_cuMemFree_v3020
#define PFN_cuMemGetInfo_v2_v3020 PFN_cuMemGetInfo_v3020
#define PFN_cuMemGetAddressRange_v2_v3020 PFN_cuMemGetAddressRange_v3020
#define PFN_cuMemHostRegister_v2_v6050 PFN_cuMemHostRegister_v6050
#define PFN_cuIpcOpenMemHandle_v2_v11000 PFN_cuIpcOpenMemHandle_v11000
#define PFN_cuDeviceGetUuid_v2_v11040 PFN_cuDeviceGetUuid_v11040
#define PFN_cuGetProcAddress_v2_v12000 PFN_cuGetProcAddress_v12000
/* Where these are not known: as we have them. */
#if CUDA_VERSION < 12080
#define PFN_cuMemcpyBatchAsync_v12080                                         \
	__typeof__(((struct batoni_cuda_api *)0)->copies_first)
#endif
#if CUDA_VERSION >= 13000
#define PFN_cuMemcpyBatchAsync_v2_v13000 PFN_cuMemcpyBatchAsync_v13000
#else
#define PFN_cuMemcpyBatchAsync_v2_v13000                                      \
	__typeof__(((struct batoni_cuda_api *)0)->copies)
#endif

START_TEST(functions_are_asked_for_at_their_versions)
{
#define VERSION(name, symbol, base, version, parameters)                      \
	ck_assert_msg(SAME(PFN_##symbol##_v##version,                         \
	                   CUresult (*) parameters),                          \
	              #symbol);
	BATONI_CUDA_FUNCTIONS(VERSION)
	BATONI_CUDA_OPTIONAL(VERSION)
	BATONI_CUDA_LOOKUP(VERSION)
}
END_TEST

START_TEST(functions_are_asked_for_by_the_name_without_its_version)
{
	static const struct {
		const char *symbol, *base;
	} names[] = {
#define NAMES(name, symbol, base, version, parameters) {#symbol, base},
		BATONI_CUDA_FUNCTIONS(NAMES) BATONI_CUDA_OPTIONAL(NAMES)
		BATONI_CUDA_LOOKUP(NAMES)
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t length = strlen(names[i].base);

		ck_assert_msg(strncmp(names[i].symbol, names[i].base, length) ==
		                              0 &&
		                      (names[i].symbol[length] == '\0' ||
		                       strcmp(names[i].symbol + length, "_v2") == 0),
		              "%s, %s", names[i].symbol, names[i].base);
	}
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		types_have_their_sizes,
		members_are_where_they_are,
		constants_have_their_values,
		functions_have_their_prototypes,
#if CUDA_VERSION >= 12080
		copies_have_their_prototypes,
#endif
		functions_are_asked_for_at_their_versions,
		functions_are_asked_for_by_the_name_without_its_version,
	};

	return RUN_TESTS("cuda_header", tests);
}
