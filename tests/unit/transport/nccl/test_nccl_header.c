/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lists of nccl_api.h, beside a real <nccl.h>: every type, member, constant and
 * function that its version has; and the configuration that the loader fills in for the
 * version, byte by byte what the header's own initialiser makes.
 */
#include <nccl.h>
#include <string.h>

#define BATONI_NCCL_TYPES_GIVEN
#include "nccl_api.h"
#include "nccl_config.h"
#include "run_tests.h"

#define SAME(type, other) __builtin_types_compatible_p(type, other)
#define SINCE(major, minor, patch)                                            \
	(NCCL_VERSION_CODE >= BATONI_NCCL_VERSION(major, minor, patch))

START_TEST(version_is_one_that_baton_takes)
{
	ck_assert_int_ge(NCCL_VERSION_CODE, BATONI_NCCL_VERSION_LEAST);
	ck_assert_int_eq(NCCL_VERSION_CODE,
	                 BATONI_NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR,
	                                     NCCL_PATCH));
}
END_TEST

START_TEST(types_have_their_sizes)
{
#define SIZE(type, bytes) ck_assert_msg(sizeof(type) == (bytes), #type);
#define OFFSET(type, member, bytes)                                           \
	ck_assert_msg(offsetof(type, member) == (bytes), #member);
	BATONI_NCCL_TYPES(SIZE)
#if SINCE(2, 29, 2)
	BATONI_NCCL_SIGNAL_TYPES(SIZE)
	BATONI_NCCL_SIGNAL_MEMBERS(OFFSET)
#endif
}
END_TEST

START_TEST(configuration_has_its_members)
{
#define MEMBER(type, member, unset)                                           \
	ck_assert_msg(offsetof(ncclConfig_t, member) ==                       \
	                      offsetof(struct batoni_nccl_config, member),    \
	              #member);                                               \
	ck_assert_msg(SAME(__typeof__(((ncclConfig_t *)NULL)->member), type), \
	              #member);
	MEMBER(size_t, size, 0)
	MEMBER(unsigned int, magic, 0)
	MEMBER(unsigned int, version, 0)
	BATONI_NCCL_CONFIG_2_28(MEMBER)
#if SINCE(2, 29, 0)
	BATONI_NCCL_CONFIG_2_29(MEMBER)
#endif
#if SINCE(2, 30, 0)
	BATONI_NCCL_CONFIG_2_30(MEMBER)
#endif
#if SINCE(2, 31, 0)
	BATONI_NCCL_CONFIG_2_31(MEMBER)
#endif
#if SINCE(2, 32, 0)
	BATONI_NCCL_CONFIG_2_32(MEMBER)
#endif
}
END_TEST

START_TEST(configuration_is_filled_in_as_the_header_does)
{
	ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
	struct batoni_nccl_config ours;
	size_t size = nccl_config_for(NCCL_VERSION_CODE, &ours);

	ck_assert_uint_eq(size, sizeof(ours));
	ck_assert_uint_eq(ours.magic, theirs.magic);
#if SINCE(2, 33, 0)
	/* A version that may have members which Baton does not know. */
	ck_assert_uint_le(ours.size, sizeof(theirs));
	ck_assert_uint_lt(ours.version, theirs.version);
#else
	ck_assert_uint_eq(ours.size, sizeof(theirs));
	ck_assert_uint_eq(ours.version, theirs.version);
#endif
#define VALUE(type, member, unset)                                            \
	ck_assert_msg(ours.member == theirs.member, #member);
	BATONI_NCCL_CONFIG_2_28(VALUE)
#if SINCE(2, 29, 0)
	BATONI_NCCL_CONFIG_2_29(VALUE)
#endif
#if SINCE(2, 30, 0)
	BATONI_NCCL_CONFIG_2_30(VALUE)
#endif
#if SINCE(2, 31, 0)
	BATONI_NCCL_CONFIG_2_31(VALUE)
#endif
#if SINCE(2, 32, 0)
	BATONI_NCCL_CONFIG_2_32(VALUE)
#endif
}
END_TEST

START_TEST(constants_have_their_values)
{
#define CONSTANT(ours, theirs, value)                                         \
	ck_assert_msg((long long)(theirs) == (value) && (ours) == (value),    \
	              #theirs);
	BATONI_NCCL_CONSTANTS(CONSTANT)
#if SINCE(2, 30, 0)
	BATONI_NCCL_CONSTANTS_2_30(CONSTANT)
#endif
}
END_TEST

START_TEST(functions_have_their_prototypes)
{
#define PROTOTYPE(name, symbol, since, result, parameters)                    \
	ck_assert_msg(SAME(__typeof__(symbol), result parameters), #symbol);
	BATONI_NCCL_FUNCTIONS(PROTOTYPE)
#if SINCE(2, 28, 7)
	BATONI_NCCL_OPTIONAL_REVOKE(PROTOTYPE)
#endif
#if SINCE(2, 29, 2)
	BATONI_NCCL_OPTIONAL_SIGNALS(PROTOTYPE)
#endif
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		version_is_one_that_baton_takes,
		types_have_their_sizes,
		configuration_has_its_members,
		configuration_is_filled_in_as_the_header_does,
		constants_have_their_values,
		functions_have_their_prototypes,
	};

	return RUN_TESTS("nccl_header", tests);
}
