/* SPDX-License-Identifier: BSD-3-Clause */
/* Which device a communicator is on, and which of several: the options, the environment,
 * the thread, the launcher. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "baton.h"
#include "fake_device.h"
#include "mem.h"
#include "registry.h"
#include "run_tests.h"

static void
setup(void)
{
	static const char *const names[] = {
		"BATON_DEVICE",      "OMPI_COMM_WORLD_LOCAL_RANK",
		"MPI_LOCALRANKID",   "PALS_LOCAL_RANKID",
		"FLUX_TASK_LOCAL_ID", "LOCAL_RANK", "SLURM_LOCALID",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	batoni_device_put(&batoni_fake_device_ops);
}

static void
teardown(void)
{
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static struct baton_comm_options
on(enum baton_device device)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = device;
	options.progress = BATON_PROGRESS_CALLS;
	return options;
}

static struct baton_comm_info
info_of(struct baton_comm *comm)
{
	struct baton_comm_info info = {.size = sizeof(info)};

	ck_assert_int_eq(baton_comm_query(comm, &info), BATON_OK);
	return info;
}

static void
assert_device(enum baton_device asked, enum baton_device expected)
{
	struct baton_comm_options options = on(asked);
	struct baton_comm *comm;

	ck_assert_int_eq(baton_comm_create_local(1, &options, &comm), BATON_OK);
	ck_assert_int_eq(info_of(comm).device, expected);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}

/* Three local ranks have these numbers. */
static void
assert_numbers(const struct baton_comm_options *options, int a, int b, int c)
{
	const int numbers[3] = {a, b, c};
	struct baton_comm *comms[3];

	ck_assert_int_eq(baton_comm_create_local(3, options, comms), BATON_OK);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(info_of(comms[i]).cuda_device, numbers[i]);
		ck_assert_int_eq(baton_comm_destroy(comms[i]), BATON_OK);
	}
}

START_TEST(environment_says_what_auto_is)
{
	setenv("BATON_DEVICE", "cuda", 1);
	assert_device(BATON_DEVICE_AUTO, BATON_DEVICE_CUDA);
	assert_device(BATON_DEVICE_CUDA, BATON_DEVICE_CUDA);
	assert_device(BATON_DEVICE_HOST, BATON_DEVICE_HOST);
}
END_TEST

START_TEST(environment_can_say_the_host)
{
	setenv("BATON_DEVICE", "host", 1);
	assert_device(BATON_DEVICE_AUTO, BATON_DEVICE_HOST);
	assert_device(BATON_DEVICE_CUDA, BATON_DEVICE_CUDA);
}
END_TEST

START_TEST(auto_is_the_host_if_the_environment_says_nothing)
{
	struct baton_comm *comm;

	assert_device(BATON_DEVICE_AUTO, BATON_DEVICE_HOST);
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm), BATON_OK);
	ck_assert_int_eq(info_of(comm).device, BATON_DEVICE_HOST);
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
}
END_TEST

START_TEST(environment_that_asks_for_a_missing_device_is_refused)
{
	struct baton_comm *comm = NULL;

	batoni_device_put(NULL);
	setenv("BATON_CUDA_LIBRARY", "/nowhere", 1);
	setenv("BATON_DEVICE", "cuda", 1);
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &comm),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "CUDA"));
	ck_assert_ptr_null(comm);
}
END_TEST

START_TEST(device_that_lacks_a_slot_is_refused)
{
	struct baton_comm_options options = on(BATON_DEVICE_CUDA);
	struct batoni_device_ops partial = batoni_fake_device_ops;
	struct baton_comm *comm = NULL;

	partial.release = NULL;
	batoni_device_put(&partial);
	ck_assert_int_eq(baton_comm_create_local(1, &options, &comm),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(),
	                             "device of this build"));
	ck_assert_ptr_null(comm);
}
END_TEST

START_TEST(ranks_of_a_process_take_the_devices_in_turn)
{
	struct baton_comm_options options = on(BATON_DEVICE_CUDA);

	ck_assert_int_eq(FAKE_DEVICES, 4);
	assert_numbers(&options, 0, 1, 2);
	setenv("SLURM_LOCALID", "2", 1); /* ranks 6 to 8 of the host */
	assert_numbers(&options, 2, 3, 0);
	setenv("LOCAL_RANK", "3", 1); /* torchrun's, within Slurm: 9 to 11 */
	assert_numbers(&options, 1, 2, 3);
	unsetenv("LOCAL_RANK");
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1); /* 3 to 5 */
	assert_numbers(&options, 3, 0, 1);
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", "-1", 1);
	assert_numbers(&options, 2, 3, 0);
	setenv("SLURM_LOCALID", "99999999999", 1);
	assert_numbers(&options, 0, 1, 2);
	options.device = BATON_DEVICE_HOST;
	assert_numbers(&options, -1, -1, -1);
}
END_TEST

START_TEST(device_of_the_thread_is_preferred_and_that_of_the_options_to_it)
{
	struct baton_comm_options options = on(BATON_DEVICE_CUDA);

	fake_device_current = 3;
	assert_numbers(&options, 3, 3, 3);
	options.cuda_device = 1;
	assert_numbers(&options, 1, 1, 1);
	options.device = BATON_DEVICE_HOST;
	assert_numbers(&options, -1, -1, -1);
}
END_TEST

struct rank {
	const struct baton_unique_id *id;
	struct baton_comm_options options;
	struct baton_comm *comm;
	pthread_t thread;
	int number, current;
};

static void *
meet(void *arg)
{
	struct rank *rank = arg;

	fake_device_current = rank->current;
	baton_comm_create_id(3, rank->number, rank->id, &rank->options,
	                     &rank->comm);
	return NULL;
}

/* One of them builds for all: it must not give the others its own. */
START_TEST(ranks_that_meet_have_each_their_own_device)
{
	struct baton_unique_id id;
	struct rank ranks[3];

	ck_assert_int_eq(baton_unique_id_create(&id), BATON_OK);
	for (int i = 0; i < 3; i++)
		ranks[i] = (struct rank){.id = &id,
		                         .options = on(BATON_DEVICE_CUDA),
		                         .number = i,
		                         .current = -1};
	ranks[0].options.cuda_device = 3;
	ranks[2].current = 2;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, meet,
		                                &ranks[i]),
		                 0);
	for (int i = 0; i < 3; i++) {
		static const int numbers[3] = {3, 1, 2};

		pthread_join(ranks[i].thread, NULL);
		ck_assert_ptr_nonnull(ranks[i].comm);
		ck_assert_int_eq(info_of(ranks[i].comm).cuda_device,
		                 numbers[i]);
	}
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(baton_comm_destroy(ranks[i].comm), BATON_OK);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		environment_says_what_auto_is,
		environment_can_say_the_host,
		auto_is_the_host_if_the_environment_says_nothing,
		environment_that_asks_for_a_missing_device_is_refused,
		device_that_lacks_a_slot_is_refused,
		ranks_of_a_process_take_the_devices_in_turn,
		device_of_the_thread_is_preferred_and_that_of_the_options_to_it,
		ranks_that_meet_have_each_their_own_device,
	};

	return RUN_TESTS_WITH("comm_device", tests, setup, teardown);
}
