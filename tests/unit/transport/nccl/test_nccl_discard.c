/* SPDX-License-Identifier: BSD-3-Clause */
/* The NCCL transport by its own contract: what is discarded before it is open, and ranks of one
 * process whose environments differ. */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cudasim.h"
#include "mem.h"
#include "nccl_transport.h"
#include "ncclsim.h"
#include "registry.h"
#include "run_tests.h"

#define SECOND ((uint64_t)1000000000)

static const struct cudasim *cuda;
static const struct ncclsim *nccl;
static struct batoni_device *device;

/* One thread is all there is. */
static void
no_driver(void)
{
}

static struct batoni_native *
create(int size, bool lists)
{
	const struct batoni_native_config config = {
		.device = device,
		.size = size,
		.lists = lists,
		.timeout_ns = 10 * (int64_t)SECOND,
		.slots = 16,
		.driver_lock = no_driver,
		.driver_unlock = no_driver,
	};
	struct batoni_native *native = NULL;

	ck_assert_int_eq(batoni_native_ops.create(&config, &native), BATON_OK);
	return native;
}

/* Any of its transports has the lock of the device. */
static void
lock(struct batoni_native *native, bool take)
{
	struct batoni_nccl *it = (struct batoni_nccl *)(void *)native;

	ck_assert_int_eq(batoni_nccl_lock(&it->base, take), BATON_OK);
}

static void
load(void)
{
	const struct batoni_device_config where = {
		.cuda_device = 0, .until_ns = batoni_real_ns() + 10 * SECOND};

	cuda = cudasim_load(NULL);
	nccl = ncclsim_load(NULL);
	ck_assert_ptr_nonnull(cuda);
	ck_assert_ptr_nonnull(nccl);
	ck_assert_int_eq(
		batoni_device_find(BATON_DEVICE_CUDA)->open(&where, &device),
		BATON_OK);
}

/* NCCL has begun.  The GPU fails: what NCCL may still write stays, and nothing else.  Another
 * thread is in a call of NCCL for it: all is freed. */
static void
discard_begun(bool fails)
{
	const struct batoni_transport_config config = {.slots = 2,
	                                               .slots_most = 2};
	struct batoni_transport *lower, *open;
	struct batoni_native *native, *other;
	long blocks;

	load();
	blocks = batoni_mem_blocks();
	ck_assert_int_eq(batoni_local_open(1, &config, &lower), BATON_OK);
	native = create(1, true);
	other = create(1, true);
	while (nccl->sim_live("comms") == 0)
		ck_assert_int_eq(batoni_native_ops.step(native, lower, &open),
		                 BATON_PENDING);
	lower->ops->close(lower, true);
	if (fails)
		cuda->sim_fail("cuCtxPushCurrent", 1, BATONI_CU_ILLEGAL_ADDRESS,
		               true);
	else
		lock(other, true);
	batoni_native_ops.discard(native);
	if (!fails)
		lock(other, false);
	batoni_native_ops.discard(other);
	/* That of the rank alone, and the one for lists. */
	ck_assert_int_eq(nccl->sim_live("comms"), fails ? 2 : 0);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	device->ops->close(device);
}

START_TEST(a_discard_on_a_gpu_that_failed_leaves_nccl_its_memory)
{
	discard_begun(true);
}
END_TEST

START_TEST(a_discard_waits_for_no_other_call_of_nccl)
{
	discard_begun(false);
}
END_TEST

/* Of two ranks, one asks for lists. */
START_TEST(ranks_that_differ_in_lists_are_refused)
{
	const struct batoni_transport_config config = {.slots = 4,
	                                               .slots_most = 4};

	load();
	for (int with = 0; with < 2; with++) {
		enum baton_status status[2] = {BATON_PENDING, BATON_PENDING};
		struct batoni_transport *lower[2], *open;
		struct batoni_native *natives[2];
		char words[160];

		snprintf(words, sizeof(words),
		         "rank %d asks for lists of tensors (options.nccl_lists, "
		         "or BATON_NCCL_LISTS=1 in the environment), and rank %d "
		         "does not",
		         with, !with);
		ck_assert_int_eq(batoni_local_open(2, &config, lower), BATON_OK);
		for (int i = 0; i < 2; i++)
			natives[i] = create(2, i == with);
		while (status[0] == BATON_PENDING || status[1] == BATON_PENDING) {
			for (int i = 0; i < 2; i++) {
				if (status[i] != BATON_PENDING)
					continue;
				status[i] = batoni_native_ops.step(
					natives[i], lower[i], &open);
				if (status[i] == BATON_ERR_INVALID)
					ck_assert_msg(strstr(baton_last_error(),
					                     words),
					              "%s", baton_last_error());
			}
		}
		for (int i = 0; i < 2; i++) {
			ck_assert_int_eq(status[i], BATON_ERR_INVALID);
			batoni_native_ops.discard(natives[i]);
			lower[i]->ops->close(lower[i], true);
		}
	}
	device->ops->close(device);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		a_discard_on_a_gpu_that_failed_leaves_nccl_its_memory,
		a_discard_waits_for_no_other_call_of_nccl,
		ranks_that_differ_in_lists_are_refused,
	};

	return RUN_TESTS("nccl_discard", tests);
}
