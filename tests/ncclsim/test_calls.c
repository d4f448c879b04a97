/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls: what they check, settings, faults, and the rules of threads. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "world.h"

static ncclResult_t
create_with(struct batoni_nccl_config config)
{
	ncclResult_t result;
	ncclUniqueId id;

	ck_nccl(nw.nccl->get_unique_id(&id));
	world_use(0);
	result = nw.nccl->comm_init(&nw.rank[0].comm, 1, id, 0, &config);
	if (result == BATONI_NCCL_SUCCESS)
		ck_nccl(nw.nccl->comm_destroy(nw.rank[0].comm));
	nw.rank[0].comm = NULL;
	return result;
}

START_TEST(version_is_the_one_that_was_set)
{
	static const int versions[] = {22809, 23007, 23203};
	int version;

	world_load();
	ck_nccl(nw.nccl->get_version(&version));
	ck_assert_int_eq(version, 23007);
	for (int i = 0; i < 3; i++) {
		ck_assert(nw.nccl->sim_set("version", versions[i]));
		ck_nccl(nw.nccl->get_version(&version));
		ck_assert_int_eq(version, versions[i]);
	}
	ck_assert(!nw.nccl->sim_set("version", 22903));
	ck_assert(!nw.nccl->sim_set("versions", 22809));
}
END_TEST

START_TEST(environment_has_the_settings)
{
	int version;

	setenv("NCCLSIM_VERSION", "2.32", 1);
	setenv("NCCLSIM_FAIL", "ncclGetVersion:2:3", 1);
	world_load();
	ck_nccl(nw.nccl->get_version(&version));
	ck_assert_int_eq(version, 23203);
	ck_assert_uint_eq(nw.nccl->get_version(&version),
	                  BATONI_NCCL_INTERNAL_ERROR);
	ck_nccl(nw.nccl->get_version(&version));
}
END_TEST

START_TEST(baton_takes_it_for_nccl)
{
	const struct batoni_nccl_api *api;

	setenv("BATON_NCCL_LIBRARY", NCCLSIM_PATH, 1);
	setenv("BATON_CUDA_LIBRARY", CUDASIM_PATH, 1);
	setenv("NCCLSIM_VERSION", "2.28", 1);
	ck_assert_msg(batoni_nccl_load(&api) == BATON_OK, "%s",
	              baton_last_error());
	ck_assert_int_eq(api->version, 22809);
	ck_assert(api->comm_revoke != NULL);
	/* They came with 2.29.2. */
	ck_assert(api->put_signal == NULL);
}
END_TEST

START_TEST(one_sided_calls_are_there_from_2_30)
{
	world_load();
	ck_assert(nw.nccl->put_signal != NULL && nw.nccl->signal != NULL &&
	          nw.nccl->wait_signal != NULL);
}
END_TEST

START_TEST(configurations_are_checked)
{
	struct batoni_nccl_config config = world_config(true);

	world_devices(1);
	ck_nccl(create_with(config));
	config.magic = 1;
	ck_assert_uint_eq(create_with(config), BATONI_NCCL_INVALID_ARGUMENT);
	config = world_config(true);
	config.blocking = 2;
	ck_assert_uint_eq(create_with(config), BATONI_NCCL_INVALID_ARGUMENT);
	world_end();
}
END_TEST

/* What the loader fills in for each version is right for it, and no other's is. */
START_TEST(configuration_of_a_newer_version_is_a_violation)
{
	static const int versions[] = {22809, 23007, 23203};
	struct batoni_nccl_config config;

	world_devices(1);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 3; j++) {
			struct batoni_nccl_api api = {.version = versions[j]};

			ck_assert(nw.nccl->sim_set("version", versions[i]));
			batoni_nccl_config_init(&api, &config);
			ck_nccl(create_with(config));
			nw.violations += j > i;
			ck_assert_int_eq(nw.nccl->sim_violations(),
			                 nw.violations);
		}
	}
	world_end();
}
END_TEST

