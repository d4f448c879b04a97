/* SPDX-License-Identifier: BSD-3-Clause */
#include "on_fake_device.h"

#include <stdio.h>

#include "fake_memory.h"
#include "testing.h"

static void *
fake_alloc(enum conform_kind kind, size_t bytes)
{
	return kind == CONFORM_KIND_DEVICE ? fake_memory_alloc(bytes) : NULL;
}

const struct conform_memory on_fake_memory = {
	.alloc = fake_alloc,
	.free = fake_memory_free,
	.copy = fake_memory_copy,
	.is_device = fake_memory_has,
};

enum baton_status
on_fake_device_open(int size, const struct baton_comm_options *options,
                    struct baton_comm *comms[])
{
	return batoni_comm_create_local_with(&batoni_fake_device_ops, size,
	                                     options, comms);
}

enum baton_status
on_two_devices_open(int size, const struct baton_comm_options *options,
                    struct baton_comm *comms[])
{
	const struct batoni_device_ops *devices[64];

	for (int i = 0; i < size; i++)
		devices[i] = on_two_devices(i);
	return batoni_comm_create_local_mixed(devices, size, options, comms);
}

const struct batoni_device_ops *
on_two_devices(int rank)
{
	return rank % 2 ? &batoni_device_host_ops : &batoni_fake_device_ops;
}

int
on_fake_device_end(int result)
{
	if (fake_device_violations() == 0)
		return result;
	printf("not ok  the device's contract was broken\n");
	return 1;
}
