/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_native.h"

#include <stdlib.h>

struct batoni_native fake_natives[FAKE_NATIVES_MAX];
static int created;

static uint32_t
no_slots(int size)
{
	(void)size;
	return 0;
}

static enum baton_status
fake_native_create(const struct batoni_native_config *config,
                   struct batoni_native **native_p)
{
	(void)config;
	if (created == FAKE_NATIVES_MAX)
		abort();
	fake_natives[created].alive = true;
	*native_p = &fake_natives[created++];
	return BATON_OK;
}

static void
fake_native_discard(struct batoni_native *native)
{
	native->alive = false;
}

int
fake_natives_created(void)
{
	return created;
}

int
fake_natives_alive(void)
{
	int alive = 0;

	for (int i = 0; i < created; i++)
		alive += fake_natives[i].alive;
	return alive;
}

struct batoni_native_ops
fake_native_ops(enum baton_status (*step)(struct batoni_native *native,
                                          struct batoni_transport *lower,
                                          struct batoni_transport **transport_p))
{
	return (struct batoni_native_ops){
		.id = BATON_TRANSPORT_NCCL,
		.name = "nccl",
		.constant = "BATON_TRANSPORT_NCCL",
		.slots = no_slots,
		.create = fake_native_create,
		.discard = fake_native_discard,
		.step = step,
	};
}