START_TEST(arguments_are_checked)
{
	ncclUniqueId id = {{0}};
	ncclComm_t comm;

	world_begin(1, true);
	world_use(0);
	ck_assert_uint_eq(nw.nccl->comm_init(&comm, 1, id, 0, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_nccl(nw.nccl->get_unique_id(&id));
	ck_assert_uint_eq(nw.nccl->comm_init(&comm, 1, id, 1, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(world_send(0, 1, 1), BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(world_recv(0, -1, 1), BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->send(NULL, 1, 12, 0, nw.rank[0].comm, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->comm_revoke(NULL, 0),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_str_eq(nw.nccl->error_text(BATONI_NCCL_INVALID_ARGUMENT),
	                 "invalid argument");
	ck_assert_str_eq(nw.nccl->last_error(NULL), "ncclCommRevoke of NULL");
	world_end();
}
END_TEST

/* unit.nccl_symbols.* says the same of NCCL. */
START_TEST(calls_without_a_communicator_are_as_nccls)
{
	ncclResult_t state;

	world_load();
	ck_nccl(nw.nccl->comm_finalize(NULL));
	ck_nccl(nw.nccl->comm_destroy(NULL));
	ck_nccl(nw.nccl->comm_abort(NULL));
	ck_assert_uint_eq(nw.nccl->comm_error(NULL, &state),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->send(NULL, 1, BATONI_NCCL_INT8, 0, NULL, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_nccl(nw.nccl->group_start());
	ck_assert_uint_eq(nw.nccl->recv(NULL, 1, BATONI_NCCL_INT8, 0, NULL, NULL),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_INVALID_ARGUMENT);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(nw.nccl->group_end());
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_INVALID_USAGE);
	ck_assert_str_eq(nw.nccl->error_text(BATONI_NCCL_TIMEOUT), "timeout");
	ck_assert(nw.nccl->sim_set("version", 22809));
	ck_assert_str_eq(nw.nccl->error_text(BATONI_NCCL_TIMEOUT),
	                 "unknown result code");
}
END_TEST

START_TEST(ids_differ)
{
	ncclUniqueId one, two;

	world_load();
	ck_nccl(nw.nccl->get_unique_id(&one));
	ck_nccl(nw.nccl->get_unique_id(&two));
	ck_assert_int_ne(memcmp(&one, &two, sizeof(one)), 0);
}
END_TEST

/* ---- faults -------------------------------------------------------------- */

START_TEST(nth_call_fails)
{
	world_begin(2, true);
	world_connect();
	ck_assert(nw.nccl->sim_fail("ncclSend", 2, BATONI_NCCL_SYSTEM_ERROR));
	ck_nccl(world_send(0, 1, 1));
	ck_nccl(world_recv(1, 0, 1));
	ck_assert_uint_eq(world_send(0, 1, 1), BATONI_NCCL_SYSTEM_ERROR);
	ck_assert_str_eq(nw.nccl->last_error(NULL), "ncclSend was made to fail");
	/* Any call; and it is the call alone. */
	ck_assert(nw.nccl->sim_fail("", 1, BATONI_NCCL_INTERNAL_ERROR));
	ck_assert_uint_eq(world_recv(1, 0, 1), BATONI_NCCL_INTERNAL_ERROR);
	ck_assert(nw.nccl->sim_fail("ncclSend", 1, BATONI_NCCL_SYSTEM_ERROR));
	ck_assert(nw.nccl->sim_fail("ncclSend", 0, 0));
	ck_nccl(world_send(0, 1, 1));
	ck_nccl(world_recv(1, 0, 1));
	ck_assert(!nw.nccl->sim_fail("ncclSent", 1, 1));
	ck_assert_int_eq(nw.nccl->sim_uses("ncclSent"), -1);
	world_end();
}
END_TEST

START_TEST(call_that_fails_in_a_group_voids_it)
{
	long kernels;

	world_begin(2, true);
	world_connect();
	kernels = nw.nccl->sim_uses("kernel");
	ck_assert(nw.nccl->sim_fail("ncclRecv", 1, BATONI_NCCL_SYSTEM_ERROR));
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 1, 1));
	ck_assert_uint_eq(world_recv(0, 1, 1), BATONI_NCCL_SYSTEM_ERROR);
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_SYSTEM_ERROR);
	ck_assert_int_eq(nw.nccl->sim_uses("kernel"), kernels);
	/* The end of one that is made to fail. */
	ck_assert(nw.nccl->sim_fail("ncclGroupEnd", 1,
	                            BATONI_NCCL_INTERNAL_ERROR));
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 1, 1));
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_INTERNAL_ERROR);
	ck_assert_int_eq(nw.nccl->sim_uses("kernel"), kernels);
	world_end();
}
END_TEST

START_TEST(launch_that_the_driver_refuses_is_a_cuda_error)
{
	world_begin(2, true);
	world_connect();
	ck_assert(nw.cuda->sim_fail("cuLaunchKernel", 1, 719, false));
	ck_assert_uint_eq(world_send(0, 1, 1), BATONI_NCCL_CUDA_ERROR);
	ck_assert_int_eq(nw.nccl->sim_live("kernels"), 0);
	ck_nccl(world_send(0, 1, 1));
	ck_nccl(world_recv(1, 0, 1));
	world_end();
}
END_TEST

START_TEST(destroy_and_abort_that_fail_have_done_it)
{
	world_begin(1, true);
	ck_assert(nw.nccl->sim_fail("ncclCommDestroy", 1,
	                            BATONI_NCCL_SYSTEM_ERROR));
	ck_assert_uint_eq(nw.nccl->comm_destroy(nw.rank[0].comm),
	                  BATONI_NCCL_SYSTEM_ERROR);
	ck_assert_int_eq(nw.nccl->sim_live("comms"), 0);
	ck_nccl(world_create(1, true));
	ck_assert(nw.nccl->sim_fail("ncclCommAbort", 1,
	                            BATONI_NCCL_SYSTEM_ERROR));
	ck_assert_uint_eq(nw.nccl->comm_abort(nw.rank[0].comm),
	                  BATONI_NCCL_SYSTEM_ERROR);
	nw.rank[0].comm = NULL;
	world_end();
}
END_TEST

/* ---- rules --------------------------------------------------------------- */

START_TEST(groups_nest)
{
	long kernels;

	world_begin(1, true);
	kernels = nw.nccl->sim_uses("kernel");
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 0, 1));
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_recv(0, 0, 1));
	ck_nccl(nw.nccl->group_end());
	ck_assert_int_eq(nw.nccl->sim_uses("kernel"), kernels);
	ck_nccl(nw.nccl->group_end());
	ck_assert_int_eq(nw.nccl->sim_uses("kernel"), kernels + 1);
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_INVALID_USAGE);
	nw.violations = 1;
	world_end();
}
END_TEST

