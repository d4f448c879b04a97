/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "baton.h"
#include "captured.h"
#include "launcher.h"
#include "run_tests.h"

static const char *variable, *value;
static enum baton_transport transport;

static void
start_as_told(void)
{
	if (variable)
		setenv(variable, value, 1);
}

static void
warn_twice(void)
{
	start_as_told();
	batoni_warn_alone("a reason", "a cure");
	batoni_warn_alone("a reason", "a cure");
}

START_TEST(a_world_of_one_under_a_launcher_is_warned_of_once)
{
	static const char *const names[] = {
		"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS",
		"SLURM_STEP_NUM_TASKS",
	};
	struct captured captured;

	value = "4";
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		variable = names[i];
		captured = capture(NULL, warn_twice);
		ck_assert_uint_eq(captured.writes, 1);
		ck_assert_ptr_nonnull(strstr(captured.text, names[i]));
		ck_assert_ptr_nonnull(strstr(captured.text, "is 4"));
		ck_assert_ptr_nonnull(strstr(captured.text, "a cure"));
	}
}
END_TEST

START_TEST(one_process_is_not_warned_of)
{
	variable = "SLURM_NTASKS";
	value = "1";
	ck_assert_uint_eq(capture(NULL, warn_twice).writes, 0);
	variable = NULL;
	ck_assert_uint_eq(capture(NULL, warn_twice).writes, 0);
}
END_TEST

static void
create_twice(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comms[2];

	start_as_told();
	options.transport = transport;
	for (int i = 0; i < 2; i++)
		if (baton_comm_create(&options, &comms[i]) != BATON_OK)
			abort();
	for (int i = 0; i < 2; i++)
		if (baton_comm_destroy(comms[i]) != BATON_OK)
			abort();
}

/* srun without PMI; without MPI, any launcher. */
START_TEST(creating_without_a_way_to_the_others_warns)
{
	struct captured captured;

	variable = "SLURM_NTASKS";
	value = "2";
	transport = BATON_TRANSPORT_AUTO;
	captured = capture(NULL, create_twice);
	ck_assert_uint_eq(captured.writes, 1);
#ifdef BATONI_WITH_MPI
	ck_assert_ptr_nonnull(strstr(captured.text, "without PMI"));
#else
	ck_assert_ptr_nonnull(strstr(captured.text, "no MPI"));
	variable = "OMPI_COMM_WORLD_SIZE";
	captured = capture(NULL, create_twice);
	ck_assert_uint_eq(captured.writes, 1);
#endif
	/* Who asks for it means it. */
	transport = BATON_TRANSPORT_LOCAL;
	ck_assert_uint_eq(capture(NULL, create_twice).writes, 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_world_of_one_under_a_launcher_is_warned_of_once,
		one_process_is_not_warned_of,
		creating_without_a_way_to_the_others_warns,
	};

	return RUN_TESTS("launcher", tests);
}
