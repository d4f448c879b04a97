/* SPDX-License-Identifier: BSD-3-Clause */
#include "on_fake_device.h"

#include <stdio.h>

#include "fake_memory.h"
#include "testing.h"

const struct conform_memory on_fake_memory = {
	.alloc = fake_memory_alloc,
	.free = fake_memory_free,
	.copy = fake_memory_copy,
};

enum baton_status
on_fake_device_open(int size, const struct baton_comm_options *options,
                    struct baton_comm *comms[])
{
	return batoni_comm_create_local_with(&batoni_fake_device_ops, size,
	                                     options, comms);
}

int
on_fake_device_end(int result)
{
	if (fake_device_violations() == 0)
		return result;
	printf("not ok  the device's contract was broken\n");
	return 1;
}
