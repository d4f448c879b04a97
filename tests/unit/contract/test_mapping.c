/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings of other processes' device memory (runtime/contract/shared.c), on a memory table of the
 * test's whose map stands until the test lets it go.
 */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "mem.h"
#include "run_tests.h"
#include "shared.h"
#include "shm.h"

static struct batoni_device device = {.number = 3};
static struct batoni_offer offer;
static char block[64];
static sem_t in_call, may_return;
static int maps, unmaps;

static enum baton_status
map(struct batoni_device *mine, const struct batoni_memory_name *name, int fd,
    size_t bytes, void **base_p)
{
	(void)mine;
	(void)name;
	(void)fd;
	(void)bytes;
	maps++;
	sem_post(&in_call);
	sem_wait(&may_return);
	*base_p = block;
	return BATON_OK;
}

static void
unmap(struct batoni_device *mine, const struct batoni_memory_name *name, void *base,
      size_t bytes)
{
	(void)mine;
	(void)name;
	(void)base;
	(void)bytes;
	unmaps++;
	sem_post(&in_call);
	sem_wait(&may_return);
}

static const struct batoni_sharing_ops sharing = {.map = map, .unmap = unmap};
static const struct batoni_memory_ops memory = {.sharing = &sharing};

static void
begin(void)
{
	struct batoni_shm_name here;

	sem_init(&in_call, 0, 0);
	sem_init(&may_return, 0, 0);
	memset(&offer, 0, sizeof(offer));
	batoni_shm_node(&here);
	memcpy(offer.descriptor.node, here.node, sizeof(here.node));
	offer.descriptor.fd = -1;
	offer.bytes = sizeof(block);
	offer.offset = 8;
	offer.offered = 1;
}

static enum baton_status
take_mapping(uint64_t patience_ns, struct batoni_mapping **mapping_p, char **base_p)
{
	return batoni_mapping_take(&device, &memory, &offer, -1,
	                           batoni_real_ns() + patience_ns, mapping_p,
	                           base_p);
}

struct claimant {
	pthread_t thread;
	struct batoni_mapping *mapping;
	char *base;
	enum baton_status status;
};

static void *
take_main(void *argument)
{
	struct claimant *claimant = argument;

	claimant->status = take_mapping(UINT64_C(60000000000), &claimant->mapping,
	                                &claimant->base);
	return NULL;
}

static void *
give_main(void *argument)
{
	batoni_mapping_give(&device, argument);
	return NULL;
}

/* The driver stands in another thread's call, to map and then to unmap. */
START_TEST(the_call_of_another_thread_is_waited_for_as_long_as_one_s_own_may_take)
{
	struct claimant first = {.mapping = NULL};
	struct batoni_mapping *second = NULL;
	pthread_t giver;
	char *base = NULL;

	begin();
	pthread_create(&first.thread, NULL, take_main, &first);
	sem_wait(&in_call);
	ck_assert_int_eq(take_mapping(1000000, &second, &base), BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "another thread"));
	sem_post(&may_return);
	pthread_join(first.thread, NULL);
	ck_assert_int_eq(first.status, BATON_OK);
	ck_assert_ptr_eq(first.base, block + 8);
	/* There it is, at once. */
	ck_assert_int_eq(take_mapping(0, &second, &base), BATON_OK);
	ck_assert_ptr_eq(second, first.mapping);
	ck_assert_int_eq(maps, 1);
	batoni_mapping_give(&device, second);
	ck_assert_int_eq(unmaps, 0);
	pthread_create(&giver, NULL, give_main, first.mapping);
	sem_wait(&in_call);
	ck_assert_int_eq(take_mapping(1000000, &second, &base), BATON_ERR_UNSUPPORTED);
	sem_post(&may_return);
	pthread_join(giver, NULL);
	ck_assert_uint_eq(batoni_mappings(), 0);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		the_call_of_another_thread_is_waited_for_as_long_as_one_s_own_may_take,
	};

	return RUN_TESTS("mapping", tests);
}
