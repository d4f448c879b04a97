/* SPDX-License-Identifier: BSD-3-Clause */
#include "copies.h"

#include "clock.h"

bool
batoni_copies_overlap(const struct batoni_copy *a, const struct batoni_copy *b)
{
	return (uintptr_t)a->to < (uintptr_t)b->to + b->bytes &&
	       (uintptr_t)b->to < (uintptr_t)a->to + a->bytes;
}

bool
batoni_copy_await(struct batoni_device *device, struct batoni_ticket *ticket,
                  const struct batoni_patience *patience)
{
	const struct batoni_memory_ops *memory = device->ops->memory;
	struct batoni_fault fault;

	for (unsigned tries = 0;
	     memory->copy_test(device, ticket) == BATON_PENDING; tries++) {
		if (batoni_real_ns() >= patience->until_ns ||
		    memory->health(device, &fault) != BATON_OK)
			return false;
		patience->yield(tries);
	}
	return true;
}