START_TEST(kinds_of_communicators_do_not_mix_in_a_group)
{
	ncclComm_t blocking[2];

	world_begin(2, true);
	blocking[0] = nw.rank[0].comm;
	blocking[1] = nw.rank[1].comm;
	ck_assert_uint_eq(world_create(2, false), BATONI_NCCL_IN_PROGRESS);
	world_await();
	ck_nccl(nw.nccl->group_start());
	ck_nccl(nw.nccl->send(NULL, 0, 0, 1, blocking[0], NULL));
	ck_nccl(world_send(0, 1, 0));
	ck_assert_uint_eq(nw.nccl->group_end(), BATONI_NCCL_INVALID_ARGUMENT);
	for (int i = 0; i < 2; i++) {
		ck_nccl(nw.nccl->comm_abort(nw.rank[i].comm));
		nw.rank[i].comm = blocking[i];
	}
	world_end();
}
END_TEST

START_TEST(stale_handle_is_a_violation)
{
	ncclComm_t stale;
	ncclResult_t state;

	world_begin(1, true);
	stale = nw.rank[0].comm;
	world_destroy();
	ck_assert_uint_eq(nw.nccl->comm_error(stale, &state),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	ck_assert_uint_eq(nw.nccl->comm_abort(stale),
	                  BATONI_NCCL_INVALID_ARGUMENT);
	nw.violations = 2;
	world_end();
}
END_TEST

static void *
recv_first(void *unused)
{
	ck_nccl(world_recv(0, 1, 1));
	return unused;
}

/* The thread blocks in a call for rank 0, until rank 1 joins. */
START_TEST(two_threads_at_once_are_a_violation)
{
	ncclComm_t first[2];
	ncclResult_t state;
	pthread_t thread;

	world_begin(2, true);
	first[0] = nw.rank[0].comm;
	first[1] = nw.rank[1].comm;
	ck_nccl(world_create(2, true));
	pthread_create(&thread, NULL, recv_first, NULL);
	while (nw.nccl->sim_uses("job") < 5)
		usleep(100);
	/* Another communicator of the device; the same one, which is both. */
	ck_nccl(nw.nccl->comm_error(first[0], &state));
	ck_assert_int_eq(nw.nccl->sim_violations(), 1);
	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	ck_assert_int_eq(nw.nccl->sim_violations(), 3);
	/* Another device. */
	ck_nccl(nw.nccl->comm_error(first[1], &state));
	ck_assert_int_eq(nw.nccl->sim_violations(), 3);
	/* If it is allowed. */
	ck_assert(nw.nccl->sim_set("threads", 1));
	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	ck_assert_int_eq(nw.nccl->sim_violations(), 3);
	ck_nccl(world_send(1, 0, 1));
	pthread_join(thread, NULL);
	for (int i = 0; i < 2; i++)
		ck_nccl(nw.nccl->comm_abort(first[i]));
	nw.violations = 3;
	world_end();
}
END_TEST

static void *
ask_first(void *unused)
{
	ncclResult_t state;

	ck_nccl(nw.nccl->comm_error(nw.rank[0].comm, &state));
	return unused;
}

START_TEST(group_holds_its_device_to_its_end)
{
	pthread_t thread;

	world_begin(1, true);
	ck_nccl(nw.nccl->group_start());
	ck_nccl(world_send(0, 0, 1));
	pthread_create(&thread, NULL, ask_first, NULL);
	pthread_join(thread, NULL);
	ck_nccl(world_recv(0, 0, 1));
	ck_nccl(nw.nccl->group_end());
	nw.violations = 1;
	ck_assert_int_eq(nw.nccl->sim_violations(), 1);
	pthread_create(&thread, NULL, ask_first, NULL);
	pthread_join(thread, NULL);
	world_end();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		version_is_the_one_that_was_set,
		environment_has_the_settings,
		baton_takes_it_for_nccl,
		one_sided_calls_are_there_from_2_30,
		configurations_are_checked,
		configuration_of_a_newer_version_is_a_violation,
		arguments_are_checked,
		calls_without_a_communicator_are_as_nccls,
		ids_differ,
		nth_call_fails,
		call_that_fails_in_a_group_voids_it,
		launch_that_the_driver_refuses_is_a_cuda_error,
		destroy_and_abort_that_fail_have_done_it,
		groups_nest,
		kinds_of_communicators_do_not_mix_in_a_group,
		stale_handle_is_a_violation,
		two_threads_at_once_are_a_violation,
		group_holds_its_device_to_its_end,
	};

	return RUN_TESTS("ncclsim_calls", tests);
}
